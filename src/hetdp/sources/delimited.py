"""Delimited text: CSV and TSV. Every line is one person, whatever its private cell holds.

Ordinary CSV readers let one cell reach into others: an open quote swallows the lines below, a stray
delimiter shifts the columns to its right, and the message of the reader prints the row. So here a line is a line, and
a line that is not plain (a quote in it, or another number of fields than the header has) is read from outside
in: the columns left of the value from the left, those right of it from the right. What is left in between
is the value, so it cannot move anybody's ε, not even its owner's, as long as the public cells are well-formed: with an
inch mark (12") in a public cell beside it, or a public cell missing, the same line can be read in two ways.

An ε that stands right of the value is never quoted in a message: on a damaged line it may be a piece of the value.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from .._errors import InputError
from ._batch import Batch, Tiers
from ._columns import epsilons_of, missing_of, values_of

if TYPE_CHECKING:
    import polars as pl

_BLOCK = 2**24
_LONGEST_LINE = 2**26


def batches(path: Path, value: str | None, epsilon: str, tiers: Tiers, *, owner: bool = False) -> Iterator[Batch]:
    """Yield the people of a delimited file, some megabytes at a time."""
    with path.open("rb") as file:
        layout = _Layout.of(file, path, value, epsilon)
        if layout.value is not None and layout.epsilon > layout.value:
            tiers = tiers.discreet()
        line = 2
        for block in _blocks(file, layout.carriage, path):
            lines = _lines(block, line)
            line += lines.height
            people = layout.people(lines)
            if people.height:
                yield _batch(people, tiers, has_values=value is not None, owner=owner)


def _batch(people: pl.DataFrame, tiers: Tiers, *, has_values: bool, owner: bool) -> Batch:
    if people["odd"].any():
        strange = people.filter("odd")
        epsilons_of(strange["epsilon"], strange["line"], "line", tiers.discreet())
    levels = epsilons_of(people["epsilon"], people["line"], "line", tiers)
    if not has_values:
        return Batch(None, levels, "line")
    if not owner:
        return Batch(values_of(people["value"]), levels, "line")
    missing, places, odd = missing_of(people["value"]), people["line"].to_numpy(), people["odd"].to_numpy()
    return Batch(values_of(people["value"]), levels, "line", missing, places, odd)


class _Layout:
    """Where the columns are, from the header alone."""

    def __init__(self, delimiter: str, columns: list[str], value: str | None, epsilon: str, path: Path) -> None:
        self.delimiter = delimiter
        self.width = len(columns)
        self.epsilon = _find(columns, epsilon, path)
        self.value = None if value is None else _find(columns, value, path)
        self.carriage = False

    @classmethod
    def of(cls, file: BinaryIO, path: Path, value: str | None, epsilon: str) -> _Layout:
        head = file.read(2**16)
        carriage = b"\r" in head.split(b"\n", 1)[0].removesuffix(b"\r")
        first = head.split(b"\r" if carriage else b"\n", 1)[0]
        file.seek(min(len(first) + 1, len(head)))
        try:
            text = first.decode("utf-8-sig").rstrip("\r")
        except UnicodeDecodeError:
            raise InputError(f"the header of {path} is not UTF-8 text; save the file as UTF-8") from None
        if "\x00" in text:
            raise InputError(f"the header of {path} is not UTF-8 text (perhaps UTF-16); save the file as UTF-8")
        delimiter = "\t" if path.suffix.lower() in {".tsv", ".tab"} else ","
        columns = next(csv.reader([text], delimiter=delimiter), [])
        _distinct(columns, path)
        layout = cls(delimiter, columns, value, epsilon, path)
        layout.carriage = carriage
        return layout

    def people(self, lines: pl.DataFrame) -> pl.DataFrame:
        """Return line number, value cell, ε cell, and whether it is not plain, of every line that is not blank."""
        import polars as pl

        filled = lines.filter(pl.col("text").str.strip_chars(" \r" if self.delimiter == "\t" else " \t\r") != "")
        fields = pl.col("text").str.split(self.delimiter)
        odd = filled.select(
            (fields.list.len() != self.width) | pl.col("text").str.contains('"', literal=True)
        ).to_series()
        plain = filled.filter(~odd).select(
            "line",
            (fields.list.get(self.value) if self.value is not None else pl.lit(None, pl.String)).alias("value"),
            fields.list.get(self.epsilon).alias("epsilon"),
            pl.lit(value=False).alias("odd"),
        )
        if not odd.any():
            return plain
        mended = [(line, *self._outside_in(text, line), True) for line, text in filled.filter(odd).iter_rows()]
        return pl.concat([plain, pl.DataFrame(mended, schema=plain.schema, orient="row")])

    def _outside_in(self, text: str, line: int) -> tuple[str | None, str]:
        """Return the value and the ε of one line that is not plain."""
        if self.value is None:
            cells = _from_left(text, self.width + 1, self.delimiter)
            if len(cells) != self.width:
                raise InputError(
                    f"line {line} has another number of fields than the header; "
                    "name the value column too, so that the line can be read around it"
                )
            return None, _unquoted(cells[self.epsilon])
        left = _from_left(text, self.value + 1, self.delimiter)
        rest = left.pop() if len(left) > self.value else None
        right = _from_left((rest or "")[::-1], self.width - self.value, self.delimiter)
        if rest is None or len(right) < self.width - self.value:
            # A short line: which cell is missing cannot be told, so what stands right of the value may be the value.
            if self.epsilon < min(self.value, len(left)):
                return "", _unquoted(left[self.epsilon])
            raise InputError(f"line {line} is too short to tell its epsilon; a line needs {self.width} fields")
        value = right.pop()[::-1]
        cells = [*left, value, *(cell[::-1] for cell in reversed(right))]
        return _unquoted(value), _unquoted(cells[self.epsilon])


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
    cell = cell.strip(" \t")
    return cell[1:-1].replace('""', '"') if len(cell) > 1 and cell[0] == cell[-1] == '"' else cell


def _blocks(file: BinaryIO, carriage: bool, path: Path) -> Iterator[bytes]:  # noqa: FBT001  a private helper
    """Yield whole lines, a block at a time."""
    rest = b""
    while chunk := file.read(_BLOCK):
        if carriage:
            chunk = chunk.replace(b"\r", b"\n")
        cut = chunk.rfind(b"\n") + 1
        if cut:
            yield rest + chunk[:cut]
            rest = chunk[cut:]
        else:
            rest += chunk
        if len(rest) > _LONGEST_LINE:
            raise InputError(f"{path} has a line of more than {_LONGEST_LINE // 2**20} MiB; this is not a table")
    if rest:
        yield rest


def _lines(block: bytes, first: int) -> pl.DataFrame:
    """Return numbered lines. Bytes that are not UTF-8 become replacement characters: such a value is unreadable."""
    import polars as pl

    if not block.isascii():
        block = block.decode("utf-8", "replace").encode()
    lines = pl.read_lines(b"\n" + block, name="text").slice(1)
    return lines.with_row_index("line", offset=first)


def _find(columns: list[str], name: str, path: Path) -> int:
    if name in columns:
        return columns.index(name)
    alike = [column for column in columns if column.strip().casefold() == name.strip().casefold()]
    if len(columns) == 1 and (other := next((c for c in ";\t|" if c in columns[0]), None)):
        raise InputError(
            f"{path} has no column {name!r}; it seems to be separated by {other!r}: save it with commas (.tsv: tabs)"
        )
    hint = f"; there is {alike[0]!r}, and names must match exactly" if alike else "; its first line must be a header"
    raise InputError(f"{path} has no column {name!r}{hint}")


def _distinct(columns: list[str], path: Path) -> None:
    seen: set[str] = set()
    for column in columns:
        folded = column.strip().casefold()
        if folded in seen and folded:
            raise InputError(f"the header of {path} has two columns that differ at most by case or spaces")
        seen.add(folded)
