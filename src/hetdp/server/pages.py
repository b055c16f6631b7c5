"""The same data as HTML: every page asks the handler of the API and puts its answer into a template."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from markupsafe import Markup
from starlette.responses import JSONResponse, RedirectResponse, Response

from hetdp.report import text

from . import access, api, explore, keys

router = APIRouter(include_in_schema=False)
_FOLDER = Path(__file__).parent / "templates"


@lru_cache(maxsize=1)
def _environment() -> Any:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(loader=FileSystemLoader(_FOLDER), autoescape=True, undefined=StrictUndefined)
    environment.filters |= {
        "number": text.number,
        "epsilon": lambda x: text.epsilon(_float(x)),
        "spent": lambda x: text.spent_epsilon(_float(x)),
        "percent": text.percent,
        "when": _when,
        "float": _float,
    }
    return environment


def _float(x: float | str) -> float:
    return math.inf if isinstance(x, str) else x


def _when(seconds: int) -> Markup:
    """Return a time that a script turns into the reader's own; without it, it is UTC."""
    at = datetime.fromtimestamp(seconds, UTC)
    return Markup('<time datetime="{}">{}</time>').format(at.isoformat(), at.strftime("%d %b %Y, %H:%M UTC"))


def render(request: Request, template: str, status: int = 200, **data: Any) -> Response:
    """Return a page; it carries the CSRF token of the session it was made for."""
    token = request.cookies.get(access.cookie_name(data.pop("session", access.CURATOR), request.app.state.settings), "")
    signed_in = access.cookie_name(access.CURATOR, request.app.state.settings) in request.cookies
    csrf = keys.csrf_of(token) if token else ""
    html = _environment().get_template(template).render(csrf=csrf, signed_in=signed_in, **data)
    return Response(html, status, media_type="text/html")


def error(request: Request, status: int, body: dict[str, Any]) -> Response:
    """Return an error: JSON to a program, a page to a person; one who must sign in is led there."""
    path = request.url.path
    if path.startswith(("/api/", "/openapi")) or request.method not in {"GET", "HEAD"}:
        return JSONResponse(body, status)
    if status == 401 and path.startswith("/curator"):
        return RedirectResponse("/sign-in", 303)
    return render(request, "error.html", status, error=body["error"], invited=path == "/answer" and status == 401)


@router.get("/")
async def home(request: Request) -> Response:
    """Say what this is, and list what was published."""
    return render(request, "home.html", results=await api.result_list(request))


@router.get("/sign-in")
async def sign_in(request: Request) -> Response:
    """Ask for the curator's key."""
    return render(request, "sign_in.html")


@router.get("/curator", dependencies=[api.CURATOR])
async def curator(request: Request) -> Response:
    """List the studies."""
    return render(request, "curator.html", studies=await api.study_list(request))


@router.get("/curator/new", dependencies=[api.CURATOR])
async def new(request: Request) -> Response:
    """Show the form for a new study."""
    return render(request, "new.html")


@router.get("/curator/studies/{study}", dependencies=[api.CURATOR])
async def study(request: Request, study: str) -> Response:
    """Show a study as people join."""
    data = await api.dashboard(request, study)
    return render(request, "study.html", events=await api.events(request, study), **data, live=data)


@router.get("/curator/studies/{study}/live", dependencies=[api.CURATOR])
async def live(request: Request, study: str) -> Response:
    """Return the part of that page that changes."""
    return render(request, "live.html", live=await api.dashboard(request, study))


@router.get("/join")
async def join(request: Request) -> Response:
    """Take the token behind the # and exchange it for a session; it never was in an address that is sent."""
    return render(request, "join.html", session=access.PARTICIPANT)


@router.get("/answer")
async def answer(request: Request) -> Response:
    """Ask the question."""
    return render(request, "answer.html", session=access.PARTICIPANT, mine=await api.my_study(request))


@router.get("/results/{study}")
async def result(request: Request, study: str, wave: Annotated[int | None, Query(ge=0, le=100)] = None) -> Response:
    """Show a published result."""
    data = await api.result(request, study, wave)
    return render(request, "result.html", **data)


@router.get("/explore")
def explorer(request: Request) -> Response:
    """Show the interactive page of the paper."""
    return render(request, "explore.html", start=explore.START)
