"""Who is in a ledger and who takes part in a release: enrolment, people and their groups. All of it is public."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection

from hetdp.core.domain import clean_ids, plural
from hetdp.core.levels import joined_names
from hetdp.errors import InputError
from hetdp.sources import Form, Source, group_of, natural
from hetdp.statistics.answer import Group

from . import books
from .books import UNLIMITED, State, budget_units
from .charge import members, move_facts
from .store import write


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
            if cell not in tiers:
                said = ", ".join(map(repr, tiers))
                raise InputError(f"unknown tier {str(cell)[:64]!r} for {who[:64]!r}; the tiers are {said}")
        cells = [tiers[cell] for cell in cells] if tiers else cells
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


# --- Who takes part in a release


def limits_of(people: Any, read: Any) -> dict[str, int] | None:
    """Return {person: units} of those who take part and what each allows at most; None: everybody enrolled."""
    if isinstance(people, str):
        if people == "enrolled":
            return None
        if people != "source":
            raise InputError(f"people is 'enrolled', 'source' or a list of ids (got {people[:64]!r})")
        return dict.fromkeys(_rows_of(read), UNLIMITED)
    ids = clean_ids(people)
    if len(set(ids)) < len(ids):  # in a mapping: two ways to write one id
        raise InputError("an id stands twice among the people, perhaps in two Unicode forms; name everybody once")
    if isinstance(people, Mapping):
        return {p: budget_units(cell, f" for {p!r}") for p, cell in zip(ids, people.values(), strict=True)}
    return dict.fromkeys(ids, UNLIMITED)


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
        where = dict(zip(clean_ids(by), (group_of(group, width) for group in by.values()), strict=True))
        if len(where) < len(by):
            raise InputError("an id stands twice among the people, perhaps in two Unicode forms; name everybody once")
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
