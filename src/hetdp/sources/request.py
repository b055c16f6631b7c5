"""What is asked of a source, how its cells are read, and the forms in which it answers.

A source on this machine answers with `Batch`es of rows; an engine that groups by itself answers with `Tables`.
"""

from __future__ import annotations

import decimal
import math
import numbers
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from hetdp.core.cells import Reading
from hetdp.core.domain import BAD_ID, epsilon_of, normal, plural, value_of
from hetdp.core.levels import BITS, LIMIT, MOST_PEOPLE, WIDE, WIDE_BITS, WIDE_LIMIT, joined_names
from hetdp.errors import InputError
from hetdp.statistics import Statistic
from hetdp.statistics.answer import Group, label
from hetdp.tally import Table, merge

if TYPE_CHECKING:
    import polars as pl

_WORDS = {"value": "value", "epsilon": "epsilon", "person": "person's id", "by": "group"}


@dataclass(frozen=True)
class Form:
    """How numbers and columns are written in a text file. It is public: the user says it, the data never decide it.

    Attributes
    ----------
    delimiter
        The character between columns. None: a tab in .tsv and .tab files, else a comma. It may be the thousands sign
        too: a cell that holds the delimiter stands between quotes, "1,234.50", and a line where it does not has a field
        too many and is refused by its number.
    decimal
        The decimal sign, a point or a comma. The other one is then no decimal sign.
    thousands
        The character between groups of three digits; None if there is none.

    Examples
    --------
    >>> Form(";", ",", ".").delimiter
    ';'
    >>> Form(",", ",")
    Traceback (most recent call last):
    hetdp.errors.InputError: the delimiter and the decimal sign must differ (got ',' for both)
    """

    delimiter: str | None = None
    decimal: str = "."
    thousands: str | None = None

    def __post_init__(self) -> None:
        if self.decimal not in {".", ","}:
            raise InputError(f"the decimal sign must be a point or a comma (got {self.decimal!r})")
        for name, sign in (("delimiter", self.delimiter), ("thousands sign", self.thousands)):
            if sign is None:
                continue
            if len(sign) != 1 or not sign.isascii() or sign.isalnum() or sign in "\"'+-\r\n\x00":
                raise InputError(
                    f"the {name} must be one ASCII character that is no digit, letter, quote, plus, minus or line end "
                    f"(got {sign!r})"
                )
            if sign == self.decimal:
                raise InputError(f"the {name} and the decimal sign must differ (got {sign!r} for both)")

    def delimiter_of(self, path: Path) -> str:
        """Return the character between the columns of this file: as said, else by the end of its name."""
        if self.delimiter is not None:
            return self.delimiter
        usual = "\t" if path.suffix.lower() in {".tsv", ".tab"} else ","
        if usual == self.decimal:
            raise InputError(f"{path} would have {usual!r} between its columns and in its numbers; name its delimiter")
        return usual


def tiers_of(names: Mapping[str, Any] | None) -> dict[str, float]:
    """Return {name of a tier: ε}, or raise if it is no such mapping.

    >>> tiers_of({"strict": 0.1, "open": "public"})
    {'strict': 0.1, 'open': inf}
    """
    if not isinstance(names, (Mapping, type(None))):
        raise InputError(
            f"tiers are a mapping of names to ε, such as {{'open': 1}} (got {type(names).__name__}); "
            "a file of tiers is for the command line: hetdp mean --tiers FILE"
        )
    if not all(isinstance(name, str) for name in names or ()):
        raise InputError("the name of a tier must be text: {'1': 0.5} for a column that holds 1")
    return {name: epsilon_of(cell, f" for tier {name!r}") for name, cell in (names or {}).items()}


def tier_name(cell: Any) -> str | None:
    """Return the name of a tier as a cell holds it, a text or a whole number by its digits; None if it is neither.

    >>> tier_name(" open "), tier_name(1), tier_name(1.0)
    ('open', '1', None)
    """
    if isinstance(cell, str):
        return cell.strip()
    whole = isinstance(cell, numbers.Integral) and not isinstance(cell, bool)
    return str(int(cell)) if whole else None


def check_epsilon(epsilon: Any, *, in_table: bool) -> None:
    """Raise for an ε that is neither a column nor one number where people are in a table, or a text where they are not.

    What a sequence with one ε a person has to be is checked where it is read.
    """
    if in_table and not isinstance(epsilon, (str, numbers.Real, decimal.Decimal, type(None))):
        raise InputError(
            "with a table epsilon=… is the name of its column, or one number for everybody (you passed a "
            f"{type(epsilon).__name__}); for a column of names of tiers say what they mean: tiers={{name: ε}}"
        )
    if not in_table and isinstance(epsilon, str) and not math.isnan(value_of(epsilon)):
        raise InputError(f"for one ε for everybody pass a number, not a text (got epsilon={epsilon!r})")


@dataclass(frozen=True)
class Request:
    """Which columns, and what their cells mean.

    Attributes
    ----------
    value
        The private column, or several; None to count people only.
    epsilon
        The column with everybody's ε, or one ε for all.
    person
        The column that says who a row is about.
    several
        Whether a person may have several rows: they count once, with the average of their codes. If not, a second
        row of the same person is an error.
    by
        A public column that splits the people into groups, or several.
    tiers
        {name: ε}. When there are any, the ε column holds names and nothing else.
    form
        How a text file is written.
    reads
        How each private column is read; as numbers if nothing is said.
    promised
        Whether it is promised that no value is missing: a line that lacks one by its layout is then refused. None if
        nothing had to be said, because what is missing has a cell of its own.
    """

    value: str | tuple[str, ...] | None
    epsilon: str | float
    person: str | None = None
    several: bool = False
    by: str | tuple[str, ...] | None = None
    tiers: Mapping[str, float] = field(default_factory=dict)
    form: Form = field(default_factory=Form)
    reads: tuple[Reading, ...] = ()
    promised: bool | None = True

    def __post_init__(self) -> None:
        public: list[tuple[str, Any]]
        public = [("epsilon", self.epsilon), ("person", self.person), *(("by", name) for name in self.groupings)]
        pairs = [(("value", name), other) for name in self.private for other in public]
        twice = [name for name, kind in self.readings if self.readings.count((name, kind)) > 1]
        pairs += [(("value", name), ("value", name)) for name in twice]
        pairs += [(public[0], public[1])]
        pairs += [(("by", name), ("by", name)) for name in self.groupings if self.groupings.count(name) > 1]
        for (one, column), (other, same) in pairs:
            if isinstance(column, str) and column == same:
                raise InputError(
                    f"the {_WORDS[one]} and the {_WORDS[other]} cannot be the same column (got {column!r} for both)"
                )

    def held(self, kinds: Mapping[str, Any]) -> Request:
        """Return the same where these columns of numbers have these types: categories are compared as held there."""
        reads = (how.held(str(kinds[name])) if how and name in kinds else how for name, how in self.readings)
        return replace(self, reads=tuple(reads))

    @property
    def private(self) -> tuple[str, ...]:
        """The private columns."""
        return () if self.value is None else (self.value,) if isinstance(self.value, str) else self.value

    @property
    def readings(self) -> tuple[tuple[str, Reading], ...]:
        """The private columns, and how each is read."""
        return tuple(zip(self.private, self.reads or (None,) * len(self.private), strict=True))

    def of(self, some: Sequence[int]) -> Request:
        """Return the same with some of the private columns."""
        readings = [self.readings[i] for i in some]
        if not readings:
            return replace(self, value=None, reads=())
        names, kinds = zip(*readings, strict=True)
        return replace(self, value=names, reads=kinds)

    @property
    def groupings(self) -> tuple[str, ...]:
        """The public columns that split the people into groups."""
        return () if self.by is None else (self.by,) if isinstance(self.by, str) else self.by

    def group_of(self, texts: Sequence[str]) -> Group:
        """Return the name of a group from the texts of its columns: of one column the text, of none nothing."""
        parts = tuple(normal(text) for text in texts)
        return parts if len(parts) > 1 else "".join(parts)

    @property
    def texts(self) -> tuple[str, ...]:
        """The public columns that are read as text."""
        return tuple(dict.fromkeys(name for name in (self.person, *self.groupings) if name is not None))

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns, each once."""
        epsilon = self.epsilon if isinstance(self.epsilon, str) else None
        return tuple(dict.fromkeys(name for name in (*self.private, epsilon, *self.texts) if name is not None))

    @property
    def tier_names(self) -> dict[float, str]:
        """The name to show for a level; tiers with the same ε share it."""
        return joined_names((level, name) for name, level in self.tiers.items())

    def instead(self, name: str) -> str:
        """Return the advice where a column is not there whose name is a number: one ε for everybody."""
        number = name == self.epsilon and not math.isnan(value_of(name))
        return "; for one ε for everybody pass a number, not a text" if number else ""

    def epsilon_of(self, cell: Any, where: str = "", *, quotes: bool = True) -> float:
        """Return the ε of one cell: by its tier's name if there are tiers, else as a number. A bad one raises.

        Without `quotes` the message does not repeat the cell, which might be a piece of a private one.
        """
        if self.tiers:
            name, names = tier_name(cell), ", ".join(map(repr, self.tiers))
            if name is not None and name in self.tiers:
                return self.tiers[name]
            if name is None:
                kind = type(cell).__name__
                raise InputError(f"tiers have texts or whole numbers as names (got {kind}{where}); cast them to text")
            if quotes:
                raise InputError(f"unknown tier {shown(name)}{where}; the tiers are {names}")
            raise InputError(f"epsilon cannot be read{where}: it must be one of the tiers {names}")
        try:
            return epsilon_of(cell, where)
        except InputError:
            if quotes:
                raise
        raise InputError(
            f"epsilon cannot be read{where}: it must be 0, positive, inf or public (a decimal number; if it is too "
            "large for one, write inf); 0,5 needs --decimal ',' and another delimiter; for names of tiers say what "
            "they mean: --tier NAME=ε, tiers={name: ε}"
        )


@dataclass(frozen=True, eq=False, repr=False)
class Batch:
    """Some people: their private columns and their ε.

    Attributes
    ----------
    columns
        The private columns: numbers, NaN where missing or unreadable; of categories, the place of each.
    place
        What a place in this source is called: an index, a line, a row.
    texts
        The public text columns that were asked for (who a row is about, its group), by name; null where missing.
    quotes
        Whether a message may quote these texts. Right of the value in a delimited file, on a damaged line, one may be a
        piece of the value.
    people
        How many people each entry stands for, where rows that are alike come as one; None: one each.
    missing, places, odd
        For the owner's `check` alone: which values are missing, the other NaNs being unreadable; where each
        person stands; which lines are not plain: with a quote, too short, or not quite JSON.
    """

    columns: tuple[NDArray[Any], ...]
    epsilon: NDArray[np.float64]
    place: str = "index"
    missing: NDArray[np.bool_] | None = None
    places: NDArray[np.int64] | None = None
    odd: NDArray[np.bool_] | None = None
    texts: Mapping[str, pl.Series] = field(default_factory=dict)
    quotes: bool = True
    people: NDArray[np.int64] | None = None

    @property
    def values(self) -> NDArray[Any] | None:
        """The first private column, if there is one."""
        return self.columns[0] if self.columns else None


Tables = dict[Group, Table]
"""A table for each group; without groups one, under the empty name."""


def natural(group: Group) -> list[tuple[bool, float, str]]:
    """Return what groups are sorted by, column by column: numbers first and by their value, then texts.

    >>> sorted(["b", "10", "2", "a"], key=natural)
    ['2', '10', 'a', 'b']
    """
    parts = [(value_of(text), text) for text in ((group,) if isinstance(group, str) else group)]
    return [(not math.isfinite(x), x if math.isfinite(x) else 0.0, text) for x, text in parts]


def empty_total(statistic: Statistic, group: Group) -> InputError:
    """Return the error for a total over nobody: who is in which group is public, so it is known without a release."""
    return InputError(
        f"nobody is in group {shown(label(group))}, so its {statistic.name} is 0 and needs no release; leave it out of "
        "groups="
    )


# What can be wrong with public cells ---------------------------------------------------------------------------------


class Fault(IntEnum):
    """What can be wrong with the rows of a person or a group; an engine hands over the number."""

    NO_ID = 1
    BAD_ID = 2
    NO_EPSILON = 3
    NO_GROUP = 4
    EPSILONS = 5
    GROUPS = 6
    ROWS = 7
    TOO_MANY_ROWS = 8


KEY_FAULTS = {"epsilon": (Fault.NO_EPSILON, Fault.EPSILONS), "group": (Fault.NO_GROUP, Fault.GROUPS)}
"""Of what a person has once: the faults that it is missing in a row, and that there are several. A group of several
columns has the second fault if any of them differs."""

_FAULTS = {
    Fault.NO_ID: "a person's id is missing in at least one row; every row needs one",
    Fault.BAD_ID: f"an id {BAD_ID}",
    Fault.NO_EPSILON: "epsilon is missing or NaN in at least one row; everybody needs one (0 leaves a person out)",
    Fault.NO_GROUP: "the group is missing in at least one row; every row needs one",
    Fault.EPSILONS: "{people} {have} more than one epsilon{such}; a person has one, written in one way",
    Fault.GROUPS: "{people} {have} rows in more than one group{such}; a person has one",
    Fault.ROWS: "{ids} {are} on more than one row{such}; for a mean say rows='average' (--rows average), else keep one",
    Fault.TOO_MANY_ROWS: "{people} {have} too many rows{such}; average them first",
}


def fault_error(fault: Fault, people: int = 0, example: object = None) -> InputError:
    """Return the error for a fault of some people, with one of their ids if there is one.

    >>> fault_error(Fault.GROUPS, 2, "ann")
    InputError("2 people have rows in more than one group, such as 'ann'; a person has one")
    """
    such = "" if example is None else f", such as {shown(example)}"
    verbs = {"have": "has", "are": "is"} if people == 1 else {"have": "have", "are": "are"}
    who = {"people": plural(people, "person"), "ids": plural(people, "id")}
    return InputError(_FAULTS[fault].format(**who, **verbs, such=such))


def shown(text: object) -> str:
    """Return an id or a group for a message, cut to a readable length."""
    return repr(str(text)[:64])


# Tables from an engine that groups by itself -------------------------------------------------------------------------

MOST_ROWS = 2**31
"""Rows of one person: with at most so many, (2·sum + rows) / (2·rows) in doubles has the right whole part."""

_FETCHED = 4 * LIMIT
"""Rows of a level table that are read without asking whether they are too many."""

Level = tuple[tuple[str | None, ...], Any, int, int, tuple[int, ...], int]
"""A row of a level table: the texts of its group, one for each column of groups, ε as the engine has it, cell (−1 for
people who are left out), people, sums of codes, and the greatest `Fault` or 0."""


class LevelQuery(Protocol):
    """The level table of a source, as its engine computes it."""

    @property
    def texts(self) -> bool:
        """Whether ε is a column of texts."""

    def many(self, limit: int) -> bool:
        """Say whether there are more than `limit` levels; asked only if ε is a column."""

    def levels(self, *, bits: int | None, most: int | None) -> list[Level]:
        """Return the level table, its first `most` rows if given.

        With `bits`, the engine puts only such ε's together that `round_down` makes equal; the rest is done here.
        """

    def at_fault(self, fault: Fault) -> tuple[int, Any]:
        """Return how many people have a fault, and the least of their ids."""


def distinct_epsilons(cells: Sequence[Any], request: Request) -> dict[Any, float]:
    """Return {cell: ε} of the cells of an engine; a missing or bad one raises.

    The order in which an engine hands over rows can depend on private cells beside them, so the distinct cells are read
    in an order of their own: which bad one a message names must not tell of anything else.
    """
    if not isinstance(request.epsilon, str):
        return {}
    if any(cell is None for cell in cells):
        raise fault_error(Fault.NO_EPSILON)
    ordered = sorted(dict.fromkeys(cells), key=lambda cell: (type(cell).__name__, repr(cell)))
    return {cell: request.epsilon_of(cell) for cell in ordered}


def engine_tables(query: LevelQuery, request: Request, statistic: Statistic | None) -> Tables:
    """Return the tables that an engine computes, an empty mapping if there is nobody.

    Which queries run depends on ε, on ids and on the number of people and groups, all of it public. Each distinct ε is
    read here, once: a number, a text or the name of a tier. A bad one raises.
    """
    wide = statistic is not None and statistic.width > WIDE
    limit, bits = (WIDE_LIMIT, WIDE_BITS) if wide else (LIMIT, BITS)
    # With cells the number of rows depends on values, so what is done must not depend on it.
    column = isinstance(request.epsilon, str)
    sorts = statistic is not None and (statistic.cells > 1 or statistic.missing == "drop")
    rows = [] if sorts else query.levels(bits=None, most=_FETCHED)
    more = sorts or len(rows) == _FETCHED  # many levels or many groups
    many = more and column and query.many(limit)
    if more and not (many and query.texts):
        rows = query.levels(bits=bits if many else None, most=None)
    if column and query.texts and (many or len({level for _, level, *_ in rows}) > limit):
        raise InputError(  # an engine cannot round texts
            f"the epsilon column {request.epsilon!r} holds more than {limit:,} different texts; "
            "cast it to doubles first: cast(… as double precision)"
        )
    if fault := max((row[-1] for row in rows), default=0):
        raise fault_error(Fault(fault), *query.at_fault(Fault(fault)))
    rows = [row for row in rows if row[3]]  # a sum over no rows is a row all the same
    if sum(people for _, _, _, people, _, _ in rows) > MOST_PEOPLE:
        raise InputError(f"at most {MOST_PEOPLE:,} people fit in one tally; release in parts")
    groups: dict[Group, list[tuple[float, int, int, tuple[int, ...]]]] = {}
    if any(text is None for group, *_ in rows for text in group):
        raise fault_error(Fault.NO_GROUP)
    read = distinct_epsilons([row[1] for row in rows], request)
    for group, epsilon, cell, people, sums, _ in rows:
        texts = [text for text in group if text is not None]
        level = read[epsilon] if isinstance(request.epsilon, str) else request.epsilon
        if cell < 0:  # left out, because they have no value and that is public
            continue
        groups.setdefault(request.group_of(texts), []).append((level, cell, people, sums))
    many |= len({level for parts in groups.values() for level, *_ in parts}) > limit
    return {
        group: level_table(statistic, *map(np.array, zip(*parts, strict=True)), rounded=many)
        for group, parts in groups.items()
    }


def level_table(
    statistic: Statistic | None,
    epsilon: NDArray[np.float64],
    cell: NDArray[np.int64],
    people: NDArray[np.int64],
    sums: NDArray[np.int64],
    *,
    rounded: bool,
) -> Table:
    """Return the table of people who come grouped by ε and cell, in any order."""
    people = people.astype(np.int64)
    if statistic is None:
        return Table.single(epsilon, people, np.zeros(people.size), rounded=rounded)
    level, row = np.unique(epsilon.astype(np.float64), return_inverse=True)
    count, total = np.zeros(level.size, np.int64), np.zeros((level.size, statistic.width), np.int64)
    np.add.at(count, row, people)
    statistic.add_to(total, row, cell.astype(np.int64), people, sums.astype(np.int64).reshape(people.size, -1))
    return merge([Table(level, count, total, rounded, statistic.width > WIDE)])
