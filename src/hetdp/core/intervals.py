"""Guaranteed intervals: which means and shares the noisy numbers of a release allow. Nothing here bears on privacy.

Everything is on the unit interval. A release is Σ w·y plus noise, where the codes y of people are independent numbers
in [0, 1]. A candidate p for their mean is rejected if what was released is too far out under *every* distribution with
mean p; what is not rejected is the interval. docs/proofs/intervals.md has the proofs.

The scheme is always the same. For λ > 0 an exponent B(λ, p) bounds ln P(release ≥ at | mean p), so p is rejected where
B(λ, p) ≤ ln miss. The worst case over the distributions of mean p grows with p, so everything below a rejected p is
rejected as well; any λ is valid, so an inexact search is too. The upper end is the lower end of 1 − y.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hetdp.estimators import METHODS
from hetdp.privacy.exact import Geometry

from .domain import GRID, Floats
from .levels import shift

if TYPE_CHECKING:
    from .plan import Plan

Exponent = Callable[[float, float], float]

_MANY = 1024
"""From so many levels on, weights are merged into so many."""
_STEEPEST = 500.0
"""The largest λ·w: e^500 is still a double."""
_HAIR = 2.0**-40
"""What an end is moved outwards for the doubles of this module; the grid of codes is coarser by far."""


# The noise ----------------------------------------------------------------------------------------------------------


def log_tail_constant(kappa: float) -> float:
    """Return ln C(κ), C(κ) = (2κ)^κ·(1 + κ)^−(1 + κ) = sup over v of e^{λv}·P(Z ≥ v), Z Laplace of scale κ/λ, κ ≤ 1.

    So P(S + Z ≥ g) = E tail(g − S) ≤ C·e^{−λg}·E e^{λS} for every S that is independent of Z; the moment generating
    function 1/(1 − κ²) in place of C would be larger. At κ = 1 it is ½: the exact tail of Laplace noise.

    >>> round(math.exp(log_tail_constant(1.0)), 12), log_tail_constant(0.0)
    (0.5, 0.0)
    """
    return kappa * math.log(2 * kappa) - (1 + kappa) * math.log1p(kappa) if kappa > 0 else 0.0


def log_laplace(lam: float, scales: Sequence[float]) -> float:
    """Return ln of a factor that bounds the tail of several Laplace noises: C of the widest, the others' moments.

    Only one noise can be treated by its tail; the others join the sum S of `log_tail_constant`.
    """
    if not scales:
        return 0.0
    widest, *others = sorted(scales, reverse=True)
    return log_tail_constant(lam * widest) - sum(math.log1p(-((lam * eta) ** 2)) for eta in others)


def clamped_log_mgf(kappa: float) -> float:
    """Return ln of a bound on E e^{λ·max(Z, −d)}, Z Laplace of scale κ/λ, κ < 1, for every d ≥ 0.

    It is 1/(1 − κ²) + ½e^{−d(1/η + λ)}·κ/(1 + κ): the mass below −d moves up to it.
    """
    return math.log(1 / (1 - kappa * kappa) + kappa / (1 + kappa) / 2)


# The sum ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class NoisySum:
    """Σ w·y of independent y in [0, 1] plus symmetric noise.

    Attributes
    ----------
    weight, count
        The weight of one person at each level, and how many people have it. Weights of 0 matter where means differ.
    log_noise
        λ ↦ ln of c(λ) with P(noise ≥ v) ≤ c(λ)·e^{−λv} for all v, or with E e^{λ·noise} ≤ c(λ).
    most
        The largest λ for which that holds.
    """

    weight: Floats
    count: Floats
    log_noise: Callable[[float], float]
    most: float

    @classmethod
    def with_laplace(cls, weight: Floats, count: NDArray[Any], scales: Sequence[float]) -> NoisySum:
        """Return the sum with one or several Laplace noises."""
        hair = 1.0 if len(scales) < 2 else 1 - 1e-9  # moments of several of one scale have no value at 1
        most = hair / max(scales) if scales else math.inf
        return cls(weight, count.astype(np.float64), lambda lam: log_laplace(lam, scales), most)

    @cached_property
    def total(self) -> float:
        """The weight of all people."""
        return float(self.weight @ self.count)

    @cached_property
    def steepest(self) -> float:
        """The largest λ that is tried."""
        return min(self.most, _STEEPEST / float(self.weight.max()))

    @cached_property
    def merged(self) -> tuple[Floats, Floats]:
        """The weights; of many levels only some: each weight is split between its neighbours on a geometric grid.

        The split keeps the number of people and Σ w. What is summed over people is convex in w (a cumulant generating
        function in λw), whatever their mean, so this can only raise it, by a share of about 10⁻⁴.
        """
        used = self.weight > 0
        if int(used.sum()) <= _MANY:
            return self.weight, self.count
        weight, count = self.weight[used], self.count[used]
        grid = np.geomspace(weight.min(), weight.max(), _MANY)
        grid[0], grid[-1] = weight.min(), weight.max()
        place = np.clip(np.searchsorted(grid, weight) - 1, 0, _MANY - 2)
        upper = (weight - grid[place]) / (grid[place + 1] - grid[place])
        split = np.bincount(place, count * (1 - upper), _MANY) + np.bincount(place + 1, count * upper, _MANY)
        return np.append(grid, 0.0), np.append(split, self.count[~used].sum())

    def bernoulli(self, lam: float, p: float) -> float:
        """Return Σ ln(1 + p·(e^{λw} − 1)) + ln c: of all laws with mean p the two ends have the largest moments."""
        weight, count = self.merged
        return float(count @ np.log1p(p * np.expm1(lam * weight))) + self.log_noise(lam)

    def two_point(self, lam: float, p: float, variance: float) -> float:
        """Return the same for laws with at most this variance: the worst is {p − V/(1 − p), 1}, V ≤ p(1 − p)."""
        if variance >= p * (1 - p):
            return self.bernoulli(lam, p)
        weight, count = self.merged
        jump = (1 - p) + variance / (1 - p)  # from the lower of the two points to 1
        chance = variance / (variance + (1 - p) ** 2)
        moved = float(count @ np.log1p(chance * np.expm1(lam * jump * weight)))
        return lam * (1 - jump) * self.total + moved + self.log_noise(lam)

    def drifting(self, lam: float, p: float, drift: float) -> float:
        """Return the same if the means of levels differ by at most `drift` and p is the mean of them all.

        The exponent is concave in the means of the levels, so its tangent at p bounds it. With g its gradient,
        G = Σ g and π the share of a level, Σ g·d for Σ π·d = 0 and max d − min d ≤ D is at most D·Σ(g − G·π)₊.
        """
        weight, count = self.merged
        rise = np.expm1(lam * weight)
        gradient = count * rise / (1 + p * rise)
        apart = gradient - gradient.sum() * (count / count.sum())
        tangent = drift * float(np.maximum(apart, 0).sum())
        return float(count @ np.log1p(p * rise)) + tangent + self.log_noise(lam)

    def lower_end(self, at: float, miss: float, *, variance: float = 0.25, drift: float = 0.0) -> float:
        """Return an end below which every mean is rejected: it lies above the true mean with probability ≤ `miss`."""
        if drift:
            return self._search(lambda lam, p: self.drifting(lam, p, drift) - lam * at, at, miss)
        if variance < 0.25:
            return self._search(lambda lam, p: self.two_point(lam, p, variance) - lam * at, at, miss)
        return self._search(lambda lam, p: self.bernoulli(lam, p) - lam * at, at, miss)

    def upper_end(self, at: float, miss: float, *, variance: float = 0.25, drift: float = 0.0) -> float:
        """Return an end above which every mean is rejected: the lower end of 1 − y, whose weighted sum is Σw − at."""
        return 1 - self.lower_end(self.total - at, miss, variance=variance, drift=drift)

    def _search(self, exponent: Exponent, at: float, miss: float) -> float:
        centre = at / self.total
        near = centre - self.spread(miss)
        starts = [p for p in (near, centre / 2, centre / 10, centre / 100, centre / 10_000, 0.5) if 0 < p < 1]
        return largest_rejected(exponent, self.steepest, math.log(miss), starts)

    def spread(self, miss: float) -> float:
        """Return r = min over λ of (ln(1/miss) + λ²·Σw²/8 + ln c)/λ: Hoeffding's bound on one side."""
        squares = float(self.count @ self.weight**2)
        return hoeffding(squares, self.log_noise, self.most, miss)


def hoeffding(squares: float, log_noise: Callable[[float], float], most: float, miss: float) -> float:
    """Return the r beyond which the sum strays from its mean, to one side, with probability at most `miss`.

    Each person moves it within a range, `squares` is the sum of the squared ranges; any λ gives a valid r.
    """
    log = math.log(1 / miss)
    top = min(most, math.sqrt(8 * log / squares) if squares else math.inf)  # noise only lowers the best λ
    if math.isinf(top):
        return 0.0

    def bound(lam: float) -> float:
        return (log + lam * lam * squares / 8 + log_noise(lam)) / lam

    return bound(_best(bound, top, 14.0))  # smaller λ are no use, and moments at next to 0 are no doubles


def largest_rejected(exponent: Exponent, most: float, goal: float, starts: Sequence[float], top: float = 1.0) -> float:
    """Return the largest p ≤ top found with exponent(λ, p) ≤ goal for some λ ≤ most; 0 if there is none.

    By turns λ is the best for p, and p the root for λ. Roots only rise, fast as Newton's: for a fixed λ the exponent
    lies above its minimum over λ and touches it at the last p. Only from a p below the end does it begin to rise, so
    smaller ones are tried until one does.
    """
    from scipy.optimize import brentq

    best = 0.0
    for first in starts:
        p = first
        for _ in range(20):
            lam = _best(lambda x: exponent(x, p), most)  # noqa: B023  used at once
            root = 0.0
            if exponent(lam, top) <= goal:
                return top
            if exponent(lam, 0.0) <= goal:
                root = float(brentq(lambda x: exponent(lam, x) - goal, 0.0, top, xtol=1e-14))  # noqa: B023  as above
            if root <= best + 1e-6 * abs(first - root):
                break
            best = p = root
        if best > 0:
            break
    return max(best - 1e-13, 0.0)


def _best(function: Callable[[float], float], most: float, reach: float = 30.0) -> float:
    """Return about the λ in [most·e^−reach, most] with the smallest value; it is looked for on a logarithmic scale."""
    from scipy.optimize import minimize_scalar

    top = math.log(most)
    found = minimize_scalar(
        lambda x: function(math.exp(min(x, top))), bounds=(top - reach, top), method="bounded", options={"xatol": 1e-4}
    )
    inside = min(math.exp(float(found.x)), most)
    return most if function(most) < float(found.fun) else inside


# One number: a mean, a proportion, a sum, a count -------------------------------------------------------------------


@lru_cache(maxsize=64)  # a report asks several times for the same one
def mean_interval(plan: Plan, at: float, level: float, square: float | None = None) -> tuple[float, float]:
    """Return the interval of what a plan of one number estimates, from the unclamped estimate, all on [0, 1].

    Codes differ from values by a grid step at most (half of one, or a whole one where rows were averaged), and not at
    all where people are only counted. Each floored sum is up to a weight unit too small, and discrete Laplace noise is
    stochastically at most a unit larger than Laplace noise. What lies beyond everything that data can give is taken as
    the end: the interval could only be narrower, down to a point, which nobody should read as certainty.
    """
    miss, terms, offset = (1 - level) / 2, len(plan.noise), (1 - plan.shrink) / 2
    grid = 1 / GRID if plan.statistic.sums else 0.0
    at = min(max(at, offset), 1 - offset)
    low, high = at - terms / plan.total - _HAIR, at + (2 * terms + 1) / plan.total + _HAIR
    if _is_symmetric(plan):
        r = symmetric_radius(plan, miss)
        return max(low - r - grid, 0.0), min(high + r + grid, 1.0)
    found = NoisySum.with_laplace(plan.person_weight, plan.levels.count, plan.errors.scales)
    if plan.squares is not None and square is not None and not plan.drift:  # it needs one mean for all levels
        top = largest_square(plan.squares, square, (1 - level) / 10)
        lower, upper = learned_ends(found, low - offset, high - offset, 0.9 * miss, top)
        return max(lower - grid, 0.0), min(upper + grid, 1.0)
    known = {"variance": (math.sqrt(plan.variance_bound) + grid) ** 2, "drift": plan.drift}  # of the codes
    lower = found.lower_end(low - offset, miss, **known)
    upper = found.upper_end(high - offset, miss, **known)
    return max(lower - grid, 0.0), min(upper + grid, 1.0)


def largest_square(plan: Plan, at: float, miss: float) -> float:
    """Return an upper end for E(2y − 1)², from its noisy mean; a code of a square is up to a grid step too small."""
    found = NoisySum.with_laplace(plan.person_weight, plan.levels.count, plan.errors.scales)
    units = (2 * len(plan.noise) + 1) / plan.total + _HAIR
    return min(found.upper_end(min(max(at, 0.0), 1.0) + units, miss) + 1 / GRID, 1.0)


def learned_ends(found: NoisySum, low: float, high: float, miss: float, square: float) -> tuple[float, float]:
    """Return both ends if E(2y − 1)² ≤ square, so that a mean of p has the variance square/4 − (p − ½)² at most.

    By turns: the means that are not rejected bound the variance, and the variance bounds the means. The lower end
    concerns means up to the estimate alone, the upper one those above it.
    """

    def closer(end: Callable[..., float], at: float, centre: float) -> float:
        last = end(at, miss)
        for _ in range(4):
            ends = sorted((min(max(last, 0.0), 1.0), centre))
            nearest = min(max(0.5, ends[0]), ends[1])  # the mean with the largest variance
            last = end(at, miss, variance=max(square / 4 - (nearest - 0.5) ** 2, 1e-12))
        return last

    centres = [min(max(x / found.total, 0.0), 1.0) for x in (low, high)]
    return closer(found.lower_end, low, centres[0]), closer(found.upper_end, high, centres[1])


def predicted_half_width(plan: Plan, level: float) -> float:
    """Return half the width of the interval at the mean where it is widest, on [0, 1]; no value is needed.

    That is the middle. Under a bound V on the variance it is wider towards the ends, as far as V can be reached there:
    between the middle and the p with p(1 − p) = V three means are tried. Where answers are drawn to the middle, the
    interval reaches to the answer and is wider at an end: means there are tried too. A variance that is to be learned
    is the largest one here, and the interval a little wider than without learning, which takes a part of the chance to
    miss.
    """
    if plan.abstains:
        return 0.5
    least = (1 - math.sqrt(max(1 - 4 * plan.variance_bound, 0.0))) / 2
    one = _is_symmetric(plan) or plan.drift or plan.variance_bound >= 0.25
    tried = [0.5] if one else [0.5, (0.5 + least) / 2, least]
    tried += [0.0, 0.02, 0.05, 0.1, 0.25] if plan.shrink != 1 else []
    square, answers = None if plan.squares is None else 1.0, [plan.shrink * (p - 0.5) + 0.5 for p in tried]
    ends = ((at, *mean_interval(plan, at, level, square)) for at in answers)
    found = ((min(at, low), max(at, high)) for at, low, high in ends)
    return max((high - low) / 2 for low, high in found)


def _is_symmetric(plan: Plan) -> bool:
    """Say whether Hoeffding's bound is taken: for exactly these people, and where it is left to coins who counts."""
    return METHODS[plan.method].needs_records or plan.statistic.whole or plan.target == "people"


def symmetric_radius(plan: Plan, miss: float) -> float:
    """Return r on [0, 1]: the estimate is more than r above its target, or below it, with probability ≤ `miss` each.

    Hoeffding's bound, plus what shrinking (half of what is missing to 1) and different means of levels (D·δ) can shift
    the expectation. The mean of exactly these people has a weight of 1/n for each. It also differs from the weighted
    one by δ at most whatever the values are, which leaves the noise alone.
    """
    scales, shrink = plan.errors.scales, plan.shrink
    found = NoisySum.with_laplace(plan.person_weight, plan.levels.count, scales)
    delta, pulled = shrink * shift(plan.levels.count, plan.person_weight), (1 - shrink) / 2
    sampled, people = METHODS[plan.method].needs_records, plan.statistic.whole or plan.target == "people"
    squares = float(found.count @ (found.weight - people / plan.n) ** 2)
    r = hoeffding(plan.errors.ranges if sampled else squares, found.log_noise, found.most, miss) + plan.drift * delta
    if people and not sampled:
        r = min(r, hoeffding(0.0, found.log_noise, found.most, miss) + delta)
    return r + pulled


# Shares of cells, and means of those in a cell: noise that adds up to 0 ---------------------------------------------


@lru_cache(maxsize=64)
def share_intervals(
    plan: Plan, numbers: tuple[float, ...], level: float, together: int = 1
) -> tuple[tuple[float, float], ...]:
    """Return an interval for the share of each cell; so many hold `together`.

    Whether a person is in a cell is 0 or 1, so the noisy share is a weighted sum as above, with the noise of a cell.
    Its floors are two, of which one is subtracted. Ends rise with the share: of many cells they are looked up at shares
    that lie a little further out.
    """
    if plan.abstains:  # nothing is known of any share
        return ((0.0, 1.0),) * len(numbers)
    miss, found = (1 - level) / 2 / together, _cells(plan)
    units = 1 / plan.total + _HAIR
    shares = np.clip(np.asarray(numbers, dtype=np.float64), 0.0, 1.0)
    if shares.size <= _MANY // 8:
        return tuple((found.lower_end(x - units, miss), found.upper_end(x + units, miss)) for x in shares.tolist())
    grid = np.linspace(shares.min(), shares.max(), _MANY // 8)
    lower = np.array([found.lower_end(x - units, miss) for x in grid.tolist()])
    upper = np.array([found.upper_end(x + units, miss) for x in grid.tolist()])
    below = np.clip(np.searchsorted(grid, shares, side="right") - 1, 0, grid.size - 1)
    above = np.clip(np.searchsorted(grid, shares), 0, grid.size - 1)
    return tuple(zip(lower[below].tolist(), upper[above].tolist(), strict=True))


def _cells(plan: Plan, times: float = 1.0) -> NoisySum:
    """Return the weighted sum of one cell, with the moments of `times` its noise."""
    weight, count = plan.person_weight, plan.levels.count.astype(np.float64)
    if not plan.noise:
        return NoisySum(weight, count, lambda lam: 0.0, math.inf)  # noqa: ARG005  there is no noise
    eta, table = times * plan.errors.scales[0], _moments(plan.statistic.geometry, plan.noise[0].scale)
    return NoisySum(weight, count, lambda lam: float(np.interp(lam * eta, _KAPPA, table)), float(_KAPPA[-1]) / eta)


_KAPPA = np.append(np.linspace(0, 0.9, 181), 1 - np.geomspace(0.0995, 1e-4, 80))
"""Where factors of noise are tabulated: their logarithms are convex, so between two points they lie below the line."""


@lru_cache(maxsize=16)
def _moments(shape: Geometry, scale: float) -> Floats:
    return np.array([0.0, *(shape.log_mgf(u, scale) for u in _KAPPA[1:].tolist())])


def answered_interval(plan: Plan, upper: float, lower: float, level: float) -> tuple[float, float]:
    """Return the interval of the mean of those in a cell, from the noisy shares of its upper and lower half.

    Somebody with the value x, on [0, 1], puts x into the upper and 1 − x into the lower half of their cell; whoever is
    elsewhere puts nothing there. At the true mean m what is released has (1 − m)·upper − m·lower = Σ w·Y + noise, with
    Y = x − m in the cell, else 0, of mean 0. With r⁺ an upper bound on the share of the cell, at a tenth of the chance
    to miss, E e^{λwY} ≤ 1 − r⁺ + r⁺·E e^{λw(B − m)}, B a coin of chance m. The rest of the chance is for the two ends.
    It needs one mean and one share for all levels: where these may differ nothing is excluded.
    """
    if upper + lower <= 0 or plan.abstains or plan.drift or plan.target == "people":
        return 0.0, 1.0
    alpha, one, three = 1 - level, _cells(plan), plan.statistic.geometry.numbers == 3
    pair = one if three else _cells(plan, 2.0)  # two of three cells have the noise of the third; Cauchy and Schwarz
    share = pair.upper_end(min(upper + lower, 1.0) + 1 / plan.total, alpha / 10)
    low, high = 0.0, 1.0
    for _ in range(2):  # the second time the noise is that of the means which are left
        noisy = _halves(plan, one, min(low, 1 - high)) if three and plan.noise else one
        half = _Half(noisy, share)
        ends = [half.lower_end(a, b, 2 / plan.total + _HAIR, 0.45 * alpha) for a, b in ((upper, lower), (lower, upper))]
        low, high = ends[0], 1 - ends[1]
    return max(low - 1 / GRID, 0.0), min(high + 1 / GRID, 1.0)


@dataclass(frozen=True, eq=False)
class _Half:
    """The mean of a cell with a share of people of at most `share`: the weights, and the noise of (1 − m)·z₁ − m·z₂."""

    sum: NoisySum
    share: float

    def exponent(self, lam: float, m: float) -> float:
        """Return Σ ρ·ψ(m) + ln c, ψ(m) = ln(1 + m(e^x − 1)) − x·m, x = λw.

        ln(1 − r + r·e^ψ) is convex in ψ, which is between 0 and its largest value ψ*, so it is at most ρ·ψ with the
        slope ρ = ln(1 − r + r·e^ψ*)/ψ*. This is concave in m: what a λ does not reject is an interval.
        """
        weight, count = self.sum.merged
        x = lam * weight
        rise = np.expm1(x)
        with np.errstate(divide="ignore", invalid="ignore"):
            top = np.where(x < 0.01, x * x / 8, np.log(rise / x) - 1 + x / rise)  # ψ ≤ x²/8 is Hoeffding's lemma
            slope = np.where(top > 1e-12, np.log1p(self.share * np.expm1(top)) / top, self.share * (1 + 1e-12))
        return float(count @ (slope * (np.log1p(m * rise) - x * m))) + self.sum.log_noise(lam)

    def lower_end(self, upper: float, lower: float, slack: float, miss: float) -> float:
        """Return an end below which every mean is rejected; a half below 0 is taken as 0, which only widens."""
        upper, lower = upper - slack, max(lower, 0.0)
        if upper <= 0:
            return 0.0
        whole = upper + lower
        top = upper / whole
        near = top - self.sum.spread(miss) / whole
        starts = [m for m in (near, 0.9 * top, top / 2, top / 10, top / 100) if 0 < m < top]
        return largest_rejected(
            lambda lam, m: self.exponent(lam, m) - lam * (upper - m * whole),
            self.sum.steepest,
            math.log(miss),
            starts,
            top * (1 - 1e-9),
        )


def _halves(plan: Plan, one: NoisySum, least: float) -> NoisySum:
    """Return the sum with λ ↦ ln sup over v of e^{λv}·P((1 − m)·z₁ − m·z₂ ≥ v), for every m in [least, 1 − least].

    The discrete law is at most e^{2/s} times the continuous one, moved by at most half a unit; where s is so small that
    this matters, the moments of a cell, which are never below those of the mixture, may be smaller.
    """
    scale, eta = plan.noise[0].scale, plan.errors.scales[0]
    table = _halves_table(math.floor(20 * min(least, 0.45)) / 20)

    def log_noise(lam: float) -> float:
        found = float(np.interp(lam * eta, _KAPPA, table)) + 2 / scale
        return found if scale > 2000 else min(found, one.log_noise(lam))

    return NoisySum(one.weight, one.count, log_noise, one.most)


@lru_cache(maxsize=16)
def _halves_table(m: float) -> Floats:
    """Return the logarithms of that supremum at scale 1, for the continuous law of three cells and [m, 1 − m].

    The tail rises with |1 − 2m| for v ≥ 0 and falls with it for v < 0. So above 0 it is that of m itself, a signed
    mixture of Laplace laws of the scales 1, m and 1 − m, and below 0 that of ½, where it is 1 − (4e^v − e^{2v})/6.
    Between two points of a grid the factor at the upper one and the tail at the lower one are taken.
    """
    v = np.append(np.arange(0.0, 30.0, 0.02), np.geomspace(30.0, 30_000.0, 2000))
    tail = np.exp(-v) * (0.5 + v / 6)
    if m:
        c = (1.0, m, 1 - m)
        part = [(1 - (1 - m + m * m) / (3 * x * x)) / math.prod(1 - (y / x) ** 2 for y in c if y != x) for x in c]
        tail = np.sum([a * np.exp(-v / x) for a, x in zip(part, c, strict=True)], axis=0) / 2
    with np.errstate(divide="ignore"):
        logs = np.log(np.maximum(tail, 0.0))
    return np.array([max(_below_zero(k), float(np.max(k * v[1:] + logs[:-1]))) for k in _KAPPA.tolist()])


def _below_zero(kappa: float) -> float:
    """Return ln of the largest t^κ·(1 − 2t/3 + t²/6), 0 < t ≤ 1: where its derivative is 0, if it is there."""
    square = 4 / 9 - (2 / 9) * kappa * (kappa + 2)
    if kappa == 0 or square < 0:
        return 0.0 if kappa == 0 else math.log(0.5)
    t = ((2 / 3) * (kappa + 1) - math.sqrt(square)) / ((kappa + 2) / 3)
    return kappa * math.log(t) + math.log(1 - 2 * t / 3 + t * t / 6) if t < 1 else math.log(0.5)
