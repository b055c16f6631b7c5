"""The family of statistics: one person moves what is noised by at most the cost, in the geometry's own measure.

Neighbouring tables go through the real `release`, with recorders in the place of the samplers. What a sampler is given
decides the privacy loss, so the inequality is checked in integers. Every statistic, every pair of extreme rows and sums
of the others that are made to hit the floors are tried; `distance` measures, and the controls use it as well.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hetdp
from hetdp.checks.audit import lower_bound
from hetdp.core.accuracy import shape_bound
from hetdp.core.levels import Levels
from hetdp.core.plan import Plan
from hetdp.errors import InputError, PrivacyError
from hetdp.privacy import release as _release
from hetdp.privacy.exact import Box, Choice, Line, Mass, NoiseTerm, below, check_together, limits
from hetdp.statistics import STATISTICS
from hetdp.statistics.answer import shares_of
from hetdp.tally import Table, Tally, coded, settled
from support import examples

Q = 2**20
INF = math.inf
NUMBERS = (math.nan, -INF, INF, 0.0, 1.0, 0.5, 1 / Q, 3 / Q, 1 - 1 / Q, 0.3, 0.7)
"""On the interval [0, 1]: both ends and what lies beyond, nothing, and codes that leave every kind of remainder."""
EXAMPLES = {
    "mean": ({"bounds": (0, 1)}, [(x,) for x in NUMBERS]),
    "sum": ({"bounds": (0, 1)}, [(x,) for x in NUMBERS]),
    "proportion": ({"equals": "yes"}, [(0,), (1,), (2,)]),
    "count": ({"equals": "yes"}, [(0,), (1,), (2,)]),
    "histogram": ({"categories": ["a", "b", "c", "d"]}, [(i,) for i in range(5)]),
    "mode": ({"categories": ["a", "b", "c", "d"]}, [(i,) for i in range(5)]),
    "quantile": ({"q": (0.1, 0.5, 0.77), "bounds": (0, 1), "bins": 9}, [(x,) for x in NUMBERS]),
    "bounds": ({"outer": (0, 1)}, [(x,) for x in NUMBERS]),
    "variance": ({"bounds": (0, 1)}, [(x,) for x in NUMBERS]),
    "means": (
        {"bounds": {"a": (0, 1), "b": (0, 1), "c": (0, 1)}},
        [(x, y, z) for x in (0.0, 1.0, 1 / Q) for y in (math.nan, 0.0, 1.0) for z in (INF, 0.3, 0.0)],
    ),
    "mean_by_group": (
        {"bounds": (0, 1), "categories": ["a", "b"]},
        [(x, group) for x in (math.nan, 0.0, 1.0, 1 / Q, 1 - 1 / Q, 0.3) for group in (0, 1, 2)],
    ),
}
ANSWERED = ", answered"
EXAMPLES |= {
    name + ANSWERED: ({**parameters, "missing": "estimate"}, rows)
    for name, (parameters, rows) in EXAMPLES.items()
    if STATISTICS[name].asks_missing
}
"""The parameters of every statistic, and rows as a source hands them over: numbers, and the places of categories."""


def statistic_of(name):
    return STATISTICS[name.removesuffix(ANSWERED)](**EXAMPLES[name][0])


def test_every_statistic_is_tried_here():
    assert set(STATISTICS) <= set(EXAMPLES)


def handed_over(statistic, row):
    """Return what one person hands over, as integers."""
    keep, cell, codes = settled(statistic, *coded(statistic, [np.array([entry]) for entry in row]))
    assert keep is None
    sums = np.stack(codes, axis=1).astype(np.int64) if codes else np.empty((1, 0), np.int64)
    return statistic.totals(cell, np.ones(1, np.int64), sums)[0]


def distance(geometry, one, other):
    """Return how far apart two recordings are, in the measure that the noise of this geometry hides."""
    (kinds, before, _), (others, after, _) = zip(*one, strict=True), zip(*other, strict=True)
    assert kinds == others
    moved = [[b - a for a, b in zip(x, y, strict=True)] for x, y in zip(before, after, strict=True)]
    if isinstance(geometry, Choice):
        assert kinds == ("chosen",) * geometry.picks
        return sum(2 * max(map(abs, part)) for part in moved)
    assert kinds == ({Line: "noisy", Mass: "zero_sum", Box: "boxed"}[type(geometry)],)
    (part,) = moved
    if isinstance(geometry, Mass):
        assert sum(part) == 0  # the noise adds up to 0: another total would be seen
        return Fraction(sum(map(abs, part)), 2)
    return max(map(abs, part))


@pytest.fixture
def recorded(monkeypatch):
    """What the samplers were given, in order: which, the numbers, the scale. Their answer is always the same."""
    calls = []

    def stand_in(name, answer):
        def sampler(numbers, scale):
            numbers = [numbers] if isinstance(numbers, int) else list(numbers)
            assert all(type(number) is int for number in numbers)
            calls.append((name, numbers, scale))
            return answer(numbers)

        monkeypatch.setattr(f"hetdp.privacy.release.{name}", sampler)

    stand_in("noisy", lambda _: 7)
    stand_in("zero_sum", lambda numbers: [7] * len(numbers))
    stand_in("boxed", lambda numbers: [7] * len(numbers))
    stand_in("chosen", lambda _: 0)
    return calls


def small_plan(statistic, weights, counts, scale=None):
    """Return a plan at ε = 1, 2 and public with these weights; the others never decide the scale."""
    levels, units = Levels(dict(zip((1.0, 2.0, INF), counts, strict=True))), np.array(weights, np.int64)
    most = int(statistic.geometry.cost(units)[:2].max())
    noise = (NoiseTerm(float(most + 1) if scale is None else scale, 0, 3),)
    return Plan("uniform", levels, statistic, units, noise, None, abstains=False)


def given_to_samplers(statistic, plan, rows, recorded):
    """Return what the samplers get for people who hand over these integers, by level."""
    total = np.array([np.sum([handed_over(statistic, row) for row in level], axis=0) for level in rows])
    table = Table(plan.levels.epsilon, plan.levels.count, total.astype(np.int64))
    recorded.clear()
    hetdp.release(Tally(table, statistic), plan)
    return list(recorded)


def crowds(rows, rng):
    """Yield what the others are: extreme rows, also such that leave no remainder at all, and mixtures."""
    for row in rows[:8]:
        yield [row], [row]
    for _ in range(6):
        yield [[rows[i] for i in rng.integers(len(rows), size=3)] for _ in range(2)]


@pytest.mark.parametrize("name", sorted(EXAMPLES))
@pytest.mark.parametrize("weight", [1, 2, 5])
def test_no_row_moves_what_is_noised_by_more_than_the_cost_and_some_row_reaches_it(name, weight, recorded):
    """So the cost cannot be smaller. Among the others are people of weights 3 and 7, public ones too."""
    statistic, rows = statistic_of(name), EXAMPLES[name][1]
    cost = int(statistic.geometry.cost(np.array([weight]))[0])
    farthest = 0
    for private, public in crowds(rows, np.random.default_rng(weight)):
        plan = small_plan(statistic, (weight, 3, 7), (1, len(private), len(public)))
        seen = [given_to_samplers(statistic, plan, ([row], private, public), recorded) for row in rows]
        for one, other in itertools.combinations(seen, 2):
            assert {scale for _, _, scale in (*one, *other)} == {plan.noise[0].scale}
            farthest = max(farthest, distance(statistic.geometry, one, other))
            assert farthest <= cost
    assert farthest == cost


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_what_is_noised_by_a_real_plan_costs_nobody_more_than_their_epsilon(name, recorded):
    """Weights of 30 bits, one person at each of two levels, in exact fractions; somebody comes near their ε."""
    statistic, rows = statistic_of(name), EXAMPLES[name][1]
    people = {0.5: 400, 1.5: 300}
    plan = hetdp.plan(people, statistic=statistic, method="proportional")
    assert not plan.abstains
    rng = np.random.default_rng(1)
    base = [[rows[i] for i in rng.integers(len(rows), size=count)] for count in people.values()]
    sums = np.array([np.sum([handed_over(statistic, row) for row in level[1:]], axis=0) for level in base])
    for level, epsilon in ((0, 0.5), (1, 1.5)):
        seen = []
        for row in rows:
            total = sums.copy()
            for at, crowd in enumerate(base):
                total[at] += handed_over(statistic, row if at == level else crowd[0])
            recorded.clear()
            hetdp.release(Tally(Table(plan.levels.epsilon, plan.levels.count, total), statistic), plan)
            seen.append(list(recorded))
        scale = Fraction(plan.noise[0].scale)
        spent = [distance(statistic.geometry, *pair) / scale for pair in itertools.combinations(seen, 2)]
        assert max(spent) <= Fraction(float(below(np.array([epsilon]))[0]))
        assert max(spent) <= Fraction(float(plan.spent[level]))
        assert max(spent) > 0.98 * epsilon


def test_the_score_of_a_bin_is_minus_the_distance_of_the_wanted_rank_from_it():
    """By brute force: a bin holds the ranks from the weight below it to the weight not above it, both ends included."""
    statistic, rng = statistic_of("quantile"), np.random.default_rng(3)
    plan = small_plan(statistic, (1, 3, 7), (1, 1, 1))
    for _ in range(100):
        weights = (rng.integers(0, 6, 9) * rng.integers(0, 2, 9)).tolist()
        for pick, q in enumerate(statistic.q):
            wanted, upto = math.floor(Fraction(q) * sum(weights)), 0
            for score, weight in zip(statistic.scores(weights, pick, plan), weights, strict=True):
                assert -score == min(abs(rank - wanted) for rank in range(upto, upto + weight + 1))
                upto += weight


def test_a_person_moves_the_score_of_every_place_by_at_most_their_weight_also_by_not_answering():
    """The ends of an interval too, whose rank may lie beyond all who answered; and some place always holds it."""
    statistic, rng = (
        STATISTICS["quantile"](q=(0.1, 0.5, 0.77), bounds=(0, 1), bins=5, within=0.9, missing="estimate"),
        np.random.default_rng(4),
    )
    plan = small_plan(statistic, (1, 3, 7), (3, 3, 3))
    assert len(statistic.scores([0] * 6, 3, plan)) == 7
    for _ in range(300):
        crowd, weight = (rng.integers(0, 9, 6) * rng.integers(0, 2, 6)).tolist(), int(rng.integers(1, 8))
        for pick in range(9):
            tables = [[total + weight * (i == mine) for i, total in enumerate(crowd)] for mine in range(6)]
            seen = [statistic.scores(table, pick, plan) for table in tables]
            assert {max(scores) for scores in seen} == {0}
            for one, other in itertools.combinations(seen, 2):
                assert max(abs(a - b) for a, b in zip(one, other, strict=True)) <= weight


def test_control_floors_apart_would_change_the_total_and_cost_more(recorded, monkeypatch):
    """Each cell floored by itself: the answers of one person can then lower the sum of all cells by one."""
    monkeypatch.setattr(_release, "accumulate", list)
    monkeypatch.setattr(_release, "pairwise", lambda sums: [(0, each) for each in sums[1:]])
    statistic, rows = statistic_of("mean, answered"), EXAMPLES["mean, answered"][1]
    plan = small_plan(statistic, (1, 3, 7), (1, 1, 1))
    seen = [given_to_samplers(statistic, plan, ([row], [(0.0,)], [(0.0,)]), recorded) for row in rows]
    totals = {sum(numbers) for ((_, numbers, _),) in seen}
    assert len(totals) > 1
    with pytest.raises(AssertionError):
        [distance(statistic.geometry, *pair) for pair in itertools.combinations(seen, 2)]


def test_control_codes_that_do_not_stand_side_by_side_would_cost_more_than_the_weight():
    """Halves of a unit in cells 1 and 3 against cells 2 and 4: floors of partial sums then turn three times."""
    weight, most = 5, 0
    before, after = [Q // 2, 0, Q - Q // 2, 0], [0, Q // 2, 0, Q - Q // 2]
    for others in itertools.product((0, 1, Q // 2, Q - 1), repeat=3):
        floors = []
        for codes in (before, after):
            sums = [weight * code + other for code, other in zip(codes, (*others, -sum(others)), strict=True)]
            upto = [partial // Q for partial in itertools.accumulate(sums)]
            floors.append([b - a for a, b in itertools.pairwise([0, *upto])])
        most = max(most, sum(abs(b - a) for a, b in zip(*floors, strict=True)) / 2)
    assert most > weight


def test_rows_of_one_person_that_are_averaged_never_reach_a_statistic_that_sorts_people_by_what_they_say():
    """An average of cells does not stand side by side, and the cost would be too small for it."""
    rows = pl.DataFrame({"who": ["a", "a", "b"], "job": ["x", "y", "x"], "pay": [1.0, 2.0, 3.0]})
    options = {"epsilon": 1.0, "person": "who", "rows": "average"}
    for ask in (
        lambda: hetdp.histogram(rows, value="job", categories=["x", "y"], **options),
        lambda: hetdp.histogram(rows, value="pay", edges=[0, 2, 4], **options),
        lambda: hetdp.proportion(rows, value="job", equals="x", missing=0, **options),
        lambda: hetdp.mean(
            rows, value="pay", missing="midpoint", bounds=(0, 4), private_group="job", categories=["x"], **options
        ),
    ):
        with pytest.raises(InputError, match="one row"):
            ask()
    for answer in (  # the control: an average of numbers is a number, whatever it is then sorted into
        hetdp.quantile(rows, 0.5, value="pay", missing="midpoint", bounds=(0, 4), **options),
        hetdp.mean(rows, value="pay", bounds=(0, 4), missing="estimate", **options),
    ):
        assert answer.plan.n == 2


# --- The plan --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "rho"),
    [
        ("mean", 8),
        ("sum", 8),
        ("proportion", 8),
        ("count", 8),
        ("histogram", 4 * 5 * 9 / 6),
        ("mean_by_group", 4 * 6 * 11 / 7),
        ("mean, answered", 20),
        ("proportion, answered", 20),
        ("sum, answered", 8),  # a missing value adds 0, and one number is enough
        ("means, answered", 4 * 7 * 8 / 3),
        ("variance, answered", 80 * 5 / 3),
        ("mean_by_group, answered", 4 * 7 * 13 / 8),
        ("variance", 80),  # not that of the box, see docs/statistics/figures.md
        ("means", 4 * 4 * 5 / 3),
        ("mode", 32),
        ("bounds", 4 * (2 * math.log(1000 * 529)) ** 2 / 0.16),  # 529 cells; how far a choice misses once in a thousand
        ("quantile", 3 * 2 * (2 * 3) ** 2 / (0.09 + 0.25 + 0.77 * 0.23)),
    ],
)
def test_rho_is_the_closed_form_of_its_own_statistic(name, rho):
    """4k(2k − 1)/(k + 1) for k cells, 4(d + 1)(d + 2)/3 for d numbers, 8m²/(mean of q(1 − q)) for m choices."""
    assert statistic_of(name).rho == pytest.approx(rho, rel=1e-12)
    plan = hetdp.plan({0.1: 900, 3.0: 100}, statistic=statistic_of(name))
    assert shape_bound(plan.statistic, plan.variance_bound, plan.share) == pytest.approx(2 / rho, rel=1e-12)


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_a_scale_one_ulp_smaller_is_refused(name):
    plan = hetdp.plan({0.1: 900, 3.0: 100}, statistic=statistic_of(name))
    (term,) = plan.noise
    with pytest.raises(PrivacyError, match="more than somebody's epsilon"):
        replace(plan, noise=(replace(term, scale=math.nextafter(term.scale, 0)),))


@pytest.mark.parametrize("name", ["histogram", "variance", "quantile"])
def test_several_numbers_cannot_have_two_noises_because_only_one_is_drawn(name):
    """Control: of one number two noises are drawn, and such a plan can be made."""
    for asked, allowed in ((name, False), ("mean", True)):
        plan = hetdp.plan({0.1: 900, 3.0: 100}, statistic=statistic_of(asked))
        scale = plan.noise[0].scale
        apart = (NoiseTerm(scale / 2, 1, 2), NoiseTerm(scale, 0, 1))[::-1]
        if allowed:
            assert len(replace(plan, noise=apart).noise) == 2
        else:
            with pytest.raises(PrivacyError, match="one noise"):
                replace(plan, noise=apart)


def test_the_choosers_own_map_never_refuses_a_right_plan_and_refuses_a_wrong_one(monkeypatch):
    """Seven parts of ε = 1.95, 3.57 or 3.9, each rounded up, add up to a hair more than ε."""
    for m, epsilon in ((1, 0.1), (2, 0.7), (3, 1.3), (7, 1.95), (7, 3.57), (7, 3.9)):
        quantile = STATISTICS["quantile"](q=tuple((i + 1) / (m + 1) for i in range(m)), bounds=(0, 1), bins=2)
        plan = hetdp.plan({epsilon: 10**5}, statistic=quantile, method="uniform")
        _release._sampler_agrees(plan, plan.noise[0])
    monkeypatch.setattr(_release, "choice_loss", lambda moved, scale: 2 * moved / scale * (1 + 1e-9))
    with pytest.raises(PrivacyError, match="own privacy map"):
        _release._sampler_agrees(plan, plan.noise[0])


# --- The loss of tiny releases, seen from outside --------------------------------------------------------------------


def window(totals, reach):
    return itertools.product(*(range(total - reach, total + reach + 1) for total in totals))


def zero_sum_odds(y, totals, scale):
    """Return the probability of an outcome, up to a constant factor, from how it is drawn: all but one, then kept."""
    moved = [b - a for a, b in zip(totals, y, strict=True)]
    one = 1 / (2 * scale)
    return math.exp(-sum(abs(z) for z in moved[:-1]) * one) * math.exp(-abs(moved[-1]) * one)


def boxed_odds(y, totals, scale):
    """Return the same for the cube: summed over all sizes that hold the outcome."""
    moved, d = max(abs(b - a) for a, b in zip(totals, y, strict=True)), len(totals)
    sizes = range(moved, moved + int(60 * scale))
    return math.fsum((2 * r + 1) ** d * math.exp(-r / scale) * (2 * r + 1) ** -d for r in sizes)


def chosen_odds(scores, scale):
    """Return the law of permute-and-flip, over all orders."""
    keep = [math.exp((score - max(scores)) / scale) for score in scores]
    odds = [0.0] * len(scores)
    for order in itertools.permutations(range(len(scores))):
        left = 1 / math.factorial(len(scores))
        for cell in order:
            odds[cell] += left * keep[cell]
            left *= 1 - keep[cell]
    return odds


@pytest.mark.parametrize("name", ["histogram", "mean, answered", "variance"])
def test_every_outcome_of_a_tiny_release_is_within_e_to_the_epsilon_for_all_neighbours(name, recorded):
    """And it comes near for some outcome, so that the noise is no larger than it must be."""
    parameters = {"categories": ["a", "b"]} if name == "histogram" else EXAMPLES[name][0]
    statistic = STATISTICS["histogram"](**parameters) if name == "histogram" else statistic_of(name)
    rows = EXAMPLES[name][1][: 3 if name == "histogram" else None]
    plan, odds = small_plan(statistic, (2, 1, 0), (1, 2, 1)), boxed_odds if name == "variance" else zero_sum_odds
    crowd = ([rows[0], rows[1]], [rows[0]])
    seen = {tuple(given_to_samplers(statistic, plan, ([row], *crowd), recorded)[0][1]) for row in rows}
    scale, worst = plan.noise[0].scale, 0.0
    for one, other in itertools.permutations(seen, 2):
        for y in window(one, 4):
            if sum(y) == sum(one) or name == "variance":
                worst = max(worst, math.log(odds(y, one, scale) / odds(y, other, scale)))
    assert 0.999 * plan.spent[0] <= worst <= plan.spent[0] + 1e-12


def test_every_choice_of_a_tiny_quantile_is_within_e_to_the_epsilon_for_all_neighbours(recorded):
    """All tables of people of weight 1 in five bins; the loss is above W/s somewhere, so W would be too low a cost."""
    statistic = STATISTICS["quantile"](q=0.5, bounds=(0, 1), bins=5)
    rows, weight = [(x,) for x in (0.1, 0.3, 0.5, 0.7, 0.9)], 1
    plan, worst = small_plan(statistic, (weight, 1, 0), (1, 4, 1), scale=3.0), 0.0
    for crowd in itertools.combinations_with_replacement(rows, 4):
        laws = []
        for row in rows:
            ((_, scores, scale),) = given_to_samplers(statistic, plan, ([row], crowd, [rows[0]]), recorded)
            laws.append(chosen_odds(scores, scale))
        for one, other in itertools.permutations(laws, 2):
            worst = max(worst, *(math.log(p / q) for p, q in zip(one, other, strict=True)))
    assert 1.2 * weight / 3.0 < worst <= 2 * weight / 3.0 <= plan.spent[0]


DRAWS = 1500
SEEN = {
    "histogram": ([("a",), ("b",)], lambda numbers: numbers[0] - numbers[1]),
    "mode": ([("a",), ("b",)], lambda numbers: numbers[0]),
    "variance": ([(0.0,), (1.0,)], lambda numbers: numbers[0]),
    "means": ([(0.0, 0.0, 0.0), (1.0, 1.0, 1.0)], sum),
    "mean, answered": ([(0.0,), (1.0,)], lambda numbers: numbers[0] - numbers[1]),
    "variance, answered": ([(math.nan,), (1.0,)], lambda numbers: numbers[2]),
    "quantile": ([(0.0,), (1.0,)], lambda numbers: numbers[0]),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SEEN)
def test_draws_of_neighbours_never_show_more_than_the_plan_says(name):
    """Control: thirteen people who change at once are shown to lose more than one of them allows."""
    statistic = STATISTICS["quantile"](q=0.5, bounds=(0, 1), bins=4) if name == "quantile" else statistic_of(name)
    (low, high), look = SEEN[name]
    plan = hetdp.plan({1.0: 24}, statistic=statistic, method="uniform")
    before, after, far = (
        results(statistic, plan, [high] * count + [low] * (24 - count), look) for count in (13, 12, 0)
    )
    assert lower_bound(before, after, 1e-9) <= plan.spent[0] <= 1
    assert lower_bound(before, far, 1e-9) > plan.spent[0]


def results(statistic, plan, people, look):
    columns = [np.array(column) for column in zip(*people, strict=True)]
    if statistic.name in ("histogram", "mode"):
        columns = [np.array(["abcd".index(cell) for cell in columns[0]])]
    total = np.zeros((1, statistic.width), np.int64)
    for row in zip(*columns, strict=True):
        total += handed_over(statistic, row)
    tally = Tally(Table(np.array([1.0]), np.array([len(people)]), total), statistic)
    return np.array([look(hetdp.release(tally, plan).numbers) for _ in range(DRAWS)])


# --- Several questions about the same people -------------------------------------------------------------------------

FLOOR = float(np.nextafter(0.75, 1))
"""An ε whose double just below is 3/4."""


def part(cost, scale):
    return np.array([cost], np.int64), (NoiseTerm(scale, 0, 1),)


def test_parts_that_add_up_to_exactly_what_is_allowed_pass_and_a_hair_more_does_not():
    epsilon = np.array([FLOOR])
    check_together([part(1, 4.0), part(1, 2.0)], epsilon)
    check_together([part(1, 4.0), part(1, 4.0), part(1, 4.0)], epsilon)
    for hair in (part(1, math.nextafter(2.0, 0)), part(1, 1.9999999)):
        with pytest.raises(PrivacyError, match="together spend more"):
            check_together([part(1, 4.0), hair], epsilon)
    with pytest.raises(PrivacyError, match="together spend more"):
        check_together([part(1, 4.0), part(1, 2.0), part(1, 2.0**58)], epsilon)


def test_weight_without_noise_is_refused_at_a_private_level_and_free_at_a_public_one():
    bare = (np.array([1], np.int64), ())
    check_together([bare, bare], np.array([INF]))
    check_together([(np.array([0], np.int64), ()), part(1, 2.0)], np.array([FLOOR]))
    with pytest.raises(PrivacyError, match="without noise"):
        check_together([bare], np.array([FLOOR]))


@settings(deadline=None, max_examples=examples(200))
@given(st.floats(5e-324, 1e300), st.lists(st.integers(1, 10**6), min_size=1, max_size=12))
def test_parts_of_an_epsilon_never_add_up_to_more_than_it_exactly(epsilon, split):
    shares = shares_of(dict.fromkeys(map(str, range(len(split)))), {str(i): part for i, part in enumerate(split)})
    assert sum(map(Fraction, shares.values())) <= 1
    levels = np.array([epsilon])
    parts = [Fraction(float(limits(levels, share)[0])) for share in shares.values()]
    assert sum(parts) <= Fraction(float(below(levels)[0])) < Fraction(epsilon)
    for share, limit in zip(shares.values(), parts, strict=True):
        assert limit <= Fraction(share) * Fraction(epsilon)


def test_shares_that_are_given_as_fractions_are_kept():
    thirds = shares_of(dict.fromkeys("abc"), dict.fromkeys("abc", Fraction(1, 3)))
    assert sum(map(Fraction, thirds.values())) <= 1
    assert all(abs(share - 1 / 3) < 1e-15 for share in thirds.values())
    assert shares_of(dict.fromkeys("ab"), {"a": Fraction(3, 4), "b": Fraction(1, 4)}) == {"a": 0.75, "b": 0.25}
    for bad in (0, -1, math.nan, INF, True, "1", None):
        with pytest.raises(InputError, match="positive number"):
            shares_of(dict.fromkeys("ab"), {"a": 1, "b": bad})


QUESTIONS = {name: statistic_of(name) for name in ("mean", "histogram", "quantile", "variance", "mean, answered")}


@settings(deadline=None, max_examples=examples(60))
@given(
    st.dictionaries(st.floats(0.01, 20), st.integers(20, 5000), min_size=1, max_size=5),
    st.lists(st.integers(1, 1000), min_size=5, max_size=5),
    st.sampled_from(["adpm", "uniform", "proportional"]),
)
def test_plans_of_any_shares_pass_together_and_any_one_of_them_with_all_of_epsilon_does_not(people, split, method):
    """The sum of the exact spends is at most ε⁻ everywhere; what is shown of it is not below it, and not above ε."""
    shares = shares_of(QUESTIONS, dict(zip(QUESTIONS, split, strict=True)))
    plans = {
        name: hetdp.plan(people, statistic=question, method=method, share=shares[name])
        for name, question in QUESTIONS.items()
    }
    epsilon = plans["mean"].levels.epsilon
    check_together([(plan.costs, plan.noise) for plan in plans.values()], epsilon)
    used = {name: plan for name, plan in plans.items() if plan.noise}
    exact = [
        sum(Fraction(int(p.costs[i])) / Fraction(p.noise[0].scale) for p in used.values()) for i in range(epsilon.size)
    ]
    answers = {name: plan.statistic.answer(plan, _release.unused(plan)) for name, plan in plans.items()}
    shown = hetdp.Answers(answers, shares).spent
    for level, spent, limit in zip(epsilon.tolist(), exact, below(epsilon).tolist(), strict=True):
        assert spent <= Fraction(limit)
        assert spent <= Fraction(shown[level]) <= Fraction(level)
    for name, plan in used.items():
        with pytest.raises(PrivacyError, match="more than somebody's epsilon"):
            replace(plan, share=shares[name] / 2)
    greedy = {name: hetdp.plan(people, statistic=question, method=method) for name, question in QUESTIONS.items()}
    if sum(not plan.abstains for plan in greedy.values()) > 1:
        with pytest.raises(PrivacyError, match="together spend more"):
            check_together([(plan.costs, plan.noise) for plan in greedy.values()], epsilon)


@pytest.mark.parametrize("epsilon", [0.5625, 1.125, 2.375, 4.75])
def test_what_several_answers_spend_is_shown_rounded_up(epsilon):
    """Seven equal parts of these ε, each rounded up and then added as doubles, would be below the exact sum."""
    names = [*"abcdefg"]
    shares = shares_of(dict.fromkeys(names), None)
    plans = [hetdp.plan({epsilon: 1000}, bounds=(0, 1), method="uniform", share=shares[name]) for name in names]
    exact = sum(Fraction(int(plan.costs[0])) / Fraction(plan.noise[0].scale) for plan in plans)
    assert Fraction(sum(float(plan.spent[0]) for plan in plans)) < exact  # control
    answers = {name: plan.statistic.answer(plan, (0.5,)) for name, plan in zip(names, plans, strict=True)}
    assert exact <= Fraction(hetdp.Answers(answers, shares).spent[epsilon]) <= Fraction(epsilon)


def test_nothing_is_released_when_questions_would_spend_more_together(monkeypatch):
    """`ask` itself: with shares that add up to 1 it answers, with shares of 1 each nothing is drawn."""
    people = pl.DataFrame({"x": [0.2, 0.9] * 300, "job": ["a", "b"] * 300, "eps": [0.5, 2.0] * 300})
    questions = {"x": hetdp.ask.mean(bounds=(0, 1), missing="none"), "job": hetdp.ask.histogram(categories=["a", "b"])}
    split = {"x": Fraction(1, 3), "job": Fraction(2, 3)}
    answers = hetdp.ask(people, questions, epsilon="eps", split=split)
    assert all(0 < spent <= level for level, spent in answers.spent.items())
    monkeypatch.setattr("hetdp.questions.shares_of", lambda questions, _: dict.fromkeys(questions, 1.0))
    monkeypatch.setattr("hetdp.questions.release", lambda *_: pytest.fail("something was released"))
    with pytest.raises(PrivacyError, match="together spend more"):
        hetdp.ask(people, questions, epsilon="eps")
