"""The application: its parts put together, and the HTTP API. The pages, which show what it answers, are in `pages`.

A handler parses, calls one verb, answers.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import math
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, Query, Request
from pydantic import Field
from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from hetdp import __version__
from hetdp.core.domain import epsilon_of
from hetdp.errors import HetdpError, InputError

from . import access, check, dashboard, importing, people, publish, results, rotate, studies, tables
from .access import DOCUMENTED, SAFE, Guard, Rates, RefusedError, StrictRoute, pace
from .fields import NewAnswer, Strict
from .settings import Settings
from .store import ChangedError, Register, Store
from .studies import MOST_WAVES, NewStudy

log = logging.getLogger("hetdp.server")
api = APIRouter(route_class=StrictRoute)
CURATOR = Depends(access.curator)
Curator = Annotated[str, CURATOR]  # the name
COOKIES = {"curator": access.CURATOR, "participant": access.PARTICIPANT}
_FROM_ZERO = "Waves count from 0 here and in files; pages and messages call the first one 1."
WaveNumber = Annotated[int | None, Query(ge=0, le=MOST_WAVES, description=_FROM_ZERO)]
_AS_CSV: dict[int | str, dict[str, Any]] = {200: {"content": {"text/csv": {"schema": {"type": "string"}}}}}
_CSV = {"requestBody": {"content": {"text/csv": {"schema": {"type": "string"}}}, "required": True}}


def create_app(settings: Settings) -> FastAPI:
    """Return the server as an ASGI application; `app.state.first_key` is the curator's key at the first start."""
    from . import pages  # it asks the handlers below, so it can be imported only after them
    from .backup import before_upgrade, not_lost

    app = FastAPI(
        title="hetdp",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        lifespan=_lifespan,
        redirect_slashes=False,
        responses=DOCUMENTED,
    )
    not_lost(settings)
    state, vault = app.state, settings.vault()
    database = Store(settings, Register(settings.register_file, vault.register_key))
    state.settings, state.vault, state.store, state.rates = settings, vault, database, Rates()
    try:
        database.claim()
        state.upgraded = before_upgrade(settings)
        database.write(tables.prepare, vault.fingerprint, trusted=settings.trust_database)
        rotate.forget(settings.register_file)  # the key in use is the right one, and no answer was changed yet
        state.first_key = None if database.read(people.curators) else database.write(people.new_key)
        state.publisher = publish.Publisher(
            database, vault, tables.open_ledger(settings, database), notice=86_400 * settings.notice_days
        )
    except BaseException:  # whatever it is, the database and its lock are released
        database.close()
        raise
    app.add_middleware(Guard, settings=settings)
    if settings.root:
        app.add_middleware(UnderPath, root=settings.root)
    app.include_router(api)
    app.include_router(check.status)
    pages.add(app)
    return app


class UnderPath:
    """Serves the application under a path: a proxy may pass the path on, or take it away; both reach the same page."""

    def __init__(self, app: ASGIApp, root: str) -> None:
        self.app, self.root = app, root

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Take the path away before anything else looks at the request."""
        if scope["type"] == "http" and (scope["path"] == self.root or scope["path"].startswith(f"{self.root}/")):
            scope = {**scope, "path": scope["path"][len(self.root) :] or "/"}
        await self.app(scope, receive, send)


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    await run_in_threadpool(importing.clear, app.state.store)
    await run_in_threadpool(app.state.publisher.resume)
    looking = asyncio.create_task(_look_hourly(app))
    log.info("started")
    yield
    looking.cancel()
    await run_in_threadpool(close, app)
    log.info("stopped")


async def _look_hourly(app: FastAPI) -> None:
    for hour in itertools.count():
        await run_in_threadpool(look, app, resume=hour > 0)  # at the start that was done before
        await asyncio.sleep(3600)  # seconds


def look(app: FastAPI, *, resume: bool = True) -> None:
    """Finish publications that failed after their numbers were drawn, and delete answers whose date has passed.

    Both are done every hour, so that the promises of the pages need nobody's click.
    """
    try:
        if resume:
            app.state.publisher.resume()
        app.state.store.write(publish.expire)
        if app.state.store.leftovers:
            app.state.store.leftovers = False
            rotate.scrub(app.state.settings.database)
    except Exception as error:  # noqa: BLE001  whatever it is, it is tried again
        log.warning("answers not deleted yet", extra={"facts": {"error": type(error).__name__}})


def close(app: FastAPI) -> None:
    """Finish what is under way and close everything."""
    app.state.publisher.close()
    app.state.store.close()


# ---------------------------------------------------------------------------------------------------------
# Request bodies, and what handlers share


class CuratorKey(Strict):
    """The key of a curator: that of the first start, or one that was made later."""

    key: Annotated[str, Field(min_length=1, max_length=200)]


class Invitation(Strict):
    """The part of an invitation link behind the #, or that of the link to come back."""

    token: Annotated[str, Field(min_length=1, max_length=200)]


class Invitations(Strict):
    """How many invitations to make."""

    count: Annotated[int, Field(ge=1, le=10_000)]


class NewCurator(Strict):
    """The name of a further curator, as the log will have it."""

    name: Annotated[str, Field(min_length=1, max_length=40, pattern="^[a-z0-9_-]+$")]


class Handed(Strict):
    """An invitation, or a link to come back, that its person has handed over: all of it, or what is behind the #."""

    link: Annotated[str, Field(min_length=1, max_length=400)]


class Publication(Strict):
    """Which wave to publish or to close early: publishing it twice gives the same result."""

    wave: Annotated[int, Field(ge=0, le=MOST_WAVES, description=_FROM_ZERO)] = 0


def _store(request: Request) -> Store:
    database: Store = request.app.state.store
    return database


def _link(request: Request, token: str) -> str:
    """Return a link for one person. Behind the # it is sent to no server, so that no log has it."""
    origin = request.app.state.settings.origin or f"{request.url.scheme}://{request.headers['host']}"
    return f"{origin}/join#{token}"


def _pace_person(request: Request, token: str) -> None:
    pace(request, "person", request.app.state.settings.per_person, access.digest("rate", token))


async def _participant(request: Request) -> str:
    """Return a participant's session token; changes count towards their limit per minute."""
    token = access.session_token(request, access.PARTICIPANT)
    if request.method not in SAFE:
        _pace_person(request, token)
    return token


Participant = Annotated[str, Depends(_participant)]


# ---------------------------------------------------------------------------------------------------------
# Participants


@api.get("/api/answer", tags=["participant"])
def my_study(request: Request, token: Participant) -> dict[str, Any]:
    """Return the questions, the privacy choices with what each promises, what this person chose and has spent."""
    database = _store(request)
    try:
        study, mine = database.read(people.seen, token, changed=False)
    except ChangedError:
        study, mine = database.read(people.seen, token, changed=True)
    if request.app.state.publisher.passed(study):
        return my_study(request, token)
    joined = database.read(studies.joined, study)
    own = mine["choice"] and epsilon_of(mine["choice"]["epsilon"])
    spent = _spent(request, mine.pop("person"))
    mine["may_send"] &= spent is not None  # without it there is no limit to promise
    return {
        "study": study.to_dict(),
        **mine,
        "n": sum(joined.values()),
        "choices": dashboard.choices(study, own, spent or 0.0),
        "balance": dashboard.balance(study, own, spent, answered=mine["answered_this_wave"]),
        "split": dashboard.split(study),
        "language": study.language,
    }


def _spent(request: Request, person: str) -> float | None:
    """Return what the ledger has charged to a person so far, in ε; None if it cannot be read now."""
    try:
        return float(request.app.state.publisher.ledger.balance(person).spent)
    except InputError:  # not enrolled: no wave with an answer of theirs was charged
        return 0.0
    except HetdpError:
        return None


@api.put("/api/answer", tags=["participant"])
def send(request: Request, token: Participant, body: NewAnswer) -> dict[str, Any]:
    """Send or change an answer. Whatever is said, the receipt is the same; it is never shown again."""
    receipt = _store(request).write(studies.send, request.app.state.vault, token, body)
    again = receipt.pop("again")
    return {**receipt, "come_back": _link(request, again) if again else None}


@api.delete("/api/answer", tags=["participant"])
def withdraw(
    request: Request,
    token: Participant,
    everything: bool = False,  # noqa: FBT001, FBT002  a query parameter
) -> dict[str, Any]:
    """Withdraw: the sealed answer and the choice are deleted; with `everything`, the link too."""
    return _store(request).write(people.withdraw, token, everything=everything)


# ---------------------------------------------------------------------------------------------------------
# Everybody


@api.get("/api/results", tags=["everybody"])
def result_list(request: Request) -> list[dict[str, Any]]:
    """List the studies that have published."""
    return _store(request).read(results.published)


@api.get("/api/results/{study}.csv", tags=["everybody"], response_class=Response, responses=_AS_CSV)
def result_csv(request: Request, study: str) -> Response:
    """Return all published results of a study as CSV: a row for a question, or for a choice of it, of each wave."""
    return Response(_store(request).read(results.as_csv, study), media_type="text/csv")


@api.get("/api/results/{study}", tags=["everybody"])
def result(request: Request, study: str, wave: WaveNumber = None) -> dict[str, Any]:
    """Return a published result: the latest, or that of one wave."""
    return _store(request).read(results.stored, study, wave)


@api.post("/api/explore", tags=["everybody"])
def compare(request: Request, body: dashboard.Mix) -> dict[str, Any]:
    """Compare all methods for a population, and trace each over the number of people and over the last ε."""
    pace(request, "explore", min(dashboard.REQUESTS_PER_MINUTE, request.app.state.settings.per_address))
    return dashboard.explore(body)


# ---------------------------------------------------------------------------------------------------------
# Sessions


@api.post("/api/session/curator", tags=["sessions"])
def sign_in(request: Request, body: CuratorKey) -> Response:
    """Exchange a curator's key for a session."""
    pace(request, "attempt", request.app.state.settings.attempts)
    token = _store(request).write(access.sign_in, body.key)
    return _with_cookie(request, access.CURATOR, token)


@api.post("/api/session/participant", tags=["sessions"])
def join(request: Request, body: Invitation) -> Response:
    """Exchange an invitation, or the link to come back, for a session."""
    pace(request, "join", request.app.state.settings.joins)
    _pace_person(request, body.token)
    token = _store(request).write(people.enter, body.token)
    return _with_cookie(request, access.PARTICIPANT, token)


@api.delete("/api/session/{kind}", tags=["sessions"])
def sign_out(request: Request, kind: str) -> Response:
    """End all sessions of the person whose session this is, as `curator` or as `participant`."""
    if kind not in COOKIES:
        raise RefusedError(404)
    _store(request).write(access.close_session, COOKIES[kind], access.session_token(request, COOKIES[kind]))
    return _with_cookie(request, COOKIES[kind], None)


def _with_cookie(request: Request, kind: str, token: str | None) -> Response:
    """Return an answer that sets or removes a session's cookie.

    No script can read it, and no page of another site sends it.
    """
    settings, name = request.app.state.settings, access.cookie_name(kind, request.app.state.settings)
    response = JSONResponse({"csrf": access.csrf_of(token)} if token else {"signed_out": True})
    seconds = access.SECONDS[kind] if token else 0  # one that is removed needs its attributes too, else it stays
    shown = {"httponly": True, "samesite": "strict", "secure": settings.secure, "path": settings.root or "/"}
    response.set_cookie(name, token or "", max_age=seconds, **shown)
    return response


# ---------------------------------------------------------------------------------------------------------
# Curators


@api.get("/api/studies", tags=["curator"], dependencies=[CURATOR])
def study_list(request: Request) -> list[dict[str, Any]]:
    """List all studies with how many people joined each."""
    database = _store(request)
    every = database.read(people.every)
    counts = [sum(database.read(studies.joined, study).values()) for study in every]
    return [{**database.read(studies.facts, study), "n": n} for study, n in zip(every, counts, strict=True)]


@api.post("/api/studies", tags=["curator"], status_code=201)
def create(request: Request, by: Curator, body: NewStudy) -> dict[str, Any]:
    """Create a study."""
    return _store(request).write_as(by, studies.create, body).to_dict()


@api.get("/api/studies/{study}", tags=["curator"], dependencies=[CURATOR])
def live(request: Request, study: str) -> dict[str, Any]:
    """Return what is public about a study while people join: counts, what the ledger says, and each question's plan."""
    database = _store(request)
    found = database.read(studies.shown, study)
    if request.app.state.publisher.passed(found):
        found = database.read(studies.shown, study)
    joined, imported = database.read(studies.joined, found), database.read(importing.from_files, found)
    figures = dashboard.live(found, joined, imported, _balances(request, found))
    last = publish.following(found, request.app.state.publisher.notice)[1]  # if it was published now
    return {**figures, "last": last, "study": database.read(studies.facts, found)}


def _balances(request: Request, study: studies.Study) -> list[dict[str, Any]] | None:
    known = request.app.state.publisher.balances(study.id)
    return dashboard.balances(_store(request).read(people.levels, study) if known else {}, known)


@api.get("/api/studies/{study}/what-if", tags=["curator"], dependencies=[CURATOR])
def what_if(
    request: Request,
    study: str,
    people: Annotated[int, Query(ge=1, le=10**6)],
    tier: Annotated[str | None, Query(max_length=40)] = None,
    epsilon: Annotated[float | None, Query(ge=0, le=1e6, allow_inf_nan=False)] = None,
) -> dict[str, Any]:
    """Return the main figures now and if so many more people made one choice."""
    database = _store(request)
    found = database.read(studies.shown, study)
    ledger = _balances(request, found)
    if ledger is None:
        raise RefusedError(503, "ledger", "The ledger cannot be read now, so what is left to use is not known.")
    alike = dashboard.entering(database.read(studies.joined, found), ledger)
    return dashboard.what_if(found, alike, found.level(tier, epsilon), people)


@api.get("/api/studies/{study}/events", tags=["curator"], dependencies=[CURATOR])
def events(request: Request, study: str) -> list[dict[str, Any]]:
    """Return the audit log of a study: public events, the newest first, each with the name of the curator."""
    return _store(request).read(people.events, study)


@api.get("/api/studies/{study}/invitations", tags=["curator"], dependencies=[CURATOR])
def invitations(request: Request, study: str) -> dict[str, int]:
    """Count the invitations of a study: made, used, open, revoked, deleted."""
    return _store(request).read(people.invitations, study)


@api.post("/api/studies/{study}/invitations", tags=["curator"], status_code=201)
def invite(request: Request, by: Curator, study: str, body: Invitations) -> dict[str, Any]:
    """Make single-use invitation links. They are shown this once; their public numbers count up from `first`."""
    made = _store(request).write_as(by, people.invite, study, body.count)
    return {"links": [_link(request, token) for token in made.pop("tokens")], **made}


@api.delete("/api/studies/{study}/invitations", tags=["curator"])
def revoke(
    request: Request, by: Curator, study: str, number: Annotated[int | None, Query(ge=1, le=10**9)] = None
) -> dict[str, int]:
    """Revoke all open invitations, or the one of this number."""
    return _store(request).write_as(by, people.revoke, study, number)


async def _csv_body(request: Request) -> bytes:
    if request.headers.get("content-type", "").partition(";")[0].strip() != "text/csv":
        raise RefusedError(415)
    return await request.body()


@api.post("/api/studies/{study}/rows", tags=["curator"], status_code=201, openapi_extra=_CSV)
def import_rows(
    request: Request, by: Curator, study: str, body: Annotated[bytes, Depends(_csv_body)]
) -> dict[str, int]:
    """Import people from CSV: a column for each question, and `tier` or `epsilon`.

    The same content twice from one curator is one import; in a study that asks again, one in each wave.
    """
    database = _store(request)
    found = importing.taking(database.read(studies.get, study))
    file, rows = importing.read_rows(body, found, request.app.state.vault, by)
    return importing.add(partial(database.write_as, by), study, file, rows)


@api.get("/api/studies/{study}/rows", tags=["curator"], dependencies=[CURATOR])
def imported(request: Request, study: str) -> list[dict[str, Any]]:
    """List the files that were imported and not deleted."""
    return _store(request).read(importing.imports, study)


@api.delete("/api/studies/{study}/rows/{file}", tags=["curator"])
def delete_import(request: Request, by: Curator, study: str, file: str) -> dict[str, bool]:
    """Delete the people of an imported file, until the wave closes."""
    return _store(request).write_as(by, importing.delete_import, study, file)


@api.delete("/api/studies/{study}/people", tags=["curator"])
def erase_person(request: Request, by: Curator, study: str, body: Handed) -> dict[str, Any]:
    """Delete all about a person who has handed over their link for that. What was published, and its cost, stays."""
    return _store(request).write_as(by, people.erase_by_link, study, body.link)


@api.delete("/api/studies/{study}", tags=["curator"])
def delete_study(request: Request, by: Curator, study: str) -> dict[str, bool]:
    """Delete all that people sent to a study, with its links. What was published, and what it cost, stays."""
    return _store(request).write_as(by, people.delete_study, study)


@api.post("/api/studies/{study}/publish", tags=["curator"])
def publish_wave(request: Request, by: Curator, study: str, body: Publication) -> dict[str, Any]:
    """Publish the result of a closed wave, once. The answer comes on a public tick, whatever happened."""
    start, tick = time.monotonic(), request.app.state.settings.tick
    publisher: publish.Publisher = request.app.state.publisher
    try:
        return publisher.publish(study, body.wave, by)
    finally:
        passed = time.monotonic() - start
        time.sleep(math.ceil(passed / tick) * tick - passed if tick else 0)


@api.post("/api/studies/{study}/close", tags=["curator"])
def close_early(request: Request, by: Curator, study: str, body: Publication) -> dict[str, Any]:
    """Bring the closing date of the open wave forward: it is announced, and leaves people time to withdraw."""
    notice = request.app.state.publisher.notice
    return _store(request).write_as(by, people.close_early, study, body.wave, notice).to_dict()


@api.post("/api/curator/key", tags=["curator"])
def new_key(request: Request, by: Curator) -> dict[str, str]:
    """Replace one's own key; all one's sessions end. The new key is shown this once."""
    return {"key": _store(request).write_as(by, people.new_key, by)}


@api.get("/api/curators", tags=["curator"])
def curators(request: Request, by: Curator) -> list[dict[str, Any]]:
    """List the curators."""
    return [{"name": name, "you": name == by} for name in _store(request).read(people.curators)]


@api.post("/api/curators", tags=["curator"], status_code=201)
def add_curator(request: Request, by: Curator, body: NewCurator) -> dict[str, str]:
    """Make a further curator. The key is shown this once."""
    return {"name": body.name, "key": _store(request).write_as(by, people.add_curator, body.name)}


@api.delete("/api/curators/{name}", tags=["curator"])
def remove_curator(request: Request, by: Curator, name: str) -> dict[str, bool]:
    """Remove another curator, whose key and sessions end."""
    return _store(request).write_as(by, people.remove_curator, name)
