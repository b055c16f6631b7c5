"""One group-by for PostgreSQL and SQLite, as the text of a statement: what a row is, who counts, which sums.

Claim: the codes and levels that a database computes are those of `Interval.codes` and `round_down`, integer by integer,
and no value can make a statement raise or change its text, which is made from the query, the names and types of
columns and the bounds.

Argument: both engines compute IEEE doubles, and the formula is the same operations in the same order. PostgreSQL raises
when a product or quotient of doubles overflows or becomes 0, and when a numeric has no double near it; so each value is
compared first, and the formula runs only on foot < x < hi, foot being lo + (hi − lo)·2⁻²³ in doubles. There
x − lo is between (hi − lo)·2⁻²⁴ and hi − lo, or (hi − lo)·2⁻²³ is below half a unit in the last place of lo and x − lo
at least such a unit; either way the quotient is in (0, 1] and nothing overflows. At or below foot,
x − lo is at most (hi − lo)·2⁻²² and the formula gives 0; from hi on it gives Q; NaN and NULL fail every
comparison or, in PostgreSQL, where NaN is above everything, the last one: they are the midpoint. Sums of codes are sums
of integers, so parallel plans and the order of rows do not matter, and with at most `MOST_PEOPLE` rows they
are below 2⁶³; the number of rows comes back with the sums and more are refused (`databases`).
"""

# ruff: noqa: S608  statements are put together from the caller's own query and from names that are quoted

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal

import numpy as np

from hetdp.core.domain import BLANK, GRID, INVISIBLE, LONGEST_ID, Interval
from hetdp.core.levels import BELOW, HUGE, LIMIT, SHRINK, SPLIT, TINY
from hetdp.errors import InputError

from .request import Request

PROBED = 2 * LIMIT
"""Rows that are looked at to learn whether there are many levels."""

FAULTS = {"torn": "epsilon", "split": "group", "twice": "rows"}
"""What a person can have several of, and what it is called in a statement."""

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

_NOT_IN_ID = f'[[:cntrl:]"{INVISIBLE}]|^[{BLANK}]|[{BLANK}]$'
"""`core.domain.NOT_IN_ID` for PostgreSQL, whose texts have no NUL and whose patterns know none."""

Number = Callable[[str], str]
"""From the name of a number to how a statement writes it."""


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
class Key:
    """How ε is grouped: an expression of the row's ε, `e`; which of the levels `k` count towards the limit, if any."""

    level: str = "e"
    limited: str | None = "true"
    rounded: bool = False


@dataclass(frozen=True)
class Parts:
    """The expressions of one question in one dialect; None where a column is not asked for.

    Attributes
    ----------
    keys
        Ways to group ε, tried in turn until the levels are not too many; none if everybody has one ε.
    bad
        The condition under which an id, `p`, cannot be one.
    zero
        The code of a level with ε = 0: their values never enter.
    """

    query: str
    code: str
    epsilon: str | None
    person: str | None
    group: str | None
    keys: tuple[Key, ...]
    bad: str
    zero: str

    def probe(self, key: Key) -> str:
        """Return the statement that counts the levels of the first rows, up to one above the limit."""
        first = f"select {self.epsilon} as e from (\n{self.query}\n) as q limit {PROBED}"
        return f"select count(*) from (select distinct {key.level} as k from ({first}) as r limit {LIMIT + 1}) as d"

    def statement(self, key: Key) -> str:
        """Return the group-by: (group, ε, people, sum of codes, rows, bad ids, then how many and who for each fault).

        It gives no row if too many levels count towards the limit.
        """
        steps = {"hetdp_rows": self._rows()}
        if self.person is not None:
            steps["hetdp_people"] = self._people()
        steps["hetdp_levels"] = self._levels(key, list(steps)[-1])
        steps_text = ", ".join(f"{name} as ({text})" for name, text in steps.items())
        faults = ", n, 0" + ", 0, null" * len(FAULTS)
        if self.person is not None:
            faults = ", m, bad, " + ", ".join(f"{fault}_n, {fault}_p" for fault in FAULTS)
        level = "null, n, s" if self.epsilon is None else f"k, n, {self.zero}"
        group = "''" if self.group is None else "g"
        return f"with {steps_text} select {group}, {level}{faults} from hetdp_levels{self._limit(key)}"

    def _rows(self) -> str:
        asked = {"c": self.code, "e": self.epsilon, "p": self.person, "g": self.group}
        columns = ", ".join(f"{text} as {name}" for name, text in asked.items() if text is not None)
        return f"select {columns} from (\n{self.query}\n) as q"

    def _people(self) -> str:
        """One row a person; an ε or group that is missing in one of their rows is missing. `/` of integers floors."""
        columns = ["p, count(*) as m, (2 * sum(c) + count(*)) / (2 * count(*)) as c"]
        for name, expression, fault in (("e", self.epsilon, "torn"), ("g", self.group, "split")):
            if expression is not None:
                columns.append(f"case when count({name}) = count(*) then min({name}) end as {name}")
            columns.append(f"{f'min({name}) <> max({name})' if expression is not None else '1 = 0'} as {fault}")
        return f"select {', '.join(columns)}, count(*) > 1 as twice from hetdp_rows group by p"

    def _levels(self, key: Key, source: str) -> str:
        keys = (["g"] if self.group is not None else []) + (["k"] if self.epsilon is not None else [])
        columns = [f"{key.level} as k" if name == "k" else name for name in keys]
        columns.append("count(*) as n, sum(c) as s")
        if self.person is not None:
            columns.append(f"sum(m) as m, count(case when {self.bad} then 1 end) as bad")
            for fault in FAULTS:
                columns.append(f"count(case when {fault} then 1 end) as {fault}_n")
                columns.append(f"min(case when {fault} then p end) as {fault}_p")
        grouping = f" group by {', '.join(keys)}" if keys else ""
        return f"select {', '.join(columns)} from {source}{grouping}"

    def _limit(self, key: Key) -> str:
        if self.epsilon is None or key.limited is None:
            return ""
        some = f"select distinct k from hetdp_levels where {key.limited} limit {LIMIT + 1}"
        return f" where (select count(*) from ({some}) as d) <= {LIMIT}"


def numbers(interval: Interval | None) -> dict[str, float]:
    """Return every double that a statement may need."""
    found = {"tiny": TINY, "huge": HUGE, "split": SPLIT, "below": BELOW, "shrink": SHRINK, "infinity": np.inf}
    if interval is not None:
        found |= {"lo": interval.lo, "hi": interval.hi, "width": interval.width}
        found["foot"] = interval.lo + interval.width * 2.0**-23
    return found


def postgres(query: str, request: Request, kinds: Mapping[str, str], interval: Interval | None) -> Parts:
    """Return the expressions for PostgreSQL; a column of the wrong type is an error: types are public."""
    known = numbers(interval)

    def number(name: str) -> str:
        return f"'{known[name]!r}'::float8"

    epsilon: str | None = None
    keys: tuple[Key, ...] = (Key(),)
    if isinstance(request.epsilon, str):
        epsilon, keys = _postgres_epsilon(request.epsilon, kinds[request.epsilon], number)
    code = "0"
    if interval is not None and request.value is not None:
        code = _postgres_code(request.value, kinds[request.value], interval, number)
    texts = kinds.get(str(request.epsilon)) in _TEXTS
    return Parts(
        query,
        code,
        epsilon,
        person=_postgres_text(request.person, kinds, "person's id", _NAMES),
        group=_postgres_text(request.by, kinds, "group", {*_NAMES, "bool"}),
        keys=keys,
        bad=f"p is null or p = '' or length(p) > {LONGEST_ID} or p ~ '{_NOT_IN_ID}'",
        zero="s" if texts else "case when k = 0 then 0 else s end",
    )


def _postgres_epsilon(column: str, kind: str, number: Number) -> tuple[str, tuple[Key, ...]]:
    name = quoted(column)
    if kind in _TEXTS:
        return f'{name}::text collate "C"', (Key(),)
    if kind in _NUMBERS:
        return f"{name}::float8", (Key(), Key(_rounded("e", number), None, rounded=True))
    if kind == "numeric":
        double = (
            f"(case when abs(e) <= {_NOTHING} then 0 when abs(e) >= {_BEYOND} and abs(e) < 'Infinity'::numeric "
            f"then 'NaN'::float8 else e::float8 end)"
        )
        return name, (Key(), Key(double), Key(_rounded(double, number), None, rounded=True))
    raise InputError(
        f"the epsilon column {column!r} must hold numbers or text (got {kind}); cast it in the query, "
        f"as in {name}::float8"
    )


def _postgres_code(column: str, kind: str, interval: Interval, number: Number) -> str:
    name = quoted(column)
    if kind in _NUMBERS:
        x = name if kind == "float8" else f"{name}::float8"
        return _code(x, (number("foot"), number("hi")), _postgres_formula(x, interval, number), f"{x} < 'NaN'::float8")
    if kind == "numeric":
        double = f"(case when abs({name}) <= {_NOTHING} then 0 else {name}::float8 end)"
        ends = tuple(f"'{Decimal(numbers(interval)[end])}'::numeric" for end in ("foot", "hi"))
        return _code(name, ends, _postgres_formula(double, interval, number), f"{name} < 'NaN'::numeric")
    if kind == "bool":
        no, yes = interval.codes(np.array([0.0, 1.0]), np.empty(2)).astype(int)
        return f"case when {name} then {yes} when not {name} then {no} else {_MIDDLE} end"
    remedy = f"cast it in the query: {name}::numeric" if kind == "money" else "turn it into a number in the query"
    if kind in _TEXTS:  # a bare cast would raise on a cell that is no number, and so tell of it
        pattern = "'^-?[0-9]{1,9}([.][0-9]{1,9})?$'"
        remedy = f"cast the cells that are numbers: case when {name} ~ {pattern} then {name}::numeric end"
    raise InputError(f"the value column {column!r} must hold numbers (got {kind}); {remedy}")


def _postgres_formula(x: str, interval: Interval, number: Number) -> str:
    return f"floor({_formula(x, interval, number)})::int"


def _postgres_text(column: str | None, kinds: Mapping[str, str], what: str, allowed: set[str]) -> str | None:
    """Return a public column as text in normal form C, compared byte by byte."""
    if column is None:
        return None
    if kinds[column] not in allowed:
        raise InputError(
            f"the {what} column {column!r} must hold text or whole numbers (got {kinds[column]}); "
            f"cast it in the query, as in {quoted(column)}::text"
        )
    return f'normalize({quoted(column)}::text, NFC) collate "C"'


def sqlite(query: str, request: Request, interval: Interval | None) -> Parts:
    """Return the expressions for SQLite, where each cell has a type of its own; numbers are bound as parameters."""
    epsilon = code = None
    if isinstance(request.epsilon, str):
        name = quoted(request.epsilon)
        epsilon = f"case typeof({name}) when 'integer' then cast({name} as real) else {name} end"
    if interval is not None and request.value is not None:
        code = _sqlite_code(quoted(request.value), interval)
    rounded = f"case typeof(e) when 'real' then {_rounded('e', _bound)} else e end"
    return Parts(
        query,
        code or "0",
        epsilon,
        person=_sqlite_text(request.person),
        group=_sqlite_text(request.by),
        keys=(Key(), Key(rounded, "typeof(k) = 'text'", rounded=True)),
        bad="p is null or p = '' or hetdp_odd(p)",
        zero="case when k = 0 then 0 else s end",
    )


def _sqlite_code(name: str, interval: Interval) -> str:
    """Return the code of a cell: `core.domain.value_of` reads text, from its bytes so that no encoding can raise."""
    x = (
        f"(case typeof({name}) when 'text' then hetdp_value(cast({name} as blob)) "
        f"when 'blob' then null else cast({name} as real) end)"
    )
    formula = f"cast({_formula(x, interval, _bound)} as integer)"
    return _code(x, (_bound("foot"), _bound("hi")), formula, f"{x} >= :hi")


def _sqlite_text(column: str | None) -> str | None:
    """Return a public cell as text, NULL if it is neither text nor a whole number; a CASE compares byte by byte."""
    if column is None:
        return None
    name = quoted(column)
    return f"case typeof({name}) when 'integer' then cast({name} as text) when 'text' then hetdp_text({name}) end"


def _bound(name: str) -> str:
    return f":{name}"


def _formula(x: str, interval: Interval, number: Number) -> str:
    moved = f"({x} - {number('lo')})" if interval.lo else x
    return f"{moved} / {number('width')} * {GRID}.0 + 0.5"


def _code(x: str, ends: tuple[str, ...], formula: str, above: str) -> str:
    foot, hi = ends
    inside = f"{x} > {foot} and {x} < {hi}"
    return f"case when {inside} then {formula} when {x} <= {foot} then 0 when {above} then {GRID} else {_MIDDLE} end"


def _rounded(e: str, number: Number) -> str:
    """Return ε rounded down to 12 significant bits, see `core.levels`; what is no ε stays, to be refused."""
    huge = _cut(f"({e} * {number('shrink')})", number)
    return (
        f"case when {e} >= {number('tiny')} and {e} < {number('huge')} then {_cut(e, number)} "
        f"when {e} >= 0 and {e} < {number('tiny')} then 0.0 "
        f"when {e} >= {number('huge')} and {e} < {number('infinity')} then {huge} / {number('shrink')} else {e} end"
    )


def _cut(e: str, number: Number) -> str:
    near = _split(e, number)
    lower = _split(f"({near} * {number('below')})", number)
    return f"(case when {near} <= {e} then {near} else {lower} end)"


def _split(e: str, number: Number) -> str:
    return f"({number('split')} * {e} - ({number('split')} * {e} - {e}))"
