"""The affine estimator with Laplace noise of the smallest worst-case error: a cap of its own, a pull to the midpoint.

Other noise can do a little better: see the page on how it works.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from hetdp.core.levels import Levels, capped

from .adpm import saturation
from .shape import Method, Shape

_NOTHING = 1e-50
"""A total Σmin(ε, t) below this counts as this: noise that large is never drawn."""


def _best(levels: Levels, a: float) -> tuple[float, NDArray[np.float64], float, float]:
    """Return the cap t and weights min(ε, t) that are best against variance a, with A = Σu² and B = max(u/ε)².

    u are the same weights with sum 1. They minimise a·A + 2·B, which is ADPM's program with ρ = 2/a.
    """
    t = saturation(levels.epsilon, levels.count, rho=2 / a) if a else math.inf
    weight = capped(levels.epsilon, t)
    people = float(levels.count @ weight)
    total = min(t, float(levels.epsilon.max())) * people  # Σmin(ε, t)
    return t, weight, float(levels.count @ weight**2) / people**2, max(total, _NOTHING) ** -2


def least_favourable(levels: Levels, variance: float) -> float:
    """Return the variance a ≤ `variance` of the distribution that the best affine estimator has to fear.

    Over all distributions on an interval of length 1 with variance at most σ², weights w with Σw = s have the
    worst-case error

        2η² + max over 0 ≤ a ≤ σ² of a·Σw² + b·(1 − s)²,    b = 1/4 − a, η = max(w/ε),

    because a distribution of variance a has its mean at most √b from the midpoint. That is a game: it is convex in w
    and linear in a, so the smallest maximum is the largest minimum. For a given a the best w is s·u, where u
    minimises m(a) = a·A + 2B (see `_best`) and s = b/(b + m); what remains is φ(a) = b·m/(b + m). It is concave, with
    φ′ = Σw² − (1 − s)², which has the sign of b·√A − m. So a is where that is 0, or an end of [0, σ²]. With σ² = 1/4
    this is s = min(1/(1 + √A), 1/(1 + 8B)) with the cap that makes the worst case smallest.

    Examples
    --------
    One public person: the mean shrinks by half, and the error is 1/16 (Hodges and Lehmann's 1/(4(1 + √n)²)).

    >>> least_favourable(Levels({math.inf: 1}), 0.25)
    0.125
    """
    from scipy.optimize import brentq

    def slope(a: float) -> float:
        _, _, A, B = _best(levels, a)  # noqa: N806  the letters of the formula
        return (0.25 - a) * math.sqrt(A) - (a * A + 2 * B)

    if slope(0) <= 0:  # so little is known that only noise and bias matter
        return 0.0
    return variance if slope(variance) >= 0 else float(brentq(slope, 0, variance, xtol=1e-18))


def _shape(levels: Levels, variance: float) -> Shape:
    if not levels.active:
        return Shape(np.zeros(len(levels)), threshold=math.inf)
    a = least_favourable(levels, variance)
    t, weight, A, B = _best(levels, a)  # noqa: N806
    b = 0.25 - a
    return Shape(weight, threshold=t, shrink=b / (b + a * A + 2 * B))


METHOD = Method(
    name="minimax",
    title="minimax: the best affine estimator with Laplace noise, drawn to the midpoint",
    citation="worked out for this package; the cap is that of Chaudhuri and Courtade, ISIT 2023, Algorithm 1",
    shape=_shape,
)
