"""Decimal notation to the nearest double, compiled: what Python's `float` gives, or "ask Python".

Claim: where `number` answers READ, its double is the nearest to the decimal number, ties to even.

Argument: a number with at most 19 significant digits is w·10^q with a whole w < 2⁶⁴. If w ≤ 2⁵³ and |q| ≤ 22, then w
and 10^|q| are doubles and one product or quotient rounds once (Clinger 1990). Else 128 bits of w·5^q decide the
rounding (Lemire, Number parsing at a gigabyte per second, 2021; Mushtak and Lemire 2023 prove that they suffice). The
cases for which the first paper keeps a way out, results below the normal doubles, and more digits are left to Python.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite.ir import IntType  # type: ignore[import-untyped]
from numba import types
from numba.extending import intrinsic

from hetdp.tally.kernels import kernel

READ, NO_NUMBER, ASK = 0, 1, 2

_U = np.uint64
_LOWEST, _HIGHEST = -342, 308
_TENS = 10.0 ** np.arange(23)


def _fives() -> np.ndarray[Any, np.dtype[np.uint64]]:
    """Return the leading 128 bits of 5^q, high and low word; below q = 0 rounded up."""
    words: list[tuple[int, int]] = []
    for q in range(_LOWEST, _HIGHEST + 1):
        if q >= 0:
            bits = 5**q << 128 >> (5**q).bit_length()
        else:
            power, length = 5**-q, (5**-q).bit_length()
            bits = 2 ** (length + 127) // power + 1 if q >= -27 else 2 ** (2 * length + 128) // power + 1
            bits >>= max(0, bits.bit_length() - 128)
        words.append((bits >> 64, bits & (2**64 - 1)))
    return np.array(words, dtype=np.uint64)


_FIVES = _fives()


def _of_bits(_context: Any, _bits: Any) -> Any:
    def code(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], context.get_value_type(types.float64))

    return types.float64(types.uint64), code


def _load(_context: Any, data: Any, _at: Any) -> Any:
    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        start = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        place = builder.bitcast(builder.gep(start, [arguments[1]]), IntType(64).as_pointer())
        return builder.load(place, align=1)

    return types.uint64(data, types.int64), code


_double: Any = intrinsic(_of_bits)
"""The double that has these bits."""
eight: Any = intrinsic(_load)
"""Eight bytes of an array from a place on, as one integer, the first lowest; they must be there."""


@kernel
def _product(a: Any, b: Any) -> Any:
    """Return the high and the low word of a·b."""
    half = _U(0xFFFFFFFF)
    low, cross = (a & half) * (b & half), (a >> _U(32)) * (b & half)
    other, high = (a & half) * (b >> _U(32)), (a >> _U(32)) * (b >> _U(32))
    middle = (low >> _U(32)) + (cross & half) + (other & half)
    return high + (cross >> _U(32)) + (other >> _U(32)) + (middle >> _U(32)), a * b


@kernel
def nearest(w: Any, q: int) -> Any:  # noqa: C901, PLR0911  one algorithm, in the order of the paper
    """Return how w·10^q was read and the double nearest to it."""
    if w == _U(0) or q < _LOWEST:
        return READ, 0.0
    if w <= _U(2**53) and -22 <= q <= 22:
        return READ, (np.float64(w) * _TENS[q] if q >= 0 else np.float64(w) / _TENS[-q])
    if q > _HIGHEST:
        return READ, np.inf
    zeros = 0
    while not w >> _U(63):
        w <<= _U(1)
        zeros += 1
    high, low = _product(w, _FIVES[q - _LOWEST, 0])
    if high & _U(0x1FF) == _U(0x1FF):
        more, _ = _product(w, _FIVES[q - _LOWEST, 1])
        low += more
        if more > low:
            high += _U(1)
    if low == _U(2**64 - 1) and not -27 <= q <= 55:
        return ASK, 0.0
    upper = high >> _U(63)
    shift = upper + _U(9)
    mantissa = high >> shift
    power = ((217706 * q) >> 16) + 63 + np.int64(upper) - zeros + 1023
    if power <= 0:
        return ASK, 0.0
    if low <= _U(1) and -4 <= q <= 23 and mantissa & _U(3) == _U(1) and mantissa << shift == high:
        mantissa &= ~_U(1)  # half-way: to even
    mantissa = (mantissa + (mantissa & _U(1))) >> _U(1)
    if mantissa >> _U(53):
        mantissa = _U(2**52)
        power += 1
    if power >= 0x7FF:
        return READ, np.inf
    return READ, _double((mantissa & _U(2**52 - 1)) | (_U(power) << _U(52)))


@kernel
def number(data: Any, at: int, end: int, point: int) -> Any:
    """Return how the number that begins here was read, its double, and where it ends: at most at `end`."""
    negative = False
    if at < end and (data[at] == 45 or data[at] == 43):
        negative = data[at] == 45
        at += 1
    first, w, scale = at, _U(0), 0
    while at < end and _U(data[at]) - _U(48) < _U(10):
        w = w * _U(10) + (_U(data[at]) - _U(48))
        at += 1
    digits = at - first
    if at < end and data[at] == point:
        at += 1
        fraction = at
        while at + 8 <= end and _are_digits(eight(data, at)):
            w = w * _U(100_000_000) + _of_digits(eight(data, at))
            at += 8
        while at < end and _U(data[at]) - _U(48) < _U(10):
            w = w * _U(10) + (_U(data[at]) - _U(48))
            at += 1
        scale = fraction - at
        digits -= scale
    if not digits:
        return NO_NUMBER, 0.0, at
    too_many = digits > 19 and _significant(data, first, at, digits) > 19  # w may have wrapped around
    if at < end and data[at] | 32 == 101:
        exponent, at = _exponent(data, at, end)
        scale += exponent
    if too_many:
        return ASK, 0.0, at
    how, size = nearest(w, scale)
    return how, -size if negative else size, at


@kernel
def _are_digits(bytes_: Any) -> Any:
    high, more = bytes_ & _U(0xF0F0F0F0F0F0F0F0), (bytes_ + _U(0x0606060606060606)) & _U(0xF0F0F0F0F0F0F0F0)
    return high | (more >> _U(4)) == _U(0x3333333333333333)


@kernel
def _of_digits(bytes_: Any) -> Any:
    """Return the number that eight digits write: pairs, fours and all eight in three products."""
    pairs = bytes_ - _U(0x3030303030303030)
    pairs = pairs * _U(10) + (pairs >> _U(8))
    low, high = pairs & _U(0x000000FF000000FF), (pairs >> _U(16)) & _U(0x000000FF000000FF)
    return (low * _U(0x000F424000000064) + high * _U(0x0000271000000001)) >> _U(32)


@kernel
def _significant(data: Any, at: int, end: int, digits: int) -> int:
    """Return how many digits there are from the first that is not 0."""
    while at < end and (data[at] < 49 or data[at] > 57):
        digits -= data[at] == 48
        at += 1
    return digits


@kernel
def _exponent(data: Any, at: int, end: int) -> Any:
    """Return the exponent that begins with the e here, and where it ends; if it is none, where it begins."""
    begin, exponent, sign = at, 0, 1
    at += 1
    if at < end and (data[at] == 45 or data[at] == 43):
        sign = -1 if data[at] == 45 else 1
        at += 1
    digits = at
    while at < end and _U(data[at]) - _U(48) < _U(10):
        exponent = min(exponent * 10 + int(data[at]) - 48, 1_000_000)
        at += 1
    return (sign * exponent, at) if at > digits else (0, begin)
