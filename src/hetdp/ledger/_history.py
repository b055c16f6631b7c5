"""What a ledger tells: balances of people, and everything that happened. All of it is public."""

from __future__ import annotations

import csv
import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hetdp.errors import InputError

from . import _book, _members
from ._amounts import in_epsilon
from ._book import Book, Cohort
from ._chain import Event

if TYPE_CHECKING:
    from sqlalchemy import Connection

_FORMULA = ("=", "+", "-", "@", "\t", "\r")


@dataclass(frozen=True)
class Balance:
    """What one person, or each of some people alike, asked for, has spent and has left, in ε.

    Attributes
    ----------
    person
        The id; None when this stands for several people.
    frozen
        Whether the budget was lowered below what was spent before: nothing is left unless it is raised again.
    """

    budget: float
    spent: float
    left: float
    frozen: bool
    tier: str | None = None
    people: int = 1
    person: str | None = None

    @classmethod
    def of(cls, cohort: Cohort, book: Book, person: str | None = None) -> Balance:
        """Return the balance of a cohort, or of one person in it."""
        amounts = in_epsilon(cohort.asked), in_epsilon(cohort.spent), in_epsilon(cohort.left)
        people = cohort.people if person is None else 1
        return cls(*amounts, cohort.frozen, book.names.get(cohort.asked), people, person)

    def to_dict(self) -> dict[str, Any]:
        """Return the balance as plain data; infinities are written "inf"."""
        return {key: "inf" if x == math.inf else x for key, x in asdict(self).items()}

    def __str__(self) -> str:
        who = f"{self.people:,} people" if self.person is None else self.person
        tier = f" ({self.tier})" if self.tier else ""
        if math.isinf(self.budget):
            return f"{who}{tier}: public, no limit; ε = {self.spent:.9g} spent so far"
        state = "frozen, as less was asked for later" if self.frozen else f"ε = {self.left:.9g} left"
        return f"{who}{tier}: ε = {self.spent:.9g} spent of {self.budget:.9g}, {state}"


@dataclass(frozen=True)
class Entry:
    """One event, for reading.

    Attributes
    ----------
    most
        For a charge: what it cost the person who spent most.
    """

    event: int
    at: str
    kind: str
    release: str | None = None
    people: int = 0
    most: float = 0.0
    estimate: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the entry as plain data; infinities are written "inf"."""
        return {key: "inf" if x == math.inf else x for key, x in asdict(self).items()}

    def __str__(self) -> str:
        said = {
            "open": "ledger made",
            "enroll": f"{self.people:,} people enrolled or changed",
            "charge": f"{self.release}: charged {self.people:,} people, at most ε = {self.most:.9g} each",
            "result": f"{self.release}: result {'' if self.estimate is None else format(self.estimate, '.6g')}",
        }
        return f"{self.event:>6}  {self.at[:19]}  {said.get(self.kind, self.kind)}"


def balance(connection: Connection, book: Book, person: str) -> Balance:
    """Return the balance of one person."""
    there = _members.members(connection, book.head.seq, [person])
    if person not in there:
        raise InputError(f"{person[:64]!r} is not enrolled; ids are exact text: '007' is not '7'")
    return Balance.of(book.cohorts[there[person]], book, person)


def balances(connection: Connection, book: Book) -> list[Balance]:
    """Return everybody's balance, in the order of their ids."""
    there = _members.members(connection, book.head.seq)
    return [Balance.of(book.cohorts[cohort], book, person) for person, cohort in sorted(there.items())]


def entries(connection: Connection) -> list[Entry]:
    """Return everything that happened, in order."""
    found: list[Entry] = []
    book, bounds = Book(), dict[str | None, tuple[float, float]]()
    for event in _book.events(connection):
        book = book.after(event)
        if event.kind == "charge":
            lo, hi = map(float.fromhex, event.facts["plan"]["bounds"])
            bounds[event.release] = (lo, hi)
        found.append(_entry(event, book, bounds.get(event.release)))
    return found


def _entry(event: Event, book: Book, bounds: tuple[float, float] | None) -> Entry:
    facts = event.facts
    if event.kind == "charge":
        cohorts, units = _book.costs(facts)
        people = int(book.sheet[book.rows(cohorts), 4].sum()) if cohorts.size else 0
        most = in_epsilon(int(units.max(initial=0)))
        return Entry(event.seq, event.at, event.kind, event.release, people, most)
    if event.kind == "result" and bounds is not None:
        estimate = min(max(float.fromhex(facts["unclamped"]), bounds[0]), bounds[1])
        return Entry(event.seq, event.at, event.kind, event.release, estimate=estimate)
    return Entry(event.seq, event.at, event.kind, people=sum(people for *_, people in facts.get("moves", ())))


def export(
    path: str | os.PathLike[str], what: str, read: Mapping[str, Callable[[], Sequence[Balance | Entry]]]
) -> None:
    """Write balances or the history as CSV or JSON, told by the name of the file."""
    if what not in read:
        raise InputError(f"what can be exported is 'balances' or 'history' (got {str(what)[:64]!r})")
    target = Path(path)
    if target.suffix.lower() not in {".csv", ".json"} or not target.parent.is_dir():
        raise InputError(f"an export needs a name in an existing folder that ends in .csv or .json (got {target})")
    rows = [row.to_dict() for row in read[what]()]
    if target.suffix.lower() == ".json":
        target.write_text(json.dumps(rows, indent=1, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")
        return
    with target.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        if rows:
            writer.writerow(rows[0])
        writer.writerows([_harmless(cell) for cell in row.values()] for row in rows)


def _harmless(cell: Any) -> Any:
    """Return a cell that no spreadsheet takes for a formula: a text that begins like one gets an apostrophe.

    >>> _harmless("=1+1"), _harmless("007"), _harmless(-0.5)
    ("'=1+1", '007', -0.5)
    """
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(_FORMULA) else cell
