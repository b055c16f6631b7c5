"""Printing, writing and progress."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hetdp.core.domain import jsonable, to_json
from hetdp.errors import InputError
from hetdp.files import write_whole
from hetdp.report import WIDTH, Parts, page, to_html, to_text

_PAGES = {".html", ".htm"}
PATIENCE = 2.0
"""Progress is shown after so many seconds."""


def show(what: str | dict[str, Any] | list[Any]) -> None:
    """Print text or JSON."""
    if isinstance(what, str):
        print(what)
        return
    plain = (sys.stdout.encoding or "").lower().replace("-", "") != "utf8"
    print(json.dumps(jsonable(what), indent=2, ensure_ascii=plain, allow_nan=False))


def show_parts(parts: Parts) -> None:
    """Print a report, as wide as the terminal."""
    print(to_text(parts, shutil.get_terminal_size((WIDTH, 24)).columns if sys.stdout.isatty() else WIDTH))


def deliver(
    output: Path | None, *, as_json: bool, facts: Callable[[], dict[str, Any]], parts: Callable[[], Parts], title: str
) -> None:
    """Print a result, or write it as its file's name asks: .json, .html or text. Only that form is computed."""
    if output is None and as_json:
        show(facts())
    elif output is None:
        show_parts(parts())
    elif as_json or output.suffix.lower() == ".json":
        _write(output, to_json(facts()))
    elif output.suffix.lower() in _PAGES:
        _write(output, page(title, to_html(parts())))
    else:
        _write(output, to_text(parts()))


def _write(output: Path, content: str) -> None:
    try:
        if output.exists() and not output.is_file():  # a device or a pipe
            output.write_text(content + "\n", encoding="utf-8")
        else:
            write_whole(output, content + "\n", public=True)
    except OSError as error:
        raise InputError(f"{output} cannot be written: {error.strerror}") from None


def writable(output: Path | None, sources: Sequence[str], *, force: bool, as_json: bool = False) -> None:
    """Raise for everything that can be wrong with the output, before any privacy is spent."""
    if output is None:
        return
    if as_json and output.suffix.lower() in _PAGES:
        raise InputError(
            f"--json writes JSON and {output} is the name of a page; leave out --json, or name a .json file"
        )
    if output.exists() and any(Path(name).exists() and output.samefile(name) for name in sources):
        raise InputError(f"{output} is the input file; choose another name for the output")
    if output.exists() and not force:
        raise InputError(f"{output} exists already; choose another name or add --force")
    if output.is_dir() or not output.parent.is_dir():
        raise InputError(f"{output} cannot be written: its folder does not exist, or it is a folder")
    if not os.access(output if output.exists() else output.parent, os.W_OK):
        raise InputError(f"{output} cannot be written by this user")


@contextmanager
def progress(what: str) -> Iterator[Callable[[str, int, int], None]]:
    """Give a function that says how far the work is, from words, what is done and the total (0 if nobody knows it).

    It speaks on a terminal alone, once the work takes a while. Rows are counted, what they hold is never shown.
    """
    begun, shown = time.monotonic(), False

    def tell(said: str, done: int, total: int) -> None:
        nonlocal shown
        seconds = time.monotonic() - begun
        if sys.stderr.isatty() and seconds >= PATIENCE:
            shown = True
            left = f", {done / total:.0%}, about {seconds * (total / done - 1):.0f} s left" if done and total else ""
            print(f"\r{what}: {said}{left}\033[K", end="", file=sys.stderr, flush=True)  # in place of the line before

    try:
        yield tell
    finally:
        if shown:
            print("\r\033[K", end="", file=sys.stderr, flush=True)
