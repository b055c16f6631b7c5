"""The one-line form of read → plan → release."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ._plan import plan
from ._release import Release, release, release_records
from .estimators import find
from .sources import read, records


def mean(
    source: Any,
    *,
    epsilon: Any,
    bounds: Any,
    value: str | None = None,
    method: str = "adpm",
    variance: float | None = None,
    tiers: Mapping[str, Any] | None = None,
) -> Release:
    """Return a private mean in which every person is protected at their own ε.

    ε is treated as public and must not depend on the value. Replacing one person's value changes the probability
    of any result by at most a factor e^ε, for each person's own ε.

    Parameters
    ----------
    source, value, epsilon, bounds, tiers
        As for `read`.
    method, variance
        As for `plan`.

    Examples
    --------
    >>> incomes = [31_000, 52_500, 18_000, 77_000] * 250
    >>> privacy = [0.05, 0.2, 1, float("inf")] * 250
    >>> result = mean(incomes, epsilon=privacy, bounds=(0, 250_000))
    >>> result.plan.n, round(result.plan.threshold, 3)
    (1000, 0.298)
    """
    if find(method).needs_records:
        values, levels = records(source, value=value, epsilon=epsilon, method=method, tiers=tiers)
        return release_records(values, levels, plan(levels, bounds=bounds, method=method, variance=variance))
    tally = read(source, value=value, epsilon=epsilon, bounds=bounds, tiers=tiers)
    return release(tally, plan(tally.levels, bounds=tally.interval, method=method, variance=variance))
