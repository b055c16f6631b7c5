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

from hetdp.core.domain import epsilon_of, jsonable
from hetdp.core.levels import Levels
from hetdp.core.plan import Plan, Row, plan
from hetdp.estimators import METHODS
from hetdp.report import compare, numbers, text
from hetdp.report.explain import explain

from .access import RefusedError
from .studies import Strict, Study, Tier, table

People = Mapping[float, int]

# Of the report's sentences about a plan, those that concern a study before it is published.
_SHOWN = {"Saturation", "Noise", "Error", "Instead", "Meaning", "Left out"}
# Where a slider for a free choice of ε stops in every decade.
STEPS = (1.0, 1.5, 2.0, 3.0, 5.0, 7.0)


def planned(study: Study, people: People) -> Plan:
    """Return the plan of the current wave if it were published now; there must be somebody."""
    counts = Counter[float]()
    for level, count in people.items():
        counts[study.shared(level)] += count  # a small share may make two levels one
    return plan(Levels(counts, study.names(people)), bounds=study.bounds)


def _plan_facts(p: Plan) -> dict[str, Any]:
    """Return what is public about a plan but for what only a published result needs."""
    return {name: fact for name, fact in p.to_dict().items() if name not in {"exact", "assumptions"}}


def live(study: Study, people: People) -> dict[str, Any]:
    """Return what the curator sees: who joined which tier, and the library's facts about the plan."""
    p = planned(study, people) if people else None
    rows = [] if p is None else table(p, study.names(people))
    if study.free is None:  # every tier has a row, also an empty one, or one that is no level of its own in this wave
        levels = {} if p is None else {row.epsilon: row for row in p.table}
        rows = [_tier(tier, people.get(tier.level, 0), levels.get(study.shared(tier.level))) for tier in study.tiers]
    return {
        "study": study.to_dict(),
        "n": sum(people.values()),
        "joined": rows,
        "plan": None if p is None else _plan_facts(p),
        "sentences": [] if p is None else [list(pair) for pair in text.plan_lines(p) if pair[0] in _SHOWN],
    }


def _tier(tier: Tier, people: int, row: Row | None) -> dict[str, Any]:
    spent, share = (jsonable(row.spent), row.weight * people) if row is not None and people else (None, None)
    return {**tier.model_dump(), "people": people, "spent": spent, "share": share}


def choices(study: Study, own: float | None = None, spent: float = 0.0) -> list[dict[str, Any]]:
    """Return the privacy choices of a study with what each promises: its tiers, or stops of a slider.

    `own` is what the person chose before, and a stop too, and `spent` what was spent of them already.
    """
    offers = [tier.model_dump() for tier in study.tiers]
    if study.free is not None:
        least, most = study.free.least, study.free.most
        series = [round(step * 10.0**decade, 6) for decade in range(-3, 2) for step in STEPS]
        stops = {least, most, *(stop for stop in series if least < stop < most), *([] if own is None else [own])}
        offers = [{"name": f"ε = {stop:g}", "epsilon": stop, "sentence": ""} for stop in sorted(stops)]
    return [{**offer, **_promise(study, epsilon_of(offer["epsilon"]), own, spent)} for offer in offers]


def _promise(study: Study, level: float, own: float | None, spent: float) -> dict[str, Any]:
    """Return what holds for one person with this ε whatever others do: upper limits, and no forecast.

    All waves together use at most ε, or nothing beyond what was spent before if that was more.
    """
    limit = max(level, spent)
    return {
        "own": level == own,
        "more": own is not None and level > own,
        "sure": explain(limit).guess_from_half,
        "meaning": _meaning(limit),
        "limit": _limit(level, spent, max(wave.share for wave in study.waves), len(study.waves)),
    }


def _limit(level: float, spent: float, share: float, waves: int) -> str:
    if math.isinf(level):
        return "No limit: you ask for no protection."
    if level <= spent:
        return f"Nothing more: ε = {numbers.spent_epsilon(spent)} was spent before." if spent else "Nothing, ever."
    every = f" in all {waves} publications together, and at most {numbers.spent_epsilon(level * share)} in one"
    return f"Never more than ε = {numbers.spent_epsilon(level)}{every if waves > 1 else ''}, whatever others do."


def balance(level: float | None, spent: float | None) -> dict[str, Any]:
    """Return what was spent of a person by the ledger, and what is left at most of the ε that they allow now."""
    if spent is None:
        return {"spent": None, "left": None, "sentence": "The ledger cannot be read now."}
    used = f"ε = {numbers.spent_epsilon(spent)}" if spent else "Nothing"
    if level is None:
        return {"spent": jsonable(spent), "left": None, "sentence": f"{used}."}
    left = level if math.isinf(level) else max(level - spent, 0.0)
    rest = f"at most {numbers.spent_epsilon(left)} is left" if left else "nothing is left"
    rest = "your choice sets no limit" if math.isinf(left) else rest
    return {
        "spent": jsonable(spent),
        "left": jsonable(left),
        "sentence": f"{used}; {rest}.",
    }


def _meaning(epsilon: float) -> str:
    if epsilon == 0:
        return "Your answer is not used, and what is published says nothing about it."
    if epsilon > 7:
        return "Somebody who was half sure of something about your answer may become certain of it."
    high = math.ceil(1000 * explain(epsilon).guess_from_half) / 10  # rounded up, and never 50 for an ε above 0
    return (
        f"Somebody who was 50 % sure of something about your answer can become at most {high:g} % sure: "
        f"odds change by at most a factor of {numbers.odds(epsilon)}."
    )


def what_if(study: Study, people: People, level: float, more: int) -> dict[str, Any]:
    """Return the plan's main figures now and if so many more people joined at one level."""
    then = {**people, level: people.get(level, 0) + more}
    figures = ("n", "threshold", "worst_case_error", "even_spread_error", "abstains")
    found = {"now": _plan_facts(planned(study, people)) if people else None, "then": _plan_facts(planned(study, then))}
    return {when: facts and {name: facts[name] for name in figures} for when, facts in found.items()}


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
        "threshold": None if facts["threshold"] == "inf" else facts["threshold"],
        "frontier": p.frontier(0.01),
        "comparison": compare.compare(levels, bounds=(0, 1)).to_dict(),
        "over_n": {"n": sizes, "methods": _errors([_levels(mix, n, last) for n in sizes])},
        "over_epsilon": _over_epsilon(mix),
    }


def _levels(mix: Mix, n: int, last: float) -> Levels:
    """Return n whole people, the last tier with this ε: shares are rounded down, the last tier takes the rest."""
    counts = Counter[float]()
    for part in mix.tiers[:-1]:
        counts[part.epsilon] += min(n - counts.total(), math.floor(n * part.share))
    counts[last] += n - counts.total()
    return Levels(counts)


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
