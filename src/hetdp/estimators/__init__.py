"""The registry of methods. A new one is one file and one line here."""

from __future__ import annotations

from hetdp.core.levels import Method, Shape
from hetdp.errors import InputError

from . import adpm, fme, ldpe, minimax, plain, sampling


class Methods(dict[str, Method]):
    """{name: method}, which shows itself as a table; another name raises, with the names that exist."""

    def __missing__(self, name: str) -> Method:
        raise InputError(f"unknown method {name!r}; choose one of {', '.join(self)}")

    def report(self) -> str:
        """Return every method with its title and where it comes from, as text."""
        return "\n".join(f"{m.name:14}{m.title}\n{'':14}{m.citation}" for m in self.values())

    def _repr_html_(self) -> str:
        from hetdp.report.about import Grid, to_html

        rows = [(m.name, m.title, m.citation) for m in self.values()]
        return to_html([Grid(("Method", "What it does", "From"), rows, words=3)])

    __str__ = __repr__ = report


_ALL = (
    adpm.METHOD,
    minimax.METHOD,
    adpm.PROPORTIONAL,
    adpm.UNIFORM,
    ldpe.METHOD,
    fme.METHOD,
    sampling.METHOD,
    plain.STRETCH,
    plain.THRESHOLD,
)
METHODS = Methods({method.name: method for method in _ALL})
"""Every method by its name."""

__all__ = ["METHODS", "Method", "Methods", "Shape", "methods"]


def methods() -> Methods:
    """Return every method by its name; in a terminal and in a notebook it is a table.

    >>> list(methods())
    ['adpm', 'minimax', 'proportional', 'uniform', 'ldpe', 'fme', 'sampling', 'stretch', 'threshold']
    """
    return Methods(METHODS)
