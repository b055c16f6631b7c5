"""A real Spark, local: the same integers for any partitions, also when tasks fail, and only the level table arrives.

Spark needs Java 17 or newer. Where there is none these tests are skipped, and fail where `CI` is set.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import subprocess
import sys
import traceback
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import hetdp
import oracle
from hetdp.sources import Source, _table, frames
from hetdp.sources.request import Request
from hetdp.statistics.mean import Mean
from oracle import GRID, expected_groups, seen
from support import EXTREME_VALUES

pytestmark = pytest.mark.xdist_group("spark")

PAGE = Path(__file__).parents[2] / "docs" / "spark.md"
LO, HI = BOUNDS = -2.0, 6.0
expected = partial(oracle.expected, bounds=BOUNDS)
MARKER = "98765.4321"


# ---------------------------------------------------------------------------------------------------------
# The table


TIES = [LO + (HI - LO) * (k + 0.5) / GRID for k in (0, 1, 262143, 524287, 1048575)]
VALUES = [None, LO, HI, *TIES, *(math.nextafter(x, 9) for x in TIES), *EXTREME_VALUES]
EPSILONS = [0.0, -0.0, math.inf, 5e-324, 0.1, 1 / 3, 20.0, 1.7976931348623157e308]
ROWS = list(product(VALUES, EPSILONS))


@pytest.fixture(scope="module")
def parquet(tmp_path_factory):
    """The adversarial table as a file that Spark reads by itself."""
    path = tmp_path_factory.mktemp("tables") / "people.parquet"
    pl.DataFrame(ROWS, schema={"x": pl.Float64, "e": pl.Float64}, orient="row").write_parquet(path, row_group_size=50)
    return str(path)


def read(frame, **options):
    return hetdp.read(frame, value="x", missing="midpoint", epsilon="e", bounds=(LO, HI), **options)


def shown(error):
    return "".join([str(error), repr(error), *traceback.format_exception(error)])


@contextlib.contextmanager
def setting(spark, name, value):
    before = spark.conf.get(name)
    spark.conf.set(name, value)
    try:
        yield
    finally:
        spark.conf.set(name, before)


# ---------------------------------------------------------------------------------------------------------
# The same integers


@pytest.mark.parametrize(("partitions", "ansi"), [(1, "true"), (2, "false"), (7, "true")])
def test_the_tally_is_the_oracles_with_any_partitions_in_both_modes_of_arithmetic(spark, parquet, partitions, ansi):
    with setting(spark, "spark.sql.ansi.enabled", ansi):
        frame = spark.read.parquet(parquet).repartition(partitions)
        assert frame.rdd.getNumPartitions() == partitions
        assert seen(read(frame).table) == expected(ROWS)


def test_control_spark_raises_where_our_query_does_not(spark):
    """The casts and sums that are avoided: a cast of NaN and a sum past 2⁶³ raise, or wrap when ANSI is off."""
    wide = "select sum(x) from values (9223372036854775807L), (1L) as t(x)"
    with setting(spark, "spark.sql.ansi.enabled", "true"):
        for query in ("select cast(double('NaN') as bigint)", wide):
            with pytest.raises(Exception, match="OVERFLOW"):
                spark.sql(query).collect()
    with setting(spark, "spark.sql.ansi.enabled", "false"):
        assert spark.sql(wide).collect()[0][0] == -(2**63)
    assert spark.sql("select least(null, 6.0D), least(double('NaN'), 6.0D)").collect()[0] == (6.0, 6.0)


def test_numbers_of_every_type_count_as_doubles(spark):
    frame = spark.sql("""
        select cast(x as decimal(38, 5)) d, cast(x as float) f, cast(x as bigint) i, x > 1 b, 1.0D e
        from values (0.1D), (5.55D), (-99.0D), (1e30D), (null) as t(x) where x is null or x < 1e18
        union all select cast('99999999999999999999999999999999' as decimal(38, 5)), float('inf'),
            9223372036854775807L, true, 1.0D
    """)
    f = float(np.float32(0.1)), float(np.float32(5.55))
    meant = {"d": [0.1, 5.55, -99, None, 1e32], "f": [*f, -99, None, math.inf], "i": [0, 5, -99, None, 2.0**63],
             "b": [0, 1, 0, None, 1]}  # fmt: skip
    for column, values in meant.items():
        tally = hetdp.read(frame, value=column, missing="midpoint", epsilon="e", bounds=(LO, HI))
        assert seen(tally.table) == expected([(x, 1.0) for x in values]), column


def test_texts_and_tiers_and_odd_names(spark):
    frame = spark.sql("select x `in.come`, t `my tier` from values (1.0D, 'strict'), (2.0D, 'open') as v(x, t)")
    tally = hetdp.read(
        frame,
        value="in.come",
        missing="midpoint",
        epsilon="my tier",
        bounds=(LO, HI),
        tiers={"strict": 0.1, "open": "public"},
    )
    assert seen(tally.table) == expected([(1.0, 0.1), (2.0, math.inf)])


def test_many_levels_are_rounded_down_on_the_executors(spark, tmp_path):
    rng = np.random.default_rng(0)
    epsilon = rng.uniform(0.01, 5, 70_000)
    epsilon[:400] = np.exp(rng.uniform(-650, 650, 400))
    epsilon[400:404] = [0.0, math.inf, 5e-324, math.nextafter(2.0**900, 0)]
    values = rng.uniform(-3, 7, epsilon.size)
    pl.DataFrame({"x": values, "e": epsilon}).write_parquet(tmp_path / "many.parquet")
    ours = read(spark.read.parquet(str(tmp_path / "many.parquet")))
    assert ours.levels.rounded
    assert ours == hetdp.read(values, epsilon=epsilon, bounds=(LO, HI), missing="midpoint")


def test_no_value_raises_under_ansi_rules_where_a_cast_can(spark, parquet):
    with setting(spark, "spark.sql.ansi.enabled", "true"):
        assert seen(read(spark.read.parquet(parquet)).table) == expected(ROWS)


# ---------------------------------------------------------------------------------------------------------
# People


def people(spark, rows):
    return spark.createDataFrame(rows, "id string, x double, e double, g string").repartition(3)


def test_a_persons_rows_are_averaged_in_their_group_and_counted_once(spark):
    rows = [(f"p{i % 11}", VALUES[i % len(VALUES)], EPSILONS[i % 11 % 8], "ab"[i % 11 % 2]) for i in range(200)]
    asked = Request("x", "e", "id", several=True, by="g")
    found = Source(_table(people(spark, rows), None), asked).tables(Mean((LO, HI)))
    assert {g: seen(table) for g, table in found.items()} == expected_groups(
        [(who, g, x, e) for who, x, e, g in rows], BOUNDS
    )


FAULTS = {
    "second row": ([("a", 1.0, 1.0, "g"), ("b", 1.0, 1.0, "g"), ("b", 2.0, 1.0, "g")], False, "more than one row.*'b'"),
    "two ε": ([("a", 1.0, 1.0, "g"), ("a", 1.0, 2.0, "g")], True, "more than one epsilon, such as 'a'"),
    "no id": ([("a", 1.0, 1.0, "g"), (None, 1.0, 1.0, "g")], True, "id is missing"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_of_people_are_loud_errors(spark, fault):
    rows, several, message = FAULTS[fault]
    with pytest.raises(hetdp.InputError, match=message):
        _table(people(spark, rows), None).tables(Request("x", "e", "id", several), Mean((LO, HI)))


# ---------------------------------------------------------------------------------------------------------
# Tasks that fail


def test_a_task_that_fails_and_is_tried_again_does_not_change_the_sum(spark, parquet, tmp_path):
    """Every first attempt yields half of its rows, then dies; the second attempt must not find them counted."""
    died = tmp_path / "died"

    def flaky(rows):
        from pyspark import TaskContext

        context = TaskContext.get()
        for i, row in enumerate(rows):
            if i == 20 and context.attemptNumber() == 0:
                with died.open("a") as file:
                    file.write("x")
                raise RuntimeError("the executor went away")
            yield row

    whole = spark.read.parquet(parquet).repartition(3)
    frame = spark.createDataFrame(whole.rdd.mapPartitions(flaky), whole.schema)
    assert seen(read(frame).table) == expected(ROWS)
    assert len(died.read_text()) >= 3


LOST = """
import json, os, signal, sys
from pathlib import Path
sys.path[:0] = [sys.argv[1], sys.argv[1] + "/sources"]
import sparks
import test_spark

path, died = sys.argv[2], Path(sys.argv[3])
spark = sparks.session("local-cluster[2,1,512]", **{
    "spark.executor.memory": "512m", "spark.python.use.daemon": "false",  # so the parent of a task is its executor
    "spark.local.dir": str(died.parent), "spark.sql.warehouse.dir": str(died.parent),
    "spark.task.maxFailures": "20",  # on a busy machine Python may start too late, again and again
    "spark.stage.maxConsecutiveAttempts": "20", "spark.shuffle.io.maxRetries": "1", "spark.shuffle.io.retryWait": "1s",
})

def deadly(rows):
    for i, row in enumerate(rows):
        if i == 20:
            try:
                os.close(os.open(died, os.O_CREAT | os.O_EXCL))
                os.kill(os.getppid(), signal.SIGKILL)
            except FileExistsError:
                pass
        yield row

whole = spark.read.parquet(path).repartition(2)
tally = test_spark.read(spark.createDataFrame(whole.rdd.mapPartitions(deadly), whole.schema))
print(json.dumps([[repr(e), *pair] for e, pair in test_spark.seen(tally.table).items()]))
spark.stop()
"""


def test_a_lost_executor_does_not_change_the_sum(spark, parquet, tmp_path):
    """Two executors in processes of their own; a task kills the one it runs in, in the middle of its rows."""
    import pyspark

    environment = {
        **os.environ,
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_WORKER_DIR": str(tmp_path),
    }
    command = [sys.executable, "-c", LOST, str(Path(__file__).parents[1]), parquet, str(tmp_path / "died")]
    run = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr[-2000:]
    found = {float(e): (people, total) for e, people, total in json.loads(run.stdout.splitlines()[-1])}
    assert found == expected(ROWS)
    assert (tmp_path / "died").exists()


# ---------------------------------------------------------------------------------------------------------
# What reaches the driver, and what is said


def test_only_the_level_table_reaches_the_driver(spark, parquet, monkeypatch):
    """All that is collected is one row a level."""
    collected = []
    fetch = frames.fetch

    def counted(frame):
        rows = fetch(frame)
        collected.append((frame.columns, len(rows)))
        return rows

    monkeypatch.setattr(frames, "fetch", counted)
    large = spark.read.parquet(parquet).crossJoin(spark.range(50))
    read(large)
    assert collected == [(["epsilon", "people", "sum 0"], len(set(EPSILONS)))]


def plan_of(frame):
    opened = frames.opened(frame)
    query = frames._Query(opened.frame, Request("x", "e"), Mean((LO, HI)))
    text = query._table(bits=None).to_native()._jdf.queryExecution().toString()
    return re.sub(r"#\d+L?|plan_id=\d+|\[id=.*?\]|file:\S+", "", text)


def test_the_plan_does_not_depend_on_values(spark, tmp_path):
    for name, values in (("tame", [1.0] * 4), ("wild", [None, math.nan, -math.inf, 98765.4321])):
        pl.DataFrame({"x": pl.Series(values, dtype=pl.Float64), "e": [1.0] * 4}).write_parquet(tmp_path / name)
    tame, wild = (plan_of(spark.read.parquet(str(tmp_path / name))) for name in ("tame", "wild"))
    assert "HashAggregate" in tame
    assert tame == wild
    assert MARKER not in wild


def test_the_message_of_a_failing_executor_is_held_back(spark):
    frame = spark.sql("select cast(t as double) x, 1.0D e from values ('1'), ('98765.4321x') as v(t)")
    spilt = spark.createDataFrame([("1",), (MARKER + "x",)], "t string").selectExpr("cast(t as double) x", "1.0D e")
    with setting(spark, "spark.sql.ansi.enabled", "true"):
        for broken in (frame, spilt):
            with pytest.raises(hetdp.InputError, match=r"engine could not finish|cannot be found out") as error:
                read(broken)
            assert MARKER not in shown(error.value)
        with pytest.raises(Exception, match=MARKER):  # the control: Spark itself quotes the cell
            spilt.collect()


def test_a_text_column_is_read_cell_by_cell(spark):
    frame = spark.createDataFrame([("0.5", 1.0), (MARKER + "x", 1.0)], "x string, e double")
    assert seen(read(frame).table) == expected([(0.5, 1.0), (None, 1.0)])


# ---------------------------------------------------------------------------------------------------------
# The page


def blocks():
    return re.findall(
        r"^```\{code-block\} python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
    )


def test_the_blocks_of_the_page_run(spark, tmp_path):
    """The Python blocks of docs/spark.md run one after the other, in the session of these tests."""
    rng = np.random.default_rng(0)
    person = np.arange(3000) // 2
    columns = {
        "person": person,
        "income": rng.uniform(0, 9e4, 3000),
        "tier": rng.choice(["strict", "standard", "open"], 1500)[person],
        "region": rng.choice(["north", "south"], 1500)[person],
    }
    pl.DataFrame(columns).write_parquet(tmp_path / "people.parquet")
    namespace = {"spark": spark}
    assert len(blocks()) >= 2
    for block in blocks():
        moved = block.replace("people.parquet", str(tmp_path / "people.parquet"))  # Spark stays in its own folder
        exec(compile(moved, PAGE.name, "exec"), namespace)  # noqa: S102  our own documentation
    assert namespace["result"].plan.n == namespace["tally"].levels.n == 1500
