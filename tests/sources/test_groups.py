"""Public groups of several columns: the same in every source, in natural order, and a person is in one of them."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hetdp
from hetdp.sources import Source, group_of, natural, read_groups
from hetdp.sources.request import Request
from hetdp.statistics.answer import label
from hetdp.statistics.mean import Mean
from oracle import expected, seen
from table_sources import USUAL, query_of

BOUNDS = (0.0, 1.0)
BY = ["region", "sex"]
TABLE = {"value": "x", "epsilon": "e", "bounds": BOUNDS, "missing": "none"}
REGIONS, SEXES = ["north", "10", "2"], ["f", "m"]


def people(n=60):
    rows = [
        {"id": f"p{i:02}", "region": REGIONS[i % 3], "sex": SEXES[i % 4 // 2], "x": i % 7 / 6, "e": [0.5, 1.0][i % 2]}
        for i in range(n)
    ]
    return pl.DataFrame(rows)


def source_of(made, name, **options):
    return Source.of(made, value="x", epsilon="e", **options, **query_of(name))


def by_hand(table, columns):
    """The tallies of groups, from a dictionary and the formula alone."""
    found = {}
    for row in table.rows(named=True):
        found.setdefault(tuple(row[c] for c in columns), []).append((row["x"], row["e"]))
    return {group: expected(pairs, BOUNDS) for group, pairs in found.items()}


IDS = {"no ids": {}, "one row": {"person": "id"}, "average": {"person": "id", "rows": "average"}}


@pytest.mark.parametrize("name", USUAL)
def test_groups_of_several_columns_are_the_same_in_every_source(name, made_of):
    table = people()
    made, plain = made_of(name, table), by_hand(table, BY)
    for ids in IDS.values():
        found = read_groups(source_of(made, name, by=BY, **ids), Mean(BOUNDS))
        assert {group: seen(tally) for group, tally in found.items()} == plain
        assert list(found) == [(r, s) for r in ("2", "10", "north") for s in SEXES]


def test_control_one_column_of_two_gives_other_groups(made_of):
    """A source that grouped by the first column alone would be noticed: its sums are others."""
    table = people()
    found = read_groups(source_of(table, "polars", by=BY[:1]), Mean(BOUNDS))
    assert {(group,): seen(tally) for group, tally in found.items()} == by_hand(table, BY[:1])
    assert sorted(map(str, by_hand(table, BY[:1]).values())) != sorted(map(str, by_hand(table, BY).values()))


@pytest.mark.parametrize("name", USUAL)
def test_a_person_in_two_groups_is_refused_in_every_source_whichever_column_differs(name, made_of):
    """The person p07 has a second row that differs in one column; without that column they are in one group."""
    table = people()
    for other in ({"sex": "x"}, {"region": "x"}):
        again = table[7:8].with_columns(**{column: pl.lit(text) for column, text in other.items()})
        made = made_of(name, pl.concat([table, again]))
        with pytest.raises(hetdp.InputError, match="1 person has rows in more than one group"):
            read_groups(source_of(made, name, by=BY, person="id", rows="average"), Mean(BOUNDS))
        (column,) = [column for column in BY if column not in other]
        control = read_groups(source_of(made, name, by=column, person="id", rows="average"), Mean(BOUNDS))
        assert sum(tally.n for tally in control.values()) == 60


NULLS = [name for name in USUAL if name in ("polars", "polars lazy", "parquet", "duckdb", "ibis", "sqlite", "postgres")]


@pytest.mark.parametrize("name", NULLS)
@pytest.mark.parametrize("ids", IDS)
def test_a_missing_cell_in_any_column_of_groups_is_refused(name, ids, made_of):
    table = people().with_columns(sex=pl.when(pl.col("id") == "p05").then(None).otherwise(pl.col("sex")))
    with pytest.raises(hetdp.InputError, match="the group is missing"):
        read_groups(source_of(made_of(name, table), name, by=BY, **IDS[ids]), Mean(BOUNDS))


def test_an_engine_with_many_levels_keeps_groups_apart(made_of):
    """With more than 65,536 rows of a level table another query runs."""
    table = pl.DataFrame({"region": ["a", "b"] * 40_000, "sex": ["f"] * 40_000 + ["m"] * 40_000}).with_columns(
        x=pl.lit(0.5), e=(pl.int_range(pl.len()) + 1) / 80_000
    )
    found = read_groups(source_of(made_of("duckdb", table), "duckdb", by=BY), Mean(BOUNDS))
    assert {group: tally.n for group, tally in found.items()} == dict.fromkeys(itertools.product("ab", "fm"), 20_000)
    assert found == read_groups(source_of(table, "polars", by=BY), Mean(BOUNDS))


# ---------------------------------------------------------------------------------------------------------
# Names and order


def test_groups_come_in_natural_order():
    shuffled = ["b", "10", "2", "a", "-1", "1e3", "", "2.5", "inf", "a10"]
    assert sorted(shuffled, key=natural) == ["-1", "2", "2.5", "10", "1e3", "", "a", "a10", "b", "inf"]
    assert sorted([("b", "10"), ("b", "9"), ("a", "x")], key=natural) == [("a", "x"), ("b", "9"), ("b", "10")]


@given(*[st.lists(st.text(" ·a", max_size=5), min_size=2, max_size=3)] * 2)
def test_two_groups_never_have_the_same_label(one, other):
    assert (label(tuple(one)) == label(tuple(other))) == (one == other)


def test_control_without_doubled_dots_two_groups_would_share_a_label():
    assert " · ".join(("a", "b · c")) == " · ".join(("a · b", "c"))
    assert label(("a", "b · c")) != label(("a · b", "c"))


BAD_GROUPS = {
    "a text for two columns": "north",
    "one text": ("north",),
    "three": ("a", "b", "c"),
    "no text": (1.5, "f"),
}


@pytest.mark.parametrize("bad", BAD_GROUPS)
def test_a_list_of_groups_that_does_not_fit_the_columns_is_refused_before_reading(bad):
    with pytest.raises(hetdp.InputError, match="a tuple of 2 texts"):
        hetdp.mean("no-such-file.csv", **TABLE, by=BY, public_columns=BY, groups=[BAD_GROUPS[bad]])


def test_whole_numbers_name_groups_as_their_digits():
    assert group_of(2) == "2"
    assert group_of((2, "f"), 2) == ("2", "f")
    with pytest.raises(hetdp.InputError, match="a group is a text"):
        group_of(True)


def test_every_column_of_groups_must_be_declared_public():
    for declared, named in (([], "region"), (["region"], "sex"), ("region and sex", "region")):
        with pytest.raises(hetdp.InputError, match=f"column '{named}' would be published"):
            hetdp.mean(people(), **TABLE, by=BY, public_columns=declared)
    assert len(hetdp.mean(people(), **TABLE, by="sex", public_columns="sex")) == 2


def test_a_column_cannot_make_groups_twice_nor_be_private():
    with pytest.raises(hetdp.InputError, match="cannot be the same column"):
        Request("x", "e", by=("g", "g"))
    with pytest.raises(hetdp.InputError, match="cannot be the same column"):
        Request("x", "e", by=("g", "x"))


# ---------------------------------------------------------------------------------------------------------
# What comes out


def test_groups_of_several_columns_show_in_reports_json_and_frames():
    named = [(r, s) for r in ("2", "10", "north", "south") for s in SEXES]
    found = hetdp.mean(people(600), **TABLE, by=BY, public_columns=BY, groups=named, person="id")
    assert list(found) == named
    assert "north · f" in found.report()
    assert found.to_dict()["by"] == BY
    told = json.loads(found.to_json())["groups"]
    assert told["north · f"]["group"] == {"region": "north", "sex": "f"}
    assert told["north · f"]["estimate"] == found["north", "f"].estimate
    frame = found.to_frame()
    assert frame.columns == [*BY, "estimate", "low", "high", "uncertain", "at_end", "n", "most_spent", "from_data"]
    doubted = [release.figures()[0].uncertain for release in found.values()]
    assert frame["uncertain"].to_list() == doubted
    assert frame.select(BY).rows() == named
    assert frame["n"].sum() == 600
    assert frame["from_data"].to_list() == [True] * 6 + [False] * 2
    assert frame["estimate"].to_list() == [r.estimate for r in found.values()]
    low, high = found["2", "m"].confidence_interval(0.8)
    assert found.to_frame(0.8).row(1, named=True) | {"low": low, "high": high} == found.to_frame(0.8).row(1, named=True)


def test_a_frame_of_groups_has_a_row_for_each_number_and_keeps_columns_apart():
    table = people(600).rename({"sex": "n"})
    found = hetdp.histogram(table, value="x", epsilon="e", edges=[0, 0.5, 1], by="n", public_columns=["n"])
    frame = found.to_frame()
    assert frame["n (group)"].to_list() == ["f"] * 3 + ["m"] * 3
    assert frame["number"].to_list() == ["[0, 0.5)", "[0.5, 1]", "other"] * 2
    assert frame["n"].unique().to_list() == [300]


def test_values_in_memory_have_groups_by_name():
    table = people(600)
    columns = {name: table[name].to_list() for name in BY}
    ids = table["id"].to_list()
    values = table["x"].to_numpy(), table["e"].to_numpy()
    source = Source.of(values[0], value=None, epsilon=values[1], person=ids, by=columns, rows="one")
    assert read_groups(source, Mean(BOUNDS)) == read_groups(
        source_of(table, "polars", by=BY, person="id"), Mean(BOUNDS)
    )
    groups = hetdp.mean(values[0], epsilon=values[1], bounds=BOUNDS, by={"sex": columns["sex"]}, public_columns=["sex"])
    assert list(groups) == ["f", "m"]
    assert "Assumed: every row is another person" in " ".join(groups.report().split())
    for wrong in ("sex", ["sex"]):
        with pytest.raises(hetdp.InputError, match=r"by=\{'region': regions\}"):
            hetdp.mean(values[0], epsilon=values[1], bounds=BOUNDS, by=wrong, public_columns=["sex"])
    with pytest.raises(hetdp.InputError, match="one entry a row"):
        hetdp.mean(values[0], epsilon=values[1], bounds=BOUNDS, by={"sex": ["f"]}, public_columns=["sex"])


def test_the_command_line_takes_several_columns_and_a_file_of_groups(tmp_path, hetdp_command, monkeypatch):
    monkeypatch.chdir(tmp_path)
    people(600).write_csv("people.csv")
    Path("groups.txt").write_text("".join(f'"{r}", {s}\n' for r in ("south", "2", "10", "north") for s in SEXES))
    given_ = (
        "--value",
        "x",
        "--missing",
        "midpoint",
        "--epsilon",
        "e",
        "--bounds",
        "0",
        "1",
        "--by",
        "region",
        "--by",
        "sex",
        "--json",
    )
    public = ("--public-column", "region", "--public-column", "sex")
    code, out, _ = hetdp_command("mean", "people.csv", *given_, *public)
    assert code == 0
    assert list(json.loads(out)["groups"]) == [f"{r} · {s}" for r in ("2", "10", "north") for s in SEXES]
    code, out, _ = hetdp_command("mean", "people.csv", *given_, *public, "--groups", "groups.txt")
    assert code == 0
    assert list(json.loads(out)["groups"])[:2] == ["south · f", "south · m"]
    code, _, err = hetdp_command("mean", "people.csv", *given_, *public[:2])
    assert code == 2
    assert "--public-column sex" in err


def test_public_rows_claim_nothing_about_who_they_are(tmp_path):
    """That public rows are about others is assumed; with ids the private rows are still checked."""
    people(600).write_csv(tmp_path / "people.csv")
    people(6).write_csv(tmp_path / "public.csv")
    options = {"by": BY, "public_columns": BY, "public_rows": tmp_path / "public.csv"}
    for ids in ({}, {"person": "id"}):
        found = hetdp.mean(tmp_path / "people.csv", **TABLE, **options, **ids)
        said = " ".join(found.report().split())
        assert (
            "6 rows that are known publicly were added with ε = ∞, each as one person. Assumed: they are about nobody"
            in said
        )
        assert sum(r.plan.n for r in found.values()) == 606


# ---------------------------------------------------------------------------------------------------------
# Several questions

QUESTIONS = {
    "x": hetdp.ask.mean(bounds=BOUNDS, missing="none"),
    "job": hetdp.ask.histogram(value="sex", categories=SEXES),
}


@pytest.mark.parametrize("name", ["csv", "polars", "duckdb", "postgres"])
def test_several_questions_by_groups_are_answered_for_the_people_of_each(name, made_of):
    """Public people need no noise: the numbers are those of a plain count."""
    table = people().with_columns(e=pl.lit(math.inf))
    found = hetdp.ask(
        made_of(name, table), QUESTIONS, epsilon="e", by="region", public_columns=["region"], **query_of(name)
    )
    assert list(found) == ["2", "10", "north"]
    for region, answers in found.items():
        mine = table.filter(region=region)
        assert answers["x"].estimate == pytest.approx(mine["x"].mean(), abs=1e-6)
        assert answers["job"].frequencies["f"] == (mine["sex"] == "f").mean()
    assert found.to_frame()["question"].to_list() == ["x", "job", "job", "job"] * 3


def test_in_each_group_nobody_spends_more_than_their_epsilon_on_all_questions():
    table = people(600)
    by = {"by": "region", "public_columns": ["region"]}
    found = hetdp.ask(table, QUESTIONS, epsilon="e", person="id", **by)
    for answers in found.values():
        assert all(0 < together <= epsilon for epsilon, together in answers.spent.items())
    assert "on all questions about it together they spend at most their ε" in found.composition
    assert list(found.to_dict()["groups"]["2"]["answers"]) == ["x", "job"]
    report = " ".join(found.report().split())
    assert "Question x" in report
    assert "Question job" in report
    assert "Assumed: every row is another person" in hetdp.ask(table, QUESTIONS, epsilon="e", **by).composition


def test_several_questions_take_public_rows_and_refuse_groups_that_are_not_public(tmp_path, hetdp_command):
    people(600).write_csv(tmp_path / "people.csv")
    people(6).write_csv(tmp_path / "public.csv")
    found = hetdp.ask(tmp_path / "people.csv", QUESTIONS, epsilon="e", public_rows=tmp_path / "public.csv")
    assert {answer.plan.n for answer in found.values()} == {606}
    assert any("they are about nobody who is counted already" in note for note in found["x"].notes)
    with pytest.raises(hetdp.InputError, match="would be published"):
        hetdp.ask(tmp_path / "people.csv", QUESTIONS, epsilon="e", by="region")
    (tmp_path / "questions.toml").write_text('[x]\nstatistic = "mean"\nbounds = [0, 1]\nmissing = "none"\n')
    ask = ("ask", tmp_path / "people.csv", tmp_path / "questions.toml", "--epsilon", "e", "--json")
    code, out, _ = hetdp_command(*ask, "--by", "region", "--public-column", "region")
    assert code == 0
    assert list(json.loads(out)["groups"]) == ["2", "10", "north"]
    code, out, _ = hetdp_command(*ask, "--public-rows", tmp_path / "public.csv")
    assert json.loads(out)["answers"]["x"]["n"] == 606
