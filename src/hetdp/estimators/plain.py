"""Plain rules of others: thresholding, everybody alike from some ε up; stretching, values scaled by ε."""

from __future__ import annotations

import numpy as np

from hetdp.core.levels import Levels, Method, Shape, capped
from hetdp.errors import InputError


def _threshold(levels: Levels, variance: float) -> Shape:
    """Return equal weights from the level τ up with the least error V/m + 2/(m·τ)², m the people at ε ≥ τ."""
    tau = levels.epsilon
    m = np.cumsum(levels.count[::-1])[::-1]
    with np.errstate(over="ignore", divide="ignore"):
        error = variance / m + 2 * (1 / (m * tau)) ** 2
    best = int(np.argmin(error))
    return Shape(((tau >= tau[best]) & (tau > 0)).astype(np.float64), threshold=float(tau[best]))


def _stretch(levels: Levels, variance: float) -> Shape:  # noqa: ARG001  the weights do not depend on the variance
    """Return what scaling values by ε/ε_max towards the midpoint and the plain ε_max-DP mean come to. It is biased.

    The mean of ε·x/ε_max over n people is s·Σε·x/Σε with s = mean ε/ε_max, and its noise 1/(n·ε_max) is s/Σε: the
    weights of `proportional`, shrunk. With ε = 0.01 and 0.1, half each, all values at 1/2 and the midpoint 0, the error
    is (1 − 0.55)²/4 + 200/n² (Example 2 of Chaudhuri and Courtade, who print 0.05 + 200/n²).
    """
    if np.isinf(levels.epsilon[-1]):
        raise InputError(
            f"stretch divides by the largest epsilon, which must be finite (got inf for {levels.count[-1]} people); "
            "give them a finite epsilon or choose another method"
        )
    weight = capped(levels.epsilon, np.inf)
    return Shape(weight, shrink=float(levels.count @ weight) / levels.active if levels.active else 1.0)


THRESHOLD = Method(
    name="threshold",
    title="thresholding: the plain mean of everybody at τ or above",
    citation="Cyffers and Ziani, Limits of Personalizing Differential Privacy Budgets, arXiv 2605.13503, 2026",
    shape=_threshold,
)
STRETCH = Method(
    name="stretch",
    title="stretching: values scaled by ε/ε_max",
    citation="Alaggan, Gambs and Kermarrec, Heterogeneous Differential Privacy, Journal of Privacy and "
    "Confidentiality, 2017",
    shape=_stretch,
)
