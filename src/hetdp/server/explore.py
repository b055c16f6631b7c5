"""The interactive page of the paper: every method over a range of people, for tiers that the reader moves."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Annotated, Any

import numpy as np
from anyio.to_thread import run_sync
from fastapi import APIRouter, Request
from pydantic import Field

from hetdp.core.levels import Levels
from hetdp.core.plan import plan
from hetdp.estimators import methods
from hetdp.report import compare

from .errors import RefusedError
from .strict import StrictRoute
from .studies import _Strict

POINTS = 17
A_MINUTE = 300
"""Requests from one address: a slider that is dragged asks some times a second, and each costs hundreds of plans."""

WAITING = 8
"""Requests that may wait for the one thread that this page has: answers and publications have the others."""

router = APIRouter(route_class=StrictRoute)


class Part(_Strict):
    """A tier of a population."""

    epsilon: Annotated[float, Field(ge=0.001, le=20)]
    share: Annotated[float, Field(ge=0, le=1)]


class Mix(_Strict):
    """A population: n people and their tiers; the last tier takes whom the others leave."""

    n: Annotated[int, Field(ge=2, le=10**7)]
    tiers: Annotated[list[Part], Field(min_length=1, max_length=6)]


START = {"n": 1000, "tiers": [{"epsilon": 0.1, "share": 0.7}, {"epsilon": 2.0, "share": 0.3}]}
"""Near the paper's table: 700 of 1,000 people are strict."""


@router.post("/api/explore", tags=["everybody"])
async def explore(request: Request, mix: Mix) -> dict[str, Any]:
    """Compare all methods for this population, and trace each over the number of people and over the last ε."""
    address = request.client.host if request.client else ""
    if not request.app.state.rates.allow("explore", address, min(A_MINUTE, request.app.state.settings.per_address)):
        raise RefusedError(429)
    state = request.app.state
    if state.exploring > WAITING:
        raise RefusedError(429)
    state.exploring += 1
    try:
        return await run_sync(_traced, mix.model_dump_json(), limiter=state.explorers)
    finally:
        state.exploring -= 1


@lru_cache(maxsize=256)
def _traced(text: str) -> dict[str, Any]:
    mix = Mix.model_validate_json(text)
    levels = people(mix)
    p = plan(levels, bounds=(0, 1))
    return {
        "n": p.n,
        "threshold": None if p.threshold is None or math.isinf(p.threshold) else p.threshold,
        "abstains": p.abstains,
        "tiers": p.to_dict()["tiers"],
        "frontier": p.frontier(0.01),
        "comparison": compare.compare(levels, bounds=(0, 1)).to_dict(),
        "over_n": _over_n(mix),
        "over_epsilon": _over_epsilon(mix),
    }


def people(mix: Mix) -> Levels:
    """Return whole people: shares are rounded down, the last tier takes the rest."""
    counts: dict[float, int] = {}
    left = mix.n
    for part in mix.tiers:
        count = left if part is mix.tiers[-1] else min(left, math.floor(mix.n * part.share))
        counts[part.epsilon] = counts.get(part.epsilon, 0) + count
        left -= count
    return Levels(counts)


def _over_n(mix: Mix) -> dict[str, Any]:
    sizes = sorted({max(2, round(mix.n * factor)) for factor in np.geomspace(0.01, 100, POINTS)})
    curves = [people(mix.model_copy(update={"n": n})) for n in sizes]
    return {"n": sizes, "methods": _errors(curves)}


def _over_epsilon(mix: Mix) -> dict[str, Any]:
    """Trace the error, and what one person of the last tier spends, as that tier's ε grows: it saturates."""
    first = min(part.epsilon for part in mix.tiers)
    grid = np.geomspace(first, 20.0, 2 * POINTS).tolist() if first < 20 else [20.0]
    mixes = [people(_last(mix, level)) for level in grid]
    plans = [plan(levels, bounds=(0, 1)) for levels in mixes]
    spent = [float(p.spent[p.levels.epsilon == level].sum()) for p, level in zip(plans, grid, strict=True)]
    return {"epsilon": grid, "spent": spent, "methods": _errors(mixes)}


def _last(mix: Mix, epsilon: float) -> Mix:
    changed = mix.tiers[-1].model_copy(update={"epsilon": epsilon})
    return mix.model_copy(update={"tiers": [*mix.tiers[:-1], changed]})


def _errors(curves: list[Levels]) -> list[dict[str, Any]]:
    """Return every method's worst-case error along a curve."""
    return [
        {
            "method": name,
            "label": method.label,
            "error": [plan(levels, bounds=(0, 1), method=name).worst_case_error for levels in curves],
        }
        for name, method in methods().items()
    ]
