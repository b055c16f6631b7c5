"""From batches of rows to one table for each group: who counts, and once each.

Claim: a person's rows add one code in {0…Q} to one level of one group, whatever their values; everything else here (who
is there, which level, which group, every error) is decided by the public columns alone.

Argument: a person's code is the average of their rows' codes, rounded in integers: (2·sum + rows) // (2·rows), which
lies between the smallest and the largest of them, is exact and does not depend on the order of rows.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from hetdp.core.domain import BAD_ID, LONGEST_ID, NOT_IN_ID, Interval
from hetdp.core.levels import LIMIT, refuse_bad_epsilon, round_down
from hetdp.errors import InputError
from hetdp.tally.groupby import Grouping

from .request import Batch, Request, Tables, several, table_of

if TYPE_CHECKING:
    import polars as pl


class RowSource:
    """What a source is that hands over its rows; an engine that groups by itself has tables alone."""

    def batches(self, request: Request, *, owner: bool = False) -> Iterator[Batch]:
        """Yield the rows; with `owner` also what `check` may tell the data's owner."""
        raise NotImplementedError

    def check(self, request: Request) -> object:
        """Raise for what is wrong with the names, the header or the types of a table; no row is read."""

    def expected(self) -> int:
        """Return about how many rows there are, if that is known; else 0."""
        return 0

    def tables(self, request: Request, interval: Interval | None) -> Tables:
        """Return the tables of the groups."""
        return tables(self.batches(request), request, interval, self.expected())


def tables(batches: Iterable[Batch], request: Request, interval: Interval | None, expected: int = 0) -> Tables:
    """Return the tables of all people, about `expected` of them; an empty mapping if there is nobody."""
    if request.texts:
        return _by_text(batches, request, interval)
    grouping = Grouping(interval, expected=expected)
    for batch in batches:
        grouping.add(batch.epsilon, batch.values)
    table = grouping.table()
    return {"": table} if table.epsilon.size else {}


def normal(text: str) -> str:
    """Return a text in the form in which ids and groups are compared: NFC, otherwise exact."""
    return unicodedata.normalize("NFC", text)


def _by_text(batches: Iterable[Batch], request: Request, interval: Interval | None) -> Tables:
    import polars as pl

    parts, quotes = list[pl.DataFrame](), True
    for batch in batches:
        rows = _rows(batch, request, interval)
        parts.append(_levels(rows) if request.person is None else _by_person(rows))
        quotes &= batch.quotes
    if not parts:
        return {}
    table = pl.concat(parts)
    if request.person is not None:
        table = _persons(table, request, quotes=quotes)
    table = _levels(table)
    rounded = table["epsilon"].n_unique() > LIMIT
    if rounded:
        table = _levels(table.with_columns(epsilon=pl.Series(round_down(table["epsilon"].to_numpy()))))
    return {
        str(group): table_of(part["epsilon"], part["count"], part["code"], rounded=rounded)
        for (group,), part in table.group_by("group")
    }


def _rows(batch: Batch, request: Request, interval: Interval | None) -> pl.DataFrame:
    """Return who, group, level and code of each row; the code of a person with ε = 0 is 0, so their value is not used.

    The levels are checked here, because a grouping by texts does not go through `Grouping`.
    """
    import polars as pl

    epsilon = batch.epsilon + 0.0  # −0.0 is 0
    refuse_bad_epsilon(epsilon)
    codes = np.zeros(epsilon.size, np.int64)
    if interval is not None and batch.values is not None:
        room = interval.codes(batch.values, np.empty(epsilon.size))
        codes = np.where(epsilon > 0, room, 0).astype(np.int64)
    rows = pl.DataFrame({"epsilon": epsilon, "code": codes}).with_columns(
        person=_ids(batch.texts[request.person]) if request.person is not None else pl.lit(""),
        group=_groups(batch.texts[request.by], request.by) if request.by is not None else pl.lit(""),
        count=pl.lit(1, pl.Int64),  # Polars itself counts in 32 bits, and twice 2³¹ rows would wrap
    )
    return rows if request.person is None else rows.with_columns(pl.col("epsilon", "group").name.prefix("most "))


def _ids(cells: pl.Series) -> pl.Series:
    ids = cells.str.normalize("NFC")
    if ids.null_count() or (ids == "").any():
        raise InputError("a person's id is missing in at least one row; every row needs one")
    if (ids.str.len_chars() > LONGEST_ID).any() or ids.str.contains(NOT_IN_ID).any():
        raise InputError(f"an id {BAD_ID}")
    return ids


def _groups(cells: pl.Series, by: str) -> pl.Series:
    groups = cells.str.normalize("NFC")
    if groups.null_count():
        raise InputError(f"the group is missing in at least one row of column {by!r}; every row needs one")
    return groups


def _by_person(rows: pl.DataFrame) -> pl.DataFrame:
    """Return one row a person: how many rows, the sum of their codes, the least and the greatest ε and group."""
    import polars as pl

    return rows.group_by("person").agg(
        pl.col("code", "count").sum(), pl.col("epsilon", "group").min(), pl.col("most epsilon", "most group").max()
    )


def _persons(parts: pl.DataFrame, request: Request, *, quotes: bool) -> pl.DataFrame:
    """Return one row a person, with the average of their codes, or raise if they have several ε, groups or rows."""
    import polars as pl

    people = _by_person(parts)
    for what, fault in (
        ("epsilon", pl.col("epsilon") != pl.col("most epsilon")),
        ("group", pl.col("group") != pl.col("most group")),
        ("rows", pl.lit(not request.several) & (pl.col("count") > 1)),
    ):
        wrong = people.filter(fault)["person"]
        if wrong.len():
            raise several(what, wrong.len(), wrong.min() if quotes else None)
    code = Interval.average(pl.col("code"), pl.col("count"))
    return people.select("person", "epsilon", "group", code.alias("code"), count=pl.lit(1, pl.Int64))


def _levels(people: pl.DataFrame) -> pl.DataFrame:
    import polars as pl

    return people.group_by("group", "epsilon").agg(pl.col("code", "count").sum())
