"""The database of a ledger: opened only if it can be trusted, written only under a lock, on disk after a transaction.

    hetdp_ledger   one row: the version of the schema, the number and hash of the last event
    hetdp_event    everything that happened, append-only, in a hash chain: the truth
    hetdp_cohort   people with the same budget who have spent the same, as of the last event
    hetdp_member   which person moved to which cohort at which event, append-only

Cohorts can be derived from the events (`chain.State`), and every transaction checks that they agree. What the database
enforces besides: nobody has spent more than their budget, nothing spent is taken back, no event is changed or
removed, a release has one charge and one result, a row of a person belongs to the event that is being written.

A writer takes the lock before it reads (SQLite's own, see `sqlite_engine`; on PostgreSQL the one row of
`hetdp_ledger`, see `books.catch_up`), so what it decides from cannot change before it commits. Statements are plain
SQL, the same for both databases, and go through SQLAlchemy's connections.
"""

from __future__ import annotations

import itertools
import os
import re
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import sqlalchemy as sa

from hetdp.errors import InputError, LedgerError
from hetdp.files import sqlite_engine

from .amounts import UNLIMITED

T = TypeVar("T")
PathName = str | os.PathLike[str]

SCHEMA = 2
"""The version of the schema that this package writes."""

PATIENCE = 60
"""Seconds to wait for another writer."""

_MOST_CELLS = 999
"""Parameters of one statement that every SQLite allows."""

_CAUSES = {
    "the disk is full": ("SQLITE_FULL",),
    "the disk is full or cannot be read or written": ("SQLITE_IOERR",),
    "it is read-only for this user": ("SQLITE_READONLY", "25006"),
    "the file is damaged": ("SQLITE_CORRUPT",),
    "the file is damaged or no ledger": ("SQLITE_NOTADB",),
    "the file or its folder cannot be written by this user": ("SQLITE_CANTOPEN",),
    "somebody's budget, or a rule of the ledger, would be broken": ("SQLITE_CONSTRAINT", "23"),
    f"another program has kept it locked for {PATIENCE} seconds": ("SQLITE_BUSY", "55P03"),
    "the server has run out of disk or memory": ("53",),
    "this user may not do that": ("42501",),
    "there is no ledger in this database; make one with: hetdp ledger init": ("42P01",),
    "a ledger is append-only": ("P0001",),
    "the server has ended the connection; try again": ("57P",),
    "the server cannot be reached": ("08",),
}
"""What is wrong, by the codes of SQLite and PostgreSQL, or how they begin."""

_BEGIN = {
    False: ("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY",),
    True: ("SET LOCAL synchronous_commit TO on", f"SET LOCAL lock_timeout TO '{PATIENCE}s'"),
}
"""How a transaction of PostgreSQL begins: one that reads, and one that writes."""


@dataclass(frozen=True, eq=False)
class Store:
    """An open database.

    Attributes
    ----------
    name
        How messages call it; without a password.
    head_file
        Where the head is kept outside of the database; None if nowhere.
    """

    engine: sa.Engine
    name: str
    head_file: Path | None

    def transact(self, work: Callable[[sa.Connection], T], *, writes: bool = False) -> T:
        """Return what a function finds or does in one transaction; it is on disk when this returns.

        One that only reads sees one moment of the ledger.
        """
        try:
            with self.engine.connect() as connection, connection.execution_options(writes=writes).begin():
                for statement in _BEGIN[writes] if connection.dialect.name == "postgresql" else ():
                    run(connection, statement)
                return work(connection)
        except sa.exc.DBAPIError as error:
            cause = _cause(error.orig)
        except (sa.exc.SQLAlchemyError, sqlite3.Error) as error:
            cause = _cause(error)
        # Not raised above: an error of the database may quote what it was given, and must not be in the chain of ours.
        raise LedgerError(f"{self.name} cannot be used: {cause}")

    def close(self) -> None:
        """Close all connections."""
        self.engine.dispose()


def _cause(error: BaseException | None) -> str:
    code = str(getattr(error, "sqlite_errorname", "") or getattr(error, "sqlstate", "") or "")
    if not code and type(error).__module__.startswith("psycopg"):
        code = "08"  # the driver did not even reach the server
    found = (cause for cause, codes in _CAUSES.items() if code.startswith(codes))
    return next(found, f"the database reports {code or type(error).__name__}")


def run(connection: sa.Connection, statement: str, cells: Sequence[Any] = ()) -> sa.CursorResult[*tuple[Any, ...]]:
    """Execute a statement of ours, in which `?` stands for a cell in either database."""
    spelled = statement if connection.dialect.name == "sqlite" else statement.replace("?", "%s")
    return connection.exec_driver_sql(spelled, tuple(cells) or None)


def insert(connection: sa.Connection, table: sa.Table, rows: Sequence[Sequence[Any]], conflict: str = "") -> None:
    """Insert rows, many in one statement: one by one they would take longer than the rest of a charge.

    Raise if one was not written, as when somebody's trigger kept it from being.
    """
    names = table.c.keys()
    marks, most = f"({', '.join('?' * len(names))})", _MOST_CELLS // len(names)
    for start in range(0, len(rows), most):
        some = rows[start : start + most]
        values = ", ".join([marks] * len(some))
        statement = f"INSERT INTO {table.name} ({', '.join(names)}) VALUES {values} {conflict}"  # noqa: S608  our own names
        if run(connection, statement, [*itertools.chain.from_iterable(some)]).rowcount != len(some):
            raise LedgerError("the ledger could not write all balances and people; is there a trigger on its tables?")


# --- Opening


def opened(where: PathName, head_file: PathName | None, *, new: bool = False) -> Store:
    """Return the store of a file name or of a postgresql:// address; `new` makes the file."""
    text = os.fspath(where)
    path = None if text.startswith(("postgresql:", "postgres:", "postgresql+")) else Path(text)
    beside = None if head_file is None else Path(head_file)
    if path is not None:
        if "://" in text:
            raise InputError(f"a ledger is a file or a postgresql:// address (got {text.partition('://')[0]}://…)")
        beside = beside or Path(f"{path.resolve()}.head")  # a link to the ledger is the same ledger, with the same head
        check_file_system(path)
        if new and path.exists():
            raise InputError(f"{path} exists already; open it, or choose another name for a new ledger")
    if new and beside is not None and beside.exists():
        raise LedgerError(
            f"{beside} says that a ledger was here; starting a new one would forget what it has charged: "
            "bring it back, or choose another name"
        )
    if path is None:
        return _postgres(text, beside)
    if not new:
        _check_file(path)
    else:
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        except OSError as error:
            raise InputError(f"{path} cannot be made: {error.strerror}") from None
    return Store(sqlite_engine(path, patience=PATIENCE), str(path), beside)


def _check_file(path: Path) -> None:
    if not path.exists():
        raise LedgerError(f"{path} does not exist; make a ledger with: hetdp ledger init {path}")
    if not path.is_file():
        raise LedgerError(f"{path} is not a file; a ledger is one file or a postgresql:// address")
    if not os.access(path, os.R_OK | os.W_OK) or not os.access(path.resolve().parent, os.W_OK):
        raise LedgerError(f"{path} cannot be used: it or its folder is read-only for this user")
    with path.open("rb") as file:
        if not file.read(16).startswith(b"SQLite format 3\x00"):
            raise LedgerError(f"{path} cannot be used: the file is damaged or no ledger")


def _postgres(text: str, head_file: Path | None) -> Store:
    try:
        url = sa.make_url(text).set(drivername="postgresql+psycopg")
        engine = sa.create_engine(url, hide_parameters=True)
    except ImportError:
        raise LedgerError(
            "a ledger in PostgreSQL needs psycopg; install it with: pip install 'hetdp[postgres]'"
        ) from None
    except (sa.exc.ArgumentError, ValueError):
        raise InputError("the address of the database cannot be read; write postgresql://user@host/name") from None
    store = Store(engine, url.set(password=None).render_as_string().replace("+psycopg", ""), head_file)
    if store.transact(lambda connection: run(connection, "SHOW fsync").scalar()) != "on":
        store.close()
        raise LedgerError(f"{store.name} runs with fsync = off and would forget charges; switch it on")
    return store


# --- Where a file may be. SQLite relies on file locks and on shared memory, which network file systems do not keep
# across machines: two of them could both believe to hold the lock, and both would spend the same budget.

_SHARED = re.compile(
    "9p|acfs|afpfs|afs|beegfs|ceph|cifs|coda|davfs|gfs2|glusterfs|gpfs|lustre|ncpfs|nfs[34]?|ocfs2|orangefs|panfs|pvfs2|"
    r"smb[23]|smbfs|vboxsf|vmhgfs|webdav|fuse\.(?!(ext2|ntfs-3g|bindfs|fuse-overlayfs|zfs)$).*"
)
"""Kinds of file systems that machines share. Of those in user space (fuse) only a few are known to be local."""

_MOUNTS = Path("/proc/self/mounts")


def check_file_system(path: Path) -> None:
    """Raise if the file is on a network file system; where the system does not tell, it is trusted."""
    mounts = _MOUNTS.read_text(encoding="utf-8", errors="surrogateescape") if _MOUNTS.exists() else ""
    kind = file_system(path.resolve(), mounts)
    if _SHARED.fullmatch(kind):
        raise LedgerError(
            f"{path} lies on a network file system ({kind}), where locks do not protect a ledger; "
            "put it on a disk of this machine, or use PostgreSQL"
        )


def file_system(path: Path, mounts: str) -> str:
    r"""Return the kind of file system that holds a path, from the text of /proc/mounts; "" if unknown.

    The longest mount point above the path decides, of equal ones the last.

    >>> file_system(Path("/data/my budgets/b.db"), "/dev/sda / ext4 rw 0 0\nsrv:/x /data/my\\040budgets nfs4 rw 0 0\n")
    'nfs4'
    """
    fields = [line.split(" ") for line in mounts.splitlines() if line.count(" ") > 1]
    points = [
        (re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), point), kind) for _, point, kind, *_ in fields
    ]
    above = [(len(Path(point).parts), kind) for point, kind in points if path.is_relative_to(point)]
    return max(reversed(above), key=lambda found: found[0], default=(0, ""))[1]


# --- The tables, and what guards them

TABLES = sa.MetaData()
_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")  # there an INTEGER key is the row's own number


def _numbers(*names: str) -> list[sa.Column[Any]]:
    return [sa.Column(name, sa.BigInteger, nullable=False) for name in names]


def _texts(*names: str) -> list[sa.Column[Any]]:
    return [sa.Column(name, sa.Text, nullable=False) for name in names]


LEDGER = sa.Table(
    "hetdp_ledger",
    TABLES,
    sa.Column("one", sa.SmallInteger, sa.CheckConstraint("one = 1"), primary_key=True, autoincrement=False),
    sa.Column("version", sa.Integer, nullable=False),
    *_texts("ident"),
    *_numbers("seq"),
    *_texts("hash"),
)
EVENT = sa.Table(
    "hetdp_event",
    TABLES,
    sa.Column("seq", _NUMBER, primary_key=True, autoincrement=False),
    *_texts("kind"),
    sa.Column("release", sa.Text, nullable=True),
    *_texts("at", "body", "hash"),
    sa.UniqueConstraint("release", "kind", name="hetdp_one_charge_one_result"),
    sa.CheckConstraint("(kind IN ('charge', 'result')) = (release IS NOT NULL)", name="hetdp_release_named"),
)
COHORT = sa.Table(
    "hetdp_cohort",
    TABLES,
    sa.Column("cohort", _NUMBER, primary_key=True, autoincrement=False),
    *_numbers("asked", "budget", "spent", "people"),
    sa.CheckConstraint("0 <= spent AND spent <= budget", name="hetdp_within_budget"),
    sa.CheckConstraint(f"0 <= asked AND asked <= budget AND budget <= {UNLIMITED}", name="hetdp_budget"),
    sa.CheckConstraint("people >= 0", name="hetdp_people"),
)
MEMBER = sa.Table(
    "hetdp_member",
    TABLES,
    sa.Column("person", sa.Text().with_variant(sa.Text(collation="C"), "postgresql"), primary_key=True),
    sa.Column("event", sa.BigInteger, primary_key=True, autoincrement=False),
    *_numbers("cohort"),
    sqlite_with_rowid=False,
)

_ONWARD = "NEW.seq < OLD.seq OR NEW.ident <> OLD.ident OR NEW.version < OLD.version"
_GUARDS = [  # a trigger, what it refuses, of which table, and when
    ("hetdp_cohort_no_delete", "DELETE", "hetdp_cohort", ""),
    ("hetdp_ledger_no_delete", "DELETE", "hetdp_ledger", ""),
    ("hetdp_cohort_fixed", "UPDATE OF cohort, asked, budget", "hetdp_cohort", ""),
    ("hetdp_cohort_only_spends", "UPDATE OF spent", "hetdp_cohort", "NEW.spent < OLD.spent"),
    ("hetdp_ledger_only_grows", "UPDATE", "hetdp_ledger", _ONWARD),
]


def create(connection: sa.Connection, name: str, ident: str, genesis: str) -> None:
    """Make the tables and the triggers that guard them."""
    if sa.inspect(connection).has_table(LEDGER.name):
        raise InputError(f"there is a ledger in {name} already; open it instead")
    TABLES.create_all(connection, checkfirst=False)
    insert(connection, LEDGER, [(1, SCHEMA, ident, 0, genesis)])
    for statement in guards(connection.dialect.name):
        run(connection, statement)


def guards(dialect: str) -> list[str]:
    """Return the statements that make the triggers of a kind of database."""
    kept = (EVENT.name, MEMBER.name)  # append-only
    if dialect == "sqlite":
        all_kept = [(f"{table}_no_{verb.lower()}", verb, table, "") for table in kept for verb in ("UPDATE", "DELETE")]
        return [*(_guard(*guard) for guard in [*all_kept, *_GUARDS]), *member_guards(dialect)]
    refuse = "EXECUTE FUNCTION hetdp_refuse()"
    rows = [*((f"{table}_kept", "UPDATE OR DELETE", table, "") for table in kept), *_GUARDS]
    return [
        "CREATE FUNCTION hetdp_refuse() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION 'a ledger is append-only'; END $$",
        *(
            f"CREATE TRIGGER {name} BEFORE {verb} ON {table} FOR EACH ROW WHEN ({when or True}) {refuse}"
            for name, verb, table, when in rows
        ),
        *(f"CREATE TRIGGER {t}_whole BEFORE TRUNCATE ON {t} FOR EACH STATEMENT {refuse}" for t in TABLES.tables),
        *member_guards(dialect),
    ]


def _guard(name: str, verb: str, table: str, when: str) -> str:
    refuse = "SELECT RAISE(ABORT, 'a ledger is append-only');"
    return f"CREATE TRIGGER {name} AFTER {verb} ON {table} FOR EACH ROW WHEN {when or 1} BEGIN {refuse} END"


def member_guards(dialect: str) -> list[str]:
    """Return what keeps a row of a person from naming another event than the one that is being written.

    People are written before the event and before the ledger's own number moves on, so that event is the next one.
    """
    other = "event <> (SELECT seq + 1 FROM hetdp_ledger)"
    if dialect == "sqlite":
        return [_guard("hetdp_member_of_next", "INSERT", "hetdp_member", f"NEW.{other}")]
    found = f"SELECT 1 FROM came WHERE {other}"  # noqa: S608  our own names
    refuse = f"IF EXISTS ({found}) THEN RAISE EXCEPTION 'a ledger is append-only'; END IF"
    return [
        "CREATE FUNCTION hetdp_refuse_other_event() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN {refuse}; RETURN NULL; END $$",
        "CREATE TRIGGER hetdp_member_of_next AFTER INSERT ON hetdp_member REFERENCING NEW TABLE AS came "
        "FOR EACH STATEMENT EXECUTE FUNCTION hetdp_refuse_other_event()",  # once for all rows of a statement
    ]


def wrong_triggers(connection: sa.Connection) -> tuple[list[str], list[str]]:
    """Return the triggers that should be there and are not, and those on tables of a file that are not the ledger's.

    On a server others may have triggers for their own reasons.
    """
    names = [words[2] for words in map(str.split, guards(connection.dialect.name)) if words[1] == "TRIGGER"]
    if connection.dialect.name == "sqlite":
        query = "SELECT name, lower(tbl_name) FROM sqlite_master WHERE type = 'trigger' ORDER BY name"
        there = {name: table in TABLES.tables for name, table in run(connection, query)}
    else:
        ours = ", ".join(f"'{table}'::regclass" for table in TABLES.tables)  # those in the search path
        query = f"SELECT tgname FROM pg_trigger WHERE tgenabled <> 'D' AND tgrelid IN ({ours})"  # noqa: S608  our own names
        there = {name: False for (name,) in run(connection, query)}
    missing = [name for name in names if name not in there]
    return missing, [name for name, foreign in there.items() if foreign and name not in names]


# --- Versions


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


def migrate(connection: sa.Connection, version: int, name: str) -> None:
    """Bring a ledger from an older version to this one, step by step, inside the caller's transaction."""
    for old in range(version, SCHEMA):
        if old not in STEPS:
            raise LedgerError(
                f"{name} has schema {old}, from which there is no way to {SCHEMA}; use the hetdp it was made with"
            )
        STEPS[old](connection)
        run(connection, "UPDATE hetdp_ledger SET version = ?", (old + 1,))


def _guard_members(connection: sa.Connection) -> None:
    for statement in member_guards(connection.dialect.name):
        run(connection, statement)


STEPS: Mapping[int, Callable[[sa.Connection], None]] = {1: _guard_members}
"""From each older version, the step to the next one. A new version is one function and one line here."""
