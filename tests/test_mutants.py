"""Every planted bug of `mutants.py` is noticed by the test that it names, and without a bug those tests pass."""

from __future__ import annotations

import compileall
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
QUICK = ("-x", "-q", "--no-header", "-o", "addopts=", "-p", "no:cacheprovider")


@pytest.fixture(scope="session")
def package(tmp_path_factory):
    """A copy of the package, compiled once."""
    copy = tmp_path_factory.mktemp("package") / "src"
    shutil.copytree(ROOT / "src", copy, ignore=shutil.ignore_patterns("__pycache__"))
    compileall.compile_dir(copy, quiet=1)
    return copy


def run_tests(source, nodes):
    """Run tests against the package in a folder; return pytest's exit code and what it said."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    settings = {"PYTHONPATH": str(source), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", *QUICK, *nodes]
    run = subprocess.run(command, cwd=ROOT, env=kept | settings, capture_output=True, text=True, check=False)
    return run.returncode, run.stdout + run.stderr


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_named_test_notices_the_planted_bug(mutant, package, tmp_path):
    """Noticed is a failure of that test; a copy that cannot even be imported does not count."""
    copy = tmp_path / "src"
    shutil.copytree(package, copy)
    place = copy / "hetdp" / mutant.file
    place.write_text(mutant.applied(place.read_text(encoding="utf-8")), encoding="utf-8")
    code, said = run_tests(copy, [mutant.killer])
    assert code == FAILED, said


KILLERS = sorted({mutant.killer for mutant in MUTANTS})


@pytest.mark.parametrize("part", range(4))
def test_without_a_bug_the_same_tests_pass_on_the_same_copy(part, package):
    """Control: it is the bug that fails the test. The copy is what is tested, not the package beside it."""
    code, said = run_tests(package, KILLERS[part::4])
    assert code == PASSED, said
    where = "import hetdp; print(hetdp.__file__)"
    run = subprocess.run(
        [sys.executable, "-c", where], env=os.environ | {"PYTHONPATH": str(package)}, capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    assert Path(run.stdout.strip()) == package / "hetdp" / "__init__.py"


def test_there_are_many_and_no_two_are_the_same():
    assert len(MUTANTS) >= 50
    for kind in ("name", "new"):
        assert max(Counter((m.file, getattr(m, kind)) for m in MUTANTS).values()) == 1


def test_a_mutant_whose_text_has_gone_fails():
    gone = Mutant("gone", "privacy/exact.py", PLAN, old="no such text", new="")
    with pytest.raises(LookupError, match="0 times"):
        gone.applied((ROOT / "src" / "hetdp" / gone.file).read_text(encoding="utf-8"))
