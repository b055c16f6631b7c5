"""A large file of people, while others answer: some rows at a time, and all of them or none.

Nobody waits for a whole file: its rows are written in transactions of a few, and between them others have their turn.
Until the last one is written the study has a mark that an import is under way: it is not published, and no other file
is taken. If anything goes wrong, or the server is cut off, the rows that were written are emptied again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import sqlalchemy as sa

from . import studies, tables
from .access import RefusedError
from .people import MARK, File, came_before
from .store import Store, Transaction, new_version

# Rows in one transaction: so many at first, then as many as take about so many seconds.
BATCH, _LARGEST, _SECONDS = 250, 2000, 0.05
_PAUSE, _LONGEST = 0.005, 0.05  # seconds in which others get the turn to write: as long as the transaction took
_UNDER_WAY = "A file is being imported into this study. Wait until that is done."


# How people are added in a transaction: study, file, rows, and how many of the file were written before.
AddRows = Callable[[Transaction, str, File, list[dict[str, Any]], int], dict[str, int]]


def add(
    write: Callable[..., Any], add_rows: AddRows, study: str, file: File, people: list[dict[str, Any]]
) -> dict[str, int]:
    """Add the people of a file by `add_rows`; of a large one all but the last are written before, in batches."""
    if len(people) <= BATCH:
        done: dict[str, int] = write(_alone, add_rows, study, file, people, 0)
        return done
    there = write(_begin, study, file)
    if there:
        return {"people": there}
    at, size = 0, BATCH
    try:
        while len(people) - at > size:
            start = time.perf_counter()
            write(_some, study, people[at : at + size])
            at += size
            took = time.perf_counter() - start
            size = max(BATCH, min(_LARGEST, round(size * _SECONDS / took)))
            time.sleep(min(max(_PAUSE, took), _LONGEST))
        done = write(_last, add_rows, study, file, people[at:], at)
    except BaseException:  # whatever it is, half a file does not stay
        undo(write, study, file.id)
        raise
    return done


def _name(study: str) -> str:
    return f"importing {study}"


def under_way(transaction: Transaction, study: str) -> None:
    """Raise if a file is being imported into a study."""
    if transaction.fact(_name(study)) is not None:
        raise RefusedError(409, "importing", _UNDER_WAY)


def _alone(transaction: Transaction, add_rows: AddRows, study: str, *rest: Any) -> dict[str, int]:
    under_way(transaction, study)
    return add_rows(transaction, study, *rest)


def _begin(transaction: Transaction, study: str, file: File) -> int:
    """Mark the study; if the same file came before, return how many people it has, before a row is written."""
    under_way(transaction, study)
    if before := came_before(transaction, study, file):
        return before
    _open(transaction, study)
    transaction.set_fact(_name(study), file.id)
    return 0


def _open(transaction: Transaction, study: str) -> None:
    if studies.get(transaction, study).phase() != "open":
        raise RefusedError(409, "closed", "This study does not take answers now.")


def _some(transaction: Transaction, study: str, people: list[dict[str, Any]]) -> None:
    _open(transaction, study)
    transaction.insert("person", people)


def _last(transaction: Transaction, add_rows: AddRows, study: str, *rest: Any) -> dict[str, int]:
    _forget(transaction, study)
    return add_rows(transaction, study, *rest)


def _forget(transaction: Transaction, study: str) -> None:
    transaction.execute(sa.delete(tables.facts).where(tables.facts.c.name == _name(study)))


# ---------------------------------------------------------------------------------------------------------
# Half a file


def undo(write: Callable[..., Any], study: str, file: str) -> None:
    """Empty the rows of a file that was not written to its end, some at a time, then take the mark away."""
    while write(_emptied, study, file[:MARK]):
        time.sleep(_PAUSE)
    write(_forget, study)


def _emptied(transaction: Transaction, study: str, begins: str) -> int:
    table = tables.people
    mine = (table.c.study == study) & table.c.id.startswith(begins) & table.c.epsilon.is_not(None)
    rows = transaction.execute(sa.select(table).where(mine).limit(BATCH)).all()
    for row in rows:
        gone = {**dict.fromkeys(table.c.keys()), "id": row.id, "study": study, "version": new_version()}
        transaction.change("person", gone)
    transaction.scrub |= bool(rows)
    return len(rows)


def clear(store: Store) -> None:
    """Undo what a server that was cut off left of files, before anything is published."""

    def found(transaction: Transaction) -> list[tuple[str, str]]:
        table = tables.facts
        rows = transaction.execute(sa.select(table).where(table.c.name.startswith(_name(""))))
        return [(row.name.removeprefix(_name("")), row.text) for row in rows]

    for study, file in store.read(found):
        undo(store.write, study, file)
