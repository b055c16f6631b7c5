"""Columns of numbers in an event: a list that people can read while it is short, one text when it is long.

A charge of a thousand cohorts has six thousand numbers. Written in digits they took longer than the charge itself. The
text names how a number is kept, `f8` (IEEE 754) or `u1`, `u2`, `u4`, `u8` (unsigned, of so many bytes), then a colon
and base64 of the numbers, little-endian.
"""

from __future__ import annotations

import binascii
from typing import Any

import numpy as np
from numpy.typing import NDArray

LONG = 64
"""From how many numbers on a column is a text."""

_WIDTHS = {"u1", "u2", "u4", "u8"}


def packed(column: NDArray[Any]) -> list[Any] | str:
    """Return a column of reals, or of integers from 0 on, as plain data, exact.

    >>> packed(np.array([3, 1])), packed(np.array([0.5])), packed(np.arange(64))[:12]
    ([3, 1], ['0x1.0000000000000p-1'], 'u1:AAECAwQFB')
    """
    real = column.dtype.kind == "f"
    if column.size < LONG:
        return [x.hex() for x in column.tolist()] if real else column.tolist()
    kind = "f8" if real else f"u{np.min_scalar_type(column.max()).itemsize}"
    return f"{kind}:{binascii.b2a_base64(column.astype(f'<{kind}').tobytes(), newline=False).decode()}"


def integers(kept: Any) -> NDArray[np.int64]:
    """Return the column of integers that `packed` took; ValueError if it gives no such text."""
    return _numbers(kept, _WIDTHS).astype(np.int64) if isinstance(kept, str) else np.asarray(kept, dtype=np.int64)


def reals(kept: Any) -> NDArray[np.float64]:
    """Return the column of reals that `packed` took; ValueError if it gives no such text."""
    if isinstance(kept, np.ndarray):
        return kept
    found = _numbers(kept, {"f8"}) if isinstance(kept, str) else [float.fromhex(x) for x in kept]
    return np.array(found, dtype=np.float64)


def _numbers(text: str, kinds: set[str]) -> NDArray[Any]:
    kind, _, numbers = text.partition(":")
    if kind not in kinds or not numbers:
        raise ValueError("no column of an event")
    return np.frombuffer(binascii.a2b_base64(numbers, strict_mode=True), dtype=f"<{kind}")
