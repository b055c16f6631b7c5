"""The application: its parts put together, and the pages, which show what the API answers."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from markupsafe import Markup
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.staticfiles import StaticFiles

from hetdp import __version__
from hetdp.core.domain import epsilon_of
from hetdp.errors import InputError
from hetdp.report import text
from hetdp.statistics.mean import mean

from . import access, api, explore, publish, store
from .guard import DOCUMENTED, Guard, Rates, RefusedError
from .register import Register
from .settings import Settings

log = logging.getLogger("hetdp.server")
pages = APIRouter(include_in_schema=False)
_FOLDER = Path(__file__).parent


def create_app(settings: Settings) -> FastAPI:
    """Return the server as an ASGI application; `app.state.first_key` is the curator's key at the first start."""
    app = FastAPI(
        title="hetdp",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        lifespan=_lifespan,
        redirect_slashes=False,
        responses=DOCUMENTED,
    )
    state, vault = app.state, access.Vault.of(settings)
    database = store.Store(settings, Register(settings.register_file, vault))
    state.settings, state.vault, state.store = settings, vault, database
    state.rates, state.explorer = Rates(), explore.Explorer()
    try:
        database.claim()
        store.prepare(database, vault.fingerprint, trusted=settings.trust_database)
        state.first_key = database.write(access.first_key)
        state.publisher = publish.Publisher(database, vault, publish.open_ledger(settings, database))
    except BaseException:  # whatever it is, the database and its lock are released
        database.close()
        raise
    app.add_middleware(Guard, settings=settings, rates=state.rates)
    app.include_router(api.router)
    app.include_router(pages)
    app.mount("/static", StaticFiles(directory=_FOLDER / "static"))
    for kind in (HTTPException, RequestValidationError, InputError):
        app.add_exception_handler(kind, _refused)
    return app


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    await run_in_threadpool(_warm)
    await run_in_threadpool(app.state.publisher.resume)
    log.info("started")
    yield
    await run_in_threadpool(close, app)
    log.info("stopped")


def close(app: FastAPI) -> None:
    """Finish what is under way and close everything."""
    app.state.publisher.close()
    app.state.store.close()


def _warm() -> None:
    """Load the libraries of a release before anybody waits for one: a mean of nothing private."""
    mean([0.0, 1.0] * 50, epsilon=[1.0] * 100, bounds=(0, 1)).to_dict()


async def _refused(request: Request, error: Exception) -> Response:
    """Return an error: JSON to a program, a page to a person; one who must sign in is led there."""
    refusal, path = RefusedError.of(error), request.url.path
    status, body = refusal.status_code, refusal.body(request.state.request_id)
    if path.startswith(("/api/", "/openapi")) or request.method not in {"GET", "HEAD"}:
        return JSONResponse(body, status)
    if status == 401 and path.startswith("/curator"):
        return RedirectResponse("/sign-in", 303)
    invited = path == "/answer" and status == 401
    return _page(request, "error.html", status, error=body["error"], invited=invited)


# ---------------------------------------------------------------------------------------------------------
# Pages


@lru_cache(maxsize=1)
def _environment() -> Any:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    loader = FileSystemLoader(_FOLDER / "templates")
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined)
    environment.filters |= {
        "number": text.number,
        "epsilon": lambda x: text.epsilon(epsilon_of(x)),
        "spent": lambda x: text.spent_epsilon(epsilon_of(x)),
        "when": _when,
        "float": epsilon_of,
    }
    return environment


def _when(seconds: int) -> Markup:
    """Return a time that a script turns into the reader's own; without it, it is UTC."""
    at = datetime.fromtimestamp(seconds, UTC)
    return Markup('<time datetime="{}">{}</time>').format(at.isoformat(), at.strftime("%d %b %Y, %H:%M UTC"))


def _page(request: Request, template: str, status: int = 200, session: str = access.CURATOR, **data: Any) -> Response:
    """Return a page; it carries the CSRF token of the session it was made for."""
    settings = request.app.state.settings
    token = request.cookies.get(access.cookie_name(session, settings), "")
    csrf = access.csrf_of(token) if token else ""
    signed_in = access.cookie_name(access.CURATOR, settings) in request.cookies
    html = _environment().get_template(template).render(csrf=csrf, signed_in=signed_in, **data)
    return Response(html, status, media_type="text/html")


@pages.get("/")
def home(request: Request) -> Response:
    """Say what this is, and list what was published."""
    return _page(request, "home.html", results=api.result_list(request))


@pages.get("/sign-in")
def sign_in(request: Request) -> Response:
    """Ask for the curator's key."""
    return _page(request, "sign_in.html")


@pages.get("/curator", dependencies=[api.CURATOR])
def curator(request: Request) -> Response:
    """List the studies."""
    return _page(request, "curator.html", studies=api.study_list(request))


@pages.get("/curator/new", dependencies=[api.CURATOR])
def new(request: Request) -> Response:
    """Show the form for a new study."""
    return _page(request, "new.html")


@pages.get("/curator/studies/{study}", dependencies=[api.CURATOR])
def study(request: Request, study: str) -> Response:
    """Show a study as people join."""
    data = api.live(request, study)
    return _page(request, "study.html", events=api.events(request, study), study=data["study"], live=data)


@pages.get("/curator/studies/{study}/live", dependencies=[api.CURATOR])
def live(request: Request, study: str) -> Response:
    """Return the part of that page that changes."""
    return _page(request, "live.html", live=api.live(request, study))


@pages.get("/join")
def join(request: Request) -> Response:
    """Take the token behind the # and exchange it for a session; it never was in an address that is sent."""
    return _page(request, "join.html", session=access.PARTICIPANT)


@pages.get("/answer")
def answer(request: Request) -> Response:
    """Ask the question."""
    return _page(request, "answer.html", session=access.PARTICIPANT, mine=api.my_study(request))


@pages.get("/results/{study}")
def result(request: Request, study: str, wave: Annotated[int | None, Query(ge=0, le=100)] = None) -> Response:
    """Show a published result."""
    return _page(request, "result.html", **api.result(request, study, wave))


@pages.get("/explore")
def explorer(request: Request) -> Response:
    """Show the interactive page of the paper."""
    return _page(request, "explore.html", start=explore.START)
