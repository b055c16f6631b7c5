"""People of cells: many cells are added up without a matrix of them, and rows that are alike are read as one."""

from __future__ import annotations

import tracemalloc

import numpy as np
import polars as pl
import pytest

import hetdp
from hetdp.core.domain import GRID
from hetdp.sources import columns
from hetdp.tally.groupby import Grouping

CATEGORIES = ["nurse", "teacher", "Ärztin", ""]
CELLS = [*CATEGORIES, None, "Nurse", "nurse ", "other", "nurse\x00", "NaN", "é"]
JOBS = hetdp.ask.histogram(categories=CATEGORIES, value="job")
NURSES = hetdp.ask.proportion(equals="nurse", missing=0)
STATISTICS = [
    JOBS,
    hetdp.ask.quantile(0.5, bounds=(0, 1), bins=300),
    NURSES,
    hetdp.ask.mean(bounds=(0, 1)),
    hetdp.ask.variance(bounds=(0, 1)),
    hetdp.ask.mean(bounds=(0, 1), missing="estimate"),
    hetdp.ask.quantile(0.5, bounds=(0, 1), bins=300, missing="estimate"),
    hetdp.ask.proportion(equals="nurse", missing="estimate"),
    hetdp.ask.variance(bounds=(0, 1), missing="estimate"),
    hetdp.ask.means({"a": (0, 1), "b": (0, 1)}, missing="estimate"),
    hetdp.ask.mean_by_group(bounds=(0, 1), categories=["a", "b"], private_group="g"),
    hetdp.ask.mean_by_group(bounds=(0, 1), categories=["a", "b"], private_group="g", missing="estimate"),
]


def people(n=5000, seed=3):
    rng = np.random.default_rng(seed)
    jobs = [CELLS[i] for i in rng.integers(len(CELLS), size=n)]
    return pl.DataFrame(
        {"job": jobs, "eps": rng.choice([0.0, 0.1, 1.0, np.inf], n)}, schema_overrides={"job": pl.String}
    )


def brute(frame, categories=CATEGORIES, column="job"):
    """{ε: people in each cell}, counted one by one; nothing is counted of people with ε = 0."""
    found = {}
    for cell, level in zip(frame[column].to_list(), frame["eps"].to_list(), strict=True):
        row = found.setdefault(level, [0] * (len(categories) + 1))
        row[categories.index(cell) if cell in categories else -1] += 1 if level > 0 else 0
    return dict(sorted(found.items()))


def counts(tally):
    rows = zip(tally.table.epsilon.tolist(), (tally.table.total // GRID).tolist(), strict=True)
    return dict(rows)


@pytest.mark.parametrize("statistic", STATISTICS, ids=lambda s: s.name + (", answered" if s.missing else ""))
def test_adding_to_levels_is_adding_up_what_everybody_hands_over(statistic):
    rng = np.random.default_rng(1)
    cell, level, people = rng.integers(statistic.cells, size=200), rng.integers(3, size=200), rng.integers(9, size=200)
    codes = len(statistic.sums) * (2 if statistic.marks else 1) + statistic.square
    sums = rng.integers(GRID, size=(200, codes)) * (people > 0)[:, None]
    found = np.zeros((3, statistic.width), np.int64)
    statistic.add_to(found, level, cell, people, sums)
    expected = np.zeros_like(found)
    for i in range(200):
        expected[level[i]] += statistic.totals(cell[i : i + 1], people[i : i + 1], sums[i : i + 1])[0]
    assert found.tolist() == expected.tolist()


@pytest.mark.parametrize("kind", ["parquet", "arrow", "lazy", "categorical", "enum"])
def test_rows_that_are_read_as_one_give_the_counts_of_rows_one_by_one(kind, tmp_path, monkeypatch):
    frame = people()
    source = frame.lazy()
    if kind == "categorical":
        source = frame.with_columns(pl.col("job").cast(pl.Categorical)).lazy()
    elif kind == "enum":
        texts = sorted({cell for cell in CELLS if cell is not None})
        source = frame.with_columns(pl.col("job").cast(pl.Enum(texts))).lazy()
    elif kind != "lazy":
        source = tmp_path / f"people.{kind}"
        (frame.write_parquet if kind == "parquet" else frame.write_ipc)(source)
    monkeypatch.setattr(columns, "ROWS", 300)  # several batches
    seen = []
    add = Grouping.add
    monkeypatch.setattr(Grouping, "add", lambda self, *given: seen.append(given[2]) or add(self, *given))
    found = hetdp.read(source, epsilon="eps", statistic=JOBS)
    assert counts(found) == brute(frame)
    assert dict(zip(found.table.epsilon.tolist(), found.table.count.tolist(), strict=True)) == {
        level: frame.filter(pl.col("eps") == level).height for level in brute(frame)
    }
    assert all(each is not None and each.sum() >= each.size for each in seen)
    assert sum(int(each.sum()) for each in seen) == frame.height


def test_whole_numbers_and_texts_of_levels_are_read_as_one_too(tmp_path):
    rng = np.random.default_rng(2)
    frame = pl.DataFrame({"job": rng.integers(0, 6, 3000), "eps": rng.choice(["0.1", "1", "public"], 3000)})
    path = tmp_path / "people.parquet"
    frame.write_parquet(path)
    found = hetdp.read(path, epsilon="eps", statistic=hetdp.ask.histogram(categories=[1, 2, 5], value="job"))
    numbers = frame.with_columns(pl.col("eps").replace_strict({"0.1": 0.1, "1": 1.0, "public": np.inf}))
    assert counts(found) == brute(numbers, [1, 2, 5])


def test_two_questions_about_categories_share_the_rows_that_are_alike():
    frame = people().with_columns(pl.col("job").alias("again"))
    asked = {"one": JOBS, "two": hetdp.ask.proportion(equals="teacher", value="again", missing=0)}
    found = hetdp.ask(frame.lazy(), asked, epsilon="eps")
    assert all(answer.plan.n == frame.height for answer in found.values())


@pytest.mark.parametrize("bad", [-1.0, float("nan"), None])
def test_a_bad_epsilon_is_named_with_its_own_row(bad, tmp_path):
    frame = pl.DataFrame({"job": ["nurse"] * 900, "eps": [0.5] * 700 + [bad] + [0.5] * 199})
    path = tmp_path / "people.parquet"
    frame.write_parquet(path)
    with pytest.raises(hetdp.InputError) as error:
        hetdp.read(path, epsilon="eps", statistic=JOBS)
    assert "row 701" in str(error.value)


def test_a_table_is_read_row_by_row_where_values_are_added_up_or_the_owner_checks(monkeypatch):
    frame = people().with_columns(x=pl.int_range(pl.len()) / 5000.0)
    called = []
    monkeypatch.setattr(columns, "_counted", lambda *_: called.append(1))
    hetdp.read(frame.lazy(), value="x", missing="midpoint", epsilon="eps", bounds=(0, 1))
    by_group = hetdp.ask.mean_by_group(bounds=(0, 1), categories=CATEGORIES, private_group="job", value="x")
    hetdp.read(frame.lazy(), epsilon="eps", statistic=by_group, missing="midpoint")
    hetdp.check(frame.lazy(), value="x", epsilon="eps", bounds=(0, 1))
    assert not called


def test_a_median_over_many_bins_needs_no_matrix_of_levels_and_bins():
    values, eps = np.random.default_rng(5).random(100_000), np.repeat([0.1, 0.5, 1.0, 2.0], 25_000)
    statistic = hetdp.ask.quantile(0.5, bounds=(0, 1), bins=4096)
    tracemalloc.start()
    hetdp.read(values, epsilon=eps, statistic=statistic)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 40e6  # a matrix would have 4 · 4096 · 4096 numbers, half a gigabyte


def test_postgres_counts_texts_that_are_alike_as_one_and_finds_the_same(postgres_url):
    sqlalchemy = pytest.importorskip("sqlalchemy")
    cells = [*CATEGORIES, None, "Nurse", "nurse ", "it's", "back\\slash", "NaN"]
    rng = np.random.default_rng(4)
    rows = {"job": [cells[i] for i in rng.integers(len(cells), size=2000)], "eps": rng.choice([0.0, 0.1, 1.0], 2000)}
    frame = pl.DataFrame(rows, schema_overrides={"job": pl.String})
    engine = sqlalchemy.create_engine(postgres_url)
    with engine.begin() as connection:
        connection.execute(sqlalchemy.text("drop table if exists alike"))
        connection.execute(sqlalchemy.text("create table alike (job text, eps float8)"))
        connection.execute(sqlalchemy.text("insert into alike values (:job, :eps)"), frame.to_dicts())
    try:
        listed = [*CATEGORIES, "it's", "back\\slash"]
        for statistic in (JOBS, hetdp.ask.histogram(categories=listed), NURSES):
            asked = {"value": "job", "statistic": statistic}
            found = hetdp.read(postgres_url, query="alike", epsilon="eps", **asked)
            assert found == hetdp.read(frame, epsilon="eps", **asked)
            assert hetdp.read(postgres_url, query="alike", epsilon=0.5, **asked) == hetdp.read(
                frame, epsilon=0.5, **asked
            )
    finally:
        with engine.begin() as connection:
            connection.execute(sqlalchemy.text("drop table alike"))
        engine.dispose()
