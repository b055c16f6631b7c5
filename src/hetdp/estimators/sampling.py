"""SM: keep people at random, the more private the less often, then release their plain mean (Jorgensen et al.).

The mechanism divides by the expected number of people kept, Σp, not by the number really kept as the paper does: with
the realised size replacing one value costs more than ε (1.29·ε₁ for n = 2, ε = (0.1, 0.2)). See `privacy.sampling`.
"""

from __future__ import annotations

import numpy as np

from hetdp.core.levels import Levels, Method, Shape


def _shape(levels: Levels, variance: float) -> Shape:  # noqa: ARG001  the probabilities do not depend on the variance
    """Return the probabilities (e^ε − 1)/(eᵗ − 1), t = max ε; with public people they alone are kept."""
    t = float(levels.epsilon.max())
    if np.isinf(t):
        return Shape(np.isinf(levels.epsilon).astype(np.float64), kept=True)
    if t == 0:
        return Shape(np.zeros_like(levels.epsilon), kept=True)
    with np.errstate(under="ignore"):
        return Shape(np.exp(levels.epsilon - t) * np.expm1(-levels.epsilon) / np.expm1(-t), kept=True)


METHOD = Method(
    name="sampling",
    title="SM: people kept with probability (e^ε − 1)/(eᵗ − 1), t the largest ε",
    citation="Jorgensen, Yu and Cormode, Conservative or liberal? Personalized differential privacy, ICDE 2015",
    shape=_shape,
    needs_records=True,
)
