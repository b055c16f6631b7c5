"""Batches with ids or groups become one table for each group: who counts, and once each.

Claim: a person's rows add one code in {0…Q} to one level of one group, whatever their values; everything else here (who
is there, which level, which group, every error) is decided by the public columns alone.

Argument: a person's code is the average of their rows' codes, rounded in integers: (2·sum + rows) // (2·rows), which
lies between the smallest and the largest of them, is exact and does not depend on the order of rows.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import polars as pl

from hetdp.core.domain import LONGEST_ID, NOT_IN_ID, Interval
from hetdp.core.levels import LIMIT, refuse_bad_epsilon
from hetdp.tally.tally import Table

from .request import Batch, Fault, Request, Tables, fault_error


def grouped_tables(batches: Iterable[Batch], request: Request, interval: Interval | None) -> Tables:
    """Return the tables of all people; an empty mapping if there is nobody."""
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
    return {
        str(group): Table.single(part["epsilon"], part["count"], part["code"], rounded=rounded)
        for (group,), part in table.group_by("group")
    }


def _rows(batch: Batch, request: Request, interval: Interval | None) -> pl.DataFrame:
    """Return who, group, level and code of each row; the code of a person with ε = 0 is 0, so their value is not used.

    The levels are checked here, because a grouping by texts does not go through `Grouping`.
    """
    epsilon = batch.epsilon + 0.0  # −0.0 is 0
    refuse_bad_epsilon(epsilon)
    codes = np.zeros(epsilon.size, np.int64)
    if interval is not None and batch.values is not None:
        room = interval.codes(batch.values, np.empty(epsilon.size))
        codes = np.where(epsilon > 0, room, 0).astype(np.int64)
    rows = pl.DataFrame({"epsilon": epsilon, "code": codes}).with_columns(
        person=_ids(batch.texts[request.person]) if request.person is not None else pl.lit(""),
        group=_groups(batch.texts[request.by]) if request.by is not None else pl.lit(""),
        count=pl.lit(1, pl.Int64),  # Polars itself counts in 32 bits, and twice 2³¹ rows would wrap
    )
    return rows if request.person is None else rows.with_columns(pl.col("epsilon", "group").name.prefix("most "))


def _ids(cells: pl.Series) -> pl.Series:
    ids = cells.str.normalize("NFC")
    if ids.null_count() or (ids == "").any():
        raise fault_error(Fault.NO_ID)
    if (ids.str.len_chars() > LONGEST_ID).any() or ids.str.contains(NOT_IN_ID).any():
        raise fault_error(Fault.BAD_ID)
    return ids


def _groups(cells: pl.Series) -> pl.Series:
    groups = cells.str.normalize("NFC")
    if groups.null_count():
        raise fault_error(Fault.NO_GROUP)
    return groups


def _by_person(rows: pl.DataFrame) -> pl.DataFrame:
    """Return one row a person: how many rows, the sum of their codes, the least and the greatest ε and group."""
    return rows.group_by("person").agg(
        pl.col("code", "count").sum(), pl.col("epsilon", "group").min(), pl.col("most epsilon", "most group").max()
    )


def _persons(parts: pl.DataFrame, request: Request, *, quotes: bool) -> pl.DataFrame:
    """Return one row a person, with the average of their codes, or raise if they have several ε, groups or rows."""
    people = _by_person(parts)
    for fault, condition in (
        (Fault.EPSILONS, pl.col("epsilon") != pl.col("most epsilon")),
        (Fault.GROUPS, pl.col("group") != pl.col("most group")),
        (Fault.ROWS, pl.lit(not request.several) & (pl.col("count") > 1)),
    ):
        wrong = people.filter(condition)["person"]
        if wrong.len():
            raise fault_error(fault, wrong.len(), wrong.min() if quotes else None)
    code = Interval.average(pl.col("code"), pl.col("count"))
    return people.select("person", "epsilon", "group", code.alias("code"), count=pl.lit(1, pl.Int64))


def _levels(people: pl.DataFrame) -> pl.DataFrame:
    return people.group_by("group", "epsilon").agg(pl.col("code", "count").sum())
