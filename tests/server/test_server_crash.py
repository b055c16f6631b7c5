"""Kill -9 in the middle of the load: every acknowledged answer is there, none twice."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time

import httpx
import numpy as np
import sqlalchemy as sa

from hetdp import Interval
from hetdp.server import tables
from serving import THREE, settings_for

SERVE = """
import sys, time
from pathlib import Path
from hetdp.server import access, run, Settings
folder, port, later = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
access.now = lambda: time.time() + later
many = dict(per_address=10**9, per_person=10**9, attempts=10**9, tick=0.0)
where = dict(database=f"sqlite:///{folder}/server.db", key_file=folder / "server.key")
run.serve(Settings(**where, **many), "127.0.0.1", port)
"""
THREADS = 6
ENOUGH = 60
"""Acknowledged answers before the server is killed; many more are under way."""


class Process:
    """A server in a process of its own."""

    def __init__(self, folder, later=0):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.address = f"http://127.0.0.1:{self.port}"
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            [sys.executable, "-c", SERVE, folder, str(self.port), str(later)], stdout=pipe, stderr=pipe, text=True
        )
        self.process.stdout.readline()
        while True:
            try:
                httpx.get(f"{self.address}/health", verify=False)  # noqa: S501  plain HTTP
            except httpx.TransportError:
                assert self.process.poll() is None, self.process.stderr.read()
                time.sleep(0.05)
            else:
                return

    def stop(self, number):
        self.process.send_signal(number)
        _, log = self.process.communicate(timeout=300)
        return self.process.returncode, log


def people_of(settings):
    engine = tables.connect(settings.database)
    with engine.connect() as connection:
        rows = connection.execute(sa.select(tables.people).where(tables.people.c.answer.is_not(None))).all()
    engine.dispose()
    return rows


def client(address, **headers):
    return httpx.Client(base_url=address, headers=headers, verify=False, timeout=120)  # noqa: S501  plain HTTP


def test_nothing_acknowledged_is_lost_or_doubled_by_kill_minus_nine(tmp_path):
    """Everybody sends a value of their own, so that a code names its sender; all receipts are honoured."""
    server = Process(tmp_path)
    key = (tmp_path / "server.db.curator").read_text().strip()
    study, links = _study(server.address, key, 1500)
    received, sent, stop = [], [], threading.Event()
    tasks = iter(enumerate(links))
    lock = threading.Lock()

    def answer():
        while not stop.is_set():
            with lock:
                number, token = next(tasks, (None, None))
            if number is None:
                return
            try:
                _answer(server.address, token, number, sent, received)
            except httpx.TransportError:
                return

    threads = [threading.Thread(target=answer) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    while len(received) < ENOUGH and any(thread.is_alive() for thread in threads):
        time.sleep(0.001)
    server.process.kill()
    stop.set()
    for thread in threads:
        thread.join()
    server.stop(signal.SIGKILL)
    assert ENOUGH <= len(received) <= len(sent) < len(links)

    settings = settings_for(tmp_path)
    vault = settings.vault()
    opened = [vault.open(row.answer, row.id, row.study, row.epsilon) for row in people_of(settings)]
    stored = sorted(int.from_bytes(codes[:4]) for codes in opened)
    codes = {number: int(code) for number, code in zip(range(len(links)), _codes(len(links)), strict=True)}
    assert len(set(stored)) == len(stored), "an answer is there twice"
    assert {codes[number] for number in received} <= set(stored), "an acknowledged answer is lost"
    assert set(stored) <= {codes[number] for number in sent}

    again = Process(tmp_path, later=7200)  # after the closing date
    with client(again.address, Authorization=f"Bearer {key}") as curator:
        assert curator.get(f"/api/studies/{study}").json()["n"] == len(stored)
        result, tired, _ = curator.post(f"/api/studies/{study}/publish", json={"wave": 0}).json()["results"]
    assert tired["figures"][0]["estimate"] == 1.0, "everybody said so"
    assert abs(result["estimate"] - np.mean(stored) / 2**20 * 10**6) < 1
    code, log = again.stop(signal.SIGTERM)
    assert code in {0, -signal.SIGTERM}
    assert json.loads(log.splitlines()[-1])["event"] == "stopped"  # a signal ends it in order


def _study(address, key, count):
    now = int(time.time())
    new = {
        "title": "t",
        "questions": [{"name": "q", "kind": "number", "text": "q", "bounds": [0, 10**6]}, *THREE[1:]],
        "tiers": [{"name": "public", "epsilon": "inf"}],
        "opens": now - 5,
        "waves": [{"closes": now + 3600}],
    }
    with client(address, Authorization=f"Bearer {key}") as curator:
        study = curator.post("/api/studies", json=new).json()["id"]
        made = curator.post(f"/api/studies/{study}/invitations", json={"count": count}).json()["links"]
    return study, [link.partition("#")[2] for link in made]


def _codes(count):
    values = 600.0 * np.arange(count)
    return Interval(0, 10**6).codes(values, np.empty(count))


def _answer(address, token, number, sent, received):
    with client(address) as person:
        csrf = person.post("/api/session/participant", json={"token": token}).json()["csrf"]
        sent.append(number)
        body = {"answers": {"q": 600.0 * number, "tired": True}, "tier": "public"}
        if person.put("/api/answer", json=body, headers={"X-CSRF-Token": csrf}).status_code == 200:
            received.append(number)


def test_control_the_codes_name_their_senders():
    assert len(set(_codes(1500).tolist())) == 1500
    assert os.name == "posix"
