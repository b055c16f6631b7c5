"""The names and types of a table's columns, which are public: what is wrong with them is an error."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import narwhals.stable.v2 as nw

from hetdp.core.cells import Categories, Reading
from hetdp.errors import InputError

from .columns import told
from .request import Request


def check_columns(frame: Any, request: Request, path: Path | None = None, *, in_engine: bool = False) -> None:
    """Refuse columns that are not there or have the wrong type; names and types are public.

    An engine groups by itself and cannot read Python's objects, nor numbers from text.
    """
    broken = "the columns of the frame cannot be found out; is the query behind it sound?"
    schema, where = told(lambda: dict(nw.from_native(frame).collect_schema()), broken), path or "the frame"
    for name in request.columns:
        if name not in schema:
            raise InputError(f"{where} has no column {name!r}; its columns are {', '.join(map(repr, schema))}")
        alike = [column for column in schema if str(column).casefold() == name.casefold()]
        if in_engine and len(alike) > 1:
            raise InputError(
                f"the columns {alike[0]!r} and {alike[1]!r} differ by case alone; engines take them for one"
            )
    texts = (nw.String, nw.Categorical, nw.Enum, *(() if in_engine else (nw.Object,)))

    def need(fits: Callable[[Any], bool], column: str, name: str | None, kind: str, remedy: str) -> None:
        if name is not None and not fits(schema[name]):
            what = f"the {column} {name!r}{'' if path is None else f' of {path}'}"
            raise InputError(f"{what} must hold {kind} (got {schema[name]}); {remedy}")

    level = request.epsilon if isinstance(request.epsilon, str) else None
    need(lambda k: k.is_numeric() or isinstance(k, texts), "epsilon column", level, "numbers or text", "cast it first")
    need(lambda k: str(k) != "Float16", "epsilon column", level, "more than half precision", "use Float64")
    for name, reading in request.readings:
        fits, kind, remedy = _private(reading, texts, in_engine=in_engine)
        need(fits, "value column", name, kind, remedy)
    for name in request.texts:
        whole = "text or whole numbers"
        need(lambda k: k.is_integer() or isinstance(k, texts), "column", name, whole, "cast it to text first")


def _private(reading: Reading, texts: tuple[Any, ...], *, in_engine: bool) -> tuple[Callable[[Any], bool], str, str]:
    """Return which types a private column may have, in words too, and what to do about another one.

    In memory the type of a column may come from its cells, so categories are looked for in texts and in numbers alike,
    and what fits none is in the last cell. In an engine the type of a column is declared, and there categories are
    compared with texts as texts.
    """
    if in_engine and isinstance(reading, Categories) and not reading.apart:
        if not reading.numeric:
            return lambda k: isinstance(k, texts), "text", "cast it, or list the categories as numbers"
        if not reading.textual:
            return lambda k: k.is_numeric() or isinstance(k, nw.Boolean), "numbers", "or list the categories as text"
    what = "text or numbers" if isinstance(reading, Categories) else "numbers"
    return lambda k: k.is_numeric() or isinstance(k, (nw.Boolean, *texts)), what, "cast it first"
