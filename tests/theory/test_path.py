"""The path bound: each lemma of docs/proofs/path.md against an oracle that knows nothing of it.

The oracles are rational arithmetic, linear programs over all mechanisms and over all walks, scipy's distributions, and
`hetdp.optimal`.
"""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import linprog

import hetdp
from hetdp.theory import path as _path
from hetdp.theory.path import EFFORTS, path
from support import UNIT

INF = math.inf
FULL = EFFORTS["full"]


def population(epsilons):
    epsilon, count = np.unique(np.asarray(epsilons, float), return_counts=True)
    return epsilon, count.astype(np.int64)


# --- Rational arithmetic -------------------------------------------------------------------------------------------


def symmetric(q):
    """The elementary symmetric polynomials e_0 … e_M."""
    e = [Fraction(1)]
    for x in q:
        e = [a + x * b for a, b in zip([*e, Fraction(0)], [Fraction(0), *e], strict=True)]
    return e


def ratios(q):
    """e^{−d_k} = p_{k+1}/p_k, p_k = e_k/C(M, k)."""
    e, size = symmetric(q), len(q)
    p = [x / math.comb(size, k) for k, x in enumerate(e)]
    return [p[k + 1] / p[k] for k in range(size)]


def rising(a, k):
    return math.prod((a + i for i in range(k)), start=Fraction(1))


def prior_moments(n, ones, a, w):
    """The mass of one data set with so many ones, and its integrals of p and p², under the prior of the page."""
    found = [(1 - w) * rising(a, ones + i) * rising(a, n - ones) / rising(2 * a, n + i) for i in range(3)]
    if ones == 0:
        found[0] += w / 2
    if ones == n:
        found = [x + w / 2 for x in found]
    return found


def peaks(down, up):
    """c from its definition: the rays add up to 1 at every node; solved node by node from the formula of the page."""
    size = len(down) + 1
    c = []
    for k in range(size):
        value = Fraction(1)
        if k:
            value -= (1 - up[k - 1]) / (1 / down[k - 1] - up[k - 1])
        if k < size - 1:
            value -= (1 - down[k]) / (1 / up[k] - down[k])
        c.append(value)
    return c


def ray(j, down, up):
    """v^(j): 1 at j, falling by e^{−u} to the left and by e^{−d} to the right."""
    return [
        math.prod(up[k:j], start=Fraction(1)) if k <= j else math.prod(down[j:k], start=Fraction(1))
        for k in range(len(down) + 1)
    ]


def phi(v, b):
    """Σbvs − (Σbvm)²/Σbv for masses with their two integrals."""
    zero, one, two = (sum(x * y[i] for x, y in zip(v, b, strict=True)) for i in range(3))
    return two - one * one / zero if zero else Fraction(0)


def exact_risk(q, n, a, w):
    """The formula of the page in rational numbers, with no window, no mirror image and no scaling."""
    people, down = len(q), ratios(q)
    up = down[::-1]
    c, total = peaks(down, up), Fraction(0)
    rays = [ray(j, down, up) for j in range(people + 1)]
    for known in range(n - people + 1):
        b = [
            [math.comb(people, k) * math.comb(n - people, known) * x for x in prior_moments(n, k + known, a, w)]
            for k in range(people + 1)
        ]
        total += sum(weight * phi(v, b) for weight, v in zip(c, rays, strict=True))
    return total


def some_problems(number, seed):
    rng = np.random.default_rng(seed)
    for _ in range(number):
        n = int(rng.integers(1, 12))
        people = int(rng.integers(1, n + 1))
        levels = rng.integers(1, 200, size=people) / 200 if rng.random() < 0.7 else np.full(people, 0.75)
        q = [Fraction(round(x * 200), 201) for x in levels]
        yield q, n, Fraction(int(rng.integers(1, 60)), 8), Fraction(int(rng.integers(0, 5)), 4)


def computed(q, n, a, w, wide=7.5):
    epsilon, count = np.unique([-math.log(x) for x in q], return_counts=True)
    problem = _path._Problem.of(n, len(q), float(a), float(w), wide)
    return problem.risk(_path._steps(epsilon, count, FULL.exact))


def test_the_computed_risk_is_the_formula_in_rational_numbers_and_never_above_it():
    for q, n, a, w in some_problems(60, seed=1):
        exact = exact_risk(q, n, a, w)
        found = computed(q, n, a, w)
        assert found <= float(exact) * (1 + 1e-15)
        assert found == pytest.approx(float(exact), rel=1e-8, abs=1e-13)


def test_control_a_sum_without_the_ends_terms_is_far_off(monkeypatch):
    """Forgetting that the first and the last node have one neighbour changes the risk."""
    right = _path._peaks

    def wrong(d, u):
        c = right(d, u)
        c[0] += 0.5
        return c

    monkeypatch.setattr(_path, "_peaks", wrong)
    assert any(computed(q, n, a, w) > 1.01 * float(exact_risk(q, n, a, w)) for q, n, a, w in some_problems(20, seed=1))


def test_a_narrower_window_only_lowers_the_bound():
    for wide in (3.0, 4.0, 5.5):
        assert (
            0
            < computed([Fraction(9, 10)] * 300, 400, 6, Fraction(0), wide)
            < computed([Fraction(9, 10)] * 300, 400, 6, Fraction(0))
        )


# --- How fast the law of the output can change ---------------------------------------------------------------------


def mechanisms(epsilons):
    """The inequalities of one output's chances M(y | x), x in {0, 1}^M: Q(x′) ≤ e^{ε}·Q(x) for neighbours."""
    size, rows = len(epsilons), []
    for x, i in itertools.product(range(2**size), range(size)):
        row = np.zeros(2**size)
        row[x ^ (1 << i)], row[x] = math.exp(-epsilons[i]), -1.0
        rows.append(row)
    return np.array(rows)


def largest_step(epsilons, k):
    """The largest A_k/A_{k+1} over all ε-DP mechanisms, by a linear program; A_k averages over data with k ones."""
    size = len(epsilons)
    ones = np.array([x.bit_count() for x in range(2**size)])
    average = [np.where(ones == j, 1 / math.comb(size, j), 0.0) for j in (k, k + 1)]
    found = linprog(
        -average[0], mechanisms(epsilons), np.zeros(size * 2**size), average[1][None, :], [1.0], bounds=(0, None)
    )
    return -found.fun


MIXED = [(0.3,), (0.2, 1.5), (0.1, 0.4, 2.0), (0.7,) * 4, (0.05, 0.3, 0.9, 3.0), (0.2, 0.2, 1.0, 1.0, 2.5)]


@pytest.mark.parametrize("epsilons", MIXED, ids=str)
def test_efrons_theorem_gives_the_largest_step_that_privacy_allows(epsilons):
    """d is not only an upper bound: a linear program over all mechanisms attains it at every k."""
    d = _path._steps(*population(epsilons), FULL.exact)
    for k in range(len(epsilons)):
        assert math.log(largest_step(epsilons, k)) == pytest.approx(d[k], abs=1e-6)
        mirrored = math.log(largest_step(epsilons, len(epsilons) - 1 - k))  # A_{k+1}/A_k by exchanging 0 and 1
        assert mirrored == pytest.approx(d[::-1][k], abs=1e-6)


def test_control_the_mean_epsilon_is_not_a_valid_step():
    epsilons = (0.05, 0.3, 0.9, 3.0)
    steps = [math.log(largest_step(epsilons, k)) for k in range(4)]
    assert max(steps) > np.mean(epsilons) + 0.1


def test_the_recursion_is_never_below_the_rational_value_and_close_to_it():
    rng = np.random.default_rng(2)
    for _ in range(30):
        q = [Fraction(int(x), 1000) for x in rng.integers(1, 1000, size=int(rng.integers(2, 60)))]
        d = _path._recursion(np.array([-math.log(x) for x in q]))
        exact = [-math.log(x) for x in ratios(q)]
        assert np.all(d >= np.array(exact) - 2e-16 * 40)
        assert d == pytest.approx(exact, abs=1e-11)


@pytest.mark.parametrize(
    "levels", [{0.01: 700, 0.3: 500}, {0.05: 300, 1.0: 300, 4.0: 20}, {0.001: 900, 0.002: 900}], ids=str
)
def test_darrochs_rule_is_above_the_recursion_and_not_far(levels):
    epsilon, count = np.array(list(levels)), np.array(list(levels.values()))
    people = int(count.sum())
    above = _path._darroch(epsilon, count) - _path._recursion(np.repeat(epsilon, count))
    middle = slice(people // 5, 4 * people // 5)
    assert np.all(above > -1e-10)  # what the recursion adds for its own rounding
    assert np.all(above[middle] < 8 / people + 0.05 * np.ptp(_path._darroch(epsilon, count)))


def test_darroch_says_where_the_mode_is():
    """The mode of a sum of indicators is at k + 1 or above when the mean is k + 1: the theorem, by enumeration."""
    rng = np.random.default_rng(3)
    for _ in range(200):
        epsilon = rng.exponential(1, size=int(rng.integers(2, 12)))
        for k in range(epsilon.size - 1):
            odds = np.exp(_path._odds(epsilon, np.ones(epsilon.size, np.int64), k + 1) - epsilon)
            law = np.ones(1)
            for x in odds / (1 + odds):
                law = np.convolve(law, [1 - x, x])
            assert law[k] <= law[k + 1] * (1 + 1e-12)


def test_levels_that_are_joined_have_nobody_at_a_smaller_epsilon():
    epsilon = np.sort(np.random.default_rng(4).exponential(1, 1000))
    joined, count = _path._joined(epsilon, np.ones(1000, np.int64), 50)
    assert joined.size == 50
    assert np.all(np.repeat(joined, count) >= epsilon)


def test_numbers_too_far_apart_for_the_recursion_take_darrochs_rule():
    epsilon, count = np.array([0.001, 25.0]), np.array([900, 900])
    assert not np.isfinite(_quietly(_path._recursion, np.repeat(epsilon, count))).all()
    assert np.isfinite(_path._steps(epsilon, count, FULL.exact)).all()


def _quietly(function, *arguments):
    with np.errstate(all="ignore"):
        return function(*arguments)


# --- The best channel on a path ------------------------------------------------------------------------------------


def walks(down, up):
    """Every extreme ray: at each step either up by e^{u} or down by e^{−d}."""
    for pattern in itertools.product((True, False), repeat=len(down)):
        v = [1.0]
        for k, rise in enumerate(pattern):
            v.append(v[-1] / up[k] if rise else v[-1] * down[k])
        yield np.array(v) / max(v)


def best_channel(down, up, b):
    """The least Σφ over all channels: a linear program over all walks that add up to 1 at every node."""
    found = list(walks(down, up))
    cost = [float(phi(v, b)) for v in found]
    return linprog(cost, A_eq=np.array(found).T, b_eq=np.ones(len(down) + 1), bounds=(0, None)).fun


def random_paths(number, seed, *, ordered=True):
    rng = np.random.default_rng(seed)
    for _ in range(number):
        steps = int(rng.integers(1, 8))
        down, up = np.exp(-rng.exponential(rng.choice([0.1, 1.0]), size=(2, steps)))
        mean = rng.random(steps + 1)
        if ordered:
            mean.sort()
        mass = rng.dirichlet(np.ones(steps + 1))
        second = mean * mean + rng.random(steps + 1) * mean * (1 - mean)
        yield down, up, list(np.stack([mass, mass * mean, mass * second], axis=1))


def single_peaked(down, up, b):
    c = [float(x) for x in peaks(list(down), list(up))]
    return sum(c[j] * float(phi(ray(j, list(down), list(up)), b)) for j in range(len(c))), min(c)


def test_rays_with_one_peak_are_the_best_channel():
    """Against a linear program over all 2^M walks: never above it, and equal wherever c is a set of weights."""
    equal = 0
    for down, up, b in random_paths(150, seed=5):
        formula, least = single_peaked(down, up, b)
        program = best_channel(down, up, b) if feasible(down, up) else INF
        assert formula <= program + 1e-9
        if least >= 0:
            equal += 1
            assert formula == pytest.approx(program, rel=1e-6, abs=1e-9)
    assert equal > 20


def feasible(down, up):
    found = np.array(list(walks(down, up))).T
    return linprog(np.zeros(found.shape[1]), A_eq=found, b_eq=np.ones(len(down) + 1), bounds=(0, None)).status == 0


def test_control_means_that_do_not_grow_break_the_theorem():
    broken = 0
    for down, up, b in random_paths(150, seed=6, ordered=False):
        formula, least = single_peaked(down, up, b)
        if least >= 0:
            broken += formula > best_channel(down, up, b) * 1.001 + 1e-9
    assert broken > 3


def test_the_rays_add_up_to_one_at_every_node():
    for down, up, _ in random_paths(30, seed=7):
        d, u = -np.log(down)[:, None], -np.log(up)[:, None]
        c = _path._peaks(d, u)[:, 0]
        rays = np.array([ray(j, list(down), list(up)) for j in range(c.size)], dtype=float)
        assert c @ rays == pytest.approx(np.ones(c.size), abs=1e-9)


def test_sums_over_rays_are_what_a_loop_gives():
    rng = np.random.default_rng(8)
    for rows, columns in [(1, 1), (2, 3), (7, 1), (50, 4), (333, 1)]:
        factor, mass = rng.random((rows - 1, columns)), rng.normal(size=(3, rows, columns))
        slow = mass.copy()
        for j in range(1, rows):
            slow[:, j] += factor[j - 1] * slow[:, j - 1]
        assert _path._fading(factor, mass) == pytest.approx(slow, abs=1e-12)


def test_chances_of_counts_are_those_of_scipy_and_never_sum_to_more_than_one():
    for number, alpha, beta in [(40, 0.3, 0.3), (1000, 12.0, 12.0), (5000, 900.0, 30.0), (7, 1.0, 1.0)]:
        low, width = _path._window(number, np.array([alpha]), np.array([beta]), 6.0)
        chance, eta = _path._beta_binomial(number, np.array([alpha]), np.array([beta]), low, width)
        exact = stats.betabinom(number, alpha, beta).pmf(low[0] + np.arange(width))
        assert chance[:, 0] == pytest.approx(exact, rel=1e-6)  # scipy itself is good to 9 digits or so here
        assert chance.sum() <= 1 + eta
        assert eta < 1e-8


def test_the_masses_of_everything_that_is_looked_at_sum_to_one():
    for n, people, a, w in [(9, 4, 0.7, 0.3), (12, 12, 2.0, 0.5), (300, 120, 9.0, 0.0)]:
        problem = _path._Problem.of(n, people, a, w, 9.0)
        mass = []
        first, _ = _path._beta_binomial(
            n - people, np.array([a]), np.array([a]), *_path._window(n - people, np.array([a]), np.array([a]), 9.0)
        )
        twice = np.where(2 * problem.known == n - people, 1.0, 2.0)
        part = np.arange(problem.known.size)
        mass, _ = problem._masses(part, first[: part.size, 0] * twice)
        assert mass[0].sum() == pytest.approx(1, abs=1e-9)


# --- The bound itself -----------------------------------------------------------------------------------------------


def few(number, seed):
    """Random vectors with few states for the exact program."""
    rng = np.random.default_rng(seed)
    while number:
        n = int(rng.integers(1, 7))
        epsilons = np.round(np.exp(rng.uniform(-3.5, 1.7, size=n)), 3)
        if rng.random() < 0.4:
            epsilons[: n // 2] = epsilons[0]
        if rng.random() < 0.2:
            epsilons[-1] = INF
        if np.isfinite(epsilons).any() and math.prod((population(epsilons)[1] + 1).tolist()) <= 48:
            number -= 1
            yield epsilons


@pytest.mark.slow
def test_it_is_below_the_exact_optimum_and_close_to_it():
    """Over 200 random vectors; `hetdp.optimal` is a program over all mechanisms."""
    near = []
    for epsilons in few(200, seed=9):
        exact = hetdp.optimal(epsilons, bounds=UNIT, outputs=31, grid=31)
        bound = path(*population(epsilons))
        assert bound <= exact.mse, epsilons
        near.append(bound / exact.mse)
    assert min(near) > 0.8
    assert np.median(near) > 0.95


@pytest.mark.slow
def test_control_a_bound_that_is_six_per_cent_too_large_is_refuted():
    assert any(1.06 * path(*population(e)) > hetdp.optimal(e, bounds=UNIT).mse for e in few(12, seed=9))


def test_forgetting_that_others_share_the_end_nodes_would_be_noticed(monkeypatch):
    """If the data that are all alike had their whole mass in every column, the bound would be above the optimum."""
    masses = _path._Problem._masses

    def wrong(self, part, chance):
        mass, eta = masses(self, part, chance)
        extra = self.w / 2 * np.array([1.0, -0.4, 0.16])
        mass[:, 0] += extra[:, None]
        mass[:, -1] += (extra * np.array([1, -1, 1]))[:, None]
        return mass, eta

    monkeypatch.setattr(_path._Problem, "_masses", wrong)
    assert any(
        path(*population(e)) > 1.05 * hetdp.optimal(e, bounds=UNIT).mse for e in [(0.2, 0.5, INF), (0.5, 1.0, 1.0)]
    )


@pytest.mark.slow
def test_no_prior_and_no_size_gives_a_bound_above_the_worst_case_of_a_method():
    """Over 2,000 populations, each with a prior and a set of revealed people at random."""
    rng, close = np.random.default_rng(11), 0
    for _ in range(2000):
        n = int(10 ** rng.uniform(0, 2.7))
        epsilons = np.sort(np.exp(rng.uniform(-6, 2, size=int(rng.integers(1, 5)))))
        epsilon, count = population(rng.choice(epsilons, size=n))
        people, a, w = int(rng.integers(1, n + 1)), math.exp(rng.uniform(-2, 1) + math.log(n) / 2), rng.random() ** 4
        inside = np.clip(people - (np.cumsum(count) - count), 0, count)
        d = _path._steps(epsilon[inside > 0], inside[inside > 0], FULL.exact)
        bound = _path._Problem.of(n, people, a, w).risk(d)
        counts = dict(zip(epsilon.tolist(), count.tolist(), strict=True))
        ours = min(hetdp.plan(counts, bounds=UNIT, method=name).worst_case_mse for name in ("minimax", "adpm"))
        assert bound <= ours, counts
        close += bound > 0.5 * ours
    assert close > 200


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0])
def test_for_one_person_it_is_the_optimum(epsilon):
    """¼·4e^{ε}/(1 + e^{ε})²: the prior on 0 and 1, and randomised response."""
    assert path(np.array([epsilon]), np.array([1])) == pytest.approx(
        math.exp(epsilon) / (1 + math.exp(epsilon)) ** 2, rel=2e-3
    )


def test_full_effort_is_no_lower():
    for counts in [{0.1: 5, 1.0: 5}, {0.03: 60, 0.5: 20}, {0.2: 300, INF: 20}]:
        levels = hetdp.Levels(counts)
        report, full = (path(levels.epsilon, levels.count, effort) for effort in ("report", "full"))
        assert full >= report * (1 - 1e-6)


def test_one_level_of_millions_is_done_in_one_piece():
    """More nodes than are held at a time, but one column: it cannot be cut."""
    assert path(np.array([0.1]), np.array([5_000_000])) > 0.99 / (4 * (5_000_000 + 8 / 0.01))


def test_it_is_silent_where_it_is_not_claimed():
    assert path(np.array([INF]), np.array([50])) == 0.0
    assert path(np.array([1.0]), np.array([10**8])) == 0.0
    assert path(np.array([0.001, INF]), np.array([10**6, 10**6])) == 0.0  # too many pairs of counts
