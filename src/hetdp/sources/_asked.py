"""What is asked of a source, and the form in which an engine that groups by itself answers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from hetdp.core.levels import MOST_PEOPLE
from hetdp.errors import InputError
from hetdp.tally.groupby import Table, merge

from ._batch import Tiers

Tables = dict[str, Table]
"""A table for each group; without groups one, under the empty name."""


@dataclass(frozen=True)
class Asked:
    """Which columns, and what they mean.

    Attributes
    ----------
    value
        The private column; None to count people only.
    epsilon
        The column with everybody's ε, or one ε for all.
    person
        The column that says who a row is about.
    several
        Whether a person may have several rows: they count once, with the average of their codes. If not, a second
        row of the same person is an error.
    by
        A public column that splits the people into groups.
    """

    value: str | None
    epsilon: str | float
    person: str | None = None
    several: bool = False
    by: str | None = None

    def __post_init__(self) -> None:
        for one, other in (("value", "epsilon"), ("value", "person"), ("value", "by"), ("epsilon", "person")):
            if getattr(self, one) is not None and getattr(self, one) == getattr(self, other):
                raise InputError(
                    f"the {_WORDS[one]} and the {_WORDS[other]} cannot be the same column "
                    f"(got {getattr(self, one)!r} for both)"
                )

    @property
    def texts(self) -> tuple[str, ...]:
        """The public columns that are read as text."""
        return tuple(dict.fromkeys(name for name in (self.person, self.by) if name is not None))

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns, each once."""
        epsilon = self.epsilon if isinstance(self.epsilon, str) else None
        return tuple(dict.fromkeys(name for name in (self.value, epsilon, *self.texts) if name is not None))


_WORDS = {"value": "value", "epsilon": "epsilon", "person": "person's id", "by": "group"}


def gathered(rows: Iterable[tuple[str, Any, int, int]], tiers: Tiers, *, rounded: bool = False) -> Tables:
    """Return the tables of rows (group, ε as the engine has it, people, sum of codes), one for each group and level.

    ε is read here, once for each distinct one: a number, a text or the name of a tier. A bad one raises.
    """
    groups: dict[str, list[tuple[float, int, int]]] = {}
    for group, cell, people, total in rows:
        if cell is None:
            raise InputError("epsilon is missing in at least one row; everybody needs one (0 leaves a person out)")
        groups.setdefault(group, []).append((tiers.epsilon_of(cell, ""), people, total))
    if sum(people for parts in groups.values() for _, people, _ in parts) > MOST_PEOPLE:
        raise InputError(f"at most {MOST_PEOPLE:,} people fit in one tally; release in parts")
    return {group: _table(parts, rounded=rounded) for group, parts in groups.items()}


def _table(parts: list[tuple[float, int, int]], *, rounded: bool) -> Table:
    epsilon = np.array([level for level, _, _ in parts], dtype=np.float64)
    count = np.array([people for _, people, _ in parts], dtype=np.int64)
    total = np.array([total for _, _, total in parts], dtype=np.int64)
    return merge([Table.single(epsilon, count, total, rounded=rounded)])


def shown(text: object) -> str:
    """Return an id or a group for a message, cut to a readable length."""
    return repr(str(text)[:64])
