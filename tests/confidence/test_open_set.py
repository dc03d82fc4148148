import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from p3dc.confidence.open_set import is_unknown, known_score, unknown_threshold

seeds = st.integers(0, 10_000)


@pytest.mark.parametrize("share", [0.5, 0.9, 0.99])
@pytest.mark.parametrize("n_way", [2, 5, 20])
def test_the_threshold_rejects_the_share_of_unknowns_that_is_asked(n_way, share):
    rng = np.random.default_rng(0)
    found = unknown_threshold(rng.normal(0.1, 0.2, size=4000), n_way, share, None)
    largest = rng.normal(0.1, 0.2, size=(20_000, n_way)).max(axis=1)
    assert np.mean(largest < found) == pytest.approx(share, abs=0.02)


@given(seeds, st.integers(2, 6), st.sampled_from([None, 0.01, 0.2]))
def test_the_threshold_rises_with_the_share(seed, n_way, spread):
    cosines = np.random.default_rng(seed).uniform(-1, 1, size=2 * n_way)
    found = [unknown_threshold(cosines, n_way, share, spread) for share in (0.01, 0.3, 0.6, 0.9, 0.999)]
    assert (np.diff(found) > 0).all()


def test_the_base_classes_count_for_four_cosines_of_their_variance():
    seen = np.array([0.3, 0.5])
    variance = (np.sum((seen - 0.4) ** 2) + 4 * 0.04) / 6
    largest = np.random.default_rng(0).normal(seen.sum() / 6, np.sqrt(variance), size=(200_000, 2)).max(axis=1)
    assert unknown_threshold(seen, 2, 0.9, 0.04) == pytest.approx(np.quantile(largest, 0.9), abs=0.005)


def test_a_query_is_unknown_where_its_largest_cosine_is_below_the_threshold():
    cosines = np.array([[0.1, 0.4], [0.2, 0.3], [0.5, 0.9]])
    assert is_unknown(known_score(cosines), 0.4).tolist() == [False, True, False]
