import ast
import inspect
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from p3dc import method
from tests import reference


def gamma(rng, *shape):
    return rng.gamma(0.7, 1.0, size=shape) + 1e-3


def p3dc_scores(support, labels, queries, priors, attention="raw", **parameters):
    """Score one task with samples in any order and classes of any size."""
    calibrated = method.calibrate(support, priors, **parameters)
    n_way, counts = labels.max() + 1, np.bincount(labels)
    by_class = np.ones((n_way, counts.max(), support.shape[1]), dtype=support.dtype)
    present = np.zeros((n_way, counts.max()), dtype=bool)
    for c in range(n_way):
        by_class[c, : counts[c]] = calibrated[labels == c]
        present[c, : counts[c]] = True
    return method.classify(queries, by_class, present, attention)


def test_each_equation_is_cited_in_one_docstring_and_in_order():
    module = ast.parse(inspect.getsource(method))
    docstrings = [ast.get_docstring(node) or "" for node in module.body if isinstance(node, ast.FunctionDef)]
    cited = [int(number) for text in docstrings for number in re.findall(r"Eq\. \((\d+)\)", text)]
    assert cited == list(range(1, 15))


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    shots=st.lists(st.integers(1, 4), min_size=2, max_size=4),
    n_base=st.integers(1, 9),
    n_nearest=st.integers(1, 12),
    power=st.sampled_from([0.0, 0.5, 0.7, 1.0, 2.0]),
    scale=st.sampled_from([0.0, 0.1, 1.0, 3.0]),
    attention=st.sampled_from(method.ATTENTIONS),
    weights=st.sampled_from([(0.0, 0.0), (1.0, 0.0), (0.0, 1.0), (1 / 3, 1 / 3), (0.2, 0.4), (-0.5, 1.7)]),
)
def test_scores_are_those_of_the_plain_loop(seed, shots, n_base, n_nearest, power, scale, attention, weights):
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.repeat(np.arange(len(shots)), shots))
    support, queries, priors = gamma(rng, len(labels), 6), gamma(rng, 5, 6), gamma(rng, n_base, 6)
    parameters = {"alpha": weights[0], "beta": weights[1], "n_nearest": n_nearest, "power": power, "scale": scale}
    expected = reference.scores(support, labels, queries, priors, attention=attention, **parameters)
    actual = p3dc_scores(support, labels, queries, priors, attention=attention, **parameters)
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_every_function_keeps_the_type_of_its_input(rng, dtype):
    support, queries, priors = (gamma(rng, n, 6).astype(dtype) for n in (4, 3, 5))
    calibrated = method.calibrate(support, priors, alpha=0.2, beta=0.4)
    assert calibrated.dtype == dtype
    for attention in method.ATTENTIONS:
        assert method.classify(queries, calibrated.reshape(2, 2, 6), attention=attention).dtype == dtype
    assert method.tukey(support, 0).dtype == dtype


def test_leading_axes_are_tasks(rng):
    support, queries, priors = gamma(rng, 2, 3, 6, 8), gamma(rng, 2, 3, 4, 8), gamma(rng, 7, 8)
    together = method.calibrate(support, priors, alpha=0.2, beta=0.5)
    scores = method.classify(queries, together.reshape(2, 3, 3, 2, 8))
    for i in range(2):
        for j in range(3):
            alone = method.calibrate(support[i, j], priors, alpha=0.2, beta=0.5)
            np.testing.assert_allclose(together[i, j], alone, atol=1e-14)
            expected = method.classify(queries[i, j], alone.reshape(3, 2, 8))
            np.testing.assert_allclose(scores[i, j], expected, atol=1e-14)


def test_each_task_may_have_its_own_weights(rng):
    support, priors = gamma(rng, 3, 4, 6), gamma(rng, 5, 6)
    alpha, beta = np.array([0.0, 0.2, 1.0]), np.array([0.9, 0.4, 0.0])
    together = method.calibrate(support, priors, alpha=alpha[:, None, None], beta=beta[:, None, None])
    for task, a, b, calibrated in zip(support, alpha, beta, together, strict=True):
        np.testing.assert_allclose(calibrated, method.calibrate(task, priors, alpha=a, beta=b), atol=1e-14)


def test_sample_level_is_the_unified_model_without_beta(rng):
    x, s, t = gamma(rng, 4, 6), gamma(rng, 4, 6), gamma(rng, 4, 6)
    x = method.l2_normalize(x)
    expected = reference.normalize(0.7 * x + 0.3 * reference.normalize(s))
    np.testing.assert_allclose(method.sample_level(x, s, 0.3), expected, atol=1e-14)
    np.testing.assert_allclose(method.unify(x, s, t, 0.3, 0), expected, atol=1e-14)


def test_task_level_is_the_unified_model_without_alpha(rng):
    x, s, t = gamma(rng, 4, 6), gamma(rng, 4, 6), gamma(rng, 4, 6)
    x = method.l2_normalize(x)
    expected = reference.normalize(0.1 * x + 0.9 * reference.normalize(t))
    np.testing.assert_allclose(method.task_level(x, t, 0.9), expected, atol=1e-14)
    np.testing.assert_allclose(method.unify(x, s, t, 0, 0.9), expected, atol=1e-14)


def test_zero_alpha_and_beta_ignore_the_priors(rng):
    support = gamma(rng, 4, 6)
    calibrated = method.calibrate(support, gamma(rng, 5, 6), alpha=0, beta=0)
    np.testing.assert_allclose(calibrated, reference.normalize(support), atol=1e-14)


def test_using_every_prior_makes_both_endpoints_equal(rng):
    support, priors = gamma(rng, 4, 6), gamma(rng, 5, 6)
    for n_nearest in (5, 50):
        sample = method.calibrate(support, priors, alpha=1, beta=0, n_nearest=n_nearest)
        task = method.calibrate(support, priors, alpha=0, beta=1, n_nearest=n_nearest)
        np.testing.assert_allclose(sample, task, atol=1e-14)


def test_a_single_prior_pulls_with_its_whole_weight(rng):
    support, prior = gamma(rng, 4, 6), gamma(rng, 1, 6)
    calibrated = method.calibrate(support, prior, alpha=0, beta=1)
    np.testing.assert_allclose(calibrated, reference.normalize(np.sqrt(support) + prior), atol=1e-14)


def test_support_order_does_not_change_scores(rng):
    labels = np.repeat([0, 1, 2], 3)
    support, queries, priors = gamma(rng, 9, 6), gamma(rng, 4, 6), gamma(rng, 8, 6)
    order = rng.permutation(9)
    one = p3dc_scores(support, labels, queries, priors, alpha=0.3, beta=0.6)
    two = p3dc_scores(support[order], labels[order], queries, priors, alpha=0.3, beta=0.6)
    np.testing.assert_allclose(one, two, atol=1e-13)


@given(st.lists(st.integers(0, 3), min_size=2, max_size=8), st.integers(1, 10))
def test_exactly_the_asked_number_of_priors_is_chosen_even_among_equals(similarities, n_nearest):
    values = np.array([similarities], dtype=float)
    chosen = method.nearest_priors(values, n_nearest)[0]
    expected = np.argsort(-values[0], kind="stable")[:n_nearest]
    assert set(np.flatnonzero(chosen)) == set(expected)


def test_the_logarithm_is_the_ladder_at_zero(rng):
    x = gamma(rng, 3, 4)
    np.testing.assert_array_equal(method.tukey(x, 0), np.log(x))
    np.testing.assert_allclose(method.tukey(x, 0.5), np.sqrt(x))


def test_huge_features_neither_overflow_nor_vanish(rng):
    support, queries, priors = (1e4 * gamma(rng, n, 6).astype(np.float32) for n in (6, 4, 5))
    scores = p3dc_scores(support, np.repeat([0, 1], 3), queries, priors, alpha=0.3, beta=0.3)
    assert np.isfinite(scores).all()
    assert np.abs(scores).max() <= 1 + 1e-6


def test_a_vector_of_zeros_stays_as_it_is():
    np.testing.assert_array_equal(method.l2_normalize(np.zeros((2, 3))), np.zeros((2, 3)))


@given(
    dtype=st.sampled_from([np.float32, np.float64]),
    seed=st.integers(0, 2**32 - 1),
    place=st.floats(0, 1),
    n_features=st.integers(1, 40),
)
def test_a_power_of_two_does_not_change_a_direction(dtype, seed, place, n_features):
    """Any power that leaves all entries finite and normal will do, also where squares overflow or underflow."""
    x = gamma(np.random.default_rng(seed), 3, n_features).astype(dtype)
    limits = np.finfo(dtype)
    lowest, highest = limits.minexp - np.floor(np.log2(x.min())), limits.maxexp - 1 - np.ceil(np.log2(x.max()))
    scaled = np.ldexp(x, int(np.round(lowest + place * (highest - lowest))))
    np.testing.assert_array_equal(method.l2_normalize(scaled), method.l2_normalize(x))
    np.testing.assert_allclose(np.log2(method.vector_norm(scaled).astype(float)), _log2_norm(scaled), rtol=1e-6)


def _log2_norm(x):
    largest = x.max(axis=1, keepdims=True)
    return np.log2(largest[:, 0].astype(float)) + np.log2(np.linalg.norm((x / largest).astype(float), axis=1))


def test_absent_samples_have_no_say(rng):
    calibrated, queries = method.l2_normalize(gamma(rng, 2, 3, 6)), gamma(rng, 4, 6)
    present = np.array([[True, True, False], [True, True, True]])
    other = calibrated.copy()
    other[0, 2] = 9.0
    for attention in method.ATTENTIONS:
        one = method.classify(queries, calibrated, present, attention)
        np.testing.assert_array_equal(one, method.classify(queries, other, present, attention))
