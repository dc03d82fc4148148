"""A CSV on the screen, in a file, or both."""

import csv
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO

from p3dc.cli.shared import printable
from p3dc.io.atomic import replacing


@contextmanager
def csv_output(path: Path | None, *, echo: bool = True) -> Iterator[Callable[[Sequence[str]], None]]:
    """Yield a function that writes a row of a CSV: to the screen at once, and to a file that appears when complete.

    Without ``echo``, rows that go to a file do not go to the screen.
    """
    if path is None:
        yield partial(_write_row, sys.stdout)
        return
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:

        def write(cells: Sequence[str]) -> None:
            _write_row(file, cells)
            if not echo:
                return
            try:
                _write_row(sys.stdout, cells)
            except OSError:  # its reader has gone, or has no room; the file is still wanted
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

        yield write


def _write_row(file: IO[str], cells: Sequence[str]) -> None:
    shown = [printable(cell) for cell in cells] if file.isatty() else cells
    csv.writer(file, lineterminator="\n").writerow(shown)
    file.flush()
