"""What every answer can show of itself: where it comes from, its numbers, and a report as text, HTML and JSON.

What a report says comes from `text`; here it becomes a piece of HTML for a notebook, or a whole page. Below is how
numbers are printed: to the digits that their error supports, and limits on the side where they are true.
"""

from __future__ import annotations

import decimal
import html
import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from hetdp.core.domain import plural, to_json

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
    edge
        Whether it is an end of the range: what is published without the clamp lies beyond.
    vague
        Whether it is too uncertain by another rule than the width of its range.
    """

    label: str
    estimate: float
    low: float
    high: float
    error: float
    about: Mapping[str, Any] = field(default_factory=dict)
    shown: str | None = None
    room: float = 1.0
    edge: bool = False
    vague: bool = False

    @property
    def uncertain(self) -> bool:
        """Whether its interval covers more than half of the range, or it is vague: then it says next to nothing."""
        in_units = "rank" not in self.about or self.about.get("within") is not None
        low, high = (self.low, self.high) if in_units else self.about["rank"]
        return bool(self.vague or high - low > self.room / 2)

    @property
    def doubt(self) -> str:
        """What stands beside a number that is too uncertain, or that is an end of the range; empty if neither."""
        edge = " (at the end of the range)" if self.edge else ""
        return " (too uncertain to use)" if self.uncertain else edge


class Shown:
    """What has a report: as text in a terminal, as HTML in a notebook."""

    def parts(self) -> Parts:
        """Return the report as its parts."""
        raise NotImplementedError

    def report(self) -> str:
        """Return the report as text."""
        return to_text(self.parts())

    def _repr_html_(self) -> str:
        return to_html(self.parts())

    __str__ = report


class Reported:
    """What has a report with intervals: as text, as HTML and as JSON, in a terminal and in a notebook."""

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
        return to_text(self.parts(level))

    def html(self, level: float = 0.95) -> str:
        """Return the report as a piece of HTML."""
        return to_html(self.parts(level))

    def __format__(self, spec: str) -> str:
        """Return the one number in this format, as in f"{release:.2f}"; without one, the report."""
        return format(float(self), spec) if spec else str(self)  # type: ignore[arg-type]  # several are no float

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


# How a report is laid out: parts, and the same as text and as HTML ------------------------------------------

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


WIDTH = 100
BAR = 28


def to_text(parts: Parts, width: int = WIDTH) -> str:
    """Return a report as text, a blank line between its parts."""
    return "\n\n".join(part if isinstance(part, str) else _text_table(part, width) for part in parts)


def _text_table(part: Lines | Grid, width: int) -> str:
    if isinstance(part, Grid):
        rows = [[" ".join(cell.split()) for cell in row] for row in (part.headings, *part.rows)]
        sizes = [max(map(len, column)) for column in zip(*rows, strict=True)]
        sides = ["<"] * part.words + [">"] * (len(sizes) - part.words)
        laid = [[f"{cell:{side}{size}}" for cell, side, size in zip(row, sides, sizes, strict=True)] for row in rows]
        bars = ["", *("█" * round(BAR * length) for length in part.lengths)] if part.lengths else [""] * len(laid)
        return "\n".join("  ".join([*row, bar]).rstrip() for row, bar in zip(laid, bars, strict=True))
    lines, indent = [], max(10, *(len(heading) for heading, _ in part)) + 2
    for heading, sentence in part:
        for i, piece in enumerate(textwrap.wrap(sentence, max(width - indent, 20), break_on_hyphens=False)):
            lines.append(f"{'' if i else heading:{indent}}{piece}")
    return "\n".join(lines)


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


# How numbers are printed ---------------------------------------------------------------------------------------------

_LONGEST_NAME = 24


def number(x: float, error: float, way: str = "nearest") -> str:
    """Return x with as many digits as its error deserves: the error's second digit is the last one shown.

    The error is public, so how a number is printed tells nothing about it. What is claimed to be a limit is rounded
    "up" or "down" to the side on which it stays true, but for a millionth of the last digit.

    >>> number(54321.987, 812.0), number(0.123456789, 0.0123), number(1.6e-9, 2e-8)
    ('54,320', '0.123', '2e-09')
    >>> number(54321.987, 812.0, "up"), number(54321.987, 812.0, "down"), number(0.1, 0.1, "up")
    ('54,330', '54,320', '0.10')
    """
    if not 0 < error < math.inf:
        return f"{x:,.6g}"
    last = math.floor(math.log10(error)) - 1  # the decimal place of the last digit shown
    step = decimal.Decimal(1).scaleb(last)
    slack = {"up": -_HAIR, "down": _HAIR}.get(way, decimal.Decimal(0))
    rounded = (decimal.Decimal(x) / step + slack).to_integral_value(_WAYS[way]) * step or decimal.Decimal(0)
    if last >= -6 and error < 1e12:
        return f"{rounded:,.{max(0, -last)}f}"
    return f"{float(rounded):.{max(1, 1 + rounded.adjusted() - last)}g}"


_WAYS = {"nearest": decimal.ROUND_HALF_EVEN, "up": decimal.ROUND_CEILING, "down": decimal.ROUND_FLOOR}
_HAIR = decimal.Decimal("1e-6")


def between(low: float, high: float, error: float) -> str:
    """Return an interval, rounded to the outside: what is guaranteed of it holds for what is printed."""
    return f"{number(low, error, 'down')} to {number(high, error, 'up')}"


def bin_ends(low: float, high: float) -> str:
    """Return the ends of a bin, to the nearest: a bin is what was chosen, it guarantees nothing.

    >>> bin_ends(48.9999523, 49.9999523), between(48.9999523, 49.9999523, 1.0)
    ('49.0 to 50.0', '48.9 to 50.0')
    """
    return f"{number(low, high - low)} to {number(high, high - low)}"


def size(x: float) -> str:
    """Return the size of an error or of noise, two digits of it, rounded up.

    >>> size(2774), size(0.02), size(1.4e-9)
    ('2,800', '0.020', '1.4e-09')
    """
    return number(x, x, "up")


def stated(x: float) -> str:
    """Return a number that somebody stated, in full: it has no error.

    >>> stated(0.05 * 250000), stated(0.1 * 3), stated(100 * 0.125)
    ('12,500', '0.3', '12.5')
    """
    return f"{x:,.12g}"


def percent(share: float) -> str:
    """Return the size of an error as a share of the range, two digits of it, rounded up.

    >>> percent(0.01109), percent(0.02), percent(1.4e-9)
    ('1.2%', '2%', '1.4e-07%')
    """
    return f"{float(size(100 * share).replace(',', '')):g}%"


def level_words(level: float) -> str:
    """Return a level of confidence, never rounded: 99.95% must not read 100%.

    >>> level_words(0.95), level_words(0.975), level_words(0.9999)
    ('95%', '97.5%', '99.99%')
    """
    return f"{100 * level:.12g}%"


def epsilon(x: float) -> str:
    """Return an ε for reading."""
    return "∞" if math.isinf(x) else f"{x:.4g}"


def spent_epsilon(x: float) -> str:
    """Return an ε that is spent, rounded up so that what is printed holds, but for a millionth of it.

    >>> spent_epsilon(0.123411), spent_epsilon(0.1), spent_epsilon(0.2142857147)
    ('0.1235', '0.1', '0.2143')
    """
    if math.isinf(x) or x == 0:
        return epsilon(x)
    exact = decimal.Decimal(x * (1 - 1e-6))
    step = decimal.Decimal(1).scaleb(exact.adjusted() - 3)
    return epsilon(float((exact / step).to_integral_value(decimal.ROUND_CEILING) * step))


def odds(x: float) -> str:
    """Return e^ε, the factor by which odds can change at most, rounded up; it is above 1 for every ε > 0.

    What exceeds 1 is given to three digits.

    >>> odds(0.004), odds(0.14), odds(1), odds(5), odds(19), odds(800), odds(1e-300), odds(0)
    ('1.00401', '1.151', '2.72', '149', '1.79e+8', '2.73e+347', '1.000001', '1')
    """
    if x == 0:
        return "1"
    large = x > 700  # e^x is no double
    known = decimal.Decimal(x).exp() if large else decimal.Decimal(math.expm1(x) * (1 + 1e-15))  # right to 2⁻⁵²
    excess = max(known, decimal.Decimal("1e-6"))
    above = excess if excess < 100 else excess + 1
    step = decimal.Decimal(1).scaleb(above.adjusted() - 2)
    up = (above / step).to_integral_value(decimal.ROUND_CEILING) * step + (1 if excess < 100 else 0)
    return f"{up.normalize():f}" if up < 10**6 else f"{up:.2e}"


def shorten(name: str) -> str:
    """Return a name that leaves room for the numbers."""
    return name if len(name) <= _LONGEST_NAME else name[: _LONGEST_NAME - 1] + "…"


def people(count: int) -> str:
    """Return a number of people in words.

    >>> people(1), people(2000)
    ('1 person', '2,000 people')
    """
    return plural(count, "person")
