"""The command line: what it prints, and that no value can change anything but the number."""

from __future__ import annotations

import io
import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest

import hetdp
from hetdp.privacy import release as _release
from support import EXTREME_VALUES, UNIT, timeless

PEOPLE = "id,income,eps\n" + "".join(f"p{i},{1000 * i},{eps}\n" for i, eps in enumerate([0.1, 0.5, "public"] * 40))
READERS_NEED = (
    "Estimate|95% interval|People|120|ADPM|ε asked|ε spent|ε free|Weight each|Share|Saturation|Noise|worst case|"
    "of the range|everybody at the smallest ε|weights proportional to ε|must not depend on the value|"
    "mean μ of values clipped to|known or unknown"
)
RANGE = ("--bounds", "0", "1")
MISSING = ("--missing", "midpoint")
MEAN = ("--value", "income", *MISSING, "--epsilon", "eps", "--bounds", "0", "100000")


@pytest.fixture
def people(tmp_path):
    path = tmp_path / "people.csv"
    path.write_text(PEOPLE)
    return path


def test_mean_prints_everything_a_reader_needs(hetdp_command, people):
    code, out, err = hetdp_command("mean", people, *MEAN)
    assert (code, err) == (0, "")
    for word in READERS_NEED.split("|"):
        assert word in out, word


@pytest.mark.parametrize("command", ["mean", "plan", "check"])
def test_a_dash_reads_standard_input_and_leaves_no_copy(command, hetdp_command, people, monkeypatch, tmp_path):
    """Control: without the dash nothing is read from there."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    options = [*MEAN, "--json"] if command == "mean" else [word for word in MEAN if word not in MISSING]
    codes = []
    for source in ("-", people):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(people.read_bytes())))
        code, out, err = hetdp_command(command, source, *options)
        codes.append((code, err, json.loads(out)["n"] if command == "mean" else len(out.splitlines())))
        assert (sys.stdin.buffer.read() == b"") == (source == "-")
    assert codes[0] == codes[1]
    assert codes[0][:2] == (0, "")
    assert [path for path in tmp_path.iterdir() if path.name.startswith("hetdp-")] == []


def test_json_is_strict_and_says_the_same(hetdp_command, people):
    code, out, _ = hetdp_command("mean", people, *MEAN, "--json")

    def refuse(text):
        raise AssertionError(f"not JSON: {text}")

    facts = json.loads(out, parse_constant=refuse)
    assert code == 0
    assert facts["n"] == 120
    assert facts["tiers"][-1]["epsilon"] == "inf"
    assert facts["interval"]["guaranteed"][0] <= facts["estimate"] <= facts["interval"]["guaranteed"][1]
    assert facts["threshold"] == hetdp.plan({0.1: 40, 0.5: 40, float("inf"): 40}, bounds=UNIT).threshold


@pytest.mark.parametrize("suffix", ["txt", "json", "html"])
def test_output_goes_to_a_file_of_the_kind_its_name_says(hetdp_command, people, tmp_path, suffix):
    target = tmp_path / f"report.{suffix}"
    assert hetdp_command("mean", people, *MEAN, "--output", target) == (0, "", "")
    written = target.read_text()
    assert {"txt": "Saturation", "json": '"threshold"', "html": "<table"}[suffix] in written


@pytest.mark.parametrize(
    ("extra", "used"),
    [((), "parts"), (("--json",), "to_dict"), (("-o", "r.html"), "parts"), (("-o", "r.json"), "to_dict")],
    ids=["text", "JSON", "page", "JSON file"],
)
def test_only_the_form_that_is_asked_for_is_computed(hetdp_command, people, tmp_path, monkeypatch, extra, used):
    """A certificate and a frontier take longer than a release: nobody waits for a report that nobody sees."""
    monkeypatch.chdir(tmp_path)
    for form in {"parts", "to_dict"} - {used}:
        monkeypatch.setattr(hetdp.Release, form, lambda *_, form=form: pytest.fail(f"{form} was computed"))
    assert hetdp_command("mean", people, *MEAN, *extra)[0] == 0


@pytest.mark.parametrize(("terminal", "widest"), [(True, 60), (False, 100)])
def test_a_report_is_as_wide_as_the_terminal(hetdp_command, monkeypatch, terminal, widest):
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal, raising=False)
    code, out, _ = hetdp_command("plan", "--tier", "a=0.1:700", "--tier", "b=1:300", "--bounds", 0, 1)
    sentences = out[out.index("Saturation") :].splitlines()
    assert code == 0
    assert widest - 12 < max(map(len, sentences)) <= widest


WRONG_TOGETHER = {
    "a charge without a ledger": (
        ("FILE", *MEAN, "--spend", "1", "--share-left", "1"),
        "a ledger takes --spend, --share-left;",
    ),
    "a table without its columns": (
        ("FILE", "--value", "income", "--missing", "midpoint"),
        "a table needs --epsilon, --bounds",
    ),
    "a tally and bounds": (("TALLY", "--bounds", "0", "1"), "leave out --bounds"),
    "a tally and a ledger": (("TALLY", "--ledger", "b.db", "--spend", "1"), "leave out --ledger, --spend"),
    "a ledger and an ε": (("FILE", *MEAN, "--ledger", "b.db"), "leave out --epsilon"),
    "a ledger without an id": (("FILE", "--bounds", "0", "1", "--ledger", "b.db"), "needs --release-id, --person"),
    "a ledger and one row": (
        ("FILE", "--bounds", "0", "1", "--ledger", "b.db", "--release-id", "a", "--person", "id", "--rows", "one"),
        "leave out --rows one",
    ),
}


@pytest.mark.parametrize(("words", "says"), WRONG_TOGETHER.values(), ids=WRONG_TOGETHER)
def test_options_that_do_not_go_together_are_named(hetdp_command, people, tmp_path, words, says):
    assert hetdp_command("tally", people, *MEAN, "-o", tmp_path / "a.tally")[0] == 0
    names = {"FILE": people, "TALLY": tmp_path / "a.tally"}
    code, out, err = hetdp_command("mean", *(names.get(word, word) for word in words))
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert says in err


def test_a_missing_option_is_explained(hetdp_command):
    err = hetdp_command("plan", "--tier", "a=1:5")[2]
    assert "a mean needs --bounds" in err


def test_an_existing_output_is_refused_before_anything_is_drawn(hetdp_command, people, tmp_path, monkeypatch):
    monkeypatch.setattr(_release, "noisy", lambda *_: pytest.fail("noise was drawn"))
    taken = tmp_path / "taken.txt"
    taken.write_text("mine")
    for target in (taken, tmp_path / "no folder" / "x", tmp_path):
        code, out, err = hetdp_command("mean", people, *MEAN, "--output", target)
        assert (code, out, err.count("\n")) == (2, "", 1)
    assert taken.read_text() == "mine"


def test_a_refused_release_leaves_no_file_behind(hetdp_command, people, tmp_path):
    """An empty file would make the corrected command be refused because the output exists."""
    target = tmp_path / "report.txt"
    wrong = ("--value", "wage", "--missing", "midpoint", "--epsilon", "eps", "--bounds", "0", "1")
    assert hetdp_command("mean", people, *wrong, "--output", target)[0] == 2
    assert not target.exists()
    assert hetdp_command("mean", people, *MEAN, "--output", target)[0] == 0


def test_the_input_is_never_overwritten(hetdp_command, people):
    code, _, err = hetdp_command("mean", people, *MEAN, "--output", people, "--force")
    assert code == 2
    assert "input file" in err
    assert people.read_text() == PEOPLE


def test_a_page_is_whole_and_has_the_target(hetdp_command, tmp_path):
    page = tmp_path / "plan.html"
    assert hetdp_command("plan", "--tier", "a=0.1:700", *RANGE, "--target-error", "0.001", "-o", page)[0] == 0
    text = page.read_text(encoding="utf-8")
    assert text.startswith("<!doctype html>")
    assert 'charset="utf-8"' in text
    assert "Target" in text


@pytest.mark.slow
def test_a_terminal_that_cannot_show_epsilon_does_not_lose_the_release(people):
    for encoding in ("cp1252", "ascii"):
        for extra in ((), ("--json",)):
            words = [sys.executable, "-m", "hetdp", "mean", str(people), *MEAN, *extra]
            run = subprocess.run(
                words, env={**os.environ, "PYTHONIOENCODING": encoding}, capture_output=True, check=False
            )
            assert run.returncode == 0, run.stderr
            assert b"stimate" in run.stdout


def test_a_bound_on_the_variance_is_said_wherever_it_matters(hetdp_command):
    out = hetdp_command("plan", "--tier", "a=0.1:700", "--bounds", "0", "100", "--variance", "25")[1]
    assert "if the standard deviation of a value is at most 5" in " ".join(out.split())
    assert "The variance of a value is at most what was stated" in " ".join(out.split())
    assert "for any distribution" not in out


def test_an_answer_without_data_says_so_first(hetdp_command, tmp_path):
    path = tmp_path / "one.csv"
    path.write_text("x,eps\n3,0.1\n")
    out = hetdp_command(
        "mean", path, "--value", "x", "--missing", "midpoint", "--epsilon", "eps", "--bounds", "0", "5"
    )[1]
    assert "NOT from the data" in " ".join(out.splitlines()[:2])


def cells(bounds=(0, 100000)):
    numbers = [*EXTREME_VALUES, *bounds, sum(bounds) / 2, 98765.4321]
    return [
        *map(repr, numbers),
        "",
        "NA",
        "98765.4321x",
        '""""',
        '"""unclosed"',
        '"1,5"',
        'in"ch',
        "=1+1",
        "\x00",
        "é",
        "1e999",
        "true",
    ]


def public_output(hetdp_command, tmp_path, cell, *options):
    path = tmp_path / "people.csv"
    path.write_text(PEOPLE.replace("p7,7000,", f"p7,{cell},"), encoding="utf-8")
    code, out, err = hetdp_command("mean", path, *MEAN, *options)
    return code, timeless(out), err


@pytest.mark.slow
@pytest.mark.parametrize("options", [(), ("--json",)])
def test_values_reach_the_output_only_through_the_noisy_integer(hetdp_command, tmp_path, monkeypatch, options):
    """With the noisy integer held fixed, output, messages and exit code are the same bytes for any value."""
    monkeypatch.setattr(_release, "noisy", lambda *_: 10**12)
    seen = {public_output(hetdp_command, tmp_path, cell, *options) for cell in cells()}
    assert len(seen) == 1
    assert seen.pop()[0] == 0


@pytest.mark.slow
def test_that_check_notices_a_message_about_values(hetdp_command, tmp_path, monkeypatch):
    """Control: a release that counts missing values in its report is caught by the same comparison."""
    honest = _release.release

    def telling(tally, plan):
        print("total", tally.table.total.sum())
        return honest(tally, plan)

    monkeypatch.setattr(_release, "noisy", lambda *_: 10**12)
    monkeypatch.setattr("hetdp.questions.release", telling)
    assert len({public_output(hetdp_command, tmp_path, cell) for cell in cells()}) > 1


BAD = {
    "no command": (),
    "unknown command": ("average",),
    "unknown option": ("mean", "FILE", *MEAN, "--seed", "1"),
    "no bounds": ("mean", "FILE", "--value", "income", "--missing", "midpoint", "--epsilon", "eps"),
    "text bounds": (
        "mean",
        "FILE",
        "--value",
        "income",
        "--missing",
        "midpoint",
        "--epsilon",
        "eps",
        "--bounds",
        "0,5",
        "1",
    ),
    "equal bounds": (
        "mean",
        "FILE",
        "--value",
        "income",
        "--missing",
        "midpoint",
        "--epsilon",
        "eps",
        "--bounds",
        "1",
        "1",
    ),
    "infinite bounds": (
        "mean",
        "FILE",
        "--value",
        "income",
        "--missing",
        "midpoint",
        "--epsilon",
        "eps",
        "--bounds",
        "0",
        "inf",
    ),
    "no such file": ("mean", "nowhere.csv", *MEAN),
    "no such column": (
        "mean",
        "FILE",
        "--value",
        "wage",
        "--missing",
        "midpoint",
        "--epsilon",
        "eps",
        "--bounds",
        "0",
        "1",
    ),
    "no such method": ("mean", "FILE", *MEAN, "--method", "magic"),
    "bad variance": ("mean", "FILE", *MEAN, "--variance", "-1"),
    "bad confidence": ("mean", "FILE", *MEAN, "--confidence", "1"),
    "same column": (
        "mean",
        "FILE",
        "--value",
        "eps",
        "--missing",
        "midpoint",
        "--epsilon",
        "eps",
        "--bounds",
        "0",
        "1",
    ),
    "unknown tier": ("mean", "FILE", *MEAN, "--tier", "strict=0.1"),
    "plan without bounds": ("plan", "--tier", "a=1:5"),
    "comparison without bounds": ("compare", "--tier", "a=1:5"),
    "bad tier": ("plan", "--tier", "strict", *RANGE),
    "tier without people": ("plan", "--tier", "strict=0.1", *RANGE),
    "tier with a bad ε": ("plan", "--tier", "strict=1e400:5", *RANGE),
    "tier twice": ("plan", "--tier", "a=1:5", "--tier", "a=2:5", *RANGE),
    "nobody": ("plan", "--tier", "a=1:0", *RANGE),
    "plan of nothing": ("plan", *RANGE),
    "plan without column": ("plan", "FILE", *RANGE),
    "bad target": ("plan", "--tier", "a=1:5", "--target-error", "-1", *RANGE),
}


@pytest.mark.parametrize("arguments", BAD.values(), ids=BAD)
def test_bad_input_is_one_line_and_exit_code_2(hetdp_command, people, arguments):
    code, out, err = hetdp_command(*(str(people) if a == "FILE" else a for a in arguments))
    if arguments:
        assert (code, out, err.count("\n")) == (2, "", 1), err
        assert err.startswith("hetdp: ")
    else:
        assert "Usage" in out + err
    assert "Traceback" not in err


def test_an_unforeseen_error_withholds_its_message(hetdp_command, people, monkeypatch):
    def broken(*_, **__):
        raise RuntimeError("the cell was 98765.4321")

    monkeypatch.setattr("hetdp.questions.release", broken)
    code, out, err = hetdp_command("mean", people, *MEAN)
    assert (code, out) == (1, "")
    assert "RuntimeError" in err
    assert "98765" not in err


def test_plan_answers_without_reading_a_value(hetdp_command, people):
    code, out, _ = hetdp_command("plan", people, "--epsilon", "eps", "--bounds", "0", "100000")
    assert code == 0
    for word in ("Saturation", "Frontier", "█", "worst case"):
        assert word in out


def test_the_target_is_what_it_takes(hetdp_command):
    """The people and the ε that `--target-error` names reach the target, and a little less does not."""
    arguments = ("plan", "--tier", "strict=0.1:700", "--tier", "open=1:300", "--bounds", "0", "10", "--json")
    code, out, _ = hetdp_command(*arguments, "--target-error", "0.19")
    target = json.loads(out)["target_error"]
    assert code == 0
    assert not target["reached"]

    def error(strict, open_, times=1.0):
        return hetdp.plan({strict: round(700 * times), open_: round(300 * times)}, bounds=(0, 10)).worst_case_error

    times = target["people"] / 1000
    assert error(0.1, 1, times * 1.003) < 0.19 < error(0.1, 1, times * 0.99)
    needs = {tier["epsilon"]: tier["needs"] for tier in target["tiers"]}
    assert error(needs[0.1] * 1.0001, 1) < 0.19 < error(needs[0.1] * 0.999, 1)
    assert needs[1.0] is None
    assert error(0.1, float("inf")) > 0.19


def test_a_target_that_is_met_or_out_of_reach_is_said(hetdp_command):
    tiers = ("--tier", "strict=0.1:700", "--tier", "open=inf:300", *RANGE)
    assert "already" in hetdp_command("plan", *tiers, "--target-error", "0.1")[1]
    assert "no ε is enough" in hetdp_command("plan", *tiers, "--target-error", "0.001")[1]
    assert "no number of people" in hetdp_command("plan", "--tier", "a=0:10", *RANGE, "--target-error", "0.001")[1]


def test_tiers_by_name_give_the_same_levels_as_numbers(hetdp_command, tmp_path):
    path = tmp_path / "tiers.csv"
    path.write_text("tier,x\n" + "strict,1\n" * 300 + "public,2\n" * 100)
    tiers = ("--tier", "strict=0.1", "--tier", "public=inf")
    code, out, _ = hetdp_command(
        "mean",
        path,
        "--value",
        "x",
        "--missing",
        "midpoint",
        "--epsilon",
        "tier",
        "--bounds",
        "0",
        "5",
        *tiers,
        "--json",
    )
    assert code == 0
    assert [(t["name"], t["epsilon"], t["people"]) for t in json.loads(out)["tiers"]] == [
        ("strict", 0.1, 300),
        ("public", "inf", 100),
    ]


def test_check_is_private_and_tells_where(hetdp_command, tmp_path):
    path = tmp_path / "people.csv"
    path.write_text("x,eps\n1,1\n,1\nabc,1\n-3,1\n99,1\n")
    code, out, _ = hetdp_command("check", path, "--value", "x", "--epsilon", "eps", "--bounds", "0", "5")
    assert code == 0
    assert out.startswith("PRIVATE")
    for line, kind in ((3, "missing"), (4, "not a number"), (5, "below"), (6, "above")):
        assert any(kind in text and f"(line {line})" in text for text in out.splitlines()), kind
    facts = json.loads(
        hetdp_command("check", path, "--value", "x", "--epsilon", "eps", "--bounds", "0", "5", "--json")[1]
    )
    assert facts["counts"] == {"missing": 1, "unreadable": 1, "below": 1, "above": 1, "odd": 0}


@pytest.mark.slow
def test_doctor_passes_here_and_fails_for_a_wrong_sampler(hetdp_command, monkeypatch):
    from hetdp.checks import doctor as _doctor

    fits = tuple(_doctor.Fit(scale, 20_000, 30.0, 0.4) for scale in _doctor.SCALES)
    monkeypatch.setattr(_doctor, "sampler_gate", lambda: fits)
    code, out, _ = hetdp_command("doctor")
    assert code == 0
    assert "right law" in out
    monkeypatch.setattr(_doctor, "sampler_gate", lambda: (*fits, _doctor.Fit(3.0, 20_000, 4000.0, 0.0)))
    code, out, _ = hetdp_command("doctor")
    assert code == 1
    assert "WRONG LAW" in out
    assert json.loads(hetdp_command("doctor", "--json")[1])["healthy"] is False


def test_a_public_mean_says_that_it_needed_no_noise(hetdp_command, tmp_path):
    path = tmp_path / "public.csv"
    path.write_text("x,eps\n1,public\n2,inf\n")
    out = hetdp_command(
        "mean", path, "--value", "x", "--missing", "midpoint", "--epsilon", "eps", "--bounds", "0", "5"
    )[1]
    first = out.splitlines()[0]
    assert first.startswith("Note")
    assert "no noise was needed" in first


def test_notebooks_get_html_with_names_escaped():
    levels = hetdp.Levels({0.1: 500, 1: 500}, names={0.1: "<script>alert(1)</script>"})
    for page in (
        hetdp.plan(levels, bounds=UNIT)._repr_html_(),
        hetdp.release(tally_of(levels), hetdp.plan(levels, bounds=UNIT))._repr_html_(),
    ):
        assert "<table" in page
        assert "<script>" not in page
        assert "&lt;script&gt;" in page


def tally_of(levels):
    people = [e for e, n in zip(levels.epsilon, levels.count, strict=True) for _ in range(n)]
    return hetdp.read([0.0] * len(people), epsilon=people, bounds=UNIT)


def test_a_plan_and_a_comparison_read_what_a_mean_reads(hetdp_command, tmp_path):
    table = tmp_path / "people.csv"
    table.write_text("x;e\n" + "1,5;0,5\n2;1\n" * 20, encoding="utf-8")
    form = ("--delimiter", ";", "--decimal", ",")
    for command in ("plan", "compare"):
        code, out, err = hetdp_command(command, table, "--epsilon", "e", "--bounds", "0", "3", *form, "--json")
        assert code == 0, err
        assert command == "compare" or json.loads(out)["n"] == 40


def test_a_plan_and_a_comparison_count_a_person_once(hetdp_command, tmp_path):
    """With ids a plan is the one of `mean`, from a file or a database; without, it says what it takes for people."""
    table, database = tmp_path / "visits.csv", tmp_path / "visits.db"
    visits = [(f"p{i}", 0.1 if i % 3 else 2.0) for i in range(60) for _ in range(i % 4 + 1)]
    table.write_text("who,x,e\n" + "".join(f"{who},1,{e}\n" for who, e in visits), encoding="utf-8")
    with closing(sqlite3.connect(database)) as made:
        made.execute("create table visits (who, x, e)")
        made.executemany("insert into visits values (?, 1, ?)", visits)
        made.commit()
    options = ("--epsilon", "e", "--bounds", "0", "3", "--json")
    mean = hetdp_command(
        "mean", table, "--value", "x", "--missing", "midpoint", "--person", "who", "--rows", "average", *options
    )[1]
    for source in ((table,), (f"sqlite:///{database}", "--query", "visits")):
        plan = json.loads(hetdp_command("plan", *source, "--person", "who", "--rows", "average", *options)[1])
        assert (plan["n"], plan["tiers"]) == (60, json.loads(mean)["tiers"])
        assert any("everybody counts once" in sentence for sentence in plan["assumptions"])
    rows = json.loads(hetdp_command("plan", table, *options)[1])
    assert rows["n"] == len(visits)
    assert any("every row is another person" in sentence for sentence in rows["assumptions"])
    compared = [hetdp_command("compare", table, "--person", "who", "--rows", "average", *options)[1]]
    compared.append(
        hetdp_command("compare", "--tier", "a=0.1:40", "--tier", "b=2:20", "--bounds", "0", "3", "--json")[1]
    )
    assert len({json.dumps(json.loads(out)["methods"]) for out in compared}) == 1
    code, _, err = hetdp_command("plan", table, "--person", "who", *options)
    assert (code, "on more than one row" in err) == (2, True)
    code, _, err = hetdp_command("plan", "--tier", "a=1:20", *RANGE, "--person", "who", "--rows", "average")
    assert (code, "columns belong to a table" in err) == (2, True)


def test_names_of_tiers_without_their_meaning_are_explained(hetdp_command, tmp_path):
    table = tmp_path / "people.csv"
    table.write_text("x,e\n1,gold\n", encoding="utf-8")
    _, _, err = hetdp_command(
        "mean", table, "--value", "x", "--missing", "midpoint", "--epsilon", "e", "--bounds", "0", "3"
    )
    assert "--tier NAME=ε" in err
    assert "gold" not in err


def test_a_release_that_cannot_be_printed_is_said_to_be_lost(hetdp_command, tmp_path):
    table = tmp_path / "people.csv"
    table.write_text("x,e\n" + "1,1\n" * 30, encoding="utf-8")
    table_of = ("--value", "x", "--missing", "midpoint", "--epsilon", "e", "--bounds", "0", "3")
    code, _, err = hetdp_command("mean", table, *table_of, "-o", "/dev/full", "--force")
    assert code == 2
    assert "No space left" in err
    assert "privacy is spent" in err
