"""One entry for every figure, table and worked example of the paper, and for ours.

>>> from hetdp import paper
>>> result = paper.experiments.run("table-1")
>>> all(verdict.holds for verdict in result.verdicts)
True
"""

from __future__ import annotations

from hetdp.errors import InputError

from . import beyond, examples, figure1, table2, weights
from .experiment import Experiment, Result, Settings, Verdict
from .folder import reproduce

__all__ = ["EXPERIMENTS", "Experiment", "Result", "Settings", "Verdict", "reproduce", "run"]

_ORDER = (
    "figure-1a", "figure-1b", "figure-2", "figure-3a", "figure-3b", "figure-4", "table-1", "table-2", "example-2",
    "remark-2", "minimax", "certificate", "all-methods", "optimum",
)  # fmt: skip
_ALL = (
    *figure1.EXPERIMENTS, *weights.EXPERIMENTS, *table2.EXPERIMENTS, *examples.EXPERIMENTS, *beyond.EXPERIMENTS,
    *table2.OURS,
)  # fmt: skip
EXPERIMENTS: dict[str, Experiment] = {entry.name: entry for name in _ORDER for entry in _ALL if entry.name == name}
"""Every experiment by its name, in the order of the paper, ours last."""


def run(name: str, *, runs: int | None = None, quick: bool = False, seed: int = 2023) -> Result:
    """Return the numbers, verdicts and picture of one experiment."""
    if name not in EXPERIMENTS:
        raise InputError(f"unknown experiment {name!r}; choose one of {', '.join(EXPERIMENTS)}")
    return EXPERIMENTS[name].run(Settings(runs, quick, seed))
