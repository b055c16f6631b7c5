"""What an onlooker can learn about a person who spends ε, in words and numbers."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any

from hetdp.core.domain import epsilon_of, jsonable
from hetdp.core.types import Amount
from hetdp.errors import InputError

from .numbers import odds
from .text import Parts, text

_GUESSES = (0.01, 0.1, 0.5, 0.9)
_LARGEST = 709.0
"""Above this e^ε is beyond the doubles, and everything counts as certain."""


@dataclass(frozen=True)
class Explanation:
    """What ε means for one person. Every number is a limit that no onlooker can pass, rounded up.

    Whoever looks at the result may know everything else: the values of all other people, the method, the noise scale.

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
            return [[("ε = 0", "the value is not used: whatever it is, nothing can be learned about it")]]
        if math.isinf(self.epsilon):
            return [[("ε = ∞", "the value is treated as public: it may be read off the result, nothing is protected")]]
        guesses = ", ".join(f"{p:.0%} → {_percent(self.guess(p))}" for p in _GUESSES)
        half, advantage = _percent(self.guess_from_half), _percent(self.advantage)
        lines = [
            (f"ε = {self.epsilon:g}", "the most that the result tells about one person, whatever is known already"),
            ("Odds", f"the odds of any guess about the value change by a factor of at most {odds(self.epsilon)}"),
            ("Guess", f"the probability of a guess, before → at most after: {guesses}"),
            ("Pick", f"of two equally likely values, the right one is picked in at most {half} of cases"),
            ("Test", f"a test for a value has a hit rate at most {advantage} above its rate of false alarms"),
            ("Together", "releases add up: two that spend this ε each tell as much as one that spends twice this ε"),
        ]
        return [lines]

    def report(self) -> str:
        """Return the explanation as text."""
        return text(self.parts())

    def _repr_html_(self) -> str:
        from .page import to_html

        return to_html(self.parts())

    def to_dict(self) -> dict[str, Any]:
        """Return the explanation as plain data; infinities are written "inf"."""
        guesses = [{"before": p, "after": self.guess(p)} for p in _GUESSES]
        return dict(jsonable({**asdict(self), "guesses": guesses, "text": self.report()}))

    __str__ = report


def explain(epsilon: Amount) -> Explanation:
    """Return what an onlooker can learn at most about a person who spends this ε, in words and numbers.

    >>> print(explain(0))
    ε = 0       the value is not used: whatever it is, nothing can be learned about it
    """
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
