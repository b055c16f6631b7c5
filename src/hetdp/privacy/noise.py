"""The one door for randomness: exact discrete Laplace noise by OpenDP's sampler, and coins; from the operating system.

There is no seed. Nothing else in the package that releases draws random numbers.
"""

from __future__ import annotations

import secrets
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
