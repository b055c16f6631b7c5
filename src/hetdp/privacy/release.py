"""Release: the only place where noise is drawn and privacy is spent.

The second half is the one door for randomness: exact noise on the integers, and coins. No function takes a seed, and
nothing else in the package that releases draws random numbers. One number gets OpenDP's discrete Laplace noise; several
numbers get noise shaped like what one person can move (docs/proofs/family.md), drawn here on Python's integers, which
have no largest one; a choice among cells is OpenDP's. OpenDP draws from a cryptographic generator in this process that
the operating system seeds; the rest is drawn by `secrets` from the operating system itself (docs/threat-model.md).
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import Any, Never

import numpy as np
from numpy.typing import NDArray

from hetdp.core.domain import GRID
from hetdp.core.levels import Levels
from hetdp.core.plan import Plan
from hetdp.errors import InputError, PrivacyError, unknown_option
from hetdp.privacy.exact import Choice, Line, Mass
from hetdp.report import Provenance
from hetdp.statistics.bounds import settle
from hetdp.statistics.statistic import Answer, Release
from hetdp.tally import Tally

from .exact import LARGEST_SCALE, SMALLEST_SCALE, NoiseTerm, weigh
from .sampling import KEEP_ONE, SamplingPlan

_ASKED = 8


def release(tally: Tally, plan: Plan, **unknown: Never) -> Answer:
    """Spend the privacy that the plan says and return the answer.

    Claim: for any tally of the plan's people the result is ε-DP for everybody, at the spends in `plan.table`.

    Argument: the plan passes the exact check of `privacy.exact`, whose claim this carries out: one sum of
    integers per noise term, floored to whole weight units, then the sampler. Before the private sums are
    touched the sampler's own privacy map must agree at the tightest levels. The estimate is computed from
    the noisy integers and public numbers alone. An abstaining plan never touches the sums. A statistic of several
    numbers has one noise term, and `_drawn` has its argument. If the bounds were found privately from the same people,
    `settle` has seen before that both together respect everybody.

    Parameters
    ----------
    tally
        From `hetdp.read`.
    plan
        From `hetdp.plan(tally.levels, bounds=…)`.

    Returns
    -------
    Answer
        The answer that belongs to the statistic, such as a `Release` or a `Histogram`. All of it may be published.
    """
    if unknown:
        raise unknown_option("hetdp.release", unknown, ("tally", "plan"))
    _fit(tally, plan)
    if plan.statistic.private_bounds:
        settle([[plan]])
    return carry_out(tally, plan)


def carry_out(tally: Tally, plan: Plan) -> Answer:
    """Return the answer, as `release` does, where private bounds that the plan uses have been settled."""
    _fit(tally, plan)
    if isinstance(plan, SamplingPlan):
        raise InputError(
            f"{plan.method} keeps people one by one, which sums per level cannot tell; "
            f"give arrays: hetdp.mean(values, epsilon=…, bounds=…, method={plan.method!r})"
        )
    statistic, about = tally.statistic, tally.about.now()  # before the draw: how long that takes tells of the noise
    if plan.statistic.missing != statistic.missing:  # the plan is the same, and the report says what was read
        plan = replace(plan, statistic=statistic)
    if plan.abstains:
        return _answer(tally, plan, unused(plan), about)
    plan.check()
    for term in plan.noise:
        _sampler_agrees(plan, term)
    if not isinstance(statistic.geometry, Line):
        return _answer(tally, plan, _drawn(tally, plan), about)
    mean = Fraction(1, 2) + Fraction(plan.shrink) * (_noisy_share(tally, plan) - Fraction(1, 2))
    numbers = [plan.span.at(mean)]
    if plan.squares is not None:  # another release of the same people: `plan.check` has added up what both cost
        for term in plan.squares.noise:
            _sampler_agrees(plan.squares, term)
        numbers.append(float(_noisy_share(tally, plan.squares, column=1)))
    return _answer(tally, plan, tuple(numbers), about)


def _noisy_share(tally: Tally, plan: Plan, column: int = 0) -> Fraction:
    """Return the noisy sum of a column of codes as a share of the whole weight: one floored sum for each noise."""
    bare = np.ones(len(plan.levels), dtype=bool)  # public levels outside every noise term
    answer = 0
    for term in plan.noise:
        bare[term.first : term.last] = False
        answer += noisy(floored_sum(tally, plan, slice(term.first, term.last), column), term.scale)
    answer += floored_sum(tally, plan, bare, column)
    if plan.clamp is not None:  # after the noise, by a public number: post-processing, which spends nothing
        answer = min(max(answer, plan.total - plan.clamp), plan.clamp)
    return Fraction(answer, plan.total)


def _answer(tally: Tally, plan: Plan, numbers: tuple[float, ...], about: Provenance) -> Answer:
    """Return what was drawn as the answer to publish, with what is public about its people and where it comes from."""
    return replace(plan.statistic.answer(plan, numbers, tally.notes), about=about)


def _fit(tally: Tally, plan: Plan) -> None:
    """Raise unless the plan is for this tally: the same statistic, with the same parameters, of the same people."""
    if not isinstance(tally, Tally) or not isinstance(plan, Plan):
        raise InputError("release takes a Tally from hetdp.read and a Plan from hetdp.plan, in this order")
    if tally.statistic.name != plan.statistic.name:
        ours, theirs = tally.statistic.name, plan.statistic.name
        raise InputError(f"the tally is for a {ours}, the plan for a {theirs}; plan again")
    if tally.interval != plan.interval:
        raise InputError(f"the tally is on {tally.interval}, the plan on {plan.interval}; use the same bounds for both")
    if tally.statistic != plan.statistic or tally.statistic.keeps_missing != plan.statistic.keeps_missing:
        raise InputError(f"tally and plan are for a {plan.statistic.name} with other parameters; use the same for both")
    if tally.levels != plan.levels:
        raise InputError("the plan was made for other people than the tally has; use plan(tally.levels, …)")


def unused(plan: Plan) -> tuple[float, ...]:
    """Return the numbers of an answer that uses no data; of a total over all people, n times them."""
    numbers = plan.statistic.nothing
    return tuple(plan.n * number for number in numbers) if plan.statistic.whole else tuple(numbers)


def _drawn(tally: Tally, plan: Plan) -> tuple[float, ...]:
    """Return the noisy numbers of a statistic with several.

    Claim: for any tally of the plan's people the result is ε-DP for everybody if cost(W)/s ≤ ε⁻ at every level.

    Argument. Let V be the exact weighted sums Σ W·code, in units of 1/Q. Replacing a person of weight W changes V by W
    times a difference of two vectors in {0 … Q}.

    *Mass*: one person's codes add up to Q, so do the others', and the floors F of the partial sums of V/Q are floors of
    reals that move by at most W each; the last one, ΣW, does not move. A person's codes stand side by side, in one
    place before and in one place after, so these floors fall to −W at most and rise again, or the other way round: half
    of the L1 distance of their differences is at most W (docs/proofs/family.md). Noise with P(z) ∝ exp(−‖z‖₁/2s) on
    vectors of sum 0 then changes the probability of an outcome by at most exp(W/s).

    *Box*: each ⌊V/Q⌋ moves by at most W, and P(z) ∝ exp(−‖z‖∞/s).

    *Choice*: every score moves by at most W (the statistic says why), and a choice costs 2W/s; choices are independent
    given the scores, so their costs add up.
    """
    statistic, sums = plan.statistic, weighted(tally, plan, slice(None))
    scale = plan.noise[0].scale if plan.noise else None
    if isinstance(statistic.geometry, Choice):
        weights, found = [total // GRID for total in sums], []
        for pick in range(statistic.geometry.picks):
            scores = statistic.scores(weights, pick, plan)
            found.append(scores.index(max(scores)) if scale is None else chosen(scores, scale))
        return tuple(map(float, found))
    if isinstance(statistic.geometry, Mass):
        floors = [partial // GRID for partial in accumulate(sums)]
        whole = [upto - before for before, upto in pairwise([0, *floors])]
        noised = whole if scale is None else zero_sum(whole, scale)
    else:
        whole = [total // GRID for total in sums]
        noised = whole if scale is None else boxed(whole, scale)
    return tuple(float(Fraction(number, plan.total)) for number in noised)


def release_records(values: NDArray[Any], epsilon: NDArray[np.float64], plan: Plan) -> Release:
    """Release by a method that keeps people one by one; the claim and its argument are in `privacy.sampling`.

    Parameters
    ----------
    values, epsilon
        One entry a person, as the array source gives them.
    plan
        A plan for these people that samples.
    """
    levels = plan.levels.like(epsilon)
    if Levels.of(levels) != plan.levels:
        raise InputError("the plan was made for other people; plan again for these")
    if plan.abstains:
        return Release(plan, unused(plan))
    if not isinstance(plan, SamplingPlan):
        raise InputError(f"{plan.method} does not keep people one by one; use release(tally, plan)")
    plan.check()
    for term in plan.noise:
        _sampler_agrees(plan, term)
    kept = coins(plan.keep[np.searchsorted(plan.levels.epsilon, levels)])
    codes = plan.interval.codes(values[kept], np.empty(int(np.count_nonzero(kept))))
    total = int(codes.sum(dtype=np.int64))
    unit = int(plan.units.max())
    answer = unit * (2 * total - int(np.count_nonzero(kept)) * GRID) // (2 * GRID)
    for term in plan.noise:
        answer = noisy(answer, term.scale)
    expected = Fraction(weigh(plan.keep, plan.levels.count), KEEP_ONE)
    return Release(plan, (plan.span.at(Fraction(1, 2) + answer / (unit * expected)),))


def weighted(tally: Tally, plan: Plan, part: slice | NDArray[np.bool_]) -> list[int]:
    """Return Σ W·S for every column of the sums S, exact.

    S is cut into four limbs of 16 bits. W ≤ 2³⁰ (`privacy.exact.lattice`), so the dot product of 2¹⁶ levels with one
    limb stays below 2⁶²; the limbs are put together in Python's integers.
    """
    units, sums = plan.units[part], tally.table.total[part]
    whole = [0] * sums.shape[1]
    for i in range(0, units.size, 2**16):
        w, s = units[i : i + 2**16], sums[i : i + 2**16]
        for bits in (0, 16, 32, 48):
            limbs = (w @ (s >> bits & 0xFFFF)).tolist()
            whole = [total + (limb << bits) for total, limb in zip(whole, limbs, strict=True)]
    return whole


def floored_sum(tally: Tally, plan: Plan, part: slice | NDArray[np.bool_], column: int = 0) -> int:
    """T = ⌊Σ W·S / Q⌋ of a column of codes, exact: a person moves it by at most their W."""
    return weighted(tally, plan, part)[column] // GRID


def _sampler_agrees(plan: Plan, term: NoiseTerm) -> None:
    """Raise if OpenDP's privacy map claims more loss than somebody allows, at the levels that come nearest to it."""
    costs, epsilon = plan.costs[term.first : term.last], plan.levels.epsilon[term.first : term.last]
    costs, epsilon = costs[costs > 0], epsilon[costs > 0]
    with np.errstate(over="ignore"):
        share = costs / epsilon
    tightest = np.argpartition(-share, _ASKED)[:_ASKED] if share.size > _ASKED else np.arange(share.size)
    for cost, limit in zip(costs[tightest].tolist(), epsilon[tightest].tolist(), strict=True):
        told, allowed = loss(cost, term.scale), limit
        if isinstance(plan.statistic.geometry, Choice):  # each choice moves scores by W and costs 2W, its part of ε
            picks = plan.statistic.geometry.picks
            told = choice_loss(cost // (2 * picks), term.scale)
            allowed = limit if picks == 1 else math.nextafter(limit / picks, math.inf)  # told is rounded up as well
        if told > allowed:
            raise PrivacyError("the noise sampler's own privacy map does not agree with the plan; nothing was released")


# The one door for randomness ------------------------------------------------------------------------------------------


def noisy(total: int, scale: float) -> int:
    """Return `total` plus discrete Laplace noise, P(z) ∝ exp(−|z|/scale) on all integers.

    The sampler is applied to the sum itself. OpenDP's integers have 64 bits and saturate, *after* the
    noise is added, which is post-processing; adding a saturated draw to the sum would not be.
    """
    return int(_sampler(scale)(total))


def coins(keep: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return independent coins: the i-th is true with probability exactly keep[i]/2⁵³."""
    draws = np.frombuffer(secrets.token_bytes(8 * keep.size), dtype=np.uint64) >> np.uint64(11)
    return np.asarray(draws.astype(np.int64) < keep)


@lru_cache(maxsize=4096)
def loss(sensitivity: int, scale: float) -> float:
    """Return the sampler's own bound on the privacy loss of a sum that one person moves by `sensitivity`."""
    return float(_sampler(scale).map(sensitivity))


@lru_cache(maxsize=64)
def _sampler(scale: float) -> Any:
    if not SMALLEST_SCALE <= scale <= LARGEST_SCALE:  # a scale near 0 would make OpenDP return the exact sum
        raise PrivacyError(f"a noise scale of {scale:g} cannot be drawn safely; nothing was released")
    import opendp.prelude as dp

    dp.enable_features("contrib")  # OpenDP's flag for measurements outside its vetted core; its proof is public
    return dp.m.make_laplace(dp.atom_domain(T=dp.i64), dp.absolute_distance(T=dp.i64), scale=scale)


# Noise for several numbers ------------------------------------------------------------------------------------------


def zero_sum(totals: Sequence[int], scale: float) -> list[int]:
    """Return the totals plus noise z that adds up to 0, P(z) ∝ exp(−‖z‖₁/(2·scale)) on all such integer vectors.

    All but the last are independent discrete Laplace noise of twice the scale, the last makes the sum 0, and it is
    kept with probability exp(−|last|/(2·scale)): what remains has the law above.
    """
    top, bottom = _ratio(2 * scale)
    while True:
        drawn = [_laplace(top, bottom) for _ in totals[1:]]
        last = -sum(drawn)
        if _geometric(top, bottom) >= abs(last):
            return [total + z for total, z in zip(totals, [*drawn, last], strict=True)]


def boxed(totals: Sequence[int], scale: float) -> list[int]:
    """Return d totals plus noise, P(z) ∝ exp(−‖z‖∞/scale) on all integer vectors.

    z is uniform on a cube {−R … R}^d whose R has P(R) ∝ (2R + 1)^d·exp(−R/scale): summed over the cubes that hold z
    this is the law above. R is a sum of d + 1 geometric draws, whose law is ∝ Π(R + j)·exp(−R/scale), j = 1 … d, kept
    with probability (2R + 1)^d/Π 2(R + j) ≤ 1.
    """
    top, bottom = _ratio(scale)
    d = len(totals)
    while True:
        r = sum(_geometric(top, bottom) for _ in range(d + 1))
        if secrets.randbelow(math.prod(2 * (r + j) for j in range(1, d + 1))) < (2 * r + 1) ** d:
            return [total + secrets.randbelow(2 * r + 1) - r for total in totals]


def _ratio(scale: float) -> tuple[int, int]:
    """Return a scale as the exact fraction that it is."""
    if not SMALLEST_SCALE <= scale <= 2 * LARGEST_SCALE:
        raise PrivacyError(f"a noise scale of {scale:g} cannot be drawn safely; nothing was released")
    return scale.as_integer_ratio()


def _laplace(top: int, bottom: int) -> int:
    """Draw from P(z) ∝ exp(−|z|·bottom/top): a geometric size and a sign, where −0 is drawn again."""
    while True:
        size, negative = _geometric(top, bottom), secrets.randbits(1)
        if size or not negative:
            return -size if negative else size


def _geometric(top: int, bottom: int) -> int:
    """Draw from P(G ≥ j) = exp(−j·bottom/top), j = 0, 1, …: Canonne, Kamath and Steinke 2020, Algorithm 2.

    x = u + top·v has P(x) ∝ exp(−x/top), because u < top is kept with probability exp(−u/top) and v counts the wins of
    a coin of e⁻¹; and ⌊x/bottom⌋ ≥ j exactly if x ≥ j·bottom.
    """
    while not _wins(u := secrets.randbelow(top), top):
        pass
    v = 0
    while _wins(1, 1):
        v += 1
    return (u + top * v) // bottom


def _wins(part: int, whole: int) -> bool:
    """Flip a coin of probability exp(−part/whole), for part ≤ whole: von Neumann's series, in integers."""
    k = 1
    while secrets.randbelow(whole * k) < part:
        k += 1
    return k % 2 == 1


# A choice among cells -----------------------------------------------------------------------------------------------


def chosen(scores: Sequence[int], scale: float) -> int:
    """Return the index of a high score: exact permute-and-flip, in which the chance of a cell falls by e for `scale`.

    Cells are looked at in a random order, and each is taken with probability exp((score − best)/scale).
    """
    return int(_chooser(scale)(list(scores)))


@lru_cache(maxsize=4096)
def choice_loss(sensitivity: int, scale: float) -> float:
    """Return the chooser's own bound on the privacy loss where one person moves every score by `sensitivity`."""
    return float(_chooser(scale).map(sensitivity))


@lru_cache(maxsize=64)
def _chooser(scale: float) -> Any:
    if not SMALLEST_SCALE <= scale <= LARGEST_SCALE:
        raise PrivacyError(f"a noise scale of {scale:g} cannot be drawn safely; nothing was released")
    import opendp.prelude as dp

    dp.enable_features("contrib")
    domain, metric = dp.vector_domain(dp.atom_domain(T=dp.i64)), dp.linf_distance(T=dp.i64)
    return dp.m.make_noisy_max(domain, metric, dp.max_divergence(), scale=scale)
