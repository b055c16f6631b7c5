"""The targets: what each does, where its corpus is, and its budget."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from . import cells, commands, files, ledgers, mutators, tallies

CORPUS = Path(__file__).parent / "corpus"


@dataclass(frozen=True)
class Target:
    """A function that raises when bytes break what it promises.

    Attributes
    ----------
    folders
        The folders of its corpus.
    runs, longest
        The budget of a test: inputs, and bytes of one.
    mutator
        Makes what changes inputs, where changing bytes would not do.
    """

    check: Callable[[bytes], None]
    folders: tuple[str, ...]
    runs: int
    longest: int
    mutator: Callable[[], mutators.Mutator] | None = None

    def seeds(self) -> list[Path]:
        """Return the files of its corpus."""
        return seeds(*self.folders)


def seeds(*folders: str) -> list[Path]:
    """Return the files in some folders of the corpus, in order of name."""
    return sorted(path for folder in folders for path in (CORPUS / folder).iterdir())


TARGETS = {
    "text": Target(files.read_file, ("csv", "ndjson", "gz"), 1200, 400),
    "columnar": Target(files.read_file, ("parquet", "ipc"), 500, 4000),
    "cell": Target(cells.private_cell, ("cell",), 800, 80),
    "tally": Target(tallies.load_tally, ("tally",), 1500, 600, lambda: mutators.tokens(seeds("tally"))),
    "ledger": Target(ledgers.open_ledger, ("ledger",), 300, 200),
    "cli": Target(commands.run_command, ("cli",), 200, 300, lambda: mutators.lines(*commands.words(), seeds("cli"))),
}
