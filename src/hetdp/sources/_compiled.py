"""Delimited text by the compiled pass of `_scan`; lines that it does not answer for go the careful way."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ._batch import Batch
from ._scan import ASK, BLANK, gather, scan

if TYPE_CHECKING:
    import polars as pl

    from .delimited import Careful

_MOST_KNOWN = 64


class Compiled:
    """Reads blocks of lines as `Careful` does, which it asks where the compiled pass is not sure.

    It learns what a plain ε cell that is no plain number means (a tier, `inf`), and need not ask again. Such cells
    are public, and knowing one changes the speed alone.
    """

    def __init__(self, careful: Careful) -> None:
        self._careful = careful
        layout, self._columns = careful.layout, careful.columns
        self._signs = ord(layout.delimiter), ord(self._columns.form.decimal), bool(self._columns.tiers)
        self._roles = np.zeros(layout.width, np.int64)
        self._texts = list(self._columns.asked.texts)
        for name, place in zip(self._columns.asked.columns, layout.places, strict=True):
            self._roles[place] += (place == layout.value) + 2 * (place == layout.epsilon)
            self._roles[place] += 4 * (self._texts.index(name) + 1) if name in self._texts else 0
        self._known: dict[bytes, float] = {}
        self._table = _table(self._known)

    def __call__(self, block: bytes, first: int, n: int) -> Batch | None:
        """Return the people of a block of n lines, of which the first has this number, if there are any."""
        data = np.frombuffer(block, np.uint8)
        values, levels, how = np.empty(n), np.empty(n), np.empty(n, np.uint8)
        spans = np.zeros((n, 2 * len(self._texts)), np.int64)
        scan(data, self._signs, self._roles, *self._table, values, levels, spans, how)
        if not isinstance(self._columns.asked.epsilon, str):
            levels.fill(self._columns.asked.epsilon)
        texts = {name: _texts(data, spans, 2 * i) for i, name in enumerate(self._texts)}
        asked = np.flatnonzero(how == ASK)
        if asked.size:
            index, mended = self._ask(block, data, asked, first)
            levels[index] = mended.epsilon
            if mended.values is not None:
                values[index] = mended.values
            texts = {name: cells.scatter(index, mended.texts[name]) for name, cells in texts.items()}
        return self._batch(values, levels, texts, how != BLANK)

    def _batch(
        self,
        values: NDArray[np.float64],
        levels: NDArray[np.float64],
        texts: dict[str, pl.Series],
        people: NDArray[np.bool_],
    ) -> Batch | None:
        if not people.all():
            values, levels = values[people], levels[people]
            texts = {name: cells.filter(people) for name, cells in texts.items()}
        if not levels.size:
            return None
        return Batch(None if self._columns.asked.value is None else values, levels, "line", texts=texts)

    def _ask(
        self, block: bytes, data: NDArray[np.uint8], asked: NDArray[np.int64], first: int
    ) -> tuple[NDArray[np.int64], Batch]:
        """Return some lines of a block read the careful way, and which lines they are."""
        ends = np.flatnonzero(data == 10)
        starts = np.concatenate([[0], ends[:-1] + 1])
        lines = b"\n".join(block[a:b] for a, b in zip(starts[asked].tolist(), ends[asked].tolist(), strict=True))
        people = self._careful.people(lines + b"\n", first + asked)
        batch = self._careful.batch(people)
        if isinstance(self._columns.asked.epsilon, str) and len(self._known) < _MOST_KNOWN:
            cells = people[f"cell {self._columns.asked.columns.index(self._columns.asked.epsilon)}"]
            self._learn(cells.filter(~people["odd"]), batch.epsilon[~people["odd"].to_numpy()])
        return people["line"].to_numpy().astype(np.int64) - first, batch

    def _learn(self, cells: pl.Series, levels: NDArray[np.float64]) -> None:
        for i in cells.arg_unique()[:_MOST_KNOWN]:
            self._known[cells[i].strip(" \t").encode()] = float(levels[i])
        self._table = _table(self._known)


def _table(known: dict[bytes, float]) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.float64]]:
    edges = np.cumsum([0, *map(len, known)], dtype=np.int64)
    return np.frombuffer(b"".join(known) + bytes(8), np.uint8), edges, np.array([*known.values()], dtype=np.float64)


def _texts(data: NDArray[np.uint8], spans: NDArray[np.int64], column: int) -> pl.Series:
    """Return the cells of a text column; bytes that are not UTF-8 become replacement characters."""
    import polars as pl

    out = np.empty(int((spans[:, column + 1] - spans[:, column]).sum()) + len(spans), np.uint8)
    block = out[: gather(data, spans, column, out)].tobytes()
    if not block.isascii():
        block = block.decode("utf-8", "replace").encode()
    return pl.read_lines(b"\n" + block, name="text").slice(1).to_series()
