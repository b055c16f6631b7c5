"""PostgreSQL and SQLite give the tally that numpy gives, integer by integer, and never tell of a value.

Each trap of an engine stands beside a control that shows the trap: the naive expression raises, merges or leaks.
"""

# ruff: noqa: S608  the tests write statements

from __future__ import annotations

import math
import sqlite3
import subprocess
import sys
import unicodedata
from contextlib import closing
from dataclasses import replace
from decimal import Decimal
from unittest import mock

import numpy as np
import psycopg
import pytest
import sqlalchemy
from hypothesis import given, settings
from hypothesis import strategies as st
from psycopg.rows import dict_row

import oracle
from hetdp import InputError
from hetdp.core.domain import GRID, Interval, value_of
from hetdp.core.levels import BITS, LIMIT, MOST_PEOPLE, WIDE_BITS, round_down
from hetdp.sources import Source, _database, request, sql
from hetdp.sources.databases import Database
from hetdp.sources.request import Request, tiers_of
from hetdp.statistics.mean import Mean
from hetdp.tally import Table
from hetdp.tally.groupby import tabulate
from oracle import expected_groups, seen
from support import EXTREME_VALUES, bounds, epsilons, examples

UNIT = Interval(0, 1)
BOTH = Request("x", "eps")
SEVERAL = Request("x", "eps", person="who", several=True)
DOUBLES = "x double precision, eps double precision"


class Postgres:
    """A database of PostgreSQL with one table, made anew for each question."""

    name = "postgres"

    def __init__(self, url):
        self.url = url
        self.source = psycopg.connect(url, autocommit=True)

    def fill(self, columns, rows):
        self.source.execute("drop table if exists people")
        self.source.execute(f"create table people ({columns})")
        with self.source.cursor() as cursor, cursor.copy("copy people from stdin") as copy:
            for row in rows:
                copy.write_row(row)
        return self

    def column(self, text):
        return [cell for (cell,) in self.source.execute(text).fetchall()]


class Sqlite:
    """A database of SQLite in memory."""

    name = "sqlite"

    def __init__(self):
        self.source = sqlite3.connect(":memory:", isolation_level=None)

    def fill(self, columns, rows):
        self.source.execute("drop table if exists people")
        self.source.execute(f"create table people ({columns})")
        places = ", ".join("?" * len(columns.split(",")))
        self.source.execute("begin")
        self.source.executemany(f"insert into people values ({places})", rows)
        self.source.execute("commit")
        return self

    def column(self, text):
        return [cell for (cell,) in self.source.execute(text).fetchall()]


@pytest.fixture(scope="module")
def pg(postgres_server):
    with postgres_server.database() as name:
        engine = Postgres(postgres_server.url(name))
        yield engine
        engine.source.close()


@pytest.fixture(scope="module")
def lite():
    engine = Sqlite()
    yield engine
    engine.source.close()


@pytest.fixture(scope="module", params=["postgres", "sqlite"])
def engine(request):
    return request.getfixturevalue("pg" if request.param == "postgres" else "lite")


def ask(engine, asked=BOTH, interval=UNIT, query="people", tiers=None):
    source = engine.source if isinstance(engine, (Postgres, Sqlite)) else engine
    return Source(Database.of(source, query), replace(asked, tiers=tiers_of(tiers))).tables(
        None if interval is None else Mean(interval)
    )


def same(found, want):
    """Assert that a table is what is expected, or equal to another table."""
    assert isinstance(found, Table)
    assert seen(found) == (seen(want) if isinstance(want, Table) else want)
    assert found.rounded == (isinstance(want, Table) and want.rounded)
    assert not np.signbit(found.epsilon).any()


def expected(values, eps, interval=UNIT):
    return oracle.expected(zip(values, eps, strict=True), (interval.lo, interval.hi))


def complaint(call):
    """Return everything that an error and its chain say."""
    with pytest.raises(InputError) as caught:
        call()
    said, error = "", caught.value
    while error is not None:
        said, error = f"{said} {error!r} {error}", error.__cause__ or error.__context__
    return said


def ties(interval):
    """Values that lie on the borders of cells of the grid, as near as doubles get, and beside them."""
    steps = [0, 1, 2, 3, 7, GRID // 2, GRID - 1, GRID, 0.49999999999999994]
    points = [interval.lo + interval.width * ((k + 0.5) / GRID) for k in steps]
    points += [interval.lo, interval.hi, interval.lo + interval.width * 2.0**-23, interval.mid]
    return [y for x in points for y in (math.nextafter(x, -math.inf), x, math.nextafter(x, math.inf))]


# ---------------------------------------------------------------------------------------------------------
# The same integers


INTERVALS = [
    Interval(0, 1),
    Interval(-0.5, 0.5),
    Interval(0, 250_000),
    Interval(1e15, 1e15 + 1),
    Interval(-8e307, 8e307),
    Interval(0, 1.7e308),
    Interval(0, 1e-320),
    Interval(-5e-324, 5e-324),
    Interval(0.1, 0.3),
]


@pytest.mark.parametrize("interval", INTERVALS, ids=str)
def test_extreme_values_and_ties_give_the_codes_of_numpy(engine, interval):
    values = [*EXTREME_VALUES, *ties(interval), 1e-310, 2e-320]
    eps = [(0.0, 0.1, 1.0, math.inf, -0.0)[i % 5] for i in range(len(values))]
    engine.fill(DOUBLES, zip(values, eps, strict=True))
    same(ask(engine, interval=interval)[""], expected(values, eps, interval))
    everybody = ask(engine, Request("x", 0.5), interval)[""]
    same(everybody, expected(values, [0.5] * len(values), interval))


wide = st.one_of(
    bounds, st.tuples(st.floats(-1e300, 0), st.floats(5e-324, 1e300)), st.just((0.0, 5e-324)), st.just((-1e308, 7e307))
).map(lambda pair: Interval(*pair))


@settings(max_examples=examples(60), deadline=None)
@given(
    interval=wide,
    people=st.lists(st.tuples(st.one_of(st.floats(), st.sampled_from(EXTREME_VALUES)), epsilons), min_size=1),
    places=st.lists(st.floats(0, 1), max_size=20),
)
def test_any_doubles_give_the_table_of_numpy(engine, interval, people, places):
    people = people + [(interval.lo + interval.width * place, 0.7) for place in places]
    values, eps = zip(*people, strict=True)
    engine.fill(DOUBLES, people)
    same(ask(engine, interval=interval)[""], expected(values, eps, interval))


def test_missing_values_count_as_the_midpoint_and_keep_their_weight(engine):
    engine.fill(DOUBLES, [(None, 0.5), (0.0, 0.5), (math.nan, 0.5)])
    same(ask(engine)[""], expected([math.nan, 0.0, math.nan], [0.5] * 3))


def test_control_postgres_raises_where_the_plain_formula_runs(pg):
    pg.fill(DOUBLES, [(5e-324, 0.5)])
    with pytest.raises(psycopg.errors.NumericValueOutOfRange):
        pg.source.execute("select floor((x - 0) / 1e10::float8 * 1048576 + 0.5) from people")
    same(ask(pg, interval=Interval(0, 1e10))[""], expected([5e-324], [0.5], Interval(0, 1e10)))
    pg.fill(DOUBLES, [(-1.7e308, 0.5)])
    with pytest.raises(psycopg.errors.NumericValueOutOfRange):
        pg.source.execute("select x - 1e308::float8 from people")
    same(ask(pg, interval=Interval(1e308, 1.5e308))[""], expected([-1.7e308], [0.5], Interval(1e308, 1.5e308)))


def test_control_nan_is_above_everything_in_postgres(pg):
    pg.fill(DOUBLES, [(math.nan, 0.5)])
    assert pg.column("select least(x, 1.0::float8) from people") == [1.0], "so clipping alone gives the upper bound"
    assert ask(pg)[""].total[:, 0].tolist() == [GRID // 2]


KINDS = {
    "smallint": [-32768, -1, 0, 1, 2, 32767],
    "integer": [-(2**31), -1, 0, 1, 2, 2**31 - 1],
    "bigint": [2**53 + 1, 2**53 + 3, 2**63 - 1, -(2**63), 0, 1],
    "real": [0.1, 0.7, 1e-45, 3e38, -0.0, math.nan, math.inf, -math.inf],
    "numeric": [
        *map(Decimal, ("NaN", "Infinity", "-Infinity", "1e400", "-1e400", "1e-400", "-1e-400", "0.1", "0.70", "0")),
        Decimal(sys.float_info.min) / 2,
        Decimal("0.30000000000000001665334536937734811"),
        Decimal(2**53 + 1),
    ],
    "boolean": [True, False],
}


@pytest.mark.parametrize("interval", [UNIT, Interval(-1, 3), Interval(2.0**53, 2.0**53 + 2**21), Interval(0, 1e-323)])
@pytest.mark.parametrize("kind", KINDS)
def test_every_type_of_number_becomes_the_nearest_double(pg, kind, interval):
    cells = KINDS[kind]
    pg.fill(f"x {kind}, eps double precision", [(cell, 0.5) for cell in [*cells, None]])
    doubles = [
        float(np.float32(c)) if kind == "real" else float(c) if kind == "boolean" else value_of(c) for c in cells
    ]
    same(ask(pg, interval=interval)[""], expected([*doubles, math.nan], [0.5] * (len(cells) + 1), interval))


def test_a_numeric_at_the_edge_of_the_smallest_double_rounds_as_python_does(pg):
    half = Decimal(5**1075).scaleb(-1075)  # 2⁻¹⁰⁷⁵, in the middle between 0 and the smallest double
    cells = [half, half + Decimal("1e-1100"), -half, half * 3]
    interval = Interval(0, 5e-324)
    pg.fill("x numeric, eps double precision", [(cell, 0.5) for cell in cells])
    same(ask(pg, interval=interval)[""], expected([float(cell) for cell in cells], [0.5] * 4, interval))
    with pytest.raises(psycopg.errors.NumericValueOutOfRange):  # control: the bare cast
        pg.source.execute("select x::float8 from people")


def test_control_a_large_numeric_cannot_be_cast(pg):
    pg.fill("x numeric, eps double precision", [("1e400", 0.5)])
    with pytest.raises(psycopg.errors.NumericValueOutOfRange):
        pg.source.execute("select x::float8 from people")
    assert ask(pg)[""].total[:, 0].tolist() == [GRID]


CELLS = [
    2**53 + 1,
    2**63 - 1,
    -(2**63),
    0,
    1,
    0.25,
    math.inf,
    -math.inf,
    None,
    b"\x31",
    b"",
    "0.25",
    " 0.75\t",
    "1e999",
]
CELLS += ["12abc", "0.2x", "", "NA", "0,5", "0x1", "１", "−0.5", "\ud7ff", "0.5\x00", "-0", ".5", "5e-324", "9" * 400]


def test_each_cell_of_sqlite_is_read_by_the_rule_for_cells(lite):
    interval = Interval(-1, 1)
    lite.fill("x, eps real", [(cell, 0.5) for cell in CELLS])
    values = [value_of(cell) for cell in CELLS]
    same(ask(lite, interval=interval)[""], expected(values, [0.5] * len(CELLS), interval))
    naive = lite.column("select cast(x as real) from people where x = '12abc'")
    assert naive == [12.0], "the control: SQLite's own cast reads the beginning of a text"


def test_text_that_is_not_utf_8_is_the_midpoint_and_does_not_raise(lite):
    lite.fill("x, eps real", [("0.25", 0.5)])
    lite.source.execute("insert into people values (cast(x'ff302e35' as text), 0.5)")
    same(ask(lite)[""], expected([0.25, math.nan], [0.5, 0.5]))
    lite.source.create_function("naive", 1, value_of)
    with pytest.raises(sqlite3.Error):  # control: a function of the text itself
        lite.column("select naive(x) from people")


def test_a_converter_of_the_callers_connection_sees_no_private_cell(tmp_path):
    """A driver may convert cells by their type or their column's name; one that raises would tell of a value."""

    def converter(_cell):
        raise ValueError("it saw a cell")

    sqlite3.register_converter("secret", converter)
    path = tmp_path / "people.db"
    with closing(sqlite3.connect(path)) as made:
        made.executescript("create table people (x secret, eps real); insert into people values (0.25, 1), ('abc', 1)")
    flags = sqlite3.PARSE_DECLTYPES | sqlite3.PARSE_COLNAMES
    with closing(sqlite3.connect(path, detect_types=flags)) as connection:
        with pytest.raises(ValueError, match="it saw a cell"):
            connection.execute("select x from people").fetchall()  # a control
        source = Source.of(connection, value="x", epsilon="eps", query="people")
        assert source.tables(Mean(UNIT))[""].total.tolist() == [[GRID // 4 + GRID // 2]]
        renamed = Source.of(connection, value="x", epsilon="eps", query='select x as "x [secret]", eps from people')
        with pytest.raises(InputError, match="column that does not exist"):  # the driver shortens the name to x
            renamed.tables(Mean(UNIT))


def test_a_sqlite_file_in_utf_16_gives_the_same_codes(tmp_path):
    with closing(sqlite3.connect(tmp_path / "wide.db")) as wide_file:
        wide_file.execute("pragma encoding = 'UTF-16le'")
        wide_file.execute("create table people (x, eps, who)")
        wide_file.executemany("insert into people values (?, ?, ?)", [("0.25", "0.5", "é"), ("é", "0.5", "b")])
        wide_file.commit()
    found = ask(f"sqlite:///{tmp_path}/wide.db", Request("x", "eps", person="who"))[""]
    same(found, expected([0.25, math.nan], [0.5, 0.5]))


def test_views_and_expressions_without_a_type_work(lite):
    lite.fill("x text, eps text", [("0.25", "0.5"), ("1", "public")])
    found = ask(lite, query="select max(x, '0') as x, eps || '' as eps from people")[""]
    same(found, expected([0.25, 1], [0.5, math.inf]))


def test_parallel_plans_give_the_same_integers(pg):
    rng = np.random.default_rng(3)
    values, eps = rng.normal(0.5, 1, 20_000), rng.choice([0.1, 1.0, 4.0], 20_000)
    pg.fill(DOUBLES, zip(values.tolist(), eps.tolist(), strict=True))
    serial = ask(pg)[""]
    quick = {"parallel_setup_cost": 0, "parallel_tuple_cost": 0, "min_parallel_table_scan_size": 0}
    options = " ".join(f"-c {name}={value}" for name, value in quick.items())
    with psycopg.connect(pg.url, options=options) as parallel:
        plan = parallel.execute("explain select sum(x) from people").fetchall()
        assert any("Gather" in line for (line,) in plan), "the control: these settings do make parallel plans"
        parallel.rollback()
        same(ask(parallel)[""], serial)
    same(serial, expected(values, eps))


# ---------------------------------------------------------------------------------------------------------
# ε


@pytest.mark.parametrize(
    ("kind", "cells"),
    [
        ("text", ["0.1", " 0.10", "public", "inf", "0", "1e-3"]),
        ("varchar(9)", ["0.1", "0.10", "Infinity"]),
        ("char(9)", ["0.1", "0.10", "public"]),
        ("numeric", ["0.1", "0.10", "0", "Infinity", "1e-400", "0.3000000000000000000000000000000000000001"]),
        ("integer", [0, 1, 2]),
        ("real", [0.1, 0.5, math.inf]),
        ("double precision", [0.1, 5e-324, 1e308, math.inf, 0.0, -0.0]),
    ],
)
def test_epsilon_of_every_type_becomes_the_nearest_double(pg, kind, cells):
    pg.fill(f"x double precision, eps {kind}", [(0.25, cell) for cell in cells])
    doubles = [
        math.inf if c in ("public", "Infinity") else float(np.float32(c) if kind == "real" else c) for c in cells
    ]
    same(ask(pg)[""], expected([0.25] * len(cells), doubles))


def test_an_enum_of_tiers_and_texts_of_tiers_are_read_by_name(pg, lite):
    pg.source.execute("create type tier as enum ('strict', 'open', 'out')")
    tiers, rows = {"strict": 0.1, "open": math.inf, "out": 0}, [(0.25, "strict"), (1, "open"), (0.5, "out")]
    for engine, kind in ((pg, "tier"), (pg, "text"), (lite, "text collate nocase")):
        found = ask(engine.fill(f"x double precision, eps {kind}", rows), tiers=tiers)[""]
        same(found, expected([0.25, 1, 0.5], [0.1, math.inf, 0]))
    assert "unknown tier 'Strict'" in complaint(lambda: ask(lite.fill("x, eps text", [(1, "Strict")]), tiers=tiers))


@pytest.mark.parametrize("cell", [None, -1.0, math.nan, -math.inf])
def test_a_bad_epsilon_is_a_loud_error(engine, cell):
    assert "epsilon" in complaint(lambda: ask(engine.fill(DOUBLES, [(0.5, 0.1), (0.5, cell)])))


@pytest.mark.parametrize("cell", ["", "x", "-1", "1e400", "0,5"])
def test_a_text_that_is_no_epsilon_is_a_loud_error(engine, cell):
    assert "epsilon" in complaint(lambda: ask(engine.fill("x double precision, eps text", [(0.5, "1"), (0.5, cell)])))


def test_a_numeric_epsilon_too_large_for_a_double_is_not_taken_for_public(pg):
    pg.fill("x double precision, eps numeric", [(0.5, "1e400")])
    assert "got NaN" in complaint(lambda: ask(pg))


@pytest.mark.slow
@pytest.mark.parametrize("order", ["probe sees them", "probe does not"])
@pytest.mark.parametrize("kind", ["double precision", "numeric"])
def test_more_levels_than_the_limit_are_rounded_down_as_numpy_does(engine, kind, order):
    many = np.concatenate([np.geomspace(1e-3, 40, LIMIT + 2), [0.0, math.inf, 1e-310, 2.0**1000, 2.0**-1000]])
    few = np.full(2 * LIMIT, 0.5) if order == "probe does not" else np.empty(0)
    eps = np.concatenate([few, many])
    values = np.random.default_rng(1).random(eps.size)
    texts = map(repr, eps.tolist()) if kind == "numeric" else eps.tolist()
    engine.fill(f"x double precision, eps {kind}", zip(values.tolist(), texts, strict=True))
    reference = tabulate(eps, values, UNIT)
    assert reference.rounded
    same(ask(engine)[""], reference)


@pytest.mark.slow
def test_as_many_levels_as_the_limit_are_kept_exactly(engine):
    eps = np.linspace(0.1, 4, LIMIT)
    engine.fill(DOUBLES, zip(np.full(LIMIT, 0.25).tolist(), eps.tolist(), strict=True))
    same(ask(engine)[""], expected(np.full(LIMIT, 0.25), eps))
    assert not ask(engine)[""].rounded


def test_many_numerics_that_are_few_doubles_are_kept_exactly(pg):
    eps = [f"0.5{'0' * 30}{i}" for i in range(LIMIT + 1)]
    pg.fill("x double precision, eps numeric", [(0.25, cell) for cell in eps])
    same(ask(pg)[""], expected([0.25] * (LIMIT + 1), [0.5] * (LIMIT + 1)))


def test_the_limit_is_on_the_levels_of_all_groups_together(engine):
    eps = np.linspace(0.1, 4, LIMIT + 1)
    groups = ["a" if i % 2 else "b" for i in range(eps.size)]
    engine.fill(f"{DOUBLES}, area text", zip([0.25] * eps.size, eps.tolist(), groups, strict=True))
    found = ask(engine, Request("x", "eps", by="area"))
    assert {group: table.rounded for group, table in found.items()} == {"a": True, "b": True}
    assert found["a"].n + found["b"].n == LIMIT + 1
    np.testing.assert_array_equal(found["b"].epsilon, np.unique(round_down(eps[::2])))


def test_too_many_texts_are_refused_with_the_remedy(pg):
    pg.fill("x double precision, eps text", [(0.5, str(i)) for i in range(1, LIMIT + 2)])
    assert "cast" in complaint(lambda: ask(pg))


@pytest.mark.slow
def test_many_texts_of_sqlite_are_read_here_one_by_one(lite):
    """Texts cannot be rounded in the database. They are levels like any other: written in two ways they are one."""
    cells = [*(str(i) for i in range(1, LIMIT + 1)), *(f"{i}.0" for i in range(1, 5 * LIMIT))]
    for texts in (cells[: LIMIT + 9], cells):
        lite.fill("x double precision, eps text", [(0.5, text) for text in texts])
        same(ask(lite)[""], tabulate(np.array(texts, float), np.full(len(texts), 0.5), UNIT))
    assert ask(lite)[""].rounded


@pytest.mark.parametrize("bits", [BITS, WIDE_BITS])
def test_the_rounding_in_the_engine_is_round_down_and_never_up(pg, bits):
    rng = np.random.default_rng(5)
    powers = 2.0 ** np.arange(-1022, 1024, 7)
    some = np.concatenate(
        [
            powers,
            np.nextafter(powers, 0),
            np.nextafter(powers, np.inf),
            rng.random(500),
            10.0 ** rng.uniform(-308, 308, 500),
        ]
    )
    some = np.concatenate([some, [0.0, -0.0, math.inf, 5e-324, sys.float_info.max, 2.0**900, 2.0**-1000]])
    pg.fill(DOUBLES, [(0.5, level) for level in some.tolist()])

    def run(statement):
        return pg.source.execute(statement).fetchall()

    table = sql.LevelTable(run, "select * from people", BOTH, {"x": "float8", "eps": "float8"}, Mean(UNIT))
    found, exact = (table.levels(bits=bits, most=None) for bits in (bits, None))
    levels = np.array([level for _, level, *_ in found])
    np.testing.assert_array_equal(np.unique(round_down(levels, bits)), np.unique(round_down(some, bits)))
    assert sum(people for _, _, _, people, _, _ in found) == some.size
    assert len(found) < len(exact) == np.unique(some).size, "the control: rounding puts levels together"
    cut = 53 - bits
    assert set(levels) <= {0.0, *(some.view(np.int64) >> cut << cut).view(float).tolist()}


def test_a_setting_that_shortens_numbers_does_not_change_epsilon(pg):
    eps = math.nextafter(0.1, 1)
    pg.fill(DOUBLES, [(0.25, eps)])
    with psycopg.connect(pg.url, options="-c extra_float_digits=-10") as short:
        control = short.execute("select eps from people").fetchall()
        short.rollback()
        assert control == [(0.1,)], "the control: the driver reads the shortened text"
        assert ask(short)[""].epsilon.tolist() == [eps]


def test_values_of_people_with_epsilon_0_never_enter(engine):
    engine.fill(DOUBLES, [(1.0, 0.0), (1.0, -0.0), (0.5, 1.0)])
    assert ask(engine)[""].total[:, 0].tolist() == [0, GRID // 2]


# ---------------------------------------------------------------------------------------------------------
# People and groups


def person_by_person(rows, interval):
    """{ε: (people, sum)}: each person's codes averaged, half up."""
    people = [(unicodedata.normalize("NFC", str(who)), "", value, eps) for value, eps, who in rows]
    return expected_groups(people, (interval.lo, interval.hi))[""]


@settings(max_examples=examples(30), deadline=None)
@given(
    people=st.dictionaries(
        st.text("abé e\u0301Z09'", min_size=1, max_size=3)
        .map(lambda text: unicodedata.normalize("NFC", text))
        .filter(lambda text: text == text.strip()),
        st.tuples(epsilons, st.lists(st.one_of(st.floats(-1, 2), st.just(math.nan)), min_size=1, max_size=5)),
        min_size=1,
        max_size=8,
    )
)
def test_a_person_counts_once_with_the_average_of_their_codes(engine, people):
    rows = [(value, eps + 0.0, who) for who, (eps, values) in people.items() for value in values]
    engine.fill(f"{DOUBLES}, who text", rows)
    found = ask(engine, SEVERAL)[""]
    assert seen(found) == person_by_person(rows, UNIT)
    one = ask(engine, Request("x", 0.5, person="who", several=True))[""]
    assert one.n == len(people)


def test_ids_are_exact_text_in_normal_form(engine):
    rows = [(0.0, 1, "a"), (0.0, 1, "A"), (0.0, 1, "a b"), (0.0, 1, "007"), (0.0, 1, "7"), (0.0, 1, "e\u0301")]
    kind = "who text collate nocase" if engine.name == "sqlite" else "who text"
    engine.fill(f"{DOUBLES}, {kind}", [*rows, (1.0, 1, "\u00e9")])
    assert ask(engine, SEVERAL)[""].n == len(rows), "é in two forms is one person, everything else is not"
    if engine.name == "sqlite":
        assert engine.column("select count(distinct who) from people") == [6], "the control: nocase merges a and A"


def test_whole_numbers_and_uuids_are_ids_and_fixed_width_texts_lose_their_padding(pg):
    for kind, cells in (
        ("integer", [1, 2, 1]),
        ("uuid", [f"{i:032x}" for i in (1, 2, 1)]),
        ("char(5)", ["a", "b", "a "]),
        ("name", ["a", "b", "a"]),
    ):
        pg.fill(f"{DOUBLES}, who {kind}", [(0.5, 1.0, cell) for cell in cells])
        assert ask(pg, SEVERAL)[""].n == 2


def test_integers_and_texts_of_the_same_digits_are_one_id_in_sqlite(lite):
    lite.fill("x, eps, who", [(0.5, 1, 7), (0.5, 1, "7")])
    assert ask(lite, SEVERAL)[""].n == 1


FAULTS = [
    ([(0.5, 1.0, "a"), (0.5, 1.0, "a")], False, "1 id is on more than one row, such as 'a'"),
    ([(0.5, 1.0, "a"), (0.5, 2.0, "a")], True, "1 person has more than one epsilon, such as 'a'"),
    ([(0.5, 1.0, "a"), (0.5, None, "a")], True, "epsilon is missing"),
    ([(0.5, 1.0, None)], True, "id is missing"),
    ([(0.5, 1.0, "")], False, "id is missing"),
    ([(0.5, 1.0, "a\nb")], False, "control or invisible characters"),
    ([(0.5, 1.0, "a\x7f")], False, "control or invisible characters"),
    ([(0.5, 1.0, "a ")], False, "a blank around it"),
    ([(0.5, 1.0, "a" * 257)], False, "more than 256 characters"),
    ([(0.5, 1.0, "é" * 200), (0.5, 2.0, "é" * 200)], True, "such as '" + "é" * 64 + "';"),
]


@pytest.mark.parametrize(("rows", "several", "said"), FAULTS, ids=[f"{i}" for i in range(len(FAULTS))])
def test_what_is_wrong_with_a_person_is_said(engine, rows, several, said):
    engine.fill(f"{DOUBLES}, who text", [(0.5, 3.0, "fine"), *rows])
    assert said in complaint(lambda: ask(engine, Request("x", "eps", person="who", several=several)))


@pytest.mark.parametrize("cell", [1.5, b"a"])
def test_an_id_that_is_no_text_and_no_whole_number_is_refused_in_sqlite(lite, cell):
    lite.fill("x, eps, who", [(0.5, 1, cell)])
    assert "must hold text or whole numbers" in complaint(lambda: ask(lite, SEVERAL))


def test_texts_of_epsilon_must_agree_as_texts(engine):
    engine.fill("x double precision, eps text, who text", [(0.5, "0.1", "a"), (0.5, "0.2", "a")])
    assert "more than one epsilon, such as 'a'" in complaint(lambda: ask(engine, SEVERAL))


def test_each_group_has_the_table_of_its_people(engine):
    rng = np.random.default_rng(4)
    values, eps, area = rng.normal(0.5, 1, 900), rng.choice([0, 0.5, 2.0], 900), rng.choice(["N", "n", "Ö "], 900)
    kind = "area text collate nocase" if engine.name == "sqlite" else "area text"
    engine.fill(f"{DOUBLES}, {kind}", zip(values.tolist(), eps.tolist(), area.tolist(), strict=True))
    found = ask(engine, Request("x", "eps", by="area"))
    assert set(found) == {"N", "n", "Ö "}
    for group, table in found.items():
        same(table, expected(values[area == group], eps[area == group]))


def test_groups_may_be_numbers_or_truth_values_and_must_be_there(pg, engine):
    pg.fill(f"{DOUBLES}, area boolean", [(0.5, 1.0, True), (0.5, 1.0, False)])
    assert set(ask(pg, Request("x", "eps", by="area"))) == {"true", "false"}
    engine.fill(f"{DOUBLES}, area integer", [(0.5, 1.0, 3)])
    assert set(ask(engine, Request("x", "eps", by="area"))) == {"3"}
    engine.fill(f"{DOUBLES}, area integer", [(0.5, 1.0, 3), (0.5, 1.0, None)])
    assert "group is missing" in complaint(lambda: ask(engine, Request("x", "eps", by="area")))


def test_a_person_has_one_group(engine):
    engine.fill(f"{DOUBLES}, who text, area text", [(0.5, 1.0, "a", "N"), (0.5, 1.0, "a", "S"), (0.5, 1.0, "b", "S")])
    asked = Request("x", "eps", person="who", several=True, by="area")
    assert "rows in more than one group, such as 'a'" in complaint(lambda: ask(engine, asked))
    found = ask(engine, asked, query="select * from people where area = 'S'")
    assert found["S"].n == 2


# ---------------------------------------------------------------------------------------------------------
# What leaves the database


MARK = "98765.4321"


def test_no_private_cell_is_in_any_message(pg, lite):
    pg.fill("x text, eps double precision", [(f"{MARK}x", 0.5)])
    casting = "select x::double precision as x, eps from people"
    with pytest.raises(psycopg.Error) as control:
        pg.source.execute(casting).fetchall()
    assert MARK in str(control.value), "the control: the driver's own message quotes the cell"
    assert MARK not in complaint(lambda: ask(pg, query=casting))
    lite.fill("x, eps", [(f"{MARK}x", 0.5)])
    lite.source.create_function("fails", 1, int)
    assert MARK not in complaint(lambda: ask(lite, query="select fails(x) as x, eps from people"))
    with closing(sqlite3.connect(":memory:")) as other:
        other.execute(f"create table people as select cast(x'ff{MARK.encode().hex()}' as text) as x, 1 as eps")
        with pytest.raises(sqlite3.Error) as control:
            other.execute("select x from people").fetchall()
        assert MARK in str(control.value), "the control: so does this one's"
        assert ask(other)[""].total[:, 0].tolist() == [GRID // 2]


class Recording(psycopg.Cursor):
    """Keeps every statement; `after` is called after each."""

    said: list[str] = []  # noqa: RUF012  a record of one test at a time
    after = staticmethod(len)

    def execute(self, query, *arguments, **options):
        self.said.append(query)
        result = super().execute(query, *arguments, **options)
        type(self).after(query)
        return result


def test_the_statements_do_not_depend_on_values(pg, lite):
    def statements(engine, value):
        engine.fill(f"{DOUBLES}, who text", [(0.5, 0.1, "a"), (value, 1.0, "b"), (0.25, 1.0, "b")])
        said = []
        if engine is lite:
            lite.source.set_trace_callback(said.append)
            tables = ask(lite, SEVERAL)
            lite.source.set_trace_callback(None)
        else:
            with psycopg.connect(pg.url, cursor_factory=Recording) as recorded:
                Recording.said = said
                tables = ask(recorded, SEVERAL)
        return said, tables[""].total[:, 0].tolist()

    for engine in (pg, lite):
        (one, first), (other, second) = statements(engine, 0.0), statements(engine, 5e-324 if engine is pg else 1.0)
        assert len(one) > 4
        assert one == other
        _, third = statements(engine, 1.0)
        assert third != first
        assert all(statements(engine, value)[0] == one for value in (math.nan, math.inf, -1e308, None))
        assert second is not None


def test_all_statements_see_one_snapshot(pg):
    pg.fill(DOUBLES, [(0.5, 0.1)])

    looks = []

    def insert(statement):
        looks.extend(["limit 0"] if "limit 0" in statement else [])
        if "limit 0" in statement and len(looks) == 2:  # the first look is at the types of columns alone
            pg.source.execute("insert into people values (1, 1)")

    with psycopg.connect(pg.url, cursor_factory=Recording) as recorded:
        Recording.said, Recording.after = [], staticmethod(insert)
        try:
            found = ask(recorded)[""]
        finally:
            Recording.after = staticmethod(len)
    assert found.n == 1
    assert ask(pg)[""].n == 2, "the control: the row was inserted in the middle"


def test_nothing_is_written(pg, tmp_path):
    pg.source.execute("create sequence if not exists tickets")
    query = "select nextval('tickets')::int as x, 1 as eps"
    assert pg.column("select nextval('tickets')"), "the control: outside it works"
    assert "change the database" in complaint(lambda: ask(pg, query=query))
    with closing(sqlite3.connect(tmp_path / "people.db")) as made:
        made.execute("create table people as select 0.5 as x, 1.0 as eps")
        made.commit()
    before = (tmp_path / "people.db").read_bytes()
    assert ask(f"sqlite:///{tmp_path / 'people.db'}")[""].n == 1
    assert (tmp_path / "people.db").read_bytes() == before


def test_counting_people_reads_no_value(engine):
    engine.fill("x text, eps double precision", [("secret", 0.5), ("x", 1.0)])
    for asked in (BOTH, Request(None, "eps")):
        same(ask(engine, asked, None)[""], tabulate(np.array([0.5, 1.0])))


def test_nobody_is_an_empty_mapping(engine):
    engine.fill(f"{DOUBLES}, who text", [])
    for asked in (BOTH, Request("x", 0.5), SEVERAL, Request("x", "eps", by="who")):
        assert ask(engine, asked) == {}


def test_sums_that_could_pass_63_bits_are_refused_by_the_number_of_rows(lite, pg):
    with pytest.raises(sqlite3.Error, match="overflow"):  # control: the engine's own sum
        lite.column("select sum(x) from (select 9223372036854775807 as x union all select 1)")
    assert pg.column("select sum(x) from (values (9223372036854775807), (1)) as v(x)") == [Decimal(2**63)]
    row = ("", 0.5, 0, MOST_PEOPLE, (MOST_PEOPLE * GRID,), 0)
    query = mock.Mock(**{"many.return_value": False, "levels.return_value": [row]})
    assert request.engine_tables(query, BOTH, Mean(UNIT))[""].total.tolist() == [[MOST_PEOPLE * GRID]]
    query.levels.return_value = [row, ("", 0.5, 0, 1, (0,), 0)]
    with pytest.raises(InputError, match="at most"):
        request.engine_tables(query, BOTH, Mean(UNIT))


# ---------------------------------------------------------------------------------------------------------
# Queries, names and types


REFUSED = ["money", "bytea", "date", "timestamp", "jsonb", "double precision[]", "interval", "uuid"]


@pytest.mark.parametrize("kind", REFUSED)
def test_a_value_column_that_holds_no_numbers_is_refused_by_its_type(pg, kind):
    pg.fill(f"x {kind}, eps double precision", [])
    said = complaint(lambda: ask(pg))
    assert "must hold numbers" in said
    assert "in the query" in said or "then" in said


@pytest.mark.parametrize(
    ("asked", "kind"),
    [
        (Request("x", "other"), "boolean"),
        (Request("x", "other"), "date"),
        (Request("x", 0.5, person="other"), "double precision"),
        (Request("x", 0.5, person="other"), "numeric"),
        (Request("x", 0.5, by="other"), "real"),
    ],
)
def test_other_columns_are_refused_by_their_type(pg, asked, kind):
    pg.fill(f"x double precision, other {kind}", [])
    assert "cast it in the query" in complaint(lambda: ask(pg, asked))


def test_a_column_that_is_not_there_or_there_twice_is_named(engine):
    engine.fill(DOUBLES, [(0.5, 1.0)])
    assert "no column 'y'; its columns are 'x', 'eps'" in complaint(lambda: ask(engine, Request("y", "eps")))
    assert "no column 'X'" in complaint(lambda: ask(engine, Request("X", "eps")))
    twice = 'select x, eps, eps as "EPS" from people'
    assert "too alike" in complaint(lambda: ask(engine, query=twice))
    if engine.name == "sqlite":
        assert engine.column('select "y" from people') == ["y"], "the control: SQLite takes it for a text"


def test_names_with_any_characters_work(engine):
    odd = "we\"ird %s :x ? ' $1 ; --"
    quoted = '"' + odd.replace('"', '""') + '"'
    engine.source.execute(f"drop table if exists {quoted}")
    engine.source.execute(f"create table {quoted} as select 0.25 as {quoted}, 1.0 as eps")
    try:
        found = ask(engine, Request(odd, "eps"), query=quoted)[""]
        assert found.total[:, 0].tolist() == [GRID // 4]
        text = f"/* ; */ select * from {quoted} where ';%' <> '' -- end ;\n ; "
        same(ask(engine, Request(odd, "eps"), query=text)[""], found)
    finally:
        engine.source.execute(f"drop table {quoted}")


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("select x, eps from people; drop table people", "one select"),
        ("select x, eps from people) as q; drop table people; --", "one select"),
        ("  ; ", "empty"),
        ("select x, eps from nowhere", "table that does not exist"),
        ("nowhere", "table that does not exist"),
        ("select y, eps from people", "column that does not exist"),
        ("select x, eps frm people p", "syntax error"),
        ("delete from people", "syntax error"),
        ("select oops(x) as x, eps from people", "function"),
    ],
)
def test_a_query_that_cannot_run_is_explained_without_the_words_of_the_driver(engine, query, said):
    engine.fill(DOUBLES, [(0.5, 1.0)])
    assert said in complaint(lambda: ask(engine, query=query))
    assert ask(engine)[""].n == 1


def test_the_caller_tables_may_have_any_name(engine):
    engine.source.execute("drop table if exists hetdp")
    engine.source.execute("create table hetdp as select 0.5 as c, 1.0 as e, 'a' as p, 'b' as g, 1 as k, 1 as q")
    found = ask(engine, Request("c", "e", person="p", several=True, by="g"), query="select q.* from hetdp q")
    assert found["b"].total[:, 0].tolist() == [GRID // 2]


# ---------------------------------------------------------------------------------------------------------
# Sources


def test_every_way_to_name_a_database_gives_the_same_table(pg, libpq_url, postgres_url, tmp_path):
    rows, path = [(0.25, 0.5), (0.75, 1.0)], tmp_path / "people.db"
    with psycopg.connect(libpq_url) as made:
        made.execute("create table people as select * from (values (0.25, 0.5), (0.75, 1.0)) as v(x, eps)")
    with closing(sqlite3.connect(path)) as made:
        made.execute("create table people as select 0.25 as x, 0.5 as eps union all select 0.75, 1.0")
        made.commit()
    urls = [libpq_url, libpq_url.replace("postgresql", "postgres", 1), postgres_url, f"sqlite:///{path}"]
    sources = [*urls, f"sqlite+pysqlite:///{path}"]
    for url in (postgres_url, f"sqlite:///{path}"):
        engine = sqlalchemy.create_engine(url)
        sources += [engine, engine.connect()]
    sources += [psycopg.connect(libpq_url, row_factory=dict_row), psycopg.connect(libpq_url, autocommit=True)]
    sources.append(sqlite3.connect(path))
    sources[-1].row_factory = sqlite3.Row
    for source in sources:
        assert _database(source) is not None
        for _ in range(2):
            same(ask(source)[""], expected(*zip(*rows, strict=True)))
    for source in reversed(sources[5:]):
        (source.dispose if isinstance(source, sqlalchemy.Engine) else source.close)()


def test_a_connection_is_left_as_it_was(lite, pg):
    with closing(sqlite3.connect(":memory:")) as mine:
        mine.row_factory, mine.text_factory = sqlite3.Row, bytes
        mine.execute("create table people (x, eps, who)")
        mine.execute("insert into people values (0.5, '1', 'a')")
        assert mine.in_transaction
        assert ask(mine, SEVERAL)[""].n == 1, "it sees what the caller has not committed yet"
        assert mine.in_transaction
        mine.execute("insert into people values (0.5, '1', 'b')")
        mine.commit()
        assert (mine.row_factory, mine.text_factory) == (sqlite3.Row, bytes)
    with psycopg.connect(pg.url) as busy:
        busy.execute("select 1")
        assert "commit or roll back first" in complaint(lambda: ask(busy))
        busy.rollback()
        pg.fill(DOUBLES, [(0.5, 1.0)])
        assert ask(busy)[""].n == 1
        busy.execute("insert into people values (0.5, 1.0)")
        busy.commit()
    assert "closed" in complaint(lambda: ask(busy))


def test_a_server_that_cannot_be_reached_is_said_without_the_password(tmp_path):
    for url in (
        f"postgresql://me:{MARK}@/db?host={tmp_path}",
        f"postgresql+psycopg://me:{MARK}@127.0.0.1:1/db",
        f"postgresql://me:{MARK}@host:port/db",
    ):
        said = complaint(lambda url=url: ask(url))
        assert "cannot connect" in said
        assert MARK not in said
    engine = sqlalchemy.create_engine(f"postgresql+psycopg://me:{MARK}@127.0.0.1:1/db")
    assert MARK not in complaint(lambda: ask(engine))


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///", "sqlite:///:memory:", "sqlite:///nowhere.db"])
def test_a_sqlite_url_names_a_file_that_is_there(url):
    assert "file" in complaint(lambda: ask(url))


def test_a_file_that_is_no_database_is_said(tmp_path):
    (tmp_path / "people.db").write_text("x,eps\n" * 1000)
    assert "not a SQLite database" in complaint(lambda: ask(f"sqlite:///{tmp_path}/people.db"))


@pytest.mark.parametrize("source", ["people.csv", "mysql://host/db", [1.0], 3, None])
def test_other_sources_are_no_database(source):
    assert _database(source) is None


def test_asking_what_a_source_is_imports_no_driver():
    code = (
        "import sys, hetdp; from hetdp.sources import _database; before = set(sys.modules)\n"
        "_database(3), _database('sqlite:///x')\n"
        "print(sorted((set(sys.modules) - before) | ({'psycopg', 'sqlalchemy'} & set(sys.modules))))"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.strip() == "[]"
