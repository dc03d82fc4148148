"""The classifier in the whitened space: chosen weights, relevance, unknowns and the temperature."""

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from p3dc import FeatureSet, P3DCClassifier, Priors, method
from p3dc.adaptive.settings import Settings
from p3dc.classifier.calibrated_support import calibrate_support
from p3dc.confidence.open_set import unknown_threshold
from p3dc.errors import InputError
from tests import reference
from tests.conftest import PAPER, make_signed, paper


@pytest.fixture
def fitted(task, priors):
    return P3DCClassifier(priors).fit(*task[:2])


@pytest.fixture(scope="module")
def worlds():
    """Novel classes, priors that lie where they lie, and priors that lie elsewhere."""
    ways = 2 * np.linalg.qr(np.random.default_rng(0).normal(size=(48, 48)))[0]
    relevant, foreign = (
        Priors.from_features(make_signed(seed, 60, 30, n_features=48, home=1.0, directions=directions))
        for seed, directions in ((1, ways[:8]), (2, ways[8:16]))
    )
    return make_signed(3, 40, 40, n_features=48, home=1.0, directions=ways[:8]), relevant, foreign


def five_ways(features, first, n_shot):
    rows = np.concatenate([np.flatnonzero(features.labels == c)[:n_shot] for c in range(first, first + 5)])
    return features.features[rows], features.labels[rows]


def plain_auto(support, labels, queries, geometry, beta, attention, n_nearest=5):
    """Cosines by a plain restatement, with α = 0 and a given β."""
    classes = np.unique(labels)
    whitened, asked = (geometry.whiten(reference.normalize(rows)) for rows in (support, queries))
    home = geometry.prototypes.mean(axis=0)
    means = np.array([whitened[labels == c].mean(axis=0) for c in classes])
    away = means.mean(axis=0) - home
    doubt = np.sum((means - means.mean(axis=0)) ** 2) / (len(classes) * (len(classes) - 1))
    centre = home + max(0.0, 1 - doubt / np.sum(away**2)) * away
    x, q, p = (reference.normalize(rows - centre) for rows in (whitened, asked, geometry.prototypes))
    return reference.scores(
        x, labels, q, p, alpha=0, beta=beta, n_nearest=n_nearest, power=1, scale=10, attention=attention
    )


@pytest.mark.parametrize("attention", method.ATTENTIONS)
def test_cosines_are_those_of_the_plain_restatement(task, priors, attention):
    support, labels, queries, _ = task
    classifier = P3DCClassifier(priors, attention=attention).fit(support, labels)
    expected = plain_auto(support, labels, queries, priors.geometry, classifier.beta_, attention)
    np.testing.assert_allclose(classifier.decision_function(queries), expected, atol=1e-12)
    assert (classifier.alpha_, classifier.scale_) == (0.0, 10.0)
    assert classifier.relevance_ == P3DCClassifier(priors).fit(support, labels).relevance_


def test_it_is_mostly_right(task, fitted):
    assert fitted.score(*task[2:]) > 0.8


@pytest.mark.parametrize("factor", [0.05, 20.0, 2.0**-1000, 1e-200, 1e160, 2.0**1000])
def test_the_length_of_the_features_does_not_matter(task, base, fitted, factor):
    support, labels, queries, _ = task
    longer = Priors.from_features(FeatureSet(factor * base.features.astype(float), base.labels))
    same = Priors.from_features(FeatureSet(base.features.astype(float), base.labels))
    expected = P3DCClassifier(same).fit(support, labels).decision_function(queries)
    for priors, base_factor in ((longer, "all"), (same, "support and queries alone")):
        classifier = P3DCClassifier(priors).fit(factor * support, labels)
        found = classifier.decision_function(factor * queries)
        np.testing.assert_allclose(found, expected, atol=1e-6, err_msg=base_factor)
        np.testing.assert_array_equal(classifier.predict(factor * queries), fitted.predict(queries))


def test_each_row_may_have_its_own_length(task, priors, fitted, rng):
    support, labels, queries, _ = task
    one, two = (10.0 ** rng.uniform(-3, 3, (len(rows), 1)) for rows in (support, queries))
    found = P3DCClassifier(priors, reject=0.5).fit(one * support, labels)
    expected = P3DCClassifier(priors, reject=0.5).fit(support, labels)
    np.testing.assert_allclose(found.decision_function(two * queries), expected.decision_function(queries), atol=1e-9)
    np.testing.assert_array_equal(found.predict(two * queries), expected.predict(queries))


def test_negative_features_are_welcome(worlds):
    novel, relevant, _ = worlds
    support, labels = five_ways(novel, 0, 3)
    queries = np.isin(novel.labels, range(5))
    assert support.min() < 0
    classifier = P3DCClassifier(relevant).fit(support, labels)
    assert classifier.score(novel.features[queries], novel.labels[queries]) > 0.8
    assert not classifier.__sklearn_tags__().input_tags.positive_only


def test_float32_agrees_with_float64(task, priors, fitted):
    support, labels, queries, _ = task
    single = P3DCClassifier(priors).fit(support.astype(np.float32), labels)
    found = single.decision_function(queries.astype(np.float32))
    np.testing.assert_allclose(found, fitted.decision_function(queries), atol=1e-6)
    assert single.calibrated_.dtype == np.float64


@pytest.mark.parametrize("cut", [1, 3, 6])
def test_partial_fit_gives_the_result_of_one_fit(task, priors, cut):
    support, labels, queries, _ = task
    whole = P3DCClassifier(priors, reject=0.4).fit(support, labels)
    parts = P3DCClassifier(priors, reject=0.4)
    parts.partial_fit(support[:cut], labels[:cut]).partial_fit(support[cut:], labels[cut:])
    np.testing.assert_array_equal(parts.decision_function(queries), whole.decision_function(queries))
    assert parts.unknown_below_ == whole.unknown_below_
    assert parts.beta_ == whole.beta_


def test_partial_fit_may_begin_with_one_class(task, priors):
    support, labels, queries, _ = task
    order = np.argsort(labels, kind="stable")
    parts = P3DCClassifier(priors, reject=0.4)
    for label in np.unique(labels):
        parts.partial_fit(support[labels == label], labels[labels == label])
        if len(parts.classes_) < 2:
            with pytest.raises(InputError, match="there is one class"):
                parts.predict(queries)
    whole = P3DCClassifier(priors, reject=0.4).fit(support[order], labels[order])
    np.testing.assert_array_equal(parts.predict(queries), whole.predict(queries))
    np.testing.assert_array_equal(parts.decision_function(queries), whole.decision_function(queries))


def test_samples_may_come_in_any_order(task, priors, fitted, rng):
    support, labels, queries, _ = task
    order = rng.permutation(len(support))
    found = P3DCClassifier(priors).fit(support[order], labels[order])
    np.testing.assert_allclose(found.decision_function(queries), fitted.decision_function(queries), atol=1e-12)


def test_it_clones_pickles_and_goes_through_a_file(tmp_path, task, priors):
    support, labels, queries, _ = task
    classifier = P3DCClassifier(priors, reject=0.7, n_nearest=3).fit(support, labels)
    copied = clone(classifier)
    assert copied.get_params() == classifier.get_params()
    assert (copied.alpha, copied.temperature, copied.reject) == (None, None, 0.7)
    classifier.save(tmp_path / "model.safetensors")
    for other in (
        copied.fit(support, labels),
        pickle.loads(pickle.dumps(classifier)),
        P3DCClassifier.load(tmp_path / "model.safetensors"),
    ):
        for name in ("predict", "decision_function", "predict_proba", "score_samples"):
            np.testing.assert_array_equal(getattr(other, name)(queries), getattr(classifier, name)(queries))
        for name in ("alpha_", "beta_", "scale_", "relevance_", "unknown_below_"):
            assert getattr(other, name) == getattr(classifier, name)
        assert other.explain().equals(classifier.explain())


def without_geometry():
    rng = np.random.default_rng(0)
    rows = rng.gamma(1.0, 1.0, (6, 24))
    return {
        "they were given as means": rows,
        "2 base classes are too few": Priors.from_features(FeatureSet(rows, [0, 1] * 3)),
        "each base class has one row": Priors.from_features(FeatureSet(rows, range(6))),
    }


@pytest.mark.parametrize("attention", method.ATTENTIONS)
@pytest.mark.parametrize("reason", without_geometry())
def test_priors_without_geometry_are_not_used_and_a_warning_says_why(task, reason, attention):
    support, labels, queries, _ = task
    classifier = P3DCClassifier(without_geometry()[reason], attention=attention)
    with pytest.warns(UserWarning, match=f"the priors have no geometry, because {reason}.*only normalised"):
        classifier.fit(support, labels)
    nearest = paper(attention=attention).fit(support, labels)
    expected = nearest.decision_function(reference.normalize(queries))
    np.testing.assert_allclose(classifier.decision_function(queries), expected, atol=1e-12)
    np.testing.assert_array_equal(classifier.predict(queries), nearest.predict(reference.normalize(queries)))
    assert (classifier.alpha_, classifier.beta_, classifier.relevance_) == (0.0, 0.0, None)
    with pytest.raises(InputError, match="no priors that pull the samples"):
        classifier.explain()


def test_without_priors_there_is_nothing_to_warn_of(task):
    support, labels, queries, _ = task
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        classifier = P3DCClassifier(attention="mean").fit(support, labels)
    means = np.array([reference.normalize(support[labels == c]).mean(axis=0) for c in classifier.classes_])
    expected = reference.normalize(queries) @ reference.normalize(means).T
    np.testing.assert_allclose(classifier.decision_function(queries), expected, atol=1e-12)


def test_weights_may_be_given_in_the_whitened_space(task, priors, fitted):
    support, labels, queries, _ = task
    classifier = P3DCClassifier(priors, alpha=0.0, beta=fitted.beta_).fit(support, labels)
    np.testing.assert_array_equal(classifier.decision_function(queries), fitted.decision_function(queries))
    classifier = P3DCClassifier(priors, alpha=0.0, beta=0.3, n_nearest=2).fit(support, labels)
    assert (classifier.alpha_, classifier.beta_, classifier.scale_) == (0.0, 0.3, 10.0)
    expected = plain_auto(support, labels, queries, priors.geometry, 0.3, "raw", n_nearest=2)
    np.testing.assert_allclose(classifier.decision_function(queries), expected, atol=1e-12)
    with pytest.raises(InputError, match="outside the triangle"):
        P3DCClassifier(priors, alpha=0.8, beta=0.8).fit(support, labels)


def test_given_weights_are_reported(task, priors):
    classifier = paper(priors, alpha=0.2, beta=0.3, scale=0.4).fit(*task[:2])
    assert (classifier.alpha_, classifier.beta_, classifier.scale_, classifier.relevance_) == (0.2, 0.3, 0.4, None)


def test_the_power_is_not_used(task, priors, fitted):
    support, labels, queries, _ = task
    found = P3DCClassifier(priors, power=0).fit(support, labels).decision_function(queries)
    np.testing.assert_array_equal(found, fitted.decision_function(queries))


def test_explain_lists_cosines_and_the_weights_that_make_the_endpoints(task, priors):
    support, labels, *_ = task
    classifier = P3DCClassifier(priors, alpha=0.0, beta=1.0, n_nearest=3).fit(support, labels)
    geometry, centre = priors.geometry, classifier._fitted.calibrated.space.centre
    x = reference.normalize(geometry.whiten(reference.normalize(support)) - centre)
    prototypes = reference.normalize(geometry.prototypes - centre)
    rows = classifier.explain().to_pylist()
    for row in rows:
        prior = priors.class_names.index(row["prior"])
        assert row["similarity"] == pytest.approx(x[row["support"]] @ prototypes[prior])
    for i in range(len(support)):
        own = [row for row in rows if row["support"] == i]
        for level in ("sample", "task"):
            assert sum(row["weight"] for row in own if row["level"] == level) == pytest.approx(1)
        assert sum(row["level"] == "sample" for row in own) == 3
        pull = sum(
            row["weight"] * prototypes[priors.class_names.index(row["prior"])] for row in own if row["level"] == "task"
        )
        np.testing.assert_allclose(classifier.calibrated_[i], reference.normalize(x[i] + pull), atol=1e-12)


@pytest.mark.parametrize(
    ("labels", "unknown"),
    [(["a", "b", "c"], "unknown"), ([3, 1, 7], -1), (np.array([3, 1, 7], dtype=np.int8), -1)],
)
def test_unknowns_get_a_label_of_their_own(task, priors, novel, labels, unknown):
    support, names, _, _ = task
    queries = novel.features.astype(float)
    own = np.array(labels)[np.searchsorted(["auk", "robin", "wren"], names)]
    sure = P3DCClassifier(priors).fit(support, own)
    classifier = P3DCClassifier(priors, reject=0.9).fit(support, own)
    found = classifier.predict(queries)
    strange = sure.score_samples(queries) < classifier.unknown_below_
    assert 0 < strange.sum() < len(queries)
    assert set(found[strange].tolist()) == {unknown}
    np.testing.assert_array_equal(found[~strange], sure.predict(queries)[~strange])
    np.testing.assert_array_equal(classifier.predict_proba(queries), sure.predict_proba(queries))


@pytest.mark.parametrize("with_priors", [True, False])
@pytest.mark.parametrize("parameters", [{}, PAPER])
def test_the_larger_the_share_the_more_are_turned_away(task, priors, parameters, with_priors):
    support, labels, queries, _ = task
    known = priors if with_priors else None
    before, thresholds = np.zeros(len(queries), dtype=bool), []
    for share in (0.05, 0.5, 0.9, 0.99, 0.9999):
        classifier = P3DCClassifier(known, **parameters, reject=share).fit(support, labels)
        rejected = classifier.predict(queries) == "unknown"
        assert not (before & ~rejected).any()
        before = rejected
        thresholds.append(classifier.unknown_below_)
    assert (np.diff(thresholds) > 0).all()
    assert before.any()


def test_about_the_share_that_is_asked_is_turned_away(worlds):
    novel, relevant, _ = worlds
    turned, kept = [], []
    for first in range(0, 40, 5):
        classifier = P3DCClassifier(relevant, reject=0.8).fit(*five_ways(novel, first, 5))
        found = classifier.predict(novel.features)
        known = np.isin(novel.labels, classifier.classes_)
        turned.append(np.mean(found[~known] == -1))
        kept.append(np.mean(found[known] != -1))
    assert np.mean(turned) == pytest.approx(0.8, abs=0.12)
    assert np.mean(kept) > 0.8


def test_without_reject_nothing_is_turned_away(fitted, task):
    assert not hasattr(fitted, "unknown_below_")
    assert "unknown" not in fitted.predict(task[2])


@pytest.mark.parametrize("share", [0, 1, -0.1, 1.5, "auto", float("nan"), [0.5]])
def test_shares_that_make_no_sense_are_refused(task, priors, share):
    with pytest.raises(InputError, match="It must be a number between 0 and 1, or None"):
        P3DCClassifier(priors, reject=share).fit(*task[:2])


@pytest.mark.parametrize(
    ("labels", "sentence"),
    [
        (["a", "unknown", "b"], "there is a class 'unknown', which is what reject calls others"),
        ([0, -1, 1], "there is a class -1, which is what reject calls others"),
        ([0.0, 2.0, 1.0], "labels are of type float64. To reject, give text or whole numbers"),
        ([True, False, True], "labels are of type bool"),
    ],
)
def test_labels_that_leave_no_room_for_unknowns_are_refused(task, priors, labels, sentence):
    with pytest.raises(InputError, match=sentence):
        P3DCClassifier(priors, reject=0.5).fit(task[0][:3], labels)
    P3DCClassifier(priors).fit(task[0][:3], labels)


def test_reject_set_after_fit_waits_for_the_next(task, priors):
    support, labels, queries, _ = task
    classifier = P3DCClassifier(priors, reject=0.999).fit(support, labels)
    before = classifier.predict(queries)
    np.testing.assert_array_equal(classifier.set_params(reject=None).predict(queries), before)


@pytest.mark.parametrize("parameters", [{}, PAPER])
def test_score_samples_gives_the_largest_cosine(task, priors, parameters):
    support, labels, queries, _ = task
    classifier = P3DCClassifier(priors, **parameters, reject=0.5).fit(support, labels)
    found = classifier.score_samples(queries)
    np.testing.assert_array_equal(found, classifier.decision_function(queries).max(axis=1))
    assert found.max() <= 1 + 1e-12


def test_the_temperature_follows_from_the_shots(task, priors, fitted):
    support, labels, queries, _ = task
    shots = 3 / (1 / 1 + 1 / 4 + 1 / 2)
    assert fitted.temperature_for(shots) == pytest.approx(0.05 + 0.0225 / shots)
    expected = reference.softmax(fitted.decision_function(queries) / (0.05 + 0.0225 / shots))
    np.testing.assert_allclose(fitted.predict_proba(queries), expected, atol=1e-12)
    plain = paper(priors).fit(support, labels)
    assert plain.temperature_for(1) == plain.temperature_for(9) == 0.03
    expected = reference.softmax(plain.decision_function(queries) / 0.03)
    np.testing.assert_allclose(plain.predict_proba(queries), expected, atol=1e-12)
    assert P3DCClassifier(temperature=0.2).temperature_for(5) == 0.2


@pytest.mark.parametrize("temperature", [0, -1, "hot", float("nan")])
def test_temperatures_that_make_no_sense_are_refused(temperature):
    with pytest.raises(InputError, match="It must be a number more than 0, or None"):
        P3DCClassifier(temperature=temperature).temperature_for(1)


def test_priors_that_fit_the_task_pull_and_others_do_not(worlds):
    novel, relevant, foreign = worlds
    for n_shot, most in ((1, 0.35), (5, 0.1)):
        fits = [
            [P3DCClassifier(priors).fit(*five_ways(novel, first, n_shot)) for first in range(0, 40, 5)]
            for priors in (relevant, foreign)
        ]
        near, far = ([classifier.beta_ for classifier in some] for some in fits)
        assert max(far) < most
        assert np.mean(far) < most / 2
        assert min(near) > max(far)
        assert min(c.relevance_ for c in fits[0]) > max(c.relevance_ for c in fits[1])
        if n_shot == 1:
            assert min(near) > 0.8


def test_the_more_shots_the_less_is_pulled(worlds):
    novel, relevant, _ = worlds
    found = [
        np.mean([P3DCClassifier(relevant).fit(*five_ways(novel, f, n)).beta_ for f in range(0, 40, 5)])
        for n in (1, 2, 5, 20)
    ]
    assert (np.diff(found) < 0).all()
    assert found[-1] < 0.4


def test_foreign_priors_do_no_harm(worlds):
    novel, relevant, foreign = worlds
    right = {"relevant": [], "foreign": [], "none": []}
    for first in range(0, 40, 5):
        queries = np.isin(novel.labels, range(first, first + 5))
        for name, priors in (("relevant", relevant), ("foreign", foreign), ("none", None)):
            classifier = P3DCClassifier(priors).fit(*five_ways(novel, first, 1))
            right[name].append(classifier.score(novel.features[queries], novel.labels[queries]))
    means = {name: np.mean(scores) for name, scores in right.items()}
    assert means["relevant"] > means["none"] + 0.02
    assert means["foreign"] > means["none"] - 0.02


@pytest.mark.parametrize("dtype", [np.uint8, np.uint64])
def test_unknowns_are_minus_one_where_labels_are_unsigned(worlds, dtype):
    novel, relevant, _ = worlds
    support, labels = five_ways(novel, 0, 3)
    classifier = P3DCClassifier(relevant, reject=0.9).fit(support, labels.astype(dtype))
    assert set(classifier.predict(novel.features).tolist()) == {-1, 0, 1, 2, 3, 4}


def test_labels_of_pandas_are_text_too(task, priors):
    support, labels, queries, _ = task
    expected = P3DCClassifier(priors, reject=0.9).fit(support, labels).predict(queries)
    found = P3DCClassifier(priors, reject=0.9).fit(support, pd.Series(labels, dtype=object)).predict(queries)
    assert found.tolist() == expected.tolist()


@pytest.mark.parametrize("how", ["fit", "partial_fit"])
def test_the_warning_points_at_whoever_calls(task, how):
    with pytest.warns(UserWarning, match="no geometry") as caught:
        getattr(P3DCClassifier(np.ones((3, 24))), how)(*task[:2])
    assert caught[0].filename == __file__


@pytest.mark.parametrize(
    "changed", [{"beta": 0.9, "scale": 1.0}, {"temperature": 5.0}, {"attention": "mean"}, {"space": "plain"}]
)
def test_what_is_set_after_fit_waits_for_the_next(task, fitted, changed):
    before = [getattr(fitted, name)(task[2]) for name in ("predict_proba", "decision_function")]
    fitted.set_params(**changed)
    for name, expected in zip(("predict_proba", "decision_function"), before, strict=True):
        np.testing.assert_array_equal(getattr(fitted, name)(task[2]), expected)


def test_a_share_next_to_one_turns_all_away(task, priors):
    classifier = P3DCClassifier(priors, reject=1 - 2**-53).fit(*task[:2])
    assert set(classifier.predict(task[2])) == {"unknown"}


def test_each_class_in_turn_is_unknown_to_the_others(task, priors):
    support, labels = task[0], np.unique(task[1], return_inverse=True)[1]
    seen = []
    for left_out in range(3):
        others = labels != left_out
        rest = np.unique(labels[others], return_inverse=True)[1]
        seen.append(calibrate_support(support[others], rest, priors, Settings()).cosines(support[~others]).ravel())
    expected = unknown_threshold(np.concatenate(seen), 3, 0.7, priors.geometry.spread)
    classifier = P3DCClassifier(priors, reject=0.7).fit(support, labels)
    assert classifier.unknown_below_ == pytest.approx(expected)


def test_without_a_geometry_the_temperature_is_that_of_plain_features(task, priors):
    support, labels, queries, _ = task
    plain = P3DCClassifier().fit(support, labels)
    np.testing.assert_allclose(
        plain.predict_proba(queries), method.masked_softmax(plain.decision_function(queries) / 0.03, None)
    )
    assert plain.temperature_for(1) == 0.03
    assert P3DCClassifier(priors).temperature_for(1) == pytest.approx(0.0725)


@pytest.mark.parametrize("space", ["whitened", "plain"])
def test_samples_move_to_another_point_in_either_space(task, priors, space):
    support, labels = task[0], np.unique(task[1], return_inverse=True)[1]
    one, two = (calibrate_support(support, labels, priors, Settings(*point, space)) for point in ((0, 0.5), (0.3, 0.2)))
    moved = one.at(0.3, 0.2)
    np.testing.assert_allclose(moved.samples, two.samples, atol=1e-14)
    assert (moved.alpha, moved.beta) == (0.3, 0.2)


@pytest.mark.parametrize("space", ["whitened", "plain"])
def test_where_nothing_pulls_there_is_no_other_point(task, space):
    support, labels = task[0], np.unique(task[1], return_inverse=True)[1]
    calibrated = calibrate_support(support, labels, None, Settings(0.4, 0.4, space))
    assert (calibrated.alpha, calibrated.beta) == (0.0, 0.0)
    assert calibrated.at(0.3, 0.2) is calibrated
