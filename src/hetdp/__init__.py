"""Differentially private means when every person chooses their own privacy level ε.

>>> import hetdp
>>> release = hetdp.mean([0.2, 0.9, 0.4] * 500, epsilon=[0.1, 0.5, float("inf")] * 500, bounds=(0, 1))
>>> 0 <= release.estimate <= 1
True

The stages are `read` → `plan` → `release`; `mean` is all three. See the README for the command line.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .checks.check import Check, check
from .core.domain import Interval
from .core.levels import Levels
from .core.plan import Plan, plan
from .errors import HetdpError, InputError, PrivacyError
from .estimators import methods
from .privacy.release import Groups, Release, release
from .questions import mean
from .sources import read
from .tally.tally import Tally
from .version import __version__ as __version__

if TYPE_CHECKING:
    from . import paper
    from .checks.audit import Audit, audit
    from .ledger import Ledger
    from .paper.simulate import Simulation, simulate
    from .report.compare import Comparison, compare
    from .report.explain import Explanation, explain
    from .theory.certificate import Certificate, certificate
    from .theory.optimal import Optimum, optimal
    from .theory.target import Target, people_needed

__all__ = [
    "Audit",
    "Certificate",
    "Check",
    "Comparison",
    "Explanation",
    "Groups",
    "HetdpError",
    "InputError",
    "Interval",
    "Ledger",
    "Levels",
    "Optimum",
    "Plan",
    "PrivacyError",
    "Release",
    "Simulation",
    "Tally",
    "Target",
    "audit",
    "certificate",
    "check",
    "compare",
    "explain",
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

_LATER = {
    "checks.audit": ("Audit", "audit"),
    "ledger": ("Ledger",),
    "paper.simulate": ("Simulation", "simulate"),
    "report.compare": ("Comparison", "compare"),
    "report.explain": ("Explanation", "explain"),
    "theory.certificate": ("Certificate", "certificate"),
    "theory.optimal": ("Optimum", "optimal"),
    "theory.target": ("Target", "people_needed"),
}
"""Names that are imported when they are first used, so that `import hetdp` stays fast."""


def __getattr__(name: str) -> Any:
    if name == "paper":
        return import_module(f"{__name__}.{name}")
    for module, names in _LATER.items():
        if name in names:
            globals()[name] = getattr(import_module(f"{__name__}.{module}"), name)
            return globals()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
