"""The sampler gate lets the right noise pass and stops samplers of a wrong law, some of which were in real use."""

from __future__ import annotations

import math
from collections import Counter
from itertools import cycle

import numpy as np
import pytest
from scipy.stats import chisquare, kstest

from hetdp.checks.doctor import ALPHA, DRAWS, SCALES, family_gate, sampler_gate
from hetdp.privacy import release as _release


def passes(draw):
    """Whether the gate is open for a sampler."""
    return all(fit.passed for fit in sampler_gate(draw))


def supplier(draws_of, seed=3):
    """A sampler from a function (rng, scale, size) → array; seeded, so that these tests always say the same."""
    rng = np.random.default_rng(seed)
    supply = {scale: iter(draws_of(rng, scale, DRAWS).tolist()) for scale in SCALES}
    return lambda total, scale: total + int(next(supply[scale]))


def discrete_laplace(rng, scale, size):
    """The right law: the difference of two geometric numbers, each P(k) = (1 − q)·q^k with q = e^(−1/scale)."""
    first, second = rng.geometric(-math.expm1(-1 / scale), (2, size))
    return first - second


def narrow_tail(rng, scale, size):
    """Right up to one scale, 15 % narrower beyond."""
    z = discrete_laplace(rng, scale, size)
    beyond = np.maximum(np.abs(z) - scale, 0)
    return np.sign(z) * np.rint(np.abs(z) - 0.15 * beyond)


def clipped(rng, scale, size):
    return np.clip(discrete_laplace(rng, scale, size), -math.floor(3 * scale), math.floor(3 * scale))


WRONG = {
    "OpenDP before 0.14.2: scale 3 costs 0.50 a unit": lambda rng, s, n: discrete_laplace(rng, 2.0 if s == 3 else s, n),
    "a rounded continuous Laplace number": lambda rng, s, n: np.rint(rng.laplace(0, s, n)),
    "noise in steps of 2": lambda rng, s, n: 2 * discrete_laplace(rng, s / 2, n),
    "noise clipped at 3 scales": clipped,
    "tail 15 % narrow": narrow_tail,
    "scale 10 % low": lambda rng, s, n: discrete_laplace(rng, 0.9 * s, n),
    "scale 10 % high": lambda rng, s, n: discrete_laplace(rng, 1.1 * s, n),
    "one-sided": lambda rng, s, n: np.abs(discrete_laplace(rng, s, n)),
    "off by one": lambda rng, s, n: 1 + discrete_laplace(rng, s, n),
    "no noise": lambda rng, s, n: 0 * discrete_laplace(rng, s, n),
    "a hundred draws again and again": lambda rng, s, n: np.resize(discrete_laplace(rng, s, 100), n),
}


@pytest.mark.slow
def test_the_sampler_that_releases_use_passes():
    fits = sampler_gate()
    assert [(fit.scale, fit.draws) for fit in fits] == [(1.5, 20_000), (3.0, 20_000)]
    assert all(fit.passed for fit in fits)


@pytest.mark.parametrize("law", WRONG)
def test_a_sampler_of_a_wrong_law_does_not_pass(law):
    assert not passes(supplier(WRONG[law]))


def test_a_sampler_with_a_fixed_seed_does_not_pass():
    assert not passes(lambda total, scale: total + int(discrete_laplace(np.random.default_rng(8), scale, 1)[0]))


def test_one_bad_scale_is_enough_to_fail():
    right, wrong = supplier(discrete_laplace), supplier(WRONG["noise in steps of 2"])
    for bad in SCALES:
        fits = sampler_gate(lambda total, scale, bad=bad: (wrong if scale == bad else right)(total, scale), 10_000)
        assert [fit.passed for fit in fits] == [scale != bad for scale in SCALES]


def test_a_right_sampler_that_shares_no_code_passes_and_its_p_values_are_uniform():
    """So a p-value below 1e-9 comes once in about 1e9 runs, and the gate is neither blind nor jumpy."""
    fits = [fit for seed in range(60) for fit in sampler_gate(supplier(discrete_laplace, seed), 5_000)]
    assert all(fit.passed for fit in fits)
    assert kstest([fit.p_value for fit in fits], "uniform").pvalue > 1e-9
    wrong = [fit for seed in range(10) for fit in sampler_gate(supplier(WRONG["scale 10 % low"], seed), 5_000)]
    assert kstest([fit.p_value for fit in wrong], "uniform").pvalue < 1e-9


@pytest.mark.parametrize("scale", SCALES)
def test_the_statistic_is_the_chi_square_of_a_table_made_by_hand(scale):
    """The classes: single numbers, and two tails that begin where fewer than ten draws would be expected."""
    draws = discrete_laplace(np.random.default_rng(1), scale, DRAWS)
    supply = {s: cycle(draws.tolist()) for s in SCALES}
    (fit,) = (fit for fit in sampler_gate(lambda total, s: total + next(supply[s])) if fit.scale == scale)
    chance = {z: math.tanh(1 / (2 * scale)) * math.exp(-abs(z) / scale) for z in range(-400, 401)}
    assert sum(chance.values()) == pytest.approx(1, abs=1e-12)
    tail = {edge: sum(chance[z] for z in range(edge + 1, 401)) for edge in range(60)}
    edge = max(edge for edge in tail if DRAWS * tail[edge] >= 10)
    pooled = Counter(np.clip(draws, -edge - 1, edge + 1).tolist())
    expected = [tail[edge], *(chance[z] for z in range(-edge, edge + 1)), tail[edge]]
    table = chisquare([pooled[z] for z in range(-edge - 1, edge + 2)], np.array(expected) / sum(expected) * DRAWS)
    assert fit.chi_square == pytest.approx(table.statistic, rel=1e-9)
    assert fit.p_value == pytest.approx(table.pvalue, rel=1e-6)
    assert fit.passed == (table.pvalue >= ALPHA)


# ---------------------------------------------------------------------------------------------------------
# Noise of several numbers, and choices


@pytest.mark.slow
def test_the_noise_of_several_numbers_and_the_choice_that_releases_use_pass():
    fits = family_gate()
    assert len({fit.law for fit in fits}) == 5
    assert all(fit.passed for fit in fits)


def hasty_mass(totals, scale):
    """Zero-sum noise that is taken without its last coin."""
    top, bottom = _release._ratio(2 * scale)
    drawn = [_release._laplace(top, bottom) for _ in totals[1:]]
    return [*drawn, -sum(drawn)]


def hasty_box(totals, scale):
    """A cube whose size is taken as it comes."""
    top, bottom = _release._ratio(scale)
    size = sum(_release._geometric(top, bottom) for _ in range(len(totals) + 1))
    return [_release.secrets.randbelow(2 * size + 1) - size for _ in totals]


WRONG_FAMILY = {
    "zero-sum noise without its last coin": {"mass": hasty_mass},
    "zero-sum noise of half the scale": {"mass": lambda totals, scale: _release.zero_sum(totals, scale / 2)},
    "zero-sum noise whose first number is the largest": {"mass": lambda t, s: sorted(_release.zero_sum(t, s))[::-1]},
    "a box without its coin": {"box": hasty_box},
    "a box of independent noise": {"box": lambda totals, scale: [_release.noisy(t, scale) for t in totals]},
    "a choice at half the scale": {"choice": lambda scores, scale: _release.chosen(scores, scale / 2)},
    "the best cell always": {"choice": lambda scores, _: scores.index(max(scores))},
}


@pytest.mark.slow
@pytest.mark.parametrize("wrong", WRONG_FAMILY.values(), ids=WRONG_FAMILY)
def test_a_wrong_law_of_several_numbers_does_not_pass(wrong):
    assert not all(fit.passed for fit in family_gate(**wrong))
