"""Ids that look the same are refused, in every source and in a ledger."""

from __future__ import annotations

import math
import re
from itertools import pairwise

import duckdb
import polars as pl
import psycopg
import pyarrow as pa
import pytest

import hetdp
from hetdp import InputError
from hetdp.core.domain import NOT_IN_ID
from hetdp.ledger import Ledger
from hetdp.sources.sql import _NOT_IN_ID as NOT_IN_ID_OF_POSTGRES
from ledgers import PEOPLE, VALUES
from ledgers import mean as ledger_mean
from refusals import MARKER, refused
from support import is_unseen
from table_sources import SOURCES, query_of

# Ibis 12 calls a function of DuckDB that DuckDB 2 has renamed.
pytestmark = pytest.mark.filterwarnings("ignore:fetch_arrow_table:DeprecationWarning")

COLUMNS = {"value": "x", "missing": "midpoint", "epsilon": "e", "bounds": (0, 1)}


FORMS = [
    "{}{} ",
    " {}{}",
    "{}{}\u00a0",
    "{}{}\u200b",
    "{}\u00ad{}",
    "\u3000{}{}",
    "{}{}\ufe0f",
    "\u2060{}{}",
    "{}{}\U000e0041",
]


def look_alikes(who):
    """Texts that look like an id and are not the same."""
    return [form.format(who[0], who[1:]) for form in FORMS]


LOOK_ALIKE = look_alikes("p1")
DIFFERENT = ["p1", "p 1", "p\u00a01", "P1", "p01", "O'Brien", "\u00e9", "\u540d\u524d", "p-1", "+1", "p\u0301q"]


@pytest.mark.parametrize("name", SOURCES)
def test_row_108_an_id_with_a_blank_around_it_or_an_invisible_character_is_refused_everywhere(name, made):
    odd = LOOK_ALIKE if name != "spark" else LOOK_ALIKE[::3]
    for who in odd:
        origin = made(name, [("p1", "g", 0.5, 1.0), (who, "g", float(MARKER), 1.0), ("p2", "g", 0.5, 1.0)])
        for rows in ("one", "average"):
            refused(lambda rows=rows, origin=origin: hetdp.read(origin, **COLUMNS, **query_of(name), person="id",
                                                                rows=rows),
                    "an id ", "blank around it", "invisible")  # fmt: skip


@pytest.mark.parametrize("name", SOURCES)
def test_row_108_control_ids_that_do_not_look_the_same_are_different_people(name, made):
    origin = made(name, [(who, "g", 0.5, 1.0) for who in DIFFERENT])
    assert hetdp.read(origin, **COLUMNS, **query_of(name), person="id").n == len(DIFFERENT)


@pytest.mark.parametrize("who", LOOK_ALIKE, ids=ascii)
def test_row_108_the_same_holds_for_ids_in_memory_and_in_a_ledger(who, tmp_path):
    for rows in ("one", "average"):
        people = {"person": ["p1", who], "rows": rows}
        refused(lambda people=people: hetdp.read([0.5] * 2, epsilon=[1.0] * 2, bounds=(0, 1), **people), "an id")
    path = tmp_path / "people.csv"
    path.write_text(f"id,budget\np1,1\n{who},1\n", encoding="utf-8")
    with Ledger.create(tmp_path / "b.db") as ledger:
        for people in ({"p1": 1, who: 1}, [who]):
            refused(
                lambda people=people: ledger.enroll(people, budget=None if isinstance(people, dict) else 1), "an id"
            )
        refused(lambda: ledger.enroll(path, person="id", budget="budget"), "an id")
        assert ledger.verify().people == 0
        ledger.enroll(dict.fromkeys(PEOPLE, 1))
        for people in ([*PEOPLE, who], {**dict.fromkeys(PEOPLE, 1), who: 1}):
            refused(lambda people=people: ledger_mean(ledger, people=people), "an id")
        with pytest.raises(InputError):
            ledger.balance(who)
        assert {row.spent for row in ledger.balances()} == {0}


@pytest.mark.parametrize("who", look_alikes(PEOPLE[0]), ids=ascii)
def test_row_108_a_row_with_such_an_id_in_a_private_file_is_nobodys_and_does_not_stop_a_charged_release(who, tmp_path):
    path = tmp_path / "values.csv"
    rows = zip(PEOPLE[1:], VALUES[1:], strict=True)
    path.write_text(f"id,x\n{who},1\n" + "".join(f"{p},{x}\n" for p, x in rows), encoding="utf-8")
    with Ledger.create(tmp_path / "b.db") as ledger:
        ledger.enroll(dict.fromkeys(PEOPLE, math.inf))
        released = ledger.mean(
            path, value="x", missing="midpoint", person="id", bounds=(0, 1), release_id="may", spend=0.1
        )
        assert released.estimate == pytest.approx((0.5 + sum(VALUES[1:])) / 200, abs=1e-5)


def probes():
    """All characters that nobody sees and all blanks, their neighbours, and many others."""
    whole = [chr(i) for i in range(0x110000) if not 0xD800 <= i <= 0xDFFF]
    odd = [is_unseen(c) or c.isspace() for c in whole]
    edges = {i for i, pair in enumerate(pairwise(odd)) if pair[0] != pair[1]}
    return [c for i, c in enumerate(whole) if c != "\x00" and (i < 0x500 or {i, i - 1} & edges or i % 251 == 0)]


PLACES = {"first": "{}a", "inside": "a{}a", "last": "a{}"}


def meant(place, character):
    return character == '"' or is_unseen(character) or (place != "inside" and character.isspace())


def of_python(texts, _):
    return [re.search(NOT_IN_ID, text) is not None for text in texts]


def of_polars(texts, _):
    return pl.Series(texts).str.contains(NOT_IN_ID).to_list()


def of_duckdb(texts, _):
    with duckdb.connect() as connection:
        connection.register("t", pa.table({"p": texts}))
        (found,) = connection.execute("select list(regexp_matches(p, ?)) from t", [NOT_IN_ID]).fetchone()
        return found


def of_postgres(texts, url):
    with psycopg.connect(url) as connection:
        found = connection.execute(
            "select p ~ %s from unnest(%s::text[]) with ordinality as t(p, i) order by i",
            [NOT_IN_ID_OF_POSTGRES, texts],
        )
        return [matched for (matched,) in found]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("engine", [of_python, of_polars, of_duckdb, of_postgres])
def test_row_108_every_engine_finds_the_characters_that_unicode_calls_invisible(engine, place, libpq_url):
    characters = probes()
    found = engine([PLACES[place].format(c) for c in characters], libpq_url)
    wrong = [f"{ord(c):x}" for c, bad in zip(characters, found, strict=True) if bad != meant(place, c)]
    assert wrong == []


def test_row_109_two_unicode_forms_of_one_id_are_refused_in_people_and_not_decided_by_the_last(tmp_path):
    one, other = "Zo\u00eb", "Zoe\u0308"
    with Ledger.create(tmp_path / "b.db") as ledger:
        ledger.enroll({one: 1, **dict.fromkeys(PEOPLE, 1)})
        for people in (
            {one: 0.01, other: 1},
            {other: 1, one: 0.01},
            [one, other],
            {**dict.fromkeys(PEOPLE, 1), one: 1, other: 1},
        ):
            values = [0.5] * len(PEOPLE)
            refused(
                lambda people=people, values=values: ledger_mean(ledger, values=values, people=people),
                "twice",
                "Unicode",
            )
        assert {row.spent for row in ledger.balances()} == {0}
        limits = {other: 0.01, **dict.fromkeys(PEOPLE, 0.5)}  # the control: one form, whichever, is that person
        ledger_mean(ledger, people=limits)
        assert 0 < ledger.balance(one).spent <= 0.01
