"""The tables, the one server that writes to them, and what it does first: versions of the tables, the register.

Every change is a transaction of its own, one after the other. It is on disk, in the database and in the register,
before anybody is told of it.

Only one server may write. On SQLite it holds a lock on a file. On PostgreSQL it writes by one session, which holds an
advisory lock; a transaction is committed by that session or not at all. If the session is lost, as when PostgreSQL
restarts, the lock is lost with it: the next session takes it again before it writes, and writes nothing if another
server has it by then.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Concatenate, ParamSpec, TypeVar

import sqlalchemy as sa

from hetdp.errors import InputError
from hetdp.files import sqlite_engine

from .guard import RefusedError
from .register import ChangedError, Key, Register, new_version, private
from .settings import Settings

log = logging.getLogger("hetdp.server")
P = ParamSpec("P")
T = TypeVar("T")
# The version of the tables below.
VERSION = 3
_LOCK = 0x686574_6470  # a number of our own among PostgreSQL's advisory locks
# Seconds until the next attempt to empty the write-ahead log.
_RETRY_SECONDS = 0.2
# Seconds to wait for another connection.
_TIMEOUT = 10

tables = sa.MetaData()

# Single facts: version of the schema, hash of the curator's key, fingerprint of the vault.
facts = sa.Table("server_facts", tables, sa.Column("name", sa.Text, primary_key=True), sa.Column("text", sa.Text))

studies = sa.Table(
    "server_studies",
    tables,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("question", sa.Text, nullable=False),
    sa.Column("unit", sa.Text, nullable=False),
    sa.Column("lo", sa.Double, nullable=False),
    sa.Column("hi", sa.Double, nullable=False),
    sa.Column("choices", sa.Text, nullable=False),  # JSON: tiers, or the range of a free choice
    sa.Column("waves", sa.Text, nullable=False),  # JSON: share of the budget and closing time of each
    sa.Column("opens", sa.BigInteger, nullable=False),
    sa.Column("fewest", sa.Integer, nullable=False),
    sa.Column("changeable", sa.Boolean, nullable=False),
    sa.Column("wave", sa.Integer, nullable=False),  # the wave that is open now, from 0
    sa.Column("status", sa.Text, nullable=False),  # open, publishing, stopped (a publication failed), published
    sa.Column("created", sa.BigInteger, nullable=False),
    sa.Column("version", sa.Text),  # random, anew whenever the row is written: see `register`
)

people = sa.Table(
    "server_people",
    tables,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("study", sa.Text, sa.ForeignKey("server_studies.id"), nullable=False, index=True),
    sa.Column("invitation", sa.Text, unique=True),  # hash; null once the answer is there
    sa.Column("again", sa.Text, unique=True),  # hash of the link by which the person comes back
    sa.Column("epsilon", sa.Double),
    sa.Column("answer", sa.LargeBinary),  # the sealed grid code; null before and after
    sa.Column("version", sa.Text),  # random, anew whenever the row is written: see `register`
    sa.Index("server_people_choices", "study", "epsilon"),  # by which people are counted
)

sessions = sa.Table(
    "server_sessions",
    tables,
    sa.Column("hash", sa.Text, primary_key=True),
    sa.Column("person", sa.Text, index=True),  # null: the curator
    sa.Column("expires", sa.BigInteger, nullable=False),
    sa.Column("proof", sa.Text),  # a MAC of the above and of the epoch: nobody else can say whose session it is
)

results = sa.Table(
    "server_results",
    tables,
    sa.Column("study", sa.Text, sa.ForeignKey("server_studies.id"), primary_key=True),
    sa.Column("wave", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("published", sa.BigInteger, nullable=False),
    sa.Column("body", sa.Text, nullable=False),  # JSON, all of it public
)

imports = sa.Table(
    "server_imports",
    tables,
    sa.Column("key", sa.Text, key="id", primary_key=True),  # hash of what the client chose: the same twice is one
    sa.Column("study", sa.Text, nullable=False),
    sa.Column("people", sa.Integer, nullable=False),
)

audit = sa.Table(
    "server_audit",
    tables,
    sa.Column("number", sa.Integer, primary_key=True),
    sa.Column("at", sa.BigInteger, nullable=False),
    sa.Column("event", sa.Text, nullable=False),
    sa.Column("study", sa.Text),
    sa.Column("detail", sa.Text, nullable=False),  # JSON, all of it public
)


_TABLES = {"study": studies, "person": people, "import": imports}
# The cells of each kind of row, the id first.
_CELLS = {kind: table.c.keys() for kind, table in _TABLES.items()}


@dataclass
class Transaction:
    """A connection inside a transaction.

    The register is told of every row of a study, a person or an import that is written, and such a row is believed only
    if `vouches` says so.
    """

    connection: sa.Connection
    register: Register
    after: list[Callable[[], None]] = field(default_factory=list)  # done once it is committed, and only then
    scrub: bool = False  # a sealed answer was deleted or replaced: nothing of it may stay on the disk
    written: dict[Key, tuple[str, bytes]] = field(default_factory=dict)  # what the register is told

    def execute(self, statement: sa.Executable, rows: Any = None) -> sa.CursorResult[Any]:
        """Run a statement."""
        return self.connection.execute(statement, rows)

    def row(self, kind: str, row_id: str) -> dict[str, Any] | None:
        """Return a row by its id as the database has it, if there is one."""
        table = _TABLES[kind]
        found = self.execute(sa.select(table).where(table.c.id == row_id)).first()
        return None if found is None else dict(zip(_CELLS[kind], found, strict=True))

    def insert(self, kind: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Add rows, and tell the register."""
        if rows:
            self.execute(sa.insert(_TABLES[kind]), rows)
        for row in rows:
            self.wrote(kind, row)

    def change(self, kind: str, row: Mapping[str, Any]) -> None:
        """Write a row anew, and tell the register."""
        table = _TABLES[kind]
        self.execute(sa.update(table).where(table.c.id == row["id"]).values(row))
        self.wrote(kind, row)

    def wrote(self, kind: str, row: Mapping[str, Any]) -> None:
        """Tell the register how a row is from now on; all its cells count, those that are not named are null."""
        study = str(row["id" if kind == "study" else "study"])
        self.written[kind, row["id"]] = (study, self.register.sign(kind, *(row.get(name) for name in _CELLS[kind])))

    def vouches(self, kind: str, row: Mapping[str, Any]) -> bool:
        """Say whether a row is, cell by cell, the one that this server wrote last."""
        return self.register.vouches(kind, [row.get(name) for name in _CELLS[kind]], self.written)

    def believed(self, kind: str, row: Mapping[str, Any] | None) -> Mapping[str, Any]:
        """Return a row for which the register vouches, or raise."""
        if row is None or not self.vouches(kind, row):
            raise ChangedError
        return row

    def everybody(self, study: str) -> list[Any]:
        """Return the rows of a study's people, or raise if they are not all as this server wrote them last."""
        rows = self.execute(sa.select(people).where(people.c.study == study).order_by(people.c.id)).all()
        self.register.vouch_people(study, rows, self.written, everybody=True)
        return list(rows)

    def fact(self, name: str) -> str | None:
        """Return a single fact, if it is there."""
        found: str | None = self.execute(sa.select(facts.c.text).where(facts.c.name == name)).scalar()
        return found

    def note(self, event: str, study: str | None = None, **detail: Any) -> None:
        """Write a public event into the audit log."""
        row = {"at": int(time.time()), "event": event, "study": study, "detail": json.dumps(detail)}
        self.execute(sa.insert(audit).values(row))


class Store:
    """The database of one server."""

    def __init__(self, settings: Settings, register: Register) -> None:
        self.engine, self.register = connect(settings.database), register
        self._lock_file = f"{settings.sqlite_file or settings.register_file}.lock"
        self._handle: int | None = None
        self._session: sa.Connection | None = None
        self._turn, self._closed = threading.RLock(), False  # whose turn it is to write
        self._emptying: threading.Timer | None = None
        self._doubt = True  # what the process before left in doubt, if it was cut off
        self.undecided = False

    def claim(self) -> None:
        """Become the one server of this database; raise if there is another."""
        self._handle = os.open(self._lock_file, os.O_RDWR | os.O_CREAT, 0o600)
        os.fchmod(self._handle, 0o600)
        other = "another process serves this database; stop it first"
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.write(lambda _: None)  # takes the lock of PostgreSQL, and decides what is in doubt
        except OSError:
            raise InputError(other) from None
        except RefusedError as error:
            raise InputError(other if error.code == "another-server" else error.detail) from None

    def close(self) -> None:
        """Finish what is being written, then close everything."""
        with self._turn:
            self._closed = True
            if self._session is not None:
                self._session.close()
            self.engine.dispose()
            self.register.close()
            if self._handle is not None:
                os.close(self._handle)
                self._handle = None

    def read(self, query: Callable[Concatenate[Transaction, P], T], *args: P.args, **named: P.kwargs) -> T:
        """Return what a query finds."""
        if not self.undecided:
            with suppress(ChangedError):
                return self._look(query, *args, **named)
        # Perhaps the row was just being written: it is believed once that is committed. Nobody writes in our turn.
        with self._turn:
            self._decide()
            return self._look(query, *args, **named)

    def _look(self, query: Callable[Concatenate[Transaction, P], T], *args: P.args, **named: P.kwargs) -> T:
        with self.engine.connect() as connection:
            return query(Transaction(connection, self.register), *args, **named)

    def write(self, job: Callable[Concatenate[Transaction, P], T], *args: P.args, **named: P.kwargs) -> T:
        """Return what a job returns, after the commit of its transaction."""
        with self._turn:
            if self._closed:
                raise RefusedError(503)
            self._decide()
            batch = None
            try:
                with self._writing() as connection:
                    transaction = Transaction(connection, self.register)
                    result = job(transaction, *args, **named)
                    if transaction.written:
                        self._doubt = True
                        batch = self.register.prepare(transaction.written)
                if batch is not None:
                    self.register.settle(batch, len(transaction.written))
                self._doubt = False
            except Exception:  # it is raised again, unless the change is in the database after all
                if batch is None or not self._came(batch):
                    raise
            for action in transaction.after:
                try:
                    action()
                except Exception as error:  # noqa: BLE001  it is stored; who waits must hear so
                    log.warning("after a commit", extra={"facts": {"error": type(error).__name__}})
            if transaction.scrub and self._emptying is None:
                self._empty_log()
            return result

    @contextmanager
    def _writing(self) -> Iterator[sa.Connection]:
        """Give the connection that writes, in a transaction that commits at the end."""
        if self.engine.dialect.name == "sqlite":
            with self.engine.execution_options(writes=True).begin() as connection:
                yield connection
            return
        session = self._session = self._session or self._locked_session()
        try:
            with session.begin():
                yield session
        except sa.exc.DBAPIError:
            if session.invalidated:  # the lock is lost with it
                self._session = None
                session.close()
            raise

    def _locked_session(self) -> sa.Connection:
        """Return the one session that may write to PostgreSQL; raise if another server has the lock."""
        session = self.engine.connect()
        try:
            locked = session.execute(sa.select(sa.func.pg_try_advisory_lock(_LOCK))).scalar()
            session.execute(sa.text("SET synchronous_commit TO on"))  # what is acknowledged is on disk
            session.commit()
        except BaseException:  # whatever it is, a session that is not used must not keep the lock
            session.invalidate()
            session.close()
            raise
        if not locked:
            session.close()
            raise RefusedError(503, "another-server", "Another server serves this database; this one writes nothing.")
        return session

    def _empty_log(self) -> None:
        """Move the write-ahead log of SQLite into the file and empty it: pages in it hold answers that are gone.

        A reader that is under way can prevent that for a moment, and so can a full disk; then it is tried again soon.
        """
        with self._turn:
            self._emptying = None
            if self._closed or self.engine.dialect.name != "sqlite":
                return
            busy = 1
            with suppress(sqlite3.Error, sa.exc.SQLAlchemyError), closing(self.engine.raw_connection()) as raw:
                cursor = raw.cursor()
                cursor.execute("PRAGMA busy_timeout=50")
                (busy, *_) = cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
                cursor.execute(f"PRAGMA busy_timeout={1000 * _TIMEOUT}")
            if busy:
                self._emptying = threading.Timer(_RETRY_SECONDS, self._empty_log)
                self._emptying.daemon = True
                self._emptying.start()

    # --- A commit of which it is not known whether it happened

    def _came(self, batch: int) -> bool:
        """Say whether a transaction whose commit failed is in the database after all."""
        self.undecided = True
        try:
            return self._decide().get(batch, False)
        except Exception:  # noqa: BLE001  it stays in doubt, and is decided before anything else is done or shown
            return False

    def _decide(self) -> dict[int, bool]:
        """Decide by the rows that are there what the register does not know to be committed; return what came."""
        if not self._doubt or not self.register.path.exists():
            return {}
        doubtful, came = self.register.in_doubt(), {}
        if doubtful:
            with self._writing() as connection:
                for batch, rows in doubtful.items():
                    came[batch] = all(self._is_there(connection, key, mac) for key, mac in rows.items())
            self.register.decide(came)
        self._doubt = self.undecided = False
        return came

    def _is_there(self, connection: sa.Connection, key: Key, mac: bytes) -> bool:
        found = Transaction(connection, self.register).row(*key)
        return found is not None and self.register.sign(key[0], *found.values()) == mac


def connect(url: str) -> sa.Engine:
    """Return an engine that syncs every commit and never puts a parameter into a message."""
    address = sa.make_url(url)
    if address.get_backend_name() == "sqlite" and address.database:
        name = address.database
        os.close(os.open(name, os.O_RDWR | os.O_CREAT, 0o600))
        private(name)
        return sqlite_engine(name, patience=_TIMEOUT, pragmas=("foreign_keys = ON", "secure_delete = ON"))
    if address.drivername in {"postgresql", "postgres"}:
        address = address.set(drivername="postgresql+psycopg")
    return sa.create_engine(address, hide_parameters=True)


# ---------------------------------------------------------------------------------------------------------
# The first thing at every start


def prepare(transaction: Transaction, fingerprint: str, *, trusted: bool) -> None:
    """Make or upgrade the tables, check the vault by its fingerprint, make a register; raise if one does not fit."""
    tables.create_all(transaction.connection)
    for index in people.indexes:  # which a database may lack that was made before them
        index.create(transaction.connection, checkfirst=True)
    older = _upgraded(transaction)
    sealed_by = transaction.fact("vault")
    if sealed_by is None:
        transaction.execute(sa.insert(facts).values({"name": "vault", "text": fingerprint}))
    elif sealed_by != fingerprint:
        raise InputError("this is not the key with which the answers were sealed; nothing was changed")
    register = transaction.register
    people_there = any(transaction.execute(sa.select(table.c.id).limit(1)).first() for table in (studies, people))
    if not register.path.exists() and not trusted and people_there:
        why = "an older hetdp made none: " if older else "bring it back, or "
        raise InputError(
            f"{register.path} is missing, so answers that were put back or changed could not be noticed; {why}"
            "start once with --trust-database if you know that nobody changed the database"
        )
    register.create()
    if trusted:
        found = ((kind, row) for kind, table in _TABLES.items() for row in transaction.execute(sa.select(table)))
        register.adopt((kind, row.id if kind == "study" else row.study, row) for kind, row in found)


def _upgraded(transaction: Transaction) -> bool:
    """Bring the tables to the version of this server; say whether an older one had made them."""
    found = transaction.fact("version")
    if found is None and transaction.execute(sa.select(facts)).first() is None:
        transaction.execute(sa.insert(facts).values({"name": "version", "text": str(VERSION)}))
        return False
    old = int(found) if found is not None and found.isdecimal() else 0
    if old > VERSION:
        raise InputError("this database was made by a newer hetdp; update hetdp. Nothing was changed")
    for version in range(old, VERSION):
        if version not in STEPS:
            raise InputError(f"the database has version {found}, from which there is no way here; nothing was changed")
        STEPS[version](transaction)
        transaction.execute(sa.update(facts).where(facts.c.name == "version").values(text=str(version + 1)))
    return old < VERSION


def _versions(transaction: Transaction) -> None:
    """From 2 to 3: every row of a study or a person has a version, every session a proof; those that are there end."""
    for table in (studies, people):
        transaction.connection.exec_driver_sql(f"ALTER TABLE {table.name} ADD COLUMN version TEXT")
        ids = transaction.execute(sa.select(table.c.id)).scalars().all()
        change = sa.update(table).where(table.c.id == sa.bindparam("row")).values(version=sa.bindparam("fresh"))
        if ids:
            transaction.execute(change, [{"row": row, "fresh": new_version()} for row in ids])
    transaction.connection.exec_driver_sql(f"ALTER TABLE {sessions.name} ADD COLUMN proof TEXT")


# From each older version of the tables, the step to the next one.
STEPS: Mapping[int, Callable[[Transaction], None]] = {2: _versions}
