"""Table II: six methods on two populations of a thousand different ε; and, ours, all methods with error bars."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from hetdp.estimators import methods

from .experiment import Experiment, Result, Rows, Settings, Verdict, agreement, simulated
from .simulate import exact_mse

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from .simulate import Simulation

PRINTED = {
    "adpm": (-9.3, -8.1),
    "proportional": (-9.0, -8.1),
    "ldpe": (-7.2, -1.3),
    "sampling": (-6.5, -7.9),
    "fme": (-6.2, -6.2),
    "uniform": (-5.1, -7.1),
}
"""ln MSE as the paper prints it: high and low variance of ε."""

WITHIN = {"sampling": 0.2}
POPULATIONS = {"high": (-4.0, 2.0), "low": (-3.0, -2.0)}
BETA = ("beta", 2, 3)
_RUNS = 20_000


def draw(population: str, seed: int, n: int = 1000) -> dict[float, int]:
    """Return a redraw of one of the paper's populations: ln ε uniform on [−4, 2] (high) or [−3, −2] (low)."""
    rng = np.random.default_rng([seed, list(POPULATIONS).index(population)])
    return dict.fromkeys(np.exp(rng.uniform(*POPULATIONS[population], n)).tolist(), 1)


def logs(population: str, redraws: int, seed: int) -> dict[str, list[float]]:
    """Return the exact ln MSE of every method of the table, for several redraws of ε."""
    drawn = [draw(population, seed + i) for i in range(redraws)]
    return {name: [math.log(exact_mse(levels, name, BETA)) for levels in drawn] for name in PRINTED}


def _table2(settings: Settings) -> Result:
    redraws = 4 if settings.quick else 20
    rows: Rows = []
    verdicts, points = [], []
    for column, population in enumerate(POPULATIONS):
        found = logs(population, redraws, settings.seed)
        once = simulated(draw(population, settings.seed), tuple(PRINTED), BETA, settings, runs=_RUNS, key=column)
        points += list(once.values())
        for name, printed in PRINTED.items():
            mean, spread = float(np.mean(found[name])), float(np.std(found[name]))
            rows.append((population, name, printed[column], mean, spread, math.log(once[name].mse)))
            claim = f"{methods()[name].label}, {population} variance: printed {printed[column]:.1f}"
            text = f"{mean:.2f} over {redraws} redraws of ε (spread {spread:.2f}), simulated once {rows[-1][-1]:.2f}"
            verdicts.append(Verdict(claim, text, abs(mean - printed[column]) <= WITHIN.get(name, 0.12)))
    columns = ("population", "method", "printed", "exact_mean", "exact_spread", "simulated")
    return Result(columns, rows, [*verdicts, agreement(points)], lambda: _draw_table(rows))


def _draw_table(rows: Rows) -> Figure:
    from hetdp.report.plots import COLOURS, figure

    drawn, axes = figure(2, width=4.2)
    for axis, population in zip(axes, POPULATIONS, strict=True):
        mine = [row for row in rows if row[0] == population]
        for place, (_, name, printed, mean, spread, _simulated) in enumerate(reversed(mine)):
            axis.errorbar(mean, place, xerr=spread, color=COLOURS[name], marker="o", capsize=3)
            axis.plot(printed, place, "x", color="black", markersize=7)
        axis.set_yticks(range(len(mine)), [methods()[row[1]].label for row in reversed(mine)])
        axis.set(xlabel="ln MSE (× as printed; ● exact, spread over redraws of ε)", title=f"{population} variance of ε")
    return drawn


def _populations(settings: Settings) -> Result:
    names = tuple(methods())
    rows: Rows = []
    points = []
    best: dict[str, str] = {}
    for column, population in enumerate(POPULATIONS):
        levels = draw(population, settings.seed)
        found = simulated(levels, names, BETA, settings, runs=_RUNS, key=100 + column)
        points += list(found.values())
        rows += [(population, name, p.mse, p.standard_error, p.exact_mse) for name, p in found.items()]
        best[population] = min(found, key=lambda name, found=found: _exact(found[name]))  # type: ignore[misc]
    verdicts = [
        Verdict("the best method is ADPM or minimax", ", ".join(f"{k}: {v}" for k, v in best.items()),
                set(best.values()) <= {"adpm", "minimax"}),
        agreement(points),
    ]  # fmt: skip
    return Result(("population", "method", "mse", "standard_error", "exact_mse"), rows, verdicts,
                  lambda: _draw_populations(rows))  # fmt: skip


def _exact(point: Simulation) -> float:
    return point.mse if point.exact_mse is None else point.exact_mse


def _draw_populations(rows: Rows) -> Figure:
    from hetdp.report.plots import COLOURS, figure

    drawn, axes = figure(2, width=4.2)
    for axis, population in zip(axes, POPULATIONS, strict=True):
        mine = sorted((row for row in rows if row[0] == population), key=lambda row: -row[2])
        for place, (_, name, mse, error, _exact_mse) in enumerate(mine):
            axis.errorbar(mse, place, xerr=4 * error, color=COLOURS[name], marker="o", capsize=3)
        axis.set_yticks(range(len(mine)), [methods()[row[1]].label for row in mine])
        axis.set(xscale="log", title=f"{population} variance of ε",
                 xlabel="MSE for Beta(2, 3) data, ± 4 standard errors")  # fmt: skip
    return drawn


EXPERIMENTS = (Experiment("table-2", "Six methods, a thousand different ε", "Table II", _table2),)
OURS = (Experiment("all-methods", "Every method on the populations of Table II", "ours", _populations, ours=True),)
