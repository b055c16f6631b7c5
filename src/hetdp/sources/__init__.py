"""Where the data is. Every source gives the same `Tally` for the same people.

`read` finds the source by what it is given; each source is one module with one function that yields `Batch`es.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._errors import InputError
from .._groupby import merge, tabulate
from .._interval import Interval
from .._levels import Levels
from .._tally import Tally
from . import arrays, files
from ._batch import Batch, Tiers

__all__ = ["Batch", "batches", "read", "read_levels", "records"]


def read(
    source: Any, *, value: str | None = None, epsilon: Any, bounds: Any, tiers: Mapping[str, Any] | None = None
) -> Tally:
    """Return the tally of a source: per level of ε, the people and the exact sum of their codes.

    Parameters
    ----------
    source
        A sequence of values, one a person; or the name of a CSV or Parquet file.
    value, epsilon
        The columns of a file. With a sequence of values there is no `value`, and `epsilon` is a sequence
        of the same length, or one ε for everybody.
    bounds
        The public interval (lo, hi). It is never taken from the data.
    tiers
        {name: ε} when the ε column holds names of tiers.

    Notes
    -----
    No value can raise, warn or change who is counted: one outside the interval is clamped, one
    that is missing or unreadable counts as the midpoint. A bad ε is a loud error: it is public. In a delimited file a
    line is a person, so a cell must not hold a line break; the page on limits has the other conditions.
    """
    interval = Interval.of(bounds)
    names = Tiers(tiers or {})
    people = batches(source, value, epsilon, names)
    parts = [tabulate(batch.epsilon, batch.values, interval) for batch in people]
    if not parts:
        raise InputError("there is nobody here (n = 0); a mean needs at least one person")
    return Tally(merge(parts), interval, names.shown)


def read_levels(
    source: str | os.PathLike[str], *, epsilon: str, value: str | None = None, tiers: Mapping[str, Any] | None = None
) -> Levels:
    """Return the levels of a file. No value is used; naming their column lets a ragged line be read around it."""
    names = Tiers(tiers or {})
    parts = [tabulate(batch.epsilon) for batch in files.batches(source, value, epsilon, names)]
    if not parts:
        raise InputError("there is nobody here (n = 0); a plan needs at least one person")
    return Levels.from_table(merge(parts), names.shown)


def records(
    source: Any, *, value: str | None, epsilon: Any, method: str, tiers: Mapping[str, Any] | None = None
) -> tuple[NDArray[Any], NDArray[np.float64]]:
    """Return everybody's value and ε as arrays, for a method that needs them one by one; from memory only."""
    if isinstance(source, (str, os.PathLike)):
        raise InputError(f"{method} keeps people one by one and works on arrays in memory only; load the file first")
    for batch in batches(source, value, epsilon, Tiers(tiers or {})):
        return np.asarray(batch.values), batch.epsilon
    raise InputError("there is nobody here (n = 0); a mean needs at least one person")


def batches(source: Any, value: str | None, epsilon: Any, tiers: Tiers, *, owner: bool = False) -> Iterator[Batch]:
    """Yield the people of a source, batch by batch; with `owner` also what `check` may tell the data's owner."""
    if isinstance(source, (str, os.PathLike)):
        if not isinstance(value, str) or not isinstance(epsilon, str):
            raise InputError("reading a file needs the names of two columns: value=… and epsilon=…")
        return files.batches(source, value, epsilon, tiers, owner=owner)
    if value is not None or isinstance(epsilon, str):
        raise InputError(
            "columns are named for files only; with data in memory give both columns: "
            "mean(frame['income'], epsilon=frame['eps'], bounds=…)"
        )
    return arrays.batches(source, epsilon, tiers, owner=owner)
