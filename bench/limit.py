"""Certified ratios of growing populations beside the constant of the Gaussian limit.

    python bench/limit.py [--largest N]

It prints the tables of docs/proofs/limit.md, checks the constant 1.0565 there step by step, and draws the page's
picture, docs/images/limit.svg. The letters are those of the page.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr, ndtr

import hetdp
from hetdp.core.levels import saturation
from hetdp.report import plots as _plots

Floats = NDArray[np.float64]
CONSTANT = 1.0565
PICTURE = Path(__file__).parents[1] / "docs" / "images" / "limit.svg"
LOWEST = 0.002  # where the picture ends: a ratio of 1.002
SIZES = (10, 30, 100, 300, 1000, 3000, 10_000)


# The constant -----------------------------------------------------------------------------------------------------


def rho(e: float) -> float:
    """Return the smallest mean squared error for N(0, 1) seen under Laplace noise of scale 1/e, by the midpoint rule.

    With m the posterior mean and f the density of the sum it is 1 − ∫m²f (step 6 of the page).

    >>> round(rho(0.89), 6)
    0.678015
    """
    if e > 100:
        return 2 / e**2 - 5 / e**4  # a bound from below that is right to 0.03 % there
    step = 0.01
    y = np.arange(0.5 * step, 9 + 40 / e, step)
    below = np.exp(0.5 * e * e - e * y + log_ndtr(y - e))  # what the density of the sum owes to x < y
    above = np.exp(0.5 * e * e + e * y + log_ndtr(-y - e))  # and to x > y
    return float(1 - step * np.sum(e**3 * (below - above) ** 2 / (below + above)))


def factor(e: float) -> float:
    """Return what the best linear rule loses against the best rule at e: 1/((1 + e²/2)·ρ(e)).

    >>> round(factor(0.89), 5)
    1.05648
    """
    return 1 / ((1 + e * e / 2) * rho(e))


def rho_from_below(e: float) -> float:
    """Return a number below ρ(e), for e up to 4: the midpoint rule, its proved error, and all beyond y = 9 + e."""
    step = 1 / 2048
    y = np.arange(0.5 * step, 9 + e, step)
    end = y.size * step
    below, above = np.exp(-e * y) * ndtr(y - e), np.exp(e * y) * ndtr(-y - e)
    inside = step * math.exp(0.5 * e * e) * np.sum(e**3 * (below - above) ** 2 / (below + above))
    curvature = 2 * e**2 + 9 * e**3 + e**4 + 2 * e**2 * (1 + e) * (math.sqrt(1 + 2 / e**2) + e)
    beyond = 2 * ndtr(-end) + math.exp(0.5 * e * e) * math.exp(-e * end)
    rounding = 1e-10  # the sum has positive terms, each right to some 1e-13 of itself
    return float(1 - inside - step**2 / 8 * curvature - e * e * beyond - rounding)


def is_above_every_factor(constant: float) -> bool:
    """Say whether every factor is at most this constant, for all e > 0; False if that could not be shown.

    Below e = 0.3 and from 4 on closed forms show it. Between, e²·ρ(e) does not fall, so a value at one e bounds the
    factor up to a larger e, from where the walk goes on (step 6 of the page).
    """
    floor, e = 1 / constant, 0.3
    if (1 - e * e) * (1 + e * e / 2) < floor or floor > 1 - 1 / 32 - 5 / 256:
        return False
    while e < 4:
        low = rho_from_below(e)
        if low * (1 + e * e / 2) <= floor + 1e-9:
            return False
        far = math.sqrt(low / (floor - low * e * e / 2)) if low * e * e / 2 < floor - low / 16 else 4.0
        e *= far * (1 - 1e-13)  # rounding must not step over anything
    return True


# The bound --------------------------------------------------------------------------------------------------------


def best_direction(epsilon: Floats, count: NDArray[np.int64]) -> Floats:
    """Return the weights (1 − ε/t)₊ of the direction that is hidden, one a level."""
    return np.maximum(1 - epsilon / saturation(epsilon, count, rho=8.0), 0.0)


def gaussian_bound(epsilon: Floats, count: NDArray[np.int64], direction: Floats, prior: float = 0.0) -> float:
    """Return the lower bound of step 4 on any ε-DP method's error in the Gaussian problem.

    `prior` is what the prior is worth in people, m of the page: θ ~ N(0, 1/(4m)).
    """
    a, b, c, n = _sums(epsilon, count, direction, prior)
    if a == 0:
        return 0.25 / n
    if n * b - a * a <= 1e-12 * n * b:  # one level and no prior: s is infinite, and s²·ρ(E′s) is 2/E′²
        return 0.25 / n + 2 * b * b / (a * c) ** 2 * (a * a / (b * n)) ** 2
    e = c * math.sqrt(n / (4 * (n * b - a * a)))
    return 0.25 / n + 0.25 * a * a / (n * (n * b - a * a)) * (rho(e) if e > 0 else 1.0)


def linear_value(epsilon: Floats, count: NDArray[np.int64], direction: Floats, prior: float = 0.0) -> float:
    """Return the same with 1/(1 + e²/2) in place of ρ(e); its maximum over directions is ADPM's worst case."""
    a, b, c, n = _sums(epsilon, count, direction, prior)
    return 0.25 / (n - a * a / (b + c * c / 8)) if a > 0 else 0.25 / n


def _sums(epsilon: Floats, count: NDArray[np.int64], direction: Floats, prior: float) -> tuple[float, ...]:
    """Return a = Σμ, b = Σμ², c = Σμε over the people, and their number with the prior's."""
    hidden = direction > 0
    weight, people, level = direction[hidden], count[hidden], epsilon[hidden]
    return (
        float(people @ weight),
        float(people @ weight**2),
        float(people @ (weight * level)),
        float(count.sum()) + prior,
    )


# The picture ------------------------------------------------------------------------------------------------------


def spread(low: float, high: float, n: int) -> hetdp.Levels:
    """Return n people at up to 100 levels whose logarithms lie evenly in [low, high]."""
    levels = min(n, 100)
    edges = np.linspace(0, n, levels + 1).round().astype(int)
    return hetdp.Levels(
        {math.exp(low + (high - low) * (i + 0.5) / levels): int(edges[i + 1] - edges[i]) for i in range(levels)}
    )


def half(n: int) -> hetdp.Levels:
    """Return n people, one half at 0.1 and the other at 1."""
    return hetdp.Levels({0.1: n // 2, 1.0: n - n // 2})


def public(n: int) -> hetdp.Levels:
    """Return n people, 10 % of them public and the others at 0.01."""
    return hetdp.Levels({0.01: n - n // 10, math.inf: n // 10})


def hardest(n: int) -> hetdp.Levels:
    """Return n people for whom the constant is nearly reached: 2 % are public, the others have e = 0.89 at n = 1000."""
    few = max(n // 50, 1)
    return hetdp.Levels({2 * 0.89 * math.sqrt(20 / (980 * 1000)): n - few, math.inf: few})


POPULATIONS: dict[str, Callable[[int], hetdp.Levels]] = {
    "half 0.1, half 1": half,
    "ln ε uniform in [−4, 2]": lambda n: spread(-4, 2, n),
    "ln ε uniform in [−3, −2]": lambda n: spread(-3, -2, n),
    "90 % 0.01, 10 % public": public,
    "98 % 0.008, 2 % public": hardest,
}
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#666666")


def shrunk(levels: hetdp.Levels) -> hetdp.Levels:
    """Return the same people with ε·√(1000/n): what privacy and sampling cost then stays in proportion."""
    scale = math.sqrt(1000 / levels.n)
    return hetdp.Levels({e * scale: c for e, c in zip(levels.epsilon.tolist(), levels.count.tolist(), strict=True)})


def ratios(levels: hetdp.Levels) -> tuple[float, float]:
    """Return ADPM's certified ratio and that of the best of our methods."""
    found = hetdp.certificate(levels, bounds=(0, 1), effort="full")
    return found.upper / found.lower, found.best / found.lower


def limit(levels: hetdp.Levels) -> float:
    """Return what ADPM's ratio tends to at most when n grows and √n·ε stays: its value ÷ the bound of step 4."""
    direction = best_direction(levels.epsilon, levels.count)
    value = linear_value(levels.epsilon, levels.count, direction)
    return value / gaussian_bound(levels.epsilon, levels.count, direction)


Curves = dict[str, list[tuple[float, float]]]


def rows(curves: Curves, sizes: Sequence[int], *, shrinking: bool) -> Iterator[str]:
    """Yield a table as Markdown: ADPM's ratio, then the best method's."""
    ends = ["limit, at most"] if shrinking else []
    yield f"| population | {' | '.join([f'n = {n:,}' for n in sizes] + ends)} |"
    yield "|---" * (1 + len(sizes) + len(ends)) + "|"
    for name, curve in curves.items():
        last = [f"{_up(limit(POPULATIONS[name](1000)))}"] if shrinking else []
        yield f"| {name} | {' | '.join([f'{_up(adpm)}, {_up(best)}' for adpm, best in curve] + last)} |"


def _up(ratio: float) -> str:
    """Return a ratio with three decimals, rounded up."""
    return f"{math.ceil(ratio * 1000 - 1e-9) / 1000:.3f}"


def draw(fixed: Curves, shrinking: Curves, sizes: Sequence[int], path: Path = PICTURE) -> None:
    """Draw how far certified ratios are above 1, with ε as it is and with ε that shrinks as n grows."""
    drawn, (left, right) = _plots.figure(2, width=4, height=3.6)
    for axes, curves, title in ((left, fixed, "the same ε at every n"), (right, shrinking, "ε shrinks: √n·ε stays")):
        for (name, curve), colour in zip(curves.items(), COLOURS, strict=True):
            adpm, best = (np.maximum(np.array(ratio) - 1, LOWEST) for ratio in zip(*curve, strict=True))
            axes.plot(sizes, adpm, color=colour, linewidth=1.8, label=name)
            axes.plot(sizes, best, ":", color=colour, linewidth=1.3)
        axes.axhline(CONSTANT - 1, color="black", linewidth=1.2)
        axes.set(xscale="log", yscale="log", xlabel="people", ylim=(LOWEST, 5))
        axes.set_title(title, fontsize=9)
        axes.set_yticks([0.003, 0.01, 0.03, CONSTANT - 1, 0.1, 0.3, 1, 3])
        axes.set_yticklabels(["1.003", "1.01", "1.03", f"{CONSTANT}", "1.1", "1.3", "2", "4"])
        axes.minorticks_off()
        axes.xaxis.set_major_formatter("{x:,.0f}")
    left.set_ylabel("worst case ÷ lower bound")
    drawn.legend(*left.get_legend_handles_labels(), frameon=False, fontsize=8, loc="outside lower center", ncols=3)
    _plots.save(drawn, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--largest", type=int, default=SIZES[-1], help="the largest n")
    sizes = [n for n in SIZES if n <= parser.parse_args().largest]
    print(f"every factor is at most {CONSTANT}: {is_above_every_factor(CONSTANT)}")
    fixed = {name: [ratios(people(n)) for n in sizes] for name, people in POPULATIONS.items()}
    shrinking = {name: [ratios(shrunk(people(n))) for n in sizes] for name, people in POPULATIONS.items()}
    print(*rows(fixed, sizes, shrinking=False), "", *rows(shrinking, sizes, shrinking=True), sep="\n")
    draw(fixed, shrinking, sizes)


if __name__ == "__main__":
    main()
