import tracemalloc

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from p3dc import P3DCClassifier, Priors, method, sample_tasks
from p3dc.scoring import nearest_priors as nearness
from p3dc.scoring import numpy_scorer as engine
from p3dc.scoring import task_scorer
from p3dc.scoring.nearest_priors import PriorTable, nearest_in_blocks, priors_in_use
from p3dc.scoring.plain_corners import FLOAT32
from tests import reference
from tests.conftest import make_features
from tests.scoring.scorers import plain_scorer, whitened_scorer

TINY = {"BLOCK": 3, "GROUP_BYTES": 2**9, "WORK_BYTES": 2**9, "TABLE_BYTES": 2**9}


@pytest.fixture
def tiny(monkeypatch):
    """Blocks, groups and tables that are far too small for what they get."""
    for name, size in TINY.items():
        monkeypatch.setattr(nearness, name, size)
    monkeypatch.setattr(engine, "CHUNK_BYTES", 2**12)
    monkeypatch.setattr(task_scorer, "WHITENED_BYTES", 0)


def many(n_examples):
    """All examples of a test may share a fixture that only sets constants."""
    return settings(max_examples=n_examples, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@many(100)
@given(
    seed=st.integers(0, 1000),
    n_base=st.integers(1, 40),
    n_nearest=st.integers(1, 45),
    n_values=st.sampled_from([2, 5, 10**6]),
    lead=st.sampled_from([(1,), (4,), (2, 3)]),
)
def test_in_blocks_the_same_priors_are_chosen_as_at_once(tiny, seed, n_base, n_nearest, n_values, lead):
    """With few different values most are level, and the first of them count."""
    similarities = np.random.default_rng(seed).integers(n_values, size=(*lead, n_base)).astype(float)
    found = nearest_in_blocks(lambda block: similarities[..., block], 10, n_base, n_nearest)
    expected = method.nearest_priors(similarities, n_nearest)
    assert found.shape == (*lead, min(n_base, n_nearest))
    mask = np.zeros_like(expected)
    np.put_along_axis(mask, found, True, axis=-1)
    np.testing.assert_array_equal(mask, expected)
    assert (np.diff(found) > 0).all()


@many(50)
@given(seed=st.integers(0, 1000), n_tasks=st.integers(1, 9), n_support=st.integers(1, 9), n_nearest=st.integers(1, 4))
def test_parts_hold_every_sample_once_with_its_own_priors(tiny, seed, n_tasks, n_support, n_nearest):
    rng = np.random.default_rng(seed)
    nearest = np.sort(rng.permuted(np.tile(np.arange(30), (n_tasks, n_support, 1)), axis=-1)[..., :n_nearest])
    seen = np.zeros((n_tasks, n_support), dtype=int)
    for part, used, near, shared in priors_in_use(nearest, 30):
        seen[part] += 1
        assert len(near) == 1 or near.size * 8 <= nearness.WORK_BYTES
        for sample, mask in zip(nearest[part].reshape(-1, n_nearest), near.reshape(-1, len(used)), strict=True):
            assert used[mask].tolist() == sample.tolist()
        for task, mask in zip(nearest[part[0]], shared, strict=True):
            assert used[mask[0]].tolist() == np.unique(task).tolist()
    assert (seen == 1).all()


@many(30)
@given(
    seed=st.integers(0, 1000),
    n_way=st.integers(2, 4),
    n_shot=st.integers(1, 4),
    n_nearest=st.sampled_from([1, 5, 100]),
    power=st.sampled_from([0.5, 1.0]),
    length=st.sampled_from([1, 100]),
)
def test_scores_with_more_priors_than_a_block_are_those_of_the_plain_loop(
    tiny, seed, n_way, n_shot, n_nearest, power, length
):
    """Long features are scored in float64."""
    novel = make_features(seed, 5, 8, n_features=8)
    features, priors = length * novel.features, make_features(seed + 1, 25, 1, n_features=8).features.astype(float)
    tasks = sample_tasks(novel.labels, n_way=n_way, n_shot=n_shot, n_query=2, n_tasks=5, seed=seed)
    points = np.array([[0.0, 0.9], [0.3, 0.3]])
    options = {"n_nearest": n_nearest, "power": power}
    scorer = plain_scorer(features, priors, points, **options)
    assert not scorer.source.table.keeps_all
    labels, own = np.repeat(np.arange(n_way), n_shot), np.repeat(np.arange(n_way), 2)
    for task, (found, counts) in enumerate(zip(scorer.scores(tasks), scorer.correct(tasks), strict=True)):
        support, queries = (features[rows[task].ravel()] for rows in (tasks.support, tasks.queries))
        for point, (alpha, beta) in enumerate(points):
            expected = reference.scores(support, labels, queries, priors, alpha=alpha, beta=beta, **options)
            np.testing.assert_allclose(found[point], expected, rtol=0, atol=1e-5)
            assert counts[point] == np.sum(expected.argmax(axis=1) == own)


@many(20)
@given(seed=st.integers(0, 1000), n_way=st.integers(2, 4), n_shot=st.integers(1, 4), n_nearest=st.sampled_from([1, 5]))
def test_whitened_scores_with_more_priors_than_a_block_are_those_of_the_classifier(
    tiny, seed, n_way, n_shot, n_nearest
):
    novel = make_features(seed, 5, 8, n_features=8)
    priors = Priors.from_features(make_features(seed + 1, 25, 6, n_features=8))
    tasks = sample_tasks(novel.labels, n_way=n_way, n_shot=n_shot, n_query=2, n_tasks=4, seed=seed)
    scorer = whitened_scorer(novel.features, priors, n_nearest=n_nearest)
    assert scorer.source.whitened is None
    labels = np.repeat(np.arange(n_way), n_shot)
    for task, found in enumerate(scorer.scores(tasks)):
        support, queries = (novel.features[rows[task].ravel()] for rows in (tasks.support, tasks.queries))
        classifier = P3DCClassifier(priors, n_nearest=n_nearest).fit(support, labels)
        np.testing.assert_allclose(found[0], classifier._fitted.score(queries).cosines, atol=1e-10)


def test_a_table_that_is_full_starts_over(tiny):
    novel, priors = make_features(1, 5, 20).features, make_features(2, 25, 1).features.astype(float)
    table = PriorTable(novel, priors, 5, 0.5, FLOAT32)
    room = len(table.found)
    assert room * 5 * 8 <= nearness.TABLE_BYTES < len(novel) * 5 * 8
    rng = np.random.default_rng(0)
    expected = method.nearest_priors(np.sqrt(novel.astype(float)) @ priors.T, 5).nonzero()[1].reshape(-1, 5)
    for _ in range(10):
        rows = rng.integers(len(novel), size=(2, 4))
        np.testing.assert_array_equal(table.nearest(rows), expected[rows])
        assert len(table.found) == room


@pytest.mark.parametrize("kind", ["given", "auto"])
def test_nothing_is_as_large_as_the_samples_of_a_task_by_all_priors(kind, monkeypatch):
    monkeypatch.setattr(nearness, "TABLE_BYTES", 2**20)
    monkeypatch.setattr(nearness, "WORK_BYTES", 2**18)
    novel = make_features(1, 6, 40, n_features=16)
    priors = Priors.from_features(make_features(2, 30_000, 2, n_features=16))
    n_support = 25
    tasks = sample_tasks(novel.labels, n_shot=5, n_query=5, n_tasks=40, seed=0)
    if kind == "given":
        scorer = plain_scorer(novel.features, priors.prototypes, [(0.0, 0.9)])
    else:
        scorer = whitened_scorer(novel.features, priors)
    tracemalloc.start()
    scorer.correct(tasks)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < n_support * len(priors) * 8
