"""Features in NumPy's ``.npz``.

A file that this package wrote begins with an array ``digests``: JSON with the digest of every other array. It comes
first because damage in a zip's directory can hide what comes after, but not what comes before.
"""

import io
import json
import math
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from p3dc._validation import listed
from p3dc.errors import InputError
from p3dc.io.atomic import damaged
from p3dc.io.digests import array_digest, array_digests
from p3dc.io.memory import check_memory
from p3dc.io.store import Location

REQUIRED = ("features", "labels")
OPTIONAL = ("class_names", "ids")
DIGESTS = "digests"
HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


def read_npz(path: Location, also: Iterable[str] = ()) -> dict[str, npt.NDArray[Any]]:
    """Read features, labels and, if present, class names, ids and other arrays; pickled objects are refused."""
    file: Any = path if isinstance(path, Path) else io.BytesIO(path.read_bytes())
    try:
        if not zipfile.is_zipfile(file):
            raise InputError(f"{path} is damaged or is not an .npz file. Fetch or write it again.")
        if isinstance(file, io.BytesIO):
            file.seek(0)
        with zipfile.ZipFile(file) as archive:
            members = _members(path, archive)
            missing = set(REQUIRED) - set(members)
            if missing:
                found = listed(list(members)) or "nothing"
                raise InputError(f"{path} lacks {', '.join(sorted(missing))}; it holds {found:.300}.")
            wanted = [name for name in (*REQUIRED, *OPTIONAL, *also) if name in members]
            arrays = {name: _read_array(path, archive, members[name]) for name in wanted}
            if DIGESTS in members:
                _check(arrays, set(members) - {DIGESTS}, _read_array(path, archive, members[DIGESTS]))
            return arrays
    except InputError:
        raise
    except Exception as error:  # a damaged file can raise anything
        raise damaged(path, error) from None


def _members(path: Location, archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    entries = archive.infolist()
    members = {entry.filename.removesuffix(".npy"): entry for entry in entries}
    if len(members) != len(entries):
        raise InputError(f"{path} has two arrays of one name. Write it again.")
    for entry in entries:  # a damaged name in the directory, that of the digests too, is another than before the array
        archive.open(entry).close()
    return members


def _read_array(path: Location, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> npt.NDArray[Any]:
    """Read an array that is as large as its own header and the zip say; the zip's checksum is of all its bytes."""
    with archive.open(member) as file:
        shape, _, dtype = HEADERS[np.lib.format.read_magic(file)](file)
        n_bytes = math.prod(shape) * dtype.itemsize
        if dtype.hasobject:
            raise ValueError(f"{member.filename} holds pickled objects, which are not read")
        if file.tell() + n_bytes != member.file_size:
            raise ValueError(f"{member.filename} has an array of {n_bytes:,} bytes in {member.file_size:,}")
        check_memory(path, n_bytes)
        file.seek(0)
        return np.lib.format.read_array(file, allow_pickle=False)


def _check(arrays: dict[str, npt.NDArray[Any]], names: set[str], written: npt.NDArray[Any]) -> None:
    digests = json.loads(str(written))
    if set(digests) != names:
        raise ValueError(f"it was written with {', '.join(sorted(digests))} but has {', '.join(sorted(names))}")
    for name, array in arrays.items():
        if digests[name] != array_digest(array):
            raise ValueError(f"{name} does not have the digest that was written with it")


def write_npz(file: IO[bytes], arrays: dict[str, npt.NDArray[Any]]) -> None:
    """Write named arrays, and their digests."""
    np.savez(file, **{DIGESTS: np.array(json.dumps(array_digests(arrays)))}, **arrays)  # type: ignore[arg-type]
