"""Any bytes as a tally file, and as the body of one whose checksum fits, which gets past the first door."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import hetdp
from hetdp.questions import of_tally

from .oracle import FOLDER, said, sound, written


def load_tally(data: bytes) -> None:
    """Load bytes as a tally and as its body; what loads is sound, can be released, and is saved and loaded alike."""
    for file in (data, _with_checksum(data.decode("utf-8", "replace"))):
        _load(written("people.tally", file))


def _with_checksum(body: str) -> bytes:
    return json.dumps({"warning": "", "sha256": hashlib.sha256(body.encode()).hexdigest(), "body": body}).encode()


def _load(path: Path) -> None:
    tally = said(lambda: hetdp.Tally.load(path))
    if not isinstance(tally, hetdp.Tally):
        return
    sound(tally)
    again = FOLDER / "again.tally"
    said(lambda: tally.save(again))
    loaded = hetdp.Tally.load(again)
    assert loaded == tally
    assert (loaded.notes, loaded.levels.names) == (tally.notes, tally.levels.names)
    said(lambda: of_tally(tally, "adpm", None).report())
