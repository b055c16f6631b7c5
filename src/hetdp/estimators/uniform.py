"""UNI: everybody at the smallest ε. People with ε = 0 are left out, as everywhere."""

from __future__ import annotations

import numpy as np

from hetdp.core.levels import Levels

from .shape import Method, Shape


def _shape(levels: Levels, variance: float) -> Shape:  # noqa: ARG001  the weights do not depend on the variance
    used = levels.epsilon > 0
    smallest = float(levels.epsilon[used].min()) if used.any() else np.inf
    return Shape(used.astype(np.float64), threshold=smallest)


METHOD = Method(
    name="uniform",
    title="UNI: everybody at the smallest ε",
    citation="Chaudhuri and Courtade, Mean Estimation Under Heterogeneous Privacy, ISIT 2023, Section IV-A",
    shape=_shape,
)
