"""One table, every source, the same integers. A new source joins `table_sources` and has to pass all of it."""

from __future__ import annotations

import math
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import hetdp
import oracle
from hetdp.sources import Source, read_groups
from hetdp.statistics.mean import Mean
from oracle import GRID, seen
from support import EXTREME_VALUES, examples
from table_sources import HOLD_TEXT, SOURCES, SPARK, frame, query_of

INF = math.inf
LO, HI = -2.0, 3.0
WIDTH = HI - LO
TIES = [LO + WIDTH * (k + 0.5) / GRID for k in (0, 1, 7, GRID // 2, GRID - 1)]
NEAR = [math.nextafter(x, side) for x in (LO, HI, *TIES) for side in (-INF, INF)]
NUMBERS = [*EXTREME_VALUES, LO, HI, *TIES, *NEAR, None]
TEXTS = [
    "",
    "NA",
    "null",
    "-",
    "1.5",
    " 2.5 ",
    "+1",
    "1e999",
    "-1e999",
    "0x1F",
    "1_000",
    "true",
    "12abc",
    "=1+1",
    "1.5.2",
    "１",
]
EPSILONS = [0.0, -0.0, 1e-300, 5e-324, 0.1, 0.5, 1.0, 20.0, 1e300, INF]
COLUMNS = {"value": "x", "missing": "midpoint", "epsilon": "e", "bounds": (LO, HI)}


def brute(rows):
    return oracle.expected([(x, e) for _, _, x, e in rows], (LO, HI))


def adversarial(cells):
    """Every cell at every ε, each person alone."""
    pairs = [(x, e) for e in EPSILONS for x in cells]
    return [(f"p{i}", f"g{i % 3}", x, e) for i, (x, e) in enumerate(pairs)]


@pytest.mark.parametrize("name", SOURCES)
def test_every_source_gives_the_integers_of_the_formula(name, made):
    rows = adversarial(NUMBERS)
    assert seen(hetdp.read(made(name, rows), **COLUMNS, **query_of(name))) == brute(rows)


def test_control_a_wrong_formula_is_noticed(made, monkeypatch):
    """Rounding half to even, as many engines do, differs on ties."""
    rows = adversarial(TIES)
    monkeypatch.setattr(oracle, "code", lambda x, _: round((x - LO) / WIDTH * GRID))
    assert seen(hetdp.read(made("csv", rows), **COLUMNS)) != brute(rows)


@pytest.mark.parametrize("name", HOLD_TEXT)
def test_every_source_that_can_hold_text_reads_it_by_the_one_rule(name, made):
    rows = adversarial([*TEXTS, 1.0])
    assert seen(hetdp.read(made(name, rows), **COLUMNS, **query_of(name))) == brute(rows)


@pytest.mark.parametrize("name", [name for name in SOURCES if name not in ["pandas", "pandas nullable"]])
def test_people_with_several_rows_and_groups_are_the_same_everywhere(name, made):
    cells = [x for x in NUMBERS if x is None or not math.isnan(x)]
    rows = [(f"p{i % 40}", f"g{i % 40 % 3}", x, EPSILONS[i % 40 % len(EPSILONS)]) for i, x in enumerate(cells * 5)]
    people = {"value": "x", "epsilon": "e", "person": "id", "rows": "average", "by": "g"}
    expected = read_groups(Source.of(frame(rows), **people), Mean((LO, HI)))
    found = read_groups(Source.of(made(name, rows), **people, **query_of(name)), Mean((LO, HI)))
    assert found == expected
    assert sum(tally.n for tally in found.values()) == 40


@pytest.mark.parametrize("name", SOURCES)
def test_a_second_row_and_a_second_epsilon_are_refused_everywhere(name, made):
    twice = made(name, [("a", "g", 1.0, 0.5), ("b", "g", 1.0, 0.5), ("a", "g", 2.0, 0.5)])
    with pytest.raises(hetdp.InputError, match="'a'"):
        hetdp.read(twice, person="id", **COLUMNS, **query_of(name))
    differ = made(name, [("a", "g", 1.0, 0.5), ("b", "g", 1.0, 0.5), ("a", "g", 2.0, 0.6)])
    with pytest.raises(hetdp.InputError, match="'a'"):
        hetdp.read(differ, person="id", rows="average", **COLUMNS, **query_of(name))


@pytest.mark.parametrize("bad", [-1.0, -INF, math.nan], ids=["negative", "minus infinity", "NaN"])
@pytest.mark.parametrize("name", SOURCES)
def test_a_bad_epsilon_is_refused_everywhere_and_no_value_is_told(name, bad, made):
    source = made(name, [("a", "g", 0.98765, 0.5), ("b", "g", 0.98765, bad)])
    with pytest.raises(hetdp.InputError, match="epsilon") as refused:
        hetdp.read(source, **COLUMNS, **query_of(name))
    assert "98765" not in str(refused.value)


def _none(dask_frame):
    """Dask cannot make a frame in two parts of nobody, but it can filter one until nobody is left."""
    return dask_frame[dask_frame.e > 5]


@pytest.mark.parametrize("name", SOURCES)
def test_nobody_is_refused_everywhere(name, made):
    somebody = [("a", "g", 1.0, 1.0)]
    source = _none(made(name, somebody)) if name == "dask" else made(name, [])
    with pytest.raises(hetdp.InputError, match="n = 0"):
        hetdp.read(source, **COLUMNS, **query_of(name))


cells = st.one_of(st.sampled_from(NUMBERS), st.floats(allow_nan=False, width=64))
levels = st.one_of(st.sampled_from(EPSILONS), st.floats(min_value=0, allow_nan=False, allow_infinity=False))
tables = st.lists(st.tuples(cells, levels), min_size=1, max_size=30).map(
    lambda pairs: [(f"p{i}", "g", x, e) for i, (x, e) in enumerate(pairs)]
)
ANY = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


SLOW = ["dask", "duckdb", "ibis", "postgres", SPARK]


@pytest.mark.parametrize("name", [name for name in SOURCES if name not in SLOW])
@given(rows=tables)
@settings(ANY, max_examples=examples(25))
def test_any_table_is_the_same_everywhere(name, rows, made):
    assert seen(hetdp.read(made(name, rows), **COLUMNS, **query_of(name))) == brute(rows)


@pytest.mark.parametrize("name", SLOW)
@given(rows=tables)
@settings(ANY, max_examples=6)
def test_any_table_is_the_same_in_the_engines_that_start_slowly(name, rows, made):
    assert seen(hetdp.read(made(name, rows), **COLUMNS, **query_of(name))) == brute(rows)


@pytest.mark.slow
@pytest.mark.parametrize("name", SOURCES)
def test_many_levels_are_rounded_to_the_same_integers_everywhere(name, made):
    """70,000 different ε from 1e-310 to 1e308, powers of two and their neighbours among them."""
    rng = np.random.default_rng(7)
    spread = np.exp2(rng.uniform(-1030, 1023.9, 69_000)).tolist()
    edges = [math.nextafter(2.0**k, side) for k in range(-400, 400) for side in (0, INF)]
    epsilons = [*spread, *edges, 0.0, INF, 5e-324, 2.0**-1000]
    rows = [(f"p{i}", "g", NUMBERS[i % len(NUMBERS)], e) for i, e in enumerate(epsilons)]
    columns = list(zip(*rows, strict=True))
    values = np.array(columns[2], dtype=float)
    expected = hetdp.read(values, epsilon=np.array(epsilons), bounds=(LO, HI), missing="midpoint")
    assert expected.levels.rounded
    assert hetdp.read(made(name, rows), **COLUMNS, **query_of(name)) == expected


@pytest.mark.parametrize("kind", ["float32", "int64", "uint8", "bool", "decimal", "object"])
def test_values_of_every_kind_in_memory_follow_the_one_formula(kind):
    cells = [0, 1, 1, 0, 1]
    arrays = {
        "decimal": np.array([Decimal(x) for x in cells], dtype=object),
        "object": np.array(["0", 1, 1.0, Decimal(0), "1"], dtype=object),
    }
    values = arrays[kind] if kind in arrays else np.array(cells, dtype=kind)
    tally = hetdp.read(values, epsilon=[0.5] * 5, bounds=(LO, HI))
    assert seen(tally) == brute([("", "", float(x), 0.5) for x in cells])
