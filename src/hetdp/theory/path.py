"""The path bound: a lower bound on everybody's worst-case error that is within a few per cent of the truth.

Let B be the M people with the smallest ε, and tell the mechanism everybody else's value. What is left of the data is k,
the number of ones in B, and privacy makes neighbouring k hard to tell apart. On this path the Bayes risk of the best
mechanism has a closed form. Proved in `docs/proofs/path.md`, whose letters are used here; the interval has length 1.

What is printed must be a true bound, so every approximation errs downwards, and rounding has an explicit budget.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from hetdp.core.domain import Floats, Ints

Effort = Literal["report", "full"]

LARGEST = 30.0
"""People with a larger ε are told apart anyway: they are never in B."""
_ULP = 2.0**-53
_TOGETHER = 500_000  # nodes that are held in memory at a time


@dataclass(frozen=True)
class _Effort:
    """How much may be spent on one bound.

    Attributes
    ----------
    nodes
        The most pairs (k, number of ones among those who are revealed) in one evaluation.
    total
        The most of them in the whole search.
    exact
        Up to how many people d is found person by person; above, by Darroch's rule.
    levels
        The most levels of ε; more are joined, each at its largest ε, which lowers the bound.
    width
        How many standard deviations of a count are looked at; what lies beyond is left out, which lowers the bound.
    sizes
        How many sizes of B are tried.
    tries
        How many priors are tried from each start.
    """

    nodes: int
    total: int
    exact: int
    levels: int
    width: float
    sizes: int
    tries: int


EFFORTS: dict[str, _Effort] = {
    "report": _Effort(nodes=800_000, total=800_000, exact=3_000, levels=128, width=4.5, sizes=2, tries=60),
    "full": _Effort(nodes=10_000_000, total=30_000_000, exact=20_000, levels=4_096, width=7.5, sizes=5, tries=80),
}


def path(epsilon: Floats, count: Ints, effort: Effort = "report") -> float:
    """Return the path bound, the largest that a search over the prior and over M finds; 0 where it is not claimed.

    Every prior w·½(δ₀ + δ₁) + (1 − w)·Beta(a, a) and every M give a valid bound. The search starts from the M and a
    that are best when counts are normal.

    >>> round(path(np.array([1.0]), np.array([1])), 5)  # the optimum for one person at ε = 1 is 0.19661
    0.19661
    """
    limits = EFFORTS[effort]
    epsilon, count = _joined(epsilon, count, limits.levels)
    n, hidden = sum(count.tolist()), sum(count[epsilon <= LARGEST].tolist())
    if not hidden or n > 10**7:
        return 0.0
    left, found = float(limits.total), 0.0
    for people in _sizes(epsilon, count, hidden)[: limits.sizes]:
        value, spent = _search(epsilon, count, people, limits, left)
        left, found = left - spent, max(found, value)
    return found


def _joined(epsilon: Floats, count: Ints, most: int) -> tuple[Floats, Ints]:
    """Return at most so many levels, neighbours joined at their largest ε: that only weakens privacy."""
    if epsilon.size <= most:
        return epsilon, count
    first = np.unique(np.linspace(0, epsilon.size, most + 1).astype(np.int64))[:-1]
    return epsilon[np.append(first[1:], epsilon.size) - 1], np.add.reduceat(count, first)


def _sizes(epsilon: Floats, count: Ints, hidden: int) -> list[int]:
    """Return sizes of B to try, the most promising first, at least a tenth apart.

    When counts are normal the bound is 1/(4n) + (M/n)²/(4M(n − M)/n + A²/2), A the sum of the M smallest ε.
    """
    n, upto = sum(count.tolist()), np.cumsum(count)
    border = upto[upto <= hidden][:64]
    size = np.unique(np.concatenate([np.linspace(1, hidden, 65).round(), border]))
    total = np.cumsum(count * np.minimum(epsilon, LARGEST))
    A = np.interp(size, np.append(0.0, upto), np.append(0.0, total))  # noqa: N806  the letter of the proof
    value = (size / n) ** 2 / np.maximum(4 * size * (n - size) / n + A * A / 2, 1e-300)
    chosen: list[int] = []
    for people in size[np.argsort(-value, kind="stable")].astype(int).tolist():
        if all(abs(people - other) > 0.1 * other for other in chosen):
            chosen.append(people)
    return chosen


def _search(epsilon: Floats, count: Ints, people: int, limits: _Effort, most: float) -> tuple[float, float]:
    """Return the best bound with so many people in B, and how many nodes that took, at most so many.

    A simplex search over ln a and the logit of w.
    """
    from scipy.optimize import minimize

    n = sum(count.tolist())
    inside = np.clip(people - (np.cumsum(count) - count), 0, count)
    epsilon, inside = epsilon[inside > 0], inside[inside > 0]
    d = _steps(epsilon, inside, limits.exact)
    found, spent = 0.0, 0.0

    def bound(x: Floats) -> float:
        nonlocal found, spent
        a, w = math.exp(min(max(x[0], -5.0), 16.0)), 1 / (1 + math.exp(-min(max(x[1], -40.0), 40.0)))
        problem = _Problem.of(n, people, a, w, limits.width)
        if problem.nodes > limits.nodes:  # look at less
            problem = _Problem.of(n, people, a, w, limits.width * 0.98 * math.sqrt(limits.nodes / problem.nodes))
        if problem.wide < 3 or spent + problem.nodes > most:
            return 0.0
        spent += problem.nodes
        value = problem.risk(d)
        found = max(found, value)
        return float(-4 * n * value)

    first = math.log(n) / 2 - 0.9
    starts = [(first if abs(first) > 0.1 else 0.1, -9.0)]  # the first simplex is a twentieth of this wide
    if float(epsilon @ inside) < 40:  # with little to learn, data that are all alike are hard
        starts.append((-1.0, 2.0))
    for start in starts:
        minimize(bound, start, method="Nelder-Mead", options={"xatol": 0.03, "fatol": 1e-5, "maxfev": limits.tries})
    return found, spent


# How fast the law of the output can change with k -----------------------------------------------------------------


def _steps(epsilon: Floats, count: Ints, exact: int) -> Floats:
    """Return d₀ … d_{M−1}, none below its true value: privacy gives A_k ≤ e^{d_k}·A_{k+1} for averages over k ones.

    d_k = ln(p_k/p_{k+1}), p_k = e_k/C(M, k), e_k the elementary symmetric polynomials of e^{−ε}. By mirror image
    A_{k+1} ≤ e^{u_k}·A_k with u_k = d_{M−1−k}. Larger d are weaker demands, so rounding up keeps the bound true.
    """
    people = int(count.sum())
    if epsilon.size == 1:
        return np.full(people, epsilon[0])
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        d = _recursion(np.repeat(epsilon, count)) if people <= exact else np.full(1, math.nan)
    return d if np.isfinite(d).all() else _darroch(epsilon, count)


def _recursion(epsilon: Floats) -> Floats:
    """Return d by adding one person after another: p_k becomes (1 − k/m)·p_k + (k/m)·e^{−ε}·p_{k−1} with m people.

    Only positive numbers are added. They carry a factor e^{τk}, τ the mean of ε, which keeps most of them away from 0
    and ∞; otherwise some d are not numbers. ε must ascend: then they stay above 1 and only overflow. A step rounds four
    times and e^{−ε} is off by 32 units at most, so d is off by less than 16·(M + 16) units in the last place of 1.
    """
    tau, people = float(epsilon.mean()), epsilon.size
    p, number = np.zeros(people + 1), np.arange(people + 1, dtype=np.float64)
    p[0] = 1.0
    for m, q in enumerate(np.exp(tau - epsilon).tolist(), start=1):
        k = number[1 : m + 1]
        p[1 : m + 1] = ((m - k) * p[1 : m + 1] + k * q * p[:m]) / m
    return np.asarray(np.log(p[:-1] / p[1:]) + tau + 16 * (people + 16) * _ULP)


def _darroch(epsilon: Floats, count: Ints) -> Floats:
    """Return upper bounds on d for many people, at some k and in between.

    The sum of independent indicators with odds λe^{−ε} has its mode at k + 1 or above when its mean is k + 1 or more
    (Darroch 1964); then e_k ≤ λ·e_{k+1}, so d_k ≤ ln λ + ln((M − k)/(k + 1)). d grows with k (Newton), so the value
    at one k holds for all before it; d_{M−1} is the logarithm of the mean of e^{ε}. Between two k the line joins the
    values of the two that follow.
    """
    people = int(count.sum())
    at = np.unique(np.linspace(0, people - 2, 65).round())
    found = np.append([_odds(epsilon, count, k + 1) + math.log((people - k) / (k + 1)) for k in at.tolist()], 0.0)
    top = float(epsilon.max())
    found[-1] = top + math.log(float(count @ np.exp(epsilon - top)) / people)
    following = np.append(found[1:], found[-1])
    k = np.arange(people, dtype=np.float64)
    return np.asarray(np.interp(k, np.append(at, people - 1.0), following) * (1 + 1e-12) + 1e-14)


def _odds(epsilon: Floats, count: Ints, mean: float) -> float:
    """Return ln λ for which the indicators with odds λe^{−ε} have at least this mean, and hardly more."""
    from scipy.optimize import brentq
    from scipy.special import expit

    def excess(log: float) -> float:
        return float(count @ expit(log - epsilon)) - mean * (1 + 1e-11)

    middle = math.log(mean / (int(count.sum()) - mean))
    log = float(brentq(excess, middle, middle + float(epsilon.max()) + 1, xtol=1e-14))
    while excess(log) < 0:  # the root is known to its last digits only
        log += 1e-14 * (1 + abs(log))
    return log


# The Bayes risk on the path ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Problem:
    """One prior and one M: which counts are looked at, and what the risk is.

    Attributes
    ----------
    n, people
        Everybody, and those in B.
    a, w
        The prior of p: w·½(δ₀ + δ₁) + (1 − w)·Beta(a, a).
    wide
        How many deviations a window spans to either side.
    known
        The numbers of ones among the others that are looked at, up to the half: the other half is a mirror image.
    low
        For each of them the smallest k that is looked at.
    width
        How many k follow from there.
    """

    n: int
    people: int
    a: float
    w: float
    wide: float
    known: Ints
    low: Ints
    width: int

    @classmethod
    def of(cls, n: int, people: int, a: float, w: float, wide: float = 7.5) -> _Problem:
        others = n - people
        first, width = _window(others, np.array([a]), np.array([a]), wide)
        known = np.arange(first[0], min(first[0] + width, others // 2 + 1))
        low, width = _window(people, a + known, a + others - known, wide)
        return cls(n, people, a, w, wide, known, low, width)

    @property
    def nodes(self) -> int:
        return int(self.width * self.known.size)

    def risk(self, d: Floats) -> float:
        """Return the Bayes risk of the best channel, or less: Σ_j c_j·φ(v^(j)), summed over what is known.

        Left out are counts outside the windows, which have a risk of 0 at least. The masses b may be off by a factor
        1 ± η: a mass that is smaller by a factor has a risk that is smaller by it, so 1 − η mends that. The sums
        over rays are off by η′ relative to sums of absolute values, φ by 4η′·Σbvs, and c by 2⁻⁴⁸.
        """
        others, alone = self.n - self.people, np.array([self.a])
        first, eta = _beta_binomial(others, alone, alone, *_window(others, alone, alone, self.wide))
        chance = first[: self.known.size, 0] * np.where(2 * self.known == others, 1.0, 2.0)  # with its mirror image
        parts = np.array_split(np.arange(self.known.size), min(-(-self.nodes // _TOGETHER), self.known.size))
        return max(sum(self._part(part, chance[part], d) for part in parts) * (1 - eta), 0.0)

    def _part(self, part: Ints, chance: Floats, d: Floats) -> float:
        """Return the same for some of the columns, whose chances are given."""
        mass, eta = self._masses(part, chance)
        k = self.low[part] + np.arange(self.width - 1)[:, None]
        right, left = d[k], d[self.people - 1 - k]  # d_k and u_k
        sums = _fading(np.exp(-left), mass) - mass + _fading(np.exp(-right)[::-1], mass[:, ::-1])[:, ::-1]
        with np.errstate(divide="ignore", invalid="ignore"):
            phi = np.where(sums[0] > 0, sums[2] - sums[1] * (sums[1] / sums[0]), 0.0)
        c = _peaks(right, left)
        rounding = 4 * (4 * self.width + 64) * _ULP
        budget = (np.abs(c) * rounding + 2.0**-48) * sums[2]
        return float(np.sum(c * phi) - np.sum(budget)) * (1 - eta)

    def _masses(self, part: Ints, chance: Floats) -> tuple[Floats, float]:
        """Return b, b·m and b·s at every (k, known), each column measured from its own mean of p, and η."""
        others, size, known, low = self.n - self.people, self.n + 2 * self.a, self.known[part], self.low[part]
        alpha = np.asarray(known + self.a, dtype=np.float64)
        given, eta = _beta_binomial(self.people, alpha, others + 2 * self.a - alpha, low, self.width)
        ones = low + np.arange(self.width)[:, None] + known
        middle = self.people * (self.a + known) / (others + 2 * self.a) + known  # ones, on average
        b = (1 - self.w) * chance * given
        m = (ones - middle) / size
        spread = (self.a + ones) * (self.a + (self.n - ones)) / (size * size * (size + 1))
        mass = np.stack([b, b * m, b * (m * m + spread)])
        for p, row in ((0.0, 0), (1.0, -1)):  # data that are all alike
            column = np.flatnonzero(ones[row] == p * self.n)
            off = p - (self.a + middle[column]) / size
            both = 1.0 if others == 0 else 2.0  # with the mirror image
            mass[:, row, column] += self.w / 2 * both * np.stack([np.ones_like(off), off, off * off])
        return mass, eta + 64 * _ULP


def _window(number: int, alpha: Floats, beta: Floats, wide: float) -> tuple[Ints, int]:
    """Return the smallest count of each window and the width of all: so many deviations of a beta-binomial count."""
    total = alpha + beta
    mean = number * alpha / total
    deviation = np.sqrt(mean * beta / total * (total + number) / (total + 1))
    if min(alpha.min(), beta.min()) < 1:  # not single-peaked: everything is looked at
        return np.zeros(alpha.size, np.int64), number + 1
    width = min(2 * math.ceil(wide * float(deviation.max())) + 3, number + 1)
    return np.clip(mean.astype(np.int64) - width // 2, 0, number + 1 - width), width


def _beta_binomial(number: int, alpha: Floats, beta: Floats, low: Ints, width: int) -> tuple[Floats, float]:
    """Return the chances of the counts low, low + 1, …, a column each, and how far they may be too large, relatively.

    Ratios of neighbours are multiplied up. Outside the window they are below those at its ends, since the law is
    log-concave for α, β ≥ 1, so a geometric series bounds what lies there.
    """
    k = (low + np.arange(width + 1)[:, None] - 1.0).clip(-1, number)  # one more on the left
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = (number - k) * (k + alpha) / ((k + 1) * (number - k - 1 + beta))  # from k to k + 1
    log = np.zeros((width, low.size))
    np.cumsum(np.log(ratio[1:-1]), axis=0, out=log[1:])
    largest = float(np.abs(log).max())
    log -= log.max(axis=0)
    chance = np.exp(log)
    total = chance.sum(axis=0)
    before, after = np.where(low > 0, 1 / ratio[0], 0.0), np.where(low + width <= number, ratio[-1], 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        total += np.where(before < 1, chance[0] * before / (1 - before), np.inf)
        total += np.where(after < 1, chance[-1] * after / (1 - after), np.inf)
    return chance / total, (width + 8) * (8 + largest) * 2 * _ULP


def _fading(factor: Floats, mass: Floats) -> Floats:
    """Return Σ_{k ≤ j} mass_k times the factors between k and j, for every j of every column.

    Rows are cut into pieces, which are done side by side and then joined.
    """
    rows, columns = mass.shape[1:]
    length = math.isqrt(rows) + 1
    pieces = -(-rows // length)
    padded, into = np.zeros((3, pieces * length, columns)), np.zeros((pieces * length, columns))
    padded[:, :rows], into[1:rows] = mass, factor  # the factor into each node
    out = padded.reshape(3, pieces, length, columns)
    steps = into.reshape(pieces, length, columns)
    for j in range(1, length):
        out[:, :, j] += steps[:, j] * out[:, :, j - 1]
    reach = np.cumprod(steps, axis=1)
    for piece in range(1, pieces):
        out[:, piece] += reach[piece] * out[:, piece - 1, -1:]
    return padded[:, :rows]


def _peaks(d: Floats, u: Floats) -> Floats:
    """Return c, with which the rays add up to 1 at every node: ½ + ½ minus what comes from either side.

    1 − (1 − e^{−u})/(e^{d} − e^{−u}) − (1 − e^{−d})/(e^{u} − e^{−d}) of the neighbours, without cancelling.
    """
    c = np.zeros((d.shape[0] + 1, d.shape[1]))
    c[0] += 0.5
    c[-1] += 0.5
    up, down, back, fall = np.expm1(d), -np.expm1(-u), np.expm1(u), -np.expm1(-d)
    c[1:] += (up - down) / (2 * (up + down))
    c[:-1] += (back - fall) / (2 * (back + fall))
    return c
