"""Pages that must not say more than the server will do: a tab left open, records that were changed, a last date."""

from __future__ import annotations

import sqlite3
import time

import pytest
from test_server_sentences import HOUR, LANGUAGES, TIERS, pages, said, waves_of
from test_server_states import refused

from hetdp.server import publish
from serving import DAY, NUMBER, THREE, later, saying, served, settings_for

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    with served(settings_for(tmp_path_factory.mktemp("outdated"))) as running:
        yield running


# ---------------------------------------------------------------------------------------------------------
# A tab that was left open


def made_for(person):
    """What a page sends of the moment at which it was made."""
    study = person.get("/api/answer").json()["study"]
    return {name: study[name] for name in ("wave", "closes")}


def moved_by_a_publication(site, study):
    assert site.publish_now(study).status_code == 200


def moved_by_closing_early(site, study):
    assert site.curator.post(f"/api/studies/{study}/close", json={"wave": 0}).status_code == 200


@pytest.mark.parametrize(
    ("moved", "first", "at"),
    [(moved_by_a_publication, HOUR, 2 * HOUR), (moved_by_closing_early, 60 * DAY, 0)],
)
def test_nothing_is_stored_of_a_page_whose_promises_no_longer_hold(site, moved, first, at):
    study = site.study(waves=waves_of(0.5, 0.5, first=first), tiers=TIERS)
    (one,) = site.join(study, [(3, "open")])
    old = made_for(one)
    body = saying(3, tier="middle")
    assert one.put("/api/answer", json={**saying(3, tier="open"), **old}).status_code == 200, "while nothing moved"
    with later(at):
        moved(site, study)
        found = refused(one, "PUT", "/api/answer", json={**body, **old})
        assert one.put("/api/answer", json={**body, **old}).json()["error"]["code"] == "outdated"
        for language, words in LANGUAGES.items():
            assert found[language] == words.catalogue["error.outdated"]
        assert one.get("/api/answer").json()["choice"]["tier"] == "open", "nothing was changed"
        for name, value in old.items():  # each by itself
            if made_for(one)[name] != value:
                assert one.put("/api/answer", json={**body, name: value}).status_code == 409
        assert one.put("/api/answer", json={**body, **made_for(one)}).status_code == 200
        assert one.put("/api/answer", json=body).status_code == 200, "a program need not say it"


def test_a_receipt_has_the_servers_time_and_the_date_until_which_the_answer_can_be_changed(site):
    now = int(time.time())
    closing = {"usual": now + HOUR, "never": now + 10 * DAY}
    for closes, until in ((closing["usual"], None), (closing["never"] - 60, closing["never"])):
        study = site.study(waves=[{"closes": closes, "share": 1.0}], **({"until": until} if until else {}))
        person = site.enter(site.invite(study, 1)[0])
        with later(30):  # the server's clock is ahead of this one
            said = person.put("/api/answer", json=saying(3, tier="open")).json()
        assert said["closes"] == closes
        assert 30 <= said["at"] - now <= 30 + 600


# ---------------------------------------------------------------------------------------------------------
# Records that were changed from outside


def test_a_curator_is_not_told_that_a_changed_study_can_be_published_or_is_deleted_at_its_date(tmp_path):
    with served(settings_for(tmp_path)) as site:
        study = site.study(fewest=1, until=int(time.time()) + 2 * DAY)
        site.join(study, [(3, "open")] * 3)
        path = f"/curator/studies/{study}"
        dates = (
            "publish.binding",
            "live.enough",
            "live.wave-share",
            "live.predicted",
            "delete.date",
            "studies.closes",
        )
        forms = ("invite.make", "what-if.ask", "import.import")
        page = pages(site.curator, path)
        assert [key for key in (*dates, *forms) if not said(page, key)] == []
        assert not said(page, "study.changed")
        with sqlite3.connect(tmp_path / "server.db") as file:
            file.execute("UPDATE server_studies SET fewest = 2 WHERE id = ?", (study,))
        for seconds in (0, DAY, 3 * DAY):
            with later(seconds):
                site.app.state.store.write(publish.expire)
                page = pages(site.curator, path)
                assert said(page, "study.changed")
                assert said(page, "phase.changed")
                assert said(page, "delete.text")
                assert [key for key in (*dates, *forms, "publish.text.one") if said(page, key)] == []
                assert said(pages(site.curator, f"{path}/live"), "live.people")
                listed = pages(site.curator, "/curator")
                assert said(listed, "phase.changed")
                assert not said(listed, "studies.closes")
                assert site.curator.get("/api/status").json()["studies"] == {"changed": 1}
                assert site.live(study)["study"]["phase"] == "changed"
                # What the sentences say is so.
                assert site.publish_now(study).json()["error"]["code"] == "changed"
                assert site.live(study)["n"] == 3
        assert site.curator.delete(f"/api/studies/{study}").status_code == 200
        assert site.live(study)["study"]["phase"] == "deleted"


def test_what_a_changed_row_of_somebody_else_can_stop_is_said_to_be_planned(tmp_path):
    with served(settings_for(tmp_path)) as site:
        study = site.study(tiers=TIERS)
        people = site.join(study, [(3, "open")] * 3)
        with sqlite3.connect(tmp_path / "server.db") as file:
            (one,) = file.execute("SELECT id FROM server_people WHERE study = ? LIMIT 1", (study,)).fetchone()
            file.execute("UPDATE server_people SET epsilon = 1.2 WHERE id = ?", (one,))
        others = [page for page in map(pages, people) if not said(page, "answer.tampered")]
        assert len(others) == 2
        for page in others:
            assert "One publication is planned, after" in page["en"]
            assert "Geplant ist eine Veröffentlichung" in page["de"]
        curator = pages(site.curator, f"/curator/studies/{study}")
        assert "can be published" not in curator["en"]
        assert "enough to publish" not in curator["en"]
        assert site.publish(study).json()["error"]["code"] == "changed"


def test_publications_that_are_over_were_planned(site):
    study = site.study(waves=waves_of(0.5, 0.5), tiers=TIERS)
    (one,) = site.join(study, [(3, "public")])
    assert said(pages(one), "about.more-publications", n="2")
    for wave in (0, 1):
        assert site.publish(study, wave).status_code == 200
    page = pages(one)
    assert said(page, "about.planned-publications", n="2")
    assert not said(page, "about.more-publications")


# ---------------------------------------------------------------------------------------------------------
# Answers and results


def test_where_a_result_can_be_one_answer_pages_do_not_say_that_none_is_ever_shown(site):
    study = site.study(tiers=TIERS, fewest=1)
    person = site.enter(site.invite(study, 1)[0])
    assert person.put("/api/answer", json=saying(7.3, tier="public")).status_code == 200
    page = pages(person)
    for sentence in ("can amount to one answer", "results reveal at most what your choice allows"):
        assert sentence in page["en"]
    for sentence in ("auf eine einzelne Antwort hinauslaufen", "höchstens, was Ihre Stufe erlaubt"):
        assert sentence in page["de"]
    # The privacy choice stands in the list above that sentence, and it is shown from then on.
    assert "no page shows it" not in page["en"]
    assert said(page, "answer.in", choice="public")
    # What the sentence allows for is so.
    assert site.publish(study).status_code == 200
    assert "7.3" in pages(site.client(), f"/results/{study}")["en"]


def test_noise_is_not_blamed_for_what_is_missing_to_a_hundred_per_cent_where_there_is_none(site):
    for tier, key, other in (
        ("public", "result.of-choice-noiseless", "result.of-choice"),
        ("open", "result.of-choice", "result.of-choice-noiseless"),
    ):
        study = site.study(tiers=TIERS, questions=[THREE[2]])
        site.join(study, [({"way": way}, tier) for way in ["by bus", "on foot", None] * 10])
        assert site.publish(study).status_code == 200
        page = pages(site.client(), f"/results/{study}")
        assert said(page, key)
        assert not said(page, other)


# ---------------------------------------------------------------------------------------------------------
# Files, and small sentences

FREE = {"tiers": [], "free": {"least": 0.1, "most": 1.2345}}
WRONG = [
    ({}, "x,tier\n3,open\n", "error.rows-column", {"column": "hours"}),
    ({}, "hours\n3\n", "error.rows-column", {"column": "tier"}),
    ({}, "hours,tier\n\n3,nope\n", "error.rows-epsilon", {"line": "3"}),
    ({}, "hours,tier\n3,open,4\n", "error.rows-line", {"line": "2"}),
    ({}, "", "error.rows-empty", {}),
    ({}, "hours,tier\n", "error.rows-nobody", {}),
    (FREE, "hours,epsilon", "error.rows-nobody", {}),
    (FREE, "hours,epsilon\n3,1\n\n3,9\n3,8\n", "error.rows-range", {"line": "4", "least": "0.1", "most": "1.2345"}),
    (FREE, "hours,epsilon\n3,0.05\n", "error.rows-range", {"line": "2", "least": "0.1", "most": "1.2345"}),
]


@pytest.mark.parametrize(("kind", "text", "key", "facts"), WRONG)
def test_what_is_wrong_with_a_file_is_said_in_the_language_of_the_page(site, kind, text, key, facts):
    study = site.study(**kind)
    body = {"content": text}
    site.curator.headers["Content-Type"] = "text/csv"
    try:
        found = refused(site.curator, "POST", f"/api/studies/{study}/rows", **body)
    finally:
        del site.curator.headers["Content-Type"]
    for language, words in LANGUAGES.items():
        shown = {name: fact.replace(".", words.catalogue["format.decimal"]) for name, fact in facts.items()}
        assert found[language] == words.catalogue[key].format(**shown)
    # A program gets the library's own sentence, about the same column or line.
    assert all(fact in found[None] for fact in facts.values())
    assert "value" not in found[None]
    columns = pages(site.curator, f"/curator/studies/{study}")["en"].partition("Columns:")[2]
    assert facts.get("column", "hours") in columns[:40]


def test_what_has_no_words_of_its_own_is_said_to_be_in_english(site):
    answer = site.curator.post(
        f"/api/studies/{site.study()}/rows",
        content="hours,hours,tier\n3,3,open\n",
        headers={"Content-Type": "text/csv", "Accept-Language": "de"},
    )
    assert "auf Englisch: the header of the file has two columns" in answer.json()["error"]["message"]


def test_a_one_question_study_still_takes_a_column_called_value(site):
    assert site.rows(site.study(), "value,tier\n3,open\n").status_code == 201


def test_a_free_choice_offers_what_can_be_stored(site):
    (token,) = site.invite(site.study(**FREE), 1)
    person = site.enter(token)
    for offer in person.get("/api/answer").json()["choices"]:
        body = {"answers": {}, "epsilon": offer["epsilon"], "allow_more": True}
        assert person.put("/api/answer", json=body).json()["epsilon"] == offer["epsilon"]
    assert offer["epsilon"] == 1.23


def test_who_allowed_next_to_nothing_is_not_said_to_have_allowed_nothing(site):
    tiers = [{"name": "tiny", "epsilon": 1e-8, "sentence": ""}, *TIERS]
    study = site.study(tiers=tiers, questions=[{**NUMBER, "share": 0.001}])
    site.join(study, [(3, "tiny")] * 3 + [(3, "public")] * 5)
    assert site.publish(study).status_code == 200
    page = pages(site.client(), f"/results/{study}")
    assert said(page, "result.unused.other", n="3")
    assert "too little to use" in page["en"]
    assert "zu wenig dafür" in page["de"]


def test_what_the_ledger_keeps_is_not_said_to_be_deleted_and_no_study_is_said_to_take_changes(site):
    english, german = LANGUAGES["en"].catalogue, LANGUAGES["de"].catalogue
    assert "what the ledger keeps" in english["script.answer.erased"]
    assert "was das Budgetbuch" in german["script.answer.erased"]
    home = pages(site.client(), "/")
    assert said(home, "home.invited-text")
    assert "change them where the study allows that" in home["en"]
    assert "wo die Studie das erlaubt" in home["de"]


def test_german_has_one_word_for_one_thing():
    text = " ".join(LANGUAGES["de"].catalogue.values())
    for wrong in ("versiegelt", "eine Studienleitung", "einer anderen Studienleitung", "Kleine Buchstaben"):
        assert wrong not in text
