"""Budgets that last: what every person has spent over many releases, and the privacy that stays free.

A person's budget is a promise for their lifetime with the data's owner. A release is charged exactly what it really
spent, min(ε, t) in the paper's words, rounded up to 10⁻⁹: what is saturated stays for later releases. The composition
theorem and its proof are in the documentation; the modules carry the rest of the argument: `amounts` (a charge never
passes what is left), `release` (no result without its charge), `chain` (an old copy is noticed), `books` (people are
counted where the events put them).

Who keeps the values elsewhere than in a file or a frame, as the server does, uses `Ledger.carry_out` with a `Request`
and a function that reads them. Amounts are then in the ledger's units: `budget_units` and `Rule.allowed` say what a
person allows, `level` the ε of that, and `charges` what a plan costs at each of its levels.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from hetdp.core.accuracy import unit_variance
from hetdp.core.domain import Interval
from hetdp.errors import ChargedError, InputError, LedgerError, OtherRequestError
from hetdp.estimators import find as find_method
from hetdp.sources import Form

if find_spec("sqlalchemy") is None:  # the modules below need it
    raise LedgerError("a ledger needs SQLAlchemy; install it with: pip install 'hetdp[sql]'")

from . import books, history, persons
from .amounts import UNLIMITED, Rule, budget_units, charges, level
from .history import Balance, Entry, Forecast, Verified
from .persons import Enrolled
from .release import Keeper, LedgerRelease, Read, Request, carry_out
from .store import PathName

__all__ = [
    "UNLIMITED", "Balance", "ChargedError", "Enrolled", "Entry", "Forecast", "Keeper", "Ledger", "LedgerError",
    "LedgerRelease", "OtherRequestError", "Request", "Rule", "Verified", "budget_units", "charges", "level",
]  # fmt: skip


class Ledger:
    """Lifetime budgets of people, kept in a file (SQLite) or in PostgreSQL.

    Opening a ledger checks it: its schema, its hash chain, that balances are what the charges add up to, and
    that it is not an old copy. A ledger that fails is refused before any value is read.

    Parameters
    ----------
    where
        The name of a file, or a postgresql:// address.
    expect_head
        A head that was printed or written down earlier, as `12:9f86d081…`; the ledger must contain it.
    head_file
        Where the head is kept outside of the ledger. For a file it is its name with `.head` unless said; for PostgreSQL
        it is nowhere unless said.

    Examples
    --------
    >>> import tempfile
    >>> from hetdp.ledger import Ledger
    >>> folder = tempfile.TemporaryDirectory()
    >>> ledger = Ledger.create(folder.name + "/budgets.db")
    >>> people = [f"p{i}" for i in range(1000)]
    >>> print(ledger.enroll({person: 1 for person in people}))
    1,000 people enrolled
    >>> ask = {"person": people, "bounds": (0, 1), "spend": 0.1, "release_id": "2026-05"}
    >>> may = ledger.mean([0.5] * 1000, **ask)
    >>> ledger.balance("p0").left
    0.9
    >>> may.estimate == ledger.mean([0.5] * 1000, **ask).estimate
    True
    >>> ledger.close(); folder.cleanup()
    """

    def __init__(self, where: PathName, *, expect_head: str | None = None, head_file: PathName | None = None) -> None:
        self._books = books.Books(where, head_file, expect_head)
        weakref.finalize(self, self._books.close)

    @classmethod
    def create(cls, where: PathName, *, head_file: PathName | None = None) -> Ledger:
        """Make a new, empty ledger and open it."""
        books.make(where, head_file)
        return cls(where, head_file=head_file)

    @classmethod
    def upgrade(cls, where: PathName, *, head_file: PathName | None = None) -> Ledger:
        """Bring a ledger that an older hetdp wrote to the schema of this one, and open it."""
        books.upgrade(where, head_file)
        return cls(where, head_file=head_file)

    @property
    def name(self) -> str:
        """The file or address, without a password."""
        return self._books.name

    @property
    def head(self) -> str:
        """The number and hash of the last event. Written down elsewhere, it proves later that nothing was undone."""
        return self._books.read(lambda _, state: str(state.head))

    def close(self) -> None:
        """Close the database."""
        self._books.close()

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Ledger({self.name!r}, {self._books.state.people:,} people)"

    def enroll(
        self,
        source: Any,
        *,
        person: Any = None,
        budget: Any = None,
        tiers: Mapping[str, Any] | None = None,
        form: Form | None = None,
    ) -> Enrolled:
        """Enrol people with a lifetime budget, or change the budget of people who are enrolled.

        Raising is always possible. Who lowers a budget below what is spent already is frozen: weight 0 from now on.

        Parameters
        ----------
        source
            A mapping {id: budget}; ids, with one budget for all of them or one each; a file or a frame.
        person, budget
            The columns of a file or frame. `inf` or `public`: the value is public, there is no limit; 0: never use it.
        tiers
            {name: budget} when budgets are given by the names of tiers.
        form
            How a delimited file is written.
        """
        budgets, names = persons.budgets_of(source, person, budget, {} if tiers is None else tiers, form or Form())
        enrolled = self._books.change(lambda connection, state: persons.enroll(connection, state, budgets, names))
        self._books.flush_head()
        return enrolled

    def mean(  # noqa: PLR0913  one parameter an aspect of a release
        self,
        source: Any,
        *,
        person: Any,
        bounds: Any,
        release_id: str,
        value: str | None = None,
        spend: Any = None,
        share: Any = None,
        share_left: Any = None,
        people: Iterable[str] | Mapping[str, Any] | str = "enrolled",
        method: str = "adpm",
        variance: float | None = None,
        form: Form | None = None,
    ) -> LedgerRelease:
        """Return a private mean and charge everybody exactly what it spends of their privacy.

        Person i enters with ε = min(what the rule allows, what they have left). Everybody enrolled takes part: who has
        no row counts as the midpoint, a row of somebody else is ignored, several rows are averaged. So neither the
        result's public half nor any message tells who has a row, which may be private.

        Parameters
        ----------
        source, value, bounds, method, variance
            As for `hetdp.mean`. There is no ε here: the ledger knows it.
        person
            The column of ids; with values in memory, the ids.
        release_id
            A name that you choose. The same name and request give the stored result again, without a charge; after a
            crash they finish what was charged.
        spend, share, share_left
            How much the release may use of each person: at most this ε, this share of their budget, or this share of
            what they have left. Exactly one of them. For people whose budget is `inf` there is no limit.
        people
            Who takes part: "enrolled" is everybody; a list of ids, or a mapping {id: ε at most}, is these people;
            "source" is who has a row. A list must be public, and so must be who has a row if you say "source".
        form
            How a delimited file is written.
        """
        (name,) = persons.clean_ids([release_id], "release id")
        interval = Interval.of(bounds).ordinary()
        if variance is not None:
            unit_variance(variance, interval)
        if find_method(method).needs_records:
            raise InputError(
                f"{method} keeps people one by one and cannot be used with a ledger; choose another method"
            )
        rule = Rule.given(spend=spend, share=share, share_left=share_left)
        read = persons.source_of(source, value, person, form)
        read.check()
        files = [Path(name).name for name in read.names] or None
        about = {"value": value, "user": person if isinstance(person, str) else None, "files": files}
        limits, quotes = _limits(people, read), people != "source"
        request = Request(name, rule, interval, method, variance, limits, about, quotes=quotes)
        return self.carry_out(request, lambda levels, plan: persons.tally_of(read, levels, plan))

    def carry_out(self, request: Request, read: Read, keeper: Keeper | None = None) -> LedgerRelease:
        """Charge a release, compute it, store it and return it; what of this is done already is not done again.

        `OtherRequestError` says that its id was charged for another request; `ChargedError` that it was charged and the
        same request finishes it.

        Parameters
        ----------
        read
            From {person: index of their level in the plan} and the plan to the tally. It reads the values, so it is
            called after the charge is on disk, and only if the plan uses data.
        keeper
            For an owner who does not trust the ledger's database: whoever can make a statement fail there after having
            seen it would otherwise get a second draw for one charge.
        """
        return carry_out(self._books, request, read, keeper)

    def balance(self, person: str) -> Balance:
        """Return what a person asked for, has spent and has left."""
        ids = persons.clean_ids([person])
        found = self._books.read(lambda connection, state: history.balances(connection, state, ids))
        if not found:
            raise InputError(f"{ids[0][:64]!r} is not enrolled; ids are exact text: '007' is not '7'")
        return found[0]

    def balances(self) -> list[Balance]:
        """Return the balances of everybody, in the order of their ids."""
        return self._books.read(history.balances)

    def cohorts(self) -> list[Balance]:
        """Return the balances of groups of people with the same budget who have spent the same."""
        return self._books.read(lambda _, state: [Balance.of(c, state) for c in state.cohorts.values() if c.people])

    def charged(self, release_id: str) -> bool:
        """Say whether a release was charged; it may have no result yet."""
        return self._books.read(lambda connection, _: books.find(connection, release_id, "charge")) is not None

    def history(self) -> list[Entry]:
        """Return everything that happened, in order."""
        found = self._books.read(lambda connection, _: history.entries(connection))
        self._books.flush_head()  # it has results
        return found

    def verify(self, *, expect_head: str | None = None) -> Verified:
        """Check the whole ledger from its first event on, and return what was found; raise at the first fault."""
        return self._books.read(lambda connection, state: history.verify(connection, state, self.name), expect_head)

    def forecast(
        self,
        *,
        bounds: Any,
        spend: Any = None,
        share: Any = None,
        share_left: Any = None,
        method: str = "adpm",
        variance: float | None = None,
        releases: int = 120,
    ) -> Forecast:
        """Return how often such a release can be made, and how its error grows, without making any.

        Parameters
        ----------
        bounds, method, variance, spend, share, share_left
            As for `mean`.
        releases
            How many to look ahead at most.
        """
        rule = Rule.given(spend=spend, share=share, share_left=share_left)
        ask = {"bounds": Interval.of(bounds).ordinary(), "method": method, "variance": variance}
        return history.forecast(self._books.read(lambda _, state: state), rule, ask, releases)

    def export(self, path: PathName, *, what: str = "balances") -> None:
        """Write everybody's balance, or the history, to a .csv or .json file."""
        if what not in {"balances", "history"}:
            raise InputError(f"what can be exported is 'balances' or 'history' (got {str(what)[:64]!r})")
        target = history.writable("an export", path, ".csv", ".json")
        history.export(target, self.balances() if what == "balances" else self.history())

    def plot(self, path: PathName) -> None:
        """Write a picture of the budgets over the releases (.png, .svg or .pdf)."""
        target = history.writable("a picture", path, ".png", ".svg", ".pdf")
        history.draw(target, *self._books.read(lambda connection, _: history.curves(connection)))


def _limits(people: Any, read: Any) -> dict[str, int] | None:
    if isinstance(people, str):
        if people == "enrolled":
            return None
        if people != "source":
            raise InputError(f"people is 'enrolled', 'source' or a list of ids (got {people[:64]!r})")
        return dict.fromkeys(persons.ids_of(read), UNLIMITED)
    ids = persons.clean_ids(people)
    if len(set(ids)) < len(ids):  # in a mapping: two ways to write one id
        raise InputError("an id stands twice among the people, perhaps in two Unicode forms; name everybody once")
    if isinstance(people, Mapping):
        return {p: budget_units(cell, f" for {p!r}") for p, cell in zip(ids, people.values(), strict=True)}
    return dict.fromkeys(ids, UNLIMITED)
