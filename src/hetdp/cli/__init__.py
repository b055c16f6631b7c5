"""The command line: parse, call one verb, print. No arithmetic here.

Exit codes: 0 done, 2 bad input (one line on stderr), 1 the doctor found a fault or something unforeseen happened,
130 interrupted.
"""

from __future__ import annotations

import io
import re
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from hetdp import __version__
from hetdp.errors import HetdpError, unknown_option
from hetdp.statistics import FORMS, STATISTICS
from hetdp.statistics.mean import Mean
from hetdp.statistics.moments import Spread
from hetdp.statistics.quantile import Ranks

from . import data, options, public, serve

INTERRUPTED = 130
# What the parser raises: typer's own class, or that of click, which older versions of typer use.
WrongUse: Any = getattr(typer, "TyperException", typer.BadParameter.__mro__[2])

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,  # a pretty traceback shows local variables: they may be private
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
budgets = typer.Typer(
    help="Lifetime budgets: who has spent how much of their privacy over many releases.",
    rich_markup_mode=None,
)
app.add_typer(budgets, name="ledger")


def _add(group: typer.Typer, *commands: Callable[..., None]) -> None:
    for command in commands:
        group.command(cls=options.Command)(options.shared(command))


app.command(cls=options.Command)(options.shared(data.mean, hidden=options.unused(Mean)))
for name, kind in STATISTICS.items():
    if name not in FORMS:
        app.command(name, cls=options.Command)(data.command(kind, name))
app.command("median", cls=options.Command)(data.command(Ranks, "median", q=0.5))
app.command("std", cls=options.Command)(data.command(Spread, "std"))
_add(app, data.ask, data.check, data.tally)
_add(app, public.plan, public.compare, public.explain, public.audit, public.doctor, public.methods, public.reproduce)
_add(app, serve.serve)
_add(budgets, public.init, public.upgrade, public.enroll, public.charge)
_add(budgets, public.balance, public.history, public.verify, public.forecast)


@app.callback(invoke_without_command=True)
def root(
    *, version: Annotated[bool, typer.Option("--version", help="Show the version and exit.", is_eager=True)] = False
) -> None:
    """Differentially private statistics when every person chooses their own privacy level ε."""
    if version:
        print(f"hetdp {__version__}")
        raise typer.Exit


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
        if getattr(error, "option_name", None) == "--seed":
            _fail(str(unknown_option("hetdp", ["seed"], ())), 2)
        _fail(f"{error.format_message().rstrip('.')}{_meaning(error)}; see --help", 2)
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


def _meaning(error: Any) -> str:
    """Return what a wrong option means and, if it takes numbers, what was typed and how they are written."""
    param: Any = getattr(error, "param", None)
    said = f" ({param.help.rstrip('.')})" if getattr(param, "help", None) else ""
    if not re.search("valid number|valid float|requires 2", error.format_message()):
        return said
    option = param.opts[0] if param else error.option_name
    _, _, typed = " ".join(sys.argv).partition(f" {option} ")
    said += f"; got {' '.join(typed.split()[: param.nargs if param else 1])[:64]!r}" if typed else ""
    ends = "0 200000, a blank between two and no separators of thousands; if nobody knows bounds, say --outer LO HI"
    return f"{said}; write plain numbers, as {ends if option in ('--bounds', '--outer') else '0.95, not 95%'}"


def _prepare() -> None:
    for stream in (sys.stdout, sys.stderr):  # a terminal that cannot show ε must not lose a release
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C, so that a ledger can say what it charged


def _fail(message: str, code: int) -> None:
    message = re.sub(rf"\S*{options.STDIN}\w*/standard input", "standard input", message)  # not where its copy lies
    print(f"hetdp: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(code)
