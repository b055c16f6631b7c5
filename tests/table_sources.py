"""One table in every source: files, frames and databases that hold the same rows (id, group, value, ε)."""

from __future__ import annotations

import gzip
import json
import math
import sqlite3
from contextlib import closing

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


# ---------------------------------------------------------------------------------------------------------
# A table with columns of several kinds, made from a Polars frame


def _line(cells, sign):
    def cell(given):
        if given is None:
            return ""
        text = str(given).lower() if isinstance(given, bool) else repr(given) if isinstance(given, float) else given
        return '"' + text.replace('"', '""') + '"' if set(text) & {sign, '"'} else text

    return sign.join(map(cell, cells)) + "\n"


def _delimited(table, sign=","):
    return _line(table.columns, sign) + "".join(_line(row, sign) for row in table.iter_rows())


def _written(name, contents):
    def make(table, folder):
        path = folder / name
        path.write_bytes(contents(table))
        return path

    return make


def _zstd(table):
    from backports import zstd

    return zstd.compress(_delimited(table).encode())


def _parts(table, folder):
    names = [folder / f"part{i}.csv" for i in range(2)]
    for name, part in zip(names, (table[: len(table) // 2], table[len(table) // 2 :]), strict=True):
        name.write_text(_delimited(part), encoding="utf-8")
    return names


def _ndjson(table):
    return "".join(json.dumps(row) + "\n" for row in table.iter_rows(named=True)).encode()


def _pandas_nullable(table, _):
    import pandas as pd

    kinds = {pl.Float64: "Float64", pl.Float32: "Float32", pl.String: "string", pl.Boolean: "boolean"}
    columns = {c: pd.array(table[c].to_list(), dtype=kinds[table[c].dtype]) for c in table.columns}
    return pd.DataFrame(columns)


def _pandas_objects(table, _):
    import pandas as pd

    return pd.DataFrame({c: np.array([*table[c].to_list(), None], dtype=object)[:-1] for c in table.columns})


def _pandas_categorical(table, folder):
    frame = _pandas_nullable(table, folder)
    return frame.astype(dict.fromkeys((c for c in table.columns if table[c].dtype == pl.String), "category"))


def _polars_categorical(table, _):
    return table.with_columns(pl.col(pl.String).cast(pl.Categorical))


def _duckdb(table, _):
    import duckdb

    connection = duckdb.connect(config={"threads": 1})
    connection.register("given", table.to_arrow())
    return connection.sql("select * from given")


def _ibis(table, _):
    import ibis

    return ibis.memtable(table.to_arrow())


def _dask(table, _, frame):
    import dask.dataframe as dd

    return dd.from_pandas(frame(table, _), npartitions=2)


def _sqlite(table, folder):
    names = ", ".join(f'"{name}"' for name in table.columns)
    with closing(sqlite3.connect(folder / "kinds.db")) as connection:
        connection.execute("drop table if exists people")
        connection.execute(f"create table people ({names})")
        cells = ", ".join("?" * table.width)
        connection.executemany(f"insert into people values ({cells})", table.rows())  # noqa: S608  question marks
        connection.commit()
    return f"sqlite:///{folder / 'kinds.db'}"


def _postgres(table, _, url):
    import psycopg

    kinds = {pl.Float64: "float8", pl.Float32: "float4", pl.String: "text", pl.Boolean: "bool"}
    names = ", ".join(f'"{name}" {kinds[kind]}' for name, kind in table.schema.items())
    with psycopg.connect(url) as connection, connection.cursor() as cursor:
        cursor.execute("drop table if exists people")
        cursor.execute(f"create table people ({names})")
        with cursor.copy("copy people from stdin") as copy:
            for row in table.iter_rows():
                copy.write_row(row)
    return url


def _spark(table, _, session):
    kinds = {pl.Float64: "double", pl.Float32: "float", pl.String: "string", pl.Boolean: "boolean"}
    schema = ", ".join(f"`{name}` {kinds[kind]}" for name, kind in table.schema.items())
    return session.createDataFrame(table.rows(), schema).repartition(2).cache()  # asked about dozens of times


def _saved(name, save):
    def make(table, folder):
        save(table, folder / name)
        return folder / name

    return make


KINDS = {
    "csv": _written("kinds.csv", lambda table: _delimited(table).encode()),
    "tsv": _written("kinds.tsv", lambda table: _delimited(table, "\t").encode()),
    "gzip": _written("kinds.csv.gz", lambda table: gzip.compress(_delimited(table).encode())),
    "zstd": _written("kinds.csv.zst", _zstd),
    "several files": _parts,
    "ndjson": _written("kinds.ndjson", _ndjson),
    "parquet": _saved("kinds.parquet", lambda table, path: table.write_parquet(path, row_group_size=50)),
    "ipc": _saved("kinds.arrow", lambda table, path: table.write_ipc(path)),
    "pandas": lambda table, _: table.to_pandas(),
    "pandas nullable": _pandas_nullable,
    "pandas objects": _pandas_objects,
    "pandas categorical": _pandas_categorical,
    "polars": lambda table, _: table,
    "polars lazy": lambda table, _: table.lazy(),
    "polars categorical": _polars_categorical,
    "pyarrow": lambda table, _: table.to_arrow(),
    "duckdb": _duckdb,
    "ibis": _ibis,
    "dask": lambda table, _: _dask(
        table, _, lambda t, _: t.to_pandas().astype({"b": "boolean"} if "b" in t.columns else {})
    ),
    "dask nullable": lambda table, _: _dask(table, _, _pandas_nullable),
    "dask categorical": lambda table, _: _dask(table, _, _pandas_categorical),
    "sqlite": _sqlite,
}
"""From a Polars frame with columns of doubles, texts and booleans to the same table elsewhere."""
WITH_KINDS = [*KINDS, "postgres", SPARK]
USUAL = [name for name in WITH_KINDS if name not in ("dask nullable", "dask categorical")]
"""Without those that need seconds for a query and differ from another one by their types alone."""


@pytest.fixture
def made_of(request, tmp_path):
    """A function from the name of a source and a Polars frame to that source."""

    def make(name, table):
        if name in KINDS:
            return KINDS[name](table, tmp_path)
        engine = request.getfixturevalue({"postgres": "libpq_url", "spark": "spark"}[name])
        return {"postgres": _postgres, "spark": _spark}[name](table, tmp_path, engine)

    return make


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
