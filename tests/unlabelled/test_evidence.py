import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from p3dc.unlabelled.evidence import COHESION, bayes_factor, discount, evidence, expected_length, nats


def gaussian_evidence(rows, dimension):
    """Log density of rows that share a mean μ ~ N(0, R²/D), less that of rows that do not, by the covariance itself."""
    n = len(rows)
    noise = (1 - COHESION) / dimension
    shared = noise * np.eye(n) + COHESION / dimension * np.ones((n, n))
    quadratic = np.trace(rows.T @ np.linalg.inv(shared) @ rows) - (rows**2).sum() / noise
    return -0.5 * (quadratic + dimension * (np.linalg.slogdet(shared)[1] - n * np.log(noise)))


@pytest.mark.parametrize("n", [1, 2, 7])
def test_evidence_is_the_ratio_of_two_gaussian_densities(n, rng):
    dimension = 12
    rows = rng.normal(size=(n, dimension)) / np.sqrt(dimension)
    squared = np.sum(rows.sum(axis=0) ** 2)
    assert dimension * evidence(n, squared) == pytest.approx(gaussian_evidence(rows, dimension))


def test_rows_of_one_direction_share_a_class_and_opposite_ones_do_not():
    assert bayes_factor(1, 1.0, 1, 1.0, 0.9) > 0
    assert bayes_factor(1, 1.0, 1, 1.0, 0.0) < 0
    assert bayes_factor(1, 1.0, 1, 1.0, -0.9) < 0


@given(st.integers(1, 20), st.integers(1, 20), st.floats(-1, 1))
def test_the_bayes_factor_is_symmetric_and_grows_with_the_product(n, m, cosine):
    a, b = expected_length(n), expected_length(m)
    one = bayes_factor(n, a**2, m, b**2, cosine * a * b)
    assert one == pytest.approx(bayes_factor(m, b**2, n, a**2, cosine * a * b))
    assert bayes_factor(n, a**2, m, b**2, cosine * a * b + 0.1) > one


def test_the_expected_length_is_that_of_sums_of_rows(rng):
    dimension, n = 400, 6
    mean = np.sqrt(COHESION) * np.eye(dimension)[0]
    rows = mean + np.sqrt((1 - COHESION) / dimension) * rng.normal(size=(200, n, dimension))
    lengths = np.linalg.norm(rows.sum(axis=1), axis=1)
    assert lengths.mean() == pytest.approx(expected_length(n), rel=0.02)


def test_colder_temperatures_make_more_nats():
    assert nats(2, 0.05) > nats(2, 0.1) > 0


def test_rows_of_one_class_count_in_full():
    np.testing.assert_allclose(discount(np.array([1, 10, 1000]), 1.0), 1.0)


def test_rows_of_which_a_share_is_of_another_class_count_for_a_bounded_number():
    """Restated: the squared error of the mean, of noise and of the other class, in units of one row's noise."""
    share, noise, between = 0.4, 1 - COHESION, COHESION
    for n in (1, 20, 10_000):
        error = noise / n + ((1 - share) / share) ** 2 * between
        assert n * discount(n, share) == pytest.approx(noise / error)
    assert 1e9 * discount(1e9, share) < 2
    assert discount(10, 0.0) < 1e-9
