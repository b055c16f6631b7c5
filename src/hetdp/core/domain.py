"""The public interval of the values, and the grid of integer codes on it."""

from __future__ import annotations

import math
import numbers
import sys
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hetdp.errors import InputError

GRID = 2**20
"""Q, the number of grid steps. It is the same for everybody, so tallies merge."""


@dataclass(frozen=True)
class Interval:
    """The public interval [lo, hi] in which every value lies, or is clamped to.

    >>> Interval(0, 250_000).width
    250000.0
    """

    lo: float
    hi: float

    def __post_init__(self) -> None:
        for name in ("lo", "hi"):
            object.__setattr__(self, name, _finite(getattr(self, name)))
        if not self.lo < self.hi:
            raise InputError(f"the lower bound must be below the upper one (got {self.lo:g} and {self.hi:g})")
        if math.isinf(self.width):
            raise InputError(f"bounds are too far apart for floating point (got {self.lo:g} and {self.hi:g})")

    @classmethod
    def of(cls, bounds: Any) -> Interval:
        """Return the interval of a pair (lo, hi), or the interval itself."""
        if isinstance(bounds, Interval):
            return bounds
        if isinstance(bounds, str) or not hasattr(bounds, "__len__") or len(bounds) != 2:
            raise InputError(f"bounds must be a pair of numbers (lo, hi) (got {bounds!r}); they are public")
        return cls(bounds[0], bounds[1])

    def ordinary(self) -> Interval:
        """Return the interval, or raise if mean squared errors on it, which reports show, are no ordinary doubles."""
        if not 1e-120 <= self.width <= 1e120:
            far = "far apart" if self.width > 1 else "close together"
            raise InputError(
                f"bounds are too {far} for mean squared errors (got {self.lo:g} and {self.hi:g}); use another unit"
            )
        return self

    def __str__(self) -> str:
        return f"[{self.lo:,.10g}, {self.hi:,.10g}]"

    @property
    def width(self) -> float:
        """The length hi − lo."""
        return self.hi - self.lo

    @property
    def mid(self) -> float:
        """The midpoint: what a missing value counts as, and the answer that uses no data."""
        return self.at(Fraction(1, 2))

    def codes(
        self, values: NDArray[Any], out: NDArray[np.float64], mask: NDArray[np.bool_] | None = None
    ) -> NDArray[np.float64]:
        """Write the grid code of every value into `out` and return it: floor((clip(x) − lo)/(hi − lo)·Q + ½).

        `mask` is room to work in.

        Claim: the code of a person is a whole number in {0 … Q} and depends on that person's value alone,
        for any value at all: NaN counts as the midpoint, ±inf and everything outside as the nearer bound.

        Argument: every step below works element by element. After clipping, lo ≤ x ≤ hi, so by the
        monotony of rounding 0 ≤ fl(x − lo) ≤ fl(hi − lo) = width and the quotient is in [0, 1];
        multiplying by Q = 2²⁰ is exact, so the last line is at most floor(Q + ½) = Q. NaN passes through all
        of these (numpy's clip keeps it) and is replaced explicitly. Nothing is cast to an integer, so nothing
        can raise, warn or wrap. The codes stay doubles: sums of them are exact up to 2⁵³, see `tally.groupby`.

        Every engine computes this formula with the same operations in the same order.
        """
        with np.errstate(all="ignore"):  # no value may warn: a longdouble can overflow on its way to a double
            if values.dtype != np.float64:
                np.copyto(out, values, casting="unsafe")  # clipping float32 would clip with float32 bounds
                values = out
            np.clip(values, self.lo, self.hi, out=out)
            if self.lo:  # x − 0 is x
                np.subtract(out, self.lo, out=out)
            np.divide(out, self.width, out=out)
            np.multiply(out, GRID, out=out)
            np.add(out, 0.5, out=out)
            np.floor(out, out=out)
            np.copyto(out, GRID // 2, where=np.isnan(out, out=mask))
        return out

    @staticmethod
    def average(total: Any, rows: Any) -> Any:
        """Return the average of a person's codes, rounded to the nearest integer, halves up; all in integers."""
        return (2 * total + rows) // (2 * rows)

    def at(self, fraction: Fraction) -> float:
        """Return lo + (hi − lo)·fraction, computed exactly and turned into a double once.

        The result saturates at the largest double: a far draw of the noise on a very wide interval
        must not raise.
        """
        exact = Fraction(self.lo) + (Fraction(self.hi) - Fraction(self.lo)) * fraction
        try:
            return float(exact)
        except OverflowError:
            return sys.float_info.max if exact > 0 else -sys.float_info.max

    def clamp(self, x: float) -> float:
        """Return the point of the interval nearest to x."""
        return min(max(x, self.lo), self.hi)


def _finite(bound: Any) -> float:
    if isinstance(bound, (bool, np.bool_)) or not isinstance(bound, numbers.Real):
        raise InputError(f"a bound must be a number (got {bound!r}); text is not read as one")
    try:
        value = float(bound) + 0.0  # −0.0 and 0.0 are the same bound
    except OverflowError:
        value = math.inf
    if not math.isfinite(value):
        raise InputError(f"a bound must be finite (got {value:g}); bounds are public and never taken from the data")
    return value
