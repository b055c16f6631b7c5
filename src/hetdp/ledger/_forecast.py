"""Forecast: how often the same release can be made before budgets run out, by making it on paper."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from hetdp.errors import InputError

from ._amounts import UNLIMITED, Rule, in_epsilon
from ._book import Book
from ._charge import Parts, intended

MOST = 10_000


@dataclass(frozen=True)
class Step:
    """One future release: its error, how many people still have weight, what each tier has left before it, in ε."""

    number: int
    worst_case_error: float
    people: int
    abstains: bool
    left: Mapping[str, float]


@dataclass(frozen=True)
class Forecast:
    """What would happen if one release was made again and again.

    Attributes
    ----------
    steps
        The releases, one after the other; the last is the first that would use no data, unless none is looked for
        that far.
    lasts
        For each tier with a limit: how many releases it takes part in; None if more than were looked at.
    """

    rule: str
    steps: tuple[Step, ...]
    lasts: Mapping[str, int | None] = field(default_factory=dict)

    @property
    def releases(self) -> int:
        """The number of releases that use data, of those looked at."""
        return sum(not step.abstains for step in self.steps)

    def to_dict(self) -> dict[str, Any]:
        """Return the forecast as plain data; infinities are written "inf"."""
        return {**asdict(self), "releases": self.releases}

    def __str__(self) -> str:
        looked = len(self.steps)
        lines = [f"With {self.rule} you can publish {_count(self.releases, looked, self.steps)}."]
        for tier, lasts in sorted(self.lasts.items(), key=lambda item: math.inf if item[1] is None else item[1]):
            more = f"{looked} more releases do not use up" if lasts is None else f"{lasts} more releases use up"
            lines.append(f"  {more} {tier}")
        used = [step for step in self.steps if not step.abstains]
        if used:
            first, last = used[0].worst_case_error, used[-1].worst_case_error
            lines.append(
                f"The worst-case error is ± {first:.4g} in the next release and ± {last:.4g} in the last of these."
            )
        return "\n".join(lines)


def _count(releases: int, looked: int, steps: tuple[Step, ...]) -> str:
    more = "or more " if releases == looked and steps else ""
    return f"{releases} {more}releases from the data"


def forecast(book: Book, rule: Rule, ask: Mapping[str, Any], releases: int) -> Forecast:
    """Return what happens if everybody enrolled takes part in the same release, at most so many times."""
    if not isinstance(releases, int) or not 1 <= releases <= MOST:
        raise InputError(f"look from 1 to {MOST:,} releases ahead (got {str(releases)[:64]})")
    if not book.people:
        raise InputError("there is nobody here (n = 0); enrol people first")
    steps: list[Step] = []
    lasts: dict[str, int | None] = dict.fromkeys(_tiers(book))
    for number in range(1, releases + 1):
        step, book = _next(book, rule, ask, number)
        steps.append(step)
        for tier, left in _tiers(book).items():
            if lasts[tier] is None and left == 0:
                lasts[tier] = number
        if step.abstains:
            break
    return Forecast(str(rule), tuple(steps), lasts)


def _next(book: Book, rule: Rule, ask: Mapping[str, Any], number: int) -> tuple[Step, Book]:
    intent = intended(book, Parts.everybody(book), rule, ask)
    plan = intent.plan
    weight = sum(plan.levels.count[plan.units > 0].tolist())
    step = Step(number, plan.worst_case_error, weight, plan.abstains, _tiers(book))
    return step, book.charged(intent.parts.cohort, intent.units[intent.place])


def _tiers(book: Book) -> dict[str, float]:
    """Return what the people of each tier with a limit have left, those with most of it; in the order of budgets."""
    found: dict[int, int] = {}
    for now in sorted(book.cohorts.values()):
        if now.people and 0 < now.asked < UNLIMITED:
            found[now.asked] = max(found.get(now.asked, 0), now.left)
    return {_name(book, asked): in_epsilon(left) for asked, left in found.items()}


def _name(book: Book, asked: int) -> str:
    budget = f"budget {in_epsilon(asked):.9g}"
    return f"tier {book.names[asked]} ({budget})" if asked in book.names else f"the tier with {budget}"
