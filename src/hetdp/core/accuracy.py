"""What a plan predicts: its error, its intervals, the frontier. Nothing here bears on privacy; floats are fine."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from hetdp.errors import InputError
from hetdp.estimators import Method, Shape
from hetdp.estimators.minimax import Clamp
from hetdp.privacy.exact import Box, Choice, Line

from .domain import GRID, Interval
from .intervals import hoeffding, symmetric_radius
from .levels import Levels, shift

if TYPE_CHECKING:
    from hetdp.statistics import Statistic

    from .plan import Plan


IntervalKind = Literal["guaranteed", "normal"]
Target = Literal["population", "people"]
Unit = Literal["values", "range", "moments", "people", "rank"]


@dataclass(frozen=True)
class Errors:
    """What the mean squared error of an estimator is made of, for an interval of length 1.

    For data of variance v whose mean lies d from the midpoint it is spread·v + pull·d² + noise. With a clamp it is
    less, by the gain of the clamp or more (`hetdp.estimators.minimax.Clamp`).

    Attributes
    ----------
    spread, pull, noise
        The coefficients above; for weights w: Σw², (1 − Σw)², and the variance of the noise.
    ranges
        The sum of the squared ranges over which single people can move the estimate.
    scales
        The scales of the noise terms.
    bias
        The largest bias of shrinking. Of `pull`, (2·bias)² is squared bias and the rest is variance.
    idle
        The worst error of the answer that uses no data; for data of variance v, d² ≤ idle − v.
    shift
        δ, the bias if the means of two levels differ by the whole range: of a difference D it is at most D·δ.
    cap
        What the squared error without the noise cannot exceed; the number of exactly these people has such a limit.
    drift
        D, how far the means of two levels may differ.
    clamp
        What keeping the noisy sum near the range gains; None without a clamp.
    """

    spread: float
    pull: float
    noise: float
    ranges: float
    scales: tuple[float, ...]
    bias: float
    idle: float = 0.25
    shift: float = 0.0
    cap: float = math.inf
    drift: float = 0.0
    clamp: Clamp | None = None

    @property
    def most_bias(self) -> float:
        """The largest possible bias towards the midpoint, without drift: of data that all lie at an end of the range.

        A noisy sum has the same chance to be clipped on both sides if the data are in the middle, and the more unequal
        ones the farther they are from it.
        """
        return self.bias + (0.0 if self.clamp is None else self.clamp.bias)

    def worst(self, variance: float) -> float:
        """Return the largest error over all distributions with at most this variance, at every level of ε.

        A drift adds the bias b = D·δ to that of shrinking, (1 − s)·d. A level's own mean is within D of that of all, so
        its variance v obeys v + (d − D)₊² ≤ idle. With d = √(idle − v) + D, but no more than half of the range, what
        remains is concave in v: it is largest at an end, where d is half of the range, or where its derivative,
        spread − pull − (pull·D + b·(1 − s))/√(idle − v), is 0. If everybody counts alike the average of all levels'
        variances is what matters, and D does not.
        """
        if self.clamp is not None:
            how = (self.spread, self.pull, self.noise, variance)
            moved = self.drift * self.shift
            return self.clamp.worst_drifting(*how, moved, self.drift) if moved else self.clamp.worst(*how)
        if not self.drift:
            return self.noise + worst_corner(self.spread, self.pull, variance, self.idle)
        half, apart = math.sqrt(self.idle), self.drift if self.shift > 1e-12 else 0.0
        turns = [max(half - apart, 0.0)]
        if self.spread > self.pull:
            turns.append((self.pull * apart + self.drift * self.shift * 2 * self.bias) / (self.spread - self.pull))
        ends = [0.0, variance, *(min(max(self.idle - turn * turn, 0.0), variance) for turn in turns)]
        return max(self.at(v, min(half, math.sqrt(max(self.idle - v, 0.0)) + apart)) for v in ends)

    def at(self, variance: float, offset: float) -> float:
        """Return the error for data of this variance whose mean lies `offset` from the midpoint, at the worst drift.

        With a clamp the error may be smaller than that: how much is gained depends on more than mean and variance.
        """
        moved = self.drift * self.shift
        if self.clamp is not None:
            z, reach = np.asarray(offset), moved / self.clamp.shrink
            gain = float(self.clamp.least_gain(np.maximum(z - reach, -0.5), np.minimum(z + reach, 0.5), z))
            return replace(self, clamp=None).at(variance, offset) - gain
        bias = moved * moved + 2 * moved * 2 * self.bias * offset
        return self.noise + min(self.spread * variance + self.pull * offset * offset + bias, self.cap)

    def at_any_mean(self, variance: float) -> float:
        """Return the error for data of this variance, at the mean that is worst for it."""
        farthest = math.sqrt(0.25 - variance)
        if self.clamp is None or self.drift:  # with a drift this leaves out what the clamp gains
            return replace(self, clamp=None).at(variance, farthest)
        return self.noise + self.spread * variance + self.clamp.largest(self.pull, 0.0, farthest)


def midpoint(idle: float = 0.25) -> Errors:
    """Return the errors of the answer that uses no data."""
    return Errors(spread=0, pull=1, noise=0, ranges=0, scales=(), bias=0.5, idle=idle)


def affine_errors(plan: Plan) -> Errors:
    """Return the errors of Σ w·x plus noise, w the weights of a plan.

    For exactly these people Σ w·x is compared with their own average: its weights are w − 1/n, which also bound the
    error whatever the values are, by half of their absolute sum.
    """
    statistic, count, one = plan.statistic, plan.levels.count, plan.statistic.one
    squares, cap = float(np.sum(count * plan.person_weight**2)), math.inf
    if plan.target == "people":
        squares = max(squares - (2 * plan.shrink - 1) / plan.n, 0.0)
        cap = (float(np.sum(count * np.abs(plan.person_weight - 1 / plan.n))) / 2) ** 2
    if one:
        noise = sum(noise_variance(term.scale) * (plan.shrink / plan.total) ** 2 for term in plan.noise)
    else:
        noise = sum(statistic.geometry.noise * (term.scale / plan.total) ** 2 for term in plan.noise)
    return Errors(
        spread=squares,
        pull=(1 - plan.shrink) ** 2,
        noise=noise,
        ranges=squares,
        scales=tuple(plan.shrink * term.scale / plan.total for term in plan.noise),
        bias=(1 - plan.shrink) / 2,
        idle=statistic.idle,
        shift=plan.bias_share,
        cap=cap,
        drift=plan.drift if one else 0.0,  # of several numbers the statistic itself says what the bias does
        clamp=clamp_of(plan) if plan.target == "population" else None,  # of these people its gain is not counted
    )


def clamp_of(plan: Plan) -> Clamp | None:
    """Return what the clamp of a plan gains, with the noise on the integers that is really drawn; None without one.

    Where exactly these people are asked about, the gain is not negative either, but the proof says no more than that.
    """
    if plan.clamp is None:
        return None
    noise, total = plan.noise[0].scale, plan.total
    first, second = 1 / math.sinh(1 / noise) / total, noise_variance(noise) / 2 / total / total
    return Clamp(plan.shrink, float(Fraction(plan.clamp, total) - Fraction(1, 2)), noise / total, first, second)


def clamped_sum(shape: Shape, total: int, noise: float) -> int | None:
    """Return the largest noisy sum that counts, in weight units, for the clamp of a shape; None without one.

    It is rounded up, and so that the conditions of `Clamp` hold for the noise on the integers.
    """
    if math.isinf(shape.clamp) or not noise:
        return None
    ratio = math.sinh(1 / noise) * noise_variance(noise) / 2 / total  # second/first
    reach = max(shape.clamp, 0.5, (0.5 / shape.shrink - ratio) * (1 + 1e-14))
    return math.ceil(total * (Fraction(1, 2) + Fraction(reach)))


def check_clamp(plan: Plan) -> None:
    """Raise unless what a plan says about the error of its clamp is proved; privacy does not depend on a clamp."""
    if plan.clamp is None:
        return
    one = plan.statistic.one and len(plan.noise) == 1 and plan.noise[0].scale >= 1
    found = clamp_of(plan) if one and plan.total > 0 and isinstance(plan.clamp, int) else None
    if found is None or not found.holds:
        raise InputError(
            "a clamp needs one number, one noise and a reach of at least the whole range, with shrink·(reach + noise "
            "scale) at least half of it: only then is its error known; leave out the clamp, or plan again"
        )


def sampling_errors(
    levels: Levels, keep: NDArray[np.float64], scale: float, drift: float = 0.0, *, people: bool = False
) -> Errors:
    """Return the errors of Σ over the kept of (x − mid)/K plus Laplace noise, K = Σ keep.

    Person i is kept with probability p, so (x − mid) enters with mean p·d and second moment p·(v + d²): the variance
    of the sum is Σ p·v + p(1 − p)·d², and one person moves it by at most 1/K. The difference from the average of
    exactly these people has (p/K)² replaced by (p/K − 1/n)² where v counts, and people who are never kept move it too.
    """
    n, expected = levels.n, float(np.sum(levels.count * keep))
    pull = float(np.sum(levels.count * keep * (1 - keep))) / expected**2
    kept = float(np.sum(levels.count[keep > 0]))
    spread, ranges = 1 / expected, kept / expected**2
    if people:
        spread, ranges = max(spread - 1 / n, 0.0), ranges + (n - kept) / n**2
    scales, moved = (scale,) if scale else (), shift(levels.count, keep)
    return Errors(spread, pull, 2 * scale**2, ranges, scales, bias=0.0, shift=moved, drift=drift)


def objective(
    levels: Levels,
    shape: Shape,
    variance: float,
    noise_at_1: float = 2.0,
    drift: float = 0.0,
    *,
    people: bool = False,
) -> float:
    """Return the worst-case error of a shape in floats, before it becomes integers; inf if nobody has weight."""
    total = float(np.sum(levels.count * shape.weight))
    if not total > 0:
        return math.inf
    if shape.kept:
        scale = 1 / (total * float(levels.epsilon.max()))
        return sampling_errors(levels, shape.weight, scale, drift, people=people).worst(variance)
    w, used = shape.weight * (shape.shrink / total), shape.weight > 0
    with np.errstate(over="ignore"):
        eta = np.maximum(w[used] / levels.epsilon[used], shape.noise * shape.shrink / total)
        noise = noise_at_1 * float(np.sum(eta**2) if shape.apart else np.max(eta) ** 2)
    squares, cap = float(np.sum(levels.count * w**2)), math.inf
    if people:
        squares = max(squares - (2 * shape.shrink - 1) / levels.n, 0.0)
        cap = (float(np.sum(levels.count * np.abs(w - 1 / levels.n))) / 2) ** 2
    moved, pull, bias = (
        shape.shrink * shift(levels.count, shape.weight),
        (1 - shape.shrink) ** 2,
        (1 - shape.shrink) / 2,
    )
    clamp = None
    if math.isfinite(shape.clamp) and not people:
        scale = float(np.max(eta)) / shape.shrink
        clamp = Clamp(shape.shrink, shape.clamp, scale, scale, scale * scale)
    idle = max(variance, 0.25)
    return Errors(squares, pull, noise, squares, (), bias, idle, moved, cap, drift, clamp).worst(variance)


def smallest_cap(plan: Plan, rule: Method, tolerance: float) -> float:
    """Return the smallest τ at which min(ε, τ) keeps a rule within (1 + tolerance) times its error; see `frontier`.

    The error of those who answered is that of a ratio and not of its three cells, so there each cap is planned again.
    """
    if not tolerance > 0:
        raise InputError(f"the tolerance must be positive (got {tolerance:g}); 0.01 is one per cent")
    if plan.abstains:
        return 0.0
    spent = float(plan.spent.max())
    start = spent if math.isfinite(spent) else 1.0
    levels, bound, drift, people = plan.levels, plan.variance_bound, plan.drift, plan.target == "people"
    wanted = shape_bound(plan.statistic, bound, plan.share)
    noise_at_1 = plan.statistic.geometry.noise * (unit_cost(plan.statistic) / plan.share) ** 2
    ratio = _is_ratio(plan.statistic)

    def error(cap: float) -> float:
        capped = levels.capped(cap)
        if ratio:
            planned = plan.again(capped)
            return planned.statistic.worst_square(planned)
        shape = shaped(rule, capped, wanted, drift * plan.share, people=people, share=plan.share)
        return objective(capped, shape, bound, noise_at_1, drift, people=people)

    goal = error(math.inf) * (1 + tolerance)
    if not goal:  # the number of exactly these people, all public: any cap would bring an error where there is none
        return math.inf
    if rule.abstains and goal >= (0.25 if ratio else plan.statistic.idle):  # the answer without data is as good
        return 0.0
    if rule.shape(levels, wanted).apart:  # a cap at a level merges groups: the error jumps there
        private = levels.epsilon[(levels.epsilon > 0) & (levels.epsilon < math.inf)].tolist()
        start = next((level for level in private if error(level) <= goal), start)
    quick = rule.plain is None and not ratio  # a clamp takes longer, and so does planning
    return least(lambda cap: error(cap) <= goal, start, 1e-9 if quick else 1e-5)


def worst_corner(spread: float, pull: float, variance: float, idle: float = 0.25) -> float:
    """Return the largest of v·spread + d²·pull over 0 ≤ v ≤ variance, v + d² ≤ idle.

    A distribution on an interval of length 1 with variance v has its mean at most √(1/4 − v) from the midpoint.
    The maximum of a linear function sits at a corner.
    """
    return max(variance * spread + (idle - variance) * pull, idle * pull)


def unit_variance(variance: Any, interval: Interval) -> float:
    """Return a variance as it would be on an interval of length 1, where it is at most 1/4."""
    try:
        bound = math.nan if isinstance(variance, bool) or not isinstance(variance, numbers.Real) else float(variance)
    except OverflowError:
        bound = math.inf
    if not bound >= 0:
        raise InputError(f"a variance must be a number, 0 or more (got {variance!r}), in squared units of the values")
    return min(bound / interval.width / interval.width, 0.25)


def noise_variance(scale: float) -> float:
    """Return the variance of discrete Laplace noise, 1/(2·sinh²(1/(2·scale))); just below the continuous 2·scale².

    >>> round(noise_variance(1e6) / 1e12, 9)
    2.0
    """
    half = 1 / (2 * scale)
    return 0.5 / math.sinh(half) ** 2 if half < 350 else 0.0


def radius(plan: Plan, level: float, kind: IntervalKind, together: int = 1) -> float:
    """Return the half-width of an interval of this kind; an answer that uses no data is off by half the range.

    So many intervals of this half-width hold `together`, each but for an equal part of the probability.
    """
    check_level(level, kind)
    errors, interval, geometry = plan.errors, plan.span, plan.statistic.geometry
    if plan.abstains:
        return interval.width / 2 if isinstance(geometry, Line) else interval.width
    miss = (1 - level) / together
    slack, drifted = rounding(plan.total, len(plan.noise) + 1), plan.drift * plan.bias_share
    if kind == "normal":
        bound = plan.variance_bound if isinstance(geometry, Line) else 0.25  # of one number
        variance = worst_corner(errors.spread, errors.pull - (2 * errors.bias) ** 2, bound)
        found = NormalDist().inv_cdf(1 - miss / 2) * math.sqrt(errors.noise / geometry.numbers + variance)
        found += errors.bias + drifted
    elif isinstance(geometry, Line):
        slack = rounding(plan.total, 2 * len(plan.noise) + 1)  # the noise is discrete
        found = symmetric_radius(plan, miss / 2)  # with bias and drift
    else:
        scale, etas = plan.noise[0].scale if plan.noise else 1.0, errors.scales
        most = (1 - 1e-9) / etas[0] if etas else math.inf
        noise = (lambda lam: geometry.log_mgf(lam * etas[0], scale)) if etas else (lambda lam: 0.0)  # noqa: ARG005
        found = hoeffding(errors.ranges, noise, most, miss / 2) + errors.bias + drifted
    precision = math.ulp(max(abs(interval.lo), abs(interval.hi)))  # estimates and ends are doubles
    return (found + slack) * interval.width + 2 * precision


def check_level(level: float, kind: str = "guaranteed") -> None:
    """Raise unless this is the level of an interval, and its kind one that there is."""
    if not 0 < level < 1:
        raise InputError(f"the confidence level must be between 0 and 1 (got {level:g}); 0.95 is usual")
    if kind not in get_args(IntervalKind):
        raise InputError(f"the kind of an interval is 'guaranteed' or 'normal' (got {kind!r})")


def rounding(total: int, floors: int) -> float:
    """Return how far the arithmetic itself can move an estimate.

    A grid step for the codes (half for a value, half more where a person's rows were averaged), one weight unit for
    each sum that is floored, a hair for the doubles.
    """
    return 1.0 / GRID + floors / total + 2.0**-50


def least(enough: Callable[[float], bool], start: float, hair: float = 1e-9) -> float:
    """Return the smallest positive x with enough(x), up to a share of it; `enough` must stay true once it is."""
    high = start
    while not enough(high):
        high *= 2
        if math.isinf(high):
            return high
    low = high / 2
    while enough(low):
        high, low = low, low / 2
        if low == 0:
            return high
    while high - low > hair * high:
        middle = (low + high) / 2
        if not low < middle < high:  # no double lies between two of the smallest ones
            break
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def shape_bound(statistic: Statistic, bound: float, share: float) -> float:
    """Return 2/ρ, which a method takes for the variance of a value; of a share f of ε the noise is 1/f² times as large.

    The rules were written for one number, where the noise has variance 2η² and so ρ = 2/variance.
    """
    one = statistic.one
    return (bound if one else 2 / statistic.rho) * share * share


def shaped(rule: Method, levels: Levels, variance: float, drift: float, *, people: bool, share: float = 1.0) -> Shape:
    """Return the weights that a method wants for levels whose means may differ by `drift`, and for a share of ε."""
    if drift > 0 and rule.drifting is not None:
        return rule.drifting(levels, variance, drift, people=people)
    if rule.plain is not None and (drift > 0 or people or share != 1):
        return rule.plain(levels, variance)
    return rule.shape(levels, variance)


def error_unit(statistic: Statistic) -> Unit:
    """Return the unit of a statistic's error: of one number, also of those who answered, that of the values."""
    shape = statistic.geometry
    if isinstance(shape, Line) or _is_ratio(statistic):
        return "values"
    if isinstance(shape, Box):
        return "moments" if statistic.square else "range"
    return "rank" if isinstance(shape, Choice) and statistic.missed == "in rank" else "people"


def _is_ratio(statistic: Statistic) -> bool:
    """Say whether this is one number of those who answered: a ratio of shares, whose error is its own."""
    return statistic.keeps_missing and hasattr(statistic, "error_answered")


def unit_width(plan: Plan) -> float:
    """Return how wide the range of the result is in that unit."""
    return plan.interval.width if _is_ratio(plan.statistic) else plan.span.width


def aimed_at(statistic: Statistic, drift: Any, target: Any) -> Target:
    """Return whose number is estimated; raise unless drift and target are what they can be for this statistic."""
    if isinstance(drift, bool) or not isinstance(drift, numbers.Real) or not 0 <= float(drift) <= 1:
        raise InputError(
            f"drift must be a number from 0 to 1 (got {drift!r}): how far the means of two levels of ε may differ, as "
            "a share of the range"
        )
    if target not in (None, *get_args(Target)):
        raise InputError(f"target is 'population' or 'people' (got {target!r})")
    one = statistic.one
    if target == "people" and statistic.keeps_missing:
        raise InputError(
            "those who answered have no target 'people': who they are stays private; leave out target=, or say "
            "missing='drop' if who answered is public"
        )
    if (drift and not statistic.takes_drift) or (target == "people" and not (one or statistic.whole)):
        what = "a drift" if drift and not statistic.takes_drift else "the target 'people'"
        raise InputError(f"{what} is for means, sums, proportions and counts, not for a {statistic.name}; leave it out")
    if statistic.whole and target == "population":
        raise InputError(f"a {statistic.name} is of exactly these people; leave out target='population'")
    return "people" if statistic.whole or target == "people" else "population"


def unit_cost(statistic: Statistic) -> int:
    """Return what a weight unit costs."""
    return int(statistic.geometry.cost(np.ones(1, np.int64))[0])


CONDITION = "if ε tells nothing about the value"


FILLED = "if the drift holds with missing values as they count here"


def condition(p: Plan) -> str | None:
    """Return under which condition an interval holds; None if it holds for any ε."""
    filled = counts_missing(p.statistic)
    if not needs_independence(p):
        return FILLED if filled and p.drift and p.bias_share > 1e-9 else None
    missing = p.statistic.keeps_missing or filled
    return CONDITION + (" or about who answers" if missing else "")


def supposed(statistic: Statistic) -> str | None:
    """Return under which condition all holds that is predicted before any value is read; None if it needs none."""
    if statistic.missing == "drop":
        return "if everybody has a value"
    return "if everybody answers" if statistic.keeps_missing else None


def counts_missing(statistic: Statistic) -> bool:
    """Say whether a missing value counts as something: 0 in a sum of those who answered, the midpoint, a number."""
    return not statistic.keeps_missing and statistic.missing not in (None, "none", "drop")


def needs_independence(p: Plan) -> bool:
    """Say whether an interval holds only under `CONDITION`: people do not count alike, and no drift was stated."""
    return p.bias_share > 1e-9 and not p.drift
