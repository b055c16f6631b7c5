"""The exact check of an audit: what one person's value can do, in integers, through the real reading path.

For every level of ε one person's value is set to each extreme in turn and the people are read by each engine. What the
noise sampler would be given, T = ⌊Σ W·S / Q⌋ for each noise term, comes from the release's own function. T + noise of
scale s against T′ + noise of scale s differs by a loss of exactly |T − T′|/s, so no drawing is needed: the largest
loss over all pairs of values is compared with the claim in Fractions.

It cannot see the sampler itself, nor what a release does besides: those are drawn from, see `checks.audit_bound`.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from hetdp.core.domain import GRID, Interval
from hetdp.core.levels import Levels
from hetdp.core.plan import Plan
from hetdp.privacy.release import floored_sum
from hetdp.privacy.sampling import KEEP_ONE
from hetdp.sources import read
from hetdp.tally.groupby import Table
from hetdp.tally.tally import Tally

from .samples import Engine

_COMPANY = 3
"""People at each level who are read beside the one whose value changes; the rest are only counted."""


@dataclass(frozen=True)
class Neighbours:
    """The tallies of one engine that differ in the value of one person at one level; `raised` if a value raised."""

    engine: str
    level: int
    tallies: tuple[Tally, ...]
    raised: tuple[float | None, ...] = ()


@dataclass(frozen=True)
class Exact:
    """What the exact check found about one level of one plan: the largest loss (inf if public), and what is wrong."""

    loss: float
    pairs: int
    faults: tuple[str, ...]


def extremes(interval: Interval) -> tuple[float | None, ...]:
    """Return the values that have broken somebody's private mean; None is a missing one."""
    ends = (interval.lo, interval.hi, interval.mid)
    return (*ends, math.inf, -math.inf, math.nan, 1e9, -1e9, 5e-324, None)


def neighbours(levels: Levels, interval: Interval, engine: Engine, step: Callable[[int], None]) -> list[Neighbours]:
    """Return, for every level, the tallies with one person's value at every extreme, read by `engine`."""
    company = np.minimum(levels.count, _COMPANY)
    epsilon = np.repeat(levels.epsilon, company).tolist()
    choice = extremes(interval)
    found = []
    with tempfile.TemporaryDirectory(prefix="hetdp-audit-") as folder:
        for level, person in enumerate((np.cumsum(company) - company).tolist()):
            values = [choice[i % len(choice)] for i in range(len(epsilon))]
            tallies: list[Tally] = []
            raised = []
            for values[person] in choice:
                try:
                    source, names = engine.give(values, epsilon, Path(folder))
                    tallies.append(_with_the_rest(read(source, bounds=interval, **names), levels, company))
                except Exception:  # noqa: BLE001  whatever a value makes raise is a finding, and its message may quote it
                    raised.append(values[person])
                step(1)
            found.append(Neighbours(engine.name, level, tuple(tallies), tuple(raised)))
    return found


def everybody_low(levels: Levels, interval: Interval, but: int | None) -> Tally:
    """Return the tally of people who are all at the lower bound, but for one of the level `but` at the upper one."""
    company = np.minimum(levels.count, _COMPANY)
    values = np.full(int(company.sum()), interval.lo)
    if but is not None:
        values[company[:but].sum()] = interval.hi
    return _with_the_rest(read(values, epsilon=np.repeat(levels.epsilon, company), bounds=interval), levels, company)


def _with_the_rest(some: Tally, levels: Levels, company: Any) -> Tally:
    """Add the people who were not read, all at the lower bound."""
    more = levels.count > company
    if not more.any():
        return some
    rest = Table.single(levels.epsilon[more], (levels.count - company)[more], np.zeros(int(more.sum()), np.int64))
    return some + Tally(rest, some.interval)


def exact_check(plan: Plan, around: Neighbours) -> Exact:
    """Return the largest loss over all pairs of values of one person, and every claim that it breaks."""
    faults = []
    if around.raised:
        faults.append(f"{around.engine}: a value made the reading fail")
    if any(tally.levels != plan.levels for tally in around.tallies):
        return Exact(math.inf, 0, (*faults, f"{around.engine}: a value changed who is counted"))
    loss, pairs = _kept_or_not(plan, around) if plan.keep is not None else _moved(plan, around)
    level, claimed = around.level, float(plan.spent[around.level])
    epsilon = float(plan.levels.epsilon[level])
    held = math.nextafter(epsilon, 0) if epsilon < math.inf else math.inf  # ε⁻, see `privacy.exact`
    if loss > held:
        faults.append(f"{around.engine}: a value costs {float(loss):.6g}, more than ε = {epsilon:g}")
    elif loss > claimed:
        faults.append(f"{around.engine}: a value costs {float(loss):.6g}, more than the {claimed:.6g} that is claimed")
    return Exact(float(loss), pairs, tuple(faults))


def _moved(plan: Plan, around: Neighbours) -> tuple[Fraction | float, int]:
    """Σ|T − T′|/s over the noise terms, at its largest; inf if what no noise covers moves."""
    covered = np.zeros(len(plan.levels), dtype=bool)
    for term in plan.noise:
        covered[term.first : term.last] = True
    given = [
        (
            floored_sum(tally, plan, ~covered),
            *(floored_sum(tally, plan, slice(term.first, term.last)) for term in plan.noise),
        )
        for tally in around.tallies
    ]
    largest: Fraction | float = Fraction(0)
    for one, other in combinations(given, 2):
        steps = zip(one[1:], other[1:], plan.noise, strict=True)
        loss = sum((abs(a - b) / Fraction(term.scale) for a, b, term in steps), Fraction(0))
        largest = max(largest, math.inf if one[0] != other[0] else loss)
    return largest, math.comb(len(given), 2)


def _kept_or_not(plan: Plan, around: Neighbours) -> tuple[Decimal | float, int]:
    """ln(1 + p·(e^t − 1)), t the largest |T − T′|/s between any two values kept, or one kept and the person left out.

    The argument is in `privacy.sampling`, and so are the digits: 400, less a hair for what rounding may add.
    """
    keep, unit = plan.keep, int(plan.units.max())
    if keep is None or not keep[around.level]:
        return Decimal(0), math.comb(len(around.tallies), 2)
    if not plan.noise:
        return math.inf, 0
    totals = [int(tally.table.total[around.level, 0]) for tally in around.tallies]
    given = {0, *(unit * (2 * (total - min(totals)) - GRID) // (2 * GRID) for total in totals)}
    with localcontext(prec=400):
        t = Decimal(max(given) - min(given)) / Decimal(plan.noise[0].scale)
        loss = (1 + Decimal(int(keep[around.level])) / KEEP_ONE * (t.exp() - 1)).ln()
        return loss * (1 - Decimal("1e-60")), math.comb(len(totals) + 1, 2)
