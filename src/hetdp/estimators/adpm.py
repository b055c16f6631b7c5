"""ADPM, Algorithm 1 of Chaudhuri and Courtade: the best unbiased affine estimator with Laplace noise.

Its weights are min(ε, t). The paper compares it with the two ends of this family: UNI, where t is the smallest ε and
everybody counts alike, and PropDPM, where t is infinite and nobody is capped. Every statistic can take these three, so
their rules stand beside the levels (`core.levels`); here are their names, and the cap of ADPM under drift.
"""

from __future__ import annotations

import math

import numpy as np

from hetdp.core.domain import Floats
from hetdp.core.levels import Levels, Method, Shape, capped, evenly, proportionally, saturated, shift


def _drifting(levels: Levels, variance: float, drift: float, *, people: bool) -> Shape:
    t = drift_cap(levels, variance, drift, people=people)
    return Shape(capped(levels.epsilon, t), threshold=t)


# The cap under drift ------------------------------------------------------------------------------------------------
#
# When ε goes with the value, unequal weights bring a bias, and the worst case counts it. Weights w that sum to 1 move
# δ = Σ(1/n − w)₊ of the whole weight from some people to others. If the expected means of two levels of ε differ by at
# most D, a share of the range, then
#
#     |Σ w·μ − Σ μ/n| = |Σ (w − 1/n)·μ| ≤ D·δ,
#
# because Σ(w − 1/n) = 0, and the positive parts of w − 1/n add up to δ as the negative ones do. It is attained: people
# who count too little have one mean, the others a mean D above it. Values are independent given ε, so the worst mean
# squared error has no cross terms:
#
#     of the population   V·Σw² + D²δ² + c·η²
#     of these people     min(V·(Σw² − 1/n) + D²δ², δ²) + c·η²        η = max w/ε, c the noise variance at η = 1.
#
# The second one never exceeds δ², because |Σ (w − 1/n)·x| ≤ δ whatever the values are.
#
# For a given η the weights w ≤ η·ε that are as even as possible, min(η·ε, some level), are majorised by all others, so
# they have the smallest Σw² and the smallest δ at once: the best weights are still min(ε, T)/S, S = Σmin(ε, T). All
# terms are convex in w, so the best value is convex in η = 1/S, and its derivative is 0 where
#
#     V·G(T) + D²·H(S/n) = c,    G(T) = Σ ε·(T − ε)₊,    H(τ) = Σ_{ε < τ} ε · Σ (τ − ε)₊.
#
# The left side grows with T. D = 0 is ADPM's equation. D = 1 and V = 0 is the worst case over every dependence: with
# S_k the sum of the k smallest ε it reads S_k·(k·τ − S_k) = c, or 1/τ = k·S_k/(S_k² + c). H jumps where τ passes a
# level; if c lies in such a jump, T is the cap with mean min(ε, T) = that level.


NOISE = 2.0  # c, the variance of Laplace noise at η = 1


def drift_cap(levels: Levels, variance: float, drift: float, *, people: bool = False) -> float:
    """Return the cap T of the weights min(ε, T) with the smallest worst case, for a drift D > 0.

    Parameters
    ----------
    levels
        The levels of ε.
    variance
        V, the bound on the variance of one value.
    drift
        D, how far the means of two levels may differ, as a share of the range.
    people
        Whether the number of exactly these people is estimated, not that of the population.

    Examples
    --------
    The means of 500 people at ε = 0.1 and 500 at ε = 1 may differ by a fifth of the range: T falls from 0.26.

    >>> round(drift_cap(Levels({0.1: 500, 1.0: 500}), 0.25, 0.2), 4)
    0.1039
    """
    equation = _Equation(levels)
    best = equation.root(variance, drift)
    other = equation.root(0.0, 1.0) if people else best  # the branch δ² is the same problem with D = 1 and V = 0
    if other == best:
        return best
    return min((best, other), key=lambda cap: equation.worst_of_people(cap, variance, drift))


class _Equation:
    """The sums over levels with which V·G(T) + D²·H(S/n) is computed for any T without a loop.

    Everything is summed from level to level by slopes, so there are no squares to overflow and no differences to
    cancel: ε may run from 1e-300 to 1e300.
    """

    def __init__(self, levels: Levels) -> None:
        finite = np.isfinite(levels.epsilon)
        self.levels, self.n = levels, float(levels.n)
        self.level: Floats = levels.epsilon[finite]
        self.mass = np.cumsum(levels.count[finite] * self.level)  # Σε up to each level
        self.below = np.cumsum(levels.count[finite]).astype(np.float64)
        step = np.diff(self.level)
        with np.errstate(over="ignore"):
            self.gain = np.concatenate([[0.0], np.cumsum(self.mass[:-1] * step)])  # G at each level
            self.lack = np.concatenate([[0.0], np.cumsum(self.below[:-1] * step)])  # Σ(level − ε)₊

    def left(self, cap: Floats, variance: float, drift: float) -> Floats:
        """Return V·G(T) + D²·H(S(T)/n) at caps T from the smallest level up, finite."""
        with np.errstate(over="ignore", invalid="ignore"):
            at = np.searchsorted(self.level, cap, side="right") - 1
            g = self.gain[at] + self.mass[at] * (cap - self.level[at]) if variance else np.zeros_like(cap)
            tau = np.minimum(self.mass[at] / self.n + (1 - self.below[at] / self.n) * cap, cap)  # a mean of min(ε, T)
            under = np.searchsorted(self.level, tau) - 1  # the last level below τ
            lack = self.lack[under] + self.below[under] * (tau - self.level[under])
            h = np.where(under >= 0, self.mass[under] * lack, 0.0)
            return np.asarray(variance * g + drift * drift * h)

    def root(self, variance: float, drift: float) -> float:
        """Return the largest T with left(T) ≤ c, up to rounding; inf if there is none."""
        if not self.level.size or self.level[-1] == 0:
            return math.inf  # nobody needs noise, or nobody takes part
        start = int(np.searchsorted(self.level, 0.0, side="right"))
        at_levels = self.left(self.level[start:], variance, drift)
        last = start + max(int(np.searchsorted(at_levels, NOISE, side="right")) - 1, 0)
        low = float(self.level[last])
        if last + 1 == self.level.size and self.below[-1] == self.n:  # nobody is above T: only G still grows
            with np.errstate(over="ignore", divide="ignore"):
                rest = (NOISE - at_levels[-1]) / (np.float64(variance) * self.mass[-1])
            return low + max(float(rest), 0.0)

        def beyond(cap: float) -> bool:
            return float(self.left(np.array([cap]), variance, drift)[0]) > NOISE

        high = float(self.level[last + 1]) if last + 1 < self.level.size else 2 * low
        while not beyond(high):  # with public people the last piece has no end
            low, high = high, 2 * high
            if math.isinf(high):
                return math.inf
        while True:
            middle = math.sqrt(low) * math.sqrt(high) if high > 2 * low else low + (high - low) / 2
            if not low < middle < high:
                return low
            low, high = (low, middle) if beyond(middle) else (middle, high)

    def worst_of_people(self, cap: float, variance: float, drift: float) -> float:
        """Return min(V·(Σw² − 1/n) + D²δ², δ²) + c·η² for the weights min(ε, T)."""
        count, top = self.levels.count, min(cap, float(self.levels.epsilon.max()))
        weight = capped(self.levels.epsilon, cap)
        total, moved = float(count @ weight), shift(count, weight)
        spread = max(float(count @ (weight / total) ** 2) - 1 / self.n, 0.0)
        with np.errstate(over="ignore"):
            noise = float(NOISE * np.float64(1 / top / total) ** 2)  # 0 if only public people count
        return min(variance * spread + (drift * moved) ** 2, moved**2) + noise


METHOD = Method(
    name="adpm",
    title="ADPM: weights min(ε, t)",
    citation="Chaudhuri and Courtade, Mean Estimation Under Heterogeneous Privacy, ISIT 2023, Algorithm 1",
    shape=saturated,
    drifting=_drifting,
    abstains=True,
)
PROPORTIONAL = Method(
    name="proportional",
    title="PropDPM: weights proportional to ε",
    citation="Chaudhuri and Courtade, Mean Estimation Under Heterogeneous Privacy, ISIT 2023, Section IV-A",
    shape=proportionally,
)
UNIFORM = Method(
    name="uniform",
    title="UNI: everybody at the smallest ε",
    citation="Chaudhuri and Courtade, Mean Estimation Under Heterogeneous Privacy, ISIT 2023, Section IV-A",
    shape=evenly,
)
