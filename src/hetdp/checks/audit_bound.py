"""A lower bound on ε from releases of two neighbouring datasets, and how many releases it takes to see a fault.

Claim. With probability at least 1 − α over the draws, the bound is not above the true privacy loss.

Argument. If a mechanism is ε-DP then P(E) ≤ e^ε·P′(E) for every event E, so ε ≥ ln P(E) − ln P′(E). The event is chosen
on the first half of the draws and counted on the second, so it is fixed as far as the second half is concerned. There
the counts are binomial; Clopper and Pearson's lower bound on P(E) and upper bound on P′(E) fail with probability at
most α/2 each, for any number of draws.

Which events. Between two Laplace densities of one scale the likelihood ratio is monotone, so by Neyman and Pearson the
best events are the half-lines y ≥ c and y ≤ c; only these are tried. A fault that hides from all half-lines (a
coarse grid of outputs) is not seen here; it is seen by the exact check and by the goodness of fit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Counts = NDArray[np.int64] | Floats

POWER = 0.9
"""`draws_needed` counts the draws with which a fault is seen at least this often."""

_THRESHOLDS = 129
_PLACES = 33
_MOST = 2.0**50


@dataclass(frozen=True)
class Event:
    """A half-line of results: y ≥ edge if `above`, else y ≤ edge; `swapped` if the second dataset makes it likelier."""

    edge: float
    above: bool
    swapped: bool

    def count(self, results: Floats) -> int:
        """Return how many results are in the event."""
        return int(np.count_nonzero(results >= self.edge if self.above else results <= self.edge))


def lower_bound(one: Floats, other: Floats, alpha: float) -> float:
    """Return a bound that is above the true privacy loss with probability at most `alpha`; 0 says nothing was shown.

    Parameters
    ----------
    one, other
        Independent results on two neighbouring datasets, as many of each.
    """
    half = one.size // 2
    event = best_event(one[:half], other[:half], alpha)
    counts = [event.count(results[half:]) for results in (one, other)]
    often, seldom = reversed(counts) if event.swapped else counts
    return max(0.0, float(log_ratio(np.array(often), np.array(seldom), one.size - half, alpha)))


def best_event(one: Floats, other: Floats, alpha: float) -> Event:
    """Return the half-line whose bound is highest on these draws."""
    edges = np.unique(np.quantile(np.concatenate([one, other]), np.linspace(0, 1, _THRESHOLDS), method="nearest"))
    found = []
    for above in (True, False):
        counts = [_counts(results, edges, above=above) for results in (one, other)]
        for swapped in (False, True):
            often, seldom = reversed(counts) if swapped else counts
            bounds = log_ratio(often, seldom, one.size, alpha)
            i = int(np.argmax(bounds))
            found.append((float(bounds[i]), Event(float(edges[i]), above, swapped)))
    return max(found, key=lambda pair: pair[0])[1]


def log_ratio(often: Counts, seldom: Counts, draws: int | Floats, alpha: float) -> Floats:
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


@lru_cache(maxsize=256)
def draws_needed(epsilon: float, alpha: float, factor: float = 1.1) -> float:
    """Return how many releases of each dataset show, with probability 0.9, that ε is exceeded by `factor`.

    The mechanism is taken to be Laplace noise whose true loss is factor·ε, and the event the best half-line for it;
    half of the draws are for choosing it. inf where no number below 10¹⁵ will do.

    Notes
    -----
    For results at distance u·factor·ε (in scales) from the first centre, 0 ≤ u ≤ 1, P(E) = 1 − e^(−(1−u)·factor·ε)/2
    and P′(E) = e^(−u·factor·ε)/2. The draws suffice when the bound made of the 5 % quantile of the one count and the
    95 % quantile of the other is above ε.
    """
    if not 0 < epsilon < math.inf:
        return math.inf
    often, seldom = _half_lines(factor * epsilon)
    low, high = np.full(_PLACES, 1.0), np.full(_PLACES, 16.0)
    while not (seen := _sees(high, often, seldom, epsilon, alpha)).any():
        low, high = high, 2 * high
        if high[0] > _MOST:
            return math.inf
    often, seldom, low, high = often[seen], seldom[seen], low[seen], high[seen]
    for _ in range(12):
        middle = np.floor((low + high) / 2)
        seen = _sees(middle, often, seldom, epsilon, alpha)
        low, high = np.where(seen, low, middle), np.where(seen, middle, high)
    return 2 * float(high.min())


def reach(epsilon: float, draws: int, alpha: float) -> float:
    """Return about which bound that many releases of each dataset show for Laplace noise of true loss ε."""
    often, seldom = _half_lines(epsilon)
    half = draws - draws // 2
    return max(0.0, float(log_ratio(np.round(half * often), np.round(half * seldom), half, alpha).max()))


def _half_lines(loss: float) -> tuple[Floats, Floats]:
    u = np.linspace(0, 1, _PLACES)
    return 1 - np.exp(-(1 - u) * loss) / 2, np.exp(-u * loss) / 2


def _sees(draws: Floats, often: Floats, seldom: Floats, epsilon: float, alpha: float) -> NDArray[np.bool_]:
    from scipy.stats import binom

    miss = (1 - POWER) / 2
    fewest, most = (np.asarray(binom.ppf(q, draws, p)) for q, p in ((miss, often), (1 - miss, seldom)))
    return np.asarray(log_ratio(fewest, most, draws, alpha) > epsilon)


def _counts(results: Floats, edges: Floats, *, above: bool) -> NDArray[np.int64]:
    ordered = np.sort(results)
    if above:
        return results.size - np.searchsorted(ordered, edges, side="left")
    return np.searchsorted(ordered, edges, side="right")
