"""Parquet files, read by Polars in batches; only the columns asked for are touched."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from .._errors import InputError
from ._batch import Batch, Tiers
from ._columns import epsilons_of, missing_of, values_of

if TYPE_CHECKING:
    import polars as pl

_ROWS = 2**20


def batches(path: Path, value: str | None, epsilon: str, tiers: Tiers, *, owner: bool = False) -> Iterator[Batch]:
    """Yield the people of a Parquet file. A column of the wrong type is an error: types are public."""
    import polars as pl

    columns = [name for name in (value, epsilon) if name is not None]
    row = 1
    scan = pl.scan_parquet(path, glob=False)
    _check_types(scan.collect_schema(), value, epsilon, path)
    for frame in scan.select(columns).collect_batches(chunk_size=_ROWS):
        places = pl.int_range(row, row + frame.height, eager=True)
        row += frame.height
        yield _batch(frame, places, value, epsilon, tiers, owner=owner)


def _batch(
    frame: pl.DataFrame, places: pl.Series, value: str | None, epsilon: str, tiers: Tiers, *, owner: bool
) -> Batch:
    import polars as pl

    cells = frame[epsilon]
    text = cells.cast(pl.String) if isinstance(cells.dtype, (pl.Categorical, pl.Enum)) else cells
    levels = epsilons_of(text, places, "row", tiers)
    if value is None:
        return Batch(None, levels, "row")
    missing = missing_of(frame[value]) if owner else None
    return Batch(values_of(frame[value]), levels, "row", missing, places.to_numpy() if owner else None)


def _check_types(schema: pl.Schema, value: str | None, epsilon: str, path: Path) -> None:
    import polars as pl

    for name in (value, epsilon):
        if name is not None and name not in schema:
            raise InputError(f"{path} has no column {name!r}; its columns are {', '.join(map(repr, schema))}")
    kind = schema[epsilon]
    if not (kind.is_numeric() or isinstance(kind, (pl.String, pl.Categorical, pl.Enum))):
        raise InputError(f"the epsilon column {epsilon!r} must hold numbers or text (got {kind})")
    if value is not None:
        kind = schema[value]
        if not (kind.is_numeric() or isinstance(kind, (pl.Boolean, pl.String, pl.Null))):
            raise InputError(f"the value column {value!r} must hold numbers (got {kind})")
