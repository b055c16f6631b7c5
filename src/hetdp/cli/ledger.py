"""Commands of a ledger: lifetime budgets over many releases. `hetdp mean … --ledger` is the one that spends them."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Unpack

import typer

import hetdp
from hetdp.errors import InputError

from . import options
from .data import form_of
from .output import show

Where = Annotated[str, typer.Argument(help="The file of the ledger, or postgresql://….", metavar="LEDGER")]


def init(where: Where, *, head_file: options.HeadFile = None, as_json: options.Json = False) -> None:
    """Make a new, empty ledger."""
    with hetdp.Ledger.create(where, head_file=head_file) as made:
        show({"ledger": made.name, "head": made.head} if as_json else f"{made.name}: a new ledger\nhead {made.head}")


def upgrade(where: Where, *, head_file: options.HeadFile = None, as_json: options.Json = False) -> None:
    """Bring a ledger that an older hetdp wrote up to date. Make a copy first."""
    with hetdp.Ledger.upgrade(where, head_file=head_file) as made:
        show({"ledger": made.name, "head": made.head} if as_json else f"{made.name} is up to date\nhead {made.head}")


def enroll(
    where: Where,
    source: Annotated[
        str | None,
        typer.Argument(
            help="A table with one row per person; - reads stdin.", metavar="SOURCE", callback=options.one_with_stdin
        ),
    ] = None,
    *,
    person: Annotated[str | None, typer.Option(help="The column of ids.", metavar="COL")] = None,
    ids: Annotated[list[str] | None, typer.Option("--id", help="Without a table: an id; repeat.", metavar="ID")] = None,
    budget: Annotated[str, typer.Option(help="The column of budgets; with --id the budget itself.", metavar="COL|ε")],
    tier: options.Tier = None,
    tiers: options.TierFile = None,
    head_file: options.HeadFile = None,
    as_json: options.Json = False,
    **given: Unpack[options.Written],
) -> None:
    """Enrol people with a lifetime budget, or change the budget of people who are enrolled.

    A budget can always be raised. Lowering it below what is spent freezes the person: nothing more can be charged.
    """
    if (source is None) == (ids is None):
        raise InputError("name a table (SOURCE --person COL --budget COL) or people (--id ID --budget ε), not both")
    who, form = (source or "" if ids is None else ids), form_of(given)
    with hetdp.Ledger(where, head_file=head_file) as found:
        done = found.enroll(who, person=person, budget=budget, tiers=options.tiers_of(tier, tiers), form=form)
        show({**asdict(done), "head": found.head} if as_json else f"{done}\nhead {found.head}")


def charge(
    where: Where,
    *,
    release_id: Annotated[str, typer.Option(help="A name of yours: the same is charged once.", metavar="NAME")],
    mechanism: Annotated[str, typer.Option(help="How you call the mechanism, for the history.", metavar="TEXT")],
    epsilon: Annotated[str, typer.Option(help="What it spends of each person.", metavar="ε")],
    ids: Annotated[list[str] | None, typer.Option("--id", help="Who takes part; repeat.", metavar="ID")] = None,
    ids_file: Annotated[
        typer.FileText | None,
        typer.Option("--ids", help="A text file with one id per line; - reads stdin.", encoding="utf-8"),
    ] = None,
    drop: Annotated[bool, typer.Option("--drop", help="Leave out who has too little left, else refuse.")] = False,
    head_file: options.HeadFile = None,
    as_json: options.Json = False,
) -> None:
    """Charge people for a mechanism that is not hetdp's, before it runs, and list whose data it may use.

    The same name and request charge nobody again. One charge pays for one result.
    """
    if (ids is None) == (ids_file is None):
        raise InputError("name who takes part by --id ID or by --ids FILE, not both")
    who = ids if ids_file is None else ids_file.read().splitlines()
    with hetdp.Ledger(where, head_file=head_file) as found:
        ask = {"release_id": release_id, "mechanism": mechanism, "epsilon": epsilon}
        done = found.charge(who or [], **ask, lacking="drop" if drop else "refuse")
        lines = [str(done), *(f"  {name}" for name in done.people), f"head {found.head}"]
        show({**asdict(done), "dropped": list(done.dropped), "head": found.head} if as_json else "\n".join(lines))


def balance(
    where: Where,
    person: Annotated[str | None, typer.Argument(help="Whose; otherwise groups of people alike.", metavar="ID")] = None,
    *,
    everybody: Annotated[bool, typer.Option("--everybody", help="Everybody one by one, not in groups.")] = False,
    head_file: options.HeadFile = None,
    as_json: options.Json = False,
) -> None:
    """Show what a person has spent and has left, or everybody in groups."""
    if everybody and person is not None:
        raise InputError("name one person, or ask for --everybody")
    with hetdp.Ledger(where, head_file=head_file) as found:
        everyone = found.balances if everybody else found.cohorts
        some = everyone() if person is None else [found.balance(person)]
    if as_json:
        facts = [row.to_dict() for row in some]
        show(facts if person is None else facts[0])
    else:
        show("\n".join(map(str, some)) or "nobody is enrolled")


def history(where: Where, *, head_file: options.HeadFile = None, as_json: options.Json = False) -> None:
    """List everything that happened."""
    with hetdp.Ledger(where, head_file=head_file) as found:
        entries = found.history()
    show([entry.to_dict() for entry in entries] if as_json else "\n".join(map(str, entries)))


def verify(
    where: Where,
    *,
    expect_head: options.ExpectHead = None,
    head_file: options.HeadFile = None,
    as_json: options.Json = False,
) -> None:
    """Check the whole ledger: chain, sums, people, charges. Write the head down elsewhere."""
    with hetdp.Ledger(where, head_file=head_file, expect_head=expect_head) as found:
        verified = found.verify(expect_head=expect_head)
    show(verified.to_dict() if as_json else str(verified))


def forecast(
    where: Where,
    *,
    bounds: options.PlanBounds,
    method: options.MethodName = "adpm",
    variance: options.Variance = None,
    releases: Annotated[int, typer.Option(help="How many releases to look ahead at most.")] = 120,
    head_file: options.HeadFile = None,
    as_json: options.Json = False,
    **given: Unpack[options.Amount],
) -> None:
    """Say how often such a release can be made before budgets run out. Nothing is spent."""
    with hetdp.Ledger(where, head_file=head_file) as found:
        bound = options.variance_of(variance)
        seen = found.forecast(bounds=bounds or (), **given, method=method, variance=bound, releases=releases)
    show(seen.to_dict() if as_json else str(seen))
