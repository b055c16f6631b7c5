"""Ledgers for the tests: in a file and in a real PostgreSQL that syncs, and what somebody does behind their back."""

from __future__ import annotations

import sqlite3
import uuid

import psycopg
import pytest

import postgres
from hetdp.ledger import Ledger, tables

PEOPLE = [f"p{i:03}" for i in range(200)]
VALUES = [0.25, 0.75] * 100


@pytest.fixture(scope="session")
def durable_server():
    """A server that really syncs: a ledger refuses one that does not."""
    with postgres.server(fsync="on", full_page_writes="on", synchronous_commit="on") as running:
        yield running


@pytest.fixture(params=["sqlite", "postgresql"])
def where(request, tmp_path):
    if request.param == "sqlite":
        yield str(tmp_path / "budgets.db")
        return
    running, name = request.getfixturevalue("durable_server"), f"s{uuid.uuid4().hex[:12]}"
    running.run(f"CREATE SCHEMA {name}")  # much quicker than a database of its own
    yield f"{running.url()}&options=-csearch_path%3D{name}"
    running.run(f"DROP SCHEMA {name} CASCADE")


def made(where, budgets=None, **options):
    ledger = Ledger.create(where)
    ledger.enroll(dict.fromkeys(PEOPLE, 1) if budgets is None else budgets, **options)
    return ledger


@pytest.fixture
def ledger(where):
    with made(where) as found:
        yield found


def mean(ledger, release_id="may", values=VALUES, person=PEOPLE, bounds=(0, 1), **options):
    options = {"missing": "midpoint", **options}
    if not options.keys() & {"spend", "share", "share_left"}:
        options["spend"] = 0.1
    return ledger.mean(values, person=person, bounds=bounds, release_id=release_id, **options)


def execute(where, *statements):
    """Run statements behind the ledger's back."""
    if "://" in where:
        with psycopg.connect(where, autocommit=True) as connection:
            return [connection.execute(statement).rowcount for statement in statements]
    connection = sqlite3.connect(where, isolation_level=None)
    try:
        return [connection.execute(statement).rowcount for statement in statements]
    finally:
        connection.close()


class Untouchable:
    """Values that fail the test when anybody looks at them."""

    def __init__(self, size=200):
        self.size = size

    def __len__(self):
        return self.size

    def __array__(self, *_, **__):
        pytest.fail("the values were read")


DROP_FUNCTIONS = ("DROP FUNCTION hetdp_refuse", "DROP FUNCTION hetdp_refuse_other_event")


def drop_guards(where):
    if "://" in where:
        execute(where, *[f"ALTER TABLE {table} DISABLE TRIGGER ALL" for table in tables.TABLES])
    else:
        names = [words[2] for words in map(str.split, tables.GUARDS["sqlite"])]
        execute(where, *[f"DROP TRIGGER {name}" for name in names])


def restore_guards(where):
    if "://" in where:
        execute(where, *[f"ALTER TABLE {table} ENABLE TRIGGER ALL" for table in tables.TABLES])
    else:
        execute(where, *tables.GUARDS["sqlite"])
