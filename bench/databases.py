"""Databases: the tally of a table, against the engine's own sums over the same table.

PostgreSQL is the one that the tests start. Both statements run on one warm connection; what it takes to start a server
or to connect is not counted.
"""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from importlib import import_module
from typing import Any

from measure import FOLDER, clock, race
from table import Bar, Row

from hetdp.core.domain import Interval
from hetdp.sources import Source
from hetdp.sources.databases import Database
from hetdp.sources.request import Request
from hetdp.statistics.mean import Mean

BOUNDS = Interval(0, 250_000)
SUMS = "select sum(x), sum(eps) from people"
GROUPED = "select eps, count(*), sum(x) from people group by eps"
CODES = "select sum(floor(least(greatest(x, 0), 250000) / 250000 * 1048576 + 0.5)), sum(eps) from people"
TIERS = (0.05, 0.2, 1.0, 4.0)


def tally_postgres(quick: bool) -> Iterator[Row]:  # noqa: FBT001
    """Tally a table of four tiers in PostgreSQL, and one with a level for every person."""
    psycopg: Any = import_module("psycopg")
    sys.path.append(str(FOLDER.parent / "tests"))
    postgres: Any = import_module("postgres")
    with (
        postgres.server(shared_buffers="1GB") as server,
        psycopg.connect(server.url(), autocommit=True) as connection,
    ):
        (version,) = connection.execute("show server_version").fetchone()
        for rows, name in ((10**6, "10⁶"),) if quick else ((10**6, "10⁶"), (10**7, "10⁷")):
            connection.execute("drop table if exists people")
            level = f"(array{list(TIERS)}::float8[])[1 + (4 * random() * 0.999999)::int % 4]"
            connection.execute(f"create table people as {_people(level, rows)}")
            connection.execute("vacuum analyze people")
            what, sums = f"tally, PostgreSQL {version}, {name} rows, four tiers", _asks(connection, SUMS)
            yield Row.of(what, "its own sum(x), sum(eps)", race(clock(sums), clock(_tally(connection))))
            grouped, timed = _asks(connection, GROUPED), clock(_tally(connection))
            yield Row.of(
                what, "its own count(*), sum(x) group by eps", race(clock(grouped), timed), Bar("at most", 1.5)
            )
            for least, query in (
                ("its own count(*), sum(x) group by eps", grouped),
                ("its own sums of clamped and rounded values", _asks(connection, CODES)),
            ):
                yield Row.of(f"{what}, {least}", "its own sum(x), sum(eps)", race(clock(sums), clock(query)))
        connection.execute("drop table people")
        connection.execute(f"create table people as {_people('0.01 + 5 * random()', 10**6)}")
        connection.execute("vacuum analyze people")
        what = f"tally, PostgreSQL {version}, 10⁶ rows, distinct ε"
        yield Row.of(what, "its own sum(x), sum(eps)", race(clock(_asks(connection, SUMS)), clock(_tally(connection))))


def _people(level: str, rows: int) -> str:
    return f"select 250000 * random() as x, {level} as eps, i as id from generate_series(1, {rows}) as i"  # noqa: S608


def tally_sqlite(_quick: bool) -> Iterator[Row]:  # noqa: FBT001
    """Tally a table of four tiers in SQLite."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("create table people (x real, eps real)")
        made = ((250_000 * (i * 0.6180339887 % 1), TIERS[i % 4]) for i in range(10**6))
        connection.executemany("insert into people values (?, ?)", made)
        connection.commit()
        what = f"tally, SQLite {sqlite3.sqlite_version}, 10⁶ rows, four tiers"
        for against, statement in (
            ("its own sum(x), sum(eps)", SUMS),
            ("its own count(*), sum(x) group by eps", GROUPED),
        ):
            yield Row.of(what, against, race(clock(_asks(connection, statement)), clock(_tally(connection))))


def _asks(connection: Any, statement: str) -> Callable[[], Any]:
    return lambda: connection.execute(statement).fetchall()


def _tally(connection: Any) -> Callable[[], Any]:
    return lambda: Source(Database.of(connection, "people"), Request("x", "eps")).tables(Mean(BOUNDS))


CASES = (tally_postgres, tally_sqlite)
