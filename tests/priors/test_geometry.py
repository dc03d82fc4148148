import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.covariance import OAS

from p3dc import FeatureSet, P3DCClassifier, Priors, _arrays
from p3dc.errors import InputError
from p3dc.io.safetensors import read_arrays, write_arrays
from p3dc.priors.geometry import N_AXES, _isotropic_share
from tests.conftest import make_features, make_signed, paper
from tests.reference import normalize


def plain_scatter(rows, labels):
    """Within-class covariance of directions, each row weighted by its length, and the means of the classes."""
    lengths = np.linalg.norm(rows, axis=1)
    directions = rows / lengths[:, None]
    classes = np.unique(labels)
    means, within = [], np.zeros((rows.shape[1],) * 2)
    for c in classes:
        own = labels == c
        means.append(np.average(directions[own], axis=0, weights=lengths[own]))
        for length, direction in zip(lengths[own], directions[own], strict=True):
            within += length * np.outer(direction - means[-1], direction - means[-1])
    return np.array(means), within / lengths.sum() * len(rows) / (len(rows) - len(classes))


def plain_geometry(rows, labels):
    """The whole geometry by one eigen-decomposition: what whitens, tightness, spread, whitened means."""
    means, within = plain_scatter(rows, labels)
    n_features, n_free = rows.shape[1], len(rows) - len(means)
    level = np.trace(within) / n_features
    squares = np.sum(within**2)
    share = ((1 - 2 / n_features) * squares + np.trace(within) ** 2) / (
        (n_free + 1 - 2 / n_features) * (squares - np.trace(within) ** 2 / n_features)
    )
    share = min(max(share, 0), 1)
    variances, axes = np.linalg.eigh(within)
    variances = (1 - share) * variances + share * level
    variances[:-N_AXES] = variances[:-N_AXES].mean() if n_features > N_AXES else 0
    whitening = axes @ np.diag(1 / np.sqrt(0.2 * variances / level + 0.8)) @ axes.T
    whitened, noise = means @ whitening, whitening @ axes @ np.diag(variances) @ axes.T @ whitening
    counts = np.unique(labels, return_counts=True)[1]
    centred = whitened - whitened.mean(axis=0)
    between = np.sum(centred**2) / (len(means) - 1) - np.trace(noise) * np.mean(1 / counts)
    share = between / (between + np.trace(noise))
    ways = normalize(centred)
    squared = [(one @ two) ** 2 for i, one in enumerate(ways) for j, two in enumerate(ways) if i != j]
    stray = np.mean([way @ noise @ way for way in ways]) / np.trace(noise)
    return whitening, np.sqrt(share), share * np.mean(squared) + (1 - share) * stray, whitened


def assert_close(one, two, rtol=1e-6):
    """Compare two geometries whose axes may differ in sign and in the order of equals."""
    eye = np.eye(len(one.axes[0]))
    np.testing.assert_allclose(one.whiten(eye), two.whiten(eye), atol=rtol)
    np.testing.assert_allclose(one.prototypes, two.prototypes, atol=rtol)
    np.testing.assert_allclose(one.rest, two.rest, rtol=rtol)
    np.testing.assert_allclose([one.tightness, one.spread], [two.tightness, two.spread], rtol=rtol)


@pytest.mark.parametrize("n_features", [3, 24, 150])
@pytest.mark.parametrize("signed", [True, False])
def test_the_geometry_is_that_of_the_plain_restatement(n_features, signed):
    make = make_signed if signed else make_features
    base = make(1, 12, 30, n_features=n_features)
    rows, labels = base.features.astype(float), base.labels
    keep = np.arange(len(rows)) % 30 < 4 + 2 * labels  # unequal classes
    found = Priors.from_features(FeatureSet(rows[keep], labels[keep])).geometry
    whitening, tightness, spread, whitened = plain_geometry(rows[keep], labels[keep])
    np.testing.assert_allclose(found.whiten(np.eye(n_features)), whitening, atol=1e-6)
    np.testing.assert_allclose(found.prototypes, whitened, atol=1e-6)
    np.testing.assert_allclose(found.mean, whitened.mean(axis=0), atol=1e-6)
    assert found.axes.shape == (min(n_features, N_AXES), n_features)
    assert found.tightness == pytest.approx(tightness, rel=1e-5)
    assert found.spread == pytest.approx(spread, rel=1e-5)


def test_the_round_share_is_that_of_scikit_learn_where_features_are_many(rng):
    rows = rng.normal(size=(40, 100)) * np.linspace(0.1, 2, 100) ** 3
    rows -= rows.mean(axis=0)
    covariance = rows.T @ rows / len(rows)
    expected = OAS(assume_centered=True).fit(rows).shrinkage_
    assert 0.1 < expected < 0.9
    assert _isotropic_share(covariance, len(rows)) == pytest.approx(expected, rel=0.02)


def test_a_round_covariance_stays_round():
    assert _isotropic_share(np.eye(5), 10) == 1.0
    assert _isotropic_share(np.ones((1, 1)), 10) == 1.0


@pytest.mark.parametrize("home", [0.0, 1.0])
def test_tightness_and_spread_are_the_cosines_of_samples_of_classes_never_seen(home):
    directions = np.random.default_rng(5).normal(size=(16, 64)) / 4
    base = make_signed(1, 80, 40, n_features=64, home=home, directions=directions, noise=0.3)
    found = Priors.from_features(base).geometry
    unseen = make_signed(2, 80, 200, n_features=64, home=home, directions=directions, noise=0.3)
    whitened = found.whiten(normalize(unseen.features)).reshape(80, 200, 64)
    samples = normalize(whitened - found.mean)
    cosines = np.einsum("cnd,md->cnm", samples, normalize(whitened.mean(axis=1) - found.mean))
    own = np.eye(80, dtype=bool)
    assert found.tightness == pytest.approx(np.diagonal(cosines, axis1=0, axis2=2).mean(), abs=0.02)
    assert found.spread == pytest.approx(np.mean(cosines.transpose(0, 2, 1)[~own] ** 2), rel=0.15)


def test_tighter_classes_are_told_to_be_tighter():
    found = [Priors.from_features(make_signed(1, 20, 20, noise=noise)).geometry for noise in (0.1, 0.5, 2.0)]
    assert found[0].tightness > found[1].tightness > found[2].tightness


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 1000), n_parts=st.integers(2, 6))
def test_neither_parts_nor_order_nor_batches_change_the_geometry(seed, n_parts):
    rng = np.random.default_rng(seed)
    base = make_signed(seed, 6, 8, n_features=5, prefix="c")
    names = np.array(base.class_names)[base.labels]
    whole = Priors.from_features(base)
    parts = [(base.features[part], names[part]) for part in np.array_split(rng.permutation(len(base)), n_parts)]
    merged = Priors.merge(Priors.from_features(FeatureSet(*part)) for part in parts)
    order = [merged.class_names.index(name) for name in whole.class_names]
    np.testing.assert_allclose(merged.moments.scatter, whole.moments.scatter, atol=1e-12)
    np.testing.assert_allclose(merged.moments.lengths[order], whole.moments.lengths, rtol=1e-12)
    streamed = Priors.from_batches(parts)
    assert_close(streamed.geometry, whole.geometry)
    np.testing.assert_allclose(merged.geometry.prototypes[order], whole.geometry.prototypes, atol=1e-6)
    assert merged.geometry.tightness == pytest.approx(whole.geometry.tightness, rel=1e-6)


def test_moments_are_those_of_the_rows(base, priors):
    rows = base.features.astype(float)
    lengths = np.linalg.norm(rows, axis=1)
    expected = sum(np.outer(row, row) / length for row, length in zip(rows, lengths, strict=True)) / lengths.sum()
    np.testing.assert_allclose(priors.moments.scatter, expected, rtol=1e-5)
    for c, length in enumerate(priors.moments.lengths):
        assert length == pytest.approx(lengths[base.labels == c].mean())


def test_the_size_of_blocks_changes_nothing(base, priors, monkeypatch):
    monkeypatch.setattr(_arrays, "BLOCK_BYTES", 8 * 24 * 7)
    assert_close(Priors.from_features(base).geometry, priors.geometry, rtol=1e-5)


@settings(max_examples=20, deadline=None)
@given(exponent=st.floats(-30, 30))
def test_the_length_of_the_features_does_not_matter(exponent):
    base = make_features(1, 6, 8, n_features=5, dtype=np.float64)
    longer = FeatureSet(base.features * 10.0**exponent, base.labels)
    assert_close(Priors.from_features(longer).geometry, Priors.from_features(base).geometry)


def test_float16_and_float32_features_give_the_geometry_of_float64():
    half = make_features(1, 12, 30, dtype=np.float16)
    expected = Priors.from_features(FeatureSet(half.features.astype(np.float64), half.labels)).geometry
    for dtype in (np.float16, np.float32):
        found = Priors.from_features(FeatureSet(half.features.astype(dtype), half.labels)).geometry
        assert found.prototypes.dtype == np.float64
        assert_close(found, expected, rtol=2e-4)


def test_whitening_shrinks_most_where_classes_scatter_most():
    base = make_signed(1, 20, 50, n_features=8)  # the later a feature, the more it scatters
    found = Priors.from_features(base).geometry
    along = np.linalg.norm(found.whiten(np.eye(8)), axis=1)
    assert along[0] > 1 > along[-1]
    np.testing.assert_allclose(found.axes @ found.axes.T, np.eye(8), atol=1e-6)


def rows_and_labels(case):
    rng = np.random.default_rng(0)
    rows, labels = rng.normal(size=(60, 200)) + 1, np.repeat(np.arange(6), 10)
    if case == "few":
        return rows, labels % 2
    if case == "single":
        return rows[:6], np.arange(6)
    if case == "same":
        return rows[labels * 10], labels
    return rows, rng.permutation(labels % 5)


REASONS = {
    "few": "2 base classes are too few",
    "single": "each base class has one row",
    "same": "the rows of each base class are all the same",
    "random": "classes do not surely differ by more than their samples do",
}


@pytest.mark.parametrize("case", REASONS)
def test_priors_that_have_no_geometry_say_why(case):
    priors = Priors.from_features(FeatureSet(*rows_and_labels(case)))
    assert priors.geometry is None
    assert REASONS[case] in priors.reason


def test_priors_with_a_geometry_lack_nothing_and_means_alone_have_none(priors):
    assert priors.geometry is not None
    assert priors.reason == ""
    alone = Priors(priors.prototypes, counts=priors.counts)
    assert alone.geometry is None
    assert "without the rows behind them" in alone.reason


def test_merging_what_is_only_means_leaves_no_geometry(priors):
    alone = Priors(priors.prototypes, [f"other-{c}" for c in range(12)], priors.counts)
    for parts in ([priors, alone], [alone, priors]):
        assert Priors.merge(parts).geometry is None


def test_one_of_many_rows_is_enough_for_some_classes():
    rows, labels = rows_and_labels("random")
    rows = rows + 3 * np.eye(200)[labels] * 10
    keep = (np.arange(60) % 10 == 0) | (labels == 0)
    assert Priors.from_features(FeatureSet(rows[keep], labels[keep])).geometry is not None


def test_rows_of_zeros_among_the_base_rows_leave_directions_alone(base):
    rows = np.vstack([base.features, np.zeros((2, 24), np.float32)])
    found = Priors.from_features(FeatureSet(rows, np.append(base.labels, [0, 1])))
    expected = Priors.from_features(base)
    assert found.counts.tolist() == [31, 31] + [30] * 10
    np.testing.assert_allclose(found.moments.scatter, expected.moments.scatter, rtol=1e-6)
    np.testing.assert_allclose(found.geometry.prototypes, expected.geometry.prototypes, atol=1e-3)
    assert np.isfinite([found.geometry.tightness, found.geometry.spread]).all()


def test_with_very_many_features_there_is_no_geometry_and_no_crash():
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(4), 2)
    base = FeatureSet(rng.gamma(1.0, 1.0, (8, 8193)).astype(np.float32), labels)
    priors = Priors.from_features(base)
    assert priors.moments is None
    assert priors.geometry is None
    halves = [FeatureSet(base.features[i::2], labels[i::2]) for i in (0, 1)]
    assert Priors.merge(map(Priors.from_features, halves)).geometry is None
    with pytest.warns(UserWarning, match="the priors have no geometry"):
        classifier = P3DCClassifier(priors).fit(base.features, labels)
    np.testing.assert_array_equal(classifier.predict(base.features), labels)


@pytest.mark.parametrize("n_features", [5, 24, 200])
def test_what_is_saved_is_loaded_bit_by_bit(tmp_path, n_features):
    priors = Priors.from_features(make_features(1, 12, 30, n_features=n_features))
    priors.save(tmp_path / "priors.safetensors")
    found = Priors.load(tmp_path / "priors.safetensors")
    for name in ("axes", "gains", "lengths", "prototypes"):
        np.testing.assert_array_equal(getattr(found.geometry, name), getattr(priors.geometry, name))
    for name in ("rest", "tightness", "spread"):
        assert getattr(found.geometry, name) == getattr(priors.geometry, name)
    np.testing.assert_allclose(found.moments.scatter, priors.moments.scatter, rtol=1e-6)


def test_priors_loaded_from_files_can_still_be_merged(tmp_path, base, priors):
    loaded = []
    for i in (0, 1):
        part = FeatureSet(base.features[i::2], [base.class_names[label] for label in base.labels[i::2]])
        Priors.from_features(part).save(tmp_path / "part.safetensors")
        loaded.append(Priors.load(tmp_path / "part.safetensors"))
    merged = Priors.merge(loaded)
    order = [merged.class_names.index(name) for name in priors.class_names]
    np.testing.assert_allclose(merged.geometry.prototypes[order], priors.geometry.prototypes, atol=1e-4)
    assert merged.geometry.tightness == pytest.approx(priors.geometry.tightness, rel=1e-4)


def test_a_classifier_keeps_the_geometry_from_file_to_file(tmp_path, task, priors):
    support, labels, queries, _ = task
    one = P3DCClassifier(priors).fit(support, labels)
    one.save(tmp_path / "one.safetensors")
    two = P3DCClassifier.load(tmp_path / "one.safetensors")
    two.save(tmp_path / "two.safetensors")
    three = P3DCClassifier.load(tmp_path / "two.safetensors")
    assert three.priors.geometry is not None
    np.testing.assert_array_equal(three.priors.geometry.prototypes, priors.geometry.prototypes)
    np.testing.assert_array_equal(three.decision_function(queries), one.decision_function(queries))
    three.priors.save(tmp_path / "priors.safetensors")
    assert Priors.load(tmp_path / "priors.safetensors").geometry.tightness == priors.geometry.tightness


def test_the_geometry_cannot_be_changed(priors):
    for array in (priors.geometry.axes, priors.geometry.prototypes, priors.moments.scatter, priors.moments.lengths):
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 1
    with pytest.raises(AttributeError):
        priors.geometry.rest = 1.0


def test_the_geometry_goes_through_a_pickle(priors):
    found = pickle.loads(pickle.dumps(priors))
    np.testing.assert_array_equal(found.geometry.prototypes, priors.geometry.prototypes)
    np.testing.assert_array_equal(found.moments.scatter, priors.moments.scatter)


ARRAYS = ["prototypes", "counts", "lengths", "scatter", "axes", "gains"]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"lengths": None}, r"its geometry is damaged \('lengths'\)"),
        ({"axes": None}, r"its geometry is damaged \('axes'\)"),
        ({"gains": None}, r"its geometry is damaged \('gains'\)"),
        ({"lengths": np.ones(5)}, r"shape \(5,\) instead of \(12,\)"),
        ({"axes": np.ones((24, 23), np.float32)}, r"shape \(24, 23\) instead of \(24, 24\)"),
        ({"gains": np.ones(5)}, r"shape \(24, 24\) instead of \(5, 24\)"),
        ({"gains": np.ones((24, 1))}, "its geometry is damaged"),
        ({"scatter": np.ones((24, 5), np.float32)}, r"shape \(24, 5\) instead of \(24, 24\)"),
    ],
)
def test_damaged_arrays_of_the_geometry_are_refused(tmp_path, priors, change, sentence):
    path = tmp_path / "priors.safetensors"
    priors.save(path)
    arrays, facts = read_arrays(path, "priors", 2, required=ARRAYS, facts=["class_names", "geometry"])
    arrays = {name: array for name, array in (arrays | change).items() if array is not None}
    write_arrays(path, "priors", 2, arrays, facts)
    with pytest.raises(InputError, match=rf"priors\.safetensors: .*{sentence}.*Build the priors again"):
        Priors.load(path)


@pytest.mark.parametrize(
    "geometry", [5, [], "round", {}, {"rest": 1.0, "tightness": 0.5}, {"rest": "x", "tightness": 0.5, "spread": 0.1}]
)
def test_damaged_facts_of_the_geometry_are_refused(tmp_path, priors, geometry):
    path = tmp_path / "priors.safetensors"
    priors.save(path)
    arrays, facts = read_arrays(path, "priors", 2, required=ARRAYS, facts=["class_names", "geometry"])
    write_arrays(path, "priors", 2, arrays, facts | {"geometry": geometry})
    with pytest.raises(InputError, match=r"priors\.safetensors: its geometry is damaged.*Build the priors again"):
        Priors.load(path)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_rows_that_are_all_the_same_have_no_geometry_whatever_their_type(tmp_path, dtype):
    for seed in range(10):
        rows = np.random.default_rng(seed).gamma(0.6, 1.5, (6, 64)).astype(dtype)
        priors = Priors.from_features(FeatureSet(np.repeat(rows, 7, axis=0), np.repeat(np.arange(6), 7)))
        assert priors.reason == "the rows of each base class are all the same"
        priors.save(tmp_path / "priors.safetensors")
        assert Priors.load(tmp_path / "priors.safetensors").reason == priors.reason


@pytest.mark.parametrize("factor", [1e200, 1e-200])
def test_very_long_and_very_short_features_are_averaged_without_a_warning(base, factor):
    rows = base.features.astype(float)
    priors = Priors.from_features(FeatureSet(factor * rows, base.labels))
    np.testing.assert_allclose(priors.prototypes / factor, Priors.from_features(base).prototypes, rtol=1e-6)
    assert priors.geometry is not None or "all the same" not in priors.reason


def test_the_geometry_out_of_a_pickle_cannot_be_changed_either(priors):
    found = pickle.loads(pickle.dumps(priors))
    for array in (found.geometry.axes, found.geometry.prototypes, found.moments.scatter):
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 1


@pytest.mark.parametrize(
    ("arrays", "facts"),
    [
        ({"gains": np.full(24, np.nan)}, {}),
        ({"axes": np.full((24, 24), np.nan, np.float32)}, {}),
        ({"lengths": np.zeros(12)}, {}),
        ({"lengths": -np.ones(12)}, {}),
        ({}, {"rest": float("nan")}),
        ({}, {"tightness": 7.0}),
    ],
)
def test_geometries_that_make_no_sense_are_refused(tmp_path, priors, arrays, facts):
    path = tmp_path / "priors.safetensors"
    priors.save(path)
    kept, known = read_arrays(path, "priors", 2, required=ARRAYS, facts=["class_names", "geometry"])
    write_arrays(path, "priors", 2, kept | arrays, known | {"geometry": known["geometry"] | facts})
    with pytest.raises(InputError, match="its geometry is damaged"):
        Priors.load(path)


def test_very_many_features_are_named_as_the_reason():
    rows = np.random.default_rng(0).random((8, 8193)).astype(np.float32)
    assert "8193 features" in Priors.from_features(FeatureSet(rows, np.repeat(np.arange(4), 2))).reason.replace(",", "")


def test_a_loaded_classifier_knows_why_its_priors_have_no_geometry(tmp_path, task):
    rows, labels = rows_and_labels("few")
    priors = Priors.from_features(FeatureSet(rows[:, :24], labels))
    paper(priors, power=1).fit(*task[:2]).save(tmp_path / "model.safetensors")
    assert P3DCClassifier.load(tmp_path / "model.safetensors").priors.reason == priors.reason
