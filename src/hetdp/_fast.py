"""The group-by compiled: one pass over the arrays, the same integers as `_groupby` gives.

Loaded by `_groupby` for large data when numba is installed. A kernel works in blocks of people that stay in the
first cache: it packs a person and their code into one integer, then adds these up, at a few levels by comparing
(`_few`), at many by a table of levels (`_many`), and where levels are rounded by the leading bits of ε (`_rounded`).

Claim: a code depends on that person's value alone, is in {0 … Q}, and is the one of `Interval.codes`.

Argument: `_pack` does the same operations in the same order, without the liberties of fast mathematics. Two steps
look different and are not. Truncating is the floor, since nothing is negative there. Multiplying by Q is exact, so
a processor that fuses it with the sum rounds the same. NaN passes both comparisons and is replaced explicitly.
No branch, table or count depends on a value: only ε decides where a person is added.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numba
import numpy as np
from numpy.typing import NDArray

from . import _groupby
from ._groupby import BITS, TINY, BadEpsilonError, Floats, Ints, Table, merge, nobody
from ._interval import GRID, Interval

Kernel = TypeVar("Kernel", bound=Callable[..., Any])

CHUNK = 2**20
"""People between two unpackings."""

COPIED = 2**17
"""People whose arrays are copied at a time, where they are not doubles side by side: the copies stay in the cache."""

FEW = 12
"""Levels that are found by comparing; a multiple of four."""

_BLOCK = 1024
_PLACES = 42
_PERSON = 2**_PLACES  # above every sum of codes in a chunk, CHUNK·Q = 2⁴⁰; and CHUNK·2⁴² is below 2⁶³
_HALF = GRID // 2
_SHIFT = 53 - BITS
_OCTAVE = 2 ** (BITS - 1)
_INFINITY = int(np.array(np.inf).view(np.int64))
_TINY = int(np.array(TINY).view(np.int64))
_START, _END = _TINY >> _SHIFT, _INFINITY >> _SHIFT
_MINUS_ZERO = -(2**63)
_EMPTY = -1
_SPREAD = np.uint64(0x9E3779B97F4A7C15)  # 2⁶⁴ ÷ the golden ratio: its product scatters neighbours


def _kernel(function: Kernel) -> Kernel:
    """Compile without the lock of Python; what was compiled is kept on disk where that is possible."""
    try:
        compiled: Any = numba.njit(function, nogil=True, error_model="numpy", cache=True)
    except RuntimeError:  # neither the package nor the home of the user can be written to
        compiled = numba.njit(function, nogil=True, error_model="numpy")
    return compiled  # type: ignore[no-any-return]


@_kernel
def _pack(values: Floats, bounds: Any, out: Ints) -> None:
    """Write one person and their code: the claim is in the docstring of this module."""
    lo, hi, width = bounds
    for i in range(values.size):
        x = values[i]
        x = lo if x < lo else x  # noqa: FURB136  NaN stays
        x = hi if x > hi else x  # noqa: FURB136
        code = (x - lo) / width * GRID + 0.5
        out[i] = _PERSON + np.int64(np.int32(code) if code == code else np.int32(_HALF))  # noqa: PLR0124  NaN


@_kernel
def _four(epsilon: Floats, each: Ints, a: float, b: float, c: float, d: float) -> tuple[Any, ...]:
    """Return what is packed at four levels; one that is NaN has nobody."""
    none: Any = np.int64(0)
    at_a = at_b = at_c = at_d = none
    for i in range(epsilon.size):
        at_a += each[i] if epsilon[i] == a else none
        at_b += each[i] if epsilon[i] == b else none
        at_c += each[i] if epsilon[i] == c else none
        at_d += each[i] if epsilon[i] == d else none
    return at_a, at_b, at_c, at_d


@_kernel
def _few(epsilon: Floats, values: Floats, bounds: Any, levels: Floats, count: Ints, total: Ints) -> int:
    """Add everybody up to the first block in which somebody has another level, and return where that begins."""
    each, found = np.full(_BLOCK, _PERSON), np.zeros(levels.size, np.int64)
    for start in range(0, epsilon.size, _BLOCK):
        block = epsilon[start : start + _BLOCK]
        if values.size:
            _pack(values[start : start + _BLOCK], bounds, each)
        for j in range(0, levels.size, 4):
            found[j], found[j + 1], found[j + 2], found[j + 3] = _four(
                block, each, levels[j], levels[j + 1], levels[j + 2], levels[j + 3]
            )
        if (found >> _PLACES).sum() != block.size:
            return start
        count += found >> _PLACES
        total += found & (_PERSON - 1)
    return epsilon.size


@_kernel
def _search(bits: Ints, each: Ints, factor: Any, shift: Any, table: Ints, known: Ints, used: int) -> int:
    """Add people one by one, with levels that are new; return the number of levels, or −1 for a bad ε."""
    mask = np.uint64(table.shape[0] - 1)
    for i in range(bits.size):
        level = bits[i] if bits[i] != _MINUS_ZERO else np.int64(0)
        if level < 0 or level > _INFINITY:
            return -1
        slot = ((np.uint64(level) * factor) >> shift) & mask
        while table[slot, 0] != level:
            if table[slot, 0] == _EMPTY:
                table[slot, 0] = level
                known[used] = slot
                used += 1
                break
            slot = (slot + np.uint64(1)) & mask
        table[slot, 1] += each[i]
    return used


@_kernel
def _at_once(bits: Ints, each: Ints, shift: Any, table: Ints) -> Any:
    """Add people whose levels stand at their leading bits; 0 unless that is wrong for somebody."""
    wrong, negative, mask = np.int64(0), np.int64(0), np.uint64(table.shape[0] - 1)
    for i in range(bits.size):
        slot = (np.uint64(bits[i]) >> shift) & mask
        wrong |= table[slot, 0] ^ bits[i]
        negative |= bits[i]
        table[slot, 1] += each[i]
    return wrong | (negative & _MINUS_ZERO)


@_kernel
def _many(
    bits: Ints, values: Floats, bounds: Any, factor: Any, shift: Any, table: Ints, known: Ints, used: int
) -> tuple[int, int, int]:
    """Add everybody while a block of new levels would fit; return how many, the number of levels, and of searches.

    Where the leading bits tell levels apart, a block is added at once; if that was wrong, it is taken out and searched.
    """
    each, searches = np.full(_BLOCK, _PERSON), 0
    for start in range(0, bits.size, _BLOCK):
        if used + _BLOCK > known.size:
            return start, used, searches
        block = bits[start : start + _BLOCK]
        if values.size:
            _pack(values[start : start + _BLOCK], bounds, each)
        if factor == 1:
            if not _at_once(block, each, shift, table):
                continue
            _at_once(block, -each, shift, table)
        used = _search(block, each, factor, shift, table, known, used)
        searches += block.size
        if used < 0:
            break
    return bits.size, used, searches


@_kernel
def _range(bits: Ints) -> tuple[Any, Any, int]:
    """Return the smallest and the largest ε that are neither tiny nor infinite, and how many are −0.0 or bad."""
    low: Any = np.int64(_INFINITY)
    high: Any = np.int64(0)
    odd = 0
    for i in range(bits.size):
        low = min(low, bits[i] if bits[i] >= _TINY else _INFINITY)
        high = max(high, bits[i] if bits[i] < _INFINITY else 0)
        odd += 1 if bits[i] < 0 or bits[i] > _INFINITY else 0
    return low, high, odd


@_kernel
def _inside(bits: Ints, each: Ints, base: Any, bins: Ints) -> Any:
    """Add people whose bins all lie between the first and the last one; False unless that is so."""
    outside, mask = np.int64(0), np.int64(bins.size - 3)
    for i in range(bits.size):
        place = (bits[i] >> _SHIFT) - base - 1
        outside |= place
        bins[np.uint64((place & mask) + 1)] += each[i]
    return outside & ~mask == 0


@_kernel
def _rounded(bits: Ints, values: Floats, bounds: Any, base: int, bins: Ints) -> tuple[int, int, int]:
    """Add everybody to the bin of their leading bits, up to the first block with somebody outside the bins.

    The first bin is for 0 and what rounds to it, the last for infinity. Return where that block begins and its
    smallest and largest ε; −1 for a bad ε. While the bins between are a power of two and nobody needs another, a
    block is added at once; if that was wrong, it is taken out and looked at closely.
    """
    each, last = np.full(_BLOCK, _PERSON), np.int64(bins.size - 1)
    plain = last > 1 and (last - 1) & (last - 2) == 0
    for start in range(0, bits.size, _BLOCK):
        block = bits[start : start + _BLOCK]
        if values.size:
            _pack(values[start : start + _BLOCK], bounds, each)
        if plain:
            if _inside(block, each, base, bins):
                continue
            _inside(block, -each, base, bins)
            plain = False
        low, high, odd = _range(block)
        if odd and ((block > _INFINITY) | ((block < 0) & (block != _MINUS_ZERO))).any():
            return -1, low, high
        if (low < _INFINITY and (low >> _SHIFT) <= base) or (high >> _SHIFT) - base >= last:
            return start, low, high
        for i in range(block.size):
            bins[np.uint64(min(max((block[i] >> _SHIFT) - base, 0), last))] += each[i]
    return bits.size, 0, 0


class Lane:
    """Groups what one thread gets, in stages: few levels, many, rounded. Used as `_groupby` uses its own lanes."""

    def __init__(self, interval: Interval | None, *, many: bool = False) -> None:
        self.interval = interval
        self.stage: _Few | _Many | _Rounded = _Rounded(nobody()) if many else _Few(_groupby.LIMIT)

    def add(self, epsilon: Floats, values: NDArray[Any] | None) -> None:
        """Add people, chunk by chunk; what is not an array of doubles side by side is copied into one."""
        interval = self.interval or Interval(0, 1)
        bounds = (interval.lo, interval.hi, interval.width)
        values = np.empty(0) if values is None or self.interval is None else values
        step = CHUNK if _plain(epsilon) and _plain(values) else COPIED
        first = _doubles(epsilon[:step])
        for start in range(0, epsilon.size, step):
            chunk = epsilon[start : start + step]
            shared = epsilon.strides == (0,)  # one ε for everybody: a copy does for all chunks
            mine = first[: chunk.size] if shared else _doubles(chunk)
            self._chunk(mine, _doubles(values[start : start + step]), bounds)

    def table(self) -> Table:
        """Return the table of everybody added so far."""
        return self.stage.table()

    def absorb(self, other: Any) -> bool:
        """Take over all people of another lane if both round their levels."""
        if not (isinstance(self.stage, _Rounded) and isinstance(getattr(other, "stage", None), _Rounded)):
            return False
        self.stage.absorb(other.stage)
        other.stage = _Rounded(nobody())
        return True

    def _chunk(self, epsilon: Floats, values: Floats, bounds: tuple[float, float, float]) -> None:
        while epsilon.size:
            taken = self.stage.add(epsilon, values, bounds)
            epsilon, values = epsilon[taken:], values[taken:]
            self.stage = self.stage.next(epsilon)


def _plain(array: NDArray[Any]) -> bool:
    return array.dtype == np.float64 and array.flags.c_contiguous and array.flags.aligned


def _doubles(array: NDArray[Any]) -> Floats:
    """Return doubles side by side, not to be written to: kernels are compiled once, for such arrays."""
    with np.errstate(all="ignore"):  # no value may warn: a longdouble can overflow on its way to a double
        doubles = np.require(array, np.float64, ["C", "A"]).view()
    doubles.flags.writeable = False
    return doubles


class _Few:
    """Keeps up to `FEW` levels; learns them as they come."""

    def __init__(self, limit: int) -> None:
        self.limit, self.used = limit, 0
        self.levels, self.count, self.total = np.full(FEW, np.nan), np.zeros(FEW, np.int64), np.zeros(FEW, np.int64)

    def add(self, epsilon: Floats, values: Floats, bounds: tuple[float, float, float]) -> int:
        four = slice(0, -(-self.used // 4) * 4)
        return _few(epsilon, values, bounds, self.levels[four], self.count[four], self.total[four])

    def next(self, rest: Floats) -> _Few | _Many:
        block = rest[:_BLOCK]
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
        room = min(4 * self.built, max(limit, self.built)) + 4 * _BLOCK
        self.known, self.count, self.total = (np.zeros(room, np.int64) for _ in range(3))
        bits = known.epsilon.view(np.int64)
        size = 2 ** (2 * room - 1).bit_length()
        self.factor, self.shift, size = _hash(bits, size)
        self.slots = np.zeros((size, 2), np.int64)
        self.slots[:, 0] = _EMPTY
        self.used = _search(bits, np.zeros_like(bits), self.factor, self.shift, self.slots, self.known, 0)
        self.count[: self.used], self.total[: self.used] = known.count, known.total
        self.slow, self.fresh = False, 0

    def add(self, epsilon: Floats, values: Floats, bounds: tuple[float, float, float]) -> int:
        if self.fresh + epsilon.size > CHUNK:
            self.settle()
        bits = epsilon.view(np.int64)
        hashing = (self.factor, self.shift, self.slots)
        taken, used, searches = _many(bits, values, bounds, *hashing, self.known, self.used)
        if used < 0:
            raise BadEpsilonError
        self.used, self.slow = used, 8 * searches > taken and used > self.built
        self.fresh += int(taken)
        return int(taken)

    def settle(self) -> None:
        """Unpack what was added since the last time."""
        known = self.known[: self.used]
        each = self.slots[known, 1]
        self.count[: self.used] += each >> _PLACES
        self.total[: self.used] += each & (_PERSON - 1)
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
    """Return factor and shift for a table of levels, and how many slots it has: `size` or more, a power of two."""
    for more, slots in ((6, size), (4, size), (2, size), (0, size), (0, 2 * size), (0, 4 * size)):
        if np.unique((bits >> _SHIFT + more) & (slots - 1)).size == bits.size:
            return np.uint64(1), np.uint64(_SHIFT + more), slots
    return _SPREAD, np.uint64(65 - size.bit_length()), size


class _Rounded:
    """Rounds every ε down: the leading bits of the double are its bin. The first is for 0, the last for infinity.

    Bins hold people packed, since `settle`.
    """

    def __init__(self, before: Table) -> None:
        self.base, self.fresh = (_INFINITY >> _SHIFT) - 1, 0
        self.bins, self.count, self.total = (np.zeros(2, np.int64) for _ in range(3))
        cut = merge([Table(before.epsilon, before.count, before.total, rounded=True)])
        bits = cut.epsilon.view(np.int64)
        inside = bits[(bits >= _TINY) & (bits < _INFINITY)]
        if inside.size:
            self._reach(int(inside[0]), int(inside[-1]))
        place = np.clip((bits >> _SHIFT) - self.base, 0, self.bins.size - 1)
        self.count[place], self.total[place] = cut.count, cut.total

    def add(self, epsilon: Floats, values: Floats, bounds: tuple[float, float, float]) -> int:
        if self.fresh + epsilon.size > CHUNK:
            self.settle()
        taken, low, high = _rounded(epsilon.view(np.int64), values, bounds, self.base, self.bins)
        if taken < 0:
            raise BadEpsilonError
        self.fresh += int(taken)
        if taken < epsilon.size:
            self._reach(low, high)
        return int(taken)

    def settle(self) -> None:
        """Unpack what was added since the last time."""
        self.count += self.bins >> _PLACES
        self.total += self.bins & (_PERSON - 1)
        self.bins[:] = self.fresh = 0

    def absorb(self, other: _Rounded) -> None:
        """Take over everybody; another one's bins may reach elsewhere."""
        self.settle()
        other.settle()
        if other.bins.size > 2:
            self._reach((other.base + 1) << _SHIFT, (other.base + other.bins.size - 2) << _SHIFT)
        place = slice(other.base + 1 - self.base, other.base - 1 - self.base + other.bins.size)
        for mine, theirs in ((self.count, other.count), (self.total, other.total)):
            mine[place] += theirs[1:-1]
            mine[0] += theirs[0]
            mine[-1] += theirs[-1]

    def next(self, _rest: Floats) -> _Rounded:
        return self

    def table(self) -> Table:
        self.settle()
        filled = np.flatnonzero(self.count)
        levels = ((filled + self.base) << _SHIFT).view(np.float64)
        levels[filled == 0], levels[filled == self.bins.size - 1] = 0.0, np.inf
        return Table(levels, self.count[filled], self.total[filled], rounded=True)

    def _reach(self, low: int, high: int) -> None:
        """Make the bins cover whole octaves around two bit patterns, a power of two of bins if there are so many."""
        first, last = low >> _SHIFT, high >> _SHIFT
        if self.bins.size > 2:
            first, last = min(first, self.base + 1), max(last, self.base + self.bins.size - 2)
        first = first // _OCTAVE * _OCTAVE
        size = min(2 ** max(last - first, _OCTAVE - 1).bit_length(), _END - _START)
        first = max(_START, min(first, _END - size))
        self.bins, self.count, self.total = (
            self._wider(bins, first, size) for bins in (self.bins, self.count, self.total)
        )
        self.base = first - 1

    def _wider(self, bins: Ints, first: int, size: int) -> Ints:
        wider = np.zeros(size + 2, np.int64)
        start = self.base + 2 - first
        wider[0], wider[start : start + bins.size - 2], wider[-1] = bins[0], bins[1:-1], bins[-1]
        return wider
