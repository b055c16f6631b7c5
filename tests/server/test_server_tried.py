"""What an institute stumbled over that tried a survey by the documentation alone."""

from __future__ import annotations

import math
import re
import time
from pathlib import Path

import pytest

from hetdp.server import texts
from serving import DAY, THREE, later, served, settings_for

DOCS = Path(__file__).parents[2] / "docs"
LANGUAGES = texts.languages()


@pytest.fixture
def site(tmp_path):
    with served(settings_for(tmp_path)) as running:
        yield running


# ---------------------------------------------------------------------------------------------------------
# Files

LINES = [["tier", "hours", "tired", "way"], ["public", "2.5", "yes", "by bus"], ["public", "5.5", "no", "on foot"]]


def written(sign, decimal, quote=""):
    rows = [[f"{quote}{cell.replace('.', decimal)}{quote}" for cell in row] for row in LINES]
    return "\r\n".join(map(sign.join, rows)) + "\r\n"


FORMS = {
    "commas": written(",", "."),
    "semicolons": written(";", ","),
    "semicolons, quotes and a mark, as spreadsheets write": "\ufeff" + written(";", ",", '"'),
    "tabs": written("\t", "."),
    "a column that is not asked for has another sign": written(";", ",").replace("tier", "Name, first;tier", 1).replace(
        "public", "x;public"
    ),
}  # fmt: skip


@pytest.mark.parametrize("text", FORMS.values(), ids=FORMS)
def test_a_file_is_read_by_the_sign_that_its_first_line_shows(site, text):
    """Of two public people there is no noise: the mean of 2.5 and 5.5 is 4, half said yes, one came by each way."""
    study = site.study(questions=THREE)
    assert site.rows(study, text).json() == {"people": 2}
    hours, tired, way = site.publish(study).json()["results"]
    assert hours["figures"][0]["estimate"] == pytest.approx(4, abs=1e-4)
    assert tired["figures"][0]["estimate"] == pytest.approx(0.5)
    assert {one["label"]: one["estimate"] for one in way["figures"]} == {"on foot": 0.5, "by bike": 0, "by bus": 0.5}


def test_only_the_first_line_decides_how_a_file_is_written(site):
    """A private cell that holds other signs changes nothing but itself: it is one that cannot be read."""
    study = site.study(questions=THREE)
    text = f'{written(",", ".")}public,"1;2;3;4;5;6",no,on foot\n'
    assert site.rows(study, text).json() == {"people": 3}
    hours, *_ = site.publish(study).json()["results"]
    assert hours["figures"][0]["estimate"] == pytest.approx(4, abs=1e-4)
    assert hours["answered"]["estimate"] == pytest.approx(2 / 3)


def test_a_file_without_a_column_is_refused_by_that_column_whatever_its_sign(site):
    for sign in ",;\t":
        said = site.rows(site.study(questions=THREE), f"hours{sign}way{sign}tier\n1{sign}x{sign}open\n")
        assert (said.status_code, said.json()["error"]["code"]) == (422, "rows")
        assert "no column 'tired'" in said.json()["error"]["message"]


def test_the_words_for_yes_and_no_that_the_page_and_the_docs_list_are_taken_and_all_else_is_not_said(site):
    page = (DOCS / "server.md").read_text(encoding="utf-8")
    said = [re.findall(r"`(\w+)`", part) for part in re.search(r"Yes is (.*?), no is (.*?), small", page).groups()]
    for catalogue in (one.catalogue for one in LANGUAGES.values()):
        assert all(re.search(rf"\b{word}\b", catalogue["import.text"]) for word in (*said[0], *said[1]))
    study, shown = site.study(questions=THREE[1:2]), [str, str.capitalize, str.upper]
    lines = [way(word) for words in said for word in words for way in shown] + ["ye", "yes ", "2", "oui"]
    site.rows(study, "tired,tier\n" + "".join(f"{line},public\n" for line in lines))
    (tired,) = site.publish(study).json()["results"]
    known = len(lines) - 4
    assert (known, len(said[0])) == (30, 5)
    assert tired["figures"][0]["estimate"] == pytest.approx(0.5)
    assert tired["answered"]["estimate"] == pytest.approx(known / len(lines))


@pytest.mark.parametrize("language", LANGUAGES)
def test_before_a_file_is_sent_the_page_says_that_cells_are_passed_over_silently_and_that_lines_add_up(site, language):
    study = site.study(questions=THREE)
    page = site.curator.get(f"/curator/studies/{study}", headers={"Accept-Language": language}).text
    words = {"en": ("cannot be read", "or who also answers by a link"), "de": ("nicht gelesen werden kann", "Link")}
    assert all(word in page for word in words[language])
    assert "what can be learnt adds up" in page or language != "en"


# ---------------------------------------------------------------------------------------------------------
# Dates


def test_a_result_is_never_dated_before_its_publication_closed(site):
    """It is dated to the minute, and a closing date may have seconds: one within this minute is the later of both."""
    closes = (int(time.time()) + 5) // 60 * 60 + 59  # some seconds from now
    study = site.study(waves=[{"closes": closes, "share": 1.0}], opens=closes - 3600)
    site.rows(study, "value,tier\n1,open\n")
    with later(max(closes - time.time(), 0) + 0.5):
        assert site.publish_now(study).status_code == 200
        found = site.client().get(f"/api/results/{study}").json()
    assert found["published"] == closes == found["study"]["waves"][0]["closes"]


@pytest.mark.parametrize("late", [True, False])
def test_the_log_says_that_dates_moved_because_a_publication_was_late_and_only_then(site, late):
    now = int(time.time())
    study = site.study(waves=[{"closes": now + DAY * i, "share": 0.5} for i in (1, 30)], until=now + 300 * DAY)
    site.rows(study, "value,tier\n1,open\n")
    with later(28 * DAY if late else DAY + 60):
        assert site.publish_now(study).status_code == 200
        moved = site.live(study)["study"]["closes"] != now + 30 * DAY
        log = [event["event"] for event in site.curator.get(f"/api/studies/{study}/events").json()]
        page = site.curator.get(f"/curator/studies/{study}").text
    assert moved is late
    assert ("later dates moved" in log) is late
    assert ("Later closing dates put off" in page) is late


def test_a_limit_of_somebody_who_was_used_in_part_is_what_was_used_and_what_can_still_be(site):
    """Who allows 2, of which publications take an eighth and then a half, is used at 0.25 and 1: at 1.25, not at 2."""
    now = int(time.time())
    waves = [{"closes": now + 3600, "share": 0.125}, {"closes": now + 60 * DAY, "share": 0.5}]
    study = site.study(waves=waves)
    site.rows(study, "value,tier\n" + "2,open\n" * 200)
    (person,) = site.join(study, [(3, "open")])
    assert site.publish(study).status_code == 200
    mine = person.get("/api/answer").json()
    spent, left = mine["balance"]["spent"], mine["balance"]["left"]
    assert (spent, left) == (pytest.approx(0.25), 1)
    (offer,) = [one for one in mine["choices"] if one["own"]]
    limit = offer["limit"]["facts"]
    assert (limit["spent"], limit["left"]) == (spent, left)
    assert limit["epsilon"] == pytest.approx(spent + left)
    assert offer["sure"] == pytest.approx(1 / (1 + math.exp(-spent - left)))
    sentence = "Never more than ε = 1.25 in all publications together: up to ε = 0.25 counts as used, so at most 1 can"
    assert offer["limit"]["sentence"].startswith(sentence)
    assert sentence in person.get("/answer").text


# ---------------------------------------------------------------------------------------------------------
# What a participant reads between publications, and after the last one


def read_by(person):
    shown = re.sub(r"<script.*?</script>|<[^>]*>", " ", person.get("/answer").text, flags=re.DOTALL)
    return " ".join(shown.split())


def test_between_publications_the_page_says_that_it_opens_again_and_after_the_last_nothing_is_still_to_come(site):
    now = int(time.time())
    waves = [{"closes": now + 3600, "share": 0.5}, {"closes": now + 40 * DAY, "share": 0.5}]
    study = site.study(waves=waves)
    (person,) = site.join(study, [(3, "public")])
    again, over = "The survey opens again when this publication is out", "No more answers are taken."
    with later(7200):
        page = read_by(person)
        assert again in page
        assert over not in page
    assert site.publish(study).status_code == 200
    assert "Used so far" in read_by(person)
    assert "See what was published so far" in read_by(person)
    with later(41 * DAY):
        page = read_by(person)
        assert over in page
        assert again not in page
        assert "Withdraw my answers" in page
        assert site.publish_now(study, 1).status_code == 200
        page = read_by(person)
    assert over in page
    for word in (again, "No answers are taken now", "so far", "You can also delete"):
        assert word not in page
    assert "You can delete what is still here of you: the privacy choice and your link" in page
    assert "See what was published" in page


# ---------------------------------------------------------------------------------------------------------
# The curator's page


def test_after_the_last_publication_no_column_says_what_this_publication_may_use(site):
    study = site.study()
    site.join(study, [(3, "public")])
    column = "this publication, at most"
    assert column in site.curator.get(f"/curator/studies/{study}").text
    assert site.publish(study).status_code == 200
    page = site.curator.get(f"/curator/studies/{study}").text
    assert column not in page
    table = page.partition('id="live"')[2].partition("</table>")[0].rpartition("<table>")[2]
    rows = [len(re.findall(r"<t[hd]\b", row)) for row in table.split("<tr>")[1:]]
    assert set(rows) == {5}


def test_a_file_of_an_earlier_publication_is_told_apart_and_not_offered_for_deletion(site):
    now, used = int(time.time()), "from before, its answers are deleted"
    waves = [{"closes": now + 3600, "share": 0.5}, {"closes": now + 60 * DAY, "share": 0.5}]
    study = site.study(waves=waves, each_wave="ask")
    rows = "value,tier\n" + "3,public\n" * 7
    site.rows(study, rows)
    assert used not in site.curator.get(f"/curator/studies/{study}").text
    assert site.publish(study).status_code == 200
    site.rows(study, rows)
    files = site.curator.get(f"/api/studies/{study}/rows").json()
    assert sorted((one["people"], one["used"]) for one in files) == [(7, False), (7, True)]
    page = site.curator.get(f"/curator/studies/{study}").text
    assert page.count("7 people from a file") == 2
    assert page.count(used) == 1
    assert re.findall(r'data-file="(\w+)"', page) == [one["file"] for one in files if not one["used"]]


def test_the_page_of_a_study_has_its_questions_with_their_shares_and_all_closing_dates(site):
    now = int(time.time())
    waves = [{"closes": now + DAY * i, "share": 0.25 * i} for i in (1, 2)]
    questions = [{**one, "share": share} for one, share in zip(THREE, (0.5, 0.3, 0.2), strict=True)]
    page = site.curator.get(f"/curator/studies/{site.study(questions=questions, waves=waves)}").text
    facts = page.partition('<details id="facts">')[2].partition("</details>")[0]
    for question, share in zip(THREE, ("50", "30", "20"), strict=True):
        assert re.search(rf"{re.escape(question['text'])} \([^)]*\): at most {share} %", facts)
    for share in ("25", "50"):
        assert re.search(rf"Publication \d: closing date <time [^>]*>[^<]*</time>, at most {share} % of ε", facts)


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_name_with_a_character_that_is_not_allowed_is_refused_by_those_that_are(site, language):
    new = {"title": "x", "questions": [{**THREE[1], "name": "Müde"}], "tiers": [{"name": "a", "epsilon": 1}]}
    new |= {"opens": int(time.time()), "waves": [{"closes": int(time.time()) + DAY, "share": 1.0}]}
    said = site.curator.post("/api/studies", json=new, headers={"Accept-Language": language}).json()["error"]
    assert said["field"] == "questions.0.name"
    words = {"en": "small letters, digits, - and _", "de": "Kleinbuchstaben, Ziffern, - und _"}
    assert words[language] in said["message"]
