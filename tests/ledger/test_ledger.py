"""Lifetime budgets: what is charged, in which order, and what a ledger refuses."""

from __future__ import annotations

import gzip
import json
import math
import os
import random
import re
import shutil
import sqlite3
import subprocess
import sys
import traceback
import unicodedata
import uuid
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import polars as pl
import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hetdp
from hetdp import InputError
from hetdp.core.domain import clean_ids
from hetdp.ledger import (
    ChargedError,
    Ledger,
    LedgerError,
    Request,
    books,
    charge,
    store,
    tables,
)
from hetdp.ledger.books import (
    LONG,
    UNIT,
    UNLIMITED,
    Rule,
    budget_units,
    charges,
    integers,
    level,
    levels,
    packed,
    reals,
)
from hetdp.ledger.rows import source_of, tallies_of
from hetdp.privacy.exact import NoiseTerm
from hetdp.statistics.mean import Mean
from ledgers import DROP_FUNCTIONS, PEOPLE, VALUES, Untouchable, drop_guards, execute, made, mean, restore_guards
from support import examples, is_id

# ---------------------------------------------------------------------------------------------------------
# Amounts


@pytest.mark.parametrize(
    ("cell", "units"),
    [
        ("0.3", 300_000_000),
        (0.3, 300_000_000),
        (0.1 + 0.2, 300_000_000),
        ("0.0000000019", 1),
        ("1e-400", 0),
        ("-0", 0),
        (0, 0),
        (5, 5 * UNIT),
        (np.int64(9), 9 * UNIT),
        (np.float64(0.7), 700_000_000),
        (Fraction(1, 3), 333_333_333),
        ("inf", UNLIMITED),
        ("public", UNLIMITED),
        (math.inf, UNLIMITED),
    ],
    ids=repr,
)
def test_a_budget_is_rounded_down_to_whole_units(cell, units):
    assert budget_units(cell) == units


@pytest.mark.parametrize("cell", ["-1", math.nan, "1e400", "1e9", 10**9, True, None, "0,5", b"1", ""], ids=repr)
def test_a_budget_that_is_no_budget_is_refused(cell):
    with pytest.raises(InputError):
        budget_units(cell)


@given(st.integers(0, UNLIMITED - 1))
def test_a_level_is_the_largest_double_not_above_the_amount(units):
    found = level(units)
    assert Fraction(found) <= Fraction(units, UNIT) < Fraction(math.nextafter(found, math.inf))


@given(st.lists(st.one_of(st.integers(0, UNLIMITED), st.integers(0, 10**10)), max_size=20))
def test_many_levels_at_once_are_the_same(units):
    found = levels(np.array(units, dtype=np.int64)).tolist()
    assert found == [level(amount) for amount in units]


ticks = st.builds(math.ldexp, st.integers(2**52, 2**53 - 1), st.integers(-58, 11))
near = st.builds(  # scales at which 10⁹·W/s is a whole number, or a hair off
    lambda weight, whole, side: (
        weight,
        math.nextafter(weight * UNIT / whole, side) if side else weight * UNIT / whole,
    ),
    st.integers(1, 2**53),
    st.integers(1, 2**49),
    st.sampled_from([None, 0, math.inf]),
)


def spends(weights, scale):
    """What people of these costs are charged under one noise of this scale."""
    noise = [NoiseTerm(scale, 0, len(weights))]
    return charges(SimpleNamespace(costs=np.array(weights, dtype=np.int64), noise=noise, squares=None)).tolist()


@settings(max_examples=examples(500))
@given(st.one_of(near, st.tuples(st.integers(0, 2**62), ticks)), st.lists(st.integers(0, 2**62), max_size=3))
def test_a_spend_is_the_ceiling_that_fractions_give(one, others):
    weight, scale = one
    weights = [weight, *others]
    assert spends(weights, scale) == [min(math.ceil(UNIT * Fraction(w) / Fraction(scale)), UNLIMITED) for w in weights]


def test_control_a_spend_in_doubles_is_not_the_ceiling():
    weight, scale = 3 * 2**40 + 1, 3.0 * 2**40
    assert math.ceil(weight * (UNIT / scale) - 1e-3) == UNIT < spends([weight], scale)[0]


@given(st.lists(st.integers(0, UNLIMITED)) | st.lists(st.integers(0, 300), min_size=LONG), st.data())
def test_a_column_of_an_event_comes_back_as_it_was(column, data):
    whole = np.array(column, dtype=np.int64)
    real = np.array([data.draw(st.floats(0, math.inf)) for _ in column[:80]])
    for written, back in ((whole, integers), (real, reals)):
        kept = json.loads(json.dumps(packed(written)))
        assert isinstance(kept, str) == (len(written) >= LONG)
        assert back(kept).tobytes() == written.tobytes()
    assert integers(column).tolist() == column  # a long list is read too


@pytest.mark.parametrize("text", ["", "u2", "u2:AAE", "u2:AAEC", "f8:AAAAAAAAAAA=", "i8:AAAAAAAAAAA=", "u3:AAAA"])
def test_a_text_that_is_no_column_is_refused(text):
    with pytest.raises(ValueError, match=r".*"):
        integers(text)


def spend_of(plan):
    """The exact spend of one person at each level, recomputed in fractions: W/s, infinite without noise."""
    found = [math.inf if w else Fraction(0) for w in plan.units.tolist()]
    for term in plan.noise:
        for place in range(term.first, term.last):
            found[place] = Fraction(int(plan.units[place])) / Fraction(term.scale)
    return found


amounts_left = st.dictionaries(
    st.one_of(st.integers(1, 100), st.integers(10**6, 10**10), st.sampled_from([0, UNIT // 10, UNIT, UNLIMITED])),
    st.integers(1, 400),
    min_size=1,
    max_size=6,
)
METHODS = [name for name, method in hetdp.methods().items() if not method.needs_records]


@settings(max_examples=examples(150), deadline=None)
@given(amounts_left, st.sampled_from(METHODS))
def test_a_charge_covers_the_exact_spend_and_never_passes_what_is_left(left, method):
    if method == "stretch" and UNLIMITED in left:
        return
    levels = hetdp.Levels(Counter({level(units): count for units, count in left.items()}))
    plan = hetdp.plan(levels, bounds=(0, 1), method=method)
    charged = dict(zip(levels.epsilon.tolist(), zip(charges(plan).tolist(), spend_of(plan), strict=True), strict=True))
    for units in left:
        charge, spend = charged[level(units)]
        assert charge <= units
        if spend < math.inf:
            assert charge - 1 < spend * UNIT <= charge


@pytest.mark.parametrize(
    ("rule", "budget", "left", "allowed"),
    [
        ({"spend": 0.1}, UNIT, UNIT, 10**8),
        ({"spend": 0.1}, UNIT, 5, 5),
        ({"spend": "0.3"}, UNIT, UNIT, 3 * 10**8),
        ({"share": 0.25}, UNIT, UNIT, 25 * 10**7),
        ({"share": Fraction(1, 3)}, UNIT, UNIT, 333_333_333),
        ({"share_left": 0.5}, UNIT, 7, 3),
        ({"share_left": 1}, UNIT, 0, 0),
        ({"spend": 0.1}, UNLIMITED, UNLIMITED, UNLIMITED),
        ({"share": "0.0027397260273972603"}, 0, 0, 0),
        ({"share": 1e-20}, UNIT, UNIT, 0),
        ({"share_left": 1 / 365}, UNIT, 0, 0),
    ],
    ids=str,
)
def test_a_rule_says_how_much_of_a_person_may_be_used(rule, budget, left, allowed):
    assert Rule.given(**rule).allowed(budget, left) == allowed


@pytest.mark.parametrize(
    "rule",
    [{}, {"spend": 1, "share": 0.5}, {"spend": 0}, {"spend": math.inf}, {"spend": 1e-10}, {"share": 1.5}, {"share": 0},
     {"share_left": -1}, {"spend": "x"}, {"share": True}],
    ids=str,
)  # fmt: skip
def test_a_rule_that_says_nothing_or_too_much_is_refused(rule):
    with pytest.raises(InputError):
        Rule.given(**rule)


# ---------------------------------------------------------------------------------------------------------
# Ids and enrolment


def test_ids_are_exact_text_in_one_normal_form(ledger):
    ledger.enroll({"007": 0.5, "7": 0.25, "Zoe\u0308": 2, "a b": 3, "a": 4})
    assert [ledger.balance(i).budget for i in ("007", "7", "Zo\u00eb", "a b", "a")] == [0.5, 0.25, 2, 3, 4]
    with pytest.raises(InputError, match="not enrolled"):
        ledger.balance("A")


BAD_IDS = ["", 'quo"te', "a\nb", "a\x00", "x" * 257, "\ud800", 7, None, b"a", True, "a ", "\u00a0a", "a\u200b"]


@pytest.mark.parametrize("person", BAD_IDS, ids=lambda x: repr(x)[:12])
def test_an_id_that_is_no_id_is_refused(tmp_path, person):
    ledger = Ledger.create(tmp_path / "b.db")
    with pytest.raises(InputError):
        ledger.enroll([person], budget=1)
    assert ledger.verify().people == 0


@given(st.lists(st.text(max_size=6), max_size=6))
def test_cleaning_ids_gives_the_normal_form_or_an_error(ids):
    if all(map(is_id, ids)):
        assert clean_ids(ids) == [unicodedata.normalize("NFC", i) for i in ids]
    else:
        with pytest.raises(InputError):
            clean_ids(ids)


def test_people_can_be_enrolled_from_mappings_lists_files_and_tiers(where, tmp_path):
    frame = pl.DataFrame({"id": ["001", "002", "003"], "budget": [0.5, math.inf, 0.0], "tier": ["b", "b", "a"]})
    frame.write_parquet(tmp_path / "people.parquet")
    (tmp_path / "people.csv").write_text("id,budget,tier\n004,0.5,a\n005,public,b\n", encoding="utf-8")
    ledger = Ledger.create(where)
    assert ledger.enroll(tmp_path / "people.parquet", person="id", budget="budget").added == 3
    assert ledger.enroll(tmp_path / "people.csv", person="id", budget="budget").added == 2
    assert ledger.enroll(["006", "007"], budget="0.3").added == 2
    assert ledger.enroll(["008", "009"], budget=[1, 2]).added == 2
    assert ledger.enroll({"010": "strict"}, tiers={"strict": 0.1}).added == 1
    found = [(b.person, b.budget) for b in ledger.balances()]
    budgets = [0.5, math.inf, 0, 0.5, math.inf, 0.3, 0.3, 1, 2, 0.1]
    assert found == [(f"{i:03}", budget) for i, budget in enumerate(budgets, 1)]
    changed = ledger.enroll(tmp_path / "people.csv", person="id", budget="tier", tiers={"a": 0.5, "b": 3})
    assert (changed.unchanged, changed.lowered, changed.frozen) == (1, 1, 0)
    assert ledger.balance("004").tier == "a"
    ledger.verify()


@pytest.mark.parametrize(
    ("source", "options"),
    [
        (["a", "a"], {"budget": 1}),
        (["Zoe\u0308", "Zo\u00eb"], {"budget": 1}),
        (["a"], {}),
        (["a"], {"budget": [1, 2]}),
        ({"a": 1}, {"budget": 1}),
        ({"a": -1}, {}),
        ({"a": "x"}, {"tiers": {"y": 1}}),
        ("missing.csv", {"person": "id", "budget": "b"}),
        ("missing.csv", {}),
        (5, {"budget": 1}),
    ],
    ids=str,
)
def test_an_enrolment_that_is_not_clear_is_refused_whole(tmp_path, source, options):
    ledger = Ledger.create(tmp_path / "b.db")
    with pytest.raises(InputError):
        ledger.enroll(source, **options)
    assert ledger.verify().events == 1


def test_a_budget_can_be_raised_and_lowered_and_below_what_is_spent_it_freezes(ledger):
    mean(ledger, spend=0.5)
    assert ledger.balance("p000").left == 0.5
    done = ledger.enroll({"p000": 2, "p001": 0.8, "p002": 0.2, "p003": 1})
    assert (done.raised, done.lowered, done.frozen, done.unchanged, done.added) == (1, 2, 1, 1, 0)
    assert [ledger.balance(f"p00{i}").left for i in range(4)] == [1.5, pytest.approx(0.3), 0, 0.5]
    frozen = ledger.balance("p002")
    assert frozen.frozen
    assert (frozen.spent, frozen.budget) == (0.5, 0.2)
    june = mean(ledger, "june", spend=0.1)
    assert june.ledger["frozen"] == 1
    assert "1 person lowered their budget" in june.report()
    assert ledger.balance("p002").spent == 0.5
    assert ledger.enroll({"p002": 0.9}).raised == 1
    assert not ledger.balance("p002").frozen
    ledger.verify()


def test_enrolling_one_by_one_does_not_make_a_cohort_each(where):
    ledger = Ledger.create(where)
    for person in PEOPLE[:10]:
        ledger.enroll({person: 1})
    assert [(b.people, b.budget) for b in ledger.cohorts()] == [(10, 1)]
    ledger.verify()


# ---------------------------------------------------------------------------------------------------------
# What a release charges


def test_everybody_is_charged_the_exact_spend_of_their_level_and_the_rest_stays_free(where):
    """Two tiers under a share of the budget: those above t are charged t, not their share."""
    budgets = {person: (0.4 if i < 150 else 40) for i, person in enumerate(PEOPLE)}
    ledger = made(where, budgets)
    may = mean(ledger, share=0.25)
    low, high = spend_of(may.plan)
    assert Fraction(1, 10) - Fraction(1, UNIT) < low <= Fraction(1, 10)
    assert float(high) == pytest.approx(may.plan.threshold, rel=1e-6)
    assert high < 10
    for person, spend in (("p000", low), ("p199", high)):
        units = round(ledger.balance(person).spent * UNIT)
        assert units - 1 < spend * UNIT <= units
    assert ledger.balance("p199").left == pytest.approx(40 - may.plan.threshold, abs=1e-6)
    assert [row.name for row in may.plan.table] == [None, None]


@pytest.mark.slow
def test_many_cohorts_are_charged_in_several_statements_and_every_one_exactly(where):
    """300 budgets: more cohorts than one update takes, and columns that are kept as texts."""
    people = [f"q{i:03}" for i in range(600)]
    with made(where, {person: f"1.{i % 300:03}" for i, person in enumerate(people)}) as ledger:
        plans = [mean(ledger, name, [0.5] * 600, people, share=0.5).plan for name in "ab"]
    with Ledger(where) as again:
        assert again.verify().cohorts == 300
        assert mean(again, "a", [0.5] * 600, people, share=0.5).plan.to_dict() == plans[0].to_dict()
        spent = {balance.person: round(balance.spent * UNIT) for balance in again.balances()}
    for i, person in enumerate(people):
        half = level((UNIT + 10**6 * (i % 300)) // 2)
        exact = [spend_of(plan)[plan.levels.epsilon.tolist().index(half)] for plan in plans]
        assert spent[person] == sum(math.ceil(UNIT * spend) for spend in exact)


def test_tiers_keep_their_names_in_the_report(where):
    ledger = made(
        where, {p: ("strict" if i < 100 else "open") for i, p in enumerate(PEOPLE)}, tiers={"strict": 0.5, "open": 5}
    )
    assert [row.name for row in mean(ledger, share=0.2).plan.table] == ["strict", "open"]


def test_public_people_have_no_limit_and_zero_means_never(where):
    budgets = {p: ("public" if i < 50 else 0 if i < 100 else 0.2) for i, p in enumerate(PEOPLE)}
    ledger = made(where, budgets)
    may = mean(ledger, spend=0.2)
    assert [(row.epsilon, row.count) for row in may.plan.table] == [(0, 50), (pytest.approx(0.2), 100), (math.inf, 50)]
    assert ledger.balance("p000").left == math.inf
    assert ledger.balance("p000").spent == pytest.approx(may.plan.threshold, rel=1e-6)
    assert ledger.balance("p050").spent == 0
    assert may.ledger["used_up"] == 0
    june = mean(ledger, "june", spend=0.2)
    assert june.ledger["used_up"] == 100
    assert june.plan.noiseless
    assert june.estimate == np.mean(VALUES[:50])
    assert ledger.balance("p000").left == math.inf
    ledger.enroll({"p000": 5})
    assert ledger.balance("p000").frozen  # the value went out without noise
    ledger.verify()


def test_a_release_over_some_people_charges_only_them_and_splits_their_cohort(ledger):
    mean(ledger, people=PEOPLE[:50])
    assert [(b.people, b.spent) for b in ledger.cohorts()] == [(150, 0), (50, 0.1)]
    assert (ledger.balance("p049").spent, ledger.balance("p050").spent) == (0.1, 0)
    mean(ledger, "june")
    assert [(b.people, b.spent) for b in ledger.cohorts()] == [(150, 0.1), (50, 0.2)]
    mean(ledger, "july", people=PEOPLE[50:])
    assert [(b.people, b.spent) for b in ledger.cohorts()] == [(200, 0.2)]  # alike, so listed as one
    assert ledger.verify().cohorts == 2


def test_parts_of_several_cohorts_that_become_one_are_charged_once(ledger):
    """After July two cohorts have the same balance; a release over a piece of both moves them together."""
    mean(ledger, "may", people=PEOPLE[:100])
    mean(ledger, "june", people=PEOPLE[100:])
    assert ledger.verify().cohorts == 2
    mean(ledger, "july", people=PEOPLE[50:150])
    assert [(b.people, b.spent) for b in ledger.cohorts()] == [(100, 0.1), (100, 0.2)]
    assert ledger.verify().cohorts == 3


def test_balances_are_listed_from_the_smallest_budget_on_and_people_alike_once(ledger):
    ledger.enroll({"x": 7, "y": 0.25, "z": math.inf})
    ledger.enroll({"v": 0.25})
    listed = [(b.budget, b.spent, b.people) for b in ledger.cohorts()]
    assert listed == [(0.25, 0, 2), (1, 0, 200), (7, 0, 1), (math.inf, 0, 1)]


def test_a_result_is_listed_with_the_minute_alone(ledger):
    """It is stored so; with 00 for the seconds it would seem to be before its charge."""
    mean(ledger)
    *_, charged, result = map(str, ledger.history())
    assert re.match(r" +\d+  \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d  ", charged)
    assert re.match(r" +\d+  \d{4}-\d\d-\d\dT\d\d:\d\d     ", result)


def test_people_may_allow_less_than_the_rule(ledger):
    mean(ledger, spend=0.2, people={p: (0.05 if i < 100 else 1) for i, p in enumerate(PEOPLE)})
    assert ledger.balance("p000").spent == 0.05
    assert 0.05 < ledger.balance("p199").spent <= 0.2
    ledger.verify()


def test_a_list_of_people_names_everybody_once_and_only_who_is_enrolled(ledger):
    for people, what in (
        (["p000", "nobody"], "not enrolled: 1 person, such as 'nobody'"),
        (["p000", "p000"], "twice"),
        ("everyone", "'enrolled', 'source' or a list"),
    ):
        with pytest.raises(InputError, match=what):
            mean(ledger, people=people, values=Untouchable())
    assert ledger.verify().charges == 0


def test_said_that_rows_are_public_those_in_the_source_take_part(ledger):
    mean(ledger, values=VALUES[:60], person=PEOPLE[:60], people="source")
    assert [(b.people, b.spent) for b in ledger.cohorts()] == [(140, 0), (60, 0.1)]
    with pytest.raises(InputError, match="more than one row; here everybody"):
        mean(ledger, "june", values=[0, 1], person=["p000", "p000"], people="source")


def test_by_default_nothing_public_tells_who_has_a_row(ledger):
    """Rows that are missing, of strangers, doubled or without an id change no message, count, plan or charge."""
    full = mean(ledger, "full")
    odd = mean(
        ledger,
        "odd",
        values=[*VALUES[:30], 0.5, 0.1, 0.2, 0.3, "x"],
        person=[*PEOPLE[:30], "stranger", "p000", None, "", "p001"],
    )
    assert odd.plan.n == full.plan.n == 200
    assert odd.plan.units.tolist() == full.plan.units.tolist()
    ours, theirs = (json.loads(r.to_json()) for r in (odd, full))
    for facts in (ours, theirs):
        for name in ("estimate", "unclamped", "interval", "ledger", "assumptions"):
            facts.pop(name, None)
        facts["provenance"].pop("released")  # the second may change in between
    assert ours == theirs
    assert {b.spent for b in ledger.cohorts()} == {0.2}


def test_the_tally_is_one_code_a_person_whatever_the_rows(tmp_path):
    """Against a tally made by hand: averages of codes, the midpoint without a row, strangers ignored."""
    plan = hetdp.plan({0.5: 2, 1.0: 3}, bounds=(0, 1))
    places = {"a": 0, "b": 1, "c": 1, "d": 0, "e": 1}
    cells = [("a", 0.1), ("b", 0.4), ("a", 0.3), ("x", 0.9), ("c", "bad"), ("d", math.inf), ("a", 0.2), (None, 1)]
    (tmp_path / "rows.csv").write_text("id,x\n" + "".join(f"{i or ''},{v}\n" for i, v in cells), encoding="utf-8")
    per_person = {"a": [0.1, 0.3, 0.2], "b": [0.4], "c": [math.nan], "d": [math.inf], "e": [math.nan]}
    code = {
        p: [int(hetdp.Interval(0, 1).codes(np.array([v]), np.empty(1))[0]) for v in vs] for p, vs in per_person.items()
    }
    mean_code = {p: (2 * sum(c) + len(c)) // (2 * len(c)) for p, c in code.items()}
    expected = [sum(mean_code[p] for p, at in places.items() if at == place) for place in (0, 1)]
    memory = source_of([v for _, v in cells], Mean((0, 1)), [i for i, _ in cells])
    file = source_of(tmp_path / "rows.csv", Mean((0, 1), value="x"), "id")
    for source in (memory, file):
        assert tallies_of(source, [(places, plan)])[0].table.total[:, 0].tolist() == expected


def test_a_release_reads_files_like_the_one_without_a_ledger(where, tmp_path):
    rows = pl.DataFrame({"id": PEOPLE, "x": VALUES})
    rows.write_csv(tmp_path / "may.csv")
    rows.write_parquet(tmp_path / "june.parquet")
    ledger = made(where, dict.fromkeys(PEOPLE, "public"))
    for name in ("may.csv", "june.parquet"):
        found = ledger.mean(
            tmp_path / name, value="x", missing="midpoint", person="id", bounds=(0, 1), spend=1, release_id=name
        )
        assert found.estimate == hetdp.mean(VALUES, epsilon=math.inf, bounds=(0, 1)).estimate
    for names in ({"value": "y", "person": "id"}, {"value": "x", "person": "who"}):
        options = {**names, "missing": "midpoint"}
        with pytest.raises(InputError, match="no column"):
            ledger.mean(tmp_path / "june.parquet", bounds=(0, 1), spend=1, release_id="july", **options)
        with pytest.raises(InputError, match="no column"):
            ledger.mean(tmp_path / "may.csv", bounds=(0, 1), spend=1, release_id="july", **options)
    assert ledger.verify().charges == 2


@pytest.mark.parametrize("library", [pl, pd], ids=lambda library: library.__name__)
def test_frames_are_read_and_enrolled_too(tmp_path, library):
    frame = library.DataFrame({"id": PEOPLE, "x": VALUES, "b": [math.inf] * 200})
    with Ledger.create(tmp_path / "b.db") as ledger:
        assert ledger.enroll(frame, person="id", budget="b").added == 200
        found = ledger.mean(frame, value="x", missing="midpoint", person="id", bounds=(0, 1), spend=1, release_id="may")
        assert found.estimate == 0.5
        with pytest.raises(InputError, match="no column"):
            ledger.mean(frame, value="y", missing="midpoint", person="id", bounds=(0, 1), spend=1, release_id="june")
        assert ledger.verify().charges == 1


@pytest.mark.parametrize("method", METHODS)
def test_every_method_is_charged_what_its_own_plan_spends(tmp_path, method):
    ledger = made(tmp_path / "b.db", {p: (1 + i % 3) for i, p in enumerate(PEOPLE)})
    done = mean(ledger, method=method, share=0.5)
    spend = dict(zip(done.plan.levels.epsilon.tolist(), spend_of(done.plan), strict=True))
    for i in range(3):
        units = round(ledger.balance(PEOPLE[i]).spent * UNIT)
        exact = spend[level((1 + i) * UNIT // 2)]
        assert units - 1 < exact * UNIT <= units
    ledger.verify()


def test_a_method_that_keeps_people_one_by_one_is_refused(ledger):
    with pytest.raises(InputError, match="cannot be used with a ledger"):
        mean(ledger, method="sampling", values=Untouchable())


def test_a_plan_that_abstains_charges_nothing_and_reads_nothing(where):
    ledger = made(where, {"a": 0.5, "b": 0.5})
    done = mean(ledger, values=Untouchable(2), person=["a", "b"])
    assert done.plan.abstains
    assert done.estimate == 0.5
    assert ledger.balance("a").spent == 0
    assert mean(ledger, values=Untouchable(2), person=["a", "b"]).estimate == 0.5
    ledger.verify()


def test_when_all_is_spent_people_have_weight_zero_and_the_report_says_how_many(ledger):
    mean(ledger, share=1)
    done = mean(ledger, "june", values=Untouchable())
    assert done.plan.abstains
    assert done.ledger["used_up"] == 200
    assert "200 people had nothing left" in done.report()


def test_ten_tenths_use_a_budget_up_exactly(ledger):
    for month in range(10):
        assert not mean(ledger, f"m{month}").plan.abstains
    assert ledger.balance("p000").left == 0
    assert mean(ledger, "m10").plan.abstains


def test_very_many_budgets_are_rounded_down_by_the_plan_and_charged_by_it(tmp_path, monkeypatch):
    """With the limit on levels lowered, levels are rounded down; nobody is charged above their own allowance."""
    monkeypatch.setattr("hetdp.core.levels.LIMIT", 50)
    ledger = made(tmp_path / "b.db", {p: 1 + i / 1000 for i, p in enumerate(PEOPLE)})
    done = mean(ledger, share=0.5)
    assert done.plan.levels.rounded
    assert all(b.spent <= b.budget / 2 for b in ledger.balances())
    ledger.verify()


# ---------------------------------------------------------------------------------------------------------
# The order of a release, and its id


def test_the_same_id_and_request_give_the_stored_result_without_a_charge(ledger):
    first = mean(ledger)
    again = mean(ledger, values=Untouchable())
    assert (again.unclamped, again.notes) == (first.unclamped, first.notes)
    assert again.ledger == {**first.ledger, "stored": True}
    told = json.loads(again.to_json())
    assert told["ledger"].pop("stored") is True
    assert told == json.loads(first.to_json())
    assert ledger.balance("p000").spent == 0.1
    with Ledger(ledger.name) as reopened:
        assert mean(reopened, values=Untouchable()).unclamped == first.unclamped


OTHER = [
    {"spend": 0.2},
    {"bounds": (0, 2)},
    {"method": "minimax"},
    {"people": PEOPLE[:100]},
    {"variance": 0.1},
    {"share": 0.1},
]


@pytest.mark.parametrize("other", OTHER, ids=str)
def test_the_same_id_with_another_request_is_an_error(tmp_path, other):
    ledger = made(tmp_path / "b.db")
    mean(ledger)
    with pytest.raises(InputError, match="stands for another request"):
        mean(ledger, values=Untouchable(), **other)
    assert ledger.verify().charges == 1


@pytest.mark.parametrize("name", ["", "a\nb", "x" * 300, 5, None], ids=lambda x: repr(x)[:8])
def test_a_release_needs_a_name(tmp_path, name):
    with pytest.raises(InputError):
        mean(made(tmp_path / "b.db"), name, values=Untouchable())


class Watched(list):
    """Values that look, with a connection of their own, whether the charge is committed when they are read."""

    def __init__(self, values, where):
        super().__init__(values)
        self.where, self.seen = where, []

    def __iter__(self):
        if "://" in self.where:
            with psycopg.connect(self.where) as other:
                found = other.execute("SELECT count(*) FROM hetdp_event WHERE kind = 'charge'").fetchone()
        else:
            other = sqlite3.connect(self.where)
            found = other.execute("SELECT count(*) FROM hetdp_event WHERE kind = 'charge'").fetchone()
            other.close()
        self.seen.append(found[0])
        return super().__iter__()


class WatchedArray(Watched):
    def __array__(self, *_, **__):
        return np.array(list(self))


def test_a_database_without_a_query_or_a_column_is_refused_before_anybody_is_charged(tmp_path):
    """A release could never be finished otherwise, and budgets would be lost."""
    with closing(sqlite3.connect(tmp_path / "people.db")) as made:
        made.executescript("create table people (id text, x real); insert into people values ('p1', 0.5)")
    with Ledger.create(tmp_path / "budgets.db") as ledger:
        ledger.enroll({"p1": 1})
        with pytest.raises(InputError, match="a database needs a query"):
            ledger.mean(
                f"sqlite:///{tmp_path}/people.db",
                value="x",
                missing="midpoint",
                person="id",
                bounds=(0, 1),
                spend=0.5,
                release_id="may",
            )
        assert ledger.balance("p1").left == 1


def test_values_are_read_only_after_the_charge_is_committed(ledger, where):
    values = WatchedArray(VALUES, where)
    mean(ledger, values=values)
    assert values.seen == [1]


def test_control_the_watch_notices_who_reads_before_the_charge(ledger, where, monkeypatch):
    values = WatchedArray(VALUES, where)
    real = store.Store.change

    def early(self, make):
        np.asarray(values)
        return real(self, make)

    monkeypatch.setattr(store.Store, "change", early)
    mean(ledger, values=values)
    assert values.seen[0] == 0


class Breaking(Untouchable):
    """Values whose reading ends like a crash."""

    def __init__(self, error):
        super().__init__()
        self.error = error

    def __array__(self, *_, **__):
        raise self.error


@pytest.mark.parametrize("error", [KeyboardInterrupt(), InputError("no such column")], ids=["interrupt", "unreadable"])
def test_after_the_charge_a_failure_says_that_the_id_resumes_and_it_does(ledger, error):
    with pytest.raises(ChargedError, match=r"'may' is charged and has no result yet .*same id"):
        mean(ledger, values=Breaking(error))
    assert ledger.verify().charges - ledger.verify().results == 1
    assert ledger.balance("p000").spent == 0.1
    done = mean(ledger)
    assert ledger.balance("p000").spent == 0.1
    assert ledger.verify().results == 1
    assert mean(ledger, values=Untouchable()).unclamped == done.unclamped


def test_a_resumed_release_carries_out_the_plan_that_was_charged(ledger):
    """Between the charge and its result balances, budgets and cohorts change; the charged plan stays."""
    with pytest.raises(ChargedError):
        mean(ledger, values=Breaking(KeyboardInterrupt()), people=PEOPLE[:100])
    mean(ledger, "june", people=PEOPLE[50:150], spend=0.7)
    ledger.enroll({"p000": 9, "p060": 0.01, "newcomer": 1})
    done = mean(ledger, people=PEOPLE[:100])
    assert [(row.count, row.spent) for row in done.plan.table] == [(100, pytest.approx(0.1))]
    assert ledger.balance("p000").spent == 0.1
    ledger.verify()


def test_of_two_who_resume_one_id_the_first_writer_wins_and_both_give_its_result(ledger, where):
    other = Ledger(where)
    found = []

    class Nested(Untouchable):
        def __array__(self, *_, **__):
            if not found:
                found.append(mean(other))
            return np.array(VALUES)

    mine = mean(ledger, values=Nested())
    assert mine.unclamped == found[0].unclamped
    assert ledger.verify().results == 1
    assert ledger.balance("p000").spent == 0.1


def test_the_database_allows_one_charge_and_one_result_for_an_id(ledger, where):
    mean(ledger)
    for kind in ("charge", "result"):
        with pytest.raises((sqlite3.IntegrityError, psycopg.errors.UniqueViolation)):
            execute(where, f"INSERT INTO hetdp_event VALUES (99, '{kind}', 'may', 'now', '{{}}', 'x')")  # noqa: S608


STATEMENTS = [
    "UPDATE hetdp_event SET body = '{}' WHERE seq = 2",
    "DELETE FROM hetdp_event WHERE seq = 3",
    "UPDATE hetdp_member SET cohort = 1 WHERE person = 'p000'",
    "DELETE FROM hetdp_member",
    "UPDATE hetdp_cohort SET spent = 0",
    "UPDATE hetdp_cohort SET spent = budget + 1",
    "UPDATE hetdp_cohort SET budget = 5000000000",
    "DELETE FROM hetdp_cohort",
    "UPDATE hetdp_ledger SET seq = 1",
    "DELETE FROM hetdp_ledger",
    "INSERT INTO hetdp_ledger VALUES (2, 1, 'x', 0, 'x')",
    "INSERT INTO hetdp_member (person, event, cohort) VALUES ('p000', 3, 1)",
]


@pytest.mark.parametrize("statement", STATEMENTS, ids=[s[:44] for s in STATEMENTS])
def test_the_database_itself_keeps_what_happened(ledger, where, statement):
    mean(ledger)
    with pytest.raises((sqlite3.DatabaseError, psycopg.DatabaseError)):
        execute(where, statement)
    ledger.verify()


# ---------------------------------------------------------------------------------------------------------
# Random adaptive sequences: nobody's exact total passes their budget


class Tracker:
    """Adds up, in fractions and from the plans alone, what everybody really spent."""

    def __init__(self, ledger):
        self.ledger, self.total, self.asked = ledger, Counter(), {}

    def enroll(self, budgets):
        self.ledger.enroll(budgets)
        self.asked.update({p: Fraction(b) if b != math.inf else math.inf for p, b in budgets.items()})

    def mean(self, release_id, people=None, **rule):
        before = {b.person: b for b in self.ledger.balances()}
        chosen = sorted(self.asked) if people is None else people
        values = [random.random() for _ in chosen]
        done = self.ledger.mean(
            values,
            person=chosen,
            bounds=(0, 1),
            release_id=release_id,
            people="enrolled" if people is None else people,
            missing="midpoint",
            **rule,
        )
        spend = dict(zip(done.plan.levels.epsilon.tolist(), spend_of(done.plan), strict=True))
        kind, share = next(iter(rule.items()))
        for person in chosen:
            left = round(before[person].left * UNIT) if before[person].left < math.inf else UNLIMITED
            budget = round(before[person].budget * UNIT) if before[person].budget < math.inf else UNLIMITED
            entered = level(Rule.given(**{kind: share}).allowed(budget, left))
            self.total[person] += spend[entered]
            if self.asked[person] < math.inf and spend[entered]:
                assert self.total[person] <= self.asked[person], (person, float(self.total[person]))
        return done


steps = st.lists(
    st.one_of(
        st.tuples(st.just("spend"), st.sampled_from([0.1, 0.3, 1.0, 1 / 3, 7.7])),
        st.tuples(st.just("share"), st.sampled_from([0.25, 1 / 3, 1.0])),
        st.tuples(st.just("share_left"), st.sampled_from([0.5, 0.9, 1.0])),
        st.tuples(st.just("enroll"), st.sampled_from([0.0, 0.2, 1.0, 3.0, 11.0, math.inf])),
    ),
    min_size=1,
    max_size=6,
)


def sequence(folder, budgets, steps, seed):
    """Carry out one random sequence; later steps depend on earlier results. It ends when everything is drained."""
    random.seed(seed)
    ledger = Ledger.create(folder / f"{random.getrandbits(64)}.db")
    tracker = Tracker(ledger)
    tracker.enroll({f"p{i}": b for i, b in enumerate(budgets)})
    for i, (kind, amount) in enumerate([*steps, ("share", 1 / 3), ("share_left", 1.0), ("spend", 1.0)]):
        some = [p for p in sorted(tracker.asked) if random.random() < 0.8] or None
        if kind == "enroll":
            tracker.enroll(dict.fromkeys(some or [], amount))
        else:
            done = tracker.mean(f"r{i}", some if i % 2 else None, **{kind: amount})
            random.seed(f"{seed}{done.estimate}")
    ledger.verify()
    for person, total in tracker.total.items():
        spent = ledger.balance(person).spent
        assert total == math.inf or round(spent * UNIT) >= total * UNIT
    ledger.close()


budget_lists = st.lists(st.sampled_from([0.1, 0.5, 1.0, 2.5, 6.0, math.inf]), min_size=12, max_size=24)


@settings(max_examples=examples(25), deadline=None)
@given(budget_lists, steps, st.integers(0, 2**30))
def test_no_adaptive_sequence_of_releases_makes_anybody_pass_their_budget(tmp_path_factory, budgets, steps, seed):
    sequence(tmp_path_factory.mktemp("ledgers"), budgets, steps, seed)


def nine_tenths(plan, real=charges):
    return real(plan) * 9 // 10


def rounded_down(plan, real=charges):
    units = real(plan)
    return np.where(units < UNLIMITED, np.maximum(units - 1, 0), units)


def nothing(plan, real=charges):
    return 0 * real(plan)


@pytest.mark.parametrize("bug", [nine_tenths, rounded_down, nothing], ids=lambda f: f.__name__)
def test_control_a_ledger_that_charges_too_little_is_caught(tmp_path, monkeypatch, bug):
    monkeypatch.setattr(books, "charges", bug)
    with pytest.raises(AssertionError):
        sequence(tmp_path, [1.0] * 15, [("spend", 1 / 3)] * 4, 1)


def test_control_a_level_above_what_is_left_is_refused_by_the_check_of_charges(tmp_path, monkeypatch):
    monkeypatch.setattr(books, "levels", lambda units: 2 * levels(units))
    with pytest.raises(hetdp.PrivacyError):
        sequence(tmp_path, [1.0] * 15, [("spend", 1 / 3)] * 4, 1)


def test_control_balances_that_lose_digits_are_caught(tmp_path, monkeypatch):
    """A ledger that keeps balances in short floats loses the last digits of what was spent."""
    real = books.State.charged

    def lossy(self, cohorts, units):
        after = real(self, cohorts, units)
        after.table[:, 3] -= after.table[:, 3] % 9_999_991  # no amount of this sequence is a multiple of it
        return after

    monkeypatch.setattr(books.State, "charged", lossy)
    with pytest.raises(AssertionError):
        sequence(tmp_path, [1.0] * 15, [("share", 0.25)], 1)


# ---------------------------------------------------------------------------------------------------------
# Verification, and everything a ledger refuses


TAMPERED = {
    "an amount": "UPDATE hetdp_event SET body = replace(body, '100000000', '10000000') WHERE kind = 'charge'",
    "the time of an event": "UPDATE hetdp_event SET at = 'never' WHERE seq = 2",
    "a result": "UPDATE hetdp_event SET body = replace(body, '0x1', '0x2') WHERE kind = 'result'",
    "the last event removed": "DELETE FROM hetdp_event WHERE seq = (SELECT max(seq) FROM hetdp_event)",
    "an event in the middle removed": "DELETE FROM hetdp_event WHERE seq = 3",
    "the name of a release": "UPDATE hetdp_event SET release = 'x' WHERE kind = 'charge' AND release = 'june'",
    "what was spent": "UPDATE hetdp_cohort SET spent = spent - 1 WHERE spent > 0",
    "a budget": "UPDATE hetdp_cohort SET asked = asked + 1, budget = budget + 1",
    "a cohort removed": "DELETE FROM hetdp_cohort WHERE cohort = 1",
    "how many people": "UPDATE hetdp_cohort SET people = people + 1 WHERE cohort = 1",
    "the head": "UPDATE hetdp_ledger SET seq = seq - 1",
}


@pytest.mark.parametrize("what", TAMPERED)
def test_a_ledger_that_was_changed_behind_its_back_is_refused_before_values_are_read(ledger, where, what):
    mean(ledger)
    mean(ledger, "june", people=PEOPLE[:20])
    drop_guards(where)
    (changed,) = execute(where, TAMPERED[what])
    assert changed > 0
    restore_guards(where)
    with pytest.raises(LedgerError, match=r"chain|add up|old copy|its last|another event"):
        Ledger(where)
    if what not in {
        "an amount",
        "the time of an event",
        "a result",
        "an event in the middle removed",
        "the name of a release",
    }:
        with pytest.raises(LedgerError) as refused:  # one that was open before notices what concerns balances
            mean(ledger, "july", values=Untouchable())
        assert "is charged" not in str(refused.value), "it was noticed after the charge"


def test_a_trigger_of_somebody_else_is_refused_before_values_are_read(file):
    """It would change the balances with our own writes, after they were compared."""
    with made(file) as ledger:
        mean(ledger)
        execute(file, "CREATE TABLE notes (x)", "CREATE TRIGGER fine AFTER INSERT ON notes BEGIN SELECT 1; END")
        mean(ledger, "a trigger on another table is none of our business")
        execute(file, "CREATE TRIGGER more AFTER INSERT ON hetdp_event BEGIN UPDATE hetdp_cohort SET people = 9; END")
        for refused in (lambda: mean(ledger, "june", values=Untouchable()), ledger.verify, lambda: Ledger(file)):
            with pytest.raises(LedgerError, match="not its own, 'more'"):
                refused()


def test_verify_compares_balances_even_if_nobody_else_has_written(file):
    with made(file) as ledger:
        mean(ledger)
        more = "UPDATE hetdp_cohort SET people = people + 1"
        ledger._store.transact(lambda connection: store.run(connection, more), writes=True)
        with pytest.raises(LedgerError, match="add up"):
            ledger.verify()


def test_a_ledger_whose_connection_was_ended_meanwhile_goes_on_with_another(durable_server, caplog):
    name = f"lost_{uuid.uuid4().hex[:12]}"
    durable_server.run(f"CREATE DATABASE {name}")
    try:
        with made(durable_server.url(name)) as ledger:
            end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = "
            durable_server.run(f"{end}'{name}'")
            assert mean(ledger).plan.n == 200
            assert not caplog.records
    finally:
        durable_server.run(f"DROP DATABASE {name} WITH (FORCE)")


def test_a_connection_lost_while_people_are_written_is_said_in_words(durable_server, caplog, monkeypatch):
    """An error of SQLAlchemy quotes what was to be written; neither ours nor anything in its chain does."""
    name, who = f"lost_{uuid.uuid4().hex[:12]}", uuid.uuid4().hex
    durable_server.run(f"CREATE DATABASE {name}")
    run, end = store.run, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = "

    def lost(connection, statement, *cells):
        if "INSERT INTO hetdp_member" in statement:
            durable_server.run(f"{end}'{name}'")
        return run(connection, statement, *cells)

    try:
        with made(durable_server.url(name)) as ledger:
            monkeypatch.setattr(store, "run", lost)
            with pytest.raises(LedgerError, match=r"ended the connection|cannot be reached") as error:
                ledger.enroll({who: 1})
            assert who not in "".join(traceback.format_exception(error.value))
            assert error.value.__context__ is None
            monkeypatch.undo()
            assert ledger.enroll({who: 1}).added == 1
            assert not caplog.records
    finally:
        durable_server.run(f"DROP DATABASE {name} WITH (FORCE)")


def test_a_trigger_that_keeps_balances_from_being_written_is_noticed_before_the_commit(durable_server):
    """On a server others may have triggers for their own reasons; one that swallows a charge would end the ledger."""
    name = f"s{uuid.uuid4().hex[:12]}"
    durable_server.run(f"CREATE SCHEMA {name}")
    where = f"{durable_server.url()}&options=-csearch_path%3D{name}"
    with made(where) as ledger:
        execute(
            where,
            "CREATE FUNCTION swallow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$",
            "CREATE TRIGGER swallows BEFORE UPDATE ON hetdp_cohort FOR EACH ROW EXECUTE FUNCTION swallow()",
        )
        with pytest.raises(LedgerError, match="could not write all balances"):
            mean(ledger, values=Untouchable())
        execute(where, "DROP TRIGGER swallows ON hetdp_cohort")
        assert mean(ledger).plan.n == 200
        ledger.verify()
    durable_server.run(f"DROP SCHEMA {name} CASCADE")


def test_a_second_interrupt_does_not_leave_the_lock_behind(file, monkeypatch):
    """Whoever presses Ctrl-C twice interrupts the rollback of the first."""

    def interrupted(*_):
        raise KeyboardInterrupt

    with made(file) as ledger:
        monkeypatch.setattr(ledger._store.engine.dialect, "do_rollback", interrupted)
        with pytest.raises(KeyboardInterrupt) as kept:  # its traceback keeps what it can
            ledger._store.transact(interrupted, writes=True)
        monkeypatch.undo()
        monkeypatch.setattr(store, "PATIENCE", 1)
        with Ledger(file) as another:
            assert another.enroll({"somebody": 1}).added == 1
        assert kept.value is not None
        assert mean(ledger).plan.n == 201


def test_whoever_changes_a_ledger_has_its_lock_before_reading_and_whoever_reads_does_not(file):
    def free(_):
        with closing(sqlite3.connect(file, timeout=0, isolation_level=None)) as other:
            try:
                other.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError:
                return False
            return True

    with made(file) as ledger:
        assert not ledger._store.transact(free, writes=True)
        assert ledger._store.transact(free)


def test_an_sqlite_that_allows_999_numbers_in_a_statement_is_enough(file):
    with made(file, {person: 1 + i / 1000 for i, person in enumerate(PEOPLE)}) as ledger:
        with ledger._store.engine.connect() as connection:
            connection.connection.driver_connection.setlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER, 999)
        ledger.enroll({f"more {i}": 2 + i / 1000 for i in range(300)})
        assert mean(ledger).plan.n == 500
        ledger.verify()


def test_a_ledger_may_be_closed_while_others_use_it(file):
    """It opens again for whoever needs it; nobody finds a connection that another thread has just taken."""
    with made(file) as ledger, ThreadPoolExecutor(4) as pool:
        ways = [ledger.close, ledger.close, lambda: ledger.balance("p000"), lambda: ledger.balance("p001")]
        for done in [pool.submit(ways[i % 4]) for i in range(400)]:
            done.result()


def test_an_open_ledger_notices_that_its_last_event_was_changed(ledger, where):
    mean(ledger)
    drop_guards(where)
    execute(where, "UPDATE hetdp_event SET hash = substr(hash, 2) || substr(hash, 1, 1) WHERE kind = 'result'")
    with pytest.raises(LedgerError, match=r"another event|broken chain|its last"):
        mean(ledger, "june", values=Untouchable())


@pytest.mark.parametrize("kind", ["charge", "result"])
def test_a_release_that_was_changed_behind_an_open_ledger_is_not_handed_out(ledger, where, kind):
    mean(ledger)
    mean(ledger, "june")
    drop_guards(where)
    forge = "UPDATE hetdp_event SET body = replace(body, '0x1', '0x2') WHERE release = 'may' AND kind = "
    assert execute(where, f"{forge}'{kind}'") == [1]
    with pytest.raises(LedgerError, match="broken chain"):
        mean(ledger)


MOVED = {
    "a person moved back": "UPDATE hetdp_member SET cohort = 1 WHERE cohort <> 1",
    "a person renamed": "UPDATE hetdp_member SET person = 'zzz' WHERE person = 'p100'",
    "a person removed": "DELETE FROM hetdp_member WHERE person = 'p100'",
    "a person added": "INSERT INTO hetdp_member (person, event, cohort) VALUES ('zzz', 2, 1)",
    "a move added": "INSERT INTO hetdp_member (person, event, cohort) VALUES ('p100', 99, 2)",
}


@pytest.mark.parametrize("what", MOVED)
def test_verify_knows_who_was_where(ledger, where, what):
    mean(ledger, people=PEOPLE[:20])
    ledger.verify()
    drop_guards(where)
    execute(where, MOVED[what])
    with pytest.raises(LedgerError, match="triggers"):
        ledger.verify()
    restore_guards(where)
    with pytest.raises(LedgerError, match="people"):
        ledger.verify()


def test_a_chain_that_was_made_anew_is_noticed_by_a_head_kept_elsewhere(ledger, where, tmp_path):
    """Somebody rewrites the whole file consistently; whoever wrote down a head knows."""
    mean(ledger)
    head = ledger.head
    ledger.close()
    if "://" in where:
        execute(where, *[f"DROP TABLE {table}" for table in tables.TABLES], *DROP_FUNCTIONS)
    else:
        for suffix in ("", ".head"):
            Path(where + suffix).unlink()
    with made(where) as other:
        mean(other)
        other.verify()
        with pytest.raises(LedgerError, match="another event"):
            other.verify(expect_head=head)
    with pytest.raises(LedgerError, match="another event"):
        Ledger(where, expect_head=head[:40])


@pytest.mark.parametrize("text", ["", "12", "x:" + "a" * 64, "3:abc", 5], ids=repr)
def test_a_head_that_is_none_is_refused(ledger, text):
    with pytest.raises(InputError, match="NUMBER:HASH"):
        ledger.verify(expect_head=text)


def copied(where, target):
    for suffix in ("", "-wal", "-shm"):
        if Path(where + suffix).exists():
            shutil.copy(where + suffix, str(target) + suffix)


@pytest.fixture
def file(tmp_path):
    return str(tmp_path / "budgets.db")


def test_an_old_copy_that_was_put_back_is_refused(file, tmp_path):
    ledger = made(file)
    mean(ledger)
    ledger.close()
    copied(file, tmp_path / "old.db")
    with Ledger(file) as again:
        mean(again, "june")
    shutil.copy(tmp_path / "old.db", file)
    with pytest.raises(LedgerError, match="old copy: it ends at event 4, and event 6 has been seen"):
        Ledger(file)
    shutil.copy(tmp_path / "old.db", tmp_path / "other.db")
    with pytest.raises(LedgerError, match=r"other\.db\.head is missing"):
        Ledger(tmp_path / "other.db")


def test_an_old_copy_that_went_another_way_is_refused(file, tmp_path):
    """The copy is as long as the real one, but it is not the one that charged the last release."""
    ledger = made(file)
    ledger.close()
    copied(file, tmp_path / "old.db")
    shutil.copy(file + ".head", str(tmp_path / "old.db.head"))
    for name in (file, tmp_path / "old.db"):
        with Ledger(name) as some:
            mean(some, "june")
    shutil.copy(tmp_path / "old.db", file)
    with pytest.raises(LedgerError, match="another event"):
        Ledger(file)


def test_an_old_copy_in_postgresql_is_refused_by_a_head_that_was_written_down(durable_server, tmp_path):
    with durable_server.database() as name:
        ledger = made(durable_server.url(name), None)
        mean(ledger)
        ledger.close()
        durable_server.run(f"CREATE DATABASE {name}_old TEMPLATE {name}")
        try:
            with Ledger(durable_server.url(name)) as again:
                mean(again, "june")
                head = again.head
            with Ledger(durable_server.url(name), expect_head=head, head_file=tmp_path / "head") as again:
                mean(again, "july")
            with pytest.raises(LedgerError, match="old copy"):
                Ledger(durable_server.url(f"{name}_old"), expect_head=head)
            with pytest.raises(LedgerError, match="old copy"):
                Ledger(durable_server.url(f"{name}_old"), head_file=tmp_path / "head")
        finally:
            durable_server.run(f"DROP DATABASE {name}_old WITH (FORCE)")


def test_the_head_file_may_lag_after_a_crash_and_catches_up(file):
    ledger = made(file)
    before = Path(file + ".head").read_text()
    mean(ledger)
    newest = Path(file + ".head").read_text()
    Path(file + ".head").write_text(before)  # as if killed between the commit and this file
    with Ledger(file) as again:
        mean(again, "june")
    assert Path(file + ".head").read_text() > newest


@pytest.fixture
def synced(file, monkeypatch):
    """What the head file said each time it was synced, and None when something else was."""
    place, found = Path(file + ".head"), []

    def watched(handle, sync=os.fsync):
        found.append(place.read_text() if Path(f"/proc/self/fd/{handle}").resolve() == place.resolve() else None)
        sync(handle)

    monkeypatch.setattr(os, "fsync", watched)
    return found


def line(ledger):
    seq, digest = ledger.head.split(":")
    return f"hetdp-ledger-head {int(seq):020d} {digest}\n"


@pytest.mark.parametrize("killed", [False, True], ids=["at once", "again after a crash before the head was written"])
def test_a_result_is_handed_out_only_when_the_head_outside_is_on_disk(file, synced, killed):
    ledger, place = made(file), Path(file + ".head")
    if killed:
        before = place.read_text()
        mean(ledger)
        place.write_text(before)
    synced.clear()
    mean(ledger)
    assert synced == [line(ledger)]  # one sync besides those of SQLite, and none of the folder


def test_a_result_that_another_process_stored_is_handed_out_only_when_the_head_covers_it(file, synced):
    """Both carry out the same release; the other one stores it and is killed before it writes the head."""
    ledger, other, place = made(file), Ledger(file), Path(file + ".head")
    change = ledger._store.change

    def charged(make):
        found = change(make)
        before = place.read_text()
        mean(other)
        place.write_text(before)
        return found

    ledger._store.change = charged
    mine = mean(ledger)
    assert synced[-1] == line(other)
    assert mine.unclamped == mean(other).unclamped


@pytest.mark.parametrize("how", ["opened", "history"])
def test_results_are_shown_only_when_the_head_outside_covers_them(file, synced, how):
    """A power cut has taken the newest head; whoever shows results brings it back first."""
    ledger, other, place = made(file), Ledger(file), Path(file + ".head")
    before = place.read_text()
    mean(ledger)
    place.write_text(before)
    synced.clear()
    if how == "opened":
        Ledger(file).close()
    else:
        assert other.history()[-1].kind == "result"
    assert synced[0] == place.read_text() == line(ledger)


def test_a_lost_or_damaged_head_file_is_refused_until_a_known_head_is_given(file):
    with made(file) as ledger:
        mean(ledger)
        head = ledger.head
    Path(file + ".head").write_text("nonsense")
    with pytest.raises(LedgerError, match="damaged"):
        Ledger(file)
    Path(file + ".head").unlink()
    with pytest.raises(LedgerError, match="missing"):
        Ledger(file)
    Ledger(file, expect_head=head).close()
    Ledger(file).close()


def test_a_new_ledger_does_not_take_the_place_of_a_lost_one(file, tmp_path):
    (tmp_path / "elsewhere").write_text("a head")
    with pytest.raises(LedgerError, match="a ledger was here"):
        Ledger.create(file, head_file=tmp_path / "elsewhere")
    made(file).close()
    with pytest.raises(InputError, match="exists already"):
        Ledger.create(file)
    Path(file).unlink()
    with pytest.raises(LedgerError, match="a ledger was here"):
        Ledger.create(file)


def test_a_copy_of_the_file_and_its_log_taken_in_the_middle_of_writing_opens_and_verifies(file, tmp_path):
    ledger = made(file)
    for month in range(3):
        mean(ledger, f"m{month}")
        copy = tmp_path / f"copy{month}.db"
        shutil.copy(file + ".head", f"{copy}.head")
        copied(file, copy)
        with Ledger(copy) as found:
            assert found.verify().results == month + 1


def corrupt_header(path):
    Path(path).write_bytes(b"x" * 100 + Path(path).read_bytes()[100:])


def corrupt_middle(path):
    content = bytearray(Path(path).read_bytes())
    for place in range(4096, len(content), 4096):
        content[place : place + 64] = b"\xff" * 64
    Path(path).write_bytes(bytes(content))


def truncated(path):
    Path(path).write_bytes(Path(path).read_bytes()[:4500])


def emptied(path):
    Path(path).write_bytes(b"")


def removed(path):
    Path(path).unlink()


def folder(path):
    Path(path).unlink()
    Path(path).mkdir()


def other_database(path):
    Path(path).unlink()
    execute(path, "CREATE TABLE a (b)")


def newer(path):
    execute(path, "UPDATE hetdp_ledger SET version = 9")


def older(path):
    execute(path, "DROP TRIGGER hetdp_ledger_only_grows", "UPDATE hetdp_ledger SET version = 0")


BROKEN = {
    corrupt_header: "damaged",
    corrupt_middle: "damaged",
    truncated: "damaged",
    emptied: "damaged",
    removed: "does not exist",
    folder: "not a file",
    other_database: "no ledger",
    newer: "newer schema",
    older: "hetdp ledger upgrade",
}


@pytest.mark.parametrize("harm", BROKEN, ids=lambda f: f.__name__)
def test_a_ledger_that_is_not_sound_is_refused_with_a_sentence(file, harm):
    with made(file) as ledger:
        mean(ledger)
    harm(file)
    with pytest.raises(LedgerError, match=BROKEN[harm]) as caught:
        mean(Ledger(file), "june", values=Untouchable())
    assert "\n" not in str(caught.value)


def test_a_file_that_breaks_while_it_is_open_is_refused_before_values_are_read(file):
    ledger = made(file)
    ledger.close()
    corrupt_middle(file)
    with pytest.raises(LedgerError):
        mean(ledger, values=Untouchable())


READ_ONLY = """
import os, sys
from hetdp.ledger import Ledger, LedgerError
if os.geteuid() == 0:
    os.setgid(65534), os.setuid(65534)
try:
    Ledger(sys.argv[1])
except LedgerError as error:
    sys.exit(str(error))
"""


@pytest.mark.parametrize("what", ["file", "folder"])
def test_a_read_only_ledger_is_refused(tmp_path_factory, what):
    place = Path("/tmp") / f"hetdp-{os.getpid()}-{what}"  # noqa: S108  a folder that another user can enter
    place.mkdir()
    try:
        made(place / "b.db").close()
        for name in place.iterdir():
            name.chmod(0o444 if what == "file" else 0o666)
        place.chmod(0o777 if what == "file" else 0o555)
        done = subprocess.run(
            [sys.executable, "-c", READ_ONLY, place / "b.db"], capture_output=True, text=True, check=False
        )
        assert "read-only for this user" in done.stderr
    finally:
        place.chmod(0o777)
        shutil.rmtree(place)


def test_a_read_only_user_of_postgresql_is_refused(durable_server):
    with durable_server.database() as name:
        made(durable_server.url(name), {"a": 1}).close()
        durable_server.run(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
        ledger = Ledger(durable_server.url(name))
        with pytest.raises(LedgerError, match="read-only"):
            mean(ledger, values=Untouchable(1), person=["a"])


def test_a_server_that_does_not_sync_is_refused(libpq_url):
    with pytest.raises(LedgerError, match="fsync = off"):
        Ledger.create(libpq_url)


@pytest.mark.parametrize(
    "url", ["postgresql://hetdp:secret@/nowhere?host=/nonexistent", "mysql://a/b", "postgresql://a:b:c@:x/"], ids=str
)
def test_an_address_that_leads_nowhere_is_refused_without_its_password(url):
    with pytest.raises((LedgerError, InputError)) as caught:
        Ledger(url)
    assert "secret" not in str(caught.value)


FULL = """
import resource, signal, sys
from hetdp.ledger import Ledger, LedgerError
ledger = Ledger(sys.argv[1])
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
class Never:
    def __len__(self): return 200
    def __array__(self, *a, **k): sys.exit("the values were read")
try:
    for i in range(50):
        ledger.mean(Never(), person=[f"p{i:03}" for i in range(200)], bounds=(0, 1), spend=0.1, release_id=str(i),
                    missing="none")
except LedgerError as error:
    sys.exit(str(error))
"""


def test_a_full_disk_is_refused_before_values_are_read(file):
    """A process may write no file beyond 2000 bytes: the charge fails, and so the release does."""
    made(file).close()
    done = subprocess.run([sys.executable, "-c", FULL, file], capture_output=True, text=True, check=False)
    assert "disk is full" in done.stderr
    with Ledger(file) as ledger:
        assert ledger.verify().charges == 0


def test_a_database_without_room_is_refused_before_values_are_read(file):
    """The same by SQLite's own limit on pages, which is its error for a full disk."""
    ledger = made(file)
    with ledger._store.engine.connect() as connection:
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar()
        connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}")
    charged = []

    def fill():
        for i in range(50):
            mean(ledger, str(i), values=Untouchable(), people=PEOPLE[: i + 3], spend=0.0001)
            charged.append(i)

    with pytest.raises(LedgerError, match="disk is full") as full:
        fill()
    with Ledger(file) as again:
        assert again.verify().results == len(charged)
        assert again.verify().charges == len(charged) + isinstance(full.value, ChargedError)


def test_a_disk_that_fills_up_after_the_charge_keeps_the_result_back(file, monkeypatch):
    ledger = made(file)
    with monkeypatch.context() as patch:
        patch.setattr(charge, "_stored", lambda *_: (_ for _ in ()).throw(LedgerError("the disk is full")))
        with pytest.raises(ChargedError, match="the disk is full"):
            mean(ledger)
    assert ledger.verify().results == 0
    mean(ledger)
    assert ledger.balance("p000").spent == 0.1


@pytest.mark.parametrize(
    "kind", ["nfs", "nfs4", "cifs", "smb3", "9p", "ceph", "lustre", "fuse.sshfs", "fuse.s3fs", "glusterfs"]
)
def test_a_network_file_system_is_refused(kind, tmp_path, monkeypatch):
    mounts = tmp_path / "mounts"
    mounts.write_text(f"/dev/vda / ext4 rw 0 0\nserver:/x {tmp_path} {kind} rw 0 0\n")
    monkeypatch.setattr(store, "_MOUNTS", mounts)
    for open_it in (Ledger.create, Ledger):
        with pytest.raises(LedgerError, match="network file system"):
            open_it(tmp_path / "b.db")
    assert not (tmp_path / "b.db").exists()


@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs", "tmpfs", "overlay", "zfs", "apfs", "fuseblk"])
def test_a_disk_of_this_machine_is_fine(kind, tmp_path, monkeypatch):
    mounts = tmp_path / "mounts"
    mounts.write_text(f"server:/x / nfs4 rw 0 0\n/dev/vda {tmp_path} {kind} rw 0 0\n")
    monkeypatch.setattr(store, "_MOUNTS", mounts)
    made(tmp_path / "b.db").close()


def test_a_missing_release_id_rule_or_user_is_refused_before_anything(ledger):
    for options in (
        {"person": None},
        {"bounds": (1, 0)},
        {"method": "x"},
        {"variance": -1},
        {"person": PEOPLE[:3]},
        {"person": iter(PEOPLE)},
    ):
        with pytest.raises(InputError):
            mean(ledger, values=Untouchable(), **options)
    assert ledger.verify().events == 2


def test_a_ledger_without_people_releases_nothing(where):
    with pytest.raises(InputError, match="nobody"):
        mean(Ledger.create(where), values=Untouchable())


def test_there_is_one_ledger_in_a_database(ledger, where):
    with pytest.raises(InputError, match="already"):
        Ledger.create(where)


def test_every_commit_syncs(file):
    """Settings of the connections that write: a write-ahead log that is synced at every commit."""
    ledger = made(file)
    with ledger._store.engine.connect() as connection:
        for pragma, value in (("journal_mode", "wal"), ("synchronous", 2)):
            assert connection.exec_driver_sql(f"PRAGMA {pragma}").scalar() == value
    assert Path(file).stat().st_mode & 0o077 == 0


# ---------------------------------------------------------------------------------------------------------
# Older schemas


def to_version(where, version):
    """What schema 1 was: nothing kept rows of people to the event that is being written."""
    drop_guards(where)
    if "://" in where:
        execute(where, "DROP FUNCTION hetdp_refuse_other_event CASCADE")
    execute(where, f"UPDATE hetdp_ledger SET version = {version}")  # noqa: S608  a number of ours
    if "://" in where:
        restore_guards(where)
    else:
        execute(where, *[guard for guard in tables.GUARDS["sqlite"] if guard not in tables.MEMBER_GUARDS["sqlite"]])


def test_an_older_ledger_is_refused_and_upgraded_in_one_step(ledger, where):
    mean(ledger)
    ledger.close()
    to_version(where, 1)
    with pytest.raises(LedgerError, match=r"older schema 1 .* hetdp ledger upgrade"):
        mean(Ledger(where), "june", values=Untouchable())
    with Ledger.upgrade(where) as upgraded:
        assert upgraded.verify().people == 200
        mean(upgraded, "june")
        assert upgraded.balance("p000").spent == 0.2
    Ledger.upgrade(where).close()


def test_a_ledger_from_before_the_first_schema_is_not_upgraded(ledger, where):
    ledger.close()
    to_version(where, 0)
    with pytest.raises(LedgerError, match="no way"):
        Ledger.upgrade(where)


def test_a_ledger_that_was_written_by_schema_1_is_upgraded_with_its_history(tmp_path):
    """A real file of that time, with four people and one release."""
    path = tmp_path / "budgets.db"
    path.write_bytes(gzip.decompress((Path(__file__).parents[1] / "old" / "ledger-1.db.gz").read_bytes()))
    with closing(sqlite3.connect(path)) as connection:
        ((seq, digest),) = connection.execute("SELECT seq, hash FROM hetdp_ledger")
        before = connection.execute("SELECT * FROM hetdp_event ORDER BY seq").fetchall()
    Path(f"{path}.head").write_text(f"hetdp-ledger-head {seq:020d} {digest}\n")
    with pytest.raises(LedgerError, match=r"older schema 1 .* hetdp ledger upgrade"):
        Ledger(path)
    with Ledger.upgrade(path) as upgraded:
        found = upgraded.verify()
        assert (found.people, found.charges, found.results) == (4, 1, 1)
        people = [balance.person for balance in upgraded.balances()]
        mean(upgraded, "after the upgrade", [0.5] * 4, people, spend=0.01)
        assert upgraded.verify().charges == 2
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT * FROM hetdp_event ORDER BY seq").fetchall()[: len(before)] == before
        with pytest.raises(sqlite3.DatabaseError, match="append-only"):
            connection.execute("INSERT INTO hetdp_member VALUES ('x', 1, 1)")


def test_a_ledger_that_an_earlier_hetdp_wrote_answers_as_before_and_goes_on(tmp_path):
    """A real file of schema 2 whose events say no format: tiers, 80 budgets, a change, two results, a charge alone."""
    path, people = tmp_path / "budgets.db", [f"p{i:03}" for i in range(140)]
    path.write_bytes(gzip.decompress((Path(__file__).parents[1] / "old" / "ledger-2.db.gz").read_bytes()))
    with closing(sqlite3.connect(path)) as connection:
        before = connection.execute("SELECT * FROM hetdp_event ORDER BY seq").fetchall()
    (tmp_path / "may.csv").write_text("id,x\np000,0.5\n")  # the same request; it is not read again
    with Ledger(path, expect_head="9:a01f0c2354a2d807") as ledger:
        found = ledger.verify()
        assert (found.people, found.cohorts, found.charges, found.results) == (140, 88, 3, 2)
        asked = {"value": "x", "person": "id", "bounds": (0, 1), "share": 0.25, "missing": "midpoint"}  # as it was then
        may = ledger.mean(tmp_path / "may.csv", release_id="may", **asked)
        june = mean(ledger, "june", Untouchable(100), people[:100], spend=0.125, people=people[:100])
        assert [may.unclamped.hex(), june.unclamped.hex()] == ["0x1.04778578d9ab9p-1", "0x1.04846c683006ap-1"]
        assert [row.name for row in may.plan.table][-1] == "public"
        spent = [ledger.balance(person).spent for person in ("p000", "p001", "p002", "p003", "p139")]
        assert spent == [0.3, 0.764006763, 1.574133352, 0.125, 0.36975]
        assert ledger.balance("p003").frozen
        limits = {person: 0.05 if i < 20 else 1 for i, person in enumerate(people)}
        resumed = mean(ledger, "july", [0.5] * 140, people, spend=0.1, variance=0.1, method="minimax", people=limits)
        assert resumed.ledger["event"] == 9, "the charge that was there is carried out"
        mean(ledger, "august", [0.5] * 140, people, spend=0.01)
        assert (ledger.verify().charges, ledger.verify().results) == (4, 4)
    with closing(sqlite3.connect(path)) as connection:
        after = connection.execute("SELECT * FROM hetdp_event ORDER BY seq").fetchall()
    assert after[: len(before)] == before
    said = [{name: json.loads(row[4]).get(name) for name in books.FORMAT} for row in after]
    assert said == [dict.fromkeys(books.FORMAT)] * len(before) + [books.FORMAT] * 3


def test_every_event_says_its_format_statistic_and_measure(ledger, where):
    mean(ledger)
    written = ledger._store.read(lambda connection, _: [json.loads(event.body) for event in store.events(connection)])
    expected = {"format": "hetdp-ledger-event", "version": 1, "statistic": "mean", "measure": "pure-epsilon"}
    assert [{name: body[name] for name in expected} for body in written] == [expected] * 4


@pytest.mark.parametrize("field", [*books.FORMAT, "statistic", "kind"])
def test_an_event_that_a_newer_hetdp_wrote_is_refused(ledger, where, monkeypatch, field):
    """What it charged cannot be guessed, so nothing is released, by a ledger that is open neither."""
    mean(ledger)
    with Ledger(where) as newer:
        monkeypatch.setitem(books.MEAN if field == "statistic" else books.FORMAT, field, "another")
        monkeypatch.setitem(books.STATISTICS, "another", None)
        monkeypatch.setattr(books, "KINDS", (*books.KINDS, "another"))
        event = books.next_event(newer._store.state.head, "another" if field == "kind" else "enroll", {})
        newer._store.change(lambda connection, now: (store.write(connection, now, event), None))
        monkeypatch.undo()
    for refused in (lambda: mean(ledger, "june", values=Untouchable()), ledger.verify, lambda: Ledger(where)):
        with pytest.raises(LedgerError, match=rf"event 5 .* {field} 'another', which this hetdp does not know; update"):
            refused()


def test_an_upgrade_that_fails_leaves_the_ledger_as_it_was(ledger, where, monkeypatch):
    ledger.close()
    to_version(where, 1)
    kind = "postgresql" if "://" in where else "sqlite"
    halfway = {kind: [*tables.MEMBER_GUARDS[kind], "DROP TABLE hetdp_nothing"]}
    monkeypatch.setattr(tables, "MEMBER_GUARDS", halfway)
    with pytest.raises(LedgerError):
        Ledger.upgrade(where)
    monkeypatch.undo()
    with pytest.raises(LedgerError, match="older schema 1"):
        Ledger(where)
    with Ledger.upgrade(where) as upgraded:
        upgraded.verify()


def test_a_newer_schema_is_refused_by_postgresql_too(ledger, where):
    execute(where, "UPDATE hetdp_ledger SET version = 9")
    with pytest.raises(LedgerError, match="newer schema"):
        mean(ledger, values=Untouchable())


# ---------------------------------------------------------------------------------------------------------
# History and forecast


def test_history_tells_everything_in_order(ledger):
    done = mean(ledger)
    ledger.enroll({"late": 1})
    kinds = [(entry.kind, entry.release, entry.people) for entry in ledger.history()]
    assert kinds == [
        ("open", None, 0),
        ("enroll", None, 200),
        ("charge", "may", 200),
        ("result", "may", 0),
        ("enroll", None, 1),
    ]
    assert ledger.history()[2].most == 0.1
    assert ledger.history()[3].estimate == done.estimate
    assert "may: charged 200 people, at most ε = 0.1 each" in str(ledger.history()[2])


@pytest.mark.parametrize("rule", [{"spend": 0.3}, {"share": 0.3}, {"share_left": 0.5}], ids=str)
def test_a_forecast_is_what_then_happens(tmp_path, rule):
    """Each forecast step against the real release: its error, how many have weight, what is left."""
    ledger = made(tmp_path / "b.db", {p: (0.5 if i < 120 else 2 if i < 180 else "inf") for i, p in enumerate(PEOPLE)})
    foreseen = ledger.forecast(bounds=(0, 1), releases=8, **rule)
    for step in foreseen.steps:
        assert list(step.left.values()) == [ledger.balance("p000").left, ledger.balance("p150").left]
        done = mean(ledger, f"r{step.number}", **rule)
        assert done.plan.worst_case_error == step.worst_case_error
        assert done.plan.abstains == step.abstains
        assert int(done.plan.levels.count[done.plan.units > 0].sum()) == step.people
    assert ledger.verify().charges == len(foreseen.steps)


@pytest.mark.parametrize("kind", ["share", "share_left"])
def test_a_share_may_be_written_as_a_quotient_and_is_exact(kind):
    assert Rule.given(**{kind: " 1/9"}) == Rule(kind, Fraction(1, 9))
    nine = Rule.given(share="1/9").allowed(budget=900_000_000, left=900_000_000)
    assert nine == 100_000_000  # nine releases use it up
    for wrong in ("1/0", "2/1", "a/b", "1/9/2", "-1/9", "much"):
        with pytest.raises(InputError, match=kind):
            Rule.given(**{kind: wrong})
    with pytest.raises(InputError, match="epsilon"):
        Rule.given(spend="1/9")


def test_a_forecast_says_how_often_a_tier_lasts(where):
    ledger = made(
        where, {p: ("strict" if i < 100 else "open") for i, p in enumerate(PEOPLE)}, tiers={"strict": 1.2, "open": 30}
    )
    found = ledger.forecast(bounds=(0, 1), spend=0.1, releases=20)
    assert found.lasts == {"tier strict (budget 1.2)": 12, "tier open (budget 30)": None}
    assert "12 more releases use up tier strict (budget 1.2)" in str(found)
    assert found.releases == 20
    assert json.dumps(found.to_dict(), allow_nan=False)
    for releases in (0, 10**6):
        with pytest.raises(InputError, match="ahead"):
            ledger.forecast(bounds=(0, 1), spend=0.1, releases=releases)


def test_a_forecast_says_how_many_of_a_tier_have_nothing_left_and_not_only_when_the_last_one_has(where):
    """One person who missed a release must not stand for a tier that is used up but for them."""
    ledger = made(where, {p: (0.4 if i < 100 else 2 if i < 150 else "inf") for i, p in enumerate(PEOPLE)})
    tiers = "the tier with budget 0.4", "the tier with budget 2"
    ledger.charge(dict.fromkeys(PEOPLE[:60], 0.4), release_id="a", mechanism="other")
    ledger.charge(dict.fromkeys(PEOPLE[60:99], 0.3), release_id="b", mechanism="other")
    ledger.charge(dict.fromkeys(PEOPLE[100:150], 2), release_id="c", mechanism="other")
    found = ledger.forecast(bounds=(0, 1), spend=0.1, releases=3)
    assert found.exhausted == {
        tiers[0]: {"people": 100, "after": {0: 60, 1: 99}},
        tiers[1]: {"people": 50, "after": {0: 50}},
    }
    assert found.lasts == {tiers[0]: None, tiers[1]: 0}
    assert f"{tiers[0]}: of 100 people so many have nothing left: 60 now, 99 after 1 more release" in str(found)
    assert f"{tiers[1]}: nobody has anything left" in str(found)
    assert "(90 people with weight) in the next release" in str(found)
    assert "(51 people with weight) in the last of these" in str(found)


@pytest.mark.parametrize(
    "ask",
    [
        lambda ledger: ledger.forecast(bounds=(0, 1), spend=0.1, releases=2.5),
        lambda ledger: ledger.forecast(bounds=(0, 1), spend=0.1, releases="5"),
    ],
    ids=["forecast of a fraction", "forecast of a text"],
)
def test_a_mistake_of_the_caller_is_not_called_damage(ledger, tmp_path, monkeypatch, ask):
    """Somebody who reads "damaged" may put an old copy back, and then budgets are spent twice."""
    monkeypatch.chdir(tmp_path)
    mean(ledger)
    with pytest.raises((InputError, TypeError, ValueError)) as caught:
        ask(ledger)
    assert not isinstance(caught.value, LedgerError)


def test_bounds_that_no_report_can_show_are_refused_before_the_charge(where):
    with made(where) as ledger:
        for bounds in ((0, 1e-200), (0, 1e155)):
            with pytest.raises(InputError, match="mean squared errors"):
                ledger.mean(
                    Untouchable(), person=PEOPLE, bounds=bounds, release_id="may", spend=0.1, missing="midpoint"
                )
            request = Request("may", Rule.given(spend=0.1), Mean(bounds))
            with pytest.raises(InputError, match="mean squared errors"):  # whoever calls it
                ledger.carry_out([request], lambda *_: pytest.fail("the values were read"))
        assert ledger.verify().charges == 0


def test_clocks_may_go_backwards(ledger, monkeypatch):
    class Past(books.datetime):
        @classmethod
        def now(cls, tz=None):
            return cls(1999, 1, 1, tzinfo=tz)

    mean(ledger)
    monkeypatch.setattr(books, "datetime", Past)
    mean(ledger, "june")
    assert ledger.verify().results == 2
    assert ledger.history()[-1].at.startswith("1999")


def test_two_open_ledgers_see_each_other(ledger, where):
    with Ledger(where) as other:
        mean(ledger)
        assert other.balance("p000").spent == 0.1
        mean(other, "june")
        ledger.enroll({"late": 1})
        mean(other, "july")
        assert ledger.balance("p000").spent == pytest.approx(0.3)
        assert ledger.balance("late").spent == 0.1
        assert ledger.head == other.head


def test_opened_stores_do_not_make_files_that_vanished(file):
    made(file).close()
    place = store.Store(file, None)
    Path(file).unlink()
    with pytest.raises(LedgerError):
        place.transact(lambda connection: store.run(connection, "SELECT 1"))
    assert not Path(file).exists()


def test_amounts_are_whole_numbers_in_the_database(ledger, where):
    mean(ledger)
    if "://" not in where:
        connection = sqlite3.connect(where)
        kinds = set(connection.execute("SELECT typeof(asked), typeof(budget), typeof(spent) FROM hetdp_cohort"))
        connection.close()
        assert kinds == {("integer",) * 3}
    assert books.in_epsilon(UNLIMITED) == math.inf


def test_a_ledger_that_is_opened_twice_here_keeps_its_log_when_another_program_closes_it(tmp_path):
    """Opening the file by hand would drop SQLite's locks of this process; the other one would then delete the log."""
    path = tmp_path / "l.ledger"
    with hetdp.Ledger.create(path) as first, hetdp.Ledger(path):
        first.enroll({"a": 1.0})
        other = f"import hetdp; hetdp.Ledger({str(path)!r}).close()"
        subprocess.run([sys.executable, "-c", other], check=True)
        held = [str(one.readlink()) for one in Path("/proc/self/fd").iterdir() if one.is_symlink()]
        assert [name for name in held if "l.ledger" in name and "deleted" in name] == []
        assert any(name.endswith("l.ledger-wal") for name in held), "a control: the log is open"


@pytest.mark.parametrize("size", [0, 1, 100])
def test_a_file_too_small_for_a_database_is_refused_and_left_alone(tmp_path, size):
    """SQLite takes a file of a byte for an empty one, and would write into it."""
    path = tmp_path / "notes.txt"
    path.write_bytes(b"x" * size)
    with pytest.raises(LedgerError, match="no ledger"):
        Ledger(path)
    assert path.read_bytes() == b"x" * size
