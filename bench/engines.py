"""Frames and engines: the group-by that runs inside DuckDB and Spark, and frames in memory.

The engine is started before the clock. Its own group-by, which tells the tiers apart, is the baseline with a bar. Its
plain sums over the same two columns, and sums of values that are clamped and rounded, without which nothing is private,
show what such a tally is made of.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from measure import clock, race
from spine import distinct, tiered
from table import Bar, Row

import hetdp

ROWS = 10**7
SUMS = "select sum(value), sum(eps) from {}"
GROUPS = "select eps, count(*), sum(value) from {} group by eps"
CODES = "select sum(floor(least(greatest(value, 0), 1) * 1048576 + 0.5)), sum(eps) from {}"
MAKERS = {"four tiers": tiered, "distinct ε": distinct}


def duckdb_frames(_quick: bool) -> Iterator[Row]:  # noqa: FBT001
    """Release means of a DuckDB relation: a Parquet file, and a table of its own in memory."""
    import duckdb

    connection = duckdb.connect()
    with tempfile.TemporaryDirectory() as folder:
        for name, path in _files(Path(folder)):
            connection.execute(f"create or replace table people as select * from '{path}'")  # noqa: S608  our own file
            for where, table in (("Parquet", f"'{path}'"), ("its own table", "people")):
                relation = connection.sql(f"select * from {table}")  # noqa: S608
                bar = Bar("at most", 1.5) if name == "four tiers" else None
                yield from _against(
                    f"DuckDB, {where}, {name}", lambda q: connection.sql(q).fetchall(), table, relation, bar
                )


def spark_frames(_quick: bool) -> Iterator[Row]:  # noqa: FBT001
    """Release means of a Spark frame that reads a Parquet file, with a thread a core."""
    if shutil.which("java") is None:
        yield Row("Spark", "", float("nan"), note="there is no Java here")
        return
    spark = spark_session()
    with tempfile.TemporaryDirectory() as folder:
        for name, path in _files(Path(folder)):
            spark.read.parquet(str(path)).createOrReplaceTempView("people")
            bar = Bar("at most", 1.5) if name == "four tiers" else None
            run = lambda query: spark.sql(query).collect()  # noqa: E731
            yield from _against(f"Spark, Parquet, {name}", run, "people", spark.table("people"), bar)
            if name == "four tiers":
                yield from _growth(spark, path)
    spark.stop()


def _growth(spark: Any, path: Path) -> Iterator[Row]:
    """Show how the cost grows with rows, and with partitions of the same rows."""
    whole = spark.read.parquet(str(path))
    for share in (10, 100):
        part = whole.limit(ROWS // share).repartition(2).cache()
        more = whole.limit(ROWS // 10).repartition(2).cache() if share == 100 else whole.repartition(2).cache()
        timed = race(clock(partial(_mean, part)), clock(partial(_mean, more)), least=3)
        yield Row.of(f"Spark, in memory, {10 * ROWS // share:,} rows", f"{ROWS // share:,} rows", timed)
        part.unpersist()
        more.unpersist()
    few = whole.repartition(2).cache()
    for partitions in (20, 200):
        many = whole.repartition(partitions).cache()
        timed = race(clock(partial(_mean, few)), clock(partial(_mean, many)), least=3)
        yield Row.of(f"Spark, in memory, {partitions} partitions", "2 partitions", timed)
        many.unpersist()


def frames_in_memory(_quick: bool) -> Iterator[Row]:  # noqa: FBT001
    """Release means of frames in memory, against the same arrays."""
    import polars as pl

    pd: Any = import_module("pandas")
    for name, make in MAKERS.items():
        values, eps = np.random.default_rng(0).random(ROWS), make(ROWS)
        columns = {"value": values, "eps": eps}
        polars = pl.DataFrame(columns)
        frames = {
            "pandas": pd.DataFrame(columns),
            "Polars": polars,
            "lazy Polars": polars.lazy(),
            "PyArrow": polars.to_arrow(),
        }
        for library, frame in frames.items():
            arrays = clock(lambda: hetdp.mean(values, epsilon=eps, bounds=(0, 1)))  # noqa: B023  used at once
            timed = race(arrays, clock(partial(_mean, frame)))
            yield Row.of(f"{library} in memory, 10⁷ rows, {name}", "arrays", timed)


def spark_session() -> Any:
    """Return a Spark on this machine, quiet and with a thread a core."""
    from pyspark.sql import SparkSession

    settings = {
        "spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1", "spark.driver.memory": "3g",
        "spark.log.level": "OFF", "spark.sql.shuffle.partitions": "2", "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }  # fmt: skip
    builder = SparkSession.builder.master("local[*]").appName("hetdp bench")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _files(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield the name and the Parquet file of each kind of ε."""
    import polars as pl

    for i, (name, make) in enumerate(MAKERS.items()):
        path = folder / f"{i}.parquet"
        pl.DataFrame({"value": np.random.default_rng(0).random(ROWS), "eps": make(ROWS)}).write_parquet(path)
        yield name, path


def _against(what: str, run: Callable[[str], Any], table: str, frame: Any, bar: Bar | None) -> Iterator[Row]:
    ours = clock(partial(_mean, frame))
    yield Row.of(f"{what}, 10⁷ rows", "its own sums", race(clock(lambda: run(SUMS.format(table))), ours))
    if bar is not None:
        yield Row.of(f"{what}, 10⁷ rows", "its own group-by", race(clock(lambda: run(GROUPS.format(table))), ours), bar)
        for least, query in (("its own group-by", GROUPS), ("its own sums of clamped and rounded values", CODES)):
            sums, other = (clock(partial(run, text.format(table))) for text in (SUMS, query))
            yield Row.of(f"{what}, {least}", "its own sums", race(sums, other))


def _mean(frame: Any) -> Any:
    return hetdp.mean(frame, value="value", missing="midpoint", epsilon="eps", bounds=(0, 1))


CASES = (duckdb_frames, spark_frames, frames_in_memory)
