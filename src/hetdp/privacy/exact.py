"""From wished-for weights to integers, the exact check that nobody's ε is exceeded, and what one person can move.

The weights that come in are floats from an optimiser and are not trusted. What leaves is integers, and
`check` decides with integers alone whether they respect everybody: a wrong weight costs accuracy,
never privacy.

Claim. Let W be the integer weight of a level, s the scale of the discrete Laplace noise that covers it, and
T = ⌊Σ W·q / Q⌋ the sum of the codes q ∈ {0 … Q} of all people, in whole weight units. If W/s ≤ ε for
every level then publishing T + noise is ε-DP for every person.

Argument. Replacing one person's value changes their code by at most Q, so Σ W·q by at most W·Q and T by at
most W: if two reals differ by at most the integer W, so do their floors. Discrete Laplace noise has
P(z) ∝ exp(−|z|/s) on all integers, so the probability of any output changes by at most exp(W/s) ≤ exp(ε).
Everything computed from the output afterwards is post-processing. W, s and Q are functions of the public
levels. Levels with ε = ∞ may have weight without noise; levels with ε = 0 have W = 0 and code 0.

A statistic of several numbers has another shape, of which moving a weight W can cost more: then its cost(W) stands for
W (docs/proofs/family.md). The shapes are at the end of this module.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from hetdp.core.domain import Floats, Ints
from hetdp.errors import InputError, PrivacyError

LARGEST_SCALE = 2.0**58
"""Above this the sampler's 64-bit result would saturate noticeably: the plan abstains."""

SMALLEST_SCALE = 2.0**-6
"""A needed scale below this is raised to it: such noise is 0 but for odds of e⁻⁶⁴, and no sampler is asked
for a scale that it might round to none."""

LARGEST_UNIT = 2**31 - 1
"""The weight of one person is at most this many units; `lattice` gives at most 2³⁰."""


@dataclass(frozen=True)
class NoiseTerm:
    """One draw of discrete Laplace noise, added to the sum of the levels first … last − 1.

    The scale is in weight units. A double is an exact rational, and it is taken as that rational.
    """

    scale: float
    first: int
    last: int


def below(epsilon: Floats) -> Floats:
    """Return ε⁻, the double just below each ε: what people are really held to.

    The text "0.1" is read as the nearest double, which lies a hair above 0.1; the double below it does not. Positive
    doubles are in the order of their bits, so the one below has the bits of the integer below. 0 and ∞ stay.
    """
    moved = (epsilon > 0) & (epsilon < np.inf)
    return (epsilon.view(np.int64) - moved).view(np.float64)


def limits(epsilon: Floats, share: float = 1.0) -> Floats:
    """Return what a release may spend of each level: ε⁻, or a share of it, rounded down.

    The double below a product that is rounded to the nearest is not above the exact product. So releases whose shares
    add up to at most 1 spend at most ε⁻ together.
    """
    return below(epsilon) if share == 1 else below(below(epsilon) * share)


def lattice(weight: Floats, people: int, each: int = 1) -> Ints:
    """Return the integer weights W = ⌊w/w_max·2^k⌋ with k = min(30, 61 − ⌈log₂ n⌉) − ⌈log₂ each⌉.

    `each` is what a unit costs, so that no cost is above 2³⁰, and that of n people together not above 2⁶¹.
    """
    largest = float(weight.max())
    if not (largest > 0 and math.isfinite(largest)):
        return np.zeros(weight.size, np.int64)
    k = min(30, 61 - (people - 1).bit_length()) - (each - 1).bit_length()
    return np.floor(weight / largest * 2.0**k).astype(np.int64)


def scale_for(units: Ints, epsilon: Floats, share: float = 1.0) -> float:
    """Return the smallest usable noise scale with W/scale ≤ ε⁻ everywhere: 0 if none is needed, inf if none will do.

    With a `share` it is that share of ε⁻.

    The level that decides is looked for in floats; its scale is an exact quotient, rounded up to a double.
    """
    private = (units > 0) & np.isfinite(epsilon)
    if not private.any():
        return 0.0
    weight, limit = units[private], limits(epsilon[private], share)
    with np.errstate(over="ignore", divide="ignore"):
        ratio = weight / limit
    close = ratio >= ratio.max() * (1 - 2.0**-40)
    return max(SMALLEST_SCALE, *map(_quotient_up, weight[close].tolist(), limit[close].tolist()))


def check_units(units: Ints, count: Ints) -> None:
    """Raise unless the weights are whole numbers so small that no cost that is computed from them can wrap around.

    A cost is at most 2·192 times a weight (three choices each of 64 quantiles), so below 2⁴⁰.
    """
    if units.shape != count.shape or units.dtype != np.int64:
        raise PrivacyError("this plan does not have one whole weight for every level; nothing was released")
    if (units < 0).any() or (units > LARGEST_UNIT).any() or (units * count.astype(float)).sum() > 2.0**61.9:
        raise PrivacyError("the integer weights of this plan do not fit their 62 bits; nothing was released")


def check(units: Ints, epsilon: Floats, count: Ints, noise: tuple[NoiseTerm, ...], share: float = 1.0) -> None:
    """Raise unless W/scale ≤ ε⁻, or a share of it, holds in integers at every level with weight; see the claim above.

    Of a statistic with another cost than W, `units` are the costs.
    """
    if not units.shape == epsilon.shape == count.shape or units.dtype != np.int64 or epsilon.dtype != np.float64:
        raise PrivacyError("this plan does not have one whole weight for every level; nothing was released")
    if not (epsilon >= 0).all():  # NaN too
        raise PrivacyError("this plan has a level that is no epsilon; nothing was released")
    if (units < 0).any() or (units > LARGEST_UNIT).any() or (units * count.astype(float)).sum() > 2.0**61.9:
        raise PrivacyError("the integer weights of this plan do not fit their 62 bits; nothing was released")
    bare = (units > 0) & (epsilon < np.inf)  # private levels with weight that no noise covers yet
    if not 0 < share <= 1:
        raise PrivacyError("this plan has a share of epsilon that is none; nothing was released")
    allowed = limits(epsilon, share)
    end = 0
    for term in noise:
        if not SMALLEST_SCALE <= term.scale <= LARGEST_SCALE:
            raise PrivacyError(f"a noise scale of {term.scale:g} cannot be drawn safely; nothing was released")
        if not end <= term.first < term.last <= units.size:
            raise PrivacyError("the noise terms of this plan overlap or miss its levels; nothing was released")
        end = term.last
        part = slice(term.first, term.last)
        if not respected(units[part][bare[part]], allowed[part][bare[part]], term.scale).all():
            raise PrivacyError("this plan would spend more than somebody's epsilon allows; nothing was released")
        bare[part] = False
    if bare.any():
        raise PrivacyError("this plan gives weight without noise to a private level; nothing was released")


def respected(units: Ints, limit: Floats, scale: float) -> NDArray[np.bool_]:
    """Decide W/scale ≤ limit for weights 0 ≤ W < 2³¹, in 64-bit integers alone.

    Both doubles are exact: limit = m·2^b and scale = M·2^a with whole m, M in [2⁵², 2⁵³). So W/scale ≤ limit says that
    W ≤ M·m·2^(a+b), and as W is whole, W ≤ ⌊M·m/2^s⌋ with s = −a−b. The product has 105 or 106 bits and is at
    least 2¹⁰⁴: for s ≤ 73 the right side is at least 2³¹ and the answer is yes. Otherwise the low 54 bits of the
    product fall away, and what is left of it, ⌊M·m/2⁵⁴⌋ < 2⁵², is put together from halves of 26 and 27 bits.
    """
    fraction, exponent = np.frexp(limit)
    m, M = (fraction * 2.0**53).astype(np.int64), int(math.frexp(scale)[0] * 2.0**53)  # noqa: N806  as in the formula
    s = 106 - exponent.astype(np.int64) - math.frexp(scale)[1]
    half = 2**27 - 1
    middle = (M >> 27) * (m & half) + (M & half) * (m >> 27)  # < 2⁵⁴
    low = (M & half) * (m & half) + ((middle & half) << 27)  # < 2⁵⁵
    high = (M >> 27) * (m >> 27) + (middle >> 27) + (low >> 54)  # ⌊M·m/2⁵⁴⌋
    return np.asarray((m > 0) & ((s <= 73) | (units <= high >> np.minimum(np.maximum(s - 54, 0), 63))))


def check_together(parts: Sequence[tuple[Ints, tuple[NoiseTerm, ...]]], epsilon: Floats) -> None:
    """Raise unless Σ cost/scale ≤ ε⁻ over all releases from the same people, in exact fractions, at every level.

    Each part has the costs of one release at these levels, and its noise. By the basic composition theorem the joint
    loss of a person is the sum. Where a public person's value is used without noise there is nothing to add up.
    """
    limit = below(epsilon)
    for level in np.flatnonzero(np.isfinite(epsilon)).tolist():
        spent = loss(parts, level)
        if spent is None:
            raise PrivacyError("these plans give weight without noise to a private level; nothing was released")
        if spent > Fraction(float(limit[level])):
            raise PrivacyError("these plans would together spend more than somebody allows; nothing was released")


def loss(parts: Sequence[tuple[Ints, tuple[NoiseTerm, ...]]], level: int) -> Fraction | None:
    """Return Σ cost/scale of one person at a level over all releases; None where one uses them without noise."""
    spent = Fraction(0)
    for costs, noise in parts:
        scale = next((term.scale for term in noise if term.first <= level < term.last), None)
        if scale is not None:
            spent += Fraction(int(costs[level])) / Fraction(scale)
        elif costs[level]:
            return None
    return spent


def left_over(costs: Ints, noise: tuple[NoiseTerm, ...], epsilon: Floats) -> Floats:
    """Return ε⁻ − cost/scale at each level, in exact fractions rounded down; 0 where next to nothing is left, or less.

    What a second release may use. `check_together` decides whether the two together are right.
    """
    limit, rest = below(epsilon), np.full(epsilon.size, np.inf)
    for level in np.flatnonzero(np.isfinite(epsilon)).tolist():
        scale = next((term.scale for term in noise if term.first <= level < term.last), None)
        spent = Fraction(int(costs[level])) / Fraction(scale) if scale is not None else Fraction(0)
        left = Fraction(float(limit[level])) - spent
        rest[level] = max(math.nextafter(float(left), 0.0), 0.0) if left > limit[level] * 1e-6 else 0.0
    return rest


def weigh(units: Ints, count: Ints) -> int:
    """Return Σ W·n over the levels, in Python's integers."""
    return sum(map(operator.mul, units.tolist(), count.tolist()))


def _quotient_up(w: int, limit: float) -> float:
    """Return w/limit, rounded up to a double: exact integers decide."""
    up, down = limit.as_integer_ratio()
    try:
        nearest = w * down / up  # Python divides integers with one correct rounding
    except (OverflowError, ZeroDivisionError):
        return math.inf
    numerator, denominator = nearest.as_integer_ratio()
    return nearest if numerator * up >= w * down * denominator else math.nextafter(nearest, math.inf)


# How far one person can move what is released -------------------------------------------------------------------------
#
# A statistic releases one or several noisy numbers, shares of the whole weight. Each shape below says what replacing
# one person of weight W costs (`cost`: the noise of scale s hides it up to ε = cost/s), how large the noise is, and
# what its moment generating function is. The samplers are in `privacy.release`. Privacy rests on `cost` alone; the
# rest predicts.


_HAIR = 1e-9
"""What is added to the logarithm of a moment generating function for the rounding of doubles."""


@dataclass(frozen=True)
class Line:
    """One number: a person moves it by at most W. Discrete Laplace noise, P(z) ∝ exp(−|z|/s)."""

    numbers = 1
    noise = 2.0
    """The variance of the noise of all numbers together, at scale 1."""
    least = 0.0
    """A scale below which the noise would take long to draw."""

    def cost(self, units: Ints) -> Ints:
        """Return W itself."""
        return units

    def log_mgf(self, u: float, scale: float) -> float:  # noqa: ARG002  the lattice only makes it smaller
        """Return ln E exp(λz) at u = λ·scale, or a little more."""
        return -math.log1p(-u * u)


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
