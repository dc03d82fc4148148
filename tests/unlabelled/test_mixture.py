"""Mixtures on generated rows, against plain loops."""

import numpy as np
import pytest

from p3dc.unlabelled.grouping import inner_products
from p3dc.unlabelled.mixture import ROUNDS, ComponentSums, fit_closed
from tests.reference import normalize
from tests.unlabelled.test_grouping import make_rows

TEMPERATURE = 0.0725


@pytest.fixture
def task():
    """Rows of three classes, a poor prototype of each, and their sums as three pseudo-rows each."""
    rng = np.random.default_rng(1)
    means = np.eye(3, 40)
    prototypes = normalize(means + 3 * normalize(rng.normal(size=(3, 40))))
    rows = make_rows(rng, means, np.repeat(np.arange(3), [6, 3, 2]), cosine=0.3)
    gram = inner_products(prototypes, rows, 3.0)
    return rows, prototypes * np.sqrt(gram.diagonal()[:3, None]), ComponentSums(gram, 3, 3.0)


def plain_rounds(rows, seeds, offsets, n_rounds):
    """Assign every row by its cosines to the sums of the classes without the row itself, again and again."""
    shares = np.zeros((len(rows), len(seeds)))
    for _ in range(n_rounds):
        logits = np.empty_like(shares)
        for i, row in enumerate(rows):
            for c, seed in enumerate(seeds):
                others = seed + shares[:, c] @ rows - shares[i, c] * row
                logits[i, c] = row @ others / np.linalg.norm(others) / TEMPERATURE
        odds = np.exp(logits + offsets(logits))
        shares = odds / odds.sum(axis=1, keepdims=True)
    return shares


@pytest.mark.parametrize("added", [0.0, 1.0])
def test_the_closed_mixture_is_a_few_rounds_of_expectation_maximisation(task, added):
    rows, seeds, sums = task

    def offsets(logits):
        return np.array([added, 0.0, -added]) * logits.mean(axis=0)

    found = fit_closed(sums, TEMPERATURE, offsets)
    np.testing.assert_allclose(found, plain_rounds(rows, seeds, offsets, ROUNDS), atol=1e-4)
    assert abs(found - plain_rounds(rows, seeds, offsets, ROUNDS - 1)).max() > 1e-3
