"""Errors of the family of statistics: ours beside other weights and splitting, the study of ρ, other libraries.

    python bench/family.py [table] [rho] [peers] [--quick] [--out DIR]

Each part writes a Markdown table to DIR/family-PART.md; docs/statistics/figures.md has them with the words that belong
to them. Seeds are fixed, but for the noise of real releases and of other libraries.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import peers
from numpy.typing import NDArray
from scipy import stats

import hetdp
from hetdp.core.plan import Plan, plan
from hetdp.paper.family import law_of, noise_of
from hetdp.statistics.histogram import Shares
from hetdp.statistics.moments import Spread
from hetdp.statistics.quantile import Ranks

Floats = NDArray[np.float64]
Levels = dict[float, int]
INF = math.inf
ask: Any = hetdp.ask

TIERS = {0.05: 0.54, 0.5: 0.37, 2.0: 0.06, INF: 0.03}
HALVES = {0.1: 0.5, 1.0: 0.5}
SPREAD_OUT = {math.exp(x): 1 / 13 for x in np.linspace(-4, 2, 13)}
MOSTLY_STRICT = {0.01: 0.9, INF: 0.1}
MIXES = {"four tiers": TIERS, "0.1 and 1": HALVES, "13 levels": SPREAD_OUT, "0.01 and public": MOSTLY_STRICT}


FRESH_MIXES = {
    "0.02, 0.3 and 3": {0.02: 0.3, 0.3: 0.5, 3.0: 0.2},
    "0.2 and 5": {0.2: 0.8, 5.0: 0.2},
    "0.1, 0.5 and public": {0.1: 0.6, 0.5: 0.35, INF: 0.05},
}


def people(mix: Mapping[float, float], n: int) -> Levels:
    """Return how many of n people have each ε."""
    return {epsilon: round(share * n) for epsilon, share in mix.items()}


# The error of other weights, over ours --------------------------------------------------------------------------------

PREDICTED = {
    ("histogram, k = 10, n = 10⁴", "uniform"): 2.1,
    ("histogram, k = 10, n = 10⁴", "proportional"): 18,
    ("histogram, k = 10, n = 10⁴", "threshold"): 1.26,
    ("histogram, k = 10, n = 10⁴", "the mean's ρ = 8"): 1.5,
    ("histogram, k = 50, n = 10⁴", "uniform"): 7.1,
    ("histogram, k = 50, n = 10⁴", "proportional"): 14,
    ("histogram, k = 50, n = 10⁴", "threshold"): 1.25,
    ("histogram, k = 50, n = 10⁴", "the mean's ρ = 8"): 4.6,
    ("median, n = 10³", "uniform"): 6.1,
    ("median, n = 10³", "threshold"): 1.4,
    ("median, n = 10⁴", "uniform"): 1.3,
    ("median, n = 10⁴", "threshold"): 1.3,
    ("means of d = 2, n = 10³", "splitting"): 1.12,
    ("means of d = 5, n = 10³", "splitting"): 1.6,
    ("means of d = 10, n = 10³", "splitting"): 2.0,
}
"""What the mathematics of the project says of the error of others over ours."""


class OwnShares(Shares):
    """A histogram with the mean's ρ."""

    rho = 8.0


class OwnRanks(Ranks):
    """Quantiles with the mean's ρ."""

    rho = 8.0


@dataclass(frozen=True)
class Found:
    """A mean squared error: by the formula, and simulated with its standard error."""

    exact: float
    simulated: float
    error: float

    @classmethod
    def of(cls, levels: Levels, statistic: Any, distribution: Any, method: str, runs: int, times: int = 1) -> Found:
        """Return that of a statistic; of several that are alike so many times."""
        found = hetdp.simulate(levels, statistic=statistic, distribution=distribution, method=method, runs=runs, rng=1)
        return cls(times * found.exact_mse, times * found.mse, times * found.standard_error)


def table(quick: bool) -> Iterator[tuple[str, ...]]:  # noqa: FBT001
    """Yield the rows of the table of errors."""
    yield "Statistic", "Instead of ours", "MSE ÷ ours, formula", "simulated", "predicted"
    runs = 1000 if quick else 20_000
    for k in (10, 50):
        what, levels = f"histogram, k = {k}, n = 10⁴", people(TIERS, 10**4)
        edges, even = tuple(float(i) for i in range(k)), [1 / k] * k
        ours = Found.of(levels, Shares(edges=edges), even, "adpm", runs)
        for method in ("uniform", "proportional", "threshold"):
            yield _row(what, method, Found.of(levels, Shares(edges=edges), even, method, runs), ours)
        yield _row(what, "the mean's ρ = 8", Found.of(levels, OwnShares(edges=edges), even, "adpm", runs), ours)
        one = {"a": 1 / k, "b": 1 - 1 / k}
        split = {epsilon / k: count for epsilon, count in levels.items()}
        proportions = Found.of(split, ask.proportion(equals="a"), one, "adpm", runs, k)
        yield _row(what, "splitting ε over k proportions", proportions, ours)
        yield _row(what, "the usual Laplace noise, 2η in each cell", _laplace_cells(levels, k), ours)
    for n, shown in ((10**3, "10³"), (10**4, "10⁴")):
        what, levels = f"median, n = {shown}", people(TIERS, n)
        ranks = (np.arange(2048) + 0.5) / 2048
        for_rank = runs // 5
        ours = Found.of(levels, Ranks(0.5, (0, 1), 2048), ranks, "adpm", for_rank)
        for method in ("uniform", "proportional", "threshold"):
            yield _row(what, method, Found.of(levels, Ranks(0.5, (0, 1), 2048), ranks, method, for_rank), ours)
        own = Found.of(levels, OwnRanks(0.5, (0, 1), 2048), ranks, "adpm", for_rank)
        yield _row(what, "the mean's ρ = 8", own, ours)
    for d in (2, 5, 10):
        what, levels = f"means of d = {d}, n = 10³", people(TIERS, 10**3)
        ends = [(0,) * d, (1,) * d]
        ours = Found.of(levels, ask.means({str(i): (0, 1) for i in range(d)}), ends, "adpm", runs)
        split = {epsilon / d: count for epsilon, count in levels.items()}
        apart = Found.of(split, ask.means({"x": (0, 1)}), [0, 1], "adpm", runs, d)
        yield _row(what, "splitting", apart, ours)
        yield _row(what, "uniform", Found.of(levels, _columns(d), ends, "uniform", runs), ours)
        yield _row(what, "threshold", Found.of(levels, _columns(d), ends, "threshold", runs), ours)


def _columns(d: int) -> Any:
    return ask.means({str(i): (0, 1) for i in range(d)})


def _laplace_cells(levels: Levels, k: int) -> Found:
    """Return the error of independent noise in every cell: one person moves two cells, so each gets scale 2η."""
    planned = plan(levels, statistic=Shares(edges=tuple(float(i) for i in range(k))))
    scale = planned.errors.scales[0]
    exact = planned.errors.spread * (1 - 1 / k) + k * 2 * (2 * scale) ** 2
    return Found(exact, math.nan, math.nan)


def _row(what: str, instead: str, theirs: Found, ours: Found) -> tuple[str, ...]:
    ratio = theirs.simulated / ours.simulated
    error = ratio * math.hypot(theirs.error / theirs.simulated, ours.error / ours.simulated)
    shown = "" if math.isnan(ratio) else f"{ratio:.3g} ± {error:.1g}"
    predicted = PREDICTED.get((what, instead))
    return what, instead, f"{theirs.exact / ours.exact:.3g}", shown, "" if predicted is None else f"{predicted:g}"


def answered(quick: bool) -> Iterator[tuple[str, ...]]:  # noqa: FBT001
    """Yield the errors of a mean of which a fifth of the people did not answer."""
    yield "Data, 80 % answered", "ours", "dropping them publicly", "counting them as the midpoint"
    runs = 4000 if quick else 100_000
    visits = np.minimum(_visits(), 50) / 50
    for name, law, mix in (
        ("yes or no, p = 0.1; ε 0.1 and 1, n = 1000", {0.0: 0.9, 1.0: 0.1}, HALVES),
        ("doctor's visits (randhie), ≤ 50; four tiers, n = 1000", _law(visits), TIERS),
        ("Beta(2, 5); four tiers, n = 1000", _law(stats.beta(2, 5).ppf((np.arange(200) + 0.5) / 200)), TIERS),
    ):
        levels = people(mix, 1000)
        missing: dict[float | None, float] = {None: 0.2, **{x: 0.8 * p for x, p in law.items()}}
        mean = sum(x * p for x, p in law.items())
        kinds = ask.mean(bounds=(0, 1), missing="estimate"), ask.means({"x": (0, 1)})
        ours = Found.of(levels, kinds[0], missing, "adpm", runs)
        fewer = {epsilon: round(0.8 * count) for epsilon, count in levels.items()}
        dropped = Found.of(fewer, kinds[1], law, "adpm", runs)
        middle = {x: 0.8 * p for x, p in law.items()}
        middle[0.5] = middle.get(0.5, 0.0) + 0.2
        counted = Found.of(levels, kinds[1], middle, "adpm", runs)
        bias = 0.2 * (0.5 - mean)
        errors = math.sqrt(ours.simulated), math.sqrt(dropped.simulated), math.sqrt(counted.simulated + bias**2)
        yield name, *(f"{error:.4f}" for error in errors)


def _law(values: Floats) -> dict[float, float]:
    each, count = np.unique(values, return_counts=True)
    return dict(zip(each.tolist(), (count / count.sum()).tolist(), strict=True))


# The study of ρ for mean and variance ---------------------------------------------------------------------------------

RHOS = (8, 12, 16, 24, 40, 80, 200, 400)


class StudiedSpread(Spread):
    """Mean and variance with another ρ."""

    rho = 16.0


def with_rho(rho: float) -> Spread:
    """Return the statistic with this ρ."""
    return type("S", (StudiedSpread,), {"rho": float(rho)})((0, 1))  # type: ignore[no-any-return]


def _visits() -> Floats:
    from statsmodels import datasets  # type: ignore[import-untyped]

    return np.asarray(datasets.randhie.load_pandas().data["mdvis"], np.float64)


def data_sets() -> dict[str, Floats]:
    """Return values on [0, 1], by public bounds that somebody would choose."""
    from statsmodels import datasets

    fair, anes = datasets.fair.load_pandas().data, datasets.anes96.load_pandas().data
    trips, school = datasets.modechoice.load_pandas().data, datasets.star98.load_pandas().data
    even = (np.arange(500) + 0.5) / 500
    halves = np.concatenate([stats.norm(0.25, 0.05).ppf(even), stats.norm(0.75, 0.05).ppf(even)])
    return {
        "doctor's visits, ≤ 50 (randhie)": np.minimum(_visits(), 50) / 50,
        "age, 18–90 (anes96)": (np.asarray(anes["age"], float) - 18) / 72,
        "income class, 1–24 (anes96)": (np.asarray(anes["income"], float) - 1) / 23,
        "years married, ≤ 25 (fair)": np.asarray(fair["yrs_married"], float) / 25,
        "affairs, ≤ 60 (fair)": np.minimum(np.asarray(fair["affairs"], float), 60) / 60,
        "household income, ≤ 100 (modechoice)": np.asarray(trips["hinc"], float) / 100,
        "poor pupils, % (star98)": np.asarray(school["LOWINC"], float) / 100,
        "Beta(2, 5)": stats.beta(2, 5).ppf(even),
        "Beta(5, 2)": stats.beta(5, 2).ppf(even),
        "Beta(10, 40)": stats.beta(10, 40).ppf(even),
        "Beta(½, ½)": stats.beta(0.5, 0.5).ppf(even),
        "uniform": even,
        "two humps": np.clip(halves, 0, 1),
        "yes or no, half": np.array([0.0, 1.0]),
        "yes or no, p = 0.15": np.array([0.0] * 17 + [1.0] * 3),
    }


def fresh_data() -> dict[str, Floats]:
    """Return values that were looked at only after ρ had been chosen."""
    from statsmodels import datasets

    food, trips = datasets.engel.load_pandas().data, datasets.modechoice.load_pandas().data
    people_of, school = datasets.fair.load_pandas().data, datasets.star98.load_pandas().data
    even = (np.arange(500) + 0.5) / 500
    return {
        "fresh: spent on food, ≤ 2,500 (engel)": np.minimum(np.asarray(food["foodexp"], float), 2500) / 2500,
        "fresh: minutes on the way, ≤ 1,500 (modechoice)": np.minimum(np.asarray(trips["invt"], float), 1500) / 1500,
        "fresh: children, ≤ 10 (fair)": np.asarray(people_of["children"], float) / 10,
        "fresh: pupils of a minority, % (star98)": np.asarray(school["PERHISP"], float) / 100,
        "fresh: Beta(1, 3)": stats.beta(1, 3).ppf(even),
        "fresh: Beta(4, 4)": stats.beta(4, 4).ppf(even),
        "fresh: yes or no, p = 0.3": np.array([0.0] * 7 + [1.0] * 3),
    }


def moments(planned: Plan, sums: Floats, unit: Floats) -> tuple[Floats, Floats]:
    """Return mean and variance of every run, as a release has them; `unit` is noise of scale 1."""
    if planned.abstains:
        return np.full(len(sums), 0.5), np.full(len(sums), 1 / 12)
    scale = planned.noise[0].scale / planned.total if planned.noise else 0.0
    numbers = np.einsum("ijk,j->ik", sums, planned.person_weight) + scale * unit
    variance = np.clip((numbers[:, 1] - (2 * numbers[:, 0] - 1) ** 2) / 4, 0, 0.25)
    return np.clip(numbers[:, 0], 0, 1), variance


@functools.cache
def studied(quick: bool, *, fresh: bool = False) -> list[dict[str, Any]]:  # noqa: FBT001
    """Return the errors of every ρ, with our weights and with `threshold`, in every setting.

    All rules of a setting see the same people and the same noise but for its scale. `fresh` are data and tiers that
    were looked at only after ρ had been chosen.
    """
    runs, found = 400 if quick else 3000, []
    for i, (name, values) in enumerate((fresh_data() if fresh else data_sets()).items()):
        law = law_of(Spread((0, 1)), _law(values))
        true = float(values.mean()), float(values.var())
        for j, (mix, shares) in enumerate((FRESH_MIXES if fresh else MIXES).items()):
            for n in (10**3, 10**4, 10**5):
                rng = np.random.default_rng([i, j, n, fresh])
                levels = hetdp.Levels.given(people(shares, n))
                sums = law.totals(rng, levels.count, runs)
                unit = noise_of(Spread((0, 1)).geometry, rng, 1.0, runs)
                errors: dict[str, dict[str, float]] = {}
                for r in RHOS:
                    for rule, method in ((str(r), "adpm"), (f"threshold {r}", "threshold")):
                        planned = plan(levels, statistic=with_rho(r), method=method)
                        mean, variance = moments(planned, sums, unit)
                        errors[rule] = {
                            "mean": float(np.mean((mean - true[0]) ** 2)),
                            "variance": float(np.mean((variance - true[1]) ** 2)),
                            "std": float(np.mean((np.sqrt(variance) - math.sqrt(true[1])) ** 2)),
                        }
                found.append({"data": name, "mix": mix, "n": n, "errors": errors})
    return found


def over_best(errors: Mapping[str, Mapping[str, float]], rule: str, of: str) -> float:
    """Return the error of a rule over the least that any ρ has with our weights."""
    return errors[rule][of] / max(min(errors[str(r)][of] for r in RHOS), 1e-300)


def rho(quick: bool) -> Iterator[tuple[str, ...]]:  # noqa: FBT001
    """Yield, for every ρ, how much larger its error is than that of the best one: in the middle, and at worst."""
    yield from _by_rho(studied(quick))


def rho_fresh(quick: bool) -> Iterator[tuple[str, ...]]:  # noqa: FBT001
    """Yield the same for data and tiers on which ρ was not chosen."""
    yield from _by_rho(studied(quick, fresh=True))


def _by_rho(found: list[dict[str, Any]]) -> Iterator[tuple[str, ...]]:
    three = "mean", "variance", "std"
    heads = (f"{of}: {how}" for of in three for how in ("typical", "9 in 10", "worst"))
    yield "ρ", *heads, "threshold, same ρ: mean, variance", "settings better than it"
    for r in RHOS:
        cells = []
        for of in three:
            over = [over_best(row["errors"], str(r), of) for row in found]
            cells += [f"{np.exp(np.mean(np.log(over))):.2f}", f"{np.quantile(over, 0.9):.2f}", f"{max(over):.2f}"]
        other = f"threshold {r}"
        theirs = [np.exp(np.mean([np.log(over_best(row["errors"], other, of)) for row in found])) for of in three[:2]]
        wins = [row["errors"][str(r)][of] <= row["errors"][other][of] for row in found for of in three[:2]]
        yield f"{r}", *cells, f"{theirs[0]:.2f}, {theirs[1]:.2f}", f"{np.mean(wins):.0%}"


def rho_by_data(quick: bool) -> Iterator[tuple[str, ...]]:  # noqa: FBT001
    """Yield, for every data set, the errors of each ρ over the best one, mean and variance, over all settings."""
    yield "Data", *(f"ρ = {r}" for r in RHOS)
    for found, data in ((studied(quick), data_sets()), (studied(quick, fresh=True), fresh_data())):
        for name in data:
            rows = [row["errors"] for row in found if row["data"] == name]
            logs = [[math.log(over_best(e, str(r), of)) for e in rows for of in ("mean", "variance")] for r in RHOS]
            yield name, *(f"{math.exp(np.mean(each)):.2f}" for each in logs)


def rho_price(_quick: bool) -> Iterator[tuple[str, ...]]:  # noqa: FBT001
    """Yield what a larger ρ costs in promises: the worst-case error and the guaranteed interval, over those of 16."""
    some = (16, 40, 80, 200, 400)
    yield "Tiers", "n", *(f"ρ = {r}: worst case, interval" for r in some[1:])
    for mix, shares in MIXES.items():
        for n in (10**3, 10**4, 10**5):
            first, *rest = (plan(people(shares, n), statistic=with_rho(r)) for r in some)
            pairs = [(p.worst_case_mse / first.worst_case_mse, _radius(p) / _radius(first)) for p in rest]
            yield mix, f"{n:,}", *(f"{worst:.2f}, {wide:.2f}" for worst, wide in pairs)


def _radius(planned: Plan) -> float:
    return planned.radius(0.95, together=2)


# Other libraries ------------------------------------------------------------------------------------------------------

CHANCE = (0.25, 0.2, 0.15, 0.1, 0.1, 0.08, 0.06, 0.03, 0.02, 0.01)
LAW = stats.beta(2, 5)

_DRAW = """
import json, sys
import numpy as np
m, epsilon, repeats, seed = json.loads(sys.argv[1])
chance = {chance}
rng = np.random.default_rng(seed)
found = dict(histogram=[], median=[], mean=[], variance=[])
{setup}
for _ in range(repeats):
    x, cell = rng.beta(2, 5, m), rng.choice(10, m, p=chance)
{body}
print(json.dumps(found))
"""

OPENDP = (
    """
import opendp.prelude as dp
dp.enable_features("contrib", "floating-point")
cells = dp.vector_domain(dp.atom_domain(T=dp.i32)), dp.symmetric_distance()
counts = cells >> dp.t.then_count_by_categories([*range(10)], null_category=True)
histogram = dp.binary_search_chain(lambda s: counts >> dp.m.then_laplace(scale=s), d_in=2, d_out=epsilon)
numbers = dp.vector_domain(dp.atom_domain(T=float, nan=False)), dp.symmetric_distance()
candidates = [(i + 0.5) / 4096 for i in range(4096)]
score = numbers >> dp.t.then_quantile_score_candidates(candidates, 0.5)
median = dp.binary_search_chain(
    lambda s: score >> dp.m.then_noisy_max(dp.max_divergence(), scale=s, negate=True), d_in=2, d_out=epsilon)
sized = dp.vector_domain(dp.atom_domain(T=float, nan=False), size=m), dp.symmetric_distance()
half = lambda made: dp.binary_search_chain(lambda s: made >> dp.m.then_laplace(scale=s), d_in=2, d_out=epsilon / 2)
mean = half(sized >> dp.t.then_clamp((0.0, 1.0)) >> dp.t.then_mean())
variance = half(sized >> dp.t.then_clamp((0.0, 1.0)) >> dp.t.then_variance())
""",
    """
    found["histogram"].append([c / m for c in histogram(cell.astype(np.int32))[:10]])
    found["median"].append(candidates[median(x)])
    found["mean"].append(mean(x))
    found["variance"].append(min(max(variance(x), 0.0), 0.25))
""",
)
DIFFPRIVLIB = (
    """
import warnings
warnings.simplefilter("ignore")
from diffprivlib import tools
""",
    """
    counts, _ = tools.histogram(cell, epsilon=epsilon / 2, bins=10, range=(-0.5, 9.5))
    found["histogram"].append([float(c) / m for c in counts])
    found["median"].append(float(tools.median(x, epsilon=epsilon, bounds=(0, 1))))
    found["mean"].append(float(tools.mean(x, epsilon=epsilon / 2, bounds=(0, 1))))
    found["variance"].append(min(max(float(tools.var(x, epsilon=epsilon / 2, bounds=(0, 1))), 0.0), 0.25))
""",
)


def errors_of(found: Mapping[str, Any]) -> dict[str, float]:
    """Return root mean squared errors against the law: of all shares together, of the rank, of mean, of std."""
    shares = np.array(found["histogram"]) - np.array(CHANCE)
    return {
        "histogram": math.sqrt(np.mean((shares**2).sum(axis=1))),
        "median, in rank": math.sqrt(np.mean((LAW.cdf(np.array(found["median"])) - 0.5) ** 2)),
        "mean": math.sqrt(np.mean((np.array(found["mean"]) - LAW.mean()) ** 2)),
        "std": math.sqrt(np.mean((np.sqrt(np.array(found["variance"])) - LAW.std()) ** 2)),
    }


def theirs(code: tuple[str, str], interpreter: Path, m: int, epsilon: float, repeats: int) -> dict[str, float]:
    """Return the errors of another library with m people at one ε."""
    text = _DRAW.format(chance=list(CHANCE), setup=code[0], body=code[1])
    command = [str(interpreter), "-c", text, json.dumps([m, epsilon, repeats, 7])]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return errors_of(json.loads(done.stdout.splitlines()[-1]))


def ours(levels: Levels, repeats: int) -> dict[str, float]:
    """Return our errors, of real releases; every statistic has the whole ε, mean and variance share one release."""
    epsilon, rng = np.repeat([*levels], [*levels.values()]), np.random.default_rng(7)
    kinds = {
        "histogram": ask.histogram(categories=list(range(10))),
        "median": ask.quantile(0.5, bounds=(0, 1)),
        "moments": ask.variance(bounds=(0, 1)),
    }
    found: dict[str, list[Any]] = {"histogram": [], "median": [], "mean": [], "variance": []}
    for _ in range(repeats):
        x, cell = rng.beta(2, 5, epsilon.size), rng.choice(10, epsilon.size, p=CHANCE)
        answers: dict[str, Any] = {}
        for name, kind in kinds.items():
            tally = hetdp.read(cell if name == "histogram" else x, epsilon=epsilon, statistic=kind)
            answers[name] = hetdp.release(tally, plan(tally.levels, statistic=kind))
        found["histogram"].append(list(answers["histogram"].numbers[:10]))
        found["median"].append(answers["median"].estimate)
        found["mean"].append(answers["moments"].mean)
        found["variance"].append(answers["moments"].variance)
    return errors_of(found)


def one_epsilon(quick: bool) -> Iterator[tuple[str, ...]]:  # noqa: FBT001
    """Yield errors at one ε for everybody."""
    yield "n, ε", "Statistic", "hetdp, RMSE", "OpenDP ÷ ours", "diffprivlib ÷ ours"
    repeats, other = 40 if quick else 600, _diffprivlib()
    for n, epsilon in ((1000, 0.5), (10_000, 0.1)):
        mine = ours({epsilon: n}, repeats)
        rest = [
            theirs(OPENDP, Path(sys.executable), n, epsilon, repeats),
            theirs(DIFFPRIVLIB, other, n, epsilon, repeats),
        ]
        for name, error in mine.items():
            yield f"{n:,}, {epsilon:g}", name, f"{error:.4g}", *(f"{each[name] / error:.2f}" for each in rest)


def tiers(quick: bool) -> Iterator[tuple[str, ...]]:  # noqa: FBT001
    """Yield errors with tiers: others take everybody at the smallest ε, or only people from some ε on."""
    yield (
        "Statistic, n = 10⁴, four tiers",
        "hetdp, RMSE",
        *(
            f"{library}, {who}, ÷ ours"
            for library in ("OpenDP", "diffprivlib")
            for who in ("everybody", "ε ≥ 0.5", "ε ≥ 2")
        ),
    )
    repeats, other, levels = 40 if quick else 400, _diffprivlib(), people(TIERS, 10**4)
    mine, rest = ours(levels, repeats), []
    for code, interpreter in ((OPENDP, Path(sys.executable)), (DIFFPRIVLIB, other)):
        for least in (0.05, 0.5, 2.0):
            m = sum(count for epsilon, count in levels.items() if epsilon >= least)
            rest.append(theirs(code, interpreter, m, least, repeats))
    for name, error in mine.items():
        yield name, f"{error:.4g}", *(f"{each[name] / error:.2f}" for each in rest)


def _diffprivlib() -> Path:
    return next(peer for peer in peers.PEERS if peer.package == "diffprivlib").install()


# ----------------------------------------------------------------------------------------------------------------------

PARTS: dict[str, tuple[Callable[[bool], Iterator[tuple[str, ...]]], ...]] = {
    "table": (table, answered),
    "rho": (rho, rho_fresh, rho_by_data, rho_price),
    "peers": (one_epsilon, tiers),
}


def main() -> None:
    parser = argparse.ArgumentParser(description="Errors of the family of statistics.")
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help=f"of {', '.join(PARTS)}; all of them")
    parser.add_argument("--quick", action="store_true", help="fewer runs")
    parser.add_argument("--out", metavar="DIR", type=Path, default=Path("build/bench"), help="where the tables go")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    for part in options.parts or PARTS:
        text = "\n\n".join(_markdown(list(rows(options.quick))) for rows in PARTS[part])
        (options.out / f"family-{part}.md").write_text(text + "\n", "utf-8")
        print(text, flush=True)


def _markdown(rows: list[tuple[str, ...]]) -> str:
    lines = [rows[0], ("---",) * len(rows[0]), *rows[1:]]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


if __name__ == "__main__":
    main()
