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
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .guard import RefusedError

if TYPE_CHECKING:
    from .access import Vault

# The kind of a row (study, person, import) and its id.
Key = tuple[str, str]
# Of rows that were written: their study and their MAC.
Changes = Mapping[Key, tuple[str, bytes]]

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
_TIMEOUT = 10.0
_COMMITTED = "UPDATE vouched SET mac = coming, coming = NULL, batch = NULL WHERE batch = ?"
_UNDONE = "UPDATE vouched SET coming = NULL, batch = NULL WHERE batch = ?"
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

    def create(self) -> None:
        """Make the register if there is none yet."""
        with suppress(OSError):
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))
        private(self.path)
        with self._connected() as file:
            file.executescript(_TABLES)

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            if self._open is not None:
                self._open.close()
                self._open = None

    # --- What is believed

    def sign(self, *cells: Any) -> bytes:
        """Return the MAC of the cells of a row in their order, and of what kind of row it is.

        Cells are texts, bytes, numbers or null, each of which `repr` writes in one way and as no other.
        """
        return hmac.digest(self._key, repr(cells).encode("utf-8", "surrogatepass"), "sha256")

    def vouches(self, kind: str, row: Sequence[Any], under_way: Changes) -> bool:
        """Say whether a row, its id first, is the one that this server wrote last.

        `under_way` is what a transaction has written.
        """
        key, mac = (kind, row[0]), self.sign(kind, *row)
        known = under_way[key][1] if key in under_way else self.mac(*key)
        return known is not None and hmac.compare_digest(known, mac)

    def vouch_people(self, study: str, rows: Iterable[Sequence[Any]], under_way: Changes, *, everybody: bool) -> None:
        """Raise unless people of a study, or all of them, are as this server wrote them last."""
        query = "SELECT id, mac FROM vouched WHERE kind = 'person' AND study = ? AND mac IS NOT NULL"
        known = dict(self._rows(query, study))
        known |= {row: mac for (kind, row), (here, mac) in under_way.items() if (kind, here) == ("person", study)}
        for row in rows:
            mac = known.pop(row[0], None)
            if mac is None or not hmac.compare_digest(mac, self.sign("person", *row)):
                raise ChangedError
        if everybody and known:
            raise ChangedError

    def study_of(self, person: str) -> str | None:
        """Return the study of a person."""
        found: str | None = self._cell("SELECT study FROM vouched WHERE kind = 'person' AND id = ?", person)
        return found

    def mac(self, kind: str, row: str) -> bytes | None:
        """Return the MAC of a row as this server wrote it last, if there is such a row."""
        found: bytes | None = self._cell("SELECT mac FROM vouched WHERE kind = ? AND id = ?", kind, row)
        return found

    # --- What is written; by the one server of the database alone

    def prepare(self, changes: Changes) -> int:
        """Write down the MACs of a transaction, on disk, before it commits; the MACs before it are still believed.

        Return a number by which `settle` knows the transaction.
        """
        batch = secrets.randbits(62)
        query = (
            "INSERT INTO vouched (kind, id, study, coming, batch) VALUES (?, ?, ?, ?, ?) "
            "ON CONFLICT (kind, id) DO UPDATE SET coming = excluded.coming, batch = excluded.batch"
        )
        with self._connected() as file:
            file.executemany(query, [(*key, study, mac, batch) for key, (study, mac) in changes.items()])
        return batch

    def settle(self, batch: int, rows: int) -> None:
        """Believe the MACs of a transaction of so many rows that is committed; on disk when this returns."""
        if self._write(_COMMITTED, batch) != rows:
            raise RefusedError(503, "register", "The register of this server was changed by somebody else; try again.")

    def in_doubt(self) -> dict[int, dict[Key, bytes]]:
        """Return the transactions of which it is not known whether they were committed: their rows and MACs."""
        found: dict[int, dict[Key, bytes]] = {}
        for batch, kind, row, mac in self._rows("SELECT batch, kind, id, coming FROM vouched WHERE batch IS NOT NULL"):
            found.setdefault(batch, {})[kind, row] = mac
        return found

    def decide(self, came: Mapping[int, bool]) -> None:
        """Say of each transaction that is in doubt whether it was committed, all of it or nothing."""
        with self._connected() as file:
            for batch, committed in came.items():
                file.execute(_COMMITTED if committed else _UNDONE, (batch,))
            file.execute("DELETE FROM vouched WHERE mac IS NULL AND batch IS NULL")  # they never came

    def adopt(self, rows: Iterable[tuple[str, str, Sequence[Any]]]) -> None:
        """Believe these rows (kind, study, row) and no others, because the operator says so; waves stay as they are."""
        found = [(kind, row[0], study, self.sign(kind, *row)) for kind, study, row in rows]
        with self._connected() as file:
            file.execute("DELETE FROM vouched")
            file.executemany("INSERT INTO vouched (kind, id, study, mac) VALUES (?, ?, ?, ?)", found)

    # --- Sessions

    def epoch(self, person: str | None) -> int:
        """Return how often the sessions of a person were ended; a session belongs to an epoch."""
        return self._cell("SELECT epoch FROM epochs WHERE person = ?", person) or 0

    def end_sessions(self, person: str, epoch: int) -> None:
        """End the sessions of a person that belong to an earlier epoch, whoever puts them back."""
        query = (
            "INSERT INTO epochs (person, epoch) VALUES (?, ?) "
            "ON CONFLICT (person) DO UPDATE SET epoch = max(epoch, excluded.epoch)"
        )
        self._write(query, person, epoch)

    # --- Waves

    def opened(self, study: str, wave: int = 0) -> bool:
        """Say whether answers of a study are being read, for this wave or a later one."""
        query = "SELECT 1 FROM waves WHERE study = ? AND wave >= ? AND NOT done"
        return self._cell(query, study, wave) is not None

    def open(self, study: str, wave: int, release: str, uses: Mapping[str, int]) -> None:
        """Write down that answers are going to be read, for which release, and what it uses of whom; raise if drawn."""
        query = (
            "INSERT INTO waves (study, wave, release) VALUES (?, ?, ?) "
            "ON CONFLICT (study, wave) DO UPDATE SET release = excluded.release WHERE number IS NULL AND NOT done"
        )
        rows = [(study, wave, person, units) for person, units in uses.items()]
        with self._connected() as file:
            if file.execute(query, (study, wave, release)).rowcount != 1:
                why = "The number of this wave was drawn before; bring the newest ledger back."
                raise RefusedError(409, "drawn", why)
            file.execute("DELETE FROM uses WHERE study = ? AND wave = ?", (study, wave))
            file.executemany("INSERT INTO uses (study, wave, person, units) VALUES (?, ?, ?, ?)", rows)

    def used(self, study: str, wave: int) -> dict[str, int]:
        """Return what the waves before this one have used of each person, in the ledger's units."""
        found = Counter[str]()
        for person, units in self._rows("SELECT person, units FROM uses WHERE study = ? AND wave < ?", study, wave):
            found[person] += units  # in Python's integers: what is public has no limit
        return dict(found)

    def number(self, study: str, wave: int) -> tuple[str, float] | None:
        """Return the release and the number that was drawn for a wave, if it was."""
        query = "SELECT release, number FROM waves WHERE study = ? AND wave = ? AND number IS NOT NULL"
        return next(((release, float.fromhex(number)) for release, number in self._rows(query, study, wave)), None)

    def keep(self, study: str, wave: int, release: str, number: float) -> None:
        """Write down the number that was drawn for a wave, before anybody sees it."""
        query = (
            "UPDATE waves SET number = ? WHERE study = ? AND wave = ? AND release = ? AND number IS NULL AND NOT done"
        )
        if self._write(query, number.hex(), study, wave, release) != 1:
            raise ChangedError

    def leave(self, study: str) -> bool:
        """Give up reading a study's answers if nothing was drawn; return whether nobody reads them now."""
        undrawn = "(SELECT wave FROM waves WHERE study = ? AND number IS NULL AND NOT done)"
        with self._connected() as file:
            for table in ("uses", "waves"):  # in this order: waves say what is undrawn
                file.execute(f"DELETE FROM {table} WHERE study = ? AND wave IN {undrawn}", (study, study))  # noqa: S608
        return not self.opened(study)

    def finish(self, study: str, wave: int) -> None:
        """Write down that the results of all waves before this one are stored."""
        self._write("UPDATE waves SET done = 1 WHERE study = ? AND wave < ? AND NOT done", study, wave)

    # --- The file

    def _rows(self, query: str, *cells: Any) -> list[Any]:
        with self._connected() as file:
            return file.execute(query, cells).fetchall()

    def _cell(self, query: str, *cells: Any) -> Any:
        """Return the one cell that a query finds, or None."""
        return next((row[0] for row in self._rows(query, *cells)), None)

    def _write(self, query: str, *cells: Any) -> int:
        """Carry out one change; return how many rows it changed."""
        with self._connected() as file:
            return file.execute(query, cells).rowcount

    @contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        """Give the open file; what is changed in it is one transaction, which is on disk at the end."""
        with self._lock:
            try:
                if self._open is None:
                    address = f"{self.path.resolve().as_uri()}?mode=rw"  # never a new and empty one
                    file = sqlite3.connect(
                        address, uri=True, timeout=_TIMEOUT, isolation_level="IMMEDIATE", check_same_thread=False
                    )
                    file.execute("PRAGMA journal_mode = WAL")
                    file.execute("PRAGMA synchronous = FULL")
                    self._open = file
                with self._open:  # commits, or rolls back
                    yield self._open
            except sqlite3.Error:
                why = "The register of this server cannot be read or written now; try again."
                raise RefusedError(503, "register", why) from None


def private(name: str | Path) -> None:
    """Make an SQLite file readable by its owner only, with its log and index; later ones get the mode of the file."""
    for path in (Path(f"{name}{end}") for end in ("", "-wal", "-shm")):
        with suppress(FileNotFoundError):
            if path.stat().st_mode & 0o077:
                path.chmod(0o600)
