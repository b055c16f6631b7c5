"""Privacy that goes with the answer, on real data: the error that was promised and the one that was made.

    python bench/drift.py [--runs N]

It prints the table of docs/drift.md. The data is what 6,366 readers of Redbook said about their marriages (Ray Fair,
1978; it comes with statsmodels). The question is whether they had an affair, their age is public, and how they choose
between ε = 0.05 and ε = 1 is invented here, three ways. Every run draws the choices and the noise again.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import polars as pl
import statsmodels.api as sm  # type: ignore[import-untyped]
from numpy.typing import NDArray

import hetdp
from hetdp.statistics.answer import Combined
from hetdp.statistics.statistic import Release

Floats = NDArray[np.float64]
STRICT, OPEN = 0.05, 1.0
AGES = ("up to 24", "25 to 29", "30 and over")


def women() -> tuple[Floats, NDArray[np.str_]]:
    """Return who had an affair, as 0 or 1, and the age group of each."""
    data = sm.datasets.fair.load_pandas().data
    age = data["age"].to_numpy()
    return (data["affairs"].to_numpy() > 0).astype(float), np.where(age < 25, AGES[0], np.where(age < 30, *AGES[1:]))


def choices(affair: Floats, age: NDArray[np.str_]) -> dict[str, Floats]:
    """Return with which probability each woman chooses the strict ε: at random, by her answer, by her age."""
    by_age = np.select([age == name for name in AGES], [0.2, 0.6, 0.9])
    return {"at random": np.full(affair.size, 0.56), "by the answer": np.where(affair == 1, 0.7, 0.5), "by age": by_age}


Ask = Callable[[pl.DataFrame], "Release | Combined"]


def ways(shares: dict[str, float]) -> dict[str, Ask]:
    """Return how the share of women who had an affair can be asked for."""

    def asked(people: pl.DataFrame, **how: Any) -> Any:
        return hetdp.mean(people, value="affair", missing="none", epsilon="eps", bounds=(0, 1), target="people", **how)

    def combined(people: pl.DataFrame) -> Any:
        return asked(people, by="age", public_columns=["age"]).combine(shares)

    return {"as it is": asked, "drift=0.2": lambda people: asked(people, drift=0.2), "by age, combined": combined}


def rows(runs: int) -> Iterator[str]:
    """Yield the rows of the table; errors are in percentage points."""
    affair, age = women()
    rng = np.random.default_rng(1)
    shares = {name: float(np.mean(age == name)) for name in AGES}
    for choice, strict in choices(affair, age).items():
        for way, ask in ways(shares).items():
            found, promised, covered, half = [], [], [], []
            for _ in range(runs):
                eps = np.where(rng.random(affair.size) < strict, STRICT, OPEN)
                release = ask(pl.DataFrame({"affair": affair, "age": age, "eps": eps}))
                low, high = release.confidence_interval()
                found.append(float(release) - affair.mean())
                promised.append(
                    release.worst_case_error if isinstance(release, Combined) else release.plan.worst_case_error
                )
                covered.append(low <= affair.mean() <= high)
                half.append((high - low) / 2)
            error, bias = math.sqrt(np.mean(np.square(found))), np.mean(found)
            numbers = (100 * x for x in (np.mean(promised), error, bias, np.mean(half)))
            cells = [choice, way, *(f"{x:.2f}" for x in numbers), f"{np.mean(covered):.1%}"]
            yield f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Privacy that goes with the answer, on real data.")
    parser.add_argument("--runs", type=int, default=1500)
    print("| ε is chosen | asked | promised error | real error | of it bias | half of the 95 % interval | it covers |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for line in rows(parser.parse_args().runs):
        print(line, flush=True)
