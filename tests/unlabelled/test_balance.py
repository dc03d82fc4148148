"""Whether classes are equal, against probabilities of assignments that are counted one by one."""

from itertools import product
from math import exp, factorial

import numpy as np
import pytest

from p3dc.unlabelled.balance import FEW, _log_equal, _log_unequal, judge_balance
from p3dc.unlabelled.evidence import evidence, nats
from p3dc.unlabelled.grouping import inner_products
from p3dc.unlabelled.mixture import ComponentSums, free_energy
from tests.reference import normalize
from tests.unlabelled.test_grouping import make_rows

TEMPERATURE = 0.0725


def sums_of(prototypes, rows, n_pseudo=3.0):
    return ComponentSums(inner_products(prototypes, rows, n_pseudo), len(prototypes), n_pseudo)


def probability_of_equal(counts, cosine=0.5, seed=0):
    rng = np.random.default_rng(seed)
    means = np.eye(len(counts), 200)
    prototypes = normalize(means + normalize(rng.normal(size=means.shape)))
    rows = make_rows(rng, means, np.repeat(np.arange(len(counts)), counts), cosine=cosine)
    posterior = judge_balance(sums_of(prototypes, rows), TEMPERATURE, nats(2.0, TEMPERATURE))
    assert posterior.sum() == pytest.approx(1)
    return posterior[0]


def test_probabilities_of_assignments_add_up_to_one():
    n_rows, n_way = 4, 2
    assignments = [np.bincount(each, minlength=n_way) for each in product(range(n_way), repeat=n_rows)]
    unequal = [exp(_log_unequal(counts)) / factorial(n_rows) for counts in assignments]
    assert sum(unequal) == pytest.approx(1)
    equal = [exp(_log_equal(n_rows, n_way)) / factorial(n_rows) for counts in assignments if np.ptp(counts) == 0]
    assert sum(equal) == pytest.approx(1)


def test_free_energy_is_the_mean_over_all_assignments(rng):
    prototypes, shares = normalize(rng.normal(size=(2, 30))), rng.dirichlet([1, 1], size=5)
    rows = make_rows(rng, np.eye(2, 30), rng.integers(0, 2, 5))
    found = free_energy(sums_of(prototypes, rows), shares, 2.0)
    seeds = prototypes * np.sqrt(np.diag(inner_products(prototypes, rows, 3.0))[:2, None])
    squared = np.zeros(2)
    for assignment in product(range(2), repeat=5):
        belonging = np.eye(2)[list(assignment)]
        probability = np.prod(shares[belonging == 1])
        squared += probability * np.sum((seeds + belonging.T @ rows) ** 2, axis=1)
    expected = 2.0 * np.sum(evidence(3.0 + shares.sum(axis=0), squared)) - np.sum(shares * np.log(shares))
    assert found == pytest.approx(expected, rel=1e-4)


def test_certain_assignments_have_no_entropy(rng):
    prototypes, labels = normalize(rng.normal(size=(3, 30))), np.array([0, 0, 1, 1, 2])
    rows = make_rows(rng, np.eye(3, 30), labels)
    once, twice = (free_energy(sums_of(prototypes, rows), np.eye(3)[labels], factor) for factor in (1.0, 2.0))
    assert twice == pytest.approx(2 * once)


@pytest.mark.parametrize("seed", range(5))
def test_equal_classes_are_told_from_unequal_ones(seed):
    assert probability_of_equal([15, 15, 15, 15, 15], seed=seed) > 0.9
    assert probability_of_equal([30, 20, 12, 8, 5], seed=seed) < 0.01


def test_many_rows_tell_small_differences():
    assert probability_of_equal([40, 40, 30, 30]) < 0.5 < probability_of_equal([35, 35, 35, 35])


def test_a_few_rows_are_never_believed_exactly_equal():
    few = int(FEW) - 1
    assert probability_of_equal([few] * 4) == 0
    assert probability_of_equal([few + 1] * 4) > 0
