"""Simulate: the mean squared error of a method, by Monte Carlo, beside the exact one.

This imitates the paper's mechanisms in floating point, on the paper's interval [−1/2, 1/2], with continuous Laplace
noise from a seeded generator. It is not a release, shares no code with the release's randomness and protects nobody.

Runs are cut into blocks. Each block has a random stream of its own, so the result does not depend on how many cores
share the work, and all methods of a block see the same data.
"""

from __future__ import annotations

import inspect
import math
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, Never

import numpy as np
from numpy.typing import NDArray

from hetdp.core.domain import Floats, Interval, Ints
from hetdp.core.levels import Levels
from hetdp.core.plan import plan
from hetdp.core.types import ArrayLike, BoundsLike, LevelsOfPeople
from hetdp.errors import InputError, either, unknown_option
from hetdp.estimators import SAMPLING
from hetdp.estimators.minimax import Clamp
from hetdp.privacy.exact import LARGEST_SCALE, Choice
from hetdp.statistics import Statistic
from hetdp.statistics.mean import Ratio

from .family import Distribution, Total, Values, distribution_of, exact_error, law_of, plans_of, squared_errors

BLOCK = 2**18  # values drawn at a time, people times runs: some megabytes a core, whatever is simulated
SEVERAL = 256  # people at one level from whom on their sum is drawn at once, where the distribution can
MOST_PEOPLE = 2**24  # people who can be drawn one by one


@dataclass(frozen=True)
class Simulation:
    """What a simulation of invented people found, in squared units of the values. It is no release and not private.

    Attributes
    ----------
    method, runs
        What was simulated, and how often.
    mse
        The mean of the squared errors (estimate − μ)².
    standard_error
        The standard error of `mse`.
    exact_mse
        The exact mean squared error.
    """

    method: str
    runs: int
    mse: float
    standard_error: float
    exact_mse: float

    @property
    def z(self) -> float:
        """How many standard errors the simulated error lies above the exact one."""
        apart = self.mse - self.exact_mse
        rounding = 1e-12 * self.exact_mse  # two doubles that should agree may differ so much
        return apart / (self.standard_error + rounding) if abs(apart) > rounding else 0.0

    def __str__(self) -> str:
        simulated = f"mse {self.mse:.6g} ± {self.standard_error:.2g} over {self.runs:,} runs"
        return f"{self.method}: {simulated}, exact {self.exact_mse:.6g} (z = {self.z:.2f})"


def simulate(
    levels: Levels | LevelsOfPeople,
    *,
    method: str | Sequence[str],
    distribution: str | Sequence[Any] | Mapping[Any, float] | ArrayLike | Distribution,
    bounds: BoundsLike | None = None,
    statistic: Statistic | None = None,
    runs: int = 20_000,
    rng: int | np.random.SeedSequence | np.random.Generator | None = None,
    variance: float | None = None,
    **unknown: Never,
) -> Simulation | dict[str, Simulation]:
    """Return the mean squared error of a method for people drawn from a distribution, simulated and exact.

    It is for invented people. Never hand it real values: what it returns is not private.

    The methods are those of the paper: estimates are not clamped to the interval (`minimax` has a clamp of its own),
    and `sampling` divides by the number of people really kept, which is not ε-DP. A release does both otherwise;
    `plan(...).mse` is its error before clamping.

    Parameters
    ----------
    levels
        `Levels`, a mapping {ε: people}, or a sequence with one ε a person.
    method
        A name of `hetdp.methods()`, or several: they then share the data, not the noise, and a dict comes back.
    statistic
        What is released, as `hetdp.ask.histogram(categories=…)`, instead of the mean on `bounds`. The error is then of
        all its numbers together: of shares, of numbers on intervals of length 1, of ranks for quantiles; of a sum, a
        count and a mean of those who answered in squared units of the values. The exact error of the last and of
        quantiles is an approximation.
    distribution
        Of a statistic: {value: probability}, with a tuple for several columns and None for a missing value; a sequence
        of equally likely values; for a histogram also the probabilities of its cells, "other" the last. Of the mean:
        "uniform" on the interval; "bernoulli" or ("bernoulli", p) on its two ends, p for the upper one;
        ("beta", a, b) stretched over it; ("point", x); or (function, mean, variance) with a function
        (rng, size) -> values in it, called from several threads.
    runs
        How often the whole experiment is repeated.
    rng
        A seed, a SeedSequence or a Generator; the same one gives the same result on any number of cores.
        None is fresh randomness.
    bounds, variance
        As in `plan`.

    Returns
    -------
    Simulation or dict[str, Simulation]
        Of one method, or {method: simulation} of several.

    Examples
    --------
    Figure 1 (B) of the paper past the saturation point, where Theorem 1 gives 3.989362·10⁻⁴:

    >>> found = simulate({0.1: 700, 1.0: 300}, method="adpm", distribution="bernoulli", bounds=(0, 1), rng=1)
    >>> round(found.exact_mse * 1e4, 4), abs(found.z) < 5
    (3.9894, True)

    A histogram of three cells, the last one "other":

    >>> from hetdp import ask
    >>> cells = ask.histogram(categories=["yes", "no"])
    >>> found = simulate({0.1: 700, 1.0: 300}, statistic=cells, method="adpm", distribution=[0.3, 0.6, 0.1], rng=1)
    >>> abs(found.z) < 5
    True
    """
    if unknown:
        raise unknown_option("hetdp.simulate", unknown, inspect.signature(simulate).parameters)
    if (bounds is None) == (statistic is None):
        raise either("a simulation", bounds)
    levels, seed = Levels.given(levels), _seed(rng)
    names = [method] if isinstance(method, str) else method
    if not isinstance(names, (list, tuple)) or not names or not all(isinstance(name, str) for name in names):
        raise InputError(f"the method must be a name of hetdp.methods() or a list of them (got {str(method)[:64]})")
    if not isinstance(runs, (int, np.integer)) or isinstance(runs, bool) or runs < 2:
        raise InputError(f"the number of runs must be a whole number, 2 or more (got {runs!r}); 20000 is usual")
    if statistic is not None:
        (mse, error), exact, width = _run_statistic(levels, statistic, names, distribution, int(runs), seed)
    else:
        interval = Interval.of(bounds)
        law, width = distribution_of(distribution, interval), interval.width
        mechanisms = [mechanism_of(name, levels, interval, variance) for name in names]
        (mse, error), exact = run(law, levels.count, mechanisms, int(runs), seed), [m.mse(law) for m in mechanisms]
    rows = zip(names, mse, error, exact, strict=True)
    found = {name: Simulation(name, int(runs), *(x * width * width for x in row)) for name, *row in rows}
    return found[method] if isinstance(method, str) else found


def exact_mse(
    levels: Levels | LevelsOfPeople,
    method: str,
    distribution: Any,
    *,
    bounds: BoundsLike = (-0.5, 0.5),
    variance: float | None = None,
) -> float:
    """Return the exact mean squared error that `simulate` estimates; the parameters are the same.

    Examples
    --------
    Example 2 of the paper: stretching at a point mass of 0.5 with ε = 0.01 and 0.1 has the error 0.05 + 200/n².
    (The bias is 0.225, so the paper's 0.05 is 0.050625, rounded.)

    >>> round(exact_mse({0.01: 500, 0.1: 500}, "stretch", ("point", 0.5)), 6)
    0.050825
    """
    interval = Interval.of(bounds)
    mechanism = mechanism_of(method, Levels.given(levels), interval, variance)
    return mechanism.mse(distribution_of(distribution, interval)) * interval.width * interval.width


# How the mechanisms act on simulated data ------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Affine:
    """Σ w·x plus independent Laplace noises, perhaps clamped; with all weights 0 the midpoint."""

    weight: Floats
    scales: Floats
    spread: float
    pull: float
    clamp: Clamp | None = None
    count: Ints = field(default_factory=lambda: np.zeros(0, np.int64))

    def part(self, _: np.random.Generator, x: Values, level: Ints, __: Total | None) -> Floats:
        """Return what people (or sums of whole levels), one a column of x, add to each run."""
        # not `@`: how BLAS rounds may depend on the number of cores
        return np.asarray(np.einsum("ij,j->i", x, self.weight[level]))

    def estimate(self, rng: np.random.Generator, part: Floats) -> Floats:
        """Return the estimates from all that was added."""
        found = part + laplace(rng, self.scales, part.size)
        if self.clamp is None:
            return found
        most = self.clamp.shrink * self.clamp.reach
        return np.clip(found, -most, most)

    def mse(self, law: Distribution) -> float:
        """Return v·Σw² + d²·(1 − Σw)² + Σ 2b² − E g, g what a clamp gains.

        g is a sum of two exponentials of the weighted mean y, so its expectation is made of E e^{±y/η}. Where that is
        not known (the caller's own distribution) it is taken at the mean of y, and the error is at most what is said.
        """
        found = self.spread * law.variance + self.pull * law.mean**2 + 2 * float(np.sum(self.scales**2))
        if self.clamp is None:
            return found
        if law.log_mgf is None:
            return found - float(self.clamp.gain(law.mean, law.mean))
        used = self.weight > 0
        steps = self.weight[used] / self.clamp.shrink / self.clamp.eta
        rise, fall = (float(np.sum(self.count[used] * law.log_mgf(sign * steps))) for sign in (1, -1))
        return found - self.clamp.expected_gain(rise, fall, law.mean)


@dataclass(frozen=True, eq=False)
class Sampling:
    """SM (Section IV-A): the mean of people kept with probability `weight` plus Laplace noise 1/(m·t).

    Data are independent of who is kept, so of a whole level only the number kept matters: the sum of m values is
    drawn anew.
    """

    weight: Floats
    levels: Levels
    t: float

    def part(self, rng: np.random.Generator, x: Values, level: Ints, total: Total | None) -> Floats:
        """Return how many of these people are kept in each run, and their sum; with `total` for whole levels."""
        if total is None:
            kept = rng.random(x.shape) < self.weight[level]
            return np.stack([kept.sum(axis=1), (kept * x).sum(axis=1)])
        m = rng.binomial(self.levels.count[level], self.weight[level], x.shape).sum(axis=1)
        return np.stack([m, total(rng, m)])

    def estimate(self, rng: np.random.Generator, part: Floats) -> Floats:
        """Return (sum of the kept + Laplace(1/t))/m; p = 1 at the largest ε, so m is never 0."""
        m, total = part
        return np.asarray((total + laplace(rng, np.array([1 / self.t]), m.size)) / m)

    def mse(self, law: Distribution) -> float:
        """Return v·E[1/m] + 2/t²·E[1/m²]."""
        first, second = reciprocals(self.levels.count, self.weight)
        return law.variance * first + 2 * (1 / self.t) ** 2 * second


Mechanism = Affine | Sampling


def mechanism_of(name: str, levels: Levels, interval: Interval, variance: float | None) -> Mechanism:
    """Return how a method acts on these people; every one but `sampling` has the weights and the noise of its plan."""
    if name == SAMPLING.name:
        t = float(levels.epsilon.max())
        if t < 1 / LARGEST_SCALE:  # nobody, or noise that could not be drawn: the midpoint
            return Affine(np.zeros(len(levels)), np.zeros(0), spread=0.0, pull=1.0)
        return Sampling(SAMPLING.shape(levels, 0.25).weight, levels, t)
    planned = plan(levels, bounds=interval, method=name, variance=variance)
    errors = planned.errors
    clamp = None
    if errors.clamp is not None:
        eta = errors.clamp.eta
        clamp = replace(errors.clamp, first=eta, second=eta * eta)  # of Laplace noise
    return Affine(planned.person_weight, np.array(errors.scales), errors.spread, errors.pull, clamp, levels.count)


def laplace(rng: np.random.Generator, scales: Floats, runs: int) -> Floats:
    """Return sums of independent Laplace variables, one of each scale, for every run.

    A Laplace variable is the difference of two exponential ones, which numpy draws faster.
    """
    shape = runs, scales.size
    apart = rng.standard_exponential(shape) - rng.standard_exponential(shape)
    return np.asarray(np.einsum("ij,j->i", apart, scales))


def reciprocals(count: Ints, keep: Floats) -> tuple[float, float]:
    """Return E[1/m] and E[1/m²], m the number of people kept, to about ten digits.

    E[1/m] = ∫ E[exp(−y·m)] dy and E[1/m²] = ∫ y·E[exp(−y·m)] dy over y > 0, where E[exp(−y·m)] is the product of
    1 − p·(1 − exp(−y)) over all people. Somebody is kept for sure (p = 1 at the largest ε), so m ≥ 1.

    Examples
    --------
    One person for sure and one half the time: m is 1 or 2.

    >>> first, second = reciprocals(np.array([1, 1]), np.array([0.5, 1.0]))
    >>> round(first, 10), round(second, 10)
    (0.75, 0.625)
    """
    from scipy.integrate import quad

    surely = keep == 1
    always, people, p = int(count[surely].sum()), count[~surely], keep[~surely]
    expected = float(np.sum(count * keep))

    def transform(y: float) -> float:
        return math.exp(float(np.sum(people * np.log1p(p * math.expm1(-y)))) - always * y)

    # in units of 1/E[m], where the integrand lives
    first = quad(lambda x: transform(x / expected), 0, math.inf, epsabs=0, epsrel=1e-10, limit=200)[0]
    second = quad(lambda x: x * transform(x / expected), 0, math.inf, epsabs=0, epsrel=1e-10, limit=200)[0]
    return first / expected, second / expected**2


# The runs --------------------------------------------------------------------------------------------------------


def run(
    law: Distribution, count: Ints, mechanisms: Sequence[Mechanism], runs: int, seed: list[int]
) -> tuple[list[float], list[float]]:
    """Return the mean squared error of each method over so many runs, and its standard error."""
    pieces = _pieces(law, count, np.any([m.weight > 0 for m in mechanisms], axis=0))
    noises = [m.scales.size for m in mechanisms if isinstance(m, Affine)]
    rows = max(BLOCK // max(sum(level.size for level, _ in pieces), *noises, 1), 1)
    sizes = [min(rows, runs - first) for first in range(0, runs, rows)]

    def block(i: int) -> Floats:
        """Return the sums of (estimate − μ)² and of its square over the runs of a block, one column a method."""
        rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(i + 1,)))
        parts = [np.zeros(sizes[i]) for _ in mechanisms]
        for level, total in pieces:
            if total is None:
                x = law.draw(rng, (sizes[i], level.size))
            else:
                x = total(rng, np.broadcast_to(count[level], (sizes[i], level.size)))
            parts = [part + m.part(rng, x, level, total) for m, part in zip(mechanisms, parts, strict=True)]
        found = np.stack([m.estimate(rng, part) for m, part in zip(mechanisms, parts, strict=True)])
        errors = found - law.mean
        errors[np.abs(errors) < 1e-14] = 0  # the rounding of doubles
        return np.stack([(errors**2).sum(axis=1), (errors**4).sum(axis=1)])

    return _shared(block, len(sizes), runs)


def _run_statistic(
    levels: Levels, statistic: Statistic, names: Sequence[str], distribution: Any, runs: int, seed: list[int]
) -> tuple[tuple[list[float], list[float]], list[float], float]:
    """Return what `run` returns, for a statistic; the exact errors; and the width by which all are stretched."""
    law, plans = law_of(statistic, distribution), plans_of(levels, statistic, names)
    rows = max(4 * BLOCK // (law.chance.size * len(levels) + len(names) * law.mean.size), 1)
    sizes = [min(rows, runs - first) for first in range(0, runs, rows)]

    def block(i: int) -> Floats:
        rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(i + 1,)))
        sums = law.totals(rng, levels.count, sizes[i])
        squares = np.stack([squared_errors(planned, law, sums, rng) for planned in plans])
        squares[squares < 1e-28] = 0  # the rounding of doubles
        return np.stack([squares.sum(axis=1), (squares**2).sum(axis=1)])

    one = statistic.geometry.numbers == 1 and not isinstance(statistic.geometry, Choice)
    ratio = isinstance(statistic, Ratio) and statistic.keeps_missing
    width = plans[0].interval.width if ratio else plans[0].span.width if one else 1.0
    return _shared(block, len(sizes), runs), [exact_error(planned, law) for planned in plans], width


def _shared(block: Callable[[int], Floats], blocks: int, runs: int) -> tuple[list[float], list[float]]:
    """Have all cores work on blocks of runs; return the mean squared error of each method and its standard error."""
    np.empty(2**24, np.uint8)  # once it is freed, glibc keeps the memory of a block for the next one: much faster
    with ThreadPoolExecutor(cores()) as pool:
        square, fourth = np.sum(list(pool.map(block, range(blocks))), axis=0) / runs
    return square.tolist(), np.sqrt(np.maximum(fourth - square**2, 0) / runs).tolist()


def _pieces(law: Distribution, count: Ints, used: NDArray[np.bool_]) -> list[tuple[Ints, Total | None]]:
    """Return what a run draws, or raise where too many people had to be drawn one by one.

    First the level of every person who is drawn, at most `BLOCK` at a time; then the levels whose sums are drawn at
    once, with the way to draw them.
    """
    grouped = used & (law.total is not None) & ((count >= SEVERAL) | (count.sum() > MOST_PEOPLE))
    groups, single = np.flatnonzero(grouped), np.flatnonzero(used & ~grouped)
    people = int(count[single].sum())
    if people > MOST_PEOPLE:
        raise InputError(
            f"this distribution is drawn person by person, for at most {MOST_PEOPLE:,} people (got {people:,}); "
            f"'uniform', 'bernoulli' and 'point' are drawn level by level"
        )
    blocks = np.array_split(np.repeat(single, count[single]), -(-people // BLOCK)) if people else []
    return [*((block, None) for block in blocks), *([(groups, law.total)] if groups.size else [])]


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _seed(rng: Any) -> list[int]:
    """Return the entropy of all streams; a SeedSequence stays as it is, a Generator moves on."""
    try:
        generator = np.random.default_rng(rng)
    except (TypeError, ValueError):
        raise InputError(
            f"rng must be a whole number, 0 or more, a SeedSequence or a Generator (got {str(rng)[:64]})"
        ) from None
    return [int(word) for word in generator.integers(2**32, size=8)]
