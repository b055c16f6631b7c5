"""What else could be done: every method side by side for the same people, and what would reach a target."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from hetdp.core.accuracy import aimed_at, error_unit, least, objective, shaped, supposed
from hetdp.core.domain import Interval, jsonable
from hetdp.core.levels import MOST_PEOPLE, Levels
from hetdp.core.plan import FAMILY, Plan, plan
from hetdp.core.types import BoundsLike, LevelsOfPeople
from hetdp.errors import InputError, either
from hetdp.estimators import METHODS
from hetdp.privacy.exact import Box, Choice
from hetdp.statistics import Statistic
from hetdp.statistics.mean import ANSWERED, Mean, Ratio, ratio_interval
from hetdp.theory.certificate import Certificate, certificate

from . import Grid, Lines, Parts, Provenance, Shown, epsilon, level_words, number, people, spent_epsilon
from .text import about_line, assumed_lines, pulled

_ERRORS = ("Worst ±", "× best", "Data ±", "Half ±", "Bias", "Drift 0.1 ±", "Drift 0.2 ±")
_UNITS = {  # that of one number is in units of the values
    "range": ", of all numbers together, as a share of the range",
    "moments": ", of the mean and the mean squared distance from the midpoint together, as shares of their ranges",
    "people": ", of all numbers together, as a share of all people",
    "rank": ", in rank, as a share of all people",
}
_HEADINGS = ("Method", *_ERRORS, "ε least", "ε most", "ε mean")
DRIFTS = (0.0, 0.1, 0.2)
"""How far the means of two levels of ε differ, as shares of the range, where methods are compared."""


@dataclass(frozen=True)
class Entry:
    """One method: its plan, or why it refuses these people.

    Attributes
    ----------
    worst_case_error, data_error
        The root of the worst-case mean squared error, in units of the values; the same for the data that was asked
        about, None of several numbers and of those who answered.
    at_drift
        The worst-case error where the means of two levels of ε differ by a share of the range: {share: error}. The plan
        is the same in all of them. Empty for a statistic that has no drift.
    half_error
        The same error for values that are spread evenly over one half of the range; None of several numbers.
    """

    method: str
    label: str
    plan: Plan | None
    refusal: str | None
    worst_case_error: float
    data_error: float | None
    at_drift: Mapping[float, float] = field(default_factory=dict)
    half_error: float | None = None

    @property
    def spends(self) -> dict[str, float]:
        """What people with weight spend, private bounds included: the least, the most, the mean over them."""
        if self.plan is None:
            return {"least": 0.0, "most": 0.0, "mean": 0.0}
        used = (self.plan.units > 0) | self.plan.abstains
        spent, count = self.plan.spent_in_all[used], self.plan.levels.count[used]
        mean = float((spent * count).sum() / count.sum())
        return {"least": float(spent.min()), "most": float(spent.max()), "mean": mean}

    def to_dict(self) -> dict[str, Any]:
        """Return the entry as plain data."""
        named = {"method": self.method, "label": self.label}
        if self.plan is None:
            return {**named, "refusal": self.refusal}
        return {
            **named,
            "abstains": self.plan.abstains,
            "worst_case_mse": self.plan.worst_case_mse,
            "worst_case_error": self.worst_case_error,
            "error_at_variance": self.data_error,
            "half_range_error": self.half_error,
            "largest_bias": self.plan.facts.largest_bias,
            "bias_share": self.plan.bias_share,
            "error_at_drift": {f"{drift:g}": error for drift, error in self.at_drift.items()},
            "spent": jsonable(self.spends),
        }

    def row(self, best: float) -> tuple[str, ...]:
        """Return the entry as a row of the table; `best` is the smallest worst-case error of all."""
        if self.plan is None:
            return (self.method, *["–"] * (len(_HEADINGS) - 1))
        name = self.method + (" (midpoint)" if self.plan.abstains else "")
        errors = (self.worst_case_error, self.data_error, self.half_error)
        worst, data, half = ("–" if error is None else number(error, best, "up") for error in errors)
        drifting = [number(error, best, "up") for drift, error in self.at_drift.items() if drift] or ["–", "–"]
        times = f"{self.worst_case_error / best:.2f}"
        bias = number(self.plan.facts.largest_bias, best, "up") if self.plan.facts.largest_bias else "–"
        return (name, worst, times, data, half, bias, *drifting, *map(spent_epsilon, self.spends.values()))


@dataclass(frozen=True)
class Comparison(Shown):
    """All methods for one population, best first, and the certificate: what no ε-DP method can beat in the worst case.

    Attributes
    ----------
    entries, certificate
        The methods, each with its errors; what no method can beat.
    variance, data, drift, condition
        For which data the second column of errors holds, as a number and in words, None if only the worst case is
        known; the drift that was stated; what all errors suppose about missing values.
    repaired, informed, about
        The worst-case error of adpm if it is told of a drift, at that drift: {drift: error}; if it is told of the
        variance, None if none was stated; whence the people come.
    """

    entries: tuple[Entry, ...]
    certificate: Certificate | None
    variance: float | None
    data: str | None
    drift: float = 0.0
    repaired: Mapping[float, float] = field(default_factory=dict)
    about: Provenance = field(default_factory=Provenance)
    condition: str | None = None
    informed: float | None = None

    @property
    def floor(self) -> float | None:
        """The error, in units of the values, below which no ε-DP method can be in the worst case, if that is known."""
        return None if self.certificate is None else math.sqrt(self.certificate.lower)

    def to_dict(self) -> dict[str, Any]:
        """Return the comparison as plain data."""
        return {
            "variance": self.variance,
            "data": self.data,
            "predicted_if": self.condition,
            "drift": self.drift,
            "adpm_with_drift": {f"{drift:g}": error for drift, error in self.repaired.items()},
            "adpm_with_variance": self.informed,
            "methods": [entry.to_dict() for entry in self.entries],
            "certificate": None if self.certificate is None else self.certificate.to_dict(),
            "provenance": self.about.to_dict(),
        }

    def parts(self, notes: Sequence[str] = ()) -> Parts:
        """Return the report as its parts, with what is assumed about the people below it."""
        rows = [entry.row(self.entries[0].worst_case_error) for entry in self.entries]
        stated = f", with a drift of {self.drift:g}" if self.drift else ""
        stated += "" if self.condition is None else f", {self.condition}"
        unit = next((_UNITS.get(entry.plan.error_unit, "") for entry in self.entries if entry.plan), "")
        lines = [("Worst", f"the error in the worst case, for any distribution{stated}{unit}")]
        lines += [] if self.data is None else [("Data", f"the error for {self.data}{stated}")]
        if self.informed is not None:
            told = number(self.informed, self.entries[0].worst_case_error, "up")
            lines.append(("", f"no method was told of it; adpm that is told of it (variance=) would have {told}"))
        lines += self._bias_lines()
        lines += self._drift_lines()
        lines.append(("ε", "what people with weight spend"))
        lines += [("Refused", f"{entry.method} refuses: {entry.refusal}") for entry in self.entries if entry.refusal]
        none = "how far this is from the best possible is not known: there is no certificate for this statistic yet"
        if (self.drift or self.repaired) and self.entries[0].half_error is not None:
            none = "how far this is from the best possible is certified for the population without drift alone"
        last: Lines = [("Best", none)]
        if (found := self.certificate) is not None:
            better = [("minimax", found.sentence(found.best))] if found.best < found.upper else []
            last = [("ADPM", found.sentence()), *better]
        columns = [column for column in zip(_HEADINGS, *rows, strict=True) if {*column[1:]} != {"–"}]
        headings, *rows = zip(*columns, strict=True)
        return [Grid(headings, rows), [*lines, *last, *assumed_lines(notes), about_line(self.about)]]

    def _bias_lines(self) -> Lines:
        """Return what the columns about the place of the mean say, and which methods depend on it."""
        if all(entry.half_error is None for entry in self.entries):
            return []
        half = "the error for values spread evenly over one half of the range: their mean is a quarter off the middle"
        plans = {entry.method: entry.plan for entry in self.entries if entry.plan and not entry.plan.abstains}
        drawn = [("", f"{method} {pulled(planned)}") for method, planned in plans.items() if planned.facts.largest_bias]
        return [("Half", half), ("Bias", "how far the method can be off on average, without any drift"), *drawn]

    def _drift_lines(self) -> Lines:
        """Return what the columns of drift are, and what telling adpm of it is worth."""
        if not self.repaired:
            return []
        what = "the same worst case if the means of two levels of ε differ by 0.1 or 0.2 of the range"
        best = self.entries[0].worst_case_error
        told = "; ".join(f"{number(x, best, 'up')} with --drift {drift:g}" for drift, x in self.repaired.items())
        return [("Drift", what), ("", f"adpm that is told of it (drift=) would have {told}")]

    def plot(self, path: str | Path) -> None:
        """Write a picture: errors beside the floor, and who spends what; .png, .svg or .pdf."""
        from . import plots

        plots.save(plots.comparison(self), Path(path))


def compare(
    levels: Levels | LevelsOfPeople,
    *,
    bounds: BoundsLike | None = None,
    statistic: Statistic | None = None,
    variance: float | None = None,
    drift: float = 0.0,
    target: str | None = None,
) -> Comparison:
    """Return every method side by side: worst case, error at one variance, who spends what, the certificate.

    Parameters
    ----------
    levels, bounds, statistic
        As for `plan`. Of a statistic with several numbers the error is that of all together, and `splitting` is what
        separate releases would give that share everybody's ε.
    variance
        The variance of the data for the second column of errors, at the mean that is worst for it; by default values
        spread evenly over the interval. The methods are planned without it; `informed` has the error of adpm with it.
    drift, target
        As for `plan`. Whatever they are, there are columns for what a drift of 0.1 and 0.2 does to each method.

    Returns
    -------
    Comparison

    Examples
    --------
    >>> [entry.method for entry in compare({0.1: 700, float("inf"): 300}, bounds=(0, 1)).entries[:2]]
    ['minimax', 'adpm']
    """
    levels = Levels.given(levels)
    if (bounds is None) == (statistic is None):
        raise either("a comparison", bounds)
    if statistic is not None and not statistic.one:
        aimed_at(statistic, drift, target)
        return _family(levels, statistic, drift)
    asked = statistic or Mean(Interval.of(bounds))
    interval = asked.interval.ordinary()
    centre = interval.mid if variance is None else None
    at = interval.width * interval.width / 12 if variance is None else variance
    data = "values spread evenly over the interval"
    if variance is not None:
        deviation = math.sqrt(variance)
        data = f"values of standard deviation {number(deviation, deviation / 100)}, at the least favourable mean"
    aim: dict[str, Any] = {"drift": drift, "target": target}
    entries = [_entry(levels, asked, name, aim, (at, centre)) for name in METHODS]
    entries.sort(key=lambda entry: entry.worst_case_error)
    plain = not drift and aimed_at(asked, drift, target) == "population"
    told = {d: plan(levels, statistic=asked, drift=d, target=target).worst_case_error for d in DRIFTS if d}
    known = certificate(levels, bounds=interval) if plain else None
    informed = None if variance is None else plan(levels, statistic=asked, variance=variance, **aim).worst_case_error
    about = Provenance(asked.name)
    return Comparison(tuple(entries), known, at, data, drift, told, about, supposed(asked), informed)


def _family(levels: Levels, statistic: Statistic, drift: float) -> Comparison:
    """Return the plain alternatives for a statistic with several numbers, and that of splitting everybody's ε.

    Separate releases of d means have ε/d each. Of the shares of cells, a person who changes their cell changes two of
    them, so separate shares have ε/2 each. A choice has no such alternative, and neither has a mean of those who
    answered, whose error is in units of the values.
    """
    entries = []
    for name in FAMILY:
        planned = plan(levels, statistic=statistic, method=name, drift=drift)
        error = planned.worst_case_error
        at_drift = {d: planned.error_at(d) for d in DRIFTS} if statistic.takes_drift else {}
        entries.append(Entry(name, METHODS[name].label, planned, None, error, None, at_drift))
    shape = statistic.geometry
    if not isinstance(shape, Choice) and error_unit(statistic) != "values":
        parts = shape.numbers if isinstance(shape, Box) else 2
        one = plan(levels, statistic=Mean((0, 1)), share=planned.share / parts)
        variance = statistic.variance / shape.numbers
        error = math.sqrt(shape.numbers * one.mse(variance))
        entries.append(Entry("splitting", "splitting", one, None, error, None))
    entries.sort(key=lambda entry: entry.worst_case_error)
    told = {d: plan(levels, statistic=statistic, drift=d).worst_case_error for d in DRIFTS if d and entries[0].at_drift}
    about = Provenance(statistic.name)
    return Comparison(tuple(entries), None, None, None, drift, told, about, supposed(statistic))


def _entry(
    levels: Levels, asked: Statistic, name: str, aim: Mapping[str, Any], data: tuple[float, float | None]
) -> Entry:
    """Return a method for these levels; `data` is a variance and, unless the worst is taken, a mean."""
    label = METHODS[name].label
    try:
        planned = plan(levels, statistic=asked, method=name, **aim)
    except InputError as refusal:
        return Entry(name, label, None, str(refusal), math.inf, math.inf)
    at_drift = {drift: planned.error_at(drift) for drift in DRIFTS}
    data_error, half = math.sqrt(planned.mse(*data)), planned.facts.half_range_error
    return Entry(name, label, planned, None, planned.worst_case_error, data_error, at_drift, half)


# What a target needs --------------------------------------------------------------------------------------------------


MOST_TIERS = 12  # no policy sets more levels one by one


@dataclass(frozen=True)
class Target:
    """What reaches a target, in units of the values.

    Attributes
    ----------
    error, width
        The target: for the worst-case error (the root of the worst-case mean squared error), or for half the width of
        the guaranteed interval of this `level`, as `Plan.width` predicts it; the other is None.
    reached, people
        Whether the plan as it stands is there already; how many people it takes at the same mix of ε, None if no number
        will do.
    epsilon
        For each level of the plan, the ε that its people would have to choose, all else equal; None if no ε can, 0 if
        they are not needed. Empty where there are more than twelve levels, which no policy sets one by one.
    condition
        What all this supposes about missing values and about a variance that is to be learned; None if nothing.
    people_by_share_answered
        How many people it takes if so large a share of them has a value, at every level of ε alike; for a mean.
    """

    error: float | None
    reached: bool
    people: int | None
    epsilon: dict[float, float | None]
    width: float | None = None
    level: float = 0.95
    condition: str | None = None
    people_by_share_answered: Mapping[float, int | None] = field(default_factory=dict)

    @property
    def goal(self) -> tuple[str, float]:
        """What is to be reached, in words and as a number."""
        if self.error is not None:
            return "worst-case error", self.error
        return f"half-width of the {level_words(self.level)} interval", self.width or 0.0

    def lines(self, p: Plan) -> Lines:
        """Return the answer for the report on the plan."""
        what, wanted = self.goal
        goal, given = f"{wanted:,.6g}", "" if self.condition is None else f", {self.condition}"
        fewer = [f"{people(n)} if {part:.0%} do" for part, n in self.people_by_share_answered.items() if n and part < 1]
        if self.reached:
            rest = f"; it takes {' and '.join(fewer)}" if fewer else ""
            return [("Wanted", f"the {what} is already below {goal}{given}{rest}")]
        said = [("Wanted", f"a {what} of {goal} needs one of these{given}:")]
        if self.people is None:
            said.append(("", "no number of people at this mix of ε is enough"))
        else:
            more = "".join(f"; {each}" for each in fewer)
            said.append(("", f"{people(self.people)} at this mix of ε ({self.people / p.n:.2f} × as many){more}"))
        if self.epsilon and all(needs is None for needs in self.epsilon.values()):
            return [*said, ("", "raising the ε of one tier: no ε is enough, for any tier")]
        for level, needs in self.epsilon.items():
            name = p.levels.names.get(level, f"people at ε = {epsilon(level)}")
            said.append(("", f"{name}: " + (f"ε = {epsilon(needs)}" if needs is not None else "no ε is enough")))
        return said

    def to_dict(self) -> dict[str, Any]:
        """Return the answer as plain data."""
        tiers = [{"epsilon": e, "needs": needs, "possible": needs is not None} for e, needs in self.epsilon.items()]
        goal = {"error": self.error} if self.error is not None else {"width": self.width, "level": self.level}
        shares = [{"answered": share, "people": n} for share, n in self.people_by_share_answered.items()]
        said = {"predicted_if": self.condition, "people_by_share_answered": shares or None}
        return dict(jsonable({**goal, "reached": self.reached, "people": self.people, "tiers": tiers, **said}))


def people_needed(  # noqa: PLR0913  a target, and all that a plan takes
    levels: Levels | LevelsOfPeople,
    *,
    error: float | None = None,
    width: float | None = None,
    level: float = 0.95,
    bounds: BoundsLike | None = None,
    statistic: Statistic | None = None,
    method: str = "adpm",
    variance: float | None = None,
    drift: float = 0.0,
    target: str | None = None,
) -> Target:
    """Return what would bring the error or the interval of a private mean down to a target: more people, a larger ε.

    Parameters
    ----------
    levels, bounds, statistic, method, variance, drift, target
        As for `plan`. The statistic is a mean; with missing values ``hetdp.ask.mean(bounds=…, missing="estimate")``.
    error
        A target for the worst-case error (the root of the worst-case mean squared error), in units of the values.
    width, level
        Or a target for half the width of the guaranteed interval at this level of confidence (see `Plan.width`).

    Returns
    -------
    Target

    Examples
    --------
    >>> found = people_needed({0.1: 700, float("inf"): 300}, error=0.01, bounds=(0, 1))
    >>> found.people, found.reached, found.epsilon[0.1]
    (3084, False, None)
    >>> people_needed({0.1: 700, float("inf"): 300}, width=0.03, bounds=(0, 1)).people
    1765
    """
    planned = plan(
        levels, bounds=bounds, statistic=statistic, method=method, variance=variance, drift=drift, target=target
    )
    return needed(planned, error, width=width, level=level)


def needed(planned: Plan, error: float | None = None, *, width: float | None = None, level: float = 0.95) -> Target:
    """Return what would bring a plan's worst-case error, or half the width of its interval, down to a target."""
    if planned.statistic.name != "mean":
        raise InputError(f"a target is for a mean, not for a {planned.statistic.name}; for a share say --bounds 0 1")
    if (error is None) == (width is None):
        raise InputError("name one target: an error, or a width (half of the guaranteed interval)")
    goal = float(error if error is not None else width or 0)
    if not 0 < goal < math.inf:
        what = "error" if error is not None else "width"
        raise InputError(f"the target {what} must be a positive number (got {goal:g}), in units of the values")

    def wide_enough(levels: Levels) -> bool:
        return planned.again(levels).width(level) <= goal

    enough = wide_enough if error is None else _within_error(planned, goal)
    tiers = planned.levels.epsilon.tolist() if len(planned.levels) <= MOST_TIERS else []
    found = _people(planned.levels, enough)
    supposing = [said for said in (supposed(planned.statistic),) if said]
    if error is None and planned.squares is not None:
        supposing.append("if the learned variance is the largest (it takes less if it is small)")
    return Target(
        error,
        reached=(planned.width(level) if error is None else planned.worst_case_error) <= goal,
        people=found,
        epsilon={epsilon: _epsilon(planned.levels, i, enough) for i, epsilon in enumerate(tiers)},
        width=width,
        level=level,
        condition=" and ".join(supposing) or None,
        people_by_share_answered=_people_by_share(planned, found, (error, width, level)),
    )


def _people_by_share(
    planned: Plan, needed: int | None, goal: tuple[float | None, float | None, float]
) -> dict[float, int | None]:
    """Return how many people it takes if not everybody has a value; `needed` if all have one; nothing if unknown."""
    asked, (error, width, level) = planned.statistic, goal
    if asked.missing == "drop":  # whoever has a value is planned for as everybody is
        return {share: needed and math.ceil(needed / share) for share in ANSWERED}
    if not isinstance(asked, Ratio) or not asked.keeps_missing:
        return {}

    def reached(levels: Levels, share: float) -> bool:
        found = planned.again(levels)
        if width is None:
            return asked.error_answered(found, share) <= (error or 0.0)
        low, high = ratio_interval(found, share / 2, share / 2, level)
        return (high - low) / 2 <= width

    fewer = {share: _people(planned.levels, partial(reached, share=share), 1e-5) for share in ANSWERED if share < 1}
    return {1.0: needed, **fewer}


def _within_error(planned: Plan, goal: float) -> Callable[[Levels], bool]:
    """Return whether levels reach a worst-case error; of those who answered, if everybody does."""
    if not planned.statistic.one:
        return lambda levels: planned.again(levels).worst_case_error <= goal
    square = (goal / planned.interval.width) ** 2
    rule, bound, drift = METHODS[planned.method], planned.variance_bound, planned.drift
    people = planned.target == "people"

    def enough(levels: Levels) -> bool:
        shape = shaped(rule, levels, bound, drift, people=people, share=planned.share)
        return objective(levels, shape, bound, drift=drift, people=people) <= square

    return enough


def _people(levels: Levels, enough: Callable[[Levels], bool], hair: float = 1e-9) -> int | None:
    def times(factor: float) -> Levels:
        count = np.ceil(levels.count * factor).astype(np.int64)
        return Levels.from_arrays(levels.epsilon, count, rounded=levels.rounded)

    largest = MOST_PEOPLE / levels.n / 2
    if not levels.active or not enough(times(largest)):
        return None
    return times(least(lambda factor: enough(times(min(factor, largest))), start=1.0, hair=hair)).n


def _epsilon(levels: Levels, i: int, enough: Callable[[Levels], bool]) -> float | None:
    def at(level: float) -> bool:
        changed = levels.epsilon.copy()
        changed[i] = level
        return enough(Levels.from_arrays(changed, levels.count))

    found = least(at, start=1.0) if at(math.inf) else None
    return 0.0 if found == math.ulp(0.0) else found  # even the smallest double is enough: they are not needed
