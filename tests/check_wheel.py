"""Try a built wheel as a stranger would: in an empty environment, every `--help`, and the tutorial word by word.

    python tests/check_wheel.py dist/hetdp-0.1.0-py3-none-any.whl [--libraries FOLDER]

Without `--libraries` pip fetches what the wheel needs; with it the libraries of that folder are used, offline.
"""

from __future__ import annotations

import argparse
import doctest
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).parent.parent
TUTORIAL = ROOT / "docs" / "tutorial.md"
COMMANDS = """
import typer
from hetdp.cli import app

def words(command, name=""):
    yield name
    for child, found in getattr(command, "commands", {}).items():
        yield from words(found, f"{name} {child}".strip())

print("\\n".join(words(typer.main.get_command(app))))
"""


def blocks(page: Path) -> list[tuple[str, str]]:
    """Return the blocks of a page that can be run, in order."""
    return re.findall(r"^```(python|console)\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


class Installed:
    """An environment with the wheel and what it needs, and nothing of this folder."""

    def __init__(self, folder: Path, wheel: Path, libraries: Path | None) -> None:
        venv.create(folder, with_pip=True)
        self.bin = folder / ("Scripts" if os.name == "nt" else "bin")
        self.environment = {name: text for name, text in os.environ.items() if not name.startswith("PYTHON")}
        self.environment["PATH"] = f"{self.bin}{os.pathsep}{os.environ.get('PATH', '')}"
        alone = ["--no-deps", "--no-index"] if libraries else []
        self.run("python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *alone, str(wheel))
        if libraries:
            ask = "import sysconfig; print(sysconfig.get_paths()['purelib'])"
            own = Path(self.run("python", "-c", ask).strip())
            (own / "libraries.pth").write_text(f"{libraries}\n", encoding="utf-8")

    def run(self, program: str, *words: str, cwd: Path | None = None) -> str:
        """Return what a program of this environment prints; raise if it fails."""
        command = [str(self.bin / program), *words]
        done = subprocess.run(command, cwd=cwd, env=self.environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{program} {' '.join(words)} ended with {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout


def try_help(installed: Installed) -> int:
    """Run `--help` of every command; return how many there are."""
    names = installed.run("python", "-c", COMMANDS).split("\n")[:-1]
    for name in names:
        if "Usage" not in installed.run("hetdp", *name.split(), "--help"):
            raise SystemExit(f"hetdp {name} --help says nothing")
    return len(names)


def try_tutorial(installed: Installed, folder: Path, page: Path = TUTORIAL) -> int:
    """Run every block of the tutorial in a folder with the sample file; return how many there are."""
    shutil.copy(ROOT / "examples" / "people.csv", folder)
    found, script = blocks(page), ""
    for language, block in found:
        if language == "python":
            script += block  # later blocks use what earlier ones made
            installed.run("python", "-c", script, cwd=folder)
            continue
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, shown = part.partition("\n")
            program, *words = shlex.split(command)
            if program in ("pip", "cd"):  # that is how the wheel came here, and this folder has the sample file
                continue
            printed = installed.run(program, *words, cwd=folder)
            if shown.strip() and not doctest.OutputChecker().check_output(shown, printed, doctest.ELLIPSIS):
                raise SystemExit(f"{command} printed\n{printed}\nand the tutorial shows\n{shown}")
    return len(found)


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--libraries", type=Path)
    given = parser.parse_args(words)
    with tempfile.TemporaryDirectory() as name:
        installed = Installed(Path(name) / "environment", given.wheel.resolve(), given.libraries)
        work = Path(name) / "work"
        work.mkdir()
        print(f"{try_help(installed)} commands have a --help")
        print(f"{try_tutorial(installed, work)} blocks of the tutorial ran")


if __name__ == "__main__":
    main(sys.argv[1:])
