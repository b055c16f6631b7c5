"""PostgreSQL and SQLite. The database groups; only the table of levels leaves it.

A query is the caller's own: it must not drop, filter or fail on rows by their values, which no reader of it could see.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from hetdp.core.cells import BAD_ID
from hetdp.core.domain import Interval
from hetdp.core.levels import LIMIT, MOST_PEOPLE
from hetdp.errors import InputError

from ._asked import Asked, Tables, gathered, shown
from ._batch import Tiers
from ._sql import FAULTS, POSTGRES, SQLITE, Key, Parts, selection

if TYPE_CHECKING:
    from ._sessions import Session

_TYPES = {
    "sqlite3": ("Connection",),
    "psycopg": ("Connection",),
    "sqlalchemy": ("Engine", "Connection"),
}
_NUMBERED = re.compile(r":\d+$")  # SQLite numbers the columns of one name
_FAULTS = {
    "torn": "{n:,} people have more than one epsilon, such as {id}; a person has one",
    "split": "{n:,} people have rows in more than one group, such as {id}; a person has one",
    "twice": (
        "{n:,} ids are on more than one row, such as {id}; "
        "say rows='average' (--rows average) to average a person's rows"
    ),
}


def is_database(source: Any) -> bool:
    """Say whether a source is a database: a URL, or an engine or connection of a library that is already imported.

    >>> is_database("sqlite:///people.db"), is_database("people.db")
    (True, False)
    """
    if isinstance(source, str):
        return bool(POSTGRES.match(source) or SQLITE.match(source))
    kinds = (getattr(sys.modules.get(module), name, None) for module, names in _TYPES.items() for name in names)
    return isinstance(source, tuple(kind for kind in kinds if isinstance(kind, type)))


def tables(source: Any, query: str, asked: Asked, interval: Interval | None, tiers: Tiers) -> Tables:
    """Return the tables of the groups of a query, an empty mapping if there is nobody.

    Parameters
    ----------
    source
        A URL (`postgresql://user@host/database`, `sqlite:///people.db`), an engine or connection of SQLAlchemy, a
        connection of sqlite3 or psycopg.
    query
        One select, or the name of a table. It runs in one snapshot that only reads.
    interval
        The bounds; None to count people only, and then no value is read.

    >>> import sqlite3
    >>> people = sqlite3.connect(":memory:")
    >>> _ = people.executescript("create table people (age, eps); insert into people values (25, 0.1), (50, 0.1)")
    >>> tables(people, "people", Asked("age", "eps"), Interval(0, 100), Tiers({}))[""].total / 2**20
    array([0.75])
    """
    from ._sessions import session

    select = selection(query)
    with session(source, interval) as opened:
        parts = opened.parts(select, asked, _kinds(opened, select, asked), interval)
        rows, key = _levels(opened, parts)
    epsilon = None if isinstance(asked.epsilon, str) else asked.epsilon
    return gathered(_sound(rows, asked, epsilon), tiers if epsilon is None else Tiers({}), rounded=key.rounded)


def _kinds(opened: Session, query: str, asked: Asked) -> dict[str, str]:
    """Return the type of every column asked for; one that is not there, or there twice, is an error."""
    found = opened.columns(query)
    names = [name for name, _ in found]
    for name in asked.columns:
        if name not in names:
            raise InputError(f"the query has no column {name!r}; its columns are {', '.join(map(repr, names))}")
        alike = [other for other in names if _NUMBERED.sub("", other).casefold() == name.casefold()]
        if len(alike) > 1:
            raise InputError(f"the query has the columns {', '.join(map(repr, alike))}; rename one, they are too alike")
    return {name: kind for name, kind in found if name in asked.columns}


def _levels(opened: Session, parts: Parts) -> tuple[list[tuple[Any, ...]], Key]:
    """Return the rows of the group-by, by the first key whose levels are not too many.

    Which statements run depends on the levels of ε alone. The probe sees rows of the same snapshot, so after it
    no rows can only mean too many levels.
    """
    if parts.epsilon is None:
        return opened.run(parts.statement(Key())), Key()
    for key in parts.keys:
        if key.limited == "true":
            ((levels,),) = opened.run(parts.probe(key))
            if not levels:
                return [], key
            if levels > LIMIT:
                continue
        if rows := opened.run(parts.statement(key)):
            return rows, key
    raise InputError(
        f"the epsilon column holds more than {LIMIT:,} different texts; cast it to a number in the query: "
        "cast(… as double precision)"
    )


def _sound(rows: list[tuple[Any, ...]], asked: Asked, epsilon: float | None) -> Iterator[tuple[str, Any, int, int]]:
    """Yield (group, ε, people, sum) of each level, once nothing is wrong with the people; all of that is public."""
    if sum(row[4] or 0 for row in rows) > MOST_PEOPLE:
        raise InputError(f"at most {MOST_PEOPLE:,} rows fit in one tally; release in parts")
    if any(row[5] for row in rows):
        raise InputError(f"an id is missing, or {BAD_ID}")
    if any(row[0] is None for row in rows):
        raise InputError(f"the group is missing in at least one row of column {asked.by!r}; every row needs one")
    for i, fault in enumerate(FAULTS):
        hurt = [(row[6 + 2 * i], row[7 + 2 * i]) for row in rows if row[6 + 2 * i]]
        if hurt and not (fault == "twice" and asked.several):
            number, least = sum(people for people, _ in hurt), min(who for _, who in hurt)
            raise InputError(_FAULTS[fault].format(n=number, id=shown(least)))
    for group, level, people, total, *_ in rows:
        if people:
            yield group, level if epsilon is None else epsilon, int(people), int(total)
