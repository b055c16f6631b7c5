"""Who is to be enrolled, and with which budget, as callers give it."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hetdp.errors import InputError
from hetdp.sources import Form, Source, tiers_of

from ._amounts import budget_units
from ._members import clean_ids

Budgets = dict[str, int]


def budgets_of(
    source: Any,
    person: Any,
    budget: Any,
    tiers: Mapping[str, Any],
    form: Form = Form(),  # noqa: B008  it is frozen
) -> tuple[Budgets, dict[int, str]]:
    """Return {person: units} and the names of tiers by their budget; a bad id or budget raises and names its place."""
    tiers_of(tiers)  # raises for what is no mapping of names
    known = {name: budget_units(cell, f" for tier {name!r}") for name, cell in tiers.items()}
    names: dict[int, str] = {}
    for name, units in known.items():
        names[units] = f"{names[units]}, {name}" if units in names else name
    if isinstance(source, Mapping):
        _no_columns(person, budget)
        return _paired(list(source), list(source.values()), known), names
    if isinstance(person, str) or isinstance(source, (str, os.PathLike)):
        return _table(source, person, budget, tiers, form), names
    _no_columns(person)
    if not isinstance(source, Iterable) or budget is None:
        raise InputError("enrol a mapping {id: budget}, ids with budget=…, or a table with person=… and budget=…")
    ids = list(source)
    many = isinstance(budget, Iterable) and not isinstance(budget, str)
    return _paired(ids, list(budget) if many else [budget] * len(ids), known), names


def _no_columns(*names: Any) -> None:
    if any(name is not None for name in names):
        raise InputError("columns are named for files and frames only; a mapping has ids and budgets itself")


def _paired(ids: Sequence[Any], cells: Sequence[Any], known: Mapping[str, int]) -> Budgets:
    if len(ids) != len(cells):
        raise InputError(f"everybody needs one budget (got {len(ids)} ids and {len(cells)} budgets)")
    read: dict[Any, int] = {}
    found = []
    for person, cell in zip(clean_ids(ids), cells, strict=True):
        key = (type(cell), cell)
        if key not in read:
            read[key] = _units(cell, known, f" for {person[:64]!r}")
        found.append((person, read[key]))
    return _once(found)


def _units(cell: Any, known: Mapping[str, int], where: str) -> int:
    if not known:
        return budget_units(cell, where)
    if cell not in known:
        raise InputError(f"unknown tier {str(cell)[:64]!r}{where}; the tiers are {', '.join(map(repr, known))}")
    return known[cell]


def _table(source: Any, person: Any, budget: Any, tiers: Mapping[str, Any], form: Form) -> Budgets:
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
    return _once(found)


def _once(pairs: list[tuple[str, int]]) -> Budgets:
    found = dict(pairs)
    if len(found) < len(pairs):
        (twice, _), *_ = Counter(person for person, _ in pairs).most_common(1)
        raise InputError(f"an id comes twice, such as {twice[:64]!r}; everybody is enrolled once with one budget")
    return found
