"""A collation of DuckDB makes different texts one: no person's cell may stand for another person's because of it."""

from __future__ import annotations

import math

import duckdb
import pytest

import hetdp
from hetdp.errors import InputError

pytestmark = pytest.mark.filterwarnings("ignore:fetch_arrow_table:DeprecationWarning")
ask = hetdp.ask
N = 60


def connected(cell, declared="NOCASE", default=""):
    """A table in which everybody but the first person says x; ids differ in case alone."""
    connection = duckdb.connect()
    if default:
        connection.execute(f"set default_collation = '{default}'")
    collate = f" collate {declared}" if declared else ""
    connection.execute(f"create table t (id varchar{collate}, v varchar{collate}, e double)")
    rows = [(f"p{i // 2}" if i % 2 else f"P{i // 2}", "x" if i else cell, 1.0) for i in range(N)]
    connection.executemany("insert into t values (?, ?, ?)", rows)
    return connection


QUESTIONS = {
    "histogram": ask.histogram(value="v", categories=["1", "x"]),
    "histogram of words": ask.histogram(value="v", categories=["y", "x"]),
    "proportion": ask.proportion(value="v", equals="x", missing="none"),
    "proportion of those who answered": ask.proportion(value="v", equals="x", missing="estimate"),
    "mean of words": ask.mean(value="v", values={"x": 1, "y": 0}, bounds=(0, 1), missing="none"),
}
DECLARED = [("NOCASE", ""), ("NOACCENT", ""), ("", "NOCASE")]


def moved(statistic, cell, declared, default):
    """By how many people's codes the sums differ when the first person writes another cell."""
    both = []
    for said in ("x", cell):
        connection = connected(said, declared, default)
        found = hetdp.read(connection.sql("select * from t"), epsilon="e", value="v", statistic=statistic)
        both.append(found.table.total.sum(axis=0) / 2**20)
    return abs(both[0] - both[1]).sum() / 2


@pytest.mark.parametrize(("declared", "default"), DECLARED)
@pytest.mark.parametrize("name", QUESTIONS)
@pytest.mark.parametrize("cell", ["X", "x\u0301", "y"])
def test_a_cell_moves_the_sums_of_its_own_person_alone_under_any_collation(name, cell, declared, default):
    assert moved(QUESTIONS[name], cell, declared, default) <= 1


@pytest.mark.parametrize("name", QUESTIONS)
def test_texts_are_compared_letter_by_letter_under_any_collation(name):
    """The same integers as from a plain table, which every other source gives."""
    tables = []
    for declared in ("", "NOCASE"):
        relation = connected("X", declared).sql("select * from t")
        tables.append(hetdp.read(relation, epsilon="e", value="v", statistic=QUESTIONS[name]).table)
    assert tables[0].total.tolist() == tables[1].total.tolist()


@pytest.mark.parametrize(("declared", "default"), DECLARED)
def test_people_whose_ids_differ_in_case_stay_two_people(declared, default):
    relation = connected("x", declared, default).sql(
        "select id, e, case when v = 'x' then 1.0 else 0.0 end as y from t"
    )
    found = hetdp.read(relation, epsilon="e", value="y", person="id", rows="average", bounds=(0, 1), missing="none")
    assert found.n == N


def test_a_person_of_a_ledger_hands_over_their_own_rows_alone(tmp_path):
    """With NOCASE the rows of p1 and P1 were one group, and P1 was missing if p1 came first."""
    sums = []
    for said in ("3", "9"):
        connection = duckdb.connect()
        connection.execute("create table t (id varchar collate nocase, y varchar)")
        connection.executemany("insert into t values (?, ?)", [("p1", said), ("P1", "3")])
        with hetdp.Ledger.create(tmp_path / f"{said}.db") as ledger:
            ledger.enroll({"P1": math.inf})
            ask_for = {"person": "id", "bounds": (0, 10), "share": 1, "release_id": "may", "missing": "midpoint"}
            sums.append(ledger.mean(connection.sql("select * from t"), value="y", **ask_for).estimate)
    assert sums == [pytest.approx(3, abs=1e-4)] * 2


def test_ibis_over_duckdb_is_compared_letter_by_letter_too():
    ibis = pytest.importorskip("ibis")
    backend = ibis.duckdb.connect()
    backend.con.execute("create table t (v varchar collate nocase, e double)")
    backend.con.executemany("insert into t values (?, 1.0)", [("X",)] + [("x",)] * 20)
    found = hetdp.read(backend.table("t"), epsilon="e", value="v", statistic=QUESTIONS["histogram"])
    assert (found.table.total.sum(axis=0) / 2**20).tolist() == [0, 20, 1]
    backend.con.execute("set default_collation = 'nocase'")
    with pytest.raises(InputError, match="default_collation"):
        hetdp.read(backend.table("t"), epsilon="e", value="v", statistic=QUESTIONS["histogram"])


ENUM, JSON = "enum('x', 'X', 'p1', 'P1', 'open', 'Open')", "json"


def of_kind(kind, cells, quote=""):
    """A connection under a default collation, with a column of this kind."""
    connection = duckdb.connect()
    connection.execute("set default_collation = 'nocase'")
    connection.execute(f"create table t (v {kind}, y double, e double)")
    connection.executemany("insert into t values (?, 1, 1)", [(f"{quote}{cell}{quote}",) for cell in cells])
    return connection.sql("select * from t")


@pytest.mark.parametrize(("kind", "quote"), [(ENUM, ""), (JSON, '"')])
def test_a_default_collation_does_not_make_texts_of_other_types_one(kind, quote):
    """An enum or JSON becomes a text in the engine, and that text has the default collation."""
    asked = ask.histogram(value="v", categories=["1", f"{quote}x{quote}"])
    for first, other in (("x", 0), ("X", 1)):
        found = hetdp.read(of_kind(kind, [first] + ["x"] * 20, quote), epsilon="e", value="v", statistic=asked)
        assert (found.table.total.sum(axis=0) / 2**20).tolist() == [0, 21 - other, other]


def test_ids_and_tiers_of_an_enum_stay_apart_under_a_default_collation():
    columns = {"value": "y", "bounds": (0, 1), "missing": "none"}
    assert hetdp.read(of_kind(ENUM, ["p1", "P1"]), epsilon="e", person="v", rows="average", **columns).n == 2
    tiers = hetdp.read(
        of_kind(ENUM, ["open"] * 3 + ["Open"] * 2), epsilon="v", tiers={"open": 10, "Open": 0.1}, **columns
    )
    assert dict(zip(tiers.levels.epsilon.tolist(), tiers.levels.count.tolist(), strict=True)) == {0.1: 2, 10: 3}


def test_ibis_is_refused_over_any_engine_but_duckdb():
    """Over Spark the collation of a column cannot be taken off: the Spark frame itself is read."""
    ibis = pytest.importorskip("ibis")
    backend = ibis.sqlite.connect()
    backend.raw_sql("create table t (v text, e real)")
    with pytest.raises(InputError, match="over DuckDB only"):
        hetdp.read(backend.table("t"), epsilon="e", value="v", statistic=QUESTIONS["histogram"])


def test_control_in_the_engine_itself_these_texts_are_one():
    relation = connected("X").sql("select v, count(*) from t group by v")
    assert len(relation.fetchall()) == 1
