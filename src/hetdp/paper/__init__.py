"""The paper: its bounds by name, its simulations, and every figure, table and example as an experiment.

>>> from hetdp import paper
>>> round(paper.R(0.01, 80_000, 0.5), 12)
3.0
>>> all(verdict.holds for verdict in paper.experiments.run("table-1").verdicts)
True
"""

from . import bounds, experiments
from .bounds import *  # noqa: F403  every bound under its own name

__all__ = ["bounds", "experiments"]
__all__ += bounds.__all__
