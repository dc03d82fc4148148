"""A fitted classifier as named arrays and facts, for a file of its own or as part of another."""

import os
import re
from dataclasses import asdict
from typing import Any

import numpy as np
import numpy.typing as npt

from p3dc._arrays import as_numpy
from p3dc._validation import (
    as_labels,
    as_rows,
    check_directions,
    check_finite,
    check_same_width,
    check_share,
    is_number,
)
from p3dc.adaptive.settings import Settings
from p3dc.classifier.fitted import FittedClassifier
from p3dc.confidence.temperature import check_temperature
from p3dc.errors import InputError
from p3dc.io.safetensors import read_arrays, write_arrays
from p3dc.priors.prototypes import PACKED, pack_priors, unpack_priors

VERSION = 3
ARRAYS = ("support", "labels")
OPTIONAL_ARRAYS = ("unlabelled", *PACKED)
FACTS = ("settings", "temperature", "pile_balance", "reject", "unknown_below", "classes", "class_type", "priors")
CLASS_TYPE = re.compile(r"[<>=|]?([iufb]\d+|U\d+)|bool|u?int\d+|float\d+")

Arrays = dict[str, npt.NDArray[Any]]


def write_classifier(path: str | os.PathLike[str], fitted: FittedClassifier) -> None:
    """Write a safetensors file. It appears whole or not at all."""
    write_arrays(path, "classifier", VERSION, *pack_classifier(fitted))


def read_classifier(path: str | os.PathLike[str]) -> FittedClassifier:
    """Read what :func:`write_classifier` wrote. Nothing in the file is run."""
    arrays, facts = read_arrays(path, "classifier", VERSION, required=ARRAYS, optional=OPTIONAL_ARRAYS, facts=FACTS)
    try:
        fitted = unpack_classifier(arrays, facts)
        check_finite(fitted.support, "support")
        if fitted.priors is not None:
            check_directions(fitted.support, "support")
        return fitted
    except (TypeError, ValueError, IndexError, AttributeError, KeyError, OverflowError) as error:
        raise InputError(f"{path} is damaged: {error}") from None


def pack_classifier(fitted: FittedClassifier) -> tuple[Arrays, dict[str, Any]]:
    """Take a classifier apart: arrays by name, and facts for JSON."""
    classes = as_labels(fitted.classes)
    arrays, facts_of_priors = pack_priors(fitted.priors)
    facts = {
        "settings": {name: _plain(value) for name, value in asdict(fitted.settings).items()},
        "temperature": _plain(fitted.given_temperature),
        "pile_balance": fitted.pile_balance,
        "reject": _plain(fitted.reject),
        "unknown_below": None if fitted.reject is None else fitted.unknown_below,
        "classes": classes.tolist(),
        "class_type": str(classes.dtype),
        "priors": facts_of_priors,
    }
    arrays |= {"support": as_numpy(fitted.support), "labels": fitted.labels}
    if fitted.unlabelled is not None:
        arrays["unlabelled"] = as_numpy(fitted.unlabelled)
    return arrays, facts


def unpack_classifier(arrays: Arrays, facts: dict[str, Any]) -> FittedClassifier:
    """Put together what :func:`pack_classifier` took apart; other arrays and facts are passed over."""
    if CLASS_TYPE.fullmatch(str(facts["class_type"])) is None:
        raise InputError(f"its labels are of type {facts['class_type']!r}. They must be strings or numbers.")
    unknown = set(facts["settings"]) - set(asdict(Settings()))
    if unknown:
        raise InputError(f"it has unknown parameters: {', '.join(sorted(unknown))}. Install the p3dc that wrote it.")
    classes = _classes(facts["classes"], np.dtype(facts["class_type"]))
    support, labels = as_rows(arrays["support"], "its features"), arrays["labels"]
    if classes.ndim != 1 or len(np.unique(classes)) != len(classes) or (np.unique(classes) != classes).any():
        raise ValueError("its classes are not sorted")
    if labels.shape != (len(support),) or labels.dtype.kind not in "iu":
        raise ValueError(f"its labels are {labels.dtype} of shape {labels.shape}")
    if not np.array_equal(np.unique(labels), np.arange(len(classes))):
        raise ValueError("its labels name no classes")
    unlabelled = None if "unlabelled" not in arrays else as_rows(arrays["unlabelled"], "its unlabelled rows")
    if unlabelled is not None:
        check_same_width(unlabelled, "its unlabelled rows", support, "its support samples")
    priors = unpack_priors(arrays, facts["priors"])
    if priors is not None:
        check_same_width(support, "support samples", priors.prototypes, "the priors")
    fitted = FittedClassifier(
        support,
        labels.astype(np.int64),
        classes,
        priors,
        Settings(**facts["settings"]),
        check_share("reject", facts["reject"]),
        check_temperature(facts["temperature"]),
        unlabelled,
        facts["pile_balance"],
    )
    if fitted.reject is None:
        return fitted
    threshold = facts["unknown_below"]
    if not is_number(threshold) and threshold != -np.inf:  # which is that of a single class
        raise ValueError(f"its unknown_below is {threshold!r:.40}, which is no threshold")
    return fitted.with_threshold(float(threshold))


def _classes(labels: Any, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return the classes of a file as an array, if all of them are of its type."""
    kinds = {"U": str, "f": float, "b": bool}
    if not isinstance(labels, list) or {*map(type, labels)} != {kinds.get(dtype.kind, int)}:
        raise ValueError(f"its classes are not all of type {dtype}")
    classes = as_labels(labels)  # text as long as it is, whatever length the type has
    return classes if dtype.kind == "U" else classes.astype(dtype)


def _plain(value: Any) -> Any:
    """Turn a NumPy scalar into Python's, which JSON can hold."""
    return value.item() if isinstance(value, np.generic) else value
