"""What it takes to reach an error: the public function says what `hetdp plan --target-error` says."""

from __future__ import annotations

import json
import math

import pytest

import hetdp

TIERS = {0.1: 700, 1.0: 300}


def error(people, bounds=(0, 10), **how):
    return hetdp.plan(people, bounds=bounds, **how).worst_case_error


@pytest.mark.parametrize("method", ["adpm", "uniform", "minimax"])
def test_so_many_people_reach_the_error_and_fewer_do_not(method):
    goal = 0.8 * error(TIERS, method=method)
    found = hetdp.people_needed(TIERS, error=goal, bounds=(0, 10), method=method)
    times = found.people / 1000
    mix = lambda factor: {level: round(count * factor) for level, count in TIERS.items()}  # noqa: E731
    assert not found.reached
    assert error(mix(times * 1.003), method=method) < goal < error(mix(times * 0.99), method=method)


def test_a_bound_on_the_variance_makes_fewer_people_enough():
    asked = {"error": 0.1, "bounds": (0, 10)}
    assert hetdp.people_needed(TIERS, **asked, variance=1.0).people < hetdp.people_needed(TIERS, **asked).people


def test_what_is_reached_and_what_cannot_be_reached():
    assert hetdp.people_needed(TIERS, error=9, bounds=(0, 10)).reached
    assert hetdp.people_needed({0.0: 10}, error=0.1, bounds=(0, 1)).people is None
    for wrong in (0, -1, math.inf, math.nan):
        with pytest.raises(hetdp.InputError, match="target error"):
            hetdp.people_needed(TIERS, error=wrong, bounds=(0, 10))


def test_people_who_are_not_needed_need_an_epsilon_of_0():
    """Before, it was the smallest double, 5e-324."""
    found = hetdp.people_needed({0.1: 10, 1.0: 100_000}, error=0.01, bounds=(0, 1))
    assert found.epsilon[0.1] == 0.0 < found.epsilon[1.0] < 1


@pytest.mark.parametrize("method", ["adpm", "uniform"])
@pytest.mark.parametrize("variance", [None, 2.0])
def test_so_many_people_reach_the_width_and_fewer_do_not(method, variance):
    how = {"bounds": (0, 10), "method": method, "variance": variance}
    goal = 0.8 * hetdp.plan(TIERS, **how).width(0.9)
    found = hetdp.people_needed(TIERS, width=goal, level=0.9, **how)
    mix = lambda factor: {level: round(count * factor * found.people / 1000) for level, count in TIERS.items()}  # noqa: E731
    assert not found.reached
    assert hetdp.plan(mix(1.003), **how).width(0.9) < goal < hetdp.plan(mix(0.99), **how).width(0.9)


def test_exactly_one_target_is_named():
    for wrong in ({}, {"error": 1, "width": 1}):
        with pytest.raises(hetdp.InputError, match="one target"):
            hetdp.people_needed(TIERS, bounds=(0, 10), **wrong)
    with pytest.raises(hetdp.InputError, match="target width"):
        hetdp.people_needed(TIERS, bounds=(0, 10), width=-1)


def test_the_command_says_the_same_of_a_width(hetdp_command):
    words = ("--tier", "strict=0.1:700", "--tier", "open=1:300", "--bounds", "0", "10", "--target-width", "0.3")
    shown = json.loads(hetdp_command("plan", *words, "--json")[1])["target_width"]
    assert shown == hetdp.people_needed(TIERS, width=0.3, bounds=(0, 10)).to_dict()
    assert "half-width of the 95% interval" in hetdp_command("plan", *words)[1]


def test_the_command_says_the_same(hetdp_command):
    words = ("--tier", "strict=0.1:700", "--tier", "open=1:300", "--bounds", "0", "10", "--target-error", "0.19")
    shown = json.loads(hetdp_command("plan", *words, "--json")[1])["target_error"]
    assert shown == hetdp.people_needed(TIERS, error=0.19, bounds=(0, 10)).to_dict()


def test_the_python_function_takes_what_a_plan_takes(hetdp_command):
    """Those who answered, these people: as many as the command says, and what a plan for so many promises."""
    asked = hetdp.ask.mean(bounds=(0, 10), missing="estimate")
    found = hetdp.people_needed(TIERS, error=0.19, statistic=asked)
    words = ("--tier", "strict=0.1:700", "--tier", "open=1:300", "--bounds", "0", "10", "--missing", "estimate")
    shown = json.loads(hetdp_command("plan", *words, "--target-error", "0.19", "--json")[1])["target_error"]
    assert shown == found.to_dict()
    assert found.people > hetdp.people_needed(TIERS, error=0.19, bounds=(0, 10)).people
    these = hetdp.people_needed(TIERS, error=0.19, bounds=(0, 10), target="people")
    assert these.people < hetdp.people_needed(TIERS, error=0.19, bounds=(0, 10)).people
    with pytest.raises(hetdp.InputError, match="for a mean, not for a quantile"):
        hetdp.people_needed(TIERS, error=0.1, statistic=hetdp.ask.median(bounds=(0, 10)))
