"""Backup, restore and a new key: nothing is used twice, nothing that was withdrawn comes back, and losses are said."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import sqlalchemy as sa

from hetdp.errors import HetdpError, InputError
from hetdp.ledger import Ledger
from hetdp.server import access, people, rotate, tables
from hetdp.server.backup import back_up, checked
from hetdp.server.restore import restore
from serving import DAY, later, saying, served, settings_for

WAVES = 4
CROWD = [(float(i % 10), ("strict", "open")[i % 2]) for i in range(30)]


def waves(count=WAVES):
    now = int(time.time())
    return [{"closes": now + 3600 + 30 * DAY * i, "share": 1 / count} for i in range(count)]


@pytest.fixture(params=["sqlite", "postgres"])
def settings(request, tmp_path):
    """Settings of a server whose key, head and register lie apart from a database of either kind."""
    for name in ("data", "keys", "beside"):
        (tmp_path / name).mkdir()
    url = None
    if request.param == "postgres":
        durable = request.getfixturevalue("durable_server")
        database = request.getfixturevalue("durable_database")
        url = durable.url(database).replace("postgresql://", "postgresql+psycopg://")
    return settings_for(
        tmp_path / "data", url, key_file=tmp_path / "keys" / "k", head_file=tmp_path / "beside" / "head", port=0
    )


@pytest.fixture
def durable_database(durable_server):
    with durable_server.database() as name:
        yield name


def spend(settings, person):
    with Ledger(settings.ledger, head_file=settings.ledger_head) as ledger:
        return ledger.balance(person).spent


def verified(settings):
    with Ledger(settings.ledger, head_file=settings.ledger_head) as ledger:
        return ledger.verify()


def rows(settings, answered=True):
    engine = tables.connect(settings.database)
    with engine.connect() as connection:
        query = sa.select(tables.people)
        found = connection.execute(query.where(tables.people.c.answer.is_not(None)) if answered else query).all()
    engine.dispose()
    return {row.id: row for row in found}


def lose(settings, *parts):
    """Lose parts of an installation: the database (with the ledger), the ledger, the register, the head."""
    if settings.sqlite_file is None:
        engine = tables.connect(settings.database)
        with engine.begin() as connection:
            names = sa.inspect(connection).get_table_names()
            lost = [name for name in names if name.startswith("server_") and "database" in parts]
            lost += [name for name in names if name.startswith("hetdp_") and "ledger" in parts]
            for name in lost:
                connection.exec_driver_sql(f"DROP TABLE {name} CASCADE")
            if "ledger" in parts:
                connection.exec_driver_sql("DROP FUNCTION hetdp_refuse, hetdp_refuse_other_event")
        engine.dispose()
    files = {"database": settings.sqlite_file, "ledger": settings.sqlite_file and Path(settings.ledger)}
    files |= {"register": settings.register_file, "head": settings.ledger_head}
    for part in parts:
        for end in ("", "-wal", "-shm"):
            if files[part] is not None:
                Path(f"{files[part]}{end}").unlink(missing_ok=True)


def again(settings, key):
    """Serve with a key that is known."""
    served_again = served(settings)
    site = served_again.__enter__()
    site.curator.headers["Authorization"] = f"Bearer {key}"
    return served_again, site


class Installation:
    """One server with a study of four waves and thirty people; a backup after the first wave."""

    def __init__(self, settings, folder):
        self.settings, self.folder = settings, folder
        with served(settings) as site:
            self.study = site.study(waves=waves())
            self.people = site.join(self.study, CROWD)
            assert site.publish(self.study, 0).status_code == 200
        back_up(settings, folder)
        self.before = rows(settings)
        self.spent = {person: spend(settings, person) for person in self.before}

    def publish(self, key, wave):
        with served(self.settings) as site:
            site.curator.headers["Authorization"] = f"Bearer {key}"
            return site.publish(self.study, wave)


@pytest.fixture
def installation(settings, tmp_path):
    return Installation(settings, tmp_path / "backup")


def check_budgets(installation, key, truth, chosen):
    """Publish all that is left; what was really spent before, and what is charged now, stay within what was chosen."""
    for wave in range(2, WAVES):
        said = installation.publish(key, wave)
        assert said.status_code in {200, 404, 409}, said.text
    with Ledger(installation.settings.ledger, head_file=installation.settings.ledger_head) as ledger:
        ledger.verify()
        charged = {wave: uses for wave, uses in ledger.spends().items() if wave.split("-")[1] in {"2", "3"}}
    for person, epsilon in chosen.items():
        new = sum(uses.get(person, 0) for uses in charged.values()) / 1e9
        assert new == 0 or truth[person] + new <= epsilon * (1 + 1e-9), person
    return charged


@pytest.mark.slow
def test_a_restore_with_nothing_lost_since_keeps_everything(installation):
    settings = installation.settings
    lose(settings, "database", "ledger")
    told = restore(settings, installation.folder)
    assert (told.kept, told.emptied, told.came_later, told.waves, told.written_off) == (30, 0, 0, [], 0)
    assert rows(settings) == installation.before
    assert {person: spend(settings, person) for person in installation.before} == installation.spent
    with served(settings) as site:
        site.curator.headers["Authorization"] = f"Bearer {told.key}"
        assert site.curator.get(f"/api/results/{installation.study}").json()["wave"] == 0
        assert site.publish(installation.study, 1).status_code == 200
    verified(settings)


@pytest.mark.slow
def test_the_old_curator_key_ends_with_a_restore(installation):
    with served(installation.settings) as site:
        key = site.app.state.store.write(people.new_key)
    told = restore(installation.settings, installation.folder)
    with served(installation.settings) as site:

        def asked(key):
            return site.client(Authorization=f"Bearer {key}").get("/api/studies").status_code

        assert (asked(key), asked(told.key)) == (401, 200)


def change_after_backup(installation):
    """After the backup: one withdraws, one lowers ε, one comes anew, and the second wave is published."""
    with served(installation.settings) as site:
        site.curator.headers["Authorization"] = f"Bearer {site.app.state.store.write(people.new_key)}"
        vault = installation.settings.vault()
        everybody = sorted(installation.before.values(), key=lambda row: row.id)
        opens = [row for row in everybody if row.epsilon == 2.0][:2]
        tokens = [access.open_session(site.app.state.store.register, access.PARTICIPANT, row.id) for row in opens]
        clients = []
        for token in tokens:
            client = site.client(Cookie=f"{access.PARTICIPANT}={token}", **{"X-CSRF-Token": access.csrf_of(token)})
            clients.append(client)
        assert clients[0].delete("/api/answer").status_code == 200
        assert clients[1].put("/api/answer", json=saying(1.0, tier="strict")).status_code == 200
        site.join(installation.study, [(5.0, "open")])
        assert vault.fingerprint
        said = site.publish(installation.study, 1)
        assert said.status_code == 200, said.text
    return opens


LOSSES = {
    "the database alone": ("database",),
    "database and ledger": ("database", "ledger"),
    "database and register": ("database", "register"),
    "database, ledger and register": ("database", "ledger", "register"),
    "everything": ("database", "ledger", "register", "head"),
}


@pytest.mark.slow
@pytest.mark.parametrize("trusted", [False, True])
@pytest.mark.parametrize("lost", LOSSES)
def test_a_backup_older_than_the_last_publication_spends_nothing_twice(lost, trusted, installation):
    """Whatever was lost with the database: who withdrew stays withdrawn, and nobody spends more than they chose."""
    settings, parts = installation.settings, LOSSES[lost]
    withdrawn, lowered = change_after_backup(installation)
    truth = {person: spend(settings, person) for person in installation.before if person != withdrawn.id}
    lose(settings, *parts)
    with later(60 * DAY):  # some time passes, or nothing could have been published since
        told = restore(settings, installation.folder, trusted=trusted)
        left = rows(settings)
        knows = "register" not in parts
        if knows or not trusted:
            assert withdrawn.id not in left
            assert lowered.id not in left
        # Without register and ledger all waves may have been published: the study is over, and keeps no answer.
        assert told.kept == (28 if knows else 30 if trusted and "ledger" not in parts else 0)
        assert told.emptied == 30 - told.kept
        assert (told.came_later > 0) == knows
        assert told.waves, "the second wave is over"
        # What everybody really spent is in the ledger at least, but of whom the operator said that nobody changed.
        for person, spent in truth.items():
            if not (trusted and not knows and person == lowered.id):
                assert spend(settings, person) >= spent - 1e-9, person
        exact = knows or "ledger" not in parts
        assert told.exact == exact
        assert bool(told.written_off) == ("ledger" in parts)
        verified(settings)
        with served(settings) as site:
            site.curator.headers["Authorization"] = f"Bearer {told.key}"
            assert site.publish_now(installation.study, 1).status_code in {404, 409}  # never again
            study = site.live(installation.study)["study"]
            assert study["wave"] >= 2 or study["phase"] == "published"
    chosen = {person: installation.before[person].epsilon for person in truth} | {lowered.id: 0.1}
    if trusted and not knows:
        del chosen[lowered.id]  # the operator said that nobody changed anything, and was wrong
    charged = check_budgets(installation, told.key, truth, chosen)
    if exact and told.kept:
        assert charged, "the last waves are published"


@pytest.mark.slow
@pytest.mark.parametrize("used", [False, True], ids=["unused", "with a study of its own"])
def test_the_register_of_an_empty_server_that_was_started_after_a_loss_is_no_witness(used, installation):
    """It knows nothing of what was published since: that counts as used, and the restore says what it cannot know."""
    settings = installation.settings
    withdrawn, lowered = change_after_backup(installation)
    truth = {person: spend(settings, person) for person in installation.before if person != withdrawn.id}
    lose(settings, *LOSSES["everything"])
    with served(settings) as site:  # a service that starts by itself
        if used:
            site.join(site.study(), CROWD)
    with later(60 * DAY):
        told = restore(settings, installation.folder)
        assert (told.kept, told.emptied, told.exact, told.unknown) == (0, 30, False, True)
        assert "no register survived" in str(told)
        for person, spent in truth.items():
            assert spend(settings, person) >= spent - 1e-9, person
        verified(settings)
    chosen = {person: installation.before[person].epsilon for person in truth} | {lowered.id: 0.1}
    check_budgets(installation, told.key, truth, chosen)


@pytest.mark.slow
def test_the_operator_is_told_that_a_register_which_survived_decides(installation):
    told = restore(installation.settings, installation.folder, trusted=True)
    assert "not needed: --trust-database" in str(told)
    assert "on your word" not in str(told)
    told = restore(installation.settings, installation.folder)
    assert "--trust-database" not in str(told)


@pytest.mark.slow
def test_without_witnesses_a_wave_that_could_not_have_been_published_yet_is_not_lost(installation):
    """Dates bind: a day after the backup the second wave cannot have been published, whatever was lost."""
    lose(installation.settings, "database", "ledger", "register", "head")
    with later(DAY):
        told = restore(installation.settings, installation.folder, trusted=True)
    assert (told.waves, told.written_off, told.kept) == ([], 0, 30)
    assert installation.publish(told.key, 1).status_code == 200


def test_an_old_copy_put_back_by_hand_is_refused_and_the_words_name_the_way_back(tmp_path):
    settings = settings_for(tmp_path)
    with served(settings) as site:
        study = site.study(waves=waves())
        site.join(study, CROWD)
    back_up(settings, tmp_path / "backup")
    with served(settings) as site:
        site.curator.headers["Authorization"] = f"Bearer {site.app.state.store.write(people.new_key)}"
        assert site.publish(study).status_code == 200
    lose(settings, "database", "ledger", "register")
    for name, place in {"database": settings.sqlite_file, "ledger": settings.ledger}.items():
        shutil.copy(tmp_path / "backup" / name, place)
    shutil.copy(tmp_path / "backup" / "register", settings.register_file)
    with pytest.raises(HetdpError, match="old copy"):
        served(settings).__enter__()
    settings.ledger_head.unlink()
    with pytest.raises(InputError, match="--restore"):
        served(settings).__enter__()


@pytest.mark.parametrize("part", ["database", "ledger", "register", "backup.json"])
def test_a_backup_that_was_changed_is_refused(part, tmp_path):
    settings = settings_for(tmp_path)
    with served(settings) as site:
        site.study()
    back_up(settings, tmp_path / "b")
    checked(settings, tmp_path / "b")
    file = tmp_path / "b" / part
    content = file.read_bytes()
    changed = content.replace(b'"notice_days": 7', b'"notice_days": 9') if part == "backup.json" else content + b"\0"
    assert changed != content
    file.write_bytes(changed)
    with pytest.raises(InputError, match="not as it was made"):
        restore(settings, tmp_path / "b")
    assert settings.sqlite_file.exists()


def test_a_restore_is_refused_while_a_server_runs_and_with_another_key(tmp_path):
    settings = settings_for(tmp_path)
    with served(settings) as site:
        site.study()
        back_up(settings, tmp_path / "b")
        with pytest.raises(InputError, match="stop it first"):
            restore(settings, tmp_path / "b")
        with pytest.raises(InputError, match="stop it first"):
            rotate.rotate_key(settings)
    other = settings_for(tmp_path, key="ab" * 32)
    with pytest.raises(InputError, match="another key"):
        restore(other, tmp_path / "b")


def test_a_backup_holds_no_key_and_says_head_and_versions(tmp_path):
    settings = settings_for(tmp_path)
    with served(settings) as site:
        study = site.study()
        site.join(study, CROWD)
        assert site.publish(study).status_code == 200
        back_up(settings, tmp_path / "b")
        told = site.curator.get("/api/status").json()
    said = json.loads((tmp_path / "b" / "backup.json").read_text())
    assert said["head"] == told["ledger_head"]
    assert told["last_backup"] == said["made"]
    assert (said["schema"], said["ledger_schema"]) == (tables.VERSION, 2)
    key = settings.key_file.read_text().strip()
    for file in (tmp_path / "b").iterdir():
        assert file.stat().st_mode & 0o077 == 0
        assert key.encode() not in file.read_bytes()
        assert bytes.fromhex(key) not in file.read_bytes()


# ---------------------------------------------------------------------------------------------------------
# A new key


def files_of(settings, server=None):
    """Everything that a database has on disk, as bytes."""
    where = settings.sqlite_file.parent if settings.sqlite_file is not None else server.folder / "data"
    return b"".join(path.read_bytes() for path in sorted(where.rglob("*")) if path.is_file())


@pytest.mark.slow
def test_after_a_rotation_everything_goes_on_under_the_new_key_alone(settings, request):
    csv = "value,tier\n" + "".join(f"{i % 10},open\n" for i in range(40))
    with served(settings) as site:
        study = site.study(waves=waves())
        site.join(study, CROWD)
        assert site.rows(study, csv).json() == {"people": 40}
        assert site.publish(study, 0).status_code == 200
        key = site.key
    old, before = settings.vault(), rows(settings)
    said = rotate.rotate_key(settings)
    assert said.startswith("70 answers sealed")
    new, after = settings.vault(), rows(settings)
    assert new.fingerprint != old.fingerprint
    for person, row in after.items():
        code = old.open(before[person].answer, person, row.study, row.epsilon)
        assert new.open(row.answer, person, row.study, row.epsilon) == code
        with pytest.raises(InputError):
            old.open(row.answer, person, row.study, row.epsilon)
    server = request.getfixturevalue("durable_server") if settings.sqlite_file is None else None
    if server is None:
        found = files_of(settings)
        assert not [person for person, row in before.items() if row.answer in found], "old seals are in the files"
        assert after[person].answer in found  # the control: the search would find one
    with served(settings) as site:
        site.curator.headers["Authorization"] = f"Bearer {key}"
        assert site.rows(study, csv).json() == {"people": 40}  # known again, not taken twice
        assert site.live(study)["n"] == 70
        assert site.publish(study, 1).status_code == 200
    verified(settings)
    kept = [path for path in settings.key_file.parent.iterdir() if ".until-" in path.name]
    assert len(kept) == 1
    assert kept[0].stat().st_mode & 0o077 == 0


def test_a_row_that_was_changed_from_outside_is_not_believed_after_a_rotation(tmp_path):
    settings = settings_for(tmp_path)
    with served(settings) as site:
        study = site.study()
        site.join(study, CROWD)
        key = site.key
    engine = tables.connect(settings.database)
    with engine.begin() as connection:
        connection.exec_driver_sql("UPDATE server_people SET epsilon = 2.0 WHERE epsilon = 0.1")
    engine.dispose()
    rotate.rotate_key(settings)
    with served(settings) as site:
        site.curator.headers["Authorization"] = f"Bearer {key}"
        assert site.publish(study).json()["error"]["code"] == "changed"


KILLED = """
import os, signal, sys
from pathlib import Path
from hetdp.server import rotate, Settings
folder, line = Path(sys.argv[1]), int(sys.argv[2])
count = 0
def trace(frame, event, arg):
    global count
    if frame.f_code.co_filename == rotate.__file__:
        if event == "line":
            count += 1
            if count == line:
                os.kill(os.getpid(), signal.SIGKILL)
        return trace
sys.settrace(trace)
rotate.rotate_key(Settings(database=f"sqlite:///{folder}/server.db", key_file=folder / "server.key"))
sys.settrace(None)
print(count)
"""


@pytest.mark.slow
def test_a_rotation_that_is_killed_at_any_line_is_finished_by_the_next(tmp_path):
    """Killed at every few lines of it, each time from the same start; the next run ends with every answer readable."""
    settings = settings_for(tmp_path / "start")
    (tmp_path / "start").mkdir()
    settings = settings_for(tmp_path / "start")
    with served(settings) as site:
        study = site.study()
        site.join(study, CROWD[:4])
    before, old = rows(settings), settings.vault()
    codes = {person: old.open(row.answer, person, row.study, row.epsilon) for person, row in before.items()}
    environment = {**os.environ, "PYTHONPATH": str(Path(rotate.__file__).parents[2])}

    def killed(folder, line):
        command = [sys.executable, "-c", KILLED, folder, str(line)]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    shutil.copytree(tmp_path / "start", tmp_path / "whole")
    total = int(killed(tmp_path / "whole", 0).stdout.split()[-1])
    for line in [*range(3, total, 9), *range(total - 14, total)]:
        folder = tmp_path / f"at-{line}"
        shutil.copytree(tmp_path / "start", folder)
        assert killed(folder, line).returncode == -signal.SIGKILL
        here = settings_for(folder)
        current = here.key_file.read_text() != (tmp_path / "start" / "server.key").read_text()
        if not current:
            rotate.rotate_key(here)
        vault, found = here.vault(), rows(here)
        assert vault.fingerprint != old.fingerprint
        assert {p: vault.open(row.answer, p, row.study, row.epsilon) for p, row in found.items()} == codes, line
        with served(here) as site:
            assert site.client().get("/health").json()["status"] == "ok"
            assert site.app.state.store.read(lambda t: len(t.everybody(study)[0])) == 4  # all are believed
        shutil.rmtree(folder)


def test_a_server_that_starts_in_the_middle_of_a_rotation_says_so(tmp_path):
    settings = settings_for(tmp_path)
    with served(settings) as site:
        site.study()
    key = settings.key_file.read_text()
    rotate.rotate_key(settings)
    settings.key_file.rename(settings.key_file.with_name("server.key.new"))
    settings.key_file.write_text(key)
    settings.key_file.chmod(0o600)
    with pytest.raises(InputError, match="--rotate-key"):
        served(settings).__enter__()
