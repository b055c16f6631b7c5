"""The people of a ledger: their cohorts, enrolment, tiers, and who takes part in a release.

All of it is public; `rows` reads the values.

Claim. `replayed` yields the people of the events, or raises.

Argument. Each event that moves people carries, for each cohort, a digest of the ids that came to it, and is itself
covered by the hash chain, which must end at the head that this ledger has seen. Rows of people are compared event by
event: a row too many, too few, renamed, under another event or in another cohort changes a digest or a count, and so
does a swap of two people that leaves all counts as they are. Where somebody came from is compared too, so a false row
that was used for a later move and then taken away is noticed.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import groupby
from typing import Any

import numpy as np
from sqlalchemy import Connection

from hetdp.core.accuracy import unit_variance
from hetdp.core.cells import Categories, Edges
from hetdp.core.domain import Floats, Ints, clean_ids, plural
from hetdp.core.levels import joined_names
from hetdp.errors import InputError, LedgerError
from hetdp.report import Provenance
from hetdp.sources import Form, Source, empty_total, group_of, natural, tier_name
from hetdp.statistics import Statistic
from hetdp.statistics.answer import Group
from hetdp.statistics.bounds import PrivateInterval, origins_of
from hetdp.statistics.mean import learned
from hetdp.statistics.statistic import Answer

from . import books
from .books import GENESIS, UNLIMITED, Event, State, budget_units, in_epsilon
from .store import events, run, write, wrong_triggers

_MOST_WARNINGS = 6
_NOTHING_LEFT = "they count in no later release unless their budget is raised"
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


def charged_people(connection: Connection, state: State, charged: Sequence[Event], name: str) -> list[dict[str, int]]:
    """Return {person: index of their level in the plan} of each charge; raise unless the events tell of all of them.

    The charges are looked for in the whole chain, in one pass: what the database showed as a charge a moment ago may
    have been put there for that moment.
    """
    asked, found = {one.seq: one for one in charged}, dict[int, dict[str, int]]()
    for event, there in replayed(connection, state, name):
        if event == asked.get(event.seq):
            found[event.seq] = indices(event, there)
    if len(found) < len(asked):
        raise LedgerError(f"the charge of this release is not in the history of {name}; nothing was read")
    return [found[one.seq] for one in charged]


def indices(event: Event, there: Mapping[str, int]) -> dict[str, int]:
    """Return {person: index of their level} of those whom an event charges; `there` is who is in which cohort."""
    index = dict(books.levels_of(event.facts).tolist())
    return {person: index[cohort] for person, cohort in there.items() if cohort in index}


# --- Enrolment


@dataclass(frozen=True)
class Enrolled:
    """What an enrolment did, in people.

    Attributes
    ----------
    frozen
        Of those who lowered their budget, how many had spent more than that already. They take no part any more.
    """

    added: int = 0
    raised: int = 0
    lowered: int = 0
    frozen: int = 0
    unchanged: int = 0

    def __str__(self) -> str:
        said = [f"{plural(self.added, 'person')} enrolled"]
        said += [f"{count:,} {verb}" for verb, count in (("raised", self.raised), ("lowered", self.lowered)) if count]
        if self.frozen:
            said.append(f"{self.frozen:,} of these frozen, as they have spent more already")
        return ", ".join([*said, *([f"{self.unchanged:,} unchanged"] if self.unchanged else [])])


def enroll(
    connection: Connection, state: State, budgets: Mapping[str, int], names: Mapping[int, str]
) -> tuple[State, Enrolled]:
    """Enrol people with budgets in units; of those enrolled already, change the budget.

    A budget may be raised at any time. One that is lowered below what was spent cannot be honoured for the past: the
    person is frozen and has weight 0 from now on.
    """
    there = members(connection, state.head.seq, list(budgets)) if state.people else {}
    kinds: Counter[str] = Counter()
    moved: dict[str, tuple[int, int]] = {}  # what they ask for and have spent: those who agree in both share a cohort
    for person, asked in budgets.items():
        now = state.cohorts[there[person]] if person in there else None
        if now is None:
            kinds["added"] += 1
        elif asked == now.asked:
            kinds["unchanged"] += 1
            continue
        else:
            kinds["raised" if asked > now.asked else "lowered"] += 1
            kinds["frozen"] += asked < min(now.asked, now.spent)
        moved[person] = (asked, 0 if now is None else now.spent)
    new_names = {str(asked): name for asked, name in names.items() if state.names.get(asked) != name}
    if not moved and not new_names:
        return state, Enrolled(**kinds)
    cohort = {(now.asked, now.spent): number for number, now in sorted(state.cohorts.items(), reverse=True)}
    fresh = sorted(set(moved.values()) - cohort.keys())
    cohort |= {key: number for number, key in enumerate(fresh, max(state.cohorts, default=0) + 1)}
    to = {person: cohort[key] for person, key in moved.items()}
    new = [[cohort[asked, spent], asked, max(asked, spent), spent] for asked, spent in fresh]
    facts: dict[str, Any] = {"new": new, **move_facts(there, to.items()), **({"names": new_names} if new_names else {})}
    event = books.next_event(state.head, "enroll", facts)
    return write(connection, state, event, to), Enrolled(**kinds)


def budgets_of(
    source: Any, person: Any, budget: Any, tiers: Mapping[str, Any], form: Form
) -> tuple[dict[str, int], dict[int, str]]:
    """Return {person: units} and the names of tiers by their budget; a bad id or budget raises and names its place."""
    if not isinstance(tiers, Mapping) or not all(isinstance(name, str) for name in tiers):
        raise InputError(f"tiers are a mapping of names to budgets, such as {{'open': 1}} (got {type(tiers).__name__})")
    known = {name: budget_units(cell, f" for tier {name!r}") for name, cell in tiers.items()}
    if isinstance(person, str) or isinstance(source, (str, os.PathLike)):
        ids, cells = _table(source, person, budget, tiers, form)
    elif person is not None or not isinstance(source, Iterable) or isinstance(source, Mapping) != (budget is None):
        raise InputError("enrol a mapping {id: budget}, ids with budget=…, or a table with person=… and budget=…")
    else:
        ids, one = clean_ids(source), isinstance(budget, str) or not isinstance(budget, Iterable)
        cells = list(source.values()) if isinstance(source, Mapping) else [budget] * len(ids) if one else list(budget)
        if len(ids) != len(cells):
            raise InputError(f"everybody needs one budget (got {len(ids)} ids and {len(cells)} budgets)")
        for who, cell in zip(ids, cells, strict=True) if tiers else ():
            if tier_name(cell) not in tiers:
                said = ", ".join(map(repr, tiers))
                raise InputError(f"unknown tier {str(cell)[:64]!r} for {who[:64]!r}; the tiers are {said}")
        cells = [tiers[str(tier_name(cell))] for cell in cells] if tiers else cells
    # Most people have one of a few budgets, and each is read once. Its type belongs to it: to a dict True is 1.
    some = {(type(cell), cell): who for who, cell in zip(ids, cells, strict=True)}
    units = {key: budget_units(key[1], f" for {who[:64]!r}") for key, who in some.items()}
    found = {who: units[type(cell), cell] for who, cell in zip(ids, cells, strict=True)}
    if len(found) < len(ids):
        ((twice, _),) = Counter(ids).most_common(1)
        raise InputError(f"an id comes twice, such as {twice[:64]!r}; everybody is enrolled once with one budget")
    names = joined_names((amount, name) for name, amount in known.items())
    return found, {int(amount): name for amount, name in names.items()}


def _table(source: Any, person: Any, budget: Any, tiers: Mapping[str, Any], form: Form) -> tuple[list[str], list[Any]]:
    """Return the ids and budgets of a table. A budget is read as an ε is: a number, inf, public or a tier."""
    if not isinstance(person, str) or not isinstance(budget, str):
        raise InputError("enrolling a table needs the names of two columns: person=… and budget=…")
    people = Source.of(source, value=None, epsilon=budget, person=person, tiers=tiers, form=form, counts_only=True)
    ids: list[str] = []
    cells: list[Any] = []
    for batch in people.batches():
        ids += clean_ids(batch.texts[person].to_list(), "row")
        cells += batch.epsilon.tolist()
    if not ids:
        raise InputError("there is nobody to enrol; the table has no rows")
    return ids, cells


# --- Tiers: people with the same budget, and what a charge does to them


def names_without(kinds: Mapping[str, Any], epsilon: Floats) -> dict[float, str]:
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


def tier_rows(columns: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the columns of `charge.tiers_of`, as an event keeps them, as a row for each budget; amounts in ε."""
    names = columns.get("names", {})
    kept = {name: books.integers(column).tolist() for name, column in columns.items() if name != "names"}
    rows = [dict(zip(kept, row, strict=True)) for row in zip(*kept.values(), strict=True)]
    return [
        {
            "name": names.get(str(row["budget"])),
            "budget": in_epsilon(row["budget"]),
            **{name: row[name] for name in ("people", "exhausted", "emptied")},
            "charged": in_epsilon(row["charged"]),
            "spent": [in_epsilon(row["least_spent"]), in_epsilon(row["most_spent"])],
            "left": [in_epsilon(row["least_left"]), in_epsilon(row["most_left"])],
        }
        for row in rows
    ]


def warnings_of(tiers: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a sentence for each tier whose people have nothing left after the charge, because of it."""
    said = []
    for row in tiers:
        if row["emptied"]:
            budget = f"budget {row['budget']:.9g}"
            tier = f"tier {row['name']} ({budget})" if row["name"] else f"the tier with {budget}"
            who = f"{row['emptied']:,} of {row['people']:,} people"
            who = f"all {row['people']:,} people" if row["emptied"] == row["people"] else who
            who = "the one person" if row["people"] == 1 else who
            said.append(f"this release uses up the budget of {who} of {tier}; {_NOTHING_LEFT}")
    if len(said) > _MOST_WARNINGS:
        gone, count = sum(row["emptied"] for row in tiers), len(said)
        return [f"this release uses up the budget of {gone:,} people of {count:,} tiers; {_NOTHING_LEFT}"]
    return said


# --- Who takes part in a release


def limits_of(people: Any, read: Any) -> dict[str, int] | None:
    """Return {person: units} of those who take part and what each allows at most; None: everybody enrolled."""
    if isinstance(people, str):
        if people == "enrolled":
            return None
        if people != "source":
            raise InputError(f"people is 'enrolled', 'source' or a list of ids (got {people[:64]!r})")
        return dict.fromkeys(_rows_of(read), UNLIMITED)
    ids = named_once(people)
    if isinstance(people, Mapping):
        return {p: budget_units(cell, f" for {p!r}") for p, cell in zip(ids, people.values(), strict=True)}
    return dict.fromkeys(ids, UNLIMITED)


def named_once(people: Iterable[str]) -> list[str]:
    """Return the ids of people, as they are kept; raise if one stands twice: in a mapping, in two ways to write it."""
    ids = clean_ids(people)
    if len(set(ids)) < len(ids):
        raise InputError("an id stands twice among the people, perhaps in two Unicode forms; name everybody once")
    return ids


def _rows_of(people: Source) -> dict[str, Group]:
    """Return {id: group} of a source whose rows are public, one row per person. Private columns are not used.

    No message quotes an id: on a damaged line of a delimited file it may be a piece of the value beside it.
    """
    asked, ids, groups = people.asked, list[str](), list[Group]()
    for batch in people.batches():
        ids += clean_ids(batch.texts[str(asked.person)].to_list())
        columns = [batch.texts[name].to_list() for name in asked.groupings]
        if any(None in column for column in columns):
            raise InputError("the group is missing in at least one row; every row needs one")
        groups += map(asked.group_of, zip(*columns, strict=True)) if columns else [""] * (len(ids) - len(groups))
    found = dict(zip(ids, groups, strict=True))
    if len(found) < len(ids):
        raise InputError("an id stands on more than one row; here everybody has one row")
    return found


def grouped(people: Any, read: Source, by: Any, named: Any) -> tuple[tuple[str, ...], dict[Group, dict[str, int]]]:
    """Return the columns that make the groups, and {group: {person: units}}: who takes part and what each allows.

    Everybody is in one group, because each person has one entry in the mapping, or one row in the source.
    """
    if isinstance(by, Mapping):
        width = max((len(group) for group in by.values() if isinstance(group, (tuple, list))), default=1)
        where = dict(zip(named_once(by), (group_of(group, width) for group in by.values()), strict=True))
        limits = limits_of(people, read)
        limits = dict.fromkeys(where, UNLIMITED) if limits is None else limits
        if missing := sum(person not in where for person in limits):
            raise InputError(f"{missing:,} of those who take part have no group; by= has one for each: {{id: group}}")
        columns = ("group",) if width == 1 else tuple(f"group {i + 1}" for i in range(width))
    elif people != "source" or not read.asked.groupings:
        raise InputError(
            "the groups of people come from their rows, and who is enrolled may have none: say people='source' "
            "(--people source) if it is public who has a row, or give the groups themselves: by={id: group}"
        )
    else:
        where, columns = _rows_of(read), read.asked.groupings
        limits = dict.fromkeys(where, UNLIMITED)
    there = sorted({where[person] for person in limits}, key=natural)
    order = there if named is None else list(dict.fromkeys(group_of(group, len(columns)) for group in named))
    if unknown := set(there) - set(order):
        raise InputError(f"{len(unknown):,} groups are not in the list of groups; add them")
    found: dict[Group, dict[str, int]] = {group: {} for group in order}
    for person, units in limits.items():
        found[where[person]][person] = units
    return columns, found


# --- What is asked, and what is handed out

_NEEDED = {
    "person": "the column of ids, or with values in memory the ids",
    "release_id": "a name that you choose; the same name and request give the stored result again, without a charge",
}
COUNTED = "A person counts once, with the average of their rows that have a value; without one they are missing."
ADDED = (
    "A person counts once, with the total of their rows that have a value, clipped to the bounds; without one they are "
    "missing."
)
SORTED = (
    "a person with several rows counts once, in the first of their cells as the cells are listed; in a proportion or "
    "count they are counted if any of their rows is"
)


def is_sorted(statistic: Statistic) -> bool:
    """Say whether people are sorted into cells by what they say, so that a person has one cell."""
    return isinstance(statistic.sorting, (Categories, Edges))


def as_asked(answer: Answer, drawn: Any, statistic: Any, about: Provenance, people: Any) -> Answer:
    """Return an answer with what its events do not keep: columns, sources, private bounds, who was to take part."""
    if statistic.private_bounds:
        stored: Any = answer.plan.statistic
        answer = replace(answer, plan=replace(answer.plan, statistic=replace(stored, bounds=statistic.bounds)))
    known = {**answer.ledger, "who": people if isinstance(people, str) else "listed"}
    known |= {} if drawn or answer.plan.abstains else {"stored": True}  # else corrected data would seem to be in it
    return replace(answer, about=replace(about, released=answer.about.released), ledger=known)


def for_ledger(statistic: Statistic) -> Statistic:
    """Return a statistic whose private bounds say that a ledger has charged them; refuse those of which it has not."""
    for origin in origins_of([statistic]):
        if not origin.release_id:
            raise InputError(
                "these private bounds were found outside of a ledger, which does not know what they spent; ask the "
                "ledger for them: ledger.ask(…, hetdp.ask.bounds(outer=…), …)"
            )
    kept = {f.name: _charged(getattr(statistic, f.name)) for f in fields(statistic) if f.name == "bounds"}
    return replace(statistic, **kept)


def _charged(bounds: Any) -> Any:
    if isinstance(bounds, PrivateInterval):
        return replace(bounds, charged=True)
    return tuple((name, _charged(ends)) for name, ends in bounds) if isinstance(bounds, tuple) else bounds


def required(function: str, given: Collection[str]) -> None:
    """Raise, in the name of the method that was called, for what every release has to be told and was not."""
    for name, what in _NEEDED.items():
        if name not in given:
            raise TypeError(f"{function} needs {name}=…: {what}")


def check_asked(statistic: Statistic, variance: Any) -> None:
    """Raise for a variance that is none or cannot be learned, and for a sum with private bounds, those of one row."""
    if isinstance(statistic, Mapping):
        raise InputError("a ledger answers one question a release; ask each by itself, with a release_id of its own")
    if not isinstance(statistic, Statistic):
        raise InputError(
            f"a question is made by hetdp.ask, as hetdp.ask.mean(bounds=…) (got {type(statistic).__name__})"
        )
    if variance is not None:
        learned(statistic) if variance == "learn" else unit_variance(variance, statistic.interval.ordinary())
    if statistic.name == "sum" and statistic.private_bounds:
        raise InputError("a sum through a ledger adds up a person's rows; give public bounds of a person's total")


def refuse_empty_totals(statistic: Statistic, found: Mapping[Group, Mapping[str, int]]) -> None:
    """Raise for a sum or a count over nobody, before anything is planned or charged."""
    if empty := [group for group, people in found.items() if statistic.whole and not people]:
        raise empty_total(statistic, empty[0])
