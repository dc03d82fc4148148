"""Features in Parquet: one file, or a folder of parts.

Files that this package writes have checksums on their pages and, under ``p3dc.digests``, digests of what a checksum
does not cover: the content of each column, and the schema and metadata themselves.
"""

import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from p3dc._arrays import Floats
from p3dc.errors import InputError
from p3dc.io.atomic import damaged
from p3dc.io.digests import json_digest
from p3dc.io.memory import check_memory
from p3dc.io.store import Location, StoreError

COLUMNS = ("embedding", "label", "id")
CLASS_NAMES_KEY = b"p3dc.class_names"
DIGESTS_KEY = b"p3dc.digests"
FIELD_ID_KEY, FIELD_ID = b"PARQUET:field_id", b"20613"
"""The number of the first column in files with digests: it lies apart from the metadata, which damage can hide."""

LONGEST_TEXT = 4096
"""Characters of a label or an id, at most; NumPy gives every row as many as the longest has."""

Batch = tuple[Floats, npt.NDArray[Any], npt.NDArray[Any] | None]
"""Some rows: features, labels as the file has them, ids."""

WideBatch = tuple[Floats, npt.NDArray[Any], npt.NDArray[Any] | None, dict[str, Floats]]
"""Some rows with further columns of vectors or matrices, by name."""


def parts_of(path: Location) -> list[Location]:
    """List the files of a folder of parts in order, or the only file."""
    if not path.is_dir():
        return [path]
    parts: list[Location] = [
        part
        for part in path.rglob("*.parquet")
        if part.is_file() and not any(name.startswith((".", "_")) for name in _parts_below(path, part))
    ]
    parts.sort(key=lambda part: _parts_below(path, part))
    if not parts:
        raise InputError(f"{path} holds no .parquet parts. Give the folder that they were written to.")
    return parts


def _parts_below(folder: Location, path: Location) -> tuple[str, ...]:
    return PurePosixPath(str(path).removeprefix(f"{folder}/")).parts


def count_rows(path: Location) -> int:
    """Count the rows of a file or of a folder of parts, from the metadata of the files."""
    total = 0
    for part in parts_of(path):
        with open_parquet(part) as file:
            total += file.metadata.num_rows
    return total


def read_parquet(path: Location, columns: tuple[str, str, str]) -> dict[str, Any]:
    """Read features, labels, class names and ids of a file or of a folder of parts."""
    features: Floats | None = None
    labels: list[npt.NDArray[Any]] = []
    ids: list[npt.NDArray[np.str_]] = []
    order: dict[str, int] = {}
    dtypes: list[np.dtype[Any]] = []
    n_rows, start = 0, 0
    for part in parts_of(path):
        with open_parquet(part) as file:
            n_rows += file.metadata.num_rows
            if file.metadata.num_rows:
                dtypes.append(_number_type(part, file.schema_arrow, columns))
            for name in _class_names(part, file.metadata.metadata):
                order.setdefault(name, len(order))
    if not n_rows:
        raise InputError(f"{path} has no rows. Add at least one.")
    for block, block_labels, block_ids in parquet_batches(path, columns):
        if features is None:
            features = _empty(path, (n_rows, block.shape[1]), np.result_type(*dtypes))
        if start + len(block) > n_rows:
            break
        features[start : start + len(block)] = block
        start += len(block)
        labels.append(block_labels)
        if block_ids is not None:
            ids.append(block_ids)
    if features is None or start != n_rows:
        raise InputError(f"{path} is damaged: it says that it has {n_rows} rows. Fetch or write it again.")
    if ids and sum(map(len, ids)) != n_rows:
        raise InputError(f"{path} has parts with ids and parts without. Write all of them with ids or none.")
    values, codes = np.unique(np.concatenate(labels), return_inverse=True)
    names = values.astype(np.str_).tolist()
    if set(names) <= set(order):
        codes, names = np.asarray([order[name] for name in names])[codes], list(order)
    return {"features": features, "labels": codes, "class_names": names, "ids": np.concatenate(ids) if ids else None}


def read_vectors(path: Location, name: str) -> Floats | None:
    """Read a column of vectors of a file or of a folder of parts; None if a part does not have it."""
    blocks: list[Floats] = []
    for part in parts_of(path):
        with open_parquet(part) as file:
            if not file.metadata.num_rows:
                continue
            if name not in file.schema_arrow.names:
                return None
            try:
                for batch in _checked_batches(file, 256, [name]):
                    blocks.append(_vectors(part, sum(map(len, blocks)), batch.column(name)))
            except InputError:
                raise
            except Exception as error:  # a damaged file can raise anything
                raise damaged(part, error) from None
    return np.concatenate(blocks) if blocks else None


def _empty(path: Location, shape: tuple[int, int], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    check_memory(path, math.prod(shape) * dtype.itemsize)
    try:
        return np.empty(shape, dtype)
    except (MemoryError, ValueError):
        raise InputError(
            f"{path} has {shape[0]:,} rows of {shape[1]:,} features, too many for this machine. "
            "Base classes can be averaged with p3dc priors, which reads a batch at a time."
        ) from None


def _class_names(part: Location, metadata: dict[bytes, bytes] | None) -> list[str]:
    try:
        names = json.loads((metadata or {}).get(CLASS_NAMES_KEY, b"[]"))
    except (ValueError, RecursionError):
        names = None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        key = CLASS_NAMES_KEY.decode()
        raise InputError(f"{part} has metadata {key} that are not a JSON list of names. Write it again.")
    return names


def open_parquet(part: Location) -> Any:
    """Open a Parquet file, here or in a store."""
    import pyarrow.parquet as pq

    try:
        # Without these a reader holds all row groups, or all of one, before it returns the first row.
        file = part if isinstance(part, Path) else part.open()
        opened = pq.ParquetFile(file, pre_buffer=False, buffer_size=2**20, page_checksum_verification=True)
        if (written := _digests(opened)) and written.get(FOOTER) != _footer_digest(opened):
            opened.close()
            raise ValueError("its metadata do not have the digest that was written with them")
        return opened
    except StoreError:
        raise
    except Exception as error:  # a damaged file can raise anything
        raise damaged(part, error, "is not a Parquet file") from None


def _number_type(part: Location, schema: Any, columns: tuple[str, str, str]) -> np.dtype[Any]:
    """Check the columns and return the type of the features to read."""
    import pyarrow as pa

    embedding, label, identity = columns
    for name in columns:
        if schema.names.count(name) > 1:
            raise InputError(f"{part} has {schema.names.count(name)} columns {name!r}. Rename all but one.")
    for name in (embedding, label):
        if name not in schema.names:
            raise InputError(
                f"{part} has no column {name!r}; it has {', '.join(schema.names)}. Name them with columns."
            )
    for name in (label, identity):
        if name in schema.names:
            kind = schema.field(name).type
            plain = kind.value_type if pa.types.is_dictionary(kind) else kind
            texts = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
            numbers = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean)
            if not any(accepts(plain) for accepts in (*texts, *numbers)):
                raise InputError(f"{part} has a column {name!r} of type {kind}. It must be text or numbers.")
    kind = schema.field(embedding).type
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)):
        raise InputError(f"{part} has embeddings of type {kind}. They must be lists of numbers.")
    if pa.types.is_floating(kind.value_type):
        numbers_of: type[np.floating] = kind.value_type.to_pandas_dtype()
        return np.dtype(numbers_of)
    if not pa.types.is_integer(kind.value_type):
        raise InputError(f"{part} has embeddings of type {kind}. They must be real numbers.")
    return np.dtype(np.float64)


def parquet_batches(path: Location, columns: tuple[str, str, str]) -> Iterator[Batch]:
    """Read a file or a folder of parts, with one batch in memory at a time."""
    embedding, label, identity = columns
    width: int | None = None
    for part in parts_of(path):
        with open_parquet(part) as file:
            if not file.metadata.num_rows:
                continue
            dtype = _number_type(part, file.schema_arrow, columns)
            present = file.schema_arrow.names
            done = 0
            try:
                for batch in _checked_batches(file, 4096, [name for name in columns if name in present]):
                    if not len(batch):
                        continue
                    block = _vectors(part, done, batch.column(embedding)).astype(dtype, copy=False)
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
            except InputError:
                raise
            except Exception as error:  # a damaged file can raise anything
                raise damaged(part, error) from None


def _vectors(part: Location, start: int, column: Any) -> Floats:
    import pyarrow.compute as pc

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


def _values(part: Location, start: int, column: Any, name: str) -> npt.NDArray[Any]:
    if column.null_count:
        row = start + column.is_null().to_pylist().index(True)
        raise InputError(f"{part} row {row} has no {name}. Fill it in or remove the row.")
    values: npt.NDArray[Any] = column.to_numpy(zero_copy_only=False)
    if values.dtype.kind == "O" and (longest := max(map(len, values), default=0)) > LONGEST_TEXT:
        raise InputError(f"{part} has a {name} of {longest:,} characters; {LONGEST_TEXT:,} are the most. Shorten it.")
    if values.dtype.kind == "f" and np.isnan(values).any():
        row = start + int(np.flatnonzero(np.isnan(values))[0])
        raise InputError(f"{part} row {row} has NaN for its {name}. Fill it in or remove the row.")
    return values.astype(np.str_) if values.dtype.kind == "O" else values


def write_parquet(
    file: IO[bytes], batches: Iterable[Batch | WideBatch], last: Mapping[str, object] | None = None, **metadata: object
) -> None:
    """Write one row group for each batch, and each of the metadata as JSON under the key ``p3dc.name``.

    Those of ``last`` are written after the batches, so that they may change while batches are made.
    """
    import pyarrow.parquet as pq

    records = (_record_batch(*batch) for batch in batches)
    first = next(records)
    marked = first.schema.set(0, first.schema.field(0).with_metadata({FIELD_ID_KEY: FIELD_ID}))
    schema, content = marked.with_metadata(_as_json(metadata)), _ColumnDigests()
    with pq.ParquetWriter(file, schema, use_dictionary=["label"], write_page_checksum=True) as writer:
        for record in chain([first], records):
            writer.write_batch(record)
            content.add(record)
        ending = _as_json(last or {})
        footer = _described(schema.names, content.n_rows, _as_json(metadata) | ending)
        writer.add_key_value_metadata(ending | _as_json({"digests": content.digests() | {FOOTER: footer}}))


FOOTER = ""
"""Under which the digests of the columns have that of the schema and the metadata; no column has this name."""


class _ColumnDigests:
    """Digests of columns that come in batches, however these are cut."""

    def __init__(self) -> None:
        self.n_rows = 0
        self.found: dict[str, Any] = {}

    def add(self, record: Any) -> None:
        """Take in the rows of a batch."""
        self.n_rows += len(record)
        for name in record.schema.names:
            for piece in _bytes_of(record.column(name)):
                self.found.setdefault(name, hashlib.sha256()).update(piece)

    def digests(self) -> dict[str, str]:
        """Return the digest of each column."""
        return {name: found.hexdigest() for name, found in self.found.items()}


def _bytes_of(column: Any) -> Iterator[Any]:
    """Yield what tells the rows of a column from others: the types and numbers of vectors, the text of labels."""
    import pyarrow as pa

    if pa.types.is_nested(column.type):
        values = column.flatten().to_numpy(zero_copy_only=False)
        yield np.ascontiguousarray(values).view(np.uint8)
    else:
        yield "".join(f"{text}\0" for text in column.to_pylist()).encode()


def _described(names: list[str], n_rows: int, metadata: Mapping[str, str]) -> str:
    return json_digest([names, n_rows, dict(metadata)])


def _digests(file: Any) -> dict[str, str]:
    """Return the digests that a file was written with; none if another program wrote it."""
    found = json.loads((file.metadata.metadata or {}).get(DIGESTS_KEY, b"{}"))
    if not isinstance(found, dict):
        raise ValueError("its digests are no table")
    if not found and any((field.metadata or {}).get(FIELD_ID_KEY) == FIELD_ID for field in file.schema_arrow):
        raise ValueError("it was written with digests but has lost them")
    return found


def _footer_digest(file: Any) -> str:
    known = {key.decode(): value.decode() for key, value in file.metadata.metadata.items() if key.startswith(b"p3dc.")}
    del known[DIGESTS_KEY.decode()]
    return _described(file.schema_arrow.names, file.metadata.num_rows, known)


def _checked_batches(file: Any, n_rows: int, columns: list[str]) -> Iterator[Any]:
    """Read columns a batch at a time, and refuse the file after the last if its digests are of other content."""
    written, content = _digests(file), _ColumnDigests()
    for batch in file.iter_batches(batch_size=n_rows, columns=columns):
        if written:
            content.add(batch)
        yield batch
    found = content.digests()
    changed = [name for name in columns if written and written.get(name) != found.get(name)]
    if changed:
        raise ValueError(f"{changed[0]} does not have the digest that was written with it")


def _as_json(metadata: Mapping[str, object]) -> dict[str, str]:
    return {f"p3dc.{key}": json.dumps(value) for key, value in metadata.items()}


def _record_batch(
    features: Floats, labels: npt.NDArray[Any], ids: npt.NDArray[Any] | None, others: dict[str, Floats] | None = None
) -> Any:
    import pyarrow as pa

    columns = {"embedding": _lists(features), "label": pa.array(labels, pa.string())}
    if ids is not None:
        columns["id"] = pa.array(ids, pa.string())
    return pa.record_batch(columns | {name: _lists(values) for name, values in (others or {}).items()})


def _lists(values: Floats) -> Any:
    import pyarrow as pa

    return pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), math.prod(values.shape[1:]))
