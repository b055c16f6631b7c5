"""LDPE: every distinct ε is a group that publishes its own noisy mean; the means are combined."""

from __future__ import annotations

import numpy as np

from hetdp.core.levels import Levels, Method, Shape


def _shape(levels: Levels, variance: float) -> Shape:
    """Return an n-th of 1/(V/n + 2/(ε·n)²), the inverse of a group's error, for each of its n people.

    Examples
    --------
    With a public group the weights are those of ADPM, in the ratio R = 1 + 8/(0.1²·700) (Remark 2).

    >>> private, public = _shape(Levels({0.1: 700, np.inf: 300}), 0.25).weight
    >>> round(float(public / private), 6)
    2.142857
    """
    with np.errstate(over="ignore", divide="ignore"):
        error = variance + 2 / levels.epsilon / levels.epsilon / levels.count
    return Shape(min(1.0, float(error.min())) / error, apart=True)


METHOD = Method(
    name="ldpe",
    title="LDPE: one noisy mean for every distinct ε",
    citation="Ferrando, Gillenwater and Kulesza, Combining Public and Private Data, 2021; in Chaudhuri and Courtade, "
    "Mean Estimation Under Heterogeneous Privacy, ISIT 2023, Section IV-A",
    shape=_shape,
)
