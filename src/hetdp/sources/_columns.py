"""Polars columns to arrays of doubles, by the rules of `core.cells`; shared by the file readers."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hetdp.core.cells import BLANKS, LEADING_ZERO, LONGEST, MISSING, grouped
from hetdp.errors import InputError

from ._asked import Asked
from ._batch import Batch, Tiers
from ._form import Form

if TYPE_CHECKING:
    import polars as pl

PLAIN = Form()

Places: TypeAlias = "pl.Series | range"
"""Where the rows stand in the file."""


@dataclass(frozen=True)
class Columns:
    """Turns the columns of one file into batches.

    Attributes
    ----------
    place
        What a place in this file is called: a line, a row.
    form
        How numbers in text columns are written.
    """

    path: Path
    asked: Asked
    tiers: Tiers
    place: str
    form: Form = PLAIN
    owner: bool = False

    def batch(self, frame: pl.DataFrame, places: Places, odd: NDArray[np.bool_] | None = None) -> Batch:
        """Return the batch of a frame that has the columns asked for; no private cell can raise.

        `odd` are rows of a text that are not plain: an ε there may be a piece of a value. Whether a row is plain
        depends on its value, so no ε of a text is quoted, on whatever row.
        """
        levels = self._levels(frame, places, odd)
        texts = {name: frame[name] for name in self.asked.texts}
        if self.asked.value is None:
            return Batch(None, levels, self.place, texts=texts)
        cells = frame[self.asked.value]
        values = values_of(cells, self.form)
        if not self.owner:
            return Batch(values, levels, self.place, texts=texts)
        return Batch(values, levels, self.place, missing_of(cells), np.asarray(places), odd, texts)

    def _levels(self, frame: pl.DataFrame, places: Places, odd: NDArray[np.bool_] | None) -> NDArray[np.float64]:
        if not isinstance(self.asked.epsilon, str):
            return np.full(frame.height, self.asked.epsilon, dtype=np.float64)
        cells, of = frame[self.asked.epsilon], f" of {self.path}"
        tiers = self.tiers if odd is None else self.tiers.discreet()
        return epsilons_of(cells, places, self.place, tiers, self.form, of)


def values_of(cells: pl.Series, form: Form = PLAIN) -> NDArray[np.float64]:
    """Return private cells as doubles, NaN where one is missing or unreadable. No cell can raise.

    Polars' lenient cast of text knows the same notation as `core.cells.value_of`; a test holds them to it.
    """
    import polars as pl

    text = _plain(cells, form) if cells.dtype == pl.String else cells
    numbers = text.cast(pl.Float64, strict=False)
    return (numbers.fill_null(np.nan) if numbers.has_nulls() else numbers).to_numpy()


def missing_of(cells: pl.Series) -> NDArray[np.bool_]:
    """Say which private cells are missing rather than unreadable; for the owner's `check` alone."""
    import polars as pl

    if cells.dtype == pl.String:
        return cells.fill_null("").str.strip_chars(BLANKS).str.to_lowercase().is_in(list(MISSING)).to_numpy()
    return (cells.is_null() | cells.cast(pl.Float64, strict=False).is_nan().fill_null(value=False)).to_numpy()


def epsilons_of(
    cells: pl.Series, places: Places, place: str, tiers: Tiers, form: Form = PLAIN, of: str = ""
) -> NDArray[np.float64]:
    """Return public ε cells as doubles; a bad one raises and names its place."""
    import polars as pl

    if cells.has_nulls():
        first = places[int(cells.is_null().arg_true()[0])]
        raise InputError(f"epsilon is missing in {place} {first}{of}; everybody needs one (0 leaves a person out)")
    if cells.dtype != pl.String:
        return _numbers(cells, places, place, tiers, of)
    plain = _plain(cells, form)
    numbers = plain.cast(pl.Float64, strict=False)
    doubtful = ~(numbers.is_finite().fill_null(value=False) & (numbers >= 0).fill_null(value=False))
    doubtful |= (plain.str.len_bytes() > LONGEST) | plain.str.contains(LEADING_ZERO)
    if tiers:
        plain = cells
        doubtful = pl.repeat(value=True, n=cells.len(), eager=True)
    if not doubtful.any():
        return numbers.to_numpy()
    people = pl.DataFrame({"cell": plain, "place": pl.Series(places), "epsilon": numbers})
    return _one_by_one(people, doubtful, place, tiers, of)


def _numbers(cells: pl.Series, places: Places, place: str, tiers: Tiers, of: str) -> NDArray[np.float64]:
    import polars as pl

    if tiers:
        raise InputError(f"the epsilon column must hold the names of tiers (got a column of type {cells.dtype})")
    if cells.dtype == pl.Float16:
        raise InputError("the epsilon column has half precision, which is too coarse for a promise; use Float64")
    numbers = cells.cast(pl.Float64).to_numpy()
    if numbers.size and not numbers.min() >= 0:  # also finds NaN
        bad = int(np.argmin(numbers >= 0))
        tiers.epsilon_of(float(numbers[bad]), f" in {place} {places[bad]}{of}")
    return numbers


def _plain(cells: pl.Series, form: Form) -> pl.Series:
    """Return numbers as `core.cells` reads them: with a point, without blanks around and signs between thousands."""
    import polars as pl

    text = cells.str.strip_chars(BLANKS)
    if form.thousands is not None:
        known = text.str.contains(grouped(form.decimal, form.thousands))
        without = text.str.replace_all(form.thousands, "", literal=True)
        text = pl.select(pl.when(known).then(without).otherwise(text)).to_series()
    if form.decimal != ".":
        pointed = text.str.replace_all(".", "?", literal=True)
        text = pointed.str.replace_all(form.decimal, ".", literal=True)
    return text


def plain_text(text: str, form: Form) -> str:
    """Return one number as `core.cells` reads it.

    >>> [plain_text(text, Form(";", ",", ".")) for text in ("1.234,5", " 0,5 ", "1.5")]
    ['1234.5', '0.5', '1?5']
    """
    text = text.strip(BLANKS)
    if form.thousands is not None and re.search(grouped(form.decimal, form.thousands), text):
        text = text.replace(form.thousands, "")
    return text if form.decimal == "." else text.replace(".", "?").replace(form.decimal, ".")


def _one_by_one(people: pl.DataFrame, doubtful: pl.Series, place: str, tiers: Tiers, of: str) -> NDArray[np.float64]:
    """Each distinct cell that is not a plain finite number is read in Python: `public`, names of tiers, errors."""
    import polars as pl

    distinct = people.filter(doubtful).group_by("cell").agg(pl.col("place").min()).sort("place")
    read = {cell: tiers.epsilon_of(cell, f" in {place} {at}{of}") for cell, at in distinct.iter_rows()}
    known = pl.DataFrame(
        {"cell": list(read), "read": list(read.values())}, schema={"cell": pl.String, "read": pl.Float64}
    )
    both = people.join(known, on="cell", how="left", maintain_order="left")
    return both.select(pl.coalesce("read", "epsilon")).to_series().to_numpy()
