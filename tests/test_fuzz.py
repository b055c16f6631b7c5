"""Fuzzing with a corpus and fixed budgets: file readers, private cells, tally files, ledger files, the command line.

The targets and their promises are in `fuzz/`. Here each replays its corpus, and then runs for a fixed number of inputs
from a fixed seed, guided by the branches it takes (atheris). Controls plant a bug and see the same budget find it.
The API has the same in `test_server_schema.py`: schemathesis, at most twelve inputs that its description allows and
twelve that it forbids for each operation, the same ones every time.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import hetdp
from fuzz import ledgers, make_corpus, plants
from fuzz.oracle import FOLDER, said, sound
from fuzz.run import INSTRUMENTED
from fuzz.targets import CORPUS, TARGETS

TESTS = Path(__file__).parent
BROKEN = 77
SEEDS = [(name, path) for name, target in TARGETS.items() for path in target.seeds()]


def fuzzed(folder, name, *options):
    """Run a target in a process of its own; return its exit code and what it reported."""
    command = [sys.executable, "-m", "fuzz.run", name, *options]
    paths = os.pathsep.join(filter(None, [str(TESTS), os.environ.get("PYTHONPATH")]))
    with tempfile.TemporaryDirectory(dir=FOLDER) as place:
        settings = {"PYTHONPATH": paths, "PYTHONHASHSEED": "0", "TMPDIR": place}
        run = subprocess.run(command, cwd=folder, env=os.environ | settings, capture_output=True, check=False)
    return run.returncode, "".join(stream.decode(errors="replace")[-6000:] for stream in (run.stdout, run.stderr))


@pytest.mark.parametrize(("name", "path"), SEEDS, ids=[f"{path.parent.name}-{path.name}" for _, path in SEEDS])
def test_every_input_of_the_corpus_keeps_the_promise(name, path):
    TARGETS[name].check(path.read_bytes())


@pytest.mark.parametrize("name", TARGETS)
def test_a_fixed_budget_of_new_inputs_breaks_nothing(name, tmp_path):
    """Nothing but a sound result or one line of our own; a run that ends early does not count."""
    code, report = fuzzed(tmp_path, name)
    assert code == 0, report
    assert f"Done {TARGETS[name].runs} runs" in report


@pytest.mark.parametrize("bug", plants.PLANTS)
def test_control_the_same_budget_finds_a_planted_bug(bug, tmp_path):
    plant = plants.PLANTS[bug]
    code, report = fuzzed(tmp_path, plant.target, "--plant", bug)
    assert code == BROKEN, report
    assert plant.report in report
    assert [path for path in tmp_path.iterdir() if path.name.startswith("crash-")], "the input is left for a look"


def test_the_corpus_is_small_and_every_file_of_it_is_used():
    files = [path for path in CORPUS.rglob("*") if path.is_file()]
    assert sorted(files) == sorted(path for _, path in SEEDS)
    assert sum(path.stat().st_size for path in files) < 40_000
    assert INSTRUMENTED.keys() == TARGETS.keys()


def test_the_corpus_gets_past_the_first_door():
    """Not only refusals: of each kind of file some are read, so that a change to them goes deep."""
    for folder in ("csv", "ndjson", "gz", "parquet", "ipc"):
        results = [
            said(lambda path=path: hetdp.read(path, value="x", missing="midpoint", epsilon="e", bounds=(0, 1)))
            for path in sorted((CORPUS / folder).iterdir())
        ]
        tallies = [result for result in results if isinstance(result, hetdp.Tally)]
        assert 0 < len(tallies) < len(results)
        for tally in tallies:
            sound(tally)


def test_the_ledger_that_is_damaged_is_whole_before():
    """If this fails after a change of the schema, make a new one: cd tests && python -m fuzz.make_corpus."""
    balances, history, verified = ledgers.whole()
    assert [(row.person, row.left) for row in balances] == [("a", 0.9), ("b", 0.4), ("c", float("inf")), ("d", 1.9)]
    assert (len(history), verified.charges, verified.results) == (4, 1, 1)


def test_the_damages_of_the_ledger_are_those_of_the_script():
    """The bytes of Parquet and Arrow files depend on the library that writes them; these do not."""
    for name, data in make_corpus.damages().items():
        assert (CORPUS / "ledger" / name).read_bytes() == data, name
