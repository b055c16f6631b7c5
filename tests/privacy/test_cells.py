"""Holes that a second look found: what a cell means, weights that wrap, charges and sums that do not fit."""

from __future__ import annotations

import io
from dataclasses import replace

import numpy as np
import pandas as pd
import polars as pl
import pytest

import hetdp
from hetdp import InputError, Levels, Plan, PrivacyError, Tally, ask
from hetdp.core.domain import GRID
from hetdp.ledger import Ledger, LedgerError
from hetdp.ledger import charge as ledger_charge
from hetdp.ledger.books import canonical, next_event
from hetdp.privacy.exact import NoiseTerm
from hetdp.tally import Table

# ---------------------------------------------------------------------------------------------------------
# One cell never changes what another one means

COLUMNS = {
    "whole numbers": (["1"] * 6 + ["2"] * 4, ["1", "2", "unknown"], "unknown"),
    "numbers with a point": (["1.0"] * 6 + ["2.0"] * 4, ["1", "2"], "x"),
    "truths": (["True"] * 6 + ["False"] * 4, ["true", "false"], "maybe"),
    "an empty cell among numbers": (["1"] * 6 + ["2"] * 4, ["1", "2"], ""),
    "words": (["a"] * 6 + ["b"] * 4, ["a", "b"], "7"),
}
READERS = {
    "pandas": lambda text: pd.read_csv(io.StringIO(text)),
    "pandas without guesses": lambda text: pd.read_csv(io.StringIO(text), dtype=str),
    "pandas nullable": lambda text: pd.read_csv(io.StringIO(text), dtype_backend="numpy_nullable"),
    "Polars": lambda text: pl.read_csv(io.StringIO(text)),
    "Polars without guesses": lambda text: pl.read_csv(io.StringIO(text), infer_schema=False),
}


def sums(read, cells, categories):
    frame = read("x,e\n" + "".join(f"{cell},1\n" for cell in cells))
    return hetdp.read(frame, epsilon=1.0, statistic=ask.histogram(categories=categories, value="x")).table.total[0]


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("column", COLUMNS)
def test_one_cell_moves_one_person_also_where_it_changes_the_type_of_its_column(column, reader):
    cells, categories, odd = COLUMNS[column]
    before, after = (sums(READERS[reader], [*cells, last], categories) for last in (cells[-1], odd))
    assert before[:2].tolist() == [6 * GRID, 5 * GRID]
    assert np.abs(before - after).sum() <= 2 * GRID
    assert after[1] == 4 * GRID


CODES = {
    "numbers with an exponent": (["1e0"] * 6 + ["2e0"] * 4, ["1", "2"], True),
    "codes with an exponent": (["0E1"] * 6 + ["0E2"] * 4, ["0E1", "0E2"], False),
    "a category with an exponent": (["0.00001"] * 6 + ["2"] * 4, ["1e-05", "2"], False),
    "long codes": (["900000000000003001"] * 6 + ["900000000000003002"] * 4, ["900000000000003001", "2"], False),
}


@pytest.mark.parametrize("odd", ["x", "", "7"])
@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("column", CODES)
def test_a_column_whose_type_decides_what_a_code_is_is_refused_or_one_cell_moves_one_person(column, reader, odd):
    cells, categories, answered = CODES[column]
    found = []
    for last in (cells[-1], odd):
        try:
            found.append(sums(READERS[reader], [*cells, last], categories))
        except InputError as error:
            assert "cast it to text" in str(error)  # noqa: PT017  a refusal is right, and so is an answer
    assert len(found) == 2 or not answered
    assert len(found) < 2 or np.abs(found[0] - found[1]).sum() <= 2 * GRID


def test_categories_that_are_the_same_number_are_refused():
    for twice in (["1", "1.0"], ["true", "1"], [1, True], ["a", "a"]):
        with pytest.raises(InputError, match="listed twice, or two are the same number"):
            ask.histogram(categories=twice)


# ---------------------------------------------------------------------------------------------------------
# Plans by hand

MANY = ask.quantile(q=[(i + 1) / 65 for i in range(64)], bounds=(0, 1), bins=16, within=0.95)


@pytest.mark.parametrize("weight", [2**64 // 384 + 1, 2**62, 2**31, -1])
def test_a_weight_whose_cost_would_wrap_around_is_refused(weight):
    with pytest.raises(PrivacyError, match="62 bits"):
        Plan("adpm", Levels({0.01: 4}), MANY, np.array([weight]), (NoiseTerm(2.0**20, 0, 1),), None, abstains=False)


# ---------------------------------------------------------------------------------------------------------
# Sums that no people can have


def test_sums_of_one_statistic_are_not_those_of_another():
    means = hetdp.read(
        pl.DataFrame({f"c{i}": [0.5, 1.0] for i in range(3)}),
        epsilon=1.0,
        statistic=ask.means({f"c{i}": (0, 1) for i in range(3)}, missing="none"),
    )
    for other in (ask.histogram(categories=["a", "b"]), ask.quantile(bounds=(0, 1), bins=3), ask.mean(bounds=(0, 1))):
        with pytest.raises(InputError, match="no values can give"):
            replace(means, statistic=other)


def test_a_table_whose_levels_do_not_ascend_is_refused():
    table = Table(np.array([2.0, 0.1]), np.array([1, 1]), np.array([[0], [GRID]]))
    with pytest.raises(InputError, match="no values can give"):
        Tally(table, ask.mean(bounds=(0, 1)))


# ---------------------------------------------------------------------------------------------------------
# The ledger


@pytest.fixture
def ledger(tmp_path):
    with Ledger.create(tmp_path / "budgets.db") as made:
        made.enroll({f"p{i}": 0.01 for i in range(8)})
        yield made


FORGED = {
    "more than is charged": {
        "epsilon": [(1e6).hex()],
        "noise": [[(2.0**11).hex(), 0, 1]],
        "units": [2**30],
        "abstains": False,
    },
    "another statistic": {"statistic": "sum", "parameters": {"bounds": [0.0, 1.0]}},
    "other bounds": {"bounds": [(0.0).hex(), (9.0).hex()], "parameters": {"bounds": [0.0, 9.0], "missing": "none"}},
    "another choice for missing values": {"parameters": {"bounds": [0.0, 1.0], "missing": 1.0}},
}


@pytest.mark.parametrize("what", FORGED)
def test_an_appended_charge_that_is_not_what_its_plan_spends_is_not_carried_out(ledger, what, monkeypatch):
    """Its hash is right: whoever can write to the database can compute it."""
    question, ask_for = ask.mean(bounds=(0, 1), missing="none"), {"spend": 0.005, "release_id": "may"}
    people = [f"p{i}" for i in range(8)]
    real = ledger_charge.plan_facts
    changes = {name: fact for name, fact in FORGED[what].items() if name != "statistic"}
    monkeypatch.setattr(ledger_charge, "plan_facts", lambda made: {**real(made), **changes})
    if "statistic" in FORGED[what]:
        named = next_event
        monkeypatch.setattr(
            ledger_charge.books,
            "next_event",
            lambda head, kind, facts, release=None: named(head, kind, {**facts, "statistic": "sum"}, release),
        )
    values = np.full(8, 0.25)
    with pytest.raises(LedgerError, match="not what its plan spends"):
        ledger.ask(values, question, person=people, **ask_for)


def test_columns_keep_their_order_through_a_ledger(ledger):
    ledger.enroll({f"p{i}": "public" for i in range(8)})
    rows = pl.DataFrame({"id": [f"p{i}" for i in range(8)], "zage": [50.0] * 8, "income": [20_000.0] * 8})
    question = ask.means({"zage": (0, 100), "income": (0, 100_000)}, missing="none")
    found = ledger.ask(rows, question, person="id", share=1, release_id="may").means
    assert found == {"zage": pytest.approx(50, abs=0.01), "income": pytest.approx(20_000, abs=1)}
    ends = '[["zage",[0.0,100.0]],["income",[0.0,100000.0]]]'
    assert canonical(question.plain) == f'{{"bounds":{ends},"missing":"none"}}'


def test_means_of_columns_in_another_order_are_another_statistic():
    one, other = ask.means({"a": (0, 1), "b": (0, 9)}), ask.means({"b": (0, 9), "a": (0, 1)})
    assert one != other
    frame = pl.DataFrame({"a": [0.5], "b": [3.0]})
    with pytest.raises(InputError, match="do not merge"):
        hetdp.read(frame, epsilon=1.0, statistic=one, missing=0) + hetdp.read(
            frame, epsilon=1.0, statistic=other, missing=0
        )


def test_one_column_of_several_means_is_coded_on_its_own_bounds_by_the_kernels_too():
    people = 2**18
    frame = pl.DataFrame({"a": np.full(people, 50.0)})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hetdp.tally.groupby.LOADED_FROM", 0)
        found = hetdp.read(frame, epsilon=1.0, statistic=ask.means({"a": (0, 100)}, missing="none"))
    assert found.table.total.tolist() == [[people * GRID // 2]]


def test_a_box_of_many_numbers_is_drawn_soon_however_large_epsilon_is():
    levels = Levels({1e9: 4})
    planned = hetdp.plan(levels, statistic=ask.means({f"c{i}": (0, 1) for i in range(64)}))
    assert planned.noise[0].scale >= 16
