"""The question turned round: what would bring the worst-case error, or the interval, down to a target."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from hetdp.core.accuracy import least, objective, shaped
from hetdp.core.domain import jsonable
from hetdp.core.levels import MOST_PEOPLE, Levels
from hetdp.core.plan import Plan, plan
from hetdp.core.types import BoundsLike, LevelsOfPeople
from hetdp.errors import InputError
from hetdp.estimators import METHODS

MOST_TIERS = 12  # no policy sets more levels one by one


@dataclass(frozen=True)
class Target:
    """What reaches a target, in units of the values.

    Attributes
    ----------
    error, width
        The target: for the worst-case error (the root of the worst-case mean squared error), or for half the width of
        the guaranteed interval, as `Plan.width` predicts it; the other is None.
    reached
        Whether the plan as it stands is there already.
    people
        How many people it takes at the same mix of ε; None if no number will do.
    epsilon
        For each level of the plan, the ε that its people would have to choose, all else equal; None if no ε can.
        Empty where there are more than twelve levels, which no policy sets one by one.
    level
        The confidence of that interval.
    """

    error: float | None
    reached: bool
    people: int | None
    epsilon: dict[float, float | None]
    width: float | None = None
    level: float = 0.95

    @property
    def goal(self) -> tuple[str, float]:
        """What is to be reached, in words and as a number."""
        if self.error is not None:
            return "worst-case error", self.error
        return f"half-width of the {self.level:.0%} interval", self.width or 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return the answer as plain data."""
        tiers = [{"epsilon": e, "needs": needs, "possible": needs is not None} for e, needs in self.epsilon.items()]
        goal = {"error": self.error} if self.error is not None else {"width": self.width, "level": self.level}
        return dict(jsonable({**goal, "reached": self.reached, "people": self.people, "tiers": tiers}))


def people_needed(
    levels: Levels | LevelsOfPeople,
    *,
    error: float | None = None,
    width: float | None = None,
    level: float = 0.95,
    bounds: BoundsLike,
    method: str = "adpm",
    variance: float | None = None,
    drift: float = 0.0,
) -> Target:
    """Return what would bring the error or the interval of a private mean down to a target: more people, a larger ε.

    Parameters
    ----------
    levels, bounds, method, variance, drift
        As for `plan`.
    error
        A target for the worst-case error (the root of the worst-case mean squared error), in units of the values.
    width, level
        Or a target for half the width of the guaranteed interval at this level of confidence (see `Plan.width`).

    Examples
    --------
    >>> found = people_needed({0.1: 700, float("inf"): 300}, error=0.01, bounds=(0, 1))
    >>> found.people, found.reached
    (3084, False)
    >>> people_needed({0.1: 700, float("inf"): 300}, width=0.03, bounds=(0, 1)).people
    1765
    """
    planned = plan(levels, bounds=bounds, method=method, variance=variance, drift=drift)
    return target(planned, error, width=width, level=level)


def target(planned: Plan, error: float | None = None, *, width: float | None = None, level: float = 0.95) -> Target:
    """Return what would bring a plan's worst-case error, or half the width of its interval, down to a target.

    >>> found = target(plan({0.1: 700, float("inf"): 300}, bounds=(0, 1)), 0.01)
    >>> found.people, found.epsilon[0.1]
    (3084, None)
    """
    if (error is None) == (width is None):
        raise InputError("name one target: an error, or a width (half of the guaranteed interval)")
    goal = float(error if error is not None else width or 0)
    if not 0 < goal < math.inf:
        what = "error" if error is not None else "width"
        raise InputError(f"the target {what} must be a positive number (got {goal:g}), in units of the values")
    enough = _within_width(planned, goal, level) if error is None else _within_error(planned, goal)
    tiers = planned.levels.epsilon.tolist() if len(planned.levels) <= MOST_TIERS else []
    return Target(
        error,
        reached=(planned.width(level) if error is None else planned.worst_case_error) <= goal,
        people=_people(planned.levels, enough),
        epsilon={epsilon: _epsilon(planned.levels, i, enough) for i, epsilon in enumerate(tiers)},
        width=width,
        level=level,
    )


def _within_error(planned: Plan, goal: float) -> Callable[[Levels], bool]:
    square = (goal / planned.interval.width) ** 2
    rule, bound, drift = METHODS[planned.method], planned.variance_bound, planned.drift
    people = planned.target == "people"

    def enough(levels: Levels) -> bool:
        shape = shaped(rule, levels, bound, drift, people=people, share=planned.share)
        return objective(levels, shape, bound, drift=drift, people=people) <= square

    return enough


def _within_width(planned: Plan, goal: float, level: float) -> Callable[[Levels], bool]:
    variance = planned.variance_bound * planned.interval.width * planned.interval.width

    def enough(levels: Levels) -> bool:
        how: dict[str, Any] = {"variance": variance, "drift": planned.drift, "target": planned.target}
        return plan(levels, statistic=planned.statistic, method=planned.method, **how).width(level) <= goal

    return enough


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
