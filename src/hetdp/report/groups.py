"""Groups: a private mean for each group of a public column."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hetdp.files import to_json
from hetdp.privacy.release import Release

from .text import Grid, Parts, assumed_lines, body, epsilon, number, spent_epsilon, text, to_html

if TYPE_CHECKING:
    from rich.console import RenderableType

CHECKED = (
    "Each person is in one group, so their value enters one of these means only (parallel composition): the whole "
    "table protects everybody at their own ε. Who is in which group is public."
)
ASSUMED = (
    "Assumed: every row is another person, so that a value enters one of these means only. It was not checked, because "
    "no column of ids was named: somebody with rows in several groups spends the sum over them. Who is in which group "
    "is public."
)
"""What a table of groups promises as a whole: with a column of ids, and without."""


class Groups(dict[str, Release]):
    """{group: release}, in the order of the groups. All of it may be published.

    Attributes
    ----------
    composition
        What is promised for the table as a whole, in a sentence; the loss is in one group only if ids were checked.
    """

    def __init__(self, releases: Mapping[str, Release], *, checked: bool) -> None:
        super().__init__(releases)
        self.composition = CHECKED if checked else ASSUMED

    def to_dict(self, level: float = 0.95) -> dict[str, Any]:
        """Return the releases as plain data."""
        groups = {name: release.to_dict(level) for name, release in self.items()}
        return {"groups": groups, "composition": self.composition}

    def to_json(self) -> str:
        """Return the releases as JSON; infinities are written "inf"."""
        return to_json(self.to_dict())

    def report(self, level: float = 0.95) -> str:
        """Return a table of the groups as text."""
        return text(self.body(level))

    def body(self, level: float = 0.95) -> RenderableType:
        """Return a table of the groups for a rich console."""
        return body(self._parts(level))

    def html(self, level: float = 0.95) -> str:
        """Return a table of the groups as a piece of HTML."""
        return to_html(self._parts(level))

    def _parts(self, level: float) -> Parts:
        headings = ("Group", "People", "Estimate", f"{level:.0%} interval", "Worst case", "t", "Most spent")
        rows = []
        for name, release in self.items():
            p = release.plan
            error = p.worst_case_error
            low, high = (number(x, error) for x in release.confidence_interval(level))
            estimate = number(release.estimate, error) + (" (midpoint, no data used)" if p.abstains else "")
            t = "–" if p.threshold is None or p.abstains else epsilon(p.threshold)
            spent = spent_epsilon(float(p.spent.max()))
            rows.append((name, f"{p.n:,}", estimate, f"{low} to {high}", f"± {number(error, error)}", t, spent))
        said = [sentence for r in self.values() for sentence in (*r.plan.facts.assumptions, *r.notes)]
        together = [("Together", self.composition), *assumed_lines(list(dict.fromkeys(said)))]
        return [Grid(headings, rows), together]

    __str__ = report
    _repr_html_ = html

    def __repr__(self) -> str:
        return f"Groups({{{', '.join(f'{name!r}: {release!r}' for name, release in self.items())}}})"
