"""The line rule of delimited text: every line is one person, and the layout of a line is public.

Ordinary CSV readers let one cell reach into others: an open quote swallows the lines below, a stray delimiter shifts
the columns to its right, and the message of the reader prints the row. So here a line is a line. How many fields it
has, delimiters between quotes not counted, and whether its quotes are closed is its layout, which is public like the
number of lines. A line with more fields than the header, or with an open quote, is refused by its number: `1,5,0,1`
under `value,eps` would be read with an ε ten times too large. A cell between quotes may hold anything but a line break.

A line with too few fields does not tell which are missing. What stands left of the value is where it should be; the
value is missing, and if anything right of it was asked for, the line is refused.
"""

from __future__ import annotations

import csv
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hetdp.errors import InputError

from ._asked import Asked
from ._form import Form

if TYPE_CHECKING:
    import polars as pl


class Layout:
    """Where the columns are, from the header alone."""

    def __init__(self, delimiter: str, columns: list[str], asked: Asked, path: Path) -> None:
        self.delimiter = delimiter
        self.width = len(columns)
        self.path = path
        self.places = [_find(columns, name, path) for name in asked.columns]
        self.value = None if asked.value is None else self.places[asked.columns.index(asked.value)]
        level = asked.epsilon
        self.epsilon = self.places[asked.columns.index(level)] if isinstance(level, str) else None
        self.blanks = "".join(blank for blank in " \t\r" if blank != delimiter)

    @classmethod
    def of(cls, header: bytes, path: Path, asked: Asked, form: Form) -> Layout:
        """Return the layout that a header tells."""
        text = columns = None  # errors are raised outside the handlers: without a header this is somebody's row
        with suppress(UnicodeDecodeError):
            text = header.decode("utf-8-sig").rstrip("\r")
        if text is None:
            raise InputError(f"the header of {path} is not UTF-8 text; save the file as UTF-8")
        if "\x00" in text:
            raise InputError(f"the header of {path} is not UTF-8 text (perhaps UTF-16); save the file as UTF-8")
        delimiter = form.delimiter_of(path)
        with suppress(csv.Error):
            columns = next(csv.reader([text], delimiter=delimiter), [])
        if columns is None:
            raise InputError(f"the header of {path} cannot be read; a name in it is too long or has a NUL")
        _distinct(columns, path)
        return cls(delimiter, columns, asked, path)

    def rectangle(self, block: bytes) -> pl.DataFrame | None:
        """Return the cells asked for of a block in which every line is plain, else None.

        Such a block means the same to every reader, so Polars' own may have it. It gets a header first: it would take
        a value that begins like a compressed file for one.
        """
        import polars as pl

        marks = np.frombuffer(block, np.uint8)
        marks = marks[(marks == 10) | (marks == ord(self.delimiter))]
        pattern = np.array([ord(self.delimiter)] * (self.width - 1) + [10], np.uint8)
        if self.width == 1 or marks.size % self.width or b'"' in block or b"\r" in block:
            return None
        if not (marks.reshape(-1, self.width) == pattern).all():
            return None
        names = self.delimiter.join(map(str, range(self.width))).encode() + b"\n"
        frame = pl.read_csv(
            names + block, separator=self.delimiter, quote_char=None, infer_schema=False,
            columns=sorted(set(self.places)), empty_string_is_null=False,
        )  # fmt: skip
        cells = (pl.col(str(place)).alias(f"cell {i}") for i, place in enumerate(self.places))
        return frame.select(*cells, pl.lit(value=False).alias("odd"))

    def people(self, lines: pl.DataFrame) -> pl.DataFrame:
        """Return for every person the cells asked for, whether the line is not plain, and its number.

        A blank line is nobody, unless the file has one column: there it is a person whose value is missing.
        """
        import polars as pl

        filled = lines if self.width == 1 else lines.filter(pl.col("text").str.strip_chars(self.blanks) != "")
        fields = pl.col("text").str.split(self.delimiter)
        odd = filled.select(
            (fields.list.len() != self.width) | pl.col("text").str.contains('"', literal=True)
        ).to_series()
        cells = (fields.list.get(place).alias(f"cell {i}") for i, place in enumerate(self.places))
        plain = filled.filter(~odd).select(*cells, pl.lit(value=False).alias("odd"), "line")
        if not odd.any():
            return plain
        mended = [(*self._careful(text, line), True, line) for text, line in filled.filter(odd).iter_rows()]
        return pl.concat([plain, pl.DataFrame(mended, schema=plain.schema, orient="row")]).sort("line")

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
        cells: list[str | None] = [*fields]
        if len(fields) < self.width:
            known = 0 if self.value is None else min(self.value, len(fields))
            cells = [*fields[:known], *[None] * (self.width - known)]
            if self.value is not None:
                cells[self.value] = ""
        asked = [cells[place] for place in self.places]
        if None in asked:
            raise InputError(
                f"{where} is too short to tell its epsilon and other public cells; a line needs {self.width} fields"
            )
        return [_unquoted(cell) for cell in asked if cell is not None]


def _fields(text: str, delimiter: str) -> list[str] | None:
    """Split a line at its delimiters outside of quotes; None if a quoted cell is not closed where it ends.

    >>> _fields('1,"a, b",2" nail,', ","), _fields('1,"2', ","), _fields('"1"2,3', ",")
    (['1', '"a, b"', '2" nail', ''], None, None)
    """
    fields: list[str] = []
    start = 0
    while True:
        end = start
        if text.startswith('"', start):
            end = start + 1
            while (quote := text.find('"', end)) >= 0 and text.startswith('""', quote):
                end = quote + 2
            if quote < 0:
                return None
            end = quote + 1
        cut = text.find(delimiter, end)
        rest = text[start:] if cut < 0 else text[start:cut]
        if end > start and rest[end - start :].strip(" \t"):
            return None
        fields.append(rest)
        if cut < 0:
            return fields
        start = cut + 1


def _unquoted(cell: str) -> str:
    """Return what stands between quotes, or the cell as it is."""
    inner = cell.strip(" \t")
    return inner[1:-1].replace('""', '"') if len(inner) > 1 and inner[0] == inner[-1] == '"' else cell


def _find(columns: list[str], name: str, path: Path) -> int:
    if name in columns:
        return columns.index(name)
    alike = [column for column in columns if column.strip().casefold() == name.strip().casefold()]
    if len(columns) == 1 and (other := next((c for c in ",;\t|" if c in columns[0]), None)):
        raise InputError(f"{path} has no column {name!r}; it seems to be separated by {other!r}: name the delimiter")
    hint = f"; there is {alike[0]!r}, and names must match exactly" if alike else "; its first line must be a header"
    raise InputError(f"{path} has no column {name!r}{hint}")


def _distinct(columns: list[str], path: Path) -> None:
    seen: set[str] = set()
    for column in columns:
        folded = column.strip().casefold()
        if folded in seen and folded:
            raise InputError(f"the header of {path} has two columns that differ at most by case or spaces")
        seen.add(folded)
