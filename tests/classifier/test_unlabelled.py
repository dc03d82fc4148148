"""The classifier with rows that have no label."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
from sklearn.base import clone

from p3dc import P3DCClassifier, Priors
from p3dc.classifier import fitted
from p3dc.errors import InputError
from tests.conftest import make_signed, paper


@pytest.fixture(scope="module")
def world():
    """Priors, and rows of twelve other classes of the same kind."""
    ways = 2 * np.linalg.qr(np.random.default_rng(0).normal(size=(64, 64)))[0][:24]
    make = {"n_features": 64, "home": 1.0, "directions": ways, "noise": 2.0}
    return Priors.from_features(make_signed(1, 60, 30, **make)), make_signed(3, 12, 60, **make)


def rows_of(novel, classes, first, last):
    rows = np.concatenate([np.flatnonzero(novel.labels == c)[first:last] for c in classes])
    return novel.features[rows], novel.labels[rows]


def test_unlabelled_rows_of_the_classes_make_better_labels(world):
    priors, novel = world
    before, inside, outside = [], [], []
    for first in range(8):
        classes = [(first + k) % 12 for k in range(5)]
        support, pile, queries = (rows_of(novel, classes, *part) for part in ((first, first + 1), (20, 40), (40, 60)))
        plain = P3DCClassifier(priors).fit(*support)
        found = P3DCClassifier(priors).fit(*support, unlabelled=pile[0])
        before.append((plain.score(*pile), plain.score(*queries)))
        inside.append(np.mean(found.transduction_ == pile[1]))
        outside.append(found.score(*queries))
        assert 0.5 < found.unlabelled_use_ <= 1
    assert np.mean(inside) > np.mean(before, axis=0)[0] + 0.05
    assert np.mean(outside) > np.mean(before, axis=0)[1] + 0.05


def test_rows_of_other_classes_are_proposed_as_groups(world):
    priors, novel = world
    support = rows_of(novel, range(4), 0, 5)
    (known, _), (other, labels) = rows_of(novel, range(4), 20, 30), rows_of(novel, range(4, 8), 20, 40)
    found = P3DCClassifier(priors).fit(*support, unlabelled=np.concatenate([known, other]))
    assert found.groups_
    for group in found.groups_:
        own = labels[group[group >= 40] - 40]
        assert (group >= 40).mean() > 0.8
        assert (own == np.bincount(own).argmax()).mean() > 0.7
    plain = P3DCClassifier(priors).fit(*support)
    fresh, others = rows_of(novel, range(4), 40, 60)[0], rows_of(novel, range(4, 8), 40, 60)[0]
    gap = [each.score_samples(fresh).mean() - each.score_samples(others).mean() for each in (plain, found)]
    assert gap[1] > gap[0]


@pytest.mark.parametrize("names", [np.arange(12), np.array([f"class {n:02}" for n in range(12)])])
def test_rows_of_a_group_are_unknown_where_rows_may_be(world, names):
    priors, novel = world
    (support, labels), (pile, _) = rows_of(novel, range(4), 0, 5), rows_of(novel, range(8), 20, 40)
    found = P3DCClassifier(priors, reject=0.01).fit(support, names[labels], unlabelled=pile)
    own = np.concatenate(found.groups_)
    unknown = "unknown" if names.dtype.kind == "U" else -1
    assert (found.transduction_[own] == unknown).all()
    below = found._fitted.transduction.known < found.unknown_below_
    assert not below[own].all(), "the threshold alone would not do"
    others = np.setdiff1d(np.arange(len(pile)), own)
    np.testing.assert_array_equal(found.transduction_[others] == unknown, below[others])
    kept = P3DCClassifier(priors).fit(support, names[labels], unlabelled=pile)
    assert set(kept.transduction_) <= set(names[:4])
    assert [group.tolist() for group in kept.groups_] == [group.tolist() for group in found.groups_]


def test_rows_far_from_the_centre_of_their_group_are_left_out(world):
    priors, novel = world
    (support, labels), (pile, _) = rows_of(novel, range(4), 0, 5), rows_of(novel, range(8), 20, 40)
    model = P3DCClassifier(priors).fit(support, labels, unlabelled=pile)._fitted
    refinement = model.calibrated.refinement
    (first, *_) = np.flatnonzero(refinement.proposed)
    nearness = model._pile(np.arange(len(pile))) @ refinement.groups[first]
    far = nearness.argmin()
    members = refinement.members.copy()
    members[far, first] = True
    vars(model)["calibrated"] = replace(model.calibrated, refinement=replace(refinement, members=members))
    sizes = [len(group) for group in model.groups]
    assert far not in np.concatenate(model.groups)
    assert sum(sizes) == refinement.members[:, refinement.proposed].sum()


@pytest.mark.parametrize(("n_classes", "balance"), [(4, None), (8, "equal")])
def test_there_are_no_groups_where_all_rows_are_of_the_classes_or_promised_to_be(world, n_classes, balance):
    priors, novel = world
    (support, labels), (pile, _) = rows_of(novel, range(4), 0, 5), rows_of(novel, range(n_classes), 20, 40)
    assert P3DCClassifier(priors, pile_balance=balance).fit(support, labels, unlabelled=pile).groups_ == []
    assert P3DCClassifier(priors).fit(support, labels, unlabelled=rows_of(novel, range(8), 20, 40)[0]).groups_


def test_probabilities_of_the_unlabelled_rows_sum_to_one_and_agree_with_their_labels(world):
    priors, novel = world
    found = P3DCClassifier(priors).fit(*rows_of(novel, range(3), 0, 2), unlabelled=rows_of(novel, range(3), 9, 29)[0])
    np.testing.assert_allclose(found.transduction_proba_.sum(axis=1), 1)
    np.testing.assert_array_equal(found.classes_[found.transduction_proba_.argmax(axis=1)], found.transduction_)


def test_it_clones_pickles_goes_through_a_file_and_learns_more(world, tmp_path):
    priors, novel = world
    support, pile = rows_of(novel, range(4), 0, 1), rows_of(novel, range(4), 20, 30)[0]
    queries, labels = rows_of(novel, range(4), 40, 60)
    found = P3DCClassifier(priors, reject=0.3, pile_balance="equal").fit(*support, unlabelled=pile)
    found.save(tmp_path / "model.safetensors")
    again = clone(found).fit(*support, unlabelled=pile)
    for other in (again, pickle.loads(pickle.dumps(found)), P3DCClassifier.load(tmp_path / "model.safetensors")):
        np.testing.assert_array_equal(other.predict_proba(queries), found.predict_proba(queries))
        np.testing.assert_array_equal(other.transduction_, found.transduction_)
        assert other.pile_balance == "equal"
    more = found.partial_fit(*rows_of(novel, range(4), 1, 2))
    assert more.unlabelled_use_ > 0
    assert more.score(queries, labels) > 0.3


def test_of_very_many_rows_an_even_sample_refines_the_classes(world, monkeypatch):
    priors, novel = world
    support, pile = rows_of(novel, range(3), 0, 1), rows_of(novel, range(3), 20, 60)[0]
    monkeypatch.setattr(fitted, "MOST_UNLABELLED", 30)
    found = P3DCClassifier(priors).fit(*support, unlabelled=pile)
    assert found.transduction_.shape == (120,)
    sampled = P3DCClassifier(priors).fit(*support, unlabelled=pile[fitted.evenly_spaced(120, 30)])
    # Rows are whitened in float32, and how a product is rounded depends on how many rows it has.
    np.testing.assert_allclose(found.decision_function(pile), sampled.decision_function(pile), atol=1e-6)


@pytest.mark.parametrize("make", [lambda _: P3DCClassifier(), paper])
def test_where_rows_cannot_be_compared_they_are_not_used_and_a_warning_says_so(world, make):
    _, novel = world
    support, pile = rows_of(novel, range(3), 0, 3), rows_of(novel, range(3), 20, 30)[0]
    with pytest.warns(UserWarning, match="unlabelled rows are not used: they need the whitened space"):
        found = make(None).fit(*support, unlabelled=pile)
    assert found.unlabelled_use_ == 0
    assert found.groups_ == []
    np.testing.assert_array_equal(found.transduction_, found.predict(pile))


@pytest.mark.parametrize(
    ("unlabelled", "sentence"),
    [
        (np.ones((3, 5)), "X has 5 features, but P3DCClassifier is expecting 64"),
        (np.full((2, 64), np.nan), "unlabelled row 0 has NaN"),
        (np.zeros((2, 64)), "unlabelled row 0 is all zeros"),
    ],
)
def test_rows_that_make_no_sense_are_refused(world, unlabelled, sentence):
    priors, novel = world
    with pytest.raises(InputError, match=sentence):
        P3DCClassifier(priors).fit(*rows_of(novel, range(3), 0, 2), unlabelled=unlabelled)
    with pytest.raises(InputError, match="pile_balance is 'even'. It must be 'equal' or None"):
        P3DCClassifier(priors, pile_balance="even").fit(*rows_of(novel, range(3), 0, 2))


def test_rows_are_compared_with_every_class_without_one_of_its_rows(world):
    priors, novel = world
    support, pile = rows_of(novel, range(4), 0, 2), rows_of(novel, range(4), 20, 30)[0]
    model = P3DCClassifier(priors).fit(*support, unlabelled=pile)._fitted
    calibrated, refinement = model.calibrated, model.calibrated.refinement
    rows, weights = calibrated.transform(pile), refinement.weights
    total = weights.sum(axis=0)
    one_row = (weights**2).sum(axis=0) / total
    for i in (0, 7, 39):
        of_others = np.maximum(one_row - weights[i], 0) / total
        pull = (1 - of_others)[:, None] * refinement.pull - np.outer(weights[i], rows[i])
        left_out = replace(refinement, pull=pull, coverage=1.0)
        expected = replace(calibrated, refinement=left_out).scores_of(rows[[i]]).cosines
        found = calibrated.scores_of(rows[[i]], refinement.weights[[i]]).cosines
        np.testing.assert_allclose(found, expected, atol=1e-12)


@pytest.mark.parametrize("counts", [(1, 1, 1), (3, 3, 3), (4, 1, 2)])
def test_refined_scores_are_cosines_to_the_prototypes_of_each_query(world, counts):
    priors, novel = world
    parts = [rows_of(novel, [c], 0, n) for c, n in enumerate(counts)]
    support, labels = (np.concatenate(each) for each in zip(*parts, strict=True))
    found = P3DCClassifier(priors).fit(support, labels, unlabelled=rows_of(novel, range(3), 20, 35)[0])
    queries = rows_of(novel, range(3), 40, 44)[0]
    calibrated = found._fitted.calibrated
    scores = calibrated.cosines(queries) - calibrated.refinement.query_offsets
    for query, row in zip(calibrated.transform(queries), scores, strict=True):
        for c in range(3):
            samples = calibrated.samples[labels == c]
            attention = np.exp(samples @ query)
            average = attention @ samples
            moved = calibrated.refinement.coverage * calibrated.refinement.pull[c]
            prototype = average / np.linalg.norm(average) + moved
            assert row[c] == pytest.approx(query @ prototype / np.linalg.norm(prototype))


def test_offsets_of_other_queries_change_their_scores_and_not_how_known_they_are(world):
    priors, novel = world
    support, pile = rows_of(novel, range(4), 0, 1), rows_of(novel, range(4), 20, 40)[0]
    calibrated = P3DCClassifier(priors).fit(*support, unlabelled=pile)._fitted.calibrated
    queries, offsets = rows_of(novel, range(8), 40, 44)[0], np.array([0.0, 0.1, 0.2, -0.1])
    plain, moved = (
        replace(calibrated, refinement=replace(calibrated.refinement, query_offsets=each)).scores(queries)
        for each in (np.zeros(4), offsets)
    )
    np.testing.assert_allclose(moved.cosines, plain.cosines + offsets)
    np.testing.assert_array_equal(moved.known, plain.known)


def test_with_the_promise_of_equal_classes_labels_are_balanced(world):
    priors, novel = world
    support = rows_of(novel, range(5), 0, 1)
    pile = np.concatenate([rows_of(novel, [0], 20, 50)[0], rows_of(novel, range(1, 5), 20, 30)[0]])
    free, promised = (
        P3DCClassifier(priors, pile_balance=each).fit(*support, unlabelled=pile) for each in (None, "equal")
    )
    np.testing.assert_allclose(promised.transduction_proba_.sum(axis=0), 14, rtol=0.2)
    assert free.transduction_proba_.sum(axis=0).max() > 20
