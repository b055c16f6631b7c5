"""Plans and releases for people: text for a terminal, HTML for a notebook. The same facts, the same order."""

from __future__ import annotations

import decimal
import html
import io
import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from hetdp.core.plan import Plan
from hetdp.estimators import find

from .facts import TOLERANCES, Band, alternatives, assumptions, bands, certified, even_spread_error

if TYPE_CHECKING:
    from rich.console import RenderableType

    from hetdp.privacy.release import Release
    from hetdp.theory.target import Target

WIDTH = 100
_BAR = 28
_LONGEST_NAME = 24
_HEADINGS = ("Tier", "ε asked", "People", "ε spent", "ε free", "Weight each", "Share")
_PLAIN = {"uniform": "everybody at the smallest ε", "proportional": "weights proportional to ε"}


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


def plan_lines(p: Plan) -> list[tuple[str, str]]:
    """Return what a plan says besides its table, as pairs of heading and sentence."""
    lines = [("Saturation", _saturation(p))]
    if p.abstains:
        return [*lines, ("Error", f"at most ± {number(p.interval.width / 2, p.worst_case_error)}: half the range")]
    lines += [("Noise", _noise(p)), ("Error", _error(p))]
    others = (f"{_PLAIN[name]}: {fact['times']:.2f} × this error" for name, fact in alternatives(p).items())
    lines += [("Instead", "; ".join(others)), *zip(("Frontier", "", ""), _frontier(p), strict=True)]
    most = float(p.spent[np.isfinite(p.spent)].max(initial=0))
    if 0 < most < 20:
        guess = f"the odds of any guess about a person's value by at most a factor of {odds(most)}"
        lines.append(("Meaning", f"spending ε = {spent_epsilon(most)} changes {guess}"))
    if any(b.people and b.epsilon[1] > 0 and not b.share for b in bands(p)):
        lines.append(("Left out", "people whose ε is too small to count beside the others have weight 0"))
    if p.levels.rounded:
        lines.append(("Levels", "more than 65,536 different ε: each was rounded down to 12 significant bits"))
    if any(20 < level < math.inf for level in p.levels.epsilon[-4:].tolist()):
        lines.append(("Remark", "an ε above 20 allows odds to change by a factor of 10⁸ and more: it protects little"))
    return lines


def _noise(p: Plan) -> str:
    if not p.noise:
        return "none: only public people have weight, so nothing needs protection"
    share = percent(p.noise_scale / p.interval.width)
    return f"Laplace, scale {number(p.noise_scale, p.noise_scale)} ({share} of the range)"


def _error(p: Plan) -> str:
    """Errors are root mean squares. Under a stated bound on the variance the worst case is over fewer distributions."""
    width, worst = p.interval.width, p.worst_case_error
    size = f"± {number(worst, worst)} ({percent(worst / width)} of the range)"
    if p.variance_bound < 0.25:
        deviation = math.sqrt(p.variance_bound) * width
        limit = f"if the standard deviation of a value is at most {deviation:,.4g}"
        return f"root mean square {size} in the worst case, {limit}"
    spread = even_spread_error(p)
    return (
        f"root mean square {size} in the worst case, for any distribution; "
        f"± {number(spread, worst)} ({percent(spread / width)}) if values are spread evenly"
    )


def _saturation(p: Plan) -> str:
    if p.abstains:
        return "so few people or so little ε that the answer is the midpoint: no data is used, nothing is spent"
    if p.threshold is None:
        return "this method has no saturation level"
    if math.isinf(p.threshold):
        return "none: only public people count" if p.noiseless else "none: everybody spends all they allow"
    above = int(p.levels.count[p.levels.epsilon > p.threshold].sum())
    if not above:
        return f"t = {epsilon(p.threshold)}: nobody is above it, so everybody's ε is used in full"
    share = above / p.n
    who = f"{above:,} people ({share:.1%}) allow more, spend about t, and get the rest free"
    return f"t = {epsilon(p.threshold)}: {who}"


def _frontier(p: Plan) -> list[str]:
    lines = []
    for tolerance in TOLERANCES:
        cap = p.frontier(tolerance)
        people = int(p.levels.count[p.levels.epsilon > cap].sum())
        offer = f"ε = {epsilon(cap)} to everyone above it ({people:,} people)"
        lines.append(f"for {tolerance:.0%} more squared error you can offer {offer}")
    return lines


def release_lines(r: Release, level: float = 0.95) -> list[tuple[str, str]]:
    """Return what a release says besides its table."""
    p = r.plan
    error = p.worst_case_error
    if p.abstains:
        why = "the midpoint of the bounds, NOT from the data (too few people or too little ε)"
        return [("Estimate", f"{number(r.estimate, error)}: {why}"), *_setting(p)]
    low, high = (number(x, error) for x in r.confidence_interval(level))
    narrow = [number(x, error) for x in r.confidence_interval(level, "normal")]
    first = []
    if p.noiseless:
        first = [("Note", "no noise was needed: every person with weight said that their value is public")]
    return [
        *first,
        ("Estimate", f"{number(r.estimate, error)}   {level:.0%} interval {low} to {high}, for any distribution"),
        ("", f"(normal approximation, narrower, no guarantee: {narrow[0]} to {narrow[1]})"),
        *_setting(p),
    ]


def _setting(p: Plan) -> list[tuple[str, str]]:
    low, high = (f"{bound:,.10g}" for bound in p.bounds)
    return [("People", f"{p.n:,}   values in [{low}, {high}]"), ("Method", find(p.method).title)]


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


def shorten(name: str) -> str:
    """Return a name that leaves room for the numbers."""
    return name if len(name) <= _LONGEST_NAME else name[: _LONGEST_NAME - 1] + "…"


def renderable(
    lines: list[tuple[str, str]],
    p: Plan,
    *,
    chart: bool,
    more: Sequence[tuple[str, str]] = (),
    notes: Sequence[str] = (),
) -> RenderableType:
    """Return the report for a rich console: facts, table, chart, assumptions."""
    from rich.console import Group
    from rich.padding import Padding
    from rich.table import Table

    def facts(pairs: Iterable[tuple[str, str]]) -> Table:
        grid = Table.grid(padding=(0, 2))
        grid.add_column(style="bold", no_wrap=True, min_width=10)
        grid.add_column()
        for pair in pairs:
            grid.add_row(*pair)
        return grid

    tiers = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
    for i, heading in enumerate(_HEADINGS):
        tiers.add_column(heading, justify="left" if i == 0 else "right", no_wrap=True)
    for band in bands(p):
        tiers.add_row(*cells(band, p.n))
    parts: list[RenderableType] = [facts(lines), Padding(tiers, (1, 0)), facts([*plan_lines(p), *more])]
    if chart and not p.abstains:
        parts.append(Padding(_chart(p), (1, 0, 0, 0)))
    said = [*assumptions(p), *notes]
    last = [*zip(["Assumed", *[""] * (len(said) - 1)], said, strict=True), ("Best", _best(p))]
    parts.append(Padding(facts(last), (1, 0, 0, 0)))
    return Group(*parts)


def _best(p: Plan) -> str:
    found = certified(p)
    if found is None:
        return "how far this is from the best possible is not certified when a bound on the variance is assumed"
    return str(found["sentence"])


def _chart_top(rows: list[Band]) -> float:
    return 3 * max((band.spent[1] for band in rows if math.isfinite(band.spent[1])), default=0.0) or 1.0


def _chart(p: Plan) -> str:
    """Return bars: the dark part of what people allow is spent, the light part is free."""
    rows = [band for band in bands(p) if band.epsilon[1] > 0]
    top = _chart_top(rows)
    named = [cells(band, p.n)[0] or cells(band, p.n)[1] for band in rows]
    width = max(map(len, named))
    lines = [f"{'':{width}}  █ spent  ░ free  (up to ε = {epsilon(top)})"]
    for name, band in zip(named, rows, strict=True):
        spent = round(_BAR * min(band.spent[1] / top, 1))
        asked = round(_BAR * min(band.epsilon[1] / top, 1))
        more = "▶" if band.epsilon[1] > top else ""
        lines.append(f"{name:>{width}}  {'█' * max(spent, 1)}{'░' * (asked - max(spent, 1))}{more}")
    return "\n".join(lines)


def text(body: RenderableType) -> str:
    """Return a report as plain text."""
    from rich.console import Console

    console = Console(file=io.StringIO(), width=WIDTH, color_system=None, legacy_windows=False)
    console.print(body, highlight=False, markup=False)
    printed: str = console.file.getvalue()  # type: ignore[attr-defined]  # it is the StringIO above
    return "\n".join(line.rstrip() for line in printed.splitlines())


def target_lines(p: Plan, answer: Target) -> list[tuple[str, str]]:
    """Return the answer to `--target-error`."""
    goal = number(answer.error, answer.error)
    if answer.reached:
        return [("Target", f"the worst-case error is below {goal} already")]
    lines = [("Target", f"a worst-case error of {goal} needs one of these:")]
    if answer.people is None:
        lines.append(("", "no number of people at this mix of ε can do it"))
    else:
        lines.append(("", f"{answer.people:,} people at this mix of ε ({answer.people / p.n:.2f} × as many)"))
    if answer.epsilon and not any(answer.epsilon.values()):
        return [*lines, ("", "raising the ε of one tier: no ε can do it, for any tier")]
    for level, needs in answer.epsilon.items():
        name = p.levels.names.get(level, f"people at ε = {epsilon(level)}")
        lines.append(("", f"{name}: " + (f"ε = {epsilon(needs)}" if needs is not None else "no ε can do it")))
    return lines


def plan_body(p: Plan, answer: Target | None = None, notes: Sequence[str] = ()) -> RenderableType:
    """Return the report on a plan for a rich console, with the answer to `--target-error` if there is one."""
    return renderable(_setting(p), p, chart=True, more=target_lines(p, answer) if answer else [], notes=notes)


def release_body(r: Release, level: float = 0.95) -> RenderableType:
    """Return the report on a release for a rich console."""
    return renderable(release_lines(r, level), r.plan, chart=False, notes=r.notes)


def plan_text(p: Plan) -> str:
    """Return the report on a plan as text."""
    return text(plan_body(p))


def plan_html(p: Plan, answer: Target | None = None, notes: Sequence[str] = ()) -> str:
    """Return the report on a plan as a piece of HTML."""
    return _html(_setting(p), p, target_lines(p, answer) if answer else [], notes)


def release_html(r: Release, level: float = 0.95) -> str:
    """Return the report on a release as a piece of HTML."""
    return _html(release_lines(r, level), r.plan, notes=r.notes)


def page(title: str, body: str) -> str:
    """Return a whole HTML page around a report."""
    style = "body{font:16px/1.55 system-ui,sans-serif;max-width:58rem;margin:2.5rem auto;padding:0 1.2rem}"
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>{html.escape(title)}</title><style>:root{{color-scheme:light dark}}{style}</style></head>"
        f"<body><h1>{html.escape(title)}</h1>{body}</body></html>"
    )


def _html(
    lines: list[tuple[str, str]], p: Plan, more: Sequence[tuple[str, str]] = (), notes: Sequence[str] = ()
) -> str:
    def facts(pairs: Iterable[tuple[str, str]]) -> str:
        cell = '<b>{}</b><span style="white-space:pre-wrap">{}</span>'  # blanks keep numbers apart
        rows = (cell.format(html.escape(name), html.escape(sentence)) for name, sentence in pairs)
        grid = "display:grid;grid-template-columns:6.5em 1fr;gap:2px 8px"
        return f'<div style="{grid}">{"".join(rows)}</div>'

    def row(entries: Iterable[str], tag: str, bar: str) -> str:
        cell = '<{0} style="text-align:{1};padding:2px 12px 2px 0">{2}</{0}>'
        sides = ["left"] + ["right"] * (len(_HEADINGS) - 1)
        shown = (cell.format(tag, side, html.escape(entry)) for side, entry in zip(sides, entries, strict=True))
        return f"<tr>{''.join(shown)}<{tag}>{bar}</{tag}></tr>"

    top = _chart_top(bands(p))
    head = row(_HEADINGS, "th", f"spent | free, up to ε = {epsilon(top)}")
    table = head + "".join(row(cells(b, p.n), "td", _bar(b, top)) for b in bands(p))
    assumed = "".join(f"<li>{html.escape(sentence)}</li>" for sentence in [*assumptions(p), *notes])
    return (
        f'<div class="hetdp">{facts(lines)}<div style="overflow-x:auto">'
        f'<table style="margin:10px 0;border-collapse:collapse">{table}</table></div>'
        f"{facts([*plan_lines(p), *more, ('Best', _best(p))])}"
        f'<details open style="margin-top:8px"><summary>What is assumed</summary><ul>{assumed}</ul></details></div>'
    )


def _bar(band: Band, top: float) -> str:
    """Return a bar of HTML: what is spent, then what is free."""
    spent, asked = (round(100 * min(x / top, 1)) for x in (band.spent[1], band.epsilon[1]))
    part = '<span style="display:inline-block;height:.7em;width:{}px;background:{}"></span>'
    more = " ▶" if band.epsilon[1] > top else ""  # it goes on
    return part.format(spent, "#0072B2") + part.format(max(asked - spent, 0), "#9ecae1") + more
