"""Where the data is. Every source gives the same `Tally` for the same people.

A source that stands on this machine yields `Batch`es of rows, which are grouped here; an engine (a database, Spark,
DuckDB) groups by itself and hands over its tables. `read` finds the source by what it is given.
"""

from __future__ import annotations

import decimal
import numbers
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from hetdp.core.domain import Interval
from hetdp.core.levels import Levels
from hetdp.errors import InputError
from hetdp.tally.groupby import Table, merge
from hetdp.tally.tally import Tally

from . import arrays, databases, files, frames
from ._asked import Asked, Tables, shown
from ._batch import Batch, Tiers
from ._form import Form
from ._people import normal, tables

__all__ = [
    "Batch",
    "Form",
    "Rows",
    "Source",
    "counted",
    "databases",
    "files",
    "read",
    "read_groups",
    "records",
    "tally",
]

Rows = Literal["one", "average"]
"""How many rows a person may have, and what is done with several."""

_BYTES = 16
"""About how many bytes a row has in a file."""

_NOBODY = "there is nobody here (n = 0); a mean needs at least one person"
_AVERAGED = "A person's rows are averaged, so that everybody counts once; ids are compared as exact text."
_CHECKED = "No id stands on two rows: everybody counts once."
_ROWS = "Every row is another person; nobody checked it, because no column of ids was named."
_EMPTY = Table.single(np.zeros(1), np.zeros(1, np.int64), np.zeros(1, np.int64))
"""A group without people: nobody at ε = 0."""


@dataclass(frozen=True)
class Source:
    """Where the people are and what is asked about them; nothing has been read yet.

    Attributes
    ----------
    origin
        Values in memory, names of files, a frame, or a database.
    ids
        With values in memory: who each is about, one entry a row.
    in_memory
        Whether the origin is the values themselves rather than a table with named columns.
    """

    origin: Any
    asked: Asked
    tiers: Tiers
    epsilon: Any = None
    ids: Any = None
    query: str | None = None
    form: Form = field(default_factory=Form)
    watch: Callable[[int, int], None] | None = None
    in_memory: bool = False

    @classmethod
    def of(  # noqa: PLR0913  everything that says where the people are
        cls,
        origin: Any,
        *,
        value: str | None,
        epsilon: Any,
        person: Any = None,
        rows: Rows = "one",
        by: str | None = None,
        tiers: Mapping[str, Any] | None = None,
        query: str | None = None,
        form: Form = Form(),  # noqa: B008  it is frozen
        watch: Callable[[int, int], None] | None = None,
        counts_only: bool = False,
    ) -> Source:
        """Return the source that the parameters of `read` describe, or raise if they do not fit together."""
        if rows not in ("one", "average"):
            raise InputError(f"rows is 'one' (a person has one row) or 'average' (got {rows!r})")
        if person is None and rows != "one":
            raise InputError("rows='average' needs to know whose they are: person=…, --person COL")
        names = Tiers({} if tiers is None else tiers)
        if not isinstance(value, (str, type(None))):
            raise InputError(
                f"value is the name of a column (got {type(value).__name__}); give values themselves as the source: "
                "mean(incomes, epsilon=privacy, bounds=…)"
            )
        if query is not None and not databases.is_database(origin):
            raise InputError("a query needs a database: postgresql://…, sqlite:///file.db, or a connection")
        if form != Form() and not _names_files(origin):
            raise InputError(
                "delimiter, decimal and thousands say how a file is written; elsewhere turn the column into numbers"
            )
        if not _has_columns(origin, value, counts_only=counts_only):
            if value is not None or isinstance(epsilon, str) or by is not None or isinstance(person, str):
                raise InputError(
                    "columns are named for files, frames and databases only; with values in memory give the columns "
                    "themselves: mean(incomes, epsilon=privacy, bounds=…)"
                )
            asked = Asked(None, 0.0, None if person is None else "ids", rows == "average")
            return cls(origin, asked, names, epsilon, person, in_memory=True)
        if not isinstance(epsilon, (str, numbers.Real, decimal.Decimal)) or (value is None and not counts_only):
            raise InputError("a table needs the names of two columns: value=… and epsilon=…")
        if not isinstance(person, (str, type(None))) or not isinstance(by, (str, type(None))):
            raise InputError("with a table give the names of the columns of ids and groups")
        level = epsilon if isinstance(epsilon, str) else names.epsilon_of(epsilon, "")
        asked = Asked(value, level, person, rows == "average", by)
        return cls(origin, asked, names, query=query, form=form, watch=watch)

    def tables(self, interval: Interval | None) -> Tables:
        """Return the tables of the groups; without `interval` only people are counted and no value is used."""
        if databases.is_database(self.origin):
            if self.query is None:
                raise InputError("a database needs a query: query='select income, eps from people'")
            return databases.tables(self.origin, self.query, self.asked, interval, self.tiers)
        if frames.is_frame(self.origin) and frames.is_lazy(self.origin):
            return frames.tables(self.origin, self.asked, interval, self.tiers)
        expected = files.size(_names(self.origin)) // _BYTES if self.in_files else 0
        return tables(self.batches(), self.asked, interval, expected)

    def batches(self, *, owner: bool = False) -> Iterator[Batch]:
        """Yield the rows; with `owner` also what `check` may tell the data's owner."""
        if databases.is_database(self.origin):
            raise InputError("this needs the rows themselves; a database hands over sums only: export a file first")
        if frames.is_frame(self.origin):
            if frames.is_lazy(self.origin):
                raise InputError("this needs the rows themselves; collect the frame into memory first")
            return frames.batches(self.origin, self.asked, self.tiers, owner=owner)
        if self.in_files:
            return files.batches(_names(self.origin), self.asked, self.tiers, self.form, owner=owner, watch=self.watch)
        return arrays.batches(self.origin, self.epsilon, self.tiers, self.ids, owner=owner)

    def check(self) -> None:
        """Raise for what is wrong with the names, the header or the types of a table; no row is read."""
        self.batches()  # a source that cannot yield rows at all says so; nothing is read until the first is taken
        if self.in_files:
            files.check(self.names, self.asked, self.form)
        elif not self.in_memory:
            frames.check(self.origin, self.asked)

    @property
    def names(self) -> files.Names:
        """The names of the files, if the rows stand in files."""
        return _names(self.origin) if self.in_files else ()

    @property
    def in_files(self) -> bool:
        """Whether the rows stand in files."""
        elsewhere = self.in_memory or frames.is_frame(self.origin) or databases.is_database(self.origin)
        return not elsewhere

    @property
    def note(self) -> str:
        """What is assumed about rows and people, in a sentence."""
        return _ROWS if self.asked.person is None else _AVERAGED if self.asked.several else _CHECKED


def read(  # noqa: PLR0913  one parameter an aspect of a table
    source: Any,
    *,
    value: str | None = None,
    epsilon: Any,
    bounds: Any,
    person: Any = None,
    rows: Rows = "one",
    tiers: Mapping[str, Any] | None = None,
    public_rows: Any = None,
    query: str | None = None,
    delimiter: str | None = None,
    decimal: str = ".",
    thousands: str | None = None,
) -> Tally:
    """Return the tally of a source: per level of ε, the people and the exact sum of their codes.

    Parameters
    ----------
    source
        Values in memory, one a person; the name of a file (CSV, TSV, Parquet, Arrow IPC, NDJSON; gz and zst), a glob or
        a list of names; a frame (pandas, Polars, PyArrow, DuckDB, Spark, Dask, Ibis); the URL or connection of a
        PostgreSQL or SQLite database.
    value, epsilon
        The columns of a table; `epsilon` may be one ε for everybody. With values in memory there is no `value`, and
        `epsilon` is a sequence of the same length, or one ε for everybody.
    bounds
        The public interval (lo, hi). It is never taken from the data.
    person
        The column of ids (with values in memory: the ids). Without it every row is taken for another person.
    rows
        What a person may have: "one" row, a second one is an error; or several whose clamped values are averaged,
        "average". All rows of a person must have the same ε.
    tiers
        {name: ε} when the ε column holds names of tiers.
    public_rows
        A second source of the same kind with values that are known publicly; they join with ε = ∞.
    query
        What to read from a database: a select, or the name of a table. The sums are made by the database.
    delimiter, decimal, thousands
        How a delimited file is written; a comma (a tab in .tsv), "." and nothing unless said.

    Notes
    -----
    No value can raise, warn or change who is counted: one outside the interval is clamped, one
    that is missing or unreadable counts as the midpoint. A bad ε is a loud error: it is public. In a delimited file a
    line is a person, so a cell must not hold a line break; the page on limits has the other conditions.
    """
    interval = Interval.of(bounds)
    form = Form(delimiter, decimal, thousands)
    people = Source.of(
        source, value=value, epsilon=epsilon, person=person, rows=rows, tiers=tiers, query=query, form=form
    )
    return tally(people, interval, public_rows)


def tally(people: Source, interval: Interval, public_rows: Any = None) -> Tally:
    """Return the tally of a source and of the rows that are public."""
    found = people.tables(interval)
    if not found:
        raise InputError(_NOBODY)
    table = found[""]
    notes: tuple[str, ...] = (people.note,)
    if public_rows is not None:
        added = _public(people, public_rows, interval)[""]
        table, notes = merge([table, added]), (*notes, _added(added.n))
    return Tally(table, interval, people.tiers.shown, notes)


def read_groups(
    people: Source, interval: Interval, *, groups: Sequence[str] | None = None, public_rows: Any = None
) -> dict[str, Tally]:
    """Return a tally for each group: those named, which may be empty, or those that are there, in order of name."""
    found = people.tables(interval)
    if not found:
        raise InputError(_NOBODY)
    notes: tuple[str, ...] = (people.note,)
    if public_rows is not None:
        added = _public(people, public_rows, interval)
        notes = (*notes, _added(sum(table.n for table in added.values())))
        found = {g: merge([t[g] for t in (found, added) if g in t]) for g in found.keys() | added.keys()}
    named = list(dict.fromkeys(map(normal, groups))) if groups is not None else sorted(found)
    if unknown := sorted(found.keys() - set(named)):
        example = "" if people.in_files else f", such as {shown(unknown[0])}"
        raise InputError(f"{len(unknown):,} groups are not in the list of groups{example}; add them")
    return {g: Tally(found.get(g, _EMPTY), interval, people.tiers.shown, notes) for g in named}


def _public(people: Source, rows: Any, interval: Interval) -> Tables:
    asked = people.asked
    _distinct(people, rows)
    if people.in_memory:
        public = Source(rows, Asked(None, 0.0), Tiers({}), np.inf, in_memory=True)
    else:
        public = Source(rows, Asked(asked.value, np.inf, by=asked.by), Tiers({}), query=people.query, form=people.form)
    found = public.tables(interval)
    if not found:
        raise InputError("the public rows are empty; leave the option out if there are none")
    return found


def _distinct(people: Source, rows: Any) -> None:
    """Refuse the private rows themselves as public ones: everybody in them would lose all protection."""
    tabular = frames.is_frame(rows) or databases.is_database(rows) or _names_files(rows)
    if not people.in_memory and not tabular:
        raise InputError("with a table the public rows are a table too: a file, a frame or a database")
    same = rows is people.origin or (databases.is_database(rows) and databases.is_database(people.origin))
    if people.in_files and not (frames.is_frame(rows) or databases.is_database(rows)):
        ours = {(path.stat().st_dev, path.stat().st_ino) for path in files.paths(_names(people.origin))}
        same = any((path.stat().st_dev, path.stat().st_ino) in ours for path in files.paths(_names(rows)))
    if same:
        raise InputError("the public rows are the private source itself, or in a database; give them as another file")


def _added(people: int) -> str:
    return f"{people:,} rows that are known publicly were added with ε = ∞."


def counted(people: Source) -> Levels:
    """Return the levels of a table. No value is used; naming their column lets a line be too short for it."""
    found = people.tables(None)
    if not found:
        raise InputError("there is nobody here (n = 0); a plan needs at least one person")
    return found[""].levels(people.tiers.shown)


def records(people: Source, method: str) -> tuple[NDArray[Any], NDArray[np.float64]]:
    """Return everybody's value and ε as arrays, for a method that needs them one by one; from memory only."""
    if people.asked.value is not None and not frames.is_frame(people.origin):
        raise InputError(f"{method} keeps people one by one and works on data in memory only; load the table first")
    if people.asked.person is not None:
        raise InputError(f"{method} keeps people one by one; average each person's rows first")
    parts = list(people.batches())
    if not parts:
        raise InputError(_NOBODY)
    return np.concatenate([np.asarray(part.values) for part in parts]), np.concatenate([p.epsilon for p in parts])


def _has_columns(origin: Any, value: str | None, *, counts_only: bool) -> bool:
    """Say whether a source is a table with named columns rather than values in memory."""
    if isinstance(origin, (str, os.PathLike)) or databases.is_database(origin) or frames.is_frame(origin):
        return True
    listed = isinstance(origin, (list, tuple)) and (value is not None or counts_only)
    return listed and _names_files(origin)


def _names_files(origin: Any) -> bool:
    """Say whether a source is the name of a file, or a list of such names."""
    names = _names(origin)
    named = bool(names) and all(isinstance(name, (str, os.PathLike)) for name in names)
    return named and not databases.is_database(origin)


def _names(origin: Any) -> list[str | os.PathLike[str]]:
    return list(origin) if isinstance(origin, (list, tuple)) else [origin]
