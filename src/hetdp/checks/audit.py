"""Audit: does a release on this machine really lose at most the ε that its plan claims? Only invented people are used.

Lower bound. With probability at least 1 − α over the draws, the bound is not above the true privacy loss.

Argument. If a mechanism is ε-DP then P(E) ≤ e^ε·P′(E) for every event E, so ε ≥ ln P(E) − ln P′(E). The event is chosen
on the first half of the draws and counted on the second, so it is fixed as far as the second half is concerned. There
the counts are binomial; Clopper and Pearson's lower bound on P(E) and upper bound on P′(E) fail with probability at
most α/2 each, for any number of draws. Between two Laplace densities of one scale the likelihood ratio is monotone,
so by Neyman and Pearson the best events are the half-lines y ≥ c and y ≤ c; only these are tried. A fault that hides
from all half-lines (a coarse grid of outputs) is seen by the goodness of fit instead.

Control. An audit that cannot fail proves nothing. k people who change their values at once lose k times what one of
them claims, so two datasets that differ in k people are a planted over-spend, made of real releases. The bound must
find it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from hetdp.core.domain import GRID, Floats, Interval, jsonable
from hetdp.core.levels import Levels
from hetdp.core.plan import Plan, plan
from hetdp.core.types import BoundsLike, LevelsOfPeople
from hetdp.errors import InputError
from hetdp.estimators import METHODS
from hetdp.privacy.exact import Choice
from hetdp.privacy.release import release, release_records
from hetdp.privacy.sampling import SamplingPlan
from hetdp.report import Grid, Parts, Shown, epsilon, shorten, spent_epsilon
from hetdp.sources import read
from hetdp.statistics import Statistic
from hetdp.statistics.histogram import Shares
from hetdp.statistics.moments import Spread
from hetdp.statistics.quantile import Ranks
from hetdp.tally import Table, Tally

from .doctor import ALPHA, Fit, family_gate, sampler_gate

TIERS = Levels({0.0: 10, 0.1: 200, 1.0: 70, 4.0: 20}, {0.0: "never", 0.1: "strict", 1.0: "standard", 4.0: "open"})
STATISTICS = (Shares(categories=["a", "b", "c"]), Spread((0, 1)), Ranks(0.5, (0, 1), 8))
"""One statistic of each noise besides that of the mean."""
DRAWS = 1_500
FEWEST = 200
"""With fewer draws of each dataset next to nothing can be shown, whatever is wrong."""
CONTROL = 0.5
"""The ε that each person of the control claims."""

_MOST_LEVELS = 64
_MOST_RECORDS = 10**6
_READ = 16
"""How many people of each level are read; the others are all at the lower bound and only counted."""
_HEADINGS = ("Method", "Tier", "ε asked", "Claimed", "Shown ≥", "Can show", "")
_NOTICES = {
    "Noise": "the law of the noise at small scales. It notices noise of a wrong law, on a coarse grid, cut off or "
    "repeated. It cannot see an error far below 1/√draws, nor a bad source of randomness.",
    "Shown": "a lower bound on ε from real releases of two datasets that differ in one value. It notices gross faults "
    "anywhere in a release. “Can show” is about what so many draws show of noise that spends exactly its claim; a "
    "smaller fault is not seen. A bound below the claim proves nothing.",
    "Control": "a planted over-spend: several people change at once, so more is lost than one of them claims. The "
    "draws must show it, or a bound that shows nothing would mean nothing.",
}


@dataclass(frozen=True)
class Finding:
    """What was found about one level of one method.

    Attributes
    ----------
    claimed
        What the plan says that one person spends.
    lower_bound
        What the draws show, at least, with the confidence of the whole audit; None for a public level.
    reach
        About what so many draws can show of Laplace noise that spends exactly the claim.
    faults
        Broken claims, as sentences.
    """

    method: str
    tier: str
    epsilon: float
    claimed: float
    lower_bound: float | None
    reach: float
    faults: tuple[str, ...]

    @property
    def holds(self) -> bool:
        """Whether no claim is broken."""
        return not self.faults

    def to_dict(self) -> dict[str, Any]:
        """Return the finding as plain data."""
        return {**asdict(self), "holds": self.holds}


@dataclass(frozen=True)
class Audit(Shown):
    """The findings of an audit. `holds` is the verdict; `report` says what each part can and cannot notice.

    Attributes
    ----------
    findings
        One for every method and level.
    fits
        The goodness of fit of the noise.
    control
        The planted over-spend. It holds if the draws show that more is lost than is claimed.
    refusals
        Methods that are left out, with the reason.
    draws
        Releases of each dataset.
    alpha, alpha_each
        The probability that a right installation is called broken by its draws, over all methods and levels, and the
        part of it that each bound has (union bound).
    """

    findings: tuple[Finding, ...]
    fits: tuple[Fit, ...]
    control: Finding
    refusals: dict[str, str]
    draws: int
    alpha: float
    alpha_each: float

    @property
    def holds(self) -> bool:
        """Whether no claim is broken, the noise has the right law and the control was found."""
        return all(found.holds for found in (*self.findings, self.control)) and all(fit.passed for fit in self.fits)

    def to_dict(self) -> dict[str, Any]:
        """Return the audit as plain data; infinities are written "inf"."""
        facts = {"holds": self.holds, **asdict(self), "sampler": [fit.to_dict() for fit in self.fits]}
        del facts["fits"]
        facts |= {"findings": [found.to_dict() for found in self.findings], "control": self.control.to_dict()}
        return dict(jsonable(facts))

    def parts(self) -> Parts:
        """Return the report as its parts."""
        control = (*_cells(self.control)[:-1], "found" if self.control.holds else "NOT FOUND")
        broken = sum(not part.holds for part in self.findings) + sum(not fit.passed for fit in self.fits)
        verdict = "no claim is broken" if self.control.holds else "NOTHING SHOWN: the planted over-spend was not found"
        if broken:
            verb = "does" if broken == 1 else "do"
            verdict = f"BROKEN: {broken} of the claims {verb} not hold; do not release with this installation"
        notes = [("Verdict", verdict)]
        notes += [("", f"{f.method}, ε = {f.epsilon:.4g}: {fault}") for f in self.findings for fault in f.faults]
        notes += [("Left out", f"{method}: {reason}") for method, reason in self.refusals.items()]
        notes += [("Noise", str(fit)) for fit in self.fits]
        wrong = f"together they are wrong with probability at most {self.alpha:g}"
        notes += [("Draws", f"{self.draws:,} releases of each dataset, half of them to choose the event; {wrong}")]
        table = Grid(_HEADINGS, [*map(_cells, self.findings), control], words=2)
        return [table, [*notes, *_NOTICES.items()]]


def audit(
    levels: Levels | LevelsOfPeople | None = None,
    *,
    methods: Sequence[str] | None = None,
    statistics: Sequence[Statistic] | None = None,
    bounds: BoundsLike = (-0.5, 0.5),
    draws: int = DRAWS,
    tell: Callable[[str, int, int], None] | None = None,
) -> Audit:
    """Return whether releases keep what their plans claim, for every method and level. No data of anybody is used.

    Parameters
    ----------
    levels
        As for `plan`; four levels from 0 to 4 unless given.
    methods
        Names of `hetdp.methods()`; all of them unless given.
    statistics
        Other statistics than the mean, as `hetdp.ask.histogram(…)`; one of each noise if nothing at all is given.
    bounds
        The interval of the invented values.
    draws
        How many releases to make of each dataset.
    tell
        Is told the method, how many datasets are done and how many there are.

    Returns
    -------
    Audit
        What was found for every method and level; `passed` says whether nothing is wrong.
    """
    if statistics is None:
        statistics = STATISTICS if levels is None and methods is None else ()
    levels = TIERS if levels is None else Levels.given(levels)
    if len(levels) > _MOST_LEVELS:
        raise InputError(f"an audit looks at every level and takes at most {_MOST_LEVELS} (got {len(levels):,})")
    if not isinstance(draws, int) or draws < FEWEST:
        raise InputError(f"an audit needs at least {FEWEST} draws of each dataset (got {draws!r}); fewer show nothing")
    interval = Interval.of(bounds)
    plans, refusals = _plans(levels, interval, methods)
    plans += [plan(levels, statistic=statistic) for statistic in statistics]
    private = np.flatnonzero(np.isfinite(levels.epsilon)).tolist()
    alpha_each = ALPHA / max(1, len(plans) * len(private))
    total, done = len(plans) * (len(private) + 1) + 2, 0

    def results(planned: Plan, level: int, people: int) -> Floats:
        """Return the results of real releases: so many people of a level at the upper bound, others at the lower."""
        nonlocal done
        once = _releasing(planned, level, people)
        found = np.array([once() for _ in range(draws)])
        done += 1
        if tell is not None:
            tell(_label(planned), done, total)
        return found

    fits = (*sampler_gate(), *(family_gate() if statistics else ()))
    findings = []
    for planned in plans:
        everybody = results(planned, 0, 0)  # serves all levels: the union bound asks for no independence
        for i, row in enumerate(planned.table):
            shown = lower_bound(everybody, results(planned, i, 1), alpha_each) if i in private else None
            spent, faults = row.spent, []
            if shown is not None and shown > spent:
                faults.append(
                    f"releases show a loss of at least {shown:.6g}, more than the {spent:.6g} that is claimed"
                )
            about = (_label(planned), row.name or "", row.epsilon, spent)
            findings.append(Finding(*about, shown, reach(spent, draws, alpha_each), tuple(faults)))
    # The control has the fewest people whose joint loss these draws show with ease: about 2.5 times what one claims,
    # which is more than five standard deviations of the bound above the claim (2 times is missed once in 3,000).
    people = next((k for k in range(2, _READ) if reach(k * CONTROL, draws, alpha_each) > 2.5 * CONTROL), _READ)
    planted = plan({CONTROL: 2 * _READ}, bounds=interval, method="uniform")
    shown = lower_bound(results(planted, 0, 0), results(planted, 0, people), alpha_each)
    missed = () if shown > CONTROL else ("the planted over-spend was not found",)
    can_show = reach(people * CONTROL, draws, alpha_each)
    control = Finding("control", f"{people} at once", CONTROL, CONTROL, shown, can_show, missed)
    return Audit(tuple(findings), fits, control, refusals, draws, ALPHA, alpha_each)


def lower_bound(one: Floats, other: Floats, alpha: float) -> float:
    """Return a bound that is above the true privacy loss with probability at most `alpha`; 0 says nothing was shown.

    Parameters
    ----------
    one, other
        Independent results on two neighbouring datasets, as many of each.
    """
    half = one.size // 2
    edges = np.quantile(np.concatenate([one[:half], other[:half]]), np.linspace(0, 1, 129), method="nearest")
    a, b = _counts(one[:half], edges), _counts(other[:half], edges)
    bounds = np.concatenate([log_ratio(a, b, half, alpha), log_ratio(b, a, half, alpha)])
    swapped, event = divmod(int(np.argmax(bounds)), a.size)
    if swapped:  # the event is likelier on the second dataset
        one, other = other, one
    a, b = _counts(one[half:], edges)[event], _counts(other[half:], edges)[event]
    return max(0.0, float(log_ratio(a, b, one.size - half, alpha)))


def _counts(results: Floats, edges: Floats) -> Floats:
    """Return how many results are in each half-line: y ≤ c for every edge c, then y ≥ c."""
    ordered = np.sort(results)
    at_least = results.size - np.searchsorted(ordered, edges, side="left")
    return np.concatenate([np.searchsorted(ordered, edges, side="right"), at_least]).astype(np.float64)


def log_ratio(often: Floats, seldom: Floats, draws: int, alpha: float) -> Floats:
    """Return ln of Clopper and Pearson's lower bound on one probability over the upper bound on the other.

    >>> round(float(log_ratio(np.array(60), np.array(20), 100, 0.05)), 3)
    0.533
    """
    from scipy.special import betaincinv

    a = alpha / 2
    with np.errstate(divide="ignore"):
        low = np.where(often > 0, betaincinv(np.maximum(often, 1), draws - often + 1, a), 0.0)
        # the upper quantile of Beta(k + 1, m − k) is 1 minus the lower one of Beta(m − k, k + 1)
        high = np.where(seldom < draws, 1 - betaincinv(np.maximum(draws - seldom, 1), seldom + 1, a), 1.0)
        return np.asarray(np.log(low) - np.log(high))


def reach(loss: float, draws: int, alpha: float) -> float:
    """Return about which bound that many releases of each dataset show for Laplace noise of this true loss.

    For results at distance u·loss (in scales) from the first centre, 0 ≤ u ≤ 1, P(E) = 1 − e^(−(1−u)·loss)/2 and
    P′(E) = e^(−u·loss)/2.
    """
    u, half = np.linspace(0, 1, 33), draws - draws // 2
    often, seldom = 1 - np.exp(-(1 - u) * min(loss, 700.0)) / 2, np.exp(-u * min(loss, 700.0)) / 2
    return max(0.0, float(log_ratio(np.round(half * often), np.round(half * seldom), half, alpha).max()))


def _plans(levels: Levels, interval: Interval, names: Sequence[str] | None) -> tuple[list[Plan], dict[str, str]]:
    plans, refusals = [], {}
    for rule in [METHODS[name] for name in dict.fromkeys(names or METHODS)]:
        try:
            if rule.needs_records and levels.n > _MOST_RECORDS:
                raise InputError(f"it keeps people one by one; an audit does that for at most {_MOST_RECORDS:,} people")  # noqa: TRY301
            plans.append(plan(levels, bounds=interval, method=rule.name))
        except InputError as refusal:
            refusals[rule.name] = str(refusal)
    return plans, refusals


def _label(planned: Plan) -> str:
    return planned.method if planned.statistic.name == "mean" else planned.statistic.name


def _moved(planned: Plan, level: int, people: int) -> Callable[[], float]:
    """Return a function that makes one real release of another statistic: so many of `level` move from end to end.

    People start in the first cell with the least codes, in a choice half of them in the last one, where one person can
    tip the balance; they move to the last cell and the greatest codes. Seen is the difference of the first and the last
    number, or of a choice its place.
    """
    statistic, levels = planned.statistic, planned.levels
    codes = len(statistic.sums) + statistic.square
    ends = np.array([0, statistic.cells - 1])
    sums = np.stack([np.zeros(codes, np.int64), np.full(codes, GRID, np.int64)])
    first, last = statistic.totals(ends, np.ones(2, np.int64), sums)
    count = np.where(levels.epsilon > 0, levels.count, 0)
    there = (count + 1) // 2 if isinstance(statistic.geometry, Choice) else np.zeros_like(count)
    there[level] += people
    totals = (count - there)[:, None] * first + there[:, None] * last
    table = Table(levels.epsilon, levels.count, np.where(levels.epsilon[:, None] > 0, totals, 0))
    tally = Tally(table, statistic)

    def once() -> float:
        numbers = release(tally, planned).numbers
        return numbers[0] if len(numbers) == 1 else numbers[0] - numbers[-1]

    return once


def _releasing(planned: Plan, level: int, people: int) -> Callable[[], float]:
    """Return a function that makes one real release: so many of `level` at the upper bound, others at the lower.

    Where people are not kept one by one, some of each level are read. The rest are at the lower bound, whose code is 0:
    they change how many people there are and no sum.
    """
    if planned.statistic.name != "mean":
        return _moved(planned, level, people)
    levels, interval = planned.levels, planned.interval
    some = levels.count if isinstance(planned, SamplingPlan) else np.minimum(levels.count, _READ)
    epsilon = np.repeat(levels.epsilon, some)
    values = np.full(epsilon.size, interval.lo)
    first = int(some[:level].sum())
    values[first : first + people] = interval.hi
    if isinstance(planned, SamplingPlan):
        return lambda: release_records(values, epsilon, planned).unclamped
    table = read(values, epsilon=epsilon, bounds=interval).table
    tally = Tally(replace(table, count=table.count + levels.count - some), planned.statistic)
    return lambda: release(tally, planned).numbers[0]


def _cells(finding: Finding) -> tuple[str, ...]:
    public = math.isinf(finding.claimed)
    claimed, asked = spent_epsilon(finding.claimed), epsilon(finding.epsilon)
    shown, reaches = ("–" if x is None or public else epsilon(x) for x in (finding.lower_bound, finding.reach))
    mark = "holds" if finding.holds else "BROKEN"
    return finding.method, shorten(finding.tier), asked, claimed, shown, reaches, mark
