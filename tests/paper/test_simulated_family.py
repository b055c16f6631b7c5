"""Simulated statistics of several numbers against closed forms, brute force and real releases, with controls.

Seeds are fixed. A check within 4 standard errors would raise a false alarm once in 16,000 times without them.
"""

from __future__ import annotations

import ast
import math
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import hetdp
from hetdp.paper import family
from hetdp.paper import simulate as _simulate
from hetdp.paper.family import law_of, noise_of, zero_sum
from hetdp.privacy.exact import Box, Line, Mass

INF = math.inf
TIERS = {0.05: 540, 0.5: 370, 2.0: 60, INF: 30}
METHODS = ["adpm", "uniform", "proportional", "threshold"]
NEAR = 4.0

STATISTICS = {
    "histogram of 4": (hetdp.ask.histogram(categories=["a", "b", "c"]), [0.5, 0.2, 0.25, 0.05]),
    "histogram of 10": (hetdp.ask.histogram(edges=list(range(10))), [0.1] * 10),
    "histogram by name": (hetdp.ask.histogram(categories=["a", "b"]), {"a": 0.2, "b": 0.5, "?": 0.3}),
    "mean and variance": (hetdp.ask.variance(bounds=(0, 10)), {0: 0.2, 3: 0.5, 9: 0.3}),
    "means of two": (hetdp.ask.means({"a": (0, 4), "b": (-1, 1)}), {(0, 1): 0.2, (3, -0.5): 0.5, (4, 0): 0.3}),
    "means of five": (hetdp.ask.means(dict.fromkeys("abcde", (0, 1))), [(0, 0, 0, 1, 0.5), (1, 0.2, 1, 0, 0.4)]),
    "means by a private group": (
        hetdp.ask.mean_by_group(bounds=(0, 1), categories=["u", "v"], private_group="g", value="x"),
        {(0.3, "u"): 0.2, (0.6, "v"): 0.7, (0.0, None): 0.1},
    ),
    "proportion": (hetdp.ask.proportion(equals="yes"), {"yes": 0.2, "no": 0.8}),
    "count": (hetdp.ask.count(equals="yes"), {"yes": 0.2, "no": 0.8}),
    "sum": (hetdp.ask.sum(bounds=(0, 10)), {0: 0.2, 3: 0.5, 9: 0.3}),
}
EVEN = (np.arange(2048) + 0.5) / 2048
ABOUT = {
    "median": (hetdp.ask.quantile(0.5, bounds=(0, 1), bins=2048), EVEN, 10_000),
    "lower quartile": (hetdp.ask.quantile(0.25, bounds=(0, 1), bins=2048), EVEN, 10_000),
    "mean of those who answered": (
        hetdp.ask.mean(bounds=(0, 10), missing="estimate"),
        {0: 0.2, 3: 0.3, 9: 0.3, None: 0.2},
        1000,
    ),
    "yes or no of those who answered": (
        hetdp.ask.mean(bounds=(0, 1), missing="estimate"),
        {0: 0.72, 1: 0.08, None: 0.2},
        1000,
    ),
}


def simulated(name, levels=TIERS, method=METHODS, runs=20_000):
    statistic, distribution = STATISTICS[name]
    return hetdp.simulate(levels, statistic=statistic, distribution=distribution, method=method, runs=runs, rng=5)


def scaled(n):
    return {level: count * n // 1000 for level, count in TIERS.items()}


# --- simulated against the formulas -------------------------------------------------------------------------


@pytest.mark.parametrize("name", STATISTICS)
def test_the_simulated_error_of_every_method_is_that_of_the_formula(name):
    found = simulated(name)
    assert {method: s.z for method, s in found.items() if not abs(s.z) < NEAR} == {}


@pytest.mark.parametrize("name", ["histogram of 10", "mean and variance", "means of five", "sum"])
@pytest.mark.parametrize("levels", [{0.3: 40, 1.0: 8}, {0.0: 20, 0.7: 30}, {INF: 25}, {0.001: 3}], ids=repr)
def test_few_people_public_people_and_a_plan_that_abstains_agree_too(name, levels):
    found = simulated(name, levels, ["adpm", "threshold"])
    assert {method: s.z for method, s in found.items() if not abs(s.z) < NEAR} == {}


@pytest.mark.slow
@pytest.mark.parametrize("name", ABOUT)
def test_an_approximate_formula_is_within_five_per_cent(name):
    statistic, distribution, n = ABOUT[name]
    runs = 4000 if "quartile" in name or name == "median" else 40_000
    options = {"distribution": distribution, "runs": runs, "rng": 8}
    found = hetdp.simulate(scaled(n), statistic=statistic, method="adpm", **options)
    assert abs(found.mse / found.exact_mse - 1) < 0.05 + NEAR * found.standard_error / found.exact_mse


@pytest.mark.parametrize("factor", [0.96, 1.05])
@pytest.mark.parametrize("name", ["histogram of 10", "mean and variance", "proportion"])
def test_control_noise_with_a_wrong_scale_is_noticed(name, factor, monkeypatch):
    right = family.noise_of
    monkeypatch.setattr(family, "noise_of", lambda *given: factor * right(*given))
    assert abs(simulated(name, method="uniform", runs=60_000).z) > NEAR


def test_control_the_formula_for_another_law_is_noticed(monkeypatch):
    other = law_of(hetdp.ask.histogram(categories=["a", "b", "c"]), [0.9, 0.05, 0.03, 0.02])
    monkeypatch.setattr(_simulate, "exact_error", lambda planned, _: family.exact_error(planned, other))
    assert abs(simulated("histogram of 4", {INF: 1000}, "adpm").z) > NEAR


# --- the formulas, written out again ------------------------------------------------------------------------


def by_hand(levels, rho):
    """Σw² and max w/ε of the weights min(ε, t), where t solves Σ ε·(t − ε)₊ = ρ, found by bisection."""
    low, high = 0.0, 1e9
    for _ in range(200):
        t = (low + high) / 2
        filled = sum(count * e * max(t - e, 0) for e, count in levels.items() if e < INF)
        low, high = (t, high) if filled < rho else (low, t)
    weight = {e: min(e, t) for e in levels}
    total = sum(count * weight[e] for e, count in levels.items())
    return sum(count * (weight[e] / total) ** 2 for e, count in levels.items()), 1 / total


def test_the_exact_error_of_a_histogram_is_the_printed_formula():
    k, p = 10, np.array([0.3, 0.2, 0.1, 0.1, 0.1, 0.05, 0.05, 0.05, 0.03, 0.02])
    squares, eta = by_hand(TIERS, 4 * k * (2 * k - 1) / (k + 1))
    expected = (1 - float(p @ p)) * squares + 4 * (2 * k - 1) * (k - 1) / (k + 1) * eta**2
    statistic = hetdp.ask.histogram(edges=list(range(k)))
    found = hetdp.simulate(TIERS, statistic=statistic, method="adpm", distribution=p, runs=2, rng=1)
    assert found.exact_mse == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("d", [1, 2, 5, 10])
def test_the_exact_error_of_several_means_is_the_printed_formula(d):
    squares, eta = by_hand(TIERS, 4 * (d + 1) * (d + 2) / 3)
    expected = d * 0.25 * squares + d * (d + 1) * (d + 2) / 3 * eta**2
    statistic = hetdp.ask.means({str(i): (0, 1) for i in range(d)})
    ends = [(0,) * d, (1,) * d]
    found = hetdp.simulate(TIERS, statistic=statistic, method="adpm", distribution=ends, runs=2, rng=1)
    assert found.exact_mse == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("q", [0.5, 0.1])
def test_the_error_of_a_quantile_is_the_printed_formula(q):
    squares, eta = by_hand(TIERS, 8 / (q * (1 - q)))
    statistic = hetdp.ask.quantile(q, bounds=(0, 1), bins=64)
    found = hetdp.simulate(TIERS, statistic=statistic, method="adpm", distribution=EVEN, runs=2, rng=1)
    assert found.exact_mse == pytest.approx(q * (1 - q) * squares + 8 * eta**2, rel=1e-6)


def test_the_error_of_a_mean_of_those_who_answered_is_the_printed_formula():
    squares, eta = by_hand(TIERS, 20)
    mean, variance, r = 0.1, 0.09, 0.8
    expected = squares * variance / r + 10 / 3 * eta**2 * (1 - mean + mean**2) / r**2
    statistic, law = ABOUT["yes or no of those who answered"][:2]
    found = hetdp.simulate(TIERS, statistic=statistic, method="adpm", distribution=law, runs=2, rng=1)
    assert found.exact_mse == pytest.approx(expected, rel=1e-6)


def test_what_a_person_hands_over_is_the_mean_and_the_square():
    x = np.array([0.0, 0.3, 0.75, 1.0])
    law = law_of(hetdp.ask.variance(bounds=(0, 1)), x)
    assert law.points == pytest.approx(np.column_stack([x, (2 * x - 1) ** 2]), abs=3e-6)


# --- the noise ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cells", [2, 3, 10, 30])
def test_zero_sum_noise_adds_up_to_nothing_and_has_its_variance_in_every_cell(cells):
    drawn = zero_sum(np.random.default_rng(3), cells, 40_000)
    assert abs(drawn.sum(axis=1)).max() < 1e-9
    each = 4 * (2 * cells - 1) * (cells - 1) / (cells * (cells + 1))
    error = (drawn**2).std(axis=0) / math.sqrt(40_000)
    assert (abs((drawn**2).mean(axis=0) - each) < 5 * error).all()


def test_zero_sum_noise_of_two_cells_is_laplace_noise():
    drawn = zero_sum(np.random.default_rng(4), 2, 20_000)[:, 0]
    assert stats.kstest(drawn, stats.laplace(scale=1).cdf).pvalue > 1e-4
    assert stats.kstest(drawn, stats.laplace(scale=1.05).cdf).pvalue < 1e-2  # the control


@pytest.mark.parametrize("d", [1, 2, 5])
def test_the_largest_number_of_box_noise_is_a_gamma_variable(d):
    """P(z) ∝ exp(−‖z‖∞): the norm has density ∝ r^(d−1)·e^(−r)."""
    drawn = abs(noise_of(Box(d), np.random.default_rng(6), 1.0, 20_000)).max(axis=1)
    assert stats.kstest(drawn, stats.gamma(d).cdf).pvalue > 1e-4
    assert stats.kstest(drawn, stats.gamma(d, scale=1.05).cdf).pvalue < 1e-2  # the control


@pytest.mark.parametrize("geometry", [Line(), Mass(2), Mass(7), Box(1), Box(4)], ids=repr)
def test_noise_of_every_shape_has_the_variance_that_plans_count_with(geometry):
    drawn = noise_of(geometry, np.random.default_rng(7), 3.0, 60_000)
    squares = (drawn**2).sum(axis=1)
    assert abs(squares.mean() - 9 * geometry.noise) < 5 * squares.std() / math.sqrt(60_000)


def permute_and_flip(score):
    """The exact law: all orders, in each the first cell whose coin of exp(score − best) falls on its head."""
    chance = np.exp(np.array(score) - max(score))
    found = np.zeros(len(score))
    orders = list(permutations(range(len(score))))
    for order in orders:
        left = 1.0
        for cell in order:
            found[cell] += left * chance[cell] / len(orders)
            left *= 1 - chance[cell]
    return found


def test_the_largest_of_scores_with_exponential_noise_is_permute_and_flip():
    score = [0.0, -0.4, -1.0, -2.5]
    rng = np.random.default_rng(9)
    drawn = (np.array(score) + rng.exponential(1.0, (50_000, 4))).argmax(axis=1)
    counts = np.bincount(drawn, minlength=4)
    assert stats.chisquare(counts, 50_000 * permute_and_flip(score)).pvalue > 1e-4
    weights = np.exp(score)  # the exponential mechanism is another law
    assert stats.chisquare(counts, 50_000 * weights / weights.sum()).pvalue < 1e-9


# --- beside real releases -----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", ["histogram of 4", "mean and variance", "means of two"])
def test_real_releases_have_the_error_that_is_simulated(name):
    statistic, distribution = STATISTICS[name]
    law, rng = law_of(statistic, distribution), np.random.default_rng(12)
    planned = hetdp.plan(TIERS, statistic=statistic)
    epsilon = np.repeat([*TIERS], [*TIERS.values()])
    cells = list(distribution) if isinstance(distribution, dict) else [*"abc", "?"]
    chance = [*distribution.values()] if isinstance(distribution, dict) else distribution
    squares = []
    for _ in range(600):
        people = [cells[i] for i in rng.choice(len(cells), epsilon.size, p=chance)]
        if isinstance(people[0], tuple):
            import polars as pl

            frame = pl.DataFrame({**dict(zip("ab", np.array(people, float).T, strict=True)), "eps": epsilon})
            tally = hetdp.read(frame, epsilon="eps", statistic=statistic, missing="none")
        else:
            tally = hetdp.read(people, epsilon=epsilon, statistic=statistic)
        squares.append(((np.array(hetdp.release(tally, planned).numbers) - law.mean) ** 2).sum())
    exact = simulated(name, method="adpm", runs=2).exact_mse
    assert abs(np.mean(squares) - exact) < NEAR * np.std(squares) / math.sqrt(600)


# --- how it is asked ----------------------------------------------------------------------------------------


def test_a_seed_gives_the_same_result_on_any_number_of_cores(monkeypatch):
    found = []
    for cores in (1, 3):
        monkeypatch.setattr(_simulate, "cores", lambda cores=cores: cores)
        found.append(simulated("histogram of 10", scaled(100_000), runs=3000))
    assert found[0] == found[1]


def test_the_error_of_a_sum_grows_with_the_square_of_the_people_and_of_the_range():
    wide = hetdp.ask.sum(bounds=(0, 100))
    law = {0: 0.2, 30: 0.5, 90: 0.3}
    found = hetdp.simulate(TIERS, statistic=wide, distribution=law, method="adpm", runs=2000, rng=5)
    narrow = simulated("sum", method="adpm", runs=2000)
    assert found.mse == pytest.approx(100 * narrow.mse, rel=1e-3)
    assert narrow.mse > 1000  # people squared, not one of them


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"bounds": (0, 1)}, "bounds or a statistic, not both"),
        ({"statistic": None}, "bounds of the values, (lo, hi), or a statistic"),
        ({"distribution": [0.5, 0.5]}, "needs 4 probabilities"),
        ({"distribution": [0.5, 0.5, 0.5, -0.5]}, "probabilities that add up to 1"),
        ({"distribution": {"a": 0.4}}, "probabilities that add up to 1"),
        ({"distribution": {("a", "b"): 1.0}}, "has 1 values"),
        ({"method": "minimax"}, "adpm, uniform, proportional, threshold"),
    ],
    ids=repr,
)
def test_a_wrong_question_is_refused_in_words(wrong, words):
    statistic, distribution = STATISTICS["histogram of 4"]
    asked = {"statistic": statistic, "distribution": distribution, "method": "adpm", **wrong}
    with pytest.raises(hetdp.InputError) as error:
        hetdp.simulate(TIERS, **asked)
    assert words in str(error.value)


def test_the_simulation_shares_no_randomness_with_the_release():
    nodes = list(ast.walk(ast.parse(Path(family.__file__).read_text(encoding="utf-8"))))
    modules = {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
    modules |= {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    drawing = {name for name in modules if "privacy" in name} - {"hetdp.privacy.exact"}  # which draws nothing
    assert not drawing | modules & {"secrets", "opendp.prelude"}


@pytest.mark.slow
def test_a_variance_is_too_small_by_the_squared_error_of_its_mean():
    """Oracle of docs/statistics/variance-and-standard-deviation.md, on a range of 1: V·Σw² + 4η².

    Control: V/n, what a plain variance without noise misses by, is another number.
    """
    asked, rng, found = hetdp.ask.variance(bounds=(0, 1), missing="none"), np.random.default_rng(5), []
    plan = hetdp.plan({2.0: 20, 1.0: 40}, statistic=asked)
    squares, eta = float(plan.levels.count @ plan.person_weight**2), plan.noise[0].scale / plan.total
    epsilon = np.repeat([2.0, 1.0], [20, 40])
    for _ in range(2000):
        mean, square = hetdp.release(
            hetdp.read(rng.integers(0, 2, 60) * 1.0, epsilon=epsilon, statistic=asked), plan
        ).numbers
        found.append((square - (2 * mean - 1) ** 2) / 4 - 0.25)  # as it is before it is clamped to [0, 1/4]
    error = np.std(found) / math.sqrt(len(found))
    assert np.mean(found) == pytest.approx(-(0.25 * squares + 4 * eta**2), abs=4.5 * error)
    assert abs(np.mean(found) + 0.25 / 60) > 3 * error
