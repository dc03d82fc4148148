"""Steps in front of the classifier, which must transform the priors too, and scikit-learn's search of weights."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.pipeline import make_pipeline as sklearn_pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, Normalizer, QuantileTransformer, StandardScaler

from p3dc import FeatureSet, P3DCClassifier, Priors, evaluate, make_pipeline, sample_tasks, weight_grid
from p3dc.demo import load_sample
from p3dc.errors import InputError
from tests.conftest import make_signed, paper


@pytest.fixture(scope="module")
def support(novel):
    rows = np.concatenate([np.flatnonzero(novel.labels == c)[:5] for c in range(4)])
    return novel.features[rows].astype(float), novel.labels[rows]


@pytest.mark.parametrize(
    "step", [StandardScaler(), StandardScaler(with_std=False), MinMaxScaler(), MaxAbsScaler(), PCA(10)], ids=repr
)
def test_a_step_that_only_the_support_takes_is_refused(support, priors, step):
    trace = (
        "features but the priors have"
        if isinstance(step, PCA)
        else "transformed by a step that the priors did not take"
    )
    with pytest.raises(InputError, match=trace):
        sklearn_pipeline(step, P3DCClassifier(priors)).fit(*support)


def test_quantiles_of_the_support_are_refused(support, priors):
    with pytest.raises(InputError, match="the largest value of every feature is 1. Build the pipeline with p3dc.make"):
        sklearn_pipeline(QuantileTransformer(n_quantiles=10), P3DCClassifier(priors)).fit(*support)


def test_normalised_samples_are_refused_where_lengths_matter(support, priors):
    X, y = support
    unit = Normalizer().fit_transform(X)
    for known in (priors, priors.prototypes):
        with pytest.raises(InputError, match="all samples have the same length"):
            paper(known).fit(unit, y)
    normalised = Priors(priors.prototypes / np.linalg.norm(priors.prototypes, axis=1, keepdims=True))
    paper(normalised).fit(unit, y)
    one, two = (P3DCClassifier(priors).fit(rows, y).decision_function(rows) for rows in (X, unit))
    np.testing.assert_allclose(one, two, atol=1e-6)


def test_a_support_unlike_the_base_features_is_warned_of(base, support, priors):
    scaler = StandardScaler().fit(base.features)
    with pytest.warns(UserWarning, match="the support is unlike the base features.*Build the pipeline with"):
        P3DCClassifier(priors).fit(scaler.transform(support[0]), support[1])


@pytest.mark.data
def test_roots_of_the_support_alone_are_warned_of_and_new_classes_are_not(data_folder):
    priors = load_sample().priors
    novel = FeatureSet.load(data_folder / "cub-resnet12" / "novel.npz")
    for support in sample_tasks(novel.labels, n_shot=5, n_tasks=20).support:
        X, y = novel.features[support.ravel()].astype(float), np.repeat(range(5), 5)
        P3DCClassifier(priors).fit(X, y)
        with pytest.warns(UserWarning, match="the support is unlike the base features"):
            P3DCClassifier(priors).fit(np.sqrt(X), y)


@pytest.mark.data
def test_two_classes_that_are_alike_are_not_warned_of(data_folder):
    priors = load_sample().priors
    validation = FeatureSet.load(data_folder / "cub-resnet12" / "validation.npz")
    for support in sample_tasks(validation.labels, n_way=2, n_shot=1, n_tasks=500).support:
        P3DCClassifier(priors).fit(validation.features[support.ravel()].astype(float), [0, 1])


def test_features_without_a_common_direction_may_lie_anywhere():
    base, novel = make_signed(1, 12, 20), make_signed(2, 6, 20, home=3.0)
    P3DCClassifier(Priors.from_features(base)).fit(novel.features[::5], novel.labels[::5])


def test_the_steps_of_a_pipeline_transform_base_features_support_and_queries(base, support, novel):
    X, y = support
    scaler = StandardScaler().fit(base.features)
    expected = P3DCClassifier(Priors.from_features((scaler.transform(base.features), base.labels)), beta=0.7)
    expected.fit(scaler.transform(X), y)
    pipeline = make_pipeline(StandardScaler(), base=base, beta=0.7)
    for fitted in (pipeline.fit(X, y), clone(pipeline).fit(X, y)):
        found = fitted.decision_function(novel.features.astype(float))
        np.testing.assert_allclose(found, expected.decision_function(scaler.transform(novel.features.astype(float))))
    assert pipeline[-1].priors.class_names == base.class_names


def test_a_pipeline_may_change_the_number_of_features(base, novel):
    scores = evaluate(make_pipeline(StandardScaler(), PCA(12), base=base), novel, n_query=5, n_tasks=20)
    assert scores.mean > 0.5
    assert scores.calibration_error is not None


def test_no_step_at_all_is_the_classifier_itself(base, support, priors):
    alone = P3DCClassifier(priors).fit(*support)
    np.testing.assert_array_equal(
        make_pipeline(base=base).fit(*support).decision_function(support[0]), alone.decision_function(support[0])
    )


def test_grid_search_tries_every_point_of_the_triangle_and_no_other(base, support, priors):
    folds = StratifiedKFold(5)
    search = GridSearchCV(P3DCClassifier(priors), weight_grid(0.25), cv=folds, error_score="raise").fit(*support)
    tried = search.cv_results_["params"]
    assert len(tried) == 15
    assert all(point["alpha"] + point["beta"] <= 1 for point in tried)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert search.best_estimator_.beta_ == search.best_params_["beta"]
    pipeline = make_pipeline(StandardScaler(), base=base)
    inside = GridSearchCV(pipeline, weight_grid(0.5, prefix="p3dcclassifier__"), cv=folds).fit(*support)
    assert len(inside.cv_results_["params"]) == 6
