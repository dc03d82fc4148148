"""Checks of what users pass in. Each error says what is wrong, what was found and what to do."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from numbers import Integral, Real
from typing import Any

import numpy as np
import numpy.typing as npt
from array_api_compat import array_namespace

from p3dc._arrays import Floats, Mask, as_numpy, row_blocks, stack_rows
from p3dc.errors import InputError

KEPT_TYPES = (np.float16, np.float32, np.float64)


def as_rows(rows: npt.ArrayLike, what: str) -> Floats:
    """Return rows as a two-dimensional array of floats without NaN or infinity."""
    check_unmasked(rows, what)
    try:
        array = stack_rows(rows)
    except ValueError:
        raise InputError(f"{what} are rows of different lengths. Extract all of them with the same backbone.") from None
    if array.dtype.kind not in "fiub":
        raise InputError(f"{what} are of type {array.dtype}. They must be real numbers.")
    if array.dtype not in KEPT_TYPES:
        array = array.astype(np.float64)
    if array.ndim != 2:
        raise InputError(f"{what} have shape {array.shape}. They must have two axes: one row a sample.")
    if 0 in array.shape:
        raise InputError(f"{what} are empty: {array.shape[0]} rows of {array.shape[1]} features. Add at least one row.")
    check_finite(array, what)
    return array


def check_unmasked(values: Any, what: str) -> None:
    """Refuse masked arrays with values that are masked, which NumPy would use as if they were not."""
    if np.ma.is_masked(values):
        n_masked = int(np.ma.getmaskarray(values).sum())
        raise InputError(
            f"{what} have {n_masked} masked values. Fill them or leave out their rows, and pass a plain array."
        )


def check_finite(rows: Floats, what: str) -> None:
    """Refuse NaN and infinity, and name the first row that has them."""
    xp = array_namespace(rows)
    for start, block in row_blocks(rows):
        bad = _first(~xp.isfinite(block))
        if bad is not None:
            row, feature = bad
            value = "NaN" if xp.isnan(block[row, feature]) else "infinity"
            raise InputError(
                f"{what} row {start + row} has {value} at feature {feature}. Remove the row or extract it again."
            )


def check_directions(rows: Floats, what: str) -> None:
    """Refuse rows of zeros, which have no cosine."""
    row = first_empty(rows)
    if row is not None:
        raise InputError(f"{what} row {row} is all zeros and so has no direction. Remove the row.")


def first_empty(rows: Floats) -> int | None:
    """Return the number of the first row of zeros, if there is one."""
    xp = array_namespace(rows)
    for start, block in row_blocks(rows):
        empty = _first(xp.all(block == 0, axis=1)[:, None])
        if empty is not None:
            return start + empty[0]
    return None


def _first(marks: Mask) -> tuple[int, int] | None:
    """Return row and column of the first mark, if there is one."""
    xp = array_namespace(marks)
    if not xp.any(marks):
        return None
    place = int(xp.argmax(xp.astype(xp.reshape(marks, (-1,)), xp.uint8)))
    return divmod(place, int(marks.shape[1]))


def check_power(rows: Floats, power: float, what: str) -> None:
    """Refuse features, (..., D), that have no Tukey transform: negative ones, or zeros if it is a logarithm."""
    if power == 1:
        return
    for start, block in row_blocks(rows.reshape(-1, rows.shape[-1])):
        bad = _first(block <= 0 if power == 0 else block < 0)
        if bad is not None:
            row, feature = bad
            got = f"{what} row {start + row} has {block[row, feature]:.6g} at feature {feature}"
            if block[row, feature] < 0:
                raise InputError(
                    f"Negative values in data: {got}, and power={power:g} needs features that are not negative. "
                    "Use power=1, or features taken after a ReLU."
                )
            raise InputError(f"{got}, and power={power:g} needs positive features. Use power=0.5 or power=1.")


def check_similarities(rows: Floats, prototypes: Floats, power: float, dtype: npt.DTypeLike) -> None:
    """Refuse features whose inner products with base prototypes, Eq. (4), overflow or underflow in a type."""
    limits, width = np.finfo(dtype), rows.shape[-1]
    largest, peak = (max(float(abs(block).max()) for _, block in row_blocks(each)) for each in (rows, prototypes))
    size = power * math.log(largest) + math.log(peak) if largest and peak else 0.0
    if not math.log(limits.tiny / limits.eps) < size < math.log(limits.max / width):
        raise InputError(
            f"the largest feature is {largest:.3g} and that of base prototypes {peak:.3g}: their products are too "
            f"{'large' if size > 0 else 'small'} for {limits.dtype}. Multiply features and base features by the same "
            "number so that the largest is near 1."
        )


def has_negative(rows: Floats) -> bool:
    """Return whether any entry is negative."""
    return any(bool((block < 0).any()) for _, block in row_blocks(rows))


def as_labels(labels: npt.ArrayLike, n_rows: int | None = None, what: str = "label") -> npt.NDArray[Any]:
    """Return labels or ids as an array of text or of numbers: one for each row, none missing, all of one type."""
    check_unmasked(labels, f"{what}s")
    try:
        array = np.asarray(_as_given(as_numpy(labels)))
    except ValueError:
        raise InputError(f"{what}s are lists of different lengths. Give one {what} a row.") from None
    if array.ndim != 1 or n_rows not in (None, len(array)):
        rows = "" if n_rows is None else f", but there are {n_rows} rows"
        raise InputError(f"{what}s have shape {array.shape}{rows}. Give one {what} a row.")
    if array.dtype.kind in "OT":
        values = array.tolist()
        for row, value in enumerate(values):
            if not isinstance(value, str | int | float | np.number) or value != value:
                raise InputError(f"row {row} has {value!r:.40} for its {what}. Fill in text or a number.")
            if isinstance(value, str) and value.endswith("\0"):
                raise InputError(f"row {row} has {value!r:.40} for its {what}, which ends in a NUL. Remove it.")
            if isinstance(value, str) != isinstance(values[0], str):
                raise InputError(
                    f"row {row} has {value!r:.40} for its {what}, but row 0 has {values[0]!r:.40}. "
                    f"Give all {what}s as text or all as numbers."
                )
        array = np.array(values)
    if array.dtype.kind not in "Uiufb":
        raise InputError(f"{what}s are of type {array.dtype}. They must be text or numbers.")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        row = int(np.flatnonzero(~np.isfinite(array))[0])
        raise InputError(f"row {row} has {array[row]} for its {what}. Fill in text or a number.")
    return array


def _as_given(values: npt.ArrayLike) -> npt.ArrayLike:
    """Prevent NumPy from turning the numbers of a mixed list into text."""
    if isinstance(values, list | tuple) and any(isinstance(value, str | bytes | None) for value in values):
        return np.fromiter(values, dtype=object, count=len(values))
    return values


def as_names(names: Iterable[object], n_classes: int | None = None) -> tuple[str, ...]:
    """Return class names as strings; refuse missing or repeated ones and a wrong number of them."""
    if isinstance(names, np.ndarray) and names.ndim != 1:
        raise InputError(f"class_names have shape {names.shape}. Give a list of names.")
    if isinstance(names, str | bytes | dict) or not isinstance(names, Iterable):
        raise InputError(f"class_names is {names!r:.40}. Give a list of names.")
    listed = names.tolist() if isinstance(names, np.ndarray) else list(names)
    for place, name in enumerate(listed):
        if not isinstance(name, str | int | float | np.number | np.bool_) or name != name:
            raise InputError(f"class_names has {name!r:.40} at place {place}. Names must be text.")
        if isinstance(name, str) and name.endswith("\0"):  # NumPy drops it
            raise InputError(f"class_names has {name!r:.40} at place {place}, which ends in a NUL. Remove it.")
    if n_classes not in (None, len(listed)):
        raise InputError(f"class_names has {len(listed)} names for {n_classes} classes. Give one for each.")
    strings = tuple(map(str, listed))
    repeated = [name for name, times in Counter(strings).items() if times > 1]
    if repeated:
        raise InputError(f"class_names has {repeated[0]!r} twice. Give each class its own name.")
    return strings


def check_same_width(left: Floats, left_name: str, right: Floats, right_name: str) -> None:
    """Refuse two sets of rows that cannot come from the same backbone."""
    if left.shape[-1] != right.shape[-1]:
        raise InputError(
            f"{left_name} have {left.shape[-1]} features but {right_name} have {right.shape[-1]}. "
            "Extract both with the same backbone."
        )


def is_number(value: Any) -> bool:
    """Return whether a value is a finite real number."""
    try:
        return isinstance(value, Real) and math.isfinite(value)
    except OverflowError:  # an integer too large for a float
        return False


def check_share(name: str, share: Any) -> float | None:
    """Return a share between 0 and 1 as a float, or None if there is none; refuse anything else."""
    if share is None:
        return None
    if not (is_number(share) and 0 < share < 1):
        raise InputError(f"{name} is {share!r}. It must be a number between 0 and 1, or None.")
    return float(share)


def check_count(name: str, number: Any, least: int) -> None:
    """Refuse a value that is not a whole number or is less than ``least``."""
    if not isinstance(number, Integral):
        raise InputError(f"{name} is {number!r}. It must be a whole number, {least} or more.")
    if number < least:
        raise InputError(f"{name} is {number}. It must be at least {least}.")


def listed(names: Sequence[str], most: int = 10) -> str:
    """List names in a sentence, the first of many."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
