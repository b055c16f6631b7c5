"""hetdp and OpenDP side by side: the error of a mean, its time, and what keeping budgets costs.

    python bench/versus_opendp.py error     the mean of people with different ε
    python bench/versus_opendp.py budgets   a filter of OpenDP and a ledger, query by query

It prints the tables of `docs/hetdp-or-opendp.md` and `docs/budgets-for-any-pipeline.md`. OpenDP is used as its
documentation does: `make_sum`, Laplace noise, one ε for all. Its mean is of a dataset whose size is known, as here.
"""

from __future__ import annotations

import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import opendp.prelude as dp

import hetdp
from hetdp.ledger import Ledger

LEVELS = {0.02: 2000, 0.1: 1200, 1.0: 500, float("inf"): 300}  # the ε of the sample file's people
BOUNDS = (0.0, 250_000.0)
QUERIES = (10, 100, 200, 400, 800)


def error(times: int = 2000) -> None:
    """Print the error and the time of a mean: of hetdp, and of OpenDP with the one ε that everybody allows.

    With one ε one can also leave the strictest people out and take the smallest ε of the others.
    """
    rng = np.random.default_rng(7)
    epsilon = np.repeat(list(LEVELS), list(LEVELS.values()))
    mixed = rng.permutation(np.clip(rng.lognormal(10.6, 0.5, epsilon.size), *BOUNDS))
    different, same = "different ε, 0.02 to ∞", "ε = 0.1 for everybody"
    alike, rest = np.full(epsilon.size, 0.1), epsilon > min(LEVELS)
    rows = [
        (different, "hetdp", ours(mixed, epsilon)),
        (different, "OpenDP, the smallest ε", theirs(mixed, float(epsilon.min()))),
        (different, "OpenDP, the strictest left out", theirs(mixed[rest], float(epsilon[rest].min()))),
        (same, "hetdp", ours(mixed, alike)),
        (same, "OpenDP", theirs(mixed, 0.1)),
    ]
    for name, tool, release in rows:
        start = time.perf_counter()
        off = np.array([release() for _ in range(times)]) - mixed.mean()
        each = (time.perf_counter() - start) / times
        print(f"| {name} | {tool} | ± {np.sqrt(np.mean(off**2)):,.0f} | {each * 1e3:.1f} ms |")


def ours(values: Any, epsilon: Any) -> Callable[[], float]:
    """Return a function that releases a mean with hetdp."""
    return lambda: float(hetdp.mean(values, epsilon=epsilon, bounds=BOUNDS).estimate)


def theirs(values: Any, epsilon: float) -> Callable[[], float]:
    """Return a function that releases a mean with OpenDP: a noisy sum over the public number of people."""
    dp.enable_features("contrib")
    size = len(values)
    space = dp.vector_domain(dp.atom_domain(bounds=BOUNDS, nan=False), size=size), dp.symmetric_distance()
    total = dp.t.make_sum(*space)
    scale = dp.binary_search_param(lambda noise: total >> dp.m.then_laplace(noise), d_in=2, d_out=epsilon)
    mechanism = total >> dp.m.then_laplace(scale)
    return lambda: float(mechanism(values.tolist()) / size)


def budgets() -> None:
    """Print what one more query costs, by its number: OpenDP's filter, and a ledger of a thousand people."""
    columns = [spent_by(filtered()), *(spent_by(charged(part)) for part in (1000, 100))]
    for i, number in enumerate(QUERIES):
        print(f"| {number} | " + " | ".join(f"{column[i]:.1f} ms" for column in columns) + " |")


def spent_by(query: Callable[[int], object]) -> list[float]:
    """Return the median time in milliseconds of the ten queries up to each number of `QUERIES`."""
    times = []
    for number in range(1, QUERIES[-1] + 1):
        start = time.perf_counter()
        query(number)
        times.append(1e3 * (time.perf_counter() - start))
    return [statistics.median(times[number - 10 : number]) for number in QUERIES]


def filtered() -> Callable[[int], object]:
    """Return a function that asks a filter of OpenDP for one more noisy sum."""
    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(bounds=(0.0, 1.0), nan=False), size=1000), dp.symmetric_distance()
    odometer = dp.c.make_fully_adaptive_composition(*space, dp.max_divergence())
    queryable = dp.c.make_privacy_filter(odometer, d_in=2, d_out=10.0)([0.5] * 1000)
    noisy = dp.t.make_sum(*space) >> dp.m.then_laplace(scale=1000.0)
    return lambda _: queryable(noisy)


def charged(part: int) -> Callable[[int], object]:
    """Return a function that charges some of a thousand people, chosen anew each time, in a file that is synced."""
    folder, rng = tempfile.mkdtemp(), random.Random(1)  # noqa: S311  no secret
    ledger, people = Ledger.create(Path(folder) / "budgets.db"), [f"p{i}" for i in range(1000)]
    ledger.enroll(dict.fromkeys(people, 10))

    def charge(number: int) -> object:
        chosen = rng.sample(people, part)
        return ledger.charge(chosen, release_id=f"r{number}", mechanism="a sum", epsilon=0.002)

    return charge


if __name__ == "__main__":
    for word in sys.argv[1:] or ["error", "budgets"]:
        {"error": error, "budgets": budgets}[word]()
