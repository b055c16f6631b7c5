"""Is this installation fit to protect people? Versions, and a goodness-of-fit test of the noise."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import math
import platform
import secrets
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import permutations
from typing import Any

from hetdp.privacy.release import boxed, chosen, noisy, zero_sum

SCALES = (1.5, 3.0)
DRAWS = 20_000
SEVERAL = 4_000  # draws of several numbers at once
ALPHA = 1e-9
_PACKAGES = ("hetdp", "numpy", "scipy", "opendp", "polars", "typer")
_OPTIONAL = {"matplotlib": "pictures", "sqlalchemy": "ledgers and databases", "fastapi": "the server", "numba": "speed"}


@dataclass(frozen=True)
class Fit:
    """How well draws at one scale fit the law of a noise: a chi-square statistic and its p-value."""

    scale: float
    draws: int
    chi_square: float
    p_value: float
    law: str = "discrete Laplace"

    @property
    def passed(self) -> bool:
        """Whether the law may stand; a right sampler fails once in 10⁹ runs."""
        return self.p_value >= ALPHA

    def to_dict(self) -> dict[str, Any]:
        """Return the fit as plain data."""
        return {**asdict(self), "passed": self.passed}

    def __str__(self) -> str:
        verdict = "right law" if self.passed else "WRONG LAW: do not release with this installation"
        return f"scale {self.scale:g}, {self.law}: {self.draws:,} draws, p = {self.p_value:.3g}: {verdict}"


def sampler_gate(draw: Callable[[int, float], int] = noisy, draws: int = DRAWS) -> tuple[Fit, ...]:
    """Test the law of the noise at small scales, where a wrong sampler shows.

    OpenDP 0.9.0 to 0.14.1 drew from a wrong law (scale 3 cost 0.50 instead of 0.33 per unit) and neither proofs nor
    audits of ε noticed; this test does. It cannot see an error below about 1/√draws, nor a bad source of
    randomness.
    """
    return tuple(_fit(scale, draw, draws) for scale in SCALES)


def family_gate(
    mass: Callable[[list[int], float], list[int]] = zero_sum,
    box: Callable[[list[int], float], list[int]] = boxed,
    choice: Callable[[list[int], float], int] = chosen,
    draws: int = SEVERAL,
) -> tuple[Fit, ...]:
    """Test the noise of several numbers, by the size of what is drawn, and the choice among three cells.

    Of three numbers that add up to 0, 6·j vectors move a weight of j (one for j = 0); of two numbers in a box, 8·j have
    the largest change j. All vectors of one size are equally likely, which the two first numbers show.
    """
    scale = SCALES[0]
    sizes = {
        "noise that adds up to 0": (lambda: sum(map(abs, mass([0, 0, 0], scale))) // 2, 6),
        "noise in a box": (lambda: max(map(abs, box([0, 0], scale))), 8),
    }
    found = []
    for law, (draw, each) in sizes.items():
        weights = [1.0, *(each * j * math.exp(-j / scale) for j in range(1, 200))]
        found.append(_chi_square(law, scale, draw, [w / sum(weights) for w in weights], draws))
    even = [0.5, 0.5]
    signs = {
        "signs of noise that adds up to 0": lambda: _sign(mass([0, 0, 0], scale)),
        "signs of noise in a box": lambda: _sign(box([0, 0], scale)),
    }
    found += [_chi_square(law, scale, draw, even, draws) for law, draw in signs.items()]
    scores = [0, -1, -3]
    found.append(_chi_square("choice", scale, lambda: choice(scores, scale), _flips(scores, scale), draws))
    return tuple(found)


def _sign(noise: list[int]) -> int:
    """Return whether the first number is the larger one of the first two; a fair coin decides between equal ones."""
    return int(noise[0] > noise[1]) if noise[0] != noise[1] else secrets.randbits(1)


def _flips(scores: list[int], scale: float) -> list[float]:
    """Return the exact law of permute-and-flip: over all orders, the first cell whose coin falls right is taken."""
    chance, best = [0.0] * len(scores), max(scores)
    orders = list(permutations(range(len(scores))))
    for order in orders:
        left = 1.0
        for cell in order:
            taken = math.exp((scores[cell] - best) / scale)
            chance[cell] += left * taken / len(orders)
            left *= 1 - taken
    return chance


def _fit(scale: float, draw: Callable[[int, float], int], draws: int) -> Fit:
    """Compare counts with P(z) = (1−q)/(1+q)·q^|z|, q = e^(−1/scale); each tail with fewer than 10 expected is one."""
    q, edge = math.exp(-1 / scale), 0
    while draws * q ** (edge + 2) / (1 + q) >= 10:
        edge += 1
    tail = q ** (edge + 1) / (1 + q)
    inner = [(1 - q) / (1 + q) * q ** abs(z) for z in range(-edge, edge + 1)]

    def place() -> int:
        return min(max(draw(0, scale), -edge - 1), edge + 1) + edge + 1

    return _chi_square("discrete Laplace", scale, place, [tail, *inner, tail], draws, 0)


def _chi_square(
    law: str, scale: float, draw: Callable[[], int], chances: list[float], draws: int, least: float = 10
) -> Fit:
    """Compare how often each place comes with its chance; places with fewer than `least` expected are one."""
    from scipy.stats import chi2

    seen = Counter(draw() for _ in range(draws))
    often = [place for place, chance in enumerate(chances) if draws * chance >= least]
    pairs = [(seen[place], draws * chances[place]) for place in often]
    rest = draws - sum(count for count, _ in pairs), draws - sum(wanted for _, wanted in pairs)
    if rest[1] > 1e-6 * draws:
        pairs.append(rest)
    elif rest[0]:  # something came that cannot come
        pairs.append((rest[0], 1e-6))
    statistic = sum((count - wanted) ** 2 / wanted for count, wanted in pairs)
    return Fit(scale, draws, statistic, float(chi2.sf(statistic, df=len(pairs) - 1)), law)


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
