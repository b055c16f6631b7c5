"""Fixtures that several test files share: the command line in this process, a real PostgreSQL and a real Spark."""

from __future__ import annotations

import functools
import sys

import pytest
import typer.main
from hypothesis import HealthCheck, settings

from hetdp import cli as _cli
from ledgers import durable_server, ledger, where  # noqa: F401  pytest finds fixtures here
from postgres import libpq_url, postgres_server, postgres_url  # noqa: F401  and here
from sparks import spark  # noqa: F401  and here
from table_sources import made, made_of  # noqa: F401  and here

KINDS = {
    "test_server_browser": "browser",
    "test_server_crash": "stress",
    "test_mutants": "mutants",
    "test_fuzz": "fuzz",
    "test_server_schema": "fuzz",
    # Whole files in which nearly every test is slow; elsewhere a slow test says so itself.
    "test_float_attack": "slow",
    "test_server_tampering": "slow",
    "test_examples": "slow",
    "test_statistics": "slow",
    "test_optimal": "slow",
    "test_laws": "slow",
    "test_intervals": "slow",
    "test_simulated_family": "slow",
    "test_contract_statistics": "slow",
}
# Nothing that hypothesis tests is about time, and a busy machine is slow.
PATIENT = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("quick", max_examples=15, **PATIENT)
settings.register_profile("whole", **PATIENT)
settings.load_profile("whole")
# Typer puts all commands together anew for each call; thousands of calls in one process need it once.
typer.main.get_command = functools.cache(typer.main.get_command)
ENGINES = {"spark", "postgres_server", "durable_server"}


def pytest_collection_modifyitems(items):
    """Mark tests by what they need: `make check` leaves those out that take long, `make test` runs everything."""
    for item in items:
        kind = KINDS.get(item.path.stem)
        if kind is not None:
            item.add_marker(kind)
        needs, name = set(getattr(item, "fixturenames", ())), item.name.lower()
        if needs & ENGINES or any(engine in name for engine in ("postgres", "spark", "duckdb", "dask", "ibis")):
            item.add_marker("engine")


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
