"""Release: the only place where noise is drawn and privacy is spent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hetdp.core.accuracy import IntervalKind
from hetdp.core.domain import GRID
from hetdp.core.levels import Levels, round_down
from hetdp.core.plan import Plan
from hetdp.errors import InputError, PrivacyError
from hetdp.report.facts import release_facts
from hetdp.report.text import Parts, Reported, group_parts, release_parts
from hetdp.tally.tally import Tally

from .exact import NoiseTerm, weigh
from .noise import coins, loss, noisy
from .sampling import KEEP_ONE, SamplingPlan

_ASKED = 8
CHECKED = (
    "Each person is in one group, so their value enters one of these means only (parallel composition): the whole "
    "table protects everybody at their own ε. Who is in which group is public."
)
ASSUMED = (
    "Assumed: every row is another person, so that a value enters one of these means only. It was not checked, because "
    "no column of ids was named: somebody with rows in several groups spends the sum over them. Who is in which group "
    "is public."
)
"""What a table of groups promises as a whole: with a column of ids, and without."""


@dataclass(frozen=True, eq=False)
class Release(Reported):
    """One private number and everything public about it. All of it may be published.

    Attributes
    ----------
    plan
        The plan that was carried out.
    unclamped
        The unbiased estimate; noise can carry it outside the interval.
    notes
        What is assumed about the people behind it, in sentences.
    """

    plan: Plan
    unclamped: float
    notes: tuple[str, ...] = ()

    @property
    def estimate(self) -> float:
        """The estimate, clamped to the interval: the number to publish."""
        return self.plan.interval.clamp(self.unclamped)

    def confidence_interval(self, level: float = 0.95, kind: IntervalKind = "guaranteed") -> tuple[float, float]:
        """Return an interval for the mean μ of the distribution; see `Plan.radius` for its kinds."""
        radius = self.plan.radius(level, kind)
        bounds = self.plan.interval
        return bounds.clamp(self.unclamped - radius), bounds.clamp(self.unclamped + radius)

    def parts(self, level: float) -> Parts:
        """Return the report as its parts."""
        return release_parts(self, level)

    def to_dict(self, level: float = 0.95) -> dict[str, Any]:
        """Return the release as plain data."""
        return release_facts(self, level)

    def __float__(self) -> float:
        return self.estimate

    def __format__(self, spec: str) -> str:
        """Return the estimate in this format, as in f"{release:.2f}"; without one, the report."""
        return format(self.estimate, spec) if spec else str(self)

    def __repr__(self) -> str:
        return f"Release(estimate={self.estimate:.6g}, n={self.plan.n}, method={self.plan.method!r})"


class Groups(Reported, dict[str, Release]):
    """{group: release}, in the order of the groups. All of it may be published.

    Attributes
    ----------
    composition
        What is promised for the table as a whole, in a sentence; the loss is in one group only if ids were checked.
    """

    def __init__(self, releases: Mapping[str, Release], *, checked: bool) -> None:
        super().__init__(releases)
        self.composition = CHECKED if checked else ASSUMED

    def to_dict(self, level: float = 0.95) -> dict[str, Any]:
        """Return the releases as plain data."""
        groups = {name: release.to_dict(level) for name, release in self.items()}
        return {"groups": groups, "composition": self.composition}

    def parts(self, level: float) -> Parts:
        """Return a table of the groups, and what is promised for it as a whole."""
        return group_parts(self, level)

    def __repr__(self) -> str:
        return f"Groups({{{', '.join(f'{name!r}: {release!r}' for name, release in self.items())}}})"


def release(tally: Tally, plan: Plan) -> Release:
    """Spend the privacy that the plan says and return the private mean.

    Claim: for any tally of the plan's people the result is ε-DP for everybody, at the spends in `plan.table`.

    Argument: the plan passes the exact check of `privacy.exact`, whose claim this carries out: one sum of
    integers per noise term, floored to whole weight units, then the sampler. Before the private sums are
    touched the sampler's own privacy map must agree at the tightest levels. The estimate is computed from
    the noisy integers and public numbers alone. An abstaining plan never touches the sums.

    Parameters
    ----------
    tally
        From `hetdp.read`.
    plan
        From `hetdp.plan(tally.levels, bounds=…)`.
    """
    if not isinstance(tally, Tally) or not isinstance(plan, Plan):
        raise InputError("release takes a Tally from hetdp.read and a Plan from hetdp.plan, in this order")
    if tally.statistic != plan.statistic.name:
        raise InputError(f"the tally is for a {tally.statistic}, the plan for a {plan.statistic.name}; plan again")
    if tally.interval != plan.interval:
        raise InputError(f"the tally is on {tally.interval}, the plan on {plan.interval}; use the same bounds for both")
    if tally.levels != plan.levels:
        raise InputError("the plan was made for other people than the tally has; use plan(tally.levels, …)")
    if isinstance(plan, SamplingPlan):
        raise InputError(
            f"{plan.method} keeps people one by one, which sums per level cannot tell; "
            f"give arrays: hetdp.mean(values, epsilon=…, bounds=…, method={plan.method!r})"
        )
    if plan.abstains:
        return Release(plan, plan.interval.mid, tally.notes)
    plan.check()
    for term in plan.noise:
        _sampler_agrees(plan, term)
    bare = np.ones(len(plan.levels), dtype=bool)  # public levels outside every noise term
    answer = 0
    for term in plan.noise:
        bare[term.first : term.last] = False
        answer += noisy(floored_sum(tally, plan, slice(term.first, term.last)), term.scale)
    answer += floored_sum(tally, plan, bare)
    share = Fraction(1, 2) + Fraction(plan.shrink) * (Fraction(answer, plan.total) - Fraction(1, 2))
    return Release(plan, plan.statistic.read(share), tally.notes)


def release_records(values: NDArray[Any], epsilon: NDArray[np.float64], plan: Plan) -> Release:
    """Release by a method that keeps people one by one; the claim and its argument are in `privacy.sampling`.

    Parameters
    ----------
    values, epsilon
        One entry a person, as the array source gives them.
    plan
        A plan for these people that samples.
    """
    levels = round_down(epsilon) if plan.levels.rounded else epsilon
    if Levels.of(levels) != plan.levels:
        raise InputError("the plan was made for other people; plan again for these")
    if plan.abstains:
        return Release(plan, plan.interval.mid)
    if not isinstance(plan, SamplingPlan):
        raise InputError(f"{plan.method} does not keep people one by one; use release(tally, plan)")
    plan.check()
    for term in plan.noise:
        _sampler_agrees(plan, term)
    kept = coins(plan.keep[np.searchsorted(plan.levels.epsilon, levels)])
    total = int(plan.statistic.encode(values[kept]).sum(dtype=np.int64))
    unit = int(plan.units.max())
    answer = unit * (2 * total - int(np.count_nonzero(kept)) * GRID) // (2 * GRID)
    for term in plan.noise:
        answer = noisy(answer, term.scale)
    expected = Fraction(weigh(plan.keep, plan.levels.count), KEEP_ONE)
    return Release(plan, plan.statistic.read(Fraction(1, 2) + answer / (unit * expected)))


def floored_sum(tally: Tally, plan: Plan, part: slice | NDArray[np.bool_]) -> int:
    """T = ⌊Σ W·S / Q⌋, exact: a person moves it by at most their W.

    S is cut into four limbs of 16 bits. W ≤ 2³⁰ (`privacy.exact.lattice`), so the dot product of 2¹⁶ levels with one
    limb stays below 2⁶²; the limbs are put together in Python's integers.
    """
    units, sums, whole = plan.units[part], tally.table.total[part, 0], 0
    for i in range(0, units.size, 2**16):
        w, s = units[i : i + 2**16], sums[i : i + 2**16]
        whole += sum(int(np.dot(w, s >> bits & 0xFFFF)) << bits for bits in (0, 16, 32, 48))
    return whole // GRID


def _sampler_agrees(plan: Plan, term: NoiseTerm) -> None:
    """Raise if OpenDP's privacy map claims more loss than somebody allows, at the levels that come nearest to it."""
    costs, epsilon = plan.costs[term.first : term.last], plan.levels.epsilon[term.first : term.last]
    costs, epsilon = costs[costs > 0], epsilon[costs > 0]
    with np.errstate(over="ignore"):
        share = costs / epsilon
    tightest = np.argpartition(-share, _ASKED)[:_ASKED] if share.size > _ASKED else np.arange(share.size)
    for cost, limit in zip(costs[tightest].tolist(), epsilon[tightest].tolist(), strict=True):
        if loss(cost, term.scale) > limit:
            raise PrivacyError("the noise sampler's own privacy map does not agree with the plan; nothing was released")
