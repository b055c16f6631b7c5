"""Tallies: what they are a tally of, and files that stay readable."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

import hetdp
from hetdp.core.domain import GRID
from hetdp.statistics.mean import Mean
from hetdp.tally import Tally

OLD = Path(__file__).parents[1] / "old" / "tally-3.json"
VALUES, EPSILON = [0.25, -3, None, 4, 1e9, "x", 1 / 3], [0, 0.1, 0.1, 1.5, math.inf, 1.5, 0.1]


def fields_of(path):
    return json.loads(json.loads(path.read_text())["body"])


def test_a_file_of_version_3_means_what_it_meant():
    tally = hetdp.Tally.load(OLD)
    assert fields_of(OLD)["format"] == "hetdp-tally-3"
    assert tally == hetdp.read(VALUES, epsilon=EPSILON, bounds=(-1, 5), missing="midpoint")
    assert tally.table.total[:, 0].tolist() == fields_of(OLD)["total"]
    assert tally.levels.names == {0: "never", 0.1: "strict", 1.5: "open", math.inf: "public"}
    assert tally.identities == {"51339b081164faae456efffa94fc47c0"}
    assert tally.notes == ("Every row is another person; nobody checked it, because no column of ids was named.",)
    assert tally.statistic == Mean((-1, 5))


def test_a_file_of_version_3_saved_again_is_of_version_5_with_nothing_lost(tmp_path):
    hetdp.Tally.load(OLD).save(tmp_path / "t.json")
    old, new = fields_of(OLD), fields_of(tmp_path / "t.json")
    kind = {"format": "hetdp-tally", "version": 5, "statistic": "mean", "measure": "pure-epsilon", "wide": False}
    bounds = old.pop("bounds")
    bare = {"about": {"columns": [], "sources": []}}  # an old file does not say
    parameters = {"bounds": bounds, "missing": "midpoint"}  # which is what a missing value counted as
    assert new == {**old, **kind, "parameters": parameters, "total": [[total] for total in old["total"]], **bare}
    assert hetdp.Tally.load(tmp_path / "t.json") == hetdp.Tally.load(OLD)
    with pytest.raises(hetdp.InputError, match="share people"):
        hetdp.Tally.load(tmp_path / "t.json") + hetdp.Tally.load(OLD)


def test_tallies_of_different_statistics_are_not_equal_do_not_merge_and_are_not_released_as_a_mean():
    mean = hetdp.read([0.5], epsilon=[1.0], bounds=(0, 1))
    other = Tally(mean.table, hetdp.ask.sum(bounds=(0, 1)))
    assert mean != other
    with pytest.raises(hetdp.InputError, match="different statistics"):
        mean + other
    with pytest.raises(hetdp.InputError, match="for a mean"):
        hetdp.release(other, hetdp.plan(mean.levels, bounds=(0, 1)))


def test_the_sums_of_a_mean_have_one_column():
    table = hetdp.read([0.5, 1.0], epsilon=[1.0, 2.0], bounds=(0, 1)).table
    assert table.total.tolist() == [[GRID // 2], [GRID]]
