"""Commands of a ledger: lifetime budgets over many releases. `hetdp mean … --ledger` is the one that spends them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hetdp.errors import InputError

from .app import app
from .options import (
    Decimal,
    Delimiter,
    ExpectHead,
    Force,
    Json,
    MethodName,
    PlanBounds,
    Share,
    ShareLeft,
    Spend,
    Thousands,
    Tier,
    TierFile,
    Variance,
    tiers_of,
)
from .output import picture, show, writable

if TYPE_CHECKING:
    from hetdp.ledger import Ledger

ledger = typer.Typer(
    help="Lifetime budgets: who has spent how much of their privacy over many releases.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(ledger, name="ledger")

Where = Annotated[str, typer.Argument(help="The file of the ledger, or postgresql://….", metavar="LEDGER")]
HeadFile = Annotated[
    Path | None,
    typer.Option("--head-file", help="Where the head is kept outside (LEDGER.head; for PostgreSQL nowhere)."),
]


@contextmanager
def _opened(where: str, expect_head: str | None = None, head_file: Path | None = None) -> Iterator[Ledger]:
    from hetdp.ledger import Ledger

    with Ledger(where, expect_head=expect_head, head_file=head_file) as found:
        yield found


@ledger.command()
def init(where: Where, *, head_file: HeadFile = None, as_json: Json = False) -> None:
    """Make a new, empty ledger."""
    from hetdp.ledger import Ledger

    with Ledger.create(where, head_file=head_file) as made:
        show({"ledger": made.name, "head": made.head} if as_json else f"{made.name}: a new ledger\nhead {made.head}")


@ledger.command()
def upgrade(where: Where, *, head_file: HeadFile = None, as_json: Json = False) -> None:
    """Bring a ledger that an older hetdp wrote up to date. Make a copy first."""
    from hetdp.ledger import Ledger

    with Ledger.upgrade(where, head_file=head_file) as found:
        show(
            {"ledger": found.name, "head": found.head} if as_json else f"{found.name} is up to date\nhead {found.head}"
        )


@ledger.command()
def enroll(  # noqa: PLR0913  one parameter an option
    where: Where,
    source: Annotated[
        str | None, typer.Argument(help="A table with a row per person.", metavar="[SOURCE]", show_default=False)
    ] = None,
    *,
    person: Annotated[str | None, typer.Option("--person", help="The column of ids.", metavar="COL")] = None,
    ids: Annotated[
        list[str] | None, typer.Option("--id", help="Without a table: one person's id; repeat.", metavar="ID")
    ] = None,
    budget: Annotated[
        str,
        typer.Option("--budget", help="The column of lifetime budgets; with --id the budget.", metavar="COL|ε"),
    ],
    tier: Tier = None,
    tiers: TierFile = None,
    delimiter: Delimiter = None,
    decimal: Decimal = ".",
    thousands: Thousands = None,
    head_file: HeadFile = None,
    as_json: Json = False,
) -> None:
    """Enrol people with a lifetime budget, or change the budget of people who are enrolled.

    Raising is always possible; lowering below what is spent freezes a person.
    """
    if (source is None) == (ids is None):
        raise InputError("name a table (SOURCE --person COL --budget COL) or people (--id ID --budget ε), not both")
    from hetdp.sources import Form

    who, form = (source if ids is None else ids), Form(delimiter, decimal, thousands)
    with _opened(where, head_file=head_file) as found:
        done = found.enroll(who, person=person, budget=budget, tiers=tiers_of(tier, tiers), form=form)
        show({**asdict(done), "head": found.head} if as_json else f"{done}\nhead {found.head}")


@ledger.command()
def balance(
    where: Where,
    person: Annotated[
        str | None, typer.Argument(help="Whose; without it, groups of people alike.", metavar="[ID]")
    ] = None,
    *,
    head_file: HeadFile = None,
    as_json: Json = False,
) -> None:
    """Show what a person has spent and has left, or everybody in groups."""
    with _opened(where, head_file=head_file) as found:
        some = found.cohorts() if person is None else [found.balance(person)]
    facts = [row.to_dict() for row in some]
    if as_json:
        show(facts if person is None else facts[0])
    else:
        show("\n".join(map(str, some)) or "nobody is enrolled")


@ledger.command()
def history(where: Where, *, head_file: HeadFile = None, as_json: Json = False) -> None:
    """List everything that happened."""
    with _opened(where, head_file=head_file) as found:
        entries = found.history()
    show([entry.to_dict() for entry in entries] if as_json else "\n".join(map(str, entries)))


@ledger.command()
def verify(where: Where, *, expect_head: ExpectHead = None, head_file: HeadFile = None, as_json: Json = False) -> None:
    """Check the whole ledger: chain, sums, people, charges. Write the head down elsewhere."""
    with _opened(where, expect_head, head_file) as found:
        verified = found.verify(expect_head=expect_head)
    show(verified.to_dict() if as_json else str(verified))


@ledger.command()
def forecast(  # noqa: PLR0913  one parameter an option
    where: Where,
    *,
    bounds: PlanBounds,
    spend: Spend = None,
    share: Share = None,
    share_left: ShareLeft = None,
    method: MethodName = "adpm",
    variance: Variance = None,
    releases: Annotated[int, typer.Option("--releases", help="How many to look ahead at most.")] = 120,
    head_file: HeadFile = None,
    as_json: Json = False,
) -> None:
    """Say how often such a release can be made before budgets run out. Nothing is spent."""
    with _opened(where, head_file=head_file) as found:
        seen = found.forecast(
            bounds=bounds,
            spend=spend,
            share=share,
            share_left=share_left,
            method=method,
            variance=variance,
            releases=releases,
        )
    show(seen.to_dict() if as_json else str(seen))


@ledger.command()
def export(
    where: Where,
    *,
    output: Annotated[Path, typer.Option("--output", "-o", help="The file to write: .csv or .json.")],
    what: Annotated[str, typer.Option("--what", help="Everybody's 'balances', or the 'history'.")] = "balances",
    force: Force = False,
    head_file: HeadFile = None,
    as_json: Json = False,
) -> None:
    """Write everybody's balance, or the history, to a file."""
    writable(output, [where], force=force)
    with _opened(where, head_file=head_file) as found:
        found.export(output, what=what)
    show({"file": str(output), "what": what} if as_json else f"{output}: {what}")


@ledger.command()
def plot(
    where: Where,
    *,
    output: Annotated[Path, typer.Option("--output", "-o", help="The picture to write: .png, .svg or .pdf.")],
    force: Force = False,
    head_file: HeadFile = None,
    as_json: Json = False,
) -> None:
    """Draw what every tier had left after each release."""
    picture(output)
    writable(output, [where], force=force)
    with _opened(where, head_file=head_file) as found:
        found.plot(output)
    show({"file": str(output)} if as_json else f"{output}: what every tier had left")
