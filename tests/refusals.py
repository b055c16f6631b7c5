"""Refusals that tell nothing: what a message says, and the exceptions behind it."""

from __future__ import annotations

import pytest

from hetdp import InputError

MARKER = "98765.4321"
"""A private cell: it must be in no message."""


def behind(error):
    """The exceptions behind an exception, those that a traceback would not show included."""
    found, left = [], [error]
    while left:
        last = left.pop()
        new = [other for other in (last.__cause__, last.__context__) if other is not None and other not in found]
        found += new
        left += new
    return found


def refused(call, *words):
    """The call raises one sentence with these words; nothing private is in it, and no exception at all behind it."""
    with pytest.raises(InputError) as caught:
        call()
    assert [word for word in words if word not in str(caught.value)] == [], str(caught.value)
    assert MARKER not in repr(caught.value)
    assert behind(caught.value) == []
