"""Release: the only place where noise is drawn and privacy is spent."""

from __future__ import annotations

import json
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._errors import InputError, PrivacyError
from ._exact import NoiseTerm, weigh
from ._exact_sampling import KEEP_ONE
from ._groupby import round_down, tabulate
from ._interval import GRID
from ._levels import Levels
from ._noise import coins, loss, noisy
from ._plan import IntervalKind, Plan
from ._tally import Tally

_ASKED = 8


@dataclass(frozen=True, eq=False)
class Release:
    """One private number and everything public about it. All of it may be published.

    Attributes
    ----------
    plan
        The plan that was carried out.
    unclamped
        The unbiased estimate; noise can carry it outside the interval.
    """

    plan: Plan
    unclamped: float

    @property
    def estimate(self) -> float:
        """The estimate, clamped to the interval: the number to publish."""
        return self.plan.interval.clamp(self.unclamped)

    def interval(self, level: float = 0.95, kind: IntervalKind = "guaranteed") -> tuple[float, float]:
        """Return an interval for the mean μ of the distribution; see `Plan.interval_radius` for its kinds."""
        radius = self.plan.interval_radius(level, kind)
        bounds = self.plan.interval
        return bounds.clamp(self.unclamped - radius), bounds.clamp(self.unclamped + radius)

    def report(self) -> str:
        """Return the release as text."""
        from ._report import release_text

        return release_text(self)

    def to_dict(self) -> dict[str, Any]:
        """Return the release as plain data."""
        from ._facts import release_facts

        return release_facts(self)

    def to_json(self) -> str:
        """Return the release as JSON; infinities are written "inf"."""
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False, allow_nan=False)

    def __repr__(self) -> str:
        return f"Release(estimate={self.estimate:.6g}, n={self.plan.n}, method={self.plan.method!r})"

    def __str__(self) -> str:
        return self.report()

    def _repr_html_(self) -> str:
        from ._report import release_html

        return release_html(self)


def release(tally: Tally, plan: Plan) -> Release:
    """Spend the privacy that the plan says and return the private mean.

    Claim: for any tally of the plan's people the result is ε-DP for everybody, at the spends in `plan.table`.

    Argument: the plan passes the exact check of `_exact`, whose claim this carries out: one sum of
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
    if tally.interval != plan.interval:
        raise InputError(f"the tally is on {tally.interval}, the plan on {plan.interval}; use the same bounds for both")
    if tally.levels != plan.levels:
        raise InputError("the plan was made for other people than the tally has; use plan(tally.levels, …)")
    if plan.keep is not None:
        raise InputError(
            f"{plan.method} keeps people one by one, which sums per level cannot tell; "
            f"give arrays: hetdp.mean(values, epsilon=…, bounds=…, method={plan.method!r})"
        )
    if plan.abstains:
        return Release(plan, plan.interval.mid)
    plan.check()
    for term in plan.noise:
        _sampler_agrees(plan, term)
    bare = np.ones(len(plan.levels), dtype=bool)  # public levels outside every noise term
    answer = 0
    for term in plan.noise:
        bare[term.first : term.last] = False
        answer += noisy(_floored_sum(tally, plan, slice(term.first, term.last)), term.scale)
    answer += _floored_sum(tally, plan, bare)
    share = Fraction(1, 2) + Fraction(plan.shrink) * (Fraction(answer, plan.total) - Fraction(1, 2))
    return Release(plan, plan.interval.at(share))


def release_records(values: NDArray[Any], epsilon: NDArray[np.float64], plan: Plan) -> Release:
    """Release by a method that keeps people one by one; the claim and its argument are in `_exact_sampling`.

    Parameters
    ----------
    values, epsilon
        One entry a person, as the array source gives them.
    plan
        A plan for these people with `keep`.
    """
    levels = round_down(epsilon) if plan.levels.rounded else epsilon
    if Levels.of(levels) != plan.levels:
        raise InputError("the plan was made for other people; plan again for these")
    if plan.abstains:
        return Release(plan, plan.interval.mid)
    if plan.keep is None:
        raise InputError(f"{plan.method} does not keep people one by one; use release(tally, plan)")
    plan.check()
    for term in plan.noise:
        _sampler_agrees(plan, term)
    kept = coins(plan.keep[np.searchsorted(plan.levels.epsilon, levels)])
    total = sum(tabulate(levels[kept], values[kept], plan.interval).total.tolist())
    unit = int(plan.units.max())
    answer = unit * (2 * total - int(np.count_nonzero(kept)) * GRID) // (2 * GRID)
    for term in plan.noise:
        answer = noisy(answer, term.scale)
    expected = Fraction(weigh(plan.keep, plan.levels.count), KEEP_ONE)
    return Release(plan, plan.interval.at(Fraction(1, 2) + answer / (unit * expected)))


def _floored_sum(tally: Tally, plan: Plan, part: slice | NDArray[np.bool_]) -> int:
    """T = ⌊Σ W·S / Q⌋ in Python's integers: a person moves it by at most their W."""
    units, sums = plan.units[part].tolist(), tally.table.total[part].tolist()
    return int(sum(w * s for w, s in zip(units, sums, strict=True)) // GRID)


def _sampler_agrees(plan: Plan, term: NoiseTerm) -> None:
    """Raise if OpenDP's privacy map claims more loss than somebody allows, at the levels that come nearest to it."""
    units, epsilon = plan.units[term.first : term.last], plan.levels.epsilon[term.first : term.last]
    surely = units > 0
    if plan.keep is not None:  # others spend less than the sampler's map knows
        surely &= plan.keep[term.first : term.last] == KEEP_ONE
    units, epsilon = units[surely], epsilon[surely]
    with np.errstate(over="ignore"):
        tightest = np.argsort(-(units / epsilon))[:_ASKED]
    for w, limit in zip(units[tightest].tolist(), epsilon[tightest].tolist(), strict=True):
        if loss(w, term.scale) > limit:
            raise PrivacyError("the noise sampler's own privacy map does not agree with the plan; nothing was released")
