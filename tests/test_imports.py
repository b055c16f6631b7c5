"""Dependencies point one way, and that carries the privacy argument: what plans cannot see data, only a release draws.

The rules are read from the source text; nothing is executed for them. An import inside a function counts; one for
type checkers alone (`if TYPE_CHECKING:`) does not exist at run time and does not count.
"""

from __future__ import annotations

import ast
import importlib.util
import io
import re
import subprocess
import sys
import tokenize
import types
from pathlib import Path

import pytest

import hetdp

PURE = re.compile(r"hetdp\.(core|estimators|statistics|theory)(\..+)?|hetdp\.(privacy\.(exact|sampling)|paper\.bounds)")
"""Modules that decide from public facts alone."""

PRIVATE = re.compile(r"hetdp\.(tally(\..+)?|privacy\.release|sources(\..+)?)")
"""Modules that hold, read or release values."""

DRAWS = "hetdp.privacy.release"
"""The only module that draws; it and the doctor, who tests the draws, know the samplers by name."""
RELEASES = {"release", "carry_out", "release_records", "unused", "refuse_seed"}
"""What everybody else may take from there: functions that spend what a plan was checked for, or nothing."""
MAY_DRAW = {DRAWS, "hetdp.checks.doctor"}
FRAMES = {"polars", "pandas", "pyarrow", "narwhals"}
GIVE_A_FRAME = {"hetdp.statistics.histogram", "hetdp.statistics.answer"}
"""It makes a frame of published shares when it is asked to, and reads none."""
HEAVY = {"polars", "scipy", "matplotlib", "opendp", "sqlalchemy", "numba", "fastapi"}
BROAD = {"Exception", "BaseException"}
OWN = r'import_module\(f"\{__name__\}\.'
"""How the package's front door brings in its own modules when their names are first used."""


# ---------------------------------------------------------------------------------------------------------
# The checker


def package_sources():
    """{module name: source text} of the whole package."""
    root = Path(importlib.util.find_spec("hetdp").origin).parent
    found = {}
    for path in sorted(root.rglob("*.py")):
        parts = ["hetdp", *path.relative_to(root).with_suffix("").parts]
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path.read_text(encoding="utf-8")
    return found


def run_time_nodes(tree):
    """Every node of a module but those for type checkers alone."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            for other in node.orelse:
                yield from (other, *run_time_nodes(other))
            continue
        yield node
        yield from run_time_nodes(node)


def imported(module, tree, modules):
    """The full names of what a module imports: own modules as such, of other packages every dotted prefix."""
    package = module if any(name.startswith(module + ".") for name in modules) else module.rpartition(".")[0]
    names = set()
    for node in run_time_nodes(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = imported_from(node, package)
            members = {f"{base}.{alias.name}" for alias in node.names}
            inside = {name for name in members if name in modules or not base.startswith("hetdp")}
            names |= inside | ({base} if base != "hetdp" or inside != members else set())
    parts = [name.split(".") for name in names]
    prefixes = {".".join(name[:length]) for name in parts for length in range(1, len(name))}
    return names | (prefixes - {"hetdp"})


def taken(module, tree, modules, source):
    """The names that a module takes from another one; "*" if it imports that one as a whole."""
    package = module if any(name.startswith(module + ".") for name in modules) else module.rpartition(".")[0]
    names = set()
    for node in run_time_nodes(tree):
        if isinstance(node, ast.Import):
            names |= {"*" for alias in node.names if alias.name == source}
        elif isinstance(node, ast.ImportFrom):
            base = imported_from(node, package)
            names |= {alias.name for alias in node.names if base == source}
            names |= {"*" for alias in node.names if f"{base}.{alias.name}" == source}
    return names


def imported_from(node, package):
    """The full name of the module from which a node imports."""
    up = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
    return ".".join([*up, *([node.module] if node.module else [])])


def reachable(start, graph):
    """Every own module that importing `start` can bring in, sooner or later."""
    seen, todo = set(), [start]
    while todo:
        for name in graph.get(todo.pop(), ()):
            if name in graph and name not in seen:
                seen.add(name)
                todo.append(name)
    return seen


def explained(text):
    """The lines of a source with a comment in words; a bare noqa explains nothing."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    comments = {token.start[0]: token.string for token in tokens if token.type == tokenize.COMMENT}
    words = {line: re.sub(r"# noqa(: [A-Z0-9, ]+)?|# type: ignore\S*", "", text) for line, text in comments.items()}
    return {line for line, text in words.items() if re.search(r"[a-z]{3}", text)}


def careless(text, tree):
    """Lines with an assert, or that catch or suppress everything, and say no word about it."""
    lines = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Assert):
            lines.append(node.lineno)
        elif isinstance(node, ast.ExceptHandler):
            caught = {name.id for name in ast.walk(node.type) if isinstance(name, ast.Name)} if node.type else BROAD
            lines += [node.lineno] if caught & BROAD else []
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("suppress"):
            lines += [node.lineno] if {ast.unparse(argument) for argument in node.args} & BROAD else []
    return sorted(set(lines) - explained(text))


def names_random(tree):
    """Whether a module speaks of numpy.random, random or a seed."""
    attributes = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    return "random" in attributes or "seed" in attributes


def violations(sources):
    """Every breach of the import rules in {module: source}, as sentences."""
    trees = {module: ast.parse(text) for module, text in sources.items()}
    graph = {module: imported(module, tree, set(sources)) for module, tree in trees.items()}
    found = []
    for module, names in graph.items():
        tops = {name.partition(".")[0] for name in names}
        reached = reachable(module, graph)
        if PURE.fullmatch(module):
            found += [f"{module} can reach {name}" for name in sorted(reached) if PRIVATE.fullmatch(name)]
        if module not in MAY_DRAW and taken(module, trees[module], set(sources), DRAWS) - RELEASES:
            found.append(f"{module} imports the noise")
        if tops & FRAMES and not module.startswith("hetdp.sources") and module not in GIVE_A_FRAME:
            found.append(f"{module} imports a frame library")
        if not f"{module}.".startswith("hetdp.ledger."):  # the server above all: it uses the ledger's public door
            inside = sorted(name for name in names if name.startswith("hetdp.ledger."))
            found += [f"{module} imports {name}, which is inside the ledger" for name in inside]
        if "opendp" in tops and module != DRAWS:
            found.append(f"{module} imports opendp")
        by_name = re.sub(OWN, "", sources[module]) if module == "hetdp" else sources[module]
        if re.search(r"\b(import_module|__import__)\(", by_name):
            found.append(f"{module} imports by a name that cannot be read from its source")
        found += [f"{module}:{line} is careless" for line in careless(sources[module], trees[module])]
    for module in {DRAWS, *reachable(DRAWS, graph)} & graph.keys():
        if {"random", "numpy.random", "hetdp.paper.simulate", "hetdp.simulate"} & graph[module] or names_random(
            trees[module]
        ):
            found.append(f"{module} is part of a release and draws random numbers of its own")
    return found


# ---------------------------------------------------------------------------------------------------------
# The package, and planted faults


def test_the_package_keeps_its_import_rules():
    assert "\n".join(violations(package_sources())) == ""


def test_the_checker_sees_the_whole_package():
    sources = package_sources()
    assert {"hetdp", "hetdp.core.plan", "hetdp.sources", "hetdp.sources.delimited", "hetdp.estimators.adpm"} <= set(
        sources
    )
    graph = {module: imported(module, ast.parse(text), set(sources)) for module, text in sources.items()}
    assert {"hetdp.tally", "hetdp.privacy.exact", "hetdp.core.plan", "hetdp.estimators.adpm"} <= reachable(DRAWS, graph)
    assert {"hetdp.sources.frames", "hetdp.privacy.release"} <= reachable("hetdp.questions", graph)
    assert "polars" in graph["hetdp.sources.frames"]
    assert "opendp.prelude" in graph[DRAWS]
    doctor = taken("hetdp.checks.doctor", ast.parse(sources["hetdp.checks.doctor"]), set(sources), DRAWS)
    assert {"noisy", "chosen"} <= doctor - RELEASES


PLANTED = [
    ("core.plan", "from hetdp.tally import Tally", "hetdp.core.plan can reach hetdp.tally"),
    ("core.plan", "def f():\n    from hetdp import sources", "hetdp.core.plan can reach hetdp.sources"),
    ("core.plan", "from hetdp.privacy import middle", "hetdp.core.plan can reach hetdp.privacy.release"),
    ("core.plan", "from hetdp import mean", "hetdp.core.plan can reach hetdp.privacy.release"),
    ("privacy.exact", "import hetdp.privacy.release as r", "hetdp.privacy.exact can reach hetdp.privacy.release"),
    ("estimators.new", "from hetdp.tally import Tally", "hetdp.estimators.new can reach hetdp.tally"),
    (
        "estimators.new",
        "from hetdp.sources.arrays import value_array",
        "hetdp.estimators.new can reach hetdp.sources.arrays",
    ),
    (
        "statistics.new",
        "from hetdp.tally import Tally",
        "hetdp.statistics.new can reach hetdp.tally",
    ),
    ("questions", "from hetdp.privacy.release import noisy", "hetdp.questions imports the noise"),
    ("questions", "from .privacy.release import release, coins", "hetdp.questions imports the noise"),
    ("questions", "def f():\n    from hetdp.privacy import release", "hetdp.questions imports the noise"),
    ("questions", "import hetdp.privacy.release as r", "hetdp.questions imports the noise"),
    ("statistics.new", "from hetdp.privacy.release import noisy", "hetdp.statistics.new can reach hetdp.privacy.rel"),
    (
        "privacy.release",
        "import random",
        "hetdp.privacy.release is part of a release and draws random numbers of its own",
    ),
    ("privacy.release", "from numpy.random import default_rng", "hetdp.privacy.release is part of a release and draws"),
    (
        "privacy.release",
        "import numpy as np\nx = np.random.rand()",
        "hetdp.privacy.release is part of a release and draws",
    ),
    (
        "privacy.middle",
        "import random",
        "hetdp.privacy.middle is part of a release and draws",
    ),
    ("privacy.release", "from hetdp.paper import simulate", "hetdp.privacy.release is part of a release and draws"),
    ("tally", "import polars", "hetdp.tally imports a frame library"),
    ("tally", "def f():\n    import pyarrow.parquet as pq", "hetdp.tally imports a frame library"),
    ("checks.doctor", "from opendp import prelude", "hetdp.checks.doctor imports opendp"),
    ("server.new", "from hetdp.ledger.inner import x", "hetdp.server.new imports hetdp.ledger.inner"),
    ("server.new", "def f():\n    from hetdp.ledger import inner", "hetdp.server.new imports hetdp.ledger.inner"),
    (
        "core.plan",
        "import importlib\nimportlib.import_module('hetdp.tally')",
        "hetdp.core.plan imports by a name",
    ),
    ("core.plan", 'import_module(f"{__name__}.x")', "hetdp.core.plan imports by a name"),
    ("questions", "assert 1 + 1 == 2", "hetdp.questions:1 is careless"),
    ("questions", "try:\n    pass\nexcept:\n    pass", "hetdp.questions:3 is careless"),
    (
        "questions",
        "try:\n    pass\nexcept (ValueError, Exception):\n    pass",
        "hetdp.questions:3 is careless",
    ),
    (
        "questions",
        "try:\n    pass\nexcept BaseException:  # noqa: BLE001\n    raise",
        "hetdp.questions:3 is careless",
    ),
    (
        "questions",
        "import contextlib\nwith contextlib.suppress(Exception):\n    pass",
        "hetdp.questions:2 is careless",
    ),
]
SKELETON = {
    "hetdp": "from hetdp.questions import mean\nfrom hetdp.privacy.release import release",
    "hetdp.questions": "",
    "hetdp.core.plan": "",
    "hetdp.privacy.release": "def f():\n    import opendp.prelude",
    "hetdp.tally": "",
    "hetdp.privacy.middle": "from hetdp.privacy.release import release",
    "hetdp.paper.simulate": "import numpy.random",
    "hetdp.sources": "from . import arrays",
    "hetdp.sources.arrays": "import polars",
    "hetdp.estimators": "",
    "hetdp.ledger": "from . import inner",
    "hetdp.ledger.inner": "x = 1",
    "hetdp.estimators.new": "",
}


@pytest.mark.parametrize(("module", "text", "sentence"), PLANTED, ids=[f"{m}: {t[:40]!r}" for m, t, _ in PLANTED])
def test_control_a_planted_fault_is_found(module, text, sentence):
    release = {"hetdp.privacy.release": "from hetdp.privacy.middle import x"} if module == "privacy.middle" else {}
    found = violations({**SKELETON, **release, f"hetdp.{module}": text})
    assert any(line.startswith(sentence) for line in found), found


HARMLESS = [
    ("core.plan", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from hetdp.tally import Tally"),
    ("core.plan", "'''from hetdp.tally import Tally'''  # import polars"),
    (
        "questions",
        "try:\n    pass\nexcept Exception:  # noqa: BLE001  a foreign message may quote a private cell\n    pass",
    ),
    ("checks.doctor", "from hetdp.privacy.release import noisy"),
    ("questions", "from hetdp.privacy.release import carry_out, release"),
    ("sources.new", "import polars, pyarrow"),
    ("server.new", "from hetdp.ledger import Ledger"),
]


@pytest.mark.parametrize(("module", "text"), HARMLESS, ids=[f"{m}: {t[:40]!r}" for m, t in HARMLESS])
def test_control_what_is_allowed_is_not_flagged(module, text):
    assert violations({**SKELETON, f"hetdp.{module}": text}) == []


# ---------------------------------------------------------------------------------------------------------
# The public door


def exposed(module):
    """The public names of a module; of the modules in it only those that it declares."""
    public = (name for name in dir(module) if not name.startswith("_"))
    return [n for n in public if n in module.__all__ or not isinstance(getattr(module, n), types.ModuleType)]


def test_all_names_are_sorted_and_are_what_the_package_exposes():
    declared = [name for name in hetdp.__all__ if not name.startswith("_")]
    assert len(hetdp.__all__) == len(set(hetdp.__all__))
    assert exposed(hetdp) == sorted(declared)
    assert all(getattr(hetdp, name) is not None for name in hetdp.__all__)


def test_control_a_name_that_was_forgotten_is_noticed():
    module = types.ModuleType("door")
    module.__all__, module.plan, module.helper, module.ast = ["plan"], len, len, ast
    assert exposed(module) == ["helper", "plan"]


# ---------------------------------------------------------------------------------------------------------
# What a fresh interpreter loads


def loaded(*arguments):
    """The top-level packages that a fresh interpreter imports, and what it printed."""
    run = subprocess.run(
        [sys.executable, "-X", "importtime", *arguments], capture_output=True, text=True, encoding="utf-8", check=True
    )
    names = re.findall(r"^import time:[^|]*\|[^|]*\|\s*(\S+)$", run.stderr, re.MULTILINE)
    return {name.partition(".")[0] for name in names}, run.stdout


def test_import_hetdp_loads_no_heavy_library():
    packages, _ = loaded("-c", "import hetdp")
    assert {"hetdp", "numpy"} <= packages
    assert packages & (HEAVY | FRAMES | {"rich", "typer"}) == set()


HELP = [("-m", "hetdp", "--help"), ("-c", "import sys; sys.argv[1:] = ['--help']; from hetdp.cli import main; main()")]


@pytest.mark.parametrize("arguments", HELP, ids=["python -m hetdp", "main()"])
def test_help_loads_no_heavy_library(arguments):
    packages, printed = loaded(*arguments)
    assert "mean" in printed
    assert packages & (HEAVY | FRAMES) == set()


def test_control_a_library_that_is_loaded_is_seen():
    packages, _ = loaded("-c", "import hetdp.sources.frames, polars")
    assert "polars" in packages


WITHOUT_SQLALCHEMY = """
import sqlite3, sys
sys.modules["sqlalchemy"] = None
import hetdp
with sqlite3.connect("people.db") as database:
    database.execute("create table people as select 0.5 as x, 1.0 as e")
database.close()
print(hetdp.read("sqlite:///people.db", query="people", value="x", missing="none", epsilon="e", bounds=(0, 1)).n)
try:
    hetdp.Ledger.create("budgets.db")
except hetdp.HetdpError as error:
    print(error)
"""


def test_without_sqlalchemy_a_database_can_be_read_and_a_ledger_says_what_to_install(tmp_path):
    run = subprocess.run(
        [sys.executable, "-c", WITHOUT_SQLALCHEMY], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert run.stdout.splitlines() == ["1", "a ledger needs SQLAlchemy; install it with: pip install 'hetdp[sql]'"]
    assert not (tmp_path / "budgets.db").exists()
