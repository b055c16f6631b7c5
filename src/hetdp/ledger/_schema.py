"""The tables of a ledger, what the database itself enforces, and how an older ledger is brought up to date.

    hetdp_ledger   one row: the version of the schema, the number and hash of the last event
    hetdp_event    everything that happened, append-only, in a hash chain: the truth
    hetdp_cohort   people with the same budget who have spent the same, as of the last event
    hetdp_member   which person moved to which cohort at which event, append-only

Cohorts can be derived from the events (`_book`), and every transaction checks that they agree. What the database
enforces besides: nobody has spent more than their budget, nothing spent is taken back, no event is changed or
removed, a release has one charge and one result, a row of a person belongs to the event that is being written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ._amounts import UNLIMITED
from ._errors import LedgerError

if TYPE_CHECKING:
    from sqlalchemy import Connection
    from sqlalchemy.exc import DBAPIError

SCHEMA = 2
"""The version of the schema that this package writes."""

_AT_ONCE = 199
"""Cohorts in one statement, with five numbers each: an old SQLite allows 999."""

APPEND_ONLY = ("hetdp_event", "hetdp_member")
_FIXED = "UPDATE OF cohort, asked, budget"
_ONWARD = "NEW.seq < OLD.seq OR NEW.ident <> OLD.ident OR NEW.version < OLD.version"

Step = Callable[["Connection"], None]


@lru_cache(maxsize=1)
def tables() -> Any:
    """Return the tables by their short names, and their `metadata`."""
    import sqlalchemy as sa

    metadata = sa.MetaData()
    number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")  # there an INTEGER key is the row's own number
    ledger = sa.Table(
        "hetdp_ledger",
        metadata,
        sa.Column("one", sa.SmallInteger, sa.CheckConstraint("one = 1"), primary_key=True, autoincrement=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("ident", sa.Text, nullable=False),
        sa.Column("seq", sa.BigInteger, nullable=False),
        sa.Column("hash", sa.Text, nullable=False),
    )
    event = sa.Table(
        "hetdp_event",
        metadata,
        sa.Column("seq", number, primary_key=True, autoincrement=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("release", sa.Text, nullable=True),
        sa.Column("at", sa.Text, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
        sa.Column("hash", sa.Text, nullable=False),
        sa.UniqueConstraint("release", "kind", name="hetdp_one_charge_one_result"),
        sa.CheckConstraint("(kind IN ('charge', 'result')) = (release IS NOT NULL)", name="hetdp_release_named"),
    )
    cohort = sa.Table(
        "hetdp_cohort",
        metadata,
        sa.Column("cohort", number, primary_key=True, autoincrement=False),
        sa.Column("asked", sa.BigInteger, nullable=False),
        sa.Column("budget", sa.BigInteger, nullable=False),
        sa.Column("spent", sa.BigInteger, nullable=False),
        sa.Column("people", sa.BigInteger, nullable=False),
        sa.CheckConstraint("0 <= spent AND spent <= budget", name="hetdp_within_budget"),
        sa.CheckConstraint(f"0 <= asked AND asked <= budget AND budget <= {UNLIMITED}", name="hetdp_budget"),
        sa.CheckConstraint("people >= 0", name="hetdp_people"),
    )
    member = sa.Table(
        "hetdp_member",
        metadata,
        sa.Column("person", sa.Text().with_variant(sa.Text(collation="C"), "postgresql"), primary_key=True),
        sa.Column("event", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("cohort", sa.BigInteger, nullable=False),
        sqlite_with_rowid=False,
    )
    return SimpleNamespace(metadata=metadata, ledger=ledger, event=event, cohort=cohort, member=member)


def create(connection: Connection, ident: str, genesis: str) -> None:
    """Make the tables and the triggers that guard them."""
    tables().metadata.create_all(connection, checkfirst=False)
    row = {"one": 1, "version": SCHEMA, "ident": ident, "seq": 0, "hash": genesis}
    connection.execute(tables().ledger.insert(), [row])
    for statement in guards(connection.dialect.name):
        connection.exec_driver_sql(statement)


def run(connection: Connection, statement: str, parameters: Any = ()) -> Any:
    """Carry out a statement of ours, for each of a list of parameters; return the driver's cursor.

    `?` stands for a parameter in either database. A result of SQLAlchemy would take longer than most statements here.
    """
    driver = connection.connection
    spelled = statement if connection.dialect.name == "sqlite" else statement.replace("?", "%s")
    try:
        cursor: Any = driver.cursor()
        (cursor.executemany if isinstance(parameters, list) else cursor.execute)(spelled, parameters)
    except connection.dialect.loaded_dbapi.Error as error:
        raise failed(connection, error) from None
    return cursor


def failed(connection: Connection, error: Any) -> DBAPIError:
    """Return a driver's error as SQLAlchemy has it, without what was sent; let go of a connection that is lost."""
    from sqlalchemy.exc import DBAPIError

    driver: Any = connection.connection.driver_connection
    if connection.dialect.is_disconnect(error, driver, None):
        connection.invalidate(error)  # the next one who asks gets another connection
    return DBAPIError(None, None, error)


def one(connection: Connection, statement: str, parameters: tuple[Any, ...] = ()) -> tuple[Any, ...] | None:
    """Return the row of a query that has at most one."""
    cursor = run(connection, statement, parameters)
    row: tuple[Any, ...] | None = cursor.fetchone()
    cursor.close()
    return row


def others_wrote(connection: Connection) -> int | None:
    """Return a number that changes when somebody else has written to the database; None if it has no such number.

    SQLite has one for every connection; what the connection writes itself does not change it.
    """
    if connection.dialect.name != "sqlite":
        return None
    driver: Any = connection.connection.driver_connection
    number: int = driver.execute("PRAGMA data_version").fetchone()[0]
    return number


def put_cohorts(connection: Connection, rows: NDArray[np.int64]) -> None:
    """Have the table of cohorts say these rows; of one that is there, people and what they have spent may change.

    Raise if one was not written, as when somebody's trigger kept it from being.
    """
    cells, done = tuple(rows.ravel().tolist()), 0
    for start in range(0, len(cells), 5 * _AT_ONCE):
        some = cells[start : start + 5 * _AT_ONCE]
        done += run(connection, _put(len(some) // 5), some).rowcount
    if done != len(rows):
        raise LedgerError("the ledger could not write all balances; is there a trigger on its tables?")


@lru_cache(maxsize=8)
def _put(rows: int) -> str:
    values = ", ".join(["(?, ?, ?, ?, ?)"] * rows)
    return (
        f"INSERT INTO hetdp_cohort (cohort, asked, budget, spent, people) VALUES {values} "  # noqa: S608  our own names
        "ON CONFLICT (cohort) DO UPDATE SET spent = excluded.spent, people = excluded.people"
    )


def exists(connection: Connection) -> bool:
    """Say whether there is a ledger in this database."""
    import sqlalchemy as sa

    return sa.inspect(connection).has_table("hetdp_ledger")


def guards(dialect: str) -> list[str]:
    """Return the statements that make the triggers of a kind of database."""
    if dialect == "sqlite":
        return [
            *(_sqlite(f"{table}_no_{verb.lower()}", verb, table) for table in APPEND_ONLY for verb in _VERBS),
            *(_sqlite(f"{table}_no_delete", "DELETE", table) for table in ("hetdp_cohort", "hetdp_ledger")),
            _sqlite("hetdp_cohort_fixed", _FIXED, "hetdp_cohort"),
            _sqlite("hetdp_cohort_only_spends", "UPDATE OF spent", "hetdp_cohort", "NEW.spent < OLD.spent", "AFTER"),
            _sqlite("hetdp_ledger_only_grows", "UPDATE", "hetdp_ledger", _ONWARD),
            *member_guards(dialect),
        ]
    refuse = "BEGIN RAISE EXCEPTION 'a ledger is append-only'; END"
    return [
        f"CREATE FUNCTION hetdp_refuse() RETURNS trigger LANGUAGE plpgsql AS $$ {refuse} $$",
        *(_postgres(f"{table}_kept", "UPDATE OR DELETE", table) for table in APPEND_ONLY),
        *(_postgres(f"{table}_no_delete", "DELETE", table) for table in ("hetdp_cohort", "hetdp_ledger")),
        *(
            _postgres(f"{table}_whole", "TRUNCATE", table, each="STATEMENT")
            for table in sorted(tables().metadata.tables)
        ),
        _postgres("hetdp_cohort_fixed", _FIXED, "hetdp_cohort"),
        _postgres("hetdp_cohort_only_spends", "UPDATE OF spent", "hetdp_cohort", "WHEN (NEW.spent < OLD.spent)"),
        _postgres("hetdp_ledger_only_grows", "UPDATE", "hetdp_ledger", f"WHEN ({_ONWARD})"),
        *member_guards(dialect),
    ]


def member_guards(dialect: str) -> list[str]:
    """Return what keeps a row of a person from naming another event than the one that is being written.

    People are written before the event and before the ledger's own number moves on, so that event is the next one.
    """
    other = "event <> (SELECT seq + 1 FROM hetdp_ledger)"
    if dialect == "sqlite":
        return [_sqlite("hetdp_member_of_next", "INSERT", "hetdp_member", f"NEW.{other}")]
    found = f"SELECT 1 FROM came WHERE {other}"  # noqa: S608  our own names
    refuse = f"IF EXISTS ({found}) THEN RAISE EXCEPTION 'a ledger is append-only'; END IF"
    return [
        "CREATE FUNCTION hetdp_refuse_other_event() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN {refuse}; RETURN NULL; END $$",
        "CREATE TRIGGER hetdp_member_of_next AFTER INSERT ON hetdp_member REFERENCING NEW TABLE AS came "
        "FOR EACH STATEMENT EXECUTE FUNCTION hetdp_refuse_other_event()",  # once for all rows of a copy
    ]


_VERBS = ("UPDATE", "DELETE")


def _sqlite(name: str, verb: str, table: str, when: str = "", moment: str = "BEFORE") -> str:
    condition = f" WHEN {when}" if when else ""
    refuse = "SELECT RAISE(ABORT, 'a ledger is append-only');"
    return f"CREATE TRIGGER {name} {moment} {verb} ON {table} FOR EACH ROW{condition} BEGIN {refuse} END"


def _postgres(name: str, verb: str, table: str, when: str = "", each: str = "ROW") -> str:
    return f"CREATE TRIGGER {name} BEFORE {verb} ON {table} FOR EACH {each} {when} EXECUTE FUNCTION hetdp_refuse()"


def foreign_triggers(connection: Connection) -> list[str]:
    """Return the triggers on tables of a file that are not the ledger's. On a server others may have their reasons."""
    if connection.dialect.name != "sqlite":
        return []
    there = connection.exec_driver_sql("SELECT name, tbl_name FROM sqlite_master WHERE type = 'trigger' ORDER BY name")
    own = {table.lower() for table in tables().metadata.tables}
    return [name for name, table in there if table.lower() in own and name not in _names("sqlite")]


def missing_guards(connection: Connection) -> list[str]:
    """Return the names of the triggers that should be there and are not."""
    ours = ", ".join(f"'{table}'::regclass" for table in tables().metadata.tables)  # those in the search path
    query = {
        "sqlite": "SELECT name FROM sqlite_master WHERE type = 'trigger'",
        "postgresql": f"SELECT tgname FROM pg_trigger WHERE tgenabled <> 'D' AND tgrelid IN ({ours})",  # noqa: S608
    }[connection.dialect.name]
    there = {row[0] for row in connection.exec_driver_sql(query)}
    return [name for name in _names(connection.dialect.name) if name not in there]


def _names(dialect: str) -> list[str]:
    return [words[2] for words in map(str.split, guards(dialect)) if words[1] == "TRIGGER"]


def check_version(version: int, name: str) -> None:
    """Raise unless a ledger has the version that this package writes."""
    if version < SCHEMA:
        raise LedgerError(
            f"{name} has the older schema {version} (this hetdp writes {SCHEMA}); "
            f"make a copy of it and run: hetdp ledger upgrade {name}"
        )
    if version > SCHEMA:
        raise LedgerError(
            f"{name} was written by a newer hetdp (schema {version}, this one knows {SCHEMA}); update hetdp"
        )


def migrate(connection: Connection, version: int, name: str, steps: Mapping[int, Step], target: int = SCHEMA) -> None:
    """Bring a ledger from an older version to `target`, step by step, inside the caller's transaction."""
    for old in range(version, target):
        if old not in steps:
            raise LedgerError(
                f"{name} has schema {old}, from which there is no way to {target}; use the hetdp it was made with"
            )
        steps[old](connection)
        connection.execute(tables().ledger.update().values(version=old + 1))


def _guard_members(connection: Connection) -> None:
    for statement in member_guards(connection.dialect.name):
        connection.exec_driver_sql(statement)


STEPS: Mapping[int, Step] = {1: _guard_members}
"""From each older version, the step to the next one. A new version is one function and one line here."""
