"""What spending ε means for a person, in words and numbers; and what a ledger says that people have spent and left."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from hetdp.core.domain import LONGEST, PUBLIC, epsilon_of, jsonable
from hetdp.core.types import Amount
from hetdp.errors import InputError
from hetdp.statistics.answer import label

from . import Grid, Parts, Shown, epsilon, odds, people, shorten, size, spent_epsilon

if TYPE_CHECKING:
    from hetdp.ledger import DryRun
    from hetdp.statistics.answer import Groups

_GUESSES = (0.01, 0.1, 0.5, 0.9)
_LARGEST = 709.0
"""Above this e^ε is beyond the doubles, and everything counts as certain."""


@dataclass(frozen=True)
class Explanation(Shown):
    """What ε means for one person. Every number is a limit for somebody who knows everybody else's answer, rounded up.

    They may know the method and the noise scale too. Somebody who knows less about the others may learn more from the
    result, but only what is true of people like this person, which can be learned with or without their answer.

    Attributes
    ----------
    epsilon
        What the person spends, over all releases together.
    odds
        e^ε: the odds of any guess about the person's value change by at most this factor, up or down.
    guess_from_half
        What a guess of 50 % can become at most: e^ε/(1 + e^ε). It is also how often somebody who has to tell two
        equally likely values of the person apart is right, at most.
    advantage
        (e^ε − 1)/(e^ε + 1): the hit rate of any test that looks for a value minus its rate of false alarms, at most.

    Examples
    --------
    >>> found = explain(1)
    >>> round(found.odds, 4), round(found.guess_from_half, 4), round(found.advantage, 4)
    (2.7183, 0.7311, 0.4621)
    >>> round(found.guess(0.01), 4)
    0.0267
    """

    epsilon: float
    odds: float
    guess_from_half: float
    advantage: float

    def guess(self, before: float) -> float:
        """Return what a guess of this probability can become at most: p·e^ε/(1 − p + p·e^ε), rounded up."""
        if not 0 <= before <= 1:
            raise InputError(f"a probability is between 0 and 1 (got {before:g})")
        if before in (0.0, 1.0) or self.epsilon == 0:
            return before
        if self.epsilon > _LARGEST:
            return 1.0
        times = before * math.exp(self.epsilon)
        return min(1.0, _up(times / (1 - before + times)))

    def parts(self) -> Parts:
        """Return the explanation as the parts of a report."""
        if self.epsilon == 0:
            return [[("ε = 0", "the value is not used: the result does not depend on it")]]
        if math.isinf(self.epsilon):
            return [[("ε = ∞", "the value is treated as public: it may be read off the result, nothing is protected")]]
        guesses = ", ".join(f"{p:.0%} → {_percent(self.guess(p))}" for p in _GUESSES)
        half, advantage = _percent(self.guess_from_half), _percent(self.advantage)
        lines = [
            (f"ε = {self.epsilon:g}", "the most that the result tells somebody who knows everybody else's answer"),
            ("Odds", f"the odds of any guess about the value change by a factor of at most {odds(self.epsilon)}"),
            ("Guess", f"the probability of a guess, before → at most after: {guesses}"),
            ("Pick", f"of two equally likely values, the right one is picked in at most {half} of cases"),
            ("Test", f"a test for a value has a hit rate at most {advantage} above its rate of false alarms"),
            ("Others", "what is true of people like this person can be learned with or without their answer"),
            ("Together", "releases add up: two that spend this ε each tell as much as one that spends twice this ε"),
        ]
        return [lines]

    def to_dict(self) -> dict[str, Any]:
        """Return the explanation as plain data; infinities are written "inf"."""
        guesses = [{"before": p, "after": self.guess(p)} for p in _GUESSES]
        return dict(jsonable({**asdict(self), "guesses": guesses, "text": self.report()}))


def explain(epsilon: Amount) -> Explanation:
    """Return what somebody who knows everybody else's answer can learn about a person who spends this ε, at most.

    Parameters
    ----------
    epsilon
        What the person spends: a number, or "inf".

    Returns
    -------
    Explanation
        The odds and chances, rounded up; `str` of it is a sentence.

    Examples
    --------
    >>> print(explain(0))
    ε = 0       the value is not used: the result does not depend on it
    """
    if isinstance(epsilon, str) and epsilon.strip()[:1].isalpha() and epsilon.strip().lower() not in PUBLIC:
        raise InputError(f"epsilon must be a decimal number, inf or public (got {epsilon[:LONGEST]!r}), as 0.5")
    level = epsilon_of(epsilon)
    if level == 0:
        return Explanation(0.0, 1.0, 0.5, 0.0)
    factor = _up(math.exp(level)) if level <= _LARGEST else math.inf
    half = min(1.0, _up(1 / (1 + math.exp(-level))))
    return Explanation(level, factor, half, min(1.0, _up(math.tanh(level / 2))))


def _up(x: float) -> float:
    """Return a double that is surely not too small: the functions of `math` err by an ulp or two, this adds eight."""
    return math.nextafter(x * (1 + 2.0**-49), math.inf)


def _percent(share: float) -> str:
    """Return a share in per cent, rounded up to one digit; in fractions, because it must not be rounded down.

    >>> _percent(0.7311), _percent(0.5)
    ('73.2%', '50%')
    """
    return f"{math.ceil(Fraction(share) * 1000) / 10:g}%"


# What a ledger says in a report ---------------------------------------------------------------------------------------


_HEADINGS = ("Tier", "Budget", "People", "Charged", "Spent so far", "Left", "Nothing left")
_MOST_TIERS = 24


def budgets(tiers: Sequence[Mapping[str, Any]]) -> Grid:
    """Return what the people of each tier have spent and have left after a release, as a table."""
    rows = []
    for tier in tiers[:_MOST_TIERS]:
        amounts = {name: epsilon_of(tier[name]) for name in ("budget", "charged")}  # JSON has "inf" as a text
        public = math.isinf(amounts["budget"])
        name = shorten(tier["name"] or ("public" if public else "never use" if not amounts["budget"] else ""))
        gone = tier["exhausted"] + tier["emptied"]
        left = "no limit" if public else _range(tier["left"])
        left = "exhausted" if gone and gone == tier["people"] else left
        budget, charged = epsilon(amounts["budget"]), spent_epsilon(amounts["charged"])
        rows.append((name, budget, f"{tier['people']:,}", charged, _range(tier["spent"]), left, f"{gone:,}"))
    return Grid(_HEADINGS, rows)


def _range(ends: Sequence[Any]) -> str:
    low, high = (f"{float(end):.6g}" if math.isfinite(float(end)) else "∞" for end in ends)
    return low if low == high else f"{low} to {high}"


def with_budgets(parts: Parts, ledger: Mapping[str, Any]) -> Parts:
    """Return the report on a release with its warnings first, and the budgets before what is assumed."""
    first = [*_stored(ledger), *_who(ledger), *(("Warning", sentence) for sentence in ledger["warnings"])]
    table = [budgets(ledger["tiers"])] if ledger["tiers"] else []
    more = [[("Budgets", f"{len(ledger['tiers']):,} tiers; the JSON has them all")]]
    return [
        *([first] if first else []),
        *parts[:-1],
        *table,
        *(more if len(ledger["tiers"]) > _MOST_TIERS else []),
        parts[-1],
    ]


def budget_lines(groups: Groups) -> list[tuple[str, str]]:
    """Return what a ledger says about a table of groups as a whole; nothing without a ledger."""
    charged = {label(group): r for group, r in groups.items() if r.ledger}
    if not charged:
        return []
    warned = [("Warning", f"{name}: {why}") for name, r in charged.items() for why in r.ledger["warnings"]]
    first = next(iter(charged.values()))
    said = f"each group is charged under its own id, as {first.release_id}; the JSON has what each was charged"
    gone = sum(r.ledger["used_up"] + r.ledger["frozen"] for r in charged.values())
    out = [("Exhausted", f"{people(gone)} with nothing left of their budget, weight 0")] if gone else []
    stored = _stored(first.ledger) if all(r.ledger.get("stored") for r in charged.values()) else []
    return [*stored, *_who(first.ledger), *warned, ("Ledger", said), *out]


_WHO = {
    "enrolled": "everybody who is enrolled; who has no row is missing, and counts as the line Missing says",
    "source": "enrolled people with a row alone; every share is of them, and who has a row is taken to be public",
    "listed": "the people who were listed; who of them has no row is missing, and counts as the line Missing says",
}


def _who(ledger: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return who takes part in a release through a ledger: shares and counts are of these people."""
    said = [("Taking part", _WHO[ledger["who"]])] if ledger.get("who") in _WHO else []
    return [*said, *([("Rows", ledger["rows"])] if "rows" in ledger else [])]


def _stored(ledger: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return that a ledger had a result already: whoever corrected their data would take it for a new number."""
    said = "a result of this id was there: the source was not read again, and nothing more was charged"
    return [("Stored", said)] if ledger.get("stored") else []


def group_notes(groups: Groups) -> list[str]:
    """Return what is assumed about the people of groups; what a ledger says about one of several is in the JSON."""
    times = Counter(note for r in groups.values() for note in r.notes)
    alone = len(groups) == 1
    return [note for r in groups.values() for note in r.notes if alone or not r.ledger or times[note] > 1]


def dry_run_parts(run: DryRun) -> Parts:
    """Return what a release would do."""
    said = "no value was read, nothing was charged and nothing was written"
    if run.done:
        said = "it is charged already with this request: asking again gives its result and costs nothing"
    lines = [
        ("Dry run", f"release {run.release_id}, which may use {run.rule}: {said}"),
        ("People", people(sum(plan.n for plan in run.plans.values()))),
    ]
    for i, (group, plan) in enumerate(list(run.plans.items())[:_MOST_TIERS]):
        name = f"{label(group)}: " if group else ""
        error = "too few people or too little ε, no data would be used"
        if not plan.abstains:
            error = f"root mean square ± {size(plan.worst_case_error)} in the worst case"
        if not plan.abstains and (answered := plan.facts.answered_errors) is not None:
            parts = [f"± {size(e['error'])} if {e['answered']:.0%} answer" for e in answered]
            error = f"root mean square about {', '.join(parts)}, at worst"
        lines.append(("" if i else "Error", f"{name}{error}"))
    return [[*lines, *(("Warning", sentence) for sentence in run.warnings)], budgets(run.tiers)]
