"""Make the part of the corpus that is binary: ``cd tests && python -m fuzz.make_corpus``.

Everything is fixed but the ledger, whose identity, times and noise are its own; a new one is needed only when the
schema of ledgers changes, and then a test says so.
"""

from __future__ import annotations

import gzip
import tempfile
from pathlib import Path

import hetdp

from . import ledgers
from .targets import CORPUS

TABLE = b"id,x,e,g\na,0.1,0.1,u\nb,0.2,1,v\nc,2,inf,u\nd,,0,v\n"


def columnar() -> dict[str, bytes]:
    """Return small Parquet and Arrow files of numbers, texts and categories, with and without compression."""
    import io

    import polars as pl

    plain = {"id": ["a", "b", "c"], "x": [0.1, None, 2.0], "e": [0.1, 1.0, float("inf")], "g": ["u", "v", "u"]}
    numbers = pl.DataFrame(plain)
    texts = numbers.with_columns(pl.col("x").cast(pl.String), pl.Series("e", ["0.1", "1", "public"]))
    kinds = {
        "numbers": numbers,
        "texts": texts,
        "negative": numbers.with_columns(e=-pl.col("e")),
        "nobody": numbers[:0],
    }
    found = {}
    for name, frame in kinds.items():
        for folder, write in (
            ("parquet", lambda file, frame=frame: frame.write_parquet(file, compression="uncompressed")),
            ("ipc", lambda file, frame=frame: frame.write_ipc(file, compression="uncompressed")),
        ):
            write(file := io.BytesIO())
            found[f"{folder}/{name}"] = file.getvalue()
    numbers.write_ipc_stream(file := io.BytesIO())
    numbers.write_parquet(small := io.BytesIO(), compression="zstd")
    return found | {"ipc/stream": file.getvalue(), "parquet/zstd": small.getvalue()}


def compressed() -> dict[str, bytes]:
    """Return compressed tables, one of them cut short and one that holds another compressed file."""
    from backports import zstd

    one = gzip.compress(TABLE, mtime=0)
    return {
        "gz/table": one,
        "gz/cut": one[:-9],
        "gz/twice": gzip.compress(one, mtime=0),
        "gz/two-members": one + gzip.compress(b"e,1,0.5,u\n", mtime=0),
        "gz/zstd": zstd.compress(TABLE),
        "gz/zstd-cut": zstd.compress(TABLE)[:-3],
    }


def damages() -> dict[str, bytes]:
    """Return damages of the ledger: see `ledgers`."""
    where = {(table, column): i for i, (table, _, column) in enumerate(ledgers.COLUMNS)}
    at = {damage.__name__: bytes([i]) for i, damage in enumerate(ledgers.DAMAGES)}

    def cell(table: str, column: str, kind: int, what: bytes, row: int = 0) -> bytes:
        return at["cell"] + bytes([where[table, column], row, kind]) + what

    return {
        "whole": at["bytes_of_the_file"],
        "magic": at["bytes_of_the_file"] + b"\0\0X",
        "page-size": at["bytes_of_the_file"] + b"\0\x10\x02",
        "cut": at["length"] + b"\x20\0",
        "nothing": at["length"] + b"\0\0",
        "head-empty": at["head"],
        "head-letters": at["head"] + b"hetdp-ledger-head \xff",
        "version-text": cell("hetdp_ledger", "version", 2, b"one"),
        "seq-text": cell("hetdp_ledger", "seq", 2, b"four"),
        "hash-none": cell("hetdp_ledger", "hash", 3, b"\xff"),
        "kind-blob": cell("hetdp_event", "kind", 3, b"\xff"),
        "body-letters": cell("hetdp_event", "body", 2, "ε".encode(), 1),
        "body-blob": cell("hetdp_event", "body", 3, b"{}", 1),
        "at-number": cell("hetdp_event", "at", 4, b"\0" * 8),
        "spent-text": cell("hetdp_cohort", "spent", 2, b"0.1"),
        "person-blob": cell("hetdp_member", "person", 3, b"a"),
        "further-nothing": at["further"] + b"\x01",
        "further-list": at["further"] + b"\x01[]",
        "further-names": at["further"] + b'\x01{"names":[]}',
        "further-result": at["further"] + b"\x03{}",
        "further-charge": at["further"] + b'\x02{"levels":[[1,0]],"units":[1]}',
        "further-packed": at["further"] + b'\x02{"levels":"u1:AQA=","units":"u8:AQAAAAAAAAA="}',
        "further-packed-short": at["further"] + b'\x02{"levels":"u1:AQA=","units":"u2:AQ=="}',
        "further-enroll": at["further"] + b'\x01{"ids":{},"moves":[],"new":[[9,1,1,0]]}',
        "further-deep": at["further"] + b"\x01" + b"[" * 1500,
    }


def ledger() -> bytes:
    """Return a ledger of four people with one release."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "budgets.db"
        with hetdp.Ledger.create(path) as made:
            made.enroll({"a": 1, "b": "0.5", "c": "inf", "d": 2})
            made.mean([0.1, 0.2, 0.3], person=["a", "b", "c"], bounds=(0, 1), spend=0.1, release_id="may")
        return gzip.compress(path.read_bytes(), mtime=0)


def corpus() -> dict[str, bytes]:
    """Return every binary file of the corpus by its place."""
    return columnar() | compressed() | {f"ledger/{name}": data for name, data in damages().items()}


if __name__ == "__main__":
    ledgers.BASE.write_bytes(ledger())
    for name, data in corpus().items():
        (CORPUS / name).parent.mkdir(parents=True, exist_ok=True)
        (CORPUS / name).write_bytes(data)
