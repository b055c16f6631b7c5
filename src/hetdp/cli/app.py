"""The application that the commands join."""

from __future__ import annotations

from typing import Annotated

import typer

app = typer.Typer(
    help="Differentially private means when every person chooses their own privacy level ε.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,  # a pretty traceback shows local variables: they may be private
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(invoke_without_command=True)
def root(
    *, version: Annotated[bool, typer.Option("--version", help="Show the version and exit.", is_eager=True)] = False
) -> None:
    """Differentially private means when every person chooses their own privacy level ε."""
    if version:
        from hetdp import __version__

        print(f"hetdp {__version__}")
        raise typer.Exit
