"""Who may ask, and how: what every request passes, tokens, sessions, the curator's key; the vault for answers.

- A page of another site cannot ask in a browser's name: its Origin is foreign. With DNS rebinding the Host is foreign.
- No inline script or style runs (CSP), nothing is fetched from third parties, no address is told to them.
- Every error is a fixed text with an id. The log has the type and place of an unforeseen one, never its message, which
  may quote what was sent.
- A token is 256 random bits, so its plain SHA-256 cannot be turned back by guessing. The database holds hashes only. A
  lookup by hash followed by `same` does the same work for a good and a bad token, and what a timing could tell is a
  prefix of the hash of a guess, which does not help to find a preimage.
- A session is a signed statement in a cookie. The database has no part in it, so nobody can make or move one there.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import math
import secrets
import threading
import time
import traceback
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import sqlalchemy as sa
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hetdp.errors import HetdpError, InputError

from .fields import unfit
from .tables import curators

if TYPE_CHECKING:
    from .settings import Settings
    from .store import Register, Transaction

log = logging.getLogger("hetdp.server")

# ---------------------------------------------------------------------------------------------------------
# Errors

# By status: a code for programs and a sentence for people.
TEXTS = {
    400: ("malformed", "The body is not strict JSON."),
    401: ("sign-in", "Sign in first."),
    403: ("forbidden", "This is not allowed."),
    404: ("not-found", "There is nothing here."),
    405: ("method", "This address does not take that method."),
    409: ("conflict", "This is not possible now."),
    413: ("too-large", "The body is too large."),
    415: ("media-type", "The body has another type than this address takes."),
    422: ("unfit", "A field is missing, unknown, of the wrong type or outside its limits."),
    429: ("too-often", "Too many requests. Wait a minute."),
    500: ("internal", "Something went wrong here. The id below is in the server's log."),
    503: ("stopping", "The server is stopping."),
}


class RefusedError(HetdpError, HTTPException):
    """A request that is refused for a public reason.

    The sentence, the field and the facts may quote public parameters, never an answer.
    """

    def __init__(
        self, status: int, code: str | None = None, sentence: str | None = None, field: str | None = None, **facts: Any
    ) -> None:
        usual_code, usual_sentence = TEXTS[status]
        HTTPException.__init__(self, status, sentence or usual_sentence)
        self.code, self.field, self.facts = code or usual_code, field, facts

    def __str__(self) -> str:
        return self.detail

    @classmethod
    def of(cls, error: Exception) -> RefusedError:
        """Return the refusal that stands for an error; nothing of its own message is kept."""
        if isinstance(error, cls):
            return error
        if isinstance(error, RequestValidationError):
            field, rule, facts = unfit(error.errors())
            return cls(422, None, f"{field}: {rule}", field, **facts) if field else cls(422)
        status = error.status_code if isinstance(error, HTTPException) else 422
        return cls(status if status in TEXTS else 400)

    def body(self, request_id: str) -> dict[str, dict[str, Any]]:
        """Return what is sent to programs."""
        more = {"field": self.field, "facts": self.facts}
        said = {"code": self.code, "message": self.detail, "id": request_id}
        return {"error": {**said, **{name: part for name, part in more.items() if part}}}


class ErrorBody(BaseModel):
    """The body of every error: a code for programs, a sentence for people, an id that is in the log.

    Where one field is at fault it is named; `facts` are the public parameters that the sentence quotes.
    """

    error: dict[Literal["code", "message", "id", "field", "facts"], Any]


# For OpenAPI: any address may answer with any of these.
DOCUMENTED: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorBody, "description": text} for status, (_, text) in TEXTS.items()
}

_latest = 0.0  # seconds


def now() -> float:
    """Return the time by the server's own clock, which never goes back; it decides every date, and tests move it."""
    global _latest  # noqa: PLW0603  the one clock of this process
    _latest = max(_latest, time.time())
    return _latest


def date(seconds: int) -> str:
    """Return a time in words.

    >>> date(1_800_000_000)
    '15 Jan 2027, 08:00 UTC'
    """
    return datetime.fromtimestamp(seconds, UTC).strftime("%d %b %Y, %H:%M UTC")


# ---------------------------------------------------------------------------------------------------------
# JSON that means one thing


def parse(body: bytes) -> Any:
    """Return the data of a strict JSON text, or raise; nothing of the text is in the error.

    Python's parser accepts NaN, infinity, numbers beyond a double, a key twice and half of a surrogate pair.
    A body that holds one is malformed, whatever field it is in.

    >>> parse(b'{"value": 2.5, "names": ["a"]}')
    {'value': 2.5, 'names': ['a']}
    >>> parse(b'{"value": 1e400}')
    Traceback (most recent call last):
    hetdp.server.access.RefusedError: The body is not strict JSON.
    """
    with suppress(ValueError, OverflowError, RecursionError):
        data = json.loads(body.decode("utf-8"), object_pairs_hook=_object, parse_int=_integer)
        json.dumps(data, ensure_ascii=False, allow_nan=False).encode()  # no infinity, no half of a pair
        return data
    raise RefusedError(400)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(found := dict(pairs)) != len(pairs):
        raise ValueError
    return found


def _integer(text: str) -> int:
    number = int(text)
    float(number)  # raises for one that is beyond a double
    return number


class _StrictRequest(Request):
    async def json(self) -> Any:
        return parse(await self.body())


class StrictRoute(APIRoute):
    """A route whose JSON body is read strictly."""

    def get_route_handler(self) -> Any:
        """Return the handler, which sees a request with the strict parser."""
        handler = super().get_route_handler()

        async def strict(request: Request) -> Response:
            return await handler(_StrictRequest(request.scope, request.receive))

        return strict


# ---------------------------------------------------------------------------------------------------------
# Rates


class Rates:
    """Buckets that hold a minute's worth of requests and refill evenly; the oldest are forgotten first."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, most: int = 100_000) -> None:
        self._clock, self._most, self._turn = clock, most, threading.Lock()
        self._buckets = OrderedDict[tuple[str, str], tuple[float, float]]()

    def allow(self, kind: str, who: str, per_minute: int) -> bool:
        """Take one request out of somebody's bucket; say whether there was one."""
        with self._turn:
            now = self._clock()
            left, then = self._buckets.pop((kind, who), (float(per_minute), now))
            left = min(float(per_minute), left + (now - then) * per_minute / 60)
            if len(self._buckets) >= self._most:
                self._buckets.popitem(last=False)  # the oldest come first: a bucket that is used moves to the end
            self._buckets[kind, who] = (left - 1 if left >= 1 else left, now)
            return left >= 1


def pace(request: Request, kind: str, per_minute: int, who: str | None = None) -> None:
    """Count a request of one kind; raise if somebody, or else an address, makes too many of them in a minute."""
    address = request.client.host if request.client else ""
    if not request.app.state.rates.allow(kind, address if who is None else who, per_minute):
        raise RefusedError(429)


# ---------------------------------------------------------------------------------------------------------
# The middleware around everything else

SAFE = {"GET", "HEAD", "OPTIONS"}
HEADERS = {
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; "
    "form-action 'self'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
}


class Guard:
    """Admits a request, limits its body, adds the headers, turns every error into a fixed text, writes the log."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self.app, self.settings, self.warned = app, settings, False
        self.hosts = {host.lower() for host in settings.hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        start, status, failure, reason = time.perf_counter(), 0, 0, ""
        left = self.settings.import_limit if scope["path"].endswith("/rows") else self.settings.body_limit
        request_id = scope.setdefault("state", {})["request_id"] = secrets.token_hex(8)  # it counts nothing

        async def limited() -> Message:  # also a body that does not say its length
            nonlocal left
            message = await receive()
            left -= len(message.get("body", b""))
            if left < 0:
                raise RefusedError(413)
            return message

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                headers.update({name: text for name, text in HEADERS.items() if name not in headers})
                headers["X-Request-Id"] = request_id
                headers.update({"Retry-After": "60"} if status == 429 else {})
            await send(message)

        try:
            self._admit(Request(scope), left)
            await self.app(scope, limited, answer)
        except HTTPException as refusal:
            failure, reason = refusal.status_code, getattr(refusal, "code", "")
        except Exception as error:  # noqa: BLE001  the last line of defence: its message may quote an answer
            why = {"id": request_id, "error": type(error).__name__, "at": where_raised(error)}
            log.error("failed", extra={"facts": why})  # noqa: TRY400  a traceback would quote the message
            failure = 500
        finally:
            if failure and not status:
                await JSONResponse(RefusedError(failure).body(request_id), failure)(scope, receive, answer)
            route = getattr(scope.get("route"), "path", "-")  # the pattern, never the address itself
            took = math.ceil(1000 * (time.perf_counter() - start))
            facts = {"id": request_id, "method": scope["method"], "route": route, "status": status, "ms": took}
            log.info("request", extra={"facts": facts | ({"reason": reason} if reason else {})})

    def _admit(self, request: Request, limit: int) -> None:
        headers, host, peer = request.headers, request.headers.get("host", ""), request.client
        if peer and not self.warned and peer.host not in headers.get("x-forwarded-for", peer.host):
            self.warned = True  # else uvicorn had made the address there the client's
            log.warning("a proxy is not trusted")  # once: all clients have its address, and share one limit
        if host_of(host) not in self.hosts:
            raise RefusedError(403, "host")
        if request.method not in SAFE:
            # Refuse a change that a page of another origin asks for. Programs send neither header; they need a token.
            origin, scheme = headers.get("origin"), "https" if self.settings.secure else request.url.scheme
            foreign = origin is not None and origin.lower() != f"{scheme}://{host}".lower()
            if foreign or headers.get("sec-fetch-site", "same-origin") not in {"same-origin", "none"}:
                raise RefusedError(403, "origin")
        pace(request, "address", self.settings.per_address)
        length = headers.get("content-length", "0")
        if not length.isdecimal() or len(length) > 12 or int(length) > limit:
            raise RefusedError(413)


def where_raised(error: BaseException) -> str:
    """Return file and line where an error arose, and nothing of its message."""
    frames = traceback.extract_tb(error.__traceback__)
    return f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "?"


def host_of(authority: str) -> str:
    """Return the host of `host:port`, in lower case.

    >>> host_of("Example.org:8000"), host_of("[::1]:8000")
    ('example.org', '[::1]')
    """
    host, _, port = authority.rpartition(":")
    return (host if host and port.isdigit() else authority).lower()


# ---------------------------------------------------------------------------------------------------------
# Tokens

NOBODY = "0" * 64  # what a token is compared with when there is no record; no token hashes to it


def new_token() -> str:
    """Return a new token, 43 characters that need no quoting in a URL."""
    return secrets.token_urlsafe(32)


def digest(kind: str, token: str) -> str:
    """Return what is stored instead of a token; tokens of different kinds never collide."""
    return hashlib.sha256(f"hetdp {kind} {token}".encode("utf-8", "replace")).hexdigest()


def same(stored: str | None, found: str) -> bool:
    """Say whether two digests are equal, in a time that does not depend on where they differ."""
    return hmac.compare_digest((stored or NOBODY).encode(), found.encode("utf-8", "replace")) and stored is not None


def csrf_of(session: str) -> str:
    """Return the token that must accompany a change made by a cookie; only pages of this server can know it."""
    return hmac.new(session.encode("utf-8", "replace"), b"hetdp csrf", hashlib.sha256).hexdigest()


# ---------------------------------------------------------------------------------------------------------
# Sessions

# The two kinds of session, by the names of their cookies, and how many seconds one lasts.
CURATOR, PARTICIPANT = "hetdp_curator", "hetdp_person"
SECONDS = {CURATOR: 12 * 3600, PARTICIPANT: 90 * 86_400}


def cookie_name(kind: str, settings: Settings) -> str:
    """Return the name of a cookie; over HTTPS it is bound to this host, or to TLS alone where the server has a path."""
    return f"__{'Secure' if settings.root else 'Host'}-{kind}" if settings.secure else kind


def session_token(request: Request, kind: str) -> str:
    """Return the session of a request, or raise; with a change there must be the CSRF token that belongs to it."""
    token = request.cookies.get(cookie_name(kind, request.app.state.settings))
    if not token:
        raise RefusedError(401)
    if request.method not in SAFE and not same(csrf_of(token), request.headers.get("x-csrf-token", "")):
        raise RefusedError(403, "stale-page", "The CSRF token is missing, or of another session. Nothing was done.")
    return token


def open_session(register: Register, kind: str, person: str) -> str:
    """Return the token of a new session: whose it is, until when, its epoch, its own number, and a MAC of all this.

    It goes on while its epoch is that of the person in the register, or while it is the one session that was kept.
    """
    said = f"{int(now()) + SECONDS[kind]}.{register.epoch(person)}.{secrets.randbits(62)}.{person}"
    return f"{_proof(register, kind, said)}.{said}"


def _proof(register: Register, kind: str, said: str) -> str:
    return register.sign("session", kind, said).hex()


def session(register: Register, kind: str, token: str) -> tuple[str, int] | None:
    """Return whose session this is and its own number, if this server made it and it has not ended."""
    proof, _, said = token.partition(".")
    if not same(_proof(register, kind, said), proof):
        return None
    expires, epoch, number, person = said.split(".", 3)
    current = int(epoch) == register.epoch(person) or int(number) == register.kept(person)
    return (person, int(number)) if current and now() < int(expires) else None


def close_session(transaction: Transaction, kind: str, token: str) -> None:
    """End all sessions of whose session this is, so that none can be used again.

    It takes its turn with those who write: an answer that is just being sent would otherwise keep its session alive.
    """
    found = session(transaction.register, kind, token)
    if found is not None:
        transaction.end_sessions(found[0])


# ---------------------------------------------------------------------------------------------------------
# Curators: each has a name, which is in the audit log, and a key


def sign_in(transaction: Transaction, key: str) -> str:
    """Return the token of a new session of the curator whose key this is."""
    name = whose_key(transaction, key)
    if name is None:
        raise RefusedError(403, "key", "This key is not valid.")
    transaction.by = name
    transaction.note("curator signed in")
    return open_session(transaction.register, CURATOR, f"curator:{name}")


def curator(request: Request) -> str:
    """Return the name of the curator who asks, by a session, or a program by `Authorization: Bearer KEY`; or raise."""
    (scheme, _, key), state = request.headers.get("authorization", "").partition(" "), request.app.state
    if scheme.lower() == "bearer":
        name = state.store.read(whose_key, key.strip())
        if name is None:
            pace(request, "attempt", state.settings.attempts)
    else:
        found = session(state.store.register, CURATOR, session_token(request, CURATOR))
        name = None if found is None else found[0].removeprefix("curator:")
    if name is None:
        raise RefusedError(401)
    return str(name)


def whose_key(transaction: Transaction, key: str) -> str | None:
    """Return the name of the curator whose key this is; every key is compared, whichever it is."""
    hashed, found = digest("curator", key), None
    for row in transaction.execute(sa.select(curators)):
        found = row.name if same(row.key, hashed) else found
    return found


# ---------------------------------------------------------------------------------------------------------
# The vault

_NONCE_BYTES = 12


class Vault:
    """Seals what a person says, a number a question, with AES-256-GCM, bound to the person, the study and the ε.

    Claim: without the key the database tells nothing about a value but that it exists.

    Argument: every sealed answer of a study has the same length, whatever was said, a fresh nonce of 96 random bits,
    and is authenticated together with the person's id, the study's and the ε, so it can neither be read, altered nor
    moved to another row. Who can write to the database, but has no key, cannot have it published at another ε or in a
    study of their own: then it does not open. That it is the newest one of its person is the register's business.
    """

    def __init__(self, key: bytes, marks: bytes | None = None) -> None:
        self._cipher = AESGCM(key)
        self.fingerprint = hmac.new(key, b"hetdp vault", hashlib.sha256).hexdigest()
        self.register_key = hmac.digest(key, b"hetdp register", "sha256")  # from which the vault's cannot be found
        self.mark_key = marks or hmac.digest(key, b"hetdp import", "sha256")  # after a rotation that of before

    def seal(self, codes: Sequence[int], person: str, study: str, epsilon: float) -> bytes:
        """Return codes as bytes that only this vault can open, for this person, study and ε alone; 4 bytes a code."""
        return self._bind(b"".join(code.to_bytes(4) for code in codes), person, study, epsilon)

    def resealed(self, sealed: bytes, new: Vault, *bound: Any, first: bool = False) -> bytes:
        """Return as another vault seals it what this one sealed; the `first` hetdp bound it to a person alone."""
        return new._bind(self._opened(sealed, bound[0].encode() if first else _bound(*bound)), *bound)

    def _bind(self, said: bytes, *bound: Any) -> bytes:
        nonce = secrets.token_bytes(_NONCE_BYTES)
        return nonce + self._cipher.encrypt(nonce, said, _bound(*bound))

    def _opened(self, sealed: bytes, bound: bytes) -> bytes:
        try:
            return self._cipher.decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], bound)
        except (InvalidTag, ValueError):
            raise InputError("an answer does not open: its row was changed outside of the server") from None

    def mark(self, content: Iterable[str]) -> str:
        """Return by what the same text is known again; not a plain hash, by which a guess could be tried out."""
        mac = hmac.new(self.mark_key, digestmod="sha256")
        for part in content:
            mac.update(part.encode())
        return mac.hexdigest()

    def open(self, sealed: bytes, person: str, study: str, epsilon: float) -> bytes:
        """Return the bytes of the codes again; raise if they were sealed for anything else."""
        return self._opened(sealed, _bound(person, study, epsilon))


def _bound(person: str, study: str, epsilon: float) -> bytes:
    return f"{person} {study} {epsilon.hex()}".encode()
