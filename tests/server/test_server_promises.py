"""Promises that somebody could break once: who is erased, what a file tells, what a page says of the ledger."""

from __future__ import annotations

import json
import time

import pytest
import sqlalchemy as sa

from hetdp.ledger import Ledger, LedgerError
from hetdp.server import access, people, publish, tables
from hetdp.server.access import RefusedError
from hetdp.server.app import look
from hetdp.server.store import Register
from serving import DAY, NUMBER, THREE, TIERS, later, saying, served, settings_for

FILE = "hours,tired,way,tier\n7,yes,by bus,strict\n"
GUESS = "hours,tired,way,tier\n7,no,by bus,strict\n"


@pytest.fixture
def site(tmp_path):
    with served(settings_for(tmp_path)) as running:
        yield running


def waves(*shares):
    now = int(time.time())
    return [{"closes": now + 3600 * (i + 1), "share": share} for i, share in enumerate(shares)]


def code_of(said):
    return said.json()["error"]["code"]


def in_database(site, statement):
    """Run a statement as somebody would who can write to the database and has nothing else."""
    engine = tables.connect(site.app.state.settings.database)
    with engine.begin() as connection:
        found = connection.execute(statement)
        rows = found.all() if found.returns_rows else []
    engine.dispose()
    return rows


def rows_of(site, study):
    return in_database(site, sa.select(tables.people).where(tables.people.c.study == study))


def curator_named(site, name):
    key = site.curator.post("/api/curators", json={"name": name}).json()["key"]
    return site.client(Authorization=f"Bearer {key}")


def sent(curator, study, text):
    return curator.post(f"/api/studies/{study}/rows", content=text, headers={"Content-Type": "text/csv"})


def refuses(*_, **__):
    raise LedgerError("a test")


# ---------------------------------------------------------------------------------------------------------
# Erasing


def test_a_link_that_was_pointed_at_somebody_else_in_the_database_erases_nobody(site):
    study, table = site.study(), tables.people
    one, other = (site.enter(token) for token in site.invite(study, 2))
    links = [person.put("/api/answer", json=saying(5, tier="public")).json()["come_back"] for person in (one, other)]
    mine, theirs = (access.digest("again", link.partition("#")[2]) for link in links)
    in_database(site, sa.update(table).where(table.c.again == mine).values(again=None))
    in_database(site, sa.update(table).where(table.c.again == theirs).values(again=mine))
    said = site.curator.request("DELETE", f"/api/studies/{study}/people", json={"link": links[0]})
    assert (said.status_code, code_of(said)) == (409, "changed")
    assert [row.answer is None for row in rows_of(site, study)] == [False, False]
    in_database(site, sa.update(table).where(table.c.again == mine).values(again=theirs))
    in_database(site, sa.update(table).where(table.c.again.is_(None)).values(again=mine))
    said = site.curator.request("DELETE", f"/api/studies/{study}/people", json={"link": links[0]})
    assert said.status_code == 200, "as the server wrote it, the link is that of its person"
    assert other.get("/api/answer").json()["joined"] is True


def test_who_is_erased_leaves_no_number_by_which_the_curator_could_know_them_and_none_comes_twice(site):
    study = site.study()
    first = site.curator.post(f"/api/studies/{study}/invitations", json={"count": 3}).json()
    assert first["first"] == 1
    *_, last = (site.enter(link.partition("#")[2]) for link in first["links"])
    assert last.put("/api/answer", json=saying(5, tier="open")).status_code == 200
    assert last.delete("/api/answer", params={"everything": True}).status_code == 200
    assert sorted((row.number, row.gone) for row in rows_of(site, study) if row.number) == [(1, None), (2, None)]
    assert [row.number for row in rows_of(site, study) if row.gone == "erased"] == [None]
    again = site.curator.post(f"/api/studies/{study}/invitations", json={"count": 1}).json()
    assert again["first"] == 4


# ---------------------------------------------------------------------------------------------------------
# Files


def test_no_other_curator_learns_whether_a_file_says_what_they_guess(site):
    study, bob = site.study(questions=THREE), curator_named(site, "bob")
    assert site.rows(study, FILE).json() == {"people": 1}
    counts = []
    for guess in (FILE, GUESS):
        before = site.live(study)["n"]
        assert sent(bob, study, guess).status_code == 201
        counts.append(site.live(study)["n"] - before)
    assert counts == [1, 1], "a right guess is taken like a wrong one"
    assert site.rows(study, FILE).json() == {"people": 1}
    assert site.live(study)["n"] == 3, "who sent it sends it once"


@pytest.mark.parametrize("who", ["another curator", "who sent it"])
def test_after_closing_no_file_is_looked_at(site, who):
    study = site.study(questions=THREE)
    curator = site.curator if who == "who sent it" else curator_named(site, "bob")
    site.rows(study, FILE)
    with later(2 * DAY):
        said = [sent(curator, study, text) for text in (FILE, GUESS, "nothing of a file")]
    assert [(one.status_code, code_of(one)) for one in said] == [(409, "closed")] * 3


def test_a_name_is_not_given_to_a_second_curator_who_could_then_ask_in_the_name_of_the_first(site):
    bob = curator_named(site, "bob")
    assert bob.get("/api/studies").status_code == 200
    assert site.curator.delete("/api/curators/bob").status_code == 200
    for name in ("bob", "curator", "server"):
        said = site.curator.post("/api/curators", json={"name": name})
        assert (said.status_code, code_of(said)) == (409, "curator-exists"), name


def test_where_people_are_asked_again_the_same_file_brings_answers_for_the_next_wave(site):
    study = site.study(each_wave="ask", waves=waves(0.5, 0.5), imports_count=False)
    text = "value,tier\n3,public\n4,public\n"
    assert site.rows(study, text).json() == {"people": 2}
    site.join(study, [(3, "public")])
    assert site.publish(study).status_code == 200
    with later(30 * DAY + 1):
        assert (site.live(study)["n"], site.live(study)["counted"]) == (0, 0)
        for _ in range(2):  # and within the wave it comes once
            assert site.rows(study, text).json() == {"people": 2}
            assert (site.live(study)["n"], site.live(study)["counted"]) == (2, 0)
        site.join(study, [(3, "public")] * 2)
        assert (site.live(study)["n"], site.live(study)["counted"]) == (4, 2)
    second = site.publish(study, 1)
    assert second.json()["results"][0]["n"] == 4


@pytest.mark.parametrize("name", ["tier", "epsilon"])
def test_a_question_has_not_the_name_of_a_column_of_files(site, name):
    new = {"title": "Hours", "tiers": TIERS, "opens": 0, "waves": waves(1.0)}
    asked = [NUMBER, {**NUMBER, "name": name}]
    said = site.curator.post("/api/studies", json={**new, "questions": asked})
    assert said.status_code == 422
    assert said.json()["error"]["field"] == "questions.1.name"
    assert said.json()["error"]["facts"] == {"rule": "column"}


def test_a_wave_has_a_share_that_can_be_published(site):
    new = {"title": "Hours", "tiers": TIERS, "opens": 0, "questions": [NUMBER]}
    said = site.curator.post("/api/studies", json={**new, "waves": waves(5e-324)})
    assert (said.status_code, said.json()["error"]["field"]) == (422, "waves.0.share")
    assert site.curator.post("/api/studies", json={**new, "waves": waves(0.001)}).status_code == 201


# ---------------------------------------------------------------------------------------------------------
# A publication that fails


def test_a_stopped_wave_says_that_people_can_withdraw_and_that_is_what_they_can(site, monkeypatch):
    study = site.study()
    (one,) = site.join(study, [(3, "open")])
    monkeypatch.setattr(Ledger, "carry_out", refuses)
    with later(2 * DAY):
        said = site.publish_now(study)
        assert said.status_code == 409
        assert "people can withdraw" in said.json()["error"]["message"]
        assert "change" not in said.json()["error"]["message"]
        assert one.put("/api/answer", json=saying(4, tier="open")).status_code == 409
        assert one.delete("/api/answer").status_code == 200


@pytest.mark.parametrize("stopped", [True, False], ids=["it is stopped", "that cannot be written either"])
def test_after_a_crash_people_withdraw_and_dates_bind_also_if_the_ledger_cannot_be_read(site, monkeypatch, stopped):
    study = site.study(fewest=2)
    one, _ = site.join(study, [(3, "open")] * 2)
    state = site.app.state
    with later(2 * DAY), monkeypatch.context() as patch:
        state.store.write(publish._closed, study, 0, charged=False)  # then the server was cut off
        patch.setattr(Ledger, "charged", refuses)
        if not stopped:
            patch.setattr(publish.Publisher, "_stop", lambda *_: None)
        state.publisher.resume()
        assert site.live(study)["study"]["phase"] == ("closed" if stopped else "publishing")
        assert one.delete("/api/answer").status_code == 200
    with later(2 * DAY):
        said = site.publish_now(study)
        assert (said.status_code, code_of(said)) == (409, "too-few"), "one is left of two"
        assert site.live(study)["study"]["phase"] == "published", "and nothing is left to publish"
    assert [row.answer for row in rows_of(site, study)] == [None, None]


def test_a_study_that_hangs_in_its_publication_is_emptied_at_its_date(site):
    study = site.study()
    site.join(study, [(3, "open")] * 2)
    with later(2 * DAY):
        site.app.state.store.write(publish._closed, study, 0, charged=False)
    with later(800 * DAY):
        site.app.state.store.write(publish.expire)
    assert [row.answer for row in rows_of(site, study)] == [None, None]


def drawn_and_not_stored(site, study, monkeypatch):
    """Let the ledger fail just after the numbers were drawn."""
    keep = Register.keep

    def failing(*args):
        keep(*args)
        refuses()

    with monkeypatch.context() as patch:
        patch.setattr(Register, "keep", failing)
        assert code_of(site.publish_now(study)) == "ledger"
    assert site.app.state.store.register.opened(study)


def test_numbers_that_could_not_be_stored_are_published_at_the_next_hourly_look(site, monkeypatch):
    """They waited for a restart, and until then nobody could withdraw and nothing could be deleted."""
    study = site.study()
    (one,) = site.join(study, [(3, "public")])
    with later(2 * DAY):
        drawn_and_not_stored(site, study, monkeypatch)
        assert one.delete("/api/answer").status_code == 409
        monkeypatch.setattr(access.Vault, "open", refuses)  # no answer is opened a second time
        look(site.app)
        assert site.client().get(f"/api/results/{study}").status_code == 200
        assert [row.answer for row in rows_of(site, study)] == [None]
        assert one.delete("/api/answer?everything=true").status_code == 200


@pytest.mark.parametrize("looked", [True, False], ids=["at the hourly look", "at a restart"])
def test_numbers_that_could_not_be_stored_until_the_date_are_given_up_with_the_answers(tmp_path, monkeypatch, looked):
    with served(settings_for(tmp_path)) as site:
        study = site.study(until=int(time.time()) + 5 * DAY)
        site.join(study, [(3, "public")])
        with later(2 * DAY):
            drawn_and_not_stored(site, study, monkeypatch)
        with later(6 * DAY):
            if looked:
                look(site.app)
                assert [row.answer for row in rows_of(site, study)] == [None]
    with later(6 * DAY), served(settings_for(tmp_path)) as site:
        assert site.client().get(f"/api/results/{study}").status_code == 404
        assert [row[2:6] for row in rows_of(site, study)] == [(None,) * 4]
        assert not site.app.state.store.register.opened(study)


def test_a_study_whose_numbers_could_not_be_stored_can_be_deleted(site, monkeypatch):
    study = site.study()
    (one,) = site.join(study, [(3, "public")])
    with later(2 * DAY):
        drawn_and_not_stored(site, study, monkeypatch)
        assert site.curator.delete(f"/api/studies/{study}").status_code == 200
        assert [row[2:6] for row in rows_of(site, study)] == [(None,) * 4]
        look(site.app)
        assert site.client().get(f"/api/results/{study}").status_code == 404
        assert one.delete("/api/answer?everything=true").status_code == 200


def test_nobody_withdraws_from_under_the_charge_of_a_publication_that_is_under_way(site, monkeypatch):
    study, said = site.study(), []
    one, _ = site.join(study, [(3, "public")] * 2)
    real = Ledger.carry_out

    def meanwhile(*args):
        said.extend((one.delete("/api/answer").status_code, site.curator.delete(f"/api/studies/{study}").status_code))
        return real(*args)

    monkeypatch.setattr(Ledger, "carry_out", meanwhile)
    published = site.publish(study)
    assert (published.status_code, said) == (200, [409, 409])
    assert published.json()["results"][0]["n"] == 2


def test_an_answer_that_is_withdrawn_after_all_while_its_wave_is_charged_is_not_read(site, monkeypatch):
    """The register is asked just before answers are opened, also if nothing kept somebody from withdrawing."""
    study, said = site.study(), []
    one, _ = site.join(study, [(3, "public")] * 2)
    real, register = Ledger.carry_out, site.app.state.store.register

    def meanwhile(*args):
        register.at_work.clear()
        said.append(one.delete("/api/answer").status_code)
        return real(*args)

    monkeypatch.setattr(Ledger, "carry_out", meanwhile)
    opened, code = [], access.Vault.open
    monkeypatch.setattr(access.Vault, "open", lambda *args: opened.append(args) or code(*args))
    refused = site.publish(study)
    assert (refused.status_code, code_of(refused), said, opened) == (409, "ledger", [200], [])
    monkeypatch.setattr(Ledger, "carry_out", real)
    assert site.publish(study).json()["results"][0]["n"] == 1


def test_a_publication_that_is_refused_keeps_nobody_from_withdrawing(site, monkeypatch):
    study, said = site.study(), []
    (one,) = site.join(study, [(3, "public")])
    real = Ledger.charged

    def meanwhile(*args):
        said.append(one.delete("/api/answer").status_code)
        return real(*args)

    monkeypatch.setattr(Ledger, "charged", meanwhile)
    assert code_of(site.publish_now(study)) == "early"
    assert said == [200]


# ---------------------------------------------------------------------------------------------------------
# What is shown


def test_the_table_of_the_ledger_goes_by_what_people_allow_now(site):
    study = site.study(waves=waves(0.5, 0.5))
    crowd = site.join(study, [(3, "open")] * 40)
    assert site.publish(study).status_code == 200
    with later(30 * DAY + 5):
        for person in crowd[:30]:
            assert person.put("/api/answer", json=saying(4, tier="strict")).status_code == 200
        for person in crowd[30:35]:
            assert person.delete("/api/answer").status_code == 200
        rows = {row["name"]: row for row in site.live(study)["joined"]}
        strict, free = rows["strict"], rows["open"]
        balance = crowd[0].get("/api/answer").json()["balance"]
        assert balance["spent"] == strict["spent"] > 0.1, "what one of them is told"
        assert (strict["people"], strict["left"], strict["share"], strict["frozen"]) == (30, 0.0, 0.0, 30)
        assert (free["people"], free["spent"], free["frozen"]) == (5, balance["spent"], 0)
        assert free["left"] == 2 - balance["spent"]
        site.join(study, [(3, "strict")])  # of whom nothing was used: this wave may use them
        (strict,) = (row for row in site.live(study)["joined"] if row["name"] == "strict")
        assert (strict["people"], strict["left"], strict["share"]) == (31, 0.0, 0.05)


def test_what_is_published_has_its_times_to_the_minute(site):
    study = site.study(questions=THREE)
    site.join(study, [({"hours": 3, "tired": True, "way": "by bus"}, "public")] * 3)
    found = site.publish(study).json()
    for one in found["results"]:
        assert one["ledger"]["at"].endswith(":00Z")
        assert one["provenance"]["released"].endswith(":00Z")
    assert found["published"] % 60 == 0


@pytest.mark.parametrize("cell", ["nothing", "[]", '{"questions": []}', "{" * 5000, '{"questions": [{"name": 1}]}'])
@pytest.mark.parametrize("column", ["more", "waves", "choices"])
def test_a_study_that_somebody_made_unreadable_is_refused_in_fixed_words(site, column, cell):
    study, table = site.study(), tables.studies
    site.join(study, [(3, "public")])
    assert site.publish(study).status_code == 200
    in_database(site, sa.update(table).where(table.c.id == study).values({column: cell}))
    for path in ("/api/studies", f"/api/studies/{study}", "/api/results", f"/api/results/{study}"):
        said = site.curator.get(path)
        assert (said.status_code, code_of(said)) == (409, "changed"), path
    for path in ("/", "/curator", f"/curator/studies/{study}", f"/results/{study}"):
        assert site.curator.get(path).status_code == 409, path


# ---------------------------------------------------------------------------------------------------------
# Who may


def test_two_curators_cannot_remove_each_other_at_once_and_who_is_removed_changes_nothing_more(site):
    curator_named(site, "bob")
    database = site.app.state.store
    database.write_as("bob", people.remove_curator, "curator")
    with pytest.raises(RefusedError) as refused:  # a request that was admitted before
        database.write_as("curator", people.remove_curator, "bob")
    assert refused.value.status_code == 401
    assert database.read(people.curators) == ["bob"]


def test_a_page_of_another_scheme_is_another_origin(site):
    study = site.study()
    (one,) = site.join(study, [(3, "open")])
    for origin in (site.address.replace("http", "https"), site.address.partition("://")[2], "null"):
        assert one.delete("/api/answer", headers={"Origin": origin}).status_code == 403, origin
    assert one.delete("/api/answer", headers={"Origin": site.address}).status_code == 200


def test_over_https_a_page_of_plain_http_is_another_origin(tmp_path):
    with served(settings_for(tmp_path, origin="https://survey.example.org")) as site:
        asked = {"key": site.key}
        for origin, status in (("http://survey.example.org", 403), ("https://survey.example.org", 200)):
            head = {"Host": "survey.example.org", "Origin": origin}
            assert site.client().post("/api/session/curator", json=asked, headers=head).status_code == status


def test_what_happens_to_curators_is_in_their_log(site):
    curator_named(site, "bob")
    events = site.app.state.store.read(people.events, None)
    assert {"event": "curator key made", "name": "bob", "by": "curator"}.items() <= events[0].items()
    assert "bob" in site.curator.get("/curator/curators").text
    assert json.dumps(site.key) not in site.curator.get("/curator/curators").text
