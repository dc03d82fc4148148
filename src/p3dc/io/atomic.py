"""Atomic writes: a killed process leaves the old file or the new one.

A file is written under a temporary name in the same folder, flushed to disk and then renamed in one step. The temporary
file is locked for as long as its process lives, so that the next writer can remove what a killed one left behind.
"""

import errno
import fcntl
import json
import math
import os
import re
import secrets
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from p3dc.errors import InputError

FIGURE_FORMATS = (".png", ".svg", ".pdf")

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Errors of a write that do not name the file."""


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path to write to; afterwards it is renamed to ``path``, or removed if writing failed.

    A link is kept, and the file that it points to is replaced. The permissions of an old file are kept. What killed
    processes of this machine left in the folder is removed.
    """
    check_folder(path)
    target = Path(os.path.realpath(path))
    temporary = _temporary(target)
    try:
        with _held(temporary, _create_locked):
            mode = temporary.stat().st_mode
            yield temporary
            _flush(temporary, os.O_RDWR)
            temporary.chmod(stat.S_IMODE(target.stat().st_mode if target.exists() else mode) & 0o777)
            temporary.replace(target)
            if os.name == "posix":  # elsewhere a folder cannot be opened
                _flush(target.parent, os.O_RDONLY)
    except OSError as error:
        if error.errno in NO_ROOM or (error.errno and str(error.filename) == str(temporary)):
            raise OSError(error.errno, os.strerror(error.errno), str(path)) from None
        raise


@contextmanager
def making_folder(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary folder to fill; afterwards it is renamed to ``path``, or removed if that failed."""
    target = Path(os.path.realpath(path))
    temporary = _temporary(target)
    with _held(temporary, _make_locked):
        yield temporary
        temporary.rename(target)


@contextmanager
def _held(temporary: Path, make: Callable[[Path], int]) -> Iterator[None]:
    """Make a temporary file or folder and hold its lock; remove it afterwards, unless it was renamed."""
    sweep(temporary.parent)
    handle = -1
    _being_written.add(temporary)
    try:
        handle = make(temporary)
        yield
    finally:
        _remove(temporary)
        _being_written.discard(temporary)
        if handle >= 0:
            os.close(handle)


_being_written: set[Path] = set()


def remove_temporaries() -> None:
    """Remove the temporary files and folders of this process, which is about to end; not those of its parent."""
    for path in tuple(_being_written):
        if path.name.startswith(f"{_prefix()}{os.getpid()}-"):
            _remove(path)


def sweep(folder: Path) -> None:
    """Remove the temporary files and folders that killed processes of this machine left in a folder.

    A file that is being written is locked by its process, and the lock ends with the process. Files of other machines
    are left alone, since not every network file system shares locks; so are those where locks are not known.
    """
    prefix = _prefix()
    with os.scandir(folder) as entries:
        left = [Path(entry.path) for entry in entries if entry.name.startswith(prefix)]
    for path in left:
        with suppress(OSError):  # locked, gone, or somebody else's
            handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _remove(path)
            finally:
                os.close(handle)


def _prefix() -> str:
    """Return how the temporary files of this machine begin."""
    return f".p3dc-{re.sub('[^A-Za-z0-9.]', '_', os.uname().nodename)[:64]}-"


def _temporary(target: Path) -> Path:
    """Return a new name beside a file or a folder that is to be written."""
    return target.with_name(f"{_prefix()}{os.getpid()}-{secrets.token_hex(8)}.partial")


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _create_locked(path: Path) -> int:
    """Make a file and lock it; make it again if another process swept it away before it was locked."""
    while True:
        handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o666)
        _lock(handle)
        if os.fstat(handle).st_nlink:
            return handle
        os.close(handle)


def _make_locked(path: Path) -> int:
    """Make a folder and lock it."""
    path.mkdir()
    handle = os.open(path, os.O_RDONLY)
    _lock(handle)
    return handle


def _lock(handle: int) -> None:
    with suppress(OSError):  # a file system without locks
        fcntl.flock(handle, fcntl.LOCK_EX)


def check_folder(path: str | os.PathLike[str]) -> None:
    """Refuse a path that cannot be written, before long work rather than after it."""
    target = Path(os.path.realpath(path))
    if not target.parent.is_dir():
        raise InputError(f"{path} cannot be written: {target.parent} is not a folder. Make it first.")
    if target.is_dir():
        raise InputError(f"{path} cannot be written: it is a folder. Give the name of a file in it.")
    if target.exists() and not target.is_file():
        raise InputError(f"{path} cannot be written: it is not an ordinary file. Give the name of one.")
    if not os.access(target.parent, os.W_OK | os.X_OK):
        raise InputError(f"{path} cannot be written: {target.parent} may not be written to. Choose another folder.")
    if target.exists() and not (target.stat().st_mode & 0o222 and os.access(target, os.W_OK)):
        raise InputError(f"{path} cannot be written: it is read-only. Make it writable, or give another name.")


def check_text(texts: Iterable[str], what: str) -> None:
    """Refuse text with halves of characters (lone surrogates), which cannot be encoded."""
    for text in texts:
        try:
            text.encode()
        except UnicodeEncodeError as error:
            near = text[max(0, error.start - 20) : error.end + 20]
            raise InputError(f"{what} have half a character in {near!a} and cannot be saved. Rename it.") from None


def _flush(path: Path, mode: int) -> None:
    handle = os.open(path, mode)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def damaged(path: object, error: Exception, otherwise: str = "cannot be read") -> InputError:
    """Return the error for a file that is damaged or ``otherwise`` cannot be used."""
    why = str(error) or type(error).__name__
    return InputError(f"{path} is damaged or {otherwise} ({why:.300}). Fetch or write it again.")


def write_json(path: str | os.PathLike[str], content: object) -> None:
    """Write JSON atomically."""
    write_text(path, json_text(content))


def json_text(content: object) -> str:
    """Return JSON; NaN and infinity, which JSON does not have, become null."""
    return json.dumps(_without_nan(content), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write text atomically."""
    check_text([text], f"the contents of {path}")
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def _without_nan(content: object) -> object:
    if isinstance(content, float):
        return content if math.isfinite(content) else None
    if isinstance(content, dict):
        return {key: _without_nan(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [_without_nan(value) for value in content]
    return content
