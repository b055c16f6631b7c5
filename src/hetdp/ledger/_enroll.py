"""Enrolment: who is in the ledger, and with which lifetime budget."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from . import _book, _members
from ._book import Book, Cohort
from ._chain import following

if TYPE_CHECKING:
    from sqlalchemy import Connection

_Key = tuple[int, int]
"""What people ask for and what they have spent: those who agree in both share a cohort."""


@dataclass(frozen=True)
class Enrolled:
    """What an enrolment did, in people.

    Attributes
    ----------
    frozen
        Of those who lowered their budget, how many had spent more than that already. They take no part any more.
    """

    added: int = 0
    raised: int = 0
    lowered: int = 0
    frozen: int = 0
    unchanged: int = 0

    def __str__(self) -> str:
        said = [f"{self.added:,} people enrolled"]
        said += [f"{count:,} {verb}" for verb, count in (("raised", self.raised), ("lowered", self.lowered)) if count]
        if self.frozen:
            said.append(f"{self.frozen:,} of these frozen, as they have spent more already")
        return ", ".join([*said, *([f"{self.unchanged:,} unchanged"] if self.unchanged else [])])


def enroll(
    connection: Connection, book: Book, budgets: Mapping[str, int], names: Mapping[int, str]
) -> tuple[Book, Enrolled]:
    """Enrol people with budgets in units; of those enrolled already, change the budget.

    A budget may be raised at any time. One that is lowered below what was spent cannot be honoured for the past: the
    person is frozen and has weight 0 from now on.
    """
    there = _members.members(connection, book.head.seq, list(budgets)) if book.people else {}
    moved, done = _sorted_out(book, budgets, there)
    new_names = {asked: name for asked, name in names.items() if book.names.get(asked) != name}
    if not moved and not new_names:
        return book, done
    new, place = _places(book, set(moved.values()))
    to = {person: place[key] for person, key in moved.items()}
    moves = Counter((there.get(person, 0), cohort) for person, cohort in to.items())
    facts: dict[str, Any] = {
        "new": [[cohort, asked, max(asked, spent), spent] for cohort, (asked, spent) in new.items()],
        "moves": [[*pair, people] for pair, people in sorted(moves.items())],
        "ids": _members.digests(to.items()),
    }
    if new_names:
        facts["names"] = {str(asked): name for asked, name in new_names.items()}
    event = following(book.head, "enroll", facts)
    _members.insert(connection, event.seq, to)
    return _book.write(connection, book, event), done


def _sorted_out(book: Book, budgets: Mapping[str, int], there: Mapping[str, int]) -> tuple[dict[str, _Key], Enrolled]:
    """Return who has to move, to a cohort of which kind, and what that means for them."""
    moved: dict[str, _Key] = {}
    kinds: Counter[str] = Counter()
    for person, asked in budgets.items():
        at = there.get(person)
        if at is None:
            moved[person] = (asked, 0)
            kinds["added"] += 1
            continue
        now = book.cohorts[at]
        kinds[_kind(now, asked)] += 1
        if asked != now.asked:
            moved[person] = (asked, now.spent)
            kinds["frozen"] += asked < now.asked and asked < now.spent
    return moved, Enrolled(**kinds)


def _kind(now: Cohort, asked: int) -> str:
    if asked == now.asked:
        return "unchanged"
    return "raised" if asked > now.asked else "lowered"


def _places(book: Book, wanted: set[_Key]) -> tuple[dict[int, _Key], dict[_Key, int]]:
    """Return the cohorts to make, and the cohort of each kind."""
    place = {(c.asked, c.spent): cohort for cohort, c in sorted(book.cohorts.items(), reverse=True)}
    fresh = sorted(wanted - place.keys())
    first = max(book.cohorts, default=0) + 1
    new = dict(enumerate(fresh, first))
    return new, place | {key: cohort for cohort, key in new.items()}
