"""The bytes of a file of text, decompressed on the way, in blocks of whole lines.

Memory is bounded whatever the file holds: a block, or the longest line. What a compressed file expands to is bounded
too, by its ratio to the bytes read; how well a file compresses, like its size, counts as public.
"""

from __future__ import annotations

import gzip
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from hetdp.errors import InputError

BLOCK = 2**22
LONGEST_LINE = 2**26
LONGEST_HEADER = 2**20
MOST_AT_ONCE = 2**30
"""Decompressed bytes that are read without asking for their ratio."""
RATIO = 1000

Watch = Callable[[int, int], None]
"""Gets to know the rows and the bytes read so far."""


class Text:
    """A file of text, plain or compressed with gzip or zstd, read once from its start."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._raw = path.open("rb")
        magic = self._raw.read(4)
        self._raw.seek(0)
        self._file: Any = self._raw
        self._errors: tuple[type[Exception], ...] = (OSError,)
        if magic.startswith(b"\x1f\x8b"):
            self._file = gzip.GzipFile(fileobj=self._raw)
            self._errors = (OSError, EOFError, zlib.error)
        elif magic == b"\x28\xb5\x2f\xfd":
            if sys.version_info >= (3, 14):
                from compression import zstd
            else:
                from backports import zstd
            self._file = zstd.ZstdFile(self._raw)
            self._errors = (OSError, EOFError, zstd.ZstdError)
        self._kept = b""
        self._out = 0
        self.carriage = False

    def __enter__(self) -> Text:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
        self._raw.close()

    @property
    def consumed(self) -> int:
        """The bytes of the file, as it stands on the disk, that were read."""
        return self._raw.tell()

    def head(self) -> bytes:
        """Return how the text begins, and keep it for later."""
        if not self._kept:
            self._kept = self._read(2**16)
        return self._kept

    def header(self) -> bytes:
        """Return the first line. It tells whether lines end with a carriage return alone."""
        head = self.head()
        self.carriage = b"\r" in head.split(b"\n", 1)[0].removesuffix(b"\r")
        end = b"\r" if self.carriage else b"\n"
        while end not in head and (more := self._read(2**16)):
            head += more
            if len(head) > LONGEST_HEADER:
                raise InputError(f"{self.path} has a header of more than {LONGEST_HEADER:,} bytes; this is not a table")
        first, _, self._kept = head.partition(end)
        return first

    def blocks(self) -> Iterator[bytes]:
        """Yield the rest of the text in whole lines, a block at a time; each line ends with a line feed."""
        rest = b""
        while chunk := self._kept or self._read(BLOCK):
            self._kept = b""
            if self.carriage:
                chunk = chunk.replace(b"\r", b"\n")
            cut = chunk.rfind(b"\n") + 1
            if cut:
                yield b"".join([rest, memoryview(chunk)[:cut]])
                rest = chunk[cut:]
            else:
                rest += chunk
            if len(rest) > LONGEST_LINE:
                size = LONGEST_LINE // 2**20
                raise InputError(f"{self.path} has a line of more than {size} MiB; this is not a table")
        if rest:
            yield rest + b"\n"

    def _read(self, size: int) -> bytes:
        data: bytes | None = None
        with suppress(*self._errors):  # the library's own message may say where, and so what
            data = self._file.read(size)
        if data is None:
            raise InputError(f"{self.path} is unreadable; the file may be damaged or cut short")
        self._out += len(data)
        if self._file is not self._raw and self._out > max(MOST_AT_ONCE, RATIO * self.consumed):
            raise InputError(
                f"{self.path} expands to more than {RATIO:,} times its size; decompress it first if this is meant"
            )
        return data
