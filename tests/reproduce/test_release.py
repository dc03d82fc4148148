import pickle

import numpy as np
import pytest

from p3dc import FeatureSet, Priors
from p3dc.errors import InputError
from p3dc.evaluation.evaluate import compare_on
from p3dc.reproduce.release import ReleaseP3DC, ReleaseSampler
from tests import reference
from tests.conftest import paper


def released_tasks(by_class, n_tasks, n_way, n_shot, n_query):
    """The released sampler, restated from its description: one global stream, seeded once."""
    names = list(by_class)
    smallest = min(map(len, by_class.values()))
    np.random.seed(0)
    for _ in range(n_tasks):
        chosen = np.random.permutation(np.arange(len(names)))[:n_way]
        order = np.arange(smallest)
        supports, queries = [], []
        for c in chosen:
            order = np.random.permutation(order)
            rows = [by_class[names[c]][i] for i in order[: n_shot + n_query]]
            supports += rows[:n_shot]
            queries += rows[n_shot:]
        yield np.array(supports, dtype=float), np.array(queries, dtype=float)


def released_predictions(support, queries, priors, n_way, n_shot, alpha, beta):
    """The released classifier, restated: mixed samples are not normalised, the query in the attention is raw."""
    roots = np.sqrt(support)
    nearest = [np.argsort(-(priors @ x), kind="stable")[:5] for x in roots]
    union = np.unique(np.concatenate(nearest))
    mixed = []
    for original, x, own in zip(support, roots, nearest, strict=True):
        s = x + reference.softmax(priors[own] @ x) @ priors[own]
        t = x + reference.softmax(priors[union] @ x) @ priors[union]
        mixed.append(
            (1 - alpha - beta) * reference.normalize(original)
            + alpha * reference.normalize(s)
            + beta * reference.normalize(t)
        )
    by_class = np.array(mixed).reshape(n_way, n_shot, -1)
    predictions = []
    for q in queries:
        prototypes = np.array([reference.softmax(members @ q) @ members for members in by_class])
        predictions.append(np.argmax(reference.normalize(prototypes) @ reference.normalize(q)))
    return np.array(predictions)


@pytest.mark.parametrize("n_shot", [1, 5])
def test_tasks_and_predictions_are_those_of_the_released_scripts(tmp_path, base, novel, n_shot):
    """On small files in the released format, with classes of different sizes in no order."""
    rng = np.random.default_rng(0)
    by_class = {}
    for c in (5, 2, 7, 0, 3, 1):
        rows = novel.features[novel.labels == c]
        by_class[c] = list(rows[: rng.integers(12, 30)])
    (tmp_path / "novel_features.plk").write_bytes(pickle.dumps(by_class))
    features = FeatureSet.load(tmp_path / "novel_features.plk")
    priors = Priors.from_features(base)
    classifier = ReleaseP3DC(priors, alpha=0.1, beta=0.5)
    sampler = ReleaseSampler(features, n_way=3, n_shot=n_shot, n_query=4)
    scores = compare_on(sampler, {"": classifier}, features, n_tasks=40).scores[""]
    own = np.repeat(np.arange(3), 4)
    expected = [
        np.mean(released_predictions(support, queries, priors.prototypes, 3, n_shot, 0.1, 0.5) == own)
        for support, queries in released_tasks(by_class, 40, 3, n_shot, 4)
    ]
    np.testing.assert_allclose(scores.accuracy, expected)


def test_batches_are_one_stream(novel):
    sampler = ReleaseSampler(novel, n_way=5, n_shot=1, n_query=3)
    whole = next(sampler.batches(12, size=12))
    parts = list(sampler.batches(12, size=5))
    np.testing.assert_array_equal(np.concatenate([part.queries for part in parts]), whole.queries)


def test_with_one_shot_the_release_is_the_paper(novel, priors):
    sampler = ReleaseSampler(novel, n_way=5, n_shot=1, n_query=5)
    pair = {"a": ReleaseP3DC(priors, alpha=0.0, beta=0.9), "b": paper(priors, alpha=0.0, beta=0.9)}
    found = compare_on(sampler, pair, novel, n_tasks=50)
    np.testing.assert_array_equal(*(scores.accuracy for scores in found.scores.values()))


def test_impossible_requests_are_refused(novel, priors):
    with pytest.raises(InputError, match="the smallest of 30"):
        ReleaseSampler(novel, n_way=5, n_shot=20, n_query=15)
    with pytest.raises(InputError, match="released scripts need equal shots"):
        ReleaseP3DC(priors, alpha=0.0, beta=0.9).fit(novel.features[[0, 1, 40]], [0, 0, 1])
