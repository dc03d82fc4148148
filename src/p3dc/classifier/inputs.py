"""Checks of the rows that an estimator is given, as arrays or as tensors."""

import warnings
from typing import Any

import numpy as np
import numpy.typing as npt
from array_api_compat import array_namespace
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from p3dc._arrays import Array, as_numpy, is_tensor
from p3dc._validation import (
    as_labels,
    check_directions,
    check_finite,
    check_power,
    check_same_width,
    check_share,
    check_similarities,
    check_unmasked,
    first_empty,
)
from p3dc.confidence.temperature import check_temperature
from p3dc.errors import InputError
from p3dc.priors.prototypes import as_priors

FLOATS = [np.float64, np.float32]


def check_support(estimator: Any, X: npt.ArrayLike, y: npt.ArrayLike, *, reset: bool) -> tuple[Array, npt.NDArray[Any]]:
    """Check the parameters of an estimator and return support samples and their labels."""
    settings, priors = estimator.settings, as_priors(estimator.priors)
    check_unmasked(X, "samples")
    check_unmasked(y, "labels")
    check_share("reject", estimator.reject)
    check_temperature(estimator.temperature)
    if is_tensor(X):
        support = _check_tensor(estimator, X, reset=reset)
        labels = as_labels(as_numpy(y), len(support))
    else:
        if isinstance(y, list | tuple) and any(isinstance(label, str) for label in y):
            y = as_labels(y)  # NumPy alone would turn numbers among them into text
        support, labels = validate_data(estimator, X, as_numpy(y), reset=reset, dtype=FLOATS, ensure_all_finite=False)
        as_labels(labels)
    check_classification_targets(labels)
    check_rows(support, "support", calibrated=priors is not None)
    if priors is not None:
        check_same_width(support, "support samples", priors.prototypes, "the priors")
        if not settings.whitened:
            settings.fixed_weights()
            check_power(support, settings.power, "support")
            check_similarities(support, priors.prototypes, settings.power, str(support.dtype).removeprefix("torch."))
    return support, labels


def check_unlabelled(estimator: Any, unlabelled: npt.ArrayLike | None) -> Array | None:
    """Return unlabelled rows with as many features as the support."""
    if unlabelled is None:
        return None
    rows = check_queries(estimator, unlabelled)
    check_rows(rows, "unlabelled", calibrated=True)
    return rows


def check_queries(estimator: Any, X: npt.ArrayLike) -> Array:
    """Return queries with as many features as the estimator was fitted to."""
    check_unmasked(X, "samples")
    if is_tensor(X):
        return _check_tensor(estimator, X, reset=False)
    try:
        return validate_data(estimator, X, reset=False, dtype=FLOATS, ensure_all_finite=False)
    except ValueError as error:
        if "is expecting" not in str(error):
            raise
        raise InputError(f"{error} Extract both with the same backbone.") from None


def _check_tensor(estimator: Any, X: Any, *, reset: bool) -> Array:
    """Check a tensor as scikit-learn checks an array, and return it in float32 or float64."""
    xp = array_namespace(X)
    if X.ndim != 2 or 0 in X.shape:
        raise InputError(f"X has shape {tuple(X.shape)}. It must have two axes: one row a sample, and at least one.")
    if reset:
        estimator.n_features_in_ = X.shape[1]
    elif X.shape[1] != estimator.n_features_in_:
        raise InputError(
            f"X has {X.shape[1]} features, but {type(estimator).__name__} is expecting {estimator.n_features_in_} "
            "features as input. Extract both with the same backbone."
        )
    return X.detach() if X.dtype in (xp.float32, xp.float64) else X.detach().to(xp.float64)


def check_rows(X: Array, what: str, *, calibrated: bool) -> None:
    """Refuse rows that are not finite, and rows of zeros where they would be calibrated; otherwise warn of those."""
    check_finite(X, what)
    if calibrated:
        check_directions(X, what)
    elif (row := first_empty(X)) is not None:
        warnings.warn(f"{what} row {row} is all zeros, so all its cosines are 0. Remove the row.", stacklevel=4)
