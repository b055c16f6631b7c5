"""Lanes by compiled kernels: the same integers as `tally.lanes` gives, in one pass over the arrays.

Loaded by `tally.groupby` for large data when numba is installed. A lane goes through stages: few levels, many, rounded.
The kernels, and why they keep everybody's code apart from everybody else's, are in `tally.kernels`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hetdp.core.domain import GRID, Interval

from . import groupby, kernels
from .groupby import NOTHING, SPREAD, BadEpsilonError, Floats, Ints, Table, merge, nobody
from .kernels import BLOCK, EMPTY, END, INFINITY, LEAST, OCTAVE, SHIFT, START

CHUNK = 2**21
"""People between two unpackings."""

COPIED = 2**17
"""People whose arrays are copied at a time, where they are not doubles side by side: the copies stay in the cache."""

FEW = 12
"""Levels that are found by comparing; a multiple of four."""


_Bounds = tuple[float, float, float, float]


class Lane:
    """Groups what one thread gets, in stages: few levels, many, rounded. Used as `tally.groupby` uses its own lanes."""

    def __init__(self, interval: Interval | None, *, many: Floats = NOTHING) -> None:
        self.interval = interval
        self.stage: _Few | _Many | _Rounded = _Rounded(nobody(), many) if many.size else _Few(groupby.LIMIT)

    def add(self, epsilon: Floats, values: NDArray[Any] | None) -> None:
        """Add people, chunk by chunk; what is not an array of doubles side by side is copied into one."""
        interval = self.interval or Interval(0, 1)
        bounds = (interval.lo, interval.hi, interval.width, _times(interval.width))
        values = np.empty(0) if values is None or self.interval is None else values
        step = CHUNK if _plain(epsilon) and _plain(values) else COPIED
        shared = _doubles(epsilon[:step]) if epsilon.strides == (0,) else NOTHING  # one ε: a copy does for all chunks
        for start in range(0, epsilon.size, step):
            chunk = epsilon[start : start + step]
            mine = shared[: chunk.size] if shared.size else _doubles(chunk)
            self._chunk(mine, _doubles(values[start : start + step]), bounds)

    def table(self) -> Table:
        """Return the table of everybody added so far."""
        return self.stage.table()

    def absorb(self, other: Any) -> bool:
        """Take over all people of another lane if both round their levels."""
        if not (isinstance(self.stage, _Rounded) and isinstance(getattr(other, "stage", None), _Rounded)):
            return False
        self.stage.absorb(other.stage)
        return True

    @staticmethod
    def mark(bits: NDArray[np.uint64], shift: np.uint64, slots: NDArray[np.bool_]) -> None:
        """Set the slots of levels."""
        kernels.mark(bits, shift, slots)

    def _chunk(self, epsilon: Floats, values: Floats, bounds: _Bounds) -> None:
        while epsilon.size:
            taken = self.stage.add(epsilon, values, bounds)
            epsilon, values = epsilon[taken:], values[taken:]
            self.stage = self.stage.next(epsilon)


def _times(width: float) -> float:
    """Return Q ÷ width where the width is a power of two, neither tiny nor huge; 0 elsewhere. See `tally.kernels`."""
    return GRID / width if math.frexp(width)[0] == 0.5 and 2.0**-900 < width < 2.0**900 else 0.0


def _plain(array: NDArray[Any]) -> bool:
    return array.dtype == np.float64 and array.flags.c_contiguous and array.flags.aligned


def _doubles(array: NDArray[Any]) -> Floats:
    """Return doubles side by side, not to be written to: kernels are compiled once, for such arrays."""
    if _plain(array):
        doubles = array.view()
    else:
        with np.errstate(all="ignore"):  # no value may warn: a longdouble can overflow on its way to a double
            doubles = np.require(array, np.float64, ["C", "A"]).view()
    doubles.flags.writeable = False
    return doubles


class _Few:
    """Keeps up to `FEW` levels; learns them as they come."""

    def __init__(self, limit: int) -> None:
        self.limit, self.used = limit, 0
        self.levels, self.count, self.total = np.full(FEW, np.nan), np.zeros(FEW, np.int64), np.zeros(FEW, np.int64)

    def add(self, epsilon: Floats, values: Floats, bounds: _Bounds) -> int:
        four = slice(0, -(-self.used // 4) * 4)
        return kernels.few(epsilon, values, bounds, self.levels[four], self.count[four], self.total[four])

    def next(self, rest: Floats) -> _Few | _Many:
        if not rest.size:
            return self
        block = rest[:BLOCK]
        if not (block >= 0).all():  # also finds NaN
            raise BadEpsilonError
        new = np.setdiff1d(block, self.levels[: self.used]) + 0.0  # −0.0 is 0
        last = self.used + new.size
        if last > FEW:
            none = np.zeros(new.size, np.int64)
            return _Many(merge([self.table(), Table(new, none, none)]), self.limit)
        self.levels[self.used : last], self.used = new, last
        return self

    def table(self) -> Table:
        order = np.argsort(self.levels[: self.used])
        return Table(self.levels[order], self.count[order], self.total[order])


class _Many:
    """Keeps every level in a table that finds one by its bits; learns levels as they come.

    The search begins at the leading bits where these tell the levels apart, as few as do, so that near levels share a
    cache line; else at bits scattered by a product. A slot holds a level and its people, packed, since `settle`.
    """

    def __init__(self, known: Table, limit: int) -> None:
        self.limit, self.built, self.used = limit, known.epsilon.size, 0
        room = min(4 * self.built, max(limit, self.built)) + 4 * BLOCK
        self.known, self.count, self.total = (np.zeros(room, np.int64) for _ in range(3))
        bits = known.epsilon.view(np.int64)
        size = 2 ** (2 * room - 1).bit_length()
        self.factor, self.shift, size = _hash(bits, size)
        self.slots = np.zeros((size, 2), np.int64)
        self.slots[:, 0] = EMPTY
        self.used = kernels.search(bits, np.zeros_like(bits), self.factor, self.shift, self.slots, self.known, 0)
        if self.factor == 1:
            here = int(2**64 - 1 >> int(self.shift)) & (size - 1)  # of the bits that stand for an empty slot
            self.slots[here, 0] = max(self.slots[here, 0], 0)  # a search for 0 begins at slot 0 and ends before `here`
        self.count[: self.used], self.total[: self.used] = known.count, known.total
        self.slow, self.fresh = False, 0

    def add(self, epsilon: Floats, values: Floats, bounds: _Bounds) -> int:
        if self.fresh + epsilon.size > CHUNK:
            self.settle()
        bits = epsilon.view(np.int64)
        hashing = (self.factor, self.shift, self.slots)
        taken, used, searches = kernels.many(bits, values, bounds, *hashing, self.known, self.used)
        if used < 0:
            raise BadEpsilonError
        self.used, self.slow = used, 8 * searches > taken and used > self.built
        self.fresh += int(taken)
        return int(taken)

    def settle(self) -> None:
        """Unpack what was added since the last time."""
        known = self.known[: self.used]
        kernels.unpack(self.slots[known, 1], self.count, self.total)
        self.slots[known, 1] = self.fresh = 0

    def next(self, rest: Floats) -> _Many | _Rounded:
        if self.used > self.limit:
            return _Rounded(self.table())
        return _Many(self.table(), self.limit) if rest.size or self.slow else self

    def table(self) -> Table:
        self.settle()
        levels = self.slots[self.known[: self.used], 0].view(np.float64)
        order = np.argsort(levels)
        return Table(levels[order], self.count[: self.used][order], self.total[: self.used][order])


def _hash(bits: Ints, size: int) -> tuple[np.uint64, np.uint64, int]:
    """Return factor and shift for a table of ascending levels, and how many slots it has: `size` or more, 2ⁿ."""
    for more, slots in ((6, size), (4, size), (2, size), (0, size), (0, 2 * size), (0, 4 * size)):
        if _apart(bits >> SHIFT + more, slots):
            return np.uint64(1), np.uint64(SHIFT + more), slots
    return SPREAD, np.uint64(65 - size.bit_length()), size


def _apart(ascending: Ints, slots: int) -> bool:
    """Say whether ascending numbers differ modulo so many slots."""
    if ascending[-1] - ascending[0] < slots:
        return bool((ascending[1:] != ascending[:-1]).all())
    taken = np.zeros(slots, bool)
    taken[ascending & (slots - 1)] = True
    return bool(taken.sum() == ascending.size)


class _Rounded:
    """Rounds every ε down: the leading bits of the double are its bin. The first is for 0, the last for infinity.

    Bins hold people packed, since `settle`. They begin so wide that they reach some levels, those of a table or others.
    """

    def __init__(self, before: Table, levels: Floats = NOTHING) -> None:
        self.base, self.fresh = (INFINITY >> SHIFT) - 1, 0
        self.bins, self.count, self.total = (np.zeros(2, np.int64) for _ in range(3))
        bits = (levels if levels.size else before.epsilon).view(np.int64)
        inside = bits[(bits >= LEAST) & (bits < INFINITY)]
        if inside.size:
            self._reach(int(inside[0]), int(inside[-1]))
        if not before.epsilon.size:
            return
        cut = merge([Table(before.epsilon, before.count, before.total, rounded=True)])
        bits = cut.epsilon.view(np.int64)
        place = np.clip((bits >> SHIFT) - self.base, 0, self.bins.size - 1)
        self.count[place], self.total[place] = cut.count, cut.total

    def add(self, epsilon: Floats, values: Floats, bounds: _Bounds) -> int:
        if self.fresh + epsilon.size > CHUNK:
            self.settle()
        taken, low, high = kernels.rounded(epsilon.view(np.int64), values, bounds, self.base, self.bins)
        if taken < 0:
            raise BadEpsilonError
        self.fresh += int(taken)
        if taken < epsilon.size:
            self._reach(low, high)
        return int(taken)

    def settle(self) -> None:
        """Unpack what was added since the last time."""
        if self.fresh:
            kernels.unpack(self.bins, self.count, self.total)
            self.fresh = 0

    def absorb(self, other: _Rounded) -> None:
        """Take over everybody and leave nobody there; another one's bins may reach elsewhere."""
        self.settle()
        other.settle()
        if other.bins.size > 2 and (other.base, other.bins.size) != (self.base, self.bins.size):
            self._reach((other.base + 1) << SHIFT, (other.base + other.bins.size - 2) << SHIFT)
        place = slice(other.base + 1 - self.base, other.base - 1 - self.base + other.bins.size)
        for mine, theirs in ((self.count, other.count), (self.total, other.total)):
            mine[place] += theirs[1:-1]
            mine[0] += theirs[0]
            mine[-1] += theirs[-1]
            theirs[:] = 0

    def next(self, _rest: Floats) -> _Rounded:
        return self

    def table(self) -> Table:
        self.settle()
        filled = np.flatnonzero(self.count)
        levels = ((filled + self.base) << SHIFT).view(np.float64)
        levels[filled == 0], levels[filled == self.bins.size - 1] = 0.0, np.inf
        return Table(levels, self.count[filled], self.total[filled], rounded=True)

    def _reach(self, low: int, high: int) -> None:
        """Make the bins cover whole octaves around two bit patterns, a power of two of bins if there are so many."""
        first, last = low >> SHIFT, high >> SHIFT
        if self.bins.size > 2:
            first, last = min(first, self.base + 1), max(last, self.base + self.bins.size - 2)
        first = first // OCTAVE * OCTAVE
        size = min(2 ** max(last - first, OCTAVE - 1).bit_length(), END - START)
        first = max(START, min(first, END - size))
        self.bins, self.count, self.total = (
            self._wider(bins, first, size) for bins in (self.bins, self.count, self.total)
        )
        self.base = first - 1

    def _wider(self, bins: Ints, first: int, size: int) -> Ints:
        wider = np.zeros(size + 2, np.int64)
        start = self.base + 2 - first
        wider[0], wider[start : start + bins.size - 2], wider[-1] = bins[0], bins[1:-1], bins[-1]
        return wider
