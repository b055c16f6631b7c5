"""The mean as a statistic: codes, costs, ρ and reading; and that plans and releases go by what a statistic says."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hetdp
from hetdp import Interval, PrivacyError
from hetdp.core.levels import saturation
from hetdp.privacy.exact import Line
from hetdp.statistics.mean import Mean, Sum
from hetdp.tally import coded, settled
from support import bounds as intervals

Q = 2**20
LEVELS = {0.1: 700, 0.5: 200, math.inf: 100}
numbers = st.floats(allow_nan=True, allow_infinity=True)


@settings(deadline=None)
@given(st.lists(numbers, max_size=20), intervals)
def test_every_value_becomes_one_whole_code(values, interval):
    keep, cell, (codes,) = settled(Mean(interval), *coded(Mean(interval), [np.array(values, dtype=np.float64)]))
    assert keep is None
    assert codes.shape == (len(values),)
    assert not cell.any()
    assert ((codes >= 0) & (codes <= Q) & (codes == np.floor(codes))).all()
    assert (codes[[math.isnan(value) for value in values]] == Q // 2).all()


@pytest.mark.parametrize("kind", [np.int8, np.uint64, np.float32, np.longdouble, bool])
def test_values_of_any_numeric_type_are_encoded(kind):
    assert coded(Mean((0, 1)), [np.array([0, 1], dtype=kind)])[1][0].tolist() == [0, Q]


@settings(deadline=None, max_examples=300)
@given(st.integers(0, 2**30), st.integers(0, 10**24), st.integers(0, Q), st.integers(0, Q))
def test_one_person_moves_the_floored_sum_by_at_most_the_cost(weight, others, before, after):
    """Whatever the others add up to; from one end to the other the cost is reached, so less would be too little."""
    cost = int(Mean((0, 1)).geometry.cost(np.array([weight]))[0])
    assert abs((others + weight * before) // Q - (others + weight * after) // Q) <= cost
    assert (others + weight * Q) // Q - others // Q == cost


def test_the_plan_takes_its_cap_from_the_statistics_rho():
    """ρ = 8 is the variance 2 of the noise at scale 1 over the largest variance 1/4; half of it gives another cap."""
    plan = hetdp.plan(LEVELS, bounds=(0, 1))
    caps = [saturation(plan.levels.epsilon, plan.levels.count, rho=rho) for rho in (8, 4)]
    assert plan.statistic.rho == 8
    assert plan.threshold == pytest.approx(caps[0], rel=1e-12)
    assert caps[1] < 0.9 * caps[0]


class Steep(Line):
    """A line on which one person moves the noisy sum half as far again."""

    def cost(self, units):
        return units + units // 2


@dataclass(frozen=True)
class Farther(Mean):
    """A statistic in which one person moves the noisy sums half as far again."""

    @property
    def geometry(self):
        return Steep()


def test_the_exact_check_and_the_noise_go_by_the_cost():
    plan = hetdp.plan(LEVELS, bounds=(0, 1))
    with pytest.raises(PrivacyError, match="more than somebody's epsilon"):
        replace(plan, statistic=Farther(plan.interval))
    more = hetdp.plan(LEVELS, statistic=Farther(plan.interval))
    assert more.noise[0].scale == pytest.approx(1.5 * plan.noise[0].scale, rel=1e-8)
    assert more.spent == pytest.approx(plan.spent, rel=1e-8)


def test_a_plan_takes_bounds_or_a_statistic_and_says_so():
    given = hetdp.plan(LEVELS, bounds=(0, 9))
    assert hetdp.plan(LEVELS, statistic=Mean(Interval(0, 9))).to_dict() == given.to_dict()
    both = {"bounds": (0, 9), "statistic": Mean(Interval(0, 9))}
    for given, said in (({}, "needs the public bounds"), (both, "takes bounds or a statistic, not both")):
        with pytest.raises(hetdp.InputError, match=said):
            hetdp.plan(LEVELS, **given)


def test_a_release_refuses_a_plan_for_another_statistic_or_domain():
    tally = hetdp.read([0.2, 0.8] * 50, epsilon=[1.0] * 100, bounds=(0, 1))
    plan = hetdp.plan(tally.levels, bounds=(0, 1))
    assert tally.statistic == plan.statistic
    with pytest.raises(hetdp.InputError, match="bounds"):
        hetdp.release(tally, hetdp.plan(tally.levels, bounds=(0, 2)))
    with pytest.raises(hetdp.InputError, match="for a sum, the plan for a mean"):
        hetdp.release(replace(tally, statistic=Sum((0, 1))), plan)
