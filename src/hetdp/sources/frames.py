"""Frames that the user has, through narwhals; nothing is imported that the user has not imported.

The rows of some are in this process. pandas and the like give one batch of arrays, without a copy where a column is
plain. A Polars frame and a PyArrow table are read column by column by `columns`, and a lazy Polars frame streams. Only
the names and the types of columns can raise here, and public cells; no private cell can.

The rows of others (DuckDB, Spark, Dask, Ibis) are elsewhere: their engine does the group-by, and only the level table
comes here.

Claim: the tables are those of a frame in memory with the same rows, to the integer, and no value can raise, warn, or
change who is counted, which queries run, or what a message says.

Argument: comparisons alone decide the branch of `_code`. Where the value is NaN or missing each of them is false
or null, in engines that order NaN above every number as in those that follow IEEE 754. The formula is used where
lo < x < hi only, with the operations of `Interval.codes` in their order. What comes out of the branches is a whole
number in {0 … Q}, so turning it into a 64-bit integer cannot raise or wrap, and no sum passes 63 bits with at most
`MOST_PEOPLE` people.

A cell (`_cell`) is made by comparisons with public constants alone, or from a code in doubles: (2q + 1)·bins is a whole
number up to 2³⁶, and dividing it by 2Q, a power of two, is exact.
Numbers and edges are compared as doubles, texts as texts; no text is read as a number, because an engine may raise for
one. NaN and what is missing equal no category and are not between the first edge and the last, whether an engine says
false or null: they fall into the last cell.

Which queries run depends on ε, on ids and on the number of people (`engine_tables`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import narwhals.stable.v2 as nw
import polars as pl
from narwhals.exceptions import DuplicateError
from numpy.typing import NDArray
from polars.selectors import by_name

from hetdp.core.cells import Answered, Bins, Categories
from hetdp.core.domain import GRID, LONGEST_ID, NOT_IN_ID, Interval
from hetdp.core.levels import HUGE, TINY, split
from hetdp.errors import InputError
from hetdp.statistics import Statistic

from .arrays import columns_batch
from .columns import FAILED, batch_of, plain_types, streamed, told
from .request import KEY_FAULTS, MOST_ROWS, Batch, Fault, Level, Request, Tables, engine_tables

Lazy = nw.LazyFrame[Any]

_IBIS = ("duckdb", "pyspark")
_PART = 32  # tests in a row
_SPARE = 8  # −0.0 beside 0.0 and the like: rows of a level table that are one level


def opened(source: Any) -> Frame | Engine | None:
    """Return a frame whose rows are read in this process, or one that its engine groups; None if this is no frame."""
    try:
        frame = nw.from_native(nw.to_native(source, pass_through=True), pass_through=True)
    except DuplicateError:
        raise InputError("two columns of the frame have the same name; rename one of them") from None
    if isinstance(frame, nw.LazyFrame) and not frame.implementation.is_polars():
        return Engine(frame)
    return Frame(frame) if isinstance(frame, (nw.DataFrame, nw.LazyFrame)) else None


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


def _column(column: nw.Series[Any]) -> NDArray[Any]:
    """Return a column of a pandas frame or one like it; a nullable column of booleans would be one of objects."""
    return (column.cast(nw.Float64) if isinstance(column.dtype, nw.Boolean) else column).to_numpy()


def check_columns(frame: Any, request: Request, path: Path | None = None, *, in_engine: bool = False) -> None:
    """Refuse columns that are not there or have the wrong type; names and types are public.

    An engine groups by itself and cannot read Python's objects, nor numbers from text.
    """
    broken = "the columns of the frame cannot be found out; is the query behind it sound?"
    schema, where = told(lambda: dict(nw.from_native(frame).collect_schema()), broken), path or "the frame"
    for name in request.columns:
        if name not in schema:
            raise InputError(f"{where} has no column {name!r}; its columns are {', '.join(map(repr, schema))}")
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
    for name, categories in request.readings:
        fits, kind, remedy = _private(categories, texts, in_engine=in_engine)
        need(fits, "value column", name, kind, remedy)
    for name in request.texts:
        whole = "text or whole numbers"
        need(lambda k: k.is_integer() or isinstance(k, texts), "column", name, whole, "cast it to text first")


def _private(
    categories: Categories | None, texts: tuple[Any, ...], *, in_engine: bool
) -> tuple[Callable[[Any], bool], str, str]:
    """Return which types a private column may have, in words too, and what to do about another one.

    In memory the type of a column may come from its cells, so categories are looked for in texts and in numbers alike,
    and what fits none is in the last cell. An engine may raise when it reads a number from a text, so there a column of
    text is for categories that are texts.
    """
    if categories is None:
        kinds = (nw.Boolean,) if in_engine else (nw.Boolean, nw.String, nw.Object)
        remedy = "cast it yourself, so that what cannot be read becomes null: try_cast(… as double)"
        return lambda k: k.is_numeric() or isinstance(k, kinds), "numbers", remedy
    if in_engine and not categories.numeric:
        return lambda k: isinstance(k, texts), "text", "cast it, or list the categories as numbers"
    if in_engine and not categories.textual:
        return lambda k: k.is_numeric() or isinstance(k, nw.Boolean), "numbers", "or list the categories as text"
    return lambda k: k.is_numeric() or isinstance(k, (nw.Boolean, *texts)), "text or numbers", "cast it first"


@dataclass(frozen=True, eq=False)
class Engine:
    """A lazy frame of narwhals whose rows stay where they are."""

    frame: Lazy

    def batches(self, _request: Request, **_: bool) -> Iterator[Batch]:
        """Refuse: the rows are not here."""
        raise InputError("this needs the rows themselves; collect the frame into memory first")

    def check(self, request: Request) -> None:
        """Raise for names and types of columns, and for Ibis over an engine whose arithmetic can raise for a value.

        PostgreSQL's does when a quotient underflows.
        """
        if self.frame.implementation.is_ibis():
            engine = self.frame.to_native().get_backend().name
            if engine not in _IBIS:
                raise InputError(
                    f"Ibis is read over {' and '.join(_IBIS)} only (got {engine}); "
                    "give a database by its URL and a query"
                )
        check_columns(self.frame, request, in_engine=True)

    def tables(self, request: Request, statistic: Statistic | None) -> Tables:
        """Return the tables of the groups; only the level table leaves the engine."""
        self.check(request)
        return engine_tables(_Query(self.frame, request, statistic), request, statistic)


@dataclass(frozen=True)
class _Query:
    """The level table as a query, see `request.LevelQuery`."""

    frame: Lazy
    request: Request
    statistic: Statistic | None

    @property
    def sums(self) -> list[str]:
        """The names of the codes that are added up, squares aside."""
        return [f"code {i}" for i in range(len(self.statistic.sums))] if self.statistic is not None else []

    @property
    def texts(self) -> bool:
        """Whether ε is a column of texts."""
        name = self.request.epsilon
        return isinstance(name, str) and not self.frame.collect_schema()[name].is_numeric()

    def many(self, limit: int) -> bool:
        """Say whether there are more than `limit` levels."""
        levels = self.frame.select(self._column(str(self.request.epsilon)).alias("epsilon")).unique()
        return len(fetch(levels.head(limit + _SPARE))) == limit + _SPARE

    def levels(self, *, bits: int | None, most: int | None) -> list[Level]:
        """Return the level table, its first `most` rows if given."""
        table, names = self._table(bits=bits), [*self.sums, *(["square"] if self._squares else [])]
        if most is not None:
            table = table.head(most)
        rows = (dict(zip(table.columns, row, strict=True)) for row in fetch(table))
        return [
            (
                row.get("group", ""),
                row.get("epsilon"),
                int(row.get("cell", 0)),
                row["people"],
                tuple(int(row[name] or 0) for name in names),
                int(row.get("fault") or 0),
            )
            for row in rows
        ]

    @property
    def _squares(self) -> bool:
        return self.statistic is not None and self.statistic.square

    def _table(self, *, bits: int | None) -> Lazy:
        """Return the keys, the people, the sums of their codes and, if there are ids, the greatest fault."""
        people = self._rows() if self.request.person is None else self._people()
        if bits is not None:
            people = self._rounded_down(people, bits)
        if self._squares:
            root = 2 * nw.col("code 0") - GRID
            square = (root * root).cast(nw.Float64) / self._number(GRID)  # below 2²¹, and exact
            people = people.with_columns(square.floor().cast(nw.Int64).alias("square"))
        aggregates = [nw.len().alias("people"), *(nw.col(name).sum() for name in self.sums)]
        if self._squares:
            aggregates.append(nw.col("square").sum())
        if self.request.person is not None:
            aggregates.append(nw.col("fault").max())
        keys = [*self._keys(), *(["cell"] if self._sorts else [])]
        return people.group_by(*keys).agg(*aggregates) if keys else people.select(*aggregates)

    def at_fault(self, fault: Fault) -> tuple[int, Any]:
        """Return how many people have a fault, and the least of their ids."""
        wrong = self._people().filter(nw.col("fault") == int(fault))
        ((people, least),) = fetch(wrong.select(nw.len().alias("n"), nw.col("person").min()))
        return people, least

    def _rows(self) -> Lazy:
        """Return group, person, ε, cell and codes of every row, as far as they are asked for."""
        texts = {"group": self.request.by, "person": self.request.person}
        columns = [self._column(name).cast(nw.String).alias(key) for key, name in texts.items() if name is not None]
        if isinstance(self.request.epsilon, str):
            epsilon = self._column(self.request.epsilon)
            columns.append((epsilon.cast(nw.String) if self.texts else epsilon).alias("epsilon"))
        if self.statistic is None:
            return self.frame.select(*columns, *([] if columns else [nw.lit(0).alias("nothing")]))
        pairs = zip(self.sums, self.statistic.sums, self.request.private, strict=False)
        columns += [self._code(interval, column).alias(name) for name, interval, column in pairs]
        if self._sorts:
            columns.append(self._cell(self.statistic.sorting, self.request.private[-1]).alias("cell"))
        return self.frame.select(*columns)

    @property
    def _sorts(self) -> bool:
        return self.statistic is not None and self.statistic.sorting is not None

    def _cell(self, sorting: Any, column: str) -> nw.Expr:
        """Return the cell of a row, a whole number; what is null or NaN fails every comparison below, or is caught."""
        if isinstance(sorting, Bins):
            twice = 2 * self._code(sorting.interval, column) + 1
            found = (twice.cast(nw.Float64) * self._number(sorting.bins) / self._number(2 * GRID)).floor()
            last = self._number(sorting.bins - 1)
            return nw.when(found < last).then(found).otherwise(last).cast(nw.Int64)
        kind = self.frame.collect_schema()[column]
        if isinstance(sorting, Categories) and sorting.textual and not (kind.is_numeric() or kind == nw.Boolean):
            texts = self._column(column).cast(nw.String)
            return _first([texts == nw.lit(name) for name in sorting.names])
        x = self._double(column)
        if isinstance(sorting, Categories):
            return _first([x == self._number(number) for number in sorting.numbers])
        ends = (-math.inf, math.inf) if isinstance(sorting, Answered) else (sorting.edges[0], sorting.edges[-1])
        inside = (x >= self._number(ends[0])) & (x <= self._number(ends[1]))
        inner = [] if isinstance(sorting, Answered) else sorting.edges[1:-1]
        found = _first([x < self._number(edge) for edge in inner])
        return nw.when(inside).then(found).otherwise(nw.lit(sorting.size - 1)).cast(nw.Int64)

    def _double(self, column: str) -> nw.Expr:
        """Return a column as doubles, the nearest ones: DuckDB casts some of its widest integers to a neighbour."""
        cells = self._column(column)
        if self.frame.collect_schema()[column] in {nw.Int128, nw.UInt128}:
            cells = cells.cast(nw.String)  # digits, which can always be read
        return cells.cast(nw.Float64)

    def _code(self, interval: Interval, column: str) -> nw.Expr:
        lo, hi = self._number(interval.lo), self._number(interval.hi)
        x = self._double(column)
        above = x - lo if interval.lo else x
        code = (above / self._number(interval.width) * self._number(GRID) + self._number(0.5)).floor()
        code = (
            nw.when((x > lo) & (x < hi))
            .then(code.cast(nw.Float64))
            .when(x <= lo)
            .then(self._number(0.0))
            .when((x >= hi) & (x <= self._number(math.inf)))  # NaN is not below infinity, wherever it stands
            .then(self._number(GRID))
            .otherwise(self._number(GRID / 2))
        )
        return code.cast(nw.Int64)

    def _rounded_down(self, rows: Lazy, bits: int) -> Lazy:
        """Put ε's together that `core.levels.round_down` makes equal; it is applied to what comes out.

        `near` is ε rounded to 12 significant bits (Veltkamp's splitting); if that is above ε, a little less of it lies
        between ε rounded down and the next number of 12 bits. Each step is a column of its own: an engine would write
        out and compute a nested expression many times. Where splitting could overflow, ε stays as it is.
        """
        number, epsilon, large, near = self._number, *map(nw.col, ("epsilon", "large", "near"))
        rows = rows.with_columns(epsilon.cast(nw.Float64)).with_columns((epsilon * number(split(bits))).alias("large"))
        rows = rows.with_columns((large - (large - epsilon)).alias("near"))
        key = nw.when((epsilon < number(TINY)) | ~(epsilon < number(HUGE))).then(epsilon)
        return rows.with_columns(
            key.when(near > epsilon).then(near * number(1 - 2.0**-bits)).otherwise(near).alias("epsilon")
        )

    def _people(self) -> Lazy:
        """Return group, ε and code of every person, and what is wrong with the person's rows (0: nothing)."""
        rows, keys = self._rows(), self._keys()
        aggregates = [nw.len().alias("rows"), *(nw.col(name).sum() for name in self.sums)]
        if self._sorts:
            aggregates.append(nw.col("cell").min())  # a person has one row where people are sorted
        if "epsilon" in keys and not self.texts:  # NaN becomes null: engines order it differently, none counts a null
            epsilon = nw.col("epsilon")
            known = nw.when(epsilon.cast(nw.Float64) <= self._number(math.inf)).then(epsilon)
            rows = rows.with_columns(known.alias("epsilon"))
        for key in keys:
            least, most = nw.col(key).min().alias(f"least {key}"), nw.col(key).max().alias(f"most {key}")
            aggregates += [least, most, nw.col(key).count().alias(f"known {key}")]
        people = rows.group_by("person").agg(*aggregates)
        rounded = ((2 * nw.col(name) + nw.col("rows")) / (2 * nw.col("rows")) for name in self.sums)
        return people.select(
            "person",
            *(nw.col(f"least {key}").alias(key) for key in keys),
            *(code.floor().cast(nw.Int64).alias(name) for code, name in zip(rounded, self.sums, strict=True)),
            *([nw.col("cell")] if self._sorts else []),
            self._fault().alias("fault"),
        )

    def _fault(self) -> nw.Expr:
        who, rows = nw.col("person"), nw.col("rows")
        faults = [
            (who.is_null() | (who == ""), Fault.NO_ID),
            ((who.str.len_chars() > LONGEST_ID) | who.str.contains(NOT_IN_ID), Fault.BAD_ID),
        ]
        for key in self._keys():
            missing, differ = KEY_FAULTS[key]
            faults.append((nw.col(f"known {key}") < rows, missing))
            faults.append((nw.col(f"least {key}") != nw.col(f"most {key}"), differ))
        if not self.request.several:
            faults.append((rows > 1, Fault.ROWS))
        found: Any = nw
        for condition, fault in [*faults, (rows > MOST_ROWS, Fault.TOO_MANY_ROWS)]:
            found = found.when(condition).then(nw.lit(int(fault)))
        fault_of: nw.Expr = found.otherwise(nw.lit(0))
        return fault_of

    def _keys(self) -> list[str]:
        group = ["group"] if self.request.by is not None else []
        return [*group, "epsilon"] if isinstance(self.request.epsilon, str) else group

    def _number(self, number: float) -> nw.Expr:
        """Return a constant. Ibis writes SQL, where 0.1 is a decimal in many engines; a text is read as a double."""
        if self.frame.implementation.is_ibis():
            infinite = "Infinity" if number > 0 else "-Infinity"
            return nw.lit(infinite if math.isinf(number) else repr(float(number))).cast(nw.Float64)
        return nw.lit(float(number))

    def _column(self, name: str) -> nw.Expr:
        """Return a column, its name as the engine wants it: Spark would read a dot as a step into a record."""
        return nw.col(f"`{name.replace('`', '``')}`" if self.frame.implementation.is_spark_like() else name)


def _first(tests: Sequence[nw.Expr]) -> nw.Expr:
    """Return the number of the first test that holds, and if none does, how many there are.

    There may be a thousand, and one branch inside the other would be nested deeper than engines take; Dask nests these
    as well, so they come in parts.
    """
    found = [nw.when(test).then(nw.lit(i)) for i, test in enumerate(tests)]
    parts = [nw.coalesce(*found[i : i + _PART]) for i in range(0, len(found), _PART)]
    return nw.coalesce(*parts, nw.lit(len(tests))).cast(nw.Int64)


def fetch(frame: Lazy) -> list[tuple[Any, ...]]:
    """Return the rows of a query."""
    if frame.implementation.is_spark_like():
        return told(lambda: [tuple(row) for row in frame.to_native().collect()], FAILED)
    if frame.implementation.is_duckdb():
        return told(lambda: list(frame.to_native().fetchall()), FAILED)
    # Dask would add the labels of rows
    return told(lambda: list(frame.collect("pyarrow").select(*frame.columns).rows()), FAILED)
