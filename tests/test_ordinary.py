"""Ordinary tables that once gave a quietly wrong number: now the software asks, refuses or says so beside it."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import polars as pl
import pytest

import hetdp

ask = hetdp.ask
RNG = np.random.default_rng(17)


def table(**columns):
    return pl.DataFrame({**columns, "eps": [0.5, 1.0] * (len(next(iter(columns.values()))) // 2)})


@pytest.mark.parametrize(
    ("statistic", "missing"),
    [(ask.mean, 9), (ask.mean, -1), (ask.sum, 0), (ask.variance, 0), (lambda b, **k: ask.quantile(0.5, b, **k), 0)],
)
def test_a_missing_value_cannot_count_as_a_number_outside_the_bounds(statistic, missing):
    with pytest.raises(hetdp.InputError, match="outside the bounds"):
        statistic((1, 5), missing=missing)
    assert statistic((1, 5), missing=3).missing == 3


def test_a_missing_answer_counts_as_equal_as_not_or_as_half_and_as_nothing_else():
    assert ask.count("yes", missing=0).counted == "people without an answer do not count as equal"
    assert "half" in ask.proportion("yes", missing="midpoint").counted
    with pytest.raises(hetdp.InputError, match="outside the bounds"):
        ask.proportion("yes", missing=2)


@pytest.mark.parametrize("values", [{"a": 1, "b": 5}, {"a": 1}])
def test_words_that_stand_for_numbers_outside_the_bounds_or_for_one_number_are_refused(values):
    with pytest.raises(hetdp.InputError, match="values map"):
        ask.mean((0, 4), values=values)


def test_the_sum_of_averages_is_refused():
    people = table(x=[1.0, 2.0] * 50, id=[f"p{i // 2}" for i in range(100)]).with_columns(eps=pl.lit(1.0))
    with pytest.raises(hetdp.InputError, match="is no total"):
        hetdp.sum(people, value="x", epsilon="eps", bounds=(0, 9), person="id", rows="average", missing="none")


def test_tallies_whose_words_stand_for_other_numbers_do_not_merge():
    words = [{"a": 1, "b": 0}, {"a": 0, "b": 1}]
    one, other = (hetdp.read(["a", "b"], epsilon=1, bounds=(0, 1), values=each) for each in words)
    with pytest.raises(hetdp.InputError, match="stand for other numbers"):
        _ = one + other


@pytest.mark.parametrize("other", [{"bounds": (0, 2)}, {"missing": "midpoint"}, {"values": {1: 0, 0: 1}}])
def test_a_difference_is_of_two_answers_to_the_same_question(other):
    same = {"epsilon": 1.0, "bounds": (0, 1)}
    first, second = (hetdp.mean([0.0, 1.0] * 500, **{**same, **more}) for more in ({}, other))
    with pytest.raises(hetdp.InputError, match="same bounds, the same choice"):
        hetdp.difference(first, second)


def test_several_means_say_that_people_leave_who_lack_any_of_the_values():
    asked = ask.means({"x": (0, 1), "y": (0, 1)}, missing="drop")
    assert asked.counted.startswith("people who lack a value in any column are left out")


def test_a_column_of_a_frame_is_asked_about_and_a_list_is_not():
    values = pl.Series("x", [0.5, None] * 50)
    with pytest.raises(hetdp.InputError, match="say what is done about missing values"):
        hetdp.mean(values, epsilon=1.0, bounds=(0, 1))
    assert hetdp.mean(values.to_list(), epsilon=1.0, bounds=(0, 1)).plan.n == 100


def test_the_report_says_beside_the_number_what_it_rests_on():
    people = table(x=RNG.random(2000).tolist())
    report = hetdp.mean(people, value="x", epsilon="eps", bounds=(0, 1), missing="estimate").report()
    assert "people without a value that can be read are left out; who they are stays private" in report
    assert "2,000 rows, each taken as another person   values clipped to [0, 1]" in report
    assert "for any distribution if ε tells nothing about the value" in report
    stated = hetdp.mean(people, value="x", epsilon="eps", bounds=(0, 1), missing="none", drift=0.1).report()
    assert "if ε tells nothing" not in stated


def test_what_most_people_share_is_said_with_the_mean_too():
    mostly = np.where(RNG.random(20_000) < 0.9, 0.0, 5000.0)
    answer = hetdp.mean(mostly, epsilon=1.0, bounds="private", outer=(0, 10**6))
    assert "most people are in one cell of the grid" in " ".join(answer.report().split())


def test_private_bounds_of_words_are_those_of_the_numbers_they_stand_for():
    answers = RNG.choice(["yes", "no"], 20_000).tolist()
    found = [
        verb(answers, epsilon=1.0, bounds="private", outer=(0, 10**6), values={"yes": 100, "no": 50}).plan.interval.hi
        for verb in (hetdp.mean, hetdp.sum)
    ]
    assert max(found) < 10_000


def test_a_copy_of_private_bounds_cannot_spend_again():
    values = RNG.random(20_000) * 1000
    found = hetdp.bounds_for(values, epsilon=1.0, outer=(0, 10**6))
    assert copy.deepcopy(found) is found
    with pytest.raises(hetdp.InputError, match="cannot be copied"):
        pickle.dumps(found)


def test_two_questions_about_groups_count_together_against_private_bounds():
    """The bounds leave nearly all of ε, and half was used before: two more questions in each group do not fit."""
    values = RNG.random(20_000)
    people = pl.DataFrame({"x": values, "y": values, "g": ["a", "b"] * 10_000})
    found = hetdp.bounds_for(values, epsilon=1.0, outer=(0, 10**6))
    hetdp.release(
        hetdp.read(values, epsilon=1.0, statistic=ask.mean(found)),
        hetdp.plan({1.0: 20_000}, statistic=ask.mean(found), share=0.5),
    )
    questions = {name: ask.mean(found, missing="none") for name in ("x", "y")}
    with pytest.raises(hetdp.InputError, match="used already"):
        hetdp.ask(people, questions, epsilon=1.0, by="g", public_columns=["g"])


def test_two_questions_about_groups_can_share_what_private_bounds_leave():
    values = RNG.random(20_000)
    people = pl.DataFrame({"x": values, "y": values, "g": ["a", "b"] * 10_000})
    found = hetdp.bounds_for(values, epsilon=1.0, outer=(0, 10**6))
    questions = {name: ask.mean(found, missing="none") for name in ("x", "y")}
    assert list(hetdp.ask(people, questions, epsilon=1.0, by="g", public_columns=["g"])) == ["a", "b"]


def test_a_plan_that_abstains_spends_nothing_on_a_variance():
    planned = hetdp.plan({0.01: 3, 0.5: 1}, bounds=(0, 1), variance="learn")
    assert planned.abstains
    assert not planned.spent.any()


def test_which_bad_epsilon_a_message_names_does_not_depend_on_the_values():
    duckdb = pytest.importorskip("duckdb")
    messages = set()
    for seed in range(8):
        rows = pl.DataFrame({"x": np.random.default_rng(seed).random(6), "eps": ["-1", "-2", "-3"] * 2})
        connection = duckdb.connect()
        connection.register("rows", rows.to_arrow())
        with pytest.raises(hetdp.InputError) as error:
            hetdp.mean(
                connection.sql("select * from rows"), value="x", epsilon="eps", bounds=(0, 1), missing="estimate"
            )
        messages.add(str(error.value))
    assert len(messages) == 1


def test_a_ledger_that_drops_who_has_no_row_keeps_private_whose_cell_is_empty(tmp_path):
    with hetdp.Ledger.create(tmp_path / "budgets.db") as ledger:
        ids = [f"p{i}" for i in range(4000)]
        ledger.enroll(dict.fromkeys(ids, 5))
        values = [None if i % 4 == 0 else 0.2 for i in range(3000)]
        asked = {"person": ids[:3000], "bounds": (0, 1), "spend": 1, "release_id": "may", "missing": "drop"}
        found = ledger.mean(values, **asked)
        assert found.plan.n == 3000
        assert abs(float(found) - 0.2) < 0.05
        assert abs(found.share - 0.75) < 0.05
        assert str(tmp_path) not in found.report() + found.to_json() + found.html()
        assert ledger.history()[-1].estimate == pytest.approx(float(found))
