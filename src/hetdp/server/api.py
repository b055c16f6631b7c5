"""The HTTP API. A handler parses, calls one verb, answers; the pages show the same data."""

from __future__ import annotations

import csv
import io
import math
import time
from typing import Annotated, Any

import sqlalchemy as sa
from fastapi import APIRouter, Depends, Header, Query, Request
from pydantic import Field
from starlette.responses import JSONResponse, PlainTextResponse, Response

from hetdp import __version__

from . import access, answers, dashboard, explore, publish, store, studies
from .guard import RefusedError, StrictRoute, pace
from .register import ChangedError
from .studies import MOST_INVITATIONS, MOST_WAVES, NewStudy, Strict

router = APIRouter(route_class=StrictRoute)
CURATOR = Depends(access.curator)
COOKIES = {"curator": access.CURATOR, "participant": access.PARTICIPANT}
Token = Annotated[str, Field(min_length=1, max_length=200)]
_CSV = {"requestBody": {"content": {"text/csv": {"schema": {"type": "string"}}}, "required": True}}


class CuratorKey(Strict):
    """The key that was printed at the first start."""

    key: Token


class Invitation(Strict):
    """The part of an invitation link behind the #, or that of the link to come back."""

    token: Token


class Invitations(Strict):
    """How many invitations to make."""

    count: Annotated[int, Field(ge=1, le=MOST_INVITATIONS)]


class Publication(Strict):
    """Which wave to publish, from 0: asking twice gives the same result."""

    wave: Annotated[int, Field(ge=0, le=MOST_WAVES)] = 0


def _store(request: Request) -> store.Store:
    database: store.Store = request.app.state.store
    return database


def _link(request: Request, token: str) -> str:
    """Return a link for one person. Behind the # it is sent to no server, so that no log has it."""
    origin = request.app.state.settings.origin or f"{request.url.scheme}://{request.headers['host']}"
    return f"{origin}/join#{token}"


def _pace_person(request: Request, token: str) -> None:
    pace(request, "person", request.app.state.settings.per_person, access.digest("rate", token))


# ---------------------------------------------------------------------------------------------------------
# Participants


@router.get("/api/answer", tags=["participant"])
def my_study(request: Request) -> dict[str, Any]:
    """Return the question, the privacy choices with what each would cost now, and what this person chose."""
    token, database = access.session_token(request, access.PARTICIPANT), _store(request)
    try:
        study, mine = database.read(answers.seen, token)
    except ChangedError:
        study, mine = database.read(answers.seen_changed, token)
    people = database.read(studies.joined, study.id)
    choices = dashboard.choices(study, people)
    return {"study": study.to_dict(), **mine, "n": sum(people.values()), "choices": choices}


@router.put("/api/answer", tags=["participant"])
def send(request: Request, body: answers.NewAnswer) -> dict[str, Any]:
    """Send or change an answer. Whatever the number, the receipt is the same; it is never shown again."""
    token = access.session_token(request, access.PARTICIPANT)
    _pace_person(request, token)
    receipt = _store(request).write(answers.send, request.app.state.vault, token, body)
    again = receipt.pop("again")
    return {**receipt, "come_back": _link(request, again) if again else None}


@router.delete("/api/answer", tags=["participant"])
def withdraw(request: Request) -> dict[str, Any]:
    """Withdraw: the sealed answer is deleted."""
    token = access.session_token(request, access.PARTICIPANT)
    _pace_person(request, token)
    return _store(request).write(answers.withdraw, token)


# ---------------------------------------------------------------------------------------------------------
# Everybody


@router.get("/health", tags=["everybody"])
def health(request: Request) -> dict[str, str]:
    """Say whether the server and its database answer."""
    _store(request).read(lambda transaction: transaction.execute(sa.select(1)).scalar())
    return {"status": "ok", "version": __version__}


@router.get("/api/results", tags=["everybody"])
def result_list(request: Request) -> list[dict[str, Any]]:
    """List the studies that have published."""
    return _store(request).read(publish.published)


@router.get("/api/results/{study}", tags=["everybody"])
def result(
    request: Request, study: str, wave: Annotated[int | None, Query(ge=0, le=MOST_WAVES)] = None
) -> dict[str, Any]:
    """Return a published result: the latest, or that of one wave."""
    return _store(request).read(publish.stored, study, wave)


@router.post("/api/explore", tags=["everybody"])
def compare(request: Request, body: explore.Mix) -> dict[str, Any]:
    """Compare all methods for a population, and trace each over the number of people and over the last ε."""
    pace(request, "explore", min(explore.A_MINUTE, request.app.state.settings.per_address))
    found: dict[str, Any] = request.app.state.explorer.compare(body)
    return found


# ---------------------------------------------------------------------------------------------------------
# Sessions


@router.post("/api/session/curator", tags=["sessions"])
def sign_in(request: Request, body: CuratorKey) -> Response:
    """Exchange the curator's key for a session."""
    pace(request, "attempt", request.app.state.settings.attempts)
    return _session(request, "curator", _store(request).write(access.sign_in, body.key), access.CURATOR_SECONDS)


@router.post("/api/session/participant", tags=["sessions"])
def join(request: Request, body: Invitation) -> Response:
    """Exchange an invitation, or the link to come back, for a session."""
    pace(request, "attempt", request.app.state.settings.attempts)
    _pace_person(request, body.token)
    return _session(request, "participant", _store(request).write(answers.enter, body.token), access.PERSON_SECONDS)


@router.delete("/api/session/{kind}", tags=["sessions"])
def sign_out(request: Request, kind: str) -> Response:
    """Forget a session: `curator` or `participant`."""
    if kind not in COOKIES:
        raise RefusedError(404)
    _store(request).write(access.close_session, access.session_token(request, COOKIES[kind]))
    response = JSONResponse({"signed_out": True})
    access.set_cookie(response, COOKIES[kind], "", 0, request.app.state.settings)  # with its attributes, else it stays
    return response


def _session(request: Request, kind: str, token: str, seconds: int) -> Response:
    response = JSONResponse({"csrf": access.csrf_of(token)})
    access.set_cookie(response, COOKIES[kind], token, seconds, request.app.state.settings)
    return response


# ---------------------------------------------------------------------------------------------------------
# The curator


@router.get("/api/studies", tags=["curator"], dependencies=[CURATOR])
def study_list(request: Request) -> list[dict[str, Any]]:
    """List all studies with how many people joined each."""
    found, sizes = _store(request).read(studies.every), _store(request).read(studies.sizes)
    return [{**study.to_dict(), "n": sizes.get(study.id, 0)} for study in found]


@router.post("/api/studies", tags=["curator"], dependencies=[CURATOR], status_code=201)
def create(request: Request, body: NewStudy) -> dict[str, Any]:
    """Create a study."""
    return _store(request).write(studies.create, body).to_dict()


@router.get("/api/studies/{study}", tags=["curator"], dependencies=[CURATOR])
def live(request: Request, study: str) -> dict[str, Any]:
    """Return what is public about a study while people join: counts, saturation, error, certificate, frontier."""
    database = _store(request)
    return dashboard.live(database.read(studies.shown, study), database.read(studies.joined, study))


@router.get("/api/studies/{study}/what-if", tags=["curator"], dependencies=[CURATOR])
def what_if(
    request: Request,
    study: str,
    people: Annotated[int, Query(ge=1, le=10**6)],
    tier: Annotated[str | None, Query(max_length=40)] = None,
    epsilon: Annotated[float | None, Query(ge=0, le=1e6, allow_inf_nan=False)] = None,
) -> dict[str, Any]:
    """Return the main figures now and if so many more people made one choice."""
    found, joined = _store(request).read(studies.shown, study), _store(request).read(studies.joined, study)
    return dashboard.what_if(found, joined, found.level(tier, epsilon), people)


@router.get("/api/studies/{study}/events", tags=["curator"], dependencies=[CURATOR])
def events(request: Request, study: str) -> list[dict[str, Any]]:
    """Return the audit log of a study: public events, the newest first."""
    return _store(request).read(studies.events, study)


@router.post("/api/studies/{study}/invitations", tags=["curator"], dependencies=[CURATOR], status_code=201)
def invite(request: Request, study: str, body: Invitations) -> Response:
    """Make single-use invitation links; as CSV if the Accept header asks for it. They are shown this once."""
    links = [_link(request, token) for token in _store(request).write(studies.invite, study, body.count)]
    if "text/csv" not in request.headers.get("accept", ""):
        return JSONResponse({"links": links}, 201)
    text = io.StringIO()
    csv.writer(text).writerows([["invitation"], *([link] for link in links)])
    return PlainTextResponse(text.getvalue(), 201, media_type="text/csv")


async def _csv_body(request: Request) -> bytes:
    if request.headers.get("content-type", "").partition(";")[0].strip() != "text/csv":
        raise RefusedError(415)
    return await request.body()


@router.post("/api/studies/{study}/rows", tags=["curator"], dependencies=[CURATOR], status_code=201, openapi_extra=_CSV)
def import_rows(
    request: Request,
    study: str,
    idempotency_key: Annotated[str, Header(min_length=8, max_length=100)],
    body: Annotated[bytes, Depends(_csv_body)],
) -> dict[str, int]:
    """Import people from CSV with the columns `value` and `tier` (or `epsilon`). The same key twice imports once."""
    database = _store(request)
    people = answers.read_rows(body, database.read(studies.get, study), request.app.state.vault)
    return database.write(answers.add_rows, study, idempotency_key, people)


@router.post("/api/studies/{study}/publish", tags=["curator"], dependencies=[CURATOR])
def publish_wave(request: Request, study: str, body: Publication) -> dict[str, Any]:
    """Close a wave and publish its result, once. The answer comes on a public tick, whatever happened."""
    start, tick = time.monotonic(), request.app.state.settings.tick
    publisher: publish.Publisher = request.app.state.publisher
    try:
        return publisher.publish(study, body.wave)
    finally:
        passed = time.monotonic() - start
        time.sleep(math.ceil(passed / tick) * tick - passed if tick else 0)


@router.post("/api/curator/key", tags=["curator"], dependencies=[CURATOR])
def new_key(request: Request) -> dict[str, str]:
    """Replace the curator's key; every session of the curator ends. The new key is shown this once."""
    return {"key": _store(request).write(access.new_key)}
