"""Events in a hash chain, what they add up to, and the head of the chain in a small file outside of the database.

Whoever changes, removes or reorders an event changes every hash after it, so the last hash, the head, stands for the
whole history. A chain does not keep somebody who can write to the database from making a new one, and an old copy of a
ledger has forgotten charges: using it would overspend. So the head is also kept in a file, `budgets.db.head`.

Claim. Whatever left a ledger is covered by its head file, and the head file never leads the database.

Argument. It is written after a commit that is on disk, and it is on disk itself (`Books.flush_head`) before a result is
handed out or the history shown, whoever stored it, and before an enrolment is confirmed. A crash in between leaves it
behind by events of which nothing was shown: an old copy without such a charge has nothing to make good. Writers hold a
lock on it and never move it backwards. A reader looks at it *before* it takes its snapshot of the database, so it
cannot see a head that the snapshot does not have yet.

Columns of numbers in an event are lists while they are short. A charge of a thousand cohorts has six thousand numbers,
and in digits these took longer than the charge itself. So a long column is one text: how a number is kept, `f8`
(IEEE 754) or `u1`, `u2`, `u4`, `u8` (unsigned, of so many bytes), a colon, and base64 of the numbers, little-endian.
"""

from __future__ import annotations

import binascii
import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hetdp.errors import InputError, LedgerError

from .amounts import UNLIMITED, Ints

LONG = 64
"""From how many numbers on a column is a text."""

FORMAT = {"format": "hetdp-ledger-event", "version": 1, "statistic": "mean", "measure": "pure-epsilon"}
"""What every event says about itself, and what one without these fields means: the first ledgers wrote none of them.

Stored history keeps its meaning. Never remove a field, never change what a field or a value of it means; a new meaning
gets a new value here. Whatever this package does not know is refused when an event is read (`Event.facts`): an older
package must not guess what a newer one has charged.
"""

KINDS = ("open", "enroll", "charge", "result")

_LINE = re.compile(rb"hetdp-ledger-head ([0-9]{20}) ([0-9a-f]{64})\n")


def refused(why: str) -> LedgerError:
    """Return the error of a ledger that cannot be trusted."""
    return LedgerError(f"{why}; nothing is released from it")


@dataclass(frozen=True)
class Head:
    """The last event of a ledger: its number and its hash. Written `12:9f86…`."""

    seq: int
    hash: str

    def __str__(self) -> str:
        return f"{self.seq}:{self.hash}"

    @classmethod
    def parse(cls, text: str) -> Head:
        """Return a head that a person wrote down; the first 16 digits of the hash are enough."""
        match = re.fullmatch(r"([0-9]{1,18}):([0-9a-f]{16,64})", str(text).strip())
        if match is None:
            raise InputError(
                f"a head is written NUMBER:HASH, as `hetdp ledger verify` prints it (got {str(text)[:90]!r})"
            )
        return cls(int(match[1]), match[2])


GENESIS = Head(0, hashlib.sha256(b"hetdp-ledger-1").hexdigest())


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
        """The body as plain data, columns of numbers as `integers` and `reals` take them; the unknown is refused."""
        found: dict[str, Any] = json.loads(self.body)
        unknown = {name: found[name] for name, known in FORMAT.items() if found.get(name, known) != known}
        if self.kind not in KINDS:
            unknown["kind"] = self.kind
        if unknown:
            (name, what), *_ = unknown.items()
            raise refused(
                f"event {self.seq} of the ledger has the {name} {str(what)[:64]!r}, which this hetdp does not know; "
                "update hetdp"
            )
        return found

    @property
    def head(self) -> Head:
        """The head after this event."""
        return Head(self.seq, self.hash)


def next_event(head: Head, kind: str, facts: Mapping[str, Any], release: str | None = None) -> Event:
    """Return the event that comes after a head."""
    at, body = datetime.now(UTC).isoformat(timespec="milliseconds"), canonical({**FORMAT, **facts})
    return Event(head.seq + 1, kind, release, at, body, _hash(head, kind, release, at, body))


def checked(events: Iterable[Event], after: Head, name: str) -> Iterator[Event]:
    """Yield events that must follow a head without a gap, each with the right hash; raise at the first other one."""
    head = after
    for event in events:
        expected = _hash(head, event.kind, event.release, event.at, event.body)
        if event.head != Head(head.seq + 1, expected):
            raise refused(
                f"{name} has a broken chain at event {head.seq + 1}: it was changed outside of hetdp; "
                "go back to a copy that verifies and has the newest head"
            )
        head = event.head
        yield event


def _hash(before: Head, kind: str, release: str | None, at: str, body: str) -> str:
    covered = canonical([before.hash, before.seq + 1, kind, release, at])
    return hashlib.sha256(f"{covered}\n{body}".encode("ascii")).hexdigest()


# --- How facts are written


def canonical(facts: Any) -> str:
    r"""Return plain data and columns of numbers as JSON with one spelling: sorted names, no blanks, ASCII.

    >>> canonical({"b": np.array([1, 2]), "a": "ε"})
    '{"a":"\\u03b5","b":[1,2]}'
    """
    return json.dumps(facts, sort_keys=True, separators=(",", ":"), allow_nan=False, default=packed)


def packed(column: NDArray[Any]) -> list[Any] | str:
    """Return a column of reals, or of integers from 0 on, as plain data, exact.

    >>> packed(np.array([3, 1])), packed(np.array([0.5])), packed(np.arange(64))[:12]
    ([3, 1], ['0x1.0000000000000p-1'], 'u1:AAECAwQFB')
    """
    real = column.dtype.kind == "f"
    if column.size < LONG:
        return [x.hex() for x in column.tolist()] if real else column.tolist()
    kind = "f8" if real else f"u{np.min_scalar_type(column.max()).itemsize}"
    return f"{kind}:{binascii.b2a_base64(column.astype(f'<{kind}').tobytes(), newline=False).decode()}"


def integers(kept: Any) -> Ints:
    """Return the column of integers that `packed` took; ValueError if it gives no such text."""
    return np.asarray(_unpacked(kept, {"u1", "u2", "u4", "u8"}) if isinstance(kept, str) else kept, dtype=np.int64)


def reals(kept: Any) -> NDArray[np.float64]:
    """Return the column of reals that `packed` took; ValueError if it gives no such text."""
    if isinstance(kept, str):
        return _unpacked(kept, {"f8"}).astype(np.float64)
    return np.array([float.fromhex(x) for x in kept], dtype=np.float64)


def _unpacked(text: str, kinds: set[str]) -> NDArray[Any]:
    kind, _, numbers = text.partition(":")
    if kind not in kinds or not numbers:
        raise ValueError("no column of an event")
    return np.frombuffer(binascii.a2b_base64(numbers, strict_mode=True), dtype=f"<{kind}")


# --- What events add up to. An event's body has up to three lists, applied in this order:
#
#     new       [cohort, asked, budget, spent]   a cohort without people yet
#     moves     [from, to, people]               people who change cohort; from 0: who are enrolled
#     levels    [cohort, index]                  everybody in the cohort has spent units[index] more
#
# and for the last one `units`, what each level of the plan costs. Both are columns, `levels` in pairs.


class Cohort(NamedTuple):
    """People with the same budget who have spent the same. Amounts are in units.

    `budget` is what limits them in the database: what they asked for, or what they have spent already if they
    asked for less later. Then they are frozen.
    """

    asked: int
    budget: int
    spent: int
    people: int

    @property
    def left(self) -> int:
        """What one of them may still spend."""
        return UNLIMITED if self.asked == UNLIMITED else max(0, self.asked - self.spent)

    @property
    def frozen(self) -> bool:
        """Whether they lowered their budget below what was spent already."""
        return self.asked < self.spent


@dataclass(frozen=True, eq=False)
class State:
    """All cohorts after some event, and the names that tiers were given (for display alone).

    Attributes
    ----------
    table
        One row per cohort, in the order of their numbers: cohort, asked, budget, spent, people. An array, because a
        charge concerns thousands of cohorts at once.
    """

    head: Head = GENESIS
    table: Ints = field(default_factory=lambda: np.zeros((0, 5), np.int64))
    names: Mapping[int, str] = field(default_factory=dict)

    @cached_property
    def cohorts(self) -> dict[int, Cohort]:
        """The cohorts by their number."""
        return {row[0]: Cohort(*row[1:]) for row in self.table.tolist()}

    @property
    def people(self) -> int:
        """The number of people enrolled."""
        return int(self.table[:, 4].sum())

    def rows(self, cohorts: Ints) -> Ints:
        """Return each cohort's row in the table; raise if one is missing."""
        there = self.table[:, 0]
        rows = np.searchsorted(there, cohorts)
        if not np.array_equal(there[np.minimum(rows, there.size - 1)], cohorts):
            raise ValueError("a cohort that is not there")
        return rows

    def after(self, event: Event) -> State:
        """Return the state after one more event; raise if no ledger could have written it."""
        facts = event.facts
        try:
            names = {int(asked): str(name) for asked, name in facts.get("names", {}).items()}
            state = replace(self, head=event.head, names={**self.names, **names})
            if facts.get("new") or facts.get("moves"):
                cohorts = _moved(self.cohorts, facts["new"], facts["moves"], enrolling=event.kind == "enroll")
                table = np.array([(number, *now) for number, now in sorted(cohorts.items())], np.int64).reshape(-1, 5)
                state = replace(state, table=np.asfortranarray(table))
            return state.charged(*costs(facts)) if "levels" in facts else state
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
            raise refused(f"event {event.seq} of the ledger does not add up") from None

    def charged(self, cohorts: Ints, units: Ints) -> State:
        """Return the state after charges. Where there is no limit, what was spent stops at the largest number."""
        rows = self.rows(cohorts)
        asked, spent = self.table[rows, 1], self.table[rows, 3] + units
        spent = np.where(asked == UNLIMITED, np.minimum(spent, UNLIMITED), spent)
        if (units < 0).any() or (spent > asked).any() or np.bincount(rows).max(initial=0) > 1:
            raise ValueError("a charge that passes a budget, or a cohort that is charged twice")
        table = self.table.copy(order="K")
        table[rows, 3] = spent
        return replace(self, table=table)


def _moved(before: Mapping[int, Cohort], new: Any, moves: Any, *, enrolling: bool) -> dict[int, Cohort]:
    """Return the cohorts after some are made and people move; ValueError if no ledger could have written that."""
    cohorts = dict(before)
    for number, asked, budget, spent in new:
        if number in cohorts or budget != max(asked, spent) or not (0 <= asked <= UNLIMITED and spent >= 0):
            raise ValueError("no new cohort")
        cohorts[number] = Cohort(asked, budget, spent, 0)
    for origin, target, people in moves:
        there = cohorts[target]
        if origin:
            here = cohorts[origin]
            if here.spent != there.spent or not (enrolling or here[:3] == there[:3]) or not 0 < people <= here.people:
                raise ValueError("no move: a balance would change")
            cohorts[origin] = here._replace(people=here.people - people)
        elif there.spent or not enrolling or people <= 0:
            raise ValueError("no enrolment")
        cohorts[target] = cohorts[target]._replace(people=cohorts[target].people + people)
    return cohorts


def levels_of(facts: Mapping[str, Any]) -> Ints:
    """Return the pairs (cohort, index of its level) of an event; without any it charges nobody."""
    return integers(facts.get("levels", ())).reshape(-1, 2)


def costs(facts: Mapping[str, Any]) -> tuple[Ints, Ints]:
    """Return what an event charges: the cohorts that pay something, and how much each person in them."""
    levels = levels_of(facts)
    units = integers(facts.get("units", ()))[levels[:, 1]]
    pays = np.flatnonzero(units)
    return levels[pays, 0], units[pays]


# --- The head file


def read_head(path: Path | None) -> Head | None:
    """Return the head in a file; None if there is no such file."""
    if path is None:
        return None
    try:
        with path.open("rb") as file:
            match = _LINE.fullmatch(file.read(256))
    except FileNotFoundError:
        return None
    except OSError:
        match = None
    if match is None:
        raise LedgerError(
            f"{path} is damaged, so an old copy of the ledger could not be noticed; if you have written down a head, "
            f"delete this file and run: hetdp ledger verify LEDGER --expect-head HEAD"
        )
    return Head(int(match[1]), match[2].decode())


def write_head(path: Path | None, head: Head, *, sync: bool = False) -> None:
    """Move the head file forward to this head, never backwards; with `sync` it is on disk when this returns.

    It is written in place, not exchanged for a new file: the lock of other writers is on this one.
    """
    if path is None:
        return
    import fcntl  # not on every system, and only a head file needs it

    try:
        with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "r+b", buffering=0) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            match = _LINE.fullmatch(file.read(256))
            if match is None or int(match[1]) < head.seq:
                file.seek(0)
                file.write(f"hetdp-ledger-head {head.seq:020d} {head.hash}\n".encode("ascii"))
            if sync or match is None:
                os.fsync(file.fileno())
        if match is None:  # a new file: its name too must be on disk
            folder = os.open(path.parent, os.O_RDONLY)
            os.fsync(folder)
            os.close(folder)
    except OSError as error:
        raise LedgerError(
            f"{path} cannot be written ({error.strerror}); the ledger keeps its head there: what it did last is in it, "
            "so repair this and do the same again"
        ) from None
