"""What an estimator is here: a rule from levels to relative weights."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from hetdp.core.levels import Levels


@dataclass(frozen=True)
class Shape:
    """The weights that a method wants, before they become integers. Floats, and not trusted.

    Attributes
    ----------
    weight
        One person's weight at each level, in any unit; finite, 0 or more, and 0 where ε = 0.
    threshold
        The cap t when the weights are min(ε, t); None for a method without one.
    shrink
        The factor s ≤ 1 by which the estimate is drawn towards the midpoint; 1 is unbiased.
    clamp
        How far from the midpoint the noisy mean counts, on an interval of length 1, before it is drawn towards the
        midpoint; inf without a clamp.
    apart
        Whether every level gets noise of its own instead of one draw for all.
    noise
        A noise scale, in the unit of the weights, below which the method does not go; the privacy of
        everybody may ask for more, and then gets it.
    kept
        Whether the weights are probabilities with which people are kept, one by one, for a plain mean.
    """

    weight: NDArray[np.float64]
    threshold: float | None = None
    shrink: float = 1.0
    clamp: float = math.inf
    apart: bool = False
    noise: float = 0.0
    kept: bool = False


class Drifting(Protocol):
    """A rule that also takes how far the means of two levels may differ, and whether exactly these people count."""

    def __call__(self, levels: Levels, variance: float, drift: float, *, people: bool) -> Shape:
        """Return the shape."""


@dataclass(frozen=True)
class Method:
    """One estimator: its name, its place in the literature, its rule.

    Attributes
    ----------
    shape
        From levels and a bound on the variance (both for an interval of length 1) to a `Shape`.
    drifting
        The rule when ε goes with the value; a method without one keeps its weights, and only predicts a larger error.
    plain
        The rule without a clamp, for what the proof of the clamp does not cover: a drift, exactly these people, a share
        of ε. None for a method that has no clamp.
    abstains
        Whether its paper returns the midpoint when the worst-case error would exceed the midpoint's.
    needs_records
        Whether a release draws people one by one, so that it needs arrays in memory instead of a tally.
    """

    name: str
    title: str
    citation: str
    shape: Callable[[Levels, float], Shape]
    drifting: Drifting | None = None
    plain: Callable[[Levels, float], Shape] | None = None
    abstains: bool = False
    needs_records: bool = False

    @property
    def label(self) -> str:
        """The short name that the literature uses, as in a legend."""
        return self.title.partition(":")[0]
