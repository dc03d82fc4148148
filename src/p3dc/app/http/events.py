"""Server-sent events: every window hears of every change at once."""

import asyncio
import json
from collections.abc import AsyncIterator

from fastapi.responses import StreamingResponse

from p3dc.app.http.errors import busy
from p3dc.app.service import Service

PULSE = 15.0
"""Seconds between comments, by which both ends learn that the other one is there."""


def event_stream(service: Service, most: int) -> StreamingResponse:
    """Return a response that goes on for as long as the client listens; refused where too many do."""
    if len(service.listeners) >= most:
        raise busy()
    return StreamingResponse(_revisions(service), media_type="text/event-stream")


async def _revisions(service: Service) -> AsyncIterator[str]:
    with service.listeners.listening() as changed:
        while True:
            changed.clear()
            data = {"revision": service.project.revision, "project": service.project.name}
            yield f"event: revision\ndata: {json.dumps(data)}\n\n"
            while not changed.is_set():
                try:
                    await asyncio.wait_for(changed.wait(), PULSE)
                except TimeoutError:
                    yield ": still here\n\n"
