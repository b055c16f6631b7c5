"""Files on this machine: which ones, of which kind, and the checks that hold for every kind."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from hetdp.errors import InputError

from . import columnar, delimited, ndjson
from ._asked import Asked
from ._batch import Batch, Tiers
from ._form import Form
from ._text import Text, Watch

__all__ = ["Form", "batches", "check", "paths", "size"]

Names = Sequence[str | os.PathLike[str]]

_REFUSED = {
    b"PK\x03\x04": "a zip archive or an Excel workbook; save the table as CSV or Parquet",
    b"\xd0\xcf\x11\xe0": "an old Excel workbook; save the table as CSV or Parquet",
    b"BZh": "compressed with bzip2; decompress it, or use gzip or zstd",
    b"\xfd7zXZ": "compressed with xz; decompress it, or use gzip or zstd",
}
_COLUMNAR = {b"PAR1": "Parquet", b"ARROW1": "an Arrow file", b"\xff\xff\xff\xff": "an Arrow stream"}
_COMPRESSED = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd")


def batches(
    names: Names,
    asked: Asked,
    tiers: Tiers,
    form: Form = Form(),  # noqa: B008  it is frozen
    *,
    owner: bool = False,
    watch: Watch | None = None,
) -> Iterator[Batch]:
    """Yield the people of one table that stands in one or several files; a kind is told by first bytes, not by a name.

    `watch` is called after every batch with the rows and the bytes read so far, of `size(names)` bytes.
    """
    rows = done = 0
    for path in paths(names):

        def seen(more: int, read: int, rows: int = rows, done: int = done) -> None:
            if watch is not None:
                watch(rows + more, done + read)

        for batch in _one(path, asked, tiers, form, owner=owner, watch=seen):
            rows += batch.epsilon.size
            yield batch
        done += path.stat().st_size
        seen(0, 0, rows, done)


def check(names: Names, asked: Asked, form: Form) -> None:
    """Raise for what is wrong with the names, the header or the types of a table in files; no row is read."""
    import polars as pl

    for path in paths(names):
        kind, reader = _kind(path)
        try:
            reader.check(path, asked, form)
            continue
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError):
            pass
        raise _unreadable(path, kind)


def size(names: Names) -> int:
    """Return the bytes of all files, as they stand on the disk."""
    return sum(path.stat().st_size for path in paths(names))


def paths(names: Names) -> list[Path]:
    """Return the files that are named, patterns expanded, each checked; a file that comes twice is an error."""
    found: dict[tuple[int, int], Path] = {}
    for name in names:
        for path in _expanded(name):
            status = path.stat()
            other = found.setdefault((status.st_dev, status.st_ino), path)
            if other is not path:
                raise InputError(f"{path} and {other} are the same file; its people would be counted twice")
    if not found:
        raise InputError("no file is named; give at least one")
    return list(found.values())


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


def _one(path: Path, asked: Asked, tiers: Tiers, form: Form, **options: Any) -> Iterator[Batch]:
    import polars as pl

    before, failed = _stamp(path), False
    kind, reader = _kind(path)
    try:
        yield from reader.batches(path, asked, tiers, form, **options)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError):
        failed = True
    if failed:
        raise _unreadable(path, kind)
    if _stamp(path) != before:
        raise InputError(f"{path} changed while it was being read; try again when nobody writes to it")


def _unreadable(path: Path, kind: str) -> InputError:
    """Return what is said instead of a reader's own error, which may quote what was read.

    It is raised outside the handler, so that not even the chain of exceptions holds the reader's words.
    """
    return InputError(f"{path} cannot be read as {kind}; the file may be damaged")


def _kind(path: Path) -> tuple[str, ModuleType]:
    """Return what a file is, by its first bytes, and who reads it. Of text only the first sign counts."""
    with path.open("rb") as file:
        head = file.read(16)
    _refuse(path, head)
    for magic, kind in _COLUMNAR.items():
        if head.startswith(magic):
            return kind, columnar
    with Text(path) as text:
        inner = text.head().removeprefix(b"\xef\xbb\xbf")
    if not inner:
        raise InputError(f"{path} is empty (n = 0); a mean needs at least one person")
    inner = inner.lstrip()[:64]
    if inner[:1] == b"{":
        return "JSON lines", ndjson
    if inner[:1] == b"[" and inner[1:].lstrip()[:1] == b"{":
        raise InputError(f"{path} is one JSON array; write one JSON object a line instead")
    if head.startswith(_COMPRESSED):
        _refuse(path, inner)
        if inner.startswith((*_COLUMNAR, *_COMPRESSED)):
            raise InputError(f"{path} holds a compressed file that is not text; decompress it")
    return "delimited text", delimited


def _refuse(path: Path, head: bytes) -> None:
    for magic, what in _REFUSED.items():
        if head.startswith(magic):
            raise InputError(f"{path} is {what}")


def _stamp(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_size, status.st_mtime_ns
