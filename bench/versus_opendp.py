"""hetdp and OpenDP side by side: the error of a mean, its time, and what keeping budgets costs.

    python bench/versus_opendp.py error     the mean of people with different ε
    python bench/versus_opendp.py budgets   a filter of OpenDP and a ledger, query by query

It prints the tables of `docs/hetdp-or-opendp.md` and `docs/budgets-for-any-pipeline.md`. OpenDP is used as its
documentation does: `make_sum`, then Laplace noise. Its mean is of a dataset whose size is known, as here.
"""

from __future__ import annotations

import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import opendp.prelude as dp

import hetdp
from hetdp.ledger import Ledger

LEVELS = {0.02: 2000, 0.1: 1200, 1.0: 500, float("inf"): 300}  # the ε of the sample file's people
COPIES = (2, 10, 13, 13)  # min(ε, t) in units of 0.01, with t = 0.13 as `hetdp.plan` computes it
BOUNDS = (0.0, 250_000.0)
RANGE = BOUNDS[1] - BOUNDS[0]
TIMED = 300
QUERIES = (10, 100, 200, 400, 800)


def error(times: int = 20_000) -> None:
    """Print the error of a mean, drawn many times and exact, its worst case and the time of a whole release.

    What can be done with OpenDP for people of different ε: the smallest ε for all, the strictest left out, one mean for
    each tier, combined, or rows that are repeated. Noise is drawn again and again for sums that are computed once; the
    time is of everything.
    """
    rng = np.random.default_rng(7)
    epsilon = np.repeat(list(LEVELS), list(LEVELS.values()))
    values = rng.permutation(np.clip(rng.lognormal(10.6, 0.5, epsilon.size), *BOUNDS))
    different, same = "different ε, 0.02 to ∞", "ε = 0.1 for everybody"
    alike, rest = np.full(epsilon.size, 0.1), epsilon > min(LEVELS)
    rows = [
        (different, "hetdp", ours(values, epsilon)),
        (different, "OpenDP, rows repeated", repeated(values)),
        (different, "OpenDP, one mean per tier", per_tier(values, epsilon)),
        (different, "OpenDP, the strictest left out", theirs(values, rest, float(epsilon[rest].min()))),
        (different, "OpenDP, the smallest ε", theirs(values, epsilon > 0, float(epsilon.min()))),
        (same, "hetdp", ours(values, alike)),
        (same, "OpenDP", theirs(values, epsilon > 0, 0.1)),
    ]
    for people, tool, way in rows:
        off = np.array([way.draw() for _ in range(times)]) - values.mean()
        exact = np.hypot(way.weights @ values - values.mean(), way.noise)
        worst = np.hypot(RANGE / 2 * np.sqrt(np.sum(way.weights**2)), way.noise)
        start = time.perf_counter()
        for _ in range(TIMED):
            way.release()
        each = 1e3 * (time.perf_counter() - start) / TIMED
        errors = f"± {np.sqrt(np.mean(off**2)):,.0f} | ± {exact:,.0f} | ± {worst:,.0f}"
        print(f"| {people} | {tool} | {errors} | {each:.1f} ms |")


@dataclass(frozen=True)
class Way:
    """A way to release a mean: each person's weight, the noise's standard deviation, a release, and its last step."""

    weights: Any
    noise: float
    release: Callable[[], float]
    draw: Callable[[], float]


def ours(values: Any, epsilon: Any) -> Way:
    """Return hetdp's way."""
    tally = hetdp.read(values, epsilon=epsilon, bounds=BOUNDS)
    plan = hetdp.plan(tally.levels, bounds=BOUNDS)
    return Way(
        plan.weights(epsilon),
        np.sqrt(2) * plan.noise_scale,
        lambda: float(hetdp.mean(values, epsilon=epsilon, bounds=BOUNDS).estimate),
        lambda: cast("hetdp.Release", hetdp.release(tally, plan)).estimate,
    )


def theirs(values: Any, chosen: Any, epsilon: float) -> Way:
    """Return OpenDP's mean of the chosen people: a noisy sum over their public number, without noise if ε = ∞."""
    dp.enable_features("contrib")
    some, weights = values[chosen].tolist(), chosen / chosen.sum()
    space = dp.vector_domain(dp.atom_domain(bounds=BOUNDS, nan=False), size=len(some)), dp.symmetric_distance()
    total = dp.t.make_sum(*space)
    exact = total(some)
    if epsilon == float("inf"):
        return Way(weights, 0.0, lambda: total(some) / len(some), lambda: exact / len(some))
    scale = dp.binary_search_param(lambda noise: total >> dp.m.then_laplace(noise), d_in=2, d_out=epsilon)
    mechanism = total >> dp.m.then_laplace(scale)
    noisy = dp.m.make_laplace(total.output_domain, total.output_metric, scale)
    noise = float(np.sqrt(2) * scale / len(some))
    return Way(weights, noise, lambda: mechanism(some) / len(some), lambda: noisy(exact) / len(some))


def repeated(values: Any) -> Way:
    """Return OpenDP's mean of rows that are repeated as often as `COPIES` says, which must be worked out beforehand.

    Replacing one person changes 2·copies rows, and the mechanism's own map must say at most that person's ε for it.
    """
    dp.enable_features("contrib")
    copies = np.repeat(COPIES, list(LEVELS.values()))
    rows, weights = np.repeat(values, copies).tolist(), copies / copies.sum()
    space = dp.vector_domain(dp.atom_domain(bounds=BOUNDS, nan=False), size=len(rows)), dp.symmetric_distance()
    total = dp.t.make_sum(*space)
    scale = max(
        dp.binary_search_param(lambda noise: total >> dp.m.then_laplace(noise), d_in=2 * times, d_out=level)
        for times, level in zip(COPIES, LEVELS, strict=True)
        if level < float("inf")
    )
    mechanism, exact = total >> dp.m.then_laplace(scale), total(rows)
    spent = {level: mechanism.map(2 * times) for times, level in zip(COPIES, LEVELS, strict=True)}
    if any(cost > level for level, cost in spent.items()):
        raise ValueError(f"somebody would spend more than their ε: {spent}")
    noisy = dp.m.make_laplace(total.output_domain, total.output_metric, scale)
    return Way(
        weights,
        float(np.sqrt(2) * scale / len(rows)),
        lambda: mechanism(np.repeat(values, copies).tolist()) / len(rows),
        lambda: noisy(exact) / len(rows),
    )


def per_tier(values: Any, epsilon: Any) -> Way:
    """Return one OpenDP mean per tier, each at its own ε, combined with weights in inverse proportion to its error.

    Tiers are public and do not overlap, so each person is in one mean. The weights use the largest variance that values
    in the bounds can have, which is public: this is hetdp's method `ldpe`.
    """
    tiers = [theirs(values, epsilon == level, level) for level in LEVELS]
    error = np.array([RANGE**2 / 4 / n + tier.noise**2 for n, tier in zip(LEVELS.values(), tiers, strict=True)])
    share = 1 / error / np.sum(1 / error)
    return Way(
        sum(part * tier.weights for part, tier in zip(share, tiers, strict=True)),
        float(np.sqrt(sum((part * tier.noise) ** 2 for part, tier in zip(share, tiers, strict=True)))),
        lambda: sum(part * tier.release() for part, tier in zip(share, tiers, strict=True)),
        lambda: sum(part * tier.draw() for part, tier in zip(share, tiers, strict=True)),
    )


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
