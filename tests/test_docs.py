"""Everything shown is run: README, documentation pages, the sample file."""

from __future__ import annotations

import math
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import hetdp
from hetdp.core.domain import GRID

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(page):
    """Pairs of a language and a block of a page, in their order."""
    text = page.read_text(encoding="utf-8")
    return re.findall(r"^```(python|console)\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def commands(block):
    """Pairs of a command and the output shown below it; a backslash at the end of a line continues the command."""
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, _, shown = part.replace("\\\n", " ").partition("\n")
        yield command, shown


SLOW = {"audit.md"}


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=str(page.relative_to(ROOT)), marks=pytest.mark.slow if page.name in SLOW else ())
        for page in PAGES
    ],
)
def test_a_page_runs_from_top_to_bottom_and_prints_what_it_shows(
    page, tmp_path, monkeypatch, hetdp_command, capsys, tallies
):
    """Python blocks and commands run one after the other, as a reader would type them in the folder of examples.

    In no table that they read does ε depend on the value: a reader who compares an answer with the table would find
    it wrong.
    """
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    for name in ("people.csv", "questions.toml", "tiers.toml"):
        (tmp_path / name).symlink_to(ROOT / "examples" / name)
    namespace = {}
    for language, block in blocks(page):
        if language == "python":
            exec(compile(block, page.name, "exec"), namespace)  # noqa: S102  our own documentation
            capsys.readouterr()
        for command, shown in commands(block) if language == "console" else ():
            runs(command, shown, hetdp_command)
    for tally in tallies:
        assert apart(tally) < 1, f"{page.name} has a table in which ε depends on the value: {tally.levels}"


@pytest.fixture
def tallies(monkeypatch):
    """The exact sums for each level of ε of every table that is read from now on."""
    found, made = [], hetdp.Tally.__post_init__

    def keep(tally):
        made(tally)
        found.append(tally)

    monkeypatch.setattr(hetdp.Tally, "__post_init__", keep)
    return found


def apart(tally):
    """Return by how much a level of ε differs from all people; 1 is five standard errors of its people at worst."""
    used = tally.table.epsilon > 0  # the sums at ε = 0 are 0
    count, total = tally.table.count[used], tally.table.total[used] / GRID
    if not count.sum():
        return 0.0
    differences = np.abs(total / count[:, None] - total.sum(axis=0) / count.sum())
    return float((differences / (2.5 / np.sqrt(count[:, None]))).max())


def test_control_tables_in_which_epsilon_depends_on_the_value_are_noticed(tallies):
    """Two lists that repeat with one period tie ε to the value; with periods of 4 and 3 they are independent."""
    hetdp.mean([0.2, 0.9, 0.4] * 500, epsilon=[0.1, 0.5, math.inf] * 500, bounds=(0, 1))
    hetdp.proportion(["yes", "no", "", "no"] * 500, epsilon=[0.1, 0.5, 1, 2] * 500, equals="yes")
    hetdp.mean([0.2, 0.9, 0.4, 0.5] * 300, epsilon=[0.1, 0.5, math.inf] * 400, bounds=(0, 1))
    tied, other, independent = map(apart, tallies)
    assert tied > 1
    assert other > 1
    assert independent < 1e-9


def runs(command, shown, hetdp_command):
    words = shlex.split(command)
    if words[0] == "make":
        targets = re.findall(r"^(\w[\w-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        assert words[1] in targets, command
        return
    if words[0] == "cd":  # the sample files are in both folders
        assert Path(words[1], "people.csv").exists(), command
        return
    assert words[0] == "hetdp", command
    code, out, err = hetdp_command(*words[1:])
    assert code == 0, err
    assert matches(shown, out), f"{command} printed\n{out}"


def matches(shown, printed):
    """Say whether this was printed; how wide the columns of a table are depends on the numbers that were drawn."""
    words, dots = (re.escape(" ".join(text.split())) for text in (shown, "..."))
    wanted = re.sub(rf"(\\ )?{re.escape(dots)}(\\ )?", ".*", words)
    return not words or re.fullmatch(wanted, " ".join(printed.split())) is not None


def test_that_a_wrong_output_would_be_noticed():
    assert matches("t = 0.2143\n...\n", "t = 0.2143\nmore\n")
    assert not matches("t = 0.2143\n...\n", "t = 0.2144\nmore\n")
    assert matches("A ...  B     C\n", "A    B  C\n")
    assert not matches("A ...  B     C\n", "A    C  B\n")


def test_the_page_for_participants_says_what_explain_says():
    text = (ROOT / "docs" / "epsilon-for-participants.md").read_text(encoding="utf-8")
    found = re.findall(r"^\| ε = ([\d.]+)[^|]*\| (\d+) of 100", text, re.MULTILINE)
    assert [float(epsilon) for epsilon, _ in found] == [0, 0.1, 0.5, 1, 2]
    for epsilon, cases in found:
        assert int(cases) == math.ceil(100 * hetdp.explain(float(epsilon)).guess_from_half), epsilon


@pytest.mark.parametrize("page", ["README.md", "docs/tutorial.md"])
def test_what_a_page_says_of_epsilon_is_what_explain_says(page):
    """The sentence for beginners has the numbers of the page for participants, rounded up too."""
    text = " ".join((ROOT / page).read_text(encoding="utf-8").split())
    found = re.findall(r"ε = ([\d.]+) (?:a fifty-fifty guess about you becomes right )?at most (\d+) times", text)
    assert [float(epsilon) for epsilon, _ in found] == [0.1, 1]
    for epsilon, cases in found:
        assert int(cases) == math.ceil(100 * hetdp.explain(float(epsilon)).guess_from_half), epsilon


def test_every_heading_of_a_report_is_explained():
    """Headings are read from the sources; only those of `hetdp explain`, which explains itself, are not on the page."""
    page = (ROOT / "docs" / "report.md").read_text(encoding="utf-8")
    known = set(re.findall(r"[^|,;]+", "|".join(line for line in page.splitlines() if line.startswith("|"))))
    known = {name.strip() for name in known}
    sources = [*(ROOT / "src/hetdp/report").glob("*.py"), *(ROOT / "src/hetdp/statistics").glob("*.py")]
    lines = r'\("([A-Z][A-Za-z ]+)", (?:f?"|_|[a-z])'
    found = {name for path in sources for name in re.findall(lines, path.read_text(encoding="utf-8"))}
    assert {"Estimate", "Saturation", "Stored", "Wanted", "Combine", "Dry run"} <= found
    assert found - known <= {"Odds", "Guess", "Others", "Pick", "Test"}


def test_links_between_pages_lead_somewhere():
    for page in PAGES:
        for link in re.findall(r"\]\((?!https?:)([^)#]+)[^)]*\)", page.read_text(encoding="utf-8")):
            assert (page.parent / link).exists(), f"{page.name}: {link}"


def test_the_sample_file_is_what_its_script_makes(tmp_path):
    script = tmp_path / "make_people.py"
    script.write_text((ROOT / "examples" / "make_people.py").read_text())
    subprocess.run([sys.executable, script], check=True)
    assert (tmp_path / "people.csv").read_bytes() == (ROOT / "examples" / "people.csv").read_bytes()


def test_the_readme_stays_short_and_starts_with_the_two_commands():
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 150
    assert 0 < text.index("make demo") < text.index("make test") < 400
