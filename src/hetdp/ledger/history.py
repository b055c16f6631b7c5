"""What a ledger tells: balances, everything that happened, how long budgets will last. All of it is public.

And what is done to a ledger that is not of a release: counting what a lost one may have charged.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, TypeVar

import numpy as np
from sqlalchemy import Connection

from hetdp.core.domain import Interval, jsonable, plural
from hetdp.core.plan import Plan
from hetdp.errors import InputError, LedgerError
from hetdp.report import Grid, Parts, Reported, to_html
from hetdp.statistics.answer import Group, label
from hetdp.statistics.mean import ratio

from . import books
from .books import EXTERNAL, UNLIMITED, Cohort, Rule, State, in_epsilon, refused
from .charge import Request, charge_of, everybody, intended, intent_of, located, planned
from .external import sound
from .people import enroll, indices, members, move_facts, replayed, tier_rows, warnings_of
from .store import check_cohorts, events, run, write

_MOST_RELEASES = 10_000
T = TypeVar("T", bound="_Plain")


@dataclass(frozen=True)
class _Plain:
    """What can be given as plain data."""

    def to_dict(self) -> dict[str, Any]:
        """Return this as plain data; infinities are written "inf"."""
        return dict(jsonable(asdict(self)))


class Listing(list[T]):
    """What a ledger lists: one line each in a terminal, a table in a notebook."""

    def __str__(self) -> str:
        return "\n".join(map(str, self))

    def _repr_html_(self) -> str:
        rows = [[_cell(fact) for fact in entry.to_dict().values()] for entry in self]
        headings = [name.capitalize() for name in self[0].to_dict()] if self else ["Nothing yet"]
        return to_html([Grid(headings, rows, words=len(headings))])


def _cell(fact: Any) -> str:
    if fact is None or isinstance(fact, str):
        return fact or ""
    return f"{fact:.9g}" if isinstance(fact, float) else f"{fact:,}" if not isinstance(fact, bool) else str(fact)


@dataclass(frozen=True)
class Balance(_Plain):
    """What one person, or each of some people alike, asked for, has spent and has left, in ε.

    Attributes
    ----------
    person
        The id; empty when this stands for several people (in plain data None).
    frozen
        Whether the budget was lowered below what was spent before: nothing is left unless it is raised again.
    """

    budget: float
    spent: float
    left: float
    frozen: bool
    tier: str | None = None
    people: int = 1
    person: str = ""

    @classmethod
    def of(cls, cohort: Cohort, state: State, person: str = "") -> Balance:
        """Return the balance of a `cohort` in this `state` of the ledger, or of one `person` in it."""
        amounts = in_epsilon(cohort.asked), in_epsilon(cohort.spent), in_epsilon(cohort.left)
        people = 1 if person else cohort.people  # no id is empty
        return cls(*amounts, cohort.frozen, state.names.get(cohort.asked), people, person)

    @property
    def exhausted(self) -> bool:
        """Whether nothing is left of a budget that there was."""
        return self.left == 0 < self.budget

    def to_dict(self) -> dict[str, Any]:
        """Return this as plain data; infinities are written "inf"."""
        return {**super().to_dict(), "person": self.person or None, "exhausted": self.exhausted}

    def __str__(self) -> str:
        who = self.person or plural(self.people, "person")
        tier = f" ({self.tier})" if self.tier else ""
        if math.isinf(self.budget):
            return f"{who}{tier}: public, no limit; ε = {self.spent:.9g} spent so far"
        left = "exhausted" if self.exhausted else f"ε = {self.left:.9g} left"
        left = "frozen, as less was asked for later" if self.frozen else left
        return f"{who}{tier}: ε = {self.spent:.9g} spent of {self.budget:.9g}, {left}"


@dataclass(frozen=True)
class Entry(_Plain):
    """One event, for reading.

    Attributes
    ----------
    most
        For a charge: what it cost the person who spent most; also for what was written off after a copy was lost.
    mechanism, why
        For a charge of somebody else's mechanism: how they call it. For what was written off: why.
    """

    event: int
    at: str
    kind: str
    release: str | None = None
    people: int = 0
    most: float = 0.0
    estimate: float | None = None
    mechanism: str | None = None
    why: str | None = None

    def __str__(self) -> str:
        said = {
            "open": "ledger made",
            "enroll": f"{plural(self.people, 'person')} enrolled or changed"
            + (f", ε = {self.most:.9g} at most written off as spent by a lost copy" if self.why else ""),
            "charge": f"{self.release}: charged {plural(self.people, 'person')}, at most ε = {self.most:.9g} each",
            "result": f"{self.release}: result {'' if self.estimate is None else format(self.estimate, '.6g')}",
        }
        named = f" for {self.mechanism}" if self.mechanism else ""
        at = self.at[: 16 if self.kind == "result" else 19]  # a result is stored with the minute alone
        return f"{self.event:>6}  {at:<19}  {said[self.kind]}{named}"


def balances(connection: Connection, state: State, ids: Sequence[str] | None = None) -> Listing[Balance]:
    """Return the balances of some people, or of everybody, in the order of their ids."""
    there = members(connection, state.head.seq, ids)
    return Listing(Balance.of(state.cohorts[there[p]], state, p) for p in sorted(ids or there) if p in there)


def entries(connection: Connection) -> Listing[Entry]:
    """Return everything that happened, in order."""
    found: Listing[Entry] = Listing()
    bounds: dict[str | None, list[float]] = {}
    for event in events(connection):
        facts = event.facts
        entry = Entry(event.seq, event.at, event.kind, event.release)
        if event.kind == "charge":
            units = books.integers(facts["units"])
            if facts.get("statistic") == EXTERNAL:
                people, mechanism = facts["people"]["count"], facts["request"]["mechanism"]
                entry = replace(entry, people=people, mechanism=mechanism)
            else:
                bounds[event.release] = [float.fromhex(bound) for bound in facts["plan"]["bounds"]]
                people = int(books.integers(facts["plan"]["count"])[units > 0].sum())
            entry = replace(entry, people=people, most=in_epsilon(int(units.max())))
        elif event.kind == "result":
            if facts.get("statistic", "mean") in ("mean", "proportion"):  # others are no number on that interval
                entry = replace(entry, estimate=_estimate(facts, Interval(*bounds[event.release])))
        elif event.kind == "enroll":
            most = in_epsilon(int(books.costs(facts)[1].max(initial=0)))
            moved = sum(people for *_, people in facts["moves"])
            entry = replace(entry, people=moved, most=most, why=facts.get("why"))
        found.append(entry)
    return found


def cohorts(state: State) -> Listing[Balance]:
    """Return the balances of groups of people with the same budget who have spent the same, smallest budget first.

    Several cohorts can be alike: people who came to the same by other releases.
    """
    alike: dict[Balance, int] = {}
    for cohort in state.cohorts.values():
        one = replace(Balance.of(cohort, state), people=1)
        alike[one] = alike.get(one, 0) + cohort.people
    found = (replace(one, people=people) for one, people in alike.items() if people)
    return Listing(sorted(found, key=lambda one: (one.budget, one.spent)))


def spends(connection: Connection, state: State, name: str) -> dict[str, dict[str, int]]:
    """Return what each release was charged to whom, in units; raise if the people are not those of the events."""
    found: dict[str, dict[str, int]] = {}
    for event, there in replayed(connection, state, name):
        if event.kind == "charge":
            cohorts, units = books.costs(event.facts)
            cost = dict(zip(cohorts.tolist(), units.tolist(), strict=True))
            found[str(event.release)] = {person: cost[cohort] for person, cohort in there.items() if cohort in cost}
    return found


def _estimate(facts: Mapping[str, Any], interval: Interval) -> float:
    """Return the estimate that a result holds: one number, or the two halves of those who answered."""
    if "numbers" in facts:
        upper, lower = (float.fromhex(number) for number in facts["numbers"][:2])
        return ratio(upper, lower, interval)
    return interval.clamp(float.fromhex(facts["unclamped"]))


# --- What a release would do


@dataclass(frozen=True, eq=False)
class DryRun(Reported):
    """What a release through a ledger would do. No value was read, nothing was charged or written.

    Attributes
    ----------
    release_id, rule
        The id of the release, and how much it may use of each person.
    plans
        The plan of the release; with groups, of each. A plan has the ε that each level would spend.
    tiers
        What it would do to the people of each budget: how many they are, were exhausted before and would be emptied by
        it; what it would charge at most; the least and the most that one of them would have spent and have left.
    warnings
        Which tiers it would empty, in sentences.
    done
        Whether it is charged already. Then the numbers are those of that charge, and asking again costs nothing.
    """

    release_id: str
    rule: str
    plans: Mapping[Group, Plan]
    tiers: tuple[Mapping[str, Any], ...]
    warnings: tuple[str, ...]
    done: bool

    def to_dict(self, level: float = 0.95) -> dict[str, Any]:  # noqa: ARG002  there is no interval in it
        """Return the same as plain data; infinities are written "inf"."""
        facts = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "plans"}
        errors = {label(group): plan.worst_case_error for group, plan in self.plans.items()}
        people = sum(plan.n for plan in self.plans.values())
        return dict(jsonable({"dry_run": True, **facts, "people": people, "worst_case_error": errors}))

    def parts(self, level: float) -> Parts:  # noqa: ARG002  as above
        """Return what would happen, and the tiers as a table."""
        from hetdp.report.explain import dry_run_parts

        return dry_run_parts(self)


def dry_run(connection: Connection, state: State, requests: Mapping[Group, Request], release_id: str) -> DryRun:
    """Return what some releases would do, all under one id; nothing is written."""
    plans, columns, done = dict[Group, Plan](), list[Mapping[str, Any]](), []
    there: dict[str, int] = {}
    for group, request in requests.items():
        charged = charge_of(connection, request)
        if charged is None:
            there = there or located(connection, state, list(requests.values()))
            intent, _ = intent_of(state, request, there)
            plans[group] = intent.plan
            columns.append({**intent.tiers, "names": {str(asked): name for asked, name in state.names.items()}})
        else:
            plans[group] = planned(charged)
            columns.append(charged.facts.get("tiers", {}))
        done.append(charged is not None)
    rows = _together([tier_rows(some) for some in columns])
    rule = str(next(iter(requests.values())).rule)
    return DryRun(release_id, rule, plans, tuple(rows), tuple(warnings_of(rows)), all(done))


def _together(parts: Sequence[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Return the tiers of several releases of different people as one list."""
    found: dict[float, dict[str, Any]] = {}
    for row in (row for part in parts for row in part):
        same = found.setdefault(row["budget"], row)
        if same is not row:
            pairs = {name: (*same[name], *row[name]) for name in ("spent", "left")}
            ends = {name: [min(both), max(both)] for name, both in pairs.items()}
            counts = {name: same[name] + row[name] for name in ("people", "exhausted", "emptied")}
            found[row["budget"]] = {**same, **counts, "charged": max(same["charged"], row["charged"]), **ends}
    return [found[budget] for budget in sorted(found)]


# --- After a ledger was lost: what it charged, or may have charged, counts as spent


def write_off(connection: Connection, state: State, amounts: Mapping[str, int], why: str) -> State:
    """Count units as spent that a lost ledger charged, or may have charged.

    Each person goes to a cohort of their own kind, which is then charged as by a release. A budget that is too small
    lets nobody off: it is raised to what was spent, and put back to what was asked for. Who asked for less is frozen.
    """
    there = members(connection, state.head.seq, list(amounts)) if state.people else {}
    before = {person: state.cohorts[there[person]] for person in amounts if person in there}
    kinds: dict[str, tuple[int, int, int]] = {}
    for person, amount in amounts.items():
        asked, spent = (before[person].asked, before[person].spent) if person in before else (0, 0)
        units = min(amount, UNLIMITED - spent)
        kinds[person] = (max(asked, spent + units), spent, units)
    first = max(state.cohorts, default=0) + 1
    cohort = {kind: number for number, kind in enumerate(sorted(set(kinds.values())), first)}
    to = {person: cohort[kind] for person, kind in kinds.items()}
    facts = {
        "new": [[number, asked, max(asked, spent), spent] for (asked, spent, _), number in cohort.items()],
        **move_facts(there, to.items()),
        "levels": np.array([[number, index] for index, number in enumerate(cohort.values())], np.int64).ravel(),
        "units": np.array([units for *_, units in cohort], np.int64),
        "why": why,
    }
    after = write(connection, state, books.next_event(state.head, "enroll", facts), to)
    return enroll(connection, after, {person: now.asked for person, now in before.items()}, {})[0]


# --- Verification: the whole ledger from its first event on


@dataclass(frozen=True)
class Verified(_Plain):
    """What a ledger that passed contains; the head is worth writing down elsewhere.

    `charges` and `results` are those of releases; `external` are the charges of mechanisms that are not hetdp's, which
    have no result here.
    """

    head: str
    events: int
    people: int
    cohorts: int
    charges: int
    results: int
    external: int = 0

    def __str__(self) -> str:
        pending = self.charges - self.results
        waiting = f"; {pending:,} charged without a result yet" if pending else ""
        others = f", {plural(self.external, 'charge')} of other mechanisms" if self.external else ""
        return (
            f"verified: {plural(self.events, 'event')}, {plural(self.people, 'person')} in "
            f"{plural(self.cohorts, 'cohort')}, {plural(self.charges, 'release')}{waiting}{others}\nhead {self.head}"
        )


def verify(connection: Connection, state: State, name: str) -> Verified:
    """Return what a ledger contains, or raise at its first fault."""
    if connection.dialect.name == "sqlite" and run(connection, "PRAGMA integrity_check").scalar() != "ok":
        raise LedgerError(
            f"{name} is damaged: its pages do not fit together; go back to a copy that has the newest head"
        )
    check_cohorts(connection, state, name)
    kinds: Counter[str] = Counter()
    charged: dict[str | None, int] = {}
    for event, there in replayed(connection, state, name):
        facts = event.facts
        external = event.kind == "charge" and facts.get("statistic") == EXTERNAL
        kinds[EXTERNAL if external else event.kind] += 1
        if external:
            if not sound(event, indices(event, there)):
                raise refused(f"event {event.seq} of {name} charges something else than was asked for")
        elif event.kind == "charge":
            charged[event.release] = event.seq
            if not np.array_equal(books.charges(planned(event)), books.integers(facts["units"])):
                raise refused(f"event {event.seq} of {name} charges something else than its plan spends")
        elif event.kind == "result" and facts["charge"] != charged.get(event.release):
            raise refused(f"event {event.seq} of {name} is a result without its charge")
    held = int((state.table[:, 4] > 0).sum())
    return Verified(
        str(state.head), state.head.seq, state.people, held, kinds["charge"], kinds["result"], kinds[EXTERNAL]
    )


# --- Forecast: how often the same release can be made before budgets run out, by making it on paper


@dataclass(frozen=True)
class Step:
    """One future release: its error, how many people still have weight, what each tier has left before it, in ε."""

    number: int
    worst_case_error: float
    people: int
    abstains: bool
    left: Mapping[str, float]


@dataclass(frozen=True)
class Forecast(_Plain):
    """What would happen if one release was made again and again.

    Attributes
    ----------
    steps
        The releases, one after the other; the last is the first that would use no data, unless none is looked for
        that far.
    lasts
        For each tier with a limit: after how many releases nobody of it has anything left; None if more than were
        looked at.
    exhausted
        For each of these tiers: `people`, and `after`: {releases: how many have nothing left after them}, where that
        changes; after 0 releases is now.
    """

    rule: str
    steps: tuple[Step, ...]
    lasts: Mapping[str, int | None] = field(default_factory=dict)
    exhausted: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def releases(self) -> int:
        """The number of releases that use data, of those looked at."""
        return sum(not step.abstains for step in self.steps)

    def to_dict(self) -> dict[str, Any]:
        """Return the forecast as plain data; infinities are written "inf"."""
        return {**super().to_dict(), "releases": self.releases}

    def __str__(self) -> str:
        looked = len(self.steps)
        made = f"{self.releases} or more releases" if self.releases == looked else plural(self.releases, "release")
        lines = [f"With {self.rule} you can publish {made} from the data."]
        for tier, lasts in sorted(self.lasts.items(), key=lambda item: math.inf if item[1] is None else item[1]):
            lines.append(f"  {_runs_out(tier, lasts, looked, **self.exhausted[tier])}")
        used = [step for step in self.steps if not step.abstains]
        if used:
            first, last = (
                f"± {step.worst_case_error:.4g} ({plural(step.people, 'person')} with weight)"
                for step in (used[0], used[-1])
            )
            lines.append(f"The worst-case error is {first} in the next release and {last} in the last of these.")
        return "\n".join(lines)


def _runs_out(tier: str, lasts: int | None, looked: int, people: int, after: Mapping[int, int]) -> str:
    """Return when the people of a tier have nothing left, in words."""
    if after.get(0) == people:
        return f"{tier}: nobody has anything left"
    if not after:
        return f"{plural(looked, 'more release')} do not use up {tier}"
    if after == {lasts: people}:
        return f"{plural(lasts or 0, 'more release')} {'uses' if lasts == 1 else 'use'} up {tier}"
    most = next((number for number, gone in after.items() if gone >= 0.9 * people), None)
    shown = sorted({min(after), *([most] if most is not None else []), max(after)})
    when = {0: "now"} | {number: f"after {plural(number, 'more release')}" for number in shown if number}
    told = ", ".join(f"{after[number]:,} {when[number]}" for number in shown)
    return f"{tier}: of {plural(people, 'person')} so many have nothing left: {told}"


def forecast(state: State, rule: Rule, ask: Mapping[str, Any], releases: int) -> Forecast:
    """Return what happens if everybody enrolled takes part in the same release, at most so many times."""
    if not isinstance(releases, int) or not 1 <= releases <= _MOST_RELEASES:
        raise InputError(f"look from 1 to {_MOST_RELEASES:,} releases ahead (got {str(releases)[:64]})")
    if not state.people:
        raise InputError("there is nobody here (n = 0); enrol people first")
    steps: list[Step] = []
    lasts: dict[str, int | None] = dict.fromkeys(_left(state))
    exhausted: dict[str, Any] = {tier: {"people": n, "after": {}} for tier, (n, _) in _exhausted(state).items()}

    def note(number: int, state: State) -> None:
        for tier, (people, gone) in _exhausted(state).items():
            after = exhausted[tier]["after"]
            if gone > max(after.values(), default=0):
                after[number] = gone
            if gone == people and lasts[tier] is None:
                lasts[tier] = number

    note(0, state)
    for number in range(1, releases + 1):
        intent = intended(state, everybody(state), rule, ask)
        plan = intent.plan
        people = sum(plan.levels.count[plan.units > 0].tolist())
        steps.append(Step(number, plan.worst_case_error, people, plan.abstains, _left(state)))
        state = state.charged(intent.parts[:, 0], intent.units[intent.index])
        note(number, state)
        if plan.abstains:
            break
    return Forecast(str(rule), tuple(steps), lasts, exhausted)


def _limited(state: State) -> Iterator[tuple[str, Any]]:
    """Yield the name of the tier of every cohort with a limit, and the cohort; in the order of budgets."""
    for now in sorted(state.cohorts.values()):
        if now.people and 0 < now.asked < UNLIMITED:
            budget, name = f"budget {in_epsilon(now.asked):.9g}", state.names.get(now.asked)
            yield f"the tier with {budget}" if name is None else f"tier {name} ({budget})", now


def _left(state: State) -> dict[str, float]:
    """Return what the people of each tier with a limit have left, those with most of it."""
    found: dict[str, float] = {}
    for tier, now in _limited(state):
        found[tier] = max(found.get(tier, 0.0), in_epsilon(now.left))
    return found


def _exhausted(state: State) -> dict[str, tuple[int, int]]:
    """Return for each tier with a limit how many people it has, and how many of them have nothing left."""
    found: dict[str, tuple[int, int]] = {}
    for tier, now in _limited(state):
        people, gone = found.get(tier, (0, 0))
        found[tier] = people + now.people, gone + (now.people if now.left <= 0 else 0)
    return found
