"""The registry of methods. A new one is one function and one line here.

Besides the methods of the paper (`adpm`) and our own (`minimax`) there are those of others, to compare with: LDPE, FME,
sampling, stretching and thresholding, a few lines each.
"""

from __future__ import annotations

import numpy as np

from hetdp.core.levels import Levels, Method, Shape, capped
from hetdp.errors import InputError
from hetdp.report import Grid, to_html

from . import adpm, minimax


def _ldpe(levels: Levels, variance: float) -> Shape:
    """Return an n-th of 1/(V/n + 2/(ε·n)²), the inverse of a group's error, for each of its n people.

    Every distinct ε is a group that publishes its own noisy mean; the means are combined.

    Examples
    --------
    With a public group the weights are those of ADPM, in the ratio R = 1 + 8/(0.1²·700) (Remark 2).

    >>> private, public = _ldpe(Levels({0.1: 700, np.inf: 300}), 0.25).weight
    >>> round(float(public / private), 6)
    2.142857
    """
    with np.errstate(over="ignore", divide="ignore"):
        error = variance + 2 / levels.epsilon / levels.epsilon / levels.count
    return Shape(min(1.0, float(error.min())) / error, apart=True)


def _fme(levels: Levels, variance: float) -> Shape:  # noqa: ARG001  the weights do not depend on the variance
    """Return weights min(ε, 1/√(n − k)), from a method for ε ≤ 1 that is here used for all.

    With ε ascending over the n people with ε > 0, let k be the first j with ε₍ⱼ₊₁₎ > 1/√(n − j), or n. Then

        S = Σ_{i ≤ k} ε₍ᵢ₎ + √(n − k),    w = ε/S up to k, then 1/(√(n − k)·S),    noise of scale 1/S.

    The formula is reconstructed from the numbers that Chaudhuri and Courtade print, and reproduces them. The noise
    stays at 1/S where less would do: when k = 0 nobody asks for that much, and even public people alone get it.

    What is returned are the weights times S: they are min(ε, t) with t = 1/√(n − k), and the noise is 1. Inside a level
    ε stays and 1/√(n − j) grows, so k is the border of a level.

    Examples
    --------
    The ratio w₂/w₁ = √2 of Chaudhuri and Courtade's example on saturation: ε₁ = 0.01, n = 10⁴, f = 1/2.

    >>> first, second = _fme(Levels({0.01: 5000, 1: 5000}), 0.25).weight
    >>> round(float(second / first), 6)
    1.414214
    """
    border = 1 / np.sqrt(np.maximum(np.cumsum(levels.count[::-1])[::-1], 1))  # 1/√(n − j), j the people below a level
    beyond = levels.epsilon > border
    t = float(border[beyond][0]) if beyond.any() else np.inf
    return Shape(np.minimum(levels.epsilon, t), threshold=t, noise=1.0)


def _sampling(levels: Levels, variance: float) -> Shape:  # noqa: ARG001  they do not depend on the variance
    """Return the probabilities (e^ε − 1)/(eᵗ − 1), t = max ε; with public people they alone are kept.

    People are kept at random, the more private the less often, and the plain mean of these is released. The mechanism
    divides by the expected number of people kept, Σp, not by the number really kept as the paper does: with the
    realised size replacing one value costs more than ε (1.29·ε₁ for n = 2, ε = (0.1, 0.2)). See `privacy.sampling`.
    """
    t = float(levels.epsilon.max())
    if np.isinf(t):
        return Shape(np.isinf(levels.epsilon).astype(np.float64), kept=True)
    if t == 0:
        return Shape(np.zeros_like(levels.epsilon), kept=True)
    with np.errstate(under="ignore"):
        return Shape(np.exp(levels.epsilon - t) * np.expm1(-levels.epsilon) / np.expm1(-t), kept=True)


def _threshold(levels: Levels, variance: float) -> Shape:
    """Return equal weights from the level τ up with the least error V/m + 2/(m·τ)², m the people at ε ≥ τ."""
    tau = levels.epsilon
    m = np.cumsum(levels.count[::-1])[::-1]
    with np.errstate(over="ignore", divide="ignore"):
        error = variance / m + 2 * (1 / (m * tau)) ** 2
    best = int(np.argmin(error))
    return Shape(((tau >= tau[best]) & (tau > 0)).astype(np.float64), threshold=float(tau[best]))


def _stretch(levels: Levels, variance: float) -> Shape:  # noqa: ARG001  the weights do not depend on the variance
    """Return what scaling values by ε/ε_max towards the midpoint and the plain ε_max-DP mean come to. It is biased.

    The mean of ε·x/ε_max over n people is s·Σε·x/Σε with s = mean ε/ε_max, and its noise 1/(n·ε_max) is s/Σε: the
    weights of `proportional`, shrunk. With ε = 0.01 and 0.1, half each, all values at 1/2 and the midpoint 0, the error
    is (1 − 0.55)²/4 + 200/n² (Example 2 of Chaudhuri and Courtade, who print 0.05 + 200/n²).
    """
    if np.isinf(levels.epsilon[-1]):
        raise InputError(
            f"stretch divides by the largest epsilon, which must be finite (got inf for {levels.count[-1]} people); "
            "give them a finite epsilon or choose another method"
        )
    weight = capped(levels.epsilon, np.inf)
    return Shape(weight, shrink=float(levels.count @ weight) / levels.active if levels.active else 1.0)


LDPE = Method(
    name="ldpe",
    title="LDPE: one noisy mean for every distinct ε",
    citation="Ferrando, Gillenwater and Kulesza, Combining Public and Private Data, 2021; in Chaudhuri and Courtade, "
    "Mean Estimation Under Heterogeneous Privacy, ISIT 2023, Section IV-A",
    shape=_ldpe,
)
FME = Method(
    name="fme",
    title="FME: weights min(ε, 1/√(n − k))",
    citation="Fallah, Makhdoumi, Malekian and Ozdaglar, Optimal and Differentially Private Data Acquisition, EC 2022, "
    "Theorem 1; reconstructed",
    shape=_fme,
)
SAMPLING = Method(
    name="sampling",
    title="SM: people kept with probability (e^ε − 1)/(eᵗ − 1), t the largest ε",
    citation="Jorgensen, Yu and Cormode, Conservative or liberal? Personalized differential privacy, ICDE 2015",
    shape=_sampling,
    needs_records=True,
)
STRETCH = Method(
    name="stretch",
    title="stretching: values scaled by ε/ε_max",
    citation="Alaggan, Gambs and Kermarrec, Heterogeneous Differential Privacy, Journal of Privacy and "
    "Confidentiality, 2017",
    shape=_stretch,
)
THRESHOLD = Method(
    name="threshold",
    title="thresholding: the plain mean of everybody at τ or above",
    citation="Cyffers and Ziani, Limits of Personalizing Differential Privacy Budgets, arXiv 2605.13503, 2026",
    shape=_threshold,
)


# All of them -------------------------------------------------------------------------------------------------------


class Methods(dict[str, Method]):
    """{name: method}, which shows itself as a table; another name raises, with the names that exist."""

    def __missing__(self, name: str) -> Method:
        raise InputError(f"unknown method {name!r}; choose one of {', '.join(self)}")

    def report(self) -> str:
        """Return every method with its title and where it comes from, as text."""
        return "\n".join(f"{m.name:14}{m.title}\n{'':14}{m.citation}" for m in self.values())

    def _repr_html_(self) -> str:
        rows = [(m.name, m.title, m.citation) for m in self.values()]
        return to_html([Grid(("Method", "What it does", "From"), rows, words=3)])

    __str__ = __repr__ = report


_ALL = (
    adpm.METHOD,
    minimax.METHOD,
    adpm.PROPORTIONAL,
    adpm.UNIFORM,
    LDPE,
    FME,
    SAMPLING,
    STRETCH,
    THRESHOLD,
)
METHODS = Methods({method.name: method for method in _ALL})
"""Every method by its name."""

__all__ = ["METHODS", "Method", "Methods", "Shape", "methods"]


def methods() -> Methods:
    """Return every method by its name; in a terminal and in a notebook it is a table.

    >>> list(methods())
    ['adpm', 'minimax', 'proportional', 'uniform', 'ldpe', 'fme', 'sampling', 'stretch', 'threshold']
    """
    return Methods(METHODS)
