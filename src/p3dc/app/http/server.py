"""The service and the page as one ASGI application."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.routing import Match

from p3dc.app.http.guard import Guard
from p3dc.app.http.limits import Limits, Refusal
from p3dc.app.http.metrics import Metrics
from p3dc.app.http.routes import api
from p3dc.app.project.project import Project
from p3dc.app.project.store import StoreError
from p3dc.app.service import Service
from p3dc.errors import InputError

PAGE = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
SENTENCES = {
    404: ("not_found", "There is nothing at {path}. /v1/openapi.json tells what there is."),
    405: ("method_not_allowed", "{path} does not take {method}. /v1/openapi.json tells what it takes."),
}


def make_app(project: Project, limits: Limits | None = None, token: str | None = None) -> Guard:
    """Put the service and the page together.

    Parameters
    ----------
    project : Project
    limits : Limits, optional
    token : str, optional
        What everybody must send who asks for more than the page; needed where others can reach the server.

    Returns
    -------
    ASGI application
    """
    limits = limits or Limits()
    service, counted = Service(project, limits), Metrics()

    @asynccontextmanager
    async def living(_: FastAPI) -> AsyncIterator[None]:
        yield
        service.close()

    app = FastAPI(
        title="p3dc",
        summary="Few-shot classification without training.",
        version="1",
        openapi_url="/v1/openapi.json",
        docs_url=None,
        redoc_url=None,
        lifespan=living,
    )
    app.state.service, app.state.metrics, app.state.token = service, counted, token
    app.include_router(api)
    for kind, handler in ((HTTPException, _http), (RequestValidationError, _validation), (InputError, _input)):
        app.add_exception_handler(kind, handler)  # type: ignore[arg-type]
    app.add_exception_handler(Exception, _unforeseen)
    _serve_page(app)
    return Guard(app, limits, counted, token)


def _serve_page(app: FastAPI) -> None:
    for entry in (files("p3dc") / "app" / "page").iterdir():
        kind = PAGE.get(Path(entry.name).suffix)
        if kind is not None:
            content = entry.read_bytes()
            address = "/" if entry.name == "index.html" else f"/page/{entry.name}"
            app.add_api_route(address, _static(content, kind), include_in_schema=False, methods=["GET", "HEAD"])


def _static(content: bytes, kind: str) -> Any:
    def give() -> Response:
        return Response(content, media_type=kind, headers={"Cache-Control": "no-cache"})

    return give


async def _http(request: Request, error: HTTPException) -> JSONResponse:
    if isinstance(error, Refusal):
        return JSONResponse(error.body, error.status_code, error.headers)
    code, sentence = SENTENCES.get(error.status_code, ("bad_request", "{detail}."))
    message = sentence.format(path=request.url.path[:100], method=request.method, detail=error.detail)
    headers = dict(error.headers or {})
    if error.status_code == 405:
        headers["Allow"] = ", ".join(_methods(request)) or headers["Allow"]
    return JSONResponse({"error": {"code": code, "message": message}}, error.status_code, headers)


def _methods(request: Request) -> list[str]:
    """List what an address takes: Starlette names the methods of the first route that has it."""
    fitting = [route for route in api.routes if route.matches(request.scope)[0] is not Match.NONE]
    return sorted({method for route in fitting for method in getattr(route, "methods", ())})


async def _validation(_: Request, error: RequestValidationError) -> JSONResponse:
    first = error.errors()[0]
    where = ".".join(part for part in first["loc"] if isinstance(part, str) and part != "body") or "the body"
    return JSONResponse({"error": {"code": "invalid", "message": f"{where}: {first['msg']}."}}, 422)


async def _input(_: Request, error: InputError) -> JSONResponse:
    status, code = (500, "storage") if isinstance(error, StoreError) else (422, "invalid")
    return JSONResponse({"error": {"code": code, "message": str(error)}}, status)


async def _unforeseen(_: Request, error: Exception) -> JSONResponse:
    message = f"Something went wrong here ({type(error).__name__}). The server's log tells more."
    return JSONResponse({"error": {"code": "internal", "message": message}}, 500)
