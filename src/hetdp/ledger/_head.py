"""The head outside the file: how far the ledger had come, so that an old copy put back is noticed.

An old copy of a ledger has forgotten charges: using it would overspend. So the number and the hash of the last event
are also kept in a small file beside the database, `budgets.db.head`.

Claim. Whatever left a ledger is covered by its head file, and the head file never leads the database.

Argument. It is written after a commit that is on disk, and it is on disk itself (`Ledger.settle`) before a result is
handed out or the history shown, whoever stored it, and before an enrolment is confirmed. A crash in between leaves it
behind by events of which nothing was shown: an old copy without such a charge has nothing to make good. Writers hold a
lock on it and never move it backwards. A reader looks at it *before* it takes its snapshot of the database, so it
cannot see a head that the snapshot does not have yet.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from hetdp.errors import InputError

from ._errors import LedgerError

_LINE = re.compile(r"hetdp-ledger-head ([0-9]{20}) ([0-9a-f]{64})\n")
_SHORTEST = 16


@dataclass(frozen=True)
class Head:
    """The last event of a ledger: its number and its hash. Written `12:9f86…`."""

    seq: int
    hash: str

    def __str__(self) -> str:
        return f"{self.seq}:{self.hash}"

    @classmethod
    def parse(cls, text: str | Head) -> Head:
        """Return a head that a person wrote down; the first 16 digits of the hash are enough."""
        if isinstance(text, Head):
            return text
        match = re.fullmatch(rf"([0-9]{{1,18}}):([0-9a-f]{{{_SHORTEST},64}})", str(text).strip())
        if match is None:
            raise InputError(
                f"a head is written NUMBER:HASH, as `hetdp ledger verify` prints it (got {str(text)[:90]!r})"
            )
        return cls(int(match[1]), match[2])

    def agrees(self, other: Head) -> bool:
        """Say whether two heads are the same event; one hash may be cut short."""
        return self.seq == other.seq and (self.hash.startswith(other.hash) or other.hash.startswith(self.hash))


def read_head(path: Path | None) -> Head | None:
    """Return the head in a file; None if there is no such file."""
    if path is None:
        return None
    try:
        handle = os.open(path, os.O_RDONLY)
        try:
            match = _line(handle)
        finally:
            os.close(handle)
    except FileNotFoundError:
        return None
    except OSError:
        match = None
    if match is None:
        raise LedgerError(
            f"{path} is damaged, so an old copy of the ledger could not be noticed; if you have written down a head, "
            f"delete this file and run: hetdp ledger verify LEDGER --expect-head HEAD"
        )
    return Head(int(match[1]), match[2])


def write_head(path: Path | None, head: Head) -> None:
    """Move the head file forward to this head; never backwards. A new one has its name on disk when this returns."""
    if path is None:
        return
    import fcntl

    with _opened(path, os.O_RDWR | os.O_CREAT) as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        written = _line(handle)
        if written is None or int(written[1]) < head.seq:
            os.pwrite(handle, f"hetdp-ledger-head {head.seq:020d} {head.hash}\n".encode("ascii"), 0)
    if written is None:
        sync_head(path)
        sync_head(path.parent)


def sync_head(path: Path | None) -> None:
    """Have the head file on disk when this returns."""
    if path is not None:
        with _opened(path, os.O_RDONLY) as handle:
            os.fsync(handle)


def _line(handle: int) -> re.Match[str] | None:
    """Return what a head file says; None if that is no head, as in one that was just made."""
    return _LINE.fullmatch(os.pread(handle, 256, 0).decode("ascii", "replace"))


@contextmanager
def _opened(path: Path, how: int) -> Iterator[int]:
    try:
        handle = os.open(path, how, 0o600)
        try:
            yield handle
        finally:
            os.close(handle)
    except OSError as error:
        raise LedgerError(
            f"{path} cannot be written ({error.strerror}); the ledger keeps its head there: what it did last is in it, "
            "so repair this and do the same again"
        ) from None
