"""Plans and releases for people: text for a terminal, HTML for a notebook. The same facts, the same order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hetdp.core.accuracy import supposed
from hetdp.core.domain import plural
from hetdp.estimators import METHODS
from hetdp.privacy.exact import Choice, Mass
from hetdp.statistics.answer import ONE_EPSILON, ROWS, label
from hetdp.statistics.bounds import spent_on_bounds
from hetdp.statistics.mean import LearnedMean
from hetdp.statistics.quantile import CELL

from . import (
    BAR,
    Figure,
    Grid,
    Lines,
    Parts,
    Provenance,
    between,
    bin_ends,
    epsilon,
    level_words,
    number,
    odds,
    people,
    percent,
    shorten,
    size,
    spent_epsilon,
)
from .drift import (
    clipped,
    clipped_and_warned,
    divided_by,
    doubt_lines,
    drift_lines,
    group_lines,
    holds_for,
    of_stated,
    read_as,
    share_behind,
    target_line,
    words_line,
)
from .facts import Band

if TYPE_CHECKING:
    from hetdp.core.plan import Plan
    from hetdp.report.compare import Target
    from hetdp.statistics.answer import Answers, Groups
    from hetdp.statistics.statistic import Answer

_MOST_LEVELS = 24
_HEADINGS = ("Tier", "ε asked", "People", "ε spent", "ε free", "Weight each", "Share")
_PLAIN = {"uniform": "everybody at the smallest ε", "proportional": "weights proportional to ε"}


# What is said


def plan_lines(p: Plan, share: float | None = None, *, released: bool = False) -> Lines:
    """Return what a plan says besides its table, as pairs of heading and sentence; `share` as for `drift_lines`.

    What depends on who has a value, or on a variance that is to be learned, is known once it was `released`.
    """
    given = "" if released else _if_dropped(p)
    first = f"{given.removeprefix(', ')}: " if given else ""
    width = [] if released and p.squares is not None else _width(p, given)
    lines = [("Saturation", _saturation(p)), *_learning(p)]
    if p.abstains:
        half = f"at most ± {size(p.span.width / 2)}: half the range"
        return [*lines, ("Error", half if p.statistic.one else "nothing is known beyond what was known before")]
    others = (f"{_PLAIN[name]}: {fact['times']:.2f} × this error" for name, fact in p.facts.alternatives.items())
    if not p.worst_case_error:  # nothing to compare with, and nothing to give away
        rounded = " but rounding: values are read to a millionth of the range" if p.statistic.sums else ""
        none = ("Error", f"none{rounded}; everybody's value is public")
        return [*lines, ("Noise", _noise(p)), none, *width]
    lines += [("Noise", _noise(p)), ("Error", first + _error(p)), *_bias(p), *width, *drift_lines(p, share)]
    lines.append(("Instead", "; ".join(others)))
    for heading, offer in zip(("Frontier", "", ""), p.facts.frontier, strict=False):
        fewer = people(int(p.levels.count[p.spent > offer["cap"]].sum()))
        grown = f"the squared error would grow by only {offer['more_mse']:.0%}; {fewer} would spend less"
        lines.append((heading, f"if nobody spent more than ε = {epsilon(offer['cap'])}, {grown}"))
    lines += _meaning([p])
    if any(band.people and band.epsilon[1] > 0 and not band.share for band in p.facts.bands):
        lines.append(("Left out", "people whose ε is too small to count beside the others have weight 0"))
    if p.levels.rounded:
        lines.append(("Levels", "more than 65,536 different ε: each was rounded down to 12 significant bits"))
    if any(20 < level < math.inf for level in p.levels.epsilon[-4:].tolist()):
        lines.append(("Remark", "an ε above 20 allows odds to change by a factor of 10⁸ and more: it protects little"))
    return lines


def _saturation(p: Plan) -> str:
    if p.abstains:
        what = "the midpoint" if p.statistic.one else "one that needs no data"
        return f"too few people or too little ε: the answer is {what}, no data is used and nothing is spent"
    if p.threshold is None:
        return "this method has no saturation level"
    if math.isinf(p.threshold):
        return "none: only public people count" if p.noiseless else "none: everybody spends all they allow"
    above = int(p.levels.count[p.levels.epsilon > p.threshold].sum())
    if not above:
        return f"t = {cap(p)}: nobody is above it, so everybody's ε is used in full"
    t = "t" if p.share == 1 else f"{p.share:.3g} t"
    rest = "the rest free" if p.squares is None else "the rest free, but for what the variance takes"
    rest += ", but for what the bounds took" if p.statistic.private_bounds else ""
    verbs = f"allows more, spends about {t}, and gets" if above == 1 else f"allow more, spend about {t}, and get"
    return f"t = {cap(p)}: {people(above)} ({above / p.n:.1%}) {verbs} {rest}"


def _learning(p: Plan) -> Lines:
    """Return what is spent on learning the variance; nothing if that was not asked for."""
    if p.squares is None:
        none = "nothing is learned about it: the mean leaves nobody ε to spend"
        return [("Variance", none)] if isinstance(p.statistic, LearnedMean) else []
    who, most = people(int(p.levels.count[p.squares.spent > 0].sum())), spent_epsilon(float(p.squares.spent.max()))
    return [("Variance", f"learned: {who} spend up to ε = {most} of what the mean leaves; the estimate is the same")]


def cap(p: Plan) -> str:
    """Return the saturation level t of a plan as what people above it spend is printed: one number, rounded once.

    Weights are whole numbers, so what they spend is t but for a hair, which can be another last digit.
    """
    spent = p.spent[(p.levels.epsilon > p.threshold) & (p.units > 0)] if p.threshold is not None else p.spent[:0]
    if not spent.size or p.share != 1 or p.squares is not None:  # then they spend another amount than t
        return "–" if p.threshold is None else spent_epsilon(p.threshold)
    return spent_epsilon(float(spent.max()))


def _noise(p: Plan) -> str:
    if not p.noise:
        return "none: only public people have weight, so nothing needs protection"
    share, shape = percent(p.noise_scale / p.span.width), p.statistic.geometry
    if isinstance(shape, Choice):
        times = "once" if shape.picks == 1 else f"{shape.picks} times"
        return f"none is added: a cell is drawn at random near the best, {times}; scale {share} of all people"
    if not p.statistic.one:
        each = math.sqrt(p.errors.noise / shape.numbers)
        deviation = f"with a standard deviation of {percent(each)} of {_whole(p)}"
        if isinstance(shape, Mass):
            return f"each share gets Laplace noise {deviation}; the noise of all shares adds up to 0"
        if p.statistic.square:
            of_both = "the mean and the mean squared distance from the midpoint, from which the variance is computed"
            return f"one draw of noise for {of_both}, {deviation.replace('the range', 'the range of each')}"
        return f"each number gets noise {deviation}; one draw for all of them"
    return f"Laplace, scale {size(p.noise_scale)} ({share} of {_whole(p)})"


def _whole(p: Plan) -> str:
    """Return what a percentage is of: values have a range, shares are of people."""
    return "all people" if isinstance(p.statistic.geometry, Mass) or not p.statistic.sums else "the range"


def _error(p: Plan) -> str:
    """Errors are root mean squares. Under a stated bound on the variance the worst case is over fewer distributions."""
    width, worst = p.span.width, p.worst_case_error
    if isinstance(p.statistic.geometry, Choice):
        most = f"about ± {percent(worst)} of all people {p.statistic.missed}{divided_by(p.statistic)}"
        return f"{most}, root mean square, for any distribution"
    if p.facts.answered_errors is not None:
        parts = [f"± {size(e['error'])} if {e['answered']:.0%} answer" for e in p.facts.answered_errors]
        return f"root mean square about {', '.join(parts)}, at worst"
    if not p.statistic.one:
        each = f"root mean square ± {percent(p.error_each)} of {_whole(p)} at most for one number"
        each = f"{each}, ± {percent(worst)} for all together in the worst case{divided_by(p.statistic)}"
        return _error_of_moments(p) if p.statistic.square else each
    most = f"root mean square ± {size(worst)} ({percent(worst / width)} of {_whole(p)}) in the worst case"
    if not p.statistic.sums:
        return f"{most}, whatever the share is"
    if p.facts.stated_deviation is not None:
        return f"{most}, if the standard deviation {of_stated(p)}"
    spread = p.facts.even_spread_error or 0.0
    even = f"± {number(spread, worst, 'up')} ({percent(spread / width)}) if values are spread evenly"
    return f"{most}, for any distribution; {even}"


def _error_of_moments(p: Plan) -> str:
    """Return the errors of a mean, a variance and a deviation from that of the two moments m and s that were released.

    On an interval of length 1 the variance is (s − (2m − 1)²)/4: it errs by a quarter of the error of s and at most
    once that of m, but for the square of the latter. A deviation σ errs by about that divided by 2σ.
    """
    variance, divided = 1.25 * p.error_each, divided_by(p.statistic)
    return (
        f"root mean square; of the mean: ± {percent(p.error_each)} of the range at most{divided}; of the variance: "
        f"about ± {percent(variance)} of the squared range; of the standard deviation: about ± "
        f"{percent(variance / 0.2)} of the range where it is a tenth of the range, and more where it is smaller"
    )


def _bias(p: Plan) -> Lines:
    """Return how far the answer is drawn to the middle, and what adpm would do where that hurts."""
    if p.facts.adpm is None:
        return []
    errors = [f.half_range_error or 0.0 for f in (p.facts, p.facts.adpm.facts)]
    ours, theirs = (number(error, p.worst_case_error, "up") for error in errors)
    compared = f"for values spread evenly over one half of the range the error is ± {ours}, that of adpm ± {theirs}"
    return [("Bias", pulled(p)), ("", compared)]


def pulled(p: Plan) -> str:
    """Return how far a method that shrinks draws its answers to the middle of the bounds, and where adpm is better."""
    bias, other = p.facts.largest_bias, p.facts.adpm
    most = f"{number(bias, p.worst_case_error, 'up')} ({percent(bias / p.span.width)} of the range)"
    worse = other is not None and p.facts.end_error > other.facts.end_error
    near_an_end = "worse than adpm if it lies near an end" if worse else "and not worse than adpm at an end either"
    return (
        f"pulls every answer towards the middle of the bounds, by up to {most} for values at an end: good if nothing "
        f"is known about where the mean lies, {near_an_end}"
    )


def _width(p: Plan, given: str) -> Lines:
    """Return the guaranteed interval that is to be expected, before any value is read."""
    if p.facts.width is None:
        return []
    half = number(p.facts.width, p.worst_case_error, "up")
    said = f"about ± {half}, less near an end of the range{given}"
    if p.squares is not None:
        said = f"at most about ± {half}; narrower if the learned variance is small{given}"
    return [("Interval", f"the guaranteed 95% interval will be {said}")]


def _if_dropped(p: Plan) -> str:
    """Return what stands beside a prediction if people without a value will be left out; how many is not known yet."""
    return f", {supposed(p.statistic)}" if p.statistic.missing == "drop" else ""


def _setting(p: Plan, notes: Sequence[str] = (), given: str = "") -> Lines:
    rows = " rows, each taken as another person" if ROWS in notes else ""
    rows += ", with one ε for all: nobody's own choice was read" if ONE_EPSILON in notes else ""
    lines = [("People", f"{p.n:,}{rows}{given}   {p.statistic.setting}"), *target_line(p)]
    lines.append(("Method", METHODS[p.method].title))
    if p.statistic.counted is not None:
        lines.insert(0, ("Missing", p.statistic.counted))
    lines += words_line(p.statistic)
    if p.share != 1:
        lines.append(("Share", f"this question may use {p.share:.3g} of everybody's ε"))
    return lines


def _estimate(r: Any, level: float) -> Lines:
    error = r.plan.worst_case_error
    estimate = number(r.estimate, error)
    if r.plan.abstains:
        return [
            ("Estimate", f"{estimate}: the midpoint of the bounds, NOT from the data (too few people or too little ε)")
        ]
    estimate += r.figures(level)[0].doubt
    low, high = r.confidence_interval(level)
    least, most = r.confidence_interval(level, "normal")
    narrow = f"(normal approximation, narrower, no guarantee: {between(least, most, error)})"
    note = [("Note", "no noise was needed: every person with weight said that their value is public")]
    return [
        *(note if r.plan.noiseless else []),
        ("Estimate", f"{estimate}   {level_words(level)} interval {between(low, high, error)}, {holds_for(r.plan)}"),
        *([("", narrow)] if most - least < high - low else []),  # at the worst variance, so it can also be wider
        *doubt_lines([r], level),
    ]


def assumed_lines(sentences: Sequence[str]) -> Lines:
    """Return what is assumed, under one heading."""
    return [("" if i else "Assumed", sentence) for i, sentence in enumerate(sentences)]


def cells(band: Band, n: int) -> tuple[str, ...]:
    """Return one row of the table of tiers; weights are shown as multiples of 1/n, that of a plain mean."""
    low, high = band.epsilon
    asked = epsilon(low) if low == high else f"{epsilon(low)} to {epsilon(high)}"
    spent_low, spent_high = (spent_epsilon(x) for x in band.spent)
    spent = spent_low if spent_low == spent_high else f"{spent_low} to {spent_high}"
    if low == high and band.spent[1] <= high < math.inf and float(spent_high) > float(asked):
        asked = spent_high  # rounded the same way: nobody spends more than they asked for
    if high == 0 and band.name.startswith(("exhausted", "frozen")):  # through a ledger: they did not ask for 0
        asked = "–"
    free = epsilon(band.free) if math.isinf(band.free) or band.free > 1e-3 * high else "–"
    name = shorten(band.name) or ("public" if math.isinf(low) else "never use" if high == 0 else "")
    return name, asked, f"{band.people:,}", spent, free, f"{band.weight * n:.3g}/n", f"{band.share:.1%}"


def about_line(about: Provenance) -> tuple[str, str]:
    """Return the last line of every report: what it is about and where it comes from."""
    return "About", str(about)


def _parts(  # everything that a report on one plan may have
    first: Lines,
    p: Plan,
    about: Provenance,
    more: Lines = (),
    notes: Sequence[str] = (),
    *,
    released: bool = True,
    share: float | None = None,
) -> Parts:
    """Return a report: what is special about it, the tiers, the plan, what is assumed, where it comes from."""
    bands, certificate = p.facts.bands, p.facts.certificate
    tiers = Grid(_HEADINGS, [cells(band, p.n) for band in bands], [(b.spent[1], b.epsilon[1]) for b in bands])
    best = "how far this is from the best possible is not certified when a bound on the variance is assumed"
    if p.statistic.one and not p.statistic.whole and (p.drift or p.target == "people"):
        best = "how far this is from the best possible is certified for the population without drift alone"
    elif not p.statistic.one or p.statistic.whole or p.share != 1:
        best = "how far this is from the best possible is not known: there is no certificate for this statistic yet"
    last = [("Best", certificate["sentence"] if certificate else best), about_line(about)]
    bars = [] if released or p.abstains else [_chart(tiers)]
    said = assumed_lines([*p.facts.assumptions, *notes])
    return [first, tiers, [*plan_lines(p, share, released=released), *more], *bars, [*said, *last]]


def _chart(tiers: Grid) -> str:
    """Return bars: the dark part of what people allow is spent, the light part is free."""
    named = [(row[0] or row[1], *bar) for row, bar in zip(tiers.rows, tiers.bars, strict=True) if bar[1] > 0]
    width, top = max(len(name) for name, *_ in named), tiers.top
    lines = [f"{'':{width}}  █ spent  ░ free  (up to ε = {epsilon(top)})"]
    for name, spent, asked in named:
        dark, full = max(round(BAR * min(spent / top, 1)), 1), round(BAR * min(asked / top, 1))
        lines.append(f"{name:>{width}}  {'█' * dark}{'░' * (full - dark)}{'▶' if asked > top else ''}")
    return "\n".join(lines)


def plan_parts(
    p: Plan, answer: Target | None = None, notes: Sequence[str] = (), about: Provenance | None = None
) -> Parts:
    """Return the report on a plan, with the answer to `--target-error` or `--target-width` if there is one."""
    setting, more = _setting(p, notes, _if_dropped(p)), answer.lines(p) if answer else ()
    return _parts(setting, p, about or p.facts.about, more, notes, released=False)


def release_parts(r: Answer, level: float) -> Parts:
    """Return the report on a release."""
    from .explain import with_budgets

    of, said = clipped_and_warned(r.plan), [*_first(r, level), *_setting(r.plan, r.notes)]
    first = [*of, *said] if r.plan.statistic.one else said
    parts = _parts(first, r.plan, r.provenance, notes=r.notes, share=share_behind(r))
    if not r.plan.statistic.one:
        parts = [*([of] if of else []), _results(r, level), *parts]
    return with_budgets(parts, r.ledger) if r.ledger else parts


def _first(r: Answer, level: float) -> Lines:
    """Return what is said first: the one number with its interval, or what stands above a table of several."""
    return _estimate(r, level) if r.plan.statistic.one else _above(r, level)


def _above(r: Answer, level: float) -> Lines:
    if r.plan.abstains:
        return [("Note", "these numbers are NOT from the data (too few people or too little ε)")]
    none = [("Note", "no noise was needed: every person with weight said that their value is public")]
    holds = [("Intervals", f"{level_words(level)}, {holds_for(r.plan)}; {r.holds}")] if r.holds else []
    looked = [*doubt_lines([r], level), *_below_zero(r, level)]
    return [*(none if r.plan.noiseless else []), *r.remarks, *looked, *holds]


def _below_zero(r: Answer, level: float) -> Lines:
    """Return what a share below 0 means, if one is published: it follows from what is published."""
    shares = (f for f in r.figures(level) if "people" in f.about)
    below = any(number(100 * f.estimate, 100 * f.error).startswith("-") for f in shares)  # as it is printed
    return [("Note", "a share below 0 is noise: read it as a share near 0")] if below else []


def _results(r: Answer, level: float, *, remarks: bool = True) -> Grid:
    """Return the numbers of an answer as a table; what is too uncertain has its own column, or stands beside."""
    figures = r.figures(level)
    shares = isinstance(r.plan.statistic.geometry, Mass) and all("people" in f.about for f in figures)
    rows, more = [], [name for name in _BESIDE if figures and name in figures[0].about]
    last = [""] if remarks and not r.plan.abstains and any(f.doubt for f in figures) else []
    for f in figures:
        estimate, ends = number(f.estimate, f.error), between(f.low, f.high, f.error)
        if r.between == CELL:
            ends = bin_ends(f.low, f.high)
        if shares or f.shown is not None:
            estimate, ends = f"{number(100 * f.estimate, 100 * f.error)}%", f"{_percents(f)}"
        doubt = "" if r.plan.abstains else f.doubt
        extra = [_extra(name, f.about[name], r.plan) for name in more] + ([doubt.strip()] if last else [])
        rows.append((shorten(f.label), (f.shown or estimate) + ("" if last else doubt), ends, *extra))
    top = max((f.estimate for f in figures), default=0.0)
    lengths = [max(f.estimate / top, 0.0) for f in figures] if shares and top > 0 else ()
    beside = {**_BESIDE, "rank": "Rank between, if all answered"} if r.plan.statistic.keeps_missing else _BESIDE
    return Grid((r.heading, "Estimate", r.between, *(beside[name] for name in more), *last), rows, lengths=lengths)


_BESIDE = {
    "people": "People",
    "share": "Share of people",
    "in_it_and_answered": "In it and answered",
    "answered": "Answered",
    "rank": "Rank between",
}
"""What stands beside a number, as `Figure.about` calls it, and how its column is headed."""


def _percents(f: Figure) -> str:
    low, high = between(100 * f.low, 100 * f.high, 100 * f.error).split(" to ")
    return f"{low}% to {high}%"


def _extra(name: str, fact: Any, p: Plan) -> str:
    if name == "rank":
        return f"{number(fact[0], 0.01, 'down')} and {number(fact[1], 0.01, 'up')}"
    error = p.error_each
    return number(fact, p.n * error) if name == "people" else f"{number(100 * fact, 100 * error)}%"


def answers_parts(answers: Answers, level: float) -> Parts:
    """Return the report on several answers: the numbers of each, then what everybody spends on all of them."""
    parts: list[Any] = []
    for name, r in answers.items():
        title = r.plan.statistic.title.removeprefix("A ")
        heading = [("Question", f"{name}: {title[0].lower()}{title[1:]}")]
        first, drifts = _first(r, level), drift_lines(r.plan, share_behind(r))
        parts.append([*heading, *clipped_and_warned(r.plan), *first, *_setting(r.plan, r.notes), *drifts])
        parts += [] if r.plan.statistic.one else [_results(r, level)]
    plans, rows = [r.plan for r in answers.values()], []
    before = spent_on_bounds(plans)
    columns = [*(f"for {shorten(name)}" for name in answers), *["for bounds"] * len(before)]
    for i, row in enumerate(plans[0].table[:_MOST_LEVELS]):
        spent = [spent_epsilon(float(part[i])) for part in (*(p.spent for p in plans), *before)]
        together = spent_epsilon(answers.spent[row.epsilon])
        name = shorten(row.name or ("public" if math.isinf(row.epsilon) else ""))
        rows.append((name, epsilon(row.epsilon), f"{row.count:,}", *spent, together))
    parts.append(Grid(("Tier", "ε asked", "People", *columns, "ε spent"), rows))
    if more := len(plans[0].table) - len(rows):
        levels = f"{plural(more, 'more level')} of ε {'is' if more == 1 else 'are'} not shown"
        parts.append([("Levels", f"{levels}; the JSON has them all")])
    sayers: dict[str, list[str]] = {}
    for name, r in answers.items():
        for sentence in dict.fromkeys((*r.plan.facts.assumptions, *r.notes)):
            sayers.setdefault(sentence, []).append(shorten(name))
    common = len(answers)
    said = [text if len(by) == common else f"{', '.join(by)}: {text}" for text, by in sayers.items()]
    best = "how far this is from the best possible is not known: there is no certificate for several questions"
    return [*parts, [*assumed_lines(said), ("Best", best), about_line(answers.provenance)]]


def _meaning(plans: Sequence[Plan]) -> Lines:
    """Return what the largest finite spend of these plans means, unless it is 0 or too large to mean anything."""
    most = max(float(s[np.isfinite(s)].max(initial=0)) for s in (p.spent_in_all for p in plans))
    if not 0 < most < 20:
        return []
    guess = f"ε = {spent_epsilon(most)} changes the odds of any guess about a person's value by at most a factor of"
    return [("Meaning", f"spending {guess} {odds(most)}, for somebody who knows everybody else's answer")]


def group_parts(groups: Groups, level: float) -> Parts:
    """Return a table of the releases of groups, and what is promised for it as a whole."""
    from .explain import budget_lines, group_notes

    said = [sentence for r in groups.values() for sentence in r.plan.facts.assumptions]
    said = list(dict.fromkeys([*said, *group_notes(groups)]))
    first = next(iter(groups.values()))
    missing = [("Missing", first.plan.statistic.counted)] if first.plan.statistic.counted else []
    last = [*doubt_lines(groups.values(), level), *clipped(first.plan), *target_line(first.plan)]
    last += [*read_as(first.plan), *missing, *group_lines(groups)]
    last += [*_meaning([r.plan for r in groups.values()]), *budget_lines(groups), ("Together", groups.composition)]
    last += assumed_lines(said)
    last.append(about_line(groups.provenance))
    weakest = max(groups.values(), key=lambda r: r.plan.bias_share)
    if not first.plan.statistic.one:
        holds = ("Intervals", f"{level_words(level)}, {holds_for(weakest.plan)}; in each group {weakest.holds}")
        return [_group_results(groups, level), [holds, *last]]
    last.insert(0, ("Intervals", f"{level_words(level)}, {holds_for(weakest.plan)}; each by itself"))
    above = "t" if first.plan.share == 1 else f"t (above it {first.plan.share:.3g} t is spent)"
    headings = ("Group", "People", "Estimate", f"{level_words(level)} interval", "Worst case", above, "Most spent")
    rows = []
    for name, r in groups.items():
        p, error = r.plan, r.plan.worst_case_error
        t, (f, *_) = "–" if p.abstains else cap(p), r.figures(level)
        doubt = " (midpoint, no data used)" if p.abstains else f.doubt
        estimate, ends = number(f.estimate, error) + doubt, between(f.low, f.high, error)
        rows.append(
            (label(name), f"{p.n:,}", estimate, ends, f"± {size(error)}", t, spent_epsilon(float(p.spent_in_all.max())))
        )
    return [Grid(headings, rows), last]


def _group_results(groups: Groups, level: float) -> Grid:
    """Return the numbers of all groups, each as the report on one group has them."""
    headings: Sequence[str] = ()
    rows: list[Sequence[str]] = []
    for name, r in groups.items():
        grid = _results(r, level, remarks=False)
        headings = ("Group", *grid.headings, "Group of", "Most spent")
        unused = " (no data used)" if r.plan.abstains else ""
        of = f"{r.plan.n:,}", spent_epsilon(float(r.plan.spent_in_all.max()))
        for i, (what, estimate, *rest) in enumerate(grid.rows):
            rows.append(("" if i else label(name), what, estimate + unused, *rest, *(("", "") if i else of)))
    return Grid(headings, rows, words=2)
