"""Optimal: the smallest worst-case error that any ε-DP mechanism can have, for few people.

A linear program over all mechanisms. A solver proposes a mechanism and a reason why none is much better; both are
then mended and checked in exact arithmetic, so that the two numbers returned hold whatever the solver did. What the
program computes, and how far its two grids can mislead, is proved in `docs/proofs/optimal.md`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Context, Decimal
from fractions import Fraction
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hetdp.core.domain import Floats, Interval, Ints
from hetdp.core.levels import Levels
from hetdp.core.types import BoundsLike, LevelsOfPeople
from hetdp.errors import HetdpError, InputError

LARGEST = 300  # the most states, Π (people at a level + 1), that the linear program is asked to hold
# a level with people × ε up to this counts as ε = 0: the optimum changes by a factor of e^{people × ε} at most
NEGLIGIBLE = 1e-4
# Exact numbers are whole numbers over one of these.
UNIT = 2**53  # a table: every multiple of 1/UNIT up to 1 is a double
SCALE = 2**64  # the prior, the multipliers, and bounds on e^{−ε}
MEANS = 2**40  # the means p

_TIGHT = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
# ways to solve, as options of the solver
_ATTEMPTS: tuple[dict[str, Any], ...] = ({"method": "highs-ds"}, {"method": "highs-ipm", "options": _TIGHT})


@dataclass(frozen=True, eq=False)
class Optimum:
    """The best mechanism found, and the two numbers between which the true optimum lies.

    Attributes
    ----------
    levels, interval
        What was asked.
    mse
        No distribution gives `probability` a larger mean squared error, in squared units of the values; some gives
        it one that is 0.004 % smaller at most. The mechanism is ε-DP, so no optimum lies above.
    lower
        No ε-DP mechanism, whatever its outputs, has a smaller worst case. Like `mse` it is proved in exact arithmetic,
        not taken from the solver.
    epsilon
        The levels that the mechanism looks at: all but those with ε = 0 (or so small that it makes no difference).
    counts
        One row per state: how many people of each level in `epsilon` have the value hi.
    outputs
        What the mechanism may answer, in units of the values: evenly spaced, each to the nearest double.
    probability
        One row per state, one column per output: the chance of that answer, a multiple of 2⁻⁵³. Read as exact numbers
        the rows sum to 1 and every ε-DP inequality e^{−ε}·P(y | c′) ≤ P(y | c) holds.
    """

    levels: Levels
    interval: Interval
    mse: float
    lower: float
    epsilon: Floats
    counts: Ints
    outputs: Floats
    probability: Floats

    @property
    def states(self) -> int:
        """The number of different data sets that the mechanism tells apart."""
        return len(self.counts)

    @property
    def gap(self) -> float:
        """How far `mse` can be above the true optimum, because outputs and means were put on grids."""
        return self.mse - self.lower

    def risk(self, p: Any) -> Floats:
        """Return the mean squared error when each person has the value hi with probability p and lo otherwise.

        Returns
        -------
        NDArray[np.float64]
            One error for each p, in squared units of the values.

        >>> optimal({0: 5}).risk([0, 0.5, 1])
        array([0.25, 0.  , 0.25])
        """
        share = np.asarray(p, dtype=np.float64)
        if not ((share >= 0) & (share <= 1)).all():
            raise InputError("p is a probability, from 0 to 1: the chance that one person has the value hi")
        y = np.linspace(0, 1, self.outputs.size)
        risk = _risk(self.probability, y, self.counts.max(axis=0), share.ravel()).reshape(share.shape)
        return np.asarray(risk * self.interval.width * self.interval.width)

    def __repr__(self) -> str:
        return f"Optimum(n={self.levels.n}, states={self.states}, mse={self.mse:.6g}, lower={self.lower:.6g})"


def optimal(
    levels: Levels | LevelsOfPeople, *, bounds: BoundsLike = (-0.5, 0.5), outputs: int = 41, grid: int = 41
) -> Optimum:
    """Return the smallest worst-case mean squared error that any ε-DP mechanism has, for few people.

    The mechanism is a table P(output | number of people with the value hi, per level); its privacy and its error
    at each p = P(hi) are linear in the table, so the best one solves a linear program. Data in {lo, hi} are the worst:
    a person's value can be rounded at random to lo or hi without changing its mean or anybody's privacy.

    Parameters
    ----------
    levels
        `Levels`, a mapping {ε: people}, or a sequence with one ε a person. The states, Π (people + 1) over the
        levels with ε > 0, may be 300 at most.
    bounds
        The public interval of the values.
    outputs
        How many answers, evenly spaced from lo to hi, the mechanism may give.
    grid
        At how many p, from 0 to 1, the linear program holds the error down. Hundreds of people deserve 81.

    Returns
    -------
    Optimum
        `lower` ≤ the optimum over all mechanisms ≤ `mse`. The two are (hi − lo)²/(4·(outputs − 1)²) apart, and a
        little for the grid of p.

    Examples
    --------
    With all values public the optimum is that of a binomial proportion, 1/(4(1 + √n)²) (Hodges and Lehmann 1950):

    >>> best = optimal({float("inf"): 9})
    >>> best.lower < 1 / 64 < best.mse
    True

    Ten people, half of them strict. ADPM's worst case here is 0.0468.

    >>> best = optimal({0.5: 5, 2: 5})
    >>> best.states, round(best.lower, 4), round(best.mse, 4)
    (36, 0.024, 0.0242)
    """
    levels = Levels.given(levels)
    interval = Interval.of(bounds).ordinary()
    used = levels.epsilon > NEGLIGIBLE / levels.count
    epsilon, count = levels.epsilon[used], levels.count[used]
    states = math.prod(people + 1 for people in count.tolist())
    if states > LARGEST:
        raise InputError(
            f"the exact optimum is for few people: the product of (people + 1) over the levels may be {LARGEST} "
            f"(got {states:,} states); take fewer people or levels, or hetdp.certificate for a bound"
        )
    y = np.linspace(0, 1, _at_least(3, outputs, "outputs"))
    p = _means(_at_least(2, grid, "grid"))
    table, value = _best(epsilon, count, y, p)
    pairs = zip(levels.epsilon[~used].tolist(), levels.count[~used].tolist(), strict=True)
    dropped = _exp(_double(Fraction(sum(Fraction(rate) * people for rate, people in pairs)), math.inf))[0]
    lower = max(value - Fraction(1, 4 * (y.size - 1) ** 2), Fraction(0)) * dropped / SCALE
    square = (Fraction(interval.hi) - Fraction(interval.lo)) ** 2
    return Optimum(
        levels=levels,
        interval=interval,
        mse=_double(_worst(table / UNIT, y, count) * square, math.inf),
        lower=_double(lower * square, 0.0),
        epsilon=epsilon,
        counts=np.array(list(np.ndindex(*(count + 1))), dtype=np.int64).reshape(states, count.size),
        outputs=np.linspace(interval.lo, interval.hi, y.size),
        probability=table / UNIT,
    )


def _at_least(least: int, number: Any, name: str) -> int:
    if not isinstance(number, (int, np.integer)) or isinstance(number, bool) or number < least:
        raise InputError(f"{name} must be a whole number of points, {least} or more (got {number!r})")
    return int(number)


def _means(points: int) -> Floats:
    """Return the half of a Chebyshev grid of p up to 1/2; the other half is its mirror image."""
    return np.asarray(np.sin(np.linspace(0, np.pi / 4, points // 2 + 1)) ** 2)


def _law(count: Ints, p: Floats) -> Floats:
    """Return P(state | p), one row per p: a product of binomials, over the states in the order of `np.ndindex`."""
    law = np.ones((p.size, 1))
    for people in count.tolist():
        k = np.arange(people + 1)
        ways = np.array([math.comb(people, i) for i in k.tolist()], dtype=np.float64)
        binomial = ways * p[:, None] ** k * (1 - p[:, None]) ** (people - k)
        law = (law[:, :, None] * binomial[:, None, :]).reshape(p.size, -1)
    return law


def _risk(table: Floats, y: Floats, count: Ints, p: Floats) -> Floats:
    """Return E(Y − p)² at each p, on the unit interval."""
    law = _law(count, p)
    return np.asarray(law @ (table @ y**2) - 2 * p * (law @ (table @ y)) + p**2)


def _worst(table: Floats, y: Floats, count: Ints) -> Fraction:
    """Return a number that the risk exceeds at no p, at most 0.004 % above the largest risk.

    With n people the risk is a cosine polynomial of degree N = n + 2 in φ, p = sin²(φ/2). Some point of the grid, which
    has 128·N steps, is within π/(256·N) of the maximum. The proof page says why the risk falls by a factor of
    (1 + cos(π/256))/2 at most on the way there; 255 allows for rounding p, and 1e-11 for the arithmetic in doubles.
    """
    half = _means(128 * (int(count.sum()) + 2))
    parts = np.array_split(np.append(half, 1 - half), 16)  # one at a time, to save memory
    largest = max(float(_risk(table, y, count, part).max()) for part in parts)
    return Fraction(largest * 2 / (1 + math.cos(math.pi / 255)) + 1e-11)


def _double(x: Fraction, way: float) -> float:
    """Return x, rounded to a double towards `way`."""
    near = float(x)
    return near if (near <= x if way < x else near >= x) else math.nextafter(near, way)


def _best(epsilon: Floats, count: Ints, y: Floats, p: Floats) -> tuple[Ints, Fraction]:
    """Return an ε-DP table, in units of 1/UNIT, and a value that the largest risk over p of no such table is below.

    Both hold whatever the solver did. The first of the attempts serves nearly always. The other follows when the
    table and the value are far apart: more than a tenth of what the grid of outputs may cost anyway.
    """
    privacy, risk = _privacy(epsilon, count, y.size), _error(count, y, p)
    reached, table, value = math.inf, np.zeros((1, 1), dtype=np.int64), Fraction(0)
    for options in _ATTEMPTS:
        answer = _solve(privacy, risk, y.size, options)
        if answer is not None:
            mended = _mend(answer[0], epsilon, count)
            reached, table = min((reached, table), (_risk(mended / UNIT, y, count, p).max(), mended), key=itemgetter(0))
            value = max(value, _certified(answer[1], epsilon, count, y.size, p))
            if reached - value < 0.025 / (y.size - 1) ** 2:
                break
    if reached - value > 0.01:
        raise HetdpError("the linear program was not solved well enough; try other outputs= or grid=")
    return table, value


def _solve(privacy: Any, risk: Any, outputs: int, options: dict[str, Any]) -> tuple[Floats, Floats] | None:
    """Return a table that minimises the largest risk over p, and the multipliers; None if the solver gave up.

    There is one multiplier for each p, then one for each row of `privacy`: what tightening that inequality costs.

    Some best table is its own mirror image under lo ↔ hi: P(y | c) = P(1 − y | n − c). Read as one vector it is
    then the same back to front, so entries i and N − 1 − i are one variable (`fold`), p up to 1/2 is enough, and
    the inequalities for moving a person from hi to lo are those for moving one from lo to hi.
    """
    from scipy.optimize import linprog
    from scipy.sparse import coo_array, csr_array, eye_array, hstack, kron, vstack

    means, size = risk.shape
    entry = np.arange(size)
    fold = coo_array((np.ones(size), (entry, np.minimum(entry, entry[::-1])))).tocsr()
    states = (size // outputs + 1) // 2
    sums = kron(eye_array(states, size // outputs), np.ones((1, outputs)))
    at_p = np.repeat([[1.0], [0.0]], [means, privacy.shape[0]], axis=0)
    result = linprog(
        # The last variable is the largest risk. The multipliers are as large as what it costs: with 1 instead of 100
        # the solver's tolerance for them would make itself felt.
        np.append(np.zeros(fold.shape[1]), 100),
        A_ub=hstack([vstack([risk, privacy]) @ fold, csr_array(-at_p)], format="csr"),
        b_ub=np.zeros(at_p.size),
        A_eq=hstack([sums @ fold, csr_array((states, 1))], format="csr"),
        b_eq=np.ones(states),
        **options,
    )
    if result.x is None or result.fun is None:
        return None
    return (fold @ result.x[:-1]).reshape(-1, outputs), -result.ineqlin.marginals / 100


def _certified(multipliers: Floats, epsilon: Floats, count: Ints, outputs: int, p: Floats) -> Fraction:
    """Return a value that the largest risk over p of no ε-DP table is below, whatever the multipliers are.

    Those of the p are made a prior, those of the inequalities e^{−ε}·P(y | c′) − P(y | c) ≤ 0 are made ≥ 0. A table's
    average risk under the prior is Σ P(y | c)·cost(c, y). Adding each inequality's left side, times its multiplier,
    makes this sum no larger; collected by P(y | c) it has other costs, and is at least Σ_c min_y of those, since the
    rows sum to 1. The costs are whole numbers, rounded down; so is e^{−ε}, which makes the inequalities weaker.
    """
    cost = _cost(_whole(multipliers[: p.size]), count, outputs, p)
    start = p.size
    for level in np.flatnonzero(np.isfinite(epsilon)).tolist():
        c, moved = _neighbours(cost, count, level)  # views: the next lines change `cost`
        room = -math.expm1(-epsilon[level])  # by which `_privacy` divided
        factor = _whole(multipliers[start : start + c.size] / room).reshape(c.shape)
        c -= factor * SCALE
        moved += factor * _exp(epsilon[level])[0]
        start += c.size
    mirrored = cost + cost[::-1, ::-1]  # twice the mean of two valid choices of prior and multipliers
    return Fraction(mirrored.min(axis=1).sum(), 2 * SCALE**2)


def _cost(weight: NDArray[Any], count: Ints, outputs: int, p: Floats) -> NDArray[Any]:
    """Return Σ_p prior(p)·P(c | p)·(y − p)², rounded down, in units of SCALE⁻²; one row per state, one column per y.

    The prior is proportional to `weight`, whole numbers ≥ 0, and sums to 1 exactly. With p = hi/MEANS and y = i/steps
    everything is a whole number over a common denominator. P(c | p) is a number of ways times a power of p and one of
    1 − p that depend on the number of ones in c alone.
    """
    prior = weight * SCALE // max(weight.sum(), 1)
    prior[prior.argmax()] += SCALE - prior.sum()
    ways, ones = np.ones(1, dtype=object), np.zeros(1, dtype=np.int64)
    for people in count.tolist():
        choices = np.array([math.comb(people, k) for k in range(people + 1)], dtype=object)
        ways = np.multiply.outer(ways, choices).ravel()
        ones = np.add.outer(ones, np.arange(people + 1)).ravel()
    n, steps = int(count.sum()), outputs - 1
    k = np.arange(n + 1).astype(object)[:, None]
    hi = np.array([round(x * MEANS) for x in p.tolist()], dtype=object)
    law = prior * hi**k * (MEANS - hi) ** (n - k)
    zeroth, first, second = ((ways * (law @ hi**power)[ones])[:, None] for power in range(3))
    y = np.arange(outputs).astype(object) * MEANS
    squares = zeroth * y * y - 2 * steps * first * y + steps * steps * second
    return np.asarray(squares * SCALE // (steps**2 * MEANS ** (n + 2)))


def _whole(numbers: Floats) -> NDArray[Any]:
    """Return numbers as whole multiples of 1/SCALE, rounded down; 0 for a negative one or NaN."""
    usable = np.nan_to_num(np.clip(numbers, 0, 1e30))
    return np.array([int(x) for x in (usable * SCALE).tolist()], dtype=object)


def _exp(x: float) -> tuple[int, int]:
    """Return whole numbers below and above SCALE·e^{−x}. Python's decimal numbers have a correctly rounded exp."""
    digits = Context(prec=40, Emin=-99, Emax=99, traps=[]).exp(Decimal(-x))
    floor = math.floor(Fraction(digits) * SCALE)
    return max(floor - 1, 0), floor + 2


def _error(count: Ints, y: Floats, p: Floats) -> Any:
    """Return the matrix from a table, read as one vector, to its risk at each p, but for entries that make no odds."""
    from scipy.sparse import csr_array

    risk = _law(count, p)[:, :, None] * ((y - p[:, None]) ** 2)[:, None, :]
    return csr_array(np.where(risk > 1e-13, risk, 0).reshape(p.size, -1))


def _privacy(epsilon: Floats, count: Ints, outputs: int) -> Any:
    """Return the matrix D with D·table ≤ 0 when e^{−ε}·P(y | c′) ≤ P(y | c), c′ being c with one person moved to hi.

    In this form no coefficient is large for large ε. A row is divided by its room, 1 − e^{−ε}, so that the tolerance
    of the solver means the same for small ε.
    """
    from scipy.sparse import coo_array, vstack

    size = math.prod((count + 1).tolist()) * outputs
    parts = [coo_array((0, size))]
    for level in np.flatnonzero(np.isfinite(epsilon)).tolist():
        c, moved = (x.ravel() for x in _neighbours(np.arange(size), count, level))
        room = -math.expm1(-epsilon[level])
        value = np.repeat([-1.0 / room, math.exp(-epsilon[level]) / room], c.size)
        row = np.tile(np.arange(c.size), 2)
        parts.append(coo_array((value, (row, np.append(c, moved))), shape=(c.size, size)))
    return vstack(parts, format="csr")


def _neighbours(table: NDArray[Any], count: Ints, level: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the entries of a table, state by state, and those of the states with one more hi at a level."""
    cube = np.moveaxis(table.reshape(*(count + 1).tolist(), -1), level, 0)
    return cube[:-1], cube[1:]


def _mend(table: Floats, epsilon: Floats, count: Ints) -> Ints:
    """Return the table in units of 1/UNIT, mended so that it is ε-DP: exactly, and checked.

    Mixing in a share of the uniform answer makes room for (1 − e^{−ε})·share/outputs in every inequality. That is
    twice what the solver's errors and then rounding to whole units, less than 2·outputs of them, can need.
    """
    outputs = table.shape[1]
    table = np.clip(np.nan_to_num(table), 0, 1) + 1e-300  # a row without any sense becomes the uniform one
    table /= table.sum(axis=1, keepdims=True)
    room = -np.expm1(-epsilon) / outputs
    breach = np.maximum(_breach(_units(table), epsilon, count), 0)
    share = min(2 * float(np.max((breach + 2 * outputs / UNIT) / room, initial=0.0)), 1.0)
    units = _units((1 - share) * table + share / outputs)
    if np.any(_breach(units, epsilon, count) > 0):
        raise HetdpError("the best mechanism found could not be made ε-DP; try other outputs= or grid=")
    return units


def _units(table: Floats) -> Ints:
    """Return the table in units of 1/UNIT. Rows sum to UNIT; the largest entry takes what rounding down leaves."""
    units = np.floor(table * UNIT).astype(np.int64)
    units[np.arange(len(units)), units.argmax(axis=1)] += UNIT - units.sum(axis=1)
    return units


def _breach(units: Ints, epsilon: Floats, count: Ints) -> Floats:
    """Return for each level the largest e^{−ε}·P(y | c′) − P(y | c) over neighbours c, c′.

    In whole numbers, with e^{−ε} rounded up; only the result is a double. Its sign is right.
    """
    breach = []
    for level, rate in enumerate(epsilon.tolist()):
        c, moved = _neighbours(units.astype(object), count, level)
        factor = _exp(rate)[1] if math.isfinite(rate) else 0
        largest = max((factor * moved - SCALE * c).max(), (factor * c - SCALE * moved).max())
        breach.append(largest / (SCALE * UNIT))
    return np.array(breach)
