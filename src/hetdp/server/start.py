"""The first start and every other one: tables, the curator's key, the right vault, what a crash left unfinished."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import sqlalchemy as sa

from hetdp.errors import InputError
from hetdp.ledger import Ledger

from . import keys, store, studies
from .errors import RefusedError
from .register import Register, new_version, private
from .settings import Settings


def prepare(database: store.Store, vault: keys.Vault, *, trusted: bool = False) -> str | None:
    """Make the database ready; return the curator's key if it was made just now."""
    with database.engine.begin() as connection:
        store.tables.create_all(connection)

    def job(transaction: store.Transaction) -> str | None:
        old = _upgraded(transaction)
        _agrees(transaction, "vault", vault.fingerprint, "this is not the key with which the answers were sealed")
        _registered(transaction, database.register, trusted=trusted, older=0 < old < 3)
        has_key = transaction.execute(sa.select(store.facts.c.name).where(store.facts.c.name == "curator")).first()
        return None if has_key else new_key(transaction)

    return database.submit(job).result()


def _upgraded(transaction: store.Transaction) -> int:
    """Bring the tables to the version of this server; return the version that they had, 0 if they are new."""
    fact = store.facts.c.name == "version"
    found = transaction.execute(sa.select(store.facts.c.text).where(fact)).scalar()
    if found is None and transaction.execute(sa.select(store.facts)).first() is None:
        transaction.execute(sa.insert(store.facts).values({"name": "version", "text": str(store.VERSION)}))
        return 0
    old = int(found) if found is not None and found.isdecimal() else 0
    if old > store.VERSION:
        raise InputError("this database was made by a newer hetdp; update hetdp. Nothing was changed")
    for version in range(old, store.VERSION):
        if version not in STEPS:
            raise InputError(f"the database has version {found}, from which there is no way here; nothing was changed")
        STEPS[version](transaction)
        transaction.execute(sa.update(store.facts).where(fact).values(text=str(version + 1)))
    return old


def _versions(transaction: store.Transaction) -> None:
    """From 2 to 3: every row of a study or a person has a version, every session a proof; those that are there end."""
    for table in (store.studies, store.people):
        transaction.connection.exec_driver_sql(f"ALTER TABLE {table.name} ADD COLUMN version TEXT")
        ids = transaction.execute(sa.select(table.c.id)).scalars().all()
        change = sa.update(table).where(table.c.id == sa.bindparam("row")).values(version=sa.bindparam("fresh"))
        if ids:
            transaction.execute(change, [{"row": row, "fresh": new_version()} for row in ids])
    transaction.connection.exec_driver_sql(f"ALTER TABLE {store.sessions.name} ADD COLUMN proof TEXT")


STEPS: Mapping[int, Callable[[store.Transaction], None]] = {2: _versions}
"""From each older version of the tables, the step to the next one."""


def _registered(transaction: store.Transaction, register: Register, *, trusted: bool, older: bool) -> None:
    """Have a register; raise if the one that was there is missing, unless the operator trusts the database."""
    there = register.exists()
    people = (transaction.execute(sa.select(table.c.id).limit(1)).first() for table in (store.studies, store.people))
    if not there and not trusted and any(people):
        why = "an older hetdp made none: " if older else "bring it back, or "
        raise InputError(
            f"{register.path} is missing, so answers that were put back or changed could not be noticed; {why}"
            "start once with --trust-database if you know that nobody changed the database"
        )
    register.create()
    if trusted:
        register.forget()
        tables = (("study", store.studies, "id"), ("person", store.people, "study"), ("import", store.imports, "study"))
        for kind, table, study in tables:
            rows = transaction.execute(sa.select(table)).all()
            register.adopt((kind, row._mapping[study], row) for row in rows)


def open_ledger(settings: Settings, database: store.Store) -> Ledger:
    """Return the ledger of this server; it is made once, and never again if it is missing later."""
    known = store.facts.c.name == "ledger"
    with database.engine.connect() as connection:
        made = connection.execute(sa.select(store.facts.c.text).where(known)).first() is not None
        if settings.sqlite_file is None:
            there = sa.inspect(connection).has_table("hetdp_ledger")
        else:
            there = Path(settings.ledger).exists()
    if made and not there:
        raise InputError("the ledger of this server is missing: without it budgets could be overspent; bring it back")
    where, head = settings.ledger, settings.ledger_head
    if settings.sqlite_file is not None:
        private(where, f"{where}-wal", f"{where}-shm", str(head))
    if made and not head.exists() and settings.expect_head is None:
        raise InputError(
            f"{head} is missing, so an old copy of the ledger could not be noticed; bring it back, or give the head "
            "that you wrote down: --expect-head NUMBER:HASH"
        )
    if there:
        ledger = Ledger(where, expect_head=settings.expect_head, head_file=head)
    else:
        ledger = Ledger.create(where, head_file=head)
    if not made:
        database.submit(lambda t: t.execute(sa.insert(store.facts).values({"name": "ledger", "text": "made"}))).result()
    return ledger


def only_one(settings: Settings, database: store.Store) -> Callable[[], None]:
    """Hold the lock of the one process that serves a database; return what lets go of it. Another one is refused.

    Counts of people are kept in memory, so a second process would show old ones.
    """
    name = settings.sqlite_file or settings.register_file
    handle = os.open(f"{name}.lock", os.O_RDWR | os.O_CREAT, 0o600)
    os.fchmod(handle, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        database.stay_alone()  # PostgreSQL has a lock of its own, against servers on other machines
    except OSError:
        os.close(handle)
        raise InputError("another process serves this database; stop it first") from None
    except RefusedError as error:
        os.close(handle)
        other = error.code == "another-server"
        raise InputError("another process serves this database; stop it first" if other else error.message) from None
    return lambda: os.close(handle)


def new_key(transaction: store.Transaction) -> str:
    """Replace the curator's key and end the curator's sessions; return the key, which is stored nowhere."""
    key = keys.fresh()
    transaction.execute(sa.delete(store.facts).where(store.facts.c.name == "curator"))
    row = {"name": "curator", "text": keys.digest("curator", key)}
    transaction.execute(sa.insert(store.facts).values(row))
    transaction.execute(sa.delete(store.sessions).where(store.sessions.c.person.is_(None)))
    studies.note(transaction, "curator key made")
    return key


def _agrees(transaction: store.Transaction, name: str, expected: str, otherwise: str) -> None:
    found = transaction.execute(sa.select(store.facts.c.text).where(store.facts.c.name == name)).scalar()
    if found is None:
        transaction.execute(sa.insert(store.facts).values({"name": name, "text": expected}))
    elif found != expected:
        raise InputError(f"{otherwise}; nothing was changed")
