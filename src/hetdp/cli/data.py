"""Commands that read values: one number to publish, a private tally, and the owner's private check."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hetdp.errors import InputError

from .app import app
from .options import (
    Bounds,
    Confidence,
    Decimal,
    Delimiter,
    Epsilon,
    ExpectHead,
    Force,
    Json,
    LedgerAt,
    LedgerPeople,
    MethodName,
    Output,
    Person,
    PublicRows,
    Query,
    ReleaseId,
    RowsOf,
    Share,
    ShareLeft,
    Sources,
    SourcesOrTallies,
    Spend,
    Thousands,
    Tier,
    TierFile,
    Value,
    Variance,
    groups_of,
    level_checked,
    tiers_of,
)
from .output import show, writable, write
from .progress import watched

if TYPE_CHECKING:
    from hetdp.privacy.release import Release
    from hetdp.report.groups import Groups
    from hetdp.sources import Source
    from hetdp.tally.tally import Tally


@app.command()
def mean(  # noqa: PLR0913  one parameter an option
    source: SourcesOrTallies,
    *,
    value: Value = None,
    epsilon: Epsilon = None,
    bounds: Bounds = None,
    tier: Tier = None,
    tiers: TierFile = None,
    query: Query = None,
    person: Person = None,
    rows: RowsOf = None,
    by: Annotated[
        str | None, typer.Option("--by", help="A mean for each group of this public column.", metavar="COL")
    ] = None,
    public_column: Annotated[
        list[str] | None,
        typer.Option("--public-column", help="Declares that a column is public; repeat.", metavar="COL"),
    ] = None,
    groups: Annotated[
        Path | None,
        typer.Option("--groups", help="A file with the groups, one a line; a group may be empty.", metavar="FILE"),
    ] = None,
    public_rows: PublicRows = None,
    disjoint_people: Annotated[
        bool, typer.Option("--disjoint-people", help="Promises that nobody is in two of the tallies.")
    ] = False,
    delimiter: Delimiter = None,
    decimal: Decimal = ".",
    thousands: Thousands = None,
    ledger: LedgerAt = None,
    spend: Spend = None,
    share: Share = None,
    share_left: ShareLeft = None,
    release_id: ReleaseId = None,
    people: LedgerPeople = "enrolled",
    expect_head: ExpectHead = None,
    method: MethodName = "adpm",
    variance: Variance = None,
    confidence: Confidence = 0.95,
    as_json: Json = False,
    output: Output = None,
    force: Force = False,
) -> None:
    """Release a private mean: one number that may be published, with all that is public about it.

    Running it again is another release and spends privacy again, unless a ledger has it under the same --release-id.
    """
    writable(output, source, force=force)
    level_checked(confidence)
    from hetdp.core.domain import Interval
    from hetdp.report import text
    from hetdp.statistics import mean

    if _are_tallies(source):
        _only_for_tables(value, epsilon, bounds, tier, tiers, query, person, rows, by, groups, public_rows)
        _not_with_tallies(ledger, spend, share, share_left, release_id, expect_head)
        result: Release | Groups = mean.of_tally(_merged(source, promised=disjoint_people), method, variance)
    elif ledger is not None:
        if rows == "one":
            raise InputError("a ledger averages the rows of a person; leave out --rows one")
        _only_without_ledger(
            epsilon=epsilon, tier=tier, tiers=tiers, query=query, by=by, groups=groups, public_rows=public_rows
        )
        result = _charged(
            (ledger, expect_head),
            source,
            bounds,
            value=value,
            person=person,
            spend=spend,
            share=share,
            share_left=share_left,
            release_id=release_id,
            people=people,
            method=method,
            variance=variance,
            form=(delimiter, decimal, thousands),
        )
    else:
        _only_with_ledger(spend, share, share_left, release_id, expect_head)
        names = {"tiers": tiers_of(tier, tiers), "query": query, "person": person, "rows": rows or "one", "by": by}
        form = (delimiter, decimal, thousands)
        with _reading(source, _needed(value, epsilon, bounds), form, **names) as table:
            result = mean.of_source(
                table,
                Interval.of(bounds),
                method=method,
                variance=variance,
                public_columns=public_column or (),
                groups=groups_of(groups),
                public_rows=public_rows,
            )
    facts = result.to_dict(confidence)
    title = "A private mean" if by is None else f"Private means by {by}"
    with _handed_out(stored=ledger is not None):
        if output is None:
            show(facts if as_json else result.body(confidence))
            return
        write(
            output,
            facts,
            as_json=as_json,
            html=lambda: text.page(title, result.html(confidence)),
            text=lambda: text.text(result.body(confidence)),
        )


@contextmanager
def _handed_out(*, stored: bool) -> Iterator[None]:
    """Say what became of a release that cannot be printed or written."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except (InputError, OSError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        rest = (
            "it is stored: the same --release-id gives it again" if stored else "it is lost, and its privacy is spent"
        )
        raise InputError(f"the release was made but not handed out, {why}; {rest}") from None


@app.command()
def tally(  # noqa: PLR0913  one parameter an option
    source: Sources,
    *,
    output: Annotated[Path, typer.Option("--output", "-o", help="The tally to write, as part1.tally.")],
    value: Value = None,
    epsilon: Epsilon = None,
    bounds: Bounds = None,
    tier: Tier = None,
    tiers: TierFile = None,
    query: Query = None,
    person: Person = None,
    rows: RowsOf = None,
    public_rows: PublicRows = None,
    delimiter: Delimiter = None,
    decimal: Decimal = ".",
    thousands: Thousands = None,
    as_json: Json = False,
    force: Force = False,
) -> None:
    """Write a PRIVATE tally: exact sums per level, to be merged and released elsewhere by `hetdp mean`."""
    writable(output, source, force=force)
    from hetdp.core.domain import Interval
    from hetdp.sources import tally as make_tally

    names = {"tiers": tiers_of(tier, tiers), "query": query, "person": person, "rows": rows or "one"}
    form = (delimiter, decimal, thousands)
    with _reading(source, _needed(value, epsilon, bounds), form, **names) as people:
        made = make_tally(people, Interval.of(bounds), public_rows)
    made.save(output)
    said = "PRIVATE: its sums are not protected by any noise. Give it only to whoever releases the mean."
    if as_json:
        show({"tally": str(output), "n": made.n, "levels": len(made.levels), "warning": said})
    else:
        show(f"{output}: {made.n:,} people at {len(made.levels):,} levels of ε. {said}")


@app.command()
def check(  # noqa: PLR0913  one parameter an option
    source: Sources,
    *,
    value: Value = None,
    epsilon: Epsilon = None,
    bounds: Bounds = None,
    tier: Tier = None,
    tiers: TierFile = None,
    delimiter: Delimiter = None,
    decimal: Decimal = ".",
    thousands: Thousands = None,
    as_json: Json = False,
) -> None:
    """PRIVATE, for the owner of the data: what is missing, unreadable or outside the bounds, and where."""
    from hetdp.checks.check import of_source
    from hetdp.core.domain import Interval

    form = (delimiter, decimal, thousands)
    with _reading(source, _needed(value, epsilon, bounds), form, tiers=tiers_of(tier, tiers)) as people:
        found = of_source(people, Interval.of(bounds))
    show(found.to_dict() if as_json else found.report())


def _needed(value: str | None, epsilon: str | None, bounds: tuple[float, float] | None) -> tuple[str, str]:
    missing = [
        name for name, given in (("--value", value), ("--epsilon", epsilon), ("--bounds", bounds)) if given is None
    ]
    if value is None or epsilon is None or bounds is None:
        raise InputError(f"a table needs {', '.join(missing)}: --value COL --epsilon COL --bounds LO HI; see --help")
    return value, epsilon


@contextmanager
def _reading(
    sources: list[str], columns: tuple[str, str], form: tuple[str | None, str, str | None], **names: Any
) -> Iterator[Source]:
    """Give the source that the options describe, watched by a progress bar while it is read."""
    from hetdp.sources import Form, Source

    value, epsilon = columns
    asked = {"value": value, "epsilon": epsilon, "form": Form(*form), **names}
    with watched(Source.of(sources, **asked).size) as watch:
        yield Source.of(sources, **asked, watch=watch)


def _charged(
    ledger: tuple[str, str | None],
    sources: list[str],
    bounds: tuple[float, float] | None,
    *,
    release_id: str | None,
    form: tuple[str | None, str, str | None],
    **asked: Any,
) -> Release:
    """Release through a ledger: everybody is charged what is spent, and the same id gives the same result again."""
    from hetdp.ledger import Ledger
    from hetdp.sources import Form

    for option, given in (("--bounds", bounds), ("--release-id", release_id), ("--person", asked["person"])):
        if given is None:
            raise InputError(f"a release through a ledger needs {option}; see --help")
    where, expected = ledger
    with Ledger(where, expect_head=expected) as opened:
        one = sources[0] if len(sources) == 1 else sources
        return opened.mean(one, bounds=bounds, release_id=str(release_id), form=Form(*form), **asked)


def _are_tallies(sources: list[str]) -> bool:
    from hetdp.tally.tally import is_tally

    tallies = [is_tally(name) for name in sources]
    if any(tallies) and not all(tallies):
        raise InputError("tallies and tables do not mix; make a tally of the table first: hetdp tally … -o part.tally")
    return all(tallies)


def _merged(sources: list[str], *, promised: bool) -> Tally:
    from functools import reduce

    from hetdp.tally.tally import Tally

    if len({Path(name).resolve() for name in sources}) < len(sources):
        raise InputError("the same tally is named twice; its people would be counted twice")
    if len(sources) > 1 and not promised:
        raise InputError(
            "a person in two tallies would be counted twice and spend the sum of both, and nothing here can see it; "
            "if nobody is, promise it with --disjoint-people"
        )
    return reduce(Tally.__add__, map(Tally.load, sources))


def _not_with_tallies(*options: Any) -> None:
    if any(option is not None for option in options):
        raise InputError("a tally does not say who its people are, so no ledger can charge them; give the table itself")


def _only_with_ledger(*options: Any) -> None:
    if any(option is not None for option in options):
        raise InputError("--spend, --share, --share-left, --release-id and --expect-head need --ledger LEDGER")


def _only_without_ledger(**options: Any) -> None:
    given = [f"--{name.replace('_', '-')}" for name, option in options.items() if option is not None and option != []]
    if given:
        raise InputError(
            f"with a ledger everybody's ε comes from it, and everybody counts in one mean; leave out {', '.join(given)}"
        )


def _only_for_tables(*options: Any) -> None:
    if any(option is not None and option != [] for option in options):
        raise InputError("a tally has its columns, bounds and tiers in it; leave out the options that say them again")
