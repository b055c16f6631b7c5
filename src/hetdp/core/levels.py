"""Levels: how many people chose which ε. The public half of the data."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hetdp.errors import InputError
from hetdp.tally.groupby import MOST_PEOPLE, Table, merge, tabulate

from .cells import epsilon_of


class Levels:
    """The distinct ε, ascending, with the number of people at each; no values, no sums.

    Everything that plans takes `Levels`, so a plan cannot depend on anybody's value.

    >>> Levels({0.1: 700, float("inf"): 300})
    Levels({0.1: 700, inf: 300})
    >>> Levels.of([0.5, 0.1, 0.5]).n
    3

    Attributes
    ----------
    epsilon, count
        Arrays of one length: the levels and the people at each.
    rounded
        Whether there were so many levels that each was rounded down to 12 significant bits.
    names
        Names for some of the levels, for display alone.
    """

    __slots__ = ("count", "epsilon", "names", "rounded")

    epsilon: NDArray[np.float64]
    count: NDArray[np.int64]
    rounded: bool
    names: Mapping[float, str]

    def __init__(self, counts: Mapping[Any, int], names: Mapping[float, str] | None = None) -> None:
        pairs = [(epsilon_of(level), _people(level, count)) for level, count in counts.items()]
        kept = [(level, count) for level, count in pairs if count]
        if sum(count for _, count in kept) > MOST_PEOPLE:
            raise InputError(f"at most {MOST_PEOPLE:,} people fit in one plan; plan in parts")
        epsilon = np.array([level for level, _ in kept], dtype=np.float64)
        count = np.array([count for _, count in kept], dtype=np.int64)
        self._fill(merge([Table(epsilon, count, np.zeros_like(count))]), names or {})

    @classmethod
    def of(cls, epsilons: Any) -> Levels:
        """Return the levels of a sequence with one ε a person."""
        return cls.from_table(tabulate(epsilon_array(epsilons)))

    @classmethod
    def given(cls, levels: Levels | Mapping[Any, int] | Any) -> Levels:
        """Return levels as callers give them: as they are, as a mapping {ε: people}, or as one ε a person."""
        if isinstance(levels, Levels):
            return levels
        return cls(levels) if isinstance(levels, Mapping) else cls.of(levels)

    @classmethod
    def from_table(cls, table: Table, names: Mapping[float, str] | None = None) -> Levels:
        """Return the public half of a table."""
        levels = cls.__new__(cls)
        levels._fill(table, names or {})
        return levels

    def _fill(self, table: Table, names: Mapping[float, str]) -> None:
        if not table.epsilon.size:
            raise InputError("there is nobody here (n = 0); a mean needs at least one person")
        self.epsilon, self.count, self.rounded = table.epsilon, table.count, table.rounded
        self.names = {level: name for level, name in names.items() if level in table.epsilon}
        self.epsilon.flags.writeable = self.count.flags.writeable = False

    @property
    def n(self) -> int:
        """The number of people, those with ε = 0 included."""
        return sum(self.count.tolist())

    @property
    def active(self) -> int:
        """The number of people with ε > 0."""
        return sum(self.count[self.epsilon > 0].tolist())

    def capped(self, cap: float) -> Levels:
        """Return the levels when everybody gets min(ε, cap)."""
        capped = np.minimum(self.epsilon, cap)
        return Levels.from_table(merge([Table(capped, self.count, np.zeros_like(self.count), self.rounded)]))

    def __len__(self) -> int:
        return int(self.epsilon.size)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Levels):
            return NotImplemented
        return np.array_equal(self.epsilon, other.epsilon) and np.array_equal(self.count, other.count)

    def __hash__(self) -> int:
        return hash((self.epsilon.tobytes(), self.count.tobytes()))

    def __repr__(self) -> str:
        shown = [f"{level:g}: {count}" for level, count in zip(self.epsilon[:8], self.count[:8], strict=True)]
        more = [f"… {len(self) - 8} more levels"] if len(self) > 8 else []
        return f"Levels({{{', '.join(shown + more)}}})"


def epsilon_array(epsilons: Any) -> NDArray[np.float64]:
    """Return one ε a person as an array of doubles; one that cannot be read is an error that names its place.

    >>> epsilon_array([0.1, "public", -1])
    Traceback (most recent call last):
    hetdp.errors.InputError: epsilon must be 0, positive or inf (got -1 at index 2); use 0 to leave people out
    """
    if isinstance(epsilons, np.ma.MaskedArray):
        raise InputError("epsilon is a masked array; give every person an epsilon (0 to leave them out)")
    if isinstance(epsilons, (str, bytes)) or not isinstance(epsilons, Iterable):
        raise InputError(f"epsilon must be a sequence with one entry a person (got {type(epsilons).__name__})")
    array = None
    if hasattr(epsilons, "__array__"):
        array = np.asarray(epsilons)
        if array.ndim != 1:
            raise InputError(f"epsilon must have one dimension, one entry a person (got {array.ndim} dimensions)")
        if array.dtype == np.float16 or array.dtype.kind not in "fiuOUT":
            raise InputError(f"epsilon must be numbers (got an array of {array.dtype}, which cannot hold a promise)")
        if array.dtype.kind in "fiu":
            return _float64(array)
    cells = epsilons if array is None else array.tolist()
    return np.array([epsilon_of(cell, f" at index {i}") for i, cell in enumerate(cells)], dtype=np.float64)


def _float64(array: NDArray[Any]) -> NDArray[np.float64]:
    """Return numbers as doubles. Signs and NaN are checked where the array is grouped, chunk by chunk."""
    with np.errstate(over="ignore"):
        doubles = array.astype(np.float64, copy=False)
    if array.itemsize > 8 and (np.isinf(doubles) & ~np.isinf(array)).any():
        raise InputError("epsilon is too large for a number; write inf if the value is public")
    return doubles


def joined_names(tiers: Iterable[tuple[float, str]]) -> dict[float, str]:
    """Return names by their ε; tiers with the same ε share theirs.

    >>> joined_names([(0.1, "strict"), (1.0, "open"), (0.1, "careful")])
    {0.1: 'strict, careful', 1.0: 'open'}
    """
    names: dict[float, str] = {}
    for level, name in tiers:
        names[level] = f"{names[level]}, {name}" if level in names else name
    return names


def _people(level: Any, count: Any) -> int:
    try:
        people = -1 if isinstance(count, (bool, np.bool_)) else operator.index(count)  # older numpy only warns
    except TypeError:
        people = -1
    if people < 0:
        raise InputError(f"the number of people must be a whole number, 0 or more (got {count!r} at epsilon {level})")
    return people
