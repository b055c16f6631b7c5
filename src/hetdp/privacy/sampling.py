"""The exact check for a method that keeps people one by one with a probability each.

Claim. Keep person i with probability p, independently of everything, and publish T + Z, where T =
⌊W·Σ(2q − Q)/(2Q)⌋ over the kept and Z is discrete Laplace noise of scale s. With t = W/s this is ε-DP for person i if
1 + p·(eᵗ − 1) ≤ e^ε.

Argument. Fix the other people and their coins. Let a, b, c be the probability of some output when person i is
kept with value x, kept with value x′, or left out. T moves by at most W between any two of the three, so each
of a, b, c is at most eᵗ times each other. The ratio (p·a + (1 − p)·c)/(p·b + (1 − p)·c) is largest for
b = c and a = eᵗ·b, where it is 1 + p·(eᵗ − 1). Averaging over the others' coins keeps the bound. The divisor of
the estimate is the public Σp, never the number that was really kept: that number would be a second output.

The divisor is where the published mechanism fails: with the realised sample size the loss can exceed ε.
"""

from __future__ import annotations

import decimal
import math
from fractions import Fraction
from functools import lru_cache

import numpy as np

from hetdp.errors import PrivacyError

from .exact import Floats, Ints, NoiseTerm, below, check, scale_for

KEEP_ONE = 2**53
"""Probabilities are whole multiples of 2⁻⁵³: a uniform draw of 53 bits is compared with them."""

LARGEST = 500.0
"""A finite ε above this counts as this: e⁵⁰⁰ is as good as certain, and exp stays within the doubles."""

_MARGIN = 1 - 2.0**-40
_CONTEXT = decimal.Context(prec=400, rounding=decimal.ROUND_HALF_EVEN, Emin=-999999, Emax=999999)


def _allowed(epsilon: Floats) -> Floats:
    return np.where(np.isinf(epsilon), np.inf, np.minimum(below(epsilon), LARGEST))


def sampling_scale(units: Ints, epsilon: Floats) -> float:
    """Return the noise scale at which a person who is surely kept spends the largest ε; 0 if somebody is public."""
    used = units > 0
    if not used.any() or np.isinf(epsilon.max()):
        return 0.0
    return scale_for(units[used][-1:], np.minimum(epsilon[used][-1:], LARGEST))


def keep_for(units: Ints, epsilon: Floats, noise: tuple[NoiseTerm, ...]) -> Ints:
    """Return p = (e^ε − 1)/(eᵗ − 1) in units of 2⁻⁵³, rounded down with a margin for the float functions."""
    if not noise:
        return np.where(np.isinf(epsilon), KEEP_ONE, 0)
    weight, scale = int(units.max()), noise[0].scale
    t = weight / scale
    allowed = _allowed(epsilon)
    surely = allowed > t
    for i in np.flatnonzero(np.abs(allowed - t) <= t * 2.0**-50):  # too near for doubles to tell
        surely[i] = Fraction(weight) <= Fraction(scale) * Fraction(float(allowed[i]))
    ratio = np.exp(np.minimum(allowed - t, 0)) * np.expm1(-allowed) / math.expm1(-t)
    keep = np.floor(np.clip(ratio, 0, 1) * _MARGIN * KEEP_ONE).astype(np.int64)
    return np.where(surely & (units > 0), KEEP_ONE, np.where(units > 0, keep, 0))


def check_sampled(units: Ints, epsilon: Floats, count: Ints, noise: tuple[NoiseTerm, ...], keep: Ints) -> None:
    """Raise unless 1 + p·(eᵗ − 1) ≤ e^(ε⁻) at every level; p = 1 falls back on the exact check of W/scale ≤ ε⁻."""
    if (
        keep.shape != units.shape
        or keep.dtype != np.int64
        or (keep < 0).any()
        or (keep > KEEP_ONE).any()
        or ((keep > 0) & (units != units.max())).any()
    ):
        raise PrivacyError("the sampling probabilities of this plan are not probabilities; nothing was released")
    surely = keep == KEEP_ONE
    check(np.where(surely, units, 0), epsilon, count, noise)
    for w, p, level in zip(units.tolist(), keep.tolist(), _allowed(epsilon).tolist(), strict=True):
        if 0 < p < KEEP_ONE and not (noise and _respected(w, p, level, noise[0].scale)):
            raise PrivacyError(
                "this plan would keep somebody more often than their epsilon allows; nothing was released"
            )


@lru_cache(maxsize=4096)
def _respected(w: int, p: int, level: float, scale: float) -> bool:
    """Decide p·(eᵗ − 1) ≤ e^level − 1 with 400 digits.

    `decimal` rounds exp correctly, so e^x − 1 errs by at most 10⁻³⁹⁹·e^x: less than 10⁻⁷⁰ of it even for the smallest
    double x. The left side must lie below the right one by 10⁻⁶⁰ of itself.
    """
    exact = decimal.Decimal
    t = _CONTEXT.divide(exact(w), exact(scale))
    gain = _CONTEXT.multiply(_CONTEXT.divide(exact(p), exact(KEEP_ONE)), _CONTEXT.subtract(_CONTEXT.exp(t), exact(1)))
    room = _CONTEXT.subtract(_CONTEXT.exp(exact(level)), exact(1))
    return _CONTEXT.multiply(gain, _CONTEXT.add(exact(1), exact("1e-60"))) <= room


def spent_sampled(units: Ints, keep: Ints, noise: tuple[NoiseTerm, ...]) -> Floats:
    """Return what one person at each level spends, ln(1 + p·(eᵗ − 1)), rounded up by a hair."""
    if not noise:
        return np.where(keep > 0, np.inf, 0.0)
    t = int(units.max()) / noise[0].scale
    p = keep / KEEP_ONE
    if t < 30:
        spent = np.log1p(p * math.expm1(t))
    else:
        spent = t + np.log(p + (1 - p) * math.exp(-t), out=np.full(p.shape, -t), where=p > 0)
    return np.where(keep > 0, spent * (1 + 2.0**-50), 0.0)
