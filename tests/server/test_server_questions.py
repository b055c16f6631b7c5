"""Several questions under one budget: what is said, what a wave spends, what is published; who comes and who goes."""

from __future__ import annotations

import csv
import io
import json
import math
import re
import time
from contextlib import closing
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import sqlalchemy as sa
from hypothesis import given, settings
from hypothesis import strategies as st

from hetdp.ledger import Ledger, LedgerError
from hetdp.ledger import charge as ledger_charge
from hetdp.server import publish, studies, tables
from hetdp.server.access import Vault
from serving import DAY, NUMBER, THREE, TIERS, line_about, logged, saying, served, settings_for
from support import examples

SAID = [
    {"hours": 2, "tired": True, "way": "by bike"},
    {"hours": 4, "tired": False, "way": "by bus"},
    {"hours": 9.0, "tired": True, "way": "by bus"},
    {"hours": None, "tired": None},
]


@pytest.fixture
def site(tmp_path):
    with served(settings_for(tmp_path)) as running:
        yield running


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    with served(settings_for(tmp_path_factory.mktemp("server"))) as running:
        yield running


def waves(*shares):
    now = int(time.time())
    return [{"closes": now + 100 * (i + 1), "share": share} for i, share in enumerate(shares)]


def error(said):
    return said.json()["error"]


def rows_of(site, study):
    query = sa.select(tables.people).where(tables.people.c.study == study)
    return site.app.state.store.read(lambda transaction: transaction.execute(query).all())


# ---------------------------------------------------------------------------------------------------------
# What is published


def test_three_questions_are_published_as_the_library_has_them(site):
    """With public people there is no noise: the mean and the shares of those who answered, and how many did."""
    study = site.study(questions=THREE)
    site.join(study, [(said, "public") for said in SAID])
    hours, tired, way = site.publish(study).json()["results"]
    assert [one["question"] for one in (hours, tired, way)] == ["hours", "tired", "way"]
    assert hours["figures"][0]["estimate"] == pytest.approx(5, abs=1e-4)
    assert tired["figures"][0]["estimate"] == pytest.approx(2 / 3)
    assert {one["label"]: one["estimate"] for one in way["figures"]} == {"on foot": 0, "by bike": 0.25, "by bus": 0.5}
    assert [one["answered"]["estimate"] for one in (hours, tired, way)] == pytest.approx([0.75] * 3)
    assert [one["n"] for one in (hours, tired, way)] == [4] * 3


def test_a_file_with_a_column_for_each_question_says_the_same_as_people_do(site):
    study = site.study(questions=THREE)
    text = "way,tired,hours,tier\nby bike,yes,2,public\nby bus,no,4,public\nby bus,true,9,public\nx,,,public\n"
    assert error(site.rows(study, "hours,tier\n1,public\n"))["code"] == "rows"
    assert site.rows(study, text).json() == {"people": 4}
    hours, tired, way = site.publish(study).json()["results"]
    assert hours["figures"][0]["estimate"] == pytest.approx(5, abs=1e-4)
    assert tired["figures"][0]["estimate"] == pytest.approx(2 / 3)
    assert [one["estimate"] for one in way["figures"]] == [0, 0.25, 0.5]


def test_the_shares_of_questions_and_waves_are_spent_and_never_more(site):
    asked = [{**one, "share": share} for one, share in zip(THREE, (0.5, 0.3, 0.2), strict=True)]
    study = site.study(questions=asked, waves=waves(0.6, 0.4))
    rows = "hours,tired,way,tier\n" + "5,yes,by bus,open\n" * 300 + "5,yes,by bus,strict\n" * 300
    site.rows(study, rows)
    ledger = site.app.state.publisher.ledger
    for wave, upto in ((0, 0.6), (1, 1.0)):
        results = site.publish(study, wave).json()["results"]
        charged = [one["ledger"]["most_charged"] for one in results]
        assert charged == pytest.approx([2 * (0.6, 0.4)[wave] * share for share in (0.5, 0.3, 0.2)], rel=1e-6)
        for balance in ledger.balances():
            assert 0.999 * upto * balance.budget < balance.spent <= upto * balance.budget
    kinds = [entry.kind for entry in ledger.history()]
    assert kinds == ["open", "enroll", *["charge"] * 3, *["result"] * 3, *["charge"] * 3, *["result"] * 3]
    names = [entry.release for entry in ledger.history() if entry.kind == "charge"]
    assert names == [f"{study}-{wave}-{name}" for wave in (0, 1) for name in ("hours", "tired", "way")]


@settings(max_examples=examples(200), deadline=None)
@given(
    level=st.floats(0.001, 20),
    waves=st.lists(st.integers(1, 999), min_size=1, max_size=6),
    questions=st.lists(st.integers(1, 999), min_size=1, max_size=12),
    spent=st.integers(0, 10**10),
)
def test_what_is_allowed_for_all_questions_of_all_waves_together_is_never_more_than_epsilon(
    level, waves, questions, spent
):
    """In the ledger's integers, whatever the shares are and whatever was used before."""
    shares = [[math.floor(1e6 * one / sum(many)) / 1e6 or 1e-6 for one in many] for many in (waves, questions)]
    if any(sum(map(studies.exact, some)) > 1 for some in shares):
        return
    budget, total = math.floor(studies.exact(level) * 10**9), spent
    for share in shares[0]:
        wave = SimpleNamespace(current=SimpleNamespace(share=share))
        each = [studies.Study.allowed(wave, SimpleNamespace(share=one), level, total) for one in shares[1]]
        assert sum(each) <= studies.most(level, share, total)
        total += sum(each)
    assert total <= max(budget, spent)


def test_equal_shares_of_questions_never_add_up_to_more_than_one(shared):
    for count in range(1, 13):
        asked = [{**NUMBER, "name": f"q{i}"} for i in range(count)]
        shown = shared.live(shared.study(questions=asked))["study"]["questions"]
        assert sum(studies.exact(one["share"]) for one in shown) <= 1
        assert sum(one["share"] for one in shown) == pytest.approx(1, abs=1.1e-4)  # of five decimals each


@pytest.mark.parametrize("stored", [0, 1, 2])
def test_a_crash_between_questions_is_resumed_without_a_second_draw_or_charge(tmp_path, monkeypatch, stored):
    """Cut off after so many of three results were stored: all numbers are in the register, and come from there."""
    place, drawn, real = settings_for(tmp_path), [], ledger_charge._stored
    with served(place) as site:
        study, key = site.study(questions=THREE), site.key
        site.rows(study, "hours,tired,way,tier\n" + "5,yes,by bus,open\n" * 300)

        def refuses(connection, state, charged, numbers):
            drawn.append((charged.release, numbers))
            if len(drawn) > stored:
                raise LedgerError("planted")
            return real(connection, state, charged, numbers)

        monkeypatch.setattr(ledger_charge, "_stored", refuses)
        assert error(site.publish(study))["code"] == "ledger"
        monkeypatch.setattr(ledger_charge, "_stored", real)
        _, kept = site.app.state.store.register.numbers(study, 0)
        assert sorted(kept) == [f"{study}-0-{name}" for name in ("hours", "tired", "way")]
    monkeypatch.setattr(Vault, "open", lambda *_: pytest.fail("an answer was opened a second time"))
    with served(place) as site:
        site.curator.headers["Authorization"] = f"Bearer {key}"
        results = site.client().get(f"/api/results/{study}").json()["results"]
        kinds = [entry.kind for entry in site.app.state.publisher.ledger.history()]
    assert (kinds.count("charge"), kinds.count("result")) == (3, 3)
    assert [list(numbers) for release, numbers in drawn] == [kept[release] for release, _ in drawn]
    shares = kept[f"{study}-0-way"]
    assert [one["raw"] for one in results[2]["figures"]] == shares[:3]


def test_what_all_questions_together_spend_is_compared_before_anything_is_opened(site, monkeypatch):
    """Each plan alone would fit what its question may use; together they would not fit what the wave may."""
    study = site.study(questions=THREE)
    site.rows(study, "hours,tired,way,tier\n" + "5,yes,by bus,strict\n" * 300)
    monkeypatch.setattr(studies.Study, "allowed", lambda _, __, level, used=0: studies.most(level, 1.0, used))
    real = publish._request

    def generous(study, release, question, allowed):
        return replace(real(study, release, question, allowed), rule=publish.Rule.given(share=0.5))

    monkeypatch.setattr(publish, "_request", generous)
    monkeypatch.setattr(ledger_charge.books, "charges", lambda plan: np.zeros(len(plan.levels), np.int64))
    monkeypatch.setattr(ledger_charge, "_covered", lambda *_: None)
    opened = []
    monkeypatch.setattr(Vault, "open", lambda *sealed: opened.append(sealed))
    assert error(site.publish(study))["code"] == "ledger"
    assert opened == []


def test_a_question_uses_no_more_than_its_share_even_if_the_wave_would_allow_it(site, monkeypatch):
    """A person is told how ε is split; a charge that gives all of it to one question is not carried out."""
    study = site.study(questions=THREE)
    site.rows(study, "hours,tired,way,tier\n" + "5,yes,by bus,strict\n" * 300)
    real, opened = publish._request, []

    def one_sided(study, release, question, allowed):
        most = studies.most(0.1, 1.0) if question.name == "hours" else 0
        asked = real(study, release, question, dict.fromkeys(allowed, most))
        return replace(asked, rule=publish.Rule.given(share=1.0))

    monkeypatch.setattr(publish, "_request", one_sided)
    monkeypatch.setattr(Vault, "open", lambda *sealed: opened.append(sealed))
    assert error(site.publish(study))["code"] == "ledger"
    assert opened == []


def test_too_uncertain_to_use_is_said_where_it_is(site):
    few, many = (site.study(questions=THREE) for _ in range(2))
    site.rows(few, "hours,tired,way,tier\n" + "5,yes,by bus,strict\n" * 5)
    site.rows(many, "hours,tired,way,tier\n" + "5,yes,by bus,open\n" * 5000)
    for study, uncertain in ((few, True), (many, False)):
        assert {one["uncertain"] for one in site.live(study)["questions"]} == {uncertain}
        for one in site.publish(study).json()["results"]:
            half = (10 if one["kind"] == "number" else 1) / 2
            wide = [one["abstains"] or figure["high"] - figure["low"] > half for figure in one["figures"]]
            assert one["uncertain"] == any(wide) == uncertain


def test_the_csv_has_a_row_for_each_question_or_choice_of_each_wave(site):
    choice = {"name": "c", "kind": "choice", "text": "c", "choices": ["=1+1", "b"]}
    study = site.study(questions=[NUMBER, choice], waves=waves(0.5, 0.5))
    assert site.client().get(f"/api/results/{study}.csv").status_code == 404
    site.join(study, [({"hours": 5, "c": "b"}, "public")] * 3)
    assert {site.publish(study, wave).status_code for wave in (0, 1)} == {200}
    said = site.client().get(f"/api/results/{study}.csv")
    assert said.headers["content-type"].startswith("text/csv")
    rows = list(csv.DictReader(io.StringIO(said.text)))
    assert [(row["wave"], row["question"], row["choice"]) for row in rows] == [
        (wave, question, text) for wave in "01" for question, text in (("hours", ""), ("c", "'=1+1"), ("c", "b"))
    ]
    assert [float(rows[i]["estimate"]) for i in (0, 1, 2)] == pytest.approx([5, 0, 1], abs=1e-4)
    assert {row["n"] for row in rows} == {"3"}
    assert all(float(row["low"]) <= float(row["estimate"]) <= float(row["high"]) for row in rows)


# ---------------------------------------------------------------------------------------------------------
# What is said

SCALARS = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
SCALARS |= st.text(max_size=20) | st.sampled_from(["by bus", "on foot", "yes"])


@pytest.fixture(scope="module")
def person(shared):
    study = shared.study(questions=THREE)
    (one,) = shared.join(study, [({}, "open")])
    return study, one


@settings(max_examples=examples(60), deadline=None)
@given(said=st.dictionaries(st.sampled_from(["hours", "tired", "way", "else"]), SCALARS))
def test_whatever_is_said_the_answer_and_the_length_of_the_sealed_row_are_the_same(shared, person, said):
    study, one = person
    with logged() as lines:
        body = json.dumps({"answers": said, "tier": "open"}).encode()
        answer = one.put("/api/answer", content=body, headers={"Content-Type": "application/json"})
        line = line_about(lines, answer)
    assert answer.status_code == 200
    fixed = (
        rb'\{"received":true,"first":false,"tier":"open","epsilon":2\.0,"at":\d{10},"closes":\d{10},"come_back":null\}'
    )
    assert re.fullmatch(fixed, answer.content)
    (row,) = rows_of(shared, study)
    assert len(row.answer) == 12 + 4 * 3 + 16
    assert (row.epsilon, row.invitation) == (2.0, None)
    assert set(line) == {"time", "level", "event", "id", "method", "route", "status", "ms"}


@pytest.mark.parametrize(
    ("kind", "said", "code"),
    [
        ("hours", 5, 2**19), ("hours", -3.0, 0), ("hours", 1e300, 2**20), ("hours", True, None), ("hours", "5", None),
        ("hours", None, None), ("tired", True, 0), ("tired", False, 1), ("tired", 1, None), ("tired", "yes", None),
        ("way", "on foot", 0), ("way", "by bus", 2), ("way", "On foot", None), ("way", 0, None), ("way", [], None),
    ],
)  # fmt: skip
def test_what_does_not_fit_a_question_is_not_said(kind, said, code):
    (question,) = [studies.Question.model_validate(one) for one in THREE if one["name"] == kind]
    assert question.code(said) == (studies.UNSAID if code is None else code)


def test_consent_is_needed_where_the_study_has_words_for_it_and_they_are_stored(site):
    words = {"institute": "An institute", "contact": "a@b.example", "notice": "https://b.example/privacy\nTwo lines."}
    study = site.study(about={**words, "consent": "I agree."}, language="de")
    one = site.enter(site.invite(study, 1)[0])
    for body in (saying(5, tier="open"), saying(5, tier="open", consent=False)):
        said = one.put("/api/answer", json=body)
        assert (said.status_code, error(said)["code"], error(said)["field"]) == (422, "consent", "consent")
    assert site.live(study)["n"] == 0
    assert one.put("/api/answer", json=saying(5, tier="open", consent=True)).status_code == 200
    shown = one.get("/api/answer").json()
    assert shown["study"]["about"] == {**words, "consent": "I agree."}
    assert shown["language"] == shown["study"]["language"] == "de"


def test_a_person_sees_how_epsilon_is_split(site):
    asked = [{**THREE[0], "share": 0.75}, {**THREE[1], "share": 0.25}]
    study = site.study(questions=asked, waves=waves(0.5, 0.25))
    one = site.enter(site.invite(study, 1)[0])
    assert one.get("/api/answer").json()["split"] == [
        {"question": "hours", "share": 0.75, "of_each_publication": [0.375, 0.1875]},
        {"question": "tired", "share": 0.25, "of_each_publication": [0.125, 0.0625]},
    ]


NAMED = {
    "waves.1.closes": ({"waves": [{"closes": 100, "share": 0.5}, {"closes": 50, "share": 0.5}]}, "must be after"),
    "waves.0.closes": ({"waves": [{"closes": 1}]}, "must be after the opening, 01 Jan 1970, 00:00 UTC"),
    "waves.0.share": ({"waves": [{"closes": 100, "share": 2}]}, "must be at most 1"),
    "waves.1.share": ({"waves": [{"closes": 100, "share": 0.6}, {"closes": 200, "share": 0.6}]}, "at most 1"),
    "questions.1.name": ({"questions": [NUMBER, NUMBER]}, "the same as one before"),
    "questions.0.bounds": ({"questions": [{**NUMBER, "bounds": [3, 1]}]}, "must be below"),
    "questions.0.choices": ({"questions": [{"name": "a", "kind": "choice", "text": "a"}]}, "at least two"),
    "questions.0": ({"questions": [{**NUMBER, "secret9876": 1}]}, "a field that is unknown"),
    "tiers.1.epsilon": ({"tiers": [TIERS[0], {**TIERS[0], "name": "b"}]}, "the same as one before"),
    "tiers": ({"tiers": []}, "either tiers or a free choice"),
    "free.most": ({"tiers": [], "free": {"least": 2, "most": 1}}, "above the least"),
    "until": ({"until": 50}, "must be after the last wave closes"),
    "title": ({"title": ""}, "must not be empty"),
    "fewest": ({"fewest": 0}, "must be at least 1"),
}


@pytest.mark.parametrize("field", NAMED)
def test_a_refused_study_names_the_field_and_the_rule(shared, field):
    changes, rule = NAMED[field]
    usual = {"title": "t", "questions": [NUMBER], "tiers": TIERS, "opens": 5, "waves": [{"closes": 100}]}
    said = shared.curator.post("/api/studies", json={**usual, **changes})
    assert said.status_code == 422
    assert error(said)["field"] == field
    assert rule in error(said)["message"]
    assert error(said)["facts"]["rule"]
    assert "secret9876" not in said.text


# ---------------------------------------------------------------------------------------------------------
# Waves


def test_people_who_are_asked_again_in_each_wave_count_again_only_if_they_answer_again(site):
    study = site.study(waves=waves(0.5, 0.5), each_wave="ask", fewest=2, changeable=False)
    people = site.join(study, [(2, "public"), (4, "public"), (9, "public")])
    assert site.publish(study).json()["results"][0]["figures"][0]["estimate"] == pytest.approx(5, abs=1e-4)
    assert [row.answer for row in rows_of(site, study)] == [None] * 3, "what was said is gone"
    assert site.live(study)["n"] == 0
    shown = people[0].get("/api/answer").json()
    assert (shown["joined"], shown["answered_this_wave"], shown["may_send"]) == (True, False, True)
    assert shown["choice"] == {"tier": "public", "epsilon": "inf"}
    assert people[0].put("/api/answer", json=saying(6, tier="public")).json()["first"] is True
    assert people[1].put("/api/answer", json=saying(8, tier="public")).status_code == 200
    assert people[2].delete("/api/answer").status_code == 200, "the choice can go too"
    (second,) = site.publish(study, 1).json()["results"]
    assert (second["n"], second["figures"][0]["estimate"]) == (2, pytest.approx(7, abs=1e-4))


def test_people_who_are_carried_on_count_in_every_wave(site):
    study = site.study(waves=waves(0.5, 0.5))
    site.join(study, [(2, "public"), (4, "public")])
    for wave in (0, 1):
        (found,) = site.publish(study, wave).json()["results"]
        assert (found["n"], found["figures"][0]["estimate"]) == (2, pytest.approx(3, abs=1e-4))


def test_imported_people_count_towards_the_fewest_only_if_the_study_says_so(site):
    rows = "value,tier\n" + "5,open\n" * 40
    for counts in (False, True):
        study = site.study(fewest=10, imports_count=counts)
        site.rows(study, rows)
        site.join(study, [(5, "open")] * 9)
        live = site.live(study)
        assert (live["n"], live["counted"]) == (49, 49 if counts else 9)
        said = site.publish(study)
        assert said.status_code == (200 if counts else 409)
        if not counts:
            assert error(said)["facts"] == {"n": 9, "fewest": 10}
        else:
            assert said.json()["results"][0]["n"] == 49, "and they are in the result"


def test_people_from_files_who_are_not_carried_on_are_not_taken_off_the_count_of_the_next_wave(site):
    study = site.study(waves=waves(0.5, 0.5), each_wave="ask", imports_count=False)
    site.rows(study, "value,tier\n" + "5,open\n" * 40)
    (person,) = site.join(study, [(5, "open")])
    assert [site.live(study)[name] for name in ("n", "counted")] == [41, 1]
    assert site.publish(study).status_code == 200
    assert [site.live(study)[name] for name in ("n", "counted")] == [0, 0]
    assert person.put("/api/answer", json=saying(5, tier="open")).status_code == 200
    assert [site.live(study)[name] for name in ("n", "counted")] == [1, 1]


def test_the_dashboard_has_spent_and_left_and_frozen_from_the_ledger(site):
    study = site.study(waves=waves(0.5, 0.5), tiers=[TIERS[0], {"name": "mid", "epsilon": 1.0}, TIERS[1]])
    people = site.join(study, [(5, "open")] * 60)
    before = {row["name"]: row for row in site.live(study)["joined"]}
    assert (before["open"]["people"], before["open"]["spent"], before["open"]["left"]) == (60, 0.0, 2.0)
    assert before["open"]["share"] == 1.0
    site.publish(study)
    spent = site.app.state.publisher.ledger.balances()[0].spent
    after = {row["name"]: row for row in site.live(study)["joined"]}
    assert (after["open"]["spent"], after["open"]["left"]) == (spent, pytest.approx(2 - spent))
    assert site.live(study)["frozen"] == 0
    assert people[0].put("/api/answer", json=saying(5, tier="strict")).status_code == 200
    site.publish(study, 1)
    assert site.live(study)["frozen"] == 1, "who allows less now than was spent before"
    assert sum(row["people"] for row in site.live(study)["ledger"]) == 60


# ---------------------------------------------------------------------------------------------------------
# Invitations, curators, erasing


def test_invitations_are_counted_and_can_be_revoked(site):
    study = site.study()
    address = f"/api/studies/{study}/invitations"
    made = site.curator.post(address, json={"count": 5}).json()
    tokens = [link.partition("#")[2] for link in made["links"]]
    assert made["first"] == 1
    used, begun = site.enter(tokens[0]), site.enter(tokens[1])
    used.put("/api/answer", json=saying(1, tier="open"))
    assert site.curator.get(address).json() == {"made": 5, "used": 1, "open": 4, "revoked": 0, "deleted": 0}
    assert site.curator.delete(address, params={"number": 2}).json() == {"revoked": 1}
    assert begun.put("/api/answer", json=saying(1, tier="open")).status_code == 401, "its sessions end too"
    assert site.curator.delete(address, params={"number": 1}).status_code == 404, "it was used"
    assert site.curator.delete(address).json() == {"revoked": 3}
    assert site.curator.get(address).json() == {"made": 5, "used": 1, "open": 0, "revoked": 4, "deleted": 0}
    for token in tokens:
        assert site.client().post("/api/session/participant", json={"token": token}).status_code == 403
    assert used.put("/api/answer", json=saying(2, tier="open")).status_code == 200
    assert site.curator.post(address, json={"count": 1}).json()["first"] == 6
    assert site.publish(study).json()["results"][0]["n"] == 1


def test_each_curator_has_a_key_and_a_name_in_the_log(site):
    key = site.curator.post("/api/curators", json={"name": "berta"}).json()["key"]
    berta = site.client(Authorization=f"Bearer {key}")
    assert berta.get("/api/curators").json() == [{"name": "berta", "you": True}, {"name": "curator", "you": False}]
    study = berta.post("/api/studies", json={
        "title": "t", "questions": [NUMBER], "tiers": TIERS, "opens": 0, "waves": [{"closes": int(time.time()) + DAY}],
    }).json()["id"]  # fmt: skip
    site.curator.post(f"/api/studies/{study}/invitations", json={"count": 1})
    events = site.curator.get(f"/api/studies/{study}/events").json()
    assert [(event["event"], event["by"]) for event in events] == [
        ("invitations made", "curator"),
        ("study created", "berta"),
    ]
    assert error(site.curator.post("/api/curators", json={"name": "berta"}))["code"] == "curator-exists"
    assert error(berta.delete("/api/curators/berta"))["code"] == "yourself"
    signed = site.client()
    csrf = signed.post("/api/session/curator", json={"key": key}).json()["csrf"]
    assert signed.get("/api/curators").status_code == 200
    assert site.curator.delete("/api/curators/berta").json() == {"removed": True}
    assert {berta.get("/api/studies").status_code, signed.get("/api/studies").status_code} == {401}
    assert signed.post("/api/curators", json={"name": "x"}, headers={"X-CSRF-Token": csrf}).status_code == 401
    assert site.curator.get("/api/studies").status_code == 200
    assert site.curator.delete("/api/curators/nobody").status_code == 404


def test_a_curators_new_key_ends_nobody_elses(site):
    key = site.curator.post("/api/curators", json={"name": "berta"}).json()["key"]
    berta = site.client(Authorization=f"Bearer {key}")
    fresh = berta.post("/api/curator/key").json()["key"]
    assert berta.get("/api/studies").status_code == 401
    assert site.client(Authorization=f"Bearer {fresh}").get("/api/studies").status_code == 200
    assert site.curator.get("/api/studies").status_code == 200


def left_of(site, study):
    return [(row.invitation, row.again, row.epsilon, row.answer) for row in rows_of(site, study)]


@pytest.mark.parametrize("who", ["the person", "a curator with the link"])
def test_all_about_a_person_is_erased_and_what_stays_is_said(site, who):
    study = site.study(waves=waves(0.5, 0.5))
    one, other = (site.enter(token) for token in site.invite(study, 2))
    links = [each.put("/api/answer", json=saying(5, tier="open")).json()["come_back"] for each in (one, other)]
    site.rows(study, "value,tier\n" + "5,open\n" * 60)
    site.publish(study)
    ledger = site.app.state.publisher.ledger
    before = {balance.person: balance.spent for balance in ledger.balances()}
    if who == "the person":
        said = one.delete("/api/answer", params={"everything": True})
    else:
        address = f"/api/studies/{study}/people"
        assert site.curator.request("DELETE", address, json={"link": "guess"}).status_code == 404
        elsewhere = f"/api/studies/{site.study()}/people"
        assert site.curator.request("DELETE", elsewhere, json={"link": links[0]}).status_code == 404
        said = site.curator.request("DELETE", address, json={"link": links[0]})
        assert site.curator.get(f"/api/studies/{study}/events").json()[0]["event"] == "a person's data erased"
    assert said.status_code == 200
    assert "cost" in said.json()["stays"]
    assert one.get("/api/answer").status_code == 401, "the session has ended"
    assert site.client().post("/api/session/participant", json={"token": links[0].partition("#")[2]}).status_code == 403
    assert left_of(site, study).count((None,) * 4) == 1
    assert other.get("/api/answer").json()["joined"] is True
    assert {balance.person: balance.spent for balance in ledger.balances()} == before, "what was charged stays"
    assert site.publish(study, 1).json()["results"][0]["n"] == 61


def test_a_person_can_be_erased_after_the_last_publication_but_not_while_answers_are_read(site, monkeypatch):
    study = site.study()
    one, other = site.join(study, [(5, "public")] * 2)
    real, said = Ledger.carry_out, []

    def meanwhile(*args):
        said.extend(one.delete("/api/answer", params={"everything": everything}) for everything in (False, True))
        return real(*args)

    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "carry_out", meanwhile)
        assert site.publish(study).status_code == 200
    assert [error(answer)["code"] for answer in said] == ["being-read"] * 2
    assert error(one.delete("/api/answer"))["code"] == "used-up", "there is no answer left to withdraw"
    assert one.delete("/api/answer", params={"everything": True}).status_code == 200
    assert left_of(site, study).count((None,) * 4) == 1
    assert other.get("/api/answer").json()["joined"] is True
    assert site.client().get(f"/api/results/{study}").status_code == 200


def test_nothing_of_an_erased_person_is_in_the_files_of_the_server(tmp_path):
    place = settings_for(tmp_path)
    with served(place) as site:
        study = site.study(questions=THREE)
        (one,) = site.join(study, [(SAID[0], "open")])
        (row,) = rows_of(site, study)
        needles = [row.answer, row.again.encode()]
        files = b"".join(path.read_bytes() for path in tmp_path.glob("server.db*"))
        assert all(needle in files for needle in needles), "a control"
        assert one.delete("/api/answer", params={"everything": True}).status_code == 200
        time.sleep(0.5)  # the log is emptied as soon as nobody reads
        files = b"".join(path.read_bytes() for path in tmp_path.glob("server.db*"))
        assert not [needle for needle in needles if needle in files]
    with closing(tables.connect(place.database).raw_connection()) as raw:
        assert raw.cursor().execute("SELECT count(*) FROM server_people WHERE gone = 'erased'").fetchone() == (1,)
