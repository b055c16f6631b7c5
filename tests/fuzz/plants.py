"""Bugs to plant: the same budget must find each of them, or finding nothing means nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hetdp.cli import parse
from hetdp.errors import InputError
from hetdp.ledger import books
from hetdp.ledger import store as ledger_store
from hetdp.sources import columns, delimited, files
from hetdp.tally import Tally


@dataclass(frozen=True)
class Plant:
    """A bug: the target that must find it, how to plant it, and what the fuzzer reports then."""

    target: str
    plant: Callable[[], None]
    report: str


def stray_index() -> None:
    """A line with three quotes or more, of which one is left open, is read past its end."""
    old = delimited._fields

    def new(text: str, delimiter: str) -> list[str] | None:
        if text.count('"') > 2 and text.count('"') % 2:
            raise IndexError("list index out of range")
        return old(text, delimiter)

    delimited._fields = new


def foreign_error() -> None:
    """The errors of the library that reads Parquet and Arrow are let through."""

    def new(path: Any, request: Any, **options: Any) -> Iterator[Any]:
        with files.Text(path) as text:
            yield from files._kind(text)[1].batches(text, request, **options)

    def bare(scan: Any, request: Any, *, path: Any, **_: Any) -> Iterator[Any]:
        for part in scan.collect_batches():
            yield columns.batch_of(part, range(part.height), request, path=path)

    files._one, columns.streamed = new, bare


def quoted_cell() -> None:
    """A value that is too long to be a number is an error that quotes it."""
    old = delimited.batch_of

    def new(cells: Any, lines: Any, request: Any, **more: Any) -> Any:
        for cell in cells[request.columns[0]].to_list():
            if len(cell) > 20:
                raise InputError(f"a value cannot be read (got {cell!r})")
        return old(cells, lines, request, **more)

    delimited.batch_of = new


def dropped_person() -> None:
    """A person whose value has a sign that is none of a number is left out."""
    old = delimited.batch_of

    def new(cells: Any, lines: Any, request: Any, *, odd: Any, **more: Any) -> Any:
        kept = ~cells[request.columns[0]].str.contains("[#$%&]").to_numpy()
        return old(cells.filter(kept), lines[kept], request, odd=odd[kept], **more)

    delimited.batch_of = new


def negative_sum() -> None:
    """A sum below zero is taken for one above."""
    old = Tally._of_fields.__func__

    def new(cls: type[Tally], fields: Any, path: Any) -> Tally:
        tally: Tally = old(cls, {**fields, "total": [[abs(total)] for (total,) in fields["total"]]}, path)
        if len(tally.levels) == len(fields["total"]):
            tally.table = replace(tally.table, total=np.minimum(tally.table.total, fields["total"]))
        return tally

    Tally._of_fields = classmethod(new)


def broken_chain() -> None:
    """The hashes of events are not compared."""
    books.checked = ledger_store.checked = lambda events, *_: events


def unsplit_tier() -> None:
    """A tier without its equals sign is split all the same."""
    old = parse.levels_of

    def new(tier: list[str]) -> Any:
        for option in tier:
            _, _ = option.split("=")
        return old(tier)

    parse.levels_of = new


PLANTS = {
    plant.plant.__name__: plant
    for plant in (
        Plant("text", stray_index, "IndexError"),
        Plant("columnar", foreign_error, "Error"),
        Plant("cell", quoted_cell, "a value cannot be read"),
        Plant("cell", dropped_person, "AssertionError"),
        Plant("tally", negative_sum, "AssertionError: a sum of -"),
        Plant("ledger", broken_chain, "Error"),
        Plant("cli", unsplit_tier, "internal error ValueError"),
    )
}
