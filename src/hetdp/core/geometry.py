"""How far one person can move what is released, and the noise that hides it. docs/proofs/family.md has the proofs.

A statistic releases one or several noisy numbers, shares of the whole weight. Each shape below says what replacing one
person of weight W costs (`cost`: the noise of scale s hides it up to ε = cost/s), how large the noise is, and what its
moment generating function is. The samplers are in `privacy.noise`. Privacy rests on `cost` alone; the rest predicts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from hetdp.errors import InputError
from hetdp.privacy.exact import Line

__all__ = ["Box", "Choice", "Geometry", "Line", "Mass"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

_HAIR = 1e-9
"""What is added to the logarithm of a moment generating function for the rounding of doubles."""


@dataclass(frozen=True)
class Mass:
    """Shares of k cells that add up to the whole: a person moves a weight of at most W from cells to others.

    The noise adds up to 0 as well, P(z) ∝ exp(−‖z‖₁/2s) on the integer vectors with sum 0: moving W costs W/s.
    """

    cells: int
    least = 0.0

    @property
    def numbers(self) -> int:
        """How many numbers are released."""
        return self.cells

    @property
    def noise(self) -> float:
        """The variance of the noise of all numbers together, at scale 1."""
        k = self.cells
        return 4 * (2 * k - 1) * (k - 1) / (k + 1)

    def cost(self, units: Ints) -> Ints:
        """Return W itself: half of the L1 distance."""
        return units

    def log_mgf(self, u: float, scale: float) -> float:
        """Return ln E exp(λz) of one cell at u = λ·scale < 1.

        With r = e^(−1/s) and m = k − 1, P(z) ∝ r^|z|·Σ aᵢ·C(|z| + i, i) over i < m, all aᵢ > 0 (see the proof page). So
        E exp(λz) is a ratio of Σ aᵢ·[(1 − r·e^λ)^−(i+1) + (1 − r·e^−λ)^−(i+1) − 1], at λ and at 0.
        """
        logs = _mixture(self.cells - 1, scale)
        i = np.arange(1, self.cells)
        up, down, none = (-i * math.log(-math.expm1(x / scale)) for x in (u - 1, -u - 1, -1.0))
        above, below = (both + np.log1p(-np.exp(-both)) for both in (np.logaddexp(up, down), math.log(2) + none))
        return float(np.logaddexp.reduce(logs + above) - np.logaddexp.reduce(logs + below)) + _HAIR


@lru_cache(maxsize=64)
def _mixture(m: int, scale: float) -> Floats:
    """Return ln aᵢ for i = 0 … m − 1, as `Mass.log_mgf` has them.

    a(m−1) = (1 − r)^−m, and for smaller i, with Euler's transformation of the hypergeometric series,
    aᵢ = r·m·(1 − r)^(i+1−2m)·Σⱼ C(m−1, j)·C(m−2−i, j)·r^j/(j + 1), j = 0 … m−2−i.
    """
    from scipy.special import gammaln

    j = np.arange(m)
    log_r, log_gap = -1 / scale, math.log(-math.expm1(-1 / scale))
    logs = np.empty(m)
    logs[m - 1] = -m * log_gap
    first = gammaln(m) - gammaln(j + 1) - gammaln(m - j) + j * log_r - np.log1p(j)
    for i in range(m - 1):
        n = m - 2 - i
        terms = first[: n + 1] + gammaln(n + 1) - gammaln(j[: n + 1] + 1) - gammaln(n - j[: n + 1] + 1)
        logs[i] = log_r + math.log(m) + (i + 1 - 2 * m) * log_gap + np.logaddexp.reduce(terms)
    return logs


@dataclass(frozen=True)
class Box:
    """d numbers, each of which a person moves by at most W. P(z) ∝ exp(−‖z‖∞/s) on the integer vectors."""

    d: int

    @property
    def least(self) -> float:
        """A scale below which the noise would take long to draw: a cube is kept with probability e^(−d/2s)."""
        return self.d / 4

    @property
    def numbers(self) -> int:
        """How many numbers are released."""
        return self.d

    @property
    def noise(self) -> float:
        """The variance of the noise of all numbers together, at scale 1."""
        return self.d * (self.d + 1) * (self.d + 2) / 3

    def cost(self, units: Ints) -> Ints:
        """Return W itself: the largest change of a number."""
        return units

    def log_mgf(self, u: float, scale: float) -> float:
        """Return ln E exp(λz) of one number at u = λ·scale < 1.

        z is uniform on {−R … R} with P(R) ∝ (2R + 1)^d·r^R, r = e^(−1/s), so E exp(λz) is a ratio of
        Σ (2R + 1)^(d−1)·r^R·sinh((R + ½)λ)/sinh(λ/2) and Σ (2R + 1)^d·r^R; and Σ (2R + 1)^n·x^R is B(x)/(1 − x)^(n+1),
        B the Eulerian polynomial of type B, whose coefficients are positive.
        """
        lam, d = u / scale, self.d
        inner, outer = _eulerian(d - 1), _eulerian(d)
        up = lam / 2 - d * math.log(-math.expm1((u - 1) / scale)) + _log_polynomial(inner, (u - 1) / scale)
        down = -lam / 2 - d * math.log(-math.expm1((-u - 1) / scale)) + _log_polynomial(inner, (-u - 1) / scale)
        above = up + math.log(-math.expm1(down - up)) - math.log(2 * math.sinh(lam / 2))
        below = _log_polynomial(outer, -1 / scale) - (d + 1) * math.log(-math.expm1(-1 / scale))
        return above - below + _HAIR


@lru_cache(maxsize=64)
def _eulerian(n: int) -> tuple[int, ...]:
    """Return the coefficients of Σ (2R + 1)^n·x^R times (1 − x)^(n+1).

    >>> _eulerian(2)
    (1, 6, 1)
    """
    if n == 0:
        return (1,)
    before = _eulerian(n - 1)
    at = dict(enumerate(before))
    return tuple((2 * k + 1) * at.get(k, 0) + (2 * n - 2 * k + 1) * at.get(k - 1, 0) for k in range(n + 1))


def _log_polynomial(coefficients: tuple[int, ...], log_x: float) -> float:
    return float(np.logaddexp.reduce([math.log(c) + k * log_x for k, c in enumerate(coefficients)]))


@dataclass(frozen=True)
class Choice:
    """One of several cells is chosen by its score, `picks` times; a person moves every score by at most W.

    Permute-and-flip: a cell is kept with probability exp((score − best)/s), which costs 2W/s each time. The error of a
    choice, in score, is at most s·ln(cells/β) with probability 1 − β, as for the exponential mechanism, to which it is
    never inferior; its mean square is about 2s². Seen at one person's ε alone, s is 2·picks times the usual scale.
    """

    picks: int = 1
    counted: int = 1
    """How many of the choices are results; the others only make intervals."""
    least = 0.0

    @property
    def numbers(self) -> int:
        """How many numbers are released."""
        return self.picks

    @property
    def noise(self) -> float:
        """About the mean squared error of the results together, at scale 1."""
        return 2.0 * self.counted

    def cost(self, units: Ints) -> Ints:
        """Return 2W for every choice."""
        return 2 * self.picks * units

    def log_mgf(self, u: float, scale: float) -> float:  # noqa: ARG002  as the others
        """Refuse: a choice has no noise that could be added."""
        raise InputError("nothing is added to a choice, so it has no radius; the guarantee is in rank: `.ranks(level)`")


Geometry = Line | Mass | Box | Choice
