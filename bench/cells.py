"""Histograms and medians: counting people of ε and category, against each engine's own group-by, and releases.

The Parquet file has ten categories and a few people in none of them. It is made once and kept in build/bench/data.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from engines import spark_session
from files import DATA, PIECE, _four
from measure import FOLDER, Timer, clock, fresh, race, resident
from table import Bar, Row

import hetdp
from hetdp.sources import Source
from hetdp.sources.databases import Database
from hetdp.sources.request import Request

ROWS = 10**7
NAMES = [f"category {i}" for i in range(10)]
CHANCE = [0.25, 0.2, 0.15, 0.1, 0.1, 0.08, 0.05, 0.03, 0.02, 0.01, 0.01]
GROUPS = "select eps, category, count(*) from people group by eps, category"
ask: Any = hetdp.ask
TEN = ask.histogram(categories=NAMES, value="category")
MEDIAN = ask.quantile(0.5, bounds=(0, 1), value="value", missing="midpoint")


def histogram_parquet(quick: bool) -> Iterator[Row]:  # noqa: FBT001
    """Release histograms of Parquet files, and the memory of the whole process that does it."""
    import polars as pl

    for n in (10**6,) if quick else (10**6, ROWS, 3 * ROWS):
        path = made(n)
        groups = pl.scan_parquet(path).group_by("eps", "category").len()
        timed = race(clock(partial(groups.collect, engine="streaming")), clock(partial(histogram, path)), least=9)
        bar = Bar("at most", 1.5) if n == ROWS else None
        yield Row.of(f"histogram of 10, Parquet, {n:,} rows, four tiers", "Polars' group-by", timed, bar)
        timed = race(worked(partial(groups.collect, engine="streaming")), worked(partial(histogram, path)), least=9)
        yield Row.of("its processor time, all threads", "Polars' group-by", timed, bar)
        for what in ("histogram", "median"):
            yield Row(f"its memory, {what}, everything", "", fresh("cells", "memory", str(path), what), "MB")
    if not quick:
        path = made(ROWS)
        sums = pl.scan_parquet(path).select(pl.col("value", "eps").sum())
        timed = race(clock(sums.collect), clock(partial(hetdp.quantile, path, 0.5, **_MEDIAN)))
        yield Row.of(f"median, Parquet, {ROWS:,} rows, four tiers, 4,096 bins", "Polars' sums", timed)


def histogram_postgres(quick: bool) -> Iterator[Row]:  # noqa: FBT001
    """Tally ten categories in PostgreSQL."""
    psycopg: Any = import_module("psycopg")
    sys.path.append(str(FOLDER.parent / "tests"))
    postgres: Any = import_module("postgres")
    rows, name = (10**6, "10⁶") if quick else (ROWS, "10⁷")
    with (
        postgres.server(shared_buffers="1GB") as server,
        psycopg.connect(server.url(), autocommit=True) as connection,
    ):
        level = "(array[0.05, 0.2, 1.0, 4.0]::float8[])[1 + (4 * random() * 0.999999)::int % 4]"
        connection.execute(
            f"create table people as select 'category ' || (11 * random() * 0.999999)::int % 11 as category, "  # noqa: S608
            f"{level} as eps from generate_series(1, {rows})"
        )
        connection.execute("vacuum analyze people")
        source = Source(Database.of(connection, "people"), Request("category", "eps", reads=TEN.reads))
        timed = race(clock(lambda: connection.execute(GROUPS).fetchall()), clock(lambda: source.tables(TEN)))
        (version,) = connection.execute("show server_version").fetchone()
        what = f"tally, histogram of 10, PostgreSQL {version}, {name} rows"
        yield Row.of(what, "its own group-by", timed, Bar("at most", 1.5))


def histogram_spark(quick: bool) -> Iterator[Row]:  # noqa: FBT001
    """Release a histogram of a Spark frame that reads a Parquet file."""
    if shutil.which("java") is None:
        yield Row("Spark", "", float("nan"), note="there is no Java here")
        return
    n = 10**6 if quick else ROWS
    spark = spark_session()
    spark.read.parquet(str(made(n))).createOrReplaceTempView("people")
    timed = race(clock(lambda: spark.sql(GROUPS).collect()), clock(lambda: histogram(spark.table("people"))), least=7)
    yield Row.of(f"histogram of 10, Spark, Parquet, {n:,} rows", "its own group-by", timed, Bar("at most", 1.5))
    spark.stop()


def release_cells(_quick: bool) -> Iterator[Row]:  # noqa: FBT001
    """Release from a tally that was read: the plan, the exact check and the noise."""
    path = made(10**6)
    for what, statistic, bar in (("a histogram of 11 cells", TEN, 50), ("a median over 4,096 bins", MEDIAN, 200)):
        tally = hetdp.read(path, epsilon="eps", statistic=statistic)
        timer = clock(lambda: hetdp.release(tally, hetdp.plan(tally.levels, statistic=statistic)))  # noqa: B023
        times = sorted(1e3 * timer() for _ in range(101))
        yield Row(f"release, {what}", "", times[50], "ms", Bar("at most", bar), times[0], "101 runs")


_MEDIAN: dict[str, Any] = {"bounds": (0, 1), "value": "value", "epsilon": "eps"}


def histogram(source: Any) -> hetdp.Histogram:
    """Release the histogram of a table."""
    return hetdp.histogram(source, categories=NAMES, value="category", epsilon="eps")


def worked(call: Callable[[], Any]) -> Timer:
    """Return a timer of the processor time of all threads, on which others' work on the machine has less influence."""

    def timer() -> float:
        start = time.process_time()
        call()
        return time.process_time() - start

    return timer


def memory(path: str, what: str) -> float:
    """Return the most MB that a process which releases from a file has; for a fresh interpreter."""
    histogram(path) if what == "histogram" else hetdp.quantile(path, 0.5, **_MEDIAN)
    return resident(peak=True)


def made(n: int) -> Path:
    """Return a Parquet file of n people, made now if it is not there."""
    import polars as pl
    import pyarrow.parquet as pq  # type: ignore[import-untyped]

    path = DATA / f"categories-{n}.parquet"
    if not path.exists():
        DATA.mkdir(parents=True, exist_ok=True)
        rng, part, writer = np.random.default_rng(0), path.with_suffix(".part"), None
        names = np.array([*NAMES, "something else"])
        for _ in range(n // PIECE):
            cells = names[rng.choice(11, PIECE, p=CHANCE)]
            table = pl.DataFrame({"category": cells, "value": rng.random(PIECE), "eps": _four(rng)}).to_arrow()
            writer = writer or pq.ParquetWriter(part, table.schema, compression="zstd")
            writer.write_table(table)
        writer.close()  # type: ignore[union-attr]
        part.rename(path)
    return path


CASES = (histogram_parquet, histogram_postgres, histogram_spark, release_cells)
