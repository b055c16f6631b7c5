"""The tables, and one writer whose transactions carry many requests.

SQLite syncs at every commit, so a commit a request would cap the server at the speed of the disk. The writer takes
what has queued up, runs it in one transaction and answers everybody after the commit: an acknowledged change
is on disk, and under load many share one sync.
"""

from __future__ import annotations

import asyncio
import queue
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

import sqlalchemy as sa
from starlette.concurrency import run_in_threadpool

from .errors import RefusedError
from .settings import Settings

T = TypeVar("T")
VERSION = "2"
_SOON = 0.2
"""Seconds after which the writer tries again to empty the write-ahead log."""
_MOST_AT_ONCE = 256
_PATIENCE = 10_000
"""Milliseconds to wait for another connection."""

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
    sa.Column("status", sa.Text, nullable=False),  # open, publishing, published
    sa.Column("created", sa.BigInteger, nullable=False),
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
)

sessions = sa.Table(
    "server_sessions",
    tables,
    sa.Column("hash", sa.Text, primary_key=True),
    sa.Column("person", sa.Text, index=True),  # null: the curator
    sa.Column("expires", sa.BigInteger, nullable=False),
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
    sa.Column("key", sa.Text, primary_key=True),  # chosen by the client: the same import twice is one
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
    """A connection inside a transaction, and what is to be done once it is committed."""

    connection: sa.Connection
    done: list[Callable[[], None]] = field(default_factory=list)
    scrub: bool = False  # a sealed answer was deleted or replaced: nothing of it may stay on the disk

    def execute(self, statement: sa.Executable, rows: Any = None) -> sa.CursorResult[Any]:
        """Run a statement."""
        return self.connection.execute(statement, rows)

    def after(self, action: Callable[[], None]) -> None:
        """Have something done after the commit, and only then."""
        self.done.append(action)


Job = Callable[[Transaction], T]


class Store:
    """The database of one server."""

    def __init__(self, settings: Settings) -> None:
        self.engine = connect(settings.database)
        self._writes = self.engine.execution_options(writes=True)
        self._scrub, self._closed, self._door = False, False, threading.Lock()
        self._queue: queue.SimpleQueue[tuple[Job[Any], Future[Any]] | None] = queue.SimpleQueue()
        self._writer = threading.Thread(target=self._work, name="hetdp-writer", daemon=True)
        self._writer.start()

    async def read(self, query: Callable[[sa.Connection], T]) -> T:
        """Return what a query finds; it runs in a thread."""

        def run() -> T:
            with self.engine.connect() as connection:
                return query(connection)

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
        self.engine.dispose()

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
            cursor.execute(f"PRAGMA busy_timeout={_PATIENCE}")
            self._scrub = bool(busy)

    def _carry(self, batch: list[tuple[Job[Any], Future[Any]]]) -> None:
        """Run jobs in one transaction; if it fails for an unforeseen reason, each in one of its own."""
        outcomes: list[tuple[Future[Any], Any, Exception | None]] = []
        try:
            with self._writes.begin() as connection:
                transaction = Transaction(connection)
                outcomes = [(future, *_outcome(job, transaction)) for job, future in batch]
        except Exception as error:  # noqa: BLE001  whatever it is, its askers must hear of it
            if len(batch) > 1:
                for item in batch:
                    self._carry([item])
            else:
                batch[0][1].set_exception(error)
            return
        self._scrub |= transaction.scrub
        for action in transaction.done:
            action()
        for future, result, refusal in outcomes:
            if refusal is None:
                future.set_result(result)
            else:
                future.set_exception(refusal)


def _outcome(job: Job[Any], transaction: Transaction) -> tuple[Any, Exception | None]:
    """Run one job. A refusal comes before anything is written, so it does not spoil the others' transaction."""
    try:
        return job(transaction), None
    except RefusedError as refusal:
        return None, refusal


def connect(url: str) -> sa.Engine:
    """Return an engine that syncs every commit and never puts a parameter into a message."""
    address = sa.make_url(url)
    if address.drivername in {"postgresql", "postgres"}:
        address = address.set(drivername="postgresql+psycopg")
    engine = sa.create_engine(address, hide_parameters=True)
    if engine.dialect.name == "sqlite":
        sa.event.listen(engine, "connect", _sqlite)
        sa.event.listen(engine, "begin", _begin)
    return engine


def _begin(connection: sa.Connection) -> None:
    writes = connection.get_execution_options().get("writes")  # a writer takes its lock at once, or waits for it
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _sqlite(connection: Any, _record: Any) -> None:
    connection.isolation_level = None  # transactions begin where SQLAlchemy says so
    settings = ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", "secure_delete=ON")
    for pragma in (*settings, f"busy_timeout={_PATIENCE}"):
        connection.execute(f"PRAGMA {pragma}")
