"""What a restore, a rotation or an import must not bring back: each of these went wrong once."""

from __future__ import annotations

import json
import os
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa

from hetdp.errors import InputError
from hetdp.ledger import Ledger
from hetdp.server import backup, check, importing, people, publish, restore, rotate, tables
from hetdp.server.access import RefusedError
from hetdp.server.backup import back_up
from serving import DAY, later, saying, served, settings_for

pytestmark = pytest.mark.slow  # each starts a server twice


@pytest.fixture
def settings(tmp_path):
    return settings_for(tmp_path, port=0)


def changed(settings, *statements):
    """Do what somebody does who can write to the database and to nothing else."""
    with closing(sqlite3.connect(settings.sqlite_file, timeout=30)) as file:
        for statement in statements:
            file.execute(*statement) if isinstance(statement, tuple) else file.execute(statement)
        file.commit()


def cells(settings, query):
    with closing(sqlite3.connect(settings.sqlite_file, timeout=30)) as file:
        return file.execute(query).fetchall()


def waves(count=4):
    now = int(time.time())
    return [{"closes": now + 3600 + 90 * DAY * i, "share": 1 / count} for i in range(count)]


def signed_in(site, key):
    site.curator.headers["Authorization"] = f"Bearer {key}"
    return site


def refused(site, token):
    return site.client().post("/api/session/participant", json={"token": token}).status_code


# ---------------------------------------------------------------------------------------------------------
# Rotation


def failed_rotation(settings, monkeypatch):
    """Let the database make the commit of a rotation fail; return the rows that its owner has seen."""
    seen = {}

    def failing(connection):
        for table in ("server_people", "server_facts", "server_imports"):
            seen[table] = [
                tuple(row) for row in connection.execute(sa.select(sa.text("*")).select_from(sa.table(table)))
            ]
        raise sa.exc.OperationalError("commit", {}, Exception())

    with monkeypatch.context() as patch:
        patch.setattr(sa.Connection, "commit", failing)
        with pytest.raises(sa.exc.OperationalError):
            rotate.rotate_key(settings)
    return seen


def shown_again(settings, seen):
    for table, rows in seen.items():
        places = ", ".join("?" * len(rows[0])) if rows else ""
        changed(settings, *((f"INSERT OR REPLACE INTO {table} VALUES ({places})", row) for row in rows))  # noqa: S608


def test_the_register_of_a_rotation_that_failed_is_not_put_in_place_once_somebody_withdrew(settings, monkeypatch):
    with served(settings) as site:
        study = site.study()
        tokens = site.invite(study, 2)
        said = [site.enter(token).put("/api/answer", json=saying(3, tier="open")).json() for token in tokens]
        link = said[0]["come_back"].partition("#")[2]
    seen = failed_rotation(settings, monkeypatch)
    assert Path(f"{settings.register_file}.rotating").exists()
    with served(settings) as site:
        assert site.enter(link).delete("/api/answer").status_code == 200
    shown_again(settings, seen)
    with pytest.raises(InputError, match="changed from outside"):
        rotate.rotate_key(settings)
    with pytest.raises(InputError):  # nor does a server start with what is there now
        served(settings).__enter__()


def test_a_rotation_that_failed_is_finished_if_no_server_has_run_since(settings, monkeypatch):
    """The control: the rows of the rotation that failed came into the database after all."""
    with served(settings) as site:
        study = site.study()
        site.join(study, [(3.0, "open")] * 3)
        key = site.key
    shown_again(settings, failed_rotation(settings, monkeypatch))
    assert "sealed with a new key" in rotate.rotate_key(settings)
    with served(settings) as site:
        assert signed_in(site, key).publish(study).json()["study"]["id"] == study


# ---------------------------------------------------------------------------------------------------------
# What a restore believes


def test_a_study_that_was_changed_before_the_backup_is_not_believed_after_a_restore(settings, tmp_path):
    with served(settings) as site:
        study = site.study(fewest=50, waves=waves())
        site.join(study, [(3.0, "open")] * 4)
    now = int(time.time())
    shares = [{"closes": now - 1, "share": 1.0}, *waves()[1:]]
    changed(settings, ("UPDATE server_studies SET waves = ?, fewest = 1, opens = ?", (json.dumps(shares), now - 9)))
    back_up(settings, tmp_path / "b")
    told = restore.restore(settings, tmp_path / "b")
    assert told.changed == 1
    assert "changed from outside" in str(told)
    with served(settings) as site:
        assert signed_in(site, told.key).publish_now(study).json()["error"]["code"] == "changed"


@pytest.mark.parametrize("trusted", [True, False])
def test_a_person_whose_row_was_changed_before_the_backup_is_not_believed(trusted, settings, tmp_path):
    with served(settings) as site:
        site.join(site.study(), [(3.0, "strict")] * 3)
    changed(settings, "UPDATE server_people SET epsilon = 2.0 WHERE id = (SELECT min(id) FROM server_people)")
    back_up(settings, tmp_path / "b")
    settings.register_file.unlink()
    told = restore.restore(settings, tmp_path / "b", trusted=trusted)
    assert (told.kept, told.emptied) == ((2, 1) if trusted else (0, 3))


def test_a_study_that_went_on_after_the_backup_is_believed_as_the_backup_has_it(settings, tmp_path):
    """The control: the register in use does not vouch for this row any more, that of the backup does."""
    with served(settings) as site:
        study = site.study(waves=waves())
        back_up(settings, tmp_path / "b")
        site.app.state.store.write(people.close_early, study, 0, 60)
    told = restore.restore(settings, tmp_path / "b")
    assert told.changed == 0
    with served(settings) as site:
        assert signed_in(site, told.key).live(study)["study"]["phase"] == "open"
        assert site.invite(study, 1)


def test_a_backup_is_made_again_if_a_study_changes_meanwhile(settings, tmp_path, monkeypatch):
    """Else its register would not vouch for its study."""
    copied = []
    with served(settings) as site:
        study = site.study(waves=waves())

        def copy(source, target, real=backup.copy):
            real(source, target)
            copied.append(target.name)
            if len(copied) == 1:
                site.app.state.store.write(people.close_early, study, 0, 60)

        monkeypatch.setattr(backup, "copy", copy)
        back_up(settings, tmp_path / "b")
    assert copied == ["database", "ledger", "register"] * 2
    assert restore.restore(settings, tmp_path / "b").changed == 0


def test_a_backup_gives_up_if_studies_never_stop_changing(settings, tmp_path, monkeypatch):
    with served(settings):
        numbers = iter(range(10**6))
        monkeypatch.setattr(backup, "_vouched_studies", lambda _: next(numbers))
        monkeypatch.setattr(backup, "_PAUSE", 0)
        with pytest.raises(InputError, match="try again"):
            back_up(settings, tmp_path / "b")


def test_the_drill_needs_a_folder_and_the_key_and_leaves_what_a_server_needs(settings, tmp_path):
    with served(settings) as site:
        study = site.study(waves=waves())
        site.join(study, [(3.0, "open")] * 30)
        assert site.publish(study).status_code == 200
    made = back_up(settings, tmp_path / "b")
    drill = settings_for(tmp_path / "drill", key_file=settings.key_file)
    with pytest.raises(InputError, match="make it first"):
        restore.restore(drill, tmp_path / "b", trusted=True)
    (tmp_path / "drill").mkdir()
    told = restore.restore(drill, tmp_path / "b", trusted=True)
    assert (told.kept, told.aside, told.waves) == (30, "", [])
    assert "before-restore" not in str(told)
    with Ledger(drill.ledger, head_file=drill.ledger_head) as ledger:
        assert str(ledger.verify().head) == made["head"]
    assert sorted(path.name for path in (tmp_path / "drill").iterdir() if path.suffix != ".lock") == [
        "server.db",
        "server.db.ledger",
        "server.db.ledger.head",
        "server.db.register",
    ]
    with served(drill) as site:
        assert signed_in(site, told.key).curator.get(f"/api/results/{study}").json()["wave"] == 0


# ---------------------------------------------------------------------------------------------------------
# What ended stays so


def test_links_of_people_who_are_gone_stay_dead_after_a_restore_and_others_live(settings, tmp_path):
    with served(settings) as site:
        study = site.study()
        erased, revoked, withdrawn, kept = site.invite(study, 4)
        persons = [site.enter(token) for token in (erased, withdrawn, kept)]
        said = [person.put("/api/answer", json=saying(3, tier="open")).json() for person in persons]
        links = [one["come_back"].partition("#")[2] for one in said]
        back_up(settings, tmp_path / "b")
        assert persons[0].delete("/api/answer?everything=true").json()["erased"]
        site.app.state.store.write(people.revoke, study)
        assert persons[1].delete("/api/answer").status_code == 200
    told = restore.restore(settings, tmp_path / "b")
    assert (told.kept, told.emptied) == (1, 2)
    with served(settings) as site:
        assert [refused(site, token) for token in (links[0], erased, revoked)] == [403] * 3
        assert [refused(site, token) for token in links[1:]] == [200, 200]
        counts = site.app.state.store.read(people.invitations, study)
    assert (counts["revoked"], counts["open"]) == (1, 0)


def test_a_study_that_was_deleted_after_the_backup_stays_deleted(settings, tmp_path):
    with served(settings) as site:
        study, other = site.study(), site.study()
        token, open_one = site.invite(study, 1) + site.invite(other, 1)
        site.join(study, [(3.0, "open")] * 2)
        back_up(settings, tmp_path / "b")
        assert site.curator.delete(f"/api/studies/{study}").status_code == 200
    told = restore.restore(settings, tmp_path / "b")
    assert (told.deleted, told.kept) == (1, 0)
    assert cells(settings, "SELECT count(*) FROM server_people WHERE answer IS NOT NULL") == [(0,)]
    with served(settings) as site:
        assert (refused(site, token), refused(site, open_one)) == (403, 200)
        assert [one["id"] for one in signed_in(site, told.key).curator.get("/api/studies").json()] == [other]
        assert site.publish(study).status_code in {404, 409}


def test_the_keys_of_all_curators_end_with_a_restore(settings, tmp_path):
    with served(settings) as site:
        second = site.app.state.store.write(people.add_curator, "second")
        back_up(settings, tmp_path / "b")
        keys = [site.key, second, site.app.state.store.write(people.add_curator, "third")]
    told = restore.restore(settings, tmp_path / "b")
    with served(settings) as site:
        found = [
            site.client(Authorization=f"Bearer {key}").get("/api/studies").status_code for key in [*keys, told.key]
        ]
        assert found == [401, 401, 401, 200]
        assert site.app.state.store.read(people.curators) == [tables.FIRST]


@pytest.mark.parametrize("act", ["restore", "rotate"])
def test_root_leaves_no_files_in_the_folder_of_another_user_who_could_not_open_them(act, settings, tmp_path):
    if os.geteuid() != 0:
        pytest.skip("only root can write into the folder of somebody else")
    with served(settings) as site:
        site.study()
    back_up(settings, tmp_path / "b")
    folder = settings.sqlite_file.parent
    before = sorted(path.name for path in folder.iterdir())
    os.chown(folder, 65534, 65534)
    with pytest.raises(InputError, match="Run this as its owner: setpriv --reuid 65534"):
        restore.restore(settings, tmp_path / "b") if act == "restore" else rotate.rotate_key(settings)
    assert sorted(path.name for path in folder.iterdir()) == before
    os.chown(folder, 0, 0)
    assert restore.restore(settings, tmp_path / "b") if act == "restore" else rotate.rotate_key(settings)


# ---------------------------------------------------------------------------------------------------------
# Waves


@pytest.mark.parametrize("crowd", [30, 5])  # of five people every plan abstains: a result, and nobody was read
def test_the_wave_after_a_lost_one_is_open_for_the_notice_from_the_restore_on(crowd, settings, tmp_path):
    with served(settings) as site:
        study = site.study(waves=waves())
        site.join(study, [(3.0, ("strict", "open")[i % 2]) for i in range(crowd)])
        back_up(settings, tmp_path / "b")
        with later(300 * DAY):  # so late that the next three dates have passed as well
            assert site.publish_now(study, 0).status_code == 200
    with later(300 * DAY):
        told = restore.restore(settings, tmp_path / "b")
        assert len(told.waves) == 1
    with later(300 * DAY + 60), served(settings) as site:
        signed_in(site, told.key)
        assert site.publish_now(study, 1).json()["error"]["code"] == "early"
        nothing = site.client().get(f"/api/results/{study}")
        assert (nothing.status_code, nothing.json()["error"]["code"]) == (404, "lost")
        assert "older backup" in site.client().get(f"/results/{study}").text
        with later(308 * DAY):
            assert site.publish_now(study, 1).status_code == 200
        assert site.client().get(f"/api/results/{study}").json()["lost"] == [0]
        said = {"en": "no result of publication 1 here", "de": "Zu Veröffentlichung 1 gibt es hier kein Ergebnis"}
        for language, words in said.items():
            assert (
                words in site.client().get(f"/results/{study}", headers={"Cookie": f"hetdp_language={language}"}).text
            )
        assert "publication 2 here" not in site.client().get(f"/results/{study}").text


def test_a_wave_that_was_charged_and_given_up_after_the_backup_can_be_published(settings, tmp_path, monkeypatch):
    with served(settings) as site:
        study = site.study()
        site.join(study, [(3.0, "open")] * 30)
        back_up(settings, tmp_path / "b")

        def refuse(*_):
            raise RefusedError(409)

        with monkeypatch.context() as patch:
            patch.setattr(publish.Reading, "__call__", refuse)
            assert site.publish(study).status_code == 409
    told = restore.restore(settings, tmp_path / "b")
    assert (told.waves, told.kept, told.written_off) == ([], 30, 0)
    with served(settings) as site:
        assert signed_in(site, told.key).publish(study).status_code == 200
    with Ledger(settings.ledger, head_file=settings.ledger_head) as ledger:
        assert len(ledger.spends()) == 1  # the charge that was made is the one that was carried out
        ledger.verify()


def test_a_second_restore_writes_nothing_off_again(settings, tmp_path):
    with served(settings) as site:
        study = site.study(waves=waves())
        site.join(study, [(3.0, "open")] * 30)
        back_up(settings, tmp_path / "b")
        assert site.publish(study).status_code == 200
    for path in (settings.ledger, settings.sqlite_file):
        for end in ("", "-wal", "-shm"):
            Path(f"{path}{end}").unlink(missing_ok=True)
    first = restore.restore(settings, tmp_path / "b")
    with Ledger(settings.ledger, head_file=settings.ledger_head) as ledger:
        spent = [one.spent for one in ledger.balances()]
    second = restore.restore(settings, tmp_path / "b")
    assert first.aside != second.aside
    with Ledger(settings.ledger, head_file=settings.ledger_head) as ledger:
        assert [one.spent for one in ledger.balances()] == spent
    assert (first.written_off, second.written_off) == (30, 0)
    assert max(spent) == pytest.approx(0.5)


@pytest.mark.parametrize(("days", "lost"), [(7, 0), (1, 1)])
def test_without_witnesses_the_shorter_notice_decides_which_waves_may_have_been_published(days, lost, tmp_path):
    settings = settings_for(tmp_path)
    with served(settings) as site:
        site.join(site.study(waves=[{"closes": int(time.time()) + 90 * DAY, "share": 1.0}]), [(3.0, "open")] * 3)
    back_up(settings, tmp_path / "b")
    settings.register_file.unlink()
    settings.ledger_head.unlink()
    with later(3 * DAY):
        told = restore.restore(settings_for(tmp_path, notice_days=days), tmp_path / "b")
    assert len(told.waves) == lost


@pytest.mark.parametrize("lost", [True, False], ids=["without a register", "with the register"])
def test_a_restore_says_that_what_was_ended_since_is_back_if_no_register_survived(settings, tmp_path, lost):
    with served(settings) as site:
        study = site.study()
        (token,) = site.invite(study, 1)
        back_up(settings, tmp_path / "b")
        site.app.state.store.write(people.revoke, study)
    if lost:
        for end in ("", "-wal", "-shm"):
            Path(f"{settings.register_file}{end}").unlink(missing_ok=True)
    told = str(restore.restore(settings, tmp_path / "b"))
    with served(settings) as site:
        assert refused(site, token) == (200 if lost else 403)
    assert ("no register survived" in told and "revoke them again" in told) is lost


def test_who_comes_with_a_receipt_that_the_backup_does_not_know_is_told_that_the_invitation_works(settings, tmp_path):
    """They were told to use the link from their receipt, which is the one that is refused."""
    with served(settings) as site:
        study = site.study()
        (token,) = site.invite(study, 1)
        back_up(settings, tmp_path / "b")
        said = site.enter(token).put("/api/answer", json=saying(3, tier="open")).json()
    restore.restore(settings, tmp_path / "b")
    with served(settings) as site:
        link = {"token": said["come_back"].partition("#")[2]}
        for language, words in {
            "en": "or your invitation, may work again",
            "de": "oder Ihre Einladung anstelle des neuesten wieder gelten",
        }.items():
            found = site.client(Accept_Language=language).post("/api/session/participant", json=link)
            assert found.status_code == 403
            assert words in found.json()["error"]["message"]
        assert refused(site, token) == 200


# ---------------------------------------------------------------------------------------------------------
# Names of curators


@pytest.mark.parametrize("lost", ["the log", "the register's epochs"])
@pytest.mark.parametrize("how", ["a new key", "a restore", "the same server"])
def test_the_name_of_a_curator_who_was_removed_is_not_given_again(settings, tmp_path, how, lost):
    """The log would mean two people by it, and the second could try out what the files of the first said."""
    with served(settings) as site:
        store = site.app.state.store
        store.write(people.add_curator, "alice")
        store.write_as(tables.FIRST, people.remove_curator, "alice")
        back_up(settings, tmp_path / "b")
    key = {"a new key": lambda: rotate.rotate_key(settings) and None, "the same server": lambda: None}
    told = key[how]() if how in key else restore.restore(settings, tmp_path / "b")
    if lost == "the log":
        changed(settings, "DELETE FROM server_audit")
    else:
        with closing(sqlite3.connect(settings.register_file)) as file:
            file.execute("DELETE FROM epochs WHERE person != ''")
            file.commit()
    with served(settings) as site:
        if told is not None:
            signed_in(site, told.key)
        with pytest.raises(RefusedError, match="A name is used once"):
            site.app.state.store.write(people.add_curator, "alice")
        assert site.app.state.store.write(people.add_curator, "bob")


# ---------------------------------------------------------------------------------------------------------
# A large file


def test_a_large_file_whose_mark_was_taken_out_of_the_database_leaves_its_people_alone(settings):
    csv = "value,tier\n" + "".join(f"{i % 10},open\n" for i in range(importing.BATCH + 50))
    with served(settings) as site:
        study = site.study()
        assert site.rows(study, csv).status_code == 201
        changed(settings, "DELETE FROM server_imports")
        assert site.rows(study, csv).json()["error"]["code"] == "changed"
        assert site.live(study)["n"] == importing.BATCH + 50
    assert cells(settings, "SELECT count(*) FROM server_people WHERE answer IS NOT NULL") == [(importing.BATCH + 50,)]


# ---------------------------------------------------------------------------------------------------------
# Copies that the server made by itself


def test_the_check_names_folders_that_hold_older_copies(settings, tmp_path):
    def said():
        return [str(one) for one in check.check(settings) if "delete" in one.sentence]

    with served(settings):
        pass
    back_up(settings, tmp_path / "b")
    assert not said()
    told = restore.restore(settings, tmp_path / "b")
    (found,) = said()
    assert Path(told.aside).name in found
    assert found.startswith("warning")


# ---------------------------------------------------------------------------------------------------------
# Answers to a wave that is over


@pytest.mark.parametrize("witness", [True, False])
@pytest.mark.parametrize(("each", "count", "left"), [("ask", 2, 0), ("carry", 2, 40), ("ask", 1, 0), ("carry", 1, 0)])
def test_a_wave_that_is_over_after_a_restore_has_no_answers_where_a_publication_would_leave_none(
    each, count, left, witness, settings, tmp_path
):
    """As its page promises; the control is a study whose answers stay until its last wave."""
    with served(settings) as site:
        study = site.study(waves=waves(count), each_wave=each)
        crowd = site.join(study, [(3.0, "open")] * 40)
        back_up(settings, tmp_path / "b")
        assert all(person.get("/api/answer").json()["answered_this_wave"] for person in crowd[:2])
        if witness:
            with later(2 * 3600):
                site.app.state.publisher._released(
                    *site.app.state.store.write(publish._closed, study, 0, charged=False)
                )
    if not witness:
        settings.register_file.unlink()
        settings.ledger_head.unlink()
    with later(2 * 3600):
        told = restore.restore(settings, tmp_path / "b", trusted=True)
        assert (told.kept, told.emptied) == (left, 40 - left)
        query = "SELECT count(*) FROM server_people WHERE epsilon IS NOT NULL AND answer IS {}NULL"
        assert cells(settings, query.format("NOT ")) == [(left,)]
        assert cells(settings, query.format("")) == [(40 - left,)], "who took part and with which ε stays"
        with served(settings) as site:
            signed_in(site, told.key)
            assert site.live(study)["n"] == (0 if (each, count) == ("ask", 2) else 40)
            if count == 2:
                with later(130 * DAY):
                    said = site.publish_now(study, 1)
                    assert (said.status_code == 200) is bool(left), said.text


# ---------------------------------------------------------------------------------------------------------
# A backup put back by mistake, then a newer one


def lose_all_but_the_key(settings):
    for path in (settings.sqlite_file, Path(settings.ledger), settings.register_file, settings.ledger_head):
        for end in ("", "-wal", "-shm"):
            Path(f"{path}{end}").unlink(missing_ok=True)


def spent_in(settings, person, *numbers):
    """Return what waves of these numbers were charged to a person, in units."""
    with Ledger(settings.ledger, head_file=settings.ledger_head) as ledger:
        return sum(uses.get(person, 0) for name, uses in ledger.spends().items() if int(name.split("-")[1]) in numbers)


@pytest.mark.parametrize("wrong_first", [True, False])
def test_a_register_that_went_on_from_an_older_backup_is_no_witness_of_a_newer_one(tmp_path, wrong_first):
    """It knows nobody who joined between the two: what was used of them before counted as nothing."""
    settings = settings_for(tmp_path, port=0, notice_days=25)
    now = int(time.time())
    months = [{"closes": now + 3600 + 30 * DAY * i, "share": 0.25} for i in range(4)]
    with served(settings) as site:
        key, study = site.key, site.study(waves=months)
        site.join(study, [(float(i % 10), ("strict", "open")[i % 2]) for i in range(30)])
        assert site.publish(study, 0).status_code == 200
        back_up(settings, tmp_path / "older")
        person = site.enter(site.invite(study, 1)[0])
        link = person.put("/api/answer", json=saying(9.0, tier="open")).json()["come_back"].partition("#")[2]
        back_up(settings, tmp_path / "newer")
    ((victim,),) = cells(settings, "SELECT id FROM server_people WHERE number = 31")
    with served(settings) as site:
        assert signed_in(site, key).publish(study, 1).status_code == 200
    assert spent_in(settings, victim, 1) == 500_000_000
    lose_all_but_the_key(settings)
    with later(40 * DAY):
        if wrong_first:
            restore.restore(settings, tmp_path / "older")
        told = restore.restore(settings, tmp_path / "newer")
    assert told.unknown
    assert not told.exact
    assert "may have been drawn or published" in str(told)
    with later(41 * DAY), served(settings) as site:
        back = signed_in(site, told.key).enter(link)
        site.join(study, [(float(i % 10), "strict") for i in range(400)])
        assert back.put("/api/answer", json=saying(9.0, tier="strict")).status_code == 200
    with later(95 * DAY), served(settings) as site:
        assert signed_in(site, told.key).publish_now(study, 2).status_code == 200
    assert spent_in(settings, victim, 2, 3) == 0, "0.5 was used, and 0.1 is the choice now"


def test_on_the_operators_word_a_newer_backup_keeps_its_answers_after_an_older_one_was_put_back(settings, tmp_path):
    with served(settings) as site:
        study = site.study(waves=waves(1))
        back_up(settings, tmp_path / "older")
        site.join(study, [(3.0, "open")] * 4)
        back_up(settings, tmp_path / "newer")
    lose_all_but_the_key(settings)
    restore.restore(settings, tmp_path / "older", trusted=True)
    told = restore.restore(settings, tmp_path / "newer", trusted=True)
    assert (told.kept, told.trusted, told.unheard) == (4, True, False)
    again = restore.restore(settings, tmp_path / "newer")
    assert (again.kept, again.unknown) == (4, False), "the register went on from this very backup"


def test_a_ledger_that_went_on_from_an_older_backup_is_not_the_newest(settings, tmp_path):
    """Nobody had answered at the older backup, so nothing was written off, and its ledger seemed to be complete."""
    with served(settings) as site:
        key, study = site.key, site.study(waves=waves(2), fewest=3)
        back_up(settings, tmp_path / "older")
        site.join(study, [(3.0, "open")] * 40)
        back_up(settings, tmp_path / "newer")
    with served(settings) as site:
        assert signed_in(site, key).publish(study, 0).status_code == 200
    lose_all_but_the_key(settings)
    with later(40 * DAY):
        restore.restore(settings, tmp_path / "older")
        settings.register_file.unlink()
        told = restore.restore(settings, tmp_path / "newer")
    assert len(told.waves) == 1
    assert not told.exact, "nobody knows what the lost ledger charged"
    assert told.written_off == 40


def test_a_backup_of_a_server_that_was_restored_has_its_register_as_a_witness(settings, tmp_path):
    with served(settings) as site:
        study = site.study(waves=waves(1))
        site.join(study, [(3.0, "open")] * 4)
        back_up(settings, tmp_path / "first")
    lose_all_but_the_key(settings)
    told = restore.restore(settings, tmp_path / "first", trusted=True)
    with served(settings) as site:
        signed_in(site, told.key).join(study, [(4.0, "open")])
        back_up(settings, tmp_path / "second")
    again = restore.restore(settings, tmp_path / "second")
    assert (again.kept, again.unknown, again.exact) == (5, False, True)
    older = restore.restore(settings, tmp_path / "first")
    assert (older.kept, older.unknown, older.came_later) == (4, False, 1), "what is newer is witness of what is older"
    assert restore.restore(settings, tmp_path / "second", trusted=False).kept == 4


def test_a_publication_that_used_nobody_is_over_after_a_restore_too(settings, tmp_path):
    """Every plan abstained, so the register had nothing of it: it was published again, as if it had never been."""
    with served(settings) as site:
        study = site.study(waves=waves(2))
        site.join(study, [(3.0, "strict")] * 4)
        back_up(settings, tmp_path / "b")
        published = site.publish(study).json()
        assert published["results"][0]["abstains"]
    for path in (settings.sqlite_file, Path(settings.ledger)):
        for end in ("", "-wal", "-shm"):
            Path(f"{path}{end}").unlink(missing_ok=True)
    with later(2 * DAY):
        told = restore.restore(settings, tmp_path / "b")
        assert len(told.waves) == 1
        with served(settings) as site:
            signed_in(site, told.key)
            assert site.live(study)["study"]["wave"] == 1
            refused = site.publish_now(study, 0)
            assert (refused.status_code, refused.json()["error"]["code"]) == (404, "lost")


def test_the_file_with_a_key_that_has_ended_goes_aside_with_a_restore(settings, tmp_path):
    with served(settings):
        back_up(settings, tmp_path / "b")
    lose_all_but_the_key(settings)
    dead = settings.register_file.with_suffix(".curator")
    dead.write_text("a key of a server that was started in an empty folder\n")
    told = restore.restore(settings, tmp_path / "b")
    assert not dead.exists()
    assert (Path(told.aside) / dead.name).exists()


@pytest.mark.parametrize("before_the_commit", [True, False])
def test_the_check_says_of_a_rotation_that_was_cut_off_what_a_start_makes_of_it(
    settings, tmp_path, monkeypatch, before_the_commit
):
    """It refused a start that works, and then called every row changed from outside."""
    with served(settings) as site:
        site.join(site.study(), [(3.0, "open")] * 3)

    def killed(*_):
        raise KeyboardInterrupt

    place = (rotate, "end_all") if before_the_commit else (rotate, "_replace")
    with monkeypatch.context() as patch:
        patch.setattr(*place, killed)
        with pytest.raises(KeyboardInterrupt):
            rotate.rotate_key(settings)
    found = check.check(settings)
    errors = [one.sentence for one in found if one.level == "error"]
    said = [one for one in found if "cut off" in one.sentence]
    assert bool(errors) == (not before_the_commit)
    assert {one.level for one in said} == {"warning" if before_the_commit else "error"}
    assert not any("changed from outside" in one.sentence for one in found)
    if before_the_commit:
        with served(settings) as site:
            assert site.curator.get("/health").status_code == 200
    else:
        with pytest.raises(InputError, match="cut off"):
            served(settings).__enter__()
    rotate.rotate_key(settings)
    assert not [one for one in check.check(settings) if one.level == "error"]
