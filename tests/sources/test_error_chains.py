"""What is behind an error: no private cell in any exception, and no raw error of a library."""

from __future__ import annotations

import json
import math
import sqlite3
from decimal import Decimal
from fractions import Fraction

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import hetdp
from hetdp import InputError
from hetdp.core.domain import GRID
from hetdp.ledger import Ledger
from ledgers import PEOPLE, made
from refusals import MARKER, behind, refused

COLUMNS = {"value": "x", "missing": "midpoint", "epsilon": "e", "bounds": (0, 1)}
OWNERS = {name: asked for name, asked in COLUMNS.items() if name != "missing"}  # what the owner of data is told


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
    for read, asked in ((hetdp.read, COLUMNS), (hetdp.mean, COLUMNS), (hetdp.check, OWNERS)):
        refused(lambda read=read, asked=asked: read(path, **asked), str(path))


def test_row_111_nor_does_one_that_is_read_after_a_charge(tmp_path):
    path = tmp_path / "people.parquet"
    frame = pl.DataFrame({"x": [MARKER] * 200, "id": PEOPLE})
    frame.write_parquet(path, compression="uncompressed")
    path.write_bytes(path.read_bytes().replace(MARKER.encode(), b"\xff" * len(MARKER)))  # no text any more
    with made(str(tmp_path / "b.db")) as ledger, pytest.raises(hetdp.HetdpError, match="is charged") as caught:
        ledger.mean(path, value="x", missing="midpoint", person="id", bounds=(0, 1), release_id="may", spend=0.1)
    assert all(isinstance(error, hetdp.HetdpError) for error in behind(caught.value))


def outer(body, digest=None):
    return json.dumps({"warning": "", "sha256": digest or hetdp.tally._digest(body), "body": body})


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
    assert "PRIVATE" in hetdp.check(frame, **OWNERS).report()
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


def not_utf8():
    """A text column as Arrow keeps it, with a cell that is not UTF-8."""
    cells = pa.array([f"caf\xe9 {MARKER}".encode("latin-1"), b"1", b"x"], pa.binary())
    return pa.Array.from_buffers(pa.string(), len(cells), cells.buffers())


@pytest.mark.parametrize(
    "column",
    [
        lambda: pd.Series(pd.arrays.ArrowExtensionArray(not_utf8())),
        not_utf8,
        lambda: pa.chunked_array([not_utf8()]),
        lambda: not_utf8().dictionary_encode(),
    ],
    ids=["series", "array", "chunked", "dictionary"],
)
def test_a_text_that_is_not_utf8_is_refused_by_a_fixed_sentence(column):
    """Arrow's own error quotes the cell."""
    asked = hetdp.ask.histogram(categories=["1", "x"])
    refused(lambda: hetdp.read(column(), epsilon=[1.0] * 3, statistic=asked), "a column of values cannot be read")


def test_a_column_of_pandas_that_is_not_utf8_is_refused_by_a_fixed_sentence():
    table = pd.DataFrame({"x": pd.Series(pd.arrays.ArrowExtensionArray(not_utf8())), "e": 1.0})
    asked = hetdp.ask.histogram(categories=["1", "x"], value="x")
    refused(lambda: hetdp.read(table, value="x", epsilon="e", statistic=asked), "a column of values cannot be read")
