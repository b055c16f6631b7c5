"""Every source gives the same tally for the same people, and no private cell reaches beyond itself.

What a tally must be is said by `oracle`, which knows nothing of numpy, Polars or the package's own readers.
"""

from __future__ import annotations

import datetime as dt
import gzip
import itertools
import math
import operator
import os
import re
import traceback
from decimal import Decimal
from fractions import Fraction
from functools import partial
from typing import NamedTuple
from unittest import mock

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import hetdp
import oracle
from hetdp.core import levels as _levels
from hetdp.core.domain import epsilon_of, value_of
from hetdp.sources import Source, counted, delimited
from hetdp.sources.columns import batch_of, epsilons_of, values_of
from hetdp.sources.request import Request
from hetdp.tally import groupby as _groupby
from oracle import GRID, code, meaning, rounded_down, seen
from support import EXTREME_VALUES, examples

LO, HI = -2.0, 6.0
expected = partial(oracle.expected, bounds=(LO, HI))
MID = GRID // 2
MARKER = "98765.4321"
PRIVATE = 98765.4321


class Person(NamedTuple):
    """A private cell as text and as number (None: unreadable), and a public ε as text and as number."""

    text: str
    number: float | None
    epsilon_text: str
    epsilon: float


def write(path, data):
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


def shown(error):
    """Everything a user could see of an error: its text, its repr, and the chain that a traceback prints."""
    return "".join([str(error), repr(error), *traceback.format_exception(error)])


def outcome(call):
    """What a user sees of a public error, and the result if there is none."""
    try:
        return "", call()
    except hetdp.InputError as error:
        return shown(error), "refused"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("sources")


# ---------------------------------------------------------------------------------------------------------
# One contract: the same people, whatever holds them


def quoted(cell):
    """A cell as a delimited file holds any text: between quotes, with its own quotes written twice."""
    mark = b'"' if isinstance(cell, bytes) else '"'
    return mark + cell.replace(mark, 2 * mark) + mark


def _csv(people, folder, layout="{v},{e}", header="x,e"):
    cells = [quoted(p.text) if set(p.text) & set(',"') else p.text for p in people]
    lines = [layout.format(v=cell, e=p.epsilon_text) for cell, p in zip(cells, people, strict=True)]
    return write(folder / "people.csv", "\n".join([header, *lines]) + "\n")


def _parquet(people, folder, value, epsilon, x=pl.Float64, e=pl.Float64):
    columns = {"x": [value(p) for p in people], "e": [epsilon(p) for p in people]}
    frame = pl.DataFrame(columns, schema_overrides={"x": x, "e": e}, strict=False)
    frame.write_parquet(folder / "people.parquet", row_group_size=97)
    return folder / "people.parquet"


def _file(path):
    return hetdp.read(path, value="x", missing="midpoint", epsilon="e", bounds=(LO, HI))


def _memory(values, epsilon):
    return hetdp.read(values, epsilon=epsilon, bounds=(LO, HI), missing="midpoint")


def in_memory(value, epsilon, holder=list, levels=list):
    return lambda people, _folder: _memory(holder([value(p) for p in people]), levels([epsilon(p) for p in people]))


def in_csv(layout, header):
    return lambda people, folder: _file(_csv(people, folder, layout, header))


def in_parquet(*columns):
    return lambda people, folder: _file(_parquet(people, folder, *columns))


def objects(cells):
    return np.array([*cells, None], dtype=object)[:-1]


text, number, epsilon_text, epsilon_number = map(operator.attrgetter, Person._fields)
SOURCES = {
    "list of text": in_memory(text, epsilon_text),
    "tuple of numbers": in_memory(number, epsilon_number, tuple),
    "text objects, ε numbers": in_memory(text, epsilon_number, objects, np.array),
    "number objects, ε text": in_memory(number, epsilon_text, objects, objects),
    "text array": in_memory(text, epsilon_number, lambda cells: np.array(cells, np.dtypes.StringDType())),
    "float64 arrays": in_memory(
        lambda p: math.nan if p.number is None else p.number, epsilon_number, np.array, np.array
    ),
    "Polars series": in_memory(number, epsilon_number, lambda cells: pl.Series(cells, dtype=pl.Float64), pl.Series),
    "CSV, value first": in_csv("{v},{e}", "x,e"),
    "CSV, value in the middle": in_csv('"id, {e}",{v},note,{e}', "id,x,note,e"),
    "CSV, value last": in_csv("{e},{v}", "e,x"),
    "Parquet of text": in_parquet(text, epsilon_text, pl.String, pl.String),
    "Parquet of text, ε numbers": in_parquet(text, epsilon_number, pl.String),
    "Parquet of numbers": in_parquet(number, epsilon_number),
    "Parquet of categories": in_parquet(text, epsilon_number, pl.Categorical),
    "Parquet of numbers, ε categories": in_parquet(number, epsilon_text, pl.Float64, pl.Categorical),
}

READABLE = {
    "0.5": 0.5, " 2.5 ": 2.5, "\t2.5": 2.5, "+1": 1.0, ".5": 0.5, "5.": 5.0, "1e0": 1.0, "1E+2": 100.0, "-1": -1.0,
    "-0.0": -0.0, "0": 0.0, "5e-324": 5e-324, "-5e-324": -5e-324, "1e-400": 0.0, "1e-310": 1e-310, "inf": math.inf,
    "-inf": -math.inf, "Infinity": math.inf, "-INFINITY": -math.inf, "1e999": math.inf, "-1e999": -math.inf,
    "9007199254740993": 9007199254740992.0, "18446744073709551615": 2.0**64, "-" + "9" * 400: -math.inf, "1e9": 1e9,
    "0." + "3" * 60: 1 / 3, "1" * 40 + "e-40": 1 / 9, MARKER: PRIVATE, "6": 6.0, "-2": -2.0, "2": 2.0,
}  # fmt: skip
UNREADABLE = (
    "", " ", "nan", "NaN", "-nan", "NA", "n/a", "null", "None", "-", "--", ".", "?", "+", "e5", "1e", "1e+", "1 2",
    "++1", "1.5.2", MARKER + "x", "1,000", "2,500.5", "0,5", "0x1F", "1_000", "１２", "\u22120.5", "٣", "½", "Ⅷ",
    "=1+1", "+1+1", "@SUM(A1)", "-2+3", "2024-01-31", "12:30", "$5", "5%", "1d5", "1f", "infinit",
    "in f", "\xa05", "5\x00", "\x005", "\x0b5", "\ufeff1", "\x1a",
)  # fmt: skip
TIES = [LO + (HI - LO) * (k + 0.5) / GRID for k in (0, 1, 2, 262143, 524287, 524288, 1048574, 1048575)]
NEAR_TIES = [math.nextafter(x, side) for x in TIES for side in (-9, 9)]
NUMBERS = (*TIES, *NEAR_TIES, *EXTREME_VALUES)
CELLS = [*READABLE.items(), *((text, None) for text in UNREADABLE), *((repr(x), x) for x in NUMBERS)]
EPSILONS = {
    "0": 0.0, "-0.0": -0.0, "1e-400": 0.0, "inf": math.inf, "public": math.inf, "Infinity": math.inf,
    "PUBLIC": math.inf, "0.1": 0.1, " 1 ": 1.0, "1e0": 1.0, "+20": 20.0, "5e-324": 5e-324, "1e-300": 1e-300,
    "1e300": 1e300, "1.7976931348623157e308": 1.7976931348623157e308, **{repr(1 / k): 1 / k for k in range(3, 20)},
}  # fmt: skip
PEOPLE = [Person(*cell, *level) for cell, level in itertools.product(CELLS, EPSILONS.items())]


@pytest.mark.parametrize("source", SOURCES)
def test_the_adversarial_table_gives_the_oracles_tally_from_every_source(source, folder):
    tally = SOURCES[source](PEOPLE, folder)
    assert seen(tally) == expected((p.number, p.epsilon) for p in PEOPLE)
    assert tally == SOURCES["list of text"](PEOPLE, folder)


def _written(x):
    """A decimal text and its exact value, rounded once: an oracle that shares nothing with a float parser."""
    try:
        return x, float(Fraction(x))
    except OverflowError:
        return x, -math.inf if x.startswith("-") else math.inf


cells = st.one_of(
    st.floats().map(lambda x: (repr(x), x)),
    st.integers(-(2**70), 2**70).map(lambda i: (str(i), float(i))),
    st.from_regex(r"\A[+-]?[0-9]{1,25}(\.[0-9]{1,25})?([eE][+-]?[0-9]{1,3})?\Z").map(_written),
    st.sampled_from(CELLS),
)
choices = st.one_of(
    st.sampled_from(sorted(EPSILONS.items())), st.floats(min_value=0, allow_infinity=False).map(lambda e: (repr(e), e))
)
tables = st.lists(st.tuples(cells, choices).map(lambda pair: Person(*pair[0], *pair[1])), min_size=1, max_size=25)


@settings(max_examples=examples(60), deadline=None)
@given(people=tables)
def test_random_tables_give_the_oracles_tally_from_every_source(people, folder):
    want = expected((p.number, p.epsilon) for p in people)
    tallies = {name: source(people, folder) for name, source in SOURCES.items()}
    assert {name: seen(tally) for name, tally in tallies.items()} == dict.fromkeys(SOURCES, want)
    first = tallies["list of text"]
    assert all(tally == first for tally in tallies.values())


@pytest.mark.parametrize("wrong", [{"x": 0.25}, {"e": 0.5}, {"x": "1_0"}])
def test_control_the_contract_notices_one_changed_cell(wrong, folder):
    people = [Person("0.5", 0.5, "1", 1.0), Person("", None, "inf", math.inf)]
    read = _memory([wrong.get("x", 0.5), None], [wrong.get("e", 1), "inf"])
    assert read != SOURCES["CSV, value first"](people, folder)
    assert seen(read) != expected((p.number, p.epsilon) for p in people)


NUMERIC = {
    "float16": np.array([0.1, np.nan, np.inf, -np.inf, 6e-8, 65504, -0.0, 5.998], np.float16),
    "float32": np.array([0.1, np.nan, np.inf, -np.inf, 1e-45, 3e38, -0.0, *TIES, *NEAR_TIES], np.float32),
    "float64": np.array(NUMBERS),
    "big-endian": np.array(NUMBERS, ">f8"),
    "longdouble": np.array(["1e4000", "-1e4000", "0.1", "nan", "1e-4900", *map(repr, TIES)], np.longdouble),
    "int8": np.array([-128, 127, 0, 1, 5], np.int8),
    "int64": np.array([-(2**63), 2**63 - 1, 2**53 + 1, 3], np.int64),
    "uint64": np.array([2**64 - 1, 2**63, 2**53 + 1, 0, 1], np.uint64),
}


@pytest.mark.parametrize("kind", NUMERIC)
def test_a_numeric_column_gives_the_tally_of_its_numbers_in_every_source(kind, folder):
    values = NUMERIC[kind]
    epsilon = np.arange(values.size) % 3 / 2
    with np.errstate(over="ignore"):
        doubles = values.astype(np.float64).tolist()
    want = expected(zip(doubles, epsilon, strict=True))
    assert seen(_memory(values, epsilon)) == want
    assert seen(_memory(list(values), epsilon)) == want, "numpy scalars in a list"
    assert seen(_memory(np.repeat(values, 2)[::2], np.repeat(epsilon, 2)[::2])) == want, "not contiguous"
    assert seen(_memory(values[::-1], epsilon[::-1])) == want, "backwards"
    assert seen(_memory(np.column_stack([epsilon, values])[:, 1], epsilon)) == want, "a column of a matrix"
    frozen = values.copy()
    frozen.flags.writeable = False
    assert seen(_memory(frozen, epsilon)) == want, "read-only"
    if kind not in {"longdouble", "big-endian"}:
        pl.DataFrame({"x": values, "e": epsilon}).write_parquet(folder / "kind.parquet")
        assert pl.read_parquet_schema(folder / "kind.parquet")["x"] == pl.Series(values).dtype
        assert seen(_file(folder / "kind.parquet")) == want


@pytest.mark.parametrize("kind", [np.float32, np.longdouble, np.int32, np.uint8, ">f8"])
def test_an_epsilon_array_of_any_numeric_type_means_the_same_doubles(kind):
    epsilon = np.array([0, 1, 2, 7], kind)
    epsilon = epsilon / epsilon.dtype.type(8) if epsilon.dtype.kind == "f" else epsilon
    want = expected(zip([1.0, None, 3.0, 9.0], map(float, epsilon), strict=True))
    assert seen(_memory([1.0, None, 3.0, 9.0], epsilon)) == want


@pytest.mark.parametrize("scale", [0, 3, 19])
def test_decimals_mean_the_nearest_double_in_every_source(scale, folder):
    steps = [0, 1, -1, 3, 7 * 10**scale, -(10**scale), 10 ** (scale + 3), 10**19 - 1]
    decimals = [Decimal(step).scaleb(-scale) for step in steps]
    decimals += [Decimal(x) for x in TIES if scale == 19]
    people = [Person(f"{d:f}", float(d), "0.5", 0.5) for d in decimals]
    want = expected((p.number, p.epsilon) for p in people)
    column = pl.Series("x", decimals, dtype=pl.Decimal(38, scale))
    pl.DataFrame([column, pl.Series("e", ["0.5"] * len(people))]).write_parquet(folder / "decimal.parquet")
    assert seen(_file(folder / "decimal.parquet")) == want
    assert seen(_memory(decimals, 0.5)) == want
    assert seen(SOURCES["CSV, value first"](people, folder)) == want


def test_a_boolean_counts_as_a_number_in_every_source_and_so_do_its_words(folder):
    """One missing cell turns a column of booleans into one of objects or texts; the others must stay what they are."""
    pl.DataFrame({"x": [True, False, None], "e": [1.0, 1.0, 1.0]}).write_parquet(folder / "bool.parquet")
    assert seen(_file(folder / "bool.parquet")) == expected([(1.0, 1.0), (0.0, 1.0), (None, 1.0)])
    assert seen(_memory(np.array([True, False]), [1, 1])) == expected([(1.0, 1.0), (0.0, 1.0)])
    assert seen(_memory([True, False, np.True_], 1)) == expected([(1.0, 1.0), (0.0, 1.0), (1.0, 1.0)])
    (folder / "bool.csv").write_text("x,e\ntrue,1\nFalse,1\n TRUE,1\ntRue,1\nyes,1\n")
    assert seen(_file(folder / "bool.csv")) == expected([(x, 1.0) for x in (1.0, 0.0, 1.0, None, None)])


def test_a_column_without_any_value_counts_everybody_at_the_midpoint(folder):
    pl.DataFrame({"x": [None] * 3, "e": [1.0, 0.0, 1.0]}).write_parquet(folder / "null.parquet")
    assert seen(_file(folder / "null.parquet")) == {0.0: (1, 0), 1.0: (2, 2 * MID)}


class _Odd:
    """Neither a number nor text, and unkind to whoever compares it."""

    def __eq__(self, other):
        raise RuntimeError(MARKER)

    __hash__ = None

    def __float__(self):
        raise RuntimeError(MARKER)


ODD = [
    _Odd(), object(), [], [1, 2], (3,), {}, {"a": 1}, b"1", 1j, np.array([1.0, 2.0]), np.array(1.0), None, pl.Null,
    Decimal("sNaN"), Decimal("NaN"), np.float16("nan"), dt.date(2024, 1, 31), np.datetime64("2024-01-31"),
    "\ud800", float, math,
]  # fmt: skip
FAR = [Decimal("1e999999"), Fraction(10**400, 3), 10**5000, np.longdouble("1e4000"), Decimal("Infinity"), 2**1024]
PAIRS = [
    *((cell, None) for cell in ODD),
    *((sign * cell, sign * math.inf) for cell in FAR for sign in (1, -1)),
    *((kind("1"), 1.0) for kind in (Fraction, Decimal, np.str_, np.float32, int)),
]


@pytest.mark.parametrize(("cell", "meant"), PAIRS, ids=lambda cell: type(cell).__name__)
def test_no_cell_of_a_list_can_raise_or_warn_or_change_who_is_counted(cell, meant):
    alone, both = code(meant, (LO, HI)), expected([(3.0, 1.0), (meant, 1.0)])
    assert seen(_memory([3, cell], 1)) == seen(_memory((cell, 3), 1)) == seen(_memory(objects([cell, 3]), 1)) == both
    assert seen(_memory([cell], 1)) == {1.0: (1, alone)}
    assert seen(_memory([cell, cell], 1)) == {1.0: (2, 2 * alone)}
    assert seen(_memory([cell, cell], 0)) == {0.0: (2, 0)}


@pytest.mark.parametrize("n", [1, 2])
def test_few_people_work_and_the_whole_path_ends_in_the_interval(n, folder):
    path = _csv([Person(MARKER, PRIVATE, "inf", math.inf)] * n, folder)
    release = hetdp.mean(path, value="x", missing="midpoint", epsilon="e", bounds=(LO, HI))
    assert (release.estimate, release.plan.n) == (HI, n)
    assert LO <= hetdp.mean([MARKER] * n, epsilon=[0.1] * n, bounds=(LO, HI)).estimate <= HI


# ---------------------------------------------------------------------------------------------------------
# Polars and Python read the same notation

ALPHABET = "0123456789+-.eE infaNtyx_,\t"
short = st.text(ALPHABET, max_size=9)
numberlike = st.from_regex(r"\A[ \t]?[+-]?[0-9_]{0,4}\.?[0-9]{0,3}([eE][+-]?[0-9]{0,5})?[ \t]?\Z")


def disagreements(texts, reader):
    """The texts that Polars (as the files are read) and `reader` do not read alike."""
    theirs = values_of(pl.Series(texts, dtype=pl.String)).tolist()
    ours = [reader(text) for text in texts]
    same = [a == b or (math.isnan(a) and math.isnan(b)) for a, b in zip(theirs, ours, strict=True)]
    return [text for text, alike in zip(texts, same, strict=True) if not alike]


def test_every_text_of_at_most_three_characters_is_read_alike():
    texts = ["".join(t) for length in range(4) for t in itertools.product(ALPHABET, repeat=length)]
    assert disagreements(texts, value_of) == []
    assert disagreements(texts, lambda cell: math.nan if meaning(cell) is None else meaning(cell)) == []


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.one_of(short, numberlike), min_size=20, max_size=120))
def test_polars_and_python_read_any_short_text_alike(texts):
    assert disagreements(texts, value_of) == []


@pytest.mark.parametrize("text", ["1_000", "0x10", "1,5", "\n1", "１"])
def test_control_the_comparison_notices_a_reader_with_another_notation(text):
    def lenient(cell):
        try:
            return float(int(cell, 0)) if "x" in cell else float(cell.replace(",", "."))
        except ValueError:
            return math.nan

    assert disagreements(["1", text], lenient) == [text]


@settings(max_examples=examples(150), deadline=None)
@given(st.one_of(short, numberlike, st.text(max_size=6), st.sampled_from(sorted(EPSILONS)), st.text("0", min_size=60)))
@example("05")
def test_a_text_is_the_same_epsilon_in_a_list_and_in_a_file_or_is_refused_in_both(text):
    column = pl.Series([text], dtype=pl.String)
    _, in_file = outcome(lambda: epsilons_of(column, [7], (" in line", ""), Request("x", "e")).tolist()[0])
    _, in_list = outcome(lambda: epsilon_of(text))
    assert in_file == in_list


# ---------------------------------------------------------------------------------------------------------
# Grouping: chunks, threads, many levels


def grouped(values, epsilon, limit=oracle.MOST_LEVELS):
    """The oracle of a large table, and whether its levels are rounded."""
    return expected(zip(values, epsilon, strict=True), most_levels=limit), len(set(epsilon)) > limit


near_levels = st.one_of(
    st.sampled_from([0.0, -0.0, math.inf, 5e-324, 0.1, math.nextafter(0.5, 0)]),
    st.floats(min_value=0.5, max_value=0.51),
    st.integers(-9, 9).map(lambda k: math.ldexp(0.7, k)),
)


@settings(max_examples=examples(150), deadline=None)
@given(
    rows=st.lists(st.tuples(st.sampled_from(NUMBERS), near_levels), min_size=1, max_size=90),
    chunk=st.sampled_from([1, 3, 7, 64]),
    limit=st.sampled_from([2, 5, 1000]),
    threads=st.sampled_from([1, 3]),
    order=st.sampled_from(["as given", "ascending", "descending"]),
    cuts=st.lists(st.integers(0, 90), max_size=3),
)
def test_chunks_threads_and_rounding_never_change_the_result(rows, chunk, limit, threads, order, cuts):
    if order != "as given":
        rows = sorted(rows, key=lambda row: row[1], reverse=order == "descending")
    values, epsilon = (np.array(column) for column in zip(*rows, strict=True))
    edges = [0, *sorted(min(cut, len(rows)) for cut in cuts), len(rows)]
    with (
        mock.patch.object(_levels, "LIMIT", limit),
        mock.patch.multiple(_groupby, CHUNK=chunk, PIECE=chunk),
        mock.patch("os.cpu_count", return_value=threads),
    ):
        want, cut = grouped(values.tolist(), (epsilon + 0.0).tolist(), limit)
        tally = _memory(values, epsilon)
        assert seen(tally) == want
        assert tally.levels.rounded == cut
        parts = [_memory(values[a:b], epsilon[a:b]) for a, b in itertools.pairwise(edges) if a < b]
        assert sum(parts[1:], parts[0]) == tally
        assert sum(parts[:-1], parts[-1]) == tally
        assert hetdp.Levels.of(epsilon) == tally.levels


def test_rounding_starts_half_way_through_sorted_input():
    """The first 2·LIMIT people have one level; the limit is passed in a later chunk, after exact sums were kept."""
    epsilon = np.concatenate([np.full(40, 0.1), np.linspace(0.2, 3, 60), [0, -0.0, np.inf, 5e-324, 1e-308, 1e300]])
    values = np.linspace(LO - 1, HI + 1, epsilon.size)
    with mock.patch.object(_levels, "LIMIT", 16), mock.patch.object(_groupby, "CHUNK", 8):
        want, cut = grouped(values.tolist(), epsilon.tolist(), 16)
        assert cut
        assert seen(_memory(values, epsilon)) == want
        with mock.patch.object(_levels, "round_down", lambda e, _=0: e), pytest.raises(AssertionError):
            assert seen(_memory(values, epsilon)) == want, "control: a grouping that forgets to round is noticed"


SIZES = {"few levels": (3, _groupby.CHUNK), "many levels": (300, 2**16), "rounded levels": (90_000, 2**16)}


@pytest.mark.slow
@pytest.mark.parametrize("case", SIZES)
def test_arrays_larger_than_a_chunk_give_the_oracles_tally(case, monkeypatch):
    kinds, chunk = SIZES[case]
    monkeypatch.setattr(_groupby, "CHUNK", chunk)
    n = 2 * chunk + 12_345
    rng = np.random.default_rng(kinds)
    values = rng.normal(2, 3, n)
    values[rng.integers(0, n, 99)] = np.nan
    epsilon = np.concatenate([[0.0, np.inf], rng.uniform(0.01, 3, kinds - 2)])[rng.integers(0, kinds, n)]
    want, cut = grouped(values.tolist(), epsilon.tolist())
    assert cut == (kinds > 65_536)
    tally = _memory(values, epsilon)
    assert seen(tally) == want
    ascending = np.argsort(epsilon)
    assert _memory(values[ascending], epsilon[ascending]) == tally
    assert _memory(values[::2], epsilon[::2]) + _memory(values[1::2], epsilon[1::2]) == tally


@given(st.one_of(near_levels, st.floats(min_value=0), st.integers(-1074, 1023).map(lambda k: math.ldexp(1, k))))
def test_rounding_keeps_twelve_bits_and_never_goes_up(epsilon):
    cut = float(_levels.round_down(np.array([epsilon + 0.0]))[0])
    assert cut == rounded_down(epsilon)
    assert cut <= epsilon
    assert cut == math.inf or epsilon < 2.0**-1000 or cut > epsilon * (1 - 2.0**-11)


def test_a_bad_epsilon_is_found_on_every_path_of_the_grouping():
    for bad, rest in itertools.product((-1.0, math.nan, -math.inf, -5e-324), ([1.0] * 50, np.linspace(1, 2, 50))):
        epsilon = np.array([*rest, bad, *rest, bad])
        with mock.patch.object(_levels, "LIMIT", 20), mock.patch.object(_groupby, "CHUNK", 8):  # noqa: SIM117  one line each
            with pytest.raises(hetdp.InputError, match="at index 50"):
                _memory(np.full(epsilon.size, PRIVATE), epsilon)


# ---------------------------------------------------------------------------------------------------------
# Delimited text: a line is a person, and a cell stays in its place

PUBLIC = {"id": ["7", '"Smith, Ann"', '"say ""hi"", Bob"', "", '""', "plain"], "note": ["a b", '"x,y"', "'", '","']}
LAYOUTS = ("x,e", "e,x", "id,x,e", "e,id,x", "x,e,note", "id,e,x,note", "id,x,note,e", "e,x,id", "x,id,note,e")


def lines_of(layout, values, epsilons, delimiter=","):
    """A file by hand: one bytes line a person; `values` are bytes, put in unchanged."""
    columns = layout.split(",")
    rows = [delimiter.join(columns).encode()]
    for i, (value, epsilon) in enumerate(zip(values, epsilons, strict=True)):
        public = {name: options[i % len(options)].replace(",", delimiter) for name, options in PUBLIC.items()}
        fields = {**{name: text.encode() for name, text in public.items()}, "x": value, "e": epsilon.encode()}
        rows.append(delimiter.encode().join(fields[name] for name in columns))
    return rows


def cell_meaning(cell):
    """What the bytes of a value cell mean in a delimited file: quotes around a cell are notation."""
    text = cell.decode("utf-8", "replace").strip(" \t")
    if len(text) > 1 and text[0] == text[-1] == '"':
        text = text[1:-1].replace('""', '"')
    return meaning(text)


LINE_EPSILONS = ["0.5", '"0.25"', "inf", "0", " 1 ", '"public"', "2", "0.5"]
LINE_VALUES = [b"0.5", b"1", b"", b"3", b'"4"', b"-9", b"nan", b"5.5"]
raw = st.one_of(
    st.binary(max_size=12),
    st.text(max_size=8).map(lambda text: text.encode("utf-8", "surrogatepass")),
    st.text('",;\t 0123456789.\rxe', max_size=14).map(str.encode),
    st.lists(st.sampled_from([b'"', b",", b"0.9", b'""', b",0.9,", b"inf", b" ", b"\t"]), max_size=6).map(b"".join),
).map(lambda cell: cell.replace(b"\n", b""))


def is_one_field(cell, delimiter):
    """Say whether these bytes are one cell of a line: closed between quotes, or without a quote first or delimiters."""
    text = cell.decode("utf-8", "replace")
    blanks = " " if delimiter == "\t" else " \t"
    return re.fullmatch(f'"(?:[^"]|"")*"[{blanks}]*|(?!")[^{delimiter}]*', text, re.DOTALL) is not None


LAYOUT_FAULTS = (
    "has N fields and the header N; put a cell that holds the delimiter between quotes, and with decimal commas use "
    "another delimiter",
    "has a quote that is not closed at the end of its cell; inside quotes write a quote twice",
)


def check_reach(layout, cell, who, ends=b"\n", suffix=".csv", block=2**24, folder=None):
    """Put `cell` in one value; nobody's ε, nobody else's value, nor the number of people may change.

    Between quotes it may be anything. Without them it can change the layout of its line; then its number is all that
    is said.
    """
    delimiter = "\t" if suffix == ".tsv" else ","
    check_kept(layout, quoted(cell), who, ends, suffix, block, folder)
    meant = cell[:-1] if layout.endswith("x") and cell.endswith(b"\r") else cell  # reads as a line end of its own kind
    if is_one_field(meant, delimiter):
        check_kept(layout, cell, who, ends, suffix, block, folder)
        return
    values = [*LINE_VALUES[:who], cell, *LINE_VALUES[who + 1 :]]
    with mock.patch("hetdp.sources.files.BLOCK", block):
        path = write(folder / f"reach{suffix}", ends.join(lines_of(layout, values, LINE_EPSILONS, delimiter)) + ends)
        with pytest.raises(hetdp.InputError) as caught:
            _file(path)
    says = re.fullmatch(rf"line {who + 2} of {re.escape(str(path))} (.+)", str(caught.value))
    assert says, caught.value
    assert re.sub("[0-9]+", "N", says[1]) in LAYOUT_FAULTS
    assert caught.value.__context__ is None


def check_kept(layout, cell, who, ends, suffix, block, folder):
    """A cell that leaves the layout of its line alone is one value, by the rule for values."""
    values = [*LINE_VALUES[:who], cell, *LINE_VALUES[who + 1 :]]
    delimiter = "\t" if suffix == ".tsv" else ","
    path = folder / f"reach{suffix}"
    meant = cell[:-1] if layout.endswith("x") and cell.endswith(b"\r") else cell
    numbers = [cell_meaning(meant if i == who else value) for i, value in enumerate(values)]
    epsilons = [0.5, 0.25, math.inf, 0.0, 1.0, math.inf, 2.0, 0.5]
    with mock.patch("hetdp.sources.files.BLOCK", block):
        tally = _file(write(path, ends.join(lines_of(layout, values, LINE_EPSILONS, delimiter)) + ends))
        values[who] = b"" if numbers[who] is None else repr(numbers[who]).encode()
        replaced = _file(write(path, ends.join(lines_of(layout, values, LINE_EPSILONS, delimiter)) + ends))
    assert tally == replaced
    assert tally.levels == hetdp.Levels.of(epsilons)
    assert seen(tally) == expected(zip(numbers, epsilons, strict=True))


@settings(max_examples=examples(120), deadline=None)
@given(
    cell=raw,
    layout=st.sampled_from(LAYOUTS),
    who=st.integers(0, 7),
    ends=st.sampled_from([b"\n", b"\r\n"]),
    suffix=st.sampled_from([".csv", ".tsv"]),
    block=st.sampled_from([5, 40, 2**24]),
)
@example(cell=b'"', layout="x,e,note", who=0, ends=b"\n", suffix=".csv", block=2**24)
@example(cell=b'",0.9,"', layout="id,x,note,e", who=1, ends=b"\n", suffix=".csv", block=2**24)
@example(cell=b'1,0.9,"', layout="id,e,x,note", who=3, ends=b"\n", suffix=".csv", block=2**24)
@example(cell=b"\xff\xfe,\x00", layout="x,e", who=0, ends=b"\r\n", suffix=".csv", block=5)
@example(cell=b"x", layout="x,e", who=0, ends=b"\n", suffix=".csv", block=2**24)
def test_whatever_stands_in_a_value_cell_stays_there(cell, layout, who, ends, suffix, block, folder):
    check_reach(layout, cell, who, ends, suffix, block, folder)


MAGIC = [
    b"x\x01", b"x\x9c", b"x\xda", b"\x1f\x8b\x08", b"(\xb5/\xfd", b"PK\x03\x04", b"BZh", b"PAR1",
    b"\xef\xbb\xbf1", b"\x1a",
]  # fmt: skip


@pytest.mark.parametrize("block", [1, 2**24])
@pytest.mark.parametrize("cell", MAGIC)
def test_a_value_that_looks_like_the_start_of_another_kind_of_file_is_only_unreadable(cell, block, folder):
    """The first line of a block begins with a value: no library may take the block for compressed data."""
    check_reach("x,e", cell, 0, block=block, folder=folder)
    check_reach("x,e,note", cell, 3, block=block, folder=folder)


def test_control_the_reach_check_notices_an_ordinary_csv_reader(folder):
    def ordinary(text, asked, **_):
        frame = pl.read_csv(text.path, infer_schema=False, truncate_ragged_lines=True)
        yield delimited.Batch((values_of(frame[asked.value]),), frame[asked.epsilon].cast(pl.Float64).to_numpy())

    noticed = pytest.raises((AssertionError, hetdp.InputError, pytest.fail.Exception))
    for cell in (b'"', b"1,0.9"):
        with mock.patch.object(delimited, "batches", ordinary), noticed:
            check_reach("id,x,e", cell, 0, folder=folder)


BODY = [b"1,0.5", b"2,1", b"9,inf", b",0.5"]
WANT = expected([(1.0, 0.5), (2.0, 1.0), (9.0, math.inf), (None, 0.5)])


@pytest.mark.parametrize("block", [1, 3, 2**24])
@pytest.mark.parametrize(
    "data",
    [
        b"\n".join([b"x,e", *BODY]),
        b"\n".join([b"x,e", *BODY, b""]),
        b"\r\n".join([b"x,e", *BODY, b""]),
        b"\r".join([b"x,e", *BODY, b""]),
        b"\r".join([b"x,e", *BODY]),
        b"\xef\xbb\xbf" + b"\n".join([b"x,e", *BODY]),
        b"\n\n".join([b"x,e", *BODY, b"", b"   ", b"\t", b""]),
        b"\r\n\r\n".join([b"x,e", *BODY, b""]),
        b"\n".join([b'"x","e"', *BODY]),
    ],
    ids=["no end", "LF", "CRLF", "CR", "CR, no end", "BOM", "blank lines", "blank CRLF lines", "quoted header"],
)
def test_line_ends_marks_and_blank_lines_do_not_matter(data, block, folder):
    with mock.patch("hetdp.sources.files.BLOCK", block):
        assert seen(_file(write(folder / "ends.csv", data))) == WANT


@pytest.mark.parametrize(
    "line",
    ["0.5,a", "0.5,a,", '0.5,a,"9,8,7"', '0.5,a,"""9"', '0.5,"a, b",x"y', "0.5,a,\x00", '"0.5",a,""', '0.5,a,"9,8" '],
)
def test_a_short_or_quoted_or_odd_line_is_one_person_at_their_own_epsilon(line, folder):
    data = f"e,id,x\n2,b,3\n{line}\n2,c,4\n"
    assert seen(_file(write(folder / "odd.csv", data))) == expected([(3.0, 2.0), (None, 0.5), (4.0, 2.0)])


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("0.5,a,9,8,7", "line 3 of|5 fields and the header 3"),
        (f"0.5,a,{MARKER},", "line 3 of|4 fields and the header 3"),
        ('0.5,a,"9', "line 3 of|quote that is not closed"),
        (f'0.5,a,"{MARKER}"x', "line 3 of|quote that is not closed"),
        (f'0.5,"a,{MARKER}', "line 3 of|quote that is not closed"),
    ],
)
def test_a_long_line_or_an_open_quote_is_refused_by_the_number_of_its_line(line, words, folder):
    path = write(folder / "odd.csv", f'e,id,x\n2,b,3\n{line}\n2,c,"4"\n')
    refused(lambda: _file(path), *words.split("|"))


@pytest.mark.parametrize(
    ("header", "line"),
    [
        ("x,e,note", f"{MARKER},0.5"),
        ("x,e", MARKER),
        ("id,x,e", f"ann,{MARKER}"),
        ("x,e,note", f"{MARKER}x,0.5"),
        ("id,x,e,note", f"ann,{MARKER},0.5"),
        ("x,id,e", f"{MARKER},0.5"),
        ("x,e", f"{MARKER}x"),
        ("x,e", f"-{MARKER}"),
        ("x,e", f'"{MARKER}'),
    ],
)
def test_a_short_line_never_lends_its_value_as_an_epsilon(header, line, folder):
    """It is counted at its own ε or refused by its line number alone; the value is neither used as ε nor shown."""
    path = write(folder / "short.csv", f"{header}\n{line}\n")
    told, tally = outcome(lambda: _file(path))
    assert MARKER not in told
    assert "line 2" in told or tally.levels == hetdp.Levels({0.5: 1})


def test_a_line_that_holds_only_delimiters_is_a_person_without_epsilon_whatever_the_value(folder):
    """A missing ε is refused alike with and without a value, in TSV too, where the delimiter is itself a blank."""
    for cell in ("5", ""):
        with pytest.raises(hetdp.InputError, match="line 3"):
            _file(write(folder / "blank.tsv", f"x\te\n1\t1\n{cell}\t\n"))


def test_lines_are_counted_through_blank_lines_and_blocks(folder):
    data = "x,e\n1,1\n\n\n2,1\n3,-1\n4,-1\n"
    for block in (1, 7, 2**24):
        with mock.patch("hetdp.sources.files.BLOCK", block), pytest.raises(hetdp.InputError, match=r"line 6\b"):
            _file(write(folder / "count.csv", data))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_levels_alone_are_the_levels_of_the_tally(layout, folder):
    """With or without the name of the value column, also where a value holds a delimiter; a long line is refused."""
    path = write(folder / "levels.csv", b"\n".join(lines_of(layout, LINE_VALUES, LINE_EPSILONS)))
    assert (
        counted(Source.of(path, value=None, epsilon="e", counts_only=True))
        == counted(Source.of(path, epsilon="e", value="x", counts_only=True))
        == _file(path).levels
    )
    cells = [f'"1,{MARKER}"'.encode(), *LINE_VALUES[1:]]
    within = write(folder / "levels.csv", b"\n".join(lines_of(layout, cells, LINE_EPSILONS)))
    for value in ("x", None):
        assert counted(Source.of(within, epsilon="e", value=value, counts_only=True)) == _file(within).levels
    cells[0] = cells[0].strip(b'"')
    ragged = write(folder / "levels.csv", b"\n".join(lines_of(layout, cells, LINE_EPSILONS)))
    for value in ("x", None):
        refused(lambda v=value: counted(Source.of(ragged, value=v, epsilon="e", counts_only=True)), "line 2 of")


# ---------------------------------------------------------------------------------------------------------
# Public errors: loud, placed, and silent about values


class _Series:
    """As much of a labelled series as `read` looks at."""

    def __init__(self, values, index):
        self.values, self.index = np.array(values), np.array(index)

    def __array__(self, dtype=None, copy=None):
        return self.values


ARRAYS = {
    "complex": (np.array([PRIVATE + 1j]), [1], "complex"),
    "bytes": (np.array([MARKER.encode()]), [1], "bytes"),
    "records": (np.array([(PRIVATE,)], dtype=[("x", float)]), [1], "records"),
    "dates": (np.array(["2024-01-31"], "M8[D]"), [1], "dates"),
    "time spans": (np.array([1], "m8[s]"), [1], "time spans"),
    "a number": (PRIVATE, [1], "float"),
    "a dict": ({"x": PRIVATE}, [1], "dict"),
    "a generator": (iter([PRIVATE]), [1], "iterator"),
    "lengths": ([PRIVATE] * 3, [1, 2], "3 and 2"),
    "array lengths": (np.full(3, PRIVATE), np.ones(2), "3 and 2"),
    "two dimensions": (np.full((2, 2), PRIVATE), [1, 1], "2 dimensions"),
    "no dimension": (np.array(PRIVATE), [1], "0 dimensions"),
    "masked": (np.ma.masked_array([PRIVATE], [False]), [1], "masked"),
    "masked epsilon": ([PRIVATE], np.ma.masked_array([1.0], [True]), "masked"),
    "epsilon in two dimensions": ([PRIVATE], np.ones((1, 1)), "2 dimensions"),
    "other labels": (_Series([PRIVATE, 1], [0, 1]), _Series([1, 1], [1, 0]), "labels"),
    "fewer labels": (_Series([PRIVATE, 1], [0, 1]), _Series([1], [0]), "labels"),
    "nobody": ([], [], "n = 0"),
    "nobody, arrays": (np.array([]), np.array([]), "n = 0"),
    "no epsilon": ([PRIVATE], None, "epsilon"),
    "an epsilon of no type": ([PRIVATE], object(), "epsilon"),
    "a set of epsilons": ([PRIVATE] * 2, {1, 2}, "epsilon"),
    "a dict of epsilons": ([PRIVATE] * 2, {1: 0, 2: 0}, "epsilon"),
    "a name for arrays": ([PRIVATE], "e", "columns"),
}


def refused(call, *fragments, capfd=None, caplog=None):
    """The call raises a public error that says where; nothing private is in it, printed or logged."""
    with pytest.raises(hetdp.InputError) as caught:
        call()
    assert isinstance(caught.value, ValueError)
    for fragment in fragments:
        assert fragment in str(caught.value)
    told = shown(caught.value)
    if capfd is not None:
        told += "".join(capfd.readouterr()) + caplog.text
    assert MARKER not in told
    return caught.value


@pytest.mark.parametrize("row", ARRAYS)
def test_a_bad_form_of_arrays_is_refused(row, capfd, caplog):
    values, epsilon, fragment = ARRAYS[row]
    refused(lambda: _memory(values, epsilon), fragment, capfd=capfd, caplog=caplog)


BAD_TEXTS = [
    "-0.5", "-1e-300", "-inf", "", "nan", "NaN", "high", "-", "None", "1e400", "1e309", "1e1000000000", "9" * 400,
    "0." + "0" * 400 + "1", "1/3", "0,5", "٣", "１", "1_000", "0x1", "1 2", "\u22121", "+inf", "infinit", "1\x00",
    "True",
]  # fmt: skip


@pytest.mark.parametrize("bad", BAD_TEXTS, ids=lambda bad: repr(bad[:12]))
def test_a_bad_epsilon_text_is_refused_and_its_place_is_named(bad, folder, capfd, caplog):
    people = [Person(MARKER, PRIVATE, "1", 1.0), Person(MARKER + "x", None, bad, math.nan)]
    watch = {"capfd": capfd, "caplog": caplog}
    refused(lambda: in_memory(text, epsilon_text)(people, folder), "index 1", **watch)
    refused(lambda: in_memory(text, epsilon_text, list, objects)(people, folder), "index 1", **watch)
    if "," not in bad:
        refused(lambda: _file(_csv(people, folder)), "line 3", **watch)
    refused(lambda: _file(_csv(people, folder, '{v},"{e}"')), "line 3", **watch)
    path = _parquet(people, folder, text, epsilon_text, pl.String, pl.String)
    refused(lambda: _file(path), "row 2", **watch)


@pytest.mark.parametrize("bad", [-0.5, -5e-324, -math.inf, math.nan, None])
def test_a_bad_epsilon_number_is_refused_and_its_place_is_named(bad, folder):
    refused(lambda: _memory([PRIVATE] * 2, [1, bad]), "index 1")
    refused(lambda: _memory([PRIVATE] * 2, np.array([1, bad])), "index 1")
    rows = [Person(MARKER, PRIVATE, "", 1.0), Person(MARKER, PRIVATE, "", bad)]
    path = _parquet(rows, folder, number, epsilon_number)
    refused(lambda: _file(path), "row 2")


def test_a_bad_epsilon_in_a_later_batch_of_a_parquet_file_is_named_by_its_row_in_the_file(folder):
    rows = [Person(MARKER, PRIVATE, "", 1.0)] * 40 + [Person(MARKER, PRIVATE, "", -1.0)]
    path = _parquet(rows, folder, number, epsilon_number)
    with mock.patch("hetdp.sources.columns.ROWS", 8):
        refused(lambda: _file(path), "row 41")


@pytest.mark.parametrize(
    "cell", [True, np.True_, 10**400, Decimal("1e400"), 1j, b"1", [1], Decimal("NaN"), Decimal(-1)]
)
def test_an_epsilon_of_the_wrong_type_or_size_is_refused_by_its_index(cell):
    refused(lambda: _memory([PRIVATE] * 2, [1, cell]), "index 1")


@pytest.mark.parametrize("cell", [True, -1, math.nan, 10**400, Decimal(-1)])
def test_one_bad_epsilon_for_everybody_is_refused(cell):
    refused(lambda: _memory([PRIVATE] * 2, cell), "epsilon")


@pytest.mark.parametrize("cell", [0.5, 1, np.float32(0.5), Fraction(1, 2), Decimal("0.5")])
def test_one_epsilon_may_be_given_for_everybody(cell):
    assert _memory([1, 2], cell) == _memory([1, 2], [float(cell)] * 2)


BOUNDS = {
    "equal": (1, 1), "swapped": (2, 1), "NaN": (0, math.nan), "inf": (-math.inf, 0),
    "span": (-1e308, 1e308), "huge": (0, 10**400), "none": None, "one": (1,), "three": (0, 1, 2),
    "number": 1, "text": ("0,5", "1"), "texts": "01", "bool": (False, True), "missing": (None, 1),
}  # fmt: skip


@pytest.mark.parametrize("row", BOUNDS)
def test_bad_bounds_are_refused_before_any_value_is_read(row, tmp_path):
    refused(lambda: hetdp.read([PRIVATE], epsilon=[1], bounds=BOUNDS[row]), "bound")
    refused(
        lambda: hetdp.mean(tmp_path / "no such file", value="x", missing="midpoint", epsilon="e", bounds=BOUNDS[row]),
        "bound",
    )


def test_bounds_and_epsilon_have_no_default():
    with pytest.raises(TypeError, match="keyword-only argument"):
        hetdp.read([PRIVATE], bounds=(0, 1))
    with pytest.raises(hetdp.InputError, match="needs the public bounds"):
        hetdp.read([PRIVATE], epsilon=[1])


GOOD = f"x,e\n{MARKER},1\n{MARKER}x,1\n"
FILES = {
    "empty": ("f.csv", b"", "empty"),
    "header only": ("f.csv", b"x,e\n", "n = 0"),
    "header without end": ("f.csv", b"x,e", "n = 0"),
    "blank lines only": ("f.csv", b"x,e\n\n  \n", "n = 0"),
    "no header": ("f.csv", f"{MARKER},1\n{MARKER},1\n", "header"),
    "blank first line": ("f.csv", "\n" + GOOD, "header"),
    "duplicate header": ("f.csv", f"x,x,e\n{MARKER},{MARKER},1\n", "two columns"),
    "case": ("f.csv", f"x,X,e\n{MARKER},{MARKER},1\n", "two columns"),
    "other case": ("f.csv", GOOD.replace("x,e", "X,E", 1), "'X'"),
    "spaces": ("f.csv", GOOD.replace("x,e", "x, e", 1), "' e'"),
    "semicolon": ("f.csv", GOOD.replace(",", ";"), "no column"),
    "tabs": ("f.csv", GOOD.replace(",", "\t"), "no column"),
    "commas in .tsv": ("f.tsv", GOOD, "no column"),
    "UTF-16": ("f.csv", GOOD.encode("utf-16"), "UTF-8"),
    "UTF-16 without mark": ("f.csv", GOOD.encode("utf-16-le"), "UTF-8"),
    "Latin-1 header": ("f.csv", GOOD.replace("x,e", "x,é", 1).encode("latin-1"), "UTF-8"),
    "CR in the header of a LF file": ("f.csv", GOOD.replace("x,e", "x\ra,e", 1), "header"),
    "zip": ("f.csv", b"PK\x03\x04" + GOOD.encode(), "zip"),
    "truncated gzip": ("f.csv.gz", gzip.compress(GOOD.encode())[:-8], "unreadable"),
    "Parquet mark only": ("f.parquet", b"PAR1", "damaged"),
    "Parquet and nonsense": ("f.parquet", b"PAR1" + GOOD.encode() + b"PAR1", "damaged"),
    "no epsilon": ("f.csv", f"x,id,e\n{MARKER}\n", "line 2"),
    "epsilon empty": ("f.csv", f"x,e\n{MARKER},1\n{MARKER},\n", "line 3"),
}


@pytest.mark.parametrize("row", FILES)
def test_a_bad_file_is_refused_without_a_word_about_its_values(row, tmp_path, capfd, caplog):
    name, data, fragment = FILES[row]
    path = write(tmp_path / name, data)
    refused(lambda: _file(path), fragment, capfd=capfd, caplog=caplog)


def test_a_csv_file_is_known_by_its_content_whatever_its_name(tmp_path):
    assert _file(write(tmp_path / "f.parquet", GOOD)) == _file(write(tmp_path / "f.csv.gz", GOOD))


PLACES = [
    ("s3://bucket/f.csv", "this machine"), ("https://example.org/f.csv", "this machine"), ("file:///f", "machine"),
    (".", "folder"), ("missing.csv", "missing.csv"), ("pipe", "file"), ("a\x00b", "file"), ("a" * 5000, "file"),
]  # fmt: skip


@pytest.mark.parametrize(("place", "fragment"), PLACES, ids=[place[:20] for place, _ in PLACES])
def test_a_place_that_is_no_local_file_is_refused(place, fragment, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    refused(lambda: _file(place), fragment)


def test_a_file_needs_permission_and_the_names_of_two_columns(tmp_path, monkeypatch):
    good = write(tmp_path / "good.csv", GOOD)
    refused(lambda: hetdp.read(good, value="x", missing="midpoint", epsilon="x", bounds=(0, 1)), "same column")
    refused(lambda: hetdp.read(good, epsilon="e", bounds=(0, 1)), "value=")
    refused(lambda: hetdp.read(good, value="x", missing="midpoint", epsilon=[1], bounds=(0, 1)), "epsilon=")
    monkeypatch.setattr(os, "access", lambda *_args, **_more: False)
    refused(lambda: _file(good), "permission")


def test_a_stray_line_feed_in_a_file_with_carriage_returns_is_read_or_refused(tmp_path):
    told, tally = outcome(lambda: _file(write(tmp_path / "f.csv", GOOD.replace("\n", "\r") + "\n")))
    assert told or tally == _file(write(tmp_path / "g.csv", GOOD))


def test_text_of_a_table_given_in_place_of_a_file_name_is_not_repeated():
    refused(lambda: _file(GOOD), "file")


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_file_that_changes_while_it_is_read_is_refused(kind, tmp_path, monkeypatch):
    rows = [Person(MARKER, PRIVATE, "1", 1.0)] * 3
    path = _csv(rows, tmp_path) if kind == "csv" else _parquet(rows, tmp_path, number, epsilon_number)
    _file(path)
    module = {"csv": "delimited", "parquet": "columns"}[kind]
    original = batch_of

    def touching(*args, **more):
        os.utime(path, ns=(1, 1))
        return original(*args, **more)

    monkeypatch.setattr(f"hetdp.sources.{module}.batch_of", touching)
    refused(lambda: _file(path), "changed")


def _arrow(path, columns, names=("x", "e")):
    pq.write_table(pa.Table.from_arrays([pa.array(column) for column in columns], names=list(names)), path)


PARQUET = {
    "duplicate names": (([PRIVATE], [PRIVATE], [1.0]), ("x", "x", "e"), "Parquet"),
    "no such column": (([PRIVATE], [1.0]), ("y", "e"), "'x'"),
    "zero columns": ((), (), "'x'"),
    "zero rows": ((pa.array([], pa.float64()), pa.array([], pa.float64())), ("x", "e"), "n = 0"),
    "list": (([[PRIVATE]], [1.0]), ("x", "e"), "'x'"),
    "struct": (([{"a": PRIVATE}], [1.0]), ("x", "e"), "'x'"),
    "bytes": (([MARKER.encode()], [1.0]), ("x", "e"), "'x'"),
    "date": (([dt.date(2024, 1, 31)], [1.0]), ("x", "e"), "'x'"),
    "boolean epsilon": (([PRIVATE], [True]), ("x", "e"), "'e'"),
    "epsilon of lists": (([PRIVATE], [[1.0]]), ("x", "e"), "'e'"),
    "epsilon missing": (([PRIVATE, PRIVATE], [1.0, None]), ("x", "e"), "row 2"),
    "epsilon text missing": (([PRIVATE, PRIVATE], ["1", None]), ("x", "e"), "row 2"),
    "epsilon of nothing": (([PRIVATE], pa.nulls(1)), ("x", "e"), "row 1"),
}


@pytest.mark.parametrize("row", PARQUET)
def test_a_bad_parquet_file_is_refused_by_its_types_and_names(row, tmp_path, capfd, caplog):
    if row == "duplicate names" and pl.__version__.startswith("1."):
        pytest.skip("Polars 1 does not tell: limits.md")
    columns, names, fragment = PARQUET[row]
    path = tmp_path / "f.parquet"
    _arrow(path, columns, names)
    refused(lambda: _file(path), fragment, capfd=capfd, caplog=caplog)


def test_a_truncated_parquet_file_is_refused_without_an_offset_or_a_value(tmp_path, capfd, caplog):
    whole = tmp_path / "whole.parquet"
    _arrow(whole, ([MARKER] * 400, np.linspace(0, 1, 400)))
    data = whole.read_bytes()
    assert MARKER.encode() in data
    for size in range(4, len(data), max(1, len(data) // 60)):
        path = write(tmp_path / f"{size} part.parquet", data[:size])
        refused(lambda path=path: _file(path), "part.parquet", capfd=capfd, caplog=caplog)


def test_a_damaged_parquet_page_is_read_or_refused_but_never_shown(tmp_path, capfd, caplog):
    """A flipped bit inside a page cannot always be found; whatever happens is public."""
    whole = tmp_path / "whole.parquet"
    _arrow(whole, ([MARKER, "1", None] * 100, [0.5] * 300))
    data = bytearray(whole.read_bytes())
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    for place in range(4, footer, max(1, footer // 60)):
        damaged = bytearray(data)
        damaged[place] ^= 0x10
        path = write(tmp_path / f"damaged at {place}.parquet", bytes(damaged))
        told, tally = outcome(lambda path=path: repr(_file(path)))
        assert MARKER not in told + tally + "".join(capfd.readouterr()) + caplog.text


def test_control_the_silence_check_notices_a_message_that_is_only_in_the_chain():
    def leaky():
        try:
            float(MARKER + "x")
        except ValueError:
            raise hetdp.InputError("a value cannot be read")  # noqa: B904  the planted fault

    with pytest.raises(AssertionError, match=MARKER):
        refused(leaky)


def test_tiers_name_levels_alike_in_every_source_and_an_unknown_one_is_refused(folder):
    tiers = {"open": "public", "shy": 0.1, "never": 0}
    names = ["open", "shy", "never", " shy "]
    path = write(folder / "tiers.csv", "x,e\n" + "".join(f"1,{name}\n" for name in names))
    pl.DataFrame({"x": [1.0] * 4, "e": names}).write_parquet(folder / "tiers.parquet")
    tally = hetdp.read([1] * 4, epsilon=names, bounds=(LO, HI), missing="midpoint", tiers=tiers)
    assert seen(tally) == expected([(1.0, math.inf), (1.0, 0.1), (1.0, 0.0), (1.0, 0.1)])
    for file in (path, folder / "tiers.parquet"):
        assert hetdp.read(file, value="x", missing="midpoint", epsilon="e", bounds=(LO, HI), tiers=tiers) == tally
    bad = write(folder / "tiers.csv", f"x,e\n{MARKER},shy\n{MARKER},1\n")
    refused(
        lambda: hetdp.read(bad, value="x", missing="midpoint", epsilon="e", bounds=(LO, HI), tiers=tiers),
        "line 3",
        "'shy'",
    )


@pytest.mark.parametrize("kind", [np.float16, "M8[ns]", "m8[ns]", bool, complex, "S3"])
def test_an_epsilon_array_that_cannot_hold_a_promise_is_refused_by_its_type(kind):
    refused(lambda: _memory([1.0, 2.0], np.zeros(2, kind)), "array of")


@pytest.mark.parametrize("text", ["05", "00.1", "+01", "007"])
def test_a_leading_zero_is_refused_because_it_may_be_the_end_of_a_decimal_comma(folder, text):
    path = write(folder / "zero.csv", f"e,x\n{text},1\n")
    refused(lambda: hetdp.read(path, value="x", missing="midpoint", epsilon="e", bounds=(LO, HI)), "line 2")
    comma = write(folder / "comma.csv", "x,e\n5,5,0,05\n")
    refused(lambda: hetdp.read(comma, value="x", missing="midpoint", epsilon="e", bounds=(LO, HI)), "line 2")


@pytest.mark.parametrize("bad", ["-1", "nonsense"])
def test_a_message_about_an_epsilon_does_not_depend_on_the_values_beside_it(folder, bad):
    """A quote or a comma in the value makes a line odd; the words, and the line they name, must stay the same."""
    told = set()
    for one, other in itertools.product(["1", '"1"', '"1,5"', '"a ""b"""', 'in"ch'], repeat=2):
        path = write(folder / "same.csv", f"e,x\n0.1,2\n{bad},{one}\n{bad},{other}\n")
        told.add(outcome(lambda: hetdp.read(path, value="x", missing="midpoint", epsilon="e", bounds=(LO, HI)))[0])  # noqa: B023
    assert len(told) == 1, told


def test_an_epsilon_right_of_the_value_is_never_quoted(folder):
    """With a public cell missing, a piece of the value can stand where ε should."""
    path = write(folder / "short.csv", f"x,e,note\n2,{MARKER}x,0.1\n")
    refused(lambda: hetdp.read(path, value="x", missing="midpoint", epsilon="e", bounds=(LO, HI)), "line 2")


def test_long_digits_take_no_longer_than_their_length(folder):
    """A cell that a careless pattern would try in quadratic time: a million digits and a letter."""
    assert math.isnan(value_of("1" * 1_000_000 + "x"))


def test_check_lists_lines_that_are_not_plain_and_says_private_in_every_form(folder):
    path = write(folder / "odd.csv", 'x,e\n1,0.5\n"1",0.5\n"1,000",0.5\n')
    found = hetdp.check(path, value="x", epsilon="e", bounds=(LO, HI))
    assert found.places["odd"] == (3, 4)
    assert repr(found).startswith("PRIVATE")
    tally = hetdp.read(path, value="x", missing="midpoint", epsilon="e", bounds=(LO, HI))
    assert "array" not in repr(tally.table) + repr(tally)
