"""ADPM, Algorithm 1 of Chaudhuri and Courtade: the best unbiased affine estimator with Laplace noise.

Its weights are min(ε, t). The paper compares it with the two ends of this family: UNI, where t is the smallest ε and
everybody counts alike, and PropDPM, where t is infinite and nobody is capped.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hetdp.core.levels import Levels, capped

from .drift import drift_cap
from .shape import Method, Shape


def saturation(epsilon: NDArray[np.float64], count: NDArray[np.int64], rho: float) -> float:
    """Return the cap t at which weights min(ε, t) minimise a·Σw² + c·max(w/ε)² on the simplex.

    The optimum has w ∝ min(ε, t), where t is the root of the increasing, piecewise linear function

        G(t) = Σᵢ εᵢ·(t − εᵢ)₊ = ρ,    ρ = c/a (the paper's 8).

    Two groups give t = R·ε₁ with R = 1 + 8/(ε₁²·n·f), the paper's threshold. When t is above every ε
    nothing saturates and the weights are proportional to ε.

    Parameters
    ----------
    epsilon, count
        Distinct levels, ascending, and the number of people at each.
    rho
        Noise variance at unit scale over the bound on the variance of one value.

    Notes
    -----
    G is summed from level to level by its slope Σε, so there are no squares to overflow and no
    differences to cancel: ε may run from 1e-300 to 1e300 in one call.

    Examples
    --------
    Case (B) of Table I with ε₁ = 0.1, f = 0.7, n = 1000: t = R·ε₁ = 0.1 + 8/70.

    >>> saturation(np.array([0.1, np.inf]), np.array([700, 300]), rho=8)
    0.2142857...
    """
    first = int(np.searchsorted(epsilon, 0.0, side="right"))  # nobody with ε = 0 counts
    level, people = epsilon[first:], count[first:]
    if not level.size or np.isinf(level[0]) or np.isinf(rho):
        return np.inf
    with np.errstate(over="ignore"):
        return root(level, people * level, rho)


def root(level: NDArray[np.float64], mass: NDArray[np.float64], rho: float) -> float:
    """Return the root t of G(t) = Σ mass·(t − level)₊ = ρ, for at least one level, ascending, and positive masses."""
    with np.errstate(over="ignore", divide="ignore"):
        slope = np.cumsum(mass)
        rise = np.zeros_like(level)  # G at each level
        np.cumsum(slope[:-1] * (level[1:] - level[:-1]), out=rise[1:])
        last = int(np.searchsorted(rise, rho)) - 1  # the last level with G < ρ
        return float(level[last] + (rho - rise[last]) / slope[last])


def _shape(levels: Levels, variance: float) -> Shape:
    t = saturation(levels.epsilon, levels.count, rho=2 / variance)
    return Shape(capped(levels.epsilon, t), threshold=t)


def _drifting(levels: Levels, variance: float, drift: float, *, people: bool) -> Shape:
    t = drift_cap(levels, variance, drift, people=people)
    return Shape(capped(levels.epsilon, t), threshold=t)


def _uniform(levels: Levels, variance: float) -> Shape:  # noqa: ARG001  the weights do not depend on the variance
    """Return equal weights, so that the smallest ε decides about the noise; people with ε = 0 are left out."""
    used = levels.epsilon > 0
    smallest = float(levels.epsilon[used].min()) if used.any() else np.inf
    return Shape(used.astype(np.float64), threshold=smallest)


def _proportional(levels: Levels, variance: float) -> Shape:  # noqa: ARG001  the weights do not depend on the variance
    """Return weights proportional to ε. With public people it becomes the plain mean of the public rows."""
    return Shape(capped(levels.epsilon, np.inf), threshold=np.inf)


METHOD = Method(
    name="adpm",
    title="ADPM: weights min(ε, t)",
    citation="Chaudhuri and Courtade, Mean Estimation Under Heterogeneous Privacy, ISIT 2023, Algorithm 1",
    shape=_shape,
    drifting=_drifting,
    abstains=True,
)
PROPORTIONAL = Method(
    name="proportional",
    title="PropDPM: weights proportional to ε",
    citation="Chaudhuri and Courtade, Mean Estimation Under Heterogeneous Privacy, ISIT 2023, Section IV-A",
    shape=_proportional,
)
UNIFORM = Method(
    name="uniform",
    title="UNI: everybody at the smallest ε",
    citation="Chaudhuri and Courtade, Mean Estimation Under Heterogeneous Privacy, ISIT 2023, Section IV-A",
    shape=_uniform,
)
