"""Signals that end a command: it leaves with 128 and the signal's number, and its temporary files are removed."""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import NoReturn

from p3dc.io.atomic import remove_temporaries

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
SHOW_CURSOR = b"\x1b[?25h"
GRACE = 10.0
"""Seconds that a command has to end after an interrupt."""


@contextmanager
def handling_signals() -> Iterator[Callable[[], None]]:
    """Leave when a signal comes; from the call of what this yields on, an interrupt raises KeyboardInterrupt.

    The others never raise: an exception that comes out of nowhere may be lost in a library, or turned into another. For
    the same reason an interrupt does not while modules are imported, what follows one is never a traceback, and a
    command that has not ended some time after it is ended. A signal that is ignored, as nohup does, stays ignored.
    """
    if threading.current_thread() is not threading.main_thread():  # which alone may handle signals
        yield lambda: None
        return
    before = {number: signal.getsignal(number) for number in (*SIGNALS, signal.SIGALRM)}
    interrupted = threading.Event()

    def interrupt(_: int, __: FrameType | None) -> NoReturn:
        interrupted.set()
        sys.unraisablehook = lambda _: None
        signal.signal(signal.SIGALRM, lambda *_: _leave(signal.SIGINT, None))
        signal.setitimer(signal.ITIMER_REAL, GRACE)
        raise KeyboardInterrupt

    def begin() -> None:
        if before[signal.SIGINT] is not signal.SIG_IGN:
            signal.signal(signal.SIGINT, interrupt)

    for number in SIGNALS:
        if before[number] is not signal.SIG_IGN:
            signal.signal(number, _leave)
    try:
        yield begin
    except Exception:
        if interrupted.is_set():
            raise SystemExit(128 + signal.SIGINT) from None
        raise
    finally:
        if interrupted.is_set():
            signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in before.items():
            signal.signal(number, handler)


def _leave(number: int, _: FrameType | None) -> NoReturn:
    """End the process at once, as the signal would have, but without leaving anything behind."""
    remove_temporaries()
    with suppress(Exception):
        sys.stdout.flush()
        if sys.stderr.isatty():  # a progress bar hides it
            os.write(sys.stderr.fileno(), SHOW_CURSOR)
    os._exit(128 + number)
