"""The same people in two tallies: never counted twice, and nothing claimed that is not known."""

from __future__ import annotations

import copy
import json
import shutil

import pytest

import hetdp
from hetdp.privacy import release as _release
from hetdp.tally import PROMISED
from refusals import refused

COLUMNS = {"value": "x", "missing": "midpoint", "epsilon": "e", "bounds": (0, 1)}


def two():
    """Two tallies with the same contents, read one after the other: of two sites, perhaps."""
    return [hetdp.read([0.25, 0.75], epsilon=[1, 2], bounds=(0, 1)) for _ in range(2)]


def test_row_103_a_tally_or_a_copy_of_its_file_is_never_counted_twice(tmp_path):
    one, other = two()
    one.save(tmp_path / "one.tally")
    shutil.copy(tmp_path / "one.tally", tmp_path / "copy.tally")
    copies = [*(hetdp.Tally.load(tmp_path / name) for name in ("one.tally", "copy.tally")), copy.deepcopy(one)]
    (one + other).save(tmp_path / "merged.tally")
    merged = hetdp.Tally.load(tmp_path / "merged.tally")
    for a, b in [(one, one), (one, copies[0]), (copies[0], copies[1]), (one, copies[2]), (one + other, one),
                 (merged, copies[1]), (merged, one + other), (two()[0] + merged, other)]:  # fmt: skip
        for pair in ((a, b), (b, a)):
            refused(lambda pair=pair: pair[0] + pair[1], "twice")


def test_row_103_control_equal_contents_are_never_compared():
    """A refusal would tell two sites that their sums are equal."""
    one, other = two()
    assert one == other
    assert one.identities.isdisjoint(other.identities)
    assert (one + other).table.total[:, 0].tolist() == (2 * one.table.total[:, 0]).tolist()
    assert len((one + other).identities) == 2


def test_row_103_whoever_merges_promises_and_nothing_else_is_claimed_about_the_people(tmp_path, hetdp_command):
    """Each part was checked for ids; that does not make it checked that nobody is in two of them."""
    names = []
    for i in range(3):
        (tmp_path / f"{i}.csv").write_text("id,x,e\n" + "".join(f"p{j},0.5,1\n" for j in range(200)))
        tally = hetdp.read(tmp_path / f"{i}.csv", **COLUMNS, person="id")
        names.append(tmp_path / f"{i}.tally")
        tally.save(names[-1])
    parts = [hetdp.Tally.load(name) for name in names]
    assert all(part.notes != (PROMISED,) for part in parts)
    assert (parts[0] + parts[1]).notes == (parts[0] + parts[1] + parts[2]).notes == (PROMISED,)
    code, out, err = hetdp_command("mean", *names, "--disjoint-people", "--json")
    facts = json.loads(out)
    assert (code, err, facts["n"]) == (0, "", 600)
    said = [sentence for sentence in facts["assumptions"] if "once" in sentence or "merged" in sentence]
    assert said == [PROMISED]
    assert "sum of both" in PROMISED


def test_row_103_the_command_line_refuses_a_copy_of_a_tally(tmp_path, hetdp_command, monkeypatch):
    monkeypatch.setattr(_release, "noisy", lambda *_: pytest.fail("noise was drawn"))
    two()[0].save(tmp_path / "a.tally")
    shutil.copy(tmp_path / "a.tally", tmp_path / "copy.tally")
    code, out, err = hetdp_command("mean", tmp_path / "a.tally", tmp_path / "copy.tally", "--disjoint-people")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "share people" in err
