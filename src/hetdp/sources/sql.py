"""The group-by for PostgreSQL, as the text of a statement: what a row is, who counts, which sums.

Claim: the codes that a database computes are those of `Interval.codes`, integer by integer, the cells those of
`core.cells`, levels are put together only where `round_down` makes them equal, and no value can make a statement raise
or change its text, which is made from the query, the names and types of columns, the bounds, categories and edges.

Argument: PostgreSQL computes IEEE doubles, and the formula is the same operations in the same order. PostgreSQL raises
when a product or quotient of doubles overflows or becomes 0, and when a numeric has no double near it; so each value is
compared first, and the formula runs only on foot < x < hi, foot being lo + (hi − lo)·2⁻²³ in doubles. There x − lo is
between (hi − lo)·2⁻²⁴ and hi − lo, or (hi − lo)·2⁻²³ is below half a unit in the last place of lo and x − lo at least
such a unit; either way the quotient is in (0, 1] and nothing overflows. At or below foot, x − lo is at most (hi −
lo)·2⁻²² and the formula gives 0; from hi on it gives Q; NaN and NULL fail every comparison or, in PostgreSQL, where NaN
is above everything, the last one: they have no code, which is NULL, and `_settled_codes` says what becomes of that, as
`tally.settled` does. Sums of codes are sums of integers, so parallel plans and the order of rows do not matter,
and with at most `MOST_PEOPLE` rows they are below 2⁶³; more are refused by their number (`request.engine_tables`). The
leading bits of a double are its rounded value, so where there are many levels people are grouped by those.

A cell (`_cell`) is made from a code in integers below 2³⁵, or by comparisons alone. Numbers are compared as doubles: a
numeric is cast where a double is near it, and is 0 or an infinity elsewhere (`_number`). `width_bucket` searches among
the edges, and is asked only for what lies between the first and the last. Texts are compared with literals byte by
byte, whatever the collation of the column; a literal is written in ASCII letters, digits and code points, so that no
setting of the server changes what it means. NaN and NULL equal no category and lie between no edges: they fall into the
last cell. No text is read as a number here: rows that are alike are counted (`alike`), and each text is read once in
Python, by the rules for every source.
"""

# ruff: noqa: S608  statements are put together from the caller's own query and from names that are quoted

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import Any

import numpy as np

from hetdp.core.cells import Bins, Categories, Edges, Reading, Words
from hetdp.core.domain import BLANK, GRID, INVISIBLE, LONGEST_ID, Interval
from hetdp.errors import InputError
from hetdp.statistics import Statistic

from .request import KEY_FAULTS, MOST_ROWS, Fault, Level, Request

_QUOTED = re.compile(
    r"[eE]'(?:[^'\\]|\\.|'')*'|'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|\$(\w*)\$.*?\$\1\$|--[^\n]*|/\*.*?\*/", re.DOTALL
)
_NAME = r'(?:"(?:[^"]|"")+"|[^\W\d][\w$]*)'
_TABLE = re.compile(rf"\s*{_NAME}(?:\s*\.\s*{_NAME}){{0,2}}\s*")
_NUMBERS = {"int2", "int4", "int8", "float4", "float8"}
_TEXTS = {"text", "varchar", "bpchar", "name", "enum"}
_NAMES = {*_TEXTS, "uuid", "int2", "int4", "int8"}
_NOTHING = f"'{5**1075}e-1075'::numeric"
"""2⁻¹⁰⁷⁵: what is not above it is 0 as a double, and PostgreSQL's cast would raise."""
_BEYOND = f"'{2**1024 - 2**970}'::numeric"
"""From here on the nearest double is infinity, and PostgreSQL's cast would raise."""

_BITS = "('x' || encode(float8send(e), 'hex'))::bit(64)::int8 >> {}"
"""The leading bits of a row's ε."""

_NOT_IN_ID = f'[[:cntrl:]"{INVISIBLE}]|^[{BLANK}]|[{BLANK}]$'
"""`core.domain.NOT_IN_ID` for PostgreSQL, whose texts have no NUL and whose patterns know none."""

Run = Callable[[str], list[tuple[Any, ...]]]
"""Runs a statement and returns its rows."""


def selection(query: str) -> str:
    """Return a query as one select: a table's name becomes one, a last semicolon goes, a second statement is refused.

    >>> selection("select income, eps from people;")
    'select income, eps from people'
    >>> selection('public."My people"')
    'select * from "public"."My people"'
    """
    text = query.strip().rstrip("; \t\r\n")
    if not text:
        raise InputError("the query is empty; give a select or the name of a table")
    if _TABLE.fullmatch(text):
        parts = (part if part.startswith('"') else quoted(part) for part in re.findall(_NAME, text))
        return f"select * from {'.'.join(parts)}"
    if ";" in _QUOTED.sub(" ", text):
        raise InputError("the query must be one select; it has a semicolon between statements")
    return text


def quoted(name: str) -> str:
    """Return a name as an identifier of SQL, whatever characters it has."""
    return '"' + name.replace('"', '""') + '"'


@dataclass(frozen=True)
class LevelTable:
    """The level table of a query, see `request.LevelQuery`; `kinds` are the types of its columns."""

    run: Run
    query: str
    request: Request
    kinds: Mapping[str, str]
    statistic: Statistic | None

    @cached_property
    def _columns(self) -> dict[str, str]:
        """The code, ε, person and group of a row, as expressions, as far as they are asked for.

        A column of the wrong type is an error: types are public.
        """
        asked, kinds, found = self.request, self.kinds, dict[str, str]()
        if self.statistic is not None:
            pairs = zip(self.statistic.coded, asked.readings, strict=False)
            found |= {
                f"c{i}": _code(*reading, kinds[reading[0]], interval) for i, (interval, reading) in enumerate(pairs)
            }
            if isinstance(self.statistic.sorting, (Categories, Edges)):
                found["k"] = _cell(asked.private[-1], kinds[asked.private[-1]], self.statistic.sorting)
        if isinstance(asked.epsilon, str):
            found["e"] = _epsilon(asked.epsilon, kinds[asked.epsilon])
        if asked.person is not None:
            found["p"] = _text(asked.person, kinds[asked.person], "person's id", _NAMES)
        for i, name in enumerate(asked.groupings):
            found[f"g{i}"] = _text(name, kinds[name], "group", {*_NAMES, "bool"})
        return found

    def many(self, limit: int) -> bool:
        """Say whether there are more than `limit` levels."""
        distinct = f"select distinct {self._columns['e']} from (\n{self.query}\n) as q limit {limit + 1}"
        ((levels,),) = self.run(f"select count(*) from ({distinct}) as d")
        return bool(levels > limit)

    @property
    def texts(self) -> bool:
        """Whether ε is a column of texts."""
        return isinstance(self.request.epsilon, str) and self.kinds[self.request.epsilon] in _TEXTS

    @property
    def _groups(self) -> list[str]:
        return [name for name in self._columns if name.startswith("g")]

    @property
    def _codes(self) -> list[str]:
        return [name for name in self._columns if name.startswith("c")]

    def levels(self, *, bits: int | None, most: int | None) -> list[Level]:
        """Return the level table, its first `most` rows if given; the cell of people who are left out is −1."""
        groups, cell = self._groups, self._settled_cell()
        level = "null" if "e" not in self._columns else "e" if bits is None else _BITS.format(53 - bits)
        source, fault = ("hetdp_people", "max(fault)") if "p" in self._columns else ("hetdp_rows", "0")
        there = [*(name in self._columns for name in (*groups, "e")), cell != "0"]
        keys = [str(i + 1) for i, known in enumerate(there) if known]
        grouping = f" group by {', '.join(keys)}" if keys else ""
        limit = "" if most is None else f" limit {most}"
        people = "sum(n)::int8" if self._alike else "count(*)"
        added = (f"sum({code})" for code in self._settled_codes())
        columns = ", ".join([*groups, level, cell, people, fault, *added])
        rows = self.run(f"{self._steps()} select {columns} from {source}{grouping}{limit}")
        found: list[Level] = []
        for row in rows:
            e, k, n, f, *sums = row[len(groups) :]
            epsilon = e if bits is None else _double(e, bits)
            found.append((tuple(row[: len(groups)]), epsilon, k, n, tuple(int(s or 0) for s in sums), f or 0))
        return found

    def _settled_codes(self) -> list[str]:
        """Return the codes that are added up for a person; `tally.settled` has the same."""
        asked = self.statistic
        if asked is None:
            return []
        fills = [0 if asked.marks else asked.fill(interval) for interval in asked.coded]
        known = [f"coalesce({code}, {fill})" for code, fill in zip(self._codes, fills, strict=True)]
        added = known[: len(asked.sums)]
        if asked.marks:
            added += [f"case when {code} is null then 0 else {GRID} end" for code in self._codes]
        twice = f"(2 * {known[0]}::int8 - {GRID})" if asked.square else ""
        return [*added, *([f"{twice} * {twice} / {GRID}"] if asked.square else [])]

    def _settled_cell(self) -> str:
        """Return the cell of a person, −1 if they are left out because they have no value."""
        asked, cell = self.statistic, "k" if "k" in self._columns else "0"
        if asked is None:
            return cell
        absent = [f"{code} is null" for code in self._codes] or [f"{cell} = {asked.cells - 1}"]
        if isinstance(asked.sorting, Bins):
            twice = f"(2 * coalesce(c0, {asked.fill(asked.sorting.interval)})::int8 + 1)"
            cell = f"least({twice} * {asked.sorting.bins} / {2 * GRID}, {asked.sorting.bins - 1})"
        if asked.missing == "drop":
            return f"case when {' or '.join(absent)} then -1 else {cell} end"
        return cell if asked.unanswered is None else f"case when {absent[0]} then {asked.unanswered} else {cell} end"

    def at_fault(self, fault: Fault) -> tuple[int, Any]:
        """Return how many people have a fault, and the least of their ids."""
        ((people, least),) = self.run(
            f"{self._steps()} select count(*), min(p) from hetdp_people where fault = {fault:d}"
        )
        return people, least

    def _steps(self) -> str:
        """Return the rows, and if asked the people, as tables that a statement can use."""
        if self._alike:
            return self._counted()
        columns = ", ".join(f"{text} as {name}" for name, text in self._columns.items()) or "1 as nothing"
        rows = f"with hetdp_rows as (select {columns} from (\n{self.query}\n) as q)"
        return f"{rows}, hetdp_people as ({self._people()})" if "p" in self._columns else rows

    @property
    def _alike(self) -> bool:
        """Whether people are only sorted into categories by a text, of which there are likely few different ones."""
        if self.statistic is None or self.statistic.sums or "p" in self._columns:
            return False
        return isinstance(self.statistic.sorting, Categories) and self.kinds[self.request.private[-1]] in _TEXTS

    @property
    def reads_here(self) -> bool:
        """Whether a private column is text of which numbers are to be read, or what is missing."""
        pairs = self.request.readings
        texts = [how for name, how in pairs if self.kinds[name] in _TEXTS]
        return any(not isinstance(how, Categories) or how.reads_texts for how in texts)

    @property
    def numbers(self) -> dict[str, str]:
        """The types of the columns that are no text."""
        return {name: kind for name, kind in self.kinds.items() if kind not in _TEXTS}

    def alike(self) -> list[tuple[Any, ...]]:
        """Return the columns asked for, rows that are alike as one, and how many each stands for."""
        public = self._columns
        by_name = {self.request.epsilon: "e", self.request.person: "p"}
        by_name |= dict(zip(self.request.groupings, self._groups, strict=True))
        cells = {name: _plain(name, self.kinds[name]) for name in dict.fromkeys(self.request.private)}
        columns = [cells[name] if name in cells else public[by_name[name]] for name in self.request.columns]
        places = ", ".join(str(i + 1) for i in range(len(columns)))
        return self.run(f"select {', '.join(columns)}, count(*) from (\n{self.query}\n) as q group by {places}")

    def _counted(self) -> str:
        """Return rows that are alike as one, with their number n; only then are their texts compared."""
        public = {name: text for name, text in self._columns.items() if name != "k"}
        cells = {**public, "t": f'{quoted(self.request.private[-1])}::text collate "C"', "n": "count(*)"}
        columns = ", ".join(f"{text} as {name}" for name, text in cells.items())
        places = ", ".join(str(i + 1) for i in range(len(cells) - 1))
        found = ", ".join([*public, f"{_cell('t', 'text', self.statistic.sorting)} as k", "n"])  # type: ignore[union-attr]
        alike = f"select {columns} from (\n{self.query}\n) as q group by {places}"
        return f"with hetdp_alike as ({alike}), hetdp_rows as (select {found} from hetdp_alike)"

    def _people(self) -> str:
        """Return one row a person, and what is wrong with their rows. `/` of integers floors.

        A code is the average over the rows that have one, and null if none has.
        """
        average = "(2 * sum({0}) + count({0})) / nullif(2 * count({0}), 0) as {0}".format
        columns = ", ".join(["p", *map(average, self._codes)])
        columns += ", min(k) as k" if "k" in self._columns else ""  # a person has one row where people are sorted
        odd = f"length(p) > {LONGEST_ID} or p ~ '{_NOT_IN_ID}'"
        faults = {"p is null or p = ''": Fault.NO_ID, odd: Fault.BAD_ID}
        for key, name in (("epsilon", "e"), *(("group", name) for name in self._groups)):
            if name in self._columns:
                missing, differ = KEY_FAULTS[key]
                columns += f", min({name}) as {name}"
                faults |= {f"count({name}) < count(*)": missing, f"min({name}) <> max({name})": differ}
        if not self.request.several:
            faults["count(*) > 1"] = Fault.ROWS
        faults[f"count(*) > {MOST_ROWS}"] = Fault.TOO_MANY_ROWS
        found = " ".join(f"when {condition} then {fault:d}" for condition, fault in faults.items())
        return f"select {columns}, case {found} else 0 end as fault from hetdp_rows group by p"


def _double(leading: int | None, bits: int) -> float | None:
    """Return the double with these leading bits, which is ε rounded down; None where it is missing."""
    return None if leading is None else float(np.int64(leading << 53 - bits).view(np.float64))


def _epsilon(column: str, kind: str) -> str:
    name = quoted(column)
    if kind in _TEXTS:
        return f'{name}::text collate "C"'
    if kind in _NUMBERS:
        return f"{name}::float8"
    if kind == "numeric":
        return (
            f"(case when abs({name}) <= {_NOTHING} then 0 when abs({name}) >= {_BEYOND} "
            f"and abs({name}) < 'Infinity'::numeric then 'NaN'::float8 else {name}::float8 end)"
        )
    raise InputError(
        f"the epsilon column {column!r} must hold numbers or text (got {kind}); cast it in the query, "
        f"as in {name}::float8"
    )


def _plain(column: str, kind: str) -> str:
    """Return a private column as text or as a double, for Python to read."""
    name = quoted(column)
    if kind in _TEXTS:
        return f'{name}::text collate "C"'
    if kind == "bool":
        return f"case when {name} then 1::float8 when not {name} then 0 end"
    _refuse_kind(column, kind)
    return _number(name, kind)


def _refuse_kind(column: str, kind: str) -> None:
    if kind not in {*_NUMBERS, "numeric"}:
        cast = f"cast it in the query: {quoted(column)}::numeric" if kind == "money" else "cast it in the query"
        raise InputError(f"the value column {column!r} must hold numbers, booleans or text (got {kind}); {cast}")


def _code(column: str, reading: Reading, kind: str, interval: Interval) -> str:
    """Return the code of a cell, null if there is none; see the argument above for `foot`."""
    name = quoted(column)
    if isinstance(reading, Words):
        number = _plain(column, kind)
        codes, reading = [interval.code(x) for x in reading.numbers], reading.held(kind)
        tests = zip(reading.categories.numbers, codes, strict=True)
        found = " ".join(f"when {number} = {_float8(x)} then {code}" for x, code in tests if x == x)  # noqa: PLR0124  NaN
        return f"case {found} end" if found else "null::int"
    if kind == "bool":
        return f"case when {name} then {interval.code(1.0)} when not {name} then {interval.code(0.0)} end"
    _refuse_kind(column, kind)
    compared = "numeric" if kind == "numeric" else "float8"  # a numeric may have no double near it
    x = double = f"{name}::{compared}"
    if kind == "numeric":
        double = f"(case when abs({name}) <= {_NOTHING} then 0 else {name}::float8 end)"
    foot, hi = (f"'{Decimal(end)}'::{compared}" for end in (interval.lo + interval.width * 2.0**-23, interval.hi))
    moved = f"({double} - {_float8(interval.lo)})" if interval.lo else double
    formula = f"floor({moved} / {_float8(interval.width)} * {GRID}.0 + 0.5)::int"
    inside = f"{x} > {foot} and {x} < {hi} then {formula}"
    return f"case when {inside} when {x} <= {foot} then 0 when {x} < 'NaN' then {GRID} end"


def _cell(column: str, kind: str, sorting: Any) -> str:
    """Return the cell of a row. No comparison can raise, and what is null or NaN fails them all, or is caught."""
    name = quoted(column)
    if isinstance(sorting, Categories) and kind in {*_TEXTS, "uuid"}:
        if sorting.textual:
            text = f'{name}::text collate "C"'
            found = " ".join(f"when {text} = {_literal(label)} then {i}" for i, label in enumerate(sorting.names))
            none = f"when {name} is null then {len(sorting.names) + 1} " if sorting.apart else ""
            return f"case {found} {none}else {len(sorting.names)} end"
        raise InputError(f"the value column {column!r} holds text and the categories are numbers; list them as text")
    if kind == "bool":
        name, kind = f"(case when {name} then 1 when not {name} then 0 end)", "float8"
    if kind not in {*_NUMBERS, "numeric"}:
        fits = "text or numbers" if isinstance(sorting, Categories) else "numbers"
        raise InputError(f"the value column {column!r} must hold {fits} (got {kind}); cast it in the query")
    if isinstance(sorting, Categories):
        if not sorting.numeric:
            raise InputError(f"the value column {column!r} holds numbers; list the categories as numbers")
        number, other, sorting = _number(name, kind), len(sorting.names), sorting.held(kind)
        known = [(i, x) for i, x in enumerate(sorting.numbers) if not math.isnan(x)]  # here NaN would equal NaN
        found = " ".join(f"when {number} = {_float8(x)} then {i}" for i, x in known)
        missing = f"when {number} is null or {number} = 'NaN' then {other + 1} " if sorting.apart else ""
        return f"case {found} {missing}else {other} end"
    x = _number(name, kind)
    first, last = _float8(sorting.edges[0]), _float8(sorting.edges[-1])
    edges = "'{" + ", ".join(map(repr, sorting.edges)) + "}'::float8[]"
    inside = f"when {x} >= {first} and {x} < {last} then width_bucket({x}, {edges}) - 1"
    return f"case {inside} when {x} = {last} then {len(sorting.edges) - 2} else {len(sorting.edges) - 1} end"


def _number(name: str, kind: str) -> str:
    """Return a number as a double to compare; of a numeric that has none near it, 0 or an infinity."""
    if kind != "numeric":
        return f"{name}::float8"
    far = f"when {name} >= {_BEYOND} then 'Infinity' when {name} <= -{_BEYOND} then '-Infinity'"
    return f"(case when abs({name}) <= {_NOTHING} then 0 when {name} = 'NaN' then 'NaN' {far} else {name}::float8 end)"


def _literal(text: str) -> str:
    """Return a text as a literal of SQL. NUL, which PostgreSQL cannot hold, equals nothing there."""
    if "\x00" in text:
        return "null"
    return "U&'" + "".join(f"\\+{ord(c):06x}" if not c.isalnum() or not c.isascii() else c for c in text) + "'"


def _float8(number: float) -> str:
    return f"'{number!r}'::float8"


def _text(column: str, kind: str, what: str, allowed: set[str]) -> str:
    """Return a public column as text in normal form C, compared byte by byte."""
    if kind not in allowed:
        raise InputError(
            f"the {what} column {column!r} must hold text or whole numbers (got {kind}); "
            f"cast it in the query, as in {quoted(column)}::text"
        )
    return f'normalize({quoted(column)}::text, NFC) collate "C"'
