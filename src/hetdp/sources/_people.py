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

from hetdp.core.cells import BAD_ID, LONGEST_ID, NOT_IN_ID
from hetdp.core.domain import Interval
from hetdp.core.levels import LIMIT, refuse_bad_epsilon, round_down
from hetdp.errors import InputError
from hetdp.tally.groupby import Grouping, Table, merge

from ._asked import Asked, Tables, shown
from ._batch import Batch

if TYPE_CHECKING:
    import polars as pl


def tables(batches: Iterable[Batch], asked: Asked, interval: Interval | None, expected: int = 0) -> Tables:
    """Return the tables of all people, about `expected` of them; an empty mapping if there is nobody."""
    if asked.texts:
        return _by_text(batches, asked, interval)
    grouping = Grouping(interval, expected=expected)
    for batch in batches:
        grouping.add(batch.epsilon, batch.values)
    table = grouping.table()
    return {"": table} if table.epsilon.size else {}


def _by_text(batches: Iterable[Batch], asked: Asked, interval: Interval | None) -> Tables:
    import polars as pl

    seen = Quotable()
    rows = (_rows(batch, asked, interval) for batch in seen.of(batches))
    people = _persons(rows, asked, seen) if asked.person is not None else rows
    parts = [_levels(part) for part in people]
    if not parts:
        return {}
    table = _merged(pl.concat(parts))
    rounded = table["epsilon"].n_unique() > LIMIT
    if rounded:
        table = _merged(table.with_columns(epsilon=pl.Series(round_down(table["epsilon"].to_numpy()))))
    return {str(group): _table(part, rounded=rounded) for (group,), part in table.group_by("group")}


def _rows(batch: Batch, asked: Asked, interval: Interval | None) -> pl.DataFrame:
    """Return who, group, level and code of each row; the code of a person with ε = 0 is 0, so their value is not used.

    The levels are checked here, because a grouping by texts does not go through `Grouping`.
    """
    import polars as pl

    epsilon = batch.epsilon + 0.0  # −0.0 is 0
    refuse_bad_epsilon(epsilon)
    codes = np.zeros(epsilon.size, np.int64)
    if interval is not None and batch.values is not None:
        room = np.empty(epsilon.size)
        interval.codes(batch.values, room, np.empty(epsilon.size, dtype=bool))
        codes = np.where(epsilon > 0, room, 0).astype(np.int64)
    frame = {"epsilon": epsilon, "code": codes}
    return pl.DataFrame(frame).with_columns(
        person=_ids(batch.texts[asked.person]) if asked.person is not None else pl.lit(""),
        group=_groups(batch.texts[asked.by], asked.by) if asked.by is not None else pl.lit(""),
    )


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


def normal(text: str) -> str:
    """Return a text in the form in which ids and groups are compared: NFC, otherwise exact."""
    return unicodedata.normalize("NFC", text)


class Quotable:
    """Whether ids may be quoted in a message: not if one batch says no."""

    def __init__(self) -> None:
        self.yes = True

    def of(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        """Yield the batches and remember what they say."""
        for batch in batches:
            self.yes &= batch.quotes
            yield batch

    def example(self, ids: pl.Series) -> str:
        """Return an example for a message, or nothing."""
        return f", such as {shown(ids.min())}" if self.yes else ""


def _persons(rows: Iterable[pl.DataFrame], asked: Asked, seen: Quotable) -> Iterator[pl.DataFrame]:
    """Yield one row a person."""
    import polars as pl

    both = pl.col("epsilon", "group")
    first = (
        pl.col("code").sum(),
        pl.len().cast(pl.Int64).alias("rows"),  # Polars counts in 32 bits, and twice 2³¹ rows would wrap
        both.min().name.prefix("least "),
        both.max().name.prefix("most "),
    )
    again = pl.col("code", "rows").sum(), pl.col("^least .*$").min(), pl.col("^most .*$").max()
    parts = [part.group_by("person").agg(*first) for part in rows]
    if not parts:
        return
    people = pl.concat(parts).group_by("person").agg(*again)
    _one_each(people, asked, seen)
    code = (2 * pl.col("code") + pl.col("rows")) // (2 * pl.col("rows"))
    yield people.select("person", code.alias("code"), epsilon="least epsilon", group="least group")


def _one_each(people: pl.DataFrame, asked: Asked, seen: Quotable) -> None:
    import polars as pl

    for column, what in (("epsilon", "more than one epsilon"), ("group", "rows in more than one group")):
        differ = people.filter(pl.col(f"least {column}") != pl.col(f"most {column}"))["person"]
        if differ.len():
            raise InputError(f"{differ.len():,} people have {what}{seen.example(differ)}; a person has one")
    if not asked.several and (people["rows"] > 1).any():
        twice = people.filter(pl.col("rows") > 1)["person"]
        raise InputError(
            f"{twice.len():,} ids are on more than one row{seen.example(twice)}; "
            f"say rows='average' (--rows average) to average a person's rows"
        )


def _levels(people: pl.DataFrame) -> pl.DataFrame:
    import polars as pl

    return people.group_by("group", "epsilon").agg(
        pl.col("code").sum().alias("total"), pl.len().cast(pl.Int64).alias("count")
    )


def _merged(parts: pl.DataFrame) -> pl.DataFrame:
    import polars as pl

    return parts.group_by("group", "epsilon").agg(pl.col("total", "count").sum())


def _table(part: pl.DataFrame, *, rounded: bool) -> Table:
    epsilon, count, total = (part[name].to_numpy() for name in ("epsilon", "count", "total"))
    return merge([Table.single(epsilon, count, total, rounded=rounded)])
