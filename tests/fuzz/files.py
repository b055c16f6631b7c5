"""Any bytes as a file: every way of asking gives a sound tally or one line, and the ways agree with each other."""

from __future__ import annotations

import zlib
from functools import reduce
from pathlib import Path
from typing import Any

import hetdp
from hetdp.core.domain import Interval
from hetdp.sources import Source, counted, read_groups
from hetdp.statistics.mean import Mean

from .oracle import said, sound, written

UNIT = Interval.of((0, 1))


def read_file(data: bytes) -> None:
    """Read bytes as a file in two ways, the second chosen by their checksum so that a run is repeated exactly."""
    path = written("people", data)
    plain = said(lambda: hetdp.read(path, value="x", missing="midpoint", epsilon="e", bounds=(0, 1)))
    if isinstance(plain, hetdp.Tally):
        sound(plain)
    (_averaged, _grouped, _counted, _looked_at)[zlib.crc32(data) % 4](path, plain)


def _averaged(path: Path, plain: Any) -> None:
    people = said(
        lambda: hetdp.read(path, value="x", missing="midpoint", epsilon="e", bounds=(0, 1), person="id", rows="average")
    )
    if isinstance(people, hetdp.Tally):
        sound(people)
        assert people.n <= plain.n
        assert people.levels.epsilon.tolist() == plain.levels.epsilon.tolist()


def _grouped(path: Path, plain: Any) -> None:
    def groups_of() -> Any:  # bytes that begin like a database are refused when the source is looked at
        return read_groups(Source.of(path, value="x", epsilon="e", by="g", promised=False), asked)

    asked = Mean(UNIT, missing="midpoint")
    groups = said(groups_of)
    if isinstance(groups, dict):
        for tally in groups.values():
            sound(tally)
        assert reduce(hetdp.Tally.__add__, groups.values()) == plain


def _counted(path: Path, plain: Any) -> None:
    levels = said(lambda: counted(Source.of(path, value="x", epsilon="e", counts_only=True, promised=False)))
    assert levels == (plain if isinstance(plain, str) else plain.levels) or "mean needs" in str(plain)


def _looked_at(path: Path, plain: Any) -> None:
    found = said(lambda: hetdp.check(path, value="x", epsilon="e", bounds=(0, 1)))
    assert isinstance(found, str) == isinstance(plain, str), f"check says {found!r}, read says {plain!r}"
    if not isinstance(found, str):
        assert found.n == plain.n
        assert "PRIVATE" in found.report()
