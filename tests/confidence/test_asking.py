"""Which labels a user is asked for first."""

import numpy as np
import pytest

from p3dc.confidence import asking
from p3dc.confidence.asking import asking_order, doubt
from p3dc.method import l2_normalize


def test_doubt_is_zero_where_one_class_is_sure_and_one_where_two_are_equal():
    probabilities = np.array([[1.0, 0.0, 0.0], [0.4, 0.2, 0.4], [0.2, 0.7, 0.1]])
    np.testing.assert_allclose(doubt(probabilities), [0, 1, 0.5])
    assert doubt(np.ones((2, 1))).tolist() == [0, 0]


def test_the_first_choice_covers_most_doubt_and_the_next_what_is_left():
    crowd, pair, alone = np.eye(3)
    rows = l2_normalize(np.stack([crowd, crowd + 0.1 * pair, crowd - 0.1 * pair, pair, pair + 0.1 * crowd, alone]))
    order = asking_order(np.full(6, 0.5), rows)
    assert order[0] in (0, 1, 2), "one of the largest crowd"
    assert order[1] in (3, 4), "then another crowd, not a near-duplicate"
    assert order[2] == 5
    assert sorted(order) == list(range(6))


def test_where_rows_are_unlike_doubt_decides():
    doubts = np.array([0.1, 0.9, 0.5, 0.7])
    assert asking_order(doubts, np.eye(4)).tolist() == [1, 3, 2, 0]


@pytest.mark.parametrize("n_rows", [0, 1, 7])
def test_many_rows_follow_by_doubt(monkeypatch, n_rows):
    monkeypatch.setattr(asking, "MOST_COMPARED", 4)
    monkeypatch.setattr(asking, "MOST_CHOSEN", 2)
    rng = np.random.default_rng(0)
    doubts, rows = rng.random(n_rows), l2_normalize(rng.normal(size=(n_rows, 3)))
    order = asking_order(doubts, rows)
    assert sorted(order) == list(range(n_rows))
    assert (np.diff(doubts[order[2:]]) <= 0).all()
