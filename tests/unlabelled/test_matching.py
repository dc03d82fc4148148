"""Which class a component belongs to, on generated rows whose classes are known."""

import numpy as np
import pytest

from p3dc.unlabelled.evidence import nats
from p3dc.unlabelled.grouping import inner_products
from p3dc.unlabelled.matching import match_components
from p3dc.unlabelled.mixture import ComponentSums, estimate_shares
from tests.reference import normalize
from tests.unlabelled.test_grouping import make_rows

TEMPERATURE = 0.0725


def matched(prototypes, rows, component, n_components, **options):
    sums = ComponentSums(inner_products(prototypes, rows, 2.0), len(prototypes), 2.0)
    responsibilities = (component[:, None] == np.arange(n_components)).astype(float)
    return match_components(sums, responsibilities, nats(2.0, TEMPERATURE), **options)


@pytest.fixture
def world():
    rng = np.random.default_rng(3)
    means = np.eye(6, 60)
    labels = np.repeat(np.arange(4), 10)
    return (
        means,
        normalize(means[:3] + 0.5 * normalize(rng.normal(size=(3, 60)))),
        make_rows(rng, means, labels),
        labels,
    )


@pytest.mark.parametrize("closed", [False, True])
def test_components_that_hold_their_class_stay_with_it(world, closed):
    _, prototypes, rows, labels = world
    known = labels < 3
    found = matched(prototypes, rows[known], labels[known], 3, closed=closed)
    np.testing.assert_allclose(found, np.eye(3), atol=0.03)


def test_components_that_were_swapped_are_swapped_back(world):
    _, prototypes, rows, labels = world
    known = labels < 3
    found = matched(prototypes, rows[known], np.array([1, 0, 2])[labels[known]], 3, closed=True)
    np.testing.assert_allclose(found, np.eye(3)[[1, 0, 2]], atol=0.01)


def test_a_group_with_the_rows_of_a_class_goes_to_the_class(world):
    _, prototypes, rows, labels = world
    component = np.array([3, 1, 2, 0])[labels]  # the class has rows of no class, and the group those of the class
    found = matched(prototypes, rows, component, 4)
    np.testing.assert_allclose(found[0], [0, 0, 0, 1], atol=0.05)
    assert found[:, 0].sum() < 0.05


def test_rows_between_two_classes_are_shared_by_them(world):
    means, _, rows, labels = world
    between = normalize(means[0] + means[1])
    prototypes = np.stack([between, between, means[2]])
    known = labels < 3
    found = matched(prototypes, rows[known], labels[known], 3, closed=True)
    np.testing.assert_allclose(found[:2, :2], 0.5, atol=0.1)
    np.testing.assert_allclose(found.sum(axis=0), 1)
    np.testing.assert_allclose(found.sum(axis=1), 1, atol=1e-6)


def test_a_class_or_component_without_rows_is_matched_with_nothing(world):
    _, prototypes, rows, labels = world
    found = matched(prototypes, rows[labels < 2], labels[labels < 2], 3)
    assert found[:, 2].max() < 1e-6
    assert found[2].max() < 0.05


def test_shares_are_those_of_the_rows_that_are_known():
    cosines = np.repeat(np.eye(3), [40, 10, 50], axis=0)
    known = np.repeat([1.0, 1.0, 0.0], [40, 10, 50])
    found, unequal = estimate_shares(cosines, known, 0.05)
    np.testing.assert_allclose(found, np.array([43, 13, 3]) / 59, atol=1e-6)
    assert unequal > 0.99


def test_shares_decide_rows_that_cosines_leave_open():
    cosines = np.concatenate([np.repeat([[0.9, 0.1]], 30, axis=0), np.full((10, 2), 0.5)])
    found, unequal = estimate_shares(cosines, np.ones(40), 0.05)
    assert found[0] > 0.8
    assert unequal > 0.99


@pytest.mark.parametrize("n_rows", [1, 2, 5])
def test_few_rows_do_not_make_shares_unequal(n_rows):
    """One class has two rows, and each of some others has one."""
    cosines = np.eye(20)[[0, *range(n_rows)]]
    assert estimate_shares(cosines, np.ones(n_rows + 1), 0.05)[1] < 0.01


def test_rows_that_are_shared_equally_do_not_make_shares_unequal():
    assert estimate_shares(np.repeat(np.eye(5), 15, axis=0), np.ones(75), 0.05)[1] < 0.01
