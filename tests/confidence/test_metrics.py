import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.metrics import roc_auc_score

from p3dc.confidence.metrics import Reliability, area_under_roc


def plain_error(confidence, right, n_bins=15):
    total = 0.0
    for i in range(n_bins):
        own = [
            j for j, c in enumerate(confidence) if i / n_bins <= c < (i + 1) / n_bins or (c == 1 and i == n_bins - 1)
        ]
        if own:
            gap = np.mean([confidence[j] for j in own]) - np.mean([right[j] for j in own])
            total += len(own) * abs(gap)
    return total / len(confidence)


@settings(deadline=None)
@given(st.integers(0, 1000), st.integers(1, 60), st.integers(1, 4))
def test_the_calibration_error_is_that_of_a_loop_over_bins(seed, n_queries, n_parts):
    rng = np.random.default_rng(seed)
    confidence = rng.uniform(0.2, 1, n_queries)
    confidence[:2] = 1.0
    right = rng.random(n_queries) < 0.7
    reliability = Reliability()
    for part in np.array_split(np.arange(n_queries), n_parts):
        reliability.add(confidence[part], right[part])
    assert reliability.error == pytest.approx(plain_error(confidence, right), abs=1e-12)


def test_what_is_sure_and_right_has_no_error_and_what_is_sure_and_wrong_has_all():
    for right, error in ((True, 0.0), (False, 1.0)):
        reliability = Reliability()
        reliability.add(np.ones(3), np.full(3, right))
        assert reliability.error == error


@settings(deadline=None)
@given(
    known=arrays(float, (3, 6), elements=st.integers(0, 5).map(float)),
    strange=arrays(float, (3, 4), elements=st.integers(0, 5).map(float)),
)
def test_the_area_under_the_roc_is_that_of_scikit_learn_also_with_ties(known, strange):
    truth = [1] * 6 + [0] * 4
    expected = [roc_auc_score(truth, [*one, *two]) for one, two in zip(known, strange, strict=True)]
    np.testing.assert_allclose(area_under_roc(known, strange), expected, atol=1e-12)


def test_each_task_has_its_own_area():
    found = area_under_roc(np.array([[2.0, 3.0], [0.0, 0.0]]), np.array([[1.0], [1.0]]))
    assert found.tolist() == [1.0, 0.0]
