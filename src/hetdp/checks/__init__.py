"""What can be checked: the data by its owner (here), the installation (doctor), a release from outside (audit).

A check says what is wrong with the values, for the eyes of the data's owner alone.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hetdp.core.domain import GRID, WHY_UNREAD, Interval, plural
from hetdp.core.types import BoundsLike, EpsilonLike, SourceLike, TiersLike, documented_by
from hetdp.errors import InputError
from hetdp.report import number
from hetdp.sources import Batch, Form, Source, read
from hetdp.statistics.histogram import Shares
from hetdp.statistics.mean import Mean
from hetdp.tally import Table, merge
from hetdp.tally.groupby import tabulate

_SHOWN = 10
KINDS = {
    "missing": "missing",
    "unreadable": "not a number, so missing as well",
    "below": "below the lower bound: counted as the bound",
    "above": "above the upper bound: counted as the bound",
    "unlisted": "in none of the categories: counted as other",
    "odd": "on a line that is not plain (a quote, too few fields, no proper JSON): look at it",
}


@dataclass(frozen=True, repr=False)
class Check:
    """PRIVATE. Counts and places of values that a release silently mends, and the mean by level of ε.

    Attributes
    ----------
    n
        The number of rows.
    counts
        How many values are missing, unreadable, below and above the bounds, or on a line that is not plain; with
        categories how many are missing or in none of them.
    places
        The first few places of each kind: lines of a text file, rows of a Parquet file, indices of an array.
    means
        The exact mean of the values that can be read at each ε, without noise; NaN if there is none. If these differ
        much then ε depends on the value: the estimate is biased and the choice of ε itself tells something.
    readable
        The share of people at each ε whose value can be read. If these differ much then ε depends on who answers.
    step
        A step of the grid on which values are read: a millionth of the range. Means are shown to the digits above it.
    listed
        {category: people}, without noise; empty without categories. With them there are no means.
    """

    n: int
    counts: Mapping[str, int]
    places: Mapping[str, tuple[int, ...]]
    place: str
    means: Mapping[float, float]
    readable: Mapping[float, float]
    step: float
    listed: Mapping[str, int] = field(default_factory=dict)

    @property
    def advice(self) -> str:
        """Which choice of missing= fits, or what a histogram makes of the rest."""
        if self.listed:
            return (
                "A histogram counts whatever is missing or in none of the categories as 'other'. Texts are compared "
                "letter by letter: a category that nobody has may be written in another way in the data."
            )
        missing = self.counts["missing"] + self.counts["unreadable"]
        outside = self.counts["below"] + self.counts["above"]
        odd = f" Outside the bounds: {outside:,}; if such values are codes for missing answers, list all others"
        codes = f"{odd} (values=)." if outside else ""
        if not missing:
            none = "Nothing is missing here: missing='none' fits as long as that stays so, 'estimate' always does."
            return none + codes
        words = f" {WHY_UNREAD}" if self.counts["unreadable"] else ""
        whose = f"{missing:,} of {self.n:,} values are missing ({missing / self.n:.1%})"
        return (
            f"{whose}: missing='estimate' gives the mean of those who answered, and who did stays private; 'drop' is a "
            "little more accurate and makes public who answered; a number fits where a missing value has a meaning, as "
            f"0 visits. 'none' and 'midpoint' would count all of them as the midpoint.{words}{codes}"
        )

    def report(self) -> str:
        """Return the check as text, marked PRIVATE."""
        lines = ["PRIVATE: for the owner of the data only. Nothing below is protected; do not publish it.", ""]
        lines.append(plural(self.n, "row"))
        lines += [f"{count:>10,} {name}" for name, count in self.listed.items()]
        for kind, count in self.counts.items():
            meaning, places = KINDS[kind], self.places[kind]
            more = ", …" if count > len(places) else ""
            where = f"   ({self.place} {', '.join(map(str, places))}{more})" if places else ""
            lines.append(f"{count:>10,} {meaning}{where}")
        lines += ["", *textwrap.wrap(self.advice, 100), ""]
        if self.listed:
            return "\n".join(lines).rstrip()
        if len(self.means) <= 12:
            lines += ["mean by ε of the values that can be read, without noise, and the share of people who have one"]
            lines += ["(if these differ much, ε depends on the value or on who answers, which it must not; choosing a"]
            lines += ["drift, a method or missing= after a look at all this is a leak, 'estimate' needs no look):"]
            for level, mean in self.means.items():
                shown = "–" if math.isnan(mean) else number(mean, 100 * self.step)  # a code is right to half a step
                lines.append(f"{level:>10.4g}  {shown}   {self.readable[level]:.1%}")
        else:
            lines += ["means by ε are shown for at most twelve levels"]
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Return the check as plain data."""
        means = [
            {"epsilon": f"{level!r}", "mean": None if math.isnan(mean) else mean, "readable": self.readable[level]}
            for level, mean in self.means.items()
        ]
        facts = {**asdict(self), "means": means, "advice": self.advice}
        del facts["readable"]  # it stands beside each mean
        return {"PRIVATE": "for the owner of the data only; do not publish", **facts}

    __str__ = __repr__ = report  # it must not be seen without its first line


@documented_by(read)
def check(  # noqa: PLR0913  mirrors the columns of a table
    source: SourceLike,
    *,
    value: str | None = None,
    epsilon: EpsilonLike,
    bounds: BoundsLike | None = None,
    categories: Sequence[Any] | None = None,
    values: Mapping[Any, float] | None = None,
    tiers: TiersLike | None = None,
    delimiter: str | None = None,
    decimal: str = ".",
    thousands: str | None = None,
) -> Check:
    """Return what `mean` or `histogram` would silently mend in a source, and where. PRIVATE: never publish it.

    It needs the rows: files, frames in memory and arrays.

    Parameters
    ----------
    source, value, epsilon, bounds, values, tiers, delimiter, decimal, thousands
        As for `read`.
    categories
        As for `histogram`, in place of the bounds.

    Returns
    -------
    Check
        How many cells would be mended in which way, where they are, and the means by ε. All of it is private.

    Examples
    --------
    >>> print(check([1, None, "x", 7], epsilon=[1, 1, 1, 0.5], bounds=(0, 4)).report())
    PRIVATE: for the owner of the data only. Nothing below is protected; do not publish it.
    <BLANKLINE>
    4 rows
             1 missing   (index 1)
             1 not a number, so missing as well   (index 2)
             0 below the lower bound: counted as the bound
             1 above the upper bound: counted as the bound   (index 3)
             0 on a line that is not plain (a quote, too few fields, no proper JSON): look at it
    <BLANKLINE>
    2 of 4 values are missing (50.0%): missing='estimate' gives the mean of those who answered, and who
    did stays private; 'drop' is a little more accurate and makes public who answered; a number fits
    where a missing value has a meaning, as 0 visits. 'none' and 'midpoint' would count all of them as
    the midpoint. Words need values= (--map yes=1); a decimal comma and separators of thousands need
    --decimal and --thousands; %, currency signs and dates cannot be read. Outside the bounds: 1; if
    such values are codes for missing answers, list all others (values=).
    <BLANKLINE>
    mean by ε of the values that can be read, without noise, and the share of people who have one
    (if these differ much, ε depends on the value or on who answers, which it must not; choosing a
    drift, a method or missing= after a look at all this is a leak, 'estimate' needs no look):
           0.5  4.00000   100.0%
             1  1.00000   33.3%
    """
    form = Form(delimiter, decimal, thousands)
    asked = checked(value, bounds, categories, values)
    return of_source(Source.asked_by(asked, source, epsilon=epsilon, tiers=tiers, form=form), asked)


def checked(value: str | None, bounds: Any, categories: Sequence[Any] | None, values: Any = None) -> Mean | Shares:
    """Return the statistic whose cells are checked: a mean within bounds, or a histogram of categories."""
    if (bounds is None) == (categories is None):
        raise InputError("a check needs the public bounds of the values, or the categories of a histogram")
    if categories is None:
        return Mean(Interval.of(bounds), value=value, missing="midpoint", values=values)
    if values is not None:
        raise InputError("values= is for means; the categories of a histogram are written as in the data")
    return Shares(categories=categories, value=value)


def of_source(people: Source, asked: Mean | Shares) -> Check:
    """Return the check of a source."""
    if isinstance(asked, Shares):
        return _of_categories(people, asked)
    interval = asked.interval
    counts = dict.fromkeys((kind for kind in KINDS if kind != "unlisted"), 0)
    places: dict[str, list[int]] = {kind: [] for kind in counts}
    everybody: list[Table] = []
    tables: list[Table] = []  # of those whose value can be read
    place = "index"
    for batch in people.batches(owner=True):
        place = batch.place
        everybody.append(tabulate(batch.epsilon, batch.values, interval))
        there = ~np.isnan(_numbers(batch))
        if there.any():
            tables.append(tabulate(batch.epsilon[there], np.asarray(batch.values)[there], interval))
        for kind, mask in _kinds(batch, interval).items():
            _note(batch, mask, kind, counts, places)
    if not everybody:
        raise InputError("there is nobody here (n = 0)")
    table = merge(everybody)
    first = {kind: tuple(sorted(found)) for kind, found in places.items()}
    means, readable = _means(table, merge(tables) if tables else None, interval)
    return Check(table.n, counts, first, place, means, readable, interval.width / GRID)


def _note(
    batch: Batch, mask: NDArray[np.bool_], kind: str, counts: dict[str, int], places: dict[str, list[int]]
) -> None:
    """Count the cells of one kind, and keep the first few places."""
    counts[kind] += int(np.count_nonzero(mask))
    found = np.flatnonzero(mask)[: _SHOWN - len(places[kind])]
    places[kind] += (batch.places[found] if batch.places is not None else found).tolist()


def _of_categories(people: Source, asked: Shares) -> Check:
    """Return how many people are in each category, and where those are who are in none."""
    counts = dict.fromkeys(("missing", "unlisted", "odd"), 0)
    places: dict[str, list[int]] = {kind: [] for kind in counts}
    labels, place = asked.sorting.labels, "index"
    found = np.zeros(len(labels), np.int64)
    for batch in people.batches(owner=True):
        place, cells = batch.place, np.asarray(batch.values)
        found += np.bincount(cells, minlength=len(labels))
        other = cells == len(labels) - 1
        missing = np.zeros(other.shape, bool) if batch.missing is None else batch.missing
        _note(batch, other & missing, "missing", counts, places)
        _note(batch, other & ~missing, "unlisted", counts, places)
        _note(batch, np.zeros_like(other) if batch.odd is None else batch.odd, "odd", counts, places)
    if not found.any():
        raise InputError("there is nobody here (n = 0)")
    first = {kind: tuple(sorted(some)) for kind, some in places.items()}
    named = dict(zip(labels[:-1], found[:-1].tolist(), strict=True))
    return Check(int(found.sum()), counts, first, place, {}, {}, 0.0, named)


def _kinds(batch: Batch, interval: Interval) -> dict[str, NDArray[np.bool_]]:
    values = _numbers(batch)
    nan, none = np.isnan(values), np.zeros(values.shape, dtype=bool)
    missing = none if batch.missing is None else batch.missing
    return {
        "missing": nan & missing,
        "unreadable": nan & ~missing,
        "below": values < interval.lo,
        "above": values > interval.hi,
        "odd": none if batch.odd is None else batch.odd,
    }


def _numbers(batch: Batch) -> NDArray[np.float64]:
    with np.errstate(over="ignore"):
        return np.asarray(batch.values).astype(np.float64)


def _means(
    everybody: Table, readable: Table | None, interval: Interval
) -> tuple[dict[float, float], dict[float, float]]:
    """Return the mean of the values that can be read at each ε above 0, and the share of people who have one."""
    used = everybody.epsilon > 0
    means, shares = dict.fromkeys(everybody.epsilon[used].tolist(), math.nan), {}
    there = {}
    if readable is not None:
        levels = everybody.like(readable.epsilon)  # all people may have too many levels, and those who answered not
        found = Table.single(levels, readable.count, readable.total[:, 0], rounded=everybody.rounded)
        mean = interval.lo + interval.width * (found.total[:, 0] / (found.count * GRID))
        means |= {e: m for e, m in zip(found.epsilon.tolist(), mean.tolist(), strict=True) if e in means}
        there = dict(zip(found.epsilon.tolist(), found.count.tolist(), strict=True))
    for epsilon, count in zip(everybody.epsilon[used].tolist(), everybody.count[used].tolist(), strict=True):
        shares[epsilon] = there.get(epsilon, 0) / count
    return means, shares
