"""The central server under load, on the loopback interface alone.

Both servers of the race run in processes of their own, one process each, on SQLite files with the same settings in the
same folder, and are asked by the same client. The bare one is what anybody would write first: FastAPI, a model, an
insert by SQLAlchemy, a commit. Ours checks session, CSRF token, rates and study, seals the answers to three questions,
and answers after the commit. Around it stand two more, in the register: what is coming, and that it came. So the bare
one is raced twice: with one commit for an answer, and with three.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import sqlalchemy as sa
from measure import FOLDER, Timer, race
from table import Bar, Row

from hetdp.server import Settings, access, store, tables

CONNECTIONS = 16
REQUESTS = 400
ROUNDS = 12
PEOPLE = 10**5
IMPORTED = 2 * 10**5
COMMITS = 3
"""How many durable commits a first answer takes here: one in the database, two in the register."""
_MANY = 10**9
WAYS = ["on foot", "by bike", "by bus"]
TIERS = {"strict": 0.1, "standard": 0.5, "open": 2.0}

BARE = """
import sys
import sqlalchemy as sa
import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel
from hetdp.server.tables import connect

engine = connect(f"sqlite:///{sys.argv[1]}/bare.db")
answers = sa.Table("answers", sa.MetaData(), sa.Column("id", sa.Integer, primary_key=True),
                   sa.Column("value", sa.Double), sa.Column("tier", sa.Text))
answers.metadata.create_all(engine)
app = FastAPI()

class Answer(BaseModel):
    value: float
    tier: str

@app.put("/api/answer")
def send(answer: Answer) -> dict[str, bool]:
    for _ in range(int(sys.argv[3])):
        with engine.begin() as connection:
            connection.execute(sa.insert(answers).values(value=answer.value, tier=answer.tier))
    return {"received": True}

@app.get("/health")
def health() -> dict[str, str]:
    return {"status": "ok"}

uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[2]), log_config=None, access_log=False)
"""
OURS = """
import sys
import server
from hetdp.server import access, run
access.now = server.moved(access.now, sys.argv[1])
run.serve(server.settings(sys.argv[1]), "127.0.0.1", int(sys.argv[2]))
"""


def settings(folder: str | Path) -> Settings:
    """Return the settings of the server under test: the usual ones, without limits on rates."""
    where = Path(folder)
    return Settings(
        database=f"sqlite:///{where}/server.db",
        key_file=where / "server.key",
        per_address=_MANY,
        per_person=_MANY,
        attempts=_MANY,
        joins=_MANY,
    )


def moved(real: Callable[[], float], folder: str) -> Callable[[], float]:
    """Return a clock that is a day ahead once a file says so: then the wave is closed and can be published."""
    return lambda: real() + (86_400 if (Path(folder) / "later").exists() else 0)


def submissions(_quick: bool) -> Iterator[Row]:  # noqa: FBT001
    """Send answers over 16 connections, each by another person; the race is in seconds for the same number of them."""
    bar = Bar("at most", 1 / 0.5)
    for commits in (1, COMMITS):
        with tempfile.TemporaryDirectory() as folder:
            study, people = filled(Path(folder), 0, ROUNDS * REQUESTS)
            with running(BARE, folder, str(commits)) as bare, running(OURS, folder) as ours:
                timed = race(bare_load(bare[0]), our_load(ours[0], people), seconds=0, least=ROUNDS - 1)
            rate = REQUESTS / min(timed.candidate), REQUESTS / min(timed.baseline)
            note = f"{rate[0]:,.0f} against {rate[1]:,.0f} a second at best, {CONNECTIONS} connections"
            many = "a commit" if commits == 1 else f"{commits} commits"
            yield Row.of(
                f"submissions, time for the same number; the bare one makes {many}",
                "bare FastAPI + SQLAlchemy insert",
                timed,
                bar,
                note,
            )
            missing = len(timed.candidate + timed.baseline[:1]) * REQUESTS - stored(Path(folder), study)
            yield Row("acknowledged answers that are not in the tally", "", missing, "", Bar("at most", 0))


def dashboard(_quick: bool) -> Iterator[Row]:  # noqa: FBT001
    """Ask for the live figures of a study with 10⁵ answers; somebody joins before every question. Then publish it."""
    with tempfile.TemporaryDirectory() as folder:
        study, people = filled(Path(folder), PEOPLE, 60)
        with running(OURS, folder) as (port, key, pid):
            head = f"Authorization: Bearer {key}\r\n"
            took = []
            for person in people:
                asyncio.run(_ask(port, [_put(person)]))
                took.append(1e3 * asyncio.run(_ask(port, [_request("GET", f"/api/studies/{study}", head)])))
            yield Row(
                "live figures, 10⁵ people, three questions, somebody joined since", "", statistics.median(took), "ms",
                Bar("at most", 200), min(took), f"{len(took)} times",
            )  # fmt: skip
            (Path(folder) / "later").touch()
            body = json.dumps({"wave": 0})
            before = processor_time(pid)
            seconds = asyncio.run(_ask(port, [_request("POST", f"/api/studies/{study}/publish", head, body)]))
            note = f"{processor_time(pid) - before:.1f} s of processor time"
            yield Row(
                "publishing 10⁵ answers to three questions, the tick included", "", seconds, "s", Bar("at most", 5),
                note=note,
            )  # fmt: skip


def imports(_quick: bool) -> Iterator[Row]:  # noqa: FBT001
    """Send answers one after the other, each by another person: with nothing else going on, then during an import."""
    with tempfile.TemporaryDirectory() as folder:
        study, people = filled(Path(folder), 0, 20 * REQUESTS)
        waiting = iter(people)
        with running(OURS, folder) as (port, key, _):
            head = f"Authorization: Bearer {key}\r\n"
            rows = _request("POST", f"/api/studies/{study}/rows", head, lines(IMPORTED), "text/csv")
            alone = [asyncio.run(_ask(port, [_put(next(waiting))])) for _ in range(REQUESTS)]
            with ThreadPoolExecutor(1) as other:
                sent, during = other.submit(lambda: asyncio.run(_ask(port, [rows]))), list[float]()
                while not sent.done():
                    during.append(asyncio.run(_ask(port, [_put(next(waiting))])))
        note = f"{len(during):,} answers in {sent.result():.0f} s; {1e3 * statistics.median(alone):.0f} ms without it"
        against = "the same without an import"
        typical = statistics.median(during) / statistics.median(alone)
        yield Row(f"an answer during an import of {IMPORTED:,} rows, median wait", against, typical, "×", note=note)
        longest = f"{max(during) / max(alone):.1f} times the longest without it, {1e3 * max(alone):.0f} ms"
        yield Row("the longest wait of them", "", max(during), "s", Bar("at most", 1), note=longest)
        missing = len(alone) + len(during) + IMPORTED - stored(Path(folder), study)
        yield Row("acknowledged answers that are not in the tally", "", missing, "", Bar("at most", 0))


# ---------------------------------------------------------------------------------------------------------
# The database beforehand


def filled(folder: Path, answered: int, waiting: int) -> tuple[str, list[tuple[str, str]]]:
    """Make a server's database with a study; return its id and, of those who wait, session and CSRF token."""
    from hetdp.server import create_app, fields, importing, people, studies
    from hetdp.server.app import close

    app = create_app(settings(folder))
    (folder / "key").write_text(app.state.first_key, encoding="ascii")
    now = int(time.time())
    new = studies.NewStudy(
        title="Bench",
        imports_count=True,
        questions=[
            studies.Question(name="hours", text="How many?", bounds=[0.0, 10.0]),
            studies.Question(name="tired", kind="yes-no", text="Are you tired?"),
            studies.Question(name="way", kind="choice", text="How did you come?", choices=WAYS),
        ],
        tiers=[studies.Tier(name=name, epsilon=level) for name, level in TIERS.items()],
        opens=now - 5,
        waves=[fields.Wave(closes=now + 80_000)],
    )
    state = app.state
    study = state.store.write(studies.create, new)
    if answered:
        mark, read = importing.read_rows(lines(answered).encode(), study, state.vault, tables.FIRST)
        state.store.write(importing.add_rows, study.id, mark, read)

    def sessions(transaction: store.Transaction) -> list[str]:
        invited = people.invite(transaction, study.id, waiting)["tokens"]
        return [people.enter(transaction, token) for token in invited]

    tokens = state.store.write(sessions)
    close(app)
    return study.id, [(token, access.csrf_of(token)) for token in tokens]


def lines(people: int) -> str:
    """Return made-up answers of so many people as CSV."""
    rng = np.random.default_rng(1)
    columns = (rng.uniform(0, 10, people).round(3), rng.choice(["yes", "no", ""], people), rng.choice(WAYS, people))
    rows = zip(*(column.tolist() for column in (*columns, rng.choice(list(TIERS), people))), strict=True)
    return "\n".join(["hours,tired,way,tier", *(",".join(map(str, row)) for row in rows)])


def stored(folder: Path, study: str) -> int:
    """Count the answers of a study in the file."""
    engine = tables.connect(settings(folder).database)
    table = tables.people
    where = (table.c.study == study) & table.c.answer.is_not(None)
    with engine.connect() as connection:
        count = connection.execute(sa.select(sa.func.count()).select_from(table).where(where)).scalar_one()
    engine.dispose()
    return int(count)


# ---------------------------------------------------------------------------------------------------------
# Servers and the client


@contextmanager
def running(code: str, folder: str, *more: str) -> Iterator[tuple[int, str, int]]:
    """Run a server in a process of its own; yield its port, the curator's key and its process."""
    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    quiet = subprocess.DEVNULL
    command = [sys.executable, "-c", code, folder, str(port), *more]
    process = subprocess.Popen(command, cwd=FOLDER, stdout=quiet, stderr=quiet)
    try:
        _wait(port, process)
        key = Path(folder) / "key"
        yield port, key.read_text(encoding="ascii") if key.exists() else "", process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def _wait(port: int, process: subprocess.Popen[bytes]) -> None:
    while process.poll() is None:
        try:
            asyncio.run(_ask(port, [_request("GET", "/health")]))
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise RuntimeError("the server did not start")


def processor_time(pid: int) -> float:
    """Return the seconds that a process has worked so far; NaN where the system has no /proc."""
    status = Path(f"/proc/{pid}/stat")
    if not status.exists():
        return float("nan")
    fields = status.read_text(encoding="ascii").rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def bare_load(port: int) -> Timer:
    """Return a timer that sends one round to the bare server."""
    return lambda: asyncio.run(_ask(port, [_put(None)] * REQUESTS))


def our_load(port: int, people: list[tuple[str, str]]) -> Timer:
    """Return a timer that sends one round to ours, by people who have not answered yet."""
    rounds = iter([people[start : start + REQUESTS] for start in range(0, len(people), REQUESTS)])
    return lambda: asyncio.run(_ask(port, [_put(person) for person in next(rounds)]))


def _put(person: tuple[str, str] | None) -> bytes:
    if person is None:
        return _request("PUT", "/api/answer", body=json.dumps({"value": 5.25, "tier": "open"}))
    head = f"Cookie: hetdp_person={person[0]}\r\nX-CSRF-Token: {person[1]}\r\n"
    said = {"hours": 5.25, "tired": True, "way": "by bus"}
    return _request("PUT", "/api/answer", head, json.dumps({"answers": said, "tier": "open"}))


def _request(method: str, path: str, head: str = "", body: str = "", form: str = "application/json") -> bytes:
    kind = f"Content-Type: {form}\r\n" if body else ""
    length = f"Content-Length: {len(body)}\r\n"
    return f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{head}{kind}{length}\r\n{body}".encode()


async def _ask(port: int, requests: list[bytes]) -> float:
    """Send requests over a few connections that stay open; return the seconds; every answer must be a success."""
    queue = iter(requests)
    lines = [await asyncio.open_connection("127.0.0.1", port) for _ in range(min(CONNECTIONS, len(requests)))]

    async def work(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for request in queue:
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            if not head.startswith((b"HTTP/1.1 200", b"HTTP/1.1 201")):
                raise RuntimeError(head.split(b"\r\n", 1)[0].decode())
            length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
            await reader.readexactly(int(length.partition(b":")[2]))

    start = time.perf_counter()
    await asyncio.gather(*(work(*line) for line in lines))
    seconds = time.perf_counter() - start
    for _, writer in lines:
        writer.close()
    return seconds


CASES: tuple[Any, ...] = (submissions, dashboard, imports)
