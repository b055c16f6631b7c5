"""The floating-point attack: it names a person's value in most releases of a float Laplace mean, in none of `hetdp`.

The attacker knows everything except one person's value, which is one of two. A release *names* the value when it is
possible under one of the two datasets and impossible under the other; then ε = 0.1 promised doubt and there is none.

The victim is the usual `w @ x + rng.laplace(scale)` in doubles. numpy draws a uniform u = k·2⁻⁵³ and returns
scale·log(2u) or −scale·log(2 − 2u): most doubles are never drawn, and which outputs are missing moves with the sum.

What is shown for `hetdp`: every release lies on the lattice lo + (hi − lo)·k/total with whole k and a public total,
the same under both datasets, and no residue of k is missing; so an attack by what is impossible names nobody, and the
verdicts of the float attack are no better than ε = 0.1 allows. That *every* whole k can be drawn is the law of
the sampler, which no number of draws can show (`test_doctor.py` fits it at small scales); that the odds under the two
datasets differ by at most e^ε is shown exactly by `test_neighbours.py`. Timing is not treated here.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import binom, chisquare

import hetdp

EPSILON, BOUNDS, N = 0.1, (-1.0, 1.0), 30
OTHERS = [0.125 * math.sin(i) for i in range(N - 1)]  # the mean is near 0
VALUES = (-0.3, 0.4)  # what the person's value may be
RELEASES = 1000  # of each dataset
FALSE_ALARM = 1e-9


def dataset(value):
    return [*OTHERS, value]


class Naive:
    """The mean of doubles plus Laplace noise of doubles: the right scale, the right law on paper."""

    scale = (BOUNDS[1] - BOUNDS[0]) / (N * EPSILON)

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    @staticmethod
    def mean(value):
        return float(np.full(N, 1 / N) @ np.array(dataset(value)))

    def release(self, value):
        return self.mean(value) + self.rng.laplace(scale=self.scale)

    @classmethod
    def draw(cls, k):
        """What numpy's sampler returns when its uniform number is k·2⁻⁵³."""
        u = k * 2.0**-53
        return -(cls.scale * math.log(2.0 - u - u)) if u >= 0.5 else cls.scale * math.log(u + u)

    @classmethod
    def possible(cls, output, value):
        """Whether some draw of the sampler gives this output on the dataset with this value.

        All k whose draw comes near what is needed are tried. The sums that round to the output lie within a unit
        in its last place; eight k more on both sides make up for the rounding of exp and log.
        """
        mean = cls.mean(value)
        needed, slack = Fraction(output) - Fraction(mean), Fraction(math.ulp(output))
        ends = [math.exp(-float(abs(needed + side * slack)) / cls.scale) * 2.0**52 for side in (-1, 1)]
        first, last = sorted(2**53 - round(end) if needed > 0 else round(end) for end in ends)
        candidates = range(max(first - 8, 1), min(last + 8, 2**53 - 1) + 1)
        return any(mean + cls.draw(k) == output for k in candidates)


def lattice_point(output, plan):
    """The whole k with output = lo + (hi − lo)·k/total, turned into a double once; None if there is none."""
    lo, hi = map(Fraction, plan.bounds)
    k = round((Fraction(output) - lo) / (hi - lo) * plan.total)
    return k if float(lo + (hi - lo) * Fraction(k, plan.total)) == output else None


class Exact:
    """`hetdp.mean`, and the same attack made for it: which outputs its noise can give on a dataset.

    `step` is the granularity of the noise that the attacker believes in; the real one is 1.
    """

    def __init__(self, step=1):
        self.step = step
        self.plan = hetdp.plan([EPSILON] * N, bounds=BOUNDS)
        self.sums = {value: self.floored_sum(value) for value in VALUES}

    def floored_sum(self, value):
        total = hetdp.read(dataset(value), epsilon=EPSILON, bounds=BOUNDS).table.total
        return int(self.plan.units[0]) * int(total[0, 0]) // 2**20

    @staticmethod
    def release(value):
        return hetdp.mean(dataset(value), epsilon=EPSILON, bounds=BOUNDS).unclamped

    def possible(self, output, value):
        k = lattice_point(output, self.plan)
        return k is not None and (k - self.sums[value]) % self.step == 0


def verdicts(outputs, possible):
    """For outputs by true value: how many name the right value, name the wrong one, or cannot come from the truth."""
    right = wrong = absurd = 0
    for truth, released in outputs.items():
        (lie,) = set(VALUES) - {truth}
        for output in released:
            under_truth, under_lie = possible(output, truth), possible(output, lie)
            right += under_truth and not under_lie
            wrong += under_lie and not under_truth
            absurd += not under_truth
    return right, wrong, absurd


@pytest.fixture(scope="module")
def naive_outputs():
    victim = Naive(seed=20)
    return {value: [victim.release(value) for _ in range(RELEASES)] for value in VALUES}


@pytest.fixture(scope="module")
def exact_outputs():
    return {value: [Exact.release(value) for _ in range(RELEASES)] for value in VALUES}


def test_the_float_version_names_the_value_in_most_single_releases(naive_outputs):
    """Always rightly: the truth is never found impossible."""
    right, wrong, absurd = verdicts(naive_outputs, Naive.possible)
    assert (wrong, absurd) == (0, 0)
    assert right > 0.5 * 2 * RELEASES


def test_no_release_of_hetdp_is_impossible_under_either_value(exact_outputs):
    assert not Exact().plan.abstains  # or there would be nothing to attack
    assert verdicts(exact_outputs, Exact().possible) == (0, 0, 0)
    assert len({output for released in exact_outputs.values() for output in released}) > 1.9 * RELEASES


def test_float_outputs_are_not_on_the_lattice(naive_outputs):
    """Control: being on the lattice is not something that every number does."""
    plan = Exact().plan
    assert all(lattice_point(output, plan) is None for output in naive_outputs[VALUES[0]])


def residues_are_missing(outputs):
    """Whether the last four bits of the whole numbers behind the outputs are not uniform, as fine noise makes them."""
    plan = Exact().plan
    last = [lattice_point(output, plan) % 16 for output in outputs]
    return chisquare(np.bincount(last, minlength=16)).pvalue < FALSE_ALARM


def test_noise_on_a_coarser_lattice_than_the_sum_would_name_the_value(exact_outputs, monkeypatch):
    """Control: the attack on the lattice is not blind. With noise in steps of 1000 it always succeeds."""
    assert not any(map(residues_are_missing, exact_outputs.values()))
    draw = np.random.default_rng(7)
    monkeypatch.setattr(
        "hetdp.privacy.release.noisy", lambda total, scale: total + 1000 * int(draw.laplace(0, scale / 1000))
    )
    outputs = {value: [Exact.release(value) for _ in range(100)] for value in VALUES}
    assert all(map(residues_are_missing, outputs.values()))
    assert verdicts(outputs, Exact(step=1000).possible) == (200, 0, 0)


def too_often_right(right, wrong):
    """Whether a guesser is right more often than ε-DP allows any guesser between two equally likely values."""
    limit = math.exp(EPSILON) / (1 + math.exp(EPSILON))
    return binom.sf(right - 1, right + wrong, limit) < FALSE_ALARM


def test_the_attack_that_breaks_the_float_version_learns_nothing_from_hetdp(naive_outputs, exact_outputs):
    """Its verdicts on the exact release are right no more often than ε = 0.1 allows."""
    assert too_often_right(*verdicts(naive_outputs, Naive.possible)[:2])
    right, wrong, _ = verdicts(exact_outputs, Naive.possible)
    assert right + wrong > 100  # it does give verdicts
    assert not too_often_right(right, wrong)
