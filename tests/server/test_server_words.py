"""Sentences that were false in some state: each is looked at in that state, in both languages."""

from __future__ import annotations

import csv
import io
import re
import time

import pytest
from test_server_sentences import FIVE, HOUR, LANGUAGES, SAID, TIERS, pages, said, second_wave, waves_of

from hetdp.server import publish
from serving import DAY, THREE, later, saying, served, settings_for

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    with served(settings_for(tmp_path_factory.mktemp("words"))) as running:
        yield running


def result(site, study, wave=0):
    return pages(site.client(), f"/results/{study}?wave={wave}")


# ---------------------------------------------------------------------------------------------------------
# Results


def test_noise_is_claimed_of_this_publication_alone(site):
    """The table below has an earlier publication too, which holds none."""
    study = site.study(waves=waves_of(0.5, 0.5), tiers=TIERS)
    crowd = site.join(study, [(3, "public")] * 40)
    with later(2 * HOUR):
        assert site.publish_now(study).status_code == 200
    with later(3 * HOUR):
        site.join(study, [(3, "middle")] * 40)
        for person in crowd:
            person.delete("/api/answer?everything=true")
    with later(31 * DAY):
        assert site.publish_now(study, 1).status_code == 200
        page, html = result(site, study, 1), site.client().get(f"/results/{study}?wave=1").text
        exact = site.client().get(f"/api/results/{study}?wave=0").json()["results"][0]
    assert exact["noiseless"]
    assert len(re.findall(r'<tr><th scope="row"><a href="/results/', html)) == 2, "both are in the table"
    assert said(page, "result.noise")
    assert "of this publication" in LANGUAGES["en"].catalogue["result.noise"]
    assert "dieser Veröffentlichung" in LANGUAGES["de"].catalogue["result.noise"]


def test_who_allowed_enough_before_is_not_said_to_have_allowed_too_little(site):
    """What they allowed was used up: too little of it was left."""
    study = second_wave(site, 40, "one")
    with later(4 * HOUR):
        dashboard = pages(site.curator, f"/curator/studies/{study}")
    with later(31 * DAY):
        assert site.publish_now(study, 1).status_code == 200
        page = result(site, study, 1)
    for found, key, words in (
        (page, "result.abstains", ("too little of it was left", "zu wenig davon übrig")),
        (dashboard, "live.unusable", ("allowed or left", "erlaubt oder übrig")),
    ):
        assert said(found, key)
        for language, part in zip(("en", "de"), words, strict=True):
            assert part in found[language]


def test_where_nobody_answers_a_question_no_number_is_given(site):
    """The library answers with the middle of the range, and an interval that is all of it."""
    study = site.study(questions=THREE)
    site.join(study, [({"hours": None}, "public")] * 30)
    assert site.publish(study).status_code == 200
    html, page = site.client().get(f"/results/{study}").text, result(site, study)
    assert said(page, "result.nothing")
    assert not said(page, "result.uncertain")
    assert 'class="estimate"' not in html
    assert 'class="point"' not in html
    assert "between 0.0 and 10.0 h" in page["en"]
    assert re.search(r"Yes – 0.* to 100", page["en"])
    assert not said(page, "result.of-yes-no"), "there is no bar"
    found = site.client().get(f"/api/results/{study}").json()["results"]
    for one, bounds in zip(found[:2], ([0, 10], [0, 1]), strict=True):
        (figure,) = one["figures"]
        assert one["estimate"] is figure["estimate"] is None
        assert [figure["low"], figure["high"]] == bounds
        assert figure["raw"] == sum(bounds) / 2
    rows = list(csv.DictReader(io.StringIO(site.client().get(f"/api/results/{study}.csv").text)))
    assert [(row["estimate"], row["low"] != "", row["abstains"]) for row in rows[:2]] == [("", True, "False")] * 2


def test_a_number_that_is_little_but_noise_is_given_only_with_an_interval_that_says_something(site):
    """With noise the interval is all that is possible nine times in ten; whether it is decides, for each by itself."""
    nothing = 0
    for _ in range(6):
        study = site.study(questions=THREE)
        site.rows(study, "hours,tired,way,tier\n" + ",,,open\n" * 100)
        assert site.publish(study).status_code == 200
        found = [one["figures"][0] for one in site.client().get(f"/api/results/{study}").json()["results"][:2]]
        whole = [[f["low"], f["high"]] == bounds for f, bounds in zip(found, ([0, 10], [0, 1]), strict=True)]
        assert [figure["estimate"] is None for figure in found] == whole
        assert said(result(site, study), "result.nothing") is any(whole)
        nothing += any(whole)
    assert nothing, "a control: it is about this case"


def test_control_where_people_answer_the_number_is_given(site):
    study = site.study(questions=THREE)
    site.rows(study, "hours,tired,way,tier\n" + "3,yes,by bike,open\n" * 300)
    assert site.publish(study).status_code == 200
    page = result(site, study)
    assert not said(page, "result.nothing")
    assert not said(page, "result.nothing-choice")
    assert not said(page, "result.answered-unknown")
    assert site.client().get(f"/results/{study}").text.count('class="point"') == 1
    found = site.client().get(f"/api/results/{study}").json()["results"]
    assert all(one["figures"][0]["estimate"] is not None for one in found)


def test_how_many_answer_is_not_said_where_that_is_not_known_either(site):
    """Of very few people everything is possible; of a choice each interval is looked at by itself."""
    study = site.study(questions=THREE, tiers=[{"name": "some", "epsilon": 3, "sentence": ""}])
    site.join(study, [(SAID, "some")] * 6)
    assert site.publish(study).status_code == 200
    page, found = result(site, study), site.client().get(f"/api/results/{study}").json()["results"]
    unknown = [one["answered"]["estimate"] is None for one in found]
    none = [all(figure["estimate"] is None for figure in one["figures"]) for one in found]
    assert any(unknown), "a control: it is about this case"
    assert said(page, "result.answered-unknown") is any(unknown)
    assert said(page, "result.answered") is (not all(unknown))
    assert said(page, "result.nothing") is any(none[:2])
    assert said(page, "result.nothing-choice") is none[2]


@pytest.mark.parametrize("tier", ["public", "open"])
def test_shares_of_a_choice_are_of_those_whose_answers_were_used(site, tier):
    study = site.study(tiers=TIERS, questions=[THREE[2]])
    site.join(study, [({"way": "by bus"}, tier)] * 30 + [({"way": "on foot"}, "never")] * 30)
    assert site.publish(study).status_code == 200
    page = result(site, study)
    assert said(page, "result.unused.other", n="30")
    assert "Shares are of everybody whose answers were used" in page["en"]
    assert "Die Anteile beziehen sich auf alle, deren Antworten verwendet wurden" in page["de"]
    if tier == "public":  # what the sentence says is so: those of ε = 0 are not in the 100 %
        assert re.search(r"by bus 100\S* %", page["en"])


def test_one_person_is_not_one_of_them(site):
    study = site.study(tiers=TIERS)
    site.join(study, [(3, "never")])
    assert site.publish(study).status_code == 200
    page = result(site, study)
    assert said(page, "result.people.one", n="1")
    assert said(page, "result.unused-only")
    assert not said(page, "result.unused.one")
    assert "of them were" not in page["en"]


def test_where_nothing_is_said_of_any_question_nobody_takes_the_others_answers_for_used(site):
    study = site.study(tiers=[TIERS[0], {**TIERS[1], "epsilon": 0.01}])
    site.join(study, [(3, "middle")] * 3 + [(3, "never")])
    assert site.publish(study).status_code == 200
    page = result(site, study)
    assert said(page, "result.abstains")
    assert "of them were not used" not in page["en"]


# ---------------------------------------------------------------------------------------------------------
# The dashboard


def test_a_forecast_is_not_called_certain(site):
    """Of 40 people ± 2.275 was forecast with a yes, and ± 2.72 came out: too uncertain to use."""
    study = site.study(tiers=TIERS)
    site.join(study, [(3, "open")] * 60)
    page = pages(site.curator, f"/curator/studies/{study}")
    assert said(page, "live.usable")
    for language, probably in (("en", "probably"), ("de", "wahrscheinlich")):
        catalogue = LANGUAGES[language].catalogue
        for key in ("live.usable", "live.uncertain", "script.dashboard.uncertain"):
            assert probably in catalogue[key]
    assert "About half of the 95 % interval" in page["en"]
    assert "Etwa das halbe 95-%-Intervall" in page["de"]


def rows_in(site, study):
    """The cells of the table of choices."""
    html = site.curator.get(f"/curator/studies/{study}").text
    table = html[html.index("used so far, at most") :]
    return {
        name: re.findall(r'<td class="num">([^<]*)</td>', cells)
        for name, cells in re.findall(r'<tr><th scope="row">([^<]*)</th>(.*?)</tr>', table, flags=re.DOTALL)
    }


def test_where_nobody_chose_nothing_is_said_to_be_used_or_left(site):
    study = site.study(tiers=FIVE)
    site.join(study, [(3, "open")] * 3)
    found = rows_in(site, study)
    assert found["open"] == ["3", "2", "2", "0", "2"]
    assert found["middle"] == ["0", "1.2", "1.2", "–", "–"]


@pytest.mark.parametrize("each", ["carry", "ask"])
def test_the_table_of_choices_says_whom_it_counts(site, each):
    """While it is open those who take part, once it is over those whose choice is stored, up to the deletion."""
    now = int(time.time())
    waves = [{"closes": now + HOUR, "share": 0.5}, {"closes": now + 9 * DAY, "share": 0.5}]
    study = site.study(waves=waves, tiers=FIVE, until=now + 12 * DAY, each_wave=each)
    path, crowd = f"/curator/studies/{study}", site.join(study, [(3, "open")] * 3)

    def counted(people, over):
        page = pages(site.curator, path)
        assert (said(page, "live.choices"), said(page, "live.choices-over")) == (not over, over)
        assert rows_in(site, study)["open"][0] == str(people)

    counted(3, over=False)
    with later(2 * HOUR):
        assert site.publish_now(study).status_code == 200
        counted(0 if each == "ask" else 3, over=False)  # who is asked again does not take part before they answer
        assert crowd[0].put("/api/answer", json=saying(3, tier="open")).status_code == 200
        counted(1 if each == "ask" else 3, over=False)
    with later(12 * DAY + 60):  # the choices of all are there until the hourly look
        counted(3, over=True)
        site.app.state.store.write(publish.expire)
        counted(0, over=True)


def test_who_allowed_less_than_was_used_is_used_again_if_they_allow_more(site):
    study = second_wave(site, 2, "strict")
    with later(4 * HOUR):
        page = pages(site.curator, f"/curator/studies/{study}")
    assert said(page, "live.frozen.other", n="2")
    assert "unless they allow more" in page["en"]
    assert "außer wenn sie mehr erlauben" in page["de"]
    with later(31 * DAY):
        assert site.publish_now(study, 1).status_code == 200
        assert not said(pages(site.curator, f"/curator/studies/{study}"), "live.frozen.other"), "nothing is to come"


def test_a_date_that_has_passed_is_not_said_to_come(site):
    study = site.study(until=int(time.time()) + 2 * DAY)
    site.join(study, [(3, "open")])
    for seconds, passed in ((0, False), (2 * HOUR, True), (3 * DAY, True)):
        with later(seconds):
            page = pages(site.curator, f"/curator/studies/{study}")
            assert said(page, "studies.opened")
            assert not said(page, "studies.opens")
            assert (said(page, "studies.closed"), said(page, "studies.closes")) == (passed, not passed)
    coming = site.study(opens=int(time.time()) + HOUR // 2)
    page = pages(site.curator, f"/curator/studies/{coming}")
    assert said(page, "studies.opens")
    assert said(page, "studies.closes")
    assert not said(page, "studies.closed")
    assert site.curator.delete(f"/api/studies/{coming}").status_code == 200
    page = pages(site.curator, f"/curator/studies/{coming}")
    assert not [key for key in ("opens", "opened", "closes", "closed") if said(page, f"studies.{key}")]


def test_the_list_of_studies_says_which_have_closed(tmp_path):
    with served(settings_for(tmp_path)) as site:
        site.study()
        assert said(pages(site.curator, "/curator"), "studies.closes")
        with later(2 * HOUR):
            page = pages(site.curator, "/curator")
            assert said(page, "studies.closed")
            assert not said(page, "studies.closes")


def test_invitations_are_counted_in_the_part_that_is_refreshed(site):
    study = site.study()
    site.invite(study, 2)
    site.join(study, [(3, "open")])
    html = site.curator.get(f"/curator/studies/{study}/live").text
    shown = re.search(r'data-invited="([^"]*)"', html)[1].replace("&#34;", '"')
    assert '"made": 3' in shown
    assert '"used": 1' in shown
    assert '"open": 2' in shown


def test_all_that_was_written_about_a_study_is_said_to_stay(site):
    about = {"institute": "Institute", "contact": "a@example.org", "notice": "Notice", "consent": "I agree."}
    study = site.study(about=about)
    before = pages(site.curator, f"/curator/studies/{study}")
    assert said(before, "delete.stays")
    assert site.curator.delete(f"/api/studies/{study}").status_code == 200
    after = pages(site.curator, f"/curator/studies/{study}")
    assert said(after, "study.deleted")
    for page in (before, after):
        assert "levels, dates, institute, contact, privacy notice, words of consent" in page["en"]
        assert "Stufen, Termine, Institut, Kontakt, Datenschutzhinweise, Text der Einwilligung" in page["de"]
    kept = site.live(study)["study"]  # what the sentence says is so
    assert kept["about"] == about
    assert kept["tiers"]


# ---------------------------------------------------------------------------------------------------------
# Files, tabs and the description of the API


def test_a_file_without_people_is_refused_and_leaves_nothing(site):
    study = site.study()
    for text in ("hours,tier\n", "hours,tier"):
        refused = site.rows(study, text)
        assert (refused.status_code, refused.json()["error"]["code"]) == (422, "rows")
        assert refused.json()["error"]["message"] == "the file has no people"
    assert site.curator.get(f"/api/studies/{study}/rows").json() == []
    assert [event["event"] for event in site.curator.get(f"/api/studies/{study}/events").json()] == ["study created"]


def test_erasing_does_not_claim_that_there_were_answers():
    assert "if there were any" in LANGUAGES["en"].catalogue["script.dashboard.erased"]
    assert "falls es welche gab" in LANGUAGES["de"].catalogue["script.dashboard.erased"]


def test_a_page_of_an_older_session_is_told_to_load_again(site):
    """A link that is opened in a second tab begins a new session; the first tab still has the token of the old one."""
    study = site.study()
    first, second = site.invite(study, 2)
    person = site.enter(first)
    old = person.headers["X-CSRF-Token"]
    assert person.post("/api/session/participant", json={"token": second}).status_code == 200
    for language, catalogue in LANGUAGES.items():
        headers = {"X-CSRF-Token": old, "Accept-Language": language}
        refused = person.put("/api/answer", json=saying(3, tier="open"), headers=headers)
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "stale-page")
        assert refused.json()["error"]["message"] == catalogue.catalogue["error.stale-page"]
    foreign = person.put("/api/answer", json=saying(3, tier="open"), headers={"Origin": "https://evil.example"})
    assert foreign.json()["error"]["code"] == "forbidden", "the control: a page of another site"
    assert site.live(study)["n"] == 0


def test_the_description_of_the_api_says_what_it_does(site):
    found = site.client().get("/openapi.json").json()
    paths, schemas = found["paths"], found["components"]["schemas"]
    assert "from one curator" in paths["/api/studies/{study}/rows"]["post"]["description"]
    assert "in each wave" in paths["/api/studies/{study}/rows"]["post"]["description"]
    assert "first start, or" in schemas["CuratorKey"]["description"]
    counts = site.curator.get(f"/api/studies/{site.study()}/invitations").json()
    said_of = paths["/api/studies/{study}/invitations"]["get"]["description"]
    assert all(name in said_of for name in counts)
    assert "all sessions" in paths["/api/session/{kind}"]["delete"]["description"]
    # What it says of sessions is so.
    token = site.invite(site.study(), 1)[0]
    one, other = site.enter(token), site.enter(token)
    assert one.delete("/api/session/participant").status_code == 200
    assert other.get("/api/answer").status_code == 401
