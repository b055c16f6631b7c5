"""An open ledger: its database, what is read from it checked against the chain, and the head outside of it.

A ledger is opened only if it can be trusted, written only under a lock, and on disk after a transaction. A writer takes
the lock before it reads (SQLite's own, see `sqlite_engine`; on PostgreSQL the one row of `hetdp_ledger`), so what it
decides from cannot change before it commits. Statements are plain SQL, the same for both databases.

Every transaction checks the chain of the events that are new to it, and that balances are what the charges add up to.
`people.replayed` and `history.verify` check the rest.

Claim. Whatever left a ledger is covered by its head file, and the head file never leads the database.

Argument. It is written after a commit that is on disk, and it is on disk itself (`Store.flush_head`) before a result is
handed out or the history shown, whoever stored it, and before an enrolment is confirmed. A crash in between leaves it
behind by events of which nothing was shown: an old copy without such a charge has nothing to make good. Writers hold a
lock on it and never move it backwards. A reader looks at it *before* it takes its snapshot of the database, so it
cannot see a head that the snapshot does not have yet.
"""

from __future__ import annotations

import itertools
import os
import re
import secrets
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import sqlalchemy as sa
from sqlalchemy import Connection

from hetdp.errors import HetdpError, InputError, LedgerError
from hetdp.files import sqlite_engine, sync_file, sync_folder

from . import tables
from .books import GENESIS, Event, Head, State, checked, next_event, refused
from .tables import SCHEMA

T = TypeVar("T")
PathName = str | os.PathLike[str]

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
    "there is no ledger in this database; make one with: hetdp ledger init": ("42P01", "SQLITE_ERROR"),
    "a ledger is append-only": ("P0001",),
    "the server has ended the connection; try again": ("57P",),
    "the server cannot be reached": ("08",),
}
"""What is wrong, by the codes of SQLite and PostgreSQL, or how they begin."""

_BEGIN = {
    ("sqlite", False): ("BEGIN",),
    ("sqlite", True): ("BEGIN IMMEDIATE",),
    ("postgresql", False): ("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY",),
    ("postgresql", True): ("SET LOCAL synchronous_commit TO on", f"SET LOCAL lock_timeout TO '{PATIENCE}s'"),
}
"""How a transaction begins, by database and whether it writes."""


class Store:
    """An open ledger: its database, its state after the events that were read so far, the head outside.

    Attributes
    ----------
    name
        How messages call it: the file or address, without a password.
    head_file
        Where the head is kept outside of the database; None if nowhere.
    """

    def __init__(self, where: PathName, head_file: PathName | None, *, new: bool = False) -> None:
        text = os.fspath(where)
        path = None if text.startswith(("postgresql:", "postgres:", "postgresql+")) else Path(text)
        self.state, self.lock = State(), threading.RLock()
        self.head_file = None if head_file is None else Path(head_file)
        if path is not None:
            if "://" in text:
                raise InputError(f"a ledger is a file or a postgresql:// address (got {text.partition('://')[0]}://…)")
            # A link to the ledger is the same ledger, with the same head.
            self.head_file = self.head_file or Path(f"{path.resolve()}.head")
            check_file_system(path)
            if new and path.exists():
                raise InputError(f"{path} exists already; open it, as hetdp.Ledger(…) does, or choose another name")
        if new and self.head_file is not None and self.head_file.exists():
            raise LedgerError(
                f"{self.head_file} says that a ledger was here; starting a new one would forget what it has charged: "
                "bring it back, or choose another name"
            )
        if path is not None:
            (_make_file if new else _check_file)(path)
            self.engine, self.name = sqlite_engine(path, patience=PATIENCE), str(path)
            return
        self.engine = _postgres(text)
        self.name = self.engine.url.set(password=None).render_as_string().replace("+psycopg", "")
        if self.transact(lambda connection: run(connection, "SHOW fsync").scalar()) != "on":
            self.close()
            raise LedgerError(f"{self.name} runs with fsync = off and would forget charges; switch it on")

    @property
    def label(self) -> str:
        """How a report calls it: the file or database without folders, user and host, which are nobody's business."""
        return Path(self.name.partition("?")[0]).name

    def check(self, expect_head: str | None) -> None:
        """Raise unless this ledger can be trusted; then nothing stays open."""
        try:
            missing = self.head_file is not None and read_head(self.head_file) is None and expect_head is None
            if self.read(lambda _, state: state.head.seq, expect_head) > 1 and missing:
                raise LedgerError(  # noqa: TRY301  the handler only closes
                    f"{self.head_file} is missing, so an old copy of the ledger could not be noticed; bring it back, "
                    "or open the ledger with a head that you wrote down: --expect-head NUMBER:HASH"
                )
            self.flush_head()
        except BaseException:  # whatever it is, no connection stays open to a ledger that is refused
            self.close()
            raise

    def create(self) -> None:
        """Make the tables of a new, empty ledger, and its first event."""
        event = next_event(GENESIS, "open", {"ledger": secrets.token_hex(16)})

        def work(connection: Connection) -> None:
            tables.create(connection, self.name, event.facts["ledger"], GENESIS.hash)
            write(connection, State(), event)

        self.transact(work, writes=True)

    def upgrade(self) -> None:
        """Bring a ledger that an older hetdp wrote to the schema of this one."""

        def work(connection: Connection) -> None:
            tables.upgrade(connection, stamp(connection, lock=True)[0], self.name)

        with readable(self.name):
            self.transact(work, writes=True)

    def transact(self, work: Callable[[sa.Connection], T], *, writes: bool = False) -> T:
        """Return what a function finds or does in one transaction; it is on disk when this returns.

        One that only reads sees one moment of the ledger.
        """
        try:
            with self.engine.begin() as connection:
                for statement in _BEGIN[connection.dialect.name, writes]:
                    run(connection, statement)
                return work(connection)
        except sa.exc.DBAPIError as error:
            cause = _cause(error.orig)
        except (sa.exc.SQLAlchemyError, sqlite3.Error) as error:
            cause = _cause(error)
        # Not raised above: an error of the database may quote what it was given, and must not be in the chain of ours.
        raise LedgerError(f"{self.name} cannot be used: {cause}")

    def read(self, find: Callable[[Connection, State], T], expect_head: str | None = None) -> T:
        """Return what a function finds in one moment of the ledger. It reads and no more: its errors mean damage."""
        expected = None if expect_head is None else Head.parse(expect_head)
        with self.lock:
            outside = [read_head(self.head_file), expected]  # before the snapshot, see above

            def work(connection: Connection) -> T:
                self.state = self._caught_up(connection, outside)
                return find(connection, self.state)

            with readable(self.name):
                return self.transact(work)

    def change(self, make: Callable[[Connection, State], tuple[State, T]]) -> T:
        """Carry out one change under the ledger's lock; it is on disk when this returns.

        The head outside is written too; call `flush_head` before anything of the change is shown.
        """
        with self.lock:
            outside = read_head(self.head_file)

            def work(connection: Connection) -> tuple[State, T]:
                with readable(self.name):
                    state = self._caught_up(connection, [outside], lock=True)
                return make(connection, state)

            self.state, made = self.transact(work, writes=True)
            write_head(self.head_file, self.state.head)
            return made

    def flush_head(self) -> None:
        """Flush the head file. Call this before anything that was read or written is shown."""
        with self.lock:
            write_head(self.head_file, self.state.head, sync=True)

    def close(self) -> None:
        """Close all connections."""
        with self.lock:
            self.engine.dispose()

    def _caught_up(self, connection: Connection, outside: Iterable[Head | None], *, lock: bool = False) -> State:
        """Return the state with all events that it does not have yet; raise unless everything agrees.

        Checked are: the schema, the chain of the new events, that they add up, that no head known from elsewhere is
        missing, that the table of cohorts says what the state says, and that no trigger of somebody else writes to it.
        """
        version, head = stamp(connection, lock=lock)
        if version != SCHEMA:
            newer, older = "update hetdp", f"make a copy of it and run: hetdp ledger upgrade {self.name}"
            which, remedy = ("newer", newer) if version > SCHEMA else ("older", older)
            raise LedgerError(f"{self.name} has the {which} schema {version} (this hetdp writes {SCHEMA}); {remedy}")
        state = self.state
        for known in {known for known in (state.head, *outside) if known is not None}:
            _check_known(connection, known, head, self.name)
        for event in checked(events(connection, "seq > ?", (state.head.seq,)), state.head, self.name):
            state = state.after(event)
        if state.head != head:
            raise refused(f"{self.name} says that event {head.seq} is its last, and it is not")
        # SQLite has a number that changes when another connection has written; what this one writes follows the state.
        written = run(connection, "PRAGMA data_version").scalar() if connection.dialect.name == "sqlite" else None
        if written is None or connection.info.get("hetdp_written") != written:
            check_cohorts(connection, state, self.name)
            connection.info["hetdp_written"] = written
        return state


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


def insert(connection: Connection, columns: str, cells: Sequence[Any], conflict: str = "") -> None:
    """Insert rows, many in one statement: one by one they would take longer than the rest of a charge.

    `columns` is a table and its columns, as SQL writes them, and `cells` are the rows one after the other. Raise if one
    was not written, as when somebody's trigger kept it from being.
    """
    width = columns.count(",") + 1
    most = _MOST_CELLS // width * width
    for start in range(0, len(cells), most):
        some = cells[start : start + most]
        rows = len(some) // width
        values = ", ".join([f"({', '.join('?' * width)})"] * rows)
        statement = f"INSERT INTO {columns} VALUES {values} {conflict}"  # noqa: S608  our own names
        if run(connection, statement, some).rowcount != rows:
            raise LedgerError("the ledger could not write all balances and people; is there a trigger on its tables?")


@contextmanager
def readable(name: str) -> Iterator[None]:
    """Turn what a damaged entry brings about into one sentence: SQLite keeps a cell of any type in any column."""
    try:
        yield
    except HetdpError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError):
        raise refused(f"{name} is damaged: it has an entry that no ledger writes") from None


# --- Events


def events(connection: Connection, where: str = "seq > ?", cells: Sequence[Any] = (0,)) -> Iterator[Event]:
    """Yield the events that a condition picks, in order."""
    query = f"SELECT seq, kind, release, at, body, hash FROM hetdp_event WHERE {where} ORDER BY seq"  # noqa: S608  ours
    return (Event(*row) for row in run(connection, query, cells))


def find(connection: Connection, release_id: str, kind: str) -> Event | None:
    """Return the charge or the result of a release, if there is one; raise if it was changed behind our back."""
    with readable("the ledger"):
        for event in events(connection, "release = ? AND kind = ?", (release_id, kind)):
            return next(checked([event], _head_at(connection, event.seq - 1), "the ledger"))
    return None


def _head_at(connection: Connection, seq: int) -> Head:
    """Return the head as of an event; where there is no such event, the head of an empty ledger."""
    row = run(connection, "SELECT seq, hash FROM hetdp_event WHERE seq = ?", (seq,)).first()
    return GENESIS if row is None else Head(*row)


def write(connection: Connection, before: State, event: Event, moved: Mapping[str, int] | None = None) -> State:
    """Write one event, who moves to which cohort by it and what it does to the cohorts; return the state after it.

    The table of cohorts must say what the state before says. People come first, see `tables`, and in the order of
    their ids, which suits the tree of the index.
    """
    people = ((person, event.seq, cohort) for person, cohort in sorted((moved or {}).items()))
    insert(connection, "hetdp_member (person, event, cohort)", [*itertools.chain.from_iterable(people)])
    state, known = before.after(event), len(before.table)
    differs = np.ones(len(state.table), bool)
    differs[:known] = (state.table[:known] != before.table).any(axis=1)
    changes = "ON CONFLICT (cohort) DO UPDATE SET spent = excluded.spent, people = excluded.people"
    cohorts = "hetdp_cohort (cohort, asked, budget, spent, people)"
    insert(connection, cohorts, state.table[differs].ravel().tolist(), changes)
    cells = (event.seq, event.kind, event.release, event.at, event.body, event.hash)
    insert(connection, "hetdp_event (seq, kind, release, at, body, hash)", cells)
    run(connection, "UPDATE hetdp_ledger SET seq = ?, hash = ?", (event.seq, event.hash))
    return state


def check_cohorts(connection: Connection, state: State, name: str) -> None:
    """Raise unless the table of cohorts says what the state says, and nothing but a ledger writes to it."""
    _, foreign = wrong_triggers(connection)
    if foreign:
        raise refused(f"{name} has a trigger that is not its own, {foreign[0]!r}; take it away")
    rows = run(connection, "SELECT cohort, asked, budget, spent, people FROM hetdp_cohort ORDER BY cohort")
    if [*map(list, rows)] != state.table.tolist():
        raise refused(f"the balances in {name} are not what its charges add up to")


def wrong_triggers(connection: Connection) -> tuple[list[str], list[str]]:
    """Return the triggers that should be there and are not, and those on tables of a file that are not the ledger's.

    On a server others may have triggers for their own reasons.
    """
    names = tables.TRIGGERS[connection.dialect.name]
    if connection.dialect.name == "sqlite":
        query = "SELECT name, lower(tbl_name) FROM sqlite_master WHERE type = 'trigger' ORDER BY name"
        there = {name: table in tables.TABLES for name, table in run(connection, query)}
    else:
        ours = ", ".join(f"'{table}'::regclass" for table in tables.TABLES)  # those in the search path
        query = f"SELECT tgname FROM pg_trigger WHERE tgenabled <> 'D' AND tgrelid IN ({ours})"  # noqa: S608  our own names
        there = {name: False for (name,) in run(connection, query)}
    missing = [name for name in names if name not in there]
    return missing, [name for name, foreign in there.items() if foreign and name not in names]


def stamp(connection: Connection, *, lock: bool) -> tuple[int, Head]:
    """Return the version of the schema and the head that the database says; on PostgreSQL this can take the lock."""
    locked = "FOR UPDATE" if lock and connection.dialect.name == "postgresql" else ""
    found = run(connection, f"SELECT version, seq, hash FROM hetdp_ledger {locked}").one()  # noqa: S608  ours
    return found.version, Head(found.seq, found.hash)


def _check_known(connection: Connection, known: Head, head: Head, name: str) -> None:
    """Raise unless a head that was seen before is in this ledger."""
    if known.seq > head.seq:
        raise LedgerError(
            f"{name} is an old copy: it ends at event {head.seq}, and event {known.seq} has been seen; "
            "releasing from it would spend the same budgets again: bring back the newest copy"
        )
    found = _head_at(connection, known.seq)
    if found.seq != known.seq or not found.hash.startswith(known.hash):  # one that a person wrote down may be cut short
        raise refused(
            f"{name} has another event {known.seq} than the head that was kept outside of it (in its .head file, or "
            "given by --expect-head): it is not the ledger that charged the last releases"
        )


# --- Opening


def _make_file(path: Path) -> None:
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except OSError as error:
        raise InputError(f"{path} cannot be made: {error.strerror}") from None


def _check_file(path: Path) -> None:
    if not path.exists():
        raise LedgerError(f"{path} does not exist; make a ledger with: hetdp ledger init {path}")
    if not path.is_file():
        raise LedgerError(f"{path} is not a file; a ledger is one file or a postgresql:// address")
    if not os.access(path, os.R_OK | os.W_OK) or not os.access(path.resolve().parent, os.W_OK):
        raise LedgerError(f"{path} cannot be used: it or its folder is read-only for this user")
    if path.stat().st_size < 512:  # no database is so small; an empty file SQLite would make one of
        raise LedgerError(f"{path} cannot be used: the file is damaged or no ledger")


def _postgres(text: str) -> sa.Engine:
    try:
        # A connection that PostgreSQL has closed meanwhile, as when it restarts, is noticed before it is used.
        url = sa.make_url(text).set(drivername="postgresql+psycopg")
        return sa.create_engine(url, hide_parameters=True, pool_pre_ping=True)
    except ImportError:
        raise LedgerError(
            "a ledger in PostgreSQL needs psycopg; install it with: pip install 'hetdp[postgres]'"
        ) from None
    except (sa.exc.ArgumentError, ValueError):
        raise InputError("the address of the database cannot be read; write postgresql://user@host/name") from None


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
    mounted = re.findall("^[^ \n]* ([^ \n]+) ([^ \n]+)", mounts, re.MULTILINE)
    points = [(re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), point), kind) for point, kind in mounted]
    above = [(len(Path(point).parts), kind) for point, kind in points if path.is_relative_to(point)]
    return max(reversed(above), key=lambda found: found[0], default=(0, ""))[1]


# --- The head file


_BINARY = getattr(os, "O_BINARY", 0)  # Windows would write another line end
_LINE = re.compile(rb"hetdp-ledger-head ([0-9]{20}) ([0-9a-f]{64})\n")


def read_head(path: Path | None) -> Head | None:
    """Return the head in a file; None if there is no such file."""
    if path is None:
        return None
    try:
        with path.open("rb") as file:
            match = _LINE.fullmatch(file.read(256))
    except FileNotFoundError:
        return None
    except OSError:
        match = None
    if match is None:
        raise LedgerError(
            f"{path} is damaged, so an old copy of the ledger could not be noticed; if you have written down a head, "
            f"delete this file and run: hetdp ledger verify LEDGER --expect-head HEAD"
        )
    return Head(int(match[1]), match[2].decode())


def write_head(path: Path | None, head: Head, *, sync: bool = False) -> None:
    """Move the head file forward to this head, never backwards; with `sync` it is on disk when this returns.

    One writer at a time, on every system: the lock is a file beside it, so that reading never waits.
    """
    if path is None:
        return
    from filelock import FileLock

    try:
        with (
            FileLock(f"{path}.lock", mode=0o600),
            os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | _BINARY, 0o600), "r+b", buffering=0) as file,
        ):
            match = _LINE.fullmatch(file.read(256))
            if match is None or int(match[1]) < head.seq:
                file.seek(0)
                file.write(f"hetdp-ledger-head {head.seq:020d} {head.hash}\n".encode("ascii"))
            if sync or match is None:
                (sync_file if sys.platform == "darwin" else os.fsync)(file.fileno())  # there fsync is not enough
        if match is None:  # a new file: its name too must be on disk
            sync_folder(path.parent)
    except OSError as error:
        raise LedgerError(
            f"{path} cannot be written ({error.strerror}); the ledger keeps its head there: what it did last is in it, "
            "so repair this and do the same again"
        ) from None
