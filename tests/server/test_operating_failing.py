"""What fails, fails well: clear words, no lost answer, no second writer."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace

import psycopg
import pytest
import sqlalchemy as sa

import postgres
from hetdp.errors import HetdpError, InputError
from hetdp.server import check, importing, rotate, studies, tables
from hetdp.server.store import Register, Store
from serving import saying, served, settings_for

ROWS = "value,tier\n" + "".join(f"{i % 1000 / 100},open\n" for i in range(6000))


def answers(settings):
    """The sealed answers that the database has."""
    engine = tables.connect(settings.database)
    with engine.connect() as connection:
        query = sa.select(tables.people).where(tables.people.c.answer.is_not(None))
        found = connection.execute(query).all()
    engine.dispose()
    return found


def say(person, value, tier="open"):
    return person.put("/api/answer", json=saying(value, tier=tier))


def words(said):
    return said.status_code, said.json()["error"]["code"], said.json()["error"]["message"]


# ---------------------------------------------------------------------------------------------------------
# PostgreSQL


@contextmanager
def own_server():
    """A PostgreSQL of this test's own, which can be stopped; `start` starts it again on the same files."""
    with postgres.server(fsync="on", full_page_writes="on", synchronous_commit="on", wal_recycle="off") as running:
        yield running


def beside(tmp_path, server, **changes):
    url = server.url().replace("postgresql://", "postgresql+psycopg://")
    return settings_for(tmp_path, url, head_file=tmp_path / "head", **changes)


@pytest.mark.slow
@pytest.mark.engine
def test_a_restart_of_postgresql_loses_no_acknowledged_answer_and_needs_no_hand(tmp_path):
    with own_server() as database:
        settings = beside(tmp_path, database)
        with served(settings) as site:
            study = site.study()
            people = [site.enter(token) for token in site.invite(study, 6)]
            assert say(people[0], 1.0).status_code == 200
            database.crash()
            received = 1
            for i, person in enumerate(people[1:], start=2):
                for _ in range(200):
                    said = say(person, float(i))
                    if said.status_code == 200:
                        received += 1
                        break
                    assert words(said)[:2] in {(503, "database"), (503, "register")}
                    time.sleep(0.05)
            assert site.client().get("/health").json()["status"] == "ok"
            assert site.live(study)["n"] == received == 6
        assert len(answers(settings)) == 6


@pytest.mark.slow
@pytest.mark.engine
def test_while_postgresql_is_stopped_everybody_is_told_so_and_afterwards_all_goes_on(tmp_path):
    with own_server() as database:
        settings = beside(tmp_path, database)
        with served(settings) as site:
            study = site.study()
            first, second = (site.enter(token) for token in site.invite(study, 2))
            assert say(first, 1.0).status_code == 200
            with refusing(database):
                code, word, sentence = words(say(second, 2.0))
                assert (code, word) == (503, "database")
                assert "It is not known whether this was done: look again before you repeat it." in sentence
                health = site.client().get("/health")
                assert (health.status_code, health.json()["status"]) == (503, "database")
                assert "postgres" not in health.text
            assert say(second, 2.0).status_code == 200
            assert site.client().get("/health").status_code == 200
            assert site.live(study)["n"] == 2


@contextmanager
def refusing(database):
    """Let PostgreSQL end every session and take no new one, as while it is stopped."""
    import psycopg

    hba = database.folder / "data" / "pg_hba.conf"
    before = hba.read_text()
    with psycopg.connect(database.url(), autocommit=True) as connection:
        hba.write_text("local all all reject\n")
        connection.execute("SELECT pg_reload_conf()")
        for _ in range(100):
            others = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE pid <> pg_backend_pid() "
            connection.execute(others + "AND backend_type = 'client backend'")
            try:
                psycopg.connect(database.url()).close()
            except psycopg.OperationalError:
                break
            time.sleep(0.05)
        try:
            yield
        finally:
            hba.write_text(before)
            connection.execute("SELECT pg_reload_conf()")
    for _ in range(200):
        with suppress(psycopg.OperationalError):
            psycopg.connect(database.url()).close()
            return
        time.sleep(0.05)


@pytest.mark.slow
@pytest.mark.engine
def test_a_second_server_on_the_same_postgresql_never_writes_also_after_a_reconnect(tmp_path):
    """From another machine: its register and lock file are elsewhere, only PostgreSQL can keep the two apart."""
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    with own_server() as database:
        first = beside(tmp_path / "a", database, key="ab" * 32, key_file=None)
        second = beside(tmp_path / "b", database, key="ab" * 32, key_file=None)
        with served(first) as site:
            study = site.study()
            person, other = (site.enter(token) for token in site.invite(study, 2))
            with pytest.raises(InputError, match="another process serves this database"):
                served(second).__enter__()
            # The first loses its session, and another server takes the lock before it comes back.
            rival = Store(second, Register(second.register_file, b"x" * 32))
            database.run(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() "
                "AND backend_type = 'client backend'"
            )
            try:
                rival.claim()
                said = say(person, 1.0)
                assert said.status_code == 503
                assert words(said)[1] == "another-server"
                assert site.client().get("/health").status_code == 503
                assert answers(first) == []
            finally:
                rival.close()
            for _ in range(100):
                if say(person, 1.0).status_code == 200:
                    break
                time.sleep(0.05)
            assert say(other, 2.0).status_code == 200
        assert len(answers(first)) == 2


@pytest.mark.slow
@pytest.mark.engine
def test_a_withdrawn_answer_is_gone_from_the_files_of_postgresql_once_they_are_scrubbed(tmp_path):
    def holding(folder, sealed):
        found = [path for path in (folder / "data").rglob("*") if path.is_file() and "pg_stat" not in str(path)]
        return [path.name for path in found if sealed in path.read_bytes()]

    with own_server() as database:
        settings = beside(tmp_path, database)
        with served(settings) as site:
            study = site.study()
            person, stays = (site.enter(token) for token in site.invite(study, 2))
            assert say(person, 1.0).status_code == 200
            (gone,) = (row.answer for row in answers(settings))
            assert say(stays, 2.0).status_code == 200
            (kept,) = (row.answer for row in answers(settings) if row.answer != gone)
            assert person.delete("/api/answer").status_code == 200
            assert site.app.state.store.leftovers
            database.run("CHECKPOINT")
            assert holding(database.folder, gone), "the control: it is there before"
            for _ in range(3):  # the log goes some files later
                rotate.scrub(settings.database)
            assert holding(database.folder, gone) == []
            assert holding(database.folder, kept)


@pytest.mark.slow
@pytest.mark.engine
def test_the_statistics_of_postgresql_copy_no_answer(tmp_path):
    """ANALYZE, which runs by itself, keeps a sample of each column; a withdrawn answer would stay in it."""
    copied = "SELECT count(*) FROM pg_stats WHERE tablename = 'server_people' AND attname = 'answer'"
    with own_server() as database:
        settings = beside(tmp_path, database)

        def counted():
            database.run("ANALYZE server_people")
            with psycopg.connect(database.url()) as connection:
                return connection.execute(copied).fetchone()[0]

        with served(settings) as site:
            site.join(site.study(), [(float(i), "open") for i in range(5)])
            assert counted() == 0
        database.run("ALTER TABLE server_people ALTER answer SET STATISTICS -1")
        assert counted() == 1, "the control: as it is without the server's word"
        with served(settings):
            assert counted() == 0, "and what an older version left is gone with the next start"


# ---------------------------------------------------------------------------------------------------------
# Files: full, read-only, missing


@contextmanager
def small_disk(folder, size="24m"):
    """A file system of its own that is soon full."""
    folder.mkdir()
    command = ["/bin/mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("only root can mount a small file system")
    try:
        yield folder
    finally:
        subprocess.run(["/bin/umount", "-l", folder], check=False)


@pytest.mark.slow
def test_on_a_full_disk_answers_are_refused_in_words_and_none_that_was_acknowledged_is_lost(tmp_path):
    with small_disk(tmp_path / "disk") as disk:
        settings = settings_for(disk, key_file=tmp_path / "k")
        with served(settings) as site:
            study = site.study()
            people = [site.enter(token) for token in site.invite(study, 30)]
            assert say(people[0], 1.0).status_code == 200
            with (disk / "filler").open("wb", buffering=0) as filler, suppress(OSError):
                while True:
                    filler.write(b"x" * 4096)
            received = 1
            refused = 0
            for person in people[1:]:
                said = say(person, 2.0)
                received += said.status_code == 200
                if said.status_code != 200:
                    refused += 1
                    assert words(said)[:2] in {(503, "database"), (503, "register")}
            assert refused
            assert site.client().get("/health").status_code == 503
            (disk / "filler").unlink()
            assert say(people[-1], 3.0).status_code == 200
            received += 1
            assert site.live(study)["n"] == received
        assert len(answers(settings)) == received


@pytest.mark.slow
@pytest.mark.engine
def test_if_the_disk_of_postgresql_is_full_answers_are_refused_in_words_and_it_goes_on_when_there_is_room(tmp_path):
    """The tables lie on a small disk; the log of PostgreSQL, without which it would stop, on another."""
    with own_server() as database, small_disk(database.folder / "disk") as disk:
        tables_of = disk / "tables"
        tables_of.mkdir()
        for folder in (disk, tables_of):
            shutil.chown(folder, (database.folder / "data").owner())
        database.run(f"CREATE TABLESPACE small LOCATION '{tables_of}'")
        database.run("CREATE DATABASE survey TABLESPACE small")
        url = database.url("survey").replace("postgresql://", "postgresql+psycopg://")
        settings = settings_for(tmp_path, url, head_file=tmp_path / "head")
        with served(settings) as site:
            study = site.study()
            people = [site.enter(token) for token in site.invite(study, 150)]
            assert say(people[0], 1.0).status_code == 200
            with (disk / "filler").open("wb", buffering=0) as filler, suppress(OSError):
                while True:
                    filler.write(b"x" * 4096)
            said = [say(person, 2.25) for person in people[1:]]
            refused = [one for one in said if one.status_code != 200]
            assert {words(one)[:2] for one in refused} == {(503, "database")}
            assert all("It is not known whether this was done" in one.text for one in refused)
            received = 1 + len(said) - len(refused)
            assert site.live(study)["n"] == received, "reading goes on"
            (disk / "filler").unlink()
            assert say(people[-1], 3.0).status_code == 200
            received += said[-1].status_code != 200
            assert site.live(study)["n"] == received
            assert site.publish(study).status_code == 200
            assert site.client().get("/health").status_code == 200
        assert refused, "a control: the disk was full"


def test_a_database_that_cannot_be_written_or_is_missing_is_refused_in_words(tmp_path):
    settings = settings_for(tmp_path)
    with served(settings) as site:
        site.study()
    wal = settings.sqlite_file
    keep = tmp_path / "aside"
    wal.rename(keep)
    with pytest.raises(InputError, match="is missing or empty"):
        served(settings).__enter__()  # a new, empty database must not take the place of the one that is gone
    wal.unlink(missing_ok=True)
    keep.rename(wal)
    with served(settings) as site:
        assert site.client().get("/health").status_code == 200


@pytest.mark.slow
def test_a_read_only_disk_is_said_by_check_and_refused_at_the_start(tmp_path):
    with small_disk(tmp_path / "disk") as disk:
        settings = settings_for(disk, key_file=tmp_path / "k", port=0)
        with served(settings) as site:
            study = site.study()
            key = site.key
        subprocess.run(["/bin/mount", "-o", "remount,ro", disk], check=True)
        assert ("database", "error") in {(one.part, one.level) for one in check.check(settings)}
        with pytest.raises((HetdpError, OSError)):
            served(settings).__enter__()
        subprocess.run(["/bin/mount", "-o", "remount,rw", disk], check=True)
        with served(settings) as site:
            site.curator.headers["Authorization"] = f"Bearer {key}"
            assert site.live(study)["n"] == 0


def test_a_second_server_on_the_same_file_is_refused(tmp_path):
    settings = settings_for(tmp_path)
    with served(settings) as site:
        with pytest.raises(InputError, match="another process serves this database"):
            served(settings).__enter__()
        assert site.client().get("/health").status_code == 200


# ---------------------------------------------------------------------------------------------------------
# A large import


def test_answers_are_taken_between_the_batches_of_a_large_import(tmp_path, monkeypatch):
    with served(settings_for(tmp_path)) as site:
        study = site.study()
        (person,) = (site.enter(token) for token in site.invite(study, 1))
        seen, some = [], importing._some
        asked = threading.Event()

        def watched(*arguments):
            asked.set()
            return some(*arguments)

        monkeypatch.setattr(importing, "_some", watched)
        imported = []
        thread = threading.Thread(target=lambda: imported.append(site.rows(study, ROWS)))
        thread.start()
        asked.wait(60)
        seen.append(say(person, 1.0).status_code)
        between = not imported
        thread.join()
        assert seen == [200]
        assert between, "the answer waited for the whole file"
        assert imported[0].json() == {"people": 6000}
        assert site.rows(study, ROWS).json() == {"people": 6000}  # the same file is known
        assert site.live(study)["n"] == 6001


@pytest.mark.parametrize("planted", [False, True], ids=["as it is", "a control: one batch for all"])
def test_after_every_batch_of_an_import_somebody_else_has_the_turn(tmp_path, monkeypatch, planted):
    """In each pause a person answers and is told so: no more rows than a batch has lie between two such moments."""
    with served(settings_for(tmp_path)) as site:
        study = site.study()
        people = iter([site.enter(token) for token in site.invite(study, 60)])
        happened, some = [], importing._some

        def written(transaction, name, rows):
            happened.append(len(rows))
            return some(transaction, name, rows)

        def paused(_):
            assert say(next(people), 1.0).status_code == 200  # it would wait for ever if the import kept the turn
            happened.append("answer")

        monkeypatch.setattr(importing, "_some", written)
        monkeypatch.setattr(importing, "time", SimpleNamespace(perf_counter=time.perf_counter, sleep=paused))
        monkeypatch.setattr(importing, "_LARGEST", 6000 if planted else 500)
        monkeypatch.setattr(importing, "_SECONDS", 3600 if planted else importing._SECONDS)
        assert site.rows(study, ROWS).json() == {"people": 6000}
        batches = [rows for rows in happened if rows != "answer"]
        assert happened == [one for rows in batches for one in (rows, "answer")]
        assert (max(*batches, 6000 - sum(batches)) <= 500) != planted, "the rest comes in the last transaction"
        assert site.live(study)["n"] == 6000 + len(batches)


def test_a_study_is_not_published_while_a_file_is_imported(tmp_path, monkeypatch):
    with served(settings_for(tmp_path)) as site:
        study, told, some = site.study(), [], importing._some

        def watched(transaction, *rest):
            if not told:
                told.append(transaction.fact(f"importing {study}"))
            return some(transaction, *rest)

        monkeypatch.setattr(importing, "_some", watched)
        assert site.rows(study, ROWS).json() == {"people": 6000}
        assert told != [None]
        site.app.state.store.write(lambda transaction: transaction.set_fact(f"importing {study}", told[0]))
        assert words(site.publish(study))[:2] == (409, "importing")
        assert words(site.rows(study, "value,tier\n5,open\n"))[:2] == (409, "importing")


def test_an_import_that_fails_on_the_way_leaves_nobody_behind(tmp_path, monkeypatch):
    with served(settings_for(tmp_path)) as site:
        study, calls, some = site.study(), [], importing._some

        def failing(*arguments):
            calls.append(1)
            if len(calls) == 3:
                raise OSError
            return some(*arguments)

        monkeypatch.setattr(importing, "_some", failing)
        monkeypatch.setattr(importing, "_LARGEST", 250)
        assert site.rows(study, ROWS).status_code == 500
        assert site.live(study)["n"] == 0
        monkeypatch.setattr(importing, "_some", some)
        assert site.rows(study, ROWS).json() == {"people": 6000}
        assert site.publish(study).status_code == 200


KILLED = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from hetdp.server import importing
from serving import served, settings_for
some, calls = importing._some, []
def killed(*arguments):
    calls.append(1)
    if len(calls) == 4:
        os.kill(os.getpid(), signal.SIGKILL)
    return some(*arguments)
importing._some, importing._LARGEST = killed, 250
with served(settings_for(Path(sys.argv[1]))) as site:
    study = site.study()
    print(study, site.key, flush=True)
    site.rows(study, "value,tier\\n" + "5,open\\n" * 6000)
"""


@pytest.mark.slow
def test_an_import_that_is_killed_on_the_way_is_undone_at_the_next_start(tmp_path):
    tests = Path(__file__).parents[1]
    environment = {**os.environ, "PYTHONPATH": str(Path(studies.__file__).parents[2])}
    command = [sys.executable, "-c", KILLED, tmp_path, str(tests)]
    killed = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    study, key = killed.stdout.split()
    settings = settings_for(tmp_path)
    assert answers(settings)  # the control: half of it is there
    with served(settings) as site:
        site.curator.headers["Authorization"] = f"Bearer {key}"
        assert site.live(study)["n"] == 0
        assert site.rows(study, "value,tier\n" + "5,open\n" * 6000).json() == {"people": 6000}
        assert site.publish(study).status_code == 200


# ---------------------------------------------------------------------------------------------------------
# Commands beside a running server

RUNNING = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from serving import saying, served, settings_for
settings = settings_for(Path(sys.argv[1]))
with served(settings) as site:
    study, key = site.study(), site.key
with served(settings) as site:
    site.curator.headers["Authorization"] = f"Bearer {key}"
    site.join(study, [(3, "open")])
    print(study, key, flush=True)
    sys.stdin.readline()
    site.join(study, [(4, "open")])
    os.kill(os.getpid(), signal.SIGKILL)
"""
ASIDE = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from hetdp.server import backup, check
from serving import settings_for
settings = settings_for(Path(sys.argv[1]))
list(check.check(settings))
backup.back_up(settings, Path(sys.argv[1]) / "backup")
"""


@pytest.mark.slow
def test_after_a_check_and_a_backup_beside_it_a_server_that_is_killed_has_lost_nothing(tmp_path):
    """Its files still have their write-ahead logs: SQLite in the other process knows that it is not the last one."""
    tests = Path(__file__).parents[1]
    environment = {**os.environ, "PYTHONPATH": str(Path(studies.__file__).parents[2])}
    command = [sys.executable, "-c", RUNNING, tmp_path, str(tests)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "env": environment}
    with subprocess.Popen(command, **pipes) as running:
        study, key = running.stdout.readline().split()
        subprocess.run([sys.executable, "-c", ASIDE, tmp_path, str(tests)], env=environment, check=True)
        held = [str(one.readlink()) for one in Path(f"/proc/{running.pid}/fd").iterdir()]
        assert any(name.endswith("-wal") for name in held), "a control: it has a log open"
        assert [name for name in held if "deleted" in name and str(tmp_path) in name] == []
        running.communicate("go on\n")
    assert running.returncode == -signal.SIGKILL
    settings = settings_for(tmp_path)
    assert len(answers(settings)) == 2
    with served(settings) as site:
        site.curator.headers["Authorization"] = f"Bearer {key}"
        assert site.publish(study).json()["results"][0]["n"] == 2
