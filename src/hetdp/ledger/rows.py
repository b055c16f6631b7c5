"""The rows of a source, for a ledger: before the charge who they are about, after it their values.

`tallies_of` reads values, and is called when every charge is on disk.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hetdp.core.cells import Categories, Edges
from hetdp.core.domain import Interval, Ints, normal
from hetdp.core.plan import Plan
from hetdp.errors import InputError
from hetdp.sources import Form, Source
from hetdp.statistics import Statistic
from hetdp.tally import Table, Tally, coded, settled

_CHUNK = 2**12  # people whose numbers are spread out at a time; a wide statistic has thousands


def source_of(
    source: Any,
    statistic: Statistic,
    person: Any,
    form: Form = Form(),  # noqa: B008  it is frozen
    by: tuple[str, ...] | None = None,
) -> Source:
    """Return a source with values and the ids of whom they are about; nothing is read."""
    if person is None:
        raise InputError("a ledger needs to know who a row is about; name the column of ids: person=…")
    named, reads = statistic.named, statistic.reads
    found = Source.of(source, value=named, reads=reads, epsilon=1.0, person=person, rows="average", by=by, form=form)
    if found.ids is not None:
        sizes = [len(some) if hasattr(some, "__len__") else None for some in (source, found.ids)]
        if None in sizes or sizes[0] != sizes[1]:
            raise InputError(
                f"values and ids must be sequences with one entry a row (of lengths {sizes[0]}, {sizes[1]})"
            )
    return found


def tallies_of(people: Source, parts: Sequence[tuple[Mapping[str, int], Plan]]) -> list[Tally]:
    """Return the tally of each of some releases that ask the same of different people; the source is read once.

    A part has {person: index of their level in its plan} and the plan.

    Claim. Each adds what one person hands over for each of its people, whatever rows the source has: nobody's values,
    and nobody's presence in the source, changes who is counted, in which release, or raises.

    Argument. `parts` come from the charges and say who is counted where; `charge_of` and `_covered` of `charge` have
    seen that the statistic is the same in all. What a person hands over depends on their own rows alone
    (`_handed_over`), and a release adds it for its people and for nobody else. Counts come from the plan, and nobody is
    left out: missing="drop" does not come here. Who has ε = 0 is in no part: their values are not looked at.
    """
    row_of = {person: i for i, person in enumerate(dict.fromkeys(person for levels, _ in parts for person in levels))}
    cell, codes = _handed_over(people, row_of, parts[0][1].statistic)
    tallies, one = [], np.ones(_CHUNK, np.int64)
    for levels, plan in parts:
        found = np.zeros((len(plan.levels), plan.statistic.width), np.int64)
        rows = np.fromiter((row_of[person] for person in levels), np.int64, len(levels))
        places = np.fromiter(levels.values(), np.int64, len(levels))
        for i in range(0, rows.size, _CHUNK):
            mine, place = rows[i : i + _CHUNK], places[i : i + _CHUNK]
            plan.statistic.add_to(found, place, cell[mine], one[: mine.size], codes[mine])
        table = Table(plan.levels.epsilon, plan.levels.count, found, plan.levels.rounded, plan.levels.wide)
        tallies.append(Tally(table, plan.statistic, plan.levels.names))
    return tallies


def _handed_over(people: Source, row_of: Mapping[str, int], statistic: Statistic) -> tuple[Ints, Ints]:
    """Return the cell and the codes of each person, in the order of `row_of`.

    A person's code is the average of the codes of those of their rows that have a value, rounded in integers as
    everywhere, or of a sum that of their total, added up as doubles from the least to the greatest; either is in
    {0 … Q} (a total that is no number, as ∞ − ∞, is missing). Without one they are missing, as are people without a
    row, and `settled` says what that means. Where people are sorted by what they say one row counts, with its cell and
    its numbers: the least, first by its cell, then by its numbers; what is missing is the greatest.

    All this depends on a person's own rows and not on their order, which no engine promises: the order in which DuckDB
    hands over groups, for one, depends on everybody's cells. Counting a person's first row let one person's cell decide
    which row of a thousand others counts.
    """
    absent = [np.full(1, kind.size - 1 if isinstance(kind, Categories) else np.nan) for kind in statistic.reads]
    cell = np.full(len(row_of), coded(statistic, absent)[0][0])
    sums, known = (np.zeros((len(statistic.coded), len(row_of)), np.int64) for _ in range(2))
    rows = _rows_about(people, row_of)
    if isinstance(statistic.sorting, (Categories, Edges)):
        rows = _least(rows, statistic)
    elif statistic.name == "sum":
        rows = _totals(rows)
    for at, columns in rows:
        places, codes = coded(statistic, columns)
        cell[at] = places  # of a mean and the like it is 0, of others there is one row a person
        for total, there, code in zip(sums, known, codes, strict=True):
            valued = ~np.isnan(code)
            np.add.at(total, at[valued], code[valued].astype(np.int64))
            np.add.at(there, at[valued], 1)
    codes = [
        np.where(there > 0, Interval.average(total, np.maximum(there, 1)), np.nan)
        for total, there in zip(sums, known, strict=True)
    ]
    _, cell, added = settled(statistic, cell, codes)
    return cell, np.stack(added, axis=1).astype(np.int64) if added else np.zeros((len(row_of), 0), np.int64)


Rows = Iterable[tuple[Ints, list[NDArray[Any]]]]
"""Whose each row is, as a place among the people asked for, and the private columns."""


def _rows_about(people: Source, row_of: Mapping[str, int]) -> Rows:
    """Yield the rows of the people asked for, batch by batch; rows that came as one because they are alike as many.

    A row of somebody who is not asked for is nobody's, and so is one whose id no person can have: such a text is none
    of the clean ids here.
    """
    for batch in people.batches():
        ids = batch.texts[str(people.asked.person)].to_list()
        at = np.array([row_of.get(normal(cell), -1) if isinstance(cell, str) else -1 for cell in ids], dtype=np.int64)
        mine = np.flatnonzero(at >= 0)
        if batch.people is not None:
            mine = np.repeat(mine, batch.people[mine])
        yield at[mine], [np.asarray(column)[mine] for column in batch.columns]


def _gathered(rows: Rows) -> Rows:
    """Yield all rows at once, if there are any batches."""
    if parts := list(rows):
        columns = zip(*(columns for _, columns in parts), strict=True)
        yield np.concatenate([at for at, _ in parts]), [np.concatenate(column) for column in columns]


def _least(rows: Rows, statistic: Statistic) -> Rows:
    """Yield one row of each person, the least by its cell and then by its codes."""
    for at, columns in _gathered(rows):
        places, codes = coded(statistic, columns)
        order = np.lexsort((*codes, places, at))  # NaN comes last
        first = order[np.unique(at[order], return_index=True)[1]]
        yield at[first], [column[first] for column in columns]


def _totals(rows: Rows) -> Rows:
    """Yield the total of each person's values: clipped one by one they would not add up."""
    for at, (column, *_) in _gathered(rows):
        with np.errstate(all="ignore"):  # no value may warn
            values = column.astype(np.float64)
            order = np.lexsort((values, at))
            valued = order[~np.isnan(values[order])]
            who, where = np.unique(at[valued], return_inverse=True)
            total = np.zeros(who.size)
            np.add.at(total, where, values[valued])
        yield who, [total]
