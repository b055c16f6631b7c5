"""The application: its parts put together, and fixed texts for everything that goes wrong."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from anyio import CapacityLimiter
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.responses import FileResponse, Response
from starlette.staticfiles import StaticFiles

from hetdp import __version__
from hetdp.errors import InputError
from hetdp.statistics.mean import mean

from . import answers, api, errors, explore, keys, pages, publish, rows, start, store
from .guard import Guard, Rates
from .register import Register
from .settings import Settings

log = logging.getLogger("hetdp.server")


def create_app(settings: Settings) -> FastAPI:
    """Return the server as an ASGI application; `app.state.first_key` is the curator's key at the first start."""
    vault = keys.Vault.of(settings)
    database = store.Store(settings, Register(settings.register_file, vault))
    try:
        return _assembled(settings, vault, database)
    except BaseException:  # whatever it is, the database is let go of
        database.close()
        raise


def _assembled(settings: Settings, vault: keys.Vault, database: store.Store) -> FastAPI:
    app = FastAPI(
        title="hetdp",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        lifespan=_lifespan,
        redirect_slashes=False,
        responses=errors.DOCUMENTED,
    )
    state = app.state
    state.settings, state.vault, state.store, state.rates = settings, vault, database, Rates()
    state.unlock = start.only_one(settings, database)
    try:
        _filled(app, settings, vault, database)
    except BaseException:  # whatever it is, the lock is let go of
        state.unlock()
        raise
    return app


def _filled(app: FastAPI, settings: Settings, vault: keys.Vault, database: store.Store) -> None:
    state = app.state
    state.first_key = start.prepare(database, vault, trusted=settings.trust_database)
    state.joined = answers.Joined()

    def load(connection: sa.Connection) -> None:
        state.joined.load(connection.execute)

    with database.engine.connect() as connection:
        load(connection)
    database.returned.append(load)
    state.publisher = publish.Publisher(database, vault, start.open_ledger(settings, database))
    app.add_middleware(Guard, settings=settings, rates=state.rates)
    for router in (api.router, rows.router, explore.router, pages.router):
        app.include_router(router)
    app.add_api_route("/static/plotly.min.js", _plotly, include_in_schema=False)
    app.mount("/static", StaticFiles(directory=Path(__file__).parent / "static"))
    _handlers(app)


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    app.state.explorers, app.state.exploring = CapacityLimiter(1), 0
    await run_in_threadpool(_warm)
    await run_in_threadpool(app.state.publisher.resume)
    log.info("started")
    yield
    await run_in_threadpool(close, app)
    log.info("stopped")


def close(app: FastAPI) -> None:
    """Finish what is queued and let go of everything."""
    app.state.publisher.close()
    app.state.store.close()
    app.state.unlock()


def _warm() -> None:
    """Load the libraries of a release before anybody waits for one: a mean of nothing private."""
    mean([0.0, 1.0] * 50, epsilon=[1.0] * 100, bounds=(0, 1)).to_dict()


def _plotly() -> Response:
    import plotly  # type: ignore[import-untyped]  # it has no types

    script = Path(plotly.__file__).parent / "package_data" / "plotly.min.js"
    return FileResponse(script, media_type="text/javascript", headers={"Cache-Control": "max-age=86400"})


def _handlers(app: FastAPI) -> None:
    def fixed(status: int) -> Any:
        async def handler(request: Request, _: Exception) -> Response:
            return answer(request, status)

        return handler

    async def by_status(request: Request, error: HTTPException) -> Response:
        return answer(request, error.status_code if error.status_code in errors.TEXTS else 400)

    async def refused(request: Request, error: errors.RefusedError) -> Response:
        return answer(request, error.status, error.code, error.message)

    app.add_exception_handler(HTTPException, by_status)  # type: ignore[arg-type]  # Starlette's type is too wide
    app.add_exception_handler(errors.RefusedError, refused)  # type: ignore[arg-type]
    app.add_exception_handler(RequestValidationError, fixed(422))
    app.add_exception_handler(InputError, fixed(422))


def answer(request: Request, status: int, code: str | None = None, message: str | None = None) -> Response:
    """Return an error as JSON, or as a page where a page was asked for."""
    body = errors.body(status, request.state.request_id, code, message)
    return pages.error(request, status, body)
