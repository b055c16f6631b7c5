"""From an allowance to a charge: who enters with which ε, the plan on that, and the exact spend of each cohort.

Everything here is public and happens before a value is read. It runs inside the transaction that charges, under the
ledger's lock: nobody's balance can change between the plan and its charge.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hetdp.core.domain import Interval
from hetdp.core.levels import Levels, round_down
from hetdp.core.plan import Plan, plan
from hetdp.errors import PrivacyError
from hetdp.privacy.exact import NoiseTerm

from ._amounts import UNLIMITED, Rule, charges, levels
from ._book import Book
from ._packed import integers, reals

Ints = NDArray[np.int64]
Part = tuple[int, int]
"""Some people of one cohort: the cohort, and what they allow in this release at most (`UNLIMITED`: not said)."""


@dataclass(frozen=True, eq=False)
class Parts:
    """Who takes part: cohorts, what their people allow at most, how many they are. A cohort may come several times."""

    cohort: Ints
    own: Ints
    count: Ints

    @classmethod
    def everybody(cls, book: Book) -> Parts:
        """Return all people, none of whom has said anything for this release."""
        there = _those(book.sheet[:, 4] > 0)
        cohort, count = book.sheet[there, 0], book.sheet[there, 4]
        return cls(cohort, np.full(cohort.size, UNLIMITED), count)

    @classmethod
    def of(cls, people: Mapping[Part, int]) -> Parts:
        """Return parts that are counted."""
        cohort, own, count = np.array([(*part, count) for part, count in people.items()], np.int64).reshape(-1, 3).T
        return cls(cohort, own, count)


@dataclass(frozen=True, eq=False)
class Intent:
    """What a release may use, and what it would do with that.

    Attributes
    ----------
    plan
        Made on everybody's allowance.
    parts, place
        The parts that enter with ε > 0, and the place of each one's level in the plan.
    units
        What each level of the plan is charged.
    facts
        How many people take part, are left out because nothing is left, are frozen, have less left than the rule
        allows.
    """

    plan: Plan
    parts: Parts
    place: Ints
    units: Ints
    facts: dict[str, int]


def intended(book: Book, parts: Parts, rule: Rule, ask: Mapping[str, Any]) -> Intent:
    """Return what a release of these people would do; `ask` is what `plan` takes."""
    rows = book.rows(parts.cohort)
    asked, spent = book.sheet[rows, 1], book.sheet[rows, 3]
    left = np.where(asked == UNLIMITED, UNLIMITED, np.maximum(asked - spent, 0))
    wanted = rule.wanted(asked, left)
    allowed = np.minimum(np.minimum(left, wanted), parts.own)
    epsilon = levels(allowed)
    made = plan(Levels.from_arrays(epsilon, parts.count, names=_names(book, asked, epsilon)), **ask)
    place = np.searchsorted(made.levels.epsilon, round_down(epsilon) if made.levels.rounded else epsilon)
    units = charges(made)
    if (units[place] > allowed).any():  # by the claim in `_amounts` this cannot happen
        raise PrivacyError("this plan would charge more than somebody has left; nothing was released")
    enters = _those(allowed > 0)
    entered = Parts(parts.cohort[enters], parts.own[enters], parts.count[enters])
    return Intent(made, entered, place[enters], units, _facts(parts.count, asked, spent, left, wanted))


def _those(chosen: NDArray[np.bool_]) -> NDArray[np.bool_] | slice:
    """Return what picks the chosen ones: nothing has to be copied when these are all."""
    return slice(None) if chosen.all() else chosen


def _names(book: Book, asked: Ints, epsilon: NDArray[np.float64]) -> dict[float, str]:
    """Return a name for each level at which all people are of tiers with names."""
    tiers: dict[float, set[str]] = {}
    if book.names:
        for units, e in zip(asked.tolist(), epsilon.tolist(), strict=True):
            tiers.setdefault(e, set()).add(book.names.get(units, ""))
    return {e: ", ".join(sorted(names)) for e, names in tiers.items() if "" not in names}


def _facts(count: Ints, asked: Ints, spent: Ints, left: Ints, wanted: Ints) -> dict[str, int]:
    frozen, empty = asked < spent, (left == 0) & (asked > 0)
    kinds = {"used_up": empty & ~frozen, "frozen": frozen, "short": (left < wanted) & (left > 0)}
    return {"people": int(count.sum()), **{name: int(count[kind].sum()) for name, kind in kinds.items()}}


def split(book: Book, intent: Intent) -> tuple[list[list[int]], dict[Part, int]]:
    """Return the cohorts to make, as an event lists them, and where each part with ε > 0 then is.

    A cohort of which everybody enters at one level stays as it is. Otherwise each part of it goes to a cohort of its
    own, shared with parts of other cohorts that had the same balance and enter at the same level.
    """
    cohorts, parts = intent.parts.cohort.tolist(), intent.parts
    times = Counter(cohorts)
    where: dict[Part, int] = {}
    fresh: dict[tuple[int, ...], int] = {}
    following = max(book.cohorts, default=0) + 1
    for cohort, own, count, place in zip(
        cohorts, parts.own.tolist(), parts.count.tolist(), intent.place.tolist(), strict=True
    ):
        now = book.cohorts[cohort]
        if times[cohort] == 1 and count == now.people:
            where[cohort, own] = cohort
        else:
            where[cohort, own] = fresh.setdefault((*now[:3], place), following + len(fresh))
    return [[cohort, *key[:3]] for key, cohort in fresh.items()], where


def plan_facts(made: Plan) -> dict[str, Any]:
    """Return a plan as exact plain data and columns of numbers."""
    return {
        "method": made.method,
        "bounds": [bound.hex() for bound in made.bounds],
        "epsilon": made.levels.epsilon,
        "count": made.levels.count,
        "rounded": made.levels.rounded,
        "names": {e.hex(): name for e, name in made.levels.names.items()},
        "units": made.units,
        "noise": [[term.scale.hex(), term.first, term.last] for term in made.noise],
        "threshold": None if made.threshold is None else float(made.threshold).hex(),
        "abstains": made.abstains,
        "variance": float(made.variance_bound).hex(),
        "shrink": float(made.shrink).hex(),
    }


def plan_of(facts: Mapping[str, Any]) -> Plan:
    """Return the plan that `plan_facts` gave; it passes the exact check again."""
    real = float.fromhex
    names = {real(e): name for e, name in facts["names"].items()}
    return Plan(
        facts["method"],
        Levels.from_arrays(reals(facts["epsilon"]), integers(facts["count"]), rounded=facts["rounded"], names=names),
        Interval.of([real(bound) for bound in facts["bounds"]]),
        integers(facts["units"]),
        tuple(NoiseTerm(real(scale), first, last) for scale, first, last in facts["noise"]),
        None if facts["threshold"] is None else real(facts["threshold"]),
        abstains=facts["abstains"],
        variance_bound=real(facts["variance"]),
        shrink=real(facts["shrink"]),
    )
