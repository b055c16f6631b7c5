"""What nobody may do to the server, or learn from it."""

from __future__ import annotations

import http.client
import json
import math
import os
import re
import socket
import sqlite3
import stat
import struct
import sys
import time
from itertools import chain

import numpy as np
import pytest
import sqlalchemy as sa

from hetdp import InputError, Interval
from hetdp.server import Settings, access, run, tables
from hetdp.server.access import Rates, RefusedError, parse
from hetdp.server.app import close
from hetdp.server.studies import UNSAID
from serving import DAY, NUMBER, TIERS, facts, later, line_about, logged, saying, served, settings_for

JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    with served(settings_for(tmp_path_factory.mktemp("server"))) as running:
        yield running


@pytest.fixture
def study(site):
    return site.study()


# ---------------------------------------------------------------------------------------------------------
# Who may do what

EVERYBODY, PERSON, CURATOR = "everybody", "person", "curator"
NEW = {"title": "t", "questions": [NUMBER], "tiers": TIERS, "opens": 0, "waves": [{"closes": 4_000_000_000}]}
MATRIX = {
    ("GET", "/health"): (EVERYBODY, None),
    ("GET", "/openapi.json"): (EVERYBODY, None),
    ("GET", "/"): (EVERYBODY, None),
    ("GET", "/sign-in"): (EVERYBODY, None),
    ("GET", "/join"): (EVERYBODY, None),
    ("GET", "/explore"): (EVERYBODY, None),
    ("POST", "/api/explore"): (EVERYBODY, {"n": 10, "tiers": [{"epsilon": 1.0, "share": 1.0}]}),
    ("GET", "/api/results"): (EVERYBODY, None),
    ("GET", "/api/results/{study}"): (EVERYBODY, None),
    ("GET", "/api/results/{study}.csv"): (EVERYBODY, None),
    ("GET", "/results/{study}"): (EVERYBODY, None),
    ("POST", "/api/session/curator"): (EVERYBODY, {"key": "guess"}),
    ("POST", "/api/session/participant"): (EVERYBODY, {"token": "guess"}),
    ("DELETE", "/api/session/{kind}"): (EVERYBODY, None),
    ("GET", "/answer"): (PERSON, None),
    ("GET", "/api/answer"): (PERSON, None),
    ("PUT", "/api/answer"): (PERSON, {"answers": {"hours": 1}, "tier": "open"}),
    ("DELETE", "/api/answer"): (PERSON, None),
    ("GET", "/curator"): (CURATOR, None),
    ("GET", "/curator/new"): (CURATOR, None),
    ("GET", "/curator/status"): (CURATOR, None),
    ("GET", "/api/status"): (CURATOR, None),
    ("GET", "/curator/studies/{study}"): (CURATOR, None),
    ("GET", "/curator/studies/{study}/live"): (CURATOR, None),
    ("GET", "/api/studies"): (CURATOR, None),
    ("POST", "/api/studies"): (CURATOR, NEW),
    ("GET", "/api/studies/{study}"): (CURATOR, None),
    ("GET", "/api/studies/{study}/what-if"): (CURATOR, None),
    ("GET", "/api/studies/{study}/events"): (CURATOR, None),
    ("GET", "/api/studies/{study}/invitations"): (CURATOR, None),
    ("POST", "/api/studies/{study}/invitations"): (CURATOR, {"count": 1}),
    ("DELETE", "/api/studies/{study}/invitations"): (CURATOR, None),
    ("DELETE", "/api/studies/{study}/people"): (CURATOR, {"link": "LINK"}),
    ("POST", "/api/studies/{study}/rows"): (CURATOR, "value,tier\n1,open\n"),
    ("POST", "/api/studies/{study}/publish"): (CURATOR, {"wave": 0}),
    ("POST", "/api/studies/{study}/close"): (CURATOR, {"wave": 0}),
    ("GET", "/api/studies/{study}/rows"): (CURATOR, None),
    ("DELETE", "/api/studies/{study}/rows/{file}"): (CURATOR, None),
    ("DELETE", "/api/studies/{study}"): (CURATOR, None),
    ("POST", "/api/curator/key"): (CURATOR, None),
    ("GET", "/curator/curators"): (CURATOR, None),
    ("GET", "/api/curators"): (CURATOR, None),
    ("POST", "/api/curators"): (CURATOR, {"name": "second"}),
    ("DELETE", "/api/curators/{name}"): (CURATOR, None),
}
"""Who may use an address, and a body that would do."""


def routes(app):
    included = [route.original_router.routes for route in app.routes if hasattr(route, "original_router")]
    every = [route for route in (*app.routes, *chain(*included)) if hasattr(route, "methods")]
    return {(method, route.path) for route in every for method in route.methods}


def test_every_route_has_a_row_in_the_matrix(site):
    """A route that is added without a decision about who may use it fails here."""
    assert {pair for pair in routes(site.app) if pair[0] != "HEAD"} == set(MATRIX)


def ask(client, method, path, body, study, file="none"):
    path = path.format(study=study, kind="curator", file=file, name="other")
    if path.endswith("what-if"):
        path += "?people=5&tier=open"
    if isinstance(body, str):
        headers = {"Content-Type": "text/csv"}
        return client.request(method, path, content=body, headers=headers)
    return client.request(method, path, json=body)


@pytest.mark.parametrize(("method", "path"), sorted(MATRIX), ids=lambda part: part)
def test_the_authorisation_matrix(site, method, path):
    """Nobody, a participant, a participant of another study: only the curator does what is the curator's."""
    allowed, body = MATRIX[method, path]
    study, other = site.study(), site.study()
    (mine,), (theirs,) = site.join(study, [(1, "open")]), site.join(other, [(1, "open")])
    if path.endswith(("results/{study}", ".csv")):
        site.publish(study)
    said = {
        "nobody": ask(site.client(), method, path, body, study),
        "person": ask(mine, method, path, body, study),
        "other": ask(theirs, method, path, body, study),
        "guessed key": ask(site.client(Authorization="Bearer guess"), method, path, body, study),
    }
    statuses = {role: answer.status_code for role, answer in said.items()}
    if allowed == EVERYBODY:
        expected = {403} if "session" in path and method == "POST" else {200, 201} if method != "DELETE" else {401}
        assert set(statuses.values()) <= expected, statuses
        return
    refused = {"nobody", "guessed key", *(["person", "other"] if allowed == CURATOR else [])}
    page = path.startswith("/curator")
    assert {statuses[role] for role in refused} == ({303} if page else {401}), statuses
    if allowed == PERSON:
        assert {statuses["person"], statuses["other"]} == {200}
        return
    if path == "/api/curator/key":
        return  # the curator's own way is in test_server: it would end this module's key
    if path.endswith("{name}"):
        site.curator.post("/api/curators", json={"name": "other"})
    if path.endswith("people"):
        body = {"link": site.invite(study, 1)[0]}
    if path.endswith("close"):
        study = site.study(waves=[{"closes": int(time.time()) + 30 * DAY}])
    site.rows(study, "value,tier\n2,open\n")
    (file,) = [one["file"] for one in site.curator.get(f"/api/studies/{study}/rows").json()]
    with later(DAY if path.endswith("publish") else 0):
        done = ask(site.curator, method, path, body, study, file)
    assert done.status_code in {200, 201}, done.text


def test_a_participant_reaches_their_own_study_alone(site):
    """A session leads to one person's study; there is no address by which to name another's."""
    study, other = site.study(title="Mine?"), site.study(title="Theirs?")
    (mine,), _ = site.join(study, [(1, "open")]), site.join(other, [(1, "strict")])
    assert mine.get("/api/answer").json()["study"]["title"] == "Mine?"
    mine.delete("/api/answer")
    assert site.live(other)["n"] == 1


# ---------------------------------------------------------------------------------------------------------
# Cross-site requests, rebinding, cookies


def signed_in(site):
    curator = site.client()
    said = curator.post("/api/session/curator", json={"key": site.key})
    curator.headers["X-CSRF-Token"] = said.json()["csrf"]
    return curator, said


CROSS = [
    ({"X-CSRF-Token": ""}, 403),
    ({"X-CSRF-Token": "0" * 64}, 403),
    ({"Origin": "https://evil.example"}, 403),
    ({"Origin": "null"}, 403),
    ({"Origin": "http://127.0.0.1:1"}, 403),
    ({"Sec-Fetch-Site": "cross-site"}, 403),
    ({"Sec-Fetch-Site": "same-site"}, 403),
    ({"Sec-Fetch-Site": "same-origin"}, 201),
    ({}, 201),
]


@pytest.mark.parametrize(("headers", "status"), CROSS, ids=[f"{h}" for h, _ in CROSS])
def test_another_sites_page_cannot_change_anything(site, headers, status):
    """Cookies alone do nothing: the CSRF token of the session and an own origin are needed. Controls at the end."""
    curator, _ = signed_in(site)
    assert curator.post("/api/studies", json=NEW, headers=headers).status_code == status


HOSTS = ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "localhost.", "10.0.0.1", "", "[::ffff:7f00:1]"]


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("path", ["/", "/health", "/api/results", "/static/style.css", "/nowhere"])
def test_a_foreign_host_is_refused_everywhere(site, host, path):
    assert site.client().get(path, headers={"Host": host}).status_code == 403


@pytest.mark.parametrize("host", ["localhost:99", "LOCALHOST", "127.0.0.1"])
def test_control_own_names_are_served(site, host):
    assert site.client().get("/health", headers={"Host": host}).status_code == 200


def test_sessions_are_cookies_that_no_script_and_no_other_site_can_use(site, tmp_path):
    _, said = signed_in(site)
    cookie = said.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    with served(settings_for(tmp_path, origin="https://survey.example.org")) as secure:
        said = secure.client().post("/api/session/curator", json={"key": secure.key})
        assert said.headers["set-cookie"].startswith("__Host-hetdp_curator=")
        assert "Secure" in said.headers["set-cookie"]
        visitor = secure.client(X_CSRF_Token=said.json()["csrf"], Cookie=said.headers["set-cookie"].partition(";")[0])
        away = visitor.delete("/api/session/curator").headers["set-cookie"]
        assert "Secure" in away, "a browser would not forget it"
        assert "Max-Age=0" in away


PAGES = ["/", "/sign-in", "/join", "/explore", "/answer", "/nowhere", "/api/results", "/static/style.css", "/health"]


@pytest.mark.parametrize("path", PAGES)
def test_every_answer_carries_the_headers(site, path):
    headers = site.client().get(path).headers
    policy = headers["content-security-policy"]
    assert "default-src 'self'" in policy
    assert "unsafe" not in policy
    assert "http" not in policy
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["x-content-type-options"] == "nosniff"
    assert "frame-ancestors 'none'" in policy


def test_pages_have_no_inline_script_or_style_and_ask_nobody_else(site, study):
    (person,) = site.join(study, [(1, "open")])
    curator, _ = signed_in(site)
    site.publish(site_with_people := site.study())
    pages = [site.client().get(path).text for path in ("/", "/sign-in", "/join", "/explore", "/nowhere")]
    pages += [person.get("/answer").text]
    pages += [curator.get(p).text for p in ("/curator", "/curator/new", f"/curator/studies/{study}")]
    assert site_with_people
    for page in pages:
        # A block of JSON is data: no browser runs it, whatever it holds.
        assert not re.search(r'<script(?![^>]*\bsrc=)(?! type="application/json" id="\w+">)', page)
        assert not re.search(r"<style|\sstyle=|\son\w+=|javascript:", page)
        assert not re.search(r"(?:src|href|action)=[\"']?(?:https?:)?//", page)


# ---------------------------------------------------------------------------------------------------------
# Tokens


def without_id(said):
    body = said.json()
    body["error"].pop("id")
    return said.status_code, body, sorted(set(said.headers) - {"x-request-id"})


def test_replayed_and_guessed_invitations_are_refused_alike(site, study):
    token = site.invite(study, 1)[0]
    site.enter(token).put("/api/answer", json={"answers": {"hours": 1}, "tier": "open"})
    guesses = [token, access.new_token(), token[:-1] + ("A" if token[-1] != "A" else "B"), "x", "'; --", "é" * 50]
    said = [without_id(site.client().post("/api/session/participant", json={"token": guess})) for guess in guesses]
    assert all(one == said[0] for one in said)
    assert said[0][0] == 403


def test_the_database_holds_no_token(site, study):
    (token,) = site.invite(study, 1)
    person = site.enter(token)
    link = person.put("/api/answer", json={"answers": {"hours": 1}, "tier": "open"}).json()["come_back"]
    secrets = [token, site.key, link.partition("#")[2], person.cookies["hetdp_person"]]
    text = "".join(str(row) for table in tables.schema.sorted_tables for row in _rows(site, table))
    assert [secret for secret in secrets if secret in text] == []
    assert access.digest("curator", site.key) in text  # control: its hash is there


def _rows(site, table):
    with site.app.state.store.engine.connect() as connection:
        return connection.execute(sa.select(table)).all()


def test_good_and_bad_tokens_cost_the_same_work(site, study):
    """Both run the same statements up to the decision; only a good token then opens a session."""
    engine, seen = site.app.state.store.engine, []

    def note(connection, cursor, statement, parameters, context, many):
        seen.append(statement)

    good, client = site.invite(study, 1)[0], site.client()
    sa.event.listen(engine, "before_cursor_execute", note)
    try:
        work = {}
        for name, token in {"good": good, "bad": access.new_token()}.items():
            seen.clear()
            client.post("/api/session/participant", json={"token": token})
            work[name] = list(seen)
        for name, key in {"good key": site.key, "bad key": access.new_token()}.items():
            seen.clear()
            client.get("/api/studies", headers={"Authorization": f"Bearer {key}"})
            work[name] = list(seen)
    finally:
        sa.event.remove(engine, "before_cursor_execute", note)
    looked = [statement for statement in work["bad"] if "SELECT" in statement]
    assert len(looked) == 2
    assert work["good"][: len(work["bad"])] == work["bad"]
    assert work["good key"][: len(work["bad key"])] == work["bad key"]


def test_a_comparison_goes_through_the_whole_digest(monkeypatch):
    """Whether a record is there or not, one comparison of two whole digests is made, by hmac.compare_digest."""
    calls = []
    monkeypatch.setattr(access.hmac, "compare_digest", lambda a, b: calls.append((len(a), len(b))) or a == b)
    found = access.digest("invitation", "t")
    assert access.same(found, found)
    assert not access.same(None, found)
    assert not access.same(None, access.NOBODY)
    assert calls == [(64, 64)] * 3


def test_guessing_is_slowed_down(tmp_path):
    with served(settings_for(tmp_path, attempts=5)) as site:
        client = site.client()
        said = [client.post("/api/session/curator", json={"key": f"guess {i}"}).status_code for i in range(8)]
        assert said == [403] * 5 + [429] * 3
        answer = client.post("/api/session/curator", json={"key": "guess"})
        assert (answer.status_code, answer.headers["retry-after"]) == (429, "60")
        assert client.post("/api/session/participant", json={"token": "guess"}).status_code == 403, "a limit of its own"
        assert client.get("/health").status_code == 200


def test_a_lecture_hall_behind_one_address_can_join_and_does_not_use_up_the_sign_in(tmp_path):
    with served(settings_for(tmp_path, attempts=3, joins=8)) as site:
        study = site.study()
        for token in site.invite(study, 8):
            site.enter(token)
        assert site.client().post("/api/session/participant", json={"token": "guess"}).status_code == 429
        assert site.client().post("/api/session/curator", json={"key": site.key}).status_code == 200
    usual = Settings()
    assert (usual.joins, usual.attempts) == (600, 30)
    assert usual.per_address >= 6 * usual.joins, "a page, its scripts and styles, and the answer"


def test_a_person_and_an_address_have_their_own_limits(tmp_path):
    with served(settings_for(tmp_path, per_person=3, per_address=100)) as site:
        study = site.study()
        first, second = site.join(study, [(1, "open"), (1, "open")])
        said = [first.put("/api/answer", json={"answers": {"hours": 2}, "tier": "open"}).status_code for _ in range(4)]
        assert said == [200, 200, 429, 429]
        assert second.delete("/api/answer").status_code == 200
        assert 429 in {site.client().get("/health").status_code for _ in range(110)}


def test_a_bucket_fills_up_again():
    now = [0.0]
    rates = Rates(lambda: now[0], most=4)
    assert [rates.allow("a", "x", 2) for _ in range(3)] == [True, True, False]
    now[0] += 30
    assert [rates.allow("a", "x", 2) for _ in range(2)] == [True, False]
    assert all(rates.allow("a", str(i), 2) for i in range(50))
    assert len(rates._buckets) <= 4


# ---------------------------------------------------------------------------------------------------------
# What is sent

MALFORMED = [
    b'{"answers": {"hours": NaN}, "tier": "open"}',
    b'{"answers": {"hours": Infinity}, "tier": "open"}',
    b'{"answers": {"hours": -Infinity}, "tier": "open"}',
    b'{"answers": {"hours": 1e400}, "tier": "open"}',
    b'{"answers": {"hours": -1e309}, "tier": "open"}',
    b'{"answers": {"hours": 1' + b"0" * 400 + b'}, "tier": "open"}',
    b'{"answers": {"hours": 1' + b"0" * 5000 + b'}, "tier": "open"}',
    b'{"answers": {"hours": 1, "hours": 2}, "tier": "open"}',
    b'{"answers": {"hours": 1}, "tier": "\\ud800"}',
    b'{"answers": {"hours": 1}, "tier": "open"',
    b'{"answers": {"hours": 1}, "tier": "open"} x',
    b"[" * 30_000,
    b'{"answers": {"hours": 1}, "tier": "\xff"}',
    b"\xef\xbb\xbf{}",
    b"'a'",
]


@pytest.mark.parametrize("body", MALFORMED, ids=[f"{body[:34]!r}" for body in MALFORMED])
def test_what_is_not_strict_json_is_malformed(site, study, body):
    (person,) = site.join(study, [(5, "open")])
    said = person.put("/api/answer", content=body, headers=JSON)
    assert said.status_code == 400
    assert said.json()["error"]["message"] == "The body is not strict JSON."
    with pytest.raises(RefusedError, match="not strict JSON"):
        parse(body)


UNFIT = [
    {},
    {"answers": [98765.4321], "tier": "open"},
    {"answers": "98765.4321", "tier": "open"},
    {"answers": {"hours": 98765.4321}, "tier": "open", "98765.4321": 1},
    {"answers": {"hours": 98765.4321}},
    {"answers": {"hours": 98765.4321}, "tier": "secret"},
    {"answers": {"hours": 98765.4321}, "tier": 5},
    {"answers": {"hours": 98765.4321}, "tier": "open", "epsilon": 1.0},
    {"answers": {"hours": 98765.4321}, "tier": "open", "more": 98765.4321},
    [98765.4321],
    98765.4321,
]


@pytest.mark.parametrize("body", UNFIT, ids=[json.dumps(body) for body in UNFIT])
def test_an_unfit_body_gets_a_fixed_text(site, study, body):
    (person,) = site.join(study, [(5, "open")])
    said = person.put("/api/answer", json=body)
    assert said.status_code == 422
    assert "98765" not in said.text


def test_a_body_of_another_type_is_refused(site, study):
    (person,) = site.join(study, [(5, "open")])
    body = b'{"answers": {"hours": 1}, "tier": "open"}'
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
        assert person.put("/api/answer", content=body, headers={"Content-Type": kind}).status_code == 422


def test_a_large_body_is_refused_whether_it_says_so_or_not(site, study):
    (person,) = site.join(study, [(5, "open")])
    large = b'{"answers": {"hours": 1}, "tier": "' + b"x" * 2**17 + b'"}'
    assert person.put("/api/answer", content=large, headers=JSON).status_code == 413

    def pieces():
        for start in range(0, len(large), 1000):
            yield large[start : start + 1000]

    assert person.put("/api/answer", content=pieces(), headers=JSON).status_code == 413
    host, port = site.address.removeprefix("http://").split(":")
    plain = http.client.HTTPConnection(host, int(port))
    plain.putrequest("POST", "/api/explore")
    plain.putheader("Content-Length", "99999999999")
    plain.endheaders()
    assert plain.getresponse().status == 413
    plain.close()


TEXTS = [
    "'; DROP TABLE server_people; --",
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "{{ 7 * 7 }}",
]


@pytest.mark.parametrize("text", TEXTS)
def test_injected_texts_stay_texts(site, text):
    """In every text field: stored as they are, escaped on every page, and every table is still there."""
    tiers = [{"name": text, "epsilon": 1.0, "sentence": text}]
    about = dict.fromkeys(("institute", "contact", "notice", "consent"), text)
    choice = {"name": "c", "kind": "choice", "text": text, "choices": [text, "other"]}
    asked = [{**NUMBER, "text": text, "unit": text[:30]}, choice]
    study = site.study(title=text, questions=asked, tiers=tiers, about=about)
    site.curator.post(f"/api/studies/{study}/invitations", json={"count": 1})
    person = site.enter(site.invite(study, 1)[0])
    said = person.put("/api/answer", json=saying({"hours": 5, "c": text}, tier=text, consent=True))
    assert said.status_code == 200, said.text
    site.publish(study)
    curator, _ = signed_in(site)
    pages = [curator.get(path).text for path in ("/curator", f"/curator/studies/{study}", f"/results/{study}", "/")]
    pages.append(person.get("/answer").text)
    shown = site.live(study)["study"]
    assert (shown["title"], shown["questions"][1]["choices"][0], shown["about"]) == (text, text, about)
    for page in pages:
        assert "<script>alert" not in page
        assert "<img src=x" not in page
        assert " 49 " not in page
    assert _rows(site, tables.people)


PATHS = ["%27%20OR%201=1", "..%2f..%2fetc%2fpasswd", "<script>", "%00", "a" * 5000]


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path[:20])
def test_odd_addresses_find_nothing(site, path):
    for start in ("/api/results/", "/results/", "/static/", "/api/studies/", "/"):
        said = site.curator.get(start + path)
        assert said.status_code in {404, 400}, (start, said.status_code)
        assert "<script>" not in said.text.replace('<script type="module"', "")


BAD_STUDIES = {
    "questions": [
        [],
        [NUMBER] * 2,
        [NUMBER] * 13,
        *([{**NUMBER, "bounds": ends}] for ends in ([1, 0], [0, 0], [0], [0, 1, 2], ["0", "1"], [0, 1e300], None)),
        *([{**NUMBER, "text": text}] for text in ("", "x" * 301, "a\x00b", "a\nb", 5)),
        *([{**NUMBER, "name": name}] for name in ("", "1st", "A", "a b", "x" * 41)),
        *([{**NUMBER, "share": share}] for share in (0, 1.1, -0.5)),
        [{**NUMBER, "kind": "text"}],
        [{**NUMBER, "kind": "yes-no"}],
        [{**NUMBER, "choices": ["a", "b"]}],
        [{"name": "c", "kind": "choice", "text": "c", "choices": ["a"]}],
        [{"name": "c", "kind": "choice", "text": "c", "choices": ["a", "a"]}],
        [{**NUMBER, "share": 0.6}, {**NUMBER, "name": "b", "share": 0.5}],
        [{**NUMBER, "share": 0.6}, {**NUMBER, "name": "b"}],
    ],
    "title": ["", "x" * 301, "a\x00b", "a\nb", 5],
    "each_wave": ["sometimes"],
    "language": ["xx"],
    "about": [{"institute": "a\nb"}, {"who": "me"}, {"consent": "x" * 1001}],
    "tiers": [[], [TIERS[0]] * 2, *([{"name": "a", "epsilon": level}] for level in (-1.0, "1e400", None, "0.1"))],
    "waves": [[], [{"closes": 1}], [{"closes": 4_000_000_000, "share": 0}], [{"closes": 4_000_000_000, "share": 1.1}]],
    "fewest": [0, -1, 1.5, 10**12],
    "opens": [-1, 10**12, "now"],
    "free": [{"least": 1.0, "most": 0.5}, {"least": 1.0, "most": 2.0}],
}
CASES = [(name, bad) for name, many in BAD_STUDIES.items() for bad in many]


@pytest.mark.parametrize(("name", "bad"), CASES, ids=[f"{n}={str(b)[:40]!r}" for n, b in CASES])
def test_a_study_that_cannot_be_is_refused(site, name, bad):
    assert site.curator.post("/api/studies", json={**NEW, "opens": 5, name: bad}).status_code == 422


# ---------------------------------------------------------------------------------------------------------
# A value leaves no trace

MARKER = 7.318281828
SHOWN = ["7.318281828", "7.3182818", "7.31828", "318281828"]


def encodings(value):
    """A value and its grid code as text and as bytes of every kind that a database or a log would use."""
    code = int(Interval(0, 10).codes(np.array([value]), np.empty(1))[0])
    numbers = [struct.pack(form, value) for form in ("<d", ">d", "<f", ">f")]
    numbers += [code.to_bytes(size, order) for size in (4, 8) for order in ("little", "big")]
    return [*(text.encode() for text in (*SHOWN, str(code), f"{code:x}")), *numbers]


def found(value, haystack):
    return [needle for needle in encodings(value) if needle in haystack]


def test_a_value_never_appears_anywhere(tmp_path):
    """Planted through every door, then looked for in files, logs, pages, answers; also through an internal error."""
    settings, said = settings_for(tmp_path), []
    with logged() as lines, served(settings) as site:
        study = site.study(title="Which marker, 8.642086420?")
        people = site.join(study, [(MARKER, "strict"), (MARKER, "open"), (MARKER, "public")])
        people[0].put("/api/answer", json={"answers": {"hours": MARKER}, "tier": "open"})  # refused: it would raise ε
        people[0].put("/api/answer", json={"answers": {"hours": MARKER}, "tier": "open", "allow_more": True})
        people[1].delete("/api/answer")
        site.rows(study, f"value,tier\n{MARKER},open\nx{MARKER},open\n")
        bodies = [saying(MARKER, tier="none"), saying(str(MARKER)), saying(MARKER, x=1), {str(MARKER): MARKER}]
        said += [people[0].put("/api/answer", json=body) for body in bodies]
        vault, site.app.state.vault = site.app.state.vault, object()
        said.append(people[0].put("/api/answer", json={"answers": {"hours": MARKER}, "tier": "open"}))
        site.app.state.vault = vault
        assert said[-1].status_code == 500
        curator, _ = signed_in(site)
        about = ("/curator", f"/curator/studies/{study}", f"/api/studies/{study}", f"/api/studies/{study}/events")
        said += [curator.get(path) for path in about]
        said += [people[0].get("/answer"), people[0].get("/api/answer")]
        files = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
        texts = b"".join(answer.content + str(answer.headers).encode() for answer in said)
    log = "\n".join(lines).encode()
    assert found(MARKER, files) == []
    assert found(MARKER, texts) == []
    assert found(MARKER, log) == []
    assert b"8.642086420" in files  # controls: what is public is found in the same haystacks
    assert b"8.642086420" in texts
    assert b'"event": "failed"' in log
    assert found(MARKER, f"x{MARKER}".encode())
    assert found(MARKER, struct.pack("<d", MARKER))


@pytest.mark.parametrize("how", ["withdrawn", "changed", "published"])
def test_an_answer_that_is_gone_is_nowhere_in_the_files_of_the_server(tmp_path, how):
    """Neither in the database nor in its write-ahead log, where the pages before a change would stay."""
    settings = settings_for(tmp_path)
    with served(settings) as site:
        study = site.study()
        (person,) = site.join(study, [(3, "open")])
        (row,) = _rows(site, tables.people)
        sealed = row.answer
        gone = {
            "withdrawn": lambda: person.delete("/api/answer"),
            "changed": lambda: person.put("/api/answer", json={"answers": {"hours": 4}, "tier": "open"}),
            "published": lambda: site.publish(study),
        }[how]

        def left():
            return any(sealed in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())

        assert left(), "a control: it is in the write-ahead log"
        gone()
        for _ in range(200):  # while the server runs; ten seconds, and more where the machine is busy
            if not left():
                break
            time.sleep(0.05)
        assert not left()


def test_a_log_that_cannot_be_emptied_now_is_emptied_later_and_answers_are_taken_meanwhile(tmp_path, monkeypatch):
    with served(settings_for(tmp_path)) as site:
        study = site.study()
        one, other = site.join(study, [(3, "open"), (4, "open")])
        sealed = _rows(site, tables.people)[0].answer
        engine, tried = site.app.state.store.engine, []
        real = engine.raw_connection

        def full():
            emptying = sys._getframe(1).f_code.co_name == "_empty_log"
            tried.extend([True] * emptying)
            if emptying and len(tried) < 4:
                raise sqlite3.OperationalError("database or disk is full")
            return real()

        monkeypatch.setattr(engine, "raw_connection", full)
        assert one.delete("/api/answer").status_code == 200
        assert other.put("/api/answer", json={"answers": {"hours": 5}, "tier": "open"}).status_code == 200
        deadline = time.monotonic() + 60

        def left():
            return any(sealed in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())

        while left() and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not left()
        assert len(tried) >= 4


EXTREMES = [0, 10, 5, -1, 11, 1e308, -1e308, 5e-324, -0.0, 3.3333333333333335, 10**300, -(10**17)]


def test_whatever_the_value_the_answer_and_the_log_are_the_same(site, study):
    """Status, body, length, headers, log line, and the length of what is stored."""
    (person,) = site.join(study, [(5, "open")])
    seen = set()
    for value in EXTREMES:
        with logged() as lines:
            said = person.put("/api/answer", json={"answers": {"hours": value}, "tier": "open"})
            line = line_about(lines, said)
        kept = {name: line[name] for name in line if name not in {"time", "ms", "id"}}
        sealed = {len(row.answer) for row in _rows(site, tables.people) if row.answer}
        headers = sorted(item for item in said.headers.items() if item[0] not in {"x-request-id", "date"})
        body = re.sub(r'"at":\d{10},', '"at":0,', said.text)  # when it came, as in the header
        seen.add(json.dumps([said.status_code, body, headers, kept, sorted(sealed)]))
    assert len(seen) == 1, seen


def test_sealed_answers_are_bound_to_their_person(tmp_path):
    vault = settings_for(tmp_path).vault()
    sealed = vault.seal([12345], "anna", "s", 0.1)
    assert vault.open(sealed, "anna", "s", 0.1) == (12345).to_bytes(4)
    assert vault.seal([12345], "anna", "s", 0.1) != sealed
    assert {len(vault.seal([code], "anna", "s", math.inf)) for code in (0, 1, 2**20, UNSAID)} == {32}
    others = [(sealed, "bob", "s", 0.1), (sealed, "anna", "t", 0.1), (sealed, "anna", "s", math.inf)]
    for other in (*others, (sealed[:-1] + bytes([sealed[-1] ^ 1]), "anna", "s", 0.1), (b"", "anna", "s", 0.1)):
        with pytest.raises(InputError, match="changed outside"):
            vault.open(*other)


def test_publication_is_answered_on_a_tick(tmp_path):
    """Not before a whole tick, whether it succeeds or is refused; the time of the sampler is inside it."""
    with served(settings_for(tmp_path, tick=0.3)) as site:
        for fewest, expected in ((2, 409), (1, 200)):
            study = site.study(fewest=fewest)
            site.join(study, [(1, "public")])
            start = time.monotonic()
            assert site.publish(study).status_code == expected
            assert time.monotonic() - start >= 0.3


def test_logs_have_patterns_instead_of_addresses(site, study):
    with logged() as lines:
        site.live(study)
        site.client().get(f"/secret-{study}")
        line = line_about(lines, site.client().get(f"/api/results/{study}?token=hidden"))
    text = "\n".join(lines)
    assert study not in text
    assert "hidden" not in text
    assert line["route"] == "/api/results/{study}"
    assert {"time", "level", "event", "id", "method", "route", "status", "ms"} == set(line)


def test_an_internal_error_is_a_fixed_text_with_an_id_that_is_in_the_log(site, study):
    (person,) = site.join(study, [(5, "open")])
    vault, site.app.state.vault = site.app.state.vault, object()
    try:
        with logged() as lines:
            said = person.put("/api/answer", json={"answers": {"hours": 1}, "tier": "open"})
    finally:
        site.app.state.vault = vault
    assert said.status_code == 500
    failed = [line for line in facts(lines) if line["event"] == "failed"]
    assert [line["id"] for line in failed] == [said.json()["error"]["id"]]
    assert failed[0]["error"] == "AttributeError"
    assert set(said.json()["error"]) == {"code", "message", "id"}


def test_a_request_that_is_no_http_does_no_harm(site):
    host, port = site.address.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=60) as plain:
        plain.sendall(b"\x00\x01 nonsense\r\n\r\n")
        assert plain.recv(100).startswith(b"HTTP/1.1 400")
    assert site.client().get("/health").status_code == 200


# ---------------------------------------------------------------------------------------------------------
# Who could read an answer

UNTRUE = re.compile(r"[Nn]obody (but you )?(sees|can read|reads)|never an answer|key is not in the database")


def test_row_119_a_person_is_told_who_could_read_an_answer(site, study):
    (person,) = site.join(study, [(1, "open")])
    page = person.get("/answer").text
    assert "Whoever controls this server could read them" in page
    assert "whoever has the key and the database, or a copy of it, could read them later" in page
    assert "Answers are stored encrypted until they are deleted" in page
    assert UNTRUE.search(page) is None


def test_control_row_119_the_words_of_before_are_noticed():
    assert UNTRUE.search("Nobody sees your answer, whatever you choose.")
    assert UNTRUE.search("see how many joined with which choice, never an answer.")


def test_row_119_every_file_is_for_its_owner_alone_from_the_first_start_on(tmp_path):
    """Under the most open umask, before anything is started a second time."""
    before = os.umask(0)
    try:
        with served(settings_for(tmp_path)) as running:
            running.publish(running.study())
            modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    finally:
        os.umask(before)
    assert {"server.db", "server.db-wal", "server.db-shm", "server.key", "server.db.ledger"} <= modes.keys()
    assert {name: oct(mode) for name, mode in modes.items() if mode & 0o077} == {}


@pytest.mark.parametrize("where", ["beside", "by a link", "elsewhere", "environment"])
def test_row_119_a_key_beside_the_database_is_warned_about_at_every_start(tmp_path, monkeypatch, capsys, where):
    """The remedy that the warning names is taken in the other cases, and it is silent."""
    monkeypatch.setattr(run, "_log_to_stderr", lambda: None)

    def stopped_at_once(server, sockets):
        close(server.config.app)
        for listener in sockets:
            listener.close()

    monkeypatch.setattr("uvicorn.Server.run", stopped_at_once)
    folder, apart = tmp_path / "data", tmp_path / "apart"
    folder.mkdir()
    apart.mkdir()
    (apart / "link").symlink_to(folder)
    database = f"sqlite:///{folder}/server.db"
    changes = {
        "beside": {},
        "by a link": {"key_file": apart / "link" / "my.key"},
        "elsewhere": {"key_file": apart / "my.key"},
        "environment": {"key": "ab" * 32},
    }
    for _ in range(2):
        run.serve(Settings(database=database, **changes[where]), "127.0.0.1", 0)
        said = capsys.readouterr().err
        assert said.count("WARNING") == (2 if where in {"beside", "by a link"} else 0)
        assert ("--key-file FILE" in said) == bool(said)
