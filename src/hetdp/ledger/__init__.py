"""Budgets that last: what every person has spent over many releases, and the privacy that stays free.

A person's budget is a promise for their lifetime with the data's owner. A release is charged exactly what it really
spent, min(ε, t) in the paper's words, rounded up to 10⁻⁹: what is saturated stays for later releases. The composition
theorem and its proof are in the documentation; the modules carry the rest of the argument: `_amounts` (a charge never
passes what is left), `privacy.release` (no result without its charge), `_head` (an old copy is noticed).

Who keeps the values elsewhere than in a file or a frame, as the server does, uses `Ledger.carry_out` with a `Request`
and a function that reads them. Amounts are then in the ledger's units: `budget_units` and `Rule.allowed` say what a
person allows, `level` the ε of that, and `charges` what a plan costs at each of its levels.
"""

from __future__ import annotations

import os
import secrets
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from hetdp.core.domain import Interval
from hetdp.core.plan import unit_variance
from hetdp.errors import InputError
from hetdp.estimators import find as find_method
from hetdp.sources import Form

from . import _book, _chain, _enroll, _rows, _schema
from ._amounts import UNLIMITED, Rule, budget_units, charges, level
from ._book import Book
from ._enroll import Enrolled
from ._errors import ChargedError, LedgerError, OtherRequestError
from ._forecast import Forecast, forecast
from ._head import Head, read_head, sync_head, write_head
from ._history import Balance, Entry, balance, balances, entries, export
from ._members import clean_ids
from ._people import budgets_of
from ._release import Keeper, LedgerRelease, Read, Request, carry_out, find
from ._store import Store, opened, readable
from ._verify import Verified, verify

if TYPE_CHECKING:
    from sqlalchemy import Connection

__all__ = [
    "UNLIMITED", "Balance", "ChargedError", "Enrolled", "Entry", "Forecast", "Keeper", "Ledger", "LedgerError",
    "LedgerRelease", "OtherRequestError", "Request", "Rule", "Verified", "budget_units", "charges", "level",
]  # fmt: skip

T = TypeVar("T")
Path = str | os.PathLike[str]


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

    def __init__(self, where: Path, *, expect_head: str | None = None, head_file: Path | None = None) -> None:
        self._start(opened(where, head_file), None if expect_head is None else Head.parse(expect_head))

    def _start(self, store: Store, expected: Head | None) -> None:
        weakref.finalize(self, store.close)
        self._store = store
        self._lock = threading.RLock()
        self._book = Book()
        with store.kept():
            self._check(expected)

    def _check(self, expected: Head | None) -> None:
        place = self._store.head_file
        outside = read_head(place)
        self._book = self._seen(outside, expected)
        if place is not None and outside is None and expected is None and self._book.head.seq > 1:
            raise LedgerError(
                f"{place} is missing, so an old copy of the ledger could not be noticed; bring it back, or open "
                "the ledger with a head that you wrote down: --expect-head NUMBER:HASH"
            )
        self.settle()

    def _seen(self, *outside: Head | None) -> Book:
        with readable(self.name), self._store.reading() as connection:
            return _book.caught_up(connection, self._book, outside, self.name)

    @classmethod
    def create(cls, where: Path, *, head_file: Path | None = None) -> Ledger:
        """Make a new, empty ledger and open it."""
        store = opened(where, head_file, new=True)
        event = _chain.following(_chain.GENESIS, "open", {"ledger": secrets.token_hex(16)})
        with store.kept(), store.making() as connection:
            if _schema.exists(connection):
                raise InputError(f"there is a ledger in {store.name} already; open it instead")
            _schema.create(connection, event.facts["ledger"], _chain.GENESIS.hash)
            _book.write(connection, Book(), event)
        ledger = cls.__new__(cls)
        ledger._start(store, None)
        return ledger

    @classmethod
    def upgrade(cls, where: Path, *, head_file: Path | None = None) -> Ledger:
        """Bring a ledger that an older hetdp wrote to the schema of this one, and open it."""
        store = opened(where, head_file)
        with store.kept(), store.making() as connection:
            version, *_ = _book.stamp(connection, store.name)
            _schema.migrate(connection, version, store.name, _schema.STEPS)
        store.close()
        return cls(where, head_file=head_file)

    @property
    def name(self) -> str:
        """The file or address, without a password."""
        return self._store.name

    @property
    def head(self) -> str:
        """The number and hash of the last event. Written down elsewhere, it proves later that nothing was undone."""
        return str(self.look(lambda _, book: book).head)

    def close(self) -> None:
        """Close the database."""
        self._store.close()

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Ledger({self.name!r}, {self._book.people:,} people)"

    def look(self, at: Callable[[Connection, Book], T]) -> T:
        """Return what a function finds in one moment of the ledger. It reads and no more: its errors mean damage."""
        with self._lock:
            outside = read_head(self._store.head_file)  # before the snapshot, see `_head`
            with readable(self.name), self._store.reading() as connection:
                self._book = _book.caught_up(connection, self._book, [outside], self.name)
                return at(connection, self._book)

    def change(self, make: Callable[[Connection, Book], tuple[Book, T]]) -> T:
        """Carry out one change under the ledger's lock; it is on disk when this returns.

        The head outside is written too; `settle` before anything of the change is shown.
        """
        with self._lock:
            outside = read_head(self._store.head_file)
            with self._store.writing() as connection:
                with readable(self.name):
                    book = _book.caught_up(connection, self._book, [outside], self.name)
                    _book.check_unless_alone(connection, book, self.name)
                book, made = make(connection, book)
            self._book = book
            write_head(self._store.head_file, book.head)
            return made

    def settle(self) -> None:
        """Have the head of what was seen last outside, and on disk: to be called before anything of it is shown."""
        with self._lock:
            write_head(self._store.head_file, self._book.head)
            sync_head(self._store.head_file)

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
        budgets, names = budgets_of(source, person, budget, {} if tiers is None else tiers, form or Form())
        enrolled = self.change(lambda connection, book: _enroll.enroll(connection, book, budgets, names))
        self.settle()
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
        (name,) = clean_ids([release_id], "release id")
        interval = Interval.of(bounds).ordinary()
        if variance is not None:
            unit_variance(variance, interval)
        if find_method(method).needs_records:
            raise InputError(
                f"{method} keeps people one by one and cannot be used with a ledger; choose another method"
            )
        rule = Rule.given(spend=spend, share=share, share_left=share_left)
        rows = _rows.source_of(source, value, person, form)
        rows.check()
        columns = {"value": value, "user": person if isinstance(person, str) else None, "files": _rows.names_of(rows)}
        limits, quotes = _limits(people, rows), people != "source"
        request = Request(name, rule, interval, method, variance, limits, columns, quotes=quotes)
        return self.carry_out(request, lambda places, plan: _rows.tally_of(rows, places, plan))

    def carry_out(self, request: Request, read: Read, keeper: Keeper | None = None) -> LedgerRelease:
        """Charge a release, compute it, store it and return it; what of this is done already is not done again.

        `OtherRequestError` says that its id was charged for another request; `ChargedError` that it was charged and the
        same request finishes it.

        Parameters
        ----------
        read
            From {person: place of their level in the plan} and the plan to the tally. It reads the values, so it is
            called after the charge is on disk, and only if the plan uses data.
        keeper
            For an owner who does not trust the ledger's database: whoever can make a statement fail there after having
            seen it would otherwise get a second draw for one charge.
        """
        return carry_out(self, request, read, keeper)

    def balance(self, person: str) -> Balance:
        """Return what a person asked for, has spent and has left."""
        (name,) = clean_ids([person])
        return self.look(lambda connection, book: balance(connection, book, name))

    def balances(self) -> list[Balance]:
        """Return the balances of everybody, in the order of their ids."""
        return self.look(balances)

    def cohorts(self) -> list[Balance]:
        """Return the balances of groups of people with the same budget who have spent the same."""
        return self.look(lambda _, book: [Balance.of(c, book) for c in book.cohorts.values() if c.people])

    def charged(self, release_id: str) -> bool:
        """Say whether a release was charged; it may have no result yet."""
        return self.look(lambda connection, _: find(connection, release_id, "charge")) is not None

    def history(self) -> list[Entry]:
        """Return everything that happened, in order."""
        found = self.look(lambda connection, _: entries(connection))
        self.settle()  # it has results
        return found

    def verify(self, *, expect_head: str | None = None) -> Verified:
        """Check the whole ledger from its first event on, and return what was found; raise at the first fault."""
        expected = None if expect_head is None else Head.parse(expect_head)
        with self._lock:
            outside = read_head(self._store.head_file)
            with readable(self.name), self._store.reading() as connection:
                return verify(connection, [outside, expected], self.name)

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
        return forecast(self.look(lambda _, book: book), rule, ask, releases)

    def export(self, path: Path, *, what: str = "balances") -> None:
        """Write everybody's balance, or the history, to a .csv or .json file."""
        export(path, what, {"balances": self.balances, "history": self.history})

    def plot(self, path: Path) -> None:
        """Write a picture of the budgets over the releases (.png, .svg or .pdf)."""
        from ._picture import curves, draw

        draw(path, lambda: self.look(lambda connection, _: curves(connection)))


def _limits(people: Any, rows: Any) -> dict[str, int] | None:
    if isinstance(people, str):
        if people == "enrolled":
            return None
        if people != "source":
            raise InputError(f"people is 'enrolled', 'source' or a list of ids (got {people[:64]!r})")
        return dict.fromkeys(_rows.ids_of(rows), UNLIMITED)
    ids = clean_ids(people)
    if len(set(ids)) < len(ids):  # in a mapping: two ways to write one id
        raise InputError("an id stands twice among the people, perhaps in two Unicode forms; name everybody once")
    if isinstance(people, Mapping):
        return {p: budget_units(cell, f" for {p!r}") for p, cell in zip(ids, people.values(), strict=True)}
    return dict.fromkeys(ids, UNLIMITED)
