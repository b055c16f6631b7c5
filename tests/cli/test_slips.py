"""What a newcomer types by mistake: no option is dropped without a word, and each message says what to write."""

from __future__ import annotations

import json

import pytest

TABLE = "id,age,job,eps\n" + "".join(f"p{i},{20 + i % 60},{'ab'[i % 2]},{(0.5, 1, 2)[i % 3]}\n" for i in range(900))
MEAN = ("mean", "p.csv", "--value", "age", "--epsilon", "eps", "--missing", "none", "--bounds", 0, 100)
SHARE = ("proportion", "p.csv", "--value", "job", "--epsilon", "eps", "--missing", "none", "--equals", "a")
HISTOGRAM = ("histogram", "p.csv", "--value", "job", "--epsilon", "eps", "--categories", "a,b")
BOUNDS = ("bounds", "p.csv", "--value", "age", "--epsilon", "eps", "--outer", 0, 1000)


@pytest.fixture
def table(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "p.csv").write_text(TABLE, encoding="utf-8")
    return tmp_path


DROPPED = {
    "a second value": ((*MEAN, "--value", "job"), "--value is given twice, and only one can count"),
    "a second method": ((*MEAN, "--method", "adpm", "--method", "uniform"), "--method is given twice"),
    "bounds of a share": ((*SHARE, "--bounds", 0, 1), "a proportion has no bounds; leave out --bounds"),
    "outer bounds of a share": ((*SHARE, "--outer", 0, 1), "a proportion has no bounds; leave out --outer"),
    "bounds of a planned share": (
        ("plan", "--tier", "a=1:99", "--statistic", "proportion", "--equals", "a", "--bounds", 0, 1),
        "a proportion does not take --bounds",
    ),
    "categories of a mean": ((*MEAN, "--categories", "a,b"), "need --private-group COL and --categories A,B,C, both"),
    "a group of no categories": ((*MEAN, "--private-group", "job"), "need --private-group COL and --categories A,B,C"),
    "bounds beside categories": ((*HISTOGRAM, "--bounds", 0, 9), "leave out the bounds: they go with bins alone"),
    "a public column alone": ((*MEAN, "--public-column", "job"), "--public-column goes with --by COL"),
    "people without a ledger": ((*MEAN, "--people", "source"), "only a release through a ledger takes --people"),
    "a drift of bounds": ((*BOUNDS, "--drift", 0.1), "leave out --drift"),
}


@pytest.mark.parametrize("case", DROPPED)
def test_an_option_without_effect_is_refused_before_anything_is_spent(case, table, hetdp_command):
    words, said = DROPPED[case]
    code, out, err = hetdp_command(*words)
    assert (code, out) == (2, "")
    assert said in err


def test_a_switch_may_be_given_twice(table, hetdp_command):
    assert json.loads(hetdp_command(*MEAN, "--json", "--json")[1])["n"] == 900


@pytest.mark.parametrize(
    ("command", "hidden", "offered"),
    [
        ("mean", ["--simplex"], ["--bounds", "--outer", "--by"]),
        ("proportion", ["--simplex", "--bounds LO", "--outer LO"], ["--equals", "--by"]),
        ("histogram", ["--outer LO"], ["--simplex", "--bounds"]),
        ("bounds", ["--bounds LO", "--by", "--simplex", "--drift"], ["--outer"]),
    ],
)
def test_help_offers_no_option_that_the_command_refuses(command, hidden, offered, hetdp_command):
    said = hetdp_command(command, "--help")[1]
    assert [option for option in hidden if f"  {option}" in said] == []
    assert [option for option in offered if f"  {option}" not in said] == []


def test_a_ledger_charges_private_bounds_from_the_command_line(table, hetdp_command):
    """`hetdp mean --ledger --outer` sends people to this command, which asked for --outer although it was given."""
    assert hetdp_command("ledger", "init", "b.db")[0] == 0
    assert hetdp_command("ledger", "enroll", "b.db", "p.csv", "--person", "id", "--budget", "eps")[0] == 0
    words = ("--ledger", "b.db", "--person", "id", "--share", "0.5", "--release-id", "may", "--json")
    code, out, err = hetdp_command("bounds", "p.csv", "--value", "age", "--outer", 0, 1000, *words)
    assert (code, err) == (0, "")
    assert json.loads(out)["ledger"]["release_id"] == "may"


def test_private_bounds_are_not_called_uncertain_and_say_how_they_are_used(table, hetdp_command):
    """The mark beside good bounds invited people to spend again; typed into --bounds they forget what they spent."""
    said = " ".join(hetdp_command(*BOUNDS)[1].split())
    assert "uncertain" not in said
    assert "Quantile in the cells of the grid that hold the quantiles, at 1/5 and 4/5" in said
    assert "do not type these into --bounds" in said
    assert "hetdp mean --outer" in said
    rows = json.loads(hetdp_command(*BOUNDS, "--json")[1])["results"]
    assert [row["uncertain"] for row in rows] == [False, False]
