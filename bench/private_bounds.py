"""The error of a mean whose bounds are found privately, beside bounds that somebody knew: real releases.

    python bench/private_bounds.py [--quick] [--out DIR]

It writes a Markdown table to DIR/private-bounds.md; docs/bounds.md has it with the words that belong to it. People are
drawn anew for every release, from fixed seeds; half of them have ε = 0.1, half ε = 1. Errors are relative to the mean
of the distribution.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import hetdp

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Column:
    """A distribution, its mean, the outer bounds, and bounds that somebody who knew the column would take."""

    draw: Callable[[np.random.Generator, int], Floats]
    mean: float
    outer: tuple[float, float]
    sensible: tuple[float, float]


def _incomes(rng: np.random.Generator, n: int) -> Floats:
    return 30_000 * np.exp(0.6 * rng.standard_normal(n))


def _wealth(rng: np.random.Generator, n: int) -> Floats:
    return 50_000 * np.exp(1.5 * rng.standard_normal(n))


def _mostly_zero(rng: np.random.Generator, n: int) -> Floats:
    return np.where(rng.random(n) < 0.6, 0.0, _incomes(rng, n))


def _balance(rng: np.random.Generator, n: int) -> Floats:
    return rng.normal(200, 1000, n)


INCOME = 30_000 * math.exp(0.18)
WEALTH = 50_000 * math.exp(1.125)
COLUMNS = {
    "incomes": Column(_incomes, INCOME, (0, 1e9), (0, 200_000)),
    "incomes, 60 % of them 0": Column(_mostly_zero, 0.4 * INCOME, (0, 1e9), (0, 200_000)),
    "balances, below 0 too": Column(_balance, 200, (-1e9, 1e9), (-4000, 4000)),
    "net wealth (σ = 1.5)": Column(_wealth, WEALTH, (0, 1e9), (0, 5_000_000)),
}


def measured(column: Column, n: int, releases: int) -> str:
    """Return the row of a table: relative errors of releases with sensible, ten times wider and private bounds."""
    epsilon, errors = np.tile([0.1, 1.0], n // 2), []
    wide = tuple(10 * end for end in column.sensible)
    shares, uppers = [], []
    for seed in range(releases):
        values = column.draw(np.random.default_rng(seed), n)
        known = [hetdp.mean(values, epsilon=epsilon, bounds=bounds).estimate for bounds in (column.sensible, wide)]
        private = hetdp.mean(values, epsilon=epsilon, bounds="private", outer=column.outer)
        errors.append([*known, private.estimate])
        shares.append(1 - private.plan.share)
        uppers.append(private.plan.bounds[1])
    off = np.array(errors) / column.mean - 1
    sensible, wider, private_error = (100 * math.sqrt(part) for part in (off**2).mean(axis=0))
    cells = f"{sensible:.2f} % | {wider:.2f} % | {private_error:.2f} % | {private_error / sensible:.2f}"
    return f"{cells} | {100 * off[:, 2].mean():+.2f} % | {np.mean(shares):.3f} | {np.median(uppers):,.0f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("build/bench"))
    options = parser.parse_args()
    releases = 50 if options.quick else 400
    heads = "sensible bounds | 10 × too wide | private | ÷ sensible | bias | share of ε | upper bound (median)"
    lines = [f"| values | n | {heads} |", "|---" * 9 + "|"]
    for name, column in COLUMNS.items():
        for n in (3_000, 10_000, 100_000):
            lines.append(f"| {name} | {n:,} | {measured(column, n, releases if n < 10**5 else releases // 2)} |")
            print(lines[-1], flush=True)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "private-bounds.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
