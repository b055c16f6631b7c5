"""Groups that are combined with known shares: the number, its interval, its words."""

from __future__ import annotations

import json
import math

import numpy as np
import polars as pl
import pytest

import hetdp
from hetdp.errors import InputError
from hetdp.statistics.answer import Groups
from hetdp.statistics.statistic import Release

MIX = {"north": {0.1: 100, 1.0: 400}, "south": {0.1: 450, 1.0: 50}}
MEANS = {"north": 0.7, "south": 0.3}


def groups_of(numbers=None, bounds=(0, 1), mix=None, **how):
    """Groups as a release gives them, with these numbers."""
    made = {}
    for name, levels in (mix or MIX).items():
        plan = hetdp.plan(levels, bounds=bounds, **how)
        made[name] = Release(plan, ((numbers or MEANS)[name],))
    return Groups(made, checked=True)


def drawn(plan, mean, runs, rng):
    """Estimates of a plan for people who say 1 with this probability, without the rounding to integers."""
    people = zip(plan.person_weight, plan.levels.count, strict=True)
    found = sum(weight * rng.binomial(count, mean, runs) for weight, count in people)
    return found + sum(rng.laplace(scale=scale, size=runs) for scale in plan.errors.scales)


def test_the_combined_number_is_the_weighted_sum_and_shares_can_have_any_unit():
    combined = groups_of().combine({"north": 300, "south": 100})
    assert combined.estimate == pytest.approx(0.75 * 0.7 + 0.25 * 0.3)
    assert combined.shares == pytest.approx({"north": 0.75, "south": 0.25})
    assert float(combined) == combined.estimate == float(f"{combined:.17g}")
    assert groups_of({"north": 1.4, "south": 0.9}).combine({"north": 1, "south": 1}).estimate == 1
    assert repr(combined) == "Combined(estimate=0.6, groups=2)"


def test_the_interval_covers_and_is_narrower_than_the_sum_of_radii():
    groups, rng = groups_of(), np.random.default_rng(11)
    combined = groups.combine({"north": 0.5, "south": 0.5})
    runs = 20_000
    found = sum(0.5 * drawn(r.plan, MEANS[name], runs, rng) for name, r in groups.items())
    errors = np.abs(found - 0.5)
    for level in (0.8, 0.95):
        assert np.mean(errors > combined.radius(level)) <= 1 - level
        assert np.mean(errors > combined.radius(level) / 2.5) > 1 - level, "control: 2.5 times as narrow misses"
    assert combined.radius() < 0.8 * sum(0.5 * r.plan.radius() for r in groups.values())
    assert np.mean(errors > combined.radius(kind="normal")) == pytest.approx(0.05, abs=0.015)
    assert math.sqrt(np.mean(errors**2)) < combined.worst_case_error
    north = groups.combine({"north": 1, "south": 1e-12})
    assert north.radius() == pytest.approx(groups["north"].plan.radius(), rel=1e-6)


@pytest.mark.parametrize("groups", [2, 6])
def test_the_interval_covers_where_the_noise_decides(groups):
    names = [f"g{i}" for i in range(groups)]
    parts = groups_of(dict.fromkeys(names, 0.5), mix={name: {0.005: 10_000} for name in names})
    combined = parts.combine(dict.fromkeys(names, 1))
    noise = np.random.default_rng(15).laplace(scale=1 / 50, size=(100_000, groups)).mean(axis=1)  # all values alike
    assert np.mean(np.abs(noise) > combined.radius()) <= 0.05
    assert np.mean(np.abs(noise) > combined.radius() / 2) > 0.05, "control: twice as narrow misses"


@pytest.mark.parametrize("method", ["adpm", "minimax", "ldpe", "proportional"])
def test_the_interval_covers_for_every_method_and_the_worst_means(method):
    groups, rng = groups_of(method=method), np.random.default_rng(12)
    combined = groups.combine({"north": 0.3, "south": 0.7})
    for means in ({"north": 0.0, "south": 0.02}, {"north": 0.5, "south": 0.5}, {"north": 1.0, "south": 1.0}):
        found, truth = 0.0, 0.0
        for name, r in groups.items():
            found += combined.shares[name] * (drawn(r.plan, means[name], 4000, rng) + (1 - r.plan.shrink) / 2)
            truth += combined.shares[name] * means[name]
        assert np.mean(np.abs(found - truth) > combined.radius()) <= 0.05
        assert math.sqrt(np.mean((found - truth) ** 2)) <= combined.worst_case_error * 1.02


def test_two_regions_whose_privacy_differs_are_right_again():
    """A yes/no question, means .7 and .3: the pooled mean errs by .089 where .0095 was promised, this one by .010."""
    mix = {"north": {1.0: 2000}, "south": {0.05: 2000}}
    rng, runs = np.random.default_rng(13), 4000
    parts = groups_of(mix=mix)
    combined = parts.combine({"north": 0.5, "south": 0.5})
    one = hetdp.plan({0.05: 2000, 1.0: 2000}, bounds=(0, 1))
    south, north = (
        row.weight * rng.binomial(2000, mean, runs) for row, mean in zip(one.table, (0.3, 0.7), strict=True)
    )
    pooled = south + north + rng.laplace(scale=one.noise_scale, size=runs)
    found = sum(0.5 * drawn(r.plan, MEANS[name], runs, rng) for name, r in parts.items())
    before, after = (math.sqrt(np.mean((x - 0.5) ** 2)) for x in (pooled, found))
    assert before == pytest.approx(0.0893, abs=0.0005)
    assert one.worst_case_error == pytest.approx(0.0095, abs=0.0001)
    assert after == pytest.approx(0.0101, abs=0.0004)
    assert after < combined.worst_case_error < 0.0111


def test_a_group_that_abstains_widens_the_interval_by_its_share():
    mix = {"north": {1.0: 1000}, "south": {0.001: 5}}
    combined = groups_of({"north": 0.4, "south": 0.5}, mix=mix).combine({"north": 0.9, "south": 0.1})
    alone = groups_of(mix=mix)["north"].plan
    assert combined.radius() == pytest.approx(0.9 * alone.radius() + 0.1 * 0.5, rel=1e-6)
    nobody = {"north": {0.001: 5}, "south": {0.001: 5}}
    assert groups_of({"north": 0.5, "south": 0.5}, mix=nobody).combine({"north": 1, "south": 1}).radius() >= 0.5


def test_shares_that_do_not_fit_are_refused():
    groups = groups_of()
    for shares in ({"north": 1}, {"north": 1, "south": 1, "east": 1}, [0.5, 0.5], {}):
        with pytest.raises(InputError, match="the share of every group and of no other"):
            groups.combine(shares)
    for bad in (0, -1, math.nan, math.inf, "1", True, None):
        with pytest.raises(InputError, match="must be a positive number"):
            groups.combine({"north": 1, "south": bad})
    with pytest.raises(InputError, match="confidence level"):
        groups.combine({"north": 1, "south": 1}).radius(1.5)
    with pytest.raises(InputError, match="'guaranteed' or 'normal'"):
        groups.combine({"north": 1, "south": 1}).radius(kind="exact")
    people = pl.DataFrame({"x": [0.2, 0.4] * 300, "g": ["a"] * 300 + ["b"] * 300, "e": [1.0] * 600})
    sums = hetdp.sum(people, value="x", missing="midpoint", epsilon="e", bounds=(0, 1), by="g", public_columns=["g"])
    with pytest.raises(InputError, match="only means and proportions of groups can be combined, not a sum"):
        sums.combine({"a": 1, "b": 1})


def test_a_table_by_group_warns_of_mixes_that_differ_and_combines_to_the_truth():
    rng = np.random.default_rng(14)
    region = np.repeat(["north", "south"], 3000)
    strict = rng.random(6000) < np.where(region == "north", 0.1, 0.9)
    value = np.clip(rng.normal(np.where(region == "north", 70, 30), 10), 0, 100)
    people = pl.DataFrame({"x": value, "region": region, "eps": np.where(strict, 0.05, 1.0)})
    ask = {"value": "x", "missing": "none", "epsilon": "eps", "bounds": (0, 100), "by": "region"}
    ask["public_columns"] = ["region"]
    groups = hetdp.mean(people, **ask)
    *_, warning = groups.warnings
    assert "the groups chose privacy differently" in warning
    assert "'south'" in warning
    assert "Combine" in groups.report()
    assert ".combine({'north': …, 'south': …})" in groups.report()
    combined = groups.combine({"north": 0.5, "south": 0.5})
    assert combined.estimate == pytest.approx(value.mean(), abs=6 * combined.worst_case_error)
    facts = json.loads(combined.to_json())
    assert facts["interval"]["guaranteed"] == list(combined.confidence_interval())
    assert facts["groups"]["north"]["bias_share"] == groups["north"].plan.bias_share
    assert facts["warnings"][-1] == warning
    assert facts["shares"] == {"north": 0.5, "south": 0.5}
    assert "95% interval" in combined.report()
    assert "50.0%" in combined.html()
    same = hetdp.mean(people.with_columns(eps=pl.Series(rng.choice([0.05, 1.0], 6000))), **ask)
    assert not any("chose privacy" in said for said in same.warnings), "control: mixes that agree are not warned of"
