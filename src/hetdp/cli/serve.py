"""The command `hetdp serve`: parse, start one process, print what the operator needs once."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from hetdp.errors import InputError

from .app import app
from .options import ExpectHead

_DATABASE = "sqlite:///hetdp-server.db"
Database = Annotated[str, typer.Option("--database", help="SQLite or PostgreSQL, as a URL.", metavar="URL")]
HostName = Annotated[str, typer.Option("--host", help="The address to listen on.")]
Port = Annotated[int, typer.Option("--port", help="The port to listen on.", min=0, max=65535)]
AllowHost = Annotated[
    list[str] | None,
    typer.Option("--allow-host", help="A further name under which the server may be asked; repeat.", metavar="NAME"),
]
Origin = Annotated[
    str | None, typer.Option("--origin", help="The public address, as https://survey.example.org.", metavar="URL")
]
KeyFile = Annotated[
    Path | None,
    typer.Option("--key-file", help="Where the key that seals answers lies; or set HETDP_KEY.", metavar="FILE"),
]


@app.command()
def serve(  # noqa: PLR0913  one parameter an option
    *,
    database: Database = _DATABASE,
    host: HostName = "127.0.0.1",
    port: Port = 8000,
    allow_host: AllowHost = None,
    origin: Origin = None,
    key_file: KeyFile = None,
    head_file: Annotated[
        Path | None,
        typer.Option("--head-file", help="Where the ledger's head is kept outside of it.", metavar="FILE"),
    ] = None,
    expect_head: ExpectHead = None,
    trust_database: Annotated[
        bool,
        typer.Option(
            "--trust-database",
            help="Take the answers as the database has them, once, after you put an older copy back on purpose.",
        ),
    ] = False,
    proxy: Annotated[
        bool, typer.Option("--proxy", help="A proxy on this machine says which address a client has.")
    ] = False,
    new_key: Annotated[bool, typer.Option("--new-key", help="Print a new curator key and exit.")] = False,
    backup: Annotated[
        Path | None, typer.Option("--backup", help="Copy the database and the ledger into a new folder and exit.")
    ] = None,
    demo: Annotated[bool, typer.Option("--demo", help="Start with a sample study in a temporary folder.")] = False,
) -> None:
    """Run the central server: people send a value and a privacy choice, the curator publishes a private mean."""
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
