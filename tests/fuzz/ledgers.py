"""A real ledger, damaged: it is refused in one line, or it still says what it said before.

The first byte of an input picks the damage, the rest describes it: bytes of the file, its length, the head outside, a
cell of any type behind the back of the ledger, or a further event whose hash fits and whose body is anything.
"""

from __future__ import annotations

import gzip
import hashlib
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from functools import cache
from pathlib import Path
from typing import Any

import hetdp
from hetdp.ledger.books import canonical

from .oracle import FOLDER, said

BASE = Path(__file__).parent / "ledger.db.gz"
"""A ledger of four people with one release; `make_corpus` writes it."""

CELLS = [
    ("hetdp_ledger", ["one", "version", "ident", "seq", "hash"]),
    ("hetdp_event", ["seq", "kind", "release", "at", "body", "hash"]),
    ("hetdp_cohort", ["cohort", "asked", "budget", "spent", "people"]),
    ("hetdp_member", ["person", "event", "cohort"]),
]
COLUMNS = [(table, columns[0], column) for table, columns in CELLS for column in columns]
"""Each column of the tables, with the one that tells rows apart."""
KINDS = ("open", "enroll", "charge", "result", "")


def open_ledger(data: bytes) -> None:
    """Damage a copy of the ledger, open it, and compare what it says with what it said before."""
    kind, rest = (data[0] % len(DAMAGES), data[1:]) if data else (0, b"")
    path = fresh()
    DAMAGES[kind](path, rest)
    found = look(path)
    if isinstance(found, str):
        return
    if DAMAGES[kind] is further:
        before = {row.person: row.spent for row in whole()[0]}
        assert all(row.spent >= before.get(row.person, 0) for row in found[0]), "somebody got privacy back"
    else:
        assert found == whole(), "a damaged ledger verifies and says something else"


def look(path: Path) -> Any:
    """Return everybody's balance, the history and the verified facts of a ledger, or one line that refuses it."""

    def work() -> Any:
        with hetdp.Ledger(path) as ledger:
            return ledger.balances(), ledger.history(), ledger.verify()

    return said(work, of_a_ledger=True)


@cache
def base() -> bytes:
    """Return the bytes of the ledger."""
    return gzip.decompress(BASE.read_bytes())


@cache
def whole() -> Any:
    """Return what the ledger says before it is damaged."""
    return look(fresh())


def fresh() -> Path:
    """Return the path of a new copy of the ledger and its head."""
    path = FOLDER / "budgets.db"
    for old in FOLDER.glob("budgets.db*"):
        old.unlink()
    path.write_bytes(base())
    with closing(sqlite3.connect(path)) as connection:
        seq, digest = connection.execute("SELECT seq, hash FROM hetdp_ledger").fetchone()
    Path(f"{path}.head").write_text(f"hetdp-ledger-head {seq:020d} {digest}\n", encoding="ascii")
    return path


def bytes_of_the_file(path: Path, how: bytes) -> None:
    """Change single bytes: three bytes each say where (two) and what."""
    file = bytearray(path.read_bytes())
    for high, low, what in zip(how[0::3], how[1::3], how[2::3], strict=False):
        file[(high << 8 | low) % len(file)] = what
    path.write_bytes(file)


def length(path: Path, how: bytes) -> None:
    """Cut the file short, and put something else at its end."""
    file = path.read_bytes()
    path.write_bytes(file[: int.from_bytes(how[:2], "big") % len(file)] + how[2:])


def head(path: Path, how: bytes) -> None:
    """Write another head file."""
    Path(f"{path}.head").write_bytes(how)


def cell(path: Path, how: bytes) -> None:
    """Put a cell of any type where no type is enforced, as SQLite allows."""
    where, row, kind, *_ = [*how[:3], 0, 0, 0]
    table, key, column = COLUMNS[where % len(COLUMNS)]
    text = how[3:].decode("utf-8", "replace")
    number = int.from_bytes(how[3:11], "big", signed=True)
    what = (None, number, text, how[3:], number / 1e9)[kind % 5]
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA ignore_check_constraints = ON")
        triggers = connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
        for name, _ in triggers:
            connection.execute(f"DROP TRIGGER {name}")
        chosen = f"(SELECT {key} FROM {table} ORDER BY {key} LIMIT 1 OFFSET {row % 4})"  # noqa: S608  names of our own
        with suppress(sqlite3.Error):  # a rule that SQLite does enforce: the ledger is as it was
            connection.execute(f"UPDATE {table} SET {column} = ? WHERE {key} = {chosen}", [what])  # noqa: S608
        for _, sql in triggers:
            connection.execute(sql)


def further(path: Path, how: bytes) -> None:
    """Append an event that the chain accepts; its body is any text."""
    kind, body = KINDS[how[0] % len(KINDS)] if how else "", how[1:].decode("utf-8", "replace")
    release = "may2" if kind in {"charge", "result"} else None
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        seq, before = connection.execute("SELECT seq, hash FROM hetdp_ledger").fetchone()
        row = (seq + 1, kind, release, "2026-01-01T00:00:00.000+00:00")
        digest = hashlib.sha256(f"{canonical([before, *row])}\n{body}".encode()).hexdigest()
        connection.execute("INSERT INTO hetdp_event VALUES (?, ?, ?, ?, ?, ?)", (*row, body, digest))
        connection.execute("UPDATE hetdp_ledger SET seq = ?, hash = ?", (seq + 1, digest))


DAMAGES: list[Callable[[Path, bytes], None]] = [bytes_of_the_file, length, head, cell, further]
