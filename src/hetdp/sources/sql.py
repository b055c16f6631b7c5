"""The group-by for PostgreSQL, as the text of a statement: what a row is, who counts, which sums.

Claim: the codes that a database computes are those of `Interval.codes`, integer by integer, the cells those of
`core.cells`, levels are put together only where `round_down` makes them equal, and no value can make a statement raise
or change its text, which is made from the query, the names and types of columns, the bounds, categories and edges.

Argument: PostgreSQL computes IEEE doubles, and the formula is the same operations in the same order. PostgreSQL raises
when a product or quotient of doubles overflows or becomes 0, and when a numeric has no double near it; so each value is
compared first, and the formula runs only on foot < x < hi, foot being lo + (hi − lo)·2⁻²³ in doubles. There
x − lo is between (hi − lo)·2⁻²⁴ and hi − lo, or (hi − lo)·2⁻²³ is below half a unit in the last place of lo and x − lo
at least such a unit; either way the quotient is in (0, 1] and nothing overflows. At or below foot,
x − lo is at most (hi − lo)·2⁻²² and the formula gives 0; from hi on it gives Q; NaN and NULL fail every
comparison or, in PostgreSQL, where NaN is above everything, the last one: they are the midpoint. Sums of codes are sums
of integers, so parallel plans and the order of rows do not matter, and with at most `MOST_PEOPLE` rows they
are below 2⁶³; more are refused by their number (`request.engine_tables`). The leading bits of a double are its rounded
value, so where there are many levels people are grouped by those.

A cell (`_cell`) is made from a code in integers below 2³⁵, or by comparisons alone. Numbers are compared as doubles: a
numeric is cast where a double is near it, and is 0 or an infinity elsewhere (`_number`). `width_bucket` searches among
the edges, and is asked only for what lies between the first and the last. Texts are compared with literals byte by
byte, whatever the collation of the column; a literal is written in ASCII letters, digits and code points, so that no
setting of the server changes what it means. No text is read as a number. NaN and NULL equal no category and lie between
no edges: they fall into the last cell.
"""

# ruff: noqa: S608  statements are put together from the caller's own query and from names that are quoted

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import Any

import numpy as np

from hetdp.core.cells import Answered, Bins, Categories
from hetdp.core.domain import BLANK, GRID, INVISIBLE, LONGEST_ID, Interval
from hetdp.errors import InputError
from hetdp.statistics import Statistic

from .request import KEY_FAULTS, MOST_ROWS, Fault, Level, Request

_QUOTED = re.compile(
    r"[eE]'(?:[^'\\]|\\.|'')*'|'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|\$(\w*)\$.*?\$\1\$|--[^\n]*|/\*.*?\*/", re.DOTALL
)
_NAME = r'(?:"(?:[^"]|"")+"|[^\W\d][\w$]*)'
_TABLE = re.compile(rf"\s*{_NAME}(?:\s*\.\s*{_NAME}){{0,2}}\s*")
_MIDDLE = GRID // 2
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
            pairs = zip(self.statistic.sums, asked.private, strict=False)
            found |= {f"c{i}": _code(name, kinds[name], interval) for i, (interval, name) in enumerate(pairs)}
            if self.statistic.sorting is not None:
                found["k"] = _cell(asked.private[-1], kinds[asked.private[-1]], self.statistic.sorting)
        if isinstance(asked.epsilon, str):
            found["e"] = _epsilon(asked.epsilon, kinds[asked.epsilon])
        if asked.person is not None:
            found["p"] = _text(asked.person, kinds[asked.person], "person's id", _NAMES)
        if asked.by is not None:
            found["g"] = _text(asked.by, kinds[asked.by], "group", {*_NAMES, "bool"})
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
    def _codes(self) -> list[str]:
        return [name for name in self._columns if name.startswith("c")]

    def levels(self, *, bits: int | None, most: int | None) -> list[Level]:
        """Return the level table, its first `most` rows if given."""
        group, cell = ("g" if "g" in self._columns else "''"), ("k" if "k" in self._columns else "0")
        level = "null" if "e" not in self._columns else "e" if bits is None else _BITS.format(53 - bits)
        source, fault = ("hetdp_people", "max(fault)") if "p" in self._columns else ("hetdp_rows", "0")
        keys = [place for place, name in (("1", "g"), ("2", "e"), ("3", "k")) if name in self._columns]
        grouping = f" group by {', '.join(keys)}" if keys else ""
        limit = "" if most is None else f" limit {most}"
        square = self.statistic is not None and self.statistic.square
        squares = [f"sum((2 * c0::int8 - {GRID}) * (2 * c0::int8 - {GRID}) / {GRID})"] if square else []
        people = "sum(n)::int8" if self._alike else "count(*)"
        columns = ", ".join([group, level, cell, people, fault, *(f"sum({name})" for name in self._codes), *squares])
        rows = self.run(f"{self._steps()} select {columns} from {source}{grouping}{limit}")
        return [
            (g, e if bits is None else _double(e, bits), k, n, tuple(int(s or 0) for s in sums), f or 0)
            for g, e, k, n, f, *sums in rows
        ]

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
        """Return one row a person, and what is wrong with their rows. `/` of integers floors."""
        columns = ", ".join(["p", *(f"(2 * sum({c}) + count(*)) / (2 * count(*)) as {c}" for c in self._codes)])
        columns += ", min(k) as k" if "k" in self._columns else ""  # a person has one row where people are sorted
        odd = f"length(p) > {LONGEST_ID} or p ~ '{_NOT_IN_ID}'"
        faults = {"p is null or p = ''": Fault.NO_ID, odd: Fault.BAD_ID}
        for key, name in (("epsilon", "e"), ("group", "g")):
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


def _code(column: str, kind: str, interval: Interval) -> str:
    """Return the code of a cell; see the argument above for `foot`."""
    name = quoted(column)
    if kind == "bool":
        no, yes = interval.codes(np.array([0.0, 1.0]), np.empty(2)).astype(int)
        return f"case when {name} then {yes} when not {name} then {no} else {_MIDDLE} end"
    if kind not in {*_NUMBERS, "numeric"}:
        remedy = f"cast it in the query: {name}::numeric" if kind == "money" else "turn it into a number in the query"
        if kind in _TEXTS:  # a bare cast would raise on a cell that is no number, and so tell of it
            pattern = "'^-?[0-9]{1,9}([.][0-9]{1,9})?$'"
            remedy = f"cast the cells that are numbers: case when {name} ~ {pattern} then {name}::numeric end"
        raise InputError(f"the value column {column!r} must hold numbers (got {kind}); {remedy}")
    compared = "numeric" if kind == "numeric" else "float8"  # a numeric may have no double near it
    x = double = f"{name}::{compared}"
    if kind == "numeric":
        double = f"(case when abs({name}) <= {_NOTHING} then 0 else {name}::float8 end)"
    foot, hi = (f"'{Decimal(end)}'::{compared}" for end in (interval.lo + interval.width * 2.0**-23, interval.hi))
    moved = f"({double} - {_float8(interval.lo)})" if interval.lo else double
    formula = f"floor({moved} / {_float8(interval.width)} * {GRID}.0 + 0.5)::int"
    inside = f"{x} > {foot} and {x} < {hi} then {formula}"
    return f"case when {inside} when {x} <= {foot} then 0 when {x} < 'NaN' then {GRID} else {_MIDDLE} end"


def _cell(column: str, kind: str, sorting: Any) -> str:
    """Return the cell of a row. No comparison can raise, and what is null or NaN fails them all, or is caught."""
    name = quoted(column)
    if isinstance(sorting, Bins):
        twice = f"(2 * ({_code(column, kind, sorting.interval)})::int8 + 1)"
        return f"least({twice} * {sorting.bins} / {2 * GRID}, {sorting.bins - 1})"
    if isinstance(sorting, Categories) and kind in {*_TEXTS, "uuid"}:
        if sorting.textual:
            text = f'{name}::text collate "C"'
            found = " ".join(f"when {text} = {_literal(label)} then {i}" for i, label in enumerate(sorting.names))
            return f"case {found} else {len(sorting.names)} end"
        raise InputError(f"the value column {column!r} holds text and the categories are numbers; list them as text")
    if kind == "bool":
        name, kind = f"(case when {name} then 1 when not {name} then 0 end)", "float8"
    if kind not in {*_NUMBERS, "numeric"}:
        fits = "text or numbers" if isinstance(sorting, Categories) else "numbers"
        raise InputError(f"the value column {column!r} must hold {fits} (got {kind}); cast it in the query")
    if isinstance(sorting, Categories):
        if not sorting.numeric:
            raise InputError(f"the value column {column!r} holds numbers; list the categories as numbers")
        compared = [(f"{_number(name, kind)} = {_float8(x)}", i) for i, x in enumerate(sorting.numbers)]
        found = " ".join(f"when {test} then {i}" for test, i in compared)
        return f"case {found} else {len(sorting.names)} end"
    x = _number(name, kind)
    if isinstance(sorting, Answered):
        return f"case when {x} < 'NaN' then 0 else 1 end"
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
