"""Newline-delimited JSON: every line is one object and one person.

A line is read in full by a lenient parser: NaN and Infinity, control characters in texts and numbers of any size are
accepted. A line that it refuses is cut into members by hand, at commas outside texts and brackets, or outside texts
alone where brackets do not match, so that a private value that is no JSON (`1,5`, a word, `[redacted`, brackets nested
deeper than a parser goes) is unreadable and no more. What is left is refused by the number of its line: without its
braces or with an open quote a line does not tell where its cells are. A private value that was written by any JSON
library cannot bring that about, nor give its line a second key.

The keys of a line are its layout, which is public: a line without one that is asked for is refused by its number, so
that a misspelt name does not turn everybody into a missing value. Only where it was said what a missing value counts as
may a line lack the key of a value.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from hetdp.core.cells import Categories, Words
from hetdp.core.domain import EMPTY, value_of
from hetdp.errors import InputError

from .columns import batch_of
from .request import Batch, Request

if TYPE_CHECKING:
    from .files import Text

_UNREADABLE = "{}"  # what stands for a value that is neither a number nor a text: it is there, and no number
_PART = re.compile(r'"(?:[^"\\]|\\.)*"|[^"\[\]{},]+|.', re.DOTALL)
_MEMBER = re.compile(r'\s*("(?:[^"\\]|\\.)*")\s*:(.*)', re.DOTALL)
_WHOLE = re.compile("-?[0-9]+")
_LONG = 300  # digits of a number that no category has

Members = tuple[tuple[str, Any], ...]


class _Number(str):
    """The text of a number."""

    __slots__ = ()


_JSON = json.JSONDecoder(
    object_pairs_hook=tuple, parse_float=_Number, parse_int=_Number, parse_constant=_Number, strict=False
)


def batches(text: Text, request: Request, *, owner: bool) -> Iterator[Batch]:
    """Yield the people of a file of JSON lines, some megabytes at a time."""
    schema = dict.fromkeys(request.columns, pl.String)
    for block, first in text.blocks():
        people, odd, lines = list[list[str | None]](), list[bool](), list[int]()
        texts = [
            (i, name, kind)
            for i, (name, reading) in enumerate(request.readings)
            if (kind := reading.categories if isinstance(reading, Words) else reading) and kind.textual
        ]
        places: dict[int, list[int]] = {i: [] for i, *_ in texts}
        contents = block.decode("utf-8-sig" if first == 1 else "utf-8", "replace").split("\n")[:-1]
        for line, content in enumerate(contents, first):
            if content.strip():
                where = f"line {line} of {text.path}"
                members = _parsed(content)
                odd.append(not isinstance(members, tuple))
                members = _cut(content) if odd[-1] else members
                people.append(_cells(members, request, where))
                lines.append(line)
                for i, name, kind in texts:
                    places[i].append(_place(dict(members or ()).get(name), kind))
        frame, known = pl.DataFrame(people, schema=schema, orient="row"), {i: np.array(p) for i, p in places.items()}
        yield batch_of(frame, lines, request, path=text.path, odd=np.array(odd, np.bool_), owner=owner, known=known)


def check(text: Text, request: Request) -> None:
    """Raise if the first line lacks a key, as every line needs it. Keys are public; no cell is looked at.

    If private columns are asked for, nothing is read at all: a ledger checks a source before it charges.
    """
    if request.private:
        return
    block, _ = next(text.blocks(), (b"", 1))
    line = block.decode("utf-8-sig", "replace").lstrip().partition("\n")[0]
    parsed = _parsed(line)
    members = parsed if isinstance(parsed, tuple) else _cut(line)  # as rows are read: no value decides
    for name in request.columns if members is not None else ():
        if name not in dict(members or ()):
            raise InputError(f"the first line of {text.path} has no key {name!r}; every line needs it")


def _cells(members: Members | None, request: Request, where: str) -> list[str | None]:
    """Return the cells asked for, as text; None where there is none."""
    if members is None:
        raise InputError(f"{where} is not one JSON object; each person needs one on a line")
    found = dict(members)
    twice = [key for key, _ in members] if len(found) < len(members) else []
    cells: list[str | None] = []
    for name in request.columns:
        if twice.count(name) > 1:
            raise InputError(f"{where} has the key {name!r} twice; it must be there once")
        if name not in found and (request.promised is not False or name not in request.private):
            raise InputError(f"{where} has no key {name!r}; every line needs it, with null where it is missing")
        cell = found.get(name)
        if cell is None:
            cells.append(None)
        elif not isinstance(cell, (str, bool)) and isinstance(dict(request.readings).get(name), Categories):
            cells.append(None)  # a list or an object is no answer, as in a list of Python
        elif name in {*request.private, request.epsilon}:
            cells.append(_text(cell, request, private=name in request.private))
        elif isinstance(cell, str) and (not isinstance(cell, _Number) or _WHOLE.fullmatch(cell)):
            cells.append(_valid(cell))
        else:
            raise InputError(f"{name!r} must be text or a whole number ({where}); write other ids as text")
    return cells


def _text(cell: Any, request: Request, *, private: bool) -> str:
    """Return a value or an ε as text that is written as the form says: JSON's own numbers have a decimal point."""
    if private and isinstance(cell, bool):
        return str(cell).lower()
    if private and isinstance(cell, str) and not cell.strip(EMPTY):
        return ""
    if not isinstance(cell, str) or (private and not cell.isascii()):
        return _UNREADABLE
    if isinstance(cell, _Number) and (private or not request.tiers):
        return cell.replace(".", request.form.decimal)
    return _valid(cell)


def _place(cell: Any, categories: Categories) -> int:
    """Return the place of a cell among categories that are texts: JSON's own numbers are none, as in a list."""
    if not isinstance(cell, _Number):
        return categories.index(cell)
    return categories.index(int(cell) if _WHOLE.fullmatch(cell) and len(cell) < _LONG else value_of(cell))


def _valid(text: str) -> str:
    """Return text that can be stored: half a surrogate pair, which JSON can hold, becomes a question mark."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _parsed(text: str) -> Any:
    """Return what a JSON text says, an object as a tuple; if it is no JSON, a list: neither an object nor readable."""
    try:
        return _JSON.decode(text)
    except (ValueError, RecursionError):
        return []


def _cut(text: str) -> Members | None:
    """Return the members of an object that is not quite JSON; None if it does not tell where they are."""
    text = text.strip()
    if len(text) < 2 or text[0] != "{" or text[-1] != "}":
        return None
    pieces = _pieces(text[1:-1], nested=True) or _pieces(text[1:-1], nested=False)
    if not pieces:
        return None
    members: list[tuple[str, list[str]]] = []
    for piece in pieces:
        member = _MEMBER.fullmatch(piece)
        if member is not None:
            members.append((member[1], [member[2]]))
        elif members:  # not a member: more of the one before
            members[-1][1].append(piece)
        else:
            return None
    try:
        return tuple((json.loads(key, strict=False), _parsed(",".join(raw))) for key, raw in members)
    except ValueError:
        return None


def _pieces(inner: str, *, nested: bool) -> list[str]:
    """Return what stands between commas outside texts; nothing if a text is left open.

    If `nested`, commas between brackets do not count either, and there is nothing if brackets do not match.
    """
    pieces, depth, start = list[str](), 0, 0
    for found in _PART.finditer(inner):
        part = found[0]
        depth += nested * ((part in "[{") - (part in "]}"))
        if depth < 0 or part == '"':
            return []
        if part == "," and not depth:
            pieces.append(inner[start : found.start()])
            start = found.end()
    return [] if depth else [*pieces, inner[start:]]
