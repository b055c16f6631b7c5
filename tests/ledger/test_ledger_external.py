"""`Ledger.charge`: budgets for mechanisms that are not hetdp's."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import threading
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hetdp
from hetdp.errors import ExhaustedError, InputError, LedgerError, OtherRequestError
from hetdp.ledger import Ledger, books, external, store
from hetdp.ledger.books import EXTERNAL, Event, next_event
from ledgers import PEOPLE, drop_guards, execute, made, mean, restore_guards
from support import examples

ROUND = {"release_id": "round-1", "mechanism": "noisy gradient"}


def spent(ledger, *people):
    return [ledger.balance(person).spent for person in people]


# --- What is charged


def test_everybody_is_charged_what_was_declared_and_nobody_else_is(ledger):
    found = ledger.charge({"p000": 0.1, "p001": "0.25", "p002": Fraction(1, 8)}, **ROUND)
    assert found.people == {"p000": 0.1, "p001": 0.25, "p002": 0.125}
    assert (found.dropped, found.new) == ((), True)
    assert spent(ledger, *PEOPLE[:4]) == [0.1, 0.25, 0.125, 0.0]
    assert sum(balance.spent for balance in ledger.balances()) == pytest.approx(0.475, abs=1e-12)


@pytest.mark.parametrize(
    ("epsilon", "units"), [(1e-10, 1), ("0.1000000001", 100_000_001), (Fraction(1, 3), 333_333_334)]
)
def test_a_charge_is_rounded_up_to_whole_units(ledger, epsilon, units):
    ledger.charge(["p000"], epsilon=epsilon, **ROUND)
    assert round(ledger.balance("p000").spent * books.UNIT) == units


def test_ten_charges_of_a_tenth_use_up_a_budget_of_one_and_the_eleventh_is_refused(ledger):
    for number in range(10):
        ledger.charge(PEOPLE, epsilon=0.1, release_id=f"round-{number}", mechanism="m")
    assert ledger.balance("p000").exhausted
    with pytest.raises(ExhaustedError, match="too little left for this charge: 200 people"):
        ledger.charge(PEOPLE, epsilon=1e-9, release_id="one more", mechanism="m")


def test_who_has_too_little_left_stops_the_charge_and_nobody_pays(ledger):
    ledger.enroll({"poor": 0.05})
    with pytest.raises(InputError, match="1 person, such as 'poor'; nobody was charged"):
        ledger.charge(["p000", "poor"], epsilon=0.1, **ROUND)
    assert spent(ledger, "p000", "poor") == [0, 0]
    assert not ledger.charged("round-1")


def test_with_drop_who_has_too_little_left_is_left_out_and_the_others_pay(ledger):
    ledger.enroll({"poor": 0.05, "frozen": 1})
    ledger.charge(["frozen"], epsilon=0.5, release_id="before", mechanism="m")
    ledger.enroll({"frozen": 0.25})
    found = ledger.charge(["p000", "poor", "frozen"], epsilon=0.1, lacking="drop", **ROUND)
    assert (found.people, found.dropped) == ({"p000": 0.1}, ("poor", "frozen"))
    assert spent(ledger, "p000", "poor", "frozen") == [0.1, 0, 0.5]
    ledger.verify()


def test_with_drop_a_charge_that_nobody_can_pay_is_refused(ledger):
    with pytest.raises(ExhaustedError, match=r"^nobody of these people has enough left; nobody was charged$"):
        ledger.charge(PEOPLE, epsilon=2, lacking="drop", **ROUND)


def test_rounds_go_on_until_budgets_are_used_up_and_end_with_an_error_of_their_own(ledger):
    """Each round is paid by whoever can; the first that nobody can pay ends it, and any other mistake does not."""
    rounds = 0
    with contextlib.suppress(ExhaustedError):
        for rounds in range(100):
            ledger.charge(PEOPLE, epsilon=0.3, lacking="drop", release_id=f"round-{rounds}", mechanism="m")
    assert rounds == max(int(balance.budget / 0.3) for balance in ledger.balances())
    assert not ledger.charged(f"round-{rounds}")
    with pytest.raises(InputError) as mistake:
        ledger.charge(["nobody"], epsilon=0.3, lacking="drop", **ROUND)
    assert not isinstance(mistake.value, ExhaustedError)


def test_public_people_pay_too_and_nothing_stops_them(ledger):
    ledger.enroll({"public": "inf"})
    for number in range(3):
        ledger.charge({"public": 9e8}, release_id=f"round-{number}", mechanism="m")
    assert ledger.balance("public").spent >= 1e9
    ledger.verify()


REFUSED = {
    "one text": ("p000", {"epsilon": 0.1}, "a list of ids with epsilon"),
    "ids without epsilon": (["p000"], {}, "a list of ids with epsilon"),
    "a mapping with epsilon": ({"p000": 0.1}, {"epsilon": 0.1}, "a list of ids with epsilon"),
    "nobody": ([], {"epsilon": 0.1}, "nobody to charge"),
    "twice": (["p000", "p000"], {"epsilon": 0.1}, "twice"),
    "unknown": (["p000", "who"], {"epsilon": 0.1}, "not enrolled: 1 person, such as 'who'"),
    "nothing": (["p000"], {"epsilon": 0}, "above 0"),
    "less than a double": (["p000"], {"epsilon": "1e-999999999"}, "above 0"),
    "infinity": (["p000"], {"epsilon": "inf"}, "below 10⁹"),
    "negative": ({"p000": -1}, {}, "above 0 and below 10⁹ .got -1 for 'p000'"),
    "not a number": ({"p000": float("nan")}, {}, "above 0 and below 10⁹ .got nan for 'p000'"),
    "a word": (["p000"], {"epsilon": "much"}, "above 0 and below 10⁹ .got much"),
    "public": ({"p000": "public"}, {}, "got public for 'p000'.*is public and used without noise"),
    "another word": (["p000"], {"epsilon": 0.1, "lacking": "skip"}, "'refuse' or 'drop'"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_wrong_charge_is_refused_in_words_and_nobody_pays(tmp_path, case):
    people, options, words = REFUSED[case]
    with made(str(tmp_path / "b.db")) as ledger:
        with pytest.raises(InputError, match=words):
            ledger.charge(people, **options, **ROUND)
        assert {balance.spent for balance in ledger.balances()} == {0}


# --- Once under one id


def test_the_same_id_and_request_charge_nobody_again_also_after_other_charges_and_reopening(where):
    with made(where) as ledger:
        first = ledger.charge(PEOPLE[:3], epsilon=0.4, **ROUND)
        ledger.charge(PEOPLE[:2], epsilon=0.3, release_id="round-2", mechanism="m")
        ledger.enroll({"p000": 0.7})
    with Ledger(where) as ledger:
        again = ledger.charge(reversed(PEOPLE[:3]), epsilon="0.40", **ROUND)
        assert (again.people, again.event, again.new) == (first.people, first.event, False)
        assert spent(ledger, *PEOPLE[:4]) == [0.7, 0.7, 0.4, 0]
        ledger.verify()


def test_dropped_people_stay_dropped_when_the_same_charge_is_asked_for_again(ledger):
    ledger.enroll({"poor": 0.05})
    ask = {"people": ["p000", "poor"], "epsilon": 0.1, "lacking": "drop", **ROUND}
    first = ledger.charge(**ask)
    ledger.enroll({"poor": 5})
    again = ledger.charge(**ask)
    assert (again.people, again.dropped, again.new) == (first.people, ("poor",), False)
    assert spent(ledger, "poor") == [0]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"epsilon": 0.2}, "with which ε"),
        ({"people": ["p000"]}, "who takes part"),
        ({"mechanism": "another"}, "the mechanism"),
        ({"lacking": "drop"}, "lacking"),
    ],
    ids=["epsilon", "people", "mechanism", "lacking"],
)
def test_another_request_under_the_same_id_is_refused_and_nobody_pays(ledger, change, words):
    ask = {"people": ["p000", "p001"], "epsilon": 0.1, **ROUND}
    ledger.charge(**ask)
    with pytest.raises(OtherRequestError, match=words):
        ledger.charge(**{**ask, **change})
    assert spent(ledger, "p000", "p001") == [0.1, 0.1]


def test_an_id_stands_for_a_release_or_for_a_charge_and_never_for_both(ledger):
    mean(ledger, "may")
    with pytest.raises(OtherRequestError, match="stands for a release of this ledger"):
        ledger.charge(["p000"], epsilon=0.1, release_id="may", mechanism="m")
    ledger.charge(["p000"], epsilon=0.1, release_id="june", mechanism="m")
    with pytest.raises(OtherRequestError, match="a charge of another mechanism"):
        mean(ledger, "june")


def test_after_a_crash_behind_the_commit_the_same_request_finds_its_charge(where, monkeypatch):
    with made(where) as ledger, monkeypatch.context() as patch:
        patch.setattr(external, "charged_people", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            ledger.charge(PEOPLE[:2], epsilon=0.4, **ROUND)
    with Ledger(where) as ledger:
        assert spent(ledger, "p000") == [0.4]
        assert not ledger.charge(PEOPLE[:2], epsilon=0.4, **ROUND).new
        assert spent(ledger, "p000", "p001") == [0.4, 0.4]


def test_after_a_crash_before_the_commit_nothing_is_charged(where, monkeypatch):
    with made(where) as ledger, monkeypatch.context() as patch:
        patch.setattr(external, "write", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            ledger.charge(PEOPLE[:2], epsilon=0.4, **ROUND)
    with Ledger(where) as ledger:
        assert spent(ledger, "p000") == [0]
        assert ledger.charge(PEOPLE[:2], epsilon=0.4, **ROUND).new


def test_of_many_who_charge_the_same_id_at_once_one_does(where):
    made(where).close()
    found, barrier = [], threading.Barrier(4)

    def ask():
        with Ledger(where) as mine:
            barrier.wait()
            found.append(mine.charge(PEOPLE, epsilon=0.3, **ROUND))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert Counter(one.new for one in found) == {True: 1, False: 3}
    with Ledger(where) as ledger:
        assert spent(ledger, "p000") == [0.3]


# --- Any sequence


charge_steps = st.lists(
    st.tuples(
        st.sampled_from(["charge", "drop", "mean", "again"]),
        st.sampled_from([0.1, 1 / 3, 0.7, 1e-9]),
        st.sets(st.integers(0, 11), min_size=1),
    ),
    min_size=1,
    max_size=8,
)


def sequence(folder, budgets, steps):
    """Carry out charges and releases; what is spent must be at least what fractions say, and within every budget."""
    people = [f"p{i}" for i in range(len(budgets))]
    ledger, total, done = Ledger.create(str(folder / "b.db")), dict.fromkeys(people, Fraction(0)), []
    ledger.enroll(dict(zip(people, budgets, strict=True)))
    for number, (kind, epsilon, some) in enumerate(steps):
        ask = {"people": [people[i] for i in sorted(some)], "epsilon": epsilon, "mechanism": "m"}
        ask |= {"release_id": f"r{number}", "lacking": "refuse" if kind == "charge" else "drop"}
        if kind == "mean":
            values = {"person": people, "bounds": (0, 1), "missing": "midpoint", "release_id": f"r{number}"}
            answer = ledger.mean([0.5] * len(people), spend=epsilon, people=ask["people"], **values)
            assert answer is not None
            before = {p: Fraction(round(ledger.balance(p).spent * books.UNIT), books.UNIT) for p in people}
            total = {p: max(total[p], before[p]) for p in people}  # what a release charges has tests of its own
            continue
        if kind == "again" and done:
            ask, _ = done[0]
        try:
            found = ledger.charge(**ask)
        except InputError:
            continue
        for person in found.people if found.new else ():
            total[person] += Fraction(repr(epsilon))
        done.append((ask, found))
    for person, budget in zip(people, budgets, strict=True):
        units = round(ledger.balance(person).spent * books.UNIT)
        assert total[person] * books.UNIT <= units <= budget * books.UNIT
    ledger.verify()
    ledger.close()


@settings(max_examples=examples(25), deadline=None)
@given(st.lists(st.sampled_from([0.1, 0.5, 1.0, 2.5]), min_size=12, max_size=12), charge_steps)
def test_no_sequence_of_charges_and_releases_makes_anybody_pass_their_budget(tmp_path_factory, budgets, steps):
    sequence(tmp_path_factory.mktemp("ledgers"), budgets, steps)


def test_control_charges_that_are_rounded_down_are_caught(tmp_path, monkeypatch):
    monkeypatch.setattr(external, "spend_units", lambda cell, _="": int(Fraction(repr(cell)) * books.UNIT))
    with pytest.raises(AssertionError):
        sequence(tmp_path, [1.0] * 12, [("charge", 1 / 3, {0, 1})] * 2)


# --- What a ledger tells of them


def test_history_and_verification_tell_charges_of_other_mechanisms_from_releases(ledger):
    mean(ledger, "may")
    ledger.charge(PEOPLE[:2], epsilon=0.3, **ROUND)
    *_, entry = ledger.history()
    assert (entry.kind, entry.release, entry.people, entry.most) == ("charge", "round-1", 2, 0.3)
    assert str(entry).endswith("round-1: charged 2 people, at most ε = 0.3 each for noisy gradient")
    found = ledger.verify()
    assert (found.charges, found.results, found.external) == (1, 1, 1)
    assert "1 release, 1 charge of other mechanisms" in str(found)
    assert ledger.charged("round-1")


def test_a_charge_says_its_format_measure_and_statistic_and_keeps_no_id_in_the_event(ledger, where):
    ledger.charge(PEOPLE[:2], epsilon=0.3, **ROUND)
    body = ledger._store.read(lambda connection, _: store.find(connection, "round-1", "charge").body)
    facts = json.loads(body)
    assert {name: facts[name] for name in ("format", "version", "measure", "statistic")} == {
        "format": "hetdp-ledger-event",
        "version": 1,
        "measure": "pure-epsilon",
        "statistic": EXTERNAL,
    }
    assert "p000" not in body


def test_a_package_that_does_not_know_such_charges_refuses_the_ledger(tmp_path, monkeypatch):
    where = str(tmp_path / "b.db")
    with made(where) as ledger:
        ledger.charge(PEOPLE[:2], epsilon=0.3, **ROUND)
    monkeypatch.setattr(books, "EXTERNAL", "mean")  # as it was before there were any
    with pytest.raises(LedgerError, match="statistic 'external', which this hetdp does not know; update hetdp"):
        Ledger(where)


def test_only_a_charge_can_be_of_another_mechanism():
    with pytest.raises(LedgerError, match="statistic 'external'"):
        _ = Event(1, "result", "r", "", '{"statistic":"external"}', "").facts


# --- Behind the ledger's back


def test_somebody_who_was_moved_to_richer_people_stops_the_charge(where):
    strict, rich = "strict", [f"open{i}" for i in range(5)]
    with Ledger.create(where) as ledger:
        ledger.enroll({strict: 0.01, **dict.fromkeys(rich, 2)})
    drop_guards(where)
    change = "UPDATE hetdp_member SET person = "
    execute(
        where,
        f"{change}'x' WHERE person = '{strict}'",
        f"{change}'{strict}' WHERE person = 'open0'",
        f"{change}'open0' WHERE person = 'x'",
    )
    restore_guards(where)
    with Ledger(where) as ledger, pytest.raises(LedgerError, match="are not those who were written down"):
        ledger.charge([strict], epsilon=1, **ROUND)


REAL, FEW = external.spends_of(PEOPLE[:3], 0.3), dict.fromkeys(PEOPLE[:3], 1)
ASK = {"people": PEOPLE[:3], "epsilon": 0.3, **ROUND}


def forged(tmp_path, monkeypatch, lacking, spends=REAL, change=lambda facts: facts):
    """Return a ledger to which somebody without its head file has appended a charge, under an id that is not used yet.

    Its request is the one that will come, its hash is right and it adds up: whoever can write to the database can do
    that. What it takes are the `spends`, and `change` is what it says otherwise.
    """
    where, real = str(tmp_path / "b.db"), next_event
    made(where).close()
    request = {"mechanism": ROUND["mechanism"], "people": external._fingerprint(REAL), "lacking": lacking}
    forger = store.Store(where, str(tmp_path / "forger.head"))
    with monkeypatch.context() as patch:
        patch.setattr(
            external.books,
            "next_event",
            lambda head, kind, facts, release=None: real(head, kind, change(facts), release),
        )
        forger.change(lambda *there: external._charge_now(*there, ROUND["release_id"], request, spends))
    forger.close()
    return where


def cheaper(facts):
    return {**facts, "units": facts["units"] - 1}


def cheaper_and_says_so(facts):
    """Take a unit less of everybody, and write down the digest of what was really taken."""
    paid = {who: units - 1 for who, units in REAL.items()}
    return {**cheaper(facts), "people": {"people": len(paid), "dropped": 0, **external._fingerprint(paid)}}


def of_fewer(facts):
    return {**facts, "people": {**facts["people"], "count": 1}}


def as_if_it_was_asked(facts):
    """Take a unit of everybody, and write down the digest and the amounts of the request that will come."""
    said = {"people": len(REAL), "dropped": 0, **external._fingerprint(REAL)}
    return {**facts, "people": said, "asked": [*REAL.values()][:1]}


def without_what_was_asked(facts):
    return {name: fact for name, fact in facts.items() if name != "asked"}


def with_amounts_that_no_column_holds(facts):
    return {**facts, "asked": [10**30]}


def from_nobody(facts):
    return {**facts, "units": facts["units"] * 0}


FORGED = {
    "a unit of everybody": {"spends": FEW},
    "a unit of everybody as if it was asked": {"spends": FEW, "change": as_if_it_was_asked},
    "one left out": {"spends": {**FEW, PEOPLE[0]: 10**12}},
    "one not named": {"spends": {who: REAL[who] for who in PEOPLE[:2]}},
    "somebody else": {"spends": {**REAL, PEOPLE[3]: REAL[PEOPLE[0]]}},
    **{
        f.__name__: {"change": f} for f in (cheaper, cheaper_and_says_so, of_fewer, without_what_was_asked, from_nobody)
    },
    "amounts that no column holds": {"change": with_amounts_that_no_column_holds},
}
CASES = [
    (case, lacking)
    for case in FORGED
    for lacking in ("drop", "refuse")
    if (case, lacking) != ("one left out", "refuse")
]


@pytest.mark.parametrize(("case", "lacking"), CASES)
def test_a_forged_charge_that_took_something_else_than_was_asked_allows_nothing(tmp_path, monkeypatch, case, lacking):
    where = forged(tmp_path, monkeypatch, lacking, **FORGED[case])
    with Ledger(where) as ledger:
        before = spent(ledger, *PEOPLE[:4])
        for _ in range(2):
            with pytest.raises(LedgerError, match="took something else than was asked for"):
                ledger.charge(**ASK, lacking=lacking)
        assert spent(ledger, *PEOPLE[:4]) == before
        assert ledger.charge(**{**ASK, "release_id": "another id"}, lacking=lacking).new


@pytest.mark.parametrize(("case", "lacking"), CASES)
def test_verification_notices_a_charge_that_took_something_else_than_was_asked(tmp_path, monkeypatch, case, lacking):
    where = forged(tmp_path, monkeypatch, lacking, **FORGED[case])
    with Ledger(where) as ledger, pytest.raises(LedgerError, match="charges something else than was asked for"):
        ledger.verify()


@pytest.mark.parametrize("lacking", ["drop", "refuse"])
def test_control_the_same_forger_who_takes_what_is_asked_is_believed(tmp_path, monkeypatch, lacking):
    """Everybody has paid then: the caller may use their data."""
    with Ledger(forged(tmp_path, monkeypatch, lacking)) as ledger:
        assert ledger.verify().external == 1
        found = ledger.charge(**ASK, lacking=lacking)
        assert (found.new, found.dropped, found.people) == (False, (), dict.fromkeys(PEOPLE[:3], 0.3))
        assert spent(ledger, *PEOPLE[:4]) == [0.3, 0.3, 0.3, 0]


def test_where_nobody_may_be_left_out_a_person_who_paid_nothing_is_noticed(tmp_path, monkeypatch):
    where = forged(tmp_path, monkeypatch, "drop", {**REAL, PEOPLE[0]: 10**12}, _as_refused)
    with Ledger(where) as ledger:
        with pytest.raises(LedgerError, match="took something else than was asked for"):
            ledger.charge(**ASK)
        with pytest.raises(LedgerError, match="charges something else than was asked for"):
            ledger.verify()


def _as_refused(facts):
    """Say that all was asked of everybody, although one person pays nothing."""
    asked = np.full_like(facts["asked"], REAL[PEOPLE[0]])
    return {**facts, "asked": asked, "request": {**facts["request"], "lacking": "refuse"}}


def test_what_was_asked_of_people_who_were_left_out_is_in_the_history_too(ledger):
    ledger.enroll({"poor": 0.05, "bare": 0.05})
    found = ledger.charge({"p000": 0.1, "poor": 0.1, "p001": 0.2}, lacking="drop", **ROUND)
    event, index = ledger._store.read(
        lambda connection, state: (
            one := store.find(connection, "round-1", "charge"),
            *external.charged_people(connection, state, [one], ""),
        )
    )
    tenth = books.UNIT // 10
    assert external.amounts(event, index) == {
        "p000": (tenth, tenth),
        "poor": (tenth, 0),
        "p001": (2 * tenth, 2 * tenth),
    }
    assert found.dropped == ("poor",)
    assert spent(ledger, "poor", "bare") == [0, 0]
    ledger.verify()


def test_a_charge_that_is_changed_in_the_file_breaks_the_chain(tmp_path):
    where = str(tmp_path / "b.db")
    with made(where) as ledger:
        ledger.charge(PEOPLE[:2], epsilon=0.3, **ROUND)
    drop_guards(where)
    change = "UPDATE hetdp_event SET body = replace(body, '300000000', '200000000') WHERE release = 'round-1'"
    assert execute(where, change) == [1]
    restore_guards(where)
    with pytest.raises(LedgerError, match="broken chain"):
        Ledger(where)


def test_an_answer_is_given_only_when_the_charge_is_committed(tmp_path, monkeypatch):
    """Another connection sees the charge before the caller has its answer."""
    where, seen = str(tmp_path / "b.db"), []
    real = external.charged_people

    def watched(*arguments):
        other = sqlite3.connect(where)
        seen.extend(other.execute("SELECT release FROM hetdp_event WHERE kind = 'charge'").fetchall())
        other.close()
        return real(*arguments)

    monkeypatch.setattr(external, "charged_people", watched)
    with made(where) as ledger:
        ledger.charge(PEOPLE[:2], epsilon=0.3, **ROUND)
    assert seen == [("round-1",)]


# --- The command


def test_the_command_charges_once_and_lists_whose_data_may_be_used(tmp_path, monkeypatch, hetdp_command):
    monkeypatch.chdir(tmp_path)
    with hetdp.Ledger.create("b.db") as ledger:
        ledger.enroll({"ann": 1, "bob": 0.05})
    (tmp_path / "round.txt").write_text("ann\nbob\n")
    words = ["ledger", "charge", "b.db", "--release-id", "r1", "--mechanism", "gradient", "--epsilon", "0.1"]
    code, out, err = hetdp_command(*words, "--ids", "round.txt")
    assert (code, out) == (2, "")
    assert "too little left for this charge: 1 person, such as 'bob'" in err
    code, out, _ = hetdp_command(*words, "--ids", "round.txt", "--drop")
    assert code == 0
    assert out.startswith(
        "r1: charged 1 person, at most ε = 0.1 each; 1 person left out, with too little left\n  ann\nhead "
    )
    code, out, _ = hetdp_command(*words, "--id", "ann", "--id", "bob", "--drop", "--json")
    found = json.loads(out)
    assert (code, found["people"], found["dropped"], found["new"]) == (0, {"ann": 0.1}, ["bob"], False)
    assert hetdp_command(*words)[0] == 2
    assert "gradient" in hetdp_command("ledger", "history", "b.db")[1]
