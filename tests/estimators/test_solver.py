"""The closed-form solver against oracles that share nothing with it: a convex solver, exact fractions, the paper."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache
from itertools import pairwise

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import hetdp
from hetdp.core.levels import saturation
from support import UNIT, examples, level_counts

INF = math.inf
METHODS = list(hetdp.methods())
LARGEST = 1.7976931348623157e308
RHO = 8  # the paper's constant: noise variance 2 over the variance bound 1/4


# --- Algorithm 1, solved by a convex solver -----------------------------------------------------------------


def _battery():
    """Vectors that a convex solver handles well: random ones, ties, public people, single people, two groups."""
    rng = np.random.default_rng(20230107)
    sizes = [(2, -1, 0), (5, -2, 1), (12, -1, 1), (30, -2, 2), (60, -2, 0), (60, -3, 1), (40, 0, 2)]
    vectors = [10 ** rng.uniform(low, high, n) for n, low, high in sizes]
    vectors += [np.append(vector[::2], [INF, INF]) for vector in vectors[2:5]]
    vectors += [
        np.repeat([first, second], [20, 10]) for first, second in [(0.5, 40), (2, 2.5), (0.1, INF), (1e-3, 1e3)]
    ]
    return (*vectors, *map(np.array, ([1.0], [50.0], [INF], [INF, INF, 0.3], [3.0] * 20, [0.01, 0.1, 1, 10, 100])))


BATTERY = _battery()
VARIANCES = (0.25, 0.04, 1 / 12)


@cache
def optimum(case, variance):
    """The least objective, the weights and the largest w/η of the paper's program, by Clarabel."""
    epsilon = BATTERY[case]
    w = cp.Variable(epsilon.size, nonneg=True)
    objective = variance * cp.sum_squares(w) + 2 * cp.square(cp.max(cp.multiply(w, 1 / epsilon)))
    problem = cp.Problem(cp.Minimize(epsilon.size * objective), [cp.sum(w) == 1])
    problem.solve(solver=cp.CLARABEL, tol_gap_abs=1e-11, tol_gap_rel=1e-11, tol_feas=1e-11)
    assert problem.status == cp.OPTIMAL
    return problem.value / epsilon.size, w.value


def objective(w, epsilon, variance):
    return variance * np.sum(w**2) + 2 * np.max(w / epsilon) ** 2


def excess(solve, variance):
    """How far the weights of `solve` are from the convex optimum, at worst over the battery: objective, weights."""
    worst, apart = 0.0, 0.0
    for case, epsilon in enumerate(BATTERY):
        best, best_w = optimum(case, variance)
        w = solve(epsilon, variance)
        worst = max(worst, abs(objective(w, epsilon, variance) / best - 1), abs(np.sum(w) - 1))
        apart = max(apart, np.max(np.abs(w - best_w)) / np.max(best_w))
    return worst, apart


def capped(epsilon, t):
    w = np.minimum(epsilon, t) if t < INF else np.where(np.isinf(epsilon).any(), np.isinf(epsilon), epsilon)
    return w / np.sum(w)


def by_saturation(epsilon, variance):
    return capped(epsilon, saturation(*np.unique(epsilon, return_counts=True), rho=2 / variance))


def by_wrong_rho(epsilon, variance):
    return capped(epsilon, saturation(*np.unique(epsilon, return_counts=True), rho=1 / variance))


def by_proportion(epsilon, variance):
    return capped(epsilon, INF)


def by_level_off_by_one(epsilon, variance):
    return capped(epsilon, off_by_one(*np.unique(epsilon, return_counts=True), rho=2 / variance))


def off_by_one(epsilon, count, rho):
    """The known-bad solver that stops one level late."""
    finite = np.isfinite(epsilon) & (epsilon > 0)
    level, people = epsilon[finite], count[finite]
    if not level.size:
        return INF
    with np.errstate(over="ignore"):
        sums, squares = np.cumsum(people * level), np.cumsum(people * level**2)
    last = int(np.argmax(np.append(rho + squares[:-1] <= sums[:-1] * level[1:], True)))
    last = min(last + 1, level.size - 1)
    return float((rho + squares[last]) / sums[last])


@pytest.mark.parametrize("variance", VARIANCES)
def test_weights_from_the_threshold_solve_the_papers_program(variance):
    worst, apart = excess(by_saturation, variance)
    assert worst < 1e-6
    assert apart < 1e-3


@pytest.mark.parametrize("variance", VARIANCES)
@pytest.mark.parametrize("wrong", [by_wrong_rho, by_proportion, by_level_off_by_one])
def test_the_convex_solver_notices_a_wrong_solver(wrong, variance):
    worst, apart = excess(wrong, variance)
    assert worst > 1e-4
    assert apart > 1e-2


@pytest.mark.parametrize("variance", VARIANCES)
@pytest.mark.parametrize("case", range(len(BATTERY)))
def test_a_plan_reaches_the_convex_optimum_or_abstains_because_it_exceeds_a_quarter(case, variance):
    epsilon = BATTERY[case]
    best, best_w = optimum(case, variance)
    plan = hetdp.plan(epsilon, variance=variance, bounds=UNIT)
    assert plan.abstains == (best > 0.25 * (1 + 1e-9))
    if plan.abstains:
        assert plan.worst_case_mse == 0.25
        return
    w = plan.weights(epsilon)
    assert objective(w, epsilon, variance) == pytest.approx(best, rel=1e-6)
    assert plan.worst_case_mse == pytest.approx(best, rel=1e-6)
    assert plan.noise_scale == pytest.approx(np.max(best_w / epsilon), rel=1e-3, abs=1e-9)
    assert w == pytest.approx(best_w, rel=1e-3, abs=1e-3 * best_w.max())


# --- Wild vectors, in exact fractions -----------------------------------------------------------------------


def exact_threshold(counts, rho):
    """t = (ρ + S2)/S1 over the levels below t, found by scanning; None without a private level."""
    levels = sorted((Fraction(level), people) for level, people in counts.items() if 0 < level < INF)
    first = second = Fraction(0)
    t = None
    for level, people in levels:
        if t is not None and level >= t:
            break
        first, second = first + people * level, second + people * level**2
        t = (rho + second) / first
    return t


def duality_gap(counts, t, variance=Fraction(1, 4)):
    """Primal minus dual of Algorithm 1's program at the cap t: 0 proves the weights min(ε, t) optimal.

    The dual of a·Σw² + 2η² with w ≤ ηε and Σw = 1 is ν − (Σμ)²/8 − Σ((ν − μ/ε)₊)²/(4a), μ ≥ 0.
    """
    used = [(level, people) for level, people in counts.items() if level > 0]
    spent = [(min(Fraction(level), t) if level < INF else t, people) for level, people in used]
    eta = 1 / sum(s * people for s, people in spent)
    primal = variance * eta**2 * sum(people * s**2 for s, people in spent) + 2 * eta**2
    nu = 2 * variance * eta * t
    prices = [max(nu - 2 * variance * eta * s, Fraction(0)) for s, _ in spent]  # μ/ε, 0 where ε is above the cap
    mu = sum(price * s * people for price, (s, people) in zip(prices, spent, strict=True))
    rest = sum(people * max(nu - price, Fraction(0)) ** 2 for price, (_, people) in zip(prices, used, strict=True))
    return primal, primal - (nu - mu**2 / 8 - rest / (4 * variance))


def arrays(counts):
    level, people = zip(*sorted(counts.items()), strict=True)
    return np.array(level, dtype=float), np.array(people, dtype=np.int64)


def same_threshold(found, exact):
    """Compare a double with the exact threshold, which may lie beyond the doubles."""
    if exact is None or found == INF:
        return found == INF and (exact is None or exact > Fraction(LARGEST))
    return abs(Fraction(found) - exact) <= exact * Fraction(1, 10**9)


tiny_to_huge = st.one_of(
    st.sampled_from([5e-324, 2.3e-308, 1e-300, 1e300, LARGEST, INF, 0.0]),
    st.floats(min_value=-300, max_value=300).map(lambda x: 10.0**x),
    st.floats(min_value=-3, max_value=3).map(lambda x: 10.0**x),
)
wild = st.dictionaries(tiny_to_huge, st.integers(min_value=1, max_value=2000), min_size=1, max_size=12)
WILD_CASES = (
    {0.1: 700, INF: 300},
    {1e-300: 5, 0.2: 50, 0.9: 50, 1e300: 3},
    {1e-12: 7, 1e-3: 100, 0.3: 40, 0.4: 40, 2.0: 10, 1e12: 1},
)


@settings(deadline=None, max_examples=examples(300))
@given(wild, st.sampled_from([Fraction(1, 4), Fraction(1, 25), Fraction(1, 10**6)]))
@example({5e-324: 1, INF: 1}, Fraction(1, 4))
@example({5e-324: 1}, Fraction(1, 4))
@example({LARGEST: 2000}, Fraction(1, 4))
@example({1e-300: 1, 1e300: 1}, Fraction(1, 4))
def test_the_threshold_is_exact_to_nine_digits_for_any_levels(counts, variance):
    exact = exact_threshold(counts, 2 / variance)
    assert same_threshold(saturation(*arrays(counts), rho=2 / float(variance)), exact)
    if exact is not None:
        assert duality_gap(counts, exact, variance)[1] == 0  # the oracle proves itself


@pytest.mark.parametrize(
    "wrong",
    [off_by_one, lambda e, c, rho: saturation(e, c, rho / 2), lambda *_: INF],
    ids=["level off by one", "rho = 4", "proportional"],
)
@pytest.mark.parametrize("counts", WILD_CASES[1:])
def test_the_exact_threshold_notices_a_wrong_solver(wrong, counts):
    exact = exact_threshold(counts, RHO)
    found = wrong(*arrays(counts), RHO)
    assert not same_threshold(found, exact)
    assert duality_gap(counts, min(Fraction(found) if found < INF else 2 * exact, 2 * exact))[1] > 0


@settings(deadline=None, max_examples=examples(200))
@given(wild)
@example({INF: 1})
@example({5e-324: 5, INF: 2})
@example({1e-3: 1, 1e300: 1})
@example(WILD_CASES[0])
@example(WILD_CASES[1])
def test_a_plan_follows_the_exact_optimum_for_any_levels(counts):
    """Weights, noise scale and error, up to the flooring of n weights on a lattice of 2³⁰."""
    plan = hetdp.plan(counts, bounds=UNIT)
    used = {level: people for level, people in counts.items() if level > 0}
    t = exact_threshold(counts, RHO)
    if not used:
        assert plan.abstains
        return
    if t is None:  # public people alone
        spent, eta, best = dict.fromkeys(used, Fraction(1)), Fraction(0), Fraction(1, 4 * sum(used.values()))
        total = Fraction(sum(used.values()))
    else:
        spent = {level: min(Fraction(level), t) if level < INF else t for level in used}
        total = sum(spent[level] * people for level, people in used.items())
        eta, best = 1 / total, duality_gap(counts, t)[0]
    if abs(4 * best - 1) > Fraction(1, 10**4):
        assert plan.abstains == (best > Fraction(1, 4))
    assert plan.worst_case_mse == pytest.approx(float(min(best, Fraction(1, 4))), rel=1e-4)
    if not plan.abstains:
        needed = max((row.weight / row.epsilon for row in plan.table if row.weight), default=0)
        assert needed * (1 - 1e-9) <= plan.noise_scale <= max(float(eta) * (1 + 1e-4), 1e-10)
        w = np.array([float(spent[level] / total) for level in used])
        assert plan.weights(list(used)) == pytest.approx(w, rel=1e-4, abs=w.max() * 1e-8)


# --- The paper's printed formulas ---------------------------------------------------------------------------


def ratio(e1, n1):
    return 1 + RHO / (e1**2 * n1)  # R, with n1 = n·f


TWO_GROUPS = [(0.1, 700, 300), (0.01, 40_000, 40_000), (0.5, 50, 950), (2.0, 30, 70), (0.03, 5_000, 1)]
SIDES = [0.3, 0.999, 1 - 1e-9, 1.0, 1 + 1e-9, 1.001, 7.0, 1e6, INF]  # ε2 as a multiple of R·ε1


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize(("e1", "n1", "n2"), TWO_GROUPS)
def test_table_I_and_theorem_1_hold_on_either_side_of_the_threshold(e1, n1, n2, side):
    n, R = n1 + n2, ratio(e1, n1)
    f, e2 = n1 / n, max(side * R * e1, e1)
    plan = hetdp.plan({e1: n1, e2: n2} if e2 > e1 else {e1: n}, bounds=UNIT)
    w = plan.weights([e1, e2])
    if e2 > e1:
        nothing_saturates = (RHO + n1 * e1**2 + n2 * e2**2) / (n1 * e1 + n2 * e2) if side < 1 else None
        assert plan.threshold == pytest.approx(nothing_saturates or R * e1)
    if side <= 1:  # Table I, first row; Theorem 1 (A) in both printed forms
        r, mean, square = e2 / e1, f * e1 + (1 - f) * e2, f * e1**2 + (1 - f) * e2**2
        assert w == pytest.approx([e1 / (n * mean), e2 / (n * mean)], rel=1e-7)
        assert plan.worst_case_mse == pytest.approx(square / (4 * n * mean**2) + 2 / (n * mean) ** 2, rel=1e-7)
        second_form = (f * R + (1 - f) * r**2) / (4 * n * (f + (1 - f) * r) ** 2)
        assert plan.worst_case_mse == pytest.approx(second_form, rel=1e-7)
    if side >= 1:  # Table I, second row; Theorem 1 (B) in both printed forms
        low = 1 / (n * (f + (1 - f) * R))
        assert w == pytest.approx([low, R * low], rel=1e-7)
        assert plan.worst_case_mse == pytest.approx(R / (4 * n * (f + (1 - f) * R)), rel=1e-7)
        second_form = (n * f * e1**2 + 8) / (4 * n * (n * f * e1**2 + 8 * (1 - f)))
        assert plan.worst_case_mse == pytest.approx(second_form, rel=1e-7)


@pytest.mark.parametrize(("e2", "expected"), [(1.48e-2, 1.48), (3e-2, 3.0), (1e-1, 3.0)])
def test_the_isocurve_figure_has_its_three_printed_cases(e2, expected):
    """Figure of Appendix B: ε1 = 10⁻², n = 8·10⁴, f = 1/2, so R = 3."""
    w1, w2 = hetdp.plan({0.01: 40_000, e2: 40_000}, bounds=UNIT).weights([0.01, e2])
    assert w2 / w1 == pytest.approx(expected, rel=1e-7)


def homogeneous(n, epsilon):
    return 1 / (4 * n) + 2 / (n * epsilon) ** 2


def error(counts):
    return hetdp.plan(counts, bounds=UNIT).worst_case_mse


def test_the_limits_of_the_interpretation_are_those_of_the_paper():
    n, n1, e1, e2 = 1000, 700, 0.1, 0.8
    assert error({e1: 0, e2: n}) == pytest.approx(homogeneous(n, e2), rel=1e-7)  # f = 0
    assert error({e1: n, e2: 0}) == pytest.approx(homogeneous(n, e1), rel=1e-7)  # f = 1
    assert error({e1: n1, np.nextafter(e1, 1): n - n1}) == pytest.approx(homogeneous(n, e1), rel=1e-7)  # ε1 = ε2
    assert error({0.0: n1, e2: n - n1}) == pytest.approx(homogeneous(n - n1, e2), rel=1e-7)  # ε1 = 0
    assert error({0.0: n1, INF: n - n1}) == pytest.approx(1 / (4 * (n - n1)), rel=1e-12)  # (0, ∞)
    public = (n1 * e1**2 + 8) / (4 * n * (n1 * e1**2 + 8 * (n - n1) / n))  # ε2 → ∞
    assert error({e1: n1, INF: n - n1}) == pytest.approx(public, rel=1e-7)
    assert error({e1: n1, 1e9: n - n1}) == pytest.approx(public, rel=1e-7)


@pytest.mark.parametrize("e2", [0.8, INF])
def test_the_error_tends_to_that_of_the_second_group_as_the_first_epsilon_vanishes(e2):
    limit = 1 / 1200 + (2 / (300 * e2) ** 2 if e2 < INF else 0)
    gaps = [limit - error({e1: 700, e2: 300}) for e1 in (1e-1, 1e-2, 1e-3, 1e-5, 1e-7)]
    assert all(left > right > -1e-9 * limit for left, right in pairwise(gaps))
    assert gaps[-1] < 1e-6 * limit
    assert error({1e-300: 700, e2: 300}) == pytest.approx(limit, rel=1e-9)


# --- Better than the others, and better with more -----------------------------------------------------------

SLACK = 1 + 1e-4  # flooring n weights on a lattice of 2³⁰ costs at most 2n/2³⁰


@settings(deadline=None, max_examples=examples(200))
@given(level_counts)
def test_adpm_is_never_worse_than_uniform_and_proportional_or_it_abstains(counts):
    best, others = (
        hetdp.plan(counts, bounds=UNIT),
        [hetdp.plan(counts, method=name, bounds=UNIT) for name in ("uniform", "proportional")],
    )
    if best.abstains:
        assert best.worst_case_mse == 0.25
        assert all(other.abstains or other.worst_case_mse > 0.25 / SLACK for other in others)
    else:
        assert all(best.worst_case_mse <= other.worst_case_mse * SLACK for other in others)


def raised(counts, old, new):
    """Let one person move from level `old` to `new`; from None comes a person who was not there."""
    after = {level: people - (level == old) for level, people in counts.items()}
    after[new] = after.get(new, 0) + 1
    return after


def never_worse(before, after, method="adpm"):
    return (
        hetdp.plan(after, method=method, bounds=UNIT).worst_case_mse
        <= hetdp.plan(before, method=method, bounds=UNIT).worst_case_mse * SLACK
    )


@settings(deadline=None, max_examples=examples(200))
@given(level_counts, st.data())
def test_the_error_never_grows_when_somebody_asks_less_privacy_or_joins(counts, data):
    old, new = data.draw(st.sampled_from(sorted(counts))), data.draw(tiny_to_huge)
    moved = raised(counts, old, new)
    assert never_worse(counts, raised(counts, None, new))
    assert never_worse(counts, moved) if old <= new else never_worse(moved, counts)


def test_the_monotony_check_notices_the_methods_that_lack_it():
    """UNI suffers from a single cautious newcomer; PropDPM from people above the threshold who ask even less."""
    assert not never_worse({1.0: 1000}, raised({1.0: 1000}, None, 0.001), "uniform")
    assert not never_worse({0.1: 700, 0.5: 300}, {0.1: 700, 50.0: 300}, "proportional")
    assert never_worse({0.1: 700, 0.5: 300}, {0.1: 700, 50.0: 300})


# --- Edge cases, for every method ---------------------------------------------------------------------------

EDGES = (
    {0.0: 3},
    {INF: 3},
    {0.0: 2, INF: 3},
    {0.0: 1, 1.0: 500},
    {INF: 1},
    {1.0: 1},
    {0.0: 1},
    {5e-324: 1},
    {5e-324: 5, INF: 2},
    {5e-324: 5, 1.0: 500},
    {1e-300: 5, 1e300: 5},
    {1e-300: 1, 1e-12: 9, 0.1: 500, 2.0: 100, 1e12: 4, 1e300: 1, INF: 1},
    {1e300: 2},
    {0.3: 1000},
)


@pytest.mark.parametrize("counts", EDGES, ids=str)
@pytest.mark.parametrize("method", METHODS)
def test_every_method_gives_a_sound_plan_in_every_edge_case(method, counts):
    if method == "stretch" and INF in counts:  # it divides by the largest ε
        with pytest.raises(hetdp.InputError, match="finite"):
            hetdp.plan(counts, method=method, bounds=UNIT)
        return
    plan = hetdp.plan(counts, method=method, bounds=UNIT)
    assert [row.epsilon for row in plan.table] == sorted(counts)
    assert all(math.isfinite(row.weight) and row.weight >= 0 and row.spent <= row.epsilon for row in plan.table)
    assert all(row.weight == row.spent == 0 for row in plan.table if row.epsilon == 0 or plan.abstains)
    assert sum(row.share for row in plan.table) == pytest.approx(0 if plan.abstains else plan.shrink)
    assert 0 <= plan.noise_scale < INF
    assert 0 < plan.worst_case_mse < INF
    if method != "fme":  # whose noise stays where nobody needs it
        assert plan.noiseless == (not plan.abstains and all(row.epsilon == INF for row in plan.table if row.weight))


@pytest.mark.parametrize("method", METHODS)
def test_nobody_usable_means_the_midpoint_whatever_the_values(method):
    for values in ([10.0, 14.0], [math.nan, 1e300]):
        release = hetdp.mean(values, epsilon=[0, 0], bounds=(10, 14), method=method)
        assert release.plan.abstains
        assert release.estimate == release.unclamped == 12
        assert release.plan.worst_case_mse == 4  # width²/4


@pytest.mark.parametrize("epsilon", [[INF] * 4, [INF] * 4 + [0.0] * 3])
@pytest.mark.parametrize("method", [name for name in METHODS if name not in ("fme", "stretch")])
def test_public_people_alone_give_their_plain_mean_without_noise(method, epsilon):
    """Up to the pull to the midpoint; FME keeps its noise and stretching refuses public people."""
    values = [0.25, 0.5, 0.75, 1.0, 0.0, 0.0, 0.0][: len(epsilon)]
    release = hetdp.mean(values, epsilon=epsilon, bounds=(0, 1), method=method)
    assert release.plan.noiseless
    assert release.plan.noise_scale == 0
    assert release.unclamped == pytest.approx(0.5 + release.plan.shrink * (0.625 - 0.5), rel=1e-15)
    assert (release.plan.shrink, release.plan.worst_case_mse) == (1, 1 / 16) or method == "minimax"


def test_uniform_takes_the_smallest_positive_epsilon():
    plan = hetdp.plan({0.0: 10, 0.2: 40, 3.0: 50, INF: 10}, method="uniform", bounds=UNIT)
    assert plan.threshold == 0.2
    assert [row.weight for row in plan.table] == pytest.approx([0, 0.01, 0.01, 0.01])
    assert plan.noise_scale == pytest.approx(1 / (100 * 0.2))
    assert plan.worst_case_mse == pytest.approx(homogeneous(100, 0.2))


def test_proportional_gives_weights_in_proportion_and_with_public_people_their_plain_mean():
    plan = hetdp.plan({0.0: 10, 0.2: 40, 3.0: 50}, method="proportional", bounds=UNIT)
    assert [row.weight for row in plan.table] == pytest.approx([0, 0.2 / 158, 3 / 158], rel=1e-7)
    assert plan.noise_scale == pytest.approx(1 / 158, rel=1e-7)
    public = hetdp.plan({0.2: 40, 3.0: 50, INF: 10}, method="proportional", bounds=UNIT)
    assert [row.weight for row in public.table] == [0, 0, 0.1]
    assert public.noiseless
    assert public.worst_case_mse == pytest.approx(1 / 40)


@pytest.mark.parametrize("counts", [{1.0: 1}, {0.01: 100}, {0.001: 1000, 0.002: 100}])
def test_only_adpm_abstains_when_its_error_would_exceed_a_quarter(counts):
    assert hetdp.plan(counts, bounds=UNIT).abstains
    for method in set(METHODS) - {"adpm"}:
        plan = hetdp.plan(counts, method=method, bounds=UNIT)
        assert not plan.abstains
        assert plan.worst_case_mse > 0.25 or method == "minimax"


def test_adpm_abstains_exactly_where_the_papers_objective_passes_a_quarter():
    """One level of n people passes 1/4 at ε = √(8/(n² − n)); n = 1 with a public value stands at exactly 1/4."""
    for n in (2, 10, 1000, 10**6):
        border = math.sqrt(8 / (n * n - n))
        assert hetdp.plan({border * (1 - 1e-6): n}, bounds=UNIT).abstains
        assert not hetdp.plan({border * (1 + 1e-6): n}, bounds=UNIT).abstains
    assert not hetdp.plan({INF: 1}, bounds=UNIT).abstains


@pytest.mark.parametrize("method", METHODS)
def test_every_method_abstains_where_the_noise_could_not_be_drawn(method):
    """With 2³¹ people a weight is 2³⁰ units, so a scale above 2⁵⁸ begins at ε = 2⁻²⁸, far from any other reason."""
    border, people = 2.0**-28, 2**31
    assert hetdp.plan({border * (1 - 1e-9): people}, method=method, bounds=UNIT).abstains
    assert hetdp.plan({1e-300: people}, method=method, bounds=UNIT).abstains
    assert not hetdp.plan({border * (1 + 1e-9): people}, method=method, bounds=UNIT).abstains
