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
charge, so a resumed release carries out the plan that was charged, not one for the balances of today.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Protocol

import numpy as np
from sqlalchemy import Connection

from hetdp.core.domain import Interval
from hetdp.core.levels import Levels, round_down
from hetdp.core.plan import Plan, plan
from hetdp.errors import ChargedError, HetdpError, InputError, LedgerError, OtherRequestError, PrivacyError
from hetdp.files import jsonable
from hetdp.privacy.exact import NoiseTerm
from hetdp.privacy.release import Release, release
from hetdp.statistics.mean import Mean
from hetdp.tally.tally import Tally

from .amounts import UNLIMITED, Floats, Ints, Rule, charges, in_epsilon, levels
from .books import Books, checked_members, digest, find, members, move_facts, write
from .chain import Event, State, canonical, costs, integers, levels_of, next_event, reals

# --- What a release is, and what comes out of it


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
        Whether a message may quote an id; not if ids come from the rows themselves, see `persons.ids_of`.
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
        rule = {self.rule.kind: str(self.rule.amount)}
        return {"rule": rule, "plan": ask, "people": people, "columns": dict(self.about)}


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
"""From {person: index of their level in the plan} and the plan to the tally."""


# --- From what people allow to a charge: who enters with which ε, the plan on that, the exact spend of each cohort

Part = tuple[int, int]
"""Some people of one cohort: the cohort, and what they allow in this release at most (`UNLIMITED`: not said)."""


@dataclass(frozen=True, eq=False)
class Intent:
    """What a release may use, and what it would do with that.

    Attributes
    ----------
    plan
        Made on everybody's allowance.
    parts, index
        The parts that enter with ε > 0 as rows (cohort, what they allow, people), and the index of each one's level
        in the plan.
    units
        What each level of the plan is charged.
    facts
        How many people take part, are left out because nothing is left, are frozen, have less left than the rule
        allows.
    """

    plan: Plan
    parts: Ints
    index: Ints
    units: Ints
    facts: dict[str, int]


def everybody(state: State) -> Ints:
    """Return all people as parts; none of them has said anything for this release."""
    cohort, people = state.table[state.table[:, 4] > 0][:, [0, 4]].T
    return np.array([cohort, np.full(cohort.size, UNLIMITED), people]).T


def intended(state: State, parts: Ints, rule: Rule, ask: Mapping[str, Any]) -> Intent:
    """Return what a release of these people would do; `ask` is what `plan` takes.

    Rows of `parts` are (cohort, what they allow, people). A cohort may come several times.
    """
    cohort, own, count = parts.T
    rows = state.rows(cohort)
    asked, spent = state.table[rows, 1], state.table[rows, 3]
    left = np.where(asked == UNLIMITED, UNLIMITED, np.maximum(asked - spent, 0))
    wanted = rule.wanted(asked, left)
    allowed = np.minimum(np.minimum(left, wanted), own)
    epsilon = levels(allowed)
    made = plan(Levels.from_arrays(epsilon, count, names=_names(state, asked, epsilon)), **ask)
    index = np.searchsorted(made.levels.epsilon, round_down(epsilon) if made.levels.rounded else epsilon)
    units = charges(made)
    if (units[index] > allowed).any():  # by the claim in `amounts` this cannot happen
        raise PrivacyError("this plan would charge more than somebody has left; nothing was released")
    frozen, empty = asked < spent, (left == 0) & (asked > 0)
    kinds = {"used_up": empty & ~frozen, "frozen": frozen, "short": (left < wanted) & (left > 0)}
    facts = {"people": int(count.sum()), **{name: int(count[kind].sum()) for name, kind in kinds.items()}}
    enters = allowed > 0
    return Intent(made, parts[enters], index[enters], units, facts)


def _names(state: State, asked: Ints, epsilon: Floats) -> dict[float, str]:
    """Return a name for each level at which all people are of tiers with names."""
    tiers: dict[float, set[str]] = {}
    if state.names:
        for units, e in zip(asked.tolist(), epsilon.tolist(), strict=True):
            tiers.setdefault(e, set()).add(state.names.get(units, ""))
    return {e: ", ".join(sorted(names)) for e, names in tiers.items() if "" not in names}


def split(state: State, intent: Intent) -> tuple[list[list[int]], dict[Part, int]]:
    """Return the cohorts to make, as an event lists them, and the cohort of each part with ε > 0 from then on.

    A cohort of which everybody enters at one level stays as it is. Otherwise each part of it goes to a cohort of its
    own, shared with parts of other cohorts that had the same balance and enter at the same level.
    """
    cohorts = intent.parts[:, 0]
    times, balances = Counter(cohorts.tolist()), state.table[state.rows(cohorts), 1:].tolist()
    where: dict[Part, int] = {}
    fresh: dict[tuple[int, ...], int] = {}
    first = int(state.table[:, 0].max(initial=0)) + 1
    for (cohort, own, count), balance, index in zip(
        intent.parts.tolist(), balances, intent.index.tolist(), strict=True
    ):
        if times[cohort] == 1 and count == balance[3]:
            where[cohort, own] = cohort
        else:
            where[cohort, own] = fresh.setdefault((*balance[:3], index), first + len(fresh))
    return [[cohort, *key[:3]] for key, cohort in fresh.items()], where


def plan_facts(made: Plan) -> dict[str, Any]:
    """Return a plan as exact plain data and columns of numbers."""
    return {
        "method": made.method,
        "bounds": [bound.hex() for bound in made.bounds],
        "epsilon": made.levels.epsilon,
        "count": made.levels.count,
        "rounded": made.levels.rounded,
        "names": {e.hex(): name for e, name in made.levels.names.items()},
        "units": made.units,
        "noise": [[term.scale.hex(), term.first, term.last] for term in made.noise],
        "threshold": None if made.threshold is None else float(made.threshold).hex(),
        "abstains": made.abstains,
        "variance": float(made.variance_bound).hex(),
        "shrink": float(made.shrink).hex(),
    }


def plan_of(facts: Mapping[str, Any]) -> Plan:
    """Return the plan that `plan_facts` gave; it passes the exact check again."""
    real = float.fromhex
    names = {real(e): name for e, name in facts["names"].items()}
    return Plan(
        facts["method"],
        Levels.from_arrays(reals(facts["epsilon"]), integers(facts["count"]), rounded=facts["rounded"], names=names),
        Mean(Interval.of([real(bound) for bound in facts["bounds"]])),
        integers(facts["units"]),
        tuple(NoiseTerm(real(scale), first, last) for scale, first, last in facts["noise"]),
        None if facts["threshold"] is None else real(facts["threshold"]),
        abstains=facts["abstains"],
        variance_bound=real(facts["variance"]),
        shrink=real(facts["shrink"]),
    )


# --- The order of a release


def carry_out(books: Books, request: Request, read: Read, keeper: Keeper | None) -> LedgerRelease:
    """Charge a release, compute it, store it and return it; see `Ledger.carry_out`."""
    request.bounds.ordinary()  # what is charged can also be shown
    try:
        charged = books.change(lambda connection, state: _charged(connection, state, request))
    except KeyboardInterrupt:
        raise _unfinished(request.release, "may be charged already", "it was interrupted") from None
    try:
        stored = books.read(lambda connection, _: find(connection, request.release, "result"))
        if stored is None:
            unclamped = _computed(books, charged, read, keeper)
            stored = books.change(lambda connection, state: _stored(connection, state, charged, unclamped))
        books.flush_head()
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
    """Charge a release. All of this is public, and nobody's balance can change before the charge is written."""
    if not state.people:
        raise InputError("there is nobody here (n = 0); enrol people first")
    if request.people is None:
        intent = intended(state, everybody(state), request.rule, request.ask)
        pairs, moves, moved = np.array([intent.parts[:, 0], intent.index]).T, {}, {}
    else:
        there = members(connection, state.head.seq, list(request.people))
        if unknown := [person for person in request.people if person not in there]:
            example = f", such as {unknown[0][:64]!r}" if request.quotes else ""
            raise InputError(f"{len(unknown):,} people are not enrolled{example}; enrol them, or leave them out")
        people = {person: (there[person], units) for person, units in request.people.items()}
        parts = [(*part, count) for part, count in Counter(people.values()).items()]
        intent = intended(state, np.array(parts, np.int64).reshape(-1, 3), request.rule, request.ask)
        new, where = split(state, intent)
        pairs = np.array([*dict(zip(where.values(), intent.index.tolist(), strict=True)).items()], np.int64)
        moved = {person: where[part] for person, part in people.items() if where.get(part, part[0]) != part[0]}
        moves = {"new": new, **move_facts(there, moved.items())}
    facts = {
        "request": request.facts,
        "plan": plan_facts(intent.plan),
        "units": intent.units,
        "people": intent.facts,
        "levels": pairs.ravel(),
    }
    event = next_event(state.head, "charge", facts | moves, request.release)
    return write(connection, state, event, moved), event


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
    event, there = books.read(lambda connection, state: checked_members(connection, state, charged.seq, books.name))
    if event is None or event != charged:
        raise LedgerError(f"the charge of this release is not in the history of {books.name}; nothing was read")
    index = dict(levels_of(event.facts).tolist())
    number = release(read({p: index[c] for p, c in there.items() if c in index}, plan), plan).unclamped
    if keeper is not None:
        keeper.keep(number)
    return number


def _stored(connection: Connection, state: State, charged: Event, unclamped: float) -> tuple[State, Event]:
    """Return the stored result of a release: the one that is there, else this one. The first writer wins."""
    found = find(connection, str(charged.release), "result")
    if found is not None:
        return state, found
    event = next_event(state.head, "result", {"charge": charged.seq, "unclamped": unclamped.hex()}, charged.release)
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
