"""The question turned round: what would bring the worst-case error down to a target."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from hetdp.core.accuracy import least, objective
from hetdp.core.domain import jsonable
from hetdp.core.levels import MOST_PEOPLE, Levels
from hetdp.core.plan import Plan, plan
from hetdp.errors import InputError
from hetdp.estimators import METHODS

MOST_TIERS = 12  # no policy sets more levels one by one


@dataclass(frozen=True)
class Target:
    """What reaches a target error, in units of the values.

    Attributes
    ----------
    error
        The target for the worst-case error (the root of the worst-case mean squared error).
    reached
        Whether the plan as it stands is there already.
    people
        How many people it takes at the same mix of ε; None if no number will do.
    epsilon
        For each level of the plan, the ε that its people would have to choose, all else equal; None if no ε can.
        Empty where there are more than twelve levels, which no policy sets one by one.
    """

    error: float
    reached: bool
    people: int | None
    epsilon: dict[float, float | None]

    def to_dict(self) -> dict[str, Any]:
        """Return the answer as plain data."""
        tiers = [{"epsilon": e, "needs": needs, "possible": needs is not None} for e, needs in self.epsilon.items()]
        facts = {"error": self.error, "reached": self.reached, "people": self.people, "tiers": tiers}
        return dict(jsonable(facts))


def people_needed(
    levels: Levels | Mapping[Any, int] | Any,
    *,
    error: float,
    bounds: Any,
    method: str = "adpm",
    variance: float | None = None,
) -> Target:
    """Return what would bring the worst-case error of a private mean down to `error`: more people, or a larger ε.

    Parameters
    ----------
    levels, bounds, method, variance
        As for `plan`.
    error
        The target for the worst-case error (the root of the worst-case mean squared error), in units of the values.

    Examples
    --------
    >>> found = people_needed({0.1: 700, float("inf"): 300}, error=0.01, bounds=(0, 1))
    >>> found.people, found.reached
    (3084, False)
    """
    return target(plan(levels, bounds=bounds, method=method, variance=variance), error)


def target(plan: Plan, error: float) -> Target:
    """Return what would bring the worst-case error of a plan down to `error`, in units of the values.

    >>> from hetdp import plan
    >>> found = target(plan({0.1: 700, float("inf"): 300}, bounds=(0, 1)), 0.01)
    >>> found.people, found.epsilon[0.1]
    (3084, None)
    """
    if not 0 < error < math.inf:
        raise InputError(f"the target error must be a positive number (got {error:g}), in units of the values")
    goal = (error / plan.interval.width) ** 2
    shape = METHODS[plan.method].shape

    def enough(levels: Levels) -> bool:
        return objective(levels, shape(levels, plan.variance_bound), plan.variance_bound) <= goal

    tiers = plan.levels.epsilon.tolist() if len(plan.levels) <= MOST_TIERS else []
    return Target(
        error,
        reached=plan.worst_case_error <= error,
        people=_people(plan.levels, enough),
        epsilon={level: _epsilon(plan.levels, i, enough) for i, level in enumerate(tiers)},
    )


def _people(levels: Levels, enough: Callable[[Levels], bool]) -> int | None:
    def times(factor: float) -> Levels:
        count = np.ceil(levels.count * factor).astype(np.int64)
        return Levels.from_arrays(levels.epsilon, count, rounded=levels.rounded)

    largest = MOST_PEOPLE / levels.n / 2
    if not levels.active or not enough(times(largest)):
        return None
    return times(least(lambda factor: enough(times(min(factor, largest))), start=1.0)).n


def _epsilon(levels: Levels, i: int, enough: Callable[[Levels], bool]) -> float | None:
    def at(level: float) -> bool:
        changed = levels.epsilon.copy()
        changed[i] = level
        return enough(Levels.from_arrays(changed, levels.count))

    return least(at, start=1.0) if at(math.inf) else None
