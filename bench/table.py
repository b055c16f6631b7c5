"""The table of a run: rows with their bars, as JSON, as Markdown and on the terminal."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from measure import Race

HEADER = ("Measured", "Against", "Result", "Best", "Bar", "Verdict", "Note")


@dataclass(frozen=True)
class Bar:
    """What a number should be; it is shown beside the number and never fails a run."""

    sense: Literal["at most", "at least"]
    value: float

    def met(self, measured: float) -> bool:
        """Say whether a number is on the right side."""
        return measured <= self.value if self.sense == "at most" else measured >= self.value


@dataclass(frozen=True)
class Row:
    """One measured number: a ratio to a baseline (unit ×) or a quantity, and the bar for it if there is one.

    Attributes
    ----------
    measured
        The number that the verdict is about; for a race the median ratio.
    best
        For a race the ratio of the quickest times.
    """

    what: str
    against: str
    measured: float
    unit: str = "×"
    bar: Bar | None = None
    best: float | None = None
    note: str = ""

    @classmethod
    def of(cls, what: str, against: str, race: Race, bar: Bar | None = None, note: str = "") -> Row:
        """Return the row of a race."""
        times = f"{_time(min(race.candidate))} against {_time(min(race.baseline))}, {len(race.baseline)} rounds"
        return cls(what, against, race.median, "×", bar, race.best, "; ".join(filter(None, (times, note))))

    @property
    def verdict(self) -> str:
        """Met or missed; nothing without a bar."""
        if self.bar is None or math.isnan(self.measured):
            return ""
        return "met" if self.bar.met(self.measured) else "missed"

    def cells(self) -> tuple[str, ...]:
        """Return the row as text, in the order of `HEADER`."""
        bar = f"{self.bar.sense} {self._shown(self.bar.value)}" if self.bar else ""
        best = self._shown(self.best) if self.best is not None else ""
        return self.what, self.against, self._shown(self.measured), best, bar, self.verdict, self.note

    def to_dict(self) -> dict[str, Any]:
        """Return the row as plain data."""
        bar = {"sense": self.bar.sense, "value": self.bar.value} if self.bar else None
        measured = None if math.isnan(self.measured) else self.measured
        return {**self.__dict__, "measured": measured, "bar": bar, "verdict": self.verdict or None}

    def _shown(self, number: float) -> str:
        if math.isnan(number):
            return "not measured"
        digits = f"{number:,.0f}" if number == int(number) or abs(number) >= 100 else f"{number:.3g}"
        return f"{digits} {self.unit}".rstrip()


def save(folder: Path, machine: Mapping[str, str], rows: Sequence[Row]) -> None:
    """Write bench.json and bench.md into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    data = {"machine": dict(machine), "rows": [row.to_dict() for row in rows]}
    (folder / "bench.json").write_text(json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False) + "\n", "utf-8")
    (folder / "bench.md").write_text(markdown(machine, rows), "utf-8")


def markdown(machine: Mapping[str, str], rows: Sequence[Row]) -> str:
    """Return the table as Markdown, the machine above it."""
    lines = [HEADER, ["---"] * len(HEADER), *(row.cells() for row in rows)]
    plain = [[cell.replace("|", r"\|") for cell in cells] for cells in lines]
    body = "\n".join(f"| {' | '.join(cells)} |" for cells in plain)
    return f"{', '.join(f'{name}: {text}' for name, text in machine.items())}\n\n{body}\n"


def show(machine: Mapping[str, str], rows: Sequence[Row]) -> None:
    """Print the table on the terminal."""
    from rich.console import Console
    from rich.table import Table

    shown = Table(*HEADER, caption=", ".join(f"{name} {text}" for name, text in machine.items()))
    for row in rows:
        shown.add_row(*row.cells())
    Console(width=None if sys.stdout.isatty() else 180).print(shown)


def _time(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1e3:.3g} ms"
