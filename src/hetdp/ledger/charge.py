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

from hetdp.core.domain import Interval
from hetdp.core.levels import Levels, round_down
from hetdp.core.plan import Mean, Plan, plan
from hetdp.errors import PrivacyError
from hetdp.privacy.exact import NoiseTerm

from .amounts import UNLIMITED, Floats, Ints, Rule, charges, levels
from .chain import integers, reals
from .state import State

Part = tuple[int, int]
"""Some people of one cohort: the cohort, and what they allow in this release at most (`UNLIMITED`: not said)."""


@dataclass(frozen=True, eq=False)
class Intent:
    """What a release may use, and what it would do with that.

    Attributes
    ----------
    plan
        Made on everybody's allowance.
    parts, place
        The parts that enter with ε > 0 as rows (cohort, what they allow, people), and the place of each one's level
        in the plan.
    units
        What each level of the plan is charged.
    facts
        How many people take part, are left out because nothing is left, are frozen, have less left than the rule
        allows.
    """

    plan: Plan
    parts: Ints
    place: Ints
    units: Ints
    facts: dict[str, int]


def everybody(state: State) -> Ints:
    """Return all people as parts; none of them has said anything for this release."""
    cohort, people = state.sheet[state.sheet[:, 4] > 0][:, [0, 4]].T
    return np.array([cohort, np.full(cohort.size, UNLIMITED), people]).T


def parts_of(people: Mapping[str, Part]) -> Ints:
    """Return some people as parts: rows (cohort, what they allow, people). A cohort may come several times."""
    counted = Counter(people.values())
    return np.array([(*part, count) for part, count in counted.items()], np.int64).reshape(-1, 3)


def intended(state: State, parts: Ints, rule: Rule, ask: Mapping[str, Any]) -> Intent:
    """Return what a release of these people would do; `ask` is what `plan` takes."""
    cohort, own, count = parts.T
    rows = state.rows(cohort)
    asked, spent = state.sheet[rows, 1], state.sheet[rows, 3]
    left = np.where(asked == UNLIMITED, UNLIMITED, np.maximum(asked - spent, 0))
    wanted = rule.wanted(asked, left)
    allowed = np.minimum(np.minimum(left, wanted), own)
    epsilon = levels(allowed)
    made = plan(Levels.from_arrays(epsilon, count, names=_names(state, asked, epsilon)), **ask)
    place = np.searchsorted(made.levels.epsilon, round_down(epsilon) if made.levels.rounded else epsilon)
    units = charges(made)
    if (units[place] > allowed).any():  # by the claim in `amounts` this cannot happen
        raise PrivacyError("this plan would charge more than somebody has left; nothing was released")
    frozen, empty = asked < spent, (left == 0) & (asked > 0)
    kinds = {"used_up": empty & ~frozen, "frozen": frozen, "short": (left < wanted) & (left > 0)}
    facts = {"people": int(count.sum()), **{name: int(count[kind].sum()) for name, kind in kinds.items()}}
    enters = allowed > 0
    return Intent(made, parts[enters], place[enters], units, facts)


def _names(state: State, asked: Ints, epsilon: Floats) -> dict[float, str]:
    """Return a name for each level at which all people are of tiers with names."""
    tiers: dict[float, set[str]] = {}
    if state.names:
        for units, e in zip(asked.tolist(), epsilon.tolist(), strict=True):
            tiers.setdefault(e, set()).add(state.names.get(units, ""))
    return {e: ", ".join(sorted(names)) for e, names in tiers.items() if "" not in names}


def split(state: State, intent: Intent) -> tuple[list[list[int]], dict[Part, int]]:
    """Return the cohorts to make, as an event lists them, and where each part with ε > 0 then is.

    A cohort of which everybody enters at one level stays as it is. Otherwise each part of it goes to a cohort of its
    own, shared with parts of other cohorts that had the same balance and enter at the same level.
    """
    times = Counter(intent.parts[:, 0].tolist())
    where: dict[Part, int] = {}
    fresh: dict[tuple[int, ...], int] = {}
    following = max(state.cohorts, default=0) + 1
    for (cohort, own, count), place in zip(intent.parts.tolist(), intent.place.tolist(), strict=True):
        now = state.cohorts[cohort]
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
        Mean(Interval.of([real(bound) for bound in facts["bounds"]])),
        integers(facts["units"]),
        tuple(NoiseTerm(real(scale), first, last) for scale, first, last in facts["noise"]),
        None if facts["threshold"] is None else real(facts["threshold"]),
        abstains=facts["abstains"],
        variance_bound=real(facts["variance"]),
        shrink=real(facts["shrink"]),
    )
