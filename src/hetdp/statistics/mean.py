"""The mean and its family: sum, proportion and count; and the mean whose interval learns the variance.

Of those who answered the mean is a ratio of shares, and so is the proportion among them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from hetdp.core.accuracy import check_level
from hetdp.core.cells import Categories
from hetdp.core.domain import GRID, UNSAID, WORDS, Interval, Ints
from hetdp.core.intervals import answered_interval, share_intervals
from hetdp.core.levels import Levels, capped, saturation
from hetdp.errors import InputError
from hetdp.estimators import METHODS, Shape
from hetdp.privacy.exact import Geometry, Line, Mass, left_over
from hetdp.report import Figure, number

from .statistic import CLAMPED, UNIT, Answer, Bounded, Release, Statistic, one_hot

if TYPE_CHECKING:
    from hetdp.core.plan import Plan

ANSWERED = (1.0, 0.8, 0.5)
"""The shares of people who answer at which the error of a plan is shown."""

ANSWERING = "if ε tells nothing about who answers"
"""What the interval of the share who answered needs, also where a drift was stated."""


class Ratio(Statistic):
    """A mean or proportion that can be one of those who answered alone.

    With missing="estimate" everybody hands over one unit, spread over three cells in this order: upper, lower, missing.
    Who has the value x (on an interval of length 1) puts x into the upper and 1 − x into the lower one; the mean of
    those who answered is upper/(upper + lower). ρ is then 20 and not that of the cells: the ratio's own is 10/r for a
    share r of answers, and too large a ρ costs little where too small a one costs much. Otherwise it is one number.
    """

    @property
    def geometry(self) -> Geometry:
        """One number, or a weight that is moved between three cells."""
        return Mass(3) if self.keeps_missing else Line()

    @property
    def variance(self) -> float:
        """The largest variance of one person, of the three cells together if there are three."""
        return 2 / 3 if self.keeps_missing else 0.25

    @property
    def rho(self) -> float:
        """See above."""
        return 20.0 if self.keeps_missing else super().rho

    @property
    def nothing(self) -> tuple[float, ...]:
        """The midpoint, or even shares."""
        return (1 / 3,) * 3 if self.keeps_missing else super().nothing

    def answer(self, plan: Plan, numbers: Sequence[float], notes: Sequence[str] = ()) -> Release | AnsweredMean:
        """Return the number; of those who answered, with their share."""
        kind = AnsweredMean if self.keeps_missing else Release
        return kind(plan, tuple(numbers), tuple(notes))

    def error_answered(self, plan: Plan, share: float) -> float:
        """Return the worst root mean squared error when this share of people answers, in units of the values.

        About: with r the share and z the noise of scale η the estimate misses by [Σw·M(x − m) + (1 − m)z₁ − m·z₂]/r,
        whose mean square is at most A/(4r) + (10/3)η²(1 − m + m²)/r²; the sampling part is largest at m = ½, the
        noise at an end. Where the means of levels differ by a stated drift D, people are up to ¼ + D² from m on the
        average square, and the square of the bias D·δ/r comes on top (docs/proofs/family.md). An answer that uses no
        data is off by half of the range.
        """
        squares, eta = plan.errors.spread, plan.errors.scales[0] if plan.errors.scales else 0.0
        apart = plan.drift if plan.bias_share > 1e-12 else 0.0  # if all count alike, levels do not matter
        middle = squares * (0.25 + apart**2) / share + 2.5 * eta**2 / share**2
        own = 0.0 if plan.abstains else max(middle, 10 / 3 * eta**2 / share**2)
        return min(math.hypot(math.sqrt(own), self.bias_answered(plan, share)), 1.0) * self.interval.width

    def bias_answered(self, plan: Plan, share: float) -> float:
        """Return the largest bias at the stated drift when this share answers, on an interval of length 1.

        It is D·δ/r, and not above D: what is estimated and what is meant are both means of those of the levels.
        """
        return 0.5 if plan.abstains else plan.drift * min(plan.bias_share / share, 1.0)

    def worst_square(self, plan: Plan) -> float:
        """Return the worst-case mean squared error, on an interval of length 1; of answers, if everybody does."""
        if not self.keeps_missing:
            return super().worst_square(plan)
        return (self.error_answered(plan, 1.0) / self.interval.width) ** 2


@dataclass(frozen=True)
class Mean(Ratio, Bounded):
    """The mean of a bounded number."""

    name: ClassVar[str] = "mean"
    title: ClassVar[str] = "A private mean"
    takes_variance: ClassVar[bool] = True
    takes_drift: ClassVar[bool] = True

    def totals(self, cell: Ints, people: Ints, sums: Ints) -> Ints:
        """Return the sum of the codes, or the three shares, which add up to Q for each person."""
        if not self.keeps_missing:
            return sums
        there, whole = cell == 0, GRID * people
        upper = np.where(there, sums[:, 0], 0)
        return np.stack([upper, np.where(there, whole - upper, 0), np.where(there, 0, whole)], axis=1)

    @property
    def estimated(self) -> str:
        """What is estimated."""
        who = " of those who answered," if self.keeps_missing or self.missing == "drop" else ""
        return (
            f"The estimate is of the mean μ of values clipped to {self.interval}{who}, in the distribution from which "
            f"these people are drawn independently, not of the average of these particular rows. {CLAMPED}"
        )


@dataclass(frozen=True)
class Sum(Bounded):
    """The sum of a bounded number over exactly these people: n times their mean. How many they are is public.

    With missing="estimate" it is the total of those who answered: a missing value adds 0, so the interval on which
    values are coded is widened to 0, and one number is enough.
    """

    name: ClassVar[str] = "sum"
    title: ClassVar[str] = "A private sum"
    whole: ClassVar[bool] = True
    takes_variance: ClassVar[bool] = True
    takes_drift: ClassVar[bool] = True
    keeps_missing: ClassVar[bool] = False  # who did not answer adds 0

    @property
    def interval(self) -> Interval:
        """The public interval of what a person adds."""
        ends: Interval = self.bounds
        return Interval(min(ends.lo, 0.0), max(ends.hi, 0.0)) if self.missing == "estimate" else ends

    def fill(self, interval: Interval) -> int:
        """Return the code of what a missing value adds."""
        return interval.code(0.0) if self.missing == "estimate" else super().fill(interval)

    @property
    def counted(self) -> str:
        """What a missing value counts as."""
        return f"{self.without} add 0{UNSAID}" if self.missing == "estimate" else str(super().counted)

    @property
    def estimated(self) -> str:
        """What is estimated."""
        who = "those of these people who answered" if self.missing in ("estimate", "drop") else "exactly these people"
        return (
            f"The estimate is of the sum over {who}, who are taken to be drawn independently from one distribution. "
            f"{CLAMPED}"
        )


@dataclass(frozen=True, eq=False, repr=False)
class AnsweredMean(Answer):
    """The mean of those who answered, or a proportion among them, and their share of all people.

    Attributes
    ----------
    estimate, share
        The number to publish; the share of people who answered. `share_condition` is what its interval needs.
    plan, numbers, notes, release_id, ledger, about
        As for `Answer`.
    """

    heading: ClassVar[str] = "Of those who answered"
    apart: ClassVar[bool] = True

    @property
    def holds(self) -> str:  # type: ignore[override]  # it depends on the plan
        """How the two intervals hold. A drift is about the values alone, so it says nothing about who answers."""
        only = self.share_condition if self.plan.drift else None
        return "each by itself" + (f", that of the share who answered {only}" if only else "")

    @property
    def share_condition(self) -> str | None:
        """Under which condition the interval of the share who answered holds; None if people count alike."""
        return ANSWERING if self.plan.bias_share > 1e-9 else None

    @property
    def share(self) -> float:
        """The share of people who answered."""
        return min(max(self.numbers[0] + self.numbers[1], 0.0), 1.0)

    @property
    def estimate(self) -> float:
        """The number to publish; the midpoint if the noise leaves nobody who answered."""
        return ratio(self.numbers[0], self.numbers[1], self.plan.statistic.interval)

    def confidence_interval(self, level: float = 0.95) -> tuple[float, float]:
        """Return a guaranteed interval for the mean of those who answered; see `core.intervals.answered_interval`.

        Returns
        -------
        tuple[float, float]
            (low, high), in units of the values.
        """
        return ratio_interval(self.plan, self.numbers[0], self.numbers[1], level)

    def figures(self, level: float = 0.95) -> list[Figure]:
        """Return mean and share; each interval holds by itself."""
        low, high = self.confidence_interval(level)
        least, most = share_intervals(self.plan, self.numbers, level)[2]
        share = Figure("answered", self.share, 1 - most, 1 - least, self.plan.error_each)
        error, room = (high - low) / 4, self.plan.statistic.interval.width
        edge = not self.plan.abstains and min(self.numbers[:2]) < 0 < sum(
            self.numbers[:2]
        )  # half of the shares is noise
        return [Figure(self.plan.statistic.name, self.estimate, low, high, error, room=room, edge=edge), share]

    def facts(self, level: float) -> dict[str, Any]:
        """Return what the JSON says first."""
        (mean, share) = self.figures(level)
        return {
            "estimate": mean.estimate,
            "level": level,
            "interval": [mean.low, mean.high],
            "uncertain": mean.uncertain,
            "at_end": mean.edge,
            "answered": {
                "estimate": share.estimate,
                "interval": [share.low, share.high],
                "uncertain": share.uncertain,
                "condition": self.share_condition,
            },
        }

    def __float__(self) -> float:
        return self.estimate


def answered_line(share: float | None, plan: Plan) -> list[tuple[str, str]]:
    """Return the line of a report on the released share of people who answered; none where nobody is kept apart."""
    if share is None or plan.abstains:
        return []
    return [("Answered", f"{number(100 * share, 100 * plan.error_each)}% of all people")]


def ratio(upper: float, lower: float, interval: Interval) -> float:
    """Return the mean of a cell from the shares of its halves; the midpoint if there seems to be nobody."""
    whole = upper + lower
    return interval.clamp(interval.lo + interval.width * (upper / whole)) if whole > 0 else interval.mid


@lru_cache(maxsize=64)  # a report asks several times for the same one
def ratio_interval(plan: Plan, upper: float, lower: float, level: float) -> tuple[float, float]:
    """Return a guaranteed interval for the mean of a cell, in units of the values, with the estimate in it.

    Where levels of ε may differ by a stated drift it is the set of m with |upper − m·(upper + lower)| ≤ r, r the radius
    of one cell with the bias D·δ in it (docs/proofs/family.md, claim 11a): that holds whatever the answering rates are.
    """
    check_level(level)
    low, high = answered_interval(plan, upper, lower, level)
    if plan.drift and not plan.abstains and upper + lower > 0:
        r, whole = plan.radius(level), upper + lower
        low, high = (upper - r) / whole, (upper + r) / whole
    interval, at = plan.statistic.interval, ratio(upper, lower, plan.statistic.interval)
    ends = (interval.clamp(interval.lo + interval.width * end) for end in (low, high))
    return min(next(ends), at), max(next(ends), at)


# Proportion and count -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Proportion(Ratio):
    """The share of people whose value equals one category: the mean of a 1 for them and a 0 for everybody else."""

    equals: Any = field(metadata={"help": "The value that is counted.", "metavar": "VALUE"})

    name: ClassVar[str] = "proportion"
    title: ClassVar[str] = "A private proportion"
    takes_drift: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.values is not None:
            raise InputError(f"a {self.name} compares cells as they are written; leave out values=")
        self.refuse_outside(UNIT)
        object.__setattr__(self, "equals", self.sorting.plain[0])

    @cached_property
    def sorting(self) -> Categories:
        """The one category, everything else, and what is missing."""
        return Categories.of([self.equals], apart=True, words=not self.promised)

    @property
    def promised(self) -> bool:
        """Whether nobody is said to be missing: then "none" and the like are answers, as any other text."""
        return self.missing in (None, "none")

    unanswered: ClassVar[None] = None  # what is missing has a cell in any case
    without: ClassVar[str] = "people without an answer"
    halfway: ClassVar[str] = "half a person who has it"
    unsaid: ClassVar[str] = (
        ". How many they are is not published; a proportion with missing='estimate' says it beside the number"
    )

    @property
    def counted(self) -> str:
        """What a missing value counts as."""
        said = {0.0: f"{self.without} do not count as equal", 1.0: f"{self.without} count as equal"}
        said = {missing: words + self.unsaid for missing, words in said.items()}
        return f"{said.get(self.missing) or super().counted}. {self.no_answer}"

    @property
    def no_answer(self) -> str:
        """Which cells have no answer, in words."""
        if self.promised:
            return "Any text that is not blank is an answer, also NA or none; a date and bytes are not"
        words = " ".join(word for word in WORDS if word not in self.sorting.names)
        return f"No answer is a cell that is empty, neither text nor number, or one of these in any case: {words}"

    def totals(self, cell: Ints, people: Ints, sums: Ints) -> Ints:  # noqa: ARG002  nothing is added up
        """Return Q for everybody in the category, or for everybody in the column of their cell."""
        if self.keeps_missing:
            return one_hot(cell, people, 3)
        return np.choose(cell, [GRID, 0, self.fill(UNIT)])[:, None] * people[:, None]

    @property
    def setting(self) -> str:
        """What is counted."""
        return f"those whose value is {self.sorting.names[0]!r}{self.sorting.alike}"

    @property
    def estimated(self) -> str:
        """What is estimated."""
        who = " among those who answered" if self.missing in ("estimate", "drop") else ""
        return (
            f"The estimate is of the probability{who} in the distribution from which these people are drawn "
            f"independently, not of the share among these particular rows. {_ODD}"
        )


_ODD = "A value that is written in another way does not count as equal, unless it is the same number."


@dataclass(frozen=True)
class Count(Proportion):
    """How many of exactly these people have one value: n times the proportion. How many they are is public."""

    name: ClassVar[str] = "count"
    title: ClassVar[str] = "A private count"
    whole: ClassVar[bool] = True
    keeps_missing: ClassVar[bool] = False  # who did not answer is not counted

    @property
    def counted(self) -> str:
        """What a missing value counts as."""
        none = f"{self.without} are not counted{self.unsaid}. {self.no_answer}"
        return none if self.missing == "estimate" else super().counted

    def fill(self, interval: Interval) -> int:
        """Return the code of what a missing value adds."""
        return 0 if self.missing == "estimate" else super().fill(interval)

    @property
    def estimated(self) -> str:
        """What is estimated."""
        who = "those of these people who answered" if self.missing in ("estimate", "drop") else "exactly these people"
        return (
            f"The estimate is of the number among {who}, who are taken to be drawn independently from one "
            f"distribution. {_ODD}"
        )


# A mean whose interval learns the variance ----------------------------------------------------------------------------


@dataclass(frozen=True)
class LearnedMean(Mean):
    """The mean, and beside it the mean of (2x − 1)² that bounds the variance in its interval.

    Two codes a person, q and ⌊(2q − Q)²/Q⌋, each with a plan of its own: people spend on the second only what the first
    leaves over. So the estimate is that of a mean without it.
    """

    square: ClassVar[bool] = True
    width: ClassVar[int] = 2  # the value and its square


@dataclass(frozen=True)
class Square(Bounded):
    """The mean of (2x − 1)²: what the second plan of a `LearnedMean` is for."""

    name: ClassVar[str] = "square"
    title: ClassVar[str] = "A private mean of squares"
    estimated: ClassVar[str] = (
        "The mean of (2x − 1)² in the distribution from which these people are drawn independently."
    )


SHARED = "the variance is learned from what is left of everybody's ε, which private bounds share"


def learned(statistic: Statistic) -> LearnedMean:
    """Return the mean that learns its variance; no other statistic can."""
    if isinstance(statistic, LearnedMean):
        return statistic
    if type(statistic) is not Mean:
        raise InputError(f"the variance can be learned for a mean of one column, not for a {statistic.name}")
    if statistic.private_bounds:
        raise InputError(SHARED)
    if statistic.keeps_missing:
        raise InputError("the variance of those who answered cannot be learned; leave out variance='learn'")
    asked = {"value": statistic.value, "missing": statistic.missing, "values": statistic.values}
    return LearnedMean(statistic.bounds, **asked)


def with_squares(mean: Plan, drawn_plan: Callable[..., Plan | None]) -> Plan:
    """Return a plan of a mean with the second one, which learns the variance from what the mean leaves over.

    Its weights are those of ADPM for that rest. It is left out where nobody has any. `drawn_plan` makes a plan with its
    noise, as `hetdp.core.plan` does.
    """
    if mean.abstains:  # nothing is spent
        return mean
    if METHODS[mean.method].needs_records or mean.share != 1:
        raise InputError("the variance is learned from people's remaining ε; that needs a method with one noise")
    levels = mean.levels
    rest = left_over(mean.costs, mean.noise, levels.epsilon)
    merged = Levels.from_arrays(rest, levels.count)
    cap = saturation(merged.epsilon, merged.count, rho=8.0)
    squares = Square(mean.statistic.interval)
    drawn = None
    if merged.active:
        limit = np.where(np.isinf(rest), np.inf, rest)
        shape = Shape(capped(limit, cap), threshold=cap)
        drawn = drawn_plan("adpm", levels, squares, shape, {"variance_bound": 0.25, "share": 1.0}, rest)
    return mean if drawn is None else replace(mean, squares=drawn)
