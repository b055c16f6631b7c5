"""Ordinary tables that once gave a quietly wrong number: now the software asks, refuses or says so beside it."""

from __future__ import annotations

import copy
import datetime as dt
import decimal
import enum
import json
import pickle
import uuid

import numpy as np
import pandas as pd
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
    assert ask.count("yes", missing=0).counted.startswith("people without an answer do not count as equal")
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
    answer = hetdp.mean(mostly, epsilon=1.0, bounds="private", outer=(0, 10**6), bounds_share=0.5)  # misses: e⁻²⁵⁰
    assert "most people are in one cell of the grid" in " ".join(answer.report().split())


def test_private_bounds_of_words_are_those_of_the_numbers_they_stand_for():
    answers = RNG.choice(["yes", "no"], 20_000).tolist()
    found = [
        verb(
            answers, epsilon=1.0, bounds="private", outer=(0, 10**6), bounds_share=0.5, values={"yes": 100, "no": 50}
        ).plan.interval.hi
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


# --- Found by a reviewer: numbers that were wrong, and said nothing ------------------------------------------------


def two_months(n, strict, **feb):
    """The same people with the same values; in February those with large values are strict.

    Both tests below have such people that noise alone fails them once in 10⁹ runs at most.
    """
    x = np.random.default_rng(0).beta(2, 4, n)
    mixed = np.where(x > np.median(x), strict, 1.0)
    return (hetdp.mean(x, epsilon=e, bounds=(0, 1), **feb) for e in (mixed, 0.5))


def test_a_difference_does_not_call_a_change_of_privacy_a_change_of_the_values():
    found = hetdp.difference(*two_months(4000, 0.02))
    _, high = found.confidence_interval()
    assert high < 0  # what ε tells about the value makes it so: the truth is 0
    assert found.changed() is None
    facts, shown = found.to_dict(), str(found)
    assert facts["changed"] is None
    assert facts["condition"] == "if ε tells nothing about the value"
    assert any("moved to another level" in said for said in facts["warnings"])
    assert any(said.startswith("later: the promised error") for said in facts["warnings"])
    for page in (" ".join(shown.split()), found._repr_html_()):
        assert "for any distribution if ε tells nothing about the value: whether the values changed is not" in page
        assert "it is below 0" not in page
        assert "Later drift" in page
        assert "Target" in page
    later, earlier = found.later.plan.bias_share, found.earlier.plan.bias_share
    assert facts["explained_by_drift"] == pytest.approx(-high / (later + earlier))
    assert 0 < facts["explained_by_drift"] < 0.3  # the levels really are this far apart, and farther


def test_a_difference_with_a_stated_drift_includes_it_and_needs_no_condition():
    found = hetdp.difference(*two_months(40_000, 0.05, drift=0.4))
    low, high = found.confidence_interval()
    assert low < 0 < high
    assert found.changed() is False
    assert "if ε tells nothing" not in str(found)
    assert found.explained_by() is None


def test_a_difference_of_the_same_people_at_the_same_levels_changed_if_epsilon_tells_nothing():
    epsilon = np.tile([0.1, 1.0], 3000)
    later, earlier = (hetdp.mean(np.full(6000, x), epsilon=epsilon, bounds=(0, 1)) for x in (0.6, 0.2))
    found = hetdp.difference(later, earlier)
    assert found.moved == 0
    assert found.changed() is True
    assert "if ε tells nothing about the value: it is above 0" in " ".join(str(found).split())
    alike = hetdp.difference(*(hetdp.mean(np.full(6000, x), epsilon=1.0, bounds=(0, 1)) for x in (0.6, 0.2)))
    assert alike.changed() is True
    assert alike.to_dict()["condition"] is None
    assert "for any distribution: it is above 0" in " ".join(str(alike).split())


def test_a_difference_beyond_what_any_drift_explains_is_a_change_whatever_the_weights():
    later = hetdp.mean(np.full(6000, 0.95), epsilon=np.tile([0.2, 1.0], 3000), bounds=(0, 1))
    found = hetdp.difference(later, hetdp.mean(np.full(6000, 0.05), epsilon=1.0, bounds=(0, 1)))
    assert found.weights_differ()
    assert found.explained_by() > 1
    assert found.changed() is True


def test_a_difference_says_who_was_exhausted_in_between(tmp_path):
    ids = [f"p{i}" for i in range(8000)]
    values = np.where(np.arange(8000) % 2 == 0, 60.0, 40.0)
    with hetdp.Ledger.create(tmp_path / "ledger.db") as ledger:
        ledger.enroll(ids[::2], budget=0.2)
        ledger.enroll(ids[1::2], budget=2)
        how = {"bounds": (0, 100), "person": ids, "spend": 0.2, "missing": "none"}
        earlier, later = (ledger.mean(values, release_id=name, **how) for name in ("jan", "feb"))
    found = hetdp.difference(later, earlier)
    assert found.confidence_interval()[1] < 0
    assert found.changed() is None
    assert any("4,000 people had no budget left" in said for said in found.warnings)


def test_a_difference_is_about_one_target():
    values = [0.0, 1.0] * 500
    people, drawn = (hetdp.mean(values, epsilon=1.0, bounds=(0, 1), target=t) for t in ("people", "population"))
    with pytest.raises(hetdp.InputError, match="same target"):
        hetdp.difference(people, drawn)
    assert hetdp.difference(people, people).to_dict()["target"] == "people"


def test_groups_that_were_combined_carry_the_condition_and_the_warning_of_their_parts():
    rng = np.random.default_rng(5)
    x = rng.beta(2, 4, 4000)
    people = pl.DataFrame(
        {"x": x, "eps": np.where(x > np.median(x), 0.05, 1.0), "region": np.where(rng.random(4000) < 0.5, "n", "s")}
    )
    how = {"value": "x", "epsilon": "eps", "bounds": (0, 1), "missing": "none", "by": "region"}
    public = {"public_columns": ["region"]}
    found = hetdp.mean(people, **how, **public).combine({"n": 1, "s": 1})
    for page in (" ".join(str(found).split()), found._repr_html_()):
        assert "for any distribution if ε tells nothing about the value" in page
        assert "Warning" in page
    assert found.to_dict()["condition"] == "if ε tells nothing about the value"
    stated = hetdp.mean(people, **how, **public, drift=0.4).combine({"n": 1, "s": 1})
    assert "tells nothing" not in str(stated)
    assert stated.to_dict()["condition"] is None


DRINKS = ["none"] * 500 + ["moderate"] * 300 + ["heavy"] * 200


@pytest.mark.parametrize("missing", [None, "none"])
@pytest.mark.parametrize("word", ["none", "NA", "-", "?", "nil", "missing", "#N/A"])
def test_every_text_is_an_answer_where_nobody_is_said_to_be_missing(word, missing):
    cells = [word if cell == "none" else cell for cell in DRINKS]
    found = hetdp.read(cells, statistic=ask.proportion("heavy", missing=missing), epsilon=1.0)
    assert found.table.total[0, 0] == 200 * 2**20
    people = pl.DataFrame({"x": cells, "e": [1.0] * 1000})
    there = hetdp.read(people, statistic=ask.count("heavy", missing="none"), value="x", epsilon="e")
    assert there.table.total[0, 0] == 200 * 2**20


@pytest.mark.parametrize("choice", ["estimate", "drop", 0, "midpoint"])
def test_the_report_names_the_words_that_are_no_answer_and_never_the_one_that_is_asked_for(choice):
    counted = ask.proportion("none", missing=choice).counted
    assert "any case: - -- . ? #N/A" in counted
    assert not counted.endswith("nil none null")
    assert ask.proportion("heavy", missing=choice).counted.endswith("nil none null")
    assert "Any text that is not blank is an answer" in ask.count("heavy", missing="none").counted
    found = hetdp.read(DRINKS, statistic=ask.count("none", missing=choice), epsilon=1.0)
    assert found.table.total[0, 0] == 500 * 2**20


class Colour(enum.Enum):
    """An answer that is no text."""

    RED = "red"


OBJECTS = {
    "date": dt.date(2020, 1, 1), "datetime": dt.datetime(2020, 1, 1, tzinfo=dt.UTC), "span": dt.timedelta(1),
    "bytes": b"yes", "uuid": uuid.UUID(int=5), "enum": Colour.RED, "list": ["yes"],
    "decimal NaN": decimal.Decimal("nan"), "NaN": float("nan"), "nothing": None, "blank": "\u00a0 ", "N/A": "#n/a",
}  # fmt: skip


@pytest.mark.parametrize("what", OBJECTS)
def test_what_is_neither_text_nor_number_is_no_answer(what):
    """Before, a date or bytes counted as an answer that is not equal: everybody had answered, and nobody so."""
    import pandas as pd

    cells = ["yes", "no", OBJECTS[what], 3, True] * 10
    for source, value in ((cells, None), (pd.DataFrame({"x": pd.Series(cells, dtype=object)}), "x")):
        for equals, yes in (("yes", 10), (3, 10)):
            asked = ask.proportion(equals, missing="estimate")
            found = hetdp.read(source, statistic=asked, value=value, epsilon=1.0)
            assert (found.table.total[0] // 2**20).tolist() == [yes, 30, 10]


def test_lines_of_json_and_lists_agree_about_what_is_no_answer(tmp_path):
    cells = ["yes", ["yes"], {"a": 1}, None, "\u00a0", "none", "1", 1, True, 900000000000003001]
    path = tmp_path / "people.ndjson"
    path.write_text("".join(json.dumps({"x": cell, "e": 1.0}) + "\n" for cell in cells))
    for equals in ("yes", "1", 1, "900000000000003001"):
        for missing in ("estimate", "midpoint", "none"):
            asked = ask.proportion(equals, missing=missing)
            listed = hetdp.read(cells, statistic=asked, epsilon=1.0)
            read = hetdp.read(path, statistic=asked, value="x", epsilon="e")
            assert listed.table.total.tolist() == read.table.total.tolist(), (equals, missing)


def test_long_codes_are_compared_digit_by_digit():
    codes = ["900000000000003001", "900000000000003002"] * 500
    for cells in (codes, list(map(int, codes)), list(map(decimal.Decimal, codes)), pl.Series(codes)):
        where = {"epsilon": 1.0, "statistic": ask.proportion(codes[0], missing="none")}
        assert hetdp.read(cells, **where).table.total.tolist() == [[500 * 2**20]]
    shares = hetdp.histogram(codes, categories=codes[:2], epsilon=100.0)
    assert shares[codes[0]] == pytest.approx(0.5, abs=0.1)
    with pytest.raises(hetdp.InputError, match="write it as text"):
        ask.proportion(900000000000003001)
    numbers = np.array(codes, dtype=np.int64)
    for cells, value in ((numbers, None), (numbers.astype(float), None), (pl.DataFrame({"x": numbers}), "x")):
        with pytest.raises(hetdp.InputError, match="cast it to text"):
            hetdp.read(cells, statistic=ask.proportion(codes[0], missing="none"), epsilon=1.0, value=value)


def test_codes_that_look_like_numbers_with_an_exponent_are_texts():
    codes = ["0E1", "0E2", "0"] * 100
    for cells, value in ((codes, None), (pl.Series(codes), None), (pl.DataFrame({"x": codes}), "x")):
        where = {"epsilon": 1.0, "value": value}
        for equals, people in (("0E1", 100), ("0", 300)):  # as numbers all are 0
            found = hetdp.read(cells, statistic=ask.proportion(equals, missing="none"), **where)
            assert found.table.total.tolist() == [[people * 2**20]]
        found = hetdp.read(cells, statistic=ask.histogram(categories=["0E1", "0E2"]), **where)
        assert found.table.total.tolist() == [[100 * 2**20] * 3]
    small = [1e-5, 2.0] * 10
    for cells, equals in ((small, "1e-05"), (small, 1e-5), (pl.Series(small), 1e-5), (pl.Series(small), "0.00001")):
        found = hetdp.read(cells, statistic=ask.proportion(equals, missing="none"), epsilon=1.0)
        assert found.table.total.tolist() == [[10 * 2**20]]
    with pytest.raises(hetdp.InputError, match="without an exponent"):  # as text 0.00001 would not be equal
        hetdp.read(pl.Series(small), statistic=ask.proportion("1e-05", missing="none"), epsilon=1.0)


def test_a_sum_through_a_ledger_adds_up_the_rows_of_a_person(tmp_path):
    """Before, it was the sum of averages: 8,000 where people bought for 24,000."""
    ids = [f"p{i // 3}" for i in range(1200)]
    for bounds, total in (((0, 100), 400 * 60), ((0, 40), 400 * 40), ((-50, 100), 400 * 60), ((5, 100), 400 * 60)):
        with hetdp.Ledger.create(tmp_path / f"{bounds}.db") as ledger:
            ledger.enroll(sorted(set(ids)), budget=1000)
            how, values = {"person": ids, "spend": 400}, [10.0, 20.0, 30.0] * 400
            found = ledger.ask(values, ask.sum(bounds, missing="none"), release_id="sum", **how)
            assert found.estimate == pytest.approx(total, abs=3)
            assert "with the total of their rows" in " ".join(found.report().split())
            mean = ledger.ask(values, ask.mean(bounds, missing="none"), release_id="mean", **how)
            assert mean.estimate == pytest.approx(20, abs=1)


@pytest.mark.parametrize(
    "asked", [ask.sum((0, 9), missing="estimate"), ask.quantile(0.5, (0, 9), missing="estimate"),
              ask.count("a", missing="estimate")]
)  # fmt: skip
def test_a_number_without_the_share_who_answered_says_that_it_is_not_published(asked):
    assert "How many they are is not published" in asked.counted
    assert "not published" not in ask.mean((0, 9), missing="estimate").counted  # there it stands beside the number
    texts = [f"{1000 + i:,}" for i in range(1000)]
    report = hetdp.sum(texts, bounds=(0, 9000), epsilon=1.0, missing="estimate").report()
    assert "--thousands" in report


@pytest.mark.parametrize("level", [95, 1, 0])
def test_a_level_that_is_no_probability_is_refused_by_every_answer(level):
    values, how = [0.25, 0.75] * 500, {"epsilon": 1.0, "bounds": (0, 1)}
    answers = [hetdp.mean(values, missing="estimate", **how), hetdp.median(values, **how)]
    for answer in (*answers, hetdp.mode(values, epsilon=1.0, edges=[0, 0.5, 1])):
        with pytest.raises(hetdp.InputError, match="confidence level"):
            answer.figures(level)


@pytest.mark.parametrize("zeros", [0.74, 0.82, 0.9, 0.98])
def test_private_bounds_of_a_column_with_many_zeros_always_say_that_other_values_may_lie_beyond(zeros):
    """The upper bound is then anything between 0 and the next value: estimates of one column spanned 0.0007 to 0.2."""
    n = 6000
    epsilon = np.tile([0.1, 1.0], n // 2)
    for seed in range(20):
        rng = np.random.default_rng(seed)
        values = np.where(rng.random(n) < zeros, 0.0, rng.integers(1, 5, n))
        found = hetdp.bounds_for(values, epsilon=epsilon, outer=(0, 10**6))
        assert found.at_zero
        assert "may lie beyond these bounds" in " ".join(found.report().split())
    mean = hetdp.mean(values, epsilon=epsilon, bounds=found)
    assert any("may lie beyond" in said for said in mean.to_dict()["warnings"])
    for page in (" ".join(mean.report().split()), mean._repr_html_()):
        assert "may lie beyond these bounds" in page
    spread = np.random.default_rng(1).lognormal(10, 1, n)
    assert not hetdp.bounds_for(spread, epsilon=epsilon, outer=(0, 10**9), share=0.5).at_zero


def test_two_questions_that_drop_other_people_are_refused_also_if_as_many_are_left():
    """Before, 500 people were left of each column, and the report spoke of 500 people for 1,000."""
    people = table(x=[0.5, None] * 500, y=[None, 0.5] * 500).with_columns(eps=pl.lit(1.0))
    asked = {name: ask.mean((0, 1), value=name, missing="drop") for name in "xy"}
    with pytest.raises(hetdp.InputError, match="leaves other people for each question"):
        hetdp.ask(people, asked, epsilon="eps")
    same = {"mean": asked["x"], "median": ask.quantile(0.5, (0, 1), value="x", missing="drop")}
    assert hetdp.ask(people, same, epsilon="eps")["mean"].plan.n == 500


# --- Several rows of a person in a ledger, and what a difference of two releases must carry


@pytest.fixture
def enrolled(tmp_path):
    people = [f"p{i}" for i in range(300)]
    ledger = hetdp.Ledger.create(tmp_path / "people.db")
    ledger.enroll(people, budget=1e5)
    return ledger, people


@pytest.mark.parametrize(
    ("rows", "bounds", "missing", "each"),
    [
        ((150.0, -100.0), (0, 100), "estimate", 50.0),
        ((150.0, -100.0), (-100, 100), "none", 50.0),
        ((40.0,) * 12, (100, 1000), "none", 480.0),
        ((900.0, 900.0), (0, 1000), "estimate", 1000.0),
    ],
    ids=["refunds", "refunds-both-signs", "payments", "beyond"],
)
def test_a_sum_through_a_ledger_clips_the_total_of_a_person_and_not_each_row(enrolled, rows, bounds, missing, each):
    ledger, people = enrolled
    table = pd.DataFrame({"id": np.repeat(people, len(rows)), "v": rows * len(people)})
    asked = hetdp.ask.sum(value="v", bounds=bounds, missing=missing)
    found = ledger.ask(table, asked, person="id", spend=5000, release_id="a")
    assert float(found) == pytest.approx(each * len(people), abs=0.01 * (bounds[1] - bounds[0]) + 1)


def test_a_mean_by_a_private_group_through_a_ledger_takes_group_and_value_of_the_first_row(enrolled):
    ledger, people = enrolled
    table = pd.DataFrame({"id": np.repeat(people, 2), "dep": ["surgery", "after"] * 300, "days": [10.0, 2.0] * 300})
    asked = hetdp.ask.mean_by_group(
        value="days", private_group="dep", categories=["surgery", "after"], bounds=(0, 30), missing="estimate"
    )
    found = ledger.ask(table, asked, person="id", spend=5000, release_id="a")
    assert found.figures(0.95)[0].estimate == pytest.approx(10, abs=0.1)


def test_a_sum_through_a_ledger_refuses_bounds_that_were_found_from_single_rows(enrolled):
    ledger, people = enrolled
    values = np.random.default_rng(1).lognormal(3, 0.5, 300)
    found = ledger.ask(values, hetdp.ask.bounds(outer=(0, 1e6)), person=people, spend=500, release_id="b")
    with pytest.raises(hetdp.InputError, match="bounds of a person's total"):
        ledger.ask(values, hetdp.ask.sum(bounds=found, missing="none"), person=people, spend=5, release_id="s")


@pytest.fixture
def zeros():
    """Bounds that were found where four of five people have 0, and two groups with them."""
    values = np.append(np.zeros(4800), np.random.default_rng(2).lognormal(0, 0.5, 1200))
    table = pd.DataFrame({"v": values, "e": 1.0, "g": np.tile(["a", "b"], 3000)})
    found = hetdp.bounds_for(table, value="v", epsilon="e", outer=(0, 1000))
    return hetdp.mean(table, value="v", epsilon="e", bounds=found, missing="none", by="g", public_columns=["g"])


def test_groups_and_what_is_combined_of_them_say_that_values_were_clipped(zeros):
    combined = zeros.combine({"a": 0.5, "b": 0.5})
    (warned,) = zeros["a"].plan.statistic.bounds.origin.warnings
    for words in (str(zeros), str(combined), str(hetdp.difference(zeros["a"], zeros["b"]))):
        assert "of values clipped to" in words
        assert warned in " ".join(words.split())
    for facts in (zeros.to_dict(), combined.to_dict(), hetdp.difference(zeros["a"], zeros["b"]).to_dict()):
        assert any(warned in said for said in facts["warnings"])


def test_a_difference_of_those_who_answered_shows_both_shares_and_warns_when_they_differ():
    values = np.random.default_rng(3).normal(50, 10, 4000).clip(0, 100)
    before = hetdp.mean(values, epsilon=1.0, bounds=(0, 100), missing="estimate")
    after = hetdp.mean(np.where(values > 50, np.nan, values), epsilon=1.0, bounds=(0, 100), missing="estimate")
    change = hetdp.difference(after, before)
    assert "answered later" in " ".join(change.warnings)
    assert change.to_dict()["later"]["answered"] == pytest.approx(0.5, abs=0.05)
    assert not hetdp.difference(before, before).warnings


@pytest.fixture
def regions():
    values = np.random.default_rng(4).lognormal(10, 0.6, 4000).clip(0, 100_000)
    gone = np.where((values > 30_000) & (np.arange(4000) % 10 < 7), np.nan, values)
    return pd.DataFrame({"w": values, "a": gone, "g": np.tile(["N", "S"], 2000), "eps": 1.0})


def by_region(table, shares=(1, 1), value="w", bounds=(0, 1e5), missing="estimate"):
    found = hetdp.mean(table, value=value, epsilon="eps", bounds=bounds, missing=missing, by="g", public_columns=["g"])
    return found.combine(dict(zip("NS", shares, strict=True)))


def test_a_difference_of_combined_answers_carries_who_answered(regions):
    change = hetdp.difference(by_region(regions, value="a"), by_region(regions))
    assert "answered later" in " ".join(change.warnings)
    facts = change.to_dict()
    assert facts["earlier"]["answered"] == pytest.approx(1, abs=0.02)
    assert facts["later"]["answered"] < 0.9
    assert facts["later"]["n"] == 4000
    words = str(change)
    assert all(heading in words for heading in ("Missing", "Target", "Later about"))


@pytest.mark.parametrize(
    "other",
    [{"bounds": (0, 5e5)}, {"missing": "drop"}, {"missing": 0.0}, {"shares": (3, 1)}],
    ids=["bounds", "drop", "number", "shares"],
)
def test_a_difference_of_combined_answers_to_other_questions_is_refused(regions, other):
    with pytest.raises(hetdp.InputError, match="difference"):
        hetdp.difference(by_region(regions), by_region(regions, **other))


def test_a_frame_of_modes_has_the_cells_and_not_their_places():
    table = pd.DataFrame({"kids": [2, 2, 2, 2, 1, 1] * 400, "g": ["n", "s"] * 1200, "eps": 1.0})
    found = hetdp.mode(table, value="kids", categories=[1, 2, 3], epsilon="eps", by="g", public_columns=["g"])
    frame = found.to_frame()
    assert frame["cell"].to_list() == ["2", "2"]
    assert frame["estimate"].to_list() == frame["low"].to_list() == [None, None]


def test_a_frame_of_medians_does_not_call_a_bin_an_interval():
    table = pd.DataFrame({"v": np.random.default_rng(5).lognormal(10, 0.6, 1000), "g": "n", "eps": 0.2})
    asked = {"value": "v", "bounds": (0, 250_000), "missing": "none", "epsilon": "eps", "by": "g"}
    frame = hetdp.median(table, **asked, public_columns=["g"]).to_frame()
    assert frame["low"].to_list() == frame["high"].to_list() == [None]
    assert frame["bin_low"][0] < frame["estimate"][0] < frame["bin_high"][0]
    within = hetdp.median(table, **asked, public_columns=["g"], within=0.95).to_frame()
    assert within["low"][0] < within["high"][0]
    assert "bin_low" not in within.columns


def test_a_category_in_another_encoding_is_no_answer_rather_than_another_one(tmp_path):
    """Excel's plain CSV is Windows-1252: half of the cells cannot be read, and the share who answered shows it."""
    path = tmp_path / "towns.csv"
    pd.DataFrame({"town": ["Zürich", "Genf"] * 1000, "eps": 1.0}).to_csv(path, index=False, encoding="cp1252")
    for source in (
        path,
        pl.read_csv(path, encoding="utf8-lossy"),
        pl.read_csv(path, encoding="utf8-lossy").to_pandas(),
    ):
        found = hetdp.proportion(source, value="town", equals="Zürich", epsilon="eps", missing="estimate")
        assert found.share == pytest.approx(0.5, abs=0.05)
    listed = ["Z\ufffdrich", "Genf"] * 1000
    lone = hetdp.proportion(listed, equals="Genf", epsilon=1.0, missing="estimate")
    assert (lone.share, lone.estimate) == pytest.approx((0.5, 1.0), abs=0.05)


@pytest.mark.parametrize("question", [hetdp.mean, hetdp.proportion], ids=["mean", "proportion"])
def test_a_number_of_those_who_answered_that_uses_no_data_says_so_in_every_output(question):
    how = {"equals": "y"} if question is hetdp.proportion else {"bounds": (0, 3)}
    values = ["y", "n"] * 50 if question is hetdp.proportion else [1.0, 2.0] * 50
    found = question(values, epsilon=0.0, missing="estimate", **how)
    assert "NOT from the data" in str(found)
    assert found.to_dict()["answered"]["interval"] == [0.0, 1.0]
    assert found.html()


def test_a_difference_says_that_one_number_is_not_from_the_data():
    used, unused = (hetdp.mean([20.0] * 500, epsilon=e, bounds=(0, 100), missing="estimate") for e in (1.0, 0.0))
    change = hetdp.difference(unused, used)
    assert "NOT from the data" in " ".join(change.warnings)
    assert change.to_dict()["later"]["answered"] is None
