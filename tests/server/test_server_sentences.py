"""Each sentence of a page stands there in the states in which it is true, and in no other, in both languages."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import sqlite3
import time
from contextlib import closing

import pytest
from test_server_pages import words

from hetdp.ledger import LedgerError
from hetdp.server import Settings, publish, texts
from hetdp.server import pages as pages_of
from hetdp.server.store import Register
from serving import DAY, NUMBER, THREE, later, saying, served, settings_for

pytestmark = pytest.mark.slow
TIERS = [
    {"name": "never", "epsilon": 0, "sentence": ""},
    {"name": "middle", "epsilon": 1.2, "sentence": ""},
    {"name": "open", "epsilon": 2, "sentence": ""},
    {"name": "public", "epsilon": "inf", "sentence": ""},
]
SAID = {"hours": 3, "tired": True, "way": "by bike"}
HOUR = 3600
LANGUAGES = texts.languages()
DATE = r"\d+\.? \w+ \d+, \d\d:\d\d (?:Uhr )?UTC"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    with served(settings_for(tmp_path_factory.mktemp("sentences"))) as running:
        yield running


def pages(client, path="/answer"):
    """The text of a page by language."""
    found = {}
    for language in LANGUAGES:
        client.cookies.set("hetdp_language", language)
        found[language] = re.sub(r"\s+", " ", words(client.get(path)).replace("&#39;", "'"))
    client.cookies.delete("hetdp_language")
    return found


def said(page, key, **facts):
    """Whether a page says the text of a key, in both languages; what it quotes may be anything unless it is given."""

    def quoted(match):
        name = match[1]
        return re.escape(facts[name]) if name in facts else DATE if name == "date" else ".{1,60}?"

    def stands(language):
        text = re.escape(LANGUAGES[language].catalogue[key]).replace("\\ ", " ")
        return re.search(re.sub(r"\\\{(\w+)\\\}", quoted, text), page[language]) is not None

    answers = {stands(language) for language in LANGUAGES}
    assert len(answers) == 1, f"{key} stands in one language alone"
    return answers.pop()


def waves_of(*shares, first=HOUR):
    """Waves that close one hour from now, then a month apart each."""
    now = int(time.time())
    return [{"closes": now + first + 30 * DAY * i, "share": share} for i, share in enumerate(shares)]


# ---------------------------------------------------------------------------------------------------------
# What can still be used


def test_who_was_used_is_told_what_can_still_be_used_and_that_is_what_the_ledger_leaves(site):
    study = site.study(waves=waves_of(0.5, 0.5), tiers=TIERS)
    late = site.invite(study, 1)[0]
    one, *_ = site.join(study, [(3, "open")] * 10)
    before = pages(one)
    assert said(before, "limit.two", epsilon="2", one="1")
    assert not said(before, "limit.rest")
    with later(2 * HOUR):
        assert site.publish_now(study).status_code == 200
    with later(3 * HOUR):
        used = pages(one)
        assert not said(used, "limit.two")
        assert "up to ε = 1 counts as used, so at most 1 can still be used." in used["en"]
        # With 1.2 in all, 0.2 is left although the wave's share would be 0.6.
        assert (
            "Never more than ε = 1.2 in all publications together: up to ε = 1 counts as used, so at most 0.2"
            in used["en"]
        )
        limits = {offer["name"]: offer["limit"] for offer in one.get("/api/answer").json()["choices"]}
        assert limits["middle"]["code"] == "limit.rest"
        assert "at most 0.6 in one" not in limits["middle"]["sentence"]
        assert limits["middle"]["facts"]["left"] == pytest.approx(0.2, abs=1e-6)
        # Who joins late is in the last wave alone: half of what they allow.
        person = site.enter(late)
        assert person.put("/api/answer", json=saying(3, tier="open")).status_code == 200
        assert said(pages(person), "balance.left", left="1")
        assert person.get("/api/answer").json()["balance"]["left"] == 1.0
        # The control: the sentence is about a charge that is really made.
        assert one.put("/api/answer", json=saying(3, tier="middle")).status_code == 200
    with later(31 * DAY):
        assert site.publish_now(study, 1).status_code == 200
        after = pages(one)
        assert re.search(r"At most ε = 1\.2 was used\.", after["en"])
        assert "1.2 was used. At most" not in after["en"]
        assert not said(after, "balance.left")


def test_after_the_last_publication_nothing_is_said_of_what_is_to_come(site):
    study = site.study(tiers=TIERS)
    never, one = site.join(study, [(3, "never"), (3, "open")])
    there = pages(one)
    assert said(there, "balance.nothing")
    assert said(there, "about.changeable")
    assert said(there, "about.withdraw")
    assert said(there, "answer.change-until")
    with later(2 * HOUR):
        closed = pages(one)
        assert not said(closed, "about.changeable")
        assert said(closed, "about.withdraw")
        assert site.publish_now(study).status_code == 200
        for page in (pages(one), pages(never)):
            for key in ("about.changeable", "about.withdraw", "balance.left", "balance.nothing", "about.early-one"):
                assert not said(page, key), key
            assert said(page, "about.publication-past")
        assert said(pages(never), "balance.nothing-at-all")


# ---------------------------------------------------------------------------------------------------------
# Results


def shares_in(page):
    return [float(share) for share in re.findall(r"(-?−?\d+(?:\.\d+)?) %", page.replace("−", "-"))]


def test_no_share_is_impossible_on_the_page_or_in_the_file_and_the_drawn_number_is_kept(site):
    clipped = 0
    for _ in range(4):
        study = site.study(tiers=TIERS[1:2], questions=THREE)
        site.rows(study, "hours,tired,way,tier\n" + "3,yes,by bike,middle\n" * 30)
        assert site.publish(study).status_code == 200
        assert all(0 <= share <= 100 for share in shares_in(pages(site.client(), f"/results/{study}")["en"]))
        rows = list(csv.DictReader(io.StringIO(site.client().get(f"/api/results/{study}.csv").text)))
        assert len(rows) == 5
        for row in rows:
            for name, low, high in (("estimate", "low", "high"), ("answered", "answered_low", "answered_high")):
                assert row[name] == "" or float(row[low]) <= float(row[name]) <= float(row[high])
        for one in site.client().get(f"/api/results/{study}").json()["results"]:
            for figure in [*one["figures"], one["answered"]]:
                if (figure["low"], figure["high"]) == (0, 1):  # that says nothing, so there is no estimate
                    assert figure["estimate"] is None
                    continue
                assert figure["estimate"] == min(max(figure["raw"], figure["low"]), figure["high"])
                clipped += figure["estimate"] != figure["raw"]
    assert clipped, "a control: without this, impossible shares would have been shown"


def test_a_question_that_abstains_shows_and_writes_no_number(site):
    study = site.study(questions=THREE)
    site.rows(study, "hours,tired,way,tier\n3,yes,by bike,strict\n")
    assert site.publish(study).status_code == 200
    page = pages(site.client(), f"/results/{study}")
    for key in ("result.answered", "result.noise", "result.noiseless", "result.assumed", "result.between"):
        assert not said(page, key), key
    assert said(page, "result.abstains")
    rows = list(csv.DictReader(io.StringIO(site.client().get(f"/api/results/{study}.csv").text)))
    assert len(rows) == 5
    for row in rows:
        assert row["abstains"] == "True"
        assert {row[name] for name in ("estimate", "low", "high", "answered", "answered_low", "answered_high")} == {""}
    full = site.study(questions=THREE)
    site.rows(full, "hours,tired,way,tier\n" + "3,yes,by bike,open\n" * 300)
    assert site.publish(full).status_code == 200
    page = pages(site.client(), f"/results/{full}")
    assert all(said(page, key) for key in ("result.answered", "result.noise", "result.assumed", "result.between"))
    rows = csv.DictReader(io.StringIO(site.client().get(f"/api/results/{full}.csv").text))
    assert {(row["abstains"], row["estimate"] != "") for row in rows} == {("False", True)}


def test_who_took_part_is_counted_and_who_allowed_nothing_is_counted_apart(site):
    some, everybody = site.study(tiers=TIERS), site.study(tiers=TIERS)
    site.join(some, [(3, "never")] * 2 + [(3, "open")] * 30)
    site.join(everybody, [(3, "open")] * 30)
    pair = []
    for study in (some, everybody):
        assert site.publish(study).status_code == 200
        pair.append(pages(site.client(), f"/results/{study}"))
    assert said(pair[0], "result.people.other", n="32")
    assert said(pair[0], "result.unused.other", n="2")
    assert said(pair[1], "result.people.other", n="30")
    assert not said(pair[1], "result.unused.other")


def test_a_mean_from_before_version_5_is_one_of_everybody(site):
    study = site.study()
    site.rows(study, "hours,tier\n" + "3,open\n" * 300)
    assert site.publish(study).status_code == 200
    page = pages(site.client(), f"/results/{study}")
    assert said(page, "result.between")
    with sqlite3.connect(site.app.state.settings.sqlite_file) as file:  # as that version stored it
        body = json.loads(file.execute("SELECT body FROM server_results WHERE study = ?", (study,)).fetchone()[0])
        body["questions"][0]["answered"] = None
        file.execute("UPDATE server_results SET body = ? WHERE study = ?", (json.dumps(body), study))
    page = pages(site.client(), f"/results/{study}")
    assert said(page, "result.between-everybody")
    assert not said(page, "result.between")


def test_a_page_without_results_says_so_of_every_study_and_of_no_publication(site):
    study, published = site.study(), site.study()
    site.join(published, [(3, "open")] * 3)
    assert site.publish(published).status_code == 200
    for language, catalogue in LANGUAGES.items():
        client = site.client(Accept_Language=language)
        for name in (study, "0123456789abcdef"):
            page = client.get(f"/results/{name}")
            assert (page.status_code, catalogue("error.no-results") in page.text) == (404, True)
        page = client.get(f"/results/{published}?wave=7")
        assert (page.status_code, catalogue("error.no-results") in page.text) == (404, False)


def test_an_interval_that_is_too_wide_is_one_of_several_where_there_are_several(site):
    study = site.study(questions=THREE)
    site.rows(study, "hours,tired,way,tier\n" + "3,yes,by bike,open\n" * 20)
    assert site.publish(study).status_code == 200
    found = {one["kind"]: one["uncertain"] for one in site.client().get(f"/api/results/{study}").json()["results"]}
    page = pages(site.client(), f"/results/{study}")
    assert said(page, "result.uncertain-choice") is found["choice"] is True
    assert said(page, "result.uncertain") is (found["number"] or found["yes-no"])


def test_levels_that_nobody_named_are_written_as_the_language_does_with_the_same_digits_everywhere(site):
    free = {"least": 0.012346, "most": 5}
    study = site.study(tiers=[], free=free, questions=THREE, waves=waves_of(0.33333, 0.33333, 0.33333))
    levels = [0.012346, 1, 1.5, 0.77, 2.22, 3.33, 0.5, 0.6, 0.7, 0.8, 0.9, 1.1, 1.2, 1.3, 4.4, 4.9]
    people = [site.enter(token) for token in site.invite(study, len(levels))]
    for person, level in zip(people, levels, strict=True):
        assert person.put("/api/answer", json=saying(SAID, epsilon=level)).status_code == 200
    own = pages(people[0])
    assert "with the choice ε = 0.01235." in own["en"]
    assert "mit der Stufe ε = 0,01235." in own["de"]
    dashboard = pages(site.curator, f"/curator/studies/{study}")
    assert "ε = 0.01235 to 0.5" in dashboard["en"]
    assert "ε = 0,01235 bis 0,5" in dashboard["de"]
    with later(2 * HOUR):
        assert site.publish_now(study).status_code == 200
        result = pages(site.client(), f"/results/{study}")
    assert "ε = 0.01235" in result["en"]
    assert re.search(r"ε = 0,01235(?: bis 0,\d+)?\b", result["de"])
    for page in (dashboard["de"], result["de"]):
        assert re.search(r"ε = \S+ to ", page) is None
        assert re.search(r"ε = \d+\.\d", page) is None
    # The rows go by what people chose, also where a row has several of them: no third of a third of it.
    table = site.client().get(f"/api/results/{study}").json()["results"][0]["table"]
    ends = [end for row in table for end in re.findall(r"[\d.]+", row["name"])]
    assert set(map(float, ends)) <= set(levels)


@pytest.mark.parametrize("count", [3, 7, 11])
def test_shares_are_printed_exactly_and_never_make_more_than_all(site, count):
    asked = [{**NUMBER, "name": f"q{i}", "text": f"Question {i}?"} for i in range(count)]
    page = pages(site.enter(site.invite(site.study(questions=asked), 1)[0]))
    shares = [float(one) for one in re.findall(r"at most ([\d.]+) % of each publication’s part", page["en"])]
    assert len(shares) == count
    assert len(set(shares)) == 1
    assert 99.98 < sum(shares) <= 100


def test_noise_is_promised_as_far_as_somebody_needs_it(site):
    page = pages(site.enter(site.invite(site.study(), 1)[0]))
    assert said(page, "about.noise")
    assert "none if everybody who counts asked for no protection" in page["en"]
    assert said(pages(site.client(), "/"), "home.lead")


# ---------------------------------------------------------------------------------------------------------
# What is over, deleted or changed


def test_after_a_restore_nobody_is_told_that_they_took_part_or_that_a_result_is_out(tmp_path):
    from hetdp.server import restore
    from hetdp.server.backup import back_up

    settings, tiers = settings_for(tmp_path), [{**TIERS[1], "epsilon": 0.9}, TIERS[2]]
    with served(settings) as site:
        two, one = site.study(waves=waves_of(0.5, 0.5), tiers=tiers), site.study(tiers=tiers)
        invited = [site.invite(study, 2) for study in (two, one)]
        back_up(settings, tmp_path / "backup")
    for path in tmp_path.iterdir():
        if path.name not in {"backup", "server.key"}:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    with later(2 * HOUR):
        told = restore.restore(settings, tmp_path / "backup")
        with served(settings) as site:
            site.curator.headers["Authorization"] = f"Bearer {told.key}"
            for study, tokens in zip((two, one), invited, strict=True):
                page = pages(site.enter(tokens[0]))
                assert said(page, "answer.before")
                assert said(page, "balance.spent")
                assert "took part" not in page["en"]
                assert said(page, "about.publication-over")
                assert not said(page, "about.publication-past")
                assert not said(page, "answer.results")
                assert said(page, "limit.spent") is (study == two)  # a level of 0.9 is used up by half of the largest
            for path in (f"/curator/studies/{one}", "/curator"):
                assert said(pages(site.curator, path), "phase.over"), path
            assert not said(pages(site.curator, f"/curator/studies/{two}"), "phase.over")
            status = site.curator.get("/api/status").json()["studies"]
            assert status == {"over": 1, "open": 1}
            assert said(pages(site.curator, "/curator/curators"), "event.restored-from-a-backup")
            assert said(pages(site.curator, f"/curator/studies/{one}"), "event.waves-lost-with-a-backup", waves="1")


@pytest.mark.parametrize("how", ["deleted", "date"])
def test_once_everything_is_deleted_the_page_says_that_and_what_stays_and_promises_nothing_more(site, how):
    study = site.study(tiers=TIERS, fewest=50, until=int(time.time()) + 2 * DAY, about={"institute": "Institute"})
    (person,), (invited, unused) = site.join(study, [(3, "open")]), site.invite(study, 2)
    gone = site.enter(unused)
    site.enter(invited).delete("/api/answer?everything=true")
    counts = site.curator.get(f"/api/studies/{study}/invitations").json()
    assert counts == {"made": 3, "used": 1, "open": 1, "revoked": 0, "deleted": 1}
    before = pages(person)
    about = ("about.read-text", "about.noise", "about.withdraw", "about.deleted-text", "about.not-hidden-text")
    assert all(said(before, key) for key in about)
    assert not said(before, "answer.deleted")
    with later(3 * DAY if how == "date" else 0):
        if how == "date":
            assert not said(pages(person), "answer.deleted"), "the hourly look was not yet"
            site.app.state.store.write(publish.expire)
        else:
            site.curator.delete(f"/api/studies/{study}")
        for page in (pages(person), pages(gone)):
            assert said(page, "answer.deleted")
            assert said(page, "about.stays-text")
            assert said(page, "about.copies")
            assert "Institute" in page["en"].partition("What stays")[2]
            for key in (*about, "leave.everything", "leave.link", "answer.before", "answer.closed", "about.fewest"):
                assert not said(page, key), key
        counts = site.curator.get(f"/api/studies/{study}/invitations").json()
        assert (counts["used"], counts["deleted"]) == (0, 3)


def test_a_publication_that_would_lie_after_the_deletion_does_not_take_place_and_that_is_said(site):
    """The date of the deletion was promised, so it stays when a late publication moves the next one behind it."""
    now = int(time.time())
    waves = [{"closes": now + HOUR, "share": 0.5}, {"closes": now + 9 * DAY, "share": 0.5}]
    study = site.study(waves=waves, tiers=TIERS, until=now + 10 * DAY)
    one, _ = site.join(study, [(3, "open")] * 2)
    assert not said(pages(one), "about.publication-never")
    with later(5 * DAY):
        assert site.publish_now(study).status_code == 200
        assert one.get("/api/answer").json()["study"]["until"] == now + 10 * DAY
        assert said(pages(one), "about.publication-never")
        assert said(pages(site.curator, f"/curator/studies/{study}"), "study.never")
        assert one.get("/api/answer").json()["study"]["phase"] == "published"
    with later(11 * DAY):
        assert one.put("/api/answer", json=saying(3, tier="open")).status_code == 409
        said_then = site.publish_now(study, 1)
        assert (said_then.status_code, said_then.json()["error"]["code"]) == (409, "wave")
        site.app.state.store.write(publish.expire)
        assert said(pages(one), "answer.deleted")


@pytest.mark.parametrize("planned", [1, 2])
def test_from_the_date_of_the_deletion_on_nothing_is_promised_published_or_offered(site, planned, monkeypatch):
    """Before the hourly look the page said that there is a publication; after it the dashboard offered to publish."""
    real = publish.following
    monkeypatch.setattr(publish, "following", lambda *study: (real(*study)[0], False))  # as a former hetdp left it
    now = int(time.time())
    waves = [{"closes": now + HOUR * (i + 1), "share": 1 / planned} for i in range(planned)]
    study = site.study(waves=waves, tiers=TIERS, until=now + 3 * HOUR)
    one, _ = site.join(study, [(3, "open")] * 2)
    promised = ("about.one-publication", "about.publication", "receipt.results", "about.fewest", "balance.left")
    offered = ("publish.publish", "invite.make", "live.enough", "live.predicted")
    with later(2.5 * HOUR):
        if planned == 2:
            assert site.publish_now(study).status_code == 200
        before, dashboard = pages(one), pages(site.curator, f"/curator/studies/{study}")
        assert said(before, "about.fewest") == (planned == 1)  # the second would close after the date by then
        assert said(dashboard, "invite.make") == (planned == 2)  # nobody could use a link of the first kind any more
    with later(4 * HOUR):
        for looked in (False, True):
            if looked:
                site.app.state.store.write(publish.expire)
            page, dashboard = pages(one), pages(site.curator, f"/curator/studies/{study}")
            assert said(page, "answer.deleted" if looked else "answer.ended")
            assert not [key for key in promised if said(page, key)]
            assert said(dashboard, "study.ended")
            assert said(dashboard, "phase.ended")
            assert not [key for key in offered if said(dashboard, key)]
            assert said(pages(site.curator, "/curator"), "phase.ended")
            invited = site.curator.post(f"/api/studies/{study}/invitations", json={"count": 1})
            assert (invited.status_code, invited.json()["error"]["code"]) == (409, "ended")
            published = site.publish_now(study, planned - 1)
            assert (published.status_code, published.json()["error"]["code"]) == (409, "ended")
        assert site.curator.get("/api/status").json()["studies"]["ended"] >= 1


def test_people_who_allow_nothing_are_not_counted_among_sealed_answers(site):
    """Their answers are not kept: what is sealed in their rows says nothing."""
    study, before = site.study(tiers=TIERS), site.curator.get("/api/status").json()
    site.join(study, [(3, "open"), (3, "never"), (3, "never")])
    found = site.curator.get("/api/status").json()
    assert (found["people"] - before["people"], found["answers_kept"] - before["answers_kept"]) == (3, 1)


def test_where_the_database_was_changed_nothing_is_said_that_its_rows_say(tmp_path):
    with served(settings_for(tmp_path)) as site:
        study = site.study(waves=waves_of(0.5, 0.5))
        (person,) = site.join(study, [(3, "open")])
        about = ("about.noise", "about.early", "about.each-carry", "about.withdraw", "about.deleted-text")
        page = pages(person)
        assert all(said(page, key) for key in about)
        assert said(page, "leave.again-text")
        for cells in ("fewest = 77", "status = 'deleted'"):
            with sqlite3.connect(tmp_path / "server.db") as file:
                file.execute(f"UPDATE server_studies SET {cells} WHERE id = ?", (study,))  # noqa: S608  ours
            page = pages(person)
            assert said(page, "answer.tampered")
            assert all(said(page, f"about.{key}-text") for key in ("read", "stays", "not-hidden"))
            assert said(page, "leave.withdraw")
            for key in (*about, "leave.again-text", "about.fewest", "answer.deleted"):
                assert not said(page, key), key


def test_whose_row_was_changed_is_told_how_they_can_still_withdraw_and_that_is_how(tmp_path):
    """By their link they were told that they can withdraw, and could not come in to do it."""
    with served(settings_for(tmp_path)) as site:
        study = site.study()
        tokens = site.invite(study, 2)
        persons = [site.enter(token) for token in tokens]
        receipts = [one.put("/api/answer", json=saying(3, tier="open")).json()["come_back"] for one in persons]
        with sqlite3.connect(tmp_path / "server.db") as file:
            file.execute("UPDATE server_people SET epsilon = 0.1 WHERE study = ?", (study,))
        for language, words in {"en": "page open can withdraw", "de": "Seite noch offen hat"}.items():
            link = {"token": receipts[0].partition("#")[2]}
            refused = site.client(Accept_Language=language).post("/api/session/participant", json=link)
            assert refused.json()["error"]["code"] == "changed"
            assert words in refused.json()["error"]["message"]
        assert said(pages(persons[0]), "answer.tampered")
        assert "on this page" in pages(persons[0])["en"]
        assert persons[0].delete("/api/answer").status_code == 200
        assert site.curator.delete(f"/api/studies/{study}").status_code == 200
        with sqlite3.connect(tmp_path / "server.db") as file:
            assert file.execute("SELECT count(*) FROM server_people WHERE answer IS NOT NULL").fetchall() == [(0,)]


@pytest.mark.parametrize("key", ["leave.everything-text", "leave.stay-out-text", "invite.revoke-text", "study.deleted"])
def test_what_is_said_to_end_for_good_has_the_one_exception_beside_it(key):
    found = {language: LANGUAGES[language].catalogue[key] for language in LANGUAGES}
    assert "an older state of" in found["en"]
    assert "älteren Stand des Servers wiederherstell" in found["de"] or "älterer Stand des Servers" in found["de"]


# ---------------------------------------------------------------------------------------------------------
# One person


def test_answers_that_are_not_used_are_not_called_kept(site):
    study = site.study(tiers=TIERS)
    never, one = site.join(study, [(3, "never"), (3, "open")])
    assert said(pages(never), "answer.in-unused", choice="never")
    assert not said(pages(never), "answer.in")
    assert said(pages(one), "answer.in", choice="open")
    assert not said(pages(one), "answer.in-unused")
    for person in (never, one):
        assert "your answers were not kept" in person.get("/answer").text  # for the receipt


def test_withdrawing_is_offered_while_there_is_an_answer(site):
    study = site.study(waves=waves_of(0.5, 0.5), each_wave="ask", tiers=TIERS)
    one, _ = site.join(study, [(3, "open")] * 2)
    dashboard = f"/curator/studies/{study}"
    assert said(pages(one), "leave.withdraw")
    with later(2 * HOUR):
        assert site.publish_now(study).status_code == 200
        assert said(pages(one), "answer.again")
        assert said(pages(site.curator, dashboard), "live.nobody-again")
        assert not said(pages(site.curator, dashboard), "live.nobody")
    with later(31 * DAY):
        page = pages(one)
        assert said(page, "answer.gone", choice="open")
        assert not said(page, "leave.withdraw")
        assert said(page, "leave.everything")


def test_who_never_took_part_is_not_told_what_stays_of_them(site):
    study = site.study(waves=waves_of(0.5, 0.5), tiers=TIERS)
    one, *_ = site.join(study, [(3, "open")] * 5)
    fresh = pages(site.enter(site.invite(study, 1)[0]))
    assert said(fresh, "leave.stay-out-text")
    assert not said(fresh, "leave.stay-out-before")
    with later(2 * HOUR):
        assert site.publish_now(study).status_code == 200
        assert one.delete("/api/answer").status_code == 200
        assert said(pages(one), "leave.stay-out-before")


def test_after_withdrawing_the_new_link_works_and_the_old_one_does_not(site):
    """What the page says beside the button, done."""
    study = site.study(tiers=TIERS)
    person = site.enter(site.invite(study, 1)[0])
    old = person.put("/api/answer", json=saying(3, tier="open")).json()["come_back"].partition("#")[2]
    assert said(pages(person), "leave.again-text")
    assert person.delete("/api/answer").status_code == 200
    new = person.put("/api/answer", json=saying(3, tier="open")).json()["come_back"].partition("#")[2]
    entered = [site.client().post("/api/session/participant", json={"token": token}) for token in (old, new)]
    assert [one.status_code for one in entered] == [403, 200]


def test_what_was_used_before_is_named_beside_the_numbers_if_something_was(site):
    study = site.study(waves=waves_of(0.5, 0.5), tiers=TIERS)
    one, *_ = site.join(study, [(3, "open")] * 5)
    assert not said(pages(one), "privacy.number-before")
    with later(2 * HOUR):
        assert site.publish_now(study).status_code == 200
        assert said(pages(one), "privacy.number-before")


# ---------------------------------------------------------------------------------------------------------
# The curator


def test_the_dashboard_speaks_of_enough_people_while_something_can_be_published(site):
    study = site.study(tiers=TIERS, fewest=2)
    site.join(study, [(3, "open")])
    path = f"/curator/studies/{study}"
    assert said(pages(site.curator, path), "live.too-few", n="1", fewest="2")
    site.join(study, [(3, "open")])
    assert said(pages(site.curator, path), "live.enough", fewest="2")
    assert site.publish(study).status_code == 200
    assert not said(pages(site.curator, path), "live.enough")
    assert said(pages(site.curator, path), "phase.published")


@pytest.mark.parametrize("each", ["carry", "ask"])
def test_a_file_from_another_curator_is_a_second_import_and_the_page_says_so(site, each):
    study = site.study(each_wave=each, waves=waves_of(0.5, 0.5))
    page = pages(site.curator, f"/curator/studies/{study}")
    assert said(page, f"import.same-{each}")
    assert said(page, "import.no-link")
    assert said(page, "import.same-carry") is (each == "carry")


def test_the_status_page_counts_studies_by_where_they_stand(tmp_path):
    with served(settings_for(tmp_path)) as site:
        now = int(time.time())
        site.study()
        site.study(opens=now + DAY, waves=[{"closes": now + 2 * DAY}])
        closed = site.study()
        with later(2 * HOUR):
            assert site.curator.get("/api/status").json()["studies"] == {"closed": 2, "planned": 1}
        with sqlite3.connect(tmp_path / "server.db") as file:
            file.execute("UPDATE server_studies SET waves = 'no JSON' WHERE id = ?", (closed,))
        assert site.curator.get("/api/status").json()["studies"] == {"open": 1, "planned": 1, "changed": 1}
        page = pages(site.curator, "/curator/status")
        assert said(page, "status.people")
        assert said(page, "phase.changed")


def test_a_rule_that_a_field_breaks_is_worded_without_a_path_and_with_the_languages_numbers(site):
    new = {"title": "x", "questions": [NUMBER], "tiers": TIERS, "opens": 0, "waves": [{"closes": 9, "share": 0.0005}]}
    for language, message in (("en", "Must be at least 0.001."), ("de", "Muss mindestens 0,001 sein.")):
        answer = site.curator.post("/api/studies", json=new, headers={"Accept-Language": language})
        assert answer.json()["error"]["message"] == message
        assert answer.json()["error"]["field"] == "waves.0.share"


def test_closing_early_tells_nobody_but_by_their_page():
    for language, sentence in (("en", "appears on everybody’s page"), ("de", "steht auf der Seite aller")):
        for count in ("one", "other"):
            assert sentence in LANGUAGES[language].catalogue[f"publish.early.{count}"]


def test_while_the_database_fails_who_reads_gets_a_page_and_who_writes_is_not_told_that_nothing_was_done(
    site, monkeypatch
):
    (person,) = site.join(site.study(), [(3, "open")])

    def fails(*_, **__):
        raise sqlite3.OperationalError

    monkeypatch.setattr(site.app.state.store, "read", fails)
    monkeypatch.setattr(site.app.state.store, "write", fails)
    for language, catalogue in LANGUAGES.items():
        person.cookies.set("hetdp_language", language)
        page = person.get("/answer")
        assert (page.status_code, page.headers["Retry-After"]) == (503, "10")
        assert catalogue("error.database-read") in page.text
        assert "<html" in page.text
        refused = person.delete("/api/answer")
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "database")
        assert refused.json()["error"]["message"] == catalogue.catalogue["error.database"]


# ---------------------------------------------------------------------------------------------------------
# Who has less left than a publication may use

FIVE = [
    *({"name": name, "epsilon": epsilon} for name, epsilon in [("never", 0), ("strict", 0.4), ("one", 1.0)]),
    *({"name": name, "epsilon": epsilon} for name, epsilon in [("middle", 1.2), ("open", 2)]),
]


def second_wave(site, lowered, to, people=40, **changes):
    """A study of two waves after its first one, in which some of the people who were open then have lowered that."""
    study = site.study(waves=waves_of(0.5, 0.5), tiers=FIVE, **changes)
    crowd = site.join(study, [(3, "open")] * people)
    with later(2 * HOUR):
        assert site.publish_now(study).status_code == 200
    with later(3 * HOUR):
        for person in crowd[:lowered]:
            assert person.put("/api/answer", json=saying(3, tier=to)).status_code == 200
    return study


def second_result(site, study):
    """The first question of the second wave, and the page of it."""
    with later(31 * DAY):
        assert site.publish_now(study, 1).status_code == 200
        client = site.client()
        return client.get(f"/api/results/{study}?wave=1").json()["results"][0], pages(
            client, f"/results/{study}?wave=1"
        )


def test_no_row_of_a_result_has_the_name_of_a_choice_that_somebody_in_it_did_not_make(site):
    study = second_wave(site, 10, "middle")
    with later(4 * HOUR):
        site.join(study, [(3, "strict")] * 3)  # the share of this is what is left to those who were open: 0.2
    one, page = second_result(site, study)
    assert {row["name"]: row["people"] for row in one["table"]} == {"ε = 0.2": 13, "open": 30}
    assert [tier["name"] for tier in one["tiers"]] == ["ε = 0.2", "open"]
    assert one["short"] == 10
    assert said(page, "result.short.other", n="10")


def test_who_has_nothing_left_stands_in_no_row_of_those_who_allow_nothing(site):
    one, page = second_result(site, second_wave(site, 40, "one"))
    assert [(row["name"], row["people"]) for row in one["table"]] == [("ε = 0", 40)]
    assert one["short"] == 40
    assert said(page, "result.short.other", n="40")
    assert "never" not in page["en"].partition("What this question used")[2]


@pytest.mark.parametrize("to", ["open", "strict"])
def test_where_everybody_has_the_whole_share_rows_are_called_after_choices(site, to):
    """The control: nobody lowered anything, and others came."""
    study = second_wave(site, 0, "open")
    with later(4 * HOUR):
        site.join(study, [(3, to)] * 3)
    one, page = second_result(site, study)
    assert {row["name"]: row["people"] for row in one["table"]} == {
        "open": {"open": 43, "strict": 40}[to],
        **({} if to == "open" else {"strict": 3}),
    }
    assert one["short"] == 0
    assert not said(page, "result.short.other")
    assert not said(page, "result.short.one")


def test_free_choices_of_which_less_is_left_are_called_by_what_is_left(site):
    study = site.study(tiers=[], free={"least": 0.1, "most": 5}, waves=waves_of(0.5, 0.5))
    people = [site.enter(token) for token in site.invite(study, 20)]
    for person in people:
        assert person.put("/api/answer", json=saying(3, epsilon=2)).status_code == 200
    with later(2 * HOUR):
        assert site.publish_now(study).status_code == 200
    with later(3 * HOUR):
        assert people[0].put("/api/answer", json=saying(3, epsilon=1.25)).status_code == 200
    one, page = second_result(site, study)
    assert {row["name"]: row["people"] for row in one["table"]} == {"ε = 0.25": 1, "ε = 2": 19}
    assert said(page, "result.short.one", n="1")


def test_a_row_of_a_charge_that_was_given_up_has_no_name_of_a_choice(site, monkeypatch):
    """The ledger has less left of these people than the register knows of, so they enter with less than their share."""
    study = site.study(tiers=FIVE)
    crowd = site.join(study, [(3, "open")] * 40)
    with later(2 * HOUR):
        with monkeypatch.context() as patch:
            patch.setattr(publish.Reading, "_opening", lambda *_: 1 / 0)
            site.publish_now(study)
        assert crowd[0].delete("/api/answer").status_code == 200
        assert site.publish_now(study).status_code == 200
        one = site.client().get(f"/api/results/{study}").json()["results"][0]
    assert [(row["name"], row["people"]) for row in one["table"]] == [("ε = 0", 39)]
    assert one["short"] is None


def test_a_result_from_before_keeps_the_names_that_it_was_published_with(site):
    study = site.study(tiers=FIVE)
    site.join(study, [(3, "open")] * 5)
    assert site.publish(study).status_code == 200
    with sqlite3.connect(site.app.state.settings.sqlite_file) as file:
        (body,) = file.execute("SELECT body FROM server_results WHERE study = ?", (study,)).fetchone()
        facts = json.loads(body)
        for one in facts["questions"]:
            del one["short"]
            one["table"][0]["name"] = "as it was"
        file.execute("UPDATE server_results SET body = ? WHERE study = ?", (json.dumps(facts), study))
    page = pages(site.client(), f"/results/{study}")
    assert "as it was" in page["en"]
    assert not said(page, "result.short.other")


@pytest.mark.parametrize(("lowered", "to"), [(40, "one"), (10, "middle"), (0, "open")])
def test_the_forecast_is_of_what_the_publication_then_does(site, lowered, to):
    study = second_wave(site, lowered, to)
    with later(4 * HOUR):
        live = site.live(study)["questions"][0]
        query = {"people": 1, "tier": "never"}
        now = site.curator.get(f"/api/studies/{study}/what-if", params=query).json()["now"][0]
        page = pages(site.curator, f"/curator/studies/{study}")
    assert {name: live[name] for name in now} == now
    assert said(page, "live.unusable") is (lowered == 40)
    one, _ = second_result(site, study)
    assert one["abstains"] is live["abstains"] is (lowered == 40)
    plan = live["plan"]
    assert [(tier["epsilon"], tier["people"]) for tier in plan["tiers"]] == [
        (tier["epsilon"], tier["people"]) for tier in one["tiers"]
    ]
    assert plan["worst_case_error"] == one["worst_case_error"]


def test_without_a_ledger_there_is_no_forecast_and_that_is_said(site, monkeypatch):
    study = second_wave(site, 0, "open", people=5)
    monkeypatch.setattr(site.app.state.publisher, "balances", lambda _: None)
    with later(4 * HOUR):
        page = pages(site.curator, f"/curator/studies/{study}/live")  # elsewhere it tells how yes is written in a file
        refused = site.curator.get(f"/api/studies/{study}/what-if", params={"people": 1, "tier": "open"})
    assert said(page, "balance.unknown")
    for key in ("live.unusable", "live.usable", "live.uncertain"):
        assert not said(page, key), key
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "ledger")


@pytest.mark.parametrize("each", ["ask", "carry"])
def test_what_a_publication_may_use_is_of_those_who_take_part_in_it(site, each):
    study = site.study(waves=waves_of(0.33, 0.33, 0.33), tiers=FIVE, each_wave=each)
    crowd = site.join(study, [(3, "open")] * 40)
    with later(2 * HOUR):
        assert site.publish_now(study).status_code == 200
    with later(3 * HOUR):
        for person in crowd:
            assert person.put("/api/answer", json=saying(3, tier="middle")).status_code == 200
    with later(31 * DAY):
        assert site.publish_now(study, 1).status_code == 200
    with later(32 * DAY):
        site.join(study, [(3, "middle")] * 30)  # those of before have 0.144 left
        (row,) = (row for row in site.live(study)["joined"] if row["name"] == "middle")
    assert row["people"] == (30 if each == "ask" else 70)
    assert row["share"] == pytest.approx(0.396)
    assert row["spent"] == (0 if each == "ask" else pytest.approx(1.056))
    assert row["left"] == pytest.approx(1.2 if each == "ask" else 0.144)
    with later(62 * DAY):
        assert site.publish_now(study, 2).status_code == 200
        one = site.client().get(f"/api/results/{study}?wave=2").json()["results"][0]
    assert max(row["epsilon"] for row in one["table"]) == pytest.approx(row["share"])


def drawn_and_not_stored(site, study, monkeypatch):
    """Let the ledger fail just after the numbers were drawn."""
    keep = Register.keep

    def failing(*args):
        keep(*args)
        raise LedgerError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(Register, "keep", failing)
        assert site.publish_now(study).status_code == 409


def test_while_answers_are_read_pages_offer_to_delete_only_what_can_be_deleted(site, monkeypatch):
    """Everybody was offered to delete everything, and was refused because the survey was not open yet, or closed."""
    now = int(time.time())
    study = site.study(until=now + 10 * DAY)
    waiting = site.enter(site.invite(study, 1)[0])
    (one,) = site.join(study, [(3, "public")])
    with later(2 * DAY):
        drawn_and_not_stored(site, study, monkeypatch)
        assert said(pages(one), "leave.being-read")
        assert not said(pages(one), "leave.everything")
        refused = one.delete("/api/answer?everything=true")
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "being-read")
        assert said(pages(site.curator, f"/curator/studies/{study}"), "erase.text")
        assert said(pages(waiting), "leave.link")
        assert waiting.delete("/api/answer?everything=true").status_code == 200
    with later(11 * DAY):  # before the hourly look
        assert one.get("/api/answer").json()["study"]["phase"] == "ended"
        assert not [
            key for key in ("about.one-publication", "about.fewest", "leave.being-read") if said(pages(one), key)
        ]


def test_of_a_study_that_was_changed_after_its_publication_people_can_empty_their_rows(tmp_path):
    with served(settings_for(tmp_path)) as site:
        study = site.study()
        (one,) = site.join(study, [(3, "open")])
        with later(2 * DAY):
            assert site.publish_now(study).status_code == 200
            assert one.delete("/api/answer").json()["error"]["code"] == "used-up"
            with closing(sqlite3.connect(tmp_path / "server.db")) as file, file:
                file.execute("UPDATE server_studies SET created = created + 1")
            assert said(pages(one), "leave.withdraw")
            assert one.delete("/api/answer").json()["withdrawn"] is True


def test_the_key_in_a_folder_of_the_databases_folder_does_not_lie_apart(tmp_path):
    (tmp_path / "keys").mkdir()
    apart = {"below": tmp_path / "keys", "above": tmp_path, "beside": tmp_path / "data"}
    (tmp_path / "data").mkdir()
    for place, folder in apart.items():
        found = Settings(database=f"sqlite:///{tmp_path}/data/server.db", key_file=folder / "server.key")
        assert found.key_beside_database == (place != "below"), place
    inner = Settings(database=f"sqlite:///{tmp_path}/server.db", key_file=tmp_path / "keys" / "server.key")
    assert inner.key_beside_database


# ---------------------------------------------------------------------------------------------------------
# What is over, and what was late


@pytest.mark.parametrize("held", ["before anything is read", "before it is stored"])
def test_a_publication_that_is_under_way_at_the_date_of_deletion_is_given_up(tmp_path, monkeypatch, held):
    """The pages say that nothing is published after that date, and it was, if it had begun a moment before."""
    clock = []
    with served(settings_for(tmp_path)) as site:
        study = site.study(until=int(time.time()) + 10 * DAY)
        (one, *_) = site.join(study, [(3, "open")] * 20)
        place = (publish.Publisher, "_released") if held == "before anything is read" else (publish, "_store")
        real = getattr(*place)

        def late(*args):
            clock.append(later(11 * DAY))
            clock[0].__enter__()
            return real(*args)

        monkeypatch.setattr(*place, late)
        try:
            with later(10 * DAY - 60):
                answer = site.publish_now(study)
            assert (answer.status_code, answer.json()["error"]["code"]) == (409, "ended")
            assert said(pages(one), "answer.ended")
            assert not said(pages(one), "answer.results-all")
            drawn = site.app.state.store.register.numbers(study, 0)[1] is not None
            assert drawn == (held == "before it is stored"), "no answer is opened after the date"
            publish_look(site)
            assert site.curator.get("/api/status").json()["answers_kept"] == 0
            assert said(pages(one), "answer.deleted")
            assert site.client().get(f"/api/results/{study}").status_code == 404
        finally:
            clock[0].__exit__(None, None, None)


def publish_look(site):
    """Do what the server does every hour."""
    from hetdp.server.app import look

    look(site.app)


def test_a_publication_without_enough_people_is_named_on_the_page_of_the_others(site):
    study = site.study(waves=waves_of(0.3, 0.3, 0.3), each_wave="ask", tiers=TIERS, fewest=2)
    people = site.join(study, [(3, "open"), (3, "public")])
    assert site.publish(study, 0).status_code == 200
    with later(40 * DAY):
        publish_look(site)
        for person in people:
            assert person.put("/api/answer", json=saying(3, tier="open", allow_more=True)).status_code == 200
    with later(70 * DAY):
        assert site.publish_now(study, 2).status_code == 200
        assert said(pages(site.client(), f"/results/{study}"), "study.few.one", which="2")
    assert not said(pages(site.client(), f"/results/{published_once(site)}"), "study.few.one")


def published_once(site):
    study = site.study(tiers=TIERS)
    site.join(study, [(3, "public")])
    assert site.publish(study).status_code == 200
    return study


def test_a_study_whose_next_publication_would_be_too_late_says_so_before_and_closed_with_the_one_before(site):
    now = int(time.time())
    closes = [now + HOUR, now + 8 * DAY]
    waves = [{"closes": one, "share": 0.5} for one in closes]
    study = site.study(waves=waves, tiers=TIERS, until=now + 10 * DAY)
    (one,) = site.join(study, [(3, "open")])
    dashboard = f"/curator/studies/{study}"
    with later(2 * HOUR):  # seven days from then are before the deletion
        assert not said(pages(site.curator, dashboard), "publish.last")
        page = pages(one)
        assert said(page, "answer.closed-again")
        assert "if the next one can still close before everything is deleted" in page["en"]
    with later(3.5 * DAY):
        assert said(pages(site.curator, dashboard), "publish.last")
        assert site.publish_now(study).status_code == 200
        assert not said(pages(one), "answer.closed-again")
        page = pages(site.curator, dashboard)
        assert said(page, "live.publication-of", n="1", of="2")
    with later(11 * DAY):
        for path in (dashboard, "/curator"):
            page = pages(site.curator, path)
            for language, words in LANGUAGES.items():
                assert f"{words('studies.closed', date=words.date(closes[0]))}" in page[language], path


def test_who_withdraws_after_the_last_publication_is_told_why_that_is_too_late(site):
    study = site.study(tiers=TIERS)
    (one,) = site.join(study, [(3, "open")])
    assert site.publish(study).status_code == 200
    for language, text in (("en", "The last publication is over"), ("de", "Die letzte Veröffentlichung ist vorbei")):
        refused = one.delete("/api/answer", headers={"Accept-Language": language})
        assert refused.status_code == 409
        assert refused.json()["error"]["message"].startswith(text)


def test_a_log_that_is_longer_than_its_page_says_so_and_the_api_has_all_of_it(site):
    study = site.study()
    assert not said(pages(site.curator, f"/curator/studies/{study}"), "log.newest")
    for _ in range(201):
        site.curator.delete(f"/api/studies/{study}/invitations")
    page = pages(site.curator, f"/curator/studies/{study}")
    assert said(page, "log.newest", n="200")
    assert not said(page, "event.study-created")
    events = [one["event"] for one in site.curator.get(f"/api/studies/{study}/events").json()]
    assert (len(events), events[-1]) == (202, "study created")


def test_large_numbers_are_written_out_for_people(site):
    study = site.study(tiers=[TIERS[0], {"name": "wide", "epsilon": 268_456.7, "sentence": ""}])
    page = pages(site.enter(site.invite(study, 1)[0]))
    assert "Never more than ε = 268,500." in page["en"]
    assert "Nie mehr als ε = 268.500." in page["de"]


def test_somebody_who_can_no_longer_take_part_is_not_told_that_nothing_has_to_be_done(site):
    study = site.study()
    one = site.enter(site.invite(study, 1)[0])
    assert said(pages(one), "leave.stay-out-nothing")
    with later(2 * HOUR):
        page = pages(one)
        assert said(page, "leave.link-title")
        assert not said(page, "leave.stay-out-nothing")


def test_who_withdrew_reads_so_whenever_they_come_back(site):
    study = site.study(tiers=TIERS)
    person = site.enter(site.invite(study, 1)[0])
    assert not said(pages(person), "answer.none")
    link = person.put("/api/answer", json=saying(3, tier="open")).json()["come_back"].partition("#")[2]
    assert not said(pages(person), "answer.none")
    assert person.delete("/api/answer").status_code == 200
    for page in (pages(person), pages(site.enter(link))):
        assert said(page, "answer.none")
        assert not said(page, "answer.before"), "nothing was used"


@pytest.mark.parametrize("each", ["carry", "ask"])
def test_after_the_last_publication_no_sentence_speaks_of_answers_that_could_be_deleted(site, each):
    study = site.study(waves=waves_of(0.5, 0.5), tiers=TIERS, each_wave=each)
    (one,) = site.join(study, [(3, "open")])
    assert said(pages(one), "about.changeable-again") is (each == "carry"), "who is asked again answers anew"
    assert site.publish(study, 0).status_code == 200
    assert said(pages(one), "about.deleted-text")
    assert not said(pages(one), "about.changeable-again"), "there is one publication left"
    with later(31 * DAY):
        assert one.put("/api/answer", json=saying(3, tier="open")).status_code == 200
    assert site.publish(study, 1).status_code == 200
    page = pages(one)
    for here, gone in (("leave.rest-text", "leave.everything-text"), ("about.deleted-rest", "about.deleted-text")):
        assert said(page, here)
        assert not said(page, gone)


def test_of_a_study_that_too_few_answered_no_page_says_what_only_a_publication_would_have_done(site):
    study = site.study(tiers=TIERS, fewest=3, waves=waves_of(0.5, 0.5))
    (one,) = site.join(study, [(3, "open")])
    assert said(pages(one), "about.more-publications", n="2")
    with later(2 * HOUR):
        page = pages(one)
        assert said(page, "about.publication-few")
        assert said(page, "about.planned-publications", n="2")
        assert not said(page, "about.more-publications")
    with later(60 * DAY):
        page = pages(one)
        assert said(page, "balance.nothing-at-all")
        assert said(page, "about.deleted-rest")
        assert "Once a publication that includes you has begun, the ledger keeps" in page["en"]
        assert "deleted with the last publication" not in page["en"]


def test_a_share_that_is_too_uncertain_is_said_as_an_interval_alone(site):
    """ "About 100 % answer this question" was said where 8 of 10 did, and the interval began at 23 %."""
    study = site.study(tiers=TIERS, questions=THREE)
    site.join(study, [({"hours": 3, "tired": True, "way": "by bike"}, "public")] * 30)
    assert site.publish(study).status_code == 200
    assert said(pages(site.client(), f"/results/{study}"), "result.answered")
    found = site.client().get(f"/api/results/{study}").json()
    one = found["results"][0]
    one["answered"] |= {"estimate": 1.0, "low": 0.23, "high": 1.0, "uncertain": True}
    shown = pages_of._shown(LANGUAGES["en"], one, 0, [found])
    assert shown["said"] == "Between 23 and 100 % answer this question."
