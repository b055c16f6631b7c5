"""The line rule of delimited text: every line is one person, whatever its private cell holds.

Ordinary CSV readers let one cell reach into others: an open quote swallows the lines below, a stray
delimiter shifts the columns to its right, and the message of the reader prints the row. So here a line is a line, and
a line that is not plain (a quote in it, or another number of fields than the header has) is read from outside
in: the columns left of the value from the left, those right of it from the right. What is left in between
is the value, so it cannot move anybody's ε, id or group, not even its owner's, as long as the public cells are
well-formed: with an inch mark (12") in a public cell beside it, or a public cell missing, the same line can be read in
two ways.
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from .._errors import InputError
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
        try:
            text = header.decode("utf-8-sig").rstrip("\r")
        except UnicodeDecodeError:
            raise InputError(f"the header of {path} is not UTF-8 text; save the file as UTF-8") from None
        if "\x00" in text:
            raise InputError(f"the header of {path} is not UTF-8 text (perhaps UTF-16); save the file as UTF-8")
        delimiter = form.delimiter_of(path)
        try:
            columns = next(csv.reader([text], delimiter=delimiter), [])
        except csv.Error:
            raise InputError(f"the header of {path} cannot be read; a name in it is too long or has a NUL") from None
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
        mended = [(*self._outside_in(text, line), True, line) for text, line in filled.filter(odd).iter_rows()]
        return pl.concat([plain, pl.DataFrame(mended, schema=plain.schema, orient="row")]).sort("line")

    def _outside_in(self, text: str, line: int) -> list[str]:
        """Return the cells asked for of one line that is not plain."""
        if self.value is None:
            cells: list[str | None] = [*_from_left(text, self.width + 1, self.delimiter)]
            if len(cells) != self.width:
                raise InputError(
                    f"line {line} of {self.path} has another number of fields than the header; "
                    "name the value column too, so that the line can be read around it"
                )
        else:
            cells = self._around(text, self.value)
        asked = [cells[place] for place in self.places]
        if None in asked:
            raise InputError(
                f"line {line} of {self.path} is too short to tell its epsilon and other public cells; "
                f"a line needs {self.width} fields"
            )
        return [_unquoted(cell) for cell in asked if cell is not None]

    def _around(self, text: str, value: int) -> list[str | None]:
        """Return all cells of a line; None for public ones of which a short line does not tell which are missing."""
        left: list[str | None] = [*_from_left(text, value + 1, self.delimiter)]
        rest = left.pop() if len(left) > value else None
        right = _from_left((rest or "")[::-1], self.width - value, self.delimiter)
        if rest is None or len(right) < self.width - value:
            # A short line: which cell is missing cannot be told, so what stands right of the value may be the value.
            lost = [None] * (self.width - value - 1)
            return [*left, *[None] * (value - len(left)), "", *lost]
        middle = right.pop()[::-1]
        return [*left, middle, *(cell[::-1] for cell in reversed(right))]


def _from_left(text: str, most: int, delimiter: str) -> list[str]:
    """Split into at most `most` fields; a delimiter between quotes does not count. The last takes the rest.

    The rule for quotes reads the same in both directions, so the mirror image of a line splits into mirror images.
    """
    fields: list[str] = []
    start = 0
    while len(fields) < most - 1:
        end = start
        if text.startswith('"', start):
            end = start + 1
            while (quote := text.find('"', end)) >= 0 and text.startswith('""', quote):
                end = quote + 2
            end = quote if quote >= 0 else start
        cut = text.find(delimiter, end)
        if cut < 0:
            break
        fields.append(text[start:cut])
        start = cut + 1
    return [*fields, text[start:]]


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
