"""The spine: planning, the mean of files, and the time to import.

A case is a function that yields rows; it gets to know whether the run is to be quick, and then leaves out what takes
minutes. To add one, write it here or in a module like this and name it in `CASES`.
"""

from __future__ import annotations

import functools
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from measure import Timer, clock, fresh, python, race, resident
from numpy.typing import NDArray
from table import Bar, Row

import hetdp

Floats = NDArray[np.float64]

TIERS = (0.05, 0.2, 1.0, 4.0)
HEAVY = ("polars", "scipy", "matplotlib", "opendp")
PATIENCE = 300
"""Seconds that the convex solver gets at n = 10⁶."""


def distinct(n: int) -> Floats:
    """Return n ε's, all different, uniform from 0.01 to 5."""
    return np.random.default_rng(1).uniform(0.01, 5, n)


def tiered(n: int) -> Floats:
    """Return n ε's of four tiers in random order; piece by piece, so that memory never holds much more."""
    rng, eps = np.random.default_rng(1), np.empty(n)
    for part in np.array_split(eps, max(1, n // 10**5)):
        part[:] = rng.choice(TIERS, part.size, p=[0.5, 0.3, 0.15, 0.05])
    return eps


def plan_array(_quick: bool) -> Iterator[Row]:  # noqa: FBT001
    """Plan from an array of ε, the exact check of every level included, against sorting that array."""
    eps = distinct(10**6)
    timed = race(clock(lambda: np.sort(eps)), clock(lambda: hetdp.plan(eps, bounds=(-0.5, 0.5))))
    note = f"{len(hetdp.plan(eps, bounds=(-0.5, 0.5)).levels):,} levels after rounding down"
    yield Row.of("plan, 10⁶ distinct ε", "numpy.sort", timed, Bar("at most", 4), note)
    kept = np.random.default_rng(2).choice(distinct(60_000), 10**6)
    timed = race(clock(lambda: np.sort(kept)), clock(lambda: hetdp.plan(kept, bounds=(-0.5, 0.5))))
    yield Row.of("plan, 10⁶ people at 60,000 levels", "numpy.sort", timed, note="every level kept exactly")


def plan_table(_quick: bool) -> Iterator[Row]:  # noqa: FBT001
    """Plan from a table of ten levels, in milliseconds."""
    levels = {0.1 * i: 100 * i for i in range(1, 11)}
    timer = clock(lambda: hetdp.plan(levels, bounds=(-0.5, 0.5)))
    times = sorted(1e3 * timer() for _ in range(201))
    yield Row("plan, table of 10 levels", "", times[100], "ms", Bar("at most", 1), times[0], "201 runs")


def plan_solver(_quick: bool) -> Iterator[Row]:  # noqa: FBT001
    """Hand the same problem to a convex solver."""
    eps = distinct(10**4)
    timed = race(clock(lambda: hetdp.plan(eps, bounds=(-0.5, 0.5)), times=20), clock(lambda: solve(eps)))
    found = solve(eps)
    note = f"Clarabel without cvxpy {1e3 * found.inside:.3g} ms"
    yield Row.of("cvxpy with Clarabel, n = 10⁴", "plan", timed, Bar("at least", 100), note)
    excess = objective(eps, found.weights) / objective(eps, hetdp.plan(eps, bounds=(-0.5, 0.5)).weights(eps)) - 1
    yield Row("its error above that of plan, n = 10⁴", "plan", 100 * excess, "%")


def plan_solver_large(quick: bool) -> Iterator[Row]:  # noqa: FBT001
    """Hand a million people to a convex solver, in a process of its own that may be stopped."""
    what, eps = "cvxpy with Clarabel, n = 10⁶", distinct(10**6)
    if quick:
        yield Row(what, "", float("nan"), "s", note="left out of a quick run")
        return
    try:
        theirs = fresh("spine", "solve_apart", eps.size, timeout=PATIENCE)
    except (subprocess.TimeoutExpired, subprocess.CalledProcessError) as error:
        yield Row(what, "", float("nan"), "s", note=f"no answer: {type(error).__name__} ({PATIENCE} s allowed)")
        return
    timer, ours = clock(lambda: hetdp.plan(eps, bounds=(-0.5, 0.5))), hetdp.plan(eps, bounds=(-0.5, 0.5)).weights(eps)
    note = f"plan {1e3 * min(timer() for _ in range(5)):.3g} ms; the solver calls its answer {theirs['status']}"
    yield Row(what, "", theirs["seconds"], "s", note=note)
    yield Row("its memory, n = 10⁶", "", theirs["memory"], "MB")
    yield Row("its error above that of plan, n = 10⁶", "plan", 100 * (theirs["error"] / objective(eps, ours) - 1), "%")
    note = f"that of plan {100 * farthest(eps, ours):.2g} %"
    yield Row("its worst weight is off by, n = 10⁶", "the closed form", 100 * theirs["farthest"], "%", note=note)


@dataclass(frozen=True)
class Solved:
    """The answer of the convex solver, and the seconds that it took inside cvxpy."""

    weights: Floats
    status: str
    inside: float


def solve(eps: Floats) -> Solved:
    """Return the weights that minimise the worst-case error, by a convex solver."""
    cp: Any = import_module("cvxpy")
    w, eta = cp.Variable(eps.size, nonneg=True), cp.Variable()
    error = cp.sum_squares(w) / 4 + 2 * cp.square(eta)
    problem = cp.Problem(cp.Minimize(error), [cp.sum(w) == 1, w <= eta * eps])
    problem.solve(solver=cp.CLARABEL)
    return Solved(w.value, problem.status, problem.solver_stats.solve_time)


def solve_apart(n: int) -> dict[str, Any]:
    """Return what the convex solver needs and how good it is; for a fresh interpreter."""
    solve(distinct(100))
    eps, before, answers = distinct(n), resident(), list[Solved]()
    seconds = clock(lambda: answers.append(solve(eps)))()
    memory, found = resident(peak=True) - before, answers[0]
    off = {"error": objective(eps, found.weights), "farthest": farthest(eps, found.weights)}
    return {"seconds": seconds, "memory": memory, "status": found.status, **off}


def objective(eps: Floats, w: Floats) -> float:
    """Return Σw²/4 + 2·max(w/ε)², the worst-case error that ADPM minimises."""
    return float(np.sum(w**2) / 4 + 2 * np.max(w / eps) ** 2)


def farthest(eps: Floats, w: Floats) -> float:
    """Return the largest relative error of a weight: the optimum is ∝ min(ε, t), t = (8 + Σε²)/Σε over the ε < t."""
    level = np.sort(eps)
    t = (8 + np.cumsum(level**2)) / np.cumsum(level)
    best = np.minimum(eps, t[np.argmax(t <= np.append(level[1:], np.inf))])
    return float(np.max(np.abs(w / (best / best.sum()) - 1)))


def imports(_quick: bool) -> Iterator[Row]:  # noqa: FBT001
    """Import in fresh interpreters, whose own start is not counted, and see what the help loads."""
    timed = race(_import("numpy"), _import("hetdp"), least=9)
    yield Row.of("import hetdp", "import numpy", timed, Bar("at most", 3))
    loaded = python(
        "import sys; from hetdp.cli import app\n"
        "try: app(['--help'], standalone_mode=False)\n"
        "finally: print(' '.join(sys.modules))"
    ).split()
    note = ", ".join(f"{name} {'yes' if name in loaded else 'no'}" for name in HEAVY)
    count = sum(name in loaded for name in HEAVY)
    yield Row("heavy libraries that hetdp --help imports", "", count, "", Bar("at most", 0), note=note)


def _import(name: str) -> Timer:
    code = f"import time; start = time.perf_counter(); import {name}; print(time.perf_counter() - start)"
    return lambda: float(python(code))


def mean_files(_quick: bool) -> Iterator[Row]:  # noqa: FBT001
    """Release means of files, against Polars' own typed scan that sums both columns."""
    import polars as pl

    frame = pl.DataFrame({"value": np.random.default_rng(0).random(10**6), "eps": tiered(10**6)})
    with tempfile.TemporaryDirectory() as folder:
        csv, parquet = Path(folder) / "people.csv", Path(folder) / "people.parquet"
        frame.write_csv(csv)
        frame.write_parquet(parquet)
        for path, scan in ((csv, pl.scan_csv(csv, schema=frame.schema)), (parquet, pl.scan_parquet(parquet))):
            sums = scan.select(pl.col("value", "eps").sum())
            ours = functools.partial(hetdp.mean, path, value="value", epsilon="eps", bounds=(0, 1))
            yield Row.of(
                f"mean, {path.suffix[1:]} file, 10⁶ rows", "Polars' sums", race(clock(sums.collect), clock(ours))
            )


CASES = (plan_array, plan_table, plan_solver, plan_solver_large, imports, mean_files)
