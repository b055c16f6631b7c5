"""Everything public about a plan or a release as plain data: what JSON shows and other reports are made from."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from hetdp.core.domain import GRID
from hetdp.core.plan import Plan, plan
from hetdp.estimators import find
from hetdp.files import jsonable
from hetdp.privacy.sampling import SamplingPlan
from hetdp.theory.certificate import certificate

if TYPE_CHECKING:
    from hetdp.privacy.release import Release

ASSUMPTIONS = (
    "ε is treated as public and must not depend on the value; so are the number of people, the bounds, "
    "the weights and the noise scale.",
    "Protected is each person's value: replacing it changes the probability of any result by at most a factor "
    "e^(ε spent). Who takes part is not protected.",
    "The target is the mean μ of the distribution from which these people are drawn independently, with values "
    "clamped to the bounds and missing ones counted as the midpoint; not the average of these particular rows.",
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


def bands(p: Plan) -> list[Band]:
    """Return the rows of the table of tiers: every level, or at most twelve bands of them."""
    size = len(p.levels)
    if size <= _MOST_BANDS:
        edges = list(range(size + 1))
    else:
        people = np.cumsum(p.levels.count)
        shares = people[-1] * np.arange(1, _MOST_BANDS - 1) / (_MOST_BANDS - 2)
        inner = np.searchsorted(people, shares) + 1
        special = [int(np.searchsorted(p.levels.epsilon, 0, "right")), int(np.searchsorted(p.levels.epsilon, np.inf))]
        edges = sorted({0, size, *special, *inner.tolist()})
    return [_band(p, slice(a, b)) for a, b in pairwise(edges)]


def _band(p: Plan, part: slice) -> Band:
    epsilon, count, spent = p.levels.epsilon[part], p.levels.count[part], p.spent[part]
    people = int(count.sum())
    share = float(np.sum(count * p.person_weight[part]))
    name = p.levels.names.get(float(epsilon[0]), "") if epsilon.size == 1 else ""
    ends = (float(epsilon[0]), float(epsilon[-1]))
    return Band(name, ends, people, (float(spent.min()), float(spent.max())), share / max(people, 1), share)


def alternatives(p: Plan) -> dict[str, dict[str, float]]:
    """Return the worst-case error of the plain methods, in units of the values and as a multiple of this plan's."""
    found = {}
    for name in PLAIN:
        if name != p.method:
            bound = p.variance_bound * p.interval.width * p.interval.width
            other = plan(p.levels, bounds=p.interval, method=name, variance=bound).worst_case_error
            times = other / p.worst_case_error if p.worst_case_error else math.inf
            found[name] = {"worst_case_error": other, "times": times}
    return found


def assumptions(p: Plan) -> tuple[str, ...]:
    """Return what the reader has to accept."""
    return ASSUMPTIONS if p.variance_bound == 0.25 else (*ASSUMPTIONS, STATED)


def certified(p: Plan) -> dict[str, Any] | None:
    """Return how far the plan's worst case is from the best possible; None if a bound on the variance was assumed."""
    if p.variance_bound < 0.25:
        return None
    found = certificate(p.levels, bounds=p.interval)
    return {**found.to_dict(), "ratio": p.worst_case_mse / found.lower, "sentence": found.sentence(p.worst_case_mse)}


def even_spread_error(p: Plan) -> float:
    """Return the predicted error when values are spread evenly over the interval (variance (hi − lo)²/12)."""
    return math.sqrt(p.mse(p.interval.width * p.interval.width / 12, mean=p.interval.mid))


def plan_facts(p: Plan) -> dict[str, Any]:
    """Return a plan as plain data for JSON."""
    facts: dict[str, Any] = jsonable(
        {
            "method": p.method,
            "title": find(p.method).title,
            "n": p.n,
            "bounds": list(p.bounds),
            "threshold": p.threshold,
            "abstains": p.abstains,
            "noiseless": p.noiseless,
            "noise_scale": p.noise_scale,
            "worst_case_mse": p.worst_case_mse,
            "worst_case_error": p.worst_case_error,
            "even_spread_error": even_spread_error(p),
            "tiers": [
                {
                    "name": row.name,
                    "epsilon": row.epsilon,
                    "people": row.count,
                    "spent": row.spent,
                    "free": row.free,
                    "weight": row.weight,
                    "share": row.share,
                }
                for row in p.table
            ],
            "levels_rounded_down": p.levels.rounded,
            "alternatives": alternatives(p),
            "certificate": certified(p),
            "frontier": [{"more_mse": tolerance, "cap": p.frontier(tolerance)} for tolerance in TOLERANCES],
            "exact": {
                "grid": GRID,
                "weights": p.units.tolist(),
                "keep": p.keep.tolist() if isinstance(p, SamplingPlan) else None,
                "noise": [{"scale": t.scale.hex(), "first": t.first, "last": t.last} for t in p.noise],
                "shrink": p.shrink,
            },
            "assumptions": list(assumptions(p)),
        }
    )
    return facts


def release_facts(r: Release, level: float = 0.95) -> dict[str, Any]:
    """Return a release as plain data for JSON."""
    return {
        "estimate": r.estimate,
        "unclamped": r.unclamped,
        "interval": {
            "level": level,
            "guaranteed": list(r.confidence_interval(level)),
            "normal": list(r.confidence_interval(level, "normal")),
        },
        **plan_facts(r.plan),
        "assumptions": [*assumptions(r.plan), *r.notes],
    }
