"""Arrays in memory: `hetdp.mean` against `numpy.dot` over the same arrays, compiled and by numpy alone."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec

import numpy as np
from measure import clock, fresh, race, resident
from numpy.typing import NDArray
from spine import distinct, tiered
from table import Bar, Row

import hetdp
from hetdp.tally import groupby as _groupby

Floats = NDArray[np.float64]

SIZES = {10**7: "10⁷", 10**8: "10⁸"}
ROOM = 8 * 2**30
"""Bytes of memory that 10⁸ rows are measured with: 1.6 GB of data and as much again while they are made."""

BAR = Bar("at most", 3)


def thousand(n: int) -> Floats:
    """Return n ε's of a thousand levels, 0.01 to 10, in random order."""
    eps = np.random.default_rng(1).integers(1, 1001, n).astype(np.float64)
    eps /= 100
    return eps


KINDS: dict[str, tuple[Callable[[int], Floats], Bar]] = {
    "four tiers": (tiered, BAR),
    "1,000 levels": (thousand, BAR),
    "distinct ε": (distinct, Bar("at most", 4)),
}


def mean_arrays(quick: bool) -> Iterator[Row]:  # noqa: FBT001
    """Release means of arrays, against one pass of numpy over the same arrays."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for n, shown in SIZES.items():
        if n > 10**7 and (quick or memory < ROOM):
            why = "left out of a quick run" if quick else "needs a larger machine"
            yield Row(f"mean, {shown} rows", "numpy.dot", math.nan, bar=BAR, note=why)
            continue
        x = np.random.default_rng(0).random(n)
        for name, (make, bar) in KINDS.items():
            yield from _against_dot(f"mean, {shown} rows, {name}", x, make(n), bar)


def _against_dot(what: str, x: Floats, eps: Floats, bar: Bar) -> Iterator[Row]:
    seconds = 5 if x.size <= 10**7 else 20
    note = "" if find_spec("numba") else "numba is not installed"
    _mean(x[: 10**7], eps[: 10**7])  # loads the kernels, if there are any
    baseline, candidate = clock(lambda: np.dot(x, eps), times=5), clock(lambda: _mean(x, eps), times=5)
    yield Row.of(what, "numpy.dot", race(baseline, candidate, seconds=seconds), bar, note)
    if x.size > 10**7:  # numpy alone takes as much longer as it does with fewer people
        return
    with by_numpy():
        yield Row.of("the same by numpy alone", "numpy.dot", race(baseline, candidate, seconds=seconds, least=3))


@contextmanager
def by_numpy() -> Iterator[None]:
    """Have nothing done by compiled kernels."""
    kept = _groupby.LOADED_FROM, _groupby.COMPILED_FROM
    _groupby.LOADED_FROM = _groupby.COMPILED_FROM = 2**62
    try:
        yield
    finally:
        _groupby.LOADED_FROM, _groupby.COMPILED_FROM = kept


def _mean(x: Floats, eps: Floats) -> hetdp.Release:
    return hetdp.mean(x, epsilon=eps, bounds=(0, 1))


def first_mean(_quick: bool) -> Iterator[Row]:  # noqa: FBT001
    """Show what the first mean of 10⁷ rows in a process costs beyond the second one: libraries to load."""
    for name in ("four tiers", "distinct ε"):
        once = fresh("arrays", "first", name)
        note = f"the second mean took {1e3 * once['second']:.3g} ms"
        yield Row(f"first mean in a process, {name}", "", once["first"] - once["second"], "s", note=note)
        yield Row("its memory above the arrays", "", once["memory"], "MB", Bar("at most", 200))


def first(name: str) -> dict[str, float]:
    """Return seconds of a first and a second mean and the MB that they need; for a fresh interpreter."""
    x, eps = np.random.default_rng(0).random(10**7), KINDS[name][0](10**7)
    before, start = resident(), time.perf_counter()
    _mean(x, eps)
    middle = time.perf_counter()
    _mean(x, eps)
    return {
        "first": middle - start,
        "second": time.perf_counter() - middle,
        "memory": resident(peak=True) - before,
    }


CASES = (mean_arrays, first_mean)
