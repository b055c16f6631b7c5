"""What a statistic is, and what it answers with.

A statistic holds public facts alone; plans, sources and releases know it by what stands below. Everything that is
released comes from sums of integers, Σ W·code(x), and noise shaped like what one person can move (`core.geometry`). A
statistic says which private columns it reads, into which cells people are sorted by them, which codes are added up, how
the sums become what one person hands over, and how the noisy numbers are read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from hetdp.core.cells import Categories, Sorting
from hetdp.core.domain import GRID, Interval, to_json
from hetdp.core.geometry import Geometry, Line
from hetdp.errors import InputError

if TYPE_CHECKING:
    from hetdp.core.accuracy import IntervalKind
    from hetdp.core.plan import Plan
    from hetdp.report.text import Parts

Ints = NDArray[np.int64]
UNIT = Interval(0, 1)


@dataclass(frozen=True)
class Statistic:
    """What `read`, `plan` and `release` need to know of a statistic. Its fields are public parameters.

    Attributes
    ----------
    value
        The private column, where a table is read. It belongs to the question, not to the statistic: tallies of two
        tables merge although the columns have different names.
    name
        How commands, plans, tallies and reports call it.
    title
        What a report is headed with.
    whole
        Whether it is a total over all people instead of an average.
    square
        Whether (2x − 1)² is added up beside the first x.
    takes_variance
        Whether a bound on the variance of a value can be stated.
    missed
        Of a choice: what it misses by.
    """

    value: str | None = field(default=None, kw_only=True, compare=False, repr=False)

    name: ClassVar[str]
    title: ClassVar[str]
    whole: ClassVar[bool] = False
    square: ClassVar[bool] = False
    takes_variance: ClassVar[bool] = False
    missed: ClassVar[str] = "in rank"

    # --- What is read

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the private columns."""
        return () if self.value is None else (self.value,)

    @property
    def named(self) -> str | tuple[str, ...] | None:
        """The private columns as a source takes them: one name, several, or none for values in memory."""
        columns = self.columns
        return columns[0] if len(columns) == 1 else columns or None

    def of(self, value: str | None) -> Self:
        """Return the same of another column; as it is if none is named."""
        return self if value is None else replace(self, value=value)

    @property
    def reads(self) -> tuple[Categories | None, ...]:
        """How each private column is read: as one of these categories, or, where it says None, as a number."""
        return (self.sorting,) if isinstance(self.sorting, Categories) else (None,)

    @property
    def sums(self) -> tuple[Interval, ...]:
        """The intervals of the columns whose codes are added up; they are the first ones."""
        return ()

    @property
    def sorting(self) -> Sorting | None:
        """How people are sorted into cells, by the last column."""
        return None

    @property
    def cells(self) -> int:
        """The number of cells."""
        return 1 if self.sorting is None else self.sorting.size

    @property
    def width(self) -> int:
        """How many integers in {0 … Q} a person hands over."""
        return self.geometry.numbers

    def totals(self, cell: Ints, people: Ints, sums: Ints) -> Ints:  # noqa: ARG002  subclasses use all of it
        """Return what people hand over together, of shape (rows, width).

        Each row is about people of one cell, with the sums of their codes; of a single person it is what they hand
        over. It must be linear in `people` and `sums`, and in {0 … Q} for one person whose codes are in {0 … Q}.
        """
        return sums

    def add_to(self, total: Ints, level: Ints, cell: Ints, people: Ints, sums: Ints) -> None:
        """Add `totals` of people to the rows of `total` that `level` says.

        A statistic whose people are each in one of many cells writes to those alone: a matrix of all rows and cells
        would be mostly zeros.
        """
        np.add.at(total, level, self.totals(cell, people, sums))

    # --- What one person moves, and what that means for the error

    @property
    def geometry(self) -> Geometry:
        """The shape of what one person can move, and of the noise."""
        return Line()

    @property
    def variance(self) -> float:
        """The largest variance of what one person hands over, all numbers together; `interval` has length 1."""
        return 0.25

    @property
    def idle(self) -> float:
        """The worst squared error of the answer that uses no data."""
        return self.variance

    @property
    def rho(self) -> float:
        """ρ: the variance of the noise when one person's cost equals their ε, over the variance of one person."""
        geometry = self.geometry
        return geometry.noise * float(geometry.cost(np.ones(1, np.int64))[0]) ** 2 / self.variance

    # --- How it is read

    @property
    def interval(self) -> Interval:
        """The interval of the values, or of shares."""
        return UNIT

    @property
    def nothing(self) -> tuple[float, ...]:
        """The numbers of the answer that uses no data; of one number the midpoint."""
        return (self.interval.mid,)

    def answer(self, plan: Plan, numbers: Sequence[float], notes: Sequence[str] = ()) -> Answer:
        """Return noisy numbers as the answer to publish; one number is a `Release`."""
        return Release(plan, tuple(numbers), tuple(notes))

    def scores(self, weights: Sequence[int], pick: int, plan: Plan) -> list[int]:
        """Return the score of every cell for a choice, from the weight of the people in each (`Choice` alone).

        Replacing a person of weight W must change no score by more than W, whatever the others' weights are.
        """
        raise NotImplementedError

    @property
    def setting(self) -> str:
        """What is released about the values, in a few words."""
        return f"values in [{self.interval.lo:,.10g}, {self.interval.hi:,.10g}]"

    @property
    def target(self) -> str:
        """What is estimated and what odd values count as, in sentences for the small print."""
        raise NotImplementedError

    @property
    def plain(self) -> dict[str, Any]:
        """The public parameters as plain data, from which the class makes the statistic again."""
        found = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "value"}
        return {name: _plain(kept) for name, kept in found.items() if kept is not None}


@dataclass(frozen=True)
class Bounded(Statistic):
    """A statistic of one number on a public interval, whose code is added up."""

    bounds: Any = field(metadata={"help": "The public interval of the values; others are clamped."})

    def __post_init__(self) -> None:
        object.__setattr__(self, "bounds", Interval.of(self.bounds))

    @property
    def interval(self) -> Interval:
        """The public interval of the values."""
        return self.bounds  # type: ignore[no-any-return]  # since __post_init__

    @property
    def sums(self) -> tuple[Interval, ...]:
        """The one column."""
        return (self.interval,)


@dataclass(frozen=True)
class Counted(Statistic):
    """A statistic that knows of a person only in which of several cells they are."""

    @property
    def width(self) -> int:
        """One number for each cell."""
        return self.cells

    def totals(self, cell: Ints, people: Ints, sums: Ints) -> Ints:  # noqa: ARG002  nothing is added up
        """Return Q for everybody in the column of their cell."""
        return one_hot(cell, people, self.cells)

    def add_to(self, total: Ints, level: Ints, cell: Ints, people: Ints, sums: Ints) -> None:  # noqa: ARG002  see there
        """Add the same to their cells alone."""
        np.add.at(total, (level, cell), GRID * people)


def _plain(kept: Any) -> Any:
    if isinstance(kept, Interval):
        return [kept.lo, kept.hi]
    if isinstance(kept, tuple):
        return [_plain(part) for part in kept]
    return {name: _plain(part) for name, part in kept.items()} if isinstance(kept, dict) else kept


def one_hot(cell: Ints, people: Ints, width: int) -> Ints:
    """Return Q for everybody in the column of their cell, of shape (rows, width); cells beyond it are dropped."""
    found = np.zeros((cell.size, width + 1), np.int64)
    found[np.arange(cell.size), np.minimum(cell, width)] = GRID * people
    return found[:, :width]


def needs_column(statistic: Statistic) -> None:
    """Raise unless the statistic says which columns of a table it reads."""
    if len(statistic.columns) != len(statistic.reads):
        raise InputError(f"a {statistic.name} of a table needs the name of its column: value=…, --value COL")


# What a release gives back: the numbers to publish and everything public about them ----------------------------------


@dataclass(frozen=True)
class Figure:
    """One number of an answer, with its guaranteed interval, for tables and pictures.

    Attributes
    ----------
    error
        The typical size of its error, which says to how many digits it is printed.
    about
        What else belongs to it, as plain data.
    shown
        What is printed instead of the number, where it stands for something else.
    """

    label: str
    estimate: float
    low: float
    high: float
    error: float
    about: Mapping[str, Any] = field(default_factory=dict)
    shown: str | None = None


class Reported:
    """What has a report: as text, as HTML and as JSON, in a terminal and in a notebook."""

    def parts(self, level: float) -> Parts:
        """Return the report as its parts; intervals have this level of confidence."""
        raise NotImplementedError

    def to_dict(self, level: float = 0.95) -> dict[str, Any]:
        """Return the same as plain data."""
        raise NotImplementedError

    def to_json(self) -> str:
        """Return the same as JSON; infinities are written "inf"."""
        return to_json(self.to_dict())

    def report(self, level: float = 0.95) -> str:
        """Return the report as text."""
        from hetdp.report.text import text

        return text(self.parts(level))

    def html(self, level: float = 0.95) -> str:
        """Return the report as a piece of HTML."""
        from hetdp.report.text import to_html

        return to_html(self.parts(level))

    __str__ = report
    _repr_html_ = html


@dataclass(frozen=True, eq=False)
class Answer(Reported):
    """The answer to one question. All of it may be published.

    Attributes
    ----------
    plan
        The plan that was carried out.
    numbers
        What was drawn: the noisy numbers from which everything else is computed.
    notes
        What is assumed about the people behind it, in sentences.
    release_id, ledger
        If a ledger has charged it: the id under which it is stored, and what it cost, as plain data.
    heading, between, holds
        How a table of the numbers is headed, what its intervals are, and whether they hold together.
    apart
        Whether its numbers have units of their own, so that a picture cannot put them on one axis.
    """

    plan: Plan
    numbers: tuple[float, ...]
    notes: tuple[str, ...] = ()
    release_id: str = ""
    ledger: Mapping[str, Any] = field(default_factory=dict)

    heading: ClassVar[str] = ""
    between: ClassVar[str] = "Interval"
    holds: ClassVar[str] = "all hold at once"
    apart: ClassVar[bool] = False

    def figures(self, level: float = 0.95) -> list[Figure]:
        """Return the numbers of the report, each with its guaranteed interval."""
        raise NotImplementedError

    def facts(self, level: float) -> dict[str, Any]:
        """Return what the JSON says first: the numbers themselves."""
        rows = [
            {"name": f.label, "estimate": f.estimate, "interval": [f.low, f.high], **f.about}
            for f in self.figures(level)
        ]
        return {"level": level, "results": rows}

    def to_dict(self, level: float = 0.95) -> dict[str, Any]:
        """Return the answer as plain data, with what a ledger charged if there is one."""
        from hetdp.report.facts import release_facts

        charged = {"ledger": {"release_id": self.release_id, **self.ledger}} if self.release_id else {}
        return {**release_facts(self, level), **charged}

    def parts(self, level: float) -> Parts:
        """Return the report as its parts."""
        from hetdp.report.text import release_parts

        return release_parts(self, level)

    def plot(self, path: Any, level: float = 0.95) -> None:
        """Write a picture of the numbers and their intervals; .png, .svg or .pdf."""
        from pathlib import Path

        from hetdp.report import plots

        plots.save(plots.answer(self, level), Path(path))

    def __format__(self, spec: str) -> str:
        """Return the one number in this format, as in f"{release:.2f}"; without one, the report."""
        return format(float(self), spec) if spec else str(self)  # type: ignore[arg-type]  # several are no float

    def __repr__(self) -> str:
        shown = ", ".join(f"{f.label}={f.estimate:.6g}" for f in self.figures()[:6])
        return f"{type(self).__name__}({shown}, n={self.plan.n}, method={self.plan.method!r})"


@dataclass(frozen=True, eq=False, repr=False)
class Release(Answer):
    """One number: a mean, a proportion, a sum, a count."""

    @property
    def unclamped(self) -> float:
        """The unbiased estimate; noise can carry it outside the interval."""
        return self.numbers[0]

    @property
    def estimate(self) -> float:
        """The estimate, clamped to the interval: the number to publish."""
        return self.plan.span.clamp(self.unclamped)

    def confidence_interval(self, level: float = 0.95, kind: IntervalKind = "guaranteed") -> tuple[float, float]:
        """Return an interval for what is estimated (of a mean: μ of the distribution); see `Plan.radius`."""
        radius, span = self.plan.radius(level, kind), self.plan.span
        return span.clamp(self.unclamped - radius), span.clamp(self.unclamped + radius)

    def figures(self, level: float = 0.95) -> list[Figure]:
        """Return the one number."""
        low, high = self.confidence_interval(level)
        return [Figure(self.plan.statistic.name, self.estimate, low, high, self.plan.worst_case_error)]

    def facts(self, level: float) -> dict[str, Any]:
        """Return what the JSON says first."""
        guaranteed, normal = self.confidence_interval(level), self.confidence_interval(level, "normal")
        interval = {"level": level, "guaranteed": list(guaranteed), "normal": list(normal)}
        return {"estimate": self.estimate, "unclamped": self.unclamped, "interval": interval}

    def __float__(self) -> float:
        return self.estimate

    def __repr__(self) -> str:
        return f"Release(estimate={self.estimate:.6g}, n={self.plan.n}, method={self.plan.method!r})"
