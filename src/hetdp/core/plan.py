"""Plan: what would be released and what it costs, decided from public facts alone."""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from hetdp.errors import InputError
from hetdp.estimators import Shape, find
from hetdp.privacy.exact import (
    LARGEST_SCALE,
    SMALLEST_SCALE,
    NoiseTerm,
    check,
    lattice,
    scale_for,
    scales_apart,
    weigh,
)
from hetdp.privacy.sampling import KEEP_ONE, check_sampled, keep_for, sampling_scale, spent_sampled

from . import accuracy
from .domain import Interval
from .levels import Levels, epsilon_array, round_down

IntervalKind = Literal["guaranteed", "normal"]


@dataclass(frozen=True)
class Row:
    """One level of a plan. Weight and spend are for one person."""

    epsilon: float
    count: int
    weight: float
    spent: float
    name: str | None = None

    @property
    def free(self) -> float:
        """The privacy that comes free: what this person allowed and the release does not use."""
        return self.epsilon - self.spent if self.spent < math.inf else 0.0

    @property
    def share(self) -> float:
        """The share of the estimate that rests on this level."""
        return self.weight * self.count


@dataclass(frozen=True, eq=False)
class Plan:
    """Integer weights per level, the noise, and everything that follows from them. No value was seen.

    A plan that exists has passed the exact check of `privacy.exact`: making one that would overspend raises.

    Attributes
    ----------
    method
        The name of the estimator.
    levels
        The ε and how many people have each.
    interval
        The public interval of the values.
    units
        One person's integer weight at each level.
    noise
        The noise terms, in weight units.
    threshold
        The saturation level t, in ε: people above it get the rest of their ε free. None if the method has none.
    abstains
        Whether the answer is the midpoint of the interval, with no data used and nothing spent.
    variance_bound
        The bound on the variance of one value, for an interval of length 1; 1/4 always holds.
    shrink
        The factor by which the estimate is drawn towards the midpoint, after the noise; 1 is unbiased.
    keep
        For a method that samples: the probability, in units of 2⁻⁵³, with which one person at each level is kept.
    """

    method: str
    levels: Levels
    interval: Interval
    units: NDArray[np.int64]
    noise: tuple[NoiseTerm, ...]
    threshold: float | None
    abstains: bool
    variance_bound: float = 0.25
    shrink: float = 1.0
    keep: NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        self.check()
        for array in (self.units, self.keep):
            if array is not None:
                array.flags.writeable = False

    def check(self) -> None:
        """Raise unless nobody's ε is exceeded; run when a plan is made, and again when it is carried out."""
        people = (self.units, self.levels.epsilon, self.levels.count, self.noise)
        if self.keep is None:
            check(*people)
        else:
            check_sampled(*people, self.keep)

    @property
    def n(self) -> int:
        """The number of people."""
        return self.levels.n

    @property
    def bounds(self) -> tuple[float, float]:
        """The interval as a pair."""
        return self.interval.lo, self.interval.hi

    @cached_property
    def total(self) -> int:
        """The weight of all people together, in weight units; with sampling, of those expected to be kept."""
        if self.keep is not None:
            return weigh(self.keep, self.levels.count) * int(self.units.max()) // KEEP_ONE
        return int(np.dot(self.units, self.levels.count))  # fits 62 bits: `check` has seen to it

    @property
    def noiseless(self) -> bool:
        """Whether only public people have weight, so that no noise is needed."""
        return not self.abstains and not self.noise

    @cached_property
    def table(self) -> tuple[Row, ...]:
        """One row per level: ε, people, one person's weight and what they really spend."""
        names = self.levels.names
        columns = (self.levels.epsilon, self.levels.count, self.person_weight, self.spent)
        return tuple(Row(e, c, w, s, names.get(e)) for e, c, w, s in zip(*(x.tolist() for x in columns), strict=True))

    @cached_property
    def spent(self) -> NDArray[np.float64]:
        """What one person at each level spends, W/scale, rounded up to the next double; never above ε."""
        if self.keep is not None:
            return np.minimum(spent_sampled(self.units, self.keep, self.noise), self.levels.epsilon)
        spent = np.where(self.units > 0, np.inf, 0.0)
        for term in self.noise:
            part = slice(term.first, term.last)
            spent[part] = np.where(self.units[part] > 0, np.nextafter(self.units[part] / term.scale, np.inf), 0.0)
        return spent

    @cached_property
    def person_weight(self) -> NDArray[np.float64]:
        """The weight of one person at each level; over all people the weights sum to `shrink`."""
        units = self.units if self.keep is None else self.units * (self.keep / KEEP_ONE)
        return np.asarray(units * (self.shrink / max(self.total, 1)), dtype=np.float64)

    @property
    def noise_scale(self) -> float:
        """The scale of the Laplace noise in units of the values (of several: the root of their squares)."""
        return math.hypot(*self.errors.scales) * self.interval.width

    @cached_property
    def errors(self) -> accuracy.Errors:
        """What the mean squared error is made of, for an interval of length 1."""
        if self.abstains:
            return accuracy.MIDPOINT
        scales = tuple(self.shrink * term.scale / self.total for term in self.noise)
        if self.keep is not None:
            return accuracy.sampling_errors(self.levels, self.keep / KEEP_ONE, sum(scales))
        squares = float(np.sum(self.levels.count * self.person_weight**2))
        return accuracy.Errors(
            spread=squares,
            pull=(1 - self.shrink) ** 2,
            noise=sum(accuracy.noise_variance(term.scale) * (self.shrink / self.total) ** 2 for term in self.noise),
            ranges=squares,
            scales=scales,
            bias=(1 - self.shrink) / 2,
        )

    @property
    def worst_case_mse(self) -> float:
        """The mean squared error for the worst distribution on the interval, in squared units of the values.

        Rounding values to the grid can add a bias of (hi − lo)/2²¹, which is left out: it matters beyond 10¹⁰ people.
        """
        return self.errors.worst(self.variance_bound) * self.interval.width * self.interval.width

    @property
    def worst_case_error(self) -> float:
        """The root of `worst_case_mse`, in units of the values."""
        return math.sqrt(self.errors.worst(self.variance_bound)) * self.interval.width

    def mse(self, variance: float, mean: float | None = None) -> float:
        """Return the mean squared error for data of this variance, both in squared units of the values.

        Where the error also depends on the mean of the data (a method that shrinks or samples, a plan that
        abstains) the mean that is worst for this variance is taken unless `mean` says which it is.
        """
        v = unit_variance(variance, self.interval)
        offset = 0.25 - v if mean is None else ((mean - self.interval.mid) / self.interval.width) ** 2
        errors = self.errors
        return (errors.spread * v + errors.pull * offset + errors.noise) * self.interval.width * self.interval.width

    def weights(self, epsilons: Any) -> NDArray[np.float64]:
        """Return the weight of each person of a sequence of ε; every ε must be a level of this plan."""
        asked = epsilon_array(epsilons)
        asked = round_down(asked) if self.levels.rounded else asked
        place = np.minimum(np.searchsorted(self.levels.epsilon, asked), len(self.levels) - 1)
        if not np.array_equal(self.levels.epsilon[place], asked):
            raise InputError("an epsilon is not among the levels of this plan; plan again with all people")
        return np.asarray(self.person_weight[place])

    def radius(self, level: float = 0.95, kind: IntervalKind = "guaranteed") -> float:
        """Return r: the unclamped estimate is within r of μ with probability at least `level`, in units of the values.

        "guaranteed" holds for every distribution on the interval and every n; "normal" is the
        narrower normal approximation at the worst-case variance and promises nothing for small n.
        """
        if not 0 < level < 1:
            raise InputError(f"the confidence level must be between 0 and 1 (got {level:g}); 0.95 is usual")
        if kind not in ("guaranteed", "normal"):
            raise InputError(f"the kind of an interval is 'guaranteed' or 'normal' (got {kind!r})")
        if self.abstains:
            return self.interval.width / 2
        errors = self.errors
        if kind == "normal":
            pull = 0.0 if self.keep is None else errors.pull  # variance where people are sampled, bias elsewhere
            variance = errors.noise + accuracy.worst_corner(errors.spread, pull, self.variance_bound)
            radius = accuracy.normal_radius(variance, level)
        else:
            radius = accuracy.guaranteed_radius(errors.ranges, errors.scales, level)
        radius += errors.bias + accuracy.rounding(self.total, len(self.noise) + 1)
        precision = math.ulp(max(map(abs, self.bounds)))  # the estimate and the ends of an interval are doubles
        return radius * self.interval.width + 2 * precision

    def frontier(self, tolerance: float = 0.01) -> float:
        """Return the smallest cap τ: giving everybody min(ε, τ) keeps the worst-case MSE within (1 + tolerance) times.

        How much more privacy can be advertised almost free. An abstaining plan uses nobody's data: 0.

        >>> round(plan({0.1: 700, float("inf"): 300}, bounds=(0, 1)).frontier(0.01), 3)
        0.175
        """
        if not tolerance > 0:
            raise InputError(f"the tolerance must be positive (got {tolerance:g}); 0.01 is one per cent")
        if self.abstains:
            return 0.0
        rule = find(self.method)

        def error(cap: float) -> float:
            capped = self.levels.capped(cap)
            return accuracy.objective(capped, rule.shape(capped, self.variance_bound), self.variance_bound)

        goal = error(math.inf) * (1 + tolerance)
        if rule.abstains and goal >= 0.25:  # the midpoint is as good
            return 0.0
        start = self._largest_spent()
        if rule.shape(self.levels, self.variance_bound).apart:  # a cap at a level merges groups: the error jumps there
            private = self.levels.epsilon[self.levels.epsilon > 0].tolist()
            start = next((level for level in private if level < math.inf and error(level) <= goal), start)
        return accuracy.least(lambda cap: error(cap) <= goal, start)

    def _largest_spent(self) -> float:
        spent = float(self.spent.max())
        return spent if math.isfinite(spent) else 1.0

    def __repr__(self) -> str:
        return (
            f"Plan(method={self.method!r}, n={self.n}, threshold={self.threshold}, "
            f"noise_scale={self.noise_scale:.6g}, worst_case_mse={self.worst_case_mse:.6g}, abstains={self.abstains})"
        )

    def __str__(self) -> str:
        return self.report()

    def report(self) -> str:
        """Return the plan as text."""
        from hetdp.report.text import plan_text

        return plan_text(self)

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as plain data, as JSON has it."""
        from hetdp.report.facts import plan_facts

        facts: dict[str, Any] = plan_facts(self)
        return facts

    def _repr_html_(self) -> str:
        from hetdp.report.text import plan_html

        return plan_html(self)


def plan(
    levels: Levels | Mapping[Any, int] | Any,
    *,
    bounds: Any,
    method: str = "adpm",
    variance: float | None = None,
) -> Plan:
    """Return what a release would do and cost, from the public levels alone.

    Parameters
    ----------
    levels
        `Levels`, a mapping {ε: people}, or a sequence with one ε a person.
    bounds
        The public interval of the values.
    method
        A name of `hetdp.methods()`.
    variance
        A publicly known bound on the variance of one value, in squared units of the values. Never take it
        from the data. Without it the largest possible variance (hi − lo)²/4 is assumed.

    Examples
    --------
    The paper's case (B): 700 people at ε = 0.1 and 300 public ones, on an interval of length 1. Theorem 1
    gives R/(4n[f + (1−f)R]) with R = 1 + 8/(0.1²·700).

    >>> p = plan({0.1: 700, float("inf"): 300}, bounds=(0, 1))
    >>> round(p.threshold, 6), round(p.worst_case_mse * 1e4, 6)
    (0.214286, 3.989362)
    """
    levels = Levels.given(levels)
    interval = Interval.of(bounds)
    bound = 0.25 if variance is None else unit_variance(variance, interval)
    if bound == 0:
        raise InputError("the bound on the variance must be positive; leave it out if none is known")
    rule = find(method)
    shape = rule.shape(levels, bound)
    drawn = _drawn(rule.name, levels, interval, shape, bound)
    if drawn is not None and not (rule.abstains and drawn.errors.worst(bound) > 0.25):
        return drawn
    nothing = np.zeros(len(levels), np.int64)
    return Plan(rule.name, levels, interval, nothing, (), shape.threshold, abstains=True, variance_bound=bound)


def _drawn(method: str, levels: Levels, interval: Interval, shape: Shape, bound: float) -> Plan | None:
    """Return the plan with its noise; None if nobody has weight or the noise could not be drawn."""
    if shape.kept:
        return _sampled(method, levels, interval, shape, bound)
    largest = float(shape.weight.max())
    if not 0 < largest < math.inf:
        return None
    units = lattice(shape.weight, math.ceil(float((levels.count * (shape.weight / largest)).sum())))
    least = shape.noise / largest * int(units.max())
    if shape.apart:
        scales, edges = scales_apart(units, levels.epsilon), list(range(len(levels) + 1))
    else:
        scales, edges = [scale_for(units, levels.epsilon)], [0, len(levels)]
    scales = [max(scale, least) for scale in scales]
    if max(scales) > LARGEST_SCALE:
        return None
    spans = zip(scales, pairwise(edges), strict=True)
    noise = [NoiseTerm(max(scale, SMALLEST_SCALE), first, last) for scale, (first, last) in spans if scale]
    return Plan(
        method,
        levels,
        interval,
        units,
        tuple(noise),
        shape.threshold,
        abstains=False,
        variance_bound=bound,
        shrink=shape.shrink,
    )


def _sampled(method: str, levels: Levels, interval: Interval, shape: Shape, bound: float) -> Plan | None:
    """Return the plan of a plain mean of people kept with the probabilities `shape.weight`."""
    units = lattice((shape.weight > 0).astype(np.float64), levels.active)
    scale = sampling_scale(units, levels.epsilon)
    if not units.any() or scale > LARGEST_SCALE:
        return None
    noise = (NoiseTerm(scale, 0, len(levels)),) if scale else ()
    keep = keep_for(units, levels.epsilon, noise)
    return Plan(method, levels, interval, units, noise, None, abstains=False, variance_bound=bound, keep=keep)


def unit_variance(variance: Any, interval: Interval) -> float:
    """Return a variance as it would be on an interval of length 1, where it is at most 1/4."""
    try:
        bound = math.nan if isinstance(variance, bool) or not isinstance(variance, numbers.Real) else float(variance)
    except OverflowError:
        bound = math.inf
    if not bound >= 0:
        raise InputError(f"a variance must be a number, 0 or more (got {variance!r}), in squared units of the values")
    return min(bound / interval.width / interval.width, 0.25)
