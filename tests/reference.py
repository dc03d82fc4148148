"""The paper restated as plainly as possible: one task, one (α, β), one sample and one class at a time, in float64.

Nothing here is shared with the package. The tests hold the package to these scores, and the benchmarks to this speed.
"""

from typing import Any

import numpy as np

Array = Any


def normalize(rows: Array) -> Array:
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


def softmax(logits: Array) -> Array:
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def calibrate(
    support: Array,
    priors: Array,
    *,
    alpha: float,
    beta: float,
    n_nearest: int = 5,
    power: float = 0.5,
    scale: float = 1.0,
) -> Array:
    """Calibrate the samples of one task, (S, D), with base prototypes (B, D)."""
    transformed = np.log(support) if power == 0 else support**power
    nearest = [np.argsort(-(priors @ x), kind="stable")[:n_nearest] for x in transformed]
    union = np.unique(np.concatenate(nearest))
    calibrated = []
    for original, x, own in zip(support, transformed, nearest, strict=True):
        s = x + softmax(scale * (priors[own] @ x)) @ priors[own]
        t = x + softmax(scale * (priors[union] @ x)) @ priors[union]
        calibrated.append((1 - alpha - beta) * normalize(original) + alpha * normalize(s) + beta * normalize(t))
    return normalize(np.array(calibrated))


def scores(
    support: Array, labels: Array, queries: Array, priors: Array, *, attention: str = "raw", **parameters: Any
) -> Array:
    """Cosine of every query, (Q, D), to the attentive prototype of every class, as (Q, N)."""
    support, queries, priors = (np.asarray(rows, dtype=np.float64) for rows in (support, queries, priors))
    calibrated = calibrate(support, priors, **parameters)
    asking = {"raw": queries, "unit": normalize(queries), "mean": np.zeros_like(queries)}[attention]
    columns = []
    for label in np.unique(labels):
        members = calibrated[labels == label]
        prototypes = softmax(asking @ members.T) @ members
        columns.append(np.sum(normalize(queries) * normalize(prototypes), axis=1))
    return np.stack(columns, axis=1)
