"""A read-only snapshot of a database, whoever opened the connection.

Whatever a driver raises may quote a private cell, so none of it is passed on: `told` runs everything that touches a
driver and raises one of a few fixed sentences, outside the handler, so that not even the chain of exceptions holds it.
"""

# ruff: noqa: S608  statements are put together from the caller's own query and from names that are quoted

from __future__ import annotations

import re
import sqlite3
import sys
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from hetdp.core.cells import LONGEST_ID, NOT_IN_ID, value_of
from hetdp.core.domain import Interval
from hetdp.errors import InputError

from . import _dialects
from ._asked import Asked
from ._sql import POSTGRES, SQLITE, Parts

T = TypeVar("T")

_DRIVERS = ("postgresql+psycopg", "postgresql+psycopg2", "sqlite+pysqlite")
_OLDEST = 14
_IDLE = 0

_STATES = {
    "08": "the database server cannot be reached; check the host, the port and the network",
    "25006": "the query tries to change the database; give a select",
    "28": "the database server refused the login; check the user and the password",
    "3D": "there is no such database on the server; check the name at the end of the URL",
    "3F": "the query names a schema that does not exist",
    "42501": "the login may not read what the query names; ask for the right to select",
    "42601": "the query has a syntax error; try it in the database's own shell",
    "42702": "the query names a column that is ambiguous",
    "42703": "the query names a column that does not exist",
    "42883": "the query calls a function or operator that does not exist",
    "42P01": "the query names a table that does not exist; a bare name of a table is taken as it is, capitals included",
    "57014": "the database stopped the query (a time limit, or somebody cancelled it)",
}
_STARTS = {
    "no such table": _STATES["42P01"],
    "no such column": _STATES["42703"],
    "no such function": _STATES["42883"],
    "near ": _STATES["42601"],
    "incomplete input": _STATES["42601"],
    "attempt to write": _STATES["25006"],
    "unable to open": "the SQLite file cannot be opened; check that it exists and may be read",
    "file is not a database": "the file is not a SQLite database",
    "database is locked": "the SQLite file is locked by another process; try again",
}
_UNREACHED = (
    "cannot connect to the PostgreSQL server; check host, port, database, user and password: "
    "postgresql://user:password@host:5432/database"
)
_FAILED = "the database could not run the query; try it in the database's own shell (its message may quote a record)"


@dataclass(frozen=True)
class Session:
    """An open snapshot. `parts` gives the expressions of its dialect for a query."""

    cursor: Any
    parts: Callable[[str, Asked, Mapping[str, str], Interval | None], Parts]
    kinds: Callable[[Session, list[Any]], list[str]]
    numbers: dict[str, float] | None = None

    def run(self, statement: str) -> list[tuple[Any, ...]]:
        """Return the rows of a statement."""
        return told(lambda: self._execute(statement).fetchall())

    def do(self, statement: str) -> None:
        """Run a statement that has no rows."""
        told(lambda: self._execute(statement))

    def columns(self, query: str) -> list[tuple[str, str]]:
        """Return the names and types of a query's columns; no row is read."""
        found = told(lambda: self._execute(f"select * from (\n{query}\n) as q limit 0").description)
        kinds = self.kinds(self, [column[1] for column in found])
        return [(column[0], kind) for column, kind in zip(found, kinds, strict=True)]

    def _execute(self, statement: str) -> Any:
        if self.numbers is None:
            self.cursor.execute(statement)  # without parameters a driver leaves % alone
        else:
            self.cursor.execute(statement, self.numbers)
        return self.cursor


def told(call: Callable[[], T], instead: str | None = None) -> T:
    """Return what a call of a driver returns, or raise a fixed sentence instead of whatever it raises."""
    try:
        return call()
    except Exception as error:  # noqa: BLE001  a driver's message may quote a private cell or a password
        sentence = instead or _sentence(error)
    raise InputError(sentence)


def _sentence(error: Exception) -> str:
    error = getattr(error, "orig", None) or error  # SQLAlchemy wraps
    state = str(getattr(error, "sqlstate", None) or getattr(error, "pgcode", None) or "")
    if isinstance(error, sqlite3.Error):
        return next((text for start, text in _STARTS.items() if str(error).startswith(start)), _FAILED)
    return next((text for code, text in _STATES.items() if state.startswith(code)), _FAILED)


@contextmanager
def session(source: Any, interval: Interval | None) -> Iterator[Session]:
    """Yield a snapshot of the database that a URL, an engine or a connection leads to; leave everything as it was."""
    with _connection(source) as connection:
        if isinstance(connection, sqlite3.Connection):
            with _sqlite(connection, interval) as opened:
                yield opened
        else:
            with _postgres(connection) as opened:
                yield opened


@contextmanager
def _connection(source: Any) -> Iterator[Any]:
    """Yield the driver's own connection; one that was opened here is closed at the end."""
    if isinstance(source, str):
        connect = _connect_postgres if POSTGRES.match(source) else _connect_sqlite
        with closing(connect(source)) as connection:
            yield connection
    elif hasattr(source, "raw_connection"):
        with closing(told(source.raw_connection)) as pooled:
            yield _driver(source, pooled)
    elif hasattr(source, "exec_driver_sql"):
        yield _driver(source, told(lambda: source.connection))
    else:
        yield source


def _driver(source: Any, pooled: Any) -> Any:
    dialect = source.dialect
    if f"{dialect.name}+{dialect.driver}" not in _DRIVERS or dialect.is_async:
        raise InputError(f"a database is read by one of {', '.join(_DRIVERS)} (got {dialect.name}+{dialect.driver})")
    return pooled.driver_connection


def _connect_postgres(url: str) -> Any:
    try:
        import psycopg
    except ImportError:
        raise InputError("PostgreSQL needs psycopg; install it: pip install 'hetdp[postgres]'") from None
    return told(lambda: psycopg.connect(POSTGRES.sub("postgresql://", url, count=1)), _UNREACHED)


def _connect_sqlite(url: str) -> sqlite3.Connection:
    name = SQLITE.sub("", url, count=1).removeprefix("/")
    if not name or name.startswith(":memory:") or "?" in name:
        raise InputError("a SQLite URL names a file: sqlite:///people.db, or sqlite:////absolute/people.db")
    path = Path(name)
    if not path.is_file():
        raise InputError(
            f"there is no file {name!r}; a SQLite URL has three slashes before the name, or four if absolute"
        )
    return told(lambda: sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True))


@contextmanager
def _postgres(connection: Any) -> Iterator[Session]:
    """Yield a transaction that only reads and sees one snapshot, and roll it back."""
    if connection.info.transaction_status != _IDLE:
        raise InputError("the connection is closed or in the middle of a transaction; commit or roll back first")
    opened = Session(told(lambda: _cursor(connection)), _dialects.postgres, _types)
    try:
        if connection.autocommit:
            opened.do("begin")
        opened.do("set transaction isolation level repeatable read, read only")
        opened.do("set local extra_float_digits = 3")
        opened.do("set local client_encoding = 'UTF8'")
        _check_version(opened)
        yield opened
    finally:
        _quietly(connection.rollback)


def _check_version(opened: Session) -> None:
    ((version, encoding),) = opened.run(
        "select current_setting('server_version_num'), current_setting('server_encoding')"
    )
    if int(version) < 10_000 * _OLDEST or encoding != "UTF8":
        raise InputError(
            f"PostgreSQL {_OLDEST} or later with a database in UTF8 is needed "
            f"(got {int(version) // 10_000} and {encoding}); export a file instead"
        )


def _cursor(connection: Any) -> Any:
    psycopg = sys.modules.get("psycopg")
    if psycopg is not None and isinstance(connection, psycopg.Connection):
        return connection.cursor(row_factory=psycopg.rows.tuple_row)
    return connection.cursor()


def _types(opened: Session, codes: list[Any]) -> list[str]:
    """Return PostgreSQL's names of types; an enum, which has a name of its own, is called that."""
    wanted = ", ".join(str(int(code)) for code in {0, *codes})
    rows = opened.run(f"select oid::int8, typname::text, typtype = 'e' from pg_catalog.pg_type where oid in ({wanted})")
    names = {oid: "enum" if enum else name for oid, name, enum in rows}
    return [names[code] for code in codes]


@contextmanager
def _sqlite(connection: sqlite3.Connection, interval: Interval | None) -> Iterator[Session]:
    """Yield a read transaction, the caller's own if any; the connection stays as it was, but for three functions."""
    cursor = told(connection.cursor)
    cursor.row_factory = None
    opened = Session(cursor, _sqlite_parts, lambda _, codes: [""] * len(codes), _dialects.numbers(interval))
    ((locked,),), ((encoding,),) = opened.run("pragma query_only"), opened.run("pragma encoding")
    mine = not connection.in_transaction
    factory, connection.text_factory = connection.text_factory, str
    try:
        for name, function in _functions(encoding).items():
            told(partial(connection.create_function, name, 1, function, deterministic=True))
        opened.do("pragma query_only = on")
        if mine:
            opened.do("begin")
        yield opened
    finally:
        if mine:
            _quietly(connection.rollback)
        _quietly(partial(cursor.execute, f"pragma query_only = {int(locked)}"))
        connection.text_factory = factory


def _functions(encoding: str) -> dict[str, Callable[[Any], Any]]:
    """Return what SQLite cannot do itself: read a number from text, normalise a text, find odd characters."""
    return {
        "hetdp_value": lambda cell: value_of(cell.decode(encoding, "replace")),
        "hetdp_text": lambda cell: unicodedata.normalize("NFC", cell),
        "hetdp_odd": lambda cell: len(cell) > LONGEST_ID or bool(re.search(NOT_IN_ID, cell)),
    }


def _sqlite_parts(query: str, asked: Asked, kinds: Mapping[str, str], interval: Interval | None) -> Parts:  # noqa: ARG001  no types
    return _dialects.sqlite(query, asked, interval)


def _quietly(call: Callable[[], Any]) -> None:
    with suppress(Exception):  # the connection is lost; what matters has been said already
        call()
