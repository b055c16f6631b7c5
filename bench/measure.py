"""Times, memory and the machine, measured so that noise hits both sides of a ratio alike."""

from __future__ import annotations

import gc
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
PAUSE = 0.2
"""Seconds before each timing: the threads of a BLAS spin for a while after a product, on the next one's cores."""

_SHOWN = ("hetdp", "numpy", "scipy", "opendp", "polars", "cvxpy", "clarabel")

Timer = Callable[[], float]
"""Does something once and returns the seconds it took."""


@dataclass(frozen=True)
class Race:
    """Seconds of a baseline and of a candidate, taken in turns: round by round both met the same machine."""

    baseline: tuple[float, ...]
    candidate: tuple[float, ...]

    @property
    def median(self) -> float:
        """The median over the rounds of candidate ÷ baseline."""
        return statistics.median(c / b for b, c in zip(self.baseline, self.candidate, strict=True))

    @property
    def best(self) -> float:
        """The quickest candidate ÷ the quickest baseline."""
        return min(self.candidate) / min(self.baseline)


def race(baseline: Timer, candidate: Timer, *, seconds: float = 5.0, least: int = 5) -> Race:
    """Return the times of both, taken in turns for some seconds and at least so many rounds; one round warms up."""
    rounds: list[tuple[float, float]] = []
    end = time.perf_counter() + seconds
    while len(rounds) <= least or time.perf_counter() < end:
        rounds.append((_rested(baseline), _rested(candidate)))
    first, second = zip(*rounds[1:], strict=True)
    return Race(baseline=first, candidate=second)


def clock(call: Callable[[], Any], times: int = 1) -> Timer:
    """Return a timer of a function; what takes milliseconds is called several times in a row."""

    def timer() -> float:
        start = time.perf_counter()
        for _ in range(times):
            call()
        return (time.perf_counter() - start) / times

    return timer


def _rested(timer: Timer) -> float:
    gc.collect()
    time.sleep(PAUSE)
    return timer()


def python(code: str, *arguments: str, timeout: float | None = None) -> str:
    """Return what a fresh interpreter prints; it finds the modules of this folder."""
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, cwd=FOLDER, capture_output=True, text=True, check=True, timeout=timeout).stdout


def fresh(module: str, function: str, *arguments: Any, timeout: float | None = None) -> Any:
    """Return what a function of this folder returns in a fresh interpreter; both ways travel as JSON."""
    code = f"import json, sys, {module}; print(json.dumps({module}.{function}(*json.loads(sys.argv[1]))))"
    return json.loads(python(code, json.dumps(arguments), timeout=timeout))


def resident(*, peak: bool = False) -> float:
    """Return the memory of this process in MB, or the most it ever had; NaN where the system has no /proc.

    (`getrusage` would not do: its peak is inherited from the process that started this one.)
    """
    status = Path("/proc/self/status")
    name = "VmHWM:" if peak else "VmRSS:"
    lines = status.read_text(encoding="utf-8").splitlines() if status.exists() else []
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith(name)), float("nan"))


def machine() -> dict[str, str]:
    """Return where and when this ran: processor, cores, memory, load, versions, date."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "processor": _processor(),
        "cores": str(os.cpu_count()),
        "memory": f"{memory:.0f} GiB",
        "load at start": f"{os.getloadavg()[0]:.1f}",
        "system": platform.system(),
        "python": platform.python_version(),
        **{name: version(name) for name in _SHOWN},
    }


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())
