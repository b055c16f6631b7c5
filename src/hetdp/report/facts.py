"""Everything public about a plan or a release, computed once: JSON, text and HTML are made from these facts."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from hetdp.core.accuracy import condition, supposed
from hetdp.core.domain import GRID, jsonable
from hetdp.core.levels import Row
from hetdp.core.plan import Plan
from hetdp.estimators import METHODS
from hetdp.privacy.sampling import SamplingPlan
from hetdp.report import SCHEMA, Provenance, __version__
from hetdp.statistics.mean import ANSWERED, Ratio
from hetdp.theory.certificate import certificate

from . import drift

if TYPE_CHECKING:
    from hetdp.statistics.statistic import Answer

PROTECTED = (
    "Each person's value is protected: replacing it changes the probability of any result by at most a factor "
    "e^(ε spent). Who takes part is not protected."
)
STATED = (
    "The variance of a value is at most what was stated; if not, the error is larger. Privacy does not depend on it."
)
TOLERANCES = (0.01, 0.05, 0.1)
PLAIN = ("uniform", "proportional")
_MOST_BANDS = 12


@dataclass(frozen=True)
class Band:
    """One level, or several neighbouring ones where there are too many to show."""

    name: str
    epsilon: tuple[float, float]
    people: int
    spent: tuple[float, float]
    weight: float
    share: float

    @property
    def free(self) -> float:
        """The privacy that comes free to the person of this band who allowed most."""
        return self.epsilon[1] - self.spent[1] if self.spent[1] < math.inf else 0.0


@dataclass(frozen=True, eq=False)
class Facts:
    """The public facts about a plan that cost something to compute. `plan.facts` keeps them."""

    plan: Plan

    @cached_property
    def bands(self) -> list[Band]:
        """The rows of the table of tiers: every level, or at most twelve bands of them."""
        levels = self.plan.levels
        edges = list(range(len(levels) + 1))
        if len(levels) > _MOST_BANDS:
            people = np.cumsum(levels.count)
            shares = people[-1] * np.arange(1, _MOST_BANDS - 1) / (_MOST_BANDS - 2)
            special = np.searchsorted(levels.epsilon, [math.ulp(0), math.inf])  # never use me, public
            inner = np.searchsorted(people, shares) + 1
            edges = sorted({0, len(levels), *special.tolist(), *inner.tolist()})
        return [self._band(slice(a, b)) for a, b in pairwise(edges)]

    def _band(self, part: slice) -> Band:
        p = self.plan
        epsilon, count, spent = p.levels.epsilon[part], p.levels.count[part], p.spent_in_all[part]
        people = int(count.sum())
        share = float(np.sum(count * p.person_weight[part]))
        name = p.levels.names.get(float(epsilon[0]), "") if epsilon.size == 1 else ""
        ends = (float(epsilon[0]), float(epsilon[-1]))
        return Band(name, ends, people, (float(spent.min()), float(spent.max())), share / max(people, 1), share)

    @cached_property
    def even_spread_error(self) -> float | None:
        """The predicted error when values are spread evenly over the interval (variance (hi − lo)²/12).

        None of several numbers and of those who answered: only their worst case is known.
        """
        interval = self.plan.interval
        if not self.plan.statistic.one:
            return None
        return math.sqrt(self.plan.mse(interval.width * interval.width / 12, mean=interval.mid))

    @cached_property
    def half_range_error(self) -> float | None:
        """The predicted error when values are spread evenly over one half of the range; None of several numbers.

        Their mean is a quarter of the range from the middle: a method that draws answers to the middle is worse there.
        """
        interval = self.plan.interval
        if not self.plan.statistic.one:
            return None
        return math.sqrt(self.plan.mse(interval.width * interval.width / 48, interval.mid + interval.width / 4))

    @property
    def stated_deviation(self) -> float | None:
        """The bound on the standard deviation of a value that was stated by `variance=`, in its unit; None without."""
        p = self.plan
        stated = p.statistic.one and p.statistic.sums and p.variance_bound < p.statistic.variance
        return math.sqrt(p.variance_bound) * p.interval.width if stated else None

    @property
    def largest_bias(self) -> float:
        """How far the estimate can be off on average if ε tells nothing about the value: that of drawing to the middle.

        0 for most methods.
        """
        return self.plan.errors.most_bias * self.plan.span.width

    @cached_property
    def adpm(self) -> Plan | None:
        """The plan of adpm, to compare a method with that is biased; None beside one that is not."""
        p = self.plan
        if not self.largest_bias or p.abstains or not p.statistic.one:
            return None
        return p.again(method="adpm")

    @property
    def end_error(self) -> float:
        """The predicted error when all values lie at one end of the range."""
        return math.sqrt(self.plan.mse(0.0, self.plan.interval.hi))

    @cached_property
    def width(self) -> float | None:
        """Half the width of the guaranteed 95 % interval that is to be expected; None of several numbers."""
        return self.plan.width() if self.plan.statistic.one else None

    @cached_property
    def alternatives(self) -> dict[str, dict[str, float]]:
        """The worst-case error of the plain methods, in units of the values and as a multiple of this plan's."""
        p, found = self.plan, {}
        for name in PLAIN:
            if name != p.method:
                other = p.again(method=name).worst_case_error
                times = other / p.worst_case_error if p.worst_case_error else 1.0 if not other else math.inf
                found[name] = {"worst_case_error": other, "times": times}
        return found

    @cached_property
    def certificate(self) -> dict[str, Any] | None:
        """How far the plan's worst case is from the best possible; None if that is not known.

        It is known for the mean of the population and for what comes to the same, unless a bound on the variance was
        assumed or a drift stated.
        """
        p = self.plan
        if p.variance_bound < 0.25 or not certified(p):
            return None
        found = certificate(p.levels, bounds=p.interval)
        sentence = found.sentence(p.worst_case_mse)
        return {**found.to_dict(), "ratio": p.worst_case_mse / found.lower, "sentence": sentence}

    @cached_property
    def frontier(self) -> list[dict[str, Any]]:
        """What could be promised everyone for a little more error, and how many people allow more than that."""
        levels = self.plan.levels
        if self.plan.statistic.private_bounds:  # paid for already, by what everybody allowed
            return []
        caps = {tolerance: self.plan.frontier(tolerance) for tolerance in TOLERANCES}
        gain = {more: int(levels.count[levels.epsilon > cap].sum()) for more, cap in caps.items()}
        return [{"more_mse": more, "cap": cap, "people": gain[more]} for more, cap in caps.items()]

    @property
    def answered_errors(self) -> list[dict[str, float]] | None:
        """About which error to expect when everybody answers, four fifths and half of them; of such a mean alone."""
        asked = self.plan.statistic
        if not isinstance(asked, Ratio) or not asked.keeps_missing or self.plan.abstains:
            return None
        return [{"answered": share, "error": asked.error_answered(self.plan, share)} for share in ANSWERED]

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What the reader has to accept."""
        asked = self.plan.statistic
        clipped = (ends.sentence(drift.clipped_to(asked, ends)) for ends in asked.private_bounds)
        public, target = drift.assumed(self.plan)
        said = (public, PROTECTED, target, *clipped)
        stated = self.plan.statistic.one and self.plan.variance_bound < 0.25
        return (*said, STATED) if stated else said

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as plain data for JSON."""
        p = self.plan
        facts = {
            "schema": SCHEMA,
            "version": __version__,
            "statistic": p.statistic.name,
            "parameters": p.statistic.plain,
            "missing": p.statistic.counted,
            "predicted_if": supposed(p.statistic),
            "error_by_share_answered": self.answered_errors,
            "measure": "pure-epsilon",
            "method": p.method,
            "title": METHODS[p.method].title,
            "n": p.n,
            "bounds": p.bounds,
            "bounds_found_with_share": [
                ends.origin.plan.share for ends in p.statistic.private_bounds if not ends.charged
            ],
            "threshold": p.threshold,
            "share_of_epsilon": p.share,
            "target": p.target,
            "drift": p.drift,
            "bias_share": p.bias_share,
            "stated_deviation": self.stated_deviation,
            "abstains": p.abstains,
            "noiseless": p.noiseless,
            "error_unit": p.error_unit,
            "noise_scale": p.noise_scale,
            "worst_case_mse": p.worst_case_mse,
            "worst_case_error": p.worst_case_error,
            "even_spread_error": self.even_spread_error,
            "half_range_error": self.half_range_error,
            "adpm_half_range_error": None if self.adpm is None else self.adpm.facts.half_range_error,
            "largest_bias": self.largest_bias,
            "width": self.width,
            "learning": None if p.squares is None else _learning(p.squares),
            "tiers": [_tier(row) for row in p.table],
            "levels_rounded_down": p.levels.rounded,
            "alternatives": self.alternatives,
            "certificate": self.certificate,
            "frontier": self.frontier,
            "exact": {
                "grid": GRID,
                "weights": p.units.tolist(),
                "keep": p.keep.tolist() if isinstance(p, SamplingPlan) else None,
                "noise": [{"scale": t.scale.hex(), "first": t.first, "last": t.last} for t in p.noise],
                "shrink": p.shrink,
                "clamp": p.clamp,
            },
            "assumptions": self.assumptions,
            "warnings": [*drift.warnings(p), *drift.bounds_warnings(p)],
            "provenance": self.about.to_dict(),
        }
        return dict(jsonable(facts))

    @property
    def about(self) -> Provenance:
        """What a plan is about; nothing is released by it."""
        return Provenance(self.plan.statistic.name)


def _tier(row: Row) -> dict[str, Any]:
    facts = asdict(row)
    return {"name": facts.pop("name"), "people": facts.pop("count"), **facts, "free": row.free, "share": row.share}


def _learning(squares: Plan) -> dict[str, Any]:
    """Return the second plan, which learns the variance: its own weights, noise and spends; `tiers` have both."""
    noise = [{"scale": t.scale.hex(), "first": t.first, "last": t.last} for t in squares.noise]
    return {"spent": squares.spent.tolist(), "weights": squares.units.tolist(), "noise": noise}


def certified(p: Plan) -> bool:
    """Say whether there is a lower bound for what a plan releases: one mean or share of the distribution, no drift."""
    return p.statistic.one and p.target == "population" and not p.drift and p.share == 1


def release_facts(r: Answer, level: float) -> dict[str, Any]:
    """Return a release as plain data for JSON."""
    facts = r.plan.to_dict()
    notes, about = [*facts["assumptions"], *r.notes], r.provenance.to_dict()
    said: dict[str, Any] = {"condition": condition(r.plan), "assumptions": notes}
    said["warnings"] = [*drift.warnings(r.plan, drift.share_behind(r)), *drift.bounds_warnings(r.plan)]
    said["warnings"] += [sentence for _, sentence in drift.doubt_lines([r], level)]
    if r.plan.statistic.missing == "drop":  # whoever has no value is not among the people of this plan
        said["predicted_if"] = None
    if r.plan.squares is not None:  # the interval is known by now, and the variance in it
        said["width"] = None
    return {**jsonable(r.facts(level)), **facts, **said, "provenance": about}
