"""Labelled features, and how to load and save them."""

import reprlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from p3dc._arrays import Floats, Labels, Progress, as_numpy, read_only, row_blocks
from p3dc._validation import as_labels, as_names, as_rows, listed
from p3dc.errors import InputError
from p3dc.io.atomic import check_text
from p3dc.io.npz import read_npz, write_npz
from p3dc.io.parquet import (
    COLUMNS,
    Batch,
    WideBatch,
    count_rows,
    parquet_batches,
    parts_of,
    read_parquet,
    read_vectors,
    write_parquet,
)
from p3dc.io.plk import read_plk
from p3dc.io.store import Address, Location, location, writing

PER_ROW = ("views", "maps")
"""What a set may have beside its features: several vectors for each row."""


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
    views : array of shape (n_rows, n_views, n_features), optional
        The features of each view of a photo, where ``features`` are their average.
    maps : array of shape (n_rows, n_positions, n_features), optional
        Feature maps from before the pooling.

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
    views: Floats | None
    maps: Floats | None

    def __init__(
        self,
        features: npt.ArrayLike | Mapping[Any, npt.ArrayLike],
        labels: npt.ArrayLike | None = None,
        class_names: Sequence[str] | None = None,
        ids: npt.ArrayLike | None = None,
        *,
        views: npt.ArrayLike | None = None,
        maps: npt.ArrayLike | None = None,
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
        object.__setattr__(self, "views", _per_row(views, rows, "views"))
        object.__setattr__(self, "maps", _per_row(maps, rows, "maps"))

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, chosen: slice | npt.ArrayLike) -> "FeatureSet":
        rows: Any = chosen
        if not isinstance(rows, slice):
            rows = np.asarray(as_numpy(rows))
            if rows.ndim != 1 or rows.dtype.kind not in "biu":
                raise InputError(
                    f"rows are chosen by {reprlib.repr(chosen)}. Give a slice, a mask or a list of row numbers."
                )
            if rows.dtype.kind == "b" and len(rows) != len(self):
                raise InputError(f"the mask has {len(rows)} entries for {len(self)} rows. Give one a row.")
        ids = None if self.ids is None else self.ids[rows]
        return FeatureSet(self.features[rows], self.labels[rows], self.class_names, ids, **self.per_row(rows))

    @property
    def n_classes(self) -> int:
        """The number of classes, including those without rows."""
        return len(self.class_names)

    def select(self, classes: Iterable[object]) -> "FeatureSet":
        """Keep the rows of the named classes, which are numbered in the given order."""
        names = as_names(classes)
        missing = [name for name in names if name not in self.class_names]
        if missing:
            raise InputError(f"there is no class {missing[0]!r}. Choose from {listed(self.class_names)}.")
        numbers = np.full(self.n_classes, -1)
        numbers[[self.class_names.index(name) for name in names]] = np.arange(len(names))
        codes = numbers[self.labels]
        kept = codes >= 0
        ids = None if self.ids is None else self.ids[kept]
        return FeatureSet(self.features[kept], codes[kept], names, ids, **self.per_row(kept))

    def per_row(self, rows: Any) -> dict[str, Any]:
        """Return the views and maps of some rows, where there are any, as arguments of another set."""
        return {name: array[rows] for name in PER_ROW if (array := getattr(self, name)) is not None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, value in state.items():  # a pickled array comes back writable
            object.__setattr__(self, name, read_only(value) if isinstance(value, np.ndarray) else value)

    def __deepcopy__(self, memo: dict[int, Any]) -> "FeatureSet":
        return self  # nothing in it can change, and scikit-learn copies parameters often

    def __repr__(self) -> str:
        n_rows, n_features = self.features.shape
        numbers = {"rows": n_rows, "features": n_features, "classes": self.n_classes}
        if self.views is not None:
            numbers["views"] = self.views.shape[1]
        if self.maps is not None:
            numbers["positions"] = self.maps.shape[1]
        return f"FeatureSet({', '.join(f'{number:,} {what}' for what, number in numbers.items())})"

    @classmethod
    def load(cls, path: Address, *, columns: tuple[str, str, str] = COLUMNS, also: Sequence[str] = ()) -> "FeatureSet":
        """Read features from a file, or from a folder of Parquet parts.

        Parameters
        ----------
        path : path, or address in a store
            ``.npz`` with ``features``, ``labels`` and perhaps ``class_names`` and ``ids``; ``.parquet``, a file or a
            folder of parts; or ``.plk``, the pickled dict from class to vectors of the S2M2 and DC releases. Nothing in
            a pickle is run: only arrays and containers are read.
        columns : three names, default=("embedding", "label", "id")
            The names of the Parquet columns. The last may be missing from the file.
        also : sequence of str
            "views" and "maps", to read these as well where the file has them. They may take much memory.

        Returns
        -------
        FeatureSet
        """
        place = location(path)
        return _load(place, _format_of(place), columns, also)

    def save(self, path: Address) -> None:
        """Write to ``.npz`` or ``.parquet``, by the ending of the path; the file appears complete or not at all."""
        place = location(path)
        if place.suffix not in (".npz", ".parquet"):
            raise InputError(f"{place} ends in {place.suffix!r}. Features are written as .npz or .parquet.")
        check_text(self.class_names, "class_names")
        check_text([] if self.ids is None else self.ids.tolist(), "ids")
        with writing(place) as file:
            if place.suffix == ".npz":
                arrays = {"features": self.features, "labels": self.labels, "class_names": np.array(self.class_names)}
                arrays |= {} if self.ids is None else {"ids": self.ids}
                write_npz(file, arrays | self.per_row(slice(None)))
            else:
                names = np.array(self.class_names, dtype=object)
                write_parquet(file, _wide_batches(self, names), class_names=self.class_names)


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
    path: Address,
    *,
    columns: tuple[str, str, str] = COLUMNS,
    progress: Progress | None = None,
) -> Iterator[Batch]:
    """Read features a batch at a time; a Parquet file is never in memory as a whole.

    ``progress`` is called after each batch with the number of rows read and the number of all rows.
    """
    place = location(path)
    kind = _format_of(place)
    if kind == "parquet":
        n_rows, batches = count_rows(place), parquet_batches(place, columns)
    else:
        whole = _load(place, kind, columns)
        n_rows, batches = len(whole), _batches(whole, np.array(whole.class_names))
    done = 0
    for batch in batches:
        yield batch
        done += len(batch[0])
        if progress:
            progress(done, n_rows)


def stream_keyed(path: Address, *, progress: Progress | None = None) -> Iterator[tuple[Floats, Sequence[str]]]:
    """Read rows a batch at a time, with their ids or, where they have none, the file's name and their numbers in it."""
    n_before = 0
    for rows, _, ids in stream_features(path, progress=progress):
        numbers = range(n_before, n_before + len(rows))
        yield rows, [f"{location(path).name}:{number}" for number in numbers] if ids is None else ids.tolist()
        n_before += len(rows)


def _batches(whole: FeatureSet, names: npt.NDArray[Any]) -> Iterator[Batch]:
    for start, block in row_blocks(whole.features):
        part = slice(start, start + len(block))
        yield block, names[whole.labels[part]], None if whole.ids is None else whole.ids[part]


def _wide_batches(whole: FeatureSet, names: npt.NDArray[Any]) -> Iterator[WideBatch]:
    """Cut a set into batches with its views and maps."""
    start = 0
    for block, labels, ids in _batches(whole, names):
        yield block, labels, ids, whole.per_row(slice(start, start + len(block)))
        start += len(block)


def _per_row(values: npt.ArrayLike | None, rows: Floats, name: str) -> Floats | None:
    """Check vectors of each row, and return them in the shape (n_rows, n_vectors, n_features)."""
    if values is None:
        return None
    array = np.asarray(values)
    n_rows, n_features = rows.shape
    if array.dtype.kind != "f" or len(array) != n_rows or array.size % rows.size or not array.size:
        raise InputError(
            f"{name} are {array.dtype} of shape {array.shape}. They must be floats, ({n_rows}, n, {n_features})."
        )
    return read_only(array.reshape(n_rows, -1, n_features))


def feature_parts(path: Address) -> list[Location]:
    """List the files that :func:`stream_features` reads, in order; each can be read separately."""
    place = location(path)
    return parts_of(place) if _format_of(place) == "parquet" else [place]


def _load(path: Location, kind: str, columns: tuple[str, str, str], also: Sequence[str] = ()) -> FeatureSet:
    unknown = [name for name in also if name not in PER_ROW]
    if unknown:
        raise InputError(f"also names {unknown[0]!r}. It may name {' and '.join(PER_ROW)}.")
    readers = {
        "npz": lambda path: read_npz(path, also),
        "parquet": lambda path: read_parquet(path, columns) | {name: read_vectors(path, name) for name in also},
        "plk": _read_plk,
    }
    content = readers[kind](path)
    try:
        return FeatureSet(**content)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def _format_of(path: Location) -> str:
    if path.is_dir():
        return "parquet"
    if not path.exists():
        raise InputError(f"{path} does not exist. Give a file of features, or a folder of Parquet parts.")
    formats = {".npz": "npz", ".parquet": "parquet", ".plk": "plk", ".pkl": "plk", ".pickle": "plk"}
    if path.suffix not in formats:
        raise InputError(f"{path} ends in {path.suffix!r}. Features are read from .npz, .parquet and .plk.")
    return formats[path.suffix]


def _read_plk(path: Location) -> dict[str, Any]:
    if not isinstance(path, Path):
        raise InputError(f"{path} is in a store, where only .npz and .parquet are read. Fetch it first.")
    features, counts = read_plk(path)
    labels = np.repeat(np.arange(len(counts)), list(counts.values()))
    return {"features": features, "labels": labels, "class_names": list(counts)}
