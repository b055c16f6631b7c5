"""Make `people.csv`, the sample file: 4,000 invented people with a yearly income and a privacy choice.

Nobody in it is real. Incomes are log-normal by region (medians between 34,000 and 47,000 a year, shape 0.5),
rounded to 10; 2 % of the cells are empty, as in real surveys. The tier is drawn independently of the income: ε must not
depend on the value. Run `python examples/make_people.py` to write the file again; it gives the same bytes.
"""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

TIERS = {"strict": ("0.02", 2000), "standard": ("0.1", 1200), "open": ("1", 500), "public": ("public", 300)}
MEDIANS = {"north": 34_000, "south": 38_000, "east": 41_000, "west": 47_000}


def main() -> None:
    """Write the file beside this script."""
    rng = np.random.default_rng(20_230_625)
    tiers = rng.permutation([name for name, (_, people) in TIERS.items() for _ in range(people)])
    regions = rng.choice(list(MEDIANS), tiers.size)
    incomes = np.array([MEDIANS[region] for region in regions]) * np.exp(rng.normal(0, 0.5, tiers.size))
    empty = rng.random(tiers.size) < 0.02
    with Path(__file__).with_name("people.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["id", "region", "tier", "eps", "income"])
        for i, (tier, region, income) in enumerate(zip(tiers, regions, incomes, strict=True)):
            cell = "" if empty[i] else f"{round(income, -1):.0f}"
            writer.writerow([f"p{i + 1:04}", region, tier, TIERS[tier][0], cell])


if __name__ == "__main__":
    main()
