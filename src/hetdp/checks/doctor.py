"""Is this installation fit to protect people? Versions, and a goodness-of-fit test of the noise."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import math
import platform
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from hetdp.privacy.noise import noisy

SCALES = (1.5, 3.0)
DRAWS = 20_000
ALPHA = 1e-9
_PACKAGES = ("hetdp", "numpy", "scipy", "opendp", "polars", "typer", "rich")
_ENGINES = {"polars": "CSV and Parquet files", "matplotlib": "pictures"}


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


def sampler_gate(draw: Callable[[int, float], int] = noisy, draws: int = DRAWS) -> tuple[Fit, ...]:
    """Test the law of the noise at small scales, where a wrong sampler shows.

    OpenDP 0.9.0 to 0.14.1 drew from a wrong law (scale 3 cost 0.50 instead of 0.33 per unit) and neither proofs nor
    audits of ε noticed; this test does. It cannot see an error below about 1/√draws, nor a bad source of
    randomness.
    """
    return tuple(_fit(scale, Counter(draw(0, scale) for _ in range(draws)), draws) for scale in SCALES)


def _fit(scale: float, seen: Counter[int], draws: int) -> Fit:
    """Compare counts with P(z) = (1−q)/(1+q)·q^|z|, q = e^(−1/scale); tails with fewer than 10 expected are pooled."""
    from scipy.stats import chi2

    q = math.exp(-1 / scale)
    edge = 0
    while draws * q ** (edge + 2) / (1 + q) >= 10:
        edge += 1
    statistic, pooled = 0.0, draws
    for z in range(-edge, edge + 1):
        expected = draws * (1 - q) / (1 + q) * q ** abs(z)
        statistic += (seen[z] - expected) ** 2 / expected
        pooled -= seen[z]
    below = sum(count for z, count in seen.items() if z < -edge)
    tail = draws * q ** (edge + 1) / (1 + q)
    statistic += ((below - tail) ** 2 + (pooled - below - tail) ** 2) / tail
    return Fit(scale, draws, statistic, float(chi2.sf(statistic, df=2 * edge + 2)))


def versions() -> dict[str, str]:
    """Return the versions that matter for a release."""
    found = {"python": platform.python_version()}
    for name in _PACKAGES:
        found[name] = importlib.metadata.version(name)
    return found


def engines() -> dict[str, bool]:
    """Return what can be read or drawn here."""
    return {f"{name} ({use})": importlib.util.find_spec(name) is not None for name, use in _ENGINES.items()}


def report(fits: tuple[Fit, ...]) -> str:
    """Return the findings as text."""
    lines = [f"{name:12}{version}" for name, version in versions().items()]
    lines += [f"{'yes' if here else 'no ':12}{name}" for name, here in engines().items()]
    for fit in fits:
        verdict = "right law" if fit.passed else "WRONG LAW: do not release with this installation"
        lines.append(f"noise at scale {fit.scale:g}: {fit.draws:,} draws, p = {fit.p_value:.3g}: {verdict}")
    return "\n".join(lines)
