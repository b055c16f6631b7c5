"""What every answer can show of itself: where it comes from, its numbers, and a report as text, HTML and JSON.

What a report says comes from `text`; here it becomes a piece of HTML for a notebook, or a whole page.
"""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from hetdp.core.domain import to_json

from .numbers import epsilon

__version__ = "0.1.0"
SCHEMA = 1
"""The version of the JSON. It counts up when a field changes its meaning or goes; new fields may come without it."""


@dataclass(frozen=True)
class Provenance:
    """What a result is about and where it comes from. All of it is public.

    Attributes
    ----------
    statistic, columns
        What was computed, of which private columns.
    group
        The public group of people, as one text, if it is about one of several.
    sources
        What the sources are called: the name of a file without its folder, or the kind of a source, as "a pandas
        frame". Never a path or a URL: they tell about the owner's machine, and a URL may hold a password.
    released
        When it was released, in UTC, to the second: just before noise was drawn, with a ledger when it was charged.
        Empty if nothing was.
    version, schema
        Of hetdp, and of its JSON.
    """

    statistic: str = ""
    columns: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    released: str = ""
    group: str = ""
    version: str = __version__
    schema: int = SCHEMA

    def now(self) -> Provenance:
        """Return the same, released now."""
        return replace(self, released=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"))

    def __add__(self, other: Provenance) -> Provenance:
        """Return the provenance of what comes from both."""
        columns, sources = (*self.columns, *other.columns), (*self.sources, *other.sources)
        return replace(self, columns=tuple(dict.fromkeys(columns)), sources=tuple(dict.fromkeys(sources)))

    @property
    def source(self) -> str:
        """The sources in words.

        >>> Provenance(sources=("a.csv", "b.csv", "c.csv", "d.csv", "e.csv")).source
        'a.csv, b.csv, c.csv and 2 more'
        """
        more = len(self.sources) - _NAMED
        return ", ".join(self.sources[:_NAMED]) + (f" and {more:,} more" if more > 0 else "")

    def to_dict(self) -> dict[str, Any]:
        """Return the same as plain data; what is not known is null."""
        what = {"statistic": self.statistic or None, "columns": list(self.columns), "source": self.source or None}
        what |= {"group": self.group} if self.group else {}
        return {**what, "released": self.released or None, "version": self.version, "schema": self.schema}

    def __str__(self) -> str:
        what = self.statistic.replace("_", " ") + (f" of {', '.join(self.columns)}" if self.columns else "")
        what += f" in the group {self.group!r}" if self.group else ""
        what += f" from {self.source}" if self.sources else ""
        when = f"released {self.released}" if self.released else ""
        return "; ".join(part for part in (what, when, f"hetdp {self.version}, schema {self.schema}") if part)


_NAMED = 3  # so many sources are named


@dataclass(frozen=True)
class Figure:
    """One number of an answer, with its guaranteed interval, for tables and pictures.

    Attributes
    ----------
    error
        The typical size of its error, which says to how many digits it is printed.
    about
        What else belongs to it, as plain data.
    shown
        What is printed instead of the number, where it stands for something else.
    room
        The width of the range in which what its interval is about can lie: the number itself, the rank of a quantile.
    """

    label: str
    estimate: float
    low: float
    high: float
    error: float
    about: Mapping[str, Any] = field(default_factory=dict)
    shown: str | None = None
    room: float = 1.0

    @property
    def uncertain(self) -> bool:
        """Whether its interval covers more than half of the range: then it says next to nothing."""
        low, high = self.about.get("rank", (self.low, self.high))
        return bool(high - low > self.room / 2)


class Reported:
    """What has a report: as text, as HTML and as JSON, in a terminal and in a notebook."""

    def parts(self, level: float) -> Parts:
        """Return the report as its parts; intervals have this level of confidence."""
        raise NotImplementedError

    def to_dict(self, level: float = 0.95) -> dict[str, Any]:
        """Return the same as plain data."""
        raise NotImplementedError

    def to_json(self) -> str:
        """Return the same as JSON; infinities are written "inf"."""
        return to_json(self.to_dict())

    def report(self, level: float = 0.95) -> str:
        """Return the report as text."""
        from hetdp.report.text import text

        return text(self.parts(level))

    def html(self, level: float = 0.95) -> str:
        """Return the report as a piece of HTML."""
        return to_html(self.parts(level))

    __str__ = report

    def _repr_html_(self) -> str:
        return self.html() + (_AGAIN if _drawn_here(self) else "")


_AGAIN = (
    "<p><b>Running this cell again</b> is another release and spends everybody's ε again. With a ledger and a "
    "<code>release_id</code>, as in <code>Ledger.mean</code>, it shows the same number and costs nothing.</p>"
)


def _drawn_here(shown: Any) -> bool:
    """Say whether a cell of a notebook drew this: an answer without a ledger, or several of which one is."""
    if isinstance(shown, Mapping):
        return any(map(_drawn_here, shown.values()))
    return getattr(shown, "release_id", None) == ""


# How a report is laid out: parts, and the same as HTML ------------------------------------------------------------

Lines = Sequence[tuple[str, str]]
"""Pairs of a heading, or nothing, and a sentence."""


@dataclass(frozen=True)
class Grid:
    """A table: the first columns, which are words, to the left, numbers to the right.

    Attributes
    ----------
    bars
        For each row the ε that is spent and the ε that was asked for, to be drawn.
    words
        How many of the columns are words.
    lengths
        For each row a share of the longest bar, to be drawn beside it.
    """

    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    bars: Sequence[tuple[float, float]] = ()
    words: int = 1
    lengths: Sequence[float] = ()

    @property
    def top(self) -> float:
        """The ε at which bars end: three times what is spent at most."""
        return 3 * max((spent for spent, _ in self.bars if math.isfinite(spent)), default=0.0) or 1.0


Parts = Sequence[Lines | Grid | str]
"""What a report consists of, in its order; text alone is a chart, which HTML shows as the bars of its table."""


def to_html(parts: Parts) -> str:
    """Return a report as a piece of HTML."""
    shown = (part for part in parts if not isinstance(part, str))  # of a chart, HTML has the bars in its table
    laid = [_html_table(part) if isinstance(part, Grid) else _html_lines(part) for part in shown]
    return f'<div class="hetdp">{"".join(laid)}</div>'


def _html_lines(lines: Lines) -> str:
    cell = '<b>{}</b><span style="white-space:pre-wrap">{}</span>'  # blanks keep numbers apart
    rows = (cell.format(html.escape(name), html.escape(sentence)) for name, sentence in lines)
    return f'<div style="display:grid;grid-template-columns:6.5em 1fr;gap:2px 8px">{"".join(rows)}</div>'


def _html_table(grid: Grid) -> str:
    rows = [[html.escape(cell) for cell in row] for row in (grid.headings, *grid.rows)]
    if grid.bars:
        bars = [f"spent | free, up to ε = {epsilon(grid.top)}", *(_bar(*bar, grid.top) for bar in grid.bars)]
        rows = [[*row, bar] for row, bar in zip(rows, bars, strict=True)]
    if grid.lengths:
        bars = ["", *(_bar(length, length, 1.0) for length in grid.lengths)]
        rows = [[*row, bar] for row, bar in zip(rows, bars, strict=True)]
    cell = '<{0} style="text-align:{1};vertical-align:top;padding:2px 12px 2px 0">{2}</{0}>'
    sides = [*["left"] * grid.words, *["right"] * (len(grid.headings) - grid.words), "left"]
    made = ""
    for i, row in enumerate(rows):
        shown = (cell.format("td" if i else "th", side, entry) for side, entry in zip(sides, row, strict=False))
        made += f"<tr>{''.join(shown)}</tr>"
    return f'<div style="overflow-x:auto;margin:10px 0"><table style="border-collapse:collapse">{made}</table></div>'


def _bar(spent: float, asked: float, top: float) -> str:
    """Return a bar of HTML: what is spent, then what is free."""
    dark, full = (round(100 * min(x / top, 1)) for x in (spent, asked))
    part = '<span style="display:inline-block;height:.7em;width:{}px;background:{}"></span>'
    more = " ▶" if asked > top else ""  # it goes on
    parts = part.format(dark, "#0072B2") + part.format(max(full - dark, 0), "#9ecae1")
    return f'<span style="white-space:nowrap">{parts}{more}</span>'  # all bars begin at the left of their column


def page(title: str, body: str, more_style: str = "") -> str:
    """Return a whole HTML page around a report."""
    style = "body{font:16px/1.55 system-ui,sans-serif;max-width:58rem;margin:2.5rem auto;padding:0 1.2rem}"
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>{html.escape(title)}</title><style>:root{{color-scheme:light dark}}{style}{more_style}</style></head>"
        f"<body><h1>{html.escape(title)}</h1>{body}</body></html>"
    )
