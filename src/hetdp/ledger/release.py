"""The order of a release: public checks, the charge on disk, the values, the result on disk, the answer.

Claim. No result leaves without a committed charge that covers it, and only one result leaves under one id.

Argument. Values are read only after the transaction with the charge has committed, and a result is handed out only
after its own transaction has; what is handed out is what that transaction found or wrote. The database allows one
charge and one result for an id, and both transactions hold the ledger's lock. So of two who carry out the same id,
after a crash or at the same time, the second finds the first one's result and its own draw is dropped unseen. A crash
after the charge leaves a charge without a result: the safe side. There are no refunds once values may have been read.
Between the charge and the values, the people of every cohort are compared with the events (`books`), so nobody is
counted in a cohort into which they were moved behind the ledger's back.

A charge stays when reading fails afterwards; the error says so. What decides a plan is public and fixed with the
charge (`charge`), so a resumed release carries out the plan that was charged, not one for the balances of today.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Protocol

from sqlalchemy import Connection

from hetdp.core.domain import Interval
from hetdp.core.plan import Plan
from hetdp.errors import ChargedError, HetdpError, InputError, LedgerError, OtherRequestError
from hetdp.files import jsonable
from hetdp.privacy.release import Release, release
from hetdp.tally.tally import Tally

from .amounts import Rule, in_epsilon
from .books import Books, checked_members, digest, find, members, move_facts, write
from .chain import Event, canonical, following
from .charge import Intent, Part, everybody, intended, parts_of, plan_facts, plan_of, split
from .state import State, costs, levels_of, pairs


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
        Whether a message may quote an id; not if ids come from the rows themselves, see `rows.ids_of`.
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
            people = {"count": len(self.people), "ids": digest(limits)}
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


def carry_out(books: Books, request: Request, read: Read, keeper: Keeper | None) -> LedgerRelease:
    """Charge a release, compute it, store it and return it; see `Ledger.carry_out`."""
    request.bounds.ordinary()  # what is charged can also be shown
    try:
        charged = books.change(lambda connection, state: _charged(connection, state, request))
    except KeyboardInterrupt:
        raise _unfinished(request.release, "may be charged already", "it was interrupted") from None
    try:
        stored = books.look(lambda connection, _: find(connection, request.release, "result"))
        if stored is None:
            unclamped = _computed(books, charged, read, keeper)
            stored = books.change(lambda connection, state: _stored(connection, state, charged, unclamped))
        books.settle()
    except (HetdpError, KeyboardInterrupt) as error:
        why = "it was interrupted" if isinstance(error, KeyboardInterrupt) else str(error)
        raise _unfinished(request.release, "is charged", why) from None
    return published(books.name, charged, stored)


def _unfinished(release_id: str, state: str, why: str) -> ChargedError:
    return ChargedError(
        f"release {release_id!r} {state} and has no result yet ({why}); run it again with the same id to finish it: "
        "it is not charged twice"
    )


def _charged(connection: Connection, state: State, request: Request) -> tuple[State, Event]:
    """Return the charge of a release: the one that is there, or a new one."""
    found = find(connection, request.release, "charge")
    if found is None:
        return _charge_now(connection, state, request)
    before, now = found.facts["request"], request.facts
    if canonical(before) != canonical(now):
        words = {
            "rule": "how much it may use",
            "plan": "the bounds, the method or the variance",
            "people": "who takes part",
            "columns": "the columns or the names of the files",
        }
        differs = [words[name] for name in now if canonical(now[name]) != canonical(before.get(name))]
        raise OtherRequestError(
            f"release id {request.release!r} stands for another request, it differs in: {', '.join(differs)}; "
            "an id is used once: choose another one"
        )
    return state, found


def _charge_now(connection: Connection, state: State, request: Request) -> tuple[State, Event]:
    if not state.people:
        raise InputError("there is nobody here (n = 0); enrol people first")
    people = _parts(connection, state, request)
    parts = everybody(state) if people is None else parts_of(people)
    intent = intended(state, parts, request.rule, request.ask)
    facts = {
        "request": request.facts,
        "plan": plan_facts(intent.plan),
        "units": intent.units,
        "people": intent.facts,
        "levels": pairs(intent.parts[:, 0], intent.place),
    }
    moved = {} if people is None else _moved(state, people, intent, facts)
    event = following(state.head, "charge", facts, request.release)
    return write(connection, state, event, moved), event


def _parts(connection: Connection, state: State, request: Request) -> dict[str, Part] | None:
    """Return for each person who takes part their cohort and what they allow; raise if one is not enrolled."""
    people = request.people
    if people is None:
        return None
    there = members(connection, state.head.seq, list(people))
    unknown = [person for person in people if person not in there]
    if unknown:
        example = f", such as {unknown[0][:64]!r}" if request.quotes else ""
        raise InputError(f"{len(unknown):,} people are not enrolled{example}; enrol them, or leave them out")
    return {person: (there[person], units) for person, units in people.items()}


def _moved(state: State, people: Mapping[str, Part], intent: Intent, facts: dict[str, Any]) -> dict[str, int]:
    """Return who changes cohort because only some of it take part, or not alike; and put that into the event."""
    new, where = split(state, intent)
    moved = {person: where[part] for person, part in people.items() if where.get(part, part[0]) != part[0]}
    places = {
        where[cohort, own]: place
        for (cohort, own, _), place in zip(intent.parts.tolist(), intent.place.tolist(), strict=True)
    }
    there = {person: cohort for person, (cohort, _) in people.items()}
    facts |= {"levels": pairs(list(places), list(places.values())), "new": new, **move_facts(there, moved)}
    return moved


def _computed(books: Books, charged: Event, read: Read, keeper: Keeper | None) -> float:
    """Read the values and draw the result. A plan that abstains reads nothing.

    The charge is taken from the chain of events once more, together with the people: what the database showed as the
    charge a moment ago may have been put there for that moment.
    """
    if keeper is not None and keeper.drawn is not None:
        return keeper.drawn
    plan = plan_of(charged.facts["plan"])
    if plan.abstains:
        return plan.interval.mid
    event, there = books.look(lambda connection, state: checked_members(connection, state, charged.seq, books.name))
    if event is None or event != charged:
        raise LedgerError(f"the charge of this release is not in the history of {books.name}; nothing was read")
    place = dict(levels_of(event.facts).tolist())
    number = release(read({p: place[c] for p, c in there.items() if c in place}, plan), plan).unclamped
    if keeper is not None:
        keeper.keep(number)
    return number


def _stored(connection: Connection, state: State, charged: Event, unclamped: float) -> tuple[State, Event]:
    """Return the stored result of a release: the one that is there, else this one. The first writer wins."""
    found = find(connection, str(charged.release), "result")
    if found is not None:
        return state, found
    event = following(state.head, "result", {"charge": charged.seq, "unclamped": unclamped.hex()}, charged.release)
    return write(connection, state, event), event


def published(name: str, charged: Event, stored: Event) -> LedgerRelease:
    """Return a stored release as it was, with what a reader should know about its people. All of it is public."""
    facts, release_id = charged.facts, str(charged.release)
    people, most = facts["people"], in_epsilon(int(costs(facts)[1].max(initial=0)))
    ((kind, amount),) = facts["request"]["rule"].items()
    cost = "of public people without limit" if most == math.inf else f"of anybody at most ε = {most:.9g}"
    notes = [
        f"Ledger {name}, release {release_id}, event {charged.seq}: it could use {Rule(kind, Fraction(amount))} "
        f"and was charged {cost}.",
        "A person counts once, with the average of their rows, and as the midpoint without a row.",
    ]
    left_out = {
        "used_up": "have nothing left of their budget and have weight 0",
        "frozen": "lowered their budget below what was spent before and have weight 0",
        "short": "have less left than the release may use and enter with what is left",
    }
    notes += [f"{people[why]:,} people {what}." for why, what in left_out.items() if people[why]]
    shown = {"name": name, "event": charged.seq, "at": charged.at, "rule": {kind: amount}, "people": people["people"]}
    shown |= {**{why: people[why] for why in left_out}, "most_charged": jsonable(most)}
    unclamped = float.fromhex(stored.facts["unclamped"])
    return LedgerRelease(plan_of(facts["plan"]), unclamped, tuple(notes), release_id=release_id, ledger=shown)
