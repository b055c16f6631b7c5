"""How the server is: `hetdp serve --check` before a start, `/health` and the status page while it runs.

The check says everything that is wrong, and makes and changes nothing. Everybody may ask `/health`, so it answers with
fixed words alone. The status page has public facts: counts, times, versions and the ledger's head, never an answer.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import socket
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, NamedTuple

import sqlalchemy as sa
from fastapi import APIRouter, Depends, FastAPI, Request
from starlette.responses import JSONResponse

from hetdp import __version__
from hetdp.errors import HetdpError, InputError
from hetdp.ledger import SCHEMA, Ledger

from . import access, tables
from .access import RefusedError, StrictRoute, where_raised
from .backup import fits_key, last_backup, not_for_root, not_lost, vault_there, versions_there
from .settings import LOOPBACK, Settings
from .store import ChangedError, Register, Transaction
from .studies import Study

# Clocks of two machines may differ by so many seconds.
_TOLERANCE = 300
_OLD_BACKUP = 7 * 86_400
# Below so many free bytes the server says that it is unwell: SQLite and the ledger need room to go on.
LEAST_FREE = 64 * 2**20


class Finding(NamedTuple):
    """What was looked at, how it is (ok, warning, error), and a sentence."""

    part: str
    level: str
    sentence: str

    def __str__(self) -> str:
        return f"{self.level:<8}{self.part}: {self.sentence}"


def check(settings: Settings) -> list[Finding]:
    """Return what was found, in the order in which a start would meet it."""
    found: list[Finding] = []
    for part, look in _PARTS.items():
        try:
            found += [Finding(part, *one) for one in look(settings)]
        except tables.UnreachedError as error:  # whoever asked it
            found.append(Finding("database", "error", str(error)))
        except HetdpError as error:
            found.append(Finding(part, "error", str(error)))
        except OSError as error:
            found.append(Finding(part, "error", f"{error.filename or 'a file'}: {error.strerror}"))
        except (sa.exc.SQLAlchemyError, sqlite3.Error) as error:
            # The messages of a database may quote the address with its password; ours do not.
            found.append(Finding(part, "error", f"cannot be read or reached ({type(error).__name__})"))
    return list(dict.fromkeys(found))  # what several parts need is said once


Found = Iterator[tuple[str, str]]


def _network(settings: Settings) -> Found:
    listens = settings.host if settings.host != "::1" else "[::1]"
    alone = listens in LOOPBACK
    if settings.origin is None and not alone:
        yield "error", f"it listens on {settings.host}, and no name is known under which it is asked: give --origin URL"
    elif settings.origin is None and settings.proxies:
        yield "warning", "a proxy is trusted, and under which address it is reached is not known: give --origin URL"
    elif settings.origin is None:
        yield "ok", f"reached from this machine alone, on {settings.host} port {settings.port}"
    elif not settings.secure:
        yield "warning", f"{settings.origin} is not https: whoever listens on the way reads answers and keys"
    elif not settings.proxies:
        yield "warning", "no proxy is trusted (--proxy), so all clients have its address and share one limit"
    else:
        yield "ok", f"{settings.origin} through a proxy at {', '.join(settings.proxies)}"
    if settings.secure and not alone:
        plain = f"it listens on {settings.host} without TLS, and {settings.origin} is https"
        if settings.proxies:
            yield "warning", f"{plain}: let nobody but the proxy reach port {settings.port}"
        else:
            yield "error", f"{plain}: put a proxy before it"
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    with suppress(socket.gaierror), closing(socket.socket(family)) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((settings.host, settings.port))
        except OSError as error:
            running = _is_locked(settings)
            why = "a server is running there" if running else str(error.strerror)
            yield "warning" if running else "error", f"{settings.host} port {settings.port} cannot be used: {why}"


def _is_locked(settings: Settings) -> bool:
    """Say whether a server holds the lock of this database on this machine."""
    path = Path(f"{settings.sqlite_file or settings.register_file}.lock")
    if not path.exists():
        return False
    handle = os.open(path, os.O_RDWR)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(handle)
    return False


def _key(settings: Settings) -> Found:
    if settings.key is None and not settings.vault_file.exists():
        parent = settings.vault_file.resolve().parent
        if not os.access(parent, os.W_OK):
            yield "error", f"the key file {settings.vault_file} cannot be made: its folder is missing or read-only"
            return
        if _there(settings):
            not_lost(settings)
        yield "ok", f"{settings.vault_file} is made at the first start"
    else:
        vault_there(settings)
        yield "ok", "in HETDP_KEY" if settings.key is not None else f"in {settings.vault_file}, for its owner alone"
    if settings.key_beside_database:
        yield "warning", "it lies in the folder of the database: whoever copies this folder can read every answer"
    fresh = None if settings.key is not None else settings.vault_file.with_name(f"{settings.vault_file.name}.new")
    if fresh is not None and fresh.exists():
        cut_off = "a key rotation was cut off"
        if _is_right_key(settings):  # then a start makes nothing of it
            yield "warning", f"{cut_off} before it changed anything; repeat it when you like: hetdp serve --rotate-key"
        else:
            yield "error", f"{cut_off}; finish it with: hetdp serve --rotate-key"


def _is_right_key(settings: Settings) -> bool:
    """Say whether the key is the one with which the answers in the database were sealed."""
    try:
        there = _rows(settings, "SELECT text FROM server_facts WHERE name = 'vault'") if _there(settings) else []
        fits_key(settings, there[0][0] if there else None)
    except InputError:
        return False
    return True


def _there(settings: Settings) -> bool:
    """Say whether there is a server's database; SQLite would make an empty file if it was merely connected to."""
    if settings.sqlite_file is not None:
        query = "SELECT 1 FROM sqlite_master WHERE name = 'server_facts'"
        return settings.sqlite_file.exists() and bool(_rows(settings, query))
    with tables.asked(settings.database) as connection:
        return bool(sa.inspect(connection).has_table("server_facts"))


def _rows(settings: Settings, query: str) -> list[Any]:
    """Return what a query of our own finds; SQLite is opened for reading alone."""
    file = settings.sqlite_file
    if file is not None:
        address = f"{file.as_uri()}?mode=ro"
        with tables.in_words(settings.database), closing(sqlite3.connect(address, uri=True)) as raw:
            return raw.execute(query).fetchall()
    with tables.asked(settings.database) as connection:
        return list(connection.exec_driver_sql(query).all())


def _database(settings: Settings) -> Found:
    file, secret = settings.sqlite_file, settings.database_file
    not_for_root(settings)
    if secret is not None and secret.stat().st_mode & 0o077:
        yield "warning", f"others can read {secret}, which holds the database's password; run chmod 600 on it"
    if file is not None:
        if not os.access(file.parent, os.W_OK) or (file.exists() and not os.access(file, os.W_OK)):
            yield "error", f"{file} or its folder is missing or read-only for this user"
            return
        if file.exists() and file.stat().st_mode & 0o077:
            yield "warning", f"others can read {file}; the server will change that at its start"
    if not _there(settings):
        not_lost(settings)
        if file is not None and file.exists() and file.stat().st_size:
            yield "warning", f"{file} is a database of something else; the start would add tables to it"
        yield "ok", "reached; there is no server's database yet, it is made at the first start"
        return
    facts = dict(map(tuple, _rows(settings, "SELECT name, text FROM server_facts")))
    version = facts.get("version")
    known = str(version).isdecimal() and 1 <= int(str(version)) <= int(tables.VERSION)
    if not known:
        yield "error", f"this hetdp does not know version {version} of the database; update hetdp"
    elif version != tables.VERSION:
        yield "warning", f"the start upgrades it from version {version} to {tables.VERSION}, after a backup"
    else:
        yield "ok", f"reached, version {version}"
    with suppress(InputError):  # said above
        vault_there(settings)
        try:
            fits_key(settings, facts.get("vault"))
        except InputError as error:
            yield "error", str(error)
    yield from _settings_of_postgresql(settings) if file is None else ()


def _settings_of_postgresql(settings: Settings) -> Found:
    if _rows(settings, "SHOW fsync")[0][0] != "on":
        yield "error", "PostgreSQL runs with fsync = off and would forget answers; switch it on"
    if _rows(settings, "SHOW wal_recycle")[0][0] == "on":
        yield "warning", "PostgreSQL runs with wal_recycle = on: its log keeps deleted answers, sealed; turn it off"


def _ledger(settings: Settings) -> Found:
    file = settings.sqlite_file
    made = _there(settings) and ("ledger",) in [tuple(row) for row in _rows(settings, "SELECT name FROM server_facts")]
    if not made:
        there = file is not None and Path(settings.ledger).exists()
        if not there:
            not_lost(settings)
        yield "ok", f"{settings.ledger} is there" if there else "it is made at the first start"
        return
    if file is not None and not Path(settings.ledger).exists():
        raise InputError(tables.LEDGER_GONE)
    if not settings.ledger_head.exists() and settings.expect_head is None:
        yield (
            "error",
            f"{settings.ledger_head} is missing; bring it back, or restore a backup: hetdp serve --restore FOLDER",
        )
        return
    _, version = versions_there(settings) or (None, None)
    if version is not None and version < SCHEMA:
        yield "warning", f"the start upgrades it from version {version} to {SCHEMA}, after a backup"
        return
    with Ledger(settings.ledger, head_file=settings.ledger_head, expect_head=settings.expect_head) as ledger:
        yield "ok", f"head {ledger.head[:24]}…, as outside of it"


def _register(settings: Settings) -> Found:
    version, _ = versions_there(settings) or (None, None)
    if version is None:
        not_lost(settings)
    if not settings.register_file.exists():
        if version is not None and not settings.trust_database:
            with tables.asked(settings.database) as connection:
                tables.has_register(connection, settings.register_file, version)
        yield "ok", f"{settings.register_file} is made at the first start"
        return
    known, changed = _vouched(settings), 0
    if version == tables.VERSION and _is_right_key(settings):  # else it is said above
        changed = _changed(settings, known)
    if changed:
        outside = "it was changed from outside, or an older copy was put back. The studies concerned are not published"
        yield "warning", f"rows of the database that are not as this server wrote them: {changed:,}; {outside}"
    if settings.register_file.stat().st_mode & 0o077:
        yield "warning", f"others can read {settings.register_file}; the server will change that at its start"
    yield "ok", str(settings.register_file)


def _changed(settings: Settings, known: set[bytes]) -> int:
    """Return how many rows the register does not vouch for, before or after they are read: a server may be writing."""
    register = Register(settings.register_file, vault_there(settings).register_key)
    with tables.asked(settings.database) as connection:
        signed = (
            register.sign_row(kind, row)[:32]
            for kind, table in tables.VOUCHED.items()
            for row in connection.execute(sa.select(table))
        )
        odd = [mac for mac in signed if mac not in known]
    return len(set(odd) - _vouched(settings)) if odd else 0


def _vouched(settings: Settings) -> set[bytes]:
    with closing(sqlite3.connect(f"{settings.register_file.as_uri()}?mode=ro", uri=True)) as raw:
        return {mac[:32] for macs in raw.execute("SELECT mac, coming FROM vouched") for mac in macs if mac is not None}


def _disk(settings: Settings) -> Found:
    free = free_bytes(settings)
    said = f"{free // 2**20:,} MiB free"
    yield ("ok", said) if free >= LEAST_FREE else ("error", f"{said}; at least {LEAST_FREE // 2**20} are needed")


def _clock(settings: Settings) -> Found:
    last = last_event(settings)
    if last is not None and time.time() < last - _TOLERANCE and not settings.trust_clock:
        yield "error", _BACK.format(access.date(int(time.time())), access.date(last))
    else:
        yield "ok", access.date(int(time.time()))


_BACK = (
    "the clock says {}, and the last event in the database is of {}: dates that bind people would be wrong. Set the "
    "clock; if that event has the wrong time, start once with --trust-clock"
)


def last_event(settings: Settings) -> int | None:
    """Return the time of the last event in the log of the database, if there is one."""
    if not _there(settings):
        return None
    with suppress(tables.UnreachedError):  # no such table yet
        found = _rows(settings, "SELECT max(at) FROM server_audit")
        return None if found[0][0] is None else int(found[0][0])
    return None


def check_clock(settings: Settings) -> None:
    """Raise if the clock was set back since the last event."""
    for level, sentence in _clock(settings) if not settings.trust_clock else ():
        if level == "error":
            raise InputError(sentence)


def _last_backup(settings: Settings) -> int | None:
    with suppress(OSError, ValueError, LookupError):
        return int(json.loads(last_backup(settings).read_text(encoding="utf-8"))["made"])
    return None


def _backups(settings: Settings) -> Found:
    made = _last_backup(settings)
    if made is None:
        unread = f"{last_backup(settings)} cannot be read by this user" if last_backup(settings).exists() else None
        yield "warning" if _there(settings) else "ok", unread or "none was made yet: hetdp serve --backup FOLDER"
        return
    old = time.time() - made > _OLD_BACKUP
    yield "warning" if old else "ok", f"the last one is of {access.date(made)}"


def _copies(settings: Settings) -> Found:
    """Name the folders that an upgrade or a restore has left: there may be deleted answers in them, sealed."""
    place = settings.sqlite_file or settings.register_file
    found = [path.name for path in sorted(place.parent.glob(f"{place.name}.before-*")) if path.is_dir()]
    if found:
        yield (
            "warning",
            f"older copies of answers or of their register are in {place.parent}: {', '.join(found)}; "
            "delete them when all is well",
        )
    else:
        yield "ok", "an upgrade or a restore has left none"


_PARTS: dict[str, Callable[[Settings], Found]] = {
    "network": _network,
    "key": _key,
    "database": _database,
    "ledger": _ledger,
    "register": _register,
    "disk": _disk,
    "clock": _clock,
    "backup": _backups,
    "copies": _copies,
}


# ---------------------------------------------------------------------------------------------------------
# While it runs

status = APIRouter(route_class=StrictRoute)
# What is looked at, in this order.
_WORKING = ("database", "ledger", "register", "disk")
# What a database raises that is stopped, full or read-only.
FAILURES = (sa.exc.DBAPIError, sa.exc.TimeoutError, sqlite3.Error)
_UNKNOWN = "The database cannot be used now. It is not known whether this was done: look again before you repeat it."


def unreachable(request: Request, error: Exception) -> RefusedError:
    """Return what is said of a failure of the database, in fixed words; the log has the kind of error.

    A commit that fails may have happened; who wanted to read is told to try again (`pages`).
    """
    why = {"id": request.state.request_id, "error": type(error).__name__, "at": where_raised(error)}
    access.log.error("database failed", extra={"facts": why})
    return RefusedError(503, "database", _UNKNOWN)


@status.get("/health", tags=["everybody"])
def health(request: Request) -> JSONResponse:
    """Say whether the server can do its work: database, ledger, register and disk; 503 with the first that cannot."""
    failing = next((part for part in _WORKING if not _works(request.app, part)), None)
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


def free_bytes(settings: Settings) -> int:
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
    return {
        "working": {part: _works(request.app, part) for part in _WORKING},
        "versions": {"hetdp": __version__, "database": tables.VERSION, "ledger": SCHEMA},
        **found,
        "ledger_head": ledger,
        "last_backup": _last_backup(state.settings),
        "free_bytes": free_bytes(state.settings),
        "key_beside_database": state.settings.key_beside_database,
        "now": int(access.now()),
    }


def _counts(transaction: Transaction) -> dict[str, Any]:
    people, about, results = tables.people, tables.studies, tables.results

    def count(query: Any) -> int:
        return int(transaction.execute(query).scalar() or 0)

    out = set(transaction.execute(sa.select(results.c.study)).scalars())
    return {
        "studies": Counter(
            _phase(transaction, dict(row._mapping), out) for row in transaction.execute(sa.select(about))
        ),
        "people": count(sa.select(sa.func.count()).where(people.c.epsilon.is_not(None))),
        "answers_kept": count(sa.select(sa.func.count()).where(people.c.answer.is_not(None), people.c.epsilon > 0)),
        "waves_published": count(sa.select(sa.func.count()).select_from(results)),
        "last_published": transaction.execute(sa.select(sa.func.max(results.c.published))).scalar(),
    }


def _phase(transaction: Transaction, row: dict[str, Any], out: set[str]) -> str:
    """Return where a study stands; it is over if it has no result here, as after a restore."""
    try:
        phase = Study.of(transaction.believed("study", row)).phase()
    except ChangedError:
        return "changed"
    return "over" if phase == "published" and row["id"] not in out else phase
