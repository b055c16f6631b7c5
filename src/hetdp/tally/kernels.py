"""The group-by compiled: one pass over people, who find their level in a hash table. Needs numba.

While there are at most four levels, as with named tiers, everybody is compared with all of them instead. Where levels
are rounded, the leading bits of an ε say where it is.

Claim: the integers are those of `tally.groupby`. A code depends on that person's value alone and is in {0 … Q}.

Argument: `code` does the operations of `Interval.codes` in the same order, without the liberties of fast mathematics.
Two steps look different and are not. Truncating is the floor, since nothing is negative there. Multiplying by Q is
exact, so a processor that fuses it with the sum rounds the same. NaN passes both comparisons and is replaced. No branch
that counts, finds or stops depends on a value: only ε decides where a person is added. A level is a bit pattern, so
comparing is exact; −0.0 becomes 0, and what is no ε is refused before it is looked up. Counts and sums are 64-bit
integers, see `tally.groupby`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numba
import numpy as np
from numpy.typing import NDArray

from hetdp.core.domain import GRID, Floats, Interval, Ints
from hetdp.core.levels import BITS, LIMIT, TINY

from . import Table

Kernel = TypeVar("Kernel", bound=Callable[..., Any])

INFINITY = int(np.array(np.inf).view(np.int64))
LEAST = int(np.array(TINY).view(np.int64))
MINUS_ZERO = -(2**63)
BLOCK = 2**10  # people who are compared with few levels at a time
PERSON = 2**40  # above every sum of codes in a block, BLOCK·Q = 2³⁰, and BLOCK·PERSON is below 2⁶³
FIRST = 1024  # levels after which it is decided whether to round at once
SLOTS = 4 * LIMIT  # a power of two, and at most a quarter is used, so a search is short
FACTOR, LEADING = np.uint64(0x9E3779B97F4A7C15), np.uint64(65 - SLOTS.bit_length())  # 2⁶⁴ ÷ the golden ratio scatters
SHIFT = np.uint64(53 - BITS)
ROUNDED = (INFINITY >> 53 - BITS) + 1  # there are so many levels of 12 bits, from 0 to infinity


def kernel(function: Kernel) -> Kernel:
    """Compile without the lock of Python; what was compiled is kept on disk where that is possible."""
    try:
        compiled: Any = numba.njit(function, nogil=True, error_model="numpy", cache=True)
    except RuntimeError:  # neither the package nor the home of the user can be written to
        compiled = numba.njit(function, nogil=True, error_model="numpy")
    return compiled  # type: ignore[no-any-return]


inlined = numba.njit(error_model="numpy", inline="always")
"""Compiles as a part of the kernels that call this: only then do they use vectors."""


@inlined
def code(x: float, lo: float, hi: float, width: float) -> Any:
    """Return the code of a value: the claim is in the docstring of this module."""
    x = lo if x < lo else x  # noqa: FURB136  NaN stays
    x = hi if x > hi else x  # noqa: FURB136
    found = (x - lo) / width * GRID + 0.5
    return np.int64(np.int32(found) if found == found else np.int32(GRID // 2))  # noqa: PLR0124  NaN


@inlined
def level_of(bits: Any) -> Any:
    """Return the bits of a level; −0.0 is 0, and −1 stands for what is no ε."""
    level = bits if bits != MINUS_ZERO else np.int64(0)
    return level if 0 <= level <= INFINITY else np.int64(-1)


@kernel
def compare(epsilon: Floats, values: Floats, bounds: Any, levels: Any) -> tuple[Any, ...]:
    """Return people and codes at four levels, as one integer each; of NaN there is nobody.

    Everybody is compared with every level, which a processor does for many people at once.
    """
    lo, hi, width = bounds
    a, b, c, d = levels
    none: Any = np.int64(0)
    at_a = at_b = at_c = at_d = none
    for i in range(epsilon.size):
        one = PERSON + code(values[i], lo, hi, width)
        at_a += one if epsilon[i] == a else none
        at_b += one if epsilon[i] == b else none
        at_c += one if epsilon[i] == c else none
        at_d += one if epsilon[i] == d else none
    return at_a, at_b, at_c, at_d


@kernel
def add_few(epsilon: Floats, values: Floats, bounds: Any, levels: Any, found: Ints) -> int:
    """Add people up to the first block in which somebody has none of four levels; return where that block begins."""
    for start in range(0, epsilon.size, BLOCK):
        block = epsilon[start : start + BLOCK]
        each = np.array(compare(block, values[start : start + BLOCK], bounds, levels))
        if (each // PERSON).sum() != block.size:
            return start
        found[:, 0] += each // PERSON
        found[:, 1] += each % PERSON
    return epsilon.size


@kernel
def add(bits: Ints, values: Floats, bounds: Any, slots: Ints, known: Ints, used: int) -> tuple[int, int]:
    """Add people until one has a new level and there is no room for it; return how many, and the levels used.

    −1 people stand for a bad ε. A slot has the people, the sum of their codes, and the bits of the level plus one: 0 is
    an empty slot. `known` lists the slots that are used.
    """
    lo, hi, width = bounds
    for i in range(bits.size):
        level = level_of(bits[i])
        if level < 0:
            return -1, used
        slot = np.uint64(level) * FACTOR >> LEADING
        while slots[slot, 2] != level + 1:
            if slots[slot, 2] == 0:
                if used == known.size:
                    return i, used
                slots[slot, 2], known[used] = level + 1, slot
                used += 1
                break
            slot = (slot + np.uint64(1)) & np.uint64(SLOTS - 1)
        slots[slot, 0] += 1
        slots[slot, 1] += code(values[i], lo, hi, width)
    return bits.size, used


@kernel
def add_rounded(bits: Ints, values: Floats, bounds: Any, slots: Ints, known: Ints, used: int) -> tuple[int, int]:
    """Add people at rounded levels, whose leading bits are their slots: there is room for all."""
    lo, hi, width = bounds
    for i in range(bits.size):
        level = level_of(bits[i])
        if level < 0:
            return -1, used
        slot = np.uint64(level if level >= LEAST else 0) >> SHIFT
        if slots[slot, 0] == 0:
            known[used] = slot
            used += 1
        slots[slot, 0] += 1
        slots[slot, 1] += code(values[i], lo, hi, width)
    return bits.size, used


class HashTable:
    """The levels that one thread has met, with their people and sums; rounded when there are more than `limit`."""

    def __init__(self, limit: int) -> None:
        self.limit, self.rounded, self.used = limit, False, 0
        self.slots = np.zeros((SLOTS, 3), np.int64)
        self.known = np.zeros(min(limit, FIRST), np.int64)

    def add(self, epsilon: Floats, values: NDArray[Any] | None, interval: Interval | None) -> bool:
        """Add people and say whether every ε was good. Without values they are counted, with codes of 0."""
        bounds = (0.0, 1.0, 1.0) if interval is None else (interval.lo, interval.hi, interval.width)
        rest = _doubles(epsilon)
        mine = _doubles(np.full(epsilon.size, bounds[0]) if values is None else values)
        while rest.size:
            size = rest.size
            if self.used <= 4 and not self.rounded:
                few = self._add_few(rest, mine, bounds)
                rest, mine, size = rest[few:], mine[few:], BLOCK  # a block that has a new level, most likely
            bits = rest[:size].view(np.int64)
            way = add_rounded if self.rounded else add
            taken, self.used = way(bits, mine, bounds, self.slots, self.known, self.used)
            if taken < 0:
                return False
            rest, mine = rest[taken:], mine[taken:]
            if taken < bits.size:  # somebody has a new level, for which there is no room
                self._make_room(rest.view(np.int64))
        return True

    def _add_few(self, epsilon: Floats, values: Floats, bounds: Any) -> int:
        known = self.known[: self.used]
        levels = (self.slots[known, 2] - 1).view(np.float64).tolist()
        found = np.zeros((4, 2), np.int64)
        taken = add_few(epsilon, values, bounds, (*levels, *[np.nan] * (4 - self.used)), found)
        self.slots[known, :2] += found[: self.used]
        return int(taken)

    def _make_room(self, bits: Ints) -> None:
        """Make room for `limit` levels; round if there are as many already, or if the next people alone have more."""
        marks = np.zeros(SLOTS, bool)
        following = (bits[: 2 * self.limit] & (2**63 - 1)).view(np.uint64)  # without signs: −0.0 is 0
        marks[(following * FACTOR >> LEADING).view(np.int64)] = True
        if self.used < self.limit and np.count_nonzero(marks) <= self.limit:  # hashes are no more than levels
            self.known = np.append(self.known, np.zeros(self.limit - self.used, np.int64))
            return
        before = self.table(rounded=True)
        self.rounded, self.used = True, before.epsilon.size
        self.slots, self.known = np.zeros((ROUNDED, 2), np.int64), np.zeros(ROUNDED, np.int64)
        at = before.epsilon.view(np.int64) >> 53 - BITS
        self.known[: self.used] = at
        self.slots[at] = np.column_stack([before.count, before.total])

    def table(self, *, rounded: bool = False) -> Table:
        """Return the table of everybody added so far; `rounded` if that is asked or was necessary."""
        known = np.sort(self.known[: self.used])  # rounded levels then ascend
        rows = self.slots[known]
        level = known << 53 - BITS if self.rounded else rows[:, 2] - 1
        return Table.single(level.view(np.float64), rows[:, 0], rows[:, 1], rounded=rounded or self.rounded)


def _doubles(array: NDArray[Any]) -> Floats:
    """Return doubles side by side, not to be written to: kernels are compiled once, for such arrays."""
    with np.errstate(all="ignore"):  # no value may warn: a longdouble can overflow on its way to a double
        doubles = np.require(array, np.float64, ["C", "A"]).view()
    doubles.flags.writeable = False
    return doubles
