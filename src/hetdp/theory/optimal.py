"""Optimal: the smallest worst-case error that any ε-DP mechanism can have, for few people.

A linear program over all mechanisms. What it computes, and how far its two grids can mislead, is proved in
`docs/proofs/optimal.md`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hetdp.core.domain import Interval
from hetdp.core.levels import Levels
from hetdp.errors import HetdpError, InputError

LARGEST = 300  # the most states, Π (people at a level + 1), that the linear program is asked to hold
# a level with people × ε up to this counts as ε = 0: the optimum changes by a factor of e^{people × ε} at most
NEGLIGIBLE = 1e-4
SLACK = 1e-7  # how far the solver's value of a program, on an interval of length 1, may be off

_TIGHT = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
# ways to solve, as options of the solver
_ATTEMPTS: tuple[dict[str, Any], ...] = ({"method": "highs-ipm"}, {"method": "highs-ds", "options": _TIGHT})

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Optimum:
    """The best mechanism found, and the two numbers between which the true optimum lies.

    Attributes
    ----------
    levels, interval
        What was asked.
    mse
        The largest mean squared error of `probability` over all distributions, in squared units of the values, to
        0.02 %. The mechanism is ε-DP, so no optimum lies above.
    lower
        No ε-DP mechanism, whatever its outputs, has a smaller worst case.
    epsilon
        The levels that the mechanism looks at: all but those with ε = 0 (or so small that it makes no difference).
    counts
        One row per state: how many people of each level in `epsilon` have the value hi.
    outputs
        What the mechanism may answer, in units of the values.
    probability
        One row per state, one column per output: the chance of that answer.
    violation
        The worst breach of an ε-DP inequality e^{−ε}·P(y | c′) ≤ P(y | c) or of a row's sum, as a probability.
    """

    levels: Levels
    interval: Interval
    mse: float
    lower: float
    epsilon: Floats
    counts: Ints
    outputs: Floats
    probability: Floats
    violation: float

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
    levels: Levels | Mapping[Any, int] | Any, *, bounds: Any = (-0.5, 0.5), outputs: int = 41, grid: int = 41
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
    interval = Interval.of(bounds)
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
    dropped = math.exp(-float(levels.epsilon[~used] @ levels.count[~used]))
    square = interval.width * interval.width
    return Optimum(
        levels=levels,
        interval=interval,
        mse=float(_risk(table, y, count, _means(64 * (int(count.sum()) + 2))).max()) * square,
        lower=max(value - SLACK - 0.25 / (y.size - 1) ** 2, 0.0) * dropped * square,
        epsilon=epsilon,
        counts=np.array(list(np.ndindex(*(count + 1))), dtype=np.int64).reshape(states, count.size),
        outputs=np.linspace(interval.lo, interval.hi, y.size),
        probability=table,
        violation=float(np.max(_breach(table, epsilon, count), initial=np.abs(table.sum(axis=1) - 1).max())),
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


def _best(epsilon: Floats, count: Ints, y: Floats, p: Floats) -> tuple[Floats, float]:
    """Return an ε-DP table that minimises the largest risk over p, and what the linear program says of that risk.

    The first of the attempts serves nearly always. The other follows when it leaves much to mend: more than a tenth of
    what the grid of outputs may cost anyway.
    """
    found = []
    privacy, risk = _privacy(epsilon, count, y.size), _error(count, y, p)
    for options in _ATTEMPTS:
        answer = _solve(privacy, risk, y.size, options)
        if answer is not None:
            table, share = _mend(answer[0], epsilon, count)
            found.append((share, table, answer[1]))
            if share < 0.1 / (y.size - 1) ** 2:
                break
    share, table, value = min(found, key=lambda attempt: attempt[0], default=(1.0, y, 0.0))
    if share > 0.01:
        raise HetdpError("the linear program was not solved well enough to be ε-DP; try other outputs= or grid=")
    return table, value


def _solve(privacy: Any, risk: Any, outputs: int, options: dict[str, Any]) -> tuple[Floats, float] | None:
    """Return the table that minimises the largest risk over p, and that risk; None if the solver gave up.

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
        np.append(np.zeros(fold.shape[1]), 1),  # the last variable is the largest risk
        A_ub=hstack([vstack([risk, privacy]) @ fold, csr_array(-at_p)], format="csr"),
        b_ub=np.zeros(at_p.size),
        A_eq=hstack([sums @ fold, csr_array((states, 1))], format="csr"),
        b_eq=np.ones(states),
        **options,
    )
    if result.x is None or result.fun is None:
        return None
    return (fold @ result.x[:-1]).reshape(-1, outputs), float(result.fun)


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


def _mend(table: Floats, epsilon: Floats, count: Ints) -> tuple[Floats, float]:
    """Return the table with the solver's rounding mended, so that it is ε-DP, and how much that took.

    Mixing in a share of the uniform answer makes room for (1 − e^{−ε})·share/outputs in every inequality.
    """
    table = np.maximum(table, 0)
    table /= table.sum(axis=1, keepdims=True)
    room = -np.expm1(-epsilon) / table.shape[1]
    share = min(2 * float(np.max(_breach(table, epsilon, count) / room, initial=0.0)), 1.0)
    return (1 - share) * table + share / table.shape[1], share


def _breach(table: Floats, epsilon: Floats, count: Ints) -> Floats:
    """Return for each level the largest e^{−ε}·P(y | c′) − P(y | c) over neighbours c, c′; 0 if none is positive."""
    breach = np.zeros(epsilon.size)
    for level, factor in enumerate(np.exp(-epsilon)):
        c, moved = _neighbours(table, count, level)
        breach[level] = max((factor * moved - c).max(), (factor * c - moved).max(), 0.0)
    return breach
