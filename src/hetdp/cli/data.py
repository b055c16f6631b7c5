"""Commands that read values: a statistic to publish, a private tally, and the owner's private check."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import reduce
from pathlib import Path
from typing import Annotated, Any, Unpack

import typer

import hetdp
from hetdp import questions
from hetdp.checks import check as checks
from hetdp.core.domain import Interval
from hetdp.errors import InputError
from hetdp.report import plots
from hetdp.sources import Form, Source
from hetdp.sources import tally as tally_of
from hetdp.statistics import Statistic, kind_of, title_of
from hetdp.statistics.answer import Groups
from hetdp.statistics.answered import MeanAnswered, MeanByGroup
from hetdp.statistics.histogram import Histogram, Shares
from hetdp.statistics.mean import Mean
from hetdp.statistics.statistic import Answer
from hetdp.tally.tally import Tally, is_tally

from . import options
from .output import deliver, progress, show, writable

# Which options go together. What is released decides: tallies, a table through a ledger, or a table by itself.

_CHARGE = ("spend", "share", "share_left", "release_id", "expect_head")
_CHOICES = ("epsilon", "tier", "tiers", "query", "by", "groups", "public_rows")
_TABLE = ("value", "bounds", "person", "rows", *_CHOICES, *options.PARAMETERS)
_NEEDED: dict[str, tuple[str, ...]] = {
    "a tally": (),
    "a release through a ledger": ("release_id", "person"),
    "a table": ("value", "epsilon"),
}
_REFUSED: dict[str, dict[tuple[str, ...], str]] = {
    "a tally": {
        _TABLE: "a tally has its columns, bounds and tiers in it; leave out {}",
        ("ledger", *_CHARGE): "a tally does not say who its people are, so no ledger can charge them; leave out {}",
    },
    "a release through a ledger": {
        _CHOICES: "with a ledger everybody's ε comes from it, and everybody counts in one release; leave out {}"
    },
    "a table": {_CHARGE: "only a release through a ledger takes {}; name the ledger with --ledger LEDGER"},
}


def _agree(what: str, given: Mapping[str, Any], kind: type[Statistic]) -> None:
    """Raise unless the options that were given fit together."""

    def flags(names: tuple[str, ...], *, present: bool) -> str:
        found = [name for name in names if (given.get(name) not in (None, [], ())) == present]
        return ", ".join(f"--{name.replace('_', '-')}" for name in found)

    for names, why in _REFUSED[what].items():
        if refused := flags(names, present=True):
            raise InputError(why.format(refused))
    parameters = () if what == "a tally" else options.required(kind)
    if missing := flags((*_NEEDED[what], *parameters), present=False):
        raise InputError(f"{what} needs {missing}; see --help")
    if what == "a release through a ledger" and given["rows"] == "one":
        raise InputError("a ledger averages the rows of a person; leave out --rows one")


def mean(
    source: options.Sources,
    *,
    private_group: options.PrivateGroup = None,
    categories: options.Listed = None,
    missing: options.Missing = None,
    **given: Unpack[options.Answered],
) -> None:
    """Release a private mean: one number that may be published, with everything that is public about it.

    Running it again is another release and spends privacy again, unless a ledger has it under the same --release-id.
    """
    if missing not in (None, "estimate", "midpoint"):
        raise InputError(f"--missing is 'estimate' or 'midpoint' (got {missing!r})")

    def asked() -> Statistic:
        named: dict[str, Any] = {"bounds": given["bounds"], "value": given["value"]}
        if private_group is not None:
            return MeanByGroup(**named, categories=options.texts_of(categories), private_group=private_group)
        return (MeanAnswered if missing == "estimate" else Mean)(**named)

    _released(source, Mean, asked, given, Mean.title)


def command(kind: type[Statistic], name: str, **fixed: Any) -> Callable[..., None]:
    """Return the command of a statistic; some of its parameters may be fixed."""
    title = title_of(name)

    def release(source: options.Sources, **given: Unpack[options.Answered]) -> None:
        def asked() -> Statistic:
            return kind(**options.parameters_of(kind, given), **fixed, value=given["value"])

        _released(source, kind, asked, given, title)

    release.__name__ = name.replace("_", "-")
    release.__doc__ = (
        f"Release {title[0].lower()}{title[1:]}.\n\nThe report says everything that is public about it. "
        "Running it again is another release and spends privacy again, unless a ledger has it under the same "
        "--release-id."
    )
    return options.shared(release, options.of_kind(kind, fixed))


def _released(
    source: list[str], kind: type[Statistic], asked: Callable[[], Statistic], given: Mapping[str, Any], title: str
) -> None:
    """Release a statistic as the options ask, and hand it out."""
    output, confidence, ledger = given["output"], given["confidence"] or 0.95, given["ledger"]
    _deliverable(source, kind, given, confidence)
    result: Answer | Groups
    how: dict[str, Any] = {"method": given["method"] or "adpm", "variance": given["variance"]}
    if _are_tallies(source):
        _agree("a tally", given, kind)
        people = _merged(source, promised=given["disjoint_people"])
        if type(people.statistic) is not kind:
            raise InputError(f"this is a tally for a {people.statistic.name}; use hetdp {people.statistic.name}")
        result = questions.of_tally(people, **how)
    elif ledger is not None:
        _agree("a release through a ledger", given, kind)
        passed_on = ("person", "spend", "share", "share_left", "release_id")
        how |= {name: option for name, option in given.items() if name in passed_on}
        with hetdp.Ledger(ledger, expect_head=given["expect_head"]) as opened:
            rows_of = source[0] if len(source) == 1 else source
            result = opened.ask(rows_of, asked(), people=given["people"] or "enrolled", form=form_of(given), **how)
    else:
        _agree("a table", given, kind)
        how |= {"public_columns": given["public_column"] or (), "groups": options.groups_of(given["groups"])}
        question = asked()
        with reading(source, given, question) as table:
            result = questions.of_source(table, question, public_rows=given["public_rows"], **how)
    if given["simplex"] and isinstance(result, Histogram):
        result = result.simplex()
    try:
        deliver(
            output,
            as_json=given["as_json"],
            facts=lambda: result.to_dict(confidence),
            parts=lambda: result.parts(confidence),
            title=title if given["by"] is None else f"{title} by {given['by']}",
        )
        if given["plot"] is not None and isinstance(result, Answer):
            result.plot(given["plot"], confidence)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except (InputError, OSError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        kept = "it is stored: the same --release-id gives it again"
        rest = "it is lost, its privacy is spent" if ledger is None else kept
        raise InputError(f"the release was made but not handed out, {why}; {rest}") from None


def _deliverable(source: list[str], kind: type[Statistic], given: Mapping[str, Any], confidence: float) -> None:
    """Raise, before any privacy is spent, unless the answer can be handed out as the options ask."""
    for file in (given["output"], given["plot"]):
        writable(file, source, force=given["force"])
    if given["plot"] is not None:
        plots.require(given["plot"])
    if given["plot"] is not None and given["by"] is not None:
        raise InputError("a picture shows one answer, not one for each group; leave out --plot or --by")
    if given["simplex"] and (not issubclass(kind, Shares) or given["by"] is not None):
        raise InputError("--simplex is for one histogram; leave it out")
    if not 0 < confidence < 1:
        raise InputError(f"the confidence level must be between 0 and 1 (got {confidence:g}); 0.95 is usual")


def ask(
    source: Annotated[str, typer.Argument(help="A file with one row per person, or a database.", metavar="SOURCE")],
    questions_file: Annotated[
        Path, typer.Argument(help="A TOML file with a table for each question.", metavar="QUESTIONS.toml")
    ],
    *,
    method: options.MethodName = "adpm",
    confidence: options.Confidence = 0.95,
    as_json: options.Json = False,
    output: options.Output = None,
    force: options.Force = False,
    **given: Unpack[options.Several],
) -> None:
    """Release several statistics of one table under one budget: everybody spends their ε once on all of them.

    A question is a table of the TOML file: [income], below it statistic = "mean" and bounds = [0, 100000]. Its name is
    the column unless it says value = "…"; share = 2 gives it twice the share of everybody's ε.
    """
    writable(output, [source, str(questions_file)], force=force)
    if given["epsilon"] is None:
        raise InputError("a table needs --epsilon COL; see --help")
    asked, split = options.questions_of(questions_file)
    where: dict[str, Any] = {name: given[name] for name in ("epsilon", "person", "query")}
    where |= {"rows": given["rows"] or "one", "tiers": options.tiers_of(given["tier"], given["tiers"])}
    shares = questions.shares_of(asked, split)
    result = questions.of_questions(source, asked, {**where, "form": form_of(given)}, shares, method)
    deliver(
        output,
        as_json=as_json,
        facts=lambda: result.to_dict(confidence),
        parts=lambda: result.parts(confidence),
        title="Private answers",
    )


def check(source: options.Sources, *, as_json: options.Json = False, **given: Unpack[options.Checked]) -> None:
    """PRIVATE, for the owner of the data: what is missing, unreadable or outside the bounds, and where."""
    _agree("a table", given, Mean)
    with reading(source, given) as people:
        found = checks.of_source(people, Interval.of(given["bounds"]))
    show(found.to_dict() if as_json else found.report())


def tally(
    source: options.Sources,
    *,
    output: Annotated[Path, typer.Option("--output", "-o", help="The tally to write, as part1.tally.")],
    as_json: options.Json = False,
    force: options.Force = False,
    **given: Unpack[options.TalliedAs],
) -> None:
    """Write a PRIVATE tally: exact sums per level, to be merged and released elsewhere, as by `hetdp mean`."""
    writable(output, source, force=force)
    kind = kind_of(given["statistic"] or "mean")
    _agree("a table", given, kind)
    asked = kind(**options.parameters_of(kind, given), value=given["value"])
    with reading(source, given, asked) as people:
        made = tally_of(people, asked, given["public_rows"])
    made.save(output)
    said = "PRIVATE: its sums are not protected by any noise. Give it only to whoever releases it."
    facts = {"tally": str(output), "n": made.n, "levels": len(made.levels), "warning": said}
    show(facts if as_json else f"{output}: {made.n:,} people at {len(made.levels):,} levels of ε. {said}")


@contextmanager
def reading(
    source: list[str], given: Mapping[str, Any], question: Statistic | None = None, *, counts_only: bool = False
) -> Iterator[Source]:
    """Give the source that the options of a command describe; progress is shown while it is read."""
    asked: dict[str, Any] = {name: given.get(name) for name in ("value", "epsilon", "person", "by", "query")}
    if question is not None:
        asked |= {"value": question.named, "reads": question.reads}
    asked["rows"] = given.get("rows") or "one"
    asked["tiers"] = options.tiers_of(given["tier"], given["tiers"])
    with progress("reading") as tell:

        def watch(rows: int, done: int) -> None:
            tell(f"{done / 1e6:,.1f} MB, {rows:,} rows", done, people.size)

        people = Source.of(source, **asked, form=form_of(given), watch=watch, counts_only=counts_only)
        yield people


def form_of(given: Mapping[str, Any]) -> Form:
    """Return how the numbers of a file are written."""
    decimal = "." if given["decimal"] is None else given["decimal"]
    return Form(given["delimiter"], decimal, given["thousands"])


def _are_tallies(sources: list[str]) -> bool:
    tallies = [is_tally(name) for name in sources]
    if any(tallies) and not all(tallies):
        raise InputError("tallies and tables do not mix; make a tally of the table first: hetdp tally … -o part.tally")
    return all(tallies)


def _merged(sources: list[str], *, promised: bool) -> Tally:
    if len({Path(name).resolve() for name in sources}) < len(sources):
        raise InputError("the same tally is named twice; its people would be counted twice")
    if len(sources) > 1 and not promised:
        raise InputError(
            "a person in two tallies would be counted twice and spend the sum of both, and nothing here can see it; "
            "if nobody is, promise it with --disjoint-people"
        )
    return reduce(Tally.__add__, map(Tally.load, sources))
