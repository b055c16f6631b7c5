"""What the compiled kernels make of missing values: the integers of the reference, for every choice."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest

from hetdp.statistics.mean import Mean
from hetdp.tally import groupby

pytest.importorskip("numba")
LEVELS = {
    "few levels": lambda rng, n: rng.choice([0.0, -0.0, 0.1, 0.5, np.inf], n),
    "many levels": lambda rng, n: rng.integers(0, 3000, n) / 1000,
    "so many that they are rounded": lambda rng, n: rng.random(n),
}


def table(missing, people, start):
    """The table of people who come in three parts, by the kernels from so many on."""
    epsilon, values = people
    with mock.patch.multiple(groupby, LOADED_FROM=start, COMPILED_FROM=start):
        grouping = groupby.Grouping(Mean((-1, 2), missing=missing))
        for part in np.array_split(np.arange(epsilon.size), 3):
            grouping.add(epsilon[part], [values[part]])
        return grouping.table()


@pytest.mark.parametrize("missing", ["estimate", "drop", "midpoint", "none", 0.5])
@pytest.mark.parametrize("levels", LEVELS)
def test_the_kernels_give_the_integers_of_the_reference(levels, missing):
    rng, n = np.random.default_rng(5), 100_000
    values = rng.normal(size=n) * 3
    values[rng.random(n) < 0.3] = np.nan
    values[:5] = np.inf, -np.inf, 0, 1e300, 5e-324
    people = LEVELS[levels](rng, n), values
    plain, compiled = table(missing, people, np.inf), table(missing, people, 0)
    for name in ("epsilon", "count", "total"):
        assert np.array_equal(getattr(plain, name), getattr(compiled, name)), name
    assert plain.rounded == compiled.rounded


def test_control_a_midpoint_that_is_not_taken_away_is_noticed(monkeypatch):
    people = np.ones(1000), np.where(np.arange(1000) % 2, 1.0, np.nan)
    right = table("estimate", people, 0)
    monkeypatch.setattr(groupby, "GRID", 0)
    assert not np.array_equal(right.total, table("estimate", people, 0).total)
