"""Each entry of docs/errata.md, shown."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pytest

import hetdp
from support import UNIT


def laplace(y, centre, scale):
    return np.exp(-np.abs(y - centre) / scale) / (2 * scale)


def loss_of_first(divide):
    """The largest log-ratio over outputs when the first of two people (ε = 0.1, 0.2) replaces −0.5 by 0.5."""
    t, y = 0.2, np.linspace(-150, 150, 300_001)
    p = math.expm1(0.1) / math.expm1(t)

    def density(x1, x2):
        both, alone = divide(2, p), divide(1, p)
        return p * laplace(y, (x1 + x2) / both, 1 / (both * t)) + (1 - p) * laplace(y, x2 / alone, 1 / (alone * t))

    return max(float(np.max(np.abs(np.log(density(-0.5, x2) / density(0.5, x2))))) for x2 in (-0.5, 0.0, 0.5))


def test_sampling_with_the_realised_size_breaks_its_promise():
    """The realised sample size costs 1.29·ε₁; the expected one costs at most ε₁."""
    assert loss_of_first(lambda kept, _: kept) == pytest.approx(1.29 * 0.1, rel=5e-3)
    assert loss_of_first(lambda _, p: 1 + p) <= 0.1 * (1 + 1e-9)


def test_adpm_is_unbounded_until_clamped():
    tally = hetdp.read([1.0] * 30, epsilon=[0.1] * 30, bounds=(0, 1))
    plan = hetdp.plan(tally.levels, bounds=(0, 1), method="proportional")
    releases = [hetdp.release(tally, plan) for _ in range(200)]
    assert max(release.unclamped for release in releases) > 1
    assert all(0 <= release.estimate <= 1 for release in releases)


PAIRS = [(0.1, 0.15, 1000, 0.5), (0.1, 2.0, 1000, 0.7), (0.01, 1.0, 10**5, 0.5)]


@pytest.mark.parametrize(("eps1", "eps2", "n", "f"), PAIRS)
def test_the_paper_bound_is_far_below_the_certificate(eps1, eps2, n, f):
    levels = {eps1: round(n * f), eps2: n - round(n * f)}
    certificate = hetdp.certificate(levels, bounds=UNIT)
    paper = hetdp.paper.bounds.lower(eps1, eps2, n, f)
    assert certificate.upper / paper > 1000
    assert certificate.ratio < 3.5


def test_example_2_rounds_its_bias():
    for n in (100, 1000):
        mse = hetdp.plan({0.01: n // 2, 0.1: n // 2}, method="stretch", bounds=UNIT).mse(0, mean=0.5)
        assert mse == pytest.approx(0.050625 + 200 / n**2, rel=1e-6)


def test_fme_is_about_five_times_worse_in_figure_3b():
    ratios = []
    for eps2 in (0.11, 0.2, 0.5, 1.0):
        fme, adpm = (
            hetdp.plan({0.1: 700, eps2: 300}, method=m, bounds=UNIT).mse(0.25, mean=0) for m in ("fme", "adpm")
        )
        ratios.append(fme / adpm)
    assert min(ratios) > 5.0
    assert max(ratios) < 5.7


def test_a_public_dataset_does_help():
    """Public people beat the same people at ε₁, and beat their absence; they do not beat people at R·ε₁."""
    public = hetdp.plan({0.01: 700, math.inf: 300}, bounds=UNIT).worst_case_mse
    assert public < 0.1 * hetdp.plan({0.01: 1000}, bounds=UNIT).worst_case_mse
    assert public < 0.1 * hetdp.plan({0.01: 700}, bounds=UNIT).worst_case_mse
    saturated = hetdp.plan({0.01: 700, hetdp.paper.bounds.R(0.01, 1000, 0.7) * 0.01: 300}, bounds=UNIT).worst_case_mse
    assert public == pytest.approx(saturated, rel=1e-6)


def test_ldpe_low_variance_would_usually_round_to_minus_1_4():
    """With everybody a group of their own, LDPE's error has a closed form; 200 redraws of the paper's population."""
    rng = np.random.default_rng(1)
    logs = []
    for _ in range(200):
        eps = np.exp(rng.uniform(-3, -2, 1000))
        combined = 1 / (1 / 4 + 2 / eps**2)
        w = combined / combined.sum()
        logs.append(math.log(np.sum(w**2 * (0.04 + 2 / eps**2))))
    assert -1.40 < np.mean(logs) < -1.36
    assert np.mean(np.round(logs, 1) == -1.4) > 0.8


def test_every_entry_names_a_test_that_exists():
    page = (Path(__file__).parents[2] / "docs" / "errata.md").read_text(encoding="utf-8")
    entries = re.findall(r"^\d+\. .*?(?=^\d+\. |^FME|\Z)", page, re.DOTALL | re.MULTILINE)
    assert len(entries) == 10
    written = "".join(path.read_text(encoding="utf-8") for path in Path(__file__).parents[1].rglob("test_*.py"))
    for entry in entries:
        (name,) = re.findall(r"`(test_\w+)`", entry)
        assert f"def {name}(" in written
