"""The tables of the server's database and their versions; connecting, and what is done first at every start."""

from __future__ import annotations

import os
import re
import secrets
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import sqlalchemy as sa

from hetdp.errors import InputError
from hetdp.files import sqlite_engine
from hetdp.ledger import Ledger

if TYPE_CHECKING:
    from .settings import Settings
    from .store import Store, Transaction

# The version of the tables below.
VERSION = "5"
# The name of the first curator.
FIRST = "curator"
LOCK = 0x686574_6470  # a number of our own among PostgreSQL's advisory locks
# Seconds to wait for another connection.
PATIENCE = 10

schema = sa.MetaData()

# Single facts: version of the schema, fingerprint of the vault, that the ledger was made.
facts = sa.Table("server_facts", schema, sa.Column("name", sa.Text, primary_key=True), sa.Column("text", sa.Text))

curators = sa.Table(
    "server_curators",
    schema,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("key", sa.Text, nullable=False),  # hash
    sa.Column("created", sa.BigInteger, nullable=False),
)

# A column that comes later stands at the end, null in the rows that were there: their MACs stay (`Register.sign_row`).
studies = sa.Table(
    "server_studies",
    schema,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("question", sa.Text, nullable=False),  # the title
    sa.Column("unit", sa.Text, nullable=False),  # of the one number that was asked for before version 5, with its ends
    sa.Column("lo", sa.Double, nullable=False),
    sa.Column("hi", sa.Double, nullable=False),
    sa.Column("choices", sa.Text, nullable=False),  # JSON: tiers or the range of a free choice; until when answers stay
    sa.Column("waves", sa.Text, nullable=False),  # JSON: share of the budget and closing time of each
    sa.Column("opens", sa.BigInteger, nullable=False),
    sa.Column("fewest", sa.Integer, nullable=False),
    sa.Column("changeable", sa.Boolean, nullable=False),
    sa.Column("wave", sa.Integer, nullable=False),  # the wave that is open now, from 0
    sa.Column("status", sa.Text, nullable=False),  # open, publishing, stopped (it failed), published, deleted
    sa.Column("created", sa.BigInteger, nullable=False),
    sa.Column("version", sa.Text),  # random, anew whenever the row is written: see `store.Register`
    sa.Column(
        "more", sa.Text
    ),  # JSON: the questions and all else; null: a study from before version 5, with one number
)

people = sa.Table(
    "server_people",
    schema,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("study", sa.Text, sa.ForeignKey("server_studies.id"), nullable=False, index=True),
    sa.Column("invitation", sa.Text, unique=True),  # hash; null once the answer is there
    sa.Column("again", sa.Text, unique=True),  # hash of the link by which the person comes back
    sa.Column("epsilon", sa.Double),
    sa.Column("answer", sa.LargeBinary),  # what was said to all questions, sealed; null before and after
    sa.Column("version", sa.Text),  # random, anew whenever the row is written: see `store.Register`
    sa.Column("number", sa.Integer),  # of the invitation; null: from a file, erased, or from before version 5
    sa.Column("gone", sa.Text),  # revoked (an invitation), erased (all about the person); null: neither
    sa.Index("server_people_choices", "study", "epsilon"),  # by which people are counted
)

results = sa.Table(
    "server_results",
    schema,
    sa.Column("study", sa.Text, sa.ForeignKey("server_studies.id"), primary_key=True),
    sa.Column("wave", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("published", sa.BigInteger, nullable=False),
    sa.Column("body", sa.Text, nullable=False),  # JSON, all of it public
)

imports = sa.Table(
    "server_imports",
    schema,
    sa.Column(
        "key", sa.Text, key="id", primary_key=True
    ),  # see `importing.File`; in an older hetdp the keyed mark alone
    sa.Column("study", sa.Text, nullable=False),
    sa.Column("people", sa.Integer, nullable=False),  # 0 once it is deleted, below 0 once its answers were used up
)

audit = sa.Table(
    "server_audit",
    schema,
    sa.Column("number", sa.Integer, primary_key=True),
    sa.Column("at", sa.BigInteger, nullable=False),
    sa.Column("event", sa.Text, nullable=False),
    sa.Column("study", sa.Text),
    sa.Column("detail", sa.Text, nullable=False),  # JSON, all of it public
)


class Person(NamedTuple):
    """A row of `people`, its cells in the order of the columns: where everybody is read, SQLAlchemy's rows are slow."""

    id: str
    study: str
    invitation: str | None
    again: str | None
    epsilon: float | None
    answer: bytes | None
    version: str | None
    number: int | None
    gone: str | None


# The tables of the register: see `store.Register`.
_REGISTER = """
CREATE TABLE IF NOT EXISTS vouched (
    kind TEXT NOT NULL, id TEXT NOT NULL, study TEXT NOT NULL, mac BLOB, coming BLOB, batch INTEGER,
    PRIMARY KEY (kind, id)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS vouched_of_study ON vouched (study, kind);
DROP INDEX IF EXISTS vouched_in_doubt;
CREATE TABLE IF NOT EXISTS epochs (person TEXT PRIMARY KEY, epoch INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS restored (id TEXT PRIMARY KEY, made INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS uses (
    study TEXT NOT NULL, wave INTEGER NOT NULL, person TEXT NOT NULL, units INTEGER NOT NULL,
    PRIMARY KEY (study, person, wave)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS waves (
    study TEXT NOT NULL, wave INTEGER NOT NULL, release TEXT NOT NULL, number TEXT, done INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (study, wave)
) WITHOUT ROWID
"""

MARK = 16  # how many digits of the id of a file begin the ids of its people
# The kinds of rows for which the register vouches; the id is the first cell of each.
VOUCHED = {"study": studies, "person": people, "import": imports}
COLUMNS = {kind: table.c.keys() for kind, table in VOUCHED.items()}
# What a register vouches for: of the kind of a row and its id, its MAC; two, if the last change is in doubt.
Known = dict[tuple[str, str], tuple[bytes, ...]]
# What ends a study or a person for good, and the cell that says so, counted from the kind of row, which comes first.
ENDED = {"deleted": b"d", "revoked": b"r", "erased": b"e"}
ENDS = {"study": 1 + studies.c.keys().index("status"), "person": 1 + people.c.keys().index("gone"), "import": 0}


def connect(url: str, **pool: int) -> sa.Engine:
    """Return an engine that syncs every commit and never puts a parameter into a message."""
    address = sa.make_url(url)
    if address.get_backend_name() == "sqlite" and address.database:
        name = address.database
        make(name)
        return sqlite_engine(name, patience=PATIENCE, pragmas=("foreign_keys = ON", "secure_delete = ON"))
    if address.get_backend_name() in {"postgresql", "postgres"}:
        address = address.set(drivername="postgresql+psycopg")
    # A connection that PostgreSQL has closed meanwhile, as when it restarts, is noticed before it is used.
    try:
        return sa.create_engine(address, hide_parameters=True, pool_pre_ping=True, **pool)
    except ImportError:
        raise UnreachedError(
            "PostgreSQL needs psycopg; install it with: pip install 'hetdp[server,postgres]'"
        ) from None


class UnreachedError(InputError):
    """The database cannot be reached or used, in words of ours: those of its driver may quote the password."""


# What a driver says when it gets no connection has no code; these are parts of it, and fixed words instead.
_CAUSES = {
    "resolve host|translate host name": "the host of the database, {host}, is not known; is its name right?",
    'database ".*" does not exist|^3D': "PostgreSQL at {place} has no database of this name; make it first",
    'authentication failed|no password|pg_hba|role ".*" does not|^28': "PostgreSQL at {place} refuses this user or "
    "password; in the URL write %40 for @, %2F for / and %25 for %",
    "refused|No such file|timeout|timed out|unreachable|No route": "PostgreSQL does not answer at {place}; is it "
    "running, and are host and port right?",
    "^SQLITE_NOTADB|^SQLITE_CORRUPT": "{place} is no SQLite database, or it is damaged",
    "^SQLITE_CANTOPEN|^SQLITE_READONLY|^SQLITE_PERM": "{place} or its folder cannot be written by this user",
    "^SQLITE_FULL|^SQLITE_IOERR": "{place} cannot be read or written; is the disk full?",
    "^SQLITE_BUSY": "{place} is locked by another program",
}


@contextmanager
def in_words(url: str) -> Iterator[None]:
    """Raise what a database raises in fixed words, with the place of the database and never its driver's message."""
    try:
        yield
    except (sa.exc.DBAPIError, sqlite3.Error) as error:
        address, raised = sa.make_url(url), getattr(error, "orig", error)
        code = getattr(raised, "sqlite_errorname", None) or getattr(raised, "sqlstate", None)
        host = address.host or address.query.get("host") or "its socket"
        place = address.database if address.get_backend_name() == "sqlite" else f"{host}:{address.port or 5432}"
        found = (words for part, words in _CAUSES.items() if re.search(part, code or str(raised)))
        other = f"the database at {{place}} cannot be used ({code or type(raised).__name__}); its log may say why"
        raise UnreachedError(next(found, other).format(host=host, place=place)) from None


@contextmanager
def asked(url: str) -> Iterator[sa.Connection]:
    """Give a connection of a moment; what the database raises is said in fixed words."""
    engine = connect(url)
    try:
        with in_words(url), engine.connect() as connection:
            yield connection
    finally:
        engine.dispose()


def take_lock(session: Any, _record: Any) -> None:
    """Make a new session the one that writes to PostgreSQL; raise if another server has the lock."""
    from .access import RefusedError  # which asks these tables, so it can be imported only after them

    try:
        (locked,) = session.execute("SELECT pg_try_advisory_lock(%s)", (LOCK,)).fetchone()
        session.execute("SET synchronous_commit TO on")  # what is acknowledged is on disk
        session.commit()
    except BaseException:  # whatever it is, a session that is not used must not keep the lock
        session.close()
        raise
    if not locked:
        session.close()
        raise RefusedError(503, "another-server", "Another server serves this database; this one writes nothing.")


def make(name: str | Path) -> None:
    """Make an SQLite file if there is none.

    One that is there is not opened: closing it would drop the locks that SQLite has on it in this process. The next
    program that closes it would then take itself for the last one and delete the write-ahead log in use.
    """
    path = os.path.realpath(name)  # a link may lead to a file that is not there yet
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    if not Path(path).is_file():
        raise InputError(f"{name} is not a file; a database of SQLite is one")
    private(path)


def private(name: str | Path) -> None:
    """Make an SQLite file readable by its owner only, with its log and index; later ones get the mode of the file."""
    for path in (Path(f"{name}{end}") for end in ("", "-wal", "-shm")):
        with suppress(FileNotFoundError):
            if path.stat().st_mode & 0o077:
                path.chmod(0o600)


# ---------------------------------------------------------------------------------------------------------
# The first thing at every start


def prepare(transaction: Transaction, fingerprint: str, *, trusted: bool) -> None:
    """Make or upgrade the tables, check the vault by its fingerprint, make a register; raise if one does not fit."""
    schema.create_all(transaction.connection)
    for index in people.indexes:  # which a database may lack that was made before them
        index.create(transaction.connection, checkfirst=True)
    if transaction.connection.dialect.name == "postgresql":  # else its statistics copy some of the sealed answers
        apart = (
            "ALTER TABLE server_people ALTER answer SET STATISTICS 0, ALTER answer TYPE bytea"  # forgets what it has
        )
        transaction.connection.exec_driver_sql(apart)
    version = _upgraded(transaction)
    if transaction.fact("vault") not in {None, fingerprint}:
        raise InputError("this is not the key with which the answers were sealed; nothing was changed")
    transaction.set_fact("vault", fingerprint)
    register = transaction.register
    if not trusted:
        has_register(transaction.connection, register.path, version)
    with suppress(OSError):  # what cannot be made is said when it is used
        make(register.path)
    with register.connected(writes=True) as file:
        for statement in _REGISTER.split(";"):
            file.exec_driver_sql(statement)
        # The epoch of whoever has none of their own; random, so that no session of a lost register goes on.
        file.exec_driver_sql("INSERT OR IGNORE INTO epochs VALUES ('', ?)", (secrets.randbits(62),))
        if trusted:  # these rows are believed and no others, because the operator says so; waves stay as they are
            file.exec_driver_sql("DELETE FROM vouched")
            for kind, table in VOUCHED.items():
                for row in transaction.execute(sa.select(table)):
                    told = (kind, row[0], row[0] if kind == "study" else row.study, register.sign_row(kind, row))
                    file.exec_driver_sql("INSERT INTO vouched (kind, id, study, mac) VALUES (?, ?, ?, ?)", told)


def beginnings(path: Path, *, copied: bool = False) -> dict[str, int]:
    """Return from which backups a register, or a copy of it, went on: {MAC and random number: when it was made}."""
    with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro{'&immutable=1' * copied}", uri=True)) as file:
        there = file.execute("SELECT 1 FROM sqlite_master WHERE name = 'restored'").fetchone()
        return dict(file.execute("SELECT id, made FROM restored").fetchall()) if there else {}


def has_register(connection: sa.Connection, path: Path, version: str) -> None:
    """Raise if a database with studies or people in it, of this version, has no register beside it."""
    some = (connection.execute(sa.select(table.c.id).limit(1)).first() for table in (studies, people))
    if not path.exists() and any(some):
        back = "bring it back, or restore a backup (hetdp serve --restore FOLDER), or "
        why = "an older hetdp made none: " if version in {"1", "2"} else back
        raise InputError(
            f"{path} is missing, so answers that were put back or changed could not be noticed; {why}"
            "start once with --trust-database if you know that nobody changed the database"
        )


def widen(connection: sa.Connection) -> None:
    """Give old tables the columns that came at their end, all null, before any row is read by the tables above."""
    there = sa.inspect(connection)
    for table, column in ((studies, "more"), (people, "number"), (people, "gone")):
        kind = table.c[column].type.compile(connection.dialect)
        if there.has_table(table.name) and column not in {one["name"] for one in there.get_columns(table.name)}:
            connection.exec_driver_sql(f"ALTER TABLE {table.name} ADD COLUMN {column} {kind}")


def _upgraded(transaction: Transaction) -> str:
    """Bring the tables to the version of this server; return that of before."""
    found = transaction.fact("version")
    if found is None and transaction.execute(sa.select(facts)).first() is None:
        found = VERSION
    if found not in {"2", "3", "4", VERSION}:
        raise InputError(f"this hetdp does not know version {found} of the database; update hetdp. Nothing was changed")
    if found == "2":
        for table in (studies, people):
            transaction.connection.exec_driver_sql(f"ALTER TABLE {table.name} ADD COLUMN version TEXT")
            for row in transaction.execute(sa.select(table.c.id)).scalars().all():
                transaction.execute(sa.update(table).where(table.c.id == row).values(version=secrets.token_hex(16)))
    if found in {"2", "3"}:  # sessions had a table of their own; those that were open end
        transaction.connection.exec_driver_sql("DROP TABLE IF EXISTS server_sessions")
    if found != VERSION:
        if key := transaction.fact("curator"):  # there was one, without a name
            transaction.execute(sa.insert(curators).values(name=FIRST, key=key, created=0))
        transaction.execute(sa.delete(facts).where(facts.c.name == "curator"))
    transaction.set_fact("version", VERSION)
    return found


LEDGER_GONE = (
    "the ledger of this server is missing: without it budgets could be overspent; bring it back, or go back to a "
    "backup: hetdp serve --restore FOLDER"
)


def open_ledger(settings: Settings, database: Store) -> Ledger:
    """Return the ledger of this server; it is made once, and never again if it is missing later."""
    made = database.read(lambda transaction: transaction.fact("ledger")) is not None
    where, head, expected = settings.ledger, settings.ledger_head, settings.expect_head
    if settings.sqlite_file is None:
        there = sa.inspect(database.engine).has_table("hetdp_ledger")
    else:
        there = Path(where).exists()
        private(where)
        private(head)
        private(f"{head}.lock")
    if made and not there:
        raise InputError(LEDGER_GONE)
    if made and not head.exists() and expected is None:
        # The ledger itself asks for its head only once something is charged; an old copy may be older than that.
        raise InputError(
            f"{head} is missing, so an old copy of the ledger could not be noticed; bring it back, give the head that "
            "you wrote down (--expect-head NUMBER:HASH), or go back to a backup: hetdp serve --restore FOLDER"
        )
    opened = Ledger(where, expect_head=expected, head_file=head) if there else Ledger.create(where, head_file=head)
    if not made:
        database.write(lambda transaction: transaction.set_fact("ledger", "made"))
    return opened
