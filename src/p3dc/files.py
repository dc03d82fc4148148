"""Files that are whole or not there, and never code.

Writes go to a neighbour first and then take the name in one step: a killed process leaves the old file or the new
one. Priors and models are safetensors: named arrays with a little JSON, nothing that could run.
"""

import json
import math
import os
import secrets
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from p3dc.errors import InputError

Arrays = Mapping[str, npt.NDArray[Any]]

FIGURE_FORMATS = (".png", ".svg", ".pdf")


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Give a temporary path to write to; afterwards it becomes ``path``, or goes away if writing failed.

    A link stays, and the file that it points to is replaced. The permissions of an old file stay.
    """
    check_folder(path)
    target = Path(os.path.realpath(path))
    temporary = target.with_name(f".{secrets.token_hex(8)}.partial")
    temporary.touch(exist_ok=False)
    try:
        mode = temporary.stat().st_mode
        yield temporary
        _flush(temporary, os.O_RDWR)
        temporary.chmod(stat.S_IMODE(target.stat().st_mode if target.exists() else mode) & 0o777)
        temporary.replace(target)
        if os.name == "posix":  # elsewhere a folder cannot be opened
            _flush(target.parent, os.O_RDONLY)
    finally:
        temporary.unlink(missing_ok=True)


def check_folder(path: str | os.PathLike[str]) -> None:
    """Refuse a file that could not be written; worth asking before long work, not after it."""
    target = Path(os.path.realpath(path))
    if not target.parent.is_dir():
        raise InputError(f"{path} cannot be written: {target.parent} is not a folder. Make it first.")
    if target.is_dir():
        raise InputError(f"{path} cannot be written: it is a folder. Give the name of a file in it.")
    if target.exists() and not target.is_file():
        raise InputError(f"{path} cannot be written: it is not an ordinary file. Give the name of one.")
    if not os.access(target.parent, os.W_OK | os.X_OK):
        raise InputError(f"{path} cannot be written: {target.parent} may not be written to. Choose another folder.")


def check_text(texts: Iterable[str], what: str) -> None:
    """Refuse text that no file can hold: halves of characters."""
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


def damaged(path: str | os.PathLike[str], error: Exception) -> InputError:
    """Make the sentence for a file that could not be read."""
    why = str(error) or type(error).__name__
    return InputError(f"{path} is damaged or cannot be read ({why}). Fetch or write it again.")


def write_json(path: str | os.PathLike[str], content: object) -> None:
    """Write JSON atomically; NaN and infinity, which JSON lacks, become null."""
    text = json.dumps(_without_nan(content), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    write_text(path, text)


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


def write_arrays(path: str | os.PathLike[str], kind: str, version: int, arrays: Arrays, facts: object) -> None:
    """Write named arrays and JSON facts as one safetensors file of a kind and a version."""
    header = {"format": f"p3dc-{kind}", "version": str(version), "facts": json.dumps(facts, ensure_ascii=False)}
    check_text([header["facts"]], f"the contents of {path}")
    with replacing(path) as temporary:
        try:
            save_file({name: np.ascontiguousarray(array) for name, array in arrays.items()}, temporary, metadata=header)
        except SafetensorError as error:  # a full disk, for example
            raise OSError(f"{path} cannot be written ({error}). Make room, or give another folder.") from None


def read_arrays(
    path: str | os.PathLike[str],
    kind: str,
    version: int,
    *,
    required: Collection[str],
    optional: Collection[str] = (),
    facts: Collection[str],
) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
    """Read what :func:`write_arrays` wrote, and refuse by name what this version does not know."""
    if not Path(path).is_file():
        raise InputError(f"{path} is not a file. Give the path of a file written by save.")
    try:
        with safe_open(path, framework="numpy") as file:
            header = file.metadata() or {}
            _check_header(path, header, kind, version)
            keys = set(file.keys())
            _check_keys(path, "array", keys, required, optional)
            arrays = {key: file.get_tensor(key) for key in sorted(keys)}
            for key, array in arrays.items():
                if array.dtype.kind == "V":  # types that NumPy has only with another package
                    raise TypeError(f"{key} is of type {array.dtype}")
        found = json.loads(header["facts"])
    except InputError:
        raise
    except Exception as error:  # a damaged file can raise anything
        raise InputError(
            f"{path} is damaged or is not a safetensors file ({error}). Write it again with save."
        ) from None
    if not isinstance(found, dict):
        raise InputError(f"{path} holds no table of facts. Write it again with save.")
    _check_keys(path, "entry", set(found), facts, ())
    return arrays, found


def _check_header(path: str | os.PathLike[str], header: Mapping[str, str], kind: str, version: int) -> None:
    expected = f"p3dc-{kind}"
    if header.get("format") != expected:
        raise InputError(f"{path} is of format {header.get('format')!r}, not {expected!r}. Give a file of that kind.")
    if header.get("version") != str(version):
        raise InputError(
            f"{path} has version {header.get('version')} of {expected}, but this p3dc reads version {version}. "
            "Install the p3dc that wrote it, or write it again."
        )


def _check_keys(
    path: str | os.PathLike[str], what: str, found: set[str], required: Collection[str], optional: Collection[str]
) -> None:
    unknown = sorted(found - set(required) - set(optional))
    missing = sorted(set(required) - found)
    if unknown:
        raise InputError(f"{path} has an unknown {what}: {', '.join(unknown)}. Install the p3dc that wrote it.")
    if missing:
        raise InputError(f"{path} lacks the {what} {', '.join(missing)}. Write it again with save.")
