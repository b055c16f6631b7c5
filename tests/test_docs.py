"""Everything shown is run: README, documentation pages, the sample file."""

from __future__ import annotations

import doctest
import math
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import hetdp

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(page):
    """Pairs of a language and a block of a page, in their order."""
    text = page.read_text(encoding="utf-8")
    return re.findall(r"^```(python|console)\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def commands(block):
    """Pairs of a command and the output shown below it."""
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, _, shown = part.partition("\n")
        yield command, shown


SLOW = {"audit.md"}


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=str(page.relative_to(ROOT)), marks=pytest.mark.slow if page.name in SLOW else ())
        for page in PAGES
    ],
)
def test_a_page_runs_from_top_to_bottom_and_prints_what_it_shows(page, tmp_path, monkeypatch, hetdp_command, capsys):
    """Python blocks and commands run one after the other, as a reader would type them in the folder of examples."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    for name in ("people.csv", "questions.toml"):
        (tmp_path / name).symlink_to(ROOT / "examples" / name)
    namespace = {}
    for language, block in blocks(page):
        if language == "python":
            exec(compile(block, page.name, "exec"), namespace)  # noqa: S102  our own documentation
            capsys.readouterr()
        for command, shown in commands(block) if language == "console" else ():
            runs(command, shown, hetdp_command)


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
    return not shown.strip() or doctest.OutputChecker().check_output(shown, printed, doctest.ELLIPSIS)


def test_that_a_wrong_output_would_be_noticed():
    assert matches("t = 0.2143\n...\n", "t = 0.2143\nmore\n")
    assert not matches("t = 0.2143\n...\n", "t = 0.2144\nmore\n")


def test_the_page_for_participants_says_what_explain_says():
    text = (ROOT / "docs" / "epsilon-for-participants.md").read_text(encoding="utf-8")
    found = re.findall(r"^\| ε = ([\d.]+)[^|]*\| (\d+) of 100", text, re.MULTILINE)
    assert [float(epsilon) for epsilon, _ in found] == [0, 0.1, 0.5, 1, 2]
    for epsilon, cases in found:
        assert int(cases) == math.ceil(100 * hetdp.explain(float(epsilon)).guess_from_half), epsilon


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
