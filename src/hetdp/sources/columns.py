"""Columns of Polars: what their cells mean, by the rules of `core.domain`, and where they come from.

Text files, Parquet and Arrow files, Polars frames and PyArrow tables are read by columns; a lazy frame streams. Only
the names and the types of columns can raise here, and public cells; no private cell can.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import polars as pl
from numpy.typing import NDArray
from polars.selectors import by_dtype, by_name

from hetdp.core.cells import Categories, Reading, Words
from hetdp.core.domain import BLANKS, EMPTY, LONGEST, MISSING, TRUTH, UNREADABLE, grouped, is_missing
from hetdp.errors import InputError

from .arrays import level_array, private_array, text_series
from .request import Batch, Form, Request

if TYPE_CHECKING:
    from .files import Text

Places = Sequence[int] | NDArray[np.int64]
"""Where the rows are in their source."""
Result = TypeVar("Result")

ROWS = 2**18
"""Rows of a lazy frame or a columnar file that are read at a time."""

_END = b"\xff\xff\xff\xff\x00\x00\x00\x00"
"""How an Arrow stream ends; without it some people may be missing, and nothing would tell."""

FAILED = (
    "the frame's engine could not finish the query; its message is held back because it may quote values: "
    "count the rows of the frame to see what is wrong"
)


def plain_types(table: Any) -> Any:
    """Return a Polars frame, lazy or not, in which a column of nulls alone is one of numbers."""
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


def streamed(scan: pl.LazyFrame, request: Request, *, owner: bool, text: Text | None = None) -> Iterator[Batch]:
    """Yield the rows of a lazy Polars frame, or of the file that it scans, as they come."""
    path, row = None if text is None else text.path, 0
    first = 0 if path is None else 1  # in a file people count from 1
    failed = FAILED if path is None else f"{path} cannot be read to its end; the file may be damaged"
    rows = told(lambda: scan.select(pl.len()).collect(engine="streaming").item(), failed)
    alike = not owner and _alike(scan, request)
    size = 16 * ROWS if alike else ROWS
    parts: Any = told(lambda: scan.collect_batches(chunk_size=size, maintain_order=True), failed)
    try:
        while (part := told(lambda: next(parts, None), failed)) is not None:
            places = range(first + row, first + row + part.height)
            if part.height:
                read = partial(batch_of, request=request, path=path, owner=owner)
                yield told(
                    partial(_counted, part, places, request, read) if alike else partial(read, part, places), failed
                )
            row += part.height
            if text is not None:
                text.consumed = text.path.stat().st_size * row // max(1, rows)
    finally:
        if hasattr(parts, "_fut"):  # Polars 1 would print why a query failed, which may quote a cell, at the end
            parts._fut = None
    if row != rows:  # batches end without a word when a thread behind them fails
        raise InputError(failed)


def _alike(scan: pl.LazyFrame, request: Request) -> bool:
    """Say whether people are only sorted into categories, by a column that likely holds few different cells."""
    if request.texts or not request.readings or not all(isinstance(kind, Categories) for _, kind in request.readings):
        return False
    kinds = [scan.collect_schema()[name] for name in request.private]
    return all(kind == pl.String or kind in (pl.Categorical, pl.Enum) or kind.is_integer() for kind in kinds)


def _counted(part: pl.DataFrame, places: Places, request: Request, read: Callable[..., Batch]) -> Batch:
    """Return rows with rows that are alike as one: Polars counts them much faster than they are read one by one.

    If an ε is bad, all rows are read after all, and the error names the right one.
    """
    few = (
        part.lazy()
        .group_by(request.columns)
        .agg(pl.len().alias("".join(request.columns) + "+"))
        .collect(engine="streaming")
    )
    try:
        return replace(read(few, range(few.height)), people=few.to_series(-1).cast(pl.Int64).to_numpy())
    except InputError:
        return read(part, places)


# ---------------------------------------------------------------------------------------------------------
# Parquet and Arrow files are scanned by Polars; only the columns asked for are touched


def batches(text: Text, request: Request, *, owner: bool) -> Iterator[Batch]:
    """Yield the people of a Parquet or Arrow file, some hundred thousand rows at a time."""
    yield from streamed(check(text, request).select(by_name(*request.columns)), request, owner=owner, text=text)


def check(text: Text, request: Request) -> Any:
    """Return the table of a file, no row of it read; raise if a column is not there or has the wrong type."""
    scan = _scan(text.path, text.magic)
    scan.collect_schema()  # a damaged file raises here
    scan = plain_types(scan)
    check_columns(scan, request, text.path)
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
    known: Mapping[int, NDArray[np.int64]] | None = None,
) -> Batch:
    """Return the batch of a Polars frame that has the columns asked for; no private cell can raise.

    `path` is the file that they come from. `odd` are the lines of a text file that are not plain: an ε there may be a
    piece of a value. Whether a line is plain depends on its value, so no ε of a text file is quoted, on whatever line.
    `known` are places among categories that the reader has found already, by the number of the reading.
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
    found = list[NDArray[Any]]()
    for i, (name, reading) in enumerate(request.readings):
        cells = frame[name]
        if known is not None and i in known:
            found.append(reading.of_places(known[i]) if isinstance(reading, Words) else known[i])
        elif cells.dtype == pl.Object:
            found.append(private_array(cells.to_list(), reading, owner=owner)[0])
        elif reading is None:
            found.append(values_of(cells, request.form))
        elif isinstance(reading, Words):
            found.append(reading.of_places(places_of(cells, reading.categories, request.form)))
        else:
            found.append(places_of(cells, reading, request.form))
    missing = missing_of(frame[request.private[0]]) if owner and found else None
    return Batch(tuple(found), levels, place, missing, np.asarray(places) if owner else None, odd, texts)


def places_of(cells: pl.Series, categories: Categories, form: Form = Form()) -> NDArray[np.int64]:  # noqa: B008
    """Return the places of private cells among categories. No cell can raise."""
    if isinstance(cells.dtype, pl.Decimal) and cells.dtype.scale:
        categories = categories.held("decimal")
    cells = _plain(cells)
    if cells.dtype != pl.String:
        return categories.held(str(cells.dtype)).of_numbers(values_of(cells, form))
    other, found = len(categories.names), np.full(cells.len(), -1)
    if categories.textual:
        names, places = list(categories.names), list(range(other))
        found = cells.replace_strict(names, places, default=-1, return_dtype=pl.Int64).to_numpy()
    rest = np.full(cells.len(), other)
    if categories.numeric:
        number = categories.written.of_numbers(values_of(cells, form))
        rest = np.minimum(number, other)  # a text that is no number is not missing
    if categories.apart:
        none = missing_of(cells, categories.absent)
        none |= cells.str.contains(UNREADABLE, literal=True).fill_null(value=False).to_numpy()
        rest = np.where((rest == other) & none, other + 1, rest)
    return np.where(found < 0, rest, found)


def _plain(cells: pl.Series) -> pl.Series:
    """Return texts of any type as text, and decimals too: Polars 1 casts some of them to a neighbour of the nearest."""
    text = cells.dtype in (pl.Categorical, pl.Enum) or cells.dtype.is_decimal()
    return cells.cast(pl.String) if text else cells


def values_of(cells: pl.Series, form: Form = Form()) -> NDArray[np.float64]:  # noqa: B008  it is frozen
    """Return private cells as doubles, NaN where one is missing or unreadable. No cell can raise.

    Polars' lenient cast of text knows the same notation as `core.domain.value_of`; a test holds them to it.
    """
    cells = _plain(cells)
    numbers = _read(cells, form)[1] if cells.dtype == pl.String else cells.cast(pl.Float64, strict=False)
    unread = numbers.has_nulls()
    values = (numbers.fill_null(np.nan) if unread else numbers).to_numpy()
    if not unread or cells.dtype != pl.String:
        return values
    truth = cells.str.strip_chars(BLANKS).replace_strict(TRUTH, default=None, return_dtype=pl.Float64)
    return np.where(truth.is_null().to_numpy(), values, truth.fill_null(0.0).to_numpy())


def missing_of(cells: pl.Series, words: frozenset[str] = MISSING) -> NDArray[np.bool_]:
    """Say which private cells are missing rather than unreadable, as `core.domain.is_missing` does."""
    cells = _plain(cells)
    if cells.dtype == pl.Object:
        return np.array([is_missing(cell) for cell in cells.to_list()], dtype=bool)
    if cells.dtype == pl.String:
        text = cells.fill_null("").str.strip_chars(EMPTY).str.to_lowercase()
        return text.is_in(list(words)).to_numpy()
    return (cells.is_null() | cells.cast(pl.Float64, strict=False).is_nan().fill_null(value=False)).to_numpy()


def epsilons_of(
    cells: pl.Series, places: Places, where: tuple[str, str], request: Request, *, quotes: bool = True
) -> NDArray[np.float64]:
    """Return public ε cells as doubles; a bad one raises and names its place: `where` stands around its number."""
    before, after = where
    cells = _plain(cells)
    if cells.dtype == pl.Object:
        return level_array(cells.to_list(), request, before, places[0])
    if cells.has_nulls():
        at = places[int(cells.is_null().arg_true()[0])]
        raise InputError(f"epsilon is missing{before} {at}{after}; everybody needs one (0 leaves a person out)")
    if request.tiers and cells.dtype.is_numeric() and not cells.dtype.is_integer():
        raise InputError(
            f"the epsilon column must hold the names of tiers, as text or whole numbers (got a column of type "
            f"{cells.dtype}); cast it to text"
        )
    if cells.dtype.is_numeric() and not request.tiers:
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


# The types of columns -------------------------------------------------------------------------------------------------


def check_columns(frame: Any, request: Request, path: Path | None = None, *, in_engine: bool = False) -> None:
    """Refuse columns that are not there or have the wrong type; names and types are public.

    An engine groups by itself and cannot read Python's objects, nor numbers from text.
    """
    import narwhals.stable.v2 as nw  # for these files alone, not for text

    broken = "the columns of the frame cannot be found out; is the query behind it sound?"
    schema, where = told(lambda: dict(nw.from_native(frame).collect_schema()), broken), path or "the frame"
    for name in request.columns:
        if name not in schema:
            listed = ", ".join(map(repr, schema))
            raise InputError(f"{where} has no column {name!r}; its columns are {listed}{request.instead(name)}")
        alike = [column for column in schema if str(column).casefold() == name.casefold()]
        if in_engine and len(alike) > 1:
            raise InputError(
                f"the columns {alike[0]!r} and {alike[1]!r} differ by case alone; engines take them for one"
            )
    texts = (nw.String, nw.Categorical, nw.Enum, *(() if in_engine else (nw.Object,)))

    def need(fits: Callable[[Any], bool], column: str, name: str | None, kind: str, remedy: str) -> None:
        if name is not None and not fits(schema[name]):
            what = f"the {column} {name!r}{'' if path is None else f' of {path}'}"
            raise InputError(f"{what} must hold {kind} (got {schema[name]}); {remedy}")

    level = request.epsilon if isinstance(request.epsilon, str) else None
    need(lambda k: k.is_numeric() or isinstance(k, texts), "epsilon column", level, "numbers or text", "cast it first")
    need(lambda k: str(k) != "Float16", "epsilon column", level, "more than half precision", "use Float64")
    for name, reading in request.readings:
        fits, kind, remedy = _private(reading, texts, in_engine=in_engine)
        need(fits, "value column", name, kind, remedy)
    for name in request.texts:
        whole, remedy = "text or whole numbers", "cast it to text first"
        if isinstance(schema[name], nw.Boolean):  # sources write true and false in different ways
            remedy = "cast it to text first, with the words that the groups shall have, such as 'yes' and 'no'"
        need(lambda k: k.is_integer() or isinstance(k, texts), "column", name, whole, remedy)


def _private(reading: Reading, texts: tuple[Any, ...], *, in_engine: bool) -> tuple[Callable[[Any], bool], str, str]:
    """Return which types a private column may have, in words too, and what to do about another one.

    In memory the type of a column may come from its cells, so categories are looked for in texts and in numbers alike,
    and what fits none is in the last cell. In an engine the type of a column is declared, and there categories are
    compared with texts as texts.
    """
    import narwhals.stable.v2 as nw

    if in_engine and isinstance(reading, Categories) and not reading.apart:
        if not reading.numeric:
            return lambda k: isinstance(k, texts), "text", "cast it, or list the categories as numbers"
        if not reading.textual:
            return lambda k: k.is_numeric() or isinstance(k, nw.Boolean), "numbers", "or list the categories as text"
    what = "text or numbers" if isinstance(reading, Categories) else "numbers"
    return lambda k: k.is_numeric() or isinstance(k, (nw.Boolean, *texts)), what, "cast it first"
