"""Frames that the user has, through narwhals; nothing is imported that the user has not imported.

The rows of some are in this process. pandas and the like give one batch of arrays, without a copy where a column is
plain. A Polars frame and a PyArrow table are read column by column by `columns`, and a lazy Polars frame streams. Only
the names and the types of columns can raise here, and public cells; no private cell can.

The rows of others (DuckDB, Spark, Dask, Ibis) are elsewhere: their engine does the group-by, and only the level table
comes here.

Claim: the tables are those of a frame in memory with the same rows, to the integer, and no value can raise, warn, or
change who is counted, which queries run, or what a message says.

Argument: comparisons alone decide the branch of `_code`. Where the value is NaN or missing each of them is false
or null, in engines that order NaN above every number as in those that follow IEEE 754; there is no code then, and
`_settled` says what becomes of that, as `tally.settled` does. The formula is used where
lo < x < hi only, with the operations of `Interval.codes` in their order. What comes out of the branches is a whole
number in {0 … Q}, so turning it into a 64-bit integer cannot raise or wrap, and no sum passes 63 bits with at most
`MOST_PEOPLE` people.

A cell (`_cell`) is made by comparisons with public constants alone, or from a code in doubles: (2q + 1)·bins is a whole
number up to 2³⁶, and dividing it by 2Q, a power of two, is exact.
Numbers and edges are compared as doubles, texts as texts; no text is read as a number there, because an engine may
raise for one: rows that are alike are counted, and each text is read once in Python. NaN and what is missing equal no
category and are not between the first edge and the last, whether an engine says false or null: they fall into the last
cell.

Which queries run depends on ε, on ids and on the number of people (`engine_tables`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import narwhals.stable.v2 as nw
import polars as pl
from narwhals.exceptions import DuplicateError
from numpy.typing import NDArray
from polars.selectors import by_name

from hetdp.core.cells import Bins, Categories, Edges, Reading, Words
from hetdp.core.domain import GRID, LONGEST_ID, NOT_IN_ID, Interval
from hetdp.core.levels import HUGE, TINY, split
from hetdp.errors import InputError
from hetdp.statistics import Statistic

from .arrays import alike_batch, as_array, columns_batch
from .columns import FAILED, batch_of, check_columns, plain_types, streamed, told
from .request import KEY_FAULTS, MOST_ROWS, Batch, Fault, Level, Request, Tables, engine_tables

Lazy = nw.LazyFrame[Any]

_COLLATION = "select current_setting('default_collation')"
_NO_CODE = -1
_CALLED = {
    "PANDAS": "a pandas frame",
    "POLARS": "a Polars frame",
    "PYARROW": "a PyArrow table",
    "DUCKDB": "a DuckDB query",
    "PYSPARK": "a Spark frame",
    "PYSPARK_CONNECT": "a Spark frame",
    "DASK": "a Dask frame",
    "IBIS": "an Ibis table",
}
_PART = 32  # tests in a row
_SPARE = 8  # −0.0 beside 0.0 and the like: rows of a level table that are one level


def opened(source: Any) -> Frame | Engine | None:
    """Return a frame whose rows are read in this process, or one that its engine groups; None if this is no frame."""
    try:
        frame = nw.from_native(nw.to_native(source, pass_through=True), pass_through=True)
    except DuplicateError:
        raise InputError("two columns of the frame have the same name; rename one of them") from None
    if isinstance(frame, nw.LazyFrame) and not frame.implementation.is_polars():
        return Engine(told(lambda: _byte_wise(frame), FAILED), _called(frame))
    return Frame(frame) if isinstance(frame, (nw.DataFrame, nw.LazyFrame)) else None


@dataclass(frozen=True, eq=False)
class Frame:
    """A frame that narwhals has opened: in memory, or a lazy Polars frame."""

    frame: Any

    @property
    def called(self) -> tuple[str, ...]:
        """The kind of the frame."""
        return _called(self.frame)

    def batches(self, request: Request, *, owner: bool = False) -> Iterator[Batch]:
        """Yield all people of a frame in memory as one batch, those of a lazy one as they come."""
        frame = self.check(request)
        if not frame.implementation.is_polars():
            if len(frame):
                columns = {name: _column(frame[name]) for name in request.columns}
                columns |= {name: told(frame[name].to_list, FAILED) for name in request.texts}
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


def _called(frame: Any) -> tuple[str, ...]:
    return (_CALLED.get(frame.implementation.name, "a frame"),)


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
    return as_array((column.cast(nw.Float64) if isinstance(column.dtype, nw.Boolean) else column).to_numpy)


def _byte_wise(frame: Any) -> Lazy:
    """Return a frame whose engine takes two texts for the same only if they are, letter by letter.

    Rows that are alike are grouped in the engine, and one of each group is read. DuckDB groups by the collation of a
    column, which no schema shows: with NOCASE the cell "X" of one person would stand for the "x" of all others. All
    that counts as text is made a text without a collation here, enums and JSON too: what they become as texts later
    would have the connection's. A frame of Spark needs none of this: a cast to text, as every query has, drops it.
    """
    native, made = frame.to_native(), frame
    kinds = (nw.String, nw.Categorical, nw.Enum)  # as `check_columns` has them
    texts = {name for name, kind in frame.collect_schema().items() if isinstance(kind, kinds)}
    if frame.implementation.is_duckdb():
        pairs = [('"' + name.replace('"', '""') + '"', name in texts) for name in native.columns]
        made = native.project(", ".join(f"cast({x} as varchar) collate C as {x}" if text else x for x, text in pairs))
    elif frame.implementation.is_ibis() and native.get_backend().name == "duckdb":
        import ibis  # type: ignore[import-untyped]

        builtin = ibis.udf.scalar.builtin  # functions of DuckDB: what decode gives has no collation
        encode = builtin(lambda _: b"", name="encode", signature=((str,), bytes))
        decode = builtin(lambda _: "", name="decode", signature=((bytes,), str))
        made = native.mutate(**{name: decode(encode(native[name])) for name in texts})
    return nw.from_native(made)  # type: ignore[no-any-return]


@dataclass(frozen=True, eq=False)
class Engine:
    """A lazy frame of narwhals whose rows stay where they are; what it is called, and the query behind it, if any."""

    frame: Lazy
    called: tuple[str, ...]
    query: str | None = None

    def batches(self, request: Request, *, owner: bool = False) -> Iterator[Batch]:
        """Yield the rows that are not alike, if the engine cannot group them by itself; otherwise they stay there."""
        if owner or not self.reads_here(request):
            raise InputError("this needs the rows themselves; collect the frame into memory first")
        numbers = {name: kind for name, kind in self.frame.collect_schema().items() if kind.is_numeric()}
        return alike_batch(fetch(_Query(self.frame, request, None).alike()), request.held(numbers))

    def reads_here(self, request: Request) -> bool:
        """Say whether a private column is text that has to be read in Python."""
        self.check(request)
        kinds = self.frame.collect_schema()
        texts = [how for name, how in request.readings if not (kinds[name].is_numeric() or kinds[name] == nw.Boolean)]
        return any(not isinstance(how, Categories) or how.reads_texts for how in texts)

    def check(self, request: Request) -> None:
        """Raise for names and types of columns, and for Ibis over another engine than DuckDB.

        PostgreSQL's arithmetic raises when a quotient underflows, and Spark's collations cannot be taken off there.
        """
        if self.frame.implementation.is_ibis():
            backend: Any = self.frame.to_native().get_backend()
            if backend.name != "duckdb":
                advice = "give a Spark frame itself, a database by its URL and a query"
                raise InputError(f"Ibis is read over DuckDB only (got {backend.name}); {advice}")
            if backend.con.execute(_COLLATION).fetchall()[0][0]:
                raise InputError("under default_collation different texts are one; take back this setting")
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
        """The names of the codes."""
        return [f"code {i}" for i in range(len(self.statistic.coded))] if self.statistic is not None else []

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
        table = self._table(bits=bits)
        names = [name for name in table.columns if name.startswith("sum ")]
        if most is not None:
            table = table.head(most)
        rows = (dict(zip(table.columns, row, strict=True)) for row in fetch(table))
        return [
            (
                tuple(row[name] for name in self._groups),
                row.get("epsilon"),
                int(row.get("cell", 0)),
                row["people"],
                tuple(int(row[name] or 0) for name in names),
                int(row.get("fault") or 0),
            )
            for row in rows
        ]

    def _table(self, *, bits: int | None) -> Lazy:
        """Return the keys, the people, the sums of their codes and, if there are ids, the greatest fault."""
        people = self._rows() if self.request.person is None else self._people()
        if bits is not None:
            people = self._rounded_down(people, bits)
        people, added = self._settled(people)
        aggregates = [nw.len().alias("people"), *(nw.col(name).sum() for name in added)]
        if self.request.person is not None:
            aggregates.append(nw.col("fault").max())
        keys = [*self._keys(), *(["cell"] if self._sorts else [])]
        return people.group_by(*keys).agg(*aggregates) if keys else people.select(*aggregates)

    def _settled(self, people: Lazy) -> tuple[Lazy, list[str]]:
        """Return people with the cells and codes that count, and the names of the latter; see `tally.settled`.

        The cell of those who are left out is −1.
        """
        asked = self.statistic
        if asked is None:
            return people, []
        codes = [nw.col(name) for name in self.sums]
        fills = [0 if asked.marks else asked.fill(interval) for interval in asked.coded]
        pairs = zip(codes, fills, strict=True)
        known = [nw.when(code < 0).then(nw.lit(fill)).otherwise(code).cast(nw.Int64) for code, fill in pairs]
        added = dict(enumerate(known[: len(asked.sums)]))
        if asked.marks:
            there = [nw.when(code < 0).then(nw.lit(0)).otherwise(nw.lit(GRID)) for code in codes]
            added |= dict(enumerate((mark.cast(nw.Int64) for mark in there), len(added)))
        if asked.square:
            root = 2 * known[0] - GRID
            square = (root * root).cast(nw.Float64) / self._number(GRID)  # below 2²¹, and exact
            added[len(added)] = square.floor().cast(nw.Int64)
        columns = [code.alias(f"sum {i}") for i, code in added.items()]
        if self._sorts:
            columns.append(self._settled_cell(asked, known).alias("cell"))
        return people.with_columns(*columns), [f"sum {i}" for i in added]

    def _settled_cell(self, asked: Statistic, known: Sequence[nw.Expr]) -> nw.Expr:
        """Return the cell of a person."""
        cell = nw.col("cell") if isinstance(asked.sorting, (Categories, Edges)) else nw.lit(0)
        if isinstance(asked.sorting, Bins):
            twice = (2 * known[0] + 1).cast(nw.Float64)
            found = (twice * self._number(asked.sorting.bins) / self._number(2 * GRID)).floor()
            last = self._number(asked.sorting.bins - 1)
            cell = nw.when(found < last).then(found).otherwise(last)
        absent = [nw.col(name) < 0 for name in self.sums] or [nw.col("cell") == asked.cells - 1]
        if asked.missing == "drop":
            cell = nw.when(nw.any_horizontal(*absent, ignore_nulls=True)).then(nw.lit(-1)).otherwise(cell)
        elif asked.unanswered is not None:
            cell = nw.when(absent[0]).then(nw.lit(asked.unanswered)).otherwise(cell)
        return cell.cast(nw.Int64)

    def alike(self) -> Lazy:
        """Return the columns asked for, rows that are alike as one, and how many each stands for."""
        kinds, columns = self.frame.collect_schema(), []
        for i, name in enumerate(self.request.columns):
            texts = name in self.request.texts or (name == self.request.epsilon and self.texts)
            number = name in self.request.private and (kinds[name].is_numeric() or kinds[name] == nw.Boolean)
            cells = self._double(name) if number else self._column(name)
            text = texts or (name in self.request.private and not number)
            columns.append((cells.cast(nw.String) if text else cells).alias(f"column {i}"))
        names = [f"column {i}" for i in range(len(columns))]
        found = self.frame.select(*columns).group_by(*names).agg(nw.len().alias("rows"))
        return found.select(*names, "rows")

    def at_fault(self, fault: Fault) -> tuple[int, Any]:
        """Return how many people have a fault, and the least of their ids."""
        wrong = self._people().filter(nw.col("fault") == int(fault))
        ((people, least),) = fetch(wrong.select(nw.len().alias("n"), nw.col("person").min()))
        return people, least

    def _rows(self) -> Lazy:
        """Return group, person, ε, cell and codes of every row, as far as they are asked for."""
        texts = {**dict(zip(self._groups, self.request.groupings, strict=True)), "person": self.request.person}
        columns = [self._column(name).cast(nw.String).alias(key) for key, name in texts.items() if name is not None]
        if isinstance(self.request.epsilon, str):
            epsilon = self._column(self.request.epsilon)
            columns.append((epsilon.cast(nw.String) if self.texts else epsilon).alias("epsilon"))
        if self.statistic is None:
            return self.frame.select(*columns, *([] if columns else [nw.lit(0).alias("nothing")]))
        pairs = zip(self.sums, self.statistic.coded, self.request.readings, strict=False)
        columns += [self._code(interval, *reading).alias(name) for name, interval, reading in pairs]
        if isinstance(self.statistic.sorting, (Categories, Edges)):
            columns.append(self._cell(self.statistic.sorting, self.request.private[-1]).alias("cell"))
        return self.frame.select(*columns)

    @property
    def _sorts(self) -> bool:
        return self.statistic is not None and (self.statistic.cells > 1 or self.statistic.missing == "drop")

    def _cell(self, sorting: Categories | Edges, column: str) -> nw.Expr:
        """Return the cell of a row, a whole number; what is null or NaN fails every comparison below, or is caught."""
        kind = self.frame.collect_schema()[column]
        if isinstance(sorting, Categories) and sorting.textual and not (kind.is_numeric() or kind == nw.Boolean):
            texts = self._column(column).cast(nw.String)
            return _first([texts == nw.lit(name) for name in sorting.names])
        x = self._double(column)
        sorting = sorting.held(str(kind)) if isinstance(sorting, Categories) else sorting
        if isinstance(sorting, Categories):
            never = x < self._number(-math.inf)  # a category that is no number: in some engines NaN equals NaN
            numbers = sorting.numbers
            found = _first([never if math.isnan(number) else x == self._number(number) for number in numbers])
            if not sorting.apart:
                return found
            there = (x >= self._number(-math.inf)) & (x <= self._number(math.inf))
            return nw.when(there).then(found).otherwise(nw.lit(sorting.size - 1)).cast(nw.Int64)
        inside = (x >= self._number(sorting.edges[0])) & (x <= self._number(sorting.edges[-1]))
        found = _first([x < self._number(edge) for edge in sorting.edges[1:-1]])
        return nw.when(inside).then(found).otherwise(nw.lit(sorting.size - 1)).cast(nw.Int64)

    def _double(self, column: str) -> nw.Expr:
        """Return a column as doubles, the nearest ones: DuckDB casts some of its widest integers to a neighbour."""
        cells = self._column(column)
        if self.frame.collect_schema()[column] in {nw.Int128, nw.UInt128}:
            cells = cells.cast(nw.String)  # digits, which can always be read
        return cells.cast(nw.Float64)

    def _code(self, interval: Interval, column: str, reading: Reading) -> nw.Expr:
        """Return the code of a row, −1 where there is no value: not every engine has integers that can be null."""
        x = self._double(column)
        if isinstance(reading, Words):
            tests: Any = nw
            reading = reading.held(str(self.frame.collect_schema()[column]))
            for number, stands_for in zip(reading.categories.numbers, reading.numbers, strict=True):
                equal = x == self._number(-math.inf if math.isnan(number) else number)  # a word equals no number
                tests = tests.when(equal & (x > self._number(-math.inf))).then(nw.lit(interval.code(stands_for)))
            found: nw.Expr = tests.otherwise(nw.lit(_NO_CODE)).cast(nw.Int64)
            return found
        lo, hi = self._number(interval.lo), self._number(interval.hi)
        above = x - lo if interval.lo else x
        code = (above / self._number(interval.width) * self._number(GRID) + self._number(0.5)).floor()
        code = (
            nw.when((x > lo) & (x < hi))
            .then(code.cast(nw.Float64))
            .when(x <= lo)
            .then(self._number(0.0))
            .when((x >= hi) & (x <= self._number(math.inf)))  # NaN is not below infinity, wherever it stands
            .then(self._number(GRID))
            .otherwise(self._number(_NO_CODE))
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
        aggregates += [nw.col(f"known {name}").sum() for name in self.sums]
        for name in self.sums:
            code, none = nw.col(name), nw.lit(0)
            there = nw.when(code < 0).then(none).otherwise(nw.lit(1)).cast(nw.Int64).alias(f"known {name}")
            rows = rows.with_columns(there, nw.when(code < 0).then(none).otherwise(code).cast(nw.Int64).alias(name))
        cell = isinstance(self.statistic, Statistic) and isinstance(self.statistic.sorting, (Categories, Edges))
        if cell:
            aggregates.append(nw.col("cell").min())  # a person has one row where people are sorted by what they say
        if "epsilon" in keys and not self.texts:  # NaN becomes null: engines order it differently, none counts a null
            epsilon = nw.col("epsilon")
            known = nw.when(epsilon.cast(nw.Float64) <= self._number(math.inf)).then(epsilon)
            rows = rows.with_columns(known.alias("epsilon"))
        for key in keys:
            least, most = nw.col(key).min().alias(f"least {key}"), nw.col(key).max().alias(f"most {key}")
            aggregates += [least, most, nw.col(key).count().alias(f"known {key}")]
        people = rows.group_by("person").agg(*aggregates)
        return people.select(
            "person",
            *(nw.col(f"least {key}").alias(key) for key in keys),
            *(self._average(name).alias(name) for name in self.sums),
            *([nw.col("cell")] if cell else []),
            self._fault().alias("fault"),
        )

    @staticmethod
    def _average(name: str) -> nw.Expr:
        """Return the average of a person's codes over the rows that have one, −1 if none has."""
        known = nw.col(f"known {name}")
        rows = nw.when(known > 0).then(known).otherwise(nw.lit(1))  # nothing is ever divided by 0
        average = ((2 * nw.col(name) + rows) / (2 * rows)).floor().cast(nw.Int64)
        return nw.when(known > 0).then(average).otherwise(nw.lit(_NO_CODE)).cast(nw.Int64)

    def _fault(self) -> nw.Expr:
        who, rows = nw.col("person"), nw.col("rows")
        faults = [
            (who.is_null() | (who == ""), Fault.NO_ID),
            ((who.str.len_chars() > LONGEST_ID) | who.str.contains(NOT_IN_ID), Fault.BAD_ID),
        ]
        for key in self._keys():
            missing, differ = KEY_FAULTS[key.partition(" ")[0]]
            faults.append((nw.col(f"known {key}") < rows, missing))
            faults.append((nw.col(f"least {key}") != nw.col(f"most {key}"), differ))
        if not self.request.several:
            faults.append((rows > 1, Fault.ROWS))
        found: Any = nw
        for condition, fault in [*faults, (rows > MOST_ROWS, Fault.TOO_MANY_ROWS)]:
            found = found.when(condition).then(nw.lit(int(fault)))
        fault_of: nw.Expr = found.otherwise(nw.lit(0))
        return fault_of

    @property
    def _groups(self) -> list[str]:
        return [f"group {i}" for i in range(len(self.request.groupings))]

    def _keys(self) -> list[str]:
        return [*self._groups, "epsilon"] if isinstance(self.request.epsilon, str) else self._groups

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
