"""Delimited text: CSV and TSV, by the line rule of `_layout`: a line is a person.

A block of lines goes to the compiled pass of `_compiled` if the file is large, else to Polars; both mean the same.
No message quotes an ε, nor an id or a group that stands right of the value: on a damaged line it may be a piece of the
value, and which lines are damaged depends on values.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ._ahead import in_order
from ._asked import Asked
from ._batch import Batch, Tiers
from ._columns import Columns
from ._form import Form
from ._layout import Layout
from ._text import Text, Watch

if TYPE_CHECKING:
    import polars as pl

__all__ = ["Layout", "batches", "check"]

Reader = Callable[[bytes, int, int], Batch | None]

_LARGE = 2**27
"""Bytes from which a compiled reader earns back the second that it takes to load; a few of them once it is loaded."""


def batches(
    path: Path, asked: Asked, tiers: Tiers, form: Form, *, owner: bool = False, watch: Watch | None = None
) -> Iterator[Batch]:
    """Yield the people of a delimited file, some megabytes at a time."""
    with Text(path) as text:
        layout = Layout.of(text.header(), path, asked, form)
        columns = Columns(path, asked, tiers, "line", form, owner)
        read, rows = _reader(layout, columns), 0
        texts = [place for name, place in zip(asked.columns, layout.places, strict=True) if name in asked.texts]
        quotes = layout.value is None or all(place < layout.value for place in texts)

        def work(part: tuple[bytes, int, int, int]) -> tuple[Batch | None, int]:
            block, line, lines, consumed = part
            return read(block, line, lines), consumed

        parts = _numbered(text)
        first = map(work, islice(parts, 1))  # it is short, and teaches the compiled reader what the others need
        for batch, consumed in chain(first, in_order(work, parts)):
            if batch is not None:
                rows += batch.epsilon.size
                yield batch if quotes else replace(batch, quotes=False)
            if watch is not None:
                watch(rows, consumed)


def check(path: Path, asked: Asked, form: Form) -> None:
    """Raise for what is wrong with the header of a file; no further line is read."""
    with Text(path) as text:
        Layout.of(text.header(), path, asked, form)


def _numbered(text: Text) -> Iterator[tuple[bytes, int, int, int]]:
    """Yield blocks, each with the number of its first line, that of its lines, and the bytes read so far."""
    line = 2
    for block in text.blocks():
        lines = int(np.count_nonzero(np.frombuffer(block, np.uint8) == 10))
        yield block, line, lines, text.consumed
        line += lines


def _reader(layout: Layout, columns: Columns) -> Reader:
    """Return what reads a block: compiled if numba is there, the file is large, and nobody asks about lines."""
    careful = Careful(layout, columns)
    large = _LARGE // 64 if f"{__package__}._compiled" in sys.modules else _LARGE
    if columns.owner or columns.form.thousands is not None or columns.path.stat().st_size < large:
        return careful
    try:
        from ._compiled import Compiled
    except ImportError:
        return careful
    return Compiled(careful)


class Careful:
    """Reads blocks of lines by the line rule."""

    def __init__(self, layout: Layout, columns: Columns) -> None:
        self.layout, self.columns = layout, columns

    def __call__(self, block: bytes, first: int, _lines: int) -> Batch | None:
        """Return the people of a block of lines, of which the first has this number, if there are any."""
        people = self.people(block, first)
        return self.batch(people) if people.height else None

    def people(self, block: bytes, first: int | NDArray[np.int64]) -> pl.DataFrame:
        """Return for every person the cells asked for, whether the line is not plain, and its number.

        Bytes that are not UTF-8 become replacement characters: such a value is unreadable.
        """
        import polars as pl

        if not block.isascii():
            block = block.decode("utf-8", "replace").encode()
        if b"\r" in block:
            block = block.replace(b"\r\n", b"\n")
        people = self.layout.rectangle(block)
        if people is None:
            lines = pl.read_lines(b"\n" + block, name="text").slice(1)
            people = self.layout.people(_with_numbers(lines, first))
        else:
            people = _with_numbers(people, first)
        return people

    def batch(self, people: pl.DataFrame) -> Batch:
        """Return the batch of people."""
        return _batch(people, self.columns)


def _with_numbers(lines: pl.DataFrame, first: int | NDArray[np.int64]) -> pl.DataFrame:
    import polars as pl

    numbers = np.arange(first, first + lines.height) if isinstance(first, int) else first
    return lines.with_columns(pl.Series("line", numbers))


def _batch(people: pl.DataFrame, columns: Columns) -> Batch:
    import polars as pl

    cells = people.select(pl.col(f"cell {i}").alias(name) for i, name in enumerate(columns.asked.columns))
    return columns.batch(cells, people["line"], people["odd"].to_numpy())
