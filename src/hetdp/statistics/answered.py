"""Means of those who answered, and means by a private group: shares of cells that a number splits in two.

Everybody hands over one unit, spread over cells: who has the value x (on an interval of length 1) puts x into the upper
half and 1 − x into the lower half of their cell. A mean is then upper/(upper + lower).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from hetdp.core.cells import Answered, Categories
from hetdp.core.domain import GRID, Interval
from hetdp.core.geometry import Mass
from hetdp.errors import InputError

from .answer import Groups
from .statistic import Answer, Bounded, Figure, Ints

if TYPE_CHECKING:
    from hetdp.core.plan import Plan


@dataclass(frozen=True)
class MeanAnswered(Bounded):
    """The mean of those who answered; who did is private.

    Three cells in this order: upper, lower, missing. ρ is 20 and not that of the cells: the ratio's own is 10/r for a
    share r of answers, and too large a ρ costs little where too small a one costs much.
    """

    name: ClassVar[str] = "mean_answered"
    title: ClassVar[str] = "A private mean of those who answered"

    @property
    def sorting(self) -> Answered:
        """Whether there is a number."""
        return Answered()

    def totals(self, cell: Ints, people: Ints, sums: Ints) -> Ints:
        """Return the three shares, which add up to Q for each person."""
        there = cell == 0
        upper, whole = np.where(there, sums[:, 0], 0), GRID * people
        return np.stack([upper, np.where(there, whole - upper, 0), np.where(there, 0, whole)], axis=1)

    @property
    def geometry(self) -> Mass:
        """A weight that is moved between cells."""
        return Mass(3)

    @property
    def variance(self) -> float:
        """The largest total variance of the cells."""
        return 2 / 3

    @property
    def rho(self) -> float:
        """See above."""
        return 20.0

    @property
    def nothing(self) -> tuple[float, ...]:
        """Even shares."""
        return (1 / 3,) * 3

    def answer(self, plan: Plan, numbers: Sequence[float], notes: Sequence[str] = ()) -> AnsweredMean:
        """Return the mean and the share who answered."""
        return AnsweredMean(plan, tuple(numbers), tuple(notes))

    @property
    def target(self) -> str:
        """What is estimated."""
        return (
            "The mean is of those who answered, in the distribution from which these people are drawn independently; "
            "who answered stays private. Values are clamped to the bounds."
        )


@dataclass(frozen=True, eq=False, repr=False)
class AnsweredMean(Answer):
    """The mean of those who answered, and their share."""

    heading: ClassVar[str] = "Of those who answered"
    holds: ClassVar[str] = "each by itself"
    apart: ClassVar[bool] = True

    @property
    def share(self) -> float:
        """The share of people who answered."""
        return min(max(self.numbers[0] + self.numbers[1], 0.0), 1.0)

    @property
    def estimate(self) -> float:
        """The mean; the midpoint if the noise leaves nobody who answered."""
        return ratio(self.numbers[0], self.numbers[1], self.plan.statistic.interval)

    def confidence_interval(self, level: float = 0.95) -> tuple[float, float]:
        """Return an interval for the mean of those who answered."""
        return ratio_interval(self.numbers[0], self.numbers[1], self.plan.radius(level), self.plan.statistic.interval)

    def figures(self, level: float = 0.95) -> list[Figure]:
        """Return mean and share; each interval holds by itself."""
        low, high = self.confidence_interval(level)
        r = self.plan.radius(level)
        there = 1 - self.numbers[2]
        share = Figure("answered", self.share, max(there - r, 0.0), min(there + r, 1.0), self.plan.error_each)
        return [Figure("mean", self.estimate, low, high, (high - low) / 4), share]

    def __float__(self) -> float:
        return self.estimate


def ratio(upper: float, lower: float, interval: Interval) -> float:
    """Return the mean of a cell from the shares of its halves; the midpoint if there seems to be nobody."""
    whole = upper + lower
    return interval.clamp(interval.lo + interval.width * (upper / whole)) if whole > 0 else interval.mid


def ratio_interval(upper: float, lower: float, r: float, interval: Interval) -> tuple[float, float]:
    """Return the means m that the noisy halves allow: |upper − m·(upper + lower)| ≤ r.

    Argument. At the true mean m of a cell, (1 − m)·upper − m·lower has expectation 0. One person moves it by their
    weight times a number in an interval of length 1, as they move a cell; and its noise, (1 − m)·z₁ − m·z₂, has by
    convexity no larger a moment generating function than z₁ or −z₂. So it is within the radius of a single cell. No
    union over the cells is needed, because only the true m has to be in the interval.
    """
    whole = upper + lower
    if whole <= 0:
        return interval.lo, interval.hi
    low, high = ((upper - r) / whole, (upper + r) / whole)
    return interval.clamp(interval.lo + interval.width * low), interval.clamp(interval.lo + interval.width * high)


@dataclass(frozen=True)
class MeanByGroup(Bounded):
    """Means by a group that is itself private: 2k cells (group, half). Cost and sampler are those of a histogram."""

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
    def reads(self) -> tuple[Categories | None, ...]:
        """Numbers and groups."""
        return None, self.sorting

    @cached_property
    def sorting(self) -> Categories:
        """The groups."""
        return Categories.of(self.categories)

    def totals(self, cell: Ints, people: Ints, sums: Ints) -> Ints:
        """Return the halves of each group, which add up to Q for each person."""
        found = np.zeros((cell.size, self.width), np.int64)
        row = np.arange(cell.size)
        found[row, 2 * cell] = sums[:, 0]
        found[row, 2 * cell + 1] = GRID * people - sums[:, 0]
        return found

    @property
    def geometry(self) -> Mass:
        """A weight that is moved between cells."""
        return Mass(2 * self.cells)

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
        ends = f"values in [{self.interval.lo:,.10g}, {self.interval.hi:,.10g}]"
        return f"{ends}, {self.cells - 1:,} private groups and '{self.sorting.labels[-1]}'"

    @property
    def target(self) -> str:
        """What is estimated."""
        return (
            "The means are those of the groups in the distribution from which these people are drawn independently; "
            "who is in which group stays private. Values are clamped to the bounds; a missing one counts as the "
            f"midpoint. A group that is missing or unknown is '{self.sorting.labels[-1]}'."
        )


@dataclass(frozen=True)
class GroupMean:
    """The mean of one private group, its interval by itself, and the group's share of people."""

    estimate: float
    interval: tuple[float, float]
    share: float

    def __float__(self) -> float:
        return self.estimate


@dataclass(frozen=True, eq=False, repr=False)
class GroupMeans(Answer, Groups):
    """{group: mean}, all of one release."""

    heading: ClassVar[str] = "Private group"
    holds: ClassVar[str] = "each by itself"

    def __post_init__(self) -> None:
        object.__setattr__(self, "composition", "Who is in which group is private; all means are of one release.")
        for label, figure in zip(self._labels, self.figures(), strict=True):
            found = GroupMean(figure.estimate, (figure.low, figure.high), figure.about["share"])
            dict.__setitem__(self, label, found)  # type: ignore[misc]  # a group here has no release of its own

    @property
    def _labels(self) -> tuple[str, ...]:
        return self.plan.statistic.sorting.labels  # type: ignore[union-attr]  # it answers no other

    def confidence_interval(self, level: float = 0.95) -> dict[str, tuple[float, float]]:
        """Return an interval for each mean; each holds by itself with this probability."""
        return {f.label: (f.low, f.high) for f in self.figures(level)}

    def figures(self, level: float = 0.95) -> list[Figure]:
        """Return the means, with the share of each group."""
        r, interval, found = self.plan.radius(level), self.plan.statistic.interval, []
        for i, label in enumerate(self._labels):
            upper, lower = self.numbers[2 * i : 2 * i + 2]
            low, high = ratio_interval(upper, lower, r, interval)
            about = {"share": min(max(upper + lower, 0.0), 1.0)}
            found.append(Figure(label, ratio(upper, lower, interval), low, high, (high - low) / 4, about))
        return found

    __repr__ = Answer.__repr__
