"""One table, every source, every statistic: the same integers, and those of a plain count, person by person."""

from __future__ import annotations

import math
import unicodedata
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import hetdp
import oracle
from hetdp.sources import Source, frames, read_groups, request, sql, tallies_of
from hetdp.statistics import STATISTICS
from oracle import GRID
from support import EXTREME_VALUES, examples
from table_sources import KINDS, SPARK, USUAL, WITH_KINDS, query_of

ask = hetdp.ask
AS_TEXT = "histogram of numbers that are given as text"
TEXT_FILES = {"csv", "tsv", "gzip", "zstd", "several files"}
INF, NAN = math.inf, math.nan
LO, HI = BOUNDS = -2.0, 3.0
OTHER_BOUNDS = 0.0, 250.0
EDGES = [-2.0, -0.5, 0.0, 0.1, 1.0, 2.5, 3.0]
TWENTY = [0.1 * i for i in range(20)]
HUNDREDTHS = [float(Decimal(-2) + Decimal(5) * i / 100) for i in range(101)]  # as they are written in decimals

DROP = "'; drop table people; --"
COMPOSED, DECOMPOSED = "caf\u00e9", unicodedata.normalize("NFD", "caf\u00e9")
ODD_TEXTS = [
    "nurse", "Nurse", "nurse ", " nurse", "NURSE", COMPOSED, DECOMPOSED, "other", "Other", "not listed", "o'brien",
    "o''brien", 'say "hi"', '"', "'", "back\\slash", "\\", "\\\\", "100%", "%s", "%", "_", "a;b", "a,b", "a\tb", "--",
    DROP, "$$", "$1", "{}", "[]", "{0}", "null", "NULL", "None", "none", "nan", "NaN", "<NA>", "NA", "true", "True",
    "false", "1", "1.0", "01", "1e0", "0", "inf", "日本", "😀", "ß", "ss", "SS", "ı", "i", "İ", "\u200b", "\ufeff", "?",
    ":x", "`", "x" * 3000, "#N/A", "(null)", "\\N", "n.a.", "NaT", "\u00a0", "0E1", "0E2", "0e1", "900000000000003001",
    "900000000000003002", "900000000000003001.0",
]  # fmt: skip
LISTED = [
    "nurse", COMPOSED, "other", "o'brien", 'say "hi"', "back\\slash", "\\", "100%", "%s", "a;b", "a,b", "a\tb", "--",
    DROP, "$$", "{}", "null", "None", "nan", "<NA>", "日本", "😀", "ß", "i", "\u200b", "?",
]  # fmt: skip
NUMBERS = [*EXTREME_VALUES, LO, HI, *EDGES, *TWENTY, *HUNDREDTHS, 200.0, 2.0**53, 1e300, None]
NUMBERS += [math.nextafter(edge, side) for edge in EDGES for side in (-INF, INF)]
BINS_64 = [LO + (HI - LO) * (k / 64) for k in range(65)]
NUMBERS += [math.nextafter(x, side) for x in BINS_64[::7] for side in (-INF, INF)]
EPSILONS = [0.0, -0.0, 5e-324, 0.1, 0.5, 1.0, 20.0, INF]


# ---------------------------------------------------------------------------------------------------------
# The plain count: what one person hands over, in Python alone


def hot(place, width):
    return [GRID * (i == place) for i in range(width)]


def among(cell, listed):
    """The place of a text, compared letter by letter; the last one if it is none of them."""
    return listed.index(cell) if cell in listed else len(listed)


def equal(cell, listed):
    """The place of a number."""
    found = [i for i, number in enumerate(listed) if cell is not None and cell == number]
    return found[0] if found else len(listed)


def between(cell, edges):
    if cell is None or math.isnan(cell) or not edges[0] <= cell <= edges[-1]:
        return len(edges) - 1
    return min(sum(edge <= cell for edge in edges) - 1, len(edges) - 2)


def binned(cell, bins):
    return min((2 * oracle.code(cell, BOUNDS) + 1) * bins // (2 * GRID), bins - 1)


def within(cell, grid):
    """The cell between two points of a grid; what lies beyond is at the nearer end, what is missing in a last cell."""
    inner = grid[1:-1]
    missing = cell is None or math.isnan(cell)
    return hot(len(inner) + 1 if missing else sum(point <= cell for point in inner), len(inner) + 2)


def spread(cell):
    code = oracle.code(cell, BOUNDS)
    return [code, (2 * code - GRID) ** 2 // GRID]


def answered(cell):
    if oracle.number(cell) is None:
        return [0, 0, GRID]
    code = oracle.code(cell, BOUNDS)
    return [code, GRID - code, 0]


def there(cell, given, otherwise):
    """What is handed over for a value that is there, and otherwise; None for who leaves."""
    return otherwise if oracle.number(cell) is None else given


def by_group(row, place, groups):
    found, code = [0] * (2 * groups), oracle.code(row["x"], BOUNDS)
    found[2 * place : 2 * place + 2] = code, GRID - code
    return found


def marked(row):
    """Two columns, each with a mark where there is a value."""
    codes = [there(row[name], oracle.code(row[name], ends), 0) for name, ends in (("x", BOUNDS), ("y", OTHER_BOUNDS))]
    return [*codes, *(there(row[name], GRID, 0) for name in "xy")]


MISSING_WORDS = {"", "-", "--", ".", "?", "na", "n/a", "n.a.", "nan", "nat", "nil", "none", "null", "missing"}
MISSING_WORDS |= {"#n/a", "#na", "(null)", "<na>", "\\n"}


def nurses(cell, otherwise, wanted="nurse", words=MISSING_WORDS):
    """Whether somebody is a nurse; what is missing is not there, and so are the words for it."""
    missing = cell is None or cell.strip(" \t\u00a0\u2007\u202f").lower() in words
    return otherwise if missing and cell != wanted else [GRID * (cell == wanted)]


@dataclass(frozen=True)
class Case:
    """A statistic with the columns that it reads, and what a row hands over."""

    statistic: Any
    handed: Any


CASES = {
    "mean": Case(ask.mean(BOUNDS, value="x", missing="midpoint"), lambda r: [oracle.code(r["x"], BOUNDS)]),
    "sum": Case(ask.sum(OTHER_BOUNDS, value="y", missing="midpoint"), lambda r: [oracle.code(r["y"], OTHER_BOUNDS)]),
    "proportion of a text": Case(ask.proportion("nurse", value="t", missing=0), lambda r: [GRID * (r["t"] == "nurse")]),
    "proportion of an odd text": Case(ask.proportion(DROP, value="t", missing=0), lambda r: [GRID * (r["t"] == DROP)]),
    "proportion of a number": Case(ask.proportion(0, value="x", missing=0), lambda r: [GRID * (r["x"] == 0)]),
    "proportion of a boolean": Case(ask.proportion(True, value="b", missing=0), lambda r: [GRID * (r["b"] is True)]),
    "proportion of no": Case(ask.proportion(False, value="b", missing=0), lambda r: [GRID * (r["b"] is False)]),
    "proportion where nobody is missing": Case(
        ask.proportion("nurse", value="t", missing="none"), lambda r: nurses(r["t"], [GRID // 2], words={""})
    ),
    "proportion of a word for nothing": Case(
        ask.proportion("none", value="t", missing="midpoint"), lambda r: nurses(r["t"], [GRID // 2], "none")
    ),
    "count of a code": Case(ask.count("0E1", value="t", missing=0), lambda r: [GRID * (r["t"] == "0E1")]),
    "count of a long code": Case(
        ask.count("900000000000003001", value="t", missing=0), lambda r: [GRID * (r["t"] == "900000000000003001")]
    ),
    "count": Case(ask.count("other", value="t", missing=0), lambda r: [GRID * (r["t"] == "other")]),
    "count of a number": Case(ask.count(0.1, value="x", missing=0), lambda r: [GRID * (r["x"] == 0.1)]),
    "histogram of texts": Case(
        ask.histogram(categories=LISTED, value="t"), lambda r: hot(among(r["t"], LISTED), len(LISTED) + 1)
    ),
    "histogram of numbers": Case(
        ask.histogram(categories=[2.5, -0.0, 1e300, INF, -INF, 0.1, -2], value="x"),
        lambda r: hot(equal(r["x"], [2.5, 0.0, 1e300, INF, -INF, 0.1, -2]), 8),
    ),
    AS_TEXT: Case(
        ask.histogram(categories=["2.5", "0", "0.1"], value="x"), lambda r: hot(equal(r["x"], [2.5, 0.0, 0.1]), 4)
    ),
    "histogram of booleans": Case(
        ask.histogram(categories=[False, True], value="b"), lambda r: hot(equal(r["b"], [False, True]), 3)
    ),
    "histogram by edges": Case(
        ask.histogram(edges=EDGES, value="x"), lambda r: hot(between(r["x"], EDGES), len(EDGES))
    ),
    "histogram by two edges": Case(
        ask.histogram(edges=[0, 0.1], value="x"), lambda r: hot(between(r["x"], [0, 0.1]), 2)
    ),
    "histogram by bins": Case(
        ask.histogram(bins=100, bounds=BOUNDS, value="x"),
        lambda r: hot(between(r["x"], HUNDREDTHS), 101),
    ),
    "mode": Case(ask.mode(categories=LISTED, value="t"), lambda r: hot(among(r["t"], LISTED), len(LISTED) + 1)),
    "quantile of 64 bins": Case(
        ask.quantile(0.5, BOUNDS, bins=64, value="x", missing="midpoint"), lambda r: hot(binned(r["x"], 64), 64)
    ),
    "quantile of 4096 bins": Case(
        ask.quantile([0.1, 0.9], BOUNDS, value="x", missing="midpoint"), lambda r: hot(binned(r["x"], 4096), 4096)
    ),
    "quantile of 1000 bins": Case(
        ask.quantile(0.5, BOUNDS, bins=1000, value="x", missing="midpoint"), lambda r: hot(binned(r["x"], 1000), 1000)
    ),
    "private bounds": Case(ask.bounds(BOUNDS, value="x"), lambda r: within(r["x"], ask.bounds(BOUNDS).grid)),
    "variance": Case(ask.variance(BOUNDS, value="x", missing="midpoint"), lambda r: spread(r["x"])),
    "several means": Case(
        ask.means({"x": BOUNDS, "y": OTHER_BOUNDS}, missing="midpoint"),
        lambda r: [oracle.code(r["x"], BOUNDS), oracle.code(r["y"], OTHER_BOUNDS)],
    ),
    "mean of those who answered": Case(ask.mean(BOUNDS, value="x", missing="estimate"), lambda r: answered(r["x"])),
    "mean by a private group": Case(
        ask.mean_by_group(BOUNDS, LISTED, "t", value="x", missing="midpoint"),
        lambda r: by_group(r, among(r["t"], LISTED), len(LISTED) + 1),
    ),
    "mean by a private group of numbers": Case(
        ask.mean_by_group(BOUNDS, [0, 200], "y", value="x", missing="midpoint"),
        lambda r: by_group(r, equal(r["y"], [0, 200]), 3),
    ),
    # What is done about missing values
    "mean, none missing": Case(ask.mean(BOUNDS, value="x", missing="none"), lambda r: [oracle.code(r["x"], BOUNDS)]),
    "mean, missing is 1": Case(
        ask.mean(BOUNDS, value="x", missing=1),
        lambda r: [there(r["x"], oracle.code(r["x"], BOUNDS), oracle.code(1.0, BOUNDS))],
    ),
    "mean, missing is far outside": Case(
        ask.mean(BOUNDS, value="x", missing=-2.0), lambda r: [there(r["x"], oracle.code(r["x"], BOUNDS), 0)]
    ),
    "mean, missing leave": Case(
        ask.mean(BOUNDS, value="x", missing="drop"), lambda r: there(r["x"], [oracle.code(r["x"], BOUNDS)], None)
    ),
    "sum of those who answered": Case(
        ask.sum((1, 3), value="x", missing="estimate"),  # coded from 0 on, what a missing value adds
        lambda r: [there(r["x"], oracle.code(r["x"], (0.0, 3.0)), 0)],
    ),
    "proportion, missing leave": Case(
        ask.proportion("nurse", value="t", missing="drop"), lambda r: nurses(r["t"], None)
    ),
    "proportion, missing is half": Case(
        ask.proportion("nurse", value="t", missing="midpoint"), lambda r: nurses(r["t"], [GRID // 2])
    ),
    "proportion of a boolean among those who answered": Case(
        ask.proportion(True, value="b", missing="estimate"), lambda r: hot({True: 0, False: 1, None: 2}[r["b"]], 3)
    ),
    "count of those who answered": Case(ask.count(0, value="x", missing="estimate"), lambda r: [GRID * (r["x"] == 0)]),
    "quantile of those who answered": Case(
        ask.quantile(0.5, BOUNDS, bins=64, value="x", missing="estimate"),
        lambda r: hot(there(r["x"], binned(r["x"], 64), 64), 65),
    ),
    "quantile, missing leave": Case(
        ask.quantile(0.5, BOUNDS, bins=64, value="x", missing="drop"),
        lambda r: there(r["x"], hot(binned(r["x"], 64), 64), None),
    ),
    "quantile, missing is 3": Case(
        ask.quantile(0.5, BOUNDS, bins=64, value="x", missing=3),
        lambda r: hot(there(r["x"], binned(r["x"], 64), 63), 64),
    ),
    "variance of those who answered": Case(
        ask.variance(BOUNDS, value="x", missing="estimate"),
        lambda r: there(r["x"], [*spread(r["x"]), GRID], [0, 0, 0]),
    ),
    "variance, missing leave": Case(
        ask.variance(BOUNDS, value="x", missing="drop"), lambda r: there(r["x"], spread(r["x"]), None)
    ),
    "several means of those who answered": Case(
        ask.means({"x": BOUNDS, "y": OTHER_BOUNDS}, missing="estimate"), marked
    ),
    "several means, missing leave": Case(
        ask.means({"x": BOUNDS, "y": OTHER_BOUNDS}, missing="drop"),
        lambda r: marked(r)[:2] if marked(r)[2:] == [GRID, GRID] else None,
    ),
    "mean by a private group of those who answered": Case(
        ask.mean_by_group(BOUNDS, [0, 200], "y", value="x", missing="estimate"),
        lambda r: there(r["x"], [*by_group(r, equal(r["y"], [0, 200]), 3), 0], hot(6, 7)),
    ),
    "mean by a private group, missing leave": Case(
        ask.mean_by_group(BOUNDS, [0, 200], "y", value="x", missing="drop"),
        lambda r: there(r["x"], by_group(r, equal(r["y"], [0, 200]), 3), None),
    ),
    # Cells that stand for numbers
    "mean of words": Case(
        ask.mean(BOUNDS, value="t", values={"nurse": 3, COMPOSED: -2, DROP: 0.5}, missing="estimate"),
        lambda r: answered({"nurse": 3, COMPOSED: -2, DROP: 0.5}.get(r["t"])),
    ),
    "mean of numbers that stand for others": Case(
        ask.mean(BOUNDS, value="x", values={0: 2, 2.5: -1, 0.1: 3}, missing=0),
        lambda r: [oracle.code({0: 2, 2.5: -1, 0.1: 3}.get(r["x"], 0.0), BOUNDS)],
    ),
}


def expected(rows, handed):
    """{group: {ε: (people, sums)}}, person by person; at ε = 0 nothing is handed over."""
    found: dict[str, dict[float, tuple[int, list[int]]]] = {}
    for row in rows:
        level = row["e"] + 0.0
        given = handed(row)
        if given is None:  # this person leaves
            continue
        people, sums = found.setdefault(row["g"], {}).get(level, (0, [0] * len(given)))
        added = given if level > 0 else [0] * len(given)
        found[row["g"]][level] = people + 1, [a + b for a, b in zip(sums, added, strict=True)]
    return found


def together(groups):
    """The same without groups."""
    found: dict[float, tuple[int, list[int]]] = {}
    for table in groups.values():
        for level, (people, sums) in table.items():
            n, added = found.get(level, (0, [0] * len(sums)))
            found[level] = n + people, [a + b for a, b in zip(sums, added, strict=True)]
    return found


def seen(table):
    """{ε: (people, sums)} of a table."""
    table = getattr(table, "table", table)
    columns = table.epsilon.tolist(), table.count.tolist(), table.total.tolist()
    return {level: (people, sums) for level, people, sums in zip(*columns, strict=True)}


SCHEMA = {
    "id": pl.String, "g": pl.String, "x": pl.Float64, "y": pl.Float64, "t": pl.String, "b": pl.Boolean, "e": pl.Float64
}  # fmt: skip


def table_of(rows):
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


def adversarial(texts=(*ODD_TEXTS, None), epsilons=EPSILONS):
    """Every odd number and every odd text, at several ε, in three groups."""
    size = 4 * max(len(NUMBERS), len(texts))
    return table_of(
        [
            (
                f"p{i}",
                f"g{i % 3}",
                NUMBERS[i % len(NUMBERS)],
                [0.0, 200.0, 250.0, 1e9, None, NAN, 17.5][i % 7],
                texts[i % len(texts)],
                [True, False, None][i % 3 if i % 5 else 2],
                epsilons[(i + i // len(epsilons)) % len(epsilons)],
            )
            for i in range(size)
        ]
    )


def source_of(made, statistic, name, **options):
    where = {"epsilon": "e", **query_of(name), **options}
    return Source.of(made, value=statistic.named, reads=statistic.reads, **where)


def test_every_statistic_has_a_case():
    assert {case.statistic.name for case in CASES.values()} == set(STATISTICS)


def test_every_kind_of_reading_is_among_those_of_other_types():
    def kinds(names):
        reads = [read for name in names for read in CASES[name].statistic.reads]
        return {(type(read), getattr(read, "textual", None)) for read in reads}

    assert kinds(READINGS) == kinds(CASES)


OTHER_TYPES = ("dask nullable", "dask categorical")
READINGS = [
    "mean", "histogram of texts", "histogram of numbers", "histogram of numbers that are given as text",
    "histogram of booleans", "histogram by edges", "proportion of a boolean", "several means of those who answered",
    "mean by a private group", "mean of words", "mean of numbers that stand for others", "mean, missing leave",
]  # fmt: skip
"""Every way to read a cell. What a query does with the codes and places that are read does not know the types."""


@pytest.mark.parametrize("name", WITH_KINDS)
def test_every_source_gives_the_integers_of_every_statistic(name, made_of):
    table = adversarial()
    made, rows = made_of(name, table), table.rows(named=True)
    wrong = []
    for what, case in CASES.items():
        if name in OTHER_TYPES and what not in READINGS:
            continue
        if what == AS_TEXT and name in TEXT_FILES:
            continue  # their cells are texts, and "0.0" is not "0"
        tables = source_of(made, case.statistic, name).tables(case.statistic)
        if seen(tables[""]) != together(expected(rows, case.handed)):
            wrong.append(what)
    assert wrong == []


SHORT = ["parquet", "ipc", "pandas", "pandas nullable", "polars", "polars lazy", "pyarrow", "duckdb", "ibis", "dask"]
SHORT += ["postgres", SPARK]


@pytest.mark.parametrize("name", SHORT)
def test_a_number_is_looked_for_in_a_column_of_32_bits_as_that_column_holds_it(name, made_of):
    """As in pandas, where float32([5.15]) == 5.15; as doubles the two differ."""
    cells, texts = [5.15, 7.25, 0.1, None], ["a", "b"]
    rows = {"x": cells * 5, "t": texts * 10, "e": [1.0] * 20}
    table = pl.DataFrame(rows, schema={"x": pl.Float32, "t": pl.String, "e": pl.Float64})
    made = made_of(name, table)
    asked = {
        "share": ask.proportion(5.15, value="x", missing=0),
        "cells": ask.histogram(categories=[5.15, 0.1], value="x"),
        "words": ask.mean((0, 1), values={5.15: 1, 0.1: 0}, value="x", missing=0),
    }
    found = {what: source_of(made, one, name).tables(one)[""].total.tolist() for what, one in asked.items()}
    assert found == {"share": [[5 * GRID]], "cells": [[5 * GRID, 5 * GRID, 10 * GRID]], "words": [[5 * GRID]]}
    both = {"share": asked["share"], "text": ask.proportion("a", value="t", missing=0)}  # text is read in Python
    where = {"epsilon": "e", **query_of(name)}
    _, tallies = tallies_of(made, both, where)
    assert tallies["share"][""].table.total.tolist() == [[5 * GRID]]


WRONG = {
    "a bin closed to the right": (
        "hetdp.core.cells.Edges.of_numbers",
        lambda self, x: np.searchsorted(self.edges[1:], x),
    ),
    "a text without its blanks": (
        "hetdp.sources.columns.places_of",
        lambda cells, kept, _=None: np.array([kept.index((cell or "").strip()) for cell in cells.to_list()]),
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_control_a_wrong_cell_is_noticed_by_the_plain_count(wrong, monkeypatch):
    table = adversarial()
    monkeypatch.setattr(*WRONG[wrong])
    case = CASES["histogram by edges" if "bin" in wrong else "histogram of texts"]
    found = source_of(table, case.statistic, "polars").tables(case.statistic)[""]
    assert seen(found) != together(expected(table.rows(named=True), case.handed))


# ---------------------------------------------------------------------------------------------------------
# Ids, groups, many levels, public rows

SOME = [
    "mean", "proportion of a boolean", "histogram of texts", "histogram by edges", "quantile of 64 bins", "variance",
    "several means", "mean of those who answered", "mean by a private group",
]  # fmt: skip


@pytest.mark.parametrize("name", USUAL)
def test_people_with_ids_and_public_groups_are_the_same_everywhere(name, made_of):
    table = adversarial()
    made, rows, wrong = made_of(name, table), table.rows(named=True), []
    for what in SOME:
        asked, plain = CASES[what].statistic, expected(rows, CASES[what].handed)
        found = read_groups(source_of(made, asked, name, person="id", by="g"), asked)
        if {group: seen(tally) for group, tally in found.items()} != plain:
            wrong.append(what)
    assert wrong == []


@pytest.mark.parametrize("name", USUAL)
def test_a_second_row_of_somebody_is_refused_everywhere_and_cells_are_never_averaged(name, made_of):
    table = adversarial()
    twice, case = made_of(name, pl.concat([table, table[7:8]])), CASES["histogram of texts"]
    with pytest.raises(hetdp.InputError, match="on more than one row"):
        source_of(twice, case.statistic, name, person="id").tables(case.statistic)
    with pytest.raises(hetdp.InputError, match="keep one row of each person"):
        source_of(twice, case.statistic, name, person="id", rows="average").tables(case.statistic)


@pytest.fixture
def few_levels(monkeypatch):
    """Few levels are kept exactly and few rows fetched at once, so that a small table has many."""
    for module in ("hetdp.core.levels", "hetdp.sources.request", "hetdp.sources.people"):
        monkeypatch.setattr(f"{module}.WIDE_LIMIT", 16)
        monkeypatch.setattr(f"{module}.LIMIT", 24)
    monkeypatch.setattr(request, "_FETCHED", 32)


def rounded(groups, bits):
    found: dict[str, dict[float, tuple[int, list[int]]]] = {}
    for group, table in groups.items():
        for level, (people, sums) in table.items():
            down = oracle.rounded_down(level, bits)
            n, added = found.setdefault(group, {}).get(down, (0, [0] * len(sums)))
            found[group][down] = n + people, [a + b if down > 0 else 0 for a, b in zip(sums, added, strict=True)]
    return found


MANY = [0.0, -0.0, INF, 5e-324, 2.0**-1000, 2.0**-1001, 1e308]
MANY += [math.nextafter(2.0**k, side) for k in (-300, -3, 0, 1, 300) for side in (0, 2.0**k, INF)]
MANY += [1 + k / 4096 for k in range(1, 40)]


@pytest.mark.parametrize("name", USUAL)
def test_many_levels_are_rounded_alike_everywhere(name, made_of, few_levels):
    """A wide statistic keeps 8 bits of an ε, another one 12; both with ids and groups and without."""
    table = adversarial(epsilons=MANY)
    made, rows, wrong = made_of(name, table), table.rows(named=True), []
    for what, bits in {
        "histogram by bins": 8,
        "quantile of 4096 bins": 8,
        "histogram by edges": 12,
        "mean": 12,
    }.items():
        asked, plain = CASES[what].statistic, rounded(expected(rows, CASES[what].handed), bits)
        whole = source_of(made, asked, name).tables(asked)[""]
        by_group = read_groups(source_of(made, asked, name, person="id", by="g"), asked)
        assert whole.rounded
        assert whole.wide == (bits == 8)
        if seen(whole) != together(plain) or {g: seen(tally) for g, tally in by_group.items()} != plain:
            wrong.append(what)
    assert wrong == []


@pytest.mark.parametrize("name", USUAL)
def test_public_rows_join_alike_everywhere(name, made_of):
    table, public = adversarial(), adversarial()[::7].with_columns(e=pl.lit(0.1))
    made, rows, wrong = made_of(name, table), table.rows(named=True), []
    known = [{**row, "e": INF} for row in public.rows(named=True)]
    for what in ("histogram of texts", "quantile of 64 bins", "mean by a private group"):
        case = CASES[what]
        found = read_groups(source_of(made, case.statistic, name, by="g"), case.statistic, public_rows=public)
        if {group: seen(tally) for group, tally in found.items()} != expected([*rows, *known], case.handed):
            wrong.append(what)
    assert wrong == []


# ---------------------------------------------------------------------------------------------------------
# Which queries an engine runs does not depend on values

ENGINES = ["duckdb", "ibis", "dask", "postgres", SPARK]


@pytest.mark.parametrize("what", ["histogram of texts", "quantile of 4096 bins", "mean by a private group"])
@pytest.mark.parametrize("name", ["duckdb", "postgres"])
def test_the_queries_of_an_engine_are_the_same_for_every_value(name, what, made_of, monkeypatch):
    """In one table all people are in one cell, in the other in many, more than are fetched at once."""
    monkeypatch.setattr(request, "_FETCHED", 8)
    calls = []

    def noted(kind, method):
        honest = getattr(kind, method)
        monkeypatch.setattr(kind, method, lambda self, *a, **k: calls.append((method, a, k)) or honest(self, *a, **k))

    for method in ("levels", "many"):
        noted(frames._Query, method)
        noted(sql.LevelTable, method)
    case, found = CASES[what], []
    many = adversarial(epsilons=[0.5, 1.0, 2.0])
    for table in (many, many.with_columns(x=pl.lit(0.25), t=pl.lit("nurse"))):
        source_of(made_of(name, table), case.statistic, name).tables(case.statistic)
        found.append(calls.copy())
        calls.clear()
    assert found[0] == found[1] != []


@pytest.mark.parametrize("number", range(3, 30, 4))
def test_texts_of_epsilon_are_refused_by_their_number_alone(number, made_of, few_levels, monkeypatch):
    """Whatever cells people are in: between the limit and what an engine counts as more, nothing else may decide."""
    case, said = CASES["histogram by bins"], set()
    for values in (NUMBERS, [0.25]):
        rows = [(f"p{i}", "g", values[i % len(values)], f"{1 + i % number / 64}") for i in range(300)]
        table = pl.DataFrame(rows, schema=["id", "g", "x", "e"], orient="row")
        try:
            said.add(
                len(source_of(made_of("duckdb", table), case.statistic, "duckdb").tables(case.statistic)[""].epsilon)
            )
        except hetdp.InputError as error:
            said.add(str(error))
    assert len(said) == 1
    assert ("different texts" in str(said)) == (number > 16)


# ---------------------------------------------------------------------------------------------------------
# Other types of columns


def kind_table(cells, kind):
    return pl.DataFrame({"v": pl.Series(cells, dtype=kind), "e": [0.5] * len(cells)})


def counts(source, statistic, name=""):
    found = source_of(source, statistic.of("v"), name).tables(statistic.of("v"))[""]
    return (found.total[0] // GRID).tolist()


DECIMALS = [
    Decimal("0.1"),
    Decimal(-2),
    Decimal(3),
    Decimal("2.5"),
    Decimal("0.0999999999"),
    Decimal(1000000),
    None,
]
BY_EDGES, BY_NUMBER = ask.histogram(edges=EDGES), ask.histogram(categories=[2.5, 0.1, -2])
BY_BINS = ask.quantile(0.5, BOUNDS, bins=64)


def plain_counts(cells, statistic):
    numbers = [None if cell is None else float(cell) for cell in cells]
    if statistic is BY_EDGES:
        places, width = [between(x, EDGES) for x in numbers], len(EDGES)
    elif statistic is BY_NUMBER:
        places, width = [equal(x, [2.5, 0.1, -2]) for x in numbers], 4
    else:
        places, width = [binned(x, 64) for x in numbers], 64
    return [places.count(i) for i in range(width)]


@pytest.mark.parametrize("statistic", [BY_EDGES, BY_NUMBER, BY_BINS], ids=["edges", "numbers", "bins"])
@pytest.mark.parametrize("name", ["polars", "pyarrow", "parquet", "pandas", "duckdb", "ibis", "postgres", SPARK])
def test_decimals_are_compared_as_the_doubles_nearest_to_them(name, statistic, request, tmp_path):
    table = kind_table(DECIMALS, pl.Decimal(38, 10))
    if name == "postgres":
        made = postgres_column(request.getfixturevalue("libpq_url"), "numeric", DECIMALS)
    elif name == "spark":
        rows = [(cell, 0.5) for cell in DECIMALS]
        made = request.getfixturevalue("spark").createDataFrame(rows, "v decimal(38, 10), e double")
    else:
        made = KINDS[name](table, tmp_path)
    assert counts(made, statistic, name) == plain_counts(DECIMALS, statistic)


def postgres_column(url, kind, cells, before=""):
    import psycopg

    with psycopg.connect(url) as connection:
        connection.execute(f"{before}; drop table if exists people; create table people (v {kind}, e float8)")
        with connection.cursor() as cursor:
            cursor.executemany("insert into people values (%s, 0.5)", [(cell,) for cell in cells])
    return url


FAR = [
    "NaN",
    "Infinity",
    "-Infinity",
    "1e400",
    "-1e400",
    "1e-400",
    "-1e-400",
    "1e308",
    "1.8e308",
    "5e-324",
    "0",
    "-0.0",
]
FAR += ["0.1000000000000000055511151231257827", "0.09999999999999999", "2.4999999999999999999999999", "-2", "3"]


@pytest.mark.parametrize("statistic", [BY_EDGES, BY_NUMBER, BY_BINS], ids=["edges", "numbers", "bins"])
@pytest.mark.parametrize("kind", ["numeric", "float8", "float4"])
def test_no_number_of_postgresql_makes_a_cell_raise(kind, statistic, libpq_url):
    fit = [cell for cell in FAR if kind == "numeric" or ("400" not in cell and "8e308" not in cell)]
    fit = [cell for cell in fit if kind != "float4" or not {"308", "324"} & {cell[-3:]}]
    numbers = [float(np.float32(cell)) if kind == "float4" else float(cell) for cell in fit]
    if kind == "float4" and statistic is BY_NUMBER:  # a number is compared as the column holds it
        numbers = [float(str(np.float32(cell))) for cell in fit]
    assert counts(postgres_column(libpq_url, kind, fit), statistic, "postgres") == plain_counts(numbers, statistic)


@pytest.mark.parametrize("kind", [pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt64, pl.Float32])
@pytest.mark.parametrize("name", ["polars", "pyarrow", "parquet", "pandas", "duckdb"])
def test_whole_numbers_of_every_width_are_sorted_alike(name, kind, tmp_path):
    cells = [0, 1, 2, 3, 100, 1, None]
    cells += [] if kind in (pl.UInt8, pl.UInt64) else [-2, -3]
    made = KINDS[name](kind_table(cells, kind), tmp_path)
    for statistic in (BY_EDGES, BY_NUMBER, BY_BINS):
        assert counts(made, statistic, name) == plain_counts(cells, statistic)


def test_the_widest_integers_of_duckdb_become_the_nearest_doubles():
    import duckdb

    near = [2**100 + 2**47, 2**100 + 2**47 + 1, 2**100 + 2**48 + 2**47, 2**126 + 3**70, -(2**120) - 7**40]
    near += [(2**54 + i) * 2**62 + j for i in range(8) for j in (-1, 0, 1)]
    connection = duckdb.connect()
    connection.execute("create table people (v hugeint, e double)")
    connection.executemany("insert into people values (?, 0.5)", [(cell,) for cell in near])
    listed = sorted({float(cell) for cell in near})
    found = counts(connection.table("people"), ask.histogram(categories=listed))
    assert found == [sum(float(cell) == number for cell in near) for number in listed] + [0]


TEXTS = ["nurse", "Nurse", None, "other", "o'brien", COMPOSED, DECOMPOSED, "nurse"]
LABELS = ["other", "nurse", COMPOSED, "o'brien"]
OF_TEXTS = ask.histogram(categories=LABELS)
COUNTS = [sum(text == label for text in TEXTS) for label in LABELS]
COUNTS += [len(TEXTS) - sum(COUNTS)]


def test_enums_and_categoricals_are_compared_as_their_texts(libpq_url, tmp_path):
    import duckdb
    import pandas as pd

    known = list(dict.fromkeys(text for text in TEXTS if text is not None))
    enum = kind_table(TEXTS, pl.Enum(known))
    connection = duckdb.connect()
    quoted = ", ".join("'" + text.replace("'", "''") + "'" for text in known)
    connection.execute(f"create type job as enum ({quoted})")
    connection.execute("create table people (v job, e double)")
    connection.executemany("insert into people values (?, 0.5)", [(text,) for text in TEXTS])
    made = {
        "enum": enum,
        "parquet": KINDS["parquet"](enum, tmp_path),
        "categorical": kind_table(TEXTS, pl.Categorical),
        "dictionary": enum.to_arrow(),
        "pandas": pd.DataFrame({"v": pd.Categorical(TEXTS), "e": 0.5}),
        "duckdb": connection.table("people"),
        "postgres": postgres_column(libpq_url, "job", TEXTS, f"create type job as enum ({quoted})"),
    }
    assert {name: counts(source, OF_TEXTS, name) for name, source in made.items()} == dict.fromkeys(made, COUNTS)


def test_types_that_cells_may_have_decided_never_raise_in_memory():
    """Nobody answered, or everybody gave a number: the column has another type, and everybody is in the last cell."""
    import pandas as pd

    nobody, numbers = [None] * 3, [1, 2, 3]
    for cells in (nobody, numbers):
        made = [
            pl.DataFrame({"v": cells, "e": [0.5] * 3}),
            pl.DataFrame({"v": cells, "e": [0.5] * 3}).lazy(),
            pl.DataFrame({"v": cells, "e": [0.5] * 3}).to_arrow(),
            pd.DataFrame({"v": cells, "e": 0.5}),
            pd.DataFrame({"v": pd.array(cells, dtype="Int64"), "e": 0.5}),
        ]
        assert [counts(source, OF_TEXTS) for source in made] == [[0, 0, 0, 0, 3]] * len(made)
        for values in (cells, np.array(cells, dtype=object), np.array(cells, dtype=float)):
            tally = hetdp.read(values, epsilon=0.5, statistic=OF_TEXTS)
            assert (tally.table.total[0] // GRID).tolist() == [0, 0, 0, 0, 3]


class Hostile(str):
    """A text whose class does not let itself be compared."""

    __slots__ = ()

    def __eq__(self, other):
        raise RuntimeError("compared")

    def __hash__(self):
        raise RuntimeError("hashed")


def test_texts_of_other_classes_count_as_what_they_say_and_no_cell_raises():
    cells = [
        np.str_("nurse"),
        Hostile("nurse"),
        Hostile("x"),
        "nurse",
        b"nurse",
        object(),
        [1],
        Decimal("sNaN"),
        "\ud800",
    ]
    tally = hetdp.read(cells, epsilon=0.5, statistic=OF_TEXTS)
    assert (tally.table.total[0] // GRID).tolist() == [0, 3, 0, 0, 6]


@pytest.mark.parametrize(
    "values",
    [np.array(["2020-01-01"], "datetime64[ns]"), np.ma.array(["a"], mask=[True]), np.array([b"a"]), np.array([["a"]])],
    ids=["dates", "masked", "bytes", "a matrix"],
)
def test_arrays_of_other_kinds_are_refused_by_their_kind(values):
    with pytest.raises(hetdp.InputError, match=r"array|dimension"):
        hetdp.read(values, epsilon=0.5, statistic=OF_TEXTS)


@pytest.mark.parametrize("name", ENGINES)
def test_engines_refuse_by_type_what_they_could_fail_at_by_value(name, made_of):
    """Categories that are numbers are not looked for in a declared column of text, whatever it holds."""
    table = adversarial(texts=("1", "2"))
    for statistic in (ask.histogram(categories=[1, 2]),):
        with pytest.raises(hetdp.InputError, match=r"'t' (must hold numbers|holds text)"):
            source_of(made_of(name, table), statistic.of("t"), name).tables(statistic.of("t"))
    with pytest.raises(hetdp.InputError, match=r"'x' (must hold text|holds numbers)"):
        source_of(made_of(name, table), OF_TEXTS.of("x"), name).tables(OF_TEXTS.of("x"))


TEXT_CELLS = ["1", " 1 ", "1.0", "01", "+1", "1e0", "true", "True", "x", "", None, "2.5", "1,0", "１"]


@pytest.mark.parametrize(
    "name", ["csv", "tsv", "gzip", "ndjson", "several files", "sqlite", "pandas", "polars", "parquet"]
)
def test_numbers_and_booleans_are_found_in_cells_of_text(name, made_of):
    """As in a list: by what they mean, blanks around aside, and the names of booleans as 1 and 0."""
    table = kind_table(TEXT_CELLS, pl.String)
    assert counts(made_of(name, table), ask.histogram(categories=[1, 2.5]), name) == [8, 1, 5]
    assert counts(made_of(name, table), ask.histogram(categories=[False, True]), name) == [0, 8, 6]
    read = [ask.histogram(categories=[1, 2.5]).sorting.index(cell) for cell in TEXT_CELLS]
    assert [read.count(i) for i in range(3)] == [8, 1, 5]


def test_decimal_commas_and_thousands_are_read_in_categories_and_edges_too(tmp_path):
    (tmp_path / "a.csv").write_text("v;e\n1,5;1\n1.500,0;1\n1.5;1\n")
    (tmp_path / "a.ndjson").write_text('{"v": 1.5, "e": 1}\n{"v": "1.500,0", "e": 1}\n{"v": "1.5", "e": 1}\n')
    for name, sign in (("a.csv", ";"), ("a.ndjson", None)):
        form = {"delimiter": sign, "decimal": ",", "thousands": "."}
        for statistic in (ask.histogram(categories=[1.5, 1500]), ask.histogram(edges=[1, 2, 1500])):
            tally = hetdp.read(tmp_path / name, value="v", epsilon="e", statistic=statistic, **form)
            assert (tally.table.total[0] // GRID).tolist() == [1, 1, 1], (name, statistic)


def test_json_texts_are_texts_and_json_numbers_are_numbers(tmp_path):
    path = tmp_path / "a.ndjson"
    cells = [
        '"1"',
        '"1.0"',
        "1",
        "1.0",
        "10e-1",
        "true",
        "false",
        "null",
        "NaN",
        "Infinity",
        "{}",
        "[]",
        '"{}"',
        '"?"',
        '"\\ud800"',
        "word",
        "1,5",
    ]
    path.write_text("".join(f'{{"v": {cell}, "e": 1}}\n' for cell in cells))
    for listed, found in {
        ("1", "2"): [6, 0, 11],  # "1", "1.0", the three numbers, and true, which is 1
        ("{}", "?"): [1, 1, 15],
        ("false", "inf"): [1, 1, 15],
        (1, 0): [6, 1, 10],
        (False, True): [1, 6, 10],
        (math.inf, 2): [1, 0, 16],
    }.items():
        assert counts(path, ask.histogram(categories=list(listed))) == found, listed


def test_a_category_that_no_table_can_hold_is_refused():
    with pytest.raises(hetdp.InputError, match="surrogate"):
        ask.histogram(categories=["a", "\ud800"])


@pytest.mark.parametrize("name", ["csv", "ndjson", "polars", "pandas", "duckdb", "ibis", "sqlite", "postgres"])
def test_a_category_with_a_nul_equals_no_text_that_is_there(name, made_of):
    table = kind_table(["a", "a ", None], pl.String)
    assert counts(made_of(name, table), ask.histogram(categories=["a\0", "\0", "a"]), name) == [0, 0, 1, 2]


@pytest.mark.parametrize("name", ["ndjson", "polars", "parquet", "pandas", "duckdb", "ibis", "sqlite", "postgres"])
def test_an_empty_text_is_a_category_and_a_missing_cell_is_not(name, made_of):
    table = kind_table(["", None, " ", "a"], pl.String)
    assert counts(made_of(name, table), ask.histogram(categories=["", "a"]), name) == [1, 1, 2]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["csv", "polars", "duckdb", "ibis", "postgres"])
def test_as_many_cells_as_there_may_be_are_sorted_in_every_engine(name, made_of):
    table = adversarial()
    names, numbers = [*(f"c{i}" for i in range(1021)), "nurse", "other"], [i / 10 for i in range(1023)]
    bins = ask.histogram(bins=1023, bounds=BOUNDS, value="x")
    cases = [
        Case(ask.histogram(categories=names, value="t"), lambda r: hot(among(r["t"], names), 1024)),
        Case(ask.histogram(categories=numbers, value="x"), lambda r: hot(equal(r["x"], numbers), 1024)),
        Case(bins, lambda r: hot(between(r["x"], bins.edges), 1024)),
    ]
    made = made_of(name, table)
    for case in cases:
        found = seen(source_of(made, case.statistic, name).tables(case.statistic)[""])
        assert found == together(expected(table.rows(named=True), case.handed))


# ---------------------------------------------------------------------------------------------------------
# Any table

texts = st.one_of(
    st.none(), st.sampled_from(ODD_TEXTS), st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=3)
)
cells = st.one_of(st.none(), st.sampled_from(NUMBERS), st.floats())
ANY = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
TABLES = st.lists(st.tuples(cells, texts, st.sampled_from([0.0, 0.5, INF])), min_size=1, max_size=20)


def any_table(drawn):
    return table_of([(f"p{i}", "g", x, 0.0, text, None, e) for i, (x, text, e) in enumerate(drawn)])


@pytest.mark.parametrize("name", ["csv", "ndjson", "parquet", "pandas", "polars", "sqlite", "duckdb", "postgres"])
@given(drawn=TABLES)
@settings(ANY, max_examples=examples(10))
def test_any_table_is_sorted_alike_everywhere(name, drawn, made_of):
    table = any_table(drawn)
    if name == "csv":  # an empty text is a missing cell there, and a line with nothing but blanks is nobody
        table = table.with_columns(t=pl.when(pl.col("t") == "").then(None).otherwise(pl.col("t")))
    made, rows = made_of(name, table), table.rows(named=True)
    for what in ("histogram of texts", "histogram by edges", "quantile of 1000 bins", "mean by a private group"):
        case = CASES[what]
        found = source_of(made, case.statistic, name).tables(case.statistic)[""]
        assert seen(found) == together(expected(rows, case.handed)), what


# ---------------------------------------------------------------------------------------------------------
# Several questions in one pass

QUESTIONS = {
    "x": ask.mean(BOUNDS, missing="midpoint"),
    "x cells": ask.histogram(edges=EDGES, value="x"),
    "x listed": ask.histogram(categories=[2.5, 0.1], value="x"),
    "median": ask.quantile(0.5, BOUNDS, value="x", missing="midpoint"),
    "job": ask.histogram(categories=LISTED, value="t"),
    "nurses": ask.proportion("nurse", value="t", missing=0),
    "by job": ask.mean_by_group(BOUNDS, LISTED, "t", value="x", missing="drop"),
    "two": ask.means({"x": BOUNDS, "y": OTHER_BOUNDS}, missing="estimate"),
    "spread": ask.variance(OTHER_BOUNDS, value="y", missing="midpoint"),
    "answered": ask.mean(BOUNDS, value="x", missing="estimate"),
}
NAMED = {name: asked.of("x") if name == "x" else asked for name, asked in QUESTIONS.items()}
ASKED = ["csv", "parquet", "ndjson", "pandas", "polars lazy", "sqlite", "duckdb", "postgres"]


@pytest.mark.parametrize("options", [{}, {"person": "id"}], ids=["rows", "ids"])
@pytest.mark.parametrize("name", ASKED)
def test_several_questions_have_the_tallies_of_each_alone(name, options, made_of):
    made = made_of(name, adversarial())
    _, found = tallies_of(made, NAMED, {"epsilon": "e", **query_of(name), **options})
    found = {name_of: groups[""] for name_of, groups in found.items()}
    for what, asked in NAMED.items():
        alone = hetdp.read(made, epsilon="e", statistic=asked, **query_of(name), **options)
        assert found[what] == alone, what
        assert found[what].notes == alone.notes


@pytest.mark.parametrize("name", ["csv", "ndjson", "sqlite", "pandas", "polars"])
def test_one_column_is_read_as_numbers_and_as_several_kinds_of_categories_at_once(name, made_of):
    table = kind_table(TEXT_CELLS, pl.String)
    asked = {
        "mean": ask.mean(BOUNDS, value="v", missing="midpoint"),
        "texts": ask.histogram(categories=["1", "x"], value="v"),
        "other texts": ask.histogram(categories=["True", "x"], value="v"),
        "numbers": ask.histogram(categories=[1, 2.5], value="v"),
        "edges": ask.histogram(edges=[0, 2, 3], value="v"),
    }
    _, found = tallies_of(made_of(name, table), asked, {"epsilon": "e", **query_of(name)})
    found = {name_of: groups[""] for name_of, groups in found.items()}
    for what, statistic in asked.items():
        assert found[what] == hetdp.read(made_of(name, table), epsilon="e", statistic=statistic, **query_of(name)), what
    assert (found["texts"].table.total[0] // GRID).tolist() == [8, 1, 5]  # by what they mean, as numbers
    assert (found["other texts"].table.total[0] // GRID).tolist() == [8, 1, 5]
    assert (found["numbers"].table.total[0] // GRID).tolist() == [8, 1, 5]


@pytest.mark.parametrize("name", ["csv", "parquet", "polars lazy"])
def test_several_questions_about_categories_alone_have_the_tallies_of_each(name, made_of):
    """Rows that are alike are counted as one there."""
    table, rows = adversarial(), adversarial().rows(named=True)
    asked = {what: CASES[what] for what in ("histogram of texts", "count", "proportion of a text", "mode")}
    _, found = tallies_of(made_of(name, table), {k: c.statistic for k, c in asked.items()}, {"epsilon": "e"})
    found = {name_of: groups[""] for name_of, groups in found.items()}
    for what, case in asked.items():
        assert seen(found[what]) == together(expected(rows, case.handed)), what


@pytest.mark.parametrize("name", ["csv", "ndjson", "parquet", "pandas", "sqlite"])
def test_several_questions_read_the_rows_once(name, made_of, monkeypatch):
    passes, honest = [], Source.batches
    monkeypatch.setattr(Source, "batches", lambda self, **k: passes.append(1) or honest(self, **k))
    questions = {what: asked for what, asked in QUESTIONS.items() if asked.missing != "drop"}
    hetdp.ask(made_of(name, adversarial()), questions, epsilon="e", **query_of(name))
    assert len(passes) == 1


def test_several_questions_are_about_the_same_people_so_that_nobody_leaves_some_of_them():
    table = adversarial()
    with pytest.raises(hetdp.InputError, match=r"missing='drop' leaves other people.*missing='estimate'"):
        hetdp.ask(table, QUESTIONS, epsilon="e")
    both = {"x": ask.mean(BOUNDS), "median": ask.quantile(0.5, BOUNDS, value="x")}
    found = hetdp.ask(table, both, epsilon="e", missing="drop")
    answered = sum(oracle.number(x) is not None for x in table["x"])
    assert {answer.plan.n for answer in found.values()} == {answered}, "the control: the same people answered both"
