"""How the server is: `/health` for machines, the status page for curators, and what is said if a part fails.

Everybody may ask `/health`, so it answers with fixed words alone. The status page has public facts: counts, times,
versions and the ledger's head, never an answer.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import suppress
from typing import Any

import sqlalchemy as sa
from fastapi import APIRouter, Depends, FastAPI, Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from hetdp import __version__
from hetdp.errors import HetdpError
from hetdp.ledger import SCHEMA

from . import access, tables
from .access import RefusedError, StrictRoute, where_raised
from .backup import last_backup
from .store import Transaction

status = APIRouter(route_class=StrictRoute)
# Below so many free bytes the server says that it is unwell: SQLite and the ledger need room to go on.
LEAST_FREE = 64 * 2**20
_WORDS = {
    "database": "The database cannot be reached, or cannot be written, now. Nothing was changed; try again.",
    "ledger": "The ledger cannot be read now.",
    "register": "The register cannot be read now.",
    "disk": "The disk is nearly full.",
}


def add(app: FastAPI) -> None:
    """Add the addresses below, and what is said when the database fails."""
    app.include_router(status)
    for kind in (sa.exc.DBAPIError, sa.exc.TimeoutError, sqlite3.Error):
        app.add_exception_handler(kind, _unreachable)


async def _unreachable(request: Request, error: Exception) -> Response:
    """Answer for a database that is stopped, full or read-only, in fixed words; the log has the kind of error."""
    why = {"id": request.state.request_id, "error": type(error).__name__, "at": where_raised(error)}
    access.log.error("database failed", extra={"facts": why})
    refusal = RefusedError(503, "database", _WORDS["database"])
    return JSONResponse(refusal.body(request.state.request_id), 503, headers={"Retry-After": "10"})


@status.get("/health", tags=["everybody"])
def health(request: Request) -> JSONResponse:
    """Say whether the server can do its work: database, ledger, register and disk; 503 with the first that cannot."""
    failing = next((part for part in _WORDS if not _works(request.app, part)), None)
    if failing is not None:
        access.log.error("unhealthy", extra={"facts": {"part": failing}})
        return JSONResponse({"status": failing, "version": __version__}, 503)
    return JSONResponse({"status": "ok", "version": __version__})


def _works(app: FastAPI, part: str) -> bool:
    state = app.state
    try:
        if part == "database":
            return state.store.read(Transaction.fact, "version") == tables.VERSION and _writable(state.store)
        if part == "ledger":
            return bool(state.publisher.ledger.head)
        if part == "register":
            return state.store.register.path.exists() and state.store.register.epoch("") is not None
        return free_bytes(state.settings) >= LEAST_FREE
    except (HetdpError, sa.exc.SQLAlchemyError, sqlite3.Error, OSError, LookupError):
        return False


def _writable(store: Any) -> bool:
    """Say whether this server is still the one that may write: an empty transaction, which takes the lock."""
    store.write(lambda _: None)
    return True


def free_bytes(settings: Any) -> int:
    """Return how much room is left where the server keeps its files."""
    return min(shutil.disk_usage(path.parent).free for path in {settings.register_file, settings.ledger_head})


@status.get("/api/status", tags=["curator"], dependencies=[Depends(access.curator)])
def operator_status(request: Request) -> dict[str, Any]:
    """Return how the server is: versions, counts, the ledger's head, the last backup, free disk."""
    state = request.app.state
    found: dict[str, Any] = state.store.read(_counts)
    ledger = None
    with suppress(HetdpError):
        ledger = state.publisher.ledger.head
    made = None
    with suppress(OSError, ValueError, LookupError):
        made = int(json.loads(last_backup(state.settings).read_text(encoding="utf-8"))["made"])
    return {
        "working": {part: _works(request.app, part) for part in _WORDS},
        "versions": {"hetdp": __version__, "database": tables.VERSION, "ledger": SCHEMA},
        **found,
        "ledger_head": ledger,
        "last_backup": made,
        "free_bytes": free_bytes(state.settings),
        "key_beside_database": state.settings.key_beside_database,
        "now": int(access.now()),
    }


def _counts(transaction: Transaction) -> dict[str, Any]:
    people, about, results = tables.people, tables.studies, tables.results

    def count(query: Any) -> int:
        return int(transaction.execute(query).scalar() or 0)

    by_status = sa.select(about.c.status, sa.func.count().label("studies")).group_by(about.c.status)
    return {
        "studies": {row.status: row.studies for row in transaction.execute(by_status)},
        "people": count(sa.select(sa.func.count()).where(people.c.epsilon.is_not(None))),
        "answers_kept": count(sa.select(sa.func.count()).where(people.c.answer.is_not(None))),
        "waves_published": count(sa.select(sa.func.count()).select_from(results)),
        "last_published": transaction.execute(sa.select(sa.func.max(results.c.published))).scalar(),
    }


class UnderPath:
    """Serves the application under a path: a proxy may pass the path on, or take it away; both reach the same page."""

    def __init__(self, app: ASGIApp, root: str) -> None:
        self.app, self.root = app, root

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Take the path away before anything else looks at the request."""
        if scope["type"] == "http" and (scope["path"] == self.root or scope["path"].startswith(f"{self.root}/")):
            scope = {**scope, "path": scope["path"][len(self.root) :] or "/"}
        await self.app(scope, receive, send)
