"""The exact optimum against closed forms, a program without its symmetries, and what must lie above or below."""

from __future__ import annotations

import itertools
import math
import re
from fractions import Fraction
from functools import cache
from pathlib import Path

import cvxpy as cp
import numpy as np
import pytest
from scipy.sparse import diags_array

import hetdp
from hetdp.theory import optimal as _optimal
from support import UNIT

INF = math.inf
PAGE = Path(__file__).parents[2] / "docs" / "proofs" / "optimal.md"

POPULATIONS = (
    {1: 1},
    {1: 5},
    {0.5: 10},
    {1: 20},
    {0.3: 20},
    {5: 20},
    {0.5: 5, 2: 5},
    {0.5: 3, 5: 3},
    {0.2: 5, 1: 5},
    {0.1: 7, 1: 3},
    {0: 3, 1: 4, 3: 4},
    {1: 4, 20: 4},
    {0.1: 2, 1: 2, 3: 2},
)
WITH_PUBLIC = ({INF: 10}, {0.1: 5, INF: 5}, {1: 6, INF: 3}, {0.1: 8, INF: 4})
EVERY = POPULATIONS + WITH_PUBLIC


@cache
def solved(pairs, **options):
    return hetdp.optimal(dict(pairs), **options)


def best(levels, **options):
    return solved(tuple(levels.items()), **options)


def program_value(found):
    """The value of the linear program, proved from below, on an interval of length 1: `lower` before its allowances."""
    return found.lower + 0.25 / (found.outputs.size - 1) ** 2


def step(found):
    """What the grid of outputs may cost."""
    return 0.25 / (found.outputs.size - 1) ** 2


# --- Closed forms -------------------------------------------------------------------------------------------


def one_person(epsilon):
    """V for n = 1. Every ε-DP mechanism on one bit is randomised response, processed (Kairouz, Oh and Viswanath 2014).

    By symmetry and convexity the answer is 1/2 ± a. With θ = tanh(ε/2) and x = p − 1/2 its error is
    a² + x²(1 − 4aθ): a convex function of a once the worst x, 0 or 1/2, is taken.
    """
    theta = math.tanh(epsilon / 2)
    return (1 - theta**2) / 4 if theta**2 <= 1 / 2 else 1 / (16 * theta**2)


@pytest.mark.parametrize("epsilon", [1e-9, 0.01, 0.3, 1, 1.7, 1.9, 3, 20, 50, INF])
def test_one_person_has_the_closed_form(epsilon):
    """With one person the bracket contains the closed form and is no wider than the grid of outputs explains."""
    found = best({epsilon: 1})
    assert found.lower <= one_person(epsilon) <= found.mse, (found, one_person(epsilon))
    assert found.gap <= step(found) + 1e-5


def test_the_closed_form_for_one_person_is_the_best_of_all_three_answer_mechanisms():
    """The oracle above holds up against brute force over symmetric mechanisms with answers 1/2 − a, 1/2, 1/2 + a."""
    a, answered = np.linspace(0, 0.5, 5001)[:, None], np.linspace(0, 1, 101)  # how far out, and how often
    for epsilon in (0.3, 1.0, 3.0):
        right = answered / (1 + math.exp(-epsilon))
        noise, signal = answered * a * a, a * (right - (answered - right))
        smallest = np.maximum(noise, noise + 0.25 - signal).min()
        assert one_person(epsilon) - 1e-12 <= smallest <= one_person(epsilon) + 1e-4


@pytest.mark.parametrize("n", [1, 2, 4, 9, 10, 25])
def test_without_privacy_it_is_hodges_and_lehmanns(n):
    """All public: the minimax error of a binomial proportion, 1/(4(1 + √n)²)."""
    found, known = best({INF: n}), 0.25 / (1 + math.sqrt(n)) ** 2
    assert found.lower <= known <= found.mse, (found, known)
    assert found.gap <= step(found) + 1e-5


@pytest.mark.parametrize("levels", [{0: 1}, {0: 12}, {1e-12: 3}, {5e-324: 2, 0: 2}])
def test_without_anybody_it_is_the_midpoint(levels):
    """Nobody usable: always answer the midpoint, with error width²/4 at the ends."""
    found = hetdp.optimal(levels, bounds=(10, 30))
    assert found.lower <= 100 <= found.mse
    assert found.mse == pytest.approx(100, rel=4e-5)
    assert found.lower == pytest.approx(100, abs=400 * step(found) + 1e-9)
    assert found.probability[0].argmax() == 20
    assert found.probability.max() > 1 - 1e-6
    assert found.outputs[20] == 20


# --- The same optimum without any of the symmetries ----------------------------------------------------------


def person_by_person(epsilons, outputs, grid, forget=None):
    """The program's value over all 2ⁿ data sets and all p, by another solver: no counts, no mirror image.

    `forget` plants a bug: the inequalities of that person are left out.
    """
    data = list(itertools.product((0, 1), repeat=len(epsilons)))
    y = np.linspace(0, 1, outputs)
    table = cp.Variable((len(data), outputs), nonneg=True)
    rules = [cp.sum(table, axis=1) == 1]
    for i, epsilon in enumerate(epsilons):
        if math.isinf(epsilon) or i == forget:
            continue
        for row, x in enumerate(data):
            other = data.index((*x[:i], 1 - x[i], *x[i + 1 :]))
            rules.append(math.exp(-epsilon) * table[other] <= table[row])
    errors = []
    for p in np.sin(np.linspace(0, np.pi / 2, grid)) ** 2:
        chance = np.array([p ** sum(x) * (1 - p) ** (len(x) - sum(x)) for x in data])
        errors.append(cp.sum(cp.multiply(np.outer(chance, (y - p) ** 2), table)))
    problem = cp.Problem(cp.Minimize(cp.maximum(*errors)), rules)
    return problem.solve(solver=cp.CLARABEL)


FEW = [(1.0,), (0.5, 0.5), (0.3, 3.0), (0.0, 1.0, 1.0), (0.2, 1.0, INF), (0.5, 0.5, 2.0, 2.0), (0.1, 1.0, 20.0, INF)]


@pytest.mark.parametrize("epsilons", FEW, ids=str)
def test_counts_and_mirror_images_lose_nothing(epsilons):
    """A program over all 2ⁿ data sets, solved by Clarabel, has the same value as ours over counts, solved by HiGHS."""
    found = hetdp.optimal(np.array(epsilons), outputs=13, grid=11)
    assert program_value(found) == pytest.approx(person_by_person(epsilons, 13, 11), abs=3e-7)


def test_a_forgotten_person_would_be_noticed_by_that_comparison():
    """Control: without the inequalities of one person the values differ by far more than the tolerance."""
    found = hetdp.optimal([0.5, 0.5, 2.0, 2.0], outputs=13, grid=11)
    assert person_by_person((0.5, 0.5, 2.0, 2.0), 13, 11, forget=3) < program_value(found) - 1e-4


@pytest.mark.parametrize("epsilons", [(0.7,), (0.3, 3.0), (0.2, 1.0, INF), (0.5, 0.5, 2.0)], ids=str)
def test_a_finer_program_finds_nothing_outside_the_bracket(epsilons):
    """Another solver, without our symmetries and on finer grids: `lower` is below its value, `mse` hardly so."""
    found = hetdp.optimal(np.array(epsilons))
    finer = person_by_person(epsilons, 121, 61)
    assert found.lower <= finer + 1e-7
    assert finer - 0.25 / 120**2 <= found.mse + 1e-7


# --- The lower bound holds whatever the solver says ------------------------------------------------------------


def grids(levels, outputs=41, grid=41):
    """The arguments of the private functions: ε and people of each level that counts, outputs and means."""
    epsilon, count = (np.array(x) for x in (list(levels), list(levels.values())))
    used = epsilon > 0
    return epsilon[used].astype(float), count[used], np.linspace(0, 1, outputs), _optimal._means(grid)


def answered(levels, **options):
    """What the solver says: a table and the multipliers."""
    epsilon, count, y, p = grids(levels, **options)
    privacy, risk = _optimal._privacy(epsilon, count, y.size), _optimal._error(count, y, p)
    return _optimal._solve(privacy, risk, y.size, _optimal._ATTEMPTS[0])


def bound_in_doubles(multipliers, levels, *, repair=True, **options):
    """The bound of the multipliers, computed by matrices in doubles. Without the repair they are taken as they come."""
    epsilon, count, y, p = grids(levels, **options)
    prior, rest = multipliers[: p.size], multipliers[p.size :]
    if repair:
        prior, rest = np.maximum(prior, 0), np.maximum(rest, 0)
        prior = prior / prior.sum()
    privacy, risk = _optimal._privacy(epsilon, count, y.size), _optimal._error(count, y, p)
    cost = (risk.T @ prior + privacy.T @ rest).reshape(-1, y.size)
    return ((cost + cost[::-1, ::-1]) / 2).min(axis=1).sum()


def certified(multipliers, levels, **options):
    epsilon, count, y, p = grids(levels, **options)
    return _optimal._certified(multipliers, epsilon, count, y.size, p)


KNOWN = [({1: 1}, one_person(1)), ({0.3: 1}, one_person(0.3)), ({3: 1}, one_person(3)), ({0: 4}, 0.25)]
KNOWN += [({INF: n}, 0.25 / (1 + math.sqrt(n)) ** 2) for n in (1, 4, 9)]


def raised(multipliers, means, rng):
    """A value reported too high: everything multiplied, as if the prior could weigh more than 1."""
    return multipliers * 1.2


def negative(multipliers, means, rng):
    """Where an inequality does not bind, its multiplier is not 0 but negative; the prior still sums to 1."""
    small = np.where(np.arange(multipliers.size) < means, 1e-2, 1e-5) * rng.random(multipliers.size)
    changed = np.where(multipliers == 0, -small, multipliers)
    changed[:means] /= changed[:means].sum()
    return changed


def noisy(multipliers, means, rng):
    """All are off by a little, either way, and do not sum to 1."""
    return multipliers * rng.uniform(0.99, 1.03, multipliers.size) + rng.normal(0, 1e-4, multipliers.size)


def shifted(multipliers, means, rng):
    """Zeros have become small and positive, or small and negative: a solver with a large tolerance."""
    return multipliers + rng.uniform(-1e-3, 1e-3, multipliers.size)


def doubled(multipliers, means, rng):
    """The privacy inequalities count twice."""
    return np.append(multipliers[:means], 2 * multipliers[means:])


def nonsense(multipliers, means, rng):
    """No numbers at all, zeros, infinities."""
    return rng.choice([0.0, np.nan, np.inf, -np.inf, 1.0, 1e300, 5e-324], multipliers.size)


def zeros(multipliers, means, rng):
    return np.zeros(multipliers.size)


WRONG = [raised, negative, noisy, shifted, doubled, nonsense, zeros]


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: wrong.__name__)
@pytest.mark.parametrize(("levels", "truth"), KNOWN, ids=lambda x: str(x) if isinstance(x, dict) else "")
def test_wrong_multipliers_never_raise_the_bound(levels, truth, wrong):
    """Thirty times wrong: the bound stays below the closed form, but for what the grid of outputs costs."""
    rng = np.random.default_rng(5)
    right = answered(levels)[1]
    price = Fraction(1, 4 * 40**2)
    assert truth - 1e-3 < certified(right, levels) - price <= truth
    for _ in range(30):
        assert certified(wrong(right, 21, rng), levels) - price <= truth


@pytest.mark.parametrize("wrong", [raised, negative, noisy, shifted], ids=lambda wrong: wrong.__name__)
def test_without_the_repair_the_same_multipliers_prove_too_much(wrong):
    """Control: taken as they come, multipliers like these give a bound above the truth for some of the populations."""
    rng = np.random.default_rng(5)
    excess = []
    for levels, truth in KNOWN:
        right = answered(levels)[1]
        bounds = [bound_in_doubles(wrong(right, 21, rng), levels, repair=False) for _ in range(10)]
        excess.append(max(bounds) - step(best(levels)) - truth)
    assert max(excess) > 1e-6, excess


@pytest.mark.parametrize("wrong", [raised, noisy, negative, doubled], ids=lambda wrong: wrong.__name__)
@pytest.mark.parametrize("levels", [{0.5: 2, 2: 2}, {0.1: 1, 1: 2, INF: 2}, {3: 6}], ids=str)
def test_the_bound_is_what_matrices_of_doubles_say(levels, wrong):
    """Whole numbers and doubles agree on the bound of multipliers, right and wrong ones."""
    right = answered(levels, outputs=11, grid=11)[1]
    for multipliers in (right, wrong(right, 6, np.random.default_rng(8))):
        exact = certified(multipliers, levels, outputs=11, grid=11)
        assert float(exact) == pytest.approx(bound_in_doubles(multipliers, levels, outputs=11, grid=11), abs=1e-10)


def test_the_cost_is_the_sum_over_means_rounded_down():
    """Each whole number is the exact average of Pr(c | p)·(y − p)² over the prior, less than one unit lower."""
    count, p = np.array([2, 1]), np.array([0, 0.25, 0.3, 0.5])
    weight = np.array([3, 1, 0, 4], dtype=object)
    cost = _optimal._cost(weight, count, 5, p)
    for row, (a, b) in enumerate(itertools.product(range(3), range(2))):
        for column in range(5):
            exact = Fraction(0)
            for share, mean in zip(
                (3, 1, 0, 4), (Fraction(0), Fraction(1, 4), Fraction(0.3), Fraction(1, 2)), strict=True
            ):
                chance = math.comb(2, a) * math.comb(1, b) * mean ** (a + b) * (1 - mean) ** (3 - a - b)
                exact += Fraction(share, 8) * chance * (Fraction(column, 4) - mean) ** 2
            assert 0 <= exact * _optimal.SCALE**2 - cost[row, column] < 1, (row, column)


def wrong_solver(change_table, change_multipliers):
    """Our solver, with its table and its multipliers changed at random."""
    solve, rng = _optimal._solve, np.random.default_rng(3)

    def changed(privacy, risk, outputs, options):
        table, multipliers = solve(privacy, risk, outputs, options)
        return change_table(table, rng), change_multipliers(multipliers, risk.shape[0], rng)

    return changed


TABLES = {
    "right": lambda table, rng: table + 0 * rng.random(),
    "noisy": lambda table, rng: table + rng.normal(0, 1e-4, table.shape),
    "unequal": lambda table, rng: table * rng.uniform(0.9, 1.1, (len(table), 1)),
    "nonsense": lambda table, rng: rng.choice([np.nan, np.inf, -1.0, 0.0, 2.0], table.shape),
    "zeros": lambda table, rng: np.where(rng.random(table.shape) < 2, 0.0, table),
}


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: wrong.__name__)
@pytest.mark.parametrize("table", TABLES)
def test_a_wrong_solver_is_refused_or_makes_the_bracket_wider(table, wrong, monkeypatch):
    """Whatever table and multipliers come back: `lower` ≤ the truth ≤ `mse` and an ε-DP table, or an error."""
    monkeypatch.setattr(_optimal, "_solve", wrong_solver(TABLES[table], wrong))
    for levels, truth in KNOWN:
        try:
            found = hetdp.optimal(levels, outputs=21, grid=21)
        except hetdp.HetdpError as refused:
            assert "not solved well enough" in str(refused)  # noqa: PT017  both outcomes are right
            continue
        assert found.lower <= truth <= found.mse
        assert worst_breach(found, people(levels) if found.epsilon.size else []) <= 0


def test_the_lower_bound_is_never_above_the_upper_one():
    """Two hundred random populations of few states, coarse grids: lower ≤ mse, and they are not far apart."""
    rng = np.random.default_rng(18)
    for _ in range(200):
        size = int(rng.integers(1, 5))
        epsilons = np.where(rng.random(size) < 0.1, INF, np.exp(rng.uniform(-6, 4, size)))
        found = hetdp.optimal(rng.choice(epsilons, size), outputs=11, grid=13)
        assert 0 <= found.lower <= found.mse <= found.lower + step(found) + 2e-3, found


# --- The mechanism that comes back ----------------------------------------------------------------------------


def exp_between(x):
    """Rational numbers below and above e^{−x}, 0 ≤ x ≤ 60: partial sums of a series whose terms alternate in sign."""
    total, term, last = Fraction(0), Fraction(1), Fraction(0)
    for k in range(1, 301):
        last, total = total, total + term
        term *= -Fraction(x) / k
    return min(last, total), max(last, total)


@pytest.mark.parametrize("x", [0.0, 1e-9, 0.1, 1.0, math.log(2), 7.3, 44.0, 59.9])
def test_exponentials_lie_between_their_bounds(x):
    """Both bounds on e^{−x} are on their side, three units apart at most; far out they are 0 and 2."""
    low, high = exp_between(x)
    assert high - low < Fraction(1, 10**30)
    below, above = _optimal._exp(x)
    assert below <= low * _optimal.SCALE
    assert above >= high * _optimal.SCALE
    assert 2 <= above - below <= 3
    assert _optimal._exp(1e300) == (0, 2)


def worst_breach(found, epsilons):
    """The largest e^{−ε}·P(y | x′) − P(y | x) over all people, all data sets x and neighbours x′: nothing of ours used.

    `epsilons` has one entry a person. The table is looked up by counting, and read as exact numbers. e^{−ε} is
    rounded up, so a result that is not positive is proof.
    """
    place = {tuple(row): i for i, row in enumerate(found.counts.tolist())}
    exact = [[Fraction(chance) for chance in row] for row in found.probability.tolist()]

    def law(x):
        ones = tuple(sum(v for v, e in zip(x, epsilons, strict=True) if e == level) for level in found.epsilon)
        return exact[place[ones]]

    worst = Fraction(-1)
    for i, epsilon in enumerate(epsilons):
        if epsilon == 0:
            factor = 1
        else:
            factor = math.ceil(exp_between(epsilon)[1] * 10**40) / Fraction(10**40) if epsilon <= 60 else 0
        for x in itertools.product((0, 1), repeat=len(epsilons)):
            other = (*x[:i], 1 - x[i], *x[i + 1 :])
            worst = max(worst, *(factor * b - a for a, b in zip(law(x), law(other), strict=True)))
    return worst


def people(levels):
    return [epsilon for epsilon, count in levels.items() for _ in range(count)]


SMALL = [{1: 3}, {0.5: 3, 2: 3}, {0.01: 2, 5: 4}, {0: 2, 0.3: 2, INF: 2}, {1: 3, 20: 3}, {1: 2, 40: 2, INF: 1}]


@pytest.mark.parametrize("levels", SMALL, ids=str)
def test_the_mechanism_is_private_for_every_person(levels):
    """Every inequality holds for every person and every data set, exactly; rows sum to 1, exactly."""
    found = best(levels)
    assert worst_breach(found, people(levels)) <= 0
    assert found.probability.min() >= 0
    assert {sum(map(Fraction, row)) for row in found.probability.tolist()} == {1}


def test_one_unit_too_many_is_noticed():
    """Control: the exact check of a table sees one unit of 2⁻⁵³ by which an inequality is broken."""
    one, three = np.array([0.5, math.log(3)]), np.array([1, 1])
    even = np.full((4, 2), _optimal.UNIT // 2)
    assert np.all(_optimal._breach(even, one, three) < 0)
    thirds = np.array([[1, 2], [1, 2], [2, 1], [2, 1]]) * (_optimal.UNIT // 3)
    assert np.any(_optimal._breach(thirds, np.array([math.log(2) * (1 - 1e-15), 1.0]), three) > 0)
    assert np.all(_optimal._breach(thirds, np.array([math.log(2) * (1 + 1e-15), 1.0]), three) <= 0)


@pytest.mark.parametrize("forgotten", [0.5, 2])
def test_a_mechanism_that_forgets_a_level_is_noticed(forgotten):
    """Control: the best mechanism when one level is public breaks the inequalities of that level, by the same check."""
    levels = {0.5: 3, 2: 3}
    found = hetdp.optimal({(INF if e == forgotten else e): count for e, count in levels.items()})
    order = np.array([forgotten if math.isinf(e) else e for e in found.epsilon])
    asked = hetdp.Optimum(**{**vars(found), "epsilon": order})
    assert worst_breach(asked, people(levels)) > 1e-3


def test_a_program_that_forgets_a_level_is_refused(monkeypatch):
    """Control: if the solver returns a table that is far from ε-DP, nothing comes back."""
    whole = _optimal._privacy

    def without_last(epsilon, count, outputs):
        rows, kept = whole(epsilon, count, outputs), whole(np.append(epsilon[:-1], INF), count, outputs).shape[0]
        return diags_array(1.0 * (np.arange(rows.shape[0]) < kept)) @ rows

    monkeypatch.setattr(_optimal, "_privacy", without_last)
    with pytest.raises(hetdp.HetdpError, match="not solved well enough"):
        hetdp.optimal({0.5: 3, 2: 3})


def risk_by_listing(found, epsilons, p):
    """E(answer − mean)² at p by listing all data sets, in units of the values."""
    lo, hi = found.interval.lo, found.interval.hi
    squares = (found.outputs - (lo + (hi - lo) * p)) ** 2
    place = {tuple(row): i for i, row in enumerate(found.counts.tolist())}
    total = 0.0
    for x in itertools.product((0, 1), repeat=len(epsilons)):
        ones = tuple(sum(v for v, e in zip(x, epsilons, strict=True) if e == level) for level in found.epsilon)
        total += p ** sum(x) * (1 - p) ** (len(x) - sum(x)) * float(found.probability[place[ones]] @ squares)
    return total


@pytest.mark.parametrize("levels", SMALL, ids=str)
def test_risk_is_the_error_of_the_mechanism(levels):
    """`risk(p)` is what listing all data sets gives, and the midpoint of the interval mirrors it."""
    found = hetdp.optimal(levels, bounds=(-3, 5))
    for p in (0, 0.1, 0.37, 0.5, 1):
        assert found.risk(p) == pytest.approx(risk_by_listing(found, people(levels), p), rel=1e-9)
    p = np.linspace(0, 1, 11)
    assert found.risk(p) == pytest.approx(found.risk(1 - p), rel=1e-9)


@pytest.mark.parametrize("levels", EVERY, ids=str)
def test_no_p_is_worse_than_the_mse(levels):
    """On a fine grid of p that has nothing to do with ours the error stays at the reported one, and comes near it."""
    found = best(levels)
    worst = found.risk(np.linspace(0, 1, 3001)).max()
    assert worst <= found.mse
    assert worst >= found.mse * (1 - 2e-4)
    assert found.mse - program_value(found) <= 1e-5, "the grid of p in the program is too coarse"


@pytest.mark.parametrize("grid", [2, 3, 5])
def test_the_mse_sees_what_a_coarse_grid_of_means_does_not(grid):
    """When the program looks at a few p only, its mechanism is bad between them, and `mse` says how bad."""
    found = best({0.5: 5, 2: 5}, grid=grid)
    assert found.mse > 1.02 * program_value(found)
    assert found.mse * (1 - 5e-5) <= found.risk(np.linspace(0, 1, 30001)).max() <= found.mse


# --- What must lie above, what must lie below ------------------------------------------------------------------


def worst_cases(levels):
    names = [name for name in hetdp.methods() if not (name == "stretch" and INF in levels)]
    return {name: hetdp.plan(levels, method=name, bounds=UNIT).worst_case_mse for name in names}


@pytest.mark.parametrize("levels", EVERY, ids=str)
def test_every_method_lies_above(levels):
    """The worst case of every method is at least `lower`, and above `mse` but for what the grids leave open."""
    found = best(levels)
    for name, error in worst_cases(levels).items():
        assert error >= found.lower, (name, error, found)
        assert error >= found.mse - step(found) - 1e-5, (name, error, found)


@pytest.mark.parametrize("levels", EVERY, ids=str)
def test_every_certificate_lies_below(levels):
    """Each of the three lower bounds is at most the error of the mechanism found."""
    found = best(levels)
    for name, bound in hetdp.certificate(levels, bounds=UNIT).candidates.items():
        assert bound <= found.mse, (name, bound, found)


def test_a_bound_or_a_method_that_is_off_by_three_per_cent_would_be_noticed():
    """Control: the comparisons above are tight somewhere, on both sides."""
    above = min(min(worst_cases(levels).values()) / best(levels).lower for levels in EVERY)
    below = max(hetdp.certificate(levels, bounds=UNIT).lower / best(levels).mse for levels in EVERY)
    assert 1 <= above < 1.03, above
    assert 1 >= below > 0.97, below


def test_adpm_and_minimax_are_as_far_from_it_as_the_documentation_says():
    """ADPM within 1.2 to 2.9 times the optimum, minimax within 1.13, for all populations of up to 20 people here."""
    ratio = {name: [worst_cases(levels)[name] / best(levels).mse for levels in EVERY] for name in ("adpm", "minimax")}
    assert 1.2 < min(ratio["adpm"]) < max(ratio["adpm"]) < 2.9, ratio
    assert 0.99 < min(ratio["minimax"]) < max(ratio["minimax"]) < 1.13, ratio


def rows_of_the_page():
    """Pairs of levels and the three numbers printed beside them."""
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if len(cells) == 4 and re.fullmatch(r"\d\.\d\d", cells[1]):
            text = re.sub(r" (person|public)", lambda m: " at inf" if m[1] == "public" else "", cells[0])
            levels = {float(e): int(n) for n, e in re.findall(r"(\d+) at ([\d.inf]+)", text)}
            yield levels, [float(cell) for cell in cells[1:]]


def test_the_table_of_the_page_is_true():
    """Every number in the table of the documentation is what the functions return, rounded."""
    rows = list(rows_of_the_page())
    assert len(rows) == 8
    for levels, (adpm, minimax, bound) in rows:
        mse = best(levels).mse
        errors = worst_cases(levels)
        computed = [errors["adpm"] / mse, errors["minimax"] / mse, hetdp.certificate(levels, bounds=(0, 1)).lower / mse]
        assert computed == pytest.approx([adpm, minimax, bound], abs=0.0051), levels


# --- How it moves -----------------------------------------------------------------------------------------------


def falls(values):
    return all(b <= a + 3e-7 for a, b in itertools.pairwise(values))


def test_it_falls_with_epsilon():
    """More ε for some people never makes the best mechanism worse."""
    assert falls([program_value(best({0.5: 4, e: 4})) for e in (0.6, 1, 2, 5, 12, 20, 40, INF)])
    assert falls([program_value(best({e: 6})) for e in (0, 1e-9, 1e-3, 0.1, 0.5, 1, 3, 8, 20, 1e300, INF)])


def test_it_falls_with_people():
    """One more person never makes the best mechanism worse, because they can be ignored."""
    assert falls([program_value(best({0.5: n})) for n in (1, 2, 3, 5, 9, 17)])
    assert falls([program_value(best({0.5: 4, 2: n})) for n in (1, 2, 4, 7)])


@pytest.mark.parametrize("levels", [{1: 4}, {0.5: 3, 2: 3}, {INF: 5}], ids=str)
def test_finer_outputs_only_help(levels):
    """Grids of 21, 41 and 81 outputs contain one another: the value falls, and all brackets share the optimum."""
    found = [best(levels, outputs=outputs) for outputs in (21, 41, 81)]
    assert falls([program_value(one) for one in found])
    assert max(one.lower for one in found) <= min(one.mse for one in found)
    assert found[2].gap < found[1].gap / 3 < found[0].gap / 9


@pytest.mark.parametrize("levels", [{1: 4}, {0.5: 3, 2: 3}], ids=str)
def test_finer_means_only_raise(levels):
    """More p in the program are more constraints: the value rises, and never above the error of a mechanism found."""
    found = [best(levels, grid=grid) for grid in (6, 11, 21, 41)]
    assert falls([-program_value(one) for one in found[1:]])  # 11, 21 and 41 contain one another
    assert all(program_value(one) <= other.mse + 1e-7 for one, other in itertools.product(found, repeat=2))


def test_people_who_do_not_count_do_not_count():
    """People with ε = 0, or one so small that it makes no difference, change nothing."""
    plain = best({1: 3})
    assert best({0: 40, 1: 3}).mse == plain.mse
    assert best({1e-9: 5, 1: 3}).mse == plain.mse
    assert best({1e-9: 5, 1: 3}).lower == pytest.approx(plain.lower, rel=1e-8)
    assert best({0: 40, 1: 3}).states == 4


def test_a_small_level_is_dropped_at_a_price_that_is_paid():
    """A level is dropped up to people × ε = 1e-4: there the bracket still contains what is found just above."""
    below, above = best({1: 3, 9e-5: 1}), best({1: 3, 1.1e-4: 1})
    assert (below.states, above.states) == (4, 8)
    assert below.lower <= above.mse <= above.lower + step(above) + 1e-5
    assert above.lower <= below.mse
    assert below.lower == pytest.approx(best({1: 3}).lower * math.exp(-9e-5), rel=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize(
    "levels",
    [{2e-4: 3, 7: 3}, {1e-3: 6, 7: 5}, {2e-5: 7, 1: 8}, {20: 4, 2e-5: 3, INF: 4}, {15: 2, 20: 4}, {0.01: 3, 60: 3}],
    ids=str,
)
def test_extreme_levels_are_solved_well(levels):
    """From ε × people = 1e-4 to 60 the bracket stays within one per cent of the optimum, and the table is private."""
    found = best(levels)
    assert found.gap <= step(found) + 0.01 * found.mse, found
    if len(people(levels)) < 8:
        assert worst_breach(found, people(levels)) <= 0


def test_units_are_those_of_the_values():
    """On another interval errors scale with the square of its width, and answers lie in it."""
    unit, wide = best({0.5: 3, 2: 2}), hetdp.optimal({0.5: 3, 2: 2}, bounds=(100, 300))
    assert wide.mse == pytest.approx(4e4 * unit.mse)
    assert wide.lower == pytest.approx(4e4 * unit.lower)
    assert (wide.outputs[0], wide.outputs[-1], wide.outputs.size) == (100, 300, 41)
    assert wide.risk(0.3) == pytest.approx(4e4 * unit.risk(0.3))
    assert wide.gap == wide.mse - wide.lower


def test_levels_come_in_every_form():
    """A mapping, `Levels` and one ε a person are the same question."""
    found = [hetdp.optimal(form).mse for form in ({0.5: 2, 2: 1}, hetdp.Levels({0.5: 2, 2: 1}), [0.5, 2, 0.5])]
    assert found[0] == found[1] == found[2]
    assert "states=6" in repr(best({0.5: 2, 2: 1}))


# --- What is refused --------------------------------------------------------------------------------------------


def test_too_many_states_are_refused_by_number():
    """Above the limit the message has the number of states, the limit, and what to do."""
    with pytest.raises(hetdp.InputError, match=r"may be 300 \(got 1,111 states\).*hetdp\.certificate"):
        hetdp.optimal({0.1: 100, 1: 10, 0: 10**9})
    with pytest.raises(hetdp.InputError, match="got 1,000,001 states"):
        hetdp.optimal({INF: 10**6})


@pytest.mark.parametrize("points", [1, 0, -1, 41.0, True, "41", None])
def test_a_grid_that_is_none_is_refused(points):
    """The number of points is a whole number, and there are enough of them."""
    with pytest.raises(hetdp.InputError, match="outputs must be a whole number of points, 3 or more"):
        hetdp.optimal({1: 2}, outputs=points)
    with pytest.raises(hetdp.InputError, match="grid must be a whole number of points, 2 or more"):
        hetdp.optimal({1: 2}, grid=points)


@pytest.mark.parametrize("p", [-0.1, 1.1, math.nan, [0.5, 2]])
def test_a_p_that_is_no_probability_is_refused(p):
    with pytest.raises(hetdp.InputError, match="p is a probability"):
        best({1: 1}).risk(p)


def test_a_solver_that_gives_up_is_followed_by_the_next(monkeypatch):
    """If HiGHS has no answer in one way, the next is tried; if in none, nothing comes back."""
    gives_up = {"method": "highs-ds", "options": {"maxiter": 1}}
    monkeypatch.setattr(_optimal, "_ATTEMPTS", (gives_up, *_optimal._ATTEMPTS))
    assert hetdp.optimal({0.5: 3, 2: 3}).mse == pytest.approx(best({0.5: 3, 2: 3}).mse, abs=1e-5)
    monkeypatch.setattr(_optimal, "_ATTEMPTS", (gives_up,))
    with pytest.raises(hetdp.HetdpError, match="not solved well enough"):
        hetdp.optimal({0.5: 3, 2: 3})


@pytest.mark.parametrize("options", _optimal._ATTEMPTS)
def test_every_way_to_solve_has_the_same_value(options, monkeypatch):
    """The attempts differ in rounding alone."""
    monkeypatch.setattr(_optimal, "_ATTEMPTS", (options,))
    found = hetdp.optimal({0.5: 3, 2: 3})
    assert found.lower == pytest.approx(best({0.5: 3, 2: 3}).lower, abs=1e-8)
    assert found.mse == pytest.approx(best({0.5: 3, 2: 3}).mse, abs=1e-5)
