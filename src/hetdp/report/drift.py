"""What a report says about people whose ε goes with their value: sentences, and a warning where it matters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hetdp.core.accuracy import counts_missing, needs_independence
from hetdp.core.levels import Levels
from hetdp.core.plan import Plan, plan
from hetdp.privacy.exact import Box, Choice, Line
from hetdp.statistics.answer import label
from hetdp.statistics.histogram import MeanByGroup
from hetdp.statistics.mean import Ratio

if TYPE_CHECKING:
    from hetdp.statistics import Statistic
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
    "the expected means at two levels of ε differ by at most {} of the range{}."
)
PUBLIC = " The number of people, the bounds, the weights and the noise scale are public too."
THESE = {
    "mean": "The estimate is of the mean of exactly these people",
    "proportion": "The estimate is of the share among exactly these people",
}
_DRAWN = ", whose values are taken to be independent"
_STATE = "state by how much (drift=, --drift)"
_GROUPS = "release by groups of a public column (by=, --by)"
_FINER = "release by smaller groups of public columns (by=, --by)"


# Of one plan


def assumed(p: Plan) -> tuple[str, str]:
    """Return what is assumed about ε, and whose number is estimated."""
    from .numbers import stated

    first = (
        DRIFTING.format(f"{stated(100 * p.drift)}%", _whose_means(p.statistic)) if p.drift else INDEPENDENT
    ) + PUBLIC
    if p.target == "population" or p.statistic.whole:
        return first, p.statistic.estimated
    _, _, rest = p.statistic.estimated.partition(". ")
    return first, f"{THESE.get(p.statistic.name, THESE['mean'])}{_DRAWN}. {rest}"


def _whose_means(statistic: Statistic) -> str:
    """Return in what means a stated drift is, where values may be missing."""
    if statistic.keeps_missing:
        return ", among those who answered"
    return ", a missing value counting as it does here" if counts_missing(statistic) else ""


def target_line(p: Plan) -> Lines:
    """Return whose number is estimated, in a few words."""
    if p.target == "people":
        return [("Target", "exactly these people")]
    return [("Target", "the population from which these people are drawn, not these people themselves")]


def drift_lines(p: Plan, share: float | None = None) -> Lines:
    """Return how far the estimate would be off if ε goes with the value, and the warning if there is one.

    `share` is the released share of people behind the number, where it is of those who answered.
    """
    if p.abstains:
        return []
    return [("Drift", sentence(p, share)), *(("Warning", said) for said in warnings(p, share))]


def share_behind(answer: Any) -> float | None:
    """Return the released share of people who are behind a number of those who answered; None of other answers."""
    share = getattr(answer, "share", None)
    return None if share is None else max(float(share), 0.05)


def sentence(p: Plan, share: float | None = None) -> str:
    """Return what a difference between the strictest and the most open people would do, or does as it was stated."""
    if p.bias_share < 1e-9:
        return "everybody counts alike, so it does not matter whether ε goes with the value"
    what, apart, off = _words(p, p.drift or EXAMPLE, share)
    if not p.drift:
        return f"if {what} differed from {apart}, {off}"
    included = ", which the error includes"  # whoever takes a drift has one number
    return f"it was stated that {what} may differ from {apart}; {off.replace(' would be', ' is then')}{included}"


def _words(p: Plan, drift: float, share: float | None) -> tuple[str, str, str]:
    """Return what differs, from what and by how much, and what that does.

    A number of those who answered is a ratio to their share r, and so is its bias: D·δ/r (docs/proofs/family.md). Where
    r is released it is divided by r; elsewhere the sentence says that it has to be.
    """
    from .numbers import number, people, percent, stated

    statistic, moved, divided = p.statistic, drift * p.bias_share, ""
    shape = statistic.geometry
    if share is not None:
        moved, divided = min(moved / share, drift), f", since {share:.0%} answered"
    else:
        divided = divided_by(statistic)
    if isinstance(shape, Choice) and statistic.missed == "in rank":
        below = "the share of the strictest people below a value"
        off = f"its rank would be off by up to {_points(moved)}{divided}"
        return below, f"that of the most open by {stated(100 * drift)} percentage points", off
    if not statistic.sums:
        what, apart = (
            "a share among the strictest people",
            f"that among the most open by {stated(100 * drift)} percentage points",
        )
        whole = f"the count would be off by up to {people(max(round(moved * p.n), 1))}"
        return what, apart, whole if statistic.whole else f"it would be off by up to {_points(moved)}{divided}"
    apart = "the most open people's by {}"
    if isinstance(shape, Box):
        name = "a mean" if statistic.name == "means" else "the mean"
        off = f"{name} would be off by up to {percent(moved)} of it{divided}"
        off += "" if statistic.name == "means" else "; the variance changes with the mean of the squares too"
        return "the strictest people's mean", apart.format(f"{stated(100 * drift)}% of the range"), off
    width, whole_width = p.interval.width, p.interval.width * (p.n if statistic.whole else 1)
    size = f"{stated(drift * width)} ({stated(100 * drift)}% of the range)"
    off = f"this estimate would be off by up to {number(moved * whole_width, moved * whole_width)}{divided}"
    return "the strictest people's mean", apart.format(size), off


def divided_by(statistic: Statistic) -> str:
    """Return by what an error or a bias is divided that is known for shares of all people, and not for their ratio."""
    if isinstance(statistic, MeanByGroup):
        who = "are in the group" + (" and answered" if statistic.keeps_missing else "")
    elif statistic.keeps_missing:
        who = "answered the column" if statistic.name == "means" else "answered"
    else:
        return ""
    return f", divided by the share of people who {who}"


def _points(share: float) -> str:
    return f"{100 * share:.3g} percentage points"


def warnings(p: Plan, share: float | None = None) -> tuple[str, ...]:
    """Return a warning if a difference of a tenth of the range would alone bring half of the promised error."""
    times = _times(p, share)
    if times <= ENOUGH:
        return ()
    if not p.statistic.takes_drift:
        return (_warning(times, " or ".join([_GROUPS, *_alike(p)])),)
    together = "add them up" if p.statistic.whole else "combine them with known shares (.combine)"
    return (_warning(times, f"{_STATE}, or {_GROUPS} and {together}"),)


def _alike(p: Plan) -> list[str]:
    """Return the advice to count everybody alike; none where some have ε = 0, who count for nothing in any method."""
    return [] if p.levels.epsilon[0] == 0 and p.levels.count[0] else ["count everybody alike (method uniform)"]


def _warning(times: float, remedy: str) -> str:
    return (
        "the promised error holds only if ε tells nothing about the value: a difference as under Drift would alone "
        f"bring {times:.1f} times that error. If people who choose a small ε may answer differently, {remedy}."
    )


def _times(p: Plan, share: float | None = None) -> float:
    """Return the bias of a difference of a tenth of the range over the promised error; 0 if a drift was stated.

    Of those who answered both are those of the released share, or if everybody answers.
    """
    if p.abstains or p.drift:
        return 0.0
    if isinstance(p.statistic, Ratio) and p.statistic.keeps_missing:
        part = share or 1.0
        promised = p.statistic.error_answered(p, part) / p.interval.width * part
    else:
        several = not isinstance(p.statistic.geometry, Line | Choice)
        promised = p.error_each if several else p.worst_case_error / p.span.width
    return EXAMPLE * p.bias_share / promised if promised else 0.0


# Of groups


def pooled(groups: Groups) -> Plan | None:
    """Return the plan of one release over the people of all groups; None if there is no such thing."""
    plans = [release.plan for release in groups.values()]
    first = plans[0]
    if len(plans) < 2 or first.error_unit != "values" or first.statistic.whole:
        return None
    epsilon, count = (np.concatenate([getattr(p.levels, name) for p in plans]) for name in ("epsilon", "count"))
    levels = Levels.from_arrays(epsilon, count, rounded=any(p.levels.rounded for p in plans))
    stated: dict[str, Any] = {"drift": first.drift}
    if isinstance(first.statistic.geometry, Line):
        stated["variance"] = first.variance_bound * first.interval.width**2
    return plan(levels, statistic=first.statistic, method=first.method, target=first.target, **stated)


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
    own = {name: _times(release.plan, share_behind(release)) for name, release in groups.items()}
    if max(own.values()) > ENOUGH:
        name = max(own, key=lambda group: own[group])
        more = sum(times > ENOUGH for times in own.values()) - 1
        others = f" and {more} more {'group' if more == 1 else 'groups'}" if more else ""
        worst = groups[name].plan
        remedy = _STATE if worst.statistic.takes_drift else "".join(_alike(worst)) or _FINER
        said.append(f"in {shorten(label(name))!r}{others} {_warning(own[name], remedy)}")
    whole = pooled(groups)
    if whole is None or whole.abstains:
        return tuple(said)
    parts = {
        name: (float(r.plan.levels.count @ whole.weights(r.plan.levels.epsilon)) / whole.shrink, r.plan.n / whole.n)
        for name, r in groups.items()
    }
    moved = sum(max(people - weight, 0.0) for weight, people in parts.values()) * whole.shrink
    width = whole.interval.width
    if EXAMPLE * moved > ENOUGH * whole.worst_case_error / width:
        name = max(parts, key=lambda group: parts[group][1] - parts[group][0])
        size, off = (number(x, x) for x in (EXAMPLE * width, EXAMPLE * moved * width))
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

    worst = max(groups, key=lambda name: groups[name].plan.bias_share / (share_behind(groups[name]) or 1.0))
    first = groups[worst].plan
    where = f"in the group {shorten(label(worst))!r}, and less in the others: " if first.bias_share >= 1e-9 else ""
    said = [] if first.abstains else [("Drift", f"{where}{sentence(first, share_behind(groups[worst]))}")]
    said += [("Warning", words) for words in groups.warnings]
    if len(groups) < 2 or first.error_unit != "values" or first.statistic.whole:
        return said
    shares = ", ".join(f"{name!r}: …" for name in list(groups)[:2]) + (", …" if len(groups) > 2 else "")
    how = f"for one number about everybody, weight the groups by their known public shares: .combine({{{shares}}})"
    return [*said, ("Combine", how)]


def combined_parts(combined: Combined, level: float) -> Parts:
    """Return the report on groups that were combined: the number, then the groups behind it."""
    from .about import Grid
    from .numbers import number, percent, spent_epsilon, stated
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
    off = drift * width * combined.drift_bias
    apart = f"by {stated(drift * width)} ({stated(100 * drift)}% of the range)"
    inside = f"if in every group the strictest people's mean differed from the most open people's {apart}, this "
    inside += f"estimate would be off by up to {number(off, off)}"
    inside += ", which the error includes" if first.drift else ""
    warned = [("Warning", words) for words in combined.warnings]
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
    for name, x in zip(found.names, (found.later, found.earlier), strict=True):
        if hasattr(x, "plan") and not x.plan.abstains:
            said.append((f"{name[0].upper()}{name[1:]} drift", sentence(x.plan, share_behind(x))))
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
