"""What must not change, and what must change in step, on the way from people to an estimate.

The noise is replaced by none for the whole file: what is left is exact arithmetic, so the relations are exact too, or
hold within the rounding that the documentation promises.
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
import operator
import os
import stat
from fractions import Fraction
from unittest import mock

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import hetdp
from hetdp.core import levels as _levels
from hetdp.core.domain import Interval
from support import EXTREME_VALUES, UNIT, bounds, epsilons, examples, level_counts

GRID = 2**20
METHODS = ("adpm", "proportional", "uniform")
# Everybody is read several times over, or ADPM would answer with the midpoint in most examples.
MANY = 64


@pytest.fixture(scope="module", autouse=True)
def no_noise():
    with mock.patch("hetdp.privacy.release.noisy", lambda total, _scale: total):
        yield


def read(people, interval):
    values, levels = zip(*people, strict=True)
    return hetdp.read(values, epsilon=levels, bounds=interval)


def planned(tally, method="adpm"):
    return hetdp.plan(tally.levels, bounds=tally.interval, method=method)


def estimate(tally, method="adpm"):
    return hetdp.release(tally, planned(tally, method)).unclamped


cells = st.one_of(st.sampled_from([*EXTREME_VALUES, None, "n/a"]), st.floats(-1e6, 1e6), st.integers(-(10**9), 10**9))
crowds = st.lists(st.tuples(cells, epsilons), min_size=1, max_size=12)
methods = st.sampled_from(METHODS)
# Numbers on a coarse lattice: shifting, scaling and mirroring them is exact.
dyadic = st.integers(-(2**20), 2**20).map(lambda m: m / 1024)
spans = st.tuples(dyadic, st.integers(1, 2**20)).map(lambda pair: (pair[0], pair[0] + pair[1] / 1024))
dyadic_crowds = st.lists(
    st.tuples(st.one_of(dyadic, st.sampled_from([math.nan, math.inf, -math.inf])), epsilons), min_size=1, max_size=12
)


# ---------------------------------------------------------------------------------------------------------
# Who stands where


def merged_in_any_way(parts, draw, add=operator.add):
    """Add tallies two by two, in an order and grouping that `draw` chooses."""
    parts = list(parts)
    while len(parts) > 1:
        first = parts.pop(draw(st.integers(0, len(parts) - 1)))
        second = parts.pop(draw(st.integers(0, len(parts) - 1)))
        parts.append(add(first, second))
    return parts[0]


@settings(deadline=None)
@given(people=crowds, interval=bounds, method=methods, data=st.data())
def test_row_order_and_splitting_into_parts_change_nothing(people, interval, method, data):
    whole = read(people, interval)
    assert read(data.draw(st.permutations(people)), interval) == whole
    parts = [read([person], interval) for person in people]
    merged = merged_in_any_way(parts, data.draw)
    assert merged == whole
    assert estimate(merged, method) == estimate(whole, method)


@settings(deadline=None, max_examples=examples(50))
@given(people=crowds, interval=bounds, limit=st.integers(1, 8), data=st.data())
def test_splitting_changes_nothing_when_levels_are_rounded_on_the_way(people, interval, limit, data):
    with mock.patch.object(_levels, "LIMIT", limit):
        whole = read(people, interval)
        merged = merged_in_any_way([read([person], interval) for person in people], data.draw)
        assert merged == whole
        assert merged.levels.rounded == whole.levels.rounded == (len({level for _, level in people}) > limit)


def test_control_splitting_notices_a_merge_that_forgets_somebody():
    def forgetful(a, b):
        return a + b if a.n == b.n else max(a, b, key=lambda tally: tally.n)

    parts = [read([(0.25, 1.0)], (0, 1)) for _ in range(3)]
    first = functools.partial(min, 0)
    assert merged_in_any_way(parts, lambda _s: first(9)) == read([(0.25, 1.0)] * 3, (0, 1))
    assert merged_in_any_way(parts, lambda _s: first(9), forgetful) != read([(0.25, 1.0)] * 3, (0, 1))


@settings(deadline=None)
@given(people=crowds, absent=st.lists(cells, min_size=1, max_size=9), interval=bounds, method=methods)
def test_people_with_epsilon_0_change_nothing_but_n(people, absent, interval, method):
    before = read(people * MANY, interval)
    assume(before.levels.active)
    after = read([*people * MANY, *((x, (0.0, -0.0)[i % 2]) for i, x in enumerate(absent))], interval)
    assert after.n == before.n + len(absent)
    assert estimate(after, method) == estimate(before, method)
    old, new = planned(before, method), planned(after, method)
    assert (new.noise_scale, new.total) == (old.noise_scale, old.total)
    assert new.worst_case_mse == pytest.approx(old.worst_case_mse, rel=1e-12)  # a sum of floats with one more zero
    levels = [level for _, level in people]
    assert np.array_equal(new.weights(levels), old.weights(levels))


def test_control_people_with_a_tiny_epsilon_do_change_the_estimate():
    people = [(0.25, 1.0)] * 100
    assert estimate(read([*people, (1.0, 0.01)], (0, 1))) != estimate(read(people, (0, 1)))


@settings(deadline=None)
@given(counts=level_counts, shares=st.lists(st.integers(0, 2000), min_size=8, max_size=8), method=methods)
def test_splitting_a_level_into_equal_levels_is_no_change(counts, shares, method):
    """The same ε under three names: as a number, as text, as text with blanks."""
    split = {}
    for (level, count), share in zip(counts.items(), shares, strict=False):
        some = min(share, count)
        split |= {level: count - some, repr(level): some // 2, f" {level!r} ": some - some // 2}
    one, other = hetdp.Levels(counts), hetdp.Levels(split)
    assert one == other
    a, b = hetdp.plan(one, method=method, bounds=UNIT), hetdp.plan(other, method=method, bounds=UNIT)
    assert (a.units.tolist(), a.noise, a.threshold, a.abstains) == (b.units.tolist(), b.noise, b.threshold, b.abstains)


def test_control_splitting_a_level_into_different_levels_is_a_change():
    assert hetdp.Levels({0.1: 5, "0.1": 5}) == hetdp.Levels({0.1: 10})
    assert hetdp.Levels({0.1: 5, math.nextafter(0.1, 1): 5}) != hetdp.Levels({0.1: 10})


# ---------------------------------------------------------------------------------------------------------
# Levels at the ends


def saturated_alike(top, counts, publics):
    """Whether the top level at `top` gives the weights that a public one gives."""
    levels = [*counts, top]
    public = hetdp.plan({**counts, math.inf: publics}, bounds=UNIT)
    other = hetdp.plan({**counts, top: publics}, bounds=UNIT)
    return np.allclose(other.weights(levels), public.weights([*counts, math.inf]), rtol=1e-9, atol=1e-12)


@settings(deadline=None)
@given(
    counts=st.dictionaries(st.floats(1e-3, 10), st.integers(1, 3000), min_size=1, max_size=6),
    publics=st.integers(1, 3000),
)
def test_a_huge_epsilon_weighs_as_much_as_a_public_value_once_weights_saturate(counts, publics):
    assert hetdp.plan({**counts, math.inf: publics}, bounds=UNIT).threshold < 1e199
    assert saturated_alike(1e200, counts, publics)


def test_control_an_epsilon_below_the_threshold_does_not_weigh_like_a_public_value():
    counts = {0.1: 700}
    threshold = hetdp.plan({**counts, math.inf: 300}, bounds=UNIT).threshold
    assert saturated_alike(threshold * 1.001, counts, 300)
    assert not saturated_alike(threshold * 0.9, counts, 300)


@settings(deadline=None)
@given(people=crowds, method=methods)
def test_minus_zero_is_zero_as_value_as_epsilon_and_as_bound(people, method):
    def signed(sign):
        zero = math.copysign(0.0, sign)
        turned = [(zero if x == 0 and x is not None else x, zero if level == 0 else level) for x, level in people]
        return read([*turned, (zero, 1.0), (zero, zero)], (zero, 1.0)), read([*turned, (zero, 1.0)], (-1.0, zero))

    for plus, minus in zip(signed(1), signed(-1), strict=True):
        assert plus == minus
        assert math.copysign(1, plus.levels.epsilon[0]) == math.copysign(1, minus.levels.epsilon[0]) == 1
        assert estimate(plus, method) == estimate(minus, method)


# ---------------------------------------------------------------------------------------------------------
# Units


@settings(deadline=None)
@given(people=dyadic_crowds, span=spans, power=st.integers(-300, 300), method=methods)
def test_scaling_values_and_bounds_by_a_power_of_two_scales_the_estimate(people, span, power, method):
    factor = 2.0**power
    before = read(people * MANY, span)
    after = read([(x * factor, level) for x, level in people * MANY], (span[0] * factor, span[1] * factor))
    assert after.table.total.tolist() == before.table.total.tolist()
    assert estimate(after, method) == estimate(before, method) * factor
    old, new = planned(before, method), planned(after, method)
    assert (new.noise_scale, new.worst_case_error) == (old.noise_scale * factor, old.worst_case_error * factor)


@settings(deadline=None)
@given(people=dyadic_crowds, span=spans, shift=dyadic, method=methods)
def test_shifting_values_and_bounds_shifts_the_estimate(people, span, shift, method):
    before = read(people * MANY, span)
    after = read([(x + shift, level) for x, level in people * MANY], (span[0] + shift, span[1] + shift))
    assert after.table.total.tolist() == before.table.total.tolist()
    moved, expected = estimate(after, method), Fraction(estimate(before, method)) + Fraction(shift)
    assert abs(Fraction(moved) - expected) <= math.ulp(2048.0)  # two roundings of numbers below 2048 + 1024


def test_control_shifting_the_values_alone_is_noticed():
    people = [(0.25, 1.0), (0.5, math.inf)] * MANY
    assert estimate(read([(x + 0.125, e) for x, e in people], (0, 1))) != estimate(read(people, (0, 1)))


# ---------------------------------------------------------------------------------------------------------
# The estimate is the weighted mean


def rounding(plan):
    """The documented bound on what integers and floors can move: half a grid step and one unit for every floor."""
    if plan.abstains:
        return Fraction(0)
    floors = len(plan.noise) + 1
    return Fraction(1, 2 * GRID) + Fraction(floors, plan.total) + Fraction(1, 2**50)


def clamped(x, lo, hi):
    if not isinstance(x, (int, float)) or math.isnan(x):
        return (Fraction(lo) + Fraction(hi)) / 2
    return Fraction(min(max(x, lo), hi))


def distance_from_exact(people, interval, method):
    """How far the estimate is from Σ W·x / Σ W in Fractions, over what is allowed."""
    lo, hi = map(float, interval)
    tally = read(people, interval)
    plan = planned(tally, method)
    got = hetdp.release(tally, plan).unclamped
    if plan.abstains:
        exact = (Fraction(lo) + Fraction(hi)) / 2
    else:
        weight = dict(zip(plan.levels.epsilon.tolist(), plan.units.tolist(), strict=True))
        total = sum(weight[level] for _, level in people)
        exact = sum(weight[level] * clamped(x, lo, hi) for x, level in people) / total
    allowed = rounding(plan) * (Fraction(hi) - Fraction(lo)) + Fraction(math.ulp(got))
    return abs(Fraction(got) - exact) / allowed


@settings(deadline=None)
@given(people=crowds, interval=bounds, method=methods)
def test_the_estimate_is_the_exact_weighted_mean_within_the_documented_rounding(people, interval, method):
    assert distance_from_exact(people * MANY, interval, method) <= 1


def test_control_codes_that_are_cut_and_not_rounded_are_noticed():
    people = [(1 - 0.2 / GRID, 1.0), (0.5 - 0.2 / GRID, math.inf)] * MANY

    def cut(self, values, out, mask=None):
        out[:] = np.floor((np.clip(values, self.lo, self.hi) - self.lo) / self.width * GRID)
        return out

    assert distance_from_exact(people, (0, 1), "adpm") <= 1
    with mock.patch.object(Interval, "codes", cut):
        assert distance_from_exact(people, (0, 1), "adpm") > 1


def mirror_error(people, span, method):
    """By how much estimate and mirrored estimate miss lo + hi, over what two roundings allow."""
    lo, hi = span
    ends = {math.inf: -math.inf, -math.inf: math.inf}
    tally = read(people, span)
    mirrored = read([(ends.get(x, lo + hi - x), level) for x, level in people], span)
    both = Fraction(estimate(tally, method)) + Fraction(estimate(mirrored, method))
    allowed = 2 * rounding(planned(tally, method)) * (Fraction(hi) - Fraction(lo)) + 2 * Fraction(math.ulp(4096.0))
    return abs(both - Fraction(lo) - Fraction(hi)) / allowed


@settings(deadline=None)
@given(people=dyadic_crowds, span=spans, method=methods)
def test_mirrored_values_give_the_mirrored_estimate(people, span, method):
    assert mirror_error(people * MANY, span, method) <= 1


def test_control_an_estimate_with_a_leaning_of_two_grid_steps_is_noticed():
    people = [(0.25, 1.0), (0.75, math.inf)] * MANY

    def leaning(self, values, out, mask=None):
        out[:] = np.floor((np.clip(values, self.lo, self.hi) - self.lo) / self.width * GRID + 2.5)
        return out

    assert mirror_error(people, (0.0, 1.0), "adpm") <= 1
    with mock.patch.object(Interval, "codes", leaning):
        assert mirror_error(people, (0.0, 1.0), "adpm") > 1


# ---------------------------------------------------------------------------------------------------------
# A tally is private: what it shows, what it stores


@settings(deadline=None)
@given(people=crowds, others=st.lists(cells, min_size=12, max_size=12), interval=bounds)
def test_nothing_that_a_tally_shows_depends_on_a_value(people, others, interval):
    tally = read(people, interval)
    same_people = read([(x, level) for x, (_, level) in zip(others, people, strict=False)], interval)
    assert (repr(tally), str(tally), f"{tally}") == (repr(same_people), str(same_people), f"{same_people}")
    assert repr(tally.levels) == repr(same_people.levels)
    with pytest.raises(TypeError, match="unhashable"):
        hash(tally)


def test_control_the_sums_of_the_shown_tallies_do_differ():
    assert read([(0.25, 1.0)], (0, 1)) != read([(0.5, 1.0)], (0, 1))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("tallies")


@settings(deadline=None)
@given(people=crowds, interval=bounds, limit=st.sampled_from([2, 65_536]))
def test_a_tally_survives_saving_and_loading(people, interval, limit, folder):
    with mock.patch.object(_levels, "LIMIT", limit):
        tally = read(people, interval)
        tally.save(folder / "t.json")
        loaded = hetdp.Tally.load(str(folder / "t.json"))
        others = read(people, interval)
    assert loaded == tally
    assert (loaded.identities, loaded.notes) == (tally.identities, tally.notes)
    assert loaded.levels.rounded == tally.levels.rounded
    assert loaded.interval == tally.interval
    assert loaded + others == tally + others


def test_names_of_tiers_survive_saving_and_loading(tmp_path):
    tally = hetdp.read([1, 2], epsilon=["a", "b"], bounds=(0, 3), tiers={"a": 0.1, "b": "public"})
    tally.save(tmp_path / "t.json")
    assert hetdp.Tally.load(tmp_path / "t.json").levels.names == {0.1: "a", math.inf: "b"}


def test_a_saved_tally_is_for_its_owner_alone_and_says_so(tmp_path):
    path = tmp_path / "t.json"
    path.write_text("older, open to all")
    path.chmod(0o666)
    before = os.umask(0)
    try:
        read([(0.25, 1.0)], (0, 1)).save(path)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "PRIVATE" in path.read_text()
    assert [entry.name for entry in tmp_path.iterdir()] == ["t.json"]


def test_a_tally_that_cannot_be_written_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "t.json"
    read([(0.25, 1.0)], (0, 1)).save(path)
    old = path.read_bytes()
    with mock.patch("os.fsync", side_effect=OSError("disk full")), pytest.raises(OSError, match="disk full"):
        read([(0.5, 1.0)], (0, 1)).save(path)
    assert path.read_bytes() == old
    assert [entry.name for entry in tmp_path.iterdir()] == ["t.json"]


SECRET = [(0.7310585786, 0.5)] * 3 + [(0.1192029220, math.inf)]


def refused(path):
    """The file is refused in words that hold none of its sums."""
    with pytest.raises(hetdp.InputError) as caught:
        hetdp.Tally.load(path)
    sums = [str(total) for total in read(SECRET, (0, 1)).table.total[:, 0].tolist()]
    assert not any(total in repr(caught.value) for total in sums)
    return str(caught.value)


def test_a_file_with_one_changed_byte_is_refused_or_means_the_same(tmp_path):
    tally = read(SECRET, (0, 1))
    tally.save(tmp_path / "t.json")
    data = (tmp_path / "t.json").read_bytes()
    refusals = 0
    for place in range(0, len(data), 3):
        (tmp_path / "u.json").write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        try:
            assert hetdp.Tally.load(tmp_path / "u.json") == tally
        except hetdp.InputError:
            refusals += 1
            refused(tmp_path / "u.json")
    assert refusals > len(data) / 6


@pytest.mark.parametrize(
    "data", [b"", b"{}", b"[]", b"null", b"5", b'"x"', b"\xff", b'{"body": 5, "sha256": ""}', b"{"]
)
def test_what_is_no_tally_file_is_refused(data, tmp_path):
    (tmp_path / "t.json").write_bytes(data)
    assert "not a tally file" in refused(tmp_path / "t.json")


def test_a_missing_tally_file_is_refused(tmp_path):
    assert "not a tally file" in refused(tmp_path / "missing.json")
    assert "not a tally file" in refused(tmp_path)


def sign(path, fields):
    """Write a file with a fitting checksum: a checksum finds accidents, it proves nothing about who wrote it."""
    body = json.dumps(fields)
    path.write_text(json.dumps({"sha256": hashlib.sha256(body.encode()).hexdigest(), "body": body}))


def saved_fields(path):
    read(SECRET, (0, 1)).save(path)
    return json.loads(json.loads(path.read_text())["body"])


def test_control_an_unchanged_file_that_is_signed_again_is_read(tmp_path):
    fields = saved_fields(tmp_path / "t.json")
    sign(tmp_path / "t.json", fields)
    assert hetdp.Tally.load(tmp_path / "t.json") == read(SECRET, (0, 1))


def test_a_body_that_does_not_fit_its_checksum_is_refused(tmp_path):
    path = tmp_path / "t.json"
    read(SECRET, (0, 1)).save(path)
    outer = json.loads(path.read_text())
    path.write_text(json.dumps({**outer, "body": outer["body"].replace('"version": 5', '"version": 6')}))
    assert "checksum" in refused(path)


FOREIGN = [
    {"format": "hetdp-tally-1"}, {"format": "hetdp-tally-2"}, {"format": None}, {"grid": 2**21}, {"grid": None},
    {"version": 3}, {"version": 6}, {"version": "5"}, {"statistic": "median"}, {"statistic": None},
    {"measure": "zero-concentrated"}, {"width": 2}, {"weights": [1, 2]},
]  # fmt: skip


@pytest.mark.parametrize("change", FOREIGN, ids=str)
def test_a_tally_of_another_version_is_refused(change, tmp_path):
    sign(tmp_path / "t.json", {**saved_fields(tmp_path / "t.json"), **change})
    assert "version" in refused(tmp_path / "t.json")


TAMPERED = [
    {"total": [[3 * GRID + 1], [0]]}, {"total": [[4 * GRID], [0]]}, {"total": [[-1], [0]]}, {"total": [[2**70], [0]]},
    {"total": [[0.5], [0]]}, {"total": [["x"], [0]]}, {"total": [[0]]}, {"total": None},
    {"total": [0, 0]}, {"total": [[], []]}, {"total": [[0, 0], [0, 0]]}, {"total": ["0", "0"]},
    {"count": [-3, 1]}, {"count": [0, 1]}, {"count": [2**62, 2**62]}, {"count": [3, 1, 1]},
    {"epsilon": ["nan", "inf"]}, {"epsilon": ["-0x1p+0", "inf"]}, {"epsilon": ["x", "inf"]}, {"epsilon": [0.5, 1]},
    {"parameters": {"bounds": [1, 0]}}, {"parameters": {"bounds": [0, None]}}, {"parameters": None},
    {"names": {"x": "a"}}, {"names": None},
    {"identities": []}, {"identities": None}, {"identities": "0" * 32},
]  # fmt: skip


@pytest.mark.parametrize("change", TAMPERED, ids=str)
def test_a_tally_that_no_people_can_give_is_refused(change, tmp_path):
    sign(tmp_path / "t.json", {**saved_fields(tmp_path / "t.json"), **change})
    refused(tmp_path / "t.json")


@pytest.mark.parametrize("key", ["parameters", "rounded", "epsilon", "count", "total", "names", "notes", "identities"])
def test_a_tally_without_one_of_its_fields_is_refused(key, tmp_path):
    fields = saved_fields(tmp_path / "t.json")
    del fields[key]
    sign(tmp_path / "t.json", fields)
    refused(tmp_path / "t.json")


@pytest.mark.parametrize("body", [[], None, 5, "x"])
def test_a_signed_body_that_is_no_table_is_refused(body, tmp_path):
    sign(tmp_path / "t.json", body)
    refused(tmp_path / "t.json")


def test_tallies_with_different_bounds_do_not_merge():
    with pytest.raises(hetdp.InputError, match="different bounds"):
        read(SECRET, (0, 1)) + read(SECRET, (0, 2))
