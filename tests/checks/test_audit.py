"""The audit lets a right installation pass, finds planted faults, and says truly how much it can see."""

from __future__ import annotations

import inspect
import json
import math

import numpy as np
import pytest
from scipy.stats import binom

import hetdp
from hetdp.checks import audit as _audit
from hetdp.checks.audit import audit, log_ratio, lower_bound, reach
from hetdp.checks.doctor import sampler_gate
from hetdp.cli.public import audit as command
from hetdp.privacy.release import noisy

INF = math.inf
LEVELS = {0.0: 3, 0.1: 200, 1.0: 40, 4.0: 10}
FEW = {"draws": 200}


@pytest.fixture(autouse=True)
def short_gate(monkeypatch):
    """The gate has tests of its own; here it gets fewer draws."""
    monkeypatch.setattr("hetdp.checks.audit.sampler_gate", lambda: sampler_gate(draws=400))


# The lower bound


@pytest.mark.parametrize(("often", "seldom", "draws"), [(60, 20, 100), (100, 0, 100), (1, 1, 7), (5_000, 7, 9_000)])
def test_the_bound_inverts_the_tails_of_the_binomial_law(often, seldom, draws):
    """At the lower bound on p so many or more have probability α/2, at the upper bound on p′ so few or fewer."""
    alpha = 1e-6
    bound = float(log_ratio(np.array(often), np.array(seldom), draws, alpha))
    low = next(p for p in bisected(lambda p: binom.sf(often - 1, draws, p) < alpha / 2))
    high = next(p for p in bisected(lambda p: binom.cdf(seldom, draws, p) > alpha / 2))
    assert bound == pytest.approx(math.log(low / high), abs=1e-9)


def bisected(below):
    low, high = 0.0, 1.0
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if below(middle) else (low, middle)
    yield high


def test_no_success_shows_nothing():
    assert log_ratio(np.array(0), np.array(10), 10, 0.1) == -INF
    assert lower_bound(np.zeros(100), np.zeros(100), 0.1) == 0


@pytest.mark.slow
@pytest.mark.parametrize("loss", [0.3, 2.0])
def test_the_bound_is_above_the_true_loss_no_more_often_than_it_says(loss):
    """And it is not idle: its average is near what `reach` expects."""
    rng, alpha, runs = np.random.default_rng(5), 0.2, 500
    pairs = [(rng.laplace(0, 1, 400), rng.laplace(loss, 1, 400)) for _ in range(runs)]
    bounds = [lower_bound(*pair, alpha) for pair in pairs]
    assert sum(bound > loss for bound in bounds) <= binom.isf(1e-9, runs, alpha)
    assert np.mean(bounds) == pytest.approx(reach(loss, 400, alpha), abs=0.25)
    assert sum(bound > loss * 0.6 for bound in bounds) > 0.02 * runs


def same_twice(results):
    """Results whose second half, which is counted, is the first one, on which the event is chosen."""
    return np.tile(results, 2)


@pytest.mark.slow
def test_it_matters_that_the_event_is_chosen_on_other_draws():
    """Control: choosing on the draws that are counted calls a mechanism of no loss at all a broken one, too often."""
    rng, alpha, runs = np.random.default_rng(6), 0.5, 600
    often = {True: 0, False: 0}
    for _ in range(runs):
        one, other = rng.laplace(0, 1, (2, 60))
        often[True] += lower_bound(one, other, alpha) > 0
        often[False] += lower_bound(same_twice(one[:30]), same_twice(other[:30]), alpha) > 0
    allowed = binom.isf(1e-9, runs, alpha)
    assert often[True] <= allowed < often[False]


@pytest.mark.parametrize("seed", range(5))
def test_the_best_event_is_the_best_of_all_half_lines(seed):
    rng = np.random.default_rng(seed)
    one, other = rng.normal(0, 1, 60), rng.normal(1, 1, 60)

    def value(edge, above, swapped):
        counts = [int(sum(x >= edge if above else x <= edge for x in results)) for results in (one, other)]
        return float(log_ratio(*map(np.array, counts[::-1] if swapped else counts), 60, 0.1))

    every = [value(edge, above, swapped) for edge in [*one, *other] for above in (0, 1) for swapped in (0, 1)]
    assert lower_bound(same_twice(one), same_twice(other), 0.1) == pytest.approx(max(every))


def test_what_draws_can_show_grows_with_the_draws_and_stays_below_the_loss():
    shown = [reach(1.0, draws, 1e-9) for draws in (200, 2_000, 20_000, 10**6, 10**8)]
    assert shown == sorted(shown)
    assert shown[0] == 0
    assert 0.98 < shown[-1] < 1
    assert reach(0.0, 10**6, 1e-9) == 0


# The whole audit


@pytest.mark.slow
def test_this_installation_keeps_every_claim_by_every_method():
    found = audit(LEVELS, **FEW)
    assert found.holds
    assert {f.method for f in found.findings} == set(hetdp.methods())
    for finding in found.findings:
        assert finding.lower_bound <= finding.claimed <= finding.epsilon


@pytest.mark.slow
def test_many_releases_show_most_of_a_large_epsilon():
    """The bound is not idle: at ε = 4 and 1,500 draws about half of it is shown."""
    found = audit({4.0: 40}, methods=["uniform"], draws=1_500)
    (finding,) = found.findings
    assert 1.2 < finding.lower_bound < 4
    assert finding.lower_bound == pytest.approx(reach(finding.claimed, 1_500, found.alpha_each), abs=0.8)


def test_public_people_plans_that_abstain_and_methods_that_refuse_have_their_place():
    found = audit({0.5: 1, INF: 1}, methods=["adpm", "stretch", "proportional"], **FEW)
    assert found.holds
    assert "stretch" in found.refusals
    assert {f.lower_bound for f in found.findings if f.epsilon == INF} == {None}
    alone = audit({0.5: 1}, methods=["adpm"], **FEW)
    assert alone.holds
    assert [(f.claimed, f.lower_bound) for f in alone.findings] == [(0, 0)]


def test_billions_of_people_are_only_counted():
    assert audit({0.1: 10**12, 1.0: 2}, methods=["adpm", "ldpe"], **FEW).holds
    found = audit({0.1: 10**12, 1.0: 2}, methods=["uniform", "sampling"], **FEW)
    assert "one by one" in found.refusals["sampling"]


def test_the_confidence_is_shared_among_all_bounds():
    found = audit(LEVELS, methods=["adpm", "uniform"], **FEW)
    assert found.alpha_each == pytest.approx(1e-9 / 8)


def test_progress_reaches_its_end():
    told = []
    audit(LEVELS, methods=["adpm"], **FEW, tell=lambda *steps: told.append(steps))
    done, total = told[-1][1:]
    assert done == total == len(told) == 5 + 2
    assert (told[0][0], told[-1][0]) == ("adpm", "uniform")


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"methods": ["guess"]}, "guess"),
        ({"draws": 199}, "at least 200 draws"),
        ({"levels": {0.001 * i: 1 for i in range(100)}}, "at most 64"),
    ],
)
def test_what_cannot_be_audited_is_said(wrong, says):
    with pytest.raises(hetdp.InputError, match=says):
        audit(**wrong)


# Planted faults


RELEASES = {
    "noise halved in the release": lambda total, scale: noisy(total, scale / 2),
    "a fixed draw": lambda total, _: total + 12_345,
    "no noise": lambda total, _: total,
}


@pytest.mark.slow
@pytest.mark.parametrize("fault", RELEASES)
def test_the_releases_show_a_planted_fault(fault, monkeypatch):
    monkeypatch.setattr("hetdp.privacy.release.noisy", RELEASES[fault])
    found = audit({1.0: 40}, methods=["uniform"], draws=2_500)
    ((finding,), (sentence,)) = found.findings, found.findings[0].faults
    assert finding.claimed < finding.lower_bound
    assert "releases show" in sentence
    assert not found.holds
    assert "BROKEN" in found.report()


# The control: a planted over-spend that must be found


@pytest.mark.slow
@pytest.mark.parametrize(("draws", "most"), [(200, 16), (1_500, 5), (6_000, 4)])
def test_the_control_is_found_and_needs_fewer_people_with_more_draws(draws, most):
    found = audit({1.0: 40}, methods=["uniform"], draws=draws)
    assert found.control.holds
    people = int(found.control.tier.split()[0])
    assert found.control.claimed == 0.5 < found.control.lower_bound <= 0.5 * people <= 0.5 * most


def test_an_audit_that_could_not_find_anything_does_not_hold(monkeypatch):
    monkeypatch.setattr("hetdp.checks.audit.lower_bound", lambda *_: 0.0)
    found = audit(LEVELS, methods=["adpm"], **FEW)
    assert all(f.holds for f in found.findings)
    assert not found.holds
    assert "NOTHING SHOWN" in found.report()
    assert found.to_dict()["control"]["faults"] == ["the planted over-spend was not found"]


def test_noise_of_a_wrong_law_fails_the_audit(monkeypatch):
    wrong = lambda: sampler_gate(lambda total, _: total + 2, 400)  # noqa: E731  a planted fault
    monkeypatch.setattr("hetdp.checks.audit.sampler_gate", wrong)
    found = audit(LEVELS, methods=["adpm"], **FEW)
    assert not found.holds
    assert all(f.holds for f in found.findings)
    assert "WRONG LAW" in found.report()


# The report, the command


def test_the_report_says_what_each_part_cannot_see():
    text = audit({1.0: 40}, methods=["uniform"], **FEW).report()
    for said in (
        "no claim is broken",
        "a smaller fault is not seen",
        "bad source of randomness",
        "proves nothing",
        "found",
    ):
        assert said in " ".join(text.split())


@pytest.mark.slow
def test_the_command_prints_json_and_says_0_when_all_holds(hetdp_command, tmp_path):
    options = ("audit", "--tier", "strict=0.1:300", "--tier", "open=2:30", "--method", "adpm")
    code, out, err = hetdp_command(*options, "--draws", 200, "--json")
    found = json.loads(out)
    assert (code, err) == (0, "")
    assert found["holds"]
    assert [(f["tier"], f["epsilon"], f["holds"]) for f in found["findings"]] == [
        ("strict", 0.1, True),
        ("open", 2.0, True),
    ]
    for name in ("a.html", "a.txt", "a.json"):
        assert hetdp_command(*options, "--draws", 200, "-o", tmp_path / name)[0] == 0
    assert "&lt;" not in (tmp_path / "a.txt").read_text()
    assert "<table" in (tmp_path / "a.html").read_text()
    assert json.loads((tmp_path / "a.json").read_text())["holds"]


def test_the_command_says_1_when_a_claim_is_broken(hetdp_command, monkeypatch):
    monkeypatch.setattr("hetdp.privacy.release.noisy", RELEASES["no noise"])
    code, out, _ = hetdp_command("audit", "--method", "adpm", "--draws", 200)
    assert code == 1
    assert "BROKEN" in out


def test_the_command_refuses_what_it_cannot_write_before_it_begins(hetdp_command, tmp_path):
    (tmp_path / "there.txt").write_text("")
    code, _, err = hetdp_command("audit", "-o", tmp_path / "there.txt")
    assert code == 2
    assert "exists already" in err


def test_the_command_draws_as_often_as_the_function():
    assert inspect.signature(command).parameters["draws"].default == _audit.DRAWS
