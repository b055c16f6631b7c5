"""The package that others install: what is in it, what it says about itself, and that it works on its own."""

from __future__ import annotations

import re
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

import check_wheel

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The wheel and the source archive, built from a clean checkout of what is under version control."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,), (archive,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return wheel, archive


@pytest.mark.slow
def test_the_wheel_holds_the_package_alone_with_its_types_pages_and_licence(built):
    names = zipfile.ZipFile(built[0]).namelist()
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"hetdp"}
    assert "hetdp/py.typed" in names
    assert any(name.startswith("hetdp/server/templates/") for name in names)
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert not [name for name in names if "__pycache__" in name or name.endswith(".pyc")]


@pytest.mark.slow
def test_the_source_archive_holds_what_is_needed_and_no_litter(built):
    with tarfile.open(built[1]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    needed = {"pyproject.toml", "README.md", "LICENSE", "tests/conftest.py", "docs/conf.py", "examples/people.csv"}
    needed |= {".github/workflows/ci.yml", ".dockerignore", "deploy/nginx.conf"}  # tests read them
    assert needed <= names
    litter = re.compile(r"(^|/)(\.venv|build|dist|generated|__pycache__|\.\w+_cache|\.hypothesis|\.ci)(/|$)")
    assert [name for name in sorted(names) if litter.search(name)] == []


@pytest.mark.slow
def test_the_metadata_is_in_order(built):
    done = subprocess.run(
        [sys.executable, "-m", "twine", "check", "--strict", *built], capture_output=True, check=False
    )
    assert done.returncode == 0, done.stdout.decode()


@pytest.mark.slow
def test_the_wheel_and_the_tutorial_work_in_an_environment_of_their_own(built, capsys):
    check_wheel.main([str(built[0]), "--libraries", sysconfig.get_paths()["purelib"]])
    assert re.search(r"\d\d commands have a --help\n\d+ blocks of the tutorial ran", capsys.readouterr().out)


@pytest.mark.slow
def test_control_a_tutorial_that_shows_something_else_is_noticed(built, tmp_path):
    libraries = Path(sysconfig.get_paths()["purelib"])
    installed = check_wheel.Installed(tmp_path / "environment", built[0], libraries)
    page = tmp_path / "page.md"
    page.write_text("```console\n$ hetdp --version\nhetdp 99\n```\n")
    with pytest.raises(SystemExit, match="and the tutorial shows"):
        check_wheel.try_tutorial(installed, tmp_path, page)


def test_the_lock_file_has_versions_and_hashes_and_names_no_place_to_fetch_them_from():
    text = (ROOT / "locked.txt").read_text(encoding="utf-8")
    assert not re.search(r"://|--(extra-)?index-url|--find-links|@ ?file", text)
    names = [re.split(r"[\[<>=; ]", need)[0].replace(".", "-") for need in PROJECT["dependencies"]]
    for name in names:
        assert re.search(rf"^{re.escape(name)}==\S+.*\\\n    --hash=sha256:", text, re.MULTILINE), name


def test_every_extra_is_in_the_readme_and_in_the_tutorial():
    for page in ("README.md", "docs/tutorial.md"):
        text = (ROOT / page).read_text(encoding="utf-8")
        assert [name for name in PROJECT["optional-dependencies"] if f"`{name}`" not in text] == [], page


def test_the_workflow_tests_the_oldest_and_the_newest_python_of_the_metadata_on_three_systems():
    text = (ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")
    said = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
    for word in (said[0], said[-1], "ubuntu-latest", "macos-latest", "windows-latest", "test-lowest", "hetdp doctor"):
        assert word in text, word
