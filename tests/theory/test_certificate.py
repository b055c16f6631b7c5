"""The certificate against what nothing may be below: the exact optimum for few people, every method, exact mechanisms.

The oracles share nothing with the package: a linear program over all mechanisms, corners of the set of ε-DP mechanisms
with everything summed over all data sets, numerical integrals by scipy.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import math
import re
from decimal import Decimal
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from scipy import integrate, stats
from scipy.optimize import linprog
from scipy.sparse import csr_matrix

import hetdp
from hetdp.theory import certificate as _certificate
from hetdp.theory.certificate import TECHNIQUES, hodges_lehmann, two_point, van_trees
from hetdp.theory.path import path
from support import UNIT

INF = math.inf
PAGE = Path(__file__).parents[2] / "docs" / "proofs" / "certificate.md"


def population(epsilons):
    epsilon, count = np.unique(np.asarray(epsilons, float), return_counts=True)
    return epsilon, count.astype(np.int64)


def lower(epsilons):
    return hetdp.certificate(epsilons, bounds=(0, 1)).lower


# --- Mechanisms as tables: data sets by outputs --------------------------------------------------------------------


def data_sets(n):
    return np.array(list(itertools.product([0, 1], repeat=n)))


def chances(n, p):
    """The probability of each data set when everybody has 1 with chance p."""
    ones = data_sets(n).sum(axis=1)
    return p**ones * (1 - p) ** (n - ones)


def privacy_rows(epsilons, outputs):
    """The ε-DP inequalities e^{−ε}·P(y | z) − P(y | z′) ≤ 0 as rows of a matrix over the table, data sets first."""
    n, rows = len(epsilons), []
    for z in range(2**n):
        for i in range(n):
            if epsilons[i] < INF:
                other = z ^ (1 << (n - 1 - i))
                rows += [(z * outputs + y, other * outputs + y, math.exp(-epsilons[i])) for y in range(outputs)]
    index = np.repeat(np.arange(len(rows)), 2)
    columns = np.array([row[:2] for row in rows], dtype=int).ravel()
    values = np.array([(row[2], -1.0) for row in rows]).ravel()
    return csr_matrix((values, (index, columns)), shape=(len(rows), 2**n * outputs))


def whole_rows(n, outputs):
    """Σ_y P(y | z) = 1 for every data set."""
    return csr_matrix(np.kron(np.eye(2**n), np.ones(outputs)))


@cache
def corner(epsilons, outputs, seed):
    """A corner of the set of all ε-DP mechanisms: the one that is best for a random linear goal."""
    goal = np.random.default_rng(seed).normal(size=2 ** len(epsilons) * outputs)
    return best_for(goal, epsilons, outputs)


def best_for(goal, epsilons, outputs):
    """The ε-DP mechanism with the least Σ goal·P."""
    n = len(epsilons)
    private = privacy_rows(epsilons, outputs)
    found = linprog(
        goal,
        private,
        np.zeros(private.shape[0]),
        whole_rows(n, outputs),
        np.ones(2**n),
        bounds=(0, None),
        method="highs",
    )
    table = np.clip(found.x.reshape(2**n, outputs), 0, None)
    return table / table.sum(axis=1, keepdims=True)


@cache
def informative(epsilons, outputs, seed):
    """A corner with much Fisher information at p = ½: climbed to from another one.

    The information is convex in the table, so the best table for its linearisation has more of it.
    """
    n, table = len(epsilons), corner(epsilons, outputs, seed)
    ones, chance = data_sets(n).sum(axis=1), chances(n, 0.5)
    for _ in range(6):
        law, slope = chance @ table, (chance * (4 * ones - 2 * n)) @ table
        score = np.where(law > 1e-12, slope / np.where(law > 1e-12, law, 1), 0)
        gradient = np.outer(chance * (4 * ones - 2 * n), 2 * score) - np.outer(chance, score**2)
        table = best_for(-gradient.ravel(), epsilons, outputs)
    return table


VECTORS = [
    (0.3,),
    (1.0,),
    (4.0,),
    (0.1, 0.8),
    (0.5, 2.0),
    (1.0, INF),
    (0.2, 0.5, 1.5),
    (0.3,) * 4,
    (0.3, 3.0, INF),
]
CORNERS = [(epsilons, outputs, seed) for epsilons in VECTORS for outputs in (2, 4) for seed in range(6)]


def theta(epsilons):
    return np.tanh(np.asarray(epsilons) / 2)


def kappa(epsilons, x):
    return 2 * theta(epsilons) / (1 - theta(epsilons) * abs(x))


def chi(epsilons, x):
    return 4 * theta(epsilons) ** 2 / (1 - theta(epsilons) ** 2 * x**2)


def information_bound(epsilons, x, share):
    """The bound on the Fisher information in docs/proofs/certificate.md, written out person by person."""
    k = (1 - share) * kappa(epsilons, x)
    return np.sum(4 * share**2 / (1 - x**2) + (1 - share**2) * chi(epsilons, x) - k**2) + np.sum(k) ** 2


def information(table, n, p):
    """The exact Fisher information of the output about p."""
    ones = data_sets(n).sum(axis=1)
    chance = chances(n, p)
    score = chance * (ones / p - (n - ones) / (1 - p))
    law = chance @ table
    return np.sum((score @ table)[law > 0] ** 2 / law[law > 0])


# --- The inequalities of the proofs ----------------------------------------------------------------------------------


def test_kappa_and_chi_bound_what_one_person_can_tell():
    """E[S | X = 1] − E[S | X = 0] ≤ κ·E|S| for every S, and E W² ≤ χ; both are attained by randomised response."""
    rng = np.random.default_rng(3)
    for epsilon, outputs, seed in itertools.product([0.05, 0.5, 2.0, 8.0], [2, 3, 5], range(4)):
        zero, one = corner((epsilon,), outputs, seed)
        for p in (0.5, 0.3, 0.9, 0.99):
            x, law = 2 * p - 1, p * one + (1 - p) * zero
            scores = [*rng.normal(size=(20, outputs)), *np.eye(outputs), np.sign(one - zero)]
            for score in scores:
                assert np.dot(one - zero, score) <= kappa(epsilon, x) * np.dot(law, np.abs(score)) + 1e-9
            used = law > 0
            assert np.sum((one - zero)[used] ** 2 / law[used]) <= chi(epsilon, x) + 1e-9
    tight = np.array([[1, math.exp(2.0)], [math.exp(2.0), 1]]) / (1 + math.exp(2.0))
    (zero, one), law = tight, 0.8 * tight[1] + 0.2 * tight[0]
    assert np.max(np.abs(one - zero) / law) == pytest.approx(kappa(2.0, 0.6))
    assert np.sum((one - zero) ** 2 / law) == pytest.approx(chi(2.0, 0.6))


def information_excess(bound):
    """The largest exact Fisher information over a bound on it: all corners, several p, shares at random and extreme."""
    rng, worst = np.random.default_rng(4), 0.0
    tables = [(epsilons, corner(epsilons, outputs, seed)) for epsilons, outputs, seed in CORNERS]
    tables += [(epsilons, informative(epsilons, 6, seed)) for epsilons in VECTORS for seed in range(2)]
    for epsilons, table in tables:
        n = len(epsilons)
        for p in (0.5, 0.35, 0.9):
            exact = information(table, n, p)
            for share in (np.zeros(n), np.ones(n), *rng.random((4, n))):
                worst = max(worst, exact / bound(epsilons, 2 * p - 1, share))
    return worst


def test_the_fisher_information_is_bounded_for_any_shares():
    assert information_excess(information_bound) <= 1 + 1e-7


def without_chi(epsilons, x, share):
    return information_bound(epsilons, x, share) - np.sum((1 - share**2) * chi(epsilons, x))


def with_half_the_joint_term(epsilons, x, share):
    k = (1 - share) * kappa(epsilons, x)
    return information_bound(epsilons, x, share) - 0.5 * (np.sum(k) ** 2 - np.sum(k**2))


@pytest.mark.slow
@pytest.mark.parametrize("wrong", [without_chi, with_half_the_joint_term])
def test_control_an_information_bound_that_lacks_a_term_is_broken(wrong):
    assert information_excess(lambda *args: max(wrong(*args), 1e-12)) > 1.05


def distance(one, two):
    """The Vincze–Le Cam distance Δ."""
    used = one + two > 0
    return 0.5 * np.sum((one - two)[used] ** 2 / (one + two)[used])


def distance_bound(epsilons, delta, k):
    first = np.sort(epsilons)[:k]
    spread = delta**2 * np.sum(first) ** 2 + delta * (1 - delta) * np.sum(first**2)
    return (math.tanh(0.5 * math.sqrt(spread)) + math.sqrt(1 - (1 - delta**2) ** (len(epsilons) - k))) ** 2


def finite_k(epsilons):
    return range(sum(e < INF for e in epsilons) + 1)


def distance_excess(factor):
    """The largest exact Δ of the outputs over `factor` times its bound: all corners, all k, several δ."""
    worst = 0.0
    for epsilons, outputs, seed in CORNERS:
        n, table = len(epsilons), corner(epsilons, outputs, seed)
        for delta in (0.05, 0.4, 0.8, 1.0):
            exact = distance(chances(n, (1 + delta) / 2) @ table, chances(n, (1 - delta) / 2) @ table)
            worst = max([worst, *(exact / (factor * distance_bound(epsilons, delta, k)) for k in finite_k(epsilons))])
    return worst


def test_the_distance_of_the_outputs_is_bounded_for_every_k():
    assert distance_excess(1) <= 1 + 1e-7


def test_control_half_of_the_distance_bound_is_broken():
    assert distance_excess(0.5) > 1.5


def test_the_bayes_risk_of_two_points_is_the_distance():
    """δ²/4·(1 − Δ) is the error of the posterior mean, computed output by output."""
    for epsilons, outputs, seed in CORNERS[::5]:
        n, table = len(epsilons), corner(epsilons, outputs, seed)
        for delta in (0.3, 0.9):
            one, two = (chances(n, (1 + sign * delta) / 2) @ table for sign in (1, -1))
            answer = delta / 2 * np.where(one + two > 0, (one - two) / np.where(one + two > 0, one + two, 1), 0)
            risk = 0.5 * np.sum(one * (answer - delta / 2) ** 2 + two * (answer + delta / 2) ** 2)
            assert risk == pytest.approx(delta**2 / 4 * (1 - distance(one, two)), abs=1e-12)


def test_the_root_of_the_distance_obeys_the_triangle_inequality():
    a, b, c = np.random.default_rng(5).dirichlet([0.4] * 4, size=(3, 5000))
    for one, two, three in zip(a, b, c, strict=True):
        assert (
            math.sqrt(distance(one, three)) <= math.sqrt(distance(one, two)) + math.sqrt(distance(two, three)) + 1e-12
        )


# --- What the module computes is what the proofs say --------------------------------------------------------------


def random_populations(count, seed, people=4):
    """Mappings {ε: people} of one to five levels over many magnitudes, some public, some left out."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        size = int(rng.integers(1, 6))
        levels = (10 ** rng.uniform(*rng.choice([(-4, 1), (-2, 0), (-1, 2)]), size)).tolist()
        counts = np.ceil(10 ** rng.uniform(0, rng.choice([0.7, 2, people]), size)).astype(int).tolist()
        found = dict(zip(levels, counts, strict=True))
        if rng.random() < 0.3:
            found[INF] = int(rng.integers(1, 50))
        if rng.random() < 0.1:
            found[0.0] = int(rng.integers(1, 50))
        yield found


def arrays(counts):
    levels = hetdp.Levels(counts)
    return levels.epsilon[levels.epsilon > 0], levels.count[levels.epsilon > 0]


def average_information(epsilon, count, share, a):
    """J by scipy's quadrature over p, straight from its definition."""
    people = np.repeat(epsilon, count)
    shares = np.repeat(share, count)

    def integrand(p):
        return (p * (1 - p)) ** 2 * information_bound(people, 2 * p - 1, shares) * stats.beta.pdf(p, a, a)

    return 2 * integrate.quad(integrand, 0.5, 1, epsabs=0, epsrel=1e-10, limit=200)[0]


def module_information(epsilon, count, share, a, nodes=24):
    phi = 2 / (1 + np.exp(np.minimum(epsilon, 700.0)))
    return _certificate._information(theta(epsilon), phi, count, share, a, nodes)


def test_the_average_information_is_the_integral_of_its_definition():
    rng = np.random.default_rng(6)
    for counts in random_populations(12, seed=6, people=1):
        epsilon, count = arrays({min(level, 6.0): people for level, people in counts.items() if level})
        for a in (0.6, 2.0, 15.0):
            share = rng.random(epsilon.size)
            expected = average_information(epsilon, count, share, a)
            assert module_information(epsilon, count, share, a) == pytest.approx(expected, 1e-6)


def quadrature_error(nodes):
    """The largest relative difference of J + 2aV between so many nodes and 300, with the module's own shares."""
    rng, worst = np.random.default_rng(7), 0.0
    for counts in random_populations(250, seed=7, people=12):
        epsilon, count = arrays({**counts, 1e-12: 3})
        a = math.exp(rng.uniform(math.log(0.01), math.log(4 + 2 * math.sqrt(count.sum()))))
        size, mass = np.sinh(np.minimum(epsilon, 300)), count * theta(epsilon)
        share = _certificate._shares(size, mass, (2 * a + 3) / (a + 1))
        prior = a * a / (2 * a + 1)
        few, many = (module_information(epsilon, count, share, a, k) + prior for k in (nodes, 300))
        worst = max(worst, abs(few / many - 1))
    return worst


def test_the_quadrature_errs_by_far_less_than_the_margin():
    assert quadrature_error(24) < 1e-7 < 0.2 * (1 - _certificate._MARGIN)


def test_control_too_few_nodes_are_noticed():
    assert quadrature_error(8) > 1e-4


def test_the_shares_are_close_to_the_best():
    """Ten per cent more or less of all shares, or of any single level, lowers J by next to nothing."""
    for counts in random_populations(60, seed=8):
        epsilon, count = arrays(counts)
        if count.sum() < 10:
            continue
        for a in (1.0, 10.0):
            share = _certificate._shares(
                np.sinh(np.minimum(epsilon, 300)), count * theta(epsilon), (2 * a + 3) / (a + 1)
            )
            found = module_information(epsilon, count, share, a)
            changes = [np.full(epsilon.size, f) for f in (0.9, 1.1)]
            changes += [np.where(np.arange(epsilon.size) == i, f, 1) for i in range(epsilon.size) for f in (0.9, 1.1)]
            least = min(module_information(epsilon, count, np.minimum(1, share * change), a) for change in changes)
            assert least > 0.98 * found


def test_two_points_is_the_formula_of_the_page():
    """A plain loop over δ and over every single k finds nothing better, and nothing worse."""
    for epsilons in [(0.1,) * 20, (0.05,) * 30 + (INF,) * 2, (0.5, 1.0, 2.0), (3.0,) * 5, (1e-3,) * 50]:
        best = max(
            delta**2 / 4 * (1 - min(distance_bound(np.array(epsilons), delta, k) for k in finite_k(epsilons)))
            for delta in np.linspace(0.002, 1, 500)
        )
        assert two_point(*population(epsilons)) == pytest.approx(best, 2e-3)


def test_hodges_lehmann_is_printed_in_their_paper_and_is_a_case_of_van_trees():
    for m in (1, 4, 9, 100, 10**6, 10**12):
        expected = 1 / (4 * (1 + math.sqrt(m)) ** 2)
        everybody = np.array([INF]), np.array([m])
        assert hodges_lehmann(*everybody) == pytest.approx(expected, 1e-14)
        assert van_trees(*everybody) == pytest.approx(expected, 1e-5)


def test_group_privacy_alone_is_reached_when_almost_nothing_is_told():
    """Many people at tiny ε: all zeros against all ones has error 1/(4cosh²(Σε/2)), and δ = 1 finds it."""
    assert two_point(np.array([1e-6]), np.array([10**6])) == pytest.approx(0.25 / math.cosh(0.5) ** 2, 1e-5)


# --- The exact optimum for few people --------------------------------------------------------------------------------

FEW = [
    (INF,), (INF,) * 4, (0.5,), (1.0,), (2.0,), (5.0,), (0.1,) * 4, (0.5,) * 4, (1.0,) * 4, (2.0,) * 3, (3.0,) * 4,
    (0.1, 0.5, 1.0), (0.5, 0.5, INF, INF), (1.0, 1.0, INF), (0.3, 3.0), (0.0, 1.0, INF), (0.01, 0.02, 2.0),
]  # fmt: skip


@cache
def optimum(epsilons, outputs=21, grid=21):
    """The worst-case error, over all p, of the mechanism that a linear program finds best.

    The program minimises the largest error at `grid` values of p over all ε-DP tables with `outputs` evenly spaced
    answers. Fewer answers make it too large, by at most h²/4 for answers h apart (round any answer at random to a
    neighbour without bias); fewer p make it too small. The second error is undone here: the mechanism that was found is
    evaluated at 2001 values of p. It is ε-DP, so no true lower bound is above the number returned.
    """
    n, y, p = len(epsilons), np.linspace(0, 1, outputs), np.linspace(0, 1, grid)
    private, size = privacy_rows(epsilons, outputs), 2**n * outputs
    risk = np.array([np.outer(chances(n, q), (y - q) ** 2).ravel() for q in p])
    rows = np.vstack(
        [np.hstack([private.toarray(), np.zeros((private.shape[0], 1))]), np.hstack([risk, -np.ones((grid, 1))])]
    )
    whole = np.hstack([whole_rows(n, outputs).toarray(), np.zeros((2**n, 1))])
    goal = np.append(np.zeros(size), 1.0)
    found = linprog(goal, csr_matrix(rows), np.zeros(len(rows)), csr_matrix(whole), np.ones(2**n), bounds=(0, None),
                    method="highs")  # fmt: skip
    table = found.x[:-1].reshape(2**n, outputs)
    return max(float(np.sum((chances(n, q) @ table) * (y - q) ** 2)) for q in np.linspace(0, 1, 2001))


def excess(bound):
    """The largest bound ÷ optimum over the vectors of few people; above 1 the bound is refuted."""
    return max(bound(*population([e for e in epsilons if e > 0])) / optimum(epsilons) for epsilons in FEW)


@pytest.mark.slow
@pytest.mark.parametrize("name", TECHNIQUES)
def test_every_bound_is_below_the_exact_optimum(name):
    assert excess(TECHNIQUES[name]) <= 1 + 1e-7  # the tolerance of the linear program


def test_the_certificate_is_close_to_the_exact_optimum():
    """Not only below: for these few people the best of them is within a factor of 1.25."""
    for epsilons in FEW:
        assert optimum(epsilons) < 1.25 * lower(epsilons), epsilons


@pytest.mark.parametrize("name", TECHNIQUES)
def test_control_a_bound_that_is_twice_too_large_is_refuted(name):
    assert excess(lambda *people: 2 * TECHNIQUES[name](*people)) > 1.2


def without_the_prior(epsilon, count):
    """Van Trees without the information of the prior, 2aV."""
    return max(_van_trees_at(epsilon, count, a, prior=0) for a in (0.5, 1, 2, 4))


def without_the_joint_information(epsilon, count):
    """Van Trees as if everybody kept all of their information private: no (Σκ)²."""
    return max(_van_trees_at(epsilon, count, a, share=np.zeros(epsilon.size), joint=0) for a in (0.1, 0.5, 1, 2, 4))


def without_the_others(epsilon, count):
    """Two points as if nobody but the first k had anything to tell."""
    first = distance_bound(np.repeat(epsilon, count), 0.5, 0) if np.isinf(epsilon[0]) else 0
    return 0.0625 * (1 - 0.5 * first)


def _van_trees_at(epsilon, count, a, *, prior=1, joint=1, share=None):
    v = a / (2 * (2 * a + 1))
    if share is None:
        share = _certificate._shares(np.sinh(np.minimum(epsilon, 300)), count * theta(epsilon), (2 * a + 3) / (a + 1))
    found = module_information(epsilon, count, share, a)
    if not joint:
        found = count.sum() * module_information(epsilon[:1], np.array([1]), share[:1], a)
    return v * v / (found + prior * 2 * a * v)


@pytest.mark.parametrize("wrong", [without_the_prior, without_the_joint_information, without_the_others])
def test_control_a_bound_that_lacks_a_term_is_refuted(wrong):
    assert excess(wrong) > 1.05


def test_the_minimax_error_is_not_a_quarter_where_adpm_gives_up():
    """Erratum to Appendix B: four people at ε = 0.5 and ADPM answers with the midpoint; the optimum is near 0.137."""
    assert hetdp.plan([0.5] * 4, bounds=UNIT).abstains
    assert optimum((0.5,) * 4) < 0.14


# --- Every method ------------------------------------------------------------------------------------------------


def worst_cases(counts):
    """The worst case of every method that accepts these levels."""
    for name in hetdp.methods():
        with contextlib.suppress(hetdp.InputError):
            yield name, hetdp.plan(counts, method=name, bounds=UNIT).worst_case_mse


@pytest.mark.slow
def test_no_method_is_below_the_certificate():
    seen = set()
    for counts in random_populations(200, seed=9):
        floor = hetdp.certificate(counts, bounds=UNIT).lower
        for name, worst in worst_cases(counts):
            seen.add(name)
            assert worst >= floor, (name, counts)
    assert seen == set(hetdp.methods())


def test_control_one_and_a_half_certificates_are_beaten_by_a_method():
    beaten = [
        counts
        for counts in random_populations(40, seed=9)
        if min(worst for _, worst in worst_cases(counts)) < 1.5 * hetdp.certificate(counts, bounds=UNIT).lower
    ]
    assert len(beaten) > 10


def test_it_is_far_above_the_paper_bound():
    for eps1, eps2, n, f in [(0.1, 0.15, 1000, 0.5), (0.1, INF, 1000, 0.7), (0.01, 0.03, 80_000, 0.5)]:
        first = round(n * f)
        found = hetdp.certificate({eps1: first, eps2: n - first}, bounds=UNIT)
        assert found.lower > 500 * hetdp.paper.bounds.lower(eps1, eps2, n, f)


# --- Properties ---------------------------------------------------------------------------------------------------


def rises(before, after):
    """Whether a bound rose by more than a search that is only nearly the best explains: 3 % for few people or 0.5 %."""
    return after > before * (1.03 if before > 0.01 else 1.005)


@pytest.mark.slow
def test_it_never_rises_with_anybodys_epsilon_or_with_more_people():
    rng = np.random.default_rng(10)
    for counts in random_populations(60, seed=10):
        before = lower(counts)
        level = rng.choice(list(counts))
        looser = dict(counts)
        looser[level] -= 1
        larger = level * float(1 + rng.exponential(1)) if level else 0.1
        looser[larger] = looser.get(larger, 0) + 1
        assert not rises(before, lower(looser)), counts
        new = float(10 ** rng.uniform(-4, 1))
        assert not rises(before, lower({**counts, new: counts.get(new, 0) + 5})), counts


def test_control_the_check_would_see_a_rise():
    assert rises(lower({0.1: 100}), lower({0.1: 96}))


def test_it_scales_with_the_interval():
    one = hetdp.certificate({0.1: 700, INF: 300}, bounds=(0, 1))
    for bounds in [(0, 250_000), (-3, -1), (0, 1e-3)]:
        square = (bounds[1] - bounds[0]) ** 2
        found = hetdp.certificate({0.1: 700, INF: 300}, bounds=bounds)
        assert found.ratio == one.ratio
        assert (found.upper, found.lower) == pytest.approx((one.upper * square, one.lower * square), 1e-12)
        assert found.candidates == pytest.approx(
            {name: bound * square for name, bound in one.candidates.items()}, 1e-12
        )


def test_the_parts_fit_together():
    for counts in random_populations(30, seed=11):
        found = hetdp.certificate(counts, bounds=(0, 10))
        assert set(found.candidates) == set(TECHNIQUES)
        assert found.lower == max(found.candidates.values()) == found.candidates[found.technique]
        assert found.upper == pytest.approx(hetdp.plan(counts, bounds=(0, 10)).worst_case_mse, 1e-12)
        assert found.ratio == pytest.approx(found.upper / found.lower, 1e-12)
        ours = min(hetdp.plan(counts, bounds=(0, 10), method=name).worst_case_mse for name in ("adpm", "minimax"))
        assert found.best == pytest.approx(ours, 1e-12)
        assert found.best_ratio == pytest.approx(found.best / found.lower, 1e-12)
        facts = {"upper", "lower", "ratio", "technique", "best", "best_ratio", "candidates", "sentence"}
        assert facts == set(found.to_dict())


def test_levels_mappings_and_sequences_give_the_same():
    expected = hetdp.certificate({0.1: 3, 2.0: 1}, bounds=(0, 1))
    assert hetdp.certificate([0.1, 2, 0.1, 0.1], bounds=(0, 1)) == expected
    assert hetdp.certificate(hetdp.Levels({0.1: 3, 2.0: 1}), bounds=(0, 1)) == expected


EXTREMES = [
    {0: 5}, {0: 5, INF: 1}, {INF: 1}, {INF: 10**12}, {1e-12: 1}, {1e-12: 10**12}, {1e-12: 1, INF: 10**12},
    {1e-12: 10**12, INF: 1}, {5e-324: 3}, {1e-300: 10**12}, {1e300: 2}, {1e300: 3, 1e-300: 3, INF: 2}, {37.0: 1},
    {709.0: 1, 711.0: 1, 800.0: 1, INF: 1}, {1e-6: 10**12}, {1.0: 10**12}, {20.0: 10**12},
    {1e-12: 1, 1e-9: 10, 1e-6: 100, 1e-3: 1000, 1: 10**4, 1e3: 10**5, INF: 10**6},
]  # fmt: skip


@pytest.mark.parametrize("counts", EXTREMES, ids=str)
def test_extremes_are_finite_and_silent(counts):
    found = hetdp.certificate(counts, bounds=(0, 1))
    assert 0 < found.lower <= found.upper <= 0.25
    assert 1 <= found.ratio < 6
    assert found.sentence()


@pytest.mark.parametrize("width", [1e-300, 1e-160, 1e160, 1e300])
def test_an_interval_of_any_width_has_a_ratio(width):
    found = hetdp.certificate({0.1: 1000}, bounds=(0, width))
    assert found.ratio == hetdp.certificate({0.1: 1000}, bounds=(0, 1)).ratio
    assert found.lower <= found.upper


def test_everything_tiny_and_everything_public_are_limits():
    assert lower({0: 7}) == pytest.approx(0.25, 1e-12)
    assert lower({1e-12: 10}) == pytest.approx(0.25, 1e-5)
    assert lower({40.0: 50}) == pytest.approx(lower({INF: 50}), 1e-5)
    assert lower({1e-9: 10**6, INF: 50}) == pytest.approx(lower({INF: 50}), 1e-4)


def test_rounded_levels_are_taken_back_up():
    """Above 65,536 levels ε was rounded down; a bound for smaller ε would be too large for the people's own."""
    epsilon = np.sort(np.exp(np.random.default_rng(12).uniform(-7, -5, 70_000)))
    levels = hetdp.Levels.of(epsilon)
    assert levels.rounded
    exact = van_trees(epsilon, np.ones(epsilon.size, dtype=np.int64))
    assert van_trees(levels.epsilon, levels.count) > exact  # control: what would be claimed without it
    assert hetdp.certificate(levels, bounds=(0, 1)).candidates["van-trees"] <= exact


def test_levels_of_a_wide_statistic_are_taken_back_up_by_more():
    """They keep 8 bits: what is certified must not be above the best worst case at the people's own ε."""
    epsilon = (1 + 2.0**-7) / 16 - np.arange(1, 1101) * 1e-9 / 16
    levels = hetdp.Levels.from_arrays(np.sort(epsilon), np.full(1100, 1), wide=True)
    assert levels.rounded
    ours = hetdp.certificate(hetdp.Levels.of(epsilon), bounds=(0, 1)).best
    assert hetdp.certificate(levels, bounds=(0, 1)).lower < ours
    control = path(levels.epsilon, levels.count)  # what would be claimed for the rounded ε
    assert control > ours


def test_without_privacy_the_bound_is_never_above_its_formula():
    for m in range(1, 300):
        exact = 1 / (4 * (1 + Decimal(m).sqrt()) ** 2)
        assert Decimal(hodges_lehmann(np.array([INF]), np.array([m]))) < exact


@pytest.mark.parametrize("people", [14, 23, 29, 56])
def test_a_method_that_attains_the_bound_is_reported_as_the_best(people):
    """The two are equal but for the last digit; a report must not take that for a contradiction."""
    report = str(hetdp.plan({INF: people}, bounds=(0, 1), method="minimax"))
    assert "can have a smaller worst-case mean squared error than this" in " ".join(report.split())


# --- Words -------------------------------------------------------------------------------------------------------


def test_the_sentence_rounds_its_factor_up():
    for counts in random_populations(40, seed=13):
        found = hetdp.certificate(counts, bounds=(0, 1))
        said = re.search(r"less than 1/(\S+) of this worst-case mean squared error$", found.sentence())
        factor = float(said[1].replace(",", "")) if said else 1.0
        assert found.ratio <= factor * (1 + 1e-9) <= found.ratio * 1.011


def test_the_sentence_can_speak_of_another_method():
    found = hetdp.certificate({0.1: 1000}, bounds=(0, 1))
    assert f"1/{_certificate._up(10 * found.ratio)} " in found.sentence(10 * found.upper)
    with pytest.raises(hetdp.InputError, match="leave out plans with a bound on the variance"):
        found.sentence(found.lower / 2)


def test_nothing_can_be_better_than_the_midpoint_when_nobody_takes_part():
    assert hetdp.certificate({0: 3}, bounds=(0, 1)).sentence() == (
        "no ε-DP method, known or unknown, can have a smaller worst-case mean squared error than this"
    )


# --- The page ----------------------------------------------------------------------------------------------------


@cache
def page():
    """The names that the page's code defines, what it prints, and the table that it shows."""
    text = PAGE.read_text(encoding="utf-8")
    printed, names = io.StringIO(), {}
    with contextlib.redirect_stdout(printed):
        for block in re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
            exec(compile(block, PAGE.name, "exec"), names)  # noqa: S102  our own documentation
    return names, printed.getvalue(), re.search(r"^```text\n(.*?)^```", text, re.DOTALL | re.MULTILINE)[1]


def test_the_table_of_the_page_is_what_its_code_prints():
    _, printed, shown = page()
    assert printed.endswith(shown)


def ratios(populations):
    return {name: hetdp.certificate(people, bounds=(0, 1)).ratio for name, people in populations.items()}


def test_adpm_is_close_where_there_is_much_to_learn():
    names, _, _ = page()
    for people in names["MUCH"].values():
        levels = hetdp.Levels(people) if isinstance(people, dict) else hetdp.Levels.of(people)
        assert levels.n >= 100
        assert float(np.sum(levels.epsilon * levels.count)) >= 10 * (1 - 1e-12)
    assert max(ratios(names["MUCH"]).values()) <= 1.8 + 1e-2  # as the page says


def test_the_page_shows_where_it_is_larger():
    names, _, _ = page()
    found = ratios(names["LITTLE"])
    assert 4 < max(found.values()) < 4.1
    assert min(found.values()) < 1.3
    for people in names["LITTLE"].values():
        best = hetdp.plan(people, bounds=(0, 1), method="minimax").worst_case_mse
        assert best < 1.4 * hetdp.certificate(people, bounds=(0, 1)).lower


def test_the_ratio_is_about_two_at_most_once_there_is_very_much_to_learn():
    """The page's argument: ADPM's program has its noise term twice, the bound has it once."""
    rng = np.random.default_rng(14)
    for _ in range(40):
        size = int(rng.integers(1, 5))
        levels = np.unique(10 ** rng.uniform(-5, 0, size)).tolist()
        counts = [round(10 ** rng.uniform(4, 7) / level) for level in levels]
        assert hetdp.certificate(dict(zip(levels, counts, strict=True)), bounds=(0, 1)).ratio < 2.01
