"""An open ledger: what is read is checked against the chain, what is written extends it, people are where events say.

Every transaction checks the chain of the events that are new to it, and that balances are what the charges add up to.
`history.verify` checks the rest: the file's pages, the triggers, who moved to which cohort and when, and that every
charge is what its plan spends.

Who is in which cohort is also checked by every release, after its charge and before a value is read
(`checked_members`): a person moved to another cohort behind the ledger's back would otherwise be counted at an ε that
was never theirs to spend.

Claim. `checked_members` returns the people of the events, or raises.

Argument. Each event that moves people carries, for each cohort, a digest of the ids that came to it, and is itself
covered by the hash chain, which must end at the head that this ledger has seen. Rows of people are compared event by
event: a row too many, too few, renamed, under another event or in another cohort changes a digest or a count, and so
does a swap of two people that leaves all counts as they are. Where somebody came from is compared too, so a false row
that was used for a later move and then taken away is noticed.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from itertools import groupby
from typing import Any, TypeVar

import numpy as np
import sqlalchemy as sa
from sqlalchemy import Connection

from hetdp.errors import HetdpError, LedgerError

from . import store
from .chain import GENESIS, Event, Head, State, checked, next_event, read_head, refused, write_head
from .store import PathName, run

T = TypeVar("T")
_FEW = 500
"""So many people are asked for by their ids; of more, all are read."""


class Books:
    """An open ledger: its database, its state after the events that were read so far, the head outside."""

    def __init__(self, where: PathName, head_file: PathName | None, expect_head: str | None = None) -> None:
        self.store, self.state, self.lock = store.opened(where, head_file), State(), threading.RLock()
        self.name = self.store.name  # the file or address, without a password
        try:
            self._check(expect_head)
            self.flush_head()
        except BaseException:  # whatever it is, no connection stays open to a ledger that is refused
            self.close()
            raise

    def _check(self, expect_head: str | None) -> None:
        beside = self.store.head_file
        missing = beside is not None and read_head(beside) is None and expect_head is None
        if self.read(lambda _, state: state.head.seq, expect_head) > 1 and missing:
            raise LedgerError(
                f"{beside} is missing, so an old copy of the ledger could not be noticed; bring it back, or open "
                "the ledger with a head that you wrote down: --expect-head NUMBER:HASH"
            )

    def read(self, find: Callable[[Connection, State], T], expect_head: str | None = None) -> T:
        """Return what a function finds in one moment of the ledger. It reads and no more: its errors mean damage."""
        expected = None if expect_head is None else Head.parse(expect_head)
        with self.lock:
            outside = [read_head(self.store.head_file), expected]  # before the snapshot, see `chain`

            def work(connection: Connection) -> T:
                self.state = catch_up(connection, self.state, outside, self.name)
                return find(connection, self.state)

            with readable(self.name):
                return self.store.transact(work)

    def change(self, make: Callable[[Connection, State], tuple[State, T]]) -> T:
        """Carry out one change under the ledger's lock; it is on disk when this returns.

        The head outside is written too; call `flush_head` before anything of the change is shown.
        """
        with self.lock:
            outside = read_head(self.store.head_file)

            def work(connection: Connection) -> tuple[State, T]:
                with readable(self.name):
                    state = catch_up(connection, self.state, [outside], self.name, lock=True)
                return make(connection, state)

            self.state, made = self.store.transact(work, writes=True)
            write_head(self.store.head_file, self.state.head)
            return made

    def flush_head(self) -> None:
        """Flush the head file. Call this before anything that was read or written is shown."""
        with self.lock:
            write_head(self.store.head_file, self.state.head, sync=True)

    def close(self) -> None:
        """Close the database."""
        with self.lock:
            self.store.close()


def make(where: PathName, head_file: PathName | None) -> None:
    """Make a new, empty ledger."""
    with closing(store.opened(where, head_file, new=True)) as place, readable(place.name):
        event = next_event(GENESIS, "open", {"ledger": secrets.token_hex(16)})

        def work(connection: Connection) -> None:
            store.create(connection, place.name, event.facts["ledger"], GENESIS.hash)
            write(connection, State(), event)

        place.transact(work, writes=True)


def upgrade(where: PathName, head_file: PathName | None) -> None:
    """Bring a ledger that an older hetdp wrote to the schema of this one."""
    with closing(store.opened(where, head_file)) as place, readable(place.name):

        def work(connection: Connection) -> None:
            version, _ = _stamp(connection, place.name, lock=True)
            store.migrate(connection, version, place.name)

        place.transact(work, writes=True)


@contextmanager
def readable(name: str) -> Iterator[None]:
    """Turn what a damaged entry brings about into one sentence: SQLite keeps a cell of any type in any column."""
    try:
        yield
    except HetdpError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError):
        raise refused(f"{name} is damaged: it has an entry that no ledger writes") from None


# --- Events


def events(connection: Connection, where: str = "seq > ?", cells: Sequence[Any] = (0,)) -> Iterator[Event]:
    """Yield the events that a condition picks, in order."""
    query = f"SELECT seq, kind, release, at, body, hash FROM hetdp_event WHERE {where} ORDER BY seq"  # noqa: S608  ours
    return (Event(*row) for row in run(connection, query, cells))


def find(connection: Connection, release_id: str, kind: str) -> Event | None:
    """Return the charge or the result of a release, if there is one; raise if it was changed behind our back."""
    with readable("the ledger"):
        for event in events(connection, "release = ? AND kind = ?", (release_id, kind)):
            return next(checked([event], _head_at(connection, event.seq - 1), "the ledger"))
    return None


def _head_at(connection: Connection, seq: int) -> Head:
    """Return the head as of an event; where there is no such event, the head of an empty ledger."""
    row = run(connection, "SELECT seq, hash FROM hetdp_event WHERE seq = ?", (seq,)).first()
    return GENESIS if row is None else Head(*row)


def write(connection: Connection, before: State, event: Event, moved: Mapping[str, int] | None = None) -> State:
    """Write one event, who moves to which cohort by it and what it does to the cohorts; return the state after it.

    The table of cohorts must say what the state before says, see `catch_up`. People come first, see
    `store.member_guards`, and in the order of their ids, which suits the tree of the index.
    """
    people = [(person, event.seq, cohort) for person, cohort in sorted((moved or {}).items())]
    store.insert(connection, store.MEMBER, people)
    state, known = before.after(event), len(before.table)
    differs = np.ones(len(state.table), bool)
    differs[:known] = (state.table[:known] != before.table).any(axis=1)
    changes = "ON CONFLICT (cohort) DO UPDATE SET spent = excluded.spent, people = excluded.people"
    store.insert(connection, store.COHORT, state.table[differs].tolist(), changes)
    store.insert(connection, store.EVENT, [(event.seq, event.kind, event.release, event.at, event.body, event.hash)])
    run(connection, "UPDATE hetdp_ledger SET seq = ?, hash = ?", (event.seq, event.hash))
    return state


def catch_up(
    connection: Connection, state: State, outside: Iterable[Head | None], name: str, *, lock: bool = False
) -> State:
    """Return the state with all events that it does not have yet; raise unless everything agrees.

    Checked are: the schema, the chain of the new events, that they add up, that no head known from elsewhere is
    missing, that the table of cohorts says what the state says, and that no trigger of somebody else writes to it.
    """
    version, head = _stamp(connection, name, lock=lock)
    store.check_version(version, name)
    for known in {known for known in (state.head, *outside) if known is not None}:
        _check_known(connection, known, head, name)
    for event in checked(events(connection, "seq > ?", (state.head.seq,)), state.head, name):
        state = state.after(event)
    if state.head != head:
        raise refused(f"{name} says that event {head.seq} is its last, and it is not")
    # SQLite has a number that changes when another connection has written; what this one writes follows the state.
    written = run(connection, "PRAGMA data_version").scalar() if connection.dialect.name == "sqlite" else None
    if written is None or connection.info.get("hetdp_written") != written:
        check_cohorts(connection, state, name)
        connection.info["hetdp_written"] = written
    return state


def check_cohorts(connection: Connection, state: State, name: str) -> None:
    """Raise unless the table of cohorts says what the state says, and nothing but a ledger writes to it."""
    _, foreign = store.wrong_triggers(connection)
    if foreign:
        raise refused(f"{name} has a trigger that is not its own, {foreign[0]!r}; take it away")
    rows = run(connection, "SELECT cohort, asked, budget, spent, people FROM hetdp_cohort ORDER BY cohort")
    if [*map(list, rows)] != state.table.tolist():
        raise refused(f"the balances in {name} are not what its charges add up to")


def _stamp(connection: Connection, name: str, *, lock: bool) -> tuple[int, Head]:
    """Return the version of the schema and the head that the database says; on PostgreSQL this can take the lock."""
    query = sa.select(store.LEDGER)
    try:
        found = connection.execute(query.with_for_update() if lock else query).first()
    except sa.exc.DBAPIError as error:
        if "no such table" not in str(error.orig) and "UndefinedTable" not in type(error.orig).__name__:
            raise
        found = None
    if found is None:
        raise LedgerError(f"there is no ledger in {name}; make one with: hetdp ledger init")
    return found.version, Head(found.seq, found.hash)


def _check_known(connection: Connection, known: Head, head: Head, name: str) -> None:
    """Raise unless a head that was seen before is in this ledger."""
    if known.seq > head.seq:
        raise LedgerError(
            f"{name} is an old copy: it ends at event {head.seq}, and event {known.seq} has been seen; "
            "releasing from it would spend the same budgets again: bring back the newest copy"
        )
    found = _head_at(connection, known.seq)
    if found.seq != known.seq or not found.hash.startswith(known.hash):  # one that a person wrote down may be cut short
        raise refused(
            f"{name} has another event {known.seq} than the head that was kept outside of it (in its .head file, or "
            "given by --expect-head): it is not the ledger that charged the last releases"
        )


# --- Who is in which cohort: a row for every time that a person changed cohort, never changed itself


def members(connection: Connection, upto: int, ids: Sequence[str] | None = None) -> dict[str, int]:
    """Return {person: cohort} as of an event; of some people, if they are few, or of all.

    Rows come in the order of events, so the last one of a person stays.
    """
    few = ids if ids is not None and len(ids) <= _FEW else ()
    some = f"AND person IN ({', '.join('?' * len(few))})" if few else ""
    query = f"SELECT person, cohort FROM hetdp_member WHERE event <= ? {some} ORDER BY person, event"  # noqa: S608  ours
    return dict(map(tuple, run(connection, query, (upto, *few))))


def move_facts(there: Mapping[str, int], moved: Iterable[tuple[str, int]]) -> dict[str, Any]:
    """Return what an event says of people who change cohort: how many from where to where, and a digest of who.

    `there` is where they were, `moved` the pairs (person, cohort) of where they are now.
    """
    moves, came = Counter[tuple[int, int]](), dict[int, list[str]]()
    for person, cohort in moved:
        moves[there.get(person, 0), cohort] += 1
        came.setdefault(cohort, []).append(person)
    return {
        "moves": [[*pair, people] for pair, people in sorted(moves.items())],
        "ids": {str(cohort): digest(people) for cohort, people in sorted(came.items())},
    }


def digest(ids: Iterable[str]) -> str:
    """Return a fingerprint of a set of ids. Ids are public."""
    return hashlib.sha256("\n".join(sorted(ids)).encode()).hexdigest()


# --- The whole history once more, with the rows of people


def checked_members(connection: Connection, state: State, upto: int, name: str) -> tuple[Event | None, dict[str, int]]:
    """Return an event and {person: cohort} as of it, or raise unless rows of people are those that events tell of."""
    found: tuple[Event | None, dict[str, int]] = (None, {})
    for event, there in replayed(connection, state, name):
        if event.seq == upto:
            found = (event, dict(there))
    return found


def replayed(connection: Connection, state: State, name: str) -> Iterator[tuple[Event, dict[str, int]]]:
    """Yield every event with who is in which cohort after it; raise if the rows of people tell anything else."""
    missing, _ = store.wrong_triggers(connection)
    if missing:
        raise refused(f"{name} has lost {len(missing)} of its triggers, such as {missing[0]}")
    there: dict[str, int] = {}
    rows = run(connection, "SELECT event, person, cohort FROM hetdp_member ORDER BY event")
    moves = ((event, [(p, c) for _, p, c in group]) for event, group in groupby(rows, key=lambda row: row[0]))
    head = GENESIS
    for event in checked(events(connection), GENESIS, name):
        told = {"moves": event.facts.get("moves", []), "ids": event.facts.get("ids", {})}
        seq, came = next(moves, (0, [])) if told["moves"] else (event.seq, [])
        if seq != event.seq or move_facts(there, came) != told:
            raise refused(f"the people of event {event.seq} of {name} are not those who were written down")
        there.update(came)
        head = event.head
        yield event, there
    counted = {number: now.people for number, now in state.cohorts.items() if now.people}
    if head != state.head or next(moves, None) is not None or Counter(there.values()) != Counter(counted):
        raise refused(f"people in {name} were moved between cohorts outside of hetdp")
