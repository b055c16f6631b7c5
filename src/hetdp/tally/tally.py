"""Tally: per level of ε, how many people and the exact sum of their codes. Private.

A tally has a random identity, drawn when it is read, and one that was merged keeps the identities of its parts. Meeting
one of them twice is refused: adding a tally to itself, or to a copy of its file, would count everybody twice and so
spend 2ε. Contents are never compared, because two sites with equal sums would learn from a refusal that they are equal.
People who were read twice, from overlapping tables, cannot be noticed at all: that nobody is, is the promise of
whoever merges, and a merged tally says so and claims nothing else about its people.
"""

from __future__ import annotations

import hashlib
import json
import operator
import os
import secrets
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from hetdp.core.domain import GRID, Interval
from hetdp.core.levels import Floats, Ints, Levels, collapse
from hetdp.errors import InputError
from hetdp.files import write_whole

# The rule for files: never remove a field, never change what one means, and refuse what is unknown: a statistic, a
# measure of privacy, a version or a field that is not listed here may change what all the others mean. So anything new
# gets a new version, and the old ones stay readable (`_as_version_4`).
_KIND = {"format": "hetdp-tally", "version": 4, "statistic": "mean", "measure": "pure-epsilon", "width": 1}
_KNOWN = {*_KIND, "grid", "bounds", "rounded", "epsilon", "count", "total", "names", "notes", "identities"}

PROMISED = (
    "Several tallies were merged. It is promised, not checked, that nobody is in two of them: a person in two spends "
    "the sum of both, more than this report says."
)
"""All that a merged tally says about its people."""

_WARNING = "PRIVATE: these sums are not protected by any noise. Do not publish this file."


@dataclass(frozen=True, eq=False, repr=False)
class Table:
    """Per level, ascending: ε, the number of people, the exact sums of their codes (0 where ε = 0).

    Attributes
    ----------
    total
        Of shape (levels, width): a statistic with several codes a person has a column for each. The mean has one.
    """

    epsilon: Floats
    count: Ints
    total: Ints
    rounded: bool = False

    @classmethod
    def single(cls, epsilon: Any, count: Any, total: Any, *, rounded: bool = False) -> Table:
        """Return the table of a statistic with one code a person, such as the mean, from levels in any order."""
        columns = np.asarray(epsilon, np.float64), np.asarray(count, np.int64), np.asarray(total, np.int64)[:, None]
        return merge([cls(*columns, rounded)])

    @property
    def n(self) -> int:
        """The number of people."""
        return int(self.count.sum())

    def levels(self, names: Mapping[float, str] | None = None) -> Levels:
        """Return the public half: no sums."""
        return Levels.from_arrays(self.epsilon, self.count, rounded=self.rounded, names=names)


def merge(tables: Iterable[Table]) -> Table:
    """Return the table of all the people of several tables; exact and independent of the order.

    No value of a person with ε = 0 enters: the sums at that level are 0.
    """
    parts = list(tables)
    sums = np.concatenate([np.column_stack([part.count, part.total]) for part in parts])
    epsilon = np.concatenate([part.epsilon for part in parts])
    epsilon, sums, rounded = collapse(epsilon, sums, rounded=any(part.rounded for part in parts))
    return Table(epsilon, sums[:, 0].copy(), np.where(epsilon[:, None] > 0, sums[:, 1:], 0), rounded)


@dataclass(eq=False, repr=False)
class Tally:
    """A sufficient statistic for every affine estimator: {ε: (people, exact sums of codes)}.

    Two tallies of different people merge with `+`, exactly and in any order, if they are for the same `statistic` on
    the same interval. A tally is private: it has the exact sums. Its `repr` shows the public half only. Its `notes` say
    what is assumed about its people, its `identities` which readings it comes from.

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
    interval: Interval
    names: Mapping[float, str] | None = None
    notes: tuple[str, ...] = ()
    identities: frozenset[str] = field(default_factory=lambda: frozenset({secrets.token_hex(16)}))
    statistic: str = "mean"

    levels: Levels = field(init=False)

    def __post_init__(self) -> None:
        self.levels = self.table.levels(self.names)

    @property
    def n(self) -> int:
        """The number of people."""
        return self.levels.n

    def __add__(self, other: object) -> Tally:
        if not isinstance(other, Tally):
            return NotImplemented
        if self.statistic != other.statistic:
            raise InputError(f"tallies of different statistics do not merge ({self.statistic}, {other.statistic})")
        if self.interval != other.interval:
            raise InputError(f"tallies with different bounds do not merge (got {self.interval} and {other.interval})")
        if self.identities & other.identities:
            raise InputError("these tallies share people: one was read once and comes twice; leave the second one out")
        names = {**self.levels.names, **other.levels.names}
        both = self.identities | other.identities
        return Tally(merge([self.table, other.table]), self.interval, names, (PROMISED,), both, self.statistic)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Tally):
            return NotImplemented
        return (
            self.statistic == other.statistic
            and self.interval == other.interval
            and self.levels == other.levels
            and np.array_equal(self.table.total, other.table.total)
        )

    __hash__ = None  # type: ignore[assignment]  # a hash of private sums would be a fingerprint of them

    def __repr__(self) -> str:
        return f"Tally(bounds=({self.interval.lo:g}, {self.interval.hi:g}), {self.levels!r}, sums=<private>)"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the tally to a file that only its owner can read; the file appears whole or not at all."""
        target = Path(path)
        body = json.dumps(self._fields(), indent=1)
        text = json.dumps({"warning": _WARNING, "sha256": _digest(body), "body": body}, indent=1)
        if not target.parent.is_dir():
            raise InputError(f"{target} cannot be written: its folder does not exist")
        write_whole(target, text)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Tally:
        """Read a tally that `save` wrote."""
        fields = _body(path)
        try:
            return cls._of_fields(_as_version_4(fields), path)
        except InputError:
            raise
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError, IndexError):
            pass  # what these say may quote a sum
        raise InputError(f"{path} is not a tally file that can be read")

    def _fields(self) -> dict[str, Any]:
        return {
            **_KIND,
            "statistic": self.statistic,
            "width": self.table.total.shape[1],
            "grid": GRID,
            "bounds": [self.interval.lo, self.interval.hi],
            "rounded": self.table.rounded,
            "epsilon": [level.hex() for level in self.table.epsilon.tolist()],
            "count": self.table.count.tolist(),
            "total": self.table.total.tolist(),
            "names": {level.hex(): name for level, name in self.levels.names.items()},
            "notes": list(self.notes),
            "identities": sorted(self.identities),
        }

    @classmethod
    def _of_fields(cls, fields: Mapping[str, Any], path: str | os.PathLike[str]) -> Tally:
        unknown = [name for name, known in {**_KIND, "grid": GRID}.items() if fields.get(name) != known]
        if unknown or not fields.keys() <= _KNOWN:
            what = unknown[0] if unknown else "field"
            raise InputError(f"{path} has a {what} that this version of hetdp does not know; make the tally again")
        epsilon = [float.fromhex(level) for level in fields["epsilon"]]
        count = [*map(operator.index, fields["count"])]
        total = [operator.index(code) for (code,) in fields["total"]]
        fits = [e >= 0 and c > 0 and 0 <= t <= c * GRID for e, c, t in zip(epsilon, count, total, strict=True)]
        if not all(fits):
            raise InputError("this tally has sums that no values can give")
        table = Table.single(epsilon, count, total, rounded=fields["rounded"])
        names = {float.fromhex(level): str(name) for level, name in fields["names"].items()}
        identities = frozenset(map(str, fields["identities"]))
        if not identities or not isinstance(fields["identities"], list):
            raise InputError("this tally does not say which reading it comes from; make it again")
        return cls(table, Interval.of(fields["bounds"]), names, tuple(map(str, fields["notes"])), identities)


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


def _as_version_4(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a version 3 file, which knew means alone and had one sum a level, as version 4 has them."""
    if fields.get("format") != "hetdp-tally-3":
        return fields
    return {**_KIND, **fields, "format": _KIND["format"], "total": [[total] for total in fields["total"]]}


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
