"""Cells that are objects of any class: whatever they do when they are asked, nothing is told."""

from __future__ import annotations

import math
import warnings
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import polars as pl
import pytest

import hetdp
from hetdp.core.domain import GRID, value_of
from hetdp.ledger import Ledger
from ledgers import PEOPLE, VALUES
from ledgers import mean as ledger_mean
from refusals import MARKER

MIDPOINT = GRID // 2
COLUMNS = {"value": "x", "missing": "midpoint", "epsilon": "e", "bounds": (0, 1)}


def raises(*_, **__):
    raise RuntimeError(MARKER)


def warns(*_, **__):
    warnings.warn(f"the value is {MARKER}", stacklevel=2)
    return 0.75


class Text(str):
    """A text whose own methods raise."""

    __slots__ = ()
    strip = lower = encode = __len__ = __hash__ = __eq__ = raises


class Double(float):
    """A double whose own methods raise."""

    __slots__ = ()
    __float__ = __bool__ = __gt__ = __eq__ = __hash__ = raises


class Whole(int):
    """A whole number whose own methods raise."""

    __slots__ = ()
    __float__ = __int__ = __index__ = __gt__ = raises


class Number(Fraction):
    """A number of a class that numbers know, which raises when asked for its double."""

    __slots__ = ()
    __float__ = raises


class Warns(Fraction):
    """The same, but it warns and answers."""

    __slots__ = ()
    __float__ = warns


class Huge(Fraction):
    """A number that is too large for a double, and raises when it is compared."""

    __slots__ = ()

    def __float__(self):
        raise OverflowError(MARKER)

    __gt__ = raises


class Array:
    """A thing that calls itself an array, and raises or warns when asked for it."""

    def __init__(self, act):
        self._act = act

    def __array__(self, *args, **more):
        return self._act(*args, **more)

    @property
    def __len__(self):
        return self._act()


class Masked:
    """A thing that raises when asked for its class."""

    @property
    def __class__(self):
        return raises()


class Untouchable:
    """A thing that raises whatever it is asked for."""

    def __getattribute__(self, name):
        raises()


ODD = {
    "text": (Text("0.25"), 0.25), "text that is none": (Text(MARKER + "x"), None), "double": (Double(0.25), 0.25),
    "double that is NaN": (Double("nan"), None), "whole number": (Whole(1), 1.0), "too large": (Whole(10**400), 1.0),
    "number": (Number(1, 4), None), "number that warns": (Warns(1, 4), 0.75), "huge number": (Huge(1), None),
    "array that raises": (Array(raises), None), "array that warns": (Array(warns), None), "class": (Masked(), None),
    "untouchable": (Untouchable(), None), "list": ([1.0], None), "array": (np.ones(2), None),
    "array of no dimension": (np.array(1.0), None), "array of texts": (np.array([MARKER]), None), "dict": ({}, None),
    "signalling NaN": (Decimal("sNaN"), None),
}  # fmt: skip


def holders(cells):
    """The same cells in all that can hold any object."""
    objects = np.empty(len(cells), object)
    for i, cell in enumerate(cells):
        objects[i] = cell
    levels = [1.0] * len(cells)
    yield "list", lambda: hetdp.read(list(cells), epsilon=levels, bounds=(0, 1))
    yield "tuple", lambda: hetdp.read(tuple(cells), epsilon=levels, bounds=(0, 1))
    yield "object array", lambda: hetdp.read(objects, epsilon=levels, bounds=(0, 1))
    yield (
        "with ids",
        lambda: hetdp.read(
            list(cells), epsilon=levels, bounds=(0, 1), person=[*map(str, range(len(cells)))], rows="average"
        ),
    )


@pytest.mark.parametrize("case", ODD)
def test_row_107_whatever_a_cell_does_when_it_is_asked_it_counts_as_missing_or_as_its_number(case, recwarn, capfd):
    cell, number = ODD[case]
    code = MIDPOINT if number is None else math.floor(number * GRID + 0.5)
    for name, read in holders([cell, 0.0, 1.0]):
        tally = read()
        assert (tally.n, tally.table.total[:, 0].tolist()) == (3, [code + GRID]), name
    released = hetdp.mean([cell, 0.5] * 100, epsilon=[1.0] * 200, bounds=(0, 1))
    assert released.plan.n == 200
    assert "PRIVATE" in hetdp.check([cell, 0.0], epsilon=[1.0, 1.0], bounds=(0, 1)).report()
    assert [str(warning.message) for warning in recwarn] == []
    assert "".join(capfd.readouterr()) == ""


def test_row_107_an_object_column_of_a_frame_is_read_in_the_same_way(recwarn):
    cells = [Number(1, 4), Warns(1, 4), Double(0.25), [1.0], None, "0.5"]
    codes = [None, 0.75, 0.25, None, None, 0.5]
    total = sum(MIDPOINT if x is None else math.floor(x * GRID + 0.5) for x in codes)
    column = np.empty(len(cells), object)
    for i, cell in enumerate(cells):
        column[i] = cell
    for frame in (
        pd.DataFrame({"x": column, "e": 1.0}),
        pl.DataFrame({"x": pl.Series(cells, dtype=pl.Object), "e": [1.0] * 6}),
    ):
        assert hetdp.read(frame, **COLUMNS).table.total[:, 0].tolist() == [total]
    assert list(recwarn) == []


@pytest.mark.parametrize("case", ["text that is none", "array that raises", "class", "untouchable"])
def test_row_107_a_ledger_reads_cells_after_the_charge_so_none_may_raise(case, tmp_path, recwarn):
    cell, _ = ODD[case]
    with Ledger.create(tmp_path / "b.db") as ledger:
        ledger.enroll(dict.fromkeys(PEOPLE, math.inf))
        released = ledger_mean(ledger, values=[*VALUES[1:], cell])
        want = (sum(VALUES[1:]) + 0.5) / 200
        assert released.estimate == pytest.approx(want, abs=1e-5)
    assert list(recwarn) == []


def test_row_107_control_ordinary_numbers_of_other_classes_are_still_read():
    cells = [Fraction(1, 4), Decimal("0.5"), np.float32(0.25), np.int8(1), 10**400, -(10**400), Decimal("1e999")]
    assert [value_of(cell) for cell in cells] == [0.25, 0.5, 0.25, 1.0, math.inf, -math.inf, math.inf]
