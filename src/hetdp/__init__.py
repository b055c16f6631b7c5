"""Differentially private means when every person chooses their own privacy level ε.

>>> import hetdp
>>> release = hetdp.mean([0.2, 0.9, 0.4] * 500, epsilon=[0.1, 0.5, float("inf")] * 500, bounds=(0, 1))
>>> 0 <= release.estimate <= 1
True

The stages are `read` → `plan` → `release`; `mean` is all three. See the README for the command line.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ._check import Check, check
from ._errors import HetdpError, InputError, PrivacyError
from ._groups import Groups
from ._interval import Interval
from ._levels import Levels
from ._mean import mean
from ._plan import Plan, plan
from ._release import Release, release
from ._tally import Tally
from .estimators import methods
from .sources import read

if TYPE_CHECKING:
    from . import bounds, experiments
    from ._audit import Audit, audit
    from ._certificate import Certificate, certificate
    from ._compare import Comparison, compare
    from ._optimal import Optimum, optimal
    from ._simulate import Simulation, simulate
    from .ledger import Ledger

__version__ = "0.1.0"

__all__ = [
    "Audit",
    "Certificate",
    "Check",
    "Comparison",
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
    "audit",
    "bounds",
    "certificate",
    "check",
    "compare",
    "experiments",
    "mean",
    "methods",
    "optimal",
    "plan",
    "read",
    "release",
    "simulate",
]

_LATER = {
    "Audit": "_audit",
    "audit": "_audit",
    "Certificate": "_certificate",
    "certificate": "_certificate",
    "Comparison": "_compare",
    "compare": "_compare",
    "Ledger": "ledger",
    "Optimum": "_optimal",
    "optimal": "_optimal",
    "Simulation": "_simulate",
    "simulate": "_simulate",
}
"""Names that are imported when they are first used, so that `import hetdp` stays fast."""


def __getattr__(name: str) -> Any:
    if name in {"bounds", "experiments"}:
        return import_module(f"{__name__}.{name}")
    if name in _LATER:
        found = getattr(import_module(f"{__name__}.{_LATER[name]}"), name)
        globals()[name] = found
        return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
