"""Simulate: the mean squared error of a method, by Monte Carlo, beside the exact one.

This imitates the paper's mechanisms in floating point, with continuous Laplace noise from a seeded generator. It is not
a release, shares no code with the release's randomness and protects nobody.

Runs are cut into chunks. Each chunk has a random stream of its own, so the result does not depend on how many cores
share the work. Within a chunk data are drawn once for all methods, block by block, small enough for the cache.
"""

from __future__ import annotations

import operator
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any, TypedDict, Unpack, overload

import numpy as np

from hetdp.core.domain import Interval
from hetdp.core.levels import Levels
from hetdp.errors import InputError

from .distributions import Distribution, distribution_of
from .mechanisms import Affine, Floats, Ints, Mechanism, Variant, mechanism_of

CHUNK = 2**20
"""Cells, people times runs, of one random stream."""

LONGEST = 2**13
"""Runs of one random stream, at most."""

BLOCK = 2**17
"""Cells drawn at a time."""

WIDEST = 2**13
"""People drawn at a time in one run; a float32 sum over so many is precise enough, and BLAS stays on one core."""

MOST_PEOPLE = 2**24
"""People who can be drawn one by one."""

PATIENCE = 2.0
"""Seconds before a progress bar appears."""


@dataclass(frozen=True)
class Simulation:
    """What a simulation found, in squared units of the values.

    Attributes
    ----------
    method, runs
        What was simulated, and how often.
    mse
        The mean of the squared errors (estimate − μ)².
    standard_error
        The standard error of `mse`.
    exact_mse
        The exact mean squared error; None where there is no formula (a clamped estimate, a function of unknown mean).
    seconds
        How long it took, all methods of one call together.
    """

    method: str
    runs: int
    mse: float
    standard_error: float
    exact_mse: float | None
    seconds: float

    @property
    def z(self) -> float | None:
        """How many standard errors the simulated error lies above the exact one; None without the latter."""
        if self.exact_mse is None:
            return None
        apart = self.mse - self.exact_mse
        rounding = 1e-12 * self.exact_mse  # two doubles that should agree may differ so much
        return apart / (self.standard_error + rounding) if abs(apart) > rounding else 0.0

    def __str__(self) -> str:
        exact = "" if self.z is None else f", exact {self.exact_mse:.6g} (z = {self.z:.2f})"
        return f"{self.method}: mse {self.mse:.6g} ± {self.standard_error:.2g} over {self.runs:,} runs{exact}"


class _Options(TypedDict, total=False):
    runs: int
    rng: int | np.random.SeedSequence | np.random.Generator | None
    variance: float | None
    clamp: bool
    variant: Variant
    progress: bool | None


@overload
def simulate(
    levels: Any, *, method: str, distribution: Any, bounds: Any, **options: Unpack[_Options]
) -> Simulation: ...
@overload
def simulate(
    levels: Any, *, method: Sequence[str], distribution: Any, bounds: Any, **options: Unpack[_Options]
) -> dict[str, Simulation]: ...
def simulate(  # noqa: PLR0913  the choices of an experiment
    levels: Levels | Mapping[Any, int] | Any,
    *,
    method: str | Sequence[str],
    distribution: Any,
    bounds: Any,
    runs: int = 20_000,
    rng: int | np.random.SeedSequence | np.random.Generator | None = None,
    variance: float | None = None,
    clamp: bool = False,
    variant: Variant = "realised",
    progress: bool | None = None,
) -> Simulation | dict[str, Simulation]:
    """Return the mean squared error of a method for people drawn from a distribution, simulated and exact.

    Parameters
    ----------
    levels
        `Levels`, a mapping {ε: people}, or a sequence with one ε a person.
    method
        A name of `hetdp.methods()`, or several: they then share the data, not the noise, and a dict comes back.
    distribution
        "uniform" on the interval; "bernoulli" or ("bernoulli", p) on its two ends, p for the upper one;
        ("beta", a, b) stretched over it; ("point", x); a function (rng, size) -> values in it, called from several
        threads; or (function, mean, variance). Of a function alone the mean is estimated from 2²² draws, which adds
        variance/2²² to the error, and there is no exact error.
    runs
        How often the whole experiment is repeated.
    rng
        A seed, a SeedSequence or a Generator; the same one gives the same result on any number of cores.
        None is fresh randomness.
    bounds, variance
        As in `plan`.
    clamp
        Whether estimates are clamped to the interval, as releases are. The paper's are not.
    variant
        For `sampling`: "realised" divides by the number of people really kept, as the paper does, which is not ε-DP;
        "fixed" by its expectation, as a release does.
    progress
        Whether to show a progress bar on stderr: True at once, False never, None after two seconds on a terminal.

    Examples
    --------
    Figure 1 (B) of the paper past the saturation point, where Theorem 1 gives 3.989362·10⁻⁴:

    >>> found = simulate({0.1: 700, 1.0: 300}, method="adpm", distribution="bernoulli", bounds=(0, 1), rng=1)
    >>> round(found.exact_mse * 1e4, 4), abs(found.z) < 5
    (3.9894, True)
    """
    start = perf_counter()
    levels, names, runs = Levels.given(levels), _names(method), _whole(runs)
    interval, seed = Interval.of(bounds), _seed(rng)
    law = distribution_of(distribution, interval, _stream(seed, 0))
    mechanisms = [mechanism_of(name, levels, interval, variance, variant) for name in names]
    mse, error = _study(law, levels.count, mechanisms, clamp=clamp).run(runs, seed, progress=progress)
    exact = [m.mse(law) if law.known and not clamp else None for m in mechanisms]
    area, seconds = interval.width * interval.width, perf_counter() - start
    found = {
        name: Simulation(name, runs, mse[i] * area, error[i] * area, None if e is None else e * area, seconds)
        for i, (name, e) in enumerate(zip(names, exact, strict=True))
    }
    return found[method] if isinstance(method, str) else found


def exact_mse(
    levels: Levels | Mapping[Any, int] | Any,
    method: str,
    distribution: Any,
    *,
    bounds: Any = (-0.5, 0.5),
    variance: float | None = None,
    variant: Variant = "realised",
) -> float:
    """Return the exact mean squared error that `simulate` estimates; the parameters are the same.

    Examples
    --------
    Example 2 of the paper: stretching at a point mass of 0.5 with ε = 0.01 and 0.1 has the error 0.05 + 200/n².
    (The bias is 0.225, so the paper's 0.05 is 0.050625, rounded.)

    >>> round(exact_mse({0.01: 500, 0.1: 500}, "stretch", ("point", 0.5)), 6)
    0.050825
    """
    interval = Interval.of(bounds)
    law = distribution_of(distribution, interval, np.random.SeedSequence(0))
    if not law.known:
        raise InputError("there is no exact error for a function alone; give (function, mean, variance)")
    return (
        mechanism_of(method, Levels.given(levels), interval, variance, variant).mse(law)
        * interval.width
        * interval.width
    )


@dataclass(frozen=True, eq=False)
class _Study:
    """Methods and data, ready to run: some levels are drawn person by person, others as one sum each.

    Attributes
    ----------
    people
        The level of every person who is drawn, in blocks of at most `WIDEST`.
    groups
        The levels whose sums are drawn at once.
    """

    law: Distribution
    count: Ints
    mechanisms: Sequence[Mechanism]
    people: Sequence[Ints]
    groups: Ints
    columns: int
    clamp: bool

    def run(self, runs: int, seed: np.random.SeedSequence, *, progress: bool | None) -> tuple[list[float], list[float]]:
        """Return the mean squared error of each method and its standard error."""
        from concurrent.futures import ThreadPoolExecutor

        rows = min(max(CHUNK // self.columns, 1), LONGEST)
        sizes = [min(rows, runs - first) for first in range(0, runs, rows)]
        np.empty(2**24, np.uint8)  # once it is freed, glibc keeps the memory of a block for the next one
        pool = ThreadPoolExecutor(cores())
        try:
            done = pool.map(lambda i: self.chunk(_stream(seed, i + 1), sizes[i]), range(len(sizes)))
            square, fourth = np.sum(list(_watched(done, len(sizes), progress=progress)), axis=0) / runs
        finally:
            pool.shutdown(cancel_futures=True)
        return square.tolist(), np.sqrt(np.maximum(fourth - square**2, 0) / runs).tolist()

    def chunk(self, stream: np.random.SeedSequence, runs: int) -> Floats:
        """Return the sums of (estimate − μ)² and of its square over the runs of one random stream."""
        rng = np.random.Generator(np.random.SFC64(stream))
        rows = max(BLOCK // min(self.columns, WIDEST), 1)
        sums = np.zeros((2, len(self.mechanisms)))
        for first in range(0, runs, rows):
            square = self.errors(rng, min(rows, runs - first)) ** 2
            sums += square.sum(axis=1), (square**2).sum(axis=1)
        return sums

    def errors(self, rng: np.random.Generator, runs: int) -> Floats:
        """Return estimate − μ, one row a method and one column a run."""
        parts = [np.zeros(runs) for _ in self.mechanisms]
        for level in self.people:
            x = self.law.draw(rng, (runs, level.size))
            parts = [part + m.people(rng, x, level) for m, part in zip(self.mechanisms, parts, strict=True)]
        total, level = self.law.total, self.groups
        if total is not None and level.size:
            sums = total(rng, np.broadcast_to(self.count[level], (runs, level.size)))
            parts = [part + m.groups(rng, sums, level, total) for m, part in zip(self.mechanisms, parts, strict=True)]
        found = np.stack([m.estimate(rng, part) for m, part in zip(self.mechanisms, parts, strict=True)])
        errors = (np.clip(found, -0.5, 0.5) if self.clamp else found) - self.law.mean
        errors[np.abs(errors) < 1e-14] = 0  # the rounding of doubles
        return errors


def _study(law: Distribution, count: Ints, mechanisms: Sequence[Mechanism], *, clamp: bool) -> _Study:
    used = np.any([m.weight > 0 for m in mechanisms], axis=0)
    grouped = used & (law.total is not None) & ((count >= law.several) | (count.sum() > MOST_PEOPLE))
    single = np.flatnonzero(used & ~grouped).astype(np.int32)
    people = int(count[single].sum())
    if people > MOST_PEOPLE:
        raise InputError(
            f"this distribution is drawn person by person, for at most {MOST_PEOPLE:,} people (got {people:,}); "
            f"'uniform', 'bernoulli' and 'point' are drawn level by level"
        )
    blocks = np.array_split(np.repeat(single, count[single]), -(-people // WIDEST)) if people else []
    groups = np.flatnonzero(grouped)
    noises = [m.scales.size for m in mechanisms if isinstance(m, Affine)]
    return _Study(law, count, mechanisms, blocks, groups, max(people + groups.size, *noises, 1), clamp)


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _watched(results: Iterable[Floats], total: int, *, progress: bool | None) -> Iterator[Floats]:
    """Yield the results, with a progress bar on stderr where one is wanted."""
    wanted = sys.stderr.isatty() if progress is None else progress
    patience = 0.0 if progress else PATIENCE
    start, bar = perf_counter(), None
    try:
        for i, result in enumerate(results):
            if bar is None and wanted and perf_counter() - start >= patience:
                from rich.console import Console
                from rich.progress import Progress

                bar = Progress(console=Console(stderr=True))
                task = bar.add_task("simulating", total=total)
                bar.start()
            if bar is not None:
                bar.update(task, completed=i + 1)
            yield result
    finally:
        if bar is not None:
            bar.stop()


def _names(method: str | Sequence[str]) -> list[str]:
    names = [method] if isinstance(method, str) else list(method) if isinstance(method, (list, tuple)) else []
    if not names or not all(isinstance(name, str) for name in names):
        raise InputError(f"the method must be a name of hetdp.methods() or a list of them (got {method!r})")
    return names


def _whole(runs: Any) -> int:
    try:
        number = operator.index(runs)
    except TypeError:
        number = 0
    if number < 2 or isinstance(runs, bool):
        raise InputError(f"the number of runs must be a whole number, 2 or more (got {runs!r}); 20000 is usual")
    return number


def _seed(rng: Any) -> np.random.SeedSequence:
    if isinstance(rng, np.random.SeedSequence):
        return rng
    if isinstance(rng, np.random.Generator):
        return np.random.SeedSequence(rng.integers(2**32, size=8).tolist())
    if rng is None or (isinstance(rng, (int, np.integer)) and not isinstance(rng, bool) and rng >= 0):
        return np.random.SeedSequence(rng if rng is None else int(rng))
    raise InputError(f"rng must be a whole number, 0 or more, a SeedSequence or a Generator (got {rng!r})")


def _stream(seed: np.random.SeedSequence, key: int) -> np.random.SeedSequence:
    """Return a child of the seed that depends on the key alone; the seed itself stays as it is."""
    return np.random.SeedSequence(seed.entropy, spawn_key=(*seed.spawn_key, key), pool_size=seed.pool_size)
