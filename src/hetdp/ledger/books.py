"""The books of a ledger in exact integers: amounts of privacy, events in a hash chain, and what they add up to.

Amounts are whole units of 10⁻⁹ ε: budgets rounded down, spends rounded up.

Claim. Let `left` be what a person has left, in units, and ε = `level(left)`, the largest double not above left·10⁻⁹.
A plan made with ε charges this person, by `charges`, at most `left`.

Argument. The exact check of `privacy.exact` gives C/s ≤ ε⁻ for the noise scale s and how far one person can move the
noisy sum, C = cost(W) (for a mean the integer weight W itself), and ε⁻ < ε ≤ left·10⁻⁹. So 10⁹·C/s < left, and as
`left` is whole, ⌈10⁹·C/s⌉ ≤ left. Both steps are decided in integers: a double is an exact quotient of two integers.
If the variance is learned too, C/s stands for the sum over both draws, of which `check_together` says the same.

Whoever changes, removes or reorders an event changes every hash after it, so the last hash, the head, stands for the
whole history. A chain does not keep somebody who can write to the database from making a new one, and an old copy of a
ledger has forgotten charges: using it would overspend. So the head is also kept in a file, see `store`.

Columns of numbers in an event are lists while they are short. A charge of a thousand cohorts has six thousand numbers,
and in digits these took longer than the charge itself. So a long column is one text: how a number is kept, `f8`
(IEEE 754) or `u1`, `u2`, `u4`, `u8` (unsigned, of so many bytes), a colon, and base64 of the numbers, little-endian.
"""

from __future__ import annotations

import binascii
import decimal
import hashlib
import json
import math
import numbers
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from fractions import Fraction
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hetdp.core.domain import Floats, Ints, epsilon_of
from hetdp.core.plan import Plan
from hetdp.errors import InputError, LedgerError
from hetdp.privacy.exact import loss
from hetdp.statistics import STATISTICS

UNIT = 10**9
"""Units in one ε."""

UNLIMITED = 10**18
"""The budget of people whose value is public. What they spend is written down as well, up to this number."""

Kind = Literal["spend", "share", "share_left"]


def budget_units(cell: Any, where: str = "") -> int:
    """Return a lifetime budget in units, rounded down; `inf` and `public` give `UNLIMITED`.

    A float is taken as the decimal number that Python prints for it, so 0.3 is three tenths.

    >>> budget_units("0.3"), budget_units(0.3), budget_units(1e-10), budget_units("public") == UNLIMITED
    (300000000, 300000000, 0, True)
    """
    exact, value = exact_epsilon(cell, where)
    if math.isinf(value):
        return UNLIMITED
    units = math.floor(exact * UNIT)
    if units >= UNLIMITED:
        raise InputError(f"a budget must be below 10⁹ (got {value:g}{where}); write inf if the value is public")
    return units


def exact_epsilon(cell: Any, where: str = "") -> tuple[Fraction, float]:
    """Return an ε as the decimal number that it is written as, and as the nearest double; the first is 0 for `inf`."""
    value = epsilon_of(cell, where)
    tiny = value * UNIT < 0.5  # this keeps "1e-999999999" from becoming an enormous fraction
    return Fraction(value) if tiny else _decimal(cell, value) if value < math.inf else Fraction(0), value


_QUOTIENT = re.compile(r"[0-9]{1,9}/0*[1-9][0-9]{0,8}")


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
    amounts = np.minimum(units, 2**53)
    nearest = amounts / UNIT
    first = (nearest.view(np.int64) >> 21 << 21).view(np.float64)
    above = (nearest - first) * UNIT > amounts - first * UNIT
    found = np.where(above, np.nextafter(nearest, 0), nearest)
    large = units >= 2**53
    found[large] = [level(amount) for amount in units[large].tolist()]
    return found


def charges(plan: Plan) -> Ints:
    """Return what one person at each level of a plan spends: ⌈10⁹·C/s⌉ units, `UNLIMITED` where no noise protects.

    If the plan also learns a variance, C/s of both draws are added up first and rounded up once.
    """
    if plan.squares is not None:
        spent = [loss(plan.parts, i) for i in range(len(plan.levels))]
        return np.array([UNLIMITED if s is None else min(math.ceil(UNIT * s), UNLIMITED) for s in spent], np.int64)
    costs = plan.costs
    found = np.where(costs > 0, UNLIMITED, 0)
    for term in plan.noise:
        part = slice(term.first, term.last)
        up, down = term.scale.as_integer_ratio()  # of the scale, exactly
        each = UNIT * down
        found[part] = [min(-(-cost * each // up), UNLIMITED) for cost in costs[part].tolist()]
    return found


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
                "say how much a release may use by one of spend=ε, share= of the budget or share_left= of what is left "
                f"(got {len(said)} of them)"
            )
        kind, cell = said[0]
        if kind != "spend" and isinstance(cell, str) and _QUOTIENT.fullmatch(cell.strip()):
            cell = Fraction(cell.strip())
        try:
            value = epsilon_of(cell, f" for {kind}")
        except InputError:
            if kind == "spend":
                raise
            raise InputError(
                f"{kind} is a number above 0 and at most 1, as 0.25 or 1/4 (got {str(cell)[:64]!r})"
            ) from None
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
        part = [min(units * up // down, UNLIMITED) for units in base.tolist()]  # as integers of any size
        return np.where(budget == UNLIMITED, UNLIMITED, np.array(part, np.int64))

    def allowed(self, budget: int, left: int) -> int:
        """Return what the release may use of a person, in units, never more than is left."""
        return min(left, int(self.wanted(np.array([budget]), np.array([left]))[0]))

    def __str__(self) -> str:
        words = {"spend": "ε a person", "share": "of each budget", "share_left": "of what is left"}
        amount = f"{float(self.amount):g}"
        if Fraction(amount) != self.amount and self.amount.denominator < 1000:
            amount = str(self.amount)  # 1/12, not 0.0833333
        return f"{amount} {words[self.kind]}"


# --- Events

LONG = 64  # from how many numbers on a column is a text

FORMAT = {"format": "hetdp-ledger-event", "version": 1, "measure": "pure-epsilon"}
"""What every event says about itself, and what one without these fields means: the first ledgers wrote none of them.

Stored history keeps its meaning. Never remove a field, never change what a field or a value of it means; a new meaning
gets a new value here. Whatever this package does not know is refused when an event is read (`Event.facts`): an older
package must not guess what a newer one has charged.
"""

MEAN = {"statistic": "mean"}
EXTERNAL = "external"
"""What a charge for somebody else's mechanism has as its statistic. Packages that do not know it refuse the ledger."""

KINDS = ("open", "enroll", "charge", "result")


def refused(why: str) -> LedgerError:
    """Return the error of a ledger that cannot be trusted."""
    return LedgerError(f"{why}; nothing is released from it")


@dataclass(frozen=True)
class Head:
    """The last event of a ledger: its number and its hash. Written `12:9f86…`."""

    seq: int
    hash: str

    def __str__(self) -> str:
        return f"{self.seq}:{self.hash}"

    @classmethod
    def parse(cls, text: str) -> Head:
        """Return a head that a person wrote down; the first 16 digits of the hash are enough."""
        match = re.fullmatch(r"([0-9]{1,18}):([0-9a-f]{16,64})", str(text).strip())
        if match is None:
            raise InputError(
                f"a head is written NUMBER:HASH, as `hetdp ledger verify` prints it (got {str(text)[:90]!r})"
            )
        return cls(int(match[1]), match[2])


GENESIS = Head(0, hashlib.sha256(b"hetdp-ledger-1").hexdigest())


@dataclass(frozen=True)
class Event:
    """One thing that happened: a ledger was opened, people enrolled, a release charged, its result stored.

    Attributes
    ----------
    body
        Canonical JSON.
    at
        The time by this machine's clock. It is shown and never decides anything: clocks go backwards.
    """

    seq: int
    kind: str
    release: str | None
    at: str
    body: str
    hash: str

    @cached_property
    def facts(self) -> dict[str, Any]:
        """The body as plain data, columns of numbers as `integers` and `reals` take them; the unknown is refused."""
        found: dict[str, Any] = json.loads(self.body)
        unknown = {name: found[name] for name, known in FORMAT.items() if found.get(name, known) != known}
        if found.get("statistic", "mean") not in (*STATISTICS, *([EXTERNAL] if self.kind == "charge" else [])):
            unknown["statistic"] = found["statistic"]
        if self.kind not in KINDS:
            unknown["kind"] = self.kind
        if unknown:
            (name, what), *_ = unknown.items()
            raise refused(
                f"event {self.seq} of the ledger has the {name} {str(what)[:64]!r}, which this hetdp does not know; "
                "update hetdp"
            )
        return found

    @property
    def head(self) -> Head:
        """The head after this event."""
        return Head(self.seq, self.hash)


def next_event(head: Head, kind: str, facts: Mapping[str, Any], release: str | None = None) -> Event:
    """Return the event that comes after a head.

    A result has the time to the minute: how long drawing took may tell of the values.
    """
    at, body = datetime.now(UTC).isoformat(timespec="milliseconds"), canonical({**FORMAT, **MEAN, **facts})
    at = f"{at[:17]}00.000{at[23:]}" if kind == "result" else at
    return Event(head.seq + 1, kind, release, at, body, _hash(head, kind, release, at, body))


def checked(events: Iterable[Event], after: Head, name: str) -> Iterator[Event]:
    """Yield events that must follow a head without a gap, each with the right hash; raise at the first other one."""
    head = after
    for event in events:
        expected = _hash(head, event.kind, event.release, event.at, event.body)
        if event.head != Head(head.seq + 1, expected):
            raise refused(
                f"{name} has a broken chain at event {head.seq + 1}: it was changed outside of hetdp; "
                "go back to a copy that verifies and has the newest head"
            )
        head = event.head
        yield event


def _hash(before: Head, kind: str, release: str | None, at: str, body: str) -> str:
    covered = canonical([before.hash, before.seq + 1, kind, release, at])
    return hashlib.sha256(f"{covered}\n{body}".encode("ascii")).hexdigest()


# --- How facts are written


def canonical(facts: Any) -> str:
    r"""Return plain data and columns of numbers as JSON with one spelling: sorted names, no blanks, ASCII.

    >>> canonical({"b": np.array([1, 2]), "a": "ε"})
    '{"a":"\\u03b5","b":[1,2]}'
    """
    return json.dumps(facts, sort_keys=True, separators=(",", ":"), allow_nan=False, default=packed)


def packed(column: NDArray[Any]) -> list[Any] | str:
    """Return a column of reals, or of integers from 0 on, as plain data, exact.

    >>> packed(np.array([3, 1])), packed(np.array([0.5])), packed(np.arange(64))[:12]
    ([3, 1], ['0x1.0000000000000p-1'], 'u1:AAECAwQFB')
    """
    real = column.dtype.kind == "f"
    if column.size < LONG:
        return [x.hex() for x in column.tolist()] if real else column.tolist()
    kind = "f8" if real else f"u{np.min_scalar_type(column.max()).itemsize}"
    return f"{kind}:{binascii.b2a_base64(column.astype(f'<{kind}').tobytes(), newline=False).decode()}"


def integers(kept: Any) -> Ints:
    """Return the column of integers that `packed` took; ValueError if it gives no such text."""
    return np.asarray(_unpacked(kept, {"u1", "u2", "u4", "u8"}) if isinstance(kept, str) else kept, dtype=np.int64)


def reals(kept: Any) -> NDArray[np.float64]:
    """Return the column of reals that `packed` took; ValueError if it gives no such text."""
    if isinstance(kept, str):
        return _unpacked(kept, {"f8"}).astype(np.float64)
    return np.array([float.fromhex(x) for x in kept], dtype=np.float64)


def _unpacked(text: str, kinds: set[str]) -> NDArray[Any]:
    kind, _, numbers = text.partition(":")
    if kind not in kinds or not numbers:
        raise ValueError("no column of an event")
    return np.frombuffer(binascii.a2b_base64(numbers, strict_mode=True), dtype=f"<{kind}")


# --- What events add up to. An event's body has up to three lists, applied in this order:
#
#     new       [cohort, asked, budget, spent]   a cohort without people yet
#     moves     [from, to, people]               people who change cohort; from 0: who are enrolled
#     levels    [cohort, index]                  everybody in the cohort has spent units[index] more
#
# and for the last one `units`, what each level of the plan costs. Both are columns, `levels` in pairs.


class Cohort(NamedTuple):
    """People with the same budget who have spent the same. Amounts are in units.

    `budget` is what limits them in the database: what they asked for, or what they have spent already if they
    asked for less later. Then they are frozen.
    """

    asked: int
    budget: int
    spent: int
    people: int

    @property
    def left(self) -> int:
        """What one of them may still spend."""
        return UNLIMITED if self.asked == UNLIMITED else max(0, self.asked - self.spent)

    @property
    def frozen(self) -> bool:
        """Whether they lowered their budget below what was spent already."""
        return self.asked < self.spent


@dataclass(frozen=True, eq=False)
class State:
    """All cohorts after some event, and the names that tiers were given (for display alone).

    Attributes
    ----------
    table
        One row per cohort, in the order of their numbers: cohort, asked, budget, spent, people. An array, because a
        charge concerns thousands of cohorts at once.
    """

    head: Head = GENESIS
    table: Ints = field(default_factory=lambda: np.zeros((0, 5), np.int64))
    names: Mapping[int, str] = field(default_factory=dict)

    @cached_property
    def cohorts(self) -> dict[int, Cohort]:
        """The cohorts by their number."""
        return {row[0]: Cohort(*row[1:]) for row in self.table.tolist()}

    @property
    def people(self) -> int:
        """The number of people enrolled."""
        return int(self.table[:, 4].sum())

    def level_names(self, asked: Ints, epsilon: Floats) -> dict[float, str]:
        """Return a name for each level at which all people are of tiers with names."""
        tiers: dict[float, set[str]] = {}
        for units, e in zip(asked.tolist(), epsilon.tolist(), strict=True) if self.names else ():
            tiers.setdefault(e, set()).add(self.names.get(units, ""))
        return {e: ", ".join(sorted(names)) for e, names in tiers.items() if "" not in names}

    def rows(self, cohorts: Ints) -> Ints:
        """Return each cohort's row in the table; raise if one is missing."""
        there = self.table[:, 0]
        rows = np.searchsorted(there, cohorts)
        if not np.array_equal(there[np.minimum(rows, there.size - 1)], cohorts):
            raise ValueError("a cohort that is not there")
        return rows

    def after(self, event: Event) -> State:
        """Return the state after one more event; raise if no ledger could have written it."""
        facts = event.facts
        try:
            names = {int(asked): str(name) for asked, name in facts.get("names", {}).items()}
            state = replace(self, head=event.head, names={**self.names, **names})
            if facts.get("new") or facts.get("moves"):
                cohorts = _moved(self.cohorts, facts["new"], facts["moves"], enrolling=event.kind == "enroll")
                table = np.array([(number, *now) for number, now in sorted(cohorts.items())], np.int64).reshape(-1, 5)
                state = replace(state, table=table)
            return state.charged(*costs(facts)) if "levels" in facts else state
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
            raise refused(f"event {event.seq} of the ledger does not add up") from None

    def charged(self, cohorts: Ints, units: Ints) -> State:
        """Return the state after charges. Where there is no limit, what was spent stops at the largest number."""
        rows = self.rows(cohorts)
        asked, spent = self.table[rows, 1], self.table[rows, 3] + units
        spent = np.where(asked == UNLIMITED, np.minimum(spent, UNLIMITED), spent)
        if (units < 0).any() or (spent > asked).any() or np.bincount(rows).max(initial=0) > 1:
            raise ValueError("a charge that passes a budget, or a cohort that is charged twice")
        table = self.table.copy()
        table[rows, 3] = spent
        return replace(self, table=table)


def _moved(before: Mapping[int, Cohort], new: Any, moves: Any, *, enrolling: bool) -> dict[int, Cohort]:
    """Return the cohorts after some are made and people move; ValueError if no ledger could have written that."""
    cohorts = dict(before)
    for number, asked, budget, spent in new:
        if number in cohorts or budget != max(asked, spent) or not (0 <= asked <= UNLIMITED and spent >= 0):
            raise ValueError("no new cohort")
        cohorts[number] = Cohort(asked, budget, spent, 0)
    for origin, target, people in moves:
        there = cohorts[target]
        if origin:
            here = cohorts[origin]
            if here.spent != there.spent or not (enrolling or here[:3] == there[:3]) or not 0 < people <= here.people:
                raise ValueError("no move: a balance would change")
            cohorts[origin] = here._replace(people=here.people - people)
        elif there.spent or not enrolling or people <= 0:
            raise ValueError("no enrolment")
        cohorts[target] = cohorts[target]._replace(people=cohorts[target].people + people)
    return cohorts


def levels_of(facts: Mapping[str, Any]) -> Ints:
    """Return the pairs (cohort, index of its level) of an event; without any it charges nobody."""
    return integers(facts.get("levels", ())).reshape(-1, 2)


def costs(facts: Mapping[str, Any]) -> tuple[Ints, Ints]:
    """Return what an event charges: the cohorts that pay something, and how much each person in them."""
    levels = levels_of(facts)
    units = integers(facts.get("units", ()))[levels[:, 1]]
    pays = np.flatnonzero(units)
    return levels[pays, 0], units[pays]
