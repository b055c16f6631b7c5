"""Example 2 (stretching is biased) and Remark 2 (LDPE with a public dataset)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from hetdp.core.plan import plan

from . import bounds
from .experiment import Experiment, Result, Rows, Settings, Verdict, agreement, simulated

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def _example2(settings: Settings) -> Result:
    rows: Rows = []
    points = []
    for n in settings.thinned((100, 200, 500, 1000, 2000, 5000, 10_000)):
        levels = {0.01: n // 2, 0.1: n // 2}
        exact = plan(levels, method="stretch", bounds=(-0.5, 0.5)).mse(0, mean=0.5)
        point = simulated(levels, ("stretch",), ("point", 0.5), settings, runs=20_000, key=n)["stretch"]
        points.append(point)
        rows.append((n, exact, point.mse, point.standard_error, 0.05 + 200 / n**2))
    close = all(math.isclose(exact, 0.050625 + 200 / n**2, rel_tol=1e-6) for n, exact, *_ in rows)
    verdicts = [
        Verdict("the MSE at the point mass 0.5 is 0.05 + 200/n²", "it is 0.050625 + 200/n²: (0.45·0.5)² = 0.050625, "
                "which the paper rounds", close),
        Verdict("it cannot be made small with large n", f"{rows[-1][1]:.4f} at n = {rows[-1][0]}", rows[-1][1] > 0.05),
        agreement(points),
    ]  # fmt: skip
    return Result(("n", "exact", "simulated", "standard_error", "paper"), rows, verdicts, lambda: _draw_bias(rows))


def _draw_bias(rows: Rows) -> Figure:
    from hetdp.report.plots import COLOURS, DASHED, MARKERS, figure, plain

    drawn, (axis,) = figure()
    n, exact, simulated_mse, error, paper = zip(*rows, strict=True)
    axis.plot(n, paper, color=DASHED, linestyle="--", linewidth=1, label="0.05 + 200/n², as printed")
    axis.plot(n, exact, color=COLOURS["stretch"], linewidth=1, label="exact")
    axis.errorbar(n, simulated_mse, yerr=[4 * e for e in error], color=COLOURS["stretch"], marker=MARKERS["stretch"],
                  linewidth=0, elinewidth=1, label="simulated")  # fmt: skip
    axis.set(xscale="log", yscale="log", xlabel="n", ylabel="MSE of stretching at the point mass 0.5")
    plain(axis.yaxis)
    axis.legend(frameon=False)
    return drawn


def _remark2(_: Settings) -> Result:
    rows: Rows = []
    for eps1, n, f in ((0.1, 1000, 0.7), (0.01, 10_000, 0.5), (1.0, 100, 0.2)):
        private = round(n * f)
        levels = {eps1: private, math.inf: n - private}
        found = [plan(levels, method=name, bounds=(-0.5, 0.5)).worst_case_mse for name in ("ldpe", "adpm")]
        rows.append((eps1, n, f, *found, bounds.remark_2(eps1, n, f)))
    close = all(
        math.isclose(row[3], row[5], rel_tol=1e-6) and math.isclose(row[4], row[5], rel_tol=1e-6) for row in rows
    )
    verdict = Verdict("with a public dataset LDPE attains ADPM's worst case R/(4n[f + (1 − f)R])",
                      f"in {len(rows)} cases, to 6 digits", close)  # fmt: skip
    return Result(("epsilon1", "n", "f", "ldpe", "adpm", "formula"), rows, [verdict])


EXPERIMENTS = (
    Experiment("example-2", "Stretching does not become exact", "Example 2", _example2),
    Experiment("remark-2", "LDPE is optimal beside a public dataset", "Remark 2", _remark2, picture=False),
)
