"""Printing and writing."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from hetdp.errors import InputError
from hetdp.files import to_json, write_whole


def show(what: Any) -> None:
    """Print text, JSON or a report."""
    if isinstance(what, str):
        print(what)
    elif isinstance(what, (dict, list)):
        plain = (sys.stdout.encoding or "").lower().replace("-", "") != "utf8"
        print(json.dumps(what, indent=2, ensure_ascii=plain, allow_nan=False))
    else:
        from rich.console import Console

        from hetdp.report.text import text

        console = Console(highlight=False, markup=False)
        if console.is_terminal:
            console.print(what)
        else:
            print(text(what))


def writable(output: Path | None, sources: Sequence[str], *, force: bool) -> None:
    """Raise for all that can be wrong with the output, before any privacy is spent."""
    if output is None:
        return
    if output.exists() and any(Path(name).exists() and output.samefile(name) for name in sources):
        raise InputError(f"{output} is the input file; choose another name for the output")
    if output.exists() and not force:
        raise InputError(f"{output} exists already; choose another name or add --force")
    if output.is_dir() or not output.parent.is_dir():
        raise InputError(f"{output} cannot be written: its folder does not exist, or it is a folder")
    if not os.access(output if output.exists() else output.parent, os.W_OK):
        raise InputError(f"{output} cannot be written by this user")


def picture(path: Path) -> None:
    """Raise unless a picture can be drawn to this file."""
    from hetdp.report.plots import require

    require()
    if path.suffix.lower() not in {".png", ".svg", ".pdf"} or not path.parent.is_dir():
        raise InputError(f"a picture needs a name in an existing folder that ends in .png, .svg or .pdf (got {path})")


def write(output: Path, facts: Any, *, as_json: bool, html: Callable[[], str], text: Callable[[], str]) -> None:
    """Write a report in the form its name asks for; the file appears whole or not at all."""
    suffix = ".json" if as_json else output.suffix.lower()
    body = to_json(facts) if suffix == ".json" else html() if suffix in {".html", ".htm"} else text()
    try:
        _whole(output, body + "\n")
    except OSError as error:
        raise InputError(f"{output} cannot be written: {error.strerror}") from None


def _whole(output: Path, body: str) -> None:
    if output.exists() and not output.is_file():  # a device or a pipe
        output.write_text(body, encoding="utf-8")
        return
    write_whole(output, body, public=True)
