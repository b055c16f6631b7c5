"""A mean whose interval learns the variance from privacy that the mean itself leaves over."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from hetdp.core.levels import Levels, capped
from hetdp.errors import InputError
from hetdp.estimators import METHODS, Shape
from hetdp.estimators.adpm import saturation
from hetdp.privacy.exact import left_over

from .mean import Mean
from .statistic import Bounded, Statistic

if TYPE_CHECKING:
    from hetdp.core.plan import Plan


@dataclass(frozen=True)
class LearnedMean(Mean):
    """The mean, and beside it the mean of (2x − 1)² that bounds the variance in its interval.

    Two codes a person, q and ⌊(2q − Q)²/Q⌋, each with a plan of its own: people spend on the second only what the first
    leaves over. So the estimate is that of a mean without it.
    """

    square: ClassVar[bool] = True

    @property
    def width(self) -> int:
        """The value and its square."""
        return 2


@dataclass(frozen=True)
class Square(Bounded):
    """The mean of (2x − 1)²: what the second plan of a `LearnedMean` is for."""

    name: ClassVar[str] = "square"
    title: ClassVar[str] = "A private mean of squares"
    estimated: ClassVar[str] = (
        "The mean of (2x − 1)² in the distribution from which these people are drawn independently."
    )


def learned(statistic: Statistic) -> LearnedMean:
    """Return the mean that learns its variance; no other statistic can."""
    if isinstance(statistic, LearnedMean):
        return statistic
    if type(statistic) is not Mean:
        raise InputError(f"the variance can be learned for a mean of one column, not for a {statistic.name}")
    if statistic.keeps_missing:
        raise InputError("the variance of those who answered cannot be learned; leave out variance='learn'")
    asked = {"value": statistic.value, "missing": statistic.missing, "values": statistic.values}
    return LearnedMean(statistic.bounds, **asked)


def with_squares(mean: Plan, drawn_plan: Callable[..., Plan | None]) -> Plan:
    """Return a plan of a mean with the second one, which learns the variance from what the mean leaves over.

    Its weights are those of ADPM for that rest. It is left out where nobody has any. `drawn_plan` makes a plan with its
    noise, as `hetdp.core.plan` does.
    """
    if mean.abstains:  # nothing is spent
        return mean
    if METHODS[mean.method].needs_records or mean.share != 1:
        raise InputError("the variance is learned from people's remaining ε; that needs a method with one noise")
    levels = mean.levels
    rest = left_over(mean.costs, mean.noise, levels.epsilon)
    merged = Levels.from_arrays(rest, levels.count)
    cap = saturation(merged.epsilon, merged.count, rho=8.0)
    squares = Square(mean.statistic.interval)
    drawn = None
    if merged.active:
        limit = np.where(np.isinf(rest), np.inf, rest)
        shape = Shape(capped(limit, cap), threshold=cap)
        drawn = drawn_plan("adpm", levels, squares, shape, {"variance_bound": 0.25, "share": 1.0}, rest)
    return mean if drawn is None else replace(mean, squares=drawn)
