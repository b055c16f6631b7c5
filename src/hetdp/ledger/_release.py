"""The order of a release: public checks, the charge on disk, the values, the result on disk, the answer.

Claim. No result leaves without a committed charge that covers it, and only one result leaves under one id.

Argument. Values are read only after the transaction with the charge has committed, and a result is handed out only
after its own transaction has; what is handed out is what that transaction found or wrote. The database allows one
charge and one result for an id, and both transactions hold the ledger's lock. So of two who carry out the same id,
after a crash or at the same time, the second finds the first one's result and its own draw is dropped unseen. A crash
after the charge leaves a charge without a result: the safe side. There are no refunds once values may have been read.
Between the charge and the values, the people of every cohort are compared with the events (`_verify`), so nobody is
counted in a cohort into which they were moved behind the ledger's back.

A charge stays when reading fails afterwards; the error says so. What decides a plan is public and fixed with the
charge (`_charge`), so a resumed release carries out the plan that was charged, not one for the balances of today.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from hetdp.core.domain import Interval
from hetdp.core.plan import Plan
from hetdp.errors import HetdpError, InputError
from hetdp.privacy.release import Release, release
from hetdp.tally.tally import Tally

from . import _book, _charge, _members
from ._amounts import UNLIMITED, Rule, in_epsilon
from ._book import Book
from ._chain import Event, canonical, following
from ._charge import Intent, Part, Parts
from ._errors import ChargedError, LedgerError, OtherRequestError
from ._schema import one
from ._verify import checked_members

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from . import Ledger


@dataclass(frozen=True)
class Request:
    """What a release is to be, before anything is known about balances.

    Attributes
    ----------
    release
        The id of the release.
    rule
        How much it may use of each person.
    bounds, method, variance
        As `plan` takes them.
    people
        {person: units} of those who take part and what each allows at most; None: everybody enrolled.
    about
        What else belongs to the request: names of columns and of a file. Never anything private.
    quotes
        Whether a message may quote an id; not if ids come from the rows themselves, see `_rows.ids_of`.
    """

    release: str
    rule: Rule
    bounds: Interval
    method: str = "adpm"
    variance: float | None = None
    people: Mapping[str, int] | None = None
    about: Mapping[str, Any] = field(default_factory=dict)
    quotes: bool = True

    @property
    def ask(self) -> dict[str, Any]:
        """What `plan` takes."""
        return {"bounds": self.bounds, "method": self.method, "variance": self.variance}

    @property
    def facts(self) -> dict[str, Any]:
        """The request as plain data: what the same id must mean the next time."""
        variance = None if self.variance is None else float(self.variance).hex()
        ask = {**self.ask, "bounds": [self.bounds.lo.hex(), self.bounds.hi.hex()], "variance": variance}
        people: Any = "enrolled"
        if self.people is not None:
            limits = (f"{person}\t{units}" for person, units in self.people.items())
            people = {"count": len(self.people), "ids": _members.digest(limits)}
        return {"rule": self.rule.shown, "plan": ask, "people": people, "columns": dict(self.about)}


@dataclass(frozen=True, eq=False)
class LedgerRelease(Release):
    """A release that a ledger has charged and stored. The same id gives it again, without a charge.

    Attributes
    ----------
    release_id
        The id under which it is stored.
    ledger
        What it cost and whom it left out, as plain data.
    """

    release_id: str = ""
    ledger: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self, level: float = 0.95) -> dict[str, Any]:
        """Return the release as plain data, what the ledger charged included."""
        return {**super().to_dict(level), "ledger": {"release_id": self.release_id, **self.ledger}}


class Keeper(Protocol):
    """Where a number is written down before the ledger's database sees it, so that it is drawn once."""

    @property
    def drawn(self) -> float | None:
        """The number that was drawn for this release before, if it was."""

    def keep(self, number: float) -> None:
        """Write down the number that was drawn."""


Read = Callable[[Mapping[str, int], Plan], Tally]
"""From {person: place of their level in the plan} and the plan to the tally."""


def carry_out(ledger: Ledger, request: Request, read: Read, keeper: Keeper | None) -> LedgerRelease:
    """Charge a release, compute it, store it and return it; see `Ledger.carry_out`."""
    request.bounds.ordinary()  # what is charged can also be shown
    try:
        charged = ledger.change(lambda connection, book: _charged(connection, book, request))
    except KeyboardInterrupt:
        raise _unfinished(request.release, "may be charged already", "it was interrupted") from None
    try:
        stored = ledger.look(lambda connection, _: find(connection, request.release, "result"))
        if stored is None:
            unclamped = _computed(ledger, charged, read, keeper)
            stored = ledger.change(lambda connection, book: _stored(connection, book, charged, unclamped))
        ledger.settle()
    except (HetdpError, KeyboardInterrupt) as error:
        why = "it was interrupted" if isinstance(error, KeyboardInterrupt) else str(error)
        raise _unfinished(request.release, "is charged", why) from None
    return published(ledger.name, charged, stored)


def _unfinished(release_id: str, state: str, why: str) -> ChargedError:
    return ChargedError(
        f"release {release_id!r} {state} and has no result yet ({why}); run it again with the same id to finish it: "
        "it is not charged twice"
    )


def find(connection: Connection, release_id: str, kind: str) -> Event | None:
    """Return the charge or the result of a release, if there is one."""
    query = f"SELECT {_book.EVENT} FROM hetdp_event WHERE release = ? AND kind = ?"  # noqa: S608  our own names
    row = one(connection, query, (release_id, kind))
    return None if row is None else _book.intact(connection, Event(*row))


def _charged(connection: Connection, book: Book, request: Request) -> tuple[Book, Event]:
    """Return the charge of a release: the one that is there, or a new one."""
    found = find(connection, request.release, "charge")
    if found is None:
        return _charge_now(connection, book, request)
    if canonical(found.facts["request"]) != canonical(request.facts):
        raise OtherRequestError(
            f"release id {request.release!r} stands for another request, it {_difference(found.facts, request)}; "
            "an id is used once: choose another one"
        )
    return book, found


def _difference(charged: Mapping[str, Any], request: Request) -> str:
    now, before = request.facts, charged["request"]
    words = {
        "rule": "how much it may use",
        "plan": "the bounds, the method or the variance",
        "people": "who takes part",
        "columns": "the columns or the names of the files",
    }
    return "differs in: " + ", ".join(
        words[name] for name in now if canonical(now[name]) != canonical(before.get(name))
    )


def _charge_now(connection: Connection, book: Book, request: Request) -> tuple[Book, Event]:
    if not book.people:
        raise InputError("there is nobody here (n = 0); enrol people first")
    people = _parts(connection, book, request)
    parts = Parts.everybody(book) if people is None else Parts.of(Counter(people.values()))
    intent = _charge.intended(book, parts, request.rule, request.ask)
    facts = {
        "request": request.facts,
        "plan": _charge.plan_facts(intent.plan),
        "units": intent.units,
        "people": intent.facts,
    }
    moved: dict[str, int] = {}
    if people is None:
        facts["levels"] = _book.pairs(intent.parts.cohort, intent.place)
    else:
        moved = _moved(book, people, intent, facts)
    event = following(book.head, "charge", facts, request.release)
    _members.insert(connection, event.seq, moved)
    return _book.write(connection, book, event), event


def _moved(book: Book, people: Mapping[str, Part], intent: Intent, facts: dict[str, Any]) -> dict[str, int]:
    """Return who changes cohort because only some of it take part, or not alike; and put that into the event."""
    new, where = _charge.split(book, intent)
    moved = {person: where[part] for person, part in people.items() if where.get(part, part[0]) != part[0]}
    moves = Counter((people[person][0], cohort) for person, cohort in moved.items())
    parts = zip(intent.parts.cohort.tolist(), intent.parts.own.tolist(), strict=True)
    places = {where[part]: place for part, place in zip(parts, intent.place.tolist(), strict=True)}
    facts["levels"] = _book.pairs(list(places), list(places.values()))
    facts["new"] = new
    facts["moves"] = sorted([*pair, count] for pair, count in moves.items())
    facts["ids"] = _members.digests(moved.items())
    return moved


def _parts(connection: Connection, book: Book, request: Request) -> dict[str, Part] | None:
    """Return for each person who takes part their cohort and what they allow; raise if one is not enrolled."""
    people = request.people
    if people is None:
        return None
    there = _members.members(connection, book.head.seq, list(people))
    unknown = [person for person in people if person not in there]
    if unknown:
        example = f", such as {unknown[0][:64]!r}" if request.quotes else ""
        raise InputError(f"{len(unknown):,} people are not enrolled{example}; enrol them, or leave them out")
    return {person: (there[person], units) for person, units in people.items()}


def _computed(ledger: Ledger, charged: Event, read: Read, keeper: Keeper | None) -> float:
    """Read the values and draw the result. A plan that abstains reads nothing.

    The charge is taken from the chain of events once more, together with the people: what the database showed as the
    charge a moment ago may have been put there for that moment.
    """
    if keeper is not None and keeper.drawn is not None:
        return keeper.drawn
    plan = _charge.plan_of(charged.facts["plan"])
    if plan.abstains:
        return plan.interval.mid
    event, there = ledger.look(lambda connection, book: checked_members(connection, book, charged.seq, ledger.name))
    if event is None or event != charged:
        raise LedgerError(f"the charge of this release is not in the history of {ledger.name}; nothing was read")
    place = dict(_book.levels_of(event.facts).tolist())
    number = release(read({p: place[c] for p, c in there.items() if c in place}, plan), plan).unclamped
    if keeper is not None:
        keeper.keep(number)
    return number


def _stored(connection: Connection, book: Book, charged: Event, unclamped: float) -> tuple[Book, Event]:
    """Return the stored result of a release: the one that is there, else this one. The first writer wins."""
    found = find(connection, str(charged.release), "result")
    if found is not None:
        return book, found
    event = following(book.head, "result", {"charge": charged.seq, "unclamped": unclamped.hex()}, charged.release)
    return _book.write(connection, book, event), event


def published(name: str, charged: Event, stored: Event) -> LedgerRelease:
    """Return a stored release as it was."""
    facts = charged.facts
    most = int(_book.costs(facts)[1].max(initial=0))
    shown = {
        "name": name,
        "event": charged.seq,
        "at": charged.at,
        "rule": facts["request"]["rule"],
        **{name: facts["people"][name] for name in ("people", "used_up", "frozen", "short")},
        "most_charged": "inf" if most >= UNLIMITED else in_epsilon(most),
    }
    return LedgerRelease(
        _charge.plan_of(facts["plan"]),
        float.fromhex(stored.facts["unclamped"]),
        notes(shown, str(charged.release)),
        release_id=str(charged.release),
        ledger=shown,
    )


def notes(shown: Mapping[str, Any], release_id: str) -> tuple[str, ...]:
    """Return what a reader should know about the people of a release, in sentences. All of it is public."""
    most = shown["most_charged"]
    cost = "of public people without limit" if most == "inf" else f"of anybody at most ε = {most:.9g}"
    said = [
        f"Ledger {shown['name']}, release {release_id}, event {shown['event']}: it could use "
        f"{Rule.of_shown(dict(shown['rule']))} and was charged {cost}.",
        "A person counts once, with the average of their rows, and as the midpoint without a row.",
    ]
    for key, what in (
        ("used_up", "have nothing left of their budget and have weight 0"),
        ("frozen", "lowered their budget below what was spent before and have weight 0"),
        ("short", "have less left than the release may use and enter with what is left"),
    ):
        if shown[key]:
            said.append(f"{shown[key]:,} people {what}.")
    return tuple(said)
