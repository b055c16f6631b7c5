"""Differentially private statistics when every person chooses their own privacy level ε.

>>> import hetdp
>>> release = hetdp.mean([0.2, 0.9, 0.4] * 500, epsilon=[0.1, 0.5, float("inf")] * 500, bounds=(0, 1))
>>> 0 <= release.estimate <= 1
True

The stages are `read` → `plan` → `release`; `mean`, `histogram`, `median` and so on are all three. `ask` puts several
questions under one budget. See the README for the command line. Type checkers read `__init__.pyi`.
"""

from importlib import import_module
from typing import Any

from .checks import Check, check
from .core.domain import Interval
from .core.levels import Levels
from .core.plan import Plan, plan
from .errors import HetdpError, InputError, PrivacyError
from .estimators import methods
from .privacy.release import release
from .private_bounds import bounds_for
from .questions import VERBS as _VERBS
from .questions import ask, mean
from .report import __version__ as __version__
from .sources import read
from .statistics import Statistic
from .statistics.answer import Answers, Combined, Groups
from .statistics.bounds import Bounds
from .statistics.difference import Difference, difference
from .statistics.histogram import GroupMeans, Histogram, Mode
from .statistics.mean import AnsweredMean
from .statistics.moments import Means, Moments
from .statistics.quantile import Quantiles
from .statistics.statistic import Answer, Release
from .tally import Tally

__all__ = [
    "Answer",
    "AnsweredMean",
    "Answers",
    "Audit",
    "Bounds",
    "Certificate",
    "Check",
    "Combined",
    "Comparison",
    "Difference",
    "Explanation",
    "GroupMeans",
    "Groups",
    "HetdpError",
    "Histogram",
    "InputError",
    "Interval",
    "Ledger",
    "Levels",
    "Means",
    "Mode",
    "Moments",
    "Optimum",
    "Plan",
    "PrivacyError",
    "Quantiles",
    "Release",
    "Simulation",
    "Statistic",
    "Tally",
    "Target",
    "ask",
    "audit",
    "bounds_for",
    "certificate",
    "check",
    "compare",
    "difference",
    "explain",
    "ledger",
    "mean",
    "methods",
    "optimal",
    "paper",
    "people_needed",
    "plan",
    "read",
    "release",
    "simulate",
]

__all__ += [*_VERBS]  # noqa: PLE0604  they are strings
globals().update(_VERBS)  # the functions of the statistics, such as `histogram`: the registry has them

_LATER = {
    "checks.audit": ("Audit", "audit"),
    "ledger": ("Ledger",),
    "paper.simulate": ("Simulation", "simulate"),
    "report.compare": ("Comparison", "Target", "compare", "people_needed"),
    "report.explain": ("Explanation", "explain"),
    "theory.certificate": ("Certificate", "certificate"),
    "theory.optimal": ("Optimum", "optimal"),
}
"""Names that are imported when they are first used, so that `import hetdp` stays fast."""


def __getattr__(name: str) -> Any:
    if name in ("ledger", "paper"):
        return import_module(f"{__name__}.{name}")
    for module, names in _LATER.items():
        if name in names:
            globals()[name] = getattr(import_module(f"{__name__}.{module}"), name)
            return globals()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
