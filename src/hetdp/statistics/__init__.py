"""The statistics. Each is one file here and one line below; `statistic` says what it takes to be one."""

from __future__ import annotations

import inspect
from dataclasses import MISSING, fields
from typing import Any, NamedTuple

from hetdp.core.types import OWN
from hetdp.errors import InputError

from .bounds import Range
from .histogram import Commonest, MeanByGroup, Shares
from .mean import Count, Mean, Proportion, Sum
from .moments import Columns, Spread
from .quantile import Ranks
from .statistic import Statistic

__all__ = ["ALSO", "FIXED", "FORMS", "STATISTICS", "Statistic", "described", "kind_of", "title_of"]

STATISTICS: dict[str, type[Statistic]] = {
    kind.name: kind
    for kind in (Mean, Sum, Proportion, Count, Shares, Ranks, Commonest, Spread, Columns, MeanByGroup, Range)
}
"""Every statistic by its name."""


FORMS = (Mean.name, Columns.name, MeanByGroup.name)
"""Forms of the mean: one function and one command has them all."""


ALSO: dict[str, type[Statistic]] = {"median": Ranks, "std": Spread}
"""Other names: a quantile is the median unless another is asked for; the standard deviation comes with the variance."""


FIXED = {"median": {"q"}}
"""The parameters that another name has settled."""


_TITLES = {"median": "A private median", "std": "A private standard deviation, with mean and variance"}


def title_of(name: str) -> str:
    """Return what an answer is headed with that was asked for by this name."""
    return _TITLES.get(name) or kind_of(name).title


def kind_of(name: str) -> type[Statistic]:
    """Return the statistic that somebody asks for by its name, or by another name that it also has."""
    known = {**STATISTICS, **ALSO}
    if name not in known:
        raise InputError(f"there is no statistic {name[:64]!r}; there are {', '.join(known)}")
    return known[name]


class Described(NamedTuple):
    """What functions show of a statistic that is asked for by one of its names.

    Attributes
    ----------
    title
        Its title, as it stands in a sentence.
    own, says
        The parameters that it has for itself, and {name: what it means}.
    example
        Parameters with which one can ask for it: those that it needs, or else the first.
    answers
        The classes of its answers: what `answer` says that it returns; a total is one number.
    """

    kind: type[Statistic]
    title: str
    own: list[inspect.Parameter]
    says: dict[str, str]
    example: str
    answers: list[str]


def described(name: str) -> Described:
    """Return what functions show of a statistic.

    >>> found = described("histogram")
    >>> found.title, found.example, found.answers
    ('a private histogram', 'categories=[3, 40]', ['Histogram'])
    """
    kind, title = kind_of(name), title_of(name)
    listed = [f for f in fields(kind) if f.name not in {*FIXED.get(name, ()), *(f.name for f in fields(Statistic))}]
    own = [_parameter(field, name, first=field is listed[0]) for field in listed]
    needed = [p.name for p in own if p.default is p.empty] or [own[0].name]
    example = "bounds={'age': (0, 60)}" if kind is Columns else ", ".join(f"{p}={OWN[p][1]}" for p in needed)
    said = str(inspect.signature(kind.answer).return_annotation)
    answers = ["Release"] if kind.whole else said.split(" | ")
    says = {field.name: field.metadata.get("help", "") for field in listed}
    return Described(kind, title[0].lower() + title[1:], own, says, example, answers)


def _parameter(field: Any, name: str, *, first: bool) -> inspect.Parameter:
    shown = "Mapping[str, BoundsLike]" if kind_of(name) is Columns else OWN.get(field.name, (field.type,))[0]
    place = inspect.Parameter.POSITIONAL_OR_KEYWORD if first and name not in FIXED else inspect.Parameter.KEYWORD_ONLY
    if field.default is MISSING or "needed" in field.metadata:
        return inspect.Parameter(field.name, place, annotation=shown)
    optional = shown if field.default is not None or "None" in shown else f"{shown} | None"
    return inspect.Parameter(field.name, place, annotation=optional, default=field.default)
