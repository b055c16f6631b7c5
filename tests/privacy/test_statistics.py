"""The statistics of whole releases: the error is what the plan predicts, and a noise scale 5 % off is noticed.

False alarms are below 1e-6 a test. Each check is one function, and the controls hand the same function something wrong.
"""

from __future__ import annotations

import math
import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import binom, gamma, norm

import hetdp
from hetdp.core.domain import GRID
from hetdp.privacy.release import noisy
from hetdp.tally import Table, Tally

INF = math.inf
FALSE_ALARM = 1e-6
DRAWS = 60_000
EPSILONS = [0.5] * 20 + [2.0] * 10 + [INF] * 5
VALUES = [0.2 + 0.6 * i / 34 for i in range(35)]
BOUNDS = (0.0, 1.0)


@pytest.fixture(scope="module")
def case():
    """A tally, its plan, and the exact weighted mean of its values, computed here."""
    tally = hetdp.read(VALUES, epsilon=EPSILONS, bounds=BOUNDS)
    plan = hetdp.plan(tally.levels, bounds=BOUNDS)
    assert not plan.abstains
    weights = [Fraction(w) for w in plan.weights(EPSILONS).tolist()]
    centre = sum(w * Fraction(x) for w, x in zip(weights, VALUES, strict=True)) / sum(weights)
    return tally, plan, float(centre)


def releases(tally, plan, draws):
    return np.array([hetdp.release(tally, plan).unclamped for _ in range(draws)])


def wrong_moments(unclamped, centre, scale, variance):
    """Return which of the three moments of the noise do not fit: the mean, the scale, the variance.

    With z = unclamped − centre, b the scale and N draws:

    - scale: Σ|z|/b, the sufficient statistic, follows Gamma(N, 1). At N = 6·10⁴ its standard deviation is 0.41 % and
      the border at false alarm 1e-6 lies at ±2.0 %: of a scale 5 % off a miss has odds below 1e-11 (at 4·10⁴: 1e-6).
    - variance: the mean of z² has standard deviation √(5/N) = 0.91 % (the kurtosis is 6). The border is at 5.2 of them,
      4.7 %, where the two normal tails, corrected for the skewness 6.6/√N, are 3e-7. A scale 5 % off is at least 9.3 %
      here, another 5.5 standard deviations: a miss has odds below 1e-7.
    - mean: it has standard deviation √(variance/N); the border is the normal one. A shift of 7 % of b is 12 of them.
    """
    z, n = unclamped - centre, unclamped.size
    total = np.abs(z).sum() / scale
    wrong = set()
    if min(gamma.cdf(total, n), gamma.sf(total, n)) < FALSE_ALARM / 2:
        wrong.add("scale")
    if abs(np.mean(z**2) / variance - 1) > 5.2 * math.sqrt(5 / n):
        wrong.add("variance")
    if abs(z.mean()) > -norm.ppf(FALSE_ALARM / 2) * math.sqrt(variance / n):
        wrong.add("mean")
    return wrong


def test_many_thousand_releases_have_the_predicted_mean_scale_and_variance(case):
    """And the same releases contradict a plan that says 5 % more, 5 % less, or another centre."""
    tally, plan, centre = case
    seen, scale, variance = releases(tally, plan, DRAWS), plan.noise_scale, plan.mse(0)
    assert variance == pytest.approx(2 * scale**2, rel=1e-6)
    assert wrong_moments(seen, centre, scale, variance) == set()
    for factor in (0.95, 1.05):
        assert wrong_moments(seen, centre, factor * scale, factor**2 * variance) == {"scale", "variance"}
    for shift in (-0.07, 0.07):
        assert "mean" in wrong_moments(seen, centre + shift * scale, scale, variance)


def test_releases_whose_sampler_is_given_5_per_cent_less_scale_are_rejected(case, monkeypatch):
    tally, plan, centre = case
    monkeypatch.setattr("hetdp.privacy.release.noisy", lambda total, scale: noisy(total, 0.95 * scale))
    assert "scale" in wrong_moments(releases(tally, plan, 40_000), centre, plan.noise_scale, plan.mse(0))


@pytest.mark.parametrize("factor", [0.95, 1, 1.05])
def test_numpys_laplace_noise_is_judged_rightly_by_the_same_check(case, factor):
    """Controls that share nothing with the library: the right law passes, 5 % off either way does not."""
    _, plan, centre = case
    z = np.random.default_rng(5).laplace(0, factor * plan.noise_scale, DRAWS)
    expected = set() if factor == 1 else {"scale", "variance"}
    assert wrong_moments(centre + z, centre, plan.noise_scale, plan.mse(0)) == expected


RUNS = 2000
DISTRIBUTIONS = {
    "Bernoulli(0.3)": (lambda rng, n: (rng.random(n) < 0.3).astype(float), 0.3, 0.21),
    "Beta(2, 5)": (lambda rng, n: rng.beta(2, 5, n), 2 / 7, 10 / (49 * 8)),
}


def errors_of(draw, mean, plan, epsilons, runs=RUNS):
    """The errors of releases, each of fresh data on [−1, 3]; codes are summed here, the first also by `read`."""
    values = 4 * draw(np.random.default_rng(11), (runs, len(epsilons))) - 1
    codes = np.rint((values + 1) / 4 * GRID).astype(np.int64)
    levels, count = np.unique(epsilons, return_counts=True)
    totals = np.stack([codes[:, epsilons == level].sum(axis=1) for level in levels], axis=1)
    first = hetdp.read(values[0], epsilon=epsilons, bounds=(-1, 3))
    tallies = [Tally(Table(levels, count, total[:, None]), first.statistic) for total in totals]
    assert tallies[0] == first
    return np.array([hetdp.release(tally, plan).unclamped for tally in tallies]) - (4 * mean - 1)


def off_budget(errors, mse):
    """Whether the mean of the squared errors is not the predicted one.

    The kurtosis of a sum of independent terms is at most that of its heaviest part, here the noise with 6: eight
    standard deviations of the mean of 2,000 squares are ±40 %, and corrected for skewness that is 2e-10.
    """
    return abs(np.mean(errors**2) / mse - 1) > 8 * math.sqrt(5 / errors.size)


def misses_too_often(errors, radius, level=0.95):
    """Whether more errors than 1 − level explains are larger than the radius."""
    misses = int(np.sum(np.abs(errors) > radius))
    return binom.sf(misses - 1, errors.size, 1 - level) < FALSE_ALARM


FROM_TALLY = [name for name, rule in hetdp.methods().items() if not rule.needs_records]


@pytest.mark.parametrize(
    ("method", "distribution"), [*((method, "Bernoulli(0.3)") for method in FROM_TALLY), ("adpm", "Beta(2, 5)")]
)
def test_on_random_data_the_squared_error_is_the_predicted_one_and_the_interval_covers(method, distribution):
    draw, mean, variance = DISTRIBUTIONS[distribution]
    epsilons = np.array([0.4] * 40 + [1.0] * 20 + [3.0] * 4)
    plan = hetdp.plan(epsilons, bounds=(-1, 3), method=method)
    errors = errors_of(draw, mean, plan, epsilons)
    assert not off_budget(errors, plan.mse(16 * variance, 4 * mean - 1))
    assert not misses_too_often(errors, plan.radius(0.95))


def test_a_prediction_that_forgets_the_noise_or_the_sampling_is_rejected():
    """Controls: the error has two parts of one size, and neither can be left out; an interval a third as wide fails."""
    draw, mean, variance = DISTRIBUTIONS["Bernoulli(0.3)"]
    epsilons = np.full(60, 0.4)
    plan = hetdp.plan(epsilons, bounds=(-1, 3))
    errors = errors_of(draw, mean, plan, epsilons)
    predicted, noise = plan.mse(16 * variance), plan.mse(0)
    assert noise / predicted == pytest.approx(0.5, abs=0.01)
    assert not off_budget(errors, predicted)
    assert off_budget(errors, predicted - noise)
    assert off_budget(errors, noise)
    assert not misses_too_often(errors, plan.radius(0.95))
    assert misses_too_often(errors, plan.radius(0.95) / 3)


ONE = "import hetdp; print(repr(hetdp.mean([0.5] * 50, epsilon=1, bounds=(0, 1)).unclamped))"


def repeats(numbers):
    return len(set(numbers)) < len(numbers)


def test_no_release_repeats_another_not_even_in_a_new_process(case, monkeypatch):
    """Two honest draws are equal with odds of 1/(4·scale) < 1e-9."""
    tally, plan, _ = case
    assert not repeats([hetdp.release(tally, plan).unclamped for _ in range(2)])
    fresh = [subprocess.run([sys.executable, "-c", ONE], capture_output=True, text=True, check=True) for _ in range(2)]
    assert not repeats([float(run.stdout) for run in fresh])
    seeded = lambda total, scale: total + round(np.random.default_rng(1).laplace(0, scale))  # noqa: E731  a planted bug
    monkeypatch.setattr("hetdp.privacy.release.noisy", seeded)
    assert repeats([hetdp.release(tally, plan).unclamped for _ in range(2)])


def test_the_estimate_is_clamped_to_the_interval_and_the_unclamped_one_is_not():
    tally = hetdp.read([2.0] * 5, epsilon=0.1, bounds=(-1, 3))
    plan = hetdp.plan(tally.levels, bounds=(-1, 3), method="uniform")  # noise twice as wide as the interval
    results = [hetdp.release(tally, plan) for _ in range(200)]
    assert all(result.estimate == min(max(result.unclamped, -1), 3) for result in results)
    assert min(result.unclamped for result in results) < -1
    assert max(result.unclamped for result in results) > 3
