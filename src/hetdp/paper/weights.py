"""Figure 2 (isocurves), Figure 4 (w₂/w₁) and Table I: the weights themselves."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from hetdp.core.plan import plan

from . import bounds
from .experiment import Experiment, Result, Rows, Settings, Verdict

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_FIGURE2 = {"A": 1.48e-2, "B": 3e-2, "C": 1e-1}


def ratio(eps1: float, eps2: float, n: int, f: float, method: str = "adpm") -> float:
    """Return w₂/w₁ for two groups."""
    planned = plan({eps1: round(n * f), eps2: n - round(n * f)}, method=method, bounds=(-0.5, 0.5))
    return planned.table[-1].weight / planned.table[0].weight


def _figure2(_: Settings) -> Result:
    n, f, eps1 = 80_000, 0.5, 1e-2
    limit = bounds.R(eps1, n, f)
    rows: Rows = []
    verdicts = []
    for panel, eps2 in _FIGURE2.items():
        first, second = (row.weight for row in plan({eps1: n // 2, eps2: n // 2}, bounds=(-0.5, 0.5)).table)
        expected = min(eps2 / eps1, limit)
        rows.append((panel, eps2, first, second, second / first, expected))
        claim = f"({panel}) the optimum lies on w₂ = min(ε₂/ε₁, R)·w₁"
        verdicts.append(Verdict(claim, f"w₂/w₁ = {second / first:.6f}, expected {expected:.6f}",
                                math.isclose(second / first, expected, rel_tol=1e-6)))  # fmt: skip
    return Result(("panel", "epsilon2", "w1", "w2", "ratio", "expected"), rows, verdicts, lambda: _draw_isocurves(rows))


def _draw_isocurves(rows: Rows) -> Figure:
    from hetdp.report.plots import COLOURS, DASHED, figure

    n, f, eps1 = 80_000, 0.5, 1e-2
    limit = bounds.R(eps1, n, f)
    drawn, axes = figure(3, width=3.6)
    side = np.linspace(0, 2.6 / n, 300)
    w1, w2 = np.meshgrid(side, side)
    for axis, (panel, eps2, first, second, *_rest) in zip(axes, rows, strict=True):
        value = n * (f * w1**2 + (1 - f) * w2**2) / 4 + 2 * np.maximum(w1 / eps1, w2 / eps2) ** 2
        best = n * (f * first**2 + (1 - f) * second**2) / 4 + 2 * max(first / eps1, second / eps2) ** 2
        scale = n  # weights are shown in units of 1/n
        axis.contour(w1 * scale, w2 * scale, value, levels=best * np.array([0.4, 0.7, 1.4, 2, 3]), colors="#999999",
                     linewidths=0.7, linestyles="dotted")  # fmt: skip
        axis.contour(w1 * scale, w2 * scale, value, levels=[best], colors=COLOURS["adpm"], linewidths=1.6,
                     linestyles="dotted")  # fmt: skip
        axis.plot(side * scale, (1 / n - f * side) / (1 - f) * scale, color="black", linewidth=1.2, label="constraint")
        axis.plot(side * scale, eps2 / eps1 * side * scale, "--", color=DASHED, linewidth=1, label="w₂ = (ε₂/ε₁)·w₁")
        axis.plot(side * scale, limit * side * scale, "-.", color=COLOURS["fme"], linewidth=1, label="w₂ = R·w₁")
        axis.plot(first * scale, second * scale, "o", color=COLOURS["minimax"], markersize=5, label="optimum")
        axis.set(xlim=(0, 2.2), ylim=(0, 2.2), xlabel="w₁·n", ylabel="w₂·n", title=f"({panel}) ε₂ = {eps2:g}")
    axes[0].legend(frameon=False, fontsize=7)
    return drawn


def _figure4(settings: Settings) -> Result:
    grid = settings.thinned(tuple(np.geomspace(0.01, 1, 41).tolist()))
    n, f, eps1 = 10_000, 0.5, 0.01
    limit = bounds.R(eps1, n, f)
    rows: Rows = [(e, ratio(eps1, e * (1 + 1e-12), n, f), ratio(eps1, e * (1 + 1e-12), n, f, "fme")) for e in grid]
    late = [row for row in rows if row[0] > 0.0142]
    off = max(abs(row[2] - math.sqrt(2)) for row in late)
    verdicts = [
        Verdict("ADPM's ratio grows with ε₂ up to R and stays there", f"R = {limit:g}",
                all(math.isclose(adpm, min(e / eps1, limit), rel_tol=1e-5) for e, adpm, _ in rows)),
        Verdict("FME's ratio stays at √2", f"largest distance from √2: {off:.1e}",
                all(math.isclose(row[2], math.sqrt(2), rel_tol=1e-6) for row in late)),
    ]  # fmt: skip
    return Result(("epsilon2", "adpm", "fme"), rows, verdicts, lambda: _draw_ratio(rows, limit))


def _draw_ratio(rows: Rows, limit: float) -> Figure:
    from hetdp.report.plots import COLOURS, DASHED, figure

    drawn, (axis,) = figure()
    x, adpm, fme = zip(*rows, strict=True)
    axis.plot(x, adpm, color=COLOURS["adpm"], label="ADPM")
    axis.plot(x, fme, color=COLOURS["fme"], label="FME")
    axis.axhline(limit, color=DASHED, linestyle="--", linewidth=1)
    axis.text(x[0], limit, "R", va="bottom", fontsize=8, color=DASHED)
    axis.set(xscale="log", yscale="log", xlabel="ε₂", ylabel="w₂/w₁")
    axis.legend(frameon=False)
    return drawn


def _table1(_: Settings) -> Result:
    rows: Rows = []
    verdicts = []
    for eps1, n, f in ((0.1, 1000, 0.7), (0.01, 10_000, 0.5), (0.5, 200, 0.9)):
        limit = bounds.R(eps1, n, f)
        for condition, eps2 in (("ε₂ ≤ R·ε₁", eps1 * (1 + limit) / 2), ("ε₂ ≥ R·ε₁", 4 * limit * eps1)):
            expected = bounds.table_1(eps1, eps2, n, f)
            found = tuple(
                row.weight for row in plan({eps1: round(n * f), eps2: n - round(n * f)}, bounds=(-0.5, 0.5)).table
            )
            rows.append((condition, eps1, eps2, n, f, *found, *expected))
            close = all(math.isclose(a, b, rel_tol=1e-6) for a, b in zip(found, expected, strict=True))
            verdicts.append(Verdict(f"{condition} at ε₁ = {eps1:g}, n = {n}, f = {f:g}",
                                    f"w₁ = {found[0]:.6e}, w₂ = {found[1]:.6e}", close))  # fmt: skip
    return Result(("condition", "epsilon1", "epsilon2", "n", "f", "w1", "w2", "table_w1", "table_w2"), rows, verdicts)


EXPERIMENTS = (
    Experiment("table-1", "Optimal weights for two groups", "Table I", _table1, picture=False),
    Experiment("figure-2", "Why the weights saturate: isocurves", "Figure 2", _figure2),
    Experiment("figure-4", "The ratio of the weights of ADPM and FME", "Figure 4, Example 1", _figure4),
)
