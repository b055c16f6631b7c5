"""Files that are written whole or not at all, and databases in a file that sync every commit."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from hetdp.errors import InputError

if TYPE_CHECKING:
    from sqlalchemy import Engine


def write_whole(path: str | os.PathLike[str], text: str, *, public: bool = False) -> None:
    """Write a text file; it appears whole or not at all, also after a power cut.

    Only its owner can read it, unless it is `public`: then it gets the usual permissions of a new file.
    """
    target = Path(path)
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}")  # made with mode 600
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            sync_file(file.fileno())
        if public:
            mask = os.umask(0o022)
            os.umask(mask)
            Path(name).chmod(0o666 & ~mask)
        Path(name).replace(target)
    except BaseException:  # an interrupt too leaves no half-written file
        Path(name).unlink(missing_ok=True)
        raise


def sync_file(handle: int) -> None:
    """Have what was written to an open file on the disk itself: on macOS `fsync` leaves it in the disk's cache."""
    if sys.platform == "darwin":
        import fcntl

        fcntl.fcntl(handle, fcntl.F_FULLFSYNC)
    else:
        os.fsync(handle)


def sync_folder(path: Path) -> None:
    """Have the names in a folder on disk; Windows writes them with the file and opens no folder."""
    if os.name == "nt":
        return
    folder = os.open(path, os.O_RDONLY)
    try:
        sync_file(folder)
    finally:
        os.close(folder)


def sqlite_engine(path: str | os.PathLike[str], *, patience: float, pragmas: tuple[str, ...] = ()) -> Engine:
    """Return an engine of SQLAlchemy for an SQLite file that exists: one that vanished must not come back empty.

    A commit is on disk when it returns: with `synchronous = NORMAL` a power cut could forget it. Python's driver begins
    a transaction before the first change only, so one that must see one moment says BEGIN first, and one that writes
    BEGIN IMMEDIATE: it takes the lock at once, or waits for it `patience` seconds, and what it decides from cannot
    change before it commits. No message quotes a parameter.
    """
    import sqlalchemy as sa

    name = quote(os.fsencode(Path(path).resolve()))  # of bytes: a name need not be text
    url = sa.URL.create("sqlite", database=f"file:{name}", query={"mode": "rw", "uri": "true"})
    engine = sa.create_engine(url, hide_parameters=True, connect_args={"timeout": patience})

    @sa.event.listens_for(engine, "connect")
    def careful(connection: Any, _record: Any) -> None:
        for pragma in ("journal_mode = WAL", "synchronous = FULL", "fullfsync = ON", *pragmas):
            connection.execute(f"PRAGMA {pragma}")
        if connection.execute("PRAGMA journal_mode").fetchone() != ("wal",):
            raise InputError(f"{path} cannot be used: its file system does not allow a write-ahead log")

    return engine
