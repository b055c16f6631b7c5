"""What an operator does: run the server, also with a sample study, replace the curator's key."""

from __future__ import annotations

import gc
import json
import logging
import os
import random
import socket
import sys
import tempfile
import time
from contextlib import suppress
from typing import Any

import sqlalchemy as sa

from hetdp.errors import InputError

from . import importing, people, studies, tables
from .app import create_app
from .backup import not_for_root, vault_there
from .check import check_clock
from .settings import Settings
from .store import Register, Transaction, begin

_BESIDE = (
    "WARNING: the key {} lies in the folder of the database. Whoever copies this folder can read every answer.\n"
    "WARNING: stop the server, move the key elsewhere, and start with --key-file FILE, or set HETDP_KEY."
)


def serve(settings: Settings, host: str, port: int, *, proxy: bool = False, demo: bool = False) -> None:
    """Serve until a signal comes; running requests are finished.

    With `proxy`, a proxy on this machine is trusted to say which address a client has, as are those of the settings.
    With `demo`, there is a sample study.
    """
    import uvicorn

    not_for_root(settings)
    check_clock(settings)
    listener = _listening(host, port)
    proxies = (*settings.proxies, "127.0.0.1") if proxy else settings.proxies
    app = create_app(settings)
    if app.state.upgraded is not None:
        print(app.state.upgraded, file=sys.stderr)
    if settings.key_beside_database and not demo:
        print(_BESIDE.format(settings.vault_file), file=sys.stderr)
    address = settings.origin or f"http://{host}:{listener.getsockname()[1]}"
    lines = sample(app, address) if demo else []
    if app.state.first_key is not None:
        lines.append(_handed_over(app.state.first_key, settings, printed=demo or sys.stdout.isatty()))
    print(*lines, f"serving on {address}, sign in at {address}/sign-in", sep="\n", flush=True)
    _log_to_stderr()
    gc.freeze()  # what is loaded by now stays: a collection need not look at it while a large study is published
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=bool(proxies),
        forwarded_allow_ips=list(proxies),
        timeout_graceful_shutdown=10,  # seconds
        limit_concurrency=1000,
        h11_max_incomplete_event_size=2**15,
    )
    with suppress(KeyboardInterrupt):  # everything was finished and closed before it comes
        uvicorn.Server(config).run(sockets=[listener])


def _handed_over(key: str, settings: Settings, *, printed: bool) -> str:
    """Return the line about the first curator's key; if it is not printed it is in a file: a journal keeps lines."""
    if printed:
        return f"curator key (shown this once): {key}"
    path = settings.register_file.with_suffix(".curator")
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
        file.write(f"{key}\n")
    return f"curator key: in {path}, for its owner alone; sign in with it, then delete the file"


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
    file = settings.sqlite_file
    if file is not None and not file.exists():
        raise InputError(f"there is no database {file}; is this the right folder? Nothing was made")
    register = Register(settings.register_file, vault_there(settings).register_key)
    engine = tables.connect(settings.database)
    try:
        if not sa.inspect(engine).has_table(tables.facts.name):
            raise InputError("there is no server's database here; start the server first")
        # Not by a store of its own: it would decide about changes that a running server is just making.
        with engine.begin() as connection:
            begin(connection, writes=True)
            transaction = Transaction(connection, register)
            key = people.new_key(transaction)
            register.prepare({}, transaction.epochs)  # what ends the sessions
            return key
    finally:
        register.close()
        engine.dispose()


# ---------------------------------------------------------------------------------------------------------
# A sample, so that there is something to see: a study whose first publication is out and whose second one is open

TITLE = "Sleep and the way to work"
WAYS = ["On foot", "By bike", "By bus or train", "By car", "I work at home"]
QUESTIONS: list[dict[str, Any]] = [
    {
        "name": "sleep",
        "kind": "number",
        "text": "How many hours did you sleep last night?",
        "unit": "hours",
        "bounds": [0.0, 14.0],
        "share": 0.4,
    },
    {"name": "rested", "kind": "yes-no", "text": "Did you feel rested this morning?", "share": 0.2},
    {"name": "way", "kind": "choice", "text": "How do you get to work on most days?", "choices": WAYS, "share": 0.4},
]
TIERS = (
    ("Strict", 0.2, "Very little about your answers can be learnt.", 900),
    ("Standard", 0.8, "Little can be learnt.", 800),
    ("Open", 2.0, "More can be learnt; it can help the results most.", 500),
)
ABOUT = {
    "institute": "Example Institute for Sleep Research",
    "contact": "survey@example.org",
    "notice": "This is a sample. Nothing that you send leaves this computer, and everything is deleted when it stops.",
    "consent": "I agree that my answers are used for the publications of this survey.",
}


def serve_demo(host: str, port: int) -> None:
    """Serve a sample study from a folder that is removed at the end."""
    with tempfile.TemporaryDirectory(prefix="hetdp-demo-") as folder:
        serve(Settings(database=f"sqlite:///{folder}/demo.db"), host, port, demo=True)


def sample_rows() -> bytes:
    """Return made-up answers as CSV; of each question some people prefer not to say."""
    draw = random.Random(7)  # noqa: S311  a sample, not a secret
    rows = ["sleep,rested,way,tier"]
    for name, _, _, count in TIERS:
        for _ in range(count):
            hours = draw.gauss(7.1, 1.2)
            rested = "yes" if hours + draw.gauss(0, 1) > 6.8 else "no"
            way = draw.choices(WAYS, [15, 25, 30, 20, 10])[0]
            said = [f"{hours:.2f}", rested, way]
            rows.append(",".join([*(one if draw.random() > 0.06 else "" for one in said), name]))
    return "\n".join(rows).encode()


def sample_study(now: int, **changes: Any) -> studies.NewStudy:
    """Return the sample's study: one publication was due an hour ago, the next one is in four weeks."""
    return studies.NewStudy.model_validate(
        {
            "title": TITLE,
            "questions": QUESTIONS,
            "tiers": [{"name": name, "epsilon": level, "sentence": said} for name, level, said, _ in TIERS],
            "opens": now - 28 * 86_400,
            "waves": [{"closes": now - 3600, "share": 0.5}, {"closes": now + 28 * 86_400, "share": 0.5}],
            "fewest": 100,
            "imports_count": True,
            "about": ABOUT,
            **changes,
        }
    )


def sample(app: Any, address: str) -> list[str]:
    """Fill an empty server and return the lines to print: what is published, the dashboard, and links to answer."""
    state = app.state
    study = state.store.write(studies.create, sample_study(int(time.time())))
    _, rows = importing.read_rows(sample_rows(), study, state.vault, tables.FIRST)
    state.store.write(Transaction.insert, "person", rows)  # not by `add_rows`: the first closing date has passed
    state.publisher.publish(study.id, 0)
    tokens = state.store.write(people.invite, study.id, 5)["tokens"]
    return [
        f"results      {address}/results/{study.id}",
        f"explore      {address}/explore",
        f"dashboard    {address}/curator/studies/{study.id}",
        *(f"invitation   {address}/join#{token}" for token in tokens),
    ]
