"""A progress bar for reading, after two seconds, on a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

PATIENCE = 2.0


@contextmanager
def watched(size: int) -> Iterator[Callable[[int, int], None] | None]:
    """Give a function that is told the rows and bytes read so far; None where nobody would see the bar.

    Rows are counted, never what they hold: the bar shows nothing that depends on a value.
    """
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    begun = time.monotonic()
    bar = Progress(
        TextColumn("reading"),
        BarColumn(),
        DownloadColumn(),
        TextColumn("{task.fields[rows]:,} rows"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    task = bar.add_task("reading", total=size or None, rows=0)

    def tell(rows: int, done: int) -> None:
        if not bar.live.is_started and time.monotonic() - begun > PATIENCE:
            bar.start()
        bar.update(task, completed=done, rows=rows)

    try:
        yield tell
    finally:
        bar.stop()
