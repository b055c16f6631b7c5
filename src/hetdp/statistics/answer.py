"""Several answers: of public groups, and to several questions about the same people."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hetdp.core.domain import jsonable

from .statistic import Answer, Reported

if TYPE_CHECKING:
    from hetdp.report.text import Parts

CHECKED = (
    "Each person is in one group, so their value enters one of these results only (parallel composition): the whole "
    "table protects everybody at their own ε. Who is in which group is public."
)
ASSUMED = (
    "Assumed: every row is another person, so that a value enters one of these results only. It was not checked, "
    "because no column of ids was named: somebody with rows in several groups spends the sum over them. Who is in "
    "which group is public."
)
"""What a table of groups promises as a whole: with a column of ids, and without."""


class Groups(Reported, dict[str, Answer]):
    """{group: answer}, in the order of the groups. All of it may be published.

    Attributes
    ----------
    composition
        What is promised for the table as a whole, in a sentence; the loss is in one group only if ids were checked.
    """

    def __init__(self, releases: Mapping[str, Answer], *, checked: bool) -> None:
        super().__init__(releases)
        self.composition = CHECKED if checked else ASSUMED

    def to_dict(self, level: float = 0.95) -> dict[str, Any]:
        """Return the answers as plain data."""
        groups = {name: release.to_dict(level) for name, release in self.items()}
        return {"groups": groups, "composition": self.composition}

    def parts(self, level: float) -> Parts:
        """Return a table of the groups, and what is promised for it as a whole."""
        from hetdp.report.text import group_parts

        return group_parts(self, level)

    def __repr__(self) -> str:
        return f"Groups({{{', '.join(f'{name!r}: {release!r}' for name, release in self.items())}}})"


class Answers(Reported, dict[str, Answer]):
    """{question: answer}, all about the same people, who spend their ε once on all of them.

    Attributes
    ----------
    shares
        The share of everybody's ε that each question could use.
    """

    def __init__(self, answers: Mapping[str, Answer], shares: Mapping[str, float]) -> None:
        super().__init__(answers)
        self.shares = dict(shares)

    @property
    def spent(self) -> dict[float, float]:
        """{ε: what a person of this level spends on all questions together}, rounded up; never above ε.

        The exact sum is not above ε (`privacy.exact.check_together`), so neither of the two is below it.
        """
        levels = next(iter(self.values())).plan.levels
        parts = [answer.plan.spent.tolist() for answer in self.values()]
        rows = zip(levels.epsilon.tolist(), *parts, strict=True)
        return {e: min(math.nextafter(math.fsum(each), math.inf), e) if any(each) else 0.0 for e, *each in rows}

    def to_dict(self, level: float = 0.95) -> dict[str, Any]:
        """Return the answers as plain data."""
        answers = {name: answer.to_dict(level) for name, answer in self.items()}
        spent = [{"epsilon": epsilon, "spent": spent} for epsilon, spent in self.spent.items()]
        return dict(jsonable({"answers": answers, "shares": self.shares, "spent_together": spent}))

    def parts(self, level: float) -> Parts:
        """Return all answers, and what is spent on them together."""
        from hetdp.report.text import answers_parts

        return answers_parts(self, level)

    def __repr__(self) -> str:
        return f"Answers({{{', '.join(f'{name!r}: {answer!r}' for name, answer in self.items())}}})"
