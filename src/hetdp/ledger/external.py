"""Charges for mechanisms that are not ours: the ledger keeps the budgets, somebody else draws the noise.

Claim. When `charged` has returned, a charge of at least the declared ε_i is on disk for every person i in the answer's
`people`, whoever wrote it, and nobody has spent more than their budget. If the caller then lets at most one result
leave under the id, of a mechanism that is ε_i-DP for each of these people and uses nobody else, the theorem of the
ledger holds with that mechanism as one more factor: everything that left is B_i-DP for person i.

Argument. A declared ε is read as the decimal that it is written as and rounded up to whole units, so the charge covers
it. Under the ledger's lock it is compared with what each person has left, in integers; who has less is left out or
stops the charge before anything is written. `State.charged` and the database compare once more. The charge is
committed before this module returns. The people of every cohort are compared with the events before the answer is
given, as before a release of ours (`people.charged_people`): somebody who was moved to a richer cohort behind the
ledger's back stops the caller. The database allows one charge for an id, and an id stands for one request: the
mechanism's name, who takes part with which ε, and what happens to people who have too little left. So asking again
charges nobody.

Whoever can write to the database can append a charge under an id that is about to be used: it has a right hash and adds
up, but may take less than will be asked, or from others. So an event says for every person of the request what was
asked of them and what they paid, which is that or nothing: who is left out stands in a cohort too, at a level that
costs nothing. `amounts` reads both from the people whom the events put there. The caller's own amounts are compared
with it person by person, on every path; `sound` compares it with the digest of what was asked that the event keeps, so
that `ledger verify` can do so years later, without the caller.

What the ledger cannot see: that the mechanism is ε_i-DP, that it waits for the charge, that it uses only the people in
the answer, that those were chosen without looking at values, and that one result leaves for one charge. A draw that
is repeated after a crash is a second result if the first one was seen by anybody: `Charged.new` is False then.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from sqlalchemy import Connection

from hetdp.core.domain import plural
from hetdp.errors import ExhaustedError, InputError, LedgerError, OtherRequestError

from . import books
from .books import EXTERNAL, Event, State, in_epsilon
from .charge import refuse_other, split
from .people import charged_people, digest, members, move_facts, named_once, tiers_of
from .store import Store, find, write

Lacking = Literal["refuse", "drop"]
"""What happens to people who have less left than the charge: nobody is charged, or they are left out."""


@dataclass(frozen=True)
class Charged:
    """Who was charged for a mechanism that is not hetdp's. Only these people's data may be used.

    Attributes
    ----------
    release_id, mechanism
        The id of the charge, and how the caller calls the mechanism.
    people
        {id: ε} of those who were charged.
    dropped
        The ids of those who had less left than was asked for; they are charged nothing and must not be used.
    event
        The number of the event in the ledger.
    new
        Whether this call made the charge. False: it was there before, and nobody was charged again. One charge pays for
        one result, so look first whether a result has left under this id.

    Examples
    --------
    >>> import tempfile
    >>> from hetdp.ledger import Ledger
    >>> folder = tempfile.TemporaryDirectory()
    >>> ledger = Ledger.create(folder.name + "/budgets.db")
    >>> print(ledger.enroll({"ann": 1, "bob": 0.25}))
    2 people enrolled
    >>> for number in (1, 2, 3):
    ...     release = {"release_id": f"round-{number}", "mechanism": "noisy gradient"}
    ...     print(ledger.charge(["ann", "bob"], epsilon=0.1, lacking="drop", **release))
    round-1: charged 2 people, at most ε = 0.1 each
    round-2: charged 2 people, at most ε = 0.1 each
    round-3: charged 1 person, at most ε = 0.1 each; 1 person left out, with too little left
    >>> ledger.balance("bob").left
    0.05
    >>> ledger.close(); folder.cleanup()
    """

    release_id: str
    mechanism: str
    people: Mapping[str, float]
    dropped: tuple[str, ...]
    event: int
    new: bool

    def __str__(self) -> str:
        most = max(self.people.values())
        verb = "charged" if self.new else "was charged before:"
        left_out = f"; {plural(len(self.dropped), 'person')} left out, with too little left" if self.dropped else ""
        return f"{self.release_id}: {verb} {plural(len(self.people), 'person')}, at most ε = {most:.9g} each{left_out}"


def spends_of(people: Mapping[str, Any] | Iterable[str], epsilon: Any) -> dict[str, int]:
    """Return {person: units} of a charge, rounded up; a bad id or ε raises and names its place."""
    if isinstance(people, str) or not isinstance(people, Iterable) or isinstance(people, Mapping) != (epsilon is None):
        raise InputError("charge a mapping {id: ε}, or a list of ids with epsilon=…")
    ids = named_once(people)
    if not ids:
        raise InputError("there is nobody to charge; name at least one person")
    if isinstance(people, Mapping):
        return {who: spend_units(cell, f" for {who[:64]!r}") for who, cell in zip(ids, people.values(), strict=True)}
    return dict.fromkeys(ids, spend_units(epsilon))


def spend_units(cell: Any, where: str = "") -> int:
    """Return an ε that somebody declares to spend, in units, rounded up.

    As for a budget, a float is the decimal number that Python prints for it, so ten charges of 0.1 are 1.

    >>> spend_units(0.1), spend_units("0.1000000001"), spend_units(1e-30)
    (100000000, 100000001, 1)
    """
    with suppress(InputError):  # what is no ε, or below 0, is no charge either
        exact, value = books.exact_epsilon(cell, where)
        units = math.ceil(exact * books.UNIT) if 0 < value < books.UNIT else 0
        if 0 < units < books.UNLIMITED:
            return units
    raise InputError(
        f"a charge must be above 0 and below 10⁹ (got {str(cell)[:64]}{where}); leave out who spends nothing, "
        "or is public and used without noise: a ledger does not record that"
    )


def charged(store: Store, release_id: str, mechanism: str, spends: Mapping[str, int], lacking: Lacking) -> Charged:
    """Charge people for a mechanism of somebody else, once under one id; see `Ledger.charge`."""
    if lacking not in get_args(Lacking):
        raise InputError(f"lacking is 'refuse' or 'drop' (got {str(lacking)[:64]!r})")
    request = {"mechanism": mechanism, "people": _fingerprint(spends), "lacking": lacking}
    event, new = store.change(lambda connection, state: _charge_once(connection, state, release_id, request, spends))
    (index,) = store.read(lambda connection, state: charged_people(connection, state, [event], store.name))
    found = amounts(event, index) if sound(event, index) else {}
    if {who: asked for who, (asked, _) in found.items()} != spends:
        raise LedgerError(
            f"the charge of {release_id!r} in {store.name} took something else than was asked for: hetdp did not write "
            "it; do not use it, and choose another id"
        )
    store.flush_head()
    paid = {who: in_epsilon(found[who][1]) for who in spends if found[who][1]}
    return Charged(release_id, mechanism, paid, tuple(who for who in spends if who not in paid), event.seq, new)


def _charge_once(
    connection: Connection, state: State, release_id: str, request: Mapping[str, Any], spends: Mapping[str, int]
) -> tuple[State, tuple[Event, bool]]:
    """Return the charge of an id and whether it is new; raise if the id stands for something else."""
    found = find(connection, release_id, "charge")
    if found is None:
        state, event = _charge_now(connection, state, release_id, request, spends)
        return state, (event, True)
    before = found.facts["request"]
    if found.facts.get("statistic") != EXTERNAL:
        raise OtherRequestError(f"release id {release_id!r} stands for a release of this ledger; choose another id")
    words = {"mechanism": "the mechanism", "people": "who takes part or with which ε", "lacking": "lacking"}
    refuse_other(release_id, "charge", before, request, words)
    return state, (found, False)


def _charge_now(
    connection: Connection, state: State, release_id: str, request: Mapping[str, Any], spends: Mapping[str, int]
) -> tuple[State, Event]:
    there = members(connection, state.head.seq, list(spends))
    if unknown := [who for who in spends if who not in there]:
        example = f"{plural(len(unknown), 'person')}, such as {unknown[0][:64]!r}"
        raise InputError(f"not enrolled: {example}; enrol them, or leave them out")
    counts = Counter((there[who], units) for who, units in spends.items())
    pays = {(cohort, units) for cohort, units in counts if units <= state.cohorts[cohort].left}
    if short := [who for who, units in spends.items() if (there[who], units) not in pays]:
        example = f"{plural(len(short), 'person')}, such as {short[0][:64]!r}"
        if request["lacking"] == "refuse":
            raise ExhaustedError(f"too little left for this charge: {example}; nobody was charged: leave them out")
        if not pays:
            raise ExhaustedError("nobody of these people has enough left; nobody was charged")
    parts = np.array([(*part, people) for part, people in counts.items()], np.int64)
    paid = np.array([units if (cohort, units) in pays else 0 for cohort, units in counts], np.int64)
    levels, index = np.unique(np.array([parts[:, 1], paid]), axis=1, return_inverse=True)
    new, where = split(state, parts, index.ravel())
    moved = {who: where[there[who], units] for who, units in spends.items() if where[there[who], units] != there[who]}
    pairs = np.array([*dict(zip(where.values(), index.ravel().tolist(), strict=True)).items()], np.int64)
    rows, some = state.rows(parts[:, 0]), paid > 0
    tiers = tiers_of(state.table[rows[some], 1], state.table[rows[some], 3], paid[some], parts[some, 2])
    payers = {who: units for who, units in spends.items() if (there[who], units) in pays}
    facts = {
        "statistic": EXTERNAL,
        "request": request,
        "asked": levels[0],
        "units": levels[1],
        "people": {"people": len(spends), "dropped": len(short), **_fingerprint(payers)},
        "tiers": {**tiers, "names": {str(asked): name for asked, name in state.names.items()}},
        "levels": pairs.ravel(),
        "new": new,
        **move_facts(there, moved.items()),
    }
    event = books.next_event(state.head, "charge", facts, release_id)
    return write(connection, state, event, moved), event


def _fingerprint(spends: Mapping[str, int]) -> dict[str, Any]:
    return {"count": len(spends), "ids": digest(f"{who}\t{units}" for who, units in spends.items())}


def amounts(event: Event, index: Mapping[str, int]) -> dict[str, tuple[int, int]]:
    """Return {person: (units asked for, units paid)} of everybody whom a charge names.

    `index` is {person: index of their level}, of the people whom the events put into its cohorts.
    """
    asked, paid = (books.integers(event.facts[name]).tolist() for name in ("asked", "units"))
    levels = list(zip(asked, paid, strict=True))
    return {who: levels[place] for who, place in index.items()}


def sound(event: Event, index: Mapping[str, int]) -> bool:
    """Say whether everybody whom a stored charge names paid what was asked of them, or was left out as it says.

    What was asked is the digest in the event's request, by which `_charge_once` knows the request again; `index` as for
    `amounts`. An event that lacks something of this was not written here.
    """
    try:
        found, said, request = amounts(event, index), event.facts["people"], event.facts["request"]
        asked, lacking = {who: units for who, (units, _) in found.items()}, request["lacking"]
        pays = {who: paid for who, (_, paid) in found.items() if paid}
        each = all(paid == units or (paid == 0 and lacking == "drop") for units, paid in found.values())
        counts = {"people": len(found), "dropped": len(found) - len(pays)}
        return (
            each
            and bool(pays)
            and _fingerprint(asked) == request["people"]
            and {**counts, **_fingerprint(pays)} == said
        )
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        return False
