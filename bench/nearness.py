"""How near are the methods to the best possible? The tables of docs/how-near.md.

    python bench/nearness.py [--largest N] [--scan]

For each population: the worst-case error of a method divided by a lower bound on that of every ε-DP method. "paper" is
that of its Theorem 2, which is for two groups; "before" the best of the three of docs/proofs/certificate.md;
"now" all four with full effort. `--scan` looks for populations where the ratio is large.
"""

from __future__ import annotations

import argparse
import math

import numpy as np

import hetdp
from hetdp.paper import bounds

SIZES = (10, 100, 1000, 10_000)


def spread(low: float, high: float, people: int) -> list[float]:
    """Return ε whose logarithms are spread evenly."""
    return [math.exp(low + (high - low) * (i + 0.5) / people) for i in range(people)]


def populations(n: int) -> dict[str, hetdp.Levels]:
    """Return the four populations of the page with n people."""
    return {
        "half 0.1, half 1": hetdp.Levels({0.1: n // 2, 1.0: n - n // 2}),
        "ln ε even in [−4, 2]": hetdp.Levels.of(spread(-4, 2, n)),
        "ln ε even in [−3, −2]": hetdp.Levels.of(spread(-3, -2, n)),
        "90 % 0.01, 10 % public": hetdp.Levels({0.01: 9 * n // 10, math.inf: n - 9 * n // 10}),
    }


def paper(levels: hetdp.Levels) -> float | None:
    """Return the paper's own lower bound; it has one for two groups."""
    if len(levels) != 2:
        return None
    low, high = levels.epsilon.tolist()
    return bounds.lower(low, high, levels.n, int(levels.count[0]) / levels.n)


def row(name: str, levels: hetdp.Levels) -> str:
    """Return one row of the table: ADPM by the paper's bound, by those of before, by today's, and our best method."""
    found = hetdp.certificate(levels, bounds=(0, 1), effort="full")
    before = max(value for name, value in found.candidates.items() if name != "path")
    old = paper(levels)
    first = f"{found.upper / old:,.0f}" if old else "none"
    cells = [f"{found.upper / before:.2f}", f"{found.ratio:.2f}", f"{found.best_ratio:.3f}", found.technique]
    return f"| {name} | {levels.n:,} | {first} | {' | '.join(cells)} |"


def scan() -> list[tuple[float, float, str]]:
    """Return best ratios of many populations in report's effort, largest first: how far from proved optimality."""
    found = []
    for n in (2, 3, 5, 10, 20, 40, 100, 300, 1000):
        for total in (0.5, 1, 2, 3, 4, 6, 8, 10, 15, 20, 40, 100):
            for ratio in (1, 3, 10, 100, math.inf):
                for share in (0.5, 0.75, 0.9) if ratio > 1 else (1.0,):
                    strict = round(n * share)
                    if not 0 < strict <= n or (ratio > 1 and strict == n):
                        continue
                    low = total / n if math.isinf(ratio) else total / (strict + ratio * (n - strict))
                    if low > 5:
                        continue
                    people = {low: strict, low * ratio: n - strict} if ratio > 1 else {low: n}
                    one = hetdp.certificate(hetdp.Levels(people), bounds=(0, 1))
                    found.append((one.best_ratio, one.ratio, " + ".join(f"{c} at {e:.3g}" for e, c in people.items())))
    return sorted(set(found), reverse=True)


def exactly(people: str) -> str:
    """Return our best method by the exact optimum, where that can be computed."""
    levels = {float(e): int(c) for c, e in (part.split(" at ") for part in people.split(" + "))}
    if math.prod(count + 1 for count in levels.values()) > 120:
        return "too many people"
    best = min(hetdp.plan(levels, bounds=(0, 1), method=name).worst_case_mse for name in ("adpm", "minimax"))
    return f"{best / hetdp.optimal(levels, bounds=(0, 1), outputs=81).lower:.3f}"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--largest", type=int, default=SIZES[-1], help="leave out larger populations")
    parser.add_argument("--scan", action="store_true", help="look for large ratios instead")
    asked = parser.parse_args()
    if asked.scan:
        found = scan()
        best = np.array([x[0] for x in found])
        marks = ", ".join(f"{q:.0%} below {np.quantile(best, q):.3f}" for q in (0.5, 0.9, 0.99))
        print(f"{len(found)} populations; best method ÷ bound: {marks}; the largest:")
        for ratio, adpm, people in found[:10]:
            print(f"| {people} | {adpm:.2f} | {ratio:.3f} | {exactly(people)} |")
        return
    for n in SIZES:
        if n <= asked.largest:
            for name, levels in populations(n).items():
                print(row(name, levels), flush=True)


if __name__ == "__main__":
    main()
