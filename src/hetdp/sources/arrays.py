"""Values in memory: arrays, lists and series, and the columns of frames that hold Python's objects."""

from __future__ import annotations

import decimal
import math
import numbers
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hetdp.core.cells import Reading, Words
from hetdp.core.domain import epsilon_of, is_missing, value_of
from hetdp.core.levels import epsilon_array
from hetdp.errors import InputError

from .request import Batch, Request, distinct_epsilons

if TYPE_CHECKING:
    import polars as pl

    from hetdp.statistics import Statistic

NOBODY = "there is nobody here (n = 0); a mean needs at least one person"
ALL_DROPPED = "nobody is left: missing='drop' left out everybody, because no cell could be read"
"""With "drop" it is public who has a value, so the message may say that nobody has one."""

_REFUSED = {"c": "complex numbers", "S": "bytes", "M": "dates", "m": "time spans", "V": "records"}


@dataclass(frozen=True, eq=False, repr=False)
class Arrays:
    """Sequences of one length: the values, everybody's ε (or one for all), who each value is about, public columns."""

    values: Any
    epsilon: Any
    ids: Any = None
    public: Mapping[str, Any] = field(default_factory=dict)

    called = ("values in memory",)

    def batches(self, request: Request, *, owner: bool = False) -> Iterator[Batch]:
        """Yield all people as one batch."""
        self.check(request)
        named = self._named
        (category,) = request.reads or (None,)
        values, missing = private_array(self.values, category, owner=owner)
        levels = self._levels(request, values.size)
        if levels.size != values.size:
            raise InputError(f"values and epsilon must have one entry a person (got {values.size} and {levels.size})")
        texts = {}
        for name, column in named.items():
            cells = column.tolist() if hasattr(column, "tolist") else list(column)
            if len(cells) != values.size:
                raise InputError(f"values and {name} must have one entry a row (got {values.size} and {len(cells)})")
            texts[name] = text_series(cells, name)
        if levels.size:
            yield Batch((values,), levels, missing=missing, texts=texts)

    @property
    def _named(self) -> dict[str, Any]:
        return {**({} if self.ids is None else {"ids": self.ids}), **self.public}

    def check(self, request: Request) -> None:  # noqa: ARG002  sequences have no names that could be wrong
        """Raise if series have different row labels, which are public; an array has no names and no header."""
        columns = {"values": self.values, "epsilon": self.epsilon, **self._named}
        for one, other in combinations(columns, 2):
            if _misaligned(columns[one], columns[other]):
                raise InputError(f"{one} and {other} have different row labels; align them first, or pass plain arrays")

    def _levels(self, request: Request, n: int) -> NDArray[np.float64]:
        epsilon = self.epsilon
        if isinstance(epsilon, (numbers.Real, decimal.Decimal)):
            return np.broadcast_to(np.float64(epsilon_of(epsilon)), n)
        if isinstance(epsilon, (Set, Mapping)) or not isinstance(epsilon, Iterable):
            kind = type(epsilon).__name__
            raise InputError(f"epsilon must be one number or a sequence with one a person (got {kind})")
        return level_array(epsilon, request, " at index") if request.tiers else epsilon_array(epsilon)


def _misaligned(one: Any, other: Any) -> bool:
    """Say whether two series have different row labels: never align silently, never ignore a misalignment."""
    ours, theirs = getattr(one, "index", None), getattr(other, "index", None)
    if callable(ours) or callable(theirs) or ours is None or theirs is None:
        return False
    return len(ours) != len(theirs) or not (ours == theirs).all()


def columns_batch(
    columns: Mapping[str, Any],
    places: range,
    request: Request,
    *,
    owner: bool,
) -> Batch:
    """Return the batch of columns that are numpy arrays or sequences of Python's objects."""
    if not isinstance(request.epsilon, str):
        levels = np.full(len(places), request.epsilon)
    else:
        cells = columns[request.epsilon]
        by_cell = request.tiers or not isinstance(cells, np.ndarray) or cells.dtype.kind == "O"
        levels = level_array(cells, request, " in row", places[0]) if by_cell else epsilon_array(cells)
    texts = {name: text_series(columns[name], name) for name in request.texts}
    found = [private_array(columns[name], kind, owner=owner) for name, kind in request.readings]
    missing = found[0][1] if found else None
    at = np.array(places) if owner else None
    return Batch(tuple(array for array, _ in found), levels, "row", missing, at, texts=texts)


def alike_batch(rows: Sequence[tuple[Any, ...]], request: Request) -> Iterator[Batch]:
    """Yield rows as an engine hands them over: the columns asked for, and last how many rows are alike."""
    if not rows:
        return
    *cells, people = zip(*rows, strict=True)
    columns = dict(zip(request.columns, cells, strict=True))
    if isinstance(request.epsilon, str):
        read = distinct_epsilons(columns[request.epsilon], request)
        levels = np.array([read[cell] for cell in columns[request.epsilon]])
    else:
        levels = np.full(len(rows), request.epsilon)
    found = tuple(private_array(columns[name], kind)[0] for name, kind in request.readings)
    texts = {name: text_series(columns[name], name) for name in request.texts}
    yield Batch(found, levels, "row", texts=texts, people=np.array(people, np.int64))


def private_array(
    cells: Any, reading: Reading, *, owner: bool = False
) -> tuple[NDArray[Any], NDArray[np.bool_] | None]:
    """Return a private column as it is to be read, and what is missing (for the owner).

    Only the form of the input (its type, dtype, dimensions) can raise; no single cell can. A list is
    read cell by cell for that reason: numpy would choose dtype and dimensions by what the cells hold, and ask each of
    them whether it is an array.
    """
    categories = reading.categories if isinstance(reading, Words) else reading
    array = _array(cells, "numbers" if reading is None else "numbers or text")
    plain = array is not None and array.dtype.kind in "biuf"
    if array is not None and plain and categories is None:
        return array, np.isnan(array) if owner and array.dtype.kind == "f" else None
    listed = cells if array is None else array.tolist()
    missing = np.array([is_missing(cell) for cell in listed], dtype=bool) if owner else None
    if categories is None:
        return np.array([value_of(cell) for cell in listed], dtype=np.float64), missing
    if (
        array is not None and plain
    ):  # also where no category is a number: one text would have made another kind of array
        with np.errstate(all="ignore"):  # no value may warn
            places = categories.held(array.dtype.name).of_numbers(array.astype(np.float64))
    else:
        places = np.array([categories.index(cell) for cell in listed], dtype=np.int64)
    return reading.of_places(places) if isinstance(reading, Words) else places, missing


def _array(values: Any, kinds: str) -> NDArray[Any] | None:
    """Return values that come as an array, None if they are a list; raise for any other form."""
    if isinstance(values, np.ma.MaskedArray):
        raise InputError("values are a masked array; fill it first (NaN counts as missing): masked.filled(numpy.nan)")
    if isinstance(values, (list, tuple)):
        return None
    if not hasattr(values, "__array__"):
        raise InputError(f"values must be an array, a list or the name of a file (got {type(values).__name__})")
    array = as_array(lambda: np.asarray(values))
    if array.ndim != 1:
        raise InputError(f"values must have one dimension, one entry a person (got {array.ndim} dimensions)")
    if array.dtype.kind in _REFUSED:
        raise InputError(f"values must be {kinds} (got an array of {_REFUSED[array.dtype.kind]})")
    return array


def as_array(made: Callable[[], NDArray[Any]]) -> NDArray[Any]:
    """Return a column as an array, or raise a fixed sentence: what its library says may quote a private cell."""
    try:
        return made()
    except Exception:  # noqa: BLE001, S110  Arrow, for one, raises an error of its own for a text that is not UTF-8
        pass
    raise InputError("a column of values cannot be read; a text in it is perhaps not UTF-8: write the table again")


def level_array(cells: Iterable[Any], request: Request, place: str, first: int = 0) -> NDArray[np.float64]:
    """Return everybody's ε, read cell by cell; a text or a double is read once, however many people have it."""
    read: dict[str | float, float] = {}
    levels: list[float] = []
    for i, cell in enumerate(cells, first):
        level = read.get(cell) if isinstance(cell, (str, float)) else None
        if cell is None:
            raise InputError(f"epsilon is missing{place} {i}; everybody needs one (0 leaves a person out)")
        if level is None:
            level = request.epsilon_of(cell, f"{place} {i}")
            if isinstance(cell, (str, float)):
                read[cell] = level
        levels.append(level)
    return np.array(levels, dtype=np.float64)


def text_series(cells: Iterable[Any], name: str) -> pl.Series:
    """Return ids or groups as text, of texts and whole numbers only: 7.0 and 7 are two texts for one person."""
    import polars as pl

    texts: list[str | None] = []
    for cell in cells:
        text = isinstance(cell, (str, numbers.Integral)) and not isinstance(cell, bool)
        missing = cell is None or (isinstance(cell, float) and math.isnan(cell)) or type(cell).__name__ == "NAType"
        if not text and not missing:
            kind = type(cell).__name__
            raise InputError(f"the column {name!r} must hold text or whole numbers (got {kind}); cast it to text first")
        # half a surrogate pair, which no frame can hold, becomes a question mark
        texts.append(str(cell).encode("utf-8", "replace").decode() if text else None)
    return pl.Series(texts, dtype=pl.String)


def records(people: Any, asked: Statistic, method: str) -> tuple[NDArray[Any], NDArray[np.float64]]:
    """Return everybody's value and ε as arrays, for a method that needs them one by one; from memory only."""
    if people.names or hasattr(people.kind, "query"):
        raise InputError(f"{method} keeps people one by one and works on data in memory only; load the table first")
    if people.asked.person is not None:
        raise InputError(f"{method} keeps people one by one; average each person's rows first")
    parts = list(people.batches())
    if not parts:
        raise InputError(NOBODY)
    values = np.concatenate([np.asarray(part.values) for part in parts])
    epsilon = np.concatenate([part.epsilon for part in parts])
    if isinstance(asked.missing, float):
        return np.where(np.isnan(values), asked.missing, values), epsilon
    keep = ~np.isnan(values) if asked.missing == "drop" else slice(None)
    return values[keep], epsilon[keep]
