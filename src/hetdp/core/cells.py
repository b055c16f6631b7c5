"""Public cells into which people are sorted by a private value, and words that stand for numbers.

Cells are public and never come from the data. Claim: every cell of a table, whatever it holds, falls into exactly one
of them, which depends on that cell alone, and nothing raises. What is missing, unknown or unreadable falls into the
last one. Texts are compared exactly, letter by letter, and numbers as doubles, in every engine alike; in a column of
shorter floats, and of objects that are such floats, as the rest of Python has it.
"""

from __future__ import annotations

import decimal
import math
import numbers
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from hetdp.errors import InputError

from .domain import GRID, MISSING, UNREADABLE, Floats, Interval, Ints, is_missing, value_of

OTHER = "other"
NOT_LISTED = "not listed"
"""The last cell, if one of the categories is itself called `other`."""

WHOLE = 2.0**53
"""From here on doubles leave out whole numbers."""
_EXPONENT = re.compile(r"[0-9.][eE]")  # of a number, or of a code such as 0E1
_SHORT = {"float32": np.float32, "float4": np.float32, "float16": np.float16}

MOST_CELLS = 1024
MOST_BINS = 2**14


@dataclass(frozen=True)
class Categories:
    """Public categories, and a last cell for everything else.

    A cell belongs to the category that is written like it, letter by letter, or else to the one that is the same
    number: "1", 1, 1.0 and "1.0" are all the category "1", and True, "True" and "true" the category "true". It has to
    be so, because the type of a column in memory can come from its cells: one word turns all numbers of a column into
    texts, and nobody's cell may change what another one means. Engines give the same: if a category is a number, the
    different texts of a column are read here.

    A category that is a text with an exponent (0E1 and 0E2 are codes), or has digits beyond 2⁵³, is compared with texts
    as a text alone, since doubles would take others for it. A column of numbers, whose type is public, is then refused:
    a library may have made numbers of the texts in it, or not, by what one of them is.

    >>> Categories.of(["nurse", "teacher"]).labels
    ('nurse', 'teacher', 'other')
    >>> [Categories.of([1, 2]).index(cell) for cell in (2, "2.0", "two", None)]
    [1, 1, 2, 2]
    >>> [Categories.of(["1", "none"]).index(cell) for cell in (1, "1.0", "none", "None")]
    [0, 0, 1, 2]
    >>> [Categories.of(["0E1"]).index(cell) for cell in ("0E1", "0E2", "0")]
    [0, 1, 1]

    Attributes
    ----------
    names
        How the categories are written.
    numbers
        The categories as numbers, NaN where one is none.
    textual
        Whether they were given as texts.
    apart
        Whether what is missing has a cell of its own, after that of everything else. Missing is what is neither a text
        nor a number (nothing, NaN, a date, bytes), and an empty text.
    words
        Whether `core.domain.WORDS` are missing too, unless one of them is a category.
    """

    names: tuple[str, ...]
    numbers: tuple[float, ...]
    textual: bool
    apart: bool = False
    words: bool = True

    @classmethod
    def of(cls, given: Any, *, apart: bool = False, words: bool = True) -> Categories:
        """Return the categories that a caller lists, in their order."""
        if isinstance(given, (str, bytes, Mapping)) or not isinstance(given, (Sequence, np.ndarray)):
            raise InputError(f"categories are a list, such as ['yes', 'no'] (got {type(given).__name__})")
        cells = given.tolist() if isinstance(given, np.ndarray) else list(given)
        textual = all(isinstance(cell, str) for cell in cells)
        if not textual and not all(isinstance(cell, (numbers.Real, np.bool_)) for cell in cells):
            raise InputError("categories are all texts, or all numbers; write numbers as text to mix them")
        if not 1 <= len(cells) < MOST_CELLS:
            raise InputError(f"give 1 to {MOST_CELLS - 1:,} categories (got {len(cells):,})")
        names = tuple(str(cell) if isinstance(cell, str) else name_of(cell) for cell in cells)
        if not all(name.isascii() or name.encode("utf-8", "replace").decode() == name for name in names):
            raise InputError("a category is no valid text (it has half a surrogate pair); no table could hold it")
        read = tuple(value_of(cell) for cell in cells)
        if any(isinstance(cell, numbers.Integral) and abs(int(cell)) >= WHOLE for cell in cells):
            raise InputError("a category beyond 2⁵³ cannot be told from its neighbours as a number; write it as text")
        if textual:  # codes are compared as they are written
            pairs = list(zip(names, read, strict=True))
            read = tuple(
                math.nan if _is_code(name) and (abs(x) >= WHOLE or read.count(x) > 1) else x for name, x in pairs
            )
        known = [number for number in read if not math.isnan(number)]
        if len(set(names)) < len(names) or len(set(known)) < len(known) or (not textual and len(known) < len(read)):
            raise InputError("a category is listed twice, or two are the same number; list each of them once")
        return cls(names, read, textual, apart, words)

    @property
    def size(self) -> int:
        """The number of cells, the last ones included."""
        return len(self.names) + 1 + self.apart

    @property
    def labels(self) -> tuple[str, ...]:
        """What each cell is called."""
        more = ("missing",) if self.apart else ()
        return (*self.names, NOT_LISTED if OTHER in self.names else OTHER, *more)

    @property
    def plain(self) -> list[Any]:
        """The categories as plain data, from which `of` makes them again."""
        return list(self.names if self.textual else self.numbers)

    @property
    def numeric(self) -> bool:
        """Whether at least one category is a number."""
        return not all(map(math.isnan, self.numbers))

    @property
    def reads_texts(self) -> bool:
        """Whether texts have to be read, not only compared: one category is a number too, or what is missing counts."""
        return self.apart or (self.textual and self.written.numeric)

    @property
    def alike(self) -> str:
        """What stands beside a number if a category is also met in another spelling, as the same number.

        >>> Categories.of(["1.1", "beta"]).alike, Categories.of(["yes", "no"]).alike
        ("; the same number in another spelling counts too, as '01.1' for '1.1'", '')
        """
        codes = zip(self.names, self.written.numbers, strict=True)
        name = (
            next((name for name, x in codes if not math.isnan(x) and name[:1].isdigit()), None)
            if self.textual
            else None
        )
        return f"; the same number in another spelling counts too, as {'0' + name!r} for {name!r}" if name else ""

    @cached_property
    def _by_text(self) -> dict[str, int]:
        return {name: i for i, name in enumerate(self.names)}

    @cached_property
    def _by_number(self) -> dict[float, int]:
        return {number: i for i, number in enumerate(self.numbers) if not math.isnan(number)}

    @property
    def absent(self) -> frozenset[str]:
        """The texts that are missing, in lower case; of numbers NaN is, also where a file has it as a word."""
        return MISSING if self.words else frozenset({""} if self.textual else {"", "nan"})

    @cached_property
    def written(self) -> Categories:
        """The categories as texts are compared with them: one with an exponent is a text alone."""
        if not self.textual:
            return self
        pairs = zip(self.names, self.numbers, strict=True)
        return replace(self, numbers=tuple(math.nan if _EXPONENT.search(name) else number for name, number in pairs))

    def held(self, kind: str) -> Categories:
        """Return the categories as a column holds them whose type, which is public, is one of numbers.

        A short float is compared with the nearest one of its type: 5.15 in 32 bits is another double than 5.15.
        """
        if self.textual and any(_is_code(name) for name in self.names):
            raise InputError(
                "a category is a text with an exponent or more digits than a double has, and the column holds numbers; "
                "cast it to text, or write the category without an exponent"
            )
        numbers = self._shortened(kind)
        known = [number for number in numbers if not math.isnan(number)]
        if len(set(known)) < len(known):
            raise InputError(f"two categories are the same number in a column of type {kind}; cast it to 64 bits first")
        return self if numbers == self.numbers else replace(self, numbers=numbers)

    def _shortened(self, kind: str) -> tuple[float, ...]:
        """Return the categories as numbers of a type; they are rounded if it is one of short floats."""
        short: Any = _SHORT.get(kind.lower())
        if short is None:
            return self.numbers
        with np.errstate(all="ignore"):
            return tuple(float(short(number)) for number in self.numbers)

    @cached_property
    def _by_short(self) -> dict[type, dict[float, int]]:
        """The places by number, for cells that are short floats themselves; two that are the same there are none."""
        found: dict[type, dict[float, int]] = {}
        for kind in (np.float16, np.float32):
            numbers = self._shortened(kind.__name__)
            found[kind] = {x: i for i, x in enumerate(numbers) if not math.isnan(x) and numbers.count(x) == 1}
        return found

    def index(self, cell: Any) -> int:
        """Return the place of one cell of a list. Of an object of a foreign class no more is asked than for a value.

        An object that is a short float is compared as one, as in a column of such floats. Nothing raises: of which type
        a cell of a list is belongs to its value.
        """
        kind, place, number = type(cell), None, value_of(cell)
        if issubclass(kind, str):
            place = self._by_text.get(str.__str__(cell)) if self.textual else None
            place = self.written._by_number.get(number) if place is None else place
            missing = is_missing(cell, self.absent) or str.__contains__(cell, UNREADABLE)
        else:
            place, missing = self._by_short.get(kind, self._by_number).get(number), math.isnan(number)
            if self.textual and kind in _EXACT and WHOLE <= abs(number) < _LONGEST:
                place = self._by_text.get(str(cell))
        return len(self.names) + (self.apart and missing) if place is None else place

    def of_numbers(self, values: Floats) -> Ints:
        """Return the places of numbers; NaN is in the last cell."""
        none = len(self.names) + (np.isnan(values) if self.apart else np.zeros(values.size, bool))
        if not self.numeric:
            return none.astype(np.int64)
        order = np.argsort(np.array(self.numbers))[: len(self._by_number)]  # NaN comes last
        known = np.array(self.numbers)[order]
        near = np.minimum(np.searchsorted(known, values), known.size - 1)
        return np.where(known[near] == values, order[near], none).astype(np.int64)


_EXACT = {int, decimal.Decimal, np.int64, np.uint64}
_LONGEST = 1e300  # no longer number is written out


def _is_code(name: str) -> bool:
    """Say whether a text is a number that may be a code: with an exponent, or with more digits than a double has."""
    number = value_of(name)
    return math.isfinite(number) and (bool(_EXPONENT.search(name)) or abs(number) >= WHOLE)


@dataclass(frozen=True)
class Words:
    """How the cells of a column become numbers: those that are listed, and no others.

    Cells are compared as with `Categories`. Whatever is not listed is missing, numbers too: a survey writes 9 for
    "refused", and 9 must not be read as a number beside 1 for yes and 2 for no.

    >>> yes = Words.of({"yes": 1, "no": 0})
    >>> [yes.value(cell) for cell in ("no", "yes", "Yes", 1)]
    [0.0, 1.0, nan, nan]
    """

    categories: Categories
    numbers: tuple[float, ...]

    @classmethod
    def of(cls, given: Any) -> Words:
        """Return the words that a caller lists as {word: number}."""
        if isinstance(given, Words):
            return given
        if not isinstance(given, Mapping) or not given:
            raise InputError(f"values are a mapping, such as {{'yes': 1, 'no': 0}} (got {type(given).__name__})")
        read = tuple(map(value_of, given.values()))
        if not all(map(math.isfinite, read)):
            raise InputError("values map cells to numbers: {'yes': 1, 'no': 0}; leave out what counts as missing")
        if len(set(read)) == 1:
            raise InputError(f"values map every cell to {read[0]:g}, so that nothing could be learned; list the others")
        return cls(Categories.of(list(given)), read)

    @property
    def plain(self) -> dict[str, float]:
        """The words as plain data."""
        return dict(zip(self.categories.names, self.numbers, strict=True))

    def held(self, kind: str) -> Words:
        """Return the words as a column of numbers of this type holds them."""
        return replace(self, categories=self.categories.held(kind))

    def of_places(self, places: Ints) -> Floats:
        """Return the numbers of cells from their places among the categories."""
        return np.array([*self.numbers, math.nan])[places]

    def value(self, cell: Any) -> float:
        """Return the number of one cell of a list, NaN if it has none."""
        return (*self.numbers, math.nan)[self.categories.index(cell)]


Reading = Categories | Words | None
"""How a private column is read: as one of some categories, as words that stand for numbers, or as numbers."""


def name_of(cell: Any) -> str:
    """Return how a category that is no text is written: whole numbers without a point."""
    if isinstance(cell, (bool, np.bool_)):
        return str(bool(cell)).lower()
    number = float(cell)
    return str(int(number)) if number.is_integer() and abs(number) < 2**53 else repr(number)


@dataclass(frozen=True)
class Edges:
    """Bins between public edges, closed to the left, the last one to both sides; what lies outside is in a last cell.

    >>> Edges.of([0, 18, 65]).labels
    ('[0, 18)', '[18, 65]', 'other')
    """

    edges: tuple[float, ...]

    @classmethod
    def of(cls, given: Any) -> Edges:
        """Return the bins between edges that a caller lists."""
        if isinstance(given, (str, bytes, Mapping)) or not isinstance(given, Iterable):
            raise InputError(f"edges are a list of numbers, such as [0, 18, 65] (got {type(given).__name__})")
        edges = tuple(map(value_of, given))
        if not 2 <= len(edges) <= MOST_CELLS or not all(map(math.isfinite, edges)):
            raise InputError(f"give 2 to {MOST_CELLS:,} edges, all of them numbers (got {len(edges):,})")
        if any(one >= other for one, other in pairwise(edges)):
            raise InputError("edges must rise from each to the next")
        return cls(tuple(edge + 0.0 for edge in edges))

    @classmethod
    def even(cls, bounds: Any, bins: Any) -> Edges:
        """Return so many bins of one width between two bounds."""
        interval = Interval.of(bounds)
        if not isinstance(bins, int) or isinstance(bins, bool) or not 1 <= bins < MOST_CELLS:
            own = "; for edges of your own use edges=[…], without bounds" if isinstance(bins, Iterable) else ""
            raise InputError(f"the number of bins is a whole number from 1 to {MOST_CELLS - 1:,} (got {bins!r}){own}")
        # The bounds are the decimal numbers that were written, and each edge is the double nearest to its own: 0.3, not
        # 0 + 3 · 0.1 = 0.30000000000000004, below which the value 0.3 would lie in the bin that ends at "0.3".
        lo, hi = (Fraction(repr(end)) for end in (interval.lo, interval.hi))
        return cls.of([float(lo + (hi - lo) * i / bins) for i in range(bins + 1)])

    @property
    def size(self) -> int:
        """The number of cells, the last one included."""
        return len(self.edges)

    @property
    def labels(self) -> tuple[str, ...]:
        """What each cell is called."""
        ends = [f"{edge:,.10g}" for edge in self.edges]
        bins = [f"[{low}, {high})" for low, high in pairwise(ends)]
        return (*bins[:-1], f"[{ends[-2]}, {ends[-1]}]", OTHER)

    def of_numbers(self, values: Floats) -> Ints:
        """Return the places of numbers: comparisons alone decide, so every engine agrees."""
        edges = np.array(self.edges)
        place = np.searchsorted(edges, values, side="right") - 1
        place[values == edges[-1]] = edges.size - 2
        return np.where((values >= edges[0]) & (values <= edges[-1]), place, edges.size - 1).astype(np.int64)


@dataclass(frozen=True)
class Bins:
    """Many bins of one width over an interval, for ranks. Values outside count in the nearest bin.

    The bin of a value is that of its grid code q: ⌊(2q + 1)·bins/2Q⌋, the last one at the upper end. Half a step is
    added because a code is a rounded value: one that stands on the border of two bins is in the upper one, as in a
    histogram, also if it was rounded down.

    >>> years = Interval(15, 70)
    >>> int(Bins(years, 55).of_codes(years.code(27))), Bins(Interval(0, 64), 64).ends(27)[0] < 27.0
    (12, True)
    """

    interval: Interval
    bins: int

    def __post_init__(self) -> None:
        if not isinstance(self.bins, int) or isinstance(self.bins, bool) or not 2 <= self.bins <= MOST_BINS:
            raise InputError(f"the number of bins is a whole number from 2 to {MOST_BINS:,} (got {self.bins!r})")

    @property
    def size(self) -> int:
        """The number of cells."""
        return self.bins

    @property
    def labels(self) -> tuple[str, ...]:
        """What each cell is called."""
        return tuple(f"{self.middle(i):,.6g}" for i in range(self.bins))

    def of_codes(self, codes: Any) -> Any:
        """Return the bin of codes, in integers."""
        return np.minimum((2 * codes + 1) * self.bins // (2 * GRID), self.bins - 1)

    def ends(self, index: int) -> tuple[float, float]:
        """Return the least and the greatest value of a bin."""
        first, beyond = (-((self.bins - 2 * GRID * i) // (2 * self.bins)) for i in (index, index + 1))
        beyond = GRID + 1 if index == self.bins - 1 else beyond
        low, high = (self.interval.lo + self.interval.width * ((code - 0.5) / GRID) for code in (first, beyond))
        return self.interval.clamp(low), self.interval.clamp(high)

    def middle(self, index: int) -> float:
        """Return the value that stands for a bin."""
        low, high = self.ends(index)
        return low + (high - low) / 2


Sorting = Categories | Edges | Bins
"""A way to sort people into cells."""
