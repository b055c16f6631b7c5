"""The proportion of people with one value, and their count."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

from hetdp.core.cells import Categories

from .statistic import Ints, Statistic, one_hot


@dataclass(frozen=True)
class Proportion(Statistic):
    """The share of people whose value equals one category: the mean of a 1 for them and a 0 for everybody else."""

    equals: Any = field(metadata={"help": "The value that is counted.", "metavar": "VALUE"})

    name: ClassVar[str] = "proportion"
    title: ClassVar[str] = "A private proportion"

    def __post_init__(self) -> None:
        object.__setattr__(self, "equals", self.sorting.plain[0])

    @cached_property
    def sorting(self) -> Categories:
        """The one category, and everything else."""
        return Categories.of([self.equals])

    def totals(self, cell: Ints, people: Ints, sums: Ints) -> Ints:  # noqa: ARG002  nothing is added up
        """Return Q for everybody in the category."""
        return one_hot(cell, people, 1)

    @property
    def setting(self) -> str:
        """What is counted."""
        return f"those whose value is {self.sorting.names[0]!r}"

    @property
    def target(self) -> str:
        """What is estimated."""
        return (
            "The estimate is of the probability in the distribution from which these people are drawn independently, "
            f"not of the share among these particular rows. {_ODD}"
        )


_ODD = "A value that is missing, written in another way or cannot be read does not count as equal."


@dataclass(frozen=True)
class Count(Proportion):
    """How many of exactly these people have one value: n times the proportion. How many they are is public."""

    name: ClassVar[str] = "count"
    title: ClassVar[str] = "A private count"
    whole: ClassVar[bool] = True

    @property
    def target(self) -> str:
        """What is estimated."""
        return (
            "The estimate is of the number among exactly these people, who are taken to be drawn independently from "
            f"one distribution. {_ODD}"
        )
