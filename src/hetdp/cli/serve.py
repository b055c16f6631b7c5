"""The command `hetdp serve`: parse, start one process, print what the operator needs once."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from typing import Annotated

from typer import Option

from hetdp.errors import InputError

from .options import ExpectHead, File, Text, Texts

_DATABASE = "sqlite:///hetdp-server.db"


def serve(
    *,
    database: Annotated[str, Option(help="SQLite or PostgreSQL, as a URL.", metavar="URL")] = _DATABASE,
    host: Annotated[str, Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, Option(help="The port to listen on.", min=0, max=65535)] = 8000,
    allow_host: Annotated[Texts, Option(help="A further name of this server; repeat.", metavar="NAME")] = None,
    origin: Annotated[Text, Option(help="The public address, as https://survey.example.org.", metavar="URL")] = None,
    key_file: Annotated[File, Option(help="The key that seals answers; or set HETDP_KEY.", metavar="FILE")] = None,
    head_file: Annotated[File, Option(help="Where the ledger's head is kept outside.", metavar="FILE")] = None,
    expect_head: ExpectHead = None,
    trust_database: Annotated[
        bool, Option("--trust-database", help="Believe the database once, after you restored an older copy on purpose.")
    ] = False,
    notice_days: Annotated[int, Option(help="Days to withdraw once a curator closes early.", min=1, max=366)] = 7,
    proxy: Annotated[bool, Option("--proxy", help="A proxy on this machine says which address a client has.")] = False,
    new_key: Annotated[bool, Option("--new-key", help="Print a new curator key and exit.")] = False,
    backup: Annotated[File, Option(help="Copy database and ledger into a new folder and exit.")] = None,
    demo: Annotated[bool, Option("--demo", help="Start with a sample study in a temporary folder.")] = False,
) -> None:
    """Run the central server: people send a value and a privacy choice, the curator publishes a private mean."""
    if find_spec("fcntl") is None or not hasattr(os, "memfd_create"):
        raise InputError(
            "the server needs Linux: this system has no file locks or no files in memory as Linux has them"
        )
    try:
        from hetdp.server import run
        from hetdp.server.settings import LOOPBACK, Settings
    except ImportError as error:
        raise InputError(f"serving needs {error.name}; install it with: pip install 'hetdp[server]'") from None
    settings = Settings(
        database=database,
        key=os.environ.get("HETDP_KEY"),
        key_file=key_file,
        hosts=(*LOOPBACK, *(allow_host or ())),
        origin=origin,
        head_file=head_file,
        expect_head=expect_head,
        trust_database=trust_database,
        notice_days=notice_days,
    )
    if new_key:
        print(run.replaced_key(settings))
    elif backup is not None:
        run.back_up(settings, backup)
        print(f"written to {backup}; keep the key file, and the ledger's head, apart from it", file=sys.stderr)
    elif demo:
        if database != _DATABASE:
            raise InputError("--demo has a database of its own in a temporary folder; leave --database out")
        run.serve_demo(host, port)
    else:
        run.serve(settings, host, port, proxy=proxy)
