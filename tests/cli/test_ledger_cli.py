"""`hetdp ledger …` and `hetdp mean … --ledger`: parse, call one verb, print."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hetdp.ledger import Ledger

PEOPLE = [f"p{i:03}" for i in range(300)]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tiers = ["strict" if i < 200 else "open" for i in range(300)]
    rows = "".join(f"{person},{tier},{i % 100}\n" for i, (person, tier) in enumerate(zip(PEOPLE, tiers, strict=True)))
    Path("people.csv").write_text("id,tier,x\n" + rows, encoding="utf-8")
    return tmp_path


@pytest.fixture
def ledger(folder, hetdp_command):
    assert hetdp_command("ledger", "init", "b.db")[0] == 0
    code, out, _ = hetdp_command("ledger", "enroll", "b.db", "people.csv", "--person", "id", "--budget", "tier",
                                 "--tier",
                                 "strict=0.5", "--tier", "open=5")  # fmt: skip
    assert code == 0
    assert "300 people enrolled" in out
    return folder / "b.db"


MEAN = [
    "mean",
    "people.csv",
    "--value",
    "x",
    "--person",
    "id",
    "--rows",
    "average",
    "--missing",
    "midpoint",
    "--bounds",
    0,
    100,
    "--ledger",
    "b.db",
]


def test_the_commands_tell_the_same_story_as_the_library(ledger, hetdp_command):
    code, out, err = hetdp_command(*MEAN, "--share", 0.25, "--release-id", "may", "--json")
    assert (code, err) == (0, "")
    may = json.loads(out)
    assert may["ledger"]["release_id"] == "may"
    stored = json.loads(hetdp_command(*MEAN, "--share", 0.25, "--release-id", "may", "--json")[1])
    assert stored["ledger"].pop("stored") is True
    assert stored == may
    found = json.loads(hetdp_command("ledger", "balance", "b.db", "p000", "--json")[1])
    with Ledger(ledger) as opened:
        assert found == opened.balance("p000").to_dict()
        balances = [row.to_dict() for row in opened.balances()]
        history = [entry.to_dict() for entry in opened.history()]
        verified = opened.verify().to_dict()
    assert found["tier"] == "strict"
    assert json.loads(hetdp_command("ledger", "history", "b.db", "--json")[1]) == history
    again = hetdp_command("ledger", "verify", "b.db", "--json", "--expect-head", verified["head"])[1]
    assert json.loads(again) == verified
    groups = json.loads(hetdp_command("ledger", "balance", "b.db", "--json")[1])
    assert [(group["people"], group["tier"]) for group in groups] == [(200, "strict"), (100, "open")]
    assert json.loads(hetdp_command("ledger", "balance", "b.db", "--everybody", "--json")[1]) == balances
    seen = json.loads(hetdp_command("ledger", "forecast", "b.db", "--share", 0.25, "--bounds", 0, 100, "--json")[1])
    assert seen["lasts"]["tier strict (budget 0.5)"] == 3


def test_the_commands_print_text(ledger, hetdp_command):
    for command, text in (
        (["balance", "b.db"], "200 people (strict): ε = 0 spent of 0.5"),
        (["history", "b.db"], "300 people enrolled or changed"),
        (["verify", "b.db"], "head 2:"),
        (["forecast", "b.db", "--spend", "0.1", "--bounds", 0, 100], "5 more releases use up tier strict"),
        (["balance", "b.db", "--everybody"], "p299 (open): ε = 0 spent of 5"),
        (["enroll", "b.db", "--id", "late", "--budget", "1"], "1 person enrolled"),
        (["enroll", "b.db", "--id", "late", "--budget", "2"], "1 raised"),
        (["upgrade", "b.db"], "up to date"),
    ):
        code, out, err = hetdp_command("ledger", *command)
        assert (code, err) == (0, ""), err
        assert text in out


REFUSED = [
    (["balance", "missing.db"], "does not exist"),
    (["balance", "b.db", "nobody"], "not enrolled"),
    (["init", "b.db"], "exists already"),
    (["verify", "b.db", "--expect-head", "9:" + "a" * 64], "old copy"),
    (["verify", "b.db", "--expect-head", "9"], "NUMBER:HASH"),
    (["enroll", "b.db", "--budget", "1"], "name a table"),
    (["enroll", "b.db", "people.csv", "--budget", "x"], "two columns"),
    (["forecast", "b.db", "--bounds", 0, 1], "one of --spend"),
    (["balance", "b.db", "p000", "--everybody"], "--everybody"),
]


@pytest.mark.parametrize(("command", "text"), REFUSED, ids=[" ".join(map(str, c))[:40] for c, _ in REFUSED])
def test_bad_input_is_one_line_and_code_2(ledger, hetdp_command, command, text):
    code, out, err = hetdp_command("ledger", *command)
    assert (code, out) == (2, "")
    assert text in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("more", "text"),
    [
        (["--spend", 0.1], "--release-id"),
        (["--release-id", "may"], "one of --spend"),
        (["--spend", 0.1, "--release-id", "may", "--by", "y", "--public-column", "y"], "no column"),
        (["--spend", 0.1, "--release-id", "may", "--epsilon", "tier"], "leave out"),
        (["--spend", 0.1, "--release-id", "may", "-o", "people.csv"], "people.csv"),
    ],
    ids=str,
)
def test_all_that_can_be_checked_is_checked_before_the_charge(ledger, hetdp_command, more, text):
    code, _, err = hetdp_command(*MEAN, *more)
    assert code == 2
    assert text in err
    with Ledger(ledger) as opened:
        assert opened.verify().charges == 0


SLOW = """
import sys, time
from hetdp.ledger import rows
def slow(*a):
    print("reading", flush=True)
    time.sleep(60)
rows.tallies_of = slow
sys.argv = ["hetdp", *sys.argv[1:]]
from hetdp.cli import main
main()
"""


@pytest.mark.slow
@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM], ids=["interrupt", "terminate"])
def test_an_interrupt_after_the_charge_says_how_to_go_on(ledger, hetdp_command, sign):
    command = [sys.executable, "-c", SLOW, *map(str, MEAN), "--spend", "0.1", "--release-id", "may"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert running.stdout.readline() == "reading\n"
        time.sleep(0.1)
        os.kill(running.pid, sign)
        _, err = running.communicate(timeout=300)
    assert running.returncode == 2
    assert "'may' is charged and has no result yet" in err
    assert "same id" in err
    code, out, _ = hetdp_command(*MEAN, "--spend", 0.1, "--release-id", "may", "--json")
    assert code == 0
    assert json.loads(out)["ledger"]["most_charged"] == 0.1
    with Ledger(ledger) as opened:
        assert opened.verify().charges == 1


def test_a_table_with_semicolons_is_enrolled(hetdp_command, tmp_path):
    table = tmp_path / "people.csv"
    table.write_text("id;budget\na;1,5\nb;2\n", encoding="utf-8")
    hetdp_command("ledger", "init", tmp_path / "b.db")
    asked = ("ledger", "enroll", tmp_path / "b.db", table, "--person", "id", "--budget", "budget")
    assert hetdp_command(*asked, "--delimiter", ";", "--decimal", ",")[0] == 0
    assert "1.5" in hetdp_command("ledger", "balance", tmp_path / "b.db", "a")[1]


def test_a_release_that_cannot_be_written_is_said_to_be_stored(hetdp_command, tmp_path):
    table = tmp_path / "rows.csv"
    table.write_text("id,x\na,0.5\nb,0.25\n", encoding="utf-8")
    hetdp_command("ledger", "init", tmp_path / "b.db")
    hetdp_command("ledger", "enroll", tmp_path / "b.db", "--id", "a", "--id", "b", "--budget", "1")
    asked = (
        "mean",
        table,
        "--value",
        "x",
        "--bounds",
        "0",
        "1",
        "--person",
        "id",
        "--rows",
        "average",
        "--missing",
        "midpoint",
        "--ledger",
        tmp_path / "b.db",
    )
    rest = ("--spend", "0.5", "--release-id", "may", "--json")
    code, _, err = hetdp_command(*asked, *rest, "-o", "/dev/full", "--force")
    assert code == 2
    assert "the same --release-id gives it again" in err
    assert json.loads(hetdp_command(*asked, *rest)[1])["ledger"]["release_id"] == "may"
    assert hetdp_command("ledger", "history", tmp_path / "b.db")[1].count("charged") == 1


def test_history_and_dry_run_speak_of_those_who_answered_in_units_of_the_values(ledger, hetdp_command):
    """The result of such a release is several shares, and its estimate a quotient of two of them."""
    words = [word if word != "midpoint" else "estimate" for word in MEAN]
    dry = hetdp_command(*words, "--share", 0.5, "--release-id", "may", "--dry-run")[1]
    predicted = [float(found) for found in re.findall(r"± ([\d.]+) if \d+% answer", " ".join(dry.split()))]
    facts = json.loads(hetdp_command(*words, "--share", 0.5, "--release-id", "may", "--json")[1])
    errors = [each["error"] for each in facts["error_by_share_answered"]]
    assert len(errors) == 3, "of everybody, four fifths and half"
    assert predicted == pytest.approx(errors, rel=0.1)
    assert all(error <= shown for error, shown in zip(errors, predicted, strict=True)), "rounded up"
    (found,) = [row for row in json.loads(hetdp_command("ledger", "history", "b.db", "--json")[1]) if row["estimate"]]
    assert found["estimate"] == facts["estimate"]
    assert f"may: result {facts['estimate']:.6g}" in hetdp_command("ledger", "history", "b.db")[1]
