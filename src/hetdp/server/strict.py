"""JSON that means one thing: no NaN, no infinity, no number beyond a double, no key twice, no half of a surrogate pair.

Python's parser accepts all of these. A body that holds one is malformed, whatever field it stands in: the
answer is a fixed text, so nothing depends on what was sent.
"""

from __future__ import annotations

import json
import math
from typing import Any

from fastapi import Request
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.requests import Request as PlainRequest
from starlette.responses import Response

_LONGEST_INTEGER = 400


class MalformedError(HTTPException):
    """The body is not strict JSON."""

    def __init__(self) -> None:
        super().__init__(400)


def parse(body: bytes) -> Any:
    """Return the data of a strict JSON text, or raise `MalformedError`.

    >>> parse(b'{"value": 2.5, "names": ["a"]}')
    {'value': 2.5, 'names': ['a']}
    >>> parse(b'{"value": 1e400}')
    Traceback (most recent call last):
    hetdp.server.strict.MalformedError: 400: Bad Request
    """
    try:
        text = body.decode("utf-8")
        data = _DECODER.decode(text)
        if "\\u" in text:
            json.dumps(data, ensure_ascii=False).encode("utf-8")  # half of a pair cannot be encoded
    except (ValueError, RecursionError, MalformedError):
        raise MalformedError from None
    return data


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise MalformedError
    return found


def _float(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise MalformedError
    return number


def _int(text: str) -> int:
    if len(text) > _LONGEST_INTEGER:
        raise MalformedError
    number = int(text)
    try:
        float(number)
    except OverflowError:
        raise MalformedError from None
    return number


def _constant(_: str) -> float:
    raise MalformedError


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_float=_float, parse_int=_int, parse_constant=_constant)


class _StrictRequest(Request):
    async def json(self) -> Any:
        if not hasattr(self, "_strict"):
            self._strict = parse(await self.body())
        return self._strict


class StrictRoute(APIRoute):
    """A route whose JSON body is read strictly."""

    def get_route_handler(self) -> Any:
        """Return the handler, which sees a request with the strict parser."""
        handler = super().get_route_handler()

        async def strict(request: PlainRequest) -> Response:
            response: Response = await handler(_StrictRequest(request.scope, request.receive))
            return response

        return strict
