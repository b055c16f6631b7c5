"""What an experiment is: a claim of the paper, numbers, a picture, a verdict; and a folder with them all."""

from __future__ import annotations

import csv
import html
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hetdp.core.domain import to_json
from hetdp.files import write_whole
from hetdp.report import Grid, page, to_html
from hetdp.report.plots import COLOURS, DASHED, MARKERS, figure, plain, require, save

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
        found = simulate(levels, method=methods, distribution=distribution, bounds=(-0.5, 0.5), runs=wanted, rng=rng)
        return {found.method: found} if isinstance(found, Simulation) else found

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
        return {x: {name: p.exact_mse for name, p in found.items()} for x, found in self.items()}

    def agreement(self) -> Verdict:
        """Say whether all points lie within 4 standard errors of the exact formulas."""
        scores = [abs(p.z) for found in self.values() for p in found.values()]
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
    """One figure, table or example, its place in the paper, and whether it has a picture."""

    name: str
    title: str
    place: str
    run: Callable[[Settings], Result]
    picture: bool = True


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


def picture(curves: Sequence[Curve], x: str, y: str, log: str) -> Figure:
    """Return curves in one panel, with the names of the two axes, and which of them are logarithmic ("xy")."""
    drawn, (axis,) = figure()
    for c in curves:
        style: dict[str, Any] = {"color": COLOURS.get(c.method or "", DASHED), "label": c.label}
        if c.error is None:
            axis.plot(c.x, c.y, "--" if c.dashed else "-", **style, linewidth=1)
        else:
            style |= {"marker": MARKERS.get(c.method or "", "o"), "markersize": 4}
            axis.errorbar(c.x, c.y, yerr=4 * np.asarray(c.error), **style, linewidth=0, elinewidth=1)
            axis.set_title("lines: exact; points: simulated, ± 4 standard errors", fontsize=8)
    axis.set(xlabel=x, ylabel=y, xscale="log" if "x" in log else "linear", yscale="log" if "y" in log else "linear")
    low, high = axis.get_ylim()
    if "y" not in log:
        axis.set_ylim(bottom=0)
    elif high < 1000 * low:  # beyond that, powers of ten read better
        plain(axis.yaxis)
    axis.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))  # where it hides nothing
    return drawn


# A folder with all of them ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Done:
    """One experiment that was run."""

    experiment: Experiment
    result: Result
    seconds: float

    @property
    def holds(self) -> bool:
        """Whether every claim holds."""
        return all(verdict.holds for verdict in self.result.verdicts)


def reproduce(
    experiments: Iterable[Experiment], out: Path, settings: Settings, tell: Callable[[str], None] = lambda _: None
) -> list[Done]:
    """Run experiments and write `out`/index.html with all of them; each is written as soon as it is done."""
    chosen = list(experiments)
    if any(experiment.picture for experiment in chosen):
        require()
    out.mkdir(parents=True, exist_ok=True)
    done: list[Done] = []
    for experiment in chosen:
        tell(f"{experiment.name}: {experiment.title}")
        start = time.monotonic()
        done.append(Done(experiment, experiment.run(settings), time.monotonic() - start))
        _write(done[-1], out)
        write_whole(out / "index.html", _page(done, settings), public=True)
    return done


def _write(done: Done, out: Path) -> None:
    name, result = done.experiment.name, done.result
    with (out / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([result.columns, *result.rows])
    verdicts = [asdict(verdict) for verdict in result.verdicts]
    write_whole(out / f"{name}.json", to_json(verdicts) + "\n", public=True)
    if result.figure is not None:
        drawn = result.figure()
        for kind in ("png", "svg"):
            save(drawn, out / f"{name}.{kind}")


_STYLE = "img { max-width: 100%; background: #fff; border-radius: 8px; } h2 { margin-top: 3rem; }"


def _page(done: list[Done], settings: Settings) -> str:
    runs = f"{settings.runs:,} runs per point" if settings.runs else "the paper's own numbers of runs"
    how = "a quick look with fewer runs and coarser grids" if settings.quick and not settings.runs else runs
    held = sum(verdict.holds for item in done for verdict in item.result.verdicts)
    total = sum(len(item.result.verdicts) for item in done)
    said = (
        f"<p>{held} of {total} claims hold. Computed with {how}, seed {settings.seed}. "
        "Where the paper and the mathematics disagree, the errata say why.</p>"
    )
    title = "Mean Estimation Under Heterogeneous Privacy, reproduced"
    return page(title, said + "".join(map(_section, done)), _STYLE)


def _section(item: Done) -> str:
    entry, result = item.experiment, item.result
    rows = [("✓ holds" if v.holds else "✗ differs", v.claim, v.found) for v in result.verdicts]
    picture = f'<img src="{entry.name}.png" alt="{html.escape(entry.title)}">' if result.figure is not None else ""
    links = f'<a href="{entry.name}.csv">numbers</a>' + (f' · <a href="{entry.name}.svg">SVG</a>' if picture else "")
    return (
        f'<h2 id="{entry.name}">{html.escape(entry.title)}</h2>'
        f"<p>{html.escape(entry.place)} · {links} · {item.seconds:.1f} s</p>{picture}"
        f"{to_html([Grid(('', 'Claim', 'Found'), rows, words=3)])}"
    )
