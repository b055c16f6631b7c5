"""Record and replay: whatever one person's value is, everything but the noisy integer is the same.

The sampler is held at one answer, so a run has no other freedom: public numbers, words on both streams, log records,
exit code, files with their modes, and the text of every SQL statement must be equal, byte by byte, for every value.
"""

from __future__ import annotations

import json
import logging
import math
import re
import shutil
import sqlite3
import stat
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import numpy as np
import polars as pl
import psycopg
import pytest
import sqlalchemy

import hetdp
from hetdp import cli as _cli
from hetdp import questions as _mean
from hetdp.ledger import Ledger
from hetdp.privacy import release as _release
from hetdp.statistics.statistic import Answer
from support import timeless

LO, HI = 0.0, 100.0
EPSILONS = [0.0, 0.1, 0.1, 0.5, 2.0, math.inf] * 40
VALUES = [10.0, 20.0, math.nan, 70.0, 1e9, 30.0] * 40
PERSON = 1  # whose value is changed; their ε is 0.1
NUMBERS = [LO, HI, 50.0, math.inf, -math.inf, math.nan, 1e9, -1e9, 5e-324, None]
TEXTS = ["", "NA", "98765.4321x", "1e999", "0x1F", '"', "=1+1", "1,5"]
COLUMNS = {"value": "x", "missing": "midpoint", "epsilon": "eps", "bounds": (LO, HI)}
SORTED = ("--value", "x", "--epsilon", "eps")
OPTIONS = (*SORTED, "--bounds", "0", "100", "--missing", "midpoint")


def people(cell):
    return [*VALUES[:PERSON], cell, *VALUES[PERSON + 1 :]]


def rows(cell):
    return list(zip(people(cell), EPSILONS, strict=True))


def quoted(cell):
    """A cell as a delimited file holds any text."""
    text = "" if cell is None else str(cell)
    return '"' + text.replace('"', '""') + '"' if set(text) & set(',"') else text


def as_csv(cell, name="people.csv"):
    lines = (f"p{i},g{i % 2},{quoted(x)},{e}\n" for i, (x, e) in enumerate(rows(cell)))
    Path(name).write_text("id,group,x,eps\n" + "".join(lines), encoding="utf-8")
    return name


def frame(cell):
    return pl.DataFrame(rows(cell), schema={"x": pl.Float64, "eps": pl.Float64}, orient="row")


# What is run. Each takes the person's value and a list for SQL statements, and returns what it has to show.


def arrays(cell, _):
    return hetdp.mean(np.array(people(cell), float), epsilon=np.array(EPSILONS), bounds=(LO, HI))


def lists(cell, _):
    return hetdp.mean(people(cell), epsilon=EPSILONS, bounds=(LO, HI))


def tally(cell, _):
    read = hetdp.read(people(cell), epsilon=EPSILONS, bounds=(LO, HI))
    return repr(read), str(read), repr(read.levels), read.notes, read.n


def sampling(cell, _):
    finite = [min(epsilon, 4.0) for epsilon in EPSILONS]
    return hetdp.mean(people(cell), epsilon=finite, bounds=(LO, HI), method="sampling")


def csv(cell, _):
    return hetdp.mean(as_csv(cell), **COLUMNS)


def parquet(cell, _):
    frame(cell).write_parquet("people.parquet")
    return hetdp.mean("people.parquet", **COLUMNS)


def ndjson(cell, _):
    lines = (json.dumps({"x": x if x is None or math.isfinite(x) else None, "eps": str(e)}) for x, e in rows(cell))
    Path("people.ndjson").write_text("\n".join(lines) + "\n")
    return hetdp.mean("people.ndjson", **COLUMNS)


def polars(cell, _):
    return hetdp.mean(frame(cell), **COLUMNS)


def pandas(cell, _):
    return hetdp.mean(frame(cell).to_pandas(), **COLUMNS)


def duckdb(cell, _):
    import duckdb

    with closing(duckdb.connect()) as database:
        database.execute("create table people (x double, eps double)")
        database.executemany("insert into people values (?, ?)", rows(cell))
        return hetdp.mean(database.table("people"), **COLUMNS)


def sqlite(cell, said):
    with closing(sqlite3.connect("people.db")) as database:
        database.execute("create table people (x, eps)")
        database.executemany("insert into people values (?, ?)", rows(cell))
        database.commit()
        database.set_trace_callback(said.append)
        return hetdp.mean(database, query="people", **COLUMNS)


def by_group(cell, _):
    options = {"by": "group", "public_columns": ["group"], "person": "id", "rows": "average"}
    return hetdp.mean(as_csv(cell), **COLUMNS, **options)


def budgets(cell, said):
    """A release from a ledger; what the ledger then says; its statements without the time."""
    ids = [f"p{i}" for i in range(len(VALUES))]
    with Ledger.create("budgets.db") as ledger:
        ledger.enroll(dict(zip(ids, EPSILONS, strict=True)))
        listen = lambda _c, _cursor, statement, *_: said.append(statement)  # noqa: E731
        sqlalchemy.event.listen(ledger._store.engine, "before_cursor_execute", listen)
        released = ledger.mean(
            people(cell), person=ids, bounds=(LO, HI), release_id="may", spend=0.1, missing="midpoint"
        )
        return released, repr(ledger.balances()), ledger.verify().charges


# The family. The one cell is somebody's value, and where people are sorted by a text, their text.

JOBS = ["nurse", "Nurse", "nurse ", "other", "teacher", "'; drop table people; --", "%s", "\\", "caf\u00e9", "\u200b"]
LISTED = ["nurse", "teacher", "other", "1e999"]
EDGES = [LO, 25, 50, HI]
FAMILY = {
    "histogram by edges": lambda source, **where: hetdp.histogram(source, edges=EDGES, **where),
    "histogram of numbers": lambda source, **where: hetdp.histogram(source, categories=[0, 50, 100], **where),
    "quantile": lambda source, **where: hetdp.quantile(
        source, [0.1, 0.5], bounds=(LO, HI), within=0.9, missing="estimate", **where
    ),
    "mode": lambda source, **where: hetdp.mode(source, edges=EDGES, **where),
    "variance": lambda source, **where: hetdp.variance(source, bounds=(LO, HI), missing="estimate", **where),
    "sum": lambda source, **where: hetdp.sum(source, bounds=(LO, HI), missing="none", **where),
    "proportion": lambda source, **where: hetdp.proportion(source, equals=50, missing="estimate", **where),
    "count": lambda source, **where: hetdp.count(source, equals=50, missing=0, **where),
    "mean of those who answered": lambda source, **where: hetdp.mean(
        source, bounds=(LO, HI), missing="estimate", **where
    ),
}
BY_TEXT = {
    "histogram of texts": lambda source, **where: hetdp.histogram(source, value="job", categories=LISTED, **where),
    "proportion of a text": lambda source, **where: hetdp.proportion(
        source, value="job", missing=0, equals="nurse", **where
    ),
    "mean by a private group": lambda source, **where: hetdp.mean(
        source, value="x", missing="midpoint", bounds=(LO, HI), private_group="job", categories=LISTED, **where
    ),
    "several questions": lambda source, **where: hetdp.ask(
        source,
        {
            "x": hetdp.ask.mean(bounds=(LO, HI)),
            "job": hetdp.ask.histogram(categories=LISTED),
            "by job": hetdp.ask.mean_by_group(bounds=(LO, HI), categories=LISTED, private_group="job", value="x"),
            "as a number": hetdp.ask.quantile(0.5, bounds=(LO, HI), value="job"),
            "words": hetdp.ask.mean(bounds=(LO, HI), value="job", values={"nurse": 1, "other": 99}, missing=50),
        },
        missing="estimate",
        **where,
    ),
}


def working(cell):
    """Rows (id, group, x, job, ε) in which one person's job is the cell."""
    jobs = ["nurse", "teacher", None, "pilot", "", "other"] * 40
    jobs[PERSON] = cell
    return [(f"p{i}", f"g{i % 2}", x, job, e) for i, (x, job, e) in enumerate(zip(VALUES, jobs, EPSILONS, strict=True))]


WORKING = {"id": pl.String, "group": pl.String, "x": pl.Float64, "job": pl.String, "eps": pl.Float64}


def working_csv(cell):
    lines = (",".join(map(quoted, row)) + "\n" for row in working(cell))
    Path("people.csv").write_text("id,group,x,job,eps\n" + "".join(lines), encoding="utf-8")
    return "people.csv"


def working_json(cell):
    rows = (dict(zip(WORKING, row, strict=True)) for row in working(cell))
    Path("people.ndjson").write_text("".join(json.dumps({**row, "eps": str(row["eps"])}) + "\n" for row in rows))
    return "people.ndjson"


def working_frame(cell):
    return pl.DataFrame(working(cell), schema=WORKING, orient="row")


def working_duckdb(cell):
    import duckdb

    database = duckdb.connect(config={"threads": 1})
    database.register("people", working_frame(cell).to_arrow())
    return database.sql("select * from people")


PLACES = {
    "csv": working_csv,
    "ndjson": working_json,
    "polars": working_frame,
    "pandas": lambda cell: working_frame(cell).to_pandas(),
    "duckdb": working_duckdb,
}

PYTHON = {
    f.__name__: f
    for f in (arrays, lists, tally, sampling, csv, parquet, ndjson, polars, pandas, duckdb, sqlite, by_group, budgets)
}
TEXT = {"lists", "tally", "sampling", "csv", "sqlite", "by_group", "budgets"}  # these can hold any text in a cell
COMMANDS = {
    "mean": ("mean", "people.csv", *OPTIONS),
    "mean as JSON": ("mean", "people.csv", *OPTIONS, "--json"),
    "mean to a page": ("mean", "people.csv", *OPTIONS, "-o", "out.html"),
    "mean of users": ("mean", "people.csv", *OPTIONS, "--person", "id", "--rows", "average"),
    "mean by group": ("mean", "people.csv", *OPTIONS, "--by", "group", "--public-column", "group", "--json"),
    "a method that abstains": ("mean", "people.csv", *OPTIONS, "--method", "uniform", "--variance", "0.001"),
    "tally": ("tally", "people.csv", *OPTIONS, "-o", "out.tally"),
    "tally as JSON": ("tally", "people.csv", *OPTIONS, "-o", "out.tally", "--json"),
    "plan": ("plan", "people.csv", *OPTIONS),
    "compare": ("compare", "people.csv", *SORTED, "--bounds", "0", "100"),
    "refused": ("mean", "people.csv", *OPTIONS, "--person", "group"),
    "histogram": ("histogram", "people.csv", *SORTED, "--edges", "0,25,50,100", "--json"),
    "histogram of categories": ("histogram", "people.csv", *SORTED, "--categories", "0,50,NA", "-o", "out.html"),
    "histogram by group": (
        "histogram",
        "people.csv",
        *SORTED,
        *("--bounds", "0", "100", "--bins", "4"),
        *("--by", "group", "--public-column", "group"),
    ),
    "quantile": ("quantile", "people.csv", *OPTIONS, "--q", "0.1,0.5", "--person", "id"),
    "mode": ("mode", "people.csv", *SORTED, "--bounds", "0", "100", "--bins", "4"),
    "variance": ("variance", "people.csv", *OPTIONS, "--json"),
    "a histogram that is refused": ("histogram", "people.csv", *SORTED, "--edges", "0,1", "--person", "group"),
}
TEXT_COMMANDS = {
    "private group": ("mean", "people.csv", *OPTIONS, "--private-group", "job", "--categories", "nurse,teacher"),
    "private group as JSON": (
        "mean", "people.csv", *OPTIONS, "--private-group", "job", "--categories", "nurse,teacher,other", "--json",
    ),
    "histogram of texts": (
        "histogram", "people.csv", "--value", "job", "--epsilon", "eps", "--categories", "nurse,other", "-o", "o.html",
    ),
    "proportion": (
        "proportion", "people.csv", "--value", "job", "--missing", "estimate", "--epsilon", "eps", "--equals", "nurse",
    ),
    "mean of words": (
        "mean", "people.csv", "--value", "job", "--missing", "estimate", "--epsilon", "eps", "--bounds", "0", "1",
        "--map", "nurse=1", "--map", "other=0",
    ),
}  # fmt: skip


def command_line(*arguments):
    """Run a command in this process and return its exit code."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["hetdp", *arguments])
        with pytest.raises(SystemExit) as stopped:
            _cli.main()
    return stopped.value.code


# The recorder


def public_facts(result):
    """Everything that a result shows, with the plan's own numbers."""
    if isinstance(result, tuple):
        return [public_facts(part) for part in result]
    if isinstance(result, Answer):
        shown = {key: value for key, value in result.to_dict().items() if key != "ledger"}
        shown["provenance"]["released"] = "a time"
        plan, words = result.plan, (result.report(), result.html(), repr(result))
        numbers = plan.units.tolist(), repr(plan.noise), plan.spent.tolist(), result.numbers
        return [shown, *numbers, *(timeless(text) for text in words)]
    if hasattr(result, "to_dict"):
        parts = list(result.values()) if isinstance(result, dict) else []
        shown = timeless(repr(result.to_dict())), repr(result), timeless(result.report())
        return [*shown, *map(public_facts, parts)]
    return result


def public_file(path):
    """A file's name, mode and content; of a database, nothing more.

    Of a tally, which is private, all but its sums and its identity, which is random.
    """
    mode = stat.S_IMODE(path.stat().st_mode)
    if path.suffix == ".tally":
        body = json.loads(json.loads(path.read_text())["body"])
        hidden = {"total": len(body["total"]), "identities": [len(identity) for identity in body["identities"]]}
        return path.name, mode, json.dumps({**body, **hidden})
    made_here = path.name.startswith(("people", "budgets"))
    return path.name, mode, None if made_here else timeless(path.read_text())


@pytest.fixture
def replay(monkeypatch, capfd, caplog, tmp_path):
    """Give a function that runs something on one value and returns all that is public about the run, by kind."""
    monkeypatch.setattr("hetdp.privacy.release.noisy", lambda *_: 10**12)
    monkeypatch.setattr("hetdp.privacy.release.coins", lambda keep: keep > 0)
    monkeypatch.setattr("hetdp.privacy.release.zero_sum", lambda totals, _: list(range(10**6, 10**6 + len(totals))))
    monkeypatch.setattr("hetdp.privacy.release.boxed", lambda totals, _: list(range(10**6, 10**6 + len(totals))))
    monkeypatch.setattr("hetdp.privacy.release.chosen", lambda scores, _: len(scores) // 3)
    caplog.set_level(0)

    def record(run, cell):
        folder = tmp_path / "work"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        monkeypatch.chdir(folder)
        caplog.clear()
        capfd.readouterr()
        said = []
        facts = public_facts(run(cell, said))
        out, err = capfd.readouterr()
        # Nothing here uses Spark; where another test has started it, Python's garbage collector makes py4j log.
        ours = [entry for entry in caplog.records if entry.name.partition(".")[0] != "py4j"]
        # The lock of a file logs its address in memory and the folder of the test.
        said_by = [(e.name, e.levelname, "" if e.name == "filelock" else e.getMessage()) for e in ours]
        files = [public_file(path) for path in sorted(folder.iterdir())]
        return {
            "facts": facts,
            "stdout": timeless(out),
            "stderr": err,
            "log": said_by,
            "files": files,
            "statements": said,
        }

    return record


def differences(records):
    """The kinds in which the first record that differs from the very first one does so; none if all are the same."""
    texts = ({kind: repr(found) for kind, found in record.items()} for record in records)
    first = next(texts)
    found = ({kind for kind in first if text[kind] != first[kind]} for text in texts)
    return next(filter(None, found), set())


@pytest.mark.parametrize("source", PYTHON)
def test_everything_public_is_the_same_for_every_value(source, replay):
    cells = NUMBERS + (TEXTS if source in TEXT else [])
    assert differences(replay(PYTHON[source], cell) for cell in cells) == set()


@pytest.mark.slow
@pytest.mark.parametrize("question", FAMILY)
def test_everything_public_about_every_statistic_is_the_same_for_every_value(question, replay):
    ask = FAMILY[question]
    runs = {
        "csv": lambda cell, _: ask(as_csv(cell), value="x", epsilon="eps"),
        "lists": lambda cell, _: ask(people(cell), epsilon=EPSILONS),
        "polars": lambda cell, _: ask(frame(cell), value="x", epsilon="eps"),
    }
    for source, run in runs.items():
        cells = NUMBERS + (TEXTS if source in TEXT else [])
        assert differences(replay(run, cell) for cell in cells) == set(), source


@pytest.mark.slow
@pytest.mark.parametrize("question", BY_TEXT)
@pytest.mark.parametrize("place", PLACES)
def test_everything_public_is_the_same_whatever_somebody_is_sorted_by(question, place, replay):
    def run(cell, _):
        return BY_TEXT[question](PLACES[place](cell), epsilon="eps")

    assert differences(replay(run, cell) for cell in [None, *TEXTS, *JOBS]) == set()


def test_groups_of_histograms_are_the_same_for_every_value(replay):
    def run(cell, _):
        by = {"by": "group", "public_columns": ["group"], "person": "id"}
        return BY_TEXT["histogram of texts"](working_csv(cell), epsilon="eps", **by)

    assert differences(replay(run, cell) for cell in [None, *TEXTS, *JOBS]) == set()


@pytest.mark.slow
@pytest.mark.parametrize("question", ["histogram by edges", "quantile", "variance", *BY_TEXT])
def test_the_statements_of_every_statistic_are_the_same_for_every_value_in_postgresql(
    question, replay, libpq_url, monkeypatch
):
    """Rows of the level table are fetched in small parts, so that how many cells are used would show."""
    monkeypatch.setattr("hetdp.sources.request._FETCHED", 8)

    class Recording(psycopg.Cursor):
        def execute(self, query, *arguments, **options):
            said.append(query)
            return super().execute(query, *arguments, **options)

    said = []

    def run(cell, statements):
        table = working(None if question in FAMILY else cell)
        if question in FAMILY:
            table[PERSON] = (*table[PERSON][:2], cell, *table[PERSON][3:])
        with psycopg.connect(libpq_url, autocommit=True) as database:
            database.execute("drop table if exists people")
            database.execute("create table people (id text, grp text, x float8, job text, eps float8)")
            with database.cursor() as cursor:
                cursor.executemany("insert into people values (%s, %s, %s, %s, %s)", table)
        said.clear()
        with psycopg.connect(libpq_url, cursor_factory=Recording) as database:
            where = {"epsilon": "eps", "query": "people"}
            ask = FAMILY[question] if question in FAMILY else BY_TEXT[question]
            released = ask(database, **where, **({"value": "x"} if question in FAMILY else {}))
        statements += said
        return released

    found = [replay(run, cell) for cell in (NUMBERS if question in FAMILY else [None, *TEXTS, *JOBS])]
    assert len(found[0]["statements"]) > 2
    assert differences(found) == set()


def test_everything_public_is_the_same_for_every_value_in_postgresql(replay, libpq_url):
    class Recording(psycopg.Cursor):
        def execute(self, query, *arguments, **options):
            said.append(query)
            return super().execute(query, *arguments, **options)

    said = []

    def run(cell, statements):
        with psycopg.connect(libpq_url, autocommit=True) as database:
            database.execute("drop table if exists people")
            database.execute("create table people (x double precision, eps double precision)")
            with database.cursor() as cursor:
                cursor.executemany("insert into people values (%s, %s)", rows(cell))
        said.clear()
        with psycopg.connect(libpq_url, cursor_factory=Recording) as database:
            released = hetdp.mean(database, query="people", **COLUMNS)
        statements += said
        return released

    found = [replay(run, cell) for cell in NUMBERS]
    assert len(found[0]["statements"]) > 2
    assert differences(found) == set()


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_shows_the_same_for_every_value(command, replay):
    def run(cell, _):
        as_csv(cell)
        return command_line(*COMMANDS[command])

    found = [replay(run, cell) for cell in NUMBERS + TEXTS]
    assert differences(found) == set()
    assert found[0]["facts"] == (2 if "refused" in command else 0)


@pytest.mark.slow
@pytest.mark.parametrize("command", TEXT_COMMANDS)
def test_a_command_that_sorts_people_shows_the_same_for_every_text(command, replay):
    def run(cell, _):
        working_csv(cell)
        return command_line(*TEXT_COMMANDS[command])

    found = [replay(run, cell) for cell in [None, *TEXTS, *JOBS]]
    assert differences(found) == set()
    assert found[0]["facts"] == 0


@pytest.mark.slow
def test_tallies_that_are_released_show_the_same_for_every_value(replay):
    def run(cell, _):
        made = command_line("tally", as_csv(cell), *OPTIONS, "-o", "one.tally")
        return made, command_line("mean", "one.tally", "--json")

    assert differences(replay(run, cell) for cell in NUMBERS + TEXTS) == set()


@pytest.mark.slow
def test_a_command_with_real_noise_differs_in_its_numbers_alone(tmp_path, monkeypatch):
    """In a process of its own, with the sampler as it is: exit code, stderr and every word.

    Above the line "Missing" stand the numbers that were drawn. How wide they are, and so where lines break and whether
    the normal interval is narrower, depends on the draw.
    """
    seen = set()
    for cell in (LO, math.nan, "98765.4321x"):
        monkeypatch.chdir(tmp_path)
        as_csv(cell)
        command = [sys.executable, "-m", "hetdp", "mean", "people.csv", *OPTIONS]
        run = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
        number = r"-?[\d,]+(\.\d+)?(e[+-]\d+)?"
        first, rest = run.stdout.split("\nMissing", 1)
        shown = re.sub(number, "#", first.partition("(normal")[0]).split()
        seen.add((run.returncode, run.stderr, " ".join(shown), timeless(rest)))
    assert len(seen) == 1
    assert next(iter(seen))[0] == 0


# Planted leaks: each is noticed in the kind that is named


def missing(values):
    return int(np.isnan(np.asarray(values, float)).sum())


def leaking(leak):
    """`mean` of arrays with a leak that depends on how many values are missing."""

    def run(cell, said):
        leak(missing(people(cell)), said)
        return arrays(cell, said)

    return run


LEAKS = {
    "a log line": ("log", lambda n, _: logging.getLogger("hetdp").debug("%d values are missing", n)),
    "a line on stdout": ("stdout", lambda n, _: print(f"{n} repaired")),
    "a line on stderr": ("stderr", lambda n, _: print(f"{n} repaired", file=sys.stderr)),
    "a file": ("files", lambda n, _: Path(f"repaired-{n}.txt").write_text("")),
    "the mode of a file": ("files", lambda n, _: Path("people.txt").touch(0o600 if n % 2 else 0o644)),
    "one statement more": ("statements", lambda n, said: said.extend(["select 1"] * n)),
}


@pytest.mark.parametrize("leak", LEAKS)
def test_control_a_leak_of_how_many_values_are_missing_is_noticed(leak, replay):
    kind, planted = LEAKS[leak]
    found = [replay(leaking(planted), cell) for cell in (50.0, math.nan)]
    assert differences(found) == {kind}


def test_control_a_report_that_counts_missing_values_is_noticed(replay, monkeypatch):
    honest = _mean.release

    def telling(tally, plan):
        made = honest(tally, plan)
        return _release.Release(made.plan, made.numbers, (*made.notes, f"{tally.table.total.sum() % 1000} codes"))

    monkeypatch.setattr("hetdp.questions.release", telling)
    assert differences(replay(arrays, cell) for cell in (LO, math.nan)) == {"facts"}


def test_control_dropping_who_has_no_value_is_noticed(replay, monkeypatch):
    from hetdp.tally.groupby import Grouping

    class Dropping(Grouping):
        def add(self, epsilon, columns, people=None):
            assert people is None
            kept = ~np.isnan(columns[0])
            super().add(epsilon[kept], [columns[0][kept]])

    def run(cell, _):
        as_csv(cell)
        return command_line(*COMMANDS["mean"])

    monkeypatch.setattr("hetdp.sources.Grouping", Dropping)
    assert differences(replay(run, cell) for cell in (LO, math.nan)) == {"stdout"}


def test_control_cells_that_are_listed_because_somebody_is_in_them_are_noticed(replay, monkeypatch):
    """A sum that says in how many cells there is somebody."""
    from hetdp.statistics.histogram import Celled

    honest = Celled.add_to

    def telling(self, total, level, cell, people, sums):
        logging.getLogger("hetdp").debug("%d cells are used", np.unique(cell).size)
        honest(self, total, level, cell, people, sums)

    monkeypatch.setattr(Celled, "add_to", telling)

    def run(cell, _):
        rows = [(*row[:3], cell if i == PERSON else "nurse", row[4]) for i, row in enumerate(working(None))]
        table = pl.DataFrame(rows, schema=WORKING, orient="row")
        return BY_TEXT["histogram of texts"](table, epsilon="eps", person="id")

    assert differences(replay(run, cell) for cell in ("nurse", "teacher")) == {"log"}
