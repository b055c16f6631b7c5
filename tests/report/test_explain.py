"""What ε means for a person: closed forms, computed here with 60 digits, and never rounded down."""

from __future__ import annotations

import json
import math
from decimal import Decimal, localcontext
from fractions import Fraction

import pytest

import hetdp

INF = math.inf
EPSILONS = [5e-324, 1e-300, 1e-17, 1e-9, 0.01, 0.1, 0.7, 1.0, math.log(3), 5.0, 20.0, 36.0, 40.0, 700.0]
PRIORS = [5e-324, 1e-300, 1e-12, 0.01, 0.1, 0.3, 0.5, 0.9, 1 - 1e-12]


def exact(epsilon, prior=0.5):
    """e^ε, p·e^ε/(1 − p + p·e^ε) and (e^ε − 1)/(e^ε + 1), with enough digits for any ε above."""
    with localcontext(prec=700):
        e, p = Decimal(epsilon).exp(), Decimal(prior)
        return e, p * e / (1 - p + p * e), (e - 1) / (e + 1)


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_every_limit_is_the_closed_form_rounded_up_by_a_hair(epsilon):
    found = hetdp.explain(epsilon)
    for shown, wanted in zip((found.odds, found.guess_from_half, found.advantage), exact(epsilon), strict=True):
        assert Decimal(shown) >= wanted
        assert Decimal(shown) <= wanted * (1 + Decimal("1e-14")) + Decimal("1e-323")


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("prior", PRIORS)
def test_a_guess_becomes_at_most_what_bayes_allows(epsilon, prior):
    after = hetdp.explain(epsilon).guess(prior)
    wanted = exact(epsilon, prior)[1]
    assert wanted <= Decimal(after) <= min(1, wanted * (1 + Decimal("1e-14")) + Decimal("1e-323"))


def test_the_mechanism_that_spends_all_of_it_reaches_the_limits():
    """Randomised response at ε = ln 3 says the truth in 3 of 4 cases: every limit is reached."""
    found = hetdp.explain(math.log(3))
    assert found.guess_from_half == pytest.approx(3 / 4)
    assert found.advantage == pytest.approx(3 / 4 - 1 / 4)
    assert found.odds == pytest.approx(3)


def test_nothing_and_everything_have_their_own_words():
    never, public = hetdp.explain(0), hetdp.explain("public")
    assert (never.odds, never.guess_from_half, never.advantage) == (1, 0.5, 0)
    assert [never.guess(p) for p in (0, 0.3, 1)] == [0, 0.3, 1]
    assert "the result does not depend on it" in str(never)
    assert (public.epsilon, public.odds, public.guess_from_half, public.advantage) == (INF, INF, 1, 1)
    assert [public.guess(p) for p in (0, 5e-324, 0.3, 1)] == [0, 1, 1, 1]
    assert "nothing is protected" in str(public)


def test_the_words_are_rounded_up():
    text = hetdp.explain(1).report()
    for said in ("2.72", "1% → 2.7%", "10% → 23.2%", "50% → 73.2%", "90% → 96.1%", "at most 46.3%"):
        assert said in text
    assert "50% → 50.1%" in hetdp.explain(1e-12).report()


def test_control_a_percentage_that_is_rounded_to_the_nearest_would_be_noticed():
    share = hetdp.explain(1).guess_from_half
    shown = Fraction(next(word for word in str(hetdp.explain(1)).split() if word.startswith("73"))[:-2]) / 100
    assert shown >= share > Fraction(f"{share:.3f}")


def test_the_command_says_what_the_function_says(hetdp_command):
    assert hetdp_command("explain", "0.1") == (0, f"{hetdp.explain(0.1)}\n", "")
    assert json.loads(hetdp_command("explain", "inf", "--json")[1]) == hetdp.explain(INF).to_dict()
    assert hetdp.explain(INF).to_dict()["odds"] == "inf"


@pytest.mark.parametrize("wrong", ["1e400", "nan", "-0.5", "much", ""])
def test_what_is_no_epsilon_is_refused(hetdp_command, wrong):
    with pytest.raises(hetdp.InputError):
        hetdp.explain(wrong)
    code, out, err = hetdp_command("explain", "--", wrong)
    assert (code, out, err.count("\n")) == (2, "", 1)
    with pytest.raises(hetdp.InputError, match="between 0 and 1"):
        hetdp.explain(1).guess(1.5)
