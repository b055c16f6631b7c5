"""Polars columns to arrays of doubles, by the rules of `_cells`; shared by the file readers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from .._cells import BLANKS, LEADING_ZERO, LONGEST, MISSING
from .._errors import InputError
from ._batch import Tiers

if TYPE_CHECKING:
    import polars as pl


def values_of(cells: pl.Series) -> NDArray[np.float64]:
    """Return private cells as doubles, NaN where one is missing or unreadable. No cell can raise.

    Polars' lenient cast of text knows the same notation as `_cells.value_of`; a test holds them to it.
    """
    import polars as pl

    text = cells.str.strip_chars(BLANKS) if cells.dtype == pl.String else cells
    return text.cast(pl.Float64, strict=False).fill_null(np.nan).to_numpy()


def missing_of(cells: pl.Series) -> NDArray[np.bool_]:
    """Say which private cells are missing rather than unreadable; for the owner's `check` alone."""
    import polars as pl

    if cells.dtype == pl.String:
        return cells.fill_null("").str.strip_chars(BLANKS).str.to_lowercase().is_in(list(MISSING)).to_numpy()
    return (cells.is_null() | cells.cast(pl.Float64, strict=False).is_nan().fill_null(value=False)).to_numpy()


def epsilons_of(cells: pl.Series, places: pl.Series, place: str, tiers: Tiers) -> NDArray[np.float64]:
    """Return public ε cells as doubles; a bad one raises and names its place."""
    import polars as pl

    if cells.dtype != pl.String:
        if tiers:
            raise InputError(f"the epsilon column must hold the names of tiers (got a column of type {cells.dtype})")
        if cells.dtype == pl.Float16:
            raise InputError("the epsilon column has half precision, which is too coarse for a promise; use Float64")
        numbers = cells.cast(pl.Float64)
        if numbers.null_count():
            _raise_missing(cells, places, place)
        bad = (numbers.is_nan() | (numbers < 0)).arg_true()
        if bad.len():
            tiers.epsilon_of(numbers[bad[0]], f" in {place} {places[bad[0]]}")
        return numbers.to_numpy()
    if cells.null_count():
        _raise_missing(cells, places, place)
    plain = cells.str.strip_chars(BLANKS)
    numbers = plain.cast(pl.Float64, strict=False)
    doubtful = ~(numbers.is_finite().fill_null(value=False) & (numbers >= 0).fill_null(value=False))
    doubtful |= (plain.str.len_bytes() > LONGEST) | plain.str.contains(LEADING_ZERO)
    if tiers:
        doubtful = pl.repeat(value=True, n=cells.len(), eager=True)
    if not doubtful.any():
        return numbers.to_numpy()
    return _one_by_one(pl.DataFrame({"cell": cells, "place": places, "epsilon": numbers}), doubtful, place, tiers)


def _one_by_one(people: pl.DataFrame, doubtful: pl.Series, place: str, tiers: Tiers) -> NDArray[np.float64]:
    """Each distinct cell that is not a plain finite number is read in Python: `public`, names of tiers, errors."""
    import polars as pl

    distinct = people.filter(doubtful).group_by("cell").agg(pl.col("place").min()).sort("place")
    read = {cell: tiers.epsilon_of(cell, f" in {place} {at}") for cell, at in distinct.iter_rows()}
    known = pl.DataFrame(
        {"cell": list(read), "read": list(read.values())}, schema={"cell": pl.String, "read": pl.Float64}
    )
    both = people.join(known, on="cell", how="left", maintain_order="left")
    return both.select(pl.coalesce("read", "epsilon")).to_series().to_numpy()


def _raise_missing(cells: pl.Series, places: pl.Series, place: str) -> None:
    first = places.filter(cells.is_null())[0]
    raise InputError(f"epsilon is missing in {place} {first}; everybody needs one (0 leaves a person out)")
