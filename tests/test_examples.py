"""The examples run from top to bottom and show what their texts say; the pictures show what their captions say."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import warnings
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PICTURES = {
    "health_insurance": {"health_insurance.png"},
    "several_statistics": {"several_statistics.png"},
    "tiers_for_a_product": {"tiers_compared.png", "tiers_frontier.png"},
    "paper_in_ten_minutes": {"paper_figure-1b.png", "paper_figure-2.png", "paper_example-2.png"},
}


def run(name, folder):
    """Run an example in a folder of its own and return what it printed."""
    script = ROOT / "examples" / f"{name}.py"
    done = subprocess.run([sys.executable, script], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    assert {path.name for path in folder.iterdir()} == PICTURES[name]
    return done.stdout


def numbers(pattern, text):
    return [
        tuple(map(float, found)) if isinstance(found, tuple) else float(found) for found in re.findall(pattern, text)
    ]


def test_visits_to_the_doctor(tmp_path):
    """Over 300 releases ADPM errs less than one ε for all, and ε that depends on health gives a biased mean."""
    printed = run("health_insurance", tmp_path)
    off = dict(
        zip(
            ("uniform", "proportional", "threshold", "adpm", "minimax"),
            numbers(r"off by ([\d.]+)", printed),
            strict=True,
        )
    )
    assert off["adpm"] < 0.6 * off["uniform"]
    ((healthy, unwell),) = numbers(r"healthy ([\d.]+), unwell ([\d.]+)", printed)
    ((truth, average),) = numbers(r"true mean ([\d.]+); average of 300 releases ([\d.]+)", printed)
    assert healthy < average < truth < unwell
    errors, pulls = zip(
        *numbers(r"worst-case error ([\d.]+), clamping moves the mean by ([-+][\d.]+)", printed), strict=True
    )
    assert sorted(errors) == list(errors)
    assert sorted(pulls) == list(pulls)


def test_a_survey_about_marriage(tmp_path):
    """ADPM errs less than one ε for all, the median is found, and nobody spends more than their ε on all questions."""
    printed = run("several_statistics", tmp_path)
    off = dict(re.findall(r"^ *(\w+, +\w+): off by ([\d.]+)", printed, re.MULTILINE))
    for name in ("rate_marriage", "yrs_married", "age"):
        uniform, adpm = (float(off[key]) for key in off if key.startswith(name))
        assert adpm < 0.8 * uniform or adpm == 0, name  # a median that many people share is often hit each time
    (median,) = numbers(r"median of the years of marriage: ([\d.]+)", printed)
    assert median == pytest.approx(6, abs=0.01)
    ((low, high),) = numbers(r"guaranteed is its rank: between ([\d.]+) and ([\d.]+)", printed)
    assert low < 0.5 < high
    ((std, low, high),) = numbers(r"deviation of the ages: ([\d.]+), interval ([\d.]+) to ([\d.]+)", printed)
    assert low < 6.85 < high
    assert std == pytest.approx(6.85, abs=1.5)
    together = re.findall(r"^(strict|standard|open)  .* ([\d.]+)$", printed, re.MULTILINE)
    limits = {"strict": 0.05, "standard": 0.2, "open": 1}
    assert together
    assert all(float(spent) <= limits[tier] for tier, spent in together)


def test_tiers_for_a_product(tmp_path):
    """Promising t in place of 1 costs nothing, and a tolerance costs what it says."""
    printed = run("tiers_for_a_product", tmp_path)
    ((before, after),) = numbers(r"error ([\d.]+) before, ([\d.]+) after", printed)
    assert before == after
    for percent, error in numbers(r"(\d+)% more squared error: nobody .*error ([\d.]+)", printed):
        assert error**2 <= before**2 * (1 + percent / 100) * 1.002
    assert "a worst-case error of 1.2 needs one of these" in printed


def test_the_paper_in_ten_minutes(tmp_path):
    printed = run("paper_in_ten_minutes", tmp_path)
    assert "FAILS" not in printed
    assert printed.count("holds") > 10
    for found, theorem_1 in numbers(r"error ([\d.e-]+), Theorem 1 ([\d.e-]+)", printed):
        assert found == theorem_1
    assert "Σ ε(t − ε)₊ = 8.000000" in printed


@pytest.mark.parametrize("name", sorted(PICTURES))
def test_an_example_is_cells_of_text_and_code(name):
    """Percent format: editors and notebooks open it; a text comes first."""
    text = (ROOT / "examples" / f"{name}.py").read_text(encoding="utf-8")
    assert re.match(r'""".*"""\n\n# %% \[markdown\]\n# # ', text)
    assert text.count("\n# %%\n") >= 5


@cache
def pictures():
    spec = importlib.util.spec_from_file_location("make_pictures", ROOT / "docs" / "make_pictures.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_caption_of_the_five_pictures_is_what_the_library_computes():
    page = " ".join((ROOT / "docs" / "idea.md").read_text(encoding="utf-8").split())
    for name, caption in pictures().captions().items():
        assert f"images/{name}.png" in page
        assert caption in page, caption


def test_the_caption_of_the_picture_of_drift_is_what_the_library_computes():
    page = " ".join((ROOT / "docs" / "drift.md").read_text(encoding="utf-8").split())
    assert "images/drift.png" in page
    assert pictures().drift_caption() in page


def test_control_a_caption_with_another_number_is_not_on_the_page():
    page = " ".join((ROOT / "docs" / "idea.md").read_text(encoding="utf-8").split())
    assert pictures().captions()["spent"].replace("0.87", "0.88") not in page


def test_the_table_of_costs_is_what_the_plans_say():
    page = (ROOT / "docs" / "statistics" / "index.md").read_text(encoding="utf-8").splitlines()
    rows = list(pictures().costs().values())
    assert [line for line in page if line in rows] == rows
    assert rows[0].replace("1.11", "1.12") not in page


def test_the_pictures_can_be_made_again_and_are_small(tmp_path):
    pictures().main(tmp_path)
    made = {path.name for path in tmp_path.iterdir()}
    assert made <= {path.name for path in (ROOT / "docs" / "images").iterdir()}
    for path in [*tmp_path.iterdir(), *(ROOT / "docs" / "images").iterdir()]:
        assert path.stat().st_size < 120_000, path.name


def test_the_notebook_runs_from_top_to_bottom_and_its_stored_text_is_that_of_its_cells(tmp_path):
    """Its own cells assert that the plain mean is biased and both repairs are not."""
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    book = nbformat.read(ROOT / "examples" / "privacy_goes_with_the_value.ipynb", as_version=4)
    stored = [bool(cell.outputs) for cell in book.cells if cell.cell_type == "code"]
    assert any("assert abs" in cell.source for cell in book.cells)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # those of the machinery of notebooks
        nbclient.NotebookClient(book, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    cells = [cell for cell in book.cells if cell.cell_type == "code"]
    assert [bool(cell.outputs) for cell in cells] == stored
    assert not [out for cell in cells for out in cell.outputs if out.output_type == "error"]
