"""The tables of a ledger, the triggers that guard them, and how an older ledger gets those of this version.

    hetdp_ledger   one row: the version of the schema, the number and hash of the last event
    hetdp_event    everything that happened, append-only, in a hash chain: the truth
    hetdp_cohort   people with the same budget who have spent the same, as of the last event
    hetdp_member   which person moved to which cohort at which event, append-only

Cohorts can be derived from the events (`books.State`), and every transaction checks that they agree. What the database
enforces besides: nobody has spent more than their budget, nothing spent is taken back, no event is changed or
removed, a release has one charge and one result, a row of a person belongs to the event that is being written.
"""

from __future__ import annotations

import sqlalchemy as sa

from hetdp.errors import InputError, LedgerError

from .books import UNLIMITED

SCHEMA = 2
"""The version of the schema that this package writes."""

TABLES = {
    "hetdp_ledger": """
        one SMALLINT NOT NULL PRIMARY KEY CHECK (one = 1), version INTEGER NOT NULL, ident TEXT NOT NULL,
        seq BIGINT NOT NULL, hash TEXT NOT NULL""",
    "hetdp_event": """
        seq {number} PRIMARY KEY, kind TEXT NOT NULL, release TEXT,
        at TEXT NOT NULL, body TEXT NOT NULL, hash TEXT NOT NULL,
        CONSTRAINT hetdp_one_charge_one_result UNIQUE (release, kind),
        CONSTRAINT hetdp_release_named CHECK ((kind IN ('charge', 'result')) = (release IS NOT NULL))""",
    "hetdp_cohort": """
        cohort {number} PRIMARY KEY, asked BIGINT NOT NULL, budget BIGINT NOT NULL,
        spent BIGINT NOT NULL, people BIGINT NOT NULL,
        CONSTRAINT hetdp_within_budget CHECK (0 <= spent AND spent <= budget),
        CONSTRAINT hetdp_budget CHECK (0 <= asked AND asked <= budget AND budget <= {unlimited}),
        CONSTRAINT hetdp_people CHECK (people >= 0)""",
    "hetdp_member": """
        person TEXT {exact} NOT NULL, event BIGINT NOT NULL, cohort BIGINT NOT NULL, PRIMARY KEY (person, event)""",
}
"""The columns of each table, with what the databases spell differently in braces."""

_SPELLED = {
    "sqlite": {"number": "INTEGER NOT NULL", "exact": ""},  # there an INTEGER key is the row's own number
    "postgresql": {"number": "BIGINT", "exact": 'COLLATE "C"'},
}

# --- Triggers, as statements for each kind of database

_REFUSE = "'a ledger is append-only'"
_SQLITE = f"CREATE TRIGGER {{}} AFTER {{}} ON {{}} FOR EACH ROW WHEN {{}} BEGIN SELECT RAISE(ABORT, {_REFUSE}); END"
_POSTGRESQL = "CREATE TRIGGER {} BEFORE {} ON {} FOR EACH ROW WHEN ({}) EXECUTE FUNCTION hetdp_refuse()"
_WHOLE = "CREATE TRIGGER {0}_whole BEFORE TRUNCATE ON {0} FOR EACH STATEMENT EXECUTE FUNCTION hetdp_refuse()"
_ONWARD = "NEW.seq < OLD.seq OR NEW.ident <> OLD.ident OR NEW.version < OLD.version"
_GUARDS = [  # a trigger, what it refuses, of which table, and when
    ("hetdp_cohort_no_delete", "DELETE", "hetdp_cohort", "1 = 1"),
    ("hetdp_ledger_no_delete", "DELETE", "hetdp_ledger", "1 = 1"),
    ("hetdp_cohort_fixed", "UPDATE OF cohort, asked, budget", "hetdp_cohort", "1 = 1"),
    ("hetdp_cohort_only_spends", "UPDATE OF spent", "hetdp_cohort", "NEW.spent < OLD.spent"),
    ("hetdp_ledger_only_grows", "UPDATE", "hetdp_ledger", _ONWARD),
]
_KEPT = ("hetdp_event", "hetdp_member")  # append-only
# People are written before the event and before the ledger's own number moves on, so their event is the next one.
_OTHER = "event <> (SELECT seq + 1 FROM hetdp_ledger)"

MEMBER_GUARDS = {
    "sqlite": [_SQLITE.format("hetdp_member_of_next", "INSERT", "hetdp_member", f"NEW.{_OTHER}")],
    "postgresql": [
        "CREATE FUNCTION hetdp_refuse_other_event() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "  # noqa: S608  ours
        f"IF EXISTS (SELECT 1 FROM came WHERE {_OTHER}) THEN RAISE EXCEPTION {_REFUSE}; END IF; RETURN NULL; END $$",
        "CREATE TRIGGER hetdp_member_of_next AFTER INSERT ON hetdp_member REFERENCING NEW TABLE AS came "
        "FOR EACH STATEMENT EXECUTE FUNCTION hetdp_refuse_other_event()",  # once for all rows of a statement
    ],
}
"""What keeps a row of a person from naming another event than the one that is being written."""

GUARDS = {
    "sqlite": [
        *(_SQLITE.format(f"{t}_no_{verb.lower()}", verb, t, "1 = 1") for t in _KEPT for verb in ("UPDATE", "DELETE")),
        *(_SQLITE.format(*guard) for guard in _GUARDS),
        *MEMBER_GUARDS["sqlite"],
    ],
    "postgresql": [
        f"CREATE FUNCTION hetdp_refuse() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RAISE EXCEPTION {_REFUSE}; END$$",
        *(_POSTGRESQL.format(f"{table}_kept", "UPDATE OR DELETE", table, "1 = 1") for table in _KEPT),
        *(_POSTGRESQL.format(*guard) for guard in _GUARDS),
        *(_WHOLE.format(table) for table in TABLES),
        *MEMBER_GUARDS["postgresql"],
    ],
}
"""The statements that make all triggers."""

TRIGGERS = {
    kind: [words[2] for words in map(str.split, statements) if words[1] == "TRIGGER"]
    for kind, statements in GUARDS.items()
}
"""The names of the triggers."""


def create(connection: sa.Connection, name: str, ident: str, genesis: str) -> None:
    """Make the tables and the triggers that guard them."""
    if sa.inspect(connection).has_table("hetdp_ledger"):
        raise InputError(f"there is a ledger in {name} already; open it instead")
    kind = connection.dialect.name
    for table, columns in TABLES.items():
        end = "WITHOUT ROWID" if (kind, table) == ("sqlite", "hetdp_member") else ""
        spelled = columns.format(**_SPELLED[kind], unlimited=UNLIMITED)
        connection.exec_driver_sql(f"CREATE TABLE {table} ({spelled}) {end}")
    first = f"INSERT INTO hetdp_ledger VALUES (1, {SCHEMA}, '{ident}', 0, '{genesis}')"  # noqa: S608  hex digits of ours
    for statement in (first, *GUARDS[kind]):
        connection.exec_driver_sql(statement)


def upgrade(connection: sa.Connection, version: int, name: str) -> None:
    """Bring a ledger from an older version to this one, inside the caller's transaction."""
    if version < 1:
        raise LedgerError(
            f"{name} has schema {version}, from which there is no way to {SCHEMA}; use the hetdp it was made with"
        )
    if version == 1:
        for statement in (*MEMBER_GUARDS[connection.dialect.name], "UPDATE hetdp_ledger SET version = 2"):
            connection.exec_driver_sql(statement)
