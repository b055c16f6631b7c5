"""JSON lines: a value is private whatever it is, and the keys of a line are layout."""

from __future__ import annotations

import pytest

import hetdp
from hetdp.core.domain import GRID
from hetdp.privacy import release as _release
from refusals import MARKER, refused
from support import timeless

MIDPOINT = GRID // 2
COLUMNS = {"value": "x", "missing": "none", "epsilon": "e", "bounds": (0, 1)}
TABLE = ("--value", "x", "--epsilon", "e", "--bounds", "0", "1")


def records(cell, n=300):
    """A file of JSON lines in which one person's value is this text."""
    people = "".join(f'{{"id": "p{i}", "x": 0.5, "e": 1}}\n' for i in range(n))
    return people + f'{{"id": "odd", "x": {cell}, "e": 1}}\n'


BROKEN = ["[redacted", "x]", "]", "}", "{", "[[1, 2", "1]]", "{redacted}}", "[1, [2]", f"[{MARKER}", f"{MARKER}]", "[,"]


@pytest.mark.parametrize("command", ["mean", "check", "tally"])
def test_row_106_a_value_that_is_no_json_changes_no_exit_code_and_no_word(
    command, tmp_path, hetdp_command, monkeypatch
):
    monkeypatch.setattr(_release, "noisy", lambda *_: 10**12)
    more = {"tally": ("-o", tmp_path / "t.tally", "--force")}.get(command, ())
    more += () if command == "check" else ("--missing", "none")
    path, seen = tmp_path / "people.ndjson", set()
    for cell in ("null", *BROKEN):
        path.write_text(records(cell))
        code, out, err = hetdp_command(command, path, *TABLE, *more)
        assert (code, err) == (0, ""), cell
        if command != "check":  # which is for the owner, and tells what is missing and what cannot be read
            seen.add(timeless(out))
        tally = hetdp.read(path, **COLUMNS)
        assert (tally.n, tally.table.total[:, 0].tolist()) == (301, [301 * MIDPOINT])
    assert len(seen) <= 1


def test_row_106_control_a_record_without_its_braces_is_still_refused(tmp_path):
    path = tmp_path / "people.ndjson"
    for line in ('{"x": 1, "e": 1', '"x": 1, "e": 1}', '{"x": "1, "e": 1}', f"[{MARKER}, 1]"):
        path.write_text('{"x": 1, "e": 1}\n' + line + "\n")
        refused(lambda: hetdp.read(path, **COLUMNS), "line 2 of")


MISSPELT = {"value": "value", "epsilon": "epsilon", "person": "person", "by": "by"}


@pytest.mark.parametrize("option", MISSPELT)
def test_row_113_a_record_without_a_key_that_is_asked_for_is_refused_by_its_line(option, tmp_path):
    path = tmp_path / "people.ndjson"
    record = f'{{"x": {MARKER}, "e": 1, "p": "a", "g": "u"}}\n'
    ask = {**COLUMNS, **{"person": {"person": "p"}, "by": {"by": "g"}}.get(option, {})}
    if option == "by":
        ask["public_columns"] = ["g"]
    path.write_text(record)
    hetdp.mean(path, **ask)
    path.write_text(record + record.replace(f'"{ask[option]}":', '"other":').replace('"a"', '"b"'))
    refused(lambda: hetdp.mean(path, **ask), "line 2 of", f"no key {ask[option]!r}")


def test_row_113_a_misspelt_value_does_not_turn_everybody_into_the_midpoint(tmp_path, hetdp_command, monkeypatch):
    monkeypatch.setattr(_release, "noisy", lambda *_: pytest.fail("noise was drawn"))
    path = tmp_path / "people.ndjson"
    path.write_text(records("0.5"))
    options = ("--value", "X", *TABLE[2:])
    code, out, err = hetdp_command("mean", path, *options, "--missing", "none")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "line 1 of" in err
    assert "'X'" in err
    code, out, _ = hetdp_command("check", path, *options)
    assert (code, "301 of 301 values are missing" in out) == (0, True), "the owner is told"


def test_row_113_control_null_is_a_missing_value_and_other_keys_may_be_missing(tmp_path):
    path = tmp_path / "people.ndjson"
    path.write_text('{"x": null, "e": 1, "note": 1}\n{"x": 0, "e": 1}\n')
    assert hetdp.read(path, **COLUMNS).table.total[:, 0].tolist() == [MIDPOINT]


def test_row_113_a_record_without_the_value_is_missing_if_it_was_said_what_that_counts_as(tmp_path):
    path = tmp_path / "people.ndjson"
    path.write_text('{"x": 0, "e": 1}\n{"e": 1}\n')
    found = {said: hetdp.read(path, **{**COLUMNS, "missing": said}).table for said in ("midpoint", 1, "drop")}
    assert {said: (table.count.sum(), table.total.sum()) for said, table in found.items()} == {
        "midpoint": (2, MIDPOINT),
        1: (2, GRID),
        "drop": (1, 0),
    }
    refused(lambda: hetdp.read(path, **COLUMNS), "line 2 of", "no key 'x'")
    one = hetdp.ask.histogram(edges=[0, 1])
    refused(lambda: hetdp.read(path, value="x", epsilon="e", statistic=one), "line 2 of", "no key 'x'")
