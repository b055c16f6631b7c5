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
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hetdp.core import levels as core
from hetdp.core.domain import Interval
from hetdp.core.levels import BITS, Floats, refuse_bad_epsilon, round_down

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
    """Return the table of people whose ε and values are in two arrays of one length; see `Grouping`."""
    grouping = Grouping(interval, expected=epsilon.size)
    grouping.add(epsilon, values)
    return grouping.table()


class Grouping:
    """Groups people batch by batch: `add` as often as needed, then `table`.

    >>> grouping = Grouping(Interval(0, 4))
    >>> grouping.add(np.array([0.5, 2.0]), np.array([1.0, 4.0]))
    >>> grouping.add(np.array([0.5]), np.array([np.nan]))
    >>> table = grouping.table()
    >>> table.epsilon.tolist(), table.count.tolist(), (table.total / 2**20).tolist()
    ([0.5, 2.0], [2, 1], [[0.75], [1.0]])

    Parameters
    ----------
    interval
        The interval of the values; None when people are only counted, or come with codes.
    width
        How many codes a person has. One that is not 1 needs `add_codes`.
    expected
        About how many people will come. From `LOADED_FROM` on compiled kernels are loaded, if they can be.
    """

    def __init__(self, interval: Interval | None = None, *, width: int = 1, expected: int = 0) -> None:
        self._interval, self._expected, self._added = interval, expected, 0
        self._known = Table(np.empty(0), np.empty(0, np.int64), np.empty((0, width), np.int64))
        self._hashed: list[HashTable] = []  # what the kernels have added, one for each thread

    def add(self, epsilon: Floats, values: NDArray[Any] | None = None) -> None:
        """Add people who are in two arrays of one length. Without values they are counted and add 0 to the sums.

        A bad ε raises and says at which index. The grouping is then of no more use.
        """
        self._added += epsilon.size
        kernels = _kernels(max(self._added, self._expected))
        if kernels is not None:
            if not self._add_compiled(kernels, epsilon, None if self._interval is None else values):
                refuse_bad_epsilon(epsilon)
            return
        for part in _parts(epsilon.size, CHUNK):
            codes = np.zeros(epsilon[part].size)
            if values is not None and self._interval is not None:
                self._interval.codes(values[part], codes)
            self._add_chunk(epsilon[part], codes[:, None], part.start)

    def add_codes(self, epsilon: Floats, codes: NDArray[Any]) -> None:
        """Add people by their codes: whole numbers in {0 … Q}, of shape (people, width)."""
        for part in _parts(epsilon.size, CHUNK):
            self._add_chunk(epsilon[part], codes[part], part.start)

    def _add_chunk(self, epsilon: Floats, codes: NDArray[Any], start: int) -> None:
        refuse_bad_epsilon(epsilon, start)
        known = self._known
        level = round_down(epsilon) if known.rounded else epsilon + 0.0  # −0.0 is 0
        place = _find(known.epsilon, level)
        new = np.append(known.epsilon, np.nan)[place] != level
        if new.any():
            fresh = np.unique(level[new])
            nobody = np.zeros((fresh.size, 1 + codes.shape[1]), np.int64)
            self._known = merge([known, Table(fresh, nobody[:, 0], nobody[:, 1:], known.rounded)])
            self._add_chunk(epsilon, codes, start)  # all are known now, or there are so many that all are rounded
            return
        known.count[:] += np.bincount(place, minlength=known.count.size)
        for i, column in enumerate(codes.T):
            known.total[:, i] += np.bincount(place, column, known.count.size).astype(np.int64)

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
