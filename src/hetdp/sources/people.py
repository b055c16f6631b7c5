"""Batches with ids or groups become one table for each group: who counts, and once each.

Claim: a person's rows add one code in {0…Q} to one level of one group, whatever their values; everything else here (who
is there, which level, which group, every error) is decided by the public columns alone.

Argument: a person's code is the average of the codes of those of their rows that have a value, rounded in integers:
(2·sum + rows) // (2·rows), which lies between the smallest and the largest of them, is exact and does not depend on the
order of rows. If none of their rows has a value, the person has none, and `settled` says what becomes of that. Only if
it was said that who has a value is public (missing="drop") does it decide who is there.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from hetdp.core.domain import LONGEST_ID, NOT_IN_ID, Interval
from hetdp.core.levels import LIMIT, WIDE, WIDE_LIMIT, refuse_bad_epsilon
from hetdp.statistics import Statistic
from hetdp.tally import coded, settled

from .request import Batch, Fault, Request, Tables, fault_error, level_table

_KEYS = "^(epsilon|cell|group .*)$"
_SUMS = "^(code.*|known.*|count)$"


class People:
    """Puts the rows of people together, batch by batch: `add` as often as needed, then `tables`."""

    def __init__(self, request: Request, statistic: Statistic | None) -> None:
        self.request, self.statistic = request, statistic
        self.parts, self.quotes = list[pl.DataFrame](), True

    def add(self, batch: Batch) -> None:
        """Add some rows."""
        rows = _rows(batch, self.request, self.statistic)
        if self.request.person is None:
            self.parts.append(_levels(_settled(rows, self.statistic)))
        else:
            self.parts.append(_by_person(_weighted(rows)))
        self.quotes &= batch.quotes

    def tables(self) -> Tables:
        """Return the tables of all people; an empty mapping if there is nobody."""
        if not self.parts:
            return {}
        table, statistic = pl.concat(self.parts), self.statistic
        if self.request.person is not None:
            table = _levels(_settled(_persons(table, self.request, quotes=self.quotes), statistic))
        table = table.group_by(pl.col(_KEYS)).agg(pl.col(_SUMS).sum())
        wide = statistic is not None and statistic.width > WIDE
        rounded = table["epsilon"].n_unique() > (WIDE_LIMIT if wide else LIMIT)
        names = [name for name in table.columns if _is_code(name)]
        groups = [name for name in table.columns if name.startswith("group ")]
        parts = table.group_by(groups) if groups else [((), table)]
        return {
            self.request.group_of([str(text) for text in group]): level_table(
                statistic,
                part["epsilon"].to_numpy(),
                part["cell"].to_numpy(),
                part["count"].to_numpy(),
                part.select(names).to_numpy() if names else np.zeros((part.height, 0), np.int64),  # Polars 1
                rounded=rounded,
            )
            for group, part in parts
        }


def _rows(batch: Batch, request: Request, statistic: Statistic | None) -> pl.DataFrame:
    """Return who, group, level, cell and codes of each row, null where a value is missing, and how many rows it is.

    Of a person with ε = 0 cell and codes are 0: no value is used.

    The levels are checked here, because a grouping by texts does not go through `Grouping`.
    """
    epsilon = batch.epsilon + 0.0  # −0.0 is 0
    refuse_bad_epsilon(epsilon)
    cell, codes = np.zeros(epsilon.size, np.int64), list[NDArray[Any]]()
    if statistic is not None:
        cell, codes = coded(statistic, batch.columns)
        if statistic.missing != "drop":  # then even of them it is public whether there is a value
            cell = np.where(epsilon > 0, cell, 0)
    used = [np.where((epsilon > 0) | np.isnan(code), code, 0) for code in codes]
    counted = {f"code {i}": pl.Series(code, nan_to_null=True).cast(pl.Int64) for i, code in enumerate(used)}
    groups = {f"group {i}": _groups(batch.texts[name]) for i, name in enumerate(request.groupings)}
    rows = pl.DataFrame({"epsilon": epsilon, "cell": cell, **counted}).with_columns(
        person=_ids(batch.texts[request.person]) if request.person is not None else pl.lit(""),
        # Polars itself counts in 32 bits, and twice 2³¹ rows would wrap
        count=pl.lit(1, pl.Int64) if batch.people is None else pl.Series(batch.people, dtype=pl.Int64),
        **groups,
    )
    return rows if request.person is None else rows.with_columns(pl.col("epsilon", *groups).name.prefix("most "))


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


def _weighted(rows: pl.DataFrame) -> pl.DataFrame:
    """Return rows with the codes of as many rows as an entry stands for, and how many of them have a value."""
    codes = [name for name in rows.columns if _is_code(name)]
    known = [pl.when(pl.col(name).is_not_null()).then("count").otherwise(0).alias(_known(name)) for name in codes]
    return rows.with_columns(*(pl.col(name) * pl.col("count") for name in codes), *known)


def _by_person(rows: pl.DataFrame) -> pl.DataFrame:
    """Return one row a person: how many rows, the sum of their codes, the least and the greatest ε and group."""
    return rows.group_by("person").agg(
        pl.col(_SUMS).sum(),
        pl.col(_KEYS).min(),
        pl.col("^most .*$").max(),
    )


def _persons(parts: pl.DataFrame, request: Request, *, quotes: bool) -> pl.DataFrame:
    """Return one row a person, with the average of their codes, or raise if they have several ε, groups or rows."""
    people = _by_person(parts)
    groups = [name for name in people.columns if name.startswith("group ")]
    for fault, condition in (
        (Fault.EPSILONS, pl.col("epsilon") != pl.col("most epsilon")),
        (Fault.GROUPS, pl.any_horizontal(pl.lit(False), *(pl.col(g) != pl.col(f"most {g}") for g in groups))),  # noqa: FBT003
        (Fault.ROWS, pl.lit(not request.several) & (pl.col("count") > 1)),
    ):
        wrong = people.filter(condition)["person"]
        if wrong.len():
            raise fault_error(fault, wrong.len(), wrong.min() if quotes else None)
    codes = [name for name in people.columns if _is_code(name)]
    averages = [
        pl.when(pl.col(_known(name)) > 0)
        .then(Interval.average(pl.col(name), pl.col(_known(name)).clip(1)))
        .otherwise(None)
        .alias(name)
        for name in codes
    ]
    return people.select("person", "epsilon", "cell", *groups, *averages, count=pl.lit(1, pl.Int64))


def _is_code(name: str) -> bool:
    return name.startswith("code ")


def _known(code: str) -> str:
    return f"known {code.removeprefix('code ')}"


def _settled(people: pl.DataFrame, statistic: Statistic | None) -> pl.DataFrame:
    """Return people, or rows that are people, with the cells and codes that count."""
    if statistic is None:
        return people
    columns = [people[name].cast(pl.Float64).fill_null(np.nan) for name in people.columns if _is_code(name)]
    cell, *codes = (column.to_numpy(writable=True) for column in (people["cell"], *columns))
    keep, cell, codes = settled(statistic, cell, codes)
    kept = people.select(pl.col("^(epsilon|count|group .*)$"))
    kept = kept if keep is None else kept.filter(pl.Series(keep))
    found = {f"code {i}": pl.Series(code).cast(pl.Int64) for i, code in enumerate(codes)}
    return kept.with_columns(pl.Series("cell", cell), **found)


def _levels(people: pl.DataFrame) -> pl.DataFrame:
    codes = [(pl.col(name) * pl.col("count")).sum() for name in people.columns if _is_code(name)]
    return people.group_by(pl.col(_KEYS)).agg(*codes, pl.col("count").sum())
