"""What a statistic is. A new one is one file here; plans and releases know it by what stands below.

Every release is a sum of integers, Σ W·code(x), plus noise shaped like what one person can move. A statistic says what
a person hands over, how far that can move the noisy sums, and how they are read. It holds public facts alone.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from hetdp.core.domain import Interval


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
