"""The paper, reproduced: orderings and saturation from exact formulas, tables against the printed numbers."""

from __future__ import annotations

import json
import math
import sys

import numpy as np
import pytest

import hetdp
from hetdp import cli as _cli
from hetdp.paper import experiments
from support import UNIT

FIGURE_1B = {0.1: 700}


def exact(levels, method, variance):
    return hetdp.plan(levels, method=method, bounds=UNIT).mse(variance, mean=0)


@pytest.mark.slow
def test_quick_reproduction_writes_a_folder_in_which_every_claim_holds(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["hetdp", "reproduce", "--quick", "--out", str(tmp_path / "out"), "--json"])
    with pytest.raises(SystemExit) as stopped:
        _cli.main()
    assert stopped.value.code == 0
    verdicts = json.loads(capsys.readouterr().out)
    assert {v["experiment"] for v in verdicts} == set(experiments.EXPERIMENTS)
    assert [v for v in verdicts if not v["holds"]] == []
    page = (tmp_path / "out" / "index.html").read_text(encoding="utf-8")
    for name in experiments.EXPERIMENTS:
        assert f'id="{name}"' in page
        assert (tmp_path / "out" / f"{name}.csv").read_text().count("\n") > 1
    pictures = {path.stem for path in (tmp_path / "out").glob("*.png")}
    assert pictures == {path.stem for path in (tmp_path / "out").glob("*.svg")}
    assert pictures == set(experiments.EXPERIMENTS) - {"table-1", "remark-2"}


def test_unknown_experiments_are_refused(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["hetdp", "reproduce", "--only", "figure-9"])
    with pytest.raises(SystemExit) as stopped:
        _cli.main()
    assert stopped.value.code == 2
    assert "figure-1a" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("population", experiments.POPULATIONS)
def test_table_2_is_reproduced_within_the_printed_digits(population):
    """Averaged over twelve redraws of ε; natural logarithm; exact errors for Beta(2, 3) data."""
    found = experiments.logs(population, 12, seed=7)
    column = list(experiments.POPULATIONS).index(population)
    for name, printed in experiments.PRINTED.items():
        assert np.mean(found[name]) == pytest.approx(printed[column], abs=experiments.WITHIN.get(name, 0.12)), name


def test_that_table_2_would_notice_another_logarithm():
    """Control: with log₁₀ no entry fits."""
    found = experiments.logs("high", 2, seed=7)
    assert all(
        abs(np.mean(found[name]) / math.log(10) - printed[0]) > 0.3 for name, printed in experiments.PRINTED.items()
    )


def test_figure_1b_saturates_where_the_paper_says():
    """The error falls up to ε₂ = R·ε₁ and is flat above; PropDPM turns up there."""
    saturation = hetdp.paper.bounds.R(0.1, 1000, 0.7) * 0.1
    assert saturation == pytest.approx(0.2143, abs=5e-5)
    below, above = np.linspace(0.101, saturation, 30), np.linspace(saturation * 1.0001, 20, 30)
    for grid, adpm_sign, proportional_sign in ((below, -1, -1), (above, 0, 1)):
        adpm = np.diff([exact(FIGURE_1B | {float(e): 300}, "adpm", 0.25) for e in grid])
        proportional = np.diff([exact(FIGURE_1B | {float(e): 300}, "proportional", 0.25) for e in grid])
        assert np.all(np.sign(np.where(np.abs(adpm) < 1e-11, 0, adpm)) == adpm_sign)
        assert np.all(np.sign(proportional) == proportional_sign)


@pytest.mark.parametrize("n", [100, 300, 1000, 3000, 10_000])
def test_figures_1a_and_3a_order_the_methods_as_the_paper_does(n):
    levels = {0.1: n // 2, 0.15: n // 2}
    error = {name: exact(levels, name, 1 / 12) for name in ("adpm", "uniform", "ldpe", "fme")}
    error["sampling"] = hetdp.paper.simulate.exact_mse(levels, "sampling", "uniform")
    assert min(error, key=error.get) == "adpm"
    assert error["ldpe"] > error["uniform"]
    if n >= 300:
        assert max(error, key=error.get) == "fme"


def test_figure_4_fme_keeps_the_ratio_root_two():
    for eps2 in (0.0142, 0.05, 0.5):
        plan = hetdp.plan({0.01: 5000, eps2: 5000}, method="fme", bounds=UNIT)
        assert plan.table[1].weight / plan.table[0].weight == pytest.approx(math.sqrt(2), rel=1e-6)


def test_a_missing_plotting_library_is_said_before_any_work(tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    chosen = [experiments.EXPERIMENTS["figure-2"]]
    with pytest.raises(hetdp.HetdpError, match="pip install"):
        experiments.reproduce(chosen, tmp_path / "out", experiments.Settings(quick=True))
    assert not (tmp_path / "out").exists()
    (done,) = experiments.reproduce([experiments.EXPERIMENTS["table-1"]], tmp_path / "out", experiments.Settings())
    assert done.holds


def test_that_a_wrong_claim_is_reported_as_one(tmp_path):
    """Control: a verdict that does not hold shows on the page and in the count."""
    result = experiments.Result(("x",), [(1,)], [experiments.Verdict("2 = 3", "no", False)])
    wrong = experiments.Experiment("wrong", "Wrong", "nowhere", lambda _: result)
    (done,) = experiments.reproduce([wrong], tmp_path, experiments.Settings(quick=True))
    assert not done.holds
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert "0 of 1 claims hold" in page
    assert "✗ differs" in page
