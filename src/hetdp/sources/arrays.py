"""Arrays, lists and series in memory."""

from __future__ import annotations

import decimal
import numbers
from collections.abc import Iterable, Iterator, Mapping, Set
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hetdp.core.cells import epsilon_of, is_missing, loose_value_of
from hetdp.core.levels import epsilon_array
from hetdp.errors import InputError

from ._batch import Batch, Tiers

if TYPE_CHECKING:
    import polars as pl

_REFUSED = {"c": "complex numbers", "S": "bytes", "M": "dates", "m": "time spans", "V": "records"}


def batches(values: Any, epsilon: Any, tiers: Tiers, ids: Any = None, *, owner: bool = False) -> Iterator[Batch]:
    """Yield all people of two sequences of one length (three with ids) as one batch."""
    _aligned("values", values, "epsilon", epsilon)
    _aligned("values", values, "ids", ids)
    _aligned("epsilon", epsilon, "ids", ids)
    numbers_of, missing = value_array(values, owner=owner)
    levels = _epsilons(epsilon, tiers, numbers_of.size)
    if levels.size != numbers_of.size:
        raise InputError(f"values and epsilon must have one entry a person (got {numbers_of.size} and {levels.size})")
    if levels.size:
        texts = {} if ids is None else {"ids": _ids(ids, levels.size)}
        yield Batch(numbers_of, levels, missing=missing, texts=texts)


def _ids(ids: Any, n: int) -> pl.Series:
    """Return ids as text: of texts and whole numbers only, because 7.0 and 7 are two texts for one person."""
    import polars as pl

    cells = ids.tolist() if hasattr(ids, "tolist") else list(ids)
    if len(cells) != n:
        raise InputError(f"values and ids must have one entry a row (got {n} and {len(cells)})")
    for i, cell in enumerate(cells):
        if not isinstance(cell, (str, numbers.Integral, type(None))) or isinstance(cell, bool):
            raise InputError(f"an id must be a text or a whole number (got {type(cell).__name__} at index {i})")
    return pl.Series([None if cell is None else str(cell) for cell in cells], dtype=pl.String)


def _epsilons(epsilon: Any, tiers: Tiers, n: int) -> NDArray[np.float64]:
    if isinstance(epsilon, (numbers.Real, decimal.Decimal)):
        return np.broadcast_to(np.float64(epsilon_of(epsilon)), n)
    if isinstance(epsilon, (Set, Mapping)) or not isinstance(epsilon, Iterable):
        raise InputError(f"epsilon must be one number or a sequence with one a person (got {type(epsilon).__name__})")
    if tiers:
        return np.array([tiers.epsilon_of(cell, f" at index {i}") for i, cell in enumerate(epsilon)], dtype=np.float64)
    return epsilon_array(epsilon)


def value_array(values: Any, *, owner: bool = False) -> tuple[NDArray[Any], NDArray[np.bool_] | None]:
    """Return the values as an array of numbers, NaN where a cell cannot be read, and what is missing (for the owner).

    Only the form of the input (its type, dtype, dimensions) can raise; no single cell can. A list is
    read cell by cell for that reason: numpy would choose dtype and dimensions by what the cells hold, and ask each of
    them whether it is an array.
    """
    if isinstance(values, np.ma.MaskedArray):
        raise InputError("values are a masked array; fill it first (NaN counts as missing): masked.filled(numpy.nan)")
    if isinstance(values, (list, tuple)):
        return _read(list(values), owner=owner)
    if not hasattr(values, "__array__"):
        raise InputError(f"values must be an array, a list or the name of a file (got {type(values).__name__})")
    array = np.asarray(values)
    if array.ndim != 1:
        raise InputError(f"values must have one dimension, one entry a person (got {array.ndim} dimensions)")
    if array.dtype.kind in _REFUSED:
        raise InputError(f"values must be numbers (got an array of {_REFUSED[array.dtype.kind]})")
    if array.dtype.kind in "biuf":
        return array, np.isnan(array) if owner and array.dtype.kind == "f" else None
    return _read(array.tolist(), owner=owner)


def _read(cells: list[Any], *, owner: bool) -> tuple[NDArray[np.float64], NDArray[np.bool_] | None]:
    missing = np.array([is_missing(cell) for cell in cells], dtype=bool) if owner else None
    return np.array([loose_value_of(cell) for cell in cells], dtype=np.float64), missing


def _aligned(what: str, one: Any, other_what: str, other: Any) -> None:
    """Refuse two series whose rows have different labels: never align silently, never ignore a misalignment."""
    ours, theirs = getattr(one, "index", None), getattr(other, "index", None)
    if callable(ours) or callable(theirs) or ours is None or theirs is None:
        return
    if len(ours) != len(theirs) or not (ours == theirs).all():
        raise InputError(f"{what} and {other_what} have different row labels; align them first, or pass plain arrays")
