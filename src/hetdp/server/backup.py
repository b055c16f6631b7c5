"""Backups: what is copied, what a copy may vouch for, and putting it back; `restore` decides what may be used then.

A backup is a folder: copies of the database, the ledger and the register, and `backup.json`, which says when it was
made, with which versions, at which head of the ledger, and the digest of each file, under a MAC of the vault's key.

What it vouches for: that this was the state at that moment. It cannot know what came after: who withdrew, which wave
was published. So its head is a line in `backup.json` and no head file, and nothing in it can be put in the place of a
newer file by copying: the server refuses a ledger without its head, and one that is older than its head.
"""

from __future__ import annotations

import fcntl
import glob
import hashlib
import hmac
import json
import os
import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from hetdp import __version__
from hetdp.errors import HetdpError, InputError
from hetdp.files import write_whole
from hetdp.ledger import SCHEMA, Ledger
from hetdp.ledger import TABLES as LEDGER

from . import access, tables
from .settings import Settings, key_text, vault_of

MANIFEST, DATABASE, BOOKS, REGISTER = "backup.json", "database", "ledger", "register"
# Tables that an older hetdp made and this one does not know.
_FORMER = {"server_sessions"}
# How often a copy is made again because a study was changed meanwhile, and seconds between.
_TRIES, _PAUSE = 20, 0.25


@dataclass(frozen=True)
class Backup:
    """A backup whose digests and MAC were checked.

    Attributes
    ----------
    made
        When it was begun, in seconds: whatever came later may be missing.
    head
        The ledger's head in it, as NUMBER:HASH; None if there was no ledger yet.
    notice
        How many seconds the server of then left people to withdraw once a wave was closed early.
    mac
        That of the whole, by which it is told apart from every other one.
    """

    folder: Path
    made: int
    kind: str
    schema: str
    head: str | None
    notice: int
    mac: str

    @property
    def register(self) -> Path | None:
        """The copy of the register, if there was one."""
        path = self.folder / REGISTER
        return path if path.exists() else None

    def vouched(self) -> tables.Known | None:
        """Return the MACs of that copy, which is not touched; None if there is none."""
        if self.register is None:
            return None
        address = f"{self.register.resolve().as_uri()}?mode=ro&immutable=1"
        with closing(sqlite3.connect(address, uri=True)) as file:
            rows = file.execute("SELECT kind, id, mac, coming FROM vouched").fetchall()
        return {(kind, row): tuple(mac for mac in macs if mac is not None) for kind, row, *macs in rows}


def vault_there(settings: Settings) -> access.Vault:
    """Return the vault by a key that is there; none is made."""
    return vault_of(settings.key if settings.key is not None else key_text(settings.vault_file))


def last_backup(settings: Settings) -> Path:
    """Where the time of the last backup is written down, beside the register."""
    return settings.register_file.with_name(f"{settings.register_file.name}.last-backup")


# ---------------------------------------------------------------------------------------------------------
# Making one


def back_up(settings: Settings, folder: Path) -> dict[str, Any]:
    """Copy database, ledger and register into a new folder, and return what is said of it; the server may be running.

    The key of the vault is left out on purpose: a copy without it tells nobody's answer. The database is copied first:
    a charge or a use that comes meanwhile must not be missing from the ledger or the register. If a study is changed
    meanwhile, all is copied again, so that the copied register vouches for the copied study: see `restore`.
    """
    not_for_root(settings)
    vault, made = vault_there(settings), int(time.time())
    for path in (settings.sqlite_file, settings.sqlite_file and Path(settings.ledger)):
        if path is not None and not path.exists():
            raise InputError(f"there is no database {path}; start the server first, or bring it back")
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        raise InputError(f"the folder {folder} is there already; name one that does not exist yet") from None
    except OSError as error:
        raise InputError(
            f"the folder {folder} cannot be made in {folder.absolute().parent}: {error.strerror}"
        ) from None
    engine = tables.connect(settings.database)
    try:
        for _ in range(_TRIES):
            before = _vouched_studies(settings)
            for path in folder.iterdir():
                path.unlink()
            if settings.sqlite_file is not None:
                copy(settings.sqlite_file, folder / DATABASE)
                copy(Path(settings.ledger), folder / BOOKS)
            else:
                _dump(engine, folder / DATABASE)
            if settings.register_file.exists():
                copy(settings.register_file, folder / REGISTER)
            if before == _vouched_studies(settings):
                break
            time.sleep(_PAUSE)
        else:
            raise InputError("studies were being changed all the time; nothing was backed up, try again")
        versions = _versions(settings, folder)
    finally:
        engine.dispose()
    said = {
        "format": "hetdp-backup",
        "version": 1,
        "made": made,
        "hetdp": __version__,
        "kind": "sqlite" if settings.sqlite_file is not None else "postgresql",
        "notice_days": settings.notice_days,
        "vault": vault.fingerprint,
        **versions,
        "files": {path.name: _digest(path) for path in sorted(folder.iterdir())},
    }
    write_whole(folder / MANIFEST, json.dumps({**said, "mac": _mac(vault, said)}, indent=1))
    with suppress(OSError):  # it is for the status page alone
        write_whole(last_backup(settings), json.dumps({"made": made, "head": said["head"]}))
    return said


def _vouched_studies(settings: Settings) -> list[Any]:
    """Return what the register says of studies and imports now, also of those that are just being changed."""
    if not settings.register_file.exists():
        return []
    query = "SELECT kind, id, mac, coming FROM vouched WHERE kind IN ('study', 'import') ORDER BY kind, id"
    address = f"{settings.register_file.resolve().as_uri()}?mode=rw"
    with suppress(sqlite3.Error), closing(sqlite3.connect(address, uri=True)) as file:
        return file.execute(query).fetchall()
    return []  # a register that cannot be read is refused, or copied, as it is


def copy(source: Path, target: Path) -> None:
    """Copy an SQLite file as it is at one moment, with what is still in its write-ahead log."""
    address = f"{source.resolve().as_uri()}?mode=rw"  # never a new and empty one
    try:
        os.close(os.open(target, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        with closing(sqlite3.connect(address, uri=True)) as old, closing(sqlite3.connect(target)) as new:
            old.backup(new)
            new.execute("PRAGMA journal_mode = DELETE")  # one file, which can be compared by its digest
    except (OSError, sqlite3.Error) as error:
        target.unlink(missing_ok=True)
        raise InputError(f"{source} cannot be copied ({type(error).__name__}); is there room for it?") from None
    with target.open("rb") as file:
        os.fsync(file.fileno())


def _versions(settings: Settings, folder: Path) -> dict[str, Any]:
    """Return the versions of both schemas, and the ledger's head, as the copy itself has them."""
    if settings.sqlite_file is None:
        dumped = json.loads((folder / DATABASE).read_text(encoding="utf-8"))
        facts = {cells[0]: cells[1] for cells in _cells(dumped, "server_facts")}
        books = next(iter(_cells(dumped, "hetdp_ledger")), None)
        if books is None:
            return {"schema": facts.get("version"), "ledger_schema": None, "head": None}
        named = dict(zip(dumped["tables"]["hetdp_ledger"]["names"], books, strict=True))
        schema, seq, digest = named["version"], named["seq"], named["hash"]
    else:
        with closing(sqlite3.connect(folder / DATABASE)) as file:
            facts = dict(file.execute("SELECT name, text FROM server_facts").fetchall())
        with closing(sqlite3.connect(folder / BOOKS)) as file:
            schema, seq, digest = file.execute("SELECT version, seq, hash FROM hetdp_ledger").fetchone()
    return {"schema": facts.get("version"), "ledger_schema": int(schema), "head": f"{seq}:{digest}"}


def _cells(dumped: Mapping[str, Any], table: str) -> list[list[str]]:
    text = dumped["tables"].get(table, {}).get("rows", "")
    return [line.split("\t") for line in text.splitlines()]


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _mac(vault: access.Vault, said: Mapping[str, Any]) -> str:
    return hmac.digest(vault.register_key, b"hetdp backup " + json.dumps(said, sort_keys=True).encode(), "sha256").hex()


def beside(place: Path, why: str) -> Path:
    """Return the name of a folder beside a file that is not there yet, with the time in it."""
    name = f"{place.name}.{why}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}"
    return next(one for i in range(1000) if not (one := place.with_name(f"{name}-{i}" if i else name)).exists())


def before_upgrade(settings: Settings) -> str | None:
    """Back up a database or ledger of an older schema, and bring the ledger to this one; return what to say, if so."""
    found = versions_there(settings)
    if found is None or found in {(tables.VERSION, SCHEMA), (tables.VERSION, None)}:
        return None
    schema, ledger = found
    if not (schema or "").isdecimal() or int(schema or 0) > int(tables.VERSION) or (ledger or 0) > SCHEMA:
        return None  # it is refused in its own words
    place = settings.sqlite_file or settings.register_file
    folder = beside(place, f"before-upgrade-{schema}-{ledger}")
    back_up(settings, folder)
    try:
        if schema == "1":
            bind_answers(settings)
        if ledger is not None and ledger < SCHEMA:
            Ledger.upgrade(settings.ledger, head_file=settings.ledger_head).close()
    except HetdpError as error:
        raise InputError(f"{error} (a backup of before is in {folder})") from None
    return (
        f"upgraded from schema {schema} of the database and {ledger} of the ledger to {tables.VERSION} and {SCHEMA}; "
        f"a backup of before is in {folder}"
    )


def not_lost(settings: Settings) -> None:
    """Raise, before a start makes or changes anything, if the database or its key is gone, or the key is another one.

    A new, empty database would forget everybody, and a new key would open nothing.
    """
    found = versions_there(settings)
    if found is None:
        if settings.ledger_head.exists():
            where = settings.sqlite_file or "the database"
            unsaid = "no setting says where the database is: is `database` or `database_file` missing? If not, "
            raise InputError(
                f"{where} is missing or empty, and {settings.ledger_head} says that a server was here; "
                f"{unsaid if settings.database == Settings.database else ''}bring it back, "
                "or go back to a backup: hetdp serve --restore FOLDER"
            )
        return
    if settings.key is None and not settings.vault_file.exists():
        raise InputError(
            f"the key file {settings.vault_file} is missing, and there is a database whose answers it alone opens: "
            "bring the key back. Nothing was made"
        )
    with tables.asked(settings.database) as connection:
        fits_key(settings, connection.execute(sa.select(tables.facts.c.text).filter_by(name="vault")).scalar())
        # These are asked for before the upgrade; others by `prepare`, once it is known that no other server runs.
        if found[0] in {"1", "2"} and not settings.trust_database:
            tables.has_register(connection, settings.register_file, found[0])


def fits_key(settings: Settings, fingerprint: str | None) -> None:
    """Raise if a database's answers were sealed with another key, and say where the right one is, if it is known."""
    if fingerprint in {None, vault_there(settings).fingerprint}:
        return
    why = "this is not the key with which the answers were sealed; nothing was changed"
    place = settings.vault_file if settings.key is None else None
    for path in sorted(place.parent.glob(f"{glob.escape(place.name)}.*")) if place else ():
        with suppress(InputError):  # it is no key
            if vault_of(key_text(path)).fingerprint == fingerprint:
                cut_off = "a key rotation was cut off, finish it with: hetdp serve --rotate-key"
                why += f"; {cut_off if path.suffix == '.new' else f'the right one is {path}: {key_back(path)}'}"
    raise InputError(why)


def key_back(old: Path) -> str:
    """Return how to use a key again that was in use until a rotation, as after a restore of a backup from before it."""
    place = str(old).partition(".until-")[0]
    return f"keep {place} under another name, because newer backups need it, then run: cp -p {old} {place}"


def bind_answers(settings: Settings) -> None:
    """Seal answers anew that the first hetdp bound to their person alone: now to study and ε too; it is version 2."""
    vault, table = vault_there(settings), tables.people
    engine = tables.connect(settings.database)
    try:
        with engine.begin() as connection:
            some = [table.c[name] for name in ("id", "study", "epsilon", "answer")]
            for row in connection.execute(sa.select(*some).where(table.c.answer.is_not(None))).all():
                bound = vault.resealed(row.answer, vault, row.id, row.study, row.epsilon, first=True)
                connection.execute(sa.update(table).where(table.c.id == row.id).values(answer=bound))
            connection.exec_driver_sql("UPDATE server_facts SET text = '2' WHERE name = 'version'")
    finally:
        engine.dispose()


def versions_there(settings: Settings) -> tuple[str | None, int | None] | None:
    """Return the schemas of the database and of the ledger as they are; None if there is no database of a server."""
    file = settings.sqlite_file
    if file is not None and not file.exists():
        return None
    with tables.asked(settings.database) as connection:
        if not sa.inspect(connection).has_table("server_facts"):
            return None
        schema = connection.exec_driver_sql("SELECT text FROM server_facts WHERE name = 'version'").scalar()
        if schema is None:
            return None
        if file is None and sa.inspect(connection).has_table("hetdp_ledger"):
            return schema, connection.exec_driver_sql("SELECT version FROM hetdp_ledger").scalar()
    if file is not None and Path(settings.ledger).exists():
        address = f"{Path(settings.ledger).as_uri()}?mode=ro"
        with tables.in_words(f"sqlite:///{settings.ledger}"), closing(sqlite3.connect(address, uri=True)) as books:
            return schema, books.execute("SELECT version FROM hetdp_ledger").fetchone()[0]
    return schema, None


# ---------------------------------------------------------------------------------------------------------
# Checking one, and putting it back


def checked(settings: Settings, folder: Path) -> Backup:
    """Return a backup that is whole and was made with this vault's key; raise otherwise."""
    vault = vault_there(settings)
    try:
        said = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        mac = said.pop("mac")
        fits = said["format"] == "hetdp-backup" and said["version"] == 1
        digests = {name: _digest(folder / name) for name in said["files"]}
    except (OSError, ValueError, LookupError, AttributeError, TypeError):
        raise InputError(f"{folder} is no whole backup: {MANIFEST} or a file that it names cannot be read") from None
    if not fits:
        raise InputError(f"{folder} was made by a newer hetdp; update hetdp")
    if said["vault"] != vault.fingerprint:
        raise InputError(f"{folder} was made with another key of the vault; give the key of then by --key-file")
    if digests != said["files"] or not hmac.compare_digest(mac, _mac(vault, said)):
        raise InputError(f"{folder} is not as it was made: a file was changed or is damaged; use another backup")
    kind = "sqlite" if settings.sqlite_file is not None else "postgresql"
    if said["kind"] != kind:
        raise InputError(f"{folder} is a backup of {said['kind']}, and --database names {kind}")
    notice = 86_400 * int(said["notice_days"])
    return Backup(folder, int(said["made"]), kind, str(said["schema"]), said["head"], notice, mac)


def not_for_root(settings: Settings) -> None:
    """Raise if root is about to write into the folder of another user."""
    folder = (settings.sqlite_file or settings.register_file).parent
    if os.geteuid() == 0 and folder.is_dir() and (owner := folder.stat().st_uid) != 0:
        raise InputError(
            f"the folder {folder} is not root's: the server could not open what root writes there. Run this as "
            f"its owner: setpriv --reuid {owner} --regid {owner} --clear-groups hetdp serve …"
        )


@contextmanager
def alone(settings: Settings) -> Iterator[None]:
    """Keep every server away from the database meanwhile; raise if one serves it."""
    other = "a server is running on this database; stop it first"
    place = settings.sqlite_file or settings.register_file
    if not place.parent.is_dir():
        raise InputError(f"the folder {place.parent} does not exist; make it first")
    not_for_root(settings)
    handle = os.open(f"{place}.lock", os.O_RDWR | os.O_CREAT, 0o600)
    engine = None if settings.sqlite_file is not None else tables.connect(settings.database)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise InputError(other) from None
        if engine is None:
            yield
        else:
            with engine.connect() as session:
                if not session.execute(sa.text("SELECT pg_try_advisory_lock(:lock)"), {"lock": tables.LOCK}).scalar():
                    raise InputError(other)
                session.commit()
                yield
    finally:
        if engine is not None:
            engine.dispose()
        os.close(handle)


def put_back(settings: Settings, backup: Backup, aside: Path, *, ledger: bool) -> None:
    """Put the database, and with `ledger` the ledger too, in their places; files that were there go to `aside`."""
    if settings.sqlite_file is None:
        engine = tables.connect(settings.database)
        try:
            _load(engine, json.loads((backup.folder / DATABASE).read_text(encoding="utf-8")), ledger=ledger)
        finally:
            engine.dispose()
        return
    set_aside(settings.register_file.with_suffix(".curator"), aside)  # the key in it has ended
    places = {DATABASE: settings.sqlite_file} | ({BOOKS: Path(settings.ledger)} if ledger else {})
    for name, place in places.items():
        fresh = place.with_name(f"{place.name}.restoring")
        fresh.unlink(missing_ok=True)
        copy(backup.folder / name, fresh)
        set_aside(place, aside)
        fresh.replace(place)


def set_aside(place: Path, aside: Path) -> None:
    """Move a file, with the logs of SQLite beside it, to another folder; nothing is deleted."""
    for path in (Path(f"{place}{end}") for end in ("-shm", "-wal", "")):
        if path.exists():
            aside.mkdir(mode=0o700, exist_ok=True)
            path.replace(aside / path.name)


# ---------------------------------------------------------------------------------------------------------
# PostgreSQL: what its catalogue says of our tables, and their rows as COPY writes them, in one JSON file

_CATALOGUE = {
    "columns": "SELECT a.attname, format_type(a.atttypid, a.atttypmod), "
    "CASE WHEN a.attcollation <> t.typcollation THEN quote_ident(c.collname) END, a.attnotnull, "
    "pg_get_expr(d.adbin, d.adrelid) FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid "
    "LEFT JOIN pg_collation c ON c.oid = a.attcollation "
    "LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum "
    "WHERE a.attrelid = to_regclass(%s) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum",
    "constraints": "SELECT quote_ident(conname), pg_get_constraintdef(oid) FROM pg_constraint "
    "WHERE conrelid = to_regclass(%s) AND contype IN ('p', 'u', 'c', 'f') ORDER BY contype = 'f', conname",
    "indexes": "SELECT pg_get_indexdef(indexrelid) FROM pg_index i WHERE indrelid = to_regclass(%s) AND NOT EXISTS "
    "(SELECT 1 FROM pg_constraint WHERE conindid = i.indexrelid) ORDER BY 1",
    "triggers": "SELECT pg_get_triggerdef(oid) FROM pg_trigger WHERE tgrelid = to_regclass(%s) AND NOT tgisinternal "
    "ORDER BY 1",
}
_FUNCTIONS = (
    "SELECT pg_get_functiondef(oid) FROM pg_proc WHERE proname IN ('hetdp_refuse', 'hetdp_refuse_other_event') "
    "AND pronamespace = current_schema()::regnamespace ORDER BY 1"
)


def _ours(connection: sa.Connection) -> list[str]:
    there = set(sa.inspect(connection).get_table_names())
    return [name for name in (*tables.schema.tables, *sorted(_FORMER), *LEDGER) if name in there]


def _dump(engine: sa.Engine, path: Path) -> None:
    """Write our tables into a file, as they are at one moment."""
    with engine.connect().execution_options(isolation_level="REPEATABLE READ") as connection:
        session: Any = connection.connection.driver_connection
        names, found = _ours(connection), {}
        if "server_facts" not in names:
            raise InputError("there is no server's database here; start the server first")
        for name in names:
            table = {
                part: [list(row) for row in session.execute(query, (name,)).fetchall()]
                for part, query in _CATALOGUE.items()
            }
            columns = [column[0] for column in table["columns"]]
            with session.cursor().copy(f"COPY {name} ({', '.join(columns)}) TO STDOUT") as rows:
                text = b"".join(bytes(part) for part in rows).decode()
            found[name] = {**table, "names": columns, "rows": text}
        functions = [row[0] for row in session.execute(_FUNCTIONS).fetchall()]
    write_whole(path, json.dumps({"functions": functions, "tables": found}))


def _load(engine: sa.Engine, dumped: Mapping[str, Any], *, ledger: bool) -> None:
    """Put tables back as a dump has them, in one transaction; without `ledger` those of the ledger stay."""
    chosen = {name: table for name, table in dumped["tables"].items() if ledger or name not in LEDGER}
    with engine.begin() as connection:
        session: Any = connection.connection.driver_connection
        for name in _ours(connection):
            if ledger or name not in LEDGER:
                session.execute(f"DROP TABLE {name} CASCADE")
        for function in dumped["functions"] if ledger else ():
            session.execute(function)  # CREATE OR REPLACE
        for name, table in chosen.items():
            parts = []
            for column, kind, collation, needed, default in table["columns"]:
                numbered = (default or "").startswith("nextval")
                parts.append(
                    f"{column} {'SERIAL' if numbered else kind}{f' COLLATE {collation}' if collation else ''}"
                    f"{' NOT NULL' if needed else ''}{f' DEFAULT {default}' if default and not numbered else ''}"
                )
            session.execute(f"CREATE TABLE {name} ({', '.join(parts)})")
            with session.cursor().copy(f"COPY {name} ({', '.join(table['names'])}) FROM STDIN") as rows:
                rows.write(table["rows"].encode())
            for column, _, _, _, default in table["columns"]:
                if (default or "").startswith("nextval"):
                    largest = f"(SELECT coalesce(max({column}), 0) + 1 FROM {name})"  # noqa: S608  our own names
                    session.execute(f"SELECT setval(pg_get_serial_sequence('{name}', '{column}'), {largest}, false)")
        rules = [(f"ALTER TABLE {t} ADD CONSTRAINT {n} {rule}") for t in chosen for n, rule in chosen[t]["constraints"]]
        rules.sort(key=lambda rule: "FOREIGN KEY" in rule)  # they need the keys of other tables
        rules += [rule for part in ("indexes", "triggers") for table in chosen.values() for (rule,) in table[part]]
        for rule in rules:
            session.execute(rule)
