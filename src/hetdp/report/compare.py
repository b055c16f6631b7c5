"""Every method side by side for the same people."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hetdp.core.domain import Interval
from hetdp.core.levels import Levels
from hetdp.core.plan import Plan, plan
from hetdp.errors import InputError
from hetdp.estimators import methods
from hetdp.theory.certificate import Certificate, certificate

if TYPE_CHECKING:
    from rich.console import RenderableType


@dataclass(frozen=True)
class Entry:
    """One method: its plan, or why it refuses these people.

    Attributes
    ----------
    worst_case_error
        The root of the worst-case mean squared error, in units of the values.
    data_error
        The same for the data that was asked about.
    """

    method: str
    label: str
    plan: Plan | None
    refusal: str | None
    worst_case_error: float
    data_error: float


@dataclass(frozen=True)
class Comparison:
    """All methods for one population, best first, and the certificate: what no ε-DP method can beat in the worst case.

    `variance` and `data` say for which data the second column of errors holds, as a number and in words.
    """

    entries: tuple[Entry, ...]
    certificate: Certificate
    variance: float
    data: str

    @property
    def floor(self) -> float:
        """The error, in units of the values, below which no ε-DP method can be in the worst case."""
        return math.sqrt(self.certificate.lower)

    def to_dict(self) -> dict[str, Any]:
        """Return the comparison as plain data."""
        return {
            "variance": self.variance,
            "data": self.data,
            "methods": [_entry_dict(entry) for entry in self.entries],
            "certificate": self.certificate.to_dict(),
        }

    def report(self) -> str:
        """Return the comparison as text."""
        from .text import text

        return text(self.body())

    def body(self, more: Sequence[str] = ()) -> RenderableType:
        """Return the comparison for a rich console, and more sentences below it."""
        from rich.console import Group
        from rich.table import Table

        table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
        headings = ("Method", "Worst ±", "× best", "Data ±", "ε least", "ε most", "ε mean")
        for i, heading in enumerate(headings):
            table.add_column(heading, justify="left" if i == 0 else "right", no_wrap=True)
        best = self.entries[0].worst_case_error
        for entry in self.entries:
            table.add_row(*_cells(entry, best))
        notes = [f"\nWorst: for any distribution. Data: {self.data}. ε: what people with weight spend."]
        notes += [f"{entry.method} refuses: {entry.refusal}" for entry in self.entries if entry.refusal]
        return Group(table, "\n".join([*notes, f"Of ADPM: {self.certificate.sentence()}.", *more]))

    def plot(self, path: str | Path) -> None:
        """Write a picture: errors beside the floor, and who spends what."""
        from . import plots

        plots.save(plots.comparison(self), Path(path))

    def __str__(self) -> str:
        return self.report()


def compare(levels: Levels | Mapping[Any, int] | Any, *, bounds: Any, variance: float | None = None) -> Comparison:
    """Return every method side by side: worst case, error at one variance, who spends what, the certificate.

    Parameters
    ----------
    levels, bounds
        As for `plan`.
    variance
        The variance of the data for the second column of errors, at the mean that is worst for it; by default values
        spread evenly over the interval.

    Examples
    --------
    >>> [entry.method for entry in compare({0.1: 700, float("inf"): 300}, bounds=(0, 1)).entries[:2]]
    ['minimax', 'adpm']
    """
    levels = Levels.given(levels)
    interval = Interval.of(bounds).ordinary()
    if variance is None:
        at, centre, data = interval.width * interval.width / 12, interval.mid, "values spread evenly over the interval"
    else:
        at, centre, data = (
            variance,
            None,
            f"standard deviation {math.sqrt(variance):,.4g}, at the least favourable mean",
        )
    entries = [_entry(levels, interval, name, at, centre) for name in methods()]
    entries.sort(key=lambda entry: entry.worst_case_error)
    return Comparison(tuple(entries), certificate(levels, bounds=interval), at, data)


def _entry(levels: Levels, interval: Interval, name: str, variance: float, mean: float | None) -> Entry:
    label = methods()[name].label
    try:
        planned = plan(levels, bounds=interval, method=name)
    except InputError as refusal:
        return Entry(name, label, None, str(refusal), math.inf, math.inf)
    return Entry(name, label, planned, None, planned.worst_case_error, math.sqrt(planned.mse(variance, mean)))


def _spends(planned: Plan) -> tuple[float, float, float]:
    used = planned.units > 0
    if not used.any():
        return 0.0, 0.0, 0.0
    spent, count = planned.spent[used], planned.levels.count[used]
    return float(spent.min()), float(spent.max()), float((spent * count).sum() / count.sum())


def _cells(entry: Entry, best: float) -> tuple[str, ...]:
    from .text import epsilon, number

    if entry.plan is None:
        return (entry.method, *["–"] * 6)
    errors = (
        number(entry.worst_case_error, best),
        f"{entry.worst_case_error / best:.2f}",
        number(entry.data_error, best),
    )
    note = " (midpoint)" if entry.plan.abstains else ""
    return (entry.method + note, *errors, *map(epsilon, _spends(entry.plan)))


def _entry_dict(entry: Entry) -> dict[str, Any]:
    if entry.plan is None:
        return {"method": entry.method, "label": entry.label, "refusal": entry.refusal}
    least, most, mean = ("inf" if math.isinf(x) else x for x in _spends(entry.plan))
    return {
        "method": entry.method,
        "label": entry.label,
        "abstains": entry.plan.abstains,
        "worst_case_mse": entry.plan.worst_case_mse,
        "worst_case_error": entry.worst_case_error,
        "error_at_variance": entry.data_error,
        "spent": {"least": least, "most": most, "mean": mean},
    }
