"""Plan: what would be released and what it costs, decided from public facts alone."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, Never

import numpy as np
from numpy.typing import NDArray

from hetdp.core.domain import to_json
from hetdp.errors import InputError, PrivacyError, either, unknown_option
from hetdp.estimators import METHODS, Shape
from hetdp.privacy.exact import (
    LARGEST_SCALE,
    SMALLEST_SCALE,
    Line,
    Mass,
    NoiseTerm,
    check,
    check_together,
    check_units,
    lattice,
    scale_for,
)
from hetdp.report import to_html, to_text
from hetdp.statistics import Statistic
from hetdp.statistics.bounds import share_left, spent_in_all
from hetdp.statistics.histogram import Shares
from hetdp.statistics.mean import LearnedMean, Mean, learned, ratio_interval, with_squares
from hetdp.statistics.statistic import UNIT

from .accuracy import (
    Errors,
    IntervalKind,
    Target,
    Unit,
    affine_errors,
    aimed_at,
    check_clamp,
    check_level,
    clamped_sum,
    error_unit,
    midpoint,
    radius,
    shape_bound,
    shaped,
    smallest_cap,
    unit_cost,
    unit_variance,
    unit_width,
)
from .domain import Interval
from .intervals import predicted_half_width, share_intervals
from .levels import Levels, Row, epsilon_array, shift
from .types import BoundsLike, LevelsOfPeople

if TYPE_CHECKING:
    from hetdp.report.facts import Facts

FAMILY = ("adpm", "uniform", "proportional", "threshold")
"""The methods that any statistic can have: one noise for all people, and nothing is drawn to the middle."""


@dataclass(frozen=True, eq=False)
class Plan:
    """Integer weights per level and the noise. No value was seen.

    A plan that exists has passed the exact check of `privacy.exact`: making one that would overspend raises.

    Attributes
    ----------
    method, levels, statistic
        The name of the estimator; the ε and how many people have each; what is released, with the public interval.
    units, noise
        One person's integer weight at each level; the noise terms, in weight units.
    threshold
        The saturation level t, in ε: people above it get the rest of their ε free. None if the method has none.
    abstains
        Whether the answer is the midpoint of the interval, with no data used and nothing spent.
    variance_bound
        The bound on the variance of one value, for an interval of length 1; 1/4 always holds.
    shrink
        The factor by which the estimate is drawn towards the midpoint, after the noise; 1 is unbiased.
    clamp
        The largest noisy sum that counts, in weight units; the smallest is `total` − clamp. None: every one counts.
    share
        The share of everybody's ε that this release may use, where several are made of the same people.
    drift
        How far the expected means of two levels may differ, as a share of the interval; 0: ε tells nothing about it.
    target
        Whose number is estimated: that of the "population" from which people are drawn, or of exactly these "people".
    squares
        The plan of a second release from what the first leaves over, which learns the variance; None without one.
    """

    method: str
    levels: Levels
    statistic: Statistic
    units: NDArray[np.int64]
    noise: tuple[NoiseTerm, ...]
    threshold: float | None
    abstains: bool
    variance_bound: float = 0.25
    shrink: float = 1.0
    share: float = 1.0
    drift: float = 0.0
    target: Target = "population"
    squares: Plan | None = None
    clamp: int | None = None

    def __post_init__(self) -> None:
        self.check()
        check_clamp(self)
        self.units.flags.writeable = False

    def check(self) -> None:
        """Raise unless nobody's ε is exceeded; run when a plan is made, and again when it is carried out."""
        if len(self.noise) > 1 and not isinstance(self.statistic.geometry, Line):  # a release would draw the first
            raise PrivacyError("several numbers have one noise for all people, not several; nothing was released")
        check_units(self.units, self.levels.count)
        if not self.abstains and not self.total:  # no plan that is made here is so; one that was stored may be forged
            raise PrivacyError("nobody has a weight in this plan; nothing was released")
        check(self.costs, self.levels.epsilon, self.levels.count, self.noise, self.share)
        if self.squares is not None:
            self.squares.check()
            check_together(self.parts, self.levels.epsilon)

    @property
    def parts(self) -> list[tuple[NDArray[np.int64], tuple[NoiseTerm, ...]]]:
        """Costs and noise of everything that the plan releases: itself, and what learns the variance."""
        return [(self.costs, self.noise), *([] if self.squares is None else self.squares.parts)]

    @property
    def costs(self) -> NDArray[np.int64]:
        """How far one person at each level can move the noisy sum: what the exact check is about."""
        return self.statistic.geometry.cost(self.units)

    @property
    def interval(self) -> Interval:
        """The public interval of the values."""
        return self.statistic.interval

    @cached_property
    def span(self) -> Interval:
        """The interval of the result: that of the values, n times as wide for a total over all people.

        Of several numbers it is [0, 1]: they are shares of the whole weight, which the answer reads in units.
        """
        if not self.statistic.one:
            return UNIT
        interval = self.statistic.interval
        return Interval(interval.lo * self.n, interval.hi * self.n) if self.statistic.whole else interval

    @property
    def n(self) -> int:
        """The number of people."""
        return self.levels.n

    @property
    def bounds(self) -> tuple[float, float]:
        """The interval as a pair."""
        return self.interval.lo, self.interval.hi

    @property
    def noiseless(self) -> bool:
        """Whether only public people have weight, so that no noise is needed."""
        return not self.abstains and not self.noise

    @cached_property
    def total(self) -> int:
        """The weight of all people together, in weight units."""
        return int(np.dot(self.units, self.levels.count))  # fits 62 bits: `check` has seen to it

    @cached_property
    def spent(self) -> NDArray[np.float64]:
        """What one person at each level spends on this release, W/scale, rounded up to the next double; never above ε.

        It includes what is spent on learning the variance: the exact sum is not above ε⁻.
        """
        spent = np.where(self.costs > 0, np.inf, 0.0)
        for term in self.noise:
            part = slice(term.first, term.last)
            spent[part] = np.where(self.costs[part] > 0, np.nextafter(self.costs[part] / term.scale, np.inf), 0.0)
        if self.squares is None:
            return spent
        both = np.nextafter(spent + self.squares.spent, np.inf)
        return np.minimum(np.where(self.squares.spent > 0, both, spent), self.levels.epsilon)

    @cached_property
    def spent_in_all(self) -> NDArray[np.float64]:
        """What one person at each level spends on this release and on private bounds that it uses; never above ε."""
        return np.array(spent_in_all([self])) if self.statistic.private_bounds else self.spent

    @cached_property
    def person_weight(self) -> NDArray[np.float64]:
        """The weight of one person at each level; over all people the weights sum to `shrink`."""
        return np.asarray(self.units * (self.shrink / max(self.total, 1)), dtype=np.float64)

    def weights(self, epsilons: Any) -> NDArray[np.float64]:
        """Return the weight of each person of a sequence of ε; every ε must be a level of this plan."""
        asked = self.levels.like(epsilon_array(epsilons))
        place = np.minimum(np.searchsorted(self.levels.epsilon, asked), len(self.levels) - 1)
        if not np.array_equal(self.levels.epsilon[place], asked):
            raise InputError("an epsilon is not among the levels of this plan; plan again with all people")
        return np.asarray(self.person_weight[place])

    @cached_property
    def table(self) -> tuple[Row, ...]:
        """One row per level: ε, people, one person's weight and what they really spend."""
        numbers = (self.levels.epsilon, self.levels.count, self.person_weight, self.spent_in_all)
        columns = [column.tolist() for column in numbers]
        return tuple(Row(e, c, w, s, self.levels.names.get(e)) for e, c, w, s in zip(*columns, strict=True))

    @cached_property
    def bias_share(self) -> float:
        """δ = Σ(1/n − w)₊: if the means of two levels of ε differ by at most x, the bias is at most δ·x.

        It is public and says how much of the weight is moved from some people to others, who allow more.

        >>> round(plan({0.1: 500, 1.0: 500}, bounds=(0, 1)).bias_share, 4)
        0.2222
        """
        return 0.0 if self.abstains else self.shrink * shift(self.levels.count, self.person_weight)

    @cached_property
    def errors(self) -> Errors:
        """What the mean squared error is made of, on an interval of length 1."""
        return midpoint(self.statistic.idle) if self.abstains else affine_errors(self)

    @property
    def error_unit(self) -> Unit:
        """The unit of errors and of `noise_scale`: "values", or a share of the "range", of "people", in "rank".

        One number is in units of the values. Of several numbers the error is that of all together, in shares.
        """
        return error_unit(self.statistic)

    @property
    def noise_scale(self) -> float:
        """The scale of the noise (of several: the root of their squares), in `error_unit`."""
        return math.hypot(*self.errors.scales) * unit_width(self)

    @property
    def worst_case_mse(self) -> float:
        """The mean squared error for the worst distribution on the interval, in squares of `error_unit`.

        Of those who answered it is about that if everybody does; `Ratio.error_answered` has it for fewer.
        Rounding values to the grid can add a bias of (hi − lo)/2²¹, which is left out: it matters beyond 10¹⁰ people.
        """
        return self.statistic.worst_square(self) * unit_width(self) * unit_width(self)

    @property
    def worst_case_error(self) -> float:
        """The root of `worst_case_mse`, in `error_unit`; it is finite also where the square is not."""
        return math.sqrt(self.statistic.worst_square(self)) * unit_width(self)

    @property
    def error_each(self) -> float:
        """The root of the worst-case mean squared error of one of several numbers, on an interval of length 1."""
        if self.abstains:
            return 1.0
        return math.sqrt(0.25 * self.errors.spread + self.errors.noise / self.statistic.geometry.numbers)

    def mse(self, variance: float, mean: float | None = None) -> float:
        """Return the mean squared error for data of this `variance`, both in squared units of the values.

        Where it also depends on the mean of the data (a method that shrinks or samples, a plan that abstains) the mean
        that is worst for this variance is taken unless `mean` says which it is. With a clamp the error is at most that.

        Returns
        -------
        float
        """
        ends, errors, v = self.interval, self.errors, unit_variance(variance, self.interval)
        found = errors.at_any_mean(v) if mean is None else errors.at(v, abs(mean - ends.mid) / ends.width)
        return found * self.span.width * self.span.width

    def error_at(self, drift: float) -> float:
        """Return the worst-case error if the means of two levels may differ by this share of the range."""
        return replace(self, drift=drift).worst_case_error

    def radius(self, level: float = 0.95, kind: IntervalKind = "guaranteed", *, together: int = 1) -> float:
        """Return r: the unclamped estimate is within r of μ with probability at least `level`, in units of the values.

        Of several numbers so many are within r `together`. The `kind` "guaranteed" holds for every distribution and n;
        "normal" is the narrower normal approximation at the worst-case variance and promises nothing for small n.

        Returns
        -------
        float
        """
        return radius(self, level, kind, together)

    def width(self, level: float = 0.95, variance: float | None = None) -> float:
        """Return half the width of a release's guaranteed interval where it is widest; known before any value is read.

        In units of the values if `error_unit` is "values", else as a share of the range (of a histogram: of people). Of
        several numbers it is that of one; intervals that hold all at once do so here as well. Of a variance it is that
        of the mean. Near an end of the range, or where the variance is learned, an interval is narrower; it is wider if
        not everybody answers, or is in the private group. Quantiles and modes have no such interval and are refused.
        `level` is its confidence; `variance` bounds that of one value, as if it had been stated for the plan.

        Returns
        -------
        float
        """
        check_level(level)
        stated = self
        if variance is not None:
            stated = replace(self, variance_bound=unit_variance(variance, self.interval), squares=None)
        if self.statistic.one:
            return predicted_half_width(stated, level) * self.span.width
        together = self.statistic.geometry.numbers
        if isinstance(self.statistic, Shares):
            low, high = share_intervals(self, (0.5,), level, together)[0]
            return (high - low) / 2
        if isinstance(self.statistic.geometry, Mass):  # means of those in a cell
            low, high = ratio_interval(self, 0.5, 0.5, level)
            return (high - low) / 2 * (unit_width(self) / self.interval.width)
        # of a ratio to a share near 1 it is widest where the upper end just reaches the range: from 1 − 3r to 1
        return min(self.radius(level, together=together) * (1.5 if self.statistic.keeps_missing else 1.0), 0.5)

    def again(self, levels: Levels | None = None, **changes: Any) -> Plan:
        """Return the plan of the same question for other `levels`, or with `changes` such as another method."""
        how: dict[str, Any] = {"method": self.method, "drift": self.drift, "target": self.target, "share": self.share}
        if isinstance(self.statistic, LearnedMean):
            how["variance"] = "learn"
        elif self.statistic.one and self.variance_bound < self.statistic.variance:
            how["variance"] = self.variance_bound * self.interval.width * self.interval.width
        return plan(self.levels if levels is None else levels, statistic=self.statistic, **how | changes)

    def frontier(self, tolerance: float = 0.01) -> float:
        """Return the smallest cap τ: giving everybody min(ε, τ) keeps the worst-case MSE within (1 + tolerance) times.

        How much more privacy can be advertised almost free. An abstaining plan uses nobody's data: 0.

        >>> round(plan({0.1: 700, float("inf"): 300}, bounds=(0, 1)).frontier(0.01), 3)
        0.175
        """
        return smallest_cap(self, METHODS[self.method], tolerance)

    @cached_property
    def facts(self) -> Facts:
        """What reports say about this plan, computed once."""
        from hetdp.report.facts import Facts  # it builds on this module

        return Facts(self)

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as plain data, as JSON has it."""
        return self.facts.to_dict()

    def to_json(self) -> str:
        """Return the plan as JSON; infinities are written "inf"."""
        return to_json(self.to_dict())

    def report(self) -> str:
        """Return the plan as text."""
        from hetdp.report.text import plan_parts

        return to_text(plan_parts(self))

    def _repr_html_(self) -> str:
        from hetdp.report.text import plan_parts

        return to_html(plan_parts(self))

    __str__ = report

    def __repr__(self) -> str:
        return (
            f"Plan(method={self.method!r}, n={self.n}, threshold={self.threshold}, "
            f"noise_scale={self.noise_scale:.6g}, worst_case_mse={self.worst_case_mse:.6g}, abstains={self.abstains})"
        )


def plan(
    levels: Levels | LevelsOfPeople,
    *,
    bounds: BoundsLike | None = None,
    statistic: Statistic | None = None,
    method: str = "adpm",
    variance: float | Literal["learn"] | None = None,
    drift: float = 0.0,
    target: str | None = None,
    share: float = 1.0,
    **unknown: Never,
) -> Plan:
    """Return what a release would do and cost, from the public levels alone.

    Parameters
    ----------
    levels
        `Levels`, a mapping {ε: people}, or a sequence with one ε a person.
    bounds
        The public interval of the values; left out if `statistic` brings its own.
    statistic
        What is to be released; the mean on `bounds` of people without missing values unless said. For the mean of those
        who answered it is ``hetdp.ask.mean(bounds=…, missing="estimate")``, whose cap and error are other ones.
    method
        A name of `hetdp.methods()`.
    variance
        A publicly known bound on the variance of one value, in squared units of the values, never from the data; the
        largest possible variance (hi − lo)²/4 without it. For one number only. "learn": people above the cap spend some
        of what is left of their ε on a second release, from which the interval learns it; the estimate stays the same.
    drift
        How far the expected means of two levels of ε may differ, as a share of the range, from 0 to 1: say it if people
        who choose a small ε may answer differently. It is never taken from the data. The worst case then includes the
        bias, and adpm chooses its cap for that (`hetdp.estimators.adpm`); the weights of other methods stay.
    target
        Whose number is estimated: that of the "population" from which these people are drawn, or of exactly these
        "people". A sum or a count is of these people, all else of the population unless said.
    share
        The share of everybody's ε that this release may use; if the bounds were found privately, of what is left.

    Returns
    -------
    Plan

    Examples
    --------
    The paper's case (B): 700 people at ε = 0.1, 300 public ones. Theorem 1 is R/(4n[f + (1−f)R]), R = 1 + 8/(0.1²·700):

    >>> p = plan({0.1: 700, float("inf"): 300}, bounds=(0, 1))
    >>> round(p.threshold, 6), round(p.worst_case_mse * 1e4, 6)
    (0.214286, 3.989362)
    """
    if unknown:
        raise unknown_option("hetdp.plan", unknown, plan.__kwdefaults__ or ())
    levels = Levels.given(levels)
    if (bounds is None) == (statistic is None):
        raise either("a plan", bounds)
    statistic = statistic or Mean(Interval.of(bounds))
    if statistic.private_bounds:
        share = min(share, share_left([statistic]))
    if variance == "learn":
        if drift or target == "people":
            raise InputError("the variance is learned where ε tells nothing about the value, for the population")
        return with_squares(plan(levels, statistic=learned(statistic), method=method, share=share), drawn_plan)
    rule, one = METHODS[method], statistic.one
    if not one and (variance is not None or method not in FAMILY):
        what = "a bound on the variance" if variance is not None else f"the method {method}"
        name = f"{statistic.name} of those who answered" if statistic.keeps_missing else statistic.name
        rest = "; leave it out" if variance is not None else f"; use one of {', '.join(FAMILY)}"
        raise InputError(f"{what} is for means of everybody, not for a {name}{rest}")
    bound = statistic.variance if variance is None else unit_variance(variance, statistic.interval)
    if bound == 0:
        raise InputError("the bound on the variance must be positive; leave it out if none is known")
    aim = aimed_at(statistic, drift, target)
    how: dict[str, Any] = {"variance_bound": bound, "share": share, "drift": float(drift), "target": aim}
    wanted = shape_bound(statistic, bound, share)
    shape = shaped(rule, levels, wanted, drift * share, people=aim == "people", share=share)
    drawn = drawn_plan(rule.name, levels, statistic, shape, how)
    if drawn is not None and not (rule.abstains and statistic.useless(drawn)):
        return drawn
    return Plan(rule.name, levels, statistic, np.zeros_like(levels.count), (), shape.threshold, abstains=True, **how)


def drawn_plan(
    method: str, levels: Levels, statistic: Statistic, shape: Shape, how: Mapping[str, Any], rest: Any = None
) -> Plan | None:
    """Return the plan with its noise; None if nobody has weight or the noise could not be drawn.

    The noise is for all of ε, or for what is left of it, the `rest`.
    """
    share = how["share"]
    if shape.kept:
        if share != 1 or not statistic.sums or statistic.whole:
            raise InputError(f"{method} keeps people one by one; it has a mean of one column and no share of ε")
        from hetdp.privacy.sampling import sampling_plan  # it builds on this module

        return sampling_plan(method, levels, statistic, shape, how)
    largest = float(shape.weight.max())
    if not 0 < largest < math.inf:
        return None
    people = math.ceil(float((levels.count * (shape.weight / largest)).sum()))
    units = lattice(shape.weight, people, unit_cost(statistic))
    least = max(shape.noise / largest * int(units.max()), statistic.geometry.least)
    costs = statistic.geometry.cost(units)
    spans = list(pairwise(range(len(levels) + 1) if shape.apart else (0, len(levels))))
    allowed = levels.epsilon if rest is None else rest
    scales = [max(scale_for(costs[first:last], allowed[first:last], share), least) for first, last in spans]
    if max(scales) > LARGEST_SCALE:
        return None
    noise = tuple(NoiseTerm(max(s, SMALLEST_SCALE), *span) for s, span in zip(scales, spans, strict=True) if s)
    made = (method, levels, statistic, units, noise, shape.threshold)
    clamp = clamped_sum(shape, int(units @ levels.count), max(scales))
    return Plan(*made, abstains=False, shrink=shape.shrink, clamp=clamp, **how)
