"""The one door for randomness: exact noise on the integers, and coins; from the operating system.

There is no seed. Nothing else in the package that releases draws random numbers. One number gets OpenDP's discrete
Laplace noise; several numbers get noise shaped like what one person can move (docs/proofs/family.md), drawn here on
Python's integers, which have no largest one; a choice among cells is OpenDP's.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hetdp.errors import PrivacyError

from .exact import LARGEST_SCALE, SMALLEST_SCALE


def noisy(total: int, scale: float) -> int:
    """Return `total` plus discrete Laplace noise, P(z) ∝ exp(−|z|/scale) on all integers.

    The sampler is applied to the sum itself. OpenDP's integers have 64 bits and saturate, *after* the
    noise is added, which is post-processing; adding a saturated draw to the sum would not be.
    """
    return int(_sampler(scale)(total))


def coins(keep: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return independent coins: the i-th is true with probability exactly keep[i]/2⁵³."""
    draws = np.frombuffer(secrets.token_bytes(8 * keep.size), dtype=np.uint64) >> np.uint64(11)
    return np.asarray(draws.astype(np.int64) < keep)


@lru_cache(maxsize=4096)
def loss(sensitivity: int, scale: float) -> float:
    """Return the sampler's own bound on the privacy loss of a sum that one person moves by `sensitivity`."""
    return float(_sampler(scale).map(sensitivity))


@lru_cache(maxsize=64)
def _sampler(scale: float) -> Any:
    if not SMALLEST_SCALE <= scale <= LARGEST_SCALE:  # a scale near 0 would make OpenDP return the exact sum
        raise PrivacyError(f"a noise scale of {scale:g} cannot be drawn safely; nothing was released")
    import opendp.prelude as dp

    dp.enable_features("contrib")  # OpenDP's flag for measurements outside its vetted core; its proof is public
    return dp.m.make_laplace(dp.atom_domain(T=dp.i64), dp.absolute_distance(T=dp.i64), scale=scale)


# Noise for several numbers ------------------------------------------------------------------------------------------


def zero_sum(totals: Sequence[int], scale: float) -> list[int]:
    """Return the totals plus noise z that adds up to 0, P(z) ∝ exp(−‖z‖₁/(2·scale)) on all such integer vectors.

    All but the last are independent discrete Laplace noise of twice the scale, the last makes the sum 0, and it is
    kept with probability exp(−|last|/(2·scale)): what remains has the law above.
    """
    top, bottom = _ratio(2 * scale)
    while True:
        drawn = [_laplace(top, bottom) for _ in totals[1:]]
        last = -sum(drawn)
        if _geometric(top, bottom) >= abs(last):
            return [total + z for total, z in zip(totals, [*drawn, last], strict=True)]


def boxed(totals: Sequence[int], scale: float) -> list[int]:
    """Return d totals plus noise, P(z) ∝ exp(−‖z‖∞/scale) on all integer vectors.

    z is uniform on a cube {−R … R}^d whose R has P(R) ∝ (2R + 1)^d·exp(−R/scale): summed over the cubes that hold z
    this is the law above. R is a sum of d + 1 geometric draws, whose law is ∝ Π(R + j)·exp(−R/scale), j = 1 … d, kept
    with probability (2R + 1)^d/Π 2(R + j) ≤ 1.
    """
    top, bottom = _ratio(scale)
    d = len(totals)
    while True:
        r = sum(_geometric(top, bottom) for _ in range(d + 1))
        if secrets.randbelow(math.prod(2 * (r + j) for j in range(1, d + 1))) < (2 * r + 1) ** d:
            return [total + secrets.randbelow(2 * r + 1) - r for total in totals]


def _ratio(scale: float) -> tuple[int, int]:
    """Return a scale as the exact fraction that it is."""
    if not SMALLEST_SCALE <= scale <= 2 * LARGEST_SCALE:
        raise PrivacyError(f"a noise scale of {scale:g} cannot be drawn safely; nothing was released")
    return scale.as_integer_ratio()


def _laplace(top: int, bottom: int) -> int:
    """Draw from P(z) ∝ exp(−|z|·bottom/top): a geometric size and a sign, where −0 is drawn again."""
    while True:
        size, negative = _geometric(top, bottom), secrets.randbits(1)
        if size or not negative:
            return -size if negative else size


def _geometric(top: int, bottom: int) -> int:
    """Draw from P(G ≥ j) = exp(−j·bottom/top), j = 0, 1, …: Canonne, Kamath and Steinke 2020, Algorithm 2.

    x = u + top·v has P(x) ∝ exp(−x/top), because u < top is kept with probability exp(−u/top) and v counts the wins of
    a coin of e⁻¹; and ⌊x/bottom⌋ ≥ j exactly if x ≥ j·bottom.
    """
    while not _wins(u := secrets.randbelow(top), top):
        pass
    v = 0
    while _wins(1, 1):
        v += 1
    return (u + top * v) // bottom


def _wins(part: int, whole: int) -> bool:
    """Flip a coin of probability exp(−part/whole), for part ≤ whole: von Neumann's series, in integers."""
    k = 1
    while secrets.randbelow(whole * k) < part:
        k += 1
    return k % 2 == 1


# A choice among cells -----------------------------------------------------------------------------------------------


def chosen(scores: Sequence[int], scale: float) -> int:
    """Return the index of a high score: exact permute-and-flip, in which the chance of a cell falls by e for `scale`.

    Cells are looked at in a random order, and each is taken with probability exp((score − best)/scale).
    """
    return int(_chooser(scale)(list(scores)))


@lru_cache(maxsize=4096)
def choice_loss(sensitivity: int, scale: float) -> float:
    """Return the chooser's own bound on the privacy loss where one person moves every score by `sensitivity`."""
    return float(_chooser(scale).map(sensitivity))


@lru_cache(maxsize=64)
def _chooser(scale: float) -> Any:
    if not SMALLEST_SCALE <= scale <= LARGEST_SCALE:
        raise PrivacyError(f"a noise scale of {scale:g} cannot be drawn safely; nothing was released")
    import opendp.prelude as dp

    dp.enable_features("contrib")
    domain, metric = dp.vector_domain(dp.atom_domain(T=dp.i64)), dp.linf_distance(T=dp.i64)
    return dp.m.make_noisy_max(domain, metric, dp.max_divergence(), scale=scale)
