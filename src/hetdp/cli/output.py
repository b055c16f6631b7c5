"""Printing, writing and progress bars."""

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

from hetdp.errors import InputError
from hetdp.files import jsonable, to_json, write_whole
from hetdp.report.text import WIDTH, Parts, page, text, to_html

PATIENCE = 2.0
"""A progress bar appears after so many seconds."""


def show(what: str | dict[str, Any] | list[Any]) -> None:
    """Print text or JSON."""
    if isinstance(what, str):
        print(what)
        return
    plain = (sys.stdout.encoding or "").lower().replace("-", "") != "utf8"
    print(json.dumps(jsonable(what), indent=2, ensure_ascii=plain, allow_nan=False))


def show_parts(parts: Parts) -> None:
    """Print a report, as wide as the terminal."""
    print(text(parts, shutil.get_terminal_size((WIDTH, 24)).columns if sys.stdout.isatty() else WIDTH))


def deliver(
    output: Path | None,
    *,
    as_json: bool,
    facts: Callable[[], dict[str, Any]],
    parts: Callable[[], Parts],
    title: str,
) -> None:
    """Print a result, or write it as its file's name asks: .json, .html or text. Only that form is computed."""
    if output is None and as_json:
        show(facts())
    elif output is None:
        show_parts(parts())
    elif as_json or output.suffix.lower() == ".json":
        _write(output, to_json(facts()))
    elif output.suffix.lower() in {".html", ".htm"}:
        _write(output, page(title, to_html(parts())))
    else:
        _write(output, text(parts()))


def _write(output: Path, content: str) -> None:
    try:
        if output.exists() and not output.is_file():  # a device or a pipe
            output.write_text(content + "\n", encoding="utf-8")
        else:
            write_whole(output, content + "\n", public=True)
    except OSError as error:
        raise InputError(f"{output} cannot be written: {error.strerror}") from None


def writable(output: Path | None, sources: Sequence[str], *, force: bool, picture: bool = False) -> None:
    """Raise for everything that can be wrong with the output, before any privacy is spent."""
    if output is None:
        return
    if picture:
        from hetdp.report.plots import require

        require()
        if output.suffix.lower() not in {".png", ".svg", ".pdf"}:
            raise InputError(f"the name of a picture ends in .png, .svg or .pdf (got {output})")
    if output.exists() and any(Path(name).exists() and output.samefile(name) for name in sources):
        raise InputError(f"{output} is the input file; choose another name for the output")
    if output.exists() and not force:
        raise InputError(f"{output} exists already; choose another name or add --force")
    if output.is_dir() or not output.parent.is_dir():
        raise InputError(f"{output} cannot be written: its folder does not exist, or it is a folder")
    if not os.access(output if output.exists() else output.parent, os.W_OK):
        raise InputError(f"{output} cannot be written by this user")


@contextmanager
def progress(what: str, total: int = 0) -> Iterator[Callable[..., None]]:
    """Give a function that updates a progress bar: rows are counted, never what they hold.

    The bar appears on a terminal, when the work takes a while; elsewhere the function does nothing.
    """
    if not sys.stderr.isatty():
        yield lambda **_: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    words = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[said]}"), TimeRemainingColumn())
    begun, bar = time.monotonic(), Progress(*words, console=Console(stderr=True), transient=True)
    task = bar.add_task(what, total=total or None, said="")

    def update(**now: Any) -> None:
        if not bar.live.is_started and time.monotonic() - begun > PATIENCE:
            bar.start()
        bar.update(task, **now)

    try:
        yield update
    finally:
        bar.stop()
