"""The same few people in the form of every engine, so that an audit can read them as a user's data is read."""

from __future__ import annotations

import csv
import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Cells = Sequence[float | None]
Given = tuple[Any, dict[str, Any]]
_COLUMNS: dict[str, Any] = {"value": "x", "epsilon": "eps"}


@dataclass(frozen=True)
class Engine:
    """A way in: `give` puts people into its form and returns what `hetdp.read` takes, a source and its parameters."""

    name: str
    library: str
    give: Callable[[Cells, Sequence[float], Path], Given]

    @property
    def installed(self) -> bool:
        """Whether the library that it needs is here."""
        return importlib.util.find_spec(self.library) is not None


def engines() -> dict[str, Engine]:
    """Return every engine by name, installed or not.

    >>> list(engines())
    ['arrays', 'csv', 'parquet', 'polars', 'pandas', 'duckdb', 'sqlite']
    """
    every = (
        Engine("arrays", "numpy", _arrays),
        Engine("csv", "polars", _csv),
        Engine("parquet", "polars", _parquet),
        Engine("polars", "polars", _polars),
        Engine("pandas", "pandas", _pandas),
        Engine("duckdb", "duckdb", _duckdb),
        Engine("sqlite", "sqlite3", _sqlite),
    )
    return {engine.name: engine for engine in every}


def _arrays(values: Cells, epsilon: Sequence[float], _: Path) -> Given:
    return list(values), {"epsilon": list(epsilon)}


def _csv(values: Cells, epsilon: Sequence[float], folder: Path) -> Given:
    path = folder / "people.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("x", "eps"), *zip(values, epsilon, strict=True)])
    return path, _COLUMNS


def _parquet(values: Cells, epsilon: Sequence[float], folder: Path) -> Given:
    path = folder / "people.parquet"
    _polars(values, epsilon, folder)[0].write_parquet(path)
    return path, _COLUMNS


def _polars(values: Cells, epsilon: Sequence[float], _: Path) -> Given:
    import polars as pl

    people = {"x": list(values), "eps": list(epsilon)}
    return pl.DataFrame(people, schema={"x": pl.Float64, "eps": pl.Float64}), _COLUMNS


def _pandas(values: Cells, epsilon: Sequence[float], _: Path) -> Given:
    import pandas as pd  # type: ignore[import-untyped]

    return pd.DataFrame({"x": pd.array(list(values), dtype="Float64"), "eps": list(epsilon)}), _COLUMNS


def _duckdb(values: Cells, epsilon: Sequence[float], _: Path) -> Given:
    import duckdb

    database = duckdb.connect()
    database.execute("create table people (x double, eps double)")
    database.executemany("insert into people values (?, ?)", list(zip(values, epsilon, strict=True)))
    return database.table("people"), _COLUMNS


def _sqlite(values: Cells, epsilon: Sequence[float], _: Path) -> Given:
    import sqlite3

    database = sqlite3.connect(":memory:")
    database.execute("create table people (x real, eps real)")
    database.executemany("insert into people values (?, ?)", zip(values, epsilon, strict=True))
    return database, {**_COLUMNS, "query": "people"}
