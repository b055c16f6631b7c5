"""The one group-by: how many people, and which exact sum of codes, at every level of ε.

`tabulate` reads numpy arrays, one thread a core, and gives a `Table`; `Grouping` reads them batch by batch. Up to
`LIMIT` distinct levels are kept exactly; above that every ε is rounded *down* to 12 significant bits, which
can only protect people more and costs at most 0.1 % in mean squared error. A table that was
rounded stays rounded, and whether it is depends on the set of levels alone: merging is exact and order-free.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from queue import Empty, SimpleQueue
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from hetdp.core.cells import epsilon_of
from hetdp.core.domain import GRID, Interval
from hetdp.errors import InputError

LIMIT = 65_536
"""Distinct levels that are kept exactly."""

MOST_PEOPLE = (2**63 - 1) // GRID
"""With more people a sum of codes could pass 63 bits."""

LOADED_FROM = 10**7
"""Expected people for whom the kernels of `tally.fast` are loaded, if numba is installed.

That takes most of a second (several when they are compiled, once an installation), which they earn back in one
grouping of some 10⁸ people, or ten of 10⁷.
"""

COMPILED_FROM = 2**17
"""People for whom the kernels are used once they are loaded."""

CHUNK = 2**18
"""People whom a lane takes at a time; a thread is not started for fewer."""

PIECES = 8
"""Pieces for each thread, of at least a chunk: with more the threads end at the same time, and each costs a little."""

FEW = 12
"""Levels that numpy finds by comparing."""

BITS = 12
"""The significant bits that rounding keeps of the 53 that a double has."""

TINY = 2.0**-1000
"""Rounding turns an ε below this into 0: every engine can do so, while subnormal doubles differ between them."""

SPLIT = 2.0 ** (53 - BITS) + 1
"""Veltkamp's factor: with g = SPLIT·ε, g − (g − ε) is ε rounded to the nearest double of 12 significant bits."""

BELOW = 1 - 2.0**-BITS
"""If that is above ε, it times BELOW, split again, is the next double of 12 bits below it, which is `round_down`."""

HUGE = 2.0**900
"""From here on SPLIT·ε could overflow: an engine multiplies ε by SHRINK first and divides by it at the end."""

SHRINK = 2.0**-64
"""What a HUGE ε is multiplied by before it is split; a power of two, so nothing is lost."""

SPREAD = np.uint64(0x9E3779B97F4A7C15)
"""2⁶⁴ ÷ the golden ratio: a product with it scatters neighbours, and its leading bits tell them apart."""

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

NOTHING: Floats = np.empty(0)


@dataclass(frozen=True, eq=False, repr=False)
class Table:
    """Per level, ascending: ε, the number of people, the exact sum of their codes (0 where ε = 0)."""

    epsilon: Floats
    count: Ints
    total: Ints
    rounded: bool = False

    @property
    def n(self) -> int:
        """The number of people."""
        if self.count.size * int(self.count.max(initial=0)) < 2**63:  # no sum can overflow
            return int(self.count.sum())
        return sum(self.count.tolist())


def round_down(epsilon: Floats) -> Floats:
    """Return ε cut to 12 significant bits: never up, less than one part in 2¹¹ down; below `TINY` to 0; inf stays.

    The bit pattern of a positive double is its exponent followed by its fraction, so clearing low bits
    rounds towards zero exactly, at powers of two as everywhere. An engine that cannot see the bits splits (`SPLIT`).
    """
    return np.where(epsilon < TINY, 0.0, (epsilon.view(np.int64) >> 53 - BITS << 53 - BITS).view(np.float64))


def merge(tables: Iterable[Table]) -> Table:
    """Return the table of all the people of several tables; exact and independent of the order."""
    parts = list(tables)
    columns = zip(*((part.epsilon, part.count, part.total) for part in parts), strict=True)
    epsilon, count, total = map(np.concatenate, columns)
    if sum(part.n for part in parts) > MOST_PEOPLE:
        raise InputError(f"at most {MOST_PEOPLE:,} people fit in one tally; release in parts")
    rounded = any(part.rounded for part in parts)
    table = collapse(round_down(epsilon) if rounded else epsilon, count, total, rounded=rounded)
    if not rounded and table.epsilon.size > LIMIT:
        table = collapse(round_down(table.epsilon), table.count, table.total, rounded=True)
    return table


def tabulate(
    epsilon: Floats,
    values: NDArray[Any] | None = None,
    interval: Interval | None = None,
    *,
    place: str = "at index",
    start: int = 0,
) -> Table:
    """Return the table of people whose ε and values stand in two arrays of one length; see `Grouping`."""
    if values is None and epsilon.size <= LIMIT and (epsilon >= 0).all():  # sorting is all it takes
        levels, counts = np.unique(epsilon + 0.0, return_counts=True)
        return Table(levels, counts.astype(np.int64), np.zeros(levels.size, np.int64))
    grouping = Grouping(interval, expected=epsilon.size)
    grouping.add(epsilon, values, place=place, start=start)
    return grouping.table()


class Grouping:
    """Groups people batch by batch: `add` as often as needed, then `table`.

    A lane for each thread keeps what it has learnt about the levels, so a batch costs little more than its people.

    >>> grouping = Grouping(Interval(0, 1))
    >>> grouping.add(np.array([0.5, 2.0]), np.array([0.25, 1.0]))
    >>> grouping.add(np.array([0.5]), np.array([np.nan]))
    >>> table = grouping.table()
    >>> table.epsilon.tolist(), table.count.tolist(), [total / GRID for total in table.total.tolist()]
    ([0.5, 2.0], [2, 1], [0.75, 1.0])

    Parameters
    ----------
    interval
        The interval of the values; None when people are only counted.
    expected
        About how many people will come. From `LOADED_FROM` on compiled kernels are loaded, if they can be.
    """

    def __init__(self, interval: Interval | None = None, *, expected: int = 0) -> None:
        self._interval, self._expected, self._added = interval, expected, 0
        self._lanes: dict[Any, Lane] = {}
        self._looked, self._many = False, NOTHING

    def add(
        self, epsilon: Floats, values: NDArray[Any] | None = None, *, place: str = "at index", start: int = 0
    ) -> None:
        """Add people who stand in two arrays of one length. Without values they are counted and add 0 to the sums.

        A bad ε raises and says where it stands, `place` and its index counted from `start`. The grouping is then
        of no more use.
        """
        self._added += epsilon.size
        threads = min(os.cpu_count() or 1, max(1, epsilon.size // CHUNK))
        kind = _lane_type(max(self._added, self._expected))
        if not self._looked and epsilon.size > LIMIT:
            self._looked, self._many = True, _many(epsilon, kind)
        for i in range(threads):
            if (kind, i) not in self._lanes:
                self._lanes[kind, i] = kind(self._interval, many=self._many)
        try:
            self._share(epsilon, values, [self._lanes[kind, i] for i in range(threads)])
        except BadEpsilonError:
            first = int(np.argmin(epsilon >= 0))
            epsilon_of(float(epsilon[first]), f" {place} {first + start}")
            raise

    def _share(self, epsilon: Floats, values: NDArray[Any] | None, lanes: list[Lane]) -> None:
        """Have lanes add people, each in a thread, piece by piece: one that is held up takes fewer pieces."""
        if len(lanes) == 1:
            lanes[0].add(epsilon, values)
            return
        size = max(CHUNK, -(-epsilon.size // (PIECES * len(lanes))))
        pieces: SimpleQueue[slice] = SimpleQueue()
        for begin in range(0, epsilon.size, size):
            pieces.put(slice(begin, begin + size))

        def work(lane: Lane) -> None:
            with suppress(Empty):
                while True:
                    part = pieces.get_nowait()
                    lane.add(epsilon[part], None if values is None else values[part])

        busy = [_threads().submit(work, lane) for lane in lanes[1:]]
        try:
            work(lanes[0])  # this thread is one of them
        finally:
            with suppress(Empty):  # after an error or an interrupt the others need not go on
                while True:
                    pieces.get_nowait()
            wait(busy)
        for done in busy:
            done.result()

    def table(self) -> Table:
        """Return the table of everybody added so far."""
        lanes: list[Lane] = []
        for lane in self._lanes.values():
            if not any(other.absorb(lane) for other in lanes):
                lanes.append(lane)
        return merge([lane.table() for lane in lanes] or [nobody()])


@lru_cache(maxsize=1)
def _threads() -> ThreadPoolExecutor:
    """Return the threads that help, kept for the next time: starting one takes as long as a million people."""
    return ThreadPoolExecutor(thread_name_prefix="hetdp")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_threads.cache_clear)  # a child of this process has none of its threads


def _many(epsilon: Floats, kind: type[Lane]) -> Floats:
    """Return the least and the most ε of the first people if these have more levels than are kept exactly.

    Then no lane need learn levels, and all begin with the same bins. Otherwise nothing is returned.
    """
    first = epsilon[: LIMIT * 3 // 2]
    if _different(first[:4096], kind) <= min(LIMIT, 3000) or _different(first, kind) <= LIMIT:
        return NOTHING
    return np.array([first.min(), first.max()])


def _different(epsilon: Floats, kind: type[Lane]) -> int:
    """Return how many slots of a table the levels fall into: there are at least as many levels."""
    bits = (4 * epsilon.size - 1).bit_length()  # of as many random levels nine in ten get a slot
    slots = np.zeros(2**bits, bool)
    with np.errstate(invalid="ignore"):  # a NaN is refused later
        levels = (epsilon + 0.0).view(np.uint64)  # −0.0 is 0
    kind.mark(levels, np.uint64(64 - bits), slots)
    return int(np.count_nonzero(slots))


class Lane(Protocol):
    """Groups the people that one thread gets: by numpy in `tally.lanes`, the reference, or compiled in `tally.fast`.

    A lane that is told of `many` levels, the least and the most of more than are kept exactly, rounds from the start.
    """

    def __init__(self, interval: Interval | None, *, many: Floats = ...) -> None:
        """Begin with nobody."""

    def add(self, epsilon: Floats, values: NDArray[Any] | None) -> None:
        """Add people, or raise `BadEpsilonError`."""

    def absorb(self, other: Any) -> bool:
        """Take over all people of another lane if both round their levels; say whether that was so."""

    def table(self) -> Table:
        """Return the table of everybody added so far."""

    @staticmethod
    def mark(bits: NDArray[np.uint64], shift: np.uint64, slots: NDArray[np.bool_]) -> None:
        """Set the slots of levels: the leading bits of a product with `SPREAD`."""


def _lane_type(people: int) -> type[Lane]:
    """Return the kind of lane that is worth it for so many people; numba may not be installed."""
    from . import lanes

    loaded = "hetdp.tally.fast" in sys.modules
    if people < (COMPILED_FROM if loaded else LOADED_FROM):
        return lanes.Lane
    try:
        from . import fast
    except ImportError:
        return lanes.Lane
    return fast.Lane


def nobody() -> Table:
    """Return an empty table."""
    return Table(np.empty(0), np.empty(0, np.int64), np.empty(0, np.int64))


def collapse(epsilon: Floats, count: Ints, total: Ints, *, rounded: bool) -> Table:
    """Return one row a level, ascending; no value of a person with ε = 0 enters: their sum is 0."""
    if not (epsilon[1:] > epsilon[:-1]).all():
        order = np.argsort(epsilon, kind="stable")
        epsilon, count, total = epsilon[order], count[order], total[order]
        first = np.flatnonzero(np.concatenate([[True], epsilon[1:] != epsilon[:-1]]))
        epsilon, count, total = epsilon[first], np.add.reduceat(count, first), np.add.reduceat(total, first)
    return Table(epsilon, count, np.where(epsilon > 0, total, 0), rounded)


class BadEpsilonError(Exception):
    """Some people have a bad ε; `Grouping.add` finds out where."""
