"""Levels: how many people chose which ε, the public half of the data; and what an estimator is: a rule from levels.

Up to `LIMIT` distinct levels are kept exactly. Above that every ε is rounded *down* to 12 significant bits, which can
only protect people more and costs at most 0.1 % in mean squared error. Whether levels are rounded depends on the set of
levels alone, and rounded levels stay rounded, so putting people together is exact and does not depend on the order.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from hetdp.errors import PEOPLE, InputError

from .domain import GRID, Floats, Ints, epsilon_of

LIMIT = 65_536  # distinct levels that are kept exactly
BITS = 12  # the significant bits that rounding keeps of the 53 that a double has

# A statistic with more numbers than this is wide: of it fewer levels are kept, and rounding keeps fewer bits.
WIDE = 64
WIDE_LIMIT = 1_024
WIDE_BITS = 8
MOST_PEOPLE = (2**63 - 1) // GRID  # with more people a sum of codes could pass 63 bits

# Rounding turns an ε below TINY into 0: every engine can do so, while subnormal doubles differ between them.
TINY = 2.0**-1000

# From here on `split(…)·ε` could overflow, and an engine leaves ε as it is.
HUGE = 2.0**900


def split(bits: int) -> float:
    """Return Veltkamp's factor: with g = split·ε, g − (g − ε) is ε rounded to the nearest double of so many bits.

    So an engine rounds that cannot see bits. If the result is above ε, it times 1 − 2^−bits is a double that
    `round_down` takes to where it takes ε.
    """
    return 2.0 ** (53 - bits) + 1


def round_down(epsilon: Floats, bits: int = BITS) -> Floats:
    """Return ε cut to 12 significant bits: never up, less than one part in 2¹¹ down; below `TINY` to 0; inf stays.

    The bit pattern of a positive double is its exponent followed by its fraction, so clearing low bits
    rounds towards zero exactly, at powers of two as everywhere.
    """
    return np.where(epsilon < TINY, 0.0, (epsilon.view(np.int64) >> 53 - bits << 53 - bits).view(np.float64))


def collapse(epsilon: Floats, sums: Ints, *, rounded: bool = False, wide: bool = False) -> tuple[Floats, Ints, bool]:
    """Return one row a level, ascending, the sums of its rows, and whether levels are rounded: always, or if too many.

    The first column of `sums` is the number of people. It is added up in doubles before anything else: that is exact up
    to 2⁵³, so a total above `MOST_PEOPLE` cannot hide, and below it no column of counts or codes can overflow.
    """
    if sums[:, 0].sum(dtype=np.float64) > MOST_PEOPLE:
        raise InputError(f"at most {MOST_PEOPLE:,} people fit in one plan or tally; split them into parts")
    epsilon = round_down(epsilon, WIDE_BITS if wide else BITS) if rounded else epsilon + 0.0  # −0.0 is 0
    if not (epsilon[1:] > epsilon[:-1]).all():
        order = np.argsort(epsilon, kind="stable")  # fast where most rows ascend
        epsilon, sums = epsilon[order], sums[order]
        first = np.flatnonzero(np.concatenate([[True], epsilon[1:] != epsilon[:-1]]))
        epsilon, sums = epsilon[first], np.add.reduceat(sums, first)
    if not rounded and epsilon.size > (WIDE_LIMIT if wide else LIMIT):
        return collapse(epsilon, sums, rounded=True, wide=wide)
    return epsilon, sums, rounded


class Levels:
    """The distinct ε, ascending, with the number of people at each; no values, no sums.

    Everything that plans takes `Levels`, so a plan cannot depend on anybody's value.

    >>> Levels({0.1: 700, float("inf"): 300})
    Levels({0.1: 700, inf: 300})
    >>> Levels.of([0.5, 0.1, 0.5]).n
    3

    Attributes
    ----------
    epsilon, count
        Arrays of one length: the levels and the people at each.
    rounded
        Whether there were so many levels that each was rounded down to 12 significant bits.
    wide
        Whether they belong to a statistic of many numbers, for which more are rounded, and to 8 bits.
    names
        Names for some of the levels, for display alone.
    """

    __slots__ = ("count", "epsilon", "names", "rounded", "wide")

    epsilon: Floats
    count: Ints
    rounded: bool
    wide: bool
    names: Mapping[float, str]

    def __init__(self, counts: Mapping[Any, int], names: Mapping[float, str] | None = None) -> None:
        pairs = [(epsilon_of(level), _people(level, count)) for level, count in counts.items()]
        kept = [(level, count) for level, count in pairs if count]
        epsilon = np.array([level for level, _ in kept], dtype=np.float64)
        self._fill(epsilon, np.array([count for _, count in kept], dtype=np.int64), names, rounded=False, wide=False)

    @classmethod
    def of(cls, epsilons: Any) -> Levels:
        """Return the levels of a sequence with one ε a person."""
        array = epsilon_array(epsilons)
        refuse_bad_epsilon(array)
        return cls.from_arrays(*np.unique(array, return_counts=True))

    @classmethod
    def from_arrays(
        cls,
        epsilon: Floats,
        count: Ints,
        *,
        rounded: bool = False,
        wide: bool = False,
        names: Mapping[float, str] | None = None,
    ) -> Levels:
        """Return the levels of two arrays of one length, in any order; people at equal levels are added up.

        Parameters
        ----------
        epsilon, count
            The ε, and how many people have each.
        rounded, wide, names
            As the attributes say.
        """
        levels = cls.__new__(cls)
        levels._fill(epsilon, count, names, rounded=rounded, wide=wide)
        return levels

    @classmethod
    def given(cls, levels: Levels | Mapping[Any, int] | Any) -> Levels:
        """Return levels as callers give them: as they are, as a mapping {ε: people}, or as one ε a person."""
        if isinstance(levels, Levels):
            return levels
        if hasattr(type(levels), "columns") or "levels" in getattr(levels, "__dataclass_fields__", ()):  # frame, tally
            raise InputError(f"a plan needs {PEOPLE}; of a tally its .levels (got {type(levels).__name__})")
        return cls(levels) if isinstance(levels, Mapping) else cls.of(levels)

    def _fill(
        self, epsilon: Floats, count: Ints, names: Mapping[float, str] | None, *, rounded: bool, wide: bool
    ) -> None:
        if not epsilon.size:
            raise InputError("there is nobody here (n = 0); a mean needs at least one person")
        self.epsilon, sums, self.rounded = collapse(epsilon, count[:, None], rounded=rounded, wide=wide)
        self.wide = wide
        self.count = sums[:, 0].copy()
        self.names = {level: name for level, name in (names or {}).items() if level in self.epsilon}
        self.epsilon.flags.writeable = self.count.flags.writeable = False

    @property
    def n(self) -> int:
        """The number of people, those with ε = 0 included."""
        return int(self.count.sum())

    @property
    def active(self) -> int:
        """The number of people with ε > 0."""
        return int(self.count[self.epsilon > 0].sum())

    def like(self, epsilon: Floats) -> Floats:
        """Return ε's as they are in these levels: rounded down if these are."""
        return round_down(epsilon, WIDE_BITS if self.wide else BITS) if self.rounded else epsilon

    def capped(self, cap: float) -> Levels:
        """Return the levels when everybody gets min(ε, cap)."""
        return Levels.from_arrays(np.minimum(self.epsilon, cap), self.count, rounded=self.rounded, wide=self.wide)

    def __len__(self) -> int:
        return int(self.epsilon.size)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Levels):
            return NotImplemented
        return np.array_equal(self.epsilon, other.epsilon) and np.array_equal(self.count, other.count)

    def __hash__(self) -> int:
        return hash((self.epsilon.tobytes(), self.count.tobytes()))

    def __repr__(self) -> str:
        shown = [f"{level:g}: {count}" for level, count in zip(self.epsilon[:8], self.count[:8], strict=True)]
        more = [f"… {len(self) - 8} more levels"] if len(self) > 8 else []
        return f"Levels({{{', '.join(shown + more)}}})"


def epsilon_array(epsilons: Any) -> Floats:
    """Return one ε a person as an array of doubles; one that cannot be read is an error that names its place.

    >>> epsilon_array([0.1, "public", -1])
    Traceback (most recent call last):
    hetdp.errors.InputError: epsilon must be 0, positive or inf (got -1 at index 2); use 0 to leave people out
    """
    if isinstance(epsilons, np.ma.MaskedArray):
        raise InputError("epsilon is a masked array; give every person an epsilon (0 to leave them out)")
    if isinstance(epsilons, (str, bytes)) or not isinstance(epsilons, Iterable):
        why = "; for a table take its column, as polars.read_csv(…)['eps']" * isinstance(epsilons, str)
        raise InputError(f"epsilon must be a sequence with one entry a person (got {type(epsilons).__name__}){why}")
    cells = epsilons
    if hasattr(epsilons, "__array__"):
        array = np.asarray(epsilons)
        if array.ndim != 1:
            raise InputError(f"epsilon must have one dimension, one entry a person (got {array.ndim} dimensions)")
        if array.dtype == np.float16 or array.dtype.kind not in "fiuOUT":
            raise InputError(f"epsilon must be numbers of 32 bits or more (got an array of {array.dtype})")
        if array.dtype.kind in "fiu":  # signs and NaN are checked where the array is grouped, chunk by chunk
            with np.errstate(over="ignore"):
                doubles = array.astype(np.float64, copy=False)
            if array.itemsize > 8 and (np.isinf(doubles) & ~np.isinf(array)).any():
                raise InputError("epsilon is too large for a number; write inf if the value is public")
            return doubles
        cells = array.tolist()
    return np.array([epsilon_of(cell, f" at index {i}") for i, cell in enumerate(cells)], dtype=np.float64)


def refuse_bad_epsilon(epsilon: Floats, start: int = 0) -> None:
    """Raise if an ε is negative or NaN, and name the index of the first one, counted from `start`."""
    with np.errstate(invalid="ignore"):  # a signalling NaN must not warn
        good = epsilon >= 0
    if not good.all():
        first = int(np.argmin(good))
        epsilon_of(float(epsilon[first]), f" at index {first + start}")


def joined_names(tiers: Iterable[tuple[float, str]]) -> dict[float, str]:
    """Return names by their ε; tiers with the same ε share theirs.

    >>> joined_names([(0.1, "strict"), (1.0, "open"), (0.1, "careful")])
    {0.1: 'strict, careful', 1.0: 'open'}
    """
    names: dict[float, str] = {}
    for level, name in tiers:
        names[level] = f"{names[level]}, {name}" if level in names else name
    return names


def _people(level: Any, count: Any) -> int:
    try:
        people = -1 if isinstance(count, (bool, np.bool_)) else operator.index(count)  # older numpy only warns
    except TypeError:
        people = -1
    if people < 0:
        raise InputError(f"the number of people must be a whole number, 0 or more (got {count!r} at epsilon {level})")
    return min(people, MOST_PEOPLE + 1)  # an array of 64-bit integers holds this; `collapse` refuses it


def capped(epsilon: Floats, cap: float) -> Floats:
    """Return min(ε, cap) divided by the largest of them, without ever dividing by infinity.

    >>> capped(np.array([0.0, 0.5, np.inf]), 2.0)
    array([0.  , 0.25, 1.  ])
    >>> capped(np.array([0.0, 0.5, np.inf]), np.inf)
    array([0., 0., 1.])
    """
    top = min(cap, float(epsilon.max()))
    if top == 0:
        return np.zeros_like(epsilon)
    if np.isinf(top):
        return np.isinf(epsilon).astype(np.float64)
    return np.minimum(epsilon, top) / top


def shift(count: Ints, weight: Floats) -> float:
    """Return δ = Σ(1/n − w)₊ for weights in any unit, scaled to the sum 1.

    Examples
    --------
    Half of the people at ε = 0.1, half at 1, capped at 0.26: the strict ones have 0.1/0.36 of the weight, not a half.

    >>> round(shift(np.array([500, 500]), np.array([0.1, 0.26])), 4)
    0.2222
    """
    total = float(count @ weight)
    if not total > 0:
        return 0.0
    n = float(count.sum())
    return float(count @ np.maximum(1 / n - weight / total, 0.0))


# The cap of the weights: one solver for every statistic ---------------------------------------------------------------


def saturation(epsilon: Floats, count: Ints, rho: float) -> float:
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


def root(level: Floats, mass: Floats, rho: float) -> float:
    """Return the root t of G(t) = Σ mass·(t − level)₊ = ρ, for at least one level, ascending, and positive masses."""
    with np.errstate(over="ignore", divide="ignore"):
        slope = np.cumsum(mass)
        rise = np.zeros_like(level)  # G at each level
        np.cumsum(slope[:-1] * (level[1:] - level[:-1]), out=rise[1:])
        last = int(np.searchsorted(rise, rho)) - 1  # the last level with G < ρ
        return float(level[last] + (rho - rise[last]) / slope[last])


# What an estimator makes of levels ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Shape:
    """The weights that a method wants, before they become integers. Floats, and not trusted.

    Attributes
    ----------
    weight
        One person's weight at each level, in any unit; finite, 0 or more, and 0 where ε = 0.
    threshold
        The cap t when the weights are min(ε, t); None for a method without one.
    shrink
        The factor s ≤ 1 by which the estimate is drawn towards the midpoint; 1 is unbiased.
    clamp
        How far from the midpoint the noisy mean counts, on an interval of length 1, before it is drawn towards the
        midpoint; inf without a clamp.
    apart
        Whether every level gets noise of its own instead of one draw for all.
    noise
        A noise scale, in the unit of the weights, below which the method does not go; the privacy of
        everybody may ask for more, and then gets it.
    kept
        Whether the weights are probabilities with which people are kept, one by one, for a plain mean.
    """

    weight: NDArray[np.float64]
    threshold: float | None = None
    shrink: float = 1.0
    clamp: float = math.inf
    apart: bool = False
    noise: float = 0.0
    kept: bool = False


def saturated(levels: Levels, variance: float) -> Shape:
    """Return weights min(ε, t) with the cap t of the solver: the rule of ADPM."""
    t = saturation(levels.epsilon, levels.count, rho=2 / variance)
    return Shape(capped(levels.epsilon, t), threshold=t)


def evenly(levels: Levels, variance: float) -> Shape:  # noqa: ARG001  the weights do not depend on the variance
    """Return equal weights, so that the smallest ε decides about the noise; people with ε = 0 are left out."""
    used = levels.epsilon > 0
    smallest = float(levels.epsilon[used].min()) if used.any() else np.inf
    return Shape(used.astype(np.float64), threshold=smallest)


def proportionally(levels: Levels, variance: float) -> Shape:  # noqa: ARG001  the weights do not depend on the variance
    """Return weights proportional to ε. With public people it becomes the plain mean of the public rows."""
    return Shape(capped(levels.epsilon, np.inf), threshold=np.inf)


class Drifting(Protocol):
    """A rule that also takes how far the means of two levels may differ, and whether exactly these people count."""

    def __call__(self, levels: Levels, variance: float, drift: float, *, people: bool) -> Shape:
        """Return the shape."""


@dataclass(frozen=True)
class Method:
    """One estimator: its name, its place in the literature, its rule.

    Attributes
    ----------
    shape
        From levels and a bound on the variance (both for an interval of length 1) to a `Shape`.
    drifting
        The rule when ε goes with the value; a method without one keeps its weights, and only predicts a larger error.
    plain
        The rule without a clamp, for what the proof of the clamp does not cover: a drift, exactly these people, a share
        of ε. None for a method that has no clamp.
    abstains
        Whether its paper returns the midpoint when the worst-case error would exceed the midpoint's.
    needs_records
        Whether a release draws people one by one, so that it needs arrays in memory instead of a tally.
    """

    name: str
    title: str
    citation: str
    shape: Callable[[Levels, float], Shape]
    drifting: Drifting | None = None
    plain: Callable[[Levels, float], Shape] | None = None
    abstains: bool = False
    needs_records: bool = False

    @property
    def label(self) -> str:
        """The short name that the literature uses, as in a legend."""
        return self.title.partition(":")[0]


@dataclass(frozen=True)
class Row:
    """One level of a plan. Weight and spend are for one person; private bounds that a release uses count as spent."""

    epsilon: float
    count: int
    weight: float
    spent: float
    name: str | None = None

    @property
    def free(self) -> float:
        """The privacy that comes free: what this person allowed and the release does not use, but for a rounding."""
        free = self.epsilon - self.spent if self.spent < math.inf else 0.0
        return 0.0 if free <= 1e-9 * self.epsilon < math.inf else free

    @property
    def share(self) -> float:
        """The share of the estimate that rests on this level."""
        return self.weight * self.count
