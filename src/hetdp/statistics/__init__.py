"""The statistics. Each is one file here and one line below; `statistic` says what it takes to be one."""

from __future__ import annotations

from hetdp.errors import InputError

from .bounds import Range
from .histogram import Commonest, MeanByGroup, Shares
from .mean import Count, Mean, Proportion, Sum
from .moments import Columns, Spread
from .quantile import Ranks
from .statistic import Statistic

__all__ = ["ALSO", "FORMS", "STATISTICS", "Statistic", "kind_of", "title_of"]

STATISTICS: dict[str, type[Statistic]] = {
    kind.name: kind
    for kind in (Mean, Sum, Proportion, Count, Shares, Ranks, Commonest, Spread, Columns, MeanByGroup, Range)
}
"""Every statistic by its name."""


FORMS = (Mean.name, Columns.name, MeanByGroup.name)
"""Forms of the mean: one function and one command has them all."""


ALSO: dict[str, type[Statistic]] = {"median": Ranks, "std": Spread}
"""Other names: a quantile is the median unless another is asked for; the standard deviation comes with the variance."""


_TITLES = {"median": "A private median", "std": "A private standard deviation, with mean and variance"}


def title_of(name: str) -> str:
    """Return what an answer is headed with that was asked for by this name."""
    return _TITLES.get(name) or kind_of(name).title


def kind_of(name: str) -> type[Statistic]:
    """Return the statistic that somebody asks for by its name, or by another name that it also has."""
    known = {**STATISTICS, **ALSO}
    if name not in known:
        raise InputError(f"there is no statistic {name[:64]!r}; there are {', '.join(known)}")
    return known[name]
