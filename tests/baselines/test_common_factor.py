"""A factor that all features share, base and novel, changes no prediction where theory says so.

Factors are powers of two as far apart as float32 allows, so that multiplying rounds nothing: what changes then is a
product that overflowed or lost its digits.
"""

import numpy as np
import pytest

from p3dc import FeatureSet, Priors
from p3dc.baselines.registry import METHODS

DEPENDS = {
    "anil": "gradient steps of one rate on long features are longer",
    "metaoptnet-svm": "C weighs losses against weights, which are as long as features are short",
    "metaoptnet-ridge": "the ridge is added to squared lengths of features",
    "dc": "it adds 0.21 to the covariances of features, and regularises weights on features of any length",
    "dc-nearest": "it averages base features with square roots of support features",
    "pt-map": "it adds 1e-6 to features before their root",
}
"""Why the other methods are expected to change with the length of features."""

N_TASKS, N_WAY, N_SHOT, N_QUERY, N_POSITIONS = 4, 3, 2, 6, 4
FACTORS = [2.0**-118, 2.0**-70, 2.0**60, 2.0**118]


def exact(features):
    """Round features to multiples of 1/64, which can be multiplied by any of the factors without rounding."""
    return FeatureSet(np.round(features.features * 64) / 64, features.labels, features.class_names)


def times(features, factor):
    return FeatureSet(features.features * np.float32(factor), features.labels, features.class_names)


def predictions(method, base, novel, rng):
    """The labels that a method with its defaults gives to the queries of a few tasks."""
    options = {"n_positions": N_POSITIONS} if "maps" in method.needs else {}
    if "torch" in method.needs:
        options["n_steps"] = 20
    sources = {"base": base, "priors": Priors.from_features(base)}
    built = method.kind(*(sources[need] for need in method.needs if need in sources), **options)
    classes = np.stack([rng.choice(len(novel.class_names), N_WAY, replace=False) for _ in range(N_TASKS)])
    rows = np.array(
        [[rng.permutation(np.flatnonzero(novel.labels == c))[: N_SHOT + N_QUERY] for c in task] for task in classes]
    )
    support, queries = (rows[..., part].reshape(N_TASKS, -1) for part in (slice(N_SHOT), slice(N_SHOT, None)))
    state = built.learn_tasks(novel.features[support], np.repeat(np.arange(N_WAY), N_SHOT))
    scores = built.score_tasks(state, novel.features[queries])
    assert np.isfinite(scores).all()
    return scores.argmax(axis=-1)


def test_every_reason_is_of_a_method():
    assert DEPENDS.keys() < METHODS.keys()


@pytest.mark.parametrize("factor", FACTORS)
@pytest.mark.parametrize(
    "method",
    [
        pytest.param(method, id=key, marks=[pytest.mark.torch] if "torch" in method.needs else [])
        for key, method in METHODS.items()
        if key not in DEPENDS
    ],
)
def test_a_common_factor_changes_no_prediction(method, factor, base, novel):
    base, novel = exact(base), exact(novel)
    expected = predictions(method, base, novel, np.random.default_rng(0))
    found = predictions(method, times(base, factor), times(novel, factor), np.random.default_rng(0))
    np.testing.assert_array_equal(found, expected)
    assert len(np.unique(expected)) == N_WAY


@pytest.mark.parametrize("key", [key for key in DEPENDS if "torch" not in METHODS[key].needs])
def test_predictions_of_the_other_methods_do_change(key, base, novel):
    base, novel = exact(base), exact(novel)
    expected = predictions(METHODS[key], base, novel, np.random.default_rng(0))
    changed = [
        predictions(METHODS[key], times(base, factor), times(novel, factor), np.random.default_rng(0)) != expected
        for factor in (2.0**-60, 2.0**4)
    ]
    assert np.any(changed)
