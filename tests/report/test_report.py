"""What readers get of a plan and a release: numbers, text, HTML, JSON."""

from __future__ import annotations

import html
import json
import math
import re

import pytest

import hetdp
from hetdp import report as _about
from hetdp.report import facts as _facts
from hetdp.report import text as _text

LEVELS = {0.1: 700, math.inf: 300}


@pytest.fixture(scope="module")
def release():
    return hetdp.mean([0.25, 0.75] * 500, epsilon=[0.1] * 700 + [math.inf] * 300, bounds=(0, 1))


def words(text):
    return " ".join(text.split())


def test_a_release_is_a_number_where_one_is_needed(release):
    assert float(release) == release.estimate
    assert f"{release:.2f}" == f"{release.estimate:.2f}"
    assert f"{release:>12.3g}" == f"{release.estimate:>12.3g}"
    assert f"{release}" == str(release) == release.report()
    with pytest.raises(ValueError, match="format"):
        format(release, "q")


def test_a_plan_and_a_release_give_their_facts_as_json(release):
    plan = hetdp.plan(LEVELS, bounds=(0, 1))
    assert json.loads(plan.to_json()) == plan.to_dict()
    assert json.loads(release.to_json()) == release.to_dict()
    assert plan.to_dict()["tiers"][1]["epsilon"] == "inf"


@pytest.fixture
def counted(monkeypatch):
    """How often the facts that cost something are computed."""
    calls = {"certificate": 0, "plan": 0, "frontier": 0}

    def counting(name, real):
        def call(*given, **options):
            calls[name] += 1
            return real(*given, **options)

        return call

    monkeypatch.setattr(_facts, "certificate", counting("certificate", _facts.certificate))
    monkeypatch.setattr(hetdp.Plan, "again", counting("plan", hetdp.Plan.again))
    monkeypatch.setattr(hetdp.Plan, "frontier", counting("frontier", hetdp.Plan.frontier))
    return calls


def test_text_html_and_json_share_facts_that_are_computed_once(counted):
    """Control: another plan for the same people computes its own."""
    plan = hetdp.plan(LEVELS, bounds=(0, 1))
    assert all([plan.report(), plan._repr_html_(), plan.to_json()])
    assert counted == {"certificate": 1, "plan": 2, "frontier": 3}
    hetdp.plan(LEVELS, bounds=(0, 1)).report()
    assert counted == {"certificate": 2, "plan": 4, "frontier": 6}


def test_text_and_html_say_the_same_in_the_same_order(release):
    """HTML is read as its cells; text, as it is printed, without the breaks of its lines."""
    parts = _text.release_parts(release, 0.95)
    cells = [html.unescape(cell) for cell in re.findall(r">([^<>]+)</(?:b|span|td|th)>", _about.to_html(parts))]
    printed = " ".join(release.report().split())
    places, place = [], 0
    for cell in cells:
        if not cell.startswith(("spent |", " ▶")):  # the bars
            place = printed.find(" ".join(cell.split()), place)
            places.append(place)
    assert len(places) > 40
    assert -1 not in places


def test_text_aligns_its_columns_and_wraps_its_sentences_under_themselves():
    grid = _about.Grid(("Tier", "People"), [("strict\nones", "7"), ("open", "1,300")])
    lines = [("Error", "one two three four five six seven well-being"), ("", "8   9")]
    assert (
        _about.to_text([grid, "chart", lines], 32)
        == """\
Tier         People
strict ones       7
open          1,300

chart

Error       one two three four
            five six seven
            well-being
            8   9"""
    )


@pytest.mark.parametrize("width", [60, 100])
def test_no_sentence_is_wider_than_asked_and_none_loses_a_word(width, release):
    parts = _text.release_parts(release, 0.95)
    sentences = [part for part in parts if isinstance(part, list)]
    assert max(map(len, _about.to_text(sentences, width).splitlines())) <= width
    assert _about.to_text(parts, width).split() == _about.to_text(parts).split()


@pytest.mark.parametrize("count", [1, 2])
def test_one_person_is_not_people(count):
    report = " ".join(hetdp.plan({0.1: 1000, 5.0: count}, bounds=(0, 1)).report().split())
    assert ("1 person (0.1%) allows more, spends about t, and gets" in report) == (count == 1)
    assert ("2 people (0.2%) allow more, spend about t, and get" in report) == (count == 2)


SENTENCES = [
    "Each person's value is protected",
    "if nobody spent more than ε = 0.1751, the squared error would grow by only 1%; 300 people would spend less",
    "ε is public and must not depend on the value.",
]


@pytest.mark.parametrize("sentence", SENTENCES)
def test_a_report_says_in_plain_words(sentence):
    assert sentence in " ".join(hetdp.plan(LEVELS, bounds=(0, 1)).report().split())


def test_a_table_of_groups_says_what_holds_for_it_as_a_whole():
    groups = {name: hetdp.mean([0.5] * 90, epsilon=[1.0] * 90, bounds=(0, 1)) for name in ("a", "b")}
    found = hetdp.Groups(groups, checked=True)
    report = " ".join(found.report().split())
    assert "Together Each person is in one group" in report
    assert report.count("Each person's value is protected") == 1
    assert "parallel composition" in html.unescape(found._repr_html_())
    assert json.loads(found.to_json())["groups"]["a"] == {"group": {"group": "a"}, **found["a"].to_dict()}
    assert found["a"].to_dict()["provenance"].pop("group") == "a"


def test_json_says_what_it_is_about_and_how_to_read_it(release):
    """The old fields stay; what a program needs to know before it reads the others is beside them."""
    named = {"schema": 1, "version": hetdp.__version__, "statistic": "mean", "measure": "pure-epsilon"}
    for facts in (release.to_dict(), release.plan.to_dict()):
        assert {name: facts[name] for name in named} == named
        assert {"method", "n", "bounds", "tiers", "certificate", "frontier", "exact", "assumptions"} <= set(facts)
    assert {"estimate", "unclamped", "interval"} <= set(release.to_dict())
    assert [set(offer) for offer in release.to_dict()["frontier"]] == [{"more_mse", "cap", "people"}] * 3


@pytest.mark.parametrize(("value", "shown"), [(0.0, False), (0.5, True)])
def test_the_normal_approximation_is_called_narrower_only_where_it_is(value, shown):
    """Near an end of the range the guaranteed interval is the narrower one: the other assumes the largest variance."""
    release = hetdp.mean([value] * 2000, epsilon=[1.0] * 2000, bounds=(0, 1))
    low, high = release.confidence_interval(0.95)
    least, most = release.confidence_interval(0.95, "normal")
    assert (most - least < high - low) == shown
    assert ("normal approximation, narrower" in release.report()) == shown


def test_the_report_says_what_a_value_outside_the_bounds_or_the_bins_counts_as():
    """The mean of the report is not that of incomes, but of incomes of which those above the bounds count as these."""
    mean = words(hetdp.mean([1.0] * 200, epsilon=1.0, bounds=(0, 250_000)).report())
    assert "the mean μ of values clipped to [0, 250,000], in the distribution" in mean
    assert "Values outside the bounds count as the bounds" in mean
    for asked in ("histogram", "mode"):
        bins = words(getattr(hetdp, asked)([1.0] * 200, epsilon=1.0, edges=[0, 1, 2]).report())
        listed = words(getattr(hetdp, asked)(["a"] * 200, epsilon=1.0, categories=["a", "b"]).report())
        assert "missing or unreadable, or below the first or above the last edge, is in the cell 'other'" in bins
        assert "missing or unreadable, or not listed, is in the cell 'other'" in listed


@pytest.mark.parametrize("values", [[1.0, 2.0] * 200, "a table"])
def test_one_epsilon_for_everybody_is_not_taken_for_everybodys_own_choice(values):
    import pandas as pd

    frame = pd.DataFrame({"x": [1.0, 2.0] * 200, "own": [1.0] * 400})
    source, of = (frame, {"value": "x"}) if values == "a table" else (values, {})
    one, own = (
        hetdp.mean(source, **of, epsilon=epsilon, bounds=(0, 2), missing="midpoint")
        for epsilon in (0.5, "own" if of else [1.0] * 400)
    )
    said = "with one ε for all: nobody's own choice was read"
    assert (said in words(one.report()), said in words(own.report())) == (True, False)
    assert [note for note in one.to_dict()["assumptions"] if "nobody's own choice was read" in note] != []


@pytest.mark.parametrize("method", ["adpm", "proportional", "uniform"])
def test_the_frontier_counts_who_would_spend_less(method):
    """Capped at ε, proportional weights make others spend more: only who spends more than ε now would spend less."""
    plan = hetdp.plan({0.02: 2000, 0.1: 1200, 1.0: 500, math.inf: 300}, bounds=(0, 1), method=method)
    cap = plan.frontier(0.01)
    fewer = sum(row.count for row in plan.table if row.spent > cap)
    said = f"the squared error would grow by only 1%; {fewer:,} people would spend less"
    assert said in words(plan.report())


def test_what_is_assumed_of_one_of_several_questions_is_said_with_its_name():
    import pandas as pd

    frame = pd.DataFrame({"x": [1.0, 2.0] * 200, "e": [1.0] * 400})
    asked = {
        "pay": hetdp.ask.mean(value="x", bounds=(0, 5), missing="none"),
        "age": hetdp.ask.histogram(value="x", edges=[0, 2, 4]),
    }
    said = words(hetdp.ask(frame, asked, epsilon="e").report()).partition(" Assumed ")[2]
    assert said.startswith("ε is public"), "what holds for all of them has no name"
    assert "pay: The estimate is of the mean" in said
    assert "age: The shares are those in the distribution" in said
    assert said.count("must not depend on the value") == 1


def test_what_stands_beside_a_median_is_not_taken_for_its_interval():
    found = hetdp.median([1.0, 2.0, 3.0] * 200, epsilon=1.0, bounds=(0, 5), missing="estimate")
    text = words(found.report())
    assert "Grid cell Rank between, if all answered" in text
    assert "if only half did, they are twice as uncertain; for intervals in units of the values add within=0.95" in text
