"""The group-by compiled: kernels that pass over people once.

A kernel works in blocks of people that stay in the first cache: it packs a person and their code into one integer, then
adds these up, at a few levels by comparing (`few`), at many by a table of levels (`many`), and where levels are rounded
by the leading bits of ε (`rounded`). `tally.fast` unpacks, and decides which one it is.

Claim: a code depends on that person's value alone, is in {0 … Q}, and is the one of `Interval.codes`.

Argument: `packed` does the same operations in the same order, without the liberties of fast mathematics. Three steps
look different and are not. Truncating is the floor, since nothing is negative there. Multiplying by Q is exact, so
a processor that fuses it with the sum rounds the same. If the width is a power of two, dividing by it is exact as well,
or so small that half is left after the sum, and one product by `times`, Q ÷ width, does for both; a compiler takes the
choice out of the loops. NaN passes both comparisons and is replaced explicitly.
No branch, table or count depends on a value: only ε decides where a person is added.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numba
import numpy as np

from hetdp.core.domain import GRID

from .groupby import BITS, SPREAD, TINY, Floats, Ints

Kernel = TypeVar("Kernel", bound=Callable[..., Any])

BLOCK = 1024
STEP = 16  # of so many people, packing by vectors overlaps with adding one by one; divides BLOCK
PLACES = 42
PERSON = 2**PLACES  # above every sum of codes in a chunk, CHUNK·Q = 2⁴¹; and CHUNK·2⁴² + 2⁴¹ is below 2⁶⁴
HALF = GRID // 2
SHIFT = 53 - BITS
OCTAVE = 2 ** (BITS - 1)
INFINITY = int(np.array(np.inf).view(np.int64))
LEAST = int(np.array(TINY).view(np.int64))
START, END = LEAST >> SHIFT, INFINITY >> SHIFT
MINUS_ZERO = -(2**63)
EMPTY = -1


def kernel(function: Kernel) -> Kernel:
    """Compile without the lock of Python; what was compiled is kept on disk where that is possible."""
    try:
        compiled: Any = numba.njit(function, nogil=True, error_model="numpy", cache=True)
    except RuntimeError:  # neither the package nor the home of the user can be written to
        compiled = numba.njit(function, nogil=True, error_model="numpy")
    return compiled  # type: ignore[no-any-return]


def inlined(function: Kernel) -> Kernel:
    """Compile as a part of the kernels that call this: only then do they use vectors."""
    compiled: Any = numba.njit(function, error_model="numpy", inline="always")
    return compiled  # type: ignore[no-any-return]


@inlined
def packed(x: float, lo: float, hi: float, width: float, times: float) -> Any:
    """Return one person and their code: the claim is in the docstring of this module."""
    x = lo if x < lo else x  # noqa: FURB136  NaN stays
    x = hi if x > hi else x  # noqa: FURB136
    code = ((x - lo) * times if times else (x - lo) / width * GRID) + 0.5
    return PERSON + np.int64(np.int32(code) if code == code else np.int32(HALF))  # noqa: PLR0124  NaN


@kernel
def pack(values: Floats, bounds: Any, out: Ints) -> None:
    """Write everybody and their code."""
    lo, hi, width, times = bounds
    for i in range(values.size):
        out[i] = packed(values[i], lo, hi, width, times)


@kernel
def four(epsilon: Floats, each: Ints, a: float, b: float, c: float, d: float) -> tuple[Any, ...]:
    """Return what is packed at four levels; one that is NaN has nobody."""
    none: Any = np.int64(0)
    at_a = at_b = at_c = at_d = none
    for i in range(epsilon.size):
        at_a += each[i] if epsilon[i] == a else none
        at_b += each[i] if epsilon[i] == b else none
        at_c += each[i] if epsilon[i] == c else none
        at_d += each[i] if epsilon[i] == d else none
    return at_a, at_b, at_c, at_d


@kernel
def packed_four(
    epsilon: Floats, values: Floats, bounds: Any, a: float, b: float, c: float, d: float
) -> tuple[Any, ...]:
    """Do what `pack` and `four` do, in one loop: both arrays are read as they stand in memory."""
    lo, hi, width, times = bounds
    none: Any = np.int64(0)
    at_a = at_b = at_c = at_d = none
    for i in range(epsilon.size):
        one = packed(values[i], lo, hi, width, times)
        at_a += one if epsilon[i] == a else none
        at_b += one if epsilon[i] == b else none
        at_c += one if epsilon[i] == c else none
        at_d += one if epsilon[i] == d else none
    return at_a, at_b, at_c, at_d


@kernel
def unpack(each: Ints, count: Ints, total: Ints) -> None:
    """Add what is packed to people and sums of codes, and leave nobody there; a whole chunk reaches the 64th bit."""
    for i in range(each.size):
        count[i] += np.int64(np.uint64(each[i]) >> np.uint64(PLACES))
        total[i] += each[i] & (PERSON - 1)
        each[i] = 0


@kernel
def few(epsilon: Floats, values: Floats, bounds: Any, levels: Floats, count: Ints, total: Ints) -> int:
    """Add everybody up to the first block in which somebody has another level, and return where that begins."""
    each, found, sums = np.full(BLOCK, PERSON), np.zeros(levels.size, np.int64), np.zeros(levels.size, np.int64)
    taken = 0
    while taken < epsilon.size:
        block = epsilon[taken : taken + BLOCK]
        mine = values[taken : taken + BLOCK]
        fused = levels.size == 4 and mine.size == block.size
        if mine.size and not fused:
            pack(mine, bounds, each)
        everybody = np.int64(0)
        for j in range(0, levels.size, 4):
            at = levels[j], levels[j + 1], levels[j + 2], levels[j + 3]
            a, b, c, d = packed_four(block, mine, bounds, *at) if fused else four(block, each, *at)
            found[j], found[j + 1], found[j + 2], found[j + 3] = a, b, c, d
            everybody += a + b + c + d
        if everybody >> PLACES != block.size:
            break
        for j in range(levels.size):
            sums[j] += found[j]
        taken += block.size
    unpack(sums, count, total)
    return taken


@kernel
def search(bits: Ints, each: Ints, factor: Any, shift: Any, table: Ints, known: Ints, used: int) -> int:
    """Add people one by one, with levels that are new; return the number of levels, or −1 for a bad ε."""
    mask = np.uint64(table.shape[0] - 1)
    for i in range(bits.size):
        level = bits[i] if bits[i] != MINUS_ZERO else np.int64(0)
        if level < 0 or level > INFINITY:
            return -1
        slot = ((np.uint64(level) * factor) >> shift) & mask
        while table[slot, 0] != level:
            if table[slot, 0] == EMPTY:
                table[slot, 0] = level
                known[used] = slot
                used += 1
                break
            slot = (slot + np.uint64(1)) & mask
        table[slot, 1] += each[i]
    return used


@kernel
def at_once(bits: Ints, each: Ints, shift: Any, table: Ints) -> Any:
    """Add people whose levels stand at their leading bits; 0 unless that is wrong for somebody.

    The table is flat: a level, what is packed there, the next level. A bad ε is no level, so it is wrong wherever it
    falls; only the bits of EMPTY would be right at an empty slot, and `tally.fast` fills the slot where they fall.
    """
    wrong, even = np.int64(0), np.uint64(table.size - 2)
    for i in range(bits.size):
        place = (np.uint64(bits[i]) >> (shift - np.uint64(1))) & even
        wrong |= table[place] ^ bits[i]
        table[place + np.uint64(1)] += each[i]
    return wrong


@kernel
def packed_at_once(bits: Ints, values: Floats, bounds: Any, shift: Any, table: Ints) -> Any:
    """Do what `pack` and `at_once` do, in steps that a processor can overlap; they divide the number of people."""
    lo, hi, width, times = bounds
    each, wrong, even = np.empty(STEP, np.int64), np.int64(0), np.uint64(table.size - 2)
    for start in range(0, bits.size, STEP):
        for i in range(STEP):
            each[i] = packed(values[start + i], lo, hi, width, times)
        for i in range(STEP):
            place = (np.uint64(bits[start + i]) >> (shift - np.uint64(1))) & even
            wrong |= table[place] ^ bits[start + i]
            table[place + np.uint64(1)] += each[i]
    return wrong


@kernel
def many(
    bits: Ints, values: Floats, bounds: Any, factor: Any, shift: Any, table: Ints, known: Ints, used: int
) -> tuple[int, int, int]:
    """Add everybody while a block of new levels would fit; return how many, the number of levels, and of searches.

    Where the leading bits tell levels apart, a block is added at once; if that was wrong, it is taken out and searched.
    """
    each, searches, flat = np.full(BLOCK, PERSON), 0, table.reshape(table.size)
    for start in range(0, bits.size, BLOCK):
        if used + BLOCK > known.size:
            return start, used, searches
        block, mine = bits[start : start + BLOCK], values[start : start + BLOCK]
        stepwise = factor == 1 and mine.size == BLOCK
        if stepwise and not packed_at_once(block, mine, bounds, shift, flat):
            continue
        if values.size:
            pack(mine, bounds, each)
        if factor == 1:
            if not stepwise and not at_once(block, each, shift, flat):
                continue
            at_once(block, -each, shift, flat)
        used = search(block, each, factor, shift, table, known, used)
        searches += block.size
        if used < 0:
            break
    return bits.size, used, searches


@kernel
def mark(bits: Any, shift: Any, slots: Any) -> None:
    """Set the slots of levels, as `Lane.mark` of `tally.lanes` does."""
    for i in range(bits.size):
        slots[(bits[i] * SPREAD) >> shift] = True


@kernel
def spread(bits: Ints) -> tuple[Any, Any, int]:
    """Return the smallest and the largest ε that are neither tiny nor infinite, and how many are −0.0 or bad."""
    low: Any = np.int64(INFINITY)
    high: Any = np.int64(0)
    odd = 0
    for i in range(bits.size):
        low = min(low, bits[i] if bits[i] >= LEAST else INFINITY)
        high = max(high, bits[i] if bits[i] < INFINITY else 0)
        odd += 1 if bits[i] < 0 or bits[i] > INFINITY else 0
    return low, high, odd


@kernel
def inside(bits: Ints, each: Ints, base: Any, bins: Ints) -> Any:
    """Add people whose bins all lie between the first and the last one; False unless that is so."""
    outside, mask = np.int64(0), np.int64(bins.size - 3)
    for i in range(bits.size):
        place = (bits[i] >> SHIFT) - base - 1
        outside |= place
        bins[np.uint64((place & mask) + 1)] += each[i]
    return outside & ~mask == 0


@kernel
def packed_inside(bits: Ints, values: Floats, bounds: Any, base: Any, bins: Ints) -> Any:
    """Do what `pack` and `inside` do, in steps that a processor can overlap; they divide the number of people."""
    lo, hi, width, times = bounds
    each, outside, mask = np.empty(STEP, np.int64), np.int64(0), np.int64(bins.size - 3)
    for start in range(0, bits.size, STEP):
        for i in range(STEP):
            each[i] = packed(values[start + i], lo, hi, width, times)
        for i in range(STEP):
            place = (bits[start + i] >> SHIFT) - base - 1
            outside |= place
            bins[np.uint64((place & mask) + 1)] += each[i]
    return outside & ~mask == 0


@kernel
def rounded(bits: Ints, values: Floats, bounds: Any, base: int, bins: Ints) -> tuple[int, int, int]:
    """Add everybody to the bin of their leading bits, up to the first block with somebody outside the bins.

    The first bin is for 0 and what rounds to it, the last for infinity. Return where that block begins and its
    smallest and largest ε; −1 for a bad ε. While the bins between are a power of two and nobody needs another, a
    block is added at once; if that was wrong, it is taken out and looked at closely.
    """
    each, last = np.full(BLOCK, PERSON), np.int64(bins.size - 1)
    plain = last > 1 and (last - 1) & (last - 2) == 0
    for start in range(0, bits.size, BLOCK):
        block, mine = bits[start : start + BLOCK], values[start : start + BLOCK]
        stepwise = plain and mine.size == BLOCK
        if stepwise and packed_inside(block, mine, bounds, base, bins):
            continue
        if values.size:
            pack(mine, bounds, each)
        if plain:
            if not stepwise and inside(block, each, base, bins):
                continue
            inside(block, -each, base, bins)
            plain = False
        low, high, odd = spread(block)
        if odd and ((block > INFINITY) | ((block < 0) & (block != MINUS_ZERO))).any():
            return -1, low, high
        if (low < INFINITY and (low >> SHIFT) <= base) or (high >> SHIFT) - base >= last:
            return start, low, high
        for i in range(block.size):
            bins[np.uint64(min(max((block[i] >> SHIFT) - base, 0), last))] += each[i]
    return bits.size, 0, 0
