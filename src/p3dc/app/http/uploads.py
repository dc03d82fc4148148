"""Read the images that come with a request."""

import re
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Annotated, Any

from fastapi import Depends, Query, Request
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
FILES = {
    "images": {"type": "array", "minItems": 1, "items": BINARY},
    "keys": {"type": "array", "items": {"type": "string"}},
}
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


Drop = Annotated[
    str, Query(pattern="^[A-Za-z0-9_-]{1,64}$", description="What photos that were dropped together have in common.")
]
"""An id that the client makes."""


def drop_of(drop: Drop | None = None) -> str:
    """Read the drop that a request is part of; nothing where it is part of none."""
    return drop or ""


Dropped = Annotated[str, Depends(drop_of)]


async def uploaded(request: Request, drop: Dropped) -> AsyncIterator[list[Upload]]:
    """Yield the images of a request, and close them after it."""
    if not request.headers.get("content-type", "").lower().startswith("multipart/form-data"):
        raise RequestError(415, "not_multipart", "Images are sent as multipart/form-data, in fields named 'images'.")
    limits: RequestLimits = request.app.state.limits
    try:
        form = await request.form(max_files=limits.files, max_fields=limits.files + 1, max_part_size=1024)
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
        keys = _keys([str(each) for each in form.getlist("keys")], drop, len(images))
        yield [Upload(_name(each), each.file, key) for each, key in zip(images, keys, strict=True)]
    finally:
        await form.close()


def _keys(given: list[str], drop: str, n_images: int) -> list[str]:
    """Check the keys of images: one for each in a drop, none outside."""
    if not drop and not given:
        return [""] * n_images
    form = re.compile(re.escape(drop) + r"-\d{6}", re.ASCII)
    if not drop or len(given) != n_images or not all(form.fullmatch(key) for key in given):
        raise InputError(
            f"There are {n_images} images and {len(given)} keys. Images of a drop need one key each, "
            "the drop's id, '-' and six digits; others need none."
        )
    return given


def _name(image: UploadFile) -> str:
    """Return the name of a file; browsers send quotes and line breaks in it as %22, %0D and %0A."""
    name = image.filename or ""
    for sent, meant in (("%22", '"'), ("%0D", "\r"), ("%0A", "\n")):
        name = name.replace(sent, meant)
    return name


Images = Annotated[list[Upload], Depends(uploaded)]
