"""People in cells: the histogram (which share is in each), the mode (which has the most), means by a private group."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from hetdp.core.accuracy import IntervalKind, check_level
from hetdp.core.cells import Categories, Edges, Reading, name_of
from hetdp.core.domain import GRID, Interval, Ints, plural
from hetdp.core.intervals import share_intervals
from hetdp.errors import InputError
from hetdp.privacy.exact import Choice, Mass
from hetdp.report import Figure

from .answer import Groups
from .bounds import PrivateInterval
from .mean import answered_line, ratio, ratio_interval
from .statistic import CLAMPED, Answer, Bounded, Counted

if TYPE_CHECKING:
    from hetdp.core.plan import Plan

LISTED = {"help": "The public categories; all else is 'other'.", "metavar": "A,B,C"}
CUT = {"help": "The public edges of bins; what lies outside is 'other'.", "metavar": "X,Y,Z"}
NUMBER = {"help": "Instead of edges: so many bins of one width within the bounds.", "metavar": "N"}
ENDS = {"help": "The public interval of the values."}


@dataclass(frozen=True)
class Celled(Counted):
    """A statistic of one column that is sorted into public categories, or into bins between public edges."""

    asks_missing: ClassVar[bool] = False

    categories: Any = field(default=None, metadata=LISTED)
    edges: Any = field(default=None, metadata=CUT)
    bins: int | None = field(default=None, metadata=NUMBER)
    bounds: Any = field(default=None, metadata=ENDS)

    def __post_init__(self) -> None:
        super().__post_init__()
        given = [self.categories is not None, self.edges is not None, self.bins is not None or self.bounds is not None]
        if sum(given) != 1 or (self.bins is None) != (self.bounds is None):
            alone = self.bounds is not None and (given[0] or given[1])
            raise InputError(
                f"a {self.name} needs categories=[…] (--categories A,B,C), edges=[…] (--edges X,Y,Z), "
                "or bins=… with bounds=(lo, hi) (--bins N --bounds LO HI)"
                f"{'; leave out the bounds: they go with bins alone' if alone else ''}"
            )
        if self.bounds is not None and isinstance(Interval.of(self.bounds), PrivateInterval):
            raise InputError(
                f"the bins of a {self.name} are public edges, which forget what private bounds spent; give bounds as "
                "(lo, hi), or ask for both within one budget: hetdp.ask"
            )
        kept = self.sorting
        plain: tuple[Any, ...] = tuple(kept.plain) if isinstance(kept, Categories) else kept.edges
        for name in ("categories", "edges", "bins", "bounds"):
            object.__setattr__(self, name, None)
        object.__setattr__(self, "categories" if isinstance(kept, Categories) else "edges", plain)

    @cached_property
    def sorting(self) -> Categories | Edges:
        """The cells."""
        if self.categories is not None:
            return Categories.of(self.categories)
        return Edges.of(self.edges) if self.edges is not None else Edges.even(self.bounds, self.bins)

    @property
    def left_over(self) -> str:
        """What is in the last cell."""
        bins = isinstance(self.sorting, Edges)
        return (
            f"What is missing or unreadable, or {'below the first or above the last edge' if bins else 'not listed'},"
        )

    @property
    def setting(self) -> str:
        """How many cells there are."""
        what = "category" if isinstance(self.sorting, Categories) else "bin"
        alike = self.sorting.alike if isinstance(self.sorting, Categories) else ""
        return f"{plural(self.cells - 1, what)} and '{self.sorting.labels[-1]}'{alike}"


@dataclass(frozen=True)
class Shares(Celled):
    """The share of people in each cell. A person is in one cell, so they move a weight of W from one to another.

    For one person the shares have at most the variance 1 − 1/k together.
    """

    name: ClassVar[str] = "histogram"
    title: ClassVar[str] = "A private histogram"

    @property
    def geometry(self) -> Mass:
        """A weight that is moved between cells."""
        return Mass(self.cells)

    @property
    def variance(self) -> float:
        """The largest total variance, at even shares."""
        return 1 - 1 / self.cells

    @property
    def nothing(self) -> tuple[float, ...]:
        """Even shares."""
        return (1 / self.cells,) * self.cells

    def answer(self, plan: Plan, numbers: Sequence[float], notes: Sequence[str] = ()) -> Histogram:
        """Return the shares."""
        return Histogram(plan, tuple(numbers), tuple(notes))

    @property
    def estimated(self) -> str:
        """What is estimated."""
        return (
            "The shares are those in the distribution from which these people are drawn independently, and a count is "
            f"n times a share. {self.left_over} is in the cell '{self.sorting.labels[-1]}'. "
            "Noise can carry a small share below 0; the shares add up to 1."
        )


@dataclass(frozen=True, eq=False, repr=False)
class Histogram(Answer):
    """Shares of people by cell, and the same as numbers of people.

    Attributes
    ----------
    frequencies, counts
        {cell: share of the people}, and {cell: number of people}; the last cell has what is in no other.
    plan, numbers, notes, release_id, ledger, about
        As for `Answer`.
    """

    heading: ClassVar[str] = "Cell"

    @property
    def frequencies(self) -> dict[str, float]:
        """The share of each cell; unbiased, they add up to 1, and noise can carry one below 0."""
        return dict(zip(self.plan.statistic.sorting.labels, self.numbers, strict=True))  # type: ignore[union-attr]

    @property
    def counts(self) -> dict[str, float]:
        """The same times the number of people, which is public."""
        return {name: share * self.plan.n for name, share in self.frequencies.items()}

    def confidence_interval(
        self, level: float = 0.95, kind: IntervalKind = "guaranteed", *, simultaneous: bool = True
    ) -> dict[str, tuple[float, float]]:
        """Return an interval for the share of each cell.

        Parameters
        ----------
        level
            The confidence.
        kind
            "guaranteed" holds for every distribution and every n; "normal" promises nothing for small n.
        simultaneous
            Whether all hold at once with this probability, or each by itself.

        Returns
        -------
        dict[str, tuple[float, float]]
            {cell: (low, high)}, as shares.
        """
        together, clamp = len(self.numbers) if simultaneous else 1, self.plan.span.clamp
        radius = self.plan.radius(level, kind, together=together)
        ends = tuple((clamp(share - radius), clamp(share + radius)) for share in self.numbers)
        if kind == "guaranteed" and not self.plan.abstains:
            ends = share_intervals(self.plan, self.numbers, level, together)
        return dict(zip(self.frequencies, ends, strict=True))

    def simplex(self) -> Histogram:
        """Return the same with shares that are not below 0: the nearest such shares that add up to 1.

        It costs no privacy. Small shares are then biased upwards, and their total squared error is smaller.
        """
        return replace(self, numbers=tuple(nearest_shares(np.array(self.numbers)).tolist()))

    def to_frame(self) -> Any:
        """Return a Polars frame with a row for each cell: cell, share, low, high, people, uncertain."""
        import polars as pl

        return pl.DataFrame(
            [(f.label, f.estimate, f.low, f.high, f.about["people"], f.uncertain) for f in self.figures()],
            schema=["cell", "share", "low", "high", "people", "uncertain"],
            orient="row",
        )

    def figures(self, level: float = 0.95) -> list[Figure]:
        """Return the shares; all intervals hold at once."""
        ends, n = self.confidence_interval(level), self.plan.n
        error = self.plan.error_each
        return [
            Figure(name, share, *ends[name], error, {"people": share * n}) for name, share in self.frequencies.items()
        ]

    def __iter__(self) -> Iterator[str]:
        return iter(self.frequencies)

    def __len__(self) -> int:
        return len(self.frequencies)

    def __getitem__(self, cell: Any) -> float:
        return self.frequencies[cell if isinstance(cell, str) else name_of(cell)]


def nearest_shares(numbers: Any) -> Any:
    """Return the point of the simplex that is nearest to some numbers.

    >>> nearest_shares(np.array([0.7, 0.5, -0.2])).round(3).tolist()
    [0.6, 0.4, 0.0]
    """
    falling = np.sort(numbers)[::-1]
    over = (np.cumsum(falling) - 1) / np.arange(1, falling.size + 1)
    shares = np.maximum(numbers - over[np.flatnonzero(falling > over)[-1]], 0)
    return np.where(shares < _NOTHING, 0, shares)


_NOTHING = 1e-15
"""A share below this is a rounding error of the subtraction: numbers up to 1 are right to 2⁻⁵³."""


# The mode -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Commonest(Celled):
    """The cell with the largest share. A person is in one cell, so they move every score, its weight, by at most W.

    Two scores differ for one person by at most W in either direction: the variance of one person is at most 1/4.
    """

    name: ClassVar[str] = "mode"
    title: ClassVar[str] = "A private mode"
    missed: ClassVar[str] = "below the largest share"
    geometry: ClassVar[Choice] = Choice()
    idle: ClassVar[float] = 1.0
    """An answer without data can be a cell with nobody where everybody is in another one."""

    def scores(self, weights: Sequence[int], pick: int, plan: Plan) -> list[int]:  # noqa: ARG002  there is one choice
        """Return the weight of each cell."""
        return list(weights)

    @property
    def nothing(self) -> tuple[float, ...]:
        """The last cell."""
        return (self.cells - 1.0,)

    def answer(self, plan: Plan, numbers: Sequence[float], notes: Sequence[str] = ()) -> Mode:
        """Return the cell."""
        return Mode(plan, tuple(numbers), tuple(notes))

    @property
    def estimated(self) -> str:
        """What is estimated."""
        return (
            f"The mode is that of the distribution from which these people are drawn independently. {self.left_over} "
            f"is in the cell '{self.sorting.labels[-1]}', which can be the mode as well."
        )


@dataclass(frozen=True, eq=False, repr=False)
class Mode(Answer):
    """The cell in which most people are.

    Attributes
    ----------
    estimate, plan, numbers, notes, release_id, ledger, about
        The name of the cell; the others as for `Answer`.
    """

    between: ClassVar[str] = "Below the largest share"
    holds: ClassVar[str] = "how far the share of this cell can be below the largest one"

    @property
    def estimate(self) -> str:
        """The cell."""
        return self.plan.statistic.sorting.labels[int(self.numbers[0])]  # type: ignore[union-attr]  # it has cells

    def shortfall(self, level: float = 0.95) -> float:
        """Return r: with this probability the share of this cell is at most r below the largest one.

        The choice misses the largest weight by at most s·ln(2k/α), and two weighted shares are both within
        √(A·ln(4k/α)/2) of the truth (Hoeffding, for all cells at once).
        """
        check_level(level)
        errors, alpha, cells = self.plan.errors, 1 - level, self.plan.statistic.cells
        scale = errors.scales[0] if errors.scales else 0.0
        sampling = 2 * math.sqrt(errors.ranges * math.log(4 * cells / alpha) / 2)
        return 1.0 if self.plan.abstains else min(sampling + scale * math.log(2 * cells / alpha), 1.0)

    def figures(self, level: float = 0.95) -> list[Figure]:
        """Return the cell, and how far its share can be below the largest one."""
        most = self.shortfall(level)
        return [Figure("mode", self.numbers[0], 0.0, most, most / 4, shown=self.estimate)]

    def facts(self, level: float) -> dict[str, Any]:
        """Return what the JSON says first."""
        most = self.shortfall(level)
        return {"estimate": self.estimate, "level": level, "at_most_below_the_largest": most, "uncertain": most > 0.5}

    def __repr__(self) -> str:
        stored = ", stored" * ("stored" in self.ledger)
        return f"Mode({self.estimate!r}, n={self.plan.n}, method={self.plan.method!r}{stored})"


# Means by a private group ---------------------------------------------------------------------------------------------
#
# Everybody hands over one unit, spread over cells: who has the value x (on an interval of length 1) puts x into the
# upper half and 1 − x into the lower half of the cell of their group. A mean is then upper/(upper + lower).


@dataclass(frozen=True)
class MeanByGroup(Bounded):
    """Means by a group that is itself private: 2k cells (group, half). Cost and sampler are those of a histogram.

    With missing="estimate" those who have no value are in one more cell, whatever their group.
    """

    categories: Any = field(metadata={"help": "The public groups.", "metavar": "A,B,C"})
    private_group: str | None = field(default=None, compare=False, metadata={"help": "The private column of groups."})

    name: ClassVar[str] = "mean_by_group"
    title: ClassVar[str] = "Private means by a private group"

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "categories", tuple(self.sorting.plain))

    @property
    def columns(self) -> tuple[str, ...]:
        """The values and the groups."""
        if self.private_group is None or self.value is None:
            raise InputError("means by a private group need two columns: value=… and private_group=…")
        return self.value, self.private_group

    @property
    def reads(self) -> tuple[Reading, ...]:
        """Numbers and groups."""
        return self.values, self.sorting

    @cached_property
    def sorting(self) -> Categories:
        """The groups."""
        return Categories.of(self.categories)

    @property
    def cells(self) -> int:
        """The groups, and one for those who did not answer if they are kept apart."""
        return self.sorting.size + self.keeps_missing

    def totals(self, cell: Ints, people: Ints, sums: Ints) -> Ints:
        """Return the halves of each group, which add up to Q for each person."""
        found = np.zeros((cell.size, 2 * self.cells), np.int64)
        row, upper = np.arange(cell.size), np.where(cell == self.unanswered, GRID * people, sums[:, 0])
        found[row, 2 * cell] = upper
        found[row, 2 * cell + 1] = GRID * people - upper
        return found[:, : self.width]

    @property
    def geometry(self) -> Mass:
        """A weight that is moved between cells."""
        return Mass(2 * self.cells - self.keeps_missing)

    @property
    def variance(self) -> float:
        """The largest total variance of the cells."""
        return 1 - 1 / self.width

    @property
    def nothing(self) -> tuple[float, ...]:
        """Even shares."""
        return (1 / self.width,) * self.width

    def answer(self, plan: Plan, numbers: Sequence[float], notes: Sequence[str] = ()) -> GroupMeans:
        """Return the means."""
        return GroupMeans(plan, tuple(numbers), tuple(notes))

    @property
    def setting(self) -> str:
        """The interval and the groups."""
        ends, sorting = f"{self.interval.words} {self.interval}", self.sorting
        return f"{ends}, {plural(sorting.size - 1, 'private group')} and '{sorting.labels[-1]}'{sorting.alike}"

    @property
    def estimated(self) -> str:
        """What is estimated."""
        return (
            "The means are those of the groups in the distribution from which these people are drawn independently; "
            f"who is in which group stays private. {CLAMPED} "
            f"A group that is missing or unknown is '{self.sorting.labels[-1]}'."
        )


@dataclass(frozen=True)
class GroupMean:
    """The mean of one private group, its interval by itself, and the share of all people who are behind it.

    They are those in the group; with missing="estimate" those who are in it and answered.
    """

    estimate: float
    interval: tuple[float, float]
    share: float

    def __float__(self) -> float:
        return self.estimate


@dataclass(frozen=True, eq=False, repr=False)
class GroupMeans(Answer, Groups):
    """{group: mean}, all of one release. Each has `estimate`, `interval` and `share`, of the people behind it.

    Attributes
    ----------
    answered, plan, numbers, notes, release_id, ledger, about
        The released share of people who answered, None if nobody is kept apart; the others as for `Answer`.
    """

    heading: ClassVar[str] = "Private group"
    holds: ClassVar[str] = "each by itself"

    def __post_init__(self) -> None:
        object.__setattr__(self, "composition", "Who is in which group is private; all means are of one release.")
        for label, figure in zip(self._labels, self.figures(), strict=True):
            (share,) = figure.about.values()
            found = GroupMean(figure.estimate, (figure.low, figure.high), share)
            dict.__setitem__(self, label, found)  # a group here has no release of its own

    @property
    def _labels(self) -> tuple[str, ...]:
        return self.plan.statistic.sorting.labels  # type: ignore[union-attr]  # it answers no other

    def confidence_interval(self, level: float = 0.95) -> dict[str, tuple[float, float]]:
        """Return an interval for each mean; each holds by itself with this probability.

        Returns
        -------
        dict[str, tuple[float, float]]
            {group: (low, high)}, in units of the values.
        """
        return {f.label: (f.low, f.high) for f in self.figures(level)}

    def figures(self, level: float = 0.95) -> list[Figure]:
        """Return the means, with the share of people who are in each group; of answers, who are in it and answered."""
        interval, found = self.plan.statistic.interval, []
        behind = "in_it_and_answered" if self.plan.statistic.keeps_missing else "share"
        for i, label in enumerate(self._labels):
            upper, lower = self.numbers[2 * i : 2 * i + 2]
            low, high = ratio_interval(self.plan, upper, lower, level)
            about = {behind: min(max(upper + lower, 0.0), 1.0)}
            mean, error = ratio(upper, lower, interval), (high - low) / 4
            found.append(Figure(label, mean, low, high, error, about, room=interval.width))
        return found

    @property
    def answered(self) -> float | None:
        """The released share of people who answered; None if nobody is kept apart."""
        return min(max(1 - self.numbers[-1], 0.0), 1.0) if self.plan.statistic.keeps_missing else None

    @property
    def remarks(self) -> list[tuple[str, str]]:
        """How many answered, whatever their group."""
        return answered_line(self.answered, self.plan)

    def facts(self, level: float) -> dict[str, Any]:
        """Return what the JSON says first, with the share who answered if it was kept apart."""
        return super().facts(level) | ({} if self.answered is None else {"answered": self.answered})

    def to_frame(self, level: float = 0.95) -> Any:
        """Return a Polars frame with a row for each private group: estimate, interval, share of people behind it.

        With missing="estimate" that column is `in_it_and_answered`: who did not answer is not in it.
        """
        import polars as pl

        found = self.figures(level)
        rows = [{"group": f.label, "estimate": f.estimate, "low": f.low, "high": f.high, **f.about} for f in found]
        return pl.DataFrame(rows).with_columns(pl.Series("uncertain", [f.uncertain for f in found]))

    __repr__ = Answer.__repr__
