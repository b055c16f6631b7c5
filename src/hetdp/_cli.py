"""The command line: parse, call one verb, print. No arithmetic here.

Exit codes: 0 done, 2 bad input (one line on stderr), 1 the doctor found a fault or something unforeseen happened.
"""

from __future__ import annotations

import io
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ._errors import HetdpError, InputError

if TYPE_CHECKING:
    from ._levels import Levels

app = typer.Typer(
    help="Differentially private means when every person chooses their own privacy level ε.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,  # a pretty traceback shows local variables: they may be private
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

File = Annotated[str, typer.Argument(help="A CSV, TSV or Parquet file with one row per person.", metavar="FILE")]
Value = Annotated[str, typer.Option("--value", help="The column with the private values.", metavar="COL")]
Epsilon = Annotated[
    str, typer.Option("--epsilon", help="The column with everybody's ε: a number, inf or public.", metavar="COL")
]
Bounds = Annotated[
    tuple[float, float],
    typer.Option("--bounds", help="The public interval of the values; others are clamped to it.", metavar="LO HI"),
]
Tier = Annotated[
    list[str] | None,
    typer.Option("--tier", help="A tier by name, when the ε column holds names; repeat.", metavar="NAME=ε"),
]
PublicFile = Annotated[
    str | None,
    typer.Argument(help="A file with everybody's ε; no value is used.", metavar="[FILE]", show_default=False),
]
TierPeople = Annotated[
    list[str] | None,
    typer.Option(
        "--tier",
        help="NAME=ε:PEOPLE without a file; NAME=ε if the file's ε column holds names; repeat.",
        metavar="NAME=ε[:PEOPLE]",
    ),
]
EpsilonColumn = Annotated[
    str | None, typer.Option("--epsilon", help="The file's column with everybody's ε.", metavar="COL")
]
PrivateColumn = Annotated[
    str | None,
    typer.Option("--value", help="The private column, so that ragged lines can be read around it.", metavar="COL"),
]
MethodName = Annotated[str, typer.Option("--method", help="The estimator; `hetdp methods` lists them.")]
Variance = Annotated[
    float | None,
    typer.Option("--variance", help="A publicly known bound on the variance of one value. Never from the data."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
Output = Annotated[
    Path | None,
    typer.Option("--output", "-o", help="Write to this file instead: .json, .html, anything else is text."),
]
Force = Annotated[bool, typer.Option("--force", help="Overwrite the output file.")]


@app.callback(invoke_without_command=True)
def root(
    *, version: Annotated[bool, typer.Option("--version", help="Show the version and exit.", is_eager=True)] = False
) -> None:
    """Differentially private means when every person chooses their own privacy level ε."""
    if version:
        from . import __version__

        print(f"hetdp {__version__}")
        raise typer.Exit


@app.command()
def mean(  # noqa: PLR0913  one parameter an option
    file: File,
    *,
    value: Value,
    epsilon: Epsilon,
    bounds: Bounds,
    tier: Tier = None,
    method: MethodName = "adpm",
    variance: Variance = None,
    confidence: Annotated[float, typer.Option("--confidence", help="The level of the interval.")] = 0.95,
    as_json: Json = False,
    output: Output = None,
    force: Force = False,
) -> None:
    """Release a private mean: one number that may be published, with all that is public about it.

    Running it again is another release and spends privacy again.
    """
    _writable(output, file, force=force)
    _level(confidence)
    from . import _facts, _report
    from ._mean import mean as release_mean

    result = release_mean(
        file, value=value, epsilon=epsilon, bounds=bounds, method=method, variance=variance, tiers=_tiers(tier)
    )
    facts = _facts.release_facts(result, confidence)
    if output is None:
        _show(facts if as_json else _report.release_body(result, confidence))
        return
    html, text = _report.release_html, _report.release_text
    title = "A private mean"
    _write(
        output,
        facts,
        as_json=as_json,
        html=lambda: _report.page(title, html(result, confidence)),
        text=lambda: text(result, confidence),
    )


@app.command()
def plan(  # noqa: PLR0913  one parameter an option
    file: PublicFile = None,
    *,
    tier: TierPeople = None,
    epsilon: EpsilonColumn = None,
    value: PrivateColumn = None,
    bounds: Bounds = (-0.5, 0.5),
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
    _writable(output, file, force=force)
    from . import _facts, _report
    from ._plan import plan as make_plan

    planned = make_plan(_levels(file, epsilon, value, tier), bounds=bounds, method=method, variance=variance)
    facts = _facts.plan_facts(planned)
    answer = None
    if target_error is not None:
        from ._target import target

        answer = target(planned, target_error)
        facts["target"] = answer.to_dict()
    body = _report.plan_body(planned, answer)
    if output is None:
        _show(facts if as_json else body)
        return
    _write(
        output,
        facts,
        as_json=as_json,
        html=lambda: _report.page("What a private mean would cost", _report.plan_html(planned, answer)),
        text=lambda: _report.text(body),
    )


@app.command()
def compare(  # noqa: PLR0913  one parameter an option
    file: PublicFile = None,
    *,
    tier: TierPeople = None,
    epsilon: EpsilonColumn = None,
    value: PrivateColumn = None,
    bounds: Bounds = (-0.5, 0.5),
    variance: Annotated[
        float | None,
        typer.Option("--variance", help="Also the error for data of this variance (default: even spread)."),
    ] = None,
    plot: Annotated[Path | None, typer.Option("--plot", help="Write a picture: .png, .svg or .pdf.")] = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Show every method side by side: error, who spends what, and what no method can beat."""
    from ._compare import compare as run_compare

    if plot is not None:
        _picture(plot)
        _writable(plot, file, force=force)
    compared = run_compare(_levels(file, epsilon, value, tier), bounds=bounds, variance=variance)
    if plot is not None:
        compared.plot(plot)
    _show(compared.to_dict() if as_json else compared.body())


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
    from . import experiments

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
    _show(verdicts if as_json else "\n".join([*lines, f"see {out / 'index.html'}"]))


@app.command()
def check(
    file: File, *, value: Value, epsilon: Epsilon, bounds: Bounds, tier: Tier = None, as_json: Json = False
) -> None:
    """PRIVATE, for the owner of the data: what is missing, unreadable or outside the bounds, and where."""
    from ._check import check as run_check

    found = run_check(file, value=value, epsilon=epsilon, bounds=bounds, tiers=_tiers(tier))
    _show(found.to_dict() if as_json else found.report())


@app.command()
def doctor(*, as_json: Json = False) -> None:
    """Test this installation: versions, and whether the noise has the right law (some seconds)."""
    from . import _doctor

    fits = _doctor.sampler_gate()
    healthy = all(fit.passed for fit in fits)
    if as_json:
        gate = [
            {"scale": f.scale, "draws": f.draws, "chi_square": f.chi_square, "p_value": f.p_value, "passed": f.passed}
            for f in fits
        ]
        _show({"healthy": healthy, "versions": _doctor.versions(), "engines": _doctor.engines(), "sampler": gate})
    else:
        _show(_doctor.report(fits))
    if not healthy:
        raise typer.Exit(1)


@app.command()
def methods(*, as_json: Json = False) -> None:
    """List the estimators."""
    from .estimators import methods as all_methods

    found = [{"name": m.name, "title": m.title, "citation": m.citation} for m in all_methods().values()]
    _show(found if as_json else "\n".join(f"{m['name']:14}{m['title']}\n{'':14}{m['citation']}" for m in found))


def main() -> None:
    """Run the command line; every foreseen error is one line on stderr and exit code 2."""
    for stream in (sys.stdout, sys.stderr):  # a terminal that cannot show ε must not lose a release
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    if len(sys.argv) == 1:
        sys.argv.append("--help")
    try:
        code = app(standalone_mode=False)
    except (HetdpError, typer.TyperException) as error:
        shown = (
            f"{error.format_message().rstrip('.')}; see --help"
            if isinstance(error, typer.TyperException)
            else str(error)
        )
        _fail(" ".join(shown.split()), 2)
    except typer.Abort:
        _fail("interrupted; nothing was written", 130)
    except BrokenPipeError:
        sys.exit(1)
    except Exception as error:  # noqa: BLE001  the last line of defence: a foreign message may quote a private cell
        trace = error.__traceback__
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        where = f"{Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}" if trace else "?"
        _fail(f"internal error {type(error).__name__} at {where}; please report it (the message is withheld)", 1)
    sys.exit(code if isinstance(code, int) else 0)


def _fail(message: str, code: int) -> None:
    print(f"hetdp: {message}", file=sys.stderr)
    sys.exit(code)


def _show(what: Any) -> None:
    if isinstance(what, str):
        print(what)
    elif isinstance(what, (dict, list)):
        plain = (sys.stdout.encoding or "").lower().replace("-", "") != "utf8"
        print(json.dumps(what, indent=2, ensure_ascii=plain, allow_nan=False))
    else:
        from rich.console import Console

        from ._report import text

        console = Console(highlight=False, markup=False)
        if console.is_terminal:
            console.print(what)
        else:
            print(text(what))


def _writable(output: Path | None, source: str | None, *, force: bool) -> None:
    """Raise for all that can be wrong with the output, before any privacy is spent."""
    if output is None:
        return
    if source is not None and output.exists() and Path(source).exists() and output.samefile(source):
        raise InputError(f"{output} is the input file; choose another name for the output")
    if output.exists() and not force:
        raise InputError(f"{output} exists already; choose another name or add --force")
    if output.is_dir() or not output.parent.is_dir():
        raise InputError(f"{output} cannot be written: its folder does not exist, or it is a folder")
    if not os.access(output if output.exists() else output.parent, os.W_OK):
        raise InputError(f"{output} cannot be written by this user")


def _picture(path: Path) -> None:
    from ._plots import require

    require()
    if path.suffix.lower() not in {".png", ".svg", ".pdf"} or not path.parent.is_dir():
        raise InputError(f"a picture needs a name in an existing folder that ends in .png, .svg or .pdf (got {path})")


def _write(output: Path, facts: Any, *, as_json: bool, html: Any, text: Any) -> None:
    suffix = ".json" if as_json else output.suffix.lower()
    if suffix == ".json":
        body = json.dumps(facts, indent=2, ensure_ascii=False, allow_nan=False)
    else:
        body = html() if suffix in {".html", ".htm"} else text()
    output.write_text(body + "\n", encoding="utf-8")


def _level(confidence: float) -> None:
    if not 0 < confidence < 1:
        raise InputError(f"the confidence level must be between 0 and 1 (got {confidence:g}); 0.95 is usual")


def _tiers(options: list[str] | None) -> dict[str, str] | None:
    tiers = {}
    for option in options or []:
        name, sign, level = option.partition("=")
        if not (name.strip() and sign and level.strip()):
            raise InputError(f"a tier is written NAME=ε, as in strict=0.1 (got {option!r})")
        if name.strip() in tiers:
            raise InputError(f"the tier {name.strip()!r} is given twice")
        tiers[name.strip()] = level
    return tiers or None


def _levels(file: str | None, epsilon: str | None, value: str | None, tier: list[str] | None) -> Levels:
    if file is not None:
        from .sources import read_levels

        if epsilon is None:
            raise InputError("a file needs --epsilon COL, the column with everybody's ε")
        return read_levels(file, epsilon=epsilon, value=value, tiers=_tiers(tier))
    if not tier:
        raise InputError("name the tiers (--tier strict=0.1:700 --tier open=inf:300) or a file with --epsilon COL")
    from ._cells import epsilon_of
    from ._levels import Levels

    counts: dict[float, int] = {}
    names: dict[float, str] = {}
    for name, text in (_tiers(tier) or {}).items():
        level_text, colon, people = text.rpartition(":")
        if not colon or not people.strip().isascii() or not people.strip().isdigit():
            raise InputError(f"a tier is written NAME=ε:PEOPLE, as in strict=0.1:700 (got '{name}={text}')")
        level = epsilon_of(level_text, f" for tier {name!r}")
        counts[level] = counts.get(level, 0) + int(people)
        names[level] = f"{names[level]}, {name}" if level in names else name
    return Levels(counts, names)
