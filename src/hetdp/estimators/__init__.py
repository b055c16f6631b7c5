"""The registry of methods. A new one is one file and one line here."""

from __future__ import annotations

from collections.abc import Mapping

from hetdp.errors import InputError

from . import adpm, fme, ldpe, minimax, plain, sampling
from .shape import Method, Shape

_METHODS = (
    adpm.METHOD,
    minimax.METHOD,
    plain.PROPORTIONAL,
    plain.UNIFORM,
    ldpe.METHOD,
    fme.METHOD,
    sampling.METHOD,
    plain.STRETCH,
    plain.THRESHOLD,
)
_REGISTRY = {method.name: method for method in _METHODS}

__all__ = ["Method", "Shape", "find", "methods"]


def methods() -> Mapping[str, Method]:
    """Return every method by its name.

    >>> list(methods())
    ['adpm', 'minimax', 'proportional', 'uniform', 'ldpe', 'fme', 'sampling', 'stretch', 'threshold']
    """
    return dict(_REGISTRY)


def find(name: str) -> Method:
    """Return one method, or raise with the names that exist."""
    if name not in _REGISTRY:
        raise InputError(f"unknown method {name!r}; choose one of {', '.join(_REGISTRY)}")
    return _REGISTRY[name]
