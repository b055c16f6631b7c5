"""Numbers are printed to the digits that their error supports, and limits on the side where they are true."""

from __future__ import annotations

import html
import json
import math
import re
from decimal import Decimal

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hetdp
from hetdp import report
from hetdp.report import between, number, percent, size, spent_epsilon
from hetdp.report.drift import EXAMPLE
from hetdp.report.text import cap

sizes = st.floats(min_value=1e-7, max_value=1e11)


def printed(text):
    return Decimal(text.replace(",", "").removesuffix("%"))


@given(st.floats(min_value=-1e11, max_value=1e11), sizes)
def test_a_number_is_off_by_at_most_half_of_the_second_digit_of_its_error(x, error):
    step = Decimal(10) ** (math.floor(math.log10(error)) - 1)
    assert abs(printed(number(x, error)) - Decimal(x)) <= step / 2 * (1 + Decimal("1e-6"))
    digits = number(x, error).replace(",", "").partition(".")[2]
    assert len(digits) <= max(0, 1 - math.floor(math.log10(error))), "a digit that the error does not support"


@given(st.floats(min_value=-1e11, max_value=1e11), sizes, sizes)
def test_a_printed_interval_covers_the_interval(low, width, error):
    error = max(error, 1e-12 * (abs(low) + width))  # a smaller one is beyond the doubles themselves
    ends = [printed(end) for end in between(low, low + width, error).split(" to ")]
    hair = Decimal(error) / 10**6
    assert ends[0] - hair <= Decimal(low)
    assert ends[1] + hair >= Decimal(low + width)


def test_control_an_interval_that_is_rounded_to_the_nearest_would_not_cover(monkeypatch):
    assert between(0.1249, 0.8751, 0.11) == "0.12 to 0.88"
    monkeypatch.setattr(report, "_WAYS", dict.fromkeys(report._WAYS, "ROUND_HALF_EVEN"))
    assert printed(between(0.1251, 0.8749, 0.11).split(" to ")[0]) > Decimal("0.1251")


@given(sizes)
def test_the_size_of_an_error_is_rounded_up_by_less_than_a_tenth(error):
    for shown, true in ((size(error), error), (percent(error), 100 * error)):
        assert Decimal(true) * (1 - Decimal("1e-6")) <= printed(shown) <= Decimal(true) * Decimal("1.1001")


SURVEY = {0.05: 1200, 0.5: 1350, 3: 450}
SURVEYED = hetdp.ask.mean(bounds=(0, 200_000), missing="estimate")


def promised(text):
    """The errors that a report promises: each ± or "up to", as a number."""
    text = " ".join(text.split())
    return [printed(found) for found in re.findall(r"(?:± |off by up to )([\d,.]*\d)", text)]


def test_the_errors_among_those_who_answered_are_never_printed_below_what_they_are():
    plan = hetdp.plan(SURVEY, statistic=SURVEYED)
    errors = [each["error"] for each in plan.facts.answered_errors]
    shown = promised(plan.report().partition("\nError")[2].partition("\nDrift")[0])
    assert [int(x) for x in shown] == [2300, 2500, 3200]
    assert all(Decimal(error) <= x for error, x in zip(errors, shown, strict=True)), (errors, shown)


@pytest.mark.parametrize("seed", range(5))
def test_what_a_drift_would_do_and_the_width_are_rounded_up_too(seed):
    plan = hetdp.plan(groups_of(seed), bounds=(0, 1000))
    (width,) = promised(plan.report().partition("\nInterval")[2].partition("\nDrift")[0])
    (off,) = promised(plan.report().partition("\nDrift")[2].partition("\nInstead")[0])
    hair = 1 - Decimal("1e-6")
    assert width >= Decimal(plan.facts.width) * hair
    assert off >= Decimal(1000 * EXAMPLE * plan.bias_share) * hair
    asked = hetdp.ask.proportion(equals="a")
    share = hetdp.plan(groups_of(seed), statistic=asked)
    (points,) = promised(share.report().partition("\nDrift")[2].partition("\nInstead")[0])
    assert points >= Decimal(100 * EXAMPLE * share.bias_share) * hair
    count = hetdp.plan(groups_of(seed), statistic=hetdp.ask.count(equals="a"))
    (people,) = promised(count.report().partition("\nDrift")[2].partition("\nInstead")[0])
    assert people >= Decimal(EXAMPLE * count.bias_share * count.n) * hair


def test_what_adpm_would_have_if_it_was_told_of_a_drift_is_rounded_up():
    found = hetdp.compare(SURVEY, bounds=(0, 200_000))
    said = " ".join(found.report().split())
    shown = [printed(x) for x in re.findall(r"([\d,.]+) with --drift", said)]
    assert all(x >= Decimal(error) for x, error in zip(shown, found.repaired.values(), strict=True))


def test_zero_has_no_sign_and_whole_numbers_stay_whole():
    assert number(-0.0001, 0.1) == "0.00"
    assert (number(0.1, 0.1, "up"), number(250_000, 6_543, "up"), number(0.0, 0.01, "down")) == (
        "0.10",
        "250,000",
        "0.000",
    )


def groups_of(seed):
    rng = np.random.default_rng(seed)
    levels = np.round(np.exp(rng.uniform(-4, 1, 6)), 3)
    return {float(e): int(c) for e, c in zip(levels, rng.integers(50, 3000, 6), strict=True)} | {math.inf: 40}


@pytest.mark.parametrize("seed", range(25))
def test_t_and_what_is_spent_at_it_are_printed_alike(seed):
    plan = hetdp.plan(groups_of(seed), bounds=(0, 1))
    assert not plan.abstains
    assert math.isfinite(plan.threshold)  # 40 public people are above it
    text = " ".join(plan.report().split())
    t = re.search(r"Saturation t = ([\d.e-]+):", text)[1]
    above = plan.levels.epsilon > plan.threshold
    assert {t} == {spent_epsilon(spent) for spent in plan.spent[above].tolist()}
    assert (cap(plan), f"spending ε = {t} " in text) == (t, True)


def test_control_rounding_them_apart_would_differ_for_some_of_these_people():
    plans = [hetdp.plan(groups_of(seed), bounds=(0, 1)) for seed in range(25)]
    nearest = [f"{p.threshold:.4g}" != spent_epsilon(float(p.spent.max())) for p in plans if math.isfinite(p.threshold)]
    assert any(nearest)


def uncertain(found):
    return "too uncertain to use" in " ".join(html.unescape(found.html()).split())


FEW = {"epsilon": [0.05] * 200}


@pytest.mark.parametrize("people", [200, 20_000])
def test_an_interval_over_more_than_half_of_the_range_is_called_too_uncertain(people):
    found = hetdp.mean([0.5] * people, epsilon=[0.5] * people, bounds=(0, 1))
    low, high = found.confidence_interval()
    wide = high - low > 0.5
    assert (uncertain(found), "too uncertain to use" in found.report()) == (wide, wide)
    assert found.to_dict()["interval"]["uncertain"] == wide
    if people > 1000:
        assert not wide
    tiny = hetdp.mean([0.5] * 60, epsilon=[0.6] * 60, bounds=(0, 1))
    if not tiny.plan.abstains:
        assert uncertain(tiny) == (np.diff(tiny.confidence_interval()) > 0.5)


def test_several_numbers_are_each_called_so_by_their_own_range():
    asked = hetdp.ask.std(bounds=(0, 10))
    plan = hetdp.plan({0.5: 900}, statistic=asked)
    found = asked.answer(plan, (0.5, 0.5))
    rooms = {"mean": 10, "variance": 25, "std": 5}
    for figure in found.figures():
        assert figure.room == rooms[figure.label]
        assert figure.uncertain == (figure.high - figure.low > figure.room / 2)
    shown = [line for line in found.report().splitlines() if line.startswith(("mean", "variance", "std"))]
    assert ["too uncertain to use" in line for line in shown] == [figure.uncertain for figure in found.figures()]


def test_a_quantile_is_judged_by_its_rank_and_not_by_its_bin():
    asked = hetdp.ask.median(bounds=(0, 10))
    few, many = (asked.answer(hetdp.plan({1.0: n}, statistic=asked), (10.0,)) for n in (40, 40_000))
    assert (few.figures()[0].uncertain, many.figures()[0].uncertain) == (True, False)
    assert few.figures()[0].high - few.figures()[0].low < 0.01


@pytest.mark.parametrize(("people", "doubted"), [(150, True), (200, True), (250, True), (400, True), (20_000, False)])
def test_a_deviation_whose_interval_is_wider_than_itself_is_too_uncertain_and_so_is_its_variance(people, doubted):
    """Half of the largest deviation was passed, or not, by luck: 0 to 63,000 was marked and 0 to 61,000 was not."""
    asked = hetdp.ask.variance(bounds=(0, 250_000))
    found = asked.answer(hetdp.plan({0.5: people}, statistic=asked), (0.5, 0.0211))
    mean, variance, deviation = found.figures()
    assert (deviation.high - deviation.low > deviation.estimate) == doubted
    assert (mean.uncertain, variance.uncertain, deviation.uncertain) == (False, doubted, doubted)


def test_a_column_that_hardly_varies_is_not_called_uncertain():
    """Its deviation is 0, and no interval is narrower than that: a small one says all that can be said."""
    asked = hetdp.ask.variance(bounds=(0, 250_000))
    found = asked.answer(hetdp.plan({2.0: 40_000_000}, statistic=asked), (0.5, 0.0))
    assert (found.std, found.figures()[2].low) == (0, 0)
    assert not any(figure.uncertain for figure in found.figures())


def test_what_is_not_from_the_data_is_not_called_uncertain_besides():
    found = hetdp.mean([0.5] * 3, epsilon=[0.01] * 3, bounds=(0, 1))
    assert found.plan.abstains
    assert not uncertain(found)


def every_number(fact):
    if isinstance(fact, dict):
        for part in fact.values():
            yield from every_number(part)
    elif isinstance(fact, (list, tuple)):
        for part in fact:
            yield from every_number(part)
    elif isinstance(fact, float):
        yield fact


@pytest.mark.parametrize("seed", range(8))
def test_json_has_no_numbers_that_are_rounding_errors(seed):
    levels = groups_of(seed)
    epsilons = [e for e, count in levels.items() for _ in range(count)]
    table = pl.DataFrame({"x": np.arange(len(epsilons)) % 3, "e": epsilons})
    shares = hetdp.histogram(table, value="x", epsilon="e", categories=[0, 1, 2, 3, 4, 5]).simplex()
    for found in (
        shares,
        hetdp.mean(table, value="x", missing="midpoint", epsilon="e", bounds=(0, 2)),
        hetdp.plan(levels, bounds=(0, 1)),
    ):
        small = [x for x in every_number(json.loads(found.to_json())) if 0 < abs(x) < 1e-12]
        assert small == []


def test_who_spends_all_but_a_rounding_has_nothing_free():
    """Control: the difference itself was such a rounding, 1.4e-17, where the report prints a dash."""
    rows = [row for seed in range(8) for row in hetdp.plan(groups_of(seed), bounds=(0, 1)).table]
    assert any(0 < row.epsilon - row.spent < 1e-12 for row in rows)
    assert not any(0 < row.free < 1e-12 for row in rows)


@pytest.mark.parametrize("count", [1, 2])
def test_singular_and_plural_agree(count, tmp_path, hetdp_command):
    one = count == 1
    table = tmp_path / "t.csv"
    table.write_text("x,g,e\n" + "1,u,2\n" * count)
    words = ("--value", "x", "--missing", "midpoint", "--epsilon", "e", "--bounds", 0, 1)
    said = hetdp_command("tally", table, *words, "-o", tmp_path / "a.tally")[1]
    assert f": {'1 person' if one else '2 people'} at 1 level of ε." in said
    checked = hetdp_command("check", table, *(word for word in words if word not in ("--missing", "midpoint")))[1]
    assert ("1 row\n" in checked) == one
    asked = hetdp.ask.histogram(categories=["a", "b"][:count])
    assert asked.setting == ("1 category and 'other'" if one else "2 categories and 'other'")
    with hetdp.Ledger.create(tmp_path / "b.db") as ledger:
        people = "1 person" if one else "2 people"
        assert str(ledger.enroll({f"p{i}": 1 for i in range(count)})) == f"{people} enrolled"
        assert people in repr(ledger)
        assert f"{people} enrolled or changed" in str(ledger.history())
        assert f"2 events, {people} in 1 cohort, 0 releases" in str(ledger.verify())


EDGE = "(at the end of the range)"


@pytest.mark.parametrize(("drawn", "said"), [(-0.02, True), (0.0, False), (0.1, False), (1.01, True)])
def test_an_estimate_that_noise_pushed_to_the_end_of_the_range_says_so(drawn, said):
    plan = hetdp.plan({0.5: 2000}, bounds=(0, 1))
    assert (EDGE in " ".join(hetdp.Release(plan, (drawn,)).report().split())) is said


@pytest.mark.parametrize(("upper", "lower", "said"), [(-0.01, 0.7, True), (0.7, -0.01, True), (0.3, 0.4, False)])
def test_a_mean_of_those_who_answered_says_so_too(upper, lower, said):
    asked = hetdp.ask.mean(bounds=(0, 250_000), missing="estimate")
    found = asked.answer(hetdp.plan({0.5: 2000}, statistic=asked), (upper, lower, 1 - upper - lower))
    assert found.estimate in ((0.0, 250_000.0) if said else (found.estimate,))
    assert (EDGE in " ".join(found.report().split())) is said
    groups = hetdp.Groups({"a": found, "b": found}, checked=True)
    assert (EDGE in " ".join(groups.report().split())) is said


ENDS = {
    "a mean": (hetdp.ask.mean(bounds=(0, 1)), "most values lie there or beyond: look at bounds and how cells are read"),
    "a share": (hetdp.ask.proportion(equals="Ja"), "nobody, or everybody, has the value: look at how that is spelt"),
}


@pytest.mark.parametrize("kind", ENDS)
def test_a_number_at_the_end_of_the_range_is_not_blamed_on_noise_alone(kind):
    """Bounds written 200.000, or a category that nobody has, give such a number too; text, JSON and frame say so."""
    asked, why = ENDS[kind]
    plan = hetdp.plan({0.5: 2000}, statistic=asked)
    at_end, inside = hetdp.Release(plan, (-0.02,)), hetdp.Release(plan, (0.3,))
    said = " ".join(at_end.report().split())
    assert "the end of the range by noise, or" in said
    assert why in said
    told = at_end.to_dict()
    assert told["interval"]["at_end"] is True
    assert [sentence for sentence in told["warnings"] if why in sentence] != []
    assert why not in " ".join(inside.report().split())
    assert inside.to_dict()["interval"]["at_end"] is False
    groups = hetdp.Groups({"a": at_end, "b": inside}, checked=True)
    assert groups.to_frame()["at_end"].to_list() == [True, False]
    assert " ".join(groups.report().split()).count(why) == 1


NEAR = {
    "nobody has it": (hetdp.ask.proportion(equals="Ja"), (0.0004,), "includes 0: perhaps nobody has the value"),
    "everybody has it": (hetdp.ask.proportion(equals="Ja"), (0.9996,), "includes 1: perhaps everybody has"),
    "a count": (hetdp.ask.count(equals="Ja"), (1.0,), "includes 0: perhaps nobody has the value"),
    "a full count": (hetdp.ask.count(equals="Ja"), (1999.0,), "includes 2,000: perhaps everybody has the value"),
    "of those who answered": (
        hetdp.ask.proportion(equals="Ja", missing="estimate"),
        (0.0004, 0.9, 0.0996),
        "includes 0: perhaps nobody has the value, so look at how that is spelt",
    ),
    "a sum": (
        hetdp.ask.sum(bounds=(0, 100), missing="estimate"),
        (80.0,),
        "includes 0, which is the sum if hardly any cell could be read",
    ),
}
"""Answers that noise has left a little inside the range: on either side of its end as often as not."""


@pytest.mark.parametrize("kind", NEAR)
def test_an_interval_that_reaches_the_end_says_what_may_be_behind_it(kind):
    """The note was there only if noise fell on the outer side of the end, that is by chance."""
    asked, numbers, why = NEAR[kind]
    found = asked.answer(hetdp.plan({0.5: 2000}, statistic=asked), numbers)
    assert EDGE not in found.report()
    assert why in " ".join(found.report().split())
    assert [sentence for sentence in found.to_dict()["warnings"] if why in sentence] != []


@pytest.mark.parametrize("kind", NEAR)
def test_an_interval_inside_the_range_says_nothing_of_it(kind):
    asked, numbers, _ = NEAR[kind]
    middle = {"a count": (900.0,), "a full count": (900.0,), "a sum": (9000.0,)}.get(
        kind, (0.4, 0.5, 0.1)[: len(numbers)]
    )
    found = asked.answer(hetdp.plan({0.5: 2000}, statistic=asked), middle)
    assert "the interval includes" not in " ".join(found.report().split())


def test_where_everybody_is_public_there_is_no_noise_that_could_have_pushed():
    found = hetdp.mean([1.0] * 50, epsilon=[math.inf] * 50, bounds=(0, 1))
    assert found.estimate == 1
    assert EDGE not in found.report()


def test_a_share_that_is_mostly_noise_is_not_called_five_per_cent():
    asked = hetdp.ask.mean(bounds=(0, 10), missing="estimate")
    plan = hetdp.plan({0.1: 1000, 1.0: 1000}, statistic=asked)
    few, more = (" ".join(asked.answer(plan, (share, 0.0, 1 - share)).report().split()) for share in (0.001, 0.4))
    assert "since hardly anybody answered" in few
    assert "since 40% answered" in more
