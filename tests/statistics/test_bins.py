"""Bins for ranks: which values they hold, and what stands for them."""

from __future__ import annotations

import numpy as np
import pytest

import hetdp
from hetdp.core.cells import Bins, Edges
from hetdp.core.domain import GRID, Interval


@pytest.mark.parametrize("bins", [2, 3, 7, 55, 64, 1000, 4096, 16384])
def test_bins_share_out_all_codes_in_order_and_know_their_ends(bins):
    sorting, codes = Bins(Interval(0, 1), bins), np.arange(GRID + 1)
    found = sorting.of_codes(codes)
    assert (found[0], found[-1]) == (0, bins - 1)
    assert set(np.diff(found).tolist()) <= {0, 1}
    first = [*np.searchsorted(found, np.arange(bins)).tolist(), GRID + 1]
    for i in range(0, bins, max(1, bins // 50)):
        low, high = (min(max((code - 0.5) / GRID, 0.0), 1.0) for code in first[i : i + 2])
        assert sorting.ends(i) == (pytest.approx(low, abs=1e-12), pytest.approx(high, abs=1e-12))


@pytest.mark.parametrize(("bounds", "bins"), [((15, 70), 55), ((0, 64), 64), ((0, 100), 10), ((-5, 5), 7)])
def test_a_value_on_a_border_is_in_the_upper_bin_as_in_a_histogram(bounds, bins):
    edges = Edges.even(bounds, bins)
    values = np.array(edges.edges[:-1])
    codes = Interval.of(bounds).codes(values, np.empty(bins)).astype(np.int64)
    assert Bins(Interval.of(bounds), bins).of_codes(codes).tolist() == edges.of_numbers(values).tolist()


def test_with_a_bin_around_each_whole_number_the_median_is_that_number():
    ages = [22] * 300 + [27] * 500 + [42] * 300
    found = hetdp.median(ages, epsilon=float("inf"), bounds=(14.5, 70.5), bins=56)
    assert found.estimate == pytest.approx(27, abs=1e-4)
