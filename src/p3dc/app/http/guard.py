"""Check every request before the app sees it: host, origin, token, size, and how many there are."""

import asyncio
import time
from collections.abc import Callable
from urllib.parse import SplitResult, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from p3dc.app.http.errors import RequestError, busy, too_large
from p3dc.app.http.limits import RequestLimits
from p3dc.app.http.metrics import Metrics
from p3dc.app.http.token import COOKIE, carries_token

LOOPBACK = ("localhost", "127.0.0.1", "::1")
WITHOUT_TOKEN = ("/v1/health", "/v1/session")
LASTING = ("/v1/events",)
"""Requests whose answer has no end; they do not count as being answered."""
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

    def __init__(
        self,
        app: ASGIApp,
        limits: RequestLimits,
        metrics: Metrics,
        most_bytes: Callable[[Scope], int],
        token: str | None = None,
    ) -> None:
        self.app, self.limits, self.metrics, self.token = app, limits, metrics, token
        self.most_bytes = most_bytes
        self._wrong_token = asyncio.Lock()

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
                if status == 401 and _has_credentials(scope):
                    async with self._wrong_token:  # one after the other, so that guessing takes long
                        await asyncio.sleep(self.limits.wrong_token_seconds)
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        limit, known = self.most_bytes(scope), _needs_token(scope)
        turn = _Turn(self.metrics, self.limits.requests, counts=known)
        seconds = self.limits.seconds if known else self.limits.unknown_seconds
        body = _Body(receive, limit, seconds, turn.begin)
        try:
            self._check(scope, limit)
            if _is_bodiless(scope):
                turn.begin()
            if scope["path"] in LASTING:
                turn.end()
            await self.app(scope, body.receive, respond)
        except RequestError as error:
            await error.response()(scope, receive, respond)
        finally:
            turn.end()
            route = getattr(scope.get("route"), "path", "none")
            self.metrics.answered(route, scope["method"], status, time.perf_counter() - started)

    def _check(self, scope: Scope, limit: int) -> None:
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
        if self.token is not None and _needs_token(scope) and not carries_token(headers, self.token):
            message = "This server needs its token. Send it as 'Authorization: Bearer …'."
            raise RequestError(401, "token_needed", message, {"WWW-Authenticate": "Bearer"})
        if self.metrics.n_arriving > self.limits.arriving:
            raise busy()
        length = headers.get("content-length", "0")
        if length.isdecimal() and int(length) > limit:
            raise too_large(limit)


class _Turn:
    """A request among the others: it arrives, and is answered from when its body is there.

    Only those being answered count against ``most``, so that slow uploads keep nobody out, and of these only those
    that count, so that requests without a token keep nobody out either.
    """

    def __init__(self, metrics: Metrics, most: int, *, counts: bool) -> None:
        self._metrics, self._most, self._counts = metrics, most, counts
        self._begun = self._ended = False
        metrics.n_arriving += 1

    def begin(self) -> None:
        if self._begun or self._ended:
            return
        self._begun = True
        self._metrics.n_arriving -= 1
        self._metrics.n_busy += self._counts
        if self._counts and self._metrics.n_busy > self._most:
            raise busy()

    def end(self) -> None:
        if self._ended:
            return
        self._ended = True
        if self._begun:
            self._metrics.n_busy -= self._counts
        else:
            self._metrics.n_arriving -= 1


def _needs_token(scope: Scope) -> bool:
    return scope["path"].startswith("/v1/") and scope["path"] not in WITHOUT_TOKEN


def _has_credentials(scope: Scope) -> bool:
    headers = Headers(scope=scope)
    return scope["path"] == "/v1/session" or "authorization" in headers or COOKIE in headers.get("cookie", "")


def _is_bodiless(scope: Scope) -> bool:
    headers = Headers(scope=scope)
    return headers.get("content-length", "0") == "0" and "transfer-encoding" not in headers


class _Body:
    """The body of a request, refused if it is too long, stops in the middle or arrives too slowly."""

    def __init__(self, receive: Receive, limit: int, seconds: float, arrived: Callable[[], None]) -> None:
        self._receive, self._limit, self._seconds, self._arrived = receive, limit, seconds, arrived
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
        if not self._more:
            self._arrived()
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
