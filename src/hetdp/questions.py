"""The statistics in one call each: read → plan → release. What a statistic is stands in `statistics/`.

Every statistic has a function that takes its own parameters and, besides them, those of `mean`; `verb` makes it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields
from fractions import Fraction
from typing import Any, TypedDict, Unpack, overload

from hetdp.core.domain import Interval
from hetdp.core.plan import plan
from hetdp.errors import InputError
from hetdp.estimators import METHODS
from hetdp.privacy.exact import check_together
from hetdp.privacy.release import release, release_records
from hetdp.sources import Form, Rows, Source, read_groups, records, tallies_of, tally
from hetdp.statistics import ALSO, FORMS, STATISTICS, Statistic, kind_of, title_of
from hetdp.statistics.answer import Answers, Groups
from hetdp.statistics.answered import MeanAnswered, MeanByGroup
from hetdp.statistics.mean import Mean
from hetdp.statistics.moments import Columns
from hetdp.statistics.quantile import Quantiles, Ranks
from hetdp.statistics.statistic import Answer, Release, needs_column
from hetdp.tally.tally import Tally


class _Options(TypedDict, total=False):
    """What every question takes besides its own parameters, and groups."""

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


class _MeanOptions(_Options, total=False):
    value: str | None


@overload
def mean(source: Any, *, epsilon: Any, bounds: Any, by: None = None, **options: Unpack[_MeanOptions]) -> Release: ...
@overload
def mean(source: Any, *, epsilon: Any, bounds: Any, by: str, **options: Unpack[_MeanOptions]) -> Groups: ...
@overload
def mean(source: Any, *, epsilon: Any, bounds: Any, **options: Any) -> Any: ...
def mean(
    source: Any,
    *,
    epsilon: Any,
    bounds: Any,
    value: str | Sequence[str] | None = None,
    private_group: str | None = None,
    categories: Any = None,
    missing: str | None = None,
    **options: Any,
) -> Any:
    """Return a private mean in which every person is protected at their own ε.

    ε is treated as public and must not depend on the value. Replacing one person's value changes the probability
    of any result by at most a factor e^ε, for each person's own ε.

    Parameters
    ----------
    source, epsilon, bounds
        As for `read`.
    value
        The private column of a table; of several columns, with the bounds of each as a mapping, all means are released
        at once.
    private_group, categories
        A private column of groups and the public list of them: a mean for each, of one release.
    missing
        "estimate": the mean of those who answered, and who answered stays private.
    person, rows, tiers, public_rows, query, delimiter, decimal, thousands
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
    asked: Statistic
    if missing not in (None, "estimate", "midpoint"):
        raise InputError(f"missing is 'estimate' or 'midpoint' (got {missing!r})")
    if (private_group is None) != (categories is None):
        raise InputError("means by a private group need its column and the groups: private_group=…, categories=[…]")
    if isinstance(bounds, Mapping):
        columns = list(bounds) if value is None or isinstance(value, str) else list(value)
        if sorted(columns) != sorted(bounds) or private_group or missing == "estimate":
            raise InputError("several means need the bounds of each column: value=['a', 'b'], bounds={'a': …, 'b': …}")
        asked = Columns({name: bounds[name] for name in columns})
    elif private_group is not None:
        if missing == "estimate":
            raise InputError("means by a private group count a missing value as the midpoint; leave out missing=")
        asked = MeanByGroup(bounds, categories, private_group, value=value)  # type: ignore[arg-type]  # see `Source.of`
    else:
        kind: type[MeanAnswered | Mean] = MeanAnswered if missing == "estimate" else Mean
        asked = kind(Interval.of(bounds), value=value)  # type: ignore[arg-type]  # `Source.of` refuses what is no name
    return of_question(source, asked, epsilon=epsilon, **options)


def median(source: Any, *, epsilon: Any, bounds: Any, **options: Any) -> Quantiles:
    """Return a private median: the quantile at one half; the parameters are those of `quantile`."""
    return verb("quantile")(source, 0.5, epsilon=epsilon, bounds=bounds, **options)  # type: ignore[no-any-return]


def verb(name: str) -> Callable[..., Any]:
    """Return the function of a statistic: from a source, its own parameters and the options of `mean` to the answer."""
    kind, title = kind_of(name), title_of(name)
    own = [field for field in fields(kind) if field.name != "value"]

    def function(source: Any, *given: Any, epsilon: Any, value: Any = None, **options: Any) -> Any:
        named = {field.name: options.pop(field.name) for field in own if field.name in options}
        if kind.name != "mean" and options.get("variance") is not None and not kind.takes_variance:
            raise InputError(f"a bound on the variance is for means and sums, not for a {kind.name}")
        try:
            asked = kind(*given, **named, value=value)
        except TypeError:
            wanted = ", ".join(field.name for field in own)
            raise InputError(f"a {name} is asked for with {wanted}, besides what `mean` takes") from None
        return of_question(source, asked, epsilon=epsilon, **options)

    words = inspect.cleandoc(kind.__doc__ or kind.name)
    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Return {title[0].lower()}{title[1:]}.\n\n{words}\n\n" + _PARAMETERS.format(
        "\n".join(f"{field.name}\n    {field.metadata.get('help', '')}" for field in own)
    )
    keyword = inspect.Parameter.KEYWORD_ONLY
    parameters = [inspect.Parameter("source", inspect.Parameter.POSITIONAL_OR_KEYWORD)]
    for i, field in enumerate(own):
        default = inspect.Parameter.empty if field.default is MISSING else field.default
        first = i == 0 and kind is Ranks
        place = inspect.Parameter.POSITIONAL_OR_KEYWORD if first else keyword
        parameters.append(inspect.Parameter(field.name, place, default=default))
    parameters += [inspect.Parameter("value", keyword, default=None), inspect.Parameter("epsilon", keyword)]
    options = [p.replace(annotation=p.empty) for p in inspect.signature(of_question).parameters.values()]
    parameters += [p for p in options if p.default is not p.empty and (kind.takes_variance or p.name != "variance")]
    function.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return function


_PARAMETERS = """Parameters
----------
source, value, epsilon
    As for `mean`.
{}
method, person, rows, by, public_columns, groups, public_rows, tiers, query, delimiter, decimal, thousands
    As for `mean`."""


def of_question(  # noqa: PLR0913  mirrors the columns of a table
    source: Any,
    asked: Statistic,
    *,
    epsilon: Any,
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
) -> Answer | Groups:
    """Return the answer to a question about a source; the options are those of `mean`."""
    people = Source.of(
        source,
        value=asked.named,
        reads=asked.reads,
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
        public_columns=public_columns,
        groups=groups,
        public_rows=public_rows,
    )


def of_source(
    people: Source,
    asked: Statistic,
    *,
    method: str,
    variance: float | None,
    public_columns: Sequence[str] = (),
    groups: Sequence[str] | None = None,
    public_rows: Any = None,
) -> Answer | Groups:
    """Return the answer to a question about a source, or one for each group if it has groups."""
    asked.interval.ordinary()
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
        if type(asked) is not Mean:
            raise InputError(f"{method} keeps people one by one and is for means alone; choose another method")
        values, levels = records(people, method)
        return release_records(values, levels, plan(levels, statistic=asked, method=method, variance=variance))
    if by is None:
        return of_tally(tally(people, asked, public_rows), method, variance)
    parts = read_groups(people, asked, groups=groups, public_rows=public_rows)
    releases = {name: of_tally(part, method, variance) for name, part in parts.items()}
    return Groups(releases, checked=people.asked.person is not None)


def of_tally(people: Tally, method: str, variance: float | None, share: float = 1.0) -> Answer:
    """Return the answer to the question that a tally is for."""
    people.interval.ordinary()
    return release(
        people, plan(people.levels, statistic=people.statistic, method=method, variance=variance, share=share)
    )


VERBS = {name: verb(name) for name in (*STATISTICS, "std") if name not in FORMS}
"""The functions of the statistics; the forms of the mean come with `mean`, and the median has one of its own."""


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

    def __call__(  # noqa: PLR0913  mirrors the columns of a table
        self,
        source: Any,
        questions: Mapping[str, Statistic],
        *,
        epsilon: Any,
        split: Mapping[str, Any] | None = None,
        method: str = "adpm",
        person: Any = None,
        rows: Rows = "one",
        tiers: Mapping[str, Any] | None = None,
        query: str | None = None,
        delimiter: str | None = None,
        decimal: str = ".",
        thousands: str | None = None,
    ) -> Answers:
        """Return the answers to several questions about the same people, who spend their ε once on all of them.

        Each question gets a share of everybody's ε, the same unless `split` says otherwise; what a question does not
        need of its share stays free. That nobody spends more than their ε on all questions together is checked exactly.

        Parameters
        ----------
        source, epsilon, person, rows, tiers, query, delimiter, decimal, thousands
            As for `mean`.
        questions
            {name: question}, as {"income": ask.mean(bounds=(0, 10**5)), "job": ask.histogram(categories=[…])}. The name
            is the column, unless the question names another: ask.mean(value="income", bounds=…).
        split
            {name: share}, in any unit; {"income": 2, "job": 1} gives the first twice as much.

        Examples
        --------
        >>> import polars
        >>> people = polars.DataFrame({"age": [30, 50] * 500, "job": ["a", "b"] * 500, "eps": [0.5, 2.0] * 500})
        >>> questions = {"age": ask.mean(bounds=(0, 100)), "job": ask.histogram(categories=["a", "b"])}
        >>> sorted(ask(people, questions, epsilon="eps"))
        ['age', 'job']
        """
        form = Form(delimiter, decimal, thousands)
        where = {"epsilon": epsilon, "person": person, "rows": rows, "tiers": tiers, "query": query, "form": form}
        return of_questions(source, questions, where, shares_of(questions, split), method)


ask = _Ask()


def shares_of(questions: Mapping[str, Any], split: Mapping[str, Any] | None) -> dict[str, float]:
    """Return everybody's share of ε for each question; they add up to at most 1, exactly.

    >>> shares_of({"a": None, "b": None, "c": None}, {"a": 2, "b": 1, "c": 1})
    {'a': 0.5, 'b': 0.25, 'c': 0.25}
    """
    if not isinstance(questions, Mapping) or not questions or not all(isinstance(name, str) for name in questions):
        raise InputError("questions are a mapping of names to questions: {'income': hetdp.ask.mean(bounds=…)}")
    given = dict.fromkeys(questions, 1) if split is None else dict(split)
    if given.keys() != questions.keys():
        raise InputError(f"split has a share for every question and no other: {', '.join(questions)}")
    parts = {}
    for name, part in given.items():
        if isinstance(part, bool) or not isinstance(part, (int, float, Fraction)) or not 0 < part < 2**53:
            raise InputError(f"a share of ε must be a positive number (got {part!r} for {name!r})")
        parts[name] = Fraction(part)
    whole = sum(parts.values())
    shares = {name: float(part / whole) for name, part in parts.items()}
    while sum(map(Fraction, shares.values())) > 1:
        shares = {name: share * (1 - 2.0**-52) for name, share in shares.items()}
    return shares


def of_questions(
    source: Any, questions: Mapping[str, Statistic], where: Mapping[str, Any], shares: Mapping[str, float], method: str
) -> Answers:
    """Return the answers to several questions about the same people.

    Claim: the answers together are ε-DP for everybody. Argument: each release is, at its plan's spends, and
    `check_together` has seen in exact fractions that these add up to at most ε⁻ at every level, before a value is used.
    The levels are the same for all questions, or nothing is released.
    """
    asked = {name: _of_column(name, question) for name, question in questions.items()}
    tallies = tallies_of(source, asked, where)
    if any(found.levels.wide and found.levels.rounded for found in tallies.values()):  # then all are rounded alike
        tallies = {name: found.coarse() for name, found in tallies.items()}
    levels = next(iter(tallies.values())).levels
    if any(found.levels != levels for found in tallies.values()):
        raise InputError("the people changed while they were read; try again when nobody writes to the table")
    plans = {
        name: plan(levels, statistic=t.statistic, method=method, share=shares[name]) for name, t in tallies.items()
    }
    check_together([(planned.costs, planned.noise) for planned in plans.values()], levels.epsilon)
    return Answers({name: release(found, plans[name]) for name, found in tallies.items()}, shares)


def _of_column(name: str, question: Any) -> Statistic:
    if not isinstance(question, Statistic):
        raise InputError(f"a question is made with hetdp.ask, as hetdp.ask.mean(bounds=…) (got {type(question)})")
    found = question if question.value is not None or isinstance(question, Columns) else question.of(name)
    needs_column(found)
    return found
