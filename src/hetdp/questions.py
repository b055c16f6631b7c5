"""The statistics in one call each: read → plan → release. What a statistic is stands in `statistics/`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict, Unpack, overload

from hetdp.core.domain import Interval
from hetdp.core.plan import plan
from hetdp.errors import InputError
from hetdp.estimators import METHODS
from hetdp.privacy.release import Groups, Release, release, release_records
from hetdp.sources import Form, Rows, Source, read_groups, records, tally
from hetdp.tally.tally import Tally


class _Options(TypedDict, total=False):
    """What every form of `mean` takes."""

    value: str | None
    method: str
    variance: float | None
    person: Any
    rows: Rows
    public_columns: Sequence[str]
    groups: Sequence[str] | None
    public_rows: Any
    tiers: Mapping[str, Any] | None
    query: str | None
    delimiter: str | None
    decimal: str
    thousands: str | None


@overload
def mean(source: Any, *, epsilon: Any, bounds: Any, by: None = None, **options: Unpack[_Options]) -> Release: ...
@overload
def mean(source: Any, *, epsilon: Any, bounds: Any, by: str, **options: Unpack[_Options]) -> Groups: ...
def mean(  # noqa: PLR0913  mirrors the columns of a table
    source: Any,
    *,
    epsilon: Any,
    bounds: Any,
    value: str | None = None,
    method: str = "adpm",
    variance: float | None = None,
    person: Any = None,
    rows: Rows = "one",
    by: str | None = None,
    public_columns: Sequence[str] = (),
    groups: Sequence[str] | None = None,
    public_rows: Any = None,
    tiers: Mapping[str, Any] | None = None,
    query: str | None = None,
    delimiter: str | None = None,
    decimal: str = ".",
    thousands: str | None = None,
) -> Release | Groups:
    """Return a private mean in which every person is protected at their own ε.

    ε is treated as public and must not depend on the value. Replacing one person's value changes the probability
    of any result by at most a factor e^ε, for each person's own ε.

    Parameters
    ----------
    source, value, epsilon, bounds, person, rows, tiers, public_rows, query, delimiter, decimal, thousands
        As for `read`.
    method, variance
        As for `plan`.
    by
        A column that splits the people into groups, with a mean for each. It must be one of `public_columns`: which
        group a person is in is not protected.
    public_columns
        Columns that are declared public.
    groups
        The groups, when some may be empty; any other group in the data is an error.

    Examples
    --------
    >>> incomes = [31_000, 52_500, 18_000, 77_000] * 250
    >>> privacy = [0.05, 0.2, 1, float("inf")] * 250
    >>> result = mean(incomes, epsilon=privacy, bounds=(0, 250_000))
    >>> result.plan.n, round(result.plan.threshold, 3)
    (1000, 0.298)
    """
    people = Source.of(
        source,
        value=value,
        epsilon=epsilon,
        person=person,
        rows=rows,
        by=by,
        tiers=tiers,
        query=query,
        form=Form(delimiter, decimal, thousands),
    )
    return of_source(
        people,
        Interval.of(bounds),
        method=method,
        variance=variance,
        public_columns=public_columns,
        groups=groups,
        public_rows=public_rows,
    )


def of_source(
    people: Source,
    interval: Interval,
    *,
    method: str,
    variance: float | None,
    public_columns: Sequence[str] = (),
    groups: Sequence[str] | None = None,
    public_rows: Any = None,
) -> Release | Groups:
    """Return the private mean of a source, or one for each group if it has groups."""
    interval.ordinary()
    by = people.asked.by
    if by is None and groups is not None:
        raise InputError("a list of groups needs the column that they are in: by=…, --by COL")
    if by is not None and by not in public_columns:
        raise InputError(
            f"the groups of column {by!r} would be published; if it is public, declare it: public_columns=[{by!r}], "
            f"--public-column {by}"
        )
    if METHODS[method].needs_records:
        if by is not None or public_rows is not None:
            raise InputError(f"{method} keeps people one by one; it has no groups and no public rows here")
        values, levels = records(people, method)
        return release_records(values, levels, plan(levels, bounds=interval, method=method, variance=variance))
    if by is None:
        return of_tally(tally(people, interval, public_rows), method, variance)
    parts = read_groups(people, interval, groups=groups, public_rows=public_rows)
    releases = {name: of_tally(part, method, variance) for name, part in parts.items()}
    return Groups(releases, checked=people.asked.person is not None)


def of_tally(people: Tally, method: str, variance: float | None) -> Release:
    """Return the private mean of a tally."""
    return release(people, plan(people.levels, bounds=people.interval.ordinary(), method=method, variance=variance))
