"""The service and the page as one ASGI application."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Response

from p3dc.app.http.errors import handle_errors
from p3dc.app.http.guard import Guard
from p3dc.app.http.limits import RequestLimits
from p3dc.app.http.metrics import Metrics
from p3dc.app.http.routes import api
from p3dc.app.http.uploads import most_bytes
from p3dc.app.project.library import Library
from p3dc.app.project.project import Project
from p3dc.app.service import Service

PAGE = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}


def make_app(
    project: Project,
    limits: RequestLimits | None = None,
    token: str | None = None,
    library: Library | None = None,
) -> Guard:
    """Build the application; every request but those for the page must carry the token, if there is one."""
    limits = limits or RequestLimits()
    service, metrics = Service(project, limits.pixels, library), Metrics()

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        service.close()

    app = FastAPI(
        title="p3dc",
        summary="Few-shot classification without training.",
        version="1",
        openapi_url="/v1/openapi.json",
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
    )
    app.state.service, app.state.metrics, app.state.limits, app.state.token = service, metrics, limits, token
    app.include_router(api)
    handle_errors(app, api.routes)
    _serve_page(app)
    return Guard(app, limits, metrics, most_bytes(api.routes, limits), token)


def _serve_page(app: FastAPI) -> None:
    for entry in (files("p3dc") / "app" / "page").iterdir():
        kind = PAGE.get(Path(entry.name).suffix)
        if kind is not None:
            content = entry.read_bytes()
            address = "/" if entry.name == "index.html" else f"/page/{entry.name}"
            app.add_api_route(address, _static(content, kind), include_in_schema=False, methods=["GET", "HEAD"])


def _static(content: bytes, kind: str) -> Any:
    def file() -> Response:
        return Response(content, media_type=kind, headers={"Cache-Control": "no-cache"})

    return file
