"""Is this installation fit to protect people? Versions, and a goodness-of-fit test of the noise."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import math
import platform
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from hetdp.privacy.noise import noisy

SCALES = (1.5, 3.0)
DRAWS = 20_000
ALPHA = 1e-9
_PACKAGES = ("hetdp", "numpy", "scipy", "opendp", "polars", "typer")
_OPTIONAL = {"matplotlib": "pictures", "sqlalchemy": "ledgers and databases", "fastapi": "the server", "numba": "speed"}


@dataclass(frozen=True)
class Fit:
    """How well draws at one scale fit the discrete Laplace law: a chi-square statistic and its p-value."""

    scale: float
    draws: int
    chi_square: float
    p_value: float

    @property
    def passed(self) -> bool:
        """Whether the law may stand; a right sampler fails once in 10⁹ runs."""
        return self.p_value >= ALPHA

    def to_dict(self) -> dict[str, Any]:
        """Return the fit as plain data."""
        return {**asdict(self), "passed": self.passed}

    def __str__(self) -> str:
        verdict = "right law" if self.passed else "WRONG LAW: do not release with this installation"
        return f"scale {self.scale:g}: {self.draws:,} draws, p = {self.p_value:.3g}: {verdict}"


def sampler_gate(draw: Callable[[int, float], int] = noisy, draws: int = DRAWS) -> tuple[Fit, ...]:
    """Test the law of the noise at small scales, where a wrong sampler shows.

    OpenDP 0.9.0 to 0.14.1 drew from a wrong law (scale 3 cost 0.50 instead of 0.33 per unit) and neither proofs nor
    audits of ε noticed; this test does. It cannot see an error below about 1/√draws, nor a bad source of
    randomness.
    """
    return tuple(_fit(scale, draw, draws) for scale in SCALES)


def _fit(scale: float, draw: Callable[[int, float], int], draws: int) -> Fit:
    """Compare counts with P(z) = (1−q)/(1+q)·q^|z|, q = e^(−1/scale); tails with fewer than 10 expected are pooled."""
    from scipy.stats import chi2

    q, edge = math.exp(-1 / scale), 0
    while draws * q ** (edge + 2) / (1 + q) >= 10:
        edge += 1
    tail = q ** (edge + 1) / (1 + q)
    expected = {z: draws * (1 - q) / (1 + q) * q ** abs(z) for z in range(-edge, edge + 1)}
    expected |= {-edge - 1: draws * tail, edge + 1: draws * tail}
    seen = Counter(min(max(draw(0, scale), -edge - 1), edge + 1) for _ in range(draws))
    statistic = sum((seen[z] - wanted) ** 2 / wanted for z, wanted in expected.items())
    return Fit(scale, draws, statistic, float(chi2.sf(statistic, df=len(expected) - 1)))


def facts(fits: Sequence[Fit]) -> dict[str, Any]:
    """Return the findings as plain data: the verdict, versions that matter for a release, optional libraries."""
    versions = {"python": platform.python_version(), **{name: importlib.metadata.version(name) for name in _PACKAGES}}
    return {
        "healthy": all(fit.passed for fit in fits),
        "versions": versions,
        "optional": {name: importlib.util.find_spec(name) is not None for name in _OPTIONAL},
        "sampler": [fit.to_dict() for fit in fits],
    }


def report(fits: Sequence[Fit]) -> str:
    """Return the findings as text."""
    found = facts(fits)
    lines = [f"{name:12}{version}" for name, version in found["versions"].items()]
    for name, use in _OPTIONAL.items():
        lines.append(f"{name:12}{'installed' if found['optional'][name] else 'not installed'} ({use})")
    return "\n".join([*lines, *(f"noise at {fit}" for fit in fits)])
