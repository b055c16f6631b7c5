"""One contract for every method, then each method against an oracle of its own."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from functools import cache
from itertools import product

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

import hetdp
from hetdp.core.accuracy import objective, worst_corner
from hetdp.core.levels import saturation
from hetdp.core.plan import drawn_plan
from hetdp.estimators.minimax import least_favourable
from hetdp.statistics.mean import Mean
from support import UNIT, bounds, examples, level_counts

INF = math.inf
RULES = hetdp.methods()
METHODS = list(RULES)
AFFINE = [name for name, method in hetdp.methods().items() if not method.needs_records]
NOT_FME = [name for name in METHODS if name != "fme"]
VARIANCES = (0.25, 1 / 12, 0.04, 1e-3)
every_method = pytest.mark.parametrize("method", METHODS)
a_hundred = settings(deadline=None)


def accepted(counts, method):
    """The people that a method takes: `stretch` refuses public ones."""
    return {e: n for e, n in counts.items() if method != "stretch" or e < INF} or {1.0: 1}


def planned(counts, method, **options):
    return hetdp.plan(accepted(counts, method), **{"bounds": UNIT, "method": method, **options})


def floored(counts):
    """How much n integer weights of up to 2³⁰ units may change an error, relatively: each loses less than one unit."""
    return 3 * sum(counts.values()) / 2**30


# --- The contract -------------------------------------------------------------------------------------------


@every_method
@a_hundred
@given(level_counts, st.sampled_from(VARIANCES))
@example({1e300: 2 * 10**8}, 0.25)  # n·ε is beyond the doubles
@example({1.7976931348623157e308: 5, 1e-300: 2**42}, 1e-3)
@example({5e-324: 2**42}, 1e-300)
@example({0.1: 700, INF: 300}, 5e-324)
def test_weights_are_not_negative_and_sum_to_the_shrinkage(method, counts, variance):
    plan = planned(counts, method, variance=variance)
    weights = [row.weight for row in plan.table]
    assert all(math.isfinite(w) and w >= 0 for w in weights)
    assert all(row.weight == 0 for row in plan.table if row.epsilon == 0)
    assert sum(row.share for row in plan.table) == pytest.approx(0 if plan.abstains else plan.shrink, rel=1e-9)
    assert 0 < plan.shrink <= 1


def overspent(plan, noise):
    """The levels with weight whose W/scale exceeds ε, in exact fractions; a bare private level counts."""
    scale = {i: Fraction(term.scale) for term in noise for i in range(term.first, term.last)}
    people = [(i, e, int(w)) for i, (e, w) in enumerate(zip(plan.levels.epsilon, plan.units, strict=True)) if w]
    return [e for i, e, w in people if e < INF and (i not in scale or w / scale[i] > Fraction(e))]


@pytest.mark.parametrize("method", AFFINE)  # what a method that samples spends is another formula, tested elsewhere
@a_hundred
@given(level_counts, st.sampled_from(VARIANCES))
def test_nobody_spends_more_than_their_epsilon_in_exact_fractions(method, counts, variance):
    plan = planned(counts, method, variance=variance)
    assert overspent(plan, plan.noise) == []


@pytest.mark.parametrize(
    "method", [name for name in AFFINE if name != "fme"]
)  # FME has more noise than it needs where k = 0
def test_the_exact_check_notices_noise_one_part_in_a_million_too_small(method):
    plan = hetdp.plan({0.1: 700, 0.7: 200, 3.0: 100}, method=method, bounds=UNIT)
    smaller = tuple(replace(term, scale=term.scale * (1 - 1e-6)) for term in plan.noise)
    assert overspent(plan, smaller)
    assert overspent(plan, plan.noise[1:])


def facts(plan):
    return plan.units.tolist(), plan.noise, plan.threshold, plan.shrink, plan.abstains, plan.worst_case_mse


@every_method
@a_hundred
@given(level_counts, st.integers(0, 2**32))
def test_neither_the_order_of_people_nor_how_levels_are_merged_matters(method, counts, seed):
    counts = accepted(counts, method)
    plan = hetdp.plan(counts, method=method, bounds=UNIT)
    people = np.random.default_rng(seed).permutation(np.repeat(list(counts), list(counts.values())))
    assert facts(hetdp.plan(people, method=method, bounds=UNIT)) == facts(plan)
    assert facts(hetdp.plan(dict(reversed(counts.items())), method=method, bounds=UNIT)) == facts(plan)


@every_method
@a_hundred
@given(level_counts, st.integers(1, 10**6))
def test_people_with_epsilon_0_change_nothing_but_n(method, counts, absent):
    present = {e: n for e, n in accepted(counts, method).items() if e > 0} or {1.0: 1}
    plan, other = (
        hetdp.plan(present, method=method, bounds=UNIT),
        hetdp.plan({0.0: absent, **present}, method=method, bounds=UNIT),
    )
    assert other.n == plan.n + absent
    assert other.units.tolist() == pytest.approx([0, *plan.units.tolist()], abs=1)  # sums may round another way
    assert [term.scale for term in other.noise] == pytest.approx([term.scale for term in plan.noise], rel=1e-8)
    assert other.abstains == plan.abstains
    assert (other.threshold or 0) == pytest.approx(plan.threshold or 0, rel=1e-12)
    assert other.shrink == pytest.approx(plan.shrink, rel=1e-12)
    assert other.worst_case_mse == pytest.approx(plan.worst_case_mse, rel=1e-8)


ONE_LEVEL = [(0.3, 1000), (2.0, 50), (0.02, 1000), (INF, 4)]


@pytest.mark.parametrize("method", [name for name in METHODS if name != "minimax"])
@pytest.mark.parametrize(("epsilon", "n"), ONE_LEVEL)
def test_one_level_is_the_plain_laplace_mean(method, epsilon, n):
    """Not so for `minimax`, which shrinks, and for FME above ε = 1/√n, where its noise is 1/√n."""
    if method == "stretch":
        epsilon = min(epsilon, 1e9)
    plan = hetdp.plan({epsilon: n}, method=method, bounds=UNIT)
    noise = 1 / math.sqrt(n) if method == "fme" and epsilon > 1 / math.sqrt(n) else 1 / (n * epsilon)
    assert plan.weights([epsilon]) == pytest.approx([1 / n])
    assert plan.noise_scale == pytest.approx(noise, abs=1e-9)
    assert plan.worst_case_mse == pytest.approx(1 / (4 * n) + 2 * noise**2)


def multiplied(counts, times):
    return {e: n * times for e, n in counts.items()}


def grows(counts, times, method):
    few, many = planned(counts, method), planned(multiplied(counts, times), method)
    return many.worst_case_mse > few.worst_case_mse * (1 + 1e-4)


@pytest.mark.parametrize("method", NOT_FME)  # the next test shows why
@a_hundred
@given(level_counts, st.integers(2, 20))
def test_the_error_never_grows_when_everybody_comes_several_times(method, counts, times):
    assert not grows(counts, times, method)


@pytest.mark.slow
def test_fme_can_get_worse_when_everybody_comes_twice():
    """Where ε₍ⱼ₊₁₎ = 1/√(n − j) nobody is capped and S is near 2√n; with everybody twice all are, and S = √(2n)."""
    n = 1000
    counts = {float(1 / np.sqrt(n - j)): 1 for j in range(n)}
    assert hetdp.plan(counts, method="fme", bounds=UNIT).noise_scale == pytest.approx(1 / (2 * math.sqrt(n)), rel=0.03)
    assert hetdp.plan(multiplied(counts, 2), method="fme", bounds=UNIT).noise_scale == pytest.approx(
        1 / math.sqrt(2 * n)
    )
    assert grows(counts, 2, "fme")
    assert not any(grows(counts, 2, method) for method in NOT_FME)


@every_method
@a_hundred
@given(level_counts, bounds, st.sampled_from(VARIANCES))
def test_another_interval_scales_the_error_and_leaves_the_weights(method, counts, interval, variance):
    unit, plan = planned(counts, method), planned(counts, method, bounds=interval)
    width = plan.interval.width
    assert facts(plan)[:5] == facts(unit)[:5]
    assert plan.noise_scale == pytest.approx(unit.noise_scale * width)
    assert plan.worst_case_mse == pytest.approx(unit.worst_case_mse * width**2)
    assert plan.mse(0.1 * width**2, mean=plan.interval.mid) == pytest.approx(unit.mse(0.1, mean=0) * width**2)
    known = planned(counts, method, bounds=interval, variance=variance * width**2).worst_case_mse
    unit_known = planned(counts, method, variance=variance).worst_case_mse
    assert known == pytest.approx(unit_known * width**2, rel=1e-8 + floored(counts))


@every_method
@a_hundred
@given(level_counts, st.sampled_from(VARIANCES), st.floats(0, 1), st.floats(-1, 1))
def test_no_distribution_is_worse_than_the_worst_case(method, counts, bound, part, side):
    plan = planned(counts, method, variance=bound)
    variance = bound * part
    mean = side * math.sqrt(0.25 - variance)
    assert plan.mse(variance, mean=mean) <= plan.mse(variance) * (1 + 1e-12)
    assert plan.mse(variance) <= plan.worst_case_mse * (1 + 1e-12)
    corners = plan.mse(bound), plan.mse(0)
    assert max(corners) == pytest.approx(plan.worst_case_mse, rel=1e-12)


@pytest.mark.parametrize("method", AFFINE)  # `sampling` treats a huge ε as a smaller one, so its plan is not its shape
@a_hundred
@given(level_counts, st.sampled_from(VARIANCES))
def test_the_plan_has_the_error_of_the_shape_it_came_from(method, counts, variance):
    assume(all(epsilon == 0 or epsilon > 1e-300 for epsilon in counts))  # below, doubles have no digits for w/ε
    plan = planned(counts, method, variance=variance)
    if not plan.abstains:
        wished = objective(plan.levels, RULES[method].shape(plan.levels, variance), variance)
        assert plan.worst_case_mse == pytest.approx(wished, rel=1e-6 + floored(counts))


# --- minimax ------------------------------------------------------------------------------------------------


def random_people(rng, most=40):
    """A random ε vector: any spread, any number, sometimes tied or public."""
    n, low = int(rng.integers(1, most)), rng.uniform(-3, 1)
    epsilon = 10 ** rng.uniform(low, low + rng.uniform(0, 3), n)
    epsilon = rng.choice(epsilon, n) if rng.random() < 0.3 else epsilon
    return np.append(epsilon, [INF] * int(rng.integers(1, 4))) if rng.random() < 0.2 else epsilon


def best_affine(epsilon, variance):
    """The least worst case over all weight vectors, by a convex solver."""
    n = epsilon.size
    w = cp.Variable(n, nonneg=True) / n
    bias = cp.square(1 - cp.sum(w))
    worst = cp.maximum(variance * cp.sum_squares(w) + (0.25 - variance) * bias, 0.25 * bias)
    problem = cp.Problem(cp.Minimize(4 * n * (2 * cp.square(cp.max(cp.multiply(w, 1 / epsilon))) + worst)))
    problem.solve(solver=cp.CLARABEL)
    assert problem.status == cp.OPTIMAL
    return problem.value / (4 * n)


@cache
def battery():
    rng = np.random.default_rng(65)
    cases = [(random_people(rng), VARIANCES[i % 4]) for i in range(48)]
    cases += [(np.array(e), 0.25) for e in ([1.0], [INF], [50.0], [1e-3] * 5, [0.1] * 30 + [INF], [3.0, INF])]
    return [(hetdp.Levels.of(epsilon), variance, best_affine(epsilon, variance)) for epsilon, variance in cases]


def excess(shape):
    """How far a rule is above the best affine estimator, at worst over the battery; below it cannot be."""
    ratios = [objective(levels, shape(levels, variance), variance) / best for levels, variance, best in battery()]
    assert min(ratios) > 1 - 1e-6
    return max(ratios) - 1


minimax = RULES["minimax"].plain  # without the clamp, which has tests of its own


def affine_plan(epsilon, variance=0.25):
    """The plan of the best affine estimator, as `hetdp.plan` makes it of a shape."""
    levels = hetdp.Levels.given(epsilon)
    how = {"variance_bound": variance, "share": 1.0}
    return drawn_plan("minimax", levels, Mean(UNIT), minimax(levels, variance), how)


def with_adpms_cap(levels, variance):
    """The known-bad rule that shrinks ADPM instead of choosing its own cap: the best shrinkage, the wrong weights."""
    adpm = RULES["adpm"].shape(levels, variance)
    shrinkages = [replace(adpm, shrink=s) for s in np.linspace(0.005, 1, 200)]
    return min(shrinkages, key=lambda shape: objective(levels, shape, variance))


def without_shrinkage(levels, variance):
    return replace(minimax(levels, variance), shrink=1.0)


def for_any_variance(levels, variance):
    return minimax(levels, 0.25)


@pytest.mark.slow
def test_minimax_is_the_best_of_all_affine_estimators():
    assert excess(minimax) < 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("wrong", [with_adpms_cap, without_shrinkage, for_any_variance])
def test_the_convex_solver_notices_a_rule_that_is_not_the_best(wrong):
    assert excess(wrong) > 1e-3


def two_point_risk(w, eta, p):
    """The mean squared error when every value is 1/2 with probability p and else −1/2, over all 2ⁿ datasets."""
    data = np.array(list(product([0, 1], repeat=w.size)))
    odds = np.prod(np.where(data == 1, p, 1 - p), axis=1)
    return 2 * eta**2 + float(odds @ ((data - 0.5) @ w - (p - 0.5)) ** 2)


@pytest.mark.parametrize("variance", [0.25, 0.1])
@pytest.mark.parametrize(
    "epsilon", [[1.0], [20.0], [0.5, 5.0], [2.0, 2.0, 40.0], [1.0, 3.0, 9.0, 27.0], [4.0, 6.0, INF]], ids=str
)
def test_minimax_wins_the_game_against_two_point_distributions(epsilon, variance):
    """General weights against a grid of p, by a solver that knows neither the formula for the error nor caps."""
    epsilon = np.array(epsilon)
    edge = (1 - math.sqrt(1 - 4 * variance)) / 2  # p(1 − p) = variance
    chances = np.concatenate([[0, edge / 2, edge, 1 - edge, 1], [0.4, 0.5] if variance == 0.25 else []])
    n = epsilon.size

    def slack(x):
        w, eta, worst = x[:n], x[n], x[n + 1]
        private = eta * epsilon[epsilon < INF] - w[epsilon < INF]
        return np.concatenate([[worst - two_point_risk(w, eta, p) for p in chances], w, private])

    start = np.concatenate([np.full(n, 0.5 / n), [1.0, 3.0]])
    constraint = {"type": "ineq", "fun": slack}
    found = minimize(lambda x: x[-1], start, constraints=[constraint], options={"ftol": 1e-13, "maxiter": 1000})
    assert found.success
    plan = affine_plan(epsilon, variance)
    assert plan.worst_case_mse == pytest.approx(found.fun, rel=1e-5)
    w, eta = plan.weights(epsilon), plan.noise_scale
    assert plan.worst_case_mse == pytest.approx(max(two_point_risk(w, eta, p) for p in chances), rel=1e-6)


def capped_objective(levels, t, s, variance):
    """The design's formula: 2η² + the worst of sampling error and bias, for weights s·min(ε, t)/Σmin(ε, t)."""
    x = np.minimum(levels.epsilon, t)
    u = x / np.sum(levels.count * x)
    eta = s / np.sum(levels.count * x)
    return 2 * eta**2 + worst_corner(np.sum(levels.count * u**2) * s**2, (1 - s) ** 2, variance)


@pytest.mark.parametrize("seed", range(24))
def test_no_cap_and_shrinkage_on_a_dense_grid_beat_minimax(seed):
    rng = np.random.default_rng(seed)
    levels, variance = hetdp.Levels.of(random_people(rng, most=400)), VARIANCES[seed % 4]
    shape = minimax(levels, variance)
    ours = objective(levels, shape, variance)
    caps = np.geomspace(levels.epsilon[0], 10 * max(levels.epsilon[-1] if levels.epsilon[-1] < INF else 1, 1), 60)
    grid = [(capped_objective(levels, t, s, variance), t, s) for t in caps for s in np.linspace(0.02, 1, 50)]
    best, t, s = min(grid)
    polished = minimize(
        lambda x: capped_objective(levels, math.exp(x[0]), x[1], variance),
        [math.log(t), s],
        method="Nelder-Mead",
        options={"xatol": 1e-9, "fatol": 1e-16, "maxiter": 2000},
    )
    assert best >= ours * (1 - 1e-9)
    assert polished.fun >= ours * (1 - 1e-9)
    assert polished.fun == pytest.approx(ours, rel=2e-3)  # the grid is near: the comparison means something


def test_without_a_known_variance_the_shrinkage_is_the_smaller_of_two_closed_forms():
    """s = min(1/(1 + √A), 1/(1 + 8B)), A = Σu² and B = max(u/ε)² of the normalised weights."""
    rng = np.random.default_rng(1)
    binding = set()
    for _ in range(300):
        levels = hetdp.Levels.of(random_people(rng, most=300))
        shape = minimax(levels, 0.25)
        u = shape.weight / np.sum(levels.count * shape.weight)
        forms = 1 / (1 + math.sqrt(np.sum(levels.count * u**2))), 1 / (1 + 8 * np.max(u / levels.epsilon) ** 2)
        assert shape.shrink == pytest.approx(min(forms), rel=1e-12)
        binding.add(forms[0] < forms[1])
    assert binding == {True, False}


@pytest.mark.slow
def test_minimax_is_never_worse_than_any_other_affine_method_on_thousands_of_vectors():
    rng = np.random.default_rng(2)
    for i in range(2000):
        levels, variance = hetdp.Levels.of(random_people(rng, most=200)), VARIANCES[i % 4]
        ours = objective(levels, minimax(levels, variance), variance)
        others = [name for name in AFFINE if name != "minimax" and (name != "stretch" or levels.epsilon[-1] < INF)]
        assert ours <= 0.25
        for name in others:
            assert ours <= objective(levels, RULES[name].shape(levels, variance), variance) * (1 + 1e-12), (
                name,
                levels,
            )


@settings(deadline=None, max_examples=examples(300))
@given(level_counts, st.sampled_from(VARIANCES))
def test_a_minimax_plan_is_never_worse_than_that_of_adpm_for_any_levels(counts, variance):
    ours, adpm = (hetdp.plan(counts, method=name, variance=variance, bounds=UNIT) for name in ("minimax", "adpm"))
    assert ours.worst_case_mse <= adpm.worst_case_mse * (1 + 1e-9 + floored(counts))
    if not ours.abstains and ours.levels.active and ours.clamp is None:  # a clamp can bear more noise, or less
        assert ours.threshold >= saturation(ours.levels.epsilon, ours.levels.count, 2 / variance)


GAINS = {1000: (0.06, 0.08), 100: (0.17, 0.33), 10: (0.45, 0.65)}


@pytest.mark.parametrize("n", GAINS)
def test_the_gain_over_adpm_is_7_per_cent_at_a_thousand_people_20_to_30_at_a_hundred_50_at_ten(n):
    """On the high-variance population of Table II, log ε uniform in [−4, 2]; at n ≥ 100 also on the other one.

    The clamp adds something from a hundred people down.
    """
    rng = np.random.default_rng(n)
    low, high = GAINS[n]
    for ends in [(-4, 2)] + [(-3, -2)] * (n >= 100):
        for _ in range(5):
            epsilon = np.exp(rng.uniform(*ends, n))
            errors = [hetdp.plan(epsilon, method=name, bounds=UNIT).worst_case_mse for name in ("minimax", "adpm")]
            assert low < 1 - errors[0] / errors[1] < high


@pytest.mark.parametrize("n", [1, 2, 10, 1000, 10**9])
def test_with_public_people_alone_minimax_is_the_estimator_of_hodges_and_lehmann(n):
    plan = hetdp.plan({INF: n}, method="minimax", bounds=UNIT)
    assert plan.noiseless
    assert plan.shrink == pytest.approx(math.sqrt(n) / (1 + math.sqrt(n)))
    assert plan.worst_case_mse == pytest.approx(1 / (4 * (1 + math.sqrt(n)) ** 2))


def test_minimax_goes_smoothly_to_the_midpoint_as_privacy_grows():
    """With little ε the weights are proportional to it and 4 times the error is 8B/(1 + 8B), B = 1/(Σε)²."""
    errors = []
    for factor in (1, 0.1, 1e-2, 1e-4, 1e-6):
        plan = affine_plan({0.01 * factor: 100, 0.03 * factor: 50})
        B = 1 / (2.5 * factor) ** 2
        assert not plan.abstains
        assert plan.threshold == INF
        assert plan.shrink == pytest.approx(1 / (1 + 8 * B))
        assert plan.worst_case_mse == pytest.approx(2 * B / (1 + 8 * B))
        errors.append(plan.worst_case_mse)
    assert errors == sorted(errors)
    assert errors[-1] < 0.25


def test_the_distribution_to_fear_has_all_its_variance_only_where_the_bound_is_small():
    levels = hetdp.Levels({0.1: 700, INF: 300})
    assert least_favourable(levels, 1e-3) == 1e-3
    assert 0 < least_favourable(levels, 0.25) < 0.25
    assert least_favourable(hetdp.Levels({0.01: 100}), 0.25) == 0


# --- local --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("variance", VARIANCES)
@pytest.mark.parametrize(
    "counts", [{0.1: 700, 0.7: 300}, {0.02: 50, 0.5: 10, 2.0: 4}, {0.3: 20, INF: 9}, {0.0: 5, 1.0: 40}], ids=str
)
def test_local_combines_group_means_by_the_inverse_of_their_errors(counts, variance):
    error = {e: variance / n + 2 / (e * n) ** 2 for e, n in counts.items() if e > 0}
    total = sum(1 / x for x in error.values())
    plan = hetdp.plan(counts, method="ldpe", variance=variance, bounds=UNIT)
    for row in plan.table:
        assert row.share == pytest.approx(1 / error[row.epsilon] / total if row.epsilon else 0, rel=1e-6)
        assert row.spent == pytest.approx(row.epsilon)
    assert len(plan.noise) == sum(0 < e < INF for e in counts)  # one draw for every private group
    assert plan.worst_case_mse == pytest.approx(1 / total, rel=1e-6)
    assert plan.mse(0.01) == pytest.approx(
        sum((0.01 / n + 2 / (e * n) ** 2) / (error[e] * total) ** 2 for e, n in counts.items() if e > 0), rel=1e-6
    )


@pytest.mark.parametrize(("e1", "n1", "n2"), [(0.1, 700, 300), (0.01, 5000, 20), (2.0, 3, 4)])
def test_remark_2_local_is_as_good_as_adpm_beside_a_public_dataset(e1, n1, n2):
    n, f, R = n1 + n2, n1 / (n1 + n2), 1 + 8 / (e1**2 * n1)
    error = R / (4 * n * (f + (1 - f) * R))
    for method in ("ldpe", "adpm"):
        assert hetdp.plan({e1: n1, INF: n2}, method=method, bounds=UNIT).worst_case_mse == pytest.approx(
            error, rel=1e-6
        )
    assert (
        hetdp.plan({e1: n1, 2 * e1: n2}, method="ldpe", bounds=UNIT).worst_case_mse > 1.01 * error
    )  # needs the public dataset


# --- fme ----------------------------------------------------------------------------------------------------


def fme_by_loop(epsilons, *, strict=True):
    """Weights and noise of FME, person by person, as the formula is written: ε ascending, all above 0."""
    epsilon = sorted(epsilons)
    n = k = len(epsilon)
    for j in range(n):
        if epsilon[j] > 1 / math.sqrt(n - j) or (not strict and epsilon[j] == 1 / math.sqrt(n - j)):
            k = j
            break
    S = sum(epsilon[:k]) + math.sqrt(n - k)
    return [epsilon[i] / S if i < k else 1 / (math.sqrt(n - k) * S) for i in range(n)], 1 / S


def agrees_with(loop, counts):
    people = np.repeat(sorted(counts), [counts[e] for e in sorted(counts)])
    plan = hetdp.plan(counts, method="fme", bounds=UNIT)
    weights, noise = loop(people.tolist())
    error = sum(w * w for w in weights) / 4 + 2 * noise**2
    return (
        plan.weights(people) == pytest.approx(weights, rel=1e-6, abs=1e-9)
        and plan.noise_scale == pytest.approx(noise, rel=1e-6)
        and plan.worst_case_mse == pytest.approx(error, rel=1e-6)
    )


SATURATION_EXAMPLE = {0.01: 5000, 1.0: 5000}


@a_hundred
@given(st.dictionaries(st.floats(1e-3, 3) | st.just(INF), st.integers(1, 30), min_size=1, max_size=12))
def test_fme_is_its_formula_person_by_person(counts):
    assert agrees_with(fme_by_loop, counts)


def test_the_inequality_in_fme_is_strict():
    """The paper's example ε₁ = 0.01, n = 10⁴, f = 1/2 has ε₁ = 1/√n exactly, and prints w₂/w₁ = √2."""
    first, second = hetdp.plan(SATURATION_EXAMPLE, method="fme", bounds=UNIT).weights(list(SATURATION_EXAMPLE))
    assert second / first == pytest.approx(math.sqrt(2))
    assert agrees_with(fme_by_loop, SATURATION_EXAMPLE)
    assert not agrees_with(lambda epsilons: fme_by_loop(epsilons, strict=False), SATURATION_EXAMPLE)


# --- stretch ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [100, 10_000])
def test_example_2_a_point_mass_at_the_end_costs_a_twentieth_of_bias(n):
    """ε = 0.01 and 0.1, half each, all values 0.5: 0.225² + 200/n², printed 0.05 + 200/n²."""
    plan = hetdp.plan({0.01: n // 2, 0.1: n // 2}, method="stretch", bounds=UNIT)
    assert plan.mse(0, mean=0.5) == pytest.approx(0.225**2 + 200 / n**2, rel=1e-6)
    assert round(plan.mse(0, mean=0.5) - 200 / n**2, 2) == 0.05


def test_stretch_weighs_each_value_by_its_share_of_the_largest_epsilon():
    """(1/n)·Σ ε·x/ε_max + Laplace(1/(n·ε_max)) over the people with ε > 0."""
    counts = {0.0: 7, 0.2: 40, 0.5: 50, 3.0: 10}
    plan = hetdp.plan(counts, method="stretch", bounds=UNIT)
    assert plan.weights(list(counts)) == pytest.approx([e / 3 / 100 for e in counts])
    assert plan.noise_scale == pytest.approx(1 / 300)
    assert plan.shrink == pytest.approx((0.2 * 40 + 0.5 * 50 + 3 * 10) / 100 / 3)


def test_stretch_refuses_public_people_in_one_sentence():
    sentence = r"stretch .* must be finite \(got inf for 300 people\); give them a finite epsilon or choose another"
    with pytest.raises(hetdp.InputError, match=sentence):
        hetdp.plan({0.1: 700, INF: 300}, method="stretch", bounds=UNIT)


# --- threshold ----------------------------------------------------------------------------------------------


def threshold_by_force(counts, variance):
    """The error of every τ, by counting."""
    people = {tau: sum(n for e, n in counts.items() if e >= tau) for tau in counts if tau > 0}
    return {tau: variance / m + 2 / (m * tau) ** 2 for tau, m in people.items()}


@a_hundred
@given(
    st.dictionaries(st.floats(1e-3, 50) | st.sampled_from([0.0, INF]), st.integers(1, 500), min_size=1, max_size=9),
    st.sampled_from(VARIANCES),
)
def test_threshold_takes_the_best_level_and_the_plain_mean_above_it(counts, variance):
    errors = threshold_by_force(counts, variance)
    plan = hetdp.plan(counts, method="threshold", variance=variance, bounds=UNIT)
    if not errors:
        assert plan.abstains
        return
    assert plan.worst_case_mse == pytest.approx(min(errors.values()), rel=1e-6)
    assert errors[plan.threshold] == pytest.approx(min(errors.values()), rel=1e-12)
    m = sum(n for e, n in counts.items() if e >= plan.threshold)
    assert all(row.weight == pytest.approx((row.epsilon >= plan.threshold) / m) for row in plan.table)
    assert plan.noise_scale == pytest.approx(1 / (m * plan.threshold), abs=1e-9)


def test_the_variance_decides_whom_threshold_leaves_out():
    counts = {0.1: 500, 0.4: 500}
    assert (
        hetdp.plan(counts, method="threshold", bounds=UNIT).threshold == 0.1
    )  # 0.25/1000 + 2/100² < 0.25/500 + 2/200²
    assert hetdp.plan(counts, method="threshold", variance=0.001, bounds=UNIT).threshold == 0.4


# --- Table II -----------------------------------------------------------------------------------------------

PRINTED = {
    "adpm": (-9.3, -8.1),
    "proportional": (-9.0, -8.1),
    "ldpe": (-7.2, -1.3),
    "fme": (-6.2, -6.2),
    "uniform": (-5.1, -7.1),
}


@cache
def populations():
    rng = np.random.default_rng(20230107)
    return [[np.exp(rng.uniform(*ends, 1000)) for _ in range(9)] for ends in ((-4, 2), (-3, -2))]


def log_errors(error):
    """The natural log of an error for a population, averaged over its redraws: high variance of ε, low variance."""
    return [np.mean([math.log(error(epsilon)) for epsilon in draws]) for draws in populations()]


def exact(method, **options):
    """From ε to the exact error for Beta(2, 3) data, of variance 1/25 and mean −1/10."""
    return lambda epsilon: hetdp.plan(epsilon, bounds=UNIT, method=method, **options).mse(0.04, mean=-0.1)


@pytest.mark.parametrize("method", PRINTED)
def test_table_II_is_reproduced(method):
    assert log_errors(exact(method)) == pytest.approx(PRINTED[method], abs=0.12)


def tightened_fme(epsilon):
    """The known-bad FME whose noise is only what people ask for."""
    w = hetdp.plan(epsilon, method="fme", bounds=UNIT).weights(epsilon)
    return 0.04 * np.sum(w**2) + 2 * np.max(w / epsilon) ** 2


def evenly_combined_local(epsilon):
    """The known-bad LDPE whose groups, here single people, all count the same."""
    return 0.04 / epsilon.size + 2 * np.sum((1 / (epsilon.size * epsilon)) ** 2)


@pytest.mark.parametrize(("method", "wrong"), [("fme", tightened_fme), ("ldpe", evenly_combined_local)])
def test_table_II_tells_a_wrong_formula_from_the_right_one(method, wrong):
    assert log_errors(wrong) != pytest.approx(PRINTED[method], abs=0.12)
