"""What simulated people say: distributions with their mean, their variance and ways to draw them.

Everything here is on the paper's interval [−1/2, 1/2]; a value of the user's interval is mid + (hi − lo)·x.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hetdp.core.domain import Interval
from hetdp.errors import InputError

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
    match distribution if isinstance(distribution, tuple) else (distribution,):
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
    raise InputError(
        f"a distribution is 'uniform', 'bernoulli', ('bernoulli', p), ('beta', a, b), ('point', x) or "
        f"(function, mean, variance) with a function (rng, size) -> values (got {distribution!r})"
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
        raise InputError(f"a parameter of a distribution must be a number (got {x!r})")
    return float(x)


def _unit(x: float, interval: Interval) -> float:
    """Return where a value of the user's interval lies on [−1/2, 1/2]."""
    if not interval.lo <= x <= interval.hi:
        raise InputError(f"a distribution must stay within the bounds {interval.lo:g} and {interval.hi:g} (got {x:g})")
    return (x - interval.mid) / interval.width
