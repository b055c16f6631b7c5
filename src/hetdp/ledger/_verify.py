"""Verification: the whole ledger from its first event on, nothing taken on trust.

Opening a ledger checks the chain and that balances are what the charges add up to. Here is the rest: the file's
pages, the triggers, who moved to which cohort and when, and that every charge is what its plan spends.

Who is in which cohort is also checked by every release, after its charge and before a value is read
(`checked_members`): a person moved to another cohort behind the ledger's back would otherwise be counted at an ε that
was never theirs to spend.

Claim. `checked_members` returns the people of the events, or raises.

Argument. Each event that moves people carries, for each cohort, a digest of the ids that came to it, and is itself
covered by the hash chain, which must end at the head that this ledger has seen. Rows of people are compared event by
event: a row too many, too few, renamed, under another event or in another cohort changes a digest or a count, and so
does a swap of two people that leaves all counts as they are. Where somebody came from is compared too, so a false row
that was used for a later move and then taken away is noticed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _book, _members
from ._amounts import charges
from ._book import Book
from ._chain import GENESIS, Event, checked
from ._charge import plan_of
from ._errors import LedgerError
from ._head import Head
from ._packed import integers
from ._schema import missing_guards, tables

if TYPE_CHECKING:
    from sqlalchemy import Connection


@dataclass(frozen=True)
class Verified:
    """What a ledger that passed contains; the head is worth writing down elsewhere."""

    head: str
    events: int
    people: int
    cohorts: int
    charges: int
    results: int

    def to_dict(self) -> dict[str, Any]:
        """Return the facts as plain data."""
        return asdict(self)

    def __str__(self) -> str:
        pending = self.charges - self.results
        waiting = f"; {pending:,} charged without a result yet" if pending else ""
        return (
            f"verified: {self.events:,} events, {self.people:,} people in {self.cohorts:,} cohorts, "
            f"{self.charges:,} releases{waiting}\nhead {self.head}"
        )


def verify(connection: Connection, outside: Iterable[Head | None], name: str) -> Verified:
    """Return what a ledger contains, or raise at its first fault."""
    if connection.dialect.name == "sqlite" and connection.exec_driver_sql("PRAGMA integrity_check").scalar() != "ok":
        raise LedgerError(
            f"{name} is damaged: its pages do not fit together; go back to a copy that has the newest head"
        )
    book = _book.caught_up(connection, Book(), outside, name)
    kinds: Counter[str] = Counter()
    charged: dict[str | None, int] = {}
    for event, _ in _replayed(connection, book, name):
        kinds[event.kind] += 1
        if event.kind == "charge":
            charged[event.release] = event.seq
            _check_charge(event)
        elif event.kind == "result" and event.facts["charge"] != charged.get(event.release):
            raise LedgerError(f"event {event.seq} is a result without its charge; nothing is released from this ledger")
    held = sum(1 for cohort in book.cohorts.values() if cohort.people)
    return Verified(str(book.head), book.head.seq, book.people, held, kinds["charge"], kinds["result"])


def checked_members(connection: Connection, book: Book, upto: int, name: str) -> tuple[Event | None, dict[str, int]]:
    """Return an event and {person: cohort} as of it, or raise unless rows of people are those that events tell of."""
    found: tuple[Event | None, dict[str, int]] = (None, {})
    for event, there in _replayed(connection, book, name):
        if event.seq == upto:
            found = (event, dict(there))
    return found


def _replayed(connection: Connection, book: Book, name: str) -> Iterator[tuple[Event, dict[str, int]]]:
    """Yield every event with who is in which cohort after it; raise if the rows of people tell anything else."""
    if missing := missing_guards(connection):
        raise LedgerError(
            f"{name} has lost {len(missing)} of its triggers, such as {missing[0]}; something took them away"
        )
    there: dict[str, int] = {}
    moves, head = _moves(connection), GENESIS
    for event in checked(_book.events(connection), GENESIS, name):
        _check_moves(event, next(moves, None) if event.facts.get("moves") else None, there)
        head = event.head
        yield event, there
    if head != book.head or next(moves, None) is not None or Counter(there.values()) != _people(book):
        raise LedgerError(f"people in {name} were moved between cohorts outside of hetdp; nothing is released from it")


def _people(book: Book) -> Counter[int]:
    return Counter({cohort: now.people for cohort, now in book.cohorts.items() if now.people})


def _moves(connection: Connection) -> Iterator[tuple[int, list[tuple[str, int]]]]:
    """Yield for each event that moved people who went where."""
    member = tables().member
    columns = member.c.event, member.c.person, member.c.cohort
    rows = connection.execute(member.select().with_only_columns(*columns).order_by(member.c.event))
    for event, group in groupby(rows, key=lambda row: row[0]):
        yield event, [(person, cohort) for _, person, cohort in group]


def _check_moves(event: Event, found: tuple[int, list[tuple[str, int]]] | None, there: dict[str, int]) -> None:
    """Compare an event's moves with the rows of people, and carry them out in `there`."""
    seq, rows = found or (event.seq, [])
    moves = Counter((there.get(person, 0), cohort) for person, cohort in rows)
    told = {(origin, target): people for origin, target, people in event.facts.get("moves", ())}
    if seq != event.seq or moves != Counter(told) or _members.digests(rows) != event.facts.get("ids", {}):
        raise LedgerError(
            f"the people of event {event.seq} are not those who were written down; nothing is released from this ledger"
        )
    there.update(rows)


def _check_charge(event: Event) -> None:
    if not np.array_equal(charges(plan_of(event.facts["plan"])), integers(event.facts["units"])):
        raise LedgerError(f"event {event.seq} charges something else than its plan spends; nothing is released from it")
