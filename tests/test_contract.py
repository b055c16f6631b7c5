"""One table, every source, the same integers. A new source joins `SOURCES` and has to pass all of it."""

from __future__ import annotations

import gzip
import json
import math
import sqlite3
from decimal import Decimal

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import hetdp
from hetdp.core.cells import value_of
from hetdp.core.domain import GRID
from hetdp.sources import Source, read_groups
from support import EXTREME_VALUES

INF = math.inf
LO, HI = -2.0, 3.0
WIDTH = HI - LO
TIES = [LO + WIDTH * (k + 0.5) / GRID for k in (0, 1, 7, GRID // 2, GRID - 1)]
NEAR = [math.nextafter(x, side) for x in (LO, HI, *TIES) for side in (-INF, INF)]
NUMBERS = [*EXTREME_VALUES, LO, HI, *TIES, *NEAR, None]
TEXTS = [
    "",
    "NA",
    "null",
    "-",
    "1.5",
    " 2.5 ",
    "+1",
    "1e999",
    "-1e999",
    "0x1F",
    "1_000",
    "true",
    "12abc",
    "=1+1",
    "1.5.2",
    "１",
]
EPSILONS = [0.0, -0.0, 1e-300, 5e-324, 0.1, 0.5, 1.0, 20.0, 1e300, INF]
COLUMNS = {"value": "x", "epsilon": "e", "bounds": (LO, HI)}


def columns_of(rows):
    return list(zip(*rows, strict=True)) or [(), (), (), ()]


def frame(rows):
    """The table of rows (id, group, x, ε) as a Polars frame; a row's x is a double or None."""
    columns = columns_of(rows)
    kinds = {"id": pl.String, "g": pl.String, "x": pl.Float64, "e": pl.Float64}
    return pl.DataFrame(dict(zip(kinds, map(list, columns), strict=True)), schema=kinds)


def text(cell):
    return "" if cell is None else repr(float(cell)) if not isinstance(cell, str) else cell


def lines(rows, sign=","):
    body = (sign.join([who, group, text(x), repr(e)]) for who, group, x, e in rows)
    return sign.join(["id", "g", "x", "e"]) + "\n" + "".join(f"{line}\n" for line in body)


def as_csv(rows, folder):
    (folder / "rows.csv").write_text(lines(rows))
    return folder / "rows.csv"


def as_tsv(rows, folder):
    (folder / "rows.tsv").write_text(lines(rows, "\t"))
    return folder / "rows.tsv"


def as_gzip(rows, folder):
    (folder / "rows.csv.gz").write_bytes(gzip.compress(lines(rows).encode()))
    return folder / "rows.csv.gz"


def as_zstd(rows, folder):
    from backports import zstd

    (folder / "rows.csv.zst").write_bytes(zstd.compress(lines(rows).encode()))
    return folder / "rows.csv.zst"


def as_ndjson(rows, folder):
    def cell(x):
        return None if x is None or (isinstance(x, float) and not math.isfinite(x) and math.isnan(x)) else x

    def shown(x):
        return repr(x) if isinstance(x, float) and math.isinf(x) else cell(x)

    people = ({"id": who, "g": group, "x": shown(x), "e": shown(e)} for who, group, x, e in rows)
    (folder / "rows.ndjson").write_text("".join(json.dumps(person) + "\n" for person in people))
    return folder / "rows.ndjson"


def as_parquet(rows, folder):
    frame(rows).write_parquet(folder / "rows.parquet", row_group_size=3)
    return folder / "rows.parquet"


def as_ipc(rows, folder):
    frame(rows).write_ipc(folder / "rows.arrow")
    return folder / "rows.arrow"


def as_several_files(rows, folder):
    half = max(1, len(rows) // 2)
    names = [folder / f"part{i}.csv" for i in range(2)]
    for name, part in zip(names, (rows[:half], rows[half:]), strict=True):
        name.write_text(lines(part))
    return names


def as_pandas(rows, _):
    import pandas as pd

    columns = columns_of(rows)
    return pd.DataFrame({"id": columns[0], "g": columns[1], "x": np.array(columns[2], dtype=float), "e": columns[3]})


def as_pandas_nullable(rows, folder):
    return as_pandas(rows, folder).astype({"x": "Float64", "e": "Float64"})


def as_polars(rows, _):
    return frame(rows)


def as_polars_lazy(rows, _):
    return frame(rows).lazy()


def as_arrow(rows, _):
    return frame(rows).to_arrow()


def as_duckdb(rows, _):
    import duckdb

    table = frame(rows).to_arrow()
    connection = duckdb.connect()
    connection.register("rows", table)
    return connection.sql("select * from rows")


def as_dask(rows, folder):
    import dask.dataframe as dd

    return dd.from_pandas(as_pandas(rows, folder), npartitions=2)


def as_ibis(rows, _):
    import ibis

    return ibis.memtable(frame(rows).to_arrow())


def as_sqlite(rows, folder):
    connection = sqlite3.connect(folder / "rows.db")
    connection.execute("drop table if exists people")
    connection.execute("create table people (id text, g text, x, e real)")
    connection.executemany("insert into people values (?, ?, ?, ?)", rows)
    connection.commit()
    connection.close()
    return f"sqlite:///{folder / 'rows.db'}"


def as_postgres(rows, folder, url):
    import psycopg

    with psycopg.connect(url) as connection, connection.cursor() as cursor:
        cursor.execute("drop table if exists people")
        cursor.execute("create table people (id text, g text, x float8, e float8)")
        with cursor.copy("copy people from stdin") as copy:
            for row in rows:
                copy.write_row(row)
    return url


def as_spark(rows, _, session):
    kinds = "id string, g string, x double, e double"
    return session.createDataFrame([tuple(row) for row in rows], kinds).repartition(3)


QUICK = {
    "csv": as_csv,
    "tsv": as_tsv,
    "gzip": as_gzip,
    "zstd": as_zstd,
    "ndjson": as_ndjson,
    "parquet": as_parquet,
    "ipc": as_ipc,
    "several files": as_several_files,
    "pandas": as_pandas,
    "pandas nullable": as_pandas_nullable,
    "polars": as_polars,
    "polars lazy": as_polars_lazy,
    "pyarrow": as_arrow,
    "duckdb": as_duckdb,
    "dask": as_dask,
    "ibis": as_ibis,
    "sqlite": as_sqlite,
}
ENGINES = {"postgres": as_postgres, "spark": as_spark}
SPARK = pytest.param("spark", marks=pytest.mark.xdist_group("spark"))
SOURCES = [*QUICK, "postgres", SPARK]
HOLD_TEXT = ["csv", "tsv", "gzip", "zstd", "ndjson", "several files", "sqlite"]


@pytest.fixture
def made(request, tmp_path):
    """A function from the name of a source and rows to that source."""

    def make(name, rows):
        if name in QUICK:
            return QUICK[name](rows, tmp_path)
        engine = request.getfixturevalue({"postgres": "libpq_url", "spark": "spark"}[name])
        return ENGINES[name](rows, tmp_path, engine)

    return make


def query_of(name):
    return {"query": "select * from people"} if name in {"sqlite", "postgres"} else {}


def code(x):
    """The code of one cell, by the formula of the design; text by the rule for one cell."""
    x = math.nan if x is None else value_of(x) if isinstance(x, str) else x
    if math.isnan(x):
        return GRID // 2
    return math.floor((min(max(x, LO), HI) - LO) / WIDTH * GRID + 0.5)


def brute(rows):
    """{ε: (people, sum of codes)}, in Python's integers."""
    found = {}
    for _, _, x, e in rows:
        people, total = found.get(e + 0.0, (0, 0))
        found[e + 0.0] = (people + 1, total + (code(x) if e > 0 else 0))
    return found


def plain(tally):
    table = tally.table
    columns = (column.tolist() for column in (table.epsilon, table.count, table.total[:, 0]))
    return {e: (c, t) for e, c, t in zip(*columns, strict=True)}


def adversarial(cells):
    """Every cell at every ε, each person alone."""
    pairs = [(x, e) for e in EPSILONS for x in cells]
    return [(f"p{i}", f"g{i % 3}", x, e) for i, (x, e) in enumerate(pairs)]


@pytest.mark.parametrize("name", SOURCES)
def test_every_source_gives_the_integers_of_the_formula(name, made):
    rows = adversarial(NUMBERS)
    assert plain(hetdp.read(made(name, rows), **COLUMNS, **query_of(name))) == brute(rows)


def test_control_a_wrong_formula_is_noticed(made, monkeypatch):
    """Rounding half to even, as many engines do, differs on ties."""
    rows = adversarial(TIES)
    monkeypatch.setitem(globals(), "code", lambda x: round((x - LO) / WIDTH * GRID))
    assert plain(hetdp.read(made("csv", rows), **COLUMNS)) != brute(rows)


@pytest.mark.parametrize("name", HOLD_TEXT)
def test_every_source_that_can_hold_text_reads_it_by_the_one_rule(name, made):
    rows = adversarial([*TEXTS, 1.0])
    assert plain(hetdp.read(made(name, rows), **COLUMNS, **query_of(name))) == brute(rows)


@pytest.mark.parametrize("name", [name for name in SOURCES if name not in ["pandas", "pandas nullable"]])
def test_people_with_several_rows_and_groups_are_the_same_everywhere(name, made):
    cells = [x for x in NUMBERS if x is None or not math.isnan(x)]
    rows = [(f"p{i % 40}", f"g{i % 40 % 3}", x, EPSILONS[i % 40 % len(EPSILONS)]) for i, x in enumerate(cells * 5)]
    people = {"value": "x", "epsilon": "e", "person": "id", "rows": "average", "by": "g"}
    expected = read_groups(Source.of(frame(rows), **people), hetdp.Interval(LO, HI))
    found = read_groups(Source.of(made(name, rows), **people, **query_of(name)), hetdp.Interval(LO, HI))
    assert found == expected
    assert sum(tally.n for tally in found.values()) == 40


@pytest.mark.parametrize("name", SOURCES)
def test_a_second_row_and_a_second_epsilon_are_refused_everywhere(name, made):
    twice = made(name, [("a", "g", 1.0, 0.5), ("b", "g", 1.0, 0.5), ("a", "g", 2.0, 0.5)])
    with pytest.raises(hetdp.InputError, match="'a'"):
        hetdp.read(twice, person="id", **COLUMNS, **query_of(name))
    differ = made(name, [("a", "g", 1.0, 0.5), ("b", "g", 1.0, 0.5), ("a", "g", 2.0, 0.6)])
    with pytest.raises(hetdp.InputError, match="'a'"):
        hetdp.read(differ, person="id", rows="average", **COLUMNS, **query_of(name))


@pytest.mark.parametrize("bad", [-1.0, -INF, math.nan], ids=["negative", "minus infinity", "NaN"])
@pytest.mark.parametrize("name", SOURCES)
def test_a_bad_epsilon_is_refused_everywhere_and_no_value_is_told(name, bad, made):
    source = made(name, [("a", "g", 0.98765, 0.5), ("b", "g", 0.98765, bad)])
    with pytest.raises(hetdp.InputError, match="epsilon") as refused:
        hetdp.read(source, **COLUMNS, **query_of(name))
    assert "98765" not in str(refused.value)


def _none(dask_frame):
    """Dask cannot make a frame in two parts of nobody, but it can filter one until nobody is left."""
    return dask_frame[dask_frame.e > 5]


@pytest.mark.parametrize("name", SOURCES)
def test_nobody_is_refused_everywhere(name, made):
    somebody = [("a", "g", 1.0, 1.0)]
    source = _none(made(name, somebody)) if name == "dask" else made(name, [])
    with pytest.raises(hetdp.InputError, match="n = 0"):
        hetdp.read(source, **COLUMNS, **query_of(name))


cells = st.one_of(st.sampled_from(NUMBERS), st.floats(allow_nan=False, width=64))
levels = st.one_of(st.sampled_from(EPSILONS), st.floats(min_value=0, allow_nan=False, allow_infinity=False))
tables = st.lists(st.tuples(cells, levels), min_size=1, max_size=30).map(
    lambda pairs: [(f"p{i}", "g", x, e) for i, (x, e) in enumerate(pairs)]
)
ANY = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


SLOW = ["dask", "duckdb", "ibis", "postgres", SPARK]


@pytest.mark.parametrize("name", [name for name in SOURCES if name not in SLOW])
@given(rows=tables)
@settings(ANY, max_examples=25)
def test_any_table_is_the_same_everywhere(name, rows, made):
    assert plain(hetdp.read(made(name, rows), **COLUMNS, **query_of(name))) == brute(rows)


@pytest.mark.parametrize("name", SLOW)
@given(rows=tables)
@settings(ANY, max_examples=6)
def test_any_table_is_the_same_in_the_engines_that_start_slowly(name, rows, made):
    assert plain(hetdp.read(made(name, rows), **COLUMNS, **query_of(name))) == brute(rows)


@pytest.mark.parametrize("name", SOURCES)
def test_many_levels_are_rounded_to_the_same_integers_everywhere(name, made):
    """70,000 different ε from 1e-310 to 1e308, powers of two and their neighbours among them."""
    rng = np.random.default_rng(7)
    spread = np.exp2(rng.uniform(-1030, 1023.9, 69_000)).tolist()
    edges = [math.nextafter(2.0**k, side) for k in range(-400, 400) for side in (0, INF)]
    epsilons = [*spread, *edges, 0.0, INF, 5e-324, 2.0**-1000]
    rows = [(f"p{i}", "g", NUMBERS[i % len(NUMBERS)], e) for i, e in enumerate(epsilons)]
    columns = list(zip(*rows, strict=True))
    expected = hetdp.read(np.array(columns[2], dtype=float), epsilon=np.array(epsilons), bounds=(LO, HI))
    assert expected.levels.rounded
    assert hetdp.read(made(name, rows), **COLUMNS, **query_of(name)) == expected


@pytest.mark.parametrize("kind", ["float32", "int64", "uint8", "bool", "decimal", "object"])
def test_values_of_every_kind_in_memory_follow_the_one_formula(kind):
    cells = [0, 1, 1, 0, 1]
    arrays = {
        "decimal": np.array([Decimal(x) for x in cells], dtype=object),
        "object": np.array(["0", 1, 1.0, Decimal(0), "1"], dtype=object),
    }
    values = arrays[kind] if kind in arrays else np.array(cells, dtype=kind)
    tally = hetdp.read(values, epsilon=[0.5] * 5, bounds=(LO, HI))
    assert plain(tally) == brute([("", "", float(x), 0.5) for x in cells])
