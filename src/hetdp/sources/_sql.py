"""One group-by for any database: from the expressions of a dialect to the text of a statement.

The text is made from the query, the names and types of columns and the bounds, all public: no value changes it.
"""

# ruff: noqa: S608  statements are put together from the caller's own query and from names that are quoted

from __future__ import annotations

import re
from dataclasses import dataclass

from hetdp.core.levels import LIMIT
from hetdp.errors import InputError

PROBED = 2 * LIMIT
"""Rows that are looked at to learn whether there are many levels."""

FAULTS = ("torn", "split", "twice")
"""What can be wrong with a person: several ε, several groups, several rows."""

POSTGRES = re.compile(r"postgres(?:ql)?(?:\+\w+)?://")
SQLITE = re.compile(r"sqlite(?:\+\w+)?://")
_QUOTED = re.compile(
    r"[eE]'(?:[^'\\]|\\.|'')*'|'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|\$(\w*)\$.*?\$\1\$|--[^\n]*|/\*.*?\*/", re.DOTALL
)
_NAME = r'(?:"(?:[^"]|"")+"|[^\W\d][\w$]*)'
_TABLE = re.compile(rf"\s*{_NAME}(?:\s*\.\s*{_NAME}){{0,2}}\s*")


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
