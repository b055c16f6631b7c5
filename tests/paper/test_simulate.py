"""Simulations against closed forms, brute force, plain loops and direct draws; every statistical check has a control.

A statistical check here raises a false alarm about once in 10⁹ times with fresh randomness; seeds are fixed besides.
"""

from __future__ import annotations

import ast
import dataclasses
import math
import re
import tracemalloc
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import hetdp
from hetdp.estimators import SAMPLING
from hetdp.paper import family as _family
from hetdp.paper import simulate as _simulate
from hetdp.paper.family import distribution_of, uniform_sums
from hetdp.paper.simulate import Simulation, exact_mse, laplace, mechanism_of, reciprocals, simulate

INF = math.inf
ALPHA = 1e-9
FAR = 6.0  # standard errors; a normal variable passes it once in 5·10⁸ times
METHODS = list(hetdp.methods())
UNIT = hetdp.Interval(-0.5, 0.5)


def triangular(rng, size):
    return rng.triangular(0, 0, 1, size)


POPULATIONS = {
    "two tiers": {0.1: 700, 1.0: 300},
    "few people": {0.3: 2, 1.0: 3, 2.5: 1},
    "all different": dict.fromkeys(np.exp(np.random.default_rng(5).uniform(-3, 2, 60)).tolist(), 1),
    "small and large levels": {0.0: 50, 0.2: 3, 0.5: 900, 0.7: 10, 2.0: 1},
}
DISTRIBUTIONS = {
    "uniform": "uniform",
    "bernoulli": "bernoulli",
    "bernoulli 0.2": ("bernoulli", 0.2),
    "beta 2 3": ("beta", 2, 3),
    "beta 5 2": ("beta", 5, 2),
    "beta 0.5 3.7": ("beta", 0.5, 3.7),
    "point": ("point", 0.8),
    "function": (triangular, 1 / 3, 1 / 18),
}


# --- simulated against exact --------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("population", POPULATIONS)
@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_every_method_agrees_with_its_exact_error_for_every_distribution(population, name):
    found = simulate(
        POPULATIONS[population], method=METHODS, distribution=DISTRIBUTIONS[name], runs=10_000, rng=11, bounds=(0, 1)
    )
    assert {m: s.z for m, s in found.items() if not abs(s.z) < FAR} == {}


@pytest.mark.parametrize("name", ["uniform", "beta 2 3", "point"])
def test_public_people_agree_with_the_exact_error(name):
    methods = [m for m in METHODS if m != "stretch"]  # which refuses public people
    options = {"distribution": DISTRIBUTIONS[name], "runs": 10_000, "rng": 12, "bounds": (0, 1)}
    for levels in ({0.1: 30, INF: 5}, {INF: 40}, {0.0: 3}):
        found = simulate(levels, method=methods, **options)
        assert {m: s.z for m, s in found.items() if not abs(s.z) < FAR} == {}


def run_instead(right, wrong, distribution, levels, runs, seed):
    """Simulate one mechanism and compare it with the exact error of another."""
    law = distribution_of(distribution, UNIT)
    (mse,), (error,) = _simulate.run(law, levels.count, [wrong], runs, [seed])
    return Simulation("wrong", runs, mse, error, right.mse(law))


@pytest.mark.parametrize("method", ["adpm", "ldpe", "sampling"])
@pytest.mark.parametrize("factor", [0.95, 1.0, 1.05])
def test_a_noise_scale_that_is_off_by_five_per_cent_is_rejected(method, factor):
    levels = hetdp.Levels({0.3: 5, 0.5: 20, 0.8: 2})
    right = mechanism_of(method, levels, UNIT, None)
    if method == "sampling":
        wrong = dataclasses.replace(right, t=right.t / factor)
    else:
        wrong = dataclasses.replace(right, scales=right.scales * factor)
    found = run_instead(right, wrong, ("point", 0.25), levels, 400_000, 13)
    assert (abs(found.z) < FAR) == (factor == 1), f"{method}, scale × {factor}: z = {found.z:.1f}"


@pytest.mark.parametrize("factor", [0.95, 1.0, 1.05])
def test_a_sampling_probability_that_is_off_by_five_per_cent_is_rejected(factor):
    levels = hetdp.Levels({2.0: 40, 2.5: 1})
    right = mechanism_of("sampling", levels, UNIT, None)
    wrong = dataclasses.replace(right, weight=np.where(right.weight < 1, right.weight * factor, 1.0))
    found = run_instead(right, wrong, "uniform", levels, 400_000, 14)
    assert (abs(found.z) < FAR) == (factor == 1), f"probability × {factor}: z = {found.z:.1f}"


def by_hand(levels, method, distribution, runs, seed):
    """A plain loop, written from the paper: the squared errors of one method for data on [−1/2, 1/2]."""
    rng = np.random.default_rng(seed)
    eps = np.repeat(levels.epsilon, levels.count)
    law = {"uniform": lambda: rng.random(eps.size) - 0.5, "beta": lambda: rng.beta(2, 3, eps.size) - 0.5}[distribution]
    mean = {"uniform": 0.0, "beta": -0.1}[distribution]
    t = eps.max()
    keep = (np.exp(eps) - 1) / (np.exp(t) - 1)
    squares = []
    for _ in range(runs):
        x = law()
        if method == "sampling":
            kept = x[rng.random(eps.size) < keep]
            estimate = kept.mean() + rng.laplace(0, 1 / (kept.size * t))
        elif method == "proportional":
            estimate = eps / eps.sum() @ x + rng.laplace(0, 1 / eps.sum())
        else:
            n, e = levels.count, levels.epsilon
            worth = 1 / (0.25 / n + 2 / (e * n) ** 2)
            means = np.array([x[eps == level].mean() for level in e]) + rng.laplace(0, 1 / (e * n))
            estimate = worth / worth.sum() @ means
        squares.append((estimate - mean) ** 2)
    return np.array(squares)


@pytest.mark.parametrize("method", ["sampling", "proportional", "ldpe"])
@pytest.mark.parametrize("distribution", ["uniform", "beta"])
def test_a_plain_loop_written_from_the_paper_finds_the_same_error(method, distribution):
    levels = hetdp.Levels({0.4: 8, 1.0: 5, 1.5: 2})
    squares = by_hand(levels, method, distribution, 6000, 15)
    law = ("beta", 2, 3) if distribution == "beta" else "uniform"
    found = simulate(levels, method=method, distribution=law, runs=100_000, rng=16, bounds=UNIT)
    apart = squares.mean() - found.mse
    assert abs(apart) < FAR * math.hypot(squares.std() / math.sqrt(squares.size), found.standard_error)


def test_the_exact_error_is_that_of_the_plan_but_for_the_discreteness_of_the_noise():
    known = {"bounds": (0, 2), "variance": 0.3}
    methods = [m for m in METHODS if m != "sampling"]  # which a release does with another divisor
    for method, levels in product(methods, POPULATIONS.values()):
        found = exact_mse(levels, method, ("beta", 2, 3), **known)
        plan = hetdp.plan(levels, method=method, **known)
        predicted = plan.mse(0.16, mean=0.8)
        if plan.clamp is None:
            assert math.isclose(found, predicted, rel_tol=1e-6), method
        else:  # what a clamp gains depends on more than mean and variance
            assert 0.9 * predicted < found < predicted


# --- the sampling mechanism, exactly ------------------------------------------------------------------------


def over_all_subsets(epsilon, variance, mean, *, fixed):
    """The error of SM by listing who is kept: the definition, for a handful of people.

    A release divides by a fixed number, how many are kept on average; the paper by how many really are.
    """
    t = max(epsilon)
    keep = [math.expm1(e) / math.expm1(t) for e in epsilon]
    expected, error = sum(keep), 0.0
    for kept in product([False, True], repeat=len(epsilon)):
        chance = math.prod(p if k else 1 - p for k, p in zip(kept, keep, strict=True))
        m = sum(kept)
        divisor = expected if fixed else m
        if divisor and chance:
            given = m * variance / divisor**2 + (m * mean / divisor - mean) ** 2 + 2 / (divisor * t) ** 2
            error += chance * given
    return error


def test_the_error_of_sampling_is_that_of_all_subsets_one_by_one():
    rng = np.random.default_rng(17)
    vectors = [[0.1, 0.2], [1.0], [3.0, 3.0, 0.5], *(np.exp(rng.uniform(-3, 2, n)).tolist() for n in (2, 5, 8, 11))]
    for epsilon in vectors:
        exact = over_all_subsets(epsilon, 0.04, -0.1, fixed=False)
        assert math.isclose(exact_mse(epsilon, "sampling", ("beta", 2, 3)), exact, rel_tol=1e-9), epsilon
        released = hetdp.plan(epsilon, method="sampling", bounds=UNIT).mse(0.04, mean=-0.1)
        exact = over_all_subsets(epsilon, 0.04, -0.1, fixed=True)
        assert math.isclose(released, exact, rel_tol=1e-6), epsilon


def test_the_expected_reciprocals_are_those_of_a_convolution_of_binomials():
    cases = [{0.1: 5000, 0.15: 5000}, {0.1: 700, 2.0: 300}, {1e-6: 10**4, 3.0: 1}, {0.5: 40, 1.0: 1, 4.0: 3}]
    for counts in cases:
        levels = hetdp.Levels(counts)
        keep = SAMPLING.shape(levels, 0.25).weight
        pmf = np.ones(1)
        for people, p in zip(levels.count, keep, strict=True):
            pmf = np.convolve(pmf, stats.binom.pmf(np.arange(people + 1), people, p))
        m = np.arange(pmf.size)
        first, second = reciprocals(levels.count, keep)
        assert math.isclose(first, np.sum(pmf[1:] / m[1:]), rel_tol=1e-9)
        assert math.isclose(second, np.sum(pmf[1:] / m[1:] ** 2), rel_tol=1e-9)


def test_sampling_is_stable_from_the_smallest_to_the_largest_epsilon():
    for levels, expected in [
        ({1e-300: 5, 1e300: 4}, 1 / 48),  # the others are never kept and there is no noise to speak of
        ({0.1: 700, INF: 300}, 1 / 3600),  # "when one dataset is public, SM disregards the private one"
        ({0.0: 7}, 0.0),  # nobody: the midpoint, which is the mean
        ({1e-300: 7}, 0.0),  # noise that cannot be drawn: the midpoint
        ({700.0: 3, 800.0: 2}, 1 / 24 + 2 / (2 * 800) ** 2),
    ]:
        found = simulate(levels, method="sampling", distribution="uniform", runs=4000, rng=18, bounds=UNIT)
        assert math.isclose(found.exact_mse, expected, rel_tol=1e-9)
        assert abs(found.z) < FAR


def test_sampling_with_two_close_tiers_has_the_probabilities_of_the_paper():
    keep = mechanism_of("sampling", hetdp.Levels({0.1: 1, 0.2: 1}), UNIT, None).weight
    np.testing.assert_allclose(keep, [(math.exp(0.1) - 1) / (math.exp(0.2) - 1), 1], rtol=1e-14)


# --- the samplers -------------------------------------------------------------------------------------------


def direct_sums(rng, m, runs):
    return rng.random((runs, m)).sum(axis=1) - m / 2


@pytest.mark.parametrize("m", [1, 2, 5, 40])
def test_sums_of_uniforms_from_bits_have_the_law_of_direct_sums(m):
    rng = np.random.default_rng(19)
    found = uniform_sums(rng, np.full(100_000, m))
    assert abs(found.mean()) < FAR * math.sqrt(m / 12 / found.size)
    assert abs(found.var() / (m / 12) - 1) < FAR * math.sqrt(2 / found.size)
    assert stats.ks_2samp(found, direct_sums(rng, m, 100_000)).pvalue > ALPHA


def test_sums_of_uniforms_with_one_wrong_bit_are_rejected(monkeypatch):
    rng = np.random.default_rng(20)
    lost = uniform_sums(rng, np.full(100_000, 5)) + 2.0**-5  # as if the fifth bit were a little too often set
    assert stats.ks_2samp(lost, direct_sums(rng, 5, 100_000)).pvalue < ALPHA
    monkeypatch.setattr(_family, "BITS", 2)
    coarse = uniform_sums(rng, np.full(100_000, 2))
    assert abs(coarse.var() / (2 / 12) - 1) > FAR * math.sqrt(2 / coarse.size)


def test_sums_of_uniforms_are_right_for_any_number_of_people():
    count = np.array([0, 1, 1000, 10**12])
    found = uniform_sums(np.random.default_rng(21), np.broadcast_to(count, (20_000, 4)))
    assert not found[:, 0].any()
    assert np.all(np.abs(found[:, 1:].var(axis=0) / (count[1:] / 12) - 1) < FAR * math.sqrt(2 / 20_000))


def drawn_beta(a, b, size=200_000):
    law = distribution_of(("beta", a, b), UNIT)
    return law, law.draw(np.random.default_rng(22), (1, size)).ravel() + 0.5


@pytest.mark.slow
@pytest.mark.parametrize(("a", "b"), [(1, 1), (1, 3), (2, 3), (3, 2), (5, 5), (9, 1), (7, 8), (0.3, 1.5)])
def test_beta_values_have_the_law_that_scipy_knows_and_not_a_neighbouring_one(a, b):
    law, x = drawn_beta(a, b)
    assert stats.kstest(x, stats.beta(a, b).cdf).pvalue > ALPHA
    assert stats.kstest(x, stats.beta(a * 1.05, b).cdf).pvalue < ALPHA
    np.testing.assert_allclose([law.mean + 0.5, law.variance], [f(a, b) for f in (stats.beta.mean, stats.beta.var)])


def test_sums_of_laplace_noises_have_the_law_of_direct_sums_and_not_of_five_per_cent_more():
    scales, rng = np.array([0.5, 1e-9, 2.0, 1.0]), np.random.default_rng(25)
    found = laplace(rng, scales, 400_000)
    direct = rng.laplace(0, scales, (400_000, 4)).sum(axis=1)
    assert stats.ks_2samp(found, direct).pvalue > ALPHA
    assert stats.ks_2samp(1.05 * found, direct).pvalue < ALPHA
    assert not laplace(rng, np.array([]), 5).any()
    assert not laplace(rng, np.array([0.0]), 5).any()


# --- streams and chunks -------------------------------------------------------------------------------------


def numbers(found):
    return {name: (s.mse, s.standard_error, s.exact_mse) for name, s in found.items()}


@pytest.mark.parametrize("distribution", ["uniform", ("beta", 2, 3)])
def test_the_result_does_not_depend_on_the_number_of_cores(monkeypatch, distribution):
    monkeypatch.setattr(_simulate, "BLOCK", 2**14)

    def run(cores):
        monkeypatch.setattr(_simulate, "cores", lambda: cores)
        return numbers(
            simulate({0.1: 600, 0.5: 40}, method=METHODS, distribution=distribution, runs=1001, rng=26, bounds=UNIT)
        )

    assert run(1) == run(2) == run(7)


@pytest.mark.parametrize("runs", [2, 9, 10, 11, 640, 641])
def test_every_run_is_simulated_once_and_every_block_has_a_stream_of_its_own(monkeypatch, runs):
    monkeypatch.setattr(_simulate, "BLOCK", 30)
    blocks, streams = [], []

    def drawn(rng, size):
        blocks.append(size // 3)
        streams.append(rng.bit_generator.seed_seq.spawn_key)
        return rng.random(size) - 0.5

    simulate({1.0: 3}, method="proportional", distribution=(drawn, 0, 1 / 12), runs=runs, rng=27, bounds=UNIT)
    assert sum(blocks) == runs
    assert max(blocks) <= 10
    assert len(set(streams)) == len(streams) == -(-runs // 10)


@pytest.mark.slow
def test_more_people_than_fit_in_a_block_are_all_counted(monkeypatch):
    monkeypatch.setattr(_simulate, "BLOCK", 7)
    found = simulate({0.5: 20, 2.0: 11}, method=METHODS, distribution=("beta", 2, 3), runs=4000, rng=28, bounds=UNIT)
    assert {m: s.z for m, s in found.items() if not abs(s.z) < FAR} == {}


def test_a_seed_gives_the_same_result_again_and_another_seed_another():
    def run(rng):
        return simulate({1.0: 5}, method="adpm", distribution="uniform", runs=50, rng=rng, bounds=UNIT).mse

    sequence, generator = np.random.SeedSequence(29), np.random.default_rng(29)
    assert run(29) == run(np.int64(29)) == run(sequence) == run(sequence)
    first = run(generator)
    assert first != run(generator)
    assert first == run(np.random.default_rng(29)) == run(29)
    assert len({run(29), run(30), run(None), run(None)}) == 4


def test_methods_of_one_call_share_the_data_and_not_the_noise():
    same = simulate({INF: 9}, method=("adpm", "uniform"), distribution="uniform", runs=100, rng=31, bounds=UNIT)
    assert same["adpm"].mse == same["uniform"].mse
    apart = simulate({1.0: 9}, method=["adpm", "uniform"], distribution=("point", 0.1), runs=100, rng=31, bounds=UNIT)
    assert apart["adpm"].mse != apart["uniform"].mse


def test_memory_stays_bounded_for_many_people_and_for_many_runs():
    cases = [({0.1: 400_000, 1.0: 400_000}, ("beta", 2, 3), 9), ({0.1: 5000, 0.2: 5000}, "uniform", 100_000)]
    for levels, distribution, runs in cases:
        tracemalloc.start()
        simulate(
            levels,
            method=["adpm", "ldpe", "sampling"],
            distribution=distribution,
            runs=runs,
            rng=32,
            bounds=UNIT,
        )
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 2**20 * 200, f"{peak / 2**20:.0f} MB"


# --- what a user sees ---------------------------------------------------------------------------------------


def test_errors_are_in_squared_units_of_the_values():
    unit = simulate({0.3: 50}, method=METHODS, distribution=("beta", 2, 3), runs=500, rng=33, bounds=UNIT)
    wide = simulate({0.3: 50}, method=METHODS, distribution=("beta", 2, 3), runs=500, rng=33, bounds=(10, 30))
    for method in METHODS:
        pairs = zip(dataclasses.astuple(unit[method])[2:5], dataclasses.astuple(wide[method])[2:5], strict=True)
        assert all(math.isclose(400 * a, b, rel_tol=1e-12) for a, b in pairs)


def test_a_known_bound_on_the_variance_reaches_the_plan():
    options = {"method": "adpm", "distribution": ("beta", 50, 50), "bounds": UNIT, "runs": 2000, "rng": 34}
    known = simulate({0.5: 40, 5.0: 10}, variance=1 / 404, **options)
    assert known.exact_mse < simulate({0.5: 40, 5.0: 10}, **options).exact_mse
    assert abs(known.z) < FAR


def test_estimates_are_not_clamped_and_the_exact_error_is_printed():
    options = {"method": "uniform", "distribution": ("point", 0.25), "bounds": UNIT, "runs": 100_000, "rng": 35}
    found = simulate({0.5: 1}, **options)
    assert math.isclose(found.exact_mse, 8, rel_tol=1e-6)
    assert abs(found.z) < FAR
    assert "exact 8" in str(found)


def test_an_estimate_without_any_error_has_the_score_zero():
    found = simulate(
        {0.0: 2, INF: 3}, method=["adpm", "sampling"], distribution=("point", 0.1), runs=10, rng=38, bounds=UNIT
    )
    assert {(s.mse, s.exact_mse, s.z) for s in found.values()} == {(0.0, 0.0, 0.0)}
    midpoint = simulate({0.0: 2}, method="adpm", distribution=("point", 0.1), runs=10, rng=38, bounds=UNIT)
    assert math.isclose(midpoint.mse, 0.01)
    assert abs(midpoint.z) < 1


GOOD = {"levels": {0.5: 10}, "method": "adpm", "distribution": "uniform", "bounds": UNIT, "runs": 10, "rng": 1}


@pytest.mark.parametrize(
    "bad",
    [
        {"method": "best"},
        {"method": []},
        {"method": None},
        {"method": ["adpm", 3]},
        {"method": "stretch", "levels": {0.5: 10, INF: 1}},
        {"levels": {}},
        {"levels": {-1: 10}},
        {"runs": 1},
        {"runs": 2.5},
        {"runs": True},
        {"rng": -1},
        {"rng": "seed"},
        {"rng": 1.5},
        {"bounds": (1, 0)},
        {"variance": -1},
        {"distribution": "normal"},
        {"distribution": 3},
        {"distribution": ()},
        {"distribution": ["beta", 2, 3]},
        {"distribution": "beta"},
        {"distribution": ("beta", 2)},
        {"distribution": ("beta", 0, 1)},
        {"distribution": ("beta", 1e308, 1e308)},
        {"distribution": ("beta", "2", 3)},
        {"distribution": ("uniform", 1)},
        {"distribution": ("bernoulli", 1.5)},
        {"distribution": ("bernoulli", math.nan)},
        {"distribution": "point"},
        {"distribution": ("point", 0.6)},
        {"distribution": ("point", True)},
        {"distribution": (triangular, 0.1)},
        {"distribution": (triangular, 0.9, 0.01)},
        {"distribution": (triangular, 0.4, 0.2)},
        {"distribution": triangular},
        {"distribution": (lambda _, size: np.full(size, math.nan), 0.0, 0.0)},
        {"distribution": (lambda _, size: np.zeros(size - 1), 0.0, 0.0)},
        {"distribution": ("beta", 2, 3), "levels": {0.5: 2**24 + 1}},
    ],
)
def test_bad_input_is_an_input_error(bad):
    with pytest.raises(hetdp.InputError):
        simulate(**{**GOOD, **bad})


def test_as_many_people_as_one_likes_where_sums_are_drawn_at_once():
    for distribution in ("uniform", "bernoulli", ("point", 0.2)):
        found = simulate(
            {0.5: 10**12, 1.0: 3}, method=METHODS, distribution=distribution, runs=4000, rng=40, bounds=UNIT
        )
        assert {m: s.z for m, s in found.items() if not abs(s.z) < FAR} == {}


def test_simulations_and_releases_share_no_code_for_randomness():
    for module in (_simulate, _family):
        tree = ast.parse(Path(module.__file__).read_text(encoding="utf-8"))
        imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        assert any(name.startswith("hetdp.") for name in imported if name)
        # The family codes values as a tally does, which draws nothing.
        private = re.compile(
            r"hetdp\.(sources|privacy\.release)\b"
            if module is _family
            else r"hetdp\.(tally|sources|privacy\.release)\b"
        )
        assert not [name for name in imported if name and private.match(name)]


@pytest.mark.parametrize("values", [[0.123456] * 5000, np.full(5000, 0.123456), "0.123456" * 5000, (0.123456,) * 3])
def test_a_wrong_distribution_is_refused_in_few_words_and_its_values_are_not_quoted(values):
    with pytest.raises(hetdp.InputError, match="a distribution is") as error:
        hetdp.simulate({0.1: 70}, method="adpm", distribution=values, bounds=(0, 1), runs=2)
    assert len(str(error.value)) < 300
    assert isinstance(values, str) or "0.123456" not in str(error.value)
