"""Any lines as the arguments of a command: it works, or it says one line; never an internal error.

The command runs in this process, in a folder of its own that has a table, a tally, a ledger and a file of tiers. What
would listen, or work for minutes, is parsed and no more. An argument with a slash is kept only if it is known to lead
nowhere else: a run writes to its own folder alone, and asks no other machine.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import hetdp
from hetdp import cli as _cli

from .ledgers import fresh
from .oracle import FOLDER, said

LONG = {"serve", "audit", "doctor", "reproduce"}
PLACES = {
    "./people.csv", "/dev/null", "/no/such/folder/x.csv", "sqlite:///people.db", "http://localhost/x.csv",
    "s3://bucket/x.csv", "postgresql://", "*/*.csv", "1/3", "strict=1/3",
}  # fmt: skip
FILES = [
    "people.csv", "people.tally", "budgets.db", "tiers.toml", "groups.txt", "empty.csv", "new.json", "new.html", ".",
]  # fmt: skip
NASTY = [
    "nan", "inf", "-inf", "1e400", "1e308", "1e150", "1e-320", "-1", "0", "1", "0.1", "0.5", "2", "1e-400",
    "99999999999999999999", "0x10", "1_000", "public", "a=0.1:700", "b=inf:3", "c=0:0", "a=1:9007199254740993",
    "=1:1", "a=:1", "x", "e", "id", "g", "\t", ";", ",", "--", "-", "", "é", "\udcff", "1e999",
    "select x, e from people", "4:0000000000000000", "may", "source", "history",
]  # fmt: skip
TABLE = "id,x,e,g\na,0.1,0.1,u\nb,0.2,1,v\nc,0.3,inf,u\nd,,0,v\n"


def run_command(data: bytes) -> None:
    """Run the command whose arguments are these lines, and check its exit code and what it prints."""
    arguments = [safe(os.fsdecode(line)) for line in data.replace(b"\0", b"").split(b"\n")]
    for at in [at for at, word in enumerate(arguments) if word in LONG][::-1]:
        arguments.insert(at + 1, "--no-such-option")
    with standing_in(folder()):
        code, out, err = ran(arguments)
    shown = f"{arguments} gave {code}: {out!r} {err!r}"
    assert code in {0, 2}, shown
    if code == 2:
        assert not out, shown
        assert err.startswith("hetdp: "), shown
        assert len(err.splitlines()) == 1, shown
    elif out.startswith(("{", "[")):
        json.loads(out, parse_constant=lambda text: _no_number(text, shown))


def _no_number(text: str, shown: str) -> None:
    raise AssertionError(f"{text} is no JSON: {shown}")


def safe(argument: str) -> str:
    """Return an argument that leads to no place outside of the folder."""
    return argument if argument in PLACES else argument.replace("/", "|")


def ran(arguments: list[str]) -> tuple[Any, str, str]:
    """Return the exit code of a command and what it printed to both streams; a warning in it is an internal error."""
    streams = [io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2)]
    before, handler = sys.argv, signal.getsignal(signal.SIGTERM)
    sys.argv = ["hetdp", *arguments]
    try:
        with contextlib.redirect_stdout(streams[0]), contextlib.redirect_stderr(streams[1]):
            said(_cli.main)
    except SystemExit as stopped:
        code = stopped.code
    finally:
        sys.argv = before
        signal.signal(signal.SIGTERM, handler)
    out, err = (stream.buffer.getvalue().decode("utf-8", "replace") for stream in streams)
    return code, out, err


def folder() -> Path:
    """Return a new folder with one file of each kind."""
    place = FOLDER / "here"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    for name, data in contents().items():
        (place / name).write_bytes(data)
    return place


@cache
def contents() -> dict[str, bytes]:
    """Return the files that a command may name."""
    table, tally = FOLDER / "contents.csv", FOLDER / "contents.tally"
    table.write_text(TABLE, encoding="utf-8")
    hetdp.read(table, value="x", missing="midpoint", epsilon="e", bounds=(0, 1)).save(tally)
    ledger = fresh()
    return {
        "people.csv": table.read_bytes(),
        "people.tally": tally.read_bytes(),
        "budgets.db": ledger.read_bytes(),
        "budgets.db.head": Path(f"{ledger}.head").read_bytes(),
        "tiers.toml": b"[tiers]\nstrict = 0.1\nopen = 'inf'\n",
        "groups.txt": b"u\nv\nw\n",
        "empty.csv": b"",
    }


@contextlib.contextmanager
def standing_in(place: Path) -> Iterator[None]:
    """Work in a folder."""
    before = Path.cwd()
    os.chdir(place)
    try:
        yield
    finally:
        os.chdir(before)


def words() -> tuple[list[str], list[str]]:
    """Return what arguments are made of: every command and option there is; names of files and nasty values."""
    import typer

    top = typer.main.get_command(_cli.app)
    found = {"--help", "--version"}
    waiting: list[Any] = [top]
    while waiting:
        command = waiting.pop()
        for name, inner in getattr(command, "commands", {}).items():
            found.add(name)
            waiting.append(inner)
        found.update(option for parameter in command.params for option in parameter.opts if option.startswith("-"))
    return sorted(found), [*FILES, *sorted(PLACES), *NASTY]
