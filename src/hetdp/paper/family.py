"""What simulated people say, and statistics of several numbers: histograms, means of columns, variances, quantiles.

As in `paper.simulate` this is floating point with continuous noise from a seeded generator. It is not a release and
shares no code with the release's randomness. People are drawn from a law on finitely many points, so that how many of a
level have each is one multinomial draw, whatever n is, and every moment is an exact sum.

Noise in the limit of a fine lattice: with mass it is uniform on Σz = 0 at the rate exp(−‖z‖₁/2s), with a box uniform on
a cube whose half-width is a Gamma variable. Permute-and-flip is the largest of scores with exponential noise
(Ding, Kifer, Saghaian, Steinke, Wang, Xiao and Zhang 2021, "The Permute-and-Flip Mechanism is Identical to
Report-Noisy-Max with Exponential Noise").
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hetdp.core.cells import Reading, Words
from hetdp.core.domain import GRID, Floats, Interval, value_of
from hetdp.core.levels import Levels
from hetdp.core.plan import FAMILY, Plan, plan
from hetdp.errors import InputError
from hetdp.privacy.exact import Box, Choice, Geometry, Mass
from hetdp.statistics import Statistic
from hetdp.statistics.histogram import Celled
from hetdp.statistics.mean import Ratio
from hetdp.statistics.quantile import Ranks
from hetdp.tally import coded, settled

Generator = np.random.Generator


@dataclass(frozen=True, eq=False)
class Law:
    """A law on finitely many points: what a person of each hands over, in [0, 1], and its probability.

    Without points a person is in one of so many cells.
    """

    chance: Floats
    points: Floats | None = None

    @property
    def mean(self) -> Floats:
        """The expected numbers."""
        return self.chance if self.points is None else self.chance @ self.points

    @property
    def variance(self) -> float:
        """The variance of what one person hands over, all numbers together."""
        squares = 1.0 if self.points is None else float(self.chance @ (self.points**2).sum(axis=1))
        return squares - float(self.mean @ self.mean)

    def totals(self, rng: Generator, count: NDArray[np.int64], runs: int) -> Floats:
        """Return the sums of the people of each level, of shape (runs, levels, width)."""
        people = rng.multinomial(count, self.chance, (runs, count.size))
        return people.astype(np.float64) if self.points is None else people @ self.points


def law_of(statistic: Statistic, distribution: Any) -> Law:
    """Return the law of what a person hands over, by the statistic's own codes.

    `distribution` is {value: probability}; of several columns a value is a tuple; None is a missing one. Without
    probabilities, a sequence of values, all are alike. Of a histogram it may be the probabilities of its cells.
    """
    reads, alone = statistic.reads, isinstance(statistic, (Celled, Ranks))
    if isinstance(distribution, Mapping):
        cells, chance = list(distribution), np.array([*map(float, distribution.values())])
    elif isinstance(statistic, Celled):
        return Law(_chances(np.asarray(distribution, np.float64), statistic.cells))
    else:
        cells = np.asarray(distribution).tolist()
        chance = np.full(len(cells), 1 / max(len(cells), 1))
    rows = [cell if isinstance(cell, (tuple, list)) else (cell,) for cell in cells]
    if not rows or any(len(row) != len(reads) for row in rows):
        raise InputError(f"a person of this distribution has {len(reads)} values: {{value: probability}}")
    chance = _chances(chance, len(rows))
    columns = [_column(column, kind) for column, kind in zip(zip(*rows, strict=True), reads, strict=True)]
    keep, cell, codes = settled(statistic, *coded(statistic, columns))
    if keep is not None:  # those who answered are all there is
        chance = _chances(chance[keep] / chance[keep].sum(), cell.size)
    if alone:
        return Law(np.bincount(cell, chance, statistic.cells).astype(np.float64))
    sums = np.stack(codes, axis=1).astype(np.int64) if codes else np.zeros((cell.size, 0), np.int64)
    return Law(chance, statistic.totals(cell, np.ones(cell.size, np.int64), sums) / GRID)


def _column(cells: Sequence[Any], kind: Reading) -> NDArray[Any]:
    read = value_of if kind is None else kind.value if isinstance(kind, Words) else kind.index
    return np.array([read(cell) for cell in cells])


def _chances(chance: Floats, size: int) -> Floats:
    if chance.shape != (size,) or not (chance >= 0).all() or not math.isclose(chance.sum(), 1, abs_tol=1e-9):
        raise InputError(f"a distribution needs {size} probabilities that add up to 1")
    return np.asarray(chance / chance.sum())


# The noise ----------------------------------------------------------------------------------------------------------


def noise_of(geometry: Geometry, rng: Generator, scale: float, runs: int) -> Floats:
    """Return noise of this shape and scale, of shape (runs, numbers)."""
    if isinstance(geometry, Mass):
        return zero_sum(rng, geometry.cells, runs) * scale
    d = geometry.numbers if isinstance(geometry, Box) else 1  # in one dimension a cube is Laplace noise
    half = rng.gamma(d + 1, scale, (runs, 1))
    return half * rng.uniform(-1, 1, (runs, d))


def zero_sum(rng: Generator, cells: int, runs: int) -> Floats:
    """Return vectors of sum 0 with density ∝ exp(−‖z‖₁/2).

    All but the last number are Laplace noise of scale 2, the last one makes the sum 0 and is kept with probability
    exp(−|last|/2).
    """
    found, left = [np.zeros((0, cells))], runs
    while left > 0:
        some = rng.laplace(0, 2, (int(left * 2 * math.sqrt(cells)) + 16, cells - 1))
        last = -some.sum(axis=1)
        kept = rng.random(last.size) < np.exp(-np.abs(last) / 2)
        found.append(np.column_stack([some[kept], last[kept]])[:left])
        left -= found[-1].shape[0]
    return np.concatenate(found)


# What a release would publish, and how far that is from the truth ---------------------------------------------------


def squared_errors(planned: Plan, law: Law, sums: Floats, rng: Generator) -> Floats:
    """Return the squared error of every run, all numbers together, from the sums of the people of each level."""
    statistic, runs = planned.statistic, sums.shape[0]
    truth = sums.sum(axis=1) / planned.n if statistic.whole else law.mean
    scale = planned.noise[0].scale / planned.total if planned.noise else 0.0
    if isinstance(statistic.geometry, Choice):
        return _rank_errors(planned, law, sums, scale, rng)
    if planned.abstains:
        numbers = np.broadcast_to(_unit_nothing(statistic), (runs, law.mean.size))
    else:
        numbers = np.einsum("ijk,j->ik", sums, planned.person_weight)
        if scale:
            numbers = numbers + noise_of(statistic.geometry, rng, scale, runs)
    if isinstance(statistic, Ratio) and statistic.keeps_missing:
        there = numbers[:, 0] + numbers[:, 1]
        ratio = np.where(there > 0, numbers[:, 0] / np.where(there > 0, there, 1), 0.5).clip(0, 1)
        return np.asarray((ratio - law.mean[0] / law.mean[:2].sum()) ** 2)
    return np.asarray(((numbers - truth) ** 2).sum(axis=1))


def _unit_nothing(statistic: Statistic) -> Floats:
    """Return the answer without data on intervals of length 1; a single number is the middle of its interval."""
    return np.array(statistic.nothing if statistic.geometry.numbers > 1 else (0.5,))


def _rank_errors(planned: Plan, law: Law, sums: Floats, scale: float, rng: Generator) -> Floats:
    """Return by how much the chosen bins miss the wanted ranks of the distribution, squared and added up."""
    asked = planned.statistic
    wanted: Sequence[float] = asked.q  # type: ignore[attr-defined]  # quantiles alone are chosen
    size = asked.sorting.size  # type: ignore[union-attr]  # they are sorted into bins; a last cell has the unanswered
    there = law.mean[:size] / law.mean[:size].sum()
    weights = np.einsum("ijk,j->ik", sums, planned.person_weight)[:, :size]
    upto, above, total = np.cumsum(there), np.cumsum(weights, axis=1), np.zeros(sums.shape[0])
    for q, idle in zip(wanted, asked.nothing, strict=False):
        rank = q * above[:, -1:]
        score = -np.maximum(0, np.maximum(above - weights - rank, rank - above))
        score += rng.exponential(scale, score.shape) if scale else 0
        bins = np.full(total.size, int(idle)) if planned.abstains else score.argmax(axis=1)
        total += np.maximum(0, np.maximum(upto[bins] - there[bins] - q, q - upto[bins])) ** 2
    return total


def exact_error(planned: Plan, law: Law) -> float:
    """Return the mean squared error by the formula; of quantiles and of a mean of those who answered about so much.

    Σw²·(variance of what one person hands over) + the variance of the noise, all numbers together. A quantile has
    Σw²·q(1 − q) + 8η² in rank, η = max w/ε. A mean of those who answered is a ratio: with m the mean, r the share, it
    has the variance of (1 − m)·upper − m·lower, over r².
    """
    statistic, errors = planned.statistic, planned.errors
    if isinstance(statistic.geometry, Choice):
        if planned.abstains:
            return float(squared_errors(planned, law, np.zeros((1, 1, law.mean.size)), np.random.default_rng())[0])
        return errors.spread * statistic.variance + errors.noise
    if isinstance(statistic, Ratio) and statistic.keeps_missing:
        upper, lower, _ = law.mean
        share, m = float(upper + lower), float(upper / (upper + lower))
        if planned.abstains:
            return (0.5 - m) ** 2
        ratio = Law(law.chance, law.points @ np.array([[1 - m], [-m], [0.0]]))
        return (errors.spread * ratio.variance + errors.noise / 3 * (1 - m + m * m)) / share**2
    if planned.abstains:
        own = law.variance / planned.n if statistic.whole else 0.0
        return float(((_unit_nothing(statistic) - law.mean) ** 2).sum()) + own
    return errors.spread * law.variance + errors.noise


def plans_of(levels: Levels, statistic: Statistic, names: Sequence[str]) -> list[Plan]:
    """Return the plan of each method."""
    if unknown := [name for name in names if name not in FAMILY]:
        raise InputError(f"a statistic is simulated with the methods {', '.join(FAMILY)} (got {unknown[0]!r})")
    return [plan(levels, statistic=statistic, method=name) for name in names]


# What one simulated person says ---------------------------------------------------------------------------------------
#
# These distributions are on the paper's interval [−1/2, 1/2]; a value of the user's interval is mid + (hi − lo)·x.

BITS = 16  # of a uniform value that is drawn as part of a sum

Values = NDArray[Any]
Draw = Callable[["np.random.Generator", tuple[int, int]], Values]
Total = Callable[["np.random.Generator", NDArray[np.int64]], Values]


@dataclass(frozen=True)
class Distribution:
    """One distribution on [−1/2, 1/2].

    Attributes
    ----------
    mean, variance
        Closed forms, or what the caller said.
    draw
        From a generator and a shape to that many values.
    total
        From a generator and an array of numbers of people to the sum of that many values for each, drawn at once;
        None where values have to be drawn one by one.
    log_mgf
        λ ↦ ln E e^{λx}, for an array of λ; None of a function of the caller.
    """

    mean: float
    variance: float
    draw: Draw
    total: Total | None = None
    log_mgf: Callable[[NDArray[np.float64]], NDArray[np.float64]] | None = None


def distribution_of(distribution: Any, interval: Interval) -> Distribution:
    """Return the distribution that a name or a tuple (name or function, parameters …) stands for."""
    given = distribution if isinstance(distribution, tuple) else (distribution,)
    match given if given and (isinstance(given[0], str) or callable(given[0])) else ():  # an array has no one truth
        case ("uniform",):
            return Distribution(
                0.0,
                1 / 12,
                lambda rng, shape: rng.random(shape) - 0.5,
                total=uniform_sums,
                log_mgf=lambda lam: np.log(np.sinh(lam / 2) / (lam / 2)),
            )
        case ("bernoulli",):
            return _bernoulli(0.5)
        case ("bernoulli", p):
            return _bernoulli(_number(p))
        case ("beta", a, b):
            return _beta(_number(a), _number(b))
        case ("point", value):
            x = _unit(_number(value), interval)
            return Distribution(
                x,
                0.0,
                lambda _, shape: np.full(shape, x),
                total=lambda _, count: count * x,
                log_mgf=lambda lam: lam * x,
            )
        case (function, value, square) if callable(function):
            mean, variance = _unit(_number(value), interval), _number(square) / interval.width / interval.width
            if not 0 <= variance <= (0.25 - mean**2) * (1 + 1e-9):
                raise InputError(f"no distribution within the bounds has mean {value:g} and variance {square:g}")
            return Distribution(mean, variance, _checked(function, interval))
    # a text is quoted, a sequence never: it may hold somebody's values
    got = repr(distribution[:64]) if isinstance(distribution, str) else f"a {type(distribution).__name__}"
    raise InputError(
        f"a distribution is 'uniform', 'bernoulli', ('bernoulli', p), ('beta', a, b), ('point', x) or "
        f"(function, mean, variance) with a function (rng, size) -> values (got {got})"
    )


def uniform_sums(rng: np.random.Generator, count: NDArray[np.int64]) -> Values:
    """Return sums of `count` uniform values on [−1/2, 1/2], to 16 bits each, from 16 binomial draws a sum.

    The bits of a uniform value are independent and fair. So in the sum of m of them the bits at one place add up to
    Binomial(m, 1/2), independently of the other places. Values in the middles of 2¹⁶ equal steps have the mean of
    uniform ones, and their variance to 2⁻³², which no simulation can tell apart.
    """
    total = np.zeros(count.shape)
    for _ in range(BITS):  # from the last bit to the first
        total = (total + rng.binomial(count, 0.5)) / 2
    return total + count * (2.0 ** -(BITS + 1) - 0.5)


def _bernoulli(p: float) -> Distribution:
    if not 0 <= p <= 1:
        raise InputError(f"the probability of the upper bound must be between 0 and 1 (got {p:g})")
    return Distribution(
        p - 0.5,
        p * (1 - p),
        lambda rng, shape: (rng.random(shape) < p) - 0.5,
        total=lambda rng, count: rng.binomial(count, p) - count / 2,
        log_mgf=lambda lam: np.log(p * np.exp(lam / 2) + (1 - p) * np.exp(-lam / 2)),
    )


def _beta(a: float, b: float) -> Distribution:
    s = a + b
    if not (a > 0 and b > 0 and math.isfinite(s)):
        raise InputError(f"the parameters of a Beta distribution must be positive and finite (got {a:g} and {b:g})")

    def log_mgf(lam: NDArray[np.float64]) -> NDArray[np.float64]:
        from scipy.special import hyp1f1

        return np.asarray(np.log(hyp1f1(a, s, lam)) - lam / 2)

    mean, variance = a / s - 0.5, a / s * (b / s) / (s + 1)
    return Distribution(mean, variance, lambda rng, shape: rng.beta(a, b, shape) - 0.5, log_mgf=log_mgf)


def _checked(function: Callable[..., Any], interval: Interval) -> Draw:
    """Return how values of a function (rng, size) -> values are drawn: as many as asked, within the bounds."""

    def draw(rng: np.random.Generator, shape: tuple[int, int]) -> Values:
        x = np.asarray(function(rng, math.prod(shape)), dtype=np.float64)
        if x.shape != (math.prod(shape),):
            raise InputError(f"a distribution must return as many values as asked, {math.prod(shape)} (got {x.shape})")
        if not ((x >= interval.lo) & (x <= interval.hi)).all():
            raise InputError(f"a distribution must stay within the bounds {interval.lo:g} and {interval.hi:g}")
        return ((x - interval.mid) / interval.width).reshape(shape)

    return draw


def _number(x: Any) -> float:
    if isinstance(x, (bool, np.bool_)) or not isinstance(x, numbers.Real) or math.isnan(float(x)):
        raise InputError(f"a parameter of a distribution must be a number (got {str(x)[:64]!r})")
    return float(x)


def _unit(x: float, interval: Interval) -> float:
    """Return where a value of the user's interval lies on [−1/2, 1/2]."""
    if not interval.lo <= x <= interval.hi:
        raise InputError(f"a distribution must stay within the bounds {interval.lo:g} and {interval.hi:g} (got {x:g})")
    return (x - interval.mid) / interval.width
