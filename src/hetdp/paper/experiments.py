"""Every figure, table and worked example of the paper, and ours, by name; `hetdp reproduce` writes them to a folder.

>>> from hetdp import paper
>>> result = paper.experiments.run("table-1")
>>> all(verdict.holds for verdict in result.verdicts)
True
"""

from __future__ import annotations

import csv
import html
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from hetdp.errors import InputError
from hetdp.files import to_json, write_whole
from hetdp.report.plots import require, save

from . import figures, tables
from .experiment import Experiment, Result, Settings, Verdict

__all__ = ["EXPERIMENTS", "Experiment", "Result", "Settings", "Verdict", "reproduce", "run"]

# in the order of the paper, ours last
EXPERIMENTS = {entry.name: entry for entry in (*figures.EXPERIMENTS, *tables.EXPERIMENTS)}


def run(name: str, *, runs: int | None = None, quick: bool = False, seed: int = 2023) -> Result:
    """Return the numbers, verdicts and picture of one experiment."""
    if name not in EXPERIMENTS:
        raise InputError(f"unknown experiment {name!r}; choose one of {', '.join(EXPERIMENTS)}")
    return EXPERIMENTS[name].run(Settings(runs, quick, seed))


@dataclass(frozen=True)
class Done:
    """One experiment that was run."""

    experiment: Experiment
    result: Result
    seconds: float

    @property
    def holds(self) -> bool:
        """Whether every claim holds."""
        return all(verdict.holds for verdict in self.result.verdicts)


def reproduce(
    experiments: Iterable[Experiment], out: Path, settings: Settings, tell: Callable[[str], None] = lambda _: None
) -> list[Done]:
    """Run experiments and write `out`/index.html with all of them; each is written as soon as it is done."""
    chosen = list(experiments)
    if any(experiment.picture for experiment in chosen):
        require()
    out.mkdir(parents=True, exist_ok=True)
    done: list[Done] = []
    for experiment in chosen:
        tell(f"{experiment.name}: {experiment.title}")
        start = time.monotonic()
        done.append(Done(experiment, experiment.run(settings), time.monotonic() - start))
        _write(done[-1], out)
        write_whole(out / "index.html", _page(done, settings), public=True)
    return done


def _write(done: Done, out: Path) -> None:
    name, result = done.experiment.name, done.result
    with (out / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([result.columns, *result.rows])
    verdicts = [asdict(verdict) for verdict in result.verdicts]
    write_whole(out / f"{name}.json", to_json(verdicts) + "\n", public=True)
    if result.figure is not None:
        drawn = result.figure()
        for kind in ("png", "svg"):
            save(drawn, out / f"{name}.{kind}")


_STYLE = """
:root { color-scheme: light dark; font: 16px/1.55 system-ui, sans-serif; }
body { max-width: 60rem; margin: 3rem auto; padding: 0 1.2rem; } h2 { margin: 3rem 0 .2rem; } a { color: inherit; }
img { max-width: 100%; background: #fff; border-radius: 8px; } .place { opacity: .7; }
table { border-collapse: collapse; width: 100%; } .yes { color: #2da44e; } .no { color: #e5534b; font-weight: 600; }
td, th { text-align: left; vertical-align: top; padding: .35rem .8rem .35rem 0; border-top: 1px solid #8886; }
"""


def _page(done: list[Done], settings: Settings) -> str:
    runs = f"{settings.runs:,} runs per point" if settings.runs else "the paper's own numbers of runs"
    how = "a quick look with fewer runs and coarser grids" if settings.quick and not settings.runs else runs
    held = sum(verdict.holds for item in done for verdict in item.result.verdicts)
    total = sum(len(item.result.verdicts) for item in done)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>The paper, reproduced</title><style>{_STYLE}</style></head><body>"
        "<h1>Mean Estimation Under Heterogeneous Privacy, reproduced</h1>"
        f"<p>{held} of {total} claims hold. Computed with {how}, seed {settings.seed}. "
        "Where the paper and the mathematics disagree, the errata say why.</p>"
        + "".join(_section(item) for item in done)
        + "</body></html>\n"
    )


def _section(item: Done) -> str:
    entry, result = item.experiment, item.result
    rows = "".join(
        f'<tr><td class="{"yes" if v.holds else "no"}">{"✓ holds" if v.holds else "✗ differs"}</td>'
        f"<td>{html.escape(v.claim)}</td><td>{html.escape(v.found)}</td></tr>"
        for v in result.verdicts
    )
    picture = f'<img src="{entry.name}.png" alt="{html.escape(entry.title)}">' if result.figure is not None else ""
    links = f'<a href="{entry.name}.csv">numbers</a>' + (f' · <a href="{entry.name}.svg">SVG</a>' if picture else "")
    return (
        f'<h2 id="{entry.name}">{html.escape(entry.title)}</h2>'
        f'<p class="place">{html.escape(entry.place)} · {links} · {item.seconds:.1f} s</p>{picture}'
        f"<table><tr><th></th><th>Claim</th><th>Found</th></tr>{rows}</table>"
    )
