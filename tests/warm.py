"""A process that has loaded other people's packages once and runs tests in copies of itself, against any copy of hetdp.

    python tests/warm.py   with a line of JSON for each run: folder of the package, tests, file for what they say

The answer to a line is pytest's exit code. What is imported here starts no threads that a copy would need; hetdp and
Polars are left to the copies.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from pathlib import Path

OTHERS = (
    "hypothesis", "numpy", "opendp.prelude", "pandas", "psycopg", "pyarrow", "pytest", "scipy.optimize", "scipy.stats",
    "sqlalchemy", "typer.testing", "fastapi", "httpx", "jinja2", "cryptography.fernet",
)  # fmt: skip
QUICK = ("-x", "-q", "--no-header", "-o", "addopts=", "-p", "no:cacheprovider", "--assert=plain")  # a diff takes long


def run(source: str, nodes: list[str], said: str) -> int:
    """Run the tests in this process, which has no hetdp yet."""
    with Path(said).open("wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    os.environ["PYTHONPATH"] = source
    sys.path.insert(0, source)
    import pytest

    return int(pytest.main([*QUICK, *nodes]))


def main() -> None:
    for name in OTHERS:
        importlib.import_module(name)
    if "hetdp" in sys.modules:
        raise SystemExit("hetdp must not be loaded before there is a copy of it")
    for line in iter(sys.stdin.readline, ""):
        copy = os.fork()
        if copy == 0:
            raise SystemExit(run(*json.loads(line)))
        _, status = os.waitpid(copy, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main()
