"""What stands beside an estimate is right too: errors, shares, conditions, units and names, for every statistic."""

from __future__ import annotations

import decimal
import json
import math

import numpy as np
import pandas as pd
import polars as pl
import pytest

import hetdp
from hetdp.core.cells import Categories, Edges, Words
from hetdp.ledger import Ledger
from hetdp.report import percent, spent_epsilon
from hetdp.report.compare import needed
from hetdp.report.drift import UNREAD

ask = hetdp.ask
RNG = np.random.default_rng(23)


def words(answer):
    """The report in one line."""
    return " ".join(answer.report().split())


def frame(x, eps, **more):
    return pl.DataFrame({"x": x, "eps": eps, **more})


def simulated(plan, mean_of, answers_of, releases=4000):
    """The mean squared error of those who answered, in units of the values, by an own simulation of people and noise.

    Levels of ε have their own means and answering rates; people answer 0 or 1, on an interval of length 1. Noise: of
    three cells as the release draws it, approximated by independent normal numbers of the same variance.
    """
    rng, weight, count = np.random.default_rng(5), plan.person_weight, plan.levels.count
    upper, whole = np.zeros(releases), np.zeros(releases)
    for w, n, m, r in zip(weight, count, mean_of, answers_of, strict=True):
        there = rng.binomial(n, r, releases)
        upper += w * rng.binomial(there, m)
        whole += w * there
    deviation = math.sqrt(plan.errors.noise / 3)  # of one cell; they add up to 0
    noise = rng.normal(0, deviation, (releases, 3)) * math.sqrt(1.5)
    noise -= noise.mean(axis=1, keepdims=True)
    shares = np.asarray(count) * np.asarray(answers_of)
    truth = float(shares @ np.asarray(mean_of) / shares.sum())
    found = (upper + noise[:, 0]) / (whole + noise[:, 0] + noise[:, 1])
    return math.sqrt(float(np.mean((np.clip(found, 0, 1) - truth) ** 2)))


# --- Those who answered, and a stated drift


def test_the_share_who_answered_needs_that_epsilon_tells_nothing_about_who_answers_also_with_a_drift():
    """A drift is about values. Who answers may still go with ε: the interval then covers the true share in no case."""
    n = 8000
    eps = np.where(RNG.random(n) < 0.1, 0.01, 2.0)
    there = RNG.random(n) < np.where(eps < 1, 0.9, 0.3)
    people = frame(np.where(there, RNG.random(n) * 100, np.nan), eps)
    for asked in (
        lambda **how: hetdp.mean(people, value="x", epsilon="eps", bounds=(0, 100), **how),
        lambda **how: hetdp.proportion(people, value="x", epsilon="eps", equals=5, **how),
    ):
        answer = asked(missing="estimate", drift=0.05)
        low, high = answer.to_dict()["answered"]["interval"]
        assert not low <= there.mean() <= high  # so a condition has to stand there
        assert "that of the share who answered if ε tells nothing about who answers" in words(answer)
        assert "that of the share who answered if ε tells nothing about who answers" in answer._repr_html_()
        assert answer.to_dict()["answered"]["condition"] == "if ε tells nothing about who answers"
        assert answer.to_dict()["condition"] is None
        without = asked(missing="estimate")
        assert "if ε tells nothing about the value or about who answers; each by itself" in words(without)
        assert without.to_dict()["condition"] == "if ε tells nothing about the value or about who answers"
    alike = hetdp.mean(people, value="x", epsilon=1.0, bounds=(0, 100), missing="estimate", drift=0.05)
    assert "who answers" not in words(alike).replace("those who answered", "")
    assert alike.to_dict()["answered"]["condition"] is None


@pytest.mark.parametrize("share", [1.0, 0.5, 0.1])
@pytest.mark.parametrize("method", ["adpm", "proportional", "uniform"])
@pytest.mark.parametrize("drift", [0.0, 0.2])
def test_the_worst_error_of_those_who_answered_is_not_below_that_of_a_simulation_with_the_drift(method, drift, share):
    plan = hetdp.plan(
        {0.02: 3000, 2.0: 1000}, statistic=ask.mean((0, 100), missing="estimate"), method=method, drift=drift
    )
    promised = plan.statistic.error_answered(plan, share) / 100
    for middle in (0.5, 0.3, 0.9):
        means = (min(middle + drift / 2, 1.0), max(min(middle + drift / 2, 1.0) - drift, 0.0))
        found = simulated(plan, means, (share, share))
        assert found <= 1.05 * promised
    if drift and plan.bias_share > 0.2:  # control: without the bias the promise would be broken
        squares, eta = plan.errors.spread, plan.errors.scales[0]
        assert math.sqrt(squares / (4 * share) + 10 / 3 * eta**2 / share**2) < 0.8 * found


def test_a_stated_drift_is_in_the_error_of_one_answer_and_of_combined_ones():
    n = 6000
    eps = np.where(RNG.random(n) < 0.5, 0.05, 2.0)
    people = frame(np.where(eps < 1, 30.0, 50.0), eps, g=RNG.choice(["a", "b"], n))
    how = {"value": "x", "epsilon": "eps", "bounds": (0, 100), "missing": "estimate", "method": "proportional"}
    one = hetdp.mean(people, **how, drift=0.2)
    bias = 0.2 * one.plan.bias_share * 100
    assert one.to_dict()["error_by_share_answered"][0]["error"] >= bias > 5
    assert abs(one.estimate - people["x"].mean()) <= 1.2 * bias
    assert "which the error includes" in words(one)
    groups = hetdp.mean(people, **how, drift=0.2, by="g", public_columns=["g"])
    both = groups.combine({"a": 1, "b": 1})
    biases = [0.2 * r.plan.bias_share * 100 / r.share for r in groups.values()]
    assert both.worst_case_error >= 0.999 * sum(biases) / 2  # of all groups in one direction
    assert "which the error includes" in words(both)


def test_the_drift_line_divides_by_the_share_who_answered_where_it_is_released():
    n = 20_000
    eps = np.tile([0.05, 2.0], n // 2)
    people = frame(np.where(RNG.random(n) < 0.1, 20.0, np.nan), eps, g=np.repeat(["a", "b"], n // 2))
    how = {"value": "x", "epsilon": "eps", "missing": "estimate"}
    mean = hetdp.mean(people, bounds=(0, 100), **how)
    assert ", since 10% answered" in words(mean)
    off = float(words(mean).split("this estimate would be off by up to ")[1].split(",")[0])
    assert off == pytest.approx(10 * min(mean.plan.bias_share / mean.share, 1), rel=0.06)
    share = hetdp.proportion(people, equals=20, **how)
    off = float(words(share).split("it would be off by up to ")[1].split(" percentage points, since 10% answered")[0])
    assert off == pytest.approx(10 * min(share.plan.bias_share / share.share, 1), rel=0.01)
    std = hetdp.std(people, bounds=(0, 100), **how)
    assert ", since 10% answered" in words(std)
    assert float(words(std).split("Answered ")[1].split("% of all people")[0]) == pytest.approx(10, abs=2)
    assert std.to_dict()["answered"] == std.share
    assert "not published" not in words(std)
    groups = hetdp.mean(people, bounds=(0, 100), by="g", public_columns=["g"], **how)
    both = groups.combine({"a": 1, "b": 1})
    off = float(words(both).split("this estimate would be off by up to ")[1].split()[0])
    assert off == pytest.approx(np.mean([10 * min(r.plan.bias_share / r.share, 1) for r in groups.values()]), rel=0.06)
    means = hetdp.mean(people.with_columns(y=pl.col("x")), value=["x", "y"], epsilon="eps", missing="estimate",
                       bounds={"x": (0, 100), "y": (0, 100)})  # fmt: skip
    assert "divided by the share of people who answered the column" in words(means)


@pytest.mark.parametrize(
    ("asked", "whom"),
    [
        (ask.quantile(0.5, (0, 9), missing="estimate"), "answered"),
        (ask.std((0, 9), missing="estimate"), "answered"),
        (ask.means({"x": (0, 9), "y": (0, 9)}, missing="estimate"), "answered the column"),
        (ask.mean_by_group((0, 9), ["a"], missing="estimate"), "are in the group and answered"),
        (ask.mean_by_group((0, 9), ["a"], missing="midpoint"), "are in the group"),
        (ask.histogram(categories=["a", "b"]), None),
        (ask.std((0, 9), missing="none"), None),
        (ask.quantile(0.5, (0, 9), missing="none"), None),
    ],
)
def test_errors_and_drifts_of_ratios_say_by_which_share_they_are_divided(asked, whom):
    said = " ".join(hetdp.plan({0.05: 4000, 2.0: 4000}, statistic=asked).report().split())
    assert said.count("divided by the share") == (0 if whom is None else 2)  # once under Error, once under Drift
    assert whom is None or said.count(f"divided by the share of people who {whom}") == 2


def test_the_error_of_a_column_with_few_answers_is_what_the_report_says_once_divided():
    """The control: without the division the report would promise a tenth of the error."""
    n, share, rng = 2000, 0.1, np.random.default_rng(8)
    found = []
    for _ in range(60):
        y = np.where(rng.random(n) < share, rng.integers(0, 2, n) * 100.0, np.nan)
        people = frame(np.zeros(n), np.full(n, 1.0), y=y)
        answer = hetdp.mean(
            people, value=["x", "y"], epsilon="eps", bounds={"x": (0, 100), "y": (0, 100)}, missing="estimate"
        )
        found.append(answer["y"] - 50)
    promised = 100 * answer.plan.error_each
    real = math.sqrt(np.mean(np.square(found)))
    assert 1.5 * promised < real < 1.2 * promised / share


@pytest.mark.parametrize(
    ("asked", "needs"),
    [
        (ask.mean((0, 9), missing="estimate"), True),
        (ask.mean((0, 9), missing="midpoint"), True),
        (ask.sum((0, 9), missing="estimate"), True),
        (ask.count("a", missing=0), True),
        (ask.std((0, 9), missing="estimate"), True),
        (ask.mean((0, 9), missing="none"), False),
        (ask.mean((0, 9), missing="drop"), False),
        (ask.histogram(categories=["a", "b"]), False),
    ],
)
def test_whatever_missing_values_enter_needs_that_epsilon_tells_nothing_about_who_answers(asked, needs):
    plan = hetdp.plan({0.05: 4000, 2.0: 4000}, statistic=asked)
    said = asked.answer(plan, [0.5] * asked.width).to_dict()["condition"]
    assert said == "if ε tells nothing about the value" + (" or about who answers" if needs else "")


# --- Groups of which some are empty


def test_what_is_combined_has_half_the_range_for_a_group_without_data_whatever_is_done_about_missing_values():
    n = 900
    people = frame(RNG.normal(20, 3, n), np.full(n, 5.0), g=["z", *RNG.choice(["a", "b"], n - 1)])
    people = people.with_columns(eps=pl.when(pl.col("g") == "z").then(1e-6).otherwise(5.0))
    for missing in ("none", "estimate"):
        groups = hetdp.mean(
            people, value="x", epsilon="eps", bounds=(0, 100), missing=missing, by="g", public_columns=["g"],
            groups=["a", "b", "c", "z"],
        )  # fmt: skip
        both = groups.combine(dict.fromkeys("abcz", 1))
        assert both.worst_case_error >= 25
        assert abs(both.estimate - 20) <= both.worst_case_error
        said = "the number of c, z is NOT from the data"
        assert said in words(both)
        assert said in both._repr_html_()
        assert any(said in each for each in json.loads(both.to_json())["warnings"])
        assert "no data used" in repr(groups["c"])
        assert "no data used" not in repr(groups["a"])
        assert "2 of them without data" in repr(both)


@pytest.mark.parametrize("verb", ["sum", "count"])
def test_a_total_over_nobody_is_refused_before_anything_is_planned_or_charged(verb, tmp_path):
    people = frame([1.0, 2.0] * 50, [1.0] * 100, g=["a", "b"] * 50, id=[f"p{i}" for i in range(100)])
    asked = {"sum": ask.sum((0, 9), value="x", missing="none"), "count": ask.count(1, value="x", missing="none")}[verb]
    more = {"bounds": (0, 9)} if verb == "sum" else {"equals": 1}
    by = {"by": "g", "public_columns": ["g"], "groups": ["a", "b", "zz"]}
    said = f"nobody is in group 'zz', so its {verb} is 0"
    with pytest.raises(hetdp.InputError, match=said):
        getattr(hetdp, verb)(people, value="x", epsilon="eps", missing="none", **more, **by)
    with pytest.raises(hetdp.InputError, match=said):
        hetdp.ask(people, {"x": asked}, epsilon="eps", **by)
    with Ledger.create(tmp_path / "l.db") as ledger:
        ledger.enroll({f"p{i}": 1 for i in range(100)})
        with pytest.raises(hetdp.InputError, match=said):
            ledger.ask(people, asked, person="id", release_id="r", spend=0.5, people="source", **by)
        assert not ledger.charged("r/a")
        assert ledger.balance("p0").left == 1
    fine = getattr(hetdp, verb)(
        people, value="x", epsilon="eps", missing="none", **more, **{**by, "groups": ["a", "b"]}
    )
    assert fine.to_frame().height == 2
    assert list(fine) == ["a", "b"]


# --- Shares beside the number


def test_a_private_group_shows_the_share_that_is_in_it_and_answered_under_that_name():
    n = 40_000
    group, there = RNG.random(n) < 0.5, RNG.random(n) < 0.4
    people = frame(np.where(there, 50.0, np.nan), np.full(n, 2.0), g=np.where(group, "a", "b"))
    asked = {"value": "x", "epsilon": "eps", "bounds": (0, 100), "private_group": "g", "categories": ["a", "b"]}
    answer = hetdp.mean(people, **asked, missing="estimate")
    assert "In it and answered" in words(answer)
    assert "Share of people" not in words(answer)
    assert answer.to_frame()["in_it_and_answered"][0] == pytest.approx(0.2, abs=0.02)
    assert answer["a"].share == pytest.approx(0.2, abs=0.02)
    assert answer.answered == pytest.approx(0.4, abs=0.02)
    assert answer.to_dict()["answered"] == answer.answered
    shown = words(answer).split("% of all people")[0].split()[-1]
    assert float(shown) == pytest.approx(40, abs=2)
    filled = hetdp.mean(people, **asked, missing="midpoint")
    assert "Share of people" in words(filled)
    assert filled.to_frame()["share"][0] == pytest.approx(0.5, abs=0.02)


def test_several_means_show_the_share_who_answered_in_every_output():
    n = 20_000
    x, y = RNG.random(n), np.where(RNG.random(n) < 0.25, 0.5, np.nan)
    people = frame(x, np.full(n, 1.0), y=y)
    asked = {"value": ["x", "y"], "epsilon": "eps", "bounds": {"x": (0, 1), "y": (0, 1)}}
    answer = hetdp.mean(people, **asked, missing="estimate")
    assert "Answered" in words(answer)
    assert "Answered" in answer._repr_html_()
    row = next(line for line in answer.report().splitlines() if line.startswith("y "))
    assert float(row.split()[-1].rstrip("%")) == pytest.approx(25, abs=2.5)


@pytest.mark.parametrize("missing", [0, "midpoint"])
@pytest.mark.parametrize(
    "made",
    [
        lambda **how: ask.mean((0, 1), **how),
        lambda **how: ask.means({"x": (0, 1), "y": (0, 1)}, **how),
        lambda **how: ask.variance((0, 1), **how),
        lambda **how: ask.sum((0, 1), **how),
        lambda **how: ask.quantile(0.5, (0, 1), **how),
        lambda **how: ask.proportion("yes", **how),
        lambda **how: ask.count("yes", **how),
    ],
)
def test_whoever_counts_missing_values_as_something_says_that_their_number_is_not_published(made, missing):
    assert "How many they are is not published" in made(missing=missing).counted


def test_the_owner_sees_the_means_of_the_values_that_can_be_read_and_their_share():
    eps = np.tile([0.1, 2.0], 500)
    gone = RNG.random(1000) < np.where(eps < 1, 0.6, 0.05)
    values = [None if missing else 20.0 for missing in gone]
    found = hetdp.check(values, epsilon=eps, bounds=(0, 100))
    assert dict(found.means) == pytest.approx({0.1: 20.0, 2.0: 20.0}, abs=1e-3)
    assert found.readable[0.1] == pytest.approx(1 - gone[eps < 1].mean(), rel=1e-12)
    assert [row["readable"] for row in found.to_dict()["means"]] == list(found.readable.values())
    assert f"0.1  20.0000   {found.readable[0.1]:.1%}" in found.report()
    none = hetdp.check([None, 5.0], epsilon=[0.1, 1.0], bounds=(0, 9))
    assert math.isnan(none.means[0.1])
    assert none.to_dict()["means"][0] == {"epsilon": "0.1", "mean": None, "readable": 0.0}
    assert json.dumps(none.to_dict(), allow_nan=False)


# --- Units


def test_errors_have_the_same_unit_whatever_is_done_about_missing_values():
    levels = {0.1: 4000, 1.0: 4000}
    plans = {m: hetdp.plan(levels, statistic=ask.mean((0, 100), missing=m)) for m in ("none", "estimate")}
    none, some = plans["none"], plans["estimate"]
    assert none.error_unit == some.error_unit == "values"
    assert none.worst_case_error < some.worst_case_error < 1.1 * none.worst_case_error
    assert none.noise_scale / 2 < some.noise_scale < 2 * none.noise_scale
    assert none.width() < some.width() < 1.2 * none.width()
    assert some.to_dict()["worst_case_error"] == some.to_dict()["error_by_share_answered"][0]["error"]
    for goal in ({"error": 0.5}, {"width": 1.2}):
        people = {m: needed(plan, **goal).people for m, plan in plans.items()}
        assert people["none"] < people["estimate"] < 1.2 * people["none"]
    compared = hetdp.compare(levels, statistic=some.statistic, drift=0.1).entries
    assert {entry.method for entry in compared} == {"adpm", "uniform", "proportional", "threshold"}
    told = hetdp.plan(levels, statistic=some.statistic, drift=0.1)
    assert next(entry for entry in compared if entry.method == "adpm").worst_case_error == told.worst_case_error


@pytest.mark.parametrize(
    ("statistic", "unit"),
    [
        (ask.sum((0, 9)), "values"),
        (ask.means({"x": (0, 9), "y": (0, 5)}), "range"),
        (ask.std((0, 9)), "moments"),
        (ask.histogram(categories=["a", "b"]), "people"),
        (ask.mode(["a", "b"]), "people"),
        (ask.quantile(0.5, (0, 9)), "rank"),
    ],
)
def test_every_plan_says_the_unit_of_its_error(statistic, unit):
    assert hetdp.plan({1.0: 100}, statistic=statistic).to_dict()["error_unit"] == unit


def test_the_number_of_exactly_these_public_people_has_no_error_and_no_frontier():
    answer = hetdp.mean(np.linspace(0, 1e5, 1000), epsilon=math.inf, bounds=(0, 1e5), target="people")
    assert "none but rounding" in words(answer)
    for absurd in ("inf ×", "e+1", "± 0 (", "Frontier"):
        assert absurd not in words(answer)
    assert {offer["cap"] for offer in answer.to_dict()["frontier"]} == {"inf"}
    assert {way["times"] for way in answer.to_dict()["alternatives"].values()} == {1.0}
    low, high = answer.confidence_interval()
    assert low <= 5e4 <= high


# --- Names and words


@pytest.mark.parametrize("kind", [np.float32, np.float16])
def test_short_floats_that_are_objects_are_found_among_categories_and_words(kind):
    cells = [kind(x) for x in (0.1, 2.0, 5.15, 7.0, math.nan)]
    numbers = Categories.of([0.1, 2, 5.15])
    assert [numbers.index(cell) for cell in cells] == [0, 1, 2, 3, 3]
    assert [Categories.of(["0.1", "2"]).index(cell) for cell in cells[:2]] == [0, 1]
    assert Words.of({0.1: 1, 5.15: 0}).value(cells[2]) == 0
    assert numbers.index(float(kind(0.1))) == 3  # a double is another number
    close = Categories.of([1.0, 1.0 + 1e-9])
    assert close.index(kind(1.0)) == 2  # which of the two it is cannot be told, and nothing raises
    found = hetdp.proportion([kind(0.1)] * 5000 + [kind(0.3)] * 5000, epsilon=2.0, equals=0.1)
    assert found.estimate == pytest.approx(0.5, abs=0.05)


def integers(column):
    return {
        "polars": lambda: pl.DataFrame(column),
        "lazy": lambda: pl.LazyFrame(column),
        "pandas": lambda: pd.DataFrame(column),
        "objects": lambda: pd.DataFrame(column).astype({"tier": object}),
        "arrow": lambda: pl.DataFrame(column).to_arrow(),
    }


@pytest.mark.parametrize("name", ["polars", "lazy", "pandas", "objects", "arrow", "csv", "parquet", "duckdb", "list"])
def test_a_column_of_whole_numbers_names_tiers_by_their_digits_in_every_source(name, tmp_path):
    column, tiers = {"x": [0.5] * 200, "tier": [1, 2] * 100}, {"1": 0.5, "2": "public"}
    where = {"value": "x", "epsilon": "tier", "bounds": (0, 1), "missing": "none"}
    if name == "list":
        where, source = {"epsilon": column["tier"], "bounds": (0, 1)}, column["x"]
    elif name in ("csv", "parquet"):
        source = tmp_path / f"t.{name}"
        getattr(pl.DataFrame(column), f"write_{name}")(source)
    elif name == "duckdb":
        duckdb = pytest.importorskip("duckdb")
        source, rows = duckdb.connect(), pl.DataFrame(column)  # noqa: F841  DuckDB finds the frame by its name
        source.execute("create table t as select * from rows")
        where["query"] = "select * from t"
    else:
        source = integers(column)[name]()
    plan = hetdp.mean(source, tiers=tiers, **where).plan
    assert {row.epsilon: (row.count, row.name) for row in plan.table} == {0.5: (100, "1"), math.inf: (100, "2")}


def test_tiers_in_numbers_that_are_not_whole_are_refused_with_what_to_do(tmp_path):
    for column in ([1.0, 2.0] * 10, [True, False] * 10):
        people = pl.DataFrame({"x": [0.5] * 20, "tier": column})
        for source in (people, people.to_pandas()):
            with pytest.raises(hetdp.InputError, match="tier"):
                hetdp.mean(source, value="x", epsilon="tier", bounds=(0, 1), missing="none", tiers={"1": 0.5, "2": 1})
    with Ledger.create(tmp_path / "l.db") as ledger:
        ledger.enroll(["a", "b"], budget=[1, 2], tiers={"1": 0.5, "2": 1})
        assert ledger.balance("a").left == 0.5


def test_thousands_between_quotes_are_read_in_a_file_with_commas(tmp_path):
    path = tmp_path / "us.csv"
    path.write_text("income,eps\n" + '"1,234.50",1\n"12,000",1\n950,1\n' * 100)
    form = {"epsilon": "eps", "bounds": (0, 20_000), "missing": "none", "thousands": ","}
    for more in ({}, {"delimiter": ","}):
        tally = hetdp.read(path, value="income", **form, **more)
        exact = tally.table.total[0, 0] / 2**20 * 20_000 / 300
        assert exact == pytest.approx((1234.5 + 12_000 + 950) / 3, abs=0.1)
    path.write_text('income,eps\n"1,234.50",1\n12,000,1\n')
    with pytest.raises(hetdp.InputError, match=r"line 3 of .* has 3 fields and the header 2"):
        hetdp.read(path, value="income", **form)
    with pytest.raises(hetdp.InputError, match="the thousands sign and the decimal sign must differ"):
        hetdp.read(path, value="income", **form, decimal=",", delimiter=";")


def test_a_difference_of_two_groups_names_them_and_of_two_columns_says_so():
    n = 4000
    people = frame(RNG.random(n), np.full(n, 1.0), y=RNG.random(n), g=["a", "b"] * (n // 2))
    how = {"epsilon": "eps", "bounds": (0, 1), "missing": "none"}
    groups = hetdp.mean(people, value="x", **how, by="g", public_columns=["g"])
    found = hetdp.difference(groups["a"], groups["b"])
    assert "Group a " in words(found)
    assert "Later" not in words(found)
    assert "in the group 'a'" in words(found)
    assert [found.to_dict()[name]["group"] for name in ("later", "earlier")] == ["a", "b"]
    assert "in the group 'b'" in words(groups["b"])
    assert "in the group" not in str(groups.provenance)
    x, y = (hetdp.mean(people, value=name, **how) for name in "xy")
    assert "the two answers are of different columns: y and x" in words(hetdp.difference(y, x))
    assert not hetdp.difference(x, x).warnings


def test_nobody_is_advised_to_count_alike_where_that_cannot_help():
    """Whoever has ε = 0 counts for nothing in every method, uniform too."""
    asked = ask.histogram(categories=["a", "b"])
    some, none = ({0.0: 500, 0.05: 4000, 2.0: 4000}, {0.05: 4000, 2.0: 4000})
    assert "method uniform" not in hetdp.plan(some, statistic=asked).report()
    assert "method uniform" in hetdp.plan(none, statistic=asked).report()


def test_a_table_of_groups_says_under_which_condition_its_intervals_hold_if_one_group_needs_it():
    n = 4000
    group = np.repeat(["a", "b"], n // 2)
    eps = np.where((group == "b") & (RNG.random(n) < 0.5), 0.05, 1.0)
    people = frame(RNG.random(n), eps, g=group)
    for missing in ("none", "estimate"):
        groups = hetdp.mean(
            people, value="x", epsilon="eps", bounds=(0, 1), missing=missing, by="g", public_columns=["g"]
        )
        assert "for any distribution if ε tells nothing about the value" in words(groups)
        assert "Combine" in words(groups)


# ---------------------------------------------------------------------------------------------------------
# A stated variance


@pytest.mark.parametrize("ask", [hetdp.mean, hetdp.sum])
def test_the_stated_deviation_is_that_of_one_value_and_stands_beside_the_interval(ask):
    values = np.random.default_rng(8).normal(100_000, 15_000, 3000)
    answer = ask(values, epsilon=1.0, bounds=(0, 200_000), variance=4e8)
    said = " ".join(answer.report().split())
    assert "for any distribution whose standard deviation of a value is at most 20,000" in said
    assert said.count("is at most 20,000") == 2  # beside the interval and beside the error, of a sum too
    assert answer.to_dict()["stated_deviation"] == pytest.approx(20_000)


def test_control_without_a_stated_variance_nothing_is_said_of_a_deviation():
    answer = hetdp.mean(np.linspace(0, 1, 999), epsilon=1.0, bounds=(0, 1))
    assert "standard deviation of a value" not in " ".join(answer.report().split())
    assert answer.to_dict()["stated_deviation"] is None


@pytest.mark.parametrize("missing", ["midpoint", 0, "estimate"])
def test_a_stated_variance_is_said_to_be_that_of_values_with_what_fills_the_gaps(missing):
    ages = pd.DataFrame({"age": [45.0, None, 50.0] * 500, "e": 1.0})
    answer = hetdp.sum(ages, value="age", epsilon="e", bounds=(0, 100), missing=missing, variance=30)
    assert "of a value, with missing values as they count here, is at most 5.477" in " ".join(answer.report().split())


# ---------------------------------------------------------------------------------------------------------
# Bins, caps and stored results


def test_the_bin_of_a_median_is_printed_as_its_nearest_ends_and_not_a_tenth_wider():
    """Bins of whole years end half a step of the grid below a year; rounded outwards that would read 48.9."""
    ages = np.repeat(np.arange(40, 60), 200)
    said = hetdp.quantile(ages, 0.475, epsilon=5.0, bounds=(0, 100), bins=100).report()
    assert "49.0 to 50.0" in said
    assert "48.9" not in said


def test_the_cap_of_a_question_with_a_share_of_epsilon_says_how_much_of_it_is_spent():
    people = frame(np.linspace(0, 1, 2000), [0.1, 2.0] * 1000, town=["a", "a", "b", "b"] * 500)
    each = {name: ask.mean(value="x", bounds=(0, 1), missing="none") for name in ("once", "again")}
    groups = hetdp.ask(people, each, epsilon="eps", by="town", public_columns=["town"])
    assert words(groups).count("t (above it 0.5 t is spent)") == 2
    alone = hetdp.mean(
        people, value="x", epsilon="eps", bounds=(0, 1), missing="none", by="town", public_columns=["town"]
    )
    assert "is spent)" not in words(alone)


@pytest.fixture
def budgets(tmp_path):
    with Ledger.create(tmp_path / "budgets.db") as ledger:
        ledger.enroll({f"p{i}": 1 for i in range(600)})
        yield ledger


MAY = {"bounds": (0, 1), "spend": 0.1, "release_id": "may", "missing": "midpoint"}
IDS = [f"p{i}" for i in range(600)]


def test_a_result_that_the_ledger_had_already_is_said_to_be_stored_where_the_number_stands(budgets):
    first = budgets.mean([0.2] * 600, person=IDS, **MAY)
    again = budgets.mean([0.9] * 600, person=IDS, **MAY)  # corrected since then
    assert again.estimate == first.estimate
    assert words(again).startswith("Stored a result of this id was there: the source was not read again")
    assert again.to_dict()["ledger"]["stored"] is True
    assert "Stored" not in words(first)
    assert "stored" not in first.to_dict()["ledger"]


def test_groups_are_said_to_be_stored_if_all_of_them_were(budgets):
    by = {person: "a" if i % 2 else "b" for i, person in enumerate(IDS)}
    first, again = (budgets.mean([0.2] * 600, person=IDS, by=by, **MAY) for _ in range(2))
    assert "Stored" not in words(first)
    assert "Stored a result of this id was there" in words(again)


def test_series_with_other_row_labels_are_refused_before_anybody_is_charged(budgets):
    with pytest.raises(hetdp.HetdpError, match="values and ids have different row labels"):
        budgets.mean(pd.Series([0.5] * 600), person=pd.Series(IDS, index=range(1, 601)), **MAY)
    assert not budgets.charged("may")
    budgets.mean(pd.Series([0.5] * 600), person=pd.Series(IDS), **MAY)
    assert budgets.charged("may")


# ---------------------------------------------------------------------------------------------------------
# Where options meet


def test_a_sum_with_private_bounds_says_to_what_values_are_clipped_which_is_widened_to_0():
    """Everybody is public, so the sum is exact: it must be that of the values clipped as the report says."""
    x = np.where(RNG.random(20_000) < 0.05, 5.0, RNG.normal(400, 20, 20_000))
    people = frame(x, np.full(x.size, math.inf))
    ask = {"value": "x", "epsilon": "eps", "bounds": "private", "outer": (0, 10**6), "missing": "estimate"}
    answer = hetdp.sum(people, **ask)
    low, high = answer.plan.bounds
    assert low == 0
    assert answer.estimate == pytest.approx(np.clip(x, low, high).sum(), rel=1e-6)
    said = words(answer)
    assert f"the sum of values clipped to {answer.plan.interval}" in said
    assert f"interval are for values clipped to {answer.plan.interval}" in said
    found = answer.plan.statistic.bounds
    assert found.lo > 0  # the control: these are other bounds
    assert f"clipped to {found}" not in said


CODES = ["1.1"] * 30 + ["1.10"] * 60 + ["2.0"] * 10


@pytest.mark.parametrize(
    "made", [ask.histogram(value="x", categories=["1.1", "2.0"]), ask.mode(value="x", categories=["1.1", "2.0"])]
)
def test_an_engine_sorts_texts_as_memory_does_also_beside_another_question(made):
    """In DuckDB 1.10 was another category than 1.1, unless a proportion of the column was asked beside it."""
    duckdb = pytest.importorskip("duckdb")
    people = frame(CODES, [math.inf] * 100)
    relation = duckdb.from_arrow(people.to_arrow())
    proportion = ask.proportion(value="x", equals="1.1", missing="none")
    answers = [
        hetdp.ask(source, questions, epsilon="eps")["made"].numbers
        for source in (people, relation)
        for questions in ({"made": made}, {"made": made, "beside": proportion})
    ]
    assert [list(numbers) for numbers in answers] == [list(answers[0])] * 4
    assert answers[0][0] == (0.9 if made.name == "histogram" else 0)


@pytest.mark.parametrize(
    "asked",
    [
        lambda people: hetdp.histogram(people, value="x", epsilon="eps", categories=["1.1", "beta"]),
        lambda people: hetdp.proportion(people, value="x", epsilon="eps", equals="1.1", missing="none"),
        lambda people: hetdp.count(people, value="x", epsilon="eps", equals="1.1", missing="none"),
    ],
)
def test_codes_that_are_the_same_number_count_as_one_and_the_report_says_so(asked):
    said = words(asked(frame(CODES, [math.inf] * 100)))
    assert "the same number in another spelling counts too, as '01.1' for '1.1'" in said
    assert "does not count as equal." not in said


def test_control_words_are_compared_letter_by_letter_and_nothing_is_said_of_numbers():
    found = hetdp.proportion(frame(["yes", "Yes"] * 50, [1.0] * 100), value="x", epsilon="eps", equals="yes", missing=0)
    assert "the same number in another spelling" not in words(found)


def test_a_difference_of_means_with_a_stated_variance_says_what_it_takes_for_granted():
    two = [hetdp.mean(RNG.normal(300, 40, 800), epsilon=1.0, bounds=(0, 1000), variance=50**2) for _ in range(2)]
    change = hetdp.difference(*two)
    assert "for any distribution whose standard deviation of a value is at most 50: it" in words(change)
    assert change.to_dict()["stated_deviation"] == pytest.approx(50)
    plain = [hetdp.mean(RNG.normal(300, 40, 800), epsilon=1.0, bounds=(0, 1000)) for _ in range(2)]
    assert "for any distribution: it" in words(hetdp.difference(*plain))
    assert hetdp.difference(*plain).to_dict()["stated_deviation"] is None


@pytest.mark.parametrize("level", [0.975, 0.995, 0.9999])
def test_a_level_of_confidence_is_never_rounded(level):
    values = RNG.random(900)
    one = hetdp.mean(values, epsilon=1.0, bounds=(0, 1))
    shown = f"{100 * level:g}%"
    for found in (one, hetdp.difference(one, one), hetdp.median(values, epsilon=1.0, bounds=(0, 1))):
        assert shown in found.report(level)
        assert f" {level:.0%} interval" not in found.report(level)
        assert f"Intervals   {level:.0%}," not in found.report(level)


def by_town(**options):
    n = 6000
    people = frame(RNG.normal(40, 5, n), RNG.choice([0.2, 2.0], n), town=RNG.choice(["a", "b"], n))
    ask = {"value": "x", "epsilon": "eps", "missing": "none", "by": "town", "public_columns": ["town"]}
    return hetdp.mean(people, bounds=(0, 200), **ask, **options)


@pytest.mark.parametrize("variance", [25.0, "learn"])
def test_groups_that_are_combined_keep_what_a_bound_on_the_variance_gains(variance):
    """Each interval at a level at which both hold, added up: narrower than the bound for any distribution."""
    shares = {"a": 0.5, "b": 0.5}
    groups = by_town(variance=variance)
    combined = groups.combine(shares)
    ends = [answer.confidence_interval(0.975) for answer in groups.values()]
    low, high = combined.confidence_interval(0.95)
    assert (low, high) == (pytest.approx(np.mean([e[0] for e in ends])), pytest.approx(np.mean([e[1] for e in ends])))
    assert high - low < 2 * combined.radius(0.95)
    plain = by_town().combine(shares)
    assert np.diff(plain.confidence_interval()) == pytest.approx(2 * plain.radius(0.95), rel=1e-6)


def test_the_interval_of_combined_groups_and_of_a_difference_is_rounded_outwards():
    groups = by_town()
    combined = groups.combine({"a": 1, "b": 2})
    for found in (combined, hetdp.difference(*groups.values())):
        low, high = found.confidence_interval()
        printed = words(found).split(" interval ")[1].split(", ")[0].split(" to ")
        assert float(printed[0]) <= low + 1e-9
        assert float(printed[1]) >= high - 1e-9


def test_groups_with_several_answers_are_combined_by_question_as_the_report_says():
    people = frame(RNG.random(3000), [1.0] * 3000, town=["a", "b"] * 1500)
    each = {name: ask.mean(value="x", bounds=(0, 1), missing="none") for name in ("first", "second")}
    groups = hetdp.ask(people, each, epsilon="eps", by="town", public_columns=["town"])
    assert ".about('first').combine({'a': …, 'b': …})" in words(groups)
    found = groups.about("first").combine({"a": 1, "b": 1})
    assert found.estimate == pytest.approx(np.mean([groups[town]["first"].estimate for town in "ab"]))
    with pytest.raises(hetdp.HetdpError, match=r"\.about\(question\)\.combine"):
        groups.combine({"a": 1, "b": 1})
    with pytest.raises(hetdp.HetdpError, match="there are: first, second"):
        groups.about("third")


def test_a_median_has_no_difference_and_says_so_at_once():
    two = [hetdp.median(RNG.random(900), epsilon=1.0, bounds=(0, 1), within=0.95) for _ in range(2)]
    with pytest.raises(hetdp.HetdpError, match="one number each"):
        hetdp.difference(*two)


def test_what_has_names_can_be_looped_over():
    values = RNG.random(900)
    assert list(hetdp.histogram(values, epsilon=1.0, edges=[0, 0.5, 1])) == ["[0, 0.5)", "[0.5, 1]", "other"]
    assert list(hetdp.quantile(values, [0.2, 0.8], epsilon=1.0, bounds=(0, 1))) == [0.2, 0.8]


def test_an_epsilon_beyond_doubles_is_explained():
    assert "2.73e+347" in str(hetdp.explain(800))


@pytest.mark.parametrize("missing", ["none", "estimate", 0])
def test_a_sum_is_not_planned_with_a_method_that_cannot_release_it(missing):
    asked = ask.sum(bounds=(0, 100), missing=missing)
    with pytest.raises(hetdp.HetdpError, match="sampling"):
        hetdp.plan({0.5: 900}, statistic=asked, method="sampling")
    (line,) = (
        line for line in str(hetdp.compare({0.5: 900}, statistic=asked)).splitlines() if line.startswith("sampling")
    )
    assert set(line.split()[1:]) == {"–"}


def test_a_variance_for_those_who_answered_is_refused_by_its_reason():
    asked = ask.mean(bounds=(0, 100), missing="estimate")
    with pytest.raises(hetdp.HetdpError, match="not for a mean of those who answered; leave it out"):
        hetdp.plan({0.5: 900}, statistic=asked, variance=700)


def test_an_option_of_another_function_is_answered_and_ends_no_loop(tmp_path):
    with Ledger.create(tmp_path / "b.db") as ledger:
        ledger.enroll({"p0": 1})
        for name in ("bounds", "value", "unknown"):
            with pytest.raises(TypeError, match=f"Ledger.ask has no option '{name}'"):
                ledger.ask([1], ask.mean(bounds=(0, 1)), person=["p0"], release_id="may", spend=1, **{name: 3})
    with pytest.raises(TypeError, match=r"hetdp\.ask has no option 'unknown'"):
        hetdp.ask([1], {"a": ask.mean(bounds=(0, 1))}, epsilon=1.0, unknown=1)


def test_every_report_with_numbers_of_values_names_the_bounds_and_the_method():
    groups = by_town(method="stretch")
    for found in (groups, groups.combine({"a": 1, "b": 1}), hetdp.difference(*groups.values())):
        assert "Values values clipped to [0, 200]" in words(found)
        assert "it draws answers to the middle of the bounds" in words(found)
    assert "it draws answers" not in words(by_town())
    people = frame(RNG.random(900), [1.0] * 900, y=RNG.random(900))
    several = hetdp.mean(people, value=["x", "y"], bounds={"x": (0, 1), "y": (0, 9)}, epsilon="eps", missing="none")
    assert "x (values clipped to [0, 1]), y (values clipped to [0, 9])" in words(several)


def test_what_words_count_as_is_in_the_report():
    people = frame(["yes", "no", "99"] * 300, [1.0] * 900)
    ask = {"value": "x", "epsilon": "eps", "bounds": (0, 1), "missing": "estimate"}
    assert "Words yes = 1, no = 0; any other cell is missing" in words(
        hetdp.mean(people, values={"yes": 1, "no": 0}, **ask)
    )
    assert "Words" not in words(hetdp.mean(people, **ask))


@pytest.mark.parametrize(("missing", "people", "said"), [
    ("none", "enrolled", "Taking part everybody who is enrolled; who has no row is missing"),
    ("drop", "enrolled", "Taking part enrolled people with a row alone; every share is of them"),
    ("estimate", "source", "Taking part enrolled people with a row alone; every share is of them"),
    ("estimate", IDS[:500], "Taking part the people who were listed"),
])  # fmt: skip
def test_a_release_through_a_ledger_says_of_whom_its_shares_are(budgets, missing, people, said):
    """400 of 600 have a row: of all 600 two thirds answered, of those with a row everybody."""
    ask = {**MAY, "missing": missing, "people": people, "person": IDS[:400]}
    assert said in words(budgets.mean([0.5] * 400, **ask))
    by = dict.fromkeys(IDS if people == "enrolled" and missing != "drop" else (), "a")
    if by:
        assert said in words(budgets.mean([0.5] * 400, by=by, **{**ask, "release_id": "june"}))


@pytest.mark.parametrize("method", ["stretch", "minimax", "adpm"])
@pytest.mark.parametrize("truth", [0.0, 0.1, 0.3, 0.5])
def test_no_released_interval_is_wider_than_the_plan_predicts(method, truth):
    plan = hetdp.plan({0.1: 300, 1.0: 300}, bounds=(0, 1), method=method)
    drawn = plan.shrink * (truth - 0.5) + 0.5
    low, high = hetdp.Release(plan, (drawn,)).confidence_interval()
    assert (high - low) / 2 <= plan.width() * 1.01


def test_the_owner_sees_how_many_are_in_each_category_and_where_the_rest_is(hetdp_command, tmp_path):
    table = tmp_path / "people.csv"
    table.write_text("job,eps\nnurse,1\nNurse,1\n,0.5\nteacher,2\nnurse,1\nn/a,1\n", encoding="utf-8")
    found = hetdp.check(table, value="job", epsilon="eps", categories=["nurse", "teacher", "cook"])
    assert found.listed == {"nurse": 2, "teacher": 1, "cook": 0}
    assert (found.counts, found.n) == ({"missing": 2, "unlisted": 1, "odd": 0}, 6)
    assert (found.places["unlisted"], found.places["missing"], found.place) == ((3,), (4, 7), "line")
    shown = hetdp_command(
        "check", str(table), "--value", "job", "--epsilon", "eps", "--categories", "nurse,teacher,cook"
    )
    assert shown[1].strip() == found.report()
    assert found.report().startswith("PRIVATE")
    assert "mean by ε" not in found.report()
    frame = pd.DataFrame({"job": ["nurse", None, "baker"], "eps": [1, 2, 3]})
    assert hetdp.check(frame, value="job", epsilon="eps", categories=["nurse"]).counts["unlisted"] == 1
    for wrong in ({}, {"bounds": (0, 1), "categories": ["a"]}):
        with pytest.raises(hetdp.InputError, match="the public bounds of the values, or the categories"):
            hetdp.check(frame, value="job", epsilon="eps", **wrong)


def test_reports_of_groups_say_whose_number_it_is_and_what_the_largest_spend_means():
    frame = pd.DataFrame(
        {"x": np.tile([1.0, 4.0], 300), "e": np.tile([0.1, 1.0, 2.0], 200), "g": ["a"] * 400 + ["b"] * 200}
    )
    groups = hetdp.mean(frame, value="x", epsilon="e", bounds=(0, 5), missing="none", by="g", public_columns=["g"])
    most = max(float(found.plan.spent.max()) for found in groups.values())
    assert "Target      the population" in groups.report()
    assert f"spending ε = {spent_epsilon(most)} changes the odds" in " ".join(groups.report().split())
    combined = groups.combine({"a": 1, "b": 1})
    assert "Target      the population" in combined.report()


def test_a_combined_number_and_its_groups_say_that_they_are_too_uncertain():
    """Each one says so if its own interval, cut to the range as it is printed, covers more than half of it."""
    for n in (36, 6000):
        frame = pd.DataFrame({"x": np.tile([1.0, 4.0], n), "e": np.full(2 * n, 0.3), "g": np.repeat(["a", "b"], n)})
        groups = hetdp.mean(frame, value="x", epsilon="e", bounds=(0, 5), missing="none", by="g", public_columns=["g"])
        combined = groups.combine({"a": 1, "b": 1})
        said = [each.to_dict()["interval"] for each in (combined, *groups.values())]
        for interval in said:
            low, high = interval["guaranteed"]
            assert interval["uncertain"] == (min(high, 5) - max(low, 0) > 2.5)
        assert combined.figure().uncertain == said[0]["uncertain"]
        assert combined.report().count("(too uncertain to use)") == sum(each["uncertain"] for each in said)
    assert not any(each["uncertain"] for each in said)  # of many people


def test_the_rank_of_a_quantile_is_headed_by_its_condition():
    column = pd.DataFrame({"x": ["?"] * 500, "e": [1.0] * 500})
    how = {"value": "x", "epsilon": "e", "bounds": (0, 10)}
    assert "Rank between, if all answered" in hetdp.median(column, **how, missing="estimate").report()
    everybody = hetdp.median(column, **how, missing="midpoint").report()
    assert ("Rank between" in everybody, "if all answered" in everybody) == (True, False)


@pytest.mark.parametrize("missing", ["none", "drop", "estimate"])
def test_whether_a_combined_number_is_too_uncertain_does_not_depend_on_the_unit(missing):
    """Of those who answered, the width was compared with half of 1 instead of half of the range."""
    frame = pd.DataFrame({"x": np.tile([0.2, 0.8], 3000), "e": np.full(6000, 2.0), "g": np.repeat(["a", "b"], 3000)})
    how = {"value": "x", "epsilon": "e", "missing": missing, "by": "g", "public_columns": ["g"]}
    for unit in (1, 1000):
        groups = hetdp.mean(frame.assign(x=unit * frame.x), bounds=(0, unit), **how)
        assert not groups.combine({"a": 1, "b": 1}).figure().uncertain
    few = frame.iloc[::150].reset_index(drop=True).assign(e=0.1)
    for unit in (1, 1000):  # the control: with few people it is
        groups = hetdp.mean(few.assign(x=unit * few.x), bounds=(0, unit), **how)
        assert groups.combine({"a": 1, "b": 1}).figure().uncertain


def test_combined_means_of_those_who_answered_have_an_interval_and_no_radius():
    frame = pd.DataFrame({"x": np.tile([2.0, 8.0], 3000), "e": np.full(6000, 2.0), "g": np.repeat(["a", "b"], 3000)})
    how = {"value": "x", "epsilon": "e", "by": "g", "public_columns": ["g"], "bounds": (0, 10)}
    shares = {"a": 1, "b": 1}
    with pytest.raises(hetdp.InputError, match="no radius; use confidence_interval"):
        hetdp.mean(frame, **how, missing="estimate").combine(shares).radius()
    assert 0 < hetdp.mean(frame, **how, missing="none").combine(shares).radius() < 5


def test_words_that_are_no_numbers_are_hinted_at_if_hardly_anybody_answered():
    """It follows from the released share alone; a column of numbers has no such note."""
    words = pd.DataFrame({"x": ["yes", "no"] * 1000, "e": [1.0] * 2000})
    how = {"value": "x", "epsilon": "e", "bounds": (0, 1), "missing": "estimate"}
    assert UNREAD in " ".join(hetdp.mean(words, **how).report().split())
    said = hetdp.mean(words, **how, values={"yes": 1, "no": 0})
    assert UNREAD not in " ".join(said.report().split())


@pytest.mark.parametrize("statistic", ["mean", "variance", "means"])
def test_json_says_of_unread_cells_and_doubt_what_the_text_says(statistic):
    """The mean of a column of words had neither the note nor `uncertain` in its JSON."""
    words = pd.DataFrame({"x": ["yes", "no"] * 1000, "e": [1.0] * 2000})
    bounds = {"x": (0, 1)} if statistic == "means" else (0, 1)
    of = {"value": ["x"]} if statistic == "means" else {"value": "x"}
    called = hetdp.mean if statistic == "means" else getattr(hetdp, statistic)
    found = called(words, **of, epsilon="e", bounds=bounds, missing="estimate")
    assert UNREAD in " ".join(found.report().split())
    told = json.loads(found.to_json())
    assert UNREAD in told["warnings"]
    rows = told.get("results", [told])
    assert all(row["uncertain"] for row in rows)
    numbers = hetdp.mean([1.0, 0.0] * 1000, epsilon=1, bounds=(0, 1), missing="estimate").to_dict()
    assert (numbers["uncertain"], numbers["at_end"], UNREAD in numbers["warnings"]) == (False, False, False)
    assert numbers["answered"]["uncertain"] is False


@pytest.mark.parametrize("statistic", ["mean", "sum", "median"])
def test_a_promise_that_nothing_is_missing_is_said_to_be_unchecked(statistic):
    """Cells such as "12 EUR" gave the midpoint with a narrow interval and no word; what is said depends on no cell."""
    said = set()
    for cells in (["12 EUR"] * 3000, ["12"] * 3000):
        frame = pd.DataFrame({"x": cells, "e": [0.5] * 3000})
        found = getattr(hetdp, statistic)(frame, value="x", epsilon="e", bounds=(0, 100), missing="none")
        said.add(found.plan.statistic.counted)
        text = " ".join(found.report().split())
        assert "Whether the promise holds is not published, and they can be most people: the owner sees it" in text
    assert len(said) == 1


def test_a_report_through_a_ledger_says_at_its_top_in_which_cell_several_rows_count(tmp_path):
    people = [f"p{i}" for i in range(300)]
    rows = pd.DataFrame({"id": people * 2, "x": ["no"] * 300 + ["yes"] * 300})
    with hetdp.Ledger.create(tmp_path / "b.db") as ledger:
        ledger.enroll(people, budget=float("inf"))
        how = {"person": "id", "spend": 1}
        found = {}
        for i, order in enumerate((["yes", "no"], ["no", "yes"])):
            shares = hetdp.ask.histogram(value="x", categories=order)
            release = ledger.ask(rows, shares, release_id=str(i), **how)
            assert "in the first of their cells as the cells are listed" in " ".join(release.report().split()[:60])
            found[order[0]] = release.frequencies
        assert found["yes"]["yes"] == found["no"]["no"] == 1
        any_yes = ledger.ask(rows, hetdp.ask.proportion(value="x", equals="yes", missing="none"), release_id="p", **how)
        assert any_yes.estimate == 1


# Bins, units and what a stated drift covers -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bounds", "bins", "decimals"),
    [((0, 1), 10, 1), ((0, 4), 20, 1), ((0, 1), 20, 2), ((0, 10), 100, 1), ((-1, 2), 30, 1)],
)
def test_a_number_is_in_the_bin_whose_label_begins_with_it(bounds, bins, decimals):
    """0 + 3 · 0.1 is above 0.3: the edges must be the numbers that the labels name. The oracle is decimal."""
    low, high = (decimal.Decimal(end) for end in bounds)
    step = decimal.Decimal(1).scaleb(-decimals)
    values = [low + step * i for i in range(int((high - low) / step) + 1)]
    counts = [0] * bins
    for value in values:
        counts[min(int((value - low) * bins // (high - low)), bins - 1)] += 1
    found = hetdp.histogram([*map(float, values)], epsilon=[math.inf] * len(values), bins=bins, bounds=bounds)
    assert [round(count) for count in found.counts.values()][:-1] == counts


def test_control_edges_that_are_added_up_put_numbers_into_the_wrong_bin():
    assert 3 * 0.1 > 0.3
    assert Edges.even((0, 1), 10).edges[3] == 0.3


def test_the_error_of_a_variance_and_a_deviation_is_not_above_what_is_said():
    """Simulated with the plan's own noise. A deviation errs by more than the share of the range that a mean does."""
    rng, n, width = np.random.default_rng(5), 2000, 250.0
    errors = {"mean": [], "variance": [], "std": []}
    for _ in range(200):
        found = hetdp.std(rng.normal(172, 25, n), epsilon=rng.choice([0.1, 1.0], n), bounds=(0, width), missing="none")
        for name, truth in (("mean", 172), ("variance", 625), ("std", 25)):
            errors[name].append(getattr(found, name) - truth)
    size = {name: math.sqrt(np.mean(np.square(some))) for name, some in errors.items()}
    each = found.plan.error_each
    assert size["mean"] < each * width
    assert size["variance"] < 1.25 * each * width**2
    assert size["std"] < 1.25 * each / 0.2 * width  # its deviation is a tenth of the range
    said = " ".join(found.report().split())
    assert f"of the variance: about ± {percent(1.25 * each)} of the squared range" in said
    assert "at most for one number" not in said


def test_a_stated_drift_of_a_sum_of_those_who_answered_says_that_gaps_count():
    how = {"epsilon": [0.1, 1.0] * 1000, "bounds": (0, 10), "missing": "estimate"}
    values = [1.0, 2.0, None, 4.0] * 500
    said = "if the drift holds with missing values as they count here"
    release = hetdp.sum(values, **how, drift=0.02)
    assert said in " ".join(release.report().split())
    assert release.to_dict()["condition"] == said
    assert said not in " ".join(hetdp.mean(values, **how, drift=0.02).report().split())
    assert hetdp.difference(release, release).to_dict()["condition"] == said
    assert "(99) is a value too" in " ".join(release.report().split())


def test_a_comparison_has_a_unit_and_no_column_of_dashes():
    levels, question = {0.1: 500, 1.0: 500}, hetdp.ask.std((0, 9))
    said = " ".join(str(hetdp.compare(levels, statistic=question)).split())
    assert "of the mean and the mean squared distance from the midpoint together" in said
    assert "Data ±" not in said
    assert "Data ±" in str(hetdp.compare(levels, bounds=(0, 1)))


def test_a_quantile_with_an_interval_in_units_is_judged_by_it_and_one_without_by_its_rank():
    """Half of the people at each end: the median can be anywhere, though its rank is known well."""
    ends = [0.0, 1000.0] * 2000
    how = {"epsilon": 1.0, "bounds": (0, 1000), "missing": "none"}
    wide = hetdp.median(ends, **how, within=0.9)
    low, high = wide.confidence_interval()[0.5]
    assert (wide.figures()[0].uncertain, high - low > 500) == (True, True)
    assert not hetdp.median(ends, **how).figures()[0].uncertain
    few = hetdp.quantile([5.0] * 40, [0.5], **how, within=0.9)  # everybody has one value: its rank says nothing
    (low, high), rank = few.confidence_interval()[0.5], few.ranks(0.9)[0.5]
    assert few.figures()[0].uncertain == (high - low > 500)
    assert rank[1] - rank[0] > 0.5
    assert "1,700,129,600" in hetdp.ask.mean(bounds=(1_700_000_000, 1_700_259_200), missing="midpoint").counted
