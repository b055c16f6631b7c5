"""The Gaussian limit, step by step as on its page: each inequality against an oracle, and controls that break it."""

from __future__ import annotations

import importlib.util
import itertools
import math
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from scipy import integrate, optimize, sparse, special, stats

import hetdp
from hetdp.core.levels import saturation

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "proofs" / "limit.md"
_spec = importlib.util.spec_from_file_location("bench_limit", ROOT / "bench" / "limit.py")
limit = importlib.util.module_from_spec(_spec)
sys.modules["bench_limit"] = limit
_spec.loader.exec_module(limit)


def vectors(how_many, seed, people=200):
    """Random ε vectors as levels and counts, from strict to public, some with one level alone."""
    rng = np.random.default_rng(seed)
    for _ in range(how_many):
        epsilon = np.unique(np.exp(rng.uniform(-7, 1, rng.integers(1, 7))))
        if rng.random() < 0.3:
            epsilon = np.append(epsilon, np.inf)
        yield epsilon, rng.integers(1, people, epsilon.size)


def adpm_value(epsilon, count):
    """¼Σw² + 2η² at ADPM's weights, from its definition."""
    capped = np.minimum(epsilon, saturation(epsilon, count, rho=8.0))
    weight = capped / (count @ capped)
    noise = np.max(np.where(np.isinf(epsilon), 0, weight / epsilon))
    return 0.25 * (count @ weight**2) + 2 * noise**2


# --- Step 1: from bits to Gaussians -------------------------------------------------------------------------------


def steps(epsilon):
    """d_k = ln(p_k/p_{k+1}) of the elementary symmetric polynomials of e^{−ε}, in logarithms."""
    log = np.full(epsilon.size + 1, -np.inf)
    log[0] = 0
    for e in epsilon:
        log[1:] = np.logaddexp(log[1:], log[:-1] - e)
    k = np.arange(epsilon.size + 1)
    size = epsilon.size
    log -= special.gammaln(size + 1) - special.gammaln(k + 1) - special.gammaln(size - k + 1)
    return -np.diff(log)


def block_constant(epsilon):
    top = epsilon.max()
    return 4 - 3 * (1 - math.exp(-top)) / top


@pytest.mark.parametrize("seed", range(6))
def test_a_step_of_a_blocks_count_costs_the_average_epsilon_and_little_more(seed):
    rng = np.random.default_rng(seed)
    epsilon = rng.choice([0.001, 0.01, 0.1, 0.4, 2.0], 200) * rng.uniform(0, 1, 200) * (1, 0.1, 0.01)[seed % 3]
    window = steps(epsilon)[: 3 * epsilon.size // 4]
    assert window.max() <= block_constant(epsilon) * epsilon.mean() * (1 + 1e-9)


def test_control_the_average_alone_is_not_enough():
    epsilon = np.r_[np.full(150, 0.001), np.full(50, 2.0)]
    assert steps(epsilon)[: 3 * 50].max() > 1.05 * epsilon.mean()


def test_the_average_over_arrangements_obeys_these_steps():
    """A mechanism that is as uneven as privacy allows, all 2⁸ data sets listed."""
    rng = np.random.default_rng(3)
    epsilon = rng.uniform(0, 1, 8)
    data = (np.arange(256)[:, None] >> np.arange(8)) & 1
    by_ones = [data.sum(1) == k for k in range(9)]
    limits = steps(epsilon)
    reached = np.zeros(8)
    for signs in [np.ones(8), *rng.choice([-1, 1], (40, 8))]:
        kernel = np.exp(-(data @ (signs * epsilon)))
        average = np.array([kernel[rows].mean() for rows in by_ones])
        falls = np.log(average[:-1] / average[1:])
        assert (falls <= limits + 1e-12).all()
        assert (falls >= -limits[::-1] - 1e-12).all()
        reached = np.maximum(reached, falls)
    assert reached == pytest.approx(limits)  # the first mechanism reaches every step


def test_rounding_at_random_keeps_privacy_at_exp_epsilon_minus_one():
    rng = np.random.default_rng(1)
    for epsilon in (0.01, 0.3, 2.0):
        path = np.exp(np.cumsum(rng.choice([-1, 1], 50) * epsilon))
        x = np.linspace(0, 49, 49 * 400 + 1)
        slopes = np.diff(np.log(np.interp(x, np.arange(50), path))) / np.diff(x)
        assert np.abs(slopes).max() <= math.expm1(epsilon)
        assert np.abs(slopes).max() > epsilon  # control: ε itself would be too small


def rounded_gaussian(people, theta):
    """The law of a Gaussian count that is rounded to a neighbour at random and clipped to the middle half."""
    mean, deviation = people * (0.5 + theta), math.sqrt(people / 4)
    k = np.arange(-people, 2 * people + 1)
    z = (k - mean) / deviation

    def second_integral(x):  # of the normal density
        return x * stats.norm.cdf(x) + stats.norm.pdf(x)

    h = 1 / deviation
    law = (second_integral(z + h) - 2 * second_integral(z) + second_integral(z - h)) * deviation
    found = np.zeros(people + 1)
    np.add.at(found, np.clip(k, math.ceil(people / 4), 3 * people // 4), law)
    return found


def distance(people, theta):
    """Total variation between the number of ones and its simulation."""
    return (
        0.5
        * np.abs(rounded_gaussian(people, theta) - stats.binom.pmf(np.arange(people + 1), people, 0.5 + theta)).sum()
    )


def test_a_rounded_gaussian_is_near_the_number_of_ones():
    found = [distance(people, theta=0.3 * people**-0.5) for people in (40, 400, 4000)]
    assert found[0] < 0.03
    assert found[0] > 2 * found[1] > 4 * found[2]
    assert distance(4000, 0.02) < 0.002
    assert distance(4000, 0.2) > 0.03  # control: far from ½ the variance is not ¼


@pytest.mark.parametrize("bins", [2, 5, 20])
def test_blocks_lose_little(bins):
    for epsilon, count in vectors(60, seed=bins):
        level, n = np.repeat(epsilon, count), count.sum()
        t = saturation(epsilon, count, rho=8.0)
        if math.isinf(t):
            continue
        mu = np.maximum(1 - level / t, 0)
        a, q = mu.sum(), 8 / t**2
        assert mu @ (1 - mu) == pytest.approx(q)
        assert q <= (n - a) * (1 + 1e-9)
        block = np.ceil(mu * bins)
        flat = np.array([mu[block == j].mean() for j in block])
        flat[mu == 0] = 0
        hidden = mu > 0
        b, c = flat @ flat, flat[hidden] @ level[hidden]
        assert b + c * c / 8 <= (a + 6 * q / bins) * (1 + 1e-9)
        assert 0.25 / (n - a * a / (b + c * c / 8)) >= adpm_value(epsilon, count) / (1 + 6 / bins) * (1 - 1e-9)


# --- Steps 2 and 4: a direction -----------------------------------------------------------------------------------


def test_the_bound_is_what_conditioning_gaussians_says():
    """One coordinate a person: the posterior given everything but the direction, by matrices."""
    rng = np.random.default_rng(0)
    for n, prior in ((3, 0.7), (6, 2.0), (9, 0.01)):
        epsilon, mu = rng.uniform(0.01, 1, n), rng.uniform(0, 1, n)
        basis = np.linalg.svd(mu[None])[2][1:]  # rows orthogonal to μ: what is revealed
        along = mu / (mu @ mu)
        covariance = np.full((n, n), 1 / (4 * prior)) + np.eye(n) / 4  # of the z, the prior included
        revealed = basis @ covariance @ basis.T
        cross = basis @ covariance @ along
        spread = along @ covariance @ along - cross @ np.linalg.solve(revealed, cross)  # Var(v | revealed)
        joint = np.c_[basis.T, along].T
        with_theta = joint @ np.full(n, 1 / (4 * prior))
        slope = np.linalg.solve(joint @ covariance @ joint.T, with_theta)[-1]  # of E[θ | z] in v
        rest = 1 / (4 * prior) - with_theta @ np.linalg.solve(joint @ covariance @ joint.T, with_theta)
        e = (mu @ epsilon) * math.sqrt(spread)
        expected = rest + slope**2 * spread * limit.rho(e)
        assert limit.gaussian_bound(epsilon, np.ones(n, int), mu, prior) == pytest.approx(expected, rel=1e-8)


def channel(mass, target, cost, outputs):
    """The smallest Σ mass·P(y | k)·(target_k − y)² over all P with |ln P(y | k + 1) − ln P(y | k)| ≤ cost."""
    k, size = mass.size, outputs.size
    identity = sparse.identity(size)
    low, high = sparse.eye(k - 1, k), sparse.eye(k - 1, k, 1)
    shrink = math.exp(-cost)
    rules = sparse.vstack([sparse.kron(shrink * low - high, identity), sparse.kron(shrink * high - low, identity)])
    loss = mass[:, None] * (target[:, None] - outputs) ** 2
    found = optimize.linprog(
        (loss / mass.max()).ravel(),
        A_ub=rules,
        b_ub=np.zeros(rules.shape[0]),
        A_eq=sparse.kron(sparse.identity(k), np.ones((1, size))),
        b_eq=np.ones(k),
        method="highs",
    )
    assert found.status == 0
    return found.fun * mass.max()


@cache
def best_channel(e):
    """The best e-log-Lipschitz channel for N(0, 1) on a grid, by linear programming."""
    x = np.linspace(-4, 4, 65)
    mass = stats.norm.pdf(x)
    return channel(mass / mass.sum(), x, e * (x[1] - x[0]), np.linspace(-1, 1, 41) * min(e, 3.2))


@pytest.mark.parametrize("e", [0.5, 0.89, 2.0])
def test_no_channel_does_better_than_laplace_noise(e):
    """Both grids cost something: outputs at most h²/4, inputs as much of the noise's variance as a rounding."""
    grid = 2 * min(e, 3.2) / 40
    assert best_channel(e) == pytest.approx(limit.rho(e), abs=grid**2 / 4 + 0.004)
    assert best_channel(e) > limit.rho(e) - 0.002


def test_control_a_channel_with_a_little_more_epsilon_does_better():
    assert best_channel(0.95) < limit.rho(0.89) - 0.005


# --- Step 3: the dual certificate of Laplace noise ----------------------------------------------------------------


@cache
def certificate_of_laplace(e):
    """x, the prior density g, h = (e²Φ − Φ″)/(2e) and Φ of the page, on a fine grid.

    Mᵢ = ∫xⁱ·g·e^{−e|x − y|} has Mᵢ″ = e²Mᵢ − 2e·yⁱg; M₁ = −M₀′ and M₂ = M₀″ + M₀ because g is the normal density.
    """
    x = np.linspace(-60, 60, 48001)
    g = stats.norm.pdf(x)
    below = np.exp(0.5 * e * e - e * x + special.log_ndtr(x - e))
    above = np.exp(0.5 * e * e + e * x + special.log_ndtr(-x - e))
    m0, m1 = below + above, e * (below - above)
    s0, s1 = e * e * m0 - 2 * e * g, e * e * m1 - 2 * e * x * g
    m2 = s0 + m0
    s2 = e * e * m2 - 2 * e * x**2 * g
    d0, d1 = -m1, -s0
    # The second derivative of M₁²/M₀.
    bent = (2 * d1**2 + 2 * m1 * s1) / m0 - (4 * m1 * d1 * d0 + m1**2 * s0) / m0**2 + 2 * m1**2 * d0**2 / m0**3
    phi = m2 - m1**2 / m0
    return x, g, (e * e * phi - s2 + bent) / (2 * e), phi


def risk_and_price(e, f):
    """φ(f), what an output with likelihood f costs, and ∫hf, its price in the dual program."""
    x, g, h, _ = certificate_of_laplace(e)
    step = x[1] - x[0]
    m0, m1, m2 = (step * np.sum(x**i * g * f) for i in range(3))
    return m2 - m1**2 / m0, step * np.sum(h * f)


def zigzag(e, rng, x):
    """A bounded function whose logarithm goes up and down at slope e, with peaks and valleys at random."""
    turns = np.sort(rng.uniform(-6, 6, rng.integers(1, 9)))
    slope = e * rng.choice([-1, 1]) * (-1.0) ** np.searchsorted(turns, x)
    slope = np.where(x < turns[0], e, np.where(x > turns[-1], -e, slope * rng.uniform(0.3, 1)))
    log = np.cumsum(slope) * (x[1] - x[0])
    return np.exp(log - log.max())


@pytest.mark.parametrize("e", [0.4, 0.89, 2.5])
def test_the_price_of_laplace_noise_is_rho_and_its_kernels_are_priced_at_their_cost(e):
    x, _, h, phi = certificate_of_laplace(e)
    step = x[1] - x[0]
    assert step * h.sum() == pytest.approx(limit.rho(e), abs=1e-6)
    for peak in (-3, 0, 1.5):
        cost, price = risk_and_price(e, np.exp(-e * np.abs(x - peak)))
        assert cost == pytest.approx(np.interp(peak, x, phi), rel=1e-5)
        assert price == pytest.approx(cost, rel=1e-4)


@pytest.mark.parametrize("e", [0.4, 0.89, 2.5])
def test_no_log_lipschitz_function_costs_less_than_its_price(e):
    x = certificate_of_laplace(e)[0]
    rng = np.random.default_rng(7)
    for _ in range(100):
        cost, price = risk_and_price(e, zigzag(e, rng, x))
        assert cost >= price - 1e-5


def test_control_a_steeper_kernel_costs_less_than_its_price():
    x = certificate_of_laplace(0.89)[0]
    cost, price = risk_and_price(0.89, np.exp(-1.1 * np.abs(x)))
    assert cost < price - 0.01


# --- Step 5: duality ----------------------------------------------------------------------------------------------


def best_by_search(epsilon, count):
    """The largest linear value over μ ≥ 0, by a solver that knows nothing of ADPM."""
    people = np.isfinite(epsilon)
    level, size, n = epsilon[people], count[people].astype(float), count.sum()
    if not level.size:
        return 0.25 / n

    # b + c²/8 − 2a is Σ(μ − 1)² + c²/8 − Σ1: least squares over μ ≥ 0
    rows = np.vstack([np.diag(np.sqrt(size)), size * level / math.sqrt(8)])
    residual = optimize.nnls(rows, np.append(np.sqrt(size), 0.0))[1]
    return 0.25 / (n - size.sum() + residual**2)


def test_the_largest_linear_value_over_all_directions_is_adpms_worst_case():
    for case, (epsilon, count) in enumerate(vectors(150, seed=11)):
        value = adpm_value(epsilon, count)
        assert best_by_search(epsilon, count) == pytest.approx(value, rel=1e-9)
        assert limit.linear_value(epsilon, count, limit.best_direction(epsilon, count)) == pytest.approx(
            value, rel=1e-9
        )
        if case < 10 and value < 0.2:
            plan = hetdp.plan(dict(zip(epsilon.tolist(), count.tolist(), strict=True)), bounds=(0, 1))
            assert plan.worst_case_mse == pytest.approx(value, rel=1e-4)


def test_control_another_direction_has_a_smaller_value():
    epsilon, count = np.array([0.05, 0.3, 1.0]), np.array([300, 200, 100])
    best = limit.best_direction(epsilon, count)
    for other in (best**2, np.array([1.0, 0, 0]), np.ones(3)):
        assert limit.linear_value(epsilon, count, other) < 0.999 * adpm_value(epsilon, count)


def test_adpm_is_within_the_constant_of_the_gaussian_bound():
    found = []
    for epsilon, count in vectors(300, seed=12, people=5000):
        bound = limit.gaussian_bound(epsilon, count, limit.best_direction(epsilon, count))
        found.append(adpm_value(epsilon, count) / bound)
    assert max(found) <= limit.CONSTANT
    assert min(found) >= 1 - 1e-6


def test_the_constant_is_reached_by_many_strict_and_few_public_people():
    count = np.array([10**6, 100])
    e = 0.89
    epsilon = np.array([2 * e * math.sqrt(100 / (1e6 * (1e6 + 100))), np.inf])
    bound = limit.gaussian_bound(epsilon, count, np.array([1.0, 0.0]))
    assert 1.0563 < adpm_value(epsilon, count) / bound < limit.CONSTANT


@pytest.mark.parametrize("epsilon", [0.001, 0.01, 0.1, 1.0])
def test_with_one_level_the_ratio_falls_to_one_as_the_prior_widens(epsilon):
    level, count = np.array([epsilon]), np.array([10_000])
    value = adpm_value(level, count)
    found = [value / limit.gaussian_bound(level, count, np.ones(1), 0.25 / value / width**2) for width in (2, 5, 20)]
    assert found[0] > found[1] > found[2] >= 1
    assert found[2] < 1.005
    assert limit.gaussian_bound(level, count, np.ones(1)) == pytest.approx(value)


def exact_bayes_risk(people, epsilon, a):
    """The smallest Bayes risk of all ε-DP methods for Beta(a, a) and people at one ε, by linear programming."""
    k = np.arange(people + 1)
    mass = stats.betabinom.pmf(k, people, a, a)
    mean = (k + a) / (people + 2 * a)
    within = np.sum(mass * mean * (1 - mean)) / (people + 2 * a + 1)
    outputs = np.linspace(mean[0], mean[-1], 61)
    return within + channel(mass, mean, epsilon, outputs)


@pytest.mark.slow
def test_the_finite_problem_tends_to_the_gaussian_one():
    """Steps 1 to 4 from end to end: one level, √n·ε = 1.5, and a prior that is worth a fifth of the people."""
    found = []
    for people in (10, 30, 90):
        epsilon, prior = 1.5 / math.sqrt(people), people / 5
        bound = limit.gaussian_bound(np.array([epsilon]), np.array([people]), np.ones(1), prior)
        found.append(exact_bayes_risk(people, epsilon, (prior - 1) / 2) / bound)
    assert abs(found[2] - 1) < 0.02
    assert abs(found[2] - 1) < abs(found[1] - 1) < abs(found[0] - 1)


# --- Step 6: the constant -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("e", [0.3, 0.89, 2.0, 10.0])
def test_rho_is_the_average_posterior_variance(e):
    """From the definition: x normal, Laplace noise, the variance of x given the sum, by scipy's quadrature."""

    def moment(i, y):
        parts = ((-12, min(y, 12)), (min(y, 12), 12))
        return sum(
            integrate.quad(
                lambda x: x**i * e * math.exp(-0.5 * x * x - e * abs(x - y)) / math.sqrt(8 * math.pi), *part
            )[0]
            for part in parts
        )

    def spread(y):
        m0, m1, m2 = (moment(i, y) for i in range(3))
        return m2 - m1**2 / m0

    y, weight = np.polynomial.legendre.leggauss(16)
    edges = (0, 3, 8, 8 + 20 / e)
    total = sum(
        (hi - lo) / 2 * sum(w * spread(lo + (hi - lo) * (1 + z) / 2) for z, w in zip(y, weight, strict=True))
        for lo, hi in itertools.pairwise(edges)
    )
    assert limit.rho(e) == pytest.approx(2 * total, abs=1e-6)


def test_rho_falls_and_its_multiple_by_e_squared_rises():
    e = np.geomspace(0.02, 30, 200)
    rho = np.array([limit.rho(x) for x in e])
    assert (np.diff(rho) < 0).all()
    assert (np.diff(e**2 * rho) > -1e-9).all()
    assert (rho >= 1 - e**2).all()
    assert (rho >= 2 / e**2 - 5 / e**4 - 1e-9).all()
    assert (rho <= 1 / (1 + e**2 / 2)).all()


@pytest.mark.parametrize("e", [0.3, 0.6, 0.89, 1.5, 3.0, 4.0])
def test_rho_from_below_is_below_and_near(e):
    assert 0 < limit.rho(e) - limit.rho_from_below(e) < 1e-4


@pytest.mark.parametrize("e", [0.3, 0.89, 2.0, 4.0])
def test_the_curvature_that_the_quadrature_assumes_is_an_upper_bound(e):
    y = np.linspace(-30, 30, 60001)
    below, above = np.exp(-e * y + special.log_ndtr(y - e)), np.exp(e * y + special.log_ndtr(-y - e))
    density = 0.5 * e * math.exp(e * e / 2) * (below + above)
    mean = e * (below - above) / (below + above)
    rise = e**2 * stats.norm.pdf(y) / density - e**2 + mean**2
    assert rise.min() >= -1e-9
    assert rise.max() <= e
    found = np.abs(np.diff(mean**2 * density, 2)).sum() / (y[1] - y[0])
    assert found <= 2 * e**2 + 9 * e**3 + e**4 + 2 * e**2 * (1 + e) * (math.sqrt(1 + 2 / e**2) + e)


def test_the_factor_is_at_most_1_06_for_every_e():
    assert limit.is_above_every_factor(1.06)


@pytest.mark.slow
def test_the_factor_is_at_most_the_constant_for_every_e():
    assert limit.is_above_every_factor(limit.CONSTANT)


def test_control_a_smaller_constant_is_refuted():
    assert limit.factor(0.89) > 1.0564
    assert not limit.is_above_every_factor(1.04)


def test_the_page_states_the_constant_and_the_limits():
    text = PAGE.read_text(encoding="utf-8")
    assert f"{limit.factor(0.89):.5f}" in text
    assert str(limit.CONSTANT) in text
    assert "images/limit.svg" in text
    for name, people in limit.POPULATIONS.items():
        row = f"| {name} | {math.ceil(limit.limit(people(1000)) * 1000) / 1000:.3f} |"
        assert row in text, row
