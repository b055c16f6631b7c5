"""Every statistic through a ledger: charged exactly, stored once, and handed out again without a charge."""

from __future__ import annotations

import json
import math
from itertools import permutations

import duckdb
import numpy as np
import polars as pl
import pytest

import hetdp
from hetdp import InputError
from hetdp.core.domain import GRID
from hetdp.ledger import Ledger, OtherRequestError
from hetdp.ledger.books import UNIT, charges
from hetdp.ledger.rows import source_of, tallies_of

PEOPLE = [f"p{i:03d}" for i in range(240)]
RNG = np.random.default_rng(4)
ROWS = pl.DataFrame(
    {
        "id": PEOPLE,
        "age": RNG.integers(0, 100, 240).astype(float),
        "pay": RNG.uniform(0, 9, 240),
        "job": RNG.choice(["nurse", "cook", "pilot"], 240),
    }
)
ASK = hetdp.ask
QUESTIONS = {
    "mean": ASK.mean(value="age", missing="midpoint", bounds=(0, 100)),
    "sum": ASK.sum(value="age", missing="midpoint", bounds=(0, 100)),
    "proportion": ASK.proportion(value="job", missing=0, equals="cook"),
    "count": ASK.count(value="job", missing=0, equals="cook"),
    "histogram": ASK.histogram(value="job", categories=["nurse", "cook"]),
    "histogram of bins": ASK.histogram(value="age", bins=5, bounds=(0, 100)),
    "quantile": ASK.quantile([0.25, 0.5], value="age", missing="midpoint", bounds=(0, 100), bins=128),
    "quantile with intervals": ASK.quantile(value="age", missing="midpoint", bounds=(0, 100), within=0.9),
    "mode": ASK.mode(value="job", categories=["nurse", "cook"]),
    "variance": ASK.variance(value="age", missing="midpoint", bounds=(0, 100)),
    "bounds": ASK.bounds(value="age", outer=(0, 10**6)),
    "means": ASK.means({"age": (0, 100), "pay": (0, 9)}, missing="midpoint"),
    "mean of those who answered": ASK.mean(value="age", bounds=(0, 100), missing="estimate"),
    "proportion among those who answered": ASK.proportion(value="job", missing="estimate", equals="cook"),
    "median of those who answered": ASK.quantile(value="age", missing="estimate", bounds=(0, 100), bins=128),
    "variance of those who answered": ASK.variance(value="age", missing="estimate", bounds=(0, 100)),
    "means of those who answered": ASK.means({"age": (0, 100), "pay": (0, 9)}, missing="estimate"),
    "mean by a private group": ASK.mean_by_group((0, 9), ["nurse", "cook"], "job", value="pay", missing=3),
}


@pytest.fixture
def ledger(tmp_path):
    with Ledger.create(tmp_path / "budgets.db") as made:
        budgets = {person: (0.5, 1, 4, "public")[i % 4] for i, person in enumerate(PEOPLE)}
        made.enroll(budgets)
        yield made


def test_every_statistic_is_asked():
    assert {question.name for question in QUESTIONS.values()} == set(hetdp.statistics.STATISTICS)


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_release_is_charged_what_it_spends_and_the_same_id_gives_it_again(ledger, name):
    ask = {"person": "id", "spend": 0.25, "release_id": name}
    ask |= {"method": "uniform"} if name == "bounds" else {}  # by default so few people spend nothing on bounds
    first = ledger.ask(ROWS, QUESTIONS[name], **ask)
    left = [ledger.balance(person) for person in PEOPLE[:3]]
    for balance, level in zip(left, (0.5, 1, 4), strict=True):
        spent = (round(level * UNIT) - round(balance.left * UNIT)) / UNIT
        assert 0 < spent <= 0.25
    most = charges(first.plan).max()
    assert max(round((1 - left[1].left) * UNIT), 0) <= most
    again = ledger.ask(ROWS, QUESTIONS[name], **ask)
    assert again.numbers == first.numbers
    told = json.loads(again.to_json())
    assert told["ledger"].pop("stored") is True
    assert told == json.loads(first.to_json())
    assert [ledger.balance(person) for person in PEOPLE[:3]] == left
    assert first.to_dict()["ledger"]["release_id"] == name
    assert ledger.verify().events == 4  # opened, enrolled, charged, stored
    assert len(ledger.history()) == 4


@pytest.mark.parametrize("name", QUESTIONS)
def test_an_id_stands_for_one_question(ledger, name):
    ask = {"person": "id", "spend": 0.1, "release_id": "may"}
    ledger.ask(ROWS, QUESTIONS[name], **ask)
    other = QUESTIONS["count" if name != "count" else "sum"]
    with pytest.raises(OtherRequestError, match="the statistic"):
        ledger.ask(ROWS, other, **ask)


@pytest.mark.parametrize("first", ["midpoint", "estimate", "none", 0])
def test_an_id_stands_for_one_choice_about_missing_values(ledger, first):
    ask = {"person": "id", "spend": 0.1, "release_id": "may", "value": "age", "bounds": (0, 100)}
    numbers = ledger.mean(ROWS, **ask, missing=first).numbers
    for other in {"midpoint", "estimate", "none", 0, 50} - {first}:
        with pytest.raises(OtherRequestError, match="the statistic"):
            ledger.mean(ROWS, **ask, missing=other)
    assert ledger.mean(ROWS, **ask, missing=first).numbers == numbers


@pytest.mark.parametrize("name", QUESTIONS)
def test_everybody_hands_over_one_row_whatever_the_source_has(name):
    """Against a tally of a table with one row each: strangers are ignored, the absent count as missing."""
    question = QUESTIONS[name]
    plan = hetdp.plan({0.5: 4, 1.0: 2}, statistic=question)
    places = {"p000": 0, "p001": 1, "p002": 0, "absent": 1, "p004": 0, "also absent": 0}
    nobody = pl.DataFrame({"id": ["x", None], "age": [5.0, 7.0], "pay": [1.0, 1.0], "job": ["cook", "cook"]})
    (found,) = tallies_of(source_of(pl.concat([ROWS, nobody]), question, "id"), [(places, plan)])
    there = ROWS.filter(pl.col("id").is_in(list(places)))
    empty = pl.DataFrame(
        {"id": ["absent", "also absent"], "age": [None, None], "pay": [None, None], "job": [None, None]}
    )
    rows = pl.concat([there, empty.cast(dict(ROWS.schema))])
    epsilon = pl.Series("eps", [(0.5, 1.0)[places[person]] for person in rows["id"]])
    want = hetdp.read(rows.with_columns(epsilon), epsilon="eps", statistic=question)
    assert found.table.total.tolist() == want.table.total.tolist()
    assert found.levels == want.levels


def test_where_people_are_sorted_the_first_row_counts_and_numbers_are_averaged_elsewhere():
    rows = pl.DataFrame({"id": ["a", "a", "b"], "age": [10.0, 30.0, 50.0], "job": ["cook", "nurse", "nurse"]})
    places, question = {"a": 0, "b": 0}, ASK.histogram(value="job", categories=["cook", "nurse"])
    plan = hetdp.plan({1.0: 2}, statistic=question)
    (found,) = tallies_of(source_of(rows, question, "id"), [(places, plan)])
    assert found.table.total.tolist() == [[GRID, GRID, 0]]
    question = ASK.variance(value="age", missing="midpoint", bounds=(0, 100))
    plan = hetdp.plan({1.0: 2}, statistic=question)
    (found,) = tallies_of(source_of(rows, question, "id"), [(places, plan)])
    ten, thirty = (math.floor(x * GRID + 0.5) for x in (0.1, 0.3))
    codes = [(2 * (ten + thirty) + 2) // 4, GRID // 2]  # the average of both codes, then its square
    assert found.table.total.tolist() == [[sum(codes), sum((2 * q - GRID) ** 2 // GRID for q in codes)]]


def test_with_nothing_left_the_answer_uses_no_data_and_says_so(ledger):
    ledger.enroll(dict.fromkeys(PEOPLE, 0))
    found = ledger.ask(ROWS, QUESTIONS["histogram"], person="id", share=1, release_id="none")
    assert found.plan.abstains
    assert found.frequencies == {"nurse": 1 / 3, "cook": 1 / 3, "other": 1 / 3}
    assert "NOT from the data" in found.report()


def test_a_column_that_is_not_there_is_refused_before_the_charge(ledger):
    with pytest.raises(InputError, match="has no column 'work'"):
        ledger.ask(ROWS, ASK.mode(value="work", categories=["a"]), person="id", spend=0.1, release_id="x")
    assert not ledger.charged("x")


# --- Several rows a person: what they hand over does not depend on the order of rows, which no engine promises

SEVERAL = pl.DataFrame(
    {
        "id": np.repeat(PEOPLE[:60], 4),
        "age": np.tile([70.5, 3.1, np.nan, 3.1], 60) + np.repeat(np.arange(60) / 7, 4),
        "pay": RNG.uniform(0, 9, 240),
        "job": RNG.choice(["nurse", "cook", "pilot", "", "nurse"], 240),
    }
)


def codes_of(rows, asked, people=PEOPLE[:60]):
    """The exact sums that a ledger makes of these rows, one level of ε for each person."""
    plan = hetdp.plan({1.0 + i: 1 for i in range(len(people))}, statistic=asked)
    (made,) = tallies_of(source_of(rows, asked, "id"), [({p: i for i, p in enumerate(people)}, plan)])
    return made.table.total.tolist()


@pytest.mark.parametrize("name", [name for name in QUESTIONS if name != "bounds"])
def test_the_order_of_rows_changes_nobodys_codes(name):
    """To the last bit, also of a sum of doubles; every person's sums are compared by themselves."""
    expected = codes_of(SEVERAL, QUESTIONS[name])
    for seed in range(3):
        mixed = SEVERAL.sample(fraction=1, shuffle=True, seed=seed)
        assert codes_of(mixed, QUESTIONS[name]) == expected
        assert codes_of(mixed.lazy(), QUESTIONS[name]) == expected


def test_the_total_of_a_person_is_the_same_in_every_order_of_their_rows():
    """Doubles are not associative: added as they come, these three give 0, 3 or 4."""
    asked, found = ASK.sum(value="age", bounds=(0, 10), missing="none"), set()
    for values in permutations([1e16, 3.0, -1e16]):
        rows = pl.DataFrame({"id": ["p000"] * 3, "age": values})
        found.add(codes_of(rows, asked, PEOPLE[:1])[0][0])
    assert len(found) == 1


def test_a_person_with_several_rows_counts_by_the_first_cell_that_they_are_in():
    rows = pl.DataFrame({"id": ["p000", "p000", "p001", "p001"], "job": ["cook", "nurse", "", "pilot"]})
    found = codes_of(rows, ASK.histogram(value="job", categories=["nurse", "cook"]), PEOPLE[:3])
    assert [[total / GRID for total in one] for one in found] == [[1, 0, 0], [0, 0, 1], [0, 0, 1]]


@pytest.mark.parametrize("name", ["histogram", "proportion", "proportion of those who answered"])
def test_one_persons_cell_does_not_choose_the_rows_of_others_in_an_engine(name):
    """DuckDB packs short texts, so that one longer cell changes the order in which all groups come out."""
    asked = {
        "histogram": ASK.histogram(value="v", categories=["1", "x"]),
        "proportion": ASK.proportion(value="v", equals="x", missing="none"),
        "proportion of those who answered": ASK.proportion(value="v", equals="x", missing="estimate"),
    }[name]
    n, found = 2000, []
    people = [*(f"p{i}" for i in range(n)), "B"]
    for cell in ("y", "yes"):
        connection = duckdb.connect()
        connection.execute("set threads = 2")
        connection.execute("create table t (id varchar, v varchar)")
        for said in ("x", "1"):
            connection.execute(f"insert into t select 'p' || range, '{said}' from range({n})")  # noqa: S608
        connection.execute("insert into t values ('B', ?)", [cell])
        found.append(codes_of(connection.sql("select * from t"), asked, people))
    others = zip(found[0][:n], found[1][:n], strict=True)
    assert sum(one != other for one, other in others) == 0  # counted: a diff of thousands of lists takes minutes


def test_equal_rows_of_a_person_count_as_many_as_they_are_in_an_engine_too():
    rows = pl.DataFrame({"id": ["p000"] * 3, "v": ["3", "3", "9"]})
    relation = duckdb.connect().sql("select * from rows")
    for asked, code in (
        (ASK.mean(value="v", bounds=(0, 10), missing=0), 5 / 10),
        (ASK.sum(value="v", bounds=(0, 30), missing=0), 15 / 30),
    ):
        for source in (rows, relation):
            assert codes_of(source, asked, PEOPLE[:1])[0][0] == round(code * GRID)


def test_a_ledger_that_finds_no_rows_at_all_counts_everybody_as_missing():
    nobody = pl.DataFrame(
        {"id": [], "job": [], "age": []}, schema={"id": pl.String, "job": pl.String, "age": pl.Float64}
    )
    assert codes_of(nobody, QUESTIONS["histogram"], PEOPLE[:2]) == [[0, 0, GRID]] * 2
    assert codes_of(nobody, ASK.sum(value="age", bounds=(0, 10), missing=0), PEOPLE[:2]) == [[0], [0]]
