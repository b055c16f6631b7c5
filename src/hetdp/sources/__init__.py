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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from hetdp.core.cells import Categories, Edges, Reading
from hetdp.core.domain import Interval, normal, plural
from hetdp.core.levels import Levels
from hetdp.core.types import BoundsLike, EpsilonLike, MissingLike, PersonLike, SourceLike, TiersLike
from hetdp.errors import InputError, either
from hetdp.report import Provenance
from hetdp.statistics import Statistic
from hetdp.statistics.answer import ONE_EPSILON, ROWS, Group, label
from hetdp.statistics.mean import Mean
from hetdp.statistics.statistic import needs_missing
from hetdp.tally import Table, Tally, merge
from hetdp.tally.groupby import Grouping

from .arrays import ALL_DROPPED, NOBODY, Arrays, records
from .databases import Database, database_file, duckdb_frame
from .request import Batch, Form, Request, Tables, check_epsilon, empty_total, natural, shown, tier_name, tiers_of

if TYPE_CHECKING:
    from .databases import Postgres, Sqlite
    from .files import Files
    from .frames import Engine, Frame

__all__ = [
    "Batch", "Form", "Rows", "Source", "counted", "declared_public", "empty_total", "group_of", "natural", "read",
    "read_groups", "records", "tallies_of", "tally", "tier_name", "tiers_of",
]  # fmt: skip

Rows = Literal["one", "average"]
"""How many rows a person may have, and what is done with several."""

_URL = re.compile(r"(postgres(ql)?|sqlite)(\+\w+)?://")
_CONNECTIONS = {"sqlite3": ("Connection",), "psycopg": ("Connection",), "sqlalchemy": ("Engine", "Connection")}
_DUCKDB = {"duckdb": ("DuckDBPyConnection",)}
_NO_FRAMES = ("builtins", "numpy", "pathlib", "array", "collections")
_BYTES = 16  # about how many bytes a row has in a file
_AVERAGED = (
    "A person's rows that have a value are averaged, so that everybody counts once; ids are compared as exact text."
)
_CHECKED = "No id is on two rows: everybody counts once."
_ADDED = (
    "{} that {} added with ε = ∞, each as one person. Assumed: {} about nobody who is counted already, and as many of "
    "them have a value as of the others: else sums, counts, shares of everybody and the share who answered are off."
)


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
        reads: tuple[Reading, ...] = (),
        promised: bool | None = True,
        person: Any = None,
        rows: Rows = "one",
        by: Any = None,
        tiers: Mapping[str, Any] | None = None,
        query: str | None = None,
        form: Form = Form(),  # noqa: B008  it is frozen
        watch: Callable[[int, int], None] | None = None,
        counts_only: bool = False,
    ) -> Source:
        """Return the source that the parameters of `read` describe, or raise if they do not fit together."""
        if rows not in ("one", "average"):
            raise InputError(
                f"rows is 'one' (a person has one row) or 'average' (got {rows!r}); for a total of each person's rows "
                "add them up first, or release a sum through a ledger, which adds them up"
            )
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
        if query is not None and getattr(kind, "query", None) is None:
            raise InputError(
                "a query needs a database: postgresql://…, a file of SQLite or DuckDB, or a connection to one of them"
            )
        if not isinstance(form, Form):
            raise InputError(f"form is a hetdp.sources.Form(delimiter=…, decimal=…) (got {type(form).__name__})")
        if form != Form() and not getattr(kind, "names", ()):
            raise InputError(
                "delimiter, decimal and thousands say how a file is written; elsewhere turn the column into numbers"
            )
        check_epsilon(epsilon, in_table=kind is not None)
        if kind is None:
            named = by is not None and not isinstance(by, Mapping)
            if value is not None or isinstance(epsilon, str) or named or isinstance(person, str):
                raise InputError(
                    "columns are named for files, frames and databases only; with values in memory give the columns "
                    "themselves: mean(incomes, epsilon=privacy, bounds=…), one ε for all as a number (float('inf') if "
                    "all values are public), and groups as by={'region': regions}"
                )
            if len(reads) > 1:
                raise InputError("several columns are read from a table: a file, a frame or a database")
            ids, columns = None if person is None else "ids", dict(by or {})
            if not all(isinstance(name, str) for name in columns) or columns.keys() & {"values", "epsilon", "ids"}:
                raise InputError("groups of values in memory have a name, other than values, epsilon and ids")
            groups = tuple(columns) or None
            asked = Request("values", 0.0, ids, rows == "average", groups, names, reads=reads or (None,))
            return cls(Arrays(origin, epsilon, person, columns), asked)
        if epsilon is None or (value is None and not counts_only):
            raise InputError("a table needs the names of two columns: value=… and epsilon=…")
        several = isinstance(by, (list, tuple)) and all(isinstance(name, str) for name in by)
        if not isinstance(person, (str, type(None))) or not (several or isinstance(by, (str, type(None)))):
            raise InputError("with a table give the names of the columns of ids and groups")
        groups = (tuple(by) or None) if several else by
        asked = Request(value, 0.0, person, rows == "average", groups, names, form, reads, promised)
        return cls(kind, replace(asked, epsilon=epsilon if isinstance(epsilon, str) else asked.epsilon_of(epsilon)))

    @classmethod
    def asked_by(cls, statistic: Statistic, origin: Any, **where: Any) -> Source:
        """Return the source that a question is about, or raise if it does not say what a missing value counts as."""
        promised = _promised([statistic])
        found = cls.of(origin, value=statistic.named, reads=statistic.reads, promised=promised, **where)
        if not isinstance(found.kind, Arrays) or hasattr(found.kind.values, "name"):  # a column of a frame has a name
            needs_missing(statistic)
        return found

    def tables(self, statistic: Statistic | None) -> Tables:
        """Return the tables of the groups, an empty mapping if there is nobody.

        Without `statistic` only people are counted and no value is used. Without ids and groups a row is a person.
        """
        return self.each([(statistic, range(len(self.asked.private)))])[0]

    def each(self, questions: Sequence[tuple[Statistic | None, Sequence[int]]]) -> list[Tables]:
        """Return the tables of several statistics, each of some of the private columns; rows are read once for all."""
        sorts = (Categories, Edges)
        if self.asked.several and any(asked is not None and isinstance(asked.sorting, sorts) for asked, _ in questions):
            raise InputError(
                "rows='average' averages numbers, and here people are sorted into cells; keep one row of each person, "
                "or ask for a mean, of yes and no with values={'yes': 1, 'no': 0} (--map yes=1 --map no=0)"
            )
        kind: Any = self.kind
        if self.asked.several and any(asked is not None and asked.name == "sum" for asked, _ in questions):
            raise InputError(
                "rows='average' gives everybody the average of their rows, and the sum of averages is no total; add up "
                "the rows of each person first, or ask for a mean"
            )
        if hasattr(kind, "tables") and not kind.reads_here(self.asked):  # an engine groups by itself
            return [kind.tables(self.asked.of(some), asked) for asked, some in questions]
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
    def notes(self) -> tuple[str, ...]:
        """What is assumed about rows, people and their ε, in sentences."""
        rows = ROWS if self.asked.person is None else _AVERAGED if self.asked.several else _CHECKED
        epsilon = self.kind.epsilon if isinstance(self.kind, Arrays) else self.asked.epsilon
        alike = isinstance(epsilon, (numbers.Real, decimal.Decimal))
        return (rows, ONE_EPSILON) if alike else (rows,)

    def about(self, statistic: Statistic | None = None) -> Provenance:
        """Return where the answer to a question comes from; without one, where people are counted."""
        columns = () if statistic is None or isinstance(self.kind, Arrays) else statistic.columns
        return Provenance("" if statistic is None else statistic.name, columns, self.kind.called)


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
    of a database. Otherwise its entries are private cells, and nothing may be asked of them here.
    """
    listed = isinstance(origin, (list, tuple))
    names = [origin] if not listed else list(origin) if named else []
    one = names[0] if len(names) == 1 else origin
    if (kind := _database(one)) is not None:
        if kind == "duckdb":
            return duckdb_frame(one, query)  # type: ignore[no-any-return]
        return Database.of(f"sqlite:///{os.fspath(one)}" if kind == "file" else one, query)
    if names and all(isinstance(name, (str, os.PathLike)) for name in names):
        from .files import Files

        return Files(names, watch)
    if type(origin).__module__.partition(".")[0] in _NO_FRAMES:
        return None
    from .frames import opened

    return opened(origin)


def _database(origin: Any) -> str | None:
    """Return what kind of database a source is: "duckdb", the "file" of SQLite, "other"; None if it is none.

    It may be a URL, the name of a file, or an engine or connection of a library that is already imported.
    """
    if isinstance(origin, str) and _URL.match(origin):
        return "other"
    if isinstance(origin, (str, os.PathLike)):
        return {"sqlite": "file", "duckdb": "duckdb"}.get(database_file(origin) or "")
    return "duckdb" if _is_one_of(origin, _DUCKDB) else "other" if _is_one_of(origin, _CONNECTIONS) else None


def _is_one_of(origin: Any, classes: Mapping[str, Sequence[str]]) -> bool:
    kinds = (getattr(sys.modules.get(module), name, None) for module, names in classes.items() for name in names)
    return isinstance(origin, tuple(kind for kind in kinds if isinstance(kind, type)))


def read(  # noqa: PLR0913  mirrors the columns of a table
    source: SourceLike,
    *,
    value: str | None = None,
    epsilon: EpsilonLike,
    bounds: BoundsLike | None = None,
    statistic: Statistic | None = None,
    missing: MissingLike | None = None,
    values: Mapping[Any, float] | None = None,
    person: PersonLike | None = None,
    rows: Rows = "one",
    tiers: TiersLike | None = None,
    public_rows: SourceLike | None = None,
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
        a list of names; a frame (pandas, Polars, PyArrow, DuckDB, Spark, Dask, Ibis); the URL, file or
        connection of a PostgreSQL, SQLite or DuckDB database.
    value
        The private column of a table. With values in memory there is none.
    epsilon
        The column of ε, or one ε for everybody; with values in memory a sequence, one ε a person, or one for all.
    bounds
        The public interval (lo, hi). It is never taken from the data.
    statistic
        What is to be computed, as `hetdp.ask.histogram(categories=…)`; the mean on `bounds` unless said.
    missing
        What is done about missing values. A value column of a table needs it; with values in memory it is "none" unless
        said. "estimate": those who answered alone count, and who did stays private. "drop": they leave, which makes
        public who answered. "midpoint" or a number: what a missing value counts as. "none": you promise that none is
        missing; a line without the cell is then refused, and a cell that is empty all the same counts as the midpoint.
        What cannot be read is missing.
    values
        {cell: number}, as {"yes": 1, "no": 0}; any other cell is missing. True and false are 1 and 0 without it.
    person
        The column of ids (with values in memory: the ids). Without it every row is taken for another person.
    rows
        What a person may have: "one" row, a second one is an error; or several whose clamped values are averaged,
        "average". A person is missing if all their rows are. All rows of a person must have the same ε.
    tiers
        {name: ε} when the ε column holds names of tiers.
    public_rows
        A second source of the same kind with values that are known publicly; each row joins as one person with ε = ∞.
    query
        What to read from a database: a select, or the name of a table. PostgreSQL makes the sums itself.
    delimiter, decimal, thousands
        How a delimited file is written; a comma (a tab in .tsv), "." and nothing unless said.

    Returns
    -------
    Tally
        For `plan` its `levels`, for `release` the tally itself. It is private.

    Notes
    -----
    No value can raise, warn or change who is counted (but with missing="drop", where it is public who has a value): one
    outside the interval is clamped, one that is unreadable is missing. A bad ε is a loud error: it is public. In a
    delimited file a line is a person, so a cell must not hold a line break; the page on limits has more.
    """
    if (bounds is None) == (statistic is None):
        raise either("reading", bounds)
    asked = Mean(Interval.of(bounds)) if statistic is None else statistic
    asked = asked.of(value).saying(missing=missing, values=values)
    where = {"epsilon": epsilon, "person": person, "rows": rows, "tiers": tiers, "query": query}
    people = Source.asked_by(asked, source, **where, form=Form(delimiter, decimal, thousands))
    return tally(people, asked, public_rows)


def tally(people: Source, statistic: Statistic, public_rows: Any = None) -> Tally:
    """Return the tally of a source and of the rows that are public."""
    return read_groups(people, statistic, public_rows=public_rows)[""]


def tallies_of(
    source: Any,
    asked: Mapping[str, Statistic],
    where: Mapping[str, Any],
    *,
    groups: Sequence[Any] | None = None,
    public_rows: Any = None,
) -> tuple[Source, dict[str, dict[Group, Tally]]]:
    """Return a table, and for each of several statistics of it the tallies of the groups; without groups one.

    The rows are read once for all of them; `where` as for `Source.of`.
    """
    pairs = [tuple(zip(question.columns, question.reads, strict=True)) for question in asked.values()]
    readings = list(dict.fromkeys(pair for some in pairs for pair in some))
    names, kinds = zip(*readings, strict=True)
    people = Source.of(source, value=tuple(names), reads=tuple(kinds), promised=_promised(asked.values()), **where)
    for question in asked.values():
        needs_missing(question)
    places = [[readings.index(pair) for pair in some] for some in pairs]
    ask = list(zip(asked.values(), places, strict=True))
    found = people.each(ask)
    added: Sequence[Tables | None] = [None] * len(ask)
    if public_rows is not None:
        added = _public(people, public_rows).each(ask)
    rows = zip(asked.items(), found, added, strict=True)
    return people, {name: _tallies(people, question, tables, more, groups) for (name, question), tables, more in rows}


def _promised(asked: Iterable[Statistic]) -> bool | None:
    """Say whether one of several questions promises that no value is missing; None if all have a cell for it."""
    said = [question.missing in (None, "none") for question in asked if question.asks_missing]
    return any(said) if said else None


def read_groups(
    people: Source, statistic: Statistic, *, groups: Sequence[Any] | None = None, public_rows: Any = None
) -> dict[Group, Tally]:
    """Return a tally for each group: those named, which may be empty, or those that are there, in natural order."""
    _named(people, groups)
    found = people.tables(statistic)
    added = _public(people, public_rows).tables(statistic) if public_rows is not None else None
    return _tallies(people, statistic, found, added, groups)


def _named(people: Source, groups: Sequence[Any] | None) -> list[Group] | None:
    """Return the groups that were named, or raise if one is not of this table's columns."""
    columns = max(1, len(people.asked.groupings))
    return None if groups is None else list(dict.fromkeys(group_of(group, columns) for group in groups))


def _tallies(
    people: Source, statistic: Statistic, found: Tables, added: Tables | None, groups: Sequence[Any] | None
) -> dict[Group, Tally]:
    """Return a tally for each group from the tables that were read, and from those of public rows if there are any."""
    if not found:
        raise InputError(ALL_DROPPED if statistic.missing == "drop" else NOBODY)
    notes = people.notes
    if added is not None:
        if not added:
            raise InputError("the public rows are empty; leave the option out if there are none")
        found = {g: merge([t[g] for t in (found, added) if g in t]) for g in found.keys() | added.keys()}
        rows = sum(table.n for table in added.values())
        words = ("is known publicly was", "it is") if rows == 1 else ("are known publicly were", "they are")
        notes = (*notes, _ADDED.format(plural(rows, "row"), *words))
    ordered = sorted(found, key=natural)
    named = _named(people, groups) if people.asked.groupings else [""]
    named = ordered if named is None else named
    if unknown := [group for group in ordered if group not in set(named)]:
        example = "" if people.names else f", such as {shown(label(unknown[0]))}"
        some = f"{plural(len(unknown), 'group')} {'is' if len(unknown) == 1 else 'are'}"
        raise InputError(f"{some} not in the list of groups{example}; add them")
    if statistic.whole and (empty := [g for g in named if g not in found or not found[g].n]):
        raise empty_total(statistic, empty[0])
    # A group without people is nobody at ε = 0.
    total = np.zeros((1, statistic.width), np.int64)
    nobody = replace(Table.nobody(statistic), epsilon=np.zeros(1), count=np.zeros(1, np.int64), total=total)
    about = people.about(statistic)
    return {g: Tally(found.get(g, nobody), statistic, people.asked.tier_names, notes, about=about) for g in named}


def _public(people: Source, rows: Any) -> Source:
    """Return the source of public rows. Refuse the private rows themselves: all in them would lose all protection."""
    kind, ours = people.kind, people.asked
    if isinstance(kind, Arrays):
        if ours.groupings:
            raise InputError("public rows of groups are read from a table: a file, a frame or a database")
        same, public = rows is kind.values, Source(Arrays(rows, np.inf), Request("values", 0.0, reads=ours.reads))
    else:
        table = _table(rows, getattr(kind, "query", None))
        if table is None:
            raise InputError("with a table the public rows are a table too: a file, a frame or a database")
        public = Source(table, Request(ours.value, np.inf, by=ours.by, form=ours.form, reads=ours.reads))
        same = _is_same(kind, table)
    if same:
        raise InputError("the public rows are the private source itself, or in a database; give them as another file")
    return public


def declared_public(by: Sequence[str], public_columns: Sequence[str]) -> None:
    """Raise unless every column that makes groups is declared public: its groups are published."""
    declared = (public_columns,) if isinstance(public_columns, str) else tuple(public_columns)
    for column in by:
        if column not in declared:
            raise InputError(
                f"the groups of column {column!r} would be published; if it is public, declare it: "
                f"public_columns={list(by)!r}, --public-column {column}"
            )


def group_of(group: Any, columns: int = 1) -> Group:
    """Return a group that was named, as groups are read; a whole number is its digits, as in a column."""
    parts = list(group) if isinstance(group, (tuple, list)) else [group]
    whole = all(isinstance(part, (str, numbers.Integral)) and not isinstance(part, bool) for part in parts)
    if len(parts) != columns or not whole:
        form = "a text" if columns == 1 else f"a tuple of {columns} texts, one for each column"
        raise InputError(f"a group is {form} (got {shown(group)})")
    texts = tuple(normal(str(part)) for part in parts)
    return texts if columns > 1 else texts[0]


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
