"""What stands in the database, and how we know that nobody changed it: transactions, the register, the one writer.

Every change is a transaction of its own, one after the other. It is on disk, in the database and in the register,
before anybody is told of it.

The register. Somebody may be able to write to the database without having the vault's key or the files beside it. They
could raise a person's ε, put an older row back after the person lowered their ε or withdrew, or change the shares of a
study. So the server writes down, in a small file of its own (SQLite), a MAC of every row of a study, a person and an
import as it wrote it last, and believes a row only if its MAC is the one there.

Claim. A row for which `Transaction.vouches` is true is, cell by cell, the one that this server wrote last.

Argument. The MAC is keyed, covers the kind of row and every cell with its type, and each writing of a row has a
version of 128 fresh random bits. So an older row, a row of somebody else, or one with another cell has another MAC, and
nobody without the key can find a row with a given one. A row is compared when it is used, and what is used is that row:
it does not matter what the database says before, afterwards, or to another query.

A commit. A change is in the register, and on disk, before the database commits it, and is believed once that has
happened. If that is not known, after a crash or a lost connection, the writer looks at the rows and decides, once and
before it does anything else: the change was made, or it was not. Nobody was told that it was made. So the database can
choose which of the two it was, and no more.

The register also has which wave is being read (`opened`), so that nobody is told that they have withdrawn from it; how
much all its questions used of each person, so that all waves of a study stay within ε also if a person lowers it in
between; the numbers that were drawn for it; and of each person the epoch to which their sessions belong. All numbers
of a wave are written down at once, before the database sees one of them, and once: whoever makes the database fail
afterwards gets the same numbers again and not a second draw.

One writer. On SQLite the server holds a lock on a file. On PostgreSQL it writes by one session, which holds an advisory
lock. If that is lost, as when PostgreSQL restarts, the next one takes the lock before it writes, or writes nothing.
"""

from __future__ import annotations

import fcntl
import hmac
import json
import os
import secrets
import sqlite3
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

import sqlalchemy as sa

from hetdp.errors import InputError
from hetdp.files import sqlite_engine

from . import access, tables
from .access import RefusedError
from .settings import Settings
from .tables import ENDED, ENDS, PATIENCE, VOUCHED, audit, connect, curators, facts, people, take_lock, widen

P = ParamSpec("P")
T = TypeVar("T")
SERVER = "server"  # who acts, in the audit log, if no curator does
Key = tuple[str, str]  # the kind of a row (study, person, import) and its id
_CHANGED = (
    "The records of this study are not as this server left them: its database was changed from outside, or an older "
    "copy was put back. Nothing was released; who still has their page open can withdraw. The operator can bring the "
    "newest copy back; otherwise this study cannot go on: it can be deleted, and a new one made."
)
_UNKNOWN = "The register cannot be used now. It is not known whether this was done: look again before you repeat it."


def new_version() -> str:
    """Return what tells one writing of a row from every other."""
    return secrets.token_hex(16)


class ChangedError(RefusedError):
    """A row is not the one that this server wrote last."""

    def __init__(self) -> None:
        super().__init__(409, "changed", _CHANGED)


# ---------------------------------------------------------------------------------------------------------
# The register

_COMING = "INSERT INTO vouched (kind, id, study, coming, batch) VALUES (?, ?, ?, ?, ?) ON CONFLICT (kind, id) "
_COMING += "DO UPDATE SET coming = excluded.coming, batch = excluded.batch"
_EPOCH = "INSERT INTO epochs VALUES (?, ?) ON CONFLICT (person) DO UPDATE SET epoch = excluded.epoch"
_COMMITTED = "UPDATE vouched SET mac = coming, coming = NULL, batch = NULL WHERE batch = ?"
_UNDONE = "UPDATE vouched SET coming = NULL, batch = NULL WHERE batch = ?"
_THIS: sa.BindParameter[str] = sa.bindparam("this")  # a row's id; built once, as building takes longer than running
_FIND = {kind: sa.select(table).where(table.c.id == _THIS) for kind, table in VOUCHED.items()}
_CHANGE = {kind: sa.update(table).where(table.c.id == _THIS) for kind, table in VOUCHED.items()}
_FEW = 10_000  # rows that are found one by one; for more, all rows of the register are looked through


class Register:
    """The MACs of all rows that may be believed, the waves that were read, the epochs of sessions."""

    def __init__(self, path: Path, key: bytes) -> None:
        self.path, self.at_work = path, set[str]()  # the studies that this process is publishing
        self._keyed = hmac.new(key, digestmod="sha256")  # every MAC begins as a copy: the key is taken in once
        self._file = sqlite_engine(path, patience=PATIENCE)

    def close(self) -> None:
        """Close the file."""
        self._file.dispose()

    def sign(self, *cells: Any) -> bytes:
        """Return the MAC of cells: texts, bytes, numbers or null, which `repr` writes in one way and as no other."""
        mac = self._keyed.copy()
        mac.update(repr(cells).encode("utf-8", "surrogatepass"))
        return mac.digest()

    def sign_row(self, kind: str, cells: Iterable[Any]) -> bytes:
        """Return the MAC of a row, its cells in the order of the columns, and behind it a letter if the row has ended.

        Nulls at the end are left out, so that a column which a later version adds leaves old rows as they are. Rows
        of a table still have the same MAC only if all their cells are the same. The letter is for `restore`.
        """
        found = [kind, *cells]
        ended = ENDED.get(found[ENDS[kind]], b"")
        while found[-1] is None:
            found.pop()
        return self.sign(*found) + ended

    def known(self, kind: str, row: str) -> tuple[str, bytes] | None:
        """Return the study and the MAC of a row as this server wrote it last, if there is such a row."""
        query = "SELECT study, mac FROM vouched WHERE kind = ? AND id = ? AND mac IS NOT NULL"
        return next(((study, mac) for study, mac in self._rows(query, kind, row)), None)

    def people(self, study: str, kind: str = "person") -> dict[str, bytes]:
        """Return the MAC of every person of a study; or of every import, if that is the kind."""
        query = "SELECT id, mac FROM vouched WHERE kind = ? AND study = ? AND mac IS NOT NULL"
        return dict(self._rows(query, kind, study))

    # --- What is written; by the one server of the database alone

    def prepare(self, changes: Mapping[Key, tuple[str, bytes]], epochs: Mapping[str, int]) -> int:
        """Write down, before a transaction commits, its rows and sessions that end; return a number for `settle`.

        The MACs before it are still believed. All is on disk when this returns.
        """
        batch = secrets.randbits(62)
        with self.connected(writes=True) as file:
            if changes:
                file.exec_driver_sql(_COMING, [(*key, study, mac, batch) for key, (study, mac) in changes.items()])
            if epochs:
                file.exec_driver_sql(_EPOCH, [*epochs.items()])
        return batch

    def settle(self, batch: int, rows: Collection[Key]) -> None:
        """Believe the MACs of the rows of a transaction that is committed; on disk when this returns."""
        few = [(batch, *row) for row in rows] if len(rows) <= _FEW else []
        done = self._write(f"{_COMMITTED} AND kind = ? AND id = ?", few) if few else self._write(_COMMITTED, (batch,))
        if done != len(rows):
            raise RefusedError(503, "register", _UNKNOWN)

    def in_doubt(self) -> dict[int, dict[Key, bytes]]:
        """Return the transactions of which it is not known whether they were committed: their rows and MACs."""
        found: dict[int, dict[Key, bytes]] = {}
        for batch, kind, row, mac in self._rows("SELECT batch, kind, id, coming FROM vouched WHERE batch IS NOT NULL"):
            found.setdefault(batch, {})[kind, row] = mac
        return found

    def decide(self, came: Mapping[int, bool]) -> None:
        """Say of each transaction that is in doubt whether it was committed, all of it or nothing."""
        with self.connected(writes=True) as file:
            for batch, committed in came.items():
                file.exec_driver_sql(_COMMITTED if committed else _UNDONE, (batch,))
            file.exec_driver_sql("DELETE FROM vouched WHERE mac IS NULL AND batch IS NULL")  # they never came

    # --- Sessions

    def epoch(self, person: str) -> int:
        """Return the epoch to which the sessions of a person must belong."""
        return int(self._rows("SELECT epoch FROM epochs WHERE person IN (?, '') ORDER BY person DESC", person)[0][0])

    def kept(self, person: str) -> int | None:
        """Return the number of the one session that went on when this epoch of the person began, if one did."""
        return next((n for (n,) in self._rows("SELECT epoch FROM epochs WHERE person = ?", f"{person} kept")), None)

    # --- Waves

    def opened(self, study: str, wave: int = 0) -> bool:
        """Say whether answers of a study are being read, for this wave or a later one."""
        return bool(self._rows("SELECT 1 FROM waves WHERE study = ? AND wave >= ? AND NOT done", study, wave))

    def open(self, study: str, wave: int, release: str, uses: Mapping[str, int]) -> None:
        """Write down that answers are going to be read, for which release, and what it uses of whom; raise if drawn."""
        query = (
            "INSERT INTO waves (study, wave, release) VALUES (?, ?, ?) "
            "ON CONFLICT (study, wave) DO UPDATE SET release = excluded.release WHERE number IS NULL AND NOT done"
        )
        rows = [(study, wave, person, units) for person, units in uses.items()]
        with self.connected(writes=True) as file:
            if file.exec_driver_sql(query, (study, wave, release)).rowcount != 1:
                why = "The numbers of this wave were drawn before; bring the newest ledger back."
                raise RefusedError(409, "drawn", why)
            file.exec_driver_sql("DELETE FROM uses WHERE study = ? AND wave = ?", (study, wave))
            if rows:
                file.exec_driver_sql("INSERT INTO uses (study, wave, person, units) VALUES (?, ?, ?, ?)", rows)

    def used(self, study: str, wave: int) -> Counter[str]:
        """Return what the waves before this one have used of each person, in the ledger's units."""
        found = Counter[str]()
        for person, units in self._rows("SELECT person, units FROM uses WHERE study = ? AND wave < ?", study, wave):
            found[person] += units  # in Python's integers: what is public has no limit
        return found

    def numbers(self, study: str, wave: int) -> tuple[str, dict[str, list[float]]] | tuple[None, None]:
        """Return the release and all numbers that were drawn for a wave, by their ids; if none were, None twice."""
        query = "SELECT release, number FROM waves WHERE study = ? AND wave = ? AND number IS NOT NULL"
        for release, text in self._rows(query, study, wave):
            if not text.startswith("{"):  # one number, as before version 5
                return release, {release: [float.fromhex(text)]}
            return release, {name: [*map(float.fromhex, some)] for name, some in json.loads(text).items()}
        return None, None

    def keep(self, study: str, wave: int, release: str, numbers: Mapping[str, Sequence[float]]) -> None:
        """Write down all numbers that were drawn for a wave, before anybody sees one of them."""
        query = "UPDATE waves SET number = ? WHERE (study, wave, release) = (?, ?, ?) AND number IS NULL AND NOT done"
        text = json.dumps({name: [number.hex() for number in some] for name, some in numbers.items()})
        if self._write(query, (text, study, wave, release)) != 1:
            raise ChangedError

    def leave(self, study: str) -> bool:
        """Give up reading a study's answers if nothing was drawn; return whether nobody reads them now."""
        given_up = "DELETE FROM uses WHERE study = ? AND wave NOT IN (SELECT wave FROM waves WHERE study = ?)"
        with self.connected(writes=True) as file:
            file.exec_driver_sql("DELETE FROM waves WHERE study = ? AND number IS NULL AND NOT done", (study,))
            file.exec_driver_sql(given_up, (study, study))
        return not self.opened(study)

    def finish(self, study: str, wave: int) -> None:
        """Write down that all waves before this one are over; the last may have read nobody, and is over too."""
        if wave > 0:
            self._write("INSERT OR IGNORE INTO waves VALUES (?, ?, '', NULL, 1)", (study, wave - 1))
        self._write("UPDATE waves SET done = 1 WHERE study = ? AND wave < ? AND NOT done", (study, wave))

    # --- The file

    def _rows(self, query: str, *cells: Any) -> list[tuple[Any, ...]]:
        """Return what a query finds, of one moment; by the driver alone, because every answer asks often."""
        with _usable(), closing(self._file.raw_connection()) as file:
            return list(file.cursor().execute(query, cells).fetchall())

    def _write(self, query: str, cells: Any) -> int:
        """Carry out one change, on disk when this returns; return how many rows it changed."""
        with self.connected(writes=True) as file:
            return file.exec_driver_sql(query, cells).rowcount

    @contextmanager
    def connected(self, *, writes: bool) -> Iterator[sa.Connection]:
        """Give the open file; what is changed in it is one transaction, which is on disk at the end."""
        with _usable(), self._file.begin() as file:
            begin(file, writes=writes)
            yield file


@contextmanager
def _usable() -> Iterator[None]:
    try:
        yield
    except (sa.exc.SQLAlchemyError, sqlite3.Error):
        raise RefusedError(503, "register", _UNKNOWN) from None


# ---------------------------------------------------------------------------------------------------------
# Transactions


def begin(connection: sa.Connection, *, writes: bool) -> None:
    """Begin a transaction of SQLite that sees one moment; one that writes has the lock from its start."""
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


@dataclass
class Transaction:
    """A connection inside a transaction; it tells the register of what it writes, and believes what `vouches` says."""

    connection: sa.Connection
    register: Register
    by: str = SERVER  # whose change it is, for the audit log: a curator's name
    scrub: bool = False  # a sealed answer was deleted or replaced: nothing of it may stay on the disk
    written: dict[Key, tuple[str, bytes]] = field(default_factory=dict)  # what the register is told
    epochs: dict[str, int] = field(default_factory=dict)  # the new ones of people whose sessions end

    def execute(self, statement: sa.Executable, rows: Any = None) -> sa.CursorResult[Any]:
        """Run a statement."""
        return self.connection.execute(statement, rows)

    def row(self, kind: str, row_id: str) -> dict[str, Any] | None:
        """Return a row by its id as the database has it, if there is one."""
        found = self.execute(_FIND[kind], {"this": row_id}).first()
        return None if found is None else dict(zip(tables.COLUMNS[kind], found, strict=True))

    def insert(self, kind: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Add rows, and tell the register."""
        if rows:
            self.execute(sa.insert(VOUCHED[kind]), rows)
        for row in rows:
            self.wrote(kind, row)

    def change(self, kind: str, row: Mapping[str, Any]) -> None:
        """Write a row anew, and tell the register."""
        self.execute(_CHANGE[kind], {**row, "this": row["id"]})
        self.wrote(kind, row)

    def wrote(self, kind: str, row: Mapping[str, Any]) -> None:
        """Tell the register how a row is from now on; all its cells count, those that are not named are null."""
        self.written[kind, row["id"]] = (str(row["id" if kind == "study" else "study"]), self._mac(kind, row))

    def vouches(self, kind: str, row: Mapping[str, Any]) -> bool:
        """Say whether a row is, cell by cell, the one that this server wrote last."""
        known = self.written.get((kind, row["id"])) or self.register.known(kind, row["id"])
        mac = self._mac(kind, row)[:32]  # without the letter, which those of a former version lack
        return known is not None and hmac.compare_digest(known[1][:32], mac)

    def _mac(self, kind: str, row: Mapping[str, Any]) -> bytes:
        return self.register.sign_row(kind, map(row.get, tables.COLUMNS[kind]))

    def believed(self, kind: str, row: Mapping[str, Any] | None) -> Mapping[str, Any]:
        """Return a row for which the register vouches, or raise."""
        if row is None or not self.vouches(kind, row):
            raise ChangedError
        return row

    def everybody(self, study: str) -> tuple[list[Any], dict[str, bytes]]:
        """Return the rows of a study's people with their MACs; raise unless all are as this server wrote them last."""
        query, known = sa.select(people).where(people.c.study == study), self.register.people(study)
        rows = [*map(tables.Person._make, self.execute(query.order_by(people.c.id)).all())]
        known |= {row: mac for (kind, row), (here, mac) in self.written.items() if (kind, here) == ("person", study)}
        if known != {row.id: self.register.sign_row("person", row) for row in rows}:  # nobody else, and nobody missing
            raise ChangedError
        return rows, known

    def end_sessions(self, *people: str, but: int | None = None) -> None:
        """Begin a new epoch of people: with this change all their sessions end but the one of this number."""
        for person in people:  # a number that is no session's keeps none
            self.epochs[person] = secrets.randbits(62)
            self.epochs[f"{person} kept"] = secrets.randbits(62) if but is None else but

    def fact(self, name: str) -> str | None:
        """Return a single fact, if it is there."""
        found: str | None = self.execute(sa.select(facts.c.text).where(facts.c.name == name)).scalar()
        return found

    def set_fact(self, name: str, text: str) -> None:
        """Write a single fact."""
        self.execute(sa.delete(facts).where(facts.c.name == name))
        self.execute(sa.insert(facts).values({"name": name, "text": text}))

    def note(self, event: str, study: str | None = None, **detail: Any) -> None:
        """Write a public event into the audit log."""
        said = json.dumps({**detail, "by": self.by})
        row = {"at": int(access.now()), "event": event, "study": study, "detail": said}
        self.execute(sa.insert(audit).values(row))


# ---------------------------------------------------------------------------------------------------------
# The one writer


class Store:
    """The database of one server."""

    def __init__(self, settings: Settings, register: Register) -> None:
        self.engine, self.register = connect(settings.database), register
        self._writer = self.engine
        if self.engine.dialect.name == "postgresql":  # one session; whenever it is a new one, it takes the lock first
            self._writer = connect(settings.database, pool_size=1, max_overflow=0)
            sa.event.listen(self._writer, "connect", take_lock)
        self._lock_file = f"{settings.sqlite_file or settings.register_file}.lock"
        self._handle: int | None = None
        self._turn, self._closed = threading.RLock(), False  # whose turn it is to write
        self._emptying: threading.Timer | None = None
        self.leftovers = self.engine.dialect.name != "sqlite"  # of deleted answers, for `app` to remove every hour
        self._doubt = True  # whether a change may be: now that of the process before, if it was cut off

    def claim(self) -> None:
        """Become the one server of this database; raise if there is another."""
        self._handle = os.open(self._lock_file, os.O_RDWR | os.O_CREAT, 0o600)
        os.fchmod(self._handle, 0o600)
        other = "another process serves this database; stop it first"
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with self._writing() as connection:  # which takes the lock of PostgreSQL
                widen(connection)
            self.write(lambda _: None)  # decides what is in doubt
        except OSError:
            raise InputError(other) from None
        except RefusedError as error:
            raise InputError(other if error.code == "another-server" else error.detail) from None

    def close(self) -> None:
        """Finish what is being written, then close everything."""
        with self._turn:
            self._closed = True
            self._writer.dispose()
            self.engine.dispose()
            self.register.close()
            handle, self._handle = self._handle, None
            if handle is not None:
                os.close(handle)

    def read(self, query: Callable[Concatenate[Transaction, P], T], *args: P.args, **named: P.kwargs) -> T:
        """Return what a query finds."""
        if not self._doubt:
            with suppress(ChangedError):
                return self._look(query, *args, **named)
        # Perhaps the row was just being written: it is believed once that is committed. Nobody writes in our turn.
        with self._turn:
            self._decide()
            return self._look(query, *args, **named)

    def _look(self, query: Callable[Concatenate[Transaction, P], T], *args: P.args, **named: P.kwargs) -> T:
        with self.engine.connect() as connection:
            begin(connection, writes=False)
            return query(Transaction(connection, self.register), *args, **named)

    def write(self, job: Callable[Concatenate[Transaction, P], T], *args: P.args, **named: P.kwargs) -> T:
        """Return what a job returns, after the commit of its transaction."""
        return self.write_as(SERVER, job, *args, **named)

    def write_as(self, by: str, job: Callable[Concatenate[Transaction, P], T], *args: P.args, **named: P.kwargs) -> T:
        """Do the same in the name of a curator, which the audit log has; raise if they were removed meanwhile."""
        with self._turn:
            if self._closed:
                raise RefusedError(503)
            self._decide()
            batch = None
            try:
                with self._writing() as connection:
                    transaction = Transaction(connection, self.register, by)
                    if by != SERVER and by not in connection.execute(sa.select(curators.c.name)).scalars().all():
                        raise RefusedError(401)  # noqa: TRY301  it ends the transaction
                    result = job(transaction, *args, **named)
                    if transaction.written or transaction.epochs:
                        self._doubt = True
                        batch = self.register.prepare(transaction.written, transaction.epochs)
                if batch is not None and transaction.written:
                    self.register.settle(batch, transaction.written)
                self._doubt = False
            except Exception:  # it is raised again, unless the change is in the database after all
                if batch is None or not self._came(batch):
                    raise
            if transaction.scrub and self._emptying is None:
                self._empty_log()
            return result

    @contextmanager
    def _writing(self) -> Iterator[sa.Connection]:
        """Give the connection that writes, in a transaction that commits at the end."""
        with self._writer.begin() as connection:
            begin(connection, writes=True)
            yield connection

    def _empty_log(self) -> None:
        """Empty the write-ahead log of SQLite, which holds answers that are gone; later if a reader prevents it."""
        with self._turn:
            self._emptying, self.leftovers = None, self.engine.dialect.name != "sqlite"
            if self._closed or self.leftovers:
                return
            busy = 1
            with suppress(sqlite3.Error, sa.exc.SQLAlchemyError), closing(self.engine.raw_connection()) as raw:
                cursor = raw.cursor()
                cursor.execute("PRAGMA busy_timeout=50")
                (busy, *_) = cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
                cursor.execute(f"PRAGMA busy_timeout={1000 * PATIENCE}")
            if busy:
                self._emptying = threading.Timer(0.2, self._empty_log)  # seconds
                self._emptying.daemon = True
                self._emptying.start()

    # --- A commit of which it is not known whether it happened

    def _came(self, batch: int) -> bool:
        """Say whether a transaction whose commit failed is in the database after all."""
        with suppress(Exception):  # it stays in doubt then, and is decided before anything else is done or shown
            return self._decide().get(batch, False)
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
        self._doubt = False
        return came

    def _is_there(self, connection: sa.Connection, key: Key, mac: bytes) -> bool:
        found = Transaction(connection, self.register).row(*key)
        return found is not None and self.register.sign_row(key[0], found.values()) == mac
