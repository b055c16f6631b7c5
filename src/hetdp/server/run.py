"""What an operator does: run the server, also with a sample study, replace the curator's key, back up."""

from __future__ import annotations

import json
import logging
import random
import socket
import sqlite3
import sys
import tempfile
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from hetdp.errors import InputError

from . import people, studies, tables
from .app import create_app
from .settings import Settings
from .store import Register, Transaction, begin

_BESIDE = (
    "WARNING: the key {} lies in the folder of the database. Whoever copies this folder can read every answer.\n"
    "WARNING: stop the server, move the key elsewhere, and start with --key-file FILE, or set HETDP_KEY."
)


def serve(settings: Settings, host: str, port: int, *, proxy: bool = False, demo: bool = False) -> None:
    """Serve until a signal comes; running requests are finished.

    With `proxy`, a proxy on this machine is trusted to say which address a client has. With `demo`, there is a sample
    study.
    """
    import uvicorn

    listener = _listening(host, port)
    app = create_app(settings)
    if settings.key_beside_database and not demo:
        print(_BESIDE.format(settings.vault_file), file=sys.stderr)
    address = settings.origin or f"http://{host}:{listener.getsockname()[1]}"
    lines = sample(app, address) if demo else []
    if app.state.first_key is not None:
        lines.append(f"curator key (shown this once): {app.state.first_key}")
    print(*lines, f"serving on {address}, sign in at {address}/sign-in", sep="\n", flush=True)
    _log_to_stderr()
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=proxy,
        forwarded_allow_ips="127.0.0.1",
        timeout_graceful_shutdown=10,  # seconds
        limit_concurrency=1000,
        h11_max_incomplete_event_size=2**15,
    )
    with suppress(KeyboardInterrupt):  # everything was finished and closed before it comes
        uvicorn.Server(config).run(sockets=[listener])


def _listening(host: str, port: int) -> socket.socket:
    """Return a socket on which to serve; raise before anything is made or printed if there is none."""
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        why = str(error.strerror).partition(" (")[0]  # without the address, which is named anyway
        raise InputError(f"{host} port {port} cannot be used: {why}; choose another with --port") from None


class JsonLines(logging.Formatter):
    """One JSON object a line: time, level, event, facts. Messages of exceptions and arguments are left out."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        facts: dict[str, Any] = getattr(record, "facts", {})
        ours = record.name.startswith("hetdp.") and isinstance(record.msg, str) and not record.args
        event = record.msg if ours else "note"
        return json.dumps({"time": round(record.created, 3), "level": record.levelname, "event": event, **facts})


def _log_to_stderr() -> None:
    """Write the log as JSON lines to stderr; of other libraries only what went wrong, without its message."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    logging.getLogger("hetdp.server").setLevel(logging.INFO)


def replaced_key(settings: Settings) -> str:
    """Return a new curator key; the old one and every session of the curator end."""
    engine = tables.connect(settings.database)
    register = Register(settings.register_file, settings.vault().register_key)
    try:
        if not sa.inspect(engine).has_table(tables.facts.name):
            raise InputError("there is no server's database here; start the server first")
        # Not by a store of its own: it would decide about changes that a running server is just making.
        with engine.begin() as connection:
            begin(connection, writes=True)
            return people.new_key(Transaction(connection, register))
    finally:
        register.close()
        engine.dispose()


def back_up(settings: Settings, folder: Path) -> None:
    """Copy the SQLite database and the ledger into a new folder; the server may be running.

    The key of the vault is left out on purpose: a copy of the database without it tells nobody's answer. So are the
    ledger's head and the register: they would vouch for the old copy beside them, so that budgets could be spent
    twice, and answers that were withdrawn since would come back unnoticed.
    """
    name = settings.sqlite_file
    if name is None:
        raise InputError("this copies SQLite; with PostgreSQL use pg_dump, which takes the ledger's tables along")
    ledger = Path(settings.ledger)
    for path in (name, ledger):
        if not path.exists():
            raise InputError(f"there is no database {path}; start the server first, or bring it back")
    try:
        folder.mkdir(mode=0o700)
    except OSError:
        raise InputError(f"the folder {folder} cannot be made; name one that does not exist yet") from None
    _copy(name, folder / name.name)  # first: a charge that comes meanwhile must not be missing from the ledger's copy
    _copy(ledger, folder / ledger.name)


def _copy(source: Path, target: Path) -> None:
    address = f"{source.resolve().as_uri()}?mode=rw"  # never a new and empty one
    with closing(sqlite3.connect(address, uri=True)) as old, closing(sqlite3.connect(target)) as new:
        old.backup(new)
    target.chmod(0o600)


# ---------------------------------------------------------------------------------------------------------
# A sample, so that there is something to see: 400 people have answered, five invitations are left

QUESTION = "How many hours did you sleep last night?"
TIERS = (
    ("Strict", 0.05, "Almost nothing about your answer can be learnt.", 180),
    ("Standard", 0.3, "Little can be learnt. A good choice for most people.", 140),
    ("Open", 2.0, "You do not mind if more could be learnt.", 80),
)


def serve_demo(host: str, port: int) -> None:
    """Serve a sample study from a folder that is removed at the end."""
    with tempfile.TemporaryDirectory(prefix="hetdp-demo-") as folder:
        serve(Settings(database=f"sqlite:///{folder}/demo.db"), host, port, demo=True)


def sample_rows() -> bytes:
    """Return made-up answers as CSV."""
    draw = random.Random(7)  # noqa: S311  a sample, not a secret
    people = [(draw.gauss(7.1, 1.3), name) for name, _, _, count in TIERS for _ in range(count)]
    return "\n".join(["value,tier", *(f"{value:.2f},{name}" for value, name in people)]).encode()


def sample(app: Any, address: str) -> list[str]:
    """Fill an empty server and return the lines to print: a published study, an open one, and links to answer it."""
    state, now = app.state, int(time.time())
    asked = studies.Question(name="sleep", text=QUESTION, unit="hours", bounds=[0.0, 14.0])
    new = studies.NewStudy(
        title=QUESTION,
        questions=[asked],
        imports_count=True,
        tiers=[studies.Tier(name=name, epsilon=level, sentence=said) for name, level, said, _ in TIERS],
        opens=now - 3600,
        waves=[studies.Wave(closes=now + 14 * 86_400)],
        fewest=100,
    )
    closed = {"opens": now - 7200, "waves": [studies.Wave(closes=now - 3600)]}
    earlier = new.model_copy(update={"title": "How many hours do you sleep on a usual Sunday?", **closed})
    published, current = (state.store.write(studies.create, one) for one in (earlier, new))
    for study in (published, current):  # not by `add_rows`: one of them is closed
        _, rows = people.read_rows(sample_rows(), study, state.vault)
        state.store.write(Transaction.insert, "person", rows)
    state.publisher.publish(published.id, 0)
    tokens = state.store.write(people.invite, current.id, 5)["tokens"]
    return [
        f"result       {address}/results/{published.id}",
        f"explore      {address}/explore",
        f"dashboard    {address}/curator/studies/{current.id}",
        *(f"invitation   {address}/join#{token}" for token in tokens),
    ]
