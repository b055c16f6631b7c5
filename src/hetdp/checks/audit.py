"""Audit: does this installation keep what its plans claim? Exact integers, the law of the noise, and many releases."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hetdp.core.domain import Interval
from hetdp.core.levels import Levels
from hetdp.core.plan import Plan, plan
from hetdp.errors import InputError
from hetdp.estimators import find
from hetdp.estimators import methods as every_method
from hetdp.privacy.release import release, release_records
from hetdp.privacy.sampling import SamplingPlan

from .audit_bound import draws_needed, lower_bound
from .audit_exact import Neighbours, everybody_low, exact_check, extremes, neighbours
from .doctor import ALPHA, Fit, sampler_gate
from .samples import Engine
from .samples import engines as every_engine

if TYPE_CHECKING:
    from rich.console import RenderableType

TIERS = {0.0: 10, 0.1: 200, 1.0: 70, 4.0: 20}
NAMES = {0.0: "never", 0.1: "strict", 1.0: "standard", 4.0: "open"}
DRAWS = 1_500
_FEWEST = 100
_MOST_LEVELS = 64
_AT_ONCE = 100

Tell = Callable[[str, int, int], None]
"""Is told what is being done, how many steps are done and how many there are."""


@dataclass(frozen=True)
class Finding:
    """What was found about one level of one method.

    Attributes
    ----------
    claimed
        What the plan says that one person spends.
    exact
        The largest loss over all pairs of extreme values and all engines, in exact arithmetic.
    lower_bound
        What the draws show, at least, with the confidence of the whole audit; None for a public level.
    needed
        The releases of each dataset with which a loss of 1.1 × the claim would be seen, nine times in ten.
    faults
        Broken claims, as sentences.
    """

    method: str
    name: str
    epsilon: float
    claimed: float
    exact: float
    pairs: int
    lower_bound: float | None
    needed: float
    faults: tuple[str, ...]

    @property
    def holds(self) -> bool:
        """Whether no claim is broken."""
        return not self.faults


@dataclass(frozen=True)
class Audit:
    """The findings of an audit. `holds` is the verdict; `report` says what each part can and cannot notice.

    Attributes
    ----------
    findings
        One for every method and level.
    fits
        The goodness of fit of the noise.
    refusals
        Methods that refuse these levels, with their reason.
    draws
        Releases of each dataset.
    alpha
        The probability that a right installation is called broken by its draws, over all methods and levels.
    """

    findings: tuple[Finding, ...]
    fits: tuple[Fit, ...]
    refusals: Mapping[str, str]
    engines: tuple[str, ...]
    draws: int
    alpha: float
    levels: Levels

    @property
    def holds(self) -> bool:
        """Whether no claim is broken and the noise has the right law."""
        return all(finding.holds for finding in self.findings) and all(fit.passed for fit in self.fits)

    @property
    def alpha_each(self) -> float:
        """The error probability of one bound, by the union bound."""
        return self.alpha / max(1, sum(finding.lower_bound is not None for finding in self.findings))

    def to_dict(self) -> dict[str, Any]:
        """Return the audit as plain data."""
        from .audit_report import facts

        return facts(self)

    def body(self) -> RenderableType:
        """Return the audit for a rich console."""
        from .audit_report import body

        return body(self)

    def report(self) -> str:
        """Return the audit as text."""
        from hetdp.report.text import text

        return text(self.body())

    def plot(self, path: str | Path) -> None:
        """Write a picture: what is claimed and what was shown, for every method and level."""
        from hetdp.report import plots

        from .audit_report import picture

        plots.save(picture(self), Path(path))

    __str__ = report


def audit(
    levels: Levels | Mapping[Any, int] | Any = None,
    *,
    methods: Sequence[str] | None = None,
    engines: Sequence[str] | None = None,
    bounds: Any = (-0.5, 0.5),
    draws: int = DRAWS,
    tell: Tell | None = None,
) -> Audit:
    """Return whether releases keep what their plans claim, for every method and level. No data of anybody is used.

    Parameters
    ----------
    levels
        As for `plan`; four levels from 0 to 4 unless given.
    methods, engines
        Names of `hetdp.methods()` and of the engines that read; all of them, and all that are installed, unless given.
    bounds
        The interval of the invented values.
    draws
        How many releases to make of each dataset.
    tell
        Is told of progress.
    """
    levels = Levels(TIERS, NAMES) if levels is None else Levels.given(levels)
    interval, chosen = Interval.of(bounds), _engines(engines)
    _checked(levels, draws)
    plans, refusals = _plans(levels, interval, methods)
    private = np.flatnonzero(np.isfinite(levels.epsilon)).tolist()
    reads = len(chosen) * len(levels) * len(extremes(interval))
    step = _counted(tell, reads + len(plans) * (len(private) + 1) * draws)
    around = [n for engine in chosen for n in neighbours(levels, interval, engine, partial(step, engine.name))]
    fits = sampler_gate()
    alpha_each = ALPHA / max(1, len(plans) * len(private))
    findings = []
    for planned in plans:
        bounds_of = _draw_all(planned, private, draws, alpha_each, partial(step, planned.method))
        findings += [_finding(planned, i, around, bounds_of.get(i), alpha_each) for i in range(len(levels))]
    names = tuple(engine.name for engine in chosen)
    return Audit(tuple(findings), fits, refusals, names, draws, ALPHA, levels)


def _counted(tell: Tell | None, total: int) -> Callable[[str, int], None]:
    """Return a function that is told of steps and passes on how many of all are done."""
    done = 0

    def step(what: str, more: int) -> None:
        nonlocal done
        done += more
        if tell is not None:
            tell(what, done, total)

    return step


def _checked(levels: Levels, draws: int) -> None:
    if len(levels) > _MOST_LEVELS:
        raise InputError(f"an audit looks at every level and takes at most {_MOST_LEVELS} (got {len(levels):,})")
    if not isinstance(draws, int) or draws < _FEWEST:
        raise InputError(f"an audit needs at least {_FEWEST} draws of each dataset (got {draws!r})")


def _engines(names: Sequence[str] | None) -> list[Engine]:
    every = every_engine()
    if not names:
        return [engine for engine in every.values() if engine.installed]
    for name in names:
        if name not in every:
            raise InputError(f"unknown engine {name!r}; choose one of {', '.join(every)}")
        if not every[name].installed:
            raise InputError(f"the engine {name} needs {every[name].library}, which is not installed")
    return [every[name] for name in dict.fromkeys(names)]


def _plans(levels: Levels, interval: Interval, names: Sequence[str] | None) -> tuple[list[Plan], dict[str, str]]:
    plans, refusals = [], {}
    for name in dict.fromkeys(names or every_method()):
        find(name)
        try:
            plans.append(plan(levels, bounds=interval, method=name))
        except InputError as refusal:
            refusals[name] = str(refusal)
    return plans, refusals


def _finding(planned: Plan, i: int, around: Sequence[Neighbours], shown: float | None, alpha_each: float) -> Finding:
    row = planned.table[i]
    checks = [exact_check(planned, n) for n in around if n.level == i]
    faults = [fault for check in checks for fault in check.faults]
    if shown is not None and shown > row.spent:
        faults.append(f"releases show a loss of at least {shown:.6g}, more than the {row.spent:.6g} that is claimed")
    return Finding(
        planned.method,
        row.name or "",
        row.epsilon,
        row.spent,
        max(check.loss for check in checks),
        sum(check.pairs for check in checks),
        shown,
        draws_needed(row.spent, alpha_each),
        tuple(faults),
    )


def _draw_all(
    planned: Plan, private: Sequence[int], draws: int, alpha_each: float, step: Callable[[int], None]
) -> dict[int, float]:
    """Return the lower bound at each private level: everybody at the lower bound, against one person at the upper.

    The draws of the first dataset serve all levels; the union bound asks for no independence.
    """
    everybody = _results(planned, None, draws, step)
    return {i: lower_bound(everybody, _results(planned, i, draws, step), alpha_each) for i in private}


def _results(planned: Plan, level: int | None, draws: int, step: Callable[[int], None]) -> np.ndarray[Any, Any]:
    """Return the results of real releases: one person of `level` at the upper bound, all others at the lower one."""
    once = _releasing(planned, level)
    results = np.empty(draws)
    for start in range(0, draws, _AT_ONCE):
        part = range(start, min(start + _AT_ONCE, draws))
        results[part.start : part.stop] = [once() for _ in part]
        step(len(part))
    return results


def _releasing(planned: Plan, level: int | None) -> Callable[[], float]:
    levels, interval = planned.levels, planned.interval
    if isinstance(planned, SamplingPlan):
        epsilon = np.repeat(levels.epsilon, levels.count)
        values = np.full(epsilon.size, interval.lo)
        if level is not None:
            values[int(np.searchsorted(epsilon, levels.epsilon[level]))] = interval.hi
        return lambda: release_records(values, epsilon, planned).unclamped
    tally = everybody_low(levels, interval, level)
    return lambda: release(tally, planned).unclamped
