"""Charges for mechanisms that are not ours: the ledger keeps the budgets, somebody else draws the noise.

Claim. When `charged` has returned, a charge of at least the declared ε_i is on disk for every person i in the answer's
`people`, and nobody has spent more than their budget. If the caller then lets at most one result leave under the id, of
a mechanism that is ε_i-DP for each of these people and uses nobody else, the theorem of the ledger holds with that
mechanism as one more factor: everything that left is B_i-DP for person i.

Argument. A declared ε is read as the decimal that it is written as and rounded up to whole units, so the charge covers
it. Under the ledger's lock it is compared with what each person has left, in integers; who has less is left out or
stops the charge before anything is written. `State.charged` and the database compare once more. The charge is
committed before this module returns. The people of every cohort are compared with the events before the answer is
given, as before a release of ours (`people.charged_people`): somebody who was moved to a richer cohort behind the
ledger's back stops the caller. The database allows one charge for an id, and an id stands for one request: the
mechanism's name, who takes part with which ε, and what happens to people who have too little left. So asking again
charges nobody.

What the ledger cannot see: that the mechanism is ε_i-DP, that it waits for the charge, that it uses only the people in
the answer, that those were chosen without looking at values, and that one result leaves for one charge. A draw that
is repeated after a crash is a second result if the first one was seen by anybody: `Charged.new` is False then.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from sqlalchemy import Connection

from hetdp.core.domain import clean_ids, plural
from hetdp.errors import InputError, LedgerError, OtherRequestError

from . import books
from .books import EXTERNAL, Event, State, in_epsilon
from .charge import split
from .people import charged_people, digest, members, move_facts, tiers_of
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
    ids = clean_ids(people)
    if not ids:
        raise InputError("there is nobody to charge; name at least one person")
    if len(set(ids)) < len(ids):  # in a mapping: two ways to write one id
        raise InputError("an id stands twice among the people, perhaps in two Unicode forms; name everybody once")
    if isinstance(people, Mapping):
        return {who: spend_units(cell, f" for {who[:64]!r}") for who, cell in zip(ids, people.values(), strict=True)}
    return dict.fromkeys(ids, spend_units(epsilon))


def spend_units(cell: Any, where: str = "") -> int:
    """Return an ε that somebody declares to spend, in units, rounded up.

    As for a budget, a float is the decimal number that Python prints for it, so ten charges of 0.1 are 1.

    >>> spend_units(0.1), spend_units("0.1000000001"), spend_units(1e-30)
    (100000000, 100000001, 1)
    """
    exact, value = books.exact_epsilon(cell, where)
    units = math.ceil(exact * books.UNIT) if 0 < value < books.UNIT else 0
    if not 0 < units < books.UNLIMITED:
        raise InputError(f"a charge must be above 0 and below 10⁹ (got {value:g}{where}); leave out who spends nothing")
    return units


def charged(store: Store, release_id: str, mechanism: str, spends: Mapping[str, int], lacking: Lacking) -> Charged:
    """Charge people for a mechanism of somebody else, once under one id; see `Ledger.charge`."""
    if lacking not in get_args(Lacking):
        raise InputError(f"lacking is 'refuse' or 'drop' (got {str(lacking)[:64]!r})")
    request = {"mechanism": mechanism, "people": _fingerprint(spends), "lacking": lacking}
    event, new = store.change(lambda connection, state: _charge_once(connection, state, release_id, request, spends))
    (index,) = store.read(lambda connection, state: charged_people(connection, state, [event], store.name))
    if not sound(event, index):
        raise LedgerError(
            f"the charge of {release_id!r} in {store.name} took something else than it says; do not use it"
        )
    store.flush_head()
    people = {who: in_epsilon(units) for who, units in spends.items() if who in index}
    dropped = tuple(who for who in spends if who not in index)
    return Charged(release_id, mechanism, people, dropped, event.seq, new)


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
    if books.canonical(before) != books.canonical(request):
        words = {"mechanism": "the mechanism", "people": "who takes part or with which ε", "lacking": "lacking"}
        differs = [
            words[name] for name, now in request.items() if books.canonical(now) != books.canonical(before[name])
        ]
        raise OtherRequestError(
            f"release id {release_id!r} stands for another charge, it differs in: {', '.join(differs)}; "
            "an id is used once: choose another one"
        )
    return state, (found, False)


def _charge_now(
    connection: Connection, state: State, release_id: str, request: Mapping[str, Any], spends: Mapping[str, int]
) -> tuple[State, Event]:
    there = members(connection, state.head.seq, list(spends))
    if unknown := [who for who in spends if who not in there]:
        example = f"{plural(len(unknown), 'person')}, such as {unknown[0][:64]!r}"
        raise InputError(f"not enrolled: {example}; enrol them, or leave them out")
    pays = {who: units for who, units in spends.items() if units <= state.cohorts[there[who]].left}
    if short := [who for who in spends if who not in pays]:
        example = f"{plural(len(short), 'person')}, such as {short[0][:64]!r}"
        if request["lacking"] == "refuse" or not pays:
            raise InputError(f"too little left for this charge: {example}; nobody was charged: leave them out")
    amounts = sorted(set(pays.values()))
    column = {units: i for i, units in enumerate(amounts)}
    counts = Counter((there[who], units) for who, units in pays.items())
    parts = np.array([(*part, people) for part, people in counts.items()], np.int64)
    index = np.array([column[units] for _, units in counts], np.int64)
    new, where = split(state, parts, index)
    moved = {who: where[there[who], units] for who, units in pays.items() if where[there[who], units] != there[who]}
    pairs = np.array([*dict(zip(where.values(), index.tolist(), strict=True)).items()], np.int64)
    rows = state.rows(parts[:, 0])
    tiers = tiers_of(state.table[rows, 1], state.table[rows, 3], parts[:, 1], parts[:, 2])
    facts = {
        "statistic": EXTERNAL,
        "request": request,
        "units": np.array(amounts, np.int64),
        "people": {"people": len(spends), "dropped": len(short), **_fingerprint(pays)},
        "tiers": {**tiers, "names": {str(asked): name for asked, name in state.names.items()}},
        "levels": pairs.ravel(),
        "new": new,
        **move_facts(there, moved.items()),
    }
    event = books.next_event(state.head, "charge", facts, release_id)
    return write(connection, state, event, moved), event


def _fingerprint(spends: Mapping[str, int]) -> dict[str, Any]:
    return {"count": len(spends), "ids": digest(f"{who}\t{units}" for who, units in spends.items())}


def sound(event: Event, index: Mapping[str, int]) -> bool:
    """Say whether a stored charge took from each person what it says, and from everybody what was asked for.

    `index` is {person: index of what they paid}, of the people whom the events put into its cohorts. Whoever can write
    to the database can append an event that adds up; what it charges and what it says must not differ.
    """
    facts = event.facts
    units, said, asked = books.integers(facts["units"]).tolist(), facts["people"], facts["request"]
    paid = _fingerprint({who: units[place] for who, place in index.items()})
    counts = said["people"] == asked["people"]["count"] and said["dropped"] == said["people"] - said["count"]
    everybody = paid == asked["people"] or (asked["lacking"] == "drop" and said["dropped"] > 0)
    return counts and everybody and paid == {name: said[name] for name in paid}
