"""Figures 1 and 3: the error against n, and against ε₂; Figure 3 adds FME."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hetdp.core.plan import plan
from hetdp.estimators import methods

from . import bounds
from .experiment import Experiment, Result, Rows, Settings, Verdict, agreement, simulated
from .simulate import Simulation

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SIZES = tuple(int(n) for n in np.unique(np.round(np.geomspace(100, 10_000, 13) / 2) * 2))
_EPSILON2 = tuple(np.round(np.concatenate([np.linspace(0.11, 0.3, 11), np.linspace(0.35, 1.0, 8)]), 4).tolist())
_RUNS = 200_000
_FIGURE1A = ("adpm", "ldpe", "sampling", "uniform")
_FIGURE1B = ("adpm", "proportional", "ldpe", "sampling", "uniform")
Points = dict[float, dict[str, Simulation]]


def by_size(settings: Settings, names: tuple[str, ...]) -> Points:
    """Return simulations against n at ε₁ = 0.1, ε₂ = 0.15, f = 0.5, uniform data."""
    return {n: simulated(_halves(n), names, "uniform", settings, runs=_RUNS, key=n) for n in settings.thinned(_SIZES)}


def by_epsilon(settings: Settings, names: tuple[str, ...]) -> Points:
    """Return simulations against ε₂ at ε₁ = 0.1, f = 0.7, n = 1000, Bernoulli data."""
    return {
        eps2: simulated(_two_groups(eps2), names, "bernoulli", settings, runs=_RUNS, key=round(eps2 * 1e6))
        for eps2 in settings.thinned(_EPSILON2)
    }


def _halves(n: float) -> dict[float, int]:
    return {0.1: round(n / 2), 0.15: round(n / 2)}


def _two_groups(eps2: float) -> dict[float, int]:
    return {0.1: 700, eps2: 300}


def exact(levels: dict[float, int], name: str, variance: float) -> float:
    """Return the exact error of an affine method for data centred in the interval."""
    return plan(levels, method=name, bounds=(-0.5, 0.5)).mse(variance, mean=0.0)


def second_order(mse: float, n: float, power: int) -> float:
    """Return (MSE − 1/(12n))·n^power, as the paper plots it."""
    return (mse - 1 / (12 * n)) * n**power


def _rows(points: Points) -> Rows:
    return [
        (x, name, point.mse, point.standard_error, point.exact_mse)
        for x, found in points.items()
        for name, point in found.items()
    ]


def _figure1a(settings: Settings) -> Result:
    points = by_size(settings, _FIGURE1A)
    curve = {n: {m: point.exact_mse or point.mse for m, point in found.items()} for n, found in points.items()}
    trend = [second_order(curve[n]["sampling"], n, 2) for n in points]
    verdicts = [
        Verdict("ADPM has the smallest error of the four at every n", f"at {len(curve)} sizes",
                all(found["adpm"] == min(found.values()) for found in curve.values())),
        Verdict("LDPE is worse than ADPM and UNI", f"at {len(curve)} sizes",
                all(found["ldpe"] > max(found["adpm"], found["uniform"]) for found in curve.values())),
        Verdict("SM is close to ADPM for small n and drifts upwards", f"from {trend[0]:.1f} to {trend[-1]:.1f}",
                trend[-1] > trend[0] and curve[min(curve)]["sampling"] < 1.1 * curve[min(curve)]["adpm"]),
        agreement([point for found in points.values() for point in found.values()]),
    ]  # fmt: skip
    return Result(("n", "method", "mse", "standard_error", "exact_mse"), _rows(points), verdicts,
                  lambda: _draw_by_size(points, 2))  # fmt: skip


def _figure1b(settings: Settings) -> Result:
    points = by_epsilon(settings, _FIGURE1B)
    saturation = bounds.R(0.1, 1000, 0.7) * 0.1
    fine = np.linspace(saturation, 5, 200)
    adpm = [exact(_two_groups(float(e)), "adpm", 0.25) for e in fine]
    before = [exact(_two_groups(float(e)), "adpm", 0.25) for e in np.linspace(0.101, saturation, 50)]
    proportional = [exact(_two_groups(float(e)), "proportional", 0.25) for e in fine]
    far = exact({0.1: 700, 1e6: 300}, "ldpe", 0.25)
    verdicts = [
        Verdict("ADPM does not improve above ε₂ = R·ε₁", f"R·ε₁ = {saturation:.4f}; error there {adpm[0]:.4e}, "
                f"largest change above {np.ptp(adpm):.1e}", float(np.ptp(adpm)) < 1e-6 * adpm[0]),
        Verdict("ADPM improves up to ε₂ = R·ε₁", f"from {before[0]:.3e} to {before[-1]:.3e}",
                bool(np.all(np.diff(before) < 0))),
        Verdict("PropDPM degrades above R·ε₁", f"from {proportional[0]:.3e} to {proportional[-1]:.3e}",
                bool(np.all(np.diff(proportional) > 0))),
        Verdict("LDPE reaches ADPM's error as ε₂ → ∞ (Remark 2)", f"{far:.6e} against {adpm[-1]:.6e}",
                abs(far / adpm[-1] - 1) < 1e-6),
        agreement([point for found in points.values() for point in found.values()]),
    ]  # fmt: skip
    return Result(("epsilon2", "method", "mse", "standard_error", "exact_mse"), _rows(points), verdicts,
                  lambda: _draw_by_epsilon(points, saturation))  # fmt: skip


def _figure3a(settings: Settings) -> Result:
    points = by_size(settings, ("adpm", "ldpe", "fme"))
    curve = {n: {m: exact(_halves(n), m, 1 / 12) for m in found} for n, found in points.items()}
    worse = {n: second_order(found["fme"], n, 1) / second_order(found["adpm"], n, 1) for n, found in curve.items()}
    verdicts = [
        Verdict("ADPM performs better than FME and LDPE", f"at {len(curve)} sizes",
                all(found["adpm"] == min(found.values()) for found in curve.values())),
        Verdict("FME degrades poorly with n: its excess over 1/(12n) falls behind that of ADPM",
                f"ratio of the excesses from {worse[min(worse)]:.1f} to {worse[max(worse)]:.1f}",
                worse[max(worse)] > worse[min(worse)]),
        agreement([point for found in points.values() for point in found.values()]),
    ]  # fmt: skip
    return Result(("n", "method", "mse", "standard_error", "exact_mse"), _rows(points), verdicts,
                  lambda: _draw_by_size(points, 1))  # fmt: skip


def _figure3b(settings: Settings) -> Result:
    names = ("adpm", "ldpe", "fme")
    points = by_epsilon(settings, names)
    saturation = bounds.R(0.1, 1000, 0.7) * 0.1
    ratio = [exact(_two_groups(e), "fme", 0.25) / exact(_two_groups(e), "adpm", 0.25) for e in _EPSILON2]
    verdicts = [
        Verdict("FME is far worse than ADPM (the paper says: an order of magnitude)",
                f"{min(ratio):.1f} to {max(ratio):.1f} times its error", min(ratio) > 3),
        Verdict("ADPM is never worse than LDPE", f"at {len(_EPSILON2)} values of ε₂",
                all(exact(_two_groups(e), "adpm", 0.25) <= exact(_two_groups(e), "ldpe", 0.25) * (1 + 1e-9)
                    for e in _EPSILON2)),
        agreement([point for found in points.values() for point in found.values()]),
    ]  # fmt: skip
    return Result(("epsilon2", "method", "mse", "standard_error", "exact_mse"), _rows(points), verdicts,
                  lambda: _draw_by_epsilon(points, saturation))  # fmt: skip


def _draw_by_size(points: Points, power: int) -> Figure:
    from hetdp.report.plots import COLOURS, MARKERS, beside, figure, plain

    drawn, (axis,) = figure()
    sizes = np.array(list(points))
    for name in next(iter(points.values())):
        found = [points[n][name] for n in points]
        y = np.array([second_order(point.mse, n, power) for n, point in zip(sizes, found, strict=True)])
        error = np.array([4 * point.standard_error for point in found]) * sizes**power
        axis.errorbar(sizes, y, yerr=error, color=COLOURS[name], marker=MARKERS[name], markersize=4, linewidth=0,
                      elinewidth=1, label=methods()[name].label)  # fmt: skip
        line = [second_order(point.exact_mse or point.mse, n, power) for n, point in zip(sizes, found, strict=True)]
        axis.plot(sizes, line, color=COLOURS[name], linewidth=1)
    axis.set(xscale="log", xlabel="n", ylabel=f"(MSE − 1/(12n))·n{'²' if power == 2 else ''}")
    if power == 1:
        axis.set_yscale("log")
        plain(axis.yaxis)
    beside(axis)
    axis.set_title("lines: exact; points: simulated, ± 4 standard errors", fontsize=8)
    return drawn


def _draw_by_epsilon(points: Points, saturation: float) -> Figure:
    from hetdp.report.plots import COLOURS, DASHED, MARKERS, beside, figure, plain

    drawn, (axis,) = figure()
    x = np.array(list(points))
    for name in next(iter(points.values())):
        found = [points[e][name] for e in points]
        axis.errorbar(x, [1e4 * p.mse for p in found], yerr=[4e4 * p.standard_error for p in found], linewidth=0,
                      elinewidth=1, color=COLOURS[name], marker=MARKERS[name], markersize=4,
                      label=methods()[name].label)  # fmt: skip
        axis.plot(x, [1e4 * (p.exact_mse or p.mse) for p in found], color=COLOURS[name], linewidth=1)
    axis.axvline(saturation, color=DASHED, linestyle="--", linewidth=1)
    axis.text(saturation, axis.get_ylim()[1], " ε₂ = R·ε₁", fontsize=8, va="top", color=DASHED)
    axis.set(xlabel="ε₂", ylabel="MSE × 10⁴")
    if "fme" in next(iter(points.values())):
        axis.set_yscale("log")
        plain(axis.yaxis)
    beside(axis)
    axis.set_title("lines: exact; points: simulated, ± 4 standard errors", fontsize=8)
    return drawn


EXPERIMENTS = (
    Experiment("figure-1a", "Error against n", "Figure 1 (A)", _figure1a),
    Experiment("figure-1b", "Error against ε₂: the saturation", "Figure 1 (B)", _figure1b),
    Experiment("figure-3a", "Error against n, with FME", "Figure 3 (A)", _figure3a),
    Experiment("figure-3b", "Error against ε₂, with FME", "Figure 3 (B)", _figure3b),
)
