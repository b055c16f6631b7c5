"""Every method side by side."""

from __future__ import annotations

import json
import math
import sys

import pytest

import hetdp
from hetdp import cli as _cli

LEVELS = {0.02: 200, 0.1: 700, 1.0: 300}


@pytest.fixture(scope="module")
def compared():
    return hetdp.compare(LEVELS, bounds=(0, 10), variance=2.0)


def test_every_method_is_there_best_first(compared):
    assert {entry.method for entry in compared.entries} == set(hetdp.methods())
    errors = [entry.worst_case_error for entry in compared.entries]
    assert errors == sorted(errors)


def test_numbers_are_those_of_the_plans(compared):
    for entry in compared.entries:
        plan = hetdp.plan(LEVELS, bounds=(0, 10), method=entry.method)
        assert entry.worst_case_error == plan.worst_case_error
        assert entry.data_error == pytest.approx(math.sqrt(plan.mse(2.0)))


def test_nothing_is_below_the_floor(compared):
    assert all(entry.worst_case_error >= compared.floor for entry in compared.entries)
    assert compared.certificate.ratio < 3.5


def test_a_method_that_refuses_says_why_and_the_others_stand():
    compared = hetdp.compare({0.1: 700, math.inf: 300}, bounds=(0, 1))
    (refused,) = [entry for entry in compared.entries if entry.plan is None]
    assert refused.method == "stretch"
    assert "stretch refuses" in compared.report()
    assert json.loads(json.dumps(compared.to_dict(), allow_nan=False))["methods"][-1]["refusal"] == refused.refusal


def test_the_command_prints_plots_and_speaks_json(monkeypatch, capsys, tmp_path):
    def run(*words):
        monkeypatch.setattr(
            sys, "argv", ["hetdp", "compare", "--tier", "a=0.1:700", "--tier", "b=1:300", "--bounds", "0", "1", *words]
        )
        with pytest.raises(SystemExit) as stopped:
            _cli.main()
        return stopped.value.code, *capsys.readouterr()

    picture = tmp_path / "methods.png"
    code, out, _ = run("--plot", str(picture))
    assert code == 0
    assert "minimax" in out
    assert "known or unknown" in out
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert run("--plot", str(tmp_path / "methods.doc"))[0] == 2
    assert json.loads(run("--json")[1])["methods"][0]["method"] == "minimax"


@pytest.mark.slow
@pytest.mark.parametrize("levels", [{1: 9}, {0: 9}, {0: 9, math.inf: 8}])
def test_a_picture_is_drawn_whoever_spends_something(levels, tmp_path):
    """Also if nobody does: there is then nothing on a logarithmic axis."""
    hetdp.compare(levels, bounds=(0, 1)).plot(tmp_path / "methods.svg")
    assert "svg" in (tmp_path / "methods.svg").read_text()


def test_reports_end_with_the_certificate_of_their_own_method():
    adpm = hetdp.plan(LEVELS, bounds=(0, 10))
    certificate = hetdp.certificate(LEVELS, bounds=(0, 10))
    assert adpm.to_dict()["certificate"]["ratio"] == pytest.approx(certificate.ratio)
    assert certificate.sentence() in " ".join(adpm.report().split())
    uniform = hetdp.plan(LEVELS, bounds=(0, 10), method="uniform")
    assert uniform.to_dict()["certificate"]["ratio"] == pytest.approx(uniform.worst_case_mse / certificate.lower)
    assert "not certified" in hetdp.plan(LEVELS, bounds=(0, 10), variance=1.0).report()


def test_a_comparison_says_what_adpm_gains_if_it_is_told_of_the_variance():
    """The rows are of methods that were not told; the error of one that was stands beside them."""
    compared = hetdp.compare(LEVELS, bounds=(0, 10), variance=2.0)
    told = hetdp.plan(LEVELS, bounds=(0, 10), variance=2.0).worst_case_error
    assert compared.informed == compared.to_dict()["adpm_with_variance"] == told
    (adpm,) = [entry for entry in compared.entries if entry.method == "adpm"]
    assert told < adpm.data_error
    assert "no method was told of it; adpm that is told of it (variance=) would have" in " ".join(
        compared.report().split()
    )
    without = hetdp.compare(LEVELS, bounds=(0, 10))
    assert without.informed is None
    assert "told of it (variance=)" not in without.report()
