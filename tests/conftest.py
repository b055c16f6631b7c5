"""Fixtures that several test files share: the command line in this process, a real PostgreSQL and a real Spark."""

from __future__ import annotations

import sys

import pytest

from hetdp import _cli
from ledgers import durable_server, ledger, where  # noqa: F401  pytest finds fixtures here
from postgres import libpq_url, postgres_server, postgres_url  # noqa: F401  and here
from sparks import spark  # noqa: F401  and here


@pytest.fixture
def hetdp_command(monkeypatch, capsys):
    """Run a command; give back its exit code and what it printed to both streams."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["hetdp", *map(str, arguments)])
        with pytest.raises(SystemExit) as stopped:
            _cli.main()
        out, err = capsys.readouterr()
        return stopped.value.code, out, err

    return run
