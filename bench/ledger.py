"""The ledger: charging a release and enrolling people, against what SQLite itself takes for the same rows."""

from __future__ import annotations

import itertools
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from measure import Timer, clock, race
from table import Bar, Row

from hetdp.ledger import Ledger, Request, Rule
from hetdp.ledger.charge import _charged
from hetdp.statistics.mean import Mean

PEOPLE = 10**6
COHORTS = 10**3


def charge_few(_quick: bool) -> Iterator[Row]:  # noqa: FBT001
    """Charge a release of ten cohorts: the plan, the transaction, and the head outside, all on disk."""
    with tempfile.TemporaryDirectory() as folder, Ledger.create(Path(folder) / "budgets.db") as ledger:
        ledger.enroll(_ids(1000), budget=[1 + i % 10 for i in range(1000)])
        timer = clock(_charges(ledger))
        times = sorted(1e3 * timer() for _ in range(201))
    yield Row("charge, 10 cohorts", "", times[100], "ms", Bar("at most", 5), times[0], "201 charges, each synced")


def charge_many(_quick: bool) -> Iterator[Row]:  # noqa: FBT001
    """Charge a release of a million people in a thousand cohorts."""
    with tempfile.TemporaryDirectory() as folder, Ledger.create(Path(folder) / "budgets.db") as ledger:
        ledger.enroll(_ids(PEOPLE), budget=(1 + np.arange(PEOPLE) % COHORTS / 1000).tolist())
        charge = clock(_charges(ledger), times=5)
        for against, update, bar in (
            ("a transaction that updates 10³ rows", _bare(Path(folder) / "bare.db"), Bar("at most", 3)),
            ("the same of the ledger's table, with its checks and triggers", _guarded(Path(folder)), None),
        ):
            timed = race(update, charge, least=21)
            yield Row.of("charge, 10⁶ people in 10³ cohorts", against, timed, bar, "with its plan; all synced")


def enroll_many(_quick: bool) -> Iterator[Row]:  # noqa: FBT001
    """Enrol a million people from a Parquet file."""
    import polars as pl

    ids, numbers = _ids(PEOPLE), itertools.count()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows = pl.DataFrame({"id": ids, "budget": np.arange(PEOPLE) % 4 + 1})
        rows.write_parquet(folder / "people.parquet")
        pairs = list(zip(ids, (np.arange(PEOPLE) % 4 + 1).tolist(), strict=True))

        def bare() -> None:
            with _database(folder / f"bare{next(numbers)}.db") as database:
                database.execute("CREATE TABLE member (person TEXT PRIMARY KEY, cohort INTEGER) WITHOUT ROWID")
                database.execute("BEGIN")
                database.executemany("INSERT INTO member VALUES (?, ?)", pairs)
                database.execute("COMMIT")

        def ours() -> None:
            with Ledger.create(folder / f"budgets{next(numbers)}.db") as ledger:
                ledger.enroll(folder / "people.parquet", person="id", budget="budget")

        timed = race(clock(bare), clock(ours), seconds=0, least=3)
    yield Row.of("enrol 10⁶ people from Parquet", "a bare bulk insert of the same rows", timed, Bar("at most", 5))


def _ids(n: int) -> list[str]:
    return [f"person-{i:07d}" for i in range(n)]


def _charges(ledger: Ledger) -> Callable[[], object]:
    """Return a function that charges the next release: a little of everybody's budget."""
    numbers = itertools.count()

    def charge() -> object:
        request = Request(f"r{next(numbers)}", Rule.given(share=1e-4), Mean((0, 1)))
        return ledger._store.change(lambda connection, state: _charged(connection, state, [request]))

    return charge


def _bare(path: Path) -> Timer:
    """Return a timer of one transaction that updates a thousand rows, each with its check."""
    database = _database(path)
    database.execute("CREATE TABLE cohort (id INTEGER PRIMARY KEY, budget INT, spent INT CHECK (spent <= budget))")
    database.executemany("INSERT INTO cohort VALUES (?, 1000000000, 0)", [(i,) for i in range(COHORTS)])
    return _updates(database, "UPDATE cohort SET spent = spent + ? WHERE id = ?", range(COHORTS))


def _guarded(folder: Path) -> Timer:
    """Return a timer of the same in a ledger of its own: its columns, checks and triggers, and nothing else of it."""
    with Ledger.create(folder / "guarded.db") as ledger:
        ledger.enroll(_ids(COHORTS), budget=(1 + np.arange(COHORTS) / 1000).tolist())
    update = "UPDATE hetdp_cohort SET spent = spent + ? WHERE cohort = ?"
    return _updates(_database(folder / "guarded.db"), update, range(1, COHORTS + 1))


def _updates(database: sqlite3.Connection, statement: str, rows: range) -> Timer:
    def update() -> None:
        database.execute("BEGIN IMMEDIATE")
        database.executemany(statement, [(1, i) for i in rows])
        database.execute("COMMIT")

    return clock(update, times=5)


def _database(path: Path) -> sqlite3.Connection:
    database = sqlite3.connect(path, isolation_level=None)
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = FULL")
    return database


CASES = (charge_few, charge_many, enroll_many)
