"""The rows of a source, read for a ledger: first who they are about, and after the charge their values.

Claim. Given the people who take part and their levels, `tally_of` adds one code in {0…Q} for each of them, whatever
rows the source has: nobody's values, and nobody's presence in the source, changes who is counted or raises.

Argument. A person's code is the average of the codes of their rows, rounded in integers as everywhere; without a row
it is the midpoint. A row of somebody who does not take part is nobody's. Counts come from the plan.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hetdp.core.domain import GRID, Interval
from hetdp.core.plan import Plan
from hetdp.errors import InputError
from hetdp.sources import Form, Source
from hetdp.tally.groupby import Table
from hetdp.tally.tally import Tally

from ._members import clean_ids, readable_ids


def source_of(source: Any, value: str | None, person: Any, form: Form | None = None) -> Source:
    """Return a source with values and the ids of whom they are about; nothing is read."""
    if person is None:
        raise InputError("a ledger needs to know who a row is about; name the column of ids: person=…")
    found = Source.of(source, value=value, epsilon=1.0, person=person, rows="average", form=form or Form())
    if found.ids is not None:
        sizes = [len(some) if hasattr(some, "__len__") else None for some in (source, found.ids)]
        if None in sizes or sizes[0] != sizes[1]:
            raise InputError(
                f"values and ids must be sequences with one entry a row (of lengths {sizes[0]}, {sizes[1]})"
            )
    return found


def names_of(people: Source) -> list[str] | None:
    """Return the last parts of the names of files: what of a source may stand in a request; None for others."""
    return [Path(name).name for name in people.names] or None


def ids_of(people: Source) -> list[str]:
    """Return the ids of a source whose rows are public, one row a person. What stands in other columns is not used.

    No message quotes an id: on a damaged line of a delimited file it may be a piece of the value beside it.
    """
    ids = clean_ids(cell for batch in people.batches() for cell in _cells(batch.texts, people))
    if len(set(ids)) < len(ids):
        raise InputError("an id stands on more than one row; here everybody has one row")
    return ids


def _cells(texts: Mapping[str, Any], people: Source) -> list[Any]:
    cells: list[Any] = texts[str(people.asked.person)].to_list()
    return cells


def _batches(people: Source) -> Iterator[tuple[list[str | None], NDArray[Any]]]:
    for batch in people.batches():
        yield readable_ids(_cells(batch.texts, people)), np.asarray(batch.values)


def tally_of(people: Source, places: Mapping[str, int], plan: Plan) -> Tally:
    """Return the tally of those who take part; `places` has the place of each one's level in the plan.

    Who has ε = 0 is not in `places`: their values are not looked at.
    """
    index = {person: i for i, person in enumerate(places)}
    total, rows = np.zeros(len(index), np.int64), np.zeros(len(index), np.int64)
    for ids, values in _batches(people):
        at = np.array([-1 if person is None else index.get(person, -1) for person in ids], dtype=np.int64)
        mine = at >= 0
        np.add.at(total, at[mine], _codes(plan.interval, values[mine]))
        np.add.at(rows, at[mine], 1)
    code = np.where(rows > 0, (2 * total + rows) // (2 * np.maximum(rows, 1)), GRID // 2)
    sums = np.zeros(len(plan.levels), np.int64)
    np.add.at(sums, np.fromiter(places.values(), np.int64, len(places)), code)
    levels = plan.levels
    return Tally(Table.single(levels.epsilon, levels.count, sums, rounded=levels.rounded), plan.interval, levels.names)


def _codes(interval: Interval, values: NDArray[Any]) -> NDArray[np.int64]:
    return interval.codes(values, np.empty(values.size), np.empty(values.size, dtype=bool)).astype(np.int64)
