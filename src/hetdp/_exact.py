"""From wished-for weights to integers, and the exact check that nobody's ε is exceeded.

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
"""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ._errors import PrivacyError

LARGEST_SCALE = 2.0**58
"""Above this the sampler's 64-bit result would saturate noticeably: the plan abstains."""

SMALLEST_SCALE = 2.0**-6
"""A needed scale below this is raised to it: such noise is 0 but for odds of e⁻⁶⁴, and no sampler is asked
for a scale that it might round to none."""

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


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

    The text "0.1" is read as the nearest double, which lies a hair above 0.1; the double below it does not.
    """
    return np.where(np.isinf(epsilon), np.inf, np.nextafter(epsilon, 0))


def lattice(weight: Floats, people: int) -> Ints:
    """Return the integer weights W = ⌊w/w_max·2^k⌋ with k = min(30, 61 − ⌈log₂ n⌉): n·W ≤ 2⁶¹ always."""
    largest = float(weight.max())
    if not (largest > 0 and math.isfinite(largest)):
        return np.zeros(weight.size, np.int64)
    k = min(30, 61 - (people - 1).bit_length())
    return np.floor(weight / largest * 2.0**k).astype(np.int64)


def scale_for(units: Ints, epsilon: Floats) -> float:
    """Return the smallest usable noise scale with W/scale ≤ ε⁻ everywhere: 0 if none is needed, inf if none will do.

    The level that decides is looked for in floats; its scale is an exact quotient, rounded up to a double.
    """
    private = (units > 0) & np.isfinite(epsilon)
    if not private.any():
        return 0.0
    weight, limit = units[private], below(epsilon[private])
    with np.errstate(over="ignore", divide="ignore"):
        ratio = weight / limit
    close = ratio >= ratio.max() * (1 - 2.0**-40)
    return max(SMALLEST_SCALE, *map(_quotient_up, weight[close].tolist(), limit[close].tolist()))


def scales_apart(units: Ints, epsilon: Floats) -> list[float]:
    """Return `scale_for` of every level by itself."""
    needed = ((units > 0) & np.isfinite(epsilon)).tolist()
    columns = zip(units.tolist(), below(epsilon).tolist(), needed, strict=True)
    return [max(SMALLEST_SCALE, _quotient_up(w, limit)) if need else 0.0 for w, limit, need in columns]


def check(units: Ints, epsilon: Floats, count: Ints, noise: tuple[NoiseTerm, ...]) -> None:
    """Raise unless W/scale ≤ ε⁻ holds, in integers, at every level with weight; see the claim above."""
    if units.shape != epsilon.shape or units.dtype != np.int64:
        raise PrivacyError("this plan does not have one whole weight for every level; nothing was released")
    if (units < 0).any() or weigh(units, count) >= 2**62:
        raise PrivacyError("the integer weights of this plan do not fit their 62 bits; nothing was released")
    bare = (units > 0) & np.isfinite(epsilon)  # private levels with weight that no noise covers yet
    limits = below(epsilon)
    end = 0
    for term in noise:
        if not SMALLEST_SCALE <= term.scale <= LARGEST_SCALE:
            raise PrivacyError(f"a noise scale of {term.scale:g} cannot be drawn safely; nothing was released")
        if not end <= term.first < term.last <= units.size:
            raise PrivacyError("the noise terms of this plan overlap or miss its levels; nothing was released")
        end = term.last
        part = slice(term.first, term.last)
        private = bare[part].copy()
        if not _respected(units[part][private].tolist(), limits[part][private].tolist(), term.scale):
            raise PrivacyError("this plan would spend more than somebody's epsilon allows; nothing was released")
        bare[part] = False
    if bare.any():
        raise PrivacyError("this plan gives weight without noise to a private level; nothing was released")


def weigh(units: Ints, count: Ints) -> int:
    """Return Σ W·n over the levels, in Python's integers."""
    return sum(map(operator.mul, units.tolist(), count.tolist()))


def _respected(units: list[int], limits: list[float], scale: float) -> bool:
    """Decide W/scale ≤ ε⁻ for all, with both doubles as the ratios of integers that they are, cross-multiplied."""
    up, down = scale.as_integer_ratio()
    ratios = map(float.as_integer_ratio, limits)
    return all(
        w * down * denominator <= up * numerator for w, (numerator, denominator) in zip(units, ratios, strict=True)
    )


def _quotient_up(w: int, limit: float) -> float:
    """Return w/limit, rounded up to a double: exact integers decide."""
    up, down = limit.as_integer_ratio()
    try:
        nearest = w * down / up  # Python divides integers with one correct rounding
    except (OverflowError, ZeroDivisionError):
        return math.inf
    numerator, denominator = nearest.as_integer_ratio()
    return nearest if numerator * up >= w * down * denominator else math.nextafter(nearest, math.inf)
