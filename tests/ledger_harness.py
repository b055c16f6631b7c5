"""Workers that release, are killed at random points, and a judge: did any result leave without its charge?

    python tests/ledger_harness.py KIND WHERE FOLDER KILLS SEED

runs one round with a fresh ledger of a KIND and prints its facts as JSON. The workers are forked from a process that
has imported everything, so that a kill can come at any moment of their work. Besides the real ledger there are two
known-bad ones: the judge must find them guilty.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import sys
import time
from pathlib import Path

from hetdp.ledger import Ledger, LedgerError

WORKERS = 8
ALLOWED = 100
RELEASES = [f"r{i:03}" for i in range(ALLOWED + 8)]
PEOPLE = [f"p{i:02}" for i in range(50)]
SPEND = 0.1


class Real:
    """The ledger of this package: everybody's budget is exactly a hundred releases."""

    def __init__(self, where):
        self.where = where

    def prepare(self):
        with Ledger.create(self.where) as ledger:
            ledger.enroll(PEOPLE, budget=ALLOWED * SPEND)

    def open(self):
        self.ledger = Ledger(self.where)

    def attempt(self, release, hand_out):
        try:
            ask = {"person": PEOPLE, "bounds": (0, 1), "missing": "midpoint"}
            done = self.ledger.mean([0.5] * 50, **ask, spend=SPEND, release_id=release)
        except LedgerError:
            return
        if not done.plan.abstains:
            hand_out(done.unclamped)

    def books(self):
        """{release: times charged} and {release: result}, of what is committed; raises if it does not verify."""
        with Ledger(self.where) as ledger:
            ledger.verify()
            entries = ledger.history()
        charged = {entry.release: 1 for entry in entries if entry.kind == "charge" and entry.most}
        return charged, {entry.release: entry.estimate for entry in entries if entry.kind == "result"}


class ReadCheckWrite:
    """Known to be bad: reads the balance, decides, writes the balance. Others do so in between."""

    def __init__(self, where):
        self.where = where

    def prepare(self):
        self.open()
        self.database.execute("PRAGMA journal_mode = WAL")
        self.database.execute("CREATE TABLE balance (spent INTEGER CHECK (spent <= 100))")
        self.database.execute("CREATE TABLE charge (release TEXT)")
        self.database.execute("INSERT INTO balance VALUES (0)")
        self.database.close()

    def open(self):
        self.database = sqlite3.connect(self.where, isolation_level=None, timeout=60)

    def attempt(self, release, hand_out):
        (spent,) = self.database.execute("SELECT spent FROM balance").fetchone()
        if spent >= ALLOWED:
            return
        value = compute()
        self.database.execute("UPDATE balance SET spent = ?", [spent + 1])
        self.database.execute("INSERT INTO charge VALUES (?)", [release])
        hand_out(value)

    def books(self):
        self.open()
        rows = self.database.execute("SELECT release, count(*) FROM charge GROUP BY release").fetchall()
        self.database.close()
        return dict(rows), None


class ReleaseBeforeCharge(ReadCheckWrite):
    """Known to be bad: charges in one atomic statement, but after the result has left."""

    def attempt(self, release, hand_out):
        hand_out(compute())
        self.database.execute("BEGIN IMMEDIATE")
        if self.database.execute("UPDATE balance SET spent = spent + 1 WHERE spent < 100").rowcount:
            self.database.execute("INSERT INTO charge VALUES (?)", [release])
        self.database.execute("COMMIT")


KINDS = {"real": Real, "read-check-write": ReadCheckWrite, "release-before-charge": ReleaseBeforeCharge}


def compute():
    """What takes time between a decision and its consequences."""
    time.sleep(0.001)
    return random.random()


def worker(books, outbox, seed):
    """Carry out releases that nobody has handed out yet, in random order, until none is left."""
    random.seed(seed)
    books.open()
    out = os.open(outbox, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    tried = set()
    while True:
        done = {release for release, _ in outputs(outbox)} | tried
        open_ones = [release for release in RELEASES if release not in done]
        if not open_ones:
            return
        release = random.choice(open_ones)
        books.attempt(release, lambda value, release=release: os.write(out, f"{release} {value.hex()}\n".encode()))
        tried.add(release)


def outputs(outbox):
    """[(release, value)] of everything that left; a line cut short by a kill never left."""
    text = Path(outbox).read_text(encoding="ascii") if Path(outbox).exists() else ""
    return [tuple(line.split()) for line in text.split("\n")[:-1]]


def fork(books, outbox, seed):
    child = os.fork()
    if child:
        return child
    try:
        worker(books, outbox, seed)
        os._exit(0)
    except BaseException as error:  # noqa: BLE001  a worker must never come back into the loop of the killer
        print(f"worker: {type(error).__name__}: {error}", file=sys.stderr)
        os._exit(1)


def attack(books, outbox, kills, seed):
    """Kill workers at random moments, start others, look at the books after each kill; return what went wrong."""
    chance = random.Random(seed)
    books.prepare()
    faults, killed, failed = [], 0, 0
    running = [fork(books, outbox, chance.random()) for _ in range(WORKERS)]
    while running:
        time.sleep(chance.uniform(0, 0.04))
        victim = chance.choice(running)
        done, status = os.waitpid(victim, os.WNOHANG if killed < kills else 0)
        if done:
            running.remove(victim)
            failed += os.waitstatus_to_exitcode(status) != 0
        elif killed < kills:
            os.kill(victim, signal.SIGKILL)
            os.waitpid(victim, 0)
            running.remove(victim)
            killed += 1
            faults += judged(books, outbox)
            running.append(fork(books, outbox, chance.random()))
    faults += judged(books, outbox)
    return {"killed": killed, "failed": failed, "faults": sorted(set(faults)), "outputs": len(set(outputs(outbox)))}


def judged(books, outbox):
    """Return what is wrong between what left and what is charged; the output is read first, it can only be older."""
    left = outputs(outbox)
    try:
        charged, results = books.books()
    except LedgerError as error:
        return [f"the ledger does not verify: {error}"]
    values = {}
    for release, value in left:
        values.setdefault(release, set()).add(value)
    faults = []
    if values.keys() - charged.keys():
        faults.append("a result left without its charge")
    if sum(map(len, values.values())) > ALLOWED:
        faults.append("more results left than the budget allows")
    if sum(charged.values()) > ALLOWED:
        faults.append("more was charged than the budget allows")
    if any(len(some) > 1 for some in values.values()):
        faults.append("two results left under one id")
    if results is not None and any(clamped(v) != results.get(r) for r, some in values.items() for v in some):
        faults.append("what left is not what is stored")
    return faults


def clamped(value):
    return min(max(float.fromhex(value), 0.0), 1.0)


def warm_up(folder):
    """Load everything that a release needs, once, before the fork."""
    with Ledger.create(Path(folder) / "warm.db") as ledger:
        ledger.enroll(PEOPLE, budget=1)
        ledger.mean([0.5] * 50, person=PEOPLE, bounds=(0, 1), spend=SPEND, release_id="warm", missing="midpoint")


if __name__ == "__main__":
    kind, where, folder, kills, seed = sys.argv[1:]
    warm_up(folder)
    print(json.dumps(attack(KINDS[kind](where), str(Path(folder) / "outbox"), int(kills), seed)))
