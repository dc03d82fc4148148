import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from p3dc import FeatureSet, P3DCClassifier, Priors, evaluate, sample_tasks
from p3dc.errors import InputError
from p3dc.evaluation.search import grid
from p3dc.method import ATTENTIONS
from p3dc.scoring import numpy_scorer as engine
from tests.conftest import make_features, make_signed
from tests.scoring.scorers import whitened_scorer

PRIORS = {
    "positive": Priors.from_features(make_features(1, 12, 10, n_features=8)),
    "signed": Priors.from_features(make_signed(1, 12, 10, n_features=8, home=0.5)),
    "none": None,
}


def classifiers(tasks, features, make):
    """The classifier of each task, fitted, with its queries."""
    n_way, n_shot = tasks.support.shape[1:]
    labels = np.repeat(np.arange(n_way), n_shot)
    for support, queries in zip(tasks.support, tasks.queries, strict=True):
        yield make().fit(features[support.ravel()], labels), features[queries.ravel()]


def assert_scores(found, classifier, queries):
    decision = classifier.decision_function(queries)
    np.testing.assert_allclose(found if found.shape[1] > 2 else found[:, 1] - found[:, 0], decision, atol=1e-10)
    np.testing.assert_allclose(found.max(axis=1), classifier.score_samples(queries), atol=1e-10)


def n_right(classifier, queries):
    n_way = len(classifier.classes_)
    return np.sum(classifier.predict(queries) == np.repeat(np.arange(n_way), len(queries) // n_way))


random_tasks = {
    "seed": st.integers(0, 1000),
    "n_way": st.integers(2, 5),
    "n_shot": st.integers(1, 4),
    "attention": st.sampled_from(ATTENTIONS),
    "kind": st.sampled_from(list(PRIORS)),
    "n_nearest": st.sampled_from([1, 5, 100]),
}


def draw(seed, n_way, n_shot, kind):
    features = make_features(seed, 6, 8, 8) if kind == "positive" else make_signed(seed, 6, 8, 8, home=0.5)
    return features.features, sample_tasks(features.labels, n_way=n_way, n_shot=n_shot, n_query=3, n_tasks=3, seed=seed)


@settings(max_examples=40, deadline=None)
@given(**random_tasks)
def test_scores_are_those_of_the_classifier_that_chooses(seed, n_way, n_shot, attention, kind, n_nearest):
    features, tasks = draw(seed, n_way, n_shot, kind)
    priors = PRIORS[kind]
    scorer = whitened_scorer(features, priors, n_nearest=n_nearest, attention=attention)
    scores, counts = scorer.scores(tasks), scorer.correct(tasks)
    assert scores.shape == (3, 1, 3 * n_way, n_way)
    each = classifiers(tasks, features, lambda: P3DCClassifier(priors, n_nearest=n_nearest, attention=attention))
    for found, count, (classifier, queries) in zip(scores, counts, each, strict=True):
        assert_scores(found[0], classifier, queries)
        assert count[0] == n_right(classifier, queries)


@settings(max_examples=15, deadline=None)
@given(
    **random_tasks, points=st.sampled_from([grid(0.5), np.array([[0.2, 0.4]]), np.array([[-0.5, 1.2], [2.0, -0.4]])])
)
def test_scores_are_those_of_the_classifier_of_each_point(seed, n_way, n_shot, attention, kind, n_nearest, points):
    features, tasks = draw(seed, n_way, n_shot, kind)
    priors = PRIORS[kind]
    scorer = whitened_scorer(features, priors, points, n_nearest=n_nearest, attention=attention)
    scores, counts = scorer.scores(tasks), scorer.correct(tasks)
    assert scores.shape == (3, len(points), 3 * n_way, n_way)
    options = {"n_nearest": n_nearest, "attention": attention, "extrapolate": True}
    for g, (alpha, beta) in enumerate(points):
        each = classifiers(tasks, features, lambda a=alpha, b=beta: P3DCClassifier(priors, alpha=a, beta=b, **options))
        for found, count, (classifier, queries) in zip(scores, counts, each, strict=True):
            assert_scores(found[g], classifier, queries)
            assert count[g] == n_right(classifier, queries)


@pytest.mark.parametrize("n_shot", [1, 3])
@pytest.mark.parametrize("with_priors", [True, False])
@pytest.mark.parametrize("attention", ATTENTIONS)
def test_classes_that_are_level_are_decided_as_the_classifier_does(n_shot, with_priors, attention):
    """Every class has the same rows, so that each task has classes with the same samples."""
    one = make_features(1, 1, 4, n_features=8).features
    features, labels = np.tile(one, (6, 1)), np.repeat(np.arange(6), 4)
    priors = PRIORS["positive"] if with_priors else None
    tasks = sample_tasks(labels, n_way=4, n_shot=n_shot, n_query=1, n_tasks=40, seed=0)
    same = np.sort(tasks.support % 4, axis=2)
    assert (same[:, :1] == same[:, 1:]).all(axis=2).any()
    scorer = whitened_scorer(features, priors, attention=attention)
    each = classifiers(tasks, features, lambda: P3DCClassifier(priors, attention=attention))
    assert scorer.correct(tasks)[:, 0].tolist() == [n_right(*pair) for pair in each]


def test_rows_that_are_all_the_same_are_all_of_the_first_class():
    features = FeatureSet(np.ones((60, 8)), np.repeat(np.arange(6), 10))
    scores = evaluate(P3DCClassifier(PRIORS["positive"]), features, n_query=5, n_tasks=4)
    np.testing.assert_allclose(scores.accuracy, 0.2)


def test_the_sizes_of_chunks_change_nothing(novel, priors, monkeypatch):
    tasks = sample_tasks(novel.labels, n_shot=3, n_query=4, n_tasks=30, seed=0)
    points = grid(0.5)
    makers = (
        lambda: whitened_scorer(novel.features, priors),
        lambda: whitened_scorer(novel.features, priors, points),
        lambda: whitened_scorer(novel.features, None),
    )
    expected = [(make().scores(tasks), make().correct(tasks)) for make in makers]
    parts = []
    for name, size in (("CACHE_BYTES", 2**10), ("CHUNK_BYTES", 2**16)):
        monkeypatch.setattr(engine, name, size)
        for make, (scores, counts) in zip(makers, expected, strict=True):
            np.testing.assert_allclose(make().scores(tasks), scores, rtol=0, atol=1e-12)
            np.testing.assert_array_equal(make().correct(tasks, watch=lambda part, _: parts.append(part)), counts)
    assert len(parts) > 20


def test_whoever_watches_sees_all_scores(novel, priors, monkeypatch):
    monkeypatch.setattr(engine, "CHUNK_BYTES", 2**16)
    tasks = sample_tasks(novel.labels, n_shot=2, n_query=4, n_tasks=25, seed=0)
    scorer = whitened_scorer(novel.features, priors, [(0.0, 0.9), (0.3, 0.3)])
    seen = np.full((25, 5, 20, 2), np.nan)
    n_parts = []

    def watch(part, scores):
        seen[part] = scores
        n_parts.append(part)

    scorer.correct(tasks, watch)
    assert len(n_parts) > 1
    np.testing.assert_allclose(seen.transpose(0, 3, 2, 1), scorer.scores(tasks), atol=1e-12)


def test_features_of_any_length_sign_and_precision_will_do(novel, priors):
    tasks = sample_tasks(novel.labels, n_shot=2, n_query=4, n_tasks=10, seed=0)
    rng = np.random.default_rng(0)
    expected = whitened_scorer(novel.features, priors).scores(tasks)
    longer = novel.features * 10.0 ** rng.uniform(-3, 3, (len(novel), 1))
    np.testing.assert_allclose(whitened_scorer(longer, priors).scores(tasks), expected, atol=1e-6)
    half = novel.features.astype(np.float16)
    one, two = (whitened_scorer(rows, priors).scores(tasks) for rows in (half, half.astype(float)))
    np.testing.assert_array_equal(one, two)
    assert np.isfinite(whitened_scorer(novel.features - 1, priors).scores(tasks)).all()


def test_bad_requests_are_refused_in_one_sentence(novel, priors):
    with pytest.raises(InputError, match="the features have 5 features but the priors have 24"):
        whitened_scorer(novel.features[:, :5], priors)
    with pytest.raises(InputError, match="features row 17 is all zeros"):
        whitened_scorer(np.where(np.arange(len(novel))[:, None] == 17, 0, novel.features), priors)
    with pytest.raises(InputError, match="n_nearest is 0"):
        whitened_scorer(novel.features, priors, n_nearest=0)
    with pytest.raises(InputError, match="attention is 'loud'"):
        whitened_scorer(novel.features, priors, attention="loud")
