"""What every request passes, whatever it asks for: Host, Origin, rate, size; and what every answer carries.

- A page of another site cannot ask in a browser's name: its Origin is foreign. With DNS rebinding the Host is foreign.
- No inline script or style runs (CSP), nothing is fetched from third parties, no address is told to them.
- An unforeseen error is a fixed text with an id; the log has its type and place, never its message, which may
  quote what was sent.
"""

from __future__ import annotations

import itertools
import json
import logging
import math
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from . import errors
from .settings import Settings, host_of

log = logging.getLogger("hetdp.server")

SAFE = {"GET", "HEAD", "OPTIONS"}
POLICY = (
    "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


_RAW = [(name.lower().encode(), text.encode()) for name, text in {**HEADERS, "Cache-Control": "no-store"}.items()]
_RUN, _NUMBERS = secrets.token_hex(4), itertools.count(1)
"""An id of a request is that of this run and a number: drawing one would cost more than the rest of this module."""


class Rates:
    """Buckets that hold a minute's worth of requests and refill evenly; the oldest are forgotten first."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, most: int = 100_000) -> None:
        self._clock, self._most = clock, most
        self._buckets: dict[tuple[str, str], tuple[float, float]] = {}

    def allow(self, kind: str, who: str, a_minute: int) -> bool:
        """Take one request out of somebody's bucket; say whether there was one."""
        now = self._clock()
        left, then = self._buckets.get((kind, who), (float(a_minute), now))
        left = min(float(a_minute), left + (now - then) * a_minute / 60)
        if len(self._buckets) >= self._most:
            self._forget()
        allowed = left >= 1
        self._buckets[kind, who] = (left - 1 if allowed else left, now)
        return allowed

    def _forget(self) -> None:
        oldest = sorted(self._buckets, key=lambda key: self._buckets[key][1])
        for key in oldest[: self._most // 2]:
            del self._buckets[key]


class Guard:
    """The middleware around everything else."""

    def __init__(self, app: ASGIApp, settings: Settings, rates: Rates) -> None:
        self.app, self.settings, self.rates = app, settings, rates
        self.hosts = {host.lower() for host in settings.hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        answer = _Answer(scope, send)
        try:
            self._admit(scope)
            await self.app(scope, _Limited(receive, self._limit(scope)), answer.send)
        except HTTPException as refusal:
            await answer.fail(refusal.status_code)
        except Exception as error:  # noqa: BLE001  the last line of defence: its message may quote an answer
            facts = {"id": answer.id, "error": type(error).__name__, "at": place(error)}
            log.error("failed", extra={"facts": facts})  # noqa: TRY400  a traceback would quote the message
            await answer.fail(500)
        finally:
            answer.log()

    def _admit(self, scope: Scope) -> None:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if host_of(host) not in self.hosts:
            raise HTTPException(403)
        if scope["method"] not in SAFE:
            _same_site(headers, host)
        address = scope["client"][0] if scope.get("client") else ""
        if not self.rates.allow("address", address, self.settings.per_address):
            raise HTTPException(429)
        length = headers.get("content-length", "0")
        if not length.isdigit() or int(length) > self._limit(scope):
            raise HTTPException(413)

    def _limit(self, scope: Scope) -> int:
        return self.settings.import_limit if scope["path"].endswith("/rows") else self.settings.body_limit


def _same_site(headers: Headers, host: str) -> None:
    """Refuse a change that a page of another origin asks for. Programs send neither header; they need a token."""
    origin = headers.get("origin")
    if origin is not None and origin.partition("://")[2].lower() != host.lower():
        raise HTTPException(403)
    if headers.get("sec-fetch-site", "same-origin") not in {"same-origin", "none"}:
        raise HTTPException(403)


class _Limited:
    """Receives a body up to its limit, also when it does not say its length."""

    def __init__(self, receive: Receive, limit: int) -> None:
        self._receive, self._left = receive, limit

    async def __call__(self) -> Message:
        message = await self._receive()
        self._left -= len(message.get("body", b""))
        if self._left < 0:
            raise HTTPException(413)
        return message


class _Answer:
    """Sends an answer with the headers that all answers have, and logs that it was sent."""

    def __init__(self, scope: Scope, send: Send) -> None:
        self._scope, self._send = scope, send
        self.id = scope.setdefault("state", {})["request_id"] = f"{_RUN}-{next(_NUMBERS):x}"
        self._status, self._start = 0, time.perf_counter()

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._status = message["status"]
            headers = message["headers"] = list(message["headers"])
            there = {name for name, _ in headers}
            headers += [pair for pair in _RAW if pair[0] not in there]
            headers.append((b"x-request-id", self.id.encode()))
            if self._status == 429:
                headers.append((b"retry-after", b"60"))
        await self._send(message)

    async def fail(self, status: int) -> None:
        if self._status:
            return
        body = json.dumps(errors.body(status, self.id)).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        await self.send({"type": "http.response.start", "status": status, "headers": headers})
        await self._send({"type": "http.response.body", "body": body})

    def log(self) -> None:
        route = getattr(self._scope.get("route"), "path", "-")  # the pattern, never the address itself
        facts = {"id": self.id, "method": self._scope["method"], "route": route, "status": self._status}
        log.info("request", extra={"facts": {**facts, "ms": math.ceil(1000 * (time.perf_counter() - self._start))}})


def place(error: BaseException) -> str:
    """Return file and line where an error arose, and nothing of its message."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return f"{Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}" if trace else "?"


class JsonLines(logging.Formatter):
    """One JSON object a line: time, level, event, facts. Messages of exceptions and arguments are left out."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        facts: dict[str, Any] = getattr(record, "facts", {})
        ours = record.name.startswith("hetdp.") and isinstance(record.msg, str) and not record.args
        event = record.msg if ours else "note"
        return json.dumps({"time": round(record.created, 3), "level": record.levelname, "event": event, **facts})
