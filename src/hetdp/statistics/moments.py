"""Mean, variance and standard deviation in one release, and the means of several columns at once."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from hetdp.core.cells import Reading
from hetdp.core.domain import GRID, UNSAID, Interval, Ints
from hetdp.errors import InputError
from hetdp.privacy.exact import Box
from hetdp.report import Figure

from .mean import answered_line, ratio
from .statistic import CLAMPED, Answer, Bounded, Statistic

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

    With missing="estimate" there is a third number, 1 for who answered, and all three are 0 for the others; what is
    wanted is a ratio to it. ρ grows with the noise of the larger box.
    """

    name: ClassVar[str] = "variance"
    title: ClassVar[str] = "A private variance, with mean and standard deviation"
    square: ClassVar[bool] = True

    def totals(self, cell: Ints, people: Ints, sums: Ints) -> Ints:
        """Return the sums of both codes, and of those who answered."""
        if not self.keeps_missing:
            return sums
        there = (cell == 0)[:, None]
        return np.where(there, np.column_stack([sums, GRID * people]), 0)

    @property
    def geometry(self) -> Box:
        """Two or three numbers that move together."""
        return Box(3 if self.keeps_missing else 2)

    @property
    def variance(self) -> float:
        """A quarter for each number."""
        return self.geometry.d / 4

    @property
    def rho(self) -> float:
        """See above."""
        return 80.0 * (Box(3).noise / 3) / (Box(2).noise / 2) if self.keeps_missing else 80.0

    @property
    def nothing(self) -> tuple[float, ...]:
        """The midpoint, and what evenly spread values give."""
        return (0.5, 1 / 3, 1.0) if self.keeps_missing else (0.5, 1 / 3)

    @property
    def unsaid(self) -> str:  # type: ignore[override]  # it depends on what was asked
        """With missing="estimate" the share who answered is one of the numbers, and the report has it."""
        return "" if self.keeps_missing else UNSAID

    def answer(self, plan: Plan, numbers: Sequence[float], notes: Sequence[str] = ()) -> Moments:
        """Return mean, variance and standard deviation."""
        return Moments(plan, tuple(numbers), tuple(notes))

    @property
    def estimated(self) -> str:
        """What is estimated."""
        who = ", among those who answered" if self.missing in ("estimate", "drop") else ""
        return (
            "Mean, variance and standard deviation are those of the distribution from which these people are drawn "
            f"independently{who}. {CLAMPED}"
        )


@dataclass(frozen=True, eq=False, repr=False)
class Moments(Answer):
    """The mean, the variance and the standard deviation of one column.

    Attributes
    ----------
    mean, variance, std, share
        The numbers to publish; the released share of people who answered, None if nobody is kept apart.
    plan, numbers, notes, release_id, ledger, about
        As for `Answer`.
    """

    heading: ClassVar[str] = "Of the values"
    apart: ClassVar[bool] = True

    def _between(self, r: float) -> tuple[tuple[float, float], tuple[float, float]]:
        """Return the least and the greatest first and second moment that numbers within r of the released ones give."""
        whole = self.numbers[2] if len(self.numbers) == 3 else 1.0
        away = r if len(self.numbers) == 3 else 0.0
        found = []
        for number in self.numbers[:2]:
            least, most = max(whole - away, 0.0), min(whole + away, 1.0)
            low = max(number - r, 0.0) / most if most > 0 else 0.0
            high = min((number + r) / least, 1.0) if least > 0 else 1.0
            found.append((min(low, 1.0), max(high, 0.0)))
        return found[0], found[1]

    @property
    def _moments(self) -> tuple[float, float]:
        """The two moments of those who answered; those of evenly spread values if the noise leaves nobody."""
        if len(self.numbers) == 2:
            return self.numbers[0], self.numbers[1]
        first, second, whole = self.numbers
        return (first / whole, second / whole) if whole > 0 else (0.5, 1 / 3)

    @property
    def share(self) -> float | None:
        """The released share of people who answered; None if nobody is kept apart."""
        return min(max(self.numbers[2], 0.0), 1.0) if len(self.numbers) == 3 else None

    @property
    def remarks(self) -> list[tuple[str, str]]:
        """How many answered, which is one of the numbers that were released."""
        return answered_line(self.share, self.plan)

    def facts(self, level: float) -> dict[str, Any]:
        """Return what the JSON says first, with the share who answered if it was kept apart."""
        return super().facts(level) | ({} if self.share is None else {"answered": self.share})

    @property
    def mean(self) -> float:
        """The mean."""
        interval = self.plan.statistic.interval
        return interval.clamp(interval.lo + interval.width * self._moments[0])

    @property
    def variance(self) -> float:
        """The variance, at most a quarter of the squared range."""
        centre, square = self._moments
        return min(max((square - (2 * centre - 1) ** 2) / 4, 0.0), 0.25) * self.plan.statistic.interval.width**2

    @property
    def std(self) -> float:
        """The standard deviation."""
        return math.sqrt(self.variance)

    def confidence_interval(self, level: float = 0.95, of: Of = "mean") -> tuple[float, float]:
        """Return an interval at this `level`: of the mean, unless `of` says "variance" or "std". All hold at once.

        All numbers lie within a radius r of the truth with this probability, and so does everything computed from
        them: ratios to the share who answered lie between the least over the most and the most over the least. The
        square of 2x − 1 is largest at an end and least at an end, or 0 in between. That of a code which is off by a
        grid step is off by up to four, and is cut to a whole one: four more than r allows for.

        Returns
        -------
        tuple[float, float]
            (low, high), in units of the values; of the variance in squared units.
        """
        if of not in ("mean", "variance", "std"):
            raise InputError(f"intervals are of 'mean', 'variance' and 'std' (got {of!r})")
        interval, r = self.plan.statistic.interval, self.plan.radius(level, together=len(self.numbers))
        (low, high), _ = self._between(r)
        if of == "mean":
            return interval.at(Fraction(low)), interval.at(Fraction(high))
        tops = [(2 * x - 1) ** 2 for x in (low, high)]
        least = 0.0 if low <= 0.5 <= high else min(tops)
        _, (square_low, square_high) = self._between(r + 4 / GRID)
        ends = [(square_low - max(tops)) / 4, (square_high - least) / 4]
        found = [min(max(x, 0.0), 0.25) * interval.width**2 for x in ends]
        return (found[0], found[1]) if of == "variance" else (math.sqrt(found[0]), math.sqrt(found[1]))

    def figures(self, level: float = 0.95) -> list[Figure]:
        """Return the three numbers; their intervals hold at once.

        A variance and a deviation are too uncertain together: also if the interval of the deviation is wider than the
        deviation itself, unless all of it is small. Half of the range alone would be passed or not by luck.
        """
        width, found = self.plan.statistic.interval.width, []
        low, high = self.confidence_interval(level, "std")
        vague = high - low > max(self.std, width / 20)  # a tenth of the largest deviation, width/2
        rooms: dict[Of, float] = {"mean": width, "variance": width * width / 4, "std": width / 2}
        for of, room in rooms.items():
            low, high = self.confidence_interval(level, of)
            error, too = (high - low) / 4, vague and of != "mean"
            found.append(Figure(of, getattr(self, of), low, high, error, room=room, vague=too))
        return found


@dataclass(frozen=True)
class Columns(Statistic):
    """The means of several columns: d numbers in [0, 1] a person, each moved by at most W.

    With missing="estimate" there are 2d: for each column the value and a 1 if there is one, both 0 if not; a mean is
    the ratio. With "drop" people leave who lack any of the values.
    """

    bounds: Any = field(metadata={"help": "The public interval of each column."})

    name: ClassVar[str] = "means"
    title: ClassVar[str] = "Private means"
    halfway: ClassVar[str] = "the midpoint of the bounds of a column"
    cells: ClassVar[int] = 1  # nobody is sorted: whether a value is there is one of the numbers
    unanswered: ClassVar[None] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        pairs = self.bounds.items() if isinstance(self.bounds, Mapping) else self.bounds
        pairs = list(pairs) if isinstance(pairs, Iterable) and not isinstance(pairs, str) else []
        named = all(isinstance(pair, (tuple, list)) and len(pair) == 2 and isinstance(pair[0], str) for pair in pairs)
        if not named or not 1 <= len(dict(pairs)) == len(pairs) <= 64:
            raise InputError("several means need the bounds of each of 1 to 64 columns: bounds={'age': (0, 100), …}")
        object.__setattr__(self, "bounds", tuple((name, Interval.of(ends)) for name, ends in pairs))
        self.refuse_outside(*self.intervals.values())

    @property
    def without(self) -> str:  # type: ignore[override]  # it depends on what was asked
        """Who has no value."""
        return "people who lack a value in any column" if self.missing == "drop" else "people without a value"

    @property
    def intervals(self) -> dict[str, Interval]:
        """The columns and their intervals, in the order in which they were given: the numbers are in it too."""
        return dict(self.bounds)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns, in the order of their bounds."""
        return tuple(self.intervals)

    @property
    def reads(self) -> tuple[Reading, ...]:
        """Numbers, all read in one way."""
        return (self.values,) * len(self.bounds)

    @property
    def marks(self) -> bool:  # type: ignore[override]  # it depends on what was asked
        """Whether values that are there are counted."""
        return self.keeps_missing

    @property
    def sums(self) -> tuple[Interval, ...]:
        """All columns."""
        return tuple(self.intervals.values())

    @property
    def geometry(self) -> Box:
        """Numbers that move together."""
        return Box(len(self.bounds) * (2 if self.keeps_missing else 1))

    @property
    def variance(self) -> float:
        """A quarter for each number."""
        return self.geometry.d / 4

    @property
    def nothing(self) -> tuple[float, ...]:
        """The midpoints, as if everybody had answered."""
        d = len(self.bounds)
        return (0.5,) * d + (1.0,) * (d if self.keeps_missing else 0)

    def answer(self, plan: Plan, numbers: Sequence[float], notes: Sequence[str] = ()) -> Means:
        """Return the means."""
        return Means(plan, tuple(numbers), tuple(notes))

    @property
    def setting(self) -> str:
        """The columns."""
        ends = (f"{name} ({interval.words} {interval})" for name, interval in self.intervals.items())
        return f"the means of {', '.join(ends)}"

    @property
    def estimated(self) -> str:
        """What is estimated."""
        whose = {"estimate": ", each of those who answered", "drop": ", of those who answered all"}
        return (
            "The means are those of the distribution from which these people are drawn independently"
            f"{whose.get(str(self.missing), '')}. {CLAMPED}"
        )


@dataclass(frozen=True, eq=False, repr=False)
class Means(Answer):
    """The means of several columns.

    Attributes
    ----------
    means, plan, numbers, notes, release_id, ledger, about
        {column: mean}, of which `found["age"]` is one; the others as for `Answer`.
    """

    heading: ClassVar[str] = "Column"
    apart: ClassVar[bool] = True

    def _columns(self) -> list[tuple[str, Interval, float, float | None]]:
        """Return name, interval and number of each column, and the share who answered if that is private."""
        intervals = self.plan.statistic.intervals  # type: ignore[attr-defined]  # it answers no other
        shares = self.numbers[len(intervals) :] or (None,) * len(intervals)
        rows = zip(intervals.items(), self.numbers, shares, strict=False)
        return [(name, ends, number, share) for (name, ends), number, share in rows]

    @property
    def means(self) -> dict[str, float]:
        """{column: mean}."""
        return {
            name: ends.clamp(ends.lo + ends.width * number) if share is None else ratio(number, share - number, ends)
            for name, ends, number, share in self._columns()
        }

    def confidence_interval(self, level: float = 0.95) -> dict[str, tuple[float, float]]:
        """Return an interval for each mean; all hold at once with this probability.

        Of those who answered a mean is a ratio of two numbers, each within r of the truth.

        Returns
        -------
        dict[str, tuple[float, float]]
            {column: (low, high)}, in units of its values.
        """
        r, found = self.plan.radius(level, together=len(self.numbers)), {}
        for name, ends, number, share in self._columns():
            low, high = number - r, number + r
            if share is not None:
                least, most = share - r, min(share + r, 1.0)
                low = max(low, 0.0) / most if most > 0 else 0.0
                high = high / least if least > 0 else 1.0
            found[name] = ends.clamp(ends.lo + ends.width * low), ends.clamp(ends.lo + ends.width * high)
        return found

    def figures(self, level: float = 0.95) -> list[Figure]:
        """Return the means; their intervals hold at once."""
        ends, error, means, found = self.confidence_interval(level), self.plan.error_each, self.means, []
        for name, interval, _, share in self._columns():
            about = {} if share is None else {"answered": min(max(share, 0.0), 1.0)}
            size = error * interval.width / max(about.get("answered", 1.0), 0.05)  # of a ratio
            found.append(Figure(name, means[name], *ends[name], size, about, room=interval.width))
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self.means)

    def __getitem__(self, column: str) -> float:
        return self.means[column]
