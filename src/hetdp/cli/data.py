"""Commands that read values: one number to publish, a private tally, and the owner's private check."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
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
from hetdp.privacy.release import Groups, Release
from hetdp.sources import Form, Source
from hetdp.sources import tally as tally_of
from hetdp.tally.tally import Tally, is_tally

from . import options
from .output import deliver, progress, show, writable

# Which options go together. What is released decides: tallies, a table through a ledger, or a table by itself.

_CHARGE = ("spend", "share", "share_left", "release_id", "expect_head")
_CHOICES = ("epsilon", "tier", "tiers", "query", "by", "groups", "public_rows")
_TABLE = ("value", "bounds", "person", "rows", *_CHOICES)
_NEEDED: dict[str, tuple[str, ...]] = {
    "a tally": (),
    "a release through a ledger": ("bounds", "release_id", "person"),
    "a table": ("value", "epsilon", "bounds"),
}
_REFUSED: dict[str, dict[tuple[str, ...], str]] = {
    "a tally": {
        _TABLE: "a tally has its columns, bounds and tiers in it; leave out {}",
        ("ledger", *_CHARGE): "a tally does not say who its people are, so no ledger can charge them; leave out {}",
    },
    "a release through a ledger": {
        _CHOICES: "with a ledger everybody's ε comes from it, and everybody counts in one mean; leave out {}"
    },
    "a table": {_CHARGE: "only a release through a ledger takes {}; name the ledger with --ledger LEDGER"},
}


def _agree(what: str, given: Mapping[str, Any]) -> None:
    """Raise unless the options that were given fit together."""

    def flags(names: tuple[str, ...], *, present: bool) -> str:
        found = [name for name in names if (given.get(name) not in (None, [], ())) == present]
        return ", ".join(f"--{name.replace('_', '-')}" for name in found)

    for names, why in _REFUSED[what].items():
        if refused := flags(names, present=True):
            raise InputError(why.format(refused))
    if missing := flags(_NEEDED[what], present=False):
        raise InputError(f"{what} needs {missing}; see --help")
    if what == "a release through a ledger" and given["rows"] == "one":
        raise InputError("a ledger averages the rows of a person; leave out --rows one")


def mean(
    source: options.Sources,
    *,
    disjoint_people: options.Disjoint = False,
    people: options.LedgerPeople = "enrolled",
    method: options.MethodName = "adpm",
    variance: options.Variance = None,
    confidence: options.Confidence = 0.95,
    as_json: options.Json = False,
    output: options.Output = None,
    force: options.Force = False,
    **given: Unpack[options.Released],
) -> None:
    """Release a private mean: one number that may be published, with everything that is public about it.

    Running it again is another release and spends privacy again, unless a ledger has it under the same --release-id.
    """
    writable(output, source, force=force)
    if not 0 < confidence < 1:
        raise InputError(f"the confidence level must be between 0 and 1 (got {confidence:g}); 0.95 is usual")
    result: Release | Groups
    how: dict[str, Any] = {"method": method, "variance": variance}
    ledger = given["ledger"]
    if _are_tallies(source):
        _agree("a tally", given)
        result = questions.of_tally(_merged(source, promised=disjoint_people), **how)
    elif ledger is not None:
        _agree("a release through a ledger", given)
        passed_on = ("bounds", "value", "person", "spend", "share", "share_left", "release_id")
        how |= {name: option for name, option in given.items() if name in passed_on}
        with hetdp.Ledger(ledger, expect_head=given["expect_head"]) as opened:
            rows_of = source[0] if len(source) == 1 else source
            result = opened.mean(rows_of, people=people, form=form_of(given), **how)
    else:
        _agree("a table", given)
        how |= {"public_columns": given["public_column"] or (), "groups": options.groups_of(given["groups"])}
        with reading(source, given) as table:
            result = questions.of_source(table, Interval.of(given["bounds"]), public_rows=given["public_rows"], **how)
    try:
        deliver(
            output,
            as_json=as_json,
            facts=lambda: result.to_dict(confidence),
            parts=lambda: result.parts(confidence),
            title="A private mean" if given["by"] is None else f"Private means by {given['by']}",
        )
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except (InputError, OSError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        kept = "it is stored: the same --release-id gives it again"
        rest = "it is lost, its privacy is spent" if ledger is None else kept
        raise InputError(f"the release was made but not handed out, {why}; {rest}") from None


def check(source: options.Sources, *, as_json: options.Json = False, **given: Unpack[options.Checked]) -> None:
    """PRIVATE, for the owner of the data: what is missing, unreadable or outside the bounds, and where."""
    _agree("a table", given)
    with reading(source, given) as people:
        found = checks.of_source(people, Interval.of(given["bounds"]))
    show(found.to_dict() if as_json else found.report())


def tally(
    source: options.Sources,
    *,
    output: Annotated[Path, typer.Option("--output", "-o", help="The tally to write, as part1.tally.")],
    as_json: options.Json = False,
    force: options.Force = False,
    **given: Unpack[options.Tallied],
) -> None:
    """Write a PRIVATE tally: exact sums per level, to be merged and released elsewhere by `hetdp mean`."""
    writable(output, source, force=force)
    _agree("a table", given)
    with reading(source, given) as people:
        made = tally_of(people, Interval.of(given["bounds"]), given["public_rows"])
    made.save(output)
    said = "PRIVATE: its sums are not protected by any noise. Give it only to whoever releases the mean."
    facts = {"tally": str(output), "n": made.n, "levels": len(made.levels), "warning": said}
    show(facts if as_json else f"{output}: {made.n:,} people at {len(made.levels):,} levels of ε. {said}")


@contextmanager
def reading(source: list[str], given: Mapping[str, Any], *, counts_only: bool = False) -> Iterator[Source]:
    """Give the source that the options of a command describe; progress is shown while it is read."""
    asked: dict[str, Any] = {name: given.get(name) for name in ("value", "epsilon", "person", "by", "query")}
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
