"""Eight processes release at once and are killed at random points: never one result without its charge.

The harness and the two known-bad ledgers are in `ledger_harness.py`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest

import postgres
from ledger_harness import ALLOWED

HARNESS = Path(__file__).parents[1] / "ledger_harness.py"
KILLS = 200
KILLS_A_ROUND = 40

pytestmark = pytest.mark.stress


def attacked(kind, where, folder, kills, seed):
    """The facts of one round."""
    folder.mkdir()
    command = [sys.executable, HARNESS, kind, where, folder, str(kills), str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def rounds(tmp_path, fresh):
    """Facts of as many rounds, each with a fresh ledger of a hundred releases, as 200 kills take."""
    found = []
    while sum(facts["killed"] for facts in found) < KILLS:
        with fresh(len(found)) as where:
            found.append(attacked("real", where, tmp_path / f"round{len(found)}", KILLS_A_ROUND, len(found)))
        assert len(found) < 20, found
    return found


def test_sqlite_never_lets_a_result_out_without_its_charge(tmp_path):
    found = rounds(tmp_path, lambda i: nullcontext(tmp_path / f"budgets{i}.db"))
    assert [facts["faults"] for facts in found] == [[]] * len(found)
    assert [facts["failed"] for facts in found] == [0] * len(found)
    assert all(facts["outputs"] <= ALLOWED for facts in found)


@contextmanager
def durable_database(_):
    with postgres.server(fsync="on", full_page_writes="on", synchronous_commit="on") as running:
        yield running.url()


def test_postgresql_never_lets_a_result_out_without_its_charge(tmp_path):
    found = rounds(tmp_path, durable_database)
    assert [facts["faults"] for facts in found] == [[]] * len(found)
    assert [facts["failed"] for facts in found] == [0] * len(found)
    assert all(facts["outputs"] <= ALLOWED for facts in found)


GUILTY = {
    "read-check-write": "more results left than the budget allows",
    "release-before-charge": "a result left without its charge",
}


@pytest.mark.parametrize("kind", GUILTY)
def test_control_a_known_bad_ledger_is_found_guilty(tmp_path, kind):
    """Read, check, write overspends by its races; charging after the release loses charges to kills."""
    facts = attacked(kind, tmp_path / "bad.db", tmp_path / "round", 25, 1)
    assert GUILTY[kind] in facts["faults"]
