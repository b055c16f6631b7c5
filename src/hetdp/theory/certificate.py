"""Certificate: how far ADPM is from the best that any ε-DP method could do, for these very ε.

Four lower bounds on the worst-case mean squared error of every ε-DP method, on an interval of length 1. Data that take
only the values lo and hi, hi with probability p = (1 + x)/2, are hard enough for all of them. Three are proved in
`docs/proofs/certificate.md`, whose letters are used here; the fourth, which is nearly always the largest, is in
`hetdp.theory.path`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hetdp.core.domain import Floats, Interval
from hetdp.core.levels import BITS, WIDE_BITS, Levels, root
from hetdp.core.plan import plan
from hetdp.core.types import BoundsLike, LevelsOfPeople
from hetdp.errors import InputError

from .path import EFFORTS, Effort, path

_MARGIN = 1 - 1e-6  # what a computed bound is multiplied by: rounding and quadrature err by far less
_DOWN = 1 - 2.0**-48  # the same for a formula of a few operations


@dataclass(frozen=True)
class Certificate:
    """What ADPM guarantees beside what no ε-DP method can beat.

    Attributes
    ----------
    upper
        The worst-case mean squared error of ADPM, in squared units of the values.
    lower
        No ε-DP method has a smaller one.
    ratio
        upper ÷ lower, 1 or more.
    technique
        The name of the bound that gave `lower`.
    best
        The smallest worst-case mean squared error of our methods: that of `minimax`, or of ADPM.
    candidates
        All lower bounds by name; 0 where one says nothing.
    """

    upper: float
    lower: float
    ratio: float
    technique: str
    best: float
    candidates: Mapping[str, float]

    @property
    def best_ratio(self) -> float:
        """`best` ÷ `lower`: how far our best method is from the best possible, at most."""
        return max(self.best / max(self.lower, 5e-324), 1.0)

    def sentence(self, mse: float | None = None) -> str:
        """Return the certificate in words; the factor is rounded up, so that the sentence stays true.

        It speaks of ADPM's worst case, or of another one over the same levels and interval when `mse` is given: that of
        another method's plan. A plan with a `variance` bound is outside: its worst case is over fewer distributions.
        """
        ratio = self.ratio if mse is None else mse / max(self.lower, 5e-324)  # a very narrow interval underflows
        if not ratio >= 1 - 1e-12:
            raise InputError(
                f"no worst case over all distributions is below {self.lower:.6g} (got {mse:g}); "
                "leave out plans with a bound on the variance"
            )
        if ratio <= 1 + 1e-12:
            return "no ε-DP method, known or unknown, can have a smaller worst-case mean squared error than this"
        return (
            f"no ε-DP method, known or unknown, can have less than 1/{_up(ratio)} of this worst-case mean squared error"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the certificate as plain data."""
        return {**asdict(self), "best_ratio": self.best_ratio, "sentence": self.sentence()}


def certificate(levels: Levels | LevelsOfPeople, *, bounds: BoundsLike, effort: Effort = "report") -> Certificate:
    """Return ADPM's worst-case error and the best of four lower bounds on that of every ε-DP method.

    Parameters
    ----------
    levels
        `Levels`, a mapping {ε: people}, or a sequence with one ε a person.
    bounds
        The public interval of the values.
    effort
        `"report"` takes a fraction of a second. `"full"` searches longer for the largest bound: seconds, with 20,000
        people about a minute. Both are true bounds.

    Returns
    -------
    Certificate
        `upper`, `lower` and their `ratio`, and which of the bounds it is.

    Examples
    --------
    Case (B) of the paper's Theorem 1. The paper's own lower bound is 1,048 times smaller than its upper bound.

    >>> found = certificate({0.1: 700, float("inf"): 300}, bounds=(-0.5, 0.5))
    >>> round(found.upper * 1e4, 3), round(found.lower * 1e4, 2), found.technique
    (3.989, 3.71, 'path')
    >>> found.sentence()
    'no ε-DP method, known or unknown, can have less than 1/1.08 of this worst-case mean squared error'
    """
    if effort not in EFFORTS:
        raise InputError(f"the effort is 'report' or 'full' (got {effort!r})")
    interval = Interval.of(bounds)
    adpm = plan(levels, bounds=(-0.5, 0.5))  # on an interval of length 1: the ratio does not depend on the width
    epsilon, count = _people(adpm.levels)
    found = {name: bound(epsilon, count) for name, bound in TECHNIQUES.items() if bound is not path}
    found["path"] = path(epsilon, count, effort)
    technique = max(found, key=lambda name: found[name])
    best = min(adpm.worst_case_mse, plan(adpm.levels, bounds=(-0.5, 0.5), method="minimax").worst_case_mse)
    area = interval.width * interval.width
    return Certificate(
        upper=adpm.worst_case_mse * area,
        lower=found[technique] * area * _DOWN,
        ratio=max(adpm.worst_case_mse / found[technique], 1.0),
        technique=technique,
        best=best * area,
        candidates={name: lower * area * _DOWN for name, lower in found.items()},
    )


def _people(levels: Levels) -> tuple[Floats, NDArray[np.int64]]:
    """Return the people whom a method may use, ε > 0; an ε that was rounded down is taken back up."""
    used = levels.epsilon > 0
    with np.errstate(over="ignore"):
        epsilon = levels.epsilon[used] * (_rounded_by(levels.wide) if levels.rounded else 1.0)
    return epsilon, levels.count[used]


def _rounded_by(wide: bool) -> float:  # noqa: FBT001  a fact of the levels
    """Return 1 + 2^{1 − bits}: an ε that was rounded down to so many bits stood below this times what is left."""
    return 1 + 2.0 ** (1 - (WIDE_BITS if wide else BITS))


# (a) -------------------------------------------------------------------------------------------------------------


def hodges_lehmann(epsilon: Floats, count: NDArray[np.int64]) -> float:  # noqa: ARG001  no privacy at all
    """Return 1/(4(1 + √m)²): the minimax error for m people without any privacy (Hodges and Lehmann 1950).

    >>> round(hodges_lehmann(np.array([1.0]), np.array([9])), 9)
    0.015625
    """
    return _DOWN * 0.25 / (1 + math.sqrt(sum(count.tolist()))) ** 2


# (b) -------------------------------------------------------------------------------------------------------------


def two_point(epsilon: Floats, count: NDArray[np.int64]) -> float:
    """Return the largest over δ of δ²/4·(1 − Δ): an equal bet between the means ±δ/2.

    Δ is the Vincze–Le Cam distance ½∫(q₁ − q₂)²/(q₁ + q₂) between the outputs. Its root obeys the triangle inequality.
    The first k people, ascending in ε, cost tanh(½·√(δ²A² + δ(1 − δ)B)) by group privacy, A = Σε and B = Σε²; the m
    others cost √(1 − (1 − δ²)^m), whatever is done with their values. Every k and every δ give a valid bound.

    >>> round(two_point(np.array([0.001]), np.array([1000])), 4)
    0.1966
    """
    with np.errstate(over="ignore"):
        A = np.concatenate([[0.0], np.cumsum(count * epsilon)])  # noqa: N806  the letters of the proof
        B = np.concatenate([[0.0], np.cumsum(count * epsilon * epsilon)])  # noqa: N806
    m = (sum(count.tolist()) - np.concatenate([[0], np.cumsum(count)])).astype(np.float64)

    def bound(log_delta: float) -> float:
        delta = min(math.exp(log_delta), 1 - 2.0**-53)
        with np.errstate(over="ignore"):
            private = np.tanh(0.5 * np.sqrt((delta * A) ** 2 + delta * (1 - delta) * B))
        open_ = np.sqrt(-np.expm1(m * math.log1p(-delta * delta)))
        return 0.25 * delta**2 * (1 - float(np.min(private + open_)) ** 2)

    middle = -math.log(max(float(np.min(A / 2 + np.sqrt(m))), 0.1))
    return _MARGIN * bound(_argmax(bound, middle - 2.3, middle + 1.4))


# (c) -------------------------------------------------------------------------------------------------------------


def van_trees(epsilon: Floats, count: NDArray[np.int64]) -> float:
    """Return the largest over a of V²/(J + 2aV): van Trees' inequality for p with the prior Beta(a, a).

    V = E[p(1 − p)] = a/(2(2a + 1)), and J bounds E[p²(1 − p)²·I(p)], where I is the Fisher information of the output.

    >>> round(van_trees(np.array([np.inf]), np.array([9])), 6)  # no privacy: that of Hodges and Lehmann
    0.015625
    """
    theta, phi = np.tanh(epsilon / 2), 2 / (1 + np.exp(np.minimum(epsilon, 700.0)))  # φ = 1 − θ without cancelling
    size, mass = np.sinh(np.minimum(epsilon, 300.0)), count.astype(np.float64) * theta

    def bound(log_a: float, nodes: int = 8) -> float:
        a = math.exp(log_a)
        V = a / (2 * (2 * a + 1))  # noqa: N806  the letters of the proof
        share = _shares(size, mass, rho=(2 * a + 3) / (a + 1))
        return V * V / (_information(theta, phi, count, share, a, nodes) + 2 * a * V)

    most = max(2 * math.sqrt(sum(count.tolist())), 4.0)
    return _MARGIN * bound(_argmax(bound, math.log(0.01), math.log(most)), nodes=24)


def _information(theta: Floats, phi: Floats, count: NDArray[np.int64], share: Floats, a: float, nodes: int) -> float:
    """Return J: the average over p ~ Beta(a, a) of p²(1 − p)² times the bound on the Fisher information

        Σ [λ²·N + (1 − λ²)·χ − (1 − λ)²·κ²] + (Σ (1 − λ)·κ)²,

    N = 4/(1 − x²), χ = 4θ²/(1 − θ²x²), κ = 2θ/(1 − θ|x|), θ = tanh(ε/2). It holds for any shares 0 ≤ λ ≤ 1.
    """  # noqa: D400  the sentence goes on below the formula
    d, weight = _beta(a + 2, nodes)  # |x| = 1 − d; below, one row for each
    half = theta / (phi + np.multiply.outer(d, theta))  # κ/2
    apart = (1 + share) * theta / (1 + np.multiply.outer(1 - d, theta)) - (1 - share) * half
    half *= count * (1 - share)
    rest = 4 * float(np.sum(weight * (np.sum(half * apart, axis=1) + np.sum(half, axis=1) ** 2)))
    first = float(np.sum(count * share**2)) * a / (2 * (2 * a + 1))  # E[p²(1 − p)²·N] = V
    return first + rest * a * (a + 1) / (4 * (2 * a + 1) * (2 * a + 3))


def _shares(size: Floats, mass: Floats, rho: float) -> Floats:
    """Return λ = min(1, size/t), t the root of Σ mass·(t − size)₊ = ρ; size is sinh ε, mass is tanh(ε/2) times people.

    Nearly the best shares, and ADPM's in disguise: for small ε they are min(ε, t)/t with Σ ε·(t − ε)₊ = 2ρ, where
    ADPM has 8 and this 4 to 6.
    """
    return np.minimum(1.0, size / root(size, mass, rho)) if size.size else size


def _beta(b: float, nodes: int) -> tuple[Floats, Floats]:
    """Return 1 − |x| and weights for averages over p = (1 + x)/2 ~ Beta(b, b).

    With x = tanh s the density of s is proportional to cosh(s)^(−2b): smooth, and below 1e-17 of its top from where
    the nodes end. Gauss–Legendre's nodes on that stretch.
    """
    y = 40 / (2 * b)
    end = y + math.log1p(math.sqrt(-math.expm1(-2 * y)))  # cosh(end) = e^y
    node, weight = _gauss(nodes)
    s = end * (node + 1) / 2
    density = weight * np.exp(-2 * b * (s + np.log1p(np.exp(-2 * s)) - math.log(2)))
    return 2 / (1 + np.exp(2 * s)), density / density.sum()


_gauss = cache(np.polynomial.legendre.leggauss)  # finding the nodes takes longer than a bound at them
TECHNIQUES: dict[str, Callable[[Floats, NDArray[np.int64]], float]] = {
    "hodges-lehmann": hodges_lehmann,
    "two-point": two_point,
    "van-trees": van_trees,
    "path": path,
}


def _argmax(function: Callable[[float], float], low: float, high: float) -> float:
    """Return where a function is about largest: on a grid, then between its points. Every point gives a valid bound."""
    from scipy.optimize import minimize_scalar

    grid: list[float] = np.linspace(low, high, 25).tolist()
    best = max(range(25), key=[function(x) for x in grid].__getitem__)
    around = grid[max(best - 1, 0)], grid[min(best + 1, 24)]
    return float(minimize_scalar(lambda x: -function(x), bounds=around, method="bounded", options={"xatol": 1e-3}).x)


def _up(ratio: float) -> str:
    """Return a factor with three significant digits, rounded up.

    >>> _up(1.2712), _up(15.0), _up(1041.2)
    ('1.28', '15', '1,050')
    """
    step = 10.0 ** (math.floor(math.log10(ratio)) - 2)
    return f"{math.ceil(ratio / step * (1 - 1e-12)) * step:,.6g}"
