"""Upgrades from every schema that was ever written, with real files of then; a backup is made before each."""

from __future__ import annotations

import json
import tarfile
import time
from pathlib import Path

import pytest

from hetdp.errors import InputError
from hetdp.ledger import Ledger
from hetdp.server import check, tables
from hetdp.server.backup import checked, versions_there
from hetdp.server.restore import restore
from serving import later, served, settings_for

OLD = Path(__file__).parents[1] / "old"
VERSIONS = sorted(path.name.removeprefix("server-").removesuffix(".tar.gz") for path in OLD.glob("server-*.tar.gz"))
FAR = 4_000_000_000


def unpacked(version, folder):
    """An installation that an older hetdp left."""
    folder.mkdir()
    with tarfile.open(OLD / f"server-{version}.tar.gz") as packed:
        packed.extractall(folder, filter="data")
    return json.loads((folder / "about.json").read_text())


def settings_of(version, folder, **changes):
    """Before there were registers, the operator says once that nobody changed the database."""
    trusted = {"trust_database": True} if int(version) < 3 else {}
    return settings_for(folder, **{"port": 0, **trusted, **changes})


def goes_on(settings, about):
    """The study of then goes on: its result, its people's links, its second wave, and the ledger."""
    with served(settings) as site:
        site.curator.headers["Authorization"] = f"Bearer {about['key']}"
        shown = site.curator.get(f"/api/results/{about['study']}").json()
        assert str(about["first"]) in json.dumps(shown)
        person = site.enter(about["link"].partition("#")[2])
        mine = person.get("/api/answer").json()
        assert mine["joined"]
        assert mine["choice"]["epsilon"] == "inf"
        with later(FAR - time.time() + 10):
            second = site.publish_now(about["study"], 1)
        assert second.status_code == 200, second.text
    with Ledger(settings.ledger, head_file=settings.ledger_head) as ledger:
        verified = ledger.verify()
        assert max(balance.spent for balance in ledger.balances() if balance.budget == 0.1) <= 0.1
    assert (verified.charges, verified.results) == (2, 2)


def test_there_is_an_old_file_of_every_schema():
    assert [str(version) for version in range(1, 1 + len(VERSIONS))] == VERSIONS
    assert int(VERSIONS[-1]) >= int(tables.VERSION) - 1


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_an_installation_of_every_schema_goes_on_after_the_upgrade_and_a_backup_was_made(version, tmp_path):
    folder = tmp_path / "survey"
    about = unpacked(version, folder)
    settings = settings_of(version, folder)
    found = versions_there(settings)
    assert found[0] == version
    errors = [one for one in check.check(settings) if one.level == "error"]
    assert errors == []
    goes_on(settings, about)
    made = [path for path in folder.iterdir() if ".before-upgrade-" in path.name]
    if found == (tables.VERSION, 2):
        assert made == []
        return
    (backup,) = made
    assert f".before-upgrade-{found[0]}-{found[1]}-" in backup.name
    assert checked(settings, backup).schema == version
    assert versions_there(settings) == (tables.VERSION, 2)


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS[:-1])
def test_the_backup_of_before_the_upgrade_can_be_restored_with_this_version(version, tmp_path):
    folder = tmp_path / "survey"
    about = unpacked(version, folder)
    settings = settings_of(version, folder)
    with served(settings) as site:
        assert site.app.state.upgraded.endswith(next(p.name for p in folder.iterdir() if ".before-upgrade-" in p.name))
    (backup,) = [path for path in folder.iterdir() if ".before-upgrade-" in path.name]
    for name in ("server.db", "server.db.ledger", "server.db.register"):
        (folder / name).unlink()
    told = restore(settings, backup, trusted=True)
    assert told.kept == 30
    goes_on(settings_of("4", folder), {**about, "key": told.key})


@pytest.mark.parametrize("version", VERSIONS[:2])
def test_an_installation_without_a_register_asks_for_the_operators_word_once(version, tmp_path):
    unpacked(version, tmp_path / "survey")
    with pytest.raises(InputError, match="--trust-database"):
        served(settings_for(tmp_path / "survey")).__enter__()


def test_a_newer_schema_is_refused_and_nothing_is_changed(tmp_path):
    settings = settings_for(tmp_path)
    with served(settings) as site:
        site.app.state.store.write(lambda transaction: transaction.set_fact("version", "99"))
    before = settings.sqlite_file.read_bytes()
    with pytest.raises(InputError, match="update hetdp"):
        served(settings).__enter__()
    assert settings.sqlite_file.read_bytes() == before
    assert [path for path in tmp_path.iterdir() if "before-upgrade" in path.name] == []
