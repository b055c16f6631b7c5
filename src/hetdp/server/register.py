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

A crash. A change is written here, and is on disk, before the database commits it; until that is known to have happened
both the MAC before and the one after are believed. So after a crash the last transaction before it, and no other, could
be undone unnoticed until its rows are written again or a wave is closed.

Also here is which wave is being read (`opened`), so that nobody is told that they have withdrawn from it, and the
number that was drawn for it. A number is written down here before the database sees it, and a wave has one number:
whoever makes the database fail afterwards gets the same number again and not a second draw.
"""

from __future__ import annotations

import hmac
import os
import secrets
import sqlite3
import stat
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
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
        if key in under_way:
            return hmac.compare_digest(under_way[key][1], mac)
        found = self._run(lambda connection: connection.execute(_ONE, key).fetchone())
        return found is not None and self._fits(found, mac)

    def vouch_people(self, study: str, rows: Iterable[Sequence[Any]], under_way: Changes, *, everybody: bool) -> None:
        """Raise unless people of a study, or all of them, are as this server wrote them last.

        It is the writer that asks, so what was in doubt after a crash is decided by the rows that are there.
        """
        kind = "person"
        known: dict[str, tuple[bytes | None, bytes | None]]
        known = {row[0]: row[1:] for row in self._run(lambda c: c.execute(_ALL, (kind, study)).fetchall())}
        known |= {row: (mac, None) for (of, row), (here, mac) in under_way.items() if (of, here) == (kind, study)}
        doubtful: list[tuple[Key, bool]] = []
        for row in rows:
            mac, found = self.sign(kind, *row), known.pop(row[0], None)
            if found is None or not self._fits(found, mac):
                raise ChangedError
            if found[1] is not None:
                doubtful.append(((kind, row[0]), hmac.compare_digest(found[1], mac)))
        if everybody and any(mac is not None for mac, _ in known.values()):  # one in doubt need not have come
            raise ChangedError
        for step, committed in ((_COMMITTED, True), (_UNDONE, False)):
            keys = [key for key, came in doubtful if came is committed]
            if keys:
                self._run(partial(_each, f"{step} kind = ? AND id = ?", keys), write=True)

    def knows(self, kind: str, row: str) -> bool:
        """Say whether there is such a row."""
        return self._run(lambda connection: connection.execute(_ONE, (kind, row)).fetchone()) is not None

    def study_of(self, person: str) -> str | None:
        """Return the study of a person."""
        query = "SELECT study FROM vouched WHERE kind = 'person' AND id = ?"
        found = self._run(lambda connection: connection.execute(query, (person,)).fetchone())
        return None if found is None else str(found[0])

    @staticmethod
    def _fits(found: tuple[bytes | None, bytes | None], mac: bytes) -> bool:
        return any(known is not None and hmac.compare_digest(known, mac) for known in found)

    # --- What is written; by the one writer of the database alone

    def prepare(self, changes: Changes) -> int:
        """Write down the MACs of a transaction, on disk, before it commits; the MACs before it are still believed.

        Return a number by which `settle` knows the transaction.
        """
        batch = secrets.randbits(62)
        rows = [(kind, row, study, mac, batch) for (kind, row), (study, mac) in changes.items()]
        self._run(lambda connection: connection.executemany(_COMING, rows), write=True, sync=True)
        return batch

    def settle(self, batch: int) -> None:
        """Believe the MACs of a transaction alone, once it is committed.

        This is on disk with the next change; if the disk is full, the MACs before it go on being believed too.
        """
        with suppress(RefusedError):
            self._run(lambda connection: connection.execute(f"{_COMMITTED} batch = ?", (batch,)), write=True)

    def adopt(self, rows: Iterable[tuple[str, str, Sequence[Any]]]) -> None:
        """Believe rows (kind, study, row) as the database has them: at an upgrade, or because the operator says so."""
        found = [(kind, row[0], study, self.sign(kind, *row)) for kind, study, row in rows]
        self._run(lambda connection: connection.executemany(_ADOPTED, found), write=True, sync=True)

    def forget(self) -> None:
        """Forget which rows there are; the waves that were read stay."""
        self._run(lambda connection: connection.execute("DELETE FROM vouched"), write=True, sync=True)

    # --- Waves

    def opened(self, study: str) -> bool:
        """Say whether answers of a study are being read."""
        query = "SELECT 1 FROM waves WHERE study = ? AND NOT done"
        return self._run(lambda connection: connection.execute(query, (study,)).fetchone()) is not None

    def open(self, study: str, wave: int, release: str) -> None:
        """Write down that the answers of a wave are going to be read for a release; raise if it has a number."""
        known = self.number(study, wave)
        if known is not None or self._done(study, wave):
            raise RefusedError(409, "drawn", "The number of this wave was drawn before; bring the newest ledger back.")
        row = (study, wave, release)
        begin = "INSERT OR REPLACE INTO waves (study, wave, release) VALUES (?, ?, ?)"
        self._run(lambda connection: connection.execute(begin, row), write=True, sync=True)

    def number(self, study: str, wave: int) -> tuple[str, float] | None:
        """Return the release and the number that was drawn for a wave, if it was."""
        query = "SELECT release, number FROM waves WHERE study = ? AND wave = ? AND number IS NOT NULL"
        found = self._run(lambda connection: connection.execute(query, (study, wave)).fetchone())
        return None if found is None else (found[0], float.fromhex(found[1]))

    def keep(self, study: str, wave: int, release: str, number: float) -> None:
        """Write down the number that was drawn for a wave, before anybody sees it."""
        query = "UPDATE waves SET number = ? WHERE study = ? AND wave = ? AND release = ? AND number IS NULL"
        row = (number.hex(), study, wave, release)
        done = self._run(lambda connection: connection.execute(query, row).rowcount, write=True, sync=True)
        if done != 1:
            raise ChangedError

    def leave(self, study: str) -> bool:
        """Give up reading a study's answers if nothing was drawn; return whether nobody reads them now."""
        query = "DELETE FROM waves WHERE study = ? AND number IS NULL AND NOT done"
        self._run(lambda connection: connection.execute(query, (study,)), write=True, sync=True)
        return not self.opened(study)

    def finish(self, study: str, wave: int) -> None:
        """Write down that the result of a wave is stored."""
        query = "UPDATE waves SET done = 1 WHERE study = ? AND wave = ?"
        self._run(lambda connection: connection.execute(query, (study, wave)), write=True, sync=True)

    def _done(self, study: str, wave: int) -> bool:
        query = "SELECT 1 FROM waves WHERE study = ? AND wave = ? AND done"
        return self._run(lambda connection: connection.execute(query, (study, wave)).fetchone()) is not None

    # --- The file

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


def _each(step: str, keys: list[Key], connection: sqlite3.Connection) -> None:
    connection.executemany(step, keys)


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


_ONE = "SELECT mac, coming FROM vouched WHERE kind = ? AND id = ?"
_ALL = "SELECT id, mac, coming FROM vouched WHERE kind = ? AND study = ?"
_COMING = (
    "INSERT INTO vouched (kind, id, study, coming, batch) VALUES (?, ?, ?, ?, ?) "
    "ON CONFLICT (kind, id) DO UPDATE SET coming = excluded.coming, batch = excluded.batch"
)
_COMMITTED = "UPDATE vouched SET mac = coming, coming = NULL, batch = NULL WHERE batch IS NOT NULL AND"
_UNDONE = "UPDATE vouched SET coming = NULL, batch = NULL WHERE"
_ADOPTED = "INSERT OR REPLACE INTO vouched (kind, id, study, mac) VALUES (?, ?, ?, ?)"
