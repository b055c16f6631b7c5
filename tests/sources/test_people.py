"""Who counts, and once each: ids, users with several rows, groups, tiers, public rows, and tallies of several sites."""

from __future__ import annotations

import io
import itertools
import json
import math
import os
import pty
import signal
import sqlite3
import subprocess
import sys
import time
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hetdp
from hetdp.core.domain import GRID
from hetdp.privacy import release as _release
from hetdp.sources import Batch, Form, Source, read_groups
from hetdp.sources import people as _people
from hetdp.sources.request import Request
from hetdp.statistics.mean import Mean
from hetdp.tally import Tally
from oracle import expected_groups, seen
from support import EXTREME_VALUES, examples

INF = math.inf
LO, HI = -2.0, 3.0
CELLS = [*EXTREME_VALUES, LO, HI, 0.5, LO + 5 / 2**21, HI - 5 / 2**21]
PLAIN = {"value": "x", "missing": "midpoint", "epsilon": "e", "bounds": (0, 1)}
TABLE = ("--value", "x", "--missing", "midpoint", "--epsilon", "e", "--bounds", "-2", "3")


def brute(rows):
    return expected_groups(rows, (LO, HI))


def write(path, rows):
    lines = ["id,group,x,e", *(f"{who},{group},{x!r},{epsilon!r}" for who, group, x, epsilon in rows)]
    path.write_text("\n".join(lines) + "\n")
    return path


persons = st.lists(
    st.tuples(
        st.sampled_from(["north", "south", ""]),
        st.sampled_from([0.0, 0.1, 1.0, INF]),
        st.lists(st.sampled_from(CELLS), min_size=1, max_size=4),
    ),
    min_size=1,
    max_size=12,
)


@pytest.mark.parametrize("order", ["as they come", "backwards"])
@given(people=persons)
@settings(max_examples=examples(60), deadline=None)
def test_a_person_with_several_rows_counts_once_with_the_average_of_their_codes(order, people, tmp_path_factory):
    rows = [(f"p{i}", group, x, epsilon) for i, (group, epsilon, xs) in enumerate(people) for x in xs]
    rows = rows if order == "as they come" else rows[::-1]
    path = write(tmp_path_factory.mktemp("people") / "rows.csv", rows)
    expected = brute(rows)
    groups = Source.of(path, value="x", epsilon="e", person="id", rows="average", by="group")
    assert {g: seen(t) for g, t in read_groups(groups, Mean((LO, HI))).items()} == expected
    whole = hetdp.read(path, value="x", missing="midpoint", epsilon="e", bounds=(LO, HI), person="id", rows="average")
    assert whole.n == len(people)
    assert seen(whole) == brute([(who, "", x, epsilon) for who, _, x, epsilon in rows])[""]
    columns = list(zip(*rows, strict=True))
    people = {"person": list(columns[0]), "rows": "average", "missing": "midpoint"}
    assert hetdp.read(list(columns[2]), epsilon=list(columns[3]), bounds=(LO, HI), **people) == whole


def test_counting_rows_instead_of_people_is_noticed(tmp_path, monkeypatch):
    """The control: without the averaging the same comparison fails."""
    rows = [("a", "", 1.0, 0.5), ("a", "", 2.0, 0.5), ("b", "", 0.0, 0.5)]
    path = write(tmp_path / "rows.csv", rows)
    monkeypatch.setattr(_people, "_persons", lambda rows, *_, **__: rows)
    assert (
        seen(hetdp.read(path, value="x", missing="midpoint", epsilon="e", bounds=(LO, HI), person="id", rows="average"))
        != brute(rows)[""]
    )


def test_one_person_moves_the_sum_by_at_most_one_code_however_many_rows_they_have(tmp_path):
    """Replacing all rows of a person by extreme values moves one level by at most Q: what the plan charges for."""
    others = [(f"p{i}", "", 0.5, 1.0) for i in range(5)]
    totals = []
    for xs in itertools.product([LO, HI, math.nan, -INF, 1e300], repeat=3):
        path = write(tmp_path / "rows.csv", [*others, *(("me", "", x, 1.0) for x in xs)])
        tally = hetdp.read(
            path, value="x", missing="midpoint", epsilon="e", bounds=(LO, HI), person="id", rows="average"
        )
        assert tally.n == 6
        totals.append(seen(tally)[1.0][1])
    assert max(totals) - min(totals) == GRID


AVERAGED = {"person": "id", "rows": "average"}
REFUSALS = {
    "42 two epsilons for one person": (
        [("a", "g", 1.0, 0.5), ("a", "g", 2.0, 0.7)],
        {"person": "id", "rows": "average"},
        "epsilon",
    ),
    "54 a duplicate id": ([("a", "g", 1.0, 0.5), ("b", "g", 1.0, 1.0), ("a", "g", 2.0, 0.5)], {"person": "id"}, "'a'"),
    "56 an empty id": ([("", "g", 1.0, 0.5)], {"person": "id", "rows": "average"}, "missing"),
    "57 an id with NUL": ([("a\x00", "g", 1.0, 0.5)], {"person": "id"}, "control"),
    "57 a huge id": ([("a" * 10_000, "g", 1.0, 0.5)], {"person": "id"}, "256"),
    "a person in two groups": (
        [("a", "g", 1.0, 0.5), ("a", "h", 2.0, 0.5)],
        {**AVERAGED, "by": "group"},
        "group",
    ),
    "rows to average of nobody": ([("a", "g", 1.0, 0.5)], {"rows": "average"}, "person="),
    "rows that are no rule": ([("a", "g", 1.0, 0.5)], {"person": "id", "rows": "last"}, "average"),
    "41 the value as id": ([("a", "g", 1.0, 0.5)], {"person": "x"}, "same column"),
    "41 the value as epsilon": ([("a", "g", 1.0, 0.5)], {"epsilon": "x"}, "same column"),
    "52 the value as group": ([("a", "g", 1.0, 0.5)], {"by": "x"}, "same column"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_what_ids_and_groups_refuse(case, tmp_path):
    rows, options, word = REFUSALS[case]
    path = write(tmp_path / "rows.csv", rows)
    by = options.get("by")
    with pytest.raises(hetdp.InputError) as refused:
        hetdp.mean(path, **{**PLAIN, "public_columns": [by], **options})
    assert word in str(refused.value)


def test_row_55_ids_are_exact_text_in_one_normal_form(tmp_path):
    """007 and 7, case and a space inside make different people; two encodings of é are the same letter."""
    ids = ["007", "7", "7 7", "a", "A", "caf\u00e9", "cafe\u0301"]
    path = write(tmp_path / "rows.csv", [(who, "g", 1.0, 0.5) for who in ids])
    assert (
        hetdp.read(path, value="x", missing="midpoint", epsilon="e", bounds=(0, 1), person="id", rows="average").n == 6
    )


@pytest.mark.parametrize("header", ["id,x,e", "x,id,e"])
def test_an_id_is_quoted_only_where_it_cannot_be_a_piece_of_a_value(header, tmp_path):
    """A line can be damaged so that the cell right of the value is the end of the value: `12,98765` and no id."""
    path = tmp_path / "rows.csv"
    path.write_text(f"{header}\n12,98765,0.5\n12,98765,0.5\n")
    with pytest.raises(hetdp.InputError, match="more than one row") as refused:
        hetdp.read(path, value="x", missing="midpoint", epsilon="e", bounds=(0, 1), person="id")
    assert ("'12'" in str(refused.value)) == header.startswith("id")
    assert "98765" not in str(refused.value)


@pytest.mark.parametrize("cell", [1.5, True, 2.0])
def test_ids_in_memory_are_texts_or_whole_numbers(cell):
    with pytest.raises(hetdp.InputError, match="whole number"):
        hetdp.read([1.0], epsilon=[1.0], person=[cell], rows="average", bounds=(0, 1))
    assert hetdp.read([1.0, 2.0], epsilon=[1.0, 1.0], person=[7, "7"], rows="average", bounds=(0, 1)).n == 1


def test_row_51_groups_need_a_column_that_is_declared_public(tmp_path):
    path = write(tmp_path / "rows.csv", [("a", "g", 1.0, 0.5)])
    for declared in ((), ["id"], ["Group"]):
        with pytest.raises(hetdp.InputError, match="declare"):
            hetdp.mean(
                path, value="x", missing="midpoint", epsilon="e", bounds=(0, 1), by="group", public_columns=declared
            )


def test_row_53_groups_of_nobody_and_of_one_answer_with_the_midpoint(tmp_path):
    people = [("a", "alone", 1.0, 0.5), *((f"p{i}", "many", 1.0, 1.0) for i in range(500))]
    path = write(tmp_path / "rows.csv", people)
    table = {**PLAIN, "bounds": (0, 10), "by": "group", "public_columns": ["group"]}
    groups = hetdp.mean(path, groups=["many", "alone", "nobody"], **table)
    assert list(groups) == ["many", "alone", "nobody"]
    assert [release.plan.n for release in groups.values()] == [500, 1, 0]
    assert [release.plan.abstains for release in groups.values()] == [False, True, True]
    assert groups["nobody"].estimate == groups["alone"].estimate == 5
    assert abs(groups["many"].estimate - 1) < 5
    for said, checked in ((groups, False), (hetdp.mean(path, groups=list(groups), **table, person="id"), True)):
        for text in (" ".join(said.report().split()), said.html(), said.to_json()):
            assert ("parallel composition" in text, "Assumed: every row is another person" in text) == (
                checked,
                not checked,
            )
            assert "nobody" in text
    with pytest.raises(hetdp.InputError, match="1 group is not in the list"):
        hetdp.mean(path, groups=["many"], **table)


def test_each_group_is_the_mean_of_its_own_people(tmp_path):
    """With public people there is no noise: each group's number is its own exact mean."""
    rows = [(f"p{i}", f"g{i % 3}", float(i % 3), INF) for i in range(30)]
    path = write(tmp_path / "rows.csv", rows)
    table = {**PLAIN, "bounds": (0, 4), "by": "group", "public_columns": ["group"]}
    assert {g: r.estimate for g, r in hetdp.mean(path, **table).items()} == {"g0": 0, "g1": 1, "g2": 2}


def test_public_rows_join_with_infinite_epsilon(tmp_path, hetdp_command):
    path = write(tmp_path / "rows.csv", [("a", "g", 1.0, 0.5), ("b", "h", 2.0, 1.0)])
    public = tmp_path / "public.csv"
    public.write_text("x,group\n1.5,g\n2.5,h\n,g\n")
    both = hetdp.read(path, value="x", missing="midpoint", epsilon="e", bounds=(0, 4), public_rows=public)
    how = {"bounds": (0, 4), "missing": "midpoint"}
    joined = hetdp.read([1.0, 2.0, 1.5, 2.5, None], epsilon=[0.5, 1.0, INF, INF, INF], **how)
    assert both == joined
    assert hetdp.read([1.0, 2.0], epsilon=[0.5, 1.0], public_rows=[1.5, 2.5, None], **how) == joined
    source = Source.of(path, value="x", epsilon="e", by="group")
    groups = read_groups(source, Mean(**how), public_rows=public)
    assert groups["g"] + groups["h"] == joined
    code_, out, _ = hetdp_command("mean", path, *TABLE, "--public-rows", public, "--json")
    assert code_ == 0
    assert any("3 rows that are known publicly" in sentence for sentence in json.loads(out)["assumptions"])
    public.write_text("x,group\n")
    with pytest.raises(hetdp.InputError, match="public rows are empty"):
        hetdp.read(path, value="x", missing="midpoint", epsilon="e", bounds=(0, 4), public_rows=public)


def test_the_private_rows_themselves_are_no_public_rows(tmp_path):
    """A slip that would cost everybody all protection: the same file, a link to it, the same frame."""
    path = write(tmp_path / "rows.csv", [("a", "g", 1.0, 0.5)])
    (tmp_path / "link.csv").symlink_to(path)
    frame = pl.read_csv(path)
    for source, public in ((path, path), (path, tmp_path / "link.csv"), ([path], path), (frame, frame)):
        with pytest.raises(hetdp.InputError, match="private source itself"):
            hetdp.read(source, value="x", missing="midpoint", epsilon="e", bounds=(0, 1), public_rows=public)


BOOLEANS = {
    "numpy": np.array,
    "list": list,
    "pandas": lambda cells: pd.DataFrame({"x": cells, "e": 0.5}),
    "pandas from CSV": lambda cells: pd.read_csv(io.StringIO("x,e\n" + "".join(f"{_csv(x)},0.5\n" for x in cells))),
    "polars from CSV": lambda cells: pl.read_csv(
        io.BytesIO(("x,e\n" + "".join(f"{_csv(x)},0.5\n" for x in cells)).encode()), infer_schema_length=None
    ),
}


def _csv(x):
    return "" if x is None else str(x).lower()


@pytest.mark.parametrize("last", [False, None, "maybe"], ids=["boolean", "missing", "text"])
@pytest.mark.parametrize("form", BOOLEANS)
def test_one_persons_cell_does_not_change_what_a_column_of_booleans_means(form, last):
    """Libraries make it a column of objects or texts; the other people's codes must stay what they were."""
    whole = BOOLEANS[form]([True] * 9 + [last])
    columns = {"epsilon": 0.5} if form in {"numpy", "list"} else {"value": "x", "epsilon": "e"}
    total = seen(hetdp.read(whole, bounds=(0, 1), missing="midpoint", **columns))[0.5]
    assert total == (10, 9 * GRID + (0 if last is False else GRID // 2))


def test_tiers_from_a_file(tmp_path, hetdp_command):
    path = tmp_path / "people.csv"
    path.write_text("x,e\n1,strict\n2,open\n3,public\n")
    tiers = tmp_path / "tiers.toml"
    tiers.write_text('[tiers]\nstrict = 0.1\nopen = 2\npublic = "public"\n')
    said = [hetdp_command("mean", path, *TABLE, *how, "--json") for how in (
        ("--tiers", tiers), ("--tier", "strict=0.1", "--tier", "open=2", "--tier", "public=public"))]  # fmt: skip
    levels = [[(t["name"], t["epsilon"]) for t in json.loads(out)["tiers"]] for _, out, _ in said]
    assert levels[0] == levels[1] == [("strict", 0.1), ("open", 2.0), ("public", "inf")]
    wrong = {
        "strict = 0.1": "[tiers]",
        "[tiers": "TOML",
        '[tiers]\nstrict = "0,1"': "0,1",
        "[tiers]\nstrict = 1e400": "too large",
        "[tiers]\nstrict = 0.1": "line 3",
    }
    for text, word in wrong.items():
        tiers.write_text(text)
        code_, _, err = hetdp_command("mean", path, *TABLE, "--tiers", tiers)
        assert (code_, word in err) == (2, True), err


def test_sites_tally_on_their_own_and_a_centre_releases(tmp_path, hetdp_command):
    rows = [(f"p{i}", "g", float(i % 7), [0.1, 1.0, INF][i % 3]) for i in range(60)]
    parts = [tmp_path / f"part{i}.tally" for i in range(3)]
    for i, part in enumerate(parts):
        path = write(tmp_path / f"site{i}.csv", rows[i::3])
        code_, out, err = hetdp_command("tally", path, *TABLE, "--person", "id", "-o", part)
        assert (code_, err) == (0, "")
        assert "PRIVATE" in out
        assert part.stat().st_mode & 0o777 == 0o600
    whole = hetdp.read(write(tmp_path / "all.csv", rows), value="x", missing="midpoint", epsilon="e", bounds=(-2, 3))
    assert Tally.load(parts[0]) + Tally.load(parts[1]) + Tally.load(parts[2]) == whole
    code_, out, err = hetdp_command("mean", *parts, "--disjoint-people", "--json")
    assert (code_, err) == (0, "")
    assert json.loads(out)["n"] == 60
    assert any("promised" in sentence for sentence in json.loads(out)["assumptions"])


def test_merging_refuses_what_it_cannot_know(tmp_path, hetdp_command, monkeypatch):
    monkeypatch.setattr(_release, "noisy", lambda *_: pytest.fail("noise was drawn"))
    path = write(tmp_path / "rows.csv", [("a", "g", 1.0, 0.5)])
    one, other = tmp_path / "one.tally", tmp_path / "other.tally"
    hetdp.read(path, value="x", missing="midpoint", epsilon="e", bounds=(0, 1)).save(one)
    hetdp.read(path, value="x", missing="midpoint", epsilon="e", bounds=(0, 2)).save(other)
    damaged = tmp_path / "damaged.tally"
    damaged.write_text(one.read_text().replace("total", "totaI"))
    for arguments, word in [
        ((one, other), "--disjoint-people"),
        ((one, other, "--disjoint-people"), "different bounds"),
        ((one, one, "--disjoint-people"), "named twice"),
        ((one, path), "do not mix"),
        ((one, *TABLE), "leave out"),
        ((damaged,), "damaged"),
    ]:
        code_, out, err = hetdp_command("mean", *arguments)
        assert (code_, out, err.count("\n")) == (2, "", 1)
        assert word in err


@pytest.mark.parametrize("marker", ["98765.4321", "98765.4321x", "=98765+4321", '"98765'])
def test_no_private_cell_is_in_any_message(marker, tmp_path, hetdp_command):
    """Every refusal about ids, groups and tiers, with a value that must not be seen beside it."""
    path = tmp_path / "rows.csv"
    for public, options in [
        ("a,g,{},0.5\na,g,{},0.7\n", ("--person", "id", "--rows", "average")),
        ("a,g,{},0.5\na,g,{},0.5\n", ("--person", "id")),
        (
            "a,g,{},0.5\na,h,{},0.5\n",
            ("--person", "id", "--rows", "average", "--by", "group", "--public-column", "group"),
        ),
        (",g,{},0.5\n,g,{},0.5\n", ("--person", "id", "--rows", "average")),
        ("a,g,{},silver\nb,g,{},gold\n", ("--tier", "gold=1")),
    ]:
        path.write_text("id,group,x,e\n" + public.format(marker, marker))
        code_, out, err = hetdp_command("mean", path, *TABLE, *options)
        assert (code_, out) == (2, "")
        assert "98765" not in err


@pytest.mark.parametrize(
    "options",
    [("--person", "id", "--rows", "average"), ("--person", "id"), ("--by", "group", "--public-column", "group")],
)
def test_everything_public_is_the_same_on_neighbouring_tables(options, tmp_path, hetdp_command):
    """Only the numbers may differ: n, tiers, weights, noise, words and exit code do not."""
    seen = set()
    for x in ("0.5", "", "nan", "1e999", "text", "-7"):
        path = tmp_path / "rows.csv"
        path.write_text(f"id,group,x,e\nme,g,{x},0.5\n" + "".join(f"p{i},g,1,{1 + i % 2}\n" for i in range(200)))
        code_, out, err = hetdp_command("mean", path, *TABLE, *options, "--json")
        facts = json.loads(out)
        for release in facts.get("groups", {"": facts}).values():
            for number in ("estimate", "unclamped", "interval"):
                del release[number]
            del release["provenance"]["released"]  # when, not what
        facts["provenance"].pop("released", None)
        seen.add((code_, err, json.dumps(facts)))
    assert len(seen) == 1


def test_many_levels_are_rounded_over_all_groups(tmp_path):
    """Whether ε is rounded depends on all people of the table, not on how many are in a group."""
    n = 70_000
    frame = pl.DataFrame({"x": [0.5] * n, "e": [0.5 + i / n for i in range(n)], "g": ["a", "b"] * (n // 2)})
    frame.write_parquet(tmp_path / "many.parquet")
    source = Source.of(tmp_path / "many.parquet", value="x", epsilon="e", by="g")
    groups = read_groups(source, Mean((0, 1), missing="midpoint"))
    whole = hetdp.read(tmp_path / "many.parquet", value="x", missing="midpoint", epsilon="e", bounds=(0, 1))
    assert groups["a"].levels.rounded
    assert groups["a"] + groups["b"] == whole


@pytest.mark.slow
def test_a_slow_file_shows_its_progress_in_rows_and_bytes_on_a_terminal(tmp_path):
    """A fifo cannot be read twice, so a large file is used; patience is set to nothing in the child."""
    path = tmp_path / "rows.csv"
    path.write_text("x,e\n" + "1.5,0.5\n" * 400_000)
    program = (
        "import sys; from hetdp.cli import main, output; output.PATIENCE = 0.0; "
        f"sys.argv = ['hetdp', 'mean', {str(path)!r}, *{TABLE!r}]; main()"
    )
    ours, theirs = pty.openpty()
    child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.DEVNULL, stderr=theirs)
    os.close(theirs)
    shown = b""
    while True:
        try:
            block = os.read(ours, 4096)
        except OSError:
            break
        if not block:
            break
        shown += block
    assert child.wait() == 0
    assert b"reading" in shown
    assert b"rows" in shown
    assert b"400,000 rows, 100%" in shown
    assert shown.endswith(b"\r\x1b[K")  # nothing of it stays


@pytest.mark.slow
@pytest.mark.parametrize("command", ["mean", "tally"])
def test_an_interrupt_leaves_nothing_half_written(command, tmp_path):
    """Interrupted in the middle of reading: exit code 130, one line, no output file, no temporary one."""
    path = tmp_path / "rows.csv"
    path.write_text("x,e\n1.5,0.5\n")
    program = (
        "import sys, time; from hetdp.cli import main; from hetdp.sources import delimited\n"
        "real = delimited.batches\n"
        "def slow(*a, **k):\n    print('reading', flush=True)\n    time.sleep(60)\n    yield from real(*a, **k)\n"
        "delimited.batches = slow\n"
        f"sys.argv = ['hetdp', {command!r}, {str(path)!r}, *{TABLE!r}, '-o', {str(tmp_path / 'out.json')!r}]\nmain()"
    )
    child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "reading\n"
    time.sleep(0.2)
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=300)
    assert (child.returncode, err) == (130, "hetdp: interrupted; nothing was written\n")
    assert [left.name for left in tmp_path.iterdir()] == ["rows.csv"]


def test_the_form_of_a_file_reaches_the_reader(tmp_path, hetdp_command):
    path = tmp_path / "rows.csv"
    path.write_text("x;e\n1,5;0,5\n1.000,25;2\n")
    how = ("--delimiter", ";", "--decimal", ",", "--thousands", ".")
    code_, out, _ = hetdp_command(
        "mean", path, "--value", "x", "--missing", "midpoint", "--epsilon", "e", "--bounds", "0", "2000", *how, "--json"
    )
    assert code_ == 0
    assert [tier["epsilon"] for tier in json.loads(out)["tiers"]] == [0.5, 2.0]
    tally = hetdp.read(
        path, value="x", missing="midpoint", epsilon="e", bounds=(0, 2000), delimiter=";", decimal=",", thousands="."
    )
    assert tally == hetdp.read([1.5, 1000.25], epsilon=[0.5, 2.0], bounds=(0, 2000), missing="midpoint")
    assert Form(";", ",", ".") == Form(delimiter=";", decimal=",", thousands=".")


# ---------------------------------------------------------------------------------------------------------
# What a second look found


def test_a_person_with_billions_of_rows_still_has_one_code():
    """Polars counts rows in 32 bits; from 2³¹ rows on twice that number would wrap, and a code with it."""
    frame = _people._rows(
        Batch((np.ones(1),), np.ones(1), texts={"i": pl.Series(["a"])}),
        Request("x", "e", "i", several=True),
        Mean((0, 1)),
    )
    assert frame["count"].dtype == frame["code 0"].dtype == pl.Int64
    part = _people._weighted(frame.with_columns(pl.col("count") * 2**30))  # a part stands for 2³⁰ rows
    found = _people._persons(pl.concat([part] * 3), Request("x", "e", "i", several=True), quotes=True)
    assert found["code 0"].to_list() == [GRID]


def test_ids_whose_labels_stand_in_another_order_are_refused():
    values = pd.Series([1.0, 1.0, 0.0], index=["r1", "r2", "r3"])
    ids = pd.Series(["ann", "bob", "ann"], index=["r1", "r3", "r2"])
    for rows in ("one", "average"):
        with pytest.raises(hetdp.InputError, match="values and ids have different row labels"):
            hetdp.read(values, epsilon=1.0, bounds=(0, 1), person=ids, rows=rows, missing="none")
    again = hetdp.read(values, epsilon=1.0, bounds=(0, 1), person=ids.loc[values.index], rows="average", missing="none")
    assert again.table.total[:, 0].tolist() == [GRID]


@pytest.mark.parametrize("engine", ["duckdb", "ibis", "dask"])
def test_engines_average_the_rows_of_a_person_at_one_epsilon_for_everybody(engine):
    table = pl.DataFrame({"x": [1.0, 0.0, 0.25], "i": ["a", "a", "b"]})
    if engine == "duckdb":
        import duckdb

        frame = duckdb.from_arrow(table.to_arrow())
    elif engine == "ibis":
        import ibis

        frame = ibis.memtable(table.to_arrow())
    else:
        import dask.dataframe

        frame = dask.dataframe.from_pandas(table.to_pandas(), npartitions=2)
    found = hetdp.read(
        frame, value="x", missing="midpoint", epsilon=0.5, bounds=(0, 1), person="i", rows="average"
    ).table
    assert (found.count.tolist(), found.total[:, 0].tolist()) == ([2], [GRID // 2 + GRID // 4])


def test_many_groups_with_few_levels_are_not_rounded(monkeypatch):
    import duckdb

    monkeypatch.setattr("hetdp.sources.request._FETCHED", 100)
    rows = pl.DataFrame({"x": [0.5] * 300, "e": [0.1, 0.2, 0.3] * 100, "g": [f"g{i // 3}" for i in range(300)]})
    asked = {**PLAIN, "by": "g", "public_columns": ["g"]}
    found = hetdp.mean(duckdb.from_arrow(rows.to_arrow()), **asked)
    assert {tuple(release.plan.levels.epsilon.tolist()) for release in found.values()} == {(0.1, 0.2, 0.3)}


def test_a_function_in_a_lazy_frame_that_fails_does_not_tell_a_value():
    frame = pl.LazyFrame({"x": [1.0, 98765.4321], "e": [1.0, 1.0]})
    broken = frame.with_columns(pl.col("x").map_elements(lambda x: {1.0: 2.0}[x], return_dtype=pl.Float64))
    with pytest.raises(hetdp.InputError) as caught:
        hetdp.read(broken, value="x", missing="midpoint", epsilon="e", bounds=(0, 1))
    assert "98765" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_the_form_of_a_file_is_refused_where_there_is_no_file():
    frame = pl.DataFrame({"x": ["1,5", "2,5"], "e": [1.0, 1.0]})
    for source in (frame, frame.lazy(), frame.to_pandas()):
        with pytest.raises(hetdp.InputError, match="how a file is written"):
            hetdp.read(source, value="x", missing="midpoint", epsilon="e", bounds=(0, 10), decimal=",")
    with pytest.raises(hetdp.InputError, match="how a file is written"):
        hetdp.read(np.ones(3), epsilon=1.0, bounds=(0, 10), thousands=",")


def test_an_arrow_stream_that_was_cut_between_batches_is_refused(tmp_path):
    path = tmp_path / "people.arrows"
    batch = pa.RecordBatch.from_pydict({"x": [0.5] * 100, "e": [1.0] * 100})
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, batch.schema) as writer:
        for _ in range(3):
            writer.write_batch(batch)
    assert hetdp.read(path, value="x", missing="midpoint", epsilon="e", bounds=(0, 1)).levels.n == 300
    whole = path.read_bytes()
    cuts = [i for i in range(8, len(whole) - 8, 8) if whole[i : i + 4] == b"\xff\xff\xff\xff"]
    assert len(cuts) == 3
    for cut in cuts:
        path.write_bytes(whole[:cut])
        with pytest.raises(hetdp.InputError):
            hetdp.read(path, value="x", missing="midpoint", epsilon="e", bounds=(0, 1))


NOBODY = {"query": "select 1 as x, 'a' as i where 1 = 0", "epsilon": 0.5, "person": "i", "rows": "average"}


@pytest.mark.parametrize(
    "ask",
    [
        lambda path: hetdp.read(path, **PLAIN, public_rows=[0.1, 0.2]),
        lambda path: hetdp.read(path, **PLAIN, tiers={1: 0.5}),
        lambda _: hetdp.read(pd.DataFrame({"x": [1.0], "e": [[1]]}), **PLAIN, tiers={"1": 1}),
        lambda path: hetdp.read(f"sqlite:///{path}.db", **{**PLAIN, **NOBODY}),
    ],
    ids=["public rows in a list", "a tier without text", "a list for a tier", "an empty table"],
)
def test_what_is_wrong_in_public_is_said_in_a_sentence(tmp_path, ask):
    path = tmp_path / "people.csv"
    path.write_text("x,e\n0.5,1\n", encoding="utf-8")
    sqlite3.connect(f"{path}.db").close()
    with pytest.raises(hetdp.InputError):
        ask(path)


@pytest.mark.parametrize("epsilon", [np.float32(0.5), np.int64(1), Decimal("0.5"), Fraction(1, 2)])
def test_one_epsilon_for_a_table_may_be_any_number(tmp_path, epsilon):
    path = tmp_path / "people.csv"
    path.write_text("x\n0.5\n", encoding="utf-8")
    assert hetdp.read(path, value="x", missing="midpoint", epsilon=epsilon, bounds=(0, 1)).levels.epsilon.tolist() == [
        float(epsilon)
    ]
