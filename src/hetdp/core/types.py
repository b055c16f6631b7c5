"""What public functions take, as types: one name for each kind of argument, in one place.

The names say what a type checker can know. What an argument means stands in the docstring of each function, and what is
wrong with one is said when it is used.
"""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any, Literal, Protocol, Required, TypedDict, TypeVar

from .domain import Interval


class ArrayLike(Protocol):
    """What NumPy can read: an array, a Series of pandas or Polars, a column of PyArrow."""

    def __array__(self) -> Any:
        """Return the cells as an array."""


class FrameLike(Protocol):
    """A table with named columns: of pandas, Polars, PyArrow, DuckDB, Spark, Dask or Ibis."""

    @property
    def columns(self) -> Any:
        """The columns or their names."""


class ConnectionLike(Protocol):
    """An open connection of sqlite3, psycopg or DuckDB."""

    def cursor(self) -> Any:
        """Return a cursor."""


class EngineLike(Protocol):
    """An engine or connection of SQLAlchemy."""

    @property
    def dialect(self) -> Any:
        """The kind of database."""


class HasInterval(Protocol):
    """Bounds that were found privately, as `bounds_for` gives them."""

    @property
    def interval(self) -> Interval:
        """The bounds."""


SourceLike = str | os.PathLike[str] | Sequence[Any] | ArrayLike | FrameLike | ConnectionLike | EngineLike
"""Where the people are: values in memory, the name of a file or several, a frame, a database."""

Amount = float | str | Fraction | Decimal
"""One ε: a number, or a text such as "0.1", "inf" or "public"."""

EpsilonLike = Amount | Sequence[Amount] | Sequence[float] | Sequence[str] | ArrayLike
"""The ε of everybody: a column of a table by its name (a text alone is always that), a number for all, or one each."""

LevelsOfPeople = Mapping[float, int] | Mapping[str, int] | Mapping[float | str, int] | Sequence[float] | ArrayLike
"""How many people chose which ε: {ε: people}, or one ε for each person."""

PersonLike = str | Sequence[str] | ArrayLike
"""Who a row belongs to: the column of ids, or with values in memory the ids."""

BoundsLike = Interval | HasInterval | Sequence[float] | ArrayLike
"""The public interval: (lo, hi), an `Interval`, or bounds that were found privately."""

ManyBounds = BoundsLike | Mapping[str, BoundsLike] | Literal["private"]
"""Bounds, those of each column, or "private": to be found first."""

MissingLike = Literal["estimate", "drop", "midpoint", "none"] | float
"""What a missing value counts as."""

Answered = Literal["estimate", "drop"]
"""Of a ledger: those who answered alone."""

Filled = Literal["midpoint", "none"] | float
"""What a missing value counts as, where it counts."""

TiersLike = Mapping[str, Amount] | Mapping[str, float] | Mapping[str, str]
"""{name: ε} of tiers."""

ByLike = str | Sequence[str] | Mapping[str, Any]
"""Public groups: a column, several, or with values in memory {name: the group of each row}."""

OWN = {
    "bounds": ("BoundsLike", "(0, 60)"),
    "categories": ("Sequence[Any]", "[3, 40]"),
    "edges": ("Sequence[float]", ""),
    "equals": ("str | float", "40"),
    "outer": ("BoundsLike", "(0, 60)"),
    "q": ("float | Sequence[float]", "0.9"),
}
"""The parameters of single statistics, as signatures show them: {name: (type, what an example says)}."""


class Asked(TypedDict, total=False):
    """What `Ledger.mean` takes besides what decides the kind of its answer; `Ledger.ask` says what it means."""

    bounds: Required[BoundsLike]
    person: Required[PersonLike]
    release_id: Required[str]
    value: str | None
    values: Mapping[Any, float] | None
    spend: Amount | None
    share: Amount | None
    share_left: Amount | None
    people: Iterable[str] | Mapping[str, Amount] | str
    public_columns: Sequence[str]
    groups: Sequence[Any] | None
    method: str
    variance: float | None
    drift: float
    target: str | None
    form: Any
    warn: Callable[[str], object] | None


class OfAll(Asked, total=False):
    """The same without groups."""

    by: None


class OfGroups(Asked, total=False):
    """The same of groups."""

    missing: Required[MissingLike]


class Tried(OfGroups, total=False):
    """The same of a dry run."""

    by: ByLike | None


# --- Parameters that several functions share are described once, and shown at each of them

F = TypeVar("F", bound=Callable[..., Any])
_LIST = re.compile(r"(?<=Parameters\n----------\n).*?(?=\n\n|\Z)", re.DOTALL)


def documented_by(*others: Callable[..., Any]) -> Callable[[F], F]:
    """Return a decorator: where a docstring says "As for `read`.", it shows what the other functions say instead.

    What follows that sentence stays. Parameters that the function does not take are left out.
    """

    def filled(function: F) -> F:
        known = {name: text for other in others for name, text in _described(other).items()}
        taken = inspect.signature(function).parameters
        open_ended = any(p.kind is p.VAR_KEYWORD for p in taken.values())
        lines = []
        for name, text in _described(function).items():
            shared, _, more = text.partition("As for `")[2].partition(".")
            elsewhere = text.startswith("As for `") and shared and name in known
            if open_ended or name in taken:
                lines.append(f"{name}\n    {f'{known[name]} {more}'.strip() if elsewhere else text}")
        function.__doc__ = _LIST.sub(lambda _: "\n".join(lines), inspect.getdoc(function) or "", count=1)
        return function

    return filled


def _described(function: Callable[..., Any]) -> dict[str, str]:
    """Return {parameter: what the docstring of a function says of it}, on one line each."""
    listed = _LIST.search(inspect.getdoc(function) or "")
    entries = re.findall(r"^(\w[\w, ]*)\n((?:[ ]+.*\n?)+)", listed[0] if listed else "", re.MULTILINE)
    return {name: " ".join(text.split()) for names, text in entries for name in names.split(", ")}


def show(function: Any, parameters: Sequence[Any], returns: str, says: Mapping[str, str], texts: Sequence[str]) -> None:
    """Give a function that a registry has made its signature and its docstring.

    Parameters
    ----------
    function
        The function; it has its name already.
    parameters, returns
        What it shows to readers and to the declarations for type checkers.
    says
        {parameter: what it means}; of all others "As for `mean`."
    texts
        What it does, what it returns, an example.
    """
    function.__signature__ = inspect.Signature(parameters, return_annotation=returns)
    listed = "\n".join(f"{p.name}\n    {says.get(p.name, 'As for `mean`.')}" for p in parameters)
    does, gives, example = texts
    sections = {"Parameters": listed, "Returns": gives, "Examples": example}
    function.__doc__ = "\n\n".join([does, *(f"{name}\n{'-' * len(name)}\n{text}" for name, text in sections.items())])
