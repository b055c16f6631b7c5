"""What a reader sees of the public functions: types, documentation, and answers to usual mistakes."""

from __future__ import annotations

import inspect
import re

import pytest

import hetdp
from hetdp.errors import InputError
from hetdp.ledger import Ledger
from ledgers import PEOPLE, VALUES, made

FUNCTIONS = {name: getattr(hetdp, name) for name in hetdp.__all__ if inspect.isfunction(getattr(hetdp, name))}
FUNCTIONS["ask"] = type(hetdp.ask).__call__
METHODS = {f"Ledger.{name}": method for name, method in vars(Ledger).items() if inspect.isfunction(method)}
PUBLIC = {name: f for name, f in {**FUNCTIONS, **METHODS}.items() if "._" not in name}
UNTYPED = {"options", "unknown", "self"}


def undocumented(function):
    """The parameters of a function that its docstring does not name: in its list of parameters, or in its sentences.

    The one parameter of a function needs no name where one sentence says all.
    """
    words, _, listed = (inspect.getdoc(function) or "").partition("Parameters\n----------")
    named = set(re.findall(r"\w+", " ".join(line for line in listed.splitlines() if not line.startswith(" "))))
    named |= set(re.findall(r"`(\w+)`", words))
    names = [name for name in inspect.signature(function).parameters if name not in UNTYPED]
    return [] if len(names) == 1 else [name for name in names if name not in named]


@pytest.mark.parametrize("name", PUBLIC)
def test_every_parameter_of_a_public_function_is_documented_where_it_is_used(name):
    assert undocumented(PUBLIC[name]) == []


def test_control_a_parameter_that_is_not_documented_is_noticed():
    def function(one, two):
        """Do it.

        Parameters
        ----------
        one
            It is like `two`.
        """

    assert undocumented(function) == ["two"]


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_function_says_what_it_returns(name):
    """In its first line, or in a list of what it returns."""
    words = inspect.getdoc(PUBLIC[name]) or ""
    said = re.search(r"\breturn", words, re.IGNORECASE) or "\nReturns\n" in words
    assert said or inspect.signature(PUBLIC[name]).return_annotation in ("None", None)


@pytest.mark.parametrize("name", PUBLIC)
def test_no_public_parameter_is_plainly_any(name):
    kinds = {p.name: p.annotation for p in inspect.signature(PUBLIC[name]).parameters.values() if p.name not in UNTYPED}
    assert [kind for kind, annotation in kinds.items() if annotation in ("Any", inspect.Parameter.empty)] == []


TALLY = hetdp.read([1.0], epsilon=1, bounds=(0, 1))
SEEDED = {
    "mean": lambda **seed: hetdp.mean([1.0], epsilon=1, bounds=(0, 1), **seed),
    "histogram": lambda **seed: hetdp.histogram(["a"], epsilon=1, categories=["a"], **seed),
    "median": lambda **seed: hetdp.median([1.0], epsilon=1, bounds=(0, 1), **seed),
    "ask": lambda **seed: hetdp.ask([1.0], {"x": hetdp.ask.mean(bounds=(0, 1))}, epsilon=1, **seed),
    "release": lambda **seed: hetdp.release(TALLY, hetdp.plan(TALLY.levels, bounds=(0, 1)), **seed),
}


@pytest.mark.parametrize("name", ["seed", "random_state", "rng"])
@pytest.mark.parametrize("function", SEEDED)
def test_a_seed_is_refused_with_a_sentence_that_names_what_takes_one(function, name):
    with pytest.raises(InputError, match=rf"a release takes no {name}: .* use hetdp\.simulate\(rng=…\)"):
        SEEDED[function](**{name: 1})


def test_a_seed_is_refused_by_a_ledger_before_anything_is_charged(tmp_path):
    with made(str(tmp_path / "b.db")) as ledger:
        how = {"person": PEOPLE, "bounds": (0, 1), "missing": "none", "spend": 0.1, "release_id": "may"}
        with pytest.raises(InputError, match=r"hetdp\.simulate"):
            ledger.mean(VALUES, **how, seed=1)
        asked = hetdp.ask.mean(bounds=how.pop("bounds"), missing=how.pop("missing"))
        with pytest.raises(InputError, match=r"hetdp\.simulate"):
            ledger.ask(VALUES, asked, **how, seed=1)
        with pytest.raises(TypeError, match="no option 'colour'"):
            ledger.ask(VALUES, asked, **how, colour=1)
        assert not ledger.charged("may")


def test_a_word_that_is_no_option_is_still_an_error():
    with pytest.raises(TypeError, match="no option 'colour'"):
        hetdp.ask([1.0], {"x": hetdp.ask.mean(bounds=(0, 1))}, epsilon=1, colour=1)
    with pytest.raises(TypeError, match="no option 'colour'"):
        hetdp.release(TALLY, hetdp.plan(TALLY.levels, bounds=(0, 1)), colour=1)


AGAIN = "Running this cell again"


def test_a_notebook_says_that_running_a_cell_again_spends_again(tmp_path):
    people = {"epsilon": [1.0] * 8, "bounds": (0, 1)}
    assert AGAIN in hetdp.mean([0.5] * 8, **people)._repr_html_()
    several = hetdp.mean([0.5] * 8, by={"g": ["a", "b"] * 4}, public_columns=["g"], **people)
    assert AGAIN in several._repr_html_()
    with made(str(tmp_path / "b.db")) as ledger:
        how = {"person": PEOPLE, "bounds": (0, 1), "missing": "none", "spend": 0.1, "release_id": "may"}
        assert AGAIN not in ledger.mean(VALUES, **how)._repr_html_()


def test_what_is_no_release_says_nothing_of_running_again():
    assert AGAIN not in hetdp.plan({0.1: 100}, bounds=(0, 1))._repr_html_()
    assert AGAIN not in hetdp.mean([0.5] * 8, epsilon=1.0, bounds=(0, 1)).html()


def test_shared_parameters_are_described_at_every_function_that_takes_them():
    for function in (hetdp.mean, hetdp.histogram, hetdp.quantile, FUNCTIONS["ask"]):
        words = inspect.getdoc(function)
        assert "As for `read`" not in words
        assert "As for `mean`." not in words
        assert "the name of a file (CSV" in words
    assert "outer\n" not in inspect.getdoc(hetdp.histogram)  # it has none
    assert "outer\n" in inspect.getdoc(hetdp.sum)
