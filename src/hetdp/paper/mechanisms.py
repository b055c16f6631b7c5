"""How the mechanisms act on simulated data: what blocks of people add to an estimate, the noise, the exact error.

Everything here is on the paper's interval [−1/2, 1/2], in floating point. Nothing here is a release.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from hetdp.core.accuracy import sampling_errors
from hetdp.core.domain import Interval
from hetdp.core.levels import Levels
from hetdp.core.plan import plan
from hetdp.errors import InputError
from hetdp.estimators import sampling
from hetdp.privacy.exact import LARGEST_SCALE

from .distributions import Distribution, Total, Values, chances, random_bits

Floats = NDArray[np.float64]
Ints = NDArray[Any]
Variant = Literal["realised", "fixed"]


@dataclass(frozen=True, eq=False)
class Affine:
    """Σ w·x plus independent Laplace noises; with all weights 0 the midpoint."""

    weight: Floats
    scales: Floats
    spread: float
    pull: float

    def people(self, _: np.random.Generator, x: Values, level: Ints) -> Floats:
        """Return what these people, one a column of x, add to each run."""
        found: Floats = np.vecdot(x, self.weight[level].astype(x.dtype, copy=False))
        return found

    def groups(self, _: np.random.Generator, sums: Floats, level: Ints, __: Total) -> Floats:
        """Return what whole levels, one a column of sums, add to each run."""
        found: Floats = np.einsum("ij,j->i", sums, self.weight[level])
        return found

    def estimate(self, rng: np.random.Generator, part: Floats) -> Floats:
        """Return the estimates from all that was added."""
        return part + laplace(rng, self.scales, part.size)

    def mse(self, law: Distribution) -> float:
        """Return v·Σw² + d²·(1 − Σw)² + Σ 2b²."""
        return self.spread * law.variance + self.pull * law.mean**2 + 2 * float(np.sum(self.scales**2))


@dataclass(frozen=True, eq=False)
class Sampling:
    """SM (Section IV-A): the mean of people kept with probability `weight` plus Laplace noise 1/(m·t).

    Data are independent of who is kept, so of a whole level only the number kept matters: the sum of m values is
    drawn anew.
    """

    weight: Floats
    levels: Levels
    t: float
    fixed: bool

    @property
    def expected(self) -> float:
        """D, the expected number of people kept."""
        return float(np.sum(self.levels.count * self.weight))

    def people(self, rng: np.random.Generator, x: Values, level: Ints) -> Floats:
        """Return how many of these people are kept in each run, and their sum."""
        kept = chances(rng, self.weight[level], (len(x), level.size)).astype(x.dtype)
        return np.stack([kept.sum(axis=1), np.vecdot(kept, x)])

    def groups(self, rng: np.random.Generator, sums: Floats, level: Ints, total: Total) -> Floats:
        """Return how many people of whole levels are kept in each run, and their sum."""
        shape = (len(sums), level.size)
        kept = rng.binomial(self.levels.count[level], self.weight[level], shape).sum(axis=1)
        return np.stack([kept, total(rng, kept)])

    def estimate(self, rng: np.random.Generator, part: Floats) -> Floats:
        """Return (sum of the kept + Laplace(1/t))/m; the midpoint where nobody was kept."""
        m, total = part
        noisy: Floats = total + laplace(rng, np.array([1 / self.t]), m.size)
        if self.fixed:
            return noisy / self.expected
        found: Floats = np.divide(noisy, m, out=np.zeros_like(noisy), where=m > 0)
        return found

    def mse(self, law: Distribution) -> float:
        """Return v·E[1/m] + 2/t²·E[1/m²], given who is kept; for a fixed divisor see `sampling_errors`."""
        if self.fixed:
            errors = sampling_errors(self.levels, self.weight, 1 / (self.expected * self.t))
            return errors.spread * law.variance + errors.pull * law.mean**2 + errors.noise
        first, second = reciprocals(self.levels.count, self.weight)
        return law.variance * first + 2 * (1 / self.t) ** 2 * second


Mechanism = Affine | Sampling


def mechanism_of(name: str, levels: Levels, interval: Interval, variance: float | None, variant: Variant) -> Mechanism:
    """Return how a method acts on these people; every one but `sampling` has the weights and the noise of its plan."""
    if variant not in ("realised", "fixed"):
        raise InputError(f"the variant of sampling is 'realised' or 'fixed' (got {variant!r})")
    if name == sampling.METHOD.name:
        t = float(levels.epsilon.max())
        if t < 1 / LARGEST_SCALE:  # nobody, or noise that could not be drawn: the midpoint
            return Affine(np.zeros(len(levels)), np.zeros(0), spread=0.0, pull=1.0)
        return Sampling(sampling.METHOD.shape(levels, 0.25).weight, levels, t, fixed=variant == "fixed")
    planned = plan(levels, bounds=interval, method=name, variance=variance)
    errors = planned.predicted.errors
    return Affine(planned.person_weight, np.array(errors.scales), errors.spread, errors.pull)


def laplace(rng: np.random.Generator, scales: Floats, runs: int) -> Floats:
    """Return sums of independent Laplace variables, one of each scale b, for every run.

    A Laplace variable is a normal one whose variance 2b²·E is random, E exponential. Given the variances a sum
    of normal variables is normal: one exponential a scale and one normal a run are enough.
    """
    if scales.size < 2:
        return rng.laplace(0.0, float(scales.sum()), runs)
    u = random_bits(rng, (runs, scales.size), np.uint32).astype(np.float32)
    u += np.float32(0.5)
    u *= np.float32(2.0**-32)
    np.log(u, out=u)  # −E, quicker than numpy's own exponential
    largest = float(scales.max())
    variance = -np.einsum("ij,j->i", u, (2 * (scales / largest) ** 2).astype(np.float32))
    found: Floats = largest * rng.standard_normal(runs) * np.sqrt(variance)
    return found


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

    first = quad(lambda x: transform(x / expected), 0, math.inf, epsabs=0, epsrel=1e-10, limit=200)[0]
    second = quad(lambda x: x * transform(x / expected), 0, math.inf, epsabs=0, epsrel=1e-10, limit=200)[0]
    return first / expected, second / expected**2
