"""A server's database that an older hetdp wrote: everything in it stays, and goes on.

`tests/old/study-4.tar.gz` was written by the version before several questions: a study with one wave published and a
second one open, with people from a file, a person with a link to come back and an open invitation; and a study whose
number was drawn and is in the register alone, because the ledger's database refused to store it.
"""

from __future__ import annotations

import json
import tarfile
import time
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa

from hetdp import InputError
from hetdp.server import create_app, tables
from serving import later, served, settings_for

OLD = Path(__file__).parents[1] / "old" / "study-4.tar.gz"
FAR = 4_000_000_000  # when the last wave closes


@pytest.fixture
def old(tmp_path):
    with tarfile.open(OLD) as file:
        file.extractall(tmp_path, filter="data")
    (tmp_path / "server.key").chmod(0o600)
    return settings_for(tmp_path), json.loads((tmp_path / "about.json").read_text())


def make_version(settings, version):
    """Turn the database into one of an earlier version, which had no curators or columns of later ones."""
    engine = tables.connect(settings.database)
    with engine.begin() as connection:
        if version == "2":
            for table in (tables.studies, tables.people):
                connection.exec_driver_sql(f"ALTER TABLE {table.name} DROP COLUMN version")
            for file in settings.register_file.parent.glob(f"{settings.register_file.name}*"):
                file.unlink()
        if version in {"2", "3"}:
            connection.exec_driver_sql("CREATE TABLE server_sessions (hash TEXT PRIMARY KEY)")
        connection.execute(sa.update(tables.facts).where(tables.facts.c.name == "version").values(text=version))
    engine.dispose()


@pytest.mark.parametrize("version", ["4", "3", "2"])
def test_an_old_database_goes_on_with_its_studies_people_answers_and_results(old, version):
    settings, about = old
    make_version(settings, version)
    if version == "2":  # it had no register, so nobody could vouch for its rows
        with pytest.raises(InputError, match=r"older hetdp made none: start once with --trust-database"):
            create_app(settings)
        settings = replace(settings, trust_database=True)
    with served(settings) as site:
        site.curator.headers["Authorization"] = f"Bearer {about['key']}"
        study = about["published"]
        assert [row["name"] for row in site.curator.get("/api/curators").json()] == ["curator"]
        shown = site.live(study)
        (question,) = shown["study"]["questions"]
        assert (question["name"], question["kind"], question["bounds"]) == ("answer", "number", [0.0, 10.0])
        assert question["optional"] is False
        assert shown["n"] == 103
        (published,) = site.client().get(f"/api/results/{study}", params={"wave": 0}).json()["results"]
        assert published["figures"][0]["estimate"] == about["estimate"]
        assert site.client().get(f"/api/results/{study}.csv").text.count("\n") == 2
        person, fresh = site.enter(about["come_back"]), site.enter(about["invitation"])
        assert person.get("/api/answer").json()["choice"] == {"tier": "strict", "epsilon": 0.1}
        said = {"answers": {"answer": 4.0}, "tier": "public"}
        assert fresh.put("/api/answer", json=said).status_code == 200
        text = "value,tier\n" + "2,open\n" * 100 + "x,open\n"
        assert site.rows(study, text).json() == {"people": 101}, "the same file was there before"
        assert site.live(study)["n"] == 104
        with later(FAR - time.time() + 100):
            (second,) = site.curator.post(f"/api/studies/{study}/publish", json={"wave": 1}).json()["results"]
        assert second["n"] == 104
        assert second["figures"][0]["estimate"] == pytest.approx(2.1, abs=1), "answers of before open and count"
        balances = site.app.state.publisher.ledger.balances()
        assert all(balance.spent <= balance.budget for balance in balances)


@pytest.mark.parametrize("version", ["4", "3"])
def test_a_number_that_an_old_server_drew_is_the_one_that_is_published(old, version):
    settings, about = old
    make_version(settings, version)
    with later(FAR - time.time()), served(settings) as site:  # it is taken up at the start
        (result,) = site.client().get(f"/api/results/{about['cut_off']}").json()["results"]
        kinds = [entry.kind for entry in site.app.state.publisher.ledger.history()]
    assert result["unclamped"] == float.fromhex(about["number"])
    assert kinds.count("charge") == kinds.count("result") == 2


def test_an_old_row_that_was_changed_from_outside_is_not_believed_after_the_upgrade(old):
    settings, about = old
    engine = tables.connect(settings.database)
    with engine.begin() as connection:
        connection.exec_driver_sql("UPDATE server_people SET epsilon = 1000.0 WHERE epsilon = 0.1")
    engine.dispose()
    with later(FAR - time.time() + 100), served(settings) as site:
        site.curator.headers["Authorization"] = f"Bearer {about['key']}"
        said = site.curator.post(f"/api/studies/{about['published']}/publish", json={"wave": 1})
        assert said.json()["error"]["code"] == "changed"


def test_a_cell_of_a_new_column_is_vouched_for_too(old):
    """Old rows keep their MACs because the new cells are null; what somebody writes there counts all the same."""
    settings, about = old
    for change in ("UPDATE server_people SET gone = 'erased'", "UPDATE server_studies SET more = '{}'"):
        with served(settings):
            pass
        engine = tables.connect(settings.database)
        with engine.begin() as connection:
            connection.exec_driver_sql(change)
        engine.dispose()
        with later(FAR - time.time() + 100), served(settings) as site:
            site.curator.headers["Authorization"] = f"Bearer {about['key']}"
            said = site.curator.post(f"/api/studies/{about['published']}/publish", json={"wave": 1})
            assert said.json()["error"]["code"] == "changed"
