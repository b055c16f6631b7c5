"""The interactive page of the paper: every method over a range of people, for tiers that the reader moves."""

from __future__ import annotations

import math
import threading
from functools import lru_cache
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from hetdp.core.levels import Levels
from hetdp.core.plan import plan
from hetdp.estimators import methods
from hetdp.report import compare

from .guard import RefusedError
from .studies import Strict

POINTS = 17
# Requests from one address: a slider that is dragged asks some times a second, and each costs hundreds of plans.
A_MINUTE = 300

# Requests that may wait for their turn, one after the other: answers and publications have the other threads.
WAITING = 8


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


class Explorer:
    """Computes for one reader at a time; few others may wait."""

    def __init__(self) -> None:
        self._places, self._turn = threading.BoundedSemaphore(1 + WAITING), threading.Lock()

    def compare(self, mix: Mix) -> dict[str, Any]:
        """Compare all methods for this population, and trace each over the number of people and over the last ε."""
        if not self._places.acquire(blocking=False):
            raise RefusedError(429)
        try:
            with self._turn:
                return _traced(mix.model_dump_json())
        finally:
            self._places.release()


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
    return {"n": sizes, "methods": _errors([people(mix.model_copy(update={"n": n})) for n in sizes])}


def _over_epsilon(mix: Mix) -> dict[str, Any]:
    """Trace the error, and what one person of the last tier spends, as that tier's ε grows: it saturates."""
    first = min(part.epsilon for part in mix.tiers)
    *others, last = mix.tiers
    grid = sorted({*np.geomspace(first, 20.0, 2 * POINTS).clip(first, 20.0).tolist(), last.epsilon})
    changed = ([*others, last.model_copy(update={"epsilon": level})] for level in grid)
    mixes = [people(mix.model_copy(update={"tiers": tiers})) for tiers in changed]
    plans = [plan(levels, bounds=(0, 1)) for levels in mixes]
    spent = [float(p.spent[p.levels.epsilon == level].sum()) for p, level in zip(plans, grid, strict=True)]
    return {"epsilon": grid, "spent": spent, "methods": _errors(mixes)}


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
