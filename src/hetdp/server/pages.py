"""The pages for people: each shows what the API answers, in the words of one language. No page shows an answer.

A result can still amount to one: of people who asked for no protection, if it has no noise.
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.staticfiles import StaticFiles

from hetdp.core.domain import epsilon_of
from hetdp.errors import InputError

from . import access, app, check, dashboard, importing, people, results, texts
from .access import RefusedError
from .app import CURATOR, Curator, Participant, WaveNumber
from .texts import Texts

pages = APIRouter(include_in_schema=False)
DAY = 86_400
NEWEST = 200  # events of a log on its page
# Less of an ε than this is left to somebody of whom all was used, up to the rounding.
NEARLY_NOTHING = 1e-5
# What is wrong with a file, by how the library says it.
_ROWS = {
    "error.rows-column": r"the file has no column '(?P<column>[a-z0-9_-]+)'",
    "error.rows-epsilon": r"(?:epsilon (?:cannot be read|is missing)|unknown tier .*) in line (?P<line>\d+) of",
    "error.rows-line": r"line (?P<line>\d+) of the file (?:has|is too short)",
    "error.rows-empty": r"the file is empty",
    "error.rows-nobody": r"the file has no people",
}
_FOLDER = Path(__file__).parent
_TEMPLATES = Environment(loader=FileSystemLoader(_FOLDER / "templates"), autoescape=True, undefined=StrictUndefined)
_TEMPLATES.filters["float"] = epsilon_of


def add(server: FastAPI) -> None:
    """Add the pages, their scripts and styles, and the wording of errors to the server."""
    server.include_router(pages)
    server.mount("/static", StaticFiles(directory=_FOLDER / "static"))
    for kind in (HTTPException, RequestValidationError, InputError, *check.FAILURES):
        server.add_exception_handler(kind, _refused)


async def _refused(request: Request, error: Exception) -> Response:
    """Return an error: JSON for a program, a page for a person; a curator who must sign in is redirected."""
    failed = isinstance(error, check.FAILURES)
    response = _said(request, check.unreachable(request, error) if failed else RefusedError.of(error))
    if failed:
        response.headers["Retry-After"] = "10"
    return response


def _said(request: Request, refusal: RefusedError) -> Response:
    path, status, body = request.url.path, refusal.status_code, refusal.body(request.state.request_id)
    t, reads = texts.chosen(request), f"{refusal.code}-read"
    if request.method in access.SAFE and f"error.{reads}" in t.catalogue:  # nothing was to be done
        body["error"] |= {"code": reads, "message": t(f"error.{reads}")}
    program = t.language == texts.USUAL and "accept-language" not in request.headers and path.startswith("/api/")
    body["error"]["message"] = body["error"]["message"] if program else _worded(t, body["error"])
    if path.startswith("/results/") and refusal.code == "not-found" and "wave" not in request.query_params:
        body["error"]["message"] = t("error.no-results")
    if path == "/api/answer" and status == 401:
        body["error"]["message"] = t("error.reopen")
    if path.startswith(("/api/", "/openapi")) or request.method not in {"GET", "HEAD"}:
        return JSONResponse(body, status)
    if status == 401 and path.startswith("/curator"):
        return RedirectResponse(f"{_root(request)}/sign-in", 303)
    invited = path == "/answer" and status == 401
    return _page(request, "error.html", status, error=body["error"], invited=invited)


def _worded(t: Texts, error: dict[str, Any]) -> str:
    """Return the sentence of an error: of the rule that a field breaks, of its code, or as the API says it."""
    message, facts = error["message"], error.get("facts", {})
    if "rule" in facts:
        shown = {name: t.plain(fact) if isinstance(fact, (int, float)) else fact for name, fact in facts.items()}
        return t.said(f"rule.{facts['rule']}", message, **shown)
    facts = {name: t.date(fact) if name in {"closes", "until"} else fact for name, fact in facts.items()}
    if error["code"] == "rows":
        return _of_rows(t, str(message), facts)
    return t.said(f"error.{error['code']}", message, **facts)


def _of_rows(t: Texts, message: str, facts: dict[str, Any]) -> str:
    """Return what is wrong with a file; what has no words of its own is quoted as the library says it, in English."""
    if facts:
        return t.said("error.rows-range", message, **{name: t.plain(fact) for name, fact in facts.items()})
    for key, said in _ROWS.items():
        if found := re.match(said, message):
            return t.said(key, message, **found.groupdict())
    return t.said("error.rows", message, details=message)


def _root(request: Request) -> str:
    """Return the path under which this site lies, without a slash at its end."""
    return str(request.app.state.settings.root)


def _page(
    request: Request,
    template: str,
    status: int = 200,
    session: str = access.CURATOR,
    t: Texts | None = None,
    scripts: tuple[str, ...] = (),
    **data: Any,
) -> Response:
    """Return a page; it carries the CSRF token of the session it was made for, and the words of its scripts."""
    settings = request.app.state.settings
    token = request.cookies.get(access.cookie_name(session, settings), "")
    about = {
        "t": t or texts.chosen(request),
        "languages": texts.languages(),
        "root": _root(request),
        "now": access.now(),
        "csrf": access.csrf_of(token) if token else "",
        "signed_in": access.cookie_name(access.CURATOR, settings) in request.cookies,
        "scripts": [f"script.{name}." for name in scripts],
    }
    return Response(_TEMPLATES.get_template(template).render(**about, **data), status, media_type="text/html")


@pages.get("/")
def home_page(request: Request) -> Response:
    """Say what this is, and list what was published."""
    return _page(request, "home.html", results=app.result_list(request))


@pages.get("/explore")
def explore_page(request: Request) -> Response:
    """Show the interactive page of the paper."""
    return _page(request, "explore.html", scripts=("explore", "chart"), start=dashboard.START)


# ---------------------------------------------------------------------------------------------------------
# The participant


@pages.get("/join")
def join_page(request: Request) -> Response:
    """Take the token behind the # and exchange it for a session; it never was in an address that is sent."""
    return _page(request, "join.html", session=access.PARTICIPANT, scripts=("join",))


@pages.get("/answer")
def answer_page(request: Request, token: Participant) -> Response:
    """Let one person choose how private their answers stay, then ask, then show what is sent."""
    mine = app.my_study(request, token)
    study = mine["study"]
    t = texts.chosen(request, study["language"])
    asked = {question["name"]: question["text"] for question in study["questions"]}
    mine["split"] = [{**part, "text": asked[part["question"]]} for part in mine["split"]]
    chosen, offers = mine["choice"], [_offer(t, study, choice) for choice in mine["choices"]]
    shown = "" if chosen is None else chosen["tier"] or f"ε = {t.spent(chosen['epsilon'])}"
    data = {
        "mine": mine,
        "offers": offers,
        "limit": next((offer["limit"] for offer in offers if offer["own"]), None),
        "balance": _balance(t, mine["balance"], study["phase"]),
        "own_choice": shown,
        "may_answer_again": mine["may_send"],
        "published": request.app.state.store.read(results.waves, study["id"]),
        "over": not mine["changed"] and (mine["over"] or study["phase"] == "deleted"),
    }
    return _page(request, "answer.html", session=access.PARTICIPANT, t=t, scripts=("answer",), **data)


def _offer(t: Texts, study: dict[str, Any], choice: dict[str, Any]) -> dict[str, Any]:
    """Return a privacy choice in words. All numbers are upper limits, rounded up.

    `right` is how often of 100 times somebody could guess something about this person's answers who knows everything
    else and would be right half of the time without them.
    """
    unlike = {"meaning.certain": 100, "meaning.unused": 50}
    right = unlike.get(choice["meaning"]["code"], max(51, math.ceil(100 * choice["sure"] - 1e-9)))
    name = f"ε = {t.spent(choice['epsilon'])}" if study["free"] else choice["name"]
    code = choice["limit"]["code"]
    two = code == "limit.waves" and choice["limit"]["facts"]["waves"] == 2
    limit = t("limit.two" if two else code, **_written(t, choice["limit"]["facts"]))
    meaning = "privacy.with" if 50 < right < 100 else "privacy.with-all" if right == 100 else "privacy.with-none"
    exact = t(choice["meaning"]["code"], **_written(t, choice["meaning"]["facts"]))
    head = name if study["free"] else f"{name}, ε = {t.spent(choice['epsilon'])}"
    return {
        **choice,
        "shown": name,
        "sentence": ""
        if code in {"limit.spent", "limit.never"}
        else choice["sentence"],  # the curator's, of answers that are used
        "right": right,
        "meaning": t(meaning, n=right),
        "limit": limit,
        "exact": f"{head}: {exact}",
    }


def _written(t: Texts, facts: dict[str, Any]) -> dict[str, str]:
    """Return the numbers of a limit as they are printed: rounded up, so that what is printed holds."""
    ways: dict[str, Any] = {"waves": t.whole, "percent": t.plain, "factor": t.written}
    return {name: ways.get(name, t.spent)(fact) for name, fact in facts.items()}


def _balance(t: Texts, balance: dict[str, Any], phase: str = "open") -> str:
    """Return what was spent of a person, and what can still be used at most, by the ledger."""
    spent, left = balance["spent"], balance["left"]
    if spent is None:
        return t("balance.unknown")
    nothing = t("balance.nothing-at-all" if phase in {"published", "ended"} else "balance.nothing")
    used = t("balance.spent", spent=t.spent(spent)) if spent else nothing
    if left is None:
        return used
    return f"{used} {_left(t, left)}" if spent or left else t("balance.neither")


def _left(t: Texts, left: Any) -> str:
    """Return what is left at most; next to nothing is not worth its digits, and yet more than nothing."""
    if left == "inf":
        return t("balance.unlimited")
    if 0 < left < NEARLY_NOTHING:
        return t("balance.crumb", left=t.written(f"{NEARLY_NOTHING:.5f}"))
    return t("balance.left", left=t.spent(left)) if left else t("balance.none")


# ---------------------------------------------------------------------------------------------------------
# The curator


@pages.get("/sign-in")
def sign_in_page(request: Request) -> Response:
    """Ask for a curator's key."""
    return _page(request, "sign_in.html")


@pages.get("/curator", dependencies=[CURATOR])
def curator_page(request: Request) -> Response:
    """List the studies."""
    out = {one["id"] for one in app.result_list(request)}
    found = [{**study, "phase": _pill(study, study["id"] in out)} for study in app.study_list(request)]
    return _page(request, "curator.html", scripts=("curator",), studies=found)


def _pill(study: dict[str, Any], out: bool) -> str:  # noqa: FBT001  it is the one other fact
    """Return where a study stands for its curator: one without any result, as after a restore, is merely over."""
    return "over" if study["phase"] == "published" and not out else str(study["phase"])


@pages.get("/curator/curators")
def curators_page(request: Request, by: Curator) -> Response:
    """List the curators, with forms to add and to remove one."""
    t = texts.chosen(request)
    log = _log(t, request.app.state.store.read(people.events, None))  # of no study
    return _page(request, "curators.html", t=t, scripts=("curators",), curators=app.curators(request, by), **log)


@pages.get("/curator/status", dependencies=[CURATOR])
def status_page(request: Request) -> Response:
    """Show how the server is."""
    return _page(request, "status.html", server=check.operator_status(request))


@pages.get("/curator/new", dependencies=[CURATOR])
def new_page(request: Request) -> Response:
    """Show the form for a new study."""
    return _page(request, "new.html", scripts=("new",))


@pages.get("/curator/studies/{study}", dependencies=[CURATOR])
def study_page(request: Request, study: str) -> Response:
    """Show a study as people join."""
    t, live = texts.chosen(request), app.live(request, study)
    about, days = live["study"], request.app.state.settings.notice_days
    published = request.app.state.store.read(results.waves, study)
    data = {
        "study": about,
        "live": live,
        "predicted": _predicted(t, live),
        "published": published,
        "pill": _pill(about, bool(published)),
        "notice_days": days,
        "past": about["phase"] != "changed" and access.now() >= about["until"],
        "few": _few(about),
        "may_close": math.ceil(access.now()) + days * DAY < about["closes"] < about["until"],
        "imports": app.imported(request, study),
        "marked": request.app.state.store.read(importing.marked, study),
        "invitations": app.invitations(request, study),
        "columns": [question["name"] for question in about["questions"]] + ["epsilon" if about["free"] else "tier"],
        **_log(t, app.events(request, study)),
    }
    return _page(request, "study.html", t=t, scripts=("dashboard",), **data)


@pages.get("/curator/studies/{study}/live", dependencies=[CURATOR])
def live_page(request: Request, study: str) -> Response:
    """Return the part of that page that changes."""
    t, live = texts.chosen(request), app.live(request, study)
    counts = app.invitations(request, study)
    return _page(request, "live.html", t=t, live=live, predicted=_predicted(t, live), invitations=counts)


def _few(study: dict[str, Any]) -> list[int]:
    """Return the numbers of the publications that too few people answered."""
    return [number for number, wave in enumerate(study["waves"], 1) if wave["too_few"] is not None]


def _predicted(t: Texts, live: dict[str, Any]) -> list[dict[str, Any]]:
    """Return for each question how far off its result could be if it was published now, and if that is of use."""
    asked = {question["name"]: question for question in live["study"]["questions"]}
    rows = []
    for one in live["questions"]:
        question, width = asked[one["question"]], one["width"]
        if live["ledger"] is None:  # so what would be left to use is not known
            shown, verdict = "–", t("balance.unknown")
        elif width is None or one["abstains"]:
            shown, verdict = "–", t("live.unusable")
        else:
            unit, size = (question["unit"], width) if question["kind"] == "number" else (t("live.points"), 100 * width)
            shown = f"± {t.number(size, size, 'up')} {unit}".strip()
            verdict = t("live.uncertain") if one["uncertain"] else t("live.usable")
        rows.append({"text": question["text"], "error": shown, "verdict": verdict, "uncertain": one["uncertain"]})
    return rows


def _log(t: Texts, events: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the newest events of a log in words, and whether there are more."""
    return {"events": [_event(t, event) for event in events[:NEWEST]], "more_events": len(events) > NEWEST}


def _event(t: Texts, event: dict[str, Any]) -> dict[str, Any]:
    """Return an event of the log in words, with whatever facts it has."""
    ways: dict[str, Any] = {"was": t.when, "now": t.when, "count": t.whole, "n": t.whole, "made": t.when}
    shown = {name: ways[name](x) if name in ways and isinstance(x, int) else x for name, x in event.items()}
    key = "event." + event["event"].replace(" ", "-")
    try:
        text = t(key, **shown)
    except KeyError:  # it has no words, or is from before one of its facts was noted
        text = event["event"]
    return {"at": event["at"], "by": event.get("by"), "text": text}


# ---------------------------------------------------------------------------------------------------------
# Results


@pages.get("/results/{study}")
def result_page(request: Request, study: str, wave: WaveNumber = None) -> Response:
    """Show what was published: every question with its picture, and all publications over time."""
    found = app.result(request, study, wave)
    t = texts.chosen(request, found["study"]["language"])
    every = [found if w == found["wave"] else app.result(request, study, w) for w in found["waves"]]
    shown = [_shown(t, one, i, every) for i, one in enumerate(found["results"])]
    people = found["results"][0]["n"]
    unused = min(sum(row["people"] for row in one["table"] if row["epsilon"] == 0) for one in shown)
    if unused < people and all(one.get("abstains") for one in found["results"]):
        unused = 0  # nobody's answers were used, not only theirs: each question says so
    data = {**found, "results": shown, "people": people, "unused": unused, "few": _few(found["study"])}
    return _page(request, "result.html", t=t, **data)


def _shown(t: Texts, one: dict[str, Any], i: int, every: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what was published of a question in words, with the same of all publications."""
    said, abstains = one["answered"], one.get("abstains", False)
    shares = {} if abstains or said is None else {name: _percent(t, said, name) for name in ("estimate", "low", "high")}
    unknown = bool(shares) and said["estimate"] is None
    between = "result.answered-between" if shares and said["uncertain"] else "result.answered"
    over = [
        {"wave": w["wave"], "published": w["published"], "figures": _figures(t, w["results"][i])}
        for w in every
        if not w["results"][i].get("abstains")
    ]
    return {
        **one,
        "name": one["question"],
        "abstains": abstains,
        "figures": _figures(t, one),
        "nothing": all(figure["estimate"] is None for figure in one["figures"]),
        "said": t("result.answered-unknown") if unknown else shares and t(between, **shares),
        "dash": any(figure["estimate"] is None for figure in one["figures"]),
        "over": over,
        "level": t.percent(one["level"]),
    }


def _percent(t: Texts, figure: dict[str, Any], name: str) -> str:
    """Return a share in per cent, with the digits that its interval supports; ends are rounded outwards."""
    return _printed(t, figure, name, 100)


def _printed(t: Texts, figure: dict[str, Any], name: str, times: float = 1) -> str:
    if figure[name] is None:
        return "–"
    width = times * (figure["high"] - figure["low"]) / 2
    way = {"low": "down", "high": "up"}.get(name, "nearest")
    return t.number(times * figure[name], width, way)


def _figures(t: Texts, one: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the numbers of a question as they are printed: with the digits that their intervals support."""
    rows = []
    for figure in one["figures"]:
        if one.get("abstains"):
            shown = low = high = ""
        else:
            times = 1 if one["kind"] == "number" else 100
            shown, low, high = (_printed(t, figure, name, times) for name in ("estimate", "low", "high"))
        name = {"number": "", "yes-no": t("answer.yes")}.get(one["kind"], figure["label"])
        rows.append({**figure, "name": name, "shown": shown, "from": low, "to": high})
    return rows
