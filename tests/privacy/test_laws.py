"""The laws of the noise: every sampler against its exact law, and the moment generating functions that intervals use.

Draws cannot be seeded, so a right sampler must practically never fail: it is judged
wrong at p < 1e-6. Each sampler has controls, made of the same pieces with one of them left out, that must be found out.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.signal import lfilter
from scipy.special import gammaln
from scipy.stats import chi2

from hetdp.errors import InputError, PrivacyError
from hetdp.privacy import release as _release
from hetdp.privacy.exact import Box, Choice, Line, Mass, _eulerian, _mixture

DRAWS = 4000
FALSE_ALARM = 1e-6
SCORES = (0, -1, -3, -2, -1)


def fit(draw, law, draws=DRAWS):
    """Return the p-value of Pearson's test; outcomes of which fewer than 8 are expected are one, with all others."""
    seen = Counter(draw() for _ in range(draws))
    usual = {outcome: draws * odds for outcome, odds in law.items() if draws * odds >= 8}
    rest = draws - sum(usual.values())
    assert rest > 0
    statistic = sum((seen[outcome] - expected) ** 2 / expected for outcome, expected in usual.items())
    statistic += (draws - sum(seen[outcome] for outcome in usual) - rest) ** 2 / rest
    return float(chi2.sf(statistic, len(usual)))


def law_of(outcomes, odds):
    """Return {outcome: probability} of a law that is known up to a factor."""
    weights = {outcome: odds(outcome) for outcome in outcomes}
    whole = math.fsum(weights.values())
    return {outcome: weight / whole for outcome, weight in weights.items()}


def laplace_law(scale):
    return law_of(range(-80, 81), lambda z: math.exp(-abs(z) / scale))


def geometric_law(scale):
    return law_of(range(160), lambda z: math.exp(-z / scale))


def zero_sum_law(k, scale, reach=16):
    """All vectors of sum 0: the last number makes it so."""
    first = itertools.product(range(-reach, reach + 1), repeat=k - 1)
    whole = ((*z, -sum(z)) for z in first)
    return law_of(whole, lambda z: math.exp(-sum(map(abs, z)) / (2 * scale)))


def boxed_law(d, scale, reach=22):
    return law_of(itertools.product(range(-reach, reach + 1), repeat=d), lambda z: math.exp(-max(map(abs, z)) / scale))


def chosen_law(scores, scale):
    """Permute-and-flip, over all orders."""
    keep = [math.exp((score - max(scores)) / scale) for score in scores]
    odds = dict.fromkeys(range(len(scores)), 0.0)
    for order in itertools.permutations(range(len(scores))):
        left = 1 / math.factorial(len(scores))
        for cell in order:
            odds[cell] += left * keep[cell]
            left *= 1 - keep[cell]
    return odds | {"none": 1e-9}


def laplace(scale):
    return _release._laplace(*scale.as_integer_ratio())


def geometric(scale):
    return _release._geometric(*scale.as_integer_ratio())


def zero_sum_unkept(k, scale):
    """Control: the last number is not paid for."""
    drawn = [laplace(2 * scale) for _ in range(k - 1)]
    return (*drawn, -sum(drawn))


def boxed_unkept(d, scale):
    """Control: the size of the cube is a sum of geometric draws, all of which are kept."""
    r = sum(geometric(scale) for _ in range(d + 1))
    return tuple(_release.secrets.randbelow(2 * r + 1) - r for _ in range(d))


def loudest(scores, scale):
    """Control: the largest score with Laplace noise."""
    noisy = [score + laplace(scale) for score in scores]
    return noisy.index(max(noisy))


def minus_zero_kept(scale):
    """Control: a sign for every size, so that 0 comes twice as often."""
    return geometric(scale) * (1 if _release.secrets.randbits(1) else -1)


SAMPLERS = {
    "noisy": (lambda s: _release.noisy(0, s), laplace_law, 1.3),
    "laplace": (laplace, laplace_law, 1.3),
    "laplace, a scale that is no short fraction": (laplace, laplace_law, 0.1 + 2.0**-40),
    "geometric": (geometric, geometric_law, 1.3),
    "geometric, below 1": (geometric, geometric_law, 0.7),
    **{
        f"zero_sum {k}": (lambda s, k=k: tuple(_release.zero_sum([0] * k, s)), lambda s, k=k: zero_sum_law(k, s), 0.8)
        for k in (2, 3, 4)
    },
    **{
        f"boxed {d}": (lambda s, d=d: tuple(_release.boxed([0] * d, s)), lambda s, d=d: boxed_law(d, s), 0.9)
        for d in (1, 2, 3)
    },
    "chosen": (lambda s: _release.chosen(SCORES, s), lambda s: chosen_law(SCORES, s), 1.5),
}
WRONG = {
    "laplace that counts 0 twice": (minus_zero_kept, laplace_law, 1.3),
    **{
        f"zero_sum {k} without keeping": (lambda s, k=k: zero_sum_unkept(k, s), lambda s, k=k: zero_sum_law(k, s), 0.8)
        for k in (2, 3, 4)
    },
    **{
        f"boxed {d} without keeping": (lambda s, d=d: boxed_unkept(d, s), lambda s, d=d: boxed_law(d, s), 0.9)
        for d in (1, 2, 3)
    },
    "the loudest score": (lambda s: loudest(SCORES, s), lambda s: chosen_law(SCORES, s), 1.5),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SAMPLERS)
def test_a_sampler_draws_from_its_exact_law(name):
    draw, law, scale = SAMPLERS[name]
    assert fit(lambda: draw(scale), law(scale)) > FALSE_ALARM


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in SAMPLERS if "short" not in name])
def test_control_a_sampler_of_a_scale_a_third_too_small_is_found_out(name):
    draw, law, scale = SAMPLERS[name]
    assert fit(lambda: draw(scale * 2 / 3), law(scale)) < FALSE_ALARM


@pytest.mark.slow
@pytest.mark.parametrize("name", WRONG)
def test_control_a_sampler_with_a_step_left_out_is_found_out(name):
    draw, law, scale = WRONG[name]
    assert fit(lambda: draw(scale), law(scale)) < FALSE_ALARM


def test_noise_is_added_to_the_totals_and_none_saturates_beyond_64_bits():
    """At the largest scale a draw passes 2⁶³ now and then; Python's integers hold it, and the sum stays what it was."""
    totals = [2**62, 5, 0, 2**61]
    for _ in range(20):
        assert sum(_release.zero_sum(totals, 2.0**58)) == sum(totals)
    assert _release.zero_sum([3, 4], 2.0**-6) == [3, 4]
    assert _release.boxed([3, 4, 5], 2.0**-6) == [3, 4, 5]
    far = [abs(_release._geometric(*(2.0**62).as_integer_ratio())) for _ in range(60)]
    assert max(far) > 2**63 > min(far)


@pytest.mark.parametrize("scale", [0.0, 2.0**-8, 2.0**60, math.inf, math.nan])
def test_a_scale_that_cannot_be_drawn_safely_is_refused(scale):
    for draw in (_release.noisy, _release.chosen, _release.zero_sum, _release.boxed):
        with pytest.raises(PrivacyError, match="cannot be drawn safely"):
            draw(1 if draw is _release.noisy else [1, 2], scale)


# --- Moments ---------------------------------------------------------------------------------------------------------

US = (1e-3, 0.1, 0.5, 0.8, 0.9)
SMALL = (2.0**-6, 0.2, 1.0, 4.7)


def log_moment(z, logs, lam):
    """Return ln E exp(λz) of a law on numbers, from logarithms of its probabilities up to a factor."""
    return float(np.logaddexp.reduce(logs + lam * z) - np.logaddexp.reduce(logs))


def mass_law(k, scale, reach):
    """The law of one of k numbers, added up over the other k − 1 one by one; logarithms, up to a factor."""
    z, r = np.arange(-reach, reach + 1), math.exp(-1 / (2 * scale))
    others = (z == 0).astype(float)
    for _ in range(k - 1):  # Σ r^|x − y|·f(y): what is to the left, what is to the right, and what is here once
        left, right = lfilter([1], [1, -r], others), lfilter([1], [1, -r], others[::-1])[::-1]
        others = left + right - others
    kept = others > 1e-290  # what is smaller cannot be seen in doubles
    return z[kept], -np.abs(z[kept]) / (2 * scale) + np.log(others[kept])


def test_the_law_of_one_cell_is_that_of_all_vectors():
    """The oracle itself, against every vector of three numbers."""
    z, logs = mass_law(3, 0.8, 16)
    law = zero_sum_law(3, 0.8)
    for value in range(-4, 5):
        whole = math.fsum(odds for vector, odds in law.items() if vector[0] == value)
        here = math.exp(logs[z == value][0] - np.logaddexp.reduce(logs))
        assert here == pytest.approx(whole, rel=1e-6)


@pytest.mark.parametrize("k", [2, 3, 4, 7, 12])
@pytest.mark.parametrize("scale", SMALL)
def test_the_moments_of_a_cell_are_never_below_the_truth_and_next_to_it(k, scale):
    for u in US:
        truth = log_moment(*mass_law(k, scale, int((60 + 4 * k) * scale / (1 - u)) + 40), u / scale)
        found = Mass(k).log_mgf(u, scale)
        assert truth - 1e-12 <= found <= truth + 1e-6 * max(1.0, truth)


@pytest.mark.parametrize("d", [1, 2, 3, 8, 64])
@pytest.mark.parametrize("scale", SMALL)
def test_the_moments_of_a_box_are_never_below_the_truth_and_next_to_it(d, scale):
    """Over the sizes R of the cube: a uniform number on {−R … R} has E exp(λz) = Σ exp(λz)/(2R + 1)."""
    for u in US:
        lam, r = u / scale, np.arange(int((60 + 4 * d) * scale / (1 - u)) + 40)
        sizes = d * np.log(2 * r + 1) - r / scale
        up = np.logaddexp.accumulate(lam * r)  # Σ exp(λz) over 0 ≤ z ≤ R
        down = np.concatenate([[-np.inf], np.logaddexp.accumulate(-lam * r[1:])])  # 0 counts once
        cube = np.logaddexp(up, down) - np.log(2 * r + 1)
        truth = float(np.logaddexp.reduce(sizes + cube) - np.logaddexp.reduce(sizes))
        found = Box(d).log_mgf(u, scale)
        assert truth - 1e-11 <= found <= truth + 1e-6 * max(1.0, truth)


@pytest.mark.parametrize("scale", [2.0**20, 2.0**30, 2.0**50])
@pytest.mark.parametrize("u", [0.01, 0.3, 0.9])
def test_at_large_scales_the_moments_are_those_of_the_continuous_law(scale, u):
    """Of k Laplace numbers given that their sum is 0, by Fourier's integral; of R·U with R of Gamma(d + 1)."""
    for k in (2, 3, 5, 10):

        def factor(w, lam):
            return 1 / (1 + 4 * (w - 1j * lam) ** 2)

        def shifted(w, k=k):
            return (factor(w, u / 2) * factor(w, -u / 2) ** (k - 1)).real

        above, below = (2 * quad(f, 0, np.inf, limit=500)[0] for f in (shifted, lambda w, k=k: factor(w, 0).real ** k))
        assert Mass(k).log_mgf(u, scale) == pytest.approx(math.log(above / below), rel=1e-6, abs=3e-9)
    for d in (1, 2, 5, 20):

        def density(r, d=d):
            return math.exp(d * math.log(r) - r - gammaln(d + 1)) * math.sinh(u * r) / (u * r) if r else 0.0

        most = (80 + 6 * d) / (1 - u)
        whole = quad(density, 0, min(most, 700), limit=500, points=[d / (1 - u)])[0]
        assert Box(d).log_mgf(u, scale) == pytest.approx(math.log(whole), rel=1e-6, abs=3e-9)


@pytest.mark.parametrize("scale", [0.3, 1.0, 20.0, 2.0**30])
def test_one_number_has_the_moments_of_laplace_noise_at_most(scale):
    for u in US:
        r = math.exp(-1 / scale)
        exact = 2 * math.log1p(-r) - math.log1p(-r * math.exp(u / scale)) - math.log1p(-r * math.exp(-u / scale))
        assert exact <= Line().log_mgf(u, scale) + 1e-6  # (1 − r)²/((1 − re^λ)(1 − re^−λ))
        assert Mass(2).log_mgf(u, scale) <= Line().log_mgf(u, scale) + 2e-9
        assert Box(1).log_mgf(u, scale) == pytest.approx(Mass(2).log_mgf(u, scale), rel=1e-6, abs=3e-9)


def test_the_mixture_of_the_proof_page_is_the_sum_that_it_comes_from():
    """Σⱼ C(m−1+j, j)·C(m−1+j+z, m−1)·r^j = Σᵢ aᵢ·C(z + i, i) for z ≥ 0, and aᵢ > 0."""
    for m, scale in itertools.product((1, 2, 3, 6), (0.4, 1.0, 3.0)):
        r, a = math.exp(-1 / scale), np.exp(_mixture(m, scale))
        assert (a > 0).all()
        for z in range(12):
            terms = (math.comb(m - 1 + j, j) * math.comb(m - 1 + j + z, m - 1) * r**j for j in range(400))
            mixed = math.fsum(float(a[i]) * math.comb(z + i, i) for i in range(m))
            assert mixed == pytest.approx(math.fsum(terms), rel=1e-9)


def test_the_polynomials_of_type_b_are_the_series_that_they_come_from():
    for n, x in itertools.product(range(9), (0.1, 0.5)):
        series = math.fsum((2 * r + 1) ** n * x**r for r in range(300))
        closed = sum(c * x**k for k, c in enumerate(_eulerian(n))) / (1 - x) ** (n + 1)
        assert closed == pytest.approx(series, rel=1e-12)
        assert min(_eulerian(n)) > 0


@pytest.mark.parametrize(
    ("geometry", "law"),
    [(Mass(k), zero_sum_law) for k in (2, 3)] + [(Box(d), boxed_law) for d in (1, 2)],
    ids=lambda case: getattr(case, "__name__", str(case)),
)
def test_the_predicted_variance_is_that_of_the_law(geometry, law):
    """Of all numbers together, at a scale at which the lattice is fine: within 3 % of s² times `noise`."""
    scale = 5.0
    variance = sum(odds * sum(x * x for x in z) for z, odds in law(geometry.numbers, scale, 120).items())
    assert variance == pytest.approx(geometry.noise * scale**2, rel=0.03)


def test_a_choice_misses_the_best_score_by_the_predicted_amount_at_most():
    """P(the chosen score is more than s·ln(K/β) below the best) ≤ β, in the exact law; about 2s² squared, at most."""
    for scores, scale in itertools.product(([0, -1, -2, -3, -4], [0, -7, -7, -7, -7], [0, -1, -1, -5, -9]), (0.5, 2.0)):
        law = chosen_law(scores, scale)
        for beta in (0.5, 0.1, 0.01):
            far = sum(law[i] for i, score in enumerate(scores) if -score > scale * math.log(len(scores) / beta))
            assert far <= beta
    with pytest.raises(InputError, match="no radius"):
        Choice().log_mgf(0.5, 1.0)
