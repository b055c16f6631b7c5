"""The statistics in one call each: read → plan → release. What a statistic is stands in `statistics/`.

Every statistic has a function that takes its own parameters and, besides them, those of `mean`; `verb` makes it.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import MISSING, fields, replace
from functools import wraps
from typing import Any, Literal, Never, ParamSpec, TypeVar

from hetdp.core.domain import Interval
from hetdp.core.plan import Plan, plan
from hetdp.core.types import (
    BoundsLike,
    ByLike,
    EpsilonLike,
    ManyBounds,
    MissingLike,
    PersonLike,
    SourceLike,
    TiersLike,
    documented_by,
    show,
)
from hetdp.errors import InputError, unknown_option
from hetdp.estimators import METHODS
from hetdp.privacy.exact import check_together
from hetdp.privacy.release import carry_out, release, release_records
from hetdp.private_bounds import bounds_given
from hetdp.sources import Form, Rows, Source, declared_public, read, read_groups, records, tallies_of, tally
from hetdp.statistics import ALSO, FIXED, FORMS, STATISTICS, Statistic, described
from hetdp.statistics.answer import Answers, Groups, shares_of
from hetdp.statistics.bounds import Bounds, Range, origins_of, private_intervals, settle, share_left
from hetdp.statistics.histogram import Celled, MeanByGroup
from hetdp.statistics.mean import LearnedMean, Mean, learned
from hetdp.statistics.moments import Columns
from hetdp.statistics.statistic import Answer
from hetdp.tally import Tally

NO_BOUNDS = "; if nobody knows them, bounds='private' finds them within an interval that is wide enough, outer=…"
P = ParamSpec("P")
Found = TypeVar("Found")


def bounds_said(function: Callable[P, Found]) -> Callable[P, Found]:
    """Return a function that says what its bounds are, and what to do if nobody knows them, where they are left out."""

    @wraps(function)
    def checked(*given: P.args, **named: P.kwargs) -> Found:
        if "bounds" not in named:
            raise InputError(
                f"a {function.__name__} needs bounds=(lo, hi), the public interval of the values{NO_BOUNDS}"
            )
        return function(*given, **named)

    return checked


@documented_by(read, plan)
@bounds_said
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
        What a missing value means. A value column of a table needs it: "estimate" (those who answered alone, and who
        did stays private), "drop", "midpoint", a number or "none".
    values, person, rows, tiers, public_rows, query, delimiter, decimal, thousands
        As for `read`.
    method, variance, drift, target
        As for `plan`.
    by
        A column that splits the people into groups, with an answer for each; or several, ["region", "sex"], with one
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
    _refuse_unknown("hetdp.mean", options, _MEAN)
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


def verb(name: str) -> Callable[..., Any]:
    """Return the function of a statistic: from a source, its own parameters and the options of `mean` to the answer."""
    kind, title, own, says, example, answers = described(name)
    taken = {field.name for field in fields(kind)} - {"value"} - FIXED.get(name, set())

    def function(source: Any, *given: Any, epsilon: Any, value: Any = None, **options: Any) -> Any:
        _refuse_unknown(f"hetdp.{name}", options, taken | {*_PRIVATE, "source", "epsilon", "value"})
        named = {name: options.pop(name) for name in taken & options.keys()}
        private = {name: options.pop(name, None) for name in _PRIVATE}
        if options.get("variance") is not None and not kind.takes_variance:
            raise InputError(f"a bound on the variance is for means and sums, not for a {kind.name}")

        def asked(bounds: Any) -> Statistic:
            try:
                return kind(*given, **named | ({} if bounds is None else {"bounds": bounds}), value=value)
            except TypeError:
                there = {*named, *([] if bounds is None else ["bounds"])}
                needed = [f for f in fields(kind) if f.default is MISSING and f.name not in there]
                said = [f"{f.name}=… ({f.metadata.get('help', '').rstrip('.')})" for f in needed]
                unknown = NO_BOUNDS if needed[0].name == "bounds" and not issubclass(kind, Celled) else ""
                raise InputError(f"a {name} needs {', '.join(said)}{unknown}") from None

        where = {"value": value, "epsilon": epsilon, **options}
        where |= {name: named[name] for name in ("missing", "values") if name in named}
        bounds = bounds_given(source, named.get("bounds"), private, where, asked)
        return of_question(source, asked(bounds), epsilon=epsilon, **options)

    function.__name__ = function.__qualname__ = name
    shown = [p if p.name == "q" else p.replace(kind=p.KEYWORD_ONLY) for p in own]
    private = "bounds" in says and not issubclass(kind, Celled)
    if private:
        says["bounds"] += ' Or those that `bounds_for` found; or "private": they are found first, within `outer`.'
        ends = 'BoundsLike | Literal["private"]'
        shown = [p.replace(annotation=ends) if p.name == "bounds" else p for p in shown]
    takes = {"variance": kind.takes_variance, "drift": kind.takes_drift, "target": kind.takes_drift}
    names = [*_shared(kind), "epsilon", *(_PRIVATE if private else ()), *(o for o in _OPTIONS if takes.get(o, True))]
    texts = (
        f"Return {title}.\n\n{inspect.cleandoc(kind.__doc__ or '')}",
        f"{', '.join(answers)} or Groups\n    The answer, which may be published; with `by` those of all groups.",
        f">>> found = hetdp.{name}([3, 40] * 500, epsilon=[0.5, 2.0] * 500, {example})\n"
        f">>> type(found).__name__, found.plan.n\n({answers[0]!r}, 1000)",
    )
    says["value"] = "The private column of a table."
    parameters = [_TYPED["source"], *shown, *(_TYPED[name] for name in names)]
    show(function, parameters, " | ".join([*answers, "Groups"]), says, texts)
    return documented_by(mean)(function)


def question(name: str) -> Callable[..., Statistic]:
    """Return the function that makes a question, such as `hetdp.ask.mean`."""
    kind, title, own, says, example, _ = described(name)
    bound, fixed = inspect.signature(kind), FIXED.get(name, set())

    def function(*given: Any, **named: Any) -> Statistic:
        if named.keys() - (bound.parameters.keys() - fixed):
            raise unknown_option(f"hetdp.ask.{name}", named, bound.parameters.keys() - fixed)
        try:
            bound.bind(*given, **named)
        except TypeError as error:
            raise TypeError(f"hetdp.ask.{name}: {error}") from None
        return kind(*given, **named)

    function.__name__, function.__qualname__ = name, f"ask.{name}"
    shown = [_TYPED[name] for name in _shared(kind) if name != "value" or kind is not Columns]  # their bounds name them
    texts = (
        f"Return a question: {title}. It is for `ask`, `read`, `plan` and `Ledger.ask`.\n\n"
        f"{inspect.cleandoc(kind.__doc__ or '')}",
        "Statistic\n    The question. It holds public facts alone.",
        f">>> asked = hetdp.ask.{name}({example})\n>>> hetdp.plan({{0.5: 500, 2.0: 500}}, statistic=asked).n\n1000",
    )
    says["value"] = "The private column of a table; `ask` takes the name of the question unless given."
    show(function, [*own, *shown], "Statistic", says, texts)
    return documented_by(mean)(function)


_PRIVATE = ("outer", "bounds_share")
"""The options that go with private bounds."""


def _shared(kind: type[Statistic]) -> list[str]:
    return ["value", *["missing"] * (kind.asks_missing or kind.can_drop), *["values"] * kind.asks_missing]


def _refuse_unknown(function: str, options: Mapping[str, Any], known: Collection[str]) -> None:
    if options.keys() - {*_OPTIONS, *known}:
        raise unknown_option(function, options, {*_OPTIONS, *known})


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
    where = {"epsilon": epsilon, "person": person, "rows": rows, "by": by, "tiers": tiers, "query": query}
    people = Source.asked_by(asked, source, **where, form=Form(delimiter, decimal, thousands))
    how: dict[str, Any] = {"method": method, "variance": variance, "drift": drift, "target": target}
    return of_source(people, asked, how, public_columns, groups, public_rows)


_OPTIONS = {p.name: p for p in inspect.signature(of_question).parameters.values() if p.default is not p.empty}
"""The options that every statistic takes."""

_MEAN = {p.name: p for p in inspect.signature(mean).parameters.values() if p.kind is not p.VAR_KEYWORD}
_TYPED = {**_MEAN, **_OPTIONS, "value": _MEAN["value"].replace(annotation="str | None")}
_ANSWERS = "Release | AnsweredMean | Means | GroupMeans | Groups"
mean.__signature__ = inspect.Signature([*_MEAN.values(), *_OPTIONS.values()], return_annotation=_ANSWERS)  # type: ignore[attr-defined]


def of_source(
    people: Source,
    asked: Statistic,
    how: Mapping[str, Any],
    public_columns: Sequence[str] = (),
    groups: Sequence[Any] | None = None,
    public_rows: Any = None,
) -> Answer | Groups:
    """Return the answer to a question about a source, or one for each group if it has groups.

    `how` is what `plan` takes besides: method, variance, drift and target.
    """
    asked.interval.ordinary()
    by, method = people.asked.groupings, how["method"]
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


VERBS = {name: verb(name) for name in (*STATISTICS, *ALSO) if name not in (*FORMS, Range.name)}
"""The functions of the statistics; the forms of the mean come with `mean`, private bounds with `bounds_for`."""


# Several questions under one budget ---------------------------------------------------------------------------------


@documented_by(mean, plan)
def ask(  # noqa: PLR0913  mirrors the columns of a table
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
    **unknown: Never,
) -> Answers | Groups:
    """Return the answers to several questions about the same people, who spend their ε once on all of them.

    Each question gets a share of everybody's ε, the same unless `split` says otherwise; what a question does not
    need of its share stays free. That nobody spends more than their ε on all questions together is checked exactly.

    Parameters
    ----------
    source, epsilon, method, person, rows, public_rows, tiers, query, delimiter, decimal, thousands
        As for `mean`.
    by, public_columns, groups
        As for `mean`.
    questions
        {name: question}, as {"income": ask.mean(bounds=(0, 10**5)), "job": ask.histogram(categories=[…])}. The name
        is the column, unless the question names another: ask.mean(value="income", bounds=…).
    split
        {name: share}, in any unit; {"income": 2, "job": 1} gives the first twice as much.
    missing
        What is done about missing values, for the questions that do not say it themselves.

    Returns
    -------
    Answers or Groups
        `Answers`, {name: answer}; with `by` a `Groups` of them.

    Examples
    --------
    >>> import polars
    >>> people = polars.DataFrame({"age": [30, 50] * 500, "job": ["a", "b"] * 500, "eps": [0.5, 2.0] * 500})
    >>> age = ask.mean(bounds=(0, 100), missing="estimate")
    >>> questions = {"age": age, "job": ask.histogram(categories=["a", "b"])}
    >>> sorted(ask(people, questions, epsilon="eps"))
    ['age', 'job']
    """
    if unknown:
        raise unknown_option("hetdp.ask", unknown, inspect.signature(ask).parameters)
    form = Form(delimiter, decimal, thousands)
    where = {"epsilon": epsilon, "person": person, "rows": rows, "tiers": tiers, "query": query, "form": form}
    shares, public = shares_of(questions, split), {"groups": groups, "public_rows": public_rows}
    asked = {name: _of_column(name, question).with_missing(missing) for name, question in questions.items()}
    return of_questions(source, asked, {**where, "by": by}, shares, method, public_columns, **public)


for _name in (*STATISTICS, *ALSO):
    setattr(ask, _name, question(_name))


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
