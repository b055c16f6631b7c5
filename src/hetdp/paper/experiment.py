"""What an experiment is: a claim of the paper (or ours), numbers, a picture, and a verdict."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .simulate import Simulation, simulate

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Rows = list[tuple[Any, ...]]

QUICK = 200
"""A quick run takes this many times fewer simulated runs than the paper did."""


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

    def runs_for(self, paper: int) -> int:
        """Return the number of runs where the paper took `paper`."""
        return self.runs or (max(500, paper // QUICK) if self.quick else paper)

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
    verdicts: list[Verdict] = field(default_factory=list)
    figure: Callable[[], Figure] | None = None


@dataclass(frozen=True)
class Experiment:
    """One figure, table or example. `ours` marks those that the paper does not have; `picture` those with one."""

    name: str
    title: str
    place: str
    run: Callable[[Settings], Result]
    ours: bool = False
    picture: bool = True


def simulated(
    levels: Mapping[float, int], methods: tuple[str, ...], distribution: Any, settings: Settings, *, runs: int, key: int
) -> dict[str, Simulation]:
    """Return the simulations of several methods at one point of a figure; `key` keeps the streams of points apart."""
    import numpy as np

    rng = np.random.SeedSequence([settings.seed, key])
    found: dict[str, Simulation] = simulate(
        levels, method=methods, distribution=distribution, bounds=(-0.5, 0.5), runs=settings.runs_for(runs), rng=rng
    )
    return found


def agreement(points: Sequence[Simulation]) -> Verdict:
    """Say whether simulated points lie within 4 standard errors of the exact formulas."""
    scores = [abs(point.z) for point in points if point.z is not None]
    worst = max(scores, default=0.0)
    return Verdict(
        "simulated points agree with the exact formulas within 4 standard errors",
        f"largest distance of {len(scores)} points: {worst:.2f} standard errors",
        worst <= 4,
    )
