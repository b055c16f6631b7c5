"""Make the pictures of `idea.md`, of `drift.md`, of `statistics/` and of the README, and say in numbers what they show.

Run `python docs/make_pictures.py` to write `docs/images/` again. Every number in a caption is computed here.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

import hetdp
from hetdp.privacy.exact import Choice
from hetdp.report import plots as _plots
from hetdp.statistics.quantile import rank_radius

if TYPE_CHECKING:
    from matplotlib.axes import Axes

IMAGES = Path(__file__).parent / "images"
TIERS = {0.02: "strict", 0.1: "standard", 1.0: "open", math.inf: "public"}
MIX = {0.02: 2000, 0.1: 1200, 1.0: 500, math.inf: 300}
BOUNDS = (0, 250_000)
BLUE, ORANGE, GREY, GREEN = "#0072B2", "#D55E00", "#9A9A9A", "#009E73"
METHODS = {
    "uniform": "one ε for all: the smallest",
    "proportional": "weights ∝ ε",
    "threshold": "leave the strictest out",
    "adpm": "ADPM: min(ε, t)",
    "minimax": "minimax (biased)",
}


def plan(method: str = "adpm", people: dict[float, int] | None = None) -> hetdp.Plan:
    """Return the plan of the sample file's people, by a method."""
    return hetdp.plan(people or MIX, bounds=BOUNDS, method=method)


def errors() -> dict[str, float]:
    """Return the worst-case error of each method, in units of the values."""
    return {name: plan(name).worst_case_error for name in METHODS}


def best_possible(people: dict[float, int] | None = None) -> float:
    """Return the error that no ε-DP method can go below in the worst case."""
    return math.sqrt(hetdp.certificate(people or MIX, bounds=BOUNDS).lower)


def scaled(n: int) -> dict[float, int]:
    """Return n people in the mix of the sample file, rounded."""
    return {level: max(1, round(n * count / 4000)) for level, count in MIX.items()}


def draw_waste(axes: Axes) -> None:
    """Draw the error of each method beside what no ε-DP method can beat."""
    found = errors()
    names = sorted(found, key=lambda name: -found[name])
    colours = [BLUE if name == "adpm" else GREY for name in names]
    axes.barh([METHODS[name] for name in names], [found[name] for name in names], color=colours, height=0.62)
    for place, name in enumerate(names):
        axes.text(found[name], place, f"  ±{found[name]:,.0f}", va="center", fontsize=8.5)
    floor = best_possible()
    axes.axvline(floor, color=ORANGE, linestyle="--", linewidth=1.4)
    axes.text(floor * 1.02, len(names) - 0.42, f"no ε-DP method can be below {floor:,.0f}", color=ORANGE, fontsize=8.5)
    axes.set(xlabel="worst-case error of the mean, in units of the values", ylim=(-0.6, len(names) - 0.2))
    axes.set_xlim(0, 1.17 * max(found.values()))
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.grid(visible=False, axis="y")


def draw_weights(axes: Axes) -> None:
    """Draw the weight of a person over their ε: the line min(ε, t) and the tiers on it."""
    found, t = plan(), plan().threshold
    epsilon = np.geomspace(0.008, 4, 300)
    axes.plot(epsilon, epsilon / t, color=GREY, linestyle=":", label="∝ ε: the most open decide almost alone")
    axes.axhline(0.02 / t, color=GREY, linestyle="--", linewidth=1.2, label="one ε for all: open people's trust unused")
    axes.plot(epsilon, np.minimum(epsilon, t) / t, color=BLUE, linewidth=2.2, label="ADPM: min(ε, t)")
    for row in found.table:
        x = min(row.epsilon, 3.2)
        axes.plot(x, row.spent / t, "o", color=BLUE, markersize=7)
        name = f"{TIERS[row.epsilon]}\nε = {row.epsilon:g}".replace("inf", "∞")
        place = (-34, 2) if row.epsilon == 0.1 else (0, -27)
        axes.annotate(name, (x, row.spent / t), xytext=place, textcoords="offset points", ha="center", fontsize=8)
    axes.axvline(t, color=ORANGE, linewidth=1.2)
    axes.text(t * 1.06, -0.13, f"t = {t:.3g}", color=ORANGE, fontsize=9)
    axes.set(xscale="log", xlabel="ε that a person allows", ylabel="weight, in units of the largest", ylim=(-0.2, 1.6))
    _plots.plain(axes.xaxis)
    axes.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(0, 1.2))


def draw_spent(axes: Axes) -> None:
    """Draw, per tier, what the release spends and what stays free; bars end at ε = 1."""
    rows = plan().table
    names = [f"{TIERS[row.epsilon]}  ({row.count:,})" for row in rows]
    axes.barh(names, [row.spent for row in rows], color=BLUE, height=0.55, label="spent")
    shown = [min(row.epsilon, 1.08) - row.spent for row in rows]
    axes.barh(names, shown, left=[row.spent for row in rows], color="#B9DCEF", height=0.55, label="free")
    for place, row in enumerate(rows):
        asked = "∞" if math.isinf(row.epsilon) else f"{row.epsilon:g}"
        at = min(row.epsilon, 1.08)
        arrow = "▶" if math.isinf(row.epsilon) else ""
        axes.text(at, place, f"{arrow}  {row.spent:.2g} of {asked}", va="center", fontsize=8.5)
    axes.invert_yaxis()
    axes.set(xlabel="ε: spent by one release, and left over", xlim=(0, 1.42))
    axes.set_xticks([0, 0.25, 0.5, 0.75, 1])
    axes.grid(visible=False, axis="y")
    axes.legend(frameon=False, fontsize=8.5, loc="upper right")


def draw_frontier(axes: Axes) -> None:
    """Draw the cap that may be offered to everybody above it, over the squared error that it costs."""
    found = plan()
    tolerance = np.geomspace(0.0005, 0.3, 60)
    caps = [found.frontier(x) for x in tolerance]
    axes.plot(100 * tolerance, caps, color=BLUE, linewidth=2.2)
    axes.axhline(found.threshold, color=GREY, linestyle="--", linewidth=1.2)
    axes.text(
        0.055, found.threshold + 0.002, f"t = {found.threshold:.3g}: free of charge", color="#555555", fontsize=8.5
    )
    for x in (0.01, 0.1):
        cap = found.frontier(x)
        axes.plot(100 * x, cap, "o", color=ORANGE, markersize=7)
        axes.annotate(
            f"{100 * x:g} %: ε = {cap:.3g}", (100 * x, cap), xytext=(8, 5), textcoords="offset points", fontsize=9
        )
    axes.set(
        xscale="log", xlabel="more squared error, %", ylabel="cap on everybody's ε", ylim=(0, 1.15 * found.threshold)
    )
    _plots.plain(axes.xaxis)


def draw_best(axes: Axes) -> None:
    """Draw the worst-case squared error over what no ε-DP method can beat, for more and more people of the same mix."""
    sizes = np.unique(np.geomspace(40, 10**6, 40).astype(int)).tolist()
    floors = [best_possible(scaled(n)) for n in sizes]
    axes.axhspan(0.7, 1, color=ORANGE, alpha=0.18, linewidth=0)
    axes.text(46, 0.83, "impossible for every ε-DP method, known or unknown", color="#A04000", fontsize=9, va="center")
    for method, colour, style in (("uniform", GREY, ":"), ("adpm", BLUE, "-"), ("minimax", GREEN, "-.")):
        curve = [
            (plan(method, scaled(n)).worst_case_error / floor) ** 2 for n, floor in zip(sizes, floors, strict=True)
        ]
        axes.plot(sizes, curve, color=colour, linestyle=style, linewidth=2, label=METHODS[method])
    axes.set(xscale="log", yscale="log", xlabel="people", ylabel="squared error ÷ lower bound", ylim=(0.7, 30))
    axes.set_xlim(sizes[0], sizes[-1])
    axes.xaxis.set_major_formatter("{x:,.0f}")
    _plots.plain(axes.yaxis)
    axes.legend(frameon=False, fontsize=8.5, loc="upper right")


def draw_drift(axes: Axes) -> None:
    """Draw the worst-case error over how far the means of two levels differ, for plans that expect it and others."""
    apart = np.linspace(0, 0.2, 61)
    lines: dict[str, Any] = {
        "as it is": (BLUE, "-", {}),
        "drift=0.05": (GREEN, "-", {"drift": 0.05}),
        "drift=0.2": (ORANGE, "-", {"drift": 0.2}),
        "everybody alike (uniform)": (GREY, "--", {"method": "uniform"}),
    }
    for name, (colour, style, how) in lines.items():
        found = hetdp.plan(MIX, bounds=BOUNDS, **how)
        axes.plot(apart, [found.error_at(x) for x in apart], color=colour, linestyle=style, label=name)
    promised = plan().worst_case_error
    axes.axhline(promised, color=BLUE, linestyle=":", linewidth=1)
    axes.text(0.2, promised, "promised without drift", color=BLUE, fontsize=8.5, ha="right", va="top")
    axes.set(xlabel="difference between the means of two tiers, as a share of the range", ylim=(0, 14_000))
    axes.set_ylabel("worst-case error")
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.legend(frameon=False, fontsize=8.5, loc="upper left")


def drift_caption() -> str:
    """Return the sentence of numbers under the picture of drift."""
    told = hetdp.plan(MIX, bounds=BOUNDS, drift=0.1)
    return (
        f"{plan().bias_share:.1%} of the weight is moved from strict to open people. At a difference of 0.1 the error "
        f"is ±{plan().error_at(0.1):,.0f}, where ±{plan().worst_case_error:,.0f} was promised. With drift=0.1 the plan "
        f"moves {told.bias_share:.1%} and errs by ±{told.worst_case_error:,.0f}; everybody alike by "
        f"±{plan('uniform').worst_case_error:,.0f}."
    )


PICTURES = {
    "waste": draw_waste,
    "weights": draw_weights,
    "spent": draw_spent,
    "frontier": draw_frontier,
    "best": draw_best,
}


def captions() -> dict[str, str]:
    """Return the sentence of numbers under each picture."""
    found, by_method, floor = plan(), errors(), best_possible()
    rows = {TIERS[row.epsilon]: row for row in found.table}
    best = hetdp.certificate(MIX, bounds=BOUNDS)
    small, large = (hetdp.certificate(scaled(n), bounds=BOUNDS).ratio for n in (40, 10**6))
    return {
        "waste": f"One ε for everybody errs by ±{by_method['uniform']:,.0f}, "
        f"{by_method['uniform'] / by_method['adpm']:.2f} times as much as ADPM's ±{by_method['adpm']:,.0f}; "
        f"no ε-DP method can be below ±{floor:,.0f} in the worst case.",
        "weights": f"The cap is t = {found.threshold:.3g}: an open person (ε = 1) and a public one weigh the same, "
        f"{rows['open'].spent / rows['strict'].spent:.2g} times that of a strict one (ε = 0.02).",
        "spent": f"Of ε = 1 the open tier spends {rows['open'].spent:.2g}; {rows['open'].free:.2g} stays free.",
        "frontier": f"For 1 % more squared error nobody needs to spend more than ε = {found.frontier(0.01):.3g}; "
        f"for 10 %, {found.frontier(0.1):.3g}.",
        "best": f"Here ADPM's worst-case squared error is {best.ratio:.2f} times the lower bound; "
        f"with 40 people it is {small:.1f} times, with a million {large:.2f}.",
    }


PEOPLE = Path(__file__).parents[1] / "examples" / "people.csv"
REGIONS = ("north", "south", "east", "west")
STEPS = (0, 20_000, 40_000, 60_000, 80_000, 100_000, 150_000, 250_000)
KINDS: dict[str, Any] = {
    "mean": hetdp.ask.mean(bounds=BOUNDS, value="income", missing="none"),
    "proportion": hetdp.ask.proportion(equals="north", value="region", missing="none"),
    "histogram": hetdp.ask.histogram(edges=STEPS, value="income"),
    "quantile": hetdp.ask.quantile(q=[0.1, 0.25, 0.5, 0.75, 0.9], bounds=BOUNDS, value="income", missing="none"),
    "variance": hetdp.ask.variance(bounds=BOUNDS, value="income", missing="none"),
    "mean_answered": hetdp.ask.mean(bounds=BOUNDS, value="income", missing="estimate"),
    "mean_by_group": hetdp.ask.mean_by_group(
        bounds=BOUNDS, categories=REGIONS, value="income", private_group="region", missing="none"
    ),
}
"""A question of each kind about the sample file, as the pages of `statistics/` ask it."""

COSTS: dict[str, Any] = {
    "mean": KINDS["mean"],
    "proportion": KINDS["proportion"],
    f"histogram ({len(STEPS) - 1} bins)": KINDS["histogram"],
    "median": hetdp.ask.median(bounds=BOUNDS, missing="none"),
    "median with `within`": hetdp.ask.median(bounds=BOUNDS, within=0.95, missing="none"),
    "variance": KINDS["variance"],
    "several means (2)": hetdp.ask.means(bounds={"income": BOUNDS, "age": (0, 100)}, missing="none"),
    'mean with `missing="estimate"`': KINDS["mean_answered"],
    "mean by a private group (4)": KINDS["mean_by_group"],
}


def costs() -> dict[str, str]:
    """Return what each statistic would cost the sample file's people, as rows of a table of `statistics/index.md`."""
    rows = {}
    for name, asked in COSTS.items():
        planned = hetdp.plan(MIX, statistic=asked)
        quantile = isinstance(planned.statistic.geometry, Choice)
        unit = planned.interval.width if planned.error_unit == "values" else 1.0
        of_all = planned.error_unit == "values" or quantile
        each = planned.worst_case_error / unit if of_all else planned.error_each
        radius = rank_radius(planned, 0.95) if quantile else planned.width(0.95) / unit
        plain = planned.facts.alternatives
        rows[name] = (
            f"| {name} | ±{100 * each:.2f} % | ±{100 * radius:.1f} % | {planned.table[-1].spent:.2f} "
            f"| {plain['uniform']['times']:.1f} × | {plain['proportional']['times']:.1f} × |"
        )
    return rows


def draw_answers(folder: Path) -> None:
    """Draw an answer of each kind: one release of the sample file, whose people are invented."""
    for name, asked in KINDS.items():
        answered = asked if name == "histogram" else asked.saying(missing="estimate")  # 2 % of the incomes are missing
        tally = hetdp.read(PEOPLE, epsilon="eps", statistic=answered)
        found = hetdp.release(tally, hetdp.plan(tally.levels, statistic=answered))
        found.plot(folder / f"statistic-{name}.png")
    rng = np.random.default_rng(1)
    week = pl.DataFrame({"work": rng.gamma(9, 4, 3000), "sleep": rng.normal(50, 7, 3000)})
    week = week.with_columns(eps=pl.Series(rng.choice([0.05, 0.5, 2], 3000)))
    hours = {"work": (0, 100), "sleep": (20, 90)}
    means = hetdp.mean(week, value=list(hours), epsilon="eps", bounds=hours, missing="none")
    means.plot(folder / "statistic-means.png")


def main(folder: Path = IMAGES) -> None:
    """Write all pictures."""
    folder.mkdir(exist_ok=True)
    draw_answers(folder)
    for name, draw in {**PICTURES, "drift": draw_drift}.items():
        drawn, (axes,) = _plots.figure(width=6.2, height=3.4)
        draw(axes)
        _plots.save(drawn, folder / f"{name}.png")
    drawn, (left, right) = _plots.figure(2, width=5.4, height=2.9)
    draw_waste(left)
    draw_spent(right)
    _plots.save(drawn, folder / "overview.png")


if __name__ == "__main__":
    main()
    for sentence in (*captions().values(), drift_caption(), *costs().values()):
        print(sentence)
