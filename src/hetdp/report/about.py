"""What every answer can show of itself: where it comes from, its numbers, and a report as text, HTML and JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from hetdp.core.domain import to_json
from hetdp.version import SCHEMA, __version__

if TYPE_CHECKING:
    from .text import Parts


@dataclass(frozen=True)
class Provenance:
    """What a result is about and where it comes from. All of it is public.

    Attributes
    ----------
    statistic, columns
        What was computed, of which private columns.
    sources
        What the sources are called: the name of a file without its folder, or the kind of a source, as "a pandas
        frame". Never a path or a URL: they tell about the owner's machine, and a URL may hold a password.
    released
        When it was released, in UTC, to the second: just before noise was drawn, with a ledger when it was charged.
        Empty if nothing was.
    version, schema
        Of hetdp, and of its JSON.
    """

    statistic: str = ""
    columns: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    released: str = ""
    version: str = __version__
    schema: int = SCHEMA

    def now(self) -> Provenance:
        """Return the same, released now."""
        return replace(self, released=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"))

    def __add__(self, other: Provenance) -> Provenance:
        """Return the provenance of what comes from both."""
        columns, sources = (*self.columns, *other.columns), (*self.sources, *other.sources)
        return replace(self, columns=tuple(dict.fromkeys(columns)), sources=tuple(dict.fromkeys(sources)))

    @property
    def source(self) -> str:
        """The sources in words.

        >>> Provenance(sources=("a.csv", "b.csv", "c.csv", "d.csv", "e.csv")).source
        'a.csv, b.csv, c.csv and 2 more'
        """
        more = len(self.sources) - _NAMED
        return ", ".join(self.sources[:_NAMED]) + (f" and {more:,} more" if more > 0 else "")

    def to_dict(self) -> dict[str, Any]:
        """Return the same as plain data; what is not known is null."""
        what = {"statistic": self.statistic or None, "columns": list(self.columns), "source": self.source or None}
        return {**what, "released": self.released or None, "version": self.version, "schema": self.schema}

    def __str__(self) -> str:
        what = self.statistic.replace("_", " ") + (f" of {', '.join(self.columns)}" if self.columns else "")
        what += f" from {self.source}" if self.sources else ""
        when = f"released {self.released}" if self.released else ""
        return "; ".join(part for part in (what, when, f"hetdp {self.version}, schema {self.schema}") if part)


_NAMED = 3  # so many sources are named


@dataclass(frozen=True)
class Figure:
    """One number of an answer, with its guaranteed interval, for tables and pictures.

    Attributes
    ----------
    error
        The typical size of its error, which says to how many digits it is printed.
    about
        What else belongs to it, as plain data.
    shown
        What is printed instead of the number, where it stands for something else.
    room
        The width of the range in which what its interval is about can lie: the number itself, the rank of a quantile.
    """

    label: str
    estimate: float
    low: float
    high: float
    error: float
    about: Mapping[str, Any] = field(default_factory=dict)
    shown: str | None = None
    room: float = 1.0

    @property
    def uncertain(self) -> bool:
        """Whether its interval covers more than half of the range: then it says next to nothing."""
        low, high = self.about.get("rank", (self.low, self.high))
        return bool(high - low > self.room / 2)


class Reported:
    """What has a report: as text, as HTML and as JSON, in a terminal and in a notebook."""

    def parts(self, level: float) -> Parts:
        """Return the report as its parts; intervals have this level of confidence."""
        raise NotImplementedError

    def to_dict(self, level: float = 0.95) -> dict[str, Any]:
        """Return the same as plain data."""
        raise NotImplementedError

    def to_json(self) -> str:
        """Return the same as JSON; infinities are written "inf"."""
        return to_json(self.to_dict())

    def report(self, level: float = 0.95) -> str:
        """Return the report as text."""
        from hetdp.report.text import text

        return text(self.parts(level))

    def html(self, level: float = 0.95) -> str:
        """Return the report as a piece of HTML."""
        from hetdp.report.page import to_html

        return to_html(self.parts(level))

    __str__ = report

    def _repr_html_(self) -> str:
        return self.html() + (_AGAIN if _drawn_here(self) else "")


_AGAIN = (
    "<p><b>Running this cell again</b> is another release and spends everybody's ε again. With a ledger and a "
    "<code>release_id</code>, as in <code>Ledger.mean</code>, it shows the same number and costs nothing.</p>"
)


def _drawn_here(shown: Any) -> bool:
    """Say whether a cell of a notebook drew this: an answer without a ledger, or several of which one is."""
    if isinstance(shown, Mapping):
        return any(map(_drawn_here, shown.values()))
    return getattr(shown, "release_id", None) == ""
