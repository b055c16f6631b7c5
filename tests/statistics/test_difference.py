"""The difference of two releases: ends that hold whatever the two have in common, and a variance that is learned."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

import hetdp
from hetdp.core.plan import Plan
from hetdp.errors import InputError, PrivacyError
from hetdp.privacy.exact import NoiseTerm, below
from hetdp.report import spent_epsilon

INF = math.inf
PEOPLE = {0.1: 400, 1.0: 200, 3.0: 50, INF: 20}


def released(number, counts=None, bounds=(0, 10), **how):
    return hetdp.Release(hetdp.plan(counts or PEOPLE, bounds=bounds, **how), (number,))


def test_the_ends_of_a_difference_are_those_of_two_intervals_that_share_the_chance_to_miss():
    later, earlier = released(6.0), released(4.5, {0.5: 900})
    (a, b), (c, d) = later.confidence_interval(0.95), earlier.confidence_interval(0.95)
    found = hetdp.difference(later, earlier, level=0.9)
    assert found.estimate == float(found) == 1.5
    assert found.confidence_interval() == (a - d, b - c)
    assert found.confidence_interval(0.99)[0] < a - d


def test_the_interval_of_a_difference_holds_where_what_is_released_goes_together_in_the_worst_way():
    """One noise for both, with opposite signs: each interval misses alone, and the difference no more than allowed."""
    plan, rng = hetdp.plan({0.2: 300}, bounds=(0, 1)), np.random.default_rng(3)
    noise = rng.laplace(0, plan.errors.scales[0], 150)
    data = rng.binomial(300, 0.5, (150, 2)) / 300
    misses = naive = 0
    for z, (x, y) in zip(noise, data, strict=True):
        found = hetdp.difference(hetdp.Release(plan, (float(x + z),)), hetdp.Release(plan, (float(y - z),)), level=0.5)
        low, high = found.confidence_interval()
        misses += not low <= 0 <= high
        naive += abs(found.estimate) > 0.5 * (high - low) / math.sqrt(2)  # as if the two were independent
    assert misses <= 75 + 3 * math.sqrt(150 / 4)
    assert naive > misses


def test_a_difference_says_in_words_and_in_data_whether_it_can_be_0():
    up, same = hetdp.difference(released(9.0), released(2.0)), hetdp.difference(released(5.0), released(5.01))
    assert "it is above 0" in str(up)
    assert "it may be 0" in str(same)
    assert "each of the two intervals is taken at 97.5%, so both hold together at 95%" in words(up.report())
    assert "taken at 95%, so both hold together at 90%" in words(up.report(0.9))
    assert up._repr_html_().count("Difference") == 1
    facts = json.loads(up.to_json())
    assert facts["changed"]
    assert facts["interval"]["guaranteed"] == list(up.confidence_interval())
    assert facts["later"]["n"] == 670
    assert f"{up:.1f}" == "7.0"


def words(text):
    return " ".join(text.split())


def test_a_release_is_not_compared_with_itself_and_a_wrong_order_is_warned_of(tmp_path):
    """Whoever forgets a new release_id gets the old result again: the difference would be 0, whatever changed."""
    people = [f"p{i}" for i in range(300)]
    with hetdp.Ledger.create(tmp_path / "a.db") as ledger:
        ledger.enroll(people, budget=2)
        ask = {"person": people, "bounds": (0, 10), "missing": "midpoint", "spend": 0.5}
        may, again = (ledger.mean([4.0] * 300, release_id="may", **ask) for _ in range(2))
        june = ledger.mean([4.0] * 300, release_id="june", **ask)
        by = {person: "ab"[i % 2] for i, person in enumerate(people)}
        groups = [ledger.mean([4.0] * 300, release_id="g", **ask, by=by) for _ in range(2)]
    with pytest.raises(InputError, match="same stored release, may: their difference is 0"):
        hetdp.difference(again, may)
    with pytest.raises(InputError, match="same stored release, g/a, g/b"):
        hetdp.difference(*(each.combine({"a": 0.5, "b": 0.5}) for each in groups))
    june = replace(june, about=replace(june.about, released="2999-01-01T00:00:00Z"))
    assert hetdp.difference(june, may).warnings == []
    assert "places" in " ".join(hetdp.difference(may, june).warnings)
    assert "places" not in " ".join(hetdp.difference(groups[0]["b"], groups[0]["a"]).warnings)


def test_a_difference_says_what_somebody_in_both_spent_on_the_two():
    found = hetdp.difference(released(9.0), released(2.0, {0.5: 900}))
    most = [float(x.plan.spent.max()) for x in (found.later, found.earlier)]
    assert found.spent_together == sum(most)
    assert f"somebody who is in both spent ε = {spent_epsilon(sum(most))} at most on the two" in words(found.report())


def test_two_answers_that_cannot_be_subtracted_are_refused():
    with pytest.raises(InputError, match="one number each"):
        hetdp.difference(released(1.0), 3.0)
    total = hetdp.Release(hetdp.plan(PEOPLE, statistic=hetdp.ask.sum(bounds=(0, 10))), (900.0,))
    with pytest.raises(InputError, match="same question"):
        hetdp.difference(released(1.0), total)
    with pytest.raises(InputError, match="confidence level"):
        hetdp.difference(released(1.0), released(2.0), level=95)


# --- A variance that is learned from what is left over -----------------------------------------------------------


def test_learning_the_variance_spends_only_what_the_mean_leaves_and_exactly_that_at_most():
    plan = hetdp.plan(PEOPLE, bounds=(0, 10), variance="learn")
    plain = hetdp.plan(PEOPLE, bounds=(0, 10))
    assert plan.units.tolist() == plain.units.tolist()
    assert plan.noise == plain.noise
    scales = Fraction(plan.noise[0].scale), Fraction(plan.squares.noise[0].scale)
    for i, epsilon in enumerate(PEOPLE):
        spent = sum(Fraction(int(part.costs[i])) / s for part, s in zip((plan, plan.squares), scales, strict=True))
        if epsilon < INF:
            assert spent <= Fraction(float(below(np.array([epsilon]))[0]))
        assert plan.table[i].spent >= spent or plan.table[i].spent == epsilon
    assert plan.squares.spent[0] == 0  # the strictest have nothing left
    assert plan.squares.spent[1] > 0


def test_control_a_second_release_a_hair_too_large_is_refused():
    plan = hetdp.plan({0.1: 400, 1.0: 200}, bounds=(0, 10), variance="learn")
    squares = plan.squares
    tighter = NoiseTerm(squares.noise[0].scale * (1 - 1e-9), 0, 2)
    made = (squares.method, squares.levels, squares.statistic, squares.units, (tighter,), squares.threshold)
    with pytest.raises(PrivacyError, match="together"):
        Plan(
            plan.method,
            plan.levels,
            plan.statistic,
            plan.units,
            plan.noise,
            plan.threshold,
            abstains=False,
            squares=Plan(*made, abstains=False),
        )


def test_a_release_that_learns_has_both_numbers_and_a_narrower_interval():
    rng = np.random.default_rng(1)
    values, epsilon = rng.normal(4, 0.4, 6000), rng.choice([0.1, 1.0, 4.0, INF], 6000)
    found = hetdp.mean(values, epsilon=epsilon, bounds=(0, 10), variance="learn")
    square = np.mean((2 * np.clip(values, 0, 10) / 10 - 1) ** 2)
    assert found.numbers[1] == pytest.approx(square, abs=0.02)
    plain = hetdp.Release(hetdp.plan(found.plan.levels, bounds=(0, 10)), found.numbers[:1])
    (low, high), (a, b) = found.confidence_interval(), plain.confidence_interval()
    assert a <= low < found.estimate < high <= b
    assert high - low < 0.6 * (b - a)
    assert found.to_dict()["learning"]["spent"] == found.plan.squares.spent.tolist()
    assert "learned" in found.report()
    assert found.plan.table[2].spent > found.plan.threshold


def test_where_nobody_has_anything_left_nothing_is_learned():
    plan = hetdp.plan({0.5: 100}, bounds=(0, 10), variance="learn")
    assert plan.squares is None
    assert "nothing is learned" in plan.report()
    assert hetdp.Release(plan, (5.0,)).confidence_interval() == released(5.0, {0.5: 100}).confidence_interval()


def test_what_cannot_learn_a_variance_says_so():
    with pytest.raises(InputError, match="mean of one column"):
        hetdp.plan(PEOPLE, statistic=hetdp.ask.sum(bounds=(0, 1)), variance="learn")
    with pytest.raises(InputError, match="one noise"):
        hetdp.plan(PEOPLE, bounds=(0, 1), method="sampling", variance="learn")


def test_the_command_takes_a_number_or_the_word_learn(hetdp_command):
    words = ("plan", "--tier", "a=0.1:400", "--tier", "b=1:200", "--bounds", "0", "10", "--variance")
    assert json.loads(hetdp_command(*words, "learn", "--json")[1])["learning"]["spent"][1] > 0
    assert json.loads(hetdp_command(*words, "2", "--json")[1])["learning"] is None
    code, _, error = hetdp_command(*words, "narrow")
    assert code == 2
    assert "--variance is a number" in error


def test_where_means_may_differ_a_learned_variance_is_left_aside():
    plan = hetdp.plan(PEOPLE, bounds=(0, 10), variance="learn")
    plain = hetdp.plan(PEOPLE, bounds=(0, 10))
    wide = [hetdp.Release(replace(each, drift=0.1), (4.0, *more)) for each, more in ((plan, (0.05,)), (plain, ()))]
    assert wide[0].confidence_interval() == wide[1].confidence_interval()
    assert hetdp.Release(plan, (4.0, 0.05)).confidence_interval()[0] > wide[0].confidence_interval()[0]
