"""The pages for people: each shows what the API answers, in words. No page shows an answer."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.staticfiles import StaticFiles

from hetdp.core.domain import epsilon_of
from hetdp.errors import InputError
from hetdp.report import numbers

from . import access, app, dashboard
from .access import RefusedError
from .app import CURATOR, Participant, WaveNumber

pages = APIRouter(include_in_schema=False)
_FOLDER = Path(__file__).parent


def add(server: FastAPI) -> None:
    """Add the pages, their scripts and styles, and the wording of errors to the server."""
    server.include_router(pages)
    server.mount("/static", StaticFiles(directory=_FOLDER / "static"))
    for kind in (HTTPException, RequestValidationError, InputError):
        server.add_exception_handler(kind, _refused)


async def _refused(request: Request, error: Exception) -> Response:
    """Return an error: JSON for a program, a page for a person; a curator who must sign in is redirected."""
    refusal, path = RefusedError.of(error), request.url.path
    status, body = refusal.status_code, refusal.body(request.state.request_id)
    if path.startswith(("/api/", "/openapi")) or request.method not in {"GET", "HEAD"}:
        return JSONResponse(body, status)
    if status == 401 and path.startswith("/curator"):
        return RedirectResponse("/sign-in", 303)
    invited = path == "/answer" and status == 401
    return _page(request, "error.html", status, error=body["error"], invited=invited)


def _when(seconds: int) -> Markup:
    """Return a time that a script turns into the reader's own; without it, it is UTC."""
    at = datetime.fromtimestamp(seconds, UTC)
    return Markup('<time datetime="{}">{}</time>').format(at.isoformat(), access.date(seconds))


_TEMPLATES = Environment(loader=FileSystemLoader(_FOLDER / "templates"), autoescape=True, undefined=StrictUndefined)
_TEMPLATES.filters |= {
    "number": numbers.number,
    "epsilon": lambda x: numbers.epsilon(epsilon_of(x)),
    "spent": lambda x: numbers.spent_epsilon(epsilon_of(x)),
    "when": _when,
    "float": epsilon_of,
}


def _page(request: Request, template: str, status: int = 200, session: str = access.CURATOR, **data: Any) -> Response:
    """Return a page; it carries the CSRF token of the session it was made for."""
    settings = request.app.state.settings
    token = request.cookies.get(access.cookie_name(session, settings), "")
    csrf = access.csrf_of(token) if token else ""
    signed_in = access.cookie_name(access.CURATOR, settings) in request.cookies
    html = _TEMPLATES.get_template(template).render(csrf=csrf, signed_in=signed_in, **data)
    return Response(html, status, media_type="text/html")


@pages.get("/")
def home_page(request: Request) -> Response:
    """Say what this is, and list what was published."""
    return _page(request, "home.html", results=app.result_list(request))


@pages.get("/sign-in")
def sign_in_page(request: Request) -> Response:
    """Ask for the curator's key."""
    return _page(request, "sign_in.html")


@pages.get("/curator", dependencies=[CURATOR])
def curator_page(request: Request) -> Response:
    """List the studies."""
    return _page(request, "curator.html", studies=app.study_list(request))


@pages.get("/curator/new", dependencies=[CURATOR])
def new_page(request: Request) -> Response:
    """Show the form for a new study."""
    return _page(request, "new.html")


@pages.get("/curator/studies/{study}", dependencies=[CURATOR])
def study_page(request: Request, study: str) -> Response:
    """Show a study as people join."""
    data = app.live(request, study)
    more = {"notice_days": request.app.state.settings.notice_days, "imports": app.imported(request, study)}
    return _page(request, "study.html", events=app.events(request, study), study=data["study"], live=data, **more)


@pages.get("/curator/studies/{study}/live", dependencies=[CURATOR])
def live_page(request: Request, study: str) -> Response:
    """Return the part of that page that changes."""
    return _page(request, "live.html", live=app.live(request, study))


@pages.get("/join")
def join_page(request: Request) -> Response:
    """Take the token behind the # and exchange it for a session; it never was in an address that is sent."""
    return _page(request, "join.html", session=access.PARTICIPANT)


@pages.get("/answer")
def answer_page(request: Request, token: Participant) -> Response:
    """Ask the question."""
    return _page(request, "answer.html", session=access.PARTICIPANT, mine=app.my_study(request, token))


@pages.get("/results/{study}")
def result_page(request: Request, study: str, wave: WaveNumber = None) -> Response:
    """Show a published result."""
    return _page(request, "result.html", **app.result(request, study, wave))


@pages.get("/explore")
def explore_page(request: Request) -> Response:
    """Show the interactive page of the paper."""
    return _page(request, "explore.html", start=dashboard.START)
