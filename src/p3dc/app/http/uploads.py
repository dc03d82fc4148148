"""Read the images that come with a request."""

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Annotated, Any

from fastapi import Depends, Request
from fastapi.routing import APIRoute
from python_multipart.exceptions import MultipartParseError
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException
from starlette.routing import BaseRoute, Match
from starlette.types import Scope

from p3dc.app.http.errors import RequestError
from p3dc.app.http.limits import RequestLimits
from p3dc.app.service import Upload
from p3dc.errors import InputError


def _body(kind: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"requestBody": {"required": True, "content": {kind: {"schema": schema}}}}


BINARY = {"type": "string", "format": "binary"}
FILES = {"images": {"type": "array", "minItems": 1, "items": BINARY}}
IMAGES = _body("multipart/form-data", {"type": "object", "required": ["images"], "properties": FILES})
FILE = _body("application/octet-stream", BINARY)


def most_bytes(routes: Sequence[BaseRoute], limits: RequestLimits) -> Callable[[Scope], int]:
    """Return the function from a request to the bytes that its route takes."""
    sizes = {id(IMAGES): limits.bytes, id(FILE): limits.model_bytes}

    def of_request(scope: Scope) -> int:
        for route in routes:
            if isinstance(route, APIRoute) and route.matches(scope)[0] is Match.FULL:
                return sizes.get(id(route.openapi_extra), limits.json_bytes)
        return limits.json_bytes

    return of_request


async def uploaded(request: Request) -> AsyncIterator[list[Upload]]:
    """Yield the images of a request, and close them after it."""
    if not request.headers.get("content-type", "").lower().startswith("multipart/form-data"):
        raise RequestError(415, "not_multipart", "Images are sent as multipart/form-data, in fields named 'images'.")
    limits: RequestLimits = request.app.state.limits
    try:
        form = await request.form(max_files=limits.files, max_fields=1)
    except (MultiPartException, MultipartParseError, HTTPException, UnicodeError) as error:
        if isinstance(error, RequestError):
            raise
        reason = getattr(error, "detail", None) or getattr(error, "message", None) or str(error)
        if "Too many files" in reason:
            message = f"There are more than {limits.files} images in the request. Send fewer at once."
            raise RequestError(413, "too_many_files", message) from None
        raise InputError(f"The request cannot be read ({reason}). Send images in fields named 'images'.") from None
    try:
        images = [each for key, each in form.multi_items() if key == "images" and isinstance(each, UploadFile)]
        if not images:
            raise InputError("There are no images in the request. Send them in fields named 'images'.")
        yield [Upload(each.filename or "", each.file) for each in images]
    finally:
        await form.close()


Images = Annotated[list[Upload], Depends(uploaded)]
