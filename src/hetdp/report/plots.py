"""Pictures: one look for all of them. Colours that colour-blind people can tell apart (Okabe and Ito)."""

from __future__ import annotations

import importlib.util
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hetdp.errors import HetdpError, InputError

from . import Provenance, level_words

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

    from hetdp.statistics.statistic import Answer

    from .compare import Comparison

COLOURS = {
    "adpm": "#0072B2",
    "minimax": "#D55E00",
    "proportional": "#009E73",
    "uniform": "#7F7F7F",
    "ldpe": "#CC79A7",
    "fme": "#E69F00",
    "sampling": "#56B4E9",
    "stretch": "#B8A600",
    "threshold": "#000000",
    "splitting": "#999933",
}
MARKERS = dict(zip(COLOURS, "oDsv^<>pX*", strict=True))
DASHED = "#444444"


def require(path: Path | None = None) -> None:
    """Raise, before any work is done, if pictures cannot be drawn here, or not in a file of this name."""
    if importlib.util.find_spec("matplotlib") is None:
        raise HetdpError("pictures need matplotlib; install it with: pip install 'hetdp[plots]'")
    if path is not None and path.suffix.lower() not in {".png", ".svg", ".pdf"}:
        raise InputError(f"the name of a picture ends in .png, .svg or .pdf (got {path})")


def figure(
    panels: int = 1, *, width: float = 5.2, height: float = 3.8, stacked: bool = False
) -> tuple[Figure, list[Axes]]:
    """Return an empty figure with panels of this size, side by side or one above the other."""
    require()
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context({"font.size": 9}):
        rows, columns = (panels, 1) if stacked else (1, panels)
        drawn = Figure(figsize=(width * columns, height * rows), layout="constrained")
        axes = list(drawn.subplots(rows, columns, squeeze=False).flat)
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(visible=True, alpha=0.25, linewidth=0.6)
    return drawn, axes


def save(drawn: Figure, path: Path) -> None:
    """Write a figure; the kind is told by the name (.png, .svg, .pdf)."""
    import matplotlib as mpl

    require(path)
    with mpl.rc_context({"svg.hashsalt": "hetdp"}):  # the same figure gives the same bytes
        drawn.savefig(path, dpi=160, metadata={"Date": None} if path.suffix == ".svg" else None)


def plain(axis: Axis) -> None:
    """Label a logarithmic axis with 0.1, 0.2, 0.5, 1 and so on."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    axis.set_minor_formatter(NullFormatter())


def answer(found: Answer, level: float) -> Figure:
    """Return the numbers of an answer with their intervals: bars for shares, ranks for quantiles, else points."""
    figures = found.figures(level)
    if any(f.shown is not None for f in figures):
        raise InputError(NO_PICTURE)
    if all("rank" in f.about for f in figures):
        return _captioned(_ranks(found, level), found.provenance)
    shares = all("people" in f.about for f in figures)
    groups: list[list[Any]] = [[f] for f in figures] if found.apart else [figures]
    tall = 0.8 if found.apart else 0.34 * len(figures) + 0.9
    drawn, axes = figure(len(groups), width=6.4, height=tall, stacked=True)
    for axis, some in zip(axes, groups, strict=True):
        places, estimates = range(len(some)), [f.estimate for f in some]
        if shares:
            axis.barh(places, estimates, height=0.7, color=COLOURS["sampling"])
            axis.axvline(0, color=DASHED, linewidth=0.8)
            axis.xaxis.set_major_formatter(lambda x, _: f"{100 * x:.3g}%")
        else:
            axis.plot(estimates, places, marker="o", linestyle="", color=COLOURS["adpm"])
            axis.xaxis.set_major_formatter(lambda x, _: f"{x:,.6g}")
        middles, halves = _ends(some)
        axis.errorbar(middles, places, xerr=halves, fmt="none", ecolor=DASHED, capsize=3, linewidth=1)
        axis.set_yticks(places, [f.label[:40] for f in some])
        axis.set_ylim(len(some) - 0.4, -0.6)
        axis.grid(visible=False, axis="y")
    axes[-1].set_xlabel(f"{'share of people' if shares else 'estimate'} and {level_words(level)} interval")
    return _captioned(drawn, found.provenance)


NO_PICTURE = (
    "a mode is one name, of which there is nothing to draw; leave out the picture, or ask for a histogram, which shows "
    "the shares of all cells"
)


def _captioned(drawn: Figure, about: Provenance) -> Figure:
    """Write below a picture what it is about and where it comes from, so that it can travel without its report."""
    words = "\n".join(textwrap.wrap(str(about), int(18 * drawn.get_figwidth())))
    drawn.supxlabel(words, x=0.01, ha="left", fontsize=6.5, color=DASHED)
    return drawn


def _ends(figures: Any) -> tuple[list[float], list[float]]:
    """Return intervals by their middles and halves; an estimate that noise carried out of the range is beside its."""
    return [f.low / 2 + f.high / 2 for f in figures], [f.high / 2 - f.low / 2 for f in figures]


def _ranks(found: Answer, level: float) -> Figure:
    """Return quantiles as points of the distribution function; the guarantee is the upright line through each."""
    figures = found.figures(level)
    drawn, (axis,) = figure(width=6.4, height=2.8)
    at, wanted = [f.estimate for f in figures], [f.about["q"] for f in figures]
    ends = [[abs(q - f.about["rank"][i]) for q, f in zip(wanted, figures, strict=True)] for i in (0, 1)]
    line: dict[str, Any] = {"ecolor": DASHED, "capsize": 3, "linewidth": 1}
    within = figures[0].about["within"]
    axis.errorbar(at, wanted, yerr=ends, fmt="none", **line)
    if within is not None:
        middles, halves = _ends(figures)
        axis.errorbar(middles, wanted, xerr=halves, fmt="none", **line)
    axis.plot(at, wanted, marker="o", linestyle="", color=COLOURS["adpm"])
    axis.xaxis.set_major_formatter(lambda x, _: f"{x:,.6g}")
    axis.yaxis.set_major_formatter(lambda y, _: f"{100 * y:.3g}%")
    across = "" if within is None else f"; across: its {100 * within:.4g}% interval"
    axis.margins(x=0.2)
    axis.set(ylim=(-0.03, 1.03), ylabel="people below")
    axis.set_xlabel(f"value (upright: its rank, {level_words(level)}{across})")
    return drawn


def comparison(compared: Comparison) -> Figure:
    """Return the methods side by side: their error beside what no ε-DP method can beat, and who spends what."""
    planned = [(entry, entry.plan) for entry in reversed(compared.entries) if entry.plan is not None]
    drawn, (left, right) = figure(2, height=0.36 * len(planned) + 1.7)
    for place, (entry, plan) in enumerate(planned):
        look: dict[str, Any] = {"color": COLOURS[entry.method], "marker": MARKERS[entry.method]}
        left.plot(entry.worst_case_error, place, markersize=8, **look)
        if entry.data_error is not None:
            left.plot(entry.data_error, place, markersize=8, fillstyle="none", **look)
        drifting = list(entry.at_drift.values())
        left.plot(drifting, [place] * len(drifting), marker="|", linewidth=0.8, color=COLOURS[entry.method])
        spends = [(row.epsilon, row.spent) for row in plan.table if 0 < row.spent < float("inf")]
        thick = 1 + 0.6 * place  # what coincides stays visible as a rim
        right.plot(*zip(*spends, strict=True), markersize=3 + thick, linewidth=thick, label=entry.method, **look)
    if compared.floor is not None:
        left.axvline(compared.floor, color=DASHED, linestyle="--", linewidth=1)
        floor = " no ε-DP method can be below in the worst case"
        left.text(compared.floor, len(planned) - 0.5, floor, color=DASHED, fontsize=8)
    data = "" if compared.data is None else f"; open, {compared.data}"
    bars = "\nbars: worst case at a drift of 0, 0.1 and 0.2" if compared.repaired else ""
    left.set_yticks(range(len(planned)), [entry.method for entry, _ in planned])
    left.set(xscale="log", ylim=(-0.6, len(planned)), xlabel=f"error: filled, worst case{data}{bars}")
    right.set(xlabel="ε that a person allows", ylabel="ε that the release spends")
    plain(left.xaxis)
    if right.dataLim.width >= 0:  # somebody spends something
        right.set(xscale="log", yscale="log")
        plain(right.xaxis)
        plain(right.yaxis)
        right.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1, 1), reverse=True)
    return _captioned(drawn, compared.about)
