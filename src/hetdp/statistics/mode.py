"""The mode: the cell in which most people are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from hetdp.core.accuracy import check_level
from hetdp.privacy.exact import Choice
from hetdp.report.about import Figure

from .histogram import Celled
from .statistic import Answer

if TYPE_CHECKING:
    from hetdp.core.plan import Plan


@dataclass(frozen=True)
class Commonest(Celled):
    """The cell with the largest share. A person is in one cell, so they move every score, its weight, by at most W.

    Two scores differ for one person by at most W in either direction: the variance of one person is at most 1/4.
    """

    name: ClassVar[str] = "mode"
    title: ClassVar[str] = "A private mode"
    missed: ClassVar[str] = "below the largest share"

    @property
    def geometry(self) -> Choice:
        """One choice."""
        return Choice()

    @property
    def idle(self) -> float:
        """An answer without data can be a cell with nobody where everybody is in another one."""
        return 1.0

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
            "The mode is that of the distribution from which these people are drawn independently. What is missing, "
            f"unknown or unreadable is in the cell '{self.sorting.labels[-1]}', which can be the mode as well."
        )


@dataclass(frozen=True, eq=False, repr=False)
class Mode(Answer):
    """The cell in which most people are."""

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
        return {"estimate": self.estimate, "level": level, "at_most_below_the_largest": self.shortfall(level)}

    def __repr__(self) -> str:
        return f"Mode({self.estimate!r}, n={self.plan.n}, method={self.plan.method!r})"
