"""The command that tests claims about privacy; no data of anybody is read."""

from __future__ import annotations

import html
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from .app import app
from .options import Force, Json, Output, PlanBounds, levels_of
from .output import picture, show, writable, write


@app.command()
def audit(  # noqa: PLR0913  one parameter an option
    *,
    method: Annotated[
        list[str] | None,
        typer.Option("--method", help="A method to audit; repeat. All unless given.", metavar="NAME"),
    ] = None,
    tier: Annotated[
        list[str] | None,
        typer.Option("--tier", help="A tier of invented people; repeat.", metavar="NAME=ε:PEOPLE"),
    ] = None,
    engine: Annotated[
        list[str] | None,
        typer.Option("--engine", help="A way in, as csv; repeat. All that are installed unless given.", metavar="NAME"),
    ] = None,
    bounds: PlanBounds = (-0.5, 0.5),
    draws: Annotated[int, typer.Option("--draws", help="Releases of each dataset.", min=100)] = 1_500,
    plot: Annotated[Path | None, typer.Option("--plot", help="Write a picture: .png, .svg or .pdf.")] = None,
    as_json: Json = False,
    output: Output = None,
    force: Force = False,
) -> None:
    """Test the privacy claims of this installation on invented people (about a minute).

    For every method and tier: the exact check, the law of the noise, and what many releases show about ε. Exit code 1
    if a claim is broken.
    """
    if plot is not None:
        picture(plot)
        writable(plot, [], force=force)
    writable(output, [], force=force)
    from hetdp.checks.audit import audit as run
    from hetdp.report import text

    with _bar() as tell:
        levels = levels_of(tier) if tier else None
        found = run(levels, methods=method, engines=engine, bounds=bounds, draws=draws, tell=tell)
    if plot is not None:
        found.plot(plot)
    if output is None:
        show(found.to_dict() if as_json else found.body())
    else:
        shown = f"<pre>{html.escape(found.report())}</pre>"
        write(
            output,
            found.to_dict(),
            as_json=as_json,
            html=lambda: text.page("An audit of privacy claims", shown),
            text=found.report,
        )
    if not found.holds:
        raise typer.Exit(1)


@contextmanager
def _bar() -> Iterator[Callable[[str, int, int], None] | None]:
    """Give a function that shows progress; None where nobody would see the bar."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description:12}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("audit", total=None)
        yield lambda what, done, total: bar.update(task, description=what, completed=done, total=total)
