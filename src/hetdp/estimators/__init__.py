"""The registry of methods. A new one is one file and one line here."""

from __future__ import annotations

from collections.abc import Mapping

from hetdp.errors import InputError

from . import adpm, fme, ldpe, minimax, plain, sampling
from .shape import Method, Shape


class _Methods(dict[str, Method]):
    def __missing__(self, name: str) -> Method:
        raise InputError(f"unknown method {name!r}; choose one of {', '.join(self)}")


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
METHODS = _Methods({method.name: method for method in _ALL})
"""Every method by its name; another name raises, with the names that exist."""

__all__ = ["METHODS", "Method", "Shape", "methods"]


def methods() -> Mapping[str, Method]:
    """Return every method by its name.

    >>> list(methods())
    ['adpm', 'minimax', 'proportional', 'uniform', 'ldpe', 'fme', 'sampling', 'stretch', 'threshold']
    """
    return dict(METHODS)
