"""Differentially private means when every person chooses their own privacy level ε.

>>> import hetdp
>>> release = hetdp.mean([0.2, 0.9, 0.4] * 500, epsilon=[0.1, 0.5, float("inf")] * 500, bounds=(0, 1))
>>> 0 <= release.estimate <= 1
True

The stages are `read` → `plan` → `release`; `mean` is all three. See the README for the command line.
"""

from ._check import Check, check
from ._errors import HetdpError, InputError, PrivacyError
from ._interval import Interval
from ._levels import Levels
from ._mean import mean
from ._plan import Plan, plan
from ._release import Release, release
from ._tally import Tally
from .estimators import methods
from .sources import read

__version__ = "0.1.0"

__all__ = [
    "Check",
    "HetdpError",
    "InputError",
    "Interval",
    "Levels",
    "Plan",
    "PrivacyError",
    "Release",
    "Tally",
    "check",
    "mean",
    "methods",
    "plan",
    "read",
    "release",
]
