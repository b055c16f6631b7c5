"""Plan and Levels: units, tables, intervals, the frontier, the rounding of many levels and the exact privacy check."""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from scipy.special import xlogy
from scipy.stats import binom, norm

import hetdp
from hetdp import InputError, Levels, PrivacyError
from hetdp.core.levels import round_down, saturation
from hetdp.privacy.exact import LARGEST_SCALE, SMALLEST_SCALE, NoiseTerm, below, check, lattice, scale_for
from hetdp.report.compare import needed
from hetdp.report.text import cells
from support import UNIT, epsilons, examples, level_counts
from support import bounds as intervals

INF = math.inf
LARGEST = 1.7976931348623157e308
METHODS = [name for name, method in hetdp.methods().items() if not method.needs_records]  # one that samples is apart
MOST_PEOPLE = (2**63 - 1) // 2**20
LIMIT = 65_536  # distinct levels that are kept exactly
PAPER = {0.1: 700, INF: 300}  # case (B) of the paper: ε1 = 0.1, f = 0.7, n = 1000
MIXED = {0.0: 20, 0.05: 300, 0.2: 500, 1.0: 150, INF: 30}
SOME = {0.0: 20, 0.05: 300, 0.2: 500, 1.0: 150}


def takes(method, counts):
    """Every method takes every level, but stretching divides by the largest ε."""
    return method != "stretch" or INF not in counts


# --- Units --------------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(level_counts, intervals, st.sampled_from(METHODS), st.sampled_from([None, 0.01, 0.2]))
def test_a_plan_scales_with_the_width_of_the_interval_and_ignores_its_place(counts, interval, method, variance):
    assume(takes(method, counts))
    unit = hetdp.plan(counts, bounds=(0, 1), method=method, variance=variance)
    width = interval[1] - interval[0]
    there = hetdp.plan(counts, bounds=interval, method=method, variance=variance and variance * width**2)
    assert there.abstains == unit.abstains
    assert there.bounds == interval
    assert (there.threshold or 0) == pytest.approx(unit.threshold or 0, rel=1e-6)
    assert there.weights(list(counts)) == pytest.approx(unit.weights(list(counts)), rel=1e-6)
    assert there.noise_scale == pytest.approx(unit.noise_scale * width, rel=1e-6, abs=0)
    assert there.worst_case_error == pytest.approx(unit.worst_case_error * width, rel=1e-6, abs=0)
    assert there.worst_case_mse == pytest.approx(unit.worst_case_mse * width**2, rel=1e-6, abs=0)
    assert there.mse(0.1 * width**2) == pytest.approx(unit.mse(0.1) * width**2, rel=1e-6, abs=0)
    doubles = 4 * math.ulp(max(map(abs, interval)))  # a radius may make room for the doubles of its interval
    for kind in ("guaranteed", "normal"):
        expected = unit.radius(0.9, kind) * width
        assert there.radius(0.9, kind) == pytest.approx(expected, rel=1e-6, abs=doubles)


def test_the_default_interval_is_the_papers():
    assert hetdp.plan(PAPER, bounds=UNIT).bounds == (-0.5, 0.5)


@pytest.mark.parametrize("bounds", [(0, 1e200), (-8e307, 8e307)])
def test_an_interval_whose_square_passes_the_doubles_gives_a_plan_all_the_same(bounds):
    plan = hetdp.plan({1.0: 100}, bounds=bounds)
    assert plan.worst_case_error == pytest.approx(math.sqrt(1 / 400 + 2e-4) * (bounds[1] - bounds[0]))
    assert plan.worst_case_mse > 1e300
    assert plan.mse(1e300) > 0
    assert "n=100" in repr(plan)


@pytest.mark.parametrize("variance", [-1, math.nan, "0.1", True, [0.1], 0])
def test_a_variance_that_is_no_positive_number_is_refused(variance):
    with pytest.raises(InputError, match="variance"):
        hetdp.plan(PAPER, variance=variance, bounds=UNIT)


@pytest.mark.parametrize("variance", [0.25, 0.3, 1e300, INF, 10**400], ids=["1/4", "0.3", "1e300", "inf", "10**400"])
def test_a_variance_above_a_quarter_of_the_squared_width_says_nothing(variance):
    assert (
        hetdp.plan(PAPER, variance=variance, bounds=UNIT).worst_case_mse
        == hetdp.plan(PAPER, bounds=UNIT).worst_case_mse
    )


# --- Table, weights, error ----------------------------------------------------------------------------------


@settings(deadline=None)
@given(level_counts, st.sampled_from(METHODS))
def test_the_table_says_per_level_what_one_person_weighs_spends_and_keeps(counts, method):
    assume(takes(method, counts))
    plan = hetdp.plan(counts, method=method, bounds=UNIT)
    assert [(row.epsilon, row.count) for row in plan.table] == sorted(counts.items())
    total = sum(int(w) * row.count for w, row in zip(plan.units, plan.table, strict=True))
    assert plan.total == total
    for i, row in enumerate(plan.table):
        units, scales = int(plan.units[i]), [term.scale for term in plan.noise if term.first <= i < term.last]
        assert row.weight == pytest.approx(plan.shrink * units / total if total else 0, rel=1e-14)
        assert row.share == row.weight * row.count
        assert row.name is None
        if units and scales:
            exact = Fraction(units) / Fraction(scales[0])
            assert exact <= Fraction(row.spent) <= exact * (1 + Fraction(1, 2**51))
            assert row.spent <= row.epsilon
            free = row.epsilon - row.spent
            assert row.free == (0 if free <= 1e-9 * row.epsilon < INF else free)  # 0 instead of a rounding
        else:
            assert (row.spent, row.free) == ((INF, 0) if units else (0, row.epsilon))


def test_saturated_people_spend_the_threshold_and_get_the_rest_free():
    plan = hetdp.plan(MIXED, bounds=UNIT)
    t = plan.threshold
    assert [row.spent for row in plan.table] == pytest.approx([min(row.epsilon, t) for row in plan.table], rel=1e-6)
    assert [row.free for row in plan.table] == pytest.approx([max(row.epsilon - t, 0) for row in plan.table], abs=1e-6)


def test_a_row_carries_the_name_of_its_level():
    plan = hetdp.plan(Levels({"0.1": 5, "public": 3}, names={0.1: "careful", INF: "open", 7.0: "nobody"}), bounds=UNIT)
    assert [row.name for row in plan.table] == ["careful", "open"]


@settings(deadline=None, max_examples=examples(50))
@given(level_counts, st.randoms(use_true_random=False))
def test_weights_gives_each_person_of_any_order_the_weight_of_their_level(counts, random):
    plan = hetdp.plan(counts, method="proportional", bounds=UNIT)
    people = [level for level, count in counts.items() for _ in range(min(count, 3))]
    random.shuffle(people)
    by_level = {row.epsilon: row.weight for row in plan.table}
    assert plan.weights(people).tolist() == [by_level[level] for level in people]
    everybody = np.repeat(list(counts), list(counts.values()))
    assert plan.weights(everybody).sum() == pytest.approx(0 if plan.abstains else 1)


@pytest.mark.parametrize("stranger", [[0.2], [0.1, -1], [math.nan], [0.10000000000000002], ["1e400"], [True]])
def test_weights_refuses_an_epsilon_that_is_no_level_of_the_plan(stranger):
    plan = hetdp.plan(PAPER, bounds=UNIT)
    assert plan.weights(["0.1", "public"]).tolist() == [row.weight for row in plan.table]
    assert plan.weights([]).tolist() == []
    with pytest.raises(InputError, match="epsilon"):
        plan.weights(stranger)


@pytest.mark.parametrize("method", METHODS)
def test_mse_is_variance_times_the_squared_weights_plus_the_noise_plus_the_squared_bias(method):
    plan = hetdp.plan(SOME, bounds=(10, 30), method=method)
    w = plan.weights(np.repeat(list(SOME), list(SOME.values())))
    assert np.sum(w) == pytest.approx(plan.shrink)
    for variance in (0, 1.0, 33.3, 100.0):
        unbiased = variance * np.sum(w**2) + 2 * plan.noise_scale**2
        pull = (1 - plan.shrink) ** 2
        assert plan.mse(variance) == pytest.approx(unbiased + pull * (100 - variance), rel=1e-7)
        assert plan.mse(variance, mean=23) == pytest.approx(unbiased + pull * 9, rel=1e-7)
    assert plan.worst_case_mse == pytest.approx(max(plan.mse(0), plan.mse(100)))
    assert plan.mse(1000) == plan.mse(100)  # no value on the interval varies more than width²/4
    assert plan.worst_case_error == pytest.approx(math.sqrt(plan.worst_case_mse))


def test_an_abstaining_plan_errs_by_the_distance_of_the_mean_from_the_midpoint():
    plan = hetdp.plan({0.01: 10}, bounds=(10, 30))
    assert plan.abstains
    assert plan.mse(5, mean=23) == pytest.approx(9)
    assert plan.mse(36) == pytest.approx(100 - 36)  # the mean of such data is at most √(width²/4 − variance) away
    assert plan.worst_case_mse == plan.mse(0) == 100
    assert plan.radius() == 10
    assert plan.frontier() == 0


@pytest.mark.parametrize("epsilon", [1e6, 5e8, 1e9, 3e9])
def test_the_noise_variance_is_that_of_the_discrete_law(epsilon):
    """Summed term by term; at small scales the continuous 2·scale² is wrong, and the check would notice."""
    plan = hetdp.plan({epsilon: 5}, bounds=UNIT)
    scale = plan.noise[0].scale
    z = np.arange(-int(60 * scale) - 60, int(60 * scale) + 61)
    p = np.exp(-np.abs(z) / scale)
    variance = np.sum(p * z.astype(float) ** 2) / np.sum(p)
    assert plan.mse(0) * plan.total**2 == pytest.approx(variance, rel=1e-9)
    assert (abs(2 * scale**2 / variance - 1) > 1e-7) == (scale < 500)


@pytest.mark.parametrize(
    ("method", "high", "low"), [("adpm", -9.3, -8.1), ("proportional", -9.0, -8.1), ("uniform", -5.1, -7.1)]
)
def test_table_II_of_the_paper_is_reproduced(method, high, low):
    """n = 10³, log ε uniform in [−4, 2] or [−3, −2], Beta(2, 3) data, whose variance is 1/25; printed to one digit."""
    rng = np.random.default_rng(7)
    for left, right, printed in ((-4, 2, high), (-3, -2, low)):
        found = [
            hetdp.plan(np.exp(rng.uniform(left, right, 1000)), method=method, bounds=UNIT).mse(0.04) for _ in range(9)
        ]
        assert np.log(np.median(found)) == pytest.approx(printed, abs=0.1)


# --- Intervals ----------------------------------------------------------------------------------------------


def least_radius(squares, etas, level):
    """The least bound of the design's formula, on a grid of λ: independent of any minimiser."""
    top = min([1 / eta for eta in etas] + [1e3 / math.sqrt(squares)])
    end = 1.0 if len(etas) < 2 else 1 - 1e-9
    grid = np.concatenate([np.linspace(0, 1, 200_001)[1:-1], np.geomspace(1e-9, 1, 50_001)[:-1], [end]]) * top
    widest, *others = [*sorted(etas, reverse=True), 0.0]  # the tail of the widest noise, the moments of the others
    noise = xlogy(grid * widest, 2 * grid * widest) - (1 + grid * widest) * np.log1p(grid * widest) if widest else 0
    noise = noise - sum(np.log1p(-((grid * eta) ** 2)) for eta in others)
    return np.min((math.log(2 / (1 - level)) + grid**2 * squares / 8 + noise) / grid)


INTERVAL_CASES = {
    "paper": (PAPER, "adpm"),
    "mixed": (MIXED, "adpm"),
    "mixed uniform": (MIXED, "uniform"),
    "public": ({INF: 50}, "adpm"),
    "one public person": ({INF: 1}, "adpm"),
    "little noise": ({50.0: 40}, "adpm"),
    "much noise": ({0.05: 100, 2.0: 10}, "uniform"),
    "everybody on earth": ({0.01: 4 * 10**9, 1.0: 4 * 10**9}, "adpm"),
    "one noise for each level": (MIXED, "ldpe"),
    "more noise than the interval is wide": ({1e-6: 10}, "proportional"),
}


@pytest.mark.parametrize("level", [0.5, 0.95, 1 - 1e-9])
@pytest.mark.parametrize(
    ("counts", "method"),
    [*INTERVAL_CASES.values(), ({0.2: 50}, "minimax"), (SOME, "stretch")],
    ids=[*INTERVAL_CASES, "drawn to the midpoint", "stretched"],
)
def test_the_guaranteed_radius_is_the_least_of_its_formula_plus_bias_and_rounding(counts, method, level):
    plan = hetdp.plan(counts, method=method, bounds=UNIT)
    squares = sum(row.count * row.weight**2 for row in plan.table)
    rounding = 2.0**-20 + (2 * len(plan.noise) + 1) / plan.total  # a grid step, a unit for each floor and each noise
    etas = [plan.shrink * term.scale / plan.total for term in plan.noise]
    best = least_radius(squares, etas, level) + (1 - plan.shrink) / 2 + rounding
    assert math.hypot(*etas) == plan.noise_scale
    assert best * (1 - 1e-7) <= plan.radius(level) <= best * (1 + 1e-5)


@pytest.mark.parametrize("people", [1, 50, 10**12])
def test_without_noise_the_guaranteed_radius_is_hoeffdings_plus_the_rounding(people):
    """Half a grid step, one floored weight unit, a hair for the doubles; the unit shows where there is one person."""
    plan = hetdp.plan({INF: people}, bounds=(0, 1))
    expected = math.sqrt(math.log(2 / 0.05) / (2 * people)) + 2.0**-20 + 1 / plan.total
    assert expected <= plan.radius(0.95) <= expected + 1e-14


@pytest.mark.parametrize("level", [0.5, 0.95, 0.999])
@pytest.mark.parametrize(("counts", "method"), INTERVAL_CASES.values(), ids=INTERVAL_CASES)
def test_the_normal_radius_is_its_quantile_times_the_error(counts, method, level):
    plan = hetdp.plan(counts, method=method, bounds=(0, 4))
    expected = norm.isf((1 - level) / 2) * plan.worst_case_error
    assert plan.radius(level, "normal") == pytest.approx(expected, rel=1e-6, abs=4 * 2.0**-19)
    assert expected < plan.radius(level, "normal")
    assert level == 0.5 or plan.radius(level, "normal") < plan.radius(level)  # Laplace noise has the sharper peak


def misses(plan, p, radius, runs, rng):
    """How often a float simulation on two-point data strays further than the radius from its mean."""
    ones = [rng.binomial(row.count, p, runs) * row.weight for row in plan.table]
    noise = [rng.laplace(0, term.scale / plan.total, runs) for term in plan.noise]
    estimate = np.sum([*ones, *noise], axis=0)
    return np.count_nonzero(np.abs(estimate - p) > radius)


@pytest.mark.parametrize("level", [0.9, 0.99])
@pytest.mark.parametrize("case", ["paper", "mixed", "public", "little noise", "much noise", "one noise for each level"])
def test_the_guaranteed_interval_covers_and_a_much_narrower_one_would_not(case, level):
    counts, method = INTERVAL_CASES[case]
    plan, runs, rng = hetdp.plan(counts, method=method, bounds=(0, 1)), 20_000, np.random.default_rng(11)
    allowed = binom.isf(1e-9, runs, 1 - level)
    radius = plan.radius(level)
    assert all(misses(plan, p, radius, runs, rng) <= allowed for p in (0.5, 0.1, 0.01))
    assert misses(plan, 0.5, 0.35 * radius, runs, rng) > allowed


def test_the_radius_never_claims_more_precision_than_the_doubles_of_the_interval_have():
    """Near 10¹⁵ an estimate is a multiple of 1/8, whatever the number of people."""
    plan = hetdp.plan({INF: 10**6}, bounds=(1e15, 1e15 + 1))
    assert plan.radius() >= math.ulp(1e15) / 2


@pytest.mark.parametrize("level", [0, 1, -1, 2, 95, math.nan])
def test_a_confidence_level_outside_0_to_1_is_refused(level):
    with pytest.raises(InputError, match="confidence level"):
        hetdp.plan(PAPER, bounds=UNIT).radius(level)
    with pytest.raises(InputError, match="kind"):
        hetdp.plan(PAPER, bounds=UNIT).radius(0.95, "sure")


# --- Frontier -----------------------------------------------------------------------------------------------


def replanned(counts, cap, method):
    """The worst-case error when everybody gets min(ε, cap), by planning again."""
    lower = {}
    for level, people in counts.items():
        lower[min(level, cap)] = lower.get(min(level, cap), 0) + people
    return hetdp.plan(lower, method=method, bounds=UNIT).worst_case_mse


def is_frontier(counts, method, tolerance, cap):
    """Brute force: the cap stays within the tolerance, and no smaller one of a dense grid does."""
    goal = hetdp.plan(counts, method=method, bounds=UNIT).worst_case_mse * (1 + tolerance)
    smaller = cap * np.append(np.geomspace(1e-4, 0.99, 60), [0.999, 0.9999, 0.99999])
    enough = replanned(counts, cap * (1 + 1e-8), method) <= goal * (1 + 1e-7)
    return enough and all(replanned(counts, lower, method) > goal for lower in smaller)


FRONTIERS = (PAPER, MIXED, {0.3: 1000}, {INF: 40}, {0.02: 500, 5.0: 500, 9.0: 20}, {1e-3: 3, 0.5: 200, 1e9: 2})


@pytest.mark.slow
@pytest.mark.parametrize("tolerance", [0.01, 0.3])
@pytest.mark.parametrize(
    ("method", "counts"), [(name, counts) for name in METHODS for counts in FRONTIERS if takes(name, counts)], ids=str
)
def test_the_frontier_is_the_smallest_cap_within_the_tolerance(method, counts, tolerance):
    cap = hetdp.plan(counts, method=method, bounds=UNIT).frontier(tolerance)
    assert is_frontier(counts, method, tolerance, cap)
    assert not is_frontier(counts, method, tolerance, cap * 1.001)
    assert not is_frontier(counts, method, tolerance, cap * 0.999)


def test_a_tolerance_that_the_midpoint_itself_meets_needs_nobodys_data():
    """The plan errs by 0.240; with half as much again allowed, 1/4 will do, and abstaining costs no privacy."""
    plan = hetdp.plan({0.029: 100}, bounds=UNIT)
    assert not plan.abstains
    assert replanned({0.029: 100}, 1e-9, "adpm") == 0.25 < 1.5 * plan.worst_case_mse
    assert plan.frontier(0.5) == 0


@pytest.mark.parametrize("tolerance", [0, -0.01, math.nan])
def test_a_tolerance_that_is_not_positive_is_refused(tolerance):
    with pytest.raises(InputError, match="tolerance"):
        hetdp.plan(PAPER, bounds=UNIT).frontier(tolerance)


# --- Levels -------------------------------------------------------------------------------------------------


def test_levels_are_the_same_from_a_mapping_a_sequence_an_array_and_text():
    expected = Levels({0.1: 2, 0.5: 1, INF: 3, 0.0: 1})
    people = [0.1, INF, 0.5, INF, -0.0, 0.1, INF]
    texts = ["0.1", "public", " .5", "inf", "0", "1e-1", "Infinity"]
    for same in (people, tuple(people), np.array(people), np.array(people, dtype=object), texts, np.array(texts)):
        assert Levels.of(same) == expected
        assert hetdp.plan(same, bounds=UNIT).levels == expected
    assert Levels({"0.1": 1, Decimal("0.1"): 1, Fraction(1, 2): 1, "PUBLIC": 2, INF: 1, 0: 1, 7: 0}) == expected
    assert hash(Levels.of(people)) == hash(expected)
    assert hash(Levels({-0.0: 1})) == hash(Levels({"-0": 1})) == hash(Levels({0: 1}))
    assert (expected.n, expected.active, len(expected), expected.rounded) == (7, 6, 4, False)
    assert expected.epsilon.tolist() == [0, 0.1, 0.5, INF]
    assert expected.count.tolist() == [1, 2, 1, 3]
    assert expected != Levels({0.1: 2, 0.5: 1, INF: 3})
    assert repr(expected) == "Levels({0: 1, 0.1: 2, 0.5: 1, inf: 3})"


def test_levels_of_small_and_odd_number_types_are_exact():
    assert Levels.of(np.array([1, 2, 2], dtype=np.uint8)) == Levels({1: 1, 2: 2})
    assert Levels.of(np.array([0.1], dtype=np.float32)) == Levels({float(np.float32(0.1)): 1})
    assert Levels.of(np.array([0.5, 2.0], dtype=">f8")) == Levels({0.5: 1, 2.0: 1})
    with pytest.raises(InputError, match="too large"):
        Levels.of(np.array([np.longdouble("1e400")]))


def test_levels_are_read_only_and_leave_the_callers_array_alone():
    mine = np.array([0.2, 0.1, 0.2])
    levels = Levels.of(mine)
    for array in (levels.epsilon, levels.count, hetdp.plan(levels, bounds=UNIT).units):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 9
    mine[0] = 5.0
    assert levels == Levels({0.1: 1, 0.2: 2})


BAD_EPSILONS = [-0.5, -INF, math.nan, True, None, "1e400", "0,5", "1_000", "", "NaN", "-1", "0x1", "١", "1/2", "9" * 99]


@pytest.mark.parametrize("bad", [*BAD_EPSILONS, 10**400, Decimal("1e400"), Decimal("NaN"), 1j, [1.0]], ids=repr)
def test_an_epsilon_that_is_not_0_positive_or_inf_is_refused_with_its_place(bad):
    with pytest.raises(InputError, match=r"epsilon.* at index 1"):
        Levels.of([0.1, bad])
    if not isinstance(bad, list):
        with pytest.raises(InputError, match="epsilon"):
            Levels({bad: 3})


@pytest.mark.slow
@pytest.mark.parametrize("bad", [-0.5, -INF, math.nan])
def test_an_array_with_a_bad_epsilon_is_refused_with_its_place(bad):
    array = np.full(600_000, 0.5)
    array[500_123] = bad
    with pytest.raises(InputError, match="at index 500123"):
        Levels.of(array)


NOBODY = [{}, [], np.array([]), {0.1: 0}, np.ones((2, 2)), np.array(0.5), np.ma.array([1.0], mask=[True])]


@pytest.mark.parametrize("nobody", NOBODY, ids=repr)
def test_nobody_or_a_wrong_shape_is_refused(nobody):
    with pytest.raises(InputError):
        hetdp.plan(nobody, bounds=UNIT)


@pytest.mark.parametrize("count", [1.0, -1, "3", None, True, np.True_, 2.5, math.nan])
def test_a_number_of_people_that_is_not_whole_is_refused(count):
    with pytest.raises(InputError, match="whole number"):
        Levels({0.1: count})


@pytest.mark.parametrize("single", [0.5, None, 1])
def test_a_single_number_for_everybody_is_refused_as_input(single):
    with pytest.raises(InputError):
        hetdp.plan(single, bounds=UNIT)


@pytest.mark.parametrize("text", ["15", b"15"])
def test_a_single_text_is_not_taken_apart_into_people(text):
    with pytest.raises(InputError):
        hetdp.plan(text, bounds=UNIT)


@pytest.mark.parametrize("extra", [1, MOST_PEOPLE, 2**63 - MOST_PEOPLE, 2**70])
def test_more_people_than_63_bits_can_sum_are_refused(extra):
    assert hetdp.plan({0.1: MOST_PEOPLE - 1, 0.2: 1}, bounds=UNIT).n == MOST_PEOPLE
    for counts in ({0.1: MOST_PEOPLE + extra}, {0.1: MOST_PEOPLE, 0.2: extra}):
        with pytest.raises(InputError, match="people"):
            Levels(counts)


# --- Many levels are rounded down ---------------------------------------------------------------------------

normal_epsilons = st.floats(min_value=2.0**-1000, max_value=LARGEST)


def cut(epsilon):
    """The largest number of 12 significant bits that is not above ε, in fractions."""
    unit = Fraction(2) ** (math.frexp(epsilon)[1] - 12)
    return Fraction(epsilon) // unit * unit


def by_logarithm(epsilon):
    """The known-bad rounding: just below a power of two log2 rounds up to it, and a bit is lost."""
    unit = 2.0 ** (np.floor(np.log2(epsilon)) - 11)
    return np.floor(epsilon / unit) * unit


@settings(deadline=None, max_examples=examples(500))
@given(st.one_of(normal_epsilons, st.integers(-1000, 1023).map(lambda e: math.nextafter(2.0**e, INF))))
@example(0.1)
@example(math.nextafter(8.0, 0))
@example(math.nextafter(2.0**-20, 0))
def test_rounding_keeps_twelve_bits_and_never_goes_up(epsilon):
    rounded = Fraction(float(round_down(np.array([epsilon]))[0]))
    assert rounded == cut(epsilon)
    assert Fraction(epsilon) * (1 - Fraction(1, 2**11)) < rounded <= Fraction(epsilon)


def test_rounding_keeps_powers_of_two_zero_and_infinity():
    exact = np.array([0.0, INF, *(2.0 ** np.arange(-1000, 1024)), 1.5, 4095.0])
    assert np.array_equal(round_down(exact), exact)


def test_rounding_makes_a_tiny_epsilon_zero():
    tiny = np.array([5e-324, 2.2e-308, 2.0**-1001, math.nextafter(2.0**-1000, 0)])
    assert np.array_equal(round_down(tiny), np.zeros(4))


def test_the_rounding_check_notices_a_logarithm_and_rounding_to_nearest():
    assert by_logarithm(0.1) == cut(0.1)
    assert by_logarithm(math.nextafter(8.0, 0)) != cut(math.nextafter(8.0, 0))
    assert round(0.1 * 2**15) / 2**15 != cut(0.1)


def distinct(n, low=0.01, high=10.0):
    return np.geomspace(low, high, n)


def test_levels_are_kept_exactly_up_to_the_limit_and_rounded_above():
    kept = Levels.of(np.append(distinct(LIMIT - 2), [0.0, INF]))
    assert (len(kept), kept.rounded) == (LIMIT, False)
    assert np.array_equal(kept.epsilon[1:-1], distinct(LIMIT - 2))
    above = np.append(distinct(LIMIT - 1), [0.0, INF])
    for cut in (Levels.of(above), Levels(dict.fromkeys(above.tolist(), 1))):
        assert cut.rounded
        assert cut.n == LIMIT + 1
        assert np.array_equal(cut.epsilon, np.unique(round_down(above)))
        assert np.array_equal(cut.count, np.unique(round_down(above), return_counts=True)[1])


@pytest.mark.slow
def test_rounded_levels_do_not_depend_on_the_order_of_people_or_of_merging():
    """Half a million people at one level come first, so that the many levels are found late, in one thread or two."""
    people = np.concatenate([np.full(500_000, 0.3), distinct(90_000), [0.0, INF, 5e-324], distinct(90_000, 0.02, 3)])
    expected = Levels.of(people)
    assert expected.rounded
    shuffled = np.random.default_rng(3).permutation(people)
    for same in (people[::-1], np.sort(people), shuffled):
        assert Levels.of(same) == expected
    parts = [hetdp.read(np.zeros(part.size), epsilon=part, bounds=(0, 1)) for part in np.array_split(shuffled, 12)]
    assert not any(part.levels.rounded for part in parts[:3])
    forward, backward = sum(parts[1:], parts[0]), sum(parts[-2::-1], parts[-1])
    assert forward.levels == backward.levels == expected
    few = hetdp.read([0.0], epsilon=[0.1], bounds=(0, 1))
    assert (forward + few).levels.rounded
    assert round_down(np.array([0.1]))[0] in (few + forward).levels.epsilon
    assert 0.1 not in (few + forward).levels.epsilon


@pytest.mark.parametrize(
    "people",
    [distinct(150_000), distinct(100_000, 1e-5, 1e5), np.linspace(1.0004, 1.000488, 70_000) * 2.0**-13],
    ids=["three decades", "ten decades", "all just below a step, noise alone"],
)
def test_rounding_costs_less_than_a_thousandth_of_the_error(people):
    level, count = np.unique(people, return_counts=True)
    w = np.minimum(people, saturation(level, count, rho=8))
    exact = np.sum(w**2) / np.sum(w) ** 2 / 4 + 2 / np.sum(w) ** 2
    plan = hetdp.plan(people, bounds=UNIT)
    assert plan.levels.rounded
    assert 1 - 1e-6 <= plan.worst_case_mse / exact <= 1.001
    assert np.all(plan.weights(people) / (plan.noise_scale * (1 - 1e-12)) <= people)
    assert plan.weights(people).sum() == pytest.approx(1)


# --- The exact privacy check --------------------------------------------------------------------------------


def overspending(units, epsilon, noise):
    """The levels whose W/scale exceeds the double below ε, in fractions; uncovered ones spend without end."""
    found = []
    for i, (w, level) in enumerate(zip(np.asarray(units).tolist(), np.asarray(epsilon).tolist(), strict=True)):
        scales = [Fraction(term.scale) for term in noise if term.first <= i < term.last]
        if w and level < INF and (not scales or w > Fraction(math.nextafter(level, 0)) * scales[0]):
            found.append(i)
    return found


def with_scale(plan, scale):
    return tuple(replace(term, scale=scale) for term in plan.noise)


@settings(deadline=None, max_examples=examples(300))
@given(st.dictionaries(epsilons, st.integers(1, 10**12), min_size=1, max_size=8), st.sampled_from(METHODS))
@example({5e-324: 1, INF: 1}, "adpm")
@example({1e-300: 5, 1e300: 5}, "proportional")
def test_every_plan_keeps_everybody_within_their_epsilon_in_exact_fractions(counts, method):
    assume(takes(method, counts))
    plan = hetdp.plan(counts, method=method, bounds=UNIT)
    epsilon = plan.levels.epsilon
    assert overspending(plan.units, epsilon, plan.noise) == []
    assert all(w == 0 for w, level in zip(plan.units, epsilon, strict=True) if level == 0)
    assert plan.total < 2**62
    for i, term in enumerate(plan.noise):
        if term.scale > SMALLEST_SCALE and method != "fme":  # FME's paper takes more noise than it needs
            # a hair less noise, or one unit more weight where it binds, is too much
            less = (*plan.noise[:i], replace(term, scale=math.nextafter(term.scale, 0)), *plan.noise[i + 1 :])
            binding = overspending(plan.units, epsilon, less)
            assert binding
            for bad in ({"noise": less}, {"units": plan.units + np.eye(len(epsilon), dtype=int)[binding[0]]}):
                with pytest.raises(PrivacyError):
                    replace(plan, **bad)


@given(st.lists(st.floats(0, math.inf)))
def test_people_are_held_to_the_double_just_below_their_epsilon(epsilon):
    want = [e if math.isinf(e) else math.nextafter(e, 0) for e in epsilon]
    assert below(np.array(epsilon, dtype=np.float64)).tolist() == want


@settings(deadline=None, max_examples=examples(300))
@given(level_counts, st.integers(-3, 3), st.floats(0.9, 1.1), st.integers(0, 7), st.integers(-1, 1))
def test_the_check_refuses_exactly_what_fractions_refuse(counts, ulps, factor, place, more):
    plan = hetdp.plan(counts, method="proportional", bounds=UNIT)
    assume(plan.noise)
    units = plan.units.copy()
    units[place % units.size] += more
    assume((units >= 0).all())
    scale = plan.noise[0].scale * (factor if ulps == 0 else 1)
    scale = min(max(scale + ulps * math.ulp(scale), SMALLEST_SCALE), LARGEST_SCALE)
    noise = with_scale(plan, scale)
    if overspending(units, plan.levels.epsilon, noise):
        with pytest.raises(PrivacyError):
            check(units, plan.levels.epsilon, plan.levels.count, noise)
    else:
        check(units, plan.levels.epsilon, plan.levels.count, noise)


@pytest.mark.parametrize("level", [-INF, -1.0, math.nan])
def test_a_level_that_is_no_epsilon_is_refused_by_the_exact_check(level):
    """A stored plan may hold anything; only +∞ is public."""
    one = np.array([1], np.int64)
    for noise in ((), (NoiseTerm(10.0, 0, 1),)):
        with pytest.raises(PrivacyError, match="no epsilon"):
            check(one, np.array([level]), one, noise)
    check(one, np.array([INF]), one, ())


TIERS = hetdp.plan({0.1: 700, 0.4: 200, 3.0: 50, INF: 50}, bounds=UNIT)
SCALE = TIERS.noise[0].scale
BAD_NOISE = {
    "scale halved": with_scale(TIERS, SCALE / 2),
    "scale one ulp smaller": with_scale(TIERS, math.nextafter(SCALE, 0)),
    "no noise": (),
    "a level without noise": (NoiseTerm(SCALE, 1, 4),),
    "the last private level without noise": (NoiseTerm(SCALE, 0, 2),),
    "overlapping terms": (NoiseTerm(SCALE, 0, 3), NoiseTerm(SCALE, 2, 4)),
    "the same term twice": (NoiseTerm(SCALE, 0, 4), NoiseTerm(SCALE, 0, 4)),
    "terms out of order": (NoiseTerm(SCALE, 2, 4), NoiseTerm(SCALE, 0, 2)),
    "an empty term": (NoiseTerm(SCALE, 0, 0), NoiseTerm(SCALE, 0, 4)),
    "a term beyond the levels": (NoiseTerm(SCALE, 0, 5),),
    "a term from behind": (NoiseTerm(SCALE, -4, 4),),
} | {f"scale {scale}": with_scale(TIERS, scale) for scale in (0.0, -0.0, 1e-300, 2.0**59, INF, math.nan, -SCALE)}


@pytest.mark.parametrize("noise", BAD_NOISE.values(), ids=BAD_NOISE)
def test_a_plan_with_bad_noise_cannot_be_made(noise):
    with pytest.raises(PrivacyError):
        replace(TIERS, noise=noise)


@pytest.mark.parametrize("scale", [0.0, 1e-300, 1e-200, math.nextafter(SMALLEST_SCALE, 0), 2.0**59])
@pytest.mark.parametrize("epsilon", [1e300, INF])
def test_a_scale_that_no_sampler_should_see_is_refused_even_where_epsilon_would_allow_it(epsilon, scale):
    plan = hetdp.plan({epsilon: 5}, bounds=UNIT)
    assert replace(plan, noise=(NoiseTerm(SMALLEST_SCALE, 0, 1),)).n == 5
    with pytest.raises(PrivacyError, match="scale"):
        replace(plan, noise=(NoiseTerm(scale, 0, 1),))


def test_a_plan_with_the_same_or_more_noise_can_be_made():
    for noise in (TIERS.noise, with_scale(TIERS, 2 * SCALE), (NoiseTerm(SCALE, 0, 2), NoiseTerm(SCALE, 2, 3))):
        assert replace(TIERS, noise=noise).n == 1000
    assert replace(TIERS, units=TIERS.units - 1).total == TIERS.total - 1000


@pytest.mark.parametrize(
    "units",
    [
        TIERS.units + np.array([1, 0, 0, 0]),
        TIERS.units * 2,
        -TIERS.units,
        TIERS.units * 2**28,
        TIERS.units[:3],
        TIERS.units[:1],
        TIERS.units.astype(float),
    ],
    ids=["one unit more", "doubled", "negative", "too long for 62 bits", "too few", "one for all", "floats"],
)
def test_a_plan_with_bad_weights_cannot_be_made(units):
    with pytest.raises(PrivacyError):
        replace(TIERS, units=units)


def test_one_weight_for_two_levels_is_refused():
    """Were it accepted, the second level would have no weight to check."""
    plan = hetdp.plan(PAPER, bounds=UNIT)
    with pytest.raises(PrivacyError):
        replace(plan, units=plan.units[:1], noise=(replace(plan.noise[0], last=1),))


def test_weights_of_public_people_are_held_to_62_bits_too():
    public = hetdp.plan({INF: 2**31}, bounds=UNIT)
    assert replace(public, units=np.array([2**30])).total == 2**61
    for people, weight in ((2**31, 2**31 - 1), (8, 2**31)):
        with pytest.raises(PrivacyError, match="62 bits"):
            replace(hetdp.plan({INF: people}, bounds=UNIT), units=np.array([weight]))


def test_a_weight_at_epsilon_zero_is_refused():
    plan = hetdp.plan({0.0: 5, 1.0: 500}, bounds=UNIT)
    with pytest.raises(PrivacyError):
        replace(plan, units=plan.units + np.array([1, 0]))


decimals = st.one_of(
    st.decimals(min_value="0.001", max_value=50, places=3), st.decimals(min_value="1e-8", max_value="0.01", places=12)
)


@settings(deadline=None, max_examples=examples(200))
@given(st.lists(decimals, min_size=1, max_size=4, unique=True), st.sampled_from(METHODS))
@example([Decimal("0.1")], "adpm")
@example([Decimal("0.1"), Decimal("0.3"), Decimal("0.7")], "proportional")
def test_an_epsilon_written_as_text_is_honoured_to_the_last_digit(texts, method):
    plan = hetdp.plan({str(text): 1000 for text in texts}, method=method, bounds=UNIT)
    assert not plan.abstains or method == "adpm"
    for term in plan.noise:
        for units, text in list(zip(plan.units.tolist(), sorted(texts), strict=True))[term.first : term.last]:
            assert units / Fraction(term.scale) <= Fraction(text)


def test_holding_text_to_its_nearest_double_would_overspend():
    """Why people are held to the double below: the nearest one may lie above what was written, and then it shows."""
    texts = [f"0.{i:02}" for i in range(1, 100)]
    nearest = [(scale_for(np.array([w]), np.array([math.nextafter(float(text), 1)])), w, text)
               for text in texts for w in (3, 2**30 - 1)]  # fmt: skip
    assert any(Fraction(w) / Fraction(scale) > Fraction(text) for scale, w, text in nearest)


@settings(deadline=None, max_examples=examples(300))
@given(st.lists(st.tuples(st.integers(0, 2**30), epsilons), min_size=1, max_size=6))
def test_the_noise_scale_is_the_smallest_double_that_will_do(pairs):
    units, epsilon = np.array([w for w, _ in pairs]), np.array([level for _, level in pairs])
    needed = [(w, Fraction(math.nextafter(level, 0))) for w, level in pairs if w and level < INF]
    scale = scale_for(units, epsilon)
    if not needed:
        assert scale == 0
        return
    exact = max(w / limit if limit else 2 * Fraction(LARGEST) for w, limit in needed)
    if exact > Fraction(LARGEST):
        assert scale == INF
    else:
        assert Fraction(scale) >= exact
        assert scale >= SMALLEST_SCALE
        assert scale == SMALLEST_SCALE or Fraction(math.nextafter(scale, 0)) < exact


@settings(deadline=None, max_examples=examples(200))
@given(st.lists(st.floats(0, 1e300), min_size=1, max_size=6).filter(any), st.integers(1, 8 * 10**12))
def test_integer_weights_keep_their_ratios_and_fit_62_bits(weight, people):
    units = lattice(np.array(weight), people)
    k = min(30, 61 - math.ceil(math.log2(people)))
    assert units.max() == 2**k
    assert people * 2**k < 2**62
    wished = [Fraction(w) / Fraction(max(weight)) * 2**k for w in weight]
    assert all(abs(found - wish) <= 1 for found, wish in zip(units.tolist(), wished, strict=True))


@pytest.mark.parametrize("people", [1, 2, 2**31 - 1, 2**31, 2**31 + 1, 2**42, 2**42 + 1, 8 * 10**12, MOST_PEOPLE])
def test_the_lattice_is_as_fine_as_62_bits_allow(people):
    top = int(lattice(np.array([1.0]), people)[0])
    assert people * top < 2**62
    assert top == 2**30 or people * top > 2**60


@pytest.mark.parametrize("weight", [[0.0, 0.0], [math.nan, 1.0], [INF, 1.0]])
def test_weights_that_are_no_numbers_become_no_weight_at_all(weight):
    assert lattice(np.array(weight), 10).tolist() == [0, 0]


@pytest.mark.parametrize("error", [0.5, 3.7, 4.5, 5, 60, 249])
def test_a_target_is_answered_whatever_its_number(error):
    """A tier that the others can do without needs no ε at all; the search must end among the smallest doubles too."""
    found = needed(hetdp.plan({0.1: 494, 0.5: 1489, 2: 3017}, bounds=(0, 500)), error)
    assert found.reached == (error > 3.66)
    assert all(needs is None or needs >= 0 for needs in found.epsilon.values())


@given(st.floats(1e-300, 1e300), st.integers(2, 2000))
def test_what_is_printed_as_spent_is_never_above_what_is_printed_as_asked(epsilon, people):
    _, asked, _, spent, *_ = cells(hetdp.plan({epsilon: people}, bounds=UNIT).facts.bands[0], people)
    assert float(spent) <= float(asked)


@pytest.mark.parametrize(("fraction", "end"), [(Fraction(10**400), 1), (Fraction(-(10**400)), -1)])
def test_a_far_draw_on_a_wide_interval_saturates_and_does_not_raise(fraction, end):
    """Whether it raises would depend on the draw."""
    assert hetdp.Interval(-1e300, 1e300).at(fraction) == end * sys.float_info.max
