"""Configuration of the documentation."""

import subprocess
import sys
from pathlib import Path

import hetdp

project = "hetdp"
author = "The hetdp authors"
release = hetdp.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
html_theme = "furo"
html_title = f"hetdp {release}"
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 2
autodoc_typehints = "none"
exclude_patterns = ["build"]


def _command_help(command: str) -> str:
    words = [sys.executable, "-m", "hetdp", *([command] if command else []), "--help"]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.replace("python -m hetdp", "hetdp")


def _write_commands(_app: object) -> None:
    """Write the help of every command, so that the reference cannot differ from the program."""
    from hetdp._cli import app

    names = ["", *(str(command.callback.__name__) for command in app.registered_commands if command.callback)]
    folder = Path(__file__).parent / "generated"
    folder.mkdir(exist_ok=True)
    parts = [f"$ hetdp {name} --help\n\n{_command_help(name)}".replace("  --help", " --help") for name in names]
    (folder / "commands.txt").write_text("\n\n".join(parts), encoding="utf-8")


def setup(app: object) -> None:
    """Have the command reference written before the pages are read."""
    app.connect("builder-inited", _write_commands)  # type: ignore[attr-defined]
