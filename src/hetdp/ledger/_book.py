"""The book: what every cohort has spent, derived from the events alone, and compared with what the tables say.

An event's body has up to three lists, applied in this order:

    new       [cohort, asked, budget, spent]   a cohort without people yet
    moves     [from, to, people]               people who change cohort; from 0: who are enrolled
    levels    [cohort, place]                  everybody in the cohort has spent units[place] more

and for the last one `units`, what each level of the plan costs. Both are columns of `_packed`, `levels` in pairs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ._amounts import UNLIMITED
from ._chain import GENESIS, Event, checked
from ._errors import LedgerError
from ._head import Head
from ._packed import integers
from ._schema import check_version, foreign_triggers, one, others_wrote, put_cohorts, run
from ._store import readable

if TYPE_CHECKING:
    from sqlalchemy import Connection


EVENT = "seq, kind, release, at, body, hash"
"""The columns of an event, as `Event` has them."""

_COLUMNS = attrgetter(*EVENT.split(", "))

_EVENT_AT = "SELECT seq, hash FROM hetdp_event WHERE seq = ?"
_STAMP = """
SELECT version, ledger.seq, ledger.hash, last.seq, last.hash FROM hetdp_ledger AS ledger
LEFT JOIN (SELECT seq, hash FROM hetdp_event ORDER BY seq DESC LIMIT 1) AS last ON 1 = 1
"""


class Cohort(NamedTuple):
    """People with the same budget who have spent the same. Amounts are in units.

    `budget` is what limits them in the database: what they asked for, or what they have spent already if they
    asked for less later. Then they are frozen.
    """

    asked: int
    budget: int
    spent: int
    people: int

    @property
    def left(self) -> int:
        """What one of them may still spend."""
        return UNLIMITED if self.asked == UNLIMITED else max(0, self.asked - self.spent)

    @property
    def frozen(self) -> bool:
        """Whether they lowered their budget below what was spent already."""
        return self.asked < self.spent


Sheet = NDArray[np.int64]
"""One row a cohort, in the order of their numbers: cohort, asked, budget, spent, people; kept column by column."""


@dataclass(frozen=True, eq=False)
class Book:
    """All cohorts after some event, and the names that tiers were given (for display alone)."""

    head: Head = GENESIS
    sheet: Sheet = field(default_factory=lambda: np.zeros((0, 5), np.int64))
    names: Mapping[int, str] = field(default_factory=dict)

    @cached_property
    def cohorts(self) -> dict[int, Cohort]:
        """The cohorts by their number."""
        return {row[0]: Cohort(*row[1:]) for row in self.sheet.tolist()}

    @property
    def people(self) -> int:
        """The number of people enrolled."""
        return int(self.sheet[:, 4].sum())

    def rows(self, cohorts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return where cohorts stand in the sheet; raise if one does not."""
        there = self.sheet[:, 0]
        if np.array_equal(there, cohorts):  # everybody takes part
            return np.arange(there.size)
        at = np.minimum(np.searchsorted(there, cohorts), there.size - 1)
        if not np.array_equal(there[at], cohorts):
            raise _ImpossibleError
        return at

    def after(self, event: Event) -> Book:
        """Return the book after one more event; raise if no ledger could have written it."""
        facts = event.facts
        named = {int(asked): str(name) for asked, name in facts.get("names", {}).items()}
        book = replace(self, head=event.head, names={**self.names, **named})
        try:
            if facts.get("new") or facts.get("moves"):
                cohorts = dict(self.cohorts)
                _make(cohorts, facts["new"])
                _move(cohorts, facts["moves"], enrolling=event.kind == "enroll")
                book = replace(book, sheet=_sheet(cohorts))
            return book.charged(*costs(facts)) if "levels" in facts else book
        except (_ImpossibleError, LookupError, TypeError, ValueError):
            raise LedgerError(f"event {event.seq} of the ledger does not add up; nothing is released from it") from None

    def charged(self, cohorts: NDArray[np.int64], units: NDArray[np.int64]) -> Book:
        """Return the book after charges. Where there is no limit, what was spent stops at the largest number."""
        at = self.rows(cohorts)
        asked, spent = self.sheet[at, 1], self.sheet[at, 3] + units
        spent = np.where(asked == UNLIMITED, np.minimum(spent, UNLIMITED), spent)
        if (units < 0).any() or (spent > asked).any() or np.bincount(at).max(initial=0) > 1:
            raise _ImpossibleError
        sheet = self.sheet.copy(order="K")
        sheet[at, 3] = spent
        return replace(self, sheet=sheet)


def pairs(cohort: Any, place: Any) -> NDArray[np.int64]:
    """Return the cohorts that take part and the place of each in the plan, as the `levels` of an event."""
    return np.array([cohort, place], np.int64).T.ravel()


def levels_of(facts: Mapping[str, Any]) -> NDArray[np.int64]:
    """Return the pairs (cohort, place) of an event; without any it charges nobody."""
    return integers(facts.get("levels", ())).reshape(-1, 2)


def costs(facts: Mapping[str, Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return what an event charges: the cohorts that pay something, and how much each person in them."""
    levels = levels_of(facts)
    units = integers(facts.get("units", ()))[levels[:, 1]]
    pays = np.flatnonzero(units)
    return levels[pays, 0], units[pays]


def _sheet(cohorts: Mapping[int, Cohort]) -> Sheet:
    rows = [(key, *now) for key, now in sorted(cohorts.items())]
    return np.asfortranarray(np.array(rows, dtype=np.int64).reshape(-1, 5))


class _ImpossibleError(Exception):
    """An event that no ledger writes."""


def _make(cohorts: dict[int, Cohort], new: Iterable[Any]) -> None:
    for cohort, asked, budget, spent in new:
        if cohort in cohorts or budget != max(asked, spent) or not (0 <= asked <= UNLIMITED and spent >= 0):
            raise _ImpossibleError
        cohorts[cohort] = Cohort(asked, budget, spent, 0)


def _move(cohorts: dict[int, Cohort], moves: Iterable[Any], *, enrolling: bool) -> None:
    for origin, target, people in moves:
        to = cohorts[target]
        if origin:
            before = cohorts[origin]
            if before.spent != to.spent or not (enrolling or before[:3] == to[:3]) or not 0 < people <= before.people:
                raise _ImpossibleError
            cohorts[origin] = before._replace(people=before.people - people)
        elif to.spent or not enrolling or people <= 0:
            raise _ImpossibleError
        cohorts[target] = cohorts[target]._replace(people=cohorts[target].people + people)


def caught_up(connection: Connection, book: Book, outside: Iterable[Head | None], name: str) -> Book:
    """Return the book with all events that it does not have yet; raise unless everything agrees.

    Checked are: the schema, the chain of the new events, that they add up, that no head known from elsewhere is
    missing, and, when a book is begun, that the table of cohorts says what the book says.
    """
    version, head, last = stamp(connection, name)
    check_version(version, name)
    begun = book.head == GENESIS
    if not begun and head == last == book.head and all(known in (None, head) for known in outside):
        return book  # nothing has happened since
    for known in {known for known in (book.head, *outside) if known is not None}:
        _has(connection, known, head, name)
    for event in checked(events(connection, book.head.seq), book.head, name):
        book = book.after(event)
    if book.head != head:
        raise LedgerError(f"{name} says that event {head.seq} is its last, and it is not; nothing is released from it")
    if begun:
        check_table(connection, book, name)
    return book


def check_unless_alone(connection: Connection, book: Book, name: str) -> None:
    """Do `check_table` unless nobody else has written since it was done: what we write ourselves follows the book."""
    state = others_wrote(connection)
    if state is None or connection.info.get("hetdp_state") != state:
        check_table(connection, book, name)
        connection.info["hetdp_state"] = state


def check_table(connection: Connection, book: Book, name: str) -> None:
    """Raise unless the table of cohorts says what the book says, and nothing but a ledger writes to it."""
    if strangers := foreign_triggers(connection):
        raise LedgerError(
            f"{name} has a trigger that is not its own, {strangers[0]!r}; take it away: nothing is released from it"
        )
    rows = run(connection, "SELECT cohort, asked, budget, spent, people FROM hetdp_cohort ORDER BY cohort")
    if rows.fetchall() != [*map(tuple, book.sheet.tolist())]:
        raise LedgerError(f"the balances in {name} are not what its charges add up to; nothing is released from it")


def _has(connection: Connection, known: Head, head: Head, name: str) -> None:
    if known.seq > head.seq:
        raise _old_copy(name, known, head)
    if known.seq == 0:
        return
    found = one(connection, _EVENT_AT, (known.seq,))
    if found is None or not known.agrees(Head(*found)):
        raise LedgerError(
            f"{name} has another event {known.seq} than the head that was kept outside of it (in its .head file, or "
            "given by --expect-head): it is not the ledger "
            "that charged the last releases; nothing is released from it"
        )


def _old_copy(name: str, known: Head, head: Head) -> LedgerError:
    return LedgerError(
        f"{name} is an old copy: it ends at event {head.seq}, and event {known.seq} has been seen; "
        "releasing from it would spend the same budgets again: bring back the newest copy"
    )


def stamp(connection: Connection, name: str) -> tuple[int, Head, Head]:
    """Return the version of the schema, the head that the database says, and its last event."""
    from sqlalchemy.exc import DBAPIError

    try:
        row = one(connection, _STAMP)
    except DBAPIError as error:
        if "no such table" not in str(error.orig) and "UndefinedTable" not in type(error.orig).__name__:
            raise
        row = None
    if row is None:
        raise LedgerError(f"there is no ledger in {name}; make one with: hetdp ledger init")
    version, seq, digest, *last = row
    return version, Head(seq, digest), Head(*last)


def intact(connection: Connection, event: Event) -> Event:
    """Return an event whose hash is the one of what it says; raise if it was changed since the ledger was opened."""
    before = one(connection, _EVENT_AT, (event.seq - 1,))
    with readable("the ledger"):
        (found,) = checked([event], GENESIS if before is None else Head(*before), "the ledger")
    return found


def events(connection: Connection, after: int = 0) -> Iterable[Event]:
    """Return the events after a number, in order."""
    query = f"SELECT {EVENT} FROM hetdp_event WHERE seq > ? ORDER BY seq"  # noqa: S608  our own names
    return (Event(*row) for row in run(connection, query, (after,)))


def write(connection: Connection, before: Book, event: Event) -> Book:
    """Write one event and what it does to the cohorts; return the book after it.

    The table of cohorts must say what the book before it says: see `check_unless_alone`.
    """
    book, known = before.after(event), len(before.sheet)
    differs = np.ones(len(book.sheet), bool)
    differs[:known] = (book.sheet[:known] != before.sheet).any(axis=1)
    put_cohorts(connection, book.sheet[differs])
    run(connection, "INSERT INTO hetdp_event VALUES (?, ?, ?, ?, ?, ?)", _COLUMNS(event))
    run(connection, "UPDATE hetdp_ledger SET seq = ?, hash = ?", (event.seq, event.hash))
    return book
