"""Signals that end a command: it leaves with 128 and the signal's number, and its temporary files are removed."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

Handler = Callable[[int, FrameType | None], NoReturn]

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def handling_signals() -> Iterator[Callable[[], None]]:
    """Leave at once when a signal comes; from the call of what this yields, leave by way of the cleaning up.

    A library that is interrupted while it is imported may fail in any way, and nothing is there to clean up. A signal
    that is ignored, as nohup does, stays ignored.
    """
    if threading.current_thread() is not threading.main_thread():  # which alone may handle signals
        yield lambda: None
        return
    before = {number: signal.getsignal(number) for number in SIGNALS}
    mine = [number for number in SIGNALS if before[number] is not signal.SIG_IGN]

    def handle(handler: Handler) -> None:
        for number in mine:
            signal.signal(number, handler)

    def clean_up(number: int, _: FrameType | None) -> NoReturn:
        for other in mine:  # a closed terminal sends more than one
            signal.signal(other, signal.SIG_IGN)
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        raise SystemExit(128 + number)

    handle(_leave)
    try:
        yield lambda: handle(clean_up)
    finally:
        for number in mine:
            signal.signal(number, before[number])


def _leave(number: int, _: FrameType | None) -> NoReturn:
    os._exit(128 + number)
