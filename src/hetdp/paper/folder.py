"""`hetdp reproduce`: one folder with a picture, the numbers and a verdict for every experiment."""

from __future__ import annotations

import csv
import html
import json
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from hetdp.report.plots import require, save

from .experiment import Experiment, Result, Settings


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
        (out / "index.html").write_text(_page(done, settings), encoding="utf-8")
    return done


def _write(done: Done, out: Path) -> None:
    name, result = done.experiment.name, done.result
    with (out / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(result.columns)
        writer.writerows(result.rows)
    verdicts = [asdict(verdict) for verdict in result.verdicts]
    (out / f"{name}.json").write_text(json.dumps(verdicts, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    if result.figure is not None:
        drawn = result.figure()
        for kind in ("png", "svg"):
            save(drawn, out / f"{name}.{kind}")


_STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #5b6570; --line: #d8dee4; --good: #1a7f37; --bad: #b42318; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6edf3; --soft: #9aa4af; --line: #30363d; --good: #4ac26b; --bad: #ff7b72; }
}
body { font: 16px/1.55 system-ui, sans-serif; color: var(--ink); }
body { max-width: 60rem; margin: 3rem auto; padding: 0 1.2rem; }
h1 { font-size: 1.7rem; margin-bottom: .2rem; } h2 { font-size: 1.2rem; margin: 3rem 0 .2rem; }
p, .place { color: var(--soft); } .place { font-size: .9rem; margin: 0 0 .8rem; }
img { max-width: 100%; background: #fff; border: 1px solid var(--line); border-radius: 8px; padding: .5rem; }
table { border-collapse: collapse; width: 100%; margin: .8rem 0; font-size: .92rem; }
td, th { text-align: left; vertical-align: top; padding: .35rem .8rem .35rem 0; border-top: 1px solid var(--line); }
.yes { color: var(--good); white-space: nowrap; } .no { color: var(--bad); white-space: nowrap; font-weight: 600; }
a { color: inherit; }
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
