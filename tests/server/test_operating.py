"""What an operator relies on: settings that are refused when wrong, a check before the start, health, a status page."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from hetdp.errors import InputError
from hetdp.server import Settings, access, check, run
from serving import facts, later, logged, served, settings_for

# ---------------------------------------------------------------------------------------------------------
# Settings


def test_an_option_counts_before_the_environment_that_before_the_file_that_before_the_default(tmp_path):
    file = tmp_path / "survey.toml"
    file.write_text('port = 1\nper_person = 2\nhosts = ["a.org"]\ntick = 0.5\norigin = "https://x.org/survey/"\n')
    said = Settings.said({"port": 3, "host": None}, {"HETDP_PORT": "4", "HETDP_PER_PERSON": "5", "PATH": "x"}, file)
    assert (said.port, said.per_person, said.tick, said.attempts) == (3, 5, 0.5, Settings().attempts)
    assert {"a.org", "x.org", "localhost"} <= set(said.hosts)
    assert (said.origin, said.root, said.secure) == ("https://x.org/survey", "/survey", True)


WRONG = {
    "a key that nobody knows": ("pord = 1", "there is no setting 'pord'"),
    "a text for a number": ('port = "x"', "port in .* must be a whole number"),
    "half a person": ("per_person = 2.5", "must be a whole number"),
    "yes for a number": ("port = true", "must be a whole number"),
    "the key itself": ('key = "00"', "name a file that holds it"),
    "no TOML": ("port = = 1", "no TOML at line 1"),
    "one start alone": ("trust_database = true", "say it as an option: --trust-database"),
    "a proxy by name": ('proxies = ["nginx"]', "by its address or network"),
    "an origin with a question": ('origin = "https://x.org/?a=1"', "the origin is an address like"),
    "a number for a text": ("origin = 1", "origin in .* must be a text"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_a_wrong_setting_is_refused_in_words(kind, tmp_path):
    file = tmp_path / "survey.toml"
    text, sentence = WRONG[kind]
    file.write_text(text)
    with pytest.raises(InputError, match=sentence):
        Settings.said({}, {}, file)


def test_a_misspelt_variable_is_refused_and_no_secret_is_quoted(tmp_path):
    with pytest.raises(InputError, match="HETDP_ORIGN"):
        Settings.said({}, {"HETDP_ORIGN": "https://x.org"})
    with pytest.raises(InputError) as wrong:
        Settings.said({}, {"HETDP_PORT": "secret"})
    assert "secret" not in str(wrong.value)
    place = tmp_path / "url"
    place.write_text("postgresql://u:secret@db/x\n")
    said = Settings.said({}, {"HETDP_DATABASE_FILE": str(place), "HETDP_KEY": "ab" * 32})
    assert said.database == "postgresql://u:secret@db/x"
    assert "secret" not in repr(said)
    assert "abab" not in repr(said)


def test_a_file_that_holds_the_databases_url_is_named_by_a_line_and_what_counts_before_it_still_does(tmp_path):
    file, place, other = tmp_path / "survey.toml", tmp_path / "url", tmp_path / "other"
    file.write_text(f'database_file = "{place}"\n')
    place.write_text("postgresql://u:secret@db/line\n")
    other.write_text("postgresql://u:secret@db/variable\n")
    said = Settings.said({}, {}, file)
    assert (said.database, said.database_file) == ("postgresql://u:secret@db/line", place)
    assert Settings.said({}, {"HETDP_DATABASE_FILE": str(other)}, file).database.endswith("/variable")
    place.unlink()  # it is not read if it does not count
    for options, environment in (
        ({}, {"HETDP_DATABASE": "sqlite:///x.db"}),
        ({"database": "sqlite:///x.db"}, {}),
        ({"database": "sqlite:///x.db"}, {"HETDP_DATABASE_FILE": str(other)}),
    ):
        said = Settings.said(options, environment, file)
        assert (said.database, said.database_file) == ("sqlite:///x.db", None)


def test_the_settings_file_and_the_environment_reach_the_command(hetdp_command, tmp_path, monkeypatch):
    file = tmp_path / "survey.toml"
    file.write_text(f'database = "sqlite:///{tmp_path}/s.db"\nport = 0\n')
    monkeypatch.setenv("HETDP_KEY_FILE", str(tmp_path / "elsewhere.key"))
    code, out, _ = hetdp_command("serve", "--settings", file, "--check")
    assert code == 0
    assert "elsewhere.key is made at the first start" in out
    code, _, err = hetdp_command("serve", "--settings", tmp_path / "none.toml")
    assert code == 2
    assert "cannot be read" in err


# ---------------------------------------------------------------------------------------------------------
# --check


def levels(settings):
    return {(one.part, one.level) for one in check.check(settings) if one.level != "ok"}


def ready(tmp_path, **changes):
    """Settings of a server that ran once: apart from its key, on a free port."""
    (tmp_path / "keys").mkdir(exist_ok=True)
    settings = settings_for(tmp_path, key_file=tmp_path / "keys" / "k", port=0, **changes)
    with served(settings) as site:
        site.study()
    return settings


def test_a_check_before_the_first_start_finds_nothing_wrong_and_makes_nothing(tmp_path):
    settings = settings_for(tmp_path, key_file=tmp_path / "k", port=0)
    assert levels(settings) == {("key", "warning")}  # beside the database
    assert list(tmp_path.iterdir()) == []


def test_a_check_of_a_server_that_ran_changes_nothing(tmp_path):
    settings = ready(tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert levels(settings) == {("backup", "warning"), ("key", "warning")}  # in a folder of the database's
    after = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert {path for path in before | after if before.get(path) != after.get(path)} <= {
        path for path in after if path.name.endswith(("-wal", "-shm"))
    }


BROKEN = {
    "the head is missing": (lambda s: s.ledger_head.unlink(), ("ledger", "error")),
    "the ledger is missing": (lambda s: Path(s.ledger).unlink(), ("ledger", "error")),
    "the register is missing": (lambda s: s.register_file.unlink(), ("register", "error")),
    "the register is rubbish": (lambda s: s.register_file.write_bytes(b"x" * 9000), ("register", "error")),
    "another key": (lambda s: s.key_file.write_text("ab" * 32), ("database", "error")),
    "the key is missing": (lambda s: s.key_file.unlink(), ("key", "error")),
    "others read the key": (lambda s: s.key_file.chmod(0o644), ("key", "error")),
    "a rotation was cut off": (lambda s: s.key_file.with_name("k.new").write_text(""), ("key", "warning")),
    "the database is rubbish": (lambda s: s.sqlite_file.write_bytes(b"x" * 9000), ("database", "error")),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_check_finds_what_is_broken(kind, tmp_path):
    settings = ready(tmp_path)
    break_it, expected = BROKEN[kind]
    break_it(settings)
    assert expected in levels(settings)


def test_a_check_finds_what_does_not_fit_together(tmp_path):
    def found(**changes):
        return levels(settings_for(tmp_path, key_file=tmp_path / "k", **{"port": 0, **changes})) - {("key", "warning")}

    assert found(host="0.0.0.0") == {("network", "error")}  # noqa: S104  the point
    assert found(origin="http://x.org") == {("network", "warning")}
    assert found(origin="https://x.org") == {("network", "warning")}  # no proxy is trusted
    assert found(origin="https://x.org", proxies=("127.0.0.1",)) == set()
    assert ("network", "error") in found(origin="https://x.org", host="0.0.0.0")  # noqa: S104  the point
    assert ("database", "error") in found(database="postgresql://nobody@127.0.0.1:1/x")


def test_a_check_of_a_running_server_says_that_it_runs(tmp_path):
    settings = settings_for(tmp_path, key_file=tmp_path / "k", port=0)
    with served(settings) as site:
        port = int(site.address.rpartition(":")[2])
        busy = settings_for(tmp_path, key_file=tmp_path / "k", port=port)
        assert [one.sentence for one in check.check(busy) if "a server is running there" in one.sentence]


def test_check_says_its_findings_as_json_and_by_its_code(hetdp_command, tmp_path):
    settings = ready(tmp_path)
    named = ["--database", settings.database, "--key-file", settings.key_file, "--port", "0"]
    code, out, _ = hetdp_command("serve", *named, "--check", "--json")
    assert code == 0
    assert {"part", "level", "sentence"} == set(json.loads(out)[0])
    settings.ledger_head.unlink()
    code, out, _ = hetdp_command("serve", *named, "--check")
    assert code == 2
    assert "error   ledger" in out


# ---------------------------------------------------------------------------------------------------------
# The clock, and --new-key in a wrong folder


def test_a_clock_that_was_set_back_is_refused_at_the_start_and_ignored_while_running(tmp_path, monkeypatch):
    settings = ready(tmp_path)
    check.check_clock(settings)
    with later(9_000):
        run.replaced_key(settings)  # an event of the future
    with pytest.raises(InputError, match="--trust-clock"):
        check.check_clock(settings)
    assert ("clock", "error") in levels(settings)
    trusting = settings_for(tmp_path, key_file=settings.key_file, trust_clock=True, port=0)
    check.check_clock(trusting)

    ticks = iter([1000.0, 2000.0, 500.0, 2001.0])
    monkeypatch.setattr(access, "_latest", 0.0)
    monkeypatch.setattr(access.time, "time", lambda: next(ticks))
    assert [CLOCK() for _ in range(4)] == [1000.0, 2000.0, 2000.0, 2001.0]


CLOCK = access.now  # as it is before a test moves it


def test_a_new_key_in_a_wrong_folder_makes_nothing(hetdp_command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, err = hetdp_command("serve", "--new-key")
    assert (code, out) == (2, "")
    assert "is this the right folder?" in err
    assert list(tmp_path.iterdir()) == []


# ---------------------------------------------------------------------------------------------------------
# Health, log, status


def test_health_means_it(tmp_path, monkeypatch):
    settings = settings_for(tmp_path)
    with served(settings) as site:
        client = site.client()
        assert client.get("/health").json()["status"] == "ok"
        aside = tmp_path / "aside"
        settings.ledger_head.write_bytes(b"rubbish")
        assert (client.get("/health").status_code, client.get("/health").json()["status"]) == (503, "ledger")
        settings.ledger_head.unlink()
        site.app.state.publisher.ledger._store.flush_head()
        assert client.get("/health").status_code == 200
        settings.register_file.rename(aside)
        assert client.get("/health").json()["status"] == "register"
        aside.rename(settings.register_file)
        monkeypatch.setattr(check, "LEAST_FREE", 2**62)
        assert client.get("/health").json()["status"] == "disk"


def test_request_ids_are_random_and_the_log_has_public_facts_alone(tmp_path):
    with logged() as lines, served(settings_for(tmp_path)) as site:
        study = site.study()
        (person,) = site.join(study, [(7.2513468, "open")])
        ids = [person.get("/api/answer").headers["X-Request-Id"] for _ in range(3)]
    assert all(re.fullmatch("[0-9a-f]{16}", one) for one in ids)
    assert len({one[:8] for one in ids}) == 3
    told = facts(lines)
    assert {line["event"] for line in told} >= {"request", "started", "stopped"}
    assert all(set(line) <= {"time", "level", "event", "id", "method", "route", "status", "ms"} for line in told)
    assert "7.2513468" not in "".join(lines)


def test_the_status_page_is_for_curators_alone_and_shows_no_answer(tmp_path):
    with served(settings_for(tmp_path)) as site:
        study = site.study()
        site.join(study, [(3.25, "open"), (4.5, "strict")])
        assert site.client().get("/api/status").status_code == 401
        assert site.client().get("/curator/status", follow_redirects=False).status_code == 303
        told = site.curator.get("/api/status").json()
        assert (told["people"], told["answers_kept"], told["waves_published"]) == (2, 2, 0)
        assert told["ledger_head"] == site.app.state.publisher.ledger.head
        assert all(told["working"].values())
        assert told["last_backup"] is None
        page = site.curator.get("/curator/status")
        assert page.status_code == 200
        assert told["ledger_head"] in page.text
        assert "3.25" not in page.text
        assert "Freier Speicher" in site.curator.get("/curator/status", headers={"Accept-Language": "de"}).text
        assert 'href="/curator/status"' in site.curator.get("/curator").text
        assert site.publish(study).status_code == 200
        assert site.curator.get("/api/status").json()["waves_published"] == 1


# ---------------------------------------------------------------------------------------------------------
# A path under which the server lives


def test_under_a_path_cookies_links_and_redirects_carry_it(tmp_path):
    settings = settings_for(tmp_path, origin="https://example.org/survey", hosts=("127.0.0.1",))
    with served(settings) as site:
        for prefix in ("", "/survey"):  # whether the proxy takes it away or not
            assert site.client().get(f"{prefix}/health").status_code == 200
        assert site.client().get("/surveyor").status_code == 404
        away = site.client().get("/survey/curator", follow_redirects=False)
        assert (away.status_code, away.headers["location"]) == (303, "/survey/sign-in")
        signed = site.client().post("/survey/api/session/curator", json={"key": site.key})
        cookie = signed.headers["set-cookie"]
        assert "Path=/survey;" in cookie
        assert cookie.startswith("__Secure-hetdp_curator=")
        study = site.study()
        links = site.curator.post(f"/api/studies/{study}/invitations", json={"count": 1}).json()["links"]
        assert links[0].startswith("https://example.org/survey/join#")


def test_the_sample_study_and_the_command_still_start(tmp_path):
    """`hetdp serve` in a process of its own: nobody looks on, so the first key is in a file and not in a journal."""
    command = [sys.executable, "-m", "hetdp", "serve", "--port", "0", "--database", f"sqlite:///{tmp_path}/s.db"]
    environment = {**os.environ, "PYTHONPATH": str(Path(run.__file__).parents[2])}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        first, second = process.stdout.readline(), process.stdout.readline()
        address = re.search(r"http://\S+?(?=,)", second)[0]
        path = tmp_path / "s.db.curator"
        assert first == f"curator key: in {path}, for its owner alone; sign in with it, then delete the file\n"
        assert path.stat().st_mode & 0o777 == 0o600
        key = path.read_text().strip()
        curator = {"Authorization": f"Bearer {key}"}
        assert httpx.get(f"{address}/api/studies", headers=curator, verify=False).json() == []  # noqa: S501  plain HTTP
        assert httpx.get(f"{address}/health", verify=False).json()["status"] == "ok"  # noqa: S501  plain HTTP
        process.terminate()
        _, log = process.communicate(timeout=60)
    assert "WARNING: the key" in log
    assert key not in first + second + log
    assert json.loads(log.splitlines()[-1])["event"] == "stopped"
    shutil.rmtree(tmp_path)
