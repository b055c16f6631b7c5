"""The database: opened only if it can be trusted, written only under a lock, on disk when a transaction returns.

SQLite runs with a write-ahead log and `synchronous = FULL`: a commit is on disk when it returns (with NORMAL a power
cut could forget a charge). A writer takes the lock before it reads (`BEGIN IMMEDIATE`; on PostgreSQL the one row of
`hetdp_ledger`, `FOR UPDATE`), so what it decides from cannot change before it commits.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from hetdp.errors import HetdpError, InputError

from ._errors import LedgerError
from ._place import check_place
from ._schema import run

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

PATIENCE = 60
"""Seconds to wait for another writer."""

_OLDEST = (3, 24)  # it has INSERT … ON CONFLICT DO UPDATE
_MAGIC = b"SQLite format 3\x00"
_CAUSES = {
    "SQLITE_FULL": "the disk is full",
    "SQLITE_READONLY": "it is read-only for this user",
    "SQLITE_CORRUPT": "the file is damaged",
    "SQLITE_NOTADB": "the file is damaged or no ledger",
    "SQLITE_BUSY": f"another program has kept it locked for {PATIENCE} seconds",
    "SQLITE_IOERR": "the disk is full or cannot be read or written",
    "SQLITE_CANTOPEN": "the file or its folder cannot be written by this user",
    "SQLITE_CONSTRAINT": "somebody's budget, or a rule of the ledger, would be broken",
    "53": "the server has run out of disk or memory",
    "25006": "it is read-only for this user",
    "42501": "this user may not do that",
    "42P01": "there is no ledger in this database; make one with: hetdp ledger init",
    "23": "somebody's budget, or a rule of the ledger, would be broken",
    "P0001": "a ledger is append-only",
    "57P": "the server has ended the connection; try again",
    "55P03": f"another program has kept it locked for {PATIENCE} seconds",
    "08": "the server cannot be reached",
}


@dataclass(frozen=True, eq=False)
class Store:
    """An open database.

    Attributes
    ----------
    name
        How messages call it; without a password.
    head_file
        Where the head is kept outside of the database; None if nowhere.
    idle
        Connections between two transactions. None of them has failed.
    """

    engine: Engine
    name: str
    head_file: Path | None
    idle: list[Connection] = field(default_factory=list)

    @property
    def sqlite(self) -> bool:
        """Whether this is a file."""
        return self.engine.dialect.name == "sqlite"

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Give a connection that sees one moment of the ledger."""
        begin = "BEGIN" if self.sqlite else "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
        with self._transaction(begin, end="ROLLBACK") as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """Give the one connection that may write; what it did is on disk when the block ends without an error."""
        with self._transaction("BEGIN IMMEDIATE" if self.sqlite else "BEGIN", end="COMMIT") as connection:
            if not self.sqlite:
                connection.exec_driver_sql("SET LOCAL synchronous_commit TO on")
                connection.exec_driver_sql(f"SET LOCAL lock_timeout TO '{PATIENCE}s'")
                connection.exec_driver_sql("SELECT one FROM hetdp_ledger FOR UPDATE")
            yield connection

    @contextmanager
    def making(self) -> Iterator[Connection]:
        """Give a connection that makes the tables, or changes their form."""
        with self._transaction("BEGIN IMMEDIATE" if self.sqlite else "BEGIN", end="COMMIT") as connection:
            yield connection

    @contextmanager
    def _transaction(self, begin: str, end: str) -> Iterator[Connection]:
        with translated(self.name):
            connection = self._kept() or self.engine.connect()
            try:
                run(connection, begin)
                yield connection
                run(connection, end)
            except BaseException:  # an interrupt too must give the lock back, and so must a second one
                try:
                    with _quiet():
                        run(connection, "ROLLBACK")
                finally:
                    with _quiet():
                        connection.close()
                raise
            self.idle.append(connection)

    def _kept(self) -> Connection | None:
        """Return a connection that was kept; another thread may have taken the last one."""
        try:
            return self.idle.pop()
        except IndexError:
            return None

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Close all connections if the block fails: none stays open to a ledger that is refused."""
        try:
            yield
        except BaseException:  # whatever it is
            self.close()
            raise

    def close(self) -> None:
        """Close all connections."""
        while (connection := self._kept()) is not None:
            connection.close()
        self.engine.dispose()


@contextmanager
def _quiet() -> Iterator[None]:
    """Let a failing rollback pass: the error that led to it is the one to show."""
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (SQLAlchemyError, sqlite3.Error):
        return


@contextmanager
def translated(name: str) -> Iterator[None]:
    """Turn an error of the database into one sentence; its own message may quote what it was given."""
    from sqlalchemy.exc import DBAPIError, SQLAlchemyError

    try:
        yield
    except DBAPIError as error:
        raise LedgerError(f"{name} cannot be used: {_cause(error.orig)}") from None
    except (sqlite3.Error, SQLAlchemyError) as error:
        raise LedgerError(f"{name} cannot be used: {_cause(error)}") from None


@contextmanager
def readable(name: str) -> Iterator[None]:
    """Turn what a damaged entry brings about into one sentence: SQLite keeps a cell of any type in any column."""
    try:
        yield
    except HetdpError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError):
        raise LedgerError(
            f"{name} is damaged: it has an entry that no ledger writes; nothing is released from it"
        ) from None


def _cause(error: BaseException | None) -> str:
    code = str(getattr(error, "sqlite_errorname", "") or getattr(error, "sqlstate", "") or "")
    for start, cause in _CAUSES.items():
        if code.startswith(start):
            return cause
    if not code and type(error).__module__.startswith("psycopg"):
        return _CAUSES["08"]
    return f"the database reports {code or type(error).__name__}"


def opened(where: str | os.PathLike[str], head_file: str | os.PathLike[str] | None, *, new: bool = False) -> Store:
    """Return the store of a file name or of a postgresql:// address; `new` makes the file."""
    if find_spec("sqlalchemy") is None:
        raise LedgerError("a ledger needs SQLAlchemy; install it with: pip install 'hetdp[sql]'")
    text = os.fspath(where)
    beside = None if head_file is None else Path(head_file)
    if text.startswith(("postgresql:", "postgres:", "postgresql+")):
        _no_head(beside, new=new)
        return _postgres(text, beside)
    if "://" in text:
        raise InputError(f"a ledger is a file or a postgresql:// address (got {text.partition('://')[0]}://…)")
    path = Path(text)
    beside = beside or Path(f"{path.resolve()}.head")  # a link to the ledger is the same ledger, with the same head
    check_place(path)
    if new and path.exists():
        raise InputError(f"{path} exists already; open it, or choose another name for a new ledger")
    _no_head(beside, new=new)
    (_make if new else _check_file)(path)
    return _sqlite(path, beside)


def _no_head(path: Path | None, *, new: bool) -> None:
    if new and path is not None and path.exists():
        raise LedgerError(
            f"{path} says that a ledger was here; starting a new one would forget what it has charged: "
            "bring it back, or choose another name"
        )


def _make(path: Path) -> None:
    if not path.parent.is_dir():
        raise InputError(f"{path} cannot be made: its folder does not exist")
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except OSError as error:
        raise InputError(f"{path} cannot be made: {error.strerror}") from None


def _check_file(path: Path) -> None:
    if not path.exists():
        raise LedgerError(f"{path} does not exist; make a ledger with: hetdp ledger init {path}")
    if not path.is_file():
        raise LedgerError(f"{path} is not a file; a ledger is one file or a postgresql:// address")
    if not os.access(path, os.R_OK | os.W_OK) or not os.access(path.resolve().parent, os.W_OK):
        raise LedgerError(f"{path} cannot be used: it or its folder is read-only for this user")
    with path.open("rb") as file:
        if file.read(len(_MAGIC)) != _MAGIC:
            raise LedgerError(f"{path} cannot be used: the file is damaged or no ledger")


def _sqlite(path: Path, head_file: Path) -> Store:
    from sqlalchemy import URL, create_engine, event

    if sqlite3.sqlite_version_info < _OLDEST:
        oldest = ".".join(map(str, _OLDEST))
        raise LedgerError(f"a ledger needs SQLite {oldest} (this Python has {sqlite3.sqlite_version}); use a newer one")
    # In mode rw a file that vanished is an error, not a new and empty ledger.
    name = quote(os.fsencode(path.resolve()))  # of bytes: a name need not be text
    url = URL.create("sqlite", database=f"file:{name}", query={"mode": "rw", "uri": "true"})
    engine = create_engine(url, isolation_level="AUTOCOMMIT", connect_args={"timeout": PATIENCE})

    @event.listens_for(engine, "connect")
    def careful(connection: Any, _record: Any) -> None:
        for pragma in ("journal_mode = WAL", "synchronous = FULL", "fullfsync = ON"):
            connection.execute(f"PRAGMA {pragma}")
        if connection.execute("PRAGMA journal_mode").fetchone() != ("wal",):
            raise LedgerError(f"{path} cannot be used: its file system does not allow a write-ahead log")

    return Store(engine, str(path), head_file)


def _postgres(text: str, head_file: Path | None) -> Store:
    from sqlalchemy import create_engine, make_url
    from sqlalchemy.exc import ArgumentError

    try:
        url = make_url(text).set(drivername="postgresql+psycopg")
        engine = create_engine(url, isolation_level="AUTOCOMMIT")
    except ImportError:
        raise LedgerError(
            "a ledger in PostgreSQL needs psycopg; install it with: pip install 'hetdp[postgres]'"
        ) from None
    except (ArgumentError, ValueError):
        raise InputError("the address of the database cannot be read; write postgresql://user@host/name") from None
    store = Store(engine, url.set(password=None).render_as_string().replace("+psycopg", ""), head_file)
    with translated(store.name), engine.connect() as connection:
        syncs = connection.exec_driver_sql("SHOW fsync").scalar() == "on"
    if not syncs:
        store.close()
        raise LedgerError(f"{store.name} runs with fsync = off and would forget charges; switch it on")
    return store
