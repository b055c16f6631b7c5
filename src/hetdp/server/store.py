"""The tables, and one writer whose transactions carry many requests.

SQLite syncs at every commit, so a commit a request would cap the server at the speed of the disk. The writer takes
what has queued up, runs it in one transaction and answers everybody after the commit: an acknowledged change
is on disk, and under load many share one sync.

Only one server may write. Of PostgreSQL the writer keeps one session, which holds an advisory lock; a transaction is
committed by that session or not at all. If the session is lost, as when PostgreSQL restarts, the lock is lost with it:
the next session takes it again before it writes, and writes nothing if another server has it by then.
"""

from __future__ import annotations

import asyncio
import logging
import os
import queue
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

import sqlalchemy as sa
from starlette.concurrency import run_in_threadpool

from hetdp.files import sqlite_engine

from .errors import RefusedError
from .register import ChangedError, Key, Register, private
from .settings import Settings

log = logging.getLogger("hetdp.server")
T = TypeVar("T")
VERSION = 3
"""The version of the tables below."""
_LOCK = 0x686574_6470  # a number of our own among PostgreSQL's advisory locks
_SOON = 0.2
"""Seconds after which the writer tries again to empty the write-ahead log."""
_MOST_AT_ONCE = 256
_LOOKS, _WAIT = 20, 0.05
"""How often a reader looks again, and after how many seconds, at a row that is not believed."""
_PATIENCE = 10
"""Seconds to wait for another connection."""

tables = sa.MetaData()

facts = sa.Table("server_facts", tables, sa.Column("name", sa.Text, primary_key=True), sa.Column("text", sa.Text))
"""Single facts: version of the schema, hash of the curator's key, fingerprint of the vault."""

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
)

sessions = sa.Table(
    "server_sessions",
    tables,
    sa.Column("hash", sa.Text, primary_key=True),
    sa.Column("person", sa.Text, index=True),  # null: the curator
    sa.Column("expires", sa.BigInteger, nullable=False),
    sa.Column(
        "proof", sa.Text
    ),  # a MAC of the above and of the epoch: whose session it is cannot be changed from outside
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


@dataclass
class Transaction:
    """A connection inside a transaction, and what is to be done once it is committed.

    The rows of studies, people and imports are written through `wrote`, and believed only if `vouches` says so.
    """

    connection: sa.Connection
    register: Register
    done: list[Callable[[], None]] = field(default_factory=list)
    scrub: bool = False  # a sealed answer was deleted or replaced: nothing of it may stay on the disk
    written: dict[Key, tuple[str, bytes]] = field(default_factory=dict)  # what the register is told

    def execute(self, statement: sa.Executable, rows: Any = None) -> sa.CursorResult[Any]:
        """Run a statement."""
        return self.connection.execute(statement, rows)

    def wrote(self, kind: str, row: Mapping[str, Any]) -> None:
        """Tell the register how a row is from now on; all its cells count, those that are not named are null."""
        study = str(row["id" if kind == "study" else "study"])
        self.written[kind, row["id"]] = (study, self.register.sign(kind, *(row.get(name) for name in _CELLS[kind])))

    def vouches(self, kind: str, row: Mapping[str, Any]) -> bool:
        """Say whether a row is, cell by cell, the one that this server wrote last."""
        return self.register.vouches(kind, [row.get(name) for name in _CELLS[kind]], self.written)

    def everybody(self, study: str) -> list[Any]:
        """Return the rows of a study's people, or raise if they are not all as this server wrote them last."""
        rows = self.execute(sa.select(people).where(people.c.study == study).order_by(people.c.id)).all()
        self.register.vouch_people(study, rows, self.written, everybody=True)
        return list(rows)

    def same_people(self, study: str, rows: Sequence[Any]) -> None:
        """Raise if rows of a study's people that were read before are not those that this server wrote last."""
        self.register.vouch_people(study, rows, self.written, everybody=False)

    def after(self, action: Callable[[], None]) -> None:
        """Have something done after the commit, and only then."""
        self.done.append(action)


Job = Callable[[Transaction], T]


_TABLES = {"study": studies, "person": people, "import": imports}
_CELLS = {kind: table.c.keys() for kind, table in _TABLES.items()}
"""The cells of each kind of row, the id first."""


class Store:
    """The database of one server.

    Attributes
    ----------
    returned
        What is to be done when the writer had lost its session and has another one: another server may have written
        in between, so what is in memory is read anew.
    """

    def __init__(self, settings: Settings, register: Register) -> None:
        self.engine = connect(settings.database)
        self.register, self.returned = register, list[Callable[[sa.Connection], None]]()
        self._writes = self.engine.execution_options(writes=True)
        self._alone = False
        self._session: sa.Connection | None = None
        self._scrub, self._closed, self._door = False, False, threading.Lock()
        self._doubt = True  # what the process before left in doubt, if it was cut off
        self.undecided = False
        self._queue: queue.SimpleQueue[tuple[Job[Any], Future[Any]] | None] = queue.SimpleQueue()
        self._writer = threading.Thread(target=self._work, name="hetdp-writer", daemon=True)
        self._writer.start()

    def stay_alone(self) -> None:
        """Write only while no other server does; raise if one does now. SQLite has a file for that: see `start`."""
        self._alone = self.engine.dialect.name == "postgresql"
        self.submit(lambda _: None).result()

    async def read(self, query: Job[T]) -> T:
        """Return what a query finds; it runs in a thread."""

        def run() -> T:
            with self.engine.connect() as connection:
                return query(Transaction(connection, self.register))

        if self.undecided:  # what the row was last is not known; the writer finds out, or says that it cannot
            await self.write(lambda _: None)
        for _ in range(_LOOKS):
            try:
                return await run_in_threadpool(run)
            except ChangedError:  # perhaps the row is just being written: it is believed once that is committed
                await asyncio.sleep(_WAIT)
        return await run_in_threadpool(run)

    async def write(self, job: Job[T]) -> T:
        """Return what a job returns, after the commit of the transaction that carried it."""
        return await asyncio.wrap_future(self.submit(job))

    def submit(self, job: Job[T]) -> Future[T]:
        """Queue a job; its future is done after the commit."""
        future: Future[T] = Future()
        with self._door:
            if self._closed:
                raise RefusedError(503)
            self._queue.put((job, future))
        return future

    def close(self) -> None:
        """Finish what is queued, then let go of the database."""
        with self._door:
            self._closed = True
            self._queue.put(None)
        self._writer.join()
        if self._session is not None:
            self._session.close()
        self.engine.dispose()
        self.register.close()

    @contextmanager
    def _writing(self) -> Iterator[sa.Connection]:
        """Give the connection of the writer, in a transaction that commits at the end."""
        if not self._alone:
            with self._writes.begin() as connection:
                yield connection
            return
        session = self._locked_session()
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
        if self._session is not None:
            return self._session
        session = self.engine.connect()
        try:
            _lock(session)
            session.execute(sa.text("SET synchronous_commit TO on"))  # what is acknowledged is on disk
            for action in self.returned:
                action(session)
            session.commit()
        except BaseException:  # whatever it is, a session that is not used must not keep the lock
            session.invalidate()
            session.close()
            raise
        self._session = session
        return session

    def _work(self) -> None:
        while True:
            try:
                first = self._queue.get(timeout=_SOON if self._scrub else None)
            except queue.Empty:
                self._empty_log()
                continue
            if first is None:
                return
            batch, last = [first], False
            while len(batch) < _MOST_AT_ONCE and not self._queue.empty():
                item = self._queue.get()
                if item is None:
                    last = True
                    break
                batch.append(item)
            batch = [item for item in batch if item[1].set_running_or_notify_cancel()]
            if batch:
                self._carry(batch)
            if self._scrub:
                self._empty_log()
            if last:
                return

    def _empty_log(self) -> None:
        """Move the write-ahead log of SQLite into the file and empty it: pages in it hold answers that are gone.

        A reader that is under way can prevent that for a moment; then it is tried again soon, and at the end.
        """
        if self.engine.dialect.name != "sqlite":
            self._scrub = False
            return
        # Whatever goes wrong, a full disk say, the writer must live on; it tries again.
        with suppress(sqlite3.Error, sa.exc.SQLAlchemyError), closing(self.engine.raw_connection()) as raw:
            cursor = raw.cursor()
            cursor.execute("PRAGMA busy_timeout=50")
            (busy, *_) = cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            cursor.execute(f"PRAGMA busy_timeout={1000 * _PATIENCE}")
            self._scrub = bool(busy)

    def _carry(self, batch: list[tuple[Job[Any], Future[Any]]]) -> None:
        """Run jobs in one transaction; if it fails for an unforeseen reason, each in one of its own."""
        outcomes: list[tuple[Future[Any], Any, Exception | None]] = []
        transaction, prepared = None, None
        try:
            self._decide()
            with self._writing() as connection:
                transaction = Transaction(connection, self.register)
                outcomes = [(future, *_outcome(job, transaction)) for job, future in batch]
                if transaction.written:
                    self._doubt = True
                    prepared = self.register.prepare(transaction.written)
            if prepared is not None:
                self.register.settle(prepared, len(transaction.written))
            self._doubt = False
        except Exception as error:  # noqa: BLE001  whatever it is, its askers must hear of it
            if prepared is None or transaction is None or not self._came(prepared):
                self._fail(batch, error)
                return
        self._scrub |= transaction.scrub
        for action in transaction.done:
            try:
                action()
            except Exception as error:  # noqa: BLE001  it is stored; those who wait must hear so
                log.warning("after a commit", extra={"facts": {"error": type(error).__name__}})
        for future, result, refusal in outcomes:
            if refusal is None:
                future.set_result(result)
            else:
                future.set_exception(refusal)

    def _fail(self, batch: list[tuple[Job[Any], Future[Any]]], error: Exception) -> None:
        """Run the jobs of a transaction that failed each in one of its own; if there was one, tell it."""
        if len(batch) > 1:
            for item in batch:
                self._carry([item])
        else:
            batch[0][1].set_exception(error)

    def _came(self, batch: int) -> bool:
        """Say whether a transaction whose commit failed is in the database after all."""
        self.undecided = True
        try:
            return self._decide().get(batch, False)
        except Exception:  # noqa: BLE001  it stays in doubt, and is decided before anything else is done or shown
            return False

    def _decide(self) -> dict[int, bool]:
        """Decide by the rows that are there what the register does not know to be committed; return what came."""
        if not self._doubt or not self.register.exists():
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
        kind, row = key
        table = _TABLES[kind]
        found = connection.execute(sa.select(table).where(table.c.id == row)).first()
        return found is not None and self.register.sign(kind, *found) == mac


def _outcome(job: Job[Any], transaction: Transaction) -> tuple[Any, Exception | None]:
    """Run one job. A refusal comes before anything is written, so it does not spoil the others' transaction."""
    try:
        return job(transaction), None
    except RefusedError as refusal:
        return None, refusal


def _lock(session: sa.Connection) -> None:
    if not session.execute(sa.select(sa.func.pg_try_advisory_lock(_LOCK))).scalar():
        raise RefusedError(503, "another-server", "Another server serves this database; this one writes nothing.")


def connect(url: str) -> sa.Engine:
    """Return an engine that syncs every commit and never puts a parameter into a message."""
    address = sa.make_url(url)
    if address.get_backend_name() == "sqlite" and address.database:
        name = address.database
        os.close(os.open(name, os.O_RDWR | os.O_CREAT, 0o600))
        private(name, f"{name}-wal", f"{name}-shm")
        return sqlite_engine(name, patience=_PATIENCE, pragmas=("foreign_keys = ON", "secure_delete = ON"))
    if address.drivername in {"postgresql", "postgres"}:
        address = address.set(drivername="postgresql+psycopg")
    return sa.create_engine(address, hide_parameters=True)
