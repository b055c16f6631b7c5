"""What readers get of a plan and a release: numbers, text, HTML, JSON."""

from __future__ import annotations

import json
import math

import pytest

import hetdp

LEVELS = {0.1: 700, math.inf: 300}


@pytest.fixture(scope="module")
def release():
    return hetdp.mean([0.25, 0.75] * 500, epsilon=[0.1] * 700 + [math.inf] * 300, bounds=(0, 1))


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


def test_a_plan_says_the_same_as_what_it_predicts():
    """Control: the predictions of another plan differ."""
    plan, other = (hetdp.plan(LEVELS, bounds=(0, 1), method=method) for method in ("adpm", "uniform"))
    predicted = plan.predicted
    assert plan.predicted is predicted
    assert (plan.noise_scale, plan.worst_case_mse, plan.worst_case_error, plan.mse(0.1), plan.frontier(0.05)) == (
        predicted.noise_scale,
        predicted.worst_case_mse,
        predicted.worst_case_error,
        predicted.mse(0.1),
        predicted.frontier(0.05),
    )
    assert plan.radius(0.9, "normal") == predicted.radius(0.9, "normal") != other.radius(0.9, "normal")
