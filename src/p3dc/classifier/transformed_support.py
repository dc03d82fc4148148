"""Whether a step in front of the classifier transformed the support but not the priors.

A ``Pipeline`` of scikit-learn hides its steps from the classifier at its end, so that only traces in the features can
show them. A step that is fitted to the support leaves the same statistic in every column.
"""

import warnings

import numpy as np

from p3dc._arrays import Floats, Labels
from p3dc.errors import InputError
from p3dc.method import l2_normalize, vector_norm
from p3dc.priors.prototypes import Priors

FEWEST_FEATURES = 8
"""Features that a trace is looked for in, at least: with fewer, columns may agree by chance."""

ROUNDING = 1e-4
"""Relative difference that rounding to float16 may leave."""

SHARED = 0.5
"""Share of the base prototypes' squared length that their mean must have for new features to be expected near it."""

LEAST, MOST = 0.2, 1.14
"""How much of the base features' mean direction is in new features, relative to base features, at least and at most.

Measured on 5-way tasks with one and five shots: 0.78 to 1.13 for new classes of the same kind of images, 0.41 to 0.70
for images of another domain, -0.07 to 0.01 after a StandardScaler, 0.99 to 1.29 after a square root. The most is
compared with the mean of the classes less two standard errors, which was above it in none of 12,000 one-shot tasks of
validation classes without a step.
"""

MANY_FEATURES, MANY_CLASSES = 100, 5
"""Features and classes that the most is compared with, at least.

In fewer dimensions the direction of a class varies more, and two or three classes may be alike by chance.
"""

REMEDY = (
    "Build the pipeline with p3dc.make_pipeline, which transforms the base features too, or build the priors from "
    "transformed base features."
)


def check_untransformed(support: Floats, labels: Labels, priors: Priors, *, whitened: bool) -> None:
    """Refuse a support that was surely transformed after extraction while the priors were not; warn where it seems so.

    Parameters
    ----------
    support : array of shape (S, D)
    labels : array of shape (S,)
        The class of each sample, a number from 0 on.
    priors : Priors
    whitened : bool
        Whether lengths do not matter, so that normalised features may be compared with priors of others.
    """
    n_samples, n_features = support.shape
    if n_samples < 2 or n_features < FEWEST_FEATURES:
        return
    trace = _trace_of_a_fitted_step(support)
    if trace is None and not whitened and _only_support_is_normalised(support, priors):
        trace = "all samples have the same length, but the base features do not"
    if trace is not None:
        raise InputError(f"the support was transformed by a step that the priors did not take: {trace}. {REMEDY}")
    if _is_unlike_the_base(support, labels, priors):
        warnings.warn(
            "the support is unlike the base features, as if it came from another network or had been transformed "
            f"by a step that the priors did not take. {REMEDY}",
            stacklevel=4,
        )


def _trace_of_a_fitted_step(support: Floats) -> str | None:
    columns = support[:, (support != support[0]).any(axis=0)].astype(np.float64)
    if columns.shape[1] < FEWEST_FEATURES:
        return None
    largest = np.abs(columns).max(axis=0)
    scaled = columns / largest  # so that no square overflows
    if (np.abs(scaled.mean(axis=0)) <= ROUNDING * scaled.std(axis=0)).all():
        return "the mean of every feature is 0"
    binary = np.isin(columns, (0, 1)).all()
    if not binary and np.allclose(largest, 1, rtol=ROUNDING, atol=0):
        return "the largest value of every feature is 1"
    return None


def _only_support_is_normalised(support: Floats, priors: Priors) -> bool:
    lengths = vector_norm(support.astype(np.float64))
    if np.ptp(lengths) > 10 * ROUNDING * lengths.mean():
        return False
    known = priors.geometry.lengths if priors.geometry is not None else None
    if known is None:  # the mean of rows of one length cannot be longer
        return bool(vector_norm(priors.prototypes).max() > 1.01 * lengths.mean())
    return bool(np.abs(known / lengths.mean() - 1).max() > 0.01)


def _is_unlike_the_base(support: Floats, labels: Labels, priors: Priors) -> bool:
    """Compare how much of the mean direction of base features there is in the support and in base features."""
    shared = 1 / vector_norm(priors.prototypes) @ priors.prototypes / len(priors.prototypes)
    if shared @ shared < SHARED:
        return False
    geometry = priors.geometry
    mean = shared if geometry is None else 1 / geometry.lengths @ priors.prototypes / len(priors.prototypes)
    found = l2_normalize(support.astype(np.float64)) @ mean / (mean @ mean)
    of_classes = np.bincount(labels, weights=found) / np.bincount(labels)
    if found.mean() < LEAST:
        return True
    if geometry is None or support.shape[1] < MANY_FEATURES or len(of_classes) < MANY_CLASSES:
        return False
    return bool(of_classes.mean() - 2 * of_classes.std(ddof=1) / np.sqrt(len(of_classes)) > MOST)
