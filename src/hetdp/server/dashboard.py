"""What is public while people join: the plan for those who are there, what a choice promises, what if more came.

Nothing here can see an answer: a function takes a study and {ε: people}, or one person's ε and what was spent of it,
and calls the library. So does the interactive page of the paper: every method over a range of people, for tiers that
the reader moves.
"""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Mapping
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from hetdp import report
from hetdp.core.domain import epsilon_of, jsonable
from hetdp.core.levels import Levels
from hetdp.core.plan import Plan, plan
from hetdp.estimators import METHODS
from hetdp.ledger import budget_units, in_epsilon
from hetdp.report import compare, text
from hetdp.report.explain import explain
from hetdp.statistics.histogram import Shares
from hetdp.statistics.mean import Ratio

from .access import RefusedError
from .fields import Dated, Strict
from .studies import Alike, Question, Study, exact, most, rounded_down

People = Mapping[float, int]

# Of the report's sentences about a plan, those that concern a study before it is published.
_SHOWN = {"Saturation", "Noise", "Error", "Instead", "Meaning", "Left out"}
# What is known of a question once somebody has joined.
_FIGURES = ("error", "width", "abstains", "uncertain")
# How many rows a table of free choices has at most.
MOST_BANDS = 12
# Where a slider for a free choice of ε stops in every decade.
STEPS = (1.0, 1.5, 2.0, 3.0, 5.0, 7.0)


def planned(study: Study, question: Question, people: Alike) -> Plan:
    """Return the plan of a question if the current wave were published now; there must be somebody."""
    return plan(Levels(*study.entered(question, people)), statistic=question.statistic)


def _plan_facts(p: Plan) -> dict[str, Any]:
    """Return what is public about a plan but for what only a published result needs."""
    return {name: fact for name, fact in p.to_dict().items() if name not in {"exact", "assumptions"}}


def _figures(question: Question, p: Plan) -> dict[str, Any]:
    """Return the main figures of a question if everybody answers it: how far off it may be, whether it is of use.

    The error is the root of the mean squared one in the worst case, in the question's unit or as a share. The width is
    about half of the interval that would be published: noise can make that of a mean or of a yes wider, because it is
    of those who answer, and how many these are is noisy too. Whether it is of use goes by the rule of a result: not if
    the interval covers more than half of the range (`Figure.uncertain`).
    """
    width = p.width()
    return {
        "question": question.name,
        "kind": question.kind,
        "error": p.error_each if isinstance(p.statistic, Shares) else _error(p),
        "width": width,
        "abstains": p.abstains,
        "uncertain": bool(p.abstains) or 2 * width > p.statistic.interval.width / 2,
    }


def _error(p: Plan) -> float:
    """Return the error if everybody answers."""
    statistic = p.statistic
    if isinstance(statistic, Ratio) and statistic.keeps_missing:
        return statistic.error_answered(p, 1.0)
    return p.worst_case_error


def live(study: Study, people: People, imported: int, ledger: list[dict[str, Any]] | None) -> dict[str, Any]:
    """Return what the curator sees: who joined which tier, what the ledger says of them, each question's plan."""
    questions, alike = [], entering(people, ledger)
    for question in study.questions:
        p = planned(study, question, alike) if alike else None
        about = {"question": question.name, "kind": question.kind, **dict.fromkeys(_FIGURES)}
        lines = [] if p is None else [list(pair) for pair in text.plan_lines(p) if pair[0] in _SHOWN]
        facts = None if p is None else _plan_facts(p)
        questions.append({**(about if p is None else _figures(question, p)), "plan": facts, "sentences": lines})
    n = sum(people.values())
    return {
        "n": n,
        "counted": n if study.imports_count else n - imported,
        "joined": _joined(study, people, ledger or []),
        "ledger": None if ledger is None else jsonable(ledger),
        "frozen": None if ledger is None else sum(row["people"] for row in ledger if row["frozen"]),
        "questions": questions,
    }


def balances(
    levels: Mapping[tuple[bool, float | None], list[str]], known: Mapping[str, tuple[float, float, float]] | None
) -> list[dict[str, Any]] | None:
    """Return what the ledger says of people, those who are alike together, each with the ε that they allow now.

    `known` has budget, spent and left of each who was enrolled for a publication. Left, and whether nothing is because
    less is allowed now than was spent, go by the ε of now; it is None of those who have withdrawn. `here` says whether
    they take part in this wave.
    """
    if known is None:
        return None
    return [
        {"here": here, **_alike(level, *one), "people": people}
        for (here, level), ids in levels.items()
        for one, people in Counter(map(known.get, ids)).items()
        if one is not None
    ]


def _alike(level: float | None, budget: float, spent: float, left: float) -> dict[str, Any]:
    if level is not None and level != budget:
        left = level if math.isinf(level) else max(level - spent, 0.0)
    frozen = level is not None and level < spent
    return {"epsilon": level, "spent": spent, "left": left, "frozen": frozen}


def entering(people: People, ledger: list[dict[str, Any]] | None) -> Alike:
    """Return who takes part in this wave by their ε and by what was used of them; nobody if that cannot be read now."""
    found = Counter({(level, 0): count for level, count in people.items() if ledger is not None})
    for row in ledger or []:
        if row["here"]:
            found[row["epsilon"], 0] -= row["people"]
            found[row["epsilon"], budget_units(row["spent"])] += row["people"]
    return +found


def _joined(study: Study, people: People, ledger: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a row for each tier, or for each ε that was chosen, in at most twelve bands.

    Beside the people who are there now stand the most that the ledger has charged one of them, the least that is left
    to one of them, and what this wave may use of one at most: nothing if it does not take place.
    """
    over = study.phase() in {"ended", "deleted"}
    takes_place = study.status == "published" or (not over and study.current.closes < study.until)
    named = [(tier.model_dump(), tier.level, tier.level) for tier in study.tiers] or _bands(people)
    rows = []
    for about, low, high in named:
        there = {level: count for level, count in people.items() if low <= level <= high}
        mine = [row for row in ledger if row["here"] and low <= row["epsilon"] <= high]
        charged = sum(row["people"] for row in mine)
        new = (
            [] if charged and charged >= sum(there.values()) else [(min(there, default=high), max(there, default=high))]
        )
        left = [row["left"] for row in mine]
        wave = most(high, study.current.share) if takes_place else 0
        cells = {
            "people": sum(there.values()),
            "spent": max((row["spent"] for row in mine), default=0.0),
            "left": min([*left, *(least for least, _ in new)]),
            "share": min(in_epsilon(wave), max([*left, *(top for _, top in new)])),
            "frozen": sum(row["people"] for row in mine if row["frozen"]),
        }
        rows.append(jsonable({**about, **cells}))
    return rows


def _bands(people: People) -> list[tuple[dict[str, Any], float, float]]:
    """Return free choices as bands of neighbouring ones, at most twelve."""
    levels = sorted(people)
    size = math.ceil(len(levels) / MOST_BANDS) or 1
    bands = [levels[i : i + size] for i in range(0, len(levels), size)]
    shown = report.spent_epsilon
    ends = [(f"ε = {shown(band[0])}", f" to {shown(band[-1])}" * (len(band) > 1)) for band in bands]
    return [
        ({"name": "".join(end), "epsilon": band[-1], "sentence": ""}, band[0], band[-1])
        for end, band in zip(ends, bands, strict=True)
    ]


def split(study: Study) -> list[dict[str, Any]]:
    """Return how ε is split: the share of each question, and of each publication what it may use for it."""
    return [
        {
            "question": question.name,
            "share": question.share,
            "of_each_publication": [float(exact(wave.share) * exact(question.share or 0)) for wave in study.waves],
        }
        for question in study.questions
    ]


def choices(study: Study, own: float | None = None, spent: float = 0.0) -> list[dict[str, Any]]:
    """Return the privacy choices of a study with what each promises: its tiers, or stops of a slider.

    `own` is what the person chose before, and a stop too, and `spent` what was spent of them already.
    """
    offers = [tier.model_dump() for tier in study.tiers]
    if study.free is not None:
        least = study.free.least
        top = max(rounded_down(study.free.most), least)  # more digits are not stored, see `Study.level`
        series = [round(step * 10.0**decade, 6) for decade in range(-3, 2) for step in STEPS]
        stops = {least, top, *(stop for stop in series if least < stop < top), *([] if own is None else [own])}
        offers = [{"name": f"ε = {stop:g}", "epsilon": stop, "sentence": ""} for stop in sorted(stops)]
    return [{**offer, **_promise(study, epsilon_of(offer["epsilon"]), own, spent)} for offer in offers]


def _promise(study: Study, level: float, own: float | None, spent: float) -> dict[str, Any]:
    """Return what holds for one person with this ε whatever others do: upper limits, and no forecast.

    All questions of all waves together use at most ε, or nothing beyond what was spent before if that was more.
    """
    limit = max(_most(study, level, spent), spent)
    never = said("limit.never", "Nothing more: no publication is left.")
    return {
        "own": level == own,
        "more": own is not None and level > own,
        "sure": explain(limit).guess_from_half,
        "meaning": _meaning(limit),
        "limit": _limit(study, level, spent) if _coming(study) else never,
    }


def said(code: str, sentence: str, **facts: Any) -> dict[str, Any]:
    """Return a sentence with its code and what it quotes, so that a page can say it in another language."""
    return {"code": code, "facts": jsonable(facts), "sentence": sentence}


def _coming(study: Study) -> tuple[Dated, ...]:
    """Return the waves that are to come; one that closes when everything is deleted does not take place.

    That stays so: no wave closes earlier than was said but by `close_early`, which refuses such a one.
    """
    ended = study.phase() == "ended"
    return tuple(wave for wave in study.waves[study.wave :] if wave.closes < study.until and not ended)


def _most(study: Study, level: float, spent: float) -> float:
    """Return what can be used at most of somebody who allows this: who joins late is not in the waves before.

    Of somebody of whom something was used that is what was, and what is to come; less than they allow, if they joined
    late, or were not used in full.
    """
    coming = _coming(study)
    late = spent or len(coming) < len(study.waves)
    return min(level, spent + to_come(study, level, spent)) if coming and late else level if coming else spent


def _limit(study: Study, level: float, spent: float) -> dict[str, Any]:
    if math.isinf(level):
        return said("limit.none", "No limit: you ask for no protection.")
    if level <= spent and spent:
        sentence = f"Nothing more: up to ε = {report.spent_epsilon(spent)} counts as used."
        return said("limit.spent", sentence, spent=spent)
    if level <= spent:
        return said("limit.nothing", "Nothing.")
    left, top = _coming(study), _most(study, level, spent)
    waves, one = len(left), level * max(wave.share for wave in left)
    never = f"Never more than ε = {report.spent_epsilon(top)}"
    if spent:
        rest = to_come(study, level, spent)
        used = f"up to ε = {report.spent_epsilon(spent)} counts as used"
        more = f"so at most {report.spent_epsilon(rest)} can still be used"
        sentence = f"{never} in all publications together: {used}, {more}."
        return said("limit.rest", sentence, epsilon=top, spent=spent, left=rest)
    late = waves < len(study.waves)
    if waves == 1:
        last = " in the one publication that is left" * late
        return said("limit.last" if late else "limit.one", f"{never}{last}, whatever others do.", epsilon=top)
    these = f"the {waves} publications that are left" if late else f"all {waves} publications together"
    sentence = f"{never} in {these}, and at most {report.spent_epsilon(one)} in one, whatever others do."
    return said("limit.left" if late else "limit.waves", sentence, epsilon=top, waves=waves, one=one)


def to_come(study: Study, level: float, spent: float) -> float:
    """Return what can still be used of somebody at most: what is left of their ε, and the shares of what is to come."""
    coming = _coming(study)
    shares = min(float(sum(exact(wave.share) for wave in coming)), 1.0)
    return level if math.isinf(level) and coming else min(max(level - spent, 0.0), level * shares if coming else 0.0)


def balance(study: Study, level: float | None, spent: float | None, *, answered: bool) -> dict[str, Any]:
    """Return what was spent of a person by the ledger, and what can still be used at most, if anything is to come."""
    if not answered and study.phase() in {"closed", "publishing"}:  # the wave is closed without them
        study = study.model_copy(update={"wave": study.wave + 1})
    if spent is None:
        return {"spent": None, "left": None, **said("balance.unknown", "The ledger cannot be read now.")}
    used = f"At most ε = {report.spent_epsilon(spent)} was used" if spent else "Nothing was used"
    if level is None or study.phase() in {"published", "ended", "deleted"}:
        return {"spent": jsonable(spent), "left": None, **said("balance.spent", f"{used}.", spent=spent)}
    left = to_come(study, level, spent)
    rest = f"at most {report.spent_epsilon(left)} can still be used" if left else "nothing is left"
    rest = "your choice sets no limit" if math.isinf(left) else rest
    sentence = said("balance.left", f"{used}; {rest}.", spent=spent, left=left)
    return {"spent": jsonable(spent), "left": jsonable(left), **sentence}


def _meaning(epsilon: float) -> dict[str, Any]:
    if epsilon == 0:
        return said("meaning.unused", "Your answers are not used, and what is published says nothing about them.")
    if epsilon > 7:
        sure = "Somebody who was half sure of something about your answers may become certain of it."
        return said("meaning.certain", sure)
    high = math.ceil(1000 * explain(epsilon).guess_from_half) / 10  # rounded up, and never 50 for an ε above 0
    factor = report.odds(epsilon)
    sentence = (
        f"Somebody who was 50 % sure of something about your answers can become at most {high:g} % sure: "
        f"odds change by at most a factor of {factor}."
    )
    return said("meaning.sure", sentence, percent=high, factor=factor)


def what_if(study: Study, people: Alike, level: float, more: int) -> dict[str, Any]:
    """Return each question's main figures now and if so many more people joined at one level."""
    found = {"now": people, "then": {**people, (level, 0): people.get((level, 0), 0) + more}}
    return {
        when: [_figures(one, planned(study, one, who)) for one in study.questions] if who else None
        for when, who in found.items()
    }


# ---------------------------------------------------------------------------------------------------------
# The interactive page of the paper

POINTS = 17
# Requests from one address: a slider that is dragged asks some times a second, and each costs hundreds of plans.
REQUESTS_PER_MINUTE = 300
# One request is computed at a time, and so many may wait for it: answers and publications have the other threads.
WAITING = 8
_PLACES, _TURN = threading.BoundedSemaphore(1 + WAITING), threading.Lock()


class Part(Strict):
    """A tier of a population."""

    epsilon: Annotated[float, Field(ge=0.001, le=20)]
    share: Annotated[float, Field(ge=0, le=1)]


class Mix(Strict):
    """A population: n people and their tiers; the last tier takes whom the others leave."""

    n: Annotated[int, Field(ge=2, le=10**7)]
    tiers: Annotated[list[Part], Field(min_length=1, max_length=6)]


# Near the paper's table: 700 of 1,000 people are strict.
START = {"n": 1000, "tiers": [{"epsilon": 0.1, "share": 0.7}, {"epsilon": 2.0, "share": 0.3}]}


def explore(mix: Mix) -> dict[str, Any]:
    """Compare all methods for this population, and trace each over the number of people and over the last ε."""
    if not _PLACES.acquire(blocking=False):
        raise RefusedError(429)
    try:
        with _TURN:
            return _traced(mix)
    finally:
        _PLACES.release()


def _traced(mix: Mix) -> dict[str, Any]:
    last = mix.tiers[-1].epsilon
    levels = _levels(mix, mix.n, last)
    p = plan(levels, bounds=(0, 1))
    facts = p.to_dict()
    sizes = sorted({max(2, round(mix.n * factor)) for factor in np.geomspace(0.01, 100, POINTS)})
    return {
        **{name: facts[name] for name in ("n", "abstains", "tiers")},
        "people": _people(mix, mix.n),
        "threshold": None if facts["threshold"] == "inf" else facts["threshold"],
        "frontier": p.frontier(0.01),
        "comparison": compare.compare(levels, bounds=(0, 1)).to_dict(),
        "over_n": {"n": sizes, "methods": _errors([_levels(mix, n, last) for n in sizes])},
        "over_epsilon": _over_epsilon(mix),
    }


def _levels(mix: Mix, n: int, last: float) -> Levels:
    """Return n people, the last tier with this ε."""
    counts = Counter[float]()
    for level, people in zip([*(part.epsilon for part in mix.tiers[:-1]), last], _people(mix, n), strict=True):
        counts[level] += people
    return Levels(counts)


def _people(mix: Mix, n: int) -> list[int]:
    """Return how many of n people each tier has, whole ones: shares are rounded down, the last tier takes the rest.

    If no share is left to it, the largest takes it: a tier that is said to have nobody has nobody.
    """
    shares, counts = [part.share for part in mix.tiers[:-1]], list[int]()
    for share in shares:
        whole = math.floor(round(n * share, 6))  # 29 % of 100 are 29 people
        counts.append(min(n - sum(counts), whole))
    rest = n - sum(counts)
    if sum(shares) > 1 - 1e-9:
        counts[shares.index(max(shares))] += rest
        rest = 0
    return [*counts, rest]


def _over_epsilon(mix: Mix) -> dict[str, Any]:
    """Trace the error, and what one person of the last tier spends, as that tier's ε grows: it saturates."""
    first = min(part.epsilon for part in mix.tiers)
    grid = sorted({*np.geomspace(first, 20.0, 2 * POINTS).clip(first, 20.0).tolist(), mix.tiers[-1].epsilon})
    mixes = [_levels(mix, mix.n, level) for level in grid]
    plans = [plan(levels, bounds=(0, 1)) for levels in mixes]
    spent = [float(p.spent[p.levels.epsilon == level].sum()) for p, level in zip(plans, grid, strict=True)]
    return {"epsilon": grid, "spent": spent, "methods": _errors(mixes)}


def _errors(curves: list[Levels]) -> list[dict[str, Any]]:
    """Return every method's worst-case error along a curve."""
    found = []
    for name, method in METHODS.items():
        errors = [plan(levels, bounds=(0, 1), method=name).worst_case_error for levels in curves]
        found.append({"method": name, "label": method.label, "error": errors})
    return found
