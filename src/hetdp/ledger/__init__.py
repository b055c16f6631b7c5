"""Budgets that last: what every person has spent over many releases, and the privacy that stays free.

A person's budget is a promise for their lifetime with the data's owner. A release is charged exactly what it really
spent, min(ε, t) in the paper's words, rounded up to 10⁻⁹: what is saturated stays for later releases. The composition
theorem and its proof are in the documentation; the modules carry the rest of the argument: `books` (a charge never
passes what is left), `charge` (no result without its charge, people are counted where the events put them), `store`
(an old copy is noticed). What a release does not need is in `tables` and `history`.

Who keeps the values elsewhere than in a file or a frame, as the server does, uses `Ledger.carry_out` with a `Request`
and a function that reads them. Amounts are then in the ledger's units: `budget_units` and `Rule.allowed` say what a
person allows, `level` the ε of that, and `charges` what a plan costs at each of its levels.
"""

from __future__ import annotations

import os
import re
import weakref
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from hetdp.core.accuracy import unit_variance
from hetdp.core.domain import BAD_ID, GRID, LONGEST_ID, NOT_IN_ID, Interval, normal
from hetdp.core.levels import joined_names
from hetdp.core.plan import Plan
from hetdp.errors import ChargedError, InputError, LedgerError, OtherRequestError
from hetdp.estimators import METHODS
from hetdp.sources import Form, Source
from hetdp.statistics import Statistic
from hetdp.statistics.mean import Mean
from hetdp.statistics.statistic import Answer, Release
from hetdp.tally.groupby import coded, squared
from hetdp.tally.tally import Table, Tally

if find_spec("sqlalchemy") is None:  # the modules below need it
    raise LedgerError("a ledger needs SQLAlchemy; install it with: pip install 'hetdp[sql]'")

from . import charge, history
from .books import UNLIMITED, Rule, budget_units, charges, level
from .charge import Enrolled, Keeper, Read, Request
from .history import Balance, Entry, Forecast, Verified
from .store import PathName, Store, find

__all__ = [
    "UNLIMITED", "Balance", "ChargedError", "Enrolled", "Entry", "Forecast", "Keeper", "Ledger", "LedgerError",
    "OtherRequestError", "Request", "Rule", "Verified", "budget_units", "charges", "level",
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
        self._store = Store(where, head_file)
        self._store.check(expect_head)
        weakref.finalize(self, self._store.close)

    @classmethod
    def create(cls, where: PathName, *, head_file: PathName | None = None) -> Ledger:
        """Make a new, empty ledger and open it."""
        with closing(Store(where, head_file, new=True)) as store:
            store.create()
        return cls(where, head_file=head_file)

    @classmethod
    def upgrade(cls, where: PathName, *, head_file: PathName | None = None) -> Ledger:
        """Bring a ledger that an older hetdp wrote to the schema of this one, and open it."""
        with closing(Store(where, head_file)) as store:
            store.upgrade()
        return cls(where, head_file=head_file)

    @property
    def name(self) -> str:
        """The file or address, without a password."""
        return self._store.name

    @property
    def head(self) -> str:
        """The number and hash of the last event. Written down elsewhere, it proves later that nothing was undone."""
        return self._store.read(lambda _, state: str(state.head))

    def close(self) -> None:
        """Close the database."""
        self._store.close()

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Ledger({self.name!r}, {self._store.state.people:,} people)"

    def enroll(
        self,
        source: Any,
        *,
        person: Any = None,
        budget: Any = None,
        tiers: Mapping[str, Any] | None = None,
        form: Form = Form(),  # noqa: B008  it is frozen
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
        budgets, names = _budgets_of(source, person, budget, {} if tiers is None else tiers, form)
        enrolled = self._store.change(lambda connection, state: charge.enroll(connection, state, budgets, names))
        self._store.flush_head()
        return enrolled

    def mean(self, source: Any, *, bounds: Any, value: str | None = None, **options: Any) -> Release:
        """Return a private mean and charge everybody exactly what it spends; `ask` has all options and the rules."""
        return self.ask(source, Mean(Interval.of(bounds), value=value), **options)  # type: ignore[return-value]

    def ask(  # noqa: PLR0913  one parameter an aspect of a release
        self,
        source: Any,
        statistic: Statistic,
        *,
        person: Any,
        release_id: str,
        spend: Any = None,
        share: Any = None,
        share_left: Any = None,
        people: Iterable[str] | Mapping[str, Any] | str = "enrolled",
        method: str = "adpm",
        variance: float | None = None,
        form: Form = Form(),  # noqa: B008  it is frozen
    ) -> Answer:
        """Return the answer to a question and charge everybody exactly what it spends of their privacy.

        Person i enters with ε = min(what the rule allows, what they have left). Everybody enrolled takes part: who has
        no row counts as the midpoint (where people are sorted into cells: as missing), a row of somebody else is
        ignored, several rows are averaged (sorted: the first one counts). So neither the result's public half nor any
        message tells who has a row, which may be private.

        Parameters
        ----------
        statistic
            What is asked, as `hetdp.ask.histogram(value="job", categories=[…])`.
        source, method, variance
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
        (name,) = _clean_ids([release_id], "release id")
        interval = statistic.interval.ordinary()
        if variance is not None:
            unit_variance(variance, interval)
        if METHODS[method].needs_records:
            raise InputError(
                f"{method} keeps people one by one and cannot be used with a ledger; choose another method"
            )
        rule = Rule.given(spend=spend, share=share, share_left=share_left)
        read = _source_of(source, statistic, person, form)
        read.check()
        files = [Path(name).name for name in read.names] or None
        about = {"value": statistic.named, "user": person if isinstance(person, str) else None, "files": files}
        limits, quotes = _limits(people, read), people != "source"
        request = Request(name, rule, statistic, method, variance, limits, about, quotes=quotes)
        return self.carry_out(request, lambda levels, plan: _tally_of(read, levels, plan))

    def carry_out(self, request: Request, read: Read, keeper: Keeper | None = None) -> Answer:
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
        return charge.carry_out(self._store, request, read, keeper)

    def balance(self, person: str) -> Balance:
        """Return what a person asked for, has spent and has left."""
        ids = _clean_ids([person])
        found = self._store.read(lambda connection, state: history.balances(connection, state, ids))
        if not found:
            raise InputError(f"{ids[0][:64]!r} is not enrolled; ids are exact text: '007' is not '7'")
        return found[0]

    def balances(self) -> list[Balance]:
        """Return the balances of everybody, in the order of their ids."""
        return self._store.read(history.balances)

    def cohorts(self) -> list[Balance]:
        """Return the balances of groups of people with the same budget who have spent the same."""
        return self._store.read(lambda _, state: [Balance.of(c, state) for c in state.cohorts.values() if c.people])

    def charged(self, release_id: str) -> bool:
        """Say whether a release was charged; it may have no result yet."""
        return self._store.read(lambda connection, _: find(connection, release_id, "charge")) is not None

    def history(self) -> list[Entry]:
        """Return everything that happened, in order."""
        found = self._store.read(lambda connection, _: history.entries(connection))
        self._store.flush_head()  # it has results
        return found

    def verify(self, *, expect_head: str | None = None) -> Verified:
        """Check the whole ledger from its first event on, and return what was found; raise at the first fault."""
        return self._store.read(lambda connection, state: history.verify(connection, state, self.name), expect_head)

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
        ask = {"statistic": Mean(Interval.of(bounds).ordinary()), "method": method, "variance": variance}
        return history.forecast(self._store.read(lambda _, state: state), rule, ask, releases)


def _limits(people: Any, read: Any) -> dict[str, int] | None:
    if isinstance(people, str):
        if people == "enrolled":
            return None
        if people != "source":
            raise InputError(f"people is 'enrolled', 'source' or a list of ids (got {people[:64]!r})")
        return dict.fromkeys(_ids_of(read), UNLIMITED)
    ids = _clean_ids(people)
    if len(set(ids)) < len(ids):  # in a mapping: two ways to write one id
        raise InputError("an id stands twice among the people, perhaps in two Unicode forms; name everybody once")
    if isinstance(people, Mapping):
        return {p: budget_units(cell, f" for {p!r}") for p, cell in zip(ids, people.values(), strict=True)}
    return dict.fromkeys(ids, UNLIMITED)


# --- Ids and enrolment

_BAD = re.compile(f"{NOT_IN_ID}|[\ud800-\udfff]")  # half a surrogate pair cannot be written down


def _clean_ids(ids: Iterable[Any], what: str = "id") -> list[str]:
    r"""Return ids as they are kept: text in Unicode's normal form C, otherwise exact; a bad one raises.

    >>> _clean_ids(["007", "7", "Zoe\u0308"]) == ["007", "7", "Zoë"]
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
        if len(text) > LONGEST_ID or _BAD.search(text):
            raise InputError(f"an id {BAD_ID} (at {what} {number})")
        found.append(text)
    return found


def _budgets_of(
    source: Any, person: Any, budget: Any, tiers: Mapping[str, Any], form: Form
) -> tuple[dict[str, int], dict[int, str]]:
    """Return {person: units} and the names of tiers by their budget; a bad id or budget raises and names its place."""
    if not isinstance(tiers, Mapping) or not all(isinstance(name, str) for name in tiers):
        raise InputError(f"tiers are a mapping of names to budgets, such as {{'open': 1}} (got {type(tiers).__name__})")
    known = {name: budget_units(cell, f" for tier {name!r}") for name, cell in tiers.items()}
    if isinstance(person, str) or isinstance(source, (str, os.PathLike)):
        ids, cells = _table(source, person, budget, tiers, form)
    elif person is not None or not isinstance(source, Iterable) or isinstance(source, Mapping) != (budget is None):
        raise InputError("enrol a mapping {id: budget}, ids with budget=…, or a table with person=… and budget=…")
    else:
        ids, one = _clean_ids(source), isinstance(budget, str) or not isinstance(budget, Iterable)
        cells = list(source.values()) if isinstance(source, Mapping) else [budget] * len(ids) if one else list(budget)
        if len(ids) != len(cells):
            raise InputError(f"everybody needs one budget (got {len(ids)} ids and {len(cells)} budgets)")
        for who, cell in zip(ids, cells, strict=True) if tiers else ():
            if cell not in tiers:
                said = ", ".join(map(repr, tiers))
                raise InputError(f"unknown tier {str(cell)[:64]!r} for {who[:64]!r}; the tiers are {said}")
        cells = [tiers[cell] for cell in cells] if tiers else cells
    # Most people have one of a few budgets, and each is read once. Its type belongs to it: to a dict True is 1.
    some = {(type(cell), cell): who for who, cell in zip(ids, cells, strict=True)}
    units = {key: budget_units(key[1], f" for {who[:64]!r}") for key, who in some.items()}
    found = {who: units[type(cell), cell] for who, cell in zip(ids, cells, strict=True)}
    if len(found) < len(ids):
        ((twice, _),) = Counter(ids).most_common(1)
        raise InputError(f"an id comes twice, such as {twice[:64]!r}; everybody is enrolled once with one budget")
    names = joined_names((amount, name) for name, amount in known.items())
    return found, {int(amount): name for amount, name in names.items()}


def _table(source: Any, person: Any, budget: Any, tiers: Mapping[str, Any], form: Form) -> tuple[list[str], list[Any]]:
    """Return the ids and budgets of a table. A budget is read as an ε is: a number, inf, public or a tier."""
    if not isinstance(person, str) or not isinstance(budget, str):
        raise InputError("enrolling a table needs the names of two columns: person=… and budget=…")
    people = Source.of(source, value=None, epsilon=budget, person=person, tiers=tiers, form=form, counts_only=True)
    ids: list[str] = []
    cells: list[Any] = []
    for batch in people.batches():
        ids += _clean_ids(batch.texts[person].to_list(), "row")
        cells += batch.epsilon.tolist()
    if not ids:
        raise InputError("there is nobody to enrol; the table has no rows")
    return ids, cells


# --- The rows of a source: before the charge who they are about, after it their values


def _source_of(source: Any, statistic: Statistic, person: Any, form: Form = Form()) -> Source:  # noqa: B008  it is frozen
    """Return a source with values and the ids of whom they are about; nothing is read."""
    if person is None:
        raise InputError("a ledger needs to know who a row is about; name the column of ids: person=…")
    named, reads = statistic.named, statistic.reads
    found = Source.of(source, value=named, reads=reads, epsilon=1.0, person=person, rows="average", form=form)
    if found.ids is not None:
        sizes = [len(some) if hasattr(some, "__len__") else None for some in (source, found.ids)]
        if None in sizes or sizes[0] != sizes[1]:
            raise InputError(
                f"values and ids must be sequences with one entry a row (of lengths {sizes[0]}, {sizes[1]})"
            )
    return found


def _ids_of(people: Source) -> list[str]:
    """Return the ids of a source whose rows are public, one row per person. What stands in other columns is not used.

    No message quotes an id: on a damaged line of a delimited file it may be a piece of the value beside it.
    """
    column = str(people.asked.person)
    ids = _clean_ids(cell for batch in people.batches() for cell in batch.texts[column].to_list())
    if len(set(ids)) < len(ids):
        raise InputError("an id stands on more than one row; here everybody has one row")
    return ids


def _tally_of(people: Source, levels: Mapping[str, int], plan: Plan) -> Tally:
    """Return the tally of those who take part; `levels` has the index of each one's level in the plan.

    Claim. It adds what one person hands over for each of them, whatever rows the source has: nobody's values, and
    nobody's presence in the source, changes who is counted or raises.

    Argument. A person's code is the average of the codes of their rows, rounded in integers as everywhere; without a
    row it is the midpoint. Where people are sorted into cells the first row counts, and without a row the cell is that
    of a missing value. A row of somebody who does not take part is nobody's, and so is one whose id no person can have:
    such a text is none of the clean ids here. Counts come from the plan. Who has ε = 0 is not in `levels`: their values
    are not looked at.
    """
    statistic, row_of = plan.statistic, {person: i for i, person in enumerate(levels)}
    absent = coded(statistic, [np.full(1, np.nan if kind is None else kind.size - 1) for kind in statistic.reads])
    cell, rows = np.full(len(row_of), absent[0][0]), np.zeros(len(row_of), np.int64)
    sums = np.zeros((len(statistic.sums), len(row_of)), np.int64)
    for batch in people.batches():
        ids = batch.texts[str(people.asked.person)].to_list()
        at = np.array([row_of.get(normal(cell), -1) if isinstance(cell, str) else -1 for cell in ids], dtype=np.int64)
        mine = at >= 0
        places, codes = coded(statistic, [np.asarray(column)[mine] for column in batch.columns])
        who, first = np.unique(at[mine], return_index=True)
        fresh = rows[who] == 0
        cell[who[fresh]] = places[first[fresh]]
        for total, code in zip(sums, codes, strict=False):
            np.add.at(total, at[mine], code.astype(np.int64))
        np.add.at(rows, at[mine], 1)
    averages = [np.where(rows > 0, Interval.average(total, np.maximum(rows, 1)), GRID // 2) for total in sums]
    if statistic.square:
        averages.append(squared(averages[0]).astype(np.int64))
    coded_rows = np.stack(averages, axis=1) if averages else np.zeros((len(row_of), 0), np.int64)
    found = np.zeros((len(plan.levels), statistic.width), np.int64)
    places, one = np.fromiter(levels.values(), np.int64, len(levels)), np.ones(len(levels), np.int64)
    for i in range(0, len(row_of), _CHUNK):
        part = slice(i, i + _CHUNK)
        statistic.add_to(found, places[part], cell[part], one[part], coded_rows[part])
    table = Table(plan.levels.epsilon, plan.levels.count, found, plan.levels.rounded, plan.levels.wide)
    return Tally(table, statistic, plan.levels.names)


_CHUNK = 2**12  # people whose numbers are spread out at a time; a wide statistic has thousands
