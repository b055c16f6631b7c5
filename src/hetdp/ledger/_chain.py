"""Events in a hash chain: whoever changes, removes or reorders one changes every hash after it.

The hash of an event covers the hash before it, so the last one, the head, stands for the whole history. A chain does
not keep somebody who can write to the database from making a new one; a head that was printed or kept elsewhere does
(`_head`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

import numpy as np

from ._errors import LedgerError
from ._head import Head
from ._packed import packed

GENESIS = Head(0, hashlib.sha256(b"hetdp-ledger-1").hexdigest())

_plain = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False).encode


@dataclass(frozen=True)
class Event:
    """One thing that happened: a ledger was opened, people enrolled, a release charged, its result stored.

    Attributes
    ----------
    body
        Canonical JSON.
    at
        The time by this machine's clock. It is shown and never decides anything: clocks go backwards.
    """

    seq: int
    kind: str
    release: str | None
    at: str
    body: str
    hash: str

    @cached_property
    def facts(self) -> dict[str, Any]:
        """The body as plain data. Of columns of numbers it has what `_packed` reads."""
        found: dict[str, Any] = json.loads(self.body)
        return found

    @property
    def head(self) -> Head:
        """The head after this event."""
        return Head(self.seq, self.hash)


def canonical(facts: Any) -> str:
    r"""Return plain data and columns of numbers as JSON with one spelling: sorted names, no blanks, ASCII.

    >>> canonical({"b": np.array([1, 2]), "a": "ε"})
    '{"a":"\\u03b5","b":[1,2]}'
    """
    if isinstance(facts, dict):
        return "{" + ",".join([f"{_plain(name)}:{canonical(facts[name])}" for name in sorted(facts)]) + "}"
    if isinstance(facts, np.ndarray):
        column = packed(facts)
        return f'"{column}"' if isinstance(column, str) else _plain(column)  # base64 has nothing to escape
    return _plain(facts)


def following(head: Head, kind: str, facts: dict[str, Any], release: str | None = None) -> Event:
    """Return the event that comes after a head."""
    at, body = datetime.now(UTC).isoformat(timespec="milliseconds"), canonical(facts)
    seq = head.seq + 1
    event = Event(seq, kind, release, at, body, _hash(head.hash, seq, kind, release, at, body))
    event.__dict__["facts"] = facts  # what `Event.facts` would read from the body, but for columns not packed yet
    return event


def checked(events: Iterable[Event], after: Head, name: str) -> Iterator[Event]:
    """Yield events that must follow a head without a gap, each with the right hash; raise at the first other one."""
    head = after
    for event in events:
        expected = _hash(head.hash, head.seq + 1, event.kind, event.release, event.at, event.body)
        if event.head != Head(head.seq + 1, expected):
            raise LedgerError(
                f"{name} has a broken chain at event {head.seq + 1}: it was changed outside of hetdp; "
                "nothing is released from it, go back to a copy that verifies and has the newest head"
            )
        head = event.head
        yield event


def _hash(before: str, seq: int, kind: str, release: str | None, at: str, body: str) -> str:
    return hashlib.sha256(f"{canonical([before, seq, kind, release, at])}\n{body}".encode("ascii")).hexdigest()
