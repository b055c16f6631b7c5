"""Measure speed and memory as ratios to named baselines, in one run: `make bench`.

    python bench/run.py [--only NAME] [--quick] [--out DIR]

It shows every bar beside what was measured and never fails on a time. A new module of cases is one name in `MODULES`.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import arrays
import cells
import databases
import engines
import files
import peers
import simulation
import spine
import table
from measure import machine

import ledger
import server

MODULES = (spine, arrays, files, cells, simulation, databases, engines, peers, server, ledger)
CASES = {case.__name__: case for module in MODULES for case in module.CASES}


def main() -> None:
    options = _options()
    where, rows = machine(), list[table.Row]()
    for name in options.only or CASES:
        start = time.perf_counter()
        print(f"{name} …", end=" ", flush=True, file=sys.stderr)
        rows += CASES[name](options.quick)
        print(f"{time.perf_counter() - start:.0f} s", file=sys.stderr)
    table.save(options.out, where, rows)
    table.show(where, rows)
    print(f"written to {options.out}/bench.json and bench.md")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Speed and memory as ratios to named baselines.")
    parser.add_argument("--only", metavar="NAME", choices=CASES, action="append", help=f"of {', '.join(CASES)}; repeat")
    parser.add_argument("--quick", action="store_true", help="leave out what takes minutes")
    parser.add_argument("--out", metavar="DIR", type=Path, default=Path("build/bench"), help="where the table goes")
    return parser.parse_args()


if __name__ == "__main__":
    main()
