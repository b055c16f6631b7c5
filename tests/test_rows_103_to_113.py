"""Rows 103–111 and 113 of the catalogue of bad inputs (112 is in `test_files.py`), and errors that were raw.

Each test fails on the code before these rows, and stands beside a control that shows what stays allowed.
"""

from __future__ import annotations

import copy
import json
import math
import re
import shutil
import sqlite3
import warnings
from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import pairwise

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import psycopg
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hetdp
from hetdp import InputError
from hetdp.core.cells import NOT_IN_ID, value_of
from hetdp.core.domain import GRID
from hetdp.ledger import Ledger
from hetdp.privacy import release as _release
from hetdp.report.text import odds
from hetdp.server import insight
from hetdp.sources._dialects import _NOT_IN_ID as NOT_IN_ID_OF_POSTGRES
from hetdp.tally.tally import PROMISED
from ledgers import PEOPLE, VALUES, made
from ledgers import mean as ledger_mean
from support import is_unseen
from test_contract import ENGINES, QUICK, SOURCES, query_of

# Ibis 12 calls a function of DuckDB that DuckDB 2 has renamed.
pytestmark = pytest.mark.filterwarnings("ignore:fetch_arrow_table:DeprecationWarning")

MARKER = "98765.4321"
MIDPOINT = GRID // 2
COLUMNS = {"value": "x", "epsilon": "e", "bounds": (0, 1)}
TABLE = ("--value", "x", "--epsilon", "e", "--bounds", "0", "1")


def behind(error):
    """The exceptions behind an exception, those that a traceback would not show included."""
    found, left = [], [error]
    while left:
        last = left.pop()
        new = [other for other in (last.__cause__, last.__context__) if other is not None and other not in found]
        found += new
        left += new
    return found


def refused(call, *words):
    """The call raises one sentence with these words; nothing private is in it, and no exception at all behind it."""
    with pytest.raises(InputError) as caught:
        call()
    assert [word for word in words if word not in str(caught.value)] == [], str(caught.value)
    assert MARKER not in repr(caught.value)
    assert behind(caught.value) == []


# ---------------------------------------------------------------------------------------------------------
# 103: the same people in two tallies


def two():
    """Two tallies with the same contents, read one after the other: of two sites, perhaps."""
    return [hetdp.read([0.25, 0.75], epsilon=[1, 2], bounds=(0, 1)) for _ in range(2)]


def test_row_103_a_tally_or_a_copy_of_its_file_is_never_counted_twice(tmp_path):
    one, other = two()
    one.save(tmp_path / "one.tally")
    shutil.copy(tmp_path / "one.tally", tmp_path / "copy.tally")
    copies = [*(hetdp.Tally.load(tmp_path / name) for name in ("one.tally", "copy.tally")), copy.deepcopy(one)]
    (one + other).save(tmp_path / "merged.tally")
    merged = hetdp.Tally.load(tmp_path / "merged.tally")
    for a, b in [(one, one), (one, copies[0]), (copies[0], copies[1]), (one, copies[2]), (one + other, one),
                 (merged, copies[1]), (merged, one + other), (two()[0] + merged, other)]:  # fmt: skip
        for pair in ((a, b), (b, a)):
            refused(lambda pair=pair: pair[0] + pair[1], "twice")


def test_row_103_control_equal_contents_are_never_compared():
    """A refusal would tell two sites that their sums are equal."""
    one, other = two()
    assert one == other
    assert one.identities.isdisjoint(other.identities)
    assert (one + other).table.total.tolist() == (2 * one.table.total).tolist()
    assert len((one + other).identities) == 2


def test_row_103_whoever_merges_promises_and_nothing_else_is_claimed_about_the_people(tmp_path, hetdp_command):
    """Each part was checked for ids; that does not make it checked that nobody is in two of them."""
    names = []
    for i in range(3):
        (tmp_path / f"{i}.csv").write_text("id,x,e\n" + "".join(f"p{j},0.5,1\n" for j in range(200)))
        tally = hetdp.read(tmp_path / f"{i}.csv", **COLUMNS, person="id")
        names.append(tmp_path / f"{i}.tally")
        tally.save(names[-1])
    parts = [hetdp.Tally.load(name) for name in names]
    assert all(part.notes != (PROMISED,) for part in parts)
    assert (parts[0] + parts[1]).notes == (parts[0] + parts[1] + parts[2]).notes == (PROMISED,)
    code, out, err = hetdp_command("mean", *names, "--disjoint-people", "--json")
    facts = json.loads(out)
    assert (code, err, facts["n"]) == (0, "", 600)
    said = [sentence for sentence in facts["assumptions"] if "once" in sentence or "merged" in sentence]
    assert said == [PROMISED]
    assert "sum of both" in PROMISED


def test_row_103_the_command_line_refuses_a_copy_of_a_tally(tmp_path, hetdp_command, monkeypatch):
    monkeypatch.setattr(_release, "noisy", lambda *_: pytest.fail("noise was drawn"))
    two()[0].save(tmp_path / "a.tally")
    shutil.copy(tmp_path / "a.tally", tmp_path / "copy.tally")
    code, out, err = hetdp_command("mean", tmp_path / "a.tally", tmp_path / "copy.tally", "--disjoint-people")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "share people" in err


# ---------------------------------------------------------------------------------------------------------
# 104: groups of rows of which nobody knows whose they are

PANEL = "id,g,x,e\n" + "".join(f"p{i},g{i % 3},0.5,1\n" for i in range(600))
IDS = {"no ids": {}, "one row": {"person": "id"}, "average": {"person": "id", "rows": "average"}}


@pytest.mark.parametrize("ids", IDS)
def test_row_104_only_a_column_of_ids_makes_parallel_composition_a_claim(ids, tmp_path, hetdp_command):
    path = tmp_path / "panel.csv"
    path.write_text(PANEL)
    options = [part for name, column in IDS[ids].items() for part in (f"--{name}", column)]
    command = ("mean", path, *TABLE, *options, "--by", "g", "--public-column", "g")
    groups = hetdp.mean(path, **COLUMNS, by="g", public_columns=["g"], **IDS[ids])
    told = [groups.report(), groups.html(), groups.to_json(), repr(groups.to_dict()), groups.composition]
    told += [hetdp_command(*command)[1], hetdp_command(*command, "--json")[1]]
    for text in (" ".join(text.split()) for text in told):
        assert ("protects everybody at their own ε" in text or "protects everybody at their own \\u03b5" in text) == (
            ids != "no ids"
        )
        assert ("Assumed: each row is another person" in text) == (ids == "no ids")


# ---------------------------------------------------------------------------------------------------------
# 105: odds in words

SMALL = [1e-300, 1e-9, 0.0001, 0.004, 0.0049, 0.01, 0.14, 0.1, 0.5, 1.0, math.log(2), 3.0, 4.6, 4.62, 7.0, 12.0, 19.99]


def at_least(text, epsilon):
    """Whether a number in words is at least e^ε, in decimals of 50 digits; by how much it is above 1 beside e^ε."""
    with localcontext() as context:
        context.prec = 50
        true = Decimal(epsilon).exp() if epsilon > 1e-40 else 1 + Decimal(epsilon)
        return Decimal(text) >= true, (Decimal(text) - 1) / max(true - 1, Decimal("1e-6"))


@pytest.mark.parametrize("epsilon", SMALL)
def test_row_105_odds_are_rounded_up_and_never_1(epsilon):
    holds, ratio = at_least(odds(epsilon), epsilon)
    assert holds
    assert Decimal(odds(epsilon)) > 1
    assert ratio <= Decimal("1.0101"), "rounded up by more than the third digit"


@given(st.floats(min_value=1e-12, max_value=20))
def test_row_105_odds_are_never_below_the_truth(epsilon):
    holds, ratio = at_least(odds(epsilon), epsilon)
    assert holds
    assert ratio <= Decimal("1.0101")


@pytest.mark.parametrize("epsilon", [0.004, 0.14, 0.1, 1.0])
def test_row_105_reports_and_the_server_print_them(epsilon):
    plan = hetdp.plan({epsilon: 10**7}, bounds=(0, 1))
    said = re.search(r"spending ε = ([\d.e-]+) changes .* factor of ([\d.e+]+)", " ".join(plan.report().split()))
    assert float(said[1]) >= plan.spent.max()
    assert at_least(said[2], plan.spent.max().item())[0]
    on_the_server = re.search(r"factor of ([\d.e+]+)\.$", insight._meaning(epsilon))
    assert at_least(on_the_server[1], epsilon)[0]


# ---------------------------------------------------------------------------------------------------------
# 106 and 113: JSON lines


def records(cell, n=300):
    """A file of JSON lines in which one person's value is this text."""
    people = "".join(f'{{"id": "p{i}", "x": 0.5, "e": 1}}\n' for i in range(n))
    return people + f'{{"id": "odd", "x": {cell}, "e": 1}}\n'


BROKEN = ["[redacted", "x]", "]", "}", "{", "[[1, 2", "1]]", "{redacted}}", "[1, [2]", f"[{MARKER}", f"{MARKER}]", "[,"]


@pytest.mark.parametrize("command", ["mean", "check", "tally"])
def test_row_106_a_value_that_is_no_json_changes_no_exit_code_and_no_word(
    command, tmp_path, hetdp_command, monkeypatch
):
    monkeypatch.setattr(_release, "noisy", lambda *_: 10**12)
    more = {"tally": ("-o", tmp_path / "t.tally", "--force")}.get(command, ())
    path, seen = tmp_path / "people.ndjson", set()
    for cell in ("null", *BROKEN):
        path.write_text(records(cell))
        code, out, err = hetdp_command(command, path, *TABLE, *more)
        assert (code, err) == (0, ""), cell
        if command != "check":  # which is for the owner, and tells what is missing and what cannot be read
            seen.add(out)
        tally = hetdp.read(path, **COLUMNS)
        assert (tally.n, tally.table.total[:, 0].tolist()) == (301, [301 * MIDPOINT])
    assert len(seen) <= 1


def test_row_106_control_a_record_without_its_braces_is_still_refused(tmp_path):
    path = tmp_path / "people.ndjson"
    for line in ('{"x": 1, "e": 1', '"x": 1, "e": 1}', '{"x": "1, "e": 1}', f"[{MARKER}, 1]"):
        path.write_text('{"x": 1, "e": 1}\n' + line + "\n")
        refused(lambda: hetdp.read(path, **COLUMNS), "line 2 of")


MISSPELT = {"value": "value", "epsilon": "epsilon", "person": "person", "by": "by"}


@pytest.mark.parametrize("option", MISSPELT)
def test_row_113_a_record_without_a_key_that_is_asked_for_is_refused_by_its_line(option, tmp_path):
    path = tmp_path / "people.ndjson"
    record = f'{{"x": {MARKER}, "e": 1, "p": "a", "g": "u"}}\n'
    ask = {**COLUMNS, **{"person": {"person": "p"}, "by": {"by": "g"}}.get(option, {})}
    if option == "by":
        ask["public_columns"] = ["g"]
    path.write_text(record)
    hetdp.mean(path, **ask)
    path.write_text(record + record.replace(f'"{ask[option]}":', '"other":').replace('"a"', '"b"'))
    refused(lambda: hetdp.mean(path, **ask), "line 2 of", f"no key {ask[option]!r}")


def test_row_113_a_misspelt_value_does_not_turn_everybody_into_the_midpoint(tmp_path, hetdp_command, monkeypatch):
    monkeypatch.setattr(_release, "noisy", lambda *_: pytest.fail("noise was drawn"))
    path = tmp_path / "people.ndjson"
    path.write_text(records("0.5"))
    options = ("--value", "X", *TABLE[2:])
    for command in ("mean", "check"):
        code, out, err = hetdp_command(command, path, *options)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert "line 1 of" in err
        assert "'X'" in err


def test_row_113_control_null_is_a_missing_value_and_other_keys_may_be_missing(tmp_path):
    path = tmp_path / "people.ndjson"
    path.write_text('{"x": null, "e": 1, "note": 1}\n{"x": 0, "e": 1}\n')
    assert hetdp.read(path, **COLUMNS).table.total[:, 0].tolist() == [MIDPOINT]


# ---------------------------------------------------------------------------------------------------------
# 107: cells that are objects of any class


def raises(*_, **__):
    raise RuntimeError(MARKER)


def warns(*_, **__):
    warnings.warn(f"the value is {MARKER}", stacklevel=2)
    return 0.75


class Text(str):
    """A text whose own methods raise."""

    __slots__ = ()
    strip = lower = encode = __len__ = __hash__ = __eq__ = raises


class Double(float):
    """A double whose own methods raise."""

    __slots__ = ()
    __float__ = __bool__ = __gt__ = __eq__ = __hash__ = raises


class Whole(int):
    """A whole number whose own methods raise."""

    __slots__ = ()
    __float__ = __int__ = __index__ = __gt__ = raises


class Number(Fraction):
    """A number of a class that numbers know, which raises when asked for its double."""

    __slots__ = ()
    __float__ = raises


class Warns(Fraction):
    """The same, but it warns and answers."""

    __slots__ = ()
    __float__ = warns


class Huge(Fraction):
    """A number that is too large for a double, and raises when it is compared."""

    __slots__ = ()

    def __float__(self):
        raise OverflowError(MARKER)

    __gt__ = raises


class Array:
    """A thing that calls itself an array, and raises or warns when asked for it."""

    def __init__(self, act):
        self._act = act

    def __array__(self, *args, **more):
        return self._act(*args, **more)

    @property
    def __len__(self):
        return self._act()


class Masked:
    """A thing that raises when asked for its class."""

    @property
    def __class__(self):
        return raises()


class Untouchable:
    """A thing that raises whatever it is asked for."""

    def __getattribute__(self, name):
        raises()


ODD = {
    "text": (Text("0.25"), 0.25), "text that is none": (Text(MARKER + "x"), None), "double": (Double(0.25), 0.25),
    "double that is NaN": (Double("nan"), None), "whole number": (Whole(1), 1.0), "too large": (Whole(10**400), 1.0),
    "number": (Number(1, 4), None), "number that warns": (Warns(1, 4), 0.75), "huge number": (Huge(1), None),
    "array that raises": (Array(raises), None), "array that warns": (Array(warns), None), "class": (Masked(), None),
    "untouchable": (Untouchable(), None), "list": ([1.0], None), "array": (np.ones(2), None),
    "array of no dimension": (np.array(1.0), None), "array of texts": (np.array([MARKER]), None), "dict": ({}, None),
    "signalling NaN": (Decimal("sNaN"), None),
}  # fmt: skip


def holders(cells):
    """The same cells in all that can hold any object."""
    objects = np.empty(len(cells), object)
    for i, cell in enumerate(cells):
        objects[i] = cell
    levels = [1.0] * len(cells)
    yield "list", lambda: hetdp.read(list(cells), epsilon=levels, bounds=(0, 1))
    yield "tuple", lambda: hetdp.read(tuple(cells), epsilon=levels, bounds=(0, 1))
    yield "object array", lambda: hetdp.read(objects, epsilon=levels, bounds=(0, 1))
    yield (
        "with ids",
        lambda: hetdp.read(
            list(cells), epsilon=levels, bounds=(0, 1), person=[*map(str, range(len(cells)))], rows="average"
        ),
    )


@pytest.mark.parametrize("case", ODD)
def test_row_107_whatever_a_cell_does_when_it_is_asked_it_counts_as_missing_or_as_its_number(case, recwarn, capfd):
    cell, number = ODD[case]
    code = MIDPOINT if number is None else math.floor(number * GRID + 0.5)
    for name, read in holders([cell, 0.0, 1.0]):
        tally = read()
        assert (tally.n, tally.table.total[:, 0].tolist()) == (3, [code + GRID]), name
    released = hetdp.mean([cell, 0.5] * 100, epsilon=[1.0] * 200, bounds=(0, 1))
    assert released.plan.n == 200
    assert "PRIVATE" in hetdp.check([cell, 0.0], epsilon=[1.0, 1.0], bounds=(0, 1)).report()
    assert [str(warning.message) for warning in recwarn] == []
    assert "".join(capfd.readouterr()) == ""


def test_row_107_an_object_column_of_a_frame_is_read_in_the_same_way(recwarn):
    cells = [Number(1, 4), Warns(1, 4), Double(0.25), [1.0], None, "0.5"]
    codes = [None, 0.75, 0.25, None, None, 0.5]
    total = sum(MIDPOINT if x is None else math.floor(x * GRID + 0.5) for x in codes)
    column = np.empty(len(cells), object)
    for i, cell in enumerate(cells):
        column[i] = cell
    for frame in (
        pd.DataFrame({"x": column, "e": 1.0}),
        pl.DataFrame({"x": pl.Series(cells, dtype=pl.Object), "e": [1.0] * 6}),
    ):
        assert hetdp.read(frame, **COLUMNS).table.total[:, 0].tolist() == [total]
    assert list(recwarn) == []


@pytest.mark.parametrize("case", ["text that is none", "array that raises", "class", "untouchable"])
def test_row_107_a_ledger_reads_cells_after_the_charge_so_none_may_raise(case, tmp_path, recwarn):
    cell, _ = ODD[case]
    with Ledger.create(tmp_path / "b.db") as ledger:
        ledger.enroll(dict.fromkeys(PEOPLE, math.inf))
        released = ledger_mean(ledger, values=[*VALUES[1:], cell])
        want = (sum(VALUES[1:]) + 0.5) / 200
        assert released.estimate == pytest.approx(want, abs=1e-5)
    assert list(recwarn) == []


def test_row_107_control_ordinary_numbers_of_other_classes_are_still_read():
    cells = [Fraction(1, 4), Decimal("0.5"), np.float32(0.25), np.int8(1), 10**400, -(10**400), Decimal("1e999")]
    assert [value_of(cell) for cell in cells] == [0.25, 0.5, 0.25, 1.0, math.inf, -math.inf, math.inf]


# ---------------------------------------------------------------------------------------------------------
# 108 and 109: ids that look the same

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


@pytest.fixture
def source(request, tmp_path):
    """A function from the name of a source and rows (id, group, value, ε) to that source."""

    def make(name, rows):
        if name in QUICK:
            return QUICK[name](rows, tmp_path)
        engine = request.getfixturevalue({"postgres": "libpq_url", "spark": "spark"}[name])
        return ENGINES[name](rows, tmp_path, engine)

    return make


@pytest.mark.parametrize("name", SOURCES)
def test_row_108_an_id_with_a_blank_around_it_or_an_invisible_character_is_refused_everywhere(name, source):
    odd = LOOK_ALIKE if name != "spark" else LOOK_ALIKE[::3]
    for who in odd:
        origin = source(name, [("p1", "g", 0.5, 1.0), (who, "g", float(MARKER), 1.0), ("p2", "g", 0.5, 1.0)])
        for rows in ("one", "average"):
            refused(lambda rows=rows, origin=origin: hetdp.read(origin, **COLUMNS, **query_of(name), person="id",
                                                                rows=rows),
                    "an id ", "blank around it", "invisible")  # fmt: skip


@pytest.mark.parametrize("name", SOURCES)
def test_row_108_control_ids_that_do_not_look_the_same_are_different_people(name, source):
    origin = source(name, [(who, "g", 0.5, 1.0) for who in DIFFERENT])
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
        released = ledger.mean(path, value="x", person="id", bounds=(0, 1), release_id="may", spend=0.1)
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


# ---------------------------------------------------------------------------------------------------------
# 110: one ledger, one head


@pytest.mark.parametrize("through", ["link to the file", "link to its folder", "link to a link"])
def test_row_110_a_ledger_opened_through_a_link_has_the_same_head(through, tmp_path):
    real = tmp_path / "real"
    real.mkdir()
    with made(str(real / "b.db")) as ledger:
        ledger_mean(ledger, "first")
    if through == "link to its folder":
        (tmp_path / "link").symlink_to(real)
        link = tmp_path / "link" / "b.db"
    else:
        link = tmp_path / "b.db"
        link.symlink_to(real / "b.db")
        if through == "link to a link":
            (tmp_path / "second.db").symlink_to(link)
            link = tmp_path / "second.db"
    old = (real / "b.db").read_bytes()
    with Ledger(link) as ledger:
        ledger_mean(ledger, "second")
    assert {path.resolve() for path in tmp_path.rglob("*.head")} == {(real / "b.db.head").resolve()}
    (real / "b.db").write_bytes(old)
    for name in (real / "b.db", link):
        with pytest.raises(hetdp.HetdpError, match="old copy"):
            Ledger(name).close()


def test_row_110_control_a_head_file_that_was_named_is_that_file(tmp_path):
    (tmp_path / "link.db").symlink_to(tmp_path / "b.db")
    with Ledger.create(tmp_path / "b.db", head_file=tmp_path / "elsewhere") as ledger:
        ledger.enroll(dict.fromkeys(PEOPLE, 1))
    with Ledger(tmp_path / "link.db", head_file=tmp_path / "elsewhere") as ledger:
        ledger_mean(ledger)
    assert {path.name for path in tmp_path.iterdir() if "head" in path.name or path.name == "elsewhere"} == {
        "elsewhere"
    }


# ---------------------------------------------------------------------------------------------------------
# 111: what is behind an error


def telling(cell):
    raise ValueError(f"the cell is {cell}")


PRIVATE = pl.DataFrame({"x": [0.5, float(MARKER)], "e": [1.0, 1.0], "id": ["a", "b"], "t": ["0.5", MARKER]})


def in_polars(**columns):
    return lambda: PRIVATE.lazy().with_columns(**columns)


def in_duckdb(value):
    """A query whose value column is this expression."""

    def make():
        connection = duckdb.connect()
        connection.register("people", PRIVATE.to_arrow())
        return connection.sql(f"select {value} as x, e, id from people")  # noqa: S608

    return make


def without_its_table():
    connection = duckdb.connect()
    connection.register("arrow", PRIVATE.to_arrow())
    connection.execute("create table people as select * from arrow")
    view = connection.sql("select * from people")
    connection.execute("drop table people")
    return view


def in_dask():
    import dask.dataframe as dd

    frame = PRIVATE.to_pandas()
    return dd.from_pandas(frame, npartitions=1).map_partitions(lambda part: telling(part["x"].iloc[1]), meta=frame[:0])


LAZY = {
    "Polars, a function that raises": in_polars(x=pl.col("x").map_elements(telling, return_dtype=pl.Float64)),
    "Polars, a batch that raises": lambda: PRIVATE.lazy().map_batches(lambda frame: telling(frame["x"][1])),
    "Polars, a cast that fails": in_polars(x=pl.col("t").cast(pl.Int64)),
    "DuckDB, an error": in_duckdb("case when x > 1 then error('the cell is ' || x) else x end"),
    "DuckDB, a cast that fails": in_duckdb("cast(t || 'x' as double)"),
    "DuckDB, a table that is gone": without_its_table,
    "Dask, a function that raises": in_dask,
}


@pytest.mark.parametrize("ids", [False, True], ids=["rows", "people"])
@pytest.mark.parametrize("case", LAZY)
def test_row_111_a_lazy_frame_that_fails_leaves_no_cell_in_the_chain(case, ids):
    options = {"person": "id", "rows": "average"} if ids else {}
    refused(lambda: hetdp.mean(LAZY[case](), **COLUMNS, **options))


@pytest.mark.xdist_group("spark")
def test_row_111_a_query_of_spark_that_fails_leaves_no_cell_in_the_chain(spark):
    from pyspark.sql import functions

    frame = spark.createDataFrame([(0.5, 1.0), (float(MARKER), 1.0)], "x double, e double")
    broken = frame.withColumn(
        "x", functions.when(frame.x > 1, functions.raise_error(frame.x.cast("string"))).otherwise(frame.x)
    )
    refused(lambda: hetdp.mean(broken, **COLUMNS))


def parquet(path):
    pl.DataFrame({"x": [MARKER] * 999, "e": ["1"] * 999}).write_parquet(path, compression="uncompressed")
    data = bytearray(path.read_bytes())
    data[4:40] = b"\xff" * 36
    path.write_bytes(data)


def cut(path):
    pl.DataFrame({"x": [MARKER] * 999, "e": ["1"] * 999}).write_parquet(path)
    path.write_bytes(path.read_bytes()[:-20])


def ipc(path):
    pl.DataFrame({"x": [MARKER] * 999, "e": ["1"] * 999}).write_ipc(path)
    path.write_bytes(path.read_bytes()[:300])


DAMAGED = {
    "Parquet, a damaged page": parquet,
    "Parquet, cut": cut,
    "Arrow, cut": ipc,
    "gzip": lambda path: path.write_bytes(b"\x1f\x8b" + f"x,e\n{MARKER},1\n".encode()),
    "a header that is a row and no UTF-8": lambda path: path.write_bytes(f"{MARKER},\xff\n".encode("latin-1")),
    "a header that no reader takes": lambda path: path.write_text(f"{MARKER},{'x' * 200_000}\n"),
    "JSON lines": lambda path: path.write_text(f'{{"x": "{MARKER}, "e": 1}}\n'),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_row_111_a_damaged_file_leaves_nothing_in_the_chain(case, tmp_path):
    path = tmp_path / ("people.ndjson" if case == "JSON lines" else "people")
    DAMAGED[case](path)
    for read in (hetdp.read, hetdp.mean, hetdp.check):
        refused(lambda read=read: read(path, **COLUMNS), str(path))


def test_row_111_nor_does_one_that_is_read_after_a_charge(tmp_path):
    path = tmp_path / "people.parquet"
    frame = pl.DataFrame({"x": [MARKER] * 200, "id": PEOPLE})
    frame.write_parquet(path, compression="uncompressed")
    path.write_bytes(path.read_bytes().replace(MARKER.encode(), b"\xff" * len(MARKER)))  # no text any more
    with made(str(tmp_path / "b.db")) as ledger, pytest.raises(hetdp.HetdpError, match="is charged") as caught:
        ledger.mean(path, value="x", person="id", bounds=(0, 1), release_id="may", spend=0.1)
    assert all(isinstance(error, hetdp.HetdpError) for error in behind(caught.value))


def outer(body, digest=None):
    return json.dumps({"warning": "", "sha256": digest or hetdp.tally.tally._digest(body), "body": body})


TALLIES = {
    "no JSON": f'{{"total": [{MARKER}',
    "a body that is no JSON": outer(f'{{"total": [{MARKER}'),
    "a body that is no JSON and a wrong checksum": outer(f'{{"total": [{MARKER}', "0"),
    "no body": json.dumps({"total": MARKER}),
    "a sum that is a text": "total",
    "a level that is a text": "epsilon",
    "bytes": b"\xff" + MARKER.encode(),
}


@pytest.mark.parametrize("case", TALLIES)
def test_row_111_a_broken_tally_file_leaves_nothing_in_the_chain(case, tmp_path):
    path, data = tmp_path / "t.tally", TALLIES[case]
    if data in {"total", "epsilon"}:
        hetdp.read([0.5], epsilon=[1.0], bounds=(0, 1)).save(path)
        fields = json.loads(json.loads(path.read_text())["body"])
        data = outer(json.dumps({**fields, data: [f"{MARKER}x"]}))
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    refused(lambda: hetdp.Tally.load(path), "")


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
def test_row_111_a_query_that_fails_leaves_nothing_in_the_chain(engine, tmp_path, request):
    if engine == "sqlite":
        url = f"sqlite:///{tmp_path / 't.db'}"
        with sqlite3.connect(tmp_path / "t.db") as connection:
            connection.execute("create table t (x text, e real)")
            connection.execute("insert into t values (?, 1.0)", [MARKER])
        query = "select json(x || '{') as x, e from t"
    else:
        url = request.getfixturevalue("libpq_url")
        query = f"select ('{MARKER}' || substr('x', 1, 1))::float8 as x, 1.0::float8 as e"
    refused(lambda: hetdp.mean(url, query=query, **COLUMNS))


def test_row_111_control_the_walk_finds_what_from_none_leaves_behind():
    def leaky():
        try:
            telling(MARKER)
        except ValueError:
            raise InputError("a value cannot be read") from None

    with pytest.raises(AssertionError):
        refused(leaky)


# ---------------------------------------------------------------------------------------------------------
# Errors that were raw


@pytest.mark.parametrize("epsilons", [(1.0, math.nextafter(1.0, 0)), (0.1, math.nextafter(0.1, 0)), (2.0, 1.0, 0.5)])
def test_sampling_works_where_two_levels_are_one_ulp_apart(epsilons):
    levels = [epsilon for epsilon in epsilons for _ in range(50)]
    released = hetdp.mean([0.5] * len(levels), epsilon=levels, bounds=(0, 1), method="sampling")
    assert released.plan.n == len(levels)
    assert all(row.spent <= row.epsilon for row in released.plan.table)


def test_a_column_of_python_objects_in_polars_is_read_cell_by_cell():
    columns = {"x": [0.25, "0.75", None, object()], "e": [1, "1", "1.0", Fraction(1)], "id": ["a", "b", "c", 4]}
    frame = pl.DataFrame({name: pl.Series(cells, dtype=pl.Object) for name, cells in columns.items()})
    tally = hetdp.read(frame, **COLUMNS, person="id")
    assert (tally.n, tally.table.total[:, 0].tolist()) == (4, [2 * GRID])
    assert "PRIVATE" in hetdp.check(frame, **COLUMNS).report()
    bad = frame.with_columns(pl.Series("e", [1, 1, 1, "none"], dtype=pl.Object))
    refused(lambda: hetdp.read(bad, **COLUMNS), "row 3")


def test_a_decimal_that_is_too_wide_is_refused_by_its_column():
    wide = pa.array([Decimal(MARKER)], pa.decimal256(60, 4))
    refused(lambda: hetdp.read(pa.table({"x": wide, "e": [1.0]}), **COLUMNS), "'x'", "decimal256", "float64")


@pytest.mark.parametrize("tiers", ["tiers.toml", [("a", 1)], 5, ("a",)], ids=str)
def test_tiers_that_are_no_mapping_are_refused_in_one_sentence(tiers, tmp_path):
    refused(lambda: hetdp.mean([0.5], epsilon=["a"], bounds=(0, 1), tiers=tiers), "tiers are a mapping")
    with Ledger.create(tmp_path / "b.db") as ledger:
        refused(lambda: ledger.enroll({"p": "a"}, tiers=tiers), "tiers are a mapping")


VALUE = {"a list": [float(MARKER)], "a series": pd.Series([float(MARKER)]), "a number": 3, "an array": np.ones(2)}


@pytest.mark.parametrize("value", VALUE)
def test_values_given_as_the_name_of_their_column_are_refused_in_one_sentence(value):
    frame = pl.DataFrame({"x": [0.5], "e": [1.0]})
    for call in (hetdp.mean, hetdp.read, hetdp.check):
        refused(lambda call=call: call(frame, value=VALUE[value], epsilon="e", bounds=(0, 1)), "name of a column")
