"""The command `hetdp serve`: parse, start one process, print what the operator needs once."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

from typer import Exit, Option

from hetdp.errors import InputError

from .options import ExpectHead, File, Json, Text, Texts
from .output import show

_ACTS = ("--check", "--new-key", "--backup", "--restore", "--rotate-key", "--demo")


def serve(
    *,
    settings_file: Annotated[File, Option("--settings", help="A TOML file of settings.", metavar="FILE")] = None,
    database: Annotated[Text, Option(help="SQLite or PostgreSQL, as a URL.", metavar="URL")] = None,
    host: Annotated[Text, Option(help="The address to listen on (127.0.0.1).", metavar="ADDRESS")] = None,
    port: Annotated[int | None, Option(help="The port to listen on (8000).", metavar="PORT")] = None,
    allow_host: Annotated[Texts, Option(help="A further name of this server; repeat.", metavar="NAME")] = None,
    origin: Annotated[Text, Option(help="The public address, as https://survey.example.org.", metavar="URL")] = None,
    key_file: Annotated[File, Option(help="The key that seals answers; or set HETDP_KEY.", metavar="FILE")] = None,
    head_file: Annotated[File, Option(help="Where the ledger's head is kept outside.", metavar="FILE")] = None,
    expect_head: ExpectHead = None,
    trust_database: Annotated[
        bool,
        Option(
            "--trust-database",
            help="Believe the database once: nobody changed it since it was copied; with --restore also: nobody "
            "answered, changed or withdrew since the backup.",
        ),
    ] = False,
    trust_clock: Annotated[bool, Option("--trust-clock", help="Start although the clock was set back.")] = False,
    notice_days: Annotated[
        int | None, Option(help="Days to withdraw once a curator closes early (7).", metavar="DAYS")
    ] = None,
    proxy: Annotated[bool, Option("--proxy", help="A proxy on this machine says which address a client has.")] = False,
    trusted_proxy: Annotated[
        Texts, Option(help="The address or network of such a proxy elsewhere; repeat.", metavar="ADDRESS")
    ] = None,
    check: Annotated[bool, Option("--check", help="Say what is wrong and exit; nothing is started or made.")] = False,
    as_json: Json = False,
    new_key: Annotated[bool, Option("--new-key", help="Print a new curator key and exit.")] = False,
    backup: Annotated[
        File, Option(help="Copy database, ledger and register into a new folder and exit.", metavar="FOLDER")
    ] = None,
    restore: Annotated[File, Option(help="Go back to a backup, say what is lost, and exit.", metavar="FOLDER")] = None,
    rotate_key: Annotated[bool, Option("--rotate-key", help="Seal all answers with a new key and exit.")] = False,
    demo: Annotated[bool, Option("--demo", help="Start with a sample study in a temporary folder.")] = False,
) -> None:
    """Run the survey server: people answer questions and choose their privacy, curators publish the results."""
    _needs_linux()
    try:
        from hetdp.server import backup as backups
        from hetdp.server import check as checks
        from hetdp.server import restore as restores
        from hetdp.server import rotate, run, tables
        from hetdp.server.settings import Settings
    except ImportError as error:
        raise InputError(f"serving needs {error.name}; install it with: pip install 'hetdp[server]'") from None
    acts = (check, new_key, backup, restore, rotate_key, demo)
    if sum(map(bool, acts)) > 1:
        raise InputError(f"do one thing at a time: {', '.join(_ACTS)}")
    if demo and database is not None:
        raise InputError("--demo has a database of its own in a temporary folder; leave --database out")
    said_file = settings_file or (Path(os.environ["HETDP_SETTINGS"]) if os.environ.get("HETDP_SETTINGS") else None)
    proxies = (*(trusted_proxy or ()), *(("127.0.0.1",) if proxy else ()))
    options = {
        "database": database,
        "host": host,
        "port": port,
        "hosts": tuple(allow_host) if allow_host else None,
        "origin": origin,
        "key_file": key_file,
        "head_file": head_file,
        "expect_head": expect_head,
        "trust_database": trust_database or None,
        "trust_clock": trust_clock or None,
        "notice_days": notice_days,
        "proxies": proxies or None,
    }
    settings = Settings.said(options, os.environ, said_file)
    if check:
        found = checks.check(settings)
        show([one._asdict() for one in found] if as_json else "\n".join(map(str, found)))
        raise Exit(2 if any(one.level == "error" for one in found) else 0)
    with tables.in_words(settings.database):
        if new_key:
            print(run.replaced_key(settings))
        elif backup is not None:
            head = backups.back_up(settings, backup)["head"]
            print(f"written to {backup}, with the ledger's head {head}; keep the key apart from it", file=sys.stderr)
        elif restore is not None:
            print(restores.restore(settings, restore, trusted=trust_database))
        elif rotate_key:
            print(rotate.rotate_key(settings))
        elif demo:
            run.serve_demo(settings.host, settings.port)
        else:
            run.serve(settings, settings.host, settings.port)


def _needs_linux() -> None:
    """Raise on a system that lacks what the server is built on; importing it there would fail in other words."""
    if find_spec("fcntl") is None or not hasattr(os, "memfd_create"):
        raise InputError("the server needs Linux: this system lacks its file locks or its files in memory")
