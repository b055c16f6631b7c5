"""Minimax: a cap of its own, a pull to the midpoint and, where noise matters, a clamp: the smallest worst-case error.

The affine estimator with Laplace noise that has the smallest worst case is ½ + s·(noisy − ½), with weights min(ε, t).
The noisy mean can lie far outside the range, which no mean can: so ½ + s·clip(noisy − ½, ±r) is better. `Clamp` says by
how much, for every distribution; docs/proofs/clamp.md proves it. Other noise can do a little better: see the page on
how it works.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from hetdp.core.domain import Floats
from hetdp.core.levels import Levels, Method, Shape, capped, saturation

_NOTHING = 1e-50
"""A total Σmin(ε, t) below this counts as this: noise that large is never drawn."""
_NOISY = (0.004, 50.0)
"""The noise scales, on an interval of length 1, between which a clamp is looked for: below there is nothing to gain,
above nothing to learn."""
_WORTH = 1e-4
"""A clamp that lowers the worst case by a smaller share than this is left out."""


# What a clamp gains -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Clamp:
    """What clip(noisy − ½, ±r) gains over noisy − ½, both times s, on an interval of length 1.

    Claim. Let r ≥ ½ and c = s·(r + second/first) ≥ ½. If the weighted mean without noise lies y from the midpoint and
    the mean that is estimated z, |z| ≤ ½, then clipping lowers the expected squared error by exactly

        g(y, z) = s·first·[e^{−(r−y)/η}·(c − z) + e^{−(r+y)/η}·(c + z)] ≥ 0,

    which is convex in y. So over any values it gains at least D(z) = g(E y, z), by Jensen's inequality.

    Argument. No y lies beyond r, so noise has to carry the sum beyond it. Given that it does, the excess X over r does
    not depend on y (noise of this law has no memory), and E[(s(r + X) − z)² − (sr − z)²] = 2s(sr − z)·E X + s²·E X².
    The chance is ½e^{−(r−y)/η} for Laplace noise, with E X = η and E X² = 2η²: first = η, second = η². Noise on the
    integers, P(k) ∝ e^{−|k|/b}, in units of 1/total has the same form if r·total + total/2 is whole, with
    first = 1/(total·sinh(1/b)) and second half its variance; both are below those of Laplace noise.

    Attributes
    ----------
    shrink, reach
        s and r.
    eta
        η, the scale of the noise before it is shrunk.
    first, second
        See above.
    """

    shrink: float
    reach: float
    eta: float
    first: float
    second: float

    @property
    def top(self) -> float:
        """The constant c of the claim."""
        return self.shrink * (self.reach + self.second / self.first)

    @property
    def holds(self) -> bool:
        """Whether the conditions of the claim are met."""
        return self.reach >= 0.5 and self.top >= 0.5 - 1e-12

    def gain(self, y: Floats | float, z: Floats | float) -> Floats:
        """Return g(y, z)."""
        r, eta, c = self.reach, self.eta, self.top
        sides = np.exp(-(r - y) / eta) * (c - z) + np.exp(-(r + y) / eta) * (c + z)
        return np.asarray(self.shrink * self.first * sides)

    def expected_gain(self, rise: float, fall: float, z: float) -> float:
        """Return E g(y, z), from ln E e^{y/η} and ln E e^{−y/η}."""
        at = self.reach / self.eta
        sides = math.exp(rise - at) * (self.top - z) + math.exp(fall - at) * (self.top + z)
        return self.shrink * self.first * sides

    def least_gain(self, low: Floats, high: Floats, z: Floats) -> Floats:
        """Return the smallest g(y, z) for y in [low, high]: convex in y, it is smallest where its derivative is 0."""
        with np.errstate(divide="ignore"):
            flat = self.eta / 2 * np.log((self.top + z) / np.maximum(self.top - z, 0.0))
        return self.gain(np.clip(flat, low, high), z)

    def largest(self, beta: float, low: float, high: float) -> float:
        """Return the largest β·z² − D(z) for low ≤ z ≤ high, 0 ≤ low.

        Divided by z, the derivative of D is a power series in z² whose coefficients are first positive, then negative,
        so it rises to one peak and falls from there. The derivative sought, 2β − D′/z, therefore falls and then rises:
        up to the peak it has one root at most, which is the only maximum besides the ends.
        """

        def slope(z: float) -> float:
            return 2 * beta - self._steepness(z)

        ends = [low, high]
        last = min(max(self._peak(), low), high)
        if slope(low) > 0 > slope(last):
            from scipy.optimize import brentq

            ends.append(float(brentq(slope, low, last, xtol=1e-14)))
        return max(beta * z * z - float(self.gain(z, z)) for z in ends)

    def _steepness(self, z: float) -> float:
        """Return D′(z)/z."""
        r, eta, c = self.reach, self.eta, self.top
        if z < 1e-4 * eta:  # its limit at 0; it is even in z
            return 2 * self.shrink * self.first * math.exp(-r / eta) * (c / eta - 2) / eta
        upper, lower = (math.exp(-(r - x) / eta) * ((c - x) / eta - 1) for x in (z, -z))
        return self.shrink * self.first * (upper - lower) / z

    def _peak(self) -> float:
        """Return where D′(z)/z is largest: at x = z/η with x²·tanh x/(x − tanh x) = c/η − 1, whose left side rises."""
        from scipy.optimize import brentq

        goal = self.top / self.eta - 1
        if goal <= 3 + 1e-6:  # the left side at 0 is 3
            return 0.0
        x = brentq(lambda x: x * x * math.tanh(x) / (x - math.tanh(x)) - goal, 1e-3, goal + 1)
        return float(x) * self.eta

    def worst(self, spread: float, pull: float, noise: float, variance: float) -> float:
        """Return the largest error over all distributions of at most this variance.

        It is spread·V + pull·z² + noise − D(z) with V ≤ variance and V ≤ ¼ − z²: up to the z where both agree the
        first limit counts, beyond it the second.
        """
        kink = math.sqrt(max(0.25 - variance, 0.0))
        inner = spread * variance + self.largest(pull, 0.0, kink)
        outer = spread / 4 + self.largest(pull - spread, kink, 0.5)
        return noise + max(inner, outer)

    def worst_drifting(
        self, spread: float, pull: float, noise: float, variance: float, moved: float, drift: float
    ) -> float:
        """Return a bound on the same if the means of levels differ by up to `drift` and move the estimate by `moved`.

        The expected y is then within moved/s of z, and g is linear in z. A level's own mean is within the drift of z,
        so its variance is at most ¼ − (|z| − drift)₊². So on each of many small intervals of z every term is taken at
        its worst end: what comes out is a little too large.
        """
        edges = np.linspace(0, 0.5, 513)
        low, high = edges[:-1], edges[1:]
        reach = moved / self.shrink
        ends = np.maximum(low - reach, -0.5), np.minimum(high + reach, 0.5)
        gain = np.minimum(self.least_gain(*ends, low), self.least_gain(*ends, high))
        bias = (math.sqrt(pull) * high + moved) ** 2
        return noise + float(
            np.max(spread * np.minimum(variance, 0.25 - np.maximum(low - drift, 0.0) ** 2) + bias - gain)
        )

    @property
    def bias(self) -> float:
        """How much clipping moves the expected estimate at most: at an end of the range, towards the midpoint."""
        r, eta = self.reach, self.eta
        return self.shrink * self.first * (math.exp(-(r - 0.5) / eta) - math.exp(-(r + 0.5) / eta)) / 2


# The affine estimator -----------------------------------------------------------------------------------------------


def _best(levels: Levels, a: float) -> tuple[float, Floats, float, float]:
    """Return the cap t and weights min(ε, t) that are best against variance a, with A = Σu² and B = max(u/ε)².

    u are the same weights with sum 1. They minimise a·A + 2·B, which is ADPM's program with ρ = 2/a.
    """
    return _capped(levels, saturation(levels.epsilon, levels.count, rho=2 / a) if a else math.inf)


def _capped(levels: Levels, t: float) -> tuple[float, Floats, float, float]:
    weight = capped(levels.epsilon, t)
    people = float(levels.count @ weight)
    total = min(t, float(levels.epsilon.max())) * people  # Σmin(ε, t)
    return t, weight, float(levels.count @ weight**2) / people**2, max(total, _NOTHING) ** -2


def least_favourable(levels: Levels, variance: float) -> float:
    """Return the variance a ≤ `variance` of the distribution that the best affine estimator has to fear.

    Over all distributions on an interval of length 1 with variance at most σ², weights w with Σw = s have the
    worst-case error

        2η² + max over 0 ≤ a ≤ σ² of a·Σw² + b·(1 − s)²,    b = 1/4 − a, η = max(w/ε),

    because a distribution of variance a has its mean at most √b from the midpoint. That is a game: it is convex in w
    and linear in a, so the smallest maximum is the largest minimum. For a given a the best w is s·u, where u
    minimises m(a) = a·A + 2B (see `_best`) and s = b/(b + m); what remains is φ(a) = b·m/(b + m). It is concave, with
    φ′ = Σw² − (1 − s)², which has the sign of b·√A − m. So a is where that is 0, or an end of [0, σ²]. With σ² = 1/4
    this is s = min(1/(1 + √A), 1/(1 + 8B)) with the cap that makes the worst case smallest.

    Examples
    --------
    One public person: the mean shrinks by half, and the error is 1/16 (Hodges and Lehmann's 1/(4(1 + √n)²)).

    >>> least_favourable(Levels({math.inf: 1}), 0.25)
    0.125
    """
    from scipy.optimize import brentq

    def slope(a: float) -> float:
        _, _, A, B = _best(levels, a)  # noqa: N806  the letters of the formula
        return (0.25 - a) * math.sqrt(A) - (a * A + 2 * B)

    if slope(0) <= 0:  # so little is known that only noise and bias matter
        return 0.0
    return variance if slope(variance) >= 0 else float(brentq(slope, 0, variance, xtol=1e-18))


def affine(levels: Levels, variance: float) -> Shape:
    """Return the best affine estimator with Laplace noise: no clamp."""
    if not levels.active:
        return Shape(np.zeros(len(levels)), threshold=math.inf)
    a = least_favourable(levels, variance)
    t, weight, A, B = _best(levels, a)  # noqa: N806
    b = 0.25 - a
    return Shape(weight, threshold=t, shrink=b / (b + a * A + 2 * B))


# The clamped one ----------------------------------------------------------------------------------------------------


def _shape(levels: Levels, variance: float) -> Shape:
    """Return the clamped estimator, or the affine one where its worst case is no larger.

    A bound on the variance counts in both; the clamp's worst case is `Clamp.worst`, the other's its formula.
    """
    plain = affine(levels, variance)
    people = float(levels.count @ plain.weight)
    total = min(plain.threshold or math.inf, float(levels.epsilon.max(initial=0))) * people
    if not levels.active or not _NOISY[0] <= 1 / max(total, _NOTHING) <= _NOISY[1]:
        return plain
    found = _tuned(levels, variance, plain)
    return found if _worst(levels, found, variance) <= (1 - _WORTH) * _worst(levels, plain, variance) else plain


def _worst(levels: Levels, shape: Shape, variance: float) -> float:
    """Return the worst case of a shape with Laplace noise."""
    _, _, A, B = _capped(levels, shape.threshold or math.inf)  # noqa: N806
    s, eta = shape.shrink, math.sqrt(B)
    spread, pull, noise = s * s * A, (1 - s) ** 2, 2 * s * s * B
    if math.isinf(shape.clamp):
        return noise + max(variance * spread + (0.25 - variance) * pull, pull / 4)
    return Clamp(s, shape.clamp, eta, eta, B).worst(spread, pull, noise, variance)


def _tuned(levels: Levels, variance: float, plain: Shape) -> Shape:
    """Return the cap, the shrinkage and the clamp with about the smallest worst case.

    Caps and clamps are looked for on a grid that closes in on the best pair, and the shrinkage for each of its pairs.
    The clamp is written q = s·r, the largest distance of the estimate from the midpoint: beyond ½ it would only waste
    (no mean lies there), and the conditions of `Clamp` ask for max(s/2, ½ − s·η). Nothing here has to be exact:
    `Clamp.worst` says how good what was found is.
    """
    top, first = float(levels.epsilon.max()), plain.threshold or math.inf
    z = np.append(np.linspace(0, 0.5, 25), math.sqrt(max(0.25 - variance, 0.0)))
    limit = np.minimum(variance, 0.25 - z * z)
    # the error, t, where q lies between its smallest value and ½, and s
    best, width = (math.inf, min(first, top), 0.5, 0.5), np.array([1.0, 0.5])
    for points in (5, 3, 3, 3, 3, 3, 3):
        caps = np.unique(np.minimum(best[1] * np.exp(width[0] * np.linspace(-1, 1, points)), top))
        share = np.clip(best[2] + width[1] * np.linspace(-1, 1, 5), 0, 1)[:, None, None]
        A, B = np.array([_capped(levels, t)[2:] for t in caps.tolist()]).T[:, :, None, None, None]  # noqa: N806
        eta, middle, reach = np.sqrt(B), np.full((caps.size, 5), best[3]), 0.5 if math.isinf(best[0]) else 0.05
        for _ in range(4):  # the best s for each cap and clamp: without it the search would stick on a ridge
            s = np.clip(middle[:, :, None, None] + reach * np.linspace(-1, 1, 9)[:, None], 0.01, 1)
            clamp = Clamp(s, _clamped_at(s, eta, share) / s, eta, eta, B)  # type: ignore[arg-type]  # many at once
            error = (s * s * (A * limit + 2 * B) + (1 - s) ** 2 * z * z - clamp.gain(z, z)).max(axis=3)
            middle = np.take_along_axis(s[..., 0], error.argmin(axis=2)[..., None], axis=2)[..., 0]
            reach *= 0.3
        i, j = np.unravel_index(int(error.min(axis=2).argmin()), middle.shape)
        best = min(best, (float(error[i, j].min()), float(caps[i]), float(share[j, 0, 0]), float(middle[i, j])))
        width *= 0.55
    _, t, part, shrink = best
    r = _clamped_at(shrink, math.sqrt(_capped(levels, t)[3]), part) / shrink
    threshold = first if t >= top and first >= top else t  # nobody is capped either way
    return Shape(capped(levels.epsilon, t), threshold=threshold, shrink=shrink, clamp=max(float(r), 0.5))


def _clamped_at(s: Any, eta: Any, share: Any) -> Any:
    """Return q, this share of the way from the smallest one that is allowed to ½."""
    least = np.maximum(s / 2, 0.5 - s * eta)
    return least + np.maximum(0.5 - least, 0) * share


METHOD = Method(
    name="minimax",
    title="minimax: the smallest worst case with Laplace noise, drawn to the midpoint",
    citation="worked out for this package; the cap is that of Chaudhuri and Courtade, ISIT 2023, Algorithm 1",
    shape=_shape,
    plain=affine,
)
