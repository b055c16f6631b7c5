"""The mean."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from hetdp.core.domain import Interval

LAPLACE = 2.0
"""The variance of Laplace noise of scale 1."""


@dataclass(frozen=True)
class Mean:
    """The mean: one code a person, which moves the floored sum by at most their weight (`privacy.exact`).

    Laplace noise of scale 1 has variance 2 and a value on an interval of length 1 at most 1/4: ρ = 8.
    """

    interval: Interval
    name: ClassVar[str] = "mean"
    rho: ClassVar[float] = LAPLACE / 0.25

    def encode(self, values: NDArray[Any]) -> NDArray[np.float64]:
        """Return the grid codes of the values; the claim is that of `Interval.codes`."""
        return self.interval.codes(values, np.empty(values.shape))[:, None]

    def cost(self, units: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return W itself: a sum of whole weights times codes of at most Q, divided by Q and floored, moves by W."""
        return units

    def read(self, fraction: Fraction) -> float:
        """Return lo + (hi − lo)·fraction."""
        return self.interval.at(fraction)
