"""Tasks that wait for changes of the project, which other threads make."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class Listeners:
    """Wakes everyone who waits."""

    def __init__(self) -> None:
        self._waiting: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = set()

    def __len__(self) -> int:
        return len(self._waiting)

    @contextmanager
    def listening(self) -> Iterator[asyncio.Event]:
        """Yield an event that each change sets; whoever waits for it clears it."""
        entry = asyncio.get_running_loop(), asyncio.Event()
        self._waiting.add(entry)
        try:
            yield entry[1]
        finally:
            self._waiting.discard(entry)

    def wake(self) -> None:
        """Set the events, from any thread."""
        for loop, event in tuple(self._waiting):
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(event.set)
