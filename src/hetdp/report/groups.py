"""Groups: a private mean for each group of a public column."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hetdp.privacy.release import Release

if TYPE_CHECKING:
    from rich.console import RenderableType

CHECKED = (
    "Each person is in one group, so their value enters one of these means only (parallel composition): the whole "
    "table protects everybody at their own ε. Who is in which group is public."
)
ASSUMED = (
    "Assumed: each row is another person, so that a value enters one of these means only. It was not checked, because "
    "no column of ids was named: somebody with rows in several groups spends the sum over them. Who is in which group "
    "is public."
)
"""What a table of groups promises as a whole: with a column of ids, and without."""


def _headings(level: float) -> tuple[str, ...]:
    return "Group", "People", "Estimate", f"{level:.0%} interval", "Worst case", "t", "Most spent"


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
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False, allow_nan=False)

    def report(self, level: float = 0.95) -> str:
        """Return a table of the groups as text."""
        from .text import text

        return text(self.body(level))

    def body(self, level: float = 0.95) -> RenderableType:
        """Return a table of the groups for a rich console."""
        from rich.console import Group
        from rich.padding import Padding
        from rich.table import Table

        table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
        for i, heading in enumerate(_headings(level)):
            table.add_column(heading, justify="left" if i == 0 else "right", overflow="fold")
        for row in self._rows(level):
            table.add_row(*row)
        return Group(Padding(table, (0, 0, 1, 0)), *self._sentences())

    def html(self, level: float = 0.95) -> str:
        """Return a table of the groups as a piece of HTML."""
        sides = ["left"] + ["right"] * 6
        cell = '<{0} style="text-align:{1};padding:2px 12px 2px 0">{2}</{0}>'

        def row(entries: tuple[str, ...], tag: str) -> str:
            shown = (cell.format(tag, side, html.escape(entry)) for side, entry in zip(sides, entries, strict=True))
            return f"<tr>{''.join(shown)}</tr>"

        rows = row(_headings(level), "th") + "".join(row(entries, "td") for entries in self._rows(level))
        said = "".join(f"<li>{html.escape(sentence)}</li>" for sentence in self._sentences())
        return (
            f'<div class="hetdp"><div style="overflow-x:auto"><table style="border-collapse:collapse">{rows}</table>'
            f"</div><ul>{said}</ul></div>"
        )

    def _rows(self, level: float) -> list[tuple[str, ...]]:
        from .text import epsilon, number, spent_epsilon

        rows: list[tuple[str, ...]] = []
        for name, release in self.items():
            p = release.plan
            error = p.worst_case_error
            low, high = (number(x, error) for x in release.confidence_interval(level))
            estimate = number(release.estimate, error) + (" (midpoint, no data used)" if p.abstains else "")
            t = "–" if p.threshold is None or p.abstains else epsilon(p.threshold)
            spent = spent_epsilon(float(p.spent.max()))
            rows.append((name, f"{p.n:,}", estimate, f"{low} to {high}", f"± {number(error, error)}", t, spent))
        return rows

    def _sentences(self) -> list[str]:
        from .facts import assumptions

        releases = list(self.values())
        said = [sentence for r in releases for sentence in (*assumptions(r.plan), *r.notes)]
        return [self.composition, *dict.fromkeys(said)]

    __str__ = report
    _repr_html_ = html

    def __repr__(self) -> str:
        return f"Groups({{{', '.join(f'{name!r}: {release!r}' for name, release in self.items())}}})"
