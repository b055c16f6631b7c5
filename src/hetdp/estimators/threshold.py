"""Thresholding: leave out everybody below τ, take the plain τ-DP mean of the others, with the best τ."""

from __future__ import annotations

import numpy as np

from hetdp.core.levels import Levels

from .shape import Method, Shape


def _shape(levels: Levels, variance: float) -> Shape:
    """Return equal weights from the level τ up with the least error V/m + 2/(m·τ)², m the people at ε ≥ τ."""
    tau = levels.epsilon
    m = np.cumsum(levels.count[::-1])[::-1]
    with np.errstate(over="ignore", divide="ignore"):
        error = variance / m + 2 * (1 / (m * tau)) ** 2
    best = int(np.argmin(error))
    return Shape(((tau >= tau[best]) & (tau > 0)).astype(np.float64), threshold=float(tau[best]))


METHOD = Method(
    name="threshold",
    title="thresholding: the plain mean of everybody at τ or above",
    citation="Cyffers and Ziani, Limits of Personalizing Differential Privacy Budgets, arXiv 2605.13503, 2026",
    shape=_shape,
)
