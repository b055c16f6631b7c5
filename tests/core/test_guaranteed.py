"""Ends of guaranteed intervals: right against oracles of their own, and missed no more often than they may be.

How often an end is missed is mostly computed exactly: an end is monotone in what is released, so it lies on the wrong
side of the true mean beyond one threshold, and the chance of passing that is a sum over binomials of a Laplace tail.
"""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from scipy.optimize import brentq, linprog, minimize_scalar
from scipy.stats import binom, laplace

import hetdp
from hetdp.core import intervals
from hetdp.core.intervals import (
    NoisySum,
    answered_interval,
    log_tail_constant,
    mean_interval,
    share_intervals,
)
from hetdp.statistics.histogram import Shares
from hetdp.statistics.mean import Mean

INF, MISS = math.inf, 0.025
MIXES = {
    "two tiers": ({0.5: 60, 2.0: 40}, "adpm"),
    "few, strict": ({0.3: 40, 1.0: 10}, "adpm"),
    "public people": ({0.2: 90, INF: 10}, "adpm"),
    "public people alone": ({INF: 30}, "adpm"),
    "one level": ({1.0: 80}, "adpm"),
    "little noise": ({40.0: 25, 80.0: 10}, "adpm"),
    "shrunk": ({0.2: 50, 1.0: 5}, "minimax"),
    "a noise for each level": ({0.5: 60, 2.0: 40}, "ldpe"),
    "one person": ({INF: 1}, "adpm"),
}
MEANS = (0.001, 0.02, 0.1, 0.3, 0.5, 0.8, 0.98, 0.999)


def noisy_sum(plan, scales=None):
    return NoisySum.with_laplace(
        plan.person_weight, plan.levels.count, plan.errors.scales if scales is None else scales
    )


def no_noise(_):
    return 0.0


def beyond(plan, chances, at, low=0.0, high=1.0):
    """P(Σ w·y + noise ≥ at), exact: at each level y is `high` with its chance, else `low`."""
    sums, weights = np.zeros(1), np.ones(1)
    for row, chance in zip(plan.table, chances, strict=True):
        if row.weight:
            ones = np.arange(row.count + 1)
            value = row.weight * (ones * high + (row.count - ones) * low)
            sums = (sums[:, None] + value).ravel()
            weights = (weights[:, None] * binom.pmf(ones, row.count, chance)).ravel()
    scales = plan.errors.scales
    if not scales:
        return float(weights[sums >= at - 1e-12].sum())
    if len(scales) == 1:
        return float(weights @ laplace.sf(at - sums, scale=scales[0]))
    a, b = scales  # the tail of two Laplace noises, by partial fractions of their transforms
    x = np.abs(at - sums)
    tail = (a * a * np.exp(-x / a) - b * b * np.exp(-x / b)) / (2 * (a * a - b * b))
    return float(weights @ np.where(at >= sums, tail, 1 - tail))


def missed(plan, p, end, chances=None, low=0.0, high=1.0):
    """The exact chance that the end lies above p."""
    most = plan.shrink + 40 * sum(plan.errors.scales) + 1e-9
    if end(most) <= p:
        return 0.0
    at = brentq(lambda x: end(x) - p, -0.5 - 40 * sum(plan.errors.scales), most, xtol=1e-12)
    at += 1e-11 if plan.errors.scales else 1e-9
    return beyond(plan, [p] * len(plan.levels) if chances is None else chances, at, low, high)


# --- The parts, against oracles of their own -----------------------------------------------------------------


@pytest.mark.parametrize("kappa", [1e-6, 0.01, 0.3, 0.7, 0.999, 1.0])
def test_the_constant_of_the_noise_is_the_largest_of_its_tail(kappa):
    v = np.linspace(-40, 20, 2_000_001)
    assert math.exp(log_tail_constant(kappa)) == pytest.approx(
        float(np.max(np.exp(kappa * v) * laplace.sf(v))), rel=1e-6
    )


@pytest.mark.parametrize("scale", [2.0**-6, 0.3, 1.0, 7.5, 1000.0])
def test_discrete_noise_is_stochastically_at_most_a_unit_above_laplace_noise(scale):
    r = math.exp(-1 / scale)
    for j in range(-60, 60):
        tail = r**j / (1 + r) if j > 0 else 1 - r ** (1 - j) / (1 + r)
        assert tail <= laplace.sf(j - 1, scale=scale) * (1 + 1e-12)


def test_without_noise_and_with_equal_weights_the_end_is_that_of_chernoff():
    n, at = 400, 0.3
    plan = hetdp.plan({INF: n}, bounds=(0, 1))
    entropy = lambda p: at * math.log(at / p) + (1 - at) * math.log((1 - at) / (1 - p))  # noqa: E731
    expected = brentq(lambda p: n * entropy(p) - math.log(1 / MISS), 1e-9, at)
    assert noisy_sum(plan).lower_end(at, MISS) == pytest.approx(expected, abs=1e-8)


@pytest.mark.parametrize("name", MIXES)
@pytest.mark.parametrize("at", [0.05, 0.5, 0.93])
def test_at_the_end_the_least_exponent_is_the_logarithm_of_the_chance_to_miss(name, at):
    counts, method = MIXES[name]
    plan = hetdp.plan(counts, method=method, bounds=(0, 1))
    found = noisy_sum(plan)
    end = found.lower_end(at, MISS)

    def least(p):
        weights = [(row.count, row.weight) for row in plan.table if row.weight]
        etas = sorted(plan.errors.scales, reverse=True)

        def exponent(lam):
            people = sum(count * math.log1p(p * math.expm1(lam * weight)) for count, weight in weights)
            noise = 0.0
            if etas:
                k = lam * etas[0]
                noise = (
                    k * math.log(2 * k) - (1 + k) * math.log1p(k) - sum(math.log1p(-((lam * e) ** 2)) for e in etas[1:])
                )
            return people + noise - lam * at

        most = min([300 / max(w for _, w in weights), *(1 / eta for eta in etas[:1])]) * (1 - 1e-12)
        inside = [
            minimize_scalar(exponent, bounds=(most * a, most * b), method="bounded", options={"xatol": most * 1e-9})
            for a, b in ((1e-9, 1e-3), (1e-3, 0.1), (0.1, 1))
        ]
        return min(float(each.fun) for each in inside)

    if end == 0:
        assert least(1e-12) >= math.log(MISS) - 1e-6
    else:
        assert least(end) == pytest.approx(math.log(MISS), abs=1e-4)


@pytest.mark.parametrize("p", [0.05, 0.3, 0.5, 0.9])
@pytest.mark.parametrize("variance", [0.001, 0.02, 0.1, 0.25])
def test_no_law_with_this_mean_and_variance_has_larger_moments_than_the_two_points(p, variance):
    """A linear program over all laws on a grid: it comes near the formula and never above."""
    x = np.linspace(0, 1, 801)
    for t in (0.5, 3.0, 10.0):
        found = linprog(
            -np.exp(t * (x - 1)), A_eq=[np.ones_like(x), x], b_eq=[1, p], A_ub=[(x - p) ** 2], b_ub=[variance]
        )
        one = NoisySum(np.array([1.0]), np.array([1.0]), no_noise, INF)
        formula = math.exp(one.two_point(t, p, variance) - t)
        assert formula * (1 - 1e-3) <= -found.fun <= formula * (1 + 1e-9)


@pytest.mark.parametrize("drift", [0.05, 0.3, 1.0])
def test_the_exponent_of_drifting_means_is_above_that_of_all_means_that_are_allowed(drift):
    rng = np.random.default_rng(3)
    count, weight, shares = np.array([300.0, 500, 200]), np.array([0.0, 0.7e-3, 2.5e-3]), np.array([0.3, 0.5, 0.2])
    found = NoisySum(weight, count, no_noise, INF)
    for p, lam in ((0.1, 60.0), (0.5, 100.0), (0.9, 300.0)):
        rise = np.expm1(lam * weight)
        best = found.bernoulli(lam, p)
        for _ in range(3000):
            means = p + (d := drift * rng.choice([rng.random(3), rng.integers(0, 2, 3)])) - shares @ d
            if (means >= 0).all() and (means <= 1).all():
                best = max(best, float(count @ np.log1p(means * rise)))
        bound = found.drifting(lam, p, drift)
        assert best <= bound + 1e-9
        assert drift > 0.1 or best >= found.bernoulli(lam, p) + 0.9 * (bound - found.bernoulli(lam, p))


def test_merging_many_levels_changes_an_end_by_next_to_nothing_and_never_inwards():
    rng = np.random.default_rng(5)
    plan = hetdp.plan(np.exp(rng.uniform(-4, 2, 20_000)), bounds=(0, 1))
    whole = noisy_sum(plan)
    exact = NoisySum(whole.weight, whole.count, whole.log_noise, whole.most)
    exact.__dict__["merged"] = (whole.weight, whole.count)
    for drift in (0.0, 0.05):
        narrow, wide = (each.lower_end(0.3, MISS, drift=drift) for each in (exact, whole))
        assert narrow - 1e-4 * (0.3 - narrow) <= wide <= narrow + 1e-9


# --- Exact coverage under the worst distributions --------------------------------------------------------------


@pytest.mark.parametrize("name", MIXES)
def test_an_end_is_missed_no_more_often_than_it_may_be(name):
    counts, method = MIXES[name]
    plan = hetdp.plan(counts, method=method, bounds=(0, 1))
    found = noisy_sum(plan)
    worst = [missed(plan, p, lambda at: found.lower_end(at, MISS)) for p in MEANS]
    assert max(worst) <= MISS * (1 + 1e-6)
    assert method == "minimax" or max(worst) > 0.15 * MISS  # and it is not idle


WRONG = {
    "half of the noise": lambda plan: noisy_sum(plan, [eta / 2 for eta in plan.errors.scales]),
    "no noise": lambda plan: noisy_sum(plan, []),
    "the fourth power of the constant": lambda plan: NoisySum(
        plan.person_weight,
        plan.levels.count * 1.0,
        lambda lam: 4 * log_tail_constant(lam * plan.errors.scales[0]),
        1 / plan.errors.scales[0],
    ),
    "weights of nine tenths": lambda plan: NoisySum.with_laplace(
        0.9 * plan.person_weight, plan.levels.count, plan.errors.scales
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_control_a_wrong_end_is_missed_too_often(wrong):
    plan = hetdp.plan({0.3: 40, 1.0: 10}, bounds=(0, 1))
    found = WRONG[wrong](plan)
    assert max(missed(plan, p, lambda at: found.lower_end(at, MISS)) for p in MEANS) > 1.2 * MISS


@pytest.mark.parametrize("name", ["two tiers", "public people", "public people alone", "few, strict"])
@pytest.mark.parametrize("variance", [0.002, 0.03, 0.15])
def test_with_a_bound_on_the_variance_the_worst_two_points_are_missed_no_more_often(name, variance):
    plan = hetdp.plan(MIXES[name][0], bounds=(0, 1))
    found = noisy_sum(plan)
    for p in (0.1, 0.3, 0.5, 0.7):
        v = min(variance, p * (1 - p))
        for low, high in ((p - v / (1 - p), 1.0), (0.0, p + v / p), (p - math.sqrt(v), p + math.sqrt(v))):
            if low >= 0 and high <= 1 + 1e-12:
                chance = [(p - low) / (high - low)] * len(plan.levels)
                end = lambda at: found.lower_end(at, MISS, variance=variance)  # noqa: E731
                assert missed(plan, p, end, chance, low, high) <= MISS * (1 + 1e-6)


@pytest.mark.parametrize("at", [0.0, 0.04, 0.2, 0.5, 0.9])
def test_a_bound_on_the_variance_never_makes_an_end_worse(at):
    for counts, method in MIXES.values():
        found = noisy_sum(hetdp.plan(counts, method=method, bounds=(0, 1)))
        ends = [found.lower_end(at, MISS, variance=v) for v in (0.25, 0.2, 0.05, 0.001)]
        assert all(b >= a - 1e-6 for a, b in pairwise(ends))


def tiers_apart(plan, p, drift):
    """The means of two levels that differ by `drift`, both ways, and are p together; None where they leave [0, 1]."""
    strict, open_ = (row.count / plan.n for row in plan.table)
    for d in (drift, -drift):
        means = [p - open_ * d, p + strict * d]
        if min(means) >= 0 and max(means) <= 1:
            yield means


DRIFTS = [({0.1: 50, 1.0: 50}, 0.2), ({0.5: 90, 5.0: 10}, 0.1), ({0.1: 120, INF: 20}, 0.4)]


@pytest.mark.parametrize(("counts", "drift"), DRIFTS, ids=["halves", "few open", "public"])
def test_with_means_that_differ_an_end_is_missed_no_more_often(counts, drift):
    plan = hetdp.plan(counts, bounds=(0, 1))
    found = noisy_sum(plan)
    for p in (0.02, 0.1, 0.3, 0.5, 0.8):
        for means in tiers_apart(plan, p, drift):
            assert missed(plan, p, lambda at: found.lower_end(at, MISS, drift=drift), means) <= MISS * (1 + 1e-6)


def test_control_adding_the_largest_bias_to_the_ends_for_one_mean_is_missed_too_often():
    plan = hetdp.plan({0.05: 300, INF: 30}, bounds=(0, 1))
    found, drift = noisy_sum(plan), 0.3
    shift = drift * plan.bias_share / plan.shrink
    worst = [
        missed(plan, p, lambda at: found.lower_end(at, MISS) - shift, means)
        for p in np.linspace(0.02, 0.5, 25)
        for means in tiers_apart(plan, p, drift)
    ]
    assert max(worst) > 1.2 * MISS


# --- Several numbers: noise that adds up to 0 -----------------------------------------------------------------------

RUNS = 200


def zero_sum(rng, cells, scale, runs):
    """The continuous law exp(−‖z‖₁/2s) on Σz = 0: all but the last are Laplace of scale 2s, kept by the last."""
    found = np.empty((0, cells))
    while len(found) < runs:
        drawn = rng.laplace(0, 2 * scale, (40 * runs, cells - 1))
        drawn = drawn[rng.random(len(drawn)) < np.exp(-np.abs(drawn.sum(axis=1)) / (2 * scale))]
        found = np.vstack([found, np.column_stack([drawn, -drawn.sum(axis=1)])])
    return found[:runs]


def too_many(misses, runs=RUNS, chance=0.05):
    return misses > chance * runs + 3 * math.sqrt(runs * chance * (1 - chance))


def answered(plan, mean, share, runs, seed=1):
    """Noisy halves of two-point values of this mean, of which this share was answered."""
    rng = np.random.default_rng(seed)
    halves = zero_sum(rng, 3, plan.errors.scales[0], runs)[:, :2] if plan.noise else np.zeros((runs, 2))
    for row in plan.table:
        there = rng.binomial(row.count, share, runs)
        ones = rng.binomial(there, mean)
        halves += row.weight * np.column_stack([ones, there - ones])
    return halves.tolist()


ANSWERED = {
    "two tiers": ({0.1: 500, 1.0: 500}, 0.1, 0.8),
    "nearly nobody": ({1.0: 200}, 0.3, 0.15),
    "the middle": ({0.5: 300, 2.0: 50}, 0.5, 0.5),
    "public": ({0.2: 100, INF: 60}, 0.02, 0.7),
    "everybody": ({0.3: 400}, 0.9, 1.0),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ANSWERED)
def test_the_mean_of_those_who_answered_is_in_its_interval(name):
    counts, mean, share = ANSWERED[name]
    plan = hetdp.plan(counts, statistic=Mean((0, 1), missing="estimate"))
    ends = [answered_interval(plan, *halves, 0.95) for halves in answered(plan, mean, share, RUNS)]
    assert not too_many(sum(not low <= mean <= high for low, high in ends))


@pytest.mark.slow
@pytest.mark.parametrize("wrong", ["a quarter of the noise", "a thirtieth of the share"])
def test_control_a_wrong_interval_of_those_who_answered_is_found_out(wrong, monkeypatch):
    counts = {0.005: 20_000} if wrong == "a quarter of the noise" else {2.0: 300}
    plan = hetdp.plan(counts, statistic=Mean((0, 1), missing="estimate"))
    drawn = answered(plan, 0.3, 0.8, RUNS)
    if wrong == "a quarter of the noise":
        right = intervals._halves
        narrow = lambda *given: NoisySum(  # noqa: E731
            (one := right(*given)).weight, one.count, lambda lam: one.log_noise(lam / 4), 4 * one.most
        )
        monkeypatch.setattr(intervals, "_halves", narrow)
    else:
        right_exponent = intervals._Half.exponent
        small = lambda self, lam, m: right_exponent(intervals._Half(self.sum, self.share / 30), lam, m)  # noqa: E731
        monkeypatch.setattr(intervals._Half, "exponent", small)
    ends = [answered_interval(plan, *halves, 0.95) for halves in drawn]
    assert too_many(sum(not low <= 0.3 <= high for low, high in ends))


def test_nobody_who_answered_allows_every_mean_and_an_end_that_is_passed_is_the_end():
    plan = hetdp.plan({1.0: 300}, statistic=Mean((0, 1), missing="estimate"))
    assert answered_interval(plan, 0.01, -0.02, 0.95) == (0, 1)
    assert answered_interval(plan, 0.5, -0.01, 0.95)[1] == 1
    assert answered_interval(plan, -0.01, 0.5, 0.95)[0] == 0


def test_the_factor_of_the_noise_of_two_halves_is_above_its_tail_for_every_mean():
    """By a million draws of the continuous law of three cells; a grid of v stands for the supremum."""
    z = zero_sum(np.random.default_rng(4), 3, 1.0, 400_000)
    v = np.linspace(-6, 6, 121)
    for m in (0.0, 0.06, 0.2, 0.37, 0.5):
        drawn = np.sort((1 - m) * z[:, 0] - m * z[:, 1])
        tail = 1 - np.searchsorted(drawn, v) / drawn.size
        error = 4 * np.sqrt(tail * (1 - tail) / drawn.size)
        table = intervals._halves_table(math.floor(20 * min(m, 0.45)) / 20)
        for kappa in (0.05, 0.3, 0.6, 0.9):
            bound = math.exp(np.interp(kappa, intervals._KAPPA, table))
            assert np.all(np.exp(kappa * v) * (tail - error) <= bound)


def test_control_the_constant_of_one_wider_laplace_law_is_too_small_for_a_cell():
    """A cell of three has the tail e^{−v}·(½ + v/6); Laplace noise of twice the scale is drawn for it, and has less."""
    v = np.linspace(-30, 30, 60_001)
    tail = np.where(v >= 0, np.exp(-np.abs(v)) * (0.5 + np.abs(v) / 6), 1 - np.exp(-np.abs(v)) * (0.5 + np.abs(v) / 6))
    short = [np.max(kappa * v + np.log(tail)) - log_tail_constant(2 * kappa) for kappa in np.linspace(0.05, 0.5, 10)]
    assert max(short) > 0.05


@pytest.mark.slow
@pytest.mark.parametrize("counts", [{0.5: 200, 2.0: 50}, {0.3: 100, INF: 20}], ids=["two tiers", "public"])
def test_the_shares_of_all_cells_are_in_their_intervals_at_once(counts):
    truth = np.array([0.6, 0.3, 0.08, 0.02])
    plan = hetdp.plan(counts, statistic=Shares(["a", "b", "c"]))
    rng = np.random.default_rng(6)
    noise = zero_sum(rng, 4, plan.errors.scales[0], RUNS)
    drawn = noise + sum(row.weight * rng.multinomial(row.count, truth, RUNS) for row in plan.table)
    misses = narrow = 0
    for numbers in drawn.tolist():
        ends = share_intervals(plan, tuple(numbers), 0.9, 4)
        misses += not all(low <= share <= high for (low, high), share in zip(ends, truth, strict=True))
        narrow += not all(
            abs(x - share) <= 0.4 * (b - a) / 2 for x, (a, b), share in zip(numbers, ends, truth, strict=True)
        )
        radius = plan.radius(0.9, together=4)
        assert all(high - low <= 2 * radius + 1e-9 for low, high in ends)
    assert not too_many(misses, chance=0.1)
    assert too_many(narrow, chance=0.1)


# --- A variance that is learned -------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(("mean", "top"), [(0.1, 0.4), (0.5, 1.0), (0.03, 1.0)], ids=["skewed", "two ends", "rare"])
def test_an_interval_that_learns_the_variance_holds_and_is_narrower(mean, top):
    """Values are 0 or `top`, from the same people in both releases."""
    rng = np.random.default_rng(8)
    plan = hetdp.plan({0.05: 540, 0.5: 370, 2.0: 60, INF: 30}, bounds=(0, 1), variance="learn")
    plain = hetdp.plan({0.05: 540, 0.5: 370, 2.0: 60, INF: 30}, bounds=(0, 1))
    misses, widths = 0, []
    for _ in range(RUNS):
        ones = [rng.binomial(row.count, mean / top) for row in plan.table]
        sums = [top * k for k in ones]
        squares = [k * (2 * top - 1) ** 2 + row.count - k for k, row in zip(ones, plan.table, strict=True)]
        at = plan.person_weight @ sums + rng.laplace(0, plan.errors.scales[0])
        square = plan.squares.person_weight @ squares + rng.laplace(0, plan.squares.errors.scales[0])
        low, high = mean_interval(plan, float(at), 0.95, float(square))
        misses += not low <= mean <= high
        widths.append((high - low) / np.diff(mean_interval(plain, float(at), 0.95))[0])
    assert not too_many(misses)
    assert np.mean(widths) < (0.95 if top < 1 else 1.05)


# --- Releases and plans ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MIXES)
def test_an_interval_contains_its_estimate_and_is_no_wider_than_predicted(name):
    counts, method = MIXES[name]
    plan = hetdp.plan(counts, method=method, bounds=(-3, 5))
    for number in (-9.0, -3.0, -2.99, 0.0, 1.0, 4.7, 5.0, 11.0):
        release = hetdp.Release(plan, (number,))
        low, high = release.confidence_interval(0.9)
        assert -3 <= low <= release.estimate <= high <= 5
        assert high > low
        assert high - low <= 2 * plan.width(0.9) * (1 + 1e-6)


def test_exactly_these_people_have_a_narrower_interval_and_one_level_that_of_the_noise_alone():
    """A sum of people who count alike has no error but the noise: the exact Laplace quantile, and the rounding."""
    for counts in ({0.5: 300}, {0.5: 300, 2.0: 200}):
        mean = hetdp.plan(counts, bounds=(0, 1))
        total = hetdp.plan(counts, statistic=hetdp.ask.sum(bounds=(0, 1)))
        assert total.width() / total.n < 0.8 * mean.width()
    total = hetdp.plan({0.5: 300}, statistic=hetdp.ask.sum(bounds=(0, 1)))
    expected = laplace.isf(0.025, scale=total.noise_scale)
    assert expected <= total.width() <= expected + 300 * 3e-6


@pytest.mark.parametrize("where", [(0, 1), (-40, 60), (1e6, 1e6 + 1)])
def test_ends_are_in_units_of_the_values(where):
    unit = hetdp.Release(hetdp.plan({0.5: 300}, bounds=(0, 1)), (0.3,)).confidence_interval()
    width = where[1] - where[0]
    there = hetdp.Release(hetdp.plan({0.5: 300}, bounds=where), (where[0] + 0.3 * width,)).confidence_interval()
    assert there == pytest.approx([where[0] + width * end for end in unit], abs=1e-6 * width)
