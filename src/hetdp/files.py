"""Files that are written whole or not at all, and what JSON cannot say."""

from __future__ import annotations

import json
import math
import os
import tempfile
from pathlib import Path
from typing import Any


def write_whole(path: str | os.PathLike[str], text: str, *, public: bool = False) -> None:
    """Write a text file; it appears whole or not at all, also after a power cut.

    Only its owner can read it, unless it is `public`: then it gets the usual permissions of a new file.
    """
    target = Path(path)
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}")  # made with mode 600
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        if public:
            mask = os.umask(0o022)
            os.umask(mask)
            Path(name).chmod(0o666 & ~mask)
        Path(name).replace(target)
    except BaseException:  # an interrupt too leaves no half-written file
        Path(name).unlink(missing_ok=True)
        raise


def jsonable(fact: Any) -> Any:
    """Return plain data with "inf" for infinity, which JSON does not have.

    >>> jsonable({"epsilon": [0.1, math.inf]})
    {'epsilon': [0.1, 'inf']}
    """
    if isinstance(fact, dict):
        return {key: jsonable(value) for key, value in fact.items()}
    if isinstance(fact, (list, tuple)):
        return [jsonable(value) for value in fact]
    return "inf" if isinstance(fact, float) and math.isinf(fact) else fact


def to_json(fact: Any) -> str:
    """Return plain data as JSON for people to read."""
    return json.dumps(jsonable(fact), indent=2, ensure_ascii=False, allow_nan=False)
