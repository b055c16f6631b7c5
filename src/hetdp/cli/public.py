"""Commands that use public facts alone, and commands that test this installation: no value is read."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Annotated, Any, Unpack

import typer

import hetdp
from hetdp.core.levels import Levels
from hetdp.errors import InputError
from hetdp.estimators import METHODS
from hetdp.report.about import Provenance
from hetdp.sources import counted
from hetdp.statistics import Statistic, kind_of

from . import options
from .data import reading
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
    from hetdp.report.compare import target as needed
    from hetdp.report.text import plan_parts

    asked = _asked(bounds, given)
    people, notes, about = _levels(source, given)
    about = replace(about, statistic=asked.name)
    stated = {"variance": options.variance_of(variance), "drift": drift, "target": target}
    planned = hetdp.plan(people, statistic=asked, method=method, **stated)
    wanted = target_error is not None or target_width is not None
    if wanted and asked.name != "mean":
        raise InputError("--target-error and --target-width are for means")
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
    parameters = options.parameters_of(kind, {**given, "bounds": bounds})
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
        return options.levels_of(given["tier"]), [], Provenance()
    if given["epsilon"] is None:
        raise InputError("a table needs --epsilon COL, the column with everybody's ε, or one ε for everybody")
    with reading(source, given) as people:
        if not people.asked.columns:
            raise InputError(
                "one ε for everybody: name a column whose rows are counted (--value COL), or say how many people there "
                f"are instead of the file: --tier everybody={given['epsilon']}:PEOPLE"
            )
        return counted(people), [people.note], people.about()


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
    draws: Annotated[int, typer.Option(help="Releases of each dataset.", min=200)] = 1_500,
    as_json: options.Json = False,
    output: options.Output = None,
    force: options.Force = False,
) -> None:
    """Test the privacy claims of this installation on invented people (about a minute).

    The law of the noise, and for every method and tier what many releases show about ε. Exit code 1 if a claim is
    broken.
    """
    writable(output, [], force=force, as_json=as_json)
    levels = options.levels_of(tier) if tier else None
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
    runs: Annotated[int | None, typer.Option(help="Simulated runs per point.", min=2)] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer runs and coarser grids.")] = False,
    out: Annotated[Path, typer.Option(help="The folder to write.")] = Path("reproduction"),
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
