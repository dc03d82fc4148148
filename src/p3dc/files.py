"""Files that are whole or not there, and never code.

Writes go to a neighbour first and then take the name in one step: a killed process leaves the old file or the new
one. Priors and models are safetensors: named arrays with a little JSON, nothing that could run.
"""

import json
import os
import tempfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from p3dc.errors import InputError

Arrays = Mapping[str, npt.NDArray[Any]]


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Give a temporary path to write to; afterwards it becomes ``path``, or goes away if writing failed."""
    check_folder(path)
    target = Path(path)
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".partial")
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        mask = os.umask(0)
        os.umask(mask)
        temporary.chmod(0o666 & ~mask)
        _flush(temporary)
        temporary.replace(target)
        _flush(target.parent)
    finally:
        temporary.unlink(missing_ok=True)


def check_folder(path: str | os.PathLike[str]) -> None:
    """Refuse a file whose folder is not there; worth asking before long work, not after it."""
    if not Path(path).parent.is_dir():
        raise InputError(f"{path} cannot be written: {Path(path).parent} is not a folder. Make it first.")


def _flush(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_json(path: str | os.PathLike[str], content: object) -> None:
    """Write JSON atomically."""
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def write_arrays(path: str | os.PathLike[str], kind: str, version: int, arrays: Arrays, facts: object) -> None:
    """Write named arrays and JSON facts as one safetensors file of a kind and a version."""
    header = {"format": f"p3dc-{kind}", "version": str(version), "facts": json.dumps(facts, ensure_ascii=False)}
    with replacing(path) as temporary:
        save_file({name: np.ascontiguousarray(array) for name, array in arrays.items()}, temporary, metadata=header)


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
        found = json.loads(header["facts"])
    except (SafetensorError, json.JSONDecodeError, KeyError) as error:
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
