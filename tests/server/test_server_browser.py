"""The pages in a real browser: participants on a phone in two languages, a curator's year, erasing, accessibility.

With HETDP_SCREENSHOTS=FOLDER the pages are also photographed, for the documentation and for eyes.
"""

from __future__ import annotations

import math
import os
import re
import shutil
import time
from pathlib import Path

import pytest
from axe_playwright_python.base import AXE_SCRIPT
from playwright.sync_api import expect, sync_playwright

import hetdp
from hetdp.server.run import ABOUT, QUESTIONS, TIERS, TITLE, sample_rows
from serving import DAY, later, served, settings_for

PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
DESKTOP = {"viewport": {"width": 1280, "height": 860}}
expect.set_options(timeout=60_000)  # a machine may be busy; nothing here is about time
STATIC = Path(hetdp.__file__).parent / "server" / "static"


@pytest.fixture(scope="module")
def browser():
    program = shutil.which("chromium")
    if program is None:
        why = "no Chromium here; on Debian: apt-get install chromium"
        pytest.fail(why) if os.environ.get("CI") else pytest.skip(why)
    with sync_playwright() as play:
        running = play.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield running
        running.close()


@pytest.fixture
def site(tmp_path):
    with served(settings_for(tmp_path)) as running:
        yield running


class Visitor:
    """A page of its own context that notes what goes wrong and who else is asked."""

    def __init__(self, browser, site, locale="en-GB", **options):
        self.context = browser.new_context(base_url=site.address, locale=locale, timezone_id="UTC", **options)
        self.language = locale.partition("-")[0]
        self.page = self.context.new_page()
        self.page.set_default_timeout(60_000)
        self.errors, self.asked = [], []
        self.page.on("console", self._heard)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.address = site.address

    def _heard(self, message):
        if message.type == "error":
            self.errors.append(message.text)

    def check(self):
        """Nothing went wrong, nobody else was asked, nothing overflows, everything has a name."""
        assert self.errors == []
        assert [url for url in self.asked if not url.startswith((self.address, "data:", "blob:"))] == []
        wide = self.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert wide <= 0
        assert self.page.evaluate(NAMELESS) == []
        assert self.page.locator("h1").count() == 1
        assert self.page.evaluate("document.documentElement.lang") == self.language
        for landmark in ("header", "main", "footer"):
            assert self.page.locator(landmark).count() == 1
        assert self.serious() == []

    def serious(self):
        """What axe finds on the page that is serious or critical."""
        self.page.evaluate(AXE_SCRIPT)
        found = self.page.evaluate("axe.run(document, {resultTypes: ['violations']})")["violations"]
        bad = [one for one in found if one["impact"] in {"serious", "critical"}]
        return [f"{one['id']}: {node['html']} {node['failureSummary']}" for one in bad for node in one["nodes"]]

    def enter(self, token):
        """Open an invitation or a link to come back."""
        self.page.goto("about:blank")
        self.page.goto(f"/join#{token.rpartition('#')[2]}")
        self.page.wait_for_url("**/answer")

    def sent(self):
        """How often something was sent."""
        return sum(url.endswith("/api/answer") for url in self.asked)

    def picture(self, name):
        if folder := os.environ.get("HETDP_SCREENSHOTS"):
            self.page.screenshot(path=Path(folder) / f"{name}.png", full_page=True)


NAMELESS = """[...document.querySelectorAll('input, select, textarea, button, a, [role=img]')]
  .filter((e) => e.getClientRects().length)
  .filter((e) => !(e.labels?.length || e.getAttribute('aria-label') || e.textContent.trim() || e.placeholder))
  .map((e) => e.outerHTML)"""


@pytest.fixture
def visit(browser, site):
    visitors = []

    def open_(**options):
        visitors.append(Visitor(browser, site, **options))
        return visitors[-1]

    yield open_
    for visitor in visitors:
        visitor.context.close()


OFFERED = [{"name": name, "epsilon": level, "sentence": said} for name, level, said, _ in TIERS]
GERMAN = [
    {
        "name": "schlaf",
        "kind": "number",
        "text": "Wie viele Stunden haben Sie geschlafen?",
        "unit": "Stunden",
        "bounds": [0, 14],
    },
    {
        "name": "schritte",
        "kind": "number",
        "text": "Wie viele Schritte sind Sie gegangen?",
        "unit": "Schritte",
        "bounds": [0, 50_000],
    },
    {"name": "wach", "kind": "yes-no", "text": "Fühlen Sie sich ausgeruht?"},
]


def sample_study(site, **changes):
    """A study with the three questions of the demo."""
    return site.study(**{"title": TITLE, "questions": QUESTIONS, "tiers": OFFERED, "about": ABOUT, **changes})


def say(page, name):
    """Press a button by its text."""
    page.get_by_role("button", name=name).click()


# ---------------------------------------------------------------------------------------------------------
# The participant


def test_a_participant_on_a_phone_by_keyboard_alone(site, visit):
    study = sample_study(site)
    site.rows(study, sample_rows())
    (token,) = site.invite(study, 1)
    person = visit(**PHONE, color_scheme="dark")
    page, keyboard = person.page, person.page.keyboard
    person.enter(token)
    assert token not in page.url
    expect(page.get_by_role("heading", name="First, your privacy")).to_be_visible()
    expect(page.get_by_text("Without your answers: 50 of 100")).to_be_visible()
    expect(page.get_by_text("With your answers: at most 89 of 100")).to_be_visible()
    expect(page.get_by_text("Never more than ε = 2.")).to_be_visible()
    expect(page.get_by_text("Whoever controls this server could read them")).to_be_visible()
    expect(page.locator("#q-sleep")).to_be_hidden()  # privacy comes first
    assert page.locator("input:checked").count() == 0
    person.check()
    person.picture("phone-privacy-dark")

    page.get_by_role("button", name="On to the questions").focus()
    keyboard.press("Enter")
    expect(page.locator("#choice-error")).to_contain_text("Nothing is chosen for you.")
    expect(page.get_by_role("radiogroup", name="How private")).to_have_attribute("aria-invalid", "true")
    assert page.evaluate("document.activeElement.name") == "choice"
    keyboard.press("Space")
    keyboard.press("ArrowDown")
    keyboard.press("ArrowDown")
    expect(page.get_by_role("radio", name=re.compile("Open"))).to_be_checked()
    keyboard.press("Enter")  # goes on
    expect(page.get_by_role("heading", name="3 questions")).to_be_focused()
    keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "q-sleep"
    keyboard.type("99")
    keyboard.press("Enter")
    expect(page.locator("#q-sleep-error")).to_have_text("Enter a number from 0 to 14.")
    expect(page.locator("#q-sleep-error")).to_have_attribute("role", "alert")
    expect(page.locator("#q-sleep")).to_have_attribute("aria-invalid", "true")
    assert "q-sleep-error" in page.locator("#q-sleep").get_attribute("aria-describedby")
    assert page.evaluate("document.activeElement.id") == "q-sleep"  # the first error
    expect(page.locator("#q-rested-error")).to_contain_text("Prefer not to say")
    person.check()
    keyboard.press("Control+A")
    keyboard.type("6.318281828")
    keyboard.press("Tab")  # prefer not to say
    keyboard.press("Tab")
    keyboard.press("Space")  # yes
    keyboard.press("Tab")
    keyboard.press("ArrowUp")  # the last one: prefer not to say
    keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Check what you send")).to_be_focused()
    shown = page.locator("#sent dd").all_inner_texts()
    assert shown == ["6.318281828 hours", "Yes", "Prefer not to say", "Open"]
    person.check()
    page.get_by_role("button", name="Send my answers").focus()
    keyboard.press("Enter")
    expect(page.locator("#consent-error")).to_contain_text("agree to this first")
    expect(page.locator("#consent")).to_be_focused()
    assert person.sent() == 0
    keyboard.press("Space")
    keyboard.press("Enter")
    expect(page.locator("#receipt")).to_be_focused()
    expect(page.locator("#receipt-choice")).to_have_text("Open")
    expect(page.locator("#receipt-limit")).to_have_text("Never more than ε = 2.")
    expect(page.locator("#receipt-spent")).to_have_text("Nothing has been used yet. At most 2 can still be used.")
    expect(page.get_by_role("heading", name="Changed your mind?")).to_be_visible()  # and not how to stay out
    expect(page.get_by_role("heading", name="Do you not want to take part?")).to_have_count(0)
    expect(page.get_by_role("button", name="Withdraw my answers")).to_be_visible()
    link = page.locator("#link").input_value()
    assert "318281828" not in page.content()
    assert page.evaluate("[...document.querySelectorAll('input')].every((i) => !i.value.includes('318'))")
    person.check()
    person.picture("phone-receipt-dark")

    page.goto(f"/join#{token}")
    used = "This link is not valid, it was used already, or its study was deleted."
    expect(page.get_by_text(used, exact=False)).to_be_visible()
    person.errors.clear()  # the browser reports the refusal
    person.enter(link)
    expect(page.get_by_text("Your answers are in, with the choice Open.")).to_be_visible()
    expect(page.get_by_role("radio", name=re.compile("Open"))).to_be_checked()  # their own choice
    assert page.locator("#q-sleep").input_value() == ""
    expect(page.get_by_text("Once there are results, this page links to them.").first).to_be_visible()
    assert site.live(study)["n"] == 2201
    say(page, "Withdraw my answers")
    say(page, "Press again to withdraw")
    expect(page.get_by_text("Done: no answers of yours are in the database now.")).to_be_visible()
    expect(page.get_by_role("heading", name="Changed your mind?")).to_have_count(0)
    assert site.live(study)["n"] == 2200
    person.check()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_german_participant_writes_a_decimal_comma_and_sees_it_before_it_is_sent(site, visit, scheme):
    about = {**ABOUT, "institute": "Institut für Schlaf", "consent": "Ich bin einverstanden."}
    study = site.study(title="Schlaf", questions=GERMAN, tiers=OFFERED, about=about, language="de")
    person = visit(**PHONE, locale="de-DE", color_scheme=scheme)
    page = person.page
    person.enter(site.invite(study, 1)[0])
    expect(page.get_by_role("heading", name="Zuerst: Ihre Privatsphäre")).to_be_visible()
    expect(page.get_by_text("Mit Ihren Antworten: höchstens 69 von 100")).to_be_visible()
    expect(page.get_by_text("Nie mehr als ε = 0,8.")).to_be_visible()
    person.check()
    page.get_by_role("radio", name=re.compile("Standard")).check()
    say(page, "Weiter zu den Fragen")
    page.get_by_label("Ihre Antwort, in Stunden").fill("7,5")
    page.get_by_label("Ihre Antwort, in Schritte").fill("1.234")
    page.get_by_role("radio", name="Nein").check()
    say(page, "Prüfen, was Sie senden")
    wrong = page.locator("#q-schritte-error")
    expect(wrong).to_have_text("„1.234“ lässt sich auf zwei Arten lesen. Schreiben Sie 1234 oder 1,2340.")
    expect(page.locator("#q-schritte")).to_be_focused()
    person.check()
    page.get_by_label("Ihre Antwort, in Schritte").fill("12.345,5")
    say(page, "Prüfen, was Sie senden")
    shown = page.locator("#sent dd").all_inner_texts()
    assert shown == ["7,5 Stunden", "12\u202f345,5 Schritte", "Nein", "Standard"]
    person.check()
    page.get_by_label("Ich bin einverstanden.").check()
    with page.expect_request("**/api/answer") as sent:
        say(page, "Meine Antworten senden")
    answers = sent.value.post_data_json["answers"]
    assert answers == {"schlaf": 7.5, "schritte": 12345.5, "wach": False}
    expect(page.get_by_role("heading", name="Danke. Ihre Antworten sind angekommen.")).to_be_visible()
    expect(page.locator("#receipt-spent")).to_have_text(
        "Bisher wurde nichts verbraucht. Höchstens 0,8 kann noch verbraucht werden."
    )
    person.check()
    say(page, "English")
    expect(page.get_by_text("Your answers are in, with the choice Standard.")).to_be_visible()
    assert [cookie["value"] for cookie in person.context.cookies() if cookie["name"] == "hetdp_language"] == ["en"]


def test_who_is_never_used_is_not_thanked_for_answers_that_are_kept(site, visit):
    never = [{"name": "Never", "epsilon": 0, "sentence": ""}, {"name": "Public", "epsilon": "inf", "sentence": ""}]
    study = site.study(title=TITLE, questions=QUESTIONS[:1], tiers=never)
    for name, thanks in (("Never", "You take part; your answers were not kept."), ("Public", "Your answers are in.")):
        person = visit(**PHONE)
        person.enter(site.invite(study, 1)[0])
        person.page.get_by_role("radio", name=re.compile(name)).check()
        say(person.page, "On to the questions")
        person.page.get_by_label("Your answer, in hours").fill("3")
        say(person.page, "Check what you send")
        say(person.page, "Send my answers")
        expect(person.page.get_by_role("heading", name=f"Thank you. {thanks}")).to_be_visible()
        person.check()


def test_a_tab_that_was_left_open_sends_nothing_and_a_receipt_is_the_servers_word(site, visit):
    waves = [{"closes": int(time.time()) + 3600, "share": 0.5}, {"closes": int(time.time()) + 60 * DAY, "share": 0.5}]
    study = site.study(title=TITLE, questions=QUESTIONS[:1], tiers=OFFERED, waves=waves)
    site.rows(study, "sleep,tier\n" + "7,Open\n" * 60)
    person = visit(**PHONE)
    page = person.page
    person.enter(site.invite(study, 1)[0])

    def fill_in(choice):
        page.get_by_role("radio", name=re.compile(choice)).check()
        say(page, "On to the questions")
        page.get_by_label("Your answer, in hours").fill("7")
        say(page, "Check what you send")

    fill_in("Open")
    say(page, "Send my answers")
    expect(page.locator("#receipt-limit")).to_have_text(
        "Never more than ε = 2 in both publications together, and at most 1 in one."
    )
    page.goto("/answer")
    fill_in("Standard")
    with later(7200):
        assert site.publish_now(study).status_code == 200
        say(page, "Change my answers")
        expect(page.get_by_text("This page is out of date")).to_be_visible()
        expect(page.locator("#receipt")).to_be_hidden()
        person.errors.clear()  # the browser reports the refusal
        page.reload()
        fill_in("Standard")
        # The device's clock is two hours behind the server's, and by that the receipt goes.
        say(page, "Change my answers")
        expect(page.locator("#receipt-limit")).to_contain_text("counts as used")
        received = page.locator("#receipt-time time").get_attribute("datetime")
        assert received > time.strftime("%Y-%m-%dT%H:%M", time.gmtime(time.time() + 7200 - 600))
        until = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(site.live(study)["study"]["closes"]))
        expect(page.locator("#receipt-until time")).to_have_attribute("datetime", f"{until}.000Z")
    person.check()


READ = """async (texts) => {
  const { parse, written } = await import("/static/numbers.js");
  return texts.map((text) => { const { number, problem } = parse(text); return problem ?? written(number, ","); });
}"""
TYPED = {
    "7,5": "7,5", "7.5": "7,5", " 7 ": "7", ",5": "0,5", "7,": "7", "-1,25": "−1,25", "−3": "−3", "+2": "2",
    "0.123": "0,123", "0,123": "0,123", "1.234": "two-ways", "1,234": "two-ways", "-12.345": "two-ways",
    "1234": "1234", "1.2340": "1,234", "12345": "12\u202f345", "1.234,5": "1234,5", "1,234.5": "1234,5",
    "1.234.567": "1\u202f234\u202f567", "1 234,5": "1234,5", "1’234": "1234", "1.23.4": "unclear", "1,2,3": "unclear",
    "1.234.56": "unclear", "1e5": "unclear", "seven": "unclear", "7 5": "unclear", "": "none", "  ": "none",
    "1,234,5": "unclear", "1.2345": "1,2345",
}  # fmt: skip


def test_a_number_is_read_in_one_way_or_not_at_all(visit):
    reader = visit(**DESKTOP)
    reader.page.goto("/join")
    assert dict(zip(TYPED, reader.page.evaluate(READ, list(TYPED)), strict=True)) == TYPED


def test_row_115_a_free_choice_is_a_slider_without_a_default_by_keyboard_alone(site, visit):
    study = site.study(title=TITLE, questions=QUESTIONS[:1], tiers=[], free={"least": 0.05, "most": 5.0})
    (token,) = site.invite(study, 1)
    person = visit(**PHONE)
    page = person.page
    person.enter(token)
    slider, keyboard = page.get_by_label("Your level"), page.keyboard
    expect(page.locator("#stop-name")).to_have_text("not chosen yet, move the slider")
    expect(slider).to_have_attribute("aria-valuetext", "not chosen yet")
    expect(page.locator(".choice:visible")).to_have_count(0)
    person.check()
    say(page, "On to the questions")
    expect(page.locator("#choice-error")).to_contain_text("Nothing is chosen for you.")
    expect(slider).to_be_focused()
    assert "choice-error" in slider.get_attribute("aria-describedby")
    keyboard.press("Home")  # where it stands already: a choice all the same
    expect(page.locator("#stop-name")).to_have_text("ε = 0.05")
    expect(page.locator("#choice-error")).to_be_empty()
    expect(slider).to_have_attribute("aria-valuetext", re.compile(r"ε = 0\.05\. With your answers: at most 52 of 100"))
    keyboard.press("ArrowRight")
    expect(page.locator("#stop-name")).to_have_text("ε = 0.07")
    person.check()
    keyboard.press("Enter")
    page.get_by_label("Your answer, in hours").fill("3")
    keyboard.press("Enter")
    say(page, "Send my answers")
    expect(page.locator("#receipt-choice")).to_have_text("ε = 0.07")
    link = page.locator("#link").input_value()
    person.check()

    person.enter(link)
    expect(page.locator("#stop-name")).to_have_text("ε = 0.07")  # their own level, and never their value
    expect(page.locator("#more")).to_be_hidden()
    slider.focus()
    keyboard.press("End")
    expect(page.locator("#more")).to_be_visible()
    keyboard.press("Enter")
    expect(page.locator("#more-error")).to_have_text("Tick this box if you mean it, or choose another level.")
    expect(page.locator("#more-error")).to_be_in_viewport()
    expect(page.locator("#choice-error")).to_be_empty()
    expect(page.locator("#allow-more")).to_be_focused()
    person.check()
    keyboard.press("Space")
    keyboard.press("Enter")
    expect(page.locator("#q-sleep")).to_have_value("")
    page.get_by_label("Your answer, in hours").fill("4")
    keyboard.press("Enter")
    with page.expect_request("**/api/answer") as sent:
        say(page, "Change my answers")
    assert sent.value.post_data_json["allow_more"] is True
    expect(page.locator("#receipt-choice")).to_have_text("ε = 5")
    person.check()


@pytest.mark.parametrize("language", ["en", "de"])
def test_the_first_page_of_a_participant_is_small_and_asks_nobody_else(site, visit, language):
    person = visit(**PHONE)
    person.enter(site.invite(sample_study(site, language=language), 1)[0])
    person.page.wait_for_load_state("networkidle")
    asked = {url for url in person.asked if url.startswith("http") and not url.endswith("/api/session/participant")}
    assert all(url.startswith(site.address) for url in asked)
    sizes = {url: len(person.context.request.get(url).body()) for url in asked}  # also of the page that takes the link
    assert sum(url.endswith((".js", ".css", "/answer")) for url in sizes) >= 6
    assert sum(sizes.values()) < 60_000, sizes


# ---------------------------------------------------------------------------------------------------------
# The curator


def sign_in(page, site):
    page.goto("/sign-in")
    page.get_by_label("Curator key").fill(site.key)
    say(page, "Sign in")
    page.wait_for_url("**/curator")


def test_the_curators_way_from_an_empty_database_to_a_published_result(site, visit, tmp_path):
    curator = visit(**DESKTOP)
    page = curator.page
    page.goto("/")
    expect(page.get_by_text("There are no results here now.")).to_be_visible()
    page.goto("/sign-in")
    page.get_by_label("Curator key").fill("wrong")
    say(page, "Sign in")
    expect(page.get_by_text("This key is not valid.")).to_be_visible()
    curator.errors.clear()  # the browser reports the refusal
    curator.check()
    sign_in(page, site)
    expect(page.get_by_text("There are no studies here now.")).to_be_visible()
    curator.check()

    page.get_by_role("link", name="New study").click()
    expect(page.locator("#question-rows > li")).to_have_count(1)  # the script is there
    say(page, "Create the study")
    expect(page.get_by_label("Title")).to_be_focused()
    expect(page.get_by_label("Title")).to_have_attribute("aria-invalid", "true")
    page.get_by_label("Title").fill(TITLE)
    say(page, "Add a question")
    say(page, "Add a question")
    for row, question in zip(page.locator("#question-rows > li").all(), QUESTIONS, strict=True):
        row.get_by_label("Question", exact=True).fill(question["text"])
        row.get_by_label("The answer is").select_option(question["kind"])
        row.get_by_label("Name in files").fill(question["name"])
        row.get_by_label("Share of ε").fill(str(round(100 * question["share"])))
        if question["kind"] == "number":
            row.get_by_label("Smallest answer").fill("14")
            row.get_by_label("Largest answer").fill("0,5")
            row.get_by_label("Unit").fill(question["unit"])
        if question["kind"] == "choice":
            row.get_by_label("Choices, one per line").fill("\n".join(question["choices"]))
    expect(page.locator("#question-sum")).to_have_text("Together 100 %. 0 % is never used.")
    say(page, "Create the study")
    wrong = page.locator("#question-rows .problem")  # beside the limits, which are the wrong way round
    expect(wrong).to_have_count(1)
    lower, upper = (page.get_by_label(name).first for name in ("Smallest answer", "Largest answer"))
    expect(lower).to_be_focused()
    curator.errors.clear()
    curator.check()
    lower.fill("0")
    upper.fill("14")
    page.get_by_label("Fewest people for a publication").fill("100")
    page.get_by_label("People from a file count").check()
    for name in ("institute", "contact", "notice", "consent"):
        page.locator(f"#{name}").fill(ABOUT[name])
    page.locator("#wave-rows [data-part=share]").fill("150")
    say(page, "Create the study")
    expect(page.locator("#wave-rows .problem")).to_have_text("Enter a share from 0.1 to 100 %.")
    page.locator("#wave-rows [data-part=share]").fill("50")
    say(page, "Add a publication")
    page.locator("#wave-rows [data-part=closes]").nth(1).fill("2020-01-01T10:00")
    page.locator("#wave-rows [data-part=share]").nth(1).fill("50")
    say(page, "Create the study")
    expect(page.locator("#wave-rows > li").nth(1).locator(".problem")).to_have_count(1)  # the second date
    curator.errors.clear()
    page.locator("#wave-rows > li").nth(1).get_by_role("button", name="Remove this publication").click()
    curator.check()
    say(page, "Create the study")
    expect(page.get_by_role("heading", level=1)).to_have_text(TITLE)
    expect(page.get_by_text("Nobody takes part now.")).to_be_visible()
    dashboard = page.url
    study = dashboard.rpartition("/")[2]

    page.get_by_label("Single-use links").fill("3")
    say(page, "Make links")
    expect(page.get_by_text("3 links were made.")).to_be_visible()
    expect(page.locator("#invited-open")).to_have_text("3")
    links = page.locator("#link-list").input_value().split()
    with page.expect_download() as download:
        page.get_by_role("link", name="Save as CSV").click()
    assert Path(download.value.path()).read_text(encoding="utf-8").split() == ["invitation", *links]
    person = site.enter(links[0].rpartition("#")[2])
    said = {"answers": {"sleep": 7.5, "rested": True}, "tier": "Open", "consent": True}
    assert person.put("/api/answer", json=said).status_code == 200
    expect(page.locator("#n")).to_have_text("1")  # without a reload
    expect(page.locator("#invited-used")).to_have_text("1")
    expect(page.locator("#invited-open")).to_have_text("2")

    (tmp_path / "rows.csv").write_bytes(sample_rows())
    page.locator("#rows").set_input_files(tmp_path / "rows.csv")
    say(page, "Import")
    expect(page.get_by_text("2,200 people of this file were added.")).to_be_visible()
    expect(page.locator("#n")).to_have_text("2,201")
    expect(page.locator("#log")).to_contain_text("People imported from a file: 2,200")  # without a reload
    page.locator("#rows").set_input_files(tmp_path / "rows.csv")
    say(page, "Import")
    expect(page.get_by_text("The 2,200 people of this file were there already.")).to_be_visible()
    expect(page.locator("#n")).to_have_text("2,201")
    page.locator("#imports").get_by_role("button", name="Delete").click()
    expect(page.locator("#imports").get_by_role("button", name="Press again to delete")).to_be_visible()
    assert site.live(study)["n"] == 2201  # nothing at the first press
    say(page, "Press again to delete")
    expect(page.get_by_text("Import deleted, people: 2,200 · by curator")).to_be_visible()
    expect(page.locator("#n")).to_have_text("1")
    expect(
        page.get_by_text("too uncertain to use").or_(page.get_by_text("no data would be used")).first
    ).to_be_visible()
    page.locator("#rows").set_input_files(tmp_path / "rows.csv")
    say(page, "Import")
    expect(page.locator("#n")).to_have_text("2,201")
    say(page, "Work it out")
    expect(page.locator("#what-if-said li")).to_have_count(3)
    table = page.locator("#live td.num", has_text="±").all_inner_texts()  # both round alike
    said = [
        re.search(r"interval at its widest, now: (± .*?)[.( ]*Then|$", one)[1]
        for one in page.locator("#what-if-said li").all_inner_texts()
    ]
    assert said == table
    page.reload()
    page.get_by_label("I want to revoke all open links").check()
    say(page, "Revoke open links")
    expect(page.locator("#invited-revoked")).to_have_text("2")
    assert (
        site.client().post("/api/session/participant", json={"token": links[1].rpartition("#")[2]}).status_code == 403
    )
    curator.check()
    curator.picture("dashboard")

    expect(page.get_by_role("button", name="Publish the results")).to_have_count(0)
    page.get_by_label("I want to close early").check()
    say(page, "Close in 7 days")
    expect(page.get_by_text("Closing brought forward")).to_be_visible()
    expect(page.locator("#close")).to_have_count(0)  # it cannot be brought forward again
    assert "closes sooner than was said" in person.get("/answer").text
    curator.check()
    with later(8 * DAY):  # the curator's session has ended
        sign_in(page, site)
        page.goto(dashboard)
        page.get_by_label("I want to publish now").check()
        curator.check()
        say(page, "Publish the results")
        page.wait_for_url("**/results/**")
    expect(page.get_by_text("2,201 people took part.")).to_be_visible()
    results = site.client().get(f"/api/results/{study}").json()["results"]
    shown = float(page.locator(".estimate strong").inner_text())
    assert shown == pytest.approx(results[0]["estimate"], abs=0.1)
    expect(page.locator(".question-result")).to_have_count(3)
    expect(page.locator("svg.bar")).to_have_count(1 + len(QUESTIONS[2]["choices"]))
    curator.check()
    curator.picture("result")
    with page.expect_download() as download:
        page.get_by_role("link", name="All publications as CSV").click()
    assert "sleep" in Path(download.value.path()).read_text(encoding="utf-8")
    page.goto("/curator")
    expect(page.get_by_text("2,201 people")).to_be_visible()

    page.goto(dashboard)
    page.get_by_label("I want to delete this study").check()
    say(page, "Delete the study")
    expect(page.get_by_text("This study was deleted")).to_be_visible()
    curator.check()
    page.goto(f"/results/{study}")
    expect(page.get_by_text("2,201 people took part.")).to_be_visible()


def test_curators_are_added_and_removed_and_named_in_the_log(site, visit):
    first, second = visit(**DESKTOP), visit(**DESKTOP)
    sign_in(first.page, site)
    first.page.get_by_role("link", name="See who runs studies here").click()
    first.page.wait_for_url("**/curators")  # with its script
    first.page.get_by_label("Name", exact=True).fill("ada")
    say(first.page, "Add and make a key")
    expect(first.page.locator("#made")).to_be_visible()
    key = first.page.locator("#key").input_value()
    expect(first.page.get_by_role("button", name="Remove ada")).to_be_visible()  # without a reload
    expect(first.page.get_by_text("Key made for ada")).to_be_visible()
    first.check()
    second.page.goto("/sign-in")
    second.page.get_by_label("Curator key").fill(key)
    say(second.page, "Sign in")
    second.page.wait_for_url("**/curator")
    study = site.study()
    second.page.goto(f"/curator/studies/{study}")
    second.page.get_by_label("Single-use links").fill("2")
    say(second.page, "Make links")
    expect(second.page.get_by_text("2 links were made.")).to_be_visible()
    second.page.reload()
    expect(second.page.get_by_text("Invitations made: 2 · by ada")).to_be_visible()
    first.page.reload()
    expect(first.page.get_by_role("button", name="Remove")).to_have_count(1)  # not oneself
    say(first.page, "Remove ada")
    say(first.page, "Press again to remove")
    expect(first.page.get_by_role("button", name="Remove")).to_have_count(0)
    expect(first.page.get_by_text("Removed: ada · by curator")).to_be_visible()
    first.check()
    second.page.reload()
    expect(second.page.get_by_role("heading", name="Sign in")).to_be_visible()


QUARTER = 91 * DAY


def test_a_year_of_four_waves_in_which_people_are_asked_again_each_time(site, visit):
    now = int(time.time())
    waves = [{"closes": now + (i + 1) * QUARTER, "share": 0.25} for i in range(4)]
    new = {
        "waves": waves,
        "each_wave": "ask",
        "fewest": 1,
        "questions": QUESTIONS[:2],
        "about": {**ABOUT, "consent": ""},
    }
    study = sample_study(site, **new)
    person, curator = visit(**PHONE), visit(**DESKTOP)
    person.enter(site.invite(study, 1)[0])
    page = person.page
    expect(page.get_by_text("4 publications in all:")).to_be_visible()
    expect(page.get_by_text("with at most 25 % of what you allow")).to_have_count(4)
    expect(page.get_by_text("You are part of the next one only if you answer again")).to_be_visible()
    link = None
    for wave in range(4):
        with later(wave * QUARTER + 2 * DAY):
            page.goto("/answer") if link is None else person.enter(link)
            expect(page.get_by_role("link", name="See what was published so far")).to_have_count(min(wave, 1))
            if wave:
                expect(page.get_by_text("Please answer again: each publication asks again.")).to_be_visible()
                expect(page.locator("#spent")).to_contain_text("was used.")
                assert person.page.get_by_role("radio", name=re.compile("Open")).is_checked()
            else:
                page.get_by_role("radio", name=re.compile("Open")).check()
            say(page, "On to the questions")
            page.get_by_label("Your answer, in hours").fill(f"{6 + wave},5")
            page.get_by_role("radio", name="Yes").check()
            say(page, "Check what you send")
            say(page, "Send my answers")
            expect(page.locator("#receipt")).to_be_visible()
            link = link or page.locator("#link").input_value()
            site.rows(study, "sleep,rested,tier\n" + f"{7 - wave / 10},yes,Open\n6,no,Open\n" * 400)
            assert site.live(study)["n"] == 801
            person.check()
        with later((wave + 1) * QUARTER + DAY):
            sign_in(curator.page, site)
            curator.page.goto(f"/curator/studies/{study}")
            expect(curator.page.get_by_text(f"{wave + 1} of 4")).to_be_visible()
            curator.page.get_by_label("I want to publish now").check()
            say(curator.page, "Publish the results")
            curator.page.wait_for_url("**/results/**")
            expect(curator.page.get_by_role("heading", level=1)).to_have_text(TITLE)
    person.enter(link)
    expect(page.locator("#spent")).to_have_text(re.compile(r"^At most ε = [\d.]+ was used\.$"))
    balance = site.enter(link.rpartition("#")[2]).get("/api/answer").json()["balance"]
    assert 0 < balance["spent"] <= 2.0
    page.get_by_role("link", name="See what was published", exact=True).click()
    page.wait_for_url(f"**/results/{study}")
    person.check()
    curator.page.goto(f"/results/{study}")
    expect(curator.page.locator(".over").first.locator("tbody tr")).to_have_count(4)  # all waves side by side
    curator.check()
    curator.picture("result-year")


def test_a_person_erases_everything_and_the_curator_does_it_for_another(site, visit):
    study = sample_study(site, about={**ABOUT, "consent": ""})
    people = [site.enter(token) for token in site.invite(study, 2)]
    said = {"answers": {"sleep": 7}, "tier": "Open"}
    links = [person.put("/api/answer", json=said).json()["come_back"] for person in people]
    person, curator = visit(**PHONE), visit(**DESKTOP)
    person.enter(links[0])
    expect(person.page.get_by_text("the ledger keeps, under a random number, the level").first).to_be_visible()
    say(person.page, "Delete everything of mine")
    say(person.page, "Press again to delete")
    expect(person.page.get_by_text("Your link was deleted, with the answers")).to_be_visible()
    person.check()
    assert site.live(study)["n"] == 1
    person.page.goto("/answer")
    expect(person.page.get_by_role("heading", name="Open your invitation")).to_be_visible()
    person.errors.clear()
    person.page.goto(f"/join#{links[0].rpartition('#')[2]}")
    expect(person.page.get_by_text("This link is not valid")).to_be_visible()

    sign_in(curator.page, site)
    curator.page.goto(f"/curator/studies/{study}")
    curator.page.get_by_label("Their link").fill("http://example.org/join#nobody")
    say(curator.page, "Erase this person")
    say(curator.page, "Press again to delete")
    expect(curator.page.get_by_text("No person of this study has this link now.")).to_be_visible()
    curator.errors.clear()
    curator.page.get_by_label("Their link").fill(links[1])
    expect(
        curator.page.get_by_text("No person of this study has this link now.")
    ).to_be_hidden()  # it was the other one
    say(curator.page, "Erase this person")  # another link is asked about anew
    expect(curator.page.get_by_role("button", name="Press again to delete")).to_be_visible()
    assert site.live(study)["n"] == 1  # nothing at the first press
    say(curator.page, "Press again to delete")
    expect(curator.page.get_by_text("The link of this person was deleted, with the answers")).to_be_visible()
    expect(curator.page.locator("#n")).to_have_text("0")
    expect(curator.page.get_by_text("One person’s data erased · by curator")).to_be_visible()
    curator.check()


# ---------------------------------------------------------------------------------------------------------
# Every page


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("locale", ["en-GB", "de-DE"])
def test_axe_finds_nothing_serious_on_any_page(site, visit, locale, scheme):
    now = int(time.time())
    language = locale.partition("-")[0]
    waves = [{"closes": now + 20 * DAY, "share": 0.5}, {"closes": now + 90 * DAY, "share": 0.5}]
    study = sample_study(site, waves=waves, language=language)
    free = site.study(tiers=[], free={"least": 0.05, "most": 5.0}, language=language)
    site.rows(study, sample_rows())
    assert site.publish(study).status_code == 200
    reader = visit(**DESKTOP, locale=locale, color_scheme=scheme)
    page = reader.page
    for path in ("/", "/explore", "/sign-in", "/join", "/answer", "/nowhere", f"/results/{study}"):
        page.goto(path)
        page.wait_for_load_state("networkidle")
        reader.errors.clear()  # the browser reports a page that is none
        reader.check()
    page.goto("/sign-in")
    page.locator("#key").fill(site.key)
    page.locator("#key").press("Enter")
    page.wait_for_url("**/curator")
    for path in ("", "/new", "/curators", f"/studies/{study}", f"/studies/{free}"):
        page.goto(f"/curator{path}")
        reader.check()
    for one in (study, free):
        person = visit(**PHONE, locale=locale, color_scheme=scheme)
        person.enter(site.invite(one, 1)[0])
        person.check()


def test_control_axe_finds_a_field_without_a_name(visit):
    reader = visit(**DESKTOP)
    reader.page.goto("/sign-in")
    assert reader.serious() == []
    reader.page.evaluate("document.querySelector('label[for=key]').remove()")
    assert any("label" in found for found in reader.serious())


def test_the_explorers_sliders_ask_the_library(site, visit):
    reader = visit(**DESKTOP)
    page = reader.page
    page.goto("/explore")
    expected = hetdp.plan({0.1: 700, 2.0: 300}, bounds=(0, 1))
    expect(page.locator("#t")).to_have_text(f"{math.ceil(1000 * expected.threshold) / 1000:g}")
    expect(page.locator("#over-n svg.chart")).to_be_visible()
    assert page.locator("#over-n svg.chart .line").count() == len(hetdp.methods())
    assert page.locator("#over-n .legend li").count() == 1 + len(hetdp.methods())
    expect(page.locator("#over-epsilon desc")).to_contain_text(
        f"At ε = 2: spent {math.ceil(1000 * expected.table[1].spent) / 1000:g}, allowed"
    )
    expect(page.locator("#methods desc")).to_contain_text(f"ADPM {100 * expected.worst_case_error:#.3g} %")
    assert all(page.locator(f"#{chart} .axis").count() == 2 for chart in ("over-epsilon", "methods", "over-n"))
    reader.picture("explore")
    before = page.locator("#over-n svg.chart .adpm").get_attribute("d")
    page.locator("#over-n svg.chart").hover(position={"x": 70, "y": 100})
    expect(page.locator("#over-n .legend li").first).not_to_have_text("People 1,000:")
    for slider in page.locator("#tiers .eps").all():
        slider.focus()
        page.keyboard.press("End")  # now all allow the same
    expect(page.locator("#said")).to_contain_text("Nobody is above the saturation level")
    assert page.locator("#over-n svg.chart .adpm").get_attribute("d") != before
    page.get_by_role("button", name="Near the paper’s case").click()
    page.locator("#n").focus()
    page.keyboard.press("End")
    more = hetdp.plan({0.1: 7 * 10**6, 2.0: 3 * 10**6}, bounds=(0, 1))
    expect(page.locator("#error")).to_have_text(f"± {100 * more.worst_case_error:.3g} %")
    page.get_by_role("button", name="Add a tier").click()
    expect(page.locator("#tiers fieldset")).to_have_count(3)
    expect(page.locator("#table tr")).to_have_count(len(hetdp.methods()))
    reader.check()
    small = visit(**PHONE, color_scheme="dark")
    small.page.goto("/explore")
    expect(small.page.locator("#over-n svg.chart")).to_be_visible()
    small.check()
    small.picture("explore-phone-dark")


def slide(page, kind, tier, to):
    """Move a slider as a hand does."""
    script = "(slider, to) => { slider.value = to; slider.dispatchEvent(new Event('input', { bubbles: true })); }"
    page.locator(f"#tiers .{kind}").nth(tier).evaluate(script, str(to))


def test_the_explorer_computes_the_people_that_its_sliders_show(site, visit):
    """Shares could be set to 130 % and the strict tier above the open one; the figures were then of other people."""
    page = visit(**DESKTOP).page
    page.goto("/explore")
    shown = page.locator("#tiers output")
    page.get_by_role("button", name="Add a tier").click()
    slide(page, "share", 1, 0.6)
    expect(shown).to_have_text(["0.1", "40 %", "0.447", "60 %", "2", "0 %"])
    expect(page.locator("#free")).to_have_text("–")  # nobody is in the open tier
    expect(page.locator("#over-epsilon desc")).to_contain_text("At ε = 2: spent –")
    expected = hetdp.plan({0.1: 400, 0.447: 600}, bounds=(0, 1))
    expect(page.locator("#t")).to_have_text(f"{math.ceil(1000 * expected.threshold) / 1000:g}")
    page.get_by_role("button", name="Add a tier").click()
    expect(shown).to_have_text(["0.1", "40 %", "0.447", "60 %", "0.955", "0 %", "2", "0 %"])
    page.get_by_role("button", name="Near the paper’s case").click()
    slide(page, "eps", 0, 1)
    expect(shown).to_have_text(["10", "70 %", "10", "30 %"])
    slide(page, "eps", 1, -1)
    expect(shown).to_have_text(["0.1", "70 %", "0.1", "30 %"])
    expect(page.locator("#free")).to_have_text("0 %")
    expected = hetdp.plan({0.1: 1000}, bounds=(0, 1))
    expect(page.locator("#error")).to_have_text(f"± {100 * expected.worst_case_error:#.3g} %")


def luminance(colour):
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


PAIRS = [(ink, on) for ink in ("ink", "soft", "accent", "danger") for on in ("ground", "surface", "wash")]


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize(("ink", "on"), [*PAIRS, ("on-accent", "accent")], ids=lambda name: name)
def test_every_text_has_enough_contrast(scheme, ink, on):
    block = re.findall(r":root \{(.*?)\}", (STATIC / "style.css").read_text(encoding="utf-8"), re.DOTALL)[scheme]
    colours = dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6})", block))
    assert contrast(colours[ink], colours[on]) >= 4.5


def test_control_grey_on_grey_has_too_little_contrast():
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#999999", "#ffffff") < 4.5


# ---------------------------------------------------------------------------------------------------------
# What an institute stumbled over that tried a survey by the documentation alone


@pytest.mark.parametrize(("locale", "decimal"), [("en-GB", "."), ("de-DE", ",")])
def test_shares_that_the_form_filled_in_are_read_as_they_stand(site, visit, locale, decimal):
    """Three questions share ε as 33.33 %; with one of them changed the others count in the sum and are taken."""
    curator = visit(**DESKTOP, locale=locale)
    page = curator.page
    page.goto("/sign-in")
    page.locator("#key").fill(site.key)
    page.locator("#key").press("Enter")
    page.wait_for_url("**/curator")
    page.goto("/curator/new")
    page.locator("#title").fill("x")
    for _ in range(2):
        page.locator("#add-question").click()
    shares = page.locator("#question-rows [data-part=share]")
    assert [one.input_value() for one in shares.all()] == [f"33{decimal}33"] * 3
    for i, row in enumerate(page.locator("#question-rows > li").all()):
        row.locator("[data-part=text]").fill(f"Question {i}?")
        row.locator("[data-part=kind]").select_option("yes-no")
    shares.nth(0).fill(f"20{decimal}125")  # which no share means as twenty thousand
    total = f"86{decimal}785 %"
    expect(page.locator("#question-sum")).to_contain_text(total)
    page.locator("#new-study button[type=submit]").click()
    page.wait_for_url("**/curator/studies/*")
    (study,) = site.curator.get("/api/studies").json()
    questions = site.live(study["id"])["study"]["questions"]
    assert [one["share"] for one in questions] == [0.20125, 0.3333, 0.3333]


def filled_in(person, choice="Open"):
    """Let somebody choose and answer the one question of a study, up to what is sent."""
    person.page.get_by_role("radio", name=re.compile(choice)).check()
    person.page.locator("[data-go=questions]").first.click()
    person.page.locator("#q-sleep").fill("7")
    person.page.locator("[data-go=check]").click()


def one_question(site, **changes):
    return site.study(title=TITLE, questions=QUESTIONS[:1], tiers=OFFERED, **changes)


def test_after_withdrawing_the_top_of_the_page_says_so_and_goes_on_saying_it(site, visit):
    person = visit(**PHONE)
    page = person.page
    person.enter(site.invite(one_question(site), 1)[0])
    filled_in(person)
    say(page, "Send my answers")
    say(page, "Withdraw my answers")
    say(page, "Press again to withdraw")
    done = page.locator("h1 + #done")
    expect(done).to_have_text("Done: no answers of yours are in the database now.")
    expect(done).to_be_focused()
    expect(page.locator("#receipt")).to_be_hidden()
    page.wait_for_timeout(2500)  # it went away after a second and a half
    expect(done).to_be_visible()
    expect(done).to_be_in_viewport()
    person.check()
    person.picture("phone-withdrawn")
    page.reload()
    expect(page.get_by_role("heading", name="First, your privacy")).to_be_visible()
    expect(done).to_have_count(0)  # said once
    expect(page.get_by_text("None of your answers is in the database now.")).to_be_visible()


def test_after_deleting_everything_nothing_is_left_on_the_page_but_that_it_was_done(site, visit):
    person = visit(**PHONE)
    page = person.page
    person.enter(site.invite(one_question(site), 1)[0])
    filled_in(person)
    say(page, "Send my answers")
    expect(page.locator("#receipt")).to_be_visible()
    say(page, "Delete everything of mine")
    say(page, "Press again to delete")
    expect(page.locator("#done")).to_be_focused()
    expect(page.locator("#done")).to_contain_text("Your link was deleted, with the answers")
    assert page.locator("main > *").evaluate_all("(all) => all.map((one) => one.id || one.tagName)") == ["H1", "done"]
    page.wait_for_timeout(2500)  # no reload to a page that asks for the invitation
    expect(page.locator("#done")).to_be_visible()
    person.check()


def test_the_receipt_begins_with_the_link_and_has_no_link_to_results_that_are_not_there(site, visit):
    waves = [{"closes": int(time.time()) + 3600 * i, "share": 0.5} for i in (1, 2000)]
    study, person = one_question(site, waves=waves), visit(**PHONE)
    page = person.page
    person.enter(site.invite(study, 1)[0])
    filled_in(person)
    say(page, "Send my answers")
    expect(page.locator("#receipt #link")).to_be_visible()
    above = page.locator("#receipt a, #receipt input, #receipt dl, #receipt button")
    assert above.first.get_attribute("id") == "link"
    expect(page.locator("#receipt")).to_contain_text("Once there are results, this page links to them.")
    results = page.locator(f"main a[href$='/results/{study}']")
    expect(results).to_have_count(0)
    person.picture("phone-receipt")
    page.goto("/answer")
    expect(page.locator("#results")).to_have_text("Once there are results, this page links to them.")
    expect(results).to_have_count(0)
    assert site.publish(study).status_code == 200
    page.reload()
    expect(page.locator("#results a")).to_have_attribute("href", f"/results/{study}")


def test_who_switches_the_language_with_answers_that_were_not_sent_is_asked_first(site, visit):
    person, asked = visit(**PHONE), []
    page = person.page

    def stay(dialog):
        asked.append(dialog.type)
        dialog.dismiss()

    page.on("dialog", stay)
    person.enter(site.invite(one_question(site), 1)[0])
    say(page, "Deutsch")
    expect(page.get_by_role("heading", name="Zuerst: Ihre Privatsphäre")).to_be_visible()
    assert asked == [], "nothing is lost yet"
    filled_in(person)
    say(page, "English")
    page.wait_for_timeout(500)
    assert asked == ["beforeunload"]
    expect(page.locator("#q-sleep")).to_have_value("7")
    say(page, "Meine Antworten senden")
    expect(page.locator("#receipt")).to_be_visible()
    say(page, "English")
    expect(page.get_by_text("Your answers are in, with the choice Open.")).to_be_visible()
    assert asked == ["beforeunload"], "what was sent is not lost"


DRAWN = """(name) => getComputedStyle(document.querySelector(`svg.bar .${name}`)).stroke.match(/\\d+/g)
  .reduce((text, part) => text + Number(part).toString(16).padStart(2, '0'), '#')"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("locale", ["en-GB", "de-DE"])
def test_results_can_be_read_on_a_narrow_phone(site, visit, locale, scheme):
    """Intervals have their unit and stand out from the bar, tables of what was used fit, dates of waves are days."""
    now = int(time.time())
    waves = [{"closes": now + 3600, "share": 0.5}, {"closes": now + 40 * DAY, "share": 0.5}]
    study = sample_study(site, waves=waves, language=locale.partition("-")[0])
    site.rows(study, sample_rows())
    for wave in (0, 1):
        assert site.publish(study, wave).status_code == 200
    narrow = {**PHONE, "viewport": {"width": 375, "height": 812}}
    reader = visit(**narrow, locale=locale, color_scheme=scheme)
    page = reader.page
    page.goto(f"/results/{study}")
    for one in page.locator(".bar-name .muted").all_inner_texts():
        assert re.fullmatch(r"[\d.,]+ (?:to|bis) [\d.,]+\u00a0%", one)
    page.locator("summary").evaluate_all("(all) => all.forEach((one) => one.click())")
    expect(page.locator("details table").last).to_be_visible()
    wide = page.locator("details .scroll").evaluate_all("(all) => all.map((one) => one.scrollWidth - one.clientWidth)")
    assert wide == [0, 0, 0]
    assert contrast(page.evaluate(DRAWN, "whisker"), page.evaluate(DRAWN, "halo")) >= 4.5
    for one in page.locator(".over .day").all_inner_texts():
        assert re.fullmatch(r"[12] · \d+\.? \w+\.? \d{4}", one)
    reader.check()
    reader.picture(f"result-phone-{locale}-{scheme}")


def test_levels_that_the_form_filled_in_follow_the_language_of_the_study_unless_they_were_changed(site, visit):
    curator = visit(**DESKTOP)
    sign_in(curator.page, site)
    curator.page.goto("/curator/new")
    names, sentences = (curator.page.locator(f"#tier-rows [data-part={part}]") for part in ("name", "sentence"))
    expect(names).to_have_count(3)
    sentences.nth(1).fill("My own.")
    curator.page.locator("#language").select_option("de")
    assert [one.input_value() for one in names.all()] == ["Streng", "Mittel", "Offen"]
    said = [one.input_value() for one in sentences.all()]
    assert said[1] == "My own."
    assert all("erfahren" in one for one in (said[0], said[2]))
    curator.page.locator("#language").select_option("en")
    assert [one.input_value() for one in names.all()] == ["Strict", "Standard", "Open"]
    curator.check()
