"""What one cell means, and the public interval of the values with its grid of integer codes.

A value never raises or warns: what cannot be read counts as missing (NaN here, the midpoint on the grid). In a list a
cell can be an object of any class, so its type is asked for with `type`, which runs nothing of that class; of texts and
numbers the methods of Python's own classes are used, whatever a subclass says; and of a foreign kind of number `float`
is asked, with whatever it raises or warns about kept back. An ε is public, so a bad one is a loud error.

Both know only ASCII decimal notation: `1_000`, `0,5`, `0x1F` or digits of other scripts mean different things to
different readers, so they mean nothing here.
"""

from __future__ import annotations

import decimal
import json
import math
import numbers
import re
import sys
import unicodedata
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from hetdp.errors import InputError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

GRID = 2**20
"""Q, the number of grid steps. It is the same for everybody, so tallies merge."""

NUMBER = r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"  # never tries a digit twice
LEADING_ZERO = r"^[+-]?0[0-9]"
INFINITE = r"[+-]?(?:[iI][nN][fF](?:[iI][nN][iI][tT][yY])?)"
BLANKS = " \t"
EMPTY = " \t\u00a0\u2007\u202f"
"""What a cell without an answer may hold: blanks, also those at which no line breaks."""
WORDS = (
    *("-", "--", ".", "?", "#N/A", "#NA", "(null)", "<NA>", "\\N", "missing", "n.a.", "n/a", "na", "nan", "NaT", "nil"),
    *("none", "null"),
)
"""Words for a missing value, in upper or lower case."""
MISSING = frozenset({"", *map(str.lower, WORDS)})
UNREADABLE = "\ufffd"  # what stands for bytes that are no text: a cell with it is no answer
TRUTH = {"True": 1.0, "TRUE": 1.0, "true": 1.0, "False": 0.0, "FALSE": 0.0, "false": 0.0}
LONGEST = 64

LONGEST_ID = 256
BLANK = " \t\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
INVISIBLE = (
    "\u0080-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f"
    "\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff"
)
"""Blanks, and characters that nobody sees, as a character class of a regular expression has them in any engine."""
NOT_IN_ID = f'[\\x00-\\x1f\\x7f"{INVISIBLE}]|^[{BLANK}]|[{BLANK}]$'
"""What an id must not hold. A control character or a quote: it was most likely cut out of a row in a wrong place. A
blank around it or an invisible character: two ids that look the same would be two people."""
BAD_ID = (
    "has a quote, a blank around it, control or invisible characters, or more than "
    f"{LONGEST_ID} characters; clean the ids first"
)

Missing = Literal["estimate", "drop", "midpoint", "none"] | float
"""What is done about missing values; a number: they count as that."""

CHOICES = (
    "'estimate' (those who answered alone count, and who did stays private), 'drop' (the same, and who answered is "
    "public), 'midpoint' or a number (what a missing value counts as), or 'none' (you promise that none is missing)"
)

WHY_UNREAD = (
    "Words need values= (--map yes=1); a decimal comma and separators of thousands need --decimal and --thousands; %, "
    "currency signs and dates cannot be read."
)
"""Why cells that are not empty may be unreadable as numbers."""

_SHOWN = (
    "the owner sees it with hetdp check, and which cells cannot be read (such as 1,234 without --thousands, 0,5 "
    "without --decimal, 5%, a date, a word without --map)"
)
UNSAID = f". How many they are is not published and can be most people: {_SHOWN}"
"""What is said of people without a value where their share is not released with the number."""

PROMISED = f". Whether the promise holds is not published, and they can be most people: {_SHOWN}"
"""The same where it was promised that there are none."""

_VALUE = re.compile(f"(?:{NUMBER})|(?:{INFINITE})")
_EPSILON = re.compile(f"(?!{LEADING_ZERO[1:]}){NUMBER}")  # 05 may be the end of 0,05
PUBLIC = frozenset({"inf", "infinity", "public"})


# What a cell means ---------------------------------------------------------------------------------------------------


def value_of(cell: Any) -> float:
    """Return a private cell as a double, NaN when it is missing or cannot be read. Never raises.

    True and false are 1 and 0, also as words, in the spellings of Python, R, SQL and JSON. Libraries turn a column of
    booleans into one of objects or texts as soon as one cell is missing or is no boolean, and if that changed what the
    other cells mean, one person's value would move everybody's.

    >>> [value_of(cell) for cell in (3, " 2.5 ", "1e999", None, "1,5", True, "FALSE", "yes")]
    [3.0, 2.5, inf, nan, nan, 1.0, 0.0, nan]
    """
    kind = type(cell)
    if issubclass(kind, float):
        return float.__float__(cell)
    if issubclass(kind, str):
        text = str.strip(cell, BLANKS)
        return float(text) if _VALUE.fullmatch(text) else TRUTH.get(text, math.nan)
    if issubclass(kind, (bool, np.bool_)):
        return float(cell)
    if issubclass(kind, int):
        return _double(int.__int__(cell))
    return _foreign(cell)


def _double(number: Any) -> float:
    """Return the nearest double of a number, infinity where it is beyond them: it will be clamped."""
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def _foreign(cell: Any) -> float:
    """Return a number of another class, or NaN: fractions, decimals, numpy's numbers, numbers of somebody's own."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return _double(cell) if issubclass(type(cell), (numbers.Real, decimal.Decimal)) else math.nan
        except Exception:  # noqa: BLE001  a signalling NaN, a class that raises whatever it likes: no cell may raise
            return math.nan


def grouped(decimal: str, thousands: str) -> str:
    """Return the pattern of a number with a separator between groups of three digits, as in 1,234,567.8.

    >>> [bool(re.search(grouped(".", ","), text)) for text in ("1,234.5", "-12,345", "1,23", "1234,567", "0,123")]
    [True, True, False, False, False]
    """
    separator, point = (rf"\x{ord(char):02x}" for char in (thousands, decimal))  # read alike by Python and Polars
    return rf"^[+-]?[1-9][0-9]{{0,2}}(?:{separator}[0-9]{{3}})+(?:{point}[0-9]*)?(?:[eE][+-]?[0-9]+)?$"


def is_missing(cell: Any, words: frozenset[str] = MISSING) -> bool:
    """Say whether a private cell is missing (rather than unreadable): a text if it is one of `words`. Never raises."""
    if issubclass(type(cell), str):
        return str.strip(cell, EMPTY).lower() in words
    pandas = sys.modules.get("pandas")
    if cell is None or (pandas is not None and (cell is pandas.NA or cell is pandas.NaT)):
        return True
    return issubclass(type(cell), (float, np.floating)) and math.isnan(value_of(cell))


def missing_of(given: Any) -> Missing | None:
    """Return a choice for missing values, a number also from text; raise if it is none.

    >>> missing_of("drop"), missing_of("0.5")
    ('drop', 0.5)
    """
    if given is None or (isinstance(given, str) and given in ("estimate", "drop", "midpoint", "none")):
        return given  # type: ignore[return-value]
    number = math.nan if isinstance(given, bool) else value_of(given)
    if not math.isfinite(number):
        raise InputError(f"missing is {CHOICES} (got {given!r})")
    return number


def epsilon_of(cell: Any, where: str = "") -> float:
    """Return a public ε as the nearest double, or raise: it must be 0, positive, or `inf`.

    Infinity is said, never reached: only `inf`, `infinity`, `public` or a float infinity mean a public value.

    >>> epsilon_of("0.1"), epsilon_of("public"), epsilon_of(0)
    (0.1, inf, 0.0)
    >>> epsilon_of("1e400")
    Traceback (most recent call last):
    hetdp.errors.InputError: epsilon is too large for a number (got '1e400'); write inf if the value is public
    """
    value = _epsilon_text(cell, where) if isinstance(cell, str) else _epsilon_number(cell, where)
    if not value >= 0:
        got = "NaN" if math.isnan(value) else f"{value:g}"
        raise InputError(f"epsilon must be 0, positive or inf (got {got}{where}); use 0 to leave people out")
    return value + 0.0


def _epsilon_text(cell: str, where: str) -> float:
    text = cell.strip(BLANKS)
    shown = repr(text if len(text) <= LONGEST else text[:LONGEST] + "…")
    if text.lower() in PUBLIC:
        return math.inf
    if len(text) > LONGEST or not _EPSILON.fullmatch(text):
        remedy = "; for names of tiers say what they mean: tiers={name: ε}, --tier NAME=ε" if text[:1].isalpha() else ""
        remedy = "; 0,5 in a file needs decimal=',', --decimal ','" if "," in text else remedy
        remedy = remedy if text else "; everybody needs one, 0 leaves a person out"
        raise InputError(f"epsilon must be a decimal number, inf or public (got {shown}{where}){remedy}")
    value = float(text)
    if math.isinf(value):
        raise InputError(f"epsilon is too large for a number (got {shown}{where}); write inf if the value is public")
    return value


def _epsilon_number(cell: Any, where: str) -> float:
    if isinstance(cell, (bool, np.bool_)) or not isinstance(cell, (numbers.Real, decimal.Decimal)):
        raise InputError(f"epsilon must be a number, inf or public (got {type(cell).__name__}{where})")
    try:
        value = float(cell)
    except OverflowError:
        value = math.inf
    except ValueError:
        return math.nan
    if value == math.inf and cell != math.inf:
        raise InputError(f"epsilon is too large for a number{where}; write inf if the value is public")
    return value


def plain_of(kept: Any) -> Any:
    """Return a public parameter of a statistic as plain data, from which it can be made again."""
    if isinstance(kept, Interval):
        return [kept.lo, kept.hi]
    if isinstance(kept, tuple):
        return [plain_of(part) for part in kept]
    if isinstance(kept, dict):
        return {name: plain_of(part) for name, part in kept.items()}
    return getattr(kept, "plain", kept)  # what cells and words mean says itself how it is written


def jsonable(fact: Any) -> Any:
    """Return plain data with "inf" for infinity, which JSON does not have.

    >>> jsonable({"epsilon": [0.1, math.inf]})
    {'epsilon': [0.1, 'inf']}
    """
    if isinstance(fact, dict):
        return {key: jsonable(value) for key, value in fact.items()}
    if isinstance(fact, (list, tuple)):
        return [jsonable(value) for value in fact]
    return "inf" if isinstance(fact, float) and math.isinf(fact) else fact


def to_json(fact: Any) -> str:
    """Return plain data as JSON for people to read."""
    return json.dumps(jsonable(fact), indent=2, ensure_ascii=False, allow_nan=False)


def plural(count: int, noun: str) -> str:
    """Return a number of things in words.

    >>> plural(1, "person"), plural(2000, "person"), plural(0, "level"), plural(2, "category")
    ('1 person', '2,000 people', '0 levels', '2 categories')
    """
    many = "people" if noun == "person" else f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{count:,} {noun if count == 1 else many}"


def normal(text: str) -> str:
    """Return a text in the form in which ids and groups are compared: NFC, otherwise exact."""
    return unicodedata.normalize("NFC", text)


_BAD_ID = re.compile(f"{NOT_IN_ID}|[\ud800-\udfff]")  # half a surrogate pair cannot be written down


def clean_ids(ids: Iterable[Any], what: str = "id") -> list[str]:
    r"""Return ids as they are kept: text in Unicode's normal form C, otherwise exact; a bad one raises.

    >>> clean_ids(["007", "7", "Zoe\u0308"]) == ["007", "7", "Zoë"]
    True
    """
    found = []
    for number, cell in enumerate(ids, 1):
        if not isinstance(cell, str):
            raise InputError(
                f"an id must be text (got {type(cell).__name__} at {what} {number}); write numbers as text: '007' is "
                "not '7'"
            )
        text = normal(cell) if len(cell) <= LONGEST_ID else cell
        if not text:
            raise InputError(f"an id must not be empty (at {what} {number})")
        if len(text) > LONGEST_ID or _BAD_ID.search(text):
            raise InputError(f"an id {BAD_ID} (at {what} {number})")
        found.append(text)
    return found


# The interval and its grid -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Interval:
    """The public interval [lo, hi] in which every value lies, or is clamped to.

    Attributes
    ----------
    lo, hi
        The ends.
    width, mid
        The distance between them, and the point halfway.
    words
        What is done with values outside, in words.

    >>> Interval(0, 250_000).width
    250000.0
    """

    lo: float
    hi: float

    words: ClassVar[str] = "values clipped to"

    def __post_init__(self) -> None:
        for name in ("lo", "hi"):
            object.__setattr__(self, name, _finite(getattr(self, name)))
        if not self.lo < self.hi:
            raise InputError(f"the lower bound must be below the upper one (got {self.lo:g} and {self.hi:g})")
        if math.isinf(self.width):
            raise InputError(f"bounds are too far apart for floating point (got {self.lo:g} and {self.hi:g})")

    @classmethod
    def of(cls, bounds: Any) -> Interval:
        """Return the interval of a pair (lo, hi), the interval itself, or that of bounds that were found privately."""
        found = getattr(bounds, "interval", bounds)
        if isinstance(found, Interval):
            return found
        if isinstance(bounds, str) or not hasattr(bounds, "__len__") or len(bounds) != 2:
            why = "they are public, and if nobody knows them: bounds='private', outer=(lo, hi)"
            raise InputError(f"bounds must be a pair of numbers (lo, hi) (got {bounds!r}); {why}")
        return cls(bounds[0], bounds[1])

    def ordinary(self) -> Interval:
        """Return the interval, or raise if mean squared errors on it, which reports show, are no ordinary doubles."""
        if not 1e-120 <= self.width <= 1e120:
            far = "far apart" if self.width > 1 else "close together"
            raise InputError(
                f"bounds are too {far} for mean squared errors (got {self.lo:g} and {self.hi:g}); use another unit"
            )
        return self

    def __str__(self) -> str:
        return f"[{self.lo:,.10g}, {self.hi:,.10g}]"

    @property
    def width(self) -> float:
        """The length hi − lo."""
        return self.hi - self.lo

    @property
    def mid(self) -> float:
        """The midpoint: the answer that uses no data, and what a missing value can count as."""
        return self.at(Fraction(1, 2))

    def codes(self, values: NDArray[Any], out: NDArray[np.float64], missing: float = GRID // 2) -> NDArray[np.float64]:
        """Write the grid code of every value into `out` and return it: floor((clip(x) − lo)/(hi − lo)·Q + ½).

        Claim: the code of a person is a whole number in {0 … Q}, if `missing` is one, and depends on that person's
        value alone, for any value at all: NaN gets the code `missing` (NaN leaves it as it is, to be settled later, see
        `tally.groupby`), ±inf and everything outside that of the nearer bound.

        Argument: every step below works element by element. After clipping, lo ≤ x ≤ hi, so by the
        monotony of rounding 0 ≤ fl(x − lo) ≤ fl(hi − lo) = width and the quotient is in [0, 1];
        multiplying by Q = 2²⁰ is exact, so the last line is at most floor(Q + ½) = Q. NaN passes through all
        of these (numpy's clip keeps it) and is replaced explicitly. Nothing is cast to an integer, so nothing
        can raise, warn or wrap. The codes stay doubles: sums of them are exact up to 2⁵³, see `tally.groupby`.

        Every engine computes this formula with the same operations in the same order.

        Returns
        -------
        NDArray[np.float64]
            `out`, with the codes of `values`.
        """
        with np.errstate(all="ignore"):  # no value may warn: a longdouble can overflow on its way to a double
            if values.dtype != np.float64:
                np.copyto(out, values, casting="unsafe")  # clipping float32 would clip with float32 bounds
                values = out
            np.clip(values, self.lo, self.hi, out=out)
            if self.lo:  # x − 0 is x
                np.subtract(out, self.lo, out=out)
            np.divide(out, self.width, out=out)
            np.multiply(out, GRID, out=out)
            np.add(out, 0.5, out=out)
            np.floor(out, out=out)
            if missing == missing:  # noqa: PLR0124  not NaN
                np.copyto(out, missing, where=np.isnan(out))
        return out

    def code(self, value: float) -> int:
        """Return the grid code of one number."""
        return int(self.codes(np.array([value]), np.empty(1))[0])

    @staticmethod
    def average(total: Any, rows: Any) -> Any:
        """Return the average of a person's codes, rounded to the nearest integer, halves up; all in integers.

        Parameters
        ----------
        total, rows
            The sum of the codes, and how many there are; numbers or arrays.

        Returns
        -------
        int or array
            As `total` is.
        """
        return (2 * total + rows) // (2 * rows)

    def at(self, fraction: Fraction) -> float:
        """Return lo + (hi − lo)·fraction, computed exactly and turned into a double once.

        The result saturates at the largest double: a far draw of the noise on a very wide interval
        must not raise.
        """
        exact = Fraction(self.lo) + (Fraction(self.hi) - Fraction(self.lo)) * fraction
        try:
            return float(exact)
        except OverflowError:
            return sys.float_info.max if exact > 0 else -sys.float_info.max

    def clamp(self, x: float) -> float:
        """Return the point of the interval nearest to x."""
        return min(max(x, self.lo), self.hi)


def _finite(bound: Any) -> float:
    if isinstance(bound, (bool, np.bool_)) or not isinstance(bound, numbers.Real):
        raise InputError(f"a bound must be a number (got {bound!r}); text is not read as one")
    try:
        value = float(bound) + 0.0  # −0.0 and 0.0 are the same bound
    except OverflowError:
        value = math.inf
    if not math.isfinite(value):
        raise InputError(f"a bound must be finite (got {value:g}); bounds are public and never taken from the data")
    return value
