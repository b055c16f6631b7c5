"""Attacks by somebody who can write to a ledger's database, rows 101 and 102: scripts that must fail against the code.

Each attack is a function that returns what the attacker got. It is run twice: against the code, where it gets nothing,
and against an older version that is planted for the moment, where it succeeds. So the script is known to bite.
"""

from __future__ import annotations

import pytest

from hetdp.ledger import ChargedError, Ledger, LedgerError, store
from hetdp.ledger import charge as ledger_charge
from hetdp.ledger import people as ledger_people
from hetdp.ledger import rows as ledger_rows
from hetdp.ledger.books import Event, levels_of
from ledgers import drop_guards, execute, restore_guards

STRICT, OPEN = "strict", [f"open{i}" for i in range(100)]
MOVE = "INSERT INTO hetdp_member (person, event, cohort) VALUES "


def next_event(where):
    (row,) = selected(where, "SELECT seq + 1 FROM hetdp_ledger")
    return row[0]


def selected(where, query):
    import sqlite3

    import psycopg

    connection = psycopg.connect(where) if "://" in where else sqlite3.connect(where)
    try:
        return connection.execute(query).fetchall()
    finally:
        connection.close()


def cohort_of(where, person):
    return selected(where, f"SELECT cohort FROM hetdp_member WHERE person = '{person}' ORDER BY event")[-1][0]  # noqa: S608


def moved(where):
    """The strict person comes to the cohort of the others: one more row, as an event that is to come would write it."""
    execute(where, f"{MOVE}('{STRICT}', {next_event(where)}, {cohort_of(where, OPEN[0])})")


def swapped(where):
    """The strict person and another one change places: all counts stay as they are."""
    here, there, event = cohort_of(where, STRICT), cohort_of(where, OPEN[0]), next_event(where)
    execute(where, f"{MOVE}('{STRICT}', {event}, {there})", f"{MOVE}('{OPEN[0]}', {event}, {here})")


def rewritten(where):
    """Row 102: the triggers go, the old rows themselves are changed, the triggers come back."""
    here, there = cohort_of(where, STRICT), cohort_of(where, OPEN[0])
    drop_guards(where)
    change = "UPDATE hetdp_member SET cohort = "
    execute(where, f"{change}{there} WHERE person = '{STRICT}'", f"{change}{here} WHERE person = '{OPEN[0]}'")
    restore_guards(where)


def renamed(where):
    """The ids change hands, so that each row stays in its cohort."""
    drop_guards(where)
    change = "UPDATE hetdp_member SET person = "
    execute(
        where,
        f"{change}'x' WHERE person = '{STRICT}'",
        f"{change}'{STRICT}' WHERE person = '{OPEN[0]}'",
        f"{change}'{OPEN[0]}' WHERE person = 'x'",
    )
    restore_guards(where)


def unguarded(where):
    """The triggers go and stay away."""
    rewritten(where)
    drop_guards(where)


MOVES = [moved, swapped, rewritten, renamed, unguarded]


def placed(charged, there):
    """{person: index of their level} as a charge has it, for people who are said to be in these cohorts."""
    index = dict(levels_of(charged.facts).tolist())
    return {person: index[cohort] for person, cohort in there.items() if cohort in index}


def attack_on_members(where, move, monkeypatch, *, reopened):
    """Return the ε at which the strict person's value was used; None if no value was read."""
    read, used = ledger_rows.tallies_of, []

    def watched(rows, parts):
        ((places, plan),) = parts
        used.append(float(plan.levels.epsilon[places[STRICT]]))
        return read(rows, parts)

    monkeypatch.setattr(ledger_rows, "tallies_of", watched)
    ledger = Ledger.create(where)
    ledger.enroll({STRICT: 0.01, **dict.fromkeys(OPEN, 2)})
    if reopened:
        ledger.close()
        move(where)
        ledger = Ledger(where)
    else:
        move(where)
    people = [STRICT, *OPEN]
    with ledger:
        try:
            ledger.mean([1.0] * 101, person=people, bounds=(0, 1), spend=2, release_id="may", missing="midpoint")
        except LedgerError:
            return None
    return used[0]


@pytest.mark.parametrize("reopened", [False, True], ids=["while it is open", "while it is closed"])
@pytest.mark.parametrize("move", MOVES, ids=lambda move: move.__name__)
def test_rows_101_and_102_nobody_is_counted_in_a_cohort_to_which_no_event_brought_them(
    where, move, monkeypatch, reopened
):
    assert attack_on_members(where, move, monkeypatch, reopened=reopened) is None


@pytest.mark.parametrize("move", MOVES, ids=lambda move: move.__name__)
def test_control_rows_101_and_102_the_attack_succeeds_where_members_are_not_compared(where, move, monkeypatch):
    def as_before(connection, _, charged, __):
        return [placed(one, ledger_people.members(connection, one.seq)) for one in charged]

    monkeypatch.setattr(ledger_charge, "charged_people", as_before)
    used = attack_on_members(where, move, monkeypatch, reopened=True)
    assert used > 0.1, f"the strict person allowed 0.01 and was used at {used}"


def test_row_101_a_row_of_a_person_must_belong_to_the_event_that_is_being_written(ledger, where):
    """The database itself refuses any other; what it cannot refuse, a release and `verify` notice."""
    import sqlite3

    import psycopg

    for event in (1, next_event(where) + 1, 99):
        with pytest.raises((sqlite3.DatabaseError, psycopg.DatabaseError), match="append-only"):
            execute(where, f"{MOVE}('p000', {event}, 1)")
    assert ledger.verify().people == 200


def test_row_101_a_false_row_that_was_used_for_a_later_move_and_then_taken_away_is_noticed(where):
    """The move tells where the person came from, and that is compared too."""
    ledger = Ledger.create(where)
    ledger.enroll({STRICT: 1, **dict.fromkeys(OPEN, 2)})
    values = {"person": [STRICT, *OPEN], "bounds": (0, 1), "missing": "midpoint"}
    ledger.mean([1.0] * 101, **values, spend=1, release_id="may")
    place = {person: cohort_of(where, person) for person in (STRICT, OPEN[0])}
    change = "UPDATE hetdp_member SET cohort = {} WHERE event = 2 AND person = '{}'"
    drop_guards(where)
    execute(where, change.format(place[OPEN[0]], STRICT))
    restore_guards(where)
    ledger.enroll({STRICT: 3})  # from the cohort of the others, as it seems
    drop_guards(where)
    execute(where, change.format(place[STRICT], STRICT))
    restore_guards(where)
    with pytest.raises((ChargedError, LedgerError), match="people"):
        ledger.mean([1.0] * 101, **values, spend=1, release_id="june")
    ledger.close()


def test_rows_101_and_102_a_release_that_is_resumed_compares_members_too(where, monkeypatch):
    """Charged, cut off before values were read, then somebody is moved: the charge is not carried out."""
    ledger = Ledger.create(where)
    ledger.enroll({STRICT: 0.01, **dict.fromkeys(OPEN, 2)})
    request = {"person": [STRICT, *OPEN], "bounds": (0, 1), "spend": 2, "release_id": "may", "missing": "midpoint"}

    def cut_off(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(ledger_rows, "tallies_of", cut_off)
    with pytest.raises(ChargedError):
        ledger.mean([1.0] * 101, **request)
    monkeypatch.undo()
    rewritten(where)
    with pytest.raises(ChargedError, match="people"):
        ledger.mean([1.0] * 101, **request)
    ledger.close()


def forged(where, folder, monkeypatch):
    """Have the database show another charge for a moment: that of a decoy, in which the strict person allows more."""
    with Ledger.create(folder / "decoy.db") as decoy:
        decoy.enroll({STRICT: 900, **dict.fromkeys(OPEN, 1000)})
        decoy.mean([0.0] * 101, person=[STRICT, *OPEN], bounds=(0, 1), spend=2, release_id="may", missing="midpoint")
        charge = decoy._store.read(lambda connection, _: store.find(connection, "may", "charge"))
    real = ledger_charge.find
    (row,) = selected(where, "SELECT seq, at, hash FROM hetdp_event WHERE seq = 2")
    false = Event(row[0], "charge", "may", row[1], charge.body, row[2])

    def find(connection, release, kind):
        return false if kind == "charge" else real(connection, release, kind)

    monkeypatch.setattr(ledger_charge, "find", find)


def attack_by_a_forged_charge(where, folder, monkeypatch):
    """Return the ε at which the strict person's value was used; None if no value was read."""
    read, used = ledger_rows.tallies_of, []

    def watched(rows, parts):
        ((places, plan),) = parts
        used.append(float(plan.levels.epsilon[places[STRICT]]))
        return read(rows, parts)

    monkeypatch.setattr(ledger_rows, "tallies_of", watched)
    with Ledger.create(where) as ledger:
        ledger.enroll({STRICT: 0.01, **dict.fromkeys(OPEN, 2)})
        forged(where, folder, monkeypatch)
        try:
            ledger.mean(
                [1.0] * 101, person=[STRICT, *OPEN], bounds=(0, 1), spend=2, release_id="may", missing="midpoint"
            )
        except LedgerError:
            return None
    return used[0]


def test_row_101_a_charge_that_is_not_in_the_history_is_not_carried_out(where, tmp_path, monkeypatch):
    assert attack_by_a_forged_charge(where, tmp_path, monkeypatch) is None


def test_control_row_101_the_attack_succeeds_where_the_charge_is_not_compared(where, tmp_path, monkeypatch):
    def as_before(connection, book, charged, name):
        (one,) = charged
        replayed = ledger_people.replayed(connection, book, name)
        (there,) = (dict(there) for event, there in replayed if event.seq == one.seq)
        return [placed(one, there)]

    monkeypatch.setattr(ledger_charge, "charged_people", as_before)
    assert attack_by_a_forged_charge(where, tmp_path, monkeypatch) > 0.1
