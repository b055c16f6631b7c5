"""What is public while people join: the plan for those who are there, what one more would spend, what if more came.

Nothing here can see an answer: every function takes a study and {ε: people}, and calls the library.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from hetdp.core.levels import Levels
from hetdp.core.plan import Plan, plan
from hetdp.ledger import Rule, budget_units
from hetdp.ledger import level as ledger_level
from hetdp.report import facts, text

from .studies import Study

People = Mapping[float, int]

STEPS = (1.0, 1.5, 2.0, 3.0, 5.0, 7.0)
"""Where a slider for a free choice of ε stops in every decade."""


def planned(study: Study, people: People) -> Plan | None:
    """Return the plan of the current wave if it were published now; None while nobody is there."""
    if not sum(people.values()):
        return None
    key = tuple(sorted((shared(study, level), count) for level, count in people.items() if count))
    names = tuple(names_of(study, people).items())
    return _plan(key, names, study.interval.lo, study.interval.hi)


@lru_cache(maxsize=256)
def _plan(people: tuple[tuple[float, int], ...], names: tuple[tuple[float, str], ...], lo: float, hi: float) -> Plan:
    return plan(Levels(dict(people), dict(names)), bounds=(lo, hi))


@lru_cache(maxsize=64)
def _plan_facts(p: Plan) -> dict[str, Any]:
    """Everything public about a plan; `core.plan` returns the same object for the same people: cached."""
    return facts.plan_facts(p)


def shared(study: Study, level: float) -> float:
    """Return with which ε somebody enters the current wave: its share of theirs, as the ledger reckons it."""
    return allowance(level, study.current.share)


@lru_cache(maxsize=4096)
def allowed_units(epsilon: float, share: float) -> int:
    """Return what a wave may use of somebody at most, in the ledger's units."""
    units = budget_units(epsilon)
    return Rule.given(share=share).allowed(units, units)


def allowance(epsilon: float, share: float) -> float:
    """Return the same as the ε that the ledger makes of it."""
    return ledger_level(allowed_units(epsilon, share))


def live(study: Study, people: People) -> dict[str, Any]:
    """Return what the curator sees: who joined which tier, and the library's facts about the plan."""
    p = planned(study, people)
    return {
        "study": study.to_dict(),
        "n": sum(people.values()),
        "joined": _joined(study, people, p),
        "plan": None if p is None else _brief(_plan_facts(p)),
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
            "epsilon": _json(band.epsilon[1]),
            "people": band.people,
            "spent": _json(band.spent[1]),
            "share": band.share,
        }
        for band in facts.bands(p)
    ]


_SHOWN = {"Saturation", "Noise", "Error", "Instead", "Meaning", "Left out"}


def _brief(facts: dict[str, Any]) -> dict[str, Any]:
    """Leave out what only a published result needs."""
    return {name: fact for name, fact in facts.items() if name not in {"exact", "assumptions"}}


def names_of(study: Study, people: People) -> dict[float, str]:
    """Return names for the levels of the current wave."""
    return {shared(study, _level(choice)): choice["name"] for choice in choices(study, people)}


def choices(study: Study, people: People) -> list[dict[str, Any]]:
    """Return the privacy choices of a study: its tiers, or the levels that people chose freely."""
    if study.free is None:
        return [tier.model_dump() for tier in study.tiers]
    return [{"name": f"ε = {level:g}", "epsilon": level, "sentence": ""} for level in people]


def _level(choice: Mapping[str, Any]) -> float:
    return math.inf if isinstance(choice["epsilon"], str) else float(choice["epsilon"])


def stops(study: Study) -> list[float]:
    """Return where the slider of a free choice stops, both ends included."""
    if study.free is None:
        return []
    least, most = study.free.least, study.free.most
    series = [step * 10.0**decade for decade in range(-3, 2) for step in STEPS]
    return [least, *(round(stop, 6) for stop in series if least < stop < most), most]


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
        "allowed": _json(allowed),
        "spends": _json(spent),
        "sure": _sure(level),
        "meaning": _meaning(level),
        "sentence": _cost_sentence(allowed, spent, free=free),
    }


def _json(epsilon: float) -> float | str:
    return "inf" if math.isinf(epsilon) else epsilon


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
        "threshold": None if p.threshold is None else _json(p.threshold),
        "worst_case_error": p.worst_case_error,
        "even_spread_error": facts.even_spread_error(p),
        "abstains": p.abstains,
    }
