"""Means by a private group: shares of cells that a number splits in two.

Everybody hands over one unit, spread over cells: who has the value x (on an interval of length 1) puts x into the upper
half and 1 − x into the lower half of the cell of their group. A mean is then upper/(upper + lower).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from hetdp.core.cells import Categories, Reading
from hetdp.core.domain import GRID, plural
from hetdp.errors import InputError
from hetdp.privacy.exact import Mass
from hetdp.report.about import Figure

from .answer import Groups
from .mean import ratio, ratio_interval
from .statistic import Answer, Bounded, Ints

if TYPE_CHECKING:
    from hetdp.core.plan import Plan


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
        ends = f"{self.interval.words} {self.interval}"
        return f"{ends}, {plural(self.sorting.size - 1, 'private group')} and '{self.sorting.labels[-1]}'"

    @property
    def estimated(self) -> str:
        """What is estimated."""
        return (
            "The means are those of the groups in the distribution from which these people are drawn independently; "
            "who is in which group stays private. Values are clamped to the bounds. "
            f"A group that is missing or unknown is '{self.sorting.labels[-1]}'."
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
            dict.__setitem__(self, label, found)  # a group here has no release of its own

    @property
    def _labels(self) -> tuple[str, ...]:
        return self.plan.statistic.sorting.labels  # type: ignore[union-attr]  # it answers no other

    def confidence_interval(self, level: float = 0.95) -> dict[str, tuple[float, float]]:
        """Return an interval for each mean; each holds by itself with this probability."""
        return {f.label: (f.low, f.high) for f in self.figures(level)}

    def figures(self, level: float = 0.95) -> list[Figure]:
        """Return the means, with the share of each group."""
        interval, found = self.plan.statistic.interval, []
        for i, label in enumerate(self._labels):
            upper, lower = self.numbers[2 * i : 2 * i + 2]
            low, high = ratio_interval(self.plan, upper, lower, level)
            about = {"share": min(max(upper + lower, 0.0), 1.0)}
            mean, error = ratio(upper, lower, interval), (high - low) / 4
            found.append(Figure(label, mean, low, high, error, about, room=interval.width))
        return found

    def to_frame(self, level: float = 0.95) -> Any:
        """Return a Polars frame with a row for each private group: estimate, interval, share of people."""
        import polars as pl

        found = self.figures(level)
        rows = [{"group": f.label, "estimate": f.estimate, "low": f.low, "high": f.high, **f.about} for f in found]
        return pl.DataFrame(rows)

    __repr__ = Answer.__repr__
