"""What changes balances: people are enrolled, and releases are charged and carried out.

The order of a release: public checks, the charge on disk, the values, the result on disk, the answer.

Claim. No result leaves without a committed charge that covers it, and only one result leaves under one id.

Argument. Values are read only after the transaction with the charge has committed, and a result is handed out only
after its own transaction has; what is handed out is what that transaction found or wrote. The database allows one
charge and one result for an id, and both transactions hold the ledger's lock. So of two who carry out the same id,
after a crash or at the same time, the second finds the first one's result and its own draw is dropped unseen. A crash
after the charge leaves a charge without a result: the safe side. There are no refunds once values may have been read.
A charge stays when reading fails afterwards; the error says so. What decides a plan is public and fixed with the
charge, so a resumed release carries out the plan that was charged, not one for the balances of today.

Between the charge and the values, the people of every cohort are compared with the events: a person moved to another
cohort behind the ledger's back would otherwise be counted at an ε that was never theirs to spend.

Claim. `replayed` yields the people of the events, or raises.

Argument. Each event that moves people carries, for each cohort, a digest of the ids that came to it, and is itself
covered by the hash chain, which must end at the head that this ledger has seen. Rows of people are compared event by
event: a row too many, too few, renamed, under another event or in another cohort changes a digest or a count, and so
does a swap of two people that leaves all counts as they are. Where somebody came from is compared too, so a false row
that was used for a later move and then taken away is noticed.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Protocol

import numpy as np
from sqlalchemy import Connection

from hetdp.core.domain import plural
from hetdp.core.levels import WIDE, Levels
from hetdp.core.plan import Plan, plan
from hetdp.errors import ChargedError, HetdpError, InputError, LedgerError, OtherRequestError, PrivacyError
from hetdp.privacy.release import release, unused
from hetdp.statistics import Statistic
from hetdp.tally.tally import Tally

from . import books
from .books import GENESIS, UNLIMITED, Event, Floats, Ints, Rule, State
from .plans import aim_facts, parameters, plan_facts, plan_of
from .store import Store, events, find, run, write, wrong_triggers

_FEW = 500
"""So many people are asked for by their ids; of more, all are read."""

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


def replayed(connection: Connection, state: State, name: str) -> Iterator[tuple[Event, dict[str, int]]]:
    """Yield every event with who is in which cohort after it; raise if the rows of people tell anything else."""
    missing, _ = wrong_triggers(connection)
    if missing:
        raise books.refused(f"{name} has lost {len(missing)} of its triggers, such as {missing[0]}")
    there: dict[str, int] = {}
    rows = run(connection, "SELECT event, person, cohort FROM hetdp_member ORDER BY event")
    moves = ((event, [(p, c) for _, p, c in group]) for event, group in groupby(rows, key=lambda row: row[0]))
    head = GENESIS
    for event in books.checked(events(connection), GENESIS, name):
        told = {"moves": event.facts.get("moves", []), "ids": event.facts.get("ids", {})}
        seq, came = next(moves, (0, [])) if told["moves"] else (event.seq, [])
        if seq != event.seq or move_facts(there, came) != told:
            raise books.refused(f"the people of event {event.seq} of {name} are not those who were written down")
        there.update(came)
        head = event.head
        yield event, there
    counted = {number: now.people for number, now in state.cohorts.items() if now.people}
    if head != state.head or next(moves, None) is not None or Counter(there.values()) != Counter(counted):
        raise books.refused(f"people in {name} were moved between cohorts outside of hetdp")


def charged_people(connection: Connection, state: State, charged: Event, name: str) -> dict[str, int]:
    """Return {person: cohort} as of a charge, or raise unless the events tell of this charge and of these people.

    The charge is looked for in the whole chain: what the database showed as the charge a moment ago may have been put
    there for that moment.
    """
    found = None
    for event, there in replayed(connection, state, name):
        if event == charged:
            found = dict(there)
    if found is None:
        raise LedgerError(f"the charge of this release is not in the history of {name}; nothing was read")
    return found


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
    statistic, method, variance, drift, target
        As `plan` takes them.
    people
        {person: units} of those who take part and what each allows at most; None: everybody enrolled.
    about
        What else belongs to the request: names of columns and of a file. Never anything private.
    quotes
        Whether a message may quote an id; not if ids come from the rows themselves.
    """

    release: str
    rule: Rule
    statistic: Statistic
    method: str = "adpm"
    variance: float | None = None
    people: Mapping[str, int] | None = None
    about: Mapping[str, Any] = field(default_factory=dict)
    quotes: bool = True
    drift: float = 0.0
    target: str | None = None

    @property
    def ask(self) -> dict[str, Any]:
        """What `plan` takes."""
        return {name: getattr(self, name) for name in ("statistic", "method", "variance", "drift", "target")}

    @property
    def facts(self) -> dict[str, Any]:
        """The request as plain data: what the same id must mean the next time."""
        variance, asked = None if self.variance is None else float(self.variance).hex(), self.statistic
        ends = [asked.interval.lo.hex(), asked.interval.hi.hex()]
        ask: dict[str, Any] = {"bounds": ends, "method": self.method, "variance": variance, **aim_facts(self)}
        if more := parameters(asked):
            ask |= {"statistic": asked.name, **more}
        limits = (f"{person}\t{units}" for person, units in (self.people or {}).items())
        people = "enrolled" if self.people is None else {"count": len(self.people), "ids": digest(limits)}
        rule = {self.rule.kind: str(self.rule.amount)}
        return {"rule": rule, "plan": ask, "people": people, "columns": dict(self.about)}


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


@dataclass(frozen=True, eq=False)
class Intent:
    """What a release may use, and what it would do with that.

    Attributes
    ----------
    plan
        Made on everybody's allowance.
    parts, index
        The people who enter with ε > 0 as rows (cohort, what they allow in this release, people), and the index of each
        row's level in the plan.
    units
        What each level of the plan is charged.
    facts
        How many people take part, are left out because nothing is left, are frozen, have less left than the rule
        allows.
    tiers
        What this does to the people of each budget, see `tiers_of`.
    """

    plan: Plan
    parts: Ints
    index: Ints
    units: Ints
    facts: dict[str, int]
    tiers: dict[str, Ints]


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
    epsilon = books.levels(allowed)
    wide = ask["statistic"].width > WIDE
    frozen, empty = asked < spent, (left == 0) & (asked > 0)
    names = _names(state, asked, epsilon) | _without({"exhausted": empty & ~frozen, "frozen": frozen}, epsilon)
    made = plan(Levels.from_arrays(epsilon, count, wide=wide, names=names), **ask)
    index = np.searchsorted(made.levels.epsilon, made.levels.like(epsilon))
    units = books.charges(made)
    if (units[index] > allowed).any():  # by the claim in `books` this cannot happen
        raise PrivacyError("this plan would charge more than somebody has left; nothing was released")
    kinds = {"used_up": empty & ~frozen, "frozen": frozen, "short": (left < wanted) & (left > 0)}
    facts = {"people": int(count.sum()), **{name: int(count[kind].sum()) for name, kind in kinds.items()}}
    enters = allowed > 0
    return Intent(made, parts[enters], index[enters], units, facts, tiers_of(asked, spent, units[index], count))


def _names(state: State, asked: Ints, epsilon: Floats) -> dict[float, str]:
    """Return a name for each level at which all people are of tiers with names."""
    tiers: dict[float, set[str]] = {}
    if state.names:
        for units, e in zip(asked.tolist(), epsilon.tolist(), strict=True):
            tiers.setdefault(e, set()).add(state.names.get(units, ""))
    return {e: ", ".join(sorted(names)) for e, names in tiers.items() if "" not in names}


def _without(kinds: Mapping[str, Any], epsilon: Floats) -> dict[float, str]:
    """Return the name of the level 0 if people are there who have nothing left; they did not ask for 0."""
    found = [name for name, kind in kinds.items() if kind.any()]
    others = ((epsilon == 0) & ~np.logical_or.reduce(list(kinds.values()))).any()
    return {0.0: ", ".join([*found, *(["never use"] if others else [])])} if found else {}


def tiers_of(asked: Ints, spent: Ints, charged: Ints, count: Ints) -> dict[str, Ints]:
    """Return what a charge does to the people of each budget, as columns with an entry a budget.

    Of `people`, `exhausted` had nothing left before, and `emptied` have nothing left because of this charge. Amounts
    are in units: what is `charged` at most, and after it the least and the most that one of them has spent and left.
    """
    budget, row = np.unique(asked, return_inverse=True)
    limited = asked < UNLIMITED
    before = np.where(limited, np.maximum(asked - spent, 0), UNLIMITED)
    after = np.where(limited, before - charged, UNLIMITED)
    paid = np.minimum(spent + charged, UNLIMITED)
    had, gone = (before == 0) & (asked > 0), (before > 0) & (after == 0)
    people = {"people": count, "exhausted": np.where(had, count, 0), "emptied": np.where(gone, count, 0)}
    found = {name: np.bincount(row, some).astype(np.int64) for name, some in people.items()}
    for name, amount, which in (
        ("charged", charged, np.maximum),
        ("least_spent", paid, np.minimum),
        ("most_spent", paid, np.maximum),
        ("least_left", after, np.minimum),
        ("most_left", after, np.maximum),
    ):
        found[name] = np.full(budget.size, 0 if which is np.maximum else UNLIMITED)
        which.at(found[name], row, amount)
    return {"budget": budget, **found}


def split(state: State, intent: Intent) -> tuple[list[list[int]], dict[tuple[int, int], int]]:
    """Return the cohorts to make, as an event lists them, and the cohort of each part with ε > 0 from then on.

    A part is a cohort and what these people of it allow in this release (`UNLIMITED`: not said). A cohort of which
    everybody enters at one level stays as it is. Otherwise each part of it goes to a cohort of its own, shared with
    parts of other cohorts that had the same balance and enter at the same level.
    """
    cohorts = intent.parts[:, 0]
    times, balances = Counter(cohorts.tolist()), state.table[state.rows(cohorts), 1:].tolist()
    where: dict[tuple[int, int], int] = {}
    fresh: dict[tuple[int, ...], int] = {}
    first = int(state.table[:, 0].max(initial=0)) + 1
    rows = zip(intent.parts.tolist(), balances, intent.index.tolist(), strict=True)
    for (cohort, own, count), balance, index in rows:
        if times[cohort] == 1 and count == balance[3]:
            where[cohort, own] = cohort
        else:
            where[cohort, own] = fresh.setdefault((*balance[:3], index), first + len(fresh))
    return [[cohort, *key[:3]] for key, cohort in fresh.items()], where


# --- The order of a release


def carry_out(
    store: Store, requests: Sequence[Request], read: Read, keeper: Keeper | None
) -> list[tuple[Event, Event]]:
    """Return the charge and the stored result of each of some releases; see `Ledger.carry_out`.

    All are charged in one transaction, before a value is read for any of them: if one cannot be charged, none is.
    """
    for request in requests:
        request.statistic.interval.ordinary()  # what is charged can also be shown

    def work(connection: Connection, state: State) -> tuple[State, list[Event]]:
        events = []
        for request in requests:
            state, event = _charged(connection, state, request)
            events.append(event)
        return state, events

    try:
        charged = store.change(work)
    except KeyboardInterrupt:
        raise _unfinished(requests[0].release, "may be charged already", "it was interrupted") from None
    return [(event, _finished(store, event, read, keeper)) for event in charged]


def _finished(store: Store, charged: Event, read: Read, keeper: Keeper | None) -> Event:
    """Return the stored result of a release that is charged: the one that is there, or a new one."""
    release_id = str(charged.release)
    try:
        stored = store.read(lambda connection, _: find(connection, release_id, "result"))
        if stored is None:
            numbers = _computed(store, charged, read, keeper)
            stored = store.change(lambda connection, state: _stored(connection, state, charged, numbers))
        store.flush_head()
    except (HetdpError, KeyboardInterrupt) as error:
        why = "it was interrupted" if isinstance(error, KeyboardInterrupt) else str(error)
        raise _unfinished(release_id, "is charged", why) from None
    return stored


def _unfinished(release_id: str, state: str, why: str) -> ChargedError:
    return ChargedError(
        f"release {release_id!r} {state} and has no result yet ({why}); run it again with the same id to finish it: "
        "it is not charged twice"
    )


def _charged(connection: Connection, state: State, request: Request) -> tuple[State, Event]:
    """Return the charge of a release: the one that is there, or a new one."""
    found = charge_of(connection, request)
    return _charge_now(connection, state, request) if found is None else (state, found)


def charge_of(connection: Connection, request: Request) -> Event | None:
    """Return the charge of a release, if there is one; raise if its id was charged for another request."""
    found = find(connection, request.release, "charge")
    if found is None:
        return None
    before, now = found.facts["request"], request.facts
    if books.canonical(before) != books.canonical(now):
        words = {"plan": "the statistic, the bounds, the method, the variance, the drift or the target"}
        words |= {"rule": "how much it may use", "people": "who takes part"}
        words |= {"columns": "the columns, the groups or the names of the files"}
        differs = [words[name] for name in now if books.canonical(now[name]) != books.canonical(before.get(name))]
        raise OtherRequestError(
            f"release id {request.release!r} stands for another request, it differs in: {', '.join(differs)}; "
            "an id is used once: choose another one"
        )
    return found


def intent_of(
    connection: Connection, state: State, request: Request
) -> tuple[Intent, dict[str, int], dict[str, tuple[int, int]]]:
    """Return what a release would do; if it is of some people, also where they are and of which part each is."""
    if not state.people:
        raise InputError("there is nobody here (n = 0); enrol people first")
    if request.people is None:
        return intended(state, everybody(state), request.rule, request.ask), {}, {}
    there = members(connection, state.head.seq, list(request.people))
    if unknown := [person for person in request.people if person not in there]:
        example = f", such as {unknown[0][:64]!r}" if request.quotes else ""
        raise InputError(f"not enrolled: {plural(len(unknown), 'person')}{example}; enrol them, or leave them out")
    people = {person: (there[person], units) for person, units in request.people.items()}
    parts = [(*part, count) for part, count in Counter(people.values()).items()]
    intent = intended(state, np.array(parts, np.int64).reshape(-1, 3), request.rule, request.ask)
    return intent, there, people


def _charge_now(connection: Connection, state: State, request: Request) -> tuple[State, Event]:
    """Charge a release. All of this is public, and nobody's balance can change before the charge is written."""
    intent, there, people = intent_of(connection, state, request)
    if request.people is None:
        pairs, moves, moved = np.array([intent.parts[:, 0], intent.index]).T, {}, {}
    else:
        new, where = split(state, intent)
        pairs = np.array([*dict(zip(where.values(), intent.index.tolist(), strict=True)).items()], np.int64)
        moved = {person: where[part] for person, part in people.items() if where.get(part, part[0]) != part[0]}
        moves = {"new": new, **move_facts(there, moved.items())}
    facts = {
        "statistic": request.statistic.name,
        "request": request.facts,
        "plan": plan_facts(intent.plan),
        "units": intent.units,
        "people": intent.facts,
        "tiers": {**intent.tiers, "names": {str(asked): name for asked, name in state.names.items()}},
        "levels": pairs.ravel(),
    }
    event = books.next_event(state.head, "charge", facts | moves, request.release)
    return write(connection, state, event, moved), event


def planned(charged: Event) -> Plan:
    """Return the plan that was charged."""
    return plan_of(charged.facts["plan"], charged.facts.get("statistic", "mean"))


def _computed(store: Store, charged: Event, read: Read, keeper: Keeper | None) -> tuple[float, ...]:
    """Read the values and draw the result. A plan that abstains reads nothing."""
    if keeper is not None and keeper.drawn is not None:
        return (keeper.drawn,)
    plan = planned(charged)
    _covered(charged, plan)
    if plan.abstains:
        return unused(plan)
    there = store.read(lambda connection, state: charged_people(connection, state, charged, store.name))
    index = dict(books.levels_of(charged.facts).tolist())
    numbers = release(read({p: index[c] for p, c in there.items() if c in index}, plan), plan).numbers
    if keeper is not None:
        (number,) = numbers
        keeper.keep(number)
    return numbers


def _covered(charged: Event, plan: Plan) -> None:
    """Raise unless the charge is what the plan spends, and the plan what was asked for.

    Whoever can write to the database can append an event; what it charges and what it does must not differ.
    """
    facts = charged.facts
    places, asked = books.levels_of(facts)[:, 1], facts["request"]["plan"]
    spends = np.array_equal(books.charges(plan), books.integers(facts["units"]))
    same = asked.get("statistic", "mean") == plan.statistic.name
    same &= asked.get("parameters", plan.statistic.plain) == plan.statistic.plain
    same &= {name: asked[name] for name in ("drift", "target") if name in asked} == aim_facts(plan)
    same &= asked["bounds"] == [bound.hex() for bound in plan.bounds] and asked["method"] == plan.method
    if not spends or not same or ((places < 0) | (places >= len(plan.levels))).any():
        raise LedgerError("the charge of this release is not what its plan spends; nothing was read")


def _stored(connection: Connection, state: State, charged: Event, numbers: tuple[float, ...]) -> tuple[State, Event]:
    """Return the stored result of a release: the one that is there, else this one. The first writer wins."""
    found = find(connection, str(charged.release), "result")
    if found is not None:
        return state, found
    drawn = [number.hex() for number in numbers]
    one = {"unclamped": drawn[0]} if len(drawn) == 1 else {"numbers": drawn}
    facts = {"charge": charged.seq, "statistic": charged.facts.get("statistic", "mean"), **one}
    event = books.next_event(state.head, "result", facts, charged.release)
    return write(connection, state, event), event
