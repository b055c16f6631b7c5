"""Simulation: all methods of Table II at once against a loop over runs, and a point of Figure 1 (A)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from measure import Timer, clock, race
from numpy.typing import NDArray
from table import Bar, Row

import hetdp

Floats = NDArray[np.float64]
Estimate = Callable[[Floats], float]

METHODS = ("adpm", "proportional", "ldpe", "sampling", "fme", "uniform")
RUNS = 20_000
SCALED = 100
"""A loop makes this many times fewer runs, and its time is scaled up."""


def population() -> Floats:
    """Return the high-variance population of Table II: 1000 ε, ln ε uniform on [−4, 2]."""
    return np.exp(np.random.default_rng(1).uniform(-4, 2, 1000))


def estimators(eps: Floats, rng: np.random.Generator) -> dict[str, Estimate]:
    """Return every method as one would write it with numpy for one run: from data on [−1/2, 1/2] to an estimate."""
    found: dict[str, Estimate] = {}
    for name in METHODS:
        if name == "sampling":
            found[name] = _sampling(eps, rng)
        else:
            planned = hetdp.plan(eps, method=name, bounds=(-0.5, 0.5))
            found[name] = _affine(planned.weights(eps), np.array(planned.errors.scales), rng)
    return found


def _affine(weight: Floats, scales: Floats, rng: np.random.Generator) -> Estimate:
    return lambda x: float(weight @ x + rng.laplace(0, scales).sum())


def _sampling(eps: Floats, rng: np.random.Generator) -> Estimate:
    t = eps.max()
    keep = np.expm1(eps) / np.expm1(t)

    def estimate(x: Floats) -> float:
        kept = x[rng.random(x.size) < keep]
        return float(kept.mean() + rng.laplace(0, 1 / (kept.size * t)))

    return estimate


def looped(eps: Floats, *, shared: bool) -> Timer:
    """Return the timer of a plain loop over runs, one for each method or one for all that shares the data."""
    rng = np.random.default_rng(1)
    every = estimators(eps, rng)

    def once(estimates: list[Estimate]) -> list[float]:
        x = rng.beta(2, 3, eps.size) - 0.5
        return [(estimate(x) + 0.1) ** 2 for estimate in estimates]

    def loop() -> float:
        start = time.perf_counter()
        for together in [list(every.values())] if shared else [[estimate] for estimate in every.values()]:
            np.mean([once(together) for _ in range(RUNS // SCALED)], axis=0)
        return (time.perf_counter() - start) * SCALED

    return loop


def table_two(quick: bool) -> Iterator[Row]:  # noqa: FBT001, ARG001  the shape of every case
    """All methods of Table II, 20,000 runs at n = 1000, Beta(2, 3)."""
    eps = population()
    found: dict[str, Any] = {}

    def simulate() -> None:
        found.update(
            hetdp.simulate(eps, method=METHODS, distribution=("beta", 2, 3), runs=RUNS, rng=1, bounds=(-0.5, 0.5))
        )

    for what, shared, bar in (
        ("a loop over runs for each method", False, Bar("at least", 20)),
        ("one loop over runs, data shared by all methods", True, None),
    ):
        timed = race(clock(simulate), looped(eps, shared=shared))
        note = f"{RUNS // SCALED} runs of the loop, scaled; largest |z| {max(abs(s.z) for s in found.values()):.1f}"
        yield Row.of(what, "simulate, the six methods of Table II", timed, bar, note)


def figure_one(quick: bool) -> Iterator[Row]:  # noqa: FBT001
    """One point of Figure 1 (A) at n = 10⁴: uniform data, two levels, the paper's 200,000 runs."""
    runs = RUNS if quick else 200_000
    call = clock(
        lambda: hetdp.simulate(
            {0.1: 5000, 0.15: 5000},
            method=("adpm", "ldpe", "sampling", "uniform"),
            distribution="uniform",
            runs=runs,
            rng=1,
            bounds=(-0.5, 0.5),
        )
    )
    times = sorted(call() for _ in range(3))
    yield Row(f"simulate, n = 10⁴, 4 methods, {runs:,} runs", "the clock", times[1], "s", best=times[0], note="3 runs")


CASES = (table_two, figure_one)
