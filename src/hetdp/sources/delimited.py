"""Delimited text, CSV and TSV: every line is one person, and the layout of a line is public.

Ordinary CSV readers let one cell reach into others: an open quote swallows the lines below, a stray delimiter shifts
the columns to its right, and the message of the reader prints the row. So here a line is a line. How many fields it
has, delimiters between quotes not counted, and whether its quotes are closed is its layout, which is public like the
number of lines. A line with more fields than the header, or with an open quote, is refused by its number: `1,5,0,1`
under `value,eps` would be read with an ε ten times too large. A cell between quotes may hold anything but a line break.

A line with too few fields does not tell which are missing. If it was promised that no value is, the line is refused.
Otherwise what stands left of the value is where it should be; the value is missing, and if anything right of it was
asked for, the line is refused.

A plain line, without quotes and with the right number of delimiters, means the same to every reader, so Polars reads
those, as text. The others are read here, one by one. No message quotes an ε, nor an id or a group that stands right of
the value: on a damaged line it may be a piece of the value, and which lines are damaged depends on values.
"""

from __future__ import annotations

import csv
import math
import os
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from hetdp.core.domain import value_of
from hetdp.errors import InputError

from .columns import batch_of
from .request import Batch, Request, shown

if TYPE_CHECKING:
    from .files import Text

Item = TypeVar("Item")
Result = TypeVar("Result")

_FEED, _QUOTE, _RETURN = 10, 34, 13


def batches(text: Text, request: Request, *, owner: bool) -> Iterator[Batch]:
    """Yield the people of a delimited file, some megabytes at a time."""
    layout = check(text, request)
    texts = [place for name, place in zip(request.columns, layout.places, strict=True) if name in request.texts]
    quotes = not layout.private or all(place < layout.private[0] for place in texts)

    def work(part: tuple[bytes, int]) -> Batch:
        cells, lines, odd = layout.cells(*part)
        return replace(batch_of(cells, lines, request, path=layout.path, odd=odd, owner=owner), quotes=quotes)

    yield from in_order(work, text.blocks())


def check(text: Text, request: Request) -> Layout:
    """Return the layout of a file; raise for what is wrong with its header. No further line is read."""
    header, path = text.header(), text.path
    decoded = columns = None  # errors are raised outside the handlers: without a header this is somebody's row
    with suppress(UnicodeDecodeError):
        decoded = header.decode("utf-8-sig").rstrip("\r")
    if decoded is None or "\x00" in decoded:
        raise InputError(f"the header of {path} is not UTF-8 text (perhaps UTF-16); save the file as UTF-8")
    delimiter = request.form.delimiter_of(path)
    with suppress(csv.Error):
        columns = next(csv.reader([decoded], delimiter=delimiter), [])
    if columns is None:
        raise InputError(f"the header of {path} cannot be read; a name in it is too long")
    folded = [column.strip().casefold() for column in columns if column.strip()]
    if len(set(folded)) < len(folded):
        raise InputError(f"the header of {path} has two columns that differ at most by case or spaces")
    places = [_find(columns, name, path, request) for name in request.columns]
    private = sorted(places[request.columns.index(name)] for name in request.private)
    return Layout(path, delimiter, len(columns), request.columns, places, private, bool(request.promised))


def _find(columns: list[str], name: str, path: Path, request: Request) -> int:
    """Return the place of a column; raise if it is not there.

    The message lists the columns if this line is surely a header: one of the names asked for is in it, and no number.
    Otherwise it may be somebody's row, and is not repeated.
    """
    if name in columns:
        return columns.index(name)
    alike = [column for column in columns if column.strip().casefold() == name.strip().casefold()]
    if len(columns) == 1 and (other := next((c for c in ",;\t|" if c in columns[0]), None)):
        said = f"say delimiter={other!r}, --delimiter {other!r}"
        raise InputError(f"{path} has no column {name!r}; it seems to be separated by {other!r}: {said}")
    hint = f"; there is {alike[0]!r}, and names must match exactly" if alike else "; its first line must be a header"
    known = any(other in columns for other in request.columns)
    if not alike and known and all(math.isnan(value_of(column)) for column in columns):
        more = f" and {len(columns) - _LISTED:,} more" if len(columns) > _LISTED else ""
        hint = f"; the columns of its header are {', '.join(shown(column) for column in columns[:_LISTED])}{more}"
    raise InputError(f"{path} has no column {name!r}{hint}{request.instead(name)}")


_LISTED = 20  # columns that a message lists


def in_order(work: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """Yield work(item) for every item, in their order; one for each core is under way at a time.

    An error surfaces at its item's turn, so which one is seen does not depend on who was faster.

    >>> list(in_order(str.upper, "abc"))
    ['A', 'B', 'C']
    """
    items = iter(items)
    yield from map(work, islice(items, 1))  # a small file needs no threads
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        waiting = deque(pool.submit(work, item) for item in islice(items, os.cpu_count()))
        while waiting:
            waiting.extend(pool.submit(work, item) for item in islice(items, 1))
            yield waiting.popleft().result()


@dataclass(frozen=True)
class Layout:
    """Where the columns are, from the header alone: how many there are, and the places of those asked for."""

    path: Path
    delimiter: str
    width: int
    names: tuple[str, ...]
    places: list[int]
    private: list[int]
    promised: bool

    def cells(self, block: bytes, first: int) -> tuple[pl.DataFrame, NDArray[np.int64], NDArray[np.bool_]]:
        """Return the cells asked for of a block of lines, the number of each line, and which lines are not plain.

        The first line has the number `first`. Bytes that are not UTF-8 become replacement characters: such a value is
        unreadable. A blank line is nobody, unless the file has one column: there it is a person without a value.
        """
        if not block.isascii():
            block = block.decode("utf-8", "replace").encode()
        if b"\r" in block:
            block = block.replace(b"\r\n", b"\n")
        data = np.frombuffer(block, np.uint8)
        ends = np.flatnonzero(data == _FEED)
        plain = self._plain(block, data, ends)
        if plain is None:
            return self._read(block), np.arange(first, first + ends.size), np.zeros(ends.size, np.bool_)
        lengths = np.diff(ends, prepend=-1)
        lines, odd = np.flatnonzero(plain).tolist(), [False] * int(np.count_nonzero(plain))
        parts = [self._read(data[np.repeat(plain, lengths)].tobytes())]
        blanks = " \t\r".replace(self.delimiter, "")
        mended: list[list[str]] = []
        for i in np.flatnonzero(~plain).tolist():
            text = block[ends[i] + 1 - lengths[i] : ends[i]].decode()
            if self.width > 1 and not text.strip(blanks):
                continue
            mended.append(self._careful(text, first + i))
            lines.append(i)
            odd.append('"' in text or text.count(self.delimiter) != self.width - 1)
        parts.append(pl.DataFrame(mended, schema=dict.fromkeys(self.names, pl.String), orient="row"))
        order = np.argsort(lines)
        return pl.concat(parts)[order], np.array(lines, np.int64)[order] + first, np.array(odd, np.bool_)[order]

    def _plain(self, block: bytes, data: NDArray[np.uint8], ends: NDArray[np.int64]) -> NDArray[np.bool_] | None:
        """Say which lines are plain; None if all are, which is the usual block and takes one look."""
        cuts = np.flatnonzero(data == ord(self.delimiter))
        strange = b'"' in block or b"\r" in block
        if not strange and cuts.size == ends.size * (self.width - 1):
            grid = cuts.reshape(ends.size, self.width - 1)
            if (grid[1:, :1] > ends[:-1, None]).all() and (grid[:, -1:] < ends[:, None]).all():
                return None
        plain = np.diff(np.searchsorted(cuts, ends), prepend=0) == self.width - 1
        if strange:
            marks = np.flatnonzero((data == _QUOTE) | (data == _RETURN))
            plain &= np.diff(np.searchsorted(marks, ends), prepend=0) == 0
        return np.asarray(plain)

    def _read(self, block: bytes) -> pl.DataFrame:
        """Return the cells asked for of a block of plain lines, as text.

        Polars gets a header first: it would take a value that begins like a compressed file for one. It would skip
        blank lines of a single column, so those get a second one.
        """
        width = max(2, self.width)
        if self.width == 1:
            block = block.replace(b"\n", self.delimiter.encode() + b"\n")
        header = self.delimiter.join(map(str, range(width))).encode() + b"\n"
        frame = pl.read_csv(
            header + block, separator=self.delimiter, quote_char=None, infer_schema=False,
            columns=sorted(set(self.places)),
        )  # fmt: skip
        cells = (frame[str(place)].alias(name) for name, place in zip(self.names, self.places, strict=True))
        return pl.DataFrame([column.fill_null("") if column.has_nulls() else column for column in cells])

    def _careful(self, text: str, line: int) -> list[str]:
        """Return the cells asked for of one line that is not plain; its layout alone can raise."""
        fields = _fields(text, self.delimiter)
        where = f"line {line} of {self.path}"
        if fields is None:
            raise InputError(
                f"{where} has a quote that is not closed at the end of its cell; inside quotes write a quote twice"
            )
        if len(fields) > self.width:
            raise InputError(
                f"{where} has {len(fields)} fields and the header {self.width}; put a cell that holds the delimiter "
                f"between quotes, and with decimal commas use another delimiter"
            )
        if len(fields) < self.width:
            known = self.private[0] if self.private else -1
            public = [place for place in self.places if place not in self.private]
            if self.private and self.promised:
                raise InputError(
                    f"{where} has {len(fields)} fields and the header {self.width}, and it was promised that no value "
                    "is missing; say what a missing value counts as, or complete the line"
                )
            if any(place > known or place >= len(fields) for place in public):
                raise InputError(
                    f"{where} is too short to tell its epsilon and other public cells; a line needs {self.width} fields"
                )
            fields = [*fields[:known], *[""] * self.width]
        return [_unquoted(fields[place]) for place in self.places]


def _fields(text: str, delimiter: str) -> list[str] | None:
    """Split a line at its delimiters outside of quotes; None if a quoted cell is not closed where it ends.

    >>> _fields('1,"a, b",2" nail,', ","), _fields('1,"2', ","), _fields('"1"2,3', ",")
    (['1', '"a, b"', '2" nail', ''], None, None)
    """
    cut, blanks = re.escape(delimiter), " \t".replace(delimiter, "")
    cell = rf'"(?:[^"]|"")*+"[{blanks}]*|(?!")[^{cut}]*'
    fields = re.findall(rf"(?:^|{cut})({cell})(?={cut}|\Z)", text)
    return fields if delimiter.join(fields) == text else None  # a cell that does not fit is left out


def _unquoted(cell: str) -> str:
    """Return what stands between quotes, or the cell as it is."""
    inner = cell.strip(" \t")
    return inner[1:-1].replace('""', '"') if len(inner) > 1 and inner[0] == inner[-1] == '"' else cell
