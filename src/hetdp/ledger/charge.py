"""Releases: what one is, what it charges, and the order in which it is carried out.

The order of a release: public checks, the charge on disk, the values, the result on disk, the answer.

Claim. No result leaves without a committed charge that covers it, and only one result leaves under one id.

Argument. Values are read only after the transaction with the charge has committed, and a result is handed out only
after its own transaction has; what is handed out is what that transaction found or wrote. The database allows one
charge and one result for an id, and both transactions hold the ledger's lock. So of two who carry out the same id,
after a crash or at the same time, the second finds the first one's result and its own draw is dropped unseen. A crash
after the charge leaves a charge without a result: the safe side. There are no refunds once values may have been read.
A charge stays when reading fails afterwards; the error says so. What decides a plan is public and fixed with the
charge, so a resumed release carries out the plan that was charged, not one for the balances of today.

Several releases of different people, one for each group, are charged in one transaction, and only then are the values
of all of them read, in one pass over the source. So what is charged cannot depend on a value or on a result of the same
table, and the order of the passes is that of a single release: charges, values, and for each its draw and its result.
Whose values a draw may use is decided by its own charge alone, however many were read.

Between the charges and the values, the people of every cohort are compared with the events (`people.charged_people`): a
person moved to another cohort behind the ledger's back would otherwise be counted at an ε that was never theirs to
spend.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from sqlalchemy import Connection

from hetdp.core.accuracy import aimed_at
from hetdp.core.domain import Interval, Ints, plural
from hetdp.core.levels import WIDE, Levels
from hetdp.core.plan import Plan, plan
from hetdp.errors import ChargedError, HetdpError, InputError, LedgerError, OtherRequestError, PrivacyError
from hetdp.privacy.exact import NoiseTerm
from hetdp.privacy.release import release, unused
from hetdp.statistics import STATISTICS, Statistic
from hetdp.statistics.mean import LearnedMean, Mean, Square, learned
from hetdp.tally import Tally

from . import books
from .books import UNLIMITED, Event, Rule, State, integers, reals
from .people import charged_people, digest, members, move_facts, names_without, tiers_of
from .store import Store, find, write

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
    variance: float | str | None = None
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
        asked, ends = self.statistic, [end.hex() for end in (self.statistic.interval.lo, self.statistic.interval.hi)]
        variance = self.variance if self.variance in (None, "learn") else float(self.variance).hex()
        ask: dict[str, Any] = {"bounds": ends, "method": self.method, "variance": variance, **aim_facts(self)}
        if more := parameters(asked):
            ask |= {"statistic": asked.name, **more}
        limits = (f"{person}\t{units}" for person, units in (self.people or {}).items())
        people = "enrolled" if self.people is None else {"count": len(self.people), "ids": digest(limits)}
        rule = {self.rule.kind: str(self.rule.amount)}
        return {"rule": rule, "plan": ask, "people": people, "columns": dict(self.about)}


Numbers = Mapping[str, Sequence[float]]
"""What was drawn, by the ids of releases."""


class Keeper(Protocol):
    """Where numbers are written down before the ledger's database sees one of them, so that each is drawn once."""

    @property
    def drawn(self) -> Numbers | None:
        """The numbers that were drawn for these releases before, if they were."""

    def keep(self, numbers: Numbers) -> None:
        """Write down, all at once, the numbers that were drawn for the releases that use data."""


Part = tuple[str, Mapping[str, int], Plan]
"""A release to read for: its id, {person: index of their level in the plan}, and the plan."""

ReadAll = Callable[[Sequence[Part]], Sequence[Tally]]
"""From releases that are charged to the tally of each."""


# --- Plans as events keep them: exact plain data and columns of numbers, and back again


def plan_facts(made: Plan) -> dict[str, Any]:
    """Return a plan as exact plain data and columns of numbers."""
    return {
        "method": made.method,
        "bounds": [bound.hex() for bound in made.bounds],
        **parameters(made.statistic),
        "epsilon": made.levels.epsilon,
        "count": made.levels.count,
        "rounded": made.levels.rounded,
        **({"wide": True} if made.levels.wide else {}),
        "names": {e.hex(): name for e, name in made.levels.names.items()},
        **_drawn_facts(made),
        "threshold": None if made.threshold is None else float(made.threshold).hex(),
        "abstains": made.abstains,
        "variance": float(made.variance_bound).hex(),
        "shrink": float(made.shrink).hex(),
        **({} if made.clamp is None else {"clamp": made.clamp}),  # plans that were stored before clamps have none
        **({"learn": made.squares and _drawn_facts(made.squares)} if isinstance(made.statistic, LearnedMean) else {}),
        **aim_facts(made),
    }


def _drawn_facts(made: Plan) -> dict[str, Any]:
    return {"units": made.units, "noise": [[term.scale.hex(), term.first, term.last] for term in made.noise]}


def _drawn_of(facts: Mapping[str, Any]) -> tuple[Ints, tuple[NoiseTerm, ...]]:
    terms = (NoiseTerm(float.fromhex(scale), first, last) for scale, first, last in facts["noise"])
    return integers(facts["units"]), tuple(terms)


def parameters(statistic: Statistic) -> dict[str, Any]:
    """Return the parameters of a statistic for an event; a plain mean has none but its bounds, which stand apart.

    Events that were written before there was a choice are of such means, and count what is missing as the midpoint.
    """
    plain = statistic.name == "mean" and statistic.missing in (None, "midpoint")
    return {} if plain else {"parameters": statistic.plain}


def plan_of(facts: Mapping[str, Any], statistic: str = "mean") -> Plan:
    """Return the plan of a statistic that `plan_facts` gave; it passes the exact check again."""
    real = float.fromhex
    names = {real(e): name for e, name in facts["names"].items()}
    people, how = (reals(facts["epsilon"]), integers(facts["count"])), {"rounded": facts["rounded"], "names": names}
    levels = Levels.from_arrays(*people, **how, wide=facts.get("wide", False))
    ends = Interval.of([real(bound) for bound in facts["bounds"]])
    known = "parameters" in facts
    asked = STATISTICS[statistic].again(facts["parameters"]) if known else Mean(ends, missing="midpoint")
    asked = learned(asked) if "learn" in facts else asked
    threshold = None if facts["threshold"] is None else real(facts["threshold"])
    squares = None
    if (second := facts.get("learn")) is not None:  # it is None as well if nobody had anything left to learn from
        squares = Plan("adpm", levels, Square(ends), *_drawn_of(second), threshold=None, abstains=False)
    made = (facts["method"], levels, asked, *_drawn_of(facts), threshold, facts["abstains"])
    drift, bound, shrink = real(facts.get("drift", "0x0p+0")), real(facts["variance"]), real(facts["shrink"])
    target, clamp = aimed_at(asked, drift, facts.get("target")), facts.get("clamp")
    return Plan(*made, bound, shrink, drift=drift, target=target, squares=squares, clamp=clamp)


def aim_facts(made: Any) -> dict[str, str]:
    """Return drift and target of a plan, or of a request for one, as exact plain data.

    What is the default is left out, so that ledgers that were written before it could be stated mean the same.
    """
    people = made.target == "people" and not made.statistic.whole
    return {**({"drift": float(made.drift).hex()} if made.drift else {}), **({"target": "people"} if people else {})}


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
    names = state.level_names(asked, epsilon) | names_without({"exhausted": empty & ~frozen, "frozen": frozen}, epsilon)
    made = plan(Levels.from_arrays(epsilon, count, wide=wide, names=names), **ask)
    index = np.searchsorted(made.levels.epsilon, made.levels.like(epsilon))
    units = books.charges(made)
    if (units[index] > allowed).any():  # by the claim in `books` this cannot happen
        raise PrivacyError("this plan would charge more than somebody has left; nothing was released")
    kinds = {"used_up": empty & ~frozen, "frozen": frozen, "short": (left < wanted) & (left > 0)}
    facts = {"people": int(count.sum()), **{name: int(count[kind].sum()) for name, kind in kinds.items()}}
    enters = allowed > 0
    return Intent(made, parts[enters], index[enters], units, facts, tiers_of(asked, spent, units[index], count))


def split(state: State, parts: Ints, index: Ints) -> tuple[list[list[int]], dict[tuple[int, int], int]]:
    """Return the cohorts to make, as an event lists them, and the cohort of each part with ε > 0 from then on.

    A part is a cohort, what these people of it allow in this release (`UNLIMITED`: not said) and how many they are;
    `index` has the level of each part. A cohort of which everybody enters at one level stays as it is. Otherwise each
    part of it goes to a cohort of its own, shared with parts of other cohorts that had the same balance and enter at
    the same level.
    """
    cohorts = parts[:, 0]
    times, balances = Counter(cohorts.tolist()), state.table[state.rows(cohorts), 1:].tolist()
    where: dict[tuple[int, int], int] = {}
    fresh: dict[tuple[int, ...], int] = {}
    first = int(state.table[:, 0].max(initial=0)) + 1
    rows = zip(parts.tolist(), balances, index.tolist(), strict=True)
    for (cohort, own, count), balance, level in rows:
        if times[cohort] == 1 and count == balance[3]:
            where[cohort, own] = cohort
        else:
            where[cohort, own] = fresh.setdefault((*balance[:3], level), first + len(fresh))
    return [[cohort, *key[:3]] for key, cohort in fresh.items()], where


# --- The order of a release


def carry_out(
    store: Store, requests: Sequence[Request], read: ReadAll, keeper: Keeper | None
) -> list[tuple[Event, Event, bool]]:
    """Return the charge and the stored result of some releases, and whether it was drawn now; see `Ledger.carry_out`.

    All are charged in one transaction, before a value is read for any of them: if one cannot be charged, none is.
    """
    for request in requests:
        request.statistic.interval.ordinary()  # what is charged can also be shown
    try:
        charged = store.change(lambda connection, state: _charged(connection, state, requests))
    except KeyboardInterrupt:
        raise _unfinished(requests[0].release, "may be charged already", "it was interrupted") from None
    return [(one, *result) for one, result in zip(charged, _finished(store, charged, read, keeper), strict=True)]


def _finished(store: Store, charged: Sequence[Event], read: ReadAll, keeper: Keeper | None) -> list[tuple[Event, bool]]:
    """Return the stored results of releases that are charged: those that are there, and new ones, and which are new.

    Each is stored as soon as it is drawn. If this stops before the last one, the error names the first without a
    result, and the same request finishes those that have none.
    """
    stored: list[Event | None] = [None] * len(charged)
    waiting: list[int] = []

    def keep(one: Event, numbers: tuple[float, ...]) -> Event:
        return store.change(lambda connection, state: _stored(connection, state, one, numbers))

    try:
        stored = store.read(lambda connection, _: [find(connection, str(one.release), "result") for one in charged])
        waiting = [i for i, result in enumerate(stored) if result is None]
        drawn = _computed(store, [charged[i] for i in waiting], read, keeper)
        for i, numbers in zip(waiting, drawn, strict=True):
            stored[i] = keep(charged[i], numbers)
        store.flush_head()
    except (HetdpError, KeyboardInterrupt) as error:
        why = "it was interrupted" if isinstance(error, KeyboardInterrupt) else str(error)
        first = next((one for one, result in zip(charged, stored, strict=True) if result is None), charged[-1])
        raise _unfinished(str(first.release), "is charged", why) from None
    return [(result, i in waiting) for i, result in enumerate(stored) if result is not None]


def _unfinished(release_id: str, state: str, why: str) -> ChargedError:
    return ChargedError(
        f"release {release_id!r} {state} and has no result yet ({why}); run it again with the same id to finish it: "
        "it is not charged twice"
    )


def _charged(connection: Connection, state: State, requests: Sequence[Request]) -> tuple[State, list[Event]]:
    """Return the charge of each of some releases: the one that is there, or a new one."""
    events, there = list[Event](), dict[str, int]()
    for request in requests:
        event = charge_of(connection, request)
        if event is None:
            there = there or located(connection, state, requests)
            state, event, moved = _charge_now(connection, state, request, there)
            there.update(moved)
        events.append(event)
    return state, events


def located(connection: Connection, state: State, requests: Sequence[Request]) -> dict[str, int]:
    """Return {person: cohort} of at least those whom requests name; nobody, if they are of everybody enrolled."""
    named = [person for request in requests for person in request.people or ()]
    return members(connection, state.head.seq, named) if named else {}


def charge_of(connection: Connection, request: Request) -> Event | None:
    """Return the charge of a release, if there is one; raise if its id was charged for another request."""
    found = find(connection, request.release, "charge")
    if found is None:
        return None
    if found.facts.get("statistic") == books.EXTERNAL:
        raise OtherRequestError(
            f"release id {request.release!r} stands for a charge of another mechanism; choose another id"
        )
    words = {"plan": "the statistic, the bounds, the method, the variance, the drift or the target"}
    words |= {"rule": "how much it may use", "people": "who takes part"}
    words |= {"columns": "the columns, the groups or the names of the files"}
    refuse_other(request.release, "request", found.facts["request"], request.facts, words)
    return found


def refuse_other(
    release_id: str, what: str, before: Mapping[str, Any], now: Mapping[str, Any], words: Mapping[str, str]
) -> None:
    """Raise unless what is asked for under an id is what it was charged for; `words` say what its parts are."""
    if books.canonical(before) != books.canonical(now):
        differs = [words[name] for name in now if books.canonical(now[name]) != books.canonical(before.get(name))]
        raise OtherRequestError(
            f"release id {release_id!r} stands for another {what}, it differs in: {', '.join(differs)}; "
            "an id is used once: choose another one"
        )


def intent_of(state: State, request: Request, there: Mapping[str, int]) -> tuple[Intent, dict[str, tuple[int, int]]]:
    """Return what a release would do; if it is of some people, also of which part each is. `there`: see `located`."""
    if not state.people:
        raise InputError("there is nobody here (n = 0); enrol people first")
    if request.people is None:
        return intended(state, everybody(state), request.rule, request.ask), {}
    if unknown := [person for person in request.people if person not in there]:
        example = f", such as {unknown[0][:64]!r}" if request.quotes else ""
        raise InputError(f"not enrolled: {plural(len(unknown), 'person')}{example}; enrol them, or leave them out")
    people = {person: (there[person], units) for person, units in request.people.items()}
    parts = [(*part, count) for part, count in Counter(people.values()).items()]
    intent = intended(state, np.array(parts, np.int64).reshape(-1, 3), request.rule, request.ask)
    return intent, people


def _charge_now(
    connection: Connection, state: State, request: Request, there: Mapping[str, int]
) -> tuple[State, Event, dict[str, int]]:
    """Charge a release; return also who is in another cohort from now on.

    All of this is public, and nobody's balance can change before the charge is written.
    """
    intent, people = intent_of(state, request, there)
    if request.people is None:
        pairs, moves, moved = np.array([intent.parts[:, 0], intent.index]).T, {}, dict[str, int]()
    else:
        new, where = split(state, intent.parts, intent.index)
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
    return write(connection, state, event, moved), event, moved


def planned(charged: Event) -> Plan:
    """Return the plan that was charged."""
    return plan_of(charged.facts["plan"], charged.facts.get("statistic", "mean"))


def _computed(
    store: Store, charged: Sequence[Event], read: ReadAll, keeper: Keeper | None
) -> Iterator[tuple[float, ...]]:
    """Read the values of some releases, all at once, and draw one result after the other.

    A plan that abstains reads nothing, and neither does a release whose numbers were drawn before. With a keeper all
    are drawn and written down before the first of them is handed out.
    """
    before = keeper.drawn if charged and keeper is not None else None
    plans = [planned(one) for one in charged]
    for one, made in zip(charged, plans, strict=True):
        _covered(one, made)
    using = [(one, made) for one, made in zip(charged, plans, strict=True) if not made.abstains]
    if before is not None:
        if any(one.release not in before for one, _ in using):
            raise LedgerError("numbers were drawn for other releases than these; nothing was read")
        yield from (
            unused(made) if made.abstains else tuple(before[str(one.release)])
            for one, made in zip(charged, plans, strict=True)
        )
        return
    tallies = iter(_read(store, using, read) if using else ())
    drawn = (unused(made) if made.abstains else release(next(tallies), made).numbers for made in plans)
    if keeper is None or not using:
        yield from drawn
        return
    found = list(zip(charged, plans, drawn, strict=True))
    keeper.keep({str(one.release): numbers for one, made, numbers in found if not made.abstains})
    yield from (numbers for *_, numbers in found)


def _read(store: Store, using: Sequence[tuple[Event, Plan]], read: ReadAll) -> Sequence[Tally]:
    """Return the tally of each charge, of the people whom the events put into it; see the argument above."""
    charged = [one for one, _ in using]
    there = store.read(lambda connection, state: charged_people(connection, state, charged, store.name))
    return read([(str(one.release), levels, plan) for levels, (one, plan) in zip(there, using, strict=True)])


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
    same &= (asked["variance"] == "learn") == isinstance(plan.statistic, LearnedMean)
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
