"""The plan of a method that keeps people one by one, each with a probability, and its exact check.

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

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import ROUND_HALF_EVEN, Context, Decimal, localcontext
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from hetdp.core.accuracy import Errors, sampling_errors
from hetdp.core.domain import Floats, Ints
from hetdp.core.levels import Levels
from hetdp.core.plan import Plan
from hetdp.errors import PrivacyError
from hetdp.estimators import Shape
from hetdp.statistics import Statistic

from .exact import LARGEST_SCALE, NoiseTerm, below, lattice, scale_for, weigh

KEEP_ONE = 2**53
"""Probabilities are whole multiples of 2⁻⁵³: a uniform draw of 53 bits is compared with them."""

LARGEST = 500.0
"""A finite ε above this counts as this: e⁵⁰⁰ is as good as certain, and exp stays within the doubles."""

_MARGIN = 1 - 2.0**-40
_CONTEXT = Context(prec=400, rounding=ROUND_HALF_EVEN, Emin=-999999, Emax=999999)


@dataclass(frozen=True, eq=False)
class SamplingPlan(Plan):
    """The plan of a plain mean of people who are kept one by one, each with a probability.

    Attributes
    ----------
    keep
        The probability, in units of 2⁻⁵³, with which one person at each level is kept.
    """

    keep: Ints = field(kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.keep.flags.writeable = False

    def check(self) -> None:
        """Raise unless 1 + p·(eᵗ − 1) ≤ e^(ε⁻) at every level; p = 1 falls back on the exact check of W/scale ≤ ε⁻."""
        keep, units = self.keep, self.units
        whole = keep.shape == units.shape and keep.dtype == np.int64
        if not whole or ((keep < 0) | (keep > KEEP_ONE) | ((keep > 0) & (units != units.max()))).any():
            raise PrivacyError("the sampling probabilities of this plan are not probabilities; nothing was released")
        super().check()
        columns = (units.tolist(), keep.tolist(), _allowed(self.levels.epsilon).tolist())
        for w, p, level in zip(*columns, strict=True):
            if 0 < p < KEEP_ONE and not (self.noise and _respected(w, p, level, self.noise[0].scale)):
                raise PrivacyError("this plan would keep somebody more often than allowed; nothing was released")

    @property
    def costs(self) -> Ints:
        """The weights of people who are surely kept; where a coin decides, `check` looks at the probability."""
        return np.where(self.keep == KEEP_ONE, super().costs, 0)

    @cached_property
    def total(self) -> int:
        """The weight of all people who are expected to be kept, in weight units."""
        return weigh(self.keep, self.levels.count) * int(self.units.max()) // KEEP_ONE

    @cached_property
    def spent(self) -> Floats:
        """What one person at each level spends, ln(1 + p·(eᵗ − 1)), rounded up by a hair; never above ε.

        t < 500 errs by less than 2⁻⁴⁴, so x = p·(eᵗ − 1) by less than 2⁻⁴³ of itself, and ln(1 + x) by no larger a
        share, because x/(1 + x) ≤ ln(1 + x).
        """
        if not self.noise:
            return np.where(self.keep > 0, np.inf, 0.0)
        t, p = int(self.units.max()) / self.noise[0].scale, self.keep / KEEP_ONE
        with np.errstate(over="ignore", invalid="ignore"):  # of a plan made by hand t can be large: then ε is the limit
            spent = np.log1p(p * np.expm1(t)) * (1 + 2.0**-43)
        return np.minimum(np.where(self.keep > 0, spent, 0.0), self.levels.epsilon)

    @cached_property
    def person_weight(self) -> Floats:
        """The expected weight of one person at each level; over all people the weights sum to 1."""
        return np.asarray(self.units * (self.keep / KEEP_ONE) / self.total, dtype=np.float64)

    @cached_property
    def errors(self) -> Errors:
        """What the mean squared error is made of, on an interval of length 1."""
        scale = sum(term.scale for term in self.noise) / self.total
        people = self.target == "people"
        return sampling_errors(self.levels, self.keep / KEEP_ONE, scale, self.drift, people=people)


def sampling_plan(
    method: str, levels: Levels, statistic: Statistic, shape: Shape, how: Mapping[str, Any]
) -> SamplingPlan | None:
    """Return the plan that keeps people with the probabilities `shape.weight`; None if the noise could not be drawn.

    `how` are more attributes of the plan, such as the bound on the variance.
    At its noise scale a person who is surely kept spends the largest ε; if somebody is public there is no noise.
    """
    units = lattice((shape.weight > 0).astype(np.float64), levels.active)
    if not units.any():
        return None
    public = np.isinf(levels.epsilon[-1])
    scale = 0.0 if public else scale_for(units[-1:], np.minimum(levels.epsilon[-1:], LARGEST))
    if scale > LARGEST_SCALE:
        return None
    noise = (NoiseTerm(scale, 0, len(levels)),) if scale else ()
    made = (method, levels, statistic, units, noise, None)
    return SamplingPlan(*made, abstains=False, keep=keep_for(units, levels.epsilon, noise), **how)


def _allowed(epsilon: Floats) -> Floats:
    return np.where(np.isinf(epsilon), np.inf, np.minimum(below(epsilon), LARGEST))


def keep_for(units: Ints, epsilon: Floats, noise: tuple[NoiseTerm, ...]) -> Ints:
    """Return p = (e^ε − 1)/(eᵗ − 1) in units of 2⁻⁵³, rounded down with a margin for the float functions.

    The largest ε, for which the noise was chosen, gives p = 1. The check decides whether all this is right.
    """
    if not noise:
        return np.where(np.isinf(epsilon), KEEP_ONE, 0)
    t, allowed = int(units.max()) / noise[0].scale, _allowed(epsilon)
    ratio = np.exp(np.minimum(allowed - t, 0)) * np.expm1(-allowed) / math.expm1(-t)
    keep = np.floor(np.clip(ratio, 0, 1) * _MARGIN * KEEP_ONE).astype(np.int64)
    keep[epsilon >= min(float(epsilon[-1]), LARGEST)] = KEEP_ONE
    return np.where(units > 0, keep, 0)


@lru_cache(maxsize=4096)
def _respected(w: int, p: int, level: float, scale: float) -> bool:
    """Decide p·(eᵗ − 1) ≤ e^level − 1 with 400 digits.

    `decimal` rounds exp correctly, so e^x − 1 errs by at most 10⁻³⁹⁹·e^x: less than 10⁻⁷⁰ of it even for the smallest
    double x. The left side must lie below the right one by 10⁻⁶⁰ of itself.
    """
    with localcontext(_CONTEXT):
        gain = Decimal(p) / KEEP_ONE * ((Decimal(w) / Decimal(scale)).exp() - 1)
        return gain * (1 + Decimal("1e-60")) <= Decimal(level).exp() - 1
