"""FME: weights min(ε, 1/√(n − k)), from a method for ε ≤ 1 that is here used for all.

With ε ascending over the n people with ε > 0, let k be the first j with ε₍ⱼ₊₁₎ > 1/√(n − j), or n. Then

    S = Σ_{i ≤ k} ε₍ᵢ₎ + √(n − k),    w = ε/S up to k, then 1/(√(n − k)·S),    noise of scale 1/S.

The formula is reconstructed from the numbers that Chaudhuri and Courtade print, and reproduces them. The noise stays at
1/S where less would do: when k = 0 nobody asks for that much, and even public people alone get it.
"""

from __future__ import annotations

import numpy as np

from hetdp.core.levels import Levels, Method, Shape


def _shape(levels: Levels, variance: float) -> Shape:  # noqa: ARG001  the weights do not depend on the variance
    """Return the weights times S: they are min(ε, t) with t = 1/√(n − k), and the noise is 1.

    Inside a level ε stays and 1/√(n − j) grows, so k is the border of a level.

    Examples
    --------
    The ratio w₂/w₁ = √2 of Chaudhuri and Courtade's example on saturation: ε₁ = 0.01, n = 10⁴, f = 1/2.

    >>> first, second = _shape(Levels({0.01: 5000, 1: 5000}), 0.25).weight
    >>> round(float(second / first), 6)
    1.414214
    """
    border = 1 / np.sqrt(np.maximum(np.cumsum(levels.count[::-1])[::-1], 1))  # 1/√(n − j), j the people below a level
    beyond = levels.epsilon > border
    t = float(border[beyond][0]) if beyond.any() else np.inf
    return Shape(np.minimum(levels.epsilon, t), threshold=t, noise=1.0)


METHOD = Method(
    name="fme",
    title="FME: weights min(ε, 1/√(n − k))",
    citation="Fallah, Makhdoumi, Malekian and Ozdaglar, Optimal and Differentially Private Data Acquisition, EC 2022, "
    "Theorem 1; reconstructed",
    shape=_shape,
)
