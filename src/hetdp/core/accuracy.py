"""What a plan predicts: its error, its intervals, the frontier. Nothing here bears on privacy; floats are fine."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from hetdp.errors import InputError
from hetdp.estimators import Method, Shape

from .domain import GRID, Interval
from .geometry import Line
from .levels import Levels

if TYPE_CHECKING:
    from .plan import Plan


IntervalKind = Literal["guaranteed", "normal"]


@dataclass(frozen=True)
class Errors:
    """What the mean squared error of an estimator is made of, for an interval of length 1.

    For data of variance v whose mean lies d from the midpoint it is spread·v + pull·d² + noise.

    Attributes
    ----------
    spread, pull, noise
        The coefficients above; for weights w: Σw², (1 − Σw)², and the variance of the noise.
    ranges
        The sum of the squared ranges over which single people can move the estimate.
    scales
        The scales of the noise terms.
    bias
        The largest possible bias. Of `pull`, (2·bias)² is squared bias and the rest is variance.
    idle
        The worst error of the answer that uses no data; for data of variance v, d² ≤ idle − v.
    """

    spread: float
    pull: float
    noise: float
    ranges: float
    scales: tuple[float, ...]
    bias: float
    idle: float = 0.25

    def worst(self, variance: float) -> float:
        """Return the largest error over all distributions with at most this variance."""
        return self.noise + worst_corner(self.spread, self.pull, variance, self.idle)


def midpoint(idle: float = 0.25) -> Errors:
    """Return the errors of the answer that uses no data."""
    return Errors(spread=0, pull=1, noise=0, ranges=0, scales=(), bias=0.5, idle=idle)


def affine_errors(plan: Plan) -> Errors:
    """Return the errors of Σ w·x plus noise, w the weights of a plan.

    Of a total over exactly these people, Σ w·x is compared with their own average: its weights are w − 1/n.
    """
    statistic = plan.statistic
    squares = float(np.sum(plan.levels.count * plan.person_weight**2))
    if statistic.whole:
        squares = max(squares - (2 * plan.shrink - 1) / plan.n, 0.0)
    if isinstance(statistic.geometry, Line):
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
    )


def sampling_errors(levels: Levels, keep: NDArray[np.float64], scale: float) -> Errors:
    """Return the errors of Σ over the kept of (x − mid)/D plus Laplace noise, D = Σ keep.

    Person i is kept with probability p, so (x − mid) enters with mean p·d and second moment p·(v + d²): the variance
    of the sum is Σ p·v + p(1 − p)·d², and one person moves it by at most 1/D.
    """
    expected = float(np.sum(levels.count * keep))
    pull = float(np.sum(levels.count * keep * (1 - keep))) / expected**2
    people = float(np.sum(levels.count[keep > 0]))
    scales = (scale,) if scale else ()
    return Errors(1 / expected, pull, 2 * scale**2, people / expected**2, scales, bias=0.0)


def objective(levels: Levels, shape: Shape, variance: float, noise_at_1: float = 2.0) -> float:
    """Return the worst-case error of a shape in floats, before it becomes integers; inf if nobody has weight."""
    total = float(np.sum(levels.count * shape.weight))
    if not total > 0:
        return math.inf
    if shape.kept:
        largest = float(levels.epsilon.max())
        return sampling_errors(levels, shape.weight, 1 / (total * largest)).worst(variance)
    w, used = shape.weight * (shape.shrink / total), shape.weight > 0
    with np.errstate(over="ignore"):
        eta = np.maximum(w[used] / levels.epsilon[used], shape.noise * shape.shrink / total)
        noise = noise_at_1 * float(np.sum(eta**2) if shape.apart else np.max(eta) ** 2)
        return worst_corner(float(np.sum(levels.count * w**2)), (1 - shape.shrink) ** 2, variance) + noise


def smallest_cap(plan: Plan, rule: Method, tolerance: float, start: float) -> float:
    """Return the smallest τ at which min(ε, τ) keeps a rule within (1 + tolerance) times its error."""
    levels, bound, wanted = plan.levels, plan.variance_bound, plan.shape_bound
    noise_at_1 = plan.noise_at_1

    def error(cap: float) -> float:
        capped = levels.capped(cap)
        return objective(capped, rule.shape(capped, wanted), bound, noise_at_1)

    goal = error(math.inf) * (1 + tolerance)
    if rule.abstains and goal >= plan.statistic.idle:  # the answer without data is as good
        return 0.0
    if rule.shape(levels, wanted).apart:  # a cap at a level merges groups: the error jumps there
        private = levels.epsilon[(levels.epsilon > 0) & (levels.epsilon < math.inf)].tolist()
        start = next((level for level in private if error(level) <= goal), start)
    return least(lambda cap: error(cap) <= goal, start)


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
    if not 0 < level < 1:
        raise InputError(f"the confidence level must be between 0 and 1 (got {level:g}); 0.95 is usual")
    if kind not in ("guaranteed", "normal"):
        raise InputError(f"the kind of an interval is 'guaranteed' or 'normal' (got {kind!r})")
    errors, interval, geometry = plan.errors, plan.span, plan.statistic.geometry
    if plan.abstains:
        return interval.width / 2 if isinstance(geometry, Line) else interval.width
    miss = (1 - level) / together
    if kind == "guaranteed":
        scale = plan.noise[0].scale if plan.noise else 1.0
        found = guaranteed_radius(errors.ranges, errors.scales, 1 - miss, lambda u: geometry.log_mgf(u, scale))
    else:
        bound = plan.variance_bound if isinstance(geometry, Line) else 0.25  # of one number
        variance = worst_corner(errors.spread, errors.pull - (2 * errors.bias) ** 2, bound)
        found = NormalDist().inv_cdf(1 - miss / 2) * math.sqrt(errors.noise / geometry.numbers + variance)
    slack = rounding(plan.total, len(plan.noise) + 1)
    precision = math.ulp(max(abs(interval.lo), abs(interval.hi)))  # estimates and ends are doubles
    return (found + errors.bias + slack) * interval.width + 2 * precision


def guaranteed_radius(
    squares: float, scales: Sequence[float], level: float, log_mgf: Callable[[float], float] | None = None
) -> float:
    """Return r = min over 0 < λ < 1/η of [ln(2/α) + λ²·Σw²/8 + Σ ln E exp(λ·noise)]/λ.

    Claim: |estimate − μ| ≤ r with probability at least 1 − α for every distribution on the interval and every n.

    Argument: Chernoff's bound on both tails. A value in an interval of length 1 has E exp(λw(X − μ)) ≤
    exp(λ²w²/8) (Hoeffding). Laplace noise of scale η has E exp(λZ) = 1/(1 − λ²η²); discrete Laplace noise on a lattice
    has (cosh(1/s) − 1)/(cosh(1/s) − cosh λ), which is smaller, because (cosh x − 1)/x² increases. Noise of another
    shape brings its own `log_mgf`, in u = λη. Any λ gives a valid bound, so the minimiser need not be exact.
    """
    from scipy.optimize import minimize_scalar

    log_mgf = log_mgf or (lambda u: -math.log1p(-u * u))
    log = math.log(2 / (1 - level))
    if not scales:
        return math.sqrt(log * squares / 2)
    most = math.sqrt(8 * log / squares) if squares else math.inf  # the best λ without noise; noise only lowers it

    def bound(lam: float) -> float:
        return (log + lam * lam * squares / 8 + sum(log_mgf(lam * eta) for eta in scales)) / lam

    limit = min(most, (1 - 1e-9) / max(scales))
    found = minimize_scalar(bound, bounds=(limit * 1e-6, limit), method="bounded", options={"xatol": 1e-9 * limit})
    return float(found.fun)


def rounding(total: int, floors: int) -> float:
    """Return how far the arithmetic itself can move an estimate.

    A grid step for the codes (half for a value, half more where a person's rows were averaged), one weight unit for
    each sum that is floored, a hair for the doubles.
    """
    return 1.0 / GRID + floors / total + 2.0**-50


def least(enough: Callable[[float], bool], start: float) -> float:
    """Return the smallest positive x with enough(x), to 1e-9 relative; `enough` must stay true once it is."""
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
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        if not low < middle < high:  # no double lies between two of the smallest ones
            break
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high
