"""Who is asking: the curator, a participant, nobody. Every check here is a lookup by hash and one comparison."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from fastapi import Request
from starlette.responses import Response

from . import keys, store
from .errors import RefusedError
from .guard import SAFE

if TYPE_CHECKING:
    from .settings import Settings

CURATOR, PARTICIPANT = "hetdp_curator", "hetdp_person"
CURATOR_SECONDS = 12 * 3600
PERSON_SECONDS = 90 * 86_400

Execute = Callable[..., sa.CursorResult[Any]]


def cookie_name(kind: str, settings: Settings) -> str:
    """Return the name of a cookie; over HTTPS it is bound to this host."""
    return f"__Host-{kind}" if settings.secure else kind


def set_cookie(response: Response, kind: str, token: str, seconds: int, settings: Settings) -> None:
    """Hand a session to a browser: no script reads it, no other site's page sends it."""
    response.set_cookie(
        cookie_name(kind, settings), token, max_age=seconds, httponly=True, samesite="strict", secure=settings.secure
    )


def session_token(request: Request, kind: str) -> str:
    """Return the session of a request, or raise; with a change there must be the CSRF token that belongs to it."""
    token = request.cookies.get(cookie_name(kind, request.app.state.settings))
    if not token:
        raise RefusedError(401)
    if request.method not in SAFE and not keys.same(keys.csrf_of(token), request.headers.get("x-csrf-token", "")):
        raise RefusedError(403)
    return token


def open_session(transaction: store.Transaction, person: str | None, seconds: int) -> str:
    """Return the token of a new session."""
    token, now = keys.fresh(), int(time.time())
    transaction.execute(sa.delete(store.sessions).where(store.sessions.c.expires < now))
    row: dict[str, Any] = {"hash": keys.digest("session", token), "person": person, "expires": now + seconds}
    proof = _proof(transaction, **row, epoch=transaction.register.epoch(person))
    transaction.execute(sa.insert(store.sessions).values({**row, "proof": proof}))
    return token


def _proof(transaction: store.Transaction, hash: str, person: str | None, expires: int, epoch: int) -> str:  # noqa: A002
    """Return a MAC by which a session belongs to one person and epoch, whoever else can write to its table."""
    return transaction.register.sign("session", hash, person, expires, epoch).hex()


def only_session(transaction: store.Transaction, row: Any) -> None:
    """End all sessions of a person but this one; also for whoever puts the row of another one back."""
    table, epoch = store.sessions, transaction.register.epoch(row.person) + 1
    others = (table.c.person == row.person) & (table.c.hash != row.hash)
    transaction.execute(sa.delete(table).where(others))
    proof = _proof(transaction, row.hash, row.person, row.expires, epoch)
    transaction.execute(sa.update(table).where(table.c.hash == row.hash).values(proof=proof))
    transaction.after(lambda: transaction.register.end_sessions(row.person, epoch))


def close_session(transaction: store.Transaction, token: str) -> None:
    """Forget a session. With a participant's all of theirs end, so that none can be put back."""
    found = session(transaction, token)
    hashed = keys.digest("session", token)
    transaction.execute(sa.delete(store.sessions).where(store.sessions.c.hash == hashed))
    if found is not None and found.person is not None:
        epoch = transaction.register.epoch(found.person) + 1
        transaction.after(lambda: transaction.register.end_sessions(found.person, epoch))


def is_curators(transaction: store.Transaction, token: str) -> bool:
    """Say whether a token is a session of the curator."""
    found = session(transaction, token)
    return found is not None and found.person is None


def is_key(execute: Execute, key: str) -> bool:
    """Say whether this is the curator's key."""
    stored = execute(sa.select(store.facts.c.text).where(store.facts.c.name == "curator")).scalar()
    return keys.same(stored, keys.digest("curator", key))


_SESSION = sa.select(store.sessions).where(store.sessions.c.hash == sa.bindparam("token_hash"))


def session(transaction: store.Transaction, token: str) -> Any:
    """Return the row of a session, if there is one that this server made; its person is None for the curator."""
    hashed = keys.digest("session", token)
    row = transaction.execute(_SESSION, {"token_hash": hashed}).first()
    known = keys.same(row.hash if row else None, hashed) and row is not None and row.expires > time.time()
    if not known or row is None:
        return None
    epoch = transaction.register.epoch(row.person)  # or the next one, if it is just beginning
    proofs = (_proof(transaction, row.hash, row.person, row.expires, epoch + more) for more in (0, 1))
    return row if any(keys.same(row.proof, proof) for proof in proofs) else None


async def curator(request: Request) -> None:
    """Raise unless the curator asks: by a session, or a program by `Authorization: Bearer KEY`."""
    scheme, _, key = request.headers.get("authorization", "").partition(" ")
    database: store.Store = request.app.state.store
    if scheme.lower() == "bearer":
        allowed = await database.read(lambda connection: is_key(connection.execute, key.strip()))
        if not allowed:
            attempt(request)
    else:
        token = session_token(request, CURATOR)
        allowed = await database.read(lambda transaction: is_curators(transaction, token))
    if not allowed:
        raise RefusedError(401)


def attempt(request: Request) -> None:
    """Count a token that is tried; raise when an address tries too many."""
    state = request.app.state
    address = request.client.host if request.client else ""
    if not state.rates.allow("attempt", address, state.settings.attempts):
        raise RefusedError(429)
