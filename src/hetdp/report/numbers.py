"""How numbers are printed: to the digits that their error supports, and limits on the side where they are true."""

from __future__ import annotations

import decimal
import math

from hetdp.core.domain import plural

_LONGEST_NAME = 24


def number(x: float, error: float, way: str = "nearest") -> str:
    """Return x with as many digits as its error deserves: the error's second digit is the last one shown.

    The error is public, so how a number is printed tells nothing about it. What is claimed to be a limit is rounded
    "up" or "down" to the side on which it stays true, but for a millionth of the last digit.

    >>> number(54321.987, 812.0), number(0.123456789, 0.0123), number(1.6e-9, 2e-8)
    ('54,320', '0.123', '2e-09')
    >>> number(54321.987, 812.0, "up"), number(54321.987, 812.0, "down"), number(0.1, 0.1, "up")
    ('54,330', '54,320', '0.10')
    """
    if not 0 < error < math.inf:
        return f"{x:,.6g}"
    last = math.floor(math.log10(error)) - 1  # the decimal place of the last digit shown
    step = decimal.Decimal(1).scaleb(last)
    slack = {"up": -_HAIR, "down": _HAIR}.get(way, decimal.Decimal(0))
    rounded = (decimal.Decimal(x) / step + slack).to_integral_value(_WAYS[way]) * step or decimal.Decimal(0)
    if last >= -6 and error < 1e12:
        return f"{rounded:,.{max(0, -last)}f}"
    return f"{float(rounded):.{max(1, 1 + rounded.adjusted() - last)}g}"


_WAYS = {"nearest": decimal.ROUND_HALF_EVEN, "up": decimal.ROUND_CEILING, "down": decimal.ROUND_FLOOR}
_HAIR = decimal.Decimal("1e-6")


def between(low: float, high: float, error: float) -> str:
    """Return an interval, rounded to the outside: what is guaranteed of it holds for what is printed."""
    return f"{number(low, error, 'down')} to {number(high, error, 'up')}"


def size(x: float) -> str:
    """Return the size of an error or of noise, two digits of it, rounded up.

    >>> size(2774), size(0.02), size(1.4e-9)
    ('2,800', '0.020', '1.4e-09')
    """
    return number(x, x, "up")


def stated(x: float) -> str:
    """Return a number that somebody stated, in full: it has no error.

    >>> stated(0.05 * 250000), stated(0.1 * 3), stated(100 * 0.125)
    ('12,500', '0.3', '12.5')
    """
    return f"{x:,.12g}"


def percent(share: float) -> str:
    """Return the size of an error as a share of the range, two digits of it, rounded up.

    >>> percent(0.01109), percent(0.02), percent(1.4e-9)
    ('1.2%', '2%', '1.4e-07%')
    """
    return f"{float(size(100 * share).replace(',', '')):g}%"


def epsilon(x: float) -> str:
    """Return an ε for reading."""
    return "∞" if math.isinf(x) else f"{x:.4g}"


def spent_epsilon(x: float) -> str:
    """Return an ε that is spent, rounded up so that what is printed holds, but for a millionth of it.

    >>> spent_epsilon(0.123411), spent_epsilon(0.1), spent_epsilon(0.2142857147)
    ('0.1235', '0.1', '0.2143')
    """
    if math.isinf(x) or x == 0:
        return epsilon(x)
    exact = decimal.Decimal(x * (1 - 1e-6))
    step = decimal.Decimal(1).scaleb(exact.adjusted() - 3)
    return epsilon(float((exact / step).to_integral_value(decimal.ROUND_CEILING) * step))


def odds(x: float) -> str:
    """Return e^ε, the factor by which odds can change at most, rounded up; it is above 1 for every ε > 0.

    What exceeds 1 is given to three digits.

    >>> odds(0.004), odds(0.14), odds(1), odds(5), odds(19), odds(1e-300), odds(0)
    ('1.00401', '1.151', '2.72', '149', '1.79e+08', '1.000001', '1')
    """
    if x == 0:
        return "1"
    excess = max(decimal.Decimal(math.expm1(x) * (1 + 1e-15)), decimal.Decimal("1e-6"))  # expm1 is right to 2⁻⁵²
    above = excess if excess < 100 else excess + 1
    step = decimal.Decimal(1).scaleb(above.adjusted() - 2)
    up = (above / step).to_integral_value(decimal.ROUND_CEILING) * step + (1 if excess < 100 else 0)
    return f"{up.normalize():f}" if up < 10**6 else f"{float(up):.2e}"


def shorten(name: str) -> str:
    """Return a name that leaves room for the numbers."""
    return name if len(name) <= _LONGEST_NAME else name[: _LONGEST_NAME - 1] + "…"


def people(count: int) -> str:
    """Return a number of people in words.

    >>> people(1), people(2000)
    ('1 person', '2,000 people')
    """
    return plural(count, "person")
