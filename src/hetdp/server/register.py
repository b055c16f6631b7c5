"""The register: what the database must say about a study and its people, kept outside of it.

Somebody may be able to write to the database without having the vault's key or the files beside it. They could raise a
person's ε, put an older row back after the person lowered their ε or withdrew, or change the shares of a study. So each
row of a study counts as one number, a MAC under a key of the vault; the numbers of a study are added modulo 2²⁵⁶, and a
MAC of the sum stands in a small file outside of the database.

Claim. If `Register.check` passes, the study and its people (ε, sealed answers) are exactly what this server wrote last.

Argument. Every row has a version, 128 fresh random bits each time it is written, and its MAC covers every cell that
matters. So the server adds the MAC of a row once in its life, and takes it away when it replaces the row. If the row
found then is not the current one, what is taken away was never added, or was taken away before: the sum keeps a
negative term that nothing can ever cancel, and no set of rows fits again. If rows are changed while the server does
nothing, they are another set with its own sum. To find other rows with the same sum one would have to know the MACs,
which need the key; of the sum itself only a MAC is written.

A crash. The file names two sums while a transaction is under way, the one before and the one after it, and is on disk
before the commit. Which of them holds is decided by the database when it is next looked at. Until then, and only after
such a crash, that last transaction could be undone unnoticed.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from .._errors import InputError

if TYPE_CHECKING:
    from .access import Execute
    from .keys import Vault

_MODULUS = 2**256
_PERSON = ("id", "study", "epsilon", "answer", "version")


class ChangedError(InputError):
    """The rows of a study are not those that this server wrote last."""


def new_version() -> str:
    """Return what tells one writing of a row from every other."""
    return secrets.token_hex(16)


class Register:
    """The sums of all studies: in memory while they are known, their MACs in a folder, one file a study."""

    def __init__(self, folder: Path, vault: Vault) -> None:
        self.folder = folder
        self._key = vault.derived(b"hetdp register")
        self._sums: dict[str, int | None] = {}  # None: what the database says does not fit

    def person(self, row: Mapping[str, Any]) -> int:
        """Return the number of a person's row."""
        return self._mac("person", *(row.get(name) for name in _PERSON))

    def study(self, row: Mapping[str, Any]) -> int:
        """Return the number of a study's row."""
        return self._mac("study", *(cell for pair in sorted(row.items()) for cell in pair))

    def check(self, execute: Execute, study: str, pending: int = 0) -> list[Any]:
        """Return the rows of the people of a study, or raise unless they and the study are what was written last.

        `pending` is what the transaction under way has changed already.
        """
        total, rows = self._found(execute, study)
        before = (total - pending) % _MODULUS
        known = self._known(study, before)
        if known is None or known != before:
            raise ChangedError("the rows of this study were changed outside of the server")
        return rows

    def prepare(self, execute: Execute, changes: Mapping[str, int]) -> dict[str, int]:
        """Write both sums of each study that a transaction changes, before it commits; return those after it."""
        after: dict[str, int] = {}
        for study, change in changes.items():
            if study not in self._sums:
                self._known(study, (self._found(execute, study)[0] - change) % _MODULUS)
            before = self._sums[study]
            if before is not None:  # one that does not fit stays so, whatever is written
                after[study] = (before + change) % _MODULUS
                self._write(study, before, after[study], sync=True)
        return after

    def commit(self, after: Mapping[str, int]) -> None:
        """Keep the sums of a transaction that is committed. If the disk is full, the file goes on naming both sums."""
        self._sums.update(after)
        with suppress(InputError):
            for study, total in after.items():
                self._write(study, total, total, sync=False)

    def forget(self, studies: Iterable[str] | None = None) -> None:
        """Forget what is in memory: the file and the database decide anew. To be called when a commit is in doubt."""
        for study in list(self._sums) if studies is None else studies:
            self._sums.pop(study, None)

    def adopt(self, execute: Execute, *, trusted: bool) -> None:
        """Make the folder at the first start; if `trusted`, take all studies as the database has them."""
        from . import store

        self.folder.mkdir(mode=0o700, exist_ok=True)
        for study in execute(sa.select(store.studies.c.id)).scalars().all() if trusted else ():
            total, _ = self._found(execute, study)
            self._sums[study] = total
            self._write(study, total, total, sync=True)

    def _known(self, study: str, total: int) -> int | None:
        """Return the sum that should be there; one that is not in memory is what the file agrees with, or None.

        `total` is the sum of the rows as they are. A study without rows is new and needs no file.
        """
        if study not in self._sums:
            written = self._read(study)
            fits = self._proof(study, total) in written if written else total == 0 and written is not None
            self._sums[study] = total if fits else None
            if fits and written:
                self._write(study, total, total, sync=True)
        return self._sums[study]

    def _found(self, execute: Execute, study: str) -> tuple[int, list[Any]]:
        from . import store

        people = store.people
        columns = (people.c[name] for name in _PERSON)
        rows = execute(sa.select(*columns).where(people.c.study == study).order_by(people.c.id)).all()
        about = execute(sa.select(store.studies).where(store.studies.c.id == study)).mappings().first()
        total = sum(self.person(row._asdict()) for row in rows) + (self.study(dict(about)) if about else 0)
        return total % _MODULUS, list(rows)

    def _mac(self, *cells: Any) -> int:
        plain = [cell.hex() if isinstance(cell, (bytes, float)) else cell for cell in cells]
        return int.from_bytes(hmac.digest(self._key, json.dumps(plain).encode(), "sha256"))

    def _proof(self, study: str, total: int) -> str:
        return f"{self._mac('sum', study, hex(total)):064x}"

    def _path(self, study: str) -> Path:
        return self.folder / hashlib.sha256(study.encode()).hexdigest()[:32]  # an id in the database may be anything

    def _read(self, study: str) -> tuple[str, ...] | None:
        """Return the proofs in the file of a study; none if it has no file, None if it is damaged."""
        try:
            words = self._path(study).read_text(encoding="ascii", errors="replace").split()
        except FileNotFoundError:
            return ()
        return tuple(words[1:]) if len(words) == 3 else None

    def _write(self, study: str, *totals: int, sync: bool) -> None:
        """Write the proofs of two sums over the ones that are there: one line of a fixed length."""
        path = self._path(study)
        line = f"hetdp-register {' '.join(self._proof(study, total) for total in totals)}\n"
        try:
            new = not path.exists()
            handle = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
            try:
                os.pwrite(handle, line.encode("ascii"), 0)
                if sync:
                    os.fsync(handle)
            finally:
                os.close(handle)
            if new:
                _sync(self.folder)
        except OSError as error:
            raise InputError(f"the register {self.folder} cannot be written: {error.strerror}") from None


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
