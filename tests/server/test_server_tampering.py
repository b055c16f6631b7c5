"""Attacks by somebody who can write to a server's database but has no key: scripts that must fail against the code.

Each attack is a function that returns what the attacker got. It is run twice: against the code, where it gets nothing,
and against an older version that is planted for the moment, where it succeeds. So the script is known to bite.
"""

from __future__ import annotations

import json
import shutil
import stat
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import psycopg
import pytest
import sqlalchemy as sa

import postgres
from hetdp import InputError, Interval
from hetdp.ledger import UNLIMITED, LedgerError, Request, Rule
from hetdp.ledger import charge as ledger_charge
from hetdp.ledger import people as ledger_people
from hetdp.ledger.books import next_event
from hetdp.server import access, create_app, publish, run, store, studies, tables
from hetdp.server import people as server_people
from hetdp.server.access import RefusedError
from hetdp.server.store import ChangedError, Register, Transaction
from hetdp.statistics.mean import Mean
from serving import DAY, later, served, settings_for

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
        self.allowed = {"strict": 0.01, "open": 2.0}[tier]

    def rows(self, table=tables.people):
        engine = tables.connect(self.settings.database)
        with engine.begin() as connection:
            found = [dict(row) for row in connection.execute(sa.select(table)).mappings()]
        engine.dispose()
        return found

    def row(self, person=None):
        return next(row for row in self.rows() if row["id"] == (person or self.person))

    def run(self, *statements):
        """Carry out statements behind the server's back."""
        engine = tables.connect(self.settings.database)
        with engine.begin() as connection:
            for statement in statements:
                assert connection.execute(statement).rowcount != 0
        engine.dispose()

    def write(self, table, key, **cells):
        """Change a row behind the server's back."""
        self.run(sa.update(table).where(table.c.id == key).values(cells))

    def change(self, **cells):
        self.write(tables.people, self.person, **cells)

    def put_back(self, row):
        """Put an older row of the victim back; links and invitations stay as they are."""
        self.change(**{name: row[name] for name in ("study", "epsilon", "answer", "version")})

    def impersonate(self):
        """Return a client with a session of the victim's, forged without the key."""
        token = f"{'0' * 64}.{2**40}.0.0.{self.person}"
        client = self.site.client(X_CSRF_Token=access.csrf_of(token))
        client.cookies.set("hetdp_person", token)
        return client

    def withdraws(self, client=None):
        """The victim withdraws; what they allow is then nothing, if they were told so."""
        if (client or self.victim).delete("/api/answer").status_code == 200:
            self.allowed = 0.0

    def lowers(self, tier="strict"):
        """The victim lowers their ε; what they allow is then less, if they were told so."""
        # No attack is to fail for want of the word that more is meant.
        body = {"answers": {"hours": SECRET}, "tier": tier, "allow_more": True}
        said = self.victim.put("/api/answer", json=body)
        if said.status_code == 200:
            self.allowed = 0.01


# Each attack may be told by the server that something was done; what the victim was told is in `world.allowed`.


def raised_and_set_back(world):
    """The attack of row 100: charge a plan at 1000, then have it carried out with the strict answer."""
    world.change(epsilon=1000.0)
    world.site.publish(world.study)
    world.change(epsilon=0.01)


def raised(world):
    world.change(epsilon=1000.0)


def swapped_epsilon(world):
    other = next(row for row in world.rows() if row["id"] != world.person)
    world.write(tables.people, other["id"], epsilon=0.01)
    world.change(epsilon=other["epsilon"])


def choices_changed_for_one_request(world):
    """The victim sends "strict" while "strict" means 1000 in the database."""
    (row,) = world.rows(tables.studies)
    world.write(tables.studies, world.study, choices=row["choices"].replace("0.01", "1000.0"))
    world.lowers()
    world.write(tables.studies, world.study, choices=row["choices"])


def lowered_and_put_back(world):
    """The victim lowers their ε; the row from before comes back, with its own sealed answer."""
    before = world.row()
    world.lowers()
    world.put_back(before)


def withdrawn_and_put_back(world):
    before = world.row()
    world.withdraws()
    world.put_back(before)


def hidden_from_the_withdrawal(world):
    """The victim seems not to have answered while they withdraw."""
    world.change(epsilon=None)
    world.withdraws()
    world.change(epsilon=2.0)


def hidden_from_the_change(world):
    """The row is emptied while the victim lowers their ε, and what they then sent is withdrawn in their name."""
    before = world.row()
    world.change(epsilon=None, answer=None)
    world.lowers()
    world.impersonate().delete("/api/answer")
    world.put_back(before)


def replayed_over_and_over(world):
    """Old rows stand in while new ones are written."""
    before = world.row()
    for _ in range(3):
        world.lowers()
        now = world.row()
        world.put_back(before)
        world.lowers()
        world.put_back(now)
        world.withdraws(world.impersonate())
    world.put_back(before)


def link_of_somebody_else(world):
    """The victim comes back by their link, which stands in the row of an accomplice by now."""
    world.site.join(world.study, [(0.0, "open")])
    other = next(row["id"] for row in world.rows() if row["epsilon"] == 2.0 and row["id"] != world.person)
    link, token = world.row()["again"], access.new_token()
    world.change(again=access.digest("again", token))  # as if this had been the victim's link
    world.change(again=None)
    world.write(tables.people, other, again=access.digest("again", token))
    entered = world.site.client().post("/api/session/participant", json={"token": token})
    if entered.status_code == 200:
        client = world.site.client(X_CSRF_Token=entered.json()["csrf"])
        client.cookies.update(entered.cookies)
        world.withdraws(client)
    world.change(again=link)


def row_in_another_study(world):
    """The victim's row stands in another study while they withdraw."""
    before, other = world.row(), world.site.study(tiers=TIERS)
    world.change(study=other)
    world.withdraws()
    world.put_back(before)


def row_removed(world):
    """The victim's row is away while they withdraw."""
    before = world.row()
    world.run(sa.delete(tables.people).where(tables.people.c.id == world.person))
    world.withdraws()
    world.run(sa.delete(tables.people).where(tables.people.c.id == world.person))
    world.run(sa.insert(tables.people).values(before))


STRICT_ATTACKS = [raised, swapped_epsilon, raised_and_set_back]
OPEN_ATTACKS = [
    choices_changed_for_one_request,
    lowered_and_put_back,
    withdrawn_and_put_back,
    hidden_from_the_withdrawal,
    hidden_from_the_change,
    replayed_over_and_over,
    link_of_somebody_else,
    row_in_another_study,
    row_removed,
]


def watched(monkeypatch, person, used):
    """Have the levels at which somebody's answer is opened written down."""
    real = publish.Reading.__call__

    def reading(self, parts):
        tallies = real(self, parts)
        for _, places, plan in parts:
            if person() in places:
                used.append(float(plan.levels.epsilon[places[person()]]))
        return tallies

    monkeypatch.setattr(publish.Reading, "__call__", reading)


def attack_on_answers(settings, attack, monkeypatch, *, restarted=False):
    """Return by how much more than they were told the victim's answer was used; 0 if it was not."""
    tier, used, worlds = "open" if attack in OPEN_ATTACKS else "strict", [], []
    watched(monkeypatch, lambda: worlds[0].person, used)
    with served(settings) as site:
        worlds.append(world := World(settings, site, tier))
        key = site.key
        attack(world)
        if not restarted:
            site.publish(world.study)
            return max(0.0, max(used, default=0.0) - world.allowed)
    with served(settings) as site:
        site.curator.headers["Authorization"] = f"Bearer {key}"
        site.publish(world.study)
    return max(0.0, max(used, default=0.0) - world.allowed)


@pytest.mark.parametrize("restarted", [False, True], ids=["while it runs", "before a restart"])
@pytest.mark.parametrize("attack", STRICT_ATTACKS + OPEN_ATTACKS, ids=lambda attack: attack.__name__)
def test_row_100_no_answer_is_used_at_more_than_its_person_chose_last(server_settings, attack, restarted, monkeypatch):
    assert attack_on_answers(server_settings, attack, monkeypatch, restarted=restarted) == 0


def plant_old_version(monkeypatch, *defences):
    """Take defences away: the register and proofs, what a person allows as part of the request, the check of levels."""
    if "register" in defences:
        people = tables.people

        def whose(transaction, token):
            person, number = access.session(transaction.register, access.PARTICIPANT, token)
            study = transaction.execute(sa.select(people.c.study).where(people.c.id == person)).scalar()
            if study is None:
                raise RefusedError(401)
            return person, number, study

        def compared(transaction, study):
            found = transaction.execute(sa.select(people).where(people.c.study == study)).all()
            rows = [tables.Person._make(row) for row in found]
            return rows, dict.fromkeys((row.id for row in rows), b"") | transaction.register.people(study)

        monkeypatch.setattr(store.Transaction, "vouches", lambda *_: True)
        monkeypatch.setattr(store.Transaction, "everybody", compared)
        monkeypatch.setattr(Register, "epoch", lambda *_: 0)
        monkeypatch.setattr(access, "_proof", lambda *_: "0" * 64)
        monkeypatch.setattr(studies, "who", whose)
    if "request" in defences:
        monkeypatch.setattr(
            publish, "Request", lambda *a, people, **more: Request(*a, people=dict.fromkeys(people, UNLIMITED), **more)
        )
    if "levels" in defences:
        monkeypatch.setattr(publish, "charges", lambda plan: np.zeros(len(plan.levels), np.int64))


@pytest.mark.parametrize(
    "attack",
    [raised_and_set_back, *(attack for attack in OPEN_ATTACKS if attack is not row_removed)],
    ids=lambda attack: attack.__name__,
)
def test_control_row_100_the_attack_succeeds_against_the_version_before(server_settings, attack, monkeypatch):
    plant_old_version(monkeypatch, "register", "request", "levels")
    assert attack_on_answers(server_settings, attack, monkeypatch) > 0.01


@pytest.mark.parametrize("gone", [("register",), ("register", "request"), ("register", "levels")], ids=" and ".join)
def test_row_100_each_defence_stops_a_charge_that_no_longer_fits_by_itself(tmp_path, gone, monkeypatch):
    plant_old_version(monkeypatch, *gone)
    assert attack_on_answers(settings_for(tmp_path), raised_and_set_back, monkeypatch) == 0


@pytest.mark.parametrize("attack", [raised, hidden_from_the_withdrawal, row_in_another_study, row_removed])
def test_row_100_people_can_withdraw_whatever_was_done_to_their_row(server_settings, attack):
    """A withdrawal needs nothing of the row that is there, and the study goes on without them."""
    with served(server_settings) as site:
        world = World(server_settings, site, "open")
        if attack is raised:
            world.change(epsilon=1000.0)
        elif attack is row_removed:
            world.run(sa.delete(tables.people).where(tables.people.c.id == world.person))
        elif attack is row_in_another_study:
            world.change(study=site.study(tiers=TIERS))
        else:
            world.change(epsilon=None)
        page = world.victim.get("/api/answer").json()
        assert (page["changed"], page["may_send"], page["joined"]) == (True, False, True)
        assert (
            "If you sent answers, you can withdraw them on this page, unless they are just being published."
            in world.victim.get("/answer").text
        )
        assert world.victim.delete("/api/answer").json()["withdrawn"] is True
        assert (world.row()["answer"], world.row()["study"]) == (None, world.study)
        assert site.publish(world.study).json()["results"][0]["n"] == 30


def test_row_100_a_register_is_not_left_behind_by_rows_that_did_not_fit(server_settings, monkeypatch):
    """Something is changed, the server restarts, the victim withdraws, everything is put back, it restarts again."""
    used = []
    with served(server_settings) as site:
        world, key = World(server_settings, site, "open"), site.key
        watched(monkeypatch, lambda: world.person, used)
        saved = world.rows()
    other = next(row for row in saved if row["id"] != world.person)
    world.write(tables.people, other["id"], epsilon=1.0)
    with served(server_settings) as site:
        victim = site.client(X_CSRF_Token=world.victim.headers["X-CSRF-Token"])
        victim.cookies.update(world.victim.cookies)
        assert victim.delete("/api/answer").status_code == 200
    world.write(tables.people, other["id"], epsilon=other["epsilon"])
    world.put_back(next(row for row in saved if row["id"] == world.person))
    with served(server_settings) as site:
        site.curator.headers["Authorization"] = f"Bearer {key}"
        assert site.publish(world.study).json()["error"]["code"] == "changed"
    assert used == []


def test_row_100_a_forged_session_is_nobodys(server_settings):
    """Without the key nobody can make a session of somebody else, move one, or let it last longer."""
    with served(server_settings) as site:
        world = World(server_settings, site, "open")
        assert world.impersonate().delete("/api/answer").status_code == 401
        assert world.row()["answer"] is not None
        (accomplice,) = site.join(world.study, [(0.0, "open")])
        token = accomplice.cookies["hetdp_person"]
        proof, expires, epoch, number, person = token.split(".")
        assert accomplice.get("/api/answer").status_code == 200, "a control"
        for forged in (
            f"{proof}.{expires}.{epoch}.{number}.{world.person}",
            f"{proof}.{2**40}.{epoch}.{number}.{person}",
            f"{proof}.{expires}",
            f"{'é' * 64}.{token[65:]}",
            "mine",
        ):
            for page, kind in (("/api/answer", "hetdp_person"), ("/api/studies", "hetdp_curator")):
                cookie = f"{kind}={forged}".encode()
                assert site.client().get(page, headers=[(b"cookie", cookie)]).status_code == 401
        curator = site.client().get("/api/studies", headers={"Cookie": f"hetdp_curator={token}"})
        assert curator.status_code == 401, "a session of one kind is none of the other"


def test_row_100_a_wave_has_one_number_also_if_the_database_refuses_to_store_it(tmp_path, monkeypatch):
    """Whoever sees the statement and makes it fail would otherwise get a second draw for the same charge."""
    settings, drawn = settings_for(tmp_path), []
    with served(settings) as site:
        world, key = World(settings, site, "open"), site.key
        real = ledger_charge._stored

        def refuses(connection, book, charged, number):
            drawn.append(number)
            raise LedgerError("planted")

        monkeypatch.setattr(ledger_charge, "_stored", refuses)
        for _ in range(3):
            assert site.publish(world.study).json()["error"]["code"] == "ledger"
            assert world.victim.delete("/api/answer").status_code == 409, "it was read, and has a number"
        monkeypatch.setattr(ledger_charge, "_stored", real)
    with served(settings) as site:
        site.curator.headers["Authorization"] = f"Bearer {key}"
        result = site.publish(world.study).json()["results"][0]
    assert set(drawn) == {drawn[0]}
    upper, lower, _ = drawn[0]
    assert result["figures"][0]["raw"] == pytest.approx(Interval(0, 10).clamp(10 * upper / (upper + lower)))
    assert len(drawn) == 3


def test_row_100_a_wave_that_has_a_number_is_read_for_no_other_charge(tmp_path, monkeypatch):
    """Even if the ledger is another one by then: a result that is in the way, budgets that were raised, a new file."""
    settings, used = settings_for(tmp_path), []
    with served(settings) as site:
        world, key = World(settings, site, "open"), site.key
        watched(monkeypatch, lambda: world.person, used)
        false = {"study": world.study, "wave": 0, "published": 0, "body": "{}"}
        world.run(sa.insert(tables.results).values(false))
        first = site.publish(world.study).json()["results"][0]
        saved = world.rows()
        world.run(sa.delete(tables.results))
        (study,) = world.rows(tables.studies)
        world.write(tables.studies, world.study, wave=0, status="stopped")
        for row in saved:
            world.write(tables.people, row["id"], answer=b"x" * 32)
        assert site.publish(world.study).json()["error"]["code"] == "changed"
    for name in tmp_path.glob("server.db.ledger*"):
        name.unlink()
    world.run(sa.delete(tables.facts).where(tables.facts.c.name == "ledger"))
    world.write(tables.studies, world.study, **{name: study[name] for name in ("wave", "status")})
    with served(settings) as site:
        site.curator.headers["Authorization"] = f"Bearer {key}"
        assert site.publish(world.study).status_code == 404, "what was shown is gone from the database"
    assert used == [2.0]
    assert first["n"] == 31


def test_row_100_the_study_that_is_used_is_the_one_that_was_compared(tmp_path, monkeypatch):
    """A view that shows one study now and another one a moment later."""
    settings, used = settings_for(tmp_path), []
    with served(settings) as site:
        world = World(settings, site, "open")
        watched(monkeypatch, lambda: world.person, used)
        real, shares = studies._row, []

        def changing(execute, study):
            row = real(execute, study)
            shares.append(1)
            if len(shares) != 3:  # the first two looks decide nothing
                return row
            return {**row, "waves": row["waves"].replace("1.0", "0.5")}

        monkeypatch.setattr(publish, "expire", lambda _: None)  # it looks at the study too, before
        monkeypatch.setattr(publish, "pass_over", lambda *_: False)  # and so does this
        monkeypatch.setattr(studies, "_row", changing)
        assert site.publish(world.study).json()["error"]["code"] == "changed"
    assert used == []


def test_row_100_an_import_whose_entry_was_taken_out_does_not_come_a_second_time(server_settings):
    with served(server_settings) as site:
        world = World(server_settings, site)
        assert site.rows(world.study, "value,tier\n5,open\n").status_code == 201
        assert site.rows(world.study, "value,tier\n5,open\n").json() == {"people": 1}
        world.run(sa.delete(tables.imports))
        assert site.rows(world.study, "value,tier\n5,open\n").json()["error"]["code"] == "changed"
        assert site.live(world.study)["n"] == 32


# A charge that somebody appends to the ledger's chain, which has no key: the request of the server, another plan.

FORGED = {
    "a level that counts as public": {"epsilon": ["-inf"], "noise": []},
    "a level that is no number": {"epsilon": ["nan"], "noise": []},
    "a public level": {"epsilon": ["inf"], "noise": []},
    "little noise": {"epsilon": [(1000.0).hex()], "noise": [[(2.0**20).hex(), 0, 1]]},
    "other bounds": {
        "bounds": [(0.0).hex(), (1e300).hex()],
        "parameters": {"bounds": [0.0, 1e300], "missing": "estimate"},
        "noise": [[(2.0**40).hex(), 0, 1]],
        "epsilon": [(0.01).hex()],
    },
    "a shrinkage that is none": {
        "shrink": (1e300).hex(),
        "noise": [[(2.0**40).hex(), 0, 1]],
        "epsilon": [(0.01).hex()],
    },
    "another statistic": {
        "statistic": "sum",
        "parameters": {"bounds": [0.0, 10.0]},
        "noise": [[(2.0**40).hex(), 0, 1]],
        "epsilon": [(0.01).hex()],
    },
    "a place from behind": {"epsilon": [(1000.0).hex()], "noise": [[(2.0**20).hex(), 0, 1]], "place": -1},
}


def forge(settings, world, wave, allowed, changes, monkeypatch):
    """Have a publication fail before its charge, then append one of the attacker's own to the ledger."""
    study = next(row for row in world.rows(tables.studies) if row["id"] == world.study)
    share = json.loads(study["waves"])[wave]["share"]
    real = ledger_charge._charge_now

    def fails(*_):
        raise LedgerError("planted")

    monkeypatch.setattr(
        ledger_charge, "_covered", lambda *_: None
    )  # the ledger notices it too: tests/privacy/test_cells
    monkeypatch.setattr(ledger_charge, "_charge_now", fails)
    assert world.site.publish(world.study, wave).json()["error"]["code"] == "ledger"
    monkeypatch.setattr(ledger_charge, "_charge_now", real)
    name, about = f"{world.study}-{wave}-hours", {"study": world.study, "wave": wave, "question": "hours"}
    asked = Mean((0, 10), missing="estimate")
    request = Request(name, Rule.given(share=share), asked, people=allowed, about=about)
    plan = {
        "method": "adpm", "bounds": [(0.0).hex(), (10.0).hex()], "parameters": asked.plain, "count": [1],
        "rounded": False, "names": {},
        "units": [2**30], "threshold": None, "abstains": False, "variance": (0.25).hex(), "shrink": (1.0).hex(),
    }  # fmt: skip

    def append(connection, book):
        cohort = ledger_people.members(connection, book.head.seq, [world.person])[world.person]
        facts = {
            "request": request.facts,
            "statistic": changes.get("statistic", "mean"),
            "plan": plan | {name: cell for name, cell in changes.items() if name not in ("place", "statistic")},
            "units": [0],
            "levels": [cohort, changes.get("place", 0)],
            "people": {"people": len(allowed), "used_up": 0, "frozen": 0, "short": 0},
        }
        event = next_event(book.head, "charge", facts, name)
        return ledger_charge.write(connection, book, event), event

    ledger = world.site.app.state.publisher.ledger
    ledger.enroll({row["id"]: row["epsilon"] for row in world.rows() if row["answer"] is not None})
    ledger._store.change(append)


@pytest.mark.parametrize("what", FORGED)
def test_row_100_a_plan_that_somebody_appends_to_the_ledger_uses_nobody_beyond_what_they_allow(
    server_settings, what, monkeypatch
):
    used = []
    with served(server_settings) as site:
        world = World(server_settings, site)
        watched(monkeypatch, lambda: world.person, used)
        answered = sorted((row for row in world.rows() if row["answer"] is not None), key=lambda row: row["id"])
        allowed = {row["id"]: studies.most(row["epsilon"], 1.0, 0) for row in answered}
        forge(server_settings, world, 0, allowed, FORGED[what], monkeypatch)
        assert site.publish(world.study).json()["error"]["code"] == "ledger"
        assert used == []
        assert world.victim.delete("/api/answer").status_code == 200


def test_control_row_100_the_forged_plan_reads_an_answer_where_spends_are_not_compared(tmp_path, monkeypatch):
    settings = settings_for(tmp_path)
    with served(settings) as site:
        world = World(settings, site)
        answered = sorted((row for row in world.rows() if row["answer"] is not None), key=lambda row: row["id"])
        allowed = {row["id"]: studies.most(row["epsilon"], 1.0, 0) for row in answered}
        forge(settings, world, 0, allowed, FORGED["a public level"], monkeypatch)
        monkeypatch.setattr(publish, "charges", lambda plan: np.zeros(len(plan.levels), np.int64))
        assert site.publish(world.study).json()["results"][0]["estimate"] == pytest.approx(SECRET, abs=1e-4)


def waves(count):
    now = int(time.time())
    return [{"closes": now + 3600 * (i + 1), "share": 1 / count} for i in range(count)]


def test_row_100_all_waves_stay_within_an_epsilon_that_was_lowered_in_between(tmp_path, monkeypatch):
    """The first wave used 1; the victim then allows 1 in all. A charge that says otherwise is not carried out."""
    settings, used = settings_for(tmp_path), []
    with served(settings) as site:
        world = World(settings, site)
        tiers = [{"name": "two", "epsilon": 2.0}, {"name": "one", "epsilon": 1.0}]
        world.study, before = site.study(tiers=tiers, waves=waves(2)), {row["id"] for row in world.rows()}
        (victim,) = site.join(world.study, [(SECRET, "two")])
        (world.person,) = {row["id"] for row in world.rows()} - before
        site.join(world.study, [(0.0, "two")] * 30)
        watched(monkeypatch, lambda: world.person, used)
        assert site.publish(world.study, 0).status_code == 200
        assert victim.put("/api/answer", json={"answers": {"hours": SECRET}, "tier": "one"}).status_code == 200
        mine = (row for row in world.rows() if row["answer"] is not None and row["study"] == world.study)
        spent = site.app.state.store.register.used(world.study, 1)
        answered = sorted(mine, key=lambda row: row["id"])
        allowed = {row["id"]: studies.most(row["epsilon"], 0.5, spent[row["id"]]) for row in answered}
        assert allowed[world.person] <= 10**9 - spent[world.person] <= 10
        noise = [[(2**30 / 0.4999).hex(), 0, 1]]
        forge(settings, world, 1, allowed, {"epsilon": [(0.5).hex()], "noise": noise}, monkeypatch)
        assert site.publish(world.study, 1).json()["error"]["code"] == "ledger"
    assert len(used) == 1


# A database that fails at the commit, on purpose or not


class LostError(Exception):
    """The connection is gone."""


def faulty(monkeypatch, *plan):
    """Let commits be `lost` (done, but nobody hears of it) or `undone`, in this order; None is a good one."""
    todo, real = list(plan), store.Store._writing

    @contextmanager
    def writing(self):
        what = todo.pop(0) if todo else None
        with real(self) as connection:
            yield connection
            if what == "undone":
                raise LostError
        if what == "lost":
            raise LostError

    monkeypatch.setattr(store.Store, "_writing", writing)


@pytest.mark.parametrize("what", ["lost", "undone"])
def test_row_100_a_change_whose_commit_failed_is_decided_at_once(tmp_path, what, monkeypatch):
    """Nobody can choose later, by showing one row or the other, what the person chose last."""
    settings = settings_for(tmp_path)
    with served(settings) as site:
        world = World(settings, site, "open")
        before, register = world.row(), site.app.state.store.register
        with monkeypatch.context() as patch:
            faulty(patch, what)
            said = world.victim.put("/api/answer", json={"answers": {"hours": 1.0}, "tier": "strict"})
        assert said.status_code == (200 if what == "lost" else 500)
        assert register.in_doubt() == {}
        assert store.Transaction(None, register).vouches("person", before) == (what == "undone")
        assert store.Transaction(None, register).vouches("person", world.row())
        assert site.publish(world.study).status_code == 200


@pytest.mark.parametrize("plan", [("lost", "undone"), ("undone", "lost"), ("lost", "lost", "undone"), ("undone",) * 3])
def test_row_100_faults_in_a_row_keep_nobody_from_going_on(tmp_path, plan, monkeypatch):
    settings = settings_for(tmp_path)
    with served(settings) as site:
        world = World(settings, site, "open")
        with monkeypatch.context() as patch:
            faulty(patch, *plan)
            for _ in plan:
                world.victim.put("/api/answer", json={"answers": {"hours": 1.0}, "tier": "strict"})
        assert world.victim.put("/api/answer", json={"answers": {"hours": 1.0}, "tier": "strict"}).status_code == 200
        with monkeypatch.context() as patch:
            faulty(patch, *plan)
            site.publish(world.study)
        assert site.publish(world.study).json()["results"][0]["n"] == 31


def test_row_100_an_import_whose_commit_failed_can_be_repeated(tmp_path, monkeypatch):
    settings = settings_for(tmp_path)
    with served(settings) as site:
        study = site.study(tiers=TIERS)
        with monkeypatch.context() as patch:
            faulty(patch, "undone")
            assert site.rows(study, "value,tier\n5,public\n").status_code == 500
        assert site.rows(study, "value,tier\n5,public\n").json() == {"people": 1}
        assert site.publish(study).json()["results"][0]["n"] == 1


def test_row_100_a_request_whose_commit_was_lost_is_not_carried_out_twice(tmp_path, monkeypatch):
    """A first answer whose commit was lost keeps its link to come back; in a final study it is no second one."""
    settings = settings_for(tmp_path)
    with served(settings) as site:
        study, final = site.study(tiers=TIERS), site.study(tiers=TIERS, changeable=False)
        people = [site.enter(site.invite(one, 1)[0]) for one in (study, final)]
        with monkeypatch.context() as patch:
            faulty(patch, "lost", None, "lost")  # after each, the rows are looked at in a transaction of their own
            with ThreadPoolExecutor() as pool:
                body = {"answers": {"hours": 2.0}, "tier": "open"}
                said = list(pool.map(lambda person: person.put("/api/answer", json=body), people))
        assert [one.status_code for one in said] == [200, 200]
        assert all(one.json()["first"] and one.json()["come_back"] for one in said)


def test_row_100_what_the_register_could_not_settle_is_not_acknowledged(tmp_path, monkeypatch):
    """A full disk: the withdrawal is in the database, but the row before is still believed."""
    settings = settings_for(tmp_path)
    with served(settings) as site:
        world = World(settings, site, "open")
        register, before = site.app.state.store.register, world.row()

        def full(*_):
            raise RefusedError(503, "register", "full")

        with monkeypatch.context() as patch:
            patch.setattr(register, "settle", full)
            patch.setattr(register, "decide", full)
            assert world.victim.delete("/api/answer").status_code == 503
            assert world.victim.delete("/api/answer").status_code == 503, "and nothing else until it is decided"
        assert world.victim.delete("/api/answer").status_code == 200
        world.put_back(before)
        assert site.publish(world.study).json()["error"]["code"] == "changed"


def test_row_100_nobody_changes_or_withdraws_while_answers_are_read(tmp_path):
    settings = settings_for(tmp_path)
    with served(settings) as site:
        world = World(settings, site, "open")
        site.app.state.store.register.open(world.study, 0, "r", {})
        body = {"answers": {"hours": 1.0}, "tier": "strict"}
        assert world.victim.put("/api/answer", json=body).json()["error"]["code"] == "closed"
        assert world.victim.delete("/api/answer").json()["error"]["code"] == "being-read"


@pytest.mark.parametrize("how", ["cut off", "register full"])
def test_row_100_a_wave_that_was_stored_but_not_ticked_off_keeps_nobody_from_withdrawing(tmp_path, how, monkeypatch):
    settings = settings_for(tmp_path)
    with served(settings) as site:
        study = site.study(tiers=TIERS, waves=waves(2))
        people, register = site.join(study, [(1.0, "public")] * 4), site.app.state.store.register

        def cut_off(*_):
            if how == "register full":
                raise RefusedError(503, "register", "full")

        real = register.finish
        monkeypatch.setattr(register, "finish", lambda study, wave: cut_off() if wave else real(study, wave))
        assert site.publish(study, 0).status_code == 200
        monkeypatch.undo()
        assert people[0].delete("/api/answer").status_code == 200
        assert site.publish(study, 1).json()["results"][0]["n"] == 3


def test_row_100_a_session_that_the_first_answer_ended_does_not_come_back(server_settings):
    """Whoever made the invitation may have tried it before; their session ends with the person's first answer."""
    with served(server_settings) as site:
        world = World(server_settings, site, "open")
        (token,) = site.invite(world.study, 1)
        curator = site.enter(token)
        person = site.enter(token)
        said = person.put("/api/answer", json={"answers": {"hours": SECRET}, "tier": "open"})
        link = said.json()["come_back"].partition("#")[2]
        again = site.enter(link)
        assert again.get("/api/answer").json()["choice"]["epsilon"] == 2.0
        for broken in (False, True):
            if broken:
                mine = next(row["id"] for row in world.rows() if row["again"] == access.digest("again", link))
                world.write(tables.people, mine, version="0" * 32)
            assert curator.put("/api/answer", json={"answers": {"hours": 0.0}, "tier": "public"}).status_code == 401
            assert curator.delete("/api/answer").status_code == 401
            assert curator.get("/api/answer").status_code == 401
        assert person.delete("/api/answer").status_code == 200


def test_row_100_every_first_answer_ends_the_sessions_of_older_links(server_settings):
    """Somebody saw a link to come back; the person withdraws and answers again, which replaces the link."""
    with served(server_settings) as site:
        (token,) = site.invite(site.study(tiers=TIERS), 1)
        person = site.enter(token)
        said = person.put("/api/answer", json={"answers": {"hours": SECRET}, "tier": "open"})
        other = site.enter(said.json()["come_back"].partition("#")[2])
        assert other.get("/api/answer").status_code == 200, "a control"
        assert person.delete("/api/answer").status_code == 200
        assert person.put("/api/answer", json={"answers": {"hours": SECRET}, "tier": "open"}).json()["first"]
        assert other.put("/api/answer", json={"answers": {"hours": 0.0}, "tier": "open"}).status_code == 401
        assert person.get("/api/answer").status_code == 200


def test_row_100_signing_out_while_an_answer_is_sent_ends_its_session_too(tmp_path, monkeypatch):
    """The two take turns: who signs out waits for the answer, and its session is over afterwards."""
    with served(settings_for(tmp_path)) as site:
        (token,) = site.invite(site.study(tiers=TIERS), 1)
        person = site.enter(token)
        twin = site.client()
        twin.cookies.update(dict(person.cookies))
        twin.headers["X-CSRF-Token"] = person.headers["X-CSRF-Token"]
        said, real = [], Transaction.end_sessions

        def meanwhile(transaction, who, but=None):
            if but is not None:  # the answer is being sent
                leaving = threading.Thread(target=lambda: said.append(twin.delete("/api/session/participant")))
                leaving.start()
                leaving.join(1)
                said.append(leaving)
            return real(transaction, who, but=but)

        monkeypatch.setattr(Transaction, "end_sessions", meanwhile)
        assert person.put("/api/answer", json={"answers": {"hours": SECRET}, "tier": "open"}).status_code == 200
        said[0].join()
        assert said[1].status_code == 200
        assert person.get("/api/answer").status_code == 401


def test_row_100_the_server_vouches_for_no_row_that_it_has_not_compared(server_settings):
    """When answers are deleted at the end, a trigger has moved somebody of another study among them."""
    with served(server_settings) as site:
        world = World(server_settings, site, "open")
        mine, token = site.study(tiers=TIERS), access.new_token()
        site.join(mine, [(1.0, "public")] * 3)
        link = access.digest("again", token)
        change = f"UPDATE server_people SET study = '{mine}', again = '{link}' WHERE id = '{world.person}'"  # noqa: S608
        engine = tables.connect(server_settings.database)
        made = [f"CREATE TRIGGER evil AFTER INSERT ON server_results BEGIN {change}; END"]
        if engine.dialect.name == "postgresql":
            made = [
                f"CREATE FUNCTION evil() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN {change}; RETURN NULL; END$$",
                "CREATE TRIGGER evil AFTER INSERT ON server_results FOR EACH ROW EXECUTE FUNCTION evil()",
            ]
        with engine.begin() as connection:
            for statement in made:
                connection.exec_driver_sql(statement)
        engine.dispose()
        site.publish(mine)
        said = site.client().post("/api/session/participant", json={"token": token})
        assert said.json()["error"]["code"] in {"changed", "invitation"}


def test_row_100_a_wave_takes_one_number_whoever_asks(tmp_path):
    """Two who open it at the same time: the first number stays."""
    settings = settings_for(tmp_path)
    with served(settings) as site:
        register = site.app.state.store.register
        register.open("s", 0, "one", {"anna": 5})
        register.open("s", 0, "one", {"anna": 7})
        assert register.used("s", 1) == {"anna": 7}
        register.keep("s", 0, "one", {"one-a": [0.5, 0.25], "one-b": [0.125]})
        with pytest.raises(ChangedError):
            register.keep("s", 0, "one", {"one-a": [0.25, 0.5], "one-b": [0.125]})
        with pytest.raises(RefusedError, match="drawn before"):
            register.open("s", 0, "two", {})
        assert register.numbers("s", 0) == ("one", {"one-a": [0.5, 0.25], "one-b": [0.125]})
        assert not register.leave("s"), "it has a number"
        assert register.opened("s")
        register.finish("s", 1)
        assert not register.opened("s")
        register.open("s", 1, "three", {"anna": 1})
        assert register.leave("s")
        assert register.used("s", 2) == {"anna": 7}, "what was never drawn was never used"


def test_row_100_who_signs_out_is_signed_out_everywhere(tmp_path):
    """A cookie that somebody has copied, and a session on another device, end too."""
    settings = settings_for(tmp_path)
    with served(settings) as site:
        (token,) = site.invite(site.study(tiers=TIERS), 1)
        person = site.enter(token)
        said = person.put("/api/answer", json={"answers": {"hours": SECRET}, "tier": "open"})
        link = said.json()["come_back"].partition("#")[2]
        other, cookie = site.enter(link), dict(person.cookies)
        assert other.get("/api/answer").status_code == 200, "a control"
        assert person.delete("/api/session/participant").status_code == 200
        person.cookies.update(cookie)
        assert [client.get("/api/answer").status_code for client in (person, other)] == [401, 401]
        assert site.enter(link).get("/api/answer").status_code == 200
        curator = site.client()
        curator.headers["X-CSRF-Token"] = curator.post("/api/session/curator", json={"key": site.key}).json()["csrf"]
        cookie = dict(curator.cookies)
        assert curator.delete("/api/session/curator").status_code == 200
        curator.cookies.update(cookie)
        assert curator.get("/api/studies").status_code == 401


def test_row_100_a_session_ends_with_the_register_that_knew_it(tmp_path):
    """A new register cannot know which sessions had ended, so it goes on with none."""
    settings = settings_for(tmp_path)
    with served(settings) as site:
        world = World(settings, site, "open")
        cookie = dict(world.victim.cookies)
    with served(settings) as site:
        assert site.client(Cookie=f"hetdp_person={cookie['hetdp_person']}").get("/api/answer").status_code == 200
    for file in settings.register_file.parent.glob(f"{settings.register_file.name}*"):
        file.unlink()
    with served(replace(settings, trust_database=True)) as site:
        assert site.client(Cookie=f"hetdp_person={cookie['hetdp_person']}").get("/api/answer").status_code == 401


def test_row_100_a_new_key_decides_nothing_for_the_server_that_runs(server_settings):
    """Another process that looked at a change just being made would take it for one that was not."""
    with served(server_settings) as site:
        world = World(server_settings, site, "open")
        register = site.app.state.store.register
        register.prepare({("person", world.person): (world.study, b"x" * 32)}, {})
        assert len(register.in_doubt()) == 1
        assert len(run.replaced_key(server_settings)) > 40
        assert len(register.in_doubt()) == 1, "it is the business of the server alone"


def test_row_100_a_change_that_somebody_else_decided_is_not_acknowledged(tmp_path, monkeypatch):
    settings = settings_for(tmp_path)
    with served(settings) as site:
        world = World(settings, site, "open")
        register = site.app.state.store.register
        real = register.settle

        def decided(batch, rows):
            register.decide({batch: False})
            real(batch, rows)

        with monkeypatch.context() as patch:
            patch.setattr(register, "settle", decided)
            assert world.victim.delete("/api/answer").status_code == 503


def test_row_100_a_transaction_comes_as_a_whole_or_not_at_all(tmp_path, monkeypatch):
    """Of an import whose commit failed, somebody puts the people in but not the entry: the retry is the only one."""
    settings = settings_for(tmp_path)
    with served(settings) as site:
        world, real = World(settings, site), store.Store._decide
        looted = []

        def insert(self):
            if looted:
                world.run(sa.insert(tables.people).values(looted.pop()))
            return real(self)

        prepare = site.app.state.store.register.prepare

        def peek(written, epochs):
            (person,) = [row for (kind, row) in written if kind == "person"] or [None]
            looted.extend(row for row in rows_seen if row["id"] == person)
            return prepare(written, epochs)

        rows_seen, wrote = [], store.Transaction.wrote

        def watch(self, kind, row):
            rows_seen.append(dict(row))
            wrote(self, kind, row)

        with monkeypatch.context() as patch:
            patch.setattr(store.Transaction, "wrote", watch)
            patch.setattr(site.app.state.store.register, "prepare", peek)
            patch.setattr(store.Store, "_decide", insert)
            faulty(patch, "undone")
            assert site.rows(world.study, "value,tier\n5,open\n").status_code == 500
        assert not looted
        assert site.rows(world.study, "value,tier\n5,open\n").status_code == 201
        assert site.publish(world.study).json()["error"]["code"] == "changed", "the row that was put in is nobody's"


def test_row_100_what_is_in_doubt_is_not_shown(tmp_path, monkeypatch):
    """The commit failed and the rows could not be looked at: a page would show what may no longer be so."""
    settings = settings_for(tmp_path)
    with served(settings) as site:
        world = World(settings, site)

        def cancelled(*_):
            raise LostError

        with monkeypatch.context() as patch:
            faulty(patch, "undone")
            patch.setattr(store.Store, "_is_there", cancelled)
            said = world.victim.put(
                "/api/answer", json={"answers": {"hours": SECRET}, "tier": "open", "allow_more": True}
            )
            assert said.status_code == 500
            assert world.victim.get("/api/answer").status_code == 500
        assert world.victim.get("/api/answer").json()["choice"]["epsilon"] == 0.01
        assert site.publish(world.study).json()["results"][0]["n"] == 31


def test_row_100_a_study_that_is_changed_while_it_is_published_has_no_result(tmp_path, monkeypatch):
    """The transaction that would store the result refuses, and nothing of it is kept."""
    settings = settings_for(tmp_path)
    with served(settings) as site:
        world, real = World(settings, site), publish._store
        (study,) = world.rows(tables.studies)

        def changed(transaction, *rest):
            change = sa.update(tables.studies).where(tables.studies.c.id == world.study)
            transaction.execute(change.values(fewest=7))
            return real(transaction, *rest)

        with monkeypatch.context() as patch:
            patch.setattr(publish, "_store", changed)
            assert site.publish(world.study).json()["error"]["code"] == "changed"
        assert site.client().get(f"/api/results/{world.study}").status_code == 404
        world.write(tables.studies, world.study, fewest=study["fewest"])
        assert site.publish(world.study).json()["results"][0]["n"] == 31


def test_row_118_a_session_that_could_not_be_used_does_not_keep_the_lock(durable_server, tmp_path, monkeypatch):
    with durable_server.database() as name:
        settings = settings_for(tmp_path, durable_server.url(name).replace("postgresql://", "postgresql+psycopg://"))
        with served(settings) as site:
            world, real = World(settings, site), psycopg.Connection.execute
            end = "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted"
            durable_server.run(end)
            failing = [True]

            def once(session, statement, *cells):  # the first one of the new session, once it has the lock
                if statement.startswith("SET") and failing and failing.pop():
                    raise LostError
                return real(session, statement, *cells)

            monkeypatch.setattr(psycopg.Connection, "execute", once)
            body = {"answers": {"hours": 1.0}, "tier": "strict"}
            said = [world.victim.put("/api/answer", json=body).status_code for _ in range(4)]
            assert said[-1] == 200, said
            assert not failing, "a control: it did fail"


def test_row_100_public_people_can_be_published_in_every_wave(tmp_path):
    settings = settings_for(tmp_path)
    with served(settings) as site:
        study = site.study(tiers=TIERS, waves=waves(12))
        site.join(study, [(1.0, "public")] * 3)
        assert [site.publish(study, wave).status_code for wave in range(12)] == [200] * 12


def test_row_100_a_database_with_people_but_without_a_register_is_not_taken_as_new(server_settings):
    """Whoever empties the table of facts would otherwise have a server adopt whatever is there."""
    with served(server_settings) as site:
        world = World(server_settings, site)
        world.run(sa.delete(tables.facts))
    server_settings.register_file.unlink()
    with pytest.raises(InputError, match="missing or empty"):
        create_app(server_settings)
    server_settings.ledger_head.unlink()
    with pytest.raises(InputError, match="--trust-database"):
        create_app(server_settings)


def test_row_100_a_sealed_answer_opens_for_its_own_person_study_and_level_alone():
    vault = access.Vault(bytes(range(32)))
    sealed = vault.seal([123], "anna", "study", 0.5)
    assert vault.open(sealed, "anna", "study", 0.5) == (123).to_bytes(4)
    for other in (("bob", "study", 0.5), ("anna", "other", 0.5), ("anna", "study", 0.25)):
        with pytest.raises(InputError, match="does not open"):
            vault.open(sealed, *other)


STUDY_CHANGES = {
    "shares": {"waves": '[{"closes": 4000000000, "share": 1.0}, {"closes": 4000000001, "share": 1.0}]'},
    "bounds": {"more": "bounds"},
    "questions": {"more": "shares"},
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
        cells = {**STUDY_CHANGES[what], **({"fewest": 2} if what == "fewest" else {})}
        if "more" in cells:
            (study,) = [row for row in world.rows(tables.studies) if row["id"] == world.study]
            old, new = {"bounds": ("[0.0,10.0]", "[0.0,1e6]"), "shares": ('"share":1.0', '"share":0.5')}[cells["more"]]
            assert old in study["more"]
            cells = {"more": study["more"].replace(old, new)}
        world.write(tables.studies, world.study, **cells)
        assert site.publish(world.study).json()["error"]["code"] == "changed"


def test_row_100_people_who_were_added_moved_or_removed_behind_its_back_stop_a_publication(server_settings):
    with served(server_settings) as site:
        one = World(server_settings, site)
        other = World(server_settings, site)
        engine = tables.connect(server_settings.database)
        with engine.begin() as connection:
            row = {**one.row(), "id": "f" * 16, "invitation": None, "again": None}
            connection.execute(sa.insert(tables.people).values(row))
        assert site.publish(one.study).json()["error"]["code"] == "changed"
        with engine.begin() as connection:
            connection.execute(sa.delete(tables.people).where(tables.people.c.id == "f" * 16))
            move = sa.update(tables.people).where(tables.people.c.id == one.person)
            connection.execute(move.values(study=other.study))
        for world in (one, other):
            assert site.publish(world.study).json()["error"]["code"] == "changed"
        with engine.begin() as connection:
            connection.execute(move.values(study=one.study))
        for world in (one, other):
            assert "results" in site.publish(world.study).json(), "a control: everything is as it was"
        engine.dispose()


def test_row_100_a_study_that_was_smuggled_in_is_not_published(server_settings):
    """Whole rows of an attacker's own: the register has never heard of them."""
    with served(server_settings) as site:
        world = World(server_settings, site)
        engine = tables.connect(server_settings.database)
        (study,) = world.rows(tables.studies)
        with engine.begin() as connection:
            connection.execute(sa.insert(tables.studies).values({**study, "id": "../../smuggled"}))
            row = {**world.row(), "id": "e" * 16, "study": "../../smuggled", "invitation": None, "again": None}
            connection.execute(sa.insert(tables.people).values(row))
        engine.dispose()
        said = site.curator.post("/api/studies/..%2F..%2Fsmuggled/publish", json={"wave": 0})
        assert said.status_code in {404, 405, 409}
        with pytest.raises(Exception, match="not as this server left them"):
            site.app.state.publisher.publish("../../smuggled", 0)
        with pytest.raises(ChangedError):
            site.app.state.store.write(lambda t: server_people.invite(t, "../../smuggled", 1))
        register = server_settings.register_file.name
        assert {path.name for path in server_settings.register_file.parent.iterdir()} <= {
            "server.db", "server.db-wal", "server.db-shm", "server.db.ledger", "server.db.ledger-wal",
            "server.db.ledger-shm", "server.db.ledger.head", "server.db.ledger.head.lock", "server.db.lock",
            "server.key",
            *(f"{register}{end}" for end in ("", "-wal", "-shm", ".head", ".lock", ".head.lock")),
        }  # fmt: skip


def test_row_100_changes_of_the_same_transaction_are_no_changes_from_outside(tmp_path):
    """What a transaction has written is what it finds."""
    settings = settings_for(tmp_path)
    with served(settings) as site:
        world = World(settings, site)

        def both(transaction):
            server_people.invite(transaction, world.study, 2)
            return len(transaction.everybody(world.study)[0])

        assert site.app.state.store.write(both) == 33
        world.change(epsilon=1000.0)
        with pytest.raises(ChangedError):
            site.app.state.store.write(both)


@pytest.mark.parametrize("what", ["a person", "the study"])
def test_row_100_what_was_changed_and_changed_back_can_be_published(server_settings, what):
    """A publication that is refused writes nothing that would keep the right rows from being published."""
    with served(server_settings) as site:
        world = World(server_settings, site)
        table, key, cells = {
            "a person": (tables.people, world.person, {"epsilon": 1000.0}),
            "the study": (tables.studies, world.study, {"fewest": 2}),
        }[what]
        before = next(row for row in world.rows(table) if row["id"] == key)
        world.write(table, key, **cells)
        assert site.publish(world.study).json()["error"]["code"] == "changed"
        world.write(table, key, **{name: before[name] for name in cells})
        assert site.publish(world.study).json()["results"][0]["n"] == 31


def test_row_100_a_wave_that_was_cut_off_and_then_changed_is_open_for_withdrawals_again(server_settings):
    with served(server_settings) as site:
        world, key = World(server_settings, site), site.key
        with later(DAY):
            site.app.state.store.write(lambda t: publish._closed(t, world.study, 0, charged=False))
        site.app.state.store.register.at_work.add(world.study)
        assert world.victim.delete("/api/answer").status_code == 409, "a control: it is being published"
        other = next(row for row in world.rows() if row["id"] != world.person)
        world.write(tables.people, other["id"], epsilon=1000.0)
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
            assert "who still has their page open can withdraw" in said.json()["error"]["message"]
            assert site.live(world.study)["study"]["phase"] == "open"
        assert [entry.kind for entry in site.app.state.publisher.ledger.history()] == ["open"], "nothing was charged"
        world.put_back(before)
        assert world.victim.delete("/api/answer").status_code == 200
        assert site.publish(world.study).json()["results"][0]["n"] == 30


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
        assert said["results"][0]["n"] == 30
        assert said["results"][0]["ledger"]["release_id"] == f"{world.study}-0-1-hours"
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
        assert site.publish(world.study).json()["results"][0]["n"] == 31
        kinds = [entry.kind for entry in site.app.state.publisher.ledger.history()]
        assert (kinds.count("charge"), kinds.count("result")) == (1, 1)


def test_row_100_withdrawing_is_possible_after_closing_until_it_is_published(tmp_path):
    settings = settings_for(tmp_path)
    with served(settings) as site:
        world = World(settings, site)
        found = site.app.state.store.write
        found(lambda t: studies.move(t, world.study, waves='[{"closes": 1, "share": 1.0}]', opens=0))
        assert site.live(world.study)["study"]["phase"] == "closed"
        body = {"answers": {"hours": 1.0}, "tier": "strict"}
        assert world.victim.put("/api/answer", json=body).json()["error"]["code"] == "closed"
        assert world.victim.delete("/api/answer").status_code == 200
        assert site.publish(world.study).json()["results"][0]["n"] == 30
        assert world.victim.delete("/api/answer").status_code == 200, "there is nothing left to withdraw"


@pytest.mark.parametrize("moment", ["before the commit", "after the commit"])
def test_row_100_the_register_survives_a_crash_on_either_side_of_the_commit(server_settings, moment, monkeypatch):
    """It knows the row before and the row after; the database decides which of them holds, once."""
    with served(server_settings) as site:
        world, key = World(server_settings, site), site.key
        register, before = site.app.state.store.register, world.row()
        real = register.prepare

        def cut_off(written):
            real(written)
            raise RuntimeError("planted")

        if moment == "before the commit":
            monkeypatch.setattr(register, "prepare", cut_off)
        monkeypatch.setattr(register, "settle", lambda *_: None)
        monkeypatch.setattr(site.app.state.store, "_came", lambda _: False)
        said = world.victim.put("/api/answer", json={"answers": {"hours": 1.0}, "tier": "open", "allow_more": True})
        assert said.status_code == (500 if moment == "before the commit" else 200)
        monkeypatch.undo()
    with served(server_settings) as site:
        site.curator.headers["Authorization"] = f"Bearer {key}"
        assert len(site.app.state.store.write(lambda t: t.everybody(world.study)[0])) == 31
        now = world.row()
        assert (now == before) == (moment == "before the commit")
        if moment == "after the commit":
            world.put_back(before)
            with pytest.raises(ChangedError):
                site.app.state.store.write(lambda t: t.everybody(world.study))
            world.put_back(now)
        result = site.publish(world.study).json()["results"][0]
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
        assert site.publish(world.study).json()["results"][0]["n"] == 31


def test_row_100_a_missing_register_is_refused_at_the_start(server_settings):
    with served(server_settings) as site:
        World(server_settings, site)
    server_settings.register_file.unlink()
    with pytest.raises(InputError, match=r"register is missing.*--trust-database"):
        create_app(server_settings)


def test_row_100_a_register_of_another_key_or_a_damaged_one_vouches_for_nothing(tmp_path):
    settings = settings_for(tmp_path)
    with served(settings) as site:
        world = World(settings, site)
        assert stat.S_IMODE(settings.register_file.stat().st_mode) == 0o600
        (row,) = world.rows(tables.studies)
        other = Register(settings.register_file, access.Vault(bytes(32)).register_key)
        assert not store.Transaction(None, other).vouches("study", row)
        assert store.Transaction(None, site.app.state.store.register).vouches("study", row), "a control"
        other.close()
    settings.register_file.write_bytes(b"hetdp" * 1000)
    with pytest.raises(InputError, match="register"):
        create_app(settings)


def test_row_100_a_register_that_cannot_be_written_lets_nothing_be_changed(tmp_path):
    settings = settings_for(tmp_path)
    with served(settings) as site:
        world = World(settings, site)
        register = site.app.state.store.register
        register.close()
        settings.register_file.rename(tmp_path / "away")
        said = world.victim.delete("/api/answer")
        assert (said.status_code, said.json()["error"]["code"]) == (503, "register")
        (tmp_path / "away").rename(settings.register_file)
        assert world.row()["answer"] is not None
        assert world.victim.delete("/api/answer").status_code == 200


def test_a_database_that_the_operator_trusts_is_believed_whole(tmp_path):
    """Studies, people and imports: the same file, sent again, does not come a second time."""
    settings, rows = settings_for(tmp_path), "value,tier\n5,open\n"
    with served(settings) as site:
        key, study = site.key, site.study(tiers=TIERS)
        assert site.rows(study, rows).json() == {"people": 1}
    settings.register_file.unlink()
    with served(replace(settings, trust_database=True)) as site:
        site.curator.headers["Authorization"] = f"Bearer {key}"
        assert site.rows(study, rows).json() == {"people": 1}
        assert site.live(study)["n"] == 1
        assert site.publish(study).json()["results"][0]["n"] == 1


@pytest.mark.parametrize("version", ["0", "6", "x"])
def test_a_database_of_a_version_that_is_not_known_is_refused(tmp_path, version):
    settings = settings_for(tmp_path)
    with served(settings):
        pass
    engine = tables.connect(settings.database)
    with engine.begin() as connection:
        connection.execute(sa.update(tables.facts).where(tables.facts.c.name == "version").values(text=version))
    engine.dispose()
    with pytest.raises(InputError, match="othing was changed"):
        create_app(settings)


# ---------------------------------------------------------------------------------------------------------
# Rows 118 and 119


def test_row_118_after_a_restart_of_postgresql_the_server_takes_its_lock_again_before_it_writes(tmp_path):
    with postgres.server(fsync="on", full_page_writes="on") as running, running.database() as name:
        settings = settings_for(tmp_path, running.url(name).replace("postgresql://", "postgresql+psycopg://"))
        with served(settings) as site:
            study = site.study(tiers=TIERS)
            (person,) = site.join(study, [(1.0, "strict")])
            running.crash()
            answer = {"answers": {"hours": 2.0}, "tier": "strict"}
            deadline = time.monotonic() + 180  # while PostgreSQL recovers, which a busy disk makes slow
            while (said := person.put("/api/answer", json=answer).status_code) != 200 and time.monotonic() < deadline:
                time.sleep(0.1)
            assert said == 200, "it has the lock again"
            with pytest.raises(InputError, match="another process serves"):
                create_app(settings)
            key = settings.key_file.read_text().strip()
            elsewhere = replace(settings, key_file=tmp_path / "other.key", key=key)
            with pytest.raises(InputError, match="another process serves"):
                create_app(elsewhere)


def test_row_118_after_a_restart_of_postgresql_one_server_writes_and_no_other(tmp_path):
    """Another server, with a register of its own, was faster: the first one says that it writes nothing."""
    with postgres.server(fsync="on", full_page_writes="on") as running, running.database() as name:
        address = running.url(name).replace("postgresql://", "postgresql+psycopg://")
        settings = settings_for(tmp_path, address, head_file=tmp_path / "head")
        with served(settings) as old:
            study = old.study(tiers=TIERS)
            (person,) = old.join(study, [(1.0, "strict")])
            running.crash()
            (tmp_path / "other").mkdir()
            shutil.copy(tmp_path / "head", tmp_path / "other" / "head")
            other = replace(settings, head_file=tmp_path / "other" / "head", trust_database=True)
            answer = {"answers": {"hours": 2.0}, "tier": "strict"}
            with served(other) as new:
                new.curator.headers["Authorization"] = f"Bearer {old.key}"
                written = [person.put("/api/answer", json=answer) for _ in range(3)]
                assert {said.status_code for said in written[-2:]} == {503}
                assert written[-1].json()["error"]["code"] == "another-server"
                new.join(study, [(2.0, "open")])
                assert new.live(study)["n"] == 2
            assert person.put("/api/answer", json=answer).status_code == 200, "the other one has stopped"
            assert old.live(study)["n"] == 2, "it has counted what the other one wrote"
            assert [old.publish(study).json()["error"]["code"] for _ in range(2)][-1] == "changed", "and believes none"


def test_row_119_the_files_of_a_server_are_for_its_owner_alone(tmp_path):
    settings = settings_for(tmp_path)
    with served(settings) as site:
        world, key = World(settings, site), site.key
    for path in tmp_path.iterdir():
        if path.name != "server.key":
            path.chmod(0o644)  # as older versions made some of them
    with served(settings) as site:
        site.curator.headers["Authorization"] = f"Bearer {key}"
        site.publish(world.study)
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.rglob("*") if path.is_file()}
        assert {"server.db", "server.db-wal", "server.db-shm", "server.key"} <= modes.keys()
        assert {name for name, mode in modes.items() if mode & 0o077} == set()
