"""The people of a ledger: their ids, their enrolment with a lifetime budget, and the rows of a source about them."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sqlalchemy import Connection

from hetdp.core.domain import BAD_ID, GRID, LONGEST_ID, NOT_IN_ID
from hetdp.core.levels import joined_names
from hetdp.core.plan import Plan
from hetdp.errors import InputError
from hetdp.sources import Form, Source
from hetdp.sources.request import normal
from hetdp.tally.groupby import Table
from hetdp.tally.tally import Tally

from .amounts import budget_units
from .books import members, move_facts, write
from .chain import State, next_event

_BAD = re.compile(f"{NOT_IN_ID}|[\ud800-\udfff]")  # half a surrogate pair cannot be written down


def clean_ids(ids: Iterable[Any], what: str = "id") -> list[str]:
    r"""Return ids as they are kept: text in Unicode's normal form C, otherwise exact; a bad one raises.

    >>> clean_ids(["007", "7", "Zoe\u0308"]) == ["007", "7", "Zoë"]
    True
    """
    found = []
    for number, cell in enumerate(ids, 1):
        if not isinstance(cell, str):
            raise InputError(
                f"an id must be text (got {type(cell).__name__} at {what} {number}); write numbers as text: '007' is "
                "not '7'"
            )
        text = normal(cell) if len(cell) <= LONGEST_ID else cell
        if not text:
            raise InputError(f"an id must not be empty (at {what} {number})")
        if len(text) > LONGEST_ID or _BAD.search(text):
            raise InputError(f"an id {BAD_ID} (at {what} {number})")
        found.append(text)
    return found


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
        said = [f"{self.added:,} people enrolled"]
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
    event = next_event(state.head, "enroll", facts)
    return write(connection, state, event, to), Enrolled(**kinds)


def budgets_of(
    source: Any, person: Any, budget: Any, tiers: Mapping[str, Any], form: Form
) -> tuple[dict[str, int], dict[int, str]]:
    """Return {person: units} and the names of tiers by their budget; a bad id or budget raises and names its place."""
    if not isinstance(tiers, Mapping) or not all(isinstance(name, str) for name in tiers):
        raise InputError(f"tiers are a mapping of names to budgets, such as {{'open': 1}} (got {type(tiers).__name__})")
    known = {name: budget_units(cell, f" for tier {name!r}") for name, cell in tiers.items()}
    mapping = isinstance(source, Mapping)
    table = not mapping and (isinstance(person, str) or isinstance(source, (str, os.PathLike)))
    if not table and (person is not None or (mapping and budget is not None)):
        raise InputError("columns are named for files and frames only; a mapping has ids and budgets itself")
    if mapping:
        pairs = _paired(list(source), list(source.values()), known)
    elif table:
        pairs = _table(source, person, budget, tiers, form)
    elif not isinstance(source, Iterable) or budget is None:
        raise InputError("enrol a mapping {id: budget}, ids with budget=…, or a table with person=… and budget=…")
    else:
        ids = list(source)
        many = isinstance(budget, Iterable) and not isinstance(budget, str)
        pairs = _paired(ids, list(budget) if many else [budget] * len(ids), known)
    found = dict(pairs)
    if len(found) < len(pairs):
        (twice, _), *_ = Counter(person for person, _ in pairs).most_common(1)
        raise InputError(f"an id comes twice, such as {twice[:64]!r}; everybody is enrolled once with one budget")
    names = joined_names((units, name) for name, units in known.items())
    return found, {int(units): name for units, name in names.items()}


def _paired(ids: Sequence[Any], cells: Sequence[Any], known: Mapping[str, int]) -> list[tuple[str, int]]:
    """Return who has which budget in units; `known` are the budgets of tiers, if cells are the names of tiers."""
    if len(ids) != len(cells):
        raise InputError(f"everybody needs one budget (got {len(ids)} ids and {len(cells)} budgets)")
    read: dict[Any, int] = {}  # most people have one of a few budgets
    found = []
    for person, cell in zip(clean_ids(ids), cells, strict=True):
        key = (type(cell), cell)
        if key not in read:
            where = f" for {person[:64]!r}"
            if known and cell not in known:
                raise InputError(f"unknown tier {str(cell)[:64]!r}{where}; the tiers are {', '.join(map(repr, known))}")
            read[key] = known[cell] if known else budget_units(cell, where)
        found.append((person, read[key]))
    return found


def _table(source: Any, person: Any, budget: Any, tiers: Mapping[str, Any], form: Form) -> list[tuple[str, int]]:
    """Return the budgets of a table. The sources read them as they read an ε: a number, inf, public or a tier."""
    if not isinstance(person, str) or not isinstance(budget, str):
        raise InputError("enrolling a table needs the names of two columns: person=… and budget=…")
    people = Source.of(source, value=None, epsilon=budget, person=person, tiers=tiers, form=form, counts_only=True)
    found: list[tuple[str, int]] = []
    units: dict[float, int] = {}
    for batch in people.batches():
        ids = clean_ids(batch.texts[person].to_list(), "row")
        cells = batch.epsilon.tolist()
        units.update({cell: budget_units(cell) for cell in set(cells) - units.keys()})
        found.extend(zip(ids, map(units.__getitem__, cells), strict=True))
    if not found:
        raise InputError("there is nobody to enrol; the table has no rows")
    return found


# --- The rows of a source: before the charge who they are about, after it their values


def source_of(source: Any, value: str | None, person: Any, form: Form | None = None) -> Source:
    """Return a source with values and the ids of whom they are about; nothing is read."""
    if person is None:
        raise InputError("a ledger needs to know who a row is about; name the column of ids: person=…")
    found = Source.of(source, value=value, epsilon=1.0, person=person, rows="average", form=form or Form())
    if found.ids is not None:
        sizes = [len(some) if hasattr(some, "__len__") else None for some in (source, found.ids)]
        if None in sizes or sizes[0] != sizes[1]:
            raise InputError(
                f"values and ids must be sequences with one entry a row (of lengths {sizes[0]}, {sizes[1]})"
            )
    return found


def ids_of(people: Source) -> list[str]:
    """Return the ids of a source whose rows are public, one row per person. What stands in other columns is not used.

    No message quotes an id: on a damaged line of a delimited file it may be a piece of the value beside it.
    """
    column = str(people.asked.person)
    ids = clean_ids(cell for batch in people.batches() for cell in batch.texts[column].to_list())
    if len(set(ids)) < len(ids):
        raise InputError("an id stands on more than one row; here everybody has one row")
    return ids


def tally_of(people: Source, levels: Mapping[str, int], plan: Plan) -> Tally:
    """Return the tally of those who take part; `levels` has the index of each one's level in the plan.

    Claim. It adds one code in {0…Q} for each of them, whatever rows the source has: nobody's values, and nobody's
    presence in the source, changes who is counted or raises.

    Argument. A person's code is the average of the codes of their rows, rounded in integers as everywhere; without a
    row it is the midpoint. A row of somebody who does not take part is nobody's, and so is one whose id no person can
    have: such a text is none of the clean ids here. Counts come from the plan. Who has ε = 0 is not in `levels`: their
    values are not looked at.
    """
    row_of = {person: i for i, person in enumerate(levels)}
    total, rows = np.zeros((2, len(row_of)), np.int64)
    for batch in people.batches():
        ids = batch.texts[str(people.asked.person)].to_list()
        at = np.array([row_of.get(normal(cell), -1) if isinstance(cell, str) else -1 for cell in ids], dtype=np.int64)
        mine = at >= 0
        found = np.asarray(batch.values)[mine]
        codes = plan.interval.codes(found, np.empty(found.size), np.empty(found.size, dtype=bool))
        np.add.at(total, at[mine], codes.astype(np.int64))
        np.add.at(rows, at[mine], 1)
    code = np.where(rows > 0, plan.interval.average(total, np.maximum(rows, 1)), GRID // 2)
    sums = np.zeros(len(plan.levels), np.int64)
    np.add.at(sums, np.fromiter(levels.values(), np.int64, len(levels)), code)
    table = Table.single(plan.levels.epsilon, plan.levels.count, sums, rounded=plan.levels.rounded)
    return Tally(table, plan.interval, plan.levels.names)
