"""Answers with several numbers: their units, what a report, a picture and the JSON say of them."""

from __future__ import annotations

import json
import math

import polars as pl
import pytest
from matplotlib.figure import Figure as Drawing

import hetdp
from hetdp import InputError
from hetdp.report import plots

LEVELS = {0.02: 2000, 0.1: 1200, 1.0: 500, math.inf: 300}
WIDE = (0, 250_000)
NUMBERS = {"variance": (0.2, 0.5), "mean": (0.2, 0.6, 0.2), "mean_by_group": (0.1, 0.3, 0.2, 0.2, 0.1, 0.1)}
MORE = {"mean": {"missing": "estimate"}, "mean_by_group": {"categories": ["a", "b"]}}


def answer(name, bounds, **plan):
    """An answer whose noisy numbers are given, so that only its units can differ."""
    asked = getattr(hetdp.ask, name)(bounds=bounds, **MORE.get(name, {}))
    return asked.answer(hetdp.plan(LEVELS, statistic=asked, **plan), NUMBERS[name])


@pytest.mark.parametrize("name", NUMBERS)
def test_an_interval_is_as_wide_in_units_as_the_same_on_an_interval_of_length_1(name):
    """The bounds only scale values: shares stay, means are 250,000 times as large, a variance its square."""
    unit, wide = answer(name, (0, 1)).figures(), answer(name, WIDE).figures()
    for one, other in zip(unit, wide, strict=True):
        power = {"answered": 0, "variance": 2}.get(one.label, 1)
        scaled = [x * WIDE[1] ** power for x in (one.estimate, one.low, one.high)]
        assert [other.estimate, other.low, other.high] == pytest.approx(scaled, rel=1e-6)
        assert one.high - one.low < 0.7


@pytest.mark.parametrize("name", NUMBERS)
def test_the_error_of_several_numbers_does_not_depend_on_the_bounds_unless_it_is_in_units_of_the_values(name):
    plans = [answer(name, bounds).plan for bounds in ((0, 1), WIDE)]
    width = WIDE[1] if plans[0].error_unit == "values" else 1
    assert width * plans[0].worst_case_error == pytest.approx(plans[1].worst_case_error, rel=1e-9)
    assert plans[0].worst_case_error < 0.05
    assert plans[0].radius(0.95) == pytest.approx(plans[1].radius(0.95), rel=1e-9)
    control = [hetdp.plan(LEVELS, bounds=bounds).worst_case_error for bounds in ((0, 1), WIDE)]
    assert control[1] == pytest.approx(WIDE[1] * control[0])


def quantiles(**options):
    asked = hetdp.ask.median(bounds=(0, 4096), **options)
    return asked.answer(hetdp.plan(LEVELS, statistic=asked), (10.0, 5.0, 20.0)[: asked.geometry.picks])


def test_a_bin_is_called_a_bin_and_an_interval_only_what_was_asked_for():
    bare, asked = quantiles(), quantiles(within=0.9)
    assert "  Grid cell  " in bare.report()
    assert "interval" not in bare.report().splitlines()[0]
    assert "90% interval" in asked.report().splitlines()[0]
    (one,), (other,) = (json.loads(found.to_json())["results"] for found in (bare, asked))
    assert "interval" not in one
    assert len(one["bin"]) == len(one["rank"]) == 2
    assert "bin" not in other
    assert other["interval"] == list(asked.confidence_interval()[0.5])


def test_a_quantile_has_no_radius_and_says_where_the_guarantee_is():
    with pytest.raises(InputError, match="the guarantee is in rank"):
        quantiles().plan.radius(0.95)


def test_one_number_can_be_formatted_and_several_cannot():
    """A standard deviation comes with a mean and a variance: which of them a float would be is not guessed."""
    assert f"{quantiles():.1f}" == f"{quantiles().estimate:.1f}"
    for several in (answer("variance", WIDE), hetdp.histogram(["a"] * 500, epsilon=1, categories=["a", "b"])):
        with pytest.raises(TypeError):
            float(several)
        with pytest.raises(TypeError):
            format(several, ".2f")
        assert f"{several}" == several.report()


def test_the_answers_to_several_questions_show_what_every_tier_spends_on_each(tmp_path):
    table = tmp_path / "t.csv"
    table.write_text("x,g,tier\n" + "3,a,strict\n" * 300 + "4,b,open\n" * 300)
    asked = {"x": hetdp.ask.std(bounds=(0, 10), missing="none"), "g": hetdp.ask.histogram(categories=["a", "b"])}
    found = hetdp.ask(table, asked, epsilon="tier", tiers={"strict": 0.5, "open": 4})
    lines = found.report().splitlines()
    assert "Question    x: private variance, with mean and standard deviation" in lines
    (strict,) = [line.split() for line in lines if line.startswith("strict ")]
    assert strict == ["strict", "0.5", "300", "0.25", "0.25", "0.5"]


def test_more_levels_than_fit_are_counted():
    table = {"x": [0.5] * 900, "eps": [0.1 + i % 30 / 100 for i in range(900)]}
    found = hetdp.ask(pl.DataFrame(table), {"x": hetdp.ask.mean(bounds=(0, 1), missing="none")}, epsilon="eps")
    assert "6 more levels of ε are not shown" in found.report()
    assert len(found.to_dict()["spent_together"]) == 30


@pytest.mark.parametrize("name", NUMBERS)
def test_a_picture_has_an_axis_for_each_unit(name):
    drawn = plots.answer(answer(name, WIDE), 0.95)
    assert isinstance(drawn, Drawing)
    assert len(drawn.axes) == {"variance": 3, "mean": 2, "mean_by_group": 1}[name]


def test_a_picture_of_a_quantile_shows_its_ranks_and_calls_no_bin_an_interval():
    (bare,), (asked,) = (plots.answer(found, 0.95).axes for found in (quantiles(), quantiles(within=0.9)))
    assert "interval" not in bare.get_xlabel()
    assert "90% interval" in asked.get_xlabel()
    assert len(asked.containers) == len(bare.containers) + 1


def test_an_interval_is_drawn_where_it_is_also_if_noise_carried_its_estimate_out_of_the_range():
    asked = hetdp.ask.histogram(categories=["a"])
    found = asked.answer(hetdp.plan(LEVELS, statistic=asked), (1.2, -0.2))
    (axis,) = plots.answer(found, 0.95).axes
    bars = [container for container in axis.containers if hasattr(container, "has_xerr")]
    ends = [segment[:, 0].tolist() for segment in bars[0][2][0].get_segments()]
    assert ends == [pytest.approx(pair) for pair in found.confidence_interval().values()]


REFUSED = {
    "--plot x.jpg": "the name of a picture ends in .png, .svg or .pdf (got x.jpg)",
    "--plot x.png --by g --public-column g": "a picture shows one answer, not one for each group",
    "--simplex --by g --public-column g": "--simplex is for one histogram",
}


@pytest.mark.parametrize("options", REFUSED)
def test_what_cannot_be_handed_out_is_refused_before_anything_is_released(
    options, tmp_path, monkeypatch, hetdp_command
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_text("x,g,eps\n" + "a,u,1\nb,v,1\n" * 100)
    words = ("histogram", "t.csv", "--value", "x", "--epsilon", "eps", "--categories", "a,b")
    code, out, err = hetdp_command(*words, *options.split())
    assert (code, out) == (2, "")
    assert REFUSED[options] in err
    assert hetdp_command(*words)[0] == 0
    mean = ("mean", "t.csv", "--value", "g", "--missing", "midpoint", "--epsilon", "eps", "--bounds", 0, 1)
    assert hetdp_command(*mean, "--simplex")[0] == 2


@pytest.mark.parametrize("name", ["median", "std"])
def test_a_statistic_with_another_name_is_found_by_it_everywhere(name, tmp_path, monkeypatch, hetdp_command):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_text("x,eps\n" + "1,1\n2,1\n" * 100)
    (tmp_path / "q.toml").write_text(f'[x]\nstatistic = "{name}"\nbounds = [0, 3]\nmissing = "midpoint"\n')
    words = ("--epsilon", "eps", "--bounds", 0, 3)
    assert hetdp_command("plan", "t.csv", "--statistic", name, *words)[0] == 0
    assert hetdp_command(name, "t.csv", "--value", "x", "--missing", "midpoint", *words)[0] == 0
    assert hetdp_command("ask", "t.csv", "q.toml", "--epsilon", "eps", "--missing", "none")[0] == 0
    assert getattr(hetdp.ask, name)(bounds=(0, 3)).name in ("quantile", "variance")
    assert getattr(hetdp, name).__name__ == name
    assert "no statistic 'mode of life'; there are mean" in hetdp_command("plan", "--statistic", "mode of life")[2]
    with pytest.raises(AttributeError, match="no attribute 'modest'"):
        _ = hetdp.ask.modest


def test_rows_are_not_averaged_where_people_are_sorted_into_cells():
    for name, more in (("histogram", {"categories": [1]}), ("mode", {"categories": [1]}), ("count", {"equals": 1})):
        with pytest.raises(InputError, match="sorted into cells; keep one row of each person"):
            getattr(hetdp, name)([1, 2, 1], epsilon=1, person=["a", "a", "b"], rows="average", **more)
    for name in ("std", "median"):
        found = getattr(hetdp, name)([1, 2] * 200, epsilon=1, bounds=(0, 2), person=["a", "b"] * 200, rows="average")
        assert found.plan.n == 2


def test_a_quantile_of_rows_that_are_averaged_is_one_of_the_averages():
    """Of 1 and 3 everybody has 2 on average; a quantile of rows would be 1 or 3."""
    people = [str(i // 2) for i in range(800)]
    found = hetdp.median([1, 3] * 400, epsilon=math.inf, bounds=(0, 4), person=people, rows="average")
    assert found.plan.n == 400
    assert found.estimate == pytest.approx(2, abs=2e-3)


def test_a_table_of_groups_has_the_numbers_of_each_as_its_own_report_has_them():
    """A bin is no interval there either, and the width of a bin is nobody's error. A mean has its worst case."""
    people = pl.DataFrame({"x": [1.0, 2.0] * 200, "g": ["u"] * 200 + ["v"] * 200, "eps": [1.0] * 400})
    how = {"value": "x", "epsilon": "eps", "bounds": (0, 3), "missing": "none", "by": "g", "public_columns": ["g"]}
    heads = [getattr(hetdp, name)(people, **how).report().splitlines()[0] for name in ("median", "std", "mean")]
    assert heads[0].split() == [
        "Group",
        "Quantile",
        "Estimate",
        "Grid",
        "cell",
        "Rank",
        "between",
        "Group",
        "of",
        "Most",
        "spent",
    ]
    assert "Worst case" not in heads[1]
    assert "Worst case" in heads[2]
    shares = hetdp.histogram(
        people, categories=[1, 2], **{name: how[name] for name in how if name not in ("bounds", "missing")}
    )
    rows = [line.split() for line in shares.report().splitlines()[1:7]]
    assert [row[0] for row in rows] == ["u", "2", "other", "v", "2", "other"]
    assert rows[0][2] == f"{100 * shares['u']['1']:.1f}%"


def test_a_share_below_zero_is_explained_under_its_table_and_only_there():
    cells, note = [f"c{i}" for i in range(40)], "a share below 0 is noise: read it as a share near 0"
    noisy = hetdp.histogram(["c0"] * 4000, epsilon=0.5, categories=cells)
    assert min(noisy[cell] for cell in cells) < 0  # 39 empty cells: each is below 0 in about half of all releases
    above, _, below = noisy.report().partition(note)
    assert "other" in above
    assert "Intervals" in below
    public = hetdp.histogram(["c0"] * 4000, epsilon=float("inf"), categories=cells)
    assert note not in public.report()


@pytest.mark.parametrize(("share", "shown"), [(-0.02, True), (-1e-6, False)])
def test_a_share_that_is_printed_as_zero_is_not_called_below_it(share, shown):
    asked = hetdp.ask.histogram(categories=["a"])
    found = asked.answer(hetdp.plan({0.5: 4000}, statistic=asked), (share, 1 - share))
    assert ("-2.00%" in found.report(), "a share below 0" in found.report()) == (shown, shown)
