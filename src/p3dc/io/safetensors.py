"""Priors and models as safetensors files: named arrays and a little JSON, no code."""

import json
import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from p3dc._validation import listed
from p3dc.errors import InputError
from p3dc.io.atomic import check_text, replacing
from p3dc.io.digests import Arrays, array_digests, json_digest

HEADER = ("format", "version", "facts")


def write_arrays(path: str | os.PathLike[str], kind: str, version: int, arrays: Arrays, facts: object) -> None:
    """Write named arrays and JSON facts as one safetensors file of a kind and a version, with a digest of them all."""
    header = {"format": f"p3dc-{kind}", "version": str(version), "facts": json.dumps(facts, ensure_ascii=False)}
    check_text([header["facts"]], f"the contents of {path}")
    header["digest"] = content_digest(header, arrays)
    with replacing(path) as temporary:
        try:
            save_file({name: np.ascontiguousarray(array) for name, array in arrays.items()}, temporary, metadata=header)
        except SafetensorError as error:  # a full disk, for example
            raise OSError(f"{path} cannot be written ({error}). Make room, or give another folder.") from None
        _sort_metadata(temporary)


def read_arrays(
    path: str | os.PathLike[str],
    kind: str,
    version: int,
    *,
    required: Collection[str],
    optional: Collection[str] = (),
    facts: Collection[str],
    optional_facts: Collection[str] = (),
) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
    """Read what :func:`write_arrays` wrote; refuse damage, and entries that this version does not know, by name."""
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
                if array.dtype.kind == "V":  # a type that NumPy knows only with another package
                    raise TypeError(f"{key} is of type {array.dtype}")
        if header.get("digest") != content_digest(header, arrays):
            raise ValueError("its content does not have the digest that was written with it")
        found = json.loads(header["facts"])
    except InputError:
        raise
    except Exception as error:  # a damaged file can raise anything
        raise InputError(
            f"{path} is damaged or is not a safetensors file ({error!s:.300}). Write it again with save."
        ) from None
    if not isinstance(found, dict):
        raise InputError(f"{path} holds no table of facts. Write it again with save.")
    _check_keys(path, "entry", set(found), facts, optional_facts)
    return arrays, found


def content_digest(header: Mapping[str, str], arrays: Arrays) -> str:
    """Return the digest that a file of this header and these arrays must have."""
    return json_digest([{key: header[key] for key in HEADER}, array_digests(arrays)])


def _check_header(path: str | os.PathLike[str], header: Mapping[str, str], kind: str, version: int) -> None:
    expected = f"p3dc-{kind}"
    if header.get("format") != expected:
        raise InputError(
            f"{path} is of format {header.get('format')!r:.40}, not {expected!r}. Give a file of that kind."
        )
    if header.get("version") != str(version):
        raise InputError(
            f"{path} has version {header.get('version')!s:.40} of {expected}, but this p3dc reads version {version}. "
            "Install the p3dc that wrote it, or write it again."
        )


def _check_keys(
    path: str | os.PathLike[str], what: str, found: set[str], required: Collection[str], optional: Collection[str]
) -> None:
    unknown = sorted(found - set(required) - set(optional))
    missing = sorted(set(required) - found)
    if unknown:
        raise InputError(f"{path} has an unknown {what}: {listed(unknown)!s:.300}. Install the p3dc that wrote it.")
    if missing:
        raise InputError(f"{path} lacks the {what} {', '.join(missing)}. Write it again with save.")


def _sort_metadata(path: Path) -> None:
    """Sort the texts in the header of a new file, which come in random order: the same content gives the same bytes."""
    with path.open("r+b") as file:
        size = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(size))
        header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
        file.seek(8)
        file.write(json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode().ljust(size))
