"""The temperature of a pile, against plain sums over its rows."""

import numpy as np
import pytest

from p3dc.unlabelled.grouping import group_rows, inner_products
from p3dc.unlabelled.mixture import ComponentSums
from p3dc.unlabelled.temperature import PRIOR_ROWS, TYPICAL, pile_temperature
from tests.reference import normalize
from tests.unlabelled.test_grouping import make_rows


def sums_of(prototypes, rows):
    return ComponentSums(inner_products(prototypes, rows, 2.0), len(prototypes), 2.0)


def test_it_follows_from_the_variance_of_cosines_over_their_mean(rng):
    prototypes, labels = normalize(rng.normal(size=(3, 20))), np.array([0, 0, 0, 1, 1, 2, 7, 7])
    rows = make_rows(rng, np.eye(8, 20), labels)
    sums = sums_of(prototypes, rows)
    cosines = sums.cosines(np.equal.outer(labels, np.arange(3)).astype(float))
    squares, own = 0.0, []
    for c in range(3):
        members = cosines[labels == c]
        own += list(members[:, c])
        for row in members - members.mean(axis=0):
            squares += np.sum((row - row.mean()) ** 2) / 2
    n_free = 2 + 1 + 0
    expected = (squares / np.mean(own) + PRIOR_ROWS * TYPICAL) / (n_free + PRIOR_ROWS) / TYPICAL
    assert pile_temperature(sums, labels, 0.07) == pytest.approx(0.07 * np.sqrt(expected), rel=1e-4)


def test_many_dimensions_make_it_colder_than_few(rng):
    labels = np.repeat(np.arange(4), 20)
    found = []
    for n_features in (30, 1000):
        means = np.eye(4, n_features)
        rows = make_rows(rng, means, labels, cosine=0.6)
        groups = group_rows(inner_products(means, rows, 2.0), 4, 2.0)
        found.append(pile_temperature(sums_of(means, rows), groups, 0.07))
    assert found[1] < 0.8 * found[0]


@pytest.mark.parametrize("groups", [[9, 9, 9], [0, 1, 9]])
def test_it_stays_where_no_class_has_two_rows(rng, groups):
    rows = make_rows(rng, np.eye(3, 20), np.arange(3))
    assert pile_temperature(sums_of(np.eye(2, 20), rows), np.array(groups), 0.07) == 0.07


def test_it_stays_with_a_single_class(rng):
    rows = make_rows(rng, np.eye(1, 20), np.zeros(5, dtype=int))
    assert pile_temperature(sums_of(np.eye(1, 20), rows), np.zeros(5, dtype=int), 0.07) == 0.07
