"""The difference of two released numbers, with an interval that also holds if the same people are in both."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from hetdp.core.accuracy import check_level, condition, needs_independence, unit_width
from hetdp.core.domain import jsonable
from hetdp.errors import InputError
from hetdp.report import Parts, Reported, between, level_words, number, people, spent_epsilon

from .answer import not_from_data

if TYPE_CHECKING:
    from hetdp.core.plan import Plan

    from .answer import Combined
    from .statistic import Answer

SAME_PEOPLE = (
    "For the difference each of the two intervals is taken at {}, so both hold together at {}, even if the same people "
    "are in both."
)


@dataclass(frozen=True, eq=False, repr=False)
class Difference(Reported):
    """A later number minus an earlier one. It is computed from what was published and costs nothing.

    Attributes
    ----------
    later, earlier
        The two answers, as `hetdp.mean` gives them, or anything that is a number with a `confidence_interval`.
    level
        The confidence of the interval, unless another is asked for.
    """

    later: Any
    earlier: Any
    level: float = 0.95

    @property
    def estimate(self) -> float:
        """The difference of the two estimates."""
        return float(self.later) - float(self.earlier)

    def confidence_interval(self, level: float | None = None) -> tuple[float, float]:
        """Return an interval for the difference, as sure as `level`; that of the difference unless said.

        Each of the two intervals is left with half of the chance to miss; if both hold, the difference is between the
        differences of their ends, whatever they have in common.

        Returns
        -------
        tuple[float, float]
            (low, high), in units of the values.
        """
        level = self.level if level is None else level
        check_level(level)
        each = 1 - (1 - level) / 2
        (low, high), (before_low, before_high) = (x.confidence_interval(each) for x in (self.later, self.earlier))
        return low - before_high, high - before_low

    @property
    def condition(self) -> str | None:
        """Under which condition the interval holds, in one of the two or in both; None if it needs none."""
        return next((said for p in self._all_plans if (said := condition(p))), None)

    @property
    def _all_plans(self) -> list[Plan]:
        return [p for x in (self.later, self.earlier) for _, p in _plans(x).values()]

    @property
    def stated_deviation(self) -> float | None:
        """The standard deviation that the interval takes for granted, if one was stated; of several the smallest."""
        stated = (p.facts.stated_deviation for p in self._all_plans)
        return min((float(each) for each in stated if each is not None), default=None)

    @property
    def conditional(self) -> bool:
        """Whether the interval holds only if ε tells nothing."""
        return any(map(needs_independence, self._all_plans))

    @cached_property
    def moved(self) -> float:
        """How far people or weight have moved between levels of ε from one answer to the other, as a share of all.

        It is public: somebody whose budget was exhausted has moved to ε = 0, where they count for nothing.
        """
        later, earlier = _plans(self.later), _plans(self.earlier)
        if later.keys() != earlier.keys():
            return 1.0
        return sum(share * _moved(p, earlier[name][1]) for name, (share, p) in later.items())

    def explained_by(self, level: float | None = None) -> float | None:
        """Return the drift that alone would explain the difference, as a share of the range; None if it is not known.

        If the means at two levels of ε differ by at most x of the range, an answer is off by at most δ·x, δ being
        `Plan.bias_share`. This is the x at which the interval, widened by that for both answers, has 0 in it; where a
        drift was stated the interval includes it already.
        """
        low, high = self.confidence_interval(level)
        parts = [part for x in (self.later, self.earlier) for part in _plans(x).values()]
        if not self.conditional or not all(p.statistic.one for _, p in parts):
            return None
        reach = sum(share * p.bias_share * p.span.width for share, p in parts if needs_independence(p))
        return max(low, -high, 0.0) / reach

    def weights_differ(self, level: float | None = None) -> bool:
        """Say whether levels of ε count so differently in the two that this can pass for a change of the values.

        The rule is that of every warning: means that differ by a tenth of the range would bring half of the error.
        """
        from hetdp.report.drift import ENOUGH, EXAMPLE

        low, high = self.confidence_interval(level)
        width = max((unit_width(p) for _, p in _plans(self.later).values()), default=0.0)
        behind = max(_answered(self.later) or 1.0, 0.05)
        return self.conditional and EXAMPLE * self.moved * width / behind > ENOUGH * (high - low) / 4

    def changed(self, level: float | None = None) -> bool | None:
        """Say whether the interval leaves out 0; None if it does, and a change of the weights may be the reason.

        It is a method: `change.changed()`. Without the brackets it is always true in an `if`.
        """
        low, high = self.confidence_interval(level)
        if low <= 0 <= high or not self.weights_differ(level):
            return not low <= 0 <= high
        drift = self.explained_by(level)
        return True if drift is not None and drift > 1 else None

    @property
    def warnings(self) -> list[str]:
        """The warnings of both answers, and one if what changed may be the weights."""
        from hetdp.report.drift import changed_weights

        said = [*self._other_columns, *self._other_number, *changed_weights(self), *self._other_people]
        said += self._other_order
        for name, x in zip(self.names, (self.later, self.earlier), strict=True):
            said += [f"{name}: {each}" for each in _warnings(x)]
        return said

    @property
    def names(self) -> tuple[str, str]:
        """What the two answers are called: later and earlier, or the groups that they are of."""
        first, second = (getattr(getattr(x, "about", None), "group", "") for x in (self.later, self.earlier))
        return (f"group {first}", f"group {second}") if first != second and first and second else ("later", "earlier")

    @property
    def _other_columns(self) -> list[str]:
        """What is warned of if the two are of different columns."""
        named = [", ".join(about.columns) if about is not None else "" for about in self._abouts]
        if named[0] == named[1] or not all(named):
            return []
        return [f"the two answers are of different columns: {named[0]} and {named[1]}"]

    @property
    def _other_order(self) -> list[str]:
        """What is warned of if the later answer was released before the earlier one."""
        later, earlier = (getattr(about, "released", "") for about in self._abouts)
        if self.names != ("later", "earlier") or not later or later >= earlier:
            return []
        said = f"what is called later was released at {later}, before what is called earlier ({earlier})"
        return [f"{said}: if they changed places, the sign of the difference is the wrong one"]

    @property
    def _abouts(self) -> list[Any]:
        return [getattr(getattr(x, "groups", x), "provenance", None) for x in (self.later, self.earlier)]

    @property
    def spent_together(self) -> float:
        """The most ε that somebody who is in both answers spent on the two; the difference itself costs nothing."""
        plans = (_plans(x).values() for x in (self.later, self.earlier))
        return sum(max((float(p.spent_in_all.max()) for _, p in each), default=0.0) for each in plans)

    @property
    def first(self) -> Plan | None:
        """The plan of the later answer, or of its first group."""
        return next((p for _, p in _plans(self.later).values()), None)

    @property
    def _other_number(self) -> list[str]:
        """What is warned of if totals are of another number of people, which is public."""
        later, earlier = _people(self.later), _people(self.earlier)
        if self.first is None or not self.first.statistic.whole or later == earlier:
            return []
        name = self.first.statistic.name
        return [
            f"the number of people changed from {earlier:,} to {later:,}, which alone moves a {name}: the {name} can "
            "change though nobody's value did"
        ]

    @property
    def _other_people(self) -> list[str]:
        """What is warned of if not the same share answered: then those who did are not the same people."""
        later, earlier = _answered(self.later), _answered(self.earlier)
        if later is None or earlier is None or abs(later - earlier) < 0.05:
            return []
        said = f"{later:.0%} answered later and {earlier:.0%} earlier"
        return [f"{said}: the number of those who answered can change though nobody's value did"]

    def __float__(self) -> float:
        return self.estimate

    def to_dict(self, level: float | None = None) -> dict[str, Any]:
        """Return the difference as plain data."""
        from hetdp.report.drift import clipped_to

        level = self.level if level is None else level
        ends = self.confidence_interval(level)
        parts = {name: _plain(x, level) for name, x in (("later", self.later), ("earlier", self.earlier))}
        found = {"difference": self.estimate, "interval": {"level": level, "guaranteed": list(ends)}}
        found |= {"changed": self.changed(level), "condition": self.condition}
        found |= {"stated_deviation": self.stated_deviation}
        found |= {"explained_by_drift": self.explained_by(level), "weights_moved": self.moved}
        said = {"warnings": self.warnings, "assumptions": [same_people(level)]}
        asked = [p.statistic for _, p in _plans(self.later).values()]
        ends_of = (clipped_to(one, found) for one in asked for found in one.private_bounds)
        clipped = [[ends.lo, ends.hi] for ends in ends_of]
        found |= {"clipped_to": clipped[0] if clipped else None}
        return dict(jsonable({**found, "target": _target(self.later), **parts, **said}))

    def report(self, level: float | None = None) -> str:
        """Return the report as text."""
        return super().report(self.level if level is None else level)

    def html(self, level: float | None = None) -> str:
        """Return the report as a piece of HTML."""
        return super().html(self.level if level is None else level)

    __str__ = report
    _repr_html_ = html

    def parts(self, level: float) -> Parts:
        """Return the report as its parts."""
        from hetdp.report.drift import clipped, difference_lines, holds_for, read_as
        from hetdp.report.text import assumed_lines

        (low, high), error, changed = self.confidence_interval(level), self._error, self.changed(level)
        sign = "it is above 0" if low > 0 else "it is below 0" if high < 0 else "it may be 0"
        sign = sign if changed is not None else "whether the values changed is not known"
        ends = f"{level_words(level)} interval {between(low, high, error)}"
        first, heads = self.first, [name[0].upper() + name[1:] for name in self.names]
        said = [
            *(clipped(first) if first is not None else ()),
            ("Difference", f"{number(self.estimate, error)}   {ends}, {holds_for(*self._all_plans)}: {sign}"),
            *((name, _said(x, level)) for name, x in zip(heads, (self.later, self.earlier), strict=True)),
            *difference_lines(self, level),
            *(("Warning", each) for each in self.warnings),
        ]
        for name, x in zip(heads, (self.later, self.earlier), strict=True):
            if (about := getattr(getattr(x, "groups", x), "provenance", None)) is not None:
                said.append((f"{name} about", str(about)))
        if first is not None:
            said += read_as(first)
        if first is not None and first.statistic.counted:
            said.append(("Missing", first.statistic.counted))
        if self.names == ("later", "earlier") and all(map(_plans, (self.later, self.earlier))):
            together = spent_epsilon(self.spent_together)
            most = f"somebody who is in both spent ε = {together} at most on the two; the difference costs nothing more"
            said.append(("Together", most))
        return [said, assumed_lines([same_people(level)])]

    @property
    def _error(self) -> float:
        """The typical size of the error, for the digits that are printed."""
        low, high = self.confidence_interval()
        return (high - low) / 4

    def __repr__(self) -> str:
        return f"Difference({self.estimate:.6g}, later={self.later!r}, earlier={self.earlier!r})"


def difference(later: Answer | Combined, earlier: Answer | Combined, *, level: float = 0.95) -> Difference:
    """Return the difference of two releases of the same statistic, with an interval.

    Parameters
    ----------
    later, earlier
        Two answers that are one number each, such as two means.
    level
        The confidence of the interval.

    Returns
    -------
    Difference
        Its `estimate`; its methods `confidence_interval()` and `changed()`, which says whether 0 is ruled out.

    Notes
    -----
    Where ε may go with the value, a change of who counts how much looks like a change of the values. The interval then
    holds if ε tells nothing about the value, as that of each answer does; `changed()` is None if the weights moved
    between the levels of ε, and `explained_by` is the difference between levels that would explain what is found.

    Examples
    --------
    >>> import hetdp
    >>> before, after = (hetdp.mean([x] * 3000, epsilon=[1.0] * 3000, bounds=(0, 1)) for x in (0.2, 0.6))
    >>> change = difference(after, before)
    >>> 0.2 < change.confidence_interval()[0] < change.estimate < change.confidence_interval()[1] < 0.6
    True
    """
    check_level(level)
    for answer in (later, earlier):
        if not (hasattr(answer, "confidence_interval") and hasattr(answer, "__float__")) or hasattr(answer, "ranks"):
            raise InputError("a difference is of two answers that are one number each, such as two means")
    names = [getattr(getattr(getattr(x, "plan", None), "statistic", None), "name", None) for x in (later, earlier)]
    if names[0] != names[1]:
        raise InputError(f"a difference is of two answers to the same question (got {names[0]} and {names[1]})")
    plans, others = _plans(later), _plans(earlier)
    shares = [{name: round(share, 9) for name, (share, _) in found.items()} for found in (plans, others)]
    if shares[0] != shares[1]:
        raise InputError("a difference of combined answers is of the same groups with the same shares")
    for name, (_, p) in plans.items():
        asked, other = p.statistic, others[name][1].statistic
        if asked.name != other.name or asked != other or asked.plain != other.plain:
            raise InputError(
                "a difference is of two answers to the same question with the same bounds, the same choice for missing "
                "values and the same words"
            )
    if None not in (stored := [_stored(x) for x in (later, earlier)]) and stored[0] == stored[1]:
        raise InputError(
            f"both answers are the same stored release, {', '.join(sorted(each[1] for each in stored[0] or ()))}: "
            "their difference is 0 and says nothing. Each release needs a release_id of its own"
        )
    targets = [_target(x) for x in (later, earlier)]
    if None not in targets and targets[0] != targets[1]:
        raise InputError(
            f"a difference is of two answers about the same target (got {targets[0]} and {targets[1]}); ask both with "
            "the same target="
        )
    return Difference(later, earlier, level)


def same_people(level: float) -> str:
    """Return how the interval of a difference comes from those of two answers."""
    return SAME_PEOPLE.format(level_words(1 - (1 - level) / 2), level_words(level))


def _stored(answer: Any) -> frozenset[tuple[Any, ...]] | None:
    """Return which releases of ledgers an answer is, of one plan or of groups; None if one is not in a ledger."""
    releases = getattr(answer, "groups", {"": answer}).values()
    if not all(getattr(r, "release_id", "") for r in releases):
        return None
    return frozenset((r.ledger.get("name"), r.release_id, r.ledger.get("event"), r.ledger.get("at")) for r in releases)


def _plans(answer: Any) -> dict[Any, tuple[float, Plan]]:
    """Return the plans behind an answer, each with its share of it: one, or those of groups that were combined."""
    if hasattr(answer, "plan"):
        return {"": (1.0, answer.plan)}
    groups = getattr(answer, "groups", {})
    return {name: (answer.shares[name], release.plan) for name, release in groups.items()}


def _moved(one: Plan, other: Plan) -> float:
    """Return how far people, or their weight, are shared out otherwise over the levels of ε, as a part of all."""
    apart = []
    for of_people in (True, False):
        shares = Counter[float]()
        for sign, p in ((1, one), (-1, other)):
            each = 1 / p.n if of_people else p.person_weight / (p.shrink or 1)
            for epsilon, share in zip(p.levels.epsilon.tolist(), (p.levels.count * each).tolist(), strict=True):
                shares[epsilon] += sign * share
        apart.append(sum(map(abs, shares.values())) / 2)
    return max(apart)


def _answered(answer: Any) -> float | None:
    """Return the share of people who answered, where it is released with the number; of groups by their shares."""
    if any(p.abstains for _, p in _plans(answer).values()):  # what stands there is not from the data
        return None
    if hasattr(answer, "groups"):
        found = [(answer.shares[name], getattr(r, "share", None)) for name, r in answer.groups.items()]
        return None if any(each is None for _, each in found) else float(sum(part * each for part, each in found))
    share = getattr(answer, "share", None)
    return None if share is None else float(share)


def _people(answer: Any) -> int | None:
    return sum(p.n for _, p in _plans(answer).values()) or None


def _target(answer: Any) -> str | None:
    return next((p.target for _, p in _plans(answer).values()), None)


def _warnings(answer: Any) -> Iterator[str]:
    """Return what is warned of in the report on an answer."""
    from hetdp.report import drift

    unused = [name for name, (_, p) in _plans(answer).items() if p.abstains]
    if unused:
        yield not_from_data(unused)
    for _, p in _plans(answer).values() if hasattr(answer, "plan") else ():
        yield from (*drift.warnings(p, drift.share_behind(answer)), *drift.bounds_warnings(p))
    yield from getattr(answer, "ledger", {}).get("warnings", ())
    yield from getattr(getattr(answer, "groups", None), "warnings", ())


def _plain(answer: Any, level: float) -> dict[str, Any]:
    low, high = answer.confidence_interval(level)
    known: dict[str, Any] = {"n": _people(answer), "answered": _answered(answer)}
    group = getattr(getattr(answer, "about", None), "group", "")
    known |= {"group": group} if group else {}
    return {"estimate": float(answer), "interval": [low, high], **known}


def _said(answer: Any, level: float) -> str:
    low, high = answer.confidence_interval(level)
    error = (high - low) / 4
    n, share = _people(answer), _answered(answer)
    who = f", {people(n)}" if n else ""
    who += f", of whom {share:.0%} answered" if share is not None else ""
    return f"{number(float(answer), error)}   {level_words(level)} interval {between(low, high, error)}{who}"
