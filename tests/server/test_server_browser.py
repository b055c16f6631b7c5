"""The pages in a real browser: the curator's whole way, a participant on a phone, the explorer's sliders.

With HETDP_SCREENSHOTS=FOLDER the pages are also photographed, for the documentation and for eyes.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest
from playwright.sync_api import expect, sync_playwright

import hetdp
from hetdp.server.run import QUESTION, TIERS, sample_rows
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

    def __init__(self, browser, site, **options):
        self.context = browser.new_context(base_url=site.address, locale="en-GB", timezone_id="UTC", **options)
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
        assert self.page.evaluate("document.documentElement.lang") == "en"
        for landmark in ("header", "main", "footer"):
            assert self.page.locator(landmark).count() == 1

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


def test_the_curators_way_from_an_empty_database_to_a_published_result(site, visit, tmp_path):
    curator = visit(**DESKTOP)
    page = curator.page
    page.goto("/")
    expect(page.get_by_text("Nothing has been published yet.")).to_be_visible()
    page.get_by_role("link", name="Sign in").click()
    page.get_by_label("Curator key").fill("wrong")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_text("This key is not valid.")).to_be_visible()
    curator.errors.clear()  # the browser reports the refusal
    page.get_by_label("Curator key").fill(site.key)
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_text("No studies yet.")).to_be_visible()
    curator.check()

    page.get_by_role("link", name="New study").click()
    page.get_by_label("Question").fill(QUESTION)
    page.get_by_label("Smallest answer").fill("0")
    page.get_by_label("Largest answer").fill("14")
    page.get_by_label("Unit").fill("hours")
    page.get_by_label("Fewest people").fill("100")
    curator.check()
    curator.picture("new-study")
    page.get_by_role("button", name="Create the study").click()
    expect(page.get_by_role("heading", level=1)).to_have_text(QUESTION)
    expect(page.get_by_text("Nobody has joined yet.")).to_be_visible()

    page.get_by_label("Single-use links").fill("2")
    page.get_by_role("button", name="Make links").click()
    expect(page.get_by_text("2 links were made.")).to_be_visible()
    links = page.locator("#link-list").input_value().split()
    answer = visit(**DESKTOP).page
    answer.goto(links[0])
    answer.get_by_label("Your answer, in hours").fill("7.5")
    answer.get_by_role("radio", name=re.compile("Open")).check()
    answer.get_by_role("button", name="Send my answer").click()
    expect(answer.get_by_role("heading", name="Thank you. Your answer is in.")).to_be_visible()
    expect(page.locator("#n")).to_have_text("1")  # without a reload

    (tmp_path / "rows.csv").write_bytes(sample_rows())
    page.locator("#rows").set_input_files(tmp_path / "rows.csv")
    page.get_by_role("button", name="Import").click()
    expect(page.get_by_text("The 400 people of this file are in.")).to_be_visible()
    expect(page.locator("#n")).to_have_text("401")
    page.reload()
    page.locator("#imports").get_by_role("button", name="Delete").click()
    expect(page.get_by_text("import deleted")).to_be_visible()
    expect(page.locator("#n")).to_have_text("1")
    page.locator("#rows").set_input_files(tmp_path / "rows.csv")
    page.get_by_role("button", name="Import").click()
    expect(page.locator("#n")).to_have_text("401")
    page.get_by_role("button", name="Ask").click()
    expect(page.get_by_text("The worst-case error would go from")).to_be_visible()
    curator.check()
    curator.picture("dashboard")

    expect(page.get_by_role("button", name="Publish the result")).to_have_count(0)
    page.get_by_label("I want to close early").check()
    page.get_by_role("button", name="Close in 7 days").click()
    expect(page.get_by_text("closing brought forward")).to_be_visible()
    answer.reload()
    expect(answer.get_by_text("This study closes sooner than was said")).to_be_visible()
    curator.check()
    dashboard = page.url
    with later(8 * DAY):  # the curator's session has ended
        page.goto(dashboard)
        page.get_by_label("Curator key").fill(site.key)
        page.get_by_role("button", name="Sign in").click()
        page.wait_for_url("**/curator")
        page.goto(dashboard)
        page.get_by_label("I want to publish now").check()
        page.get_by_role("button", name="Publish the result").click()
        page.wait_for_url("**/results/**")
    expect(page.get_by_text("It rests on 401 people.")).to_be_visible()
    study = page.url.rpartition("/")[2].partition("?")[0]
    result = site.client().get(f"/api/results/{study}").json()["result"]
    shown = float(page.locator(".estimate strong").inner_text())
    assert shown == pytest.approx(result["estimate"], abs=0.01)
    curator.check()
    curator.picture("result")
    page.goto("/curator")
    expect(page.get_by_text("401 people")).to_be_visible()

    page.goto(dashboard)
    page.get_by_label("I want to delete this study").check()
    page.get_by_role("button", name="Delete the study").click()
    expect(page.get_by_text("This study was deleted")).to_be_visible()
    curator.check()
    page.goto(f"/results/{study}")
    expect(page.get_by_text("It rests on 401 people.")).to_be_visible()


def test_a_participant_on_a_phone_by_keyboard_alone(site, visit):
    tiers = [{"name": name, "epsilon": level, "sentence": said} for name, level, said, _ in TIERS]
    study = site.study(question=QUESTION, unit="hours", bounds=[0, 14], tiers=tiers)
    site.rows(study, sample_rows())
    (token,) = site.invite(study, 1)
    person = visit(**PHONE, color_scheme="dark")
    page, keyboard = person.page, person.page.keyboard
    page.goto(f"/join#{token}")
    page.wait_for_url("**/answer")
    assert token not in page.url
    expect(page.get_by_text("Never more than ε = 2, whatever others do.")).to_be_visible()
    assert page.locator("input:checked").count() == 0
    person.check()
    person.picture("answer-phone-dark")
    page.locator("#value").focus()
    keyboard.type("99")
    keyboard.press("Enter")
    expect(page.locator("#value-error")).to_have_text("Enter a number from 0 to 14.")
    expect(page.locator("#value")).to_have_attribute("aria-invalid", "true")
    assert page.evaluate("document.activeElement.id") == "value"
    assert not [url for url in person.asked if url.endswith("/api/answer")]  # it was not sent
    keyboard.press("Control+A")
    keyboard.type("6.318281828")
    keyboard.press("Enter")
    expect(page.locator("#choice-error")).to_contain_text("Nothing is chosen for you.")
    expect(page.get_by_role("radiogroup")).to_have_attribute("aria-invalid", "true")
    assert not [url for url in person.asked if url.endswith("/api/answer")]
    page.locator("#value").focus()
    keyboard.press("Tab")
    keyboard.press("Space")
    keyboard.press("ArrowDown")
    keyboard.press("ArrowDown")
    expect(page.get_by_role("radio", name=re.compile("Open"))).to_be_checked()
    page.get_by_role("button", name="Send my answer").focus()
    keyboard.press("Enter")
    expect(page.locator("#receipt")).to_be_focused()
    expect(page.locator("#receipt-choice")).to_have_text("Open (ε = 2)")
    expect(page.locator("#receipt-limit")).to_have_text("Never more than ε = 2, whatever others do.")
    expect(page.locator("#receipt-spent")).to_have_text("Nothing; at most 2 is left.")
    link = page.locator("#link").input_value()
    assert "318281828" not in page.content()
    person.check()
    person.picture("receipt-phone-dark")

    page.goto(f"/join#{token}")
    expect(page.get_by_text("This link is not valid, or it was used already.")).to_be_visible()
    person.errors.clear()  # the browser reports the refusal
    page.goto(link)
    page.wait_for_url("**/answer")
    expect(page.get_by_text("Your answer is in, with Open.")).to_be_visible()
    assert page.locator("#value").input_value() == ""
    assert site.live(study)["n"] == 401
    page.get_by_role("button", name="Withdraw my answer").click()
    expect(page.get_by_role("button", name="Send my answer")).to_be_visible()
    assert site.live(study)["n"] == 400
    person.check()


def test_row_115_a_free_choice_is_a_slider_without_a_default_by_keyboard_alone(site, visit):
    free = {"least": 0.05, "most": 5.0}
    study = site.study(question=QUESTION, unit="hours", bounds=[0, 14], tiers=[], free=free)
    site.rows(study, "value,epsilon\n" + "7,0.1\n" * 300)
    (token,) = site.invite(study, 1)
    person = visit(**PHONE)
    page = person.page
    page.goto(f"/join#{token}")
    page.wait_for_url("**/answer")
    slider, keyboard = page.get_by_label("Your privacy level"), page.keyboard
    expect(page.locator("#stop-name")).to_have_text("not chosen yet, touch the line")
    expect(slider).to_have_attribute("aria-valuetext", "not chosen yet")
    expect(page.locator(".choice:visible")).to_have_count(0)
    person.check()
    person.picture("answer-slider-unset-phone")
    page.get_by_label("Your answer, in hours").focus()
    keyboard.type("3")
    keyboard.press("Enter")
    expect(page.locator("#choice-error")).to_contain_text("Nothing is chosen for you.")
    expect(slider).to_be_focused()
    assert "choice-error" in slider.get_attribute("aria-describedby")
    assert site.live(study)["n"] == 300
    keyboard.press("Home")  # where it stands already: a choice all the same
    expect(page.locator("#stop-name")).to_have_text("ε = 0.05")
    expect(page.locator("#choice-error")).to_be_empty()
    expect(page.get_by_text("at most 51.3 % sure")).to_be_visible()
    expect(slider).to_have_attribute(
        "aria-valuetext", re.compile(r"ε = 0\.05\. Never more than ε = 0\.05.*51\.3 % sure")
    )
    keyboard.press("ArrowRight")
    expect(page.locator("#stop-name")).to_have_text("ε = 0.07")
    person.picture("answer-slider-phone")
    page.get_by_label("Your answer, in hours").focus()
    keyboard.press("Enter")
    expect(page.locator("#receipt-choice")).to_have_text("ε = 0.07")
    link = page.locator("#link").input_value()
    person.check()

    page.goto("about:blank")
    page.goto(link)
    page.wait_for_url("**/answer")
    expect(page.locator("#stop-name")).to_have_text("ε = 0.07")  # their own level, and never their value
    expect(page.locator("#value")).to_have_value("")
    person.check()
    person.picture("return-slider-phone")
    page.locator("#value").focus()
    keyboard.type("4")
    keyboard.press("Enter")
    expect(page.locator("#receipt-choice")).to_have_text("ε = 0.07")
    page.reload()
    expect(page.locator("#more")).to_be_hidden()
    slider.focus()
    keyboard.press("End")
    expect(page.locator("#more")).to_be_visible()
    page.locator("#value").focus()
    keyboard.type("5")
    keyboard.press("Enter")
    expect(page.locator("#choice-error")).to_contain_text("Nothing was changed; confirm it")
    expect(page.locator("#allow-more")).to_be_focused()
    person.picture("more-slider-phone")
    person.errors.clear()  # the browser reports the refusal
    keyboard.press("Space")
    keyboard.press("Enter")
    expect(page.locator("#receipt-choice")).to_have_text("ε = 5")
    person.check()


def test_the_explorers_sliders_ask_the_library(site, visit):
    reader = visit(**DESKTOP)
    page = reader.page
    page.goto("/explore")
    expected = hetdp.plan({0.1: 700, 2.0: 300}, bounds=(0, 1))
    expect(page.locator("#t")).to_have_text(f"{expected.threshold:.3g}")
    expect(page.locator("#over-n svg.chart")).to_be_visible()
    assert page.locator("#over-n svg.chart .line").count() == len(hetdp.methods())
    assert page.locator("#over-n .legend li").count() == 1 + len(hetdp.methods())
    expect(page.locator("#over-epsilon desc")).to_contain_text(
        f"At ε = 2: spent {expected.table[1].spent:.3g}, allowed"
    )
    expect(page.locator("#methods desc")).to_contain_text(f"ADPM {100 * expected.worst_case_error:.3g} %")
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
    page.get_by_role("button", name="The paper’s case").click()
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
