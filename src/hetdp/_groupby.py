"""The one group-by: how many people, and which exact sum of codes, at every level of ε.

`tabulate` reads numpy arrays in chunks that stay in the cache, one thread a core, and gives a `Table`. Up to
`LIMIT` distinct levels are kept exactly; above that every ε is rounded *down* to 12 significant bits, which
can only protect people more and costs at most 0.1 % in mean squared error. A table that was
rounded stays rounded, and whether it is depends on the set of levels alone: merging is exact and order-free.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._cells import epsilon_of
from ._errors import InputError
from ._interval import GRID, Interval

LIMIT = 65_536
"""Distinct levels that are kept exactly."""

MOST_PEOPLE = (2**63 - 1) // GRID
"""With more people a sum of codes could pass 63 bits."""

CHUNK = 2**18
FEW = 12
_PERSON = 2**40  # above every sum of codes in a chunk, CHUNK·Q = 2³⁸; CHUNK·2⁴⁰ is far below 2⁶³
_SHIFT = 41  # a double has 53 significant bits: 12 are kept
_INFINITY = int(np.array(np.inf).view(np.int64)) >> _SHIFT

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


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
        return sum(self.count.tolist())


def round_down(epsilon: Floats) -> Floats:
    """Return ε cut to 12 significant bits: never up, at most one part in 2¹¹ down; 0 and inf stay, subnormals become 0.

    The bit pattern of a positive double is its exponent followed by its fraction, so clearing low bits
    rounds towards zero exactly, at powers of two as everywhere.
    """
    return (epsilon.view(np.int64) >> _SHIFT << _SHIFT).view(np.float64)


def merge(tables: Iterable[Table]) -> Table:
    """Return the table of all the people of several tables; exact and independent of the order."""
    parts = list(tables)
    epsilon = np.concatenate([part.epsilon for part in parts])
    count = np.concatenate([part.count for part in parts])
    total = np.concatenate([part.total for part in parts])
    if sum(part.n for part in parts) > MOST_PEOPLE:
        raise InputError(f"at most {MOST_PEOPLE:,} people fit in one tally; release in parts")
    rounded = any(part.rounded for part in parts)
    table = _collapse(round_down(epsilon) if rounded else epsilon, count, total, rounded=rounded)
    if not rounded and table.epsilon.size > LIMIT:
        table = _collapse(round_down(table.epsilon), table.count, table.total, rounded=True)
    return table


def tabulate(
    epsilon: Floats,
    values: NDArray[Any] | None = None,
    interval: Interval | None = None,
    *,
    place: str = "at index",
    start: int = 0,
) -> Table:
    """Return the table of people whose ε and values stand in two arrays of one length.

    Without values only people are counted and every sum is 0. A bad ε raises and says where it stands:
    `place` and its index counted from `start`.
    """
    if values is None and epsilon.size <= LIMIT and (epsilon >= 0).all():  # sorting is all it takes
        levels, counts = np.unique(epsilon + 0.0, return_counts=True)
        return Table(levels, counts.astype(np.int64), np.zeros(levels.size, np.int64))
    rounds = np.unique(epsilon[: 2 * LIMIT]).size > LIMIT
    threads = min(os.cpu_count() or 1, max(1, epsilon.size // CHUNK))
    edges = [epsilon.size * i // threads for i in range(threads + 1)]

    def span(i: int) -> Table:
        part = slice(edges[i], edges[i + 1])
        mine = None if values is None else values[part]
        return _span(epsilon[part], mine, interval, _Rounded() if rounds else _Exact())

    try:
        if threads == 1:
            return merge([span(0)])
        with ThreadPoolExecutor(threads) as pool:
            return merge(pool.map(span, range(threads)))
    except _BadEpsilonError:
        first = int(np.argmin(epsilon >= 0))
        epsilon_of(float(epsilon[first]), f" {place} {first + start}")
        raise


def _collapse(epsilon: Floats, count: Ints, total: Ints, *, rounded: bool) -> Table:
    if not (epsilon[1:] > epsilon[:-1]).all():
        order = np.argsort(epsilon, kind="stable")
        epsilon, count, total = epsilon[order], count[order], total[order]
        first = np.flatnonzero(np.concatenate([[True], epsilon[1:] != epsilon[:-1]]))
        epsilon, count, total = epsilon[first], np.add.reduceat(count, first), np.add.reduceat(total, first)
    # The values of people with ε = 0 never enter.
    return Table(epsilon, count, np.where(epsilon > 0, total, 0), rounded)


def _checked(epsilon: Floats) -> Floats:
    if not (epsilon >= 0).all():  # also finds NaN
        raise _BadEpsilonError
    return epsilon


class _BadEpsilonError(Exception):
    """A chunk has a bad ε; `tabulate` finds out where."""


class _Room:
    """Working arrays of one thread, made once: codes, doubles and flags for one chunk."""

    def __init__(self, size: int) -> None:
        self.codes, self.spare, self.mask = np.zeros(size), np.empty(size), np.empty(size, dtype=bool)

    def first(self, size: int) -> _Room:
        room = _Room(0)
        room.codes, room.spare, room.mask = self.codes[:size], self.spare[:size], self.mask[:size]
        return room


def _span(
    epsilon: Floats, values: NDArray[Any] | None, interval: Interval | None, grouping: _Exact | _Rounded
) -> Table:
    """Group one span of the arrays, chunk by chunk.

    Sums inside a chunk are sums of doubles and exact in any order: CHUNK·Q = 2³⁸ is far below 2⁵³.
    """
    whole, done = _Room(min(CHUNK, epsilon.size)), []
    for start in range(0, epsilon.size, CHUNK):
        chunk = epsilon[start : start + CHUNK]
        room = whole.first(chunk.size)
        if values is not None and interval is not None:
            interval.codes(values[start : start + CHUNK], room.codes, room.mask)
        grouping.add(chunk, room)
        if isinstance(grouping, _Exact) and (grouping.known.rounded or len(grouping.known.epsilon) > LIMIT):
            done.append(grouping.known)
            grouping = _Rounded()
    return merge([*done, grouping.table()]) if done else grouping.table()


class _Exact:
    """Keeps every level; learns levels as they come."""

    def __init__(self) -> None:
        self.known = Table(np.empty(0), np.empty(0, np.int64), np.empty(0, np.int64))
        self.finder = _Finder(self.known.epsilon)

    def add(self, epsilon: Floats, room: _Room) -> None:
        grouped = self._group(epsilon, room)
        if grouped is None:
            self._learn(epsilon)
            grouped = self._group(epsilon, room)
        if grouped is None:  # no bits tell the levels apart
            self.known = merge([self.known, _by_sorting(epsilon, room.codes)])
            return
        self.known.count[:] += grouped[0]
        self.known.total[:] += grouped[1]

    def table(self) -> Table:
        return self.known

    def _learn(self, epsilon: Floats) -> None:
        new = np.setdiff1d(_checked(epsilon), self.known.epsilon) + 0.0  # −0.0 is 0
        zeros = np.zeros(new.size, np.int64)
        self.known = _collapse(
            np.concatenate([self.known.epsilon, new]),
            np.concatenate([self.known.count, zeros]),
            np.concatenate([self.known.total, zeros]),
            rounded=False,
        )
        self.finder = _Finder(self.known.epsilon)

    def _group(self, epsilon: Floats, room: _Room) -> tuple[Ints, Ints] | None:
        """Return counts and sums at the known levels, or None when somebody has another or none can be looked up."""
        levels = self.known.epsilon
        if levels.size <= FEW:
            counts, sums = _by_mask(levels, epsilon, room)
            return (counts, sums) if counts.sum() == epsilon.size else None
        if not self.finder.place.size:
            return None
        index = self.finder.find(epsilon)
        return _by_index(index, room.codes, levels.size) if np.array_equal(levels.take(index), epsilon) else None


def _by_sorting(epsilon: Floats, codes: Floats) -> Table:
    """Group by bringing equal levels together."""
    order = np.argsort(epsilon)
    epsilon = epsilon[order]
    first = np.flatnonzero(np.concatenate([[True], epsilon[1:] != epsilon[:-1]]))
    count = np.diff(first, append=epsilon.size)
    return Table(epsilon[first] + 0.0, count, np.add.reduceat(codes[order], first).astype(np.int64))  # −0.0 is 0


class _Finder:
    """Finds the index of a level by the leading bits of its double, as many as tell the levels apart, if any do.

    What is not a level finds some index; the caller compares.
    """

    def __init__(self, levels: Floats) -> None:
        self.place = np.empty(0, np.int32)
        bits = levels[(levels > 0) & np.isfinite(levels)].view(np.int64)
        for self.shift in (_SHIFT, _SHIFT - 4, _SHIFT - 8):
            key = bits >> self.shift
            if key.size and key[0] > 0 and (np.diff(key) > 0).all() and key[-1] - key[0] < 2**23:
                self.base = int(key[0]) - 1  # the first and the last place are for 0 and inf
                self.place = np.zeros(int(key[-1]) - self.base + 2, np.int32)
                self.place[key - self.base] = np.searchsorted(levels, bits.view(np.float64))
                self.place[-1] = levels.size - 1
                break

    def find(self, epsilon: Floats) -> NDArray[np.integer[Any]]:
        return np.asarray(self.place.take((epsilon.view(np.int64) >> self.shift) - self.base, mode="clip"))


def _by_mask(levels: Floats, epsilon: Floats, room: _Room) -> tuple[Ints, Ints]:
    """Group by one mask a level: all of it runs without Python's lock, so threads help."""
    counts, sums = np.zeros(levels.size, np.int64), np.zeros(levels.size, np.int64)
    for i, level in enumerate(levels):
        np.equal(epsilon, level, out=room.mask)
        counts[i] = np.count_nonzero(room.mask)
        if i == levels.size - 1:  # what the other levels leave, if everybody has a known level
            sums[i] = int(room.codes.sum()) - sums.sum()
        else:
            sums[i] = int(np.einsum("i,i->", room.mask, room.codes))
    return counts, sums


def _by_index(index: NDArray[np.integer[Any]], codes: Floats, size: int) -> tuple[Ints, Ints]:
    """Return counts and sums at each index: a person and their code in one integer, so one pass does for both."""
    each = codes.astype(np.int64)
    each += _PERSON
    bins = np.zeros(size, np.int64)
    np.add.at(bins, index, each)
    return bins // _PERSON, bins % _PERSON


class _Rounded:
    """Rounds every ε down: the leading bits of the double are the index of its bin."""

    def __init__(self) -> None:
        self.ends = Table(np.array([0.0, np.inf]), np.zeros(2, np.int64), np.zeros(2, np.int64))
        self.base, self.count, self.total = 0, np.empty(0, np.int64), np.empty(0, np.int64)

    def add(self, epsilon: Floats, room: _Room) -> None:
        key, codes = np.right_shift(epsilon.view(np.int64), _SHIFT, out=room.spare.view(np.int64)), room.codes
        low, high = int(key.min()), int(key.max())
        if low <= 0 or high >= _INFINITY:  # somebody has 0, inf, or a bad ε (negative or NaN)
            _checked(epsilon)
            key, codes = self._set_apart(key, codes)
            if not key.size:
                return
            low, high = int(key.min()), int(key.max())
        key -= low
        counts, sums = _by_index(key, codes, high - low + 1)
        self._reach(low, high + 1)
        place = slice(low - self.base, high + 1 - self.base)
        self.count[place] += counts
        self.total[place] += sums

    def _set_apart(self, key: Ints, codes: Floats) -> tuple[Ints, Floats]:
        """Group 0 and inf, which lie far from the other levels, and return the others."""
        zero, infinite = key <= 0, key >= _INFINITY  # −0.0 has a negative key; the smallest subnormals round down to 0
        for i, mask in enumerate((zero, infinite)):
            self.ends.count[i] += np.count_nonzero(mask)
            self.ends.total[i] += int(codes[mask].sum())
        inside = ~(zero | infinite)
        return key[inside], codes[inside]

    def table(self) -> Table:
        filled = np.flatnonzero(self.count)
        bins = Table(
            ((filled + self.base) << _SHIFT).view(np.float64), self.count[filled], self.total[filled], rounded=True
        )
        ends = self.ends.count > 0
        return merge([bins, Table(self.ends.epsilon[ends], self.ends.count[ends], self.ends.total[ends], rounded=True)])

    def _reach(self, low: int, high: int) -> None:
        """Make the bins cover [low, high)."""
        if not self.count.size:
            self.base = low
        end = self.base + self.count.size
        before, after = max(0, self.base - low), max(0, high - end)
        if before or after:
            self.count = np.pad(self.count, (before, after))
            self.total = np.pad(self.total, (before, after))
            self.base -= before
