"""The house stays small: how much code there is, how large a file is, and how many rooms a walk passes through."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import settings

from conftest import KINDS
from lines import SOURCE, counted
from support import examples
from walks import WALKS

MOST_LINES = 20_250  # 9,500 for means alone; then statistics, ordinary data, theory, and a survey server for years
MOST_FILES = 100
LONGEST_FILE = 500
MOST_MODULES = {"file": 20, "array": 20, "charge": 20, "answer": 21}
"""An answer is a whole charge with six rooms of the server around it and a result with its interval."""
NOT_IMPORTED = {"ctypes", "llvmlite"}
"""Libraries that reach past Python's own checks: a mistake there is a wrong number, not an error."""


# ---------------------------------------------------------------------------------------------------------
# The size of the source


def imported(text):
    """The top-level packages that a source imports, anywhere in it."""
    nodes = list(ast.walk(ast.parse(text)))
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    return {name.partition(".")[0] for name in names}


def faults(source, most_lines=MOST_LINES, most_files=MOST_FILES):
    """What is too large in a package, or imports what it must not."""
    lines, texts = counted(source), {path: path.read_text(encoding="utf-8") for path in sorted(source.rglob("*.py"))}
    found = []
    if sum(lines.values()) > most_lines:
        found.append(f"{sum(lines.values())} lines of code, at most {most_lines}")
    if len(lines) > most_files:
        found.append(f"{len(lines)} files, at most {most_files}")
    for path, text in texts.items():
        name, length = path.relative_to(source).as_posix(), len(text.splitlines())
        if length > LONGEST_FILE:
            found.append(f"{name} has {length} lines, at most {LONGEST_FILE}")
        found += [f"{name} imports {package}" for package in sorted(imported(text) & NOT_IMPORTED)]
    return found


def test_the_package_is_no_larger_than_agreed_and_imports_nothing_that_is_unchecked():
    assert faults(SOURCE) == []


LONG = "\n" * LONGEST_FILE + "x = 1\n"
PLANTED = {
    "a line too many": (["x = 1\n"] * 3, {"most_lines": 2}, "3 lines of code, at most 2"),
    "a file too many": (["x = 1\n"] * 3, {"most_files": 2}, "3 files, at most 2"),
    "a long file": (["", LONG], {}, f"1.py has {LONGEST_FILE + 1} lines, at most {LONGEST_FILE}"),
    "a library of C": (["def f():\n    import ctypes.util as c\n"], {}, "0.py imports ctypes"),
    "a compiler": (["from llvmlite import ir\n"], {}, "0.py imports llvmlite"),
}


@pytest.mark.parametrize("plant", PLANTED)
def test_control_a_planted_file_that_breaks_a_rule_is_noticed(plant, tmp_path):
    texts, limits, sentence = PLANTED[plant]
    for i, text in enumerate(texts):
        (tmp_path / f"{i}.py").write_text(text)
    assert faults(tmp_path, **limits) == [sentence]
    allowed = {name: most + 1 for name, most in limits.items()}
    assert faults(tmp_path, **allowed) == ([] if limits else [sentence])


# ---------------------------------------------------------------------------------------------------------
# The four walks


def modules(walk, source=SOURCE.parent):
    """The modules of a walk, taken in a fresh interpreter."""
    script = Path(__file__).parent / "walks.py"
    where = {**os.environ, "PYTHONPATH": str(source)}
    run = subprocess.run([sys.executable, script, walk], env=where, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return run.stdout.split()


@pytest.mark.slow
@pytest.mark.parametrize("walk", WALKS)
def test_a_walk_passes_through_few_modules(walk):
    found = modules(walk)
    assert len(found) <= MOST_MODULES[walk], "\n".join(found)
    assert "core/plan.py" in found
    assert not [name for name in found if name.startswith("report/")]


IDLE = "CONSTANT = (lambda: 1)()\n"
PLANT = """
def through(mean):
    def walk(*arguments, **options):
        import hetdp.idle

        return mean(*arguments, **options)

    return walk
"""


@pytest.mark.slow
def test_control_a_module_that_is_entered_counts_and_one_that_is_only_imported_does_not(tmp_path):
    shutil.copytree(SOURCE, tmp_path / "hetdp", ignore=shutil.ignore_patterns("__pycache__"))
    before = modules("array", tmp_path)
    (tmp_path / "hetdp" / "planted.py").write_text(PLANT)
    (tmp_path / "hetdp" / "idle.py").write_text(IDLE)
    with (tmp_path / "hetdp" / "__init__.py").open("a") as door:
        door.write("\nfrom . import planted\n\nmean = planted.through(mean)\n")
    assert sorted([*before, "planted.py"]) == modules("array", tmp_path)


# ---------------------------------------------------------------------------------------------------------
# What `make check` leaves out


def test_every_file_that_is_marked_as_a_whole_exists():
    assert [name for name in KINDS if not list(Path(__file__).parent.rglob(f"{name}.py"))] == []


def test_hypothesis_tries_as_many_examples_as_its_profile_says():
    before = settings.get_current_profile_name()
    found = {}
    for profile in ("default", "quick"):
        settings.load_profile(profile)
        found[profile] = examples(200)
    settings.load_profile(before)
    assert found == {"default": 200, "quick": 30}
