"""Every kind of file gives the same people, cell by cell, and no private cell reaches beyond itself.

The oracle reads the cells of a table one by one in Python, by `value_of` and `epsilon_of`. Names of tests and their
ids carry the row of the catalogue of bad inputs that they stand for.
"""

from __future__ import annotations

import bz2
import gzip
import itertools
import json
import lzma
import math
import os
import struct
import sys
from dataclasses import replace
from pathlib import Path
from unittest import mock

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import hetdp
from hetdp.core.domain import epsilon_of, value_of
from hetdp.sources import columns, delimited, files, ndjson
from hetdp.sources.columns import values_of
from hetdp.sources.files import Files
from hetdp.sources.request import Form, Request, tiers_of
from support import examples

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

MARKER = "98765.4321"
ASKED = Request("x", "e", "id", by="g")
PAIR = Request("x", "e")


# ---------------------------------------------------------------------------------------------------------
# What is read, as plain Python


def number(x):
    """A double by its bits, so that −0.0 is not 0.0 and every NaN is one."""
    return "nan" if math.isnan(x) else struct.pack("<d", x).hex()


def rows(names, asked=ASKED, tiers=None, form=None, watch=None, **options):
    """Everything that is read, a tuple a person: value, ε, texts."""
    names = [names] if isinstance(names, (str, os.PathLike)) else names
    asked, people = replace(asked, tiers=tiers_of(tiers), form=form or Form()), []
    for batch in Files(names, watch).batches(asked, **options):
        assert batch.epsilon.dtype == np.float64
        values = [None] * batch.epsilon.size if batch.values is None else map(float, batch.values)
        texts = [batch.texts[name].to_list() for name in asked.texts]
        people += zip(values, batch.epsilon.tolist(), *texts, strict=True)
    return [(None if x is None else number(x), e + 0.0, *texts) for x, e, *texts in people]


def outcome(call):
    """The result, or what a user sees of a public error."""
    try:
        return call()
    except hetdp.InputError as error:
        return str(error)


def refused(call, *fragments):
    """The call raises a public error that says where, and nothing private is in it or in its chain."""
    with pytest.raises(hetdp.InputError) as caught:
        call()
    for fragment in fragments:
        assert fragment in str(caught.value)
    assert MARKER not in str(caught.value)
    assert caught.value.__context__ is None


def write(path, data):
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


# ---------------------------------------------------------------------------------------------------------
# One table, every kind of file

VALUES = [
    "0.5", " 2.5 ", "\t2.5", "+1", ".5", "5.", "1e0", "1E+2", "-1", "-0.0", "0", "5e-324", "-5e-324", "1e-400", "inf",
    "1e-310", "-inf", "Infinity", "-INFINITY", "+inf", "1e999", "-1e999", "9007199254740993", "18446744073709551615",
    "-" + "9" * 400, "0." + "3" * 60, "1" * 40 + "e-40", "2.2250738585072011e-308", "1.7976931348623158e308",
    "1.7976931348623159e308", "9223372036854775807e-19", "7.2057594037927933e16", "0.1e-6", "123456789012345678",
    "1234567890123456789", "12345678901234567890", "000000000000000000000000000001.5", "1e23", "8.5e22", "", " ", "nan",
    "NaN", "NA", "n/a", "null", "None", "-", ".", "+", "e5", "1e", "1e+", "1 2", "++1", "1.5.2", MARKER + "x", "1_000",
    "0x1F", "１２", "\u22120.5", "٣", "½", "true", "=1+1", "@SUM(A1)", "2024-01-31", "12:30", "infinit", "infinityy",
    "in f", "\xa05", "5\x00", "\x0b5", "\ufeff1", "\x1a", "é", "1;2", "i", "n", "+", "-i", "1e5e5", "0b1", "5\x7f",
]  # fmt: skip
EPSILONS = [
    "0", "-0.0", "1e-400", "inf", "public", "Infinity", "PUBLIC", "0.1", " 1 ", "1e0", "+20", "5e-324", "1e300", "4",
    "1.7976931348623157e308", "0.3333333333333333", "2.5", "0.05",
]  # fmt: skip
IDS = ["007", "7", " 7", "7 ", "Ann", "ann", "é", "e\u0301", "", "NaN", "null", "1e5", "😀", "\u0085", "a\x00b", "'"]
GROUPS = ["north", "south", "", "N/A"]
TABLE = [
    (x, EPSILONS[i % len(EPSILONS)], f"{IDS[i % len(IDS)]}", GROUPS[i % len(GROUPS)]) for i, x in enumerate(VALUES * 3)
]
MEANT = [(number(value_of(x)), epsilon_of(e) + 0.0, who, group) for x, e, who, group in TABLE]
NUMBERS = [(x, e, who, group) for x, e, who, group in TABLE if not math.isnan(value_of(x)) and value_of(x) != math.inf]


def quoted(cell, delimiter):
    return f'"{cell}"' if delimiter in cell else cell


def csv(table, delimiter=",", end="\n"):
    """The columns g, x, id, e: public ones on both sides of the value."""
    lines = [delimiter.join([g, quoted(x, delimiter), who, e]) for x, e, who, g in table]
    return end.join([delimiter.join(["g", "x", "id", "e"]), *lines, ""]).encode()


def json_lines(table, value=lambda x: x, epsilon=lambda e: e):
    people = ({"g": g, "x": value(x), "unasked": [1, {"x": 2}], "id": who, "e": epsilon(e)} for x, e, who, g in table)
    return "".join(json.dumps(person) + "\n" for person in people).encode()


def frame(table):
    return pl.DataFrame(table, schema=dict.fromkeys("xe", pl.String) | {"id": pl.String, "g": pl.String}, orient="row")


def comma(cell):
    return cell.replace(".", ",")


def stored(path, how):
    getattr(frame(TABLE), how)(path)
    return path


GERMAN = [(comma(x), comma(e), who, g) for x, e, who, g in TABLE]
KINDS = {
    "CSV": lambda path: write(path / "t.csv", csv(TABLE)),
    "CSV with CRLF": lambda path: write(path / "t.csv", csv(TABLE, end="\r\n")),
    "CSV, no name": lambda path: write(path / "t", csv(TABLE).removesuffix(b"\n")),
    "gz": lambda path: write(path / "t.csv.gz", gzip.compress(csv(TABLE))),
    "gz named .csv, row 73": lambda path: write(path / "t.csv", gzip.compress(csv(TABLE))),
    "CSV named .gz, row 73": lambda path: write(path / "t.gz", csv(TABLE)),
    "two members of gz": lambda path: write(
        path / "t.gz", gzip.compress(csv(TABLE)[:500]) + gzip.compress(csv(TABLE)[500:])
    ),
    "zst": lambda path: write(path / "t.csv.zst", zstd.compress(csv(TABLE))),
    "zst named .parquet": lambda path: write(path / "t.parquet", zstd.compress(csv(TABLE))),
    "two frames of zst": lambda path: write(
        path / "t.zst", zstd.compress(csv(TABLE)[:500]) + zstd.compress(csv(TABLE)[500:])
    ),
    "Parquet": lambda path: stored(path / "t.parquet", "write_parquet"),
    "Parquet named .csv": lambda path: stored(path / "t.csv", "write_parquet"),
    "Arrow file": lambda path: stored(path / "t.arrow", "write_ipc"),
    "Arrow stream": lambda path: stored(path / "t.arrows", "write_ipc_stream"),
    "JSON lines": lambda path: write(path / "t.ndjson", json_lines(TABLE)),
    "JSON lines named .csv": lambda path: write(path / "t.csv", json_lines(TABLE)),
    "JSON lines, BOM, CRLF, blanks": lambda path: write(
        path / "t.jsonl", b"\xef\xbb\xbf" + json_lines(TABLE).replace(b"\n", b"\r\n\r\n \n").removesuffix(b"\n")
    ),
    "JSON lines, gz": lambda path: write(path / "t.gz", gzip.compress(json_lines(TABLE))),
    "JSON lines, zst": lambda path: write(path / "t.zst", zstd.compress(json_lines(TABLE))),
}


@pytest.mark.parametrize("block", [7, 2**22])
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_file_gives_the_oracles_people_in_order(kind, block, tmp_path, monkeypatch):
    monkeypatch.setattr(files, "BLOCK", block)
    monkeypatch.setattr(columns, "ROWS", 10 * block)
    assert rows(KINDS[kind](tmp_path)) == MEANT


@pytest.mark.parametrize("kind", ["CSV", "JSON lines", "Parquet", "Arrow file"])
def test_the_owner_sees_the_same_people_and_which_are_missing(kind, tmp_path):
    path = KINDS[kind](tmp_path)
    assert rows(path, owner=True) == MEANT
    batches = list(Files([path]).batches(ASKED, owner=True))
    assert [x for batch in batches for x in batch.missing.tolist()] == [
        value_of(x) != value_of(x) and x.strip(" \t").lower() in {"", "nan", "na", "n/a", "null", "none", "-", "."}
        for x, *_ in TABLE
    ]
    first = {"CSV": 2}.get(kind, 1)
    assert [place for batch in batches for place in batch.places.tolist()] == [*range(first, first + len(TABLE))]


@pytest.mark.parametrize("decimal", [".", ","])
@pytest.mark.parametrize("delimiter", [";", "\t", "|", "~", " "])
def test_any_delimiter_and_decimal_sign_give_the_oracles_people(delimiter, decimal, tmp_path):
    table = [row for row in (GERMAN if decimal == "," else TABLE) if not any(delimiter in cell for cell in row)]
    meant = [row for row, cells in zip(MEANT, TABLE, strict=True) if not any(delimiter in cell for cell in cells)]
    path = write(tmp_path / "t.csv", csv(table, delimiter))
    assert rows(path, form=Form(delimiter, decimal)) == meant


@pytest.mark.parametrize("kind", ["CSV", "Parquet", "JSON lines"])
def test_numbers_with_a_decimal_comma_and_thousands_are_read_as_said(kind, tmp_path):
    cells = {
        "1.234,5": 1234.5, "-12.345.678": -12345678.0, "0,5": 0.5, "1.234e1": 12340.0, "1.23": None, "0.123": None,
        "1234.567": None, "1.2345": None, "1.234.56": None, ".123": None, "1,234.5": None, "1.234,": 1234.0, "5": 5.0,
        "1.5": None, "inf": math.inf, "1.234,567.890": None, ",5": 0.5,
    }  # fmt: skip
    table = [(x, "1.000,5", "a", "b") for x in cells]
    form = Form(";", ",", ".")
    path = {
        "CSV": lambda: write(tmp_path / "t.csv", csv(table, ";")),
        "JSON lines": lambda: write(tmp_path / "t.ndjson", json_lines(table)),
        "Parquet": lambda: tmp_path / "t.parquet",
    }[kind]()
    if kind == "Parquet":
        frame(table).write_parquet(path)
    want = [(number(math.nan if x is None else x), 1000.5, "a", "b") for x in cells.values()]
    assert rows(path, form=form) == want
    assert {x for x, *_ in rows(path, PAIR, {"1.000,5": 1}, form=form)} == {x for x, *_ in want}, "tiers are no numbers"


def test_a_point_is_no_decimal_sign_where_a_comma_is_row_65(tmp_path):
    path = write(tmp_path / "t.csv", "x;e\n1,5;0,5\n1.5;0,5\n")
    refused(lambda: rows(path, PAIR), "no column 'x'", "';'")
    assert rows(path, PAIR, form=Form(";", ",")) == [(number(1.5), 0.5), ("nan", 0.5)]
    refused(lambda: rows(path, PAIR, form=Form(";")), "line 2")
    refused(lambda: rows(write(tmp_path / "u.csv", "x;e\n1;0.5\n"), PAIR, form=Form(";", ",")), "line 2")
    refused(lambda: rows(path, PAIR, form=Form(decimal=",")), "delimiter")
    tabs = write(tmp_path / "t.tsv", "x\te\n1,5\t0,5\n")
    assert rows(tabs, PAIR, form=Form(decimal=",")) == [(number(1.5), 0.5)]


@pytest.mark.parametrize(
    "signs",
    [(",", ","), (".", "."), (";", ",", ","), ("",), (";;",), ("a",), ("7",), ('"',), ("é",), ("\n",),
     ("-",), (";", "'"), (";", ",", "5"), (";", ",", "ab"), (";", ",", "+"), (None, ",", ",")],
    ids=repr,
)  # fmt: skip
def test_signs_that_would_mean_two_things_are_refused(signs):
    refused(lambda: Form(*signs))


def test_json_numbers_are_the_nearest_doubles_as_texts_are(tmp_path):
    texts = [
        (x, e) for x, e, *_ in TABLE if x.strip(" \t").removeprefix("-")[:1].isdigit() and not math.isnan(value_of(x))
    ]
    texts = [(x.strip(" \t"), e) for x, e in texts if not x.startswith("0000") and not x.rstrip().endswith(".")]
    lines = [f'{{"e": {json.dumps(e)}, "x": {x}}}' for x, e in texts]
    path = write(tmp_path / "t.ndjson", "\n".join(lines))
    assert rows(path, PAIR) == [(number(value_of(x)), epsilon_of(e) + 0.0) for x, e in texts]
    assert len(texts) > 50


def test_one_epsilon_for_all_and_no_value_work_in_every_kind(tmp_path):
    for kind, make in KINDS.items():
        folder = tmp_path / str(len(kind))
        folder.mkdir(exist_ok=True)
        path = make(folder)
        assert rows(path, Request("x", 0.25, by="g")) == [(x, 0.25, g) for x, _, _, g in MEANT]
        assert rows(path, Request("x", math.inf)) == [(x, math.inf) for x, *_ in MEANT]
        assert rows(path, Request(None, "e", "id")) == [(None, e, who) for _, e, who, _ in MEANT]


# ---------------------------------------------------------------------------------------------------------
# Polars' lenient cast is the rule of `core.domain`


def cast(texts):
    """Values as the files' readers read them, all in one column and each in a column of its own."""
    together = values_of(pl.Series(texts, dtype=pl.String)).tolist()
    alone = [values_of(pl.Series([text], dtype=pl.String)).item() for text in texts[:1000]]
    assert [*map(number, together[:1000])] == [*map(number, alone)], "what stands in other cells changes nothing"
    return together


def disagreements(texts, reader=cast):
    return [text for text, x in zip(texts, reader(texts), strict=True) if number(x) != number(value_of(text))]


HALVES = (
    [str(mantissa * 2**shift) for shift in range(1, 11) for mantissa in (2**53 + 1, 2**54 - 1, 2**53 + 3, 2**53 + 5)]
    + [f"{(2**54 + odd) / 4:.2f}" for odd in (1, 3)]
    + ["0.500000000000000166", "0.500000000000000166533453693773481063"]
)
digits = st.from_regex(r"\A[ \t]?[+-]?[0-9]{0,12}\.?[0-9]{0,12}([eE][+-]?[0-9]{0,3})?[ \t]?\Z")
words = st.text("0123456789+-.eEinftyINFTY_x, \t", max_size=9)
doubles = st.floats().map(repr)
scaled = st.tuples(st.integers(0, 10**19 - 1), st.integers(-350, 320)).map(lambda pair: f"{pair[0]}e{pair[1]}")


@settings(max_examples=examples(50), deadline=None)
@given(
    st.lists(
        st.one_of(digits, words, doubles, scaled, st.text(st.characters(exclude_categories=["Cs"]), max_size=5)),
        min_size=5,
        max_size=30,
    )
)
def test_a_cast_reads_any_text_as_the_rule_does(texts):
    assert disagreements(texts) == []


def test_a_cast_reads_a_hundred_thousand_random_numbers_as_the_rule_does():
    rng = np.random.default_rng(4)
    bits = rng.integers(0, 2**64, 40_000, dtype=np.uint64).view(np.float64)
    wide = [f"{w}e{q}" for w, q in zip(rng.integers(0, 2**63, 30_000), rng.integers(-345, 310, 30_000), strict=True)]
    texts = [*map(repr, bits.tolist()), *map(repr, rng.random(30_000).tolist()), *wide]
    assert disagreements(texts) == []


def test_a_cast_reads_ties_powers_and_short_texts_as_the_rule_does():
    powers = [f"{w}e{q}" for w in (1, 5, 9, 2**53 - 1, 2**53 + 1, 2**63, 10**19 - 1) for q in range(-345, 312)]
    short = ["".join(t) for length in range(4) for t in itertools.product("019+-.eEinfx \t", repeat=length)]
    assert disagreements([*HALVES, *powers, *short, *VALUES]) == []


@pytest.mark.parametrize("name", ["products round twice", "half rounds up", "leading zeros count"])
def test_control_the_comparison_notices_a_parser_that_is_almost_right(name):
    def twice(text):
        mantissa, _, exponent = text.partition("e")
        return float(mantissa) * 10.0 ** float(exponent or 0)

    def up(text):
        return float(int(text) + (int(text).bit_length() > 53)) if text.isdigit() else value_of(text)

    def short(text):
        return value_of(text[:19])

    wrong = {"products round twice": twice, "half rounds up": up, "leading zeros count": short}[name]
    texts = {"products round twice": [f"{10**17 + k}e-18" for k in range(50)], "half rounds up": HALVES[:40]}
    assert disagreements(texts.get(name, ["0" * 25 + "1.5"]), lambda some: [*map(wrong, some)])
    assert not disagreements(texts.get(name, ["0" * 25 + "1.5"]))


fields = st.one_of(
    st.sampled_from(
        [*map(str.encode, VALUES), *map(str.encode, EPSILONS), b'"', b'"1"', b'"a,b"', b"05", b"-1", b"\xff"]
    ),
    st.binary(max_size=4),
)
lines_of = st.lists(st.lists(fields, max_size=4).map(b",".join), max_size=6)
good = st.tuples(fields, st.sampled_from([b"1", b"0.5", b"public", b"Inf", b"+2"])).map(b",".join)


@settings(max_examples=examples(150), deadline=None)
@given(
    lines=st.lists(st.one_of(lines_of.map(b"\n".join), good), max_size=8),
    header=st.sampled_from([b"x,e", b"e,x", b"x,e,id", b"id,x,e", b"g,x,id", b"x"]),
    ends=st.sampled_from([b"\n", b"\r\n"]),
    block=st.sampled_from([1, 60, 2**22]),
    tiers=st.sampled_from([{}, {"1": 0.01, "0.5": 3, "public": 0.1}, {"shy": 1, "+2": 0.2}]),
)
def test_polars_reads_plain_lines_as_the_careful_way_does_for_any_bytes(
    lines, header, ends, block, tiers, tmp_path_factory
):
    path = write(tmp_path_factory.getbasetemp() / "any.csv", ends.join([header, *lines]))
    names = header.decode().split(",")
    person, by = ("id" if "id" in names else None), ("g" if "g" in names else None)
    asked = Request("x", "e" if "e" in names else 1.0, person, by=by)

    def none_is_plain(self, block, data, ends):
        return np.zeros(ends.size, bool)

    with mock.patch.object(files, "BLOCK", block):
        seen = outcome(lambda: rows(path, asked, tiers))
        with mock.patch.object(delimited.Layout, "_plain", none_is_plain):
            assert outcome(lambda: rows(path, asked, tiers)) == seen


def test_a_tier_whose_name_is_a_number_is_that_tier_and_no_epsilon(tmp_path):
    """Tier "1" may be the strictest; a number that names no tier is refused by its line."""
    tiers = {"1": 0.01, "2": 0.1}
    path = write(tmp_path / "t.csv", "x,e\n" + "0.5,1\n0.5, 2\n" * 50)
    other = write(tmp_path / "o.csv", "x,e\n" + "0.5,1\n" * 50 + "0.5,3\n")
    assert rows(path, PAIR, tiers) == [(number(0.5), 0.01), (number(0.5), 0.1)] * 50
    refused(lambda: rows(other, PAIR, tiers), "line 52", "tiers")


# ---------------------------------------------------------------------------------------------------------
# A line is a person: public texts stay where they are, whatever the value holds

raw = st.one_of(
    st.binary(max_size=12),
    st.text('",;\t 0123456789.\rxe', max_size=14).map(str.encode),
    st.lists(st.sampled_from([b'"', b",", b"0.9", b'""', b",0.9,", b"inf", b" ", b"\t"]), max_size=6).map(b"".join),
).map(lambda cell: cell.replace(b"\n", b""))


@settings(max_examples=examples(150), deadline=None)
@given(cell=raw, layout=st.permutations(["x", "e", "id", "g"]), who=st.integers(0, 2))
@example(cell=b'"', layout=["id", "x", "g", "e"], who=1)
@example(cell=b',"', layout=["e", "x", "id", "g"], who=1)
def test_whatever_stands_in_a_value_cell_nobodys_id_group_or_epsilon_moves(cell, layout, who, tmp_path_factory):
    """A quoted cell may hold anything. What is not quoted can change the layout of its line: then it is refused."""
    public = [("007", "0.5", "n"), ('"Smith, Ann"', '"2"', " s "), ('"say ""hi"""', "inf", "")]
    meant = [("007", 0.5, "n"), ("Smith, Ann", 2.0, " s "), ('say "hi"', math.inf, "")]
    lines = [",".join(layout).encode()]
    for i, (name, level, group) in enumerate(public):
        cells = {"x": b"CELL" if i == who else b"1", "e": level.encode(), "id": name.encode(), "g": group.encode()}
        lines.append(b",".join(cells[column] for column in layout))
    text = b"\n".join(lines)
    for written in (b'"' + cell.replace(b'"', b'""') + b'"', cell):
        path = write(tmp_path_factory.getbasetemp() / "reach.csv", text.replace(b"CELL", written))
        people = outcome(lambda path=path: rows(path))
        if isinstance(people, str) and written is cell and (b"," in cell or b'"' in cell):
            assert f"line {who + 2} of" in people
            continue
        assert [(name, level, group) for _, level, name, group in people] == meant
        assert [x for i, (x, *_) in enumerate(people) if i != who] == [number(1.0)] * 2


@pytest.mark.parametrize("line", [f"{MARKER},7", f"7,{MARKER}", f"{MARKER}", '"' + MARKER])
@pytest.mark.parametrize("header", ["x,id,e", "id,x,e", "x,e,id"])
def test_a_short_line_never_lends_its_value_as_an_id_row_68(header, line, tmp_path):
    told = outcome(lambda: rows(write(tmp_path / "t.csv", f"{header}\n{line}\n"), Request("x", "e", "id")))
    assert "line 2" in told
    assert MARKER not in told


def test_a_short_line_is_a_person_if_all_that_is_public_stands_left_of_the_value_row_68(tmp_path):
    path = write(tmp_path / "t.csv", f"e,id,x,note\n1,a,{MARKER}\n2,b,3,\n")
    asked = Request("x", "e", "id", promised=False)
    assert rows(path, asked) == [("nan", 1.0, "a"), (number(3.0), 2.0, "b")]
    assert rows(path, replace(asked, promised=None)) == rows(path, asked), "it falls into a cell of its own"
    promised = replace(asked, promised=True)
    refused(lambda: rows(path, promised), "line 2 of", "3 fields and the header 4", "promised")


LONG = {"stray delimiter": "Bob,1,5,0.1", "decimal commas": "Bob,1,5,0,1", "one at the end": f"Bob,{MARKER},0.1,"}


@pytest.mark.parametrize("line", LONG)
def test_rows_69_and_112_a_line_with_surplus_fields_is_refused_by_its_number(line, tmp_path):
    path = write(tmp_path / "t.csv", f"name,x,eps\nEve,2,0.2\n{LONG[line]}\n")
    refused(lambda: rows(path, Request("x", "eps", "name")), "line 3 of", "fields and the header 3")
    refused(lambda: rows(path, Request(None, "eps", "name")), "line 3 of", "fields and the header 3")


def test_rows_69_and_112_a_quoted_cell_may_hold_the_delimiter(tmp_path):
    path = write(tmp_path / "t.csv", 'name,x,eps\nBob,"1,5","0.1"\n"Eve, Dr.",2,0.2\n')
    assert rows(path, Request("x", "eps", "name")) == [("nan", 0.1, "Bob"), (number(2.0), 0.2, "Eve, Dr.")]


def test_row_112_decimal_commas_do_not_make_an_epsilon_ten_times_too_large(tmp_path):
    path = write(tmp_path / "t.csv", "value,eps\n1,5,0,1\n")
    refused(lambda: rows(path, Request("value", "eps")), "line 2 of", "decimal commas")


OPEN_QUOTES = ['Bob,"1,0.1', '"Bob,1,0.1', 'Bob,1,"0.1', 'Bob,"1"2,0.1', f'Bob,"{MARKER},"0.1"']


@pytest.mark.parametrize("line", OPEN_QUOTES)
def test_row_70_an_open_quote_is_the_layout_of_its_line_alone(line, tmp_path):
    path = write(tmp_path / "t.csv", f'name,x,eps\nEve,2,0.2\n{line}\nAda,"3",0.3\n')
    refused(lambda: rows(path, Request("x", "eps", "name")), "line 3 of", "quote")


def test_row_70_a_quote_inside_a_cell_is_a_character_of_it(tmp_path):
    path = write(tmp_path / "t.csv", 'name,x,eps\n12" nail,2",0.2\n')
    assert rows(path, Request("x", "eps", "name")) == [("nan", 0.2, '12" nail')]


def test_in_a_file_of_one_column_a_blank_line_is_a_person_without_a_value(tmp_path):
    path = write(tmp_path / "t.csv", "x\n1\n\n  \n2\n")
    assert rows(path, Request("x", math.inf)) == [
        (number(1.0), math.inf),
        *[("nan", math.inf)] * 2,
        (number(2.0), math.inf),
    ]


def test_a_type_that_changes_late_changes_nothing_row_72(tmp_path):
    n = 250_000
    text = "x,e\n" + "1,0.5\n" * n + MARKER + "x,0.5\n" + "2.5,0.5\n"
    people = rows(write(tmp_path / "t.csv", text), PAIR)
    assert people[:n] == [(number(1.0), 0.5)] * n
    assert people[n:] == [("nan", 0.5), (number(2.5), 0.5)]


# ---------------------------------------------------------------------------------------------------------
# JSON lines

CELLS = {
    "1": 1.0, "-0": -0.0, "1e400": math.inf, "-1E400": -math.inf, "9" * 400: math.inf, "9007199254740993": 2.0**53,
    "NaN": None, "Infinity": math.inf, "-Infinity": -math.inf, "null": None, "true": 1.0, "false": 0.0, "[1]": None,
    '{"x": 1}': None, '"5"': 5.0, '" 5 "': 5.0, '"5\\n"': None, '"\\ud800"': None, '"\\u0035"': 5.0,
    '"tab\there"': None,
    "[" * 100_000 + "]" * 100_000: None, "1,5": None, "abc": None, '""': None, "05": None, "+1": None, ".5": None,
    '"a" "b"': None, "1 2": None, '"é"': None, "\x00": None, "": None, '{"e": 9}': None, '[{"e": 9}, "}"]': None,
    '"\\"e\\": 9"': None, '"\\": 9, \\"e\\": 9"': None, "[redacted": None, "x]": None, "}": None,
    "{{]": None, "[1, 2": None,
}  # fmt: skip


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: repr(cell[:12]))
@pytest.mark.parametrize("order", ["x first", "x last"])
def test_a_value_of_any_kind_is_one_persons_value_in_json_lines(cell, order, tmp_path):
    member = f'"x":{cell}'
    line = f'{{{member}, "e": 0.5, "id": 7}}' if order == "x first" else f'{{"e": 0.5, "id": 7,{member}}}'
    path = write(tmp_path / "t.ndjson", f'{{"x": 3, "e": 1, "id": "a"}}\n{line}\n{{"id": "b", "e": "1", "x": null}}\n')
    want = math.nan if CELLS[cell] is None else CELLS[cell]
    assert rows(path, Request("x", "e", "id")) == [(number(3.0), 1.0, "a"), (number(want), 0.5, "7"), ("nan", 1.0, "b")]


@pytest.mark.parametrize("cell", [b"\xff\xfe", b'"\xff"', b'"\xe4"'])
def test_bytes_that_are_no_text_are_an_unreadable_value_in_json_lines_row_67(cell, tmp_path):
    path = write(tmp_path / "t.ndjson", b'{"x": ' + cell + b', "e": 1}\n')
    assert rows(path, PAIR) == [("nan", 1.0)]


BAD_LINES = {
    "no object": MARKER, "an array": f"[{MARKER}, 1]", "open": f'{{"x": {MARKER}, "e": 1', "text": f'"{MARKER}"',
    "open quote": f'{{"x": "{MARKER}, "e": 1}}', "a key in brackets": f'{{"x": [{MARKER}, "e": 9, "e": 1}}',
    "two on a line": f'{{"x": {MARKER}, "e": 1}} {{"x": 1, "e": 1}}', "no e": f'{{"x": {MARKER}}}',
    "e null": f'{{"x": {MARKER}, "e": null}}', "e true": f'{{"x": {MARKER}, "e": true}}',
    "e nested": f'{{"x": 1, "e": [{MARKER}]}}', "e NaN": f'{{"x": {MARKER}, "e": NaN}}',
    "e too large": '{"x":1,"e":1e400}',
    "e twice": f'{{"x": {MARKER}, "e": 1, "e": 2}}', "x twice": f'{{"x": {MARKER}, "e": 1, "x": 2}}',
    "no comma": f'{{"e": 0.5 "x": {MARKER}}}', "no key": f'{{{MARKER}, "e": 1}}',
    "e below 0": f'{{"x": {MARKER}, "e": -1}}',
    "bad key": f'{{"\\x": {MARKER}, "e": 1}}', "empty": "{}", "e as a tier": f'{{"x": {MARKER}, "e": "open"}}',
}  # fmt: skip


@pytest.mark.parametrize("line", BAD_LINES)
def test_a_bad_json_line_is_refused_by_its_number_alone(line, tmp_path):
    path = write(tmp_path / "t.ndjson", f'{{"x": 1, "e": 1}}\n\n{BAD_LINES[line]}\n')
    refused(lambda: rows(path, PAIR), "line 3", "t.ndjson")


def test_a_json_array_is_refused_with_what_to_do_instead(tmp_path):
    refused(lambda: rows(write(tmp_path / "t.json", f'[\n {{"x": {MARKER}, "e": 1}}]'), PAIR), "one JSON object a line")
    assert rows(write(tmp_path / "t.csv", "[x],e\n1,1\n"), Request("[x]", "e")) == [(number(1.0), 1.0)]


@settings(deadline=None)
@given(
    value=st.recursive(
        st.one_of(
            st.none(), st.booleans(), st.floats(), st.integers(), st.text(max_size=5), st.just('", "e": 9, "y": "')
        ),
        lambda inner: st.one_of(
            st.lists(inner, max_size=3), st.dictionaries(st.sampled_from("xey"), inner, max_size=2)
        ),
        max_leaves=5,
    ),
    ascii_only=st.booleans(),
)
def test_what_a_json_library_writes_is_one_persons_value(value, ascii_only, tmp_path_factory):
    line = json.dumps({"a": 1, "x": value, "e": 0.5}, ensure_ascii=ascii_only)
    path = write(tmp_path_factory.getbasetemp() / "t.ndjson", line.encode("utf-8", "surrogatepass"))
    want = math.nan if isinstance(value, (list, dict)) else value_of(value)
    assert rows(path, PAIR) == [(number(want), 0.5)]


# ---------------------------------------------------------------------------------------------------------
# Ids and groups by type


@pytest.mark.parametrize("kind", ["write_parquet", "write_ipc", "write_ipc_stream"])
def test_ids_may_be_whole_numbers_text_or_categories_and_nothing_else(kind, tmp_path):
    path = tmp_path / "t"
    good = {
        "int": pl.Series([7, -1, None], dtype=pl.Int64), "uint": pl.Series([2**64 - 1, 0, None], dtype=pl.UInt64),
        "text": pl.Series(["007", "", None]), "category": pl.Series(["a", "b", None], dtype=pl.Categorical),
        "enum": pl.Series(["a", "b", None], dtype=pl.Enum(["a", "b"])),
    }  # fmt: skip
    for name, ids in good.items():
        getattr(pl.DataFrame({"x": [1.0, 2, 3], "e": [1.0, 1, 1], name: ids}), kind)(path)
        want = [None if cell is None else str(cell) for cell in ids.to_list()]
        assert [person for *_, person in rows(path, Request("x", "e", name))] == want
    bad = [
        pl.Series([1.0]),
        pl.Series([True]),
        pl.Series(["2024-01-31"]).str.to_date(),
        pl.Series([b"a"]),
        pl.Series([["a"]]),
        pl.Series([None]),
    ]
    for ids in bad:
        getattr(pl.DataFrame({"x": [98765.4321], "e": [1.0], "id": ids}), kind)(path)
        refused(lambda: rows(path, Request("x", "e", "id")), "'id'", "text or whole numbers")


@pytest.mark.parametrize("cell", ["1.5", "true", "[1]", "{}", "1e3", "NaN"])
def test_a_json_id_that_is_neither_text_nor_whole_is_refused(cell, tmp_path):
    path = write(tmp_path / "t.ndjson", f'{{"x": {MARKER}, "e": 1, "id": {cell}}}\n')
    refused(lambda: rows(path, Request("x", "e", "id")), "line 1", "'id'")


def test_a_null_in_a_column_of_numbers_is_a_missing_value(tmp_path):
    table = pl.DataFrame({"x": [1.0, None, math.nan], "e": [1, 2, 3], "n": [None, 5, None]})
    for how in ("write_parquet", "write_ipc"):
        getattr(table, how)(tmp_path / "t")
        assert rows(tmp_path / "t", PAIR) == [(number(1.0), 1.0), ("nan", 2.0), ("nan", 3.0)]
        assert [x for x, _ in rows(tmp_path / "t", Request("n", "e"))] == ["nan", number(5.0), "nan"]


def test_a_column_whose_name_looks_like_a_pattern_is_that_column_alone(tmp_path):
    pl.DataFrame({"^.*$": [1.0], "x": [2.0], "e": [3.0]}).write_parquet(tmp_path / "t")
    assert rows(tmp_path / "t", Request("^.*$", "e")) == [(number(1.0), 3.0)]


# ---------------------------------------------------------------------------------------------------------
# Several files


def test_several_files_and_kinds_are_one_table_in_order(tmp_path):
    parts = [TABLE[:50], TABLE[50:51], TABLE[51:]]
    one = write(tmp_path / "a.csv", csv(parts[0]))
    two = write(tmp_path / "b.ndjson", json_lines(parts[1]))
    frame(parts[2]).write_parquet(tmp_path / "c.parquet")
    names = [one, str(two), tmp_path / "c.parquet"]
    assert rows(names) == MEANT
    assert rows(str(tmp_path / "*")) == MEANT, "a pattern gives its files in order of name"
    assert rows([str(tmp_path / "[ab].*"), tmp_path / "c.parquet"]) == MEANT
    assert Files(names).size == sum(path.stat().st_size for path in tmp_path.iterdir())


@pytest.mark.slow
def test_progress_is_told_in_rows_and_bytes_and_ends_at_all_of_them(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "BLOCK", 100)
    monkeypatch.setattr(columns, "ROWS", 10)
    names = []
    for i, make in enumerate(KINDS.values()):
        (tmp_path / str(i)).mkdir()
        names.append(make(tmp_path / str(i)))
    told = []
    people = rows(names, watch=lambda n, size: told.append((n, size)))
    assert told == sorted(told)
    assert told[-1] == (len(people), Files(names).size) == (len(MEANT) * len(names), told[-1][1])
    assert len({size for _, size in told}) > 2 * len(names)


def test_the_same_file_twice_is_refused_by_whatever_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(Path("t.csv"), csv(TABLE))
    Path("link").symlink_to("t.csv")
    os.link("t.csv", "hard.csv")
    for names in (
        ["t.csv"] * 2,
        ["t.csv", tmp_path / "t.csv"],
        ["t.csv", "link"],
        ["t.csv", "hard.csv"],
        ["t*", "link"],
    ):
        refused(lambda names=names: rows(names), "same file")
    assert rows("link") == MEANT, "a link to a file on this machine is that file, row 80"


def test_a_pattern_that_matches_nothing_is_refused_and_a_file_with_such_a_name_is_read(tmp_path):
    refused(lambda: rows(str(tmp_path / "*.csv")), "*.csv")
    refused(lambda: rows([]), "no file")
    (tmp_path / "deep").mkdir()
    refused(lambda: rows(str(tmp_path / "d*")), "no file")
    assert rows(write(tmp_path / "t[1].csv", csv(TABLE))) == MEANT


@pytest.mark.parametrize("kind", ["csv", "ndjson", "parquet"])
def test_a_fault_in_one_of_several_files_names_that_file(kind, tmp_path):
    good = write(tmp_path / "good.csv", csv(TABLE))
    bad = tmp_path / f"bad.{kind}"
    for level in ("-1", "x"):
        table = [(MARKER, "1", "c", "d"), ("1", level, "a", "b")]
        if kind == "parquet":
            frame(table).write_parquet(bad)
        else:
            write(bad, csv(table) if kind == "csv" else json_lines(table))
        refused(lambda: rows([good, bad]), f"bad.{kind}")
    other = Request("x", "e", "who")
    if kind != "ndjson":
        refused(lambda: rows(bad, other), f"bad.{kind}", "'who'")


# ---------------------------------------------------------------------------------------------------------
# The catalogue of bad files, rows 58 to 81, for the kinds that test_sources.py does not have

BODY = f"x,e\n{MARKER},1\n{MARKER}x,1\n"
ARROW = pl.DataFrame({"x": [98765.4321] * 400, "e": [1.0] * 400})


def arrow(table, how="write_ipc"):
    import io

    getattr(table, how)(buffer := io.BytesIO())
    return buffer.getvalue()


FILES = {
    "59 empty gz": (gzip.compress(b""), "n = 0"),
    "59 empty zst": (zstd.compress(b""), "n = 0"),
    "60 header only, gz": (gzip.compress(b"x,e\n"), None),
    "60 blank JSON lines": (b"{", "line 1"),
    "61 no header, gz": (gzip.compress(f"{MARKER},1\n".encode()), "header"),
    "62 duplicate header, zst": (zstd.compress(b"x,x,e\n1,2,3\n"), "two columns"),
    "62 duplicate names, Arrow": (None, "cannot be read"),
    "64 other spaces, Arrow": (arrow(pl.DataFrame({"x ": [98765.4321], "e": [1.0]})), "'x '"),
    "65 semicolons, gz": (gzip.compress(BODY.replace(",", ";").encode()), "';'"),
    "67 UTF-16, gz": (gzip.compress(BODY.encode("utf-16")), "UTF-8"),
    "67 Latin-1 header, zst": (zstd.compress(BODY.replace("e\n", "\xe9\n", 1).encode("latin-1")), "UTF-8"),
    "73 gz in gz": (gzip.compress(gzip.compress(BODY.encode())), "decompress"),
    "73 zst in gz": (gzip.compress(zstd.compress(BODY.encode())), "decompress"),
    "73 Parquet in gz": (gzip.compress(arrow(ARROW, "write_parquet")), "decompress"),
    "73 Arrow in zst": (zstd.compress(arrow(ARROW)), "decompress"),
    "73 zip in gz": (gzip.compress(b"PK\x03\x04" + BODY.encode()), "zip"),
    "73 bzip2": (bz2.compress(BODY.encode()), "bzip2"),
    "73 xz": (lzma.compress(BODY.encode()), "xz"),
    "73 Excel": (b"PK\x03\x04" + BODY.encode(), "Excel"),
    "73 old Excel": (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + BODY.encode(), "Excel"),
    "74 gz mark only": (b"\x1f\x8b", "unreadable"),
    "74 gz with something behind": (gzip.compress(BODY.encode()) + BODY.encode(), "unreadable"),
    "74 gz with a wrong sum": (gzip.compress(BODY.encode())[:-8] + bytes(8), "unreadable"),
    "74 zst mark only": (b"\x28\xb5\x2f\xfd", "unreadable"),
    "74 Arrow mark only": (b"ARROW1\x00\x00", "cannot be read"),
    "74 Arrow stream mark only": (b"\xff\xff\xff\xff", "cannot be read"),
    "77 no columns, Arrow": (arrow(pl.DataFrame()), "'x'"),
    "77 nested, Arrow": (arrow(pl.DataFrame({"x": [[1.0]], "e": [1.0]})), "'x'"),
    "77 dates, Arrow stream": (
        arrow(pl.DataFrame({"x": pl.Series(["2024-01-31"]).str.to_date(), "e": [1.0]}), "write_ipc_stream"),
        "'x'",
    ),
    "78 no rows, Arrow": (arrow(ARROW.clear()), None),
    "78 no rows, Arrow stream": (arrow(ARROW.clear(), "write_ipc_stream"), None),
}  # fmt: skip


@pytest.mark.parametrize("row", FILES)
def test_a_bad_file_is_refused_without_a_word_about_its_values_row(row, tmp_path):
    data, fragment = FILES[row]
    path = tmp_path / "t"
    if data is None:
        columns = pa.Table.from_arrays([pa.array([98765.4321])] * 2 + [pa.array([1.0])], names=["x", "x", "e"])
        with pa.ipc.new_file(path, columns.schema) as out:
            out.write_table(columns)
    else:
        write(path, data)
    if fragment is None:
        assert rows(path, PAIR) == []
        refused(lambda: hetdp.read(path, value="x", missing="midpoint", epsilon="e", bounds=(0, 1)), "n = 0")
    else:
        refused(lambda: rows(path, PAIR), fragment)


@pytest.mark.parametrize(
    "data",
    [gzip.compress(BODY.encode() * 50), zstd.compress(os.urandom(3000).hex().encode()), arrow(ARROW)],
    ids=["gz", "zst", "Arrow file"],
)
def test_a_file_that_is_cut_short_anywhere_is_refused_row_74(data, tmp_path):
    for size in range(8, len(data), max(1, len(data) // 40)):
        refused(lambda size=size: rows(write(tmp_path / f"t{size}", data[:size]), PAIR), str(tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize("how", ["write_parquet", "write_ipc"])
def test_a_damaged_file_never_gives_some_of_its_people_row_76(how, tmp_path, capfd):
    """A reader that stops at damage must not pass for one that came to the end: everybody or nobody."""
    table = pl.DataFrame({"x": [f"{MARKER}{i}" for i in range(4000)], "e": np.linspace(0.1, 5, 4000)})
    if how == "write_parquet":
        table.write_parquet(tmp_path / "whole", row_group_size=500)
    else:
        packed = pa.ipc.IpcWriteOptions(compression="zstd")
        with pa.ipc.new_file(tmp_path / "whole", (arrow_table := table.to_arrow()).schema, options=packed) as out:
            out.write_table(arrow_table, max_chunksize=500)
    data = (tmp_path / "whole").read_bytes()
    seen = set()
    for place in range(8, len(data) - 8, len(data) // 60):
        damaged = bytearray(data)
        damaged[place : place + 8] = bytes(byte ^ 0xFF for byte in damaged[place : place + 8])
        path = write(tmp_path / f"at {place}", bytes(damaged))  # threads that gave up may still look at the last one
        with mock.patch.object(columns, "ROWS", 100):
            told = outcome(lambda path=path: rows(path, PAIR))
        seen.add(told if isinstance(told, str) else len(told))
    assert {size for size in seen if isinstance(size, int)} <= {4000}
    assert any(isinstance(told, str) for told in seen), "some of the damage is seen"
    assert MARKER not in str(seen) + "".join(capfd.readouterr())


def test_an_arrow_stream_that_is_cut_short_is_refused_or_read_up_to_there_but_never_shown_row_74(tmp_path):
    data = arrow(ARROW, "write_ipc_stream")
    for size in range(8, len(data), len(data) // 40):
        told = outcome(lambda size=size: rows(write(tmp_path / f"t{size}", data[:size]), PAIR))
        assert MARKER not in str(told)


@pytest.mark.parametrize("pack", [gzip.compress, zstd.compress], ids=["gz", "zst"])
def test_a_bomb_is_refused_row_75(pack, tmp_path, monkeypatch):
    monkeypatch.setattr(files, "BLOCK", 2**16)
    monkeypatch.setattr(files, "MOST_AT_ONCE", 2**18)
    monkeypatch.setattr(files, "RATIO", 50)
    monkeypatch.setattr(files, "LONGEST_LINE", 2**20)
    refused(lambda: rows(write(tmp_path / "t", pack(b"x,e\n" + b"\n" * 2**20)), PAIR), "times its size")
    refused(lambda: rows(write(tmp_path / "t", pack(b"x,e\n" + b"1,1\n" * 2**18)), PAIR), "times its size")
    honest = "x,e\n" + "".join(f"{np.random.default_rng(i).random()},1\n" for i in range(20_000))
    assert len(rows(write(tmp_path / "t", pack(honest.encode())), PAIR)) == 20_000


def test_one_endless_line_is_refused_row_75(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "BLOCK", 2**10)
    monkeypatch.setattr(files, "LONGEST_LINE", 2**14)
    monkeypatch.setattr(files, "LONGEST_HEADER", 2**12)
    refused(lambda: rows(write(tmp_path / "t", "x,e\n" + MARKER * 2**12), PAIR), "line of more than")
    refused(lambda: rows(write(tmp_path / "t", "x,e" + MARKER * 2**16), PAIR), "header of more than")
    refused(lambda: rows(write(tmp_path / "t", '{"x": ' + MARKER * 2**12), PAIR), "line of more than")


def test_a_header_may_be_longer_than_the_first_bytes_read(tmp_path):
    names = [f"column {i} of a wide table" for i in range(5000)]
    path = write(tmp_path / "t.csv", f"{','.join(names)},x,e\n{','.join('1' * 5000)},2.5,0.5\n")
    assert rows(path, PAIR) == [(number(2.5), 0.5)]


@pytest.mark.parametrize("kind", ["JSON lines", "Arrow file", "gz"])
def test_a_file_that_changes_while_it_is_read_is_refused_row_79(kind, tmp_path, monkeypatch):
    path = KINDS[kind](tmp_path)
    module = {"JSON lines": ndjson, "Arrow file": columns, "gz": delimited}[kind]
    original = module.batch_of

    def touching(*args, **options):
        os.utime(path, ns=(1, 1))
        return original(*args, **options)

    monkeypatch.setattr(module, "batch_of", touching)
    refused(lambda: rows(path), "changed")


@pytest.mark.parametrize("kind", ["JSON lines", "Arrow file", "Arrow stream", "zst"])
def test_formula_cells_are_unreadable_values_row_81(kind, tmp_path):
    people = rows(KINDS[kind](tmp_path))
    assert {people[i][0] for i, (x, *_) in enumerate(TABLE) if x in {"=1+1", "@SUM(A1)"}} == {"nan"}
