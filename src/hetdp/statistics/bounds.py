"""Bounds nobody knows: two private quantiles on a public grid say where to clip, and what they cost is not forgotten.

`Range` is the statistic and `Bounds` its answer. Whatever is computed with a `Bounds` is planned with the ε that it
leaves: its interval is a `PrivateInterval`, which statistics carry along, `hetdp.plan` looks for, and `settle` counts
before anything is drawn. docs/proofs/bounds.md has the proofs.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from fractions import Fraction
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from hetdp.core.cells import Edges
from hetdp.core.domain import Floats, Interval
from hetdp.core.levels import Levels, saturation
from hetdp.errors import InputError, PrivacyError
from hetdp.privacy.exact import Choice, NoiseTerm, check_together
from hetdp.report import Figure

from .statistic import Answer, Counted, Statistic

if TYPE_CHECKING:
    from hetdp.core.plan import Plan

OUTER = {"help": "Wide public bounds that surely hold: nobody has to know more.", "metavar": "LO HI", "needed": True}
MANY_ALIKE = (
    "a fifth of the people or more seem to have a value of about {0}. If about three quarters or more have, most other "
    "values may lie beyond these bounds, which are then anything between {0} and them, and the number is far too near "
    "to {0}. Publish with it how many have another value (a proportion or a histogram), or give public bounds."
)
USE = "do not type these into --bounds, which forgets what they spent: hetdp mean --outer …, in Python bounds=found"
MOST_SHARE = 0.3
"""The largest share of everybody's ε that is spent on bounds unless the caller names another."""

_OCTAVES, _POINTS, _LINEAR = 30, 16, 128
_FIFTH = 5  # the quantiles are one fifth and four fifths
_MISS = 0.2  # a choice may miss its rank by this share of people, …
_RARELY = 1000  # … but for one time in a thousand
_FEWEST = 150  # people of equal weight whose own ranks are within a tenth, as rarely
_LEAST_WIDENING = 3.0


def grid_of(outer: Interval) -> tuple[float, ...]:
    """Return the public points between which quantiles are looked for: the ends of the cells, from lo to hi.

    Distances from the point a of the interval that is nearest to 0 fall by octaves, with points in even steps inside
    each; and even steps over the whole interval come to them. So a cell has about 6 % of its distance from a (12 % if
    the interval lies on both sides of 0) and at most about a 100th of the interval, down to a distance of 2⁻³⁰ of it.
    Only sums and products of doubles are used, so the grid is the same on every machine.

    >>> grid = grid_of(Interval(0, 1e9))
    >>> len(grid) < 700, grid[0], grid[-1]
    (True, 0.0, 1000000000.0)
    """
    anchor = outer.clamp(0.0)
    sides = [(sign, far) for sign, far in ((1, outer.hi - anchor), (-1, anchor - outer.lo)) if far > 0]
    points = {anchor, *(outer.lo + outer.width * (i / _LINEAR) for i in range(1, _LINEAR))}
    steps = _POINTS // len(sides)
    for sign, far in sides:
        top = math.frexp(far)[1] - 1
        octaves = (math.ldexp(1 + k / steps, top - j) for j in range(_OCTAVES) for k in range(steps))
        points.update(anchor + sign * distance for distance in octaves)
    kept = [outer.lo]
    for point in sorted(points):
        if kept[-1] < point < outer.hi and point - kept[-1] > abs(point - anchor) / 128:  # no two that nearly meet
            kept.append(point)
    return (*kept, outer.hi)


@dataclass(frozen=True)
class Range(Counted):
    """Where to clip: from the quantiles at one and four fifths of those who answered, widened, within outer bounds.

    A person is in one cell of a public grid, or in the last one if their value is missing; values beyond the outer
    bounds count at the nearer end. The score of a cell is as for a quantile, with τ the wanted share of the weight that
    *answered*. Replacing a person of weight W moves the weight below a cell, the weight up to it and τ by at most W
    each, and in one direction, so every score by at most W.

    ρ weighs a choice by how far it misses one time in a thousand, E₀ = 2·ln(1000·cells), not by its mean square: a
    wrong range spoils everything that is computed with it.
    """

    outer: Any = field(default=None, metadata=OUTER)

    asks_missing: ClassVar[bool] = False
    can_drop: ClassVar[bool] = True
    name: ClassVar[str] = "bounds"
    title: ClassVar[str] = "Private bounds"
    geometry: ClassVar[Choice] = Choice(2, 2)
    variance: ClassVar[float] = 0.32
    """The variance of one person's being below each quantile, added up."""
    idle: ClassVar[float] = 1.28
    """An answer without data can be off by the whole rank."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.outer is None:
            raise InputError("private bounds need wide public ones: outer=(lo, hi), which surely hold every value")
        if isinstance(Interval.of(self.outer), PrivateInterval):
            raise InputError("the outer bounds are public ones, (lo, hi), not bounds that were found from the values")
        object.__setattr__(self, "outer", Interval.of(self.outer))

    @property
    def interval(self) -> Interval:
        """The outer bounds."""
        return self.outer  # type: ignore[no-any-return]  # since __post_init__

    @cached_property
    def grid(self) -> tuple[float, ...]:
        """The public points of the grid."""
        return grid_of(self.interval)

    @cached_property
    def sorting(self) -> Edges:
        """The cells between neighbouring points; the first and the last take what lies beyond the outer bounds."""
        return Edges((-math.inf, *self.grid[1:-1], math.inf))

    @property
    def rare_error(self) -> float:
        """E₀ = 2·ln(1000·K): what a choice among K cells misses by at most but for 1/1000, where it may spend 1."""
        return 2 * math.log(_RARELY * (self.cells - 1))

    @property
    def rho(self) -> float:
        """ρ = E₀²/(α(1 − α)) for each half of ε, so 4 times that."""
        return 4 * self.rare_error**2 / 0.16

    def useless(self, plan: Plan) -> bool:
        """Say whether a choice misses its rank by more than a fifth of all people too often: then nothing is spent.

        It is a public rule: Σw < 5E₀ with w what each choice may spend (a plan has Σw = 2·total/scale), or so few
        people bear the weight that their own quantiles say little about the others'.
        """
        noisy = bool(plan.noise) and 2 * plan.total / plan.noise[0].scale < self.rare_error / _MISS
        return noisy or plan.errors.spread * _FEWEST > 1 + 1e-9  # exactly so many are enough

    def scores(self, weights: Sequence[int], pick: int, plan: Plan) -> list[int]:  # noqa: ARG002  the plan is not needed
        """Return minus the weight by which each cell misses the rank among those who answered."""
        *answered, _ = weights
        above = list(accumulate(answered))
        wanted = (4 * above[-1] if pick else above[-1]) // _FIFTH
        pairs = zip(above, answered, strict=True)
        return [-max(0, upto - weight - wanted, wanted - upto) for upto, weight in pairs]

    @property
    def nothing(self) -> tuple[float, ...]:
        """The first cell and the last: the outer bounds."""
        return 0.0, self.cells - 2.0

    def answer(self, plan: Plan, numbers: Sequence[float], notes: Sequence[str] = ()) -> Bounds:
        """Return the bounds."""
        return Bounds(plan, tuple(numbers), tuple(notes))

    @property
    def setting(self) -> str:
        """The outer bounds and the grid."""
        return f"values within the outer bounds {self.interval}, {self.cells - 1:,} cells"

    @property
    def estimated(self) -> str:
        """What is found."""
        return (
            "The quantiles are those of the people who answered: a missing value counts nowhere, one beyond the outer "
            "bounds counts as the nearer one. What is computed with these bounds is about values clipped to them."
        )


@dataclass(frozen=True, eq=False, repr=False)
class Bounds(Answer):
    """Bounds that were found privately. Pass this object itself on, as `mean(…, bounds=found)`.

    It knows what it spent: whatever uses it is planned with the share of everybody's ε that is left, is refused for
    other people, and is counted, so that all uses together stay within everybody's ε. A bare pair (lower, upper) would
    forget that. Several statistics under what is left are asked for with `hetdp.ask`.

    Attributes
    ----------
    left
        The share of everybody's ε that is left, if it is not 1 minus that of the plan: 0 where others used it.
    uses
        The plans that everybody's ε was spent on, the first that of these bounds; None ends it: nothing may follow.
    """

    left: float | None = None
    uses: list[Plan | None] = field(default_factory=list)

    heading: ClassVar[str] = "Bound"
    between: ClassVar[str] = "Quantile in"
    holds: ClassVar[str] = ""
    apart: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not self.uses:
            self.uses.append(self.plan)

    def __deepcopy__(self, _: Any) -> Bounds:
        """Return the object itself: a copy would forget later uses."""
        return self

    def __reduce__(self) -> Any:
        """Refuse to be pickled: a copy elsewhere would spend what is left once more."""
        raise InputError("private bounds know what they may still spend, so they cannot be copied to another process")

    @property
    def statistic(self) -> Range:
        """What was asked."""
        return self.plan.statistic  # type: ignore[return-value]  # it answers no other

    @property
    def levels(self) -> Levels:
        """The people of whom these bounds are."""
        return self.plan.levels

    @property
    def share_left(self) -> float:
        """The share of everybody's ε that is left; with what was spent it is at most 1, exactly."""
        return left_of([self.plan.share]) if self.left is None else self.left

    @property
    def cells(self) -> tuple[int, int]:
        """The cells of the two quantiles, the lower one first: noise can exchange them."""
        one, other = sorted(int(number) for number in self.numbers)
        return one, other

    @property
    def quantiles(self) -> tuple[float, float]:
        """The lower end of the first cell and the upper end of the second; they always differ."""
        first, second = self.cells
        return self.statistic.grid[first], self.statistic.grid[second + 1]

    @property
    def widening(self) -> float:
        """c: the bounds are c times the distance of the quantiles further out."""
        return widening(self.levels)

    @cached_property
    def interval(self) -> PrivateInterval:
        """The bounds, [q₂₀ − cΔ, q₈₀ + cΔ] within the outer ones, as statistics take them.

        They are rounded outwards to three digits of their distance: nobody reads more.
        """
        (low, high), outer = self.quantiles, self.statistic.interval
        away = self.widening * (high - low)
        step = Decimal(1).scaleb(math.floor(math.log10(outer.clamp(high + away) - outer.clamp(low - away))) - 2)
        ends = ((low - away, ROUND_FLOOR), (high + away, ROUND_CEILING))
        down, up = (outer.clamp(float((Decimal(x) / step).to_integral_value(way) * step)) for x, way in ends)
        return PrivateInterval(down, up, self)

    @property
    def lower(self) -> float:
        """The lower bound."""
        return self.interval.lo

    @property
    def upper(self) -> float:
        """The upper bound."""
        return self.interval.hi

    def figures(self, level: float = 0.95) -> list[Figure]:  # noqa: ARG002  a cell has no level
        """Return the two bounds, each with the cell of the quantile that it comes from."""
        grid, found = self.statistic.grid, []
        for label, bound, cell, q in zip(
            ("lower", "upper"), (self.lower, self.upper), self.cells, (0.2, 0.8), strict=True
        ):
            low, high = grid[cell], grid[cell + 1]
            found.append(Figure(label, bound, low, high, high - low, {"q": q}, room=math.inf))  # a choice
        return found

    def facts(self, level: float) -> dict[str, Any]:
        """Return what the JSON says first; the cell of a quantile is no interval."""
        found = super().facts(level)
        for row in found["results"]:
            row["cell"] = row.pop("interval")
        more = {"share_left": self.share_left, "widening": self.widening, "one_cell": self.one_cell}
        more["at_zero"] = self.at_zero
        return {"lower": self.lower, "upper": self.upper, **found, **more}

    @property
    def one_cell(self) -> bool:
        """Whether both quantiles are in one cell, so that most people are in it."""
        return self.cells[0] == self.cells[1] and not self.plan.abstains

    @property
    def at_zero(self) -> bool:
        """Whether one of the quantiles is in a cell beside 0, where the grid is finest (0, or the end next to it).

        Then many people have exactly that value. If nearly four fifths do, all cells up to the next value miss the
        wanted rank by about the same: the other bound is anything in between, which nothing in it shows.
        """
        grid, anchor = self.statistic.grid, self.statistic.interval.clamp(0.0)
        return not self.plan.abstains and any(anchor in (grid[cell], grid[cell + 1]) for cell in self.cells)

    @property
    def warnings(self) -> tuple[str, ...]:
        """That other values may lie beyond these bounds, if many people have one value."""
        return (MANY_ALIKE.format(f"{self.statistic.interval.clamp(0.0):,.6g}"),) if self.at_zero else ()

    @property
    def remarks(self) -> list[tuple[str, str]]:
        """What is special about these bounds."""
        ends = f"[{self.lower:,.6g}, {self.upper:,.6g}]"
        lines = [("Bounds", f"{ends}: the quantiles, and {self.widening:.3g} times their distance to both sides")]
        lines.append(
            ("", "Quantile in: the cells of the grid that hold the quantiles at 1/5 and 4/5 of those who answered")
        )
        if self.one_cell:
            most = "both quantiles are in one cell, so most people are: whoever has other values is clipped to about it"
            lines.append(("Note", f"{most}, and a mean says little about them"))
        lines += [("Warning", said) for said in self.warnings]
        if self.share_left > 0:
            lines.append(("Left", f"{self.share_left:.4g} of everybody's ε, for what is computed with these bounds"))
        if not self.release_id:  # a ledger knows what was spent
            lines.append(("Use", USE))
        return lines


@dataclass(frozen=True)
class PrivateInterval(Interval):
    """Bounds that were found privately, and where they come from. It never equals an interval that was known.

    Attributes
    ----------
    charged
        Whether a ledger has charged them and charges what uses them: it knows what is left, and no share is taken off.
    """

    origin: Bounds = field(compare=False, repr=False)
    charged: bool = field(default=False, compare=False, repr=False)
    words: ClassVar[str] = "values clipped to"

    @property
    def found(self) -> str:
        """How they were found and paid for."""
        if self.charged:
            return f"in release {self.origin.release_id} of the ledger"
        return f"with a share of {self.origin.plan.share:.4g} of everybody's ε"

    def sentence(self, ends: Interval) -> str:
        """Return what it means for a result of values that are clipped to these ends."""
        return (
            f"Estimate, error and interval are for values clipped to {ends}, not for the values themselves: what lies "
            f"beyond counts as the nearer bound. These bounds were found privately, {self.found}. The interval is "
            "proved for bounds that do not depend on the values; for bounds from the same people it was simulated."
        )


# What is left for whatever uses private bounds ----------------------------------------------------------------------


def private_intervals(statistic: Statistic) -> list[PrivateInterval]:
    """Return the private bounds in a statistic, one for each `Bounds`, but those for which a ledger answers."""
    return list({id(ends.origin): ends for ends in statistic.private_bounds if not ends.charged}.values())


def origins_of(statistics: Sequence[Statistic]) -> list[Bounds]:
    """Return every `Bounds` that one of these statistics uses, once."""
    found = [ends.origin for statistic in statistics for ends in private_intervals(statistic)]
    return list({id(origin): origin for origin in found}.values())


def left_of(shares: Sequence[float | Fraction]) -> float:
    """Return 1 minus these shares, rounded down to a double; 0 if nothing is left.

    >>> left_of([0.3]), Fraction(left_of([0.1])) + Fraction(0.1) <= 1
    (0.7, True)
    """
    exact = max(1 - sum((Fraction(share) for share in shares), Fraction(0)), Fraction(0))
    nearest = float(exact)
    return nearest if Fraction(nearest) <= exact else math.nextafter(nearest, 0.0)


def share_left(statistics: Sequence[Statistic]) -> float:
    """Return the share of ε that statistics together may use; less than 1 if they use private bounds.

    Bounds of two columns were both paid for by the same people.
    """
    origins = origins_of(statistics)
    if not origins:
        return 1.0
    left = left_of([1 - Fraction(origin.share_left) for origin in origins])
    if not left > 0:
        raise InputError(
            "nothing is left of these people's ε for what would be computed with these private bounds; find them with "
            "hetdp.bounds_for, or ask the ledger that charged them"
        )
    return left


_SETTLING = threading.Lock()


def settle(groups: Sequence[Sequence[Plan]]) -> None:
    """Raise unless releases and the private bounds that they use together respect everybody's ε; then count them.

    Claim: what is spent on a `Bounds` and on all releases that use it adds up to at most ε⁻ for everybody, in exact
    fractions. It is called before anything is drawn, and what was counted stays counted if the drawing fails.

    Parameters
    ----------
    groups
        The plans of each group of people, all of a group for the same people. Several groups have no person in common
        and together are the people of the bounds, which are used up afterwards.
    """
    plans = [plan for some in groups for plan in some]
    origins = origins_of([plan.statistic for plan in plans])
    if any(ends.charged for plan in plans for ends in plan.statistic.private_bounds):
        raise InputError("a ledger found these private bounds and keeps their books; ask it for what uses them")
    if not origins:
        return
    with _SETTLING:
        together = _merged([some[0].levels for some in groups]) if len(groups) > 1 else plans[0].levels
        alike = all(some[0].levels == plan.levels for some in groups for plan in some)
        if not alike or any(origin.levels != together for origin in origins):
            raise InputError(
                "these private bounds were found for other people: the levels of ε, or how many people have each, "
                "differ; find the bounds again for these people, or give public bounds (lo, hi)"
            )
        before = list({id(used): used for origin in origins for used in origin.uses}.values())
        if not _fits([used for used in before if used is not None], groups) or None in before:
            raise InputError(
                "these private bounds were used already, and another use would spend more than somebody allows; ask "
                "for several statistics at once with hetdp.ask, or keep a ledger"
            )
        for origin in origins:
            origin.uses.extend(plans if len(groups) == 1 else [None])


def _fits(before: Sequence[Plan], groups: Sequence[Sequence[Plan]]) -> bool:
    """Say whether the plans of each group, all together, fit into what the plans before leave of its people's ε."""
    try:
        for some in groups:
            levels = some[0].levels
            parts = [_part(used, levels) if len(groups) > 1 else (used.costs, used.noise) for used in before]
            check_together([*parts, *(part for plan in some for part in plan.parts)], levels.epsilon)
    except PrivacyError:
        return False
    return True


def _merged(levels: Sequence[Levels]) -> Levels:
    """Return the levels of several groups of people together; a group may be empty."""
    epsilon, count = (np.concatenate([getattr(each, name) for each in levels]) for name in ("epsilon", "count"))
    there = count > 0
    return Levels.from_arrays(epsilon[there], count[there], rounded=levels[0].rounded, wide=levels[0].wide)


def _part(used: Plan, levels: Levels) -> tuple[Any, tuple[NoiseTerm, ...]]:
    """Return the costs of a plan at some of its levels, and its noise there."""
    place = np.minimum(np.searchsorted(used.levels.epsilon, levels.epsilon), len(used.levels) - 1)
    scale = np.zeros(len(used.levels))
    for term in used.noise:
        scale[term.first : term.last] = term.scale
    noise = (NoiseTerm(float(s), i, i + 1) for i, s in enumerate(scale[place].tolist()) if s)
    return np.where(levels.count > 0, used.costs[place], 0), tuple(noise)


def spent_in_all(plans: Sequence[Plan]) -> list[float]:
    """Return what a person of each level spends on releases and, once, on private bounds that they use; rounded up.

    The exact sum is not above ε, as `settle` sees before anything is drawn. Bounds that a ledger charged are in its
    books.
    """
    parts = [*(plan.spent for plan in plans), *spent_on_bounds(plans)]
    rows = zip(plans[0].levels.epsilon.tolist(), *(part.tolist() for part in parts), strict=True)
    return [min(math.nextafter(math.fsum(each), math.inf), e) if any(each) else 0.0 for e, *each in rows]


def spent_on_bounds(plans: Sequence[Plan]) -> list[Floats]:
    """Return what a person of each level has spent on each of the private bounds that releases use."""
    epsilon, found = plans[0].levels.epsilon, []
    for origin in origins_of([plan.statistic for plan in plans]):
        place = np.minimum(np.searchsorted(origin.levels.epsilon, epsilon), len(origin.levels) - 1)
        known = origin.levels.epsilon[place] == epsilon  # else it is planned for others, and is not to be released
        found.append(np.where(known, origin.plan.spent[place], origin.plan.share * epsilon))
    return found


# How far out, and whether there are people enough --------------------------------------------------------------------


def widening(levels: Levels) -> float:
    """Return c = max(3, ½·ln Σmin(ε, t, 1)): the less noise a mean has, the further out it may be clipped.

    t is the saturation of a mean. Beyond ε = 1 sampling decides, not noise; so public people count as 1.
    """
    t = saturation(levels.epsilon, levels.count, rho=8.0)
    spent = float(np.sum(levels.count * np.minimum(levels.epsilon, min(t, 1.0))))
    return max(_LEAST_WIDENING, math.log(max(spent, 1.0)) / 2)
