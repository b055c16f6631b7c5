"""Files on this machine: which kind, and the checks that hold for every kind."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from .._errors import InputError
from . import delimited, parquet
from ._batch import Batch, Tiers

_COMPRESSED = {
    b"\x1f\x8b": "gzip",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"PK\x03\x04": "zip, or an Excel workbook",
    b"BZh": "bzip2",
}
_PARQUET = b"PAR1"


def batches(
    source: str | os.PathLike[str], value: str | None, epsilon: str, tiers: Tiers, *, owner: bool = False
) -> Iterator[Batch]:
    """Yield the people of a CSV or Parquet file; the kind is told by its first bytes, not by its name."""
    if value == epsilon:
        raise InputError(f"the value and the epsilon cannot be the same column (got {epsilon!r} for both)")
    path = _local(source)
    before = _stamp(path)
    with path.open("rb") as file:
        head = file.read(4)
    for magic, kind in _COMPRESSED.items():
        if head.startswith(magic):
            raise InputError(f"{path} is compressed ({kind}); give plain CSV or Parquet")
    import polars as pl

    reader, kind = (parquet.batches, "Parquet") if head == _PARQUET else (delimited.batches, "delimited text")
    try:
        yield from reader(path, value, epsilon, tiers, owner=owner)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError):
        # The reader's own message may quote what it read.
        raise InputError(f"{path} cannot be read as {kind}; the file may be damaged") from None
    if _stamp(path) != before:
        raise InputError(f"{path} changed while it was being read; try again when nobody writes to it")


def _local(source: str | os.PathLike[str]) -> Path:
    if "://" in str(source):
        raise InputError(f"only files on this machine are read (got {source}); copy it here first")
    if "\n" in str(source) or len(str(source)) > 4096:
        raise InputError("the source is no name of a file; give the name of a file, or values as a list or array")
    path = Path(source)
    if path.is_dir():
        raise InputError(f"{path} is a folder; name the file in it")
    if not path.is_file():
        raise InputError(f"{path} is not a file on this machine")
    if not os.access(path, os.R_OK):
        raise InputError(f"{path} cannot be read by this user; check its permissions")
    if path.stat().st_size == 0:
        raise InputError(f"{path} is empty (n = 0); a mean needs at least one person")
    return path


def _stamp(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_size, status.st_mtime_ns
