"""What people should be counted as: the one oracle for values, levels and sums, independent of the package.

It shares nothing with the source but the number of grid steps, which is written here again. Numbers are Python's
fractions instead of numpy's doubles, text has a grammar of its own instead of a regular expression, and people are
counted one by one in dictionaries. A mistake in the package therefore has no twin here.
"""

from __future__ import annotations

import math
from collections import defaultdict
from fractions import Fraction
from functools import cache

GRID = 2**20
MOST_LEVELS = 65_536
"""As many levels of ε are kept exactly; if there are more, all are rounded down."""
HALF = Fraction(1, 2)
TRUTH = {"true": 1.0, "True": 1.0, "TRUE": 1.0, "false": 0.0, "False": 0.0, "FALSE": 0.0}
INFINITIES = {sign + word for sign in ("", "+", "-") for word in ("inf", "infinity")}


def meaning(text):
    """What a text cell means: ASCII decimal notation, an infinity, true or false, between blanks; None otherwise.

    >>> [meaning(text) for text in (" 2.5 ", "1e999", "-Infinity", "1_000", "0x1F", "n/a", "", "True", "yes")]
    [2.5, inf, -inf, None, None, None, None, 1.0, None]
    """
    text = text.strip(" \t")
    if text in TRUTH:
        return TRUTH[text]
    if text.lower() in INFINITIES:
        return -math.inf if text[0] == "-" else math.inf
    if not text or set(text) - set("0123456789+-.eE"):
        return None
    try:
        return float(text)
    except ValueError:
        return None


def number(value):
    """What a cell stands for; None if it is missing, which is also what cannot be read."""
    x = meaning(value) if isinstance(value, str) else value
    return None if x is None or math.isnan(x) else x


def nearest(exact):
    """The double nearest to a fraction, as a fraction: one rounded operation of IEEE 754."""
    return Fraction(float(exact))


@cache
def code(value, bounds):
    """The grid code of a value: floor((clip(x) − lo)/(hi − lo)·GRID + ½) in doubles; the middle if it is missing.

    The rounding of each step belongs to the definition, because every engine computes in doubles and all must agree.
    So each step is exact here and then rounded once. Without the rounding a value just below a tie has another code:

    >>> below = math.nextafter(0.5, 0) / GRID
    >>> code(below, (0, 1)), math.floor(Fraction(below) * GRID + HALF)
    (1, 0)
    """
    x = number(value)
    if x is None:
        return GRID // 2
    lo, hi = map(Fraction, bounds)
    inside = nearest(Fraction(min(max(x, bounds[0]), bounds[1])) - lo)
    share = nearest(inside / nearest(hi - lo))
    return math.floor(nearest(nearest(share * GRID) + HALF))


def rounded_down(epsilon, bits=12):
    """The largest number of 12 significant bits that is not above ε; below 2⁻¹⁰⁰⁰ it is 0."""
    if epsilon < 2.0**-1000 or epsilon == math.inf:
        return math.inf if epsilon > 1 else 0.0
    step = Fraction(2) ** (math.frexp(epsilon)[1] - bits)
    return float(Fraction(epsilon) // step * step)


def expected(pairs, bounds, most_levels=MOST_LEVELS):
    """{ε: (people, sum of codes)} of pairs (value, ε), one a person; a value at ε = 0 adds nothing.

    >>> expected([(1.0, 0.5), (None, 0.5), (1.0, 0.0)], (0, 2)) == {0.5: (2, GRID), 0.0: (1, 0)}
    True
    """
    pairs = [(value, epsilon + 0.0) for value, epsilon in pairs]  # −0.0 is the level 0.0
    levels = {epsilon for _, epsilon in pairs}
    label = {epsilon: rounded_down(epsilon) if len(levels) > most_levels else epsilon for epsilon in levels}
    people, total = defaultdict(int), defaultdict(int)
    for value, epsilon in pairs:
        level = label[epsilon]
        people[level] += 1
        total[level] += code(value, bounds) if level > 0 else 0
    return {level: (people[level], total[level]) for level in people}


def expected_groups(rows, bounds):
    """{group: {ε: (people, sum)}} of rows (id, group, value, ε); a person's codes are averaged, halves up.

    The average is over the rows that have a value; who has none counts as the midpoint.

    >>> expected_groups([("a", "g", 0, 1.0), ("a", "g", 1, 1.0), ("a", "g", None, 1.0), ("b", "h", 1, 1.0)], (0, 1))
    {'g': {1.0: (1, 524288)}, 'h': {1.0: (1, 1048576)}}
    >>> expected_groups([("a", "g", 0, 1.0), ("a", "g", None, 1.0), ("b", "g", None, 1.0)], (0, 1))
    {'g': {1.0: (2, 524288)}}
    """
    codes = defaultdict(list)
    for person, group, value, epsilon in rows:
        codes[person, group, epsilon + 0.0] += [] if number(value) is None else [code(value, bounds)]
    codes = {who: mine or [GRID // 2] for who, mine in codes.items()}
    tables = defaultdict(lambda: defaultdict(lambda: (0, 0)))
    for (_, group, epsilon), mine in codes.items():
        people, total = tables[group][epsilon]
        average = math.floor(Fraction(sum(mine), len(mine)) + HALF) if epsilon > 0 else 0
        tables[group][epsilon] = people + 1, total + average
    return {group: dict(table) for group, table in tables.items()}


def seen(tally):
    """{ε: (people, sum of codes)} of a tally or its table, to be compared with what is expected."""
    table = getattr(tally, "table", tally)
    levels, people, total = (column.tolist() for column in (table.epsilon, table.count, table.total[:, 0]))
    assert levels == sorted(set(levels)), "levels must be sorted, and each there once"
    return {level: (count, codes) for level, count, codes in zip(levels, people, total, strict=True)}
