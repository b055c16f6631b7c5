"""Plans and releases for people: text for a terminal, HTML for a notebook. The same facts, the same order."""

from __future__ import annotations

import decimal
import html
import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hetdp.core.geometry import Choice, Line, Mass
from hetdp.estimators import METHODS

from .facts import Band

if TYPE_CHECKING:
    from hetdp.core.plan import Plan
    from hetdp.statistics.answer import Answers, Groups
    from hetdp.statistics.statistic import Answer
    from hetdp.theory.target import Target

WIDTH = 100
_BAR = 28
_LONGEST_NAME = 24
_MOST_LEVELS = 24
_HEADINGS = ("Tier", "ε asked", "People", "ε spent", "ε free", "Weight each", "Share")
_PLAIN = {"uniform": "everybody at the smallest ε", "proportional": "weights proportional to ε"}

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


# How numbers are printed


def number(x: float, error: float) -> str:
    """Return x with as many digits as its error deserves: the error's third digit is the last one shown.

    The error is public, so how a number is printed tells nothing about it.

    >>> number(54321.987, 812.0), number(0.123456789, 0.0123), number(1.5e-9, 2e-8)
    ('54,322', '0.1235', '1.5e-09')
    """
    if not 0 < error < math.inf:
        return f"{x:,.6g}"
    last = math.floor(math.log10(error)) - 2  # the decimal place of the last digit shown
    if last >= -6 and error < 1e12:
        return f"{x:,.{max(0, -last)}f}"
    return f"{x:.{max(1, 1 + math.floor(math.log10(max(abs(x), error))) - last)}g}"


def percent(share: float) -> str:
    """Return a share of the range, three digits of it.

    >>> percent(0.01109), percent(1.4e-9)
    ('1.11%', '1.4e-07%')
    """
    return f"{100 * share:.3g}%"


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

    >>> odds(0.004), odds(0.14), odds(1), odds(5), odds(19), odds(1e-300), odds(0)
    ('1.00401', '1.151', '2.72', '149', '1.79e+08', '1.000001', '1')
    """
    if x == 0:
        return "1"
    excess = max(decimal.Decimal(math.expm1(x) * (1 + 1e-15)), decimal.Decimal("1e-6"))  # expm1 is right to 2⁻⁵²
    above = excess if excess < 100 else excess + 1
    step = decimal.Decimal(1).scaleb(above.adjusted() - 2)
    up = (above / step).to_integral_value(decimal.ROUND_CEILING) * step + (1 if excess < 100 else 0)
    return f"{up.normalize():f}" if up < 10**6 else f"{float(up):.2e}"


def shorten(name: str) -> str:
    """Return a name that leaves room for the numbers."""
    return name if len(name) <= _LONGEST_NAME else name[: _LONGEST_NAME - 1] + "…"


# What is said


def people(count: int) -> str:
    """Return a number of people in words.

    >>> people(1), people(2000)
    ('1 person', '2,000 people')
    """
    return "1 person" if count == 1 else f"{count:,} people"


def plan_lines(p: Plan) -> Lines:
    """Return what a plan says besides its table, as pairs of heading and sentence."""
    lines = [("Saturation", _saturation(p))]
    if p.abstains:
        half = f"at most ± {number(p.span.width / 2, p.worst_case_error)}: half the range"
        return [*lines, ("Error", half if _is_one(p) else "nothing is known beyond what was known before")]
    others = (f"{_PLAIN[name]}: {fact['times']:.2f} × this error" for name, fact in p.facts.alternatives.items())
    lines += [("Noise", _noise(p)), ("Error", _error(p)), ("Instead", "; ".join(others))]
    for heading, offer in zip(("Frontier", "", ""), p.facts.frontier, strict=True):
        promise = f"you could promise everyone ε = {epsilon(offer['cap'])} at most ({offer['people']:,} gain)"
        lines.append((heading, f"for {offer['more_mse']:.0%} more squared error {promise}"))
    most = float(p.spent[np.isfinite(p.spent)].max(initial=0))
    if 0 < most < 20:
        guess = f"the odds of any guess about a person's value by at most a factor of {odds(most)}"
        lines.append(("Meaning", f"spending ε = {spent_epsilon(most)} changes {guess}"))
    if any(band.people and band.epsilon[1] > 0 and not band.share for band in p.facts.bands):
        lines.append(("Left out", "people whose ε is too small to count beside the others have weight 0"))
    if p.levels.rounded:
        lines.append(("Levels", "more than 65,536 different ε: each was rounded down to 12 significant bits"))
    if any(20 < level < math.inf for level in p.levels.epsilon[-4:].tolist()):
        lines.append(("Remark", "an ε above 20 allows odds to change by a factor of 10⁸ and more: it protects little"))
    return lines


def _saturation(p: Plan) -> str:
    if p.abstains:
        what = "the midpoint" if _is_one(p) else "one that needs no data"
        return f"too few people or too little ε: the answer is {what}, no data is used and nothing is spent"
    if p.threshold is None:
        return "this method has no saturation level"
    if math.isinf(p.threshold):
        return "none: only public people count" if p.noiseless else "none: everybody spends all they allow"
    above = int(p.levels.count[p.levels.epsilon > p.threshold].sum())
    if not above:
        return f"t = {epsilon(p.threshold)}: nobody is above it, so everybody's ε is used in full"
    verbs = "allows more, spends about t, and gets" if above == 1 else "allow more, spend about t, and get"
    return f"t = {epsilon(p.threshold)}: {people(above)} ({above / p.n:.1%}) {verbs} the rest free"


def _noise(p: Plan) -> str:
    if not p.noise:
        return "none: only public people have weight, so nothing needs protection"
    share, shape = percent(p.noise_scale / p.span.width), p.statistic.geometry
    if isinstance(shape, Choice):
        times = "once" if shape.picks == 1 else f"{shape.picks} times"
        return f"none is added: a cell is drawn at random near the best, {times}; scale {share} of all people"
    if not _is_one(p):
        each = math.sqrt(p.errors.noise / shape.numbers)
        sums = "that adds up to 0" if isinstance(shape, Mass) else "in one draw for all numbers"
        return f"Laplace noise {sums}, standard deviation {percent(each)} of {_whole(p)} each"
    return f"Laplace, scale {number(p.noise_scale, p.noise_scale)} ({share} of {_whole(p)})"


def _whole(p: Plan) -> str:
    """Return what a percentage is of: values have a range, shares are of people."""
    return "all people" if isinstance(p.statistic.geometry, Mass) or not p.statistic.sums else "the range"


def _is_one(p: Plan) -> bool:
    return isinstance(p.statistic.geometry, Line)


def _error(p: Plan) -> str:
    """Errors are root mean squares. Under a stated bound on the variance the worst case is over fewer distributions."""
    width, worst = p.span.width, p.worst_case_error
    if isinstance(p.statistic.geometry, Choice):
        return f"about ± {percent(worst)} of all people {p.statistic.missed}, root mean square, for any distribution"
    if not _is_one(p):
        each = f"root mean square ± {percent(p.error_each)} of {_whole(p)} at most for one number"
        return f"{each}, ± {percent(worst)} for all together in the worst case"
    size = f"root mean square ± {number(worst, worst)} ({percent(worst / width)} of {_whole(p)}) in the worst case"
    if not p.statistic.sums:
        return f"{size}, whatever the share is"
    if p.variance_bound < 0.25:
        deviation = math.sqrt(p.variance_bound) * width
        return f"{size}, if the standard deviation of a value is at most {deviation:,.4g}"
    spread = p.facts.even_spread_error
    even = f"± {number(spread, worst)} ({percent(spread / width)}) if values are spread evenly"
    return f"{size}, for any distribution; {even}"


def _setting(p: Plan) -> Lines:
    lines = [("People", f"{p.n:,}   {p.statistic.setting}"), ("Method", METHODS[p.method].title)]
    if p.share != 1:
        lines.append(("Share", f"this question may use {p.share:.3g} of everybody's ε"))
    return lines


def _estimate(r: Any, level: float) -> Lines:
    error = r.plan.worst_case_error
    estimate = number(r.estimate, error)
    if r.plan.abstains:
        why = "the midpoint of the bounds, NOT from the data (too few people or too little ε)"
        return [("Estimate", f"{estimate}: {why}")]
    low, high = (number(x, error) for x in r.confidence_interval(level))
    narrow = [number(x, error) for x in r.confidence_interval(level, "normal")]
    note = [("Note", "no noise was needed: every person with weight said that their value is public")]
    return [
        *(note if r.plan.noiseless else []),
        ("Estimate", f"{estimate}   {level:.0%} interval {low} to {high}, for any distribution"),
        ("", f"(normal approximation, narrower, no guarantee: {narrow[0]} to {narrow[1]})"),
    ]


def _target(p: Plan, answer: Target) -> Lines:
    """Return the answer to `--target-error`."""
    goal = number(answer.error, answer.error)
    if answer.reached:
        return [("Target", f"the worst-case error is already below {goal}")]
    lines = [("Target", f"a worst-case error of {goal} needs one of these:")]
    if answer.people is None:
        lines.append(("", "no number of people at this mix of ε is enough"))
    else:
        lines.append(("", f"{people(answer.people)} at this mix of ε ({answer.people / p.n:.2f} × as many)"))
    if answer.epsilon and not any(answer.epsilon.values()):
        return [*lines, ("", "raising the ε of one tier: no ε is enough, for any tier")]
    for level, needs in answer.epsilon.items():
        name = p.levels.names.get(level, f"people at ε = {epsilon(level)}")
        lines.append(("", f"{name}: " + (f"ε = {epsilon(needs)}" if needs is not None else "no ε is enough")))
    return lines


def assumed_lines(sentences: Sequence[str]) -> Lines:
    """Return what is assumed, under one heading."""
    return [("" if i else "Assumed", sentence) for i, sentence in enumerate(sentences)]


def cells(band: Band, n: int) -> tuple[str, ...]:
    """Return one row of the table of tiers; weights are shown as multiples of 1/n, that of a plain mean."""
    low, high = band.epsilon
    asked = epsilon(low) if low == high else f"{epsilon(low)} to {epsilon(high)}"
    spent_low, spent_high = (spent_epsilon(x) for x in band.spent)
    spent = spent_low if spent_low == spent_high else f"{spent_low} to {spent_high}"
    if low == high and band.spent[1] <= high < math.inf and float(spent_high) > float(asked):
        asked = spent_high  # rounded the same way: nobody spends more than they asked for
    free = epsilon(band.free) if math.isinf(band.free) or band.free > 1e-3 * high else "–"
    name = shorten(band.name) or ("public" if math.isinf(low) else "never use" if high == 0 else "")
    return name, asked, f"{band.people:,}", spent, free, f"{band.weight * n:.3g}/n", f"{band.share:.1%}"


def _parts(first: Lines, p: Plan, more: Lines = (), notes: Sequence[str] = (), *, chart: bool = False) -> Parts:
    """Return a report: what is special about it, the tiers, the plan, what is assumed."""
    bands, certificate = p.facts.bands, p.facts.certificate
    tiers = Grid(_HEADINGS, [cells(band, p.n) for band in bands], [(b.spent[1], b.epsilon[1]) for b in bands])
    best = "how far this is from the best possible is not certified when a bound on the variance is assumed"
    if not _is_one(p) or p.statistic.whole or p.share != 1:
        best = "how far this is from the best possible is not known: there is no certificate for this statistic yet"
    last = ("Best", certificate["sentence"] if certificate else best)
    bars = [_chart(tiers)] if chart and not p.abstains else []
    return [first, tiers, [*plan_lines(p), *more], *bars, [*assumed_lines([*p.facts.assumptions, *notes]), last]]


def _chart(tiers: Grid) -> str:
    """Return bars: the dark part of what people allow is spent, the light part is free."""
    named = [(row[0] or row[1], *bar) for row, bar in zip(tiers.rows, tiers.bars, strict=True) if bar[1] > 0]
    width, top = max(len(name) for name, *_ in named), tiers.top
    lines = [f"{'':{width}}  █ spent  ░ free  (up to ε = {epsilon(top)})"]
    for name, spent, asked in named:
        dark, full = max(round(_BAR * min(spent / top, 1)), 1), round(_BAR * min(asked / top, 1))
        lines.append(f"{name:>{width}}  {'█' * dark}{'░' * (full - dark)}{'▶' if asked > top else ''}")
    return "\n".join(lines)


def plan_parts(p: Plan, answer: Target | None = None, notes: Sequence[str] = ()) -> Parts:
    """Return the report on a plan, with the answer to `--target-error` if there is one."""
    return _parts(_setting(p), p, _target(p, answer) if answer else (), notes, chart=True)


def release_parts(r: Answer, level: float) -> Parts:
    """Return the report on a release."""
    if _is_one(r.plan):
        return _parts([*_estimate(r, level), *_setting(r.plan)], r.plan, notes=r.notes)
    return [_results(r, level), *_parts([*_above(r, level), *_setting(r.plan)], r.plan, notes=r.notes)]


def _above(r: Answer, level: float) -> Lines:
    if r.plan.abstains:
        return [("Note", "these numbers are NOT from the data (too few people or too little ε)")]
    none = [("Note", "no noise was needed: every person with weight said that their value is public")]
    return [*(none if r.plan.noiseless else []), ("Intervals", f"{level:.0%}, for any distribution; {r.holds}")]


def _results(r: Answer, level: float) -> Grid:
    """Return the numbers of an answer as a table."""
    figures = r.figures(level)
    shares = isinstance(r.plan.statistic.geometry, Mass) and all("people" in f.about for f in figures)
    rows, more = [], [name for name in ("people", "share", "rank") if figures and name in figures[0].about]
    for f in figures:
        low, high, estimate = (
            (f"{100 * x:.2f}%" for x in (f.low, f.high, f.estimate))
            if shares
            else (number(x, f.error) for x in (f.low, f.high, f.estimate))
        )
        extra = [_extra(name, f.about[name]) for name in more]
        rows.append((shorten(f.label), f.shown or estimate, f"{low} to {high}", *extra))
    top = max((f.estimate for f in figures), default=0.0)
    lengths = [max(f.estimate / top, 0.0) for f in figures] if shares and top > 0 else ()
    heads = {"people": "People", "share": "Share of people", "rank": "Rank between"}
    return Grid((r.heading, "Estimate", r.between, *(heads[name] for name in more)), rows, lengths=lengths)


def _extra(name: str, fact: Any) -> str:
    if name == "rank":
        return f"{fact[0]:.3f} and {fact[1]:.3f}"
    return f"{fact:,.0f}" if name == "people" else f"{100 * fact:.2f}%"


def answers_parts(answers: Answers, level: float) -> Parts:
    """Return the report on several answers: the numbers of each, then what everybody spends on all of them."""
    parts: list[Any] = []
    for name, r in answers.items():
        title = r.plan.statistic.title.removeprefix("A ")
        heading = [("Question", f"{name}: {title[0].lower()}{title[1:]}")]
        if _is_one(r.plan):
            parts.append([*heading, *_estimate(r, level), *_setting(r.plan)])
        else:
            parts += [[*heading, *_above(r, level), *_setting(r.plan)], _results(r, level)]
    plans, rows = [r.plan for r in answers.values()], []
    for i, row in enumerate(plans[0].table[:_MOST_LEVELS]):
        spent = [spent_epsilon(float(p.spent[i])) for p in plans]
        together = spent_epsilon(answers.spent[row.epsilon])
        name = shorten(row.name or ("public" if math.isinf(row.epsilon) else ""))
        rows.append((name, epsilon(row.epsilon), f"{row.count:,}", *spent, together))
    parts.append(Grid(("Tier", "ε asked", "People", *(f"for {shorten(name)}" for name in answers), "ε spent"), rows))
    if more := len(plans[0].table) - len(rows):
        parts.append([("Levels", f"{more:,} more levels of ε are not shown; the JSON has them all")])
    said = [sentence for r in answers.values() for sentence in (*r.plan.facts.assumptions, *r.notes)]
    best = "how far this is from the best possible is not known: there is no certificate for several questions"
    return [*parts, [*assumed_lines(list(dict.fromkeys(said))), ("Best", best)]]


def group_parts(groups: Groups, level: float) -> Parts:
    """Return a table of the releases of groups, and what is promised for it as a whole."""
    said = [sentence for r in groups.values() for sentence in (*r.plan.facts.assumptions, *r.notes)]
    last = [("Together", groups.composition), *assumed_lines(list(dict.fromkeys(said)))]
    first = next(iter(groups.values()))
    if not _is_one(first.plan):
        holds = ("Intervals", f"{level:.0%}, for any distribution; in each group {first.holds}")
        return [_group_results(groups, level), [holds, *last]]
    headings = ("Group", "People", "Estimate", f"{level:.0%} interval", "Worst case", "t", "Most spent")
    rows = []
    for name, r in groups.items():
        p, error = r.plan, r.plan.worst_case_error
        t = "–" if p.threshold is None or p.abstains else epsilon(p.threshold)
        ((low, high, estimate),) = ((number(x, error) for x in (f.low, f.high, f.estimate)) for f in r.figures(level))
        estimate += " (midpoint, no data used)" if p.abstains else ""
        spent = spent_epsilon(float(p.spent.max()))
        rows.append((name, f"{p.n:,}", estimate, f"{low} to {high}", f"± {number(error, error)}", t, spent))
    return [Grid(headings, rows), last]


def _group_results(groups: Groups, level: float) -> Grid:
    """Return the numbers of all groups, each as the report on one group has them."""
    headings: Sequence[str] = ()
    rows: list[Sequence[str]] = []
    for name, r in groups.items():
        grid = _results(r, level)
        headings = ("Group", *grid.headings, "Group of", "Most spent")
        unused = " (no data used)" if r.plan.abstains else ""
        size = f"{r.plan.n:,}", spent_epsilon(float(r.plan.spent.max()))
        for i, (label, estimate, *rest) in enumerate(grid.rows):
            rows.append(("" if i else name, label, estimate + unused, *rest, *(("", "") if i else size)))
    return Grid(headings, rows, words=2)


# How it is laid out


def text(parts: Parts, width: int = WIDTH) -> str:
    """Return a report as text, a blank line between its parts."""
    return "\n\n".join(part if isinstance(part, str) else _table(part, width) for part in parts)


def _table(part: Lines | Grid, width: int) -> str:
    if isinstance(part, Grid):
        rows = [[" ".join(cell.split()) for cell in row] for row in (part.headings, *part.rows)]
        sizes = [max(map(len, column)) for column in zip(*rows, strict=True)]
        sides = ["<"] * part.words + [">"] * (len(sizes) - part.words)
        laid = [[f"{cell:{side}{size}}" for cell, side, size in zip(row, sides, sizes, strict=True)] for row in rows]
        bars = ["", *("█" * round(_BAR * length) for length in part.lengths)] if part.lengths else [""] * len(laid)
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
    cell = '<{0} style="text-align:{1};padding:2px 12px 2px 0">{2}</{0}>'
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
    return part.format(dark, "#0072B2") + part.format(max(full - dark, 0), "#9ecae1") + more


def page(title: str, body: str, more_style: str = "") -> str:
    """Return a whole HTML page around a report."""
    style = "body{font:16px/1.55 system-ui,sans-serif;max-width:58rem;margin:2.5rem auto;padding:0 1.2rem}"
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>{html.escape(title)}</title><style>:root{{color-scheme:light dark}}{style}{more_style}</style></head>"
        f"<body><h1>{html.escape(title)}</h1>{body}</body></html>"
    )
