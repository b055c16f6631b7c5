"""The central server, from an empty database to a published result, on SQLite and on PostgreSQL."""

from __future__ import annotations

import gzip
import json
import math
import os
import socket
import sqlite3
import stat
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import sqlalchemy as sa
from backports import zstd

import hetdp
from hetdp.cli.serve import serve
from hetdp.ledger import LedgerError
from hetdp.server import Settings, create_app, run, store, studies, tables
from hetdp.server.backup import back_up
from hetdp.server.restore import restore
from hetdp.statistics.mean import Mean
from postgres import NoServerError, server
from serving import DAY, NUMBER, TIERS, later, served, settings_for

VALUES = [0.0, 2.5, 9.75, 10.0, 3.125, 7.0]


@pytest.fixture(scope="module")
def synced_postgres():
    """A PostgreSQL that syncs, as the ledger demands."""
    try:
        with server(fsync="on") as running:
            yield running
    except NoServerError as error:
        if os.environ.get("CI"):
            pytest.fail(str(error))
        pytest.skip(str(error))


@pytest.fixture(params=["sqlite", "postgresql"])
def settings(request, tmp_path):
    if request.param == "sqlite":
        yield settings_for(tmp_path)
    else:
        with request.getfixturevalue("synced_postgres").database() as name:
            address = request.getfixturevalue("synced_postgres").url(name)
            yield settings_for(tmp_path, address.replace("postgresql://", "postgresql+psycopg://"))


@pytest.fixture
def site(tmp_path):
    with served(settings_for(tmp_path)) as running:
        yield running


def rows_of(site, table=tables.people):
    with site.app.state.store.engine.connect() as connection:
        return connection.execute(sa.select(table)).all()


def test_a_study_goes_from_nothing_to_a_published_mean(settings):
    """With only public people there is no noise: the result is the mean of the values, to half a step of the grid."""
    with served(settings) as site:
        study = site.study(fewest=3)
        site.join(study, [(value, "public") for value in VALUES])
        assert site.live(study)["n"] == len(VALUES)
        assert site.client().get(f"/api/results/{study}").status_code == 404
        said = site.publish(study)
        assert said.status_code == 200
        assert said.json()["results"][0]["estimate"] == pytest.approx(np.mean(VALUES), abs=10 / 2**20)
        shown = site.client().get(f"/api/results/{study}").json()
        assert shown == said.json()
        assert shown["study"]["phase"] == "published"
        assert [row.answer for row in rows_of(site)] == [None] * len(VALUES)


def test_the_release_is_the_librarys(site):
    """Plan, spends and noise are those of hetdp.plan on the same people; the ledger has the charges."""
    study = site.study()
    site.rows(study, "value,tier\n" + "\n".join(["3,strict"] * 300 + ["8,open"] * 100))
    (live,), (result,) = site.live(study)["questions"], site.publish(study).json()["results"]
    below = [math.nextafter(0.1, 0), 2.0]  # the ledger enters with the largest double that is not above 1/10
    asked = Mean((0, 10), missing="estimate")
    plan = hetdp.plan({below[0]: 300, below[1]: 100}, statistic=asked)
    for found in (live["plan"], result):
        assert found["threshold"] == plan.threshold
        assert [tier["spent"] for tier in found["tiers"]] == [row.spent for row in plan.table]
        assert found["noise_scale"] == plan.noise_scale
    assert [tier["name"] for tier in result["tiers"]] == ["strict", "open"]
    ledger = site.app.state.publisher.ledger
    charged = {balance.spent for balance in ledger.balances()}
    scale = Fraction(plan.noise[0].scale)
    assert charged == {math.ceil(int(cost) / scale * 10**9) / 1e9 for cost in plan.costs}
    ledger.verify()


def test_what_if_is_the_librarys(site):
    study = site.study()
    site.rows(study, "value,tier\n" + "\n".join(["3,strict"] * 700 + ["8,open"] * 100))
    strict = math.nextafter(0.1, 0)
    said = site.curator.get(f"/api/studies/{study}/what-if", params={"tier": "open", "people": 200}).json()
    asked = Mean((0, 10), missing="estimate")
    for when, many in (("now", 100), ("then", 300)):
        plan = hetdp.plan({strict: 700, 2.0: many}, statistic=asked)
        assert [one["error"] for one in said[when]] == [asked.error_answered(plan, 1.0)]


def test_row_116_what_a_person_is_told_are_upper_limits_that_hold_whatever_others_do(site):
    """The same words before and after 60 people leave whom a forecast had counted on; and all of it is spent then."""
    study = site.study(tiers=[{"name": "strict", "epsilon": 0.1}, {"name": "open", "epsilon": 20.0}])
    people = site.join(study, [(3, "strict")] * 60)
    (person,) = site.join(study, [(1, "open")])
    crowded = person.get("/api/answer").json()
    for other in people:
        other.delete("/api/answer")
    alone = person.get("/api/answer").json()
    assert alone["choices"] == crowded["choices"]
    offers = {offer["name"]: offer for offer in alone["choices"]}
    assert offers["open"]["limit"]["sentence"] == "Never more than ε = 20, whatever others do."
    assert offers["strict"]["sure"] == pytest.approx(math.exp(0.1) / (1 + math.exp(0.1)))
    words = " ".join(offer[part]["sentence"] for offer in offers.values() for part in ("limit", "meaning"))
    assert [word for word in ("free", "would", "right now", "forecast") if f" {word}" in words] == []
    site.join(study, [(5, "open")] * 30)
    result = site.publish(study).json()["results"][0]
    after = person.get("/api/answer").json()["balance"]
    assert result["tiers"][0]["spent"] == pytest.approx(20), "a forecast of before would have been far too low"
    assert hetdp.plan({0.1: 60, 20.0: 1}, bounds=(0, 10)).table[1].spent < 5
    assert after["spent"] == pytest.approx(20)
    assert after["spent"] <= 20
    assert after["sentence"] == "At most ε = 20 was used."


def test_row_116_what_is_spent_is_the_ledgers_and_a_lowered_level_promises_no_less(site):
    now = int(time.time())
    waves = [{"closes": now + 100, "share": 0.25}, {"closes": now + 200, "share": 0.5}]
    study = site.study(waves=waves, tiers=[{"name": "little", "epsilon": 0.01}, {"name": "some", "epsilon": 0.4}])
    site.rows(study, "value,tier\n" + "2,some\n" * 200)
    (person,) = site.join(study, [(4, "some")])
    before = person.get("/api/answer").json()
    assert (before["balance"]["spent"], before["balance"]["left"]) == (0.0, pytest.approx(0.75 * 0.4))
    assert before["balance"]["sentence"] == "Nothing was used; at most 0.3 can still be used."
    limits = {offer["name"]: offer["limit"]["sentence"] for offer in before["choices"]}
    expected = "Never more than ε = 0.4 in all 2 publications together, and at most 0.2 in one, whatever others do."
    assert limits["some"] == expected
    assert site.publish(study).status_code == 200
    spent = max(balance.spent for balance in site.app.state.publisher.ledger.balances())
    after = person.get("/api/answer").json()
    assert after["balance"]["spent"] == spent == pytest.approx(0.1, abs=1e-8)
    assert after["balance"]["left"] == 0.5 * 0.4 < 0.4 - spent, "the wave that is left may use half"
    limits = {offer["name"]: (offer["limit"]["sentence"], offer["sure"]) for offer in after["choices"]}
    assert limits["little"] == (
        "Nothing more: up to ε = 0.1 counts as used.",
        pytest.approx(1 / (1 + math.exp(-spent))),
    )
    used = "up to ε = 0.1 counts as used, so at most 0.2 can still be used."
    assert limits["some"][0] == f"Never more than ε = 0.3 in all publications together: {used}"
    assert after["balance"]["sentence"] == "At most ε = 0.1 was used; at most 0.2 can still be used."
    person.delete("/api/answer")
    assert person.get("/api/answer").json()["balance"]["sentence"] == "At most ε = 0.1 was used."


def test_row_116_without_the_ledger_nothing_is_promised_or_sent_and_people_can_still_withdraw(site, monkeypatch):
    study = site.study()
    (person,) = site.join(study, [(4, "open")])

    def damaged(_):
        raise LedgerError("damaged")

    monkeypatch.setattr(site.app.state.publisher.ledger, "balance", damaged)
    page = person.get("/answer").text
    assert "Nothing can be sent now." in page
    assert "Never more than" not in page
    assert person.delete("/api/answer").status_code == 200


def test_the_page_says_how_few_are_enough_and_until_when_an_answer_can_be_changed_or_withdrawn(site):
    many, one, final = site.study(fewest=1234), site.study(), site.study(changeable=False)
    pages = {study: site.join(study, [(1, "open")])[0].get("/answer").text for study in (many, one, final)}
    assert "needs at least 1,234 people" in pages[many]
    assert "it could be only you" in pages[one]
    assert "You can change your answers until" in pages[one]
    assert "You can change your answers until" not in pages[final]
    assert "Answers that were sent cannot be changed, only withdrawn;" in pages[final]
    assert all("You can withdraw them until they are read" in page for page in pages.values())
    waves = [{"closes": int(time.time()) + 100 * i, "share": 0.5} for i in (1, 2)]
    page = site.join(site.study(waves=waves), [(1, "open")])[0].get("/answer").text
    assert page.count("with at most 50 % of what you allow") == 2


def test_row_115_there_is_no_default_level_and_a_return_shows_the_persons_own(site):
    for study, choice in (
        (site.study(), {"tier": "strict"}),
        (site.study(tiers=[], free={"least": 0.0123456, "most": 5.0}), {"epsilon": 0.0123456}),
    ):
        person = site.enter(site.invite(study, 1)[0])
        first = person.get("/answer").text
        assert " checked" not in first
        assert ("class=unset" in first) == ("epsilon" in choice)
        said = person.put("/api/answer", json={"answers": {"hours": 1}})
        assert (said.status_code, said.json()["error"]["code"]) == (422, "choice")
        assert site.live(study)["n"] == 0
        own = person.put("/api/answer", json={"answers": {"hours": 1}, **choice}).json()["epsilon"]
        again = person.get("/answer").text
        assert "class=unset" not in again
        offers = person.get("/api/answer").json()["choices"]
        (kept,) = [offer for offer in offers if offer["own"]]
        assert kept["epsilon"] == own
        # What the page sends when only the number is corrected: the level that it shows.
        same = {"epsilon": kept["epsilon"]} if "epsilon" in choice else {"tier": kept["name"]}
        assert person.put("/api/answer", json={"answers": {"hours": 2}, **same}).json()["epsilon"] == own
        assert [offer["more"] for offer in offers] == [float(offer["epsilon"]) > own for offer in offers]


def test_row_115_epsilon_never_rises_unasked(site):
    study = site.study()
    (person,) = site.join(study, [(1, "strict")])
    before = rows_of(site)
    for more in ({"tier": "open"}, {"tier": "public"}, {"tier": "open", "allow_more": False}):
        said = person.put("/api/answer", json={"answers": {"hours": 2}, **more})
        assert (said.status_code, said.json()["error"]["code"]) == (409, "more")
    assert rows_of(site) == before
    assert (
        person.put("/api/answer", json={"answers": {"hours": 2}, "tier": "open", "allow_more": True}).json()["tier"]
        == "open"
    )
    assert person.put("/api/answer", json={"answers": {"hours": 2}, "tier": "strict"}).json()["tier"] == "strict", (
        "less needs no word"
    )


def test_an_answer_can_be_changed_and_withdrawn_until_closing(site):
    study = site.study()
    first, second = site.join(study, [(1, "public"), (9, "public")])
    assert first.put("/api/answer", json={"answers": {"hours": 3}, "tier": "public"}).json()["first"] is False
    assert site.live(study)["n"] == 2
    for _ in range(2):
        assert second.delete("/api/answer").json()["withdrawn"] is True
    assert site.live(study)["n"] == 1
    assert sorted(row.answer is None for row in rows_of(site)) == [False, True]
    assert first.get("/api/answer").json()["choice"] == {"tier": "public", "epsilon": "inf"}
    assert site.publish(study).json()["results"][0]["estimate"] == pytest.approx(3, abs=1e-5)
    for person in (first, second):
        assert (
            person.put("/api/answer", json={"answers": {"hours": 5}, "tier": "public"}).json()["error"]["code"]
            == "closed"
        )
    assert first.delete("/api/answer").status_code == 409


def test_an_answer_is_final_where_the_study_says_so(site):
    study = site.study(changeable=False)
    (person,) = site.join(study, [(1, "open")])
    assert person.put("/api/answer", json={"answers": {"hours": 2}, "tier": "open"}).json()["error"]["code"] == "final"
    assert person.delete("/api/answer").status_code == 200


def test_the_link_of_the_receipt_leads_back_and_the_invitation_does_not(site):
    study = site.study()
    (token,) = site.invite(study, 1)
    person = site.enter(token)
    other = site.enter(token)  # the same invitation on another device, before an answer is there
    link = person.put("/api/answer", json={"answers": {"hours": 1}, "tier": "open"}).json()["come_back"]
    assert other.get("/api/answer").status_code == 401
    assert site.client().post("/api/session/participant", json={"token": token}).status_code == 403
    assert site.enter(link.partition("#")[2]).get("/api/answer").json()["joined"] is True


def test_too_few_people_are_not_published(site):
    study = site.study(fewest=3)
    site.join(study, [(1, "open"), (2, "open")])
    said = site.publish(study)
    assert said.status_code == 409
    assert said.json()["error"]["message"] == "Too few people who count: 2. This study publishes from 3 on."
    assert site.publish(study).json()["error"]["code"] == "too-few", "however often it is asked for"
    assert site.client().get(f"/api/results/{study}").status_code == 404


def test_times_are_kept(site):
    now = int(time.time())
    planned = site.study(opens=now + 900, waves=[{"closes": now + 1000}])
    closed = site.study(opens=now - 1000, waves=[{"closes": now - 10}])
    person = site.enter(site.invite(planned, 1)[0])
    early = person.put("/api/answer", json={"answers": {"hours": 2}, "tier": "open"})
    late = site.curator.post(f"/api/studies/{closed}/invitations", json={"count": 1})
    assert [said.json()["error"]["code"] for said in (early, late)] == ["closed", "closed"]
    assert site.publish(planned).status_code == 409
    assert site.live(closed)["study"]["phase"] == "published", "nobody came, and nobody can: it is over"


def test_waves_spend_their_shares_and_never_more_than_the_budget(settings):
    now = int(time.time())
    waves = [{"closes": now + 100, "share": 0.25}, {"closes": now + 200, "share": 0.75}]
    with served(settings) as site:
        study = site.study(waves=waves)
        site.rows(study, "value,tier\n" + "\n".join(["2,strict"] * 200))
        (person,) = site.join(study, [(4, "strict")])
        first = site.publish(study).json()["results"][0]
        assert site.live(study)["study"]["phase"] == "open"
        assert site.publish(study, 2).status_code == 409
        assert person.put("/api/answer", json={"answers": {"hours": 6}, "tier": "strict"}).status_code == 200
        second = site.publish(study, 1).json()["results"][0]
        again = site.client().get(f"/api/results/{study}", params={"wave": 0}).json()
        assert again["results"][0] == first
        assert again["waves"] == [0, 1]
        balances = site.app.state.publisher.ledger.balances()
    assert [first["tiers"][0]["spent"], second["tiers"][0]["spent"]] == pytest.approx([0.025, 0.075], abs=1e-8)
    assert len(balances) == 201
    assert all(0.0999 < balance.spent <= 0.1 for balance in balances)


def test_two_clicks_and_twenty_retries_publish_once(site):
    study = site.study()
    site.rows(study, "value,tier\n" + "\n".join(["2,open"] * 500))
    with ThreadPoolExecutor(8) as pool:
        said = list(pool.map(lambda _: site.publish(study).json(), range(22)))
    assert all(one == said[0] for one in said)
    kinds = [entry.kind for entry in site.app.state.publisher.ledger.history()]
    assert (kinds.count("charge"), kinds.count("result")) == (1, 1)


@pytest.mark.parametrize("step", ["closed", "released"])
def test_a_publication_that_was_cut_off_is_finished_at_the_next_start(tmp_path, step):
    """Cut off after closing, or after the ledger stored the release: the next start publishes that very number."""
    settings = settings_for(tmp_path)
    with served(settings) as site:
        study = site.study()
        site.rows(study, "value,tier\n" + "\n".join(["2,open"] * 500))
        publisher = site.app.state.publisher
        from hetdp.server import publish, results

        with later(DAY):
            found, *rows = site.app.state.store.write(publish._closed, study, 0, charged=False)
        before = None
        if step == "released":
            (before,) = results.results_of(json.dumps(publisher._released(found, *rows)))
    with served(settings) as site:
        after = site.client().get(f"/api/results/{study}").json()["results"][0]
        kinds = [entry.kind for entry in site.app.state.publisher.ledger.history()]
    assert kinds.count("charge") == kinds.count("result") == 1
    assert before is None or after == before


def test_rows_from_a_file_are_the_librarys_tally(site):
    """What is no number is missing, one outside counts as the nearer bound, as everywhere; twice is once."""
    study = site.study()
    text = 'value,tier\n1,public\nabc,public\n,public\n99,public\n"2,5",public\n4,public\n'
    assert site.rows(study, text).json() == {"people": 6}
    assert site.rows(study, text).json() == {"people": 6}
    assert site.live(study)["n"] == 6
    assert site.publish(study).json()["results"][0]["estimate"] == pytest.approx((1 + 10 + 4) / 3, abs=1e-5)


def test_one_study_that_cannot_be_finished_keeps_no_other_from_being_served(tmp_path):
    """Bounds that no report can show are refused when a study is made; a study that was changed is not finished."""
    import sqlalchemy as sa

    from hetdp.server import publish

    settings = settings_for(tmp_path)
    with served(settings) as site:
        asked = {"title": "?", "questions": [{**NUMBER, "bounds": [0, 1e-200]}], "tiers": TIERS, "opens": 1}
        waves = [{"closes": 2 * 10**9, "share": 1.0}]
        assert site.curator.post("/api/studies", json={**asked, "waves": waves}).status_code == 422
        bad, good = site.study(), site.study()
        for study in (bad, good):
            site.rows(study, "value,tier\n" + "\n".join(["2,open"] * 500))
            close = partial(publish._closed, study_id=study, wave=0, charged=False)
            with later(DAY):
                site.app.state.store.write(close)
        change = sa.update(tables.studies).where(tables.studies.c.id == bad).values(fewest=1000)
        site.app.state.store.write(lambda transaction: transaction.execute(change))
    with served(settings) as site:
        assert site.client().get(f"/api/results/{good}").status_code == 200
        assert site.client().get(f"/api/results/{bad}").status_code == 404
        kinds = [entry.kind for entry in site.app.state.publisher.ledger.history()]
    assert kinds.count("charge") == kinds.count("result") == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("value,tier\n1,open\n2,secret\n", "line 3"),
        ("wert,tier\n1,open\n", "no column 'hours'"),
        ("", "empty"),
    ],
    ids=["unknown tier", "no column", "empty"],
)
def test_a_bad_file_is_refused_by_a_public_reason(site, text, said):
    study = site.study()
    answer = site.rows(study, text)
    assert answer.status_code == 422
    assert said in answer.json()["error"]["message"]
    assert "/" not in answer.json()["error"]["message"].replace("file;", "")
    assert site.live(study)["n"] == 0


def test_people_may_choose_epsilon_freely(site):
    study = site.study(tiers=[], free={"least": 0.05, "most": 5.0})
    token = site.invite(study, 1)[0]
    person = site.enter(token)
    offers = [offer["epsilon"] for offer in person.get("/api/answer").json()["choices"]]
    assert (offers[0], offers[-1]) == (0.05, 5.0)
    assert offers == sorted(set(offers))
    said = person.put("/api/answer", json={"answers": {"hours": 1}, "epsilon": 0.12399}).json()
    assert said["epsilon"] == 0.123
    for bad in ({"epsilon": 0.01}, {"epsilon": 6}, {"tier": "open"}, {}):
        assert person.put("/api/answer", json={"answers": {"hours": 1}, **bad}).status_code == 422
    assert site.rows(study, "value,epsilon\n3,1\n4,0.2\n").json() == {"people": 2}
    assert [row["name"] for row in site.live(study)["joined"]] == ["ε = 0.123", "ε = 0.2", "ε = 1"]
    assert site.publish(study).status_code == 200


def test_many_free_choices_are_shown_in_bands(site):
    """Of 300 different ε twelve rows are shown at most, and everybody is in one of them; so on the result."""
    study = site.study(tiers=[], free={"least": 0.05, "most": 5.0})
    site.rows(study, "value,epsilon\n" + "".join(f"3,{0.05 + i / 100:.2f}\n" for i in range(300)))
    result = site.publish(study).json()["results"][0]
    assert sum(row["share"] for row in result["table"]) == pytest.approx(1)
    for rows in (site.live(study)["joined"], result["table"]):
        assert len(rows) <= 12
        assert sum(row["people"] for row in rows) == 300
    assert site.client().get(f"/results/{study}").text.count("<tr>") <= 13


def test_the_sample_of_the_demonstration(site):
    """It prints a result that is there, and invitations that work."""
    lines = dict.fromkeys(line.split()[1] for line in run.sample(site.app, site.address))
    tokens = [line.partition("#")[2] for line in lines if "#" in line]
    assert len(tokens) == 5
    assert site.enter(tokens[0]).get("/api/answer").json()["n"] == 2200
    result = next(line for line in lines if "/results/" in line)
    assert site.client().get(result).status_code == 200


def test_the_command_replaces_the_key_and_copies(tmp_path, capsys):
    where = {"database": f"sqlite:///{tmp_path}/server.db", "key_file": tmp_path / "server.key"}
    with served(settings_for(tmp_path)) as site:
        serve(**where, new_key=True)
        key = capsys.readouterr().out.strip()
        assert site.client(Authorization=f"Bearer {key}").get("/api/studies").status_code == 200
        serve(**where, backup=tmp_path / "copy")
    names = {path.name for path in (tmp_path / "copy").iterdir()}
    assert names == {"backup.json", "database", "ledger", "register"}


def test_who_chooses_zero_is_never_kept(site):
    study = site.study(tiers=[{"name": "never", "epsilon": 0.0}, TIERS[2]])
    site.join(study, [(9, "never"), (1, "public")])
    state = site.app.state
    codes = {row.epsilon: state.vault.open(row.answer, row.id, row.study, row.epsilon) for row in rows_of(site)}
    assert codes[0.0] == b"\xff" * 4, "as of somebody who said nothing"
    assert site.publish(study).json()["results"][0]["estimate"] == pytest.approx(1, abs=1e-5)


def test_answers_survive_a_restart_and_counts_are_found_again(settings):
    with served(settings) as site:
        study = site.study()
        site.join(study, [(value, "public") for value in VALUES])
        key, before = site.key, site.live(study)["joined"]
    with served(settings) as site:
        assert site.key is None
        site.curator.headers["Authorization"] = f"Bearer {key}"
        assert site.live(study)["joined"] == before
        assert site.publish(study).json()["results"][0]["estimate"] == pytest.approx(np.mean(VALUES), abs=1e-4)


def test_the_curators_key_can_be_replaced(site):
    new = site.curator.post("/api/curator/key").json()["key"]
    assert site.curator.get("/api/studies").status_code == 401
    assert site.client(Authorization=f"Bearer {new}").get("/api/studies").status_code == 200
    newest = run.replaced_key(site.app.state.settings)
    assert site.client(Authorization=f"Bearer {new}").get("/api/studies").status_code == 401
    assert site.client(Authorization=f"Bearer {newest}").get("/api/studies").status_code == 200


def test_a_new_key_ends_the_sessions_that_the_old_one_began(site):
    """Also if the operator makes it, beside the running server: somebody may have stolen one."""
    key = run.replaced_key(site.app.state.settings)
    client = site.client()
    csrf = client.post("/api/session/curator", json={"key": key}).json()["csrf"]
    assert client.get("/api/studies").status_code == 200
    newer = run.replaced_key(site.app.state.settings)
    assert client.get("/api/studies", headers={"X-CSRF-Token": csrf}).status_code == 401
    site.curator.headers["Authorization"] = f"Bearer {newer}"


def test_the_vault_key_is_a_private_file_and_another_one_is_refused(tmp_path):
    settings = settings_for(tmp_path)
    with served(settings):
        assert stat.S_IMODE(settings.vault_file.stat().st_mode) == 0o600
    settings.vault_file.chmod(0o644)
    with pytest.raises(hetdp.InputError, match="chmod 600"):
        create_app(settings)
    settings.vault_file.unlink()
    with pytest.raises(hetdp.InputError, match="bring the key back"):
        create_app(settings)
    settings.vault_file.write_text("ab" * 32)
    settings.vault_file.chmod(0o600)
    with pytest.raises(hetdp.InputError, match="not the key"):
        create_app(settings)
    with pytest.raises(hetdp.InputError, match="64 hexadecimal"):
        create_app(settings_for(tmp_path, key="12"))


def test_a_missing_ledger_is_refused(tmp_path):
    settings = settings_for(tmp_path)
    with served(settings):
        pass
    for path in tmp_path.glob("*.ledger*"):
        path.unlink()
    with pytest.raises(hetdp.InputError, match="ledger of this server is missing"):
        create_app(settings)


def test_a_backup_taken_while_it_runs_can_be_restored(tmp_path):
    """On another machine, with the key that is kept apart: same counts, same codes, and it publishes."""
    (tmp_path / "live").mkdir()
    (tmp_path / "other").mkdir()
    settings = settings_for(tmp_path / "live")
    with served(settings) as site:
        study = site.study()
        site.join(study, [(value, "public") for value in VALUES])
        back_up(settings, tmp_path / "copy")
        site.join(study, [(10.0, "public")] * 3)  # after the copy
        with pytest.raises(hetdp.InputError, match="does not exist yet"):
            back_up(settings, tmp_path / "copy")
    other = settings_for(tmp_path / "other")
    other.key_file.write_bytes(settings.vault_file.read_bytes())
    other.key_file.chmod(0o600)
    key = restore(other, tmp_path / "copy", trusted=True).key
    with served(other) as site:
        site.curator.headers["Authorization"] = f"Bearer {key}"
        assert site.live(study)["n"] == len(VALUES)
        assert site.publish(study).json()["results"][0]["estimate"] == pytest.approx(np.mean(VALUES), abs=1e-4)


def test_a_second_process_is_refused(settings):
    """Also while the first one serves; afterwards the database can be served again."""
    with served(settings) as site:
        with pytest.raises(hetdp.InputError, match="another process serves"):
            create_app(settings)
        assert site.client().get("/health").status_code == 200
    with served(settings) as site:
        assert site.client().get("/health").status_code == 200


def test_a_release_that_the_ledger_refuses_is_not_published(tmp_path):
    """An old copy put back under a ledger that went on: other people under the same id. The server still starts."""
    settings = settings_for(tmp_path)
    with served(settings) as site:
        study = site.study()
        site.join(study, [(1, "open")])
        with sqlite3.connect(tmp_path / "server.db") as live, sqlite3.connect(tmp_path / "old.db") as old:
            live.backup(old)
        live.close()
        old.close()
        site.join(study, [(1, "open")])
        assert site.publish(study).status_code == 200
        key = site.key
    for name in ("server.db-wal", "server.db-shm"):
        (tmp_path / name).unlink(missing_ok=True)
    (tmp_path / "old.db").replace(tmp_path / "server.db")
    with served(settings) as site:
        site.curator.headers["Authorization"] = f"Bearer {key}"
        for _ in range(2):
            assert site.publish(study).json()["error"]["code"] == "changed"
        assert site.live(study)["study"]["phase"] == "changed", "its curators are told"
        assert site.app.state.store.read(studies.shown, study).status == "open", "people can still withdraw"
    with served(replace(settings, trust_database=True)) as site:
        site.curator.headers["Authorization"] = f"Bearer {key}"
        for _ in range(2):
            assert site.publish(study).json()["error"]["code"] == "old-copy"
        assert site.client().get(f"/api/results/{study}").status_code == 404
        assert site.live(study)["study"]["phase"] == "open", "people can still withdraw"


@pytest.mark.parametrize(
    "tampered",
    [
        lambda _: {"epsilon": math.inf},  # to have it published without noise
        lambda row: {"answer": row.answer[:-1] + bytes([row.answer[-1] ^ 1])},
    ],
    ids=["another epsilon", "a flipped bit"],
)
def test_a_row_that_was_changed_outside_is_not_published_and_others_are(tmp_path, tampered):
    """Sealed answers are bound to their ε: who writes to the database without the key cannot have them opened."""
    settings = settings_for(tmp_path)
    with served(settings) as site:
        study, other = site.study(), site.study()
        for one in (study, other):
            site.rows(one, "value,tier\n" + "\n".join(["2,strict"] * 400))
        row = next(row for row in rows_of(site) if row.study == study)
        change = sa.update(tables.people).where(tables.people.c.id == row.id).values(tampered(row))
        site.app.state.store.write(lambda transaction: transaction.execute(change))
        said = site.publish(study)
        assert (said.status_code, said.json()["error"]["code"]) == (409, "changed")
    with served(settings) as site:  # it is tried again at the start, and keeps nobody from being served
        assert site.client().get(f"/api/results/{study}").status_code == 404
        with later(DAY):
            assert site.app.state.publisher.publish(other, 0)["results"][0]["n"] == 400


def test_a_share_with_many_digits_and_a_tier_of_zero_are_published(site):
    """2⁶³ is less than the denominator of such a share, and nobody's budget is above 0 in one tier."""
    waves = [{"closes": int(time.time()) + 3600, "share": 0.0012345678901234567}]
    study = site.study(tiers=[{"name": "never", "epsilon": 0.0}, TIERS[1]], waves=waves)
    site.rows(study, "value,tier\n" + "5,open\n" * 5000)
    assert site.publish(study).status_code == 200


@pytest.mark.slow
def test_the_server_closes_after_the_publication_that_is_under_way(tmp_path, monkeypatch):
    from hetdp.server import publish

    started = []
    real = publish.Reading.__call__

    def slow(self, *rest):
        started.append(True)
        time.sleep(1)
        return real(self, *rest)

    monkeypatch.setattr(publish.Reading, "__call__", slow)
    settings = settings_for(tmp_path)
    with ThreadPoolExecutor() as pool:
        with served(settings) as site:
            study = site.study()
            site.rows(study, "value,tier\n" + "2,open\n" * 400)
            with later(DAY):
                under_way = pool.submit(site.app.state.publisher.publish, study, 0)
                while not started:
                    time.sleep(0.01)
        assert under_way.result(timeout=120)["results"][0]["n"] == 400
    with served(settings) as site:
        assert site.client().get(f"/api/results/{study}").status_code == 200


def test_the_explorer_waits_in_a_short_line_of_its_own(site, monkeypatch):
    """One thread, few who wait: answers and publications have the others."""
    from hetdp.server import dashboard

    go = threading.Event()
    monkeypatch.setattr(dashboard, "_traced", lambda _: go.wait(120) and {})
    with ThreadPoolExecutor(20) as pool:
        asked = [pool.submit(site.client().post, "/api/explore", json=dashboard.START) for _ in range(20)]
        deadline = time.monotonic() + 60
        while sum(one.done() for one in asked) < 19 - dashboard.WAITING and time.monotonic() < deadline:
            time.sleep(0.01)
        go.set()
        statuses = [one.result().status_code for one in asked]
    assert statuses.count(429) == 19 - dashboard.WAITING
    assert statuses.count(200) == 1 + dashboard.WAITING


def test_a_backup_without_a_ledger_is_refused(tmp_path):
    settings = settings_for(tmp_path)
    with served(settings):
        pass
    Path(settings.ledger).unlink()
    with pytest.raises(hetdp.InputError, match="no database"):
        back_up(settings, tmp_path / "copy")
    assert not Path(settings.ledger).exists()


@pytest.mark.parametrize("pack", [gzip.compress, zstd.compress])
def test_rows_that_unfold_are_refused(site, pack):
    assert site.rows(site.study(), pack(b"value,tier\n1,open\n")).status_code == 415


def test_the_audit_log_has_public_events_in_order(site):
    study = site.study()
    site.join(study, [(1, "open")])
    site.publish(study)
    said = [event["event"] for event in site.curator.get(f"/api/studies/{study}/events").json()]
    assert said == ["published", "closed for publication", "invitations made", "study created"]


def test_health_and_openapi(site):
    assert site.client().get("/health").json()["status"] == "ok"
    paths = site.client().get("/openapi.json").json()["paths"]
    assert {"/api/answer", "/api/studies", "/api/explore"} <= set(paths)


def test_sqlite_syncs_every_commit_and_overwrites_what_is_deleted(tmp_path):
    engine = tables.connect(f"sqlite:///{tmp_path}/a.db")
    with engine.connect() as connection:
        pragma = {name: connection.exec_driver_sql(f"PRAGMA {name}").scalar() for name in _PRAGMAS}
    engine.dispose()
    assert pragma == _PRAGMAS


_PRAGMAS = {"journal_mode": "wal", "synchronous": 2, "secure_delete": 1, "foreign_keys": 1}


def test_a_job_that_writes_has_the_lock_of_sqlite_from_its_start_and_sees_one_moment(tmp_path):
    settings = settings_for(tmp_path)
    database = store.Store(settings, store.Register(settings.register_file, settings.vault().register_key))

    def changed(transaction):
        before = transaction.execute(sa.text("PRAGMA user_version")).scalar()
        with closing(sqlite3.connect(settings.sqlite_file, timeout=0)) as other:
            try:
                other.execute("PRAGMA user_version = 7")
            except sqlite3.OperationalError:
                return "locked"
        return transaction.execute(sa.text("PRAGMA user_version")).scalar() != before

    assert database.write(changed) == "locked"
    assert database.read(changed) is False
    assert database.read(lambda transaction: transaction.execute(sa.text("PRAGMA user_version")).scalar()) == 7
    database.close()


def test_a_refused_request_spoils_no_other(tmp_path):
    """Fifty jobs at once, every fifth refused, one with a fault of its own: the others are all stored."""
    settings = settings_for(tmp_path)
    database = store.Store(settings, store.Register(settings.register_file, settings.vault().register_key))
    with database.engine.begin() as connection:
        tables.schema.create_all(connection)

    def job(i):
        def run(transaction):
            if i % 5 == 0:
                raise store.RefusedError(409)
            transaction.execute(sa.insert(tables.facts).values({"name": f"n{i}", "text": ""}))
            if i == 7:
                transaction.execute(sa.insert(tables.facts).values({"name": f"n{i}", "text": ""}))
            return i

        return run

    with ThreadPoolExecutor(8) as pool:
        futures = [pool.submit(database.write, job(i)) for i in range(50)]
    failed = [i for i, future in enumerate(futures) if future.exception() is not None]
    assert failed == sorted([*range(0, 50, 5), 7])
    database.close()
    with sqlite3.connect(tmp_path / "server.db") as connection:
        (count,) = connection.execute("SELECT count(*) FROM server_facts").fetchone()
    connection.close()
    assert count == 50 - len(failed)


def test_settings_refuse_an_origin_that_is_none():
    with pytest.raises(hetdp.InputError, match="an address like"):
        Settings(origin="survey.example.org")
    assert Settings(origin="https://survey.example.org/").secure
    assert "survey.example.org" in Settings(origin="https://survey.example.org/").hosts


def test_the_explorer_agrees_with_compare(site):
    mix = {"n": 1000, "tiers": [{"epsilon": 0.1, "share": 0.7}, {"epsilon": 2.0, "share": 0.3}]}
    said = site.client().post("/api/explore", json=mix).json()
    expected = hetdp.compare({0.1: 700, 2.0: 300}, bounds=(0, 1)).to_dict()
    assert said["comparison"] == json.loads(json.dumps(expected))
    assert said["threshold"] == hetdp.plan({0.1: 700, 2.0: 300}, bounds=(0, 1)).threshold
    at = said["over_n"]["n"].index(1000)
    here = {"over_n": at, "over_epsilon": said["over_epsilon"]["epsilon"].index(2.0)}
    for curves, place in here.items():
        errors = {curve["method"]: curve["error"][place] for curve in said[curves]["methods"]}
        assert errors == {entry["method"]: entry["worst_case_error"] for entry in expected["methods"]}


def test_a_port_that_is_taken_is_said_before_anything_is_made(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for how in ({"demo": True}, {"database": f"sqlite:///{tmp_path}/server.db"}):
            with pytest.raises(hetdp.InputError, match=f"port {port} cannot be used"):
                serve(port=port, **how)
    assert not list(tmp_path.iterdir())
    with pytest.raises(hetdp.InputError, match="--database out"):
        serve(demo=True, database=f"sqlite:///{tmp_path}/server.db")
