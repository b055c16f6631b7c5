"""What is public while people join: the plan for those who are there, what one more would spend, what if more came.

Nothing here can see an answer: every function takes a study and {ε: people}, and calls the library.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from hetdp.core.domain import epsilon_of
from hetdp.core.levels import Levels
from hetdp.core.plan import Plan, plan
from hetdp.files import jsonable
from hetdp.ledger import Rule, budget_units
from hetdp.ledger import level as ledger_level
from hetdp.report import text

from .studies import Study

People = Mapping[float, int]

# Of the report's sentences about a plan, those that concern a study before it is published.
_SHOWN = {"Saturation", "Noise", "Error", "Instead", "Meaning", "Left out"}
# Where a slider for a free choice of ε stops in every decade.
STEPS = (1.0, 1.5, 2.0, 3.0, 5.0, 7.0)


def planned(study: Study, people: People) -> Plan | None:
    """Return the plan of the current wave if it were published now; None while nobody is there."""
    if not sum(people.values()):
        return None
    counts = Counter[float]()
    for level, count in people.items():
        counts[shared(study, level)] += count  # a small share may make two levels one
    names = tuple(names_of(study, people).items())
    return _plan(tuple(sorted(counts.items())), names, study.lo, study.hi)


@lru_cache(maxsize=256)
def _plan(people: tuple[tuple[float, int], ...], names: tuple[tuple[float, str], ...], lo: float, hi: float) -> Plan:
    return plan(Levels(dict(people), dict(names)), bounds=(lo, hi))


@lru_cache(maxsize=64)
def _plan_facts(p: Plan) -> dict[str, Any]:
    """Return what is public about a plan but for what only a published result needs; the same plan comes often."""
    return {name: fact for name, fact in p.to_dict().items() if name not in {"exact", "assumptions"}}


def shared(study: Study, level: float) -> float:
    """Return with which ε somebody enters the current wave: its share of theirs, as the ledger reckons it."""
    return ledger_level(allowed_units(level, study.current.share))


@lru_cache(maxsize=4096)
def allowed_units(epsilon: float, share: float) -> int:
    """Return what a wave may use of somebody at most, in the ledger's units."""
    units = budget_units(epsilon)
    return Rule.given(share=share).allowed(units, units)


def live(study: Study, people: People) -> dict[str, Any]:
    """Return what the curator sees: who joined which tier, and the library's facts about the plan."""
    p = planned(study, people)
    return {
        "study": study.to_dict(),
        "n": sum(people.values()),
        "joined": _joined(study, people, p),
        "plan": None if p is None else _plan_facts(p),
        "sentences": [] if p is None else [list(pair) for pair in text.plan_lines(p) if pair[0] in _SHOWN],
    }


def _joined(study: Study, people: People, p: Plan | None) -> list[dict[str, Any]]:
    """Return the rows of the table of choices: every tier, also an empty one; of free choices at most twelve bands."""
    rows = {} if p is None else {row["name"]: row for row in table(p, names_of(study, people))}
    if study.free is not None:
        return list(rows.values())
    empty = {"people": 0, "spent": None, "share": None}
    return [{**empty, **rows.get(tier.name, {}), **tier.model_dump()} for tier in study.tiers]


def table(p: Plan, names: Mapping[float, str]) -> list[dict[str, Any]]:
    """Return who is in a plan, in at most twelve rows: a level, or a band of neighbouring ones."""
    return [
        {
            "name": names.get(band.epsilon[0], f"ε = {text.epsilon(band.epsilon[0])}")
            if band.epsilon[0] == band.epsilon[1]
            else f"ε = {text.epsilon(band.epsilon[0])} to {text.epsilon(band.epsilon[1])}",
            "epsilon": jsonable(band.epsilon[1]),
            "people": band.people,
            "spent": jsonable(band.spent[1]),
            "share": band.share,
        }
        for band in p.facts.bands
    ]


def names_of(study: Study, people: People) -> dict[float, str]:
    """Return names for the levels of the current wave."""
    if study.free is None:
        return {shared(study, tier.level): tier.name for tier in study.tiers}
    return {shared(study, level): f"ε = {level:g}" for level in people}


def choices(study: Study, people: People) -> list[dict[str, Any]]:
    """Return the privacy choices of a study with what each would cost now: its tiers, or stops of a slider."""
    offers = [tier.model_dump() for tier in study.tiers]
    if study.free is not None:
        least, most = study.free.least, study.free.most
        series = [round(step * 10.0**decade, 6) for decade in range(-3, 2) for step in STEPS]
        stops = [least, *(stop for stop in series if least < stop < most), most]
        offers = [{"name": f"ε = {stop:g}", "epsilon": stop, "sentence": ""} for stop in stops]
    return [{**offer, "cost": cost(study, people, epsilon_of(offer["epsilon"]))} for offer in offers]


def cost(study: Study, people: People, level: float) -> dict[str, Any]:
    """Return what one more person with this ε would spend if the study were published right then.

    Over all waves: each may spend its share, so the saturation of the current one is what they all have if
    nobody else comes.
    """
    p = planned(study, {**people, level: people.get(level, 0) + 1})
    allowed = shared(study, level)
    row = next((row for row in p.table if row.epsilon == allowed), None) if p else None
    spent = row.spent if row else 0.0
    free = row is not None and row.free > 1e-3 * min(allowed, 1e6)
    return {
        "allowed": jsonable(allowed),
        "spends": jsonable(spent),
        "sure": _sure(level),
        "meaning": _meaning(level),
        "sentence": _cost_sentence(allowed, spent, free=free),
    }


def _sure(epsilon: float) -> float:
    """Return how sure somebody can become who was half sure: odds of 1 grow to e^ε at most."""
    return 1 / (1 + math.exp(-epsilon))


def _meaning(epsilon: float) -> str:
    if epsilon == 0:
        return "Your answer is not used. Nobody can learn anything about it."
    if epsilon > 7:
        return "Somebody who was half sure of something about your answer may become certain of it."
    high = max(math.ceil(1000 * _sure(epsilon)), 501) / 10  # rounded up, and never 50 for an ε above 0
    return (
        f"Somebody who was 50 % sure of something about your answer can become at most {high:g} % sure: "
        f"odds change by at most a factor of {text.odds(epsilon)}."
    )


def _cost_sentence(allowed: float, spent: float, *, free: bool) -> str:
    if allowed == 0:
        return "Your value would not be used at all."
    if spent == 0:
        return "With so few people nothing would be spent yet: no data would be used."
    if spent > 20:
        return "You ask for no protection. Right now your answer would count almost as it is."
    asked, used = text.epsilon(allowed), text.spent_epsilon(spent)
    if free:
        given = "You ask for no protection" if math.isinf(allowed) else f"You allow {asked}"
        return f"{given}; right now you would spend about {used}. The rest is free."
    return f"You allow {asked}, and right now all of it would be spent."


def what_if(study: Study, people: People, level: float, more: int) -> dict[str, Any]:
    """Return the plan's main figures now and if so many more people joined at one level."""
    then = {**people, level: people.get(level, 0) + more}
    return {"now": _figures(planned(study, people)), "then": _figures(planned(study, then))}


def _figures(p: Plan | None) -> dict[str, Any] | None:
    if p is None:
        return None
    return {
        "n": p.n,
        "threshold": jsonable(p.threshold),
        "worst_case_error": p.worst_case_error,
        "even_spread_error": p.facts.even_spread_error,
        "abstains": p.abstains,
    }
