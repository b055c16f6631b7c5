"""What must hold whatever was read: a sound tally, or one line of our own and nothing of anybody else's."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hetdp
from hetdp.core.domain import GRID

MEMORY = Path("/dev/shm")  # noqa: S108  only where to put a folder of our own
CHOSEN = "TMPDIR" in os.environ or not os.access(MEMORY, os.W_OK)
FOLDER = Path(tempfile.mkdtemp(prefix="hetdp-fuzz-", dir=None if CHOSEN else MEMORY))
"""Where targets write what they read, in memory where that exists: a ledger waits for the disk.

It is gone at the end, but for a run of the fuzzer, which ends without a farewell: there TMPDIR says where it may stay.
"""
atexit.register(shutil.rmtree, FOLDER, ignore_errors=True)


def said(work: Callable[[], Any], *, of_a_ledger: bool = False) -> Any:
    """Return what some work gives, or the message of the HetdpError that it raises; let everything else through.

    A message is one line, and no message of another library is behind it, which may quote a cell; of a ledger, which
    has no values, it is enough that a traceback would not show it. A warning is an error.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return work()
    except hetdp.HetdpError as error:
        message = str(error)
        assert len(message.splitlines()) == 1, f"the message has several lines: {message!r}"
        behind = error.__cause__ or (None if of_a_ledger and error.__suppress_context__ else error.__context__)
        assert behind is None, f"{behind!r} is behind the message"
        return message


def sound(tally: hetdp.Tally) -> None:
    """Raise unless there is somebody, and the sum of every level is one that codes from 0 to GRID can give."""
    assert tally.n >= 1
    levels = zip(*(column.tolist() for column in (tally.levels.epsilon, tally.levels.count)), strict=True)
    for (epsilon, count), total in zip(levels, tally.table.total[:, 0].tolist(), strict=True):
        assert epsilon >= 0
        assert count >= 1
        assert 0 <= total <= (GRID * count if epsilon else 0), f"a sum of {total} from {count} people at ε = {epsilon}"


def written(name: str, data: bytes) -> Path:
    """Return the path of a file with these bytes; its stamp differs from that of the file it replaces."""
    path = FOLDER / name
    path.write_bytes(data)
    os.utime(path, ns=(0, 0))
    return path
