"""Parquet and Arrow files, read by Polars in batches; only the columns asked for are touched.

A column of the wrong type is an error: types are public. A cell that is null is a missing value.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from hetdp.errors import InputError

from ._asked import Asked
from ._batch import Batch, Tiers
from ._columns import Columns
from ._form import Form
from ._text import Watch

if TYPE_CHECKING:
    import polars as pl

_ROWS = 2**18
_PARQUET, _ARROW = b"PAR1", b"ARROW1"
_END = b"\xff\xff\xff\xff\x00\x00\x00\x00"
"""How an Arrow stream ends; without it some people may be missing, and nothing would tell."""


def batches(
    path: Path, asked: Asked, tiers: Tiers, form: Form, *, owner: bool = False, watch: Watch | None = None
) -> Iterator[Batch]:
    """Yield the people of a Parquet or Arrow file, some hundred thousand rows at a time."""
    import polars as pl
    from polars.selectors import by_name

    columns = Columns(path, asked, tiers, "row", form, owner)
    scan = check(path, asked, form)
    rows, n, size = 0, scan.select(pl.len()).collect().item(), path.stat().st_size
    for frame in scan.select(by_name(*asked.columns)).collect_batches(chunk_size=_ROWS):
        if frame.height:
            yield _batch(frame, rows + 1, columns)
        rows += frame.height
        if watch is not None:
            watch(rows, size * rows // max(1, n))
    if rows != n:  # when a thread of the reader fails, the frames just end
        raise InputError(f"{path} cannot be read to its end; the file may be damaged")


def check(path: Path, asked: Asked, _form: Form) -> pl.LazyFrame:
    """Return the table of a file, no row of it read; raise if a column is not there or has the wrong type."""
    scan = _scan(path)
    _check_types(scan.collect_schema(), asked, path)
    return scan


def _scan(path: Path) -> pl.LazyFrame:
    """Return the table of a file, not read yet; an Arrow stream has no index and is read at once."""
    import polars as pl

    with path.open("rb") as file:
        head = file.read(6)
    if head.startswith(_PARQUET):
        return pl.scan_parquet(path, glob=False, hive_partitioning=False, use_statistics=False)
    if head == _ARROW:
        return pl.scan_ipc(path, glob=False, hive_partitioning=False)
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - len(_END)))
        if file.read() != _END:
            raise InputError(f"{path} cannot be read to its end, it may be cut short; write it as an Arrow file")
    return pl.read_ipc_stream(path).lazy()


def _batch(frame: pl.DataFrame, first: int, columns: Columns) -> Batch:
    """Return the batch of a frame; categories, and whole numbers that are ids or groups, become text."""
    import polars as pl

    asked = columns.asked
    names = [asked.epsilon] if isinstance(asked.epsilon, str) else []
    named = [name for name in names if isinstance(frame.schema[name], (pl.Categorical, pl.Enum))]
    if asked.texts or named:
        frame = frame.with_columns(frame[name].cast(pl.String) for name in dict.fromkeys((*asked.texts, *named)))
    return columns.batch(frame, range(first, first + frame.height))


def _check_types(schema: pl.Schema, asked: Asked, path: Path) -> None:
    import polars as pl

    for name in asked.columns:
        if name not in schema:
            raise InputError(f"{path} has no column {name!r}; its columns are {', '.join(map(repr, schema))}")
    text = (pl.String, pl.Categorical, pl.Enum)
    if isinstance(asked.epsilon, str):
        kind = schema[asked.epsilon]
        if not (kind.is_numeric() or isinstance(kind, text)):
            raise InputError(f"the epsilon column {asked.epsilon!r} of {path} must hold numbers or text (got {kind})")
    if asked.value is not None:
        kind = schema[asked.value]
        if not (kind.is_numeric() or isinstance(kind, (pl.Boolean, pl.String, pl.Null))):
            raise InputError(f"the value column {asked.value!r} of {path} must hold numbers (got {kind})")
    for name in asked.texts:
        if not (schema[name].is_integer() or isinstance(schema[name], text)):
            raise InputError(f"the column {name!r} of {path} must hold text or whole numbers (got {schema[name]})")
