"""The exact neighbour test: replacing one person's value never costs more than that person's own ε.

Neighbouring datasets go through the real path, `read` → `plan` → `release`, with a recorder in the place of the noise
sampler. What the sampler is given decides the privacy loss: T + discrete Laplace noise of scale s against T′ + noise of
scale s is exactly |T − T′|/s. So the inequality is checked in integers and Fractions, not by drawing.

Every level × every ordered pair of extreme values is tried; random neighbours miss bugs. One function, `faults`, does
the checking, and planted bugs must be found by that same function.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import permutations, product
from types import SimpleNamespace

import numpy as np
import pytest

import hetdp
from hetdp.core import plan as _plan
from hetdp.privacy import release as _release
from hetdp.privacy import sampling as _sampling
from hetdp.statistics.mean import Mean
from hetdp.tally.groupby import Grouping
from oracle import GRID as Q
from oracle import code
from support import UNIT

INF = math.inf
FIXED = 7  # what the recorder answers, whatever the sum

MIXES = {
    "the usual": {0: 2, 0.1: 3, 0.25: 3, 1: 2, 20: 1, INF: 2},
    "all private": {0: 1, 0.1: 3, 0.25: 3, 1: 2, 20: 1},
    "as text": {"0": 1, "0.07": 30, "0.1": 20, "0.7": 2, "public": 4},  # the nearest double of a text may lie above it
    "tiny": {0.0: 1, 5e-324: 1, 1e-300: 1, 1e-12: 2, 1e-3: 3, 5.0: 4},
    "huge": {1.0: 2, 700.0: 1, 1e300: 1, INF: 1},
    "many": {**{0.013 * 2.3**i: 1 + i % 3 for i in range(10)}, 0.0: 1, INF: 1},
    "nobody takes part": {0.0: 3},
    "all public": {INF: 3},
    "never or public": {0.0: 2, INF: 2},
    "alone": {0.5: 1},
}
BOUNDS = [(0, 1), (-1, 1), (-0.1, 0.2), (1e9, 1e9 + 1e-6), (1e-320, 5e-320), (-8e307, 8e307)]


def cells(lo, hi):
    """Extreme values with what they mean: a number, or None for missing or unreadable."""
    near = [lo, hi, lo / 2 + hi / 2, math.nextafter(lo, -INF), math.nextafter(lo, INF), math.nextafter(hi, INF)]
    far = [INF, -INF, 1e9, -1e9, 5e-324, -5e-324, 0.0, -0.0, 1.7976931348623157e308, -1.7976931348623157e308]
    numbers = [(float(x), float(x)) for x in near + far]
    unreadable = [math.nan, None, "", "98765.4321x", "0,5", "1_000", "NaN", "yes", 1j, Decimal("sNaN"), (1, 2)]
    texts = [("1e999", INF), ("-1e999", -INF), (" 1e9 ", 1e9), ("-inf", -INF)]
    large = [(10**400, INF), (-(10**400), -INF), (2**63, 2.0**63), (Decimal("-1e500"), -INF), (Fraction(1, 3), 1 / 3)]
    return numbers + [(cell, None) for cell in unreadable] + texts + large


def label(epsilon, *, rounded):
    """The level of a person: the nearest double, cut to 12 significant bits in a rounded tally."""
    level = INF if epsilon == "public" else float(epsilon)
    if not rounded or level in (0, INF):
        return level
    mantissa, exponent = math.frexp(level)
    return math.ldexp(math.floor(mantissa * 2**12), exponent - 12)


class Recorder:
    """Stands in for the sampler: notes what it is given and answers the same, whatever the sum."""

    def __init__(self):
        self.calls = []

    def __call__(self, total, scale):
        self.calls.append((total, scale))
        return FIXED


@pytest.fixture
def recorder(monkeypatch):
    recorder = Recorder()
    monkeypatch.setattr("hetdp.privacy.release.noisy", recorder)
    return recorder


@dataclass(frozen=True)
class Outcome:
    """What one dataset leads to: all that is public, what the sampler is given, the result if its answer is fixed."""

    method: str
    public: tuple
    weights: dict
    given: tuple
    unclamped: float


def carry_out(tally, method, recorder):
    """Plan and release one tally; return the outcome and the plan."""
    plan = hetdp.plan(tally.levels, bounds=tally.interval, method=method)
    recorder.calls.clear()
    result = hetdp.release(tally, plan)
    levels, units = plan.levels.epsilon.tolist(), plan.units.tolist()
    facts = (plan.n, plan.bounds, plan.noise, plan.threshold, plan.abstains, plan.shrink, plan.noise_scale)
    public = (*facts, tuple(levels), tuple(plan.levels.count.tolist()), tuple(units))
    weights = dict(zip(levels, units, strict=True))
    return Outcome(method, public, weights, tuple(recorder.calls), result.unclamped), plan


def single_faults(outcome, plan, sums):
    """Compare one outcome with integers recomputed here from the exact sums of the levels."""
    if plan.abstains:
        return {"calls"} if outcome.given or outcome.unclamped != plan.interval.mid else set()
    weighted = [units * sums[level] for level, units in outcome.weights.items()]
    expected = tuple((sum(weighted[term.first : term.last]) // Q, term.scale) for term in plan.noise)
    covered = {i for term in plan.noise for i in range(term.first, term.last)}
    answer = FIXED * len(plan.noise) + sum(x for i, x in enumerate(weighted) if i not in covered) // Q
    lo, hi = map(Fraction, plan.bounds)
    share = Fraction(1, 2) + Fraction(plan.shrink) * (Fraction(answer, plan.total) - Fraction(1, 2))
    found = set()
    if len(outcome.given) != len(plan.noise) or any(type(total) is not int for total, _ in outcome.given):
        found.add("calls")
    if outcome.given != expected or any(not 0 <= total <= plan.total < 2**62 for total, _ in outcome.given):
        found.add("sum")
    if outcome.unclamped != float(lo + (hi - lo) * share):
        found.add("answer")
    return found


def pair_faults(epsilon, level, one, other):
    """Check two outcomes that differ in the value of one person, who chose `epsilon` and is counted at `level`."""
    if one.public != other.public or len(one.given) != len(other.given):
        return {"public"}
    moved = [abs(a - b) for (a, _), (b, _) in zip(one.given, other.given, strict=True)]
    found = set()
    if sum(moved) > one.weights.get(level, 0):
        found.add("moved")
    if epsilon in ("public", INF):
        return found
    spent = sum(Fraction(step) / Fraction(scale) for step, (_, scale) in zip(moved, one.given, strict=True))
    if spent > Fraction(epsilon):
        found.add("spent")
    if Fraction(epsilon) == 0 and any(moved):
        found.add("zero")
    if one.unclamped != other.unclamped:  # the sampler answered the same: nothing else may tell them apart
        found.add("answer")
    return found


def suitable(levels):
    """The methods that release from a tally of these levels; stretch divides by the largest ε, so it must be finite."""
    rules = hetdp.methods().items()
    return [name for name, rule in rules if not rule.needs_records and (name != "stretch" or INF not in levels)]


def neighbours(i, epsilons, bounds, choice, read, doublings, rounded):
    """Yield the tallies that differ in the value of person i, each with its people and sums recomputed here."""
    people = [choice[1] if doublings else choice[j % len(choice)] for j in range(len(epsilons))]
    if doublings:
        others = read([cell for cell, _ in people[:i] + people[i + 1 :]], epsilons[:i] + epsilons[i + 1 :])
        for _ in range(doublings):
            others += hetdp.Tally(others.table, others.statistic)  # as many other people with the same values
    for person in choice:
        people[i] = person
        tally = others + read([person[0]], [epsilons[i]]) if doublings else read([cell for cell, _ in people], epsilons)
        count, sums = Counter(), Counter()
        for j, (epsilon, (_, number)) in enumerate(zip(epsilons, people, strict=True)):
            times, level = 1 if j == i else 2**doublings, label(epsilon, rounded=rounded)
            count[level] += times
            sums[level] += times * code(number, bounds) if level else 0
        yield tally, count, sums


def faults(mix, bounds, recorder, *, methods=(), doublings=0, read=None, rounded=False, extremes=cells):
    """Return what is wrong for any level and any ordered pair of extreme values; nothing, if all is well.

    `doublings` merges the tally of the other people with one like it that many times, so that they are billions.
    """
    read = read or (lambda values, epsilon: hetdp.read(values, epsilon=epsilon, bounds=bounds))
    epsilons = [epsilon for epsilon, count in mix.items() for _ in range(count)]
    found = set()
    for epsilon in mix:
        outcomes = {}
        everybody = epsilons.index(epsilon), epsilons, bounds, extremes(*bounds)
        for tally, count, sums in neighbours(*everybody, read, doublings, rounded):
            table = tally.table
            levels, people, totals = (tuple(x.tolist()) for x in (table.epsilon, table.count, table.total[:, 0]))
            found |= {"people"} if dict(zip(levels, people, strict=True)) != count else set()
            found |= {"codes"} if dict(zip(levels, totals, strict=True)) != sums else set()
            for method in methods or suitable(levels):
                key = method, levels, people, totals
                if key not in outcomes:  # an equal tally has an equal outcome
                    outcomes[key], plan = carry_out(tally, method, recorder)
                    found |= single_faults(outcomes[key], plan, sums)
        for one, other in permutations(outcomes.values(), 2):
            if one.method == other.method:
                found |= pair_faults(epsilon, label(epsilon, rounded=rounded), one, other)
    return found


@pytest.mark.parametrize("bounds", BOUNDS, ids=str)
@pytest.mark.parametrize("mix", MIXES)
def test_no_value_costs_more_than_its_owners_epsilon(mix, bounds, recorder):
    assert faults(MIXES[mix], bounds, recorder) == set()


@pytest.mark.parametrize("bounds", [(0, 1), (-0.1, 0.2)], ids=str)
def test_among_billions_of_people_no_integer_overflows_and_nobody_pays_more(bounds, recorder):
    assert faults({0: 1, 0.1: 2, 1: 2, 1e-5: 1, INF: 1}, bounds, recorder, doublings=40) == set()


@pytest.mark.slow
@pytest.mark.parametrize("bounds", [(0, 1), (-0.1, 0.2)], ids=str)
def test_levels_that_are_rounded_down_still_keep_everybodys_own_epsilon(bounds, recorder, monkeypatch):
    monkeypatch.setattr("hetdp.core.levels.LIMIT", 8)
    close = {0.1 + i * 1e-5: 2 for i in range(10)} | {math.nextafter(2.0, 0): 1, 2.0: 1, 3.7: 1, 0: 1, INF: 1}
    assert faults(close, bounds, recorder, rounded=True) == set()


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_arrays_keep_the_same_promise_as_lists(dtype, recorder):
    def extremes(lo, hi):
        with np.errstate(over="ignore"):
            numbers = [dtype(x) for _, x in cells(lo, hi) if x is not None]
        return [(x, float(x)) for x in numbers] + [(dtype("nan"), None)]

    def read(values, epsilon):
        return hetdp.read(np.array(values, dtype), epsilon=np.array(epsilon), bounds=(-0.1, 0.2))

    assert faults(MIXES["the usual"], (-0.1, 0.2), recorder, read=read, extremes=extremes) == set()


@pytest.mark.slow
def test_cells_of_a_file_keep_the_same_promise_and_cannot_reach_their_neighbours(tmp_path, recorder):
    def extremes(lo, hi):
        odd = ['""""', '"""1"', '"1,2"', '",,,"', '"0.1,inf"', '1"2', "a\x00b", '""', "", "é", "=1+1"]
        numbers = [(repr(x), x) for cell, x in cells(lo, hi) if isinstance(cell, float) and x is not None]
        return [*numbers, *((cell, None) for cell in odd), ('"0.125"', 0.125), (" 1e999", INF)]

    def read(values, epsilon):
        path = tmp_path / "people.csv"
        lines = [f"{i},{value},{level}" for i, (value, level) in enumerate(zip(values, epsilon, strict=True))]
        path.write_text("\n".join(["id,x,eps", *lines]), encoding="utf-8", newline="\n")
        return hetdp.read(path, value="x", missing="midpoint", epsilon="eps", bounds=(-1, 1))

    assert faults(MIXES["as text"], (-1, 1), recorder, read=read, extremes=extremes) == set()
    for cell in ('"', '"1', "1,2", ",,,", "0.1,inf", '"1"2'):  # not between quotes: the layout of a line is public
        with pytest.raises(hetdp.InputError, match=r"^line 3 of .* (has \d fields and|has a quote)"):
            read(["0.5", cell, "0.5"], ["1", "1", "1"])


@pytest.mark.parametrize(
    ("mix", "method", "terms"),
    [
        ("alone", "adpm", 0),  # abstains: too noisy to be of use
        ("tiny", "uniform", 0),  # abstains: the smallest ε asks for noise that cannot be drawn
        ("nobody takes part", "proportional", 0),
        ("all public", "uniform", 0),
        ("the usual", "proportional", 0),  # only the public rows have weight
        ("the usual", "adpm", 1),
        ("alone", "uniform", 1),
    ],
)
def test_the_sampler_is_asked_once_for_each_noise_term_and_never_without_one(mix, method, terms, recorder):
    epsilons = [epsilon for epsilon, count in MIXES[mix].items() for _ in range(count)]
    outcome, plan = carry_out(hetdp.read([0.25] * len(epsilons), epsilon=epsilons, bounds=(0, 1)), method, recorder)
    assert len(outcome.given) == len(plan.noise) == terms
    assert plan.abstains == (not any(plan.units))


# Planted bugs. Each must be found by `faults`, by the rule that is named.


def unclamped_codes(self, values, out, mask=None):
    near = np.clip(np.asarray(values, np.float64), -1e12, 1e12)  # no overflow, or that alone would be noticed
    out[:] = np.floor((np.nan_to_num(near, nan=self.mid) - self.lo) / self.width * Q + 0.5)
    return out


def codes_with_nan(self, values, out, mask=None, *, real=hetdp.Interval.codes):
    real(self, values, out, mask)
    out[np.isnan(np.asarray(values, np.float64))] = -(2.0**42)  # what a cast to integers makes of NaN, in small
    return out


class NanRowsDropped(Grouping):
    def add(self, epsilon, columns, *_):
        kept = ~np.isnan(columns[0])
        super().add(epsilon[kept], [columns[0][kept]])


class EverybodyTwice(Grouping):
    def add(self, epsilon, columns, *_):
        super().add(np.tile(epsilon, 2), [np.tile(columns[0], 2)])


class ZeroMeansDefault(Grouping):
    def add(self, epsilon, columns, *_):
        super().add(np.where(epsilon == 0, 1.0, epsilon), columns)


class BoundsFromData(Grouping):
    def add(self, epsilon, columns, *_):
        finite = columns[0][np.isfinite(columns[0])]
        self._statistic = Mean(hetdp.Interval(min(finite.min(), -1e-3), finite.max()))
        super().add(epsilon, columns)


def level_off_by_one(tally, plan, *where, real=_release.floored_sum):
    shifted = SimpleNamespace(table=SimpleNamespace(total=np.roll(tally.table.total, 1)))
    return real(shifted, plan, *where)


def scale_with(change_units=lambda units: units, change_epsilon=lambda epsilon: epsilon, factor=1.0):
    """The noise scale as it would be for other weights or levels than the plan has."""
    real = _plan.scale_for
    return lambda units, epsilon, share=1.0: factor * real(change_units(units), change_epsilon(epsilon), share)


def from_largest(epsilon):
    return np.where(np.isfinite(epsilon), epsilon[np.isfinite(epsilon)].max(), epsilon)


def four_ulps_up(epsilon):
    for _ in range(4):
        epsilon = np.nextafter(epsilon, INF)
    return epsilon


DATA_BUGS = {
    "no clamp": ("hetdp.core.domain.Interval.codes", unclamped_codes, {"codes", "moved", "spent"}),
    "NaN survives": ("hetdp.core.domain.Interval.codes", codes_with_nan, {"codes", "moved", "spent"}),
    "NaN rows dropped": ("hetdp.sources.Grouping", NanRowsDropped, {"people", "public"}),
    "everybody twice": ("hetdp.sources.Grouping", EverybodyTwice, {"people", "moved", "spent"}),
    "0 means default": ("hetdp.sources.Grouping", ZeroMeansDefault, {"people", "spent", "zero"}),
    "bounds from data": ("hetdp.sources.Grouping", BoundsFromData, {"codes", "moved"}),
    "level off by one": ("hetdp.privacy.release.floored_sum", level_off_by_one, {"sum", "moved", "spent"}),
}
SCALE_BUGS = {
    "weights one more": scale_with(change_units=lambda units: units - 1),  # made for weights one less than they are
    "5 % low": scale_with(factor=0.95),
    "halved": scale_with(factor=0.5),
    "from the largest epsilon": scale_with(change_epsilon=from_largest),
    "epsilon rounded to 0.11": scale_with(change_epsilon=lambda epsilon: epsilon * 1.1),
    "epsilon a few ulps up": scale_with(change_epsilon=four_ulps_up),
    "level off by one": scale_with(change_epsilon=lambda epsilon: np.append(epsilon[1:], INF)),
}


@pytest.mark.slow
@pytest.mark.parametrize("bug", DATA_BUGS)
def test_a_planted_bug_in_the_handling_of_values_is_found(bug, recorder, monkeypatch):
    target, planted, expected = DATA_BUGS[bug]
    monkeypatch.setattr(target, planted)
    assert faults(MIXES["the usual"], (-1, 1), recorder, methods=["adpm"]) >= expected


@pytest.mark.slow
@pytest.mark.parametrize("method", ["adpm", "uniform"])
@pytest.mark.parametrize("bug", SCALE_BUGS)
def test_a_planted_bug_in_the_noise_scale_is_found_and_refused_by_the_exact_check(bug, method, recorder, monkeypatch):
    mix = {epsilon: count for epsilon, count in MIXES["the usual"].items() if epsilon}
    monkeypatch.setattr("hetdp.core.plan.scale_for", SCALE_BUGS[bug])
    with pytest.raises(hetdp.PrivacyError):
        hetdp.plan(mix, method=method, bounds=UNIT)
    monkeypatch.setattr("hetdp.core.plan.check", lambda *_: None)
    monkeypatch.setattr("hetdp.privacy.release._sampler_agrees", lambda *_: None)
    assert faults(mix, (-1, 1), recorder, methods=[method]) == {"spent"}


def test_holding_people_to_the_nearest_double_instead_of_their_text_is_found(recorder, monkeypatch):
    """The double nearest to 0.07 lies above 0.07; only the double below it keeps what was written."""
    monkeypatch.setattr("hetdp.privacy.exact.below", lambda epsilon: epsilon)
    assert faults(MIXES["as text"], (0, 1), recorder, methods=["uniform"]) == {"spent"}


@pytest.mark.parametrize(
    ("use", "expected"),
    [
        (lambda draw, total, scale: draw(total, scale) + 0 * draw(total, scale), {"calls"}),
        (lambda draw, total, scale: total + draw(0, scale), {"sum", "answer"}),  # T + m(0) instead of m(T)
    ],
)
def test_a_planted_misuse_of_the_sampler_is_found(use, expected, recorder, monkeypatch):
    monkeypatch.setattr("hetdp.privacy.release.noisy", lambda total, scale: use(recorder, total, scale))
    assert faults(MIXES["the usual"], (0, 1), recorder, methods=["adpm"]) >= expected


# Keeping people at random. Whether a person is kept is part of what must not show.


class Coins:
    """Stands in for the coins: they fall as they are told, unless they cannot."""

    def __init__(self):
        self.told, self.kept, self.keep = [], [], set()

    def __call__(self, keep):
        self.keep.add(tuple(keep.tolist()))
        self.kept = (np.array(self.told or False) & (keep > 0)) | (keep == 2**53)
        return self.kept


@pytest.fixture
def coins(monkeypatch):
    coins = Coins()
    monkeypatch.setattr("hetdp.privacy.release.coins", coins)
    return coins


def sampling_faults(mix, bounds, recorder, coins):
    """Check `sampling`: with the others and their coins fixed, T moves by at most W, and 1 + p(e^(W/s) − 1) ≤ e^ε.

    Then, whether the person is kept or not and whatever the value, no output gets more than e^ε times as likely.
    """
    epsilons = [epsilon for epsilon, count in mix.items() for _ in range(count)]
    choice = [*cells(*bounds)[:8], (math.nan, None), (None, None), ("x", None), (-(10**400), -INF)]
    found = set()
    for i, others in product(map(epsilons.index, mix), (True, False)):
        people = [choice[j % len(choice)] for j in range(len(epsilons))]
        coins.told = [others and j % 3 > 0 for j in range(len(epsilons))]
        coins.keep.clear()
        kept, left_out, public = set(), set(), set()
        for people[i], coins.told[i] in product(choice, (True, False)):
            recorder.calls.clear()
            result = hetdp.mean([cell for cell, _ in people], epsilon=epsilons, bounds=bounds, method="sampling")
            ((given, scale),), weight = recorder.calls, int(result.plan.units.max())
            pairs = zip(people, coins.kept, strict=True)
            codes = sum(2 * code(number, bounds) - Q for (_, number), stays in pairs if stays)
            found |= {"sum"} if given != weight * codes // (2 * Q) else set()
            (kept if coins.kept[i] else left_out).add(given)
            public.add((scale, weight, result.unclamped))
        ((keep,), ((scale, weight, _),)) = coins.keep, public
        if len(left_out) > 1 or max(kept | left_out) - min(kept | left_out) > weight:
            found.add("moved")
        with localcontext(prec=100):
            gain = Decimal(keep[i]) / 2**53 * ((Decimal(weight) / Decimal(scale)).exp() - 1)
            found |= {"spent"} if gain > Decimal(epsilons[i]).exp() - 1 else set()
    return found


@pytest.mark.parametrize("mix", ["all private", "tiny"])
def test_keeping_people_at_random_costs_nobody_more_than_their_epsilon(mix, recorder, coins):
    assert sampling_faults(MIXES[mix], (-0.1, 0.2), recorder, coins) == set()


def test_keeping_people_a_little_too_often_is_found_and_refused(recorder, coins, monkeypatch):
    """Control: p a millionth too large."""
    real = _sampling.keep_for
    more = lambda keep: np.where(keep > 0, np.minimum(keep + keep // 10**6 + 1, 2**53), 0)  # noqa: E731  a planted bug
    monkeypatch.setattr("hetdp.privacy.sampling.keep_for", lambda *public: more(real(*public)))
    with pytest.raises(hetdp.PrivacyError):
        hetdp.plan(MIXES["all private"], method="sampling", bounds=UNIT)
    monkeypatch.setattr("hetdp.privacy.sampling.SamplingPlan.check", lambda *_: None)
    assert sampling_faults(MIXES["all private"], (0, 1), recorder, coins) == {"spent"}


def test_the_probability_of_sampling_is_what_a_pen_says():
    """p = (e^0.5 − 1)/(e − 1) at ε = 0.5 beside ε = 1, and ln(1 + p·(e − 1)) is ε again."""
    plan = hetdp.plan({0.5: 20, 1.0: 20}, method="sampling", bounds=UNIT)
    assert plan.keep[0] / 2**53 == pytest.approx(math.expm1(0.5) / math.expm1(1), rel=1e-9)
    assert plan.spent == pytest.approx([0.5, 1.0], rel=1e-9)


@pytest.mark.parametrize("top", [0.01, 1.0, 20.0, 31.62227234327087, 499.0, 700.0, 1e300])
def test_sampling_shows_no_spend_that_is_too_low(top):
    """Computed with 400 digits; doubles lose some of theirs where eᵗ is large."""
    counts = {0.0: 1, 1e-9: 2, 1e-4: 3, 0.04703356477735069: 4, 0.3: 5, 5.0: 6, 30.0: 2, 490.0: 1, top: 3}
    plan = hetdp.plan({level: n for level, n in counts.items() if level <= top}, method="sampling", bounds=UNIT)
    for row, keep, weight in zip(plan.table, plan.keep.tolist(), plan.units.tolist(), strict=True):
        with localcontext(prec=400):
            gain = Decimal(keep) / 2**53 * ((Decimal(weight) / Decimal(plan.noise[0].scale)).exp() - 1)
            assert (1 + gain).ln() <= Decimal(row.spent) <= Decimal(row.epsilon), row
        assert row.spent == 0 or keep > 0


@pytest.mark.parametrize("method", sorted(hetdp.methods()))
def test_nothing_is_drawn_when_the_samplers_own_privacy_map_disagrees(method, recorder, coins, monkeypatch):
    """However many levels there are; and with the real map the same release goes through."""
    epsilons = [epsilon for epsilon in MIXES["many"] if epsilon != INF] * 40
    hetdp.mean([0.5] * len(epsilons), epsilon=epsilons, bounds=(0, 1), method=method)
    assert recorder.calls
    recorder.calls.clear()
    monkeypatch.setattr("hetdp.privacy.release.loss", lambda *_: INF)
    with pytest.raises(hetdp.PrivacyError):
        hetdp.mean([0.5] * len(epsilons), epsilon=epsilons, bounds=(0, 1), method=method)
    assert not recorder.calls
