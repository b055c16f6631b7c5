"""The paper's bounds against each other, plans, their limits, and mechanisms that can be enumerated."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

import hetdp
from hetdp.paper import bounds
from support import UNIT

INF = math.inf


def random_groups(count, seed=1):
    """(ε₁, ε₂, n, f) over many magnitudes, on both sides of the saturation, with nf a whole number."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        n = int(10 ** rng.uniform(0.4, 6))
        first = int(rng.integers(1, n)) if n > 1 else 1
        eps1 = float(10 ** rng.uniform(-6, 1.5))
        eps2 = eps1 * float(10 ** rng.choice([0, rng.uniform(0, 1), rng.uniform(0, 5)]))
        yield eps1, eps2, n, first / n


GROUPS = list(random_groups(4000))


def saturated(eps1, eps2, n, f):
    return bounds.r(eps1, eps2) > bounds.R(eps1, n, f)


# --- Theorem 1 ---------------------------------------------------------------------------------------------------


def test_the_two_printed_forms_of_each_case_agree():
    for eps1, eps2, n, f in GROUPS:
        assert bounds.theorem_1_a(eps1, eps2, n, f) == pytest.approx(bounds.theorem_1_a_ratio(eps1, eps2, n, f), 1e-11)
        assert bounds.theorem_1_b(eps1, n, f) == pytest.approx(bounds.theorem_1_b_people(eps1, n, f), 1e-11)


def test_the_first_form_is_the_mean_of_squares_over_the_square_of_the_mean():
    for eps1, eps2, n, f in GROUPS[:500]:
        mean, squares = bounds.eps_bar(eps1, eps2, f), bounds.mean_square(eps1, eps2, f)
        printed = squares / (4 * n * mean**2) + 2 / (n * mean) ** 2
        assert bounds.theorem_1_a(eps1, eps2, n, f) == pytest.approx(min(printed, 0.25), 1e-12)


def test_theorem_1_is_what_a_plan_predicts():
    """The plan solves the program by itself; its noise is discrete, so its error is a hair smaller."""
    sides = set()
    for eps1, eps2, n, f in GROUPS[:600]:
        levels = hetdp.Levels.of(np.repeat([eps1, eps2], [round(n * f), n - round(n * f)])) if n < 1e4 else None
        if levels is not None:
            sides.add(saturated(eps1, eps2, n, f))
            assert hetdp.plan(levels, bounds=UNIT).worst_case_mse == pytest.approx(bounds.upper(eps1, eps2, n, f), 1e-6)
    assert sides == {True, False}


def test_the_cases_meet_at_the_saturation_and_a_larger_eps2_changes_nothing_after_it():
    for eps1, _, n, f in GROUPS[:500]:
        border = bounds.R(eps1, n, f) * eps1
        assert bounds.theorem_1_a(eps1, border, n, f) == pytest.approx(bounds.theorem_1_b(eps1, n, f), 1e-9)
        assert bounds.upper(eps1, 10 * border, n, f) == bounds.upper(eps1, INF, n, f)


def test_table_1_weighs_as_a_plan_does_and_sums_to_one():
    for eps1, eps2, n, f in GROUPS[:300]:
        w1, w2 = bounds.table_1(eps1, eps2, n, f)
        assert n * f * w1 + n * (1 - f) * w2 == pytest.approx(1, 1e-12)
        plan = hetdp.plan({eps1: round(n * f), eps2: n - round(n * f)}, bounds=UNIT) if eps1 < eps2 else None
        if plan is not None and not plan.abstains:
            first, second = (row.weight for row in plan.table)
            assert second / first == pytest.approx(w2 / w1, 1e-4)


def test_remark_2_is_theorem_1_b():
    for eps1, _, n, f in GROUPS:
        assert min(bounds.remark_2(eps1, n, f), 0.25) == pytest.approx(bounds.theorem_1_b(eps1, n, f), 1e-11)


# --- Limits ------------------------------------------------------------------------------------------------------


def one_group(epsilon, n):
    """The homogeneous case as the paper states it: 1/(4n) + 2/(nε)²."""
    return min(1 / (4 * n) + (2 / (n * epsilon) ** 2 if epsilon else INF), 0.25)


LIMITS = [
    ("f = 0", (0.1, 0.3, 1000, 0), one_group(0.3, 1000)),
    ("f = 0, public", (0.1, INF, 1000, 0), 1 / 4000),
    ("f = 1", (0.1, 0.3, 1000, 1), one_group(0.1, 1000)),
    ("f = 1, beside a public group of nobody", (0.1, INF, 1000, 1), one_group(0.1, 1000)),
    ("equal levels", (0.2, 0.2, 500, 0.3), one_group(0.2, 500)),
    ("ε₁ = 0", (0, 0.3, 1000, 0.4), one_group(0.3, 600)),
    ("ε₁ = 0, ε₂ = ∞", (0, INF, 1000, 0.4), 1 / 2400),
    ("ε₁ = 0, f = 1", (0, 0.3, 1000, 1), 0.25),
    ("nobody", (0, 0, 1000, 0.5), 0.25),
    ("everybody public", (INF, INF, 1000, 0.5), 1 / 4000),
    ("a public group", (0.1, INF, 1000, 0.7), (7 + 8) / (4000 * (7 + 8 * 0.3))),
    ("huge", (1e200, 1e300, 1000, 0.5), 1 / 4000),
    ("tiny", (1e-300, 1e-200, 1000, 0.5), 0.25),
    ("one person", (1, 1, 1, 1), 0.25),
]


@pytest.mark.parametrize(("groups", "expected"), [case[1:] for case in LIMITS], ids=[case[0] for case in LIMITS])
def test_limits(groups, expected):
    assert bounds.upper(*groups) == pytest.approx(expected, 1e-12)
    assert 0 < bounds.lower(*groups) <= expected / 1000
    assert all(math.isfinite(bound) and bound >= 0 for bound in lower_bounds(*groups))


def test_limits_are_limits():
    """A value close to the limit is close to the value at the limit."""
    for eps1, eps2, n, f in GROUPS[:300]:
        assert bounds.upper(eps1, 1e13 * eps2, n, f) == pytest.approx(bounds.upper(eps1, INF, n, f), 1e-6)
        assert bounds.upper(eps1 * 1e-13, eps2, n, f) == pytest.approx(bounds.upper(0, eps2, n, f), 1e-6)
        assert bounds.upper(eps1, eps2, n, 1e-13) == pytest.approx(bounds.upper(eps1, eps2, n, 0), 1e-5)


def test_the_quantities_at_their_limits():
    assert bounds.R(0, 10, 0.5) == bounds.R(1, 10, 0) == INF
    assert bounds.R(INF, 10, 0.5) == 1
    assert [bounds.r(*pair) for pair in [(0, 0), (INF, INF), (0, 1), (1, INF), (2, 3)]] == [1, 1, INF, INF, 1.5]
    assert bounds.eps_bar(1, INF, 1) == bounds.mean_square(1, INF, 1) == 1
    assert bounds.table_1(0, 1, 10, 0.5) == (0, 0.2)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: bounds.upper(2, 1, 10, 0.5), "eps1 must not be above eps2 .* stricter group first"),
        (lambda: bounds.upper(-1, 1, 10, 0.5), "epsilon must be 0, positive or inf"),
        (lambda: bounds.upper(math.nan, 1, 10, 0.5), "epsilon must be 0, positive or inf"),
        (lambda: bounds.lower(1, 1, 0, 0.5), "n must be a number of people"),
        (lambda: bounds.R(1, 10, 1.5), "f must be the share"),
        (lambda: bounds.lemma_2(1, 1.5), "a probability is between 0 and 1"),
        (lambda: bounds.lemma_4_pair(1.5), "delta is a distance"),
    ],
)
def test_what_breaks_a_rule_is_refused_in_words(call, sentence):
    with pytest.raises(hetdp.InputError, match=sentence):
        call()


# --- Theorem 2 and the chain of Appendix C -------------------------------------------------------------------------


def lower_bounds(eps1, eps2, n, f):
    found = [
        bounds.lemma_4_sampling(n),
        bounds.lemma_4_mixed(eps1, n, f),
        bounds.lemma_4_private(eps1, eps2, n, f),
        bounds.equation_b(eps1, n, f),
        bounds.equation_c(eps1, eps2, n, f),
        bounds.theorem_2_b(eps1, n, f),
    ]
    return found if saturated(eps1, eps2, n, f) else [*found, bounds.theorem_2_a(eps1, eps2, n, f)]


def chain(eps1, eps2, n, f):
    """Each step of Appendix C as (smaller, larger)."""
    sampling = bounds.lemma_4_sampling(n)
    mixed, b = bounds.lemma_4_mixed(eps1, n, f), bounds.equation_b(eps1, n, f)
    private, c = bounds.lemma_4_private(eps1, eps2, n, f), bounds.equation_c(eps1, eps2, n, f)
    saturation, joined = bounds.theorem_2_b(eps1, n, f), bounds.equation_l23(eps1, eps2, n, f)
    yield "(a + b)² ≤ 2(a² + b²) and f ≤ 1", b, mixed
    yield "128 · 16 = 512 · 4", c, private
    yield "(A) and (B) give (lb-sat)", saturation, max(sampling, b)
    yield "(lb-sat) and (C) give (L23-bound)", joined, (1048 * saturation + 512 * c) / 1560
    if not saturated(eps1, eps2, n, f):
        yield "U(r) ≤ L₂ + L₃(r) for r ≤ R", bounds.theorem_2_a(eps1, eps2, n, f), joined


def broken(steps):
    return [(name, small / large) for name, small, large in steps if small > large * (1 + 1e-9)]


def test_every_step_of_appendix_c_holds():
    for groups in GROUPS:
        assert broken(chain(*groups)) == [], groups


def test_control_a_constant_that_is_too_good_breaks_the_chain():
    """With 1/1048 replaced by 1/200 the saturated bound no longer follows from (A) and (B)."""
    steps = [
        ("", bounds.theorem_1_b(eps1, n, f) / 200, max(bounds.lemma_4_sampling(n), bounds.equation_b(eps1, n, f)))
        for eps1, _, n, f in GROUPS
    ]
    assert broken(steps)


def test_theorem_2_is_below_theorem_1_by_its_constant_and_so_is_every_lemma():
    for groups in GROUPS:
        upper, lower = bounds.upper(*groups), bounds.lower(*groups)
        assert upper / lower == pytest.approx(1048 if saturated(*groups) else 1560, 1e-12)
        assert max(lower_bounds(*groups)) < upper


def test_the_bounds_of_lemma_4_are_le_cam_at_the_printed_delta():
    """δ²/16 with the printed δ, which Le Cam's method and Lemma 5 allow for a group of whole people."""
    for eps1, eps2, n, f in [(0.1, 0.15, 50, 0.5), (0.01, 3.0, 20, 0.7), (1.0, INF, 30, 0.3), (1e-3, 2e-3, 10, 0.2)]:
        first = round(n * f)
        epsilons = [eps1] * first + [eps2] * (n - first)
        cases = [
            (0, 1 / math.sqrt(6 * n), bounds.lemma_4_sampling(n)),
            (first, 1 / (4 * first * eps1 + 4 * math.sqrt(8 * (n - first))), bounds.lemma_4_mixed(eps1, n, f)),
            (n, 1 / (4 * n * bounds.eps_bar(eps1, eps2, f)), bounds.lemma_4_private(eps1, eps2, n, f)),
        ]
        for k, delta, bound in cases:
            d = min(delta, 0.5)
            assert bound == pytest.approx(d * d / 16, 1e-12)
            assert bound <= bounds.le_cam(d / 2, bounds.lemma_5(epsilons, *bounds.lemma_4_pair(d), k=k)) * (1 + 1e-12)


def test_the_divergence_of_the_pair_is_at_most_three_delta_squared():
    for delta in np.linspace(0, 0.5, 101):
        law = np.array([(1 + delta) / 2, (1 - delta) / 2])
        tv, kl = bounds.lemma_4_pair(delta)
        assert tv == pytest.approx(0.5 * np.abs(law - law[::-1]).sum())
        assert kl == pytest.approx(np.sum(law * np.log(law / law[::-1])), abs=1e-15)
        assert kl <= 3 * delta**2
    assert bounds.lemma_4_pair(1) == (1, INF)


def combined(eps1, n, f):
    """The convex combination of (A) and (B) in Appendix C."""
    return (6 * bounds.lemma_4_sampling(n) + 256 * f * bounds.equation_b(eps1, n, f)) / (6 + 256 * f)


def displayed(eps1, n, f):
    """What Appendix C displays below it, before (lb-sat)."""
    y = n * f * eps1**2
    return min((y + 8) / (262 * n * (y + 8 * (1 - f))), 0.25) / 16


def drawn_groups(count=20_000):
    """Random (ε₁, n, f): n from 1 to 10⁶, ε₁ from 10⁻⁶ to 100, half of the f near 1, where (B) is capped."""
    rng = np.random.default_rng(9)
    n, eps1 = 10 ** rng.uniform(0, 6, count), 10 ** rng.uniform(-6, 2, count)
    f = np.where(rng.random(count) < 0.5, rng.random(count), 1 - 10 ** rng.uniform(-9, 0, count))
    return zip(eps1.tolist(), n.tolist(), f.tolist(), strict=True)


def test_the_displayed_step_of_appendix_c_fails_and_its_last_line_follows():
    """Erratum: min(·, 1/4) is concave, so the combination can be below the displayed line, but never below (lb-sat)."""
    eps1, n, f = 0.001, 1, 1
    assert bounds.equation_b(eps1, n, f) == 1 / 64
    assert combined(eps1, n, f) / displayed(eps1, n, f) == pytest.approx(0.9924, abs=1e-4)
    groups = [(eps1, n, f), *drawn_groups()]
    assert min(combined(*g) / bounds.theorem_2_b(*g) for g in groups) > 1 - 1e-12
    capped = [g for g in groups if bounds.equation_b(*g) == 1 / 64]
    assert len(capped) > 100
    assert min(f for _, _, f in capped) >= 63 / 64


def test_control_the_combination_is_below_a_bound_that_is_two_per_cent_larger():
    assert min(combined(*g) / (1.02 * bounds.theorem_2_b(*g)) for g in drawn_groups()) < 1


# --- Lemmas 2 and 5 on mechanisms that can be enumerated -------------------------------------------------------------


def randomised_response(epsilons):
    """P[data, output]: everybody's bit, told with odds e^ε : 1. Data and outputs are all bit vectors."""
    truth = [1 / (1 + math.exp(-e)) for e in epsilons]
    table = np.ones((1, 1))
    for t in truth:
        table = np.kron(table, [[t, 1 - t], [1 - t, t]])
    return table


def discrete_laplace(epsilons):
    """P[data, output]: Σ εᵢxᵢ on a lattice with the smallest ε as its step, discrete Laplace noise, clamped ends."""
    h = min(epsilons)
    weights = [math.floor(e / h) for e in epsilons]
    q, size = math.exp(-h), 2 * sum(weights) + 20
    rows = []
    for x in itertools.product([0, 1], repeat=len(epsilons)):
        centre = size // 2 + sum(w * b for w, b in zip(weights, x, strict=True)) - sum(weights) // 2
        law = (1 - q) / (1 + q) * q ** np.abs(np.arange(size) - centre).astype(float)
        law[0], law[-1] = q**centre / (1 + q), q ** (size - 1 - centre) / (1 + q)
        rows.append(law)
    return np.array(rows)


def laws(n, p):
    """The probability of each bit vector, first bit slowest, when bit i is 1 with chance p[i]."""
    table = np.ones(1)
    for chance in p[:n]:
        table = np.kron(table, [1 - chance, chance])
    return table


MECHANISMS = [
    (maker, epsilons)
    for maker in (randomised_response, discrete_laplace)
    for epsilons in [(0.5,), (3.0,), (0.2, 0.9), (0.1, 0.3, 0.7), (0.5, 1.5, 1.5), (0.05, 0.1, 2.0)]
]
NAMES = [f"{maker.__name__}{epsilons}" for maker, epsilons in MECHANISMS]


@pytest.mark.parametrize(("maker", "epsilons"), MECHANISMS, ids=NAMES)
def test_the_small_mechanisms_keep_everybody_private(maker, epsilons):
    table = maker(epsilons)
    assert table.sum(axis=1) == pytest.approx(1)
    for a, b, i in neighbours(len(epsilons)):
        assert np.max(table[a] / table[b]) <= math.exp(epsilons[i]) * (1 + 1e-9)


def neighbours(n):
    """Pairs of data sets that differ in person i alone, in both orders."""
    return [(a, a ^ (1 << (n - 1 - i)), i) for a in range(2**n) for i in range(n)]


def events(table, rng, count=200):
    """Random events, and for small outputs all of them, as columns of zeros and ones."""
    outputs = table.shape[1]
    if outputs <= 8:
        return np.array(list(itertools.product([0, 1], repeat=outputs))).T
    return (rng.random((outputs, count)) < rng.random(count)).astype(float)


@pytest.mark.parametrize(("maker", "epsilons"), MECHANISMS, ids=NAMES)
def test_lemma_2_holds_for_every_event(maker, epsilons):
    table = maker(epsilons)
    chance = np.clip(table @ events(table, np.random.default_rng(2)), 0, 1)
    for a, b, i in neighbours(len(epsilons)):
        for here, there in zip(chance[a], chance[b], strict=True):
            low, high = bounds.lemma_2(epsilons[i], there)
            assert low - 1e-12 <= here <= high + 1e-12
            assert abs(here - there) <= bounds.lemma_2_difference(epsilons[i])


def test_lemma_2_lets_go_of_the_stronger_lower_bound():
    """Erratum: the proof calls 1 − e^ε(1 − P′) the weaker of two lower bounds; at P′ = 1 it is 1, not e^{−ε}."""
    epsilon, probability = 1.0, 0.99
    low, _ = bounds.lemma_2(epsilon, probability)
    assert 1 - math.exp(epsilon) * (1 - probability) > 2 * low


def lemma_5_excess(factor):
    """The largest exact total variation of the outputs, over `factor` times Lemma 5's bound, over all cases."""
    worst = 0.0
    for maker, epsilons in MECHANISMS:
        table, n = maker(epsilons), len(epsilons)
        for one, two in [(0.5, 0.6), (0.2, 0.8), (0.05, 0.5), (0.9, 0.95)]:
            tv = abs(one - two)
            kl = one * math.log(one / two) + (1 - one) * math.log((1 - one) / (1 - two))
            exact = 0.5 * np.abs((laws(n, [one] * n) - laws(n, [two] * n)) @ table).sum()
            for k in range(n + 1):
                worst = max(worst, exact / (factor * bounds.lemma_5(epsilons, tv, kl, k=k)))
            assert bounds.lemma_5(epsilons[::-1], tv, kl) == min(
                bounds.lemma_5(sorted(epsilons), tv, kl, k=k) for k in range(n + 1)
            )
    return worst


def test_lemma_5_bounds_the_exact_total_variation():
    assert lemma_5_excess(1) <= 1


def test_control_half_of_lemma_5_is_broken():
    assert lemma_5_excess(0.5) > 1
