"""Budgets that last: what every person has spent over many releases, and the privacy that stays free.

A person's budget is a promise for their lifetime with the data's owner. A release is charged exactly what it really
spent, min(ε, t) in the paper's words, rounded up to 10⁻⁹: what is saturated stays for later releases. The composition
theorem and its proof are in the documentation; the modules carry the rest of the argument: `books` (a charge never
passes what is left), `charge` (no result without its charge), `people` (they are counted where the events put them),
`store` (an old copy is noticed). What a release does not need is in `tables` and `history`.

Who keeps the values elsewhere than in a file or a frame, as the server does, uses `Ledger.carry_out` with a `Request`
and a function that reads them. Amounts are then in the ledger's units: `budget_units` and `Rule.allowed` say what a
person allows, `level` the ε of that, and `charges` what a plan costs at each of its levels. All of this is for the
server and may change: SCHEMA, TABLES, UNLIMITED, Keeper, Part, Request, Rule, budget_units, charges, in_epsilon, level,
read_head. The other names are public.
"""

from __future__ import annotations

import inspect
import math
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from fractions import Fraction
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, Never, Unpack, overload

import numpy as np

from hetdp.core import types
from hetdp.core.accuracy import aimed_at
from hetdp.core.domain import Interval, clean_ids, jsonable, plural
from hetdp.core.levels import Levels
from hetdp.core.plan import plan
from hetdp.core.types import Amount, ArrayLike, BoundsLike, ByLike, MissingLike, PersonLike, SourceLike, TiersLike
from hetdp.errors import ChargedError, ExhaustedError, InputError, LedgerError, OtherRequestError, unknown_option
from hetdp.estimators import METHODS
from hetdp.privacy.release import unused
from hetdp.report import Provenance
from hetdp.sources import Form, declared_public
from hetdp.statistics import Statistic
from hetdp.statistics.answer import Group, Groups, label
from hetdp.statistics.mean import AnsweredMean, Mean
from hetdp.statistics.statistic import Answer, Release, needs_missing

if find_spec("sqlalchemy") is None:  # the modules below need it
    raise LedgerError("a ledger needs SQLAlchemy; install it with: pip install 'hetdp[sql]'")

from . import books, charge, external, history, rows
from . import people as who
from .books import UNLIMITED, Event, Rule, budget_units, charges, in_epsilon, level
from .charge import Keeper, Part, ReadAll, Request, planned
from .external import Charged, Lacking
from .history import Balance, DryRun, Entry, Forecast, Listing, Verified
from .people import Enrolled, for_ledger, tier_rows, warnings_of
from .store import PathName, Store, find, read_head
from .tables import SCHEMA, TABLES

__all__ = [
    "SCHEMA", "TABLES", "UNLIMITED", "Balance", "Charged", "ChargedError", "DryRun", "Enrolled", "Entry",
    "ExhaustedError", "Forecast", "Keeper", "Ledger", "LedgerError", "OtherRequestError", "Part", "Request", "Rule",
    "Verified", "budget_units", "charges", "in_epsilon", "level", "read_head",
]  # fmt: skip


class Ledger:
    """Lifetime budgets of people, kept in a file (SQLite) or in PostgreSQL.

    Opening a ledger checks it: its schema, its hash chain, that balances are what the charges add up to, and
    that it is not an old copy. One that fails is refused before any value is read.

    Parameters
    ----------
    where
        The name of a file, or a postgresql:// address.
    expect_head
        A head that was printed or written down earlier, as `12:9f86d081…`; the ledger must contain it.
    head_file
        Where the head is kept outside of the ledger. Unless said, beside a file as ``.head``; of PostgreSQL nowhere.

    Examples
    --------
    >>> import tempfile
    >>> from hetdp.ledger import Ledger
    >>> folder = tempfile.TemporaryDirectory()
    >>> ledger = Ledger.create(folder.name + "/budgets.db")
    >>> people = [f"p{i}" for i in range(1000)]
    >>> print(ledger.enroll({person: 1 for person in people}))
    1,000 people enrolled
    >>> ask = {"person": people, "bounds": (0, 1), "spend": 0.1, "release_id": "2026-05", "missing": "midpoint"}
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
        """Make a new, empty ledger, open it and return it; `where` and `head_file` as for the class."""
        with closing(Store(where, head_file, new=True)) as store:
            store.create()
        return cls(where, head_file=head_file)

    @classmethod
    def upgrade(cls, where: PathName, *, expect_head: str | None = None, head_file: PathName | None = None) -> Ledger:
        """Bring an older ledger to this schema and return it; `where`, `expect_head`, `head_file` as for the class."""
        with closing(Store(where, head_file)) as store:
            store.upgrade()
        return cls(where, expect_head=expect_head, head_file=head_file)

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
        return f"Ledger({self.name!r}, {plural(self._store.state.people, 'person')})"

    def enroll(
        self,
        source: Mapping[str, Any] | Iterable[str] | SourceLike,
        *,
        person: str | None = None,
        budget: Amount | Sequence[Amount] | Sequence[float] | ArrayLike | None = None,
        tiers: TiersLike | None = None,
        form: Form = Form(),  # noqa: B008  it is frozen
    ) -> Enrolled:
        """Enrol people with a lifetime budget, or change the budget of people who are enrolled; return how many.

        Who lowers a budget below what is spent already is frozen: weight 0 from now on.

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

        Returns
        -------
        Enrolled
        """
        budgets, names = who.budgets_of(source, person, budget, {} if tiers is None else tiers, form)
        enrolled = self._store.change(lambda connection, state: who.enroll(connection, state, budgets, names))
        self._store.flush_head()
        return enrolled

    def write_off(self, amounts: Mapping[str, int], why: str) -> None:
        """Count units (10⁻⁹ ε) as spent of people, {id: units}: what a lost ledger charged, or may have charged.

        Use this alone to go on from an old copy. Whoever of `amounts` is not enrolled yet is enrolled; whoever asked
        for less is frozen. The history keeps `why`, also if nobody owes anything: by that the ledger is told apart from
        the lost one.
        """
        owed = {p: int(units) for p, units in zip(clean_ids(amounts), amounts.values(), strict=True) if units > 0}
        self._store.change(lambda connection, state: (history.write_off(connection, state, owed, why), None))
        self._store.flush_head()

    @overload
    def mean(self, source: SourceLike, *, missing: types.Answered, **how: Unpack[types.OfAll]) -> AnsweredMean: ...
    @overload
    def mean(self, source: SourceLike, *, missing: types.Filled, **how: Unpack[types.OfAll]) -> Release: ...
    @overload
    def mean(self, source: SourceLike, *, by: ByLike, **how: Unpack[types.OfGroups]) -> Groups: ...
    @overload
    def mean(self, source: SourceLike, *, dry_run: Literal[True], **how: Unpack[types.Tried]) -> DryRun: ...
    def mean(
        self,
        source: SourceLike,
        *,
        bounds: BoundsLike,
        value: str | None = None,
        missing: MissingLike | None = None,
        values: Mapping[Any, float] | None = None,
        **options: Any,
    ) -> Any:
        """Return a private mean and charge everybody exactly what it spends; `ask` has all options and the rules.

        `source`, `bounds`, `value`, `missing`, `values` as for `hetdp.mean`; who has no row is missing: it is needed.

        Returns
        -------
        Release, AnsweredMean, Groups or DryRun
            `AnsweredMean` with missing="estimate" or "drop", `Groups` with `by`, `DryRun` with dry_run=True.
        """
        if options.keys() - (known := inspect.signature(self.ask).parameters):
            raise unknown_option("Ledger.mean", options, [*known, "value", "values", "missing"])
        who.required("Ledger.mean", options)
        asked = Mean(Interval.of(bounds), value=value, missing=missing, values=values)
        return self.ask(source, asked, **options)

    def ask(  # noqa: C901, PLR0913  one parameter an aspect of a release
        self,
        source: SourceLike,
        statistic: Statistic,
        *,
        person: PersonLike,
        release_id: str,
        spend: Amount | None = None,
        share: Amount | None = None,
        share_left: Amount | None = None,
        people: Iterable[str] | Mapping[str, Amount] | str = "enrolled",
        by: ByLike | None = None,
        public_columns: Sequence[str] = (),
        groups: Sequence[Any] | None = None,
        method: str = "adpm",
        variance: float | Literal["learn"] | None = None,
        drift: float = 0.0,
        target: str | None = None,
        form: Form = Form(),  # noqa: B008  it is frozen
        dry_run: bool = False,
        warn: Callable[[str], object] | None = None,
        **unknown: Never,
    ) -> Any:  # a checker does not know the statistic, so it allows every attribute
        """Return the answer to a question and charge everybody exactly what it spends of their privacy.

        Person i enters with ε = min(what the rule allows, what they have left). Everybody enrolled takes part: who has
        no row is missing, and missing=… says what that means; a row of somebody else is ignored, several rows are
        averaged (of a sum added up; where people are sorted by what they say, the least one counts). So neither the
        result's public half nor any message tells who has a row, which may be private.

        Parameters
        ----------
        statistic
            What is asked, as `hetdp.ask.histogram(value="job", categories=[…])`. With missing="drop" people without a
            row are left out, as with people="source". Whether a cell is empty stays private, as with "estimate",
            because cells are read after the charge.
        source, method, variance, drift, target
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
        by
            The groups are public: a mapping {id: group} of those who take part; or with people="source" a column of the
            source, or several, which must be among `public_columns`. Each person is in one group and is charged once.
            All groups are charged before a value is read, each under its own id, as "2026-05/north".
        public_columns, groups
            As for `hetdp.mean`. Nobody is charged for a group that is empty; a sum or a count of one is refused.
        form
            How a delimited file is written, as `hetdp.sources.Form(delimiter=";", decimal=",")`. It is no part of the
            request: with another one the same name gives the stored result.
        dry_run
            Return what would be charged, as a `DryRun`. No value is read, and nothing is charged or written.
        warn
            Called before any charge, with a sentence for each tier that it empties; the answer has them in `ledger`.

        Returns
        -------
        Answer, Groups or DryRun
            The answer that belongs to the statistic, stored under its id; `Groups` with `by`.
        """
        if unknown:
            raise unknown_option("Ledger.ask", unknown, inspect.signature(self.ask).parameters)
        (name,) = clean_ids([release_id], "release id")
        who.check_asked(statistic, variance)
        statistic = for_ledger(statistic) if statistic.private_bounds else statistic
        aimed_at(statistic, drift, target)
        if METHODS[method].needs_records:
            raise InputError(f"{method} keeps people one by one and cannot be used with a ledger; choose another one")
        rule = Rule.given(spend=spend, share=share, share_left=share_left)
        needs_missing(statistic)
        if statistic.missing == "drop":
            if people not in ("enrolled", "source"):
                raise InputError("missing='drop' leaves out who has no row; with a list of people choose another way")
            people, statistic = "source", replace(statistic, missing="estimate")
        named = () if by is None or isinstance(by, Mapping) else (by,) if isinstance(by, str) else tuple(by)
        declared_public(named, public_columns)
        (read := rows.source_of(source, statistic, person, form, named or None)).check()
        files = [Path(name).name for name in read.names] or None
        about = {"value": statistic.named, "user": person if isinstance(person, str) else None, "files": files}
        about |= {} if statistic.values is None else {"values": statistic.values.plain}
        ask: dict[str, Any] = {"rule": rule, "statistic": statistic, "method": method, "variance": variance}
        ask |= {"quotes": people != "source", "drift": drift, "target": target}
        if by is None and groups is not None:
            raise InputError("a list of groups needs to know who is in them: by=…, --by COL")
        if by is None:
            limits = None if people == "enrolled" else who.limits_of(people, read)
            requests: dict[Group, Request] = {"": Request(name, people=limits, about=about, **ask)}
        else:
            columns, found = who.grouped(people, read, by, groups)
            who.refuse_empty_totals(statistic, found)
            about |= {"by": list(columns), "groups": [label(group) for group in found]}
            ids = clean_ids((f"{name}/{label(group)}" for group in found), "release id of group")
            requests = {
                group: Request(one, people=limits, about={**about, "group": label(group)}, **ask)
                for one, (group, limits) in zip(ids, found.items(), strict=True)
                if limits
            }
            empty = plan(Levels.from_arrays(np.zeros(1), np.zeros(1, np.int64)), statistic=statistic, method=method)
            nobody = statistic.answer(empty, unused(empty), ["Nobody is in this group; nothing was charged for it."])
        if dry_run or warn is not None:
            seen = self._store.read(lambda connection, state: history.dry_run(connection, state, requests, name))
            if dry_run:
                return seen
            if warn is not None and not seen.done:
                for sentence in seen.warnings:
                    warn(sentence)
        ask_now, tallies = [*requests.values()], lambda parts: rows.tallies_of(read, [part[1:] for part in parts])
        pairs = zip(requests, charge.carry_out(self._store, ask_now, tallies, None), strict=True)
        known = statistic, read.about(statistic), people
        answers = {g: who.as_asked(_published(self._store.label, *kept), drawn, *known) for g, (*kept, drawn) in pairs}
        if by is None:
            return answers[""]
        return Groups({group: answers.get(group) or nobody for group in found}, checked=True, by=columns)

    def carry_out(self, requests: Sequence[Request], read: ReadAll, keeper: Keeper | None = None) -> list[Answer]:
        """Charge releases, compute them, store them and return them; what of this is done already is not done again.

        All are charged in one transaction, or none is. `OtherRequestError` says that an id was charged for another
        request; `ChargedError` that they were charged and the same requests finish them.

        Parameters
        ----------
        requests
            What each release is to be.
        read
            From the id of each release, {person: index of their level in its plan} and the plan to its tally. It reads
            the values, so it is called once, after the charges are on disk, with the releases whose plans use data.
        keeper
            For an owner who does not trust the ledger's database: whoever can make a statement fail there after having
            seen it would otherwise get a second draw for one charge.

        Returns
        -------
        list[Answer]
        """
        done, name = charge.carry_out(self._store, requests, read, keeper), self._store.label
        return [_published(name, *events) for *events, _ in done]

    def charge(
        self,
        people: Mapping[str, Amount] | Mapping[str, float] | Iterable[str],
        *,
        release_id: str,
        mechanism: str,
        epsilon: Amount | None = None,
        lacking: Lacking = "refuse",
        **unknown: Never,
    ) -> Charged:
        """Charge people for a mechanism that is not hetdp's, and return whose data it may use.

        Call it before the mechanism reads anything. The mechanism must be ε-DP for each of these people at the ε that
        is charged (pure ε, replacing one person's data), use nobody else, and let one result leave for one id: it is
        not interactive, and a trainer of several rounds charges each under its own id. Who takes part must be public,
        or follow from earlier results. The charge is on disk when this returns.

        Parameters
        ----------
        people
            A mapping {id: ε} of what the mechanism spends of each person, or ids with one `epsilon` for all. Everybody
            must be enrolled. A float is the decimal number that Python prints for it; amounts are rounded up to 10⁻⁹.
            They are finite: that a public person is used without noise cannot be recorded.
        release_id
            A name that you choose. The same name and request charge nobody again and return the same people, with
            `new` False; another request under the name raises `OtherRequestError`.
        mechanism
            How you call the mechanism, for the history. It is public.
        epsilon
            What the mechanism spends of each person, if `people` are ids.
        lacking
            What happens to people who have less left than that: "refuse" charges nobody and raises `ExhaustedError`,
            "drop" leaves them out, and raises it if that is everybody.

        Returns
        -------
        Charged
            Its `people` is {id: ε} of those who were charged; docs/budgets-for-any-pipeline.md has an example.
        """
        if unknown:
            raise unknown_option("Ledger.charge", unknown, inspect.signature(self.charge).parameters)
        (name,) = clean_ids([release_id], "release id")
        (called,) = clean_ids([mechanism], "mechanism")
        return external.charged(self._store, name, called, external.spends_of(people, epsilon), lacking)

    def balance(self, person: str) -> Balance:
        """Return what a person asked for, has spent and has left."""
        ids = clean_ids([person])
        found = self._store.read(lambda connection, state: history.balances(connection, state, ids))
        if not found:
            raise InputError(f"{ids[0][:64]!r} is not enrolled; ids are exact text: '007' is not '7'")
        return found[0]

    def balances(self, people: Sequence[str] | None = None) -> Listing[Balance]:
        """Return the balances of everybody, or of those of some people who are enrolled, in the order of their ids."""
        return self._store.read(lambda connection, state: history.balances(connection, state, people))

    def cohorts(self) -> Listing[Balance]:
        """Return the balances of groups of people with the same budget who have spent the same."""
        return self._store.read(lambda _, state: history.cohorts(state))

    def charged(self, release_id: str) -> bool:
        """Return whether a release was charged; it may have no result yet."""
        return self._store.read(lambda connection, _: find(connection, release_id, "charge")) is not None

    def spends(self) -> dict[str, dict[str, int]]:
        """Return what each release was charged to whom: {release: {person: units}}."""
        return self._store.read(lambda connection, state: history.spends(connection, state, self.name))

    def history(self) -> Listing[Entry]:
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
        bounds: BoundsLike,
        spend: Amount | None = None,
        share: Amount | None = None,
        share_left: Amount | None = None,
        method: str = "adpm",
        variance: float | Literal["learn"] | None = None,
        releases: int = 120,
    ) -> Forecast:
        """Return how often such a release can be made, and how its error grows, without making any.

        Parameters
        ----------
        bounds, method, variance, spend, share, share_left
            As for `mean`.
        releases
            How many to look ahead at most.

        Returns
        -------
        Forecast
        """
        rule = Rule.given(spend=spend, share=share, share_left=share_left)
        ask = {"statistic": Mean(Interval.of(bounds).ordinary()), "method": method, "variance": variance}
        return history.forecast(self._store.read(lambda _, state: state), rule, ask, releases)


# --- What is handed out


def _published(name: str, charged: Event, stored: Event) -> Answer:
    """Return a stored release as it was, with what a reader should know about its people. All of it is public."""
    facts, release_id, made = charged.facts, str(charged.release), planned(charged)
    people, most = facts["people"], in_epsilon(int(books.costs(facts)[1].max(initial=0)))
    ((kind, amount),) = facts["request"]["rule"].items()
    cost = "public people without limit" if most == math.inf else f"no one was charged more than ε = {most:.9g}"
    notes = [
        f"Ledger {name}, release {release_id}, event {charged.seq}: it could use {Rule(kind, Fraction(amount))}; "
        f"{cost}.",
        *([] if who.is_sorted(made.statistic) else [who.ADDED if made.statistic.name == "sum" else who.COUNTED]),
    ]
    left_out = {
        "used_up": "had nothing left of their budget and got weight 0",
        "frozen": "lowered their budget below what was spent before and got weight 0",
        "short": "had less left than the release may use and entered with what was left",
    }
    notes += [f"{plural(people[why], 'person')} {what}." for why, what in left_out.items() if people[why]]
    shown = {"name": name, "event": charged.seq, "at": charged.at, "rule": {kind: amount}, "people": people["people"]}
    shown |= {**{why: people[why] for why in left_out}, "most_charged": jsonable(most)}
    shown |= {"rows": who.SORTED} if who.is_sorted(made.statistic) else {}
    rows = tier_rows(facts.get("tiers", {}))
    shown |= {"tiers": jsonable(rows), "warnings": warnings_of(rows)}
    kept = stored.facts["numbers"] if "numbers" in stored.facts else [stored.facts["unclamped"]]
    answer = made.statistic.answer(made, [float.fromhex(number) for number in kept], notes)
    return replace(answer, release_id=release_id, ledger=shown, about=Provenance(released=f"{charged.at[:19]}Z"))
