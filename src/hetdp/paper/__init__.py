"""The paper: its bounds by name, its simulations, and every figure, table and example as an experiment.

>>> from hetdp import paper
>>> round(paper.R(0.01, 80_000, 0.5), 12)
3.0
>>> all(verdict.holds for verdict in paper.experiments.run("table-1").verdicts)
True
"""

from typing import TYPE_CHECKING, Any

from . import bounds
from .bounds import *  # noqa: F403  every bound under its own name

if TYPE_CHECKING:
    from . import experiments

__all__ = ["bounds", "experiments"]
__all__ += bounds.__all__


def __getattr__(name: str) -> Any:
    if name == "experiments":  # brings in scipy; most users of a bound do not need it
        import hetdp.paper.experiments as found

        return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
