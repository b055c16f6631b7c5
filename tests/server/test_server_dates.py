"""Rows 114 and 117 of the catalogue: dates bind the curator too, and what is sent can be erased."""

from __future__ import annotations

import hashlib
import hmac
import math
import random
import secrets
import time
from types import SimpleNamespace

import pytest
import sqlalchemy as sa

from hetdp.server import access, importing, publish, studies, tables
from serving import DAY, later, served, settings_for


@pytest.fixture
def site(tmp_path):
    with served(settings_for(tmp_path)) as found:
        yield found


def quarters(count=4):
    now = int(time.time())
    return [{"closes": now + 91 * DAY * (i + 1), "share": 1 / count} for i in range(count)]


def error(answer):
    assert answer.status_code == 409, answer.text
    return answer.json()["error"]


def wait_until(true):
    deadline = time.monotonic() + 60
    while not true() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert true()


# ---------------------------------------------------------------------------------------------------------
# Dates


def published_early(site):
    """Whether a wave is published, and a withdrawal refused, a month before its closing date."""
    study = site.study(waves=quarters())
    (person, *_) = site.join(study, [(3, "public")] * 3)
    said = site.publish_now(study)
    return said.status_code == 200, person.delete("/api/answer").status_code == 409


def test_row_114_a_wave_is_not_published_before_its_date_and_everybody_can_withdraw(site):
    assert published_early(site) == (False, False)


def test_row_114_the_refusal_names_the_date_and_charges_nothing(site):
    study = site.study(waves=quarters())
    site.join(study, [(3, "public")])
    said = error(site.publish_now(study))
    assert said["code"] == "early"
    assert access.date(site.live(study)["study"]["closes"]) in said["message"]
    assert [entry.kind for entry in site.app.state.publisher.ledger.history()] == ["open"]
    with later(91 * DAY - 60):
        assert error(site.publish_now(study))["code"] == "early", "a minute before"
    with later(91 * DAY + 1):
        assert site.publish_now(study).status_code == 200


def test_control_row_114_by_the_rule_of_before_a_study_is_published_early(site, monkeypatch):
    """The rule of before asked only whether a study was planned."""
    real = publish._closed

    def closed(transaction, *rest, **named):
        with later(400 * DAY):
            return real(transaction, *rest, **named)

    monkeypatch.setattr(publish, "_closed", closed)
    assert published_early(site) == (True, False), "of four waves only the first is read"


def published_late(site):
    """How many waves of a year, all of whose dates have passed, are published in two minutes."""
    study = site.study(waves=quarters())
    site.join(study, [(3, "public")] * 3)
    with later(400 * DAY):
        return study, [site.publish_now(study, wave).status_code for wave in range(4)].count(200)


def test_row_114_waves_of_a_year_are_not_published_in_two_minutes(site):
    study, count = published_late(site)
    assert count == 1
    with later(400 * DAY + 60):
        assert error(site.publish_now(study, 1))["code"] == "early"
    with later(408 * DAY):
        assert site.publish_now(study, 1).status_code == 200, "after the days to withdraw"
    closes = [wave["closes"] for wave in site.live(study)["study"]["waves"]]
    assert closes == sorted(set(closes))


def test_control_row_114_with_the_dates_of_before_a_year_is_published_in_two_minutes(site, monkeypatch):
    monkeypatch.setattr(publish, "following", lambda study, _: (studies.waves_text(study.waves), study.wave == 3))
    assert published_late(site)[1] == 4


def test_row_114_a_wave_that_is_published_in_time_moves_no_date(site):
    study = site.study(waves=quarters())
    site.join(study, [(3, "public")])
    before = site.live(study)["study"]["waves"]
    with later(92 * DAY):
        assert site.publish_now(study).status_code == 200
    assert site.live(study)["study"]["waves"] == before


def test_row_114_closing_early_is_announced_logged_and_leaves_time_to_withdraw(site):
    study = site.study(waves=quarters())
    person, other = site.join(study, [(3, "public")] * 2)
    assert "sooner than was said" not in person.get("/answer").text
    first, now = site.live(study)["study"]["closes"], time.time()
    said = site.curator.post(f"/api/studies/{study}/close", json={"wave": 0}).json()
    assert said["closes"] == pytest.approx(now + 7 * DAY, abs=30)
    assert said["waves"][0]["first"] == first
    page = person.get("/answer").text
    assert "sooner than was said" in page
    assert access.date(first) in page
    assert access.date(said["closes"]) in page
    assert site.curator.get(f"/api/studies/{study}/events").json()[0]["event"] == "closing brought forward"
    with later(6 * DAY):
        assert error(site.publish_now(study))["code"] == "early"
        assert person.delete("/api/answer").status_code == 200
    with later(8 * DAY):
        assert site.publish_now(study).json()["results"][0]["n"] == 1
    assert other.delete("/api/answer").status_code == 200, "before the next wave"


def test_row_114_closing_early_twice_or_shortly_before_the_end_changes_nothing(site):
    study = site.study(waves=quarters())
    address = f"/api/studies/{study}/close"
    site.curator.post(address, json={"wave": 0})
    before = site.live(study)["study"]
    assert error(site.curator.post(address, json={"wave": 0}))["code"] == "notice"
    assert error(site.curator.post(address, json={"wave": 1}))["code"] == "wave"
    with later(8 * DAY):
        assert error(site.curator.post(address, json={"wave": 0}))["code"] == "wave", "it is closed"
    assert site.live(study)["study"] == before


def test_row_114_the_notice_is_a_setting(tmp_path):
    with served(settings_for(tmp_path, notice_days=2)) as site:
        study = site.study(waves=quarters())
        assert "Close in 2 days" in site.curator.get(f"/curator/studies/{study}").text
        said = site.curator.post(f"/api/studies/{study}/close", json={"wave": 0}).json()
        assert said["closes"] == pytest.approx(time.time() + 2 * DAY, abs=30)


# ---------------------------------------------------------------------------------------------------------
# Erasure and imports

ROWS = "value,tier\n3,strict\n8,open\n8,open\n"
SAME = {
    "the same bytes": ROWS,
    "other ends of lines": ROWS.replace("\n", "\r\n"),
    "another order": "value,tier\n8,open\n3,strict\n8,open\n",
    "another layout": "tier,value\nopen,8.0\nopen,8\nstrict,3\n",
}


def stored_of(site, study):
    query = sa.select(tables.people).where(tables.people.c.study == study)
    return site.app.state.store.read(lambda transaction: transaction.execute(query).all())


def left_of(site, study):
    """What is left in the database of what people sent or were given."""
    cells = [(row.invitation, row.again, row.epsilon, row.answer) for row in stored_of(site, study)]
    return [cell for row in cells for cell in row if cell is not None]


def change_outside(site, study, **cells):
    change = sa.update(tables.studies).where(tables.studies.c.id == study).values(cells)
    site.app.state.store.write(lambda transaction: transaction.execute(change))


@pytest.mark.parametrize("again", SAME)
def test_row_117_the_same_people_from_a_file_twice_are_there_once(site, again):
    study, other = site.study(), site.study()
    assert site.rows(study, ROWS).json() == site.rows(study, SAME[again]).json() == {"people": 3}
    assert site.live(study)["n"] == 3
    assert site.rows(other, ROWS).json() == {"people": 3}
    assert (site.live(other)["n"], len(stored_of(site, study))) == (3, 3), "another study has people of its own"


@pytest.mark.parametrize("more", ["8,open\n", "3,strict\n", "9,open\n"], ids=["open", "strict", "another value"])
def test_row_117_a_file_with_one_line_more_is_another_file(site, more):
    study = site.study()
    site.rows(study, ROWS)
    assert site.rows(study, ROWS + more).json() == {"people": 4}
    assert site.live(study)["n"] == 7


def test_control_row_117_by_a_key_for_each_request_people_come_twice(site, monkeypatch):
    monkeypatch.setattr(access.Vault, "mark", lambda *_: secrets.token_hex(32))
    study = site.study()
    assert [site.rows(study, ROWS).status_code for _ in range(2)] == [201, 201]
    assert site.live(study)["n"] == 6


def test_row_117_whoever_guesses_the_content_of_a_file_cannot_try_it_out_without_the_key():
    content = "study [(0.1, 5)]"
    marks = {access.Vault(bytes([key]) * 32).mark(content) for key in range(3)}
    plain = {make(content.encode()).hexdigest() for make in (hashlib.sha256, hashlib.sha3_256, hashlib.blake2s)}
    assert len(marks) == 3
    assert not marks & plain
    assert access.Vault(bytes(32)).mark(content) in marks, "a control: of one key it is the same"


@pytest.mark.parametrize("old", [False, True], ids=["now", "before version 5"])
def test_row_117_the_mark_of_a_file_is_the_hash_of_its_sorted_rows_as_it_always_was(old):
    """Written in pieces and sorted by numpy it is what Python makes of the whole list; else files came twice."""
    draw = random.Random(5)
    levels = [draw.choice([0.0, 0.1, 2.0, math.inf]) for _ in range(2503)]
    columns = [[draw.choice([0, 7, 2**20, studies.UNSAID]) for _ in levels] for _ in range(1 if old else 3)]
    if old:
        codes = [2**19 if code == studies.UNSAID else code for code in columns[0]]
        expected = sorted((level, code if level else 0) for level, code in zip(levels, codes, strict=True))
    else:
        said = zip(levels, zip(*columns, strict=True), strict=True)
        expected = sorted((level, codes if level else ()) for level, codes in said)
    found = importing._content(SimpleNamespace(old=old), levels, columns)
    assert found == expected
    vault = access.Vault(bytes(32))
    whole = hmac.new(vault.mark_key, f"study curator {expected}".encode(), "sha256").hexdigest()
    assert vault.mark(importing._written("study curator", found)) == whole


def test_row_117_no_file_is_taken_after_closing(site):
    study = site.study()
    with later(DAY):
        assert error(site.rows(study, ROWS))["code"] == "closed"
    assert site.live(study)["n"] == 0


def test_row_117_an_import_can_be_deleted_until_closing_and_comes_again(site):
    study = site.study()
    site.join(study, [(5, "open")])
    site.rows(study, ROWS)
    site.rows(study, "value,tier\n1,public\n")
    files = site.curator.get(f"/api/studies/{study}/rows").json()
    assert sorted(one["people"] for one in files) == [1, 3]
    (file,) = [one["file"] for one in files if one["people"] == 3]
    address = f"/api/studies/{study}/rows/{file}"
    with later(DAY):
        assert error(site.curator.delete(address))["code"] == "closed"
    assert site.live(study)["n"] == 5
    for wrong in (f"/api/studies/{study}/rows/{file[:-1]}", f"/api/studies/{site.study()}/rows/{file}"):
        assert site.curator.delete(wrong).status_code == 404
    assert site.curator.delete(address).json() == {"deleted": True}
    assert site.live(study)["n"] == 2
    assert len([row for row in stored_of(site, study) if row.answer is not None]) == 2
    assert site.rows(study, ROWS).json() == {"people": 3}
    assert site.publish(study).json()["results"][0]["n"] == 5, "the register vouches for all of it"


def everywhere(site):
    """All cells of the database and of the register, as texts."""
    store = site.app.state.store
    query = [sa.select(table) for table in tables.schema.sorted_tables]
    rows = store.read(lambda transaction: [row for one in query for row in transaction.execute(one)])
    with store.register.connected(writes=False) as file:
        rows += file.exec_driver_sql("SELECT * FROM vouched").all()
    return {str(cell) for row in rows for cell in row}


def can_be_tried_out(site, study, mark):
    """Whether somebody with the key and all files can see that a file said what they guess, by its mark."""
    cells = everywhere(site)
    salts = [access.digest("file", f"{cell} {mark}") for cell in cells]
    return any(mark[: tables.MARK] in cell or any(one in cell for one in salts) for cell in cells)


GONE = {
    "the file": lambda site, study, file: site.curator.delete(f"/api/studies/{study}/rows/{file}"),
    "the study": lambda site, study, _: site.curator.delete(f"/api/studies/{study}"),
    "published": lambda site, study, _: site.publish(study),
}


@pytest.mark.parametrize("how", GONE)
@pytest.mark.parametrize("each", ["carry", "ask"])
def test_row_117_what_a_file_said_cannot_be_tried_out_once_its_answers_are_deleted(site, how, each, monkeypatch):
    """Its keyed hash was in the import, and half of it in the ids of its people and in the log, for good."""
    marks, made = [], importing._mark
    monkeypatch.setattr(importing, "_mark", lambda *args: marks.append(made(*args)) or marks[-1])
    now = int(time.time())
    waves = [{"closes": now + 3600, "share": 0.5}, {"closes": now + 90 * DAY, "share": 0.5}]
    study = site.study(each_wave=each, waves=waves if each == "ask" else [{"closes": now + 3600, "share": 1.0}])
    assert site.rows(study, "value,tier\n7,public\n").json() == {"people": 1}
    assert can_be_tried_out(site, study, marks[0]), "a control: while the answers are there"
    (file,) = site.curator.get(f"/api/studies/{study}/rows").json()
    assert GONE[how](site, study, file["file"]).status_code == 200
    assert not can_be_tried_out(site, study, marks[0])


@pytest.mark.parametrize("change", [sa.delete(tables.facts), sa.update(tables.facts).values(text="x")])
def test_row_117_a_salt_that_was_changed_in_the_database_lets_no_file_come_twice(site, change):
    study = site.study()
    site.rows(study, ROWS)
    salts = change.where(tables.facts.c.name.startswith("file "))
    site.app.state.store.write(lambda transaction: transaction.execute(salts))
    assert error(site.rows(study, ROWS))["code"] == "changed"
    assert site.live(study)["n"] == 3


def test_row_117_a_file_that_an_older_server_imported_is_known_again_and_its_mark_is_said_to_stay(site, monkeypatch):
    """Its id was the mark itself."""
    study = site.study()
    with monkeypatch.context() as patch:
        patch.setattr(importing.File, "id", property(lambda self: self.mark))
        site.rows(study, ROWS)
    assert site.rows(study, ROWS).json() == {"people": 3}
    assert site.live(study)["n"] == 3
    said = "can try out what it said"
    assert said in site.curator.get(f"/curator/studies/{study}").text
    assert said not in site.curator.get(f"/curator/studies/{site.study()}").text, "a control"
    site.curator.delete(f"/api/studies/{study}")
    assert said in site.curator.get(f"/curator/studies/{study}").text


def test_row_117_a_study_that_is_deleted_leaves_nothing_that_people_sent(site):
    study, other = site.study(), site.study()
    (person, _), (stays,) = site.join(study, [(3, "open")] * 2), site.join(other, [(3, "public")])
    (unused,) = site.invite(study, 1)
    site.rows(study, ROWS)
    assert left_of(site, study), "a control"
    assert site.curator.delete(f"/api/studies/{study}").json() == {"deleted": True}
    assert left_of(site, study) == []
    assert study not in [one["id"] for one in site.curator.get("/api/studies").json()]
    assert "the privacy choices stored with them and the links were deleted" in person.get("/answer").text
    assert "This study was deleted" in site.curator.get(f"/curator/studies/{study}").text
    assert error(person.put("/api/answer", json={"answers": {"hours": 1}, "tier": "open"}))["code"] == "closed"
    assert site.client().post("/api/session/participant", json={"token": unused}).status_code == 403
    invited = site.curator.post(f"/api/studies/{study}/invitations", json={"count": 1})
    assert {answer.status_code for answer in (invited, site.rows(study, ROWS), site.publish(study))} == {409}
    assert left_of(site, study) == []
    assert stays.get("/api/answer").json()["joined"] is True
    assert site.publish(other).json()["results"][0]["n"] == 1


def test_row_117_what_was_published_and_what_it_cost_stays_when_a_study_is_deleted(site):
    study = site.study(waves=[{**wave, "closes": wave["closes"] - 80 * DAY} for wave in quarters(2)])
    site.rows(study, "value,tier\n" + "3,open\n" * 200)
    result, ledger = site.publish(study).json()["results"][0], site.app.state.publisher.ledger
    before = {balance.person: balance.spent for balance in ledger.balances()}
    assert max(before.values()) > 0
    assert site.curator.delete(f"/api/studies/{study}").status_code == 200
    assert left_of(site, study) == []
    assert site.client().get(f"/api/results/{study}").json()["results"][0] == result
    assert site.client().get(f"/results/{study}").status_code == 200
    assert {balance.person: balance.spent for balance in ledger.balances()} == before


def test_row_117_a_study_is_not_deleted_while_it_is_read(site):
    study = site.study()
    site.join(study, [(3, "open")])
    with later(DAY):
        site.app.state.store.write(publish._closed, study, 0, charged=False)
    at_work = site.app.state.store.register.at_work
    at_work.add(study)
    assert error(site.curator.delete(f"/api/studies/{study}"))["code"] == "publishing"
    assert left_of(site, study)
    at_work.discard(study)
    assert site.curator.delete(f"/api/studies/{study}").status_code == 200, "after a publication that was cut off"


def test_row_117_a_study_that_was_changed_from_outside_can_be_deleted(site):
    study = site.study()
    site.join(study, [(3, "open")])
    change_outside(site, study, fewest=7)
    assert error(site.publish(study))["code"] == "changed"
    assert site.curator.delete(f"/api/studies/{study}").status_code == 200
    assert left_of(site, study) == []


@pytest.mark.parametrize("when", ["at the start", "at a publication"])
def test_row_117_answers_below_the_fewest_people_are_deleted_at_their_date(tmp_path, when):
    settings, now = settings_for(tmp_path), int(time.time())
    with served(settings) as site:
        study, other = site.study(fewest=50, until=now + 20 * DAY), site.study(until=now + 80 * DAY)
        (person,), _ = site.join(study, [(3, "open")]), site.join(other, [(3, "public")])
        assert person.get("/api/answer").json()["study"]["until"] == now + 20 * DAY
        with later(19 * DAY):
            assert error(site.publish_now(study))["code"] == "too-few"
            assert left_of(site, study), "a control: the day before"
        if when == "at a publication":
            with later(21 * DAY):
                assert site.publish_now(other).json()["results"][0]["n"] == 1
            assert left_of(site, study) == []
            events = site.curator.get(f"/api/studies/{study}/events").json()
            assert events[0]["event"] == "answers deleted at their date"
    if when == "at the start":
        with later(21 * DAY), served(settings) as site:
            wait_until(lambda: left_of(site, study) == [])
            assert left_of(site, other)


def test_row_117_a_study_without_a_date_has_one_a_year_after_closing(site):
    shown = site.live(site.study())["study"]
    assert shown["until"] == shown["closes"] + studies.KEPT
    old = {"choices": '{"tiers": [], "free": null}', "waves": '[{"closes": 5, "share": 1.0}]'}
    row = {"id": "x", "question": "q", "unit": "", "lo": 0.0, "hi": 1.0, "opens": 0, "fewest": 1}
    found = studies.Study.of({**row, **old, "changeable": True, "wave": 0, "status": "open"})
    assert found.until == 5 + studies.KEPT, "also one that an older hetdp made"


def test_row_117_a_database_that_says_a_date_has_passed_has_nothing_deleted(site):
    study = site.study()
    site.join(study, [(3, "open")])
    change_outside(site, study, choices='{"tiers": [], "free": null, "until": 1}')
    site.app.state.store.write(publish.expire)
    assert left_of(site, study)
