"""Writes what type checkers see of `hetdp`: src/hetdp/__init__.pyi, from the signatures of the functions themselves.

The functions of the statistics are made by a registry, which a checker cannot run, and what they return depends on what
is asked. What `release` returns belongs to the statistic of its plan, which a checker does not know, so it is declared
as Any: `.estimate` of a mean is allowed, as is any other attribute.

python tests/declarations.py     writes the file again
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import hetdp
from hetdp.questions import VERBS
from hetdp.statistics import ALSO, STATISTICS, described

FILE = Path(__file__).parents[1] / "src" / "hetdp" / "__init__.pyi"
HEAD = '''"""What type checkers see of this package. Made by tests/declarations.py: change the functions, and run it."""

# ruff: noqa
# fmt: off

from collections.abc import Mapping, Sequence
from typing import Any, Literal, overload

import numpy as np

from .core.types import (
    ArrayLike, BoundsLike, ByLike, EpsilonLike, Filled, LevelsOfPeople, ManyBounds, MissingLike, PersonLike,
    SourceLike, TiersLike,
)
from .paper.family import Distribution
from .sources import Rows
'''
ONE = {"bounds": 'BoundsLike | Literal["private"]', "value": "str | None = None"}
MEANS = {"value": "str | Sequence[str] | None = None", "bounds": "Mapping[str, BoundsLike]"}
NO_GROUP = {"private_group": "None = None", "categories": "None = None"}
GROUPED, ALL = {"by": "ByLike"}, {"by": "None = None"}
ONE_NUMBER = (
    ({"missing": 'Filled | Literal["drop"] | None = None'}, "Release"),
    ({"missing": 'Literal["estimate"]'}, "AnsweredMean"),
)

Form = tuple[Mapping[str, str], str]
"""What parameters have to be, and what is returned then."""


def forms(name: str) -> list[Form]:
    """Return in which forms a function can be called, each with its answer."""
    if name == "bounds_for":
        return [({}, "Bounds")]
    if name == "release":
        return [({}, "Any")]
    if name == "simulate":
        return [({"method": "str"}, "Simulation"), ({"method": "list[str] | tuple[str, ...]"}, "dict[str, Simulation]")]
    if name == "ask":
        return [(ALL, "Answers"), (GROUPED, "Groups")]
    if name == "mean":
        private = {"private_group": "str", "categories": "Sequence[Any]"}
        single = [(ALL | ONE | NO_GROUP | said, kind) for said, kind in ONE_NUMBER]
        several = [(ALL | MEANS | NO_GROUP, "Means"), (ALL | ONE | private, "GroupMeans")]
        return [*single, *several, (GROUPED, "Groups")]
    answers = described(name).answers
    one = [(ALL, answers[0])] if len(answers) == 1 else [(ALL | said, kind) for said, kind in ONE_NUMBER]
    return [*one, (GROUPED, "Groups")]


def overloads(name: str, function: Callable[..., Any], *, method: bool = False) -> list[str]:
    """Return the declarations of a function in all its forms."""
    shown = forms("ask" if method else name)
    over = "@overload\n" if len(shown) > 1 else ""
    return [over + declared(name, function, form, method=method) for form in shown]


def declared(name: str, function: Callable[..., Any], asked: Form | None = None, *, method: bool = False) -> str:
    """Return the declaration of a function, in one form."""
    signature = inspect.signature(function)
    changed, returns = asked or ({}, signature.return_annotation)
    shown, starred = ["self"] if method else [], False
    for p in signature.parameters.values():
        if p.kind is p.VAR_KEYWORD:  # it only refuses
            continue
        if p.kind is p.KEYWORD_ONLY and not starred:
            shown, starred = [*shown, "*"], True
        default = "" if p.default is p.empty else f" = {p.default!r}"
        shown.append(f"{p.name}: {changed.get(p.name, p.annotation + default)}")
    kept = (part.replace(" ", "\0") for part in shown)  # a parameter stands on one line
    lines = [line.replace("\0", " ") for line in textwrap.wrap(", ".join(kept), 112, break_long_words=False)]
    return f"def {name}(\n" + textwrap.indent("\n".join(lines), "    ") + f"\n) -> {returns}: ..."


def listed() -> Iterator[str]:
    """Yield the parts of the file."""
    yield HEAD
    made = {"ask", "bounds_for", "mean", "release", "simulate", *VERBS}
    for name in sorted({*hetdp.__all__} - made):
        found = getattr(hetdp, name)
        where = "" if inspect.ismodule(found) else found.__module__.removeprefix("hetdp")
        yield f"from {where or '.'} import {name} as {name}"
    yield "\n__version__: str\n"
    for name in sorted(made - {"ask"}):
        yield "\n".join(overloads(name, getattr(hetdp, name))) + "\n"
    yield "class _Ask:"
    called = overloads("__call__", hetdp.ask, method=True)
    asked = [declared(name, getattr(hetdp.ask, name), method=True) for name in (*STATISTICS, *ALSO)]
    yield textwrap.indent("\n".join([*called, *asked]), "    ")
    yield "\n\nask: _Ask"


def text() -> str:
    """Return the file as it should be."""
    return "\n".join(listed()) + "\n"


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
