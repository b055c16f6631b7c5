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
from hetdp.core.cells import Categories
from hetdp.core.domain import GRID, Interval
from hetdp.core.levels import BITS, Floats, Ints, refuse_bad_epsilon
from hetdp.statistics import Statistic
from hetdp.statistics.mean import Mean

from .tally import Table, merge

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


def coded(statistic: Statistic, columns: Sequence[NDArray[Any]]) -> tuple[Ints, list[Floats]]:
    """Return the cell of everybody and the codes that are added up, from the columns as a source reads them.

    This is the reference: what a person hands over is `statistic.totals` of their cell and codes, and every engine
    computes the same integers.
    """
    sorting, last = statistic.sorting, columns[-1]
    if isinstance(sorting, Categories):
        cell = last.astype(np.int64)  # a source gives the place of a category
    elif sorting is None:
        cell = np.zeros(last.size, np.int64)
    else:
        with np.errstate(all="ignore"):  # no value may warn: a longdouble can overflow on its way to a double
            cell = sorting.of_numbers(last.astype(np.float64))
    codes = [interval.codes(x, np.empty(x.size)) for interval, x in zip(statistic.sums, columns, strict=False)]
    return cell, [*codes, *([squared(codes[0])] if statistic.square else [])]


def squared(code: Any) -> Any:
    """Return ⌊(2q − Q)²/Q⌋; in doubles too it is exact, because the square is below 2⁴¹ and Q a power of two."""
    return np.floor((2 * code - GRID) ** 2 / GRID)


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

    def add(self, epsilon: Floats, columns: Sequence[NDArray[Any]] = (), people: Ints | None = None) -> None:
        """Add people: their ε and the columns that the statistic reads, arrays of one length.

        Of a statistic that adds up no codes an entry can stand for several `people`. A bad ε raises and says at which
        index. The grouping is then of no more use.
        """
        self._added += epsilon.size
        kernels = _kernels(max(self._added, self._expected)) if self._compiles and people is None else None
        if kernels is not None:
            if not self._add_compiled(kernels, epsilon, columns[0] if self._interval is not None else None):
                refuse_bad_epsilon(epsilon)
            return
        for part in _parts(epsilon.size, CHUNK):
            some = epsilon[part]
            cell, codes = np.zeros(some.size, np.int64), list[Floats]()
            if self._statistic is not None:
                cell, codes = coded(self._statistic, [column[part] for column in columns])
            self.add_codes(some, cell, codes, part.start, None if people is None else people[part])

    def add_codes(
        self, epsilon: Floats, cell: Ints, codes: Sequence[NDArray[Any]], start: int = 0, people: Ints | None = None
    ) -> None:
        """Add people, at most `CHUNK` entries, by their cells and codes as `coded` gives them."""
        refuse_bad_epsilon(epsilon, start)
        known = self._known
        level = known.like(epsilon) + 0.0  # −0.0 is 0
        place = _find(known.epsilon, level)
        new = np.append(known.epsilon, np.nan)[place] != level
        if new.any():
            fresh = np.unique(level[new])
            nobody = np.zeros((fresh.size, 1 + known.total.shape[1]), np.int64)
            self._known = merge([known, Table(fresh, nobody[:, 0], nobody[:, 1:], known.rounded, known.wide)])
            self.add_codes(epsilon, cell, codes, start, people)  # all are known now, or so many that all are rounded
            return
        if self._statistic is None:
            known.count[:] += _count(place, people, known.count.size)
            return
        cells = self._statistic.cells
        at = place * cells + cell if cells > 1 else place
        each = _count(at, people, known.count.size * cells)
        known.count[:] += each.reshape(-1, cells).sum(axis=1)
        used = np.flatnonzero(each)
        sums = [np.bincount(at, column, each.size)[used].astype(np.int64) for column in codes]
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
        return merge([self._known, *(hashed.table() for hashed in self._hashed)])


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
