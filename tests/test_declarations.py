"""What a type checker sees of the public functions: it knows every right use, and refuses wrong ones."""

from __future__ import annotations

import ast
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import declarations
import hetdp
from hetdp.core import types
from hetdp.ledger import Ledger

RIGHT = """
import math
from typing import Any, assert_type

import numpy as np
import polars

import hetdp
from hetdp.ledger import Charged, DryRun, Ledger

values, eps, table = [0.2, 0.9], [0.5, 2.0], polars.DataFrame({"x": [1.0]})
assert_type(hetdp.mean(values, epsilon=eps, bounds=(0, 1), drift=0.1), hetdp.Release)
assert_type(hetdp.mean(np.array(values), epsilon=np.array(eps), bounds=(0, 1)).estimate, float)
assert_type(hetdp.mean(table, value="x", epsilon=1, bounds=(0, 1), missing="estimate"), hetdp.AnsweredMean)
assert_type(hetdp.mean(table, value="x", epsilon=1, bounds="private", outer=(0, 9), missing=0), hetdp.Release)
assert_type(hetdp.mean("t.csv", value=["a", "b"], epsilon="e", bounds={"a": (0, 1), "b": (0, 9)}), hetdp.Means)
assert_type(hetdp.mean(table, value="x", epsilon=1, bounds=(0, 1), private_group="g", categories=[1]), hetdp.GroupMeans)
assert_type(hetdp.mean(table, value="x", epsilon=1, bounds=(0, 1), by="g", public_columns=["g"]), hetdp.Groups)
assert_type(hetdp.sum(values, epsilon=eps, bounds=(0, 1)), hetdp.Release)
assert_type(hetdp.count(values, epsilon=eps, equals=1, missing="estimate"), hetdp.Release)
assert_type(hetdp.proportion(table, value="x", epsilon=1, equals="a", missing="estimate"), hetdp.AnsweredMean)
assert_type(hetdp.histogram(values, epsilon=eps, bins=4, bounds=(0, 1)), hetdp.Histogram)
assert_type(hetdp.mode(values, epsilon=eps, categories=[0, 1]), hetdp.Mode)
assert_type(hetdp.quantile(values, [0.1, 0.9], epsilon=eps, bounds=(0, 1)), hetdp.Quantiles)
assert_type(hetdp.median(values, epsilon=eps, bounds=(0, 1), within=0.95), hetdp.Quantiles)
assert_type(hetdp.median(values, epsilon=eps, bounds=(0, 1), by={"g": ["a", "b"]}), hetdp.Groups)
hetdp.bounds_for(values, epsilon=eps, outer=(0, 9), missing="drop")
assert_type(hetdp.std(values, epsilon=eps, bounds=hetdp.bounds_for(values, epsilon=eps, outer=(0, 9))), hetdp.Moments)
asked = {"x": hetdp.ask.mean(bounds=(0, 1)), "y": hetdp.ask.quantile(0.5, bounds=(0, 1))}
answers = hetdp.ask(table, asked, epsilon="e", missing="drop")
assert_type(answers, hetdp.Answers)
income: float = answers["x"].estimate
assert_type(hetdp.ask(table, asked, epsilon="e", by="g", public_columns=["g"]), hetdp.Groups)
people = {0.1: 700, 1.0: 300}
assert_type(hetdp.simulate(people, method="adpm", distribution=("beta", 1, 2), bounds=(0, 1), rng=1), hetdp.Simulation)
several = hetdp.simulate(people, method=["adpm", "fme"], distribution="uniform", bounds=(0, 1))
assert_type(several, dict[str, hetdp.Simulation])
plan = hetdp.plan(people, bounds=(0, 1))
tally = hetdp.read(values, epsilon=eps, bounds=(0, 1))
assert_type(hetdp.release(tally, hetdp.plan(tally.levels, bounds=(0, 1))), Any)
estimate: float = hetdp.release(tally, hetdp.plan(tally.levels, bounds=(0, 1))).estimate
assert_type(hetdp.Ledger("budgets.db"), Ledger)
assert issubclass(hetdp.ledger.ExhaustedError, hetdp.InputError)
assert plan.threshold is not None
math.isclose(plan.threshold, 1.0)
with Ledger("budgets.db") as ledger:
    filled = ledger.mean(values, person=["a", "b"], release_id="1", bounds=(0, 1), missing=0, spend=1)
    assert_type(filled, hetdp.Release)
    kept = ledger.mean(values, person=["a", "b"], release_id="1", bounds=(0, 1), missing="drop", spend="0.1")
    assert_type(kept, hetdp.AnsweredMean)
    tried = ledger.mean(values, person="p", release_id="1", bounds=(0, 1), missing="none", share=0.1, dry_run=True)
    assert_type(tried, DryRun)
    month: float = ledger.ask(values, asked["x"], person="p", release_id="2", share_left=0.1).estimate
    table_of: hetdp.Groups = ledger.ask(values, asked["x"], person="p", release_id="3", spend=0.1, by="g")
    dry: DryRun = ledger.ask(values, asked["x"], person="p", release_id="4", spend=0.1, dry_run=True)
    able = [balance.person for balance in ledger.balances() if balance.left >= 0.1]
    assert_type(ledger.charge(able, release_id="round-1", mechanism="noisy gradient", epsilon=0.1), Charged)
"""

WRONG = {
    "a function that does not exist": "hetdp.histogrm([1], foo=3)",
    "no such option": "hetdp.mean([0.1], epsilon=1.0, bounds=(0, 1), drfit=0.1)",
    "no such option of a function from the registry": 'hetdp.sum([3], epsilon=1.0, bounds=(0, 1), nonsense="x")',
    "no such attribute of an answer": "hetdp.sum([3], epsilon=1.0, bounds=(0, 1)).whatever",
    "no source": 'hetdp.sum(3, epsilon=1.0, bounds=(0, 1))',
    "no such question": "hetdp.ask.mena(bounds=(0, 1))",
    "a question without its bounds": "hetdp.ask.mean()",
    "groups taken for a number": 'hetdp.median([1.0], epsilon=1.0, bounds=(0, 1), by={"g": ["a"]}).estimate',
    "an option that this statistic does not take": "hetdp.histogram([1], epsilon=1.0, categories=[1], drift=0.1)",
    "no such option of a ledger": 'LEDGER.mean([1], person="p", release_id="1", bounds=(0, 1), missing=0, spnd=1)',
    "a release without its plan": "hetdp.release(hetdp.read([1.0], epsilon=1.0, bounds=(0, 1)))",
    "a name that a ledger does not have": "hetdp.ledger.Balanse",
    "a missing value that private bounds do not take": 'hetdp.bounds_for([1.0], epsilon=1.0, outer=(0, 9), missing=0)',
    "a seed": "hetdp.bounds_for([1.0], epsilon=1.0, outer=(0, 9), seed=1)",
}  # fmt: skip


@pytest.fixture(scope="module")
def checked(tmp_path_factory):
    """The lines with errors of both files, as mypy finds them in strict code."""
    folder = tmp_path_factory.mktemp("checked")
    (folder / "right.py").write_text(RIGHT, encoding="utf-8")
    head = 'import hetdp\nfrom hetdp.ledger import Ledger\nLEDGER = Ledger("b.db")\n'
    (folder / "wrong.py").write_text(head + "\n".join(WRONG.values()) + "\n", encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(folder / "cache"), "right.py", "wrong.py"]
    where = {**os.environ, "MYPYPATH": str(Path(hetdp.__file__).parents[1])}
    run = subprocess.run(command, cwd=folder, env=where, capture_output=True, text=True, check=False)
    found = re.findall(r"^(\w+)\.py:(\d+): error: (.*)", run.stdout, re.MULTILINE)
    assert found, run.stdout + run.stderr
    return found


@pytest.mark.slow
def test_what_is_right_passes_the_strict_checker_with_the_class_of_its_answer(checked):
    assert [error for error in checked if error[0] == "right"] == []


@pytest.mark.slow
@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_does_not_pass(what, checked):
    line = [*WRONG].index(what) + 4
    assert [error for error in checked if error[0] == "wrong" and error[1] == str(line)] != []


# ---------------------------------------------------------------------------------------------------------
# The declarations say what the functions do


def test_the_declarations_are_those_of_the_functions():
    assert declarations.FILE.read_text(encoding="utf-8") == declarations.text(), "run: python tests/declarations.py"


def declared(text):
    """{name of a function: {parameter: its defaults in all forms}} of a file of declarations."""
    found = {}
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.FunctionDef):
            continue
        arguments = node.args.args + node.args.kwonlyargs
        defaults = [None] * (len(node.args.args) - len(node.args.defaults)) + node.args.defaults + node.args.kw_defaults
        named = found.setdefault((node.col_offset > 0, node.name), {})
        for argument, default in zip(arguments, defaults, strict=True):
            if argument.arg != "self":
                named.setdefault(argument.arg, set()).add(None if default is None else ast.unparse(default))
    return found


def faults(text):
    """Where the declared parameters and defaults are not those that the functions have when they run."""
    wrong = []
    for (question, name), parameters in declared(text).items():
        function = hetdp.ask if name == "__call__" else getattr(hetdp.ask if question else hetdp, name)
        taken = inspect.signature(function).parameters.values()
        real = {p.name: p.default for p in taken if p.kind is not p.VAR_KEYWORD}
        if [*parameters] != [*real]:
            wrong.append(f"{name}: other parameters")
        for parameter, defaults in parameters.items():
            default = real.get(parameter)
            said = {one for one in defaults if one is not None}
            if said != (set() if default is inspect.Parameter.empty else {repr(default)}):
                wrong.append(f"{name}: {parameter} has another default")
    return wrong


def test_declared_parameters_and_defaults_are_those_at_run_time():
    text = declarations.FILE.read_text(encoding="utf-8")
    assert faults(text) == []
    assert {name for _, name in declared(text)} >= {"mean", "median", "histogram", "bounds_for", "__call__"}


@pytest.mark.parametrize(
    ("before", "after", "what"),
    [
        ("drift: float = 0.0", "drift: float = 0.1", "drift has another default"),
        ("within: float", "without: float", "other parameters"),
        ("bounds: BoundsLike, *", "bounds: BoundsLike = (0, 1), *", "bounds has another default"),
    ],
)
def test_control_a_declaration_that_differs_is_noticed(before, after, what):
    text = declarations.FILE.read_text(encoding="utf-8")
    assert before in text
    assert any(fault.endswith(what) for fault in faults(text.replace(before, after)))


def test_every_public_name_is_declared():
    names = {node.name for node in ast.parse(declarations.text()).body if isinstance(node, ast.FunctionDef)}
    imports = [node for node in ast.parse(declarations.text()).body if isinstance(node, ast.ImportFrom)]
    names |= {alias.asname for node in imports for alias in node.names} | {"ask"}
    assert set(hetdp.__all__) - names == set()


def test_what_a_ledger_is_declared_to_take_is_what_it_takes():
    asked = inspect.signature(Ledger.ask).parameters.keys() - {"self", "source", "statistic", "dry_run", "unknown"}
    own = {"bounds", "value", "missing", "values"}
    assert types.Tried.__annotations__.keys() == asked | own
