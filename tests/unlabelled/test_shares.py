"""Shares of classes among rows, and the error of their logits."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from p3dc.method import masked_softmax
from p3dc.unlabelled.shares import (
    EQUAL,
    ERROR,
    SPREADS,
    UNEQUAL,
    balancing_offsets,
    count_rows,
    offsets_by,
)

LOGITS = arrays(float, st.tuples(st.integers(1, 30), st.integers(2, 6)), elements=st.floats(-20, 20))


def make_logits(rng, labels, n_way, margin=3.0, error=0.0):
    """True logits of rows whose coordinate along their class is larger by a margin, and an error of each class."""
    rows = rng.normal(size=(len(labels), n_way))
    rows[np.arange(len(labels)), labels] += margin
    return margin * rows + error * rng.normal(size=n_way)


def right(logits, labels):
    return np.mean(logits.argmax(axis=1) == labels)


def test_counts_follow_the_definition():
    rng = np.random.default_rng(0)
    logits = make_logits(rng, rng.integers(0, 4, 30), 4)
    found, p = count_rows(logits), np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    for k in range(4):
        n, u = sum(p[:, k]), sum(p[:, k] * (1 - p[:, k]))
        assert found.ambiguous[k] == pytest.approx(u / n)
        assert found.logs[k] == pytest.approx(np.log(n + 1) - np.mean(np.log(p.sum(axis=0) + 1)))
        assert found.variances[k, 0] == pytest.approx((u / n) ** 2 * ERROR + (u + 1) / (n + 1) ** 2)
        by_chance = 7.5 / 8.5**2
        for h, spread in enumerate(SPREADS, 1):
            share = (1 - u / n) ** 2 * (by_chance + spread)
            assert found.variances[k, h] == pytest.approx(found.variances[k, 0] + share)


def test_shares_and_errors_are_the_regression_on_the_counts():
    """Of ℓ and b drawn as the model has them, L = (1 − κ) ℓ + κ b + noise predicts both by these factors."""
    rng = np.random.default_rng(1)
    found = count_rows(make_logits(rng, rng.integers(0, 3, 60), 3))
    kappa, spread = found.ambiguous[0], found.spreads[-2]
    noise = found.variances[0, -2] - (1 - kappa) ** 2 * spread - kappa**2 * ERROR
    share, error = rng.normal(size=(2, 400_000)) * np.sqrt([[spread], [ERROR]])
    seen = (1 - kappa) * share + kappa * error + np.sqrt(noise) * rng.normal(size=share.shape)
    certain = np.eye(1 + len(SPREADS))[-2]
    assert found.log_shares(certain)[0] / found.logs[0] == pytest.approx(share @ seen / (seen @ seen), rel=0.02)
    assert found.errors(certain)[0] / found.logs[0] == pytest.approx(error @ seen / (seen @ seen), rel=0.05)


def test_uncertainty_is_the_variance_of_the_offset_given_the_counts():
    """Of ℓ and b drawn by a random hypothesis, those that would make the counts seen keep this variance of ℓ − b."""
    rng = np.random.default_rng(2)
    found = count_rows(make_logits(rng, rng.integers(0, 3, 60), 3))
    posterior = np.array([0.0, 0.0, 0.5, 0.5, 0.0])
    expected = []
    for k, kappa in enumerate(found.ambiguous):
        draws = []
        for h in (2, 3):
            spread, variance = found.spreads[h], found.variances[k, h]
            noise = variance - (1 - kappa) ** 2 * spread - kappa**2 * ERROR
            share, error = rng.normal(size=(2, 1_000_000)) * np.sqrt([[spread], [ERROR]])
            seen = (1 - kappa) * share + kappa * error + np.sqrt(noise) * rng.normal(size=share.shape)
            near = np.abs(seen - found.logs[k]) < 0.02
            draws.append((share - error)[near])
        least = min(map(len, draws))
        expected.append(np.var(np.concatenate([draw[:least] for draw in draws])))
    assert found.uncertainty(posterior) == pytest.approx(np.average(expected, weights=found.rows), rel=0.05)


def test_unequal_counts_are_believed_more_unequal_than_equal_ones():
    rng = np.random.default_rng(2)
    spreads = np.concatenate([[0.0], SPREADS])
    equal = count_rows(make_logits(rng, np.repeat(np.arange(5), 15), 5, margin=8.0)).posterior()
    unequal = count_rows(make_logits(rng, np.repeat(np.arange(5), (50, 15, 6, 3, 1)), 5, margin=8.0)).posterior()
    assert equal @ spreads < 0.2
    assert unequal @ spreads > 0.5


def test_counts_alone_never_make_classes_exactly_equal():
    rng = np.random.default_rng(3)
    assert count_rows(make_logits(rng, np.repeat(np.arange(5), 15), 5, margin=8.0)).posterior()[0] == 0


def test_offsets_help_equal_rows_with_errors_and_unequal_ones():
    rng = np.random.default_rng(4)
    equal, unequal = np.repeat(np.arange(5), 15), np.repeat(np.arange(5), (50, 15, 6, 3, 1))
    gains = np.zeros((2, 3))
    for _ in range(200):
        for kind, (labels, error) in enumerate([(equal, 0.7), (unequal, 0.0)]):
            logits = make_logits(rng, labels, 5, margin=2.0, error=error)
            believed = offsets_by(count_rows(logits).posterior())
            for by, offsets in enumerate([believed, offsets_by(EQUAL), offsets_by(UNEQUAL)]):
                gains[kind, by] += (right(logits + offsets(logits), labels) - right(logits, labels)) / 2
    believed, by_equal, by_unequal = gains.T
    assert (believed > 0.5).all()
    assert by_equal[1] < 0 < by_equal[0]
    assert by_unequal[0] < 0 < by_unequal[1]


@given(LOGITS)
def test_offsets_are_finite_and_do_not_depend_on_a_constant_of_each_row(logits):
    counts = count_rows(logits)
    assert counts.posterior().sum() == pytest.approx(1)
    offsets = offsets_by(counts.posterior())
    assert np.isfinite(offsets(logits)).all()
    np.testing.assert_allclose(offsets(logits), offsets(logits + 5.0), atol=1e-6)


@given(LOGITS)
def test_offsets_follow_the_order_of_the_classes(logits):
    order = np.arange(logits.shape[1])[::-1]
    offsets = offsets_by(UNEQUAL)
    np.testing.assert_allclose(offsets(logits[:, order]), offsets(logits)[order], atol=1e-8)


def test_balancing_makes_counts_equal():
    rng = np.random.default_rng(5)
    logits = make_logits(rng, np.repeat(np.arange(5), (30, 15, 15, 10, 5)), 5, margin=1.0)
    counts = masked_softmax(logits + balancing_offsets(logits), None).sum(axis=0)
    np.testing.assert_allclose(counts, 15, rtol=0.02)


def test_shares_decide_rows_that_logits_leave_open():
    logits = np.concatenate([np.repeat([[8.0, 0.0]], 30, axis=0), np.zeros((10, 2))])
    found = offsets_by(count_rows(logits).posterior())(logits)
    assert found[0] - found[1] > 0.5


@pytest.mark.parametrize("n_rows", [1, 2, 5])
def test_few_rows_do_not_make_shares_very_unequal(n_rows):
    """One class has two rows, and each of some others has one."""
    logits = 8.0 * np.eye(20)[[0, *range(n_rows)]]
    assert np.ptp(offsets_by(count_rows(logits).posterior())(logits)) < 1


@pytest.mark.parametrize(("n_way", "error"), [(2, ERROR), (10, ERROR), (20, 2 * ERROR), (50, 5 * ERROR)])
def test_errors_vary_more_among_many_classes(n_way, error):
    assert count_rows(np.zeros((3, n_way))).error == pytest.approx(error)
