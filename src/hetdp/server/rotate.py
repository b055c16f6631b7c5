"""A new key for the vault: every sealed answer is sealed anew, and the register is signed anew.

Claim. Whenever this is cut off, running it again ends with all answers under the new key, and no answer is lost or
believed that was not believed before.

Argument. The new key is on disk first (KEY.new), then a register signed with it (REGISTER.rotating), then one
transaction of the database seals all answers anew and writes down the new key's fingerprint. So the fingerprint says on
which side of that transaction it was cut off: before it, all of this is done again with the same new key; after it, the
two files are put in their places. The old key stays where it is until the register is in its place. A row for which
the old register does not vouch is left as it is, and the new one does not vouch for it either.

The fingerprint stands in the database, whose owner can make the transaction fail and show its rows later, when people
have withdrawn. So REGISTER.rotating is put in place only if nothing was written since it was made: every start of a
server with the old key, and every restore, deletes it before anything is written (`forget`). Without it the rotation
goes on only if the register in place is signed with the new key already.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from hetdp.core.domain import plural
from hetdp.errors import InputError

from . import access, tables
from .backup import alone, copy, vault_there
from .settings import Settings, key_text, vault_of
from .store import Register, Transaction, begin, new_version


def rotate_key(settings: Settings) -> str:
    """Give the vault a new key and return what was done; no server may be running."""
    if settings.key is not None:
        raise InputError(
            "the key comes from HETDP_KEY and cannot be replaced there; put it into a file: --key-file FILE"
        )
    path, register_file = settings.vault_file, settings.register_file
    fresh, staged = path.with_name(f"{path.name}.new"), _staged(register_file)
    old = vault_there(settings)
    with alone(settings), _connected(settings) as connection:
        if not register_file.exists():
            raise InputError(f"{register_file} is missing; start the server first, or bring it back")
        current = Transaction(connection, Register(register_file, old.register_key)).fact("vault")
        connection.rollback()
        if current == old.fingerprint:
            new = _new_key(fresh, old)
            answers = _seal_anew(settings, connection, old, new, staged)
        elif fresh.exists() and current == vault_of(key_text(fresh)).fingerprint:
            answers = "the answers"  # all but the files was done before it was cut off
            if not staged.exists() and not _is_signed(connection, register_file, vault_of(key_text(fresh))):
                raise InputError(
                    "the database says that the key was replaced, and the server has been used with the old one since: "
                    "it was changed from outside, or an older copy was put back. Bring the newest one back"
                )
        else:
            raise InputError("this is not the key with which the answers were sealed; nothing was changed")
        if staged.exists():
            _replace(staged, register_file)
        kept = path.with_name(f"{path.name}.until-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}")
        os.link(path, kept)
        fresh.replace(path)
        _sync(path.parent)
    scrub(settings.database)
    return (
        f"{answers} sealed with a new key, in {path}; everybody's session has ended.\n"
        f"The old key is {kept}: backups of before need it. Make a new backup, then delete both the old backups and it."
    )


def _staged(register_file: Path) -> Path:
    return register_file.with_name(f"{register_file.name}.rotating")


def forget(register_file: Path) -> None:
    """Delete the register of a rotation that was cut off: from now on it would be older than the one in place."""
    there = [path for end in ("", "-wal", "-shm") if (path := Path(f"{_staged(register_file)}{end}")).exists()]
    for path in there:
        path.unlink()
    if there:
        _sync(register_file.parent)


def _is_signed(connection: sa.Connection, register_file: Path, vault: access.Vault) -> bool:
    """Say whether the register in place vouches for a row by this vault's key, or for none at all."""
    register = Register(register_file, vault.register_key)
    try:
        transaction, known = Transaction(connection, register), 0
        for kind, table in tables.VOUCHED.items():
            for cells in transaction.execute(sa.select(table)).all():
                row = dict(zip(table.c.keys(), cells, strict=True))
                if transaction.vouches(kind, row):
                    return True
                known += register.known(kind, row["id"]) is not None
        return not known
    finally:
        connection.rollback()
        register.close()


def _new_key(fresh: Path, old: access.Vault) -> access.Vault:
    """Return the vault of the new key, which is on disk; the one of an attempt that was cut off, if there is one."""
    if not fresh.exists():
        handle = os.open(fresh.with_suffix(".part"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(handle, "w", encoding="ascii") as file:
            file.write(f"{secrets.token_hex(32)}:{old.mark_key.hex()}\n")
            file.flush()
            os.fsync(file.fileno())
        fresh.with_suffix(".part").replace(fresh)
        _sync(fresh.parent)
    return vault_of(key_text(fresh))


def _seal_anew(
    settings: Settings, connection: sa.Connection, old: access.Vault, new: access.Vault, staged: Path
) -> str:
    forget(settings.register_file)
    copy(settings.register_file, staged)
    before, after = Register(settings.register_file, old.register_key), Register(staged, new.register_key)
    try:
        begin(connection, writes=True)
        if before.in_doubt():
            raise InputError("the last change is in doubt since the server was cut off; start and stop it once first")
        transaction, count, macs = Transaction(connection, before), 0, []
        for kind, table in tables.VOUCHED.items():
            for cells in transaction.execute(sa.select(table)).all():
                row: dict[str, Any] = dict(zip(table.c.keys(), cells, strict=True))
                if not transaction.vouches(kind, row):
                    macs.append((secrets.token_bytes(32), kind, row["id"]))
                    continue
                if row.get("answer") is not None:
                    answer = old.resealed(row["answer"], new, row["id"], row["study"], row["epsilon"])
                    row |= {"answer": answer, "version": new_version()}
                    transaction.execute(sa.update(table).where(table.c.id == row["id"]).values(row))
                    count += 1
                macs.append((after.sign_row(kind, row.values()), kind, row["id"]))
        transaction.set_fact("vault", new.fingerprint)
        transaction.note("key of the vault replaced")
        with after.connected(writes=True) as file:
            file.exec_driver_sql("UPDATE vouched SET mac = ?", (secrets.token_bytes(32),))  # of rows that are missing
            if macs:
                file.exec_driver_sql("UPDATE vouched SET mac = ? WHERE kind = ? AND id = ?", macs)
            end_all(file)
        after.close()
        one_file(staged)
        connection.commit()
    finally:
        before.close()
        after.close()
    return plural(count, "answer")


def one_file(path: Path) -> None:
    """Fold the log of a register that nobody has open into the register."""
    with closing(sqlite3.connect(path)) as file:
        file.execute("PRAGMA journal_mode = DELETE")


def end_all(file: sa.Connection) -> None:
    """End all sessions in a register; that a curator had a name stays known, so that it is not given again."""
    file.exec_driver_sql("DELETE FROM epochs WHERE person NOT LIKE 'curator:% kept'")
    file.exec_driver_sql("UPDATE epochs SET epoch = ?", (secrets.randbits(62),))  # a number that is no session's
    file.exec_driver_sql("INSERT INTO epochs VALUES ('', ?)", (secrets.randbits(62),))


def _replace(staged: Path, place: Path) -> None:
    for end in ("-wal", "-shm"):  # of the register before; a log beside another file would be applied to it
        Path(f"{place}{end}").unlink(missing_ok=True)
    staged.replace(place)
    _sync(place.parent)


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    os.fsync(handle)
    os.close(handle)


@contextmanager
def _connected(settings: Settings) -> Iterator[sa.Connection]:
    engine = tables.connect(settings.database)
    try:
        with engine.connect() as connection:
            if not sa.inspect(connection).has_table("server_facts"):
                raise InputError("there is no server's database here; is this the right folder?")
            connection.rollback()
            yield connection
    finally:
        engine.dispose()


def scrub(database: str) -> None:
    """Remove what is left of deleted and replaced answers from the files of the database, as far as it allows.

    SQLite overwrites what is deleted, and its write-ahead log is emptied. PostgreSQL leaves the bytes in the table
    until it is written anew, and in its own log until that file goes: a checkpoint, and a new file, let it go, where
    this user may ask for them.
    """
    engine = tables.connect(database)
    try:
        if engine.dialect.name == "sqlite":
            with closing(engine.raw_connection()) as raw:
                raw.cursor().execute("PRAGMA wal_checkpoint(TRUNCATE)")
            return
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.exec_driver_sql("VACUUM (FULL) server_people, server_facts")
            for statement in ("SELECT pg_switch_wal()", "CHECKPOINT"):
                with suppress(sa.exc.DBAPIError):  # this user may not
                    connection.exec_driver_sql(statement)
    finally:
        engine.dispose()
