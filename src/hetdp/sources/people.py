"""Batches with ids or groups become one table for each group: who counts, and once each.

Claim: a person's rows add one code in {0…Q} to one level of one group, whatever their values; everything else here (who
is there, which level, which group, every error) is decided by the public columns alone.

Argument: a person's code is the average of their rows' codes, rounded in integers: (2·sum + rows) // (2·rows), which
lies between the smallest and the largest of them, is exact and does not depend on the order of rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from hetdp.core.domain import LONGEST_ID, NOT_IN_ID, Interval
from hetdp.core.levels import LIMIT, WIDE, WIDE_LIMIT, refuse_bad_epsilon
from hetdp.statistics import Statistic
from hetdp.tally.groupby import coded, squared

from .request import Batch, Fault, Request, Tables, fault_error, level_table


class People:
    """Puts the rows of people together, batch by batch: `add` as often as needed, then `tables`."""

    def __init__(self, request: Request, statistic: Statistic | None) -> None:
        self.request, self.statistic = request, statistic
        self.parts, self.quotes = list[pl.DataFrame](), True

    def add(self, batch: Batch) -> None:
        """Add some rows."""
        rows = _rows(batch, self.request, self.statistic)
        if self.request.person is None:
            self.parts.append(_levels(_squared(rows, self.statistic)))
        else:
            self.parts.append(_by_person(rows))
        self.quotes &= batch.quotes

    def tables(self) -> Tables:
        """Return the tables of all people; an empty mapping if there is nobody."""
        if not self.parts:
            return {}
        table, statistic = pl.concat(self.parts), self.statistic
        if self.request.person is not None:
            table = _squared(_persons(table, self.request, quotes=self.quotes), statistic)
        table = _levels(table)
        wide = statistic is not None and statistic.width > WIDE
        rounded = table["epsilon"].n_unique() > (WIDE_LIMIT if wide else LIMIT)
        names = [name for name in table.columns if _is_code(name)]
        return {
            str(group): level_table(
                statistic,
                part["epsilon"].to_numpy(),
                part["cell"].to_numpy(),
                part["count"].to_numpy(),
                part.select(names).to_numpy(),
                rounded=rounded,
            )
            for (group,), part in table.group_by("group")
        }


def _rows(batch: Batch, request: Request, statistic: Statistic | None) -> pl.DataFrame:
    """Return who, group, level, cell and codes of each row; of a person with ε = 0 they are 0: no value is used.

    The levels are checked here, because a grouping by texts does not go through `Grouping`.
    """
    epsilon = batch.epsilon + 0.0  # −0.0 is 0
    refuse_bad_epsilon(epsilon)
    cell, codes = np.zeros(epsilon.size, np.int64), list[NDArray[Any]]()
    if statistic is not None:
        cell, codes = coded(statistic, batch.columns)
        codes = codes[: len(statistic.sums)]  # squares are made of the averages
    counted = {f"code {i}": np.where(epsilon > 0, code, 0).astype(np.int64) for i, code in enumerate(codes)}
    rows = pl.DataFrame({"epsilon": epsilon, "cell": np.where(epsilon > 0, cell, 0), **counted}).with_columns(
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
        pl.col("^(code.*|count)$").sum(),
        pl.col("epsilon", "group", "cell").min(),
        pl.col("most epsilon", "most group").max(),
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
    codes = [Interval.average(pl.col(name), pl.col("count")).alias(name) for name in people.columns if _is_code(name)]
    return people.select("person", "epsilon", "group", "cell", *codes, count=pl.lit(1, pl.Int64))


def _is_code(name: str) -> bool:
    return name.startswith("code ")


def _squared(people: pl.DataFrame, statistic: Statistic | None) -> pl.DataFrame:
    """Return people with the code of the square as well, if the statistic has it."""
    if statistic is None or not statistic.square:
        return people
    return people.with_columns(pl.Series("code square", squared(people["code 0"].to_numpy()), pl.Int64))


def _levels(people: pl.DataFrame) -> pl.DataFrame:
    return people.group_by("group", "epsilon", "cell").agg(pl.col("^(code.*|count)$").sum())
