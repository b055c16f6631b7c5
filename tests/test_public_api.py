"""What a reader sees of the public functions: types, documentation, and answers to usual mistakes."""

from __future__ import annotations

import doctest
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import hetdp
from hetdp import ledger
from hetdp.errors import InputError
from hetdp.ledger import Ledger
from hetdp.questions import VERBS
from hetdp.statistics import ALSO, STATISTICS
from ledgers import PEOPLE, VALUES, made

FUNCTIONS = {name: getattr(hetdp, name) for name in hetdp.__all__ if inspect.isfunction(getattr(hetdp, name))}
METHODS = {f"Ledger.{name}": method for name, method in vars(Ledger).items() if inspect.isfunction(method)}
QUESTIONS = {f"ask.{name}": getattr(hetdp.ask, name) for name in (*STATISTICS, *ALSO)}
PUBLIC = {name: f for name, f in {**FUNCTIONS, **QUESTIONS, **METHODS}.items() if "._" not in name}
UNTYPED = {"options", "unknown", "self", "cls"}


def undocumented(function):
    """The parameters of a function that its docstring does not name: in its list of parameters, or in its sentences.

    The one parameter of a function needs no name where one sentence says all.
    """
    words, _, listed = (inspect.getdoc(function) or "").partition("Parameters\n----------")
    named = set(re.findall(r"\w+", " ".join(line for line in listed.splitlines() if not line.startswith(" "))))
    named |= set(re.findall(r"`(\w+)`", words))
    names = [name for name in inspect.signature(function).parameters if name not in UNTYPED]
    return [] if len(names) == 1 else [name for name in names if name not in named]


def test_control_a_parameter_that_is_not_documented_is_noticed():
    def function(one, two):
        """Do it.

        Parameters
        ----------
        one
            It is like `two`.
        """

    assert undocumented(function) == ["two"]


REPORTS = {"to_dict", "report", "html", "parts", "figures", "facts"}
"""The forms of a report: one line is enough."""


def missing_sections(name, method):
    """What the docstring of a public function or method lacks, by the rule of CONTRIBUTING."""
    words, signature = inspect.getdoc(method) or "", inspect.signature(method)
    taken = [name for name in signature.parameters if name not in UNTYPED]
    said, function = str(signature.return_annotation), "." not in name or name.startswith("ask.")
    if said == "None" or name.rpartition(".")[2] in REPORTS:
        return []
    made = not function and said in (name.partition(".")[0], "Self")  # another way to make an object of the class
    several = function or (not made and (len(taken) > 1 or said.startswith(("tuple", "dict", "list"))))
    needed = {"Returns": bool(taken) and several, "Parameters": bool(taken) and function}
    lacks = [
        section for section, wanted in needed.items() if wanted and f"{section}\n{'-' * len(section)}\n" not in words
    ]
    first = words.partition("\n\n")[0]
    return (
        lacks
        if re.search(r"\b(return|say)\b", first, re.IGNORECASE)
        else [*lacks, "what it returns, in its first line"]
    )


def public_methods():
    """Every method of a public class, by class and name; those of `Statistic` are called by hetdp alone."""
    ours = [getattr(hetdp, name) for name in hetdp.__all__ if name != "Statistic"]
    ours += [getattr(ledger, name) for name in listed("hetdp.ledger")]
    found = {}
    for kind in (kind for kind in ours if inspect.isclass(kind) and not issubclass(kind, Exception)):
        for name, found_there in vars(kind).items():
            method = getattr(found_there, "__func__", found_there)
            if inspect.isfunction(method) and not name.startswith("_"):
                found[f"{kind.__name__}.{name}"] = method
    return found


def listed(module):
    """The names of a module that docs/api.md lists."""
    page = (Path(__file__).parents[1] / "docs" / "api.md").read_text(encoding="utf-8")
    return re.findall(rf"^   {re.escape(module)}\.(\w+)$", page, re.MULTILINE)


DESCRIBED = {**FUNCTIONS, **QUESTIONS, **public_methods()}


@pytest.mark.parametrize("name", DESCRIBED)
def test_every_parameter_of_a_public_function_or_method_is_documented_where_it_is_used(name):
    assert undocumented(DESCRIBED[name]) == []


@pytest.mark.parametrize("name", DESCRIBED)
def test_every_public_function_and_method_says_what_it_returns_by_the_rule(name):
    assert missing_sections(name, DESCRIBED[name]) == []


def test_the_rule_is_about_many_methods():
    assert {"Release.confidence_interval", "Ledger.enroll", "Plan.radius", "Combined.radius"} < DESCRIBED.keys()
    assert len(DESCRIBED) > 120


def test_control_a_docstring_without_its_sections_is_noticed():
    def bare(one: int, two: int) -> int:
        """Count, which is what it returns in the end.

        The word Returns alone, or a heading of another length, is no section.

        Returns
        ---
        """

    def interval(level: float) -> tuple[float, float]:
        """Return an interval."""

    def quiet() -> int:
        """Count."""

    def plain(level: float) -> float:
        """Return the width."""

    assert missing_sections("bare", bare) == ["Returns", "Parameters", "what it returns, in its first line"]
    assert missing_sections("Release.bare", bare) == ["Returns", "what it returns, in its first line"]
    assert missing_sections("Release.interval", interval) == ["Returns"]
    assert missing_sections("Release.quiet", quiet) == ["what it returns, in its first line"]
    assert missing_sections("Release.plain", plain) == []
    assert missing_sections("plain", plain) == ["Returns", "Parameters"]


@pytest.mark.parametrize("name", [*QUESTIONS, *VERBS])
def test_the_examples_of_functions_that_the_registry_makes_are_true(name):
    words, finder = inspect.getdoc(DESCRIBED[name]), doctest.DocTestParser()
    example = finder.get_doctest(words, {"hetdp": hetdp}, name, None, None)
    assert len(example.examples) == 2
    assert doctest.DocTestRunner(verbose=False).run(example).failed == 0


def test_what_the_registry_says_fits_each_statistic():
    for name, function in {**QUESTIONS, **{verb: FUNCTIONS[verb] for verb in VERBS}}.items():
        words = inspect.getdoc(function)
        assert "a mean for each" not in words
        assert "the mean of those who answered" not in words.partition("Parameters\n")[2]
        first, *_ = re.findall(r"^(\w+)$", words.partition("Parameters\n----------\n")[2], re.MULTILINE)
        assert first == next(iter(inspect.signature(function).parameters)), name


def test_answers_describe_their_attributes():
    classes = ("Release", "Histogram", "Quantiles", "Moments", "Means", "AnsweredMean", "GroupMeans", "Mode", "Tally")
    for name in (*classes, "Interval", "Comparison", "Plan", "Combined"):
        assert "\nAttributes\n----------\n" in inspect.getdoc(getattr(hetdp, name)), name


def test_the_page_lists_what_is_public_and_the_ledger_names_the_rest():
    assert {*listed("hetdp")} >= {*hetdp.__all__} - {"ledger", "paper"}
    assert {*listed("hetdp.ask")} == {*STATISTICS, *ALSO}
    server = re.search(r"server and may change: ([\w,\s]+)\. The other names are public", ledger.__doc__)[1]
    assert {*re.split(r",\s+", server)} == {*ledger.__all__} - {*listed("hetdp.ledger"), "Ledger"}


def test_every_name_that_the_page_lists_is_there_after_import_hetdp_alone():
    page = (Path(__file__).parents[1] / "docs" / "api.md").read_text(encoding="utf-8")
    names = re.findall(r"^   (hetdp[.\w]+)$", page, re.MULTILINE)
    assert len(names) > 70
    for first in ("hetdp.ledger.ExhaustedError", "hetdp.Ledger", "hetdp.paper"):  # each in a process of its own
        code = f"import hetdp; {first}; " + "; ".join(names)
        assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0, first


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
    "bounds_for": lambda **seed: hetdp.bounds_for([1.0], epsilon=1, outer=(0, 1), **seed),
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


LEVELS = {0.1: 700, 1.0: 300}
CALLS = {
    **SEEDED,
    "quantile": lambda **more: hetdp.quantile([1.0], 0.5, epsilon=1, bounds=(0, 1), **more),
    "ask.mean": lambda **more: hetdp.ask.mean(bounds=(0, 1), **more),
    "plan": lambda **more: hetdp.plan(LEVELS, bounds=(0, 1), **more),
    "simulate": lambda **more: hetdp.simulate(LEVELS, method="adpm", distribution="uniform", bounds=(0, 1), **more),
}


@pytest.mark.parametrize("function", CALLS)
def test_a_word_that_is_no_option_is_answered_in_the_name_of_the_function_that_was_called(function):
    with pytest.raises(TypeError, match=rf"^hetdp\.{re.escape(function)} has no option 'colour'$"):
        CALLS[function](colour=1)


@pytest.mark.parametrize(
    ("function", "slip", "meant"),
    [
        ("mean", "drfit", "drift"),
        ("histogram", "catgories", "categories"),
        ("median", "bins_", "bins"),
        ("quantile", "boundz", "bounds"),
        ("ask", "public_column", "public_columns"),
        ("ask.mean", "mising", "missing"),
        ("plan", "metod", "method"),
        ("bounds_for", "persons", "person"),
        ("simulate", "run", "runs"),
    ],
)
def test_a_slip_of_the_pen_is_answered_with_the_nearest_option(function, slip, meant):
    with pytest.raises(
        TypeError, match=rf"hetdp\.{re.escape(function)} has no option '{slip}'; did you mean '{meant}'\?"
    ):
        CALLS[function](**{slip: 1})


@pytest.mark.parametrize("function", CALLS)
def test_a_delta_is_answered_with_where_to_read_on(function):
    with pytest.raises(
        InputError, match=rf"hetdp\.{re.escape(function)} takes no delta: pure ε only; see 'hetdp or OpenDP'"
    ):
        CALLS[function](delta=1e-6)
    title = (Path(__file__).parents[1] / "docs" / "hetdp-or-opendp.md").read_text(encoding="utf-8").partition("\n")[0]
    assert title == "# hetdp or OpenDP?"


@pytest.mark.parametrize("name", ["seed", "random_state"])
def test_a_simulation_is_told_how_it_takes_a_seed(name):
    with pytest.raises(InputError, match=rf"hetdp\.simulate takes a seed as rng=…, .* \(got {name}=\)"):
        CALLS["simulate"](**{name: 1})


def test_the_options_of_other_statistics_and_what_a_name_has_settled_are_unknown():
    with pytest.raises(TypeError, match=r"hetdp\.median has no option 'q'"):
        CALLS["median"](q=0.3)
    with pytest.raises(TypeError, match=r"hetdp\.ask\.median has no option 'q'"):
        hetdp.ask.median(bounds=(0, 1), q=0.3)
    with pytest.raises(TypeError, match=r"hetdp\.histogram has no option 'private_group'"):
        CALLS["histogram"](private_group="g")
    with pytest.raises(TypeError, match=r"hetdp\.ask\.mean: missing a required argument: 'bounds'"):
        hetdp.ask.mean()


def test_a_ledger_names_its_options_as_they_are_written_in_python(tmp_path):
    with made(str(tmp_path / "b.db")) as ledger:
        how = {"person": PEOPLE, "bounds": (0, 1), "missing": "none", "release_id": "may"}
        with pytest.raises(InputError, match=r"one of spend=ε, share= of the budget or share_left= .*got 0 of them"):
            ledger.mean(VALUES, **how)
        with pytest.raises(TypeError, match=r"Ledger\.mean has no option 'spnd'; did you mean 'spend'\?"):
            ledger.mean(VALUES, **how, spnd=1)
        with pytest.raises(InputError, match="takes no delta: pure ε only"):
            ledger.mean(VALUES, **how, spend=1, delta=1e-6)
        assert not ledger.charged("may")


def test_a_charge_answers_an_option_that_it_does_not_take_and_charges_nobody(tmp_path):
    with made(str(tmp_path / "b.db")) as ledger:
        how = {"release_id": "may", "mechanism": "a sum", "epsilon": 0.1}
        with pytest.raises(InputError, match=r"Ledger\.charge takes no delta: pure ε only"):
            ledger.charge(PEOPLE, **how, delta=1e-6)
        with pytest.raises(InputError, match="a release takes no seed"):
            ledger.charge(PEOPLE, **how, seed=1)
        with pytest.raises(TypeError, match=r"Ledger\.charge has no option 'laking'; did you mean 'lacking'\?"):
            ledger.charge(PEOPLE, **how, laking="drop")
        assert not ledger.charged("may")


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


@pytest.mark.parametrize(
    ("name", "needs"),
    [("proportion", "equals"), ("count", "equals"), ("sum", "bounds"), ("std", "bounds"), ("variance", "bounds")],
)
def test_a_question_without_what_it_needs_is_answered_by_naming_it(name, needs):
    with pytest.raises(InputError, match=rf"^a {name} needs {needs}=… \("):
        getattr(hetdp, name)([1.0, 2.0], epsilon=[1.0, 1.0])
