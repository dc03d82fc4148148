"""The temperature of a pile, against plain sums over its rows."""

import numpy as np
import pytest

from p3dc.unlabelled.evidence import expected_cosine
from p3dc.unlabelled.grouping import group_rows, inner_products
from p3dc.unlabelled.mixture import ComponentSums
from p3dc.unlabelled.temperature import (
    EXPECTED,
    EXPECTED_ROWS,
    PRIOR_ROWS,
    TYPICAL,
    by_cohesion,
    pile_temperature,
)
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


def test_rows_that_fit_better_make_it_colder_however_few_they_are(rng):
    shares = rng.dirichlet(np.ones(3), size=20)
    expected = expected_cosine(2.0 + shares.sum(axis=0) - shares)
    as_expected = by_cohesion(shares, expected, 2.0)
    assert as_expected == pytest.approx(1, abs=0.05)
    assert by_cohesion(shares[:1], expected_cosine(np.full((1, 3), 2.0)), 2.0) == pytest.approx(as_expected)
    assert by_cohesion(shares, 1.3 * expected, 2.0) < 0.95 < 1.1 < by_cohesion(shares, 0.7 * expected, 2.0)


def test_it_follows_from_the_cosine_of_rows_to_their_classes(rng):
    labels = np.array([0, 0, 0, 1, 1, 2])
    shares, cosines = np.eye(3)[labels], rng.uniform(0.2, 0.6, size=(6, 3))
    found, expected = 0.0, 0.0
    for row, label in enumerate(labels):
        found += cosines[row, label] / 6
        expected += expected_cosine(2.0 + np.sum(labels == label) - 1) / 6
    c = EXPECTED * (6 * found / expected + EXPECTED_ROWS) / (6 + EXPECTED_ROWS)
    assert by_cohesion(shares, cosines, 2.0) == pytest.approx(np.sqrt((1 - c**2) / (2 * c)))


def test_without_rows_of_the_classes_it_stays():
    assert by_cohesion(np.zeros((4, 3)), np.ones((4, 3)), 2.0) == 1.0
    assert by_cohesion(np.zeros((0, 3)), np.ones((0, 3)), 2.0) == 1.0
