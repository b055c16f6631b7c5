"""A curator who means harm. Each test states what is promised: a bound of ε for each person, whatever others do.

Nothing keeps a curator from inventing people, importing rows, or asking for anything that a curator may: that is part
of the promise. What is promised is that all that is published of a person is bounded by the ε that they chose, and that
what else a curator can see is public: who was invited, who joined, with which ε. So each test first lets the curator
do their worst, and then compares what the ledger charged to the person, by the plans that were carried out, with their
choice; or compares what the curator sees of two people whose answers differ.
"""

from __future__ import annotations

import json
import re
import time
from fractions import Fraction

import pytest
import sqlalchemy as sa

from hetdp.server import publish, tables
from serving import DAY, NUMBER, THREE, TIERS, later, saying, served, settings_for

ONE = {"hours": 1.0, "tired": True, "way": "on foot"}
OTHER = {"hours": 9.0, "tired": False, "way": "by bus"}


@pytest.fixture
def site(tmp_path):
    with served(settings_for(tmp_path)) as running:
        yield running


def waves(*shares):
    now = int(time.time())
    return [{"closes": now + 100 * (i + 1), "share": share} for i, share in enumerate(shares)]


def rows_of(site):
    return site.app.state.store.read(lambda transaction: transaction.execute(sa.select(tables.people)).all())


def joined(site, study, said, tier):
    """Let one person answer; return them and their id."""
    before = {row.id for row in rows_of(site)}
    (person,) = site.join(study, [(said, tier)])
    (own,) = {row.id for row in rows_of(site) if row.epsilon is not None} - before
    return person, own


def used_of(monkeypatch, person):
    """Watch what plans that are carried out spend of a person: exactly, by weights and noise, over all questions."""
    spends, real = [], publish.Reading.__call__

    def reading(self, parts):
        for _, places, plan in parts:
            if person() in places:
                at = places[person()]
                cost = int(plan.costs[at])
                noise = [term for term in plan.noise if term.first <= at < term.last]
                spends.append(Fraction(cost) / Fraction(noise[0].scale) if noise else (10**9 if cost else 0))
        return real(self, parts)

    monkeypatch.setattr(publish.Reading, "__call__", reading)
    return spends


# ---------------------------------------------------------------------------------------------------------
# Differencing by people who are made up


@pytest.mark.parametrize("way", ["invited", "imported"])
def test_among_made_up_people_whose_answers_are_known_a_person_still_spends_at_most_their_epsilon(
    site, monkeypatch, way
):
    """Everybody else is the curator's. That it is a study of one is possible, and the page says so; ε holds."""
    study = site.study(questions=THREE, waves=waves(0.5, 0.5))
    worlds = []
    spends = used_of(monkeypatch, lambda: worlds[0])
    _, own = joined(site, study, ONE, "strict")
    worlds.append(own)
    if way == "invited":
        site.join(study, [({"hours": 0}, "public")] * 12)
    else:
        site.rows(study, "hours,tired,way,tier\n" + "0,no,by bus,public\n" * 200)
    for wave in (0, 1):
        assert site.publish(study, wave).status_code == 200
    assert sum(spends) <= Fraction(1, 10)
    assert site.app.state.publisher.ledger.balance(own).spent <= 0.1


def test_control_a_person_who_asks_for_no_protection_is_found_by_differencing(site):
    """The same curator, and somebody who chose `public`: their answer comes out exactly. The attack is a real one."""
    study = site.study()
    site.join(study, [(7.25, "public")])
    site.rows(study, "value,tier\n" + "0,public\n" * 9)
    (found,) = site.publish(study).json()["results"]
    assert 10 * found["figures"][0]["estimate"] == pytest.approx(7.25, abs=1e-3)


def test_made_up_people_from_files_do_not_count_towards_the_fewest_unless_that_was_said_before_anybody_came(site):
    quiet, said = site.study(fewest=5, imports_count=False), site.study(fewest=5, imports_count=True)
    for study in (quiet, said):
        person, _ = joined(site, study, 3, "open")
        site.rows(study, "value,tier\n" + "0,public\n" * 50)
        assert person.get("/api/answer").json()["study"]["imports_count"] is (study == said), "they are told which"
    assert site.publish(quiet).json()["error"]["code"] == "too-few"
    assert site.publish(said).status_code == 200


# ---------------------------------------------------------------------------------------------------------
# Two waves whose people differ in one


@pytest.mark.parametrize("who", ["the person withdraws", "everybody else withdraws", "the person joins late"])
def test_the_difference_of_two_waves_is_covered_by_the_epsilon_of_whoever_makes_it(site, monkeypatch, who):
    """Both publications are charged; whoever subtracts one from the other has spent what both of them spent."""
    study, worlds = site.study(questions=THREE, waves=waves(0.5, 0.5)), [""]
    spends = used_of(monkeypatch, lambda: worlds[0])
    others = site.join(study, [({"hours": 5}, "open")] * 20)
    if who != "the person joins late":
        person, worlds[0] = joined(site, study, ONE, "strict")
    assert site.publish(study, 0).status_code == 200
    if who == "the person joins late":
        person, worlds[0] = joined(site, study, ONE, "strict")
    elif who == "the person withdraws":
        assert person.delete("/api/answer").status_code == 200
    else:
        for other in others:
            other.delete("/api/answer")
    before = len(spends)
    assert site.publish(study, 1).status_code == 200
    if who == "the person withdraws":
        assert len(spends) == before, "not used again once they were told so"
    assert sum(spends) <= Fraction(1, 10)
    assert person.get("/api/answer").json()["balance"]["spent"] <= 0.1


def test_a_person_who_comes_and_goes_between_waves_never_spends_more_than_their_epsilon(site, monkeypatch):
    study, worlds = site.study(waves=waves(*[0.25] * 4)), [""]
    spends = used_of(monkeypatch, lambda: worlds[0])
    site.join(study, [(5, "open")] * 20)
    person, worlds[0] = joined(site, study, 3, "strict")
    for wave in range(4):
        assert site.publish(study, wave).status_code == 200
        if wave < 3:
            assert person.delete("/api/answer").status_code == 200
            assert person.put("/api/answer", json=saying(8, tier="strict")).status_code == 200
    assert 0 < sum(spends) <= Fraction(1, 10)


# ---------------------------------------------------------------------------------------------------------
# What a curator may look at


def seen(site, study):
    """All that a curator can ask before a publication, without ids, times and names of files."""
    addresses = ["", "/events", "/invitations", "/rows"]
    more = [f"/what-if?people={many}&tier={tier}" for many in (1, 1000) for tier in ("strict", "open", "public")]
    texts = [site.curator.get(f"/api/studies/{study}{address}").text for address in (*addresses, *more)]
    texts += [site.curator.get(f"/curator/studies/{study}{end}").text for end in ("", "/live")]
    texts = [re.sub(r"[0-9a-f]{16,}", "ID", text.replace(study, "STUDY")) for text in texts]
    return [
        re.sub(r"\b1[78]\d{8}\b|\d{4}-\d\d-\d\dT[\d:+]+|\d\d? \w+ 20\d\d,? \d\d:\d\d", "TIME", text) for text in texts
    ]


def test_what_ifs_and_the_dashboard_are_the_same_whatever_people_said(site):
    """They are made of choices of ε, which are public; two studies whose answers differ in everything look alike."""
    now = int(time.time())
    shared = {"questions": THREE, "opens": now - 5, "waves": [{"closes": now + 3600}]}
    first, second = site.study(**shared), site.study(**shared)
    for study, said in ((first, ONE), (second, OTHER)):
        site.join(study, [(said, "strict"), (said, "open"), (said, "open")])
        text = ",".join(["no" if value is False else "yes" if value is True else str(value) for value in said.values()])
        site.rows(study, f"hours,tired,way,tier\n{text},open\n")
    assert seen(site, first) == seen(site, second)


def test_control_a_difference_in_what_is_public_is_seen(site):
    now = int(time.time())
    shared = {"questions": THREE, "opens": now - 5, "waves": [{"closes": now + 3600}]}
    first, second = site.study(**shared), site.study(**shared)
    for study, tier in ((first, "strict"), (second, "open")):
        site.join(study, [(ONE, tier)])
    assert seen(site, first) != seen(site, second)


def test_a_publication_of_which_somebody_was_told_that_they_withdrew_has_nothing_of_theirs(site):
    """Withdrawn after closing, just before publishing: the result is the one without them, exactly."""
    study = site.study()
    site.join(study, [(5, "public")] * 3)
    person, _ = joined(site, study, 9.5, "public")
    with later(DAY):
        assert person.delete("/api/answer").json()["withdrawn"] is True
    (found,) = site.publish(study).json()["results"]
    assert (found["n"], found["figures"][0]["estimate"]) == (3, pytest.approx(5, abs=1e-4))


# ---------------------------------------------------------------------------------------------------------
# Imports


def test_importing_and_deleting_files_again_and_again_uses_nobody_beyond_their_epsilon(site, monkeypatch):
    """Files come and go around one person; only a publication uses answers, and each of them is charged."""
    study, worlds = site.study(waves=waves(0.5, 0.5)), [""]
    spends = used_of(monkeypatch, lambda: worlds[0])
    _, worlds[0] = joined(site, study, 3, "strict")
    for wave in (0, 1):
        for count in (5, 50, 500):
            site.rows(study, "value,tier\n" + f"{wave},public\n" * count)
            (file,) = [one["file"] for one in site.curator.get(f"/api/studies/{study}/rows").json()][-1:]
            if count < 500:
                assert site.curator.delete(f"/api/studies/{study}/rows/{file}").status_code == 200
        assert site.publish(study, wave).status_code == 200
    assert sum(spends) <= Fraction(1, 10)


def test_an_import_cannot_take_the_place_of_a_person_or_change_their_answer(site):
    """Rows from a file are people of their own: no column names anybody, so nobody's row can be written over."""
    study = site.study()
    _, own = joined(site, study, 9.0, "public")
    (before,) = [row for row in rows_of(site) if row.id == own]
    site.rows(study, f"value,tier,id,person\n0,public,{own},{own}\n")
    (after,) = [row for row in rows_of(site) if row.id == own]
    assert after == before
    assert site.live(study)["n"] == 2


# ---------------------------------------------------------------------------------------------------------
# Dates, shares and words


def test_no_request_of_a_curator_changes_the_shares_the_questions_or_the_fewest_people_of_a_study(site):
    """There is no address for it: what people were told when they answered is what holds."""
    study = site.study(questions=THREE, fewest=3)
    joined(site, study, ONE, "strict")
    before = site.live(study)["study"]
    for method in ("PUT", "PATCH", "POST"):
        for body in ({"fewest": 1}, {"questions": [NUMBER]}, {"tiers": TIERS}, {"waves": waves(1.0)}):
            said = site.curator.request(method, f"/api/studies/{study}", json=body)
            assert said.status_code == 405
    assert site.live(study)["study"] == before


def test_a_curator_cannot_learn_by_the_length_or_the_time_of_day_of_rows_what_somebody_said(site):
    """Every cell of the row but the sealed one is the same, and that one has the same length."""
    study = site.study(questions=THREE)
    for said in (ONE, OTHER, {}, {"hours": "nonsense" * 50}):
        joined(site, study, said, "open")
    rows = [row for row in rows_of(site) if row.study == study]
    assert {len(row.answer) for row in rows} == {12 + 12 + 16}
    assert {(row.study, row.invitation, row.epsilon, row.gone) for row in rows} == {(study, None, 2.0, None)}
    events = json.dumps(site.curator.get(f"/api/studies/{study}/events").json())
    assert "answer" not in events
