"""Features in NumPy's ``.npz``."""

import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from p3dc.errors import InputError
from p3dc.io.atomic import damaged

REQUIRED = ("features", "labels")
OPTIONAL = ("class_names", "ids")


def read_npz(path: Path, also: Iterable[str] = ()) -> dict[str, npt.NDArray[Any]]:
    """Read features, labels and, if present, class names, ids and other arrays; pickled objects are refused."""
    try:
        if not zipfile.is_zipfile(path):
            raise InputError(f"{path} is damaged or is not an .npz file. Fetch or write it again.")
        with np.load(path, allow_pickle=False) as file:
            missing = set(REQUIRED) - set(file.files)
            if missing:
                found = ", ".join(file.files) or "nothing"
                raise InputError(f"{path} lacks {', '.join(sorted(missing))}; it holds {found}.")
            return {name: file[name] for name in (*REQUIRED, *OPTIONAL, *also) if name in file.files}
    except InputError:
        raise
    except Exception as error:  # a damaged file can raise anything
        raise damaged(path, error) from None


def write_npz(path: Path, arrays: dict[str, npt.NDArray[Any]]) -> None:
    """Write named arrays, whatever the ending of the path."""
    with path.open("wb") as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]
