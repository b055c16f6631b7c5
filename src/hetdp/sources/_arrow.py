"""Columns of doubles out of an Arrow stream, batch by batch and without a copy, by its C interface.

An engine that runs in this process hands over its batches as they come. Everything that reads memory is here; what the
addresses mean is fixed by the Arrow specification, and a column of another type is refused before it is touched.
"""

from __future__ import annotations

import ctypes
from collections.abc import Generator
from typing import Any

import numpy as np
from numpy.typing import NDArray

_DOUBLE = b"g"
_address = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


class _Schema(ctypes.Structure):
    pass


_Schema._fields_ = [
    ("format", ctypes.c_char_p),
    ("name", ctypes.c_char_p),
    ("metadata", ctypes.c_void_p),
    ("flags", ctypes.c_int64),
    ("n_children", ctypes.c_int64),
    ("children", ctypes.POINTER(ctypes.POINTER(_Schema))),
    ("dictionary", ctypes.c_void_p),
    ("release", ctypes.CFUNCTYPE(None, ctypes.POINTER(_Schema))),
    ("private_data", ctypes.c_void_p),
]


class _Array(ctypes.Structure):
    pass


_Array._fields_ = [
    ("length", ctypes.c_int64),
    ("null_count", ctypes.c_int64),
    ("offset", ctypes.c_int64),
    ("n_buffers", ctypes.c_int64),
    ("n_children", ctypes.c_int64),
    ("buffers", ctypes.POINTER(ctypes.c_void_p)),
    ("children", ctypes.POINTER(ctypes.POINTER(_Array))),
    ("dictionary", ctypes.c_void_p),
    ("release", ctypes.CFUNCTYPE(None, ctypes.POINTER(_Array))),
    ("private_data", ctypes.c_void_p),
]


class _Batch(_Array):
    """A batch that is given back when nobody needs it any more: its columns keep it, whoever keeps them."""

    def __del__(self) -> None:
        if self.release:
            self.release(self)


class _Stream(ctypes.Structure):
    pass


_Stream._fields_ = [
    ("get_schema", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(_Stream), ctypes.POINTER(_Schema))),
    ("get_next", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(_Stream), ctypes.POINTER(_Array))),
    ("get_last_error", ctypes.CFUNCTYPE(ctypes.c_char_p, ctypes.POINTER(_Stream))),
    ("release", ctypes.CFUNCTYPE(None, ctypes.POINTER(_Stream))),
    ("private_data", ctypes.c_void_p),
]


class StreamError(Exception):
    """The stream broke off, or holds something else than doubles. It says nothing more: it might quote a cell."""


def doubles(capsule: Any) -> Generator[list[NDArray[np.float64]]]:
    """Yield the columns of a stream of doubles; NaN where a cell is null.

    The stream is given back when this ends, however that is, and a batch when its last array is gone.
    """
    stream = _Stream.from_address(_address(capsule, b"arrow_array_stream"))
    try:
        _check(stream)
        while True:
            batch = _Batch()
            if stream.get_next(stream, batch):
                raise StreamError
            if not batch.release:  # the end
                return
            yield [_column(batch, batch.children[i].contents) for i in range(batch.n_children)]
    finally:
        if stream.release:
            stream.release(stream)


def _check(stream: _Stream) -> None:
    schema = _Schema()
    if stream.get_schema(stream, schema):
        raise StreamError
    kinds = {schema.children[i].contents.format for i in range(schema.n_children)}
    schema.release(schema)
    if kinds != {_DOUBLE}:
        raise StreamError


def _column(batch: _Batch, column: _Array) -> NDArray[np.float64]:
    first, rows = batch.offset + column.offset, batch.length
    if not rows:
        return np.empty(0)
    memory: Any = (ctypes.c_double * (first + rows)).from_address(column.buffers[1])
    memory.batch = batch  # so that it lives as long as the array
    cells = np.frombuffer(memory)[first:]
    if not column.null_count or not column.buffers[0]:
        return cells
    bits = np.frombuffer((ctypes.c_uint8 * (-(-(first + rows) // 8))).from_address(column.buffers[0]), np.uint8)
    there = np.unpackbits(bits, count=first + rows, bitorder="little")[first:]
    return np.where(there, cells, np.nan)
