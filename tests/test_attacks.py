"""Attacks by somebody who can write to a database but has no key: scripts that must fail against the code.

Each attack is a function that returns what the attacker got. It is run twice: against the code, where it gets nothing,
and against an older version that is planted for the moment, where it succeeds. So the script is known to bite.
"""

from __future__ import annotations

import stat
from dataclasses import replace

import pytest
import sqlalchemy as sa

import postgres
from hetdp import InputError
from hetdp.ledger import ChargedError, Ledger, LedgerError, _members, _release, _rows
from hetdp.ledger._amounts import UNLIMITED
from hetdp.server import create_app, insight, keys, publish, store, studies
from hetdp.server.register import ChangedError, Register
from ledgers import drop_guards, execute, restore_guards
from serving import served, settings_for

# ---------------------------------------------------------------------------------------------------------
# Rows 101 and 102: people who are moved between cohorts behind the ledger's back

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


def attack_on_members(where, move, monkeypatch, *, reopened):
    """Return the ε at which the strict person's value was used; None if no value was read."""
    read, used = _rows.tally_of, []

    def watched(rows, places, plan):
        used.append(float(plan.levels.epsilon[places[STRICT]]))
        return read(rows, places, plan)

    monkeypatch.setattr(_rows, "tally_of", watched)
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
            ledger.mean([1.0] * 101, user=people, bounds=(0, 1), spend=2, release_id="may")
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
    def as_before(connection, _book, upto, _name):
        return _members.members(connection, upto)

    monkeypatch.setattr(_release, "checked_members", as_before)
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
    values = {"user": [STRICT, *OPEN], "bounds": (0, 1)}
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
    request = {"user": [STRICT, *OPEN], "bounds": (0, 1), "spend": 2, "release_id": "may"}

    def cut_off(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(_rows, "tally_of", cut_off)
    with pytest.raises(ChargedError):
        ledger.mean([1.0] * 101, **request)
    monkeypatch.undo()
    rewritten(where)
    with pytest.raises(ChargedError, match="people"):
        ledger.mean([1.0] * 101, **request)
    ledger.close()


# ---------------------------------------------------------------------------------------------------------
# Row 100: the server's database, in the hands of somebody without the key

TIERS = [
    {"name": "strict", "epsilon": 0.01, "sentence": ""},
    {"name": "open", "epsilon": 2.0, "sentence": ""},
    {"name": "public", "epsilon": "inf", "sentence": ""},
]
SECRET = 7.25


@pytest.fixture(params=["sqlite", "postgresql"])
def server_settings(request, tmp_path):
    if request.param == "sqlite":
        yield settings_for(tmp_path)
        return
    running = request.getfixturevalue("durable_server")
    with running.database() as name:
        yield settings_for(tmp_path, running.url(name).replace("postgresql://", "postgresql+psycopg://"))


class World:
    """A server with one victim among people whose answers the attacker knows, and the attacker's own connection."""

    def __init__(self, settings, site, tier="strict"):
        self.settings, self.site = settings, site
        self.study = site.study(tiers=TIERS)
        (self.victim,) = site.join(self.study, [(SECRET, tier)])
        (self.person,) = [row["id"] for row in self.rows() if row["study"] == self.study]
        site.join(self.study, [(0.0, "public")] * 30)

    def rows(self, table=store.people):
        engine = store.connect(self.settings.database)
        with engine.begin() as connection:
            found = [dict(row) for row in connection.execute(sa.select(table)).mappings()]
        engine.dispose()
        return found

    def row(self, person=None):
        return next(row for row in self.rows() if row["id"] == (person or self.person))

    def write(self, table, key, **cells):
        """Change a row behind the server's back."""
        engine = store.connect(self.settings.database)
        with engine.begin() as connection:
            assert connection.execute(sa.update(table).where(table.c.id == key).values(cells)).rowcount == 1
        engine.dispose()

    def change(self, **cells):
        self.write(store.people, self.person, **cells)

    def put_back(self, row):
        """Put an older row of the victim back; links and invitations stay as they are."""
        self.change(**{name: row[name] for name in ("epsilon", "answer", "version")})

    def impersonate(self):
        """Return a client with a session of the victim's, forged by a row in the table of sessions."""
        engine, token = store.connect(self.settings.database), keys.fresh()
        row = {"hash": keys.digest("session", token), "person": self.person, "expires": 2**40}
        with engine.begin() as connection:
            connection.execute(sa.insert(store.sessions).values(row))
        engine.dispose()
        client = self.site.client(X_CSRF_Token=keys.csrf_of(token))
        client.cookies.set("hetdp_person", token)
        return client


def raised_and_set_back(world):
    """The attack of row 100: charge a plan at 1000, then have it carried out with the strict answer."""
    world.change(epsilon=1000.0)
    world.site.publish(world.study)
    world.change(epsilon=0.01)


def raised(world):
    world.change(epsilon=1000.0)


def swapped_epsilon(world):
    other = next(row for row in world.rows() if row["id"] != world.person)
    world.write(store.people, other["id"], epsilon=0.01)
    world.change(epsilon=other["epsilon"])


def lowered_and_put_back(world):
    """The victim lowers their ε; the row from before comes back, with its own sealed answer."""
    before = world.row()
    assert world.victim.put("/api/answer", json={"value": SECRET, "tier": "strict"}).status_code == 200
    world.put_back(before)


def withdrawn_and_put_back(world):
    before = world.row()
    assert world.victim.delete("/api/answer").status_code == 200
    world.put_back(before)


def hidden_from_the_change(world):
    """The row is emptied while the victim lowers their ε, and what they then sent is withdrawn in their name."""
    before = world.row()
    world.change(epsilon=None, answer=None)
    assert world.victim.put("/api/answer", json={"value": SECRET, "tier": "strict"}).status_code == 200
    assert world.impersonate().delete("/api/answer").status_code == 200
    world.put_back(before)


def replayed_over_and_over(world):
    """Old rows stand in while new ones are written, in the hope that what the server takes away cancels."""
    before = world.row()
    for _ in range(3):
        assert world.victim.put("/api/answer", json={"value": SECRET, "tier": "strict"}).status_code == 200
        now = world.row()
        world.put_back(before)
        assert world.victim.put("/api/answer", json={"value": SECRET, "tier": "strict"}).status_code == 200
        world.put_back(now)
        assert world.impersonate().delete("/api/answer").status_code == 200
    world.put_back(before)


STRICT_ATTACKS = [raised, swapped_epsilon, raised_and_set_back]
OPEN_ATTACKS = [lowered_and_put_back, withdrawn_and_put_back, hidden_from_the_change, replayed_over_and_over]


def attack_on_answers(settings, attack, *, restarted=False):
    """Return the largest ε at which the victim's answer was published; 0 if it was not."""
    tier = "open" if attack in OPEN_ATTACKS else "strict"
    with served(settings) as site:
        world, key = World(settings, site, tier), site.key
        attack(world)
        if not restarted:
            return published_at(site, world.study)
    with served(settings) as site:
        site.curator.headers["Authorization"] = f"Bearer {key}"
        return published_at(site, world.study)


def published_at(site, study):
    said = site.publish(study).json()
    if "result" not in said:
        return 0
    return max((tier["spent"] for tier in said["result"]["tiers"] if tier["epsilon"] != "inf"), default=0)


@pytest.mark.parametrize("restarted", [False, True], ids=["while it runs", "before a restart"])
@pytest.mark.parametrize("attack", STRICT_ATTACKS + OPEN_ATTACKS, ids=lambda attack: attack.__name__)
def test_row_100_no_answer_is_used_at_more_than_its_person_chose_last(server_settings, attack, restarted):
    assert attack_on_answers(server_settings, attack, restarted=restarted) <= 0.01


def plant_old_version(monkeypatch, *defences):
    """Take defences away: the register, what a person allows as part of the request, the check of levels."""

    def unchecked(transaction, study):
        people = store.people
        columns = (people.c.id, people.c.epsilon, people.c.answer)
        return transaction.execute(sa.select(*columns).where(people.c.study == study).order_by(people.c.id)).all()

    if "register" in defences:
        monkeypatch.setattr(store.Transaction, "checked", unchecked)
    if "request" in defences:
        monkeypatch.setattr(publish, "_allowed", lambda answered, _: {row.id: UNLIMITED for row in answered})
    if "levels" in defences:
        monkeypatch.setattr(insight, "allowance", lambda *_: float("inf"))


@pytest.mark.parametrize("attack", [raised_and_set_back, *OPEN_ATTACKS], ids=lambda attack: attack.__name__)
def test_control_row_100_the_attack_succeeds_against_the_version_before(server_settings, attack, monkeypatch):
    plant_old_version(monkeypatch, "register", "request", "levels")
    assert attack_on_answers(server_settings, attack) > 0.01


@pytest.mark.parametrize("gone", [("register",), ("register", "request"), ("register", "levels")], ids=" and ".join)
def test_row_100_each_defence_stops_a_charge_that_no_longer_fits_by_itself(tmp_path, gone, monkeypatch):
    plant_old_version(monkeypatch, *gone)
    assert attack_on_answers(settings_for(tmp_path), raised_and_set_back) <= 0.01


def test_row_100_a_sealed_answer_opens_for_its_own_person_study_and_level_alone():
    vault = keys.Vault(bytes(range(32)))
    sealed = vault.seal(123, "anna", "study", 0.5)
    assert vault.open(sealed, "anna", "study", 0.5) == 123
    for other in (("bob", "study", 0.5), ("anna", "other", 0.5), ("anna", "study", 0.25)):
        with pytest.raises(InputError, match="does not open"):
            vault.open(sealed, *other)


STUDY_CHANGES = {
    "shares": {"waves": '[{"closes": 4000000000, "share": 1.0}, {"closes": 4000000001, "share": 1.0}]'},
    "bounds": {"hi": 1e6},
    "fewest": {"fewest": 1},
    "version": {"version": "0" * 32},
    "question": {"question": "Another one?"},
}


@pytest.mark.parametrize("what", STUDY_CHANGES)
def test_row_100_a_study_that_was_changed_behind_its_back_is_not_published(server_settings, what):
    """People answered under its shares and its fewest people; the shares decide how much of ε all waves spend."""
    with served(server_settings) as site:
        world = World(server_settings, site)
        world.site.study(tiers=TIERS)
        world.write(store.studies, world.study, **({"fewest": 2} if what == "fewest" else STUDY_CHANGES[what]))
        assert site.publish(world.study).json()["error"]["code"] == "changed"


def test_row_100_people_who_were_added_moved_or_removed_behind_its_back_stop_a_publication(server_settings):
    with served(server_settings) as site:
        one = World(server_settings, site)
        other = World(server_settings, site)
        engine = store.connect(server_settings.database)
        with engine.begin() as connection:
            row = {**one.row(), "id": "f" * 16, "invitation": None, "again": None}
            connection.execute(sa.insert(store.people).values(row))
        assert site.publish(one.study).json()["error"]["code"] == "changed"
        with engine.begin() as connection:
            connection.execute(sa.delete(store.people).where(store.people.c.id == "f" * 16))
            move = sa.update(store.people).where(store.people.c.id == one.person)
            connection.execute(move.values(study=other.study))
        for world in (one, other):
            assert site.publish(world.study).json()["error"]["code"] == "changed"
        with engine.begin() as connection:
            connection.execute(move.values(study=one.study))
        for world in (one, other):
            assert "result" in site.publish(world.study).json(), "a control: everything is as it was"
        engine.dispose()


def test_row_100_a_study_that_was_smuggled_in_is_not_published(server_settings):
    """Whole rows of an attacker's own: the register has never heard of them."""
    with served(server_settings) as site:
        world = World(server_settings, site)
        engine = store.connect(server_settings.database)
        (study,) = world.rows(store.studies)
        with engine.begin() as connection:
            connection.execute(sa.insert(store.studies).values({**study, "id": "../../smuggled"}))
            row = {**world.row(), "id": "e" * 16, "study": "../../smuggled", "invitation": None, "again": None}
            connection.execute(sa.insert(store.people).values(row))
        engine.dispose()
        said = site.curator.post("/api/studies/..%2F..%2Fsmuggled/publish", json={"wave": 0})
        assert said.status_code in {404, 405, 409}
        with pytest.raises(Exception, match="not as this server left them"):
            site.app.state.publisher.publish("../../smuggled", 0)
        invited = site.app.state.publisher._run(lambda t: studies.invite(t, "../../smuggled", 1))
        assert len(invited) == 1
        assert {path.name for path in server_settings.register_folder.parent.iterdir()} <= {
            "server.db", "server.db-wal", "server.db-shm", "server.db.ledger", "server.db.ledger-wal",
            "server.db.ledger-shm", "server.db.ledger.head", "server.db.lock", "server.key",
            server_settings.register_folder.name,
        }  # fmt: skip


def test_row_100_changes_of_the_same_transaction_are_no_changes_from_outside(tmp_path):
    """Requests share a transaction: what one of them has written is what another one finds."""
    settings = settings_for(tmp_path)
    with served(settings) as site:
        world = World(settings, site)

        def both(transaction):
            studies.invite(transaction, world.study, 2)
            return len(transaction.checked(world.study))

        assert site.app.state.publisher._run(both) == 33
        world.change(epsilon=1000.0)
        with pytest.raises(ChangedError):
            site.app.state.publisher._run(both)


@pytest.mark.parametrize("what", ["a person", "the study"])
def test_row_100_what_was_changed_and_changed_back_can_be_published(server_settings, what):
    """A publication that is refused writes nothing that would keep the right rows from being published."""
    with served(server_settings) as site:
        world = World(server_settings, site)
        table, key, cells = {
            "a person": (store.people, world.person, {"epsilon": 1000.0}),
            "the study": (store.studies, world.study, {"fewest": 2}),
        }[what]
        before = next(row for row in world.rows(table) if row["id"] == key)
        world.write(table, key, **cells)
        assert site.publish(world.study).json()["error"]["code"] == "changed"
        world.write(table, key, **{name: before[name] for name in cells})
        assert site.publish(world.study).json()["result"]["n"] == 31


def test_row_100_a_wave_that_was_cut_off_and_then_changed_is_open_for_withdrawals_again(server_settings):
    with served(server_settings) as site:
        world, key = World(server_settings, site), site.key
        site.app.state.publisher._run(lambda t: publish._closed(t, world.study, 0, charged=False))
        assert world.victim.delete("/api/answer").status_code == 409, "a control: it is being published"
        other = next(row for row in world.rows() if row["id"] != world.person)
        world.write(store.people, other["id"], epsilon=1000.0)
    with served(server_settings) as site:
        site.curator.headers["Authorization"] = f"Bearer {key}"
        assert site.live(world.study)["study"]["phase"] == "open"
        assert site.publish(world.study).json()["error"]["code"] == "changed"
        victim = site.client(X_CSRF_Token=world.victim.headers["X-CSRF-Token"])
        victim.cookies.update(world.victim.cookies)
        assert victim.delete("/api/answer").status_code == 200


def test_row_100_a_stopped_wave_is_open_for_withdrawals_and_can_be_published_when_it_is_repaired(server_settings):
    with served(server_settings) as site:
        world = World(server_settings, site)
        before = world.row()
        world.change(epsilon=1000.0)
        for _ in range(2):
            said = site.publish(world.study)
            assert said.status_code == 409
            assert "people can still withdraw" in said.json()["error"]["message"]
            assert site.live(world.study)["study"]["phase"] == "open"
        assert [entry.kind for entry in site.app.state.publisher.ledger.history()] == ["open"], "nothing was charged"
        world.put_back(before)
        assert world.victim.delete("/api/answer").status_code == 200
        assert site.publish(world.study).json()["result"]["n"] == 30


def test_row_100_a_charge_that_no_longer_fits_is_given_up_and_the_new_request_is_charged(tmp_path, monkeypatch):
    """Charged and cut off before the answers were opened; then somebody withdraws: the old plan is not for them."""
    settings = settings_for(tmp_path)
    with served(settings) as site:
        world, opened = World(settings, site), []
        vault = site.app.state.publisher.vault
        real = vault.open

        def fails(*sealed):
            opened.append(sealed)
            raise InputError("planted")

        monkeypatch.setattr(vault, "open", fails)
        assert site.publish(world.study).json()["error"]["code"] == "ledger"
        assert opened
        assert site.live(world.study)["study"]["phase"] == "open"
        monkeypatch.setattr(vault, "open", real)
        assert world.victim.delete("/api/answer").status_code == 200
        said = site.publish(world.study).json()
        assert said["result"]["n"] == 30
        assert said["result"]["ledger"]["release_id"] == f"{world.study}-0-1"
        history = site.app.state.publisher.ledger.history()
        assert [entry.kind for entry in history if entry.kind in {"charge", "result"}] == ["charge", "charge", "result"]
        assert site.publish(world.study).json() == said


def test_row_100_a_stopped_wave_whose_people_stayed_is_finished_without_another_charge(tmp_path, monkeypatch):
    settings = settings_for(tmp_path)
    with served(settings) as site:
        world, vault = World(settings, site), site.app.state.publisher.vault
        real = vault.open
        monkeypatch.setattr(vault, "open", lambda *_: (_ for _ in ()).throw(InputError("planted")))
        assert site.publish(world.study).status_code == 409
        monkeypatch.setattr(vault, "open", real)
        assert site.publish(world.study).json()["result"]["n"] == 31
        kinds = [entry.kind for entry in site.app.state.publisher.ledger.history()]
        assert (kinds.count("charge"), kinds.count("result")) == (1, 1)


def test_row_100_withdrawing_is_possible_after_closing_until_it_is_published(tmp_path):
    settings = settings_for(tmp_path)
    with served(settings) as site:
        world = World(settings, site)
        found = site.app.state.publisher._run
        found(lambda t: studies.move(t, world.study, waves='[{"closes": 1, "share": 1.0}]', opens=0))
        assert site.live(world.study)["study"]["phase"] == "closed"
        body = {"value": 1.0, "tier": "strict"}
        assert world.victim.put("/api/answer", json=body).json()["error"]["code"] == "closed"
        assert world.victim.delete("/api/answer").status_code == 200
        assert site.publish(world.study).json()["result"]["n"] == 30
        assert world.victim.delete("/api/answer").status_code == 200, "there is nothing left to withdraw"


@pytest.mark.parametrize("moment", ["before the commit", "after the commit"])
def test_row_100_the_register_survives_a_crash_on_either_side_of_the_commit(server_settings, moment, monkeypatch):
    """The file names both sums; the database decides which of them holds."""
    with served(server_settings) as site:
        world, key = World(server_settings, site), site.key
        register = site.app.state.store.register
        real = register.prepare

        def cut_off(*told):
            real(*told)
            raise RuntimeError("planted")

        if moment == "before the commit":
            monkeypatch.setattr(register, "prepare", cut_off)
        else:
            monkeypatch.setattr(register, "commit", lambda _: None)
        said = world.victim.put("/api/answer", json={"value": 1.0, "tier": "open"})
        assert said.status_code == (500 if moment == "before the commit" else 200)
        monkeypatch.undo()
    with served(server_settings) as site:
        site.curator.headers["Authorization"] = f"Bearer {key}"
        result = site.publish(world.study).json()["result"]
        assert (2.0 in [tier["epsilon"] for tier in result["tiers"]]) == (moment == "after the commit")


def test_row_100_an_older_copy_of_the_whole_database_is_not_published_unless_the_operator_trusts_it(tmp_path):
    import sqlite3

    settings = settings_for(tmp_path)
    with served(settings) as site:
        world, key = World(settings, site, "open"), site.key
        with sqlite3.connect(tmp_path / "server.db") as live, sqlite3.connect(tmp_path / "old.db") as old:
            live.backup(old)
        live.close()
        old.close()
        assert world.victim.delete("/api/answer").status_code == 200
    for name in ("server.db-wal", "server.db-shm"):
        (tmp_path / name).unlink(missing_ok=True)
    (tmp_path / "old.db").replace(tmp_path / "server.db")
    with served(settings) as site:
        site.curator.headers["Authorization"] = f"Bearer {key}"
        assert site.publish(world.study).json()["error"]["code"] == "changed"
        assert world.row()["answer"] is not None, "the copy has what was withdrawn since"
    with served(replace(settings, trust_database=True)) as site:
        site.curator.headers["Authorization"] = f"Bearer {key}"
        assert site.publish(world.study).json()["result"]["n"] == 31


def test_row_100_a_missing_register_is_refused_at_the_start(server_settings):
    import shutil

    with served(server_settings) as site:
        World(server_settings, site)
    shutil.rmtree(server_settings.register_folder)
    with pytest.raises(InputError, match=r"register is missing.*--trust-database"):
        create_app(server_settings)


def test_row_100_a_register_of_another_key_or_a_damaged_one_does_not_fit(tmp_path):
    settings = settings_for(tmp_path)
    with served(settings) as site:
        world, key = World(settings, site), site.key
        engine = site.app.state.store.engine
        other = Register(settings.register_folder, keys.Vault(bytes(32)))
        with engine.connect() as connection, pytest.raises(InputError, match="outside"):
            other.check(connection.execute, world.study)
    (file,) = settings.register_folder.iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    file.write_text("hetdp-register")
    with served(settings) as site:
        site.curator.headers["Authorization"] = f"Bearer {key}"
        assert site.publish(world.study).json()["error"]["code"] == "changed"


def test_a_database_of_the_version_before_is_brought_up_to_date_and_published(server_settings):
    """Version 2 had no register and no versions of rows."""
    with served(server_settings) as site:
        world, key = World(server_settings, site), site.key
    engine = store.connect(server_settings.database)
    with engine.begin() as connection:
        for table in (store.studies, store.people):
            connection.exec_driver_sql(f"ALTER TABLE {table.name} DROP COLUMN version")
        connection.execute(sa.update(store.facts).where(store.facts.c.name == "version").values(text="2"))
    engine.dispose()
    for file in server_settings.register_folder.iterdir():
        file.unlink()
    server_settings.register_folder.rmdir()
    with served(server_settings) as site:
        site.curator.headers["Authorization"] = f"Bearer {key}"
        assert all(row["version"] for row in world.rows())
        assert site.publish(world.study).json()["result"]["n"] == 31


@pytest.mark.parametrize("version", ["1", "4", "x"])
def test_a_database_of_a_version_that_is_not_known_is_refused(tmp_path, version):
    settings = settings_for(tmp_path)
    with served(settings):
        pass
    engine = store.connect(settings.database)
    with engine.begin() as connection:
        connection.execute(sa.update(store.facts).where(store.facts.c.name == "version").values(text=version))
    engine.dispose()
    with pytest.raises(InputError, match="othing was changed"):
        create_app(settings)


# ---------------------------------------------------------------------------------------------------------
# Rows 118 and 119


@pytest.mark.parametrize("first", ["the old server", "the new server"])
def test_row_118_after_a_restart_of_postgresql_one_server_writes_and_no_other(tmp_path, first):
    """The lock is lost with the session; whoever takes it first writes, the other one says that it does not."""
    with postgres.server(fsync="on", full_page_writes="on") as running, running.database() as name:
        address = running.url(name).replace("postgresql://", "postgresql+psycopg://")
        settings = settings_for(tmp_path, address)
        with served(settings) as old:
            study = old.study(tiers=TIERS)
            (person,) = old.join(study, [(1.0, "strict")])
            running.crash()
            answer = {"value": 2.0, "tier": "strict"}
            if first == "the old server":
                written = [person.put("/api/answer", json=answer).status_code for _ in range(3)]
                assert written[-1] == 200, "it takes the lock again"
                with pytest.raises(InputError, match="another process serves"):
                    create_app(settings)
                return
            with served(settings) as new:
                new.curator.headers["Authorization"] = f"Bearer {old.key}"
                written = [person.put("/api/answer", json=answer) for _ in range(3)]
                assert {said.status_code for said in written[-2:]} == {503}
                assert written[-1].json()["error"]["code"] == "another-server"
                new.join(study, [(2.0, "open")])
                assert new.live(study)["n"] == 2
            assert person.put("/api/answer", json=answer).status_code == 200, "the other one has stopped"
            assert old.live(study)["n"] == 2, "it has read what the other one wrote"
            said = [old.publish(study) for _ in range(2)]  # its ledger has lost a connection too
            assert said[0].json().get("error", {"code": "ledger"})["code"] == "ledger"
            assert said[1].json()["result"]["n"] == 2


def test_row_119_the_files_of_a_server_are_for_its_owner_alone(tmp_path):
    settings = settings_for(tmp_path)
    (tmp_path / "server.db").touch(mode=0o644)  # as an older version made it
    with served(settings) as site:
        World(settings, site)
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.rglob("*") if path.is_file()}
        assert {"server.db", "server.db-wal", "server.db-shm", "server.key"} <= modes.keys()
        assert {name for name, mode in modes.items() if mode & 0o077} == set()
        assert stat.S_IMODE(settings.register_folder.stat().st_mode) == 0o700
