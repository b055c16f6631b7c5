"""What every source yields: some of the people, as two arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hetdp.core.cells import epsilon_of
from hetdp.errors import InputError

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True, eq=False, repr=False)
class Batch:
    """Some people: their values (NaN where missing or unreadable) and their ε.

    Attributes
    ----------
    place
        What a place in this source is called: an index, a line, a row.
    texts
        The public text columns that were asked for (who a row is about, its group), by name; null where missing.
    quotes
        Whether a message may quote these texts. Right of the value in a delimited file, on a damaged line, one may be a
        piece of the value.
    missing, places, odd
        For the owner's `check` alone: which values are missing, the other NaNs being unreadable; where each
        person stands; which lines are not plain: with a quote, too short, or not quite JSON.
    """

    values: NDArray[Any] | None
    epsilon: NDArray[np.float64]
    place: str = "index"
    missing: NDArray[np.bool_] | None = None
    places: NDArray[np.int64] | None = None
    odd: NDArray[np.bool_] | None = None
    texts: Mapping[str, pl.Series] = field(default_factory=dict)
    quotes: bool = True


class Tiers:
    """Names for levels. When there are any, the ε column holds names and nothing else."""

    def __init__(self, epsilons: Mapping[str, Any], *, quotes: bool = True) -> None:
        if not isinstance(epsilons, Mapping):
            raise InputError(
                f"tiers are a mapping of names to ε, such as {{'open': 1}} (got {type(epsilons).__name__}); "
                "a file of tiers is for the command line: hetdp mean --tiers FILE"
            )
        if not all(isinstance(name, str) for name in epsilons):
            raise InputError("the name of a tier must be text: {'1': 0.5} for a column that holds 1")
        self._quotes = quotes
        self._epsilon = {name: epsilon_of(cell, f" for tier {name!r}") for name, cell in epsilons.items()}

    def discreet(self) -> Tiers:
        """Return the same tiers, which do not quote a cell that cannot be read: it might be a private one."""
        return Tiers(self._epsilon, quotes=False)

    def epsilon_of(self, cell: Any, where: str) -> float:
        """Return the ε of one cell: by its tier's name if there are tiers, else as a number."""
        try:
            return self._read(cell, where)
        except InputError:
            if self._quotes:
                raise
        number = "0, positive, inf or public (a decimal number; if it is too large for one, write inf)"
        what = f"one of the tiers {', '.join(map(repr, self._epsilon))}" if self._epsilon else number
        names = "" if self._epsilon else "; for names of tiers say what they mean: --tier NAME=ε, tiers={name: ε}"
        raise InputError(f"epsilon cannot be read{where}: it must be {what}{names}")

    def _read(self, cell: Any, where: str) -> float:
        if not self._epsilon:
            return epsilon_of(cell, where)
        name = cell.strip() if isinstance(cell, str) else cell
        if not isinstance(name, str) or name not in self._epsilon:
            raise InputError(
                f"unknown tier {str(name)[:64]!r}{where}; the tiers are {', '.join(map(repr, self._epsilon))}"
            )
        return self._epsilon[name]

    def __bool__(self) -> bool:
        return bool(self._epsilon)

    @property
    def shown(self) -> dict[float, str]:
        """The name to show for a level; tiers with the same ε share it."""
        shown: dict[float, str] = {}
        for name, level in self._epsilon.items():
            shown[level] = f"{shown[level]}, {name}" if level in shown else name
        return shown
