"""Drift and target of a plan: what is predicted, what is refused, what stays valid."""

from __future__ import annotations

import math

import numpy as np
import pytest

import hetdp
from hetdp.core.levels import Levels
from hetdp.errors import InputError

LEVELS = Levels({0.1: 500, 1.0: 400, math.inf: 100})


@pytest.mark.parametrize("method", [name for name in hetdp.methods() if name != "stretch"])
@pytest.mark.parametrize("target", ["population", "people"])
def test_the_worst_case_with_drift_is_not_below_any_case_of_a_fine_grid(method, target):
    plan = hetdp.plan(LEVELS, bounds=(0, 1), method=method, drift=0.15, target=target)
    errors = plan.errors
    v = np.linspace(0, plan.variance_bound, 4001)
    apart = 0.15 if plan.bias_share > 1e-12 else 0.0  # a level's own mean may lie so far from that of all people
    d = np.minimum(np.sqrt(np.maximum(0.25 - v, 0)) + apart, 0.5)
    shrunk = 2 * errors.bias * d
    whole = errors.spread * v + (errors.pull - (2 * errors.bias) ** 2) * d**2 + (shrunk + 0.15 * plan.bias_share) ** 2
    worst = float(np.minimum(whole, errors.cap).max()) + errors.noise
    assert errors.worst(plan.variance_bound) == pytest.approx(worst, rel=1e-6)
    assert plan.worst_case_error == pytest.approx(plan.error_at(0.15))
    plain = hetdp.plan(LEVELS, bounds=(0, 1), method=method, target=target)
    assert plain.worst_case_error == pytest.approx(plain.error_at(0))
    assert plain.error_at(0.15) >= plan.worst_case_error * (1 - 1e-9)
    if method != "adpm":
        assert plan.units.tolist() == plain.units.tolist(), "drift changes the weights of adpm alone"


def test_a_plan_of_these_people_at_one_level_has_no_error_but_the_noise():
    plan = hetdp.plan({0.5: 1000}, bounds=(0, 10), target="people")
    assert plan.errors.spread == pytest.approx(0, abs=1e-15)
    assert plan.worst_case_error == pytest.approx(math.sqrt(2) * plan.noise_scale, rel=1e-5)
    other = hetdp.plan({0.5: 1000}, bounds=(0, 10))
    assert other.worst_case_error == pytest.approx(math.sqrt(100 / 4000 + 2 * other.noise_scale**2), rel=1e-5)


@pytest.mark.parametrize("method", ["adpm", "ldpe", "sampling"])
def test_the_error_for_these_people_is_what_a_simulation_finds(method):
    """Values are ±half at random; the estimate is compared with the mean of these people."""
    levels = Levels({0.1: 50, 1.0: 50})
    plan = hetdp.plan(levels, bounds=(0, 1), method=method, target="people")
    rng = np.random.default_rng(4)
    x = rng.integers(0, 2, (40_000, 100)).astype(float)
    keep = np.repeat(plan.keep / 2**53 if method == "sampling" else np.ones(2), levels.count)
    w = np.repeat(plan.person_weight, levels.count) / keep
    kept = rng.random(x.shape) < keep
    found = (kept * w * (x - 0.5)).sum(axis=1) + 0.5
    for scale in plan.errors.scales:
        found += rng.laplace(scale=scale, size=found.size)
    mse = np.mean((found - x.mean(axis=1)) ** 2)
    assert mse == pytest.approx(plan.mse(0.25), rel=0.03)
    population = hetdp.plan(levels, bounds=(0, 1), method=method).mse(0.25)
    assert abs(mse / population - 1) > 0.05, "control: the population's error is another one"


@pytest.mark.parametrize("target", ["population", "people"])
def test_the_guaranteed_radius_covers_under_the_worst_drift(target):
    plan = hetdp.plan({0.1: 300, 1.0: 300}, bounds=(0, 1), drift=0.2, target=target, method="proportional")
    rng = np.random.default_rng(6)
    mean = np.repeat([0.6, 0.4], 300)
    x = (rng.random((4000, 600)) < mean).astype(float)
    found = x @ np.repeat(plan.person_weight, 300) + rng.laplace(scale=plan.noise_scale, size=4000)
    truth = x.mean(axis=1) if target == "people" else 0.5
    missed = np.mean(np.abs(found - truth) > plan.radius(0.95))
    assert missed <= 0.05
    without = hetdp.plan({0.1: 300, 1.0: 300}, bounds=(0, 1), target=target, method="proportional").radius(0.95)
    assert np.mean(np.abs(found - truth) > without) > 0.2, "control: without the drift it misses"


def test_a_sum_is_of_these_people_and_a_mean_of_the_population_unless_said():
    assert hetdp.plan(LEVELS, statistic=hetdp.ask.sum(bounds=(0, 1))).target == "people"
    assert hetdp.plan(LEVELS, statistic=hetdp.ask.count(equals="a")).target == "people"
    assert hetdp.plan(LEVELS, bounds=(0, 1)).target == "population"
    assert hetdp.plan(LEVELS, statistic=hetdp.ask.proportion(equals="a"), target="people").target == "people"


@pytest.mark.parametrize("drift", [-0.1, 1.1, math.nan, math.inf, True, "0.1", None])
def test_a_drift_that_is_no_share_is_refused(drift):
    with pytest.raises(InputError, match="drift must be a number from 0 to 1"):
        hetdp.plan(LEVELS, bounds=(0, 1), drift=drift)


def test_what_makes_no_sense_is_refused_in_a_sentence():
    with pytest.raises(InputError, match="target is 'population' or 'people'"):
        hetdp.plan(LEVELS, bounds=(0, 1), target="rows")
    histogram = hetdp.ask.histogram(categories=["a", "b"])
    with pytest.raises(InputError, match="a drift is for means, sums, proportions and counts, not for a histogram"):
        hetdp.plan(LEVELS, statistic=histogram, drift=0.1)
    with pytest.raises(InputError, match="the target 'people' is for means"):
        hetdp.plan(LEVELS, statistic=histogram, target="people")
    with pytest.raises(InputError, match="a sum is of exactly these people"):
        hetdp.plan(LEVELS, statistic=hetdp.ask.sum(bounds=(0, 1)), target="population")


def test_the_mean_of_those_who_answered_takes_a_drift_and_moves_less_weight():
    asked = hetdp.ask.mean(bounds=(0, 1), missing="estimate")
    plain, plan = (hetdp.plan(LEVELS, statistic=asked, drift=drift) for drift in (0, 0.2))
    assert plan.bias_share < plain.bias_share / 2
    assert 0 < plan.frontier(0.05) <= plain.frontier(0.05)


def test_a_plan_abstains_when_the_bias_makes_it_worse_than_the_midpoint():
    few = {0.001: 60, 20.0: 2}
    assert not hetdp.plan(few, bounds=(0, 1)).abstains
    assert hetdp.plan(few, bounds=(0, 1), drift=1).abstains


def test_a_share_of_epsilon_leaves_the_best_cap_for_its_own_noise():
    """A share f of ε is as good as ε/f times as strict people: the plans have the same worst case."""
    statistic = hetdp.ask.mean(bounds=(0, 1))
    half = hetdp.plan({0.2: 500, 2.0: 500}, statistic=statistic, drift=0.1, share=0.5)
    same = hetdp.plan({0.1: 500, 1.0: 500}, statistic=statistic, drift=0.1)
    assert half.worst_case_error == pytest.approx(same.worst_case_error, rel=1e-6)


def test_people_needed_counts_the_drift():
    ask = {"error": 0.02, "bounds": (0, 1)}
    needed = hetdp.people_needed({0.1: 500, 1.0: 500}, **ask).people
    more = hetdp.people_needed({0.1: 500, 1.0: 500}, **ask, drift=0.2).people
    assert more > needed
    per = more // 2
    assert hetdp.plan({0.1: per, 1.0: per}, bounds=(0, 1), drift=0.2).worst_case_error == pytest.approx(0.02, rel=2e-3)
