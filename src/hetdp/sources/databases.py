"""PostgreSQL, SQLite and DuckDB: one query, in one snapshot that only reads.

PostgreSQL groups by itself, and only the table of levels leaves it. SQLite runs in this process, so its rows are read
here like those of a file. A query of DuckDB is a frame whose engine groups (`frames.Engine`). A query is
the caller's own: it must not drop, filter or fail on rows by their values, which no reader of it could see.

Whatever a driver raises may quote a private cell, so none of it is passed on: `told` runs everything that touches a
driver and raises one of a few fixed sentences, outside the handler, so that not even the chain of exceptions holds it.
"""

# ruff: noqa: S608  statements are put together from the caller's own query and from names that are quoted

from __future__ import annotations

import os
import re
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from hetdp.errors import InputError
from hetdp.statistics import Statistic

from . import sql
from .arrays import alike_batch, columns_batch
from .request import Batch, Request, Tables, engine_tables

T = TypeVar("T")

_DRIVERS = ("postgresql+psycopg", "postgresql+psycopg2", "sqlite+pysqlite")
_OLDEST = 14
_ROWS = 2**18  # rows of SQLite that are read at a time

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
_CLASSES = {
    "CatalogException": _STATES["42P01"],
    "BinderException": _STATES["42703"],
    "ParserException": _STATES["42601"],
    "IOException": "the DuckDB file cannot be opened; another program may be writing to it, or its DuckDB is newer",
}
_NO_QUERY = "a database needs a query: query='select income, eps from people', --query TABLE"
_UNREACHED = (
    "cannot connect to the PostgreSQL server; check host, port, database, user and password: "
    "postgresql://user:password@host:5432/database"
)
_FAILED = "the database could not run the query; try it in the database's own shell (its message may quote a record)"
_NUMBERED = re.compile(r":\d+$")  # SQLite numbers the columns of one name


@dataclass(frozen=True, eq=False, repr=False)
class Database:
    """A database and what to read from it.

    Attributes
    ----------
    origin
        A URL (`postgresql://user@host/database`, `sqlite:///people.db`), an engine or connection of SQLAlchemy, a
        connection of sqlite3 or psycopg.
    query
        One select, or the name of a table.
    """

    origin: Any
    query: str | None

    @staticmethod
    def of(origin: Any, query: str | None) -> Sqlite | Postgres:
        """Return the database of a URL, an engine or a connection."""
        dialect = origin if isinstance(origin, str) else getattr(getattr(origin, "dialect", None), "name", "")
        lite = isinstance(origin, sqlite3.Connection) or dialect.startswith("sqlite")
        return Sqlite(origin, query) if lite else Postgres(origin, query)

    @property
    def called(self) -> tuple[str, ...]:
        """The name of a file without its folder, or the kind of the database."""
        kind = "a PostgreSQL query" if isinstance(self, Postgres) else "a SQLite query"
        file = isinstance(self.origin, str) and isinstance(self, Sqlite)
        return (Path(self.origin).name if file else kind,)

    def check(self, request: Request) -> None:
        """Raise if the query cannot be run or lacks a column; no row is read."""
        with self._opened(_postgres if isinstance(self, Postgres) else _sqlite, request):
            pass

    @contextmanager
    def _opened(self, snapshot: Any, request: Request) -> Iterator[tuple[Any, str, dict[str, Any]]]:
        """Yield a cursor in a snapshot, the query as one select, and its columns with the codes of their types.

        A column that is not there, or there twice, is an error.
        """
        if self.query is None:
            raise InputError(_NO_QUERY)
        select = sql.selection(self.query)
        with _connection(self.origin) as connection, snapshot(connection) as cursor:
            told(lambda: cursor.execute(f"select * from (\n{select}\n) as q limit 0"))
            names = [column[0] for column in cursor.description]
            for name in request.columns:
                if name not in names:
                    raise InputError(f"the query has no column {name!r}; its columns are {', '.join(map(repr, names))}")
                alike = [other for other in names if _NUMBERED.sub("", other).casefold() == name.casefold()]
                if len(alike) > 1:
                    raise InputError(
                        f"the query has the columns {', '.join(map(repr, alike))}; rename one, they are too alike"
                    )
            yield cursor, select, {column[0]: column[1] for column in cursor.description}


class Sqlite(Database):
    """A database of SQLite. Each cell has a type of its own, and is read as a cell of a text file is.

    >>> people = sqlite3.connect(":memory:")
    >>> _ = people.executescript("create table people (age, eps); insert into people values (25, 0.1), (50, '0.1')")
    >>> [(batch.values, batch.epsilon) for batch in Sqlite(people, "people").batches(Request("age", "eps"))]
    [(array([25., 50.]), array([0.1, 0.1]))]
    """

    def batches(self, request: Request, *, owner: bool = False) -> Iterator[Batch]:
        """Yield the rows of the query. All are read before the first is yielded, so that no transaction stays open."""
        batches: list[Batch] = []
        with self._opened(_sqlite, request) as (cursor, select, _):
            # As expressions: of a column the driver may know a converter, and that may raise for somebody's value. With
            # `q.`, because SQLite takes a quoted name that it does not know for a text.
            columns, first = ", ".join(f"+q.{sql.quoted(name)}" for name in request.columns) or "1", 0
            told(lambda: cursor.execute(f"select {columns} from (\n{select}\n) as q"))
            while rows := told(partial(cursor.fetchmany, _ROWS)):
                cells = dict(zip(request.columns, zip(*rows, strict=True), strict=bool(request.columns)))
                batches.append(columns_batch(cells, range(first, first + len(rows)), request, owner=owner))
                first += len(rows)
        yield from batches


class Postgres(Database):
    """A database of PostgreSQL, which groups by itself."""

    def batches(self, request: Request, *, owner: bool = False) -> Iterator[Batch]:
        """Yield the rows that are not alike, if the database cannot group them by itself; otherwise they stay there."""
        with self._level_table(request, None) as table:
            if owner or not table.reads_here:
                raise InputError("this needs the rows themselves; PostgreSQL hands over sums only: export a file first")
            rows = table.alike()
        yield from alike_batch(rows, request.held(table.numbers))

    def reads_here(self, request: Request) -> bool:
        """Say whether a private column is text that has to be read in Python."""
        with self._level_table(request, None) as table:
            return table.reads_here

    def tables(self, request: Request, statistic: Statistic | None) -> Tables:
        """Return the tables of the groups, an empty mapping if there is nobody; without it no value is read."""
        with self._level_table(request, statistic) as table:
            return engine_tables(table, request, statistic)

    @contextmanager
    def _level_table(self, request: Request, statistic: Statistic | None) -> Iterator[sql.LevelTable]:
        with self._opened(_postgres, request) as (cursor, select, codes):
            run = partial(_run, cursor)
            yield sql.LevelTable(run, select, request, _kinds(run, codes), statistic)


def duckdb_frame(origin: Any, query: str | None) -> Any:
    """Return a query of DuckDB as a frame; no row is read yet.

    `origin` is a connection, or the name of a file. A file is opened for reading alone, which keeps other programs from
    writing to it meanwhile.
    """
    from .frames import opened

    if query is None:
        raise InputError(_NO_QUERY)
    select, called, connection = sql.selection(query), None, origin
    if isinstance(origin, (str, os.PathLike)):
        try:
            import duckdb
        except ImportError:
            raise InputError("a DuckDB file needs duckdb; install it: pip install duckdb") from None
        called = Path(origin).name
        connection = told(lambda: duckdb.connect(os.fspath(origin), read_only=True))
    # Within a select no other statement can be parsed, so that nothing is changed.
    found = opened(told(lambda: connection.sql(f"select * from (\n{select}\n) as q")))
    return replace(found, query=query, **({} if called is None else {"called": (called,)}))  # type: ignore[type-var]


def database_file(path: Any) -> str | None:
    """Return the kind of a database in a file, by its first bytes; None if it is none, or cannot be read."""
    with suppress(OSError, ValueError):
        if Path(path).is_file():  # opening a pipe would wait for a writer
            with Path(path).open("rb") as file:
                head = file.read(16)
            return "sqlite" if head == b"SQLite format 3\0" else "duckdb" if head[8:12] == b"DUCK" else None
    return None


def _run(cursor: Any, statement: str) -> list[tuple[Any, ...]]:
    """Return the rows of a statement, if it has any."""
    told(lambda: cursor.execute(statement))  # without parameters a driver leaves % alone
    return told(cursor.fetchall) if cursor.description else []


def _kinds(run: sql.Run, codes: dict[str, Any]) -> dict[str, str]:
    """Return PostgreSQL's names of types; an enum, which has a name of its own, is called that."""
    wanted = ", ".join(str(int(code)) for code in {0, *codes.values()})
    rows = run(f"select oid::int8, typname::text, typtype = 'e' from pg_catalog.pg_type where oid in ({wanted})")
    names = {oid: "enum" if enum else name for oid, name, enum in rows}
    return {column: names[code] for column, code in codes.items()}


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
    if type(error).__module__.partition(".")[0] in ("duckdb", "_duckdb"):
        return _CLASSES.get(type(error).__name__, _FAILED)
    if isinstance(error, sqlite3.Error):
        return next((text for start, text in _STARTS.items() if str(error).startswith(start)), _FAILED)
    return next((text for code, text in _STATES.items() if state.startswith(code)), _FAILED)


@contextmanager
def _connection(source: Any) -> Iterator[Any]:
    """Yield the driver's own connection; one that was opened here is closed at the end."""
    if isinstance(source, str):
        connect = _connect_postgres if source.startswith("postgres") else _connect_sqlite
        with closing(connect(source.partition("://")[2])) as connection:
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


def _connect_postgres(place: str) -> Any:
    try:
        import psycopg
    except ImportError:
        raise InputError("PostgreSQL needs psycopg; install it: pip install 'hetdp[postgres]'") from None
    return told(lambda: psycopg.connect(f"postgresql://{place}"), _UNREACHED)


def _connect_sqlite(place: str) -> sqlite3.Connection:
    name = place.removeprefix("/")
    if not name or name.startswith(":memory:") or "?" in name:
        raise InputError("a SQLite URL names a file: sqlite:///people.db, or sqlite:////absolute/people.db")
    path = Path(name)
    if not path.is_file():
        raise InputError(
            f"there is no file {name!r}; a SQLite URL has three slashes before the name, or four if absolute"
        )
    return told(lambda: sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True))


@contextmanager
def _postgres(connection: Any) -> Iterator[Any]:
    """Yield a cursor in a transaction that only reads and sees one snapshot, and roll it back."""
    if connection.info.transaction_status != 0:  # it is not idle
        raise InputError("the connection is closed or in the middle of a transaction; commit or roll back first")
    cursor = told(lambda: _cursor(connection))
    try:
        if connection.autocommit:
            _run(cursor, "begin")
        _run(cursor, "set transaction isolation level repeatable read, read only")
        _run(cursor, "set local extra_float_digits = 3")
        _run(cursor, "set local client_encoding = 'UTF8'")
        ((version, encoding),) = _run(
            cursor, "select current_setting('server_version_num')::int / 10000, current_setting('server_encoding')"
        )
        if version < _OLDEST or encoding != "UTF8":
            raise InputError(
                f"PostgreSQL {_OLDEST} or later with a database in UTF8 is needed "
                f"(got {version} and {encoding}); export a file instead"
            )
        yield cursor
    finally:
        with suppress(Exception):  # the connection is lost; what matters has been said already
            connection.rollback()


def _cursor(connection: Any) -> Any:
    psycopg = sys.modules.get("psycopg")
    if psycopg is not None and isinstance(connection, psycopg.Connection):
        return connection.cursor(row_factory=psycopg.rows.tuple_row)
    return connection.cursor()


@contextmanager
def _sqlite(connection: sqlite3.Connection) -> Iterator[sqlite3.Cursor]:
    """Yield a cursor in a read transaction, the caller's own if any; the connection stays as it was."""
    cursor = told(connection.cursor)
    cursor.row_factory = None
    ((locked,),) = _run(cursor, "pragma query_only")
    mine = not connection.in_transaction
    factory, connection.text_factory = connection.text_factory, lambda text: text.decode("utf-8", "replace")
    try:
        _run(cursor, "pragma query_only = on")
        if mine:
            _run(cursor, "begin")
        yield cursor
    finally:
        with suppress(Exception):  # as above
            if mine:
                connection.rollback()
            cursor.execute(f"pragma query_only = {int(locked)}")
        connection.text_factory = factory
