"""Frames of every library give the oracle's tally, and no private cell reaches beyond itself.

Every engine gets the same adversarial table.
"""

from __future__ import annotations

import datetime as dt
import math
import subprocess
import sys
import traceback
from decimal import Decimal
from fractions import Fraction
from functools import partial
from itertools import product

import dask
import dask.dataframe as dd
import duckdb
import ibis
import narwhals.stable.v2 as nw
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hetdp
import oracle
from hetdp.core import levels as _levels
from hetdp.sources import Source, _table, frames
from hetdp.sources.request import Request
from hetdp.statistics.mean import Mean
from oracle import GRID, code, expected_groups, seen
from support import EXTREME_VALUES

# Ibis 12 calls a function of DuckDB that DuckDB 2 has renamed.
pytestmark = pytest.mark.filterwarnings("ignore:fetch_arrow_table:DeprecationWarning")

LO, HI = BOUNDS = -2.0, 6.0
expected = partial(oracle.expected, bounds=BOUNDS)
MARKER = "98765.4321"


@pytest.fixture(autouse=True)
def _one_thread():
    with dask.config.set(scheduler="synchronous"):
        yield


# ---------------------------------------------------------------------------------------------------------
# The frames


def in_duckdb(table):
    connection = duckdb.connect(config={"threads": 2})
    connection.register("arrow", table)
    connection.execute("create table people as select * from arrow")
    return connection.table("people")


IBIS = ibis.duckdb.connect(threads=2)


def in_ibis(table):
    IBIS.con.register("arrow", table)
    IBIS.raw_sql("create or replace table people as select * from arrow")
    return IBIS.table("people")


def nullable(table):
    kinds = {pa.float64(): pd.Float64Dtype(), pa.float32(): pd.Float32Dtype(), pa.int64(): pd.Int64Dtype()}
    return table.to_pandas(types_mapper={**kinds, pa.bool_(): pd.BooleanDtype(), pa.string(): pd.StringDtype()}.get)


def backed(table):
    return table.to_pandas(types_mapper=pd.ArrowDtype)


def in_dask_arrow(table):
    return dd.from_pandas(backed(table), npartitions=2)


def chunked(table):
    third = max(1, table.num_rows // 3)
    return pa.concat_tables([table.slice(i, third) for i in range(0, max(1, table.num_rows), third)])


IN_MEMORY = {
    "pandas": pa.Table.to_pandas,
    "pandas nullable": nullable,
    "pandas Arrow": backed,
    "Polars": pl.DataFrame,
    "PyArrow": chunked,
    "narwhals": lambda table: nw.from_native(pl.DataFrame(table)),
}
ENGINES = {
    "DuckDB": in_duckdb,
    "Ibis": in_ibis,
    "Dask": lambda table: dd.from_pandas(table.to_pandas(), npartitions=2),
}
STREAMS = {"Polars lazy": lambda table: pl.DataFrame(table).lazy()}
FRAMES = {**IN_MEMORY, **STREAMS, **ENGINES}
QUICK = {name: frame for name, frame in FRAMES.items() if name != "Dask"}
"""Dask needs a second for a query; it runs pandas' arithmetic and gets the tests that could tell it apart."""

quick_frame = pytest.mark.parametrize("frame", QUICK.values(), ids=QUICK)
every_frame = pytest.mark.parametrize("frame", FRAMES.values(), ids=FRAMES)
every_engine = pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES)


DOUBLE, TEXT = pa.float64(), pa.string()


def table_of(rows, x=DOUBLE, e=DOUBLE):
    values, epsilons = zip(*rows, strict=True) if rows else ((), ())
    return pa.table({"x": pa.array(values, x, from_pandas=False), "e": pa.array(epsilons, e, from_pandas=False)})


def read(frame, bounds=(LO, HI), **options):
    return hetdp.read(frame, value="x", missing="midpoint", epsilon="e", bounds=bounds, **options)


def shown(error):
    """Everything a user could see of an error: its text, its repr, and the chain that a traceback prints."""
    return "".join([str(error), repr(error), *traceback.format_exception(error)])


TIES = [LO + (HI - LO) * (k + 0.5) / GRID for k in (0, 1, 2, 262143, 524287, 524288, 1048574, 1048575)]
NEAR = [math.nextafter(x, side) for x in (*TIES, LO, HI) for side in (-9, 9)]
VALUES = [None, LO, HI, 2.0, *TIES, *NEAR, *EXTREME_VALUES]
EPSILONS = [0.0, -0.0, math.inf, 5e-324, 1e-300, 0.1, 1 / 3, 1.0, 20.0, 1e300, 1.7976931348623157e308]
ROWS = list(product(VALUES, EPSILONS))


# ---------------------------------------------------------------------------------------------------------
# One contract: the same people, whatever holds them


@pytest.mark.parametrize("frame", [*FRAMES.values(), in_dask_arrow], ids=[*FRAMES, "Dask Arrow"])
def test_the_adversarial_table_gives_the_oracles_tally_from_every_frame(frame):
    assert frames.opened(frame(table_of(ROWS))) is not None
    assert seen(read(frame(table_of(ROWS))).table) == expected(ROWS)


cells = st.one_of(st.none(), st.sampled_from(VALUES), st.floats(-3, 7), st.floats())
levels = st.one_of(st.sampled_from(EPSILONS), st.floats(0, 5))


@quick_frame
@settings(max_examples=12, deadline=None)
@given(
    rows=st.lists(st.tuples(cells, levels), min_size=1, max_size=30),
    bounds=st.tuples(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6)).map(lambda pair: (pair[0], pair[0] + pair[1])),
)
def test_any_table_gives_the_oracles_tally_from_every_frame(frame, rows, bounds):
    assert seen(read(frame(table_of(rows)), bounds).table) == expected(rows, bounds=bounds)


@quick_frame
def test_the_order_of_rows_does_not_matter(frame):
    order = np.random.default_rng(3).permutation(len(ROWS))
    assert read(frame(table_of([ROWS[i] for i in order]))) == read(frame(table_of(ROWS)))


@every_frame
def test_awkward_bounds_are_the_same_doubles_in_every_engine(frame):
    """Many engines read 0.10000000000000002 in a query as a decimal, and turn it into a neighbouring double."""
    for lo, hi in ((0.0, 632874.7411213818), (0.10000000000000002, 0.7000000000000001)):
        rows = [(x, 1.0) for k in range(1, GRID, 1013) for x in edge(k, lo, hi)]
        assert seen(read(frame(table_of(rows)), (lo, hi)).table) == expected(rows, bounds=(lo, hi))


def edge(k, lo, hi):
    """The last double with a code below k and the first with code k: they tell bounds apart that differ in one bit."""
    x = lo + (hi - lo) * ((k - 0.5) / GRID)
    while code(x, (lo, hi)) >= k:
        x = math.nextafter(x, lo)
    while code(x, (lo, hi)) < k:
        last, x = x, math.nextafter(x, hi)
    return last, x


def test_control_a_bare_constant_is_another_double_in_ibis():
    frame = nw.from_native(in_ibis(table_of([(0.0, 1.0)])))
    ((bare,),) = frame.select(nw.lit(0.10000000000000002).alias("y"), "x").select("y").collect("pyarrow").rows()
    assert float(bare) != 0.10000000000000002
    ours = frames._Query(frame, Request("x", "e"), None)._number(0.10000000000000002)
    assert frame.select(ours.alias("y"), "x").select("y").collect("pyarrow").rows() == [(0.10000000000000002,)]


def test_control_duckdb_orders_nan_above_everything_and_refuses_to_cast_it():
    """What the expressions avoid: `least` would make a missing value the upper bound, and a cast would raise."""
    connection = duckdb.connect()
    assert connection.sql("select least(null, 6.0), least('nan'::double, 6.0)").fetchall() == [(6.0, 6.0)]
    with pytest.raises(duckdb.ConversionException):
        connection.sql("select cast('nan'::double as bigint)").fetchall()


@every_frame
def test_one_epsilon_for_everybody_needs_no_column(frame):
    table = pa.table({"x": [0.0, 1.0, None]})
    tally = hetdp.read(frame(table), value="x", missing="midpoint", epsilon=0.5, bounds=(0, 1))
    assert seen(tally.table) == {0.5: (3, GRID + GRID // 2)}


@every_frame
def test_an_empty_frame_has_nobody(frame):
    for epsilon in ("e", 0.5):
        with pytest.raises(hetdp.InputError, match="nobody here"):
            hetdp.read(frame(table_of([])), value="x", missing="midpoint", epsilon=epsilon, bounds=(0, 1))


@every_frame
def test_people_are_counted_without_touching_values(frame):
    source = frame(pa.table({"x": ["private", None], "e": [1.0, 2.0]}))
    asked = Request(None, "e")
    (table,) = Source(_table(source, None), asked).tables(None).values()
    assert seen(table) == {1.0: (1, 0), 2.0: (1, 0)}
    if isinstance(_table(source, None), frames.Frame):
        (batch,) = _table(source, None).batches(asked)
        assert batch.values is None
        assert batch.epsilon.tolist() == [1.0, 2.0]


# ---------------------------------------------------------------------------------------------------------
# Types of the value column

BIG = [2**53 + 1, -(2**53) - 1, 2**63 - 1, -(2**63), 3, 0, None]
TYPED = {
    "float32": ([0.1, 5.999999, None, math.nan, math.inf, -7.5], pa.float32()),
    "int64": (BIG, pa.int64()),
    "uint64": ([2**64 - 1, 0, 5, None], pa.uint64()),
    "int8": ([-128, 127, 3, None], pa.int8()),
    "bool": ([True, False, None, True], pa.bool_()),
    "decimal": ([Decimal("0.1"), Decimal("-99.99"), None, Decimal("5.55")], pa.decimal128(12, 2)),
    "wide decimal": ([Decimal(10) ** 30, -(Decimal(10) ** 30), None, Decimal("1.5")], pa.decimal128(38, 5)),
}


@every_frame
@pytest.mark.parametrize("kind", TYPED)
def test_numbers_of_every_type_count_as_doubles(frame, kind):
    values, arrow = TYPED[kind]
    if arrow == pa.bool_() and frame is ENGINES["Dask"]:
        values = [x for x in values if x is not None]  # numpy has no missing booleans: the column would be of objects
    if pa.types.is_decimal(arrow) and frame is ENGINES["Dask"]:
        frame = in_dask_arrow  # nor has it decimals, and Dask turns objects into text
    exact = pa.array(values, arrow).to_pylist()
    rows = [(None if x is None else float(x), 1.0) for x in exact]
    assert seen(read(frame(table_of([(x, 1.0) for x in values], x=arrow))).table) == expected(rows)


def test_huge_integers_of_duckdb_are_clamped():
    huge = duckdb.sql(
        "select x::hugeint x, 1.0::double e from (values (2::hugeint**120), (-(2::hugeint**120)), (3)) t(x)"
    )
    assert seen(read(huge).table) == expected([(1e36, 1.0), (-1e36, 1.0), (3.0, 1.0)])


TEXTS = ["0.5", " 2.5 ", "1e999", "", None, "1,5", MARKER + "x", "true"]
MEANT = [0.5, 2.5, math.inf, None, None, None, None, 1.0]


@pytest.mark.parametrize("frame", [*IN_MEMORY.values(), FRAMES["Polars lazy"]], ids=[*IN_MEMORY, "Polars lazy"])
def test_text_in_memory_is_read_cell_by_cell(frame):
    table = table_of([(x, 1.0) for x in TEXTS], x=pa.string())
    assert seen(read(frame(table)).table) == expected([(x, 1.0) for x in MEANT])


def test_mixed_objects_are_read_cell_by_cell():
    mixed = [0.5, "2.5", None, True, Decimal("1.5"), Fraction(1, 2), object(), [1], pd.NA, 10**400, "x"]
    meant = [0.5, 2.5, None, 1.0, 1.5, 0.5, None, None, None, math.inf, None]
    frame = pd.DataFrame({"x": pd.Series(mixed, dtype=object), "e": 1.0})
    assert seen(read(frame).table) == expected([(x, 1.0) for x in meant])


def test_a_column_of_nulls_alone_counts_as_the_midpoint():
    for frame in (pl.DataFrame({"x": [None, None], "e": [1.0, 1.0]}), pa.table({"x": pa.nulls(2), "e": [1.0, 1.0]})):
        assert seen(read(frame).table) == {1.0: (2, GRID)}


REFUSED = {
    "date": pa.array([dt.date(2024, 1, 31)]),
    "time": pa.array([dt.datetime(2024, 1, 31)]),  # noqa: DTZ001  a column without a time zone
    "binary": pa.array([MARKER.encode()]),
    "list": pa.array([[98765.4321]]),
    "struct": pa.array([{"y": 98765.4321}]),
}


@every_frame
@pytest.mark.parametrize("kind", REFUSED)
def test_other_types_are_refused_by_their_type(frame, kind):
    source = frame(pa.table({"x": REFUSED[kind], "e": [1.0]}))
    textual = "dask" in type(source).__module__ and kind != "time"  # Dask makes texts of objects
    if textual or (isinstance(source, pd.DataFrame) and source["x"].dtype == object):
        read_as = GRID if textual and kind == "binary" else GRID // 2  # the bytes of a number are the text of one
        assert seen(read(source).table) == {1.0: (1, read_as)}  # objects may be anything: each is read by itself
        return
    with pytest.raises(hetdp.InputError, match="the value column 'x' must hold numbers") as error:
        read(source)
    assert MARKER not in shown(error.value)


@every_engine
def test_an_engine_reads_a_text_column_cell_by_cell(engine):
    cells = [("12 years", 1.0), ("0.5", 1.0), ("true", 2.0), (None, 2.0)]
    assert seen(read(engine(table_of(cells, x=pa.string()))).table) == expected(
        [(None, 1), (0.5, 1), (1, 2), (None, 2)]
    )


def test_the_remedy_works():
    relation = in_duckdb(table_of([(x, 1.0) for x in ("0.5", "x", None)], x=pa.string()))
    assert seen(read(relation.select("try_cast(x as double) x, e")).table) == expected([(0.5, 1), (None, 1), (None, 1)])


# ---------------------------------------------------------------------------------------------------------
# ε


KINDS = {
    "text": (["0.1", " 1 ", "public", "inf", "0", "1e0"], pa.string(), [0.1, 1.0, math.inf, math.inf, 0.0, 1.0]),
    "integers": ([0, 1, 2, 2**60 + 1], pa.int64(), [0.0, 1.0, 2.0, float(2**60)]),
    "decimals": ([Decimal("0.10"), Decimal("2.50")], pa.decimal128(6, 2), [0.1, 2.5]),
    "float32": ([0.1, 2.5], pa.float32(), [float(np.float32(0.1)), 2.5]),
    "categories": (["0.1", "public", "0.1"], pa.dictionary(pa.int32(), pa.string()), [0.1, math.inf, 0.1]),
}


@every_frame
@pytest.mark.parametrize("kind", KINDS)
def test_epsilon_may_be_text_or_numbers_of_any_type(frame, kind):
    written, arrow, meant = KINDS[kind]
    cells = pa.array(written, arrow) if not pa.types.is_dictionary(arrow) else pa.array(written).dictionary_encode()
    source = frame(pa.table({"x": [0.5 * i for i in range(len(written))], "e": cells}))
    assert seen(read(source).table) == expected([(0.5 * i, e) for i, e in enumerate(meant)])


@quick_frame
def test_names_of_tiers_are_looked_up(frame):
    tiers = {"strict": 0.1, "open": "public"}
    table = pa.table({"x": [1.0, 2.0, 3.0], "e": ["strict", "open", "strict"]})
    assert seen(read(frame(table), tiers=tiers).table) == expected([(1.0, 0.1), (2.0, math.inf), (3.0, 0.1)])
    with pytest.raises(hetdp.InputError, match="unknown tier 'other'"):
        read(frame(pa.table({"x": [1.0], "e": ["other"]})), tiers=tiers)


@every_frame
@pytest.mark.parametrize("bad", [-0.5, math.nan, None, -math.inf], ids=str)
def test_a_bad_epsilon_is_a_loud_error(frame, bad):
    with pytest.raises(hetdp.InputError, match=r"epsilon (must be|is missing)"):
        read(frame(table_of([(1.0, 1.0), (2.0, bad), (3.0, 0.5)])))


@quick_frame
def test_a_bad_text_is_a_loud_error(frame):
    for bad in ("0,5", "1e400", "-1", "x"):
        with pytest.raises(hetdp.InputError, match=r"epsilon (must be|is too large)"):
            read(frame(table_of([(1.0, "1"), (2.0, bad)], e=pa.string())))


@every_frame
def test_booleans_and_half_precision_are_no_epsilon(frame):
    for kind in (pa.bool_(), pa.float16()):
        if kind == pa.float16() and frame in (in_duckdb, in_ibis):
            continue  # DuckDB does not know it
        with pytest.raises(hetdp.InputError, match="epsilon") as error:
            read(frame(table_of([(1.0, np.float16(1) if kind == pa.float16() else True)], e=kind)))
        assert "engine" not in str(error.value)


def many(n, seed=0):
    """n distinct ε from far below to far above what anybody would choose, the borders of the rule among them."""
    rng = np.random.default_rng(seed)
    epsilon = rng.uniform(0.01, 5, n)
    epsilon[:500] = np.exp(rng.uniform(-650, 650, 500))
    edges = [2.0**k for k in (-1022, -1000, -50, 0, 1, 899, 900, 1000, 1023)]
    near = [math.nextafter(x, side) for x in edges for side in (0, math.inf)]
    odd = [0.0, math.inf, 5e-324, 1.7976931348623157e308, *edges, *near]
    epsilon[500 : 500 + len(odd)] = odd
    epsilon[-200:] = [
        math.nextafter(2.0**k * (1 + j / 2**11), s) for k, j, s in product(range(25), (1, 2047), (0, 1e9, 0, 1e9))
    ]
    return epsilon


@every_frame
def test_many_levels_are_rounded_down_as_in_memory(frame):
    epsilon = many(70_000)
    values = np.random.default_rng(1).uniform(-3, 7, epsilon.size)
    ours, numpys = (
        read(frame(pa.table({"x": values, "e": epsilon}))),
        hetdp.read(values, epsilon=epsilon, bounds=(LO, HI), missing="midpoint"),
    )
    assert numpys.levels.rounded
    assert ours.levels.rounded
    assert ours == numpys
    assert (ours.levels.epsilon == _levels.round_down(ours.levels.epsilon)).all()


@every_frame
@pytest.mark.parametrize("more", [0, 1], ids=["65,536 levels", "65,537 levels"])
def test_levels_are_kept_exactly_up_to_the_limit(frame, more):
    epsilon = np.concatenate([np.full(9000, 0.5), np.arange(1, _levels.LIMIT - 1 + more) / 2**17, [0.5, -0.0, 0.0]])
    values = np.linspace(-3, 7, epsilon.size)
    distinct = np.unique(epsilon + 0.0).size
    ours = read(frame(pa.table({"x": values, "e": epsilon})))
    assert ours.levels.rounded == (distinct > _levels.LIMIT)
    assert distinct == _levels.LIMIT + more
    assert ours == hetdp.read(values, epsilon=epsilon, bounds=(LO, HI), missing="midpoint")


@every_engine
def test_a_negative_epsilon_among_many_levels_is_quoted_as_it_is(engine):
    epsilon = many(70_000)
    epsilon[60_000] = -0.123
    with pytest.raises(hetdp.InputError, match=r"got -0\.123"):
        read(engine(pa.table({"x": epsilon, "e": epsilon})))


@pytest.mark.slow
def test_two_epsilons_of_one_person_that_round_to_one_are_seen():
    """With many levels each ε is rounded; whether a person's agree is decided before."""
    epsilon = many(70_000)
    rows = pa.table({"id": np.arange(epsilon.size), "x": epsilon, "e": epsilon})
    again = pa.table({"id": [69_000], "x": [0.0], "e": [math.nextafter(epsilon[69_000], 9)]})
    twice = pa.concat_tables([rows, again])
    with pytest.raises(hetdp.InputError, match="more than one epsilon, such as '69000'"):
        read(in_duckdb(twice), person="id", rows="average")
    assert read(in_duckdb(pa.concat_tables([rows, rows])), person="id", rows="average") == read(rows)


@every_engine
def test_too_many_texts_are_refused_with_the_remedy(engine):
    texts = [f"0.{i:06d}1" for i in range(_levels.LIMIT + 1000)]
    with pytest.raises(hetdp.InputError, match="different texts; cast it to doubles"):
        read(engine(pa.table({"x": np.zeros(len(texts)), "e": texts})))


# ---------------------------------------------------------------------------------------------------------
# Sums past what one double holds


def test_control_sums_of_doubles_would_lose_a_person_and_more_people_would_wrap():
    """Codes are summed as 64-bit integers: doubles drop a 1 past 2⁵³, and a tally holds no more than fits 63 bits."""
    assert duckdb.sql("select sum(x) from (values (2.0::double**53), (1.0), (1.0)) t(x)").fetchall() == [(2.0**53,)]
    assert 2**53 < _levels.MOST_PEOPLE * GRID < 2**63
    codes = pd.DataFrame({"e": [1.0] * 3, "code": np.full(3, 2**62, np.int64)})
    (wrapped,) = dd.from_pandas(codes, npartitions=1).groupby("e").code.sum().compute()
    assert wrapped == 3 * 2**62 - 2**64


@every_engine
def test_sums_past_what_a_double_holds_are_exact(engine, monkeypatch):
    """One person's rows have codes that sum to more than 2⁵³: as many are planted as code, and come back whole."""
    monkeypatch.setattr(frames._Query, "_code", lambda *_: nw.lit(2**53 + 1))
    query = frames._Query(nw.from_native(engine(table_of([(0.5, 1.0)] * 3))), Request("x", "e"), Mean(BOUNDS))
    assert query.levels(bits=None, most=None) == [((), 1.0, 0, 3, (3 * (2**53 + 1),), 0)]


def test_more_people_than_a_tally_holds_are_refused(monkeypatch):
    monkeypatch.setattr("hetdp.sources.request.MOST_PEOPLE", 3)
    with pytest.raises(hetdp.InputError, match="at most 3 people"):
        read(in_duckdb(table_of([(0.5, 1.0)] * 4)))


# ---------------------------------------------------------------------------------------------------------
# People with several rows, groups


def people_table(rows, who=TEXT):
    persons, values, epsilons, groups = zip(*rows, strict=True)
    return pa.table(
        {"id": pa.array(persons, who), "x": pa.array(values, pa.float64()), "e": pa.array(epsilons, pa.float64()),
         "g": pa.array(groups, pa.string())}
    )  # fmt: skip


def averaged(rows):
    """{group: {level: (people, sum)}} of rows (id, value, ε, group)."""
    return expected_groups([(who, group, x, epsilon) for who, x, epsilon, group in rows], BOUNDS)


def grouped(source, asked):
    found = Source(_table(source, None), asked).tables(Mean((LO, HI)))
    return {group: seen(table) for group, table in found.items()}


PERSONS = [
    (f"p{i % 17}", VALUES[i % len(VALUES)], EPSILONS[i % 17 % len(EPSILONS)], "north" if i % 17 % 3 else "süd")
    for i in range(17 * 40)
]


@every_frame
def test_a_persons_rows_are_averaged_and_counted_once(frame):
    for by in (None, "g"):
        merged = averaged([(who, x, e, g if by else "") for who, x, e, g in PERSONS])
        assert grouped(frame(people_table(PERSONS)), Request("x", "e", "id", several=True, by=by)) == merged


person_rows = st.lists(st.tuples(st.integers(0, 5), cells), min_size=1, max_size=25).map(
    lambda rows: [(f"p{who}", x, EPSILONS[who], "ab"[who % 2]) for who, x in rows]
)


@pytest.mark.parametrize("engine", [in_duckdb, in_ibis], ids=["DuckDB", "Ibis"])
@settings(max_examples=12, deadline=None)
@given(rows=person_rows)
def test_any_rows_of_any_people_are_averaged_as_the_oracle_does(engine, rows):
    assert grouped(engine(people_table(rows)), Request("x", "e", "id", several=True, by="g")) == averaged(rows)


@quick_frame
def test_groups_without_persons(frame):
    rows = [(str(i), x, e, g) for i, (_, x, e, g) in enumerate(PERSONS)]
    assert grouped(frame(people_table(rows)), Request("x", "e", by="g")) == averaged(rows)
    assert grouped(frame(people_table(rows)), Request("x", "e", "id", by="g")) == averaged(rows)


def test_halves_round_up_exactly():
    """Two rows with neighbouring codes average to a half, which rounds up; doubles divide them without error."""
    for rows in (2, 3, 2**31):
        for total in (0, 1, rows - 1, rows * GRID - 1, rows * GRID, rows * (GRID // 2) + rows // 2):
            exact = (2 * total + rows) // (2 * rows)
            assert math.floor((2.0 * total + rows) / (2.0 * rows)) == exact


def test_control_with_more_rows_a_persons_average_would_be_wrong():
    rows = 2**45
    total = rows * 1000 + rows // 2 - 1
    assert math.floor((2.0 * total + rows) / (2.0 * rows)) != (2 * total + rows) // (2 * rows)


@every_engine
def test_a_person_with_too_many_rows_is_refused(engine, monkeypatch):
    monkeypatch.setattr(frames, "MOST_ROWS", 2)
    with pytest.raises(hetdp.InputError, match="rows, such as 'b'; average them first"):
        read(engine(people_table([("a", 1.0, 1.0, "g"), *[("b", 1.0, 1.0, "g")] * 3])), person="id", rows="average")


@every_frame
def test_whole_numbers_are_ids_as_text(frame):
    table = people_table([(7, 1.0, 1.0, "g"), (7, 3.0, 1.0, "g"), (8, 5.0, 1.0, "g")], pa.int64())
    assert read(frame(table), person="id", rows="average").levels.n == 2
    with pytest.raises(hetdp.InputError, match=r"1 id is on more than one row, such as '7'"):
        read(frame(table), person="id")


@quick_frame
def test_ids_that_look_alike_are_different_people(frame):
    rows = [(who, 1.0, 1.0, "g") for who in ("7", "007", "7 7", "A", "a", "7.0")]
    assert read(frame(people_table(rows)), person="id").levels.n == 6


FAULTY = {
    "no id": ([("a", 1.0, 1.0, "g"), (None, 1.0, 1.0, "g")], "id is missing"),
    "empty id": ([("a", 1.0, 1.0, "g"), ("", 1.0, 1.0, "g")], "id is missing"),
    "long id": ([("a" * 257, 1.0, 1.0, "g")], "control or invisible characters, or more than 256"),
    "control character": ([("a\nb", 1.0, 1.0, "g")], "control or invisible characters, or more than 256"),
    "two ε": ([("b", 1.0, 1.0, "g"), ("b", 1.0, 2.0, "g"), ("a", 1.0, 2.0, "g")], "more than one epsilon, such as 'b'"),
    "two groups": ([("b", 1.0, 1.0, "g"), ("b", 1.0, 1.0, "h")], "in more than one group, such as 'b'"),
    "ε missing once": ([("b", 1.0, 1.0, "g"), ("b", 1.0, None, "g")], "epsilon is missing|epsilon must be"),
    "ε NaN once": ([("b", 1.0, 1.0, "g"), ("b", 1.0, math.nan, "g")], "epsilon (is missing|must be)"),
    "group missing": ([("b", 1.0, 1.0, "g"), ("b", 1.0, 1.0, None)], "group is missing"),
}


@quick_frame
@pytest.mark.parametrize("fault", FAULTY)
def test_faults_in_public_columns_are_loud_errors(frame, fault):
    rows, message = FAULTY[fault]
    with pytest.raises(hetdp.InputError, match=message):
        grouped(frame(people_table(rows)), Request("x", "e", "id", several=True, by="g"))


@pytest.mark.parametrize("fault", ["ε NaN once", "group missing", "no id"])
def test_dask_whose_least_and_most_leave_out_what_is_missing_sees_the_faults(fault):
    test_faults_in_public_columns_are_loud_errors(ENGINES["Dask"], fault)


@every_frame
def test_a_missing_group_is_an_error_without_persons_too(frame):
    with pytest.raises(hetdp.InputError, match="the group is missing"):
        grouped(frame(people_table([("a", 1.0, 1.0, "g"), ("b", 1.0, 1.0, None)])), Request("x", "e", by="g"))


@every_frame
def test_fractions_and_dates_are_no_ids(frame):
    for cells in (pa.array([1.0, 2.0]), pa.array([dt.datetime(2024, 1, 1)] * 2), pa.array([True, False])):  # noqa: DTZ001
        with pytest.raises(hetdp.InputError, match="must hold text or whole numbers"):
            read(frame(pa.table({"x": [1.0, 2.0], "e": [1.0, 1.0], "id": cells})), person="id")


# ---------------------------------------------------------------------------------------------------------
# Names of columns


@quick_frame
def test_a_column_that_is_not_there_is_named(frame):
    with pytest.raises(hetdp.InputError, match=r"no column 'income'; its columns are 'x', 'e'"):
        hetdp.read(frame(table_of([(1.0, 1.0)])), value="income", missing="midpoint", epsilon="e", bounds=(0, 1))


@quick_frame
def test_names_with_dots_quotes_and_blanks(frame):
    names = ["a.b", 'say "x"']
    tally = hetdp.read(
        frame(table_of(ROWS).rename_columns(names)),
        value=names[0],
        missing="midpoint",
        epsilon=names[1],
        bounds=(LO, HI),
    )
    assert seen(tally.table) == expected(ROWS)


def test_names_that_differ_by_case_are_refused_in_an_engine():
    frame = dd.from_pandas(pd.DataFrame({"x": [1.0], "X": [2.0], "e": [1.0]}), npartitions=1)
    with pytest.raises(hetdp.InputError, match="differ by case alone"):
        read(frame)


def test_names_that_are_twice_there_or_no_text():
    with pytest.raises(hetdp.InputError, match="two columns of the frame have the same name"):
        read(pd.DataFrame([[1.0, 2.0, 1.0]], columns=["x", "x", "e"]))
    with pytest.raises(hetdp.InputError, match="no column 'x'; its columns are 0, 'e'"):
        read(pd.DataFrame([[1.0, 2.0]], columns=[0, "e"]))


def test_what_is_no_frame():
    for source in ([1.0], "people.csv", np.zeros(2), pd.Series([1.0]), pl.Series([1.0]), None, {"x": [1.0]}, object()):
        assert frames.opened(source) is None


# ---------------------------------------------------------------------------------------------------------
# DuckDB


BAD_ENDS = {
    "a bad epsilon": (
        "select i::double x, if(i = 300000, -1.0, 1.0)::double e from range(1000000) t(i)",
        "got -1",
    ),
    "no epsilon": ("select i::double x, if(i = 300000, null, 1.0)::double e from range(1000000) t(i)", "is missing"),
    "an engine that fails": (
        f"select if(i = 900000, error('{MARKER}')::double, i) x, 1.0::double e from range(1000000) t(i)",  # noqa: S608
        "engine could not finish",
    ),
}


@pytest.mark.parametrize(("query", "message"), BAD_ENDS.values(), ids=BAD_ENDS)
def test_a_relation_that_ends_badly_says_why_and_gives_the_connection_back(query, message):
    """DuckDB allows one open result a connection: one that is left behind would block the user's next query."""
    connection = duckdb.connect()
    with pytest.raises(hetdp.InputError, match=message) as error:
        read(connection.sql(query))
    assert MARKER not in shown(error.value)
    assert connection.sql("select 1").fetchall() == [(1,)]


@pytest.mark.parametrize("kind", ["float", "decimal(9, 3)", "bigint", "varchar"])
def test_an_epsilon_of_another_type_is_read_cell_by_cell(kind):
    """0.1 as a 32-bit float is a little more than 0.1, as a decimal it is 0.1: neither is left to an engine's cast."""
    cell = 2 if kind == "bigint" else 0.1
    tally = read(duckdb.sql(f"select 1.0::double x, {cell}::{kind} e"))
    level = float(np.float32(0.1)) if kind == "float" else float(cell)
    assert tally.levels == hetdp.Levels({level: 1})


def test_one_epsilon_for_everybody_needs_no_column_in_duckdb():
    tally = hetdp.read(in_duckdb(table_of(ROWS)), value="x", missing="midpoint", epsilon=0.5, bounds=(LO, HI))
    assert seen(tally.table) == expected([(x, 0.5) for x, _ in ROWS])


# ---------------------------------------------------------------------------------------------------------
# Privacy


BROKEN = {
    "DuckDB": lambda: in_duckdb(pa.table({"t": ["1", MARKER + "x"], "e": [1.0, 1.0]})).select("cast(t as double) x, e"),
    "Polars lazy": lambda: pl.LazyFrame({"t": ["1", MARKER + "x"], "e": [1.0, 1.0]}).select(
        pl.col("t").cast(pl.Float64).alias("x"), "e"
    ),
    "Dask": lambda: (
        dd.from_pandas(pd.DataFrame({"t": ["1", MARKER + "x"], "e": 1.0}), npartitions=1)
        .assign(x=lambda frame: frame["t"].astype("float64"))
        .drop(columns="t")
    ),
}


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
def test_the_message_of_a_failing_engine_is_held_back(broken):
    with pytest.raises(hetdp.InputError, match="engine could not finish") as error:
        read(broken())
    assert MARKER not in shown(error.value)


def test_control_the_engines_own_message_quotes_the_cell():
    with pytest.raises(duckdb.ConversionException, match=MARKER):
        BROKEN["DuckDB"]().fetchall()
    with pytest.raises(pl.exceptions.InvalidOperationError, match=MARKER):
        BROKEN["Polars lazy"]().collect()


def test_an_interrupt_passes(monkeypatch):
    def interrupted(_frame):
        raise KeyboardInterrupt

    frame = in_duckdb(table_of([(1.0, 1.0)]))
    monkeypatch.setattr(type(frame), "fetchall", interrupted)
    with pytest.raises(KeyboardInterrupt):
        read(frame)


def test_the_queries_do_not_depend_on_values(monkeypatch):
    """Tame and wild values make the engine run the same queries, letter by letter."""

    def queries(values):
        texts = []
        fetch = frames.fetch
        monkeypatch.setattr(frames, "fetch", lambda frame: texts.append(frame.to_native().sql_query()) or fetch(frame))
        read(in_duckdb(table_of([(x, 1.0) for x in values])))
        monkeypatch.setattr(frames, "fetch", fetch)
        return texts

    wild = [None, math.nan, math.inf, -math.inf, 98765.4321]
    assert queries([1.0] * 5) == queries(wild)
    assert len(queries(wild)) == 1
    assert not any(MARKER in text for text in queries(wild))


@every_frame
def test_no_value_changes_who_is_counted(frame):
    tally = read(frame(table_of([(x, i + 1.0) for i, x in enumerate(VALUES)])))
    assert tally.levels == hetdp.Levels({i + 1.0: 1 for i in range(len(VALUES))})


@every_frame
def test_people_with_epsilon_zero_never_enter(frame):
    assert [read(frame(table_of([(x, 0.0), (0.0, 1.0)]))).table.total[:, 0].tolist() for x in (LO, HI)] == [
        [0, GRID // 4]
    ] * 2


# ---------------------------------------------------------------------------------------------------------
# What is loaded

LIBRARIES = {"pandas", "pyarrow", "duckdb", "dask", "ibis", "pyspark"}


def loaded(code):
    script = f"import sys\n{code}\nprint(*{{name.partition('.')[0] for name in sys.modules}})"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(run.stdout.split())


@pytest.mark.slow
def test_nothing_is_imported_that_the_user_has_not_imported():
    frame = "polars.DataFrame({'x': [1.0], 'e': [1.0]})"
    script = f"import hetdp, polars; hetdp.read({frame}, value='x', epsilon='e', bounds=(0, 2), missing='none')"
    assert loaded(script) & LIBRARIES == set()
    assert "narwhals" not in loaded("import hetdp, numpy; hetdp.read(numpy.ones(2), epsilon=1.0, bounds=(0, 2))")
    relation = "duckdb.sql('select 1.0::double x, 1.0::double e')"
    assert loaded(script.replace(frame, relation).replace("polars", "duckdb")) & LIBRARIES == {"duckdb"}
