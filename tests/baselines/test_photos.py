"""Methods that need more of a photo than its features: views for DeepVoro, feature maps for MCL-Katz."""

import numpy as np
import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from p3dc import FeatureSet, compare, evaluate
from p3dc.baselines import DeepVoro, DeepVoroPP, MCLKatz
from p3dc.baselines.deepvoro import N_VIEWS, view
from p3dc.baselines.registry import METHODS, Sources, also_read
from p3dc.errors import InputError
from p3dc.evaluation.splits import hold_out
from tests.reference import normalize

N_FEATURES, N_PHOTO_VIEWS, N_POSITIONS = 6, 3, 4


def photos(seed, n_classes=8, n_each=12, prefix="novel"):
    """A set with views and maps: each is a class, noise of the photo, and noise of the view or position."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(n_classes), n_each)
    photo = rng.uniform(0, 2, (n_classes, N_FEATURES))[labels] + rng.uniform(0, 0.5, (len(labels), N_FEATURES))
    views, maps = (
        photo[:, None] + rng.uniform(0, 1, (len(labels), n, N_FEATURES)) for n in (N_PHOTO_VIEWS, N_POSITIONS)
    )
    names = [f"{prefix}-{c}" for c in range(n_classes)]
    return FeatureSet(views.mean(axis=1), labels, names, views=views, maps=maps.astype(np.float16))


@pytest.fixture
def novel():
    return photos(0)


@pytest.fixture
def task(novel):
    support = np.concatenate([np.flatnonzero(novel.labels == c)[:2] for c in range(3)])
    queries = np.concatenate([np.flatnonzero(novel.labels == c)[2:5] for c in range(3)])
    return support, novel.labels[support], queries


def test_a_set_names_its_views_and_positions(novel):
    assert repr(novel) == "FeatureSet(96 rows, 6 features, 8 classes, 3 views, 4 positions)"
    assert repr(novel[:5]) == "FeatureSet(5 rows, 6 features, 8 classes, 3 views, 4 positions)"
    with pytest.raises(InputError, match=r"^rows are chosen by 3\. Give a slice, a mask or a list"):
        _ = novel[3]


@parametrize_with_checks([MCLKatz()])
def test_scikit_learn_accepts_it(estimator, check):
    check(estimator)


def written_out_katz(query, support, gamma, gamma_back, attenuation):
    """The centrality of all nodes from the inverse of the whole graph, (P, D), (N, K, P, D) -> (N,)."""
    means = normalize(support.mean(axis=1)).reshape(-1, support.shape[-1])
    n_query, n_class = len(query), len(means)
    graph = np.zeros((n_class + n_query, n_class + n_query))
    for i, one in enumerate(normalize(query)):
        for j, other in enumerate(means):
            cosine = one @ other
            graph[j, n_class + i] = np.exp(gamma * cosine)
            graph[n_class + i, j] = np.exp(gamma_back * cosine)
    graph /= graph.sum(axis=0)  # all that leaves a node sums to 1
    identity = np.eye(len(graph))
    katz = (np.linalg.inv(identity - attenuation * graph) - identity) @ np.ones(len(graph))
    shares = katz[:n_class].reshape(len(support), -1).sum(axis=1)
    return shares / shares.sum()


def test_mcl_katz_is_the_centrality_of_the_positions_of_a_class(novel, task):
    support, labels, queries = task
    maps = novel.maps.astype(float)
    rows = maps.reshape(len(maps), -1)
    options = {"gamma": 7.0, "gamma_back": 3.0, "attenuation": 0.8}
    classifier = MCLKatz(N_POSITIONS, **options).fit(rows[support], labels)
    expected = [written_out_katz(maps[q], maps[support].reshape(3, 2, N_POSITIONS, -1), **options) for q in queries]
    np.testing.assert_allclose(classifier.decision_function(rows[queries]), expected, rtol=1e-9)


def test_mcl_katz_reads_the_maps_of_a_set(novel):
    found = evaluate(MCLKatz(N_POSITIONS), novel, n_query=5, n_tasks=20)
    as_rows = FeatureSet(novel.maps.reshape(len(novel), -1).astype(np.float32), novel.labels, maps=novel.maps)
    classifier = MCLKatz(N_POSITIONS)
    classifier.rows_of = lambda features: features.features
    again = evaluate(classifier, as_rows, n_query=5, n_tasks=20)
    np.testing.assert_array_equal(found.accuracy, again.accuracy)
    assert found.mean > 0.4


@pytest.mark.parametrize(
    ("options", "sentence"),
    [({"n_positions": 7}, "7 positions"), ({"attenuation": 1.0}, "attenuation is 1.0"), ({"n_positions": 0}, "n_posi")],
)
def test_mcl_katz_refuses_what_it_cannot_compute(novel, task, options, sentence):
    support, labels, _ = task
    with pytest.raises(InputError, match=sentence):
        MCLKatz(**options).fit(novel.maps.reshape(len(novel), -1)[support].astype(float), labels)


def test_deepvoro_averages_the_distances_of_all_views_of_a_photo(novel, task):
    support, labels, queries = task
    rows, numbers = novel.views.reshape(len(novel), -1), (0, N_VIEWS + 4, 2 * N_VIEWS + 1)
    classifier = DeepVoro(numbers, n_photo_views=N_PHOTO_VIEWS).fit(rows[support], labels)
    expected = np.zeros((len(queries), 3))
    for photo_view, transform in enumerate((0, 4, 1)):
        seen = view(novel.views[:, photo_view], transform)
        means = np.array([seen[support][labels == c].mean(axis=0) for c in range(3)])
        expected -= np.linalg.norm(seen[queries][:, None] - means, axis=2) / 3
    np.testing.assert_allclose(classifier.decision_function(rows[queries]), expected)


def test_deepvoro_pp_averages_the_scores_of_each_view_of_a_photo(novel, task):
    support, labels, queries = task
    base = photos(1, prefix="base")
    options = {"number": 3, "n_nearest": 2, "weight": 0.7}
    rows = novel.views.reshape(len(novel), -1)
    together = DeepVoroPP(base, **options, n_photo_views=N_PHOTO_VIEWS).fit(rows[support], labels)
    single = []
    for v in range(N_PHOTO_VIEWS):
        one = DeepVoroPP(FeatureSet(base.views[:, v], base.labels), **options).fit(novel.views[support, v], labels)
        single.append(one.decision_function(novel.views[queries, v]))
    np.testing.assert_allclose(together.decision_function(rows[queries]), np.mean(single, axis=0))


def test_views_are_chosen_on_validation_classes_and_compared_on_the_same_tasks(novel):
    validation, base = photos(2, prefix="validation"), photos(1, prefix="base")
    drawing = {"n_query": 5, "n_tasks": 4}
    sources = Sources(None, base, validation=lambda one: evaluate(one, validation, **drawing).mean).of_photos(novel)
    built = {key: METHODS[key].build(sources) for key in ("deepvoro", "deepvoro++", "mcl-katz")}
    assert (sources.views, sources.maps) == (N_PHOTO_VIEWS, N_POSITIONS)
    assert built["deepvoro"].n_photo_views == built["deepvoro++"].n_photo_views == N_PHOTO_VIEWS
    assert max(built["deepvoro"].views) < N_VIEWS * N_PHOTO_VIEWS
    found = compare(built, novel, **drawing)
    assert len(found.scores) == 3


def test_what_was_not_extracted_is_one_sentence(novel):
    plain = FeatureSet(novel.features, novel.labels)
    with pytest.raises(InputError, match=r"^mcl-katz needs feature maps .* Extract the features with --maps\.$"):
        METHODS["mcl-katz"].build(Sources(None).of_photos(plain))
    with pytest.raises(InputError, match="the photos have 1 views, not 3. Extract all of them with --views 3"):
        evaluate(DeepVoro(n_photo_views=3), plain, n_tasks=1, n_query=5)
    with pytest.raises(InputError, match="feature maps have 0 positions, not 4"):
        evaluate(MCLKatz(4), plain, n_tasks=1, n_query=5)
    assert also_read(["nn", "deepvoro", "mcl-katz", "p3dc"]) == ["maps", "views"]


def test_held_out_classes_keep_their_views_and_maps():
    base = photos(3, n_classes=12)
    stay, held_out = hold_out(base)
    assert stay.views.shape[0] == len(stay)
    np.testing.assert_allclose(held_out.views.mean(axis=1), held_out.features)
    assert held_out.maps.shape == (len(held_out), N_POSITIONS, N_FEATURES)
