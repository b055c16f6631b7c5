"""Tally, the private half of the data: per level of ε, how many people and the exact sum of their codes.

A tally has a random identity, drawn when it is read, and one that was merged keeps the identities of its parts. Meeting
one of them twice is refused: adding a tally to itself, or to a copy of its file, would count everybody twice and so
spend 2ε. Contents are never compared, because two sites with equal sums would learn from a refusal that they are equal.
People who were read twice, from overlapping tables, cannot be noticed at all: that nobody is, is the promise of
whoever merges, and a merged tally says so and claims nothing else about its people.
"""

from __future__ import annotations

import hashlib
import json
import math
import operator
import os
import secrets
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hetdp.core.cells import Bins, Categories, Edges
from hetdp.core.domain import GRID, Floats, Interval, Ints
from hetdp.core.levels import BITS, WIDE, WIDE_BITS, Levels, collapse, round_down
from hetdp.errors import InputError
from hetdp.files import write_whole
from hetdp.privacy.exact import Choice, Mass
from hetdp.report import Provenance
from hetdp.statistics import STATISTICS, Statistic

# The rule for files: never remove a field, never change what one means, and refuse what is unknown: a statistic, a
# measure of privacy, a version or a field that is not listed here may change what all the others mean. So anything new
# gets a new version, and the old ones stay readable (`_as_version_5`). A field that says nothing of the sums or the
# people, as `about`, may come without one; files that lack it are fine.
_KIND = {"format": "hetdp-tally", "version": 5, "measure": "pure-epsilon"}
_KNOWN = {*_KIND, "statistic", "parameters", "grid", "rounded", "wide", "epsilon", "count", "total", "names", "notes"}
_KNOWN |= {"identities", "about"}

PROMISED = (
    "Several tallies were merged. It is promised, not checked, that nobody is in two of them: a person in two spends "
    "the sum of both, more than this report says."
)
"""All that a merged tally says about its people."""

_WARNING = "PRIVATE: these sums are not protected by any noise. Do not publish this file."


# --- What one person hands over: the reference for every engine


def coded(statistic: Statistic, columns: Sequence[NDArray[Any]]) -> tuple[Ints, list[Floats]]:
    """Return the cell of every row and its codes, NaN where a value is missing, from columns as a source reads them.

    The cell is that of a category or between edges; what comes of a code, and of a missing value, is decided by
    `settled`, after the rows of a person were put together.
    """
    sorting, last = statistic.sorting, columns[-1]
    with np.errstate(all="ignore"):  # no value may warn: a longdouble can overflow on its way to a double
        if isinstance(sorting, Categories):
            cell = last.astype(np.int64)  # a source gives the place of a category
        else:
            cell = (
                sorting.of_numbers(last.astype(np.float64)) if isinstance(sorting, Edges) else np.zeros(last.size, int)
            )
    pairs = zip(statistic.coded, columns, strict=False)
    return cell, [interval.codes(x, np.empty(x.size), math.nan) for interval, x in pairs]


def settled(
    statistic: Statistic, cell: Ints, codes: Sequence[Floats]
) -> tuple[NDArray[np.bool_] | None, Ints, list[Floats]]:
    """Return who counts (None: everybody), and the cells and codes of those who do, from what `coded` gives.

    The arrays are written to.

    This is the reference: what a person hands over is `statistic.totals` of their cell and codes, and every engine
    computes the same integers. Claim: it depends on this person's values alone; nothing raises; who counts is
    everybody, unless it was said (missing="drop") that who has a value is public.
    """
    keep = None
    if statistic.missing == "drop":
        absent = [np.isnan(code) for code in codes]
        keep = ~np.any(absent, axis=0) if absent else cell != statistic.cells - 1
        cell, codes = cell[keep], [code[keep] for code in codes]
    absent = [np.isnan(code) for code in codes]
    for code, none, interval in zip(codes, absent, statistic.coded, strict=True):
        np.copyto(code, 0 if statistic.marks else statistic.fill(interval), where=none)
    if isinstance(statistic.sorting, Bins):
        cell = statistic.sorting.of_codes(codes[0].astype(np.int64))
    if statistic.unanswered is not None:
        np.copyto(cell, statistic.unanswered, where=absent[0])
    added = [*codes[: len(statistic.sums)], *(GRID * ~none for none in absent if statistic.marks)]
    return keep, cell, [*added, *([squared(added[0])] if statistic.square else [])]


def squared(code: Any) -> Any:
    """Return ⌊(2q − Q)²/Q⌋; in doubles too it is exact, because the square is below 2⁴¹ and Q a power of two."""
    return np.floor((2 * code - GRID) ** 2 / GRID)


# --- Sums of what people hand over


@dataclass(frozen=True, eq=False, repr=False)
class Table:
    """Per level, ascending: ε, the number of people, the exact sums of their codes (0 where ε = 0).

    Attributes
    ----------
    total
        Of shape (levels, width): a statistic with several codes a person has a column for each. The mean has one.
    rounded, wide
        As in `Levels`.
    """

    epsilon: Floats
    count: Ints
    total: Ints
    rounded: bool = False
    wide: bool = False

    @classmethod
    def nobody(cls, statistic: Statistic | None = None) -> Table:
        """Return the table of no people."""
        width = 1 if statistic is None else statistic.width
        return cls(np.empty(0), np.empty(0, np.int64), np.empty((0, width), np.int64), wide=width > WIDE)

    @classmethod
    def single(cls, epsilon: Any, count: Any, total: Any, *, rounded: bool = False) -> Table:
        """Return the table of a statistic with one code a person, such as the mean, from levels in any order."""
        columns = np.asarray(epsilon, np.float64), np.asarray(count, np.int64), np.asarray(total, np.int64)[:, None]
        return merge([cls(*columns, rounded)])

    @property
    def n(self) -> int:
        """The number of people."""
        return int(self.count.sum())

    def like(self, epsilon: Floats) -> Floats:
        """Return ε's as they are in this table: rounded down if its levels are."""
        return round_down(epsilon, WIDE_BITS if self.wide else BITS) if self.rounded else epsilon

    def levels(self, names: Mapping[float, str] | None = None) -> Levels:
        """Return the public half: no sums."""
        return Levels.from_arrays(self.epsilon, self.count, rounded=self.rounded, wide=self.wide, names=names)


def merge(tables: Iterable[Table]) -> Table:
    """Return the table of all the people of several tables; exact and independent of the order.

    No value of a person with ε = 0 enters: the sums at that level are 0.
    """
    parts = list(tables)
    sums = np.concatenate([np.column_stack([part.count, part.total]) for part in parts])
    epsilon = np.concatenate([part.epsilon for part in parts])
    wide = any(part.wide for part in parts)
    epsilon, sums, rounded = collapse(epsilon, sums, rounded=any(part.rounded for part in parts), wide=wide)
    return Table(epsilon, sums[:, 0].copy(), np.where(epsilon[:, None] > 0, sums[:, 1:], 0), rounded, wide)


@dataclass(eq=False, repr=False)
class Tally:
    """A sufficient statistic for every affine estimator: {ε: (people, exact sums of codes)}.

    Two tallies of different people merge with `+`, exactly and in any order, if they are for the same `statistic` on
    the same interval. A tally is private: it has the exact sums. Its `repr` shows the public half only.

    Attributes
    ----------
    levels
        How many people have which ε: the public half.
    table
        The exact sums: the private half.
    statistic
        What it is for.
    names
        {ε: name} of tiers.
    notes
        What is assumed about its people.
    identities
        Which readings it comes from.
    about
        What its columns and sources are called.

    >>> from hetdp import read
    >>> a = read([0.2, 0.4], epsilon=[1, 1], bounds=(0, 1))
    >>> b = read([0.9], epsilon=[float("inf")], bounds=(0, 1))
    >>> a + b == b + a, (a + b).levels
    (True, Levels({1: 2, inf: 1}))
    >>> a + a
    Traceback (most recent call last):
    hetdp.errors.InputError: these tallies share people: one was read once and comes twice; leave the second one out
    """

    table: Table
    statistic: Statistic
    names: Mapping[float, str] | None = None
    notes: tuple[str, ...] = ()
    identities: frozenset[str] = field(default_factory=lambda: frozenset({secrets.token_hex(16)}))
    about: Provenance = field(default_factory=Provenance)

    levels: Levels = field(init=False)

    def __post_init__(self) -> None:
        self.levels = self.table.levels(self.names)
        _refuse_odd(self.table, self.statistic)

    @property
    def n(self) -> int:
        """The number of people."""
        return self.levels.n

    @property
    def interval(self) -> Interval:
        """The public interval of the values."""
        return self.statistic.interval

    def coarse(self) -> Tally:
        """Return the same people with their levels rounded down as those of a wide statistic are."""
        return replace(self, table=merge([replace(self.table, rounded=True, wide=True)]))

    def __add__(self, other: object) -> Tally:
        if not isinstance(other, Tally):
            return NotImplemented
        if self.statistic.name != other.statistic.name:
            both_names = f"{self.statistic.name}, {other.statistic.name}"
            raise InputError(f"tallies of different statistics do not merge ({both_names})")
        if self.interval != other.interval:
            raise InputError(f"tallies with different bounds do not merge (got {self.interval} and {other.interval})")
        if self.statistic != other.statistic:
            raise InputError("tallies with other categories, edges, bins or quantiles do not merge")
        if self.statistic.missing != other.statistic.missing:
            said = f"{self.statistic.missing!r} and {other.statistic.missing!r}"
            raise InputError(f"tallies that do other things about missing values do not merge (missing={said})")
        if (self.statistic.values or other.statistic.values) and self.statistic.plain != other.statistic.plain:
            raise InputError("tallies in which cells stand for other numbers do not merge (values=)")
        if self.identities & other.identities:
            raise InputError("these tallies share people: one was read once and comes twice; leave the second one out")
        names = {**self.levels.names, **other.levels.names}
        both = self.identities | other.identities
        about = self.about + other.about
        return Tally(merge([self.table, other.table]), self.statistic, names, (PROMISED,), both, about)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Tally):
            return NotImplemented
        return (
            self.statistic == other.statistic
            and self.statistic.missing == other.statistic.missing
            and self.levels == other.levels
            and np.array_equal(self.table.total, other.table.total)
        )

    __hash__ = None  # type: ignore[assignment]  # a hash of private sums would be a fingerprint of them

    def __repr__(self) -> str:
        ends = f"bounds=({self.interval.lo:g}, {self.interval.hi:g})"
        what = ends if self.statistic.name == "mean" else f"{self.statistic!r}"
        return f"Tally({what}, {self.levels!r}, sums=<private>)"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the tally to a file that only its owner can read; the file appears whole or not at all."""
        target = Path(path)
        if self.statistic.private_bounds:
            raise InputError("a file would forget what the private bounds of this tally spent; release it from here")
        body = json.dumps(self._fields(), indent=1)
        text = json.dumps({"warning": _WARNING, "sha256": _digest(body), "body": body}, indent=1)
        if not target.parent.is_dir():
            raise InputError(f"{target} cannot be written: its folder does not exist")
        write_whole(target, text)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Tally:
        """Return a tally that `save` wrote."""
        fields = _body(path)
        try:
            return cls._of_fields(_as_version_5(fields), path)
        except InputError:
            raise
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError, IndexError):
            pass  # what these say may quote a sum
        raise InputError(f"{path} is not a tally file that can be read")

    def _fields(self) -> dict[str, Any]:
        return {
            **_KIND,
            "statistic": self.statistic.name,
            "parameters": self.statistic.plain,
            "grid": GRID,
            "rounded": self.table.rounded,
            "wide": self.table.wide,
            "epsilon": [level.hex() for level in self.table.epsilon.tolist()],
            "count": self.table.count.tolist(),
            "total": self.table.total.tolist(),
            "names": {level.hex(): name for level, name in self.levels.names.items()},
            "notes": list(self.notes),
            "identities": sorted(self.identities),
            "about": {"columns": list(self.about.columns), "sources": list(self.about.sources)},
        }

    @classmethod
    def _of_fields(cls, fields: Mapping[str, Any], path: str | os.PathLike[str]) -> Tally:
        unknown = [name for name, known in {**_KIND, "grid": GRID}.items() if fields.get(name) != known]
        unknown += [] if fields.get("statistic") in STATISTICS else ["statistic"]
        if unknown or not fields.keys() <= _KNOWN:
            what = unknown[0] if unknown else "field"
            raise InputError(f"{path} has a {what} that this version of hetdp does not know; make the tally again")
        epsilon = [float.fromhex(level) for level in fields["epsilon"]]
        count = [*map(operator.index, fields["count"])]
        total = [[*map(operator.index, codes)] for codes in fields["total"]]
        statistic = STATISTICS[fields["statistic"]].again(fields["parameters"])
        rows = zip(epsilon, count, total, strict=True)
        fits = [e >= 0 and c > 0 and all(0 <= code <= c * GRID for code in codes) for e, c, codes in rows]
        if not all(fits) or any(len(codes) != statistic.width for codes in total):
            raise InputError(_ODD)
        columns = np.array(epsilon), np.array(count, np.int64), np.array(total, np.int64).reshape(len(count), -1)
        table = merge([Table(*columns, fields["rounded"], fields["wide"])])
        names = {float.fromhex(level): str(name) for level, name in fields["names"].items()}
        identities = frozenset(map(str, fields["identities"]))
        if not identities or not isinstance(fields["identities"], list):
            raise InputError("this tally does not say which reading it comes from; make it again")
        told = {name: tuple(map(str, some)) for name, some in fields.get("about", {}).items()}
        about = Provenance(columns=told.get("columns", ()), sources=told.get("sources", ()))
        return cls(table, statistic, names, tuple(map(str, fields["notes"])), identities, about)


def _refuse_odd(table: Table, statistic: Statistic) -> None:
    """Raise unless people of this statistic can have these sums.

    Where everybody hands over one unit, what they hand over adds up to a unit each; where a cell is chosen, a whole one
    is in one cell. The noise is right for that alone. Sums that were read always are so, which tells nothing.
    """
    ascending = bool((table.epsilon[1:] > table.epsilon[:-1]).all())
    fits = ascending and table.total.shape == (table.epsilon.size, statistic.width)
    if fits and isinstance(statistic.geometry, (Mass, Choice)):
        whole = np.where(table.epsilon > 0, table.count, 0) * GRID
        fits = bool((table.total.sum(axis=1) == whole).all() and (table.total >= 0).all())
        fits &= isinstance(statistic.geometry, Mass) or not (table.total % GRID).any()
    if not fits:
        raise InputError(_ODD)


_ODD = "this tally has sums that no values can give"


def _body(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the fields of a tally file; no error says anything of what is in it, nor has it in its chain."""
    fields: Any = None
    intact = True
    with suppress(OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        outer = json.loads(Path(path).read_text(encoding="utf-8"))
        body = outer["body"]
        intact = outer["sha256"] == _digest(body)
        fields = json.loads(body)
    if not intact:
        raise InputError(f"{path} is damaged: its checksum does not fit")
    if not isinstance(fields, dict):
        raise InputError(f"{path} is not a tally file that can be read")
    return fields


def _as_version_5(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of an older file as version 5 has them: versions 3 and 4 knew means alone."""
    if fields.get("format") == "hetdp-tally-3":
        total = [[total] for total in fields["total"]]
        old = {"format": "hetdp-tally", "version": 4, "statistic": "mean", "measure": "pure-epsilon", "width": 1}
        fields = {**old, **fields, "format": "hetdp-tally", "total": total}
    if fields.get("version") != 4 or fields.get("statistic") != "mean" or fields.get("width") != 1:
        return fields
    kept = {name: field for name, field in fields.items() if name not in ("bounds", "width")}
    parameters = {"bounds": fields["bounds"], "missing": "midpoint"}
    return {**kept, "version": 5, "parameters": parameters, "wide": False}


def is_tally(path: str | os.PathLike[str]) -> bool:
    """Say whether a file begins as `Tally.save` begins one."""
    begin = json.dumps({"warning": _WARNING}, indent=1)[:-2].encode()
    with suppress(OSError, ValueError):
        if Path(path).is_file():  # opening a pipe would wait for a writer
            with Path(path).open("rb") as file:
                return file.read(len(begin)) == begin
    return False


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
