"""The cap for people whose ε goes with their value, against brute force, a solver and a closed form."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize

import hetdp
from hetdp.core.levels import Levels, saturation, shift
from hetdp.estimators.adpm import drift_cap

TIERS = {
    "two tiers": Levels({0.1: 500, 1.0: 500}),
    "four tiers": Levels({0.01: 250, 0.1: 250, 0.5: 250, 2.0: 250}),
    "thirteen tiers": Levels({float(e): 77 - (i == 12) for i, e in enumerate(np.exp(np.linspace(-4, 2, 13)))}),
}
EDGES = {
    "nobody may be used": {0.0: 5},
    "all public": {math.inf: 3},
    "never or public": {0.0: 2, math.inf: 3},
    "one person": {1.0: 1},
    "one public person": {math.inf: 1},
    "one level": {0.5: 10},
    "some never": {0.0: 40, 0.1: 30, 2.0: 30},
    "tiny and huge": {1e-300: 5, 1e300: 5},
    "tiny, usual, public": {1e-300: 5, 1.0: 3, math.inf: 2},
    "the smallest double": {5e-324: 3, 1.0: 1},
    "huge": {1e300: 3},
}


def worst(w, epsilon, variance, drift, *, people):
    """The worst case of weights w that sum to 1, one entry a person, written down from its definition."""
    n = w.size
    moved, noise = np.maximum(1 / n - w, 0).sum(), 2 * (w / epsilon).max() ** 2
    if people:
        return min(variance * np.sum((w - 1 / n) ** 2) + (drift * moved) ** 2, moved**2) + noise
    return variance * np.sum(w**2) + (drift * moved) ** 2 + noise


def capped_worst(cap, epsilon, *args, **how):
    w = np.minimum(epsilon, cap)
    return worst(w / w.sum(), epsilon, *args, **how)


def randomly(rng):
    n = int(rng.integers(2, 40))
    epsilon = rng.choice([0.05, 0.1, 0.3, 1.0, 4.0], n) if rng.random() < 0.4 else np.exp(rng.uniform(-5, 2, n))
    return epsilon, float(rng.choice([0.05, 0.25])), float(rng.choice([0.02, 0.1, 0.3, 1.0]))


@pytest.mark.parametrize("people", [False, True], ids=["population", "these people"])
def test_no_cap_on_a_fine_grid_is_better(people):
    rng = np.random.default_rng(17)
    lost = []
    for _ in range(40):
        epsilon, variance, drift = randomly(rng)
        cap = drift_cap(Levels.of(epsilon), variance, drift, people=people)
        ours = capped_worst(cap, epsilon, variance, drift, people=people)
        grid = np.geomspace(epsilon.min(), epsilon.max(), 800)
        best = min(capped_worst(t, epsilon, variance, drift, people=people) for t in grid)
        plain = capped_worst(
            saturation(*np.unique(epsilon, return_counts=True), 2 / variance), epsilon, variance, drift, people=people
        )
        assert ours <= best * (1 + 1e-12)
        lost.append(plain / ours)
    assert max(lost) > 2, "control: ADPM's own cap would fail this"


def test_no_weights_that_a_solver_finds_are_better():
    rng = np.random.default_rng(5)
    for _ in range(15):
        epsilon, variance, drift = randomly(rng)
        epsilon = epsilon[:12]
        n = epsilon.size
        cap = drift_cap(Levels.of(epsilon), variance, drift)
        ours = capped_worst(cap, epsilon, variance, drift, people=False)

        def error(x, n=n, variance=variance, drift=drift, ours=ours):  # w, (1/n − w)₊, η
            return (variance * np.sum(x[:n] ** 2) + (drift * x[n:-1].sum()) ** 2 + 2 * x[-1] ** 2) / ours

        rules = [
            {"type": "eq", "fun": lambda x, n=n: x[:n].sum() - 1},
            {"type": "ineq", "fun": lambda x, n=n, e=epsilon: x[-1] * e - x[:n]},
            {"type": "ineq", "fun": lambda x, n=n: x[n:-1] - (1 / n - x[:n])},
        ]
        start = np.concatenate([np.full(n, 1 / n), np.zeros(n), [1 / n / epsilon.min()]])
        options = {"maxiter": 400, "ftol": 1e-13}
        ends = [(0, None)] * (2 * n + 1)
        found = minimize(error, start, bounds=ends, constraints=rules, method="SLSQP", options=options)
        assert found.fun >= 1 - 1e-6, (epsilon, variance, drift)


def test_the_worst_case_over_every_dependence_has_its_closed_form():
    rng = np.random.default_rng(2)
    for _ in range(200):
        e = np.sort(np.exp(rng.uniform(-4, 2, int(rng.integers(1, 30)))))
        sums, k = np.cumsum(e), np.arange(1, e.size + 1)
        v, above = k * sums / (sums**2 + 2), np.append(e[1:], math.inf)
        first = int(np.flatnonzero((v > 1 / e) | ((e <= 1 / v) & (1 / v <= above)))[0])
        tau = 1 / max(min(v[first], 1 / e[first]), e.size / sums[-1])
        cap = drift_cap(Levels.of(e), 0.0, 1.0)
        assert np.minimum(e, cap).mean() == pytest.approx(tau, rel=1e-12)


@pytest.mark.parametrize("tiers", TIERS)
@pytest.mark.parametrize("target", ["population", "people"])
def test_without_drift_the_plan_is_adpm_to_the_last_bit(tiers, target):
    levels = TIERS[tiers]
    plan, same = hetdp.plan(levels, bounds=(0, 1), drift=0, target=target), hetdp.plan(levels, bounds=(0, 1))
    assert plan.units.tolist() == same.units.tolist()
    assert (plan.noise, plan.threshold) == (same.noise, same.threshold)
    assert plan.threshold == saturation(levels.epsilon, levels.count, 8)
    little = hetdp.plan(levels, bounds=(0, 1), drift=1e-9, target=target)
    assert little.threshold == pytest.approx(plan.threshold, rel=1e-6)
    assert hetdp.plan(levels, bounds=(0, 1), drift=0.2, target=target).threshold < 0.9 * plan.threshold


@pytest.mark.parametrize("target", ["population", "people"])
@pytest.mark.parametrize("name", EDGES)
def test_every_mix_of_levels_has_a_plan_that_is_no_worse_than_adpm(name, target):
    levels = Levels(EDGES[name])
    for drift, variance in itertools.product((1e-6, 0.1, 1.0), (None, 1e-6)):
        ask = {"bounds": (0, 1), "variance": variance, "target": target}
        planned = hetdp.plan(levels, **ask, drift=drift)
        plain = hetdp.plan(levels, **ask)
        assert planned.worst_case_error <= plain.error_at(drift) * (1 + 1e-6), (drift, variance)
        assert planned.worst_case_error <= 0.5
        assert 0 <= planned.bias_share <= 1
    assert hetdp.plan(levels, bounds=(0, 1), drift=0.1, target=target).report()


def test_many_levels_are_solved_at_once():
    epsilon = np.exp(np.random.default_rng(1).uniform(-6, 3, 60_000))
    cap = drift_cap(Levels.of(epsilon), 0.25, 0.1)
    near = [capped_worst(t, epsilon, 0.25, 0.1, people=False) for t in (cap * 0.99, cap, cap * 1.01)]
    assert min(near) == near[1]


def test_the_bias_is_at_most_drift_times_the_share_that_was_moved_and_reaches_it():
    rng = np.random.default_rng(3)
    for _ in range(200):
        levels = Levels(
            {float(e): int(k) for e, k in zip(np.exp(rng.uniform(-4, 2, 6)), rng.integers(1, 90, 6), strict=True)}
        )
        plan = hetdp.plan(levels, bounds=(0, 1), method=str(rng.choice(["adpm", "proportional", "threshold", "ldpe"])))
        if plan.abstains:
            continue
        excess = levels.count * (plan.person_weight - 1 / levels.n)
        biases = [abs(excess @ np.array(means)) for means in itertools.product((0, 0.3), repeat=len(levels))]
        assert max(biases) == pytest.approx(0.3 * plan.bias_share, rel=1e-9, abs=1e-15)
        assert abs(excess @ rng.uniform(0.2, 0.5, len(levels))) <= 0.3 * plan.bias_share + 1e-15


def test_the_share_that_is_moved_counts_people_who_are_never_used():
    assert shift(np.array([30, 70]), np.array([0.0, 2.0])) == pytest.approx(0.3)
    assert shift(np.array([5]), np.array([0.2])) == 0
    assert shift(np.array([5]), np.array([0.0])) == 0


PRINTED = {"two tiers": (0.046, 0.016), "four tiers": (0.076, 0.048), "thirteen tiers": (0.056, 0.032)}


@pytest.mark.parametrize("tiers", PRINTED)
def test_the_worst_cases_at_a_drift_of_a_fifth_are_those_that_were_predicted(tiers):
    """Means of levels .2 of the range apart, values of variance .05, n = 1000."""
    ask = {"bounds": (0, 1), "method": "adpm"}
    plain, drifting = hetdp.plan(TIERS[tiers], **ask), hetdp.plan(TIERS[tiers], **ask, drift=0.2)
    at = [math.sqrt(replace(plan.errors, drift=0.2).at(0.05, 0.0)) for plan in (plain, drifting)]
    assert [round(error, 3) for error in at] == list(PRINTED[tiers])


def simulated(plan, runs, rng):
    """The root mean squared error over simulated people: strict ones have a mean .2 below the open ones."""
    count, w = plan.levels.count, plan.person_weight
    means = np.where(w < 1 / plan.n, 0.4, 0.6)
    a = means * (0.24 / 0.05 - 1)  # Beta laws of variance .05, both means .1 from the middle
    b = (1 - means) * (0.24 / 0.05 - 1)
    total = np.zeros(runs)
    for weight, people, x, y in zip(w, count, a, b, strict=True):
        total += weight * rng.beta(x, y, (runs, people)).sum(axis=1)
    noise = rng.laplace(scale=plan.noise_scale, size=runs)
    return math.sqrt(np.mean((total + noise - count @ means / plan.n) ** 2))


def test_simulated_people_whose_means_are_a_fifth_apart_are_off_as_predicted():
    rng = np.random.default_rng(8)
    plain = hetdp.plan(TIERS["two tiers"], bounds=(0, 1))
    drifting = hetdp.plan(TIERS["two tiers"], bounds=(0, 1), drift=0.2)
    before, after = (simulated(plan, 2000, rng) for plan in (plain, drifting))
    assert before == pytest.approx(0.046, abs=0.001)
    assert before > 2.4 * plain.worst_case_error, "control: without drift the promise is broken"
    assert after == pytest.approx(0.0157, abs=0.001)
    assert after < drifting.worst_case_error


@pytest.mark.parametrize(
    ("people", "drift"),
    [({0.01: 50, 3.0: 1}, 0.2), ({0.1: 40, 2.0: 3}, 0.2), ({0.0206: 1088, 2.465: 130}, 0.05)],
    ids=str,
)
def test_a_level_nearer_the_middle_may_vary_more_than_the_mean_of_all_would_let_it(people, drift):
    """The strict people all have 0, the others 1 with chance `drift`: the exact error of the affine estimator."""
    plan = hetdp.plan(people, bounds=(0, 1), method="minimax", drift=drift)
    assert plan.clamp is None
    strict, other = plan.levels.count.tolist()
    weight = plan.person_weight
    truth = other * drift / (strict + other)
    mean = 0.5 + weight[0] * strict * -0.5 + weight[1] * other * (drift - 0.5)
    exact = other * weight[1] ** 2 * drift * (1 - drift) + (mean - truth) ** 2 + plan.errors.noise
    assert exact <= plan.worst_case_mse
    control = plan.errors.noise + max(
        plan.errors.at(v, math.sqrt(0.25 - v)) - plan.errors.noise for v in np.linspace(0, 0.25, 101).tolist()
    )
    assert control < exact  # what the variance at the mean of all people would have promised
