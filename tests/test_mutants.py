"""Every planted bug of `mutants.py` is noticed by the test that it names, and without a bug those tests pass."""

from __future__ import annotations

import compileall
import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from mutants import MUTANTS, PLAN, Mutant

ROOT = Path(__file__).parent.parent
FAILED, PASSED = 1, 0


@pytest.fixture(scope="session")
def package(tmp_path_factory):
    """A copy of the package, compiled once."""
    copy = tmp_path_factory.mktemp("package") / "src"
    shutil.copytree(ROOT / "src", copy, ignore=shutil.ignore_patterns("__pycache__"))
    compileall.compile_dir(copy, quiet=1)
    return copy


@pytest.fixture(scope="session")
def run_tests(tmp_path_factory):
    """A function that runs tests against the package in a folder: pytest's exit code and what it said."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    settings = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    said = tmp_path_factory.mktemp("warm") / "said.txt"

    def run(source, nodes):
        warm.stdin.write(json.dumps([str(source), list(nodes), str(said)]) + "\n")
        warm.stdin.flush()
        return int(warm.stdout.readline()), said.read_text(encoding="utf-8", errors="replace")

    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    command = [sys.executable, Path(__file__).parent / "warm.py"]
    with subprocess.Popen(command, cwd=ROOT, env=kept | settings, text=True, **pipes) as warm:
        yield run
        warm.stdin.close()


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_named_test_notices_the_planted_bug(mutant, package, run_tests, tmp_path):
    """Noticed is a failure of that test; a copy that cannot even be imported does not count."""
    copy = tmp_path / "src"
    shutil.copytree(package, copy)
    place = copy / "hetdp" / mutant.file
    place.write_text(mutant.applied(place.read_text(encoding="utf-8")), encoding="utf-8")
    code, said = run_tests(copy, [mutant.killer])
    assert code == FAILED, said


KILLERS = sorted({mutant.killer for mutant in MUTANTS})


@pytest.mark.parametrize("part", range(4))
def test_without_a_bug_the_same_tests_pass_on_the_same_copy(part, package, run_tests, tmp_path):
    """Control: it is the bug that fails the test. The copy is what is tested, not the package beside it."""
    code, said = run_tests(package, KILLERS[part::4])
    assert code == PASSED, said
    where = tmp_path / "test_where.py"
    where.write_text(
        f"import hetdp\n\ndef test_where():\n    assert hetdp.__file__ == {str(package / 'hetdp' / '__init__.py')!r}\n"
    )
    code, said = run_tests(package, [str(where)])
    assert code == PASSED, said


def test_there_are_many_and_no_two_are_the_same():
    assert len(MUTANTS) >= 50
    for kind in ("name", "new"):
        assert max(Counter((m.file, getattr(m, kind)) for m in MUTANTS).values()) == 1


def test_a_mutant_whose_text_has_gone_fails():
    gone = Mutant("gone", "privacy/exact.py", PLAN, old="no such text", new="")
    with pytest.raises(LookupError, match="0 times"):
        gone.applied((ROOT / "src" / "hetdp" / gone.file).read_text(encoding="utf-8"))
