"""What a statistic is, and what it answers with.

A statistic holds public facts alone; plans, sources and releases know it by what stands below. Everything that is
released comes from sums of integers, Σ W·code(x), and noise shaped like what one person can move (`privacy.exact`). A
statistic says which private columns it reads, into which cells people are sorted by them, which codes are added up, how
the sums become what one person hands over, and how the noisy numbers are read.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from hetdp.core.cells import Bins, Categories, Reading, Sorting, Words
from hetdp.core.domain import CHOICES, GRID, PROMISED, UNSAID, Interval, Ints, missing_of, plain_of
from hetdp.core.intervals import mean_interval
from hetdp.errors import InputError
from hetdp.privacy.exact import Geometry, Line, Mass
from hetdp.report import Figure, Parts, Provenance, Reported

if TYPE_CHECKING:
    from hetdp.core.accuracy import IntervalKind
    from hetdp.core.plan import Plan
UNIT = Interval(0, 1)
CLAMPED = (
    "Values outside the bounds count as the bounds; a code for no answer (99) is a value too unless values= drops it."
)
_MISSING = {"help": "What a missing value counts as: estimate, drop, midpoint, none or a number.", "metavar": "CHOICE"}
_VALUES = {"help": "What a cell stands for, as yes=1; repeat. All other cells are missing.", "metavar": "CELL=NUMBER"}


@dataclass(frozen=True)
class Statistic:
    """What `read`, `plan` and `release` need to know of a statistic. Its fields are public parameters.

    Attributes
    ----------
    value
        The private column, where a table is read. It belongs to the question, not to the statistic: tallies of two
        tables merge although the columns have different names.
    missing
        What is done about missing values, as `CHOICES` has it; None if nothing was said, which means "none". It
        belongs to the tally: a plan is the same for all choices but "estimate".
    values
        {cell: number}, if cells are words that stand for numbers.
    asks_missing, can_drop
        Whether it has to be told about missing values; those that sort people into cells have one for them. Of the
        latter: whether people without a value can leave all the same.
    name, title
        How commands, plans, tallies and reports call it, and what a report is headed with.
    whole, missed
        Whether it is a total over all people instead of an average; of a choice, what it misses by.
    square, marks
        Whether (2x − 1)² is added up beside the first x, and after the codes Q for every column that has a value.
    takes_variance, takes_drift
        Whether a bound on the variance of a value can be stated; whether the bias that comes from ε going with the
        value is known, and a target can be stated: one mean or share.
    """

    value: str | None = field(default=None, kw_only=True, compare=False, repr=False)
    missing: Any = field(default=None, kw_only=True, compare=False, repr=False, metadata=_MISSING)
    values: Any = field(default=None, kw_only=True, compare=False, repr=False, metadata=_VALUES)

    asks_missing: ClassVar[bool] = True
    can_drop: ClassVar[bool] = False
    name: ClassVar[str]
    title: ClassVar[str]
    whole: ClassVar[bool] = False
    square: ClassVar[bool] = False
    marks: ClassVar[bool] = False
    takes_variance: ClassVar[bool] = False
    takes_drift: ClassVar[bool] = False
    missed: ClassVar[str] = "in rank"

    # --- What is read

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the private columns."""
        return () if self.value is None else (self.value,)

    @property
    def named(self) -> str | tuple[str, ...] | None:
        """The private columns as a source takes them: one name, several, or none for values in memory."""
        return self.columns[0] if len(self.columns) == 1 else self.columns or None

    def of(self, value: str | None) -> Self:
        """Return the same of another column; as it is if none is named."""
        return self if value is None else replace(self, value=value)

    def __post_init__(self) -> None:
        object.__setattr__(self, "missing", missing_of(self.missing))
        if self.missing is not None and not (self.asks_missing or (self.can_drop and self.missing == "drop")):
            what = "private bounds take no missing= but 'drop'" if self.can_drop else f"a {self.name} takes no missing="
            raise InputError(f"{what}: what is missing has a cell of its own")
        if self.values is not None:
            object.__setattr__(self, "values", Words.of(self.values))

    def refuse_outside(self, *intervals: Interval) -> None:
        """Raise unless what missing values and words stand for lies within the bounds: outside it would be clamped."""
        given = [self.missing] if isinstance(self.missing, float) else []
        words = [] if self.values is None else list(self.values.numbers)
        for ends in intervals:
            if any(not ends.lo <= number <= ends.hi for number in given):
                zero = "missing='estimate' adds nothing for it" if self.whole else "say missing='estimate'"
                raise InputError(
                    f"a missing value cannot count as {given[0]:,.10g}, outside the bounds {ends}; {zero}. A code for "
                    "missing answers is left out of values={…}, --map CELL=NUMBER"
                )
            if any(not ends.lo <= number <= ends.hi for number in words):
                raise InputError(f"values map a cell to a number outside the bounds {ends}; widen them")

    @property
    def keeps_missing(self) -> bool:
        """Whether those who did not answer are kept apart, in private."""
        return bool(self.missing == "estimate")

    @property
    def unanswered(self) -> int | None:
        """The cell of those who did not answer, if they are kept apart."""
        return self.cells - 1 if self.keeps_missing else None

    def fill(self, interval: Interval) -> int:
        """Return the code of a missing value on an interval, where it counts as something."""
        return GRID // 2 if self.missing is None or isinstance(self.missing, str) else interval.code(self.missing)

    def with_missing(self, missing: Any) -> Self:
        """Return the same with a choice for missing values, where it needs one and has none."""
        return replace(self, missing=missing) if self.missing is None and self.asks_missing else self

    def saying(self, **said: Any) -> Self:
        """Return the same with what is said about missing values and words; as it is where nothing is."""
        return replace(self, **{name: given for name, given in said.items() if given is not None})

    @property
    def reads(self) -> tuple[Reading, ...]:
        """How each private column is read."""
        return (self.sorting,) if isinstance(self.sorting, Categories) else (self.values,)

    @property
    def sums(self) -> tuple[Interval, ...]:
        """The intervals of the columns whose codes are added up; they are the first ones."""
        return ()

    @property
    def coded(self) -> tuple[Interval, ...]:
        """The intervals of the columns that become codes: to be added up, or to be sorted into bins."""
        return (self.sorting.interval,) if isinstance(self.sorting, Bins) else self.sums

    @property
    def sorting(self) -> Sorting | None:
        """How people are sorted into cells, by the last column."""
        return None

    @property
    def cells(self) -> int:
        """The number of cells, with one for those who did not answer if they are kept apart."""
        apart = self.keeps_missing and not isinstance(self.sorting, Categories)
        return (1 if self.sorting is None else self.sorting.size) + apart

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

        A statistic of many cells writes to those of its people alone: a matrix of them all would be mostly zeros.
        """
        np.add.at(total, level, self.totals(cell, people, sums))

    # --- What one person moves, and what that means for the error

    @property
    def geometry(self) -> Geometry:
        """The shape of what one person can move, and of the noise."""
        return Line()

    @property
    def one(self) -> bool:
        """Whether it is one number: a mean, a share or a total."""
        return isinstance(self.geometry, Line)

    @property
    def variance(self) -> float:
        """The largest variance of what one person hands over, all numbers together; `interval` has length 1."""
        return 0.25

    @property
    def idle(self) -> float:
        """The worst squared error of the answer that uses no data."""
        return self.variance

    def useless(self, plan: Plan) -> bool:
        """Say whether a plan is worse than the answer that uses no data, which is then given; a public rule."""
        return plan.errors.worst(plan.variance_bound) > self.idle

    def worst_square(self, plan: Plan) -> float:
        """Return the worst-case mean squared error, on an interval of length 1."""
        return plan.errors.worst(plan.variance_bound)

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
    def private_bounds(self) -> list[Any]:
        """The intervals among the parameters that were found privately (`statistics.bounds`); mostly none."""
        kept = getattr(self, "bounds", None)
        listed = [ends for _, ends in kept] if isinstance(kept, tuple) else [kept]
        return [ends for ends in listed if hasattr(ends, "origin")]

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
        return f"{self.interval.words} {self.interval}"

    @property
    def estimated(self) -> str:
        """What is estimated, in sentences for the small print."""
        raise NotImplementedError

    @property
    def counted(self) -> str | None:
        """What a missing value counts as, in words; None if it has a cell of its own."""
        if not self.asks_missing:
            return None
        whom, middle, shares = self.without, self.halfway, self.marks or isinstance(self.geometry, Mass)
        said = {
            None: f"assumed to be none; {whom} would count as {middle}",
            "none": f"promised to be none; {whom} would count as {middle}{'' if self.marks else PROMISED}",
            "midpoint": f"{whom} count as {middle}{self.unsaid}",
            "drop": f"{whom} are left out; who they are is taken to be public",
            "estimate": f"{whom} are left out; who they are stays private{'' if shares else self.unsaid}",
        }
        return said.get(self.missing) or f"{whom} count as {self.missing:,.10g}{self.unsaid}"

    without: ClassVar[str] = "people without a value that can be read"
    unsaid: ClassVar[str] = UNSAID

    @property
    def halfway(self) -> str:
        """What a missing value counts as where nothing else is said, in words."""
        return f"the midpoint of the bounds, {self.interval.mid:,.12g}"

    @property
    def plain(self) -> dict[str, Any]:
        """The public parameters as plain data, from which the class makes the statistic again."""
        found = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "value"}
        return {name: plain_of(kept) for name, kept in found.items() if kept is not None}

    @classmethod
    def again(cls, parameters: Mapping[str, Any]) -> Self:
        """Return the statistic of these public parameters, as `plain` gives them."""
        try:
            return cls(**parameters)
        except TypeError:
            raise InputError(f"a {cls.name} has other parameters than {', '.join(parameters) or 'none'}") from None


@dataclass(frozen=True)
class Bounded(Statistic):
    """A statistic of one number on a public interval, whose code is added up."""

    bounds: Any = field(metadata={"help": "The public interval of the values; others are clamped."})

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "bounds", Interval.of(self.bounds))
        self.refuse_outside(self.bounds)

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


def one_hot(cell: Ints, people: Ints, width: int) -> Ints:
    """Return Q for everybody in the column of their cell, of shape (rows, width); cells beyond it are dropped."""
    found = np.zeros((cell.size, width + 1), np.int64)
    found[np.arange(cell.size), np.minimum(cell, width)] = GRID * people
    return found[:, :width]


def needs_missing(statistic: Statistic) -> None:
    """Raise unless it is said what a missing value of a table counts as."""
    if statistic.asks_missing and statistic.missing is None:
        raise InputError(f"say what is done about missing values, missing=…, --missing: {CHOICES}")


# What a release gives back: the numbers to publish and everything public about them ----------------------------------


@dataclass(frozen=True, eq=False)
class Answer(Reported):
    """The answer to one question. All of it may be published.

    Attributes
    ----------
    plan, numbers
        The plan that was carried out; what was drawn: the noisy numbers from which everything else is computed.
    notes
        What is assumed about the people behind it, in sentences.
    release_id, ledger
        If a ledger has charged it: the id under which it is stored, and what it cost, as plain data.
    about
        Where it comes from, and when it was released.
    heading, between, holds, apart
        How a table of the numbers is headed, what its intervals are, whether they hold together, and whether the
        numbers have units of their own, so that a picture cannot put them on one axis.
    """

    plan: Plan
    numbers: tuple[float, ...]
    notes: tuple[str, ...] = ()
    release_id: str = ""
    ledger: Mapping[str, Any] = field(default_factory=dict)
    about: Provenance = field(default_factory=Provenance)

    heading: ClassVar[str] = ""
    between: ClassVar[str] = "Interval"
    holds: ClassVar[str] = "all hold at once"
    apart: ClassVar[bool] = False

    @property
    def remarks(self) -> list[tuple[str, str]]:
        """What a report says of these numbers besides their table, as pairs of heading and sentence."""
        return []

    @property
    def provenance(self) -> Provenance:
        """What it is about and where it comes from, with the name of the statistic."""
        return replace(self.about, statistic=self.plan.statistic.name)

    def figures(self, level: float = 0.95) -> list[Figure]:
        """Return the numbers of the report, each with its guaranteed interval."""
        raise NotImplementedError

    def facts(self, level: float) -> dict[str, Any]:
        """Return what the JSON says first: the numbers themselves."""
        rows = [
            {"name": f.label, "estimate": f.estimate, "interval": [f.low, f.high], "uncertain": f.uncertain, **f.about}
            for f in self.figures(level)
        ]
        return {"level": level, "results": rows}

    def to_dict(self, level: float = 0.95) -> dict[str, Any]:
        """Return the answer as plain data, with what a ledger charged if there is one."""
        from hetdp.report.facts import release_facts

        charged = {"ledger": {"release_id": self.release_id, **self.ledger}} if self.release_id else {}
        facts, warnings = release_facts(self, level), list(self.ledger.get("warnings", ()))
        return {**facts, **charged, "warnings": [*facts.get("warnings", ()), *warnings]}

    def parts(self, level: float) -> Parts:
        """Return the report as its parts."""
        from hetdp.report.text import release_parts

        return release_parts(self, level)

    def plot(self, path: Any, level: float = 0.95) -> None:
        """Write a picture of the numbers and their intervals at this `level` to `path`; .png, .svg or .pdf."""
        from pathlib import Path

        from hetdp.report import plots

        plots.save(plots.answer(self, level), Path(path))

    def __repr__(self) -> str:
        shown = ", ".join(f"{f.label if self.heading else 'estimate'}={f.estimate:.6g}" for f in self.figures()[:6])
        how = f"method={self.plan.method!r}{', no data used' * bool(self.plan.abstains)}"
        return f"{type(self).__name__}({shown}, n={self.plan.n}, {how}{', stored' * ('stored' in self.ledger)})"


@dataclass(frozen=True, eq=False, repr=False)
class Release(Answer):
    """One number: a mean, a proportion, a sum, a count.

    Attributes
    ----------
    estimate, unclamped
        The number to publish, clamped to the interval, and as it was drawn. `Answer` has the other attributes.
    """

    @property
    def unclamped(self) -> float:
        """The estimate before it is clamped to the interval: noise can carry it outside."""
        return self.numbers[0]

    @property
    def estimate(self) -> float:
        """The estimate, clamped to the interval: the number to publish."""
        return self.plan.span.clamp(self.unclamped)

    def confidence_interval(self, level: float = 0.95, kind: IntervalKind = "guaranteed") -> tuple[float, float]:
        """Return an interval at a `level` for what is estimated (of a mean: μ of the distribution), within the range.

        The `kind` "guaranteed" holds for every distribution on the interval, or every one whose variance is within the
        stated bound, and every n: it is the means that are not too unlikely given the estimate (`core.intervals`).
        "normal" is the estimate ± `Plan.radius`, and promises nothing for small n.

        Returns
        -------
        tuple[float, float]
            (low, high), in units of the values.
        """
        span, estimate, radius = self.plan.span, self.estimate, self.plan.radius(level, kind)
        low, high = self.unclamped - radius, self.unclamped + radius
        if kind == "guaranteed" and not self.plan.abstains:
            low, high = (
                span.at(Fraction(x)) for x in mean_interval(self.plan, self._fraction, level, *self.numbers[1:])
            )
            doubles = 2 * math.ulp(max(abs(span.lo), abs(span.hi)))  # estimates and ends are doubles
            low, high = low - doubles, high + doubles
        return span.clamp(min(low, estimate)), span.clamp(max(high, estimate))

    @property
    def _fraction(self) -> float:
        """The unclamped estimate on an interval of length 1, far beyond which it is cut off."""
        span = self.plan.span
        exact = (Fraction(self.unclamped) - Fraction(span.lo)) / (Fraction(span.hi) - Fraction(span.lo))
        return float(min(max(exact, Fraction(-(2**60))), Fraction(2**60)))

    def figures(self, level: float = 0.95) -> list[Figure]:
        """Return the one number."""
        p, edge = self.plan, bool(self.plan.noise) and self.estimate != self.unclamped
        ends, error = self.confidence_interval(level), p.worst_case_error
        return [Figure(p.statistic.name, self.estimate, *ends, error, room=p.span.width, edge=edge)]

    def facts(self, level: float) -> dict[str, Any]:
        """Return what the JSON says first."""
        (f,), normal = self.figures(level), self.confidence_interval(level, "normal")
        doubt = {"uncertain": f.uncertain, "at_end": f.edge}
        interval = {"level": level, "guaranteed": [f.low, f.high], "normal": list(normal), **doubt}
        return {"estimate": self.estimate, "unclamped": self.unclamped, "interval": interval}

    def __float__(self) -> float:
        return self.estimate
