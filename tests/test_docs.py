"""Everything shown is run: README, documentation pages, the sample file."""

from __future__ import annotations

import doctest
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(page, language):
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_blocks_run(page, tmp_path, monkeypatch):
    """The Python blocks of a page run one after the other, as a reader would type them."""
    monkeypatch.chdir(tmp_path)
    namespace = {}
    for block in blocks(page, "python"):
        exec(compile(block, page.name, "exec"), namespace)  # noqa: S102  our own documentation


def commands(page):
    """Pairs of a command and the output shown below it."""
    for block in blocks(page, "console"):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, shown = part.partition("\n")
            yield command, shown


SLOW = {"audit.md"}


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, id=page.name, marks=pytest.mark.slow if page.name in SLOW else ()) for page in PAGES],
)
def test_commands_run_and_print_what_is_shown(page, tmp_path, monkeypatch, hetdp_command):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    (tmp_path / "people.csv").symlink_to(ROOT / "examples" / "people.csv")
    for command, shown in commands(page):
        words = shlex.split(command)
        if words[0] == "make":
            targets = re.findall(r"^(\w[\w-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE)
            assert words[1] in targets, command
            continue
        assert words[0] == "hetdp", command
        code, out, err = hetdp_command(*words[1:])
        assert code == 0, err
        assert matches(shown, out), f"{command} printed\n{out}"


def matches(shown, printed):
    return not shown.strip() or doctest.OutputChecker().check_output(shown, printed, doctest.ELLIPSIS)


def test_that_a_wrong_output_would_be_noticed():
    assert matches("t = 0.2143\n...\n", "t = 0.2143\nmore\n")
    assert not matches("t = 0.2143\n...\n", "t = 0.2144\nmore\n")


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
