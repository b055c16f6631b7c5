"""Groups put together with known shares: post-stratification."""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from hetdp.core.domain import Interval, jsonable
from hetdp.errors import InputError
from hetdp.privacy.exact import Line
from hetdp.report.about import Reported

from .statistic import Release

if TYPE_CHECKING:
    from hetdp.core.accuracy import IntervalKind
    from hetdp.report.text import Parts

    from .answer import Group, Groups


@dataclass(frozen=True, eq=False, repr=False)
class Combined(Reported):
    """Σ π·m over groups: the private mean m of each, weighted by the known share π of its people in the population.

    Nothing more is spent: it is computed from what was released.

    Attributes
    ----------
    groups
        The releases of the groups.
    shares
        The share of each group; they add up to 1.
    """

    groups: Groups
    shares: Mapping[Group, float]

    meaning = "the means of the groups, weighted by shares that were stated; nothing more is spent"

    @property
    def _parts(self) -> list[tuple[float, Any]]:
        return [(self.shares[name], release) for name, release in self.groups.items()]

    @property
    def _of_answers(self) -> bool:
        """Whether the groups have means of those who answered."""
        return not isinstance(self._parts[0][1], Release)

    @property
    def unclamped(self) -> float:
        """The estimate before it is clamped to the interval: noise can carry it outside. A ratio is taken as it is."""
        return math.fsum(share * getattr(release, "unclamped", release.estimate) for share, release in self._parts)

    @property
    def estimate(self) -> float:
        """The estimate, clamped to the interval: the number to publish."""
        return float(self._parts[0][1].plan.interval.clamp(self.unclamped))

    @cached_property
    def worst_case_error(self) -> float:
        """The root of the worst-case mean squared error, in units of the values.

        The errors of groups are independent, so only their biases b add up: Σπ²·MSE + (Σπ·b)² − Σ(π·b)² is not
        below it.
        """
        squares = bias = own = 0.0
        if self._of_answers:
            errors = [(share, r.plan.statistic.error_answered(r.plan, max(r.share, 0.05))) for share, r in self._parts]
            return math.sqrt(math.fsum((share * error) ** 2 for share, error in errors))
        for share, release in self._parts:
            errors = release.plan.errors
            largest = share * (errors.most_bias + errors.drift * errors.shift)
            squares += share * share * errors.worst(release.plan.variance_bound)
            bias, own = bias + largest, own + largest * largest
        return float(math.sqrt(squares + max(bias * bias - own, 0.0)) * self._parts[0][1].plan.span.width)

    def radius(self, level: float = 0.95, kind: IntervalKind = "guaranteed") -> float:
        """Return r: the unclamped estimate is within r of Σ π·μ with probability at least `level`.

        Claim: "guaranteed" holds for every distribution in every group.

        Argument: people are in one group each, and every group has its own noise, so the estimates of the groups are
        independent. E exp(λ·Σ π·(m − E m)) is then the product over the groups of what it is for one with weights π·w
        and noise scales π·η: by Hoeffding's lemma at most exp(λ²·π²·Σw²/8)·Π E exp(λ·π·noise). So the bound of
        `core.intervals.hoeffding` holds with Σ π²·Σw² and all scales π·η together. The biases and the rounding of
        the groups add up with their shares. A clamp cuts off one tail, which only helps, and lifts the other to a point
        that no data lie beyond: `clamped_log_mgf` is the factor of such a noise.

        "normal" takes the variances of the groups together and promises nothing for small groups.
        """
        from hetdp.core.accuracy import rounding, worst_corner
        from hetdp.core.intervals import clamped_log_mgf, hoeffding, log_laplace

        if not 0 < level < 1:
            raise InputError(f"the confidence level must be between 0 and 1 (got {level:g}); 0.95 is usual")
        if kind not in ("guaranteed", "normal"):
            raise InputError(f"the kind of an interval is 'guaranteed' or 'normal' (got {kind!r})")
        from statistics import NormalDist

        ranges = variance = fixed = 0.0
        scales: list[float] = []
        clamped: list[float] = []
        for share, release in self._parts:
            plan, errors = release.plan, release.plan.errors
            ranges += share * share * errors.ranges
            spread = worst_corner(errors.spread, errors.pull - (2 * errors.bias) ** 2, plan.variance_bound)
            variance += share * share * (errors.noise + max(spread, 0.0))
            (scales if errors.clamp is None else clamped).extend(share * scale for scale in errors.scales)
            slack = 0.0 if plan.abstains else rounding(plan.total, 2 * len(plan.noise) + 1)  # the noise is discrete
            fixed += share * (errors.bias + errors.drift * errors.shift + slack)
        if kind == "guaranteed":
            most = (1 - 1e-9) / max(scales + clamped) if scales + clamped else math.inf

            def log_noise(lam: float) -> float:
                return log_laplace(lam, scales) + sum(clamped_log_mgf(lam * eta) for eta in clamped)

            found = hoeffding(ranges, log_noise, most, (1 - level) / 2)
        else:
            found = NormalDist().inv_cdf(0.5 + level / 2) * math.sqrt(variance)
        span: Interval = self._parts[0][1].plan.span
        return (found + fixed) * span.width + 2 * (len(self.shares) + 1) * math.ulp(max(abs(span.lo), abs(span.hi)))

    def confidence_interval(self, level: float = 0.95, kind: IntervalKind = "guaranteed") -> tuple[float, float]:
        """Return an interval for Σ π·μ; see `radius`.

        Means of those who answered have intervals that are not symmetric. Each is taken at a level at which all of them
        hold at once, and their ends are added up with the shares.
        """
        if self._of_answers:
            each = 1 - (1 - level) / len(self.shares)
            ends = [(share, release.confidence_interval(each)) for share, release in self._parts]
            low, high = (math.fsum(share * pair[i] for share, pair in ends) for i in (0, 1))
            return low, high
        radius, span = self.radius(level, kind), self._parts[0][1].plan.span
        return span.clamp(self.unclamped - radius), span.clamp(self.unclamped + radius)

    def to_dict(self, level: float = 0.95) -> dict[str, Any]:
        """Return the number, its intervals, the shares and the groups as plain data."""
        from .answer import label  # it builds on this module
        from .difference import CONDITION, needs_independence

        interval = {"level": level, "guaranteed": list(self.confidence_interval(level))}
        if not self._of_answers:
            interval["normal"] = list(self.confidence_interval(level, "normal"))
        facts = {
            "estimate": self.estimate,
            "unclamped": self.unclamped,
            "interval": interval,
            "condition": CONDITION if any(needs_independence(r.plan) for _, r in self._parts) else None,
            "worst_case_error": self.worst_case_error,
            "shares": {label(group): share for group, share in self.shares.items()},
            "meaning": self.meaning,
        }
        return {**jsonable(facts), **self.groups.to_dict(level)}

    def parts(self, level: float) -> Parts:
        """Return the report as its parts."""
        from hetdp.report.drift import combined_parts

        return combined_parts(self, level)

    def __float__(self) -> float:
        return self.estimate

    def __format__(self, spec: str) -> str:
        return format(self.estimate, spec) if spec else str(self)

    def __repr__(self) -> str:
        return f"Combined(estimate={self.estimate:.6g}, groups={len(self.shares)})"


def combined(groups: Groups, shares: Mapping[Any, Any]) -> Combined:
    """Return the groups put together; raise unless there is a positive share for every group and for no other."""
    first = next(iter(groups.values())).plan.statistic
    answered = hasattr(first, "error_answered") and first.keeps_missing
    if not (isinstance(first.geometry, Line) or answered) or first.whole:
        raise InputError(f"only means and proportions of groups can be combined, not a {first.name}")
    if not isinstance(shares, Mapping) or shares.keys() != groups.keys():
        named = ", ".join(map(repr, groups))
        raise InputError(f"combine needs the share of every group and of no other: {{group: share}} for {named}")
    parts: dict[Group, float] = {}
    for name in groups:
        share = shares[name]
        if isinstance(share, bool) or not isinstance(share, numbers.Real) or not 0 < float(share) < math.inf:
            raise InputError(f"the share of a group must be a positive number (got {share!r} for {name!r})")
        parts[name] = float(share)
    largest = max(parts.values())
    whole = math.fsum(part / largest for part in parts.values())
    return Combined(groups, {name: part / largest / whole for name, part in parts.items()})
