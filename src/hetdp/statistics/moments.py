"""Mean, variance and standard deviation in one release, and the means of several columns at once."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from hetdp.core.domain import GRID, Interval
from hetdp.core.geometry import Box
from hetdp.errors import InputError

from .statistic import Answer, Bounded, Figure, Statistic

if TYPE_CHECKING:
    from hetdp.core.plan import Plan

Of = Literal["mean", "variance", "std"]


@dataclass(frozen=True)
class Spread(Bounded):
    """The mean and the variance: two numbers in [0, 1] a person, x and (2x − 1)², each moved by at most W.

    The codes are q and ⌊(2q − Q)²/Q⌋. The variance on an interval of length 1 is (E(2x − 1)² − (2·E x − 1)²)/4.

    ρ is 80 and not the 16 of the box, which is best for the mean of values that are all at the two ends. For values of
    variance V the mean's own is 4/V, and the variance has 36 or more at the two-point law where it is hardest. In a
    study of 15 data sets (docs/statistics/figures.md) 80 has 0.76 times the squared error of the mean and 0.60 times
    that of the variance, and at worst 1.5 times the worst-case error.
    """

    name: ClassVar[str] = "variance"
    title: ClassVar[str] = "A private variance, with mean and standard deviation"
    square: ClassVar[bool] = True

    @property
    def geometry(self) -> Box:
        """Two numbers that move together."""
        return Box(2)

    @property
    def variance(self) -> float:
        """A quarter for each number."""
        return 0.5

    @property
    def rho(self) -> float:
        """See above."""
        return 80.0

    @property
    def nothing(self) -> tuple[float, ...]:
        """The midpoint, and what evenly spread values give."""
        return 0.5, 1 / 3

    def answer(self, plan: Plan, numbers: Sequence[float], notes: Sequence[str] = ()) -> Moments:
        """Return mean, variance and standard deviation."""
        return Moments(plan, tuple(numbers), tuple(notes))

    @property
    def target(self) -> str:
        """What is estimated."""
        return (
            "Mean, variance and standard deviation are those of the distribution from which these people are drawn "
            "independently. Values are clamped to the bounds; a missing one counts as the midpoint."
        )


@dataclass(frozen=True, eq=False, repr=False)
class Moments(Answer):
    """The mean, the variance and the standard deviation of one column."""

    heading: ClassVar[str] = "Of the values"
    apart: ClassVar[bool] = True

    @property
    def mean(self) -> float:
        """The mean."""
        interval = self.plan.statistic.interval
        return interval.clamp(interval.lo + interval.width * self.numbers[0])

    @property
    def variance(self) -> float:
        """The variance, at most a quarter of the squared range."""
        centre, square = self.numbers
        return min(max((square - (2 * centre - 1) ** 2) / 4, 0.0), 0.25) * self.plan.statistic.interval.width**2

    @property
    def std(self) -> float:
        """The standard deviation."""
        return math.sqrt(self.variance)

    def confidence_interval(self, level: float = 0.95, of: Of = "mean") -> tuple[float, float]:
        """Return an interval for the mean, the variance or the standard deviation; the three hold at once.

        Both numbers lie within a radius r of the truth with this probability, and so does everything computed from
        them. The square of 2x − 1 is largest at an end and least at an end, or 0 in between. That of a code which is
        off by a grid step is off by up to four, and is cut to a whole one: four more than r allows for.
        """
        if of not in ("mean", "variance", "std"):
            raise InputError(f"intervals are of 'mean', 'variance' and 'std' (got {of!r})")
        interval, (centre, square) = self.plan.statistic.interval, self.numbers
        r = self.plan.radius(level, together=2)
        low, high = (min(max(x, 0.0), 1.0) for x in (centre - r, centre + r))
        if of == "mean":
            return interval.at(Fraction(low)), interval.at(Fraction(high))
        tops = [(2 * x - 1) ** 2 for x in (low, high)]
        least = 0.0 if low <= 0.5 <= high else min(tops)
        wide = r + 4 / GRID
        ends = [(square - wide - max(tops)) / 4, (square + wide - least) / 4]
        found = [min(max(x, 0.0), 0.25) * interval.width**2 for x in ends]
        return (found[0], found[1]) if of == "variance" else (math.sqrt(found[0]), math.sqrt(found[1]))

    def figures(self, level: float = 0.95) -> list[Figure]:
        """Return the three numbers; their intervals hold at once."""
        found = []
        for of in ("mean", "variance", "std"):
            low, high = self.confidence_interval(level, of)
            found.append(Figure(of, getattr(self, of), low, high, (high - low) / 4))
        return found


@dataclass(frozen=True)
class Columns(Statistic):
    """The means of several columns: d numbers in [0, 1] a person, each moved by at most W."""

    bounds: Any = field(metadata={"help": "The public interval of each column."})

    name: ClassVar[str] = "means"
    title: ClassVar[str] = "Private means"

    def __post_init__(self) -> None:
        pairs = self.bounds.items() if isinstance(self.bounds, Mapping) else self.bounds
        pairs = list(pairs) if isinstance(pairs, Iterable) and not isinstance(pairs, str) else []
        named = all(isinstance(pair, (tuple, list)) and len(pair) == 2 and isinstance(pair[0], str) for pair in pairs)
        if not named or not 1 <= len(dict(pairs)) == len(pairs) <= 64:
            raise InputError("several means need the bounds of each of 1 to 64 columns: bounds={'age': (0, 100), …}")
        object.__setattr__(self, "bounds", tuple((name, Interval.of(ends)) for name, ends in pairs))

    @property
    def intervals(self) -> dict[str, Interval]:
        """The columns and their intervals, in the order in which they were given: the numbers are in it too."""
        return dict(self.bounds)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns, in the order of their bounds."""
        return tuple(self.intervals)

    @property
    def reads(self) -> tuple[None, ...]:
        """Numbers."""
        return (None,) * len(self.bounds)

    @property
    def sums(self) -> tuple[Interval, ...]:
        """All columns."""
        return tuple(self.intervals.values())

    @property
    def geometry(self) -> Box:
        """Numbers that move together."""
        return Box(len(self.bounds))

    @property
    def variance(self) -> float:
        """A quarter for each column."""
        return len(self.bounds) / 4

    @property
    def nothing(self) -> tuple[float, ...]:
        """The midpoints."""
        return (0.5,) * len(self.bounds)

    def answer(self, plan: Plan, numbers: Sequence[float], notes: Sequence[str] = ()) -> Means:
        """Return the means."""
        return Means(plan, tuple(numbers), tuple(notes))

    @property
    def setting(self) -> str:
        """The columns."""
        return f"the means of {', '.join(self.intervals)}"

    @property
    def target(self) -> str:
        """What is estimated."""
        return (
            "The means are those of the distribution from which these people are drawn independently. Values are "
            "clamped to the bounds; a missing one counts as the midpoint of its column."
        )


@dataclass(frozen=True, eq=False, repr=False)
class Means(Answer):
    """The means of several columns."""

    heading: ClassVar[str] = "Column"
    apart: ClassVar[bool] = True

    @property
    def means(self) -> dict[str, float]:
        """{column: mean}."""
        intervals = self.plan.statistic.intervals  # type: ignore[attr-defined]  # it answers no other
        pairs = zip(intervals.items(), self.numbers, strict=True)
        return {name: ends.clamp(ends.lo + ends.width * share) for (name, ends), share in pairs}

    def confidence_interval(self, level: float = 0.95) -> dict[str, tuple[float, float]]:
        """Return an interval for each mean; all hold at once with this probability."""
        r, found = self.plan.radius(level, together=len(self.numbers)), {}
        intervals = self.plan.statistic.intervals  # type: ignore[attr-defined]  # it answers no other
        for (name, ends), share in zip(intervals.items(), self.numbers, strict=True):
            low, high = (ends.clamp(ends.lo + ends.width * x) for x in (share - r, share + r))
            found[name] = low, high
        return found

    def figures(self, level: float = 0.95) -> list[Figure]:
        """Return the means; their intervals hold at once."""
        ends, error = self.confidence_interval(level), self.plan.error_each
        intervals = self.plan.statistic.intervals  # type: ignore[attr-defined]  # it answers no other
        return [Figure(name, mean, *ends[name], error * intervals[name].width) for name, mean in self.means.items()]

    def __getitem__(self, column: str) -> float:
        return self.means[column]
