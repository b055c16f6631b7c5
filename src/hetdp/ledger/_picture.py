"""A picture of the budgets: what every tier had left after each release."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from hetdp.errors import InputError
from hetdp.report import plots

from ._amounts import UNLIMITED, in_epsilon
from ._book import Book, events

if TYPE_CHECKING:
    from sqlalchemy import Connection

_MOST = 8
_SHOWN_NAMES = 24

Curve = tuple[list[float], list[float]]
"""Of one tier, after each release: what is left to those who have least, and to those who have most, in ε."""


def curves(connection: Connection) -> tuple[list[str], dict[int, Curve], Book]:
    """Return the releases, for each budget its curve, and the book at the end; the largest tiers only."""
    book, books, releases = Book(), [Book()], [""]
    for event in events(connection):
        book = book.after(event)
        if event.kind == "charge":
            releases.append(str(event.release))
            books.append(book)
        else:
            books[-1] = book
    sizes: dict[int, int] = {}
    for now in book.cohorts.values():
        if 0 < now.asked < UNLIMITED:
            sizes[now.asked] = sizes.get(now.asked, 0) + now.people
    tiers = sorted(sorted(sizes, key=lambda asked: -sizes[asked])[:_MOST])
    return releases, {asked: _curve(books, asked) for asked in tiers}, book


def _curve(books: list[Book], asked: int) -> Curve:
    least, most = [], []
    for book in books:
        left = [now.left for now in book.cohorts.values() if now.asked == asked and now.people]
        least.append(in_epsilon(min(left)) if left else float("nan"))
        most.append(in_epsilon(max(left)) if left else float("nan"))
    return least, most


def draw(path: str | os.PathLike[str], read: Callable[[], tuple[list[str], dict[int, Curve], Book]]) -> None:
    """Write the picture of what `read` gives, which are curves, to a file."""
    target = Path(path)
    if target.suffix.lower() not in {".png", ".svg", ".pdf"} or not target.parent.is_dir():
        raise InputError(f"a picture needs a name in an existing folder that ends in .png, .svg or .pdf (got {target})")
    releases, found, book = read()
    if not found:
        raise InputError("nobody with a budget is enrolled; there is nothing to draw yet")
    drawn, (axes,) = plots.figure(width=6.4)
    places = list(range(len(releases)))
    for (asked, (least, most)), colour in zip(found.items(), plots.COLOURS.values(), strict=False):
        name = book.names.get(asked, f"ε = {in_epsilon(asked):.4g}")
        axes.step(places, most, where="post", color=colour, label=name)
        if least != most:
            axes.fill_between(places, least, most, step="post", color=colour, alpha=0.2, linewidth=0)
    axes.set(ylabel="ε left of the lifetime budget", ylim=(0, None))
    few = max(1, -(-len(releases) // _SHOWN_NAMES))
    axes.set_xticks(places[::few], ["start", *releases[1:]][::few], rotation=45, ha="right")
    plots.beside(axes)
    plots.save(drawn, target)
