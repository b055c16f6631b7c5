"""What an experiment is: a claim of the paper (or ours), numbers, a picture, and a verdict."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hetdp.core.plan import Plan, plan

from .simulate import Simulation, simulate

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Rows = list[tuple[Any, ...]]

QUICK = 200  # a quick run makes this many times fewer simulated runs than the paper did


@dataclass(frozen=True)
class Settings:
    """How much to compute.

    Attributes
    ----------
    runs
        Simulated runs per point; None takes the paper's own number.
    quick
        Fewer runs and coarser grids, for a look.
    seed
        The seed of every simulation. Nothing here is a release.
    """

    runs: int | None = None
    quick: bool = False
    seed: int = 2023

    def simulate(
        self, levels: Mapping[float, int], methods: Sequence[str], distribution: Any, *, runs: int, key: float
    ) -> dict[str, Simulation]:
        """Return the simulations of several methods at one point of a figure, for which the paper made `runs`.

        `key` keeps the random streams of points apart.
        """
        wanted = self.runs or (max(500, runs // QUICK) if self.quick else runs)
        rng = np.random.SeedSequence([self.seed, round(key * 1e6)])
        return simulate(levels, method=methods, distribution=distribution, bounds=(-0.5, 0.5), runs=wanted, rng=rng)

    def thinned(self, grid: Sequence[Any]) -> Sequence[Any]:
        """Return the grid, or some of its points for a quick run."""
        return grid[:: max(1, len(grid) // 6)] if self.quick else grid


@dataclass(frozen=True)
class Verdict:
    """One claim, what was found, and whether the claim holds."""

    claim: str
    found: str
    holds: bool


@dataclass(frozen=True)
class Result:
    """The numbers of an experiment (as they go to CSV), its verdicts, its picture."""

    columns: tuple[str, ...]
    rows: Rows
    verdicts: list[Verdict]
    figure: Callable[[], Figure] | None = None


class Points(dict[Any, dict[str, Simulation]]):
    """Simulations of several methods at each point of a figure."""

    def rows(self) -> Rows:
        """Return the numbers for CSV: where, method, error, its standard error, exact error."""
        return [
            (x, name, p.mse, p.standard_error, p.exact_mse) for x, found in self.items() for name, p in found.items()
        ]

    def exact(self) -> dict[Any, dict[str, float]]:
        """Return the exact errors of the methods at each point."""
        return {x: {name: p.exact_mse or p.mse for name, p in found.items()} for x, found in self.items()}

    def agreement(self) -> Verdict:
        """Say whether all points lie within 4 standard errors of the exact formulas."""
        scores = [abs(p.z) for found in self.values() for p in found.values() if p.z is not None]
        return Verdict(
            "simulated points agree with the exact formulas within 4 standard errors",
            f"largest distance of {len(scores)} points: {max(scores):.2f} standard errors",
            max(scores) <= 4,
        )

    def result(self, column: str, verdicts: list[Verdict], figure: Callable[[], Figure]) -> Result:
        """Return all numbers with these verdicts and the one on their agreement; `column` says what the points are."""
        columns = (column, "method", "mse", "standard_error", "exact_mse")
        return Result(columns, self.rows(), [*verdicts, self.agreement()], figure)


@dataclass(frozen=True)
class Experiment:
    """One figure, table or example. `ours` marks those that the paper does not have; `picture` those with one."""

    name: str
    title: str
    place: str
    run: Callable[[Settings], Result]
    ours: bool = False
    picture: bool = True


def planned(levels: Mapping[float, int], method: str = "adpm") -> Plan:
    """Return the plan of a method on the paper's interval."""
    return plan(levels, method=method, bounds=(-0.5, 0.5))


def two_weights(eps1: float, eps2: float, n: int, f: float, method: str = "adpm") -> tuple[float, float]:
    """Return the weights w₁ and w₂ of one person in each of two groups."""
    first, second = planned({eps1: round(n * f), eps2: n - round(n * f)}, method).table
    return first.weight, second.weight


@dataclass(frozen=True)
class Curve:
    """One curve of a picture, in the colour of a method, or dark grey without one.

    With standard errors it is drawn as points, each ± 4 of them; else as a line.
    """

    method: str | None
    x: Any
    y: Any
    label: str = ""
    error: Any = None
    dashed: bool = False


def picture(*panels: tuple[Sequence[Curve], str, str, str]) -> Figure:
    """Return panels side by side: curves, the names of the two axes, and which of them are logarithmic ("xy")."""
    from hetdp.report.plots import COLOURS, DASHED, MARKERS, beside, figure, plain

    drawn, axes = figure(len(panels))
    for axis, (curves, x, y, log) in zip(axes, panels, strict=True):
        for c in curves:
            colour, marker = (COLOURS[c.method], MARKERS[c.method]) if c.method else (DASHED, "")
            if c.error is None:
                axis.plot(c.x, c.y, "--" if c.dashed else "-", color=colour, linewidth=1, label=c.label)
            else:
                axis.errorbar(c.x, c.y, yerr=4 * np.asarray(c.error), color=colour, marker=marker, markersize=4,
                              linewidth=0, elinewidth=1, label=c.label)  # fmt: skip
                axis.set_title("lines: exact; points: simulated, ± 4 standard errors", fontsize=8)
        axis.set(xlabel=x, ylabel=y, xscale="log" if "x" in log else "linear", yscale="log" if "y" in log else "linear")
        low, high = axis.get_ylim()
        if "y" not in log:
            axis.set_ylim(bottom=0)
        elif high < 1000 * low:  # beyond that, powers of ten read better
            plain(axis.yaxis)
        if any(c.label for c in curves):
            beside(axis)
    return drawn
