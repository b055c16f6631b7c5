"""What a report says about people whose ε goes with their value: sentences, and a warning where it matters."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from hetdp.core.accuracy import condition, counts_missing
from hetdp.core.domain import WHY_UNREAD
from hetdp.core.levels import Levels
from hetdp.core.plan import Plan
from hetdp.estimators import METHODS
from hetdp.privacy.exact import Box, Choice, Line
from hetdp.statistics.answer import label
from hetdp.statistics.bounds import Range
from hetdp.statistics.histogram import MeanByGroup
from hetdp.statistics.mean import Ratio

from . import (
    Figure,
    Grid,
    Lines,
    Parts,
    between,
    level_words,
    number,
    people,
    percent,
    shorten,
    size,
    spent_epsilon,
    stated,
)

if TYPE_CHECKING:
    from hetdp.core.domain import Interval
    from hetdp.statistics import Statistic
    from hetdp.statistics.answer import Combined, Groups
    from hetdp.statistics.difference import Difference

_MOST_WORDS = 6

EXAMPLE = 0.1
"""The difference of means, as a share of the range, for which every report says what it would do."""

LEAST = 0.05
"""A share of people who answered below this one is mostly noise, and what is divided by it too."""

ENOUGH = 0.5
"""A bias that is a larger share of the promised error than this is warned of."""

UNREAD = f"hardly any cell could be read as a number. {WHY_UNREAD} hetdp check shows where"
AT_END = (
    "it is the end of the range by noise, or most values lie there or beyond: look at bounds and how cells are read"
)
SHARE_AT_END = "it is the end of the range by noise, or nobody, or everybody, has the value: look at how that is spelt"
SHARE_NEAR_END = "the interval includes {}: perhaps {} has the value, so look at how that is spelt"
SUM_NEAR_0 = (
    "the interval includes 0, which is the sum if hardly any cell could be read: look at how cells are read (hetdp "
    "check)"
)
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


def holds_for(*plans: Plan) -> str:
    """Return for what an interval of one or several plans holds; where levels weigh differently ε must tell nothing."""
    needs = next((said for p in plans if (said := condition(p))), None)
    stated = [p for p in plans if p.facts.stated_deviation is not None]
    if not stated:
        return "for any distribution" + (f" {needs}" if needs else "")
    least = min(stated, key=lambda p: float(p.facts.stated_deviation or 0.0))  # where several were stated
    return f"for any distribution whose standard deviation {of_stated(least)}" + (f", {needs}" if needs else "")


def of_stated(p: Plan) -> str:
    """Return what was stated about the standard deviation; a value that fills a gap is a value like any other."""
    filled = ", with missing values as they count here," if counts_missing(p.statistic) else ""
    return f"of a value{filled} is at most {float(f'{p.facts.stated_deviation:.4g}'):,.10g}"


def assumed(p: Plan) -> tuple[str, str]:
    """Return what is assumed about ε, and whose number is estimated."""
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
    return None if share is None else max(float(share), LEAST)


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
    statistic, moved, divided = p.statistic, drift * p.bias_share, ""
    shape = statistic.geometry
    if share is not None:
        behind = f"{share:.0%}" if share > LEAST else "hardly anybody"
        moved, divided = min(moved / share, drift), f", since {behind} answered"
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
        whole = f"the count would be off by up to {people(math.ceil(moved * p.n * (1 - 1e-9)))}"
        return what, apart, whole if statistic.whole else f"it would be off by up to {_points(moved)}{divided}"
    apart = "the most open people's by {}"
    if isinstance(shape, Box):
        name = "a mean" if statistic.name == "means" else "the mean"
        off = f"{name} would be off by up to {percent(moved)} of it{divided}"
        off += "" if statistic.name == "means" else "; the variance changes with the mean of the squares too"
        return "the strictest people's mean", apart.format(f"{stated(100 * drift)}% of the range"), off
    width, whole_width = p.interval.width, p.interval.width * (p.n if statistic.whole else 1)
    gap = f"{stated(drift * width)} ({stated(100 * drift)}% of the range)"
    off = f"this estimate would be off by up to {size(moved * whole_width)}{divided}"
    return "the strictest people's mean", apart.format(gap), off


def divided_by(statistic: Statistic) -> str:
    """Return by what an error or a bias is divided that is known for shares of all people, and not for their ratio."""
    if isinstance(statistic, MeanByGroup):
        who = "are in the group" + (" and answered" if statistic.keeps_missing else "")
    elif statistic.keeps_missing or (isinstance(statistic, Range) and statistic.missing != "drop"):
        who = "answered the column" if statistic.name == "means" else "answered"
    else:
        return ""
    return f", divided by the share of people who {who}"


def _points(share: float) -> str:
    points = 100 * share
    return f"{float(number(points, points / 10, 'up').replace(',', '')):g} percentage points"


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
    plans: list[Plan] = [release.plan for release in groups.values()]
    first = plans[0]
    if len(plans) < 2 or first.error_unit != "values" or first.statistic.whole:
        return None
    epsilon, count = (np.concatenate([getattr(p.levels, name) for p in plans]) for name in ("epsilon", "count"))
    levels = Levels.from_arrays(epsilon, count, rounded=any(p.levels.rounded for p in plans))
    return first.again(levels, share=1.0)


def read_as(p: Plan) -> Lines:
    """Return what is computed of which values, and how, for reports without a line on people and method."""
    asked, method = p.statistic, METHODS[p.method].title
    drawn = "" if p.shrink == 1 and p.clamp is None else "; it draws answers to the middle of the bounds"
    return [("Values", asked.setting), *words_line(asked), ("Method", f"{method}{drawn}")]


def words_line(statistic: Statistic) -> Lines:
    """Return what words and codes count as, if that was said."""
    if statistic.values is None:
        return []
    pairs = list(statistic.values.plain.items())
    said = ", ".join(f"{cell} = {number:g}" for cell, number in pairs[:_MOST_WORDS])
    more = f" and {len(pairs) - _MOST_WORDS:,} more" if len(pairs) > _MOST_WORDS else ""
    return [("Words", f"{said}{more}; any other cell is missing")]


def clipped_to(statistic: Statistic, found: Interval) -> Interval:
    """Return to what values are clipped where bounds were found privately; those of a sum may be widened to 0."""
    return statistic.interval if statistic.name == "sum" else found


def doubt_lines(answers: Iterable[Any], level: float) -> Lines:
    """Return what the released numbers themselves give reason to look at: unread cells, an end of the range."""
    said = []
    for r in answers:
        counts, figures = hasattr(r.plan.statistic, "equals"), [] if r.plan.abstains else r.figures(level)
        shares = [getattr(r, "share", None), getattr(r, "answered", None), *(f.about.get("answered") for f in figures)]
        if figures and not counts and any(share is not None and share < LEAST for share in shares):
            said.append(UNREAD)
        if any(f.edge and not f.uncertain for f in figures):
            said.append(SHARE_AT_END if counts else AT_END)
        said += _near_an_end(r.plan, figures[0]) if figures else []
    return [("Note", sentence) for sentence in dict.fromkeys(said)]


def _near_an_end(p: Plan, f: Figure) -> list[str]:
    """Return what may be behind an interval that includes what nobody's value, or everybody's, would give."""
    if f.uncertain or f.edge:  # that is said in other words
        return []
    if hasattr(p.statistic, "equals"):
        everybody = f"{p.n:,}" if p.statistic.whole else "1"
        ends = (("0", "nobody"), f.low <= 0), ((everybody, "everybody"), f.high >= f.room)
        return [SHARE_NEAR_END.format(*who) for who, there in ends if there]
    nothing = p.statistic.name == "sum" and p.statistic.missing in ("estimate", 0.0)
    return [SUM_NEAR_0] if nothing and f.low <= 0 <= f.high else []


def bounds_warnings(p: Plan) -> list[str]:
    """Return what is warned of where bounds were found privately."""
    return list(dict.fromkeys(said for ends in p.statistic.private_bounds for said in ends.origin.warnings))


def clipped(p: Plan) -> Lines:
    """Return the headline of what is computed with private bounds: it is not about the values themselves."""
    ends = p.statistic.private_bounds
    if not ends:
        return []
    found = f"these bounds were found privately, {' and '.join(each.found for each in ends if each.charged)}"
    if spent := " and ".join(f"{each.origin.plan.share:.4g}" for each in ends if not each.charged):
        found = f"these bounds were found privately, with at most {spent} of everybody's ε, which counts as spent below"
    if any(each.origin.one_cell for each in ends):
        found += "; most people are in one cell of the grid, and whoever has other values is clipped to about it"
    shown = " and ".join(str(clipped_to(p.statistic, each)) for each in ends)
    return [("Of", f"the {p.statistic.name} of values clipped to {shown}"), ("", found)]


def clipped_and_warned(p: Plan) -> Lines:
    """Return the same with what is warned of."""
    return [*clipped(p), *(("Warning", said) for said in bounds_warnings(p))]


def group_warnings(groups: Groups) -> tuple[str, ...]:
    """Return warnings about bounds and single groups, and one if a release over all people would weigh them otherwise.

    The rule for that is that of `warnings`: means of groups that differ by a tenth of the range would alone move that
    one release by half of its promised error.
    """
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
        gap, off = stated(EXAMPLE * width), size(EXAMPLE * moved * width)
        said.append(
            f"the groups chose privacy differently. One {whole.statistic.name} over all people, without groups, would "
            f"count {shorten(label(name))!r} for {parts[name][0]:.1%}, and it has {parts[name][1]:.1%} of the people: "
            f"if the groups differ by {gap} ({percent(EXAMPLE)} of the range), it would be off by up to {off}. "
            "Combine the groups instead."
        )
    return tuple(said)


def group_lines(groups: Groups) -> Lines:
    """Return how far the groups would be off, what would be wrong with one number over all, and how to combine them."""
    worst = max(groups, key=lambda name: groups[name].plan.bias_share / (share_behind(groups[name]) or 1.0))
    first = groups[worst].plan
    where = f"in the group {shorten(label(worst))!r}, and less in the others: " if first.bias_share >= 1e-9 else ""
    said = [] if first.abstains else [("Drift", f"{where}{sentence(first, share_behind(groups[worst]))}")]
    said += [("Warning", words) for words in groups.warnings]
    if len(groups) < 2 or first.error_unit != "values" or first.statistic.whole:
        return said
    shares = ", ".join(f"{name!r}: …" for name in list(groups)[:2]) + (", …" if len(groups) > 2 else "")
    of = f".about({groups.question!r})" if groups.question else ""
    how = f"for one number about everybody, weight the groups by their known public shares: {of}.combine({{{shares}}})"
    return [*said, ("Combine", how)]


def combined_parts(combined: Combined, level: float) -> Parts:
    """Return the report on groups that were combined: the number, then the groups behind it."""
    from .text import assumed_lines

    error, rows = combined.worst_case_error, []
    plans = [release.plan for release in combined.groups.values()]
    ends = f"{level_words(level)} interval {between(*combined.confidence_interval(level), error)}"
    estimate = f"{number(combined.estimate, error)}{combined.figure(level).doubt}   {ends}, {holds_for(*plans)}"
    for name, release in combined.groups.items():
        p = release.plan
        own = p.worst_case_error if p.statistic.one else error
        figure, *_ = release.figures(level)
        shown = number(figure.estimate, own) + (" (midpoint, no data used)" if p.abstains else figure.doubt)
        share, spent = combined.shares[name], spent_epsilon(float(p.spent_in_all.max()))
        rows.append((label(name), f"{share:.1%}", f"{p.n:,}", shown, between(figure.low, figure.high, own), spent))
    first = next(iter(combined.groups.values())).plan
    width = first.interval.width
    most = f"root mean square ± {size(error)} ({percent(error / width)} of the range) in the worst case"
    said = dict.fromkeys(line for r in combined.groups.values() for line in (*r.plan.facts.assumptions, *r.notes))
    drift = first.drift or EXAMPLE
    off = drift * width * combined.drift_bias
    apart = f"by {stated(drift * width)} ({stated(100 * drift)}% of the range)"
    inside = f"if in every group the strictest people's mean differed from the most open people's {apart}, this "
    inside += f"estimate would be off by up to {size(off)}"
    inside += ", which the error includes" if first.drift else ""
    whose = [*doubt_lines(combined.groups.values(), level), *target_line(first), *read_as(first)]
    warned, together = [("Warning", words) for words in combined.warnings], ("Together", combined.groups.composition)
    return [
        [*clipped(first), ("Estimate", estimate), ("", combined.meaning), ("Missing", str(first.statistic.counted))],
        Grid(("Group", "Share", "People", "Estimate", f"{level_words(level)} interval", "Most spent"), rows),
        [*whose, ("Error", most), ("Drift", inside), *warned, together],
        assumed_lines(list(said)),
    ]


# Of a difference


def difference_lines(found: Difference, level: float) -> Lines:
    """Return whose numbers are compared, how far each would be off, and which drift would explain the difference."""
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
