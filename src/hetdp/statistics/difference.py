"""The difference of two released numbers, with an interval that also holds if the same people are in both."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hetdp.core.accuracy import check_level
from hetdp.core.domain import jsonable
from hetdp.errors import InputError
from hetdp.report.about import Reported

if TYPE_CHECKING:
    from hetdp.report.text import Parts

SAME_PEOPLE = (
    "The same people may be in both: nothing is assumed about how the two go together, so each has half of the chance "
    "to miss."
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
        """Return an interval for the difference, as sure as `level`.

        Each of the two intervals is left with half of the chance to miss; if both hold, the difference is between the
        differences of their ends, whatever they have in common.
        """
        level = self.level if level is None else level
        check_level(level)
        each = 1 - (1 - level) / 2
        (low, high), (before_low, before_high) = (x.confidence_interval(each) for x in (self.later, self.earlier))
        return low - before_high, high - before_low

    def __float__(self) -> float:
        return self.estimate

    def __format__(self, spec: str) -> str:
        return format(self.estimate, spec) if spec else str(self)

    def to_dict(self, level: float | None = None) -> dict[str, Any]:
        """Return the difference as plain data."""
        level = self.level if level is None else level
        ends = self.confidence_interval(level)
        parts = {name: _plain(x, level) for name, x in (("later", self.later), ("earlier", self.earlier))}
        found = {"difference": self.estimate, "interval": {"level": level, "guaranteed": list(ends)}}
        return dict(jsonable({**found, "changed": not ends[0] <= 0 <= ends[1], **parts, "assumptions": [SAME_PEOPLE]}))

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
        from hetdp.report.numbers import number
        from hetdp.report.text import assumed_lines

        (low, high), error = self.confidence_interval(level), self._error
        sign = "it is above 0" if low > 0 else "it is below 0" if high < 0 else "it may be 0"
        shown = [number(x, error) for x in (self.estimate, low, high)]
        said = [
            ("Difference", f"{shown[0]}   {level:.0%} interval {shown[1]} to {shown[2]}, for any distribution: {sign}"),
            *((name, _said(x, level)) for name, x in (("Later", self.later), ("Earlier", self.earlier))),
        ]
        for name, x in (("Later", self.later), ("Earlier", self.earlier)):
            if hasattr(x, "provenance"):
                said.append((f"{name} about", str(x.provenance)))
        if hasattr(self.later, "plan") and self.later.plan.statistic.counted:
            said.append(("Missing", self.later.plan.statistic.counted))
        return [said, assumed_lines([SAME_PEOPLE])]

    @property
    def _error(self) -> float:
        """The typical size of the error, for the digits that are printed."""
        low, high = self.confidence_interval()
        return (high - low) / 4

    def __repr__(self) -> str:
        return f"Difference({self.estimate:.6g}, later={self.later!r}, earlier={self.earlier!r})"


def difference(later: Any, earlier: Any, *, level: float = 0.95) -> Difference:
    """Return the difference of two releases of the same statistic, with an interval.

    Parameters
    ----------
    later, earlier
        Two answers that are one number each, such as two means.
    level
        The confidence of the interval.

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
        if not (hasattr(answer, "confidence_interval") and hasattr(answer, "__float__")):
            raise InputError("a difference is of two answers that are one number each, such as two means")
    names = [getattr(getattr(getattr(x, "plan", None), "statistic", None), "name", None) for x in (later, earlier)]
    if names[0] != names[1]:
        raise InputError(f"a difference is of two answers to the same question (got {names[0]} and {names[1]})")
    asked = [x.plan.statistic for x in (later, earlier) if hasattr(x, "plan")]
    if len(asked) == 2 and (asked[0] != asked[1] or asked[0].plain != asked[1].plain):
        raise InputError(
            "a difference is of two answers with the same bounds, the same choice for missing values and the same words"
        )
    return Difference(later, earlier, level)


def _plain(answer: Any, level: float) -> dict[str, Any]:
    low, high = answer.confidence_interval(level)
    return {"estimate": float(answer), "interval": [low, high], "n": answer.plan.n if hasattr(answer, "plan") else None}


def _said(answer: Any, level: float) -> str:
    from hetdp.report.numbers import number, people

    low, high = answer.confidence_interval(level)
    shown = [number(x, (high - low) / 4) for x in (float(answer), low, high)]
    who = f", {people(answer.plan.n)}" if hasattr(answer, "plan") else ""
    return f"{shown[0]}   {level:.0%} interval {shown[1]} to {shown[2]}{who}"
