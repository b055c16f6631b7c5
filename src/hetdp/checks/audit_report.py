"""An audit for people: a table, what each part can and cannot notice, and a picture."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from hetdp.report import plots
from hetdp.report.text import epsilon, shorten, spent_epsilon

from .audit import Audit, Finding
from .audit_bound import reach

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from rich.console import RenderableType

_HEADINGS = ("Method", "Tier", "ε asked", "Claimed", "Exact check", "Shown ≥", "To see 1.1 ×", "")
NOTICES = (
    (
        "Exact check",
        "integers, every pair of extreme values of one person at each level, read by each engine. It notices a scale "
        "that is too small by any amount, a value that is not clamped, a row that is dropped. It cannot see the "
        "sampler.",
    ),
    (
        "Goodness of fit",
        "the law of the noise at small scales. It notices noise of a wrong law, on a coarse grid, cut off or "
        "repeated. It cannot see an error far below 1/√draws, nor a bad source of randomness.",
    ),
    (
        "Shown",
        "a lower bound on ε from real releases of two datasets that differ in one value. It notices gross "
        "faults anywhere in a release. “To see 1.1 ×” says how many draws a loss of 1.1 × the claim takes; with "
        "fewer it is not seen. A bound below the claim proves nothing.",
    ),
)


def body(audit: Audit) -> RenderableType:
    """Return the report for a rich console."""
    from rich.console import Group
    from rich.padding import Padding
    from rich.table import Table

    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
    for i, heading in enumerate(_HEADINGS):
        table.add_column(heading, justify="left" if i < 2 or i == len(_HEADINGS) - 1 else "right", no_wrap=True)
    for finding in audit.findings:
        table.add_row(*_cells(finding))
    notes = Table.grid(padding=(0, 2))
    notes.add_column(style="bold", no_wrap=True)
    for pair in [*_summary(audit), *NOTICES]:
        notes.add_row(*pair)
    return Group(table, Padding(notes, (1, 0, 0, 0)))


def verdict(audit: Audit) -> str:
    """Return the outcome in a sentence."""
    broken = sum(not finding.holds for finding in audit.findings) + sum(not fit.passed for fit in audit.fits)
    if broken:
        return f"BROKEN: {broken} of the claims above do not hold; do not release with this installation"
    return "no claim is broken"


def _summary(audit: Audit) -> list[tuple[str, str]]:
    lines = [("Verdict", verdict(audit))]
    lines += [("", f"{f.method}, ε = {epsilon(f.epsilon)}: {fault}") for f in audit.findings for fault in f.faults]
    lines += [("Left out", f"{method}: {reason}") for method, reason in audit.refusals.items()]
    for fit in audit.fits:
        law = "right law" if fit.passed else "WRONG LAW"
        lines.append(("Noise", f"scale {fit.scale:g}: {fit.draws:,} draws, p = {fit.p_value:.3g}: {law}"))
    lines.append(("Engines", ", ".join(audit.engines)))
    wrong = f"together they are wrong with probability at most {audit.alpha:g}"
    lines.append(("Draws", f"{audit.draws:,} releases of each dataset, half of them to choose the event; {wrong}"))
    return lines


def _cells(finding: Finding) -> tuple[str, ...]:
    shown = "–" if finding.lower_bound is None else epsilon(finding.lower_bound)
    needed = "–" if math.isinf(finding.needed) else f"{finding.needed:.1e}"
    claimed = spent_epsilon(finding.claimed)
    exact = "–" if math.isinf(finding.exact) and math.isinf(finding.claimed) else spent_epsilon(finding.exact)
    name = shorten(finding.name)
    mark = "holds" if finding.holds else "BROKEN"
    return finding.method, name, epsilon(finding.epsilon), claimed, exact, shown, needed, mark


def facts(audit: Audit) -> dict[str, Any]:
    """Return the audit as plain data; infinities are written "inf"."""
    return {
        "holds": audit.holds,
        "draws": audit.draws,
        "alpha": audit.alpha,
        "alpha_each": audit.alpha_each,
        "engines": list(audit.engines),
        "refusals": dict(audit.refusals),
        "sampler": [{"scale": f.scale, "draws": f.draws, "p_value": f.p_value, "passed": f.passed} for f in audit.fits],
        "findings": [
            {
                "method": f.method,
                "tier": f.name,
                "epsilon": _plain(f.epsilon),
                "claimed": _plain(f.claimed),
                "exact_loss": _plain(f.exact),
                "pairs": f.pairs,
                "lower_bound": f.lower_bound,
                "draws_for_1.1": _plain(f.needed),
                "holds": f.holds,
                "faults": list(f.faults),
            }
            for f in audit.findings
        ],
    }


def _plain(x: float) -> float | str:
    return "inf" if math.isinf(x) else x


def picture(audit: Audit) -> Figure:
    """Return claimed against shown: no point may lie above the line where they are equal.

    Where nothing was shown there is no place on a logarithmic axis: those points stand in a band below, a row a method.
    """
    drawn, (axes,) = plots.figure(width=6.6, height=4.6)
    points = [f for f in audit.findings if f.lower_bound is not None and 0 < f.claimed < math.inf]
    claims = [f.claimed for f in points] or [1.0]
    low, high = min(claims) / 2, max(claims) * 2
    line = np.geomspace(low, high, 200)
    axes.fill_between(line, line, high, color="#D55E00", alpha=0.08, linewidth=0)
    axes.plot(line, line, color=plots.DASHED, linewidth=1)
    axes.text(low * 1.1, high / 1.3, "a point here breaks its claim", fontsize=8, color="#B04A00", va="top")
    curve = np.array([reach(x, audit.draws, audit.alpha_each) for x in line])
    curve[curve < low] = math.nan
    axes.plot(line, curve, "--", color=plots.DASHED, linewidth=1, label=f"what {audit.draws:,} draws can show")
    bottom = _points(axes, points, low)
    axes.axhspan(bottom, low / 1.25, color=plots.DASHED, alpha=0.06, linewidth=0)
    axes.text(high / 1.05, low / 1.3, "nothing shown (0)", fontsize=8, color=plots.DASHED, ha="right", va="top")
    axes.set(xscale="log", yscale="log", xlim=(low, high), ylim=(bottom, high))
    axes.set(xlabel="ε that a person spends, as claimed", ylabel="ε shown by the releases, at least")
    for axis in (axes.xaxis, axes.yaxis):
        plots.plain(axis)
    axes.set_yticks([tick for tick in axes.get_yticks() if low <= tick <= high])
    plots.beside(axes)
    return drawn


def _points(axes: Axes, points: list[Finding], low: float) -> float:
    """Draw each method, filled, and open in the band below `low` where nothing was shown; return where that ends."""
    band = low / 1.5
    for method in dict.fromkeys(f.method for f in points):
        for filled in (True, False):
            some = [f for f in points if f.method == method and bool(f.lower_bound) == filled]
            axes.plot(
                [f.claimed for f in some],
                [max(f.lower_bound, low) if f.lower_bound else band for f in some],
                marker=plots.MARKERS.get(method, "o"),
                color=plots.COLOURS.get(method, plots.DASHED),
                linestyle="",
                fillstyle="full" if filled else "none",
                label=method if filled else None,
            )
        band /= 1.22
    return band
