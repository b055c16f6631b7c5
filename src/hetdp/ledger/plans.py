"""Plans as events keep them: exact plain data and columns of numbers, and back again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hetdp.core.domain import Interval
from hetdp.core.levels import Levels
from hetdp.core.plan import Plan, aimed_at
from hetdp.privacy.exact import NoiseTerm
from hetdp.statistics import Statistic, statistic_of
from hetdp.statistics.mean import Mean

from .books import integers, reals


def plan_facts(made: Plan) -> dict[str, Any]:
    """Return a plan as exact plain data and columns of numbers."""
    return {
        "method": made.method,
        "bounds": [bound.hex() for bound in made.bounds],
        **parameters(made.statistic),
        "epsilon": made.levels.epsilon,
        "count": made.levels.count,
        "rounded": made.levels.rounded,
        **({"wide": True} if made.levels.wide else {}),
        "names": {e.hex(): name for e, name in made.levels.names.items()},
        "units": made.units,
        "noise": [[term.scale.hex(), term.first, term.last] for term in made.noise],
        "threshold": None if made.threshold is None else float(made.threshold).hex(),
        "abstains": made.abstains,
        "variance": float(made.variance_bound).hex(),
        "shrink": float(made.shrink).hex(),
        **aim_facts(made),
    }


def parameters(statistic: Statistic) -> dict[str, Any]:
    """Return the parameters of a statistic for an event; a plain mean has none but its bounds, which stand apart.

    Events that were written before there was a choice are of such means, and count what is missing as the midpoint.
    """
    plain = statistic.name == "mean" and statistic.missing in (None, "midpoint")
    return {} if plain else {"parameters": statistic.plain}


def plan_of(facts: Mapping[str, Any], statistic: str = "mean") -> Plan:
    """Return the plan of a statistic that `plan_facts` gave; it passes the exact check again."""
    real = float.fromhex
    names = {real(e): name for e, name in facts["names"].items()}
    people, how = (reals(facts["epsilon"]), integers(facts["count"])), {"rounded": facts["rounded"], "names": names}
    levels = Levels.from_arrays(*people, **how, wide=facts.get("wide", False))
    ends = Interval.of([real(bound) for bound in facts["bounds"]])
    asked = statistic_of(statistic, facts["parameters"]) if "parameters" in facts else Mean(ends, missing="midpoint")
    noise = tuple(NoiseTerm(real(scale), first, last) for scale, first, last in facts["noise"])
    threshold = None if facts["threshold"] is None else real(facts["threshold"])
    made = (facts["method"], levels, asked, integers(facts["units"]), noise, threshold, facts["abstains"])
    aim, bound, shrink = aim_of(asked, facts), real(facts["variance"]), real(facts["shrink"])
    return Plan(*made, variance_bound=bound, shrink=shrink, **aim)


def aim_facts(made: Any) -> dict[str, str]:
    """Return drift and target of a plan, or of a request for one, as exact plain data.

    What is the default is left out, so that ledgers that were written before it could be stated mean the same.
    """
    people = made.target == "people" and not made.statistic.whole
    return {**({"drift": float(made.drift).hex()} if made.drift else {}), **({"target": "people"} if people else {})}


def aim_of(statistic: Statistic, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes of a plan that `aim_facts` gave."""
    drift = float.fromhex(facts.get("drift", "0x0p+0"))
    return {"drift": drift, "target": aimed_at(statistic, drift, facts.get("target"))}
