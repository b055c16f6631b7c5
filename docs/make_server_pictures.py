"""Photograph the server's pages for `server.md`: run `python docs/make_server_pictures.py` to write them again.

It serves the sample study of `hetdp serve --demo` and walks through it in Chromium, as a curator and on a phone.
"""

from __future__ import annotations

import io
import shutil
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvicorn
from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

from hetdp.server import Settings, create_app, run

IMAGES = Path(__file__).parent / "images"
PHONE = {"viewport": {"width": 390, "height": 780}, "has_touch": True, "is_mobile": True, "device_scale_factor": 1.5}
DESKTOP = {"viewport": {"width": 1120, "height": 860}}
GAP, COLOURS = 30, 32


@contextmanager
def served() -> Iterator[tuple[str, Any]]:
    """Serve an empty server from a folder that is removed at the end."""
    with tempfile.TemporaryDirectory() as folder, socket.create_server(("127.0.0.1", 0)) as listener:
        app = create_app(Settings(database=f"sqlite:///{folder}/pictures.db"))
        server = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        while not server.started:
            time.sleep(0.05)
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}", app
        finally:
            server.should_exit = True
            thread.join()


def save(picture: Image.Image, name: str) -> None:
    """Write a picture with few colours: pages are flat, and the files stay small."""
    picture.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE).save(
        IMAGES / f"server-{name}.png", optimize=True
    )


def shot(page: Page, name: str, **options: Any) -> None:
    """Photograph a page."""
    with tempfile.NamedTemporaryFile(suffix=".png") as file:
        page.screenshot(path=file.name, **options)
        save(Image.open(file.name), name)


def phone(browser: Browser, link: str, language: str) -> None:
    """Photograph a participant's four steps on a phone, side by side."""
    page = browser.new_context(locale=f"{language}-GB", timezone_id="UTC", **PHONE).new_page()
    page.goto(link)
    page.wait_for_url("**/answer")
    steps = [page.screenshot()]
    page.locator("input[name=choice]").nth(1).check()
    page.locator(".choice").nth(0).scroll_into_view_if_needed()
    page.evaluate("scrollBy(0, 320)")
    steps.append(page.screenshot())
    page.locator("[data-go=questions]").first.click()
    page.locator("#q-sleep").fill("7.5")
    page.locator("input[name=q-rested]").nth(0).check()
    steps.append(page.screenshot())
    page.locator("input[name=q-way]").nth(1).check()
    page.locator("[data-go=check]").click()
    page.locator("#consent").check()
    steps.append(page.screenshot())
    page.locator("button[type=submit]").click()
    page.locator("#receipt").wait_for()
    page.locator("#receipt-spent", has_text="used").wait_for()
    page.evaluate("scrollTo(0, 0)")
    steps.append(page.screenshot())
    save(_beside(steps), "phone")


def _beside(pictures: list[bytes]) -> Image.Image:
    """Return pictures in a row, with thin frames."""
    found = [Image.open(io.BytesIO(one)).convert("RGB") for one in pictures]
    width, height = sum(one.width for one in found) + GAP * (len(found) + 1), found[0].height + 2 * GAP
    row, x = Image.new("RGB", (width, height), "#e3e1dc"), GAP
    for one in found:
        row.paste(one, (x, GAP))
        x += one.width + GAP
    return row.resize((width // 2, height // 2), Image.Resampling.LANCZOS)


def curator(browser: Browser, address: str, key: str, study: str) -> None:
    """Photograph the form for a new study, the dashboard and the explorer."""
    page = browser.new_context(locale="en-GB", timezone_id="UTC", **DESKTOP).new_page()
    page.goto(f"{address}/sign-in")
    page.locator("#key").fill(key)
    page.locator("#key").press("Enter")
    page.wait_for_url("**/curator")
    page.goto(f"{address}/curator/studies/{study}")
    page.locator("#what-if button").click()
    page.locator("#what-if-said li").first.wait_for()
    shot(page, "dashboard", clip={"x": 0, "y": 0, "width": 1120, "height": 2160}, full_page=True)
    page.goto(f"{address}/curator/new")
    fill_in(page)
    page.locator("#title").focus()
    page.evaluate("scrollTo(0, 0)")
    shot(page, "new", clip={"x": 0, "y": 0, "width": 1120, "height": 1560}, full_page=True)
    page.goto(f"{address}/explore")
    page.locator("#over-n svg.chart").wait_for()
    page.wait_for_load_state("networkidle")
    shot(page, "explore")


def fill_in(page: Page) -> None:
    """Fill the form with the three questions of the sample."""
    page.locator("#question-rows > li").first.wait_for()  # the script is there
    page.locator("#title").fill(run.TITLE)
    for _ in run.QUESTIONS[1:]:
        page.locator("#add-question").click()
    for row, question in zip(page.locator("#question-rows > li").all(), run.QUESTIONS, strict=True):
        row.locator("[data-part=text]").fill(question["text"])
        row.locator("[data-part=kind]").select_option(question["kind"])
        row.locator("[data-part=name]").fill(question["name"])
        row.locator("[data-part=share]").fill(f"{100 * question['share']:.0f}")
        if question["kind"] == "number":
            for part, value in (("lower", "0"), ("upper", "14"), ("unit", question["unit"])):
                row.locator(f"[data-part={part}]").fill(value)
        if question["kind"] == "choice":
            row.locator("[data-part=choices]").fill("\n".join(question["choices"]))


def main() -> None:
    """Make all pictures."""
    program = shutil.which("chromium") or sys.exit("no Chromium here; on Debian: apt-get install chromium")
    with served() as (address, app), sync_playwright() as play:
        browser = play.chromium.launch(executable_path=program, args=["--no-sandbox"])
        lines = [line.split()[1] for line in run.sample(app, address)]
        study = lines[0].rpartition("/")[2]
        phone(browser, lines[-1], "en")
        curator(browser, address, app.state.first_key, study)
        page = browser.new_context(locale="en-GB", timezone_id="UTC", **DESKTOP).new_page()
        page.goto(lines[0])
        shot(page, "result", full_page=True)
        browser.close()


if __name__ == "__main__":
    main()
