"""Any bytes as one private cell: nothing changes but that person's code, and no message changes at all.

The first byte of an input picks a frame: a small valid table with a hole where one value stands, or one in which a
public cell is bad, so that reading it raises. The rest is the cell. What the conditions on the page of limits leave out
is left out here: a line break in a delimited cell, and a value in JSON lines that no JSON library writes and that has
quotes.

A cell of a delimited file that changes the layout of its line is refused by the number of that line, in words that
depend on nothing else; between quotes the same cell is a value like any other.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import hetdp
from hetdp.core.domain import GRID, Interval
from hetdp.sources import Source, counted, read_groups
from hetdp.statistics.mean import Mean

from .oracle import FOLDER, said, sound, written

HOLE = "§"
USUAL = b"0.5"
UNIT = Interval.of((0, 1))


@dataclass(frozen=True)
class Frame:
    """A table of four people of whom the third is asked for.

    Attributes
    ----------
    bad
        What is wrong with its public cells; "" if nothing is.
    """

    suffix: str
    text: str
    bad: str = ""
    epsilon: Any = "e"
    options: dict[str, str] = field(default_factory=dict, hash=False)

    @property
    def delimiter(self) -> str:
        """What is between its cells."""
        return "\t" if self.suffix == "tsv" else self.options.get("delimiter", ",")

    @property
    def line(self) -> int:
        """The line of the hole."""
        return self.text[: self.text.index(HOLE)].count("\n") + 1

    def ways(self, path: Path) -> dict[str, Callable[[], Any]]:
        """Return the ways to read it that its columns allow, by name."""
        ask = {"value": "x", "epsilon": self.epsilon, **self.options}
        ways: dict[str, Callable[[], Any]] = {
            "read": lambda: hetdp.read(path, bounds=(0, 1), missing="midpoint", **ask)
        }
        if not self.options and self.epsilon == "e":
            ways["levels"] = lambda: counted(Source.of(path, value="x", epsilon="e", counts_only=True))
        if '"id"' in self.text or self.text.startswith("id"):
            ways["user"] = lambda: hetdp.read(
                path, bounds=(0, 1), missing="midpoint", person="id", rows="average", **ask
            )
            ways["groups"] = lambda: read_groups(Source.of(path, value="x", epsilon="e", by="g"), Mean(UNIT))
        return ways


LINES = "a,0.1,1,u\nb,0.2,1,v\nc,§,1,u\nd,0.4,inf,v\n"
OBJECTS = (
    '{"id":"a","x":0.1,"e":1,"g":"u"}\n{"id":"b","x":0.2,"e":1,"g":"v"}\n'
    '{"id":"c","x":§,"e":1,"g":"u"}\n{"id":"d","x":0.4,"e":"inf","g":"v"}\n'
)
FRAMES = (
    Frame("csv", "id,x,e,g\n" + LINES),
    Frame("csv", "x,e\n0.1,1\n0.2,1\n§,1\n0.4,inf\n"),
    Frame("csv", "e,x\n1,0.1\n1,0.2\n1,§\ninf,0.4"),
    Frame("csv", "e,x\n1,0.1\n1,0.2\ninf,0.4\n1,§"),
    Frame("csv", "x\n0.1\n0.2\n§\n0.4\n", epsilon=1.0),
    Frame("csv", "id,x,e,g\r\n" + LINES.replace("\n", "\r\n")),
    Frame("csv", 'id,x,e,g\n"a,a",0.1,1,"u"\nb,0.2,"1",v\n"c""c",§,"1","u"\nd,"0.4",inf,"v,v"\n'),
    Frame("tsv", "id\tx\te\tg\n" + LINES.replace(",", "\t")),
    Frame("csv", "x;e\n0,1;1\n0,2;1\n§;1\n0,4;inf\n", options={"delimiter": ";", "decimal": ",", "thousands": "."}),
    Frame("csv", "id,x,e,g\n" + LINES.replace("inf", "1e400"), "the ε of another, right of the value"),
    Frame("csv", "id,x,e,g\n" + LINES.replace("§,1", "§,one"), "the ε beside it, right of the value"),
    Frame("csv", "e,x\n1,0.1\none,§\n", "the ε beside it, left of the value"),
    Frame("csv", "e,x\n1,0.1\none,0.2\none,§\n", "the ε of two people, left of the value"),
    Frame("csv", "id,x,e,g\n" + LINES.replace("d,", "c,"), "two levels for one id"),
    Frame("csv", "id,x,e,g\n" + LINES.replace("d,0.4,inf,v", ""), "a blank line below"),
    Frame("csv", "id,y,e,g\n" + LINES, "no such column"),
    Frame("ndjson", OBJECTS),
    Frame("ndjson", '{"x":0.1,"e":1}\n{"x":0.2,"e":1}\n{"e":1,"x":§}\n{"x":0.4,"e":"inf"}'),
    Frame("ndjson", OBJECTS.replace('"inf"', '"1e400"'), "the ε of another"),
    Frame("ndjson", OBJECTS.replace('§,"e":1', '§,"e":"one"'), "the ε beside it"),
    Frame("ndjson", OBJECTS.replace('"d"', "1.5"), "an id that is none"),
    Frame("ndjson", OBJECTS.replace('"x":0.4', '"y":0.4'), "a value that is missing elsewhere"),
)


def private_cell(data: bytes) -> None:
    """Raise if anything but the code of the person with this cell differs from what a usual cell gives."""
    frame = FRAMES[data[0] % len(FRAMES)] if data else FRAMES[0]
    cell = (as_json if frame.suffix == "ndjson" else as_text)(data[1:])
    ways = sorted(usual(frame))
    way = ways[zlib.crc32(data) % len(ways)]
    if frame.suffix != "ndjson" and not is_one_field(cell, frame.delimiter):
        refused_by_line(found(frame, cell, way), frame, usual(frame)[way])
        cell = b'"' + cell.replace(b'"', b'""') + b'"'
    compare(found(frame, cell, way), usual(frame)[way])


LAYOUT = (
    "has N fields and the header N; put a cell that holds the delimiter between quotes, and with decimal commas use "
    "another delimiter",
    "has a quote that is not closed at the end of its cell; inside quotes write a quote twice",
)


def is_one_field(cell: bytes, delimiter: str) -> bool:
    """Say whether these bytes are one cell of a line: closed between quotes, or without a quote first or delimiters."""
    text = cell.decode("utf-8", "replace")
    blanks = " \t".replace(delimiter, "")
    return re.fullmatch(f'"(?:[^"]|"")*"[{blanks}]*|(?!")[^{delimiter}]*', text, re.DOTALL) is not None


def refused_by_line(now: Any, frame: Frame, plain: Any) -> None:
    """Raise unless a line was refused for its layout, by its number, or before that for what is wrong elsewhere."""
    fault = f"line {frame.line} of {FOLDER / f'cell.{frame.suffix}'} "
    if now == plain and frame.bad:
        return
    assert isinstance(now, str), f"{now!r} although the layout of a line is wrong"
    assert now.startswith(fault), now
    assert re.sub("[0-9]+", "N", now.removeprefix(fault)) in LAYOUT, now


def compare(now: Any, plain: Any) -> None:
    """Raise unless a result is what the usual cell gives but for one code; messages and levels are the same."""
    assert type(now) is type(plain), f"{now!r} instead of {plain!r}"
    if isinstance(plain, hetdp.Tally):
        same_but_one(now, plain)
    elif isinstance(plain, dict):
        assert now.keys() == plain.keys()
        assert now["v"] == plain["v"]
        same_but_one(now["u"], plain["u"])
    else:
        assert now == plain, f"{now!r} instead of {plain!r}"


def same_but_one(now: hetdp.Tally, plain: hetdp.Tally) -> None:
    """Raise unless two tallies have the same people and their sums differ by one person's code at ε = 1."""
    sound(now)
    assert (now.n, now.levels) == (plain.n, plain.levels), f"{now!r} instead of {plain!r}"
    for epsilon, one, other in zip(
        now.levels.epsilon.tolist(), now.table.total[:, 0].tolist(), plain.table.total[:, 0].tolist(), strict=True
    ):
        code = one - other + GRID // 2
        assert 0 <= code <= GRID if epsilon == 1 else one == other, f"the sum at ε = {epsilon} moved by {one - other}"


@cache
def usual(frame: Frame) -> dict[str, Any]:
    """Return what each way of reading gives with a usual cell."""
    return {way: found(frame, USUAL, way) for way in frame.ways(FOLDER)}


def found(frame: Frame, cell: bytes, way: str) -> Any:
    """Return what one way of reading gives."""
    path = written(f"cell.{frame.suffix}", frame.text.encode().replace(HOLE.encode(), cell))
    return said(frame.ways(path)[way])


def as_text(data: bytes) -> bytes:
    """Return a cell of a delimited file: any bytes but a line feed."""
    return data.replace(b"\n", b"")


def as_json(data: bytes) -> bytes:
    """Return a cell of an object: a text or a nesting as JSON libraries write them, or bare characters but quotes."""
    kind, rest = (data[0], data[1:]) if data else (0, b"")
    text = rest.decode("utf-8", "surrogateescape")
    if kind % 4 == 0:
        bare = "".join(sign for sign in text if sign not in '"\n\\').encode("utf-8", "surrogateescape")
        return bare if bare.strip() else USUAL
    if kind % 4 == 1:
        return json.dumps(text).encode()
    if kind % 4 == 2:
        return json.dumps(text, ensure_ascii=False).encode("utf-8", "surrogateescape")
    deep: Any = text
    for level in range(kind):
        deep = [deep, {"e": deep}] if level < 3 else {"x": deep}
    return json.dumps(deep).encode()
