"""Commands that read values: a statistic to publish, a private tally, and the owner's private check."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, replace
from functools import partial, reduce
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Unpack

import typer

import hetdp
from hetdp import checks, questions
from hetdp.core.accuracy import check_level
from hetdp.core.domain import NUMBER, epsilon_of, plural
from hetdp.errors import InputError
from hetdp.private_bounds import follows, found_in
from hetdp.report import Reported, plots
from hetdp.sources import Form, Source
from hetdp.sources import tally as tally_of
from hetdp.statistics import Statistic, kind_of, title_of
from hetdp.statistics.answer import Groups, shares_of
from hetdp.statistics.bounds import Bounds, Range
from hetdp.statistics.histogram import Commonest, Histogram, MeanByGroup, Shares
from hetdp.statistics.mean import Mean, learned
from hetdp.statistics.statistic import Answer
from hetdp.tally import Tally, is_tally

from . import options, parse
from .output import deliver, progress, show, writable

if TYPE_CHECKING:
    from hetdp.ledger import DryRun

# Which options go together. What is released decides: tallies, a table through a ledger, or a table by itself.

_CHARGE = ("spend", "share", "share_left", "release_id", "expect_head", "dry_run", "people")
_CHOICES = ("epsilon", "tier", "tiers", "query", "public_rows")
_TABLE = ("value", "bounds", "person", "rows", "by", "groups", *_CHOICES, *options.PARAMETERS)
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
        _CHOICES: "with a ledger everybody's ε comes from it, and the rows from one file; leave out {}"
    },
    "a table": {_CHARGE: "only a release through a ledger takes {}; name the ledger with --ledger LEDGER"},
}


def _agree(what: str, given: Mapping[str, Any], kind: type[Statistic]) -> None:
    """Raise unless the options that were given fit together."""

    def flags(names: tuple[str, ...], *, present: bool) -> str:
        found = [name for name in names if (given.get(name) not in (None, [], (), False)) == present]
        return ", ".join(f"--{name.replace('_', '-')}" for name in found)

    for names, why in _REFUSED[what].items():
        if refused := flags(names, present=True):
            raise InputError(why.format(refused))
    parameters = () if what == "a tally" else options.required(kind)
    if missing := flags((*_NEEDED[what], *parameters), present=False):
        missing += ", --missing" if kind.asks_missing and given.get("missing", "") is None else ""
        first = missing.partition(",")[0].strip("- ")
        meaning = next(
            (f" ({f.metadata['help'].rstrip('.')})" for f in fields(kind) if f.name == first and "help" in f.metadata),
            "",
        )
        raise InputError(f"{what} needs {missing}{meaning}; see --help")
    if what == "a release through a ledger" and given["rows"] == "one":
        raise InputError("a ledger averages the rows of a person; leave out --rows one")


def mean(
    source: options.Sources,
    *,
    private_group: options.PrivateGroup = None,
    categories: options.Listed = None,
    **given: Unpack[options.Answered],
) -> None:
    """Release a private mean: one number that may be published, with everything that is public about it.

    Running it again is another release and spends privacy again, unless a ledger has it under the same --release-id.
    """
    if (private_group is None) != (categories is None):
        raise InputError("means by a private group need --private-group COL and --categories A,B,C, both")

    def asked(bounds: Any) -> Statistic:
        named = {"bounds": bounds, "value": given["value"], "missing": given["missing"], **parse.values_of(given)}
        if private_group is not None:
            return MeanByGroup(**named, categories=parse.categories_of(str(categories)), private_group=private_group)
        return Mean(**named)

    _released(source, Mean, asked, given, Mean.title)


def command(kind: type[Statistic], name: str, **fixed: Any) -> Callable[..., None]:
    """Return the command of a statistic; some of its parameters may be fixed."""
    title = title_of(name)

    def release(source: options.Sources, **given: Unpack[options.Answered]) -> None:
        def asked(bounds: Any) -> Statistic:
            outer = given["outer"] if kind is Range else None
            found = parse.parameters_of(kind, {**given, "bounds": bounds, "outer": outer})
            return kind(**found, **fixed, value=given["value"])

        _released(source, kind, asked, given, title)

    release.__name__ = name.replace("_", "-")
    release.__doc__ = (
        f"Release {title[0].lower()}{title[1:]}.\n\nThe report says everything that is public about it. "
        "Running it again is another release and spends privacy again, unless a ledger has it under the same "
        "--release-id."
    )
    return options.shared(release, options.of_kind(kind, fixed), options.unused(kind))


def _released(
    source: list[str], kind: type[Statistic], asked: Callable[[Any], Statistic], given: Mapping[str, Any], title: str
) -> None:
    """Release a statistic as the options ask, and hand it out."""
    output, confidence, ledger = given["output"], given["confidence"] or 0.95, given["ledger"]
    _deliverable(source, kind, given, confidence)
    result: Answer | Groups | DryRun
    groups = parse.groups_of(given["groups"], len(given["by"] or [""]))
    how: dict[str, Any] = {"method": given["method"] or "adpm", "drift": given["drift"] or 0.0}
    how |= {"variance": parse.variance_of(given["variance"]), "target": given["target"]}
    if _are_tallies(source):
        _agree("a tally", given, kind)
        people = _merged(source, promised=given["disjoint_people"])
        if type(people.statistic) is not kind:
            raise InputError(f"this is a tally for a {people.statistic.name}; use hetdp {people.statistic.name}")
        result = found_in(people, None, how["method"]) if kind is Range else questions.of_tally(people, **how)
    elif ledger is not None:
        _agree("a release through a ledger", given, kind)
        if given["outer"] is not None and kind is not Range:
            raise InputError("a ledger charges private bounds by themselves: hetdp bounds …, then --bounds LO HI here")
        parse.one_amount(given)
        passed_on = ("person", "spend", "share", "share_left", "release_id", "dry_run")
        how |= {name: option for name, option in given.items() if name in passed_on}
        how |= {"by": given["by"] or None, "public_columns": given["public_column"] or (), "groups": groups}
        with hetdp.Ledger(ledger, expect_head=given["expect_head"]) as opened:
            rows_of = source[0] if len(source) == 1 else source
            how |= {"people": given["people"] or "enrolled", "form": form_of(given), "warn": _warn}
            result = opened.ask(rows_of, asked(given["bounds"]), **how)
    else:
        result = _of_table(source, kind, asked, given, {**how, "groups": groups})
    if given["simplex"] and isinstance(result, Histogram):
        result = result.simplex()
    try:
        title = f"{title} by {' and '.join(given['by'])}" if given["by"] else title
        # The picture comes first: whoever reads what is printed may stop. If it fails, the number is still handed out.
        failed = _picture(result, given["plot"], confidence)
        _hand_out(result, confidence, output, title, as_json=given["as_json"])
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except (InputError, OSError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        kept = "it is stored: the same --release-id gives it again"
        rest = "it is lost, its privacy is spent" if ledger is None else kept
        raise InputError(f"the release was made but not handed out, {why}; {rest}") from None
    if failed:
        raise InputError(f"the release was handed out, but its picture could not be made: {failed}")


def _picture(result: Reported, place: Path | None, level: float) -> str:
    """Make the picture, if one is wanted; return why it failed, if it did."""
    try:
        if place is not None and isinstance(result, Answer):
            result.plot(place, level)
    except (InputError, OSError) as error:
        return str(error.strerror if isinstance(error, OSError) else error)
    except Exception as error:  # noqa: BLE001  its message may quote anything
        return type(error).__name__
    return ""


def _hand_out(result: Reported, level: float, output: Path | None, title: str, *, as_json: bool) -> None:
    facts, parts = partial(result.to_dict, level), partial(result.parts, level)
    deliver(output, as_json=as_json, facts=facts, parts=parts, title=title)


def _of_table(
    source: list[str],
    kind: type[Statistic],
    asked: Callable[[Any], Statistic],
    given: Mapping[str, Any],
    how: dict[str, Any],
) -> Answer | Groups:
    """Return the answer from a table, whose bounds are found first if --outer is given."""
    groups = how.pop("groups")
    if kind is Range:
        return _bounds(source, given, method=how["method"])
    if given["outer"] is not None:
        given = {**given, "bounds": _bounds(source, given, then=asked, **how), "outer": None, "share": None}
    _agree("a table", given, kind)
    question = asked(given["bounds"])
    question = learned(question) if how["variance"] == "learn" else question
    with reading(source, given, question) as table:
        return questions.of_source(table, question, how, given["public_column"] or (), groups, given["public_rows"])


def _bounds(
    source: list[str],
    given: Mapping[str, Any],
    method: str,
    then: Callable[[Any], Statistic] | None = None,
    **how: Any,
) -> Bounds:
    """Return private bounds, for themselves or for what is released `then`; the source is read once more for that."""
    if given["by"] or given["bounds"] is not None:
        what = "--by" if given["by"] else "--bounds"
        raise InputError(f"private bounds are found for all people, within --outer; leave out {what}")
    if then is not None and any(map(options.is_stdin, source)):
        raise InputError("private bounds read the source twice, and standard input can be read once; name a file")
    share = None if given["share"] is None else parse.number_of(given["share"])
    _agree("a table", {**given, "share": None}, Range)
    left_out = "drop" if given["missing"] == "drop" else None
    question = Range(given["outer"], value=given["value"], missing=left_out, **parse.values_of(given))
    later = None if then is None else follows(then, question.interval, method, **how)
    with reading(source, given, question) as table:
        people = tally_of(table, question, given["public_rows"])
    return found_in(people, share, method if then is None else "adpm", later)


def _warn(sentence: str) -> None:
    """Say something on standard error; the command goes on."""
    print(f"hetdp: warning: {sentence}", file=sys.stderr, flush=True)


def _deliverable(source: list[str], kind: type[Statistic], given: Mapping[str, Any], confidence: float) -> None:
    """Raise, before any privacy is spent, unless the answer can be handed out as the options ask."""
    writable(given["output"], source, force=given["force"], as_json=given["as_json"])
    writable(given["plot"], source, force=given["force"])
    if given["plot"] is not None:
        plots.require(given["plot"])
        if issubclass(kind, Commonest):
            raise InputError(plots.NO_PICTURE)
    if given["plot"] is not None and given["by"]:
        raise InputError("a picture shows one answer, not one for each group; leave out --plot or --by")
    if given["simplex"] and given["by"]:
        raise InputError("--simplex is for one histogram; leave it out")
    if given["public_column"] and not given["by"]:
        raise InputError("--public-column goes with --by COL; leave it out")
    for name, why in options.unused(kind).items():
        if given[name]:
            raise InputError(f"{why}; leave out --{name.replace('_', '-')}")
    check_level(confidence)


def ask(
    source: Annotated[
        str,
        typer.Argument(
            help="A file with one row per person (- reads stdin), or a database.",
            metavar="SOURCE",
            callback=options.one_with_stdin,
        ),
    ],
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
    writable(output, [source, str(questions_file)], force=force, as_json=as_json)
    if given["epsilon"] is None:
        raise InputError("a table needs --epsilon COL; see --help")
    asked, split = parse.questions_of(questions_file)
    asked = {name: question.with_missing(given["missing"]) for name, question in asked.items()}
    where: dict[str, Any] = {name: given[name] for name in ("epsilon", "person", "query")}
    where |= {"rows": given["rows"] or "one", "tiers": parse.tiers_of(given["tier"], given["tiers"])}
    where |= {"by": given["by"] or None, "form": form_of(given)}
    public: dict[str, Any] = {"public_columns": given["public_column"] or (), "public_rows": given["public_rows"]}
    public["groups"] = parse.groups_of(given["groups"], len(given["by"] or [""]))

    def described(epsilon: Any) -> Source:
        return Source.of(source, value=None, counts_only=True, **{**where, "epsilon": epsilon})

    where["epsilon"] = epsilon_in(described, given)
    result = questions.of_questions(source, asked, where, shares_of(asked, split), method, **public)
    _hand_out(result, confidence, output, "Private answers", as_json=as_json)


def check(source: options.Sources, *, as_json: options.Json = False, **given: Unpack[options.Checked]) -> None:
    """PRIVATE, for the owner of the data: what is missing, unreadable or outside the bounds, and where.

    With --categories in place of --bounds: how many are in each, and where those are who are in none.
    """
    listed = given["categories"]
    _agree("a table", given, Mean if listed is None else Shares)
    categories = None if listed is None else parse.categories_of(listed)
    asked = checks.checked(given["value"], given["bounds"], categories, **parse.values_of(given))
    with reading(source, given, asked) as people:
        found = checks.of_source(people, asked)
    show(found.to_dict() if as_json else found.report())


def tally(
    source: options.Sources,
    *,
    output: Annotated[Path, typer.Option("--output", "-o", help="The tally to write, as part1.tally.", metavar="FILE")],
    as_json: options.Json = False,
    force: options.Force = False,
    **given: Unpack[options.TalliedAs],
) -> None:
    """Write a PRIVATE tally: exact sums per level, to be merged and released elsewhere, as by `hetdp mean`."""
    writable(output, source, force=force)
    kind = kind_of(given["statistic"] or "mean")
    _agree("a table", given, kind)
    asked = kind(**parse.parameters_of(kind, given), value=given["value"])
    with reading(source, given, asked) as people:
        made = tally_of(people, asked, given["public_rows"])
    made.save(output)
    said = "PRIVATE: its sums are not protected by any noise. Give it only to whoever releases it."
    facts = {"tally": str(output), "n": made.n, "levels": len(made.levels), "warning": said}
    facts["provenance"], who = made.about.to_dict(), plural(made.n, "person")
    show(facts if as_json else f"{output}: {who} at {plural(len(made.levels), 'level')} of ε. {said}")


@contextmanager
def reading(source: list[str], given: Mapping[str, Any], question: Statistic | None = None) -> Iterator[Source]:
    """Give the source that the options of a command describe; progress is shown while it is read.

    Without a question no value is used.
    """
    asked: dict[str, Any] = {name: given.get(name) for name in ("epsilon", "person", "query")}
    asked["by"] = given.get("by") or None
    asked["rows"] = given.get("rows") or "one"
    asked["tiers"] = parse.tiers_of(given["tier"], given["tiers"])
    with progress("reading") as tell:

        def watch(rows: int, done: int) -> None:
            tell(f"{done / 1e6:,.1f} MB, {rows:,} rows", done, people.size)

        asked |= {"form": form_of(given), "watch": watch}

        def described(epsilon: Any) -> Source:
            if question is None:  # people are counted, and a line may be too short for the value
                how = {"value": given.get("value"), "promised": False, "counts_only": True}
                return Source.of(source, **{**asked, **how, "epsilon": epsilon})
            return Source.asked_by(question, source, **{**asked, "epsilon": epsilon})

        people = described(epsilon_in(described, given))
        yield people


def epsilon_in(described: Callable[[Any], Source], given: Mapping[str, Any]) -> Any:
    """Return what `--epsilon` means: the column of this name, or, if there is none and it is a number, one ε for all.

    A column wins. Otherwise a table whose column of choices has a number for its name would be released at that ε,
    whatever people chose. Words such as public are always columns: a name that is mistyped must not publish everybody.
    """
    text = given.get("epsilon")
    if text is None or given["tier"] or given["tiers"] or not re.fullmatch(NUMBER, text):
        return text
    try:
        people = described(text)
        people.kind.check(replace(people.asked, value=None, reads=(), person=None, by=None))
    except InputError:  # there is no such column; whatever else is wrong is said when the table is read
        return epsilon_of(text)
    return text


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
