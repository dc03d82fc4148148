"""Labelled features: reading, checking, writing."""

import json
import os
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from p3dc.checks import Floats, as_names, as_rows, row_blocks
from p3dc.errors import InputError
from p3dc.files import replacing
from p3dc.legacy import read_plk

COLUMNS = ("embedding", "label", "id")
CLASS_NAMES_KEY = b"p3dc.class_names"

Batch = tuple[Floats, npt.NDArray[Any], npt.NDArray[np.str_] | None]
"""Some rows: features, labels as the file has them, ids."""


@dataclass(frozen=True, eq=False, init=False)
class FeatureSet:
    """Feature vectors with their classes.

    Parameters
    ----------
    features : array of shape (n_rows, n_features)
        Real numbers. The type is kept, so float16 stays float16.
    labels : array of shape (n_rows,)
        With ``class_names``, the position of each row's class in it. Without, any labels; they are sorted and numbered.
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
    """

    features: Floats
    labels: npt.NDArray[np.int64]
    class_names: tuple[str, ...]
    ids: npt.NDArray[np.str_] | None

    def __init__(
        self,
        features: npt.ArrayLike,
        labels: npt.ArrayLike,
        class_names: Sequence[str] | None = None,
        ids: npt.ArrayLike | None = None,
    ) -> None:
        rows = as_rows(features, "features")
        codes = np.asarray(labels)
        if codes.ndim != 1 or len(codes) != len(rows):
            raise InputError(f"labels have shape {codes.shape}, but there are {len(rows)} rows. Give one label a row.")
        if class_names is None:
            values, codes = np.unique(codes, return_inverse=True)
            class_names = values.tolist()
        elif codes.dtype.kind not in "iu" or codes.min() < 0 or codes.max() >= len(class_names):
            raise InputError(f"labels must be numbers from 0 to {len(class_names) - 1}, one for each of class_names.")
        names = as_names(class_names, len(class_names), "classes")
        if ids is not None:
            ids = np.asarray(ids, dtype=np.str_)
            if ids.shape != (len(rows),):
                raise InputError(f"ids have shape {ids.shape}, but there are {len(rows)} rows. Give one id a row.")
        object.__setattr__(self, "features", rows)
        object.__setattr__(self, "labels", codes.astype(np.int64, copy=False))
        object.__setattr__(self, "class_names", names)
        object.__setattr__(self, "ids", ids)

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        n_rows, n_features = self.features.shape
        return f"FeatureSet({n_rows:,} rows, {n_features:,} features, {len(self.class_names):,} classes)"

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, columns: tuple[str, str, str] = COLUMNS) -> "FeatureSet":
        """Read features from a file, or from a folder of Parquet parts.

        Parameters
        ----------
        path : path
            ``.npz`` with ``features``, ``labels`` and perhaps ``class_names`` and ``ids``; ``.parquet``, a file or a
            folder of parts; or ``.plk``, the pickled dict from class to vectors of the S2M2 and DC releases, of which
            only arrays and containers are read.
        columns : three names, default=("embedding", "label", "id")
            What the Parquet columns are called. The last may be missing from the file.

        Returns
        -------
        FeatureSet
        """
        path = Path(path)
        if _format_of(path) == "npz":
            return cls(**_read_npz(path))
        return cls(**(_read_plk(path) if _format_of(path) == "plk" else _read_parquet(path, columns)))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write to ``.npz`` or ``.parquet``, by the ending of the name. The file appears whole or not at all."""
        path = Path(path)
        if path.suffix not in (".npz", ".parquet"):
            raise InputError(f"{path} ends in {path.suffix!r}. Features are written as .npz or .parquet.")
        with replacing(path) as temporary:
            (_write_npz if path.suffix == ".npz" else _write_parquet)(self, temporary)


def stream_features(path: str | os.PathLike[str], *, columns: tuple[str, str, str] = COLUMNS) -> Iterator[Batch]:
    """Read features a batch at a time; of Parquet no more than a batch is ever in memory."""
    path = Path(path)
    if _format_of(path) == "parquet":
        yield from _parquet_batches(_parts(path), columns)
        return
    whole = FeatureSet.load(path)
    names = np.asarray(whole.class_names)
    for start, block in row_blocks(whole.features):
        part = slice(start, start + len(block))
        yield block, names[whole.labels[part]], None if whole.ids is None else whole.ids[part]


def _format_of(path: Path) -> str:
    if path.is_dir():
        return "parquet"
    if not path.exists():
        raise InputError(f"{path} does not exist. Give a file of features, or a folder of Parquet parts.")
    formats = {".npz": "npz", ".parquet": "parquet", ".plk": "plk", ".pkl": "plk", ".pickle": "plk"}
    if path.suffix not in formats:
        raise InputError(f"{path} ends in {path.suffix!r}. Features are read from .npz, .parquet and .plk.")
    return formats[path.suffix]


def _read_npz(path: Path) -> dict[str, Any]:
    if not zipfile.is_zipfile(path):
        raise InputError(f"{path} is damaged or is not an .npz file. Fetch or write it again.")
    try:
        with np.load(path, allow_pickle=False) as file:
            missing = {"features", "labels"} - set(file.files)
            if missing:
                found = ", ".join(file.files) or "nothing"
                raise InputError(f"{path} lacks {', '.join(sorted(missing))}; it holds {found}.")
            return {name: file[name] for name in ("features", "labels", "class_names", "ids") if name in file.files}
    except InputError:
        raise
    except (ValueError, EOFError, zipfile.BadZipFile, zlib.error, KeyError) as error:
        raise InputError(f"{path} is damaged ({error}). Fetch or write it again.") from None


def _write_npz(features: FeatureSet, path: Path) -> None:
    arrays: dict[str, Any] = {"features": features.features, "labels": features.labels}
    arrays["class_names"] = np.asarray(features.class_names, dtype=np.str_)
    if features.ids is not None:
        arrays["ids"] = features.ids
    with path.open("wb") as file:
        np.savez(file, **arrays)


def _read_plk(path: Path) -> dict[str, Any]:
    by_class = read_plk(path)
    names = list(by_class)
    counts = [len(rows) for rows in by_class.values()]
    widths = {rows.shape[1] for rows in by_class.values()}
    if len(widths) > 1:
        raise InputError(f"{path} has classes of {' and '.join(map(str, sorted(widths)))} features. Extract it again.")
    features = np.empty((sum(counts), widths.pop()), dtype=np.result_type(*by_class.values()))
    start = 0
    for name, count in zip(names, counts, strict=True):
        features[start : start + count] = by_class.pop(name)
        start += count
    return {"features": features, "labels": np.repeat(np.arange(len(names)), counts), "class_names": names}


def _parts(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    parts = sorted(p for p in path.rglob("*.parquet") if not p.name.startswith((".", "_")))
    if not parts:
        raise InputError(f"{path} holds no .parquet parts. Give the folder that they were written to.")
    return parts


def _read_parquet(path: Path, columns: tuple[str, str, str]) -> dict[str, Any]:
    parts = _parts(path)
    features: Floats | None = None
    labels: list[npt.NDArray[Any]] = []
    ids: list[npt.NDArray[np.str_]] = []
    order: dict[str, int] = {}
    n_rows, start = 0, 0
    for part in parts:
        with _opened(part) as file:
            n_rows += file.metadata.num_rows
            for name in json.loads((file.schema_arrow.metadata or {}).get(CLASS_NAMES_KEY, "[]")):
                order.setdefault(name, len(order))
    for block, block_labels, block_ids in _parquet_batches(parts, columns):
        if features is None:
            features = np.empty((n_rows, block.shape[1]), dtype=block.dtype)
        features[start : start + len(block)] = block
        start += len(block)
        labels.append(block_labels)
        if block_ids is not None:
            ids.append(block_ids)
    if features is None:
        raise InputError(f"{path} has no rows. Add at least one.")
    values, codes = np.unique(np.concatenate(labels), return_inverse=True)
    names = values.astype(np.str_).tolist()
    if set(names) <= set(order):
        codes, names = np.asarray([order[name] for name in names])[codes], list(order)
    return {
        "features": features,
        "labels": codes,
        "class_names": names,
        "ids": np.concatenate(ids) if ids else None,
    }


def _opened(part: Path) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.ParquetFile(part)
    except pa.ArrowException as error:
        raise InputError(f"{part} is damaged or is not a Parquet file ({error}). Fetch or write it again.") from None


def _parquet_batches(parts: Sequence[Path], columns: tuple[str, str, str]) -> Iterator[Batch]:
    import pyarrow as pa

    embedding, label, identity = columns
    width: int | None = None
    for part in parts:
        with _opened(part) as file:
            present = file.schema_arrow.names
            for name in (embedding, label):
                if name not in present:
                    raise InputError(
                        f"{part} has no column {name!r}; it has {', '.join(present)}. Say which with columns."
                    )
            wanted = [name for name in columns if name in present]
            done = 0
            try:
                for batch in file.iter_batches(batch_size=4096, columns=wanted):
                    block = _vectors(part, done, batch.column(embedding))
                    if width is not None and block.shape[1] != width:
                        raise InputError(
                            f"{part} has vectors of {block.shape[1]} features, but the parts before have {width}. "
                            "Extract all of them with the same backbone."
                        )
                    width = block.shape[1]
                    names = _values(part, done, batch.column(label), label)
                    ids = _values(part, done, batch.column(identity), identity) if identity in present else None
                    yield block, names, None if ids is None else ids.astype(np.str_)
                    done += len(block)
            except (pa.ArrowException, OSError) as error:
                raise InputError(f"{part} is damaged ({error}). Fetch or write it again.") from None


def _vectors(part: Path, start: int, column: Any) -> Floats:
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)):
        raise InputError(f"{part} has embeddings of type {kind}. They must be lists of numbers.")
    lengths = pc.list_value_length(column).to_numpy(zero_copy_only=False)
    wrong = np.flatnonzero(lengths != lengths[0])
    if column.null_count or len(wrong):
        row = start + int(wrong[0] if len(wrong) else 0)
        raise InputError(f"{part} row {row} has no embedding, or one of another length. Extract it again.")
    values = column.flatten()
    if values.null_count:
        raise InputError(f"{part} has embeddings with missing numbers. Extract it again.")
    block: Floats = values.to_numpy(zero_copy_only=False).reshape(len(column), -1)
    return block


def _values(part: Path, start: int, column: Any, name: str) -> npt.NDArray[Any]:
    if column.null_count:
        row = start + column.is_null().to_pylist().index(True)
        raise InputError(f"{part} row {row} has no {name}. Fill it in or remove the row.")
    values: npt.NDArray[Any] = column.to_numpy(zero_copy_only=False)
    return values.astype(np.str_) if values.dtype.kind == "O" else values


def _write_parquet(features: FeatureSet, path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    n_features = features.features.shape[1]
    fields = [
        ("embedding", pa.list_(pa.from_numpy_dtype(features.features.dtype), n_features)),
        ("label", pa.string()),
    ]
    if features.ids is not None:
        fields.append(("id", pa.string()))
    names = np.asarray(features.class_names, dtype=object)
    schema = pa.schema(fields, metadata={CLASS_NAMES_KEY: json.dumps(features.class_names)})
    with pq.ParquetWriter(path, schema) as writer:
        for start, block in row_blocks(features.features):
            part = slice(start, start + len(block))
            columns = [
                pa.FixedSizeListArray.from_arrays(pa.array(block.ravel()), n_features),
                pa.array(names[features.labels[part]]),
            ]
            if features.ids is not None:
                columns.append(pa.array(features.ids[part].tolist()))
            writer.write_batch(pa.record_batch(columns, schema=schema))
