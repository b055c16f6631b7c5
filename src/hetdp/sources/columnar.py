"""Parquet and Arrow files, read by Polars in batches; only the columns asked for are touched.

A column of the wrong type is an error: types are public. A cell that is null is a missing value.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import narwhals.stable.v2 as nw
import polars as pl
from polars.selectors import by_name

from hetdp.errors import InputError

from .frames import check_columns, plain_types, streamed
from .request import Batch, Request

if TYPE_CHECKING:
    from .files import Text, Watch

_END = b"\xff\xff\xff\xff\x00\x00\x00\x00"
"""How an Arrow stream ends; without it some people may be missing, and nothing would tell."""


def batches(text: Text, request: Request, *, owner: bool, watch: Watch) -> Iterator[Batch]:
    """Yield the people of a Parquet or Arrow file, some hundred thousand rows at a time."""
    scan, size = check(text, request), text.path.stat().st_size
    yield from streamed(
        scan.select(by_name(*request.columns)),
        request,
        path=text.path,
        owner=owner,
        watch=lambda row, rows: watch(row, size * row // max(1, rows)),
    )


def check(text: Text, request: Request) -> pl.LazyFrame:
    """Return the table of a file, no row of it read; raise if a column is not there or has the wrong type."""
    scan = _scan(text.path, text.magic)
    scan.collect_schema()  # a damaged file raises here
    scan = plain_types(scan)
    check_columns(nw.from_native(scan), request, text.path)
    return scan


def _scan(path: Path, magic: bytes) -> pl.LazyFrame:
    """Return the table of a file, not read yet; an Arrow stream has no index and is read at once."""
    if magic.startswith(b"PAR1"):
        return pl.scan_parquet(path, glob=False, hive_partitioning=False, use_statistics=False)
    if magic.startswith(b"ARROW1"):
        return pl.scan_ipc(path, glob=False, hive_partitioning=False)
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - len(_END)))
        if file.read() != _END:
            raise InputError(f"{path} cannot be read to its end, it may be cut short; write it as an Arrow file")
    return pl.read_ipc_stream(path).lazy()
