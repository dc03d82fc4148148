"""Connections of the server: bounded in number, and closed where no request arrives in time."""

import asyncio
import logging
import resource
import time

from uvicorn.protocols.http.h11_impl import H11Protocol

from p3dc.app.http.guard import LASTING

MOST_CONNECTIONS = 512
SECONDS = 15.0
"""How long a connection may take to send the headers of a request."""
MOST_MESSAGES = 10
"""How often the same message is logged in a minute."""


class BoundedProtocol(H11Protocol):
    """HTTP/1.1 on a connection that must send a request in time.

    Where there are too many connections, the one that has been silent longest makes room for a new one.
    """

    most = min(MOST_CONNECTIONS, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2)
    silent_since = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first request, and make room for this connection."""
        super().connection_made(transport)
        self._await_request()
        # What is being closed stays among the connections until the event loop comes round.
        still_open = [each for each in self.connections if not each.transport.is_closing()]
        silent = [each for each in still_open if isinstance(each, BoundedProtocol) and each.is_silent]
        if len(still_open) > self.most and silent:
            min(silent, key=lambda each: each.silent_since).transport.abort()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        self._await_request()

    def shutdown(self) -> None:
        """Close the connection after the response that is being sent, at once where that has no end."""
        super().shutdown()
        if not self.is_silent and self.cycle.scope["path"] in LASTING:
            self.transport.close()

    @property
    def is_silent(self) -> bool:
        """Whether no request is being answered."""
        return self.cycle is None or self.cycle.response_complete

    def _await_request(self) -> None:
        self.silent_since = self.loop.time()
        self.loop.call_later(SECONDS, self._close_if_silent, self.silent_since)

    def _close_if_silent(self, since: float) -> None:
        if self.is_silent and self.silent_since == since:
            self.transport.abort()


class RepeatFilter(logging.Filter):
    """Leaves out messages that were logged many times in the last minute."""

    def __init__(self) -> None:
        super().__init__()
        self._minute, self._counts = 0, dict[str, int]()

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a message is logged."""
        minute = int(time.monotonic() // 60)
        if minute != self._minute:
            self._minute, self._counts = minute, {}
        text = str(record.msg)[:100]
        self._counts[text] = self._counts.get(text, 0) + 1
        return self._counts[text] <= MOST_MESSAGES
