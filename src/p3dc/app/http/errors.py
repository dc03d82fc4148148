"""Errors as HTTP responses: those of the app are translated here, those of HTTP itself are made here."""

from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.routing import BaseRoute, Match

from p3dc.app.errors import ConflictError, NotFoundError, UndoneError, UnusableImagesError
from p3dc.app.http.limits import MEGABYTE
from p3dc.app.project.store import StoreError
from p3dc.errors import InputError
from p3dc.images.decoding import NotAnImageError, TooManyPixelsError

CODES: dict[type[InputError], tuple[int, str]] = {
    NotFoundError: (404, "not_found"),
    ConflictError: (409, "conflict"),
    UndoneError: (409, "undone"),
    TooManyPixelsError: (413, "too_many_pixels"),
    NotAnImageError: (415, "not_an_image"),
    StoreError: (500, "storage"),
}
INVALID = 422, "invalid"
"""Status and code of any other error, and of images that cannot be used for different reasons."""

SENTENCES = {
    404: ("not_found", "There is nothing at {path}. /v1/openapi.json tells what there is."),
    405: ("method_not_allowed", "{path} does not take {method}. /v1/openapi.json tells what it takes."),
}


class RequestError(HTTPException):
    """A request that is refused before the app sees it: ``code`` is for programs, ``message`` for people."""

    def __init__(self, status: int, code: str, message: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(status, message, headers)
        self.code = code

    def response(self) -> JSONResponse:
        """Return the response to the request."""
        return error_response(self.status_code, self.code, self.detail, self.headers)


def busy() -> RequestError:
    """Return the error of a server that answers too many requests."""
    return RequestError(503, "busy", "Too many requests at once. Try again in a second.", {"Retry-After": "1"})


def too_large(limit: int) -> RequestError:
    """Return the error of a request with more bytes than allowed."""
    size = f"{limit // MEGABYTE} MB" if limit >= MEGABYTE else f"{limit // 1024} kB"
    return RequestError(413, "too_large", f"The request is larger than {size}. Send less at once.")


def error_response(status: int, code: str, message: str, headers: Any = None, **more: Any) -> JSONResponse:
    """Build the response of every error."""
    return JSONResponse({"error": {"code": code, "message": message, **more}}, status, headers)


def handle_errors(app: FastAPI, routes: Sequence[BaseRoute]) -> None:
    """Answer every error with a response of the same shape."""
    app.state.routes = routes
    app.add_exception_handler(InputError, _input_error)  # type: ignore[arg-type]
    app.add_exception_handler(StarletteHTTPException, _http_error)  # type: ignore[arg-type]
    app.add_exception_handler(RequestValidationError, _validation_error)  # type: ignore[arg-type]
    app.add_exception_handler(Exception, _unforeseen_error)


async def _input_error(_: Request, error: InputError) -> JSONResponse:
    reasons, more = {type(error)}, {}
    if isinstance(error, UnusableImagesError):
        reasons = {type(failed.error) for failed in error.failures}
        more["failures"] = [{"name": failed.name, "message": str(failed.error)} for failed in error.failures]
    status, code = CODES.get(reasons.pop(), INVALID) if len(reasons) == 1 else INVALID
    return error_response(status, code, str(error), **more)


async def _http_error(request: Request, error: StarletteHTTPException) -> JSONResponse:
    if isinstance(error, RequestError):
        return error.response()
    code, sentence = SENTENCES.get(error.status_code, ("bad_request", "{detail}."))
    message = sentence.format(path=request.url.path[:100], method=request.method, detail=error.detail)
    headers = dict(error.headers or {})
    if error.status_code == 405:
        headers["Allow"] = ", ".join(_allowed_methods(request)) or headers["Allow"]
    return error_response(error.status_code, code, message, headers)


def _allowed_methods(request: Request) -> list[str]:
    """List all methods of an address: Starlette names those of the first route that matches."""
    matching = [route for route in request.app.state.routes if route.matches(request.scope)[0] is not Match.NONE]
    return sorted({method for route in matching for method in getattr(route, "methods", ())})


async def _validation_error(_: Request, error: RequestValidationError) -> JSONResponse:
    first = error.errors()[0]
    where = ".".join(part for part in first["loc"] if isinstance(part, str) and part != "body") or "the body"
    return error_response(*INVALID, f"{where}: {first['msg']}.")


async def _unforeseen_error(_: Request, error: Exception) -> JSONResponse:
    message = f"Something went wrong here ({type(error).__name__}). The server's log tells more."
    return error_response(500, "internal", message)
