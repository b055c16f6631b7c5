"""Pictures: one look for all of them. Colours that colour-blind people can tell apart (Okabe and Ito)."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING

from hetdp.errors import HetdpError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

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

    with mpl.rc_context({"svg.hashsalt": "hetdp"}):  # the same figure gives the same bytes
        drawn.savefig(path, dpi=160, metadata={"Date": None} if path.suffix == ".svg" else None)


def plain(axis: Axis) -> None:
    """Label a logarithmic axis with 0.1, 0.2, 0.5, 1 and so on."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    axis.set_minor_formatter(NullFormatter())
