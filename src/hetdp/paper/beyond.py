"""Ours: what is left to gain past the paper. minimax against ADPM, the certificate, the exact optimum."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from hetdp.core.plan import plan
from hetdp.theory.certificate import certificate
from hetdp.theory.optimal import optimal

from .experiment import Experiment, Result, Rows, Settings, Verdict
from .table2 import draw

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SIZES = tuple(int(n) for n in np.unique(np.round(np.geomspace(4, 100_000, 30))))
_MIXES = {"ε = 1": {1.0: 1.0}, "ε = 0.1": {0.1: 1.0}, "70 % at 0.1, 30 % public": {0.1: 0.7, np.inf: 0.3}}
_EPSILONS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0)


def mixed(mix: dict[float, float], n: int) -> dict[float, int]:
    """Return n people in the proportions of a mix."""
    return {level: max(1, round(n * share)) for level, share in mix.items()}


def _minimax(settings: Settings) -> Result:
    rows: Rows = []
    for label, mix in _MIXES.items():
        for n in settings.thinned(_SIZES):
            levels = mixed(mix, n)
            adpm, best = (plan(levels, method=name, bounds=(-0.5, 0.5)).worst_case_mse for name in ("adpm", "minimax"))
            rows.append((label, n, adpm, best, best / adpm))
    table = draw("high", settings.seed)
    gain = (
        plan(table, method="minimax", bounds=(-0.5, 0.5)).worst_case_mse
        / plan(table, bounds=(-0.5, 0.5)).worst_case_mse
    )
    verdicts = [
        Verdict("minimax is never worse than ADPM", f"largest ratio {max(row[4] for row in rows):.6f}",
                all(row[4] <= 1 + 1e-9 for row in rows)),
        Verdict("on the paper's table (n = 1000, high variance) it gains several per cent", f"{1 - gain:.1%}",
                0.03 < 1 - gain < 0.15),
    ]  # fmt: skip
    return Result(("mix", "n", "adpm", "minimax", "ratio"), rows, verdicts, lambda: _draw_minimax(rows))


def _draw_minimax(rows: Rows) -> Figure:
    from hetdp.report.plots import COLOURS, MARKERS, figure

    drawn, (left, right) = figure(2)
    for label, method in zip(_MIXES, ("adpm", "minimax", "proportional"), strict=True):
        mine = [row for row in rows if row[0] == label]
        n = [row[1] for row in mine]
        style: dict[str, Any] = {"color": COLOURS[method], "marker": MARKERS[method], "markersize": 3, "linewidth": 1}
        left.plot(n, [row[2] for row in mine], linestyle="--", linewidth=1, color=COLOURS[method])
        left.plot(n, [row[3] for row in mine], label=label, **style)
        right.plot(n, [row[4] for row in mine], label=label, **style)
    left.set(xscale="log", yscale="log", xlabel="n", ylabel="worst-case MSE (dashed: ADPM; solid: minimax)")
    right.set(xscale="log", xlabel="n", ylabel="worst case of minimax ÷ that of ADPM", ylim=(0, 1.05))
    right.legend(frameon=False)
    return drawn


def _certificate(settings: Settings) -> Result:
    rows: Rows = []
    for eps in settings.thinned(_EPSILONS):
        for n in settings.thinned(tuple(int(n) for n in np.unique(np.round(np.geomspace(10, 1_000_000, 21))))):
            found = certificate({eps: n}, bounds=(-0.5, 0.5))
            rows.append((eps, n, eps * n, found.upper, found.lower, found.ratio, found.technique))
    ample = [row[5] for row in rows if row[2] >= 10 and row[1] >= 100]
    verdicts = [
        Verdict("the certificate never exceeds what ADPM attains", f"smallest ratio {min(row[5] for row in rows):.3f}",
                all(row[5] >= 1 for row in rows)),
        Verdict("ADPM is within 3.5 of the best possible once n ≥ 100 and Σε ≥ 10",
                f"ratios {min(ample):.2f} to {max(ample):.2f}; elsewhere up to {max(row[5] for row in rows):.1f}",
                max(ample) <= 3.5),
    ]  # fmt: skip
    columns = ("epsilon", "n", "sum_epsilon", "upper", "lower", "ratio", "technique")
    return Result(columns, rows, verdicts, lambda: _draw_certificate(rows))


def _draw_certificate(rows: Rows) -> Figure:
    from hetdp.report.plots import COLOURS, DASHED, MARKERS, beside, figure, plain

    drawn, (axis,) = figure()
    for eps, name in zip(sorted({row[0] for row in rows}), COLOURS, strict=False):
        mine = [row for row in rows if row[0] == eps]
        axis.plot([row[1] for row in mine], [row[5] for row in mine], color=COLOURS[name], marker=MARKERS[name],
                  markersize=3, linewidth=1, label=f"ε = {eps:g}")  # fmt: skip
    axis.axhline(1, color=DASHED, linestyle="--", linewidth=1)
    axis.set(xscale="log", yscale="log", xlabel="n", ylabel="worst case of ADPM ÷ certificate")
    plain(axis.yaxis)
    beside(axis)
    return drawn


def _optimum(settings: Settings) -> Result:
    rows: Rows = []
    for n in settings.thinned((1, 2, 3, 4, 6, 8, 10, 12)):
        levels = {1.0: n, 4.0: n} if n <= 6 else {2.0: 2 * n}
        best = optimal(levels)
        found = [plan(levels, method=name, bounds=(-0.5, 0.5)).worst_case_mse for name in ("adpm", "minimax")]
        lower = certificate(levels, bounds=(-0.5, 0.5)).lower
        rows.append((2 * n, str(levels), best.mse, *found, lower))
    verdicts = [
        Verdict("nothing is below the certificate, and no method below the optimum",
                f"minimax is {_range(row[4] / row[2] for row in rows)} × the optimum, "
                f"ADPM {_range(row[3] / row[2] for row in rows)} ×",
                all(row[5] <= row[2] * 1.001 <= min(row[3], row[4]) * 1.01 for row in rows)),
    ]  # fmt: skip
    columns = ("n", "levels", "optimum", "adpm", "minimax", "certificate")
    return Result(columns, rows, verdicts, lambda: _draw_optimum(rows))


def _range(numbers: Iterable[float]) -> str:
    found = list(numbers)
    return f"{min(found):.2f} to {max(found):.2f}"


def _draw_optimum(rows: Rows) -> Figure:
    from hetdp.report.plots import COLOURS, DASHED, MARKERS, figure

    drawn, (axis,) = figure()
    n = [row[0] for row in rows]
    for place, name in ((3, "adpm"), (4, "minimax")):
        axis.plot(n, [row[place] / row[2] for row in rows], color=COLOURS[name], marker=MARKERS[name], markersize=4,
                  linewidth=1, label={"adpm": "ADPM", "minimax": "minimax"}[name])  # fmt: skip
    axis.plot(n, [row[5] / row[2] for row in rows], color=DASHED, linestyle="--", linewidth=1, label="certificate")
    axis.axhline(1, color="black", linewidth=1, label="best of all ε-DP mechanisms (two-point data)")
    axis.set(
        xlabel="n (up to 12: half at ε = 1, half at ε = 4; above: all at ε = 2)", ylabel="worst-case MSE ÷ optimum"
    )
    axis.set_ylim(bottom=0)
    axis.legend(frameon=False)
    return drawn


EXPERIMENTS = (
    Experiment("minimax", "The best affine estimator with Laplace noise against ADPM", "ours", _minimax, ours=True),
    Experiment("certificate", "How far from the best possible", "ours", _certificate, ours=True),
    Experiment("optimum", "How far is anything from the best possible, for small n", "ours", _optimum, ours=True),
)
