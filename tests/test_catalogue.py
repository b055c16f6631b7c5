"""The first 99 rows of `docs/bad-inputs.md`, each with a case whose name begins with its number (`pytest -k "07"`).

A row about a *value* is silent: exit code 0, nothing on stderr, the documented rule in the tally, and everything public
as with ordinary values. A row about something *public* is refused: exit code 2, one line that names the place or the
remedy, no noise drawn. Neither shows a private cell: not in the output, the log, an exception or what led to it.
"""

from __future__ import annotations

import datetime as dt
import gzip
import itertools
import json
import logging
import math
import os
import re
import sqlite3
import sys
import threading
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import hetdp
import oracle
from hetdp import cli as _cli
from hetdp.ledger import Ledger
from hetdp.ledger import charge as ledger_charge
from hetdp.ledger import store as ledger_store
from hetdp.privacy import release as _release
from hetdp.server import app as server_app
from hetdp.sources import columns, delimited, files
from hetdp.tally import Tally
from oracle import code, seen
from serving import NUMBER, logged, saying, served, settings_for

zstd = import_module("compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd")
MARKER = "98765.4321"
BOUNDS = (0.0, 4.0)
COLUMNS = ("--value", "x", "--epsilon", "e")
MISSING = ("--missing", "midpoint")
TABLE = (*COLUMNS, *MISSING, "--bounds", "0", "4")
AVERAGED = ("--person", "id", "--rows", "average")
LEVELS = ("0.5", "1", "inf", "0.5", "0")
OTHERS = (MARKER, "3", "", "0.75")
COUNT_AS = (4.0, 3.0, None, 0.75)
"""What the cells of the people beside the one whom a row is about count as."""


# ---------------------------------------------------------------------------------------------------------
# The tools: files, the oracle, and the two checks


@dataclass(frozen=True)
class World:
    """A folder, the command line, patches and the log."""

    folder: Path
    run: Callable[..., tuple[int, str, str]]
    patch: pytest.MonkeyPatch
    log: pytest.LogCaptureFixture

    def file(self, data: Any, name: str = "people") -> Path | str:
        """Write a table: text or bytes as they are, a frame as Parquet; a function makes its own file."""
        if callable(data):
            return data(self)
        if isinstance(data, (str, bytes)):
            path = self.folder / f"{name}.csv"
            path.write_bytes(data if isinstance(data, bytes) else data.encode())
            return path
        path = self.folder / f"{name}.parquet"
        pq.write_table(data, path) if isinstance(data, pa.Table) else data.write_parquet(path)
        return path

    def no_release(self) -> None:
        self.patch.setattr(_release, "noisy", lambda *_: pytest.fail("noise was drawn"))


@pytest.fixture
def world(tmp_path, hetdp_command, monkeypatch, caplog):
    caplog.set_level(logging.DEBUG)
    return World(tmp_path, hetdp_command, monkeypatch, caplog)


def table(cells, levels=LEVELS, layout="{id},{x},{e}", end="\n"):
    """A delimited file by hand, one line a person."""
    header = layout.format(id="id", x="x", e="e")
    lines = [layout.format(id=f"p{i}", x=x, e=e) for i, (x, e) in enumerate(zip(cells, levels, strict=True))]
    return end.join([header, *lines]) + end


def expected(numbers, levels):
    return oracle.expected(zip(numbers, map(float, levels), strict=True), BOUNDS)


NOISY = ("estimate", "unclamped", "interval")


def public(facts):
    """Everything in a release's JSON but the noisy number, what is computed from it, and where it comes from."""
    return {key: fact for key, fact in facts.items() if key not in {*NOISY, "provenance"}}


@lru_cache
def public_of_ordinary(levels):
    """What is public about a release of these people when every value is an ordinary one."""
    ordinary = hetdp.mean([1.25] * len(levels), epsilon=list(map(float, levels)), bounds=BOUNDS, missing="midpoint")
    return public(ordinary.to_dict())


def chain(call):
    """All that an error says, and the errors behind it, those that a traceback would not show included."""
    told, left = [], []
    try:
        call()
    except Exception as error:  # noqa: BLE001  whatever it is, nothing private may be in it
        left.append(error)
    while left:
        error = left.pop()
        told.append(f"{error} {error!r} {error.args}")
        left += [cause for cause in (error.__cause__, error.__context__) if cause is not None]
    return " ".join(told)


def check_silent(world, data, numbers, levels=LEVELS, options=TABLE, secrets=(MARKER,)):
    """The values of a table count by the documented rule and change nothing public."""
    path = world.file(data)
    code_, released, err = world.run("mean", path, *options, "--json")
    assert (code_, err) == (0, "")
    assert public(json.loads(released)) == public_of_ordinary(tuple(levels))
    part = world.folder / "part.tally"
    code_, said, err = world.run("tally", path, *options, "-o", part, "--force")
    assert (code_, err) == (0, "")
    tally = Tally.load(part)
    assert seen(tally) == expected(numbers, levels)
    plain = [math.nan if number is None else number for number in numbers]
    assert tally == hetdp.read(plain, epsilon=list(map(float, levels)), bounds=BOUNDS, missing="midpoint")
    code_, shown, err = world.run("check", path, *without("--missing", options))
    assert (code_, shown[:7], err) == (0, "PRIVATE", "")
    told = " ".join([released, said, world.log.text])
    assert not [secret for secret in secrets if secret in told]


def check_refused(world, data, words, options=TABLE, command="mean"):
    """A public fault is one line on stderr that says where, before any noise is drawn, without a private cell."""
    world.no_release()
    path = world.file(data) if data is not None else None
    arguments = [command, *([path] if path is not None else []), *options]
    code_, out, err = world.run(*arguments)
    assert (code_, out, err.count("\n")) == (2, "", 1), err
    assert err.startswith("hetdp: ")
    assert "Traceback" not in err
    assert [word for word in words.split("|") if word not in err] == [], err
    behind = chain(lambda: _cli.app([str(argument) for argument in arguments], standalone_mode=False))
    assert behind, "the same command did not raise"
    assert MARKER not in err + behind + world.log.text


def check_raised(world, call, words):
    """A public fault in Python is an InputError that says what, without a private cell and without noise."""
    world.no_release()
    with pytest.raises(hetdp.InputError) as refused:
        call()
    assert [word for word in words.split("|") if word not in str(refused.value)] == [], refused.value
    assert MARKER not in chain(call) + world.log.text


@dataclass(frozen=True)
class Case:
    """One row, or a part of it: a name that begins with the row's number, and what the check of its table needs."""

    id: str
    what: Any
    expect: Any = None
    options: tuple[str, ...] = TABLE
    more: dict[str, Any] = field(default_factory=dict)


def rows(cases):
    return pytest.mark.parametrize("case", cases, ids=[case.id for case in cases])


# ---------------------------------------------------------------------------------------------------------
# Values as text: the same cell in a delimited file, a Parquet file, a list, and frames

MIDPOINT = {
    "01 NaN": ("NaN", "nan", "-nan"),
    "02 empty cell": ("", " ", "\t"),
    "06 words for missing": ("NA", "null", "None", "-", "n/a", "N/A", "?"),
    "07 text that looks like a value": (MARKER + "x", f"about {MARKER}", "98765.4321.1"),
    "09 other notations": ("0x1F", "1_000", "\uff11", "\u22120.5", "\u0663"),
    "11 dates as text": ("2024-01-31", "12:30", "2024-01-31T12:30:00Z"),
    "81 formula cells": ("=1+1", f"={MARKER}", "@SUM(A1)", "+1+1", "-2+3"),
}
NUMBERS = {
    "03 infinities": {"inf": math.inf, "-inf": -math.inf, "Infinity": math.inf},
    "04 1e999": {"1e999": math.inf, "-1e999": -math.inf},
    "05 outside the bounds": {"4.000001": 4.0, "-0.1": 0.0, MARKER: 4.0, "-" + MARKER: 0.0},
    "10 true and false as text": {"true": 1.0, "False": 0.0, "TRUE": 1.0, " false ": 0.0, "True": 1.0, "FALSE": 0.0},
    "12 minus zero and subnormal": {"-0.0": 0.0, "5e-324": 0.0, "-5e-324": 0.0, "1e-400": 0.0},
    "13 integers above 2^53": {"9007199254740993": 4.0, "-18446744073709551617": 0.0, "9" * 400: 4.0},
}
TEXTS = [Case(row, dict.fromkeys(cells)) for row, cells in MIDPOINT.items()] + [
    Case(row, cells) for row, cells in NUMBERS.items()
]


def in_memory(cells, levels=LEVELS):
    """The same people in a list, an array, and the frames of three libraries."""
    columns, more = {"x": list(cells), "e": list(levels)}, {"bounds": BOUNDS, "missing": "midpoint"}
    yield hetdp.read(columns["x"], epsilon=columns["e"], **more)
    yield hetdp.read(np.array(cells, dtype=object), epsilon=np.array(levels, dtype=object), **more)
    for frame in (pd.DataFrame(columns, dtype=object), pd.DataFrame(columns), pl.DataFrame(columns), pa.table(columns)):
        yield hetdp.read(frame, value="x", epsilon="e", **more)


def files_of(world, columns):
    """The same columns in a Parquet file, an Arrow file and a file of JSON lines."""
    frame, folder = pl.DataFrame(columns), world.folder
    frame.write_parquet(folder / "same.parquet")
    frame.write_ipc(folder / "same.arrow")
    frame.write_ndjson(folder / "same.ndjson")
    return [folder / f"same.{kind}" for kind in ("parquet", "arrow", "ndjson")]


@rows(TEXTS)
def test_a_text_in_a_value_cell_counts_by_the_rule_and_changes_nothing_else(world, case):
    for cell, number in case.what.items():
        cells, numbers = [cell, *OTHERS], [number, *COUNT_AS]
        secrets = [MARKER, *([cell] if len(cell) > 5 else [])]
        check_silent(world, table(cells), numbers, secrets=secrets)
        assert [seen(tally) for tally in in_memory(cells)] == [expected(numbers, LEVELS)] * 6
        for path in files_of(world, pa.table({"x": cells, "e": LEVELS})):
            assert seen(hetdp.read(path, value="x", missing="midpoint", epsilon="e", bounds=BOUNDS)) == expected(
                numbers, LEVELS
            ), path


EDGES = (0.0, 1.0, 4.0)
CELLS = {
    "edges": (("--edges", "0,1,4"), hetdp.ask.histogram(edges=EDGES)),
    "texts": (("--categories", "3,yes"), hetdp.ask.histogram(categories=["3", "yes"])),
}


def place(cell, kind):
    """The cell of a histogram in which a text is: the last one unless it is a number between edges, or the category."""
    if kind == "texts":
        return ["3", "yes"].index(cell) if cell in ("3", "yes") else 2
    number = oracle.meaning(cell)
    return 2 if number is None or not 0 <= number <= 4 else int(number >= 1)


@rows([replace(case, id=f"{case.id}, in a histogram") for case in TEXTS])
@pytest.mark.parametrize("kind", CELLS)
def test_a_text_in_a_value_cell_is_in_its_cell_or_the_last_one_and_changes_nothing_else(world, case, kind):
    flags, asked = CELLS[kind]
    shown = set()
    for cell in (*case.what, "3"):
        cells = [cell, *OTHERS]
        path = world.file(table(cells))
        code_, out, err = world.run("histogram", path, *COLUMNS, *flags, "--json")
        assert (code_, err) == (0, "")
        released = json.loads(out)
        assert [row["name"] for row in released["results"]] == list(asked.sorting.labels)
        shown.add(json.dumps({key: fact for key, fact in released.items() if key not in ("results", "provenance")}))
        found = hetdp.read(path, value="x", epsilon="e", statistic=asked).table
        for level, total in zip(found.epsilon.tolist(), found.total.tolist(), strict=True):
            at = [place(x, kind) for x, e in zip(cells, LEVELS, strict=True) if float(e) == level > 0]
            assert total == [at.count(i) * oracle.GRID for i in range(3)]
        assert MARKER not in out + world.log.text
    assert len(shown) == 1


# ---------------------------------------------------------------------------------------------------------
# Values in files: lines that are not plain, typed columns, whole tables


def typed(kind, values=(0.5, 3.0, 98765.0, 1.0, 0.0)):
    """A table whose value column has a declared type."""
    column = values if isinstance(values, pa.Array) else pa.array(values, kind)
    return pa.table({"x": column, "e": list(LEVELS)})


def victim(cell, layout="{id},{x},{e}"):
    """A delimited file in which one person's cell is this text, whatever it holds."""
    return table([cell, *OTHERS], layout=layout)


ODD = [None, *COUNT_AS]
FIVE = [0.5, 3.0, 4.0, 1.0, 0.0]
SEMICOLONS = ("--delimiter", ";", "--decimal", ",", "--thousands", ".")
LONG = 200_001
FILES = [
    Case("02 null in a typed column", typed(pa.float64(), [None, 3.0, 98765.0, 1.0, 0.0]), [None, *FIVE[1:]]),
    Case("08 thousands sign quoted", victim('"1,000"'), ODD),
    Case("08 thousands sign and point quoted", victim('"2,500.5"'), ODD),
    Case("08 decimal comma quoted", victim('"0,5"'), ODD),
    Case("08 decimal comma quoted, epsilon left of the value", victim('"0,5"', "{e},{id},{x}"), ODD),
    Case("08 decimal comma that was declared", victim("0,5", "{id};{x};{e}").replace(".", ","),
         [0.5, *COUNT_AS], (*TABLE, *SEMICOLONS)),
    Case("08 thousands sign that was declared", victim("1.000", "{id};{x};{e}").replace("0.5", "0,5"),
         [4.0, None, *COUNT_AS[1:]], (*TABLE, *SEMICOLONS)),
    Case("10 a column declared boolean", typed(pa.bool_(), [True, False, True, None, True]), [1, 0, 1, None, 1]),
    Case("13 a column of int64", typed(pa.int64(), [2**63 - 1, -(2**63), 2**53 + 1, 3, 1]), [4, 0, 4, 3, 1]),
    Case("14 a column of float32", typed(pa.float32()), FIVE),
    Case("14 a column of float16", typed(pa.float16(), np.array([0.5, 3, 60000, 1, 0], np.float16)), FIVE),
    Case("15 decimal128", typed(pa.decimal128(38, 4), [Decimal(t) for t in ("0.5", "3", MARKER, "1", "-9")]), FIVE),
    Case("15 uint64", typed(pa.uint64(), [2**64 - 1, 3, 98765, 1, 0]), [4.0, *FIVE[1:]]),
    Case("16 categories of text", typed(None, pa.array([MARKER, "3", "n/a", "True", "0"]).dictionary_encode()),
         [4.0, 3.0, None, 1.0, 0.0]),
    Case("18 all values missing", table([""] * 5), [None] * 5),
    Case("18 a column without a type", typed(pa.null(), [None] * 5), [None] * 5),
    Case("19 a constant column", table([MARKER] * 5), [4.0] * 5),
    Case("67 bytes that are not UTF-8", victim("@").encode().replace(b"@", b"\xff\xfe1"), ODD),
    Case("67 Latin-1 in a cell", victim("98765\u20ac4321").encode("cp1252"), ODD),
    Case("68 short row, epsilon left of the value", victim("@", "{e},{id},{x}").replace(",@", ""), ODD),
    Case("69 delimiter between quotes", 'name,x,e\nBob,"1,5",0.1\n', [None], more={"levels": ["0.1"]}),
    Case("69 delimiters between quotes, epsilon left of the value", victim(f'"1,{MARKER},0.1"', "{e},{id},{x}"), ODD),
    Case("70 quote between quotes", victim('""""'), ODD),
    Case("70 quote and text between quotes", victim(f'"""{MARKER}"'), ODD),
    Case("70 quotes between quotes that reach for the next column", victim('"1"",""2"', "{e},{x},{id}"), ODD),
    Case("70 quote inside a cell", victim('2"'), ODD),
    Case("71 NUL in a cell", victim("1\x00"), ODD),
    Case("71 carriage returns only", table(["1", *OTHERS], end="\r"), [1.0, *COUNT_AS]),
    Case("71 carriage return and line feed", table(["1", *OTHERS], end="\r\n"), [1.0, *COUNT_AS]),
    Case("71 no final newline", table(["1", *OTHERS]).rstrip("\n"), [1.0, *COUNT_AS]),
    Case("71 blank lines", table(["1", *OTHERS], end="\n\n \n"), [1.0, *COUNT_AS]),
    Case("72 another type after 200000 rows",
         lambda world: world.file(table(["3"] * (LONG - 1) + [f"{MARKER}x"], ["1"] * LONG)),
         [3.0] * (LONG - 1) + [None], more={"levels": ["1"] * LONG}),
]  # fmt: skip


@rows(FILES)
def test_a_table_with_odd_values_counts_everybody_by_the_rule(world, case):
    check_silent(world, case.what, case.expect, options=case.options, **case.more)
    if isinstance(case.what, pa.Table):
        arrow_file = files_of(world, case.what)[1]
        for same in (arrow_file, case.what):
            tally = hetdp.read(same, value="x", missing="midpoint", epsilon="e", bounds=BOUNDS)
            assert seen(tally) == expected(case.expect, LEVELS)


MIXED = [1.5, "2.5", f"{MARKER}x", None, b"3", True, Decimal("0.5"), 10**400, [1], "n/a", np.float32(3), MARKER]
MEANT = [1.5, 2.5, None, None, None, 1.0, 0.5, math.inf, None, None, 3.0, math.inf]
ARRAYS = [
    Case("01 NaN in an array", np.array([math.nan, 3.0, 98765.4321]), [None, 3.0, 4.0]),
    Case("02 None in a list", [None, 3.0, 98765.4321], [None, 3.0, 4.0]),
    Case("10 booleans in a list", [True, False, 1], [1.0, 0.0, 1.0]),
    Case("10 an array declared boolean", np.array([True, False]), [1.0, 0.0]),
    Case("11 dates among numbers", [dt.date(2024, 1, 31), np.datetime64("2024-01-31"), 1], [None, None, 1.0]),
    Case("13 Python integers of any size", [2**70, -(10**400), 3], [4.0, 0.0, 3.0]),
    Case("14 arrays of float16 and float32", np.array([0.5, 60000, np.nan], np.float16), [0.5, 4.0, None]),
    Case("15 uint64 array", np.array([2**64 - 1, 3], np.uint64), [4.0, 3.0]),
    Case("16 categories of text in memory", pd.Categorical([MARKER, "3", "n/a"]), [4.0, 3.0, None]),
    Case("17 object column that mixes types", MIXED, MEANT),
]


@rows(ARRAYS)
def test_values_in_memory_count_by_the_rule_whatever_their_cells_hold(world, case, capsys):
    n = len(case.expect)
    want = expected(case.expect, [0.5] * n)
    assert seen(hetdp.read(case.what, epsilon=[0.5] * n, bounds=BOUNDS)) == want
    as_they_are = not isinstance(case.what, list)
    frame = pd.DataFrame({"x": case.what if as_they_are else pd.Series(case.what, dtype=object)})
    assert seen(hetdp.read(frame, value="x", missing="midpoint", epsilon=0.5, bounds=BOUNDS)) == want
    release = hetdp.mean(case.what, epsilon=[0.5] * n, bounds=BOUNDS)
    ordinary = hetdp.mean([1.25] * n, epsilon=[0.5] * n, bounds=BOUNDS)
    assert public(release.to_dict()) == public(ordinary.to_dict())
    told = "".join(capsys.readouterr()) + world.log.text + release.report() + repr(release)
    assert MARKER not in told


# ---------------------------------------------------------------------------------------------------------
# Public faults on the command line


def epsilons(*cells, quote=""):
    """A table whose second person has this ε, one for each cell, with epsilon left of the value so that it is named."""
    return [f"e,id,x\n1,a,{MARKER}\n{quote}{cell}{quote},b,{MARKER}x\n" for cell in cells]


def ids(*names):
    return pl.DataFrame({"id": names, "x": [MARKER] * len(names), "e": ["1"] * len(names)})


def arrow(columns, names=("x", "e")):
    return pa.Table.from_arrays([pa.array(c) if isinstance(c, list) else c for c in columns], names=list(names))


def named(name, data):
    """A file with a name of its own."""

    def make(world):
        path = world.folder / name
        path.write_bytes(data if isinstance(data, bytes) else data.encode())
        return path

    return make


def unreadable(world):
    world.patch.setattr(os, "access", lambda *_, **__: False)
    return world.file(table(["1", *OTHERS]))


def changing(world):
    """A file that somebody touches whenever a block of it was read."""
    path, original, times = world.file(table(["1", *OTHERS])), delimited.batch_of, itertools.count(1)

    def touching(*args, **more):
        moment = next(times)
        os.utime(path, ns=(moment, moment))
        return original(*args, **more)

    world.patch.setattr(delimited, "batch_of", touching)
    return path


def cut(path_of, keep):
    """The first part of a file."""

    def make(world):
        path = world.file(path_of)
        path.write_bytes(path.read_bytes()[:keep])
        return path

    return make


def limited(data, **caps):
    """A file and smaller caps, so that the test stays small."""

    def make(world):
        for name, cap in caps.items():
            world.patch.setattr(files, name, cap)
        return named("bomb.csv", data)(world)

    return make


def special(make):
    """A path that is no regular file."""

    def prepare(world):
        world.patch.chdir(world.folder)
        path = world.folder / "special"
        if not path.exists() and not path.is_symlink():
            make(path)
        return path

    return prepare


def pipe(world):
    """A named pipe: whoever opened it would wait for ever, so that is a fault here."""
    original = Path.open

    def guarded(path, *args, **more):
        return pytest.fail("the pipe was opened") if path.is_fifo() else original(path, *args, **more)

    world.patch.setattr(Path, "open", guarded)
    return special(os.mkfifo)(world)


def without(option, options=TABLE):
    """The options of a table without one of them."""
    place = options.index(option)
    return options[:place] + options[place + (3 if option == "--bounds" else 2) :]


def bounds(lo, hi):
    return (*COLUMNS, *MISSING, "--bounds", lo, hi)


PLAIN = table(["1", *OTHERS])
BODY = PLAIN.partition("\n")[2]
MANY_LINES = b"x,e\n" + b"1,1\n" * 2**18
ONE_LINE = b"id,x,e\n" + b"0" * 2**23
HISTOGRAM = {"command": "histogram"}
REFUSED = [
    Case("08 thousands sign unquoted", victim("1,000"), "line 2 of|4 fields and the header 3"),
    Case("08 thousands sign and point unquoted", victim("2,500.5"), "line 2 of|4 fields and the header 3"),
    Case("08 decimal comma unquoted", victim("0,5", "{e},{id},{x}"), "line 2 of|4 fields and the header 3"),
    Case("11 a column declared as dates", typed(pa.date32(), [dt.date(2024, 1, 31)] * 5), "'x'|Date"),
    Case("16 bytes column", typed(pa.binary(), [MARKER.encode()] * 5), "'x'"),
    Case("16 list column", typed(pa.list_(pa.float64()), [[98765.4321]] * 5), "'x'"),
    Case("16 struct column", typed(pa.struct({"a": pa.string()}), [{"a": MARKER}] * 5), "'x'"),
    *(Case("26 negative epsilon", data, "line 3|epsilon") for data in epsilons("-0.5")),
    *(Case("26 minus infinity", data, "line 3|epsilon") for data in epsilons("-inf")),
    *(Case(f"27 epsilon {name}", data, "line 3|epsilon")
      for name, data in zip(("NaN", "empty", "text"), epsilons("nan", "", "high"), strict=True)),
    Case("27 epsilon right of the value is not quoted", f"x,e\n1,1\n{MARKER},{MARKER}x\n", "line 3|epsilon"),
    *(Case(f"29 {name} is not infinity", data, "line 3|too large|write inf")
      for name, data in zip(("1e400", "1e309"), epsilons("1e400", "1e309"), strict=True)),
    *(Case(f"32 {name}", data, "line 3|epsilon") for name, data in zip(
        ("an exponent of ten digits", "a million digits"), epsilons("1e1000000000", "9" * 10**6), strict=True)),
    *(Case("34 a fraction", data, "line 3|decimal number") for data in epsilons("1/3")),
    *(Case(f"35 {name}", data, "line 3|decimal number") for name, data in zip(
        ("Arabic digit", "full-width digit", "underscore"), epsilons("\u0663", "\uff11", "1_000"), strict=True)),
    *(Case("35 decimal comma", data, "line 3|epsilon") for data in epsilons("0,5", quote='"')),
    *(Case("36 True as text", data, "line 3|epsilon") for data in epsilons("True")),
    Case("36 a boolean column", arrow([[MARKER], [True]]), "'e'"),
    Case("41 epsilon is the value column", PLAIN, "same column|'x'", ("--value", "x", "--epsilon", "x", *TABLE[4:])),
    Case("42 two epsilons for one id", f"id,x,e\na,{MARKER},1\na,1,2\n", "'a'|epsilon", (*TABLE, *AVERAGED)),
    Case("44 equal bounds", PLAIN, "below", bounds("1", "1")),
    Case("44 swapped bounds", PLAIN, "below", bounds("4", "0")),
    Case("45 NaN as a bound", PLAIN, "finite", bounds("0", "nan")),
    Case("45 infinite bound", PLAIN, "finite", bounds("0", "inf")),
    Case("45 a span that overflows", PLAIN, "too far apart", bounds("-1e308", "1e308")),
    Case("46 no bounds", PLAIN, "--bounds", without("--bounds")),
    Case("47 bounds with a comma", PLAIN, "--bounds", bounds("0,5", "1")),
    Case("44 equal edges", PLAIN, "rise", (*COLUMNS, "--edges", "1,1"), HISTOGRAM),
    Case("44 swapped edges", PLAIN, "rise", (*COLUMNS, "--edges", "0,4,2"), HISTOGRAM),
    Case("44 a category twice", PLAIN, "twice", (*COLUMNS, "--categories", "a,b,a"), HISTOGRAM),
    Case("45 NaN among edges", PLAIN, "numbers", (*COLUMNS, "--edges", "0,nan"), HISTOGRAM),
    Case("45 an infinite edge", PLAIN, "edges|numbers", (*COLUMNS, "--edges", "0,inf"), HISTOGRAM),
    Case("46 no edges and no categories", PLAIN, "categories|edges", COLUMNS, HISTOGRAM),
    Case("46 bins without bounds", PLAIN, "bins|bounds", (*COLUMNS, "--bins", "3"), HISTOGRAM),
    Case("47 edges as text", PLAIN, "numbers", (*COLUMNS, "--edges", "0,five"), HISTOGRAM),
    *(Case(f"48 the grid is no option: {k}", PLAIN, "--grid", (*TABLE, "--grid", k)) for k in ("0", "-1", str(2**80))),
    Case("49 more people than 63 bits hold", None, "at most|people", ("--tier", f"a=1:{2**43}", "--bounds", "0", "1"),
         {"command": "plan"}),
    Case("50 no grid can be coarse", PLAIN, "-K", (*TABLE, "-K", "2")),
    Case("51 groups of an undeclared column", PLAIN, "declare|'id'", (*TABLE, "--by", "id")),
    Case("52 groups by the value", PLAIN, "same column", (*TABLE, "--by", "x", "--public-column", "x")),
    *(Case(f"52 no filter {flag}", PLAIN, flag, (*TABLE, flag, "x > 2")) for flag in ("--where", "--filter")),
    Case("54 duplicate id", ids("b", "a", "a"), "'a'|--rows", (*TABLE, "--person", "id")),
    Case("56 empty id", ids("a", ""), "missing", (*TABLE, "--person", "id")),
    Case("56 empty id in a delimited file", f"id,x,e\n,{MARKER},1\n", "missing", (*TABLE, *AVERAGED)),
    *(Case(f"57 id with {name}", ids("a", odd), "id", (*TABLE, "--person", "id")) for name, odd in {
        "a newline": "b\nc", "a quote": 'b"c', "NUL": "b\x00"}.items()),
    Case("57 id of ten megabytes", lambda world: world.file(ids("a", "b" * 10**7)), "id", (*TABLE, "--person", "id")),
    Case("57 id with a newline in a delimited file", f'id,x,e\n"a\nb",{MARKER},1\n', "line 2",
         (*TABLE, "--person", "id")),
    Case("58 not found", lambda world: world.folder / "nowhere.csv", "nowhere.csv"),
    Case("58 a directory", lambda world: world.folder, "folder"),
    Case("58 no permission", unreadable, "permission"),
    Case("59 empty file", "", "empty|n = 0"),
    Case("60 header only", "id,x,e\n", "n = 0"),
    Case("61 no header", BODY.partition("\n")[2], "no column|header"),
    Case("62 duplicate header", f"x,x,e\n{MARKER},1,1\n", "header|two columns"),
    Case("63 headers that differ by case", f"x,X,e\n{MARKER},1,1\n", "header|two columns|case"),
    Case("63 another case than asked for", f"X,e\n{MARKER},1\n", "'X'|exactly"),
    Case("64 headers with spaces", f"id, x,e\na,{MARKER},1\n", "' x'|exactly"),
    Case("65 semicolons", f"x;e\n{MARKER};1\n", "no column|delimiter"),
    Case("65 semicolons and decimal commas", "x;e\n98765,4321;0,5\n", "no column|delimiter"),
    Case("65 decimal comma that was not declared", "e;x\n1;2\n0,5;2\n", "line 3|epsilon", (*TABLE, "--delimiter", ";")),
    Case("67 UTF-16", PLAIN.encode("utf-16"), "UTF-8"),
    Case("67 Latin-1 header", f"x,\u00e9,e\n{MARKER},1,1\n".encode("latin-1"), "UTF-8"),
    Case("68 short row, epsilon right of the value", f"id,x,e\na,1,1\nb,{MARKER}\n", "line 3"),
    Case("68 short row, epsilon left of the value, and it is promised that no value is missing",
         victim("@", "{e},{id},{x}").replace(",@", ""), "line 2", (*without("--missing"), "--missing", "none")),
    Case("69 long row", f"name,x,e\nAnn,{MARKER},1\nBob,1,5,0.1\n", "line 3 of|4 fields and the header 3"),
    Case("69 long row, epsilon left of the value", victim(f"1,{MARKER},0.1", "{e},{id},{x}"), "line 2 of|5 fields"),
    Case("69 long row whose epsilon cannot be read", f"id,x,e\na,1,1\nb,1,{MARKER},{MARKER}x\n", "line 3"),
    Case("70 unclosed quote", victim('"'), "line 2 of|quote"),
    Case("70 unclosed quote before text", victim(f'"{MARKER}'), "line 2 of|quote"),
    Case("70 quotes that reach for the next column", victim(f'"1","{MARKER}', "{e},{x},{id}"), "line 2 of|quote"),
    Case("70 text behind a quoted cell", victim(f'"1"{MARKER}'), "line 2 of|quote"),
    Case("70 quote that hides the epsilon", f'id,x,e\na,1,1\nb,"{MARKER},1"\n', "line 3"),
    Case("73 zip named csv", b"PK\x03\x04" + PLAIN.encode(), "zip"),
    Case("73 nonsense after the mark of gzip", b"\x1f\x8b" + PLAIN.encode(), "unreadable"),
    Case("74 truncated gzip", named("cut.csv.gz", gzip.compress(PLAIN.encode() * 99)[:-9]), "unreadable|cut.csv.gz"),
    Case("74 truncated Parquet", cut(arrow([[MARKER] * 99, ["1"] * 99]), 200), "damaged"),
    Case("75 gzip bomb of one line", limited(gzip.compress(ONE_LINE, 1), LONGEST_LINE=2**22), "line of more than"),
    Case("75 gzip bomb of many lines", limited(gzip.compress(MANY_LINES), MOST_AT_ONCE=2**16, RATIO=100), "expands"),
    Case("75 zstd bomb of many lines", limited(zstd.compress(MANY_LINES), MOST_AT_ONCE=2**16), "expands"),
    Case("75 endless header", named("header.csv", b"x" * (2**20 + 2**17)), "header"),
    Case("75 endless line", limited(PLAIN + "1" * 2**17, LONGEST_LINE=2**16), "line of more than"),
    Case("75 zip bomb", named("bomb.zip", b"PK\x03\x04" + bytes(99)), "zip"),
    Case("77 Parquet with duplicate names", arrow([[MARKER], [MARKER], ["1"]], "xxe"), "Parquet"),
    Case("77 Parquet with zero columns", arrow([], ()), "'x'"),
    Case("77 Parquet with a nested epsilon", arrow([[MARKER], [["1"]]]), "'e'"),
    Case("78 Parquet with zero rows", arrow([pa.array([], pa.float64())] * 2), "n = 0"),
    Case("79 file changes during the run", changing, "changed"),
    *(Case(f"80 {url.partition(':')[0]} address", lambda _, url=url: url, "this machine")
      for url in ("https://example.org/people.csv", "s3://bucket/people.csv", "file:///etc/passwd")),
    Case("80 symlink to nowhere", special(lambda path: path.symlink_to("nowhere")), "file"),
    Case("80 symlink to a folder", special(lambda path: path.symlink_to(".")), "folder"),
    Case("80 named pipe", pipe, "file"),
    Case("80 device", lambda _: "/dev/zero", "file"),
    Case("87 unknown flag", PLAIN, "--fast", (*TABLE, "--fast")),
    Case("87 two ways to give epsilon", PLAIN, "--eps", (*TABLE, "--eps", "1", "--eps-column", "e")),
    Case("87 rows to average of nobody", PLAIN, "--person", (*TABLE, "--rows", "average")),
    Case("87 decimal comma of a locale", PLAIN, "--confidence", (*TABLE, "--confidence", "0,95")),
    Case("88 no seed", PLAIN, "takes no seed", (*TABLE, "--seed", "1")),
    Case("91 no verbose mode", PLAIN, "--verbose", (*TABLE, "--verbose")),
]  # fmt: skip


@rows(REFUSED)
def test_a_public_fault_is_one_line_that_says_where_and_nothing_is_released(world, case):
    check_refused(world, case.what, case.expect, case.options, **case.more)


def arrays(values, levels=(1.0,), **more):
    return lambda: hetdp.mean(values, epsilon=levels, **{"bounds": BOUNDS, **more})


def frame(column, levels=("1",)):
    return lambda: hetdp.mean(
        pd.DataFrame({"x": column, "e": list(levels)}), value="x", missing="midpoint", epsilon="e", bounds=BOUNDS
    )


PRIVATE = float(MARKER)
LABELLED = pd.Series([PRIVATE, 1.0], index=[1, 0]), pd.Series([1.0, 2.0])
RAISED = [
    Case("11 array of dates", arrays(np.array(["2024-01-31"], "M8[D]")), "dates"),
    Case("16 complex array", arrays(np.array([PRIVATE + 1j])), "complex"),
    Case("16 bytes array", arrays(np.array([MARKER.encode()])), "bytes"),
    Case("16 records", arrays(np.array([(PRIVATE,)], [("x", float)])), "records"),
    Case("16 struct in a frame", lambda: hetdp.mean(pl.DataFrame({"x": [{"a": MARKER}], "e": [1.0]}),
         value="x", missing="midpoint", epsilon="e", bounds=BOUNDS), "'x'|numbers"),
    Case("20 lengths differ", arrays([PRIVATE] * 3, [1, 2]), "3|2"),
    Case("20 lengths of arrays differ", arrays(np.full(3, PRIVATE), np.ones(2)), "3|2"),
    Case("21 two dimensions", arrays(np.full((2, 2), PRIVATE), [1, 1]), "2 dimensions"),
    Case("21 no dimension", arrays(np.array(PRIVATE)), "0 dimensions"),
    Case("21 masked array", arrays(np.ma.masked_array([PRIVATE], [False])), "masked"),
    Case("21 misaligned index", arrays(*LABELLED, missing="none"), "labels"),
    Case("22 nobody", arrays([], []), "n = 0"),
    Case("26 negative epsilon in a list", arrays([PRIVATE] * 2, [1, -0.5]), "index 1"),
    Case("27 NaN epsilon in an array", arrays([PRIVATE] * 2, np.array([1, math.nan])), "index 1"),
    Case("27 missing epsilon in a frame", frame([PRIVATE] * 2, ["1", None]), "row 1"),
    Case("29 too large a number", arrays([PRIVATE] * 2, [1, 10**400]), "index 1|write inf"),
    Case("32 an exponent of ten digits in a list", arrays([PRIVATE] * 2, [1, "1e1000000000"]), "index 1"),
    Case("36 True in a list", arrays([PRIVATE] * 2, [1, True]), "index 1|bool"),
    Case("36 an array of booleans", arrays([PRIVATE], np.array([True])), "bool"),
    Case("44 equal bounds in Python", arrays([PRIVATE], bounds=(1, 1)), "below"),
    Case("46 no bounds in Python", arrays([PRIVATE], bounds=None), "bounds"),
    Case("47 bounds as text in Python", arrays([PRIVATE], bounds=("0,5", "1")), "bound"),
    Case("49 levels of more people than 63 bits hold", lambda: hetdp.Levels({1: 2**43}), "at most"),
    Case("54 duplicate id in a list", arrays([PRIVATE] * 2, [1, 1], person=["a", "a"]), "'a'"),
]  # fmt: skip


@rows(RAISED)
def test_a_public_fault_in_python_raises_one_sentence_without_a_private_cell(world, case):
    check_raised(world, case.what, case.expect)


# ---------------------------------------------------------------------------------------------------------
# Public facts that are accepted, and what the report says about them

MANY = 70_000


def crowd(*last, n=200):
    """Many people at ε = 1 and some more: enough that the answer comes from the data."""
    return table([MARKER] * (n + len(last)), ["1"] * n + list(last))


def linked(world):
    real = named("real.csv", crowd())(world)
    return special(lambda path: path.symlink_to(real))(world)


def tier(facts, epsilon):
    return next(t for t in facts["tiers"] if t["epsilon"] == epsilon)


ACCEPTED = [
    Case("22 one person", "x,e\n3,1\n", ("NOT from the data", lambda f: f["n"] == 1 and f["abstains"])),
    Case("25 zeros of three kinds", crowd("0", "0.0", "-0"),
         ("never use", lambda f: (tier(f, 0)["people"], tier(f, 0)["weight"]) == (3, 0))),
    Case("28 three words for public", crowd("inf", "Infinity", "public"),
         ("public", lambda f: tier(f, "inf")["people"] == 3)),
    Case("30 1e-400 is 0 for a double", crowd("1e-400"), ("never use", lambda f: tier(f, 0)["weight"] == 0)),
    Case("31 1e-300", crowd("1e-300"), ("too small to count", lambda f: tier(f, 1e-300)["weight"] == 0)),
    Case("31 5e-324", crowd("5e-324"), ("too small to count", lambda f: tier(f, 5e-324)["weight"] == 0)),
    Case("33 above 20", crowd("25"), ("protects little", lambda f: tier(f, 25)["people"] == 1)),
    Case("35 blanks around a number", crowd(" 2 "), ("Estimate", lambda f: tier(f, 2)["people"] == 1)),
    Case("37 all zero", table([MARKER] * 9, ["0"] * 9), ("NOT from the data", lambda f: f["abstains"])),
    Case("38 all infinite", table(["3"] * 9, ["inf"] * 9),
         ("no noise was needed", lambda f: f["noiseless"] and f["estimate"] == 3)),
    Case("39 one infinite and a tiny rest", f"x,e\n1,inf\n{MARKER},5e-324\n",
         ("no noise was needed", lambda f: f["noiseless"] and f["estimate"] == 1)),
    Case("40 very many epsilons", pl.DataFrame({"x": [1.0] * MANY, "e": [1 + i / MANY for i in range(MANY)]}),
         ("rounded down to 12 significant bits", lambda f: f["levels_rounded_down"])),
    Case("66 byte order mark", b"\xef\xbb\xbf" + crowd().encode(), ("Estimate", lambda f: f["n"] == 200)),
    Case("73 gzip named csv", gzip.compress(crowd().encode()), ("Estimate", lambda f: f["n"] == 200)),
    Case("73 csv named gz", named("people.csv.gz", crowd()), ("Estimate", lambda f: f["n"] == 200)),
    Case("80 symlink to a regular file", linked, ("Estimate", lambda f: f["n"] == 200)),
]  # fmt: skip


@rows(ACCEPTED)
def test_an_unusual_public_fact_is_accepted_and_the_report_says_what_it_means(world, case):
    path = world.file(case.what)
    said, holds = case.expect
    code_, out, err = world.run("mean", path, *case.options)
    assert (code_, err) == (0, "")
    assert said in " ".join(out.split())
    if said == "no noise was needed":
        assert said in out.splitlines()[0]
    code_, facts, err = world.run("mean", path, *case.options, "--json")
    assert (code_, err) == (0, "")
    assert holds(json.loads(facts)), facts
    assert MARKER not in out + facts + world.log.text


# ---------------------------------------------------------------------------------------------------------
# Rows that need a story: ids, groups, documents, crashes


def one_public_person(world):
    assert hetdp.mean([3.0], epsilon=["public"], bounds=BOUNDS).estimate == 3


def values_of_people_who_said_never(world):
    tallies = [hetdp.read([cell, 1], epsilon=[level, 1], bounds=BOUNDS) for cell in (0, 4, "x") for level in (0, "-0")]
    assert all(tally == tallies[0] for tally in tallies)
    assert seen(tallies[0]) == {0.0: (1, 0), 1.0: (1, code(1, BOUNDS))}


def epsilon_that_depends_on_the_value(world):
    """`check` shows the owner the mean at each ε; a release does not."""
    path = world.file(table(["0.5", "4", "1"], ["1", "2", "1"]))
    facts = json.loads(world.run("check", path, *without("--missing"), "--json")[1])
    assert [level["mean"] for level in facts["means"]] == pytest.approx([0.75, 4], abs=1e-5)


def groups_of_nobody_and_of_one(world):
    path = world.file("g,x,e\n" + f"many,{MARKER},1\n" * 200 + f"one,{MARKER},1\n")
    listed = world.folder / "groups.txt"
    listed.write_text("many\none\nnobody\n")
    groups = ("--by", "g", "--public-column", "g", "--groups", listed, "--json")
    code_, out, err = world.run("mean", path, *TABLE, *groups)
    facts = json.loads(out)["groups"]
    assert (code_, err) == (0, "")
    assert {name: group["abstains"] for name, group in facts.items()} == {"many": False, "one": True, "nobody": True}
    assert [facts[name]["estimate"] for name in ("one", "nobody")] == [2, 2]


def ids_are_exact_text(world):
    """007 and 7, a blank inside and case make other people; two encodings of one letter do not. See also row 108."""
    path = world.file(ids("007", "7", "7 7", "a", "A", "caf\u00e9"))
    code_, out, err = world.run("mean", path, *TABLE, "--person", "id", "--json")
    assert (code_, err, json.loads(out)["n"]) == (0, "", 6)
    check_refused(world, ids("7", "7 "), "blank", (*TABLE, "--person", "id"))
    check_refused(world, ids("caf\u00e9", "cafe\u0301"), "--rows", (*TABLE, "--person", "id"))


def the_limits_say_that_a_flipped_bit_is_not_noticed(world):
    limits = (Path(__file__).parent.parent / "docs" / "limits.md").read_text(encoding="utf-8")
    assert "A flipped bit in a Parquet page can be read as another value without complaint." in " ".join(limits.split())


def formulas_leave_as_json_alone(world):
    """Ids are the only cells that are shown again: exact, and as JSON, which no spreadsheet evaluates."""
    people = ["+1", "-1", "007", "=1+1", "@x", "Zoë", "a,b"]
    with Ledger.create(world.folder / "budgets.db") as ledger:
        ledger.enroll(people, budget=1)
    code_, out, err = world.run("ledger", "balance", world.folder / "budgets.db", "--everybody", "--json")
    assert (code_, err) == (0, "")
    assert [row["person"] for row in json.loads(out)] == people


def a_crash_withholds_its_message(world):
    def broken(tally, _):
        raise RuntimeError(f"{MARKER} {tally.table.total.tolist()}")

    world.patch.setattr("hetdp.questions.release", broken)
    code_, out, err = world.run("mean", world.file(PLAIN), *TABLE)
    assert (code_, out, err.count("\n")) == (1, "", 1)
    assert "withheld" in err
    assert not [secret for secret in (MARKER, str(code(4, BOUNDS))) if secret in err + world.log.text]
    assert _cli.app.pretty_exceptions_enable is False  # a pretty traceback shows local variables


def logs_and_reprs_hold_no_value(world):
    tally = hetdp.read([MARKER, 1.0], epsilon=[1, 1], bounds=BOUNDS)
    release = hetdp.release(tally, hetdp.plan(tally.levels, bounds=BOUNDS))
    told = world.log.text + repr(tally) + repr(tally.table) + repr(release) + repr(release.plan)
    assert not [
        secret for secret in (MARKER, str(code(4, BOUNDS)), str(code(4, BOUNDS) + code(1, BOUNDS))) if secret in told
    ]


def names_with_markup_are_escaped(world):
    script = "<script>alert(1)</script>"
    path = world.file(f"{script},x,e\n" + f"{script},{MARKER},a{script}\n" * 3)
    page = world.folder / "page.html"
    options = ("--tier", f"a{script}=1", "--by", script, "--public-column", script, "-o", page)
    assert world.run("mean", path, *TABLE, *options) == (0, "", "")
    assert "<script>" not in page.read_text()
    assert "&lt;script&gt;" in page.read_text()


# ---------------------------------------------------------------------------------------------------------
# The ledger, through the command line

PEOPLE = [f"p{i}" for i in range(400)]
ORDINARY = "id,x\n" + "".join(f"{person},1\n" for person in PEOPLE)


def through(world, name="budgets.db", release="first", spend="0.1"):
    """The options of a release that a ledger charges."""
    rule = ("--spend", spend, "--release-id", release)
    return (
        "--value",
        "x",
        "--person",
        "id",
        "--rows",
        "average",
        *MISSING,
        "--bounds",
        "0",
        "4",
        "--ledger",
        world.folder / name,
        *rule,
    )


def enrolled(world, name="budgets.db", budget=1):
    with Ledger.create(world.folder / name) as ledger:
        ledger.enroll(dict.fromkeys(PEOPLE, budget))


def charged(world, data=ORDINARY, **how):
    """Release through the ledger and return the facts."""
    code_, out, err = world.run("mean", world.file(data), *through(world, **how), "--json")
    assert code_ == 0, err
    assert all(line.startswith("hetdp: warning: this release uses up") for line in err.splitlines()), err
    return json.loads(out)


def balance(world, person="p0"):
    with Ledger(world.folder / "budgets.db") as ledger:
        return ledger.balance(person)


def roster_row(data, mean):
    """Who has no row, and whose row is nobody's, changes nothing public; the mean is that of the documented rule."""

    def play(world):
        enrolled(world, "public.db", "inf")
        assert charged(world, data, name="public.db")["estimate"] == pytest.approx(mean, abs=1e-5)
        seen = []
        for table_ in (ORDINARY, data):
            name = f"{len(seen)}.db"
            enrolled(world, name)
            facts = public(charged(world, table_, name=name))
            del facts["ledger"]["at"]
            seen.append(json.dumps(facts).replace(name, ""))
        assert seen[0] == seen[1]
        assert MARKER not in world.log.text + seen[1]

    return play


def damaged(damage, words):
    """A ledger that cannot be trusted refuses a release before any value is read."""

    def play(world):
        enrolled(world)
        charged(world)
        damage(world, world.folder / "budgets.db")
        check_refused(world, ORDINARY.replace(",1\n", f",{MARKER}\n"), words, through(world, release="second"))

    return play


def changed(sql):
    """Change a ledger behind its back, without its triggers."""

    def damage(_, path):
        database = sqlite3.connect(path)
        triggers = database.execute("select name from sqlite_master where type = 'trigger'").fetchall()
        for line in (*(f"drop trigger {name}" for (name,) in triggers), sql):
            database.execute(line)
        database.commit()
        database.close()

    return damage


def overwritten(_, path):
    path.write_bytes(path.read_bytes()[:100] + bytes(path.stat().st_size - 100))


def restored(world, path):
    """The ledger of a moment ago is put back: it has forgotten a charge."""
    old = path.read_bytes()
    charged(world, release="forgotten")
    path.write_bytes(old)


def read_only(world, _):
    world.patch.setattr(os, "access", lambda *_: False)


def on_a_network(world, _):
    mounts = world.folder / "mounts"
    mounts.write_text(f"server:/x {world.folder} nfs4 rw 0 0\n")
    world.patch.setattr(ledger_store, "_MOUNTS", mounts)


def a_budget_below_what_is_spent(world):
    enrolled(world)
    charged(world, spend="0.5")
    spent = balance(world).spent
    with Ledger(world.folder / "budgets.db") as ledger:
        assert "frozen" in str(ledger.enroll({"p0": spent / 2}))
    facts = charged(world, release="second")
    assert (facts["ledger"]["frozen"], balance(world).spent, balance(world).frozen) == (1, spent, True)
    assert any("lowered their budget" in sentence for sentence in facts["assumptions"])


def an_id_stands_for_one_request(world):
    enrolled(world)
    charged(world)
    before = balance(world).spent
    check_refused(world, ORDINARY, "'first'|another request", through(world, spend="0.2"))
    assert balance(world).spent == before


def the_same_request_gives_the_stored_result(world):
    enrolled(world)
    first = charged(world)
    before = balance(world).spent
    world.no_release()
    again = charged(world)
    assert again["ledger"].pop("stored") is True
    assert again == first
    assert balance(world).spent == before > 0


def not_enough_budget(world):
    """Who has less left enters with that, who has nothing left has weight 0; the report says how many they are."""
    enrolled(world)
    with Ledger(world.folder / "budgets.db") as ledger:
        ledger.enroll({"p0": 0.03})
    said = [charged(world, release=f"release {i}", spend="0.5")["assumptions"] for i in range(9)]
    assert any("had less left" in sentence for sentence in said[0])
    assert any("had nothing left" in sentence for sentence in said[-1])
    with Ledger(world.folder / "budgets.db") as ledger:
        assert all(person.spent <= person.budget for person in ledger.balances())


def an_output_that_cannot_be_written(world):
    """It is refused before noise is drawn, and before anybody is charged."""
    enrolled(world)
    taken = world.folder / "taken.json"
    taken.write_text("mine")
    for target in (taken, world.folder / "no folder" / "out.json", world.folder):
        check_refused(world, PLAIN, str(target), (*TABLE, "--output", target))
        check_refused(world, ORDINARY, str(target), (*through(world), "--output", target))
    with world.patch.context() as patch:
        patch.setattr(os, "access", lambda _, mode: mode != os.W_OK)
        check_refused(world, ORDINARY, "cannot be written", (*through(world), "--output", world.folder / "new.json"))
    assert (taken.read_text(), balance(world).spent) == ("mine", 0)


def an_interrupt_after_the_charge(world):
    def interrupted(*_):
        raise KeyboardInterrupt

    enrolled(world)
    with world.patch.context() as patch:
        patch.setattr(_release, "noisy", interrupted)
        code_, out, err = world.run("mean", world.file(ORDINARY), *through(world))
    assert (code_ != 0, out, err.count("\n")) == (True, "", 1)
    assert all(word in err for word in ("'first'", "charged", "again with the same id")), err
    before = balance(world).spent
    charged(world)
    assert balance(world).spent == before > 0


def a_tally_with_a_ledger(world):
    """A tally does not know who its people are, so a ledger cannot charge them."""
    enrolled(world)
    part = world.folder / "part.tally"
    assert world.run("tally", world.file(PLAIN), *TABLE, "-o", part)[0] == 0
    rule = ("--ledger", world.folder / "budgets.db", "--spend", "0.1", "--release-id", "first")
    check_refused(world, lambda _: part, "ledger", rule)


STRANGERS = ORDINARY + f"stranger,{MARKER}\nother,x\n"
ABSENT = "".join(ORDINARY.splitlines(keepends=True)[:301])
STORIES = [
    Case("22 one public person", one_public_person),
    Case("23 value for a user who is not in the roster", roster_row(STRANGERS, 1)),
    Case("24 user of the roster without a value", roster_row(ABSENT, (300 * 1 + 100 * 2) / 400)),
    Case("25 values of people who said never", values_of_people_who_said_never),
    Case("41 epsilon that depends on the value", epsilon_that_depends_on_the_value),
    Case("43 epsilon lower than already spent", a_budget_below_what_is_spent),
    Case("53 groups of nobody and of one", groups_of_nobody_and_of_one),
    Case("55 ids are exact text", ids_are_exact_text),
    Case("76 bit flip in a Parquet page", the_limits_say_that_a_flipped_bit_is_not_noticed),
    Case("81 formulas leave as JSON alone", formulas_leave_as_json_alone),
    Case("82 missing ledger", damaged(lambda _, path: path.unlink(), "does not exist")),
    Case("82 read-only ledger", damaged(read_only, "read-only")),
    Case("82 ledger of another version", damaged(changed("update hetdp_ledger set version = 99"), "99|update")),
    Case("82 corrupt ledger", damaged(overwritten, "budgets.db")),
    Case("82 no ledger at all", damaged(lambda _, path: path.write_text(PLAIN), "no ledger")),
    Case("82 broken chain", damaged(changed("update hetdp_event set at = '2020' where seq = 2"), "chain")),
    Case("82 changed balance", damaged(changed("update hetdp_cohort set spent = 0"), "budgets.db")),
    Case("83 reused release id, other request", an_id_stands_for_one_request),
    Case("84 reused release id, same request", the_same_request_gives_the_stored_result),
    Case("85 not enough budget", not_enough_budget),
    Case("86 old copy restored", damaged(restored, "old copy")),
    Case("86 network file system", damaged(on_a_network, "network file system|nfs4")),
    Case("87 a tally with a ledger", a_tally_with_a_ledger),
    Case("89 output exists or cannot be written", an_output_that_cannot_be_written),
    Case("90 interrupt after the charge", an_interrupt_after_the_charge),
    Case("91 crash", a_crash_withholds_its_message),
    Case("91 logs and reprs", logs_and_reprs_hold_no_value),
    Case("96 names with markup in a page", names_with_markup_are_escaped),
]


@rows(STORIES)
def test_a_row_that_needs_a_story(world, case):
    case.what(world)


# ---------------------------------------------------------------------------------------------------------
# The server, over a socket

JSON = {"Content-Type": "application/json"}
GOOD = {"answers": {"hours": 1.0}, "tier": "open"}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    with served(settings_for(tmp_path_factory.mktemp("server"))) as running:
        yield running


def person_of(site, study):
    return site.enter(site.invite(study, 1)[0])


def fixed(answer, status):
    """A refusal has its status, a fixed text and an id, and nothing of what was sent."""
    assert answer.status_code == status, answer.text
    assert {"code", "message", "id"} <= set(answer.json()["error"]) <= {"code", "message", "id", "field", "facts"}
    assert MARKER not in answer.text


def json_is_strict(site, world):
    person = person_of(site, site.study())
    for number in ("NaN", "Infinity", "-Infinity", "1e400", "9" * 500):
        body = f'{{"answers": {{"hours": {number}}}, "tier": "open"}}'
        fixed(person.put("/api/answer", content=body, headers=JSON), 400)


def bodies_that_do_not_fit(site, world):
    twice = f'{{"answers": {{"hours": {MARKER}, "hours": 1}}, "tier": "open"}}'
    cut_short = (f'{{"answers": {{"hours": {MARKER}', twice)
    unfit = ({"tier": "open"}, {**GOOD, "extra": MARKER}, {**GOOD, "answers": MARKER}, {**GOOD, "tier": float(MARKER)},
             {**GOOD, "tier": MARKER}, [MARKER], MARKER, None)  # fmt: skip
    person = person_of(site, site.study())
    for status, bodies in {
        413: (json.dumps({**GOOD, "tier": MARKER * 10_000}),),
        400: ("[" * 20_000 + "]" * 20_000, *cut_short),
        422: tuple(map(json.dumps, unfit)),
    }.items():
        for body in bodies:
            fixed(person.put("/api/answer", content=body, headers=JSON), status)


def strangers_are_refused(site, world):
    """A foreign Host or Origin, and a session without its CSRF token: 403. Nobody in particular: 401, sign in."""
    study = site.study()
    address, body = f"/api/studies/{study}/publish", {"wave": 0}
    for foreign in ({"Host": "evil.example"}, {"Origin": "http://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
        fixed(site.curator.post(address, json=body, headers=foreign), 403)
    fixed(site.client().get("/api/results", headers={"Host": "evil.example"}), 403)
    person = person_of(site, study)
    del person.headers["X-CSRF-Token"]
    fixed(person.put("/api/answer", json=GOOD), 403)
    fixed(site.client().post(address, json=body), 401)
    fixed(site.client().put("/api/answer", json=GOOD), 401)


def a_double_click_is_one_release(site, world):
    drawn, said, draw = [], [], ledger_charge.release
    world.patch.setattr(ledger_charge, "release", lambda *args: drawn.append(args) or draw(*args))
    study = site.study()
    person, _ = site.join(study, [(3.0, "open"), (1.0, "public")])
    assert {person.put("/api/answer", json=GOOD).status_code for _ in range(3)} == {200}
    clicks = [threading.Thread(target=lambda: said.append(site.publish(study))) for _ in range(4)]
    for click in clicks:
        click.start()
    for click in clicks:
        click.join()
    assert [answer.status_code for answer in said] == [200] * 4
    assert len({answer.text for answer in said}) == 1
    assert (said[0].json()["results"][0]["n"], len(drawn)) == (2, 1)
    study = site.study()
    imports = [site.rows(study, f"value,tier\n{MARKER},open\n").status_code for _ in range(2)]
    assert (imports, site.live(study)["n"]) == ([201, 201], 1)


def markup_is_escaped(site, world):
    script = "<script>alert(1)</script>"
    tier = {"name": "<script>alert(1)", "epsilon": "public", "sentence": script}
    study = site.study(title=script, questions=[{**NUMBER, "text": script, "unit": "<script>"}], tiers=[tier])
    (person,) = site.join(study, [(3.0, tier["name"])])
    pages = [person.get("/answer"), *map(site.curator.get, ("/curator", f"/curator/studies/{study}"))]
    assert site.publish(study).status_code == 200
    pages += [site.client().get(address) for address in ("/", f"/results/{study}")]
    for page in pages:
        assert page.status_code == 200, page.text
        assert "<script>alert" not in page.text
        assert "&lt;script&gt;" in page.text
        assert "default-src 'self'" in page.headers["Content-Security-Policy"]
        assert "unsafe-inline" not in page.headers["Content-Security-Policy"]


def no_page_shows_raw_data(site, world):
    values = (1.23456789, 2.3456789, float(MARKER))
    study = site.study()
    people = site.join(study, [(value, "open") for value in values])
    told = [site.rows(study, f"value,tier\n{MARKER},open\n{MARKER}x,open\n").text]
    told += [people[-1].get(address).text for address in ("/answer", "/api/answer")]
    private = ("/curator", f"/curator/studies/{study}", f"/curator/studies/{study}/live", f"/api/studies/{study}")
    told += [site.curator.get(address).text for address in (*private, f"/api/studies/{study}/events", "/api/studies")]
    told.append(site.publish(study).text)
    everybody = ("/", f"/results/{study}", "/api/results", f"/api/results/{study}")
    told += [site.client().get(address).text for address in everybody]
    shown = " ".join(told)
    assert not [value for value in values if str(value)[:7] in shown]
    assert "histogram" not in shown.lower()


def an_error_page_has_an_id_and_no_traceback(site, world):
    def broken(*_, **__):
        raise RuntimeError(MARKER)

    person = person_of(site, site.study())
    world.patch.setattr("hetdp.server.studies.sealed", broken)
    world.patch.setattr("hetdp.server.results.published", broken)
    said = [
        person.put("/api/answer", json={**GOOD, "answers": {"hours": float(MARKER)}}),
        site.client().get("/api/results"),
    ]
    for answer in said:
        fixed(answer, 500)
    for answer in (*said, site.client().get("/")):
        assert (answer.status_code, "Traceback" in answer.text, MARKER in answer.text) == (500, False, False)
        assert answer.headers["X-Request-Id"] in answer.text


def the_same_answer_for_every_value(site, world):
    study, seen, imported = site.study(), set(), set()
    for value in (1.0, 0, -0.0, 5e-324, -1e9, 1e308, float(MARKER), 2**1023, None, MARKER, True, [MARKER], {}):
        answer = person_of(site, study).put("/api/answer", json=saying({"hours": value}, tier="open"))
        said = answer.json()
        body = answer.text.replace(said["come_back"], "").replace(str(said["at"]), "")  # the time of day, 10 digits
        seen.add((answer.status_code, body, len(answer.content), tuple(sorted(answer.headers))))
    for cell in ("1", "", "NaN", "1e999", f"{MARKER}x", '""""', '"1,2"', '2"'):
        answer = site.rows(study, f"tier,value\nopen,{cell}\nopen,2\n")
        imported.add((answer.status_code, answer.text))
    assert [status for status, *_ in seen] == [200]
    assert imported == {(201, '{"people":2}')}
    for cell in (f"1,{MARKER}", f'"{MARKER}'):  # the layout of a line is public
        answer = site.rows(study, f"tier,value\nopen,{cell}\nopen,2\n")
        fixed(answer, 422)
        assert "line 2 of the file" in answer.json()["error"]["message"]


def publication_on_a_tick(site, world):
    """However long it took, by a clock of the test's own, the answer waits for a whole number of ticks."""
    slept = []

    clock = iter((0.0, 0.3, 0.0, 1.0, 0.0, 2.75))
    world.patch.setattr(server_app, "time", SimpleNamespace(monotonic=lambda: next(clock), sleep=slept.append))
    world.patch.setattr(site.app.state, "settings", replace(site.app.state.settings, tick=1.0))
    empty, study = site.study(), site.study()
    statuses = [site.publish(empty).status_code]
    site.join(study, [(1.0, "public")])
    statuses += [site.publish(study).status_code for _ in range(2)]
    assert statuses == [409, 200, 200]
    assert slept == pytest.approx([0.7, 0.0, 0.25])


SERVED = [
    Case("92 JSON that Python accepts", json_is_strict),
    Case("93 bodies that do not fit", bodies_that_do_not_fit),
    Case("94 foreign host, foreign origin, no token", strangers_are_refused),
    Case("95 double click", a_double_click_is_one_release),
    Case("96 markup in names on the server", markup_is_escaped),
    Case("97 raw data on no page", no_page_shows_raw_data),
    Case("98 error page", an_error_page_has_an_id_and_no_traceback),
    Case("99 the same answer for every value", the_same_answer_for_every_value),
    Case("99 publication on a tick", publication_on_a_tick),
]


@rows(SERVED)
def test_a_row_about_the_server(site, world, case):
    with logged() as lines:
        case.what(site, world)
    assert lines
    assert MARKER not in "".join(lines) + world.log.text


# ---------------------------------------------------------------------------------------------------------
# All 99 rows are there, and the checks notice planted faults


def names_of(tests):
    """The names of the cases that pytest runs for these tests."""
    marks = [mark for test in tests for mark in getattr(test, "pytestmark", ()) if mark.args[0] == "case"]
    return [name for mark in marks for name in mark.kwargs["ids"]]


def missing_rows(names):
    return sorted({f"{row:02}" for row in range(1, 100)} - {name[:2] for name in names})


def all_names():
    return names_of([test for name, test in globals().items() if name.startswith("test_")])


def test_every_row_of_the_catalogue_has_a_case():
    names = all_names()
    assert missing_rows(names) == []
    assert len(set(names)) == len(names), "two cases have one name"
    assert all(name[:2].isdigit() and name[2] == " " for name in names)


def test_control_a_row_that_is_removed_is_missed():
    for row in ("01", "52", "99"):
        assert missing_rows([name for name in all_names() if not name.startswith(row)]) == [row]


# ---------------------------------------------------------------------------------------------------------
# What a missing value and a word count as

ANSWERS = table(["1", "n/a", "3", "1"], ["public"] * 4)


def estimate(world, data, options):
    code_, out, err = world.run("mean", world.file(data), *options, "--json")
    assert (code_, err) == (0, "")
    return json.loads(out)


@pytest.mark.parametrize("command", ["mean", "tally"])
def test_row_121_a_table_is_not_read_before_it_is_said_what_a_missing_value_counts_as(world, command):
    more = ("-o", world.folder / "part.tally") if command == "tally" else ()
    check_refused(world, f"x,e\n{MARKER},1\n,1\n", "--missing", (*without("--missing"), *more), command)
    frame = pd.DataFrame({"x": [PRIVATE, None], "e": [1.0, 1.0]})
    check_raised(world, lambda: hetdp.mean(frame, value="x", epsilon="e", bounds=BOUNDS), "missing=")


@pytest.mark.parametrize(
    ("said", "mean"), [("midpoint", 7 / 4), ("0", 5 / 4), ("4", 9 / 4), ("estimate", 5 / 3), ("drop", 5 / 3)]
)
def test_row_121_a_missing_value_counts_as_was_said(world, said, mean):
    facts = estimate(world, ANSWERS, (*without("--missing"), "--missing", said))
    assert facts["estimate"] == pytest.approx(mean, abs=1e-5)


WORDS = ("--map", "yes=4", "--map", "no=0")


def test_row_122_words_count_as_was_said_and_nothing_else_does(world):
    """9 is no answer here, although it is a number; control: without the words it is one, and they are none."""
    data = table(["yes", "no", "Yes", "9", "4", "yes"], ["public"] * 6)
    assert estimate(world, data, (*TABLE, *WORDS))["estimate"] == pytest.approx((4 + 0 + 2 + 2 + 2 + 4) / 6, abs=1e-5)
    assert estimate(world, data, TABLE)["estimate"] == pytest.approx((2 + 2 + 2 + 4 + 4 + 2) / 6, abs=1e-5)


@pytest.mark.parametrize("wrong", ["yes", "yes=", "yes=one", "yes=nan"])
def test_row_122_a_word_that_stands_for_no_number_is_refused(world, wrong):
    check_refused(world, PLAIN, "--map|CELL=NUMBER", (*TABLE, "--map", wrong))


@pytest.mark.parametrize(("said", "mean"), [("midpoint", 5 / 4), ("0", 3 / 4), ("estimate", 1), ("drop", 1)])
def test_row_120_absent_people_of_a_ledger_count_as_was_said(world, said, mean):
    """A hundred of four hundred have no row."""
    enrolled(world, budget="inf")
    options = through(world)
    facts = estimate(world, ABSENT, (*without("--missing", options), "--missing", said))
    assert facts["estimate"] == pytest.approx(mean, abs=1e-5)
    assert facts["n"] == (300 if said == "drop" else 400)


def test_row_120_a_ledger_charges_nobody_before_it_is_said_what_absence_counts_as(world):
    enrolled(world)
    check_refused(world, ABSENT, "--missing", without("--missing", through(world)))
    assert balance(world).spent == 0


PAGE = Path(__file__).parents[1] / "docs" / "bad-inputs.md"


def cited():
    """{row: the test files that cite it}, by the names of the cases here and of the tests in any file."""
    found = defaultdict(set)
    for path in Path(__file__).parent.rglob("test_*.py"):
        for rows_ in re.findall(r"^def test_\w*?rows?_(\d+)(?:_and_(\d+))?", path.read_text(), re.MULTILINE):
            for row in filter(None, rows_):
                found[int(row)].add(path.stem)
    for name in all_names():
        found[int(name[:2])].add("test_catalogue")
    return found


def disagreements(page, cited_by):
    """Where the page of bad inputs and the tests do not say the same."""
    on_page = {int(row): line for row, line in re.findall(r"^\| (\d+) \|(.*)$", page, re.MULTILINE)}
    wrong = [f"row {row} is not on the page" for row in {*range(1, max(on_page)), *cited_by} - on_page.keys()]
    for row, line in on_page.items():
        tests = set(re.findall(r"`(test_\w+)`", line.rpartition(" | ")[2]))
        if tests != cited_by.get(row, set()):
            wrong.append(f"row {row} is cited by {sorted(cited_by.get(row, ()))}, and the page says {sorted(tests)}")
        if bool(tests) == ("*not yet*" in line):
            wrong.append(f"row {row} must have a test or say that it is not dealt with yet")
    return wrong


def test_the_page_of_bad_inputs_and_the_tests_cite_the_same_rows():
    assert disagreements(PAGE.read_text(encoding="utf-8"), cited()) == []


def test_control_a_page_that_lacks_a_row_or_names_a_test_that_does_not_cite_it_is_noticed():
    page, rows_ = PAGE.read_text(encoding="utf-8"), cited()
    assert len(disagreements(page.replace("| 7 |", "| x |"), rows_)) == 1
    assert len(disagreements(page, {**rows_, 999: {"test_new"}})) == 1
    assert len(disagreements(page, {**rows_, 118: {"test_new"}})) == 1
    assert len(disagreements(page, {row: tests for row, tests in rows_.items() if row != 112})) == 1
    assert len(disagreements(page.replace("| 118 |", "| 118 | *not yet*"), rows_)) == 1


def dropping(world):
    """People whose value is missing are dropped: n changes."""
    original = delimited.batch_of

    def fewer(*args, **more):
        batch = original(*args, **more)
        known = ~np.isnan(batch.values)
        return replace(batch, values=batch.values[known], epsilon=batch.epsilon[known])

    world.patch.setattr(delimited, "batch_of", fewer)


def zeroing(world):
    """What cannot be read counts as 0: the rule changes, and nothing public does."""
    original = columns.values_of
    world.patch.setattr(columns, "values_of", lambda *args, **more: np.nan_to_num(original(*args, **more)))


def warning(world):
    """A reader warns about a cell."""
    original = delimited.batch_of

    def telling(*args, **more):
        batch = original(*args, **more)
        print(f"{np.isnan(batch.values).sum()} values are missing", file=sys.stderr)
        return batch

    world.patch.setattr(delimited, "batch_of", telling)


def quoting(world):
    """A message repeats the line."""

    def told(_, text, line):
        raise hetdp.InputError(f"line {line} is too short: {text}")

    world.patch.setattr(delimited.Layout, "_careful", told)


def chaining(world):
    """A message is discreet, but the error behind it is not."""

    def told(_, text, line):
        try:
            float(text)
        except ValueError:
            raise hetdp.InputError(f"line {line} is too short") from None

    world.patch.setattr(delimited.Layout, "_careful", told)


def late(world):
    """The output is looked at after the release."""
    world.patch.setattr(_cli.data, "writable", lambda *_, **__: None)


SILENT = (check_silent, victim("NaN"), ODD)
SHORT = (check_refused, f"id,x,e\na,1,1\nb,{MARKER}\n", "line 3")
TAKEN = (check_refused, PLAIN, "", (*TABLE, "--output", os.devnull))
FAULTS = {dropping: SILENT, zeroing: SILENT, warning: SILENT, quoting: SHORT, chaining: SHORT, late: TAKEN}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_control_a_planted_fault_is_noticed_by_the_check_of_its_row(world, fault):
    check, *what = FAULTS[fault]
    check(world, *what)
    fault(world)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        check(world, *what)
