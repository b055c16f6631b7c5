"""A mean whose variance is learned from what it leaves of everybody's ε: the ledger charges both draws under one id."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

import hetdp
from hetdp.errors import LedgerError
from hetdp.ledger import Ledger, charges
from hetdp.ledger import charge as ledger_charge
from hetdp.ledger.charge import plan_facts, plan_of
from hetdp.privacy.exact import NoiseTerm

BUDGETS = {"strict": 0.2, "open": 5.0, "public": math.inf}
PEOPLE = [f"{tier}{i}" for tier in BUDGETS for i in range(800)]
ASK = {"person": PEOPLE, "bounds": (0, 200), "share": 0.5, "missing": "midpoint"}
VALUES = np.random.default_rng(4).gamma(2, 5, len(PEOPLE))


@pytest.fixture
def ledger(tmp_path):
    with Ledger.create(tmp_path / "budgets.db") as found:
        found.enroll({person: BUDGETS[person.rstrip("0123456789")] for person in PEOPLE})
        yield found


def kept(plan):
    """The facts of a plan as an event keeps them."""
    return json.loads(ledger_charge.books.canonical(plan_facts(plan)))


def both(plan, i):
    """What one person of a level spends on the two draws together, in exact fractions."""
    parts = ((plan, plan.noise[0]), (plan.squares, plan.squares.noise[0]))
    return sum(Fraction(int(part.units[i])) / Fraction(term.scale) for part, term in parts)


def test_everybody_is_charged_the_exact_sum_of_both_draws_rounded_up_once_and_never_more_than_they_allow(ledger):
    answer = ledger.mean(VALUES, release_id="may", variance="learn", **ASK)
    assert answer.plan.squares is not None
    for i, tier in enumerate(("strict", "open")):
        spent, balance = both(answer.plan, i), ledger.balance(f"{tier}7")
        expected = math.ceil(10**9 * spent)
        assert round(balance.spent * 10**9) == expected
        assert expected <= 10**9 * Fraction(str(BUDGETS[tier])) / 2
    plain = ledger.mean(VALUES, release_id="plain", **ASK)
    assert ledger.balance("open7").spent < 5  # a plain mean leaves most of it
    assert plain.plan.spent[1] < answer.plan.spent[1]


def test_what_is_charged_for_learning_is_more_than_for_the_mean_alone(ledger):
    """The control of the test above: without the second draw the open would pay a twentieth."""
    learning = hetdp.plan({0.1: 800, 2.5: 800}, bounds=(0, 200), variance="learn")
    alone = hetdp.plan({0.1: 800, 2.5: 800}, bounds=(0, 200))
    assert charges(learning)[1] > 10 * charges(alone)[1]
    assert charges(learning)[0] == charges(alone)[0]  # the strictest have nothing left to learn from


def test_the_interval_is_narrower_and_the_same_when_the_stored_result_is_asked_for_again(ledger):
    answer = ledger.mean(VALUES, release_id="may", variance="learn", **ASK)
    again = ledger.mean(VALUES, release_id="may", variance="learn", **ASK)
    assert again.numbers == answer.numbers
    assert again.confidence_interval() == answer.confidence_interval()
    plain = hetdp.Release(hetdp.plan(answer.plan.levels, bounds=(0, 200)), answer.numbers[:1])
    (low, high), (a, b) = answer.confidence_interval(), plain.confidence_interval()
    assert high - low < 0.8 * (b - a)
    assert "1 release" in str(ledger.verify())


def test_the_second_number_is_the_mean_of_squares_of_each_persons_average(ledger):
    """Two rows a person: the square is that of their average, as everywhere, not the average of squares."""
    spread = np.concatenate([VALUES - 40, VALUES + 40])
    answer = ledger.mean(spread, release_id="may", variance="learn", **{**ASK, "person": PEOPLE * 2, "bounds": (0, 60)})
    average = (np.clip(VALUES - 40, 0, 60) + np.clip(VALUES + 40, 0, 60)) / 2
    assert answer.numbers[1] == pytest.approx(np.mean((average / 30 - 1) ** 2), abs=0.03)
    rows = np.mean((np.clip(spread, 0, 60) / 30 - 1) ** 2)
    assert abs(answer.numbers[1] - rows) > 0.1  # the control


def test_groups_learn_each_for_itself(ledger):
    by = {person: "a" if i % 2 else "b" for i, person in enumerate(PEOPLE)}
    groups = ledger.mean(VALUES, release_id="may", variance="learn", by=by, **ASK)
    assert [len(answer.numbers) for answer in groups.values()] == [2, 2]


def test_a_plan_that_learns_comes_back_from_its_event_as_it_was():
    plan = hetdp.plan({0.1: 800, 2.5: 700, math.inf: 9}, statistic=hetdp.ask.mean(bounds=(0, 9)), variance="learn")
    back = plan_of(kept(plan))
    assert charges(back).tolist() == charges(plan).tolist()
    assert back.squares.units.tolist() == plan.squares.units.tolist()
    assert back.squares.noise == plan.squares.noise
    assert type(back.statistic) is type(plan.statistic)
    nobody = hetdp.plan({0.5: 100}, statistic=hetdp.ask.mean(bounds=(0, 9)), variance="learn")
    assert plan_of(kept(nobody)).squares is None


def charged_for_the_mean_alone(event):
    """A forged charge: both draws, for the price of the first."""
    facts = event.facts
    plan = plan_of(facts["plan"])
    return replace(event, body=ledger_charge.books.canonical({**facts, "units": charges(replace(plan, squares=None))}))


def asked_for_a_plain_mean(event):
    facts = event.facts
    request = {**facts["request"], "plan": {**facts["request"]["plan"], "variance": None}}
    return replace(event, body=ledger_charge.books.canonical({**facts, "request": request}))


@pytest.mark.parametrize("forge", [charged_for_the_mean_alone, asked_for_a_plain_mean])
def test_a_charge_that_does_not_cover_both_draws_is_refused_before_a_value_is_read(forge, ledger, monkeypatch):
    seen = []
    written = ledger_charge._charge_now

    def forged(connection, state, request, there):
        now, event, moved = written(connection, state, request, there)
        return now, forge(event), moved

    monkeypatch.setattr(ledger_charge, "_charge_now", forged)
    monkeypatch.setattr(ledger_charge, "_read", lambda *_: seen.append(1))
    with pytest.raises(LedgerError, match="not what its plan spends"):
        ledger.mean(VALUES, release_id="may", variance="learn", **ASK)
    assert seen == []


def test_a_second_draw_with_less_noise_than_was_charged_does_not_come_back_from_an_event():
    plan = hetdp.plan({0.1: 800, 2.5: 700}, statistic=hetdp.ask.mean(bounds=(0, 9)), variance="learn")
    facts = kept(plan)
    (term,) = plan.squares.noise
    less = NoiseTerm(term.scale * (1 - 1e-9), term.first, term.last)
    facts["learn"] = {**facts["learn"], "noise": [[less.scale.hex(), less.first, less.last]]}
    with pytest.raises(hetdp.HetdpError, match="together"):
        plan_of(facts)


def test_what_cannot_learn_says_so_before_anybody_is_charged(ledger):
    told = {name: ASK[name] for name in ("person", "share")}
    total = hetdp.ask.sum(bounds=(0, 200), missing="midpoint")
    with pytest.raises(hetdp.HetdpError, match="not for a sum"):
        ledger.ask(VALUES, total, release_id="may", variance="learn", **told)
    with pytest.raises(hetdp.HetdpError, match="those who answered"):
        ledger.mean(VALUES, release_id="may", variance="learn", **{**ASK, "missing": "estimate"})
    assert not ledger.charged("may")


def test_a_forecast_and_a_dry_run_count_what_learning_takes(ledger):
    run = ledger.mean(VALUES, release_id="may", variance="learn", dry_run=True, **ASK)
    assert "2.5" in str(run)
    often = ledger.forecast(bounds=(0, 200), share=0.5)
    assert str(ledger.forecast(bounds=(0, 200), share=0.5, variance="learn")) != str(often)
