"""Differentially private means when every person chooses their own privacy level ε.

>>> import hetdp
>>> release = hetdp.mean([0.2, 0.9, 0.4] * 500, epsilon=[0.1, 0.5, float("inf")] * 500, bounds=(0, 1))
>>> 0 <= release.estimate <= 1
True

The stages are `read` → `plan` → `release`; `mean` is all three. See the README for the command line.
"""

from . import bounds, experiments
from ._certificate import Certificate, certificate
from ._check import Check, check
from ._compare import Comparison, compare
from ._errors import HetdpError, InputError, PrivacyError
from ._interval import Interval
from ._levels import Levels
from ._mean import mean
from ._optimal import Optimum, optimal
from ._plan import Plan, plan
from ._release import Release, release
from ._simulate import Simulation, simulate
from ._tally import Tally
from .estimators import methods
from .sources import read

__version__ = "0.1.0"

__all__ = [
    "Certificate",
    "Check",
    "Comparison",
    "HetdpError",
    "InputError",
    "Interval",
    "Levels",
    "Optimum",
    "Plan",
    "PrivacyError",
    "Release",
    "Simulation",
    "Tally",
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
