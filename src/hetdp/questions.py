"""The statistics in one call each: read → plan → release. What a statistic is stands in `statistics/`.

Every statistic has a function that takes its own parameters and, besides them, those of `mean`; `verb` makes it.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields, replace
from typing import Any, Literal, TypedDict, Unpack, overload

from hetdp.core.domain import Interval
from hetdp.core.plan import Plan, plan
from hetdp.core.types import (
    OWN,
    BoundsLike,
    ByLike,
    EpsilonLike,
    ManyBounds,
    MissingLike,
    PersonLike,
    SourceLike,
    TiersLike,
    documented_by,
)
from hetdp.errors import InputError
from hetdp.estimators import METHODS
from hetdp.privacy.exact import check_together
from hetdp.privacy.release import carry_out, refuse_seed, release, release_records
from hetdp.private_bounds import bounds_given
from hetdp.sources import Form, Rows, Source, declared_public, read, read_groups, records, tallies_of, tally
from hetdp.statistics import ALSO, FORMS, STATISTICS, Statistic, kind_of, title_of
from hetdp.statistics.answer import Answers, Groups, shares_of
from hetdp.statistics.bounds import Bounds, Range, origins_of, private_intervals, settle, share_left
from hetdp.statistics.histogram import Celled, MeanByGroup
from hetdp.statistics.mean import LearnedMean, Mean, learned
from hetdp.statistics.moments import Columns
from hetdp.statistics.quantile import Quantiles, Ranks
from hetdp.statistics.statistic import Answer, Release
from hetdp.tally.tally import Tally


class _Options(TypedDict, total=False):
    """What every question takes besides its own parameters, and groups."""

    method: str
    variance: float | Literal["learn"] | None
    drift: float
    target: str | None
    person: PersonLike | None
    rows: Rows
    public_columns: Sequence[str]
    groups: Sequence[Any] | None
    public_rows: SourceLike | None
    tiers: TiersLike | None
    query: str | None
    delimiter: str | None
    decimal: str
    thousands: str | None


class _MeanOptions(_Options, total=False):
    value: str | None


@overload
def mean(
    source: SourceLike, *, epsilon: EpsilonLike, bounds: ManyBounds, by: None = None, **options: Unpack[_MeanOptions]
) -> Release: ...
@overload
def mean(
    source: SourceLike, *, epsilon: EpsilonLike, bounds: ManyBounds, by: ByLike, **options: Unpack[_MeanOptions]
) -> Groups: ...
@overload
def mean(source: SourceLike, *, epsilon: EpsilonLike, bounds: ManyBounds, **options: Any) -> Any: ...
@documented_by(read, plan)
def mean(  # noqa: PLR0913  every form of a mean
    source: SourceLike,
    *,
    epsilon: EpsilonLike,
    bounds: ManyBounds,
    value: str | Sequence[str] | None = None,
    private_group: str | None = None,
    categories: Sequence[Any] | None = None,
    missing: MissingLike | None = None,
    values: Mapping[Any, float] | None = None,
    outer: BoundsLike | None = None,
    bounds_share: float | None = None,
    **options: Any,
) -> Any:
    """Return a private mean in which every person is protected at their own ε.

    ε is treated as public. If it may go with the value, state a `drift`. Replacing one person's value changes the
    probability of any result by at most a factor e^ε, for each person's own ε.

    Parameters
    ----------
    source, epsilon
        As for `read`.
    bounds
        The public interval (lo, hi); bounds that `bounds_for` found, for which a share of everybody's ε is spent
        already; or "private": they are found first, within `outer`. Then it is the mean of values clipped to them.
    outer
        With bounds="private": the public interval in which they are looked for; the source is then read twice.
    bounds_share
        With bounds="private": the share of everybody's ε that the bounds may spend, as `share` of `bounds_for`.
    value
        The private column of a table; of several, with their bounds as a mapping, all means are released at once.
    private_group
        A private column of groups: a mean for each of them, in one release.
    categories
        The public list of the private groups.
    missing
        What a missing value means. A value column of a table needs it: "estimate" (the mean of those who answered, and
        who did stays private), "drop", "midpoint", a number or "none".
    values, person, rows, tiers, public_rows, query, delimiter, decimal, thousands
        As for `read`.
    method, variance, drift, target
        As for `plan`.
    by
        A column that splits the people into groups, with a mean for each; or several, ["region", "sex"], with a mean
        for each combination. All must be among `public_columns`: which group a person is in is not protected. With
        values in memory {name: groups}, one entry a row.
    public_columns
        Columns that are declared public.
    groups
        The groups, when some may be empty; any other group in the data is an error. Of several columns a group is a
        tuple: [("north", "f"), ("north", "m")]. A sum or a count needs no release for an empty group and refuses it.

    Returns
    -------
    Release, AnsweredMean, Means, GroupMeans or Groups
        A `Release` for one mean; `AnsweredMean` with missing="estimate", `Means` of several columns, `GroupMeans` with
        private groups, and `Groups` with `by`.

    Examples
    --------
    >>> incomes = [31_000, 52_500, 18_000, 77_000] * 250
    >>> privacy = [0.05, 0.2, 1, float("inf")] * 250
    >>> result = mean(incomes, epsilon=privacy, bounds=(0, 250_000))
    >>> result.plan.n, round(result.plan.threshold, 3)
    (1000, 0.298)
    """
    refuse_seed(options)
    if (private_group is None) != (categories is None):
        raise InputError("means by a private group need its column and the groups: private_group=…, categories=[…]")
    how: dict[str, Any] = {"missing": missing, "values": values}

    def asked(bounds: ManyBounds) -> Statistic:
        if isinstance(bounds, Mapping):
            columns = list(bounds) if value is None or isinstance(value, str) else list(value)
            if sorted(columns) != sorted(bounds) or private_group:
                raise InputError(
                    "several means need the bounds of each column: value=['a', 'b'], bounds={'a': …, 'b': …}"
                )
            return Columns({name: bounds[name] for name in columns}, **how)
        named: dict[str, Any] = {"value": value, **how}  # `Source.of` refuses what is no name
        if private_group is None:
            return Mean(Interval.of(bounds), **named)
        return MeanByGroup(bounds, categories, private_group, **named)

    if isinstance(bounds, str) or outer is not None or bounds_share is not None:
        wanted = {"outer": outer, "bounds_share": bounds_share}
        bounds = bounds_given(source, bounds, wanted, {"value": value, "epsilon": epsilon, **how, **options}, asked)
    return of_question(source, asked(bounds), epsilon=epsilon, **options)


def median(source: SourceLike, *, epsilon: EpsilonLike, bounds: ManyBounds, **options: Any) -> Quantiles:
    """Return a private median: `source`, `epsilon`, `bounds` and the options are those of `quantile`."""
    return verb("quantile")(source, 0.5, epsilon=epsilon, bounds=bounds, **options)  # type: ignore[no-any-return]


def verb(name: str) -> Callable[..., Any]:
    """Return the function of a statistic: from a source, its own parameters and the options of `mean` to the answer."""
    kind, title = kind_of(name), title_of(name)
    shared = ("value", "missing", "values") if kind.asks_missing else ("value",)
    own = [field for field in fields(kind) if field.name not in ("value", "missing", "values")]

    def function(source: Any, *given: Any, epsilon: Any, value: Any = None, **options: Any) -> Any:
        refuse_seed(options)
        named = {f.name: options.pop(f.name) for f in fields(kind) if f.name != "value" and f.name in options}
        private = {name: options.pop(name, None) for name in _PRIVATE}
        if kind.name != "mean" and options.get("variance") is not None and not kind.takes_variance:
            raise InputError(f"a bound on the variance is for means and sums, not for a {kind.name}")

        def asked(bounds: Any) -> Statistic:
            try:
                return kind(*given, **named | ({} if bounds is None else {"bounds": bounds}), value=value)
            except TypeError:
                wanted = ", ".join(field.name for field in own)
                raise InputError(f"a {name} is asked for with {wanted}, besides what `mean` takes") from None

        where = {"value": value, "epsilon": epsilon, **options}
        where |= {name: named[name] for name in ("missing", "values") if name in named}
        bounds = bounds_given(source, named.get("bounds"), private, where, asked)
        return of_question(source, asked(bounds), epsilon=epsilon, **options)

    words = inspect.cleandoc(kind.__doc__ or kind.name)
    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Return {title[0].lower()}{title[1:]}.\n\n{words}\n\n" + _PARAMETERS.format(
        "\n".join(f"{field.name}\n    {field.metadata.get('help', '')}" for field in own)
    )
    keyword, typed = inspect.Parameter.KEYWORD_ONLY, inspect.signature(mean).parameters
    parameters = [typed["source"]]
    for i, field in enumerate(own):
        default = inspect.Parameter.empty if field.default is MISSING else field.default
        first = i == 0 and kind is Ranks
        place = inspect.Parameter.POSITIONAL_OR_KEYWORD if first else keyword
        shown = OWN.get(field.name, field.type)
        parameters.append(inspect.Parameter(field.name, place, default=default, annotation=shown))
    parameters += [typed[name] for name in (*shared, "epsilon")]
    if "bounds" in {field.name for field in own} and not issubclass(kind, Celled):
        parameters += [typed[name] for name in _PRIVATE]
    options = inspect.signature(of_question).parameters.values()
    takes = {"variance": kind.takes_variance, "drift": kind.takes_drift, "target": kind.takes_drift}
    parameters += [p for p in options if p.default is not p.empty and takes.get(p.name, True)]
    function.__signature__ = inspect.Signature(parameters, return_annotation="Answer | Groups")  # type: ignore[attr-defined]
    return documented_by(mean)(function)


_PRIVATE = ("outer", "bounds_share")
"""The options that go with private bounds."""

_PARAMETERS = """Parameters
----------
value
    The private column of a table.
source, epsilon, missing, values
    As for `mean`.
{}
method, person, rows, by, public_columns, groups, public_rows, tiers, query, delimiter, decimal, thousands
    As for `mean`.
outer, bounds_share, variance, drift, target
    As for `mean`."""


def of_question(  # noqa: PLR0913  mirrors the columns of a table
    source: SourceLike,
    asked: Statistic,
    *,
    epsilon: EpsilonLike,
    method: str = "adpm",
    variance: float | Literal["learn"] | None = None,
    drift: float = 0.0,
    target: str | None = None,
    person: PersonLike | None = None,
    rows: Rows = "one",
    by: ByLike | None = None,
    public_columns: Sequence[str] = (),
    groups: Sequence[Any] | None = None,
    public_rows: SourceLike | None = None,
    tiers: TiersLike | None = None,
    query: str | None = None,
    delimiter: str | None = None,
    decimal: str = ".",
    thousands: str | None = None,
) -> Answer | Groups:
    """Return the answer to a question about a source; the options are those of `mean`."""
    asked = learned(asked) if variance == "learn" else asked
    people = Source.asked_by(
        asked,
        source,
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
        asked,
        method=method,
        variance=variance,
        drift=drift,
        target=target,
        public_columns=public_columns,
        groups=groups,
        public_rows=public_rows,
    )


def of_source(  # noqa: PLR0913  mirrors the columns of a table
    people: Source,
    asked: Statistic,
    *,
    method: str,
    variance: float | Literal["learn"] | None,
    drift: float = 0.0,
    target: str | None = None,
    public_columns: Sequence[str] = (),
    groups: Sequence[Any] | None = None,
    public_rows: Any = None,
) -> Answer | Groups:
    """Return the answer to a question about a source, or one for each group if it has groups."""
    asked.interval.ordinary()
    how: dict[str, Any] = {"method": method, "variance": variance, "drift": drift, "target": target}
    by = people.asked.groupings
    _groups_are_public(by, public_columns, groups)
    if METHODS[method].needs_records:
        if by or public_rows is not None:
            raise InputError(f"{method} keeps people one by one; it has no groups and no public rows here")
        if type(asked) is not Mean or asked.keeps_missing:
            raise InputError(f"{method} keeps people one by one and is for plain means alone; choose another method")
        if private_intervals(asked):
            raise InputError(f"{method} keeps people one by one and cannot use private bounds; choose another method")
        values, levels = records(people, asked, method)
        about = people.about(asked).now()
        return replace(release_records(values, levels, plan(levels, statistic=asked, **how)), about=about)
    if not by:
        return of_tally(tally(people, asked, public_rows), **how)
    parts = read_groups(people, asked, groups=groups, public_rows=public_rows)
    parts = {name: _alike(part) for name, part in parts.items()}
    plans = {name: plan(part.levels, statistic=part.statistic, **how) for name, part in parts.items()}
    settle([[made] for made in plans.values()])
    releases = {name: carry_out(part, plans[name]) for name, part in parts.items()}
    return Groups(releases, checked=people.asked.person is not None, by=by)


def _groups_are_public(by: Sequence[str], public_columns: Sequence[str], groups: Any) -> None:
    if not by and groups is not None:
        raise InputError("a list of groups needs the column that they are in: by=…, --by COL")
    declared_public(by, public_columns)


def of_tally(people: Tally, method: str, variance: float | Literal["learn"] | None, **how: Any) -> Answer:
    """Return the answer to the question that a tally is for; `how` is more that `plan` takes."""
    people.interval.ordinary()
    people = _alike(people)
    if variance == "learn" and not isinstance(people.statistic, LearnedMean):
        raise InputError("this tally has no squares from which a variance could be learned; read the table itself")
    planned = plan(people.levels, statistic=people.statistic, method=method, variance=variance, **how)
    return release(people, planned)


def _alike(people: Tally) -> Tally:
    """Return a tally with its levels as those of the private bounds that it uses: rounded alike if there are many."""
    origins = origins_of([people.statistic]) if people.statistic.private_bounds else []
    return people.coarse() if any(origin.levels.rounded for origin in origins) else people


VERBS = {name: verb(name) for name in (*STATISTICS, "std") if name not in (*FORMS, Range.name)}
"""The functions of the statistics; the forms of the mean come with `mean`; median and bounds have their own."""


# Several questions under one budget ---------------------------------------------------------------------------------


class _Ask:
    """`hetdp.ask(source, questions, …)`; its attributes are the questions, such as `hetdp.ask.mean(bounds=(0, 1))`."""

    def __getattr__(self, name: str) -> Any:
        try:
            return kind_of(name)
        except InputError as error:
            raise AttributeError(str(error)) from None

    def __dir__(self) -> list[str]:
        return [*STATISTICS, *ALSO]

    @documented_by(mean, plan)
    def __call__(  # noqa: PLR0913  mirrors the columns of a table
        self,
        source: SourceLike,
        questions: Mapping[str, Statistic],
        *,
        epsilon: EpsilonLike,
        split: Mapping[str, Any] | None = None,
        missing: MissingLike | None = None,
        method: str = "adpm",
        person: PersonLike | None = None,
        rows: Rows = "one",
        by: ByLike | None = None,
        public_columns: Sequence[str] = (),
        groups: Sequence[Any] | None = None,
        public_rows: SourceLike | None = None,
        tiers: TiersLike | None = None,
        query: str | None = None,
        delimiter: str | None = None,
        decimal: str = ".",
        thousands: str | None = None,
        **unknown: Any,
    ) -> Any:
        """Return the answers to several questions about the same people, who spend their ε once on all of them.

        Each question gets a share of everybody's ε, the same unless `split` says otherwise; what a question does not
        need of its share stays free. That nobody spends more than their ε on all questions together is checked exactly.

        Parameters
        ----------
        source, epsilon, method, person, rows, public_rows, tiers, query, delimiter, decimal, thousands
            As for `mean`.
        by, public_columns, groups
            As for `mean`: the answers of each group, as `Groups` of `Answers`.
        questions
            {name: question}, as {"income": ask.mean(bounds=(0, 10**5)), "job": ask.histogram(categories=[…])}. The name
            is the column, unless the question names another: ask.mean(value="income", bounds=…).
        split
            {name: share}, in any unit; {"income": 2, "job": 1} gives the first twice as much.
        missing
            What is done about missing values, for the questions that do not say it themselves.

        Examples
        --------
        >>> import polars
        >>> people = polars.DataFrame({"age": [30, 50] * 500, "job": ["a", "b"] * 500, "eps": [0.5, 2.0] * 500})
        >>> age = ask.mean(bounds=(0, 100), missing="estimate")
        >>> questions = {"age": age, "job": ask.histogram(categories=["a", "b"])}
        >>> sorted(ask(people, questions, epsilon="eps"))
        ['age', 'job']
        """
        refuse_seed(unknown, known=False)
        form = Form(delimiter, decimal, thousands)
        where = {"epsilon": epsilon, "person": person, "rows": rows, "tiers": tiers, "query": query, "form": form}
        shares, public = shares_of(questions, split), {"groups": groups, "public_rows": public_rows}
        asked = {name: _of_column(name, question).with_missing(missing) for name, question in questions.items()}
        return of_questions(source, asked, {**where, "by": by}, shares, method, public_columns, **public)


ask = _Ask()


def of_questions(
    source: Any,
    questions: Mapping[str, Statistic],
    where: Mapping[str, Any],
    shares: Mapping[str, float],
    method: str,
    public_columns: Sequence[str] = (),
    **public: Any,
) -> Answers | Groups:
    """Return the answers to several questions about the same people, or those of each group if there are groups.

    Claim: the answers together are ε-DP for everybody. Argument: each release is, at its plan's spends, and
    `check_together` has seen in exact fractions that these add up to at most ε⁻ at every level, before a value is used.
    The levels are the same for all questions, or nothing is released. All groups are planned and checked before a
    release of any of them.
    """
    asked = {name: _of_column(name, question) for name, question in questions.items()}
    by = where.get("by") or ()
    columns = (by,) if isinstance(by, str) else tuple(by)
    _groups_are_public(columns, public_columns, public.get("groups"))
    origins, left = origins_of(list(asked.values())), share_left(list(asked.values()))
    shares = {name: share if left == 1 else math.nextafter(share * left, 0.0) for name, share in shares.items()}
    people, found = tallies_of(source, asked, where, **public)
    order = list(next(iter(found.values())))
    if any(list(tallies) != order for tallies in found.values()):
        raise InputError(_CHANGED)
    coarse = any(origin.levels.wide and origin.levels.rounded for origin in origins)
    ready = {g: _planned({name: found[name][g] for name in found}, shares, method, coarse=coarse) for g in order}
    settle([[made for _, made in pairs.values()] for pairs in ready.values()])
    answers = {group: Answers(_answered(pairs), shares) for group, pairs in ready.items()}
    return Groups(answers, checked=people.asked.person is not None, by=columns) if columns else answers[""]


_CHANGED = "the people changed while they were read; try again when nobody writes to the table"


def _answered(pairs: Mapping[str, tuple[Tally, Plan]]) -> dict[str, Answer]:
    answers = {name: carry_out(found, plan) for name, (found, plan) in pairs.items()}
    for name, answer in answers.items():
        if isinstance(answer, Bounds):  # the other questions have the rest
            answers[name] = replace(answer, left=0.0, uses=[])
    return answers


def _planned(
    tallies: Mapping[str, Tally], shares: Mapping[str, float], method: str, *, coarse: bool
) -> dict[str, tuple[Tally, Plan]]:
    """Return the tally and the plan of each question about the same people, checked together."""
    many = any(found.levels.wide and found.levels.rounded for found in tallies.values())
    if coarse or many:  # then all are rounded alike
        tallies = {name: found.coarse() for name, found in tallies.items()}
    levels = next(iter(tallies.values())).levels
    dropped = [found.statistic for found in tallies.values() if found.statistic.missing == "drop"]
    several = len({(asked.columns, asked.reads) for asked in dropped}) > 1  # other people, also if as many are left
    if several or any(found.levels != levels for found in tallies.values()):
        if dropped:
            raise InputError(
                "missing='drop' leaves other people for each question, and these are about the same people; say "
                "missing='estimate', or keep the rows of people who answered all of them"
            )
        raise InputError(_CHANGED)
    plans = {
        name: plan(levels, statistic=t.statistic, method=method, share=shares[name]) for name, t in tallies.items()
    }
    check_together([part for planned in plans.values() for part in planned.parts], levels.epsilon)
    return {name: (found, plans[name]) for name, found in tallies.items()}


def _of_column(name: str, question: Any) -> Statistic:
    if not isinstance(question, Statistic):
        raise InputError(f"a question is made with hetdp.ask, as hetdp.ask.mean(bounds=…) (got {type(question)})")
    found = question if question.value is not None or isinstance(question, Columns) else question.of(name)
    if len(found.columns) != len(found.reads):
        raise InputError(f"a {found.name} of a table needs the name of its column: value=…, --value COL")
    return found
