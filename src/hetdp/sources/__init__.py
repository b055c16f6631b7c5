"""Where the data is. Every source gives the same `Tally` for the same people.

`Source.of` decides once what a source is: values in memory, files, a frame, an engine or a database. Those that are on
this machine yield `Batch`es of rows, which are grouped here; an engine groups by itself and hands over its tables.
"""

from __future__ import annotations

import decimal
import numbers
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from hetdp.core.cells import Categories
from hetdp.core.domain import Interval, normal
from hetdp.core.levels import Levels
from hetdp.errors import InputError
from hetdp.statistics import Statistic
from hetdp.statistics.mean import Mean
from hetdp.tally.groupby import Grouping
from hetdp.tally.tally import Table, Tally, merge

from .arrays import Arrays
from .databases import Database
from .request import Batch, Form, Request, Tables, shown, tiers_of

if TYPE_CHECKING:
    from .databases import Postgres, Sqlite
    from .files import Files
    from .frames import Engine, Frame

__all__ = [
    "Batch",
    "Form",
    "Rows",
    "Source",
    "counted",
    "read",
    "read_groups",
    "records",
    "tallies_of",
    "tally",
    "tiers_of",
]

Rows = Literal["one", "average"]
"""How many rows a person may have, and what is done with several."""

_DATABASE = re.compile(r"(postgres(ql)?|sqlite)(\+\w+)?://")
_CONNECTIONS = {"sqlite3": ("Connection",), "psycopg": ("Connection",), "sqlalchemy": ("Engine", "Connection")}
_NO_FRAMES = ("builtins", "numpy", "pathlib", "array", "collections")
_BYTES = 16  # about how many bytes a row has in a file
_NOBODY = "there is nobody here (n = 0); a mean needs at least one person"
_AVERAGED = "A person's rows are averaged, so that everybody counts once; ids are compared as exact text."
_CHECKED = "No id is on two rows: everybody counts once."
_ROWS = "Assumed: every row is another person."


@dataclass(frozen=True)
class Source:
    """Where the people are and what is asked about them; nothing has been read yet."""

    kind: Arrays | Files | Frame | Engine | Sqlite | Postgres
    asked: Request

    @classmethod
    def of(  # noqa: C901, PLR0913  everything that says where the people are
        cls,
        origin: Any,
        *,
        value: str | tuple[str, ...] | None,
        epsilon: Any,
        reads: tuple[Categories | None, ...] = (),
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
        names = tiers_of(tiers)
        listed = isinstance(value, tuple) and all(isinstance(name, str) for name in value)
        if not listed and not isinstance(value, (str, type(None))):
            raise InputError(
                f"value is the name of a column (got {type(value).__name__}); give values themselves as the source: "
                "mean(incomes, epsilon=privacy, bounds=…)"
            )
        kind = _table(origin, query, watch, named=value is not None or counts_only)
        if query is not None and not isinstance(kind, Database):
            raise InputError("a query needs a database: postgresql://…, sqlite:///file.db, or a connection")
        if form != Form() and not getattr(kind, "names", ()):
            raise InputError(
                "delimiter, decimal and thousands say how a file is written; elsewhere turn the column into numbers"
            )
        if kind is None:
            if value is not None or isinstance(epsilon, str) or by is not None or isinstance(person, str):
                raise InputError(
                    "columns are named for files, frames and databases only; with values in memory give the columns "
                    "themselves: mean(incomes, epsilon=privacy, bounds=…)"
                )
            if len(reads) > 1:
                raise InputError("several columns are read from a table: a file, a frame or a database")
            ids = None if person is None else "ids"
            asked = Request("values", 0.0, ids, rows == "average", tiers=names, reads=reads or (None,))
            return cls(Arrays(origin, epsilon, person), asked)
        if not isinstance(epsilon, (str, numbers.Real, decimal.Decimal)) or (value is None and not counts_only):
            raise InputError("a table needs the names of two columns: value=… and epsilon=…")
        if not isinstance(person, (str, type(None))) or not isinstance(by, (str, type(None))):
            raise InputError("with a table give the names of the columns of ids and groups")
        asked = Request(value, 0.0, person, rows == "average", by, names, form, reads)
        return cls(kind, replace(asked, epsilon=epsilon if isinstance(epsilon, str) else asked.epsilon_of(epsilon)))

    def tables(self, statistic: Statistic | None) -> Tables:
        """Return the tables of the groups, an empty mapping if there is nobody.

        Without `statistic` only people are counted and no value is used. Without ids and groups a row is a person.
        """
        return self.each([(statistic, range(len(self.asked.private)))])[0]

    def each(self, questions: Sequence[tuple[Statistic | None, Sequence[int]]]) -> list[Tables]:
        """Return the tables of several statistics, each of some of the private columns; rows are read once for all."""
        if self.asked.several and any(asked is not None and asked.sorting is not None for asked, _ in questions):
            raise InputError(
                "rows='average' averages numbers, and here people are sorted into cells; keep one row of each person, "
                "or ask for a mean"
            )
        if hasattr(self.kind, "tables"):  # an engine, which groups by itself
            return [self.kind.tables(self.asked.of(some), asked) for asked, some in questions]
        found: list[Any] = []
        for asked, _ in questions:
            if self.asked.texts:
                from .people import People

                found.append(People(self.asked, asked))
            else:
                found.append(Grouping(asked, expected=self.size // _BYTES))
        for batch in self.batches():
            for grouping, (_, some) in zip(found, questions, strict=True):
                columns = tuple(batch.columns[i] for i in some)
                if self.asked.texts:
                    grouping.add(replace(batch, columns=columns))
                else:
                    grouping.add(batch.epsilon, columns, batch.people)
        return [_grouped(grouping) for grouping in found]

    def batches(self, *, owner: bool = False) -> Iterator[Batch]:
        """Yield the rows; with `owner` also what `check` may tell the data's owner."""
        return self.kind.batches(self.asked, owner=owner)

    def check(self) -> None:
        """Raise for what is wrong with the names, the header or the types of a table; no row is read."""
        self.batches()  # a source that cannot yield rows at all says so; nothing is read until the first is taken
        self.kind.check(self.asked)

    @property
    def names(self) -> Sequence[str | os.PathLike[str]]:
        """The names of the files, if the rows are in files."""
        return getattr(self.kind, "names", ())

    @property
    def size(self) -> int:
        """The bytes of the files; 0 if the rows are elsewhere."""
        return int(getattr(self.kind, "size", 0))

    @property
    def ids(self) -> Any:
        """With values in memory: who each is about, one entry a row."""
        return getattr(self.kind, "ids", None)

    @property
    def note(self) -> str:
        """What is assumed about rows and people, in a sentence."""
        return _ROWS if self.asked.person is None else _AVERAGED if self.asked.several else _CHECKED


def _grouped(grouping: Any) -> Tables:
    """Return the tables of what has grouped people, with or without ids and groups."""
    if hasattr(grouping, "tables"):
        return grouping.tables()  # type: ignore[no-any-return]
    table = grouping.table()
    return {"": table} if table.epsilon.size else {}


def _table(
    origin: Any, query: str | None, watch: Callable[[int, int], None] | None = None, *, named: bool = True
) -> Files | Frame | Engine | Sqlite | Postgres | None:
    """Decide what a source is: a table of one of these kinds, or None for values in memory.

    A list is one of names of files if columns are `named`; one name in it, as the command line gives it, may be the URL
    of a database. Otherwise its entries are private cells, and nothing may be asked of them here. Libraries are loaded
    by what they are needed for.
    """
    listed = isinstance(origin, (list, tuple))
    names = [origin] if not listed else list(origin) if named else []
    if _is_database(names[0] if len(names) == 1 else origin):
        return Database.of(names[0], query)
    if names and all(isinstance(name, (str, os.PathLike)) for name in names):
        from .files import Files

        return Files(names, watch)
    if type(origin).__module__.partition(".")[0] in _NO_FRAMES:
        return None
    from .frames import opened

    return opened(origin)


def _is_database(origin: Any) -> bool:
    """Say whether a source is a database: a URL, or an engine or connection of a library that is already imported."""
    if isinstance(origin, str):
        return _DATABASE.match(origin) is not None
    kinds = (getattr(sys.modules.get(module), name, None) for module, names in _CONNECTIONS.items() for name in names)
    return isinstance(origin, tuple(kind for kind in kinds if isinstance(kind, type)))


def read(  # noqa: PLR0913  mirrors the columns of a table
    source: Any,
    *,
    value: str | None = None,
    epsilon: Any,
    bounds: Any = None,
    statistic: Statistic | None = None,
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
    statistic
        What is to be computed, as `hetdp.ask.histogram(categories=…)`; the mean on `bounds` unless said.
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
        What to read from a database: a select, or the name of a table. PostgreSQL makes the sums itself.
    delimiter, decimal, thousands
        How a delimited file is written; a comma (a tab in .tsv), "." and nothing unless said.

    Notes
    -----
    No value can raise, warn or change who is counted: one outside the interval is clamped, one
    that is missing or unreadable counts as the midpoint. A bad ε is a loud error: it is public. In a delimited file a
    line is a person, so a cell must not hold a line break; the page on limits has the other conditions.
    """
    if (bounds is None) == (statistic is None):
        raise InputError("reading needs the public bounds of the values, (lo, hi), or a statistic that has its own")
    asked = Mean(Interval.of(bounds), value=value) if statistic is None else statistic.of(value)
    form = Form(delimiter, decimal, thousands)
    people = Source.of(
        source,
        value=asked.named,
        reads=asked.reads,
        epsilon=epsilon,
        person=person,
        rows=rows,
        tiers=tiers,
        query=query,
        form=form,
    )
    return tally(people, asked, public_rows)


def tally(people: Source, statistic: Statistic, public_rows: Any = None) -> Tally:
    """Return the tally of a source and of the rows that are public."""
    return read_groups(people, statistic, groups=[""], public_rows=public_rows)[""]


def tallies_of(source: Any, asked: Mapping[str, Statistic], where: Mapping[str, Any]) -> dict[str, Tally]:
    """Return the tallies of several statistics of one table, whose rows are read once; `where` as for `Source.of`."""
    pairs = [tuple(zip(question.columns, question.reads, strict=True)) for question in asked.values()]
    readings = list(dict.fromkeys(pair for some in pairs for pair in some))
    names, kinds = zip(*readings, strict=True)
    people = Source.of(source, value=tuple(names), reads=tuple(kinds), **where)
    places = [[readings.index(pair) for pair in some] for some in pairs]
    found = people.each(list(zip(asked.values(), places, strict=True)))
    if not all(found):
        raise InputError(_NOBODY)
    notes, tiers = (people.note,), people.asked.tier_names
    rows = zip(asked.items(), found, strict=True)
    return {name: Tally(tables[""], question, tiers, notes) for (name, question), tables in rows}


def read_groups(
    people: Source, statistic: Statistic, *, groups: Sequence[str] | None = None, public_rows: Any = None
) -> dict[str, Tally]:
    """Return a tally for each group: those named, which may be empty, or those that are there, in order of name."""
    found = people.tables(statistic)
    if not found:
        raise InputError(_NOBODY)
    notes: tuple[str, ...] = (people.note,)
    if public_rows is not None:
        added = _public(people, public_rows).tables(statistic)
        if not added:
            raise InputError("the public rows are empty; leave the option out if there are none")
        found = {g: merge([t[g] for t in (found, added) if g in t]) for g in found.keys() | added.keys()}
        rows = sum(table.n for table in added.values())
        notes = (*notes, f"{rows:,} rows that are known publicly were added with ε = ∞.")
    named = list(dict.fromkeys(map(normal, groups))) if groups is not None else sorted(found)
    if unknown := sorted(found.keys() - set(named)):
        example = "" if people.names else f", such as {shown(unknown[0])}"
        raise InputError(f"{len(unknown):,} groups are not in the list of groups{example}; add them")
    # A group without people is nobody at ε = 0.
    nobody = replace(Table.nobody(statistic), epsilon=np.zeros(1), count=np.zeros(1, np.int64))
    nobody = replace(nobody, total=np.zeros((1, statistic.width), np.int64))
    return {g: Tally(found.get(g, nobody), statistic, people.asked.tier_names, notes) for g in named}


def _public(people: Source, rows: Any) -> Source:
    """Return the source of public rows. Refuse the private rows themselves: all in them would lose all protection."""
    kind, ours = people.kind, people.asked
    if isinstance(kind, Arrays):
        same, public = rows is kind.values, Source(Arrays(rows, np.inf), Request("values", 0.0, reads=ours.reads))
    else:
        query = kind.query if isinstance(kind, Database) else None
        table = _table(rows, query)
        if table is None:
            raise InputError("with a table the public rows are a table too: a file, a frame or a database")
        public = Source(table, Request(ours.value, np.inf, by=ours.by, form=ours.form, reads=ours.reads))
        same = _is_same(kind, table)
    if same:
        raise InputError("the public rows are the private source itself, or in a database; give them as another file")
    return public


def _is_same(ours: Any, theirs: Any) -> bool:
    """Say whether two tables share rows: one frame, a file in common; in a database nobody can tell."""
    if isinstance(ours, Database) or isinstance(theirs, Database):
        return type(ours) is type(theirs)
    if hasattr(ours, "names") or hasattr(theirs, "names"):
        return type(ours) is type(theirs) and bool(ours.by_inode().keys() & theirs.by_inode().keys())
    return ours.frame.to_native() is theirs.frame.to_native()


def counted(people: Source) -> Levels:
    """Return the levels of a table. No value is used; naming their column lets a line be too short for it."""
    found = people.tables(None)
    if not found:
        raise InputError("there is nobody here (n = 0); a plan needs at least one person")
    return found[""].levels(people.asked.tier_names)


def records(people: Source, method: str) -> tuple[NDArray[Any], NDArray[np.float64]]:
    """Return everybody's value and ε as arrays, for a method that needs them one by one; from memory only."""
    if people.names or isinstance(people.kind, Database):
        raise InputError(f"{method} keeps people one by one and works on data in memory only; load the table first")
    if people.asked.person is not None:
        raise InputError(f"{method} keeps people one by one; average each person's rows first")
    parts = list(people.batches())
    if not parts:
        raise InputError(_NOBODY)
    return np.concatenate([np.asarray(part.values) for part in parts]), np.concatenate([p.epsilon for p in parts])
