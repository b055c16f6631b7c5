"""PropDPM: weights proportional to ε. With public people it becomes the plain mean of the public rows."""

from __future__ import annotations

import numpy as np

from hetdp.core.levels import Levels

from .shape import Method, Shape, capped


def _shape(levels: Levels, variance: float) -> Shape:  # noqa: ARG001  the weights do not depend on the variance
    return Shape(capped(levels.epsilon, np.inf), threshold=np.inf)


METHOD = Method(
    name="proportional",
    title="PropDPM: weights proportional to ε",
    citation="Chaudhuri and Courtade, Mean Estimation Under Heterogeneous Privacy, ISIT 2023, Section IV-A",
    shape=_shape,
)
