"""The bounds of the paper, each under the name of its theorem, lemma, remark or equation.

Chaudhuri and Courtade, *Mean Estimation Under Heterogeneous Privacy: Some Privacy Can Be Free*, ISIT 2023. Two groups:
a share f of n people at ε₁, the others at ε₂ ≥ ε₁, values in an interval of length 1. Lemmas are numbered through the
appendices: 1 and 2 in A, 3 in B, 4 and 5 in C; an equation is cited by its label in the source. Limits are taken where
the paper takes them: ε₂ = ∞ is a public group, ε₁ = 0 leaves its group out, f = 0 and f = 1 are one group. For any ε
vector, and much closer, see `hetdp.certificate`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from hetdp.errors import InputError

__all__ = [
    "R", "eps_bar", "equation_b", "equation_c", "equation_l23", "le_cam", "lemma_2", "lemma_2_difference",
    "lemma_4_mixed", "lemma_4_pair", "lemma_4_private", "lemma_4_sampling", "lemma_5", "lower", "mean_square", "r",
    "remark_2", "table_1", "theorem_1_a", "theorem_1_a_ratio", "theorem_1_b", "theorem_1_b_people", "theorem_2_a",
    "theorem_2_b", "upper",
]  # fmt: skip


# Section II: the quantities ----------------------------------------------------------------------------------------


def R(eps1: float, n: float, f: float) -> float:  # noqa: N802  the paper's letter
    """Return R = 1 + 8/(ε₁²·n·f): from ε₂ = R·ε₁ on, more ε₂ buys nothing.

    Figure 2 (B) draws the border ε₂ = R·ε₁ = 3e-2 for ε₁ = 1e-2, n = 8e4, f = 0.5:

    >>> round(R(0.01, 80_000, 0.5), 12)
    3.0
    """
    _check(n, f, eps1)
    return 1 + _over(8, _times(n * f, eps1 * eps1))


def r(eps1: float, eps2: float) -> float:
    """Return r = ε₂/ε₁; equal levels give 1, 0 and ∞ among them."""
    _check(1, 0, eps1, eps2)
    return 1.0 if eps1 == eps2 else _over(eps2, eps1)


def eps_bar(eps1: float, eps2: float, f: float) -> float:
    """Return ε̄ = f·ε₁ + (1 − f)·ε₂, the mean of the ε."""
    _check(1, f, eps1, eps2)
    return _times(f, eps1) + _times(1 - f, eps2)


def mean_square(eps1: float, eps2: float, f: float) -> float:
    """Return f·ε₁² + (1 − f)·ε₂², the mean of the squares of the ε."""
    _check(1, f, eps1, eps2)
    return _times(f, eps1 * eps1) + _times(1 - f, eps2 * eps2)


def table_1(eps1: float, eps2: float, n: float, f: float) -> tuple[float, float]:
    """Return ADPM's weights (w₁, w₂) of Table I and Lemma 3: w₂ = min(r, R)·w₁, and they sum to 1.

    >>> w1, w2 = table_1(0.1, float("inf"), 1000, 0.7)
    >>> round(w2 / w1, 6), round(700 * w1 + 300 * w2, 12)
    (2.142857, 1.0)
    """
    _check(n, f, eps1, eps2)
    ratio = min(r(eps1, eps2), R(eps1, n, f))
    w1 = 1 / (n * (f + _times(1 - f, ratio)))
    return w1, ratio * w1 if w1 > 0 else 1 / (n * (1 - f))


# Theorem 1 ---------------------------------------------------------------------------------------------------------


def upper(eps1: float, eps2: float, n: float, f: float) -> float:
    """Return Theorem 1: the worst-case mean squared error of ADPM, by the case that applies.

    The setting of Figure 1 (B), far right:

    >>> round(upper(0.1, float("inf"), 1000, 0.7) * 1e4, 4)
    3.9894
    """
    return theorem_1_a(eps1, eps2, n, f) if r(eps1, eps2) <= R(eps1, n, f) else theorem_1_b(eps1, n, f)


def theorem_1_a(eps1: float, eps2: float, n: float, f: float) -> float:
    """Return Theorem 1 (A), first form: the mean of ε² over 4nε̄², plus 2/(nε̄)²; at most 1/4. For r ≤ R."""
    _check(n, f, eps1, eps2)
    small = 1 / r(eps1, eps2)  # both means are taken in units of ε₂, which may be infinite
    spread = 1.0 if f == 1 else (f * small * small + 1 - f) / (f * small + 1 - f) ** 2
    noise = n * eps_bar(eps1, eps2, f)
    return min(spread / (4 * n) + _over(2, noise * noise), 0.25)


def theorem_1_a_ratio(eps1: float, eps2: float, n: float, f: float) -> float:
    """Return Theorem 1 (A), second form: [fR + (1 − f)r²]/(4n[f + (1 − f)r]²); at most 1/4. For r ≤ R.

    Where R or r is infinite the fraction has no value; its limit is the first form.
    """
    _check(n, f, eps1, eps2)
    ratio = r(eps1, eps2)
    top = f * R(eps1, n, f) + (1 - f) * ratio * ratio
    if not math.isfinite(top):
        return theorem_1_a(eps1, eps2, n, f)
    return min(top / (4 * n * (f + (1 - f) * ratio) ** 2), 0.25)


def theorem_1_b(eps1: float, n: float, f: float) -> float:
    """Return Theorem 1 (B), first form: R/(4n[f + (1 − f)R]); at most 1/4. For r ≥ R; ε₂ plays no part."""
    return min(_over(1, 4 * n * (f / R(eps1, n, f) + 1 - f)), 0.25)


def theorem_1_b_people(eps1: float, n: float, f: float) -> float:
    """Return Theorem 1 (B), second form: (nfε₁² + 8)/(4n[nfε₁² + 8(1 − f)]); at most 1/4."""
    _check(n, f, eps1)
    y = _times(n * f, eps1 * eps1)
    return min(0.25 / n if math.isinf(y) else _over(y + 8, 4 * n * (y + 8 * (1 - f))), 0.25)


def remark_2(eps1: float, n: float, f: float) -> float:
    """Return Remark 2: the worst case of LDPE beside a public group, E₁E₂/(E₁ + E₂); it equals Theorem 1 (B).

    E₁ = 1/(4nf) + 2/(nfε₁)² and E₂ = 1/(4n(1 − f)).

    >>> round(remark_2(0.1, 1000, 0.7) / theorem_1_b(0.1, 1000, 0.7), 12)
    1.0
    """
    _check(n, f, eps1)
    private = n * _times(f, eps1)
    precision = _over(1, _over(1, 4 * n * f) + _over(2, private * private)) + 4 * n * (1 - f)
    return _over(1, precision)


# Theorem 2 ---------------------------------------------------------------------------------------------------------


def lower(eps1: float, eps2: float, n: float, f: float) -> float:
    """Return Theorem 2 with the constants of its proof: no ε-DP method has a smaller worst case. By the case.

    >>> round(upper(0.1, 0.15, 1000, 0.5) / lower(0.1, 0.15, 1000, 0.5), 6)
    1560.0
    """
    return theorem_2_a(eps1, eps2, n, f) if r(eps1, eps2) <= R(eps1, n, f) else theorem_2_b(eps1, n, f)


def theorem_2_a(eps1: float, eps2: float, n: float, f: float) -> float:
    """Return Theorem 2 (A), the end of Appendix C: Theorem 1 (A)'s bound over 1560. For r ≤ R."""
    return theorem_1_a(eps1, eps2, n, f) / 1560


def theorem_2_b(eps1: float, n: float, f: float) -> float:
    """Return Theorem 2 (B), eq. (lb-sat) of Appendix C: Theorem 1 (B)'s bound over 1048. For every r."""
    return theorem_1_b(eps1, n, f) / 1048


def lemma_4_sampling(n: float) -> float:
    """Return the first bound of Lemma 4, eq. (A): min(1/(6n), 1/4)/16. From k = 0 in Lemma 5."""
    _check(n, 0)
    return min(1 / (6 * n), 0.25) / 16


def lemma_4_mixed(eps1: float, n: float, f: float) -> float:
    """Return the second bound of Lemma 4, eq. (tB): min(1/(4nfε₁ + 4√(8n(1 − f)))², 1/4)/16. From k = nf."""
    _check(n, f, eps1)
    total = 4 * _times(n * f, eps1) + 4 * math.sqrt(8 * n * (1 - f))
    return min(_over(1, total * total), 0.25) / 16


def lemma_4_private(eps1: float, eps2: float, n: float, f: float) -> float:
    """Return the third bound of Lemma 4, the line above eq. (c-p1): min(1/(16n²ε̄²), 1/4)/16. From k = n."""
    _check(n, f, eps1, eps2)
    total = 4 * n * eps_bar(eps1, eps2, f)
    return min(_over(1, total * total), 0.25) / 16


def equation_b(eps1: float, n: float, f: float) -> float:
    """Return eq. (B) of Appendix C: min(1/(32[n²fε₁² + 8n(1 − f)]), 1/4)/16. At most eq. (tB)."""
    _check(n, f, eps1)
    return min(_over(1, 32 * n * (_times(n * f, eps1 * eps1) + 8 * (1 - f))), 0.25) / 16


def equation_c(eps1: float, eps2: float, n: float, f: float) -> float:
    """Return eq. (C) of Appendix C: min(f(R − 1)/(4n[f + (1 − f)r]²), 1/4)/512, at most the third of Lemma 4."""
    return min(_noise_part(eps1, eps2, n, f), 0.25) / 512


def equation_l23(eps1: float, eps2: float, n: float, f: float) -> float:
    """Return eq. (L23-bound) of Appendix C: min(L₂ + L₃(r), 1/4)/1560; at least Theorem 2 (A) where r ≤ R."""
    second = _over(1, 4 * n * (f / R(eps1, n, f) + 1 - f))
    return min(second + _noise_part(eps1, eps2, n, f), 0.25) / 1560


def _noise_part(eps1: float, eps2: float, n: float, f: float) -> float:
    """Return L₃(r) = f(R − 1)/(4n[f + (1 − f)r]²) = 2/(nε̄)², the form that has all limits."""
    _check(n, f, eps1, eps2)
    total = n * eps_bar(eps1, eps2, f)
    return _over(2, total * total)


def lemma_4_pair(delta: float) -> tuple[float, float]:
    """Return total variation and Kullback–Leibler divergence of Lemma 4's pair: ±½, + with chance (1 ± δ)/2.

    The paper bounds the divergence δ·ln((1 + δ)/(1 − δ)) by 3δ² for δ ≤ 1/2.
    """
    if not 0 <= delta <= 1:
        raise InputError(f"delta is a distance of two means on an interval of length 1 (got {delta:g})")
    return delta, 2 * delta * math.atanh(delta) if delta < 1 else math.inf


def le_cam(gamma: float, total_variation: float) -> float:
    """Return eq. (LeC) of Appendix C: γ²/2·(1 − TV) bounds the minimax error; γ is half the distance of two means."""
    return gamma * gamma / 2 * (1 - total_variation)


# Lemmas 2 and 5 ----------------------------------------------------------------------------------------------------


def lemma_2(epsilon: float, probability: float) -> tuple[float, float]:
    """Return Lemma 2: between which numbers P(M(x) ∈ S) lies, given P(M(x′) ∈ S) for a neighbour x′.

    e^{−ε}·P′ below, the smaller of e^ε·P′ and 1 − e^{−ε} + e^{−ε}·P′ above. (The proof drops a second lower
    bound, 1 − e^ε·(1 − P′), as weaker; near P′ = 1 it is the stronger one. See the errata.)

    >>> [round(end, 4) for end in lemma_2(1.0, 0.5)]
    [0.1839, 0.8161]
    """
    _check(1, 0, epsilon)
    if not 0 <= probability <= 1:
        raise InputError(f"a probability is between 0 and 1 (got {probability:g})")
    less = math.exp(-epsilon)
    return less * probability, min(_over(probability, less) if probability else 0.0, 1 - less + less * probability)


def lemma_2_difference(epsilon: float) -> float:
    """Return the end of Lemma 2, eq. (Delta-Bound): P(M(x) ∈ S) and P(M(x′) ∈ S) differ by at most 1 − e^{−ε}."""
    _check(1, 0, epsilon)
    return -math.expm1(-epsilon)


def lemma_5(epsilons: Sequence[float], total_variation: float, divergence: float, k: int | None = None) -> float:
    """Return Lemma 5: how far the outputs can be apart in total variation when everybody's law is P₁ or P₂.

    2·TV(P₁, P₂)·Σ_{i ≤ k} (1 − e^{−εᵢ}) + √((n − k)/2·KL(P₁, P₂)), for any order and any k; without k the smallest,
    ε ascending.

    >>> round(lemma_5([0.1, 0.1, 1.0], *lemma_4_pair(0.1)), 4)
    0.1382
    """
    loss = -np.expm1(-np.asarray(epsilons, dtype=np.float64))
    if k is None:
        loss.sort()
    first = 2 * total_variation * np.concatenate([[0.0], np.cumsum(loss)])
    others = np.arange(loss.size, -1, -1)
    rest = np.sqrt(np.where(others > 0, divergence, 0.0) * others / 2)  # nobody left: 0, even if P₁ and P₂ are singular
    return float((first + rest).min() if k is None else (first + rest)[k])


# Arithmetic with limits --------------------------------------------------------------------------------------------


def _times(share: float, level: float) -> float:
    """Return a product in which a group of nobody counts for nothing, however large its ε."""
    return share * level if share else 0.0


def _over(top: float, bottom: float) -> float:
    """Return a quotient of positive numbers; ∞ where the bottom is 0."""
    return top / bottom if bottom else math.inf


def _check(n: float, f: float, *levels: float) -> None:
    if not 1 <= n < math.inf:
        raise InputError(f"n must be a number of people, 1 or more (got {n:g})")
    if not 0 <= f <= 1:
        raise InputError(f"f must be the share of the first group, between 0 and 1 (got {f:g})")
    if not all(level >= 0 for level in levels):
        raise InputError(f"epsilon must be 0, positive or inf (got {', '.join(f'{level:g}' for level in levels)})")
    if list(levels) != sorted(levels):
        raise InputError(f"eps1 must not be above eps2 (got {levels[0]:g} and {levels[1]:g}); the stricter group first")
