"""Every output says what it is about and where it comes from, and nothing of the owner's machine."""

from __future__ import annotations

import json
import math
import re
import sqlite3
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import hetdp
from hetdp.report import Provenance, plots
from hetdp.sources import Source

TABLE = "x,g,e\n" + "1,u,0.5\n2,v,1\n" * 300
COLUMNS = {"value": "x", "missing": "none", "epsilon": "e", "bounds": (0, 3)}
WORDS = ("--value", "x", "--missing", "midpoint", "--epsilon", "e", "--bounds", "0", "3")
TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"
FIELDS = {"statistic", "columns", "source", "released", "version", "schema"}


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "secret folder" / "people.csv"
    path.parent.mkdir()
    path.write_text(TABLE)
    return path


def told(facts):
    """What a JSON says about its provenance, time aside; the time is now, in UTC."""
    about = dict(facts["provenance"])
    assert set(about) == FIELDS
    assert re.fullmatch(TIME, about["released"])
    age = datetime.now(UTC) - datetime.fromisoformat(about.pop("released"))
    assert -1 <= age.total_seconds() < 60
    return about


def test_a_release_says_in_every_form_what_it_is_about(table, tmp_path, hetdp_command):
    found = hetdp.mean(table, **COLUMNS)
    about = {"statistic": "mean", "columns": ["x"], "source": "people.csv"}
    assert told(found.to_dict()) == {**about, "version": hetdp.__version__, "schema": 1}
    when = found.about.released
    line = f"mean of x from people.csv; released {when}; hetdp {hetdp.__version__}, schema 1"
    assert found.report().splitlines()[-1].split(maxsplit=1) == ["About", line]
    assert line in found.html()
    words = plots.answer(found, 0.95).get_supxlabel()
    assert " ".join(words.split()) == line
    page = tmp_path / "page.html"
    assert hetdp_command("mean", table, *WORDS, "-o", page)[0] == 0
    assert re.search(rf"mean of x from people\.csv; released {TIME}; hetdp", page.read_text())
    assert told(json.loads(hetdp_command("mean", table, *WORDS, "--json")[1])) == told(found.to_dict())


def test_groups_answers_plans_comparisons_and_tallies_say_it_too(table, tmp_path, hetdp_command):
    groups = hetdp.mean(table, **COLUMNS, by="g", public_columns=["g"])
    assert told(groups.to_dict())["columns"] == ["x"]
    assert "mean of x from people.csv; released" in groups.report()
    asked = {"x": hetdp.ask.mean(bounds=(0, 3), missing="none"), "g": hetdp.ask.histogram(categories=["u", "v"])}
    answers = hetdp.ask(table, asked, epsilon="e")
    assert (told(answers.to_dict())["columns"], answers.provenance.statistic) == (["x", "g"], "mean, histogram")
    assert "mean, histogram of x, g from people.csv; released" in answers.report()
    for command in ("plan", "compare"):
        words = (command, table, "--epsilon", "e", "--bounds", "0", "3")
        about = json.loads(hetdp_command(*words, "--json")[1])["provenance"]
        assert (about["statistic"], about["source"], about["released"]) == ("mean", "people.csv", None)
        assert "mean from people.csv; hetdp" in hetdp_command(*words)[1]
    assert "About       mean; hetdp" in hetdp.plan({1: 50}, bounds=(0, 1)).report()
    made = hetdp_command("tally", table, *WORDS, "-o", tmp_path / "a.tally", "--json")[1]
    assert json.loads(made)["provenance"]["source"] == "people.csv"


def test_a_tally_file_keeps_what_its_columns_and_sources_are_called(table, tmp_path):
    hetdp.read(table, **COLUMNS).save(tmp_path / "a.tally")
    kept = hetdp.Tally.load(tmp_path / "a.tally")
    assert (kept.about.columns, kept.about.sources) == (("x",), ("people.csv",))
    both = kept + hetdp.read([1, 2], epsilon=1, bounds=(0, 3), missing="none")
    released = hetdp.release(both, hetdp.plan(both.levels, bounds=(0, 3)))
    assert "mean of x from people.csv, values in memory; released" in released.report()


def frames():
    table = {"x": [1.0, 2.0] * 50, "e": [1.0] * 100}
    memory = sqlite3.connect(":memory:")
    memory.executescript("create table t (x, e); insert into t values (1, 1), (2, 1)")
    duck = duckdb.connect()
    duck.execute("create table t as select 1.0 as x, 1.0 as e from range(100)")
    yield pd.DataFrame(table), None, "a pandas frame"
    yield pl.DataFrame(table), None, "a Polars frame"
    yield pl.LazyFrame(table), None, "a Polars frame"
    yield pa.table(table), None, "a PyArrow table"
    yield duck.sql("select * from t"), None, "a DuckDB query"
    yield duck, "t", "a DuckDB query"
    yield memory, "select x, e from t", "a SQLite query"


def test_a_frame_and_a_connection_are_called_by_their_kind():
    for source, query, called in frames():
        found = hetdp.read(source, value="x", missing="midpoint", epsilon="e", bounds=(0, 3), query=query)
        assert found.about.source == called
    assert hetdp.read([1], epsilon=1, bounds=(0, 3)).about.source == "values in memory"


def test_a_database_is_called_without_user_password_host_and_folder():
    url = "postgresql://ann:hunter2@db.example.org/payroll"
    assert Source.of(url, value="x", epsilon="e", query="t").about().source == "a PostgreSQL query"
    file = "sqlite:////srv/study/people.db"
    assert Source.of(file, value="x", epsilon="e", query="t").about().source == "people.db"


def test_nothing_that_is_published_names_a_folder_of_this_machine(table, tmp_path):
    """Control: the error of a missing column, which is for the owner alone, does name it."""
    with hetdp.Ledger.create(tmp_path / "budgets.db") as ledger:
        ledger.enroll({f"p{i}": 2 for i in range(600)})
        ids = pl.read_csv(table).with_columns(id=pl.Series([f"p{i}" for i in range(600)]))
        path = table.parent / "with ids.csv"
        ids.write_csv(path)
        charged = ledger.mean(path, value="x", missing="midpoint", person="id", bounds=(0, 3), spend=1, release_id="a")
    results = [charged, hetdp.mean(table, **COLUMNS), hetdp.mean(table, **COLUMNS, by="g", public_columns=["g"])]
    for found in results:
        for shown in (found.report(), found.html(), found.to_json(), repr(found)):
            assert str(tmp_path) not in shown
            assert "secret folder" not in shown
    assert "Ledger budgets.db, release a" in charged.report()
    assert "with ids.csv" in charged.report()
    with pytest.raises(hetdp.InputError, match="secret folder"):
        hetdp.mean(table, **{**COLUMNS, "value": "y"})


def test_a_stored_release_shows_the_time_at_which_it_was_made(tmp_path, monkeypatch):
    people = [f"p{i}" for i in range(500)]
    ask = {"person": people, "missing": "none", "bounds": (0, 1), "spend": 0.5, "release_id": "may"}
    with hetdp.Ledger.create(tmp_path / "budgets.db") as ledger:
        ledger.enroll(people, budget=2)
        first = ledger.mean([0.5] * 500, **ask)
        monkeypatch.setattr(Provenance, "now", lambda _: pytest.fail("it was released before"))
        again = ledger.mean([0.5] * 500, **ask)
    assert re.fullmatch(TIME, first.about.released)
    assert again.about == first.about
    told = again.to_dict()
    assert told["ledger"].pop("stored") is True
    assert told == first.to_dict()


def test_a_release_of_sampling_has_its_source_and_time():
    found = hetdp.mean([0.5] * 300, epsilon=[0.5, 1.0] * 150, bounds=(0, 1), method="sampling")
    assert told(found.to_dict())["source"] == "values in memory"


def test_standard_input_is_called_so_and_its_copy_is_not_named(hetdp_command, monkeypatch):
    import io
    import sys

    for words, code in ((WORDS, 0), (("--value", "y", *WORDS[2:]), 2)):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(TABLE.encode())))
        found = hetdp_command("mean", "-", *words)
        assert found[0] == code
        assert "standard input" in found[1] + found[2]
        assert "hetdp-stdin" not in found[1] + found[2]


def test_a_picture_of_a_comparison_has_a_caption():
    compared = hetdp.compare({0.1: 700, math.inf: 300}, bounds=(0, 1))
    assert plots.comparison(compared).get_supxlabel().startswith("mean; hetdp")


def test_control_a_path_in_a_provenance_would_be_seen(table, monkeypatch):
    """The check above is not blind: a source that is called by its path shows up in the report."""
    monkeypatch.setattr("hetdp.sources.files.Files.called", property(lambda self: tuple(map(str, self.paths()))))
    assert str(Path(table).parent) in " ".join(hetdp.mean(table, **COLUMNS).report().split())
