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
`MOST_PEOPLE` people. Which queries run depends on ε, on ids and on the number of people (`engine_tables`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import narwhals.stable.v2 as nw
import polars as pl
from narwhals.exceptions import DuplicateError
from numpy.typing import NDArray
from polars.selectors import by_name

from hetdp.core.domain import GRID, LONGEST_ID, NOT_IN_ID, Interval
from hetdp.core.levels import BELOW, HUGE, LIMIT, SPLIT, TINY
from hetdp.errors import InputError

from .arrays import columns_batch
from .columns import FAILED, batch_of, plain_types, streamed, told
from .request import KEY_FAULTS, MOST_ROWS, Batch, Fault, Level, Request, Tables, engine_tables

Lazy = nw.LazyFrame[Any]

_IBIS = ("duckdb", "pyspark")
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

    def tables(self, request: Request, interval: Interval | None) -> Tables:
        """Return the tables of the groups; only the level table leaves the engine."""
        self.check(request)
        return engine_tables(_Query(self.frame, request, interval), request)


@dataclass(frozen=True)
class _Query:
    """The level table as a query, see `request.LevelQuery`."""

    frame: Lazy
    request: Request
    interval: Interval | None

    @property
    def rounds(self) -> bool:
        """Whether ε is a column of numbers."""
        name = self.request.epsilon
        return not isinstance(name, str) or self.frame.collect_schema()[name].is_numeric()

    def many(self) -> bool:
        """Say whether there are more than `LIMIT` levels."""
        levels = self.frame.select(self._column(str(self.request.epsilon)).alias("epsilon")).unique()
        return len(fetch(levels.head(LIMIT + _SPARE))) == LIMIT + _SPARE

    def levels(self, *, rounded: bool, most: int | None) -> list[Level]:
        """Return the level table, its first `most` rows if given."""
        table = self._table(rounded=rounded)
        if most is not None:
            table = table.head(most)
        rows = (dict(zip(table.columns, row, strict=True)) for row in fetch(table))
        return [
            (row.get("group", ""), row.get("epsilon"), row["people"], int(row["code"] or 0), int(row.get("fault") or 0))
            for row in rows
        ]

    def _table(self, *, rounded: bool) -> Lazy:
        """Return the keys, the people, the sum of their codes and, if there are ids, the greatest fault."""
        people = self._rows() if self.request.person is None else self._people()
        if rounded:
            people = self._rounded_down(people)
        aggregates = [nw.len().alias("people"), nw.col("code").sum()]
        if self.request.person is not None:
            aggregates.append(nw.col("fault").max())
        keys = self._keys()
        return people.group_by(*keys).agg(*aggregates) if keys else people.select(*aggregates)

    def at_fault(self, fault: Fault) -> tuple[int, Any]:
        """Return how many people have a fault, and the least of their ids."""
        wrong = self._people().filter(nw.col("fault") == int(fault))
        ((people, least),) = fetch(wrong.select(nw.len().alias("n"), nw.col("person").min()))
        return people, least

    def _rows(self) -> Lazy:
        """Return group, person, ε and code of every row, as far as they are asked for."""
        texts = {"group": self.request.by, "person": self.request.person}
        columns = [self._column(name).cast(nw.String).alias(key) for key, name in texts.items() if name is not None]
        if isinstance(self.request.epsilon, str):
            epsilon = self._column(self.request.epsilon)
            columns.append((epsilon if self.rounds else epsilon.cast(nw.String)).alias("epsilon"))
        return self.frame.select(*columns, self._code().alias("code"))

    def _code(self) -> nw.Expr:
        if self.request.value is None or self.interval is None:
            return nw.lit(0)
        lo, hi = self._number(self.interval.lo), self._number(self.interval.hi)
        x = self._column(self.request.value).cast(nw.Float64)
        above = x - lo if self.interval.lo else x
        code = (above / self._number(self.interval.width) * self._number(GRID) + self._number(0.5)).floor()
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

    def _rounded_down(self, rows: Lazy) -> Lazy:
        """Put ε's together that `core.levels.round_down` makes equal; it is applied to what comes out.

        `near` is ε rounded to 12 significant bits (Veltkamp's splitting); if that is above ε, a little less of it lies
        between ε rounded down and the next number of 12 bits. Each step is a column of its own: an engine would write
        out and compute a nested expression many times. Where splitting could overflow, ε stays as it is.
        """
        number, epsilon, large, near = self._number, *map(nw.col, ("epsilon", "large", "near"))
        rows = rows.with_columns(epsilon.cast(nw.Float64)).with_columns((epsilon * number(SPLIT)).alias("large"))
        rows = rows.with_columns((large - (large - epsilon)).alias("near"))
        key = nw.when((epsilon < number(TINY)) | ~(epsilon < number(HUGE))).then(epsilon)
        return rows.with_columns(key.when(near > epsilon).then(near * number(BELOW)).otherwise(near).alias("epsilon"))

    def _people(self) -> Lazy:
        """Return group, ε and code of every person, and what is wrong with the person's rows (0: nothing)."""
        rows, keys, aggregates = self._rows(), self._keys(), [nw.len().alias("rows"), nw.col("code").sum()]
        if "epsilon" in keys and self.rounds:  # NaN becomes null: engines order it differently, but none counts a null
            epsilon = nw.col("epsilon")
            known = nw.when(epsilon.cast(nw.Float64) <= self._number(math.inf)).then(epsilon)
            rows = rows.with_columns(known.alias("epsilon"))
        for key in keys:
            least, most = nw.col(key).min().alias(f"least {key}"), nw.col(key).max().alias(f"most {key}")
            aggregates += [least, most, nw.col(key).count().alias(f"known {key}")]
        people = rows.group_by("person").agg(*aggregates)
        twice = 2 * nw.col("code") + nw.col("rows")
        code = (twice / (2 * nw.col("rows"))).floor().cast(nw.Int64)
        return people.select(
            "person",
            *(nw.col(f"least {key}").alias(key) for key in keys),
            code.alias("code"),
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
            return nw.lit("Infinity" if math.isinf(number) else repr(float(number))).cast(nw.Float64)
        return nw.lit(float(number))

    def _column(self, name: str) -> nw.Expr:
        """Return a column, its name as the engine wants it: Spark would read a dot as a step into a record."""
        return nw.col(f"`{name.replace('`', '``')}`" if self.frame.implementation.is_spark_like() else name)


def fetch(frame: Lazy) -> list[tuple[Any, ...]]:
    """Return the rows of a query."""
    if frame.implementation.is_spark_like():
        return told(lambda: [tuple(row) for row in frame.to_native().collect()], FAILED)
    if frame.implementation.is_duckdb():
        return told(lambda: list(frame.to_native().fetchall()), FAILED)
    # Dask would add the labels of rows
    return told(lambda: list(frame.collect("pyarrow").select(*frame.columns).rows()), FAILED)
