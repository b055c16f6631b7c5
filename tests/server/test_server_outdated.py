"""Pages that must not say more than the server will do: a tab left open, records that were changed, a last date."""

from __future__ import annotations

import time

import pytest
from test_server_sentences import HOUR, LANGUAGES, TIERS, waves_of
from test_server_states import refused

from serving import DAY, later, saying, served, settings_for

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    with served(settings_for(tmp_path_factory.mktemp("outdated"))) as running:
        yield running


# ---------------------------------------------------------------------------------------------------------
# A tab that was left open


def made_for(person):
    """What a page sends of the moment at which it was made."""
    study = person.get("/api/answer").json()["study"]
    return {name: study[name] for name in ("wave", "closes")}


def moved_by_a_publication(site, study):
    assert site.publish_now(study).status_code == 200


def moved_by_closing_early(site, study):
    assert site.curator.post(f"/api/studies/{study}/close", json={"wave": 0}).status_code == 200


@pytest.mark.parametrize(
    ("moved", "first", "at"),
    [(moved_by_a_publication, HOUR, 2 * HOUR), (moved_by_closing_early, 60 * DAY, 0)],
)
def test_nothing_is_stored_of_a_page_whose_promises_no_longer_hold(site, moved, first, at):
    study = site.study(waves=waves_of(0.5, 0.5, first=first), tiers=TIERS)
    (one,) = site.join(study, [(3, "open")])
    old = made_for(one)
    body = saying(3, tier="middle")
    assert one.put("/api/answer", json={**saying(3, tier="open"), **old}).status_code == 200, "while nothing moved"
    with later(at):
        moved(site, study)
        found = refused(one, "PUT", "/api/answer", json={**body, **old})
        assert one.put("/api/answer", json={**body, **old}).json()["error"]["code"] == "outdated"
        for language, words in LANGUAGES.items():
            assert found[language] == words.catalogue["error.outdated"]
        assert one.get("/api/answer").json()["choice"]["tier"] == "open", "nothing was changed"
        for name, value in old.items():  # each by itself
            if made_for(one)[name] != value:
                assert one.put("/api/answer", json={**body, name: value}).status_code == 409
        assert one.put("/api/answer", json={**body, **made_for(one)}).status_code == 200
        assert one.put("/api/answer", json=body).status_code == 200, "a program need not say it"


def test_a_receipt_has_the_servers_time_and_the_date_until_which_the_answer_can_be_changed(site):
    now = int(time.time())
    closing = {"usual": now + HOUR, "never": now + 10 * DAY}
    for closes, until in ((closing["usual"], None), (closing["never"] - 60, closing["never"])):
        study = site.study(waves=[{"closes": closes, "share": 1.0}], **({"until": until} if until else {}))
        person = site.enter(site.invite(study, 1)[0])
        with later(30):  # the server's clock is ahead of this one
            said = person.put("/api/answer", json=saying(3, tier="open")).json()
        assert said["closes"] == closes
        assert 30 <= said["at"] - now <= 30 + 600
