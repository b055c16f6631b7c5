"""Quantiles: the value below which a given share of people lies, chosen among many bins by weighted ranks."""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, Any, ClassVar

from hetdp.core.accuracy import check_level
from hetdp.core.cells import Bins
from hetdp.core.domain import Interval, plural
from hetdp.errors import InputError
from hetdp.privacy.exact import Choice
from hetdp.report import Figure

from .statistic import CLAMPED, Answer, Counted

if TYPE_CHECKING:
    from hetdp.core.plan import Plan

_MOST = 64
_BOUNDS = "The public interval of the values; others are clamped."
WITHIN = "Also give intervals in units of the values at this level; they are two more quantiles each and share the ε."


@dataclass(frozen=True)
class Ranks(Counted):
    """One or several quantiles. A person is in one bin, so they move every score by at most W.

    The score of a bin is minus the weight by which the wanted rank misses it: with L the weight below the bin and E the
    weight in it, −max(0, L − τ, τ − L − E), τ = ⌊q·ΣW⌋. Moving one person changes L and L + E by at most W each. A bin
    that holds the wanted rank has score 0, so one value that many people share is found.

    With missing="estimate" the ranks are among those who answered: a last cell has the others, and τ = ⌊q·R⌋ with R the
    weight that answered. A person who moves, answers or stops answering changes L − q·R and L + E − q·R by W times a
    number in [−q, 1 − q] before and after, so by at most W (docs/proofs/family.md).

    The ends of an interval may be wanted at a rank below 0 or above R, if few answered. So they are chosen among the
    bins and two more places: below all bins, with L + E = 0 and no limit downwards, and above them, with L = R and none
    upwards. Some place always holds the wanted rank.
    """

    q: Any = field(default=0.5, metadata={"help": "Which quantiles, as 0.1,0.5,0.9.", "metavar": "Q"})
    bounds: Any = field(default=None, metadata={"help": _BOUNDS, "needed": True})
    bins: int = field(default=4096, metadata={"help": "How many bins of one width.", "metavar": "N"})
    within: float | None = field(default=None, metadata={"help": WITHIN, "metavar": "LEVEL"})

    name: ClassVar[str] = "quantile"
    title: ClassVar[str] = "Private quantiles"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.bounds is None:
            raise InputError("quantiles need the public interval of the values: bounds=(lo, hi)")
        listed = self.q if isinstance(self.q, Iterable) else [self.q]
        if isinstance(self.q, str) or not all(isinstance(q, numbers.Real) and 0 < float(q) < 1 for q in listed):
            raise InputError(
                f"a quantile is between 0 and 1, as 0.25 for the lower quarter; or a list (got {self.q!r})"
            )
        asked = tuple(map(float, self.q if isinstance(self.q, Iterable) else [self.q]))
        if not 0 < len(asked) <= _MOST or len(set(asked)) < len(asked):
            raise InputError(f"ask for 1 to {_MOST} different quantiles (got {len(asked)})")
        object.__setattr__(self, "q", asked)
        object.__setattr__(self, "bounds", Interval.of(self.bounds))
        self.refuse_outside(self.bounds)
        _ = self.sorting  # refuses a wrong number of bins
        if self.within is not None and not (isinstance(self.within, numbers.Real) and 0 < self.within < 1):
            raise InputError(f"the level of the intervals must be between 0 and 1 (got {self.within!r}); 0.95 is usual")

    @property
    def interval(self) -> Interval:
        """The public interval of the values."""
        return self.bounds  # type: ignore[no-any-return]  # since __post_init__

    @cached_property
    def sorting(self) -> Bins:
        """The bins."""
        return Bins(self.interval, self.bins)

    @property
    def geometry(self) -> Choice:
        """A choice for every quantile, and two more for its interval if that is asked for."""
        return Choice(len(self.q) * (1 if self.within is None else 3), len(self.q))

    @property
    def variance(self) -> float:
        """The variance of one person's being below the quantile, added up over the quantiles."""
        return float(sum(q * (1 - q) for q in self.q))

    @property
    def rho(self) -> float:
        """ρ: every choice costs 2W, those that make intervals too."""
        return self.geometry.noise * (2.0 * self.geometry.picks) ** 2 / self.variance

    @property
    def idle(self) -> float:
        """An answer without data can be off by the whole rank above or below."""
        return float(sum(max(q, 1 - q) ** 2 for q in self.q))

    def ranks(self, plan: Plan) -> list[float]:
        """Return the rank of every choice: the quantiles, then the lower and the upper ends of their intervals."""
        if self.within is None:
            return list(self.q)
        away = rank_radius(plan, self.within)
        return [*self.q, *(max(q - away, 0.0) for q in self.q), *(min(q + away, 1.0) for q in self.q)]

    def scores(self, weights: Sequence[int], pick: int, plan: Plan) -> list[int]:
        """Return minus the weight by which each bin misses the rank."""
        weights = weights[: self.bins]
        above = list(accumulate(weights))
        (up, down), (q_up, q_down) = (
            rank.as_integer_ratio() for rank in (self.ranks(plan)[pick], self.q[pick % len(self.q)])
        )
        # the ends of an interval are so many of all people away, of whom some may not have answered
        away = up * plan.total // down - q_up * plan.total // q_down
        wanted = q_up * above[-1] // q_down + away
        beyond = [-max(0, wanted), -max(0, above[-1] - wanted)] if pick >= len(self.q) else []
        pairs = zip(above, weights, strict=True)
        return [*(-max(0, upto - weight - wanted, wanted - upto) for upto, weight in pairs), *beyond]

    @property
    def nothing(self) -> tuple[float, ...]:
        """The bins at the quantiles of evenly spread values, and the whole interval."""
        middle = tuple(float(math.floor(q * self.bins)) for q in self.q)
        ends = () if self.within is None else (*[0.0] * len(self.q), *[self.bins - 1.0] * len(self.q))
        return *middle, *ends

    def answer(self, plan: Plan, numbers: Sequence[float], notes: Sequence[str] = ()) -> Quantiles:
        """Return the values of the bins."""
        return Quantiles(plan, tuple(numbers), tuple(notes))

    @property
    def setting(self) -> str:
        """The interval and the bins."""
        return f"{self.interval.words} {self.interval}, {plural(self.bins, 'bin')}"

    @property
    def estimated(self) -> str:
        """What is estimated."""
        who = ", among those who answered" if self.missing in ("estimate", "drop") else ""
        return (
            f"The quantiles are those of the distribution from which these people are drawn independently{who}, to "
            f"within one bin. {CLAMPED}"
        )


CELL = "Grid cell"
"""How the bin is called in which a quantile lies: beside an estimate, "bin" was taken for its interval."""


@dataclass(frozen=True, eq=False, repr=False)
class Quantiles(Answer):
    """Quantiles by their share. Of a single one `float()` and `estimate` give the value.

    Attributes
    ----------
    values, estimate
        {q: value}, of which `found[0.5]` is one; the value, where one quantile was asked for.
    plan, numbers, notes, release_id, ledger, about
        As for `Answer`.
    """

    heading: ClassVar[str] = "Quantile"

    @property
    def between(self) -> str:  # type: ignore[override]  # it depends on what was asked
        """What stands beside an estimate: its interval if that was asked for, else the bin that was chosen."""
        return CELL if self.statistic.within is None else f"{100 * self.statistic.within:.4g}% interval"

    @property
    def holds(self) -> str:  # type: ignore[override]  # it depends on what was asked
        """What is guaranteed."""
        ranks = "the ranks beside a value say how far off its rank can be, all at once"
        if self.statistic.keeps_missing:
            ranks += ", if everybody answered; if only half did, they are twice as uncertain"
        if self.statistic.within is None:
            return f"{ranks}; for intervals in units of the values add within=0.95 (--within 0.95)"
        return f"{ranks}; the {self.between}s hold all at once too"

    @property
    def statistic(self) -> Ranks:
        """What was asked."""
        return self.plan.statistic  # type: ignore[return-value]  # it answers no other

    @property
    def values(self) -> dict[float, float]:
        """{q: value}."""
        asked = self.statistic
        return {q: asked.sorting.middle(int(at)) for q, at in zip(asked.q, self.numbers, strict=False)}

    @property
    def estimate(self) -> float:
        """The value, where one quantile was asked for."""
        if len(self.statistic.q) != 1:
            raise InputError("several quantiles were asked for; take them from `.values`")
        return self.values[self.statistic.q[0]]

    def ranks(self, level: float = 0.95) -> dict[float, tuple[float, float]]:
        """Return between which ranks each value lies, with this probability for all of them at once.

        Where only some answered, distances are shares of all people: of a share r who did, they are 1/r times as wide.

        Returns
        -------
        dict[float, tuple[float, float]]
            {q: (lowest rank, highest rank)}.
        """
        check_level(level)
        away = rank_radius(self.plan, level)
        return {q: (max(q - away, 0.0), min(q + away, 1.0)) for q in self.statistic.q}

    def confidence_interval(self, level: float | None = None) -> dict[float, tuple[float, float]]:
        """Return an interval for each quantile, in units of the values; all hold at once.

        It is there only if it was asked for, with `within=0.95`: it is made of two more private quantiles, and so it
        has that level and no other. `ranks` costs nothing more.

        Returns
        -------
        dict[float, tuple[float, float]]
            {q: (low, high)}.
        """
        asked, m = self.statistic, len(self.statistic.q)
        if asked.within is not None and level not in (None, asked.within):
            raise InputError(f"these intervals were released at the level {asked.within:g} and have no other")
        if asked.within is None:
            raise InputError(
                "an interval in units of the values is made of two more private quantiles; ask for it with the "
                "release: within=0.95 (`ranks(level)` says between which ranks the values lie, for any level)"
            )
        ends, radius = asked.sorting.ends, rank_radius(self.plan, asked.within)
        found = {}
        for i, q in enumerate(asked.q):
            first, last = (int(self.numbers[place * m + i]) for place in (1, 2))
            low = asked.interval.lo if q <= radius or first >= asked.bins else ends(first)[0]
            high = asked.interval.hi if q + radius >= 1 or last >= asked.bins else ends(last)[1]
            found[q] = min(low, self.values[q]), max(high, self.values[q])
        return found

    def figures(self, level: float = 0.95) -> list[Figure]:
        """Return the values, with their ranks; the interval is that of the units if there is one, else the bin."""
        asked, found = self.statistic, []
        between = None if asked.within is None else self.confidence_interval()
        for (q, rank), at in zip(self.ranks(level).items(), self.numbers, strict=False):
            bin_ends = asked.sorting.ends(int(at))
            ends = bin_ends if between is None else between[q]
            about = {"q": q, "rank": list(rank), "within": asked.within}
            room = 1.0 if between is None else asked.interval.width
            found.append(Figure(f"{q:g}", self.values[q], *ends, bin_ends[1] - bin_ends[0], about, room=room))
        return found

    def facts(self, level: float) -> dict[str, Any]:
        """Return what the JSON says first; the bin of a value is not its interval."""
        found = super().facts(level)
        for row in found["results"] if self.statistic.within is None else ():
            row["bin"] = row.pop("interval")
        if self.statistic.keeps_missing:
            found["rank_holds"] = "if everybody answered; among a share r who did it is 1/r times as wide"
        return found

    def __float__(self) -> float:
        return self.estimate

    def __iter__(self) -> Iterator[float]:
        return iter(self.values)

    def __getitem__(self, q: float) -> float:
        return self.values[q]


def rank_radius(plan: Plan, level: float) -> float:
    """Return r: with this probability every chosen bin holds values of ranks within r of what was asked for.

    Claim: F(least value of the bin) ≤ q + r and F(greatest) ≥ q − r, for every distribution and every n.

    Argument. Say m choices and α = (1 − level)/m for each. A chosen bin misses the rank τ by at most
    s·ln(2K/α) in weight with probability 1 − α/2 (`privacy.exact.Choice`). If F at the upper end of the bin were below
    q − r, that end would not be above the last end x with F(x) < q − r, which the data do not choose; there the
    weighted share is at most F(x) + √(A·ln(4/α)/2) but for a probability of α/4 (Hoeffding). The other side alike.
    """
    asked = plan.statistic
    alpha = (1 - level) / asked.geometry.numbers
    scale = plan.errors.scales[0] if plan.errors.scales else 0.0
    sampling = math.sqrt(plan.errors.ranges * math.log(4 / alpha) / 2)
    places = asked.cells + 2  # those beyond the bins, for the ends of an interval
    return 1.0 if plan.abstains else sampling + scale * math.log(2 * places / alpha) + 2 / max(plan.total, 1)
