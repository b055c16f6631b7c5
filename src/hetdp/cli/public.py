"""Commands that read no value: what is public, tests of this installation, and the budgets of a ledger."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Annotated, Any, Literal, Unpack

import typer

import hetdp
from hetdp.core.levels import Levels
from hetdp.errors import InputError
from hetdp.estimators import METHODS
from hetdp.report import Provenance
from hetdp.sources import counted
from hetdp.statistics import Statistic, kind_of

from . import options, parse
from .data import form_of, reading
from .output import deliver, progress, show, show_parts, writable


def plan(
    source: options.PublicSources = None,
    *,
    bounds: options.PlanBounds = None,
    method: options.MethodName = "adpm",
    variance: options.Variance = None,
    drift: options.Drift = 0.0,
    target: options.Target = None,
    target_error: options.TargetError = None,
    target_width: options.TargetWidth = None,
    as_json: options.Json = False,
    output: options.Output = None,
    force: options.Force = False,
    **given: Unpack[options.Public],
) -> None:
    """Say what a release would do and cost, without touching a value."""
    writable(output, source or [], force=force, as_json=as_json)
    from hetdp.report.compare import needed
    from hetdp.report.text import plan_parts

    asked = _asked(bounds, given)
    people, notes, about = _levels(source, given)
    about = replace(about, statistic=asked.name)
    stated = {"variance": parse.variance_of(variance), "drift": drift, "target": target}
    planned = hetdp.plan(people, statistic=asked, method=method, **stated)
    wanted = target_error is not None or target_width is not None
    answer = needed(planned, target_error, width=target_width) if wanted else None

    def facts() -> dict[str, Any]:
        found = planned.to_dict()
        more = {} if answer is None else {f"target_{'width' if target_error is None else 'error'}": answer.to_dict()}
        return {**found, "assumptions": [*found["assumptions"], *notes], "provenance": about.to_dict(), **more}

    deliver(
        output,
        as_json=as_json,
        facts=facts,
        parts=lambda: plan_parts(planned, answer, notes, about),
        title=f"What {asked.title[0].lower()}{asked.title[1:]} would cost",
    )


def compare(
    source: options.PublicSources = None,
    *,
    bounds: options.PlanBounds = None,
    variance: options.DataVariance = None,
    drift: options.Drift = 0.0,
    target: options.Target = None,
    plot: options.Plot = None,
    force: options.Force = False,
    as_json: options.Json = False,
    **given: Unpack[options.Public],
) -> None:
    """Show every method side by side: error, who spends what, and what no ε-DP method can beat."""
    writable(plot, source or [], force=force)
    people, notes, about = _levels(source, given)
    asked = _asked(bounds, given)
    compared = hetdp.compare(people, statistic=asked, variance=variance, drift=drift, target=target)
    compared = replace(compared, about=replace(about, statistic=compared.about.statistic))
    if plot is not None:
        compared.plot(plot)
    if as_json:
        show({**compared.to_dict(), "assumptions": notes})
    else:
        show_parts(compared.parts(notes))


def _asked(bounds: tuple[float, float] | None, given: Mapping[str, Any]) -> Statistic:
    """Return the statistic that the options of a plan describe."""
    kind = kind_of(given["statistic"] or "mean")
    parameters = parse.parameters_of(kind, {**given, "bounds": bounds})
    if missing := [name for name in options.required(kind) if name not in parameters]:
        meaning = next(field.metadata["help"] for field in fields(kind) if field.name == missing[0])
        raise InputError(f"a {kind.name} needs --{missing[0]} ({meaning.rstrip('.')}); see --help")
    asked = kind(**parameters)
    asked.interval.ordinary()
    return asked


def _levels(source: list[str] | None, given: options.Public) -> tuple[Levels, list[str], Provenance]:
    """Return the levels of a table or of tiers, what is assumed about rows and people, and where they come from."""
    if not source:
        if not given["tier"]:
            raise InputError("name the tiers (--tier strict=0.1:700 --tier open=inf:300) or a file with --epsilon COL")
        if given["epsilon"] or given["value"] or given["person"] or given["rows"]:
            raise InputError(
                "columns belong to a table; name its file, or leave out --epsilon, --value, --person and --rows"
            )
        return parse.levels_of(given["tier"]), [], Provenance()
    if given["epsilon"] is None:
        raise InputError("a table needs --epsilon COL, the column with everybody's ε, or one ε for everybody")
    with reading(source, given) as people:
        if not people.asked.columns:
            raise InputError(
                "one ε for everybody: name a column whose rows are counted (--value COL), or say how many people there "
                f"are instead of the file: --tier everybody={given['epsilon']}:PEOPLE"
            )
        return counted(people), list(people.notes), people.about()


def explain(
    epsilon: Annotated[str, typer.Argument(help="A number, inf or public.", metavar="ε")],
    *,
    as_json: options.Json = False,
) -> None:
    """Say what an onlooker can learn about a person who spends this ε."""
    found = hetdp.explain(epsilon)
    show(found.to_dict() if as_json else found.report())


def audit(
    *,
    method: Annotated[options.Texts, typer.Option(help="A method; repeat. All unless given.", metavar="NAME")] = None,
    tier: Annotated[options.Texts, typer.Option(help="Invented people; repeat.", metavar="NAME=ε:PEOPLE")] = None,
    bounds: options.AuditBounds = (-0.5, 0.5),
    draws: Annotated[int, typer.Option(help="Releases of each dataset.", metavar="N", min=200)] = 1_500,
    as_json: options.Json = False,
    output: options.Output = None,
    force: options.Force = False,
) -> None:
    """Test the privacy claims of this installation on invented people (about a minute).

    The law of the noise, and for every method and tier what many releases show about ε. Exit code 1 if a claim is
    broken.
    """
    writable(output, [], force=force, as_json=as_json)
    levels = parse.levels_of(tier) if tier else None
    with progress("audit") as tell:
        found = hetdp.audit(levels, methods=method, bounds=bounds, draws=draws, tell=tell)
    deliver(output, as_json=as_json, facts=found.to_dict, parts=found.parts, title="An audit of privacy claims")
    if not found.holds:
        raise typer.Exit(1)


def doctor(*, as_json: options.Json = False) -> None:
    """Test this installation: versions, and whether the noise has the right law (some seconds)."""
    from hetdp.checks import doctor as installation

    fits = (*installation.sampler_gate(), *installation.family_gate())
    show(installation.facts(fits) if as_json else installation.report(fits))
    if not all(fit.passed for fit in fits):
        raise typer.Exit(1)


def methods(*, as_json: options.Json = False) -> None:
    """List the estimators."""
    found = [{"name": m.name, "title": m.title, "citation": m.citation} for m in METHODS.values()]
    show(found if as_json else METHODS.report())


def reproduce(
    *,
    only: Annotated[options.Texts, typer.Option(help="An experiment, as table-2; repeat.", metavar="NAME")] = None,
    runs: Annotated[int | None, typer.Option(help="Simulated runs per point.", metavar="N", min=2)] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer runs and coarser grids.")] = False,
    out: Annotated[Path, typer.Option(help="The folder to write.", metavar="FOLDER")] = Path("reproduction"),
    as_json: options.Json = False,
) -> None:
    """Reproduce the paper: every figure, table and example, with pictures, numbers and verdicts."""
    from hetdp.paper import experiments

    chosen = [experiments.find(name) for name in only or experiments.EXPERIMENTS]
    if out.exists() and not out.is_dir():
        raise InputError(f"{out} is a file; name a folder")
    settings = experiments.Settings(runs, quick)
    done = experiments.reproduce(chosen, out, settings, lambda line: print(line, file=sys.stderr))
    verdicts = [(item.experiment.name, verdict) for item in done for verdict in item.result.verdicts]
    if as_json:
        show([{"experiment": name, "claim": v.claim, "found": v.found, "holds": v.holds} for name, v in verdicts])
        return
    lines = [f"{'holds  ' if v.holds else 'DIFFERS'}  {name:12} {v.claim}: {v.found}" for name, v in verdicts]
    show("\n".join([*lines, f"see {out / 'index.html'}"]))


# Ledgers: lifetime budgets over many releases. `hetdp mean … --ledger` is the command that spends them ------------

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
        done = found.enroll(who, person=person, budget=budget, tiers=parse.tiers_of(tier, tiers), form=form)
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
        typer.Option(
            "--ids", help="A text file with one id per line; - reads stdin.", metavar="FILE", encoding="utf-8"
        ),
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
        lacking: Literal["drop", "refuse"] = "drop" if drop else "refuse"
        done = found.charge(who or [], release_id=release_id, mechanism=mechanism, epsilon=epsilon, lacking=lacking)
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
    releases: Annotated[int, typer.Option(help="How many releases to look ahead at most.", metavar="N")] = 120,
    head_file: options.HeadFile = None,
    as_json: options.Json = False,
    **given: Unpack[options.Amount],
) -> None:
    """Say how often such a release can be made before budgets run out. Nothing is spent."""
    parse.one_amount(given)
    with hetdp.Ledger(where, head_file=head_file) as found:
        bound = parse.variance_of(variance)
        seen = found.forecast(bounds=bounds or (), **given, method=method, variance=bound, releases=releases)
    show(seen.to_dict() if as_json else str(seen))
