"""The mean and the sum: one code a person, which moves the floored sum by at most their weight."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .statistic import Bounded


@dataclass(frozen=True)
class Mean(Bounded):
    """The mean of a bounded number."""

    name: ClassVar[str] = "mean"
    title: ClassVar[str] = "A private mean"
    takes_variance: ClassVar[bool] = True
    target = (
        "The estimate is of the mean μ of the distribution from which these people are drawn independently, not of the "
        "average of these particular rows. Values are clamped to the bounds; a missing one counts as the midpoint."
    )


@dataclass(frozen=True)
class Sum(Mean):
    """The sum of a bounded number over exactly these people: n times their mean. How many they are is public."""

    name: ClassVar[str] = "sum"
    title: ClassVar[str] = "A private sum"
    whole: ClassVar[bool] = True
    target = (
        "The estimate is of the sum over exactly these people, who are taken to be drawn independently from one "
        "distribution. Values are clamped to the bounds; a missing one counts as the midpoint."
    )
