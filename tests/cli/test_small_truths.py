"""One ε for everybody, databases in files, and refusals that say what to do."""

from __future__ import annotations

import io
import json
import sqlite3
import subprocess
import sys

import duckdb
import polars as pl
import pytest

import hetdp

ROWS = 400
BOUNDS = ("--bounds", 0, 3)


@pytest.fixture
def table(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    people = pl.DataFrame({"x": [1.0, 2.0] * (ROWS // 2), "0.5": [2.0, 4.0] * (ROWS // 2), "job": ["a", "b"] * 200})
    people.write_csv("people.csv")
    people.drop("0.5").write_csv("plain.csv")
    people.drop("0.5").write_parquet("plain.parquet")
    people.drop("0.5").write_ndjson("plain.ndjson")
    lite = sqlite3.connect("plain.db")
    lite.executescript("create table people (x, job)")
    lite.executemany("insert into people values (?, ?)", people.select("x", "job").rows())
    lite.commit()
    lite.close()
    duck = duckdb.connect("plain.duckdb")
    duck.execute("create table people as select * from read_csv('plain.csv')")
    duck.close()
    return tmp_path


def levels(printed):
    return {float(tier["epsilon"]): tier["people"] for tier in json.loads(printed)["tiers"]}


FILES = {
    "csv": ("plain.csv",),
    "parquet": ("plain.parquet",),
    "ndjson": ("plain.ndjson",),
    "sqlite": ("plain.db", "--query", "people"),
    "duckdb": ("plain.duckdb", "--query", "select * from people"),
}


@pytest.mark.parametrize("kind", FILES)
def test_a_number_is_one_epsilon_for_everybody_in_every_kind_of_file(kind, table, hetdp_command):
    words = (*FILES[kind], "--value", "x", "--missing", "midpoint", "--epsilon", "0.5", *BOUNDS, "--json")
    code, out, err = hetdp_command("mean", *words)
    assert code == 0, err
    assert levels(out) == {0.5: ROWS}
    assert json.loads(out)["provenance"]["source"] == FILES[kind][0]
    words = ("plan", *FILES[kind], "--epsilon", "0.5", *BOUNDS, "--json")
    assert levels(hetdp_command(*words, "--value", "x", "--missing", "midpoint")[1]) == {0.5: ROWS}
    assert "name a column whose rows are counted (--value COL)" in hetdp_command(*words)[2]


def test_a_column_whose_name_is_a_number_wins(table, hetdp_command):
    words = ("--value", "x", "--missing", "midpoint", "--epsilon", "0.5", *BOUNDS, "--json")
    assert levels(hetdp_command("mean", "people.csv", *words)[1]) == {2.0: ROWS // 2, 4.0: ROWS // 2}
    assert levels(hetdp_command("mean", "plain.csv", *words)[1]) == {0.5: ROWS}


@pytest.mark.parametrize("word", ["public", "inf", "ep", "-1", "0,5"])
def test_a_word_is_always_a_column_and_what_is_no_epsilon_is_refused(word, table, hetdp_command):
    """A name that is mistyped must not publish everybody."""
    code, out, _ = hetdp_command(
        "mean", "plain.csv", "--value", "x", "--missing", "midpoint", f"--epsilon={word}", *BOUNDS
    )
    assert (code, out) == (2, "")


def test_a_number_is_one_epsilon_for_several_questions_and_for_a_delimiter_that_was_named(table, hetdp_command):
    (table / "q.toml").write_text('[job]\nstatistic = "histogram"\ncategories = ["a", "b"]\n')
    found = json.loads(hetdp_command("ask", "plain.csv", "q.toml", "--epsilon", "0.5", "--json")[1])
    assert found["spent_together"][0]["epsilon"] == 0.5
    pl.read_csv("people.csv").write_csv("semicolons.csv", separator=";")
    words = ("--value", "x", "--missing", "midpoint", "--epsilon", "0.5", "--delimiter", ";", *BOUNDS, "--json")
    assert set(levels(hetdp_command("mean", "semicolons.csv", *words)[1])) == {2.0, 4.0}


def test_standard_input_is_read_by_every_command_that_takes_a_table(table, monkeypatch, hetdp_command):
    (table / "q.toml").write_text('[job]\nstatistic = "histogram"\ncategories = ["a", "b"]\n')
    data = (table / "people.csv").read_bytes()
    for words in (
        ("mean", "-", "--value", "x", "--missing", "midpoint", "--epsilon", "0.5", *BOUNDS),
        ("plan", "-", "--epsilon", "0.5", *BOUNDS),
        ("ask", "-", "q.toml", "--epsilon", "0.5"),
        ("tally", "-", "--value", "x", "--missing", "midpoint", "--epsilon", "0.5", *BOUNDS, "-o", "a.tally"),
    ):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
        code, _, err = hetdp_command(*words)
        assert (code, err) == (0, ""), words


@pytest.mark.parametrize("connection", ["file", "connection"])
def test_a_query_of_duckdb_gives_the_tally_of_the_same_rows_elsewhere(connection, table):
    source = "plain.duckdb" if connection == "file" else duckdb.connect("plain.duckdb", read_only=True)
    asked = {"value": "x", "missing": "none", "epsilon": 0.5, "bounds": (0, 3)}
    want = hetdp.read("plain.csv", **asked)
    assert hetdp.read(source, query="people", **asked) == want
    assert hetdp.read(source, query="select x from people", **asked) == want
    assert hetdp.read(source, query="select x from people where x > 1", **asked) != want


WRONG = {
    "no query": ({}, "a database needs a query"),
    "no such table": ({"query": "nobody"}, "names a table that does not exist"),
    "no such column": ({"query": "select nothing from people"}, "names a column that does not exist"),
    "no select": ({"query": "drop table people"}, "syntax error"),
    "two statements": ({"query": "select 1; drop table people"}, "must be one select"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_query_of_duckdb_is_refused_and_changes_nothing(wrong, table):
    options, words = WRONG[wrong]
    with duckdb.connect("plain.duckdb") as connection:
        with pytest.raises(hetdp.InputError, match=words) as caught:
            hetdp.mean(connection, value="x", missing="midpoint", epsilon=0.5, bounds=(0, 3), **options)
        assert caught.value.__cause__ is caught.value.__context__ is None
        assert connection.sql("select count(*) from people").fetchall() == [(ROWS,)]


def test_without_duckdb_its_files_say_what_to_install(table, monkeypatch, hetdp_command):
    monkeypatch.setitem(sys.modules, "duckdb", None)
    words = ("--value", "x", "--missing", "midpoint", "--epsilon", "0.5", *BOUNDS)
    code, _, err = hetdp_command("mean", "plain.duckdb", "--query", "people", *words)
    assert (code, "pip install duckdb" in err) == (2, True)


def test_a_database_among_other_files_is_refused(table, hetdp_command):
    words = ("--value", "x", "--missing", "midpoint", "--epsilon", "0.5", *BOUNDS)
    assert "SQLite database; name it alone" in hetdp_command("mean", "plain.csv", "plain.db", *words)[2]
    assert "a query needs a database" in hetdp_command("mean", "plain.csv", "--query", "people", *words)[2]


def test_a_missing_column_is_told_with_the_columns_that_there_are(table, hetdp_command):
    err = hetdp_command("mean", "plain.csv", "--value", "X1", "--missing", "midpoint", "--epsilon", "job", *BOUNDS)[2]
    assert "has no column 'X1'; the columns of its header are 'x', 'job'" in err
    wide = ",".join(f"c{chr(97 + i // 26)}{chr(97 + i % 26)}" for i in range(50)) + ",e\n"
    (table / "wide.csv").write_text(wide + "1," * 50 + "1\n")
    err = hetdp_command("mean", "wide.csv", "--value", "x", "--missing", "midpoint", "--epsilon", "e", *BOUNDS)[2]
    assert "'caa', 'cab'" in err
    assert "and 31 more" in err


ROW = "nurse,98765.4321,strict\n"
HEADLESS = {
    "numbers in it": (ROW * 9, "nurse"),
    "no name that was asked for": ("nurse,Oslo,strict\n" * 9, "x"),
    "a name that was asked for, and a number": ("x,98765.4321,strict\n" * 9, "x"),
}


@pytest.mark.parametrize("kind", HEADLESS)
def test_row_61_a_first_line_that_may_be_somebodys_is_not_repeated(kind, table, hetdp_command):
    """Control: the same line with another name in place of the number is surely a header, and is listed."""
    text, value = HEADLESS[kind]
    (table / "headless.csv").write_text(text)
    words = ("mean", "headless.csv", "--missing", "midpoint", "--epsilon", "e", *BOUNDS)
    code, out, err = hetdp_command(*words, "--value", value)
    assert (code, out) == (2, "")
    assert not any(word in err for word in ("98765", "Oslo", "'strict'"))
    assert "its first line must be a header" in err
    (table / "headless.csv").write_text("nurse,income,strict\n" + ROW)
    assert "'income'" in hetdp_command(*words, "--value", "nurse")[2]


@pytest.mark.parametrize("command", ["mean", "plan", "ask"])
def test_json_and_the_name_of_a_page_disagree_before_anything_is_released(command, table, hetdp_command):
    (table / "q.toml").write_text('[job]\nstatistic = "histogram"\ncategories = ["a", "b"]\n')
    more = {
        "mean": ("--value", "x", "--missing", "midpoint", *BOUNDS),
        "plan": ("--value", "x", "--missing", "midpoint", *BOUNDS),
        "ask": (),
    }[command]
    source = ("plain.csv", "q.toml") if command == "ask" else ("plain.csv",)
    words = (command, *source, "--epsilon", "0.5", *more)
    code, out, err = hetdp_command(*words, "--json", "-o", "report.html")
    assert (code, out, "name a .json file" in err) == (2, "", True)
    assert not (table / "report.html").exists()
    assert hetdp_command(*words, "-o", "report.html")[0] == hetdp_command(*words, "--json", "-o", "r.json")[0] == 0
    json.loads((table / "r.json").read_text())


@pytest.mark.parametrize("text", ["1-6", " 1 - 6", "1..6", "1:6", "18–65"])
def test_a_range_of_categories_is_refused_with_a_hint(text, table, hetdp_command):
    words = ("histogram", "plain.csv", "--value", "x", "--epsilon", "0.5")
    code, _, err = hetdp_command(*words, "--categories", text)
    assert (code, "listed one by one, as 1,2,3" in err) == (2, True)
    assert hetdp_command(*words, "--categories", '"1-6"')[0] == 0
    assert hetdp_command(*words, "--categories", "1-6,7-9")[0] == 0


@pytest.mark.parametrize("cell", ["1", "null", "NaN", "98765x", '"' + "y" * 70_000 + '"'])
def test_in_json_lines_no_value_decides_whether_a_number_is_a_column(cell, tmp_path, hetdp_command):
    """Not even on the first line, where the keys are looked up."""
    for keys, found in (('"0.5": 2, ', {2.0: 50}), ("", {0.5: 50})):
        (tmp_path / "p.ndjson").write_text(f'{{{keys}"x": {cell}}}\n' + f'{{{keys}"x": 1}}\n' * 49)
        words = ("--value", "x", "--missing", "midpoint", "--epsilon", "0.5", *BOUNDS, "--json")
        assert levels(hetdp_command("mean", tmp_path / "p.ndjson", *words)[1]) == found


ELSEWHERE = """
import os, sys
{lacks}
sys.argv = ["hetdp", "serve", "--check"]
from hetdp.cli import main
try:
    main()
finally:
    print("hetdp.server" in sys.modules)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("lacks", "refused"), [("sys.modules['fcntl'] = None", True), ("del os.memfd_create", True), ("", False)]
)
def test_serving_on_another_system_is_refused_in_one_sentence_before_the_server_is_imported(lacks, refused, tmp_path):
    """Windows has neither, macOS no files in memory; with both, the server is imported and looks at its settings."""
    command = [sys.executable, "-c", ELSEWHERE.format(lacks=lacks)]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ("the server needs Linux" in run.stderr, run.stdout.endswith("False\n")) == (refused, refused)
    assert "Traceback" not in run.stderr
    if refused:
        assert (run.returncode, run.stderr.count("\n")) == (2, 1)
