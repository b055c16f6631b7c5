"""The register: what the database must say, kept outside of it. It decides whether a row may be believed.

Somebody may be able to write to the database without having the vault's key or the files beside it. They could raise a
person's ε, put an older row back after the person lowered their ε or withdrew, let one person's session change another
person's row, or change the shares of a study. So the server writes down, in a small file of its own (SQLite), a MAC of
every row of a study, a person and an import as it wrote it last, and believes a row only if its MAC is the one here.

Claim. A row for which `vouches` is true is, cell by cell, the one that this server wrote last.

Argument. The MAC is keyed, covers the kind of row and every cell with its type, and each writing of a row has a
version of 128 fresh random bits. So an older row, a row of somebody else, or one with another cell has another MAC, and
nobody without the key can find a row with a given one. A row is compared when it is used, and what is used is that row:
it does not matter what the database says before, afterwards, or to another query.

A commit. A change is written here, and is on disk, before the database commits it, and is believed once that has
happened. If that is not known, after a crash or a lost connection, the writer looks at the rows and decides, once and
before it does anything else: the change was made, or it was not. Nobody was told that it was made. So the database can
choose which of the two it was, and no more.

Also here is which wave is being read (`opened`), so that nobody is told that they have withdrawn from it; how much it
used of each person, so that all waves of a study stay within ε also if a person lowers it in between; and the number
that was drawn for it. A number is written down here before the database sees it, and a wave has one number: whoever
makes the database fail afterwards gets the same number again and not a second draw.
"""

from __future__ import annotations

import hmac
import os
import secrets
import sqlite3
import stat
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from .errors import RefusedError

if TYPE_CHECKING:
    from .keys import Vault

T = TypeVar("T")
Key = tuple[str, str]
"""The kind of a row (study, person, import) and its id."""
Changes = Mapping[Key, tuple[str, bytes]]
"""Of rows that were written: their study and their MAC."""

_TABLES = """
CREATE TABLE IF NOT EXISTS vouched (
    kind TEXT NOT NULL, id TEXT NOT NULL, study TEXT NOT NULL, mac BLOB, coming BLOB, batch INTEGER,
    PRIMARY KEY (kind, id)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS vouched_of_study ON vouched (study, kind);
CREATE INDEX IF NOT EXISTS vouched_in_doubt ON vouched (batch) WHERE batch IS NOT NULL;
CREATE TABLE IF NOT EXISTS epochs (person TEXT PRIMARY KEY, epoch INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS uses (
    study TEXT NOT NULL, wave INTEGER NOT NULL, person TEXT NOT NULL, units INTEGER NOT NULL,
    PRIMARY KEY (study, person, wave)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS waves (
    study TEXT NOT NULL, wave INTEGER NOT NULL, release TEXT NOT NULL, number TEXT, done INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (study, wave)
) WITHOUT ROWID;
"""
_PATIENCE = 10.0
_CHANGED = (
    "The records of this study are not as this server left them: its database was changed from outside, or an older "
    "copy was put back. Nothing was released, and people can still withdraw. The operator can bring the newest copy "
    "back; otherwise this study cannot go on, and a new one can be made."
)


class ChangedError(RefusedError):
    """A row is not the one that this server wrote last."""

    def __init__(self) -> None:
        super().__init__(409, "changed", _CHANGED)


def new_version() -> str:
    """Return what tells one writing of a row from every other."""
    return secrets.token_hex(16)


class Register:
    """The MACs of all rows that may be believed, and the waves that were read."""

    def __init__(self, path: Path, vault: Vault) -> None:
        self.path = path
        self._key = vault.derived(b"hetdp register")
        self._lock = threading.RLock()
        self._open: sqlite3.Connection | None = None

    def exists(self) -> bool:
        """Say whether there is a register."""
        return self.path.exists()

    def create(self) -> None:
        """Make the register if there is none yet."""
        with suppress(OSError):
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))
        private(*(f"{self.path}{end}" for end in ("", "-wal", "-shm")))
        self._run(lambda connection: connection.executescript(_TABLES))

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            if self._open is not None:
                self._open.close()
                self._open = None

    # --- MACs

    def sign(self, *cells: Any) -> bytes:
        """Return the MAC of the cells of a row in their order, and of what kind of row it is.

        Cells are texts, bytes, numbers or null, each of which `repr` writes in one way and as no other.
        """
        return hmac.digest(self._key, repr(cells).encode("utf-8", "surrogatepass"), "sha256")

    # --- What is believed

    def vouches(self, kind: str, row: Sequence[Any], under_way: Changes) -> bool:
        """Say whether a row, its id first, is the one that this server wrote last.

        `under_way` is what a transaction has written.
        """
        key, mac = (kind, row[0]), self.sign(kind, *row)
        known = under_way[key][1] if key in under_way else self._one(_MAC, key)
        return known is not None and hmac.compare_digest(known, mac)

    def vouch_people(self, study: str, rows: Iterable[Sequence[Any]], under_way: Changes, *, everybody: bool) -> None:
        """Raise unless people of a study, or all of them, are as this server wrote them last."""
        known = dict(self._run(lambda connection: connection.execute(_PEOPLE, (study,)).fetchall()))
        known |= {row: mac for (kind, row), (here, mac) in under_way.items() if (kind, here) == ("person", study)}
        for row in rows:
            mac = known.pop(row[0], None)
            if mac is None or not hmac.compare_digest(mac, self.sign("person", *row)):
                raise ChangedError
        if everybody and known:
            raise ChangedError

    def knows(self, kind: str, row: str) -> bool:
        """Say whether there is such a row."""
        return self._one(_MAC, (kind, row)) is not None

    def study_of(self, person: str) -> str | None:
        """Return the study of a person."""
        found: str | None = self._one("SELECT study FROM vouched WHERE kind = 'person' AND id = ?", (person,))
        return found

    # --- What is written; by the one writer of the database alone

    def prepare(self, changes: Changes) -> int:
        """Write down the MACs of a transaction, on disk, before it commits; the MACs before it are still believed.

        Return a number by which `settle` knows the transaction.
        """
        batch = secrets.randbits(62)
        rows = [(kind, row, study, mac, batch) for (kind, row), (study, mac) in changes.items()]
        self._run(lambda connection: connection.executemany(_COMING, rows), write=True, sync=True)
        return batch

    def settle(self, batch: int, rows: int) -> None:
        """Believe the MACs of a transaction of so many rows that is committed; on disk when this returns."""
        done = self._run(lambda c: c.execute(_COMMITTED, (batch,)).rowcount, write=True, sync=True)
        if done != rows:
            raise RefusedError(503, "register", "The register of this server was changed by somebody else; try again.")

    def in_doubt(self) -> dict[int, dict[Key, bytes]]:
        """Return the transactions of which it is not known whether they were committed: their rows and MACs."""
        query = "SELECT batch, kind, id, coming FROM vouched WHERE batch IS NOT NULL"
        found: dict[int, dict[Key, bytes]] = {}
        for batch, kind, row, mac in self._run(lambda connection: connection.execute(query).fetchall()):
            found.setdefault(batch, {})[kind, row] = mac
        return found

    def decide(self, came: Mapping[int, bool]) -> None:
        """Say of each transaction that is in doubt whether it was committed, all of it or nothing."""

        def job(connection: sqlite3.Connection) -> None:
            for batch, committed in came.items():
                connection.execute(_COMMITTED if committed else _UNDONE, (batch,))
            connection.execute("DELETE FROM vouched WHERE mac IS NULL AND batch IS NULL")  # they never came

        self._run(job, write=True, sync=True)

    # --- Sessions

    def epoch(self, person: str | None) -> int:
        """Return how often the sessions of a person were ended; a session belongs to an epoch."""
        found: int | None = self._one("SELECT epoch FROM epochs WHERE person = ?", (person,))
        return found or 0

    def end_sessions(self, person: str, epoch: int) -> None:
        """End the sessions of a person that belong to an earlier epoch, whoever puts them back."""
        query = (
            "INSERT INTO epochs (person, epoch) VALUES (?, ?) "
            "ON CONFLICT (person) DO UPDATE SET epoch = max(epoch, excluded.epoch)"
        )
        self._run(lambda connection: connection.execute(query, (person, epoch)), write=True, sync=True)

    def adopt(self, rows: Iterable[tuple[str, str, Sequence[Any]]]) -> None:
        """Believe rows (kind, study, row) as the database has them: at an upgrade, or because the operator says so."""
        found = [(kind, row[0], study, self.sign(kind, *row)) for kind, study, row in rows]
        self._run(lambda connection: connection.executemany(_ADOPTED, found), write=True, sync=True)

    def forget(self) -> None:
        """Forget which rows there are; the waves that were read stay."""
        self._run(lambda connection: connection.execute("DELETE FROM vouched"), write=True, sync=True)

    # --- Waves

    def opened(self, study: str, wave: int = 0) -> bool:
        """Say whether answers of a study are being read, for this wave or a later one."""
        query = "SELECT 1 FROM waves WHERE study = ? AND wave >= ? AND NOT done"
        return self._one(query, (study, wave)) is not None

    def open(self, study: str, wave: int, release: str, uses: Mapping[str, int]) -> None:
        """Write down that answers are going to be read, for which release, and what it uses of whom; raise if drawn."""

        def job(connection: sqlite3.Connection) -> bool:
            if connection.execute(_OPEN, (study, wave, release)).rowcount != 1:
                return False
            rows = [(study, wave, person, units) for person, units in uses.items()]
            connection.execute("DELETE FROM uses WHERE study = ? AND wave = ?", (study, wave))
            connection.executemany("INSERT INTO uses (study, wave, person, units) VALUES (?, ?, ?, ?)", rows)
            return True

        if not self._run(job, write=True, sync=True):
            raise RefusedError(409, "drawn", "The number of this wave was drawn before; bring the newest ledger back.")

    def used(self, study: str, wave: int) -> dict[str, int]:
        """Return what the waves before this one have used of each person, in the ledger's units."""
        query, found = "SELECT person, units FROM uses WHERE study = ? AND wave < ?", Counter[str]()
        for person, units in self._run(lambda connection: connection.execute(query, (study, wave)).fetchall()):
            found[person] += units  # in Python's integers: what is public has no limit
        return dict(found)

    def number(self, study: str, wave: int) -> tuple[str, float] | None:
        """Return the release and the number that was drawn for a wave, if it was."""
        query = "SELECT release, number FROM waves WHERE study = ? AND wave = ? AND number IS NOT NULL"
        found = self._run(lambda connection: connection.execute(query, (study, wave)).fetchone())
        return None if found is None else (found[0], float.fromhex(found[1]))

    def keep(self, study: str, wave: int, release: str, number: float) -> None:
        """Write down the number that was drawn for a wave, before anybody sees it."""
        query = (
            "UPDATE waves SET number = ? WHERE study = ? AND wave = ? AND release = ? AND number IS NULL AND NOT done"
        )
        row = (number.hex(), study, wave, release)
        done = self._run(lambda connection: connection.execute(query, row).rowcount, write=True, sync=True)
        if done != 1:
            raise ChangedError

    def leave(self, study: str) -> bool:
        """Give up reading a study's answers if nothing was drawn; return whether nobody reads them now."""

        def job(connection: sqlite3.Connection) -> None:
            undrawn = "study = ? AND wave IN (SELECT wave FROM waves WHERE study = ? AND number IS NULL AND NOT done)"
            connection.execute(f"DELETE FROM uses WHERE {undrawn}", (study, study))  # noqa: S608  our own names
            connection.execute("DELETE FROM waves WHERE study = ? AND number IS NULL AND NOT done", (study,))

        self._run(job, write=True, sync=True)
        return not self.opened(study)

    def finish(self, study: str, wave: int) -> None:
        """Write down that the results of all waves before this one are stored."""
        query = "UPDATE waves SET done = 1 WHERE study = ? AND wave < ? AND NOT done"
        self._run(lambda connection: connection.execute(query, (study, wave)), write=True, sync=True)

    # --- The file

    def _one(self, query: str, cells: Sequence[Any]) -> Any:
        """Return the one cell that a query finds, or None."""
        found = self._run(lambda connection: connection.execute(query, cells).fetchone())
        return None if found is None else found[0]

    def _run(self, job: Callable[[sqlite3.Connection], T], *, write: bool = False, sync: bool = False) -> T:
        """Return what a job finds or does, in one transaction; with `sync` it is on disk when this returns."""
        with self._lock:
            try:
                connection = self._connected()
                if not write:
                    return job(connection)
                connection.execute(f"PRAGMA synchronous = {'FULL' if sync else 'NORMAL'}")
                with _transaction(connection):
                    return job(connection)
            except sqlite3.Error:
                pass
        raise RefusedError(503, "register", "The register of this server cannot be read or written now; try again.")

    def _connected(self) -> sqlite3.Connection:
        if self._open is None:
            address = f"{self.path.resolve().as_uri()}?mode=rw"  # never a new and empty one
            self._open = sqlite3.connect(
                address, uri=True, timeout=_PATIENCE, isolation_level=None, check_same_thread=False
            )
            self._open.execute("PRAGMA journal_mode = WAL")
        return self._open


def private(*names: str) -> None:
    """Have files readable by their owner alone; SQLite makes the log and the index of a database with its mode."""
    for path in map(Path, names):
        with suppress(FileNotFoundError):
            if stat.S_IMODE(path.stat().st_mode) & 0o077:
                path.chmod(0o600)


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:  # an interrupt too must not leave a transaction open
        with suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
        raise


_MAC = "SELECT mac FROM vouched WHERE kind = ? AND id = ?"
_PEOPLE = "SELECT id, mac FROM vouched WHERE kind = 'person' AND study = ? AND mac IS NOT NULL"
_OPEN = (
    "INSERT INTO waves (study, wave, release) VALUES (?, ?, ?) "
    "ON CONFLICT (study, wave) DO UPDATE SET release = excluded.release WHERE number IS NULL AND NOT done"
)
_COMING = (
    "INSERT INTO vouched (kind, id, study, coming, batch) VALUES (?, ?, ?, ?, ?) "
    "ON CONFLICT (kind, id) DO UPDATE SET coming = excluded.coming, batch = excluded.batch"
)
_COMMITTED = "UPDATE vouched SET mac = coming, coming = NULL, batch = NULL WHERE batch = ?"
_UNDONE = "UPDATE vouched SET coming = NULL, batch = NULL WHERE batch = ?"
_ADOPTED = "INSERT OR REPLACE INTO vouched (kind, id, study, mac) VALUES (?, ?, ?, ?)"
