"""Plain lines of delimited text, compiled: one pass over the bytes.

Claim: a line that is marked READ has exactly the cells, the value and the ε that `delimited` finds in it; every line
that is not plain, and every ε that is not a plain number or among the `known`, is marked ASK and read there. Where ε's
are `named` by tiers, a number is a name like any other: only what is `known` is read here.

Argument: a line without a quote and with the right number of delimiters is split at each of them, as there. A value
cell is read by the grammar of `core.cells.value_of`, stated once more here: blanks, number or infinity, blanks; all
else is NaN. A test holds both to each other. Nothing here raises, and no cell is looked at beyond its own line.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hetdp.core.cells import LONGEST
from hetdp.tally.kernels import kernel

from ._decimal import ASK, NO_NUMBER, READ, eight, number

__all__ = ["ASK", "BLANK", "epsilon", "gather", "scan", "value"]

BLANK = 3
_SPACE, _TAB, _LINE_FEED, _RETURN, _QUOTE = 32, 9, 10, 13, 34
_INFINITY = np.frombuffer(b"infinity", np.uint8)
_ALL = np.uint64(2**64 - 1)


@kernel
def scan(  # noqa: C901, PLR0912, PLR0913, PLR0917  one loop: a call a cell would cost more than its work
    data: Any,
    signs: Any,
    roles: Any,
    texts: Any,
    edges: Any,
    known: Any,
    values: Any,
    levels: Any,
    spans: Any,
    how: Any,
) -> None:
    """Fill in, for each line, its value, its ε, where its texts are, and how it was read. The last byte ends a line.

    `signs` are the delimiter, the decimal sign, and whether ε's are named by tiers. `roles` has for each column 1 for
    the value, 2 for the ε, plus 4·k for the k-th text. `texts` are the known names of ε's, cut at `edges`.
    """
    delimiter, point, named = signs
    special = np.zeros(256, np.bool_)
    special[delimiter] = special[_LINE_FEED] = special[_QUOTE] = special[_RETURN] = True
    width, size, line, at = roles.size, data.size, 0, 0
    while at < size:
        begin, column, state = at, 0, READ
        while True:
            start, role, result, double = at, roles[column] if column < width else 0, NO_NUMBER, 0.0
            if role & 3:
                result, double, at = number(data, at, size, point)
            clean = special[data[at]]
            while True:
                while not special[data[at]]:
                    at += 1
                if data[at] == delimiter or data[at] == _LINE_FEED:
                    break
                if data[at] == _QUOTE or data[at + 1] != _LINE_FEED:
                    state = ASK
                at += 1
            end = at
            if data[at] == _LINE_FEED and end > start and data[end - 1] == _RETURN:
                end -= 1
            if role & 1:
                if not clean or result != READ:
                    result, double = value(data, start, end, point)
                values[line] = double
                state = max(state, result)
            elif role & 2:
                if named or not clean or result != READ or not _is_level(data, start, end, double):
                    result, double = epsilon(data, start, end, point, named, texts, edges, known)
                levels[line] = double
                state = max(state, result)
            if role > 3:
                spans[line, 2 * (role >> 2) - 2], spans[line, 2 * (role >> 2) - 1] = start, end
            column += 1
            at += 1
            if data[at - 1] == _LINE_FEED:
                break
        if column != width:
            state = ASK
        if state == ASK and width > 1 and column == 1 and _is_blank(data, begin, end):
            state = BLANK
        how[line] = state
        line += 1


@kernel
def _is_blank(data: Any, begin: int, end: int) -> bool:
    while begin < end and (data[begin] == _SPACE or data[begin] == _TAB or data[begin] == _RETURN):
        begin += 1
    return begin == end


@kernel
def _trimmed(data: Any, start: int, end: int) -> Any:
    while start < end and (data[start] == _SPACE or data[start] == _TAB):
        start += 1
    while start < end and (data[end - 1] == _SPACE or data[end - 1] == _TAB):
        end -= 1
    return start, end


@kernel
def value(data: Any, start: int, end: int, point: int) -> Any:
    """Return how a private cell was read, READ or ASK, and its double: NaN if it is no number."""
    start, end = _trimmed(data, start, end)
    how, size, stop = number(data, start, end, point)
    if how != NO_NUMBER and stop == end:
        return how, size
    negative = start < end and data[start] == 45
    if start < end and (data[start] == 45 or data[start] == 43):
        start += 1
    if end - start != 3 and end - start != 8:
        return READ, np.nan
    for i in range(end - start):
        if data[start + i] | 32 != _INFINITY[i]:
            return READ, np.nan
    return READ, -np.inf if negative else np.inf


@kernel
def epsilon(
    data: Any,
    start: int,
    end: int,
    point: int,
    named: Any,
    texts: Any,
    edges: Any,
    known: Any,
) -> Any:
    """Return how a public cell was read, READ or ASK, and its ε."""
    start, end = _trimmed(data, start, end)
    if edges.size > 1:
        found = _find(data, start, end, texts, edges)
        if found >= 0:
            return READ, known[found]
    how, size, stop = number(data, start, end, point)
    if how == READ and stop == end and _is_level(data, start, end, size) and not named:
        return READ, size + 0.0
    return ASK, 0.0


@kernel
def _is_level(data: Any, start: int, end: int, size: float) -> bool:
    """Say whether a number in these bytes is a finite ε that is written as one may be: 05 may be the end of 0,05."""
    first = start + (data[start] == 43 or data[start] == 45)
    leads = first + 1 < end and data[first] == 48 and 48 <= data[first + 1] <= 57
    return 0 <= size < np.inf and end - start <= LONGEST and not leads


@kernel
def _find(data: Any, start: int, end: int, texts: Any, edges: Any) -> int:
    """Return which of the known texts this cell is, −1 if none; `texts` has eight bytes more than the texts."""
    size = end - start
    first = _first_eight(data, start, size)
    for k in range(edges.size - 1):
        begin = edges[k]
        if edges[k + 1] - begin == size and _first_eight(texts, begin, size) == first:
            i = 8
            while i < size and data[start + i] == texts[begin + i]:
                i += 1
            if i >= size:
                return k
    return -1


@kernel
def _first_eight(data: Any, start: int, size: int) -> Any:
    """Return the first eight bytes of a text as one integer, zero where it is shorter."""
    if start + 8 <= data.size:
        return eight(data, start) & (_ALL >> np.uint64(64 - 8 * size) if 0 < size < 8 else _ALL * np.uint64(size > 0))
    bits = np.uint64(0)
    for i in range(min(size, 8)):
        bits |= np.uint64(data[start + i]) << np.uint64(8 * i)
    return bits


@kernel
def gather(data: Any, spans: Any, column: int, out: Any) -> int:
    """Copy the texts of one column, a line feed after each; return how many bytes were written."""
    size = 0
    for line in range(spans.shape[0]):
        for at in range(spans[line, column], spans[line, column + 1]):
            out[size] = data[at]
            size += 1
        out[size] = _LINE_FEED
        size += 1
    return size
