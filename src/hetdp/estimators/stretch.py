"""Stretching: values scaled by ε/ε_max towards the midpoint, then the plain ε_max-DP mean. Biased.

The mean of ε·x/ε_max over n people is s·Σε·x/Σε with s = mean ε/ε_max, and its noise 1/(n·ε_max) is s/Σε: the weights
of `proportional`, shrunk. With ε = 0.01 and 0.1, half each, all values at 1/2 and the midpoint 0, the error is
(1 − 0.55)²/4 + 200/n² (Example 2 of Chaudhuri and Courtade, who print 0.05 + 200/n²).
"""

from __future__ import annotations

import numpy as np

from hetdp.core.levels import Levels
from hetdp.errors import InputError

from .shape import Method, Shape, capped


def _shape(levels: Levels, variance: float) -> Shape:  # noqa: ARG001  the weights do not depend on the variance
    if np.isinf(levels.epsilon[-1]):
        raise InputError(
            f"stretch divides by the largest epsilon, which must be finite (got inf for {levels.count[-1]} people); "
            "give them a finite epsilon or choose another method"
        )
    weight = capped(levels.epsilon, np.inf)
    return Shape(weight, shrink=float(levels.count @ weight) / levels.active if levels.active else 1.0)


METHOD = Method(
    name="stretch",
    title="stretching: values scaled by ε/ε_max",
    citation="Alaggan, Gambs and Kermarrec, Heterogeneous Differential Privacy, Journal of Privacy and "
    "Confidentiality, 2017",
    shape=_shape,
)
