"""Files on this machine: which ones, of which kind, their bytes, and the checks that hold for every kind.

Memory is bounded whatever a text file holds: a block, or the longest line. What a compressed file expands to is bounded
too, by its ratio to the bytes read; how well a file compresses, like its size, counts as public.
"""

from __future__ import annotations

import glob
import gzip
import os
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import polars as pl

from hetdp.errors import InputError

from . import columns, delimited, ndjson
from .request import Batch, Request

BLOCK = 2**22
LONGEST_LINE = 2**26
LONGEST_HEADER = 2**20
MOST_AT_ONCE = 2**30
"""Decompressed bytes that are read without asking for their ratio."""
RATIO = 1000

_REFUSED = {
    b"PK\x03\x04": "a zip archive or an Excel workbook; save the table as CSV or Parquet",
    b"\xd0\xcf\x11\xe0": "an old Excel workbook; save the table as CSV or Parquet",
    b"SQLite format 3": "a SQLite database; name it alone, with a query",
    b"BZh": "compressed with bzip2; decompress it, or use gzip or zstd",
    b"\xfd7zXZ": "compressed with xz; decompress it, or use gzip or zstd",
}
_COLUMNAR = {b"PAR1": "Parquet", b"ARROW1": "an Arrow file", b"\xff\xff\xff\xff": "an Arrow stream"}
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"


@dataclass(frozen=True)
class Files:
    """The names of files that are one table, patterns among them.

    `watch` is called after every batch with the rows and the bytes read so far, of `size` bytes.
    """

    names: Sequence[str | os.PathLike[str]]
    watch: Callable[[int, int], None] | None = None

    def batches(self, request: Request, *, owner: bool = False) -> Iterator[Batch]:
        """Yield the people of all files, in order; a kind is told by first bytes, not by a name."""
        watch = self.watch or (lambda _rows, _bytes: None)
        rows = done = 0
        for path in self.paths():
            for batch, consumed in _one(path, request, owner=owner):
                rows += batch.epsilon.size
                watch(rows, done + consumed)
                yield batch
            done += path.stat().st_size
            watch(rows, done)

    def check(self, request: Request) -> None:
        """Raise for what is wrong with the names, the header or the types of a table in files; no row is read."""
        for path in self.paths():
            list(_one(path, request, rows=False))

    @property
    def called(self) -> tuple[str, ...]:
        """The names of the files without their folders."""
        return tuple("".join(c if c.isprintable() else "?" for c in path.name) for path in self.paths())

    @property
    def size(self) -> int:
        """The bytes of all files, as they are on the disk."""
        return sum(path.stat().st_size for path in self.paths())

    def paths(self) -> list[Path]:
        """Return the files that are named, patterns expanded, each checked; a file that comes twice is an error."""
        return list(self.by_inode().values())

    def by_inode(self) -> dict[tuple[int, int], Path]:
        """Return the files by what tells them apart on this machine, whatever their names are."""
        found: dict[tuple[int, int], Path] = {}
        for name in self.names:
            for path in _expanded(name):
                status = path.stat()
                other = found.setdefault((status.st_dev, status.st_ino), path)
                if other is not path:
                    raise InputError(f"{path} and {other} are the same file; its people would be counted twice")
        if not found:
            raise InputError("no file is named; give at least one")
        return found


def _expanded(name: str | os.PathLike[str]) -> list[Path]:
    text = os.fspath(name)
    if "://" in text:
        raise InputError(f"only files on this machine are read (got {text}); copy it here first")
    if "\n" in text or "\x00" in text or len(text) > 4096:
        raise InputError("the source is no name of a file; give the name of a file, or values as a list or array")
    if not any(sign in text for sign in "*?[") or Path(text).exists():
        return [_local(Path(text))]
    matches = [Path(match) for match in sorted(glob.glob(text, recursive=True))]  # noqa: PTH207  it takes any pattern
    matches = [path for path in matches if not path.is_dir()]
    if not matches:
        raise InputError(f"no file matches {text!r}")
    return [_local(path) for path in matches]


def _local(path: Path) -> Path:
    if path.is_dir():
        raise InputError(f"{path} is a folder; name the file in it")
    if not path.is_file():
        raise InputError(f"{path} is not a file on this machine")
    if not os.access(path, os.R_OK):
        raise InputError(f"{path} cannot be read by this user; check its permissions")
    if path.stat().st_size == 0:
        raise InputError(f"{path} is empty (n = 0); a mean needs at least one person")
    return path


def _one(path: Path, request: Request, *, rows: bool = True, owner: bool = False) -> Iterator[tuple[Batch, int]]:
    """Yield the people of one file and the bytes read so far; without `rows` check what can be checked before them.

    What a reader says may quote what it read. Our own error is raised outside the handler, so that not even the chain
    of exceptions holds the reader's words.
    """
    before, failed = _stamp(path), False
    with Text(path) as text:
        kind, reader = _kind(text)
        try:
            if rows:
                for batch in reader.batches(text, request, owner=owner):
                    if batch.epsilon.size:  # a block may be blank
                        yield batch, text.consumed
            else:
                reader.check(text, request)
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError):
            failed = True
    if failed:
        raise InputError(f"{path} cannot be read as {kind}; the file may be damaged")
    if _stamp(path) != before:
        raise InputError(f"{path} changed while it was being read; try again when nobody writes to it")


def _kind(text: Text) -> tuple[str, ModuleType]:
    """Return what a file is, by its first bytes, and who reads it. Of text only the first character counts."""
    path, compressed = text.path, text.magic.startswith((_GZIP, _ZSTD))
    _refuse(path, text.magic)
    for magic, kind in _COLUMNAR.items():
        if text.magic.startswith(magic):
            return kind, columns
    head = text.head().removeprefix(b"\xef\xbb\xbf")
    if not head:
        raise InputError(f"{path} is empty (n = 0); a mean needs at least one person")
    head = head.lstrip()[:64]
    if head[:1] == b"{":
        return "JSON lines", ndjson
    if head[:1] == b"[" and head[1:].lstrip()[:1] == b"{":
        raise InputError(f"{path} is one JSON array; write one JSON object a line instead")
    if compressed:
        _refuse(path, head)
        if head.startswith((*_COLUMNAR, _GZIP, _ZSTD)):
            raise InputError(f"{path} holds a compressed file that is not text; decompress it")
    return "delimited text", delimited


def _refuse(path: Path, head: bytes) -> None:
    for magic, what in _REFUSED.items():
        if head.startswith(magic):
            raise InputError(f"{path} is {what}")


def _stamp(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_size, status.st_mtime_ns


class Text:
    """The bytes of a file, read once from its start in blocks of whole lines, decompressed if it is gzip or zstd."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._raw = path.open("rb")
        self.magic = self._raw.read(16)
        self._raw.seek(0)
        self._file: Any = self._raw
        self._errors: tuple[type[Exception], ...] = (OSError, EOFError, zlib.error)
        if self.magic.startswith(_GZIP):
            self._file = gzip.GzipFile(fileobj=self._raw)
        elif self.magic.startswith(_ZSTD):
            if sys.version_info >= (3, 14):
                from compression import zstd
            else:
                from backports import zstd
            self._file = zstd.ZstdFile(self._raw)
            self._errors = (OSError, EOFError, zstd.ZstdError)
        self.consumed = 0  # bytes of the file, as it is on the disk
        self._kept = b""
        self._out = 0
        self._carriage, self._line = False, 1

    def __enter__(self) -> Text:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self._raw.close()

    def head(self) -> bytes:
        """Return how the text begins, and keep it for later."""
        if not self._kept:
            self._kept = self._read(2**16)
        return self._kept

    def header(self) -> bytes:
        """Return the first line. It tells whether lines end with a carriage return alone."""
        head = self.head()
        self._carriage = b"\r" in head.split(b"\n", 1)[0].removesuffix(b"\r")
        end = b"\r" if self._carriage else b"\n"
        while end not in head and (more := self._read(2**16)):
            head += more
            if len(head) > LONGEST_HEADER:
                raise InputError(f"{self.path} has a header of more than {LONGEST_HEADER:,} bytes; this is not a table")
        first, _, self._kept = head.partition(end)
        self._line = 2
        return first

    def blocks(self) -> Iterator[tuple[bytes, int]]:
        """Yield the rest of the text in blocks of whole lines, each with the number of its first line.

        Every line ends with a line feed.
        """
        rest = b""
        while chunk := self._kept or self._read(BLOCK):
            self._kept = b""
            if self._carriage:
                chunk = chunk.replace(b"\r", b"\n")
            cut = chunk.rfind(b"\n") + 1
            if cut:
                block = b"".join([rest, memoryview(chunk)[:cut]])
                yield block, self._line
                self._line += block.count(b"\n")
                rest = chunk[cut:]
            else:
                rest += chunk
            if len(rest) > LONGEST_LINE:
                size = LONGEST_LINE // 2**20
                raise InputError(f"{self.path} has a line of more than {size} MiB; this is not a table")
        if rest:
            yield rest + b"\n", self._line

    def _read(self, size: int) -> bytes:
        data: bytes | None = None
        with suppress(*self._errors):  # the library's own message may say where, and so what
            data = self._file.read(size)
        if data is None:
            raise InputError(f"{self.path} is unreadable; the file may be damaged or cut short")
        self._out += len(data)
        self.consumed = self._raw.tell()
        if self._file is not self._raw and self._out > max(MOST_AT_ONCE, RATIO * self.consumed):
            raise InputError(
                f"{self.path} expands to more than {RATIO:,} times its size; decompress it first if this is meant"
            )
        return data
