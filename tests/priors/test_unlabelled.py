import pickle
import tracemalloc

import numpy as np
import pytest

from p3dc import FeatureSet, P3DCClassifier, Priors, compare
from p3dc.baselines import L2N
from p3dc.errors import InputError
from p3dc.io.safetensors import read_arrays
from p3dc.priors import unlabelled
from p3dc.priors.geometry import SHARED, _learn
from p3dc.priors.unlabelled import _sample_directions, cluster_number, learn_centres, sum_clusters
from tests.conftest import make_features, make_signed


@pytest.fixture(scope="module")
def clusters(base):
    return Priors.from_unlabelled(base)


def plain_tightness(priors):
    """What the clusters would say if they were classes."""
    found = _learn(priors.prototypes, priors.counts, priors.moments.lengths, priors.moments.cluster_scatter)
    return found.tightness


def corrected(tightness):
    return np.sqrt(max(tightness**2, min(SHARED * tightness**2, 0.9)))


def loaded(priors, tmp_path):
    priors.save(tmp_path / "priors.safetensors")
    return Priors.load(tmp_path / "priors.safetensors")


@pytest.mark.parametrize(
    ("n_rows", "number"), [(1, 1), (5, 5), (8, 8), (50, 8), (100, 10), (5885, 77), (10**6, 1000), (10**8, 1024)]
)
def test_there_are_as_many_clusters_as_the_root_of_the_rows(n_rows, number):
    assert cluster_number(n_rows) == number


def test_clusters_are_named_and_marked(base, clusters):
    assert len(clusters) == 19
    assert clusters.class_names[:2] == ("cluster 0001", "cluster 0002")
    assert clusters.clusters.all()
    assert clusters.counts.sum() == len(base)
    assert str(clusters) == "Priors(19 clusters, 24 features)"
    assert len(Priors.from_unlabelled(base.features, n_clusters=5)) == 5
    with pytest.raises(ValueError, match="read-only"):
        clusters.clusters[0] = False


def test_a_cluster_of_each_class_has_its_mean():
    base = make_signed(1, 10, 40, noise=0.05)
    found = Priors.from_unlabelled(base, n_clusters=10)
    expected = Priors.from_features(base)
    nearest = np.linalg.norm(found.prototypes[:, None] - expected.prototypes, axis=2).argmin(axis=1)
    assert sorted(nearest) == list(range(10))
    np.testing.assert_allclose(found.prototypes, expected.prototypes[nearest], rtol=1e-6)


def test_hardly_any_cluster_is_a_single_row():
    rng = np.random.default_rng(0)
    classes = (
        rng.standard_gamma(0.5, size=(300, 1, 200)) + 0.2
    )  # a row is nearer to the mean of all than to most others
    rows = rng.standard_exponential(size=(300, 10, 200)) * classes
    found = Priors.from_unlabelled(rows.reshape(-1, 200), n_clusters=300)
    assert (found.counts == 1).sum() <= 3  # of plain mini-batch k-means, 13


def test_labels_and_the_size_of_batches_change_nothing(base, clusters, monkeypatch):
    monkeypatch.setattr(unlabelled, "SAMPLE_ROWS", 200)  # so that rows are left out
    rng = np.random.default_rng(3)
    shuffled = Priors.from_unlabelled(FeatureSet(base.features, rng.permutation(base.labels)))
    parts = np.array_split(base.features, 7)
    for same in (Priors.from_unlabelled(base.features), Priors.from_unlabelled(lambda: iter(parts)), shuffled):
        np.testing.assert_allclose(same.prototypes, shuffled.prototypes, rtol=1e-5)
        np.testing.assert_array_equal(same.counts, shuffled.counts)


@pytest.mark.parametrize("n_rows", [400, 5000])
def test_rows_are_sampled_evenly(monkeypatch, n_rows):
    monkeypatch.setattr(unlabelled, "SAMPLE_ROWS", 100)
    angles = np.linspace(0, np.pi / 2, n_rows)
    rows = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    kept = np.zeros(n_rows)
    for seed in range(200):
        sample, found = _sample_directions(np.array_split(rows, 9), np.random.default_rng(seed))
        assert (found, len(sample)) == (n_rows, 100)
        kept += np.bincount(np.rint(np.arctan2(*sample.T[::-1]) / angles[1]).astype(int), minlength=n_rows)
    tenths = kept.reshape(10, -1).sum(axis=1)
    np.testing.assert_allclose(tenths, 2000, atol=5 * np.sqrt(2000 * 0.9))


def test_the_order_of_rows_hardly_matters(monkeypatch):
    monkeypatch.setattr(unlabelled, "SAMPLE_ROWS", 600)
    base, novel = make_features(1, 20, 60), make_features(2, 20, 60)
    order = np.random.default_rng(0).permutation(len(base))
    ways = {"sorted": base.features, "mixed": base.features[order], "reversed": base.features[::-1]}
    priors = {name: Priors.from_unlabelled(rows) for name, rows in ways.items()}
    tightness = [found.geometry.tightness for found in priors.values()]
    assert np.ptp(tightness) < 0.05
    scores = compare({name: P3DCClassifier(found) for name, found in priors.items()}, novel, n_tasks=200).scores
    assert np.ptp([score.mean for score in scores.values()]) < 0.015


def test_memory_of_a_stream_does_not_depend_on_its_length(monkeypatch):
    monkeypatch.setattr(unlabelled, "SAMPLE_ROWS", 500)

    def stream(n_batches):
        rng = np.random.default_rng(0)
        return (rng.random((200, 32)) + 3 * np.eye(32)[rng.integers(0, 5, 200)] for _ in range(n_batches))

    peaks = []
    for n_batches in (5, 5, 100):  # the first imports scikit-learn
        tracemalloc.start()
        Priors.from_unlabelled(lambda n_batches=n_batches: stream(n_batches), n_clusters=20)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[2] < 1.2 * peaks[1]


def test_progress_counts_the_rows_of_the_second_pass(base):
    calls = []
    parts = np.array_split(base.features, 4)
    Priors.from_unlabelled(lambda: parts, progress=lambda *seen: calls.append(seen))
    assert calls == [(90, 360), (180, 360), (270, 360), (360, 360)]


def test_rows_of_zeros_are_left_out(base, clusters):
    rows = np.insert(base.features, [0, 100, 100], 0, axis=0)
    found = Priors.from_unlabelled(lambda: [rows, np.zeros((3, 24)), np.ones((0, 24))])
    np.testing.assert_array_equal(found.counts, clusters.counts)
    np.testing.assert_allclose(found.prototypes, clusters.prototypes, rtol=1e-6)


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_only_directions_matter(base, clusters, scale):
    found = Priors.from_unlabelled(base.features.astype(float) * scale)
    np.testing.assert_allclose(found.prototypes / scale, clusters.prototypes, rtol=1e-5)


def test_rows_that_are_all_the_same_are_one_cluster():
    found = Priors.from_unlabelled(np.ones((100, 3)))
    assert found.counts.tolist() == [100]
    assert found.geometry is None


@pytest.mark.parametrize(
    ("features", "n_clusters", "sentence"),
    [
        (np.zeros((5, 3)), None, "no rows to cluster"),
        (lambda: [], None, "no rows to cluster"),
        (np.ones((5, 3)), 6, "n_clusters is 6, but clusters are learned from 5 rows"),
        (np.ones((5, 3)), 0, "n_clusters is 0. It must be at least 1"),
        (np.ones((5, 3)), 2.5, "n_clusters is 2.5. It must be a whole number"),
        ([[1.0, np.nan]], None, "features row 0 has NaN"),
        (lambda: [np.ones((2, 3)), np.ones((2, 4))], None, "some rows have 4 features but those before have 3"),
    ],
)
def test_what_cannot_be_clustered_is_refused(features, n_clusters, sentence):
    with pytest.raises(InputError, match=sentence):
        Priors.from_unlabelled(features, n_clusters=n_clusters)


def test_a_stream_that_can_be_read_only_once_is_refused():
    once = iter([np.ones((20, 3))])
    with pytest.raises(InputError, match="no rows to average"):
        Priors.from_unlabelled(lambda: once)


@pytest.mark.parametrize("clusters", [[True], [1, 0], ["a", "b"]])
def test_marks_that_fit_no_prototypes_are_refused(clusters):
    with pytest.raises(InputError, match="clusters must be 2 of True and False"):
        Priors(np.eye(2), clusters=clusters)


def test_the_tightness_of_clusters_is_corrected():
    base = make_signed(1, 30, 30, noise=1.5)
    found = Priors.from_unlabelled(base)
    assert plain_tightness(found) < 0.6
    assert found.geometry.tightness == pytest.approx(np.sqrt(SHARED) * plain_tightness(found))


def test_saving_merging_and_pickling_keep_the_correction(tmp_path, clusters):
    again = loaded(clusters, tmp_path)
    for same in (again, Priors.merge([clusters]), Priors.merge([again]), pickle.loads(pickle.dumps(clusters))):
        assert same.clusters.all()
        assert same.class_names == clusters.class_names
        assert same.geometry.tightness == pytest.approx(corrected(plain_tightness(clusters)), rel=1e-4)


def test_clusters_of_different_rows_are_never_averaged(clusters):
    other = Priors.from_unlabelled(make_features(9, 12, 30))
    merged = Priors.merge([clusters, other])
    assert merged.class_names == tuple(f"cluster {number:04d}" for number in range(1, 39))
    np.testing.assert_allclose(merged.prototypes, np.concatenate([clusters.prototypes, other.prototypes]))
    assert merged.geometry.tightness == pytest.approx(corrected(plain_tightness(merged)))


def test_the_geometry_is_that_of_labelled_classes_where_there_are_any(tmp_path, priors, clusters):
    both = loaded(Priors.merge([priors, clusters]), tmp_path)
    assert str(both) == "Priors(12 base classes, 19 clusters, 24 features)"
    nested = Priors.merge([clusters, loaded(priors, tmp_path)])
    for merged in (both, nested, Priors.merge([both]), Priors.merge([clusters, both])):
        assert merged.geometry.tightness == pytest.approx(priors.geometry.tightness, rel=1e-5)
        assert merged.geometry.spread == pytest.approx(priors.geometry.spread, rel=1e-5)
        eye = np.eye(24)
        np.testing.assert_allclose(merged.geometry.whiten(eye), priors.geometry.whiten(eye), atol=1e-4)
        assert merged.geometry.prototypes.shape == merged.prototypes.shape
        own = merged.geometry.prototypes[~merged.clusters]
        np.testing.assert_allclose(own, priors.geometry.prototypes, atol=1e-4)


def test_clusters_serve_where_labelled_classes_have_no_geometry(priors, clusters, base):
    few = base.labels < 2
    two = Priors.from_features(FeatureSet(base.features[few], base.labels[few], base.class_names))
    merged = Priors.merge([two, clusters])
    assert merged.geometry.tightness == pytest.approx(clusters.geometry.tightness)
    assert merged.geometry.prototypes.shape == (21, 24)


def test_a_class_that_is_called_like_a_cluster_stays_a_class(clusters):
    named = Priors(np.eye(24)[:2], ["cluster 0001", "cluster 0003"], counts=[1, 1])
    merged = Priors.merge([clusters, named])
    assert merged.class_names[:3] == ("cluster 0002", "cluster 0004", "cluster 0005")
    assert merged.clusters.tolist() == [True] * 19 + [False] * 2
    np.testing.assert_allclose(merged.prototypes[-2:], np.eye(24)[:2])


def test_files_of_labelled_priors_are_as_before(tmp_path, priors):
    priors.save(tmp_path / "priors.safetensors")
    required = ["prototypes", "counts", "lengths", "scatter", "axes", "gains"]
    read_arrays(tmp_path / "priors.safetensors", "priors", 2, required=required, facts=["class_names", "geometry"])
    assert not Priors.load(tmp_path / "priors.safetensors").clusters.any()


def test_sums_of_parts_are_the_sums_of_all(base, clusters):
    centres, _ = learn_centres([base.features])
    total = sum_clusters([base.features[:100]], centres)
    total.join(sum_clusters([base.features[100:]], centres))
    found = Priors.from_sums(total)
    np.testing.assert_array_equal(found.counts, clusters.counts)
    assert found.class_names == clusters.class_names
    assert found.geometry.tightness == pytest.approx(clusters.geometry.tightness, rel=1e-6)


def test_explanations_and_files_of_classifiers_list_clusters(tmp_path, task, clusters):
    P3DCClassifier(clusters).fit(*task[:2]).save(tmp_path / "model.safetensors")
    classifier = P3DCClassifier.load(tmp_path / "model.safetensors")
    assert classifier.priors.clusters.all()
    assert set(classifier.explain().column("prior").to_pylist()) <= set(clusters.class_names)


@pytest.mark.parametrize("n_shot", [1, 5, 20])
@pytest.mark.parametrize(("seed", "home"), [(1, 0.0), (1, 1.0), (5, 0.0), (5, 1.0)])
def test_clusters_gain_over_no_priors_where_classes_share_directions(seed, home, n_shot):
    settings = {"noise": 3.0, "home": home, "directions": np.random.default_rng(0).normal(size=(6, 24))}
    priors = Priors.from_unlabelled(make_signed(seed, 20, 50, **settings))
    rows = {"clusters": P3DCClassifier(priors), "L2N": L2N()}
    novel = make_signed(seed + 1, 20, 50, **settings)
    gain = compare(rows, novel, n_shot=n_shot, n_tasks=500).difference("clusters", "L2N")
    assert gain.mean > gain.interval


@pytest.mark.parametrize("seed", [1, 3])
def test_where_base_classes_mislead_their_clusters_mislead_less(seed):
    """Each class draws its features independently, so base classes say nothing of others."""
    base, novel = make_features(seed, 20, 50), make_features(seed + 1, 20, 50)
    rows = {
        "clusters": P3DCClassifier(Priors.from_unlabelled(base)),
        "classes": P3DCClassifier(Priors.from_features(base)),
        "L2N": L2N(),
    }
    found = compare(rows, novel, n_tasks=1000)
    assert found.difference("clusters", "classes").mean > 0.01
    assert found.difference("clusters", "L2N").mean > -0.01  # −0.3 and −0.7 points


@pytest.mark.data
def test_clusters_of_birds_gain_over_no_priors(data_folder):
    folder = data_folder / "cub-resnet12"
    priors = Priors.from_unlabelled(FeatureSet.load(folder / "base.npz"))
    rows, validation = {"clusters": P3DCClassifier(priors), "L2N": L2N()}, FeatureSet.load(folder / "validation.npz")
    one, twenty = (
        compare(rows, validation, n_shot=n_shot, n_tasks=300).difference("clusters", "L2N") for n_shot in (1, 20)
    )
    assert one.mean >= 0.025  # +6.3 ± 0.6 points when written
    assert twenty.mean > -twenty.interval  # +1.2 ± 0.2
