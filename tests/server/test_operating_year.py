"""One installation through a year: from the first schema to erasure, and the ledger holds at each step."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest

import hetdp
from serving import DAY, later, served, settings_for

OLD = Path(__file__).parents[1] / "old"
TOTAL = {"strict": 0.1, "open": 2.0}
KILLED = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from hetdp.server import publish
from serving import later, served, settings_for
keep = publish.Reading.keep
def killed(self, *drawn):
    keep(self, *drawn)
    os.kill(os.getpid(), signal.SIGKILL)
publish.Reading.keep = killed
with served(settings_for(Path(sys.argv[1]))) as site:
    site.curator.headers["Authorization"] = f"Bearer {sys.argv[3]}"
    with later(int(sys.argv[5])):
        site.publish_now(sys.argv[4], int(sys.argv[6]))
"""


def hetdp_command(folder, *arguments):
    """Run a command as an operator does; give back what it printed."""
    where = ["--database", f"sqlite:///{folder}/server.db", "--key-file", folder / "server.key", "--port", "0"]
    environment = {**os.environ, "PYTHONPATH": str(Path(hetdp.__file__).parents[1])}
    command = [sys.executable, "-m", "hetdp", *arguments]
    command += where if arguments[0] == "serve" else []
    done = subprocess.run(list(map(str, command)), env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout + done.stderr


def verified(folder, seen):
    """Verify the ledger, also against the last head that was written down; write down the new one."""
    expect = ["--expect-head", seen[-1]] if seen else []
    ledger, head = folder / "server.db.ledger", folder / "server.db.ledger.head"
    told = json.loads(hetdp_command(folder, "ledger", "verify", ledger, "--head-file", head, "--json", *expect))
    seen.append(told["head"])
    return told


@pytest.mark.slow
def test_an_installation_lives_through_a_year(tmp_path):
    """Install, study, wave, upgrade from the first schema, wave, crash, restore, a new key, wave, erase."""
    folder, heads, now = tmp_path / "survey", [], time.time()
    folder.mkdir()
    with tarfile.open(OLD / "server-1.tar.gz") as packed:  # installed with the first schema: a study, a wave
        packed.extractall(folder, filter="data")
    about = json.loads((folder / "about.json").read_text())
    settings = settings_for(folder, trust_database=True)
    far = 4_000_000_000 - now + 60
    tests = str(Path(__file__).parents[1])

    # The upgrade, and the second wave of the study of then.
    with served(settings) as site:
        assert "a backup of before is in" in site.app.state.upgraded
        site.curator.headers["Authorization"] = f"Bearer {about['key']}"
        with later(far):
            assert site.publish_now(about["study"], 1).status_code == 200
        waves = [{"closes": int(now) + 3600 + 90 * DAY * i, "share": 0.25} for i in range(4)]
        study = site.study(waves=waves)
        crowd = [(float(i % 10), ("strict", "open")[i % 2]) for i in range(40)]
        site.join(study, crowd)
        with later(2 * 3600):
            assert site.publish_now(study, 0).status_code == 200
    assert verified(folder, heads)["results"] == 3
    settings = settings_for(folder)

    # A backup; then a crash in the middle of the second wave: the number is drawn, and the server is killed.
    hetdp_command(folder, "serve", "--backup", tmp_path / "backup", "--trust-clock")
    command = [sys.executable, "-c", KILLED, folder, tests, about["key"], study, str(91 * DAY), "1"]
    environment = {**os.environ, "PYTHONPATH": str(Path(hetdp.__file__).parents[1])}
    killed = subprocess.run(list(map(str, command)), env=environment, capture_output=True, text=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    verified(folder, heads)

    # The disk is lost: the backup is older than that wave. The register and the head stood elsewhere.
    for name in ("server.db", "server.db-wal", "server.db-shm", "server.db.ledger"):
        (folder / name).unlink(missing_ok=True)
    said = hetdp_command(folder, "serve", "--restore", tmp_path / "backup", "--trust-clock")
    assert "40 answers kept" in said
    assert "publication 2 of study" in said
    key = said.split()[-1]
    heads.clear()  # a new history begins at the head of the backup
    assert verified(folder, heads)["people"] == 70

    # A new key, and the third wave.
    said = hetdp_command(folder, "serve", "--rotate-key")
    assert "sealed with a new key" in said
    verified(folder, heads)
    with served(settings) as site:
        site.curator.headers["Authorization"] = f"Bearer {key}"
        with later(182 * DAY):
            lost = site.publish_now(study, 1)
            assert lost.status_code == 404  # over, and not in this copy
            third = site.publish_now(study, 2)
            assert third.status_code == 200, third.text
        verified(folder, heads)

        # Erase: the study goes, what it cost stays.
        assert site.curator.delete(f"/api/studies/{study}").status_code == 200
        told = site.curator.get("/api/status").json()
        assert told["answers_kept"] == 0
        assert site.client().get("/health").json()["status"] == "ok"
    told = verified(folder, heads)
    with hetdp.Ledger(settings.ledger, head_file=settings.ledger_head) as ledger:
        for balance in ledger.balances():
            assert balance.spent <= balance.budget
            if balance.budget in TOTAL.values():
                assert balance.spent <= balance.budget
        spent = {balance.person: balance.spent for balance in ledger.balances() if balance.budget == 0.1}
    assert max(spent.values()) > 0
    assert told["charges"] == told["results"]
