"""Frames whose rows stand elsewhere: their engine does the group-by, and only the level table comes here.

Claim: the tables are those of `people` on the same rows, to the integer, and no value can raise, warn, or change who
is counted, which queries run, or what a message says.

Argument: comparisons alone decide the branch of `_code`. Where the value is NaN or missing each of them is false
or null, in engines that order NaN above every number as in those that follow IEEE 754. The formula is used where
lo < x < hi only, with the operations of `Interval.codes` in their order. Codes stay doubles: nothing is cast to an
integer, so nothing raises or wraps, and a sum of whole numbers is exact in any order while it is at most 2⁵³. That
holds up to `WHOLE` people a level; above, each code is summed in two parts, which holds up to `MOST_PEOPLE`. Which
queries run depends on ε, on ids and on the number of people, and these are public.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import narwhals.stable.v2 as nw

from hetdp.core.domain import BAD_ID, GRID, LONGEST_ID, NOT_IN_ID, Interval
from hetdp.core.levels import BELOW, HUGE, LIMIT, SHRINK, SPLIT, TINY
from hetdp.errors import InputError

from .frames import FAILED, check_columns
from .people import normal
from .request import Batch, Request, Tables, several, tables_of

Frame = nw.LazyFrame[Any]

WHOLE = 2**33
"""So many codes of at most 2²⁰ sum to at most 2⁵³, up to which doubles hold every whole number."""

MOST_ROWS = 2**31
"""Rows of one person: with at most so many, (2·sum + rows) / (2·rows) in doubles has the right whole part."""

_PART = 1024  # codes are summed in units of this and what remains, when there are many people
_FIRST = 4096  # rows that tell whether there may be many levels
_IBIS = ("duckdb", "pyspark")
_SPARE = 8  # −0.0 beside 0.0 and the like: rows of a level table that are one level
_GROUPED = 16 * LIMIT  # rows of a level table for several groups, before each ε is rounded
_FAULTS = {
    1: "a person's id is missing in at least one row; every row needs one",
    2: f"an id {BAD_ID}",
    3: "epsilon is missing or NaN in at least one row; everybody needs one (0 leaves a person out)",
    4: "the group is missing in at least one row; every row needs one",
}
_SEVERAL = {5: "epsilon", 6: "group", 7: "rows", 8: "too many rows"}


@dataclass(frozen=True, eq=False)
class Engine:
    """A lazy frame of narwhals whose rows stay where they are."""

    frame: Frame

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
        query = _Query(self.frame, request, interval)
        query = replace(query, rounded=query.many())
        found = query.levels()
        if found is None:
            query = replace(query, rounded=True)
            found = query.levels() or []
        if any(people > WHOLE for _, _, people, _ in found):
            found = replace(query, split=True).levels() or []
        rounded = query.rounded or len({epsilon for _, epsilon, _, _ in found}) > LIMIT
        return tables_of(found, request, rounded=rounded)


Level = tuple[str, Any, int, int]
"""A row of the level table: group, ε, people, sum of codes."""


@dataclass(frozen=True)
class _Query:
    """The level table as a query.

    Attributes
    ----------
    rounded
        Whether the engine rounds every ε down, because there are too many levels.
    split
        Whether codes are summed in two parts, because there are too many people.
    """

    frame: Frame
    request: Request
    interval: Interval | None
    rounded: bool = False
    split: bool = False

    def many(self) -> bool:
        """Say whether the first rows already show more levels than are kept exactly.

        Nothing would be wrong without this look; it saves grouping a large table by an ε that is different for all.
        """
        if not isinstance(self.request.epsilon, str) or not self._numeric():
            return False
        levels = self.frame.select(self._column(self.request.epsilon).alias("epsilon"))
        if len(set(fetch(levels.head(_FIRST)))) <= _FIRST // 2:
            return False
        return len(set(fetch(levels.head(2 * LIMIT)))) > LIMIT

    def levels(self) -> list[Level] | None:
        """Return the level table, or None when it has too many levels to be kept exactly."""
        people = self._rows() if self.request.person is None else self._people()
        if self.rounded:
            return [*map(self._level, fetch(self._table(self._rounded_down(people))))]
        table, most = self._table(people), LIMIT + _SPARE
        first = most if self.request.by is None else _GROUPED
        cells = fetch(table.head(first))
        many = len(cells) == first
        if many and self.request.by is not None:  # there may be many groups, not many levels
            many = len(fetch(people.select("epsilon").unique().head(most))) == most
            cells = cells if many else fetch(table)
        if many and not self._numeric():
            raise InputError(
                f"the epsilon column {self.request.epsilon!r} holds more than {LIMIT:,} different texts; "
                "cast it to doubles first"
            )
        return None if many else [*map(self._level, cells)]

    def _level(self, row: tuple[Any, ...]) -> Level:
        """Return one row of the level table; sums in two parts are put together as Python integers."""
        cells = list(row)
        group = cells.pop(0) if self.request.by is not None else ""
        epsilon = cells.pop(0) if isinstance(self.request.epsilon, str) else None
        people = int(cells.pop(0))
        if self.request.person is not None and (fault := cells.pop(0)):
            self._raise(int(fault))
        if group is None:
            raise InputError(
                f"the group is missing in at least one row of column {self.request.by!r}; every row needs one"
            )
        if self.rounded and epsilon is not None and epsilon < 0:
            self._raise_negative()
        total = 0
        for part in cells:
            total = total * _PART + int(part or 0)
        return normal(group), epsilon, people, total

    def _rows(self) -> Frame:
        """Return group, person, ε and code of every row, as far as they are asked for."""
        request, columns = self.request, []
        if request.by is not None:
            columns.append(self._column(request.by).cast(nw.String).alias("group"))
        if request.person is not None:
            columns.append(self._column(request.person).cast(nw.String).alias("person"))
        if isinstance(request.epsilon, str):
            epsilon = self._column(request.epsilon)
            columns.append((epsilon if self._numeric() else epsilon.cast(nw.String)).alias("epsilon"))
        return self.frame.select(*columns, self._code().alias("code"))

    def _code(self) -> nw.Expr:
        if self.request.value is None or self.interval is None:
            return self._number(0.0)
        lo, hi = self._number(self.interval.lo), self._number(self.interval.hi)
        x = self._column(self.request.value).cast(nw.Float64)
        above = x - lo if self.interval.lo else x
        code = (above / self._number(self.interval.width) * self._number(GRID) + self._number(0.5)).floor()
        return (
            nw.when((x > lo) & (x < hi))
            .then(code.cast(nw.Float64))
            .when(x <= lo)
            .then(self._number(0.0))
            .when((x >= hi) & (x <= self._number(math.inf)))  # NaN is not below infinity, wherever it stands
            .then(self._number(GRID))
            .otherwise(self._number(GRID / 2))
        )

    def _rounded_down(self, rows: Frame) -> Frame:
        """Round ε down to 12 significant bits, as `core.levels.round_down` does; a negative one becomes −1.

        Each step is a column of its own: an engine would write out and compute a nested expression many times.
        """
        number, epsilon, small, near, down = self._number, *map(nw.col, ("epsilon", "small", "near", "down"))
        huge = (epsilon >= number(HUGE)) & (epsilon < number(math.inf))
        rows = rows.with_columns(epsilon.cast(nw.Float64))
        rows = rows.with_columns(nw.when(huge).then(epsilon * number(SHRINK)).otherwise(epsilon).alias("small"))
        rows = rows.with_columns(self._nearest(small).alias("near"))
        below = self._nearest(near * number(BELOW))
        rows = rows.with_columns(nw.when(near > small).then(below).otherwise(near).alias("down"))
        key = nw.when(epsilon < number(0.0)).then(number(-1.0)).when(epsilon < number(TINY)).then(number(0.0))
        key = key.when(huge).then(down / number(SHRINK)).when(epsilon < number(math.inf)).then(down)
        return rows.with_columns(key.otherwise(epsilon).alias("epsilon"))

    def _nearest(self, epsilon: nw.Expr) -> nw.Expr:
        """Return the nearest double of 12 significant bits (Veltkamp's splitting)."""
        large = epsilon * self._number(SPLIT)
        return large - (large - epsilon)

    def _people(self) -> Frame:
        """Return group, ε and code of every person, and what is wrong with the person's rows (0: nothing)."""
        keys, aggregates = self._keys(), [nw.len().alias("rows"), nw.col("code").sum()]
        rows = self._rows()
        if keys:
            rows = rows.with_columns(*(self._blank(key).alias(f"no {key}") for key in keys))
        for key in keys:
            least, most = nw.col(key).min().alias(f"least {key}"), nw.col(key).max().alias(f"most {key}")
            aggregates += [least, most, nw.col(f"no {key}").sum()]
        people = rows.group_by("person").agg(*aggregates)
        twice = 2 * nw.col("code") + nw.col("rows")
        code = (twice / (2 * nw.col("rows"))).floor().cast(nw.Float64)
        return people.select(
            "person",
            *(nw.col(f"least {key}").alias(key) for key in keys),
            code.alias("code"),
            self._fault().alias("fault"),
        )

    def _blank(self, key: str) -> nw.Expr:
        """Return 1 where the ε or the group of a row is missing, else 0; some engines' least and most leave it out."""
        blank = nw.col(key).is_null()
        if key == "epsilon" and self._numeric():
            blank = blank | ~(nw.col(key).cast(nw.Float64) <= self._number(math.inf))
        return nw.when(blank).then(nw.lit(1)).otherwise(nw.lit(0))

    def _fault(self) -> nw.Expr:
        who, rows = nw.col("person"), nw.col("rows")
        found = nw.when(who.is_null()).then(nw.lit(1)).when(who == "").then(nw.lit(1))
        found = (
            found.when(who.str.len_chars() > LONGEST_ID)
            .then(nw.lit(2))
            .when(who.str.contains(NOT_IN_ID))
            .then(nw.lit(2))
        )
        for key, lost, differs in (("epsilon", 3, 5), ("group", 4, 6)):
            if key in self._keys():
                found = found.when(nw.col(f"no {key}") > 0).then(nw.lit(lost))
                found = found.when(nw.col(f"least {key}") != nw.col(f"most {key}")).then(nw.lit(differs))
        if not self.request.several:
            found = found.when(rows > 1).then(nw.lit(7))
        return found.when(rows > MOST_ROWS).then(nw.lit(8)).otherwise(nw.lit(0))

    def _table(self, people: Frame) -> Frame:
        """Return the level table: keys, people, fault if there are persons, sum of codes (in two parts if split)."""
        keys, parts = self._keys(), ["code"]
        if self.split:
            high = (nw.col("code") / self._number(_PART)).floor().cast(nw.Float64)
            low = nw.col("code") - high * self._number(_PART)
            people, parts = people.with_columns(high.alias("high"), low.alias("low")), ["high", "low"]
        fault = [nw.col("fault").max()] if self.request.person is not None else []
        aggregates = [nw.len().alias("people"), *fault, *(nw.col(part).sum() for part in parts)]
        return people.group_by(*keys).agg(*aggregates) if keys else people.select(*aggregates)

    def _keys(self) -> list[str]:
        group = ["group"] if self.request.by is not None else []
        return [*group, "epsilon"] if isinstance(self.request.epsilon, str) else group

    def _raise(self, fault: int) -> NoReturn:
        """Raise what is wrong with some people's rows; ids are public, and the least of them is named."""
        wrong = self._people().filter(nw.col("fault") == fault)
        ((n, who),) = fetch(wrong.select(nw.len().alias("n"), nw.col("person").min()))
        raise several(_SEVERAL[fault], n, who) if fault in _SEVERAL else InputError(_FAULTS[fault])

    def _raise_negative(self) -> None:
        """Raise with the least of the negative ε's."""
        epsilon = self._column(str(self.request.epsilon)).cast(nw.Float64)
        ((least,),) = fetch(self.frame.select(epsilon.alias("epsilon")).select(nw.col("epsilon").min()))
        self.request.epsilon_of(least)

    def _numeric(self) -> bool:
        name = self.request.epsilon
        return not isinstance(name, str) or self.frame.collect_schema()[name].is_numeric()

    def _number(self, number: float) -> nw.Expr:
        """Return a constant. Ibis writes SQL, where 0.1 is a decimal in many engines; a text is read as a double."""
        if self.frame.implementation.is_ibis():
            return nw.lit("Infinity" if math.isinf(number) else repr(float(number))).cast(nw.Float64)
        return nw.lit(float(number))

    def _column(self, name: str) -> nw.Expr:
        """Return a column, its name as the engine wants it: Spark would read a dot as a step into a record."""
        return nw.col(f"`{name.replace('`', '``')}`" if self.frame.implementation.is_spark_like() else name)


def fetch(frame: Frame) -> list[tuple[Any, ...]]:
    """Return the rows of a query.

    What the engine says when it fails may quote a private cell. It is not passed on, and our own error is raised
    outside the handler, so that not even the chain of exceptions holds it; the same is done everywhere in `sources`.
    """
    try:
        if frame.implementation.is_spark_like():
            return [tuple(row) for row in frame.to_native().collect()]
        if frame.implementation.is_duckdb():
            return list(frame.to_native().fetchall())
        return list(frame.collect("pyarrow").select(*frame.columns).rows())  # Dask would add the labels of rows
    except Exception:  # noqa: BLE001, S110  each engine has its own errors
        pass
    raise InputError(FAILED)
