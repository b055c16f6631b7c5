"""The command line: parse, call one verb, print. No arithmetic here.

Exit codes: 0 done, 2 bad input (one line on stderr), 1 the doctor found a fault or something unforeseen happened,
130 interrupted.
"""

from __future__ import annotations

import io
import signal
import sys
import threading
import traceback
from pathlib import Path
from typing import Any

import typer

from hetdp.errors import HetdpError

from . import data, ledger, public, serve
from .app import app

INTERRUPTED = 130
# What the parser raises: typer's own class, or that of click, which older versions of typer use.
WrongUse: Any = getattr(typer, "TyperException", typer.BadParameter.__mro__[2])

__all__ = ["app", "data", "ledger", "main", "public", "serve"]


def main() -> None:
    """Run the command line; every foreseen error is one line on stderr and exit code 2."""
    _prepare()
    if len(sys.argv) == 1:
        sys.argv.append("--help")
    try:
        code = app(standalone_mode=False)
        if code == INTERRUPTED:
            raise KeyboardInterrupt  # noqa: TRY301  the library that parses made a code of it
    except HetdpError as error:
        _fail(str(error), 2)
    except WrongUse as error:
        wanted = getattr(getattr(error, "param", None), "help", None)  # what the option means, if it is about one
        meaning = f" ({wanted.rstrip('.')})" if wanted else ""
        _fail(f"{error.format_message().rstrip('.')}{meaning}; see --help", 2)
    except (typer.Abort, KeyboardInterrupt):
        _fail("interrupted; nothing was written", INTERRUPTED)
    except BrokenPipeError:
        sys.exit(1)
    except OSError as error:
        _fail(f"something cannot be read or written: {error.strerror or type(error).__name__}", 1)
    except Exception as error:  # noqa: BLE001  the last line of defence: a foreign message may quote a private cell
        at = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(at.filename).name}:{at.lineno}"
        _fail(f"internal error {type(error).__name__} at {where}; please report it (the message is withheld)", 1)
    sys.exit(code if isinstance(code, int) else 0)


def _prepare() -> None:
    for stream in (sys.stdout, sys.stderr):  # a terminal that cannot show ε must not lose a release
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _interrupt)


def _interrupt(*_: object) -> None:
    """End on SIGTERM as on Ctrl-C, so that a ledger can say what it charged."""
    raise KeyboardInterrupt


def _fail(message: str, code: int) -> None:
    print(f"hetdp: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(code)
