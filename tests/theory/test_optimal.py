"""The exact optimum against closed forms, a program without its symmetries, and what must lie above or below."""

from __future__ import annotations

import itertools
import math
import re
from functools import cache
from pathlib import Path

import cvxpy as cp
import numpy as np
import pytest

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
    """What the linear program itself said, on an interval of length 1: `lower` before its three allowances."""
    return found.lower + 0.25 / (found.outputs.size - 1) ** 2 + _optimal.SLACK


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
    assert found.lower <= one_person(epsilon) <= found.mse + 1e-12, (found, one_person(epsilon))
    assert found.gap <= step(found) + 3e-6


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
    assert found.mse == pytest.approx(400 / 4, rel=1e-9)
    assert found.lower == pytest.approx(400 / 4, abs=400 * (step(found) + 1e-6))
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


# --- The mechanism that comes back ----------------------------------------------------------------------------


def worst_breach(found, epsilons):
    """The largest e^{−ε}·P(y | x′) − P(y | x) over all people, all data sets x and neighbours x′: nothing of ours used.

    `epsilons` has one entry a person. The table is looked up by counting.
    """
    place = {tuple(row): i for i, row in enumerate(found.counts.tolist())}

    def law(x):
        ones = tuple(sum(v for v, e in zip(x, epsilons, strict=True) if e == level) for level in found.epsilon)
        return found.probability[place[ones]]

    worst = -INF
    for x in itertools.product((0, 1), repeat=len(epsilons)):
        for i, epsilon in enumerate(epsilons):
            other = (*x[:i], 1 - x[i], *x[i + 1 :])
            worst = max(worst, float(np.max(math.exp(-epsilon) * law(other) - law(x))))
    return worst


def people(levels):
    return [epsilon for epsilon, count in levels.items() for _ in range(count)]


SMALL = [{1: 3}, {0.5: 3, 2: 3}, {0.01: 2, 5: 4}, {0: 2, 0.3: 2, INF: 2}, {1: 3, 20: 3}, {1: 2, 40: 2, INF: 1}]


@pytest.mark.parametrize("levels", SMALL, ids=str)
def test_the_mechanism_is_private_for_every_person(levels):
    """Every inequality holds for every person and every data set, up to the rounding of doubles; rows sum to 1."""
    found = best(levels)
    assert worst_breach(found, people(levels)) <= 1e-15
    assert found.violation <= 1e-14
    assert found.probability.min() >= 0
    assert np.abs(found.probability.sum(axis=1) - 1).max() <= 1e-14


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
        return whole(np.append(epsilon[:-1], INF), count, outputs)

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
    assert worst <= found.mse * (1 + 2e-4)
    assert worst >= found.mse * (1 - 2e-4)
    assert found.mse - program_value(found) <= 1e-5, "the grid of p in the program is too coarse"


@pytest.mark.parametrize("grid", [2, 3, 5])
def test_the_mse_sees_what_a_coarse_grid_of_means_does_not(grid):
    """When the program looks at a few p only, its mechanism is bad between them, and `mse` says how bad."""
    found = best({0.5: 5, 2: 5}, grid=grid)
    assert found.mse > 1.02 * program_value(found)
    assert found.risk(np.linspace(0, 1, 30001)).max() == pytest.approx(found.mse, rel=1e-6)


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
    for name, bound in hetdp.certificate(levels, bounds=UNIT).bounds.items():
        assert bound <= found.mse, (name, bound, found)


def test_a_bound_or_a_method_that_is_off_by_three_per_cent_would_be_noticed():
    """Control: the comparisons above are tight somewhere, on both sides."""
    above = min(min(worst_cases(levels).values()) / best(levels).lower for levels in EVERY)
    below = max(hetdp.certificate(levels, bounds=UNIT).lower / best(levels).mse for levels in EVERY)
    assert 1 <= above < 1.03, above
    assert 1 >= below > 0.97, below


def test_adpm_and_minimax_are_as_far_from_it_as_the_documentation_says():
    """ADPM within 1.2 to 2.9 times the optimum, minimax within 1.34, for all populations of up to 20 people here."""
    ratio = {name: [worst_cases(levels)[name] / best(levels).mse for levels in EVERY] for name in ("adpm", "minimax")}
    assert 1.2 < min(ratio["adpm"]) < max(ratio["adpm"]) < 2.9, ratio
    assert 0.99 < min(ratio["minimax"]) < max(ratio["minimax"]) < 1.34, ratio


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
    assert found.violation <= 1e-14


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
    assert hetdp.optimal({0.5: 3, 2: 3}).mse == best({0.5: 3, 2: 3}).mse
    monkeypatch.setattr(_optimal, "_ATTEMPTS", (gives_up,))
    with pytest.raises(hetdp.HetdpError, match="not solved well enough"):
        hetdp.optimal({0.5: 3, 2: 3})


@pytest.mark.parametrize("options", _optimal._ATTEMPTS)
def test_every_way_to_solve_has_the_same_value(options, monkeypatch):
    """The attempts differ in rounding alone."""
    monkeypatch.setattr(_optimal, "_ATTEMPTS", (options,))
    found = hetdp.optimal({0.5: 3, 2: 3})
    assert found.lower == pytest.approx(best({0.5: 3, 2: 3}).lower, abs=_optimal.SLACK)
    assert found.mse == pytest.approx(best({0.5: 3, 2: 3}).mse, abs=1e-5)
