"""Pictures: one look for all of them. Colours that colour-blind people can tell apart (Okabe and Ito)."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hetdp.errors import HetdpError, InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

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
}
MARKERS = dict(zip(COLOURS, "oDsv^<>pX", strict=True))
DASHED = "#444444"


def require() -> None:
    """Raise, before any work is done, if pictures cannot be drawn here."""
    if importlib.util.find_spec("matplotlib") is None:
        raise HetdpError("pictures need matplotlib; install it with: pip install 'hetdp[plots]'")


def figure(panels: int = 1, *, width: float = 5.2, height: float = 3.8) -> tuple[Figure, list[Axes]]:
    """Return an empty figure with panels side by side."""
    require()
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context({"font.size": 9}):
        drawn = Figure(figsize=(width * panels, height), layout="constrained")
        axes = list(drawn.subplots(1, panels, squeeze=False)[0])
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(visible=True, alpha=0.25, linewidth=0.6)
    return drawn, axes


def save(drawn: Figure, path: Path) -> None:
    """Write a figure; the kind is told by the name (.png, .svg, .pdf)."""
    import matplotlib as mpl

    if path.suffix.lower() not in {".png", ".svg", ".pdf"}:
        raise InputError(f"the name of a picture ends in .png, .svg or .pdf (got {path})")
    with mpl.rc_context({"svg.hashsalt": "hetdp"}):  # the same figure gives the same bytes
        drawn.savefig(path, dpi=160, metadata={"Date": None} if path.suffix == ".svg" else None)


def plain(axis: Axis) -> None:
    """Label a logarithmic axis with 0.1, 0.2, 0.5, 1 and so on."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    axis.set_minor_formatter(NullFormatter())


def comparison(compared: Comparison) -> Figure:
    """Return the methods side by side: their error beside what no ε-DP method can beat, and who spends what."""
    planned = [(entry, entry.plan) for entry in reversed(compared.entries) if entry.plan is not None]
    drawn, (left, right) = figure(2, height=0.36 * len(planned) + 1.7)
    for place, (entry, plan) in enumerate(planned):
        look: dict[str, Any] = {"color": COLOURS[entry.method], "marker": MARKERS[entry.method]}
        left.plot(entry.worst_case_error, place, markersize=8, **look)
        left.plot(entry.data_error, place, markersize=8, fillstyle="none", **look)
        spends = [(row.epsilon, row.spent) for row in plan.table if 0 < row.spent < float("inf")]
        thick = 1 + 0.6 * place  # what coincides stays visible as a rim
        right.plot(*zip(*spends, strict=True), markersize=3 + thick, linewidth=thick, label=entry.method, **look)
    left.axvline(compared.floor, color=DASHED, linestyle="--", linewidth=1)
    floor = " no ε-DP method can be below in the worst case"
    left.text(compared.floor, len(planned) - 0.5, floor, color=DASHED, fontsize=8)
    left.set_yticks(range(len(planned)), [entry.method for entry, _ in planned])
    left.set(xscale="log", ylim=(-0.6, len(planned)), xlabel=f"error: filled, worst case; open, {compared.data}")
    right.set(xlabel="ε that a person allows", ylabel="ε that the release spends")
    plain(left.xaxis)
    if right.dataLim.width >= 0:  # somebody spends something
        right.set(xscale="log", yscale="log")
        plain(right.xaxis)
        plain(right.yaxis)
        right.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1, 1), reverse=True)
    return drawn
