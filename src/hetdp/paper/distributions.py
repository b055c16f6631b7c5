"""What simulated people say: distributions with their mean, their variance and fast ways to draw them.

Everything here is on the paper's interval [−1/2, 1/2]; a value of the user's interval is mid + (hi − lo)·x.

Uniform values, and Beta values of small whole parameters, lie in the middles of 2¹⁶ equal steps. That moves the mean by
less than 10⁻⁸ of a standard deviation and the variance by less than 10⁻⁸ of itself, which no simulation can see, and
is much cheaper than drawing doubles.
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

BITS = 16
"""Bits of a uniform value."""

MOST_UNIFORMS = 9
"""A Beta value is drawn as an order statistic of at most so many uniform ones; above that numpy's own is faster."""

TRIAL = 2**22
"""Draws from which the mean and the variance of a function are estimated when they are not given."""

Values = NDArray[Any]
Draw = Callable[["np.random.Generator", tuple[int, int]], Values]
Total = Callable[["np.random.Generator", NDArray[np.int64]], Values]


@dataclass(frozen=True)
class Distribution:
    """One distribution on [−1/2, 1/2].

    Attributes
    ----------
    mean, variance
        Closed forms, or what the caller said; estimates if `known` is false.
    draw
        From a generator and a shape to that many values.
    total
        From a generator and an array of numbers of people to the sum of that many values for each, drawn at once.
    several
        The number of people from which on `total` is cheaper than drawing them one by one.
    known
        Whether mean and variance are exact.
    """

    mean: float
    variance: float
    draw: Draw
    total: Total | None = None
    several: int = 1
    known: bool = True


def distribution_of(distribution: Any, interval: Interval, seed: np.random.SeedSequence) -> Distribution:
    """Return the distribution that a name, a tuple (name, parameters …) or a function stands for.

    `seed` serves to estimate the mean of a function that comes without one.
    """
    name, *parameters = distribution if isinstance(distribution, tuple) and distribution else (distribution,)
    if callable(name):
        return _function(name, parameters, interval, seed)
    makers: dict[str, tuple[Callable[..., Distribution], tuple[int, ...]]] = {
        "uniform": (_uniform, (0,)),
        "bernoulli": (_bernoulli, (0, 1)),
        "beta": (_beta, (2,)),
        "point": (lambda x: _point((_inside(x, interval) - interval.mid) / interval.width), (1,)),
    }
    maker, wanted = makers.get(name, (None, ())) if isinstance(name, str) else (None, ())
    if maker is None or len(parameters) not in wanted:
        raise InputError(
            f"a distribution is 'uniform', 'bernoulli', ('bernoulli', p), ('beta', a, b), ('point', x), a function "
            f"(rng, size) -> values or (function, mean, variance) (got {distribution!r})"
        )
    return maker(*(_number(parameter) for parameter in parameters))


def order_statistic(rng: np.random.Generator, shape: tuple[int, int], rank: int, of: int) -> Values:
    """Return draws of the `rank`-th smallest of `of` uniform values on [−1/2, 1/2], to 16 bits, as float32.

    It is a Beta(rank, of + 1 − rank) variable, shifted by 1/2; `rank` = `of` = 1 is the uniform one.
    """
    smallest: list[Values] = []
    for uniform in random_bits(rng, (of, math.prod(shape)), np.int16):
        larger = uniform
        for j, kept in enumerate(smallest):
            smallest[j], larger = np.minimum(kept, larger), np.maximum(kept, larger)
        if len(smallest) < rank:
            smallest.append(larger)
    x = smallest[-1].astype(np.float32)
    x += np.float32(0.5)
    x *= np.float32(2.0**-BITS)
    return x.reshape(shape)


def random_bits(rng: np.random.Generator, shape: tuple[int, int], dtype: type[np.integer[Any]]) -> Values:
    """Return integers whose bits are all random, cut from 64-bit words: several for the price of one."""
    words = rng.integers(0, 2**64 - 1, -(-math.prod(shape) * dtype().itemsize // 8), dtype=np.uint64, endpoint=True)
    return words.view(dtype)[: math.prod(shape)].reshape(shape)


def chances(rng: np.random.Generator, p: NDArray[np.float64], shape: tuple[int, int]) -> NDArray[np.bool_]:
    """Return what happens when every column has its own probability p.

    Sixteen random bits are compared with the first sixteen of p. Where they tie, once in 2¹⁶ times, the rest decides.
    """
    first = np.minimum(np.floor(p * 2.0**BITS), 2.0**BITS - 1)
    rest, limit = p * 2.0**BITS - first, first.astype(np.uint16)
    drawn = random_bits(rng, shape, np.uint16)
    found = drawn < limit
    tied = np.flatnonzero(drawn == limit)
    found.reshape(-1)[tied] = rng.random(tied.size) < rest[tied % p.size]
    return found


def bit_sums(rng: np.random.Generator, count: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return sums of `count` uniform values on [−1/2, 1/2], to 16 bits each, from 16 binomial draws a sum.

    The bits of a uniform value are independent and fair. So in the sum of m of them the bits at one place add up to
    Binomial(m, 1/2), independently of the other places.
    """
    total = np.zeros(count.shape)
    for _ in range(BITS):  # from the last bit to the first
        total = (total + rng.binomial(count, 0.5)) / 2
    return total + count * (2.0 ** -(BITS + 1) - 0.5)


def _uniform() -> Distribution:
    return Distribution(0.0, 1 / 12, lambda rng, shape: order_statistic(rng, shape, 1, 1), total=bit_sums, several=500)


def _bernoulli(p: float = 0.5) -> Distribution:
    if not 0 <= p <= 1:
        raise InputError(f"the probability of the upper bound must be between 0 and 1 (got {p:g})")
    return Distribution(
        p - 0.5,
        p * (1 - p),
        lambda rng, shape: chances(rng, np.array([p]), shape) - 0.5,
        total=lambda rng, count: rng.binomial(count, p) - count / 2,
        several=16,
    )


def _beta(a: float, b: float) -> Distribution:
    s = a + b
    if not (a > 0 and b > 0 and math.isfinite(s)):
        raise InputError(f"the parameters of a Beta distribution must be positive and finite (got {a:g} and {b:g})")
    small = a.is_integer() and b.is_integer() and s - 1 <= MOST_UNIFORMS
    return Distribution(a / s - 0.5, a / s * (b / s) / (s + 1), _order(int(a), int(b)) if small else _gammas(a, b))


def _order(a: int, b: int) -> Draw:
    if a > b:  # the mirror image keeps fewer of the smallest
        return lambda rng, shape: -order_statistic(rng, shape, b, a + b - 1)
    return lambda rng, shape: order_statistic(rng, shape, a, a + b - 1)


def _gammas(a: float, b: float) -> Draw:
    return lambda rng, shape: rng.beta(a, b, shape) - 0.5


def _point(x: float) -> Distribution:
    return Distribution(x, 0.0, lambda _, shape: np.full(shape, x), total=lambda _, count: count * x)


def _function(
    function: Callable[..., Any], parameters: list[Any], interval: Interval, seed: np.random.SeedSequence
) -> Distribution:
    """Return the distribution of a function (rng, size) -> values, with (mean, variance) or without."""

    def draw(rng: np.random.Generator, shape: tuple[int, int]) -> Values:
        x = np.asarray(function(rng, math.prod(shape)), dtype=np.float64)
        if x.shape != (math.prod(shape),):
            raise InputError(f"a distribution must return as many values as asked, {math.prod(shape)} (got {x.shape})")
        if not ((x >= interval.lo) & (x <= interval.hi)).all():
            raise InputError(f"a distribution must stay within the bounds {interval.lo:g} and {interval.hi:g}")
        return ((x - interval.mid) / interval.width).reshape(shape)

    if not parameters:
        return Distribution(*_moments(draw, np.random.default_rng(seed)), draw, known=False)
    if len(parameters) != 2:
        raise InputError("with a function give both its mean and its variance, (function, mean, variance), or neither")
    mean = (_inside(_number(parameters[0]), interval) - interval.mid) / interval.width
    variance = _number(parameters[1]) / interval.width / interval.width
    if not 0 <= variance <= (0.25 - mean**2) * (1 + 1e-9):
        raise InputError(f"no distribution within the bounds has mean {parameters[0]:g} and variance {parameters[1]:g}")
    return Distribution(mean, variance, draw)


def _moments(draw: Draw, rng: np.random.Generator) -> tuple[float, float]:
    """Return the mean and variance of `TRIAL` draws."""
    x = np.array([[part.mean(), (part**2).mean()] for part in (draw(rng, (1, 2**16)) for _ in range(TRIAL // 2**16))])
    mean, square = x.mean(axis=0).tolist()
    return mean, max(square - mean**2, 0.0)


def _number(x: Any) -> float:
    if isinstance(x, (bool, np.bool_)) or not isinstance(x, numbers.Real) or math.isnan(float(x)):
        raise InputError(f"a parameter of a distribution must be a number (got {x!r})")
    return float(x)


def _inside(x: float, interval: Interval) -> float:
    if not interval.lo <= x <= interval.hi:
        raise InputError(f"a distribution must stay within the bounds {interval.lo:g} and {interval.hi:g} (got {x:g})")
    return x
