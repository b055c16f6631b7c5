"""What the pages say, without a browser: promises in both languages, errors by their codes, results of no use."""

from __future__ import annotations

import re
import time

import pytest

from serving import DAY, NUMBER, THREE, later, saying, served, settings_for

pytestmark = pytest.mark.slow
ABOUT = {
    "institute": "Institute <i>",
    "contact": "a@example.org",
    "notice": "https://example.org/p",
    "consent": "I agree.",
}
TIERS = [
    {"name": "none", "epsilon": 0, "sentence": ""},
    {"name": "strict", "epsilon": 0.1, "sentence": ""},
    {"name": "public", "epsilon": "inf", "sentence": ""},
]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    with served(settings_for(tmp_path_factory.mktemp("pages"))) as running:
        yield running


def words(response):
    """The text of a page, without its tags and scripts."""
    assert response.status_code == 200, response.text
    html = re.sub(r"<(script|template|head)\b.*?</\1>", " ", response.text, flags=re.DOTALL)
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", "", html).replace("&lt;", "<").replace("&gt;", ">"))


def page_of(site, study, language="en"):
    person = site.enter(site.invite(study, 1)[0])
    person.cookies.set("hetdp_language", language)
    return words(person.get("/answer"))


def test_everything_that_is_promised_stands_on_the_page_before_anything_is_answered(site):
    waves = [{"closes": int(time.time()) + 100 * DAY * (i + 1), "share": 0.5} for i in range(2)]
    study = site.study(questions=THREE, tiers=TIERS, waves=waves, fewest=1234, imports_count=False, about=ABOUT)
    english, german = page_of(site, study), page_of(site, study, "de")
    for said in (
        "A survey by Institute <i>. Contact: a@example.org",
        "even all other people’s answers",
        "Without your answers: 50 of 100",
        "With your answers: at most 53 of 100",
        "50 of 100, as without you: your answers are not used.",
        "With your answers: up to 100 of 100",
        "Never more than ε = 0.1 in both publications together, and at most 0.05 in one.",
        "Nothing: ε = 0.",
        "No limit: you ask for no protection.",
        "“Are you tired?”: at most 33.333 % of each publication’s part",
        "Whoever controls this server could read them",
        "with at most 50 % of what you allow",
        "A publication needs at least 1,234 people.",
        "People who were added from a file do not count towards this number.",
        "You can withdraw them until they are read for the next publication, even after closing.",
        "at the first check after",
        "under a random number",
        "Each invitation counts as a separate person",
        "I agree.",
        "https://example.org/p",
    ):
        assert said in english
    for said in (
        "Eine Umfrage von Institute <i>. Kontakt: a@example.org",
        "Ohne Ihre Antworten: 50 von 100",
        "Mit Ihren Antworten: höchstens 53 von 100",
        "Nie mehr als ε = 0,1 in beiden Veröffentlichungen zusammen und höchstens 0,05 in einer.",
        "„Are you tired?“: höchstens 33,333 % des Anteils jeder Veröffentlichung",
        "Wer diesen Server kontrolliert, könnte sie lesen",
        "Für eine Veröffentlichung braucht es mindestens 1.234 Personen.",
        "Zurückziehen können Sie sie, bis sie für die nächste Veröffentlichung gelesen werden",
    ):
        assert said in german


def test_what_a_choice_lets_somebody_guess_is_rounded_up(site):
    tiers = [
        {"name": f"t{i}", "epsilon": level, "sentence": ""} for i, level in enumerate([1e-12, 1e-6, 0.05, 7.0, 7.5])
    ]
    page = page_of(site, site.study(tiers=tiers))
    found = re.findall(r"With your answers: (?:at most|up to) (\d+) of 100", page)
    assert found == ["51", "51", "52", "100", "100"]  # never 50 for an ε above 0


def test_where_people_are_asked_again_the_page_says_so_and_elsewhere_it_does_not(site):
    waves = [{"closes": int(time.time()) + 100 * DAY * (i + 1), "share": 0.5} for i in range(2)]
    ask, carry = (page_of(site, site.study(waves=waves, each_wave=each)) for each in ("ask", "carry"))
    assert "your answers are deleted. You are part of the next one only if you answer again" in ask
    assert "Your answers stay for later publications" not in ask
    assert "Your answers stay for later publications" in carry
    assert "After each publication" not in carry


def test_on_return_the_page_does_not_say_that_nothing_is_chosen_and_shows_no_value(site):
    study = site.study(tiers=TIERS)
    assert "Nothing is chosen for you." in page_of(site, study)
    person = site.enter(site.invite(study, 1)[0])
    person.put("/api/answer", json=saying(3.318281828, tier="strict"))
    page = words(person.get("/answer"))
    assert "Nothing is chosen for you." not in page
    assert "Your choice so far is selected." in page
    assert "318281828" not in person.get("/answer").text


def test_a_date_that_is_brought_forward_stands_on_the_page_with_the_one_before(site):
    study = site.study(waves=[{"closes": int(time.time()) + 100 * DAY}])
    (person,) = site.join(study, [(1, "open")])
    assert "sooner than was said" not in words(person.get("/answer"))
    assert site.curator.post(f"/api/studies/{study}/close", json={"wave": 0}).status_code == 200
    assert "This publication closes sooner than was said" in words(person.get("/answer"))
    log = words(site.curator.get(f"/curator/studies/{study}", headers={"Accept-Language": "de"}))
    assert "Schlusstermin vorverlegt" in log
    assert "von curator" in log


def test_who_withdrew_after_a_publication_still_sees_what_was_used(site):
    waves = [{"closes": int(time.time()) + DAY * (i + 1), "share": 0.5} for i in range(2)]
    study = site.study(waves=waves)
    people = site.join(study, [(1, "open")] * 40)
    assert site.publish(study).status_code == 200
    assert people[0].delete("/api/answer").status_code == 200
    page = words(people[0].get("/answer"))
    assert "The ledger still counts what was used of earlier ones, or may have been." in page
    assert re.search(r"At most ε = [\d.]+ was used\.", page)
    assert "Delete my link" in page
    assert "Withdraw my answers" not in page


def waves_of(*shares):
    return [{"closes": int(time.time()) + DAY * (i + 1), "share": share} for i, share in enumerate(shares)]


def test_who_joins_late_and_who_goes_below_what_was_used_are_told_what_is_left(site):
    tiers = [
        {"name": "strict", "epsilon": 0.1, "sentence": "Little."},
        {"name": "open", "epsilon": 2, "sentence": "More."},
    ]
    study = site.study(waves=waves_of(0.5, 0.3, 0.2), tiers=tiers)
    before = page_of(site, study)
    assert "Never more than ε = 2 in all 3 publications together, and at most 1 in one." in before
    assert "See what was published so far" not in before
    people = site.join(study, [(1, "open")] * 40)
    assert "Once there are results, this page links to them" in words(people[0].get("/answer")).partition("Step 1")[0]
    assert site.publish(study).status_code == 200
    late, german, back = page_of(site, study), page_of(site, study, "de"), words(people[0].get("/answer"))
    assert "Never more than ε = 1 in the 2 publications that are left, and at most 0.6 in one." in late
    assert "Nie mehr als ε = 1 in den 2 Veröffentlichungen, die noch kommen, und höchstens 0,6 in einer." in german
    assert "in all 3 publications" not in late
    used = "up to ε = 1 counts as used, so at most 1 can still be used."
    assert f"Never more than ε = 2 in all publications together: {used}" in back
    assert "With this level your answers will not be used any more" in back
    assert "Little." in late  # the curator's sentence is of answers that are used
    assert "Little." not in back
    assert "More." in back
    assert "See what was published so far" in late
    assert "See what was published so far" in back
    assert site.publish(study, 1).status_code == 200
    assert "Never more than ε = 0.4 in the one publication that is left." in page_of(site, study)


def test_what_stays_of_a_choice_and_how_dates_move_is_said_in_both_languages(site):
    study = site.study()
    (person,) = site.join(study, [(1, "open")])
    page = words(person.get("/answer"))
    assert "the ledger keeps, under a random number, the level that you allowed" in page
    assert "The date can move: earlier, if the people who run this study close early" in page
    assert "if the publication before it was late" not in page  # there is none before it
    assert "People who were added from a file count towards this number too." in page
    assert "You can answer again while the survey is open; you then get a new link" in page
    with later(7200):  # closed, and not published
        closed = words(person.get("/answer"))
        assert "Withdraw my answers" in closed
        assert "You can answer again" not in closed
    person.cookies.set("hetdp_language", "de")
    page = words(person.get("/answer"))
    assert "behält das Budgetbuch unter einer zufälligen Nummer, welche Stufe Sie erlaubt hatten" in page
    assert "nach vorn, wenn die Studienleitung früher schließt" in page
    # The control: it does stay.
    assert site.publish(study).status_code == 200
    assert person.delete("/api/answer?everything=true").status_code == 200
    assert 2.0 in {balance.budget for balance in site.app.state.publisher.ledger.balances()}


def test_what_is_printed_as_used_is_never_above_what_is_printed_as_the_limit(site):
    study = site.study(questions=THREE, tiers=[{"name": "strict", "epsilon": 0.25, "sentence": ""}])
    assert site.rows(study, "hours,tired,way,tier\n" + "4,yes,on foot,strict\n" * 3000).status_code == 201
    assert site.publish(study).status_code == 200
    html = site.client().get(f"/results/{study}").text
    rows = re.findall(
        r'strict</th><td class="num">([\d.]+)</td><td class="num">3,000</td><td class="num">([\d.]+)</td>', html
    )
    assert len(rows) == 3
    assert all(0 < float(did) <= float(might) for might, did in rows)


@pytest.mark.parametrize(
    ("left", "said"),
    [
        (4e-7, "Practically nothing is left: less than ε = 0.00001."),
        (0.0, "Nothing more can be used."),
        (2e-5, "At most 0.00002 can still be used."),
        ("inf", "Your choice sets no limit."),
    ],
)
def test_next_to_nothing_is_not_called_nothing(left, said):
    from hetdp.server import pages, texts

    assert pages._balance(texts.languages()["en"], {"spent": 0.8, "left": left}) == f"At most ε = 0.8 was used. {said}"


def test_early_closing_is_offered_while_it_would_be_earlier(site):
    soon, far = site.study(), site.study(waves=[{"closes": int(time.time()) + 100 * DAY, "share": 1.0}])
    assert "close early" not in words(site.curator.get(f"/curator/studies/{soon}"))
    assert "close early" in words(site.curator.get(f"/curator/studies/{far}"))


def test_a_deleted_study_says_how_much_is_out(site):
    study, empty = site.study(waves=waves_of(0.5, 0.5)), site.study()
    site.join(study, [(1, "open")] * 20)
    assert site.publish(study).status_code == 200
    for one in (study, empty):
        assert site.curator.delete(f"/api/studies/{one}").status_code == 200
    assert "1 publication is out. See the results" in words(site.curator.get(f"/curator/studies/{study}"))
    assert "See the results" not in words(site.curator.get(f"/curator/studies/{empty}"))


def test_without_the_ledger_the_dashboard_does_not_say_that_nothing_was_used(site, monkeypatch):
    study = site.study()
    site.join(study, [(1, "open")])
    assert "The ledger cannot be read now." not in words(site.curator.get(f"/curator/studies/{study}"))
    monkeypatch.setattr(site.app.state.publisher, "balances", lambda _: None)
    page = words(site.curator.get(f"/curator/studies/{study}"))
    assert "The ledger cannot be read now." in page


# ---------------------------------------------------------------------------------------------------------
# Errors


def test_an_error_is_worded_in_the_language_of_the_page_and_for_programs_in_english(site):
    study = site.study(fewest=5, waves=[{"closes": int(time.time()) + DAY}])
    with later(2 * DAY):
        plain = site.publish_now(study).json()["error"]
        german = {"Accept-Language": "de-DE"}
        said = site.curator.post(f"/api/studies/{study}/publish", json={"wave": 0}, headers=german).json()["error"]
    assert plain["code"] == said["code"] == "too-few"
    assert said["message"] == "Zu wenige Personen, die zählen: 0. Diese Studie veröffentlicht ab 5."
    assert "5" in plain["message"]
    assert "people" in plain["message"]
    missing = site.client(Accept_Language="de").get("/nowhere")
    assert "Hier ist nichts." in missing.text
    assert '<html lang="de"' in missing.text


def test_a_wrong_field_is_named_and_its_rule_is_worded_in_german(site):
    now = int(time.time())
    new = {"title": "x", "questions": [NUMBER], "tiers": TIERS, "opens": now}
    waves = [{"closes": now + DAY, "share": 0.5}, {"closes": now, "share": 0.5}]
    said = site.curator.post("/api/studies", json={**new, "waves": waves}, headers={"Accept-Language": "de"})
    assert (said.status_code, said.json()["error"]["field"]) == (422, "waves.1.closes")
    assert said.json()["error"]["message"] == "Muss nach dem Termin davor liegen."
    said = site.curator.post(
        "/api/studies", json={**new, "waves": waves[:1], "fewest": 0}, headers={"Accept-Language": "de"}
    )
    assert said.json()["error"]["field"] == "fewest"
    assert said.json()["error"]["message"].startswith("Muss mindestens 1")


NOW = 1_800_000_000
WRONG = {
    "shares": ({"questions": [{**one, "share": 0.5} for one in THREE]}, "questions.2.share", "mehr als 100 %"),
    "shares-all": ({"questions": [{**THREE[0], "share": 0.5}, *THREE[1:]]}, "questions.1.share", "jeder Frage"),
    "twice": ({"questions": [NUMBER, NUMBER]}, "questions.1.name", "schon weiter oben"),
    "after": ({"waves": [{"closes": NOW}]}, "waves.0.closes", "nach dem Termin davor"),
    "choices": ({"questions": [{**THREE[2], "choices": ["one"]}]}, "questions.0.choices", "zwei Möglichkeiten"),
    "bounds": ({"questions": [{**THREE[1], "kind": "number"}]}, "questions.0.bounds", "kleinste und eine größte"),
    "range": ({"questions": [{**NUMBER, "bounds": [3, 3]}]}, "questions.0.bounds", "muss unter der größten"),
    "tiers-or-free": ({"tiers": []}, "tiers", "benannte Stufen oder eine Linie"),
    "free": ({"tiers": [], "free": {"least": 2.0, "most": 1.0}}, "free.most", "größer als das kleinste ε"),
}


@pytest.mark.parametrize("rule", WRONG)
def test_every_rule_of_a_study_has_its_own_words(site, rule):
    changes, field, words_of_it = WRONG[rule]
    new = {"title": "x", "questions": [NUMBER], "tiers": TIERS, "opens": NOW, "waves": [{"closes": NOW + DAY}]}
    said = site.curator.post("/api/studies", json={**new, **changes}, headers={"Accept-Language": "de"})
    error = said.json()["error"]
    assert (said.status_code, error["field"], error["facts"]["rule"]) == (422, field, rule)
    assert words_of_it in error["message"]


# ---------------------------------------------------------------------------------------------------------
# Results


def result_of(site, answers, language="en", **changes):
    study = site.study(questions=THREE, **changes)
    site.join(study, answers)
    assert site.publish(study).status_code == 200
    return study, words(site.client(Accept_Language=language).get(f"/results/{study}"))


def test_a_result_that_is_of_no_use_says_so(site):
    said = {"hours": 3, "tired": True, "way": "by bus"}
    _, page = result_of(site, [(said, "strict")] * 3)
    assert "Too uncertain to use" in page or "Nothing can be said" in page


@pytest.mark.parametrize(("people", "of_use"), [(36, False), (900, True)])
def test_the_dashboard_says_of_use_by_the_rule_of_the_result(site, people, of_use):
    study = site.study(questions=THREE)
    rows = ["2,yes,on foot,open\n", "8,no,by bike,open\n"] * (people // 2)
    assert site.rows(study, "hours,tired,way,tier\n" + "".join(rows)).status_code == 201
    forecast = site.live(study)["questions"]
    page = words(site.curator.get(f"/curator/studies/{study}"))
    assert ("too uncertain to use" in page) is not of_use
    assert forecast[2]["uncertain"] is not of_use
    if not of_use:  # the control: by the typical error, which is not what is published, it would be of use
        assert 4 * forecast[2]["error"] < 0.5
    assert site.publish(study).status_code == 200
    for one, then in zip(site.client().get(f"/api/results/{study}").json()["results"], forecast, strict=True):
        if of_use:
            assert not one["uncertain"]
        if one["kind"] == "choice":  # of the others it is as wide if everybody answers, and that is an estimate too
            assert all(f["high"] - f["low"] <= 2 * then["width"] * (1 + 1e-9) for f in one["figures"])


def test_a_result_without_noise_does_not_claim_any(site):
    said = {"hours": 3, "tired": True, "way": "by bus"}
    _, page = result_of(site, [(said, "public")] * 3)
    assert "holds no noise" in page
    assert "holds random noise" not in page


def test_a_result_shows_every_question_with_its_picture_and_files(site):
    study = site.study(questions=THREE, language="de")
    line = "{},{},{},open\n"
    rows = [
        line.format(4 + i % 3, "yes" if i % 4 else "no", ["on foot", "by bike", "by bus"][i % 3]) for i in range(3000)
    ]
    assert site.rows(study, "hours,tired,way,tier\n" + "".join(rows)).status_code == 201
    assert site.publish(study).status_code == 200
    html = site.client().get(f"/results/{study}").text  # in the study's language
    page = words(site.client().get(f"/results/{study}"))
    assert "3.000 Personen haben teilgenommen." in page
    assert "wenn niemandes Stufe von den Antworten abhängt" in page
    assert "Der Balken ist der Anteil unter denen, die antworten." in page
    assert "Die Anteile beziehen sich auf alle" in page
    assert (html.count('class="interval"'), html.count('class="bar"')) == (1, 4)
    assert "style=" not in html
    estimate = re.search(r'class="estimate"><strong>([\d,]+)<', html)
    found = site.client().get(f"/api/results/{study}").json()["results"][0]["estimate"]
    assert float(estimate.group(1).replace(",", ".")) == pytest.approx(found, abs=0.1)
    for file in re.findall(r'href="(/api/results/[^"]+)"', html):
        assert site.client().get(file).status_code == 200


def test_a_site_under_a_path_has_it_in_every_address(site, monkeypatch):
    from hetdp.server import pages

    study = site.study(questions=THREE)
    (person,) = site.join(study, [({"hours": 3}, "open")])
    monkeypatch.setattr(pages, "_root", lambda _: "/survey")
    curator = site.curator
    html = [site.client().get(path).text for path in ("/", "/sign-in", "/join", "/explore", "/nowhere")]
    html += [person.get("/answer").text]
    html += [curator.get(f"/curator{path}").text for path in ("", "/new", "/curators", f"/studies/{study}")]
    for page in html:
        assert 'data-root="/survey"' in page
        addresses = re.findall(r'\b(?:href|src|action)="(/[^"]*)"', page)
        assert addresses
        assert [one for one in addresses if not one.startswith("/survey/")] == []
