"""Which class a component belongs to, on generated rows whose classes are known."""

import numpy as np
import pytest

from p3dc.unlabelled.evidence import nats
from p3dc.unlabelled.grouping import inner_products
from p3dc.unlabelled.matching import match_components
from p3dc.unlabelled.mixture import ComponentSums
from tests.reference import normalize
from tests.unlabelled.test_grouping import make_rows

TEMPERATURE = 0.0725


def matched(prototypes, rows, component, n_components):
    sums = ComponentSums(inner_products(prototypes, rows, 2.0), len(prototypes), 2.0)
    responsibilities = (component[:, None] == np.arange(n_components)).astype(float)
    return match_components(sums, responsibilities, nats(2.0, TEMPERATURE))


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


def test_components_that_hold_their_class_stay_with_it(world):
    _, prototypes, rows, labels = world
    known = labels < 3
    found = matched(prototypes, rows[known], labels[known], 3)
    np.testing.assert_allclose(found, np.eye(3), atol=0.03)


def test_components_that_were_swapped_are_swapped_back(world):
    _, prototypes, rows, labels = world
    known = labels < 3
    found = matched(prototypes, rows[known], np.array([1, 0, 2])[labels[known]], 3)
    np.testing.assert_allclose(found, np.eye(3)[[1, 0, 2]], atol=0.03)


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
    found = matched(prototypes, rows[known], labels[known], 3)
    np.testing.assert_allclose(found[:2, :2], 0.5, atol=0.1)
    for axis in (0, 1):
        assert ((found.sum(axis=axis) > 0.95) & (found.sum(axis=axis) <= 1 + 1e-9)).all()


def test_a_class_or_component_without_rows_is_matched_with_nothing(world):
    _, prototypes, rows, labels = world
    found = matched(prototypes, rows[labels < 2], labels[labels < 2], 3)
    assert found[:, 2].max() < 1e-6
    assert found[2].max() < 0.05
