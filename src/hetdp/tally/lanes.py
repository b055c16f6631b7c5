"""Lanes by numpy: the reference for the group-by, in chunks that stay in the cache.

Every step works without Python's lock as far as numpy lets it, so that two lanes help.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hetdp.core.domain import Interval

from . import groupby
from .groupby import BITS, NOTHING, SPREAD, TINY, BadEpsilonError, Floats, Ints, Table, merge, nobody

_PERSON = 2**40  # above every sum of codes in a chunk, CHUNK·Q = 2³⁸; CHUNK·2⁴⁰ is far below 2⁶³
_SHIFT = 53 - BITS
_INFINITY = int(np.array(np.inf).view(np.int64)) >> _SHIFT
_TINY = int(np.array(TINY).view(np.int64)) >> _SHIFT


class Lane:
    """Groups what one thread gets, chunk by chunk.

    Sums inside a chunk are sums of doubles and exact in any order: CHUNK·Q = 2³⁸ is far below 2⁵³.
    """

    def __init__(self, interval: Interval | None, *, many: Floats = NOTHING) -> None:
        self.interval = interval
        self.done: list[Table] = []
        self.grouping: _Exact | _Rounded = _Rounded() if many.size else _Exact()

    def add(self, epsilon: Floats, values: NDArray[Any] | None) -> None:
        """Add people, chunk by chunk."""
        whole = _Room(min(groupby.CHUNK, epsilon.size))
        for start in range(0, epsilon.size, groupby.CHUNK):
            chunk = epsilon[start : start + groupby.CHUNK]
            room = whole.first(chunk.size)
            if values is not None and self.interval is not None:
                self.interval.codes(values[start : start + groupby.CHUNK], room.codes, room.mask)
            self.grouping.add(chunk, room)
            if isinstance(self.grouping, _Exact) and self.grouping.overflows:
                self.done.append(self.grouping.table())
                self.grouping = _Rounded()

    def table(self) -> Table:
        """Return the table of everybody added so far."""
        return merge([*self.done, self.grouping.table()])

    @staticmethod
    def mark(bits: NDArray[np.uint64], shift: np.uint64, slots: NDArray[np.bool_]) -> None:
        """Set the slots of levels."""
        slots[bits * SPREAD >> shift] = True

    def absorb(self, other: Any) -> bool:
        """Take over all people of another lane if both round their levels."""
        if not (isinstance(self.grouping, _Rounded) and isinstance(getattr(other, "grouping", None), _Rounded)):
            return False
        self.done += other.done
        self.grouping.absorb(other.grouping)
        other.done, other.grouping = [], _Rounded()
        return True


class _Room:
    """Working arrays of one thread, made once: codes, doubles and flags for one chunk."""

    def __init__(self, size: int) -> None:
        self.codes, self.spare, self.mask = np.zeros(size), np.empty(size), np.empty(size, dtype=bool)

    def first(self, size: int) -> _Room:
        room = _Room(0)
        room.codes, room.spare, room.mask = self.codes[:size], self.spare[:size], self.mask[:size]
        return room


def _checked(epsilon: Floats) -> Floats:
    if not (epsilon >= 0).all():  # also finds NaN
        raise BadEpsilonError
    return epsilon


class _Exact:
    """Keeps every level; learns levels as they come."""

    def __init__(self) -> None:
        self.known = nobody()
        self.finder = _Finder(self.known.epsilon)

    def add(self, epsilon: Floats, room: _Room) -> None:
        grouped = self._group(epsilon, room)
        for some in (epsilon[: 16 * groupby.FEW], epsilon):  # the first people often have all the levels there are
            if grouped is None:
                self._learn(some)
                grouped = self._group(epsilon, room)
        if grouped is None:  # no bits tell the levels apart
            self.known = merge([self.known, _by_sorting(epsilon, room.codes)])
            return
        self.known.count[:] += grouped[0]
        self.known.total[:] += grouped[1]

    @property
    def overflows(self) -> bool:
        return self.known.rounded or self.known.epsilon.size > groupby.LIMIT

    def table(self) -> Table:
        return self.known

    def _learn(self, epsilon: Floats) -> None:
        new = np.setdiff1d(_checked(epsilon), self.known.epsilon) + 0.0  # −0.0 is 0
        zeros = np.zeros(new.size, np.int64)
        self.known = groupby.collapse(
            np.concatenate([self.known.epsilon, new]),
            np.concatenate([self.known.count, zeros]),
            np.concatenate([self.known.total, zeros]),
            rounded=False,
        )
        self.finder = _Finder(self.known.epsilon)

    def _group(self, epsilon: Floats, room: _Room) -> tuple[Ints, Ints] | None:
        """Return counts and sums at the known levels, or None when somebody has another or none can be looked up."""
        levels = self.known.epsilon
        if levels.size <= groupby.FEW:
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
        if low < _TINY or high >= _INFINITY:  # somebody has 0 or nearly so, inf, or a bad ε (negative or NaN)
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
        zero, infinite = key < _TINY, key >= _INFINITY  # −0.0 has a negative key
        for i, mask in enumerate((zero, infinite)):
            self.ends.count[i] += np.count_nonzero(mask)
            self.ends.total[i] += int(codes[mask].sum())
        inside = ~(zero | infinite)
        return key[inside], codes[inside]

    def absorb(self, other: _Rounded) -> None:
        self.ends.count[:] += other.ends.count
        self.ends.total[:] += other.ends.total
        if other.count.size:
            self._reach(other.base, other.base + other.count.size)
            place = slice(other.base - self.base, other.base - self.base + other.count.size)
            self.count[place] += other.count
            self.total[place] += other.total

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
