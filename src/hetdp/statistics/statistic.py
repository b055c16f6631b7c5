"""What a statistic is, seen from the public side. The mean is the first one.

Every release is a sum of integers, Σ W·code(x), plus noise shaped like what one person can move. A statistic says what
a person hands over, how far that can move the noisy sums, and how they are read. It holds public facts alone, so plans
may have one. `Mean` is here and not beside `hetdp.mean` because plans use it, and plans must not import sources.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from hetdp.core.domain import Interval

NOISE = 2.0
"""The variance of Laplace noise of scale 1."""


class Statistic(Protocol):
    """What `plan` and `release` need to know of a statistic.

    Attributes
    ----------
    name
        How plans, tallies and reports call it.
    rho
        ρ: the variance of the noise at scale 1 over the largest variance of what one person hands over.
    """

    name: ClassVar[str]
    rho: ClassVar[float]

    @property
    def interval(self) -> Interval:
        """The public interval of the values."""
        ...

    def encode(self, values: NDArray[Any]) -> NDArray[np.float64]:
        """Return each person's codes, whole numbers in {0 … Q}, of shape (people, width); no value can raise."""
        ...

    def cost(self, units: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return how far one person of weight W can move the noisy sums, as the noise measures it."""
        ...

    def read(self, fraction: Fraction) -> float:
        """Return the estimate on the user's scale, computed exactly from a noisy share of the largest possible sum."""
        ...


@dataclass(frozen=True)
class Mean:
    """The mean: one code a person, which moves the floored sum by at most their weight (`privacy.exact`).

    Laplace noise of scale 1 has variance 2 and a value on an interval of length 1 at most 1/4: ρ = 8.
    """

    interval: Interval
    name: ClassVar[str] = "mean"
    rho: ClassVar[float] = NOISE / 0.25

    def encode(self, values: NDArray[Any]) -> NDArray[np.float64]:
        """Return the grid codes of the values; the claim is that of `Interval.codes`."""
        return self.interval.codes(values, np.empty(values.shape))[:, None]

    def cost(self, units: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return W itself: a sum of whole weights times codes of at most Q, divided by Q and floored, moves by W."""
        return units

    def read(self, fraction: Fraction) -> float:
        """Return lo + (hi − lo)·fraction."""
        return self.interval.at(fraction)
