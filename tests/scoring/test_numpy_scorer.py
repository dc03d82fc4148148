import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from p3dc import evaluate, sample_tasks
from p3dc.errors import InputError
from p3dc.evaluation.search import grid
from p3dc.method import ATTENTIONS
from p3dc.scoring import nearest_priors as nearness
from p3dc.scoring import numpy_scorer as engine
from tests import reference
from tests.conftest import make_features, paper
from tests.scoring.scorers import plain_scorer


def plain_scores(scorer_features, tasks, priors, alpha, beta, **options):
    """Scores of the plain loop, (T, G, Q, N)."""
    _, n_way, n_shot = tasks.support.shape
    labels = np.repeat(np.arange(n_way), n_shot)
    return np.array(
        [
            [
                reference.scores(
                    scorer_features[support.ravel()],
                    labels,
                    scorer_features[queries.ravel()],
                    priors,
                    alpha=a,
                    beta=b,
                    **options,
                )
                for a, b in zip(alpha, beta, strict=True)
            ]
            for support, queries in zip(tasks.support, tasks.queries, strict=True)
        ]
    )


def plain_correct(scores):
    n_way = scores.shape[-1]
    own = np.repeat(np.arange(n_way), scores.shape[2] // n_way)
    return (scores.argmax(axis=-1) == own).sum(axis=-1)


ANY_TASK = {
    "seed": st.integers(0, 1000),
    "n_way": st.integers(2, 5),
    "n_shot": st.integers(1, 6),
    "n_query": st.integers(1, 4),
    "n_nearest": st.sampled_from([1, 3, 5, 100]),
    "power": st.sampled_from([0.0, 0.5, 1.0]),
    "scale": st.sampled_from([0.0, 0.1, 1.0]),
    "attention": st.sampled_from(ATTENTIONS),
}


@settings(max_examples=40, deadline=None)
@given(
    **ANY_TASK,
    points=st.sampled_from([grid(0.5), np.array([[0.2, 0.4]]), np.array([[-0.5, 1.2], [2.0, -0.4]])]),
)
def test_scores_and_predictions_are_those_of_the_plain_loop(
    seed, n_way, n_shot, n_query, n_nearest, power, scale, attention, points
):
    features, base = make_features(seed, 6, 12), make_features(seed + 1, 9, 12)
    priors = np.array([base.features[base.labels == c].mean(axis=0, dtype=float) for c in range(9)])
    tasks = sample_tasks(features.labels, n_way=n_way, n_shot=n_shot, n_query=n_query, n_tasks=4, seed=seed)
    options = {"n_nearest": n_nearest, "power": power, "scale": scale, "attention": attention}
    scorer = plain_scorer(features.features, priors, points, **options)
    expected = plain_scores(features.features, tasks, priors, *points.T, **options)
    np.testing.assert_allclose(scorer.scores(tasks), expected, rtol=0, atol=1e-5)
    np.testing.assert_array_equal(scorer.correct(tasks), plain_correct(expected))


@pytest.mark.parametrize("n_shot", [1, 5])
def test_predictions_are_those_of_float64_where_float32_cannot_tell(n_shot):
    """Pairs of nearly equal rows make near ties, which float32 alone would decide by chance."""
    novel = make_features(5, 6, 40, dtype=np.float64)
    rng = np.random.default_rng(0)
    features = np.abs(novel.features[novel.labels == 0].mean(axis=0) + 1e-6 * rng.normal(size=novel.features.shape))
    priors = make_features(6, 9, 1).features.astype(float)
    tasks = sample_tasks(novel.labels, n_way=3, n_shot=n_shot, n_query=5, n_tasks=20, seed=0)
    points = grid(0.5)
    expected = plain_correct(plain_scores(features, tasks, priors, *points.T))
    scorer = plain_scorer(features, priors, points)
    np.testing.assert_array_equal(scorer.correct(tasks), expected)
    scorer.too_close = 0.0
    assert (scorer.correct(tasks) != expected).any()


@pytest.mark.parametrize("factor", [1e-25, 0.05, 20.0, 1e3, 1e12])
def test_scores_are_precise_whatever_the_norm_of_the_features(factor):
    features, base = make_features(1, 6, 20, n_features=64), make_features(2, 9, 1, n_features=64)
    rows, priors = features.features.astype(float) * factor, base.features.astype(float) * factor
    tasks = sample_tasks(features.labels, n_shot=5, n_query=3, n_tasks=10, seed=0)
    points = grid(0.5)
    scorer = plain_scorer(rows, priors, points)
    expected = plain_scores(rows, tasks, priors, *points.T)
    np.testing.assert_allclose(scorer.scores(tasks), expected, rtol=0, atol=1e-5)
    np.testing.assert_array_equal(scorer.correct(tasks), plain_correct(expected))


@pytest.mark.parametrize("points", [[(500.0, -500.0), (1.0, 1.0)], [(500.0, -500.0)], [(-1.5, 1.0)]])
def test_scores_are_precise_far_outside_the_triangle(points):
    features, base = make_features(1, 6, 20, n_features=64), make_features(2, 9, 1, n_features=64)
    priors, points = base.features.astype(float), np.array(points)
    tasks = sample_tasks(features.labels, n_shot=3, n_query=5, n_tasks=30, seed=0)
    scorer = plain_scorer(features.features, priors, points)
    expected = plain_scores(features.features, tasks, priors, *points.T)
    np.testing.assert_allclose(scorer.scores(tasks), expected, rtol=0, atol=1e-5)
    np.testing.assert_array_equal(scorer.correct(tasks), plain_correct(expected))


def test_corners_that_cancel_are_decided_in_float64():
    """With this prior s points away from x, so that half of each is nothing."""
    features = make_features(1, 6, 20, n_features=8).features.astype(float)
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    tasks = sample_tasks(np.repeat(np.arange(6), 20), n_shot=1, n_query=5, n_tasks=20, seed=0)
    priors = -2 * features.mean(axis=0, keepdims=True)
    points = np.array([[0.5, 0.0], [0.0, 0.5]])
    options = {"power": 1.0, "n_nearest": 1}
    scorer = plain_scorer(features, priors, points, **options)
    expected = plain_correct(plain_scores(features, tasks, priors, *points.T, **options))
    np.testing.assert_array_equal(scorer.correct(tasks), expected)


def test_features_beyond_float64_are_refused(novel, priors):
    with pytest.raises(InputError, match="products are too large for float64"):
        plain_scorer(novel.features.astype(float) * 1e220, priors.prototypes * 1e220, [(0.0, 0.9)])


def test_a_fine_grid_is_cut_into_chunks_too(novel, priors, monkeypatch):
    sizes = []
    whole = engine.NumpyScorer._score
    monkeypatch.setattr(
        engine.NumpyScorer, "_score", lambda self, tasks: sizes.append(len(tasks)) or whole(self, tasks)
    )
    tasks = sample_tasks(novel.labels, n_query=5, n_tasks=300, seed=0)
    plain_scorer(novel.features, priors.prototypes, grid(0.02)).correct(tasks)
    assert max(sizes) * 5 * 25 * len(grid(0.02)) * 4 <= engine.CHUNK_BYTES


def test_the_sizes_of_chunks_and_tables_change_nothing(novel, priors, monkeypatch):
    tasks = sample_tasks(novel.labels, n_shot=3, n_query=4, n_tasks=30, seed=0)
    points = grid(0.25)
    expected = plain_scorer(novel.features, priors.prototypes, points).scores(tasks)
    sizes = ((engine, "CACHE_BYTES", 2**10), (engine, "CHUNK_BYTES", 2**14), (nearness, "TABLE_BYTES", 2**10))
    for module, name, size in sizes:
        monkeypatch.setattr(module, name, size)
        scores = plain_scorer(novel.features, priors.prototypes, points).scores(tasks)
        np.testing.assert_allclose(scores, expected, rtol=0, atol=2e-6)


def test_without_priors_the_scores_are_those_of_alpha_and_beta_zero(novel, priors):
    tasks = sample_tasks(novel.labels, n_shot=3, n_query=4, n_tasks=10, seed=0)
    one = plain_scorer(novel.features, None, [(0.0, 0.9)]).scores(tasks)
    two = plain_scorer(novel.features, priors.prototypes, [(0.0, 0.0)]).scores(tasks)
    np.testing.assert_allclose(one, two, atol=1e-6)


def test_a_large_task_with_many_priors_works():
    features = make_features(1, 20, 23, n_features=32)
    priors = make_features(2, 5000, 1, n_features=32).features
    tasks = sample_tasks(features.labels, n_way=20, n_shot=20, n_query=3, n_tasks=2, seed=0)
    scores = plain_scorer(features.features, priors, [(0.0, 0.9), (0.5, 0.1)]).scores(tasks)
    expected = plain_scores(features.features, tasks, priors, [0.0, 0.5], [0.9, 0.1])
    np.testing.assert_allclose(scores, expected, rtol=0, atol=1e-5)


def test_memory_grows_by_no_more_than_the_accuracies(novel, priors):
    peaks = []
    for n_tasks in (1000, 5000):
        tracemalloc.start()
        evaluate(paper(priors), novel, n_shot=1, n_query=5, n_tasks=n_tasks)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    accuracies = 4000 * 8
    assert peaks[1] - peaks[0] < 4 * accuracies


def test_priors_of_another_width_are_refused(novel):
    with pytest.raises(InputError, match="the features have 24 features but the priors have 5. Extract both with"):
        plain_scorer(novel.features, np.ones((3, 5)), [(0.0, 0.9)])


def test_negative_features_are_refused_where_a_root_is_taken(novel, priors):
    features = novel.features - 0.5
    with pytest.raises(InputError, match=r"Negative values in data: features row \d+ .*Use power=1"):
        plain_scorer(features, priors.prototypes, [(0.0, 0.9)])
    plain_scorer(features, priors.prototypes, [(0.0, 0.9)], power=1)
    plain_scorer(features, None, [(0.0, 0.9)])


def test_rows_of_zeros_are_refused(novel, priors):
    features = novel.features.copy()
    features[17] = 0
    with pytest.raises(InputError, match="features row 17 is all zeros"):
        plain_scorer(features, priors.prototypes, [(0.0, 0.9)])
