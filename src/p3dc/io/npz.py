"""Features in NumPy's ``.npz``."""

import io
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from p3dc.errors import InputError
from p3dc.io.atomic import damaged
from p3dc.io.store import Location

REQUIRED = ("features", "labels")
OPTIONAL = ("class_names", "ids")


def read_npz(path: Location, also: Iterable[str] = ()) -> dict[str, npt.NDArray[Any]]:
    """Read features, labels and, if present, class names, ids and other arrays; pickled objects are refused."""
    file: Any = path if isinstance(path, Path) else io.BytesIO(path.read_bytes())
    try:
        if not zipfile.is_zipfile(file):
            raise InputError(f"{path} is damaged or is not an .npz file. Fetch or write it again.")
        if isinstance(file, io.BytesIO):
            file.seek(0)
        with np.load(file, allow_pickle=False) as arrays:
            missing = set(REQUIRED) - set(arrays.files)
            if missing:
                found = ", ".join(arrays.files) or "nothing"
                raise InputError(f"{path} lacks {', '.join(sorted(missing))}; it holds {found}.")
            return {name: arrays[name] for name in (*REQUIRED, *OPTIONAL, *also) if name in arrays.files}
    except InputError:
        raise
    except Exception as error:  # a damaged file can raise anything
        raise damaged(path, error) from None


def write_npz(file: IO[bytes], arrays: dict[str, npt.NDArray[Any]]) -> None:
    """Write named arrays."""
    np.savez(file, **arrays)  # type: ignore[arg-type]
