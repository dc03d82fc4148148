"""Check every request before the app sees it: host, origin, token, size, and how many are being answered."""

import asyncio
import time
from urllib.parse import SplitResult, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from p3dc.app.http.errors import RequestError, busy, too_large
from p3dc.app.http.limits import RequestLimits
from p3dc.app.http.metrics import Metrics
from p3dc.app.http.token import carries_token

LOOPBACK = ("localhost", "127.0.0.1", "::1")
WITHOUT_TOKEN = ("/v1/health", "/v1/session")
PATIENCE = 10
"""How many times longer than one pause the whole request may take."""
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; "
    "connect-src 'self'; media-src 'self' blob:; font-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(self)",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class Guard:
    """An ASGI application around another that refuses requests which must not reach it.

    Without a token only this machine may send requests, so names of other machines in ``Host`` are refused: a page
    elsewhere could make its own name point here.
    """

    def __init__(self, app: ASGIApp, limits: RequestLimits, metrics: Metrics, token: str | None = None) -> None:
        self.app, self.limits, self.metrics, self.token = app, limits, metrics, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        status, started = 500, time.perf_counter()

        async def respond(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                if status >= 400:
                    await body.drain()
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        body = _Body(receive, self._most_bytes(scope), self.limits.seconds)
        try:
            with self.metrics.busy():
                self._check(scope)
                await self.app(scope, body.receive, respond)
        except RequestError as error:
            await error.response()(scope, receive, respond)
        finally:
            route = getattr(scope.get("route"), "path", "none")
            self.metrics.answered(route, scope["method"], status, time.perf_counter() - started)

    def _check(self, scope: Scope) -> None:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if self.token is None and _split(f"//{host}").hostname not in LOOPBACK:
            raise RequestError(421, "wrong_host", f"This server is not {host[:100]!r}. Ask for localhost.")
        origin = headers.get("origin")
        if origin is not None and _split(origin).netloc != host:
            raise RequestError(403, "other_origin", "Pages of other origins may not use this server.")
        if not scope["path"].startswith("/v1/"):
            return
        if headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
            raise RequestError(403, "other_origin", "Pages of other origins may not use this server.")
        if self.token is not None and scope["path"] not in WITHOUT_TOKEN and not carries_token(headers, self.token):
            message = "This server needs its token. Send it as 'Authorization: Bearer …'."
            raise RequestError(401, "token_needed", message, {"WWW-Authenticate": "Bearer"})
        if self.metrics.n_busy > self.limits.requests:
            raise busy()
        length = headers.get("content-length", "0")
        if length.isdecimal() and int(length) > self._most_bytes(scope):
            raise too_large(self._most_bytes(scope))

    def _most_bytes(self, scope: Scope) -> int:
        kind = Headers(scope=scope).get("content-type", "").lower()
        if kind.startswith("multipart/"):
            return self.limits.bytes
        return self.limits.model_bytes if kind.startswith("application/octet-stream") else self.limits.json_bytes


class _Body:
    """The body of a request, refused if it is too long, stops in the middle or arrives too slowly."""

    def __init__(self, receive: Receive, limit: int, seconds: float) -> None:
        self._receive, self._limit, self._seconds = receive, limit, seconds
        self._size, self._more = 0, True
        self._last = time.monotonic() + PATIENCE * seconds

    async def receive(self) -> Message:
        if not self._more:
            return await self._receive()  # waits until the client leaves
        try:
            left = min(self._seconds, self._last - time.monotonic())
            message = await asyncio.wait_for(self._receive(), left)
        except TimeoutError:
            self._more = False
            raise RequestError(408, "too_slow", "The request came too slowly. Send it again.") from None
        self._more = bool(message.get("more_body"))
        if message["type"] == "http.disconnect":
            raise RequestError(400, "left", "The client left before it had sent everything.")
        self._size += len(message.get("body", b""))
        if self._size > self._limit:
            raise too_large(self._limit)
        return message

    async def drain(self) -> None:
        """Read on for a while, so that a client that is still sending reads the response."""
        try:
            async with asyncio.timeout(self._seconds):
                while self._more:
                    self._more = bool((await self._receive()).get("more_body"))
        except TimeoutError:
            return


def _split(address: str) -> SplitResult:
    try:
        return urlsplit(address)
    except ValueError:
        return urlsplit("")
