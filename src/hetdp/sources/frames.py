"""Frames whose rows are in this process, through narwhals; nothing is imported that the user has not imported.

pandas and the like give one batch of arrays, without a copy where a column is plain. A Polars frame and a PyArrow table
are read column by column, and so are the columns of files: what a cell means is in this module and in `arrays`. A lazy
Polars frame streams. Frames whose rows are elsewhere (DuckDB, Spark, Dask, Ibis) are in `engines`.

Only the names and the types of columns can raise here, and public cells; no private cell can.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import narwhals.stable.v2 as nw
import numpy as np
import polars as pl
from narwhals.exceptions import DuplicateError
from numpy.typing import NDArray
from polars.selectors import by_dtype, by_name

from hetdp.core.domain import BLANKS, LONGEST, MISSING, TRUTH, grouped
from hetdp.errors import InputError

from .arrays import columns_batch, level_array, text_series, value_array
from .request import Batch, Form, Request

if TYPE_CHECKING:
    from .files import Text

Places = Sequence[int] | NDArray[np.int64]
"""Where the rows are in their source."""
Table = TypeVar("Table", pl.DataFrame, pl.LazyFrame)
Result = TypeVar("Result")

ROWS = 2**18
"""Rows of a lazy frame or a columnar file that are read at a time."""

_END = b"\xff\xff\xff\xff\x00\x00\x00\x00"
"""How an Arrow stream ends; without it some people may be missing, and nothing would tell."""

FAILED = (
    "the frame's engine could not finish the query; its message is held back because it may quote values: "
    "count the rows of the frame to see what is wrong"
)


def opened(source: Any) -> Any:
    """Return a frame for narwhals, eager or lazy; None if the source is no frame."""
    try:
        frame = nw.from_native(nw.to_native(source, pass_through=True), pass_through=True)
    except DuplicateError:
        raise InputError("two columns of the frame have the same name; rename one of them") from None
    return frame if isinstance(frame, (nw.DataFrame, nw.LazyFrame)) else None


def is_here(frame: Any) -> bool:
    """Say whether the rows of an open frame are read in this process, not grouped by an engine."""
    return isinstance(frame, nw.DataFrame) or bool(frame.implementation.is_polars())


@dataclass(frozen=True, eq=False)
class Frame:
    """A frame that narwhals has opened: in memory, or a lazy Polars frame."""

    frame: Any

    def batches(self, request: Request, *, owner: bool = False) -> Iterator[Batch]:
        """Yield all people of a frame in memory as one batch, those of a lazy one as they come."""
        frame = self.check(request)
        if not frame.implementation.is_polars():
            if len(frame):
                columns = {name: _column(frame[name]) for name in request.columns}
                columns |= {name: frame[name].to_list() for name in request.texts}
                yield columns_batch(columns, range(len(frame)), request, owner=owner)
            return
        table = frame.to_native().select(by_name(*request.columns))
        if isinstance(table, pl.LazyFrame):
            yield from streamed(table, request, owner=owner)
        elif table.height:
            yield batch_of(table, range(table.height), request, owner=owner)

    def check(self, request: Request) -> Any:
        """Return the frame; raise if a column is not there or has the wrong type. No row is read."""
        frame = self.frame
        if frame.implementation.is_polars() or frame.implementation.is_pyarrow():
            frame = told(
                lambda: nw.from_native(plain_types(_polars(frame))),
                "the columns of the frame cannot be read; cast them to plain types first",
            )
        check_columns(frame, request)
        return frame


def plain_types(table: Table) -> Table:
    """Return a Polars frame in which a column of nulls alone is one of numbers."""
    return table.with_columns(by_dtype(pl.Null).cast(pl.Float64))


def told(call: Callable[[], Result], sentence: str) -> Result:
    """Return what a call returns, or raise a fixed sentence.

    What a library says may quote a private cell. It is not passed on, and our own error is raised outside the handler,
    so that not even the chain of exceptions holds it; the same is done everywhere in `sources`.
    """
    try:
        return call()
    except InputError:
        raise
    except (Exception, pl.exceptions.PanicException):  # noqa: BLE001, S110  a lazy frame may be broken in any way
        pass
    raise InputError(sentence)


def _polars(frame: Any) -> Any:
    """Return a Polars frame, or a PyArrow table as one if Polars knows its types; where it does not, it may panic."""
    table = frame.to_native()
    if frame.implementation.is_polars():
        return table
    for field in table.schema:
        if str(field.type).startswith("decimal256"):
            raise InputError(
                f"the column {field.name!r} is a {field.type}, which is wider than any number here; cast it to float64"
            )
    return pl.DataFrame(table)


def check_columns(frame: Any, request: Request, path: Path | None = None, *, in_engine: bool = False) -> None:
    """Refuse columns that are not there or have the wrong type; names and types are public.

    An engine groups by itself and cannot read Python's objects, nor numbers from text.
    """
    broken = "the columns of the frame cannot be found out; is the query behind it sound?"
    schema, where = told(lambda: dict(frame.collect_schema()), broken), path or "the frame"
    for name in request.columns:
        if name not in schema:
            raise InputError(f"{where} has no column {name!r}; its columns are {', '.join(map(repr, schema))}")
        alike = [column for column in schema if str(column).casefold() == name.casefold()]
        if in_engine and len(alike) > 1:
            raise InputError(
                f"the columns {alike[0]!r} and {alike[1]!r} differ by case alone; engines take them for one"
            )
    texts = (nw.String, nw.Categorical, nw.Enum, *(() if in_engine else (nw.Object,)))
    values = (nw.Boolean, *(() if in_engine else (nw.String, nw.Object)))

    def need(fits: Callable[[Any], bool], column: str, name: str | None, kind: str, remedy: str) -> None:
        if name is not None and not fits(schema[name]):
            what = f"the {column} {name!r}{'' if path is None else f' of {path}'}"
            raise InputError(f"{what} must hold {kind} (got {schema[name]}); {remedy}")

    level = request.epsilon if isinstance(request.epsilon, str) else None
    need(lambda k: k.is_numeric() or isinstance(k, texts), "epsilon column", level, "numbers or text", "cast it first")
    need(lambda k: str(k) != "Float16", "epsilon column", level, "more than half precision", "use Float64")
    remedy = "cast it yourself, so that what cannot be read becomes null: try_cast(… as double)"
    need(lambda k: k.is_numeric() or isinstance(k, values), "value column", request.value, "numbers", remedy)
    for name in request.texts:
        whole = "text or whole numbers"
        need(lambda k: k.is_integer() or isinstance(k, texts), "column", name, whole, "cast it to text first")


def _column(column: nw.Series[Any]) -> NDArray[Any]:
    """Return a column of a pandas frame or one like it; a nullable column of booleans would be one of objects."""
    return (column.cast(nw.Float64) if isinstance(column.dtype, nw.Boolean) else column).to_numpy()


def streamed(scan: pl.LazyFrame, request: Request, *, owner: bool, text: Text | None = None) -> Iterator[Batch]:
    """Yield the rows of a lazy Polars frame, or of the file that it scans, as they come."""
    parts: Any = None
    path = None if text is None else text.path
    row, rows, first = 0, -1, 0 if path is None else 1  # in a file people count from 1
    try:
        rows = scan.select(pl.len()).collect(engine="streaming").item()
        parts = scan.collect_batches(chunk_size=ROWS, maintain_order=True)
        for part in parts:
            if part.height:
                places = range(first + row, first + row + part.height)
                yield batch_of(part, places, request, path=path, owner=owner)
            row += part.height
            if text is not None:
                text.consumed = text.path.stat().st_size * row // max(1, rows)
    except InputError:
        raise
    except (Exception, pl.exceptions.PanicException):  # noqa: BLE001  a function of the user's may raise anything
        rows = -1
    finally:
        if hasattr(parts, "_fut"):  # Polars 1 would print why a query failed, which may quote a cell, at the end
            parts._fut = None
    if row != rows:  # batches end without a word when a thread behind them fails
        raise InputError(FAILED if path is None else f"{path} cannot be read to its end; the file may be damaged")


# ---------------------------------------------------------------------------------------------------------
# Parquet and Arrow files are scanned by Polars; only the columns asked for are touched


def batches(text: Text, request: Request, *, owner: bool) -> Iterator[Batch]:
    """Yield the people of a Parquet or Arrow file, some hundred thousand rows at a time."""
    yield from streamed(check(text, request).select(by_name(*request.columns)), request, owner=owner, text=text)


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


# ---------------------------------------------------------------------------------------------------------
# What the cells of a Polars column mean, by the rules of `core.domain`


def batch_of(
    frame: pl.DataFrame,
    places: Places,
    request: Request,
    *,
    path: Path | None = None,
    odd: NDArray[np.bool_] | None = None,
    owner: bool = False,
) -> Batch:
    """Return the batch of a Polars frame that has the columns asked for; no private cell can raise.

    `path` is the file that they come from. In a frame of the user's the names of booleans count as 1 and 0, see
    `core.domain.loose_value_of`. `odd` are the lines of a text file that are not plain: an ε there may be a piece of a
    value. Whether a line is plain depends on its value, so no ε of a text file is quoted, on whatever line.
    """
    place = "row" if odd is None else "line"
    if isinstance(request.epsilon, str):
        where = f" in {place}", "" if path is None else f" of {path}"
        levels = epsilons_of(frame[request.epsilon], places, where, request, quotes=odd is None)
    else:
        levels = np.full(frame.height, request.epsilon)
    texts = {}
    for name in request.texts:
        objects = frame[name].dtype == pl.Object
        texts[name] = text_series(frame[name].to_list(), name) if objects else frame[name].cast(pl.String)
    if request.value is None:
        return Batch(None, levels, place, texts=texts)
    cells = frame[request.value]
    if cells.dtype == pl.Object:
        values, missing = value_array(cells.to_list(), owner=owner)
    else:
        values = values_of(cells, request.form, words=path is None)
        missing = missing_of(cells) if owner else None
    return Batch(values, levels, place, missing, np.asarray(places) if owner else None, odd, texts)


def _exact(cells: pl.Series) -> pl.Series:
    """Return decimals as text, from which the nearest double is read: Polars 1 casts some of them to a neighbour."""
    return cells.cast(pl.String) if cells.dtype.is_decimal() else cells


def values_of(cells: pl.Series, form: Form = Form(), *, words: bool = False) -> NDArray[np.float64]:  # noqa: B008
    """Return private cells as doubles, NaN where one is missing or unreadable. No cell can raise.

    Polars' lenient cast of text knows the same notation as `core.domain.value_of`; a test holds them to it.
    """
    cells = _exact(cells)
    numbers = _read(cells, form)[1] if cells.dtype == pl.String else cells.cast(pl.Float64, strict=False)
    values = (numbers.fill_null(np.nan) if numbers.has_nulls() else numbers).to_numpy()
    if not words or cells.dtype != pl.String:
        return values
    truth = cells.str.strip_chars(BLANKS).replace_strict(TRUTH, default=None, return_dtype=pl.Float64)
    return np.where(truth.is_null().to_numpy(), values, truth.fill_null(0.0).to_numpy())


def missing_of(cells: pl.Series) -> NDArray[np.bool_]:
    """Say which private cells are missing rather than unreadable; for the owner's `check` alone."""
    if cells.dtype == pl.String:
        return cells.fill_null("").str.strip_chars(BLANKS).str.to_lowercase().is_in(list(MISSING)).to_numpy()
    return (cells.is_null() | cells.cast(pl.Float64, strict=False).is_nan().fill_null(value=False)).to_numpy()


def epsilons_of(
    cells: pl.Series, places: Places, where: tuple[str, str], request: Request, *, quotes: bool = True
) -> NDArray[np.float64]:
    """Return public ε cells as doubles; a bad one raises and names its place: `where` stands around its number."""
    before, after = where
    cells = _exact(cells)
    if cells.dtype == pl.Object:
        return level_array(cells.to_list(), request, before, places[0])
    if cells.has_nulls():
        at = places[int(cells.is_null().arg_true()[0])]
        raise InputError(f"epsilon is missing{before} {at}{after}; everybody needs one (0 leaves a person out)")
    if cells.dtype.is_numeric():
        if request.tiers:
            raise InputError(f"the epsilon column must hold the names of tiers (got a column of type {cells.dtype})")
        levels = cells.cast(pl.Float64).to_numpy()
        if not levels.min(initial=0) >= 0:  # also finds NaN
            bad = int(np.argmin(levels >= 0))
            request.epsilon_of(float(levels[bad]), f"{before} {places[bad]}{after}")
        return levels
    text, numbers = cells.cast(pl.String), pl.zeros(cells.len(), pl.Float64, eager=True)
    doubtful = pl.repeat(value=True, n=cells.len(), eager=True)
    if not request.tiers:
        text, numbers = _read(text, request.form)
        # `core.domain` decides about what is no plain positive number: 05, which may be the end of 0,05, is refused
        doubtful = ~(numbers.is_finite() & (numbers > 0)).fill_null(value=False)
        doubtful |= (text.str.starts_with("0") & ~text.str.starts_with("0.")) | text.str.starts_with("+")
        doubtful |= text.str.len_bytes() > LONGEST
    left = doubtful.arg_true()
    if left.len():  # `public`, names of tiers, errors: each distinct cell is read in Python
        some = text.gather(left)
        distinct = pl.DataFrame({"cell": some, "at": left}).group_by("cell").agg(pl.col("at").min()).sort("at")
        read = [
            request.epsilon_of(cell, f"{before} {places[at]}{after}", quotes=quotes)
            for cell, at in distinct.iter_rows()
        ]
        numbers = numbers.scatter(left, some.replace_strict(distinct["cell"], read, return_dtype=pl.Float64))
    return numbers.to_numpy()


def _read(cells: pl.Series, form: Form) -> tuple[pl.Series, pl.Series]:
    """Return texts as `core.domain` reads them, and their numbers; null where there is none.

    That is with a point, without blanks around and signs between thousands. Most columns are written so already.
    """
    numbers = cells.cast(pl.Float64, strict=False)
    if form.decimal == "." and not numbers.has_nulls():
        return cells, numbers
    text = cells.str.strip_chars(BLANKS)
    if form.thousands is not None:
        known = text.str.contains(grouped(form.decimal, form.thousands))
        without = text.str.replace_all(form.thousands, "", literal=True)
        text = pl.select(pl.when(known).then(without).otherwise(text)).to_series()
    if form.decimal != ".":
        text = text.str.replace_all(".", "?", literal=True).str.replace_all(form.decimal, ".", literal=True)
    return text, text.cast(pl.Float64, strict=False)
