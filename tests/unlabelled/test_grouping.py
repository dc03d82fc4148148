import numpy as np
import pytest

from p3dc.adaptive.space import shrunken_mean, task_centre
from p3dc.unlabelled.evidence import bayes_factor, evidence
from p3dc.unlabelled.grouping import agglomerate, group_rows, inner_products, pile_centre
from tests.reference import normalize


def make_rows(rng, means, labels, cosine=0.7):
    noise = normalize(rng.normal(size=(len(labels), means.shape[1])))
    return normalize(cosine * means[labels] + np.sqrt(1 - cosine**2) * noise)


def plain_agglomerate(rows, sizes, n_way):
    """Join the best pair of sets again and again, computing every Bayes factor anew."""
    sets = [[i] for i in range(len(rows))]
    while True:
        best, pair = 0.0, None
        for a in range(len(sets)):
            for b in range(a + 1, len(sets)):
                if min(sets[a]) < n_way and min(sets[b]) < n_way:
                    continue
                one, two = rows[sets[a]].sum(axis=0), rows[sets[b]].sum(axis=0)
                n, m = sizes[sets[a]].sum(), sizes[sets[b]].sum()
                factor = bayes_factor(n, one @ one, m, two @ two, one @ two)
                if factor > best + 1e-12:
                    best, pair = factor, (a, b)
        if pair is None:
            return {frozenset(each) for each in sets}
        sets[pair[0]] += sets.pop(pair[1])


@pytest.mark.parametrize("seed", range(5))
def test_sets_are_joined_as_a_plain_loop_joins_them(seed):
    rng = np.random.default_rng(seed)
    means = normalize(rng.normal(size=(4, 20)))
    rows = make_rows(rng, means, rng.integers(0, 4, 14))
    rows[:2] = 1.6 * means[:2]
    sizes = np.array([2.0, 2.0] + [1.0] * 12)
    found = agglomerate(rows @ rows.T, sizes, 2)
    expected = plain_agglomerate(rows, sizes, 2)
    assert {frozenset(np.flatnonzero(found == root).tolist()) for root in np.unique(found)} == expected


def test_rows_join_their_class_or_a_group_of_their_own(rng):
    means = np.eye(6, 40)
    labels = np.repeat(np.arange(4), 12)
    rows = make_rows(rng, means, labels, cosine=0.8)
    groups = group_rows(inner_products(means[:2], rows, 2.0), 2, 2.0)
    assert (groups[:12] == 0).all()
    assert (groups[12:24] == 1).all()
    for own in (groups[24:36], groups[36:]):
        assert len(np.unique(own)) == 1
        assert own[0] >= 2


def test_no_join_lowers_the_evidence(rng):
    rows = make_rows(rng, normalize(rng.normal(size=(5, 30))), rng.integers(0, 5, 40))
    found = agglomerate(rows @ rows.T, np.ones(40), 0)
    joined = sum(evidence((found == g).sum(), np.sum(rows[found == g].sum(axis=0) ** 2)) for g in np.unique(found))
    assert joined >= 40 * evidence(1, 1.0)


def test_without_unlabelled_rows_the_centre_is_that_of_the_task(rng):
    support, labels, home = rng.normal(size=(6, 5)) + 2, np.array([0, 0, 1, 1, 2, 2]), rng.normal(size=5)
    means = support.reshape(3, 2, 5).mean(axis=1)
    found = pile_centre(support, labels, np.empty((0, 5)), np.empty(0, dtype=int), home)
    np.testing.assert_allclose(found, task_centre(means, home))


def test_a_large_group_moves_the_centre_more_than_a_single_row(rng):
    support, labels, home = rng.normal(size=(2, 5)) + 9, np.array([0, 1]), np.zeros(5)
    far = np.full(5, 20.0)
    single = pile_centre(support, labels, far[None], np.array([2]), home)
    many = pile_centre(support, labels, np.repeat(far[None], 30, axis=0), np.full(30, 2), home)
    assert np.linalg.norm(many) > np.linalg.norm(single)


def test_groups_do_not_move_the_centre_where_the_support_agrees_with_the_base_classes(rng):
    support, labels, home = np.array([[1.0, 0, 0], [-1.0, 0, 0]]), np.array([0, 1]), np.zeros(3)
    rows = rng.normal(size=(20, 3)) + 5
    np.testing.assert_array_equal(pile_centre(support, labels, rows, np.full(20, 2), home), home[None])


def test_the_mean_of_weighted_classes_is_that_of_classes_counted_as_often(rng):
    means, home, weights = rng.normal(size=(3, 5)) + 2, rng.normal(size=5), np.array([0.5, 0.25, 0.25])
    centre, share = shrunken_mean(means, home, weights)
    mean = weights @ means
    variance = weights @ np.sum((means - mean) ** 2, axis=1) / (1 / np.sum(weights**2) - 1)
    expected = max(0.0, 1 - variance / np.sum((mean - home) ** 2))
    assert share.item() == pytest.approx(expected)
    np.testing.assert_allclose(centre[0], home + expected * (mean - home))
    for one, two in zip(shrunken_mean(means, home, np.full(3, 1 / 3)), shrunken_mean(means, home), strict=True):
        np.testing.assert_allclose(one, two)
    alone, believed = shrunken_mean(means, home, np.array([0.0, 1.0, 0.0]))
    np.testing.assert_allclose(alone, home[None])
    assert believed.item() == 0
