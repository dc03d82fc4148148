"""Reader of the ``.plk`` pickles of this field: a dict from class to a list of feature vectors.

A pickle is a program. This reader lets it build NumPy arrays and plain containers and refuses everything else by name
before it could run.
"""

import collections
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
from numpy._core import multiarray, numeric

from p3dc.errors import InputError


def _latin1(text: str, encoding: str = "latin1") -> bytes:
    """Stand in for ``_codecs.encode``, by which old pickles carry bytes; it looks up no other codec."""
    if encoding not in ("latin1", "latin-1", "iso-8859-1"):
        raise pickle.UnpicklingError(f"bytes in {encoding}")
    return text.encode("latin1")


ADMITTED: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("_codecs", "encode"): _latin1,
    ("collections", "OrderedDict"): collections.OrderedDict,
    ("collections", "defaultdict"): collections.defaultdict,
    **{
        (f"numpy.{core}.{module.__name__.rpartition('.')[2]}", name): getattr(module, name)
        for core in ("core", "_core")
        for module, name in ((multiarray, "_reconstruct"), (multiarray, "scalar"), (numeric, "_frombuffer"))
    },
    **{
        (module, kind.__name__): kind
        for module in ("builtins", "__builtin__")
        for kind in (list, dict, set, tuple, bytearray)
    },
}


class _ArrayUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        try:
            return ADMITTED[module, name]
        except KeyError:
            raise InputError(f"it asks for {module}.{name}, which is neither an array nor a container") from None


def read_plk(path: str | os.PathLike[str]) -> dict[Any, np.ndarray]:
    """Read a dict from class to features, (n, D), in the order of the file."""
    try:
        with Path(path).open("rb") as file:
            content = _ArrayUnpickler(file, encoding="latin1").load()
    except InputError as error:
        raise InputError(f"{path} was refused and nothing in it was run: {error}. Save the features as .npz.") from None
    except OSError:
        raise
    except Exception as error:  # a damaged pickle can raise anything
        raise InputError(f"{path} is damaged or is not a pickle ({error}). Fetch or write it again.") from None
    if not isinstance(content, dict) or not content:
        raise InputError(f"{path} holds a {type(content).__name__}, not a dict from class to feature vectors.")
    return {name: _stack(path, name, content.pop(name)) for name in list(content)}  # each list goes as its array comes


def _stack(path: str | os.PathLike[str], name: Any, vectors: Any) -> np.ndarray:
    if not isinstance(vectors, list | tuple | np.ndarray):
        raise InputError(f"{path} has a {type(vectors).__name__} for class {name}. It must be a list of vectors.")
    try:
        array = np.asarray(vectors)
    except ValueError:
        raise InputError(f"{path} has vectors of different lengths in class {name}. Extract them again.") from None
    if array.ndim != 2 or array.dtype.kind not in "fiu":
        raise InputError(
            f"{path} has an array of shape {array.shape} and type {array.dtype} for class {name}. "
            "It must be a list of vectors of numbers."
        )
    return array
