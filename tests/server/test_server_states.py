"""What a page or the API says in a state that is not the usual one: no date, result or release that will not come."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
import time

import pytest
import sqlalchemy as sa
from test_server_sentences import HOUR, LANGUAGES, TIERS, pages, said, waves_of

from hetdp.server import publish, studies, tables
from hetdp.server.app import look
from serving import DAY, later, saying, served, settings_for

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    with served(settings_for(tmp_path_factory.mktemp("states"))) as running:
        yield running


def refused(client, method, path, **body):
    """The sentence of a refusal by language, and as programs get it."""
    found = {}
    for language in (None, *LANGUAGES):
        headers = {"Accept-Language": language} if language else {}
        answer = client.request(method, path, headers=headers, **body)
        assert answer.status_code >= 400, answer.text
        found[language] = answer.json()["error"]["message"]
    return found


def lost(folder, *kept):
    """Lose everything in a folder but some of it."""
    for path in folder.iterdir():
        if path.name not in kept:
            shutil.rmtree(path) if path.is_dir() else path.unlink()


# ---------------------------------------------------------------------------------------------------------
# A publication that does not take place


@pytest.mark.parametrize("each", ["ask", "carry"])
def test_a_study_ends_with_the_last_publication_that_can_take_place(each, site):
    """What people were told is deleted after the last publication is deleted then, and nobody is asked for more."""
    now = int(time.time())
    waves = [{"closes": now + HOUR, "share": 0.5}, {"closes": now + 9 * DAY, "share": 0.5}]
    study = site.study(waves=waves, tiers=TIERS, until=now + 10 * DAY, each_wave=each)
    invited = site.invite(study, 1)[0]
    one, *_ = site.join(study, [(3, "open"), (3, "public"), (3, "never")])
    with later(5 * DAY):
        assert site.publish_now(study).status_code == 200
        assert site.curator.get("/api/status").json()["answers_kept"] == 0
        for person in (one, site.enter(invited)):
            page = pages(person)
            assert said(page, "about.publication-never")
            assert said(page, "answer.closed")
            for key in ("privacy.lead", "answer.again", "answer.final", "limit.never"):
                assert not said(page, key), key
            assert person.put("/api/answer", json=saying(3, tier="open")).status_code == 409
        assert one.get("/api/answer").json()["study"]["phase"] == "published"
        page = pages(site.curator, f"/curator/studies/{study}")
        assert said(page, "study.never")
        assert not said(page, "publish.publish")
        assert refused(site.curator, "POST", f"/api/studies/{study}/publish", json={"wave": 1})
        assert site.client().get(f"/api/results/{study}").json()["lost"] == []


@pytest.fixture(params=["ask", "carry"])
def too_late(request, site, monkeypatch):
    """A study whose second publication would close at or after the deletion, as a former hetdp left it open."""
    real = publish.following
    monkeypatch.setattr(publish, "following", lambda study, notice: (real(study, notice)[0], False))
    now = int(time.time())
    waves = [{"closes": now + HOUR, "share": 0.5}, {"closes": now + 9 * DAY, "share": 0.5}]
    study = site.study(waves=waves, tiers=TIERS, until=now + 10 * DAY, each_wave=request.param)
    invited = site.invite(study, 1)[0]
    people = site.join(study, [(3, "open"), (3, "public"), (3, "never")])
    before = pages(people[0])
    with later(5 * DAY):
        assert site.publish_now(study).status_code == 200
        yield study, people, site.enter(invited), before, now + 10 * DAY, request.param


def test_nobody_is_asked_for_or_promised_a_publication_that_does_not_take_place(site, too_late):
    _, (one, public, never), new, before, until, each = too_late
    assert not said(before, "answer.no-more")
    assert not said(before, "limit.never")
    assert said(before, "about.early")
    assert said(before, "about.more-publications", n="2")
    assert not said(page := pages(one), "about.more-publications")
    assert said(page, "about.planned-publications", n="2")
    assert said(page, "answer.no-more") is (each == "ask")  # who is carried along was not asked again
    assert not said(page, "answer.again")
    for person in (one, public, never, new):
        page = pages(person)
        assert said(page, "limit.never")
        for key in ("limit.none", "limit.rest", "limit.spent", "limit.last", "limit.one", "receipt.results"):
            assert not said(page, key), key
        for language, words in LANGUAGES.items():
            assert words("about.changeable", date=words.date(until)) in page[language]
            assert words("answer.change-until", date=words.date(until)) in page[language]
    limits = {offer["limit"]["code"] for offer in new.get("/api/answer").json()["choices"]}
    assert limits == {"limit.never"}
    # Nothing is used of who comes now, and what was used of the others is all there will be.
    assert {offer["meaning"]["code"] for offer in new.get("/api/answer").json()["choices"]} == {"meaning.unused"}
    assert [one.get("/api/answer").json()["balance"][name] for name in ("spent", "left")] == [1.0, 0.0]


def test_the_curator_is_not_told_that_it_can_be_published_or_closed_early(site, too_late):
    study, *_, until, _ = too_late
    page = pages(site.curator, f"/curator/studies/{study}")
    assert said(page, "publish.never")
    assert not said(page, "publish.binding")
    assert not said(page, "publish.early-sure")
    assert refused(site.curator, "POST", f"/api/studies/{study}/publish", json={"wave": 1})
    for language, words in LANGUAGES.items():
        assert words.date(until) in page[language]


def test_nothing_is_said_of_what_only_a_publication_that_takes_place_would_do(site, too_late):
    study, (one, *_), new, before, until, each = too_late
    promised = ("about.early", "about.fewest-text.one", "about.imports-count", "about.withdraw")
    gone = (*promised, f"about.each-{each}", f"about.deleted-{each}", "answer.withdraw-until")
    assert [key for key in gone if not said(before, key)] == []
    for person in (one, new):
        page = pages(person)
        assert [key for key in gone if said(page, key)] == []
        assert said(page, "about.withdraw-never")
        assert said(page, "answer.withdraw-never")
        assert said(page, "about.deleted-text")
    path = f"/curator/studies/{study}"
    waiting = ("live.enough", "live.too-few", "live.wave-share", "live.predicted", "what-if.ask")
    page = pages(site.curator, path)
    assert [key for key in waiting if said(page, key)] == []
    assert said(page, "live.never")
    assert {tier["share"] for tier in site.live(study)["joined"]} == {0.0}, "this publication uses nothing of anybody"
    listed = pages(site.curator, "/curator")
    for language, words in LANGUAGES.items():
        assert str(words("studies.closes", date=words.date(until))) in listed[language], "no answers are taken later"
        assert words.date(until) in page[language].partition(words.catalogue["live.people"])[0]
    with later(11 * DAY):  # until the next look at dates
        assert not said(pages(site.curator, path), "publish.text.one")
        assert not said(pages(one), "about.withdraw")


def test_what_was_said_not_to_take_place_cannot_be_closed_early_so_that_it_does(site, too_late):
    """Else somebody who was told that no publication is left could be in one."""
    study, *_ = too_late
    found = refused(site.curator, "POST", f"/api/studies/{study}/close", json={"wave": 1})
    assert found["de"] == LANGUAGES["de"].catalogue["error.wave"]
    control = site.study(waves=[{"closes": int(time.time()) + 60 * DAY, "share": 1.0}])
    assert site.curator.post(f"/api/studies/{control}/close", json={"wave": 0}).status_code == 200


# ---------------------------------------------------------------------------------------------------------
# Records that were changed, and a restore


def test_where_the_database_was_changed_no_date_and_no_result_is_promised(tmp_path):
    with served(settings_for(tmp_path)) as site:
        now = int(time.time())
        study = site.study(waves=[{"closes": now + 60 * DAY, "share": 1.0}])
        (person,) = site.join(study, [(3, "open")])
        assert site.curator.post(f"/api/studies/{study}/close", json={"wave": 0}).status_code == 200
        page = pages(person)
        assert said(page, "answer.sooner")
        assert said(page, "receipt.results")
        with later(30 * DAY):
            closed = pages(person)
            assert said(closed, "answer.closed-sooner")
            assert not said(closed, "answer.sooner")
        with sqlite3.connect(tmp_path / "server.db") as file:
            file.execute("UPDATE server_studies SET fewest = 77 WHERE id = ?", (study,))
        page = pages(person)
        assert said(page, "answer.tampered")
        assert "it may be that nothing is deleted at its date" in page["en"]
        assert not said(page, "answer.sooner")
        assert not said(page, "receipt.results")


def test_a_result_that_was_lost_is_not_said_to_have_been_published(tmp_path):
    from hetdp.server import restore
    from hetdp.server.backup import back_up

    settings = settings_for(tmp_path)
    with served(settings) as site:
        one, two = site.study(tiers=TIERS), site.study(waves=waves_of(0.5, 0.5), tiers=TIERS)
        (token,), *fresh = site.invite(one, 1), *site.invite(two, 2)
        back_up(settings, tmp_path / "backup")
    lost(tmp_path, "backup", "server.key")
    with later(2 * HOUR):
        told = restore.restore(settings, tmp_path / "backup")
        assert all("drawn or published after the backup" in line for line in told.waves)
        with served(settings) as site:
            for language, words in LANGUAGES.items():
                page = site.client(Accept_Language=language).get(f"/api/results/{one}?wave=0")
                assert page.json()["error"]["message"] == words.catalogue["error.lost"]
            assert "if something was published" in site.client().get(f"/api/results/{one}").json()["error"]["message"]
            page = pages(site.enter(token))
            assert said(page, "about.stays-text")
            assert "or was counted as begun after a restore" in page["en"]
            # They chose no level, so the ledger has none of theirs.
            assert said(page, "leave.stay-out-before")
            assert "the level if you had chosen one" in page["en"]
            for person in map(site.enter, fresh):
                assert person.put("/api/answer", json=saying(3, tier="public")).status_code == 200
            site.curator.headers["Authorization"] = f"Bearer {told.key}"
            with later(40 * DAY):
                assert site.publish_now(two, 1).status_code == 200
                page = pages(site.client(), f"/results/{two}")
            assert said(page, "result.lost", n="1")
            assert "if something of it was published" in page["en"]


# ---------------------------------------------------------------------------------------------------------
# Before, now and after


def test_what_is_not_possible_before_the_opening_is_not_said_to_be_over(site):
    now = int(time.time())
    study = site.study(opens=now + DAY, waves=[{"closes": now + 2 * DAY, "share": 1.0}])
    person = site.enter(site.invite(study, 1)[0])
    found = refused(person, "PUT", "/api/answer", json=saying(3, tier="open"))
    assert {found[language] for language in LANGUAGES} == {
        words.catalogue["error.closed"] for words in LANGUAGES.values()
    }
    assert "not open yet" in found["en"]
    found = refused(site.curator, "POST", f"/api/studies/{study}/publish", json={"wave": 0})
    assert found["en"] == LANGUAGES["en"].catalogue["error.wave"]


def test_a_file_can_be_chosen_while_it_would_be_taken(site):
    now = int(time.time())
    study = site.study(opens=now + HOUR, waves=[{"closes": now + 2 * HOUR, "share": 1.0}])
    path = f"/curator/studies/{study}"
    for seconds, taken in ((0, False), (HOUR + 60, True), (3 * HOUR, False)):
        with later(seconds):
            assert (site.rows(study, "hours,tier\n3,open\n").status_code == 201) is taken
            assert said(pages(site.curator, path), "import.import") is taken
    with later(3 * HOUR):
        assert said(pages(site.curator, path), "import.people.one", n="1"), "the files that are there stay in the list"


def test_who_has_left_is_not_said_to_have_never_come(site):
    study = site.study(tiers=TIERS)
    (one,) = site.join(study, [(3, "open")])
    path = f"/curator/studies/{study}"
    assert not said(pages(site.curator, path), "live.nobody")
    assert one.delete("/api/answer").status_code == 200
    page = pages(site.curator, path)
    assert said(page, "live.nobody")
    assert re.search(r"\byet\b|\bnoch niemand", page["en"] + page["de"]) is None


def test_one_person_is_counted_as_one_and_files_apart(site):
    study = site.study(tiers=TIERS, fewest=3, imports_count=False)
    site.join(study, [(3, "open")])
    site.rows(study, "hours,tier\n3,open\n3,open\n")
    page = pages(site.curator, f"/curator/studies/{study}")
    assert said(page, "live.too-few", n="1", fewest="3")
    assert said(page, "live.choices-text")
    with later(2 * HOUR):
        found = refused(site.curator, "POST", f"/api/studies/{study}/publish", json={"wave": 0})
    assert found[None] == "Too few people who count: 1. This study publishes from 3 on."
    for language, words in LANGUAGES.items():
        assert found[language] == words.catalogue["error.too-few"].format(n=1, fewest=3)


def test_a_server_without_results_does_not_say_that_there_never_were_any(tmp_path):
    with served(settings_for(tmp_path)) as site:
        page = pages(site.client(), "/")
        assert said(page, "home.nothing")
        assert re.search(r"\byet\b|\bnoch keine\b", page["en"] + page["de"]) is None


def test_what_is_checked_is_sent_by_the_button_whatever_was_sent_before(site):
    study = site.study(tiers=TIERS)
    (one,) = site.join(study, [(3, "open")])
    page = pages(one)
    assert said(page, "check.lead")
    assert "Nothing has been sent yet" not in page["en"]


def test_what_was_used_is_called_a_limit_where_it_is_one(site):
    study = site.study(waves=waves_of(0.5, 0.5), tiers=TIERS)
    one, *_ = site.join(study, [(3, "open")] * 10)
    with later(2 * HOUR):
        assert site.publish_now(study).status_code == 200
        page = pages(one)
        assert said(page, "limit.rest")
        limits = {offer["name"]: offer["limit"]["sentence"] for offer in one.get("/api/answer").json()["choices"]}
        assert "up to ε = 1 counts as used, so at most 1 can still be used." in limits["open"]
        assert "ε = 1 was used, so" not in page["en"]


def test_leaving_says_what_holds_for_everybody_who_may_leave(site):
    """Somebody who sent nothing has no answers that could have been deleted."""
    person = site.enter(site.invite(site.study(), 1)[0])
    for language, words in LANGUAGES.items():
        person.cookies.set("hetdp_language", language)
        given = json.loads(re.search(r'id="words">(.*?)</script>', person.get("/answer").text, re.DOTALL)[1])
        for key in ("script.answer.erased", "script.answer.withdrawn"):
            assert given[key] == words.catalogue[key]
            assert "Your answers were deleted" not in given[key]


def test_the_page_to_sign_in_names_both_places_of_the_first_key(site):
    page = pages(site.client(), "/sign-in")
    assert said(page, "sign-in.hint")
    assert "named a file that holds it" in page["en"]


# ---------------------------------------------------------------------------------------------------------
# What goes wrong


def test_while_the_register_fails_who_reads_is_told_to_come_back_and_who_writes_that_it_is_not_known(tmp_path):
    with served(settings_for(tmp_path)) as site:
        (person,) = site.join(site.study(), [(3, "open")])
        register = site.app.state.store.register
        working, register._file = register._file, sa.create_engine("sqlite:////nowhere/register")
        try:
            reads = refused(person, "GET", "/api/answer")
            writes = refused(person, "DELETE", "/api/answer")
            page = person.get("/answer")
        finally:
            register._file = working
        for language, words in LANGUAGES.items():
            assert reads[language] == words.catalogue["error.register-read"]
            assert writes[language] == words.catalogue["error.register"]
        assert "not known whether this was done" in writes[None]
        assert "Try again later." in reads[None]
        assert (page.status_code, LANGUAGES["en"].catalogue["error.register-read"] in page.text) == (503, True)
        assert person.delete("/api/answer").status_code == 200


def test_every_refusal_is_worded_by_the_catalogue_in_every_language(site):
    """Else English and German could come to say different things."""
    (person,) = site.join(site.study(changeable=False), [(3, "open")])
    found = refused(person, "PUT", "/api/answer", json=saying(3, tier="open"))
    for language, words in LANGUAGES.items():
        assert found[language] == words.catalogue["error.final"]
    page = pages(person)
    assert said(page, "answer.final")
    assert said(page, "answer.no-change")
    # What it says of answering anew is so.
    assert person.delete("/api/answer").status_code == 200
    assert person.put("/api/answer", json=saying(3, tier="open")).status_code == 200


def test_who_has_no_session_any_more_is_told_to_open_their_link_and_of_links_that_were_deleted(site):
    person = site.enter(token := site.invite(site.study(), 1)[0])
    assert person.delete("/api/answer?everything=true").status_code == 200
    found = refused(person, "PUT", "/api/answer", json=saying(3, tier="open"))
    entered = refused(site.client(), "POST", "/api/session/participant", json={"token": token})
    signed_out = refused(site.client(), "GET", "/api/studies")
    for language, words in LANGUAGES.items():
        assert found[language] == words.catalogue["error.reopen"]
        assert entered[language] == words.catalogue["error.invitation"]
        assert signed_out[language] == words.catalogue["error.sign-in"]
    assert "was deleted" in entered[None]


# ---------------------------------------------------------------------------------------------------------
# Too few people


def kept(site, study):
    """How many sealed answers of a study there are."""
    with site.app.state.store.engine.connect() as connection:
        return connection.exec_driver_sql("SELECT count(answer) FROM server_people WHERE study = ?", (study,)).scalar()


@pytest.mark.parametrize("each", ["carry", "ask"])
def test_a_publication_that_too_few_answered_is_passed_over_and_the_next_one_opens(site, each):
    """Nobody could join it any more: the study goes on, and no page promises it."""
    now = int(time.time())
    dates = [{"closes": now + HOUR, "share": 0.25}, {"closes": now + 9 * HOUR, "share": 0.75}]
    study = site.study(tiers=TIERS, fewest=3, waves=dates, each_wave=each)
    one, two = site.join(study, [(3, "open"), (4, "open")])
    with later(2 * HOUR):
        page = pages(one)
        for language, words in LANGUAGES.items():
            date = re.escape(words.catalogue["about.publication-few"]).replace(r"\{date\}", ".*")
            assert re.search(date, page[language])
        mine = one.get("/api/answer").json()
        assert (mine["study"]["wave"], mine["study"]["phase"]) == (1, "open")
        assert mine["answered_this_wave"] == (each == "carry"), "who is asked each time is asked again"
        assert mine["balance"]["left"] == 1.5, "the share of the publication that is left, of an ε of 2"
        assert site.publish_now(study).json()["error"]["code"] == "too-few"
        assert said(pages(site.curator, f"/curator/studies/{study}"), "study.few.one", which="1")
        assert "too few people" in [event["event"] for event in site.curator.get(f"/api/studies/{study}/events").json()]
        site.join(study, [(5, "open")] * 3)
    with later(11 * HOUR):  # the second is open as long as it was to be
        found = site.publish_now(study, 1).json()
        assert "error" not in found, found
        assert (found["results"][0]["n"], found["lost"]) == (5 if each == "carry" else 3, [])
    assert two.get("/api/answer").status_code == 200


def test_after_the_last_publication_that_too_few_answered_the_answers_are_deleted_and_nothing_is_promised(site):
    study = site.study(tiers=TIERS, fewest=3)
    (one,) = site.join(study, [(3, "open")])
    with later(2 * HOUR):
        assert site.curator.get(f"/api/studies/{study}").json()["study"]["phase"] == "published"
        page = pages(one)
        assert not said(page, "receipt.results")
        assert said(page, "balance.nothing-at-all")
        assert one.delete("/api/answer", params={"everything": True}).status_code == 200
        invited = site.curator.post(f"/api/studies/{study}/invitations", json={"count": 1})
        assert invited.json()["error"]["code"] == "closed"
        overview = pages(site.curator, "/curator")
        assert said(overview, "phase.over")
    assert kept(site, study) == 0


def test_a_study_that_was_changed_from_outside_is_not_passed_over(site):
    """Somebody who removes people from the database would have the answers of the others deleted."""
    study = site.study(tiers=TIERS, fewest=2)
    site.join(study, [(3, "open"), (4, "open")])
    with site.app.state.store.engine.begin() as connection:
        first = "UPDATE server_people SET answer = NULL WHERE id = (SELECT min(id) FROM server_people WHERE study = ?)"
        connection.exec_driver_sql(first, (study,))
    with later(2 * HOUR):
        assert site.live(study)["study"]["phase"] == "closed"
        assert site.publish_now(study).json()["error"]["code"] == "changed"
    assert kept(site, study) == 1


def test_a_count_that_the_database_makes_up_passes_nothing_over(site, monkeypatch):
    """Those who are there are counted by the rows that were compared; here the database says that nobody is."""
    study = site.study(tiers=TIERS, fewest=2)
    site.join(study, [(3, "open"), (4, "open")])
    monkeypatch.setattr(tables, "MARK", -1)
    site.app.state.store.write(studies.move, study, more=json.dumps(uncounted(site, study)))
    with later(2 * HOUR):
        assert site.live(study)["study"]["phase"] == "closed"
    assert kept(site, study) == 2


def uncounted(site, study):
    """What is stored of a study in which people from files do not count."""
    row = site.app.state.store.read(lambda it: it.row("study", study))
    return {**json.loads(row["more"]), "imports_count": False}


def test_a_wave_that_the_ledger_has_charged_is_not_passed_over_in_an_old_copy(site, monkeypatch):
    study = site.study(tiers=TIERS, fewest=3)
    site.join(study, [(3, "open")])
    monkeypatch.setattr(type(site.app.state.publisher), "_charged", lambda *_: True)
    with later(2 * HOUR):
        assert site.live(study)["study"]["phase"] == "closed"
    assert kept(site, study) == 1


def test_one_study_that_cannot_be_read_keeps_no_other_from_its_date(site):
    """A cell that is no text: the server looks at the others, and deletes what is to be deleted."""
    now = int(time.time())
    bad, other = site.study(tiers=TIERS, fewest=3), site.study(tiers=TIERS, until=now + 2 * DAY)
    site.join(bad, [(3, "open")])
    site.join(other, [(3, "open")])
    with site.app.state.store.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE server_people SET version = CAST(x'ff' AS TEXT) WHERE study = ?", (bad,))
    with later(3 * DAY):
        look(site.app)
        assert site.client().get("/health").status_code == 200
    assert (kept(site, bad), kept(site, other)) == (1, 0)


def test_an_event_from_before_one_of_its_facts_was_noted_is_called_by_its_name(site):
    study = site.study()
    site.app.state.store.write(lambda transaction: transaction.note("later dates moved", study))
    assert "later dates moved" in site.curator.get(f"/curator/studies/{study}").text
