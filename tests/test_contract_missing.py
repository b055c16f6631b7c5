"""Every source, every choice of missing= and values=: the same integers, and those of a plain count by person."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import polars as pl
import pytest

import hetdp
import oracle
from hetdp.sources import Source, read_groups
from oracle import GRID
from table_sources import USUAL, WITH_KINDS, query_of

ask = hetdp.ask
BOUNDS, OTHER = (-2.0, 3.0), (0.0, 250.0)
CHOICES = ("estimate", "drop", "midpoint", "none", 0.75)
SORTED_BY_WORDS = {"proportion of a word", "count of a word", "proportion of a number", "proportion of a boolean"}
WORDS = {"yes": 1, "no": 0, "2": -1.5}
CODED = {0: 3, 0.1: -1, 2.5: 0.5}
TEXTS = [
    "yes", "no", "Yes", "yes ", "true", "True", "FALSE", "false", "tRue", "0.25", " 1.5", "1e0", "1,5", "2", "2.0", "3",
    "", "na", "N/A", "-", "null", "None", "nan", "x", "0x1", "inf", "#N/A", "<NA>", "NaT", "\\N", "\u00a0", None,
]  # fmt: skip
NUMBERS = [0.0, 0.1, 2.5, -2.0, 3.0, 7.5, -1e300, math.inf, -math.inf, math.nan, None, 1.0]
MISSING_WORDS = {"", "-", "--", ".", "?", "na", "n/a", "n.a.", "nan", "nat", "nil", "none", "null", "missing"}
MISSING_WORDS |= {"#n/a", "#na", "(null)", "<na>", "\\n"}
TRUE_WORDS = {"True": 1.0, "TRUE": 1.0, "true": 1.0, "False": 0.0, "FALSE": 0.0, "false": 0.0}
SCHEMA = {
    "id": pl.String, "g": pl.String, "x": pl.Float64, "y": pl.Float64, "t": pl.String, "b": pl.Boolean, "e": pl.Float64
}  # fmt: skip


def people(rows_each=1):
    """Everything odd, at several ε; with `rows_each` every person has so many rows."""
    found = []
    for i in range(4 * len(TEXTS) * len(NUMBERS) // 5):
        who = i // rows_each
        x, t = NUMBERS[(i + i // 7) % len(NUMBERS)], TEXTS[(i + i // 11) % len(TEXTS)]
        y, b = [17.5, None, 300.0, math.nan, 0.0][i % 5], [True, False, None][i % 3]
        found.append((f"p{who}", f"g{who % 3}", x, y, t, b, [0.0, 0.1, 0.5, 1.0, math.inf][who % 5]))
    return pl.DataFrame(found, schema=SCHEMA, orient="row")


# ---------------------------------------------------------------------------------------------------------
# The plain count


def number(cell, words=None):
    """What a cell means as a number; None if it is missing or means nothing."""
    if words is not None:
        text = {name: value for name, value in words.items() if isinstance(name, str)}
        if isinstance(cell, str) and cell in text:
            return float(text[cell])
        plain = number(cell)
        return next(
            (float(value) for name, value in words.items() if plain is not None and plain == number(name)), None
        )
    if isinstance(cell, bool):
        return float(cell)
    if isinstance(cell, str):
        return TRUE_WORDS[cell.strip(" \t")] if cell.strip(" \t") in TRUE_WORDS else oracle.meaning(cell)
    return None if cell is None or math.isnan(cell) else cell


def averaged(codes):
    """The average of the codes that are there, rounded with halves up; None if there are none."""
    known = [code for code in codes if code is not None]
    return math.floor(Fraction(sum(known), len(known)) + Fraction(1, 2)) if known else None


def code_of(rows, column, bounds, words=None):
    values = [number(row[column], words) for row in rows]
    return averaged([None if value is None else oracle.code(value, bounds) for value in values])


def counts_as(choice, bounds):
    return GRID // 2 if isinstance(choice, str) else oracle.code(choice, bounds)


def means(rows, columns, choice, words=None):
    codes = [code_of(rows, column, bounds, words) for column, bounds in columns.items()]
    if choice == "drop" and None in codes:
        return None
    if choice == "estimate" and len(columns) > 1:
        return [code or 0 for code in codes] + [GRID * (code is not None) for code in codes]
    if choice == "estimate":
        return [0, 0, GRID] if codes[0] is None else [codes[0], GRID - codes[0], 0]
    fills = [counts_as(choice, bounds) for bounds in columns.values()]
    return [fill if code is None else code for code, fill in zip(codes, fills, strict=True)]


def total(rows, choice):
    wide = (min(OTHER[0], 0.0), OTHER[1]) if choice == "estimate" else OTHER
    code = code_of(rows, "y", wide)
    if code is None:
        fill = oracle.code(0.0, wide) if choice == "estimate" else counts_as(choice, wide)
        return None if choice == "drop" else [fill]
    return [code]


def share(rows, column, value, choice, *, counted=False):
    (row,) = rows
    cell = row[column]
    promised = {""} if isinstance(value, str) else {"", "nan"}  # where nobody is missing every word is an answer
    words = promised if choice == "none" else MISSING_WORDS
    missing = number(cell) is None if not isinstance(cell, str) else cell.strip(" \t\u00a0").lower() in words
    equal = cell == value if isinstance(value, str) and isinstance(cell, str) else number(cell) == number(value)
    if isinstance(value, str) and isinstance(cell, str) and not equal and number(value) is not None:
        equal = number(cell) == number(value)
    if not isinstance(cell, str) and number(cell) is None:
        equal = False
    if equal:
        return [GRID, 0, 0] if choice == "estimate" and not counted else [GRID]
    if not missing:
        return [0, GRID, 0] if choice == "estimate" and not counted else [0]
    if choice == "drop":
        return None
    if choice == "estimate":
        return [0] if counted else [0, 0, GRID]
    return [GRID // 2 if isinstance(choice, str) else oracle.code(choice, (0.0, 1.0))]


def ranks(rows, choice, bins=64):
    code = code_of(rows, "x", BOUNDS)
    if code is None and choice == "drop":
        return None
    width = bins + (choice == "estimate")
    if code is None and choice == "estimate":
        return [GRID * (i == bins) for i in range(width)]
    code = counts_as(choice, BOUNDS) if code is None else code
    place = min((2 * code + 1) * bins // (2 * GRID), bins - 1)
    return [GRID * (i == place) for i in range(width)]


def spread(rows, choice):
    code = code_of(rows, "x", BOUNDS)
    if code is None and choice == "drop":
        return None
    if code is None and choice == "estimate":
        return [0, 0, 0]
    code = counts_as(choice, BOUNDS) if code is None else code
    return [code, (2 * code - GRID) ** 2 // GRID, *([GRID] if choice == "estimate" else [])]


def by_group(rows, choice):
    (row,) = rows
    code, listed = code_of(rows, "x", BOUNDS), ["yes", "no"]
    if code is None and choice == "drop":
        return None
    found = [0] * (6 + (choice == "estimate"))
    if code is None and choice == "estimate":
        found[6] = GRID
        return found
    code = counts_as(choice, BOUNDS) if code is None else code
    place = listed.index(row["t"]) if row["t"] in listed else 2
    found[2 * place : 2 * place + 2] = code, GRID - code
    return found


CASES = {
    "mean": (lambda m: ask.mean(BOUNDS, value="x", missing=m), lambda r, m: means(r, {"x": BOUNDS}, m)),
    "mean of a column of text": (
        lambda m: ask.mean(BOUNDS, value="t", missing=m), lambda r, m: means(r, {"t": BOUNDS}, m)
    ),
    "mean of a column of booleans": (
        lambda m: ask.mean(BOUNDS, value="b", missing=m), lambda r, m: means(r, {"b": BOUNDS}, m)
    ),
    "mean of words": (
        lambda m: ask.mean(BOUNDS, value="t", missing=m, values=WORDS), lambda r, m: means(r, {"t": BOUNDS}, m, WORDS)
    ),
    "mean of numbers that stand for others": (
        lambda m: ask.mean(BOUNDS, value="x", missing=m, values=CODED), lambda r, m: means(r, {"x": BOUNDS}, m, CODED)
    ),
    "sum": (lambda m: ask.sum(OTHER, value="y", missing=m), total),
    "several means": (
        lambda m: ask.means({"x": BOUNDS, "y": OTHER}, missing=m), lambda r, m: means(r, {"x": BOUNDS, "y": OTHER}, m)
    ),
    "quantile": (lambda m: ask.quantile(0.3, BOUNDS, bins=64, value="x", missing=m), ranks),
    "variance": (lambda m: ask.variance(BOUNDS, value="x", missing=m), spread),
    "proportion of a word": (
        lambda m: ask.proportion("yes", value="t", missing=m), lambda r, m: share(r, "t", "yes", m)
    ),
    "proportion of a number": (lambda m: ask.proportion(0.1, value="x", missing=m), lambda r, m: share(r, "x", 0.1, m)),
    "proportion of a boolean": (
        lambda m: ask.proportion(True, value="b", missing=m), lambda r, m: share(r, "b", True, m)
    ),
    "count of a word": (
        lambda m: ask.count("no", value="t", missing=m), lambda r, m: share(r, "t", "no", m, counted=True)
    ),
    "mean by a private group": (
        lambda m: ask.mean_by_group(BOUNDS, ["yes", "no"], "t", value="x", missing=m), by_group
    ),
}  # fmt: skip
ONE_ROW = SORTED_BY_WORDS | {"mean by a private group", "sum"}


def expected(rows, handed, choice, *, together=True):
    """{group: {ε: (people, sums)}}, person by person; who is left out is not there."""
    persons: dict[str, list[dict]] = {}
    for row in rows:
        persons.setdefault(row["id"], []).append(row)
    found: dict[str, dict[float, tuple[int, list[int]]]] = {}
    for person in persons.values():
        given, level = handed(person, choice), person[0]["e"]
        if given is None:
            continue
        group = "" if together else person[0]["g"]
        people, sums = found.setdefault(group, {}).get(level, (0, [0] * len(given)))
        added = given if level > 0 else [0] * len(given)
        found[group][level] = people + 1, [a + b for a, b in zip(sums, added, strict=True)]
    return found


def seen(table):
    columns = table.epsilon.tolist(), table.count.tolist(), table.total.tolist()
    return {level: (people, sums) for level, people, sums in zip(*columns, strict=True)}


def source_of(made, statistic, name, **options):
    return Source.asked_by(statistic, made, epsilon="e", **query_of(name), **options)


@pytest.mark.parametrize("name", WITH_KINDS)
def test_every_source_gives_the_same_integers_for_every_choice(name, made_of):
    table = people()
    made, rows, wrong = made_of(name, table), table.rows(named=True), []
    slow = "dask" in name or name == "spark"  # a query takes them long
    choices = ("estimate", "drop") if slow else CHOICES
    for what, (statistic, handed) in CASES.items():
        if slow and what in ("quantile", "sum", "proportion of a boolean", "mean of a column of booleans"):
            continue
        for choice in choices:
            asked = statistic(choice)
            found = {group: seen(part) for group, part in source_of(made, asked, name).tables(asked).items()}
            if found != expected(rows, handed, choice):
                wrong.append((what, choice))
    assert wrong == []


@pytest.mark.parametrize("name", USUAL)
def test_a_person_with_several_rows_is_missing_only_if_all_of_them_are(name, made_of):
    table = people(rows_each=3)
    made, rows, wrong = made_of(name, table), table.rows(named=True), []
    slow = "dask" in name or name == "spark"
    for what in ["mean", "several means", "mean of words"] if slow else sorted(CASES.keys() - ONE_ROW):
        statistic, handed = CASES[what]
        for choice in ("estimate",) if slow else ("estimate", "drop", 0.75):
            asked = statistic(choice)
            source = source_of(made, asked, name, person="id", rows="average", by="g")
            found = {group: seen(tally.table) for group, tally in read_groups(source, asked).items()}
            if found != expected(rows, handed, choice, together=False):
                wrong.append((what, choice))
    assert wrong == []


PLANTED = {
    "a missing row counts in the average": (
        "hetdp.sources.people._weighted",
        lambda rows: rows.with_columns(pl.col("code 0").fill_null(GRID // 2), pl.col("count").alias("known 0")),
    ),
    "a missing value is the midpoint": (
        "hetdp.statistics.statistic.Statistic.fill", lambda *_: GRID // 2,
    ),
    "words are read as numbers too": ("hetdp.core.cells.Words.of_places", lambda _, places: places.astype(float)),
}  # fmt: skip


@pytest.mark.parametrize("fault", PLANTED)
def test_control_a_planted_fault_is_noticed(fault, monkeypatch):
    several = "average" in fault
    table = people(rows_each=3 if several else 1)
    what = "mean of words" if "words" in fault else "mean"
    statistic, handed = CASES[what]
    monkeypatch.setattr(*PLANTED[fault])
    where = {"person": "id", "rows": "average"} if several else {}
    found = source_of(table, statistic(0.75), "polars", **where).tables(statistic(0.75))
    assert {g: seen(part) for g, part in found.items()} != expected(table.rows(named=True), handed, 0.75)


def test_arrays_and_lists_take_every_choice_and_promise_none_missing_unless_told():
    table = people()
    rows, cells, levels = table.rows(named=True), table["x"].to_list(), table["e"].to_list()
    array = np.array([np.nan if cell is None else cell for cell in cells])
    for values in (cells, array, table["x"]):
        for choice in CHOICES:
            tally = hetdp.read(values, epsilon=levels, bounds=BOUNDS, missing=choice)
            assert seen(tally.table) == expected(rows, CASES["mean"][1], choice)[""]
    for values in (cells, array):
        assert (
            seen(hetdp.read(values, epsilon=levels, bounds=BOUNDS).table)
            == expected(rows, CASES["mean"][1], "none")[""]
        )
    with pytest.raises(hetdp.InputError, match="say what is done about missing values"):
        hetdp.read(table["x"], epsilon=levels, bounds=BOUNDS)


@pytest.mark.parametrize("name", USUAL)
def test_a_table_must_say_what_is_done_about_missing_values(name, made_of):
    made = made_of(name, people())
    with pytest.raises(hetdp.InputError, match="say what is done about missing values"):
        hetdp.mean(made, value="x", epsilon="e", bounds=BOUNDS, **query_of(name))


def test_people_who_are_left_out_leave_n_and_the_levels():
    table = people()
    asked = CASES["mean"][0]("drop")
    found = source_of(table, asked, "polars").tables(asked)[""]
    assert found.n == sum(number(cell) is not None for cell in table["x"])


@pytest.mark.parametrize("choice", ["sometimes", "", True, math.nan, math.inf, [1]])
def test_a_choice_that_is_none_is_refused_with_the_choices(choice):
    with pytest.raises(hetdp.InputError, match=r"missing is 'estimate'.*'none'"):
        ask.mean(BOUNDS, missing=choice)


@pytest.mark.parametrize("values", [{}, ["yes"], {"yes": "one"}, {"yes": math.nan}, {"yes": 1, "YES": None}, "yes=1"])
def test_words_that_stand_for_no_numbers_are_refused(values):
    with pytest.raises(hetdp.InputError, match="values"):
        ask.mean(BOUNDS, values=values)


def test_a_short_line_is_refused_if_nothing_may_be_missing_and_missing_otherwise(tmp_path):
    file = tmp_path / "people.csv"
    file.write_text("e,x\n1,0.5\n1\n1,1\n")
    with pytest.raises(hetdp.InputError, match=r"line 3 of .* has 1 fields and the header 2"):
        hetdp.read(file, value="x", epsilon="e", bounds=(0, 1), missing="none")
    assert hetdp.read(file, value="x", epsilon="e", bounds=(0, 1), missing="drop").n == 2
    assert hetdp.read(file, value="x", epsilon="e", bounds=(0, 1), missing="estimate").n == 3


def test_a_record_without_its_key_is_refused_if_nothing_may_be_missing_and_missing_otherwise(tmp_path):
    file = tmp_path / "people.ndjson"
    file.write_text('{"e": 1, "x": 0.5}\n{"e": 1}\n{"e": 1, "x": true}\n')
    with pytest.raises(hetdp.InputError, match=r"line 2 of .* has no key 'x'"):
        hetdp.read(file, value="x", epsilon="e", bounds=(0, 1), missing="none")
    assert hetdp.read(file, value="x", epsilon="e", bounds=(0, 1), missing="drop").n == 2


def test_tallies_that_do_other_things_about_missing_values_do_not_merge():
    one, other = (hetdp.read([0.5], epsilon=1, bounds=(0, 1), missing=choice) for choice in ("drop", 0))
    with pytest.raises(hetdp.InputError, match="missing values do not merge"):
        _ = one + other
