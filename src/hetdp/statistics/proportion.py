"""The proportion of people with one value, and their count."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from hetdp.core.cells import Categories
from hetdp.core.domain import GRID, WORDS, Interval
from hetdp.errors import InputError

from .mean import Ratio
from .statistic import UNIT, Ints, one_hot


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

    without: ClassVar[str] = "people without an answer"
    halfway: ClassVar[str] = "half a person who has it"

    @property
    def counted(self) -> str:
        """What a missing value counts as."""
        said = {0.0: f"{self.without} do not count as equal", 1.0: f"{self.without} count as equal"}
        return f"{said.get(self.missing) or super().counted}. {self.no_answer}"

    @property
    def no_answer(self) -> str:
        """Which cells have no answer, in words."""
        if self.promised:
            return "Any text that is not blank is an answer, also NA or none; a date and bytes are not"
        words = " ".join(word for word in WORDS if word not in self.sorting.names)
        return f"No answer is a cell that is empty, neither text nor number, or one of these in any case: {words}"

    @property
    def unanswered(self) -> None:
        """What is missing has a cell in any case."""
        return

    def totals(self, cell: Ints, people: Ints, sums: Ints) -> Ints:  # noqa: ARG002  nothing is added up
        """Return Q for everybody in the category, or for everybody in the column of their cell."""
        if self.keeps_missing:
            return one_hot(cell, people, 3)
        return np.choose(cell, [GRID, 0, self.fill(UNIT)])[:, None] * people[:, None]

    @property
    def setting(self) -> str:
        """What is counted."""
        return f"those whose value is {self.sorting.names[0]!r}"

    @property
    def estimated(self) -> str:
        """What is estimated."""
        who = " among those who answered" if self.missing in ("estimate", "drop") else ""
        return (
            f"The estimate is of the probability{who} in the distribution from which these people are drawn "
            f"independently, not of the share among these particular rows. {_ODD}"
        )


_ODD = "A value that is written in another way does not count as equal."


@dataclass(frozen=True)
class Count(Proportion):
    """How many of exactly these people have one value: n times the proportion. How many they are is public."""

    name: ClassVar[str] = "count"
    title: ClassVar[str] = "A private count"
    whole: ClassVar[bool] = True

    @property
    def keeps_missing(self) -> bool:
        """No: who did not answer is not counted."""
        return False

    @property
    def counted(self) -> str:
        """What a missing value counts as."""
        unsaid = "How many they are is not published; a proportion with missing='estimate' says it beside the number"
        none = f"{self.without} are not counted. {unsaid}. {self.no_answer}"
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
