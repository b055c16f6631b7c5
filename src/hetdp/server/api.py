"""The HTTP API. A handler parses, calls one verb, answers; the pages show the same data."""

from __future__ import annotations

import asyncio
import csv
import io
import math
import time
from typing import Annotated, Any

import sqlalchemy as sa
from fastapi import APIRouter, Depends, Query, Request
from pydantic import Field
from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse, PlainTextResponse, Response

from hetdp import __version__

from . import access, answers, insight, keys, publish, store, studies
from .errors import RefusedError
from .strict import StrictRoute
from .studies import MOST_INVITATIONS, NewStudy, _Strict

router = APIRouter(route_class=StrictRoute)
CURATOR = Depends(access.curator)
Token = Annotated[str, Field(min_length=1, max_length=200)]


class CuratorKey(_Strict):
    """The key that was printed at the first start."""

    key: Token


class Invitation(_Strict):
    """The part of an invitation link behind the #, or that of the link to come back."""

    token: Token


class Invitations(_Strict):
    """How many invitations to make."""

    count: Annotated[int, Field(ge=1, le=MOST_INVITATIONS)]


class Publication(_Strict):
    """Which wave to publish, from 0: asking twice gives the same result."""

    wave: Annotated[int, Field(ge=0, le=studies.MOST_WAVES)] = 0


def _store(request: Request) -> store.Store:
    database: store.Store = request.app.state.store
    return database


def origin(request: Request) -> str:
    """Return the public address of this server."""
    return request.app.state.settings.origin or f"{request.url.scheme}://{request.headers['host']}"


# ---------------------------------------------------------------------------------------------------------
# Participants


@router.get("/api/answer", tags=["participant"])
async def my_study(request: Request) -> dict[str, Any]:
    """Return the question, the privacy choices with what each would cost now, and what this person chose."""
    token = access.session_token(request, access.PARTICIPANT)
    study, mine = await answers.seen(_store(request), token)
    people = request.app.state.joined.of(study.id)
    return {**mine, "n": sum(people.values()), "choices": await run_in_threadpool(_choices, study, people)}


def _choices(study: studies.Study, people: dict[float, int]) -> list[dict[str, Any]]:
    offers = [t.model_dump() for t in study.tiers]
    offers += [{"name": f"ε = {stop:g}", "epsilon": stop, "sentence": ""} for stop in insight.stops(study)]
    return [{**offer, "cost": insight.cost(study, people, _level(offer["epsilon"]))} for offer in offers]


def _level(epsilon: float | str) -> float:
    return math.inf if isinstance(epsilon, str) else epsilon


@router.put("/api/answer", tags=["participant"])
async def send(request: Request, body: answers.NewAnswer) -> dict[str, Any]:
    """Send or change an answer. Whatever the number, the receipt is the same; it is never shown again."""
    token = access.session_token(request, access.PARTICIPANT)
    _paced(request, token)
    state = request.app.state
    receipt: dict[str, Any] = await _store(request).write(
        lambda transaction: answers.send(transaction, state.joined, state.vault, token, body)
    )
    again = receipt.pop("again")
    return {**receipt, "come_back": f"{origin(request)}/join#{again}" if again else None}


@router.delete("/api/answer", tags=["participant"])
async def withdraw(request: Request) -> dict[str, Any]:
    """Withdraw: the sealed answer is deleted."""
    token = access.session_token(request, access.PARTICIPANT)
    _paced(request, token)
    joined = request.app.state.joined
    return await _store(request).write(lambda transaction: answers.withdraw(transaction, joined, token))


def _paced(request: Request, token: str) -> None:
    state = request.app.state
    if not state.rates.allow("person", keys.digest("rate", token), state.settings.per_person):
        raise RefusedError(429)


# ---------------------------------------------------------------------------------------------------------
# Everybody


@router.get("/health", tags=["everybody"])
async def health(request: Request) -> dict[str, str]:
    """Say whether the server and its database answer."""
    await _store(request).read(lambda connection: connection.execute(sa.select(1)).scalar())
    return {"status": "ok", "version": __version__}


@router.get("/api/results", tags=["everybody"])
async def result_list(request: Request) -> list[dict[str, Any]]:
    """List the studies that have published."""
    return await _store(request).read(lambda connection: publish.published(connection.execute))


@router.get("/api/results/{study}", tags=["everybody"])
async def result(
    request: Request, study: str, wave: Annotated[int | None, Query(ge=0, le=studies.MOST_WAVES)] = None
) -> dict[str, Any]:
    """Return a published result: the latest, or that of one wave."""
    return await _store(request).read(lambda connection: publish.stored(connection.execute, study, wave))


# ---------------------------------------------------------------------------------------------------------
# Sessions


@router.post("/api/session/curator", tags=["sessions"])
async def sign_in(request: Request, body: CuratorKey) -> Response:
    """Exchange the curator's key for a session."""
    access.attempt(request)

    def job(transaction: store.Transaction) -> str:
        if not access.is_key(transaction.execute, body.key):
            raise RefusedError(403, "key", "This key is not valid.")
        studies.note(transaction, "curator signed in")
        return access.open_session(transaction, None, access.CURATOR_SECONDS)

    return _session(request, access.CURATOR, await _store(request).write(job), access.CURATOR_SECONDS)


@router.post("/api/session/participant", tags=["sessions"])
async def join(request: Request, body: Invitation) -> Response:
    """Exchange an invitation, or the link to come back, for a session."""
    access.attempt(request)
    _paced(request, body.token)

    def job(transaction: store.Transaction) -> str:
        person = answers.enter(transaction, body.token)
        return access.open_session(transaction, person, access.PERSON_SECONDS)

    return _session(request, access.PARTICIPANT, await _store(request).write(job), access.PERSON_SECONDS)


@router.delete("/api/session/{kind}", tags=["sessions"])
async def sign_out(request: Request, kind: str) -> Response:
    """Forget a session: `curator` or `participant`."""
    names = {"curator": access.CURATOR, "participant": access.PARTICIPANT}
    if kind not in names:
        raise RefusedError(404)
    token = access.session_token(request, names[kind])
    await _store(request).write(lambda transaction: access.close_session(transaction, token))
    response = JSONResponse({"signed_out": True})
    access.set_cookie(response, names[kind], "", 0, request.app.state.settings)  # with its attributes, else it stays
    return response


def _session(request: Request, kind: str, token: str, seconds: int) -> Response:
    response = JSONResponse({"csrf": keys.csrf_of(token)})
    access.set_cookie(response, kind, token, seconds, request.app.state.settings)
    return response


# ---------------------------------------------------------------------------------------------------------
# The curator


@router.get("/api/studies", tags=["curator"], dependencies=[CURATOR])
async def study_list(request: Request) -> list[dict[str, Any]]:
    """List all studies with how many people joined each."""
    found = await _store(request).read(lambda connection: studies.every(connection.execute))
    joined = request.app.state.joined
    return [{**study.to_dict(), "n": sum(joined.of(study.id).values())} for study in found]


@router.post("/api/studies", tags=["curator"], dependencies=[CURATOR], status_code=201)
async def create(request: Request, body: NewStudy) -> dict[str, Any]:
    """Create a study."""
    study = await _store(request).write(lambda transaction: studies.create(transaction, body))
    return study.to_dict()


@router.get("/api/studies/{study}", tags=["curator"], dependencies=[CURATOR])
async def dashboard(request: Request, study: str) -> dict[str, Any]:
    """Return what is public about a study while people join: counts, saturation, error, certificate, frontier."""
    found = await _store(request).read(lambda connection: studies.shown(connection.execute, study))
    return await run_in_threadpool(insight.live, found, request.app.state.joined.of(study))


@router.get("/api/studies/{study}/what-if", tags=["curator"], dependencies=[CURATOR])
async def what_if(
    request: Request,
    study: str,
    people: Annotated[int, Query(ge=1, le=10**6)],
    tier: Annotated[str | None, Query(max_length=40)] = None,
    epsilon: Annotated[float | None, Query(ge=0, le=1e6, allow_inf_nan=False)] = None,
) -> dict[str, Any]:
    """Return the main figures now and if so many more people made one choice."""
    found = await _store(request).read(lambda connection: studies.shown(connection.execute, study))
    level = found.level(tier, epsilon)
    return await run_in_threadpool(insight.what_if, found, request.app.state.joined.of(study), level, people)


@router.get("/api/studies/{study}/events", tags=["curator"], dependencies=[CURATOR])
async def events(request: Request, study: str) -> list[dict[str, Any]]:
    """Return the audit log of a study: public events, the newest first."""
    return await _store(request).read(lambda connection: studies.events(connection.execute, study))


@router.post("/api/studies/{study}/invitations", tags=["curator"], dependencies=[CURATOR], status_code=201)
async def invite(request: Request, study: str, body: Invitations) -> Response:
    """Make single-use invitation links; as CSV if the Accept header asks for it. They are shown this once."""
    tokens = await _store(request).write(lambda transaction: studies.invite(transaction, study, body.count))
    links = [f"{origin(request)}/join#{token}" for token in tokens]
    if "text/csv" not in request.headers.get("accept", ""):
        return JSONResponse({"links": links}, 201)
    text = io.StringIO()
    csv.writer(text).writerows([["invitation"], *([link] for link in links)])
    return PlainTextResponse(text.getvalue(), 201, media_type="text/csv")


@router.post("/api/studies/{study}/publish", tags=["curator"], dependencies=[CURATOR])
async def publish_wave(request: Request, study: str, body: Publication) -> dict[str, Any]:
    """Close a wave and publish its result, once. The answer comes on a public tick, whatever happened."""
    start, tick = time.monotonic(), request.app.state.settings.tick
    publisher: publish.Publisher = request.app.state.publisher
    try:
        return await run_in_threadpool(publisher.publish, study, body.wave)
    finally:
        passed = time.monotonic() - start
        await asyncio.sleep(math.ceil(passed / tick) * tick - passed if tick else 0)


@router.post("/api/curator/key", tags=["curator"], dependencies=[CURATOR])
async def rotate(request: Request) -> dict[str, str]:
    """Replace the curator's key; every session of the curator ends. The new key is shown this once."""
    from .start import new_key

    return {"key": await _store(request).write(new_key)}
