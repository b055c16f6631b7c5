"""Frames that the user already has, through narwhals; nothing is imported that the user has not imported.

Frames in memory (pandas, Polars, PyArrow, Modin) give one batch of arrays, without a copy where a column is plain. The
rows of others (DuckDB, Spark, Dask, Ibis) stay where they are, see `_pushdown`; a lazy Polars frame streams, and so
does DuckDB, which runs in this process, when only numbers are asked for: `tally` groups them sooner than its SQL.

Only the names and the types of columns can raise here, and public cells; no private cell can.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hetdp.core.cells import BLANKS, TRUTH
from hetdp.core.domain import Interval
from hetdp.core.levels import epsilon_array
from hetdp.errors import InputError
from hetdp.tally.groupby import Grouping

from . import _arrow, _people, _pushdown
from ._asked import Asked, Tables
from ._batch import Batch, Tiers
from ._columns import epsilons_of, missing_of, values_of
from .arrays import value_array

if TYPE_CHECKING:
    import narwhals.stable.v2 as nw
    import polars as pl

_ROWS = 2**20
_IBIS = ("duckdb", "pyspark")
_NO_FRAMES = ("builtins", "numpy", "pathlib", "array", "collections")


def is_frame(source: Any) -> bool:
    """Say whether a source is a frame, eager or lazy."""
    if type(source).__module__.partition(".")[0] in _NO_FRAMES:  # most sources: narwhals need not be loaded
        return False
    import narwhals.stable.v2 as nw

    return isinstance(_opened(source), (nw.DataFrame, nw.LazyFrame))


def is_lazy(frame: Any) -> bool:
    """Say whether the rows of a frame are not in this process's memory yet."""
    import narwhals.stable.v2 as nw

    return isinstance(_opened(frame), nw.LazyFrame)


def batches(frame: Any, asked: Asked, tiers: Tiers, *, owner: bool = False) -> Iterator[Batch]:
    """Yield all people of a frame in memory as one batch."""
    opened = check(frame, asked)
    columns = opened.select(*asked.columns)
    if columns.implementation.is_polars():
        yield from _polars_batch(columns.to_native(), 0, asked, tiers, owner=owner)
    elif len(columns):
        yield _arrays_batch(columns, asked, tiers, owner=owner)


def check(frame: Any, asked: Asked) -> Any:
    """Return a frame for narwhals; raise if a column is not there or has the wrong type. No row is read."""
    opened = _plain(_opened(frame))
    _check(opened, asked)
    return opened


def tables(frame: Any, asked: Asked, interval: Interval | None, tiers: Tiers) -> Tables:
    """Return the tables of the groups of a lazy frame; only sums leave its engine, and Polars streams its rows."""
    opened = _plain(_opened(frame))
    _sound(opened)
    _check(opened, asked)
    if opened.implementation.is_polars():
        return _people.tables(_streamed(opened.select(*asked.columns).to_native(), asked, tiers), asked, interval)
    if opened.implementation.is_duckdb() and not asked.texts and not tiers and interval is not None:
        stream = _stream(opened, asked)
        if stream is not None:
            return _shared(stream, asked, interval)
    return _pushdown.tables(opened, asked, interval, tiers)


def _stream(frame: nw.LazyFrame[Any], asked: Asked) -> Any:
    """Return the values, and everybody's ε if it is a column of doubles, as an Arrow stream; None if there is none."""
    import narwhals.stable.v2 as nw

    columns = [nw.col(str(asked.value)).cast(nw.Float64).alias("value")]
    if isinstance(asked.epsilon, str):
        if frame.collect_schema()[asked.epsilon] != nw.Float64:
            return None  # read cell by cell: an ε is never rounded by an engine
        columns.append(nw.col(asked.epsilon).alias("epsilon"))
    try:
        return frame.select(*columns).to_native().__arrow_c_stream__()
    except (AttributeError, ImportError):  # an older DuckDB
        return None
    except Exception:  # noqa: BLE001, S110  a broken or interrupted query: what it says may quote a cell
        pass
    raise InputError(_pushdown.FAILED)


def _shared(stream: Any, asked: Asked, interval: Interval) -> Tables:
    """Return the table of the people in an Arrow stream."""
    grouping, rows, failed = Grouping(interval), 0, False
    try:
        with closing(_arrow.doubles(stream)) as batches:
            for values, *levels in batches:
                epsilon = levels[0] if levels else np.full(values.size, asked.epsilon)
                grouping.add(epsilon, values, place="in row", start=rows)
                rows += values.size
    except _arrow.StreamError:
        failed = True
    if failed:
        raise InputError(_pushdown.FAILED)
    return {"": grouping.table()} if rows else {}


def _opened(source: Any) -> Any:
    import narwhals.stable.v2 as nw
    from narwhals.exceptions import DuplicateError

    try:
        return nw.from_native(nw.to_native(source, pass_through=True), pass_through=True)
    except DuplicateError:
        raise InputError("two columns of the frame have the same name; rename one of them") from None


def _sound(frame: Any) -> None:
    """Refuse Ibis over an engine whose arithmetic can raise for a value: PostgreSQL does when a quotient underflows."""
    if frame.implementation.is_ibis():
        engine = frame.to_native().get_backend().name
        if engine not in _IBIS:
            raise InputError(
                f"Ibis is read over {' and '.join(_IBIS)} only (got {engine}); give a database by its URL and a query"
            )


def _plain(frame: Any) -> Any:
    """Return a PyArrow table as a Polars frame, without a copy; a Polars column of nulls alone is one of numbers."""
    import narwhals.stable.v2 as nw
    import polars as pl
    from polars.selectors import by_dtype

    if not (frame.implementation.is_polars() or frame.implementation.is_pyarrow()):
        return frame
    native = frame.to_native()
    try:
        table = native if frame.implementation.is_polars() else pl.DataFrame(_known(native))
        return nw.from_native(table.with_columns(by_dtype(pl.Null).cast(pl.Float64)))
    except InputError:
        raise
    except (Exception, pl.exceptions.PanicException):  # noqa: BLE001, S110  a broken query; it may quote a cell
        pass
    raise InputError("the columns of the frame cannot be read; cast them to plain types first")


def _known(table: Any) -> Any:
    """Return a PyArrow table if Polars knows the types of its columns; where it does not, it may panic."""
    for field in table.schema:
        if str(field.type).startswith("decimal256"):
            raise InputError(
                f"the column {field.name!r} is a {field.type}, which is wider than any number here; cast it to float64"
            )
    return table


def _check(frame: nw.DataFrame[Any] | nw.LazyFrame[Any], asked: Asked) -> None:
    """Refuse columns that are not there or have the wrong type; names and types are public."""
    import narwhals.stable.v2 as nw

    schema = _schema(frame)
    for name in asked.columns:
        alike = [column for column in schema if str(column).casefold() == name.casefold()]
        if name not in schema:
            raise InputError(f"the frame has no column {name!r}; its columns are {', '.join(map(repr, schema))}")
        if len(alike) > 1 and _in_engine(frame):
            raise InputError(
                f"the columns {alike[0]!r} and {alike[1]!r} differ by case alone; engines take them for one"
            )
    if isinstance(asked.epsilon, str):
        _check_epsilon(schema[asked.epsilon], asked.epsilon, in_engine=_in_engine(frame))
    if asked.value is not None:
        _check_value(schema[asked.value], asked.value, in_engine=_in_engine(frame))
    for name in asked.texts:
        kind = schema[name]
        if not (kind.is_integer() or _is_text(kind) or (isinstance(kind, nw.Object) and not _in_engine(frame))):
            raise InputError(f"the column {name!r} must hold text or whole numbers (got {kind}); cast it to text first")


def _schema(frame: nw.DataFrame[Any] | nw.LazyFrame[Any]) -> dict[str, Any]:
    try:
        return dict(frame.collect_schema())
    except Exception:  # noqa: BLE001, S110  a lazy frame may be broken in any way, and say so with a cell of its data
        pass
    raise InputError("the columns of the frame cannot be found out; is the query behind it sound?")


def _in_engine(frame: nw.DataFrame[Any] | nw.LazyFrame[Any]) -> bool:
    import narwhals.stable.v2 as nw

    return isinstance(frame, nw.LazyFrame) and not frame.implementation.is_polars()


def _is_text(kind: nw.dtypes.DType) -> bool:
    import narwhals.stable.v2 as nw

    return isinstance(kind, (nw.String, nw.Categorical, nw.Enum))


def _check_epsilon(kind: nw.dtypes.DType, name: str, *, in_engine: bool) -> None:
    import narwhals.stable.v2 as nw

    if isinstance(kind, nw.Float16):
        raise InputError(
            f"the epsilon column {name!r} has half precision, which is too coarse for a promise; use Float64"
        )
    if not (kind.is_numeric() or _is_text(kind) or (isinstance(kind, nw.Object) and not in_engine)):
        raise InputError(f"the epsilon column {name!r} must hold numbers or text (got {kind}); cast it first")


def _check_value(kind: nw.dtypes.DType, name: str, *, in_engine: bool) -> None:
    import narwhals.stable.v2 as nw

    if kind.is_numeric() or isinstance(kind, nw.Boolean):
        return
    if not in_engine and (isinstance(kind, (nw.String, nw.Object))):
        return
    remedy = "cast it yourself, so that what cannot be read becomes null: try_cast(… as double)"
    raise InputError(f"the value column {name!r} must hold numbers (got {kind}); {remedy}")


def _streamed(frame: pl.LazyFrame, asked: Asked, tiers: Tiers) -> Iterator[Batch]:
    """Yield the rows of a lazy Polars frame as they come."""
    import polars as pl

    row, rows = 0, -1
    try:
        for part in frame.collect_batches(chunk_size=_ROWS, maintain_order=True):
            yield from _polars_batch(part, row, asked, tiers, owner=False)
            row += part.height
        rows = frame.select(pl.len()).collect(engine="streaming").item()
    except InputError:
        raise
    except (Exception, pl.exceptions.PanicException):  # noqa: BLE001, S110  a function of the user's may raise anything
        pass
    if row != rows:  # batches end without a word when a thread behind them fails
        raise InputError(_pushdown.FAILED)


def _polars_batch(frame: pl.DataFrame, first: int, asked: Asked, tiers: Tiers, *, owner: bool) -> Iterator[Batch]:
    """Yield the batch of a Polars frame, unless it is empty."""
    import polars as pl

    if not frame.height:
        return
    levels = _polars_levels(frame, first, asked.epsilon, tiers)
    texts = {name: _polars_texts(frame[name]) for name in asked.texts}
    if asked.value is None:
        yield Batch(None, levels, "row", texts=texts)
        return
    cells = frame[asked.value]
    places = np.arange(first, first + frame.height) if owner else None
    if cells.dtype == pl.Object:
        values, missing = value_array(cells.to_list(), owner=owner)
    else:
        values, missing = _polars_values(cells), missing_of(cells) if owner else None
    yield Batch(values, levels, "row", missing, places, texts=texts)


def _polars_texts(cells: pl.Series) -> pl.Series:
    """Return ids or groups as text; a column of Python's objects is read cell by cell."""
    import polars as pl

    return _texts(cells.to_list(), cells.name) if cells.dtype == pl.Object else cells.cast(pl.String)


def _polars_values(cells: pl.Series) -> NDArray[np.float64]:
    """Return the values of a column; in one of text the names of booleans count, see `core.cells.loose_value_of`."""
    import polars as pl

    values = values_of(cells)
    if cells.dtype != pl.String:
        return values
    truth = cells.str.strip_chars(BLANKS).replace_strict(TRUTH, default=None, return_dtype=pl.Float64)
    return np.where(truth.is_null().to_numpy(), values, truth.fill_null(0.0).to_numpy())


def _polars_levels(frame: pl.DataFrame, first: int, epsilon: str | float, tiers: Tiers) -> NDArray[np.float64]:
    """Return everybody's ε, a column of doubles without a copy."""
    import polars as pl

    if not isinstance(epsilon, str):
        return np.full(frame.height, epsilon)
    cells = frame[epsilon]
    if cells.dtype == pl.Object:
        return _levels(cells.to_list(), tiers, first)
    text = cells.cast(pl.String) if isinstance(cells.dtype, (pl.Categorical, pl.Enum)) else cells
    return epsilons_of(text, range(first, first + frame.height), "row", tiers)


def _arrays_batch(frame: nw.DataFrame[Any], asked: Asked, tiers: Tiers, *, owner: bool) -> Batch:
    """Return the batch of a pandas frame or one like it."""
    import narwhals.stable.v2 as nw

    if isinstance(asked.epsilon, str):
        cells = frame[asked.epsilon].to_numpy()
        plain = not tiers and cells.dtype.kind != "O"
        levels = epsilon_array(cells) if plain else _levels(cells.tolist(), tiers)
    else:
        levels = np.full(len(frame), asked.epsilon)
    texts = {name: _texts(frame[name].to_list(), name) for name in asked.texts}
    if asked.value is None:
        return Batch(None, levels, "row", texts=texts)
    column = frame[asked.value]
    numbers_of = column.cast(nw.Float64) if isinstance(column.dtype, nw.Boolean) else column
    values, missing = value_array(numbers_of.to_numpy(), owner=owner)
    return Batch(values, levels, "row", missing, np.arange(len(frame)) if owner else None, texts=texts)


def _levels(cells: list[Any], tiers: Tiers, first: int = 0) -> NDArray[np.float64]:
    """Return everybody's ε; a text is read once, however many people have it."""
    read: dict[str, float] = {}
    levels = np.empty(len(cells))
    for i, cell in enumerate(cells):
        level = read.get(cell) if isinstance(cell, str) else None
        if level is None:
            level = tiers.epsilon_of(cell, f" in row {first + i}")
            if isinstance(cell, str):
                read[cell] = level
        levels[i] = level
    return levels


def _texts(cells: list[Any], name: str) -> pl.Series:
    """Return ids or groups as text, of texts and whole numbers only: 7.0 and 7 are two texts for one person."""
    import polars as pl

    texts: list[str | None] = []
    for cell in cells:
        text = isinstance(cell, (str, numbers.Integral)) and not isinstance(cell, bool)
        missing = cell is None or (isinstance(cell, float) and math.isnan(cell)) or type(cell).__name__ == "NAType"
        if not text and not missing:
            kind = type(cell).__name__
            raise InputError(f"the column {name!r} must hold text or whole numbers (got {kind}); cast it to text first")
        texts.append(str(cell) if text else None)
    return pl.Series(texts, dtype=pl.String)
