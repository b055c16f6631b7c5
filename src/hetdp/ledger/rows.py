"""Ids, and the rows of a source: first who they are about, and after the charge their values.

Claim. Given the people who take part and their levels, `tally_of` adds one code in {0…Q} for each of them, whatever
rows the source has: nobody's values, and nobody's presence in the source, changes who is counted or raises.

Argument. A person's code is the average of the codes of their rows, rounded in integers as everywhere; without a row
it is the midpoint. A row of somebody who does not take part is nobody's. Counts come from the plan.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from hetdp.core.domain import BAD_ID, GRID, LONGEST_ID, NOT_IN_ID
from hetdp.core.plan import Plan
from hetdp.errors import InputError
from hetdp.sources import Form, Source
from hetdp.tally.groupby import Table
from hetdp.tally.tally import Tally

_BAD = re.compile(f"{NOT_IN_ID}|[\ud800-\udfff]")  # half a surrogate pair cannot be written down
_PLAIN = re.compile("[!#-~](?:[ !#-~]*[!#-~])?")  # visible ASCII but for a quote: most ids, and quick to see


def clean_ids(ids: Iterable[Any], what: str = "id") -> list[str]:
    r"""Return ids as they are kept: text in Unicode's normal form C, otherwise exact; a bad one raises.

    >>> clean_ids(["007", "7", "Zoe\u0308"]) == ["007", "7", "Zoë"]
    True
    """
    found = []
    for place, cell in enumerate(ids):
        plain = isinstance(cell, str) and len(cell) <= LONGEST_ID and _PLAIN.fullmatch(cell)
        found.append(cell if plain else _careful(cell, f"{what} {place + 1}"))
    return found


def _careful(cell: Any, where: str) -> str:
    if not isinstance(cell, str):
        raise InputError(
            f"an id must be text (got {type(cell).__name__} at {where}); write numbers as text: '007' is not '7'"
        )
    text = unicodedata.normalize("NFC", cell) if len(cell) <= LONGEST_ID else cell
    if not text:
        raise InputError(f"an id must not be empty (at {where})")
    if len(text) > LONGEST_ID or _BAD.search(text):
        raise InputError(f"an id {BAD_ID} (at {where})")
    return text


def _readable(cell: Any) -> str | None:
    """Return the id of a row of a private file, None where a cell cannot be one: such a row is nobody's."""
    try:
        return clean_ids([cell])[0]
    except InputError:
        return None


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


def ids_of(people: Source) -> list[str]:
    """Return the ids of a source whose rows are public, one row a person. What stands in other columns is not used.

    No message quotes an id: on a damaged line of a delimited file it may be a piece of the value beside it.
    """
    ids = clean_ids(cell for cells, _ in _batches(people) for cell in cells)
    if len(set(ids)) < len(ids):
        raise InputError("an id stands on more than one row; here everybody has one row")
    return ids


def _batches(people: Source) -> Iterator[tuple[list[Any], Any]]:
    """Yield the cells of ids and the values, some rows at a time."""
    for batch in people.batches():
        yield batch.texts[str(people.asked.person)].to_list(), batch.values


def tally_of(people: Source, places: Mapping[str, int], plan: Plan) -> Tally:
    """Return the tally of those who take part; `places` has the place of each one's level in the plan.

    Who has ε = 0 is not in `places`: their values are not looked at.
    """
    index: dict[str | None, int] = {person: i for i, person in enumerate(places)}
    total, rows = np.zeros((2, len(index)), np.int64)
    for ids, values in _batches(people):
        at = np.array([index.get(_readable(cell), -1) for cell in ids], dtype=np.int64)
        mine = at >= 0
        found = np.asarray(values)[mine]
        codes = plan.interval.codes(found, np.empty(found.size), np.empty(found.size, dtype=bool))
        np.add.at(total, at[mine], codes.astype(np.int64))
        np.add.at(rows, at[mine], 1)
    code = np.where(rows > 0, plan.interval.average(total, np.maximum(rows, 1)), GRID // 2)
    levels = plan.levels
    sums = np.zeros(len(levels), np.int64)
    np.add.at(sums, np.fromiter(places.values(), np.int64, len(places)), code)
    return Tally(Table.single(levels.epsilon, levels.count, sums, rounded=levels.rounded), plan.interval, levels.names)
