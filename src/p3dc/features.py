"""Labelled features, and how to load and save them."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from p3dc._arrays import Floats, Labels, Progress, as_numpy, read_only, row_blocks
from p3dc._validation import as_labels, as_names, as_rows, listed
from p3dc.errors import InputError
from p3dc.io.atomic import check_text, replacing
from p3dc.io.npz import read_npz, write_npz
from p3dc.io.parquet import COLUMNS, Batch, count_rows, parquet_batches, parts_of, read_parquet, write_parquet
from p3dc.io.plk import read_plk


@dataclass(frozen=True, eq=False, init=False)
class FeatureSet:
    """Feature vectors with their classes.

    Parameters
    ----------
    features : array of shape (n_rows, n_features), or mapping from class to such arrays
        Real numbers. The type is kept, so float16 stays float16; bfloat16 becomes float32. Tensors, and columns of
        pandas whose entries are vectors, count as arrays. The classes of a mapping keep its order.
    labels : array of shape (n_rows,), optional
        With ``class_names``, the position of each row's class in it. Without, any labels; they are sorted and numbered.
        A mapping has its labels already.
    class_names : sequence of str, optional
        One name for each class.
    ids : sequence of str, optional
        One name for each row, a path for example.

    Examples
    --------
    >>> from p3dc import FeatureSet
    >>> birds = FeatureSet([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]], ["wren", "wren", "robin"])
    >>> birds.class_names
    ('robin', 'wren')
    >>> birds.labels
    array([1, 1, 0])
    >>> birds
    FeatureSet(3 rows, 2 features, 2 classes)

    A slice, a mask or row numbers choose rows, and :meth:`select` chooses classes:

    >>> birds[1:]
    FeatureSet(2 rows, 2 features, 2 classes)
    >>> birds.select(["wren"]).labels
    array([0, 0])
    """

    features: Floats
    labels: Labels
    class_names: tuple[str, ...]
    ids: npt.NDArray[np.str_] | None

    def __init__(
        self,
        features: npt.ArrayLike | Mapping[Any, npt.ArrayLike],
        labels: npt.ArrayLike | None = None,
        class_names: Sequence[str] | None = None,
        ids: npt.ArrayLike | None = None,
    ) -> None:
        if isinstance(features, Mapping):
            if labels is not None or class_names is not None:
                raise InputError("features are a mapping from class to rows. Leave out labels and class_names.")
            features, labels, class_names = _joined(features)
        if labels is None:
            raise InputError("features have no labels. Give one label a row, or a mapping from class to rows.")
        rows = as_rows(features, "features")
        codes = as_labels(labels, len(rows))
        if class_names is None:
            values, codes = np.unique(codes, return_inverse=True)
            class_names = values.tolist()
        names = as_names(class_names)
        if codes.dtype.kind not in "iu" or codes.min() < 0 or codes.max() >= len(names):
            found = np.unique(codes)
            raise InputError(
                f"labels reach from {found[0]} to {found[-1]}. With {len(names)} class_names they must be whole "
                f"numbers from 0 to {len(names) - 1}."
            )
        if ids is not None:
            ids = read_only(as_labels(ids, len(rows), "id").astype(np.str_, copy=False))
        object.__setattr__(self, "features", read_only(rows))
        object.__setattr__(self, "labels", read_only(codes.astype(np.int64, copy=False)))
        object.__setattr__(self, "class_names", names)
        object.__setattr__(self, "ids", ids)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, rows: slice | npt.ArrayLike) -> "FeatureSet":
        if not isinstance(rows, slice):
            rows = np.asarray(as_numpy(rows))
            if rows.ndim != 1 or rows.dtype.kind not in "biu":
                raise InputError("rows are chosen by a slice, a mask or a list of row numbers. Give one of them.")
            if rows.dtype.kind == "b" and len(rows) != len(self):
                raise InputError(f"the mask has {len(rows)} entries for {len(self)} rows. Give one a row.")
        ids = None if self.ids is None else self.ids[rows]
        return FeatureSet(self.features[rows], self.labels[rows], self.class_names, ids)

    @property
    def n_classes(self) -> int:
        """The number of classes, with those that have no rows."""
        return len(self.class_names)

    def select(self, classes: Iterable[object]) -> "FeatureSet":
        """Keep the rows of some classes, given by their names; they are numbered in the given order."""
        names = as_names(classes)
        missing = [name for name in names if name not in self.class_names]
        if missing:
            raise InputError(f"there is no class {missing[0]!r}. Choose from {listed(self.class_names)}.")
        numbers = np.full(self.n_classes, -1)
        numbers[[self.class_names.index(name) for name in names]] = np.arange(len(names))
        codes = numbers[self.labels]
        kept = codes >= 0
        ids = None if self.ids is None else self.ids[kept]
        return FeatureSet(self.features[kept], codes[kept], names, ids)

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, value in state.items():  # a pickled array comes back writable
            object.__setattr__(self, name, read_only(value) if isinstance(value, np.ndarray) else value)

    def __deepcopy__(self, memo: dict[int, Any]) -> "FeatureSet":
        return self  # nothing in it can change, and scikit-learn copies parameters often

    def __repr__(self) -> str:
        n_rows, n_features = self.features.shape
        return f"FeatureSet({n_rows:,} rows, {n_features:,} features, {self.n_classes:,} classes)"

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, columns: tuple[str, str, str] = COLUMNS) -> "FeatureSet":
        """Read features from a file, or from a folder of Parquet parts.

        Parameters
        ----------
        path : path
            ``.npz`` with ``features``, ``labels`` and perhaps ``class_names`` and ``ids``; ``.parquet``, a file or a
            folder of parts; or ``.plk``, the pickled dict from class to vectors of the S2M2 and DC releases. Nothing in
            a pickle is run: only arrays and containers are read.
        columns : three names, default=("embedding", "label", "id")
            The names of the Parquet columns. The last may be missing from the file.

        Returns
        -------
        FeatureSet
        """
        path = Path(path)
        return _load(path, _format_of(path), columns)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write to ``.npz`` or ``.parquet``, by the ending of the path. The file appears whole or not at all."""
        path = Path(path)
        if path.suffix not in (".npz", ".parquet"):
            raise InputError(f"{path} ends in {path.suffix!r}. Features are written as .npz or .parquet.")
        check_text(self.class_names, "class_names")
        check_text([] if self.ids is None else self.ids.tolist(), "ids")
        with replacing(path) as temporary:
            if path.suffix == ".npz":
                arrays = {"features": self.features, "labels": self.labels, "class_names": np.array(self.class_names)}
                write_npz(temporary, arrays if self.ids is None else arrays | {"ids": self.ids})
            else:
                names = np.array(self.class_names, dtype=object)
                write_parquet(temporary, _batches(self, names), class_names=self.class_names)


LabelledFeatures = FeatureSet | tuple[npt.ArrayLike, npt.ArrayLike] | Mapping[Any, npt.ArrayLike]
"""A set of features, a pair (X, y), or a mapping from class to rows."""


def as_feature_set(features: LabelledFeatures) -> FeatureSet:
    """Return a set of features as it is, or made from a pair (X, y) or from a mapping."""
    if isinstance(features, FeatureSet):
        return features
    if isinstance(features, Mapping):
        return FeatureSet(features)
    if isinstance(features, tuple) and len(features) == 2:
        return FeatureSet(*features)
    raise InputError(f"features are of type {type(features).__name__}. Give a FeatureSet, or a pair (X, y).")


def _joined(rows_of: Mapping[Any, npt.ArrayLike]) -> tuple[Floats, Labels, list[Any]]:
    """Join the rows of each class: features, the position of each row's class, and the classes."""
    parts = [as_rows(rows, f"features of {name!r}") for name, rows in rows_of.items()]
    if len({part.shape[1] for part in parts}) != 1:
        widths = listed(sorted({str(part.shape[1]) for part in parts})) or "no rows at all"
        raise InputError(f"classes have different numbers of features: {widths}. Extract all with the same backbone.")
    return np.concatenate(parts), np.repeat(np.arange(len(parts)), [len(part) for part in parts]), list(rows_of)


def stream_features(
    path: str | os.PathLike[str],
    *,
    columns: tuple[str, str, str] = COLUMNS,
    progress: Progress | None = None,
) -> Iterator[Batch]:
    """Read features a batch at a time; a Parquet file is never in memory as a whole.

    ``progress`` is called after each batch with the number of rows read and the number of all rows.
    """
    path = Path(path)
    kind = _format_of(path)
    if kind == "parquet":
        n_rows, batches = count_rows(path), parquet_batches(path, columns)
    else:
        whole = _load(path, kind, columns)
        n_rows, batches = len(whole), _batches(whole, np.array(whole.class_names))
    done = 0
    for batch in batches:
        yield batch
        done += len(batch[0])
        if progress:
            progress(done, n_rows)


def _batches(whole: FeatureSet, names: npt.NDArray[Any]) -> Iterator[Batch]:
    for start, block in row_blocks(whole.features):
        part = slice(start, start + len(block))
        yield block, names[whole.labels[part]], None if whole.ids is None else whole.ids[part]


def feature_parts(path: str | os.PathLike[str]) -> list[Path]:
    """List the files that :func:`stream_features` reads, in order; each can be read separately."""
    path = Path(path)
    return parts_of(path) if _format_of(path) == "parquet" else [path]


def _load(path: Path, kind: str, columns: tuple[str, str, str]) -> FeatureSet:
    readers = {"npz": read_npz, "parquet": lambda path: read_parquet(path, columns), "plk": _read_plk}
    content = readers[kind](path)
    try:
        return FeatureSet(**content)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def _format_of(path: Path) -> str:
    if path.is_dir():
        return "parquet"
    if not path.exists():
        raise InputError(f"{path} does not exist. Give a file of features, or a folder of Parquet parts.")
    formats = {".npz": "npz", ".parquet": "parquet", ".plk": "plk", ".pkl": "plk", ".pickle": "plk"}
    if path.suffix not in formats:
        raise InputError(f"{path} ends in {path.suffix!r}. Features are read from .npz, .parquet and .plk.")
    return formats[path.suffix]


def _read_plk(path: Path) -> dict[str, Any]:
    features, counts = read_plk(path)
    labels = np.repeat(np.arange(len(counts)), list(counts.values()))
    return {"features": features, "labels": labels, "class_names": list(counts)}
