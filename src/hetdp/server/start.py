"""The first start and every other one: tables, the curator's key, the right vault, what a crash left unfinished."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from pathlib import Path

import sqlalchemy as sa

from .._errors import InputError
from ..ledger import Ledger
from . import keys, store, studies
from .settings import Settings

_LOCK = 0x686574_6470  # a number of our own among PostgreSQL's advisory locks


def prepare(database: store.Store, vault: keys.Vault) -> str | None:
    """Make the database ready; return the curator's key if it was made just now."""
    with database.engine.begin() as connection:
        store.tables.create_all(connection)

    def job(transaction: store.Transaction) -> str | None:
        _agrees(transaction, "version", store.VERSION, "the database has another version than this server")
        _agrees(transaction, "vault", vault.fingerprint, "this is not the key with which the answers were sealed")
        has_key = transaction.execute(sa.select(store.facts.c.name).where(store.facts.c.name == "curator")).first()
        return None if has_key else new_key(transaction)

    return database.submit(job).result()


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
    where, head = settings.ledger, settings.head_file
    if settings.sqlite_file is not None and head is None:
        head = Path(f"{where}.head")
    if made and head is not None and not head.exists() and settings.expect_head is None:
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
    name = settings.sqlite_file
    if name is None:
        connection = database.engine.connect()
        if not connection.execute(sa.select(sa.func.pg_try_advisory_lock(_LOCK))).scalar():
            connection.close()
            raise InputError("another process serves this database; stop it first")
        connection.detach()  # to close it is to end it, and with it the lock
        return connection.close
    handle = os.open(f"{name}.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        raise InputError(f"another process serves {name}; stop it first") from None
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
