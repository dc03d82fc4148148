import numpy as np
import pytest
from sklearn.base import clone
from sklearn.neighbors import NearestCentroid
from sklearn.utils.estimator_checks import parametrize_with_checks

from p3dc import compare
from p3dc.baselines import CL2N, L2N, NN, SimpleShot
from p3dc.errors import InputError
from tests.conftest import paper
from tests.reference import normalize


@pytest.fixture
def task(novel):
    support = np.concatenate([np.flatnonzero(novel.labels == c)[:4] for c in range(4)])
    queries = np.setdiff1d(np.flatnonzero(novel.labels < 4), support)
    features = novel.features.astype(float)
    return features[support], novel.labels[support], features[queries]


@parametrize_with_checks([NN(), L2N()])
def test_scikit_learn_accepts_them(estimator, check):
    check(estimator)


def test_nn_takes_the_largest_inner_product(task):
    support, labels, queries = task
    scores = [[q @ support[labels == c].mean(axis=0) for c in range(4)] for q in queries]
    np.testing.assert_allclose(NN().fit(support, labels).decision_function(queries), scores)


def test_l2n_takes_the_largest_cosine_to_the_mean_of_normalised_samples(task):
    support, labels, queries = task
    means = [normalize(support[labels == c]).mean(axis=0) for c in range(4)]
    scores = [[normalize(q) @ normalize(mean) for mean in means] for q in queries]
    np.testing.assert_allclose(L2N().fit(support, labels).decision_function(queries), scores)


def test_l2n_is_p3dc_without_calibration_and_attention(novel):
    options = {"n_shot": 3, "n_query": 5, "n_tasks": 50}
    comparison = compare([L2N(), paper(attention="mean")], novel, **options)
    np.testing.assert_array_equal(comparison.scores["L2N"].accuracy, comparison.scores["P3DCClassifier"].accuracy)


def test_cl2n_is_l2n_on_centred_features(task, priors, base):
    support, labels, queries = task
    mean = base.features.mean(axis=0, dtype=float)
    expected = L2N().fit(support - mean, labels).decision_function(queries - mean)
    np.testing.assert_allclose(CL2N(priors).fit(support, labels).decision_function(queries), expected)


def test_simpleshot_is_the_nearest_centroid_of_centred_normalised_features(task, priors):
    support, labels, queries = task
    centred, asked = normalize(support - priors.mean), normalize(queries - priors.mean)
    expected = NearestCentroid().fit(centred, labels).predict(asked)
    classifier = SimpleShot(priors).fit(support, labels)
    np.testing.assert_array_equal(classifier.predict(queries), expected)
    means = np.array([centred[labels == c].mean(axis=0) for c in range(4)])
    distances = ((asked[:, None] - means) ** 2).sum(axis=2)
    np.testing.assert_allclose(1 - classifier.decision_function(queries), distances)


def test_with_one_shot_simpleshot_is_cl2n(novel, priors):
    comparison = compare([CL2N(priors), SimpleShot(priors)], novel, n_query=5, n_tasks=50)
    assert comparison.differences[0].mean == 0


def test_priors_of_another_width_are_refused(task, priors):
    support, labels, _ = task
    with pytest.raises(InputError, match="Extract both with the same backbone"):
        clone(CL2N(priors)).fit(support[:, :5], labels)
