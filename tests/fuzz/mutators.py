"""Mutators that know a little of a format: one change in bytes would seldom leave a valid command or tally.

Each begins with the input that the fuzzer hands over or, one time in two, with a file of the corpus: the fuzzer itself
forgets those that take no branch of their own.
"""

from __future__ import annotations

import os
import random
import re
from collections.abc import Callable
from pathlib import Path

Mutator = Callable[[bytes, int, int], bytes]

TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[-+.\w]+|\S')
NASTY = [
    b"-1", b"0", b"1", b"true", b"null", b"1.5", b"NaN", b"Infinity", b"1e308", b"-1e308", b"9223372036854775808",
    b"[]", b"{}", b"4611686018427387904", b'""', b'"inf"', b'"nan"', b'"-0x1p0"', b'"0x1p-1074"', b'"0x1p1023"',
    b'"\\ud800"', b"[" * 99, b",",
]  # fmt: skip


def lines(options: list[str], values: list[str], seeds: list[Path]) -> Mutator:
    """Return a mutator of lines: one is dropped, doubled, changed in a byte, replaced, or followed by a word."""

    def mutated(data: bytes, most: int, seed: int) -> bytes:
        chance = random.Random(seed)
        parts = _begun(data, seeds, chance).split(b"\n")
        at = chance.randrange(len(parts))
        like = os.fsencode(chance.choice(options if parts[at].startswith(b"-") else values))
        word = os.fsencode(chance.choice(options + values))
        ways = ([], [parts[at]] * 2, [_changed(parts[at], chance)], [like], [like], [like], [parts[at], word])
        parts[at : at + 1] = chance.choice(ways)
        return b"\n".join(parts)[:most]

    return mutated


def tokens(seeds: list[Path]) -> Mutator:
    """Return a mutator of JSON: a token is dropped, doubled, negated, changed in a byte, or replaced."""

    def mutated(data: bytes, most: int, seed: int) -> bytes:
        chance = random.Random(seed)
        data = _begun(data, seeds, chance)
        found = [*TOKEN.finditer(data)] or [re.match(b"", data)]
        token, other = (chance.choice(found) for _ in range(2))
        nasty, changed = chance.choice(NASTY), _changed(token[0], chance)
        ways = (b"", token[0] + b"," + token[0], b"-" + token[0], changed, nasty, nasty, other[0])
        return (data[: token.start()] + chance.choice(ways) + data[token.end() :])[:most]

    return mutated


def _begun(data: bytes, seeds: list[Path], chance: random.Random) -> bytes:
    return data if chance.randrange(2) else chance.choice(seeds).read_bytes()


def _changed(part: bytes, chance: random.Random) -> bytes:
    """Return a part with a byte more, or another byte."""
    at = chance.randint(0, len(part))
    return part[:at] + bytes([chance.randrange(256)]) + part[at + chance.randrange(2) :]
