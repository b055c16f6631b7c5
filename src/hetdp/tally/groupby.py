"""The one group-by: how many people, and which exact sums of codes, at every level of ε.

`tabulate` reads two arrays and gives a `Table`; `Grouping` reads batch by batch. This module is the reference. For many
people `tally.kernels` does the same compiled, if numba is installed, and gives the same integers.

Claim: every sum is exact, whatever the values; no data makes one overflow; the order of people does not matter.

Argument: a code is a whole number in {0 … Q} and depends on its person's value alone (`Interval.codes`). Inside a chunk
codes are added as doubles, at most 2¹⁸·Q = 2³⁸ < 2⁵³ a level. Chunks, threads and tables are added as 64-bit integers.
A sum stays below 2⁶³ in every column while there are at most `MOST_PEOPLE` people, and `merge`, through which every
table passes, refuses more by their number, which is public. A person's ε alone decides where they are added.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hetdp.core import levels as core
from hetdp.core.domain import GRID, Floats, Interval, Ints
from hetdp.core.levels import BITS, refuse_bad_epsilon
from hetdp.statistics import Statistic
from hetdp.statistics.mean import Mean

from . import Table, coded, merge, settled

if TYPE_CHECKING:
    from .kernels import HashTable

# Expected people for whom the kernels are loaded. That takes most of a second (several when they are compiled, once an
# installation), which they earn back in one grouping of some 10⁸ people, or ten of 10⁷.
LOADED_FROM = 10**7
COMPILED_FROM = 2**17  # people for whom the kernels are used once they are loaded
CHUNK = 2**18  # people whom numpy takes at a time: what it writes stays in the cache, and sums of doubles stay exact
PIECE = 2**19  # people whom a thread of the kernels takes at a time; no thread is started for fewer


def tabulate(epsilon: Floats, values: NDArray[Any] | None = None, interval: Interval | None = None) -> Table:
    """Return the table of a mean, of people whose ε and values are in two arrays of one length; see `Grouping`."""
    grouping = Grouping(None if interval is None else Mean(interval), expected=epsilon.size)
    grouping.add(epsilon, () if values is None else (values,))
    return grouping.table()


class Grouping:
    """Groups people batch by batch: `add` as often as needed, then `table`.

    >>> grouping = Grouping(Mean((0, 4)))
    >>> grouping.add(np.array([0.5, 2.0]), [np.array([1.0, 4.0])])
    >>> grouping.add(np.array([0.5]), [np.array([np.nan])])
    >>> table = grouping.table()
    >>> table.epsilon.tolist(), table.count.tolist(), (table.total / 2**20).tolist()
    ([0.5, 2.0], [2, 1], [[0.75], [1.0]])

    Parameters
    ----------
    statistic
        What is to be computed; None when people are only counted.
    expected
        About how many people will come. From `LOADED_FROM` on compiled kernels are loaded, if they can be.
    """

    def __init__(self, statistic: Statistic | None = None, *, expected: int = 0) -> None:
        self._statistic, self._expected, self._added = statistic, expected, 0
        self._known = Table.nobody(statistic)
        self._hashed: list[HashTable] = []  # what the kernels have added, one for each thread
        # The kernels know people, and the sum of one code; what is counted alone is counted with codes of 0.
        self._interval = statistic.sums[0] if statistic is not None and statistic.sums else None
        self._compiles = statistic is None or (statistic.width == 1 and bool(statistic.sums))
        # They know the midpoint for what is missing, and nothing else.
        counts = statistic.missing if statistic is not None else None
        self._counts_as = counts if isinstance(counts, float) else 0.0
        self._plain = counts in (None, "midpoint", "none")
        # Of a mean of those who answered they make that of everybody, and those without a value are counted apart.
        self._gone: Grouping | None = None
        if isinstance(statistic, Mean) and statistic.keeps_missing:
            self._compiles = self._plain = True
            self._gone = Grouping(None, expected=expected)

    def add(self, epsilon: Floats, columns: Sequence[NDArray[Any]] = (), people: Ints | None = None) -> None:
        """Add people: their ε and the columns that the statistic reads, arrays of one length.

        An entry can stand for several `people`. A bad ε raises and says at which index. The grouping is then of no more
        use.
        """
        self._added += epsilon.size
        if self._compiles and people is None and (kernels := _kernels(max(self._added, self._expected))) is not None:
            values = columns[0] if self._interval is not None else None
            if values is not None and not self._plain:
                epsilon, values = self._settled_values(epsilon, values)
            if not self._add_compiled(kernels, epsilon, values):
                refuse_bad_epsilon(epsilon)
            if self._gone is not None and values is not None:
                with np.errstate(all="ignore"):  # no value may warn
                    self._gone.add(epsilon[np.isnan(values.astype(np.float64, copy=False))])
            return
        for part in _parts(epsilon.size, CHUNK):
            some, many = epsilon[part], None if people is None else people[part]
            cell, codes = np.zeros(some.size, np.int64), list[Floats]()
            refuse_bad_epsilon(some, part.start)
            if self._statistic is not None:
                keep, cell, codes = settled(self._statistic, *coded(self._statistic, [x[part] for x in columns]))
                if keep is not None:
                    some, many = some[keep], None if many is None else many[keep]
            self.add_codes(some, cell, codes, many)

    def _settled_values(self, epsilon: Floats, values: NDArray[Any]) -> tuple[Floats, NDArray[Any]]:
        """Return people with what a missing value counts as, or without those who have none, for the kernels."""
        with np.errstate(all="ignore"):
            values = values.astype(np.float64)
        absent = np.isnan(values)
        if self._statistic is not None and self._statistic.missing == "drop":
            refuse_bad_epsilon(epsilon)  # of those who leave as well
            return epsilon[~absent], values[~absent]
        return epsilon, np.where(absent, self._counts_as, values)

    def add_codes(self, epsilon: Floats, cell: Ints, codes: Sequence[NDArray[Any]], people: Ints | None = None) -> None:
        """Add people, at most `CHUNK` entries, by their cells and codes as `settled` gives them."""
        known = self._known
        level = known.like(epsilon) + 0.0  # −0.0 is 0
        place = _find(known.epsilon, level)
        new = np.append(known.epsilon, np.nan)[place] != level
        if new.any():
            fresh = np.unique(level[new])
            nobody = np.zeros((fresh.size, 1 + known.total.shape[1]), np.int64)
            self._known = merge([known, Table(fresh, nobody[:, 0], nobody[:, 1:], known.rounded, known.wide)])
            self.add_codes(epsilon, cell, codes, people)  # all are known now, or so many that all are rounded
            return
        if self._statistic is None:
            known.count[:] += _count(place, people, known.count.size)
            return
        cells = self._statistic.cells
        at = place * cells + cell if cells > 1 else place
        each = _count(at, people, known.count.size * cells)
        known.count[:] += each.reshape(-1, cells).sum(axis=1)
        used = np.flatnonzero(each)
        sums = [_sum(at, column, people, each.size)[used] for column in codes]
        columns = np.stack(sums, axis=1) if sums else each[:0]
        self._statistic.add_to(known.total, used // cells, used % cells, each[used], columns)

    def _add_compiled(self, kernels: ModuleType, epsilon: Floats, values: NDArray[Any] | None) -> bool:
        """Have threads add people, piece by piece; say whether every ε was good."""
        threads = min(os.cpu_count() or 1, max(1, epsilon.size // PIECE))
        self._hashed += [kernels.HashTable(core.LIMIT) for _ in range(threads - len(self._hashed))]
        idle = self._hashed.copy()  # popping and appending are atomic: no two threads have the same one

        def work(part: slice) -> bool:
            table = idle.pop()
            good = table.add(epsilon[part], None if values is None else values[part], self._interval)
            idle.append(table)
            return good

        parts = _parts(epsilon.size, PIECE)
        if threads == 1:
            return all(map(work, parts))
        with ThreadPoolExecutor(threads) as pool:
            return all(pool.map(work, parts))

    def table(self) -> Table:
        """Return the table of everybody added so far."""
        hashed = [table.table() for table in self._hashed]
        if hashed and self._gone is not None:
            hashed = [self._answered(merge(hashed), self._gone.table())]
        return merge([self._known, *hashed])

    def _answered(self, everybody: Table, gone: Table) -> Table:
        """Return the cells of a mean of those who answered from that of everybody, in which the others are midpoints.

        Both tables are exact, so taking Q/2 for each of the others away leaves the exact sum of those who answered.
        """
        statistic, count = self._statistic or Mean((0, 1)), np.zeros_like(everybody.count)
        np.add.at(count, _find(everybody.epsilon, everybody.like(gone.epsilon)), gone.count)
        total, level = np.zeros((count.size, statistic.width), np.int64), np.arange(count.size)
        left, cell = everybody.total - (GRID // 2 * count)[:, None], np.zeros(count.size, np.int64)
        statistic.add_to(total, level, cell, everybody.count - count, left)
        statistic.add_to(total, level, cell + 1, count, np.zeros_like(left))
        return Table(everybody.epsilon, everybody.count, total, everybody.rounded, everybody.wide)


def _kernels(people: int) -> ModuleType | None:
    """Return the compiled kernels if they are worth it for so many people; numba may not be installed."""
    if people < (COMPILED_FROM if f"{__package__}.kernels" in sys.modules else LOADED_FROM):
        return None
    try:
        from . import kernels
    except ImportError:
        return None
    return kernels


def _parts(size: int, step: int) -> Iterator[slice]:
    return (slice(start, start + step) for start in range(0, size, step))


def _count(place: Ints, people: Ints | None, size: int) -> Ints:
    """Return how many people are at each place; `people` of a batch are far fewer than 2⁵³."""
    return np.bincount(place, people, size).astype(np.int64)


def _sum(place: Ints, code: NDArray[Any], people: Ints | None, size: int) -> Ints:
    """Return the sums of codes at each place; where an entry stands for several people, in integers from the start."""
    if people is None:
        return np.bincount(place, code, size).astype(np.int64)
    found = np.zeros(size, np.int64)
    np.add.at(found, place, code.astype(np.int64) * people)
    return found


def _find(levels: Floats, epsilon: Floats) -> NDArray[np.intp]:
    """Return the place of each ε among ascending levels; of one that is not there some place, or the one past the end.

    Where leading bits tell the levels apart, a place is looked up by them, which takes a twentieth of a binary search.
    """
    key = levels.view(np.int64) >> 53 - BITS
    if not key.size or not (key[1:] > key[:-1]).all():
        return np.searchsorted(levels, epsilon)
    places = np.zeros(int(key[-1]) + 1, np.intp)  # up to 2²² of them, but memory that is not written to costs nothing
    places[key] = np.arange(key.size)
    return places.take(epsilon.view(np.int64) >> 53 - BITS, mode="clip")
