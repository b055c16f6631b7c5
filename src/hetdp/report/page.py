"""Reports as HTML: a piece of a notebook, or a whole page. What is said comes from `text`."""

from __future__ import annotations

import html

from .numbers import epsilon
from .text import Grid, Lines, Parts


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
