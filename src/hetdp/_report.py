"""Plans and releases for people: text for a terminal, HTML for a notebook. The same facts, the same order."""

from __future__ import annotations

import html
import io
import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ._facts import ASSUMPTIONS, TOLERANCES, Band, alternatives, bands, certified, even_spread_error
from ._plan import Plan
from .estimators import find

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ._release import Release
    from ._target import Target

WIDTH = 100
_BAR = 28
_HEADINGS = ("Tier", "ε asked", "People", "ε spent", "ε free", "Weight each", "Share")
_PLAIN = {"uniform": "everybody at the smallest ε", "proportional": "weights proportional to ε"}


def number(x: float, error: float) -> str:
    """Return x with as many decimals as its error deserves: the error's second digit is the last one shown.

    The error is public, so how a number is printed tells nothing about it.

    >>> number(54321.987, 812.0), number(0.123456789, 0.0123)
    ('54,322', '0.1235')
    """
    decimals = 0 if not 0 < error < math.inf else min(12, max(0, 2 - math.floor(math.log10(error))))
    return f"{x:,.{decimals}f}"


def epsilon(x: float) -> str:
    """Return an ε for reading."""
    return "∞" if math.isinf(x) else f"{x:.4g}"


def plan_lines(p: Plan) -> list[tuple[str, str]]:
    """Return what a plan says besides its table, as pairs of heading and sentence."""
    lines = [("Saturation", _saturation(p))]
    if p.abstains:
        return lines
    width, worst = p.interval.width, p.worst_case_error
    spread = even_spread_error(p)
    lines += [
        ("Noise", f"Laplace, scale {number(p.noise_scale, worst)} ({p.noise_scale / width:.3%} of the range)"
         if p.noise else "none: only public people have weight, so nothing needs protection"),
        ("Error", f"worst case ± {number(worst, worst)} ({worst / width:.3%} of the range), for any distribution; "
                  f"± {number(spread, worst)} ({spread / width:.3%}) if values are spread evenly"),
        ("Instead", "; ".join(f"{_PLAIN[name]}: {fact['times']:.2f} × this error"
                              for name, fact in alternatives(p).items())),
        *zip(("Frontier", "", ""), _frontier(p), strict=True),
    ]  # fmt: skip
    if any(b.people and b.epsilon[1] > 0 and not b.share for b in bands(p)):
        lines.append(("Left out", "people whose ε is too small to count beside the others have weight 0"))
    if p.levels.rounded:
        lines.append(("Levels", "more than 65,536 different ε: each was rounded down to 12 significant bits"))
    if any(20 < level < math.inf for level in p.levels.epsilon[-4:].tolist()):
        lines.append(("Remark", "an ε above 20 allows odds to change by a factor of 10⁸ and more: it protects little"))
    return lines


def _saturation(p: Plan) -> str:
    if p.abstains:
        return "with so few people or so little ε the midpoint is the best answer: no data is used, nothing is spent"
    if p.threshold is None:
        return "this method has no saturation level"
    if math.isinf(p.threshold):
        return "none: only public people count" if p.noiseless else "none: everybody spends all they allow"
    above = int(p.levels.count[p.levels.epsilon > p.threshold].sum())
    if not above:
        return f"t = {epsilon(p.threshold)}: nobody is above it, so everybody's ε is used in full"
    share = above / p.n
    return (
        f"t = {epsilon(p.threshold)}: nobody spends more; {above:,} people ({share:.1%}) get the rest of their ε free"
    )


def _frontier(p: Plan) -> list[str]:
    lines = []
    for tolerance in TOLERANCES:
        cap = p.frontier(tolerance)
        people = int(p.levels.count[p.levels.epsilon > cap].sum())
        lines.append(
            f"with {tolerance:.0%} more squared error you can offer everyone above it "
            f"ε = {epsilon(cap)} ({people:,} people)"
        )
    return lines


def release_lines(r: Release, level: float = 0.95) -> list[tuple[str, str]]:
    """Return what a release says besides its table."""
    p = r.plan
    error = p.worst_case_error
    low, high = (number(x, error) for x in r.interval(level))
    narrow = [number(x, error) for x in r.interval(level, "normal")]
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


def cells(band: Band) -> tuple[str, ...]:
    """Return one row of the table of tiers."""
    low, high = band.epsilon
    asked = epsilon(low) if low == high else f"{epsilon(low)} to {epsilon(high)}"
    spent_low, spent_high = (epsilon(x) for x in band.spent)
    spent = spent_low if spent_low == spent_high else f"{spent_low} to {spent_high}"
    free = epsilon(band.free) if math.isinf(band.free) or band.free > 1e-3 * high else "–"
    name = band.name or ("public" if math.isinf(low) else "never use" if high == 0 else "")
    return name, asked, f"{band.people:,}", spent, free, f"{band.weight:.3e}", f"{band.share:.1%}"


def renderable(lines: list[tuple[str, str]], p: Plan, *, chart: bool) -> RenderableType:
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
        tiers.add_row(*cells(band))
    parts: list[RenderableType] = [facts(lines), Padding(tiers, (1, 0)), facts(plan_lines(p))]
    if chart and not p.abstains:
        parts.append(Padding(_chart(p), (1, 0, 0, 0)))
    last = [*zip(("Assumed", "", ""), ASSUMPTIONS, strict=True), ("Best", _best(p))]
    parts.append(Padding(facts(last), (1, 0, 0, 0)))
    return Group(*parts)


def _best(p: Plan) -> str:
    found = certified(p)
    if found is None:
        return "how far this is from the best possible is not certified when a bound on the variance is assumed"
    return str(found["sentence"])


def _chart(p: Plan) -> str:
    """Return bars: the dark part of what people allow is spent, the light part is free."""
    rows = [band for band in bands(p) if band.epsilon[1] > 0]
    top = 3 * max((band.spent[1] for band in rows if math.isfinite(band.spent[1])), default=0.0) or 1.0
    named = [cells(band)[0] or cells(band)[1] for band in rows]
    width = max(map(len, named))
    lines = [f"{'':{width}}  █ spent  ░ free  (up to ε = {epsilon(top)})"]
    for name, band in zip(named, rows, strict=True):
        spent = round(_BAR * min(band.spent[1] / top, 1))
        asked = round(_BAR * min(band.epsilon[1] / top, 1))
        more = "▶" if band.epsilon[1] > top else ""
        lines.append(f"{name:>{width}}  {'█' * max(spent, 1)}{'░' * (asked - max(spent, 1))}{more}")
    return "\n".join(lines)


def text(body: RenderableType) -> str:
    from rich.console import Console

    console = Console(file=io.StringIO(), width=WIDTH, color_system=None, legacy_windows=False)
    console.print(body, highlight=False, markup=False)
    printed: str = console.file.getvalue()  # type: ignore[attr-defined]  # it is the StringIO above
    return "\n".join(line.rstrip() for line in printed.splitlines())


def with_target(body: RenderableType, p: Plan, answer: Target) -> RenderableType:
    """Return a report on a plan with the answer to `--target-error` below it."""
    from rich.console import Group

    goal = number(answer.error, answer.error)
    if answer.reached:
        return Group(body, f"\nTarget: the worst-case error is below {goal} already")
    lines = [f"\nTarget: a worst-case error of {goal} needs one of these"]
    if answer.people is None:
        lines.append("  no number of people at this mix of ε can do it")
    else:
        lines.append(f"  {answer.people:,} people at this mix of ε ({answer.people / p.n:.2f} × as many)")
    for level, needs in answer.epsilon.items():
        name = p.levels.names.get(level, f"ε = {epsilon(level)}")
        lines.append(f"  {name}: " + (f"ε = {epsilon(needs)}" if needs is not None else "no ε can do it"))
    return Group(body, "\n".join(lines))


def plan_body(p: Plan) -> RenderableType:
    """Return the report on a plan for a rich console."""
    return renderable(_setting(p), p, chart=True)


def release_body(r: Release, level: float = 0.95) -> RenderableType:
    """Return the report on a release for a rich console."""
    return renderable(release_lines(r, level), r.plan, chart=False)


def plan_text(p: Plan) -> str:
    """Return the report on a plan as text."""
    return text(plan_body(p))


def release_text(r: Release, level: float = 0.95) -> str:
    """Return the report on a release as text."""
    return text(release_body(r, level))


def plan_html(p: Plan) -> str:
    """Return the report on a plan as a piece of HTML."""
    return _html(_setting(p), p)


def release_html(r: Release, level: float = 0.95) -> str:
    """Return the report on a release as a piece of HTML."""
    return _html(release_lines(r, level), r.plan)


def _html(lines: list[tuple[str, str]], p: Plan) -> str:
    def facts(pairs: Iterable[tuple[str, str]]) -> str:
        return "".join(
            f'<div style="margin:2px 0"><b style="display:inline-block;width:6.5em">{html.escape(name)}</b>'
            f"{html.escape(sentence)}</div>"
            for name, sentence in pairs
        )

    def row(entries: Iterable[str], tag: str) -> str:
        cell = '<{0} style="text-align:{1};padding:2px 12px 2px 0">{2}</{0}>'
        sides = ["left"] + ["right"] * (len(_HEADINGS) - 1)
        shown = (cell.format(tag, side, html.escape(entry)) for side, entry in zip(sides, entries, strict=True))
        return f"<tr>{''.join(shown)}</tr>"

    table = row(_HEADINGS, "th") + "".join(row(cells(band), "td") for band in bands(p))
    assumed = "".join(f"<li>{html.escape(sentence)}</li>" for sentence in ASSUMPTIONS)
    return (
        f'<div class="hetdp">{facts(lines)}<table style="margin:8px 0;border-collapse:collapse">{table}</table>'
        f"{facts([*plan_lines(p), ('Best', _best(p))])}"
        f'<details style="margin-top:6px"><summary>What is assumed</summary><ul>{assumed}</ul>'
        "</details></div>"
    )
