"""What type checkers see of this package. Made by tests/declarations.py: change the functions, and run it."""

# ruff: noqa
# fmt: off

from collections.abc import Mapping, Sequence
from typing import Any, Literal, overload

import numpy as np

from .core.types import (
    ArrayLike, BoundsLike, ByLike, EpsilonLike, Filled, LevelsOfPeople, ManyBounds, MissingLike, PersonLike,
    SourceLike, TiersLike,
)
from .paper.family import Distribution
from .sources import Rows

from .statistics.statistic import Answer as Answer
from .statistics.mean import AnsweredMean as AnsweredMean
from .statistics.answer import Answers as Answers
from .checks.audit import Audit as Audit
from .statistics.bounds import Bounds as Bounds
from .theory.certificate import Certificate as Certificate
from .checks import Check as Check
from .statistics.answer import Combined as Combined
from .report.compare import Comparison as Comparison
from .statistics.difference import Difference as Difference
from .report.explain import Explanation as Explanation
from .statistics.histogram import GroupMeans as GroupMeans
from .statistics.answer import Groups as Groups
from .errors import HetdpError as HetdpError
from .statistics.histogram import Histogram as Histogram
from .errors import InputError as InputError
from .core.domain import Interval as Interval
from .ledger import Ledger as Ledger
from .core.levels import Levels as Levels
from .statistics.moments import Means as Means
from .statistics.histogram import Mode as Mode
from .statistics.moments import Moments as Moments
from .theory.optimal import Optimum as Optimum
from .core.plan import Plan as Plan
from .errors import PrivacyError as PrivacyError
from .statistics.quantile import Quantiles as Quantiles
from .statistics.statistic import Release as Release
from .paper.simulate import Simulation as Simulation
from .statistics.statistic import Statistic as Statistic
from .tally import Tally as Tally
from .report.compare import Target as Target
from .checks.audit import audit as audit
from .theory.certificate import certificate as certificate
from .checks import check as check
from .report.compare import compare as compare
from .statistics.difference import difference as difference
from .report.explain import explain as explain
from . import ledger as ledger
from .estimators import methods as methods
from .theory.optimal import optimal as optimal
from . import paper as paper
from .report.compare import people_needed as people_needed
from .core.plan import plan as plan
from .sources import read as read

__version__: str

def bounds_for(
    source: SourceLike, *, epsilon: EpsilonLike, outer: BoundsLike, value: str | None = None,
    share: float | None = None, method: str = 'adpm', missing: Literal["drop"] | None = None,
    person: PersonLike | None = None, rows: Rows = 'one', public_rows: SourceLike | None = None,
    tiers: TiersLike | None = None, query: str | None = None, delimiter: str | None = None, decimal: str = '.',
    thousands: str | None = None
) -> Bounds: ...

@overload
def count(
    source: SourceLike, *, equals: str | float, value: str | None = None, missing: MissingLike | None = None,
    values: Mapping[Any, float] | None = None, epsilon: EpsilonLike, method: str = 'adpm', drift: float = 0.0,
    target: str | None = None, person: PersonLike | None = None, rows: Rows = 'one', by: None = None,
    public_columns: Sequence[str] = (), groups: Sequence[Any] | None = None, public_rows: SourceLike | None = None,
    tiers: TiersLike | None = None, query: str | None = None, delimiter: str | None = None, decimal: str = '.',
    thousands: str | None = None
) -> Release: ...
@overload
def count(
    source: SourceLike, *, equals: str | float, value: str | None = None, missing: MissingLike | None = None,
    values: Mapping[Any, float] | None = None, epsilon: EpsilonLike, method: str = 'adpm', drift: float = 0.0,
    target: str | None = None, person: PersonLike | None = None, rows: Rows = 'one', by: ByLike,
    public_columns: Sequence[str] = (), groups: Sequence[Any] | None = None, public_rows: SourceLike | None = None,
    tiers: TiersLike | None = None, query: str | None = None, delimiter: str | None = None, decimal: str = '.',
    thousands: str | None = None
) -> Groups: ...

@overload
def histogram(
    source: SourceLike, *, categories: Sequence[Any] | None = None, edges: Sequence[float] | None = None,
    bins: int | None = None, bounds: BoundsLike | None = None, value: str | None = None, epsilon: EpsilonLike,
    method: str = 'adpm', person: PersonLike | None = None, rows: Rows = 'one', by: None = None,
    public_columns: Sequence[str] = (), groups: Sequence[Any] | None = None, public_rows: SourceLike | None = None,
    tiers: TiersLike | None = None, query: str | None = None, delimiter: str | None = None, decimal: str = '.',
    thousands: str | None = None
) -> Histogram: ...
@overload
def histogram(
    source: SourceLike, *, categories: Sequence[Any] | None = None, edges: Sequence[float] | None = None,
    bins: int | None = None, bounds: BoundsLike | None = None, value: str | None = None, epsilon: EpsilonLike,
    method: str = 'adpm', person: PersonLike | None = None, rows: Rows = 'one', by: ByLike,
    public_columns: Sequence[str] = (), groups: Sequence[Any] | None = None, public_rows: SourceLike | None = None,
    tiers: TiersLike | None = None, query: str | None = None, delimiter: str | None = None, decimal: str = '.',
    thousands: str | None = None
) -> Groups: ...

@overload
def mean(
    source: SourceLike, *, epsilon: EpsilonLike, bounds: BoundsLike | Literal["private"], value: str | None = None,
    private_group: None = None, categories: None = None, missing: Filled | Literal["drop"] | None = None,
    values: Mapping[Any, float] | None = None, outer: BoundsLike | None = None, bounds_share: float | None = None,
    method: str = 'adpm', variance: float | Literal['learn'] | None = None, drift: float = 0.0,
    target: str | None = None, person: PersonLike | None = None, rows: Rows = 'one', by: None = None,
    public_columns: Sequence[str] = (), groups: Sequence[Any] | None = None, public_rows: SourceLike | None = None,
    tiers: TiersLike | None = None, query: str | None = None, delimiter: str | None = None, decimal: str = '.',
    thousands: str | None = None
) -> Release: ...
@overload
def mean(
    source: SourceLike, *, epsilon: EpsilonLike, bounds: BoundsLike | Literal["private"], value: str | None = None,
    private_group: None = None, categories: None = None, missing: Literal["estimate"],
    values: Mapping[Any, float] | None = None, outer: BoundsLike | None = None, bounds_share: float | None = None,
    method: str = 'adpm', variance: float | Literal['learn'] | None = None, drift: float = 0.0,
    target: str | None = None, person: PersonLike | None = None, rows: Rows = 'one', by: None = None,
    public_columns: Sequence[str] = (), groups: Sequence[Any] | None = None, public_rows: SourceLike | None = None,
    tiers: TiersLike | None = None, query: str | None = None, delimiter: str | None = None, decimal: str = '.',
    thousands: str | None = None
) -> AnsweredMean: ...
@overload
def mean(
    source: SourceLike, *, epsilon: EpsilonLike, bounds: Mapping[str, BoundsLike],
    value: str | Sequence[str] | None = None, private_group: None = None, categories: None = None,
    missing: MissingLike | None = None, values: Mapping[Any, float] | None = None, outer: BoundsLike | None = None,
    bounds_share: float | None = None, method: str = 'adpm', variance: float | Literal['learn'] | None = None,
    drift: float = 0.0, target: str | None = None, person: PersonLike | None = None, rows: Rows = 'one',
    by: None = None, public_columns: Sequence[str] = (), groups: Sequence[Any] | None = None,
    public_rows: SourceLike | None = None, tiers: TiersLike | None = None, query: str | None = None,
    delimiter: str | None = None, decimal: str = '.', thousands: str | None = None
) -> Means: ...
@overload
def mean(
    source: SourceLike, *, epsilon: EpsilonLike, bounds: BoundsLike | Literal["private"], value: str | None = None,
    private_group: str, categories: Sequence[Any], missing: MissingLike | None = None,
    values: Mapping[Any, float] | None = None, outer: BoundsLike | None = None, bounds_share: float | None = None,
    method: str = 'adpm', variance: float | Literal['learn'] | None = None, drift: float = 0.0,
    target: str | None = None, person: PersonLike | None = None, rows: Rows = 'one', by: None = None,
    public_columns: Sequence[str] = (), groups: Sequence[Any] | None = None, public_rows: SourceLike | None = None,
    tiers: TiersLike | None = None, query: str | None = None, delimiter: str | None = None, decimal: str = '.',
    thousands: str | None = None
) -> GroupMeans: ...
@overload
def mean(
    source: SourceLike, *, epsilon: EpsilonLike, bounds: ManyBounds, value: str | Sequence[str] | None = None,
    private_group: str | None = None, categories: Sequence[Any] | None = None, missing: MissingLike | None = None,
    values: Mapping[Any, float] | None = None, outer: BoundsLike | None = None, bounds_share: float | None = None,
    method: str = 'adpm', variance: float | Literal['learn'] | None = None, drift: float = 0.0,
    target: str | None = None, person: PersonLike | None = None, rows: Rows = 'one', by: ByLike,
    public_columns: Sequence[str] = (), groups: Sequence[Any] | None = None, public_rows: SourceLike | None = None,
    tiers: TiersLike | None = None, query: str | None = None, delimiter: str | None = None, decimal: str = '.',
    thousands: str | None = None
) -> Groups: ...

@overload
def median(
    source: SourceLike, *, bounds: BoundsLike | Literal["private"], bins: int = 4096, within: float | None = None,
    value: str | None = None, missing: MissingLike | None = None, values: Mapping[Any, float] | None = None,
    epsilon: EpsilonLike, outer: BoundsLike | None = None, bounds_share: float | None = None, method: str = 'adpm',
    person: PersonLike | None = None, rows: Rows = 'one', by: None = None, public_columns: Sequence[str] = (),
    groups: Sequence[Any] | None = None, public_rows: SourceLike | None = None, tiers: TiersLike | None = None,
    query: str | None = None, delimiter: str | None = None, decimal: str = '.', thousands: str | None = None
) -> Quantiles: ...
@overload
def median(
    source: SourceLike, *, bounds: BoundsLike | Literal["private"], bins: int = 4096, within: float | None = None,
    value: str | None = None, missing: MissingLike | None = None, values: Mapping[Any, float] | None = None,
    epsilon: EpsilonLike, outer: BoundsLike | None = None, bounds_share: float | None = None, method: str = 'adpm',
    person: PersonLike | None = None, rows: Rows = 'one', by: ByLike, public_columns: Sequence[str] = (),
    groups: Sequence[Any] | None = None, public_rows: SourceLike | None = None, tiers: TiersLike | None = None,
    query: str | None = None, delimiter: str | None = None, decimal: str = '.', thousands: str | None = None
) -> Groups: ...

@overload
def mode(
    source: SourceLike, *, categories: Sequence[Any] | None = None, edges: Sequence[float] | None = None,
    bins: int | None = None, bounds: BoundsLike | None = None, value: str | None = None, epsilon: EpsilonLike,
    method: str = 'adpm', person: PersonLike | None = None, rows: Rows = 'one', by: None = None,
    public_columns: Sequence[str] = (), groups: Sequence[Any] | None = None, public_rows: SourceLike | None = None,
    tiers: TiersLike | None = None, query: str | None = None, delimiter: str | None = None, decimal: str = '.',
    thousands: str | None = None
) -> Mode: ...
@overload
def mode(
    source: SourceLike, *, categories: Sequence[Any] | None = None, edges: Sequence[float] | None = None,
    bins: int | None = None, bounds: BoundsLike | None = None, value: str | None = None, epsilon: EpsilonLike,
    method: str = 'adpm', person: PersonLike | None = None, rows: Rows = 'one', by: ByLike,
    public_columns: Sequence[str] = (), groups: Sequence[Any] | None = None, public_rows: SourceLike | None = None,
    tiers: TiersLike | None = None, query: str | None = None, delimiter: str | None = None, decimal: str = '.',
    thousands: str | None = None
) -> Groups: ...

@overload
def proportion(
    source: SourceLike, *, equals: str | float, value: str | None = None,
    missing: Filled | Literal["drop"] | None = None, values: Mapping[Any, float] | None = None,
    epsilon: EpsilonLike, method: str = 'adpm', drift: float = 0.0, target: str | None = None,
    person: PersonLike | None = None, rows: Rows = 'one', by: None = None, public_columns: Sequence[str] = (),
    groups: Sequence[Any] | None = None, public_rows: SourceLike | None = None, tiers: TiersLike | None = None,
    query: str | None = None, delimiter: str | None = None, decimal: str = '.', thousands: str | None = None
) -> Release: ...
@overload
def proportion(
    source: SourceLike, *, equals: str | float, value: str | None = None, missing: Literal["estimate"],
    values: Mapping[Any, float] | None = None, epsilon: EpsilonLike, method: str = 'adpm', drift: float = 0.0,
    target: str | None = None, person: PersonLike | None = None, rows: Rows = 'one', by: None = None,
    public_columns: Sequence[str] = (), groups: Sequence[Any] | None = None, public_rows: SourceLike | None = None,
    tiers: TiersLike | None = None, query: str | None = None, delimiter: str | None = None, decimal: str = '.',
    thousands: str | None = None
) -> AnsweredMean: ...
@overload
def proportion(
    source: SourceLike, *, equals: str | float, value: str | None = None, missing: MissingLike | None = None,
    values: Mapping[Any, float] | None = None, epsilon: EpsilonLike, method: str = 'adpm', drift: float = 0.0,
    target: str | None = None, person: PersonLike | None = None, rows: Rows = 'one', by: ByLike,
    public_columns: Sequence[str] = (), groups: Sequence[Any] | None = None, public_rows: SourceLike | None = None,
    tiers: TiersLike | None = None, query: str | None = None, delimiter: str | None = None, decimal: str = '.',
    thousands: str | None = None
) -> Groups: ...

@overload
def quantile(
    source: SourceLike, q: float | Sequence[float] = 0.5, *, bounds: BoundsLike | Literal["private"],
    bins: int = 4096, within: float | None = None, value: str | None = None, missing: MissingLike | None = None,
    values: Mapping[Any, float] | None = None, epsilon: EpsilonLike, outer: BoundsLike | None = None,
    bounds_share: float | None = None, method: str = 'adpm', person: PersonLike | None = None, rows: Rows = 'one',
    by: None = None, public_columns: Sequence[str] = (), groups: Sequence[Any] | None = None,
    public_rows: SourceLike | None = None, tiers: TiersLike | None = None, query: str | None = None,
    delimiter: str | None = None, decimal: str = '.', thousands: str | None = None
) -> Quantiles: ...
@overload
def quantile(
    source: SourceLike, q: float | Sequence[float] = 0.5, *, bounds: BoundsLike | Literal["private"],
    bins: int = 4096, within: float | None = None, value: str | None = None, missing: MissingLike | None = None,
    values: Mapping[Any, float] | None = None, epsilon: EpsilonLike, outer: BoundsLike | None = None,
    bounds_share: float | None = None, method: str = 'adpm', person: PersonLike | None = None, rows: Rows = 'one',
    by: ByLike, public_columns: Sequence[str] = (), groups: Sequence[Any] | None = None,
    public_rows: SourceLike | None = None, tiers: TiersLike | None = None, query: str | None = None,
    delimiter: str | None = None, decimal: str = '.', thousands: str | None = None
) -> Groups: ...

def release(
    tally: Tally, plan: Plan
) -> Any: ...

@overload
def simulate(
    levels: Levels | LevelsOfPeople, *, method: str,
    distribution: str | Sequence[Any] | Mapping[Any, float] | ArrayLike | Distribution,
    bounds: BoundsLike | None = None, statistic: Statistic | None = None, runs: int = 20000,
    rng: int | np.random.SeedSequence | np.random.Generator | None = None, variance: float | None = None
) -> Simulation: ...
@overload
def simulate(
    levels: Levels | LevelsOfPeople, *, method: list[str] | tuple[str, ...],
    distribution: str | Sequence[Any] | Mapping[Any, float] | ArrayLike | Distribution,
    bounds: BoundsLike | None = None, statistic: Statistic | None = None, runs: int = 20000,
    rng: int | np.random.SeedSequence | np.random.Generator | None = None, variance: float | None = None
) -> dict[str, Simulation]: ...

@overload
def std(
    source: SourceLike, *, bounds: BoundsLike | Literal["private"], value: str | None = None,
    missing: MissingLike | None = None, values: Mapping[Any, float] | None = None, epsilon: EpsilonLike,
    outer: BoundsLike | None = None, bounds_share: float | None = None, method: str = 'adpm',
    person: PersonLike | None = None, rows: Rows = 'one', by: None = None, public_columns: Sequence[str] = (),
    groups: Sequence[Any] | None = None, public_rows: SourceLike | None = None, tiers: TiersLike | None = None,
    query: str | None = None, delimiter: str | None = None, decimal: str = '.', thousands: str | None = None
) -> Moments: ...
@overload
def std(
    source: SourceLike, *, bounds: BoundsLike | Literal["private"], value: str | None = None,
    missing: MissingLike | None = None, values: Mapping[Any, float] | None = None, epsilon: EpsilonLike,
    outer: BoundsLike | None = None, bounds_share: float | None = None, method: str = 'adpm',
    person: PersonLike | None = None, rows: Rows = 'one', by: ByLike, public_columns: Sequence[str] = (),
    groups: Sequence[Any] | None = None, public_rows: SourceLike | None = None, tiers: TiersLike | None = None,
    query: str | None = None, delimiter: str | None = None, decimal: str = '.', thousands: str | None = None
) -> Groups: ...

@overload
def sum(
    source: SourceLike, *, bounds: BoundsLike | Literal["private"], value: str | None = None,
    missing: MissingLike | None = None, values: Mapping[Any, float] | None = None, epsilon: EpsilonLike,
    outer: BoundsLike | None = None, bounds_share: float | None = None, method: str = 'adpm',
    variance: float | Literal['learn'] | None = None, drift: float = 0.0, target: str | None = None,
    person: PersonLike | None = None, rows: Rows = 'one', by: None = None, public_columns: Sequence[str] = (),
    groups: Sequence[Any] | None = None, public_rows: SourceLike | None = None, tiers: TiersLike | None = None,
    query: str | None = None, delimiter: str | None = None, decimal: str = '.', thousands: str | None = None
) -> Release: ...
@overload
def sum(
    source: SourceLike, *, bounds: BoundsLike | Literal["private"], value: str | None = None,
    missing: MissingLike | None = None, values: Mapping[Any, float] | None = None, epsilon: EpsilonLike,
    outer: BoundsLike | None = None, bounds_share: float | None = None, method: str = 'adpm',
    variance: float | Literal['learn'] | None = None, drift: float = 0.0, target: str | None = None,
    person: PersonLike | None = None, rows: Rows = 'one', by: ByLike, public_columns: Sequence[str] = (),
    groups: Sequence[Any] | None = None, public_rows: SourceLike | None = None, tiers: TiersLike | None = None,
    query: str | None = None, delimiter: str | None = None, decimal: str = '.', thousands: str | None = None
) -> Groups: ...

@overload
def variance(
    source: SourceLike, *, bounds: BoundsLike | Literal["private"], value: str | None = None,
    missing: MissingLike | None = None, values: Mapping[Any, float] | None = None, epsilon: EpsilonLike,
    outer: BoundsLike | None = None, bounds_share: float | None = None, method: str = 'adpm',
    person: PersonLike | None = None, rows: Rows = 'one', by: None = None, public_columns: Sequence[str] = (),
    groups: Sequence[Any] | None = None, public_rows: SourceLike | None = None, tiers: TiersLike | None = None,
    query: str | None = None, delimiter: str | None = None, decimal: str = '.', thousands: str | None = None
) -> Moments: ...
@overload
def variance(
    source: SourceLike, *, bounds: BoundsLike | Literal["private"], value: str | None = None,
    missing: MissingLike | None = None, values: Mapping[Any, float] | None = None, epsilon: EpsilonLike,
    outer: BoundsLike | None = None, bounds_share: float | None = None, method: str = 'adpm',
    person: PersonLike | None = None, rows: Rows = 'one', by: ByLike, public_columns: Sequence[str] = (),
    groups: Sequence[Any] | None = None, public_rows: SourceLike | None = None, tiers: TiersLike | None = None,
    query: str | None = None, delimiter: str | None = None, decimal: str = '.', thousands: str | None = None
) -> Groups: ...

class _Ask:
    @overload
    def __call__(
        self, source: SourceLike, questions: Mapping[str, Statistic], *, epsilon: EpsilonLike,
        split: Mapping[str, Any] | None = None, missing: MissingLike | None = None, method: str = 'adpm',
        person: PersonLike | None = None, rows: Rows = 'one', by: None = None, public_columns: Sequence[str] = (),
        groups: Sequence[Any] | None = None, public_rows: SourceLike | None = None, tiers: TiersLike | None = None,
        query: str | None = None, delimiter: str | None = None, decimal: str = '.', thousands: str | None = None
    ) -> Answers: ...
    @overload
    def __call__(
        self, source: SourceLike, questions: Mapping[str, Statistic], *, epsilon: EpsilonLike,
        split: Mapping[str, Any] | None = None, missing: MissingLike | None = None, method: str = 'adpm',
        person: PersonLike | None = None, rows: Rows = 'one', by: ByLike, public_columns: Sequence[str] = (),
        groups: Sequence[Any] | None = None, public_rows: SourceLike | None = None, tiers: TiersLike | None = None,
        query: str | None = None, delimiter: str | None = None, decimal: str = '.', thousands: str | None = None
    ) -> Groups: ...
    def mean(
        self, bounds: BoundsLike, *, value: str | None = None, missing: MissingLike | None = None,
        values: Mapping[Any, float] | None = None
    ) -> Statistic: ...
    def sum(
        self, bounds: BoundsLike, *, value: str | None = None, missing: MissingLike | None = None,
        values: Mapping[Any, float] | None = None
    ) -> Statistic: ...
    def proportion(
        self, equals: str | float, *, value: str | None = None, missing: MissingLike | None = None,
        values: Mapping[Any, float] | None = None
    ) -> Statistic: ...
    def count(
        self, equals: str | float, *, value: str | None = None, missing: MissingLike | None = None,
        values: Mapping[Any, float] | None = None
    ) -> Statistic: ...
    def histogram(
        self, categories: Sequence[Any] | None = None, *, edges: Sequence[float] | None = None, bins: int | None = None,
        bounds: BoundsLike | None = None, value: str | None = None
    ) -> Statistic: ...
    def quantile(
        self, q: float | Sequence[float] = 0.5, *, bounds: BoundsLike, bins: int = 4096, within: float | None = None,
        value: str | None = None, missing: MissingLike | None = None, values: Mapping[Any, float] | None = None
    ) -> Statistic: ...
    def mode(
        self, categories: Sequence[Any] | None = None, *, edges: Sequence[float] | None = None, bins: int | None = None,
        bounds: BoundsLike | None = None, value: str | None = None
    ) -> Statistic: ...
    def variance(
        self, bounds: BoundsLike, *, value: str | None = None, missing: MissingLike | None = None,
        values: Mapping[Any, float] | None = None
    ) -> Statistic: ...
    def means(
        self, bounds: Mapping[str, BoundsLike], *, missing: MissingLike | None = None,
        values: Mapping[Any, float] | None = None
    ) -> Statistic: ...
    def mean_by_group(
        self, bounds: BoundsLike, *, categories: Sequence[Any], private_group: str | None = None,
        value: str | None = None, missing: MissingLike | None = None, values: Mapping[Any, float] | None = None
    ) -> Statistic: ...
    def bounds(
        self, outer: BoundsLike, *, value: str | None = None, missing: MissingLike | None = None
    ) -> Statistic: ...
    def median(
        self, *, bounds: BoundsLike, bins: int = 4096, within: float | None = None, value: str | None = None,
        missing: MissingLike | None = None, values: Mapping[Any, float] | None = None
    ) -> Statistic: ...
    def std(
        self, bounds: BoundsLike, *, value: str | None = None, missing: MissingLike | None = None,
        values: Mapping[Any, float] | None = None
    ) -> Statistic: ...


ask: _Ask
