"""One table in every source: files, frames and databases that hold the same rows (id, group, value, ε)."""

from __future__ import annotations

import gzip
import json
import math
import sqlite3

import numpy as np
import polars as pl
import pytest


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
