"""What a report claims is true: groups without ids, and odds in words."""

from __future__ import annotations

import math
import re
from decimal import Decimal, localcontext

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hetdp
from hetdp.report import odds
from hetdp.server import dashboard

COLUMNS = {"value": "x", "missing": "none", "epsilon": "e", "bounds": (0, 1)}
TABLE = ("--value", "x", "--missing", "midpoint", "--epsilon", "e", "--bounds", "0", "1")


PANEL = "id,g,x,e\n" + "".join(f"p{i},g{i % 3},0.5,1\n" for i in range(600))
IDS = {"no ids": {}, "one row": {"person": "id"}, "average": {"person": "id", "rows": "average"}}


@pytest.mark.parametrize("ids", IDS)
def test_row_104_only_a_column_of_ids_makes_parallel_composition_a_claim(ids, tmp_path, hetdp_command):
    path = tmp_path / "panel.csv"
    path.write_text(PANEL)
    options = [part for name, column in IDS[ids].items() for part in (f"--{name}", column)]
    command = ("mean", path, *TABLE, *options, "--by", "g", "--public-column", "g")
    groups = hetdp.mean(path, **COLUMNS, by="g", public_columns=["g"], **IDS[ids])
    told = [groups.report(), groups.html(), groups.to_json(), repr(groups.to_dict()), groups.composition]
    told += [hetdp_command(*command)[1], hetdp_command(*command, "--json")[1]]
    for text in (" ".join(text.split()) for text in told):
        assert ("protects everybody at their own ε" in text or "protects everybody at their own \\u03b5" in text) == (
            ids != "no ids"
        )
        assert ("Assumed: every row is another person" in text) == (ids == "no ids")


SMALL = [1e-300, 1e-9, 0.0001, 0.004, 0.0049, 0.01, 0.14, 0.1, 0.5, 1.0, math.log(2), 3.0, 4.6, 4.62, 7.0, 12.0, 19.99]


def at_least(text, epsilon):
    """Whether a number in words is at least e^ε, in decimals of 50 digits; by how much it is above 1 beside e^ε."""
    with localcontext() as context:
        context.prec = 50
        true = Decimal(epsilon).exp() if epsilon > 1e-40 else 1 + Decimal(epsilon)
        return Decimal(text) >= true, (Decimal(text) - 1) / max(true - 1, Decimal("1e-6"))


@pytest.mark.parametrize("epsilon", SMALL)
def test_row_105_odds_are_rounded_up_and_never_1(epsilon):
    holds, ratio = at_least(odds(epsilon), epsilon)
    assert holds
    assert Decimal(odds(epsilon)) > 1
    assert ratio <= Decimal("1.0101"), "rounded up by more than the third digit"


@given(st.floats(min_value=1e-12, max_value=20))
def test_row_105_odds_are_never_below_the_truth(epsilon):
    holds, ratio = at_least(odds(epsilon), epsilon)
    assert holds
    assert ratio <= Decimal("1.0101")


@pytest.mark.parametrize("epsilon", [0.004, 0.14, 0.1, 1.0])
def test_row_105_reports_and_the_server_print_them(epsilon):
    plan = hetdp.plan({epsilon: 10**7}, bounds=(0, 1))
    said = re.search(r"spending ε = ([\d.e-]+) changes .* factor of ([\d.e+]+)", " ".join(plan.report().split()))
    assert float(said[1]) >= plan.spent.max()
    assert at_least(said[2], plan.spent.max().item())[0]
    on_the_server = re.search(r"factor of ([\d.e+]+)\.$", dashboard._meaning(epsilon)["sentence"])
    assert at_least(on_the_server[1], epsilon)[0]
