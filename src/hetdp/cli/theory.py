"""Commands about public facts alone: no value is read."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hetdp.errors import InputError

from .app import app
from .options import (
    Decimal,
    Delimiter,
    EpsilonColumn,
    Force,
    Json,
    MethodName,
    Output,
    Person,
    PlanBounds,
    PrivateColumn,
    PublicSources,
    Query,
    RowsOf,
    Thousands,
    TierFile,
    TierPeople,
    Variance,
    levels_of,
    tiers_of,
)
from .output import picture, show, writable, write

if TYPE_CHECKING:
    from hetdp.core.levels import Levels


@app.command()
def plan(  # noqa: PLR0913  one parameter an option
    source: PublicSources = None,
    *,
    tier: TierPeople = None,
    tiers: TierFile = None,
    epsilon: EpsilonColumn = None,
    value: PrivateColumn = None,
    person: Person = None,
    rows: RowsOf = None,
    query: Query = None,
    delimiter: Delimiter = None,
    decimal: Decimal = ".",
    thousands: Thousands = None,
    bounds: PlanBounds = (-0.5, 0.5),
    method: MethodName = "adpm",
    variance: Variance = None,
    target_error: Annotated[
        float | None,
        typer.Option("--target-error", help="Also say what would bring the worst-case error down to this."),
    ] = None,
    as_json: Json = False,
    output: Output = None,
    force: Force = False,
) -> None:  # fmt: skip
    """Say what a release would do and cost, without touching a value."""
    writable(output, source or [], force=force)
    from hetdp.core.domain import Interval
    from hetdp.core.plan import plan as make_plan
    from hetdp.report import facts as report_facts
    from hetdp.report import text

    interval = Interval.of(bounds).ordinary()
    columns = {"epsilon": epsilon, "value": value, "person": person, "rows": rows}
    people, notes = _levels(source, columns, tier, tiers, query, (delimiter, decimal, thousands))
    planned = make_plan(people, bounds=interval, method=method, variance=variance)
    facts = {**report_facts.plan_facts(planned), "assumptions": [*report_facts.assumptions(planned), *notes]}
    answer = None
    if target_error is not None:
        from hetdp.theory.target import target

        answer = target(planned, target_error)
        facts["target"] = answer.to_dict()
    body = text.plan_body(planned, answer, notes)
    if output is None:
        show(facts if as_json else body)
        return
    write(
        output,
        facts,
        as_json=as_json,
        html=lambda: text.page("What a private mean would cost", text.plan_html(planned, answer, notes)),
        text=lambda: text.text(body),
    )


@app.command()
def compare(  # noqa: PLR0913  one parameter an option
    source: PublicSources = None,
    *,
    tier: TierPeople = None,
    tiers: TierFile = None,
    epsilon: EpsilonColumn = None,
    value: PrivateColumn = None,
    person: Person = None,
    rows: RowsOf = None,
    query: Query = None,
    delimiter: Delimiter = None,
    decimal: Decimal = ".",
    thousands: Thousands = None,
    bounds: PlanBounds = (-0.5, 0.5),
    variance: Annotated[
        float | None,
        typer.Option("--variance", help="Also the error for data of this variance (default: even spread)."),
    ] = None,
    plot: Annotated[Path | None, typer.Option("--plot", help="Write a picture: .png, .svg or .pdf.")] = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Show every method side by side: error, who spends what, and what no ε-DP method can beat."""
    from hetdp.report.compare import compare as run_compare

    if plot is not None:
        picture(plot)
        writable(plot, source or [], force=force)
    columns = {"epsilon": epsilon, "value": value, "person": person, "rows": rows}
    people, notes = _levels(source, columns, tier, tiers, query, (delimiter, decimal, thousands))
    compared = run_compare(people, bounds=bounds, variance=variance)
    if plot is not None:
        compared.plot(plot)
    if as_json:
        show({**compared.to_dict(), "assumptions": notes})
        return
    show(compared.body(notes))


@app.command()
def reproduce(
    *,
    only: Annotated[
        list[str] | None, typer.Option("--only", help="One experiment by name, as table-2; repeat.", metavar="NAME")
    ] = None,
    runs: Annotated[int | None, typer.Option("--runs", help="Simulated runs per point.", min=2)] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer runs and coarser grids.")] = False,
    out: Annotated[Path, typer.Option("--out", help="The folder to write.")] = Path("reproduction"),
    as_json: Json = False,
) -> None:
    """Reproduce the paper: every figure, table and example, with pictures, numbers and verdicts."""
    from hetdp.paper import experiments

    names = only or list(experiments.EXPERIMENTS)
    for name in names:
        if name not in experiments.EXPERIMENTS:
            raise InputError(f"unknown experiment {name!r}; choose one of {', '.join(experiments.EXPERIMENTS)}")
    if out.exists() and not out.is_dir():
        raise InputError(f"{out} is a file; name a folder")
    chosen = [experiments.EXPERIMENTS[name] for name in names]
    settings = experiments.Settings(runs, quick)
    done = experiments.reproduce(chosen, out, settings, lambda line: print(line, file=sys.stderr))
    verdicts = [
        {"experiment": item.experiment.name, "claim": v.claim, "found": v.found, "holds": v.holds}
        for item in done
        for v in item.result.verdicts
    ]
    lines = [
        f"{'holds  ' if v['holds'] else 'DIFFERS'}  {v['experiment']:12} {v['claim']}: {v['found']}" for v in verdicts
    ]
    show(verdicts if as_json else "\n".join([*lines, f"see {out / 'index.html'}"]))


@app.command()
def doctor(*, as_json: Json = False) -> None:
    """Test this installation: versions, and whether the noise has the right law (some seconds)."""
    from hetdp.checks import doctor

    fits = doctor.sampler_gate()
    healthy = all(fit.passed for fit in fits)
    if as_json:
        gate = [
            {"scale": f.scale, "draws": f.draws, "chi_square": f.chi_square, "p_value": f.p_value, "passed": f.passed}
            for f in fits
        ]
        show({"healthy": healthy, "versions": doctor.versions(), "engines": doctor.engines(), "sampler": gate})
    else:
        show(doctor.report(fits))
    if not healthy:
        raise typer.Exit(1)


@app.command()
def methods(*, as_json: Json = False) -> None:
    """List the estimators."""
    from hetdp.estimators import methods as all_methods

    found = [{"name": m.name, "title": m.title, "citation": m.citation} for m in all_methods().values()]
    show(found if as_json else "\n".join(f"{m['name']:14}{m['title']}\n{'':14}{m['citation']}" for m in found))


def _levels(
    sources: list[str] | None,
    columns: dict[str, Any],
    tier: list[str] | None,
    tiers: Path | None,
    query: str | None,
    form: tuple[str | None, str, str | None],
) -> tuple[Levels, list[str]]:
    """Return the levels of a table or of tiers, and what is assumed about rows and people."""
    if not sources:
        if not tier:
            raise InputError("name the tiers (--tier strict=0.1:700 --tier open=inf:300) or a file with --epsilon COL")
        if any(columns.values()):
            raise InputError(
                "columns belong to a table; name its file, or leave out --epsilon, --value, --person and --rows"
            )
        return levels_of(tier), []
    from hetdp.sources import Form, Source, counted

    if columns["epsilon"] is None:
        raise InputError("a table needs --epsilon COL, the column with everybody's ε")
    columns["rows"] = columns["rows"] or "one"
    people = Source.of(
        sources, **columns, tiers=tiers_of(tier, tiers), query=query, form=Form(*form), counts_only=True
    )  # fmt: skip
    return counted(people), [people.note]
