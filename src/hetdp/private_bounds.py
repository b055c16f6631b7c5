"""Bounds nobody knows, in one call: `bounds_for`, and what `bounds="private"` does before a statistic is computed.

Privacy: the plan of the bounds has a share of everybody's ε and passes the exact check with it; `settle` adds up in
exact fractions what the bounds and everything that uses them spend, before each is drawn (`statistics.bounds`).
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from hetdp.core.accuracy import least
from hetdp.core.levels import MOST_PEOPLE, Levels
from hetdp.core.plan import FAMILY, Plan, plan
from hetdp.core.types import BoundsLike, EpsilonLike, SourceLike, documented_by
from hetdp.errors import InputError, unknown_option
from hetdp.estimators import METHODS
from hetdp.privacy.exact import check_together
from hetdp.privacy.release import release
from hetdp.sources import read
from hetdp.statistics import Statistic
from hetdp.statistics.bounds import MOST_SHARE, Bounds, Range, left_of
from hetdp.statistics.histogram import Celled
from hetdp.statistics.mean import SHARED
from hetdp.tally import Tally

Follows = Callable[[Levels, float], Plan]
"""From levels and a share of everybody's ε to the plan of what is computed with private bounds."""


@documented_by(read, plan)
def bounds_for(
    source: SourceLike,
    *,
    epsilon: EpsilonLike,
    outer: BoundsLike,
    value: str | None = None,
    share: float | None = None,
    method: str = "adpm",
    **options: Any,
) -> Bounds:
    """Return bounds for the values of a column, found privately within wide public ones.

    They are made of two private quantiles and spend a share of everybody's ε. Pass the object itself on, as in
    `mean(…, bounds=found)`: what uses it is planned with the share that is left. A pair (found.lower, found.upper)
    would forget what was spent. What is computed is then about values clipped to the bounds.

    With too few people, or too little ε, nothing is spent and an error says what would be enough; this rule is public.

    Parameters
    ----------
    source, value, epsilon
        As for `read`.
    outer
        Wide public bounds (lo, hi) that surely hold every value, as (0, 10**9) for incomes. Never take them from data.
    share
        The share of everybody's ε to spend. Unless given, the smallest that is enough, at most 0.3.
    method
        As for `plan`.
    missing
        "drop" if what uses the bounds says missing="drop"; values that are missing change no bounds otherwise.
    person, rows, public_rows, tiers, query, delimiter, decimal, thousands
        As for `read`.

    Returns
    -------
    Bounds
        What was found, `lower` and `upper`, and the share of ε that is left, to be passed on as it is.

    Examples
    --------
    >>> import hetdp
    >>> incomes = [18_000, 31_000, 52_500, 77_000] * 2500
    >>> found = hetdp.bounds_for(incomes, epsilon=[0.1, 1.0] * 5000, outer=(0, 10**9))
    >>> 0 <= found.lower < found.upper <= 10**9, found.plan.share < 0.06
    (True, True)
    >>> result = hetdp.mean(incomes, epsilon=[0.1, 1.0] * 5000, bounds=found)
    >>> result.plan.share == found.share_left
    True
    """
    if options.get("by") is not None:
        raise InputError(
            "bounds are found for all people together; leave out by=, and give what is found to mean(by=…)"
        )
    if options.keys() - inspect.signature(bounds_for).parameters:
        raise unknown_option("hetdp.bounds_for", options, inspect.signature(bounds_for).parameters)
    people = read(source, statistic=Range(outer, value=value), epsilon=epsilon, **options)
    return found_in(people, share, method)


_DROP = inspect.Parameter("missing", inspect.Parameter.KEYWORD_ONLY, default=None, annotation='Literal["drop"] | None')
_READ = ("person", "rows", "public_rows", "tiers", "query", "delimiter", "decimal", "thousands")
*_OWN, _ = inspect.signature(bounds_for).parameters.values()  # without **options
_TAKEN = [*_OWN, _DROP, *(inspect.signature(read).parameters[n] for n in _READ)]
bounds_for.__signature__ = inspect.Signature(_TAKEN, return_annotation="Bounds")  # type: ignore[attr-defined]


def found_in(people: Tally, share: float | None, method: str = "adpm", then: Follows | None = None) -> Bounds:
    """Return the private bounds of a tally for a `Range`.

    If it is known what follows, `then` plans it for a share of ε: with the outer bounds, since only its costs matter,
    which the width does not change. That both together respect everybody is then seen before anything is drawn.
    """
    asked: Range = people.statistic  # type: ignore[assignment]  # the caller has read it so
    planned = _plan_of_bounds(people.levels, asked, share, method)
    if then is not None:
        follows = then(people.levels, left_of([planned.share]))
        check_together([*planned.parts, *follows.parts], people.levels.epsilon)
    return release(people, planned)  # type: ignore[return-value]


def _plan_of_bounds(levels: Levels, asked: Range, share: float | None, method: str) -> Plan:
    """Return the plan of private bounds, with the smallest share that is enough; refuse if none is, by a public rule.

    A larger share has smaller noise, so thousandths are halved until the smallest one is left.
    """
    asked.interval.ordinary()
    if method not in FAMILY:
        raise InputError(f"private bounds take one of the methods {', '.join(FAMILY)} (got {method!r})")
    if share is not None and not (isinstance(share, (int, float)) and 0 < share < 1):
        raise InputError(f"the share of ε for private bounds must be between 0 and 1 (got {share!r}); 0.1 is usual")

    def enough(part: float, people: Levels = levels) -> bool:
        made = plan(people, statistic=asked, method=method, share=part)
        return not (made.abstains or asked.useless(made))

    most = MOST_SHARE if share is None else float(share)
    if not enough(most):
        raise InputError(_refusal(levels, most, lambda people: enough(most, people)))
    if share is None:
        low, high = 0, round(1000 * MOST_SHARE)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if enough(middle / 1000) else (middle, high)
        most = high / 1000
    return plan(levels, statistic=asked, method=method, share=most)


def _refusal(levels: Levels, share: float, enough: Callable[[Levels], bool]) -> str:
    """Return why there are no private bounds, and what would be enough; all of it is public."""
    if not levels.active:
        return "everybody has ε = 0, so no bounds can be found from their values; give bounds=(lo, hi)"
    remedies = []
    if enough(_times(levels, people=_FAR)):
        more = least(lambda times: enough(_times(levels, people=times)), 2.0)
        remedies.append(f"{_times(levels, people=more).n:,} people at this mix of ε")  # whole people at each level
    if enough(_times(levels, epsilon=_FAR)):
        stronger = least(lambda times: enough(_times(levels, epsilon=times)), 2.0)
        remedies.append(f"{math.ceil(1000 * stronger) / 1000:,.6g} times everybody's ε")
    remedy = f"Enough would be {' or '.join(remedies)}; or give" if remedies else "Give"
    return (
        f"there are too few people, or too little ε, for private bounds with {share:.3g} of it; nothing was spent. "
        f"{remedy} public bounds, (lo, hi)"
    )


_FAR = 1e9
"""So many times as many people, or as much ε, are looked at as a remedy."""


def _times(levels: Levels, *, people: float = 1.0, epsilon: float = 1.0) -> Levels:
    """Return so many times the people, or the same people with so many times their ε."""
    count = np.minimum(np.ceil(levels.count * people), MOST_PEOPLE // len(levels)).astype(np.int64)
    largest = np.where(np.isinf(levels.epsilon), np.inf, 1e300)  # who is not public does not become it
    return Levels.from_arrays(np.minimum(levels.epsilon * epsilon, largest), count)


def bounds_given(
    source: Any, bounds: Any, wanted: Mapping[str, Any], where: Mapping[str, Any], made: Callable[[Any], Statistic]
) -> Any:
    """Return bounds as they were given, or find them first if they are "private".

    Everything that can be wrong with what follows is seen first, on the outer bounds, so that nothing is spent in vain.

    Parameters
    ----------
    wanted
        The options `outer` and `bounds_share`.
    where
        All other options of the statistic.
    made
        From bounds to the statistic that will use them.
    """
    outer, share = wanted["outer"], wanted["bounds_share"]
    if not isinstance(bounds, str) or bounds != "private":
        if outer is not None or share is not None:
            raise InputError('outer= and bounds_share= go with bounds="private": then bounds are found within outer')
        return bounds
    if hasattr(source, "__next__"):
        raise InputError("private bounds read the source twice, and an iterator can be read once; give a list or table")
    if outer is None:
        raise InputError('bounds="private" needs wide public bounds that surely hold: outer=(lo, hi)')
    if where.get("by") is not None:
        raise InputError("find the bounds of all people first: found = hetdp.bounds_for(…), then by=…, bounds=found")
    if where.get("rows") == "average":
        raise InputError("private bounds need one row per person, not rows='average'; or give public bounds=(lo, hi)")
    if not isinstance(where["value"], (str, type(None))):
        raise InputError("private bounds are for one column; find those of several with hetdp.bounds_for, one by one")
    how = {name: where[name] for name in ("method", "variance", "drift", "target") if name in where}
    then = follows(made, outer, **how)
    reads = {name: option for name, option in where.items() if name not in _NOT_READ}
    reads["missing"] = "drop" if where.get("missing") == "drop" else None  # then there are as many people in both
    return found_in(read(source, statistic=Range(outer), **reads), share, then=then)


def follows(
    made: Callable[[Any], Statistic], outer: Any, method: str = "adpm", variance: Any = None, **how: Any
) -> Follows:
    """Return how a statistic will be planned that uses private bounds; refuse one that cannot use them."""
    asked = made(outer)
    if isinstance(asked, Celled):
        raise InputError(f"the bins of a {asked.name} are public; give bounds=(lo, hi), or edges=[…]")
    if METHODS[method].needs_records:
        raise InputError(f"{method} keeps people one by one and cannot use private bounds; choose another method")
    if variance == "learn":
        raise InputError(SHARED)
    how |= {"method": method, "variance": variance}
    return lambda levels, share: plan(levels, statistic=asked, share=share, **how)


_NOT_READ = ("method", "variance", "drift", "target", "groups", "by", "public_columns")
"""Options that say what is computed, not what is read."""
