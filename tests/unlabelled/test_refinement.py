"""Refinement on generated rows whose classes are known."""

from dataclasses import replace

import numpy as np
import pytest

from p3dc.confidence.metrics import area_under_roc
from p3dc.method import masked_softmax
from p3dc.unlabelled.grouping import group_rows, inner_products
from p3dc.unlabelled.mixture import ComponentSums
from p3dc.unlabelled.refinement import PSEUDO_OPEN, refine
from tests.reference import normalize
from tests.unlabelled.test_grouping import make_rows

TEMPERATURE = 0.0725


@pytest.fixture
def world():
    """Orthogonal classes in 60 dimensions, and a poor prototype of each of the first five."""
    rng = np.random.default_rng(5)
    means = np.eye(12, 60)
    prototypes = normalize(0.5 * means[:5] + normalize(rng.normal(size=(5, 60))))
    return rng, means, prototypes


def refined(prototypes, rows, shots=1.0, **options):
    gram = inner_products(prototypes, rows, PSEUDO_OPEN * shots)
    groups = group_rows(gram, len(prototypes), PSEUDO_OPEN * shots)
    return refine(prototypes, rows, gram, groups, shots=shots, temperature=TEMPERATURE, **options)


def nearness(prototypes, means):
    return np.sum(normalize(prototypes) * means[: len(prototypes)], axis=1)


def test_cosines_leave_out_the_rows_own_part(world):
    rng, means, prototypes = world
    rows = make_rows(rng, means, rng.integers(0, 5, 9))
    gram = inner_products(prototypes, rows, 2.0)
    sums, r = ComponentSums(gram, 5, 2.0), rng.uniform(size=(9, 7))
    found = sums.cosines(r)
    whole = np.concatenate([prototypes * np.sqrt(gram.diagonal()[:5])[:, None], np.zeros((2, 60))]) + r.T @ rows
    for p in range(9):
        for c in range(7):
            without = whole[c] - r[p, c] * rows[p]
            assert found[p, c] == pytest.approx(rows[p] @ without / np.linalg.norm(without), abs=1e-4)


@pytest.mark.parametrize("balance", [None, "equal"])
def test_rows_of_the_classes_bring_prototypes_nearer_to_the_true_means(world, balance):
    rng, means, prototypes = world
    rows = make_rows(rng, means, np.repeat(np.arange(5), 15), cosine=0.5)
    found = refined(prototypes, rows, balance=balance)
    before, after = nearness(prototypes, means), nearness(prototypes + found.pull, means)
    assert (after > before).all()
    assert after.mean() > before.mean() + 0.2
    assert found.used > 0.5


def test_rows_of_other_classes_become_groups_and_capture_no_class(world):
    rng, means, _ = world
    prototypes = normalize(means[:5] + normalize(rng.normal(size=(5, 60))))
    labels = np.repeat(np.arange(10), 15)
    rows = make_rows(rng, means, labels, cosine=0.6)
    found = refined(prototypes, rows)
    assert (nearness(prototypes + found.pull, means) > nearness(prototypes, means)).all()
    assert found.closed > 0.5  # all other rows are of the classes
    assert found.weights[labels < 5].sum() > 20 * found.weights[found.members @ found.proposed].sum()
    for group in np.flatnonzero(found.proposed):
        own = labels[found.members[:, group]]
        assert (own == np.bincount(own).argmax()).mean() > 0.8
        assert np.bincount(own).argmax() >= 5
    assert found.proposed.sum() >= 3
    queries = make_rows(rng, means, np.repeat(np.arange(10), 5), cosine=0.6)
    known, unknown = found.penalty(queries[:25]), found.penalty(queries[25:])
    assert unknown.mean() > known.mean() + 0.1


def test_groups_that_may_be_a_class_are_not_proposed(world):
    """Rows far from a poor prototype of their class form a group, but the evidence that it is another one is weak."""
    rng, means, prototypes = world
    known = refined(prototypes, make_rows(rng, means, np.repeat(np.arange(5), 6), cosine=0.6))
    assert not known.proposed.any()
    labels = np.repeat([0, 1, 2, 3, 4, 7], 6)
    few = refined(prototypes, make_rows(rng, means, labels[:-3], cosine=0.6))
    many = refined(prototypes, make_rows(rng, means, np.concatenate([labels, np.full(9, 7)]), cosine=0.6))
    assert (few.proposed.sum(), many.proposed.sum()) == (0, 1)


def test_rows_of_a_proposed_group_do_not_make_the_others_less_believed(world):
    rng, means, prototypes = world
    rows = make_rows(rng, means, np.repeat([0, 1, 2, 3, 4, 7], 15), cosine=0.6)
    alone, together = refined(prototypes, rows[:75]), refined(prototypes, rows)
    assert alone.closed == together.closed == 1.0
    np.testing.assert_allclose(normalize(prototypes + alone.pull), normalize(prototypes + together.pull), atol=0.05)


def test_where_all_rows_are_of_other_classes_the_classes_stay(world):
    rng, means, prototypes = world
    rows = make_rows(rng, means, np.repeat([7, 8, 9], 15), cosine=0.8)
    few, many = refined(prototypes, rows), refined(prototypes, rows, shots=10.0)
    assert (few.proposed.sum(), many.proposed.sum()) == (0, 3)  # one sample may be an unusual one of a group's class
    for found in (few, many):
        assert found.closed == 0.0
        assert np.linalg.norm(found.pull, axis=1).max() < 0.05


def test_a_query_that_resembles_many_rows_of_a_group_is_less_known_than_one_that_resembles_two(world):
    rng, means, prototypes = world
    labels = np.concatenate([np.repeat(np.arange(5), 6), np.repeat([7, 8], [12, 2])])
    found = refined(prototypes, make_rows(rng, means, labels, cosine=0.95))
    assert found.members.sum(axis=0).tolist() == [12, 2]
    many, two, unlike = found.penalty(means[[7, 8, 9]])
    assert many > 1.5 * two > 0
    assert unlike < 0.05


def test_the_support_has_the_first_say_in_how_known_a_row_is(world):
    rng, means, prototypes = world
    found = refined(prototypes, make_rows(rng, means, np.repeat([0, 1, 2, 3, 4, 8], 8), cosine=0.6))
    assert 0.3 < found.used < 1
    queries = make_rows(rng, means, np.arange(12), cosine=0.6)
    along = queries @ prototypes.T
    cosines = found.cosines(along, np.sum(prototypes * found.pull, axis=1), queries)
    both = (1 - found.used / 2) * along + found.used / 2 * cosines
    np.testing.assert_allclose(found.known(along, cosines, queries), both.max(axis=1) - found.penalty(queries))
    unused = replace(found, used=0.0, groups=np.empty((0, 60)))
    np.testing.assert_array_equal(unused.known(along, cosines, queries), along.max(axis=1))


def test_rows_that_join_a_class_together_do_not_vouch_for_each_other(world):
    """Two photos of each class and four of another one, which join the class that they resemble most."""
    _, means, _ = world
    by_both, by_pile = [], []
    for seed in range(30):
        rng = np.random.default_rng(seed)
        prototypes = normalize(0.6 * means[:5] + normalize(rng.normal(size=(5, 60))))
        labels = np.repeat([0, 1, 2, 3, 4, 8], [2, 2, 2, 2, 2, 4])
        rows = make_rows(rng, means, labels, cosine=0.6)
        found, along = refined(prototypes, rows), rows @ prototypes.T
        cosines = found.cosines(along, np.sum(prototypes * found.pull, axis=1), rows, found.weights)
        for scores, known in (
            (by_both, found.known(along, cosines, rows)),
            (by_pile, cosines.max(axis=1) - found.penalty(rows)),
        ):
            scores.append(area_under_roc(known[None, labels < 5], known[None, labels == 8])[0])
    assert np.mean(by_both) > np.mean(by_pile) + 0.05


def test_unequal_rows_make_less_certain_probabilities_than_a_promise(world):
    rng, means, prototypes = world
    rows = make_rows(rng, means, np.repeat(np.arange(5), [30, 20, 10, 10, 5]), cosine=0.4)
    assert refined(prototypes, rows).temperature > 1.05 * refined(prototypes, rows, balance="equal").temperature


def test_rows_of_one_class_are_no_reason_to_move_the_others(world):
    rng, means, prototypes = world
    found = refined(prototypes, make_rows(rng, means, np.zeros(15, dtype=int), cosine=0.6))
    lengths = np.linalg.norm(found.pull, axis=1)
    assert lengths[0] > 2 * lengths[1:].max()
    assert lengths[1:].max() < 0.15
    assert found.offsets[0] > found.offsets[1:].max() + TEMPERATURE


def test_other_queries_see_prototypes_that_moved_as_far_as_the_rows_cover_the_classes(world):
    rng, means, prototypes = world
    one, all_five = (
        refined(prototypes, make_rows(rng, means, labels, cosine=0.6))
        for labels in (np.zeros(15, dtype=int), np.repeat(np.arange(5), 15))
    )
    assert one.coverage < 0.4
    assert all_five.coverage > 0.9
    queries = make_rows(rng, means, np.arange(5), cosine=0.6)
    along, together = queries @ prototypes.T, np.sum(prototypes * one.pull, axis=1)
    moved = normalize(prototypes + one.coverage * one.pull)
    np.testing.assert_allclose(one.cosines(along, together, queries), queries @ moved.T, atol=1e-12)


def test_the_promise_of_equal_classes_balances_an_unequal_fit(world):
    rng, means, prototypes = world
    rows = make_rows(rng, means, np.repeat(np.arange(5), 15), cosine=0.35)
    found = refined(prototypes, rows, balance="equal")
    assert found.closed == 1.0
    cosines = found.cosines(rows @ prototypes.T, np.sum(prototypes * found.pull, axis=1), rows, found.weights)
    shares = masked_softmax((cosines + found.offsets) / found.temperature, None).sum(axis=0)
    np.testing.assert_allclose(shares, 15, rtol=0.02)


@pytest.mark.parametrize("n_rows", [1, 2, 5])
def test_a_few_rows_work_too(world, n_rows):
    rng, means, prototypes = world
    found = refined(prototypes, make_rows(rng, means, np.arange(n_rows)))
    assert np.isfinite(found.pull).all()
    assert 0 <= found.used <= 1
    assert found.temperature > 0


def test_the_order_of_the_rows_does_not_matter(world):
    rng, means, prototypes = world
    rows = make_rows(rng, means, rng.integers(0, 8, 40), cosine=0.6)
    order = rng.permutation(40)
    one, two = refined(prototypes, rows), refined(prototypes, rows[order])
    np.testing.assert_allclose(one.pull, two.pull, atol=1e-5)
    np.testing.assert_allclose(one.offsets, two.offsets, atol=1e-5)
    np.testing.assert_allclose(one.query_offsets, two.query_offsets, atol=1e-5)


def test_a_pile_with_one_row_of_each_class_says_nothing_about_its_own_rows(world):
    rng, means, prototypes = world
    found = refined(prototypes, make_rows(rng, means, np.arange(5), cosine=0.6))
    weights, rows = np.diag(found.weights.sum(axis=0)), make_rows(rng, means, np.arange(5), cosine=0.6)
    alone = replace(found, weights=weights, pull=weights.T @ rows)
    along = rows @ prototypes.T
    together = np.sum(prototypes * alone.pull, axis=1)
    np.testing.assert_allclose(alone.cosines(along, together, rows, weights), along, atol=1e-12)


def test_rows_count_less_where_the_support_alone_would_label_them_differently(world):
    rng, means, prototypes = world
    labels = np.repeat(np.arange(5), 15)
    sure = normalize(means[:5] + 0.2 * normalize(rng.normal(size=(5, 60))))
    rows = make_rows(rng, means, labels, cosine=0.5)
    assert refined(prototypes, rows).used < refined(sure, rows).used
    lengths = np.linalg.norm(refined(prototypes, np.tile(rows, (4, 1))).pull, axis=1)
    assert lengths.max() < 4 * np.linalg.norm(refined(prototypes, rows).pull, axis=1).max()
