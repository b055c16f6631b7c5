"""What a report says about people whose ε goes with their value: sentences, and a warning where it matters."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hetdp.core.levels import Levels
from hetdp.core.plan import Plan, plan
from hetdp.privacy.exact import Box, Choice, Line
from hetdp.statistics.answer import label
from hetdp.statistics.difference import needs_independence

if TYPE_CHECKING:
    from hetdp.statistics.answer import Combined, Groups
    from hetdp.statistics.difference import Difference

    from .about import Lines, Parts

EXAMPLE = 0.1
"""The difference of means, as a share of the range, for which every report says what it would do."""

ENOUGH = 0.5
"""A bias that is a larger share of the promised error than this is warned of."""

INDEPENDENT = "ε is public and must not depend on the value."
DRIFTING = (
    "ε is public, and what somebody's ε tells about their value is not protected. It was stated, not measured, that "
    "the expected means at two levels of ε differ by at most {} of the range."
)
PUBLIC = " The number of people, the bounds, the weights and the noise scale are public too."
THESE = {
    "mean": "The estimate is of the mean of exactly these people",
    "proportion": "The estimate is of the share among exactly these people",
}
_DRAWN = ", whose values are taken to be independent"
_STATE = "state by how much (drift=, --drift)"
_GROUPS = "release by groups of a public column (by=, --by)"
_ALIKE = "count everybody alike (method uniform)"


# Of one plan


def assumed(p: Plan) -> tuple[str, str]:
    """Return what is assumed about ε, and whose number is estimated."""
    from .numbers import percent

    first = (DRIFTING.format(percent(p.drift)) if p.drift else INDEPENDENT) + PUBLIC
    if p.target == "population" or p.statistic.whole:
        return first, p.statistic.estimated
    _, _, rest = p.statistic.estimated.partition(". ")
    return first, f"{THESE.get(p.statistic.name, THESE['mean'])}{_DRAWN}. {rest}"


def target_line(p: Plan) -> Lines:
    """Return whose number is estimated, in a few words."""
    if p.target == "people":
        return [("Target", "exactly these people")]
    return [("Target", "the population from which these people are drawn, not these people themselves")]


def drift_lines(p: Plan) -> Lines:
    """Return how far the estimate would be off if ε goes with the value, and the warning if there is one."""
    if p.abstains:
        return []
    return [("Drift", sentence(p)), *(("Warning", said) for said in warnings(p))]


def sentence(p: Plan) -> str:
    """Return what a difference between the strictest and the most open people would do, or does as it was stated."""
    if p.bias_share < 1e-9:
        return "everybody counts alike, so it does not matter whether ε goes with the value"
    what, apart, off = _words(p, p.drift or EXAMPLE)
    if not p.drift:
        return f"if {what} differed from {apart}, {off}"
    included = ", which the error includes" if isinstance(p.statistic.geometry, Line) else ""
    return f"it was stated that {what} may differ from {apart}; {off.replace(' would be', ' is then')}{included}"


def _words(p: Plan, drift: float) -> tuple[str, str, str]:
    """Return what differs, from what and by how much, and what that does."""
    from .numbers import number, people, percent

    statistic, moved = p.statistic, drift * p.bias_share
    shape = statistic.geometry
    if isinstance(shape, Choice) and statistic.missed == "in rank":
        below = "the share of the strictest people below a value"
        return below, f"that of the most open by {_points(drift)}", f"its rank would be off by up to {_points(moved)}"
    if not statistic.sums:
        what, apart = "a share among the strictest people", f"that among the most open by {_points(drift)}"
        whole = f"the count would be off by up to {people(max(round(moved * p.n), 1))}"
        return what, apart, whole if statistic.whole else f"it would be off by up to {_points(moved)}"
    apart = "the most open people's by {}"
    if isinstance(shape, Box):
        off = f"the estimate would be off by up to {percent(moved)} of it"
        return "the strictest people's mean", apart.format(f"{percent(drift)} of the range"), off
    width, whole_width = p.interval.width, p.interval.width * (p.n if statistic.whole else 1)
    size = f"{number(drift * width, drift * width)} ({percent(drift)} of the range)"
    off = f"this estimate would be off by up to {number(moved * whole_width, moved * whole_width)}"
    if not isinstance(shape, Line):
        off += ", divided by the share of the people who are behind a mean"
    return "the strictest people's mean", apart.format(size), off


def _points(share: float) -> str:
    return f"{100 * share:.3g} percentage points"


def warnings(p: Plan) -> tuple[str, ...]:
    """Return a warning if a difference of a tenth of the range would alone bring half of the promised error."""
    if _times(p) <= ENOUGH:
        return ()
    if not p.statistic.takes_drift:
        return (_warning(p, f"{_GROUPS}, or {_ALIKE}"),)
    together = "add them up" if p.statistic.whole else "combine them with known shares (.combine)"
    return (_warning(p, f"{_STATE}, or {_GROUPS} and {together}"),)


def _warning(p: Plan, remedy: str) -> str:
    return (
        "the promised error holds only if ε tells nothing about the value: a difference as under Drift would alone "
        f"bring {_times(p):.1f} times that error. If people who choose a small ε may answer differently, {remedy}."
    )


def _times(p: Plan) -> float:
    """Return the bias of a difference of a tenth of the range over the promised error; 0 if a drift was stated."""
    if p.abstains or p.drift:
        return 0.0
    several = not isinstance(p.statistic.geometry, Line | Choice)
    promised = p.error_each if several else p.worst_case_error / p.span.width
    return EXAMPLE * p.bias_share / promised if promised else 0.0


# Of groups


def pooled(groups: Groups) -> Plan | None:
    """Return the plan of one release over the people of all groups; None if there is no such thing."""
    plans = [release.plan for release in groups.values()]
    first = plans[0]
    if len(plans) < 2 or not isinstance(first.statistic.geometry, Line) or first.statistic.whole:
        return None
    epsilon, count = (np.concatenate([getattr(p.levels, name) for p in plans]) for name in ("epsilon", "count"))
    levels = Levels.from_arrays(epsilon, count, rounded=any(p.levels.rounded for p in plans))
    variance = first.variance_bound * first.interval.width**2
    how = {"variance": variance, "drift": first.drift}
    return plan(levels, statistic=first.statistic, method=first.method, target=first.target, **how)


def bounds_warnings(p: Plan) -> list[str]:
    """Return what is warned of where bounds were found privately."""
    return list(dict.fromkeys(said for ends in p.statistic.private_bounds for said in ends.origin.warnings))


def group_warnings(groups: Groups) -> tuple[str, ...]:
    """Return warnings about bounds and single groups, and one if a release over all people would weigh them otherwise.

    The rule for that is that of `warnings`: means of groups that differ by a tenth of the range would alone move that
    one release by half of its promised error.
    """
    from .numbers import number, percent, shorten

    said = bounds_warnings(next(iter(groups.values())).plan)
    own = {name: _times(release.plan) for name, release in groups.items()}
    if max(own.values()) > ENOUGH:
        name = max(own, key=lambda group: own[group])
        more = sum(times > ENOUGH for times in own.values()) - 1
        others = f" and {more} more {'group' if more == 1 else 'groups'}" if more else ""
        worst = groups[name].plan
        said.append(
            f"in {shorten(label(name))!r}{others} {_warning(worst, _STATE if worst.statistic.takes_drift else _ALIKE)}"
        )
    whole = pooled(groups)
    if whole is None or whole.abstains:
        return tuple(said)
    parts = {
        name: (float(r.plan.levels.count @ whole.weights(r.plan.levels.epsilon)) / whole.shrink, r.plan.n / whole.n)
        for name, r in groups.items()
    }
    moved = sum(max(people - weight, 0.0) for weight, people in parts.values()) * whole.shrink
    if EXAMPLE * moved > ENOUGH * whole.worst_case_error / whole.span.width:
        name = max(parts, key=lambda group: parts[group][1] - parts[group][0])
        size, off = (number(x, x) for x in (EXAMPLE * whole.span.width, EXAMPLE * moved * whole.span.width))
        said.append(
            f"the groups chose privacy differently. One {whole.statistic.name} over all people, without groups, would "
            f"count {shorten(label(name))!r} for {parts[name][0]:.1%}, and it has {parts[name][1]:.1%} of the people: "
            f"if the groups differ by {size} ({percent(EXAMPLE)} of the range), it would be off by up to {off}. "
            "Combine the groups instead."
        )
    return tuple(said)


def group_lines(groups: Groups) -> Lines:
    """Return how far the groups would be off, what would be wrong with one number over all, and how to combine them."""
    from .numbers import shorten

    worst = max(groups, key=lambda name: groups[name].plan.bias_share)
    first = groups[worst].plan
    where = f"in the group {shorten(label(worst))!r}, and less in the others: " if first.bias_share >= 1e-9 else ""
    said = [] if first.abstains else [("Drift", f"{where}{sentence(first)}")]
    said += [("Warning", words) for words in groups.warnings]
    if len(groups) < 2 or not isinstance(first.statistic.geometry, Line) or first.statistic.whole:
        return said
    shares = ", ".join(f"{name!r}: …" for name in list(groups)[:2]) + (", …" if len(groups) > 2 else "")
    how = f"for one number about everybody, weight the groups by their known public shares: .combine({{{shares}}})"
    return [*said, ("Combine", how)]


def combined_parts(combined: Combined, level: float) -> Parts:
    """Return the report on groups that were combined: the number, then the groups behind it."""
    from .about import Grid
    from .numbers import number, percent, spent_epsilon
    from .text import assumed_lines, clipped, holds_for

    error, rows = combined.worst_case_error, []
    low, high = (number(x, error) for x in combined.confidence_interval(level))
    plans = [release.plan for release in combined.groups.values()]
    weakest = max(plans, key=needs_independence)
    estimate = f"{number(combined.estimate, error)}   {level:.0%} interval {low} to {high}, {holds_for(weakest)}"
    for name, release in combined.groups.items():
        p = release.plan
        own = p.worst_case_error if isinstance(p.statistic.geometry, Line) else error
        figure, *_ = release.figures(level)
        shown = number(figure.estimate, own) + (" (midpoint, no data used)" if p.abstains else "")
        between = f"{number(figure.low, own)} to {number(figure.high, own)}"
        share, spent = combined.shares[name], spent_epsilon(float(p.spent.max()))
        rows.append((label(name), f"{share:.1%}", f"{p.n:,}", shown, between, spent))
    first = next(iter(combined.groups.values())).plan
    width = first.interval.width
    size = f"root mean square ± {number(error, error)} ({percent(error / width)} of the range) in the worst case"
    said = dict.fromkeys(line for r in combined.groups.values() for line in (*r.plan.facts.assumptions, *r.notes))
    drift = first.drift or EXAMPLE
    off = drift * width * sum(share * combined.groups[name].plan.bias_share for name, share in combined.shares.items())
    apart = f"by {number(drift * width, drift * width)} ({percent(drift)} of the range)"
    inside = f"if in every group the strictest people's mean differed from the most open people's {apart}, this "
    inside += f"estimate would be off by up to {number(off, off)}"
    warned = [("Warning", words) for words in combined.groups.warnings]
    return [
        [*clipped(first), ("Estimate", estimate), ("", combined.meaning), ("Missing", str(first.statistic.counted))],
        Grid(("Group", "Share", "People", "Estimate", f"{level:.0%} interval", "Most spent"), rows),
        [("Error", size), ("Drift", inside), *warned, ("Together", combined.groups.composition)],
        assumed_lines(list(said)),
    ]


# Of a difference


def difference_lines(found: Difference, level: float) -> Lines:
    """Return whose numbers are compared, how far each would be off, and which drift would explain the difference."""
    from .numbers import percent

    said, drift = list[tuple[str, str]](), found.explained_by(level)
    for name, x in (("Later drift", found.later), ("Earlier drift", found.earlier)):
        if hasattr(x, "plan") and not x.plan.abstains:
            said.append((name, sentence(x.plan)))
    if drift is not None and drift > 1:
        said.append(("Explained", "no difference between the means at two levels of ε could explain this"))
    elif drift:
        apart = f"if the means at two levels of ε differ by {percent(drift)} of the range"
        said.append(("Explained", f"{apart}, this can be found although no value changed"))
    if (first := found.first) is not None:
        said += target_line(first)
    return said


def changed_weights(found: Difference) -> tuple[str, ...]:
    """Return a warning if levels of ε count so differently in the two that this may be all that changed."""
    if not found.weights_differ():
        return ()
    from .numbers import people

    named = [
        (when, sum(row.count for row in x.plan.table if (row.name or "").startswith(("exhausted", "frozen"))))
        for when, x in (("later", found.later), ("earlier", found.earlier))
        if hasattr(x, "plan")
    ]
    gone = "".join(
        f" In the {when} one {people(n)} had no budget left and count for nothing." for when, n in named if n
    )
    return (
        f"between the two answers {found.moved:.0%} of the people or of their weight moved to another level of ε, so "
        f"a difference can come from who counts how much, and not from the values.{gone} State by how much people who "
        "choose another ε may differ (drift=, --drift) in both, or compare groups with one ε each.",
    )
