"""What plans, releases and comparisons say about drift and target; the command line and a ledger take both."""

from __future__ import annotations

import json
import math

import pytest

import hetdp
from hetdp.errors import OtherRequestError
from hetdp.report.drift import sentence, warnings

LEVELS = {0.1: 500, 1.0: 500}
ASKED = {
    "mean": (
        hetdp.ask.mean(bounds=(0, 250_000)),
        "by 25,000 (10% of the range), this estimate would be off by up to 5,600",
    ),
    "sum": (hetdp.ask.sum(bounds=(0, 250_000)), "this estimate would be off by up to 5,600,000"),
    "proportion": (
        hetdp.ask.proportion(equals="a"),
        "by 10 percentage points, it would be off by up to 2.23 percentage",
    ),
    "count": (hetdp.ask.count(equals="a"), "the count would be off by up to 23 people"),
    "histogram": (hetdp.ask.histogram(categories=["a", "b"]), "a share among the strictest people differed"),
    "median": (hetdp.ask.median(bounds=(0, 1)), "below a value differed from that of the most open by 10 percentage"),
    "mode": (hetdp.ask.mode(categories=["a", "b"]), "a share among the strictest people differed"),
    "variance": (hetdp.ask.variance(bounds=(0, 1)), "by 10% of the range, the mean would be off by up to"),
    "mean of those who answered": (
        hetdp.ask.mean(bounds=(0, 1), missing="estimate"),
        "divided by the share of people who answered",
    ),
}


@pytest.mark.parametrize("name", ASKED)
def test_every_statistic_says_what_a_difference_between_levels_would_do(name):
    statistic, words = ASKED[name]
    plan = hetdp.plan(LEVELS, statistic=statistic)
    assert words in sentence(plan)
    shown = " ".join(plan.report().split())
    assert sentence(plan) in shown
    assert "Drift" in shown
    assert "Target" in shown
    facts = json.loads(plan.to_json())
    assert facts["bias_share"] == plan.bias_share > 0
    assert facts["warnings"] == list(warnings(plan))
    assert ("Warning" in shown) == bool(facts["warnings"])


def test_the_warning_comes_when_a_tenth_of_the_range_brings_half_of_the_promised_error():
    for people in (200, 1000, 3000, 10_000, 30_000, 100_000):
        plan = hetdp.plan({0.1: people // 2, 1.0: people // 2}, bounds=(0, 10))
        assert bool(warnings(plan)) == (0.1 * plan.bias_share * 10 > plan.worst_case_error / 2), people
    assert not warnings(plan), "control: with many people there is none"
    (words,) = warnings(hetdp.plan(LEVELS, bounds=(0, 10)))
    assert all(remedy in words for remedy in ("drift=", "--drift", "by=", ".combine"))
    assert warnings(hetdp.plan(LEVELS, bounds=(0, 10), drift=0.05)) == ()
    assert "uniform" in warnings(hetdp.plan(LEVELS, statistic=ASKED["histogram"][0]))[0]


def test_people_who_count_alike_need_no_warning_and_an_answer_without_data_says_nothing():
    assert "everybody counts alike" in sentence(hetdp.plan({0.5: 100}, bounds=(0, 1)))
    silent = hetdp.plan({0.001: 3}, bounds=(0, 1))
    assert silent.abstains
    assert silent.bias_share == 0
    assert "Drift" not in silent.report()


def test_a_stated_drift_and_target_are_in_the_report_the_json_and_the_assumptions():
    plan = hetdp.plan(LEVELS, bounds=(0, 100), drift=0.2, target="people")
    shown = " ".join(plan.report().split())
    assert "Target exactly these people" in shown
    assert (
        "it was stated that the strictest people's mean may differ from the most open people's by 20 (20% of" in shown
    )
    assert "which the error includes" in shown
    assert "must not depend on the value" not in shown
    assert "The estimate is of the mean of exactly these people" in shown
    assert "outside the bounds count as the bounds" in shown
    assert "certified for the population without drift alone" in shown
    facts = plan.to_dict()
    assert (facts["drift"], facts["target"], facts["certificate"]) == (0.2, "people", None)
    for how in ({"drift": 0.2}, {"target": "people"}):
        assert hetdp.plan(LEVELS, bounds=(0, 1), **how).facts.certificate is None
    assert hetdp.plan(LEVELS, bounds=(0, 1)).facts.certificate is not None, "control"


def test_a_comparison_has_every_method_at_three_drifts():
    compared = hetdp.compare(LEVELS, bounds=(0, 1))
    for entry in compared.entries:
        if entry.plan is not None:
            assert list(entry.at_drift) == [0, 0.1, 0.2]
            assert entry.at_drift[0] == pytest.approx(entry.worst_case_error)
            assert sorted(entry.at_drift.values()) == list(entry.at_drift.values())
    adpm = next(entry for entry in compared.entries if entry.method == "adpm")
    assert compared.repaired[0.2] == hetdp.plan(LEVELS, bounds=(0, 1), drift=0.2).worst_case_error < adpm.at_drift[0.2]
    facts = compared.to_dict()
    assert facts["methods"][0]["error_at_drift"].keys() == {"0", "0.1", "0.2"}
    assert facts["adpm_with_drift"] == {"0.1": compared.repaired[0.1], "0.2": compared.repaired[0.2]}
    assert "Drift 0.1 ±" in compared.report()
    stated = hetdp.compare(LEVELS, bounds=(0, 1), drift=0.2)
    assert stated.certificate is None
    assert "with a drift of 0.2" in stated.report()
    assert stated.entries[0].worst_case_error == pytest.approx(stated.entries[0].at_drift[0.2])


def test_the_command_line_takes_both(tmp_path, hetdp_command):
    file = tmp_path / "p.csv"
    file.write_text("x,e\n" + "30,0.1\n50,1\n" * 500)
    table = (str(file), "--value", "x", "--missing", "midpoint", "--epsilon", "e", "--bounds", "0", "100")
    code, out, err = hetdp_command("mean", *table, "--drift", "0.2", "--target", "people", "--json")
    assert code == 0, err
    facts = json.loads(out)
    assert (facts["drift"], facts["target"]) == (0.2, "people")
    same = hetdp.plan(LEVELS, bounds=(0, 100), drift=0.2, target="people")
    assert facts["threshold"] == same.threshold
    assert facts["worst_case_error"] == same.worst_case_error
    tiers = ("--tier", "strict=0.1:500", "--tier", "open=1:500", "--bounds", "0", "100")
    planned = json.loads(hetdp_command("plan", *tiers, "--drift", "0.1", "--json")[1])
    assert planned["drift"] == 0.1
    assert planned["warnings"] == []
    assert "Drift 0.2 ±" in hetdp_command("compare", *tiers, "--drift", "0.1")[1]
    code, _, err = hetdp_command("mean", *table, "--drift", "2")
    assert code == 2
    assert "drift must be a number from 0 to 1" in err
    code, _, err = hetdp_command("median", *table, "--drift", "0.1")
    assert code == 2
    assert "not for a quantile" in err
    code, _, err = hetdp_command("mean", *table, "--target", "rows")
    assert code == 2
    assert "target is 'population' or 'people'" in err


def test_a_ledger_charges_and_keeps_both_and_another_drift_is_another_request(tmp_path):
    values, ids = [0.2, 0.8] * 200, [f"p{i}" for i in range(400)]
    with hetdp.Ledger.create(tmp_path / "l.db") as ledger:
        ledger.enroll(dict(zip(ids, [0.5, math.inf] * 200, strict=True)))
        ask = {"person": ids, "missing": "none", "bounds": (0, 1), "share": 0.5}
        first = ledger.mean(values, **ask, release_id="a", drift=0.2, target="people")
        assert (first.plan.drift, first.plan.target) == (0.2, "people")
        again = ledger.mean(values, **ask, release_id="a", drift=0.2, target="people")
        assert again.estimate == first.estimate
        assert again.plan.worst_case_error == first.plan.worst_case_error
        for other in ({}, {"drift": 0.2}, {"drift": 0.1, "target": "people"}, {"target": "people"}):
            with pytest.raises(OtherRequestError, match="the drift or the target"):
                ledger.mean(values, **ask, release_id="a", **other)
        plain = ledger.mean(values, **ask, release_id="b", target="population")
        assert plain.unclamped == ledger.mean(values, **ask, release_id="b").unclamped, "the default need not be said"
        assert (plain.plan.drift, plain.plan.target) == (0.0, "population")
