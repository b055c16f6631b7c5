"""Amounts of privacy as integers: budgets rounded down, spends rounded up, in units of 10⁻⁹ ε.

Claim. Let `left` be what a person has left, a whole number of units, and ε = `level(left)`, the largest double
not above left·10⁻⁹. A plan made with ε charges this person, by `charges`, at most `left`.

Argument. The exact check of `privacy.exact` gives W/s ≤ ε⁻ for the plan's integer weight W and noise scale s, and
ε⁻ < ε ≤ left·10⁻⁹. So 10⁹·W/s < left, and as `left` is whole, ⌈10⁹·W/s⌉ ≤ left. Both steps are decided in integers
below: a double is an exact quotient of two integers.
"""

from __future__ import annotations

import decimal
import math
import numbers
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from hetdp.core.domain import epsilon_of
from hetdp.core.plan import Plan
from hetdp.errors import InputError

UNIT = 10**9
"""Units in one ε."""

UNLIMITED = 10**18
"""The budget of people whose value is public. What they spend is written down as well, up to this number."""

Kind = Literal["spend", "share", "share_left"]
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


def budget_units(cell: Any, where: str = "") -> int:
    """Return a lifetime budget in units, rounded down; `inf` and `public` give `UNLIMITED`.

    A float is taken as the decimal number that Python prints for it, so 0.3 is three tenths.

    >>> budget_units("0.3"), budget_units(0.3), budget_units(1e-10), budget_units("public") == UNLIMITED
    (300000000, 300000000, 0, True)
    """
    value = epsilon_of(cell, where)
    if math.isinf(value):
        return UNLIMITED
    if value * UNIT < 0.5:  # also keeps "1e-999999999" from becoming an enormous fraction
        return 0
    units = math.floor(_decimal(cell, value) * UNIT)
    if units >= UNLIMITED:
        raise InputError(f"a budget must be below 10⁹ (got {value:g}{where}); write inf if the value is public")
    return units


def _decimal(cell: Any, value: float) -> Fraction:
    if isinstance(cell, numbers.Integral):
        return Fraction(int(cell))
    return Fraction(cell if isinstance(cell, (str, Fraction, decimal.Decimal)) else repr(value))


def in_epsilon(units: int) -> float:
    """Return units as an ε for reading: the nearest double, infinity if there is no limit."""
    return math.inf if units >= UNLIMITED else units / UNIT


def level(units: int) -> float:
    """Return the largest double not above units·10⁻⁹; infinity if there is no limit.

    >>> level(300_000_000), level(100_000_000)
    (0.3, 0.09999999999999999)
    """
    if units >= UNLIMITED:
        return math.inf
    nearest = units / UNIT  # Python divides integers with one correct rounding
    up, down = nearest.as_integer_ratio()
    return nearest if up * UNIT <= units * down else math.nextafter(nearest, 0)


def levels(units: Ints) -> Floats:
    """Return `level` of many amounts at once.

    The nearest double f = h + l is split into its first 32 bits and the other 21. As 10⁹ = 1953125·2⁹ and 1953125
    has 21 bits, h·10⁹ and l·10⁹ are doubles without rounding, and so is units − h·10⁹, of two numbers that lie close
    together: f·10⁹ > units is decided exactly. Amounts from 2⁵³ on are no doubles and are taken one by one.

    >>> levels(np.array([0, 300_000_000, 100_000_000, UNLIMITED]))
    array([0. , 0.3, 0.1, inf])
    """
    large = np.flatnonzero(units >= 2**53)
    amounts = units.copy()
    amounts[large] = 0
    nearest = amounts / UNIT
    first = (nearest.view(np.int64) >> 21 << 21).view(np.float64)
    above = (nearest - first) * UNIT > amounts - first * UNIT
    found = (nearest.view(np.int64) - above).view(np.float64)  # the double below has the bits of the integer below
    found[large] = [level(amount) for amount in units[large].tolist()]
    return found


def charges(plan: Plan) -> Ints:
    """Return what one person at each level of a plan spends: ⌈10⁹·W/s⌉ units, `UNLIMITED` where no noise protects."""
    found = np.where(plan.units > 0, UNLIMITED, 0)
    for term in plan.noise:
        part = slice(term.first, term.last)
        found[part] = _spends(plan.units[part], term.scale)
    return found


def _spends(weights: Ints, scale: float) -> Ints:
    """Return ⌈10⁹·W/s⌉ for each weight, and `UNLIMITED` where it is more.

    Let s = a/b, exact. The double nearest to x = 10⁹·W/s comes out of three roundings and is below 2⁵⁰, so it is off by
    less than 1/2, and the whole number q nearest to it is off by less than 1. Then d = 10⁹·W·b − q·a = (x − q)·a lies
    between −a and a, and ⌈x⌉ is q + 1 if d is positive, else q. As a ≤ 2⁶², d is what arithmetic modulo 2⁶⁴ says.

    >>> _spends(np.array([0, 1, 3]), 1e9), _spends(np.array([1, 2**61]), 0.75)
    (array([0, 1, 3]), array([         1333333334, 1000000000000000000]))
    """
    up, down = scale.as_integer_ratio()
    nearest = np.rint(weights * (UNIT / scale))
    if up > 2**62 or not nearest.max(initial=0) < 2**50:
        return np.array([min(-(-w * UNIT * down // up), UNLIMITED) for w in weights.tolist()], dtype=np.int64)
    whole: Ints = nearest.astype(np.int64)
    spent, paid = np.uint64(UNIT * down % 2**64), np.uint64(up)
    rest = weights.astype(np.uint64) * spent - whole.astype(np.uint64) * paid
    return np.where(rest.view(np.int64) > 0, whole + 1, whole)


@dataclass(frozen=True)
class Rule:
    """How much a release may use of each person: ε at most, a share of the budget, or a share of what is left.

    >>> Rule("spend", Fraction(1, 10)).allowed(budget=10**9, left=60_000_000)
    60000000
    >>> Rule("share", Fraction(1, 4)).allowed(budget=10**9, left=10**9)
    250000000
    """

    kind: Kind
    amount: Fraction

    @classmethod
    def given(cls, *, spend: Any = None, share: Any = None, share_left: Any = None) -> Rule:
        """Return the rule that a caller gave; exactly one of the three must be there."""
        named: dict[Kind, Any] = {"spend": spend, "share": share, "share_left": share_left}
        said = [(kind, cell) for kind, cell in named.items() if cell is not None]
        if len(said) != 1:
            raise InputError(
                f"say how much a release may use by one of --spend ε, --share of the budget or --share-left of what is "
                f"left (got {len(said)} of them)"
            )
        kind, cell = said[0]
        value = epsilon_of(cell, f" for {kind}")
        if kind == "spend" and (math.isinf(value) or budget_units(cell) < 1):
            raise InputError(f"spend must be a number from 10⁻⁹ to 10⁹ (got {value:g}): the ε that a person may spend")
        if kind != "spend" and not 0 < value <= 1:
            raise InputError(f"{kind} must be above 0 and at most 1 (got {value:g}); 0.25 is a quarter")
        return cls(kind, _decimal(cell, value))

    def wanted(self, budget: Ints, left: Ints) -> Ints:
        """Return what the release would use of people, in units, whether or not it is left.

        People without a limit (their value is public) have none here either.
        """
        base = np.full_like(budget, UNIT) if self.kind == "spend" else budget if self.kind == "share" else left
        up, down = self.amount.numerator, self.amount.denominator
        if max(up, down) * max(1, int(base.max(initial=0))) < 2**63:
            part = base * up // down
        else:
            part = np.array([min(units * up // down, UNLIMITED) for units in base.tolist()], dtype=np.int64)
        return np.where(budget == UNLIMITED, UNLIMITED, part)

    def allowed(self, budget: int, left: int) -> int:
        """Return what the release may use of a person, in units, never more than is left."""
        return min(left, int(self.wanted(np.array([budget]), np.array([left]))[0]))

    def __str__(self) -> str:
        words = {"spend": "ε a person", "share": "of each budget", "share_left": "of what is left"}
        return f"{float(self.amount):g} {words[self.kind]}"
