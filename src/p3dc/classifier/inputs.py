"""Checks of the rows that an estimator is given, as arrays or as tensors."""

import warnings
from typing import Any

from array_api_compat import array_namespace

from p3dc._arrays import Array
from p3dc._validation import check_directions, check_finite, first_empty
from p3dc.errors import InputError


def check_tensor(estimator: Any, X: Any, *, reset: bool) -> Array:
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
