"""Means of files: CSV and Parquet, against Polars' own typed scan that sums both columns, on the same file.

The files are made once, piece by piece, and kept in build/bench/data.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from measure import FOLDER, clock, fresh, race, resident
from numpy.typing import NDArray
from table import Bar, Row

import hetdp
from hetdp.core.types import MissingLike

if TYPE_CHECKING:
    import polars as pl

DATA = FOLDER.parent / "build" / "bench" / "data"
PIECE = 10**6
NAMES = {"strict": 0.05, "standard": 0.2, "open": 1.0, "anyone": 4.0}


def _four(rng: np.random.Generator) -> NDArray[Any]:
    return rng.choice(np.array([*NAMES.values()]), PIECE, p=[0.5, 0.3, 0.15, 0.05])


def _named(rng: np.random.Generator) -> NDArray[Any]:
    return rng.choice(np.array([*NAMES]), PIECE, p=[0.5, 0.3, 0.15, 0.05])


def _thousand(rng: np.random.Generator) -> NDArray[Any]:
    return rng.integers(1, 1001, PIECE) / 100


def _distinct(rng: np.random.Generator) -> NDArray[Any]:
    return rng.uniform(0.01, 5, PIECE)


LEVELS: dict[str, Callable[[np.random.Generator], NDArray[Any]]] = {
    "four tiers": _four,
    "named tiers": _named,
    "1,000 levels": _thousand,
    "distinct ε": _distinct,
}


def mean_csv(quick: bool) -> Iterator[Row]:  # noqa: FBT001
    """Release means of CSV files."""
    n = 10**6 if quick else 10**7
    for levels in LEVELS:
        path, bar = made("csv", levels, n), None if quick else Bar("at most", 2.5)
        yield _against_sums(f"mean, CSV, {n:,} rows, {levels}", path, levels, bar)


def mean_parquet(quick: bool) -> Iterator[Row]:  # noqa: FBT001
    """Release means of Parquet files, and the memory of the whole process that does it."""
    for n in (10**6,) if quick else (10**7, 10**8):
        for levels, bar in (("four tiers", 1.5), ("distinct ε", 2.5)):
            path = made("parquet", levels, n)
            yield _against_sums(f"mean, Parquet, {n:,} rows, {levels}", path, levels, Bar("at most", bar))
            most = fresh("files", "memory", str(path))
            yield Row("its memory, everything", "", most, "MB", Bar("at most", 1000))


def missing_parquet(quick: bool) -> Iterator[Row]:  # noqa: FBT001
    """Release the mean of those who answered from a Parquet file with a fifth of its values missing."""
    n = 10**6 if quick else 10**7
    path = made("parquet", "four tiers", n, missing=True)
    choices: list[tuple[MissingLike, float | None]] = [("estimate", 1.5), ("drop", None)]
    for choice, bar in choices:
        timed = race(*(clock(functools.partial(mean, path, "", missing)) for missing in ("midpoint", choice)))
        yield Row.of(
            f"mean, missing={choice}, {n:,} rows",
            "missing=midpoint",
            timed,
            None if bar is None else Bar("at most", bar),
        )


def _against_sums(what: str, path: Path, levels: str, bar: Bar | None) -> Row:
    timed = race(clock(_sums(path, levels).collect), clock(functools.partial(mean, path, levels)))
    return Row.of(what, "Polars' sums", timed, bar)


def _sums(path: Path, levels: str) -> pl.LazyFrame:
    """Return a scan that sums both columns; names as the numbers by which Polars stores them."""
    import polars as pl

    if path.suffix == ".parquet":
        return pl.scan_parquet(path).select(pl.col("value", "eps").sum())
    named = levels == "named tiers"
    scan = pl.scan_csv(path, schema={"value": pl.Float64, "eps": pl.Enum([*NAMES]) if named else pl.Float64})
    return scan.select(pl.col("value").sum(), (pl.col("eps").to_physical() if named else pl.col("eps")).sum())


def mean(path: Path, levels: str, missing: MissingLike = "midpoint") -> Any:
    """Release the mean of a file."""
    tiers = NAMES if levels == "named tiers" else None
    return hetdp.mean(path, value="value", missing=missing, epsilon="eps", bounds=(0, 1), tiers=tiers)


def memory(path: str) -> float:
    """Return the most MB that a process which releases the mean of a file has; for a fresh interpreter."""
    mean(Path(path), "")
    return resident(peak=True)


def made(kind: str, levels: str, n: int, *, missing: bool = False) -> Path:
    """Return a file of n people, a fifth of them without a value if `missing`; made now if it is not there."""
    path = DATA / f"{levels.replace(',', '').replace(' ', '-')}-{n}{'-missing' if missing else ''}.{kind}"
    if not path.exists():
        DATA.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part")
        (_write_csv if kind == "csv" else _write_parquet)(part, _pieces(levels, n, missing=missing))
        part.rename(path)
    return path


def _pieces(levels: str, n: int, *, missing: bool) -> Iterator[pl.DataFrame]:
    import polars as pl

    rng = np.random.default_rng(0)
    for _ in range(n // PIECE):
        frame = pl.DataFrame({"value": rng.random(PIECE), "eps": LEVELS[levels](rng)})
        gone = pl.Series(rng.random(PIECE) < (0.2 if missing else 0.0))
        yield frame.with_columns(pl.when(~gone).then("value").alias("value")) if missing else frame


def _write_csv(path: Path, pieces: Iterator[pl.DataFrame]) -> None:
    with path.open("wb") as file:
        for i, frame in enumerate(pieces):
            frame.write_csv(file, include_header=i == 0)


def _write_parquet(path: Path, pieces: Iterator[pl.DataFrame]) -> None:
    """Write one row group a piece."""
    import pyarrow.parquet as pq  # type: ignore[import-untyped]

    writer: Any = None
    for frame in pieces:
        table = frame.to_arrow()
        writer = writer or pq.ParquetWriter(path, table.schema, compression="zstd")
        writer.write_table(table)
    writer.close()


CASES = (mean_csv, mean_parquet, missing_parquet)
