"""Mistakes of an administrator: each is refused or named by its cause, before anything is made or changed."""

from __future__ import annotations

import os
import shutil
import sqlite3
import sys
import time
from pathlib import Path

import pytest
from test_operating_upgrade import unpacked

import postgres
from hetdp.errors import InputError
from hetdp.server import Settings, backup, check, restore, rotate, run, tables
from serving import facts, logged, served, settings_for


def found(settings):
    """What a check finds that is not ok."""
    return [(one.part, one.level, one.sentence) for one in check.check(settings) if one.level != "ok"]


def said(settings, part):
    return " ".join(sentence for name, _, sentence in found(settings) if name == part)


def files(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def apart(tmp_path, **changes):
    """Settings whose database and key are in folders of their own."""
    for name in ("data", "keys"):
        (tmp_path / name).mkdir(exist_ok=True)
    return settings_for(tmp_path / "data", **{"key_file": tmp_path / "keys" / "k", "port": 0, **changes})


# ---------------------------------------------------------------------------------------------------------
# Settings


OUTSIDE = {
    "notice_days": (0, 4000),
    "port": (-1, 70_000),
    "per_address": (0, -1),
    "body_limit": (0, 1),
    "tick": (-1, 99),
}


@pytest.mark.parametrize("name", OUTSIDE)
def test_a_number_outside_its_range_is_refused_wherever_it_is_said(name, tmp_path):
    for number in OUTSIDE[name]:
        (tmp_path / "s.toml").write_text(f"{name} = {number}\n")
        for sources in (
            ({}, {}, tmp_path / "s.toml"),
            ({}, {f"HETDP_{name.upper()}": str(number)}),
            ({name: number}, {}),
        ):
            with pytest.raises(InputError, match=f"{name} must be from"):
                Settings.said(*sources)


@pytest.mark.parametrize(
    ("database", "words"),
    [
        ("mysql://u:secret@h/x", "must be sqlite:"),
        ("/var/lib/hetdp/survey.db", "must be sqlite:"),
        ("sqlite://", "must be sqlite:"),
        ("postgresql://u:secret@h:port/x", "must be sqlite:"),
        ("postgresql://u:secret@word@h/x", "write %40 for @"),
    ],
)
def test_an_address_that_no_server_can_use_is_refused_with_the_right_form_and_without_the_password(database, words):
    with pytest.raises(InputError, match=words) as wrong:
        Settings(database=database)
    assert "secret" not in str(wrong.value)


def test_an_unknown_setting_names_the_nearest_one_and_never_offers_the_key():
    with pytest.raises(InputError, match="did you mean notice_days") as wrong:
        Settings.said({}, {"HETDP_NOTICEDAYS": "3"})
    assert " key," not in str(wrong.value)


def test_a_file_of_the_databases_url_that_cannot_be_used_is_named_with_the_reason(tmp_path):
    (tmp_path / "none").write_text(" \n")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    for name, words in {
        "gone": "cannot be read: No such file or directory",
        "none": "holds no URL",
        "bytes": "cannot be read: it is no text",
    }.items():
        (tmp_path / "s.toml").write_text(f'database_file = "{tmp_path / name}"\n')
        for sources in (({}, {}, tmp_path / "s.toml"), ({}, {"HETDP_DATABASE_FILE": str(tmp_path / name)})):
            with pytest.raises(InputError, match=f"the file {tmp_path / name}.* {words}"):
                Settings.said(*sources)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_of_the_databases_url_that_this_user_may_not_read_is_named(tmp_path):
    (tmp_path / "url").touch(mode=0)
    with pytest.raises(InputError, match=f"{tmp_path / 'url'}.* Permission denied"):
        Settings.said({}, {"HETDP_DATABASE_FILE": str(tmp_path / "url")})


def test_a_database_and_a_file_that_names_another_are_refused_where_both_stand_at_one_place(tmp_path):
    (tmp_path / "s.toml").write_text('database = "sqlite:///x.db"\ndatabase_file = "/url"\n')
    with pytest.raises(InputError, match=r"both given in .*s\.toml; keep one"):
        Settings.said({"database": "sqlite:///y.db"}, {}, tmp_path / "s.toml")
    with pytest.raises(InputError, match="both given as variables; keep one"):
        Settings.said({}, {"HETDP_DATABASE": "sqlite:///x.db", "HETDP_DATABASE_FILE": "/url"})


def test_a_check_warns_if_others_can_read_the_file_of_the_databases_url(tmp_path):
    url = tmp_path / "url"
    url.write_text(f"sqlite:///{tmp_path}/s.db")
    for mode, words in ((0o640, f"others can read {url}"), (0o600, "")):
        url.chmod(mode)
        told = said(Settings.said({"port": 0}, {"HETDP_DATABASE_FILE": str(url)}), "database")
        assert told.startswith(words)
        assert bool(told) is bool(words)


# ---------------------------------------------------------------------------------------------------------
# The key


def test_a_start_without_its_key_beside_a_database_makes_no_new_one(tmp_path):
    settings = apart(tmp_path)
    with served(settings) as site:
        site.study()
    settings.key_file.unlink()
    before = files(tmp_path)
    with pytest.raises(InputError, match="bring the key back"):
        served(settings).__enter__()
    assert not settings.key_file.exists()
    assert {path: text for path, text in files(tmp_path).items() if not path.name.endswith(("-wal", "-shm"))} == before
    assert "bring the key back" in said(settings, "key")


def test_after_a_restore_from_before_a_rotation_the_words_name_the_key_and_they_work(tmp_path):
    settings = apart(tmp_path)
    with served(settings) as site:
        site.study()
    backup.back_up(settings, tmp_path / "b")
    rotate.rotate_key(settings)
    (old,) = settings.key_file.parent.glob("k.until-*")
    told = restore.restore(apart(tmp_path, key_file=old), tmp_path / "b")
    assert f"cp -p {old} {settings.key_file}" in str(told)
    with pytest.raises(InputError, match=f"the right one is {old}") as wrong:
        served(settings).__enter__()
    assert "--rotate-key" not in str(wrong.value)
    assert str(old) in said(settings, "database")
    shutil.copy2(old, settings.key_file)
    with served(settings):
        pass


# ---------------------------------------------------------------------------------------------------------
# A refused upgrade, a restore


@pytest.mark.parametrize("version", ["1", "2"])
def test_an_upgrade_that_needs_the_operators_word_changes_nothing_before_it_is_given(version, tmp_path):
    unpacked(version, tmp_path / "survey")
    settings = settings_for(tmp_path / "survey", port=0)
    before = backup.versions_there(settings), {path.name for path in (tmp_path / "survey").iterdir()}
    with pytest.raises(InputError, match="an older hetdp made none: start once with --trust-database") as wrong:
        served(settings).__enter__()
    (error,) = [one for one in found(settings) if one[1] == "error"]
    assert error == ("register", "error", str(wrong.value))
    after = backup.versions_there(settings), {path.name for path in (tmp_path / "survey").iterdir()}
    assert (after[0], after[1] - {"server.db-wal", "server.db-shm"}) == before


def test_a_restore_says_how_many_people_sent_their_first_answer_since_and_counts_publications_from_1(tmp_path):
    settings = apart(tmp_path)
    with served(settings) as site:
        study = site.study(fewest=2)
        site.join(study, [(1.0, "open")] * 3)
        late = site.enter(site.invite(study, 1)[0])
        backup.back_up(settings, tmp_path / "b")
        assert late.put("/api/answer", json={"answers": {"hours": 2.0}, "tier": "open"}).status_code == 200
        assert site.publish(study).status_code == 200
    told = str(restore.restore(settings, tmp_path / "b"))
    assert "lost: what 1 person sent since who had no answer in the backup" in told
    assert f"over: publication 1 of study {study} " in told


# ---------------------------------------------------------------------------------------------------------
# Root


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can write into the folder of somebody else")
def test_root_neither_starts_nor_backs_up_in_the_folder_of_another_user(tmp_path, monkeypatch):
    settings = apart(tmp_path)
    os.chown(tmp_path / "data", 65534, 65534)
    monkeypatch.setattr(run, "create_app", lambda _: pytest.fail("it starts"))
    with pytest.raises(InputError, match="Run this as its owner"):
        run.serve(settings, "127.0.0.1", 0)
    assert files(tmp_path) == {}
    os.chown(tmp_path / "data", 0, 0)
    with served(settings):
        pass
    os.chown(tmp_path / "data", 65534, 65534)
    with pytest.raises(InputError, match="Run this as its owner"):
        backup.back_up(settings, tmp_path / "b")


def test_the_check_does_not_say_that_no_backup_was_made_if_it_cannot_know(tmp_path):
    settings = apart(tmp_path)
    with served(settings):
        pass
    backup.last_backup(settings).mkdir()  # which root cannot read as a file either
    assert "cannot be read by this user" in said(settings, "backup")


def test_a_backup_into_a_missing_folder_says_which_is_missing(tmp_path):
    settings = apart(tmp_path)
    with served(settings):
        pass
    with pytest.raises(InputError, match=f"cannot be made in {tmp_path}/none: No such file or directory"):
        backup.back_up(settings, tmp_path / "none" / "b")
    with pytest.raises(InputError, match="name one that does not exist yet"):
        backup.back_up(settings, tmp_path)


# ---------------------------------------------------------------------------------------------------------
# What --check says


def test_the_check_names_a_file_that_is_no_database_or_one_of_something_else_once(tmp_path):
    settings = apart(tmp_path)
    settings.sqlite_file.write_text("a letter to nobody " * 500)
    assert [one for one in found(settings) if one[1] == "error"] == [
        ("database", "error", f"{settings.sqlite_file} is no SQLite database, or it is damaged")
    ]
    with pytest.raises(InputError, match="is no SQLite database"):
        served(settings).__enter__()
    settings.sqlite_file.unlink()
    with sqlite3.connect(settings.sqlite_file) as other:
        other.execute("CREATE TABLE letters (text)")
    assert "a database of something else" in said(settings, "database")


def test_the_check_names_the_folder_that_is_missing(tmp_path):
    settings = apart(tmp_path, head_file=tmp_path / "none" / "head")
    assert f"{tmp_path}/none" in said(settings, "disk")


def test_the_check_warns_of_plain_http_on_all_addresses_and_of_a_proxy_without_an_address(tmp_path):
    everywhere = apart(tmp_path, host="0.0.0.0", origin="https://x.org", proxies=("10.0.0.1",))  # noqa: S104  the point
    assert "without TLS" in said(everywhere, "network")
    assert "give --origin" in said(apart(tmp_path, proxies=("127.0.0.1",)), "network")


def test_the_check_notices_an_older_database_that_was_copied_into_place(tmp_path):
    settings = apart(tmp_path)
    with served(settings) as site:
        study = site.study()
        (token,) = site.invite(study, 1)
    shutil.copy(settings.sqlite_file, tmp_path / "older")
    with served(settings) as site:
        site.enter(token).put("/api/answer", json={"answers": {"hours": 2.0}, "tier": "open"})
        assert said(settings, "register") == ""
    for end in ("-wal", "-shm"):
        (tmp_path / "data" / f"server.db{end}").unlink(missing_ok=True)
    shutil.copy(tmp_path / "older", settings.sqlite_file)
    assert "not as this server wrote them: 1;" in said(settings, "register")


# ---------------------------------------------------------------------------------------------------------
# PostgreSQL


def test_without_psycopg_the_words_say_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    settings = settings_for(tmp_path, "postgresql://u@h/x", head_file=tmp_path / "head", port=0)
    assert [one[::2] for one in found(settings) if one[1] == "error"] == [
        ("database", "PostgreSQL needs psycopg; install it with: pip install 'hetdp[server,postgres]'")
    ]
    with pytest.raises(InputError, match="needs psycopg"):
        served(settings).__enter__()


@pytest.mark.slow
@pytest.mark.engine
def test_each_mistake_in_the_address_of_postgresql_has_its_own_words_said_once_and_no_password(tmp_path, hetdp_command):
    with postgres.server(fsync="on") as running:
        running.run("create role member login password 'right'")
        (rules,) = running.folder.rglob("pg_hba.conf")
        rules.write_text("local all member scram-sha-256\nlocal all all trust\n")
        running.run("select pg_reload_conf()")
        time.sleep(0.5)  # until it has read them
        here = f"?host={running.folder}"
        wrong = {
            "postgresql://hetdp:secret@127.0.0.1:1/x": "PostgreSQL does not answer at 127.0.0.1:1",
            "postgresql://hetdp:secret@no.such.host.invalid/x": "no.such.host.invalid, is not known",
            f"postgresql://hetdp:secret@/none{here}": "has no database of this name",
            f"postgresql://member:secret@/postgres{here}": "refuses this user or password",
            f"postgresql://nobody2:secret@/postgres{here}": "refuses this user or password",
        }
        for url, words in wrong.items():
            settings = settings_for(tmp_path, url, head_file=tmp_path / "head", port=0)
            (error,) = [one for one in found(settings) if one[1] == "error"]
            assert (error[0], words in error[2]) == ("database", True), error
            named = ["--database", url, "--head-file", tmp_path / "head", "--key-file", tmp_path / "k", "--port", "0"]
            code, out, err = hetdp_command("serve", *named)
            assert (code, words in err) == (2, True), err
            assert "secret" not in out + err + str(error)
        assert not (tmp_path / "k").exists()
        good = settings_for(tmp_path, running.url(), head_file=tmp_path / "head", port=0)
        with served(good):
            pass
        assert "wal_recycle = on" in said(good, "database")


# ---------------------------------------------------------------------------------------------------------
# A proxy


def test_a_proxy_that_is_not_trusted_and_a_name_that_is_not_known_leave_a_line_in_the_log(tmp_path, monkeypatch):
    with logged() as lines, served(settings_for(tmp_path)) as site:  # which trusts this machine
        site.client(X_Forwarded_For="10.1.2.3").get("/health")
    assert {line["event"] for line in facts(lines)} == {"started", "request", "stopped"}
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "10.9.9.9")
    with logged() as lines, served(settings_for(tmp_path)) as site:
        for _ in range(2):
            site.client(X_Forwarded_For="10.1.2.3").get("/health")
        assert site.client(Host="other.example.org").get("/health").status_code == 403
        foreign = site.client(Origin="https://other.example.org").post("/api/session/curator", json={"key": "x"})
        assert foreign.status_code == 403
    told = facts(lines)
    assert [line["event"] for line in told].count("a proxy is not trusted") == 1
    assert [line["reason"] for line in told if "reason" in line] == ["host", "origin"]
    assert "10.1.2.3" not in "".join(lines)
    assert "other.example.org" not in "".join(lines)


def test_the_ledger_that_is_gone_names_the_way_back(tmp_path):
    settings = apart(tmp_path)
    with served(settings):
        pass
    Path(settings.ledger).unlink()
    with pytest.raises(InputError, match="--restore FOLDER"):
        served(settings).__enter__()
    assert "--restore FOLDER" in said(settings, "ledger")


def test_where_the_database_alone_is_gone_a_check_says_that_the_ledger_is_there(tmp_path):
    settings = apart(tmp_path)
    with served(settings):
        pass
    settings.sqlite_file.unlink()
    (ledger,) = [one for one in check.check(settings) if one.part == "ledger"]
    assert (ledger.level, ledger.sentence) == ("ok", f"{settings.ledger} is there")
    assert "is missing or empty" in said(settings, "database")
    assert "no setting says" not in said(settings, "database")


def test_without_a_setting_for_the_database_a_missing_one_asks_for_the_setting_first(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "head").write_text("1:00")
    settings = Settings(key_file=tmp_path / "k", head_file=tmp_path / "head", port=0)
    told = said(settings, "database")
    assert told.index("is `database` or `database_file` missing?") < told.index("--restore FOLDER")


def test_a_folder_in_the_place_of_the_database_keeps_its_rights(tmp_path):
    """And it is refused in words, also by a check."""
    folder = tmp_path / "data"
    folder.mkdir(mode=0o755)
    settings = settings_for(tmp_path, f"sqlite:///{folder}")
    with pytest.raises(InputError, match="is not a file"):
        tables.connect(settings.database)
    list(check.check(settings))
    assert folder.stat().st_mode & 0o777 == 0o755


def test_a_link_to_a_database_that_is_not_there_yet_makes_it_where_the_link_leads(tmp_path):
    (tmp_path / "link.db").symlink_to(tmp_path / "real.db")
    tables.make(tmp_path / "link.db")
    assert (tmp_path / "real.db").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("wrong", ["pa@ss/word", "pa@ss?word", "pa@ssword"])
def test_a_password_with_an_at_is_refused_and_no_part_of_it_is_said(wrong):
    with pytest.raises(InputError, match="an @ too many") as said:
        Settings.said({"database": f"postgresql://user:{wrong}@host/db"}, {})
    assert "ss" not in str(said.value).replace("password", "")


@pytest.mark.parametrize(
    "origin",
    [
        "https://survey.example.org:99999/survey",
        "https://survey.example.org:0",
        "https://user:secret@survey.example.org",
        "https://survey example.org",
        "https://",
    ],
)
def test_an_origin_that_no_browser_could_send_is_refused(origin):
    with pytest.raises(InputError, match="the origin is an address like"):
        Settings(origin=origin)
    assert Settings(origin="https://[::1]:8443/survey").root == "/survey"


def test_the_check_calls_nothing_all_right_where_something_is_lost(tmp_path):
    settings = settings_for(tmp_path)
    with served(settings):
        pass
    for path in (settings.sqlite_file, Path(settings.ledger), settings.register_file):
        for end in ("", "-wal", "-shm"):
            Path(f"{path}{end}").unlink(missing_ok=True)
    levels = {one.part: one.level for one in check.check(settings)}
    assert {levels[part] for part in ("database", "ledger", "register")} == {"error"}
