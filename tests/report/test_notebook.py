"""What a notebook shows: tables that a browser lays out with every bar at the left of its column."""

from __future__ import annotations

import json
import math
import os
import shutil

import pytest
from playwright.sync_api import sync_playwright

import hetdp
from hetdp.report import page

LEVELS = {0.02: 2000, 0.1: 1200, 1.0: 500, math.inf: 300}


def shown(tmp_path):
    """Everything that a notebook can show, by name."""
    values, epsilons = ["a", "b", "b", "c"] * 500, [0.1, 0.5, 1.0, math.inf] * 500
    with hetdp.Ledger.create(tmp_path / "b.db") as ledger:
        ledger.enroll({"ann": 1, "bob": 2})
        ledger.mean([1, 2], person=["ann", "bob"], bounds=(0, 3), spend=0.5, release_id="may", missing="midpoint")
        yield from {"history": ledger.history(), "cohorts": ledger.cohorts(), "balances": ledger.balances()}.items()
    yield "histogram", hetdp.histogram(values, epsilon=epsilons, categories=["a", "b", "c", "d"])
    yield "mean", hetdp.mean([0.5] * 2000, epsilon=epsilons, bounds=(0, 1))
    yield "plan", hetdp.plan(LEVELS, bounds=(0, 1))
    yield "compare", hetdp.compare(LEVELS, bounds=(0, 1))
    yield "methods", hetdp.methods()
    yield "explain", hetdp.explain(0.3)
    groups = {name: hetdp.mean([0.5] * 90, epsilon=[1.0] * 90, bounds=(0, 1)) for name in ("a", "b")}
    yield "groups", hetdp.Groups(groups, checked=True)


def test_everything_has_a_table_of_its_own_in_a_notebook_and_text_in_a_terminal(tmp_path):
    for name, found in shown(tmp_path):
        made = found._repr_html_()
        assert made.startswith('<div class="hetdp">'), name
        assert ("<table" in made) == (name != "explain")
        assert "object at 0x" not in str(found)


def test_methods_are_a_table_and_still_a_mapping():
    methods = hetdp.methods()
    assert set(methods) == set(dict(methods)) >= {"adpm", "minimax"}
    assert repr(methods).startswith("adpm          ADPM: weights")
    assert methods is not hetdp.methods()
    methods.pop("adpm")
    assert "adpm" in hetdp.methods()
    with pytest.raises(hetdp.InputError, match="unknown method 'best'"):
        methods["best"]


def test_a_release_is_a_number_and_comes_back_from_its_json():
    found = hetdp.mean([0.25, 0.75] * 500, epsilon=[0.1, 1.0] * 500, bounds=(0, 1))
    assert float(found) == found.estimate == json.loads(found.to_json())["estimate"]
    assert (f"{found:.3f}", format(found, "8.2f")) == (f"{found.estimate:.3f}", f"{found.estimate:8.2f}")
    assert round(float(found), 2) == float(f"{found:.2f}")


@pytest.mark.browser
def test_in_a_browser_all_bars_of_a_table_begin_at_one_line_and_nothing_overflows(tmp_path):
    """Control: a bar that is pushed to the right is seen."""
    program = shutil.which("chromium")
    if program is None:
        why = "no Chromium here; on Debian: apt-get install chromium"
        pytest.fail(why) if os.environ.get("CI") else pytest.skip(why)
    file = tmp_path / "all.html"
    file.write_text(page("All", "".join(found._repr_html_() for _, found in shown(tmp_path))), encoding="utf-8")
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=program, args=["--no-sandbox"])
        view = browser.new_page(viewport={"width": 1000, "height": 900})
        view.goto(file.as_uri())
        if folder := os.environ.get("HETDP_SCREENSHOTS"):
            view.screenshot(path=f"{folder}/notebook.png", full_page=True)
        starts, control = view.evaluate(STARTS), view.evaluate(PUSHED)
        wide = view.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        browser.close()
    assert len(starts) >= 3
    assert all(len(places) == 1 for places in starts)
    assert len(control) == 2
    assert wide <= 0


STARTS = """[...document.querySelectorAll('table')]
  .map((t) => [...t.querySelectorAll('span[style*=nowrap]')].map((b) => Math.round(b.getBoundingClientRect().left)))
  .filter((found) => found.length).map((found) => [...new Set(found)])"""
PUSHED = """(() => { const t = document.querySelector('span[style*=nowrap]').closest('table');
  t.querySelector('span[style*=nowrap]').style.marginLeft = '9px';
  return [...new Set([...t.querySelectorAll('span[style*=nowrap]')]
    .map((b) => Math.round(b.firstChild.getBoundingClientRect().left)))]; })()"""
