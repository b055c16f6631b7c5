"""What every cohort has spent, derived from the events alone.

An event's body has up to three lists, applied in this order:

    new       [cohort, asked, budget, spent]   a cohort without people yet
    moves     [from, to, people]               people who change cohort; from 0: who are enrolled
    levels    [cohort, place]                  everybody in the cohort has spent units[place] more

and for the last one `units`, what each level of the plan costs. Both are columns (`chain`), `levels` in pairs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from .amounts import UNLIMITED, Ints
from .chain import GENESIS, Event, Head, integers, refused


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


@dataclass(frozen=True, eq=False)
class State:
    """All cohorts after some event, and the names that tiers were given (for display alone).

    Attributes
    ----------
    sheet
        One row a cohort, in the order of their numbers: cohort, asked, budget, spent, people. A charge concerns
        thousands of cohorts at once, so these are kept column by column.
    """

    head: Head = GENESIS
    sheet: Ints = field(default_factory=lambda: np.zeros((0, 5), np.int64))
    names: Mapping[int, str] = field(default_factory=dict)

    @cached_property
    def cohorts(self) -> dict[int, Cohort]:
        """The cohorts by their number."""
        return {row[0]: Cohort(*row[1:]) for row in self.sheet.tolist()}

    @property
    def people(self) -> int:
        """The number of people enrolled."""
        return int(self.sheet[:, 4].sum())

    def rows(self, cohorts: Ints) -> Ints:
        """Return each cohort's row in the sheet; raise if one is missing."""
        there = self.sheet[:, 0]
        rows = np.searchsorted(there, cohorts)
        if not np.array_equal(there[np.minimum(rows, there.size - 1)], cohorts):
            raise ValueError("a cohort that is not there")
        return rows

    def after(self, event: Event) -> State:
        """Return the state after one more event; raise if no ledger could have written it."""
        facts = event.facts
        try:
            names = {int(asked): str(name) for asked, name in facts.get("names", {}).items()}
            state = replace(self, head=event.head, names={**self.names, **names})
            if facts.get("new") or facts.get("moves"):
                cohorts = _moved(self.cohorts, facts["new"], facts["moves"], enrolling=event.kind == "enroll")
                sheet = np.array([(number, *now) for number, now in sorted(cohorts.items())], np.int64).reshape(-1, 5)
                state = replace(state, sheet=np.asfortranarray(sheet))
            return state.charged(*costs(facts)) if "levels" in facts else state
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
            raise refused(f"event {event.seq} of the ledger does not add up") from None

    def charged(self, cohorts: Ints, units: Ints) -> State:
        """Return the state after charges. Where there is no limit, what was spent stops at the largest number."""
        rows = self.rows(cohorts)
        asked, spent = self.sheet[rows, 1], self.sheet[rows, 3] + units
        spent = np.where(asked == UNLIMITED, np.minimum(spent, UNLIMITED), spent)
        if (units < 0).any() or (spent > asked).any() or np.bincount(rows).max(initial=0) > 1:
            raise ValueError("a charge that passes a budget, or a cohort that is charged twice")
        sheet = self.sheet.copy(order="K")
        sheet[rows, 3] = spent
        return replace(self, sheet=sheet)


def _moved(before: Mapping[int, Cohort], new: Any, moves: Any, *, enrolling: bool) -> dict[int, Cohort]:
    """Return the cohorts after some are made and people move; ValueError if no ledger could have written that."""
    cohorts = dict(before)
    for number, asked, budget, spent in new:
        if number in cohorts or budget != max(asked, spent) or not (0 <= asked <= UNLIMITED and spent >= 0):
            raise ValueError("no new cohort")
        cohorts[number] = Cohort(asked, budget, spent, 0)
    for origin, target, people in moves:
        there = cohorts[target]
        if origin:
            here = cohorts[origin]
            if here.spent != there.spent or not (enrolling or here[:3] == there[:3]) or not 0 < people <= here.people:
                raise ValueError("no move: a balance would change")
            cohorts[origin] = here._replace(people=here.people - people)
        elif there.spent or not enrolling or people <= 0:
            raise ValueError("no enrolment")
        cohorts[target] = cohorts[target]._replace(people=cohorts[target].people + people)
    return cohorts


def pairs(cohort: Any, place: Any) -> Ints:
    """Return the cohorts that take part and the place of each in the plan, as the `levels` of an event."""
    return np.array([cohort, place], np.int64).T.ravel()


def levels_of(facts: Mapping[str, Any]) -> Ints:
    """Return the pairs (cohort, place) of an event; without any it charges nobody."""
    return integers(facts.get("levels", ())).reshape(-1, 2)


def costs(facts: Mapping[str, Any]) -> tuple[Ints, Ints]:
    """Return what an event charges: the cohorts that pay something, and how much each person in them."""
    levels = levels_of(facts)
    units = integers(facts.get("units", ()))[levels[:, 1]]
    pays = np.flatnonzero(units)
    return levels[pays, 0], units[pays]
